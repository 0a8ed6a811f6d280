"""Sessions without files: the same contract, for as long as the store object lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import trio

from ..errors import (
    MessageError,
    SessionBusyError,
    SessionClosedError,
    SessionExistsError,
    SessionNotFoundError,
    UsageError,
)
from ..session._events import AssistantChunk, Event, ForeignEvent
from ..session._header import SessionHeader
from ..session._packing import DELTAS, SHORTEST_RUN, pack
from ..values._messages import Attachment
from ._attachments import admit, digest_of, references
from ._contract import LogWriter, OpenedLog, SessionSummary, StoredSession, Verdict
from ._lines import Record
from ._views import count_of, first_misfit, issues_of, plain_lines, records_of, status_of, stored_session

_OWNER: Final = "this process"


@final
class _Kept:
    """One id under which something is kept: what that is, and who writes it."""

    __slots__ = ("_attachments", "_records", "header", "is_stored", "updated_at", "writer")

    def __init__(self, header: SessionHeader) -> None:
        self.header = header
        # Made when first needed, like the writer's list of chunks: most sessions of a great many are idle.
        self._records: list[Record] | None = None
        self._attachments: dict[str, bytes] | None = None
        self.is_stored = False
        self.updated_at = 0
        self.writer: _MemoryWriter | None = None

    @property
    def records(self) -> list[Record]:
        """What is stored of it, in order."""
        if self._records is None:
            self._records = []
        return self._records

    @property
    def attachments(self) -> dict[str, bytes]:
        """The bytes kept with it, by their id."""
        if self._attachments is None:
            self._attachments = {}
        return self._attachments


@final
class _MemoryWriter:
    """The right to write one session of a `MemoryStore`."""

    __slots__ = ("_chunks", "_kept", "_seed", "_store")

    def __init__(self, store: MemoryStore, kept: _Kept | SessionHeader, seed: Sequence[Event]) -> None:
        self._store = store
        # Only the header as long as there is nothing to keep: so it is with most sessions of a great many idle agents.
        self._kept: _Kept | SessionHeader | None = kept
        self._seed = seed
        # Chunks since the last other event. They are packed once their neighbours are known, so that what is
        # kept grows with messages and not with chunks.
        self._chunks: list[Event] | None = None

    @property
    def is_dirty(self) -> bool:
        """Never; what is written is as durable as it gets."""
        return False

    def write(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        """Keep the events. The first call also keeps header and seed, even if it brings no events."""
        kept = self._kept
        if type(kept) is not _Kept:
            kept = self.kept()
        if not kept.is_stored:
            kept.is_stored = True
            kept.records.extend(records_of(self._seed))
            self._seed = ()
        records = kept.records
        for event in events:
            kept.updated_at = event.time
            if type(event.data) is AssistantChunk:
                if self._chunks is None:
                    self._chunks = []
                self._chunks.append(event)
            else:
                if self._chunks:
                    self.settle()
                records.append(event)

    def kept(self) -> _Kept:
        """What the session's events and attachments are kept in; made when it is first needed."""
        kept = self._kept
        if type(kept) is _Kept:
            return kept
        if kept is None:
            raise SessionClosedError("the writer of this session is closed")
        assert isinstance(kept, SessionHeader)
        self._kept = made = _Kept(kept)
        made.writer = self
        self._store._take(made)
        return made

    def settle(self) -> None:
        """Pack the chunks whose neighbours are known."""
        kept, chunks = self._kept, self._chunks
        if chunks and type(kept) is _Kept:
            self._chunks = None
            deltas = sum([type(event.data.chunk) in DELTAS for event in chunks])
            kept.records.extend(chunks if deltas < SHORTEST_RUN else pack(chunks))

    async def barrier(self) -> None:
        """A checkpoint."""
        if self._kept is None:
            raise SessionClosedError("the writer of this session is closed")
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Release the session. A checkpoint; released even if that is cancelled."""
        self.abandon()
        await trio.lowlevel.checkpoint()

    def abandon(self) -> None:
        """Release the session; forget it if nothing was written."""
        self.settle()
        kept, self._kept = self._kept, None
        if kept is not None:
            self._store._release(self, kept)


@final
class MemoryStore:
    """Keeps sessions in memory. They survive between runtimes of one process that share the store."""

    def __init__(self) -> None:
        # The writer alone, as long as there is nothing to keep.
        self._sessions: dict[str, _Kept | _MemoryWriter] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Nothing to do but to be there."""
        task_status.started()
        await trio.sleep_forever()

    def check_free(self, session_id: str) -> None:
        """Raise unless `create` could take the id now.

        Raises:
            SessionExistsError: a session is kept under the id.
            SessionBusyError: a writer has the id.
        """
        if not session_id:
            raise UsageError("a session id is a non-empty string")
        found = self._sessions.get(session_id)
        if found is not None:
            if type(found) is _Kept and found.is_stored:
                raise SessionExistsError(f"a session {session_id!r} is already stored", session_id=session_id)
            raise _busy(session_id)

    def create(self, header: SessionHeader, seed: Sequence[Event] = ()) -> LogWriter:
        """Take the id for a new session. Keeps nothing before the first write.

        Raises:
            SessionExistsError: a session is kept under the id.
            SessionBusyError: another writer has taken the id.
        """
        self.check_free(header.id)
        writer = self._sessions[header.id] = _MemoryWriter(self, header, seed)
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
        return OpenedLog(header=kept.header, events=kept.records.copy(), writer=writer)

    async def inspect(self, session_id: str) -> StoredSession:
        """A stored session, read only, with an open turn closed unless it is live."""
        await trio.lowlevel.checkpoint()
        kept = self._find(session_id)
        return stored_session(kept.header, kept.records, is_live=kept.writer is not None)

    async def list(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        matching: Callable[[SessionSummary], bool] | None = None,
    ) -> Sequence[SessionSummary]:
        """Stored sessions, ordered by id: at most `limit` of them, those behind the id `after` that match."""
        await trio.lowlevel.checkpoint()
        found: list[SessionSummary] = []
        for session_id in sorted(self._sessions):
            if after is not None and session_id <= after:
                continue
            kept = self._stored(session_id)
            if kept is None:
                continue
            if limit is not None and len(found) >= limit:
                break
            summary = self._summary(kept)
            if matching is None or matching(summary):
                found.append(summary)
        return found

    def _summary(self, kept: _Kept) -> SessionSummary:
        return SessionSummary(
            header=kept.header,
            status=status_of(kept.records, is_live=kept.writer is not None),
            updated_at=kept.updated_at,
            size=0,
            title=_title(kept.records),
        )

    async def delete(self, session_id: str) -> None:
        """Delete a stored session.

        Raises:
            SessionBusyError: a writer has it.
            SessionNotFoundError: nothing is stored under the id.
        """
        await trio.lowlevel.checkpoint()
        if self._find(session_id).writer is not None:
            raise _busy(session_id)
        del self._sessions[session_id]

    async def verify(self, session_id: str) -> Verdict:
        """Say what is wrong with a session: whether its events fit together."""
        await trio.lowlevel.checkpoint()
        kept = self._find(session_id)
        misfit = first_misfit(kept.header, kept.records)
        return Verdict(
            session_id=session_id,
            events=count_of(kept.records if misfit is None else kept.records[: misfit[0]]),
            problems=() if misfit is None else (misfit[1],),
            issues=issues_of(kept.records),
        )

    async def repair(self, session_id: str) -> Verdict:
        """The same as `verify`: memory has no bytes that could be damaged."""
        return await self.verify(session_id)

    # --- attachments ------------------------------------------------------------------------------

    async def put_attachment(
        self, session_id: str, data: bytes, media_type: str, name: str | None = None
    ) -> Attachment:
        """Keep bytes with a session, under their hash.

        Raises:
            MessageError: too large, or not what the media type says.
            SessionNotFoundError: there is no such session, live or stored.
        """
        await trio.lowlevel.checkpoint()
        attachment = admit(data, media_type, name)
        self._known(session_id).attachments[attachment.attachment_id] = data
        return attachment

    def has_attachment(self, session_id: str, attachment_id: str) -> bool:
        """Whether these bytes are kept with the session."""
        found = self._sessions.get(session_id)
        return type(found) is _Kept and attachment_id in found.attachments

    async def get_attachment(self, session_id: str, attachment_id: str) -> bytes:
        """The bytes of an attachment.

        Raises:
            MessageError: the session has no such attachment.
        """
        await trio.lowlevel.checkpoint()
        digest_of(attachment_id)
        data = self._known(session_id).attachments.get(attachment_id)
        if data is None:
            raise MessageError(f"session {session_id!r} has no attachment {attachment_id}")
        return data

    async def share_attachments(self, source_id: str, target_id: str, attachment_ids: Sequence[str]) -> None:
        """Give a session some of another one's attachments."""
        await trio.lowlevel.checkpoint()
        source, target = self._known(source_id), self._known(target_id)
        for attachment_id in attachment_ids:
            if attachment_id in source.attachments:
                target.attachments[attachment_id] = source.attachments[attachment_id]

    async def collect_attachments(self, session_id: str) -> Sequence[str]:
        """Drop the attachments of a session that no event refers to; gives their ids.

        Raises:
            SessionBusyError: a writer has it.
        """
        await trio.lowlevel.checkpoint()
        kept = self._find(session_id)
        if kept.writer is not None:
            raise _busy(session_id)
        wanted = references(plain_lines(kept.records))
        dropped = sorted(set(kept.attachments) - wanted)
        for attachment_id in dropped:
            del kept.attachments[attachment_id]
        return dropped

    # --- looking up -------------------------------------------------------------------------------

    def _known(self, session_id: str) -> _Kept:
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionNotFoundError(f"there is no session {session_id!r}", session_id=session_id)
        return found.kept() if isinstance(found, _MemoryWriter) else found

    def _find(self, session_id: str) -> _Kept:
        kept = self._stored(session_id)
        if kept is None:
            raise SessionNotFoundError(f"no session {session_id!r} is stored", session_id=session_id)
        return kept

    def _stored(self, session_id: str) -> _Kept | None:
        """What is stored under an id, complete, or None."""
        found = self._sessions.get(session_id)
        if not isinstance(found, _Kept) or not found.is_stored:
            return None
        if found.writer is not None:
            found.writer.settle()
        return found

    def _take(self, kept: _Kept) -> None:
        self._sessions[kept.header.id] = kept

    def _release(self, writer: _MemoryWriter, kept: _Kept | SessionHeader) -> None:
        if isinstance(kept, SessionHeader):
            if self._sessions.get(kept.id) is writer:
                del self._sessions[kept.id]
            return
        kept.writer = None
        if not kept.is_stored and self._sessions.get(kept.header.id) is kept:
            del self._sessions[kept.header.id]


def _busy(session_id: str) -> SessionBusyError:
    return SessionBusyError(
        f"session {session_id!r} is being written by {_OWNER}", owner=_OWNER, session_id=session_id
    )


def _title(records: Sequence[Record]) -> str | None:
    for record in reversed(records):
        if (
            isinstance(record, Event)
            and record.type == "session/title"
            and isinstance(record.data, ForeignEvent)
        ):
            value = record.data.value.value
            return str(value.get("title")) if isinstance(value, dict) else None
    return None
