"""What runs inside a measured process: spans, samples, and the conversation with the runner.

Standard library only: the processes of peers, which have environments of their own, import it too.

A worker is started as `python -m MODULE CASE PARAMS`. It says that it is ready and what it is made of; then it answers
each line `run` or `count` with one line of JSON, and ends with its input.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any


class Span:
    """Measures its block: wall time, CPU time of the process (all threads), and the counts of the tally."""

    def __init__(self, round: Round, metric: str, ops: int, events: int | None) -> None:
        self._round = round
        self._metric = metric
        self.ops = ops
        self.events = events

    def __enter__(self) -> Span:
        gc.collect()
        self._before = self._round.tally()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu
        if kind is None:
            after = self._round.tally()
            counts = {name: after[name] - self._before[name] for name in after}
            self._round.samples.append(
                {
                    "metric": self._metric,
                    "ops": self.ops,
                    "wall": wall,
                    "cpu": cpu,
                    "events": self.events,
                    "counts": counts,
                }
            )


class Round:
    """One round of one case: what it measured."""

    def __init__(self, tally: Callable[[], dict[str, int]] | None = None) -> None:
        self.tally = tally or dict
        self.counting = tally is not None
        self.samples: list[dict[str, Any]] = []
        self.values: dict[str, float] = {}
        self.series: dict[str, list[Any]] = {}

    def span(self, metric: str, ops: int, *, events: int | None = None) -> Span:
        """Measure a block that performs `ops` operations. Garbage is collected before it, not in it."""
        return Span(self, metric, ops, events)

    def value(self, metric: str, value: float) -> None:
        """Report a figure that is no time."""
        self.values[metric] = value

    def add(self, series: str, value: object) -> None:
        """Add a point to a series."""
        self.series.setdefault(series, []).append(value)


class Growth:
    """Marks windows of turns: the cost of each 100, of which some are metrics of their own."""

    def __init__(self, round: Round, windows: dict[int, str]) -> None:
        self._round = round
        self._windows = windows  # the last turn of a window -> its metric
        self._mark()

    def _mark(self) -> None:
        self._at = time.perf_counter(), time.process_time()

    def turn(self, number: int) -> None:
        """Turn `number` is over."""
        if number % 100:
            return
        wall, cpu = time.perf_counter() - self._at[0], time.process_time() - self._at[1]
        metric = self._windows.get(number)
        if metric is not None:
            self._round.samples.append(
                {"metric": metric, "ops": 100, "wall": wall, "cpu": cpu, "events": None, "counts": {}}
            )
        self._round.add("growth", [number, cpu / 100])
        self._mark()


def resident_kib() -> float:
    """Resident memory of this process, after a collection."""
    gc.collect()
    gc.collect()
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1024
    except OSError:  # not Linux: the peak is all there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)


def about(*packages: str) -> dict[str, str]:
    """Interpreter and versions."""
    found = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def converse(
    run: Callable[[str, dict[str, Any]], Round],
    count: Callable[[str, dict[str, Any]], Round] | None,
    versions: dict[str, str],
) -> None:
    """Answer the runner until its lines end."""
    # What a library prints must not be taken for an answer.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    case, params = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps({"ready": True, "about": versions}), file=out)
    for line in sys.stdin:
        made = (count or run)(case, params) if line.strip() == "count" else run(case, params)
        print(
            json.dumps({"samples": made.samples, "values": made.values, "series": made.series}),
            file=out,
        )
