"""Sessions without files: the same contract, for as long as the store object lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import trio

from ..errors import SessionBusyError, SessionClosedError, SessionExistsError, SessionNotFoundError, UsageError
from ..session._events import Event
from ..session._header import SessionHeader
from ._contract import LogWriter, OpenedLog, SessionSummary, StoredSession, Verdict

_OWNER = "this process"


@final
class _Kept:
    """One id: what is stored under it, and who writes it."""

    __slots__ = ("events", "header", "is_stored", "writer")

    def __init__(self, header: SessionHeader) -> None:
        self.header = header
        self.events: list[Event] = []
        self.is_stored = False
        self.writer: _MemoryWriter | None = None


@final
class _MemoryWriter:
    """The right to write one session of a `MemoryStore`."""

    __slots__ = ("_kept", "_seed", "_store")

    def __init__(self, store: MemoryStore, kept: _Kept, seed: Sequence[Event]) -> None:
        self._store = store
        self._kept: _Kept | None = kept
        self._seed = seed

    @property
    def is_dirty(self) -> bool:
        """Never: what is written is as durable as it gets."""
        return False

    def write(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        """Keep the events. The first call also keeps header and seed, also if it brings no events."""
        kept = self._kept
        if kept is None:
            raise SessionClosedError("the writer of this session is closed")
        if not kept.is_stored:
            kept.is_stored = True
            kept.events.extend(self._seed)
            self._seed = ()
        kept.events.extend(events)

    async def barrier(self) -> None:
        """A checkpoint."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Release the session. A checkpoint; released even if that is cancelled."""
        self.abandon()
        await trio.lowlevel.checkpoint()

    def abandon(self) -> None:
        """Release the session; forget it if nothing was written."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._store._release(kept)


@final
class MemoryStore:
    """Keeps sessions in memory. They survive between runtimes of one process that share the store."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Kept] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Nothing to do but to be there."""
        task_status.started()
        await trio.sleep_forever()

    def create(self, header: SessionHeader, seed: Sequence[Event] = ()) -> LogWriter:
        """Take the id for a new session. Keeps nothing before the first write.

        Raises:
            SessionExistsError: a session is kept under the id.
            SessionBusyError: another writer has taken the id.
        """
        if not header.id:
            raise UsageError("a session id is a non-empty string")
        kept = self._sessions.get(header.id)
        if kept is None:
            kept = self._sessions[header.id] = _Kept(header)
        elif kept.is_stored:
            raise SessionExistsError(f"a session {header.id!r} is already stored", session_id=header.id)
        elif kept.writer is not None:
            raise _busy(header.id)
        kept.header = header
        kept.writer = writer = _MemoryWriter(self, kept, seed)
        return writer

    async def open(self, session_id: str) -> OpenedLog:
        """Take a stored session for writing.

        Raises:
            SessionNotFoundError: nothing is stored under the id.
            SessionBusyError: another writer has it.
        """
        await trio.lowlevel.checkpoint()
        kept = self._find(session_id)
        if kept.writer is not None:
            raise _busy(session_id)
        kept.writer = writer = _MemoryWriter(self, kept, ())
        return OpenedLog(header=kept.header, events=list(kept.events), writer=writer)

    def _find(self, session_id: str) -> _Kept:
        kept = self._sessions.get(session_id)
        if kept is None or not kept.is_stored:
            raise SessionNotFoundError(f"no session {session_id!r} is stored", session_id=session_id)
        return kept

    def _release(self, kept: _Kept) -> None:
        kept.writer = None
        if not kept.is_stored and self._sessions.get(kept.header.id) is kept:
            del self._sessions[kept.header.id]


def _busy(session_id: str) -> SessionBusyError:
    return SessionBusyError(f"session {session_id!r} is being written by {_OWNER}", owner=_OWNER, session_id=session_id)
