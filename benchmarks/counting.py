"""Counts, which unlike times are the same on every machine: tasks, task steps, writes, syncs, bytes, live objects."""

from __future__ import annotations

import gc
import os
import sys
import time

import attrs
import trio

from trio_agents.storage import Files


class Tally(trio.abc.Instrument):
    """Counts what a Trio program does. Install with `trio.run(..., instruments=[tally])`."""

    def __init__(self) -> None:
        self.tasks = 0
        self.steps = 0
        self.writes = 0
        self.syncs = 0
        self.bytes = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """A task begins."""
        self.tasks += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task runs up to its next checkpoint that yields."""
        self.steps += 1

    def __call__(self) -> dict[str, int]:
        """All counts so far."""
        return {
            "tasks": self.tasks,
            "steps": self.steps,
            "writes": self.writes,
            "syncs": self.syncs,
            "bytes": self.bytes,
        }

    def files(self) -> Files:
        """File functions for a `JsonlStore` that are counted: log writes, and syncs of files and directories."""

        def write(fd: int, data: bytes) -> int:
            self.writes += 1
            done = os.write(fd, data)
            self.bytes += done
            return done

        def fsync(fd: int) -> None:
            self.syncs += 1
            os.fsync(fd)

        def fdatasync(fd: int) -> None:
            self.syncs += 1
            os.fdatasync(fd)

        return attrs.evolve(Files(), write=write, fsync=fsync, fdatasync=fdatasync)


class Stalls(trio.abc.Instrument):
    """How long the loop was busy at a stretch: between two looks at what else is ready."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._since = time.perf_counter()

    def after_io_wait(self, timeout: float) -> None:
        """The loop goes to work."""
        self._since = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """The loop has done what was ready."""
        self.seconds.append(time.perf_counter() - self._since)


def live_objects() -> tuple[int, int]:
    """Allocated memory blocks, and objects that the collector tracks."""
    gc.collect()
    gc.collect()
    return sys.getallocatedblocks(), len(gc.get_objects())
