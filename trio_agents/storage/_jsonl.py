"""Sessions as files: one directory for each, with an append-only log in it."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, final

import trio

from ..errors import SessionBusyError, SessionExistsError, StorageError, UsageError
from ..session._codec import encode_event, encode_header
from ..session._events import Event
from ..session._header import SessionHeader
from ._contract import LogWriter, OpenedLog, SessionSummary, StoredSession
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
from ._views import stored_session
from ._writer import LogFileWriter, Workshop, packed_lines
from ._zstd import FrameWriter, require_zstd


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
            self._refuse_taken(place)
            writer = self._writer(place, lock)
        except BaseException:
            self._forget(place)
            lock.release()
            raise
        seed = tuple(seed)
        writer.begin_with(lambda: self._beginning(header, seed), parents)
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

    def _refuse_taken(self, place: Place) -> None:
        # After our own lock is held: of two that take one id in two projects at least one sees the other.
        for project in self._root.projects_with(place.session_id):
            directory = self._root.directory(project, place.session_id)
            if self._root.has_log(place.session_id, directory):
                raise SessionExistsError(
                    f"a session {place.session_id!r} is already stored",
                    session_id=place.session_id,
                    path=directory,
                )
            if project != place.project and (owner := owner_of(self._files, directory)) is not None:
                raise SessionBusyError(
                    f"session {place.session_id!r} is being written by {owner}",
                    owner=owner, session_id=place.session_id, path=directory,
                )  # fmt: skip

    def _beginning(self, header: SessionHeader, seed: tuple[Event, ...]) -> tuple[bytes, bytes]:
        lines = [encode_event(event) for event in seed]
        if self._shop.is_packing:
            lines = packed_lines(seed, lines)
        return encode_header(header) + b"\n", b"".join([line + b"\n" for line in lines])

    def _writer(self, place: Place, lock: SessionLock) -> LogFileWriter:
        def on_close(is_unwritten: bool) -> None:
            if is_unwritten:
                self._forget(place)

        frames = FrameWriter() if place.is_compressed else None
        return LogFileWriter(self._shop, place.session_id, place.path, lock, frames=frames, on_close=on_close)

    def _forget(self, place: Place) -> None:
        """Remove the directory of a session of which nothing was written, while its lock is held."""
        try:
            if not self._root.has_log(place.session_id, place.directory):
                self._root.remove(place.directory)
        except (OSError, StorageError):
            pass  # a directory without a log is no session; the next creation takes it over

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
                writer = self._writer(place, lock)
                writer.continue_at(*await self._clean_end(place, loaded))
            except BaseException:
                lock.release()
                raise
        return OpenedLog(header=loaded.header, events=loaded.records, writer=writer)

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

        stale = unfinished(self._files, place.directory)
        if not stale and loaded.good_end == loaded.size:
            return loaded.size, loaded.identity
        try:
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
            loaded.header, loaded.records,
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
