"""Runs cases: starts the processes of all subjects of a case, and lets them work in turn, round about.

Only one of them works at a time. So a ratio is made of rounds that ran directly after one another, and what slows the
machine for a while slows both of its sides.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import trio

from .cases import OURS, Case
from .figures import figures_of
from .subjects import SUBJECTS, refresh, scratch_place

ROUND_LIMIT: Final = 180
"""Seconds after which a round is given up."""


class WorkerFailed(Exception):
    """A measured process ended without its answer."""


class Worker:
    """A measured process."""

    def __init__(self, subject: str, case: Case, scratch: Path) -> None:
        self.subject = subject
        self.case = case
        self._scratch = scratch
        self.about: dict[str, str] = {}

    async def start(self, nursery: trio.Nursery, params: dict[str, Any]) -> None:
        """Start it, and wait until it is ready."""
        subject = SUBJECTS[self.subject]
        refresh(subject)
        command, cwd = subject.command()
        filled = json.dumps(params).replace("{logs}", str(self._scratch / "logs"))
        env = {**os.environ, "BENCH_SCRATCH": str(self._scratch), "PYTHONHASHSEED": "0"}
        self._errors = self._scratch / f"{self.subject}.log"
        with self._errors.open("wb") as errors:
            start = functools.partial(
                trio.run_process,
                [*command, self.case.name, filled],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
                env=env,
                check=False,
            )
            self._process: trio.Process = await nursery.start(start)
        self._rest = b""
        self.about = (await self._line())["about"]

    async def ask(self, what: str) -> dict[str, Any]:
        """Have it work, and get what it measured."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(what.encode() + b"\n")
            return await self._line()
        except trio.BrokenResourceError:
            raise WorkerFailed(self._why()) from None

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with trio.move_on_after(ROUND_LIMIT):
            while b"\n" not in self._rest:
                more = await self._process.stdout.receive_some()
                if not more:
                    raise WorkerFailed(self._why())
                self._rest += more
            line, _, self._rest = self._rest.partition(b"\n")
            found: dict[str, Any] = json.loads(line)
            return found
        raise WorkerFailed(f"{self.subject} took more than {ROUND_LIMIT} s for a round of {self.case.name}")

    def _why(self) -> str:
        tail = self._errors.read_text("utf-8", "replace").strip().splitlines()[-3:]
        return f"{self.subject} failed in {self.case.name}: " + " / ".join(tail)

    async def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        with trio.move_on_after(5):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()


Progress = Callable[[str], None]


class CaseRun:
    """The rounds of one case."""

    def __init__(
        self, case: Case, subjects: Sequence[str], rounds: int, scratch: Path, progress: Progress
    ) -> None:
        self.case = case
        self.subjects = list(subjects)
        self.rounds = rounds
        self._scratch = scratch
        self._progress = progress
        self.found: dict[str, list[dict[str, Any]]] = {name: [] for name in subjects}
        self.about: dict[str, dict[str, str]] = {}
        self.failed: dict[str, str] = {}
        self.counts: dict[str, dict[str, float]] = {}

    async def go(self) -> None:
        """Run it."""
        async with trio.open_nursery() as nursery:
            workers: dict[str, Worker] = {}
            for number in range(self.rounds):
                for name in self.subjects:
                    if name in self.failed:
                        continue
                    self._progress(f"{self.case.name}: round {number + 1}/{self.rounds}, {name}")
                    try:
                        if name not in workers:
                            workers[name] = await self._start(nursery, name)
                        self.found[name].append(await workers[name].ask("run"))
                        if self.case.fresh:
                            await workers.pop(name).stop()
                    except WorkerFailed as exc:
                        self.failed[name] = str(exc)
            for worker in workers.values():
                await worker.stop()
            if self.case.counted is not None and OURS in self.subjects:
                await self._count(nursery)

    async def _start(self, nursery: trio.Nursery, name: str) -> Worker:
        worker = Worker(name, self.case, self._scratch)
        await worker.start(nursery, self.case.sizes[name])
        self.about[name] = worker.about
        if self.case.warm:
            await worker.ask("run")
        return worker

    async def _count(self, nursery: trio.Nursery) -> None:
        assert self.case.counted is not None
        worker = Worker(OURS, self.case, self._scratch)
        try:
            await worker.start(nursery, self.case.counted)
            self.counts = per_operation((await worker.ask("count"))["samples"])
            await worker.stop()
        except WorkerFailed as exc:
            self.failed.setdefault(OURS, str(exc))


def per_operation(samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The counts of each span, for one operation."""
    return {
        sample["metric"]: {name: value / sample["ops"] for name, value in sample["counts"].items()}
        for sample in samples
        if sample["metric"]
    }


async def run_cases(
    cases: Sequence[Case], subjects: Sequence[str], rounds: Callable[[Case], int], progress: Progress
) -> dict[str, Any]:
    """Run cases; gives figures, counts, series and what the processes were, by case."""
    scratch = scratch_place()
    made: dict[str, Any] = {"figures": {}, "counts": {}, "series": {}, "about": {}, "failed": {}}
    for case in cases:
        taking_part = [name for name in subjects if name in case.sizes]
        if not taking_part:
            continue
        if case.name == "resume":
            progress("resume: writing the logs")
            await _make_logs(scratch, case.sizes[OURS]["sizes"])
        run = CaseRun(case, taking_part, rounds(case), scratch, progress)
        start = time.perf_counter()
        await run.go()
        found = {name: figures_of(case, run.found[name]) for name in taking_part if run.found[name]}
        made["figures"][case.name] = found
        made["counts"][case.name] = run.counts
        made["series"][case.name] = {name: _series(run.found[name]) for name in taking_part}
        made["about"].update(run.about)
        if run.failed:
            made["failed"][case.name] = run.failed
        progress(f"{case.name}: {time.perf_counter() - start:.1f} s")
    return made


async def _make_logs(scratch: Path, sizes: list[int]) -> None:
    code = (
        "import json, sys, trio; from benchmarks.ours.durable import make_logs; "
        "trio.run(make_logs, sys.argv[1], json.loads(sys.argv[2]))"
    )
    command, cwd = SUBJECTS[OURS].command()
    await trio.run_process([command[0], "-c", code, str(scratch / "logs"), json.dumps(sizes)], cwd=cwd)


def _series(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Series of all rounds: points are made medians by their place, plain values are put together."""
    made: dict[str, Any] = {}
    for name in {name for r in rounds for name in r["series"]}:
        runs = [r["series"][name] for r in rounds if name in r["series"]]
        if runs and runs[0] and isinstance(runs[0][0], list):
            made[name] = [
                [points[0][0], statistics.median(point[1] for point in points)]
                for points in zip(*runs, strict=False)
            ]
        else:
            made[name] = sorted(value for run in runs for value in run)
    return made
