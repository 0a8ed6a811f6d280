"""The concrete agent: deliveries, cancellation and waiting, around a driver that exists while it runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, final

import trio

from ..agent import (
    Agent,
    AgentOptions,
    AgentStatusChanged,
    Deliverable,
    Delivery,
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
    OwnerToken,
    Reply,
    Scope,
    SessionEvent,
    SessionStart,
    Settlement,
)
from ..agent._inbox import Inbox
from ..agent._scope import Offer
from ..errors import (
    AgentBusyError,
    AgentClosedError,
    AgentNotPublishedError,
    MessageError,
    TurnAborted,
    UsageError,
)
from ..scope._dispatch import notify
from ..session import Event, Pen, Session
from ..session._events import AssistantMessage, Draft, Replace, Target
from ..values import (
    BY_USER,
    Aborted,
    Attachment,
    CancelCause,
    ForeignCause,
    PluginSource,
    TurnEndReason,
    UserMessage,
)
from ._activity import Activity
from ._driver import Driver
from ._inside import waiting_for, working_for
from ._phase import BUSY, WAKES, Input, Phase, step
from ._pipeline import Pipeline
from ._receipts import LoopReceipt, TurnOutcome
from ._reply import LoopReplyContext, ask

if TYPE_CHECKING:
    from ..agent._registry import Entry
    from ._factory import AgentLoop

logger: Final = logging.getLogger("trio_agents")

T = TypeVar("T")

CLEARED: Final = "The conversation before this point was cleared at the user's request."


@final
class LoopAgent:
    """The agent that `AgentLoop` makes. See `Agent` for what its methods promise."""

    __slots__ = (
        "_activity", "_budget_spent", "_continuing", "_driver", "_driving_pen", "_entry", "_idle", "_inbox", "_is_closing", "_latch",
        "_loop", "_options", "_owed", "_own_offers", "_pen", "_phase", "_receipts", "_selection", "_session", "_waits_for", "_woken",
        "has_logged_header", "life", "scope",
    )  # fmt: skip

    scope: Scope
    life: Any

    def __init__(self, loop: AgentLoop, session: Session, pen: Pen, options: AgentOptions) -> None:
        self._loop = loop
        self._session = session
        self._pen = pen
        self._options = options
        self._inbox = Inbox(pen, self, self.check_accepting)
        pen.project(self._inbox.project)
        self._phase = Phase.HELD
        self._latch = False
        self._woken = False
        self._continuing = False
        self._is_closing = False
        self._budget_spent = 0
        self._activity: Activity | None = None
        self._driver: Driver | None = None
        self._entry: Entry[Agent] | None = None
        self._idle: trio.Event | None = None
        self._owed: TurnEndReason | None = None
        self._driving_pen: Pen | None = None
        self._own_offers: dict[str, Offer] | None = None
        self._receipts: dict[str, LoopReceipt] | None = None
        self._selection: tuple[str, str | None] | None = None
        self._waits_for: list[LoopAgent] | None = None
        self.has_logged_header = False

    # --- what it is ---------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The agent's id, which is its session's."""
        return self._session.id

    @property
    def owner_token(self) -> OwnerToken:
        """Identifies this exact publication."""
        return OwnerToken(self._entry or self)

    @property
    def options(self) -> AgentOptions:
        """What it was created with."""
        return self._options

    @property
    def session(self) -> Session:
        """Its facts."""
        return self._session

    @property
    def inbox(self) -> Inbox:
        """What is pending."""
        return self._inbox

    @property
    def status(self) -> Literal["idle", "running"]:
        """Whether a run is under way."""
        return "running" if self._phase in BUSY else "idle"

    @property
    def waits_for(self) -> list[LoopAgent]:
        """The agents that this agent's own work is waiting for at the moment."""
        if self._waits_for is None:
            self._waits_for = []
        return self._waits_for

    def __repr__(self) -> str:
        return f"<agent {self.id!r}: {'closing' if self._is_closing else self._phase.value}>"

    @property
    def own_offers(self) -> dict[str, Offer]:
        """The tools of its options, by name: no scope has them, they are this agent's alone."""
        if self._own_offers is None:
            self._own_offers = {tool.name: Offer(tool) for tool in self._options.tools}
        return self._own_offers

    # --- deliveries ---------------------------------------------------------------------------

    def check_accepting(self) -> None:
        """Raise unless the agent takes deliveries."""
        if self._entry is None:
            raise AgentNotPublishedError(
                f"agent {self.id!r} is being set up; it takes deliveries from its publication on"
            )
        if self._is_closing:
            raise AgentClosedError(f"agent {self.id!r} is being disposed; it takes nothing any more")

    @trio.lowlevel.enable_ki_protection
    def send(self, message: Deliverable, *, target: Target = "next-turn", wake: bool = True) -> LoopReceipt:
        """Deliver a message; see `Agent.send`."""
        self.check_accepting()
        given = as_message(message)
        if wake and target == "next-step" and self._activity is not None and self._activity.is_cancelled:
            target = "next-turn"  # the work that it was meant to steer has been stopped
        receipt = self._insert(given, target)
        if wake:
            self._wake()
        return receipt

    def followup(self, message: Deliverable) -> LoopReceipt:
        """Queue a message for a turn of its own, and wake the agent."""
        return self.send(message)

    def steer(self, message: Deliverable) -> LoopReceipt:
        """Put a message into the next step of the turn at work; an idle agent opens a turn."""
        return self.send(message, target="next-step")

    def inject(self, message: Deliverable) -> LoopReceipt:
        """Put a message into the next step, whenever that is; wakes nobody."""
        return self.send(message, target="next-step", wake=False)

    @trio.lowlevel.enable_ki_protection
    def deliver(self, message: Deliverable, *, wake_budget: int | None = None) -> Delivery:
        """Deliver on a program's behalf; see `Agent.deliver`."""
        if wake_budget is not None and (type(wake_budget) is not int or wake_budget < 0):
            raise UsageError(f"wake_budget is an int >= 0 or None, not {wake_budget!r}")
        self.check_accepting()
        if self.status == "running":
            self.steer(message)
            return "JOINED"
        if wake_budget is not None and self._budget_spent >= wake_budget:
            self.inject(message)
            return "PARKED"
        self._insert(as_message(message), "next-turn")
        self._budget_spent += 1
        self._wake()
        return "WOKE"

    @trio.lowlevel.enable_ki_protection
    def try_followup_when_idle(
        self, prepare: Callable[[], Deliverable | None], accepted: Callable[[], object] | None = None
    ) -> bool:
        """Deliver what `prepare` gives if the agent is idle and nothing is pending; see `Agent`."""
        self.check_accepting()
        if self._phase is not Phase.IDLE or self._inbox.has_pending:
            return False
        message = prepare()
        if message is None:
            return False
        self._insert(as_message(message), "next-turn")
        if accepted is not None:
            accepted()
        self._wake()
        return True

    @trio.lowlevel.enable_ki_protection
    def wake(self) -> None:
        """Work on what is pending, if anything is."""
        self.check_accepting()
        if self._inbox.has_pending:
            self._wake()

    def _insert(self, message: UserMessage, target: Target) -> LoopReceipt:
        receipt = LoopReceipt(self, message.id)
        receipts = self._receipts
        if receipts is None:
            receipts = self._receipts = {}
        known = receipts.get(message.id)
        receipts[message.id] = receipt
        try:
            self._inbox.insert(message, target)
        except BaseException:
            if known is None:
                receipts.pop(message.id, None)
            else:
                receipts[message.id] = known
            raise
        return receipt

    # --- waking -------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._woken = True
        how = WAKES[self._phase]
        if how == "start":
            self._start()
        elif how == "latch" or (self._activity is not None and self._activity.is_cancelled):
            self._latch = True

    def _start(self) -> None:
        """Begin a run, unless the runtime starts nothing any more: then what is pending stays parked."""
        if self._loop.is_draining:
            return
        driver = Driver(self)
        # The task is started first and the phase flipped second: a refused start leaves nothing to undo, and a
        # started task first runs when this section is over.
        if not self._loop.homes.spawn(driver.run, name=f"driver of {self.id}"):
            return
        self._driver = driver
        self._driving_pen = self._pen.lend()
        self._activity = Activity()
        self._move(Input.WAKE)
        self._tell_status()

    def _move(self, happened: Input) -> None:
        self._phase = step(self._phase, happened)

    def _tell_status(self) -> None:
        listeners = self.scope.listeners(AgentStatusChanged)
        if listeners:
            notify(listeners, AgentStatusChanged(agent=self, status=self.status))

    @property
    def wants_turn(self) -> bool:
        """Whether a run has a (further) turn to open: next-step alone opens one only after a wake."""
        inbox = self._inbox
        return bool(inbox.next_turn) or (self._woken and bool(inbox.next_step)) or self._continuing

    @property
    def activity(self) -> Activity:
        """The activity of the run at work."""
        assert self._activity is not None
        return self._activity

    def renew_activity(self) -> None:
        """Begin a fresh activity: nothing of an earlier cancel reaches a later turn."""
        self._activity = Activity()

    def take_continuation(self) -> bool:
        """Whether the turn that opens now is to have no input of its own; asked once."""
        asked, self._continuing = self._continuing, False
        return asked

    def note_turn_failed(self) -> None:
        """The run will open no further turn: a wake from here on is latched."""
        self._move(Input.TURN_FAILED)

    @trio.lowlevel.enable_ki_protection
    def end_run(self) -> None:
        """Become idle, tell it, and answer a latched wake. For the driver, as its last act."""
        self._driver = None
        self._activity = None
        self._woken = False
        self._continuing = False
        self._move(Input.QUIET)
        self._tell_status()
        self._move(Input.SETTLED)
        self._answer_latch()

    def _answer_latch(self) -> None:
        latched, self._latch = self._latch, False
        if latched and not self._is_closing and self._inbox.has_pending:
            self._woken = True
            self._start()
        if self._phase is Phase.IDLE and self._idle is not None:
            self._idle.set()
            self._idle = None

    # --- stopping -----------------------------------------------------------------------------

    def cancel(self, cause: CancelCause = BY_USER, *, keep_inbox: bool = False) -> None:
        """Stop the work at hand; see `Agent.cancel`."""
        if not isinstance(cause, CancelCause) or isinstance(cause, ForeignCause):
            raise UsageError(f"a cause is BY_USER, BY_PARENT, ByHook(reason=...) or DISPOSED, not {cause!r}")
        if self._entry is not None and not self._is_closing:
            self.stop_work(cause, plain=not keep_inbox)

    @trio.lowlevel.enable_ki_protection
    def stop_work(self, cause: CancelCause, *, plain: bool) -> None:
        """Record the cause, clear the inbox if plain, cancel the activity: in this order, and the last in any case."""
        activity = self._activity
        if activity is not None:
            activity.record(cause, plain=plain)
        try:
            if plain:
                self._latch = False
                self._woken = False
                self._inbox.discard_all()
        finally:
            if activity is not None:
                activity.scope.cancel(reason=f"agent {self.id!r} was cancelled: {cause.kind}")

    def cancel_tool(self, call_id: str, *, reason: str = "") -> bool:
        """End the body of one tool call; the turn and the other calls go on."""
        return self._driver is not None and self._driver.cancel_tool(call_id, reason)

    async def stop(self, cause: CancelCause = BY_USER, *, keep_inbox: bool = False) -> None:
        """Cancel, then wait until all is quiet."""
        self.cancel(cause, keep_inbox=keep_inbox)
        with waiting_for(self, "stop()"):
            await self._quiet()

    async def when_idle(self) -> None:
        """Wait until the agent is quiescent and its log durable; see `Agent.when_idle`."""
        with waiting_for(self, "when_idle()"):
            await self._quiet()

    async def _quiet(self) -> None:
        await trio.lowlevel.checkpoint()
        while True:
            await self.wait_idle()
            if not self._session.is_dirty:
                return
            await self._session.flush()

    async def wait_idle(self) -> None:
        """Wait until no run and no maintenance is under way. No checkpoint if none is."""
        while self._phase is not Phase.IDLE:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    # --- other work ---------------------------------------------------------------------------

    async def run_maintenance(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a job while no turn runs; see `Agent.run_maintenance`."""
        self.check_accepting()
        if self._phase is not Phase.IDLE:
            raise AgentBusyError(f"agent {self.id!r} is {self._phase.value}; maintenance needs it idle")
        self._move(Input.MAINTAIN)
        activity = self._activity = Activity()
        try:
            with activity.scope, working_for(self):
                await trio.lowlevel.checkpoint()
                return await job()
        finally:
            self._end_maintenance()
        raise TurnAborted(
            f"the maintenance of agent {self.id!r} was cancelled",
            end=Aborted(reason=activity.cause or BY_USER),
        )

    @trio.lowlevel.enable_ki_protection
    def _end_maintenance(self) -> None:
        if self._phase is Phase.MAINTENANCE:  # else the teardown has gone on without it
            self._activity = None
            self._move(Input.MAINTAINED)
            self._answer_latch()

    def select_model(self, model: str, *, effort: str | None = None) -> None:
        """Use another model from the next step on."""
        if type(model) is not str or not all(model.partition("/")):
            raise UsageError(f"a model is named provider/model, not {model!r}")
        if effort is not None and (type(effort) is not str or not effort):
            raise UsageError(f"effort is a non-empty string or None, not {effort!r}")
        self._selection = (model, effort)

    @property
    def selection(self) -> tuple[str, str | None] | None:
        """Model and effort that were selected after creation, or None."""
        return self._selection

    @trio.lowlevel.enable_ki_protection
    def continue_turn(self) -> int:
        """Open a turn without input, if the history owes an answer; see `Agent.continue_turn`."""
        self.check_accepting()
        if self._phase is not Phase.IDLE:
            raise AgentBusyError(
                f"agent {self.id!r} is {self._phase.value}; a turn is continued when it is idle"
            )
        if not self._owes_answer():
            raise UsageError(f"the history of agent {self.id!r} owes no answer; deliver a message instead")
        turn = self._session.turn + 1
        self._continuing = True
        self._start()
        if self._phase is Phase.IDLE:
            self._continuing = False
            raise AgentClosedError(f"the runtime of agent {self.id!r} is ending; it starts no turn")
        return turn

    def _owes_answer(self) -> bool:
        surface = self._session.surface
        if not surface:
            return False
        last = self._session.events[surface[-1]].data
        return type(last) is not AssistantMessage or last.interrupted is True

    async def clear_context(self, notice: str = CLEARED) -> None:
        """Start the conversation afresh; see `Agent.clear_context`."""
        message = UserMessage.from_text(notice, source=PluginSource(plugin="trio_agents", form="notice"))

        async def job() -> None:
            surface = self._session.surface
            if surface:
                self.replace_surface(message, start=surface[0], end=surface[-1], sources=surface)
            self.announce_start("clear")

        await self.run_maintenance(job)

    def replace_surface(
        self, message: UserMessage, *, start: int, end: int, sources: tuple[int, ...] = ()
    ) -> Event:
        """Put a message in the place of a stretch of the surface; see `Agent.replace_surface`."""
        self.check_accepting()
        [event] = self._pen.append(Draft(message, Replace(start=start, end=end), sources))
        return event

    def announce_start(self, source: Literal["startup", "resume", "clear", "compact"]) -> None:
        """Tell that a conversation starts."""
        listeners = self.scope.listeners(SessionStart)
        if listeners:
            notify(listeners, SessionStart(agent=self, source=source))

    def lease_pipeline(self) -> Pipeline:
        """One consistent snapshot of tools, prompt and hooks."""
        return Pipeline(self)

    async def attach(
        self, data: bytes, *, media_type: str | None = None, name: str | None = None
    ) -> Attachment:
        """Store an attachment beside the log; see `Agent.attach`."""
        self.check_accepting()
        return await self._loop.store.put_attachment(self.id, data, media_type, name)

    async def ask(
        self, message: Deliverable, *, check: bool = True, returns: type[Any] | None = None
    ) -> Reply:
        """Deliver a message and wait for the turn that takes it; see `Agent.ask`."""
        return await ask(self, message, check=check, returns=returns)

    def stream(self, message: Deliverable) -> LoopReplyContext:
        """Deliver a message on entering the block and give the text of its turn as it comes."""
        return LoopReplyContext(self, message)

    # --- what the inbox tells -----------------------------------------------------------------

    def inserted(self, message: UserMessage) -> None:
        """A message is pending."""
        listeners = self.scope.listeners(InboxInserted)
        if listeners:
            notify(listeners, InboxInserted(agent=self, message=message))

    def claimed(self, message: UserMessage, turn: int) -> None:
        """A turn took a message."""
        if message.source.kind == "user":
            self._budget_spent = 0
        receipt = self._receipts.pop(message.id, None) if self._receipts else None
        if receipt is not None:
            receipt.turn = turn
            if self._driver is not None:
                self._driver.receipts.append(receipt)
        listeners = self.scope.listeners(InboxClaimed)
        if listeners:
            notify(listeners, InboxClaimed(agent=self, message=message, turn=turn))

    def discarded(self, message: UserMessage) -> None:
        """A message was recorded as cancelled."""
        receipt = self._receipts.pop(message.id, None) if self._receipts else None
        if receipt is not None:
            receipt.settle(Settlement(outcome="discarded"))
        listeners = self.scope.listeners(InboxDiscarded)
        if listeners:
            notify(listeners, InboxDiscarded(agent=self, message=message))

    # --- for the lifecycle --------------------------------------------------------------------

    @property
    def pen(self) -> Pen:
        """The right to write core events."""
        return self._pen

    @property
    def loop(self) -> AgentLoop:
        """The loop that made it."""
        return self._loop

    @property
    def is_closing(self) -> bool:
        """Whether its teardown has begun."""
        return self._is_closing

    @property
    def is_busy(self) -> bool:
        """Whether a run or a maintenance job is under way."""
        return self._phase is not Phase.IDLE and self._phase is not Phase.HELD

    @property
    def driver(self) -> Driver | None:
        """The driver of the run at work, or None."""
        return self._driver

    def entered(self, entry: Entry[Agent]) -> None:
        """It is in the registry: deliveries are accepted from now on, and held until it is published."""
        self._entry = entry
        self._session.observe(self._told)

    def _told(self, event: Event) -> None:
        listeners = self.scope.listeners(SessionEvent)
        if listeners:
            notify(listeners, SessionEvent(agent=self, event=event))

    @trio.lowlevel.enable_ki_protection
    def published(self) -> None:
        """Its publication is complete: what was held starts."""
        self._move(Input.PUBLISH)
        self._answer_latch()

    def begin_closing(self) -> None:
        """Take nothing any more."""
        self._is_closing = True
        if self._phase is Phase.HELD:
            self._move(Input.PUBLISH)
        self._latch = False

    def keep_receipts(self) -> None:
        """The agent has ended: what is still pending stays in the log."""
        receipts, self._receipts = self._receipts, None
        for receipt in (receipts or {}).values():
            receipt.settle(Settlement(outcome="kept"))

    # --- for the driver -----------------------------------------------------------------------

    @property
    def driving_pen(self) -> Pen:
        """The driver's own right to write, which a teardown that has waited long enough takes away."""
        assert self._driving_pen is not None
        return self._driving_pen

    @property
    def owes_closers(self) -> bool:
        """Whether the storage refused the end of a turn: its closers come before anything else."""
        return self._owed is not None

    def owe(self, end: TurnEndReason) -> None:
        """Remember how the turn ended that could not be closed in the log."""
        self._owed = end

    def pay_owed(self) -> None:
        """Close the turn that could not be closed before. Raises what the log raises."""
        if self._owed is not None:
            self._pen.append(*self._pen.closers(self._owed))
            self._owed = None

    @trio.lowlevel.enable_ki_protection
    def abandon_driver(self) -> str:
        """Wait no longer for work that overstays: take its pen away, close its turn, be idle. Says what it was."""
        driver, self._driver = self._driver, None
        if driver is None:
            self._move(Input.MAINTAINED)
            where = "a maintenance job"
        else:
            self.driving_pen.revoke()
            where = driver.overstay()
            if self._phase is Phase.RUNNING or self._phase is Phase.ENDING:
                self._move(Input.QUIET)
            self._tell_status()
            self._move(Input.SETTLED)
        self._answer_latch()
        return where

    def unwoken(self) -> None:
        """Next-step was taken, or is to stay parked: only a further wake opens a turn for what comes there."""
        self._woken = False

    def settle_claimed(
        self, receipts: list[LoopReceipt], outcome: TurnOutcome, returned: set[str], discarded: set[str]
    ) -> None:
        """Settle what a turn had claimed."""
        for receipt in receipts:
            if receipt.message_id in discarded:
                receipt.settle(Settlement(outcome="discarded", turn=outcome.turn, end=outcome.end), outcome)
            elif receipt.message_id in returned:
                receipt.settle(Settlement(outcome="returned", turn=outcome.turn, end=outcome.end), outcome)
            else:
                receipt.settle(Settlement(outcome="claimed", turn=outcome.turn, end=outcome.end), outcome)


def as_message(message: Deliverable) -> UserMessage:
    """A message out of what can be delivered.

    Raises:
        MessageError: it is nothing of the kind, or an empty text.
    """
    if isinstance(message, UserMessage):
        return message
    made = UserMessage.from_text(message)
    if not made.content:
        raise MessageError("a message needs content")
    return made
