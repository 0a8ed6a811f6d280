"""The state that a session and its pens share, and the one way to change it.

`Ledger.append` is the section that everything else relies on: check, write, change memory, tell. It has no
checkpoint; whoever calls it is protected from KeyboardInterrupt.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from threading import get_ident
from typing import Final, Protocol, TypeAlias, final

import trio
from msgspec import UNSET, UnsetType

from ..errors import ReentrantAppendError, SessionClosedError, SessionLogError, UsageError
from ..values._messages import UserMessage
from ._admission import FREQUENT, admit, event_of
from ._codec import encode
from ._events import (
    AssistantChunk,
    Draft,
    Event,
    Header,
    InboxSpliced,
    Replace,
    RequestContext,
    RequestHeader,
    StepEnd,
)
from ._grammar import RULES, START, State
from ._header import SessionHeader
from ._history import Events, History
from ._packing import DELTAS, SHORTEST_RUN
from ._pending import ABOUT_INBOX, Pending
from ._surface import Surface
from ._wire import compact

logger: Final = logging.getLogger("trio_agents")

Observer: TypeAlias = Callable[[Event], object]
ForkPlan: TypeAlias = Callable[[], tuple[SessionHeader, Events]]
ForkInto: TypeAlias = Callable[[str, ForkPlan], Awaitable[object]]
"""Takes the id of a child session, refuses it if it is taken, then calls the plan and stores what it gives."""


class Writer(Protocol):
    """What a session needs of the storage. `storage.LogWriter` is one."""

    @property
    def is_dirty(self) -> bool:
        """Whether a barrier would have anything to do."""
        ...

    def write(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        """Take a batch, all of it or nothing, without a checkpoint."""
        ...

    async def barrier(self) -> None:
        """Return when everything written is as durable as the store promises."""
        ...


class LogRunner(Protocol):
    """Who runs a session: told of everything first. One object, since an idle session can afford no more."""

    @property
    def is_heard(self) -> bool:
        """Whether `told` would do anything at the moment."""
        ...

    def told(self, event: Event) -> object:
        """An event was committed; called before the observers, and before the inbox lists have followed it."""
        ...

    def spliced(self, splice: InboxSpliced, removed: tuple[UserMessage, ...]) -> object:
        """The inbox lists have just followed a splice, which removed these messages."""
        ...


_Admitted: TypeAlias = "tuple[tuple[Event, ...], Sequence[bytes], State]"
"""Events that may be logged, their lines, and the state that they lead to."""

REMEMBERED: Final = frozenset((AssistantChunk, StepEnd, RequestHeader, RequestContext))
"""The payloads that `Ledger._remember` has to see."""


class Entry:
    """One registration of an observer; told apart by identity, so an undo removes its own."""

    __slots__ = ("fn",)

    def __init__(self, fn: Observer) -> None:
        self.fn = fn


@final
class Ledger:
    """The state that a session and its pens share."""

    __slots__ = (
        "_pending",
        "_surface",
        "closed",
        "context",
        "deferred",
        "deltas",
        "dispatching",
        "fork_into",
        "header",
        "history",
        "lot",
        "now",
        "observers",
        "request",
        "runner",
        "state",
        "thread",
        "writer",
    )

    def __init__(self, header: SessionHeader, writer: Writer | None, now: Callable[[], int]) -> None:
        self.header: SessionHeader = header
        self.writer: Writer | None = writer
        self.now: Callable[[], int] = now
        self.fork_into: ForkInto | None = None
        self.history: History = History()
        self._surface: Surface | None = None
        self.state: State = START
        self._pending: Pending | None = None
        self.request: Header | None = None
        self.context: RequestContext | None = None
        self.observers: tuple[Entry, ...] = ()
        self.runner: LogRunner | None = None
        self.deltas: int = 0  # since the last step ended
        self.dispatching: bool = False
        self.deferred: list[Callable[[], object]] | None = None
        self.closed: bool = False
        self.lot: trio.lowlevel.ParkingLot | None = None
        self.thread: int = _shared(get_ident())

    @property
    def surface(self) -> Surface:
        """The surface; made when it is first asked for, since an idle session needs none."""
        surface = self._surface
        if surface is None:
            surface = self._surface = Surface(self.history.event)
        return surface

    @property
    def pending(self) -> Pending:
        """The inbox lists; made when they are first asked for."""
        pending = self._pending
        if pending is None:
            pending = self._pending = Pending()
        return pending

    # --- appending --------------------------------------------------------------------------------

    def append(self, items: Sequence[object]) -> tuple[Event, ...]:
        """Append all items or none; see `Pen.append`. To be called from a section protected from interrupts."""
        writer = self.writer
        if writer is None or self.closed or self.dispatching or get_ident() != self.thread:
            raise self._refusal(items)
        admitted = self._admit_frequent(items[0]) if len(items) == 1 else None
        events, lines, state = admitted or self._admit(items)
        try:
            writer.write(events, lines)
        except SessionLogError as exc:
            self._note(exc, items)
            raise
        self.state = state
        about_inbox = False
        for event in events:
            self.history.append(event)
            kind = type(event.data)
            if event.surface_op is not UNSET:
                self.surface.apply(event)
            elif kind in REMEMBERED:
                self._remember(event.data)
            if kind in ABOUT_INBOX:
                about_inbox = True
        if self.lot is not None:
            self._wake()
        if self.observers or (self.runner is not None and self.runner.is_heard):
            self._dispatch(events)
        elif about_inbox:
            self._follow(events)
        return events

    def _note(self, exc: SessionLogError, items: Sequence[object]) -> None:
        exc.add_note(f"while appending {names(items)} to session {self.header.id!r}")

    def _refusal(self, items: Sequence[object]) -> Exception:
        """Why nothing can be appended at this moment."""
        what, session_id = names(items), self.header.id
        if self.closed:
            return SessionClosedError(
                f"session {session_id!r} is closed; {what} cannot be appended any more", session_id=session_id
            )
        if get_ident() != self.thread:
            return UsageError(
                f"{what} refused: session {session_id!r} belongs to another thread; use trio.from_thread.run_sync"
            )
        if self.dispatching:
            return ReentrantAppendError(
                f"{what} refused: session {session_id!r} is telling its observers about an append; "
                "schedule the work with Scope.start_soon, or follow the session"
            )
        return UsageError(f"{what} refused: session {session_id!r} has no writer yet")

    def _admit_frequent(self, item: object) -> _Admitted | None:
        """One event of a frequent kind, checked and encoded in one piece; None if it is of another kind.

        Each call that is saved here is a tenth of encoding and writing the event.
        """
        sources: tuple[int, ...] | range | UnsetType = UNSET
        if type(item) is Draft and item.surface_op == "append":
            sources, item = item.source_event_seqs, item.data
        frequent = FREQUENT.get(type(item))
        if frequent is None:
            return None
        wire_type, is_plain, rule, is_message = frequent
        state = self.state
        if is_message:
            event = Event(
                type=wire_type,
                seq=self.history.length,
                time=self.now(),
                data=item,
                surface_op="append",
                source_event_seqs=sources if sources is UNSET else compact(sources),
            )
            self.surface.check(event)
        elif sources is UNSET:
            event = Event(type=wire_type, seq=self.history.length, time=self.now(), data=item)
        else:
            return None
        if rule is not None:
            problem = rule[0](state, event)
            if problem is not None:
                raise UsageError(f"{wire_type} refused: {problem}")
            state = rule[1](state, event)
        elif type(item) is InboxSpliced:
            self.pending.check(item)
        try:
            if is_plain(item):
                return (event,), (encode(event),), state
        except UnicodeEncodeError:  # a lone surrogate
            pass
        event, line = admit(event)
        return (event,), (line,), state

    def _admit(self, items: Sequence[object]) -> _Admitted:
        """Any events: each is checked in the state that those before it lead to; then all are encoded."""
        seq, time, state = self.history.length, self.now(), self.state
        drafts: list[Event] = []
        splices: list[InboxSpliced] = []
        surfaced: list[Event] = []
        for number, item in enumerate(items, seq):
            event = event_of(item, number, time)
            kind = type(event.data)
            rule = RULES.get(kind)
            if rule is not None:
                problem = rule[0](state, event)
                if problem is not None:
                    raise UsageError(f"{event.type} refused: {problem}")
                state = rule[1](state, event)
            if event.surface_op is not UNSET:
                surfaced.append(event)
            elif kind is InboxSpliced:
                splices.append(event.data)
            drafts.append(event)
        if splices:
            self.pending.check_all(splices)
        if surfaced:
            self._check_surface(surfaced, seq)
        admitted = [admit(draft) for draft in drafts]
        return tuple([event for event, _ in admitted]), [line for _, line in admitted], state

    def _check_surface(self, events: list[Event], seq: int) -> None:
        surface = self.surface
        if len(events) > 1 and any(type(event.surface_op) is Replace for event in events):
            fresh = {event.seq: event for event in events}
            surface = surface.copy(lambda n: fresh[n] if n >= seq else self.history.event(n))
            for event in events:
                surface.check(event)
                surface.apply(event)
        else:
            for event in events:
                surface.check(event)

    def _remember(self, data: object) -> None:
        """What a session keeps of an event beside history and surface."""
        kind = type(data)
        if type(data) is AssistantChunk:
            if type(data.chunk) in DELTAS:
                self.deltas += 1
        elif kind is StepEnd:
            if self.deltas >= SHORTEST_RUN:
                self.history.compact()
            self.deltas = 0
        elif type(data) is RequestHeader:
            self.request = data.header
        elif type(data) is RequestContext:
            self.context = data

    def _wake(self) -> None:
        """Let parked followers run."""
        if self.lot is not None:
            self.lot.unpark_all()
            self.lot = None

    # --- telling ----------------------------------------------------------------------------------

    def _dispatch(self, events: tuple[Event, ...]) -> None:
        """For each event: who runs the session, its observers, then the inbox lists, then who runs it again.

        The events are in the log: whatever an observer raises, all of them are told, and the lists follow. What is
        no `Exception` (an exit that an observer asked for) goes on to the caller afterwards.
        """
        escaped: BaseException | None = None
        self.dispatching = True
        runner = self.runner
        for event in events:
            if runner is not None:
                escaped = self._tell(runner.told, event) or escaped
            for entry in self.observers:
                escaped = self._tell(entry.fn, event) or escaped
            if type(event.data) in ABOUT_INBOX:
                removed = self.pending.take(event)
                if runner is not None and type(event.data) is InboxSpliced:
                    escaped = self._show(runner, event, removed) or escaped
        self.dispatching = False
        if self.deferred is not None:
            self._run_deferred()
        if escaped is not None:
            raise escaped

    def _follow(self, events: tuple[Event, ...]) -> None:
        """What `_dispatch` does for events that nobody but who runs the session hears of: it is told of splices."""
        escaped: BaseException | None = None
        for event in events:
            kind = type(event.data)
            if kind is InboxSpliced:
                removed = self.pending.apply(event.data)
                if self.runner is not None:
                    self.dispatching = True
                    escaped = self._show(self.runner, event, removed) or escaped
                    self.dispatching = False
            elif kind in ABOUT_INBOX and self._pending is not None:
                self._pending.take(event)
        if self.deferred is not None:
            self._run_deferred()
        if escaped is not None:
            raise escaped

    def _show(
        self, runner: LogRunner, event: Event, removed: tuple[UserMessage, ...]
    ) -> BaseException | None:
        try:
            runner.spliced(event.data, removed)
        except BaseException as exc:  # noqa: ASYNC103, BLE001  an exit is raised again when the section is over
            return self._inbox_failed(event, exc)  # noqa: ASYNC104  likewise
        return None

    def _inbox_failed(self, splice: Event, exc: BaseException) -> BaseException | None:
        """Report a failure; what is no `Exception` is given back."""
        if not isinstance(exc, Exception):
            return exc
        logger.error("session %s: the inbox failed on event %d", self.header.id, splice.seq, exc_info=exc)
        return None

    def _tell(self, fn: Observer, event: Event) -> BaseException | None:
        try:
            fn(event)
        except Exception:
            logger.exception(
                "session %s: %s failed on event %d (%s)",
                self.header.id,
                getattr(fn, "__qualname__", repr(fn)),
                event.seq,
                event.type,
            )
        except BaseException as exc:  # noqa: ASYNC103, BLE001  raised again when the section is over
            return exc  # noqa: ASYNC104  likewise
        return None

    def _run_deferred(self) -> None:
        deferred, self.deferred = self.deferred or [], None
        for fn in deferred:
            try:
                fn()
            except Exception:
                logger.exception(
                    "session %s: %s failed after an append",
                    self.header.id,
                    getattr(fn, "__qualname__", repr(fn)),
                )

    def close(self) -> None:
        """End appends and followers."""
        self.closed = True
        self.runner = None
        self._wake()


def names(items: Sequence[object]) -> str:
    """The wire types of payloads and drafts, for people."""
    datas = [item.data if type(item) is Draft else item for item in items]
    return ", ".join(str(getattr(data, "wire_type", type(data).__name__)) for data in datas) or "nothing"


_threads: Final[dict[int, int]] = {}


def _shared(ident: int) -> int:
    """The same number as one object: each session remembers its thread."""
    return _threads.setdefault(ident, ident)
