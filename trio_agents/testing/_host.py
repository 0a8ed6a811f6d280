"""A Trio run that ordinary, synchronous code drives: for stateful tests."""

from __future__ import annotations

import queue
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, TypeVar, cast, final

import outcome
import trio
import trio.testing

T = TypeVar("T")

PATIENCE: Final = 30.0
"""Seconds of real time after which a job that has not ended counts as hanging."""


@final
class TrioHost:
    """Keeps one Trio run open while synchronous code, such as a Hypothesis state machine, acts between its steps.

        host = TrioHost()
        runtime = host.run(open_something)
        host.run(do_something)
        host.close()

    All jobs run in one task of one run, so that what one has opened another may close. Trio runs only inside `run`
    and `settle`: between them nothing moves. Its clock jumps ahead whenever all tasks sleep.
    """

    def __init__(self) -> None:
        """Start the run."""
        self._ready: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._jobs, jobs = trio.open_memory_channel[Callable[[], Awaitable[Any]]](1)
        self._results: list[outcome.Outcome[Any]] = []
        self._end: outcome.Outcome[None] | None = None
        self._is_closed = False

        async def serve() -> None:
            async for job in jobs:
                self._results.append(await outcome.acapture(job))

        trio.lowlevel.start_guest_run(
            serve,
            run_sync_soon_threadsafe=self._ready.put,
            done_callback=self._ended,
            host_uses_signal_set_wakeup_fd=True,
            clock=trio.testing.MockClock(autojump_threshold=0),
        )

    def _ended(self, end: outcome.Outcome[None]) -> None:
        self._end = end

    def _pump(self, is_done: Callable[[], bool]) -> None:
        # A run in which every task waits for ever is not silent: its clock looks for somewhere to jump to.
        give_up = time.monotonic() + PATIENCE
        while not is_done():
            left = give_up - time.monotonic()
            try:
                step = self._ready.get(timeout=left) if left > 0 else None
            except queue.Empty:
                step = None
            if step is None:
                raise TimeoutError(f"the Trio run hangs: the job has not ended within {PATIENCE:g} seconds")
            step()

    def run(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run an async function to its end, and everything else meanwhile. Returns or raises what it does."""
        self._results.clear()
        self._ready.put(lambda: self._jobs.send_nowait(job))
        self._pump(lambda: bool(self._results) or self._end is not None)
        if self._results:
            return cast("T", self._results.pop().unwrap())
        assert self._end is not None
        self._is_closed = True
        self._end.unwrap()  # the run broke down, which is raised here
        raise RuntimeError("the Trio run is over")

    def settle(self) -> None:
        """Let everything run until all tasks are blocked."""
        self.run(trio.testing.wait_all_tasks_blocked)

    def close(self) -> None:
        """End the run; raises what broke it. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._end is None:
            self._ready.put(self._jobs.close)
            self._pump(lambda: self._end is not None)
        assert self._end is not None
        self._end.unwrap()

    def __enter__(self) -> TrioHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
