"""The concrete agent: deliveries and services, around what `Running` does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar, final, overload

import trio

from ..agent import (
    AgentOptions,
    Deliverable,
    Delivery,
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
    OwnerToken,
    Reply,
    SessionEvent,
    SessionStart,
    Settlement,
)
from ..agent._layer import Offer
from ..errors import AgentBusyError, AgentClosedError, MessageError, TurnAborted, UsageError
from ..scope._dispatch import notify
from ..scope._waits import working_for
from ..session import AssistantMessage, Draft, Event, Pen, Replace, Session, Target
from ..tools._images import image_info
from ..values import (
    BY_USER,
    Aborted,
    Attachment,
    ImageBlock,
    PluginSource,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
)
from ._activity import Activity
from ._phase import Input, Phase
from ._pipeline import Pipeline
from ._receipts import LoopReceipt
from ._reply import LoopReplyContext, ask
from ._running import Running

if TYPE_CHECKING:
    from ._factory import AgentLoop
    from ._request import Settled

T = TypeVar("T")

_NOT_DELIVERED: Final = frozenset({ToolCallBlock, ToolResultBlock, ReasoningBlock})

CLEARED: Final = "The conversation before this point was cleared at the user's request."


@final
class LoopAgent(Running):
    """The agent that `AgentLoop` makes. See `Agent` for what its methods promise."""

    __slots__ = (
        "_budget_spent", "_own_offers", "_receipts", "_selection", "has_logged_header", "settled",
    )  # fmt: skip

    def __init__(self, loop: AgentLoop, session: Session, pen: Pen, options: AgentOptions) -> None:
        super().__init__(loop, session, pen, options)
        pen.serve(self)
        self._budget_spent = 0
        self._own_offers: dict[str, Offer] | None = None
        self._receipts: dict[str, LoopReceipt] | None = None
        self._selection: tuple[str, str | None] | None = None
        self.has_logged_header = False
        self.settled: Settled | None = None

    @property
    def owner_token(self) -> OwnerToken:
        """Identifies this exact publication."""
        return OwnerToken(self._entry or self)

    @property
    def own_offers(self) -> dict[str, Offer]:
        """The tools of its options, by name; no scope has them, they are this agent's alone."""
        if self._own_offers is None:
            self._own_offers = {tool.name: Offer(tool) for tool in self.options.tools}
        return self._own_offers

    # --- deliveries ---------------------------------------------------------------------------

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
        _check_budget(wake_budget)
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
        if not self._is_free():
            return False
        message = prepare()
        if message is None or not self._is_free():
            return False  # `prepare` may have delivered something itself
        self._insert(as_message(message), "next-turn")
        try:
            if accepted is not None:
                accepted()
        finally:
            self._wake()  # the message is accepted, whatever becomes of telling it
        return True

    def _is_free(self) -> bool:
        return self._phase is Phase.IDLE and not self.inbox.has_pending

    @trio.lowlevel.enable_ki_protection
    def wake(self) -> None:
        """Work on what is pending, if anything is."""
        self.check_accepting()
        if self.inbox.has_pending:
            self._wake()

    def _insert(self, message: UserMessage, target: Target) -> LoopReceipt:
        receipt = LoopReceipt(self, message.id)
        receipts = self._receipts
        if receipts is None:
            receipts = self._receipts = {}
        known = receipts.get(message.id)
        receipts[message.id] = receipt
        try:
            self.inbox.insert(message, target)
        except BaseException:
            if known is None:
                receipts.pop(message.id, None)
            else:
                receipts[message.id] = known
            raise
        return receipt

    def check_message(self, message: UserMessage) -> None:
        """Raise unless the message can be shown to a model.

        Raises:
            MessageError: it refers to an attachment that the session does not have, or has a block that only a model's
                message or a tool's result can have.
        """
        for block in message.content:
            kind = type(block)
            if kind is TextBlock:
                continue
            if type(block) is ImageBlock:
                attachment = block.attachment
                if not self.loop.store.has_attachment(self.id, attachment.attachment_id):
                    raise MessageError(
                        f"message {message.id!r} refers to attachment {attachment.attachment_id!r}, which session "
                        f"{self.id!r} does not have; attach() the data first"
                    )
            elif kind in _NOT_DELIVERED:
                raise MessageError(
                    f"message {message.id!r} has a {block.tag} block, which only models and tools produce"
                )

    # --- other work ---------------------------------------------------------------------------

    async def run_maintenance(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a job while no turn runs; see `Agent.run_maintenance`."""
        self.check_accepting()
        if self._phase is not Phase.IDLE:
            raise AgentBusyError(f"agent {self.id!r} is {self._phase.value}; maintenance needs it idle")
        self._move(Input.MAINTAIN)
        activity = self._activity = Activity()
        try:
            with working_for(self), activity.scope:
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
        turn = self.session.turn + 1
        self._continuing = True
        self._start()
        if not self.is_busy:
            self._continuing = False
            raise AgentClosedError(f"the runtime of agent {self.id!r} is ending; it starts no turn")
        return turn

    def _owes_answer(self) -> bool:
        surface = self.session.surface
        if not surface:
            return False
        last = self.session.events[surface[-1]].data
        return type(last) is not AssistantMessage or last.interrupted is True

    async def clear_context(self, notice: str = CLEARED) -> None:
        """Start the conversation afresh; see `Agent.clear_context`."""
        message = UserMessage.from_text(notice, source=PluginSource(plugin="trio_agents", form="notice"))

        async def job() -> None:
            surface = self.session.surface
            if surface:
                self.replace_surface(message, start=surface[0], end=surface[-1], sources=surface)
            self.announce_start("clear")

        await self.run_maintenance(job)

    def replace_surface(
        self, message: UserMessage, *, start: int, end: int, sources: tuple[int, ...] = ()
    ) -> Event:
        """Put a message in the place of a stretch of the surface; see `Agent.replace_surface`."""
        self.check_accepting()
        [event] = self.pen.append(Draft(message, Replace(start=start, end=end), sources))
        return event

    def announce_start(self, source: Literal["startup", "resume", "clear", "compact"]) -> bool:
        """Tell that a conversation starts. Returns whether anybody was told."""
        listeners = self.scope.listeners(SessionStart)
        if listeners:
            notify(listeners, SessionStart(agent=self, source=source))
        return bool(listeners)

    def lease_pipeline(self) -> Pipeline:
        """One consistent snapshot of tools, prompt and hooks."""
        return Pipeline(self)

    async def attach(
        self, data: bytes, *, media_type: str | None = None, name: str | None = None
    ) -> Attachment:
        """Store an attachment beside the log; see `Agent.attach`."""
        self.check_accepting()
        if media_type is None:
            found = image_info(data) if type(data) is bytes else None
            media_type = "application/octet-stream" if found is None else found.media_type
        return await self.loop.store.put_attachment(self.id, data, media_type, name)

    async def read_attachment(self, attachment: Attachment) -> bytes:
        """The bytes that an attachment of this session stands for. For adapters."""
        return await self.loop.store.get_attachment(self.id, attachment.attachment_id)

    @overload
    async def ask(self, message: Deliverable, *, check: bool = True, returns: None = None) -> Reply[None]: ...

    @overload
    async def ask(self, message: Deliverable, *, check: bool = True, returns: type[T]) -> Reply[T]: ...

    async def ask(
        self, message: Deliverable, *, check: bool = True, returns: type[T] | None = None
    ) -> Reply[T] | Reply[None]:
        """Deliver a message and wait for the turn that takes it; see `Agent.ask`."""
        if returns is None:
            return await ask(self, message, check=check)
        from ._structured import ask_typed  # only who wants values needs what makes them

        return await ask_typed(self, message, returns, check=check)

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

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to its events."""
        # Asked for each event, so the usual no comes first. Before its entry nobody knows of the agent.
        return (
            SessionEvent in self.loop.homes.heard
            and self._entry is not None
            and self.scope.listeners(SessionEvent) != ()
        )

    def told(self, event: Event) -> None:
        """An event was committed."""
        if self._entry is None:
            return
        listeners = self.scope.listeners(SessionEvent)
        if listeners:
            notify(listeners, SessionEvent(agent=self, event=event))

    def keep_receipts(self) -> None:
        """The agent has ended: what is still pending stays in the log."""
        receipts, self._receipts = self._receipts, None
        if receipts:
            for receipt in receipts.values():
                receipt.settle(Settlement(outcome="kept"))


def _check_budget(value: object) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise UsageError(f"wake_budget is an int >= 0 or None, not {value!r}")


def as_message(message: Deliverable) -> UserMessage:
    """A message out of what can be delivered.

    Raises:
        MessageError: it is nothing of the kind, or has no content but blank text.
    """
    if isinstance(message, UserMessage):
        return message
    made = UserMessage.from_text(message)
    for block in made.content:
        if type(block) is not TextBlock or block.text.strip():
            return made
    raise MessageError("a message needs content: this one is empty, or blank text")
