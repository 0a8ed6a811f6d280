"""The worker that syncs logs: what is done together, what overlaps, and that nothing asked for is left undone."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from trio_agents.storage import Files
from trio_agents.storage._sync import SLOW, STUCK, SyncJob, SyncWorker
from trio_agents.testing import FaultyFiles


class Clock:
    """A time that only moves when it is told to; a sync may take some of it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    yield fd
    os.close(fd)


@asynccontextmanager
async def served(clock: Clock) -> AsyncIterator[SyncWorker]:
    worker = SyncWorker(clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(worker.serve)
        yield worker
        nursery.cancel_scope.cancel()
    assert not worker.is_serving


def job(
    files: Files, fd: int, seen: list[int] | None = None, covers: int = 0, directories: tuple[str, ...] = ()
) -> SyncJob:
    def finish(job: SyncJob) -> None:
        if seen is not None:
            seen.append(job.covers)

    return SyncJob(
        files,
        fd,
        finish,
        covers=covers,
        start=0,
        size=0,
        directories=directories,
        path="log",
        writes_again=False,
    )


async def run_all(worker: SyncWorker, jobs: list[SyncJob]) -> None:
    async with trio.open_nursery() as nursery:
        for one in jobs:
            nursery.start_soon(worker.run, one)


async def test_what_is_asked_for_together_is_begun_before_any_of_it_is_waited_for(
    clock: Clock, fd: int
) -> None:
    faults, seen = FaultyFiles(), list[int]()
    async with served(clock) as worker:
        await run_all(worker, [job(faults.files, fd, seen, number) for number in range(5)])
    assert faults.calls == ["posix_fadvise"] * 5 + ["fdatasync"] * 5
    assert sorted(seen) == list(range(5))


async def test_a_sync_alone_is_not_announced(clock: Clock, fd: int) -> None:
    faults = FaultyFiles()
    async with served(clock) as worker:
        for _ in range(3):
            await worker.run(job(faults.files, fd))
    assert faults.calls == ["fdatasync"] * 3


async def test_an_announcement_that_is_refused_changes_nothing(clock: Clock, fd: int) -> None:
    faults = FaultyFiles()
    faults.fail("posix_fadvise", error=errno.EINVAL, times=2)
    async with served(clock) as worker:
        jobs = [job(faults.files, fd) for _ in range(2)]
        await run_all(worker, jobs)
    assert [(one.ran, one.error) for one in jobs] == [(True, None)] * 2


async def test_one_that_fails_fails_for_itself(clock: Clock, fd: int) -> None:
    """PER-11: the others that were synced together with it are durable."""
    faults = FaultyFiles()
    faults.fail("fdatasync", skip=1)
    async with served(clock) as worker:
        jobs = [job(faults.files, fd) for _ in range(3)]
        await run_all(worker, jobs)
    assert sorted(one.error is None for one in jobs) == [False, True, True]
    assert all(one.ran and one.done.is_set() for one in jobs)


async def test_a_directory_of_several_is_synced_once(clock: Clock, fd: int, tmp_path: Path) -> None:
    """PER-21: after the entries of all of them were made; the next batch syncs it again."""
    faults = FaultyFiles()
    async with served(clock) as worker:
        for _ in range(2):
            await run_all(worker, [job(faults.files, fd, directories=(str(tmp_path),)) for _ in range(3)])
    assert (faults.count("fdatasync"), faults.count("fsync")) == (6, 2)


async def test_a_directory_that_could_not_be_synced_is_tried_again(
    clock: Clock, fd: int, tmp_path: Path
) -> None:
    """PER-11: whoever relies on it is told, and nobody relies on what failed for another."""
    faults = FaultyFiles()
    faults.fail("fsync")
    async with served(clock) as worker:
        jobs = [job(faults.files, fd, directories=(str(tmp_path),)) for _ in range(3)]
        await run_all(worker, jobs)
    assert sorted(one.error is None for one in jobs) == [False, True, True]
    assert faults.count("fsync") == 2


async def test_on_a_slow_disk_syncs_overlap(clock: Clock, fd: int) -> None:
    """PER-14: once a sync was slow, those that follow are waited for side by side."""
    meeting = threading.Barrier(3, timeout=20)

    def slow(fd: int) -> None:
        clock.now += 2 * SLOW

    def meet(fd: int) -> None:
        meeting.wait()  # breaks, and fails the test, unless three syncs are under way at once

    async with served(clock) as worker:
        await worker.run(job(Files(fdatasync=slow), fd))
        jobs = [job(Files(fdatasync=meet), fd) for _ in range(3)]
        await run_all(worker, jobs)
    assert all(one.done.is_set() for one in jobs)


async def test_a_quick_disk_needs_one_thread(clock: Clock, fd: int) -> None:
    threads: set[int] = set()

    def sync(fd: int) -> None:
        threads.add(threading.get_ident())

    async with served(clock) as worker:
        for _ in range(3):
            await run_all(worker, [job(Files(fdatasync=sync), fd) for _ in range(10)])
    assert len(threads) == 1


async def test_what_comes_while_a_sync_hangs_does_not_wait_for_it(clock: Clock, fd: int) -> None:
    gate, started = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang(fd: int) -> None:
        token.run_sync_soon(started.set)
        gate.wait(20)

    async with served(clock) as worker, trio.open_nursery() as nursery:
        hanging = job(Files(fdatasync=hang), fd)
        nursery.start_soon(worker.run, hanging)
        await started.wait()
        clock.now += 2 * STUCK
        await worker.run(job(Files(), fd))
        assert not hanging.done.is_set()
        gate.set()


async def test_what_was_asked_for_before_the_end_is_done(clock: Clock, fd: int) -> None:
    """PER-14: the worker ends when everything that it was given has ended."""
    worker = SyncWorker(clock)
    jobs = [job(Files(), fd) for _ in range(5)]
    async with trio.open_nursery() as waiters, trio.open_nursery() as nursery:
        await nursery.start(worker.serve)
        await trio.testing.wait_all_tasks_blocked()
        for one in jobs:
            waiters.start_soon(worker.run, one)
        # The jobs are asked for in the round of the loop in which the worker is cancelled.
        waiters.start_soon(_call, nursery.cancel_scope.cancel)
    assert all(one.ran and one.done.is_set() for one in jobs)


async def _call(fn: Callable[[], object]) -> None:
    fn()


async def test_a_cancelled_wait_leaves_the_sync_to_its_end(clock: Clock, fd: int) -> None:
    """PER-14: nobody waits any more, and it is done all the same."""
    async with served(clock) as worker:
        one = job(Files(), fd)
        with trio.CancelScope() as scope:
            scope.cancel()
            await worker.run(one)
        assert scope.cancelled_caught
        await one.done.wait()
    assert one.ran
