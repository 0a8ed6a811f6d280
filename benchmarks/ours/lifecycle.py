"""Creating agents, ending them, cancelling them, and what a live one takes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import median

import trio

import trio_agents as ta
from benchmarks.counting import Tally, live_objects
from benchmarks.worker import Round, resident_kib
from trio_agents.models import Hang, Reply
from trio_agents.values import TextDelta

from .setting import OPTIONS, check, many, mid_stream, opened, turn

ENDLESS = Reply.chunks([TextDelta(index=0, text="ok"), Hang()])


async def create_dispose(run: Round, tally: Tally | None, *, agents: int) -> None:
    async with opened() as runtime:
        for metric, count in (("", 30), ("create_dispose", agents)):
            with run.span(metric, count):
                for _ in range(count):
                    handle = await runtime.agents.create(options=OPTIONS)
                    await handle.dispose()


async def create_dispose_files(run: Round, tally: Tally | None, *, agents: int) -> None:
    async with opened("written", tally=tally) as runtime:
        for metric, count in (("", 30), ("create_dispose", agents)):
            with run.span(metric, count):
                for _ in range(count):
                    handle = await runtime.agents.create(options=OPTIONS)
                    await handle.dispose()


async def create_turn_dispose(run: Round, tally: Tally | None, *, agents: int) -> None:
    async with opened() as runtime:
        for metric, count in (("", 20), ("create_turn_dispose", agents)):
            with run.span(metric, count):
                for _ in range(count):
                    handle = await runtime.agents.create(options=OPTIONS)
                    await turn(handle.agent)
                    check(handle.agent)
                    await handle.dispose()


@asynccontextmanager
async def _context() -> AsyncIterator[None]:
    await trio.lowlevel.checkpoint()
    yield
    await trio.lowlevel.checkpoint()


async def create_context_dispose(run: Round, tally: Tally | None, *, agents: int) -> None:
    async def setup(agent: ta.Agent) -> None:
        await agent.scope.enter_async_context(_context())

    async with opened() as runtime:
        for metric, count in (("", 20), ("create_context_dispose", agents)):
            with run.span(metric, count):
                for _ in range(count):
                    handle = await runtime.agents.create(setup=setup, options=OPTIONS)
                    await handle.dispose()


async def close_idle(run: Round, tally: Tally | None, *, sizes: list[int]) -> None:
    async with opened() as runtime:
        for size in sizes:
            async with runtime.scope.open_child("owner") as owner:
                with run.span(f"create_{size}", size):
                    await many(owner, size)
                with run.span(f"close_{size}", size):
                    await owner.aclose()


async def cancel_to_quiet(run: Round, tally: Tally | None, *, agents: int, single: int) -> None:
    async with opened(script=ENDLESS) as runtime:
        crowd = await mid_stream(runtime.scope, agents)
        with run.span("cancel_to_quiet", agents):
            for agent in crowd:
                agent.cancel()
            for agent in crowd:
                await agent.when_idle()
        async with runtime.scope.open_child("owner") as owner:
            crowd = await mid_stream(owner, agents)
            with run.span("dispose_to_quiet", agents):
                await owner.aclose()
        if run.counting:
            return
        async with runtime.scope.open_agent(options=OPTIONS) as agent:
            for _ in range(single):
                agent.followup("go")
                await trio.testing.wait_all_tasks_blocked()
                start = time.perf_counter()
                agent.cancel()
                await agent.when_idle()
                run.add("cancel latency", time.perf_counter() - start)


async def held_by_idle(run: Round, agents: int, crowds: int) -> None:
    """Memory blocks, collected objects and tasks of each of so many idle agents: the median of some crowds of them.

    What else lives in the process (a thread that ends, a cache that is emptied) disturbs one crowd and not the median.
    """
    async with opened() as runtime:
        await many(runtime.scope, 100)
        tasks = trio.lowlevel.current_statistics().tasks_living
        seen = [live_objects()]
        for _ in range(crowds):
            # The list that keeps them is part of neither figure.
            await many(runtime.scope, agents)
            seen.append(live_objects())
        for name, counts in zip(("blocks", "tracked"), zip(*seen, strict=True), strict=True):
            run.value(name, median((after - before) / agents for before, after in pairwise(counts)))
        run.value("tasks", (trio.lowlevel.current_statistics().tasks_living - tasks) / (agents * crowds))


async def memory_idle(run: Round, tally: Tally | None, *, agents: int) -> None:
    async with opened() as runtime:
        await many(runtime.scope, 100)
        tasks = trio.lowlevel.current_statistics().tasks_living
        blocks, tracked = live_objects()
        resident = resident_kib()
        await many(runtime.scope, agents)
        run.value("resident_bytes", (resident_kib() - resident) * 1024 / agents)
        after = live_objects()
        run.value("blocks", (after[0] - blocks) / agents)
        run.value("tracked", (after[1] - tracked) / agents)
        run.value("tasks", (trio.lowlevel.current_statistics().tasks_living - tasks) / agents)
    run.value("heap_bytes", await _heap(agents))


async def _heap(agents: int) -> float:
    """Bytes that tracemalloc sees for each of so many agents of one runtime.

    From none on: the tables that hold them grow in leaps, so more agents beside those that are there would pay for all.
    """
    async with opened() as runtime:
        await many(runtime.scope, 1)
        tracemalloc.start()
        try:
            live_objects()
            before = tracemalloc.get_traced_memory()[0]
            await many(runtime.scope, agents)
            live_objects()
            return (tracemalloc.get_traced_memory()[0] - before) / agents
        finally:
            tracemalloc.stop()


async def memory_running(run: Round, tally: Tally | None, *, agents: int) -> None:
    async with opened(script=ENDLESS) as runtime:
        await mid_stream(runtime.scope, 50)
        tasks = trio.lowlevel.current_statistics().tasks_living
        blocks = live_objects()[0]
        resident = resident_kib()
        await mid_stream(runtime.scope, agents)
        run.value("resident_bytes", (resident_kib() - resident) * 1024 / agents)
        run.value("blocks", (live_objects()[0] - blocks) / agents)
        run.value("tasks", (trio.lowlevel.current_statistics().tasks_living - tasks) / agents)
