"""Making writes durable: a few threads that sync the files of many sessions, so that no disk stalls the loop.

Everything here but `SyncJob.run` runs on the Trio thread. A job covers everything that was written to one log
before it was made; those who need no more than that wait for the same job.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from typing import Final, final

import trio

MAX_THREADS: Final = 8


@final
class SyncJob:
    """One sync of one log, waited for by any number of tasks.

    Attributes:
        done: set when it is over.
        ran: whether it was tried at all; a cancel may come first where no worker serves.
        error: why it failed, or None.
        covers: the writer's count of writes when it was made.
    """

    __slots__ = ("_finish", "_work", "covers", "done", "error", "ran")

    def __init__(self, work: Callable[[], None], finish: Callable[[], None], covers: int) -> None:
        self._work = work
        self._finish = finish
        self.covers = covers
        self.done = trio.Event()
        self.error: OSError | None = None
        self.ran = False

    def run(self) -> None:
        """Do the work, in whichever thread. A refusal of the system is kept, not raised."""
        self.ran = True
        try:
            self._work()
        except OSError as exc:
            self.error = exc

    def settle(self) -> None:
        """Tell those who wait. On the Trio thread, after `run`."""
        self._finish()
        self.done.set()


@final
class SyncWorker:
    """Runs the jobs of a whole store. Without `serve` a job runs in a thread of its own.

    The threads take jobs from one queue and report through one coalesced callback: a hop per job would cost
    several times as much as the sync itself.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[SyncJob | None] = queue.SimpleQueue()
        self._finished: deque[SyncJob] = deque()
        self._outstanding = 0
        self._threads = 0
        self._limiter: trio.CapacityLimiter | None = None
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def is_serving(self) -> bool:
        """Whether `serve` runs."""
        return self._nursery is not None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run jobs until cancelled; those handed over before that are finished all the same."""
        self._limiter = trio.CapacityLimiter(MAX_THREADS)
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    self._nursery = None
                    # Behind whatever is still queued: each thread ends when it meets one.
                    for _ in range(self._threads):
                        self._jobs.put(None)
                    self._threads = 0
        finally:
            self._deliver()

    async def run(self, job: SyncJob) -> None:
        """See that the job is done, and wait for it. Cancelling the wait does not cancel the job."""
        nursery = self._nursery
        if nursery is None:
            try:
                await trio.to_thread.run_sync(job.run)
            finally:
                job.settle()
            return
        self._outstanding += 1
        self._jobs.put(job)
        if self._threads < min(self._outstanding, MAX_THREADS):
            self._threads += 1
            nursery.start_soon(self._run_thread, name="trio_agents sync thread")
        await job.done.wait()

    async def _run_thread(self) -> None:
        # A cancelled wait for a thread goes on to its end, which the sentinel in the queue brings about. A
        # task that is cancelled before its thread began still has its sentinel to take from the queue.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._drain, limiter=self._limiter)

    def _drain(self) -> None:
        token = self._token
        assert token is not None
        while (job := self._jobs.get()) is not None:
            job.run()
            self._finished.append(job)
            token.run_sync_soon(self._deliver, idempotent=True)

    def _deliver(self) -> None:
        while self._finished:
            job = self._finished.popleft()
            self._outstanding -= 1
            job.settle()
