"""A live session: appends, views, observers, followers, forks.

Everything that changes a session is one synchronous section: check, write, change memory, tell observers. Nothing
else runs on the Trio thread meanwhile, and KeyboardInterrupt cannot land in it, so there is no lock.

`Session` is what everybody may hold: it reads, and appends the types that plugins registered. `Pen` is the right to
write the rest; whoever runs the session has it, may lend it, and can take back what was lent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import final, overload

import trio

from ..errors import SessionClosedError, SessionCorruptError, UsageError
from ..values._causes import INTERRUPTED, TurnEndReason
from ..values._ids import mint_id, now_ms
from ..values._messages import Message
from ._codec import is_registered
from ._events import Draft, Event, Header, Payload, RequestContext
from ._fork import plan_fork
from ._grammar import State
from ._header import SessionHeader
from ._history import Events
from ._ledger import Entry, ForkInto, Ledger, LogRunner, Observer, Writer, names
from ._packing import ChunkRun
from ._pending import Pending
from ._repair import closers
from ._replay import check_prefix, replay, replay_in_stretches
from ._surface import Messages


@final
class Session:
    """The facts of one session: an append-only log and what it adds up to.

    Everything that it gives out is immutable, or a fresh list. It has no public constructor.
    """

    __slots__ = ("__weakref__", "_ledger")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def id(self) -> str:
        """The session's id."""
        return self._ledger.header.id

    @property
    def header(self) -> SessionHeader:
        """What the log says of itself."""
        return self._ledger.header

    @property
    def events(self) -> Events:
        """All events so far; an immutable view, the same object until the next append."""
        return self._ledger.history.view()

    @property
    def surface(self) -> tuple[int, ...]:
        """The numbers of the events that the model sees, in order."""
        return self._ledger.surface.nodes

    def messages(self) -> list[Message]:
        """A fresh list of the frozen messages that the model sees, oldest first, without empty answers."""
        return self._ledger.surface.messages()

    def conversation(self) -> Messages:
        """The same messages as an immutable sequence, taken in constant time."""
        return self._ledger.surface.view()

    def request_header(self) -> Header | None:
        """What the next request is sent with: the last logged header, or None before the first."""
        return self._ledger.request

    def request_context(self) -> RequestContext | None:
        """Where requests go, as last logged, or None."""
        return self._ledger.context

    @property
    def turn(self) -> int:
        """The number of the last turn that started, 0 before the first."""
        return self._ledger.state.last_turn

    @property
    def open_turn(self) -> int | None:
        """The number of the open turn, or None."""
        return self._ledger.state.turn

    @property
    def open_step(self) -> int | None:
        """The number of the open step, or None."""
        return self._ledger.state.step

    @property
    def brackets(self) -> State:
        """Everything that is open in the log, as an immutable value."""
        return self._ledger.state

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._ledger.closed

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would have anything to do."""
        writer = self._ledger.writer
        return writer is not None and writer.is_dirty

    @property
    def is_dispatching(self) -> bool:
        """Whether observers are being told about an append right now."""
        return self._ledger.dispatching

    @overload
    def append(self, payload: Payload, /) -> Event: ...

    @overload
    def append(self, first: Payload, second: Payload, /, *more: Payload) -> tuple[Event, ...]: ...

    @trio.lowlevel.enable_ki_protection
    def append(self, *payloads: Payload) -> Event | tuple[Event, ...]:
        """Append events of types that plugins registered: all of them or none. No checkpoint.

        On return they are handed to the storage, part of every view, and every observer has been told.

        Returns:
            the logged event, or a tuple of several.

        Raises:
            UsageError: a payload is of a core type, which only the agent writes, or of no registered type.
            ValueNotJsonError: a payload has no JSON form; the message names its type.
            ReentrantAppendError: an observer of this session called.
            SessionClosedError: the session is closed.
            StorageError: the storage refused; nothing has changed.
        """
        for payload in payloads:
            if not is_registered(type(payload)):
                raise UsageError(
                    f"{names([payload])} refused: only types that were registered with register_event can be "
                    "appended from outside; the agent writes its own"
                )
        events = self._ledger.append(payloads)
        return events[0] if len(events) == 1 else events

    def observe(self, fn: Observer) -> Callable[[], None]:
        """Have a plain function called with every event, directly after its commit.

        It runs inside the append and cannot append to the same session. What it raises is logged and changes
        nothing. Added or removed during a dispatch, it counts from the next event on.

        Returns:
            a function that ends this observation; calling it again does nothing.
        """
        if inspect.iscoroutinefunction(fn):
            raise UsageError(
                f"an observer is a plain function, and {fn.__qualname__} is async; "
                "start the work with Scope.start_soon, or use Session.follow"
            )
        ledger, entry = self._ledger, Entry(fn)
        ledger.observers = (*ledger.observers, entry)

        def undo() -> None:
            ledger.observers = tuple(other for other in ledger.observers if other is not entry)

        return undo

    def follow(self, from_seq: int = 0) -> Follower:
        """Iterate over all events from a number on, first the logged ones, then new ones as they come.

        Without gap or repeat; the iteration ends after the session is closed. A follower never delays an append
        and may be abandoned at any point.
        """
        if type(from_seq) is not int or from_seq < 0:
            raise UsageError(f"events are followed from a number >= 0, not {from_seq!r}")
        return Follower(self._ledger, from_seq)

    @trio.lowlevel.enable_ki_protection
    async def flush(self) -> None:
        """Return when everything appended so far is as durable as the store promises. A checkpoint.

        Raises:
            StorageError: it could not be made durable.
        """
        if self._ledger.writer is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._ledger.writer.barrier()

    async def fork(self, boundary: int | None = None, *, id: str | None = None) -> str:
        """Store a copy of this session up to and including an event as a new session. A checkpoint.

        Args:
            boundary: the number of the last event to copy, outside any turn; by default the last one there is.
            id: the new session's id; by default a new one.

        Returns:
            the new session's id. It is stored, not live, and starts with an empty inbox.

        Raises:
            SessionExistsError, SessionBusyError: the id is taken.
            UsageError: the boundary is no event's number or lies within a turn, or this session cannot be forked.
            SessionClosedError: this session is closed.
            StorageError: the copy could not be stored. Nothing was created.
        """
        ledger = self._ledger
        if ledger.closed:
            raise SessionClosedError(
                f"session {ledger.header.id!r} is closed; fork the stored one", session_id=self.id
            )
        if ledger.fork_into is None:
            raise UsageError(
                f"session {ledger.header.id!r} is not kept in a store that could take a fork of it"
            )
        child = mint_id() if id is None else id

        def plan() -> tuple[SessionHeader, Events]:
            return plan_fork(ledger.header, self.events, boundary, id=child, now=ledger.now)

        await ledger.fork_into(child, plan)
        return child

    def __repr__(self) -> str:
        return f"<Session {self.id!r}: {self._ledger.history.length} events>"


@final
class Follower:
    """An iteration over a session's events that goes on as the session does. See `Session.follow`."""

    __slots__ = ("_block", "_ledger", "_next", "_offset")

    def __init__(self, ledger: Ledger, from_seq: int) -> None:
        self._ledger = ledger
        self._next = from_seq
        self._block: Sequence[Event] = ()
        self._offset = 0

    def __aiter__(self) -> Follower:
        """The follower itself."""
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Event:
        """The next event. A checkpoint; cancelling it loses nothing."""
        await trio.lowlevel.checkpoint()
        ledger = self._ledger
        while self._next >= ledger.history.length:
            if ledger.closed:
                raise StopAsyncIteration
            if ledger.lot is None:
                ledger.lot = trio.lowlevel.ParkingLot()
            await ledger.lot.park()
        if self._offset == len(self._block):
            self._block = ledger.history.block(self._next, ledger.history.length)
            self._offset = 0
        event = self._block[self._offset]
        self._offset += 1
        self._next += 1
        return event


@final
class Pen:
    """The right to write a session's log, until it is revoked or the session is closed."""

    __slots__ = ("_is_revoked", "_ledger", "session")

    def __init__(self, ledger: Ledger, session: Session) -> None:
        self._ledger = ledger
        self._is_revoked = False
        self.session: Session = session

    @property
    def pending(self) -> Pending:
        """The session's inbox lists. They change with the splices that are appended, after their observers ran."""
        return self._ledger.pending

    @trio.lowlevel.enable_ki_protection
    def append(self, *drafts: object) -> tuple[Event, ...]:
        """Append events, all of them or none. No checkpoint, never waits for a disk.

        All are checked (brackets, surface, inbox, JSON) and encoded, then written at once; only then memory
        changes. After that, event by event: its observers, the inbox lists, the projection.

        Args:
            drafts: payloads, and `Draft` objects where a message replaces others or cites sources.

        Returns:
            the logged events.

        Raises:
            UsageError, MessageError, ValueNotJsonError: a draft cannot be the next event; the message names its
                type.
            ReentrantAppendError: called by an observer of this session.
            SessionClosedError: the pen was revoked, or the session is closed.
            StorageError: the storage refused. Whatever was raised, log, views and inbox are as before, and the
                next append takes the same number.
        """
        if self._is_revoked:
            raise SessionClosedError(
                f"the right to write session {self._ledger.header.id!r} was taken back; {names(drafts)} refused",
                session_id=self._ledger.header.id,
            )
        return self._ledger.append(drafts)

    def closers(self, reason: TurnEndReason = INTERRUPTED) -> list[Draft]:
        """What closes everything that is open in the log now, to be appended in one go; see `session.closers`."""
        return closers(self._ledger.state, self._ledger.pending, self._ledger.history.length, reason)

    def attach(self, writer: Writer) -> None:
        """Give the session its writer. Until then appends are refused."""
        if self._ledger.writer is not None:
            raise UsageError(f"session {self._ledger.header.id!r} already has a writer")
        self._ledger.writer = writer

    def serve(self, runner: LogRunner) -> None:
        """Have somebody told of every event, and of every inbox splice when the lists have followed it.

        Neither may raise: what it tells others, it contains itself.
        """
        if self._ledger.runner is not None:
            raise UsageError(f"session {self._ledger.header.id!r} already has somebody who runs it")
        self._ledger.runner = runner

    def after_dispatch(self, fn: Callable[[], object]) -> None:
        """Call a function as soon as no observer is being told about an append: now, or at the end of the dispatch."""
        ledger = self._ledger
        if not ledger.dispatching:
            fn()
        elif ledger.deferred is None:
            ledger.deferred = [fn]
        else:
            ledger.deferred.append(fn)

    def lend(self) -> Pen:
        """Another pen for the same session, which can be taken back."""
        return Pen(self._ledger, self.session)

    def revoke(self) -> None:
        """Make this pen, and no other, refuse every further append."""
        self._is_revoked = True

    def close(self) -> None:
        """End the session: nothing can be appended any more, followers end. Idempotent."""
        self._ledger.close()


# --- opening and forking --------------------------------------------------------------------------


def open_log(
    header: SessionHeader,
    events: Iterable[Event | ChunkRun] = (),
    *,
    writer: Writer | None = None,
    fork_into: ForkInto | None = None,
    now: Callable[[], int] = now_ms,
    loaded: bool = False,
) -> tuple[Session, Pen]:
    """A live session that starts with the given events, and the right to write it.

    Args:
        header: its header.
        events: its prefix, packed runs allowed.
        writer: where it is stored; may be attached later.
        fork_into: how forks of it are stored.
        now: the wall clock, in Unix milliseconds.
        loaded: whether the events were decoded from a stored ledger. Such a log may break bracket rules and still be
            read; any other prefix passes every check of an append.

    Raises:
        UsageError, ValueNotJsonError: the prefix could not have been appended.
        SessionCorruptError: an event of a loaded log is not where it belongs.
    """
    ledger = Ledger(header, writer, now)
    ledger.fork_into = fork_into
    if events == ():
        pass
    elif loaded:
        for _ in _replayed(ledger, events):
            pass
    else:
        replay(ledger, check_prefix(events.records if isinstance(events, Events) else events))
    session = Session(ledger)
    return session, Pen(ledger, session)


async def open_stored(
    header: SessionHeader, events: Iterable[Event | ChunkRun], *, fork_into: ForkInto | None = None
) -> tuple[Session, Pen]:
    """`open_log` for events that were decoded from a stored ledger; others have their turn while it goes on.

    A checkpoint. Cancelled, it leaves nothing behind.

    Raises:
        SessionCorruptError: an event is not where it belongs.
    """
    await trio.lowlevel.checkpoint()
    ledger = Ledger(header, None, now_ms)
    ledger.fork_into = fork_into
    for _ in _replayed(ledger, events):
        await trio.lowlevel.checkpoint()
    session = Session(ledger)
    return session, Pen(ledger, session)


def _replayed(ledger: Ledger, events: Iterable[Event | ChunkRun]) -> Iterator[None]:
    """Replay what was loaded, with a pause after each stretch."""
    try:
        yield from replay_in_stretches(ledger, events)
    except UsageError as exc:
        session_id = ledger.header.id
        raise SessionCorruptError(
            f"session {session_id!r} cannot be opened: {exc}", session_id=session_id
        ) from exc
