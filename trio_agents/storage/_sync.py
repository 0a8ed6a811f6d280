"""Making writes durable: threads that sync the files of many sessions, so that no disk stalls the loop.

A job covers everything that was written to one log before it was made; those who need no more than that wait for the
same job. What is asked for while the loop goes round is handed over together, and done together: the system is told of
all files before the first is waited for, so that one commit of its journal serves all of them, and what is done is told
to the loop at once. A thread for each file would cost several times as much, most of it for handing the interpreter
to and fro.

As long as the disk is quick, one thread does everything. When it is not, jobs are dealt out to several, so that their
waits overlap.
"""

from __future__ import annotations

import errno
import queue
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import trio

from ._files import DONTNEED, UPDATE, Files, sync_directory

MAX_THREADS: Final = 8

SLOW: Final = 0.002
"""Seconds for one sync, from which on it pays to wait for several at a time."""

STUCK: Final = 0.005
"""Seconds without an end of a sync, from which on what comes next is given to another thread."""

SOON: Final = 0.01
"""Seconds between two reports of a thread that has more to do."""

GATHERINGS: Final = 8
"""How many rounds of the loop jobs may be gathered for before they are handed over."""


@final
class SyncJob:
    """One sync of one log, waited for by any number of tasks.

    Attributes:
        covers: the writer's count of writes when it was made.
        size: how many bytes the log had then.
        done: set when it is over.
        ran: whether it was tried at all; a cancel may come first where no worker serves.
        error: why it failed, or None.
    """

    __slots__ = (
        "_directories",
        "_fd",
        "_files",
        "_finish",
        "_path",
        "_start",
        "_writes_again",
        "covers",
        "done",
        "error",
        "ran",
        "size",
    )

    def __init__(
        self,
        files: Files,
        fd: int,
        finish: Callable[[SyncJob], object],
        *,
        covers: int,
        start: int,
        size: int,
        directories: tuple[str, ...],
        path: str,
        writes_again: bool,
    ) -> None:
        """Plan a sync.

        Args:
            files: how files are touched.
            fd: the open log.
            finish: called on the Trio thread when it is over.
            covers: the writer's count of writes.
            start: how many bytes are durable already.
            size: how many bytes there are.
            directories: what else has to be synced for the log to be found after a power cut.
            path: where the log is.
            writes_again: whether an earlier sync has failed, so that the system may take for written what is not.
        """
        self._files = files
        self._fd = fd
        self._finish = finish
        self._start = start
        self._directories = directories
        self._path = path
        self._writes_again = writes_again
        self.covers: int = covers
        self.size: int = size
        self.done: trio.Event = trio.Event()
        self.error: OSError | None = None
        self.ran: bool = False

    def begin(self) -> None:
        """Let the system start to write, and do not wait for it. Only a hint: `run` says what became of it."""
        with suppress(OSError):
            self._files.posix_fadvise(self._fd, self._start, 0, DONTNEED)

    def run(self, synced: set[str] | None = None) -> None:
        """Make it durable, in whichever thread. A refusal of the system is kept, not raised.

        Args:
            synced: directories that others of the batch have synced, after this job was made; its own are added.
        """
        self.ran = True
        files = self._files
        if synced is None:
            synced = set()
        try:
            if self._writes_again:
                _write_again(files, self._path, self._start, self.size)
            files.fdatasync(self._fd)
            for directory in self._directories:
                if directory not in synced:
                    sync_directory(files, directory)
                    synced.add(directory)
        except OSError as exc:
            self.error = exc

    def settle(self) -> None:
        """Tell those who wait. On the Trio thread, after `run`."""
        self._finish(self)
        self.done.set()


@final
class SyncWorker:
    """Runs the jobs of a whole store. Without `serve` a job runs in a thread of its own."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._gathered: list[SyncJob] = []
        self._batches: queue.SimpleQueue[list[SyncJob] | None] = queue.SimpleQueue()
        self._finished: deque[SyncJob] = deque()
        self._is_slow = False
        self._nursery: trio.Nursery | None = None
        self._outstanding = 0
        # When a thread last got anywhere.
        self._progress = 0.0
        self._sleeper: trio.lowlevel.Task | None = None
        self._threads = 0
        self._limiter: trio.CapacityLimiter | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def is_serving(self) -> bool:
        """Whether `serve` runs."""
        return self._nursery is not None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run jobs until cancelled; those asked for before that are finished all the same."""
        self._limiter = trio.CapacityLimiter(MAX_THREADS)
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    task_status.started()
                    while True:
                        await self._gather()
                        self._hand_over(nursery)
                finally:
                    self._nursery = None
                    self._hand_over(nursery)
                    # Behind whatever is still queued: each thread ends when it meets one.
                    for _ in range(self._threads):
                        self._batches.put(None)
                    self._threads = 0
        finally:
            self._deliver()

    async def run(self, job: SyncJob) -> None:
        """See that the job is done, and wait for it. Cancelling the wait does not cancel the job."""
        if self._nursery is None:
            try:
                await trio.to_thread.run_sync(job.run)
            finally:
                job.settle()
            return
        self._gathered.append(job)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None
        await job.done.wait()

    async def _gather(self) -> None:
        """Wait until there are jobs, and, where several come together, until no more of them come."""
        if not self._gathered:
            self._sleeper = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._wake)
        count = 1
        for _ in range(GATHERINGS):
            if len(self._gathered) == count:
                return
            count = len(self._gathered)
            await trio.lowlevel.checkpoint()

    def _wake(self, raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _hand_over(self, nursery: trio.Nursery) -> None:
        jobs, self._gathered = self._gathered, []
        if not jobs:
            return
        shares = 1
        wanted = 1
        if self._is_slow:
            shares = min(len(jobs), MAX_THREADS)
            wanted = self._outstanding + shares
        elif self._outstanding and self._now() - self._progress > STUCK:
            wanted = self._threads + 1
        if not self._outstanding:
            self._progress = self._now()
        self._outstanding += len(jobs)
        for index in range(shares):
            self._batches.put(jobs[index::shares])
        while self._threads < min(wanted, MAX_THREADS):
            self._threads += 1
            nursery.start_soon(self._run_thread, name="trio_agents sync thread")

    async def _run_thread(self) -> None:
        # A cancelled wait for a thread goes on to its end, which the sentinel in the queue brings about. A
        # task that is cancelled before its thread began still has its sentinel to take from the queue.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._drain, limiter=self._limiter)

    # --- in the threads ---------------------------------------------------------------------------

    def _drain(self) -> None:
        while (batch := self._batches.get()) is not None:
            self._sync(batch)

    def _sync(self, batch: list[SyncJob]) -> None:
        token, finished = self._token, self._finished
        assert token is not None
        synced: set[str] = set()
        began = told = at = self._now()
        if len(batch) > 1:
            for job in batch:
                job.begin()
        for job in batch:
            job.run(synced)
            finished.append(job)
            at = self._progress = self._now()
            if at - told > SOON:
                told = at
                token.run_sync_soon(self._deliver, idempotent=True)
        self._is_slow = (at - began) / len(batch) > SLOW
        token.run_sync_soon(self._deliver, idempotent=True)

    # --- back on the Trio thread ------------------------------------------------------------------

    def _deliver(self) -> None:
        while self._finished:
            job = self._finished.popleft()
            self._outstanding -= 1
            job.settle()


def _write_again(files: Files, path: str, start: int, end: int) -> None:
    """Put the same bytes into the file once more.

    After a failed sync a system may take its pages for written: another sync of the same pages would report
    success without a byte on the disk.
    """
    fd = files.open(path, UPDATE, 0)
    try:
        at = start
        while at < end:
            data = files.pread(fd, min(1 << 20, end - at), at)
            if not data:
                raise OSError(errno.EIO, "the log is shorter than what was written")
            at += files.pwrite(fd, data, at)
    finally:
        files.close(fd)
