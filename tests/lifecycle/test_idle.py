"""An idle agent costs next to nothing: memory, tasks, and the time to end a great many."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.stage import MODEL, runtime
from trio_agents.models import Reply, ScriptedModel

MANY = 2000


async def test_the_memory_of_an_idle_agent() -> None:
    """At most 1.5 KiB in all (session, scope, handle, entries, the store's part), and no task."""
    async with runtime() as rt:
        for _ in range(20):
            await rt.agents.create()
        tasks = trio.lowlevel.current_statistics().tasks_living
        gc.collect()
        tracemalloc.start(1)
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(MANY):
                await rt.agents.create()
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / MANY
        finally:
            tracemalloc.stop()
        assert each <= 1536
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_an_agent_that_has_worked_holds_no_task() -> None:
    """A task is there only while there is something to own."""
    async with runtime() as rt:
        tasks = trio.lowlevel.current_statistics().tasks_living
        agents = [(await rt.agents.create(options=ta.AgentOptions(model=MODEL))).agent for _ in range(5)]
        for agent in agents:
            await agent.ask("x")
        assert trio.lowlevel.current_statistics().tasks_living == tasks


@asynccontextmanager
async def _context() -> AsyncIterator[None]:
    await trio.lowlevel.checkpoint()
    yield


@pytest.mark.parametrize("with_context", [False, True])
async def test_an_agent_that_has_ended_waits_for_no_garbage_collector(with_context: bool) -> None:
    """Nothing of it is held in a circle, so it is freed as soon as nobody holds it; nor are its contexts and tasks."""
    # A model that keeps its requests keeps the agents that they can be asked for attachments.
    async with ta.open_runtime(models=[ScriptedModel(Reply.text("ok"), record=False)]) as rt:

        async def live_and_end() -> None:
            async with rt.scope.open_agent(model=MODEL) as agent:
                if with_context:
                    await agent.scope.enter_async_context(_context())
                    agent.scope.start_soon(trio.sleep_forever)
                await agent.ask("x")

        await live_and_end()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await live_and_end()
            gc.collect()
            left = [type(found) for found in gc.garbage if type(found).__module__.startswith("trio_agents")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert left == []


async def test_closing_many_is_linear() -> None:
    """Counted, not timed: each agent is settled once, and there is a checkpoint for every 64."""
    steps = {}
    async with runtime() as rt:
        for count in (640, 6400):
            async with rt.scope.open_child("owner") as owner:
                for _ in range(count):
                    await owner.agents.create()
                before = len(rt.agents.list())
                counter = Steps()
                trio.lowlevel.add_instrument(counter)
                await owner.aclose()
                trio.lowlevel.remove_instrument(counter)
                steps[count] = counter.count
                assert len(rt.agents.list()) == before - count
    assert steps[640] >= 2 * 640 // 64
    assert steps[6400] <= 10 * steps[640] + 10


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
