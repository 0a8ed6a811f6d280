"""What an agent is doing: its phase, the run that a wake starts, cancellation, and waiting until all is quiet."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal

import trio

from ..agent import Agent, AgentOptions, AgentStatusChanged, Scope
from ..agent._directory import Entry
from ..agent._inbox import Inbox
from ..errors import AgentClosedError, AgentNotPublishedError, UsageError
from ..scope._dispatch import notify
from ..session import InboxSpliced, Pen, Session, TurnEnd
from ..session._repair import returned_splices
from ..values import BY_USER, CancelCause, ForeignCause, TurnEndReason, UserMessage
from ._activity import Activity
from ._driver import Driver
from ._inside import waiting_for
from ._phase import BUSY, WAKES, Input, Phase, step

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._factory import AgentLoop


class Running:
    """The moving part of an agent: `LoopAgent` without deliveries and services.

    Attributes:
        loop: the loop that made it.
        options: what it was created with.
        pen: the right to write core events.
        scope: what it owns.
        session: its facts.
    """

    __slots__ = (
        "_activity", "_continuing", "_driver", "_driving_pen", "_entry", "_idle", "_inbox", "_is_closing", "_latch",
        "_owed", "_phase", "_waits_for", "_woken", "loop", "options", "pen", "scope", "session",
    )  # fmt: skip

    scope: Scope

    def __init__(self, loop: AgentLoop, session: Session, pen: Pen, options: AgentOptions) -> None:
        self.loop: Final = loop
        self.session: Final = session
        self.pen: Final = pen
        self.options: Final = options
        self._inbox: Inbox | None = None
        self._phase = Phase.HELD
        self._latch = False
        self._woken = False
        self._continuing = False
        self._is_closing = False
        self._activity: Activity | None = None
        self._driver: Driver | None = None
        self._entry: Entry[Agent] | None = None
        self._idle: trio.Event | None = None
        self._owed: tuple[TurnEndReason, Collection[str]] | None = None
        self._driving_pen: Pen | None = None
        self._waits_for: list[LoopAgent] | None = None

    @property
    def _self(self) -> LoopAgent:
        """Itself, as what it is in the end."""
        return self  # type: ignore[return-value]  # `LoopAgent` is the one class made of this

    # --- what it is ---------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The agent's id, which is its session's."""
        return self.session.id

    @property
    def inbox(self) -> Inbox:
        """What is pending; made when it is first asked for."""
        inbox = self._inbox
        if inbox is None:
            inbox = self._inbox = Inbox(self.pen, self._self)
        return inbox

    def spliced(self, splice: InboxSpliced, removed: tuple[UserMessage, ...]) -> None:
        """The inbox has followed a splice."""
        self.inbox.tell(splice, removed)

    @property
    def status(self) -> Literal["idle", "running"]:
        """Whether a run is under way."""
        return "running" if self._phase in BUSY else "idle"

    @property
    def is_closing(self) -> bool:
        """Whether its teardown has begun."""
        return self._is_closing

    @property
    def is_busy(self) -> bool:
        """Whether a run or a maintenance job is under way."""
        phase = self._phase
        return phase is not Phase.IDLE and phase is not Phase.HELD

    @property
    def has_work(self) -> bool:
        """Whether it is busy, or owes the closers of a turn."""
        phase = self._phase
        return (phase is not Phase.IDLE and phase is not Phase.HELD) or self._owed is not None

    @property
    def driver(self) -> Driver | None:
        """The driver of the run at work, or None."""
        return self._driver

    @property
    def waits_for(self) -> list[LoopAgent]:
        """The agents that this agent's own work is waiting for at the moment."""
        if self._waits_for is None:
            self._waits_for = []
        return self._waits_for

    def __repr__(self) -> str:
        return f"<agent {self.id!r}: {'closing' if self._is_closing else self._phase.value}>"

    def check_accepting(self) -> None:
        """Raise unless the agent takes deliveries."""
        if self._entry is None:
            raise AgentNotPublishedError(
                f"agent {self.id!r} is being set up; it takes deliveries from its publication on"
            )
        if self._is_closing:
            raise AgentClosedError(f"agent {self.id!r} is being disposed; it takes nothing any more")

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
        if self.loop.is_draining:
            return
        driver = Driver(self._self)
        # The task is started first and the phase flipped second: a refused start leaves nothing to undo, and a
        # started task first runs when this section is over.
        if not self.loop.homes.spawn(driver.run, name=f"driver of {self.id}"):
            return
        self._driver = driver
        self._driving_pen = self.pen.lend()
        self._activity = Activity()
        self._move(Input.WAKE)
        self._tell_status()

    def _move(self, happened: Input) -> None:
        self._phase = step(self._phase, happened)

    def _tell_status(self) -> None:
        listeners = self.scope.listeners(AgentStatusChanged)
        if listeners:
            notify(listeners, AgentStatusChanged(agent=self._self, status=self.status))

    # --- for the driver -----------------------------------------------------------------------

    @property
    def wants_turn(self) -> bool:
        """Whether a run has a (further) turn to open; next-step alone opens one only after a wake."""
        inbox = self.inbox
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

    def unwoken(self) -> None:
        """Next-step was taken, or is to stay parked: only a further wake opens a turn for what comes there."""
        self._woken = False

    def note_turn_failed(self) -> None:
        """The run will open no further turn: a wake from here on is latched."""
        if self._phase is Phase.RUNNING:
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
        if latched and not self._is_closing and self.inbox.has_pending:
            self._woken = True
            self._start()
        if self._phase is Phase.IDLE and self._idle is not None:
            self._idle.set()
            self._idle = None

    @property
    def driving_pen(self) -> Pen:
        """The driver's own right to write, which a teardown that has waited long enough takes away."""
        assert self._driving_pen is not None
        return self._driving_pen

    @property
    def owes_closers(self) -> bool:
        """Whether the storage refused the end of a turn; its closers come before anything else."""
        return self._owed is not None

    def owe(self, end: TurnEndReason, *, cancelled: Collection[str]) -> None:
        """Remember how a turn ended that could not be closed in the log, and which messages that cancelled."""
        self._owed = (end, cancelled)

    def pay_owed(self) -> None:
        """Close the turn that could not be closed before, in one append. Raises what the log raises."""
        if self._owed is None:
            return
        end, cancelled = self._owed
        drafts: list[object] = list(self.pen.closers(end))
        if cancelled and drafts:
            for splice in reversed(returned_splices(self.pen.pending)):
                # They return to the front, so from the last to the first their places are known.
                for index in range(len(splice.inserted) - 1, -1, -1):
                    if splice.inserted[index].id in cancelled:
                        gone = InboxSpliced(
                            target=splice.target, start=index, removed_count=1, outcome="canceled"
                        )
                        drafts.insert(_end_of(drafts), gone)
        if drafts:
            self.pen.append(*drafts)
        self._owed = None

    # --- stopping -----------------------------------------------------------------------------

    def cancel(self, cause: CancelCause = BY_USER, *, keep_inbox: bool = False) -> None:
        """Stop the work at hand; see `Agent.cancel`."""
        given: object = cause
        if not isinstance(given, CancelCause) or isinstance(given, ForeignCause):
            raise UsageError(f"a cause is BY_USER, BY_PARENT, ByHook(reason=...) or DISPOSED, not {given!r}")
        if self._entry is not None and not self._is_closing:
            self.stop_work(given, plain=not keep_inbox)

    @trio.lowlevel.enable_ki_protection
    def stop_work(self, cause: CancelCause, *, plain: bool) -> None:
        """Record the cause, clear the inbox if plain, cancel the activity: in this order, the last in any case."""
        activity = self._activity
        if activity is not None:
            activity.record(cause, plain=plain)
        try:
            if plain:
                self._latch = False
                self._woken = False
                self.inbox.discard_all()
        finally:
            if activity is not None:
                activity.scope.cancel(reason=f"agent {self.id!r} was cancelled: {cause.kind}")

    def cancel_tool(self, call_id: str, *, reason: str = "") -> bool:
        """End the body of one tool call; the turn and the other calls go on."""
        return self._driver is not None and self._driver.cancel_tool(call_id, reason)

    async def stop(self, cause: CancelCause = BY_USER, *, keep_inbox: bool = False) -> None:
        """Cancel, then wait until all is quiet."""
        self.cancel(cause, keep_inbox=keep_inbox)
        with waiting_for(self._self, "stop()"):
            await self._quiet()

    async def when_idle(self) -> None:
        """Wait until the agent is quiescent and its log durable; see `Agent.when_idle`."""
        with waiting_for(self._self, "when_idle()"):
            await self._quiet()

    @trio.lowlevel.enable_ki_protection
    async def _quiet(self) -> None:
        if self._phase is Phase.IDLE:
            await trio.lowlevel.checkpoint()
        while True:
            await self.wait_idle()
            if not self.session.is_dirty:
                return
            await self.session.flush()

    @trio.lowlevel.enable_ki_protection
    async def wait_idle(self) -> None:  # noqa: ASYNC910  only if there is something to wait for
        """Wait until no run and no maintenance is under way. No checkpoint if none is."""
        while self._phase is not Phase.IDLE:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()

    # --- for the lifecycle --------------------------------------------------------------------

    @property
    def entry(self) -> Entry[Agent] | None:
        """Its publication, or None before it."""
        return self._entry

    def entered(self, entry: Entry[Agent]) -> None:
        """It is in the registry: deliveries are accepted from now on, and held until it is published."""
        self._entry = entry

    @trio.lowlevel.enable_ki_protection
    def published(self) -> None:
        """Its publication is complete: what was held starts."""
        self._move(Input.PUBLISH)
        self._answer_latch()

    def let_go(self) -> None:
        """It has ended: hold only what is there to be read, in no circle."""
        self._inbox = None  # made again for whoever still looks at it
        self.scope.let_go()

    def begin_closing(self) -> None:
        """Take nothing any more."""
        self._is_closing = True
        if self._phase is Phase.HELD:
            self._move(Input.PUBLISH)
        self._latch = False

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
            if self._phase in BUSY:
                self._move(Input.QUIET)
            self._tell_status()
            self._move(Input.SETTLED)
        self._answer_latch()
        return where


def _end_of(drafts: list[object]) -> int:
    """Where the end of the turn stands among its closers."""
    for index, draft in enumerate(drafts):
        if type(getattr(draft, "data", None)) is TurnEnd:
            return index
    return len(drafts)
