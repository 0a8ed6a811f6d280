"""The writer of one log file.

What it lives by: `_size` bytes of the file are acknowledged, and nothing else is part of the log. An append is one
write at the end of the file; if it fails, the file is cut back to `_size`, and where even that fails it is done
before anything else is written. So a refused batch was never accepted, and the next one leaves no gap.

Held chunks are acknowledged, but not in the file yet. They are always the first part of the next write, which is
refused or accepted as a whole; a refusal leaves them held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import attrs
import trio

from ..errors import SessionClosedError, StorageError
from ..session._events import Event
from ..session._packing import ChunkRun, pack
from ._creation import Beginning, create_log
from ._delay import Delay
from ._descriptors import Descriptor, Descriptors
from ._files import Files, storage_error, write_all
from ._lock import SessionLock
from ._sync import SyncJob, SyncWorker
from ._zstd import FrameWriter

_CHUNK: Final = "assistant/chunk"
_HELD_BYTES: Final = 64 * 1024


@attrs.frozen(kw_only=True)
class Workshop:
    """What all writers of a store share."""

    files: Files
    descriptors: Descriptors
    worker: SyncWorker
    delay: Delay
    is_synced: bool
    is_packing: bool


@final
class LogFileWriter:
    """The right to write one log file. See the module for how."""

    __slots__ = (
        "_begin", "_closed", "_descriptor", "_directories", "_frames", "_held", "_held_lines", "_held_size", "_identity",
        "_job", "_lock", "_needs_cut", "_on_close", "_path", "_ready", "_refusal", "_shop", "_size", "_suspect", "_synced",
        "_synced_size", "_ticket", "_write", "_writes", "session_id",
    )  # fmt: skip

    def __init__(
        self,
        shop: Workshop,
        session_id: str,
        path: str,
        lock: SessionLock,
        *,
        frames: FrameWriter | None,
        on_close: Callable[[bool], None],
    ) -> None:
        self._shop = shop
        self.session_id = session_id
        self._path = path
        self._lock = lock
        self._frames = frames
        self._on_close = on_close
        self._write = shop.files.write
        self._begin: Beginning | None = None
        self._closed = False
        self._descriptor: Descriptor | None = None
        self._directories: tuple[str, ...] = ()
        self._held: list[Event] = []
        self._held_lines: list[bytes] = []
        self._held_size = 0
        self._identity = (0, 0)
        self._job: SyncJob | None = None
        self._needs_cut = False
        # The open log, while nothing but a write stands between an event and the file.
        self._ready: Descriptor | None = None
        self._refusal: str | None = None
        self._size = 0
        self._suspect = False
        self._synced = 0
        self._synced_size = 0
        self._ticket = 0
        self._writes = 0

    def begin_with(self, begin: Beginning, directories: tuple[str, ...]) -> None:
        """The log is new: its first write creates it.

        Args:
            begin: what comes before the first batch.
            directories: what has to be synced for the file to be found after a power cut.
        """
        self._begin = begin
        self._directories = directories

    def continue_at(self, size: int, identity: tuple[int, int]) -> None:
        """The log exists, with this many good bytes; `identity` is its inode and device."""
        self._size = self._synced_size = size
        self._identity = identity

    async def prepare(self) -> None:
        """Do what the first write of a long seed would take long for, in slices. A checkpoint."""
        await trio.lowlevel.checkpoint()
        if self._begin is not None:
            await self._begin.prepare()

    # --- appending --------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether a barrier would have anything to do."""
        if self._held or self._needs_cut or (self._frames is not None and self._frames.is_open):
            return True
        return self._shop.is_synced and self._synced != self._writes

    def write(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        """Append one batch, all or nothing; neighbouring chunks may be held back a moment first.

        The first call creates the log, also if it brings no events.

        Raises:
            StorageError: refused; nothing of this batch is stored, and what was held back still is.
            SessionClosedError: the writer is closed.
        """
        ready = self._ready
        if ready is not None and len(lines) == 1 and not self._held and events[0].type != _CHUNK:
            self._append_at_once(ready, lines[0] + b"\n")
            return
        if self._closed:
            raise SessionClosedError(
                f"the writer of session {self.session_id!r} is closed", session_id=self.session_id
            )
        if len(lines) == 1 and not self._held:
            if events[0].type == _CHUNK and self._can_hold():
                self._hold(events, lines)
            else:
                self._append(lines[0] + b"\n")
        elif lines and self._can_hold() and all(event.type == _CHUNK for event in events):
            self._hold(events, lines)
        else:
            self._append(self._render(events, lines))
            self._let_go()

    def _can_hold(self) -> bool:
        return (
            self._size > 0
            and self._refusal is None
            and self._shop.delay.is_on
            and self._held_size < _HELD_BYTES
        )

    def _hold(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        if not self._held:
            self._ticket += 1
            self._shop.delay.begin(self, self._ticket)
        self._held.extend(events)
        self._held_lines.extend(lines)
        self._held_size += sum(map(len, lines))

    def _let_go(self) -> None:
        if self._held:
            self._held = []
            self._held_lines = []
            self._held_size = 0

    def _render(self, events: Sequence[Event], lines: Sequence[bytes]) -> bytes:
        """Held chunks and this batch as bytes, runs of chunks in rows."""
        everything = [*self._held_lines, *lines]
        if self._shop.is_packing and len(everything) > 2:
            everything = packed_lines([*self._held, *events], everything)
        return b"".join([line + b"\n" for line in everything])

    def write_held(self, ticket: int | None = None) -> None:
        """Write what is held back, if it is still that of this ticket.

        Raises:
            StorageError: refused; it is still held back.
        """
        if self._held and not self._closed and ticket in {None, self._ticket}:
            self._append(self._render((), ()))
            self._let_go()

    def _append(self, data: bytes) -> None:
        if self._refusal is not None:
            raise self._refused()
        if self._begin is not None:
            self._create(data)
            return
        if self._needs_cut:
            self._cut()
        if not data:
            return
        descriptor = self._descriptor or self._reopen()
        descriptor.was_used = True
        frames = self._frames
        if frames is not None:
            data = frames.add(data)
        try:
            done = self._write(descriptor.fd, data)
            if done != len(data):
                write_all(self._shop.files, descriptor.fd, data[done:])
        except OSError as exc:
            self._undo(exc)
        if frames is not None:
            frames.keep()
        else:
            self._ready = descriptor
        self._size += len(data)
        self._writes += 1

    def _append_at_once(self, descriptor: Descriptor, data: bytes) -> None:
        """The usual append, where everything that `_append` asks about is known to be as it should be."""
        descriptor.was_used = True
        try:
            done = self._write(descriptor.fd, data)
            if done != len(data):
                write_all(self._shop.files, descriptor.fd, data[done:])
        except OSError as exc:
            self._undo(exc)
        self._size += len(data)
        self._writes += 1

    def _undo(self, exc: OSError) -> None:
        if self._frames is not None:
            self._frames.undo()
        error = storage_error(exc, "cannot append", session_id=self.session_id, path=self._path)
        self._needs_cut = True
        self._ready = None
        try:
            self._cut()
        except StorageError as second:
            error = StorageError(f"{error}; and {second}", session_id=self.session_id)
            error.add_note(
                "The file is cut back to its last whole batch before anything else is written to it."
            )
        raise error from exc

    def _cut(self) -> None:
        """Take back what a failed write may have left behind the last whole batch."""
        try:
            descriptor = self._descriptor or self._reopen()
            self._shop.files.ftruncate(descriptor.fd, self._size)
        except OSError as exc:
            raise storage_error(
                exc, "cannot take back a failed write", session_id=self.session_id, path=self._path
            ) from exc
        self._needs_cut = False

    # --- creating and opening ---------------------------------------------------------------------

    def _create(self, batch: bytes) -> None:
        assert self._begin is not None
        header, seed = self._begin.header, self._begin.seed()
        frames = self._frames
        data = header + seed + batch
        if frames is not None:
            data = frames.whole(header)
            if seed or batch:
                data += frames.add(seed + batch)
        try:
            fd, found = create_log(self._shop.files, self._path, data)
        except OSError as exc:
            if frames is not None:
                frames.undo()
            raise storage_error(
                exc, "cannot create the log", session_id=self.session_id, path=self._path
            ) from exc
        if frames is not None:
            frames.keep()
        self._begin = None
        self._identity = (found.st_ino, found.st_dev)
        self._size = len(data)
        self._writes += 1
        self._descriptor = self._shop.descriptors.adopt(fd, self._forget_descriptor)

    def _reopen(self) -> Descriptor:
        self._check_place()
        try:
            self._descriptor = self._shop.descriptors.open(self._path, self._forget_descriptor)
        except OSError as exc:
            raise storage_error(
                exc, "cannot open the log", session_id=self.session_id, path=self._path
            ) from exc
        return self._descriptor

    def _forget_descriptor(self) -> None:
        self._descriptor = self._ready = None

    def _check_place(self) -> None:
        """See that the file is the one that was written last, with nothing more in it."""
        if self._refusal is not None:
            raise self._refused()
        if self._begin is not None or self._needs_cut:
            return
        try:
            found = self._shop.files.stat(self._path)
        except FileNotFoundError:
            self._refusal = "its file was removed"
        except OSError as exc:
            raise storage_error(
                exc, "cannot look at the log", session_id=self.session_id, path=self._path
            ) from exc
        else:
            if (found.st_ino, found.st_dev) != self._identity:
                self._refusal = "its file was replaced by another"
            elif found.st_size != self._size:
                self._refusal = f"its file has {found.st_size} bytes where {self._size} were written"
        if self._refusal is not None:
            self._ready = None
            raise self._refused()

    def _refused(self) -> StorageError:
        return StorageError(
            f"session {self.session_id!r} was changed by somebody else while it was being written: {self._refusal}; "
            "it can only be read from here on",
            session_id=self.session_id, path=self._path,
        )  # fmt: skip

    # --- making it durable ------------------------------------------------------------------------

    async def barrier(self) -> None:
        """Return when everything written so far is as durable as the store promises. A checkpoint.

        Cancelling the wait changes nothing about the writing.

        Raises:
            StorageError: it could not be made durable, or the file was changed by somebody else.
            SessionClosedError: the writer is closed.
        """
        if self._closed:
            raise SessionClosedError(
                f"the writer of session {self.session_id!r} is closed", session_id=self.session_id
            )
        self._settle()
        if not self._shop.is_synced or self._synced == self._writes:
            await trio.lowlevel.checkpoint()
        else:
            await self._sync()

    def _settle(self) -> None:
        """Bring everything that was accepted into the file."""
        self._check_place()
        if self._needs_cut:
            self._cut()
        self.write_held()
        if self._frames is not None and self._frames.is_open:
            self._end_frame(self._frames)

    def _end_frame(self, frames: FrameWriter) -> None:
        descriptor = self._descriptor or self._reopen()
        data = frames.finish()
        try:
            write_all(self._shop.files, descriptor.fd, data)
        except OSError as exc:
            self._undo(exc)
        frames.keep()
        self._size += len(data)
        self._writes += 1

    async def _sync(self) -> None:
        target = self._writes
        while self._synced < target:
            job = self._job
            if job is not None:
                await job.done.wait()
            else:
                job = self._start_job()
                await self._shop.worker.run(job)
            if job.error is not None and job.covers >= target:
                raise storage_error(
                    job.error, "cannot make the log durable", session_id=self.session_id, path=self._path
                ) from job.error

    def _start_job(self) -> SyncJob:
        descriptor = self._descriptor or self._reopen()
        descriptor.was_used = True
        descriptor.pin()

        def finish(job: SyncJob) -> None:
            descriptor.unpin()
            self._job = None
            if job.error is not None:
                self._suspect = True
            elif job.ran:
                self._suspect = False
                self._directories = ()
                self._synced = job.covers
                self._synced_size = job.size

        job = self._job = SyncJob(
            self._shop.files,
            descriptor.fd,
            finish,
            covers=self._writes,
            start=self._synced_size,
            size=self._size,
            directories=self._directories,
            path=self._path,
            writes_again=self._suspect,
        )
        return job

    # --- the end ----------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Write what was held back, make it durable, release the lock. Idempotent; a checkpoint.

        The lock is released on every way out, a cancelled wait included.

        Raises:
            StorageError: the last barrier failed.
        """
        if self._closed or self._begin is not None:
            self._release()
            await trio.lowlevel.checkpoint()
            return
        try:
            await self.barrier()
        finally:
            self._release()

    def abandon(self) -> None:
        """Release the lock at once, without a barrier and without a checkpoint. Idempotent."""
        self._release()

    def _release(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._ready = None
        try:
            if self._descriptor is not None:
                self._shop.descriptors.drop(self._descriptor)
            self._on_close(self._begin is not None)
        finally:
            self._lock.release()


def packed_lines(events: Sequence[Event], lines: list[bytes]) -> list[bytes]:
    """The lines of a batch with each run of like chunks as one row."""
    packed: list[bytes] = []
    at = 0
    for item in pack(events):
        if isinstance(item, ChunkRun):
            packed.append(item.row)
            at += item.count
        else:
            packed.append(lines[at])
            at += 1
    return packed
