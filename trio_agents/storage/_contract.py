"""What a place for session logs has to be able to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from ..session._events import Event
from ..session._header import SessionHeader
from ..session._history import Events
from ..session._packing import ChunkRun
from ..values._messages import Attachment


class LogWriter(Protocol):
    """The right to write one session's log, and its lock, until it is closed.

    The header and the events that a new session starts with (`seed`) are written together with the first batch.
    """

    @property
    def is_dirty(self) -> bool:
        """Whether a barrier would have anything to do; events held back, or written and not yet synced."""
        ...

    def write(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        """Hand one batch to the storage: all of it or nothing. No checkpoint, never waits for a disk.

        The first call also writes header and seed, even if it brings no events.

        Args:
            events: what is written, in order; their numbers continue the log.
            lines: the same events encoded, without line ends.

        Raises:
            StorageError: refused; what is stored is as it was before.
            SessionClosedError: the writer is closed.
        """
        ...

    async def barrier(self) -> None:
        """Return when everything written so far is as durable as the store promises. A checkpoint.

        Cancelling the wait changes nothing about the writing.

        Raises:
            StorageError: it could not be made durable.
        """
        ...

    async def aclose(self) -> None:
        """Write what was held back, make it durable, release the lock. Idempotent.

        Raises:
            StorageError: the last barrier failed; the lock is released all the same.
        """
        ...

    def abandon(self) -> None:
        """Release the lock at once, without a checkpoint; for a session of which nothing was written."""
        ...


@attrs.frozen(kw_only=True)
class OpenedLog:
    """A stored session, loaded for writing.

    Attributes:
        header: its header.
        events: every stored event, upgraded from older shapes and whole, not yet repaired; runs of chunks packed.
        writer: the right to go on writing it.
    """

    header: SessionHeader
    events: Sequence[Event | ChunkRun]
    writer: LogWriter


@attrs.frozen(kw_only=True)
class StoredSession:
    """A stored session as `inspect` shows it: read only, with the repair of an open turn made in memory.

    Attributes:
        header: its header.
        events: its events, closers included.
        stored: how many of them are stored.
        status: `live` if a writer has it, `interrupted` if it ends in an open turn, else `closed`.
        torn: how many bytes after the last whole record are no part of it.
        path: its file, or None.
    """

    header: SessionHeader
    events: Events
    stored: int
    status: str
    torn: int = 0
    path: str | None = None


@attrs.frozen(kw_only=True)
class SessionSummary:
    """A stored session as `list` shows it.

    Attributes:
        header: its header; only the id counts in one that is damaged.
        status: `live`, `interrupted` or `closed`; `damaged` where `problem` says why it could not be told.
        title: the last title recorded near its end or in its beginning, or None.
        updated_at: Unix milliseconds of the last change.
        size: bytes of the log.
        path: its file, or None.
        problem: why the rest could not be read, or None.
    """

    header: SessionHeader
    status: str
    updated_at: int
    size: int
    title: str | None = None
    path: str | None = None
    problem: str | None = None


@attrs.frozen(kw_only=True)
class Verdict:
    """What `verify` found.

    Attributes:
        session_id: the session.
        events: how many whole, valid events it starts with.
        problems: one sentence for each fault, in order; empty if it is whole.
        issues: one sentence for each event that breaks a rule of order; such a log loads all the same.
        torn: how many bytes after the last whole record would be cut.
        path: its file, or None.
        kept_aside: where `repair` left the damaged log, or None.
    """

    session_id: str
    events: int
    problems: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    torn: int = 0
    path: str | None = None
    kept_aside: str | None = None


class SessionStore(Protocol):
    """Where sessions are kept. One runtime serves a store at a time; several processes may share its files."""

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do the store's background work (delayed writes, syncs) until cancelled. The runtime runs this."""
        ...

    def check_free(self, session_id: str) -> None:
        """Raise unless `create` could take the id now. No checkpoint.

        Raises:
            SessionExistsError: a log is stored under the id.
            SessionBusyError: a writer has the id.
        """
        ...

    def create(self, header: SessionHeader, seed: Sequence[Event] = ()) -> LogWriter:
        """Take the id for a new session. Writes no log. No checkpoint.

        Raises:
            SessionExistsError: a log is stored under the id.
            SessionBusyError: another writer has the id.
            StorageError: the lock could not be made.
        """
        ...

    async def open(self, session_id: str) -> OpenedLog:
        """Lock and load a stored session. Cancelling it leaves the session unlocked.

        Raises:
            SessionNotFoundError, SessionBusyError, SessionCorruptError, SessionUnsupportedError,
            SessionIdentityError, StorageError: as their names say; nothing was changed.
        """
        ...

    async def inspect(self, session_id: str) -> StoredSession:
        """Load a stored session without locking or changing it. Raises as `open`, but never busy."""
        ...

    async def list(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        matching: Callable[[SessionSummary], bool] | None = None,
    ) -> Sequence[SessionSummary]:
        """Stored sessions, ordered by id: at most `limit` of them, those behind the id `after` that match.

        One that cannot be read is listed with its problem; it does not hide the others.
        """
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a stored session and what lies beside it.

        Raises:
            SessionBusyError: a writer has it.
            SessionNotFoundError: nothing is stored under the id.
        """
        ...

    async def verify(self, session_id: str) -> Verdict:
        """Read a whole log and say what is wrong with it. Changes nothing."""
        ...

    async def repair(self, session_id: str) -> Verdict:
        """Write a new log from the good prefix of a damaged one, and keep the damaged one beside it."""
        ...

    async def put_attachment(
        self, session_id: str, data: bytes, media_type: str, name: str | None = None
    ) -> Attachment:
        """Keep bytes beside a session's log, under their hash. Putting the same bytes again changes nothing.

        Raises:
            MessageError: too large, or not what the media type says.
            SessionNotFoundError: there is no such session, live or stored.
            StorageError: the bytes could not be stored.
        """
        ...

    def has_attachment(self, session_id: str, attachment_id: str) -> bool:
        """Whether these bytes are kept beside the session's log. No checkpoint."""
        ...

    async def get_attachment(self, session_id: str, attachment_id: str) -> bytes:
        """The bytes of an attachment.

        Raises:
            MessageError: the session has no such attachment.
            SessionCorruptError: the bytes are not those that were stored.
            StorageError: they cannot be read.
        """
        ...

    async def share_attachments(self, source_id: str, target_id: str, attachment_ids: Sequence[str]) -> None:
        """Give a session some of another one's attachments, without a copy where that is possible.

        Those that the source does not have are left out.
        """
        ...

    async def collect_attachments(self, session_id: str) -> Sequence[str]:
        """Remove the attachments of a session that no event of its log refers to; gives their ids.

        Raises:
            SessionBusyError: a writer has it, and may be about to refer to one.
        """
        ...
