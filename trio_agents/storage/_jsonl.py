"""Sessions as files: one directory for each, with an append-only log in it."""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar, TypeVarTuple, Unpack, final

import trio

from ..errors import (
    MessageError,
    SessionBusyError,
    SessionCorruptError,
    SessionExistsError,
    SessionNotFoundError,
    SessionUnsupportedError,
    StorageError,
    UsageError,
)
from ..session._events import Event
from ..session._header import SessionHeader
from ..values._messages import Attachment
from . import _attachments as attachments
from ._attachments import admit, check_bytes, path_of, references
from ._contract import LogWriter, OpenedLog, SessionSummary, StoredSession, Verdict
from ._creation import Beginning
from ._delay import Delay
from ._descriptors import Descriptors
from ._files import OS_FILES, Files, storage_error
from ._layout import PLAIN_NAME, ZSTD_NAME
from ._listing import PAGE, summarize
from ._loading import LoadedLog, load
from ._lock import SessionLock, acquire, owner_of, require_flock
from ._places import Place, Root
from ._sync import SyncWorker
from ._tails import cut_tail, unfinished
from ._turns import Turns
from ._verify import examine, mend, verdict_of
from ._views import plain_lines, stored_session
from ._writer import LogFileWriter, Workshop
from ._zstd import FrameWriter, require_zstd

T = TypeVar("T")
Args = TypeVarTuple("Args")


@final
class JsonlStore:
    """Keeps sessions below a directory, as lines of JSON that ordinary tools can read.

    Several processes may share a root; each session has one writer at a time over all of them. An append has
    reached the system before it returns; barriers also wait for the disk, unless `durability` is `written`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Literal["synced", "written"] = "synced",
        compression: Literal["zstd"] | None = None,
        packing: bool = True,
        chunk_delay: float = 0.1,
        files: Files = OS_FILES,
    ) -> None:
        """Describe a store. Nothing is touched before it is used.

        Args:
            root: the directory; made when the first session is.
            durability: whether barriers wait for the disk (`synced`) or for the system only (`written`).
            compression: how new logs are written. Existing ones go on as they are.
            packing: whether runs of like chunks are written as one row.
            chunk_delay: how many seconds a chunk may wait for its neighbours; 0 writes each at once.
            files: the file functions, for tests that let them fail.

        Raises:
            UsageError: an option is none of the above, or this system cannot do what it asks for.
        """
        require_flock()
        if not isinstance(root, (str, os.PathLike)):
            raise UsageError(f"the root of a store is a path, not {root!r}")
        if durability not in {"synced", "written"}:
            raise UsageError(f"durability is 'synced' or 'written', not {durability!r}")
        if compression not in {None, "zstd"}:
            raise UsageError(f"compression is None or 'zstd', not {compression!r}")
        if not chunk_delay >= 0:
            raise UsageError(f"chunk_delay is a number of seconds from 0, not {chunk_delay!r}")
        if compression is not None:
            require_zstd()
        self._files = files
        self._root = Root(files, str(Path(root).absolute()))
        self._is_compressed = compression is not None
        self._shop = Workshop(
            files=files,
            descriptors=Descriptors(files),
            worker=SyncWorker(),
            delay=Delay(chunk_delay),
            is_synced=durability == "synced",
            is_packing=packing,
        )
        self._turns = Turns()
        # Sessions that are written here, also those of which nothing is on the disk yet.
        self._live: dict[str, Place] = {}

    @property
    def root(self) -> str:
        """The directory, as an absolute path."""
        return self._root.path

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write delayed chunks and sync files until cancelled. Without it chunks are not delayed."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._shop.worker.serve)
            await nursery.start(self._shop.delay.serve)
            task_status.started()

    # --- writing ----------------------------------------------------------------------------------

    def check_free(self, session_id: str) -> None:
        """Raise unless `create` could take the id now. No checkpoint.

        Raises:
            SessionExistsError: a log is stored under the id.
            SessionBusyError: a writer has the id.
            StorageError: the system refuses to look.
        """
        self._refuse_taken(session_id, None)

    def create(self, header: SessionHeader, seed: Sequence[Event] = ()) -> LogWriter:
        """Take the id for a new session: its directory and lock, no log. No checkpoint.

        Raises:
            SessionExistsError: a log is stored under the id.
            SessionBusyError: another writer has the id.
            StorageError: directory or lock could not be made.
        """
        name = ZSTD_NAME if self._is_compressed else PLAIN_NAME
        place, parents = self._root.make(header, name)
        lock = self._lock_new(place)
        try:
            self._refuse_taken(place.session_id, place.project)
            writer = self._writer(place, lock)
        except BaseException:
            self._forget(place)
            lock.release()
            raise
        writer.begin_with(Beginning(header, seed, is_packing=self._shop.is_packing), parents)
        return writer

    def _lock_new(self, place: Place) -> SessionLock:
        for _ in range(10):
            try:
                return acquire(self._files, place.directory, place.session_id)
            except FileNotFoundError:
                # Its last owner removed the directory between our making it and our locking it.
                self._root.remake(place.directory)
        raise StorageError(
            "its directory keeps disappearing", session_id=place.session_id, path=place.directory
        )

    def _refuse_taken(self, session_id: str, ours: str | None) -> None:
        # For a creation this comes after its own lock is held: of two that take one id in two projects, at
        # least one sees the other.
        for project in self._root.projects_with(session_id):
            directory = self._root.directory(project, session_id)
            if self._root.has_log(session_id, directory):
                raise SessionExistsError(
                    f"a session {session_id!r} is already stored", session_id=session_id, path=directory
                )
            if project != ours and (owner := owner_of(self._files, directory)) is not None:
                raise SessionBusyError(
                    f"session {session_id!r} is being written by {owner}",
                    owner=owner, session_id=session_id, path=directory,
                )  # fmt: skip

    def _writer(self, place: Place, lock: SessionLock) -> LogFileWriter:
        def on_close(is_unwritten: bool) -> None:
            del self._live[place.session_id]
            if is_unwritten:
                self._forget(place)

        self._live[place.session_id] = place
        frames = FrameWriter() if place.is_compressed else None
        return LogFileWriter(self._shop, place.session_id, place.path, lock, frames=frames, on_close=on_close)

    def _forget(self, place: Place) -> None:
        """Remove the directory of a session of which nothing was written, while its lock is held."""
        # If that fails: a directory without a log is no session, and the next creation takes it over.
        with contextlib.suppress(OSError, StorageError):
            if not self._root.has_log(place.session_id, place.directory):
                self._root.remove_unwritten(place.directory)

    async def open(self, session_id: str) -> OpenedLog:
        """Lock and load a stored session. Cancelling it leaves the session unlocked.

        A torn tail is kept aside and cut off, once everything before it has proved sound.

        Raises:
            SessionNotFoundError, SessionBusyError, SessionCorruptError, SessionUnsupportedError,
            SessionIdentityError, StorageError: as their names say; nothing was changed.
        """
        async with self._turns.of(session_id):
            await trio.lowlevel.checkpoint()
            place, lock = self._lock_stored(session_id)
            try:
                loaded = await load(self._files, place)
                size, identity = await self._clean_end(place, loaded)
            except BaseException:
                lock.release()
                raise
            writer = self._writer(place, lock)
            writer.continue_at(size, identity)
        return OpenedLog(header=loaded.header, events=loaded.events, writer=writer)

    def _lock_stored(self, session_id: str) -> tuple[Place, SessionLock]:
        while True:
            place = self._root.find(session_id)
            try:
                lock = acquire(self._files, place.directory, session_id)
            except FileNotFoundError:
                continue  # deleted in between: `find` will say so
            if self._root.has_log(session_id, place.directory):
                return place, lock
            lock.release()

    async def _clean_end(self, place: Place, loaded: LoadedLog) -> tuple[int, tuple[int, int]]:
        def clean() -> tuple[int, tuple[int, int]]:
            for name in stale:
                self._files.unlink(f"{place.directory}/{name}")
            if loaded.good_end < loaded.size:
                return cut_tail(self._files, place, loaded)
            return loaded.size, loaded.identity

        try:
            stale = unfinished(self._files, place.directory)
            if not stale and loaded.good_end == loaded.size:
                return loaded.size, loaded.identity
            return await trio.to_thread.run_sync(clean)
        except OSError as exc:
            raise storage_error(
                exc, "cannot cut off a torn tail", session_id=place.session_id, path=place.path
            ) from exc

    # --- reading ----------------------------------------------------------------------------------

    async def inspect(self, session_id: str) -> StoredSession:
        """Load a stored session without locking or changing it. Raises as `open`, but never busy."""
        async with self._turns.of(session_id):
            await trio.lowlevel.checkpoint()
            place = self._root.find(session_id)
            is_live = owner_of(self._files, place.directory) is not None
            loaded = await load(self._files, place)
        return stored_session(
            loaded.header, loaded.events,
            is_live=is_live, torn=loaded.size - loaded.good_end, path=place.path,
        )  # fmt: skip

    async def list(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        matching: Callable[[SessionSummary], bool] | None = None,
    ) -> Sequence[SessionSummary]:
        """Stored sessions, ordered by id: at most `limit` of them, those behind the id `after` that match.

        At most 64 KiB are read of each. One that cannot be read is listed with its problem.

        Raises:
            StorageError: the root itself cannot be read.
        """
        ids = await trio.to_thread.run_sync(self._root.session_ids, abandon_on_cancel=True)
        if after is not None:
            ids = ids[bisect.bisect_right(ids, after) :]
        found: list[SessionSummary] = []
        for start in range(0, len(ids), PAGE):
            if limit is not None and len(found) >= limit:
                break
            page = await trio.to_thread.run_sync(
                self._summaries, ids[start : start + PAGE], abandon_on_cancel=True
            )
            found += [summary for summary in page if matching is None or matching(summary)]
        return found if limit is None else found[:limit]

    def _summaries(self, ids: Sequence[str]) -> Sequence[SessionSummary]:
        summaries = (summarize(self._files, self._root, session_id) for session_id in ids)
        return [summary for summary in summaries if summary is not None]

    # --- removing and mending ---------------------------------------------------------------------

    async def delete(self, session_id: str) -> None:
        """Delete a stored session and what lies beside it. Once begun it is carried out, cancelled or not.

        Raises:
            SessionBusyError: a writer has it.
            SessionNotFoundError: nothing is stored under the id.
            StorageError: the system refuses.
        """
        async with self._turns.of(session_id):
            await trio.lowlevel.checkpoint()
            place, lock = self._lock_stored(session_id)
            try:
                await trio.to_thread.run_sync(self._root.remove, place.directory)
            except OSError as exc:
                raise storage_error(
                    exc, "cannot delete the session", session_id=session_id, path=place.directory
                ) from exc
            finally:
                lock.release()

    async def verify(self, session_id: str) -> Verdict:
        """Read a whole log and say everything that is wrong with it. Changes nothing.

        Raises:
            SessionNotFoundError: nothing is stored under the id.
            SessionIdentityError: the log belongs elsewhere.
            StorageError: it cannot be read.
        """
        async with self._turns.of(session_id):
            await trio.lowlevel.checkpoint()
            place = self._root.find(session_id)
            try:
                found = await self._in_thread(place, "cannot read the log", examine, self._files, place)
            except (SessionCorruptError, SessionUnsupportedError) as exc:
                return Verdict(session_id=session_id, events=0, problems=(str(exc),), path=place.path)
        return verdict_of(place, found)

    async def repair(self, session_id: str) -> Verdict:
        """Write a new log from the good prefix of a damaged one, and keep the damaged one beside it.

        The new log says that it is incomplete. A torn tail is cut off; a sound log stays as it is.

        Returns:
            What was found before.

        Raises:
            SessionBusyError: a writer has it.
            SessionCorruptError: not even the header can be read, so there is nothing to keep.
            SessionUnsupportedError: it is intact, and of a kind that is not known here.
            SessionNotFoundError, SessionIdentityError, StorageError: as `open`.
        """
        async with self._turns.of(session_id):
            await trio.lowlevel.checkpoint()
            place, lock = self._lock_stored(session_id)
            try:
                return await self._repair(place)
            finally:
                lock.release()

    async def _repair(self, place: Place) -> Verdict:
        found = await self._in_thread(place, "cannot read the log", examine, self._files, place)
        if found.is_unsupported:
            raise SessionUnsupportedError(found.problems[0], session_id=place.session_id, path=place.path)
        aside = None
        if found.problems:
            aside = await self._in_thread(place, "cannot repair the log", mend, self._files, place, found)
        elif found.torn:
            await self._clean_end(place, await load(self._files, place))
        return verdict_of(place, found, kept_aside=aside)

    async def _in_thread(self, place: Place, doing: str, fn: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        try:
            return await trio.to_thread.run_sync(fn, *args)
        except FileNotFoundError as exc:
            raise SessionNotFoundError(
                f"session {place.session_id!r} has gone", session_id=place.session_id, path=place.path
            ) from exc
        except OSError as exc:
            raise storage_error(exc, doing, session_id=place.session_id, path=place.path) from exc

    # --- attachments ------------------------------------------------------------------------------

    async def put_attachment(
        self, session_id: str, data: bytes, media_type: str, name: str | None = None
    ) -> Attachment:
        """Keep bytes beside a session's log, under their hash. Putting the same bytes again changes nothing.

        Under `synced` they are on the disk when it returns. Once begun it is carried out, cancelled or not.

        Raises:
            MessageError: too large, or not what the media type says.
            SessionNotFoundError: there is no such session, live or stored.
            StorageError: the bytes could not be stored.
        """
        await trio.lowlevel.checkpoint()
        place = self._home_of(session_id)
        attachment = admit(data, media_type, name)

        def store() -> None:
            attachments.store(
                self._files, place.directory, attachment.attachment_id, data, sync=self._shop.is_synced
            )

        await self._in_thread(place, "cannot store the attachment", store)
        return attachment

    def has_attachment(self, session_id: str, attachment_id: str) -> bool:
        """Whether these bytes are kept beside the session's log. No checkpoint."""
        try:
            self._files.stat(path_of(self._home_of(session_id).directory, attachment_id))
        except (OSError, MessageError, SessionNotFoundError):
            return False
        return True

    async def get_attachment(self, session_id: str, attachment_id: str) -> bytes:
        """The bytes of an attachment.

        Raises:
            MessageError: the session has no such attachment.
            SessionNotFoundError: there is no such session, live or stored.
            SessionCorruptError: the bytes are not those that were stored.
            StorageError: they cannot be read.
        """
        place = self._home_of(session_id)
        path = path_of(place.directory, attachment_id)
        try:
            data = await trio.to_thread.run_sync(attachments.read, self._files, path, abandon_on_cancel=True)
        except FileNotFoundError as exc:
            raise MessageError(f"session {session_id!r} has no attachment {attachment_id}") from exc
        except OSError as exc:
            raise storage_error(exc, "cannot read the attachment", session_id=session_id, path=path) from exc
        return check_bytes(data, attachment_id, path=path)

    async def share_attachments(self, source_id: str, target_id: str, attachment_ids: Sequence[str]) -> None:
        """Give a session some of another one's attachments, as further names of the same bytes.

        Raises:
            SessionNotFoundError: one of the sessions is not there.
            StorageError: the system refuses.
        """
        await trio.lowlevel.checkpoint()
        if attachment_ids:
            source, target = self._home_of(source_id), self._home_of(target_id)

            def share() -> None:
                attachments.link(
                    self._files, source.directory, target.directory, attachment_ids, sync=self._shop.is_synced
                )

            await self._in_thread(target, "cannot share the attachments", share)

    async def collect_attachments(self, session_id: str) -> Sequence[str]:
        """Remove the attachments of a session that no event of its log refers to; gives their ids.

        Raises:
            SessionBusyError: a writer has it, and may be about to refer to one.
            SessionNotFoundError, SessionCorruptError, SessionUnsupportedError, SessionIdentityError, StorageError:
                as `open`.
        """
        async with self._turns.of(session_id):
            await trio.lowlevel.checkpoint()
            place, lock = self._lock_stored(session_id)
            try:
                loaded = await load(self._files, place)
                wanted = references(plain_lines(loaded.events.records))
                return await self._in_thread(
                    place,
                    "cannot remove attachments",
                    attachments.collect,
                    self._files,
                    place.directory,
                    wanted,
                )
            finally:
                lock.release()

    def _home_of(self, session_id: str) -> Place:
        """Where a session lies, also one of which nothing is written yet."""
        live = self._live.get(session_id)
        return live if live is not None else self._root.find(session_id)
