"""Counts that must not grow unseen: tasks, task steps, writes, syncs, bytes and live objects; never a time.

They are exact, and the table below is as tight as they are: one more of anything fails. Whoever saves something lowers
the table, so that it stays saved; `python -m benchmarks.guard` prints what the counts are now.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import pytest
import trio

import trio_agents as ta
from benchmarks import guard
from benchmarks.ours.setting import Waste, wasting

HELD: dict[tuple[str, str], dict[str, float]] = {
    ("create_dispose", "create_dispose"): {"tasks": 0, "steps": 2},
    ("create_context_dispose", "create_context_dispose"): {"tasks": 2, "steps": 9},
    ("turns", "turn"): {"tasks": 1, "steps": 3, "events": 10},
    ("tools", "tool_turn"): {"tasks": 1.25, "steps": 4.55},
    ("durable", "memory"): {"tasks": 1, "steps": 3, "writes": 0, "syncs": 0, "events": 10},
    ("durable", "written"): {"tasks": 1, "writes": 7, "syncs": 0, "bytes": 1518, "events": 10},
    ("durable", "synced"): {"tasks": 1, "writes": 7, "syncs": 2, "bytes": 1518, "events": 10},
    ("durable_create", "create_turn_dispose"): {"tasks": 1, "writes": 8, "syncs": 4, "bytes": 1848},
    ("stream", "chunk"): {"writes": 0.07, "bytes": 70.89},
    ("append", "written"): {"tasks": 0, "steps": 0, "writes": 1, "bytes": 109},
}
"""At most so many for one operation of a case. Steps are held where no thread has a say in them."""

IDLE_BLOCKS = 13
"""Memory blocks of one idle agent, on CPython 3.11; other versions allocate otherwise."""

grown = "counts have grown; if that is meant, change the table (`python -m benchmarks.guard` prints them)"


def _problems(case: str) -> list[str]:
    made = guard.counted(case)
    problems = []
    for (name, metric), held in HELD.items():
        if name == case:
            found = guard.per_operation(made, metric)
            problems += [
                f"{case}: {count} of one {metric}: {found[count]:g}, at most {value:g}"
                for count, value in held.items()
                if found[count] > value + 0.001
            ]
    return problems


@pytest.mark.parametrize("case", sorted({case for case, _ in HELD}))
def test_counts_of_one_operation(case: str) -> None:
    assert not _problems(case), grown


def _blocks() -> float:
    if (platform.python_implementation(), sys.version_info[:2]) != ("CPython", (3, 11)):
        pytest.skip("memory blocks are counted on CPython 3.11")
    return guard.idle_agent()["blocks"]


def test_an_idle_agent_holds_no_task_and_few_objects() -> None:
    assert round(_blocks()) <= IDLE_BLOCKS, grown
    assert guard.idle_agent()["tasks"] == 0


# --- the guard bites ---------------------------------------------------------------------------------


def test_one_task_more_for_each_turn_is_seen() -> None:
    def on_open(runtime: ta.Runtime) -> None:
        def listener(told: ta.AgentStatusChanged) -> None:
            if told.status == "running":
                runtime.scope.start_soon(trio.lowlevel.checkpoint)

        runtime.scope.on(ta.AgentStatusChanged, listener)

    with wasting(Waste(on_open=on_open)):
        assert "turns: tasks of one turn: 2, at most 1" in _problems("turns")


def test_one_write_for_each_chunk_is_seen() -> None:
    with wasting(Waste(store={"chunk_delay": 0})):
        assert any(problem.startswith("stream: writes of one chunk: 1") for problem in _problems("stream"))


def test_one_object_more_for_each_idle_agent_is_seen() -> None:
    before = _blocks()
    kept: list[Any] = []

    def on_open(runtime: ta.Runtime) -> None:
        def listener(told: ta.AgentCreated) -> None:
            kept.append(object())

        runtime.scope.on(ta.AgentCreated, listener)

    with wasting(Waste(on_open=on_open)):
        assert round(_blocks() - before) == 1


def test_work_that_was_not_done_gives_no_figures() -> None:
    def on_open(runtime: ta.Runtime) -> None:
        async def listener(proposal: ta.PreStep, proceed: Any) -> ta.Reject:
            return ta.Reject()

        runtime.scope.on(ta.PreStep, listener)

    with wasting(Waste(on_open=on_open)), pytest.raises(RuntimeError, match="did not complete"):
        guard.counted("turns")
