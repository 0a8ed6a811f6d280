"""Turns: alone and in a crowd, with a long history, with tools, with streams of many chunks; and the inbox."""

from __future__ import annotations

import time

import trio_agents as ta
from benchmarks.counting import Tally
from benchmarks.worker import Growth, Round
from trio_agents.models import Reply

from .setting import OPTIONS, TEXT, all_at_once, call_then_text, check, echo, many, opened, turn

FIRST_TURN = 12
"""Events of an agent's first turn: those of any turn, the request's header and its context."""

TURN = 10
"""Events of a later turn with an answer of two chunks."""


async def growth(run: Round, tally: Tally | None, *, turns: int, windows: dict[str, str]) -> None:
    async with opened() as runtime:
        await all_at_once(await many(runtime.scope, 4), 25)
        async with runtime.open_agent(options=OPTIONS) as agent:
            marks = Growth(run, {int(last): metric for last, metric in windows.items()})
            for number in range(1, turns + 1):
                await turn(agent)
                marks.turn(number)
            check(agent, FIRST_TURN + (turns - 1) * TURN)


async def turns(run: Round, tally: Tally | None, *, turns: int) -> None:
    async with opened() as runtime, runtime.open_agent(options=OPTIONS) as agent:
        for _ in range(20):
            await turn(agent)
        before = len(agent.session.events)
        with run.span("turn", turns) as span:
            for _ in range(turns):
                await turn(agent)
            span.events = len(agent.session.events) - before
        check(agent, FIRST_TURN + (turns + 19) * TURN)


async def crowd(run: Round, tally: Tally | None, *, agents: int, turns: int) -> None:
    async with opened() as runtime:
        await all_at_once(await many(runtime.scope, 10), 5)
        group = await many(runtime.scope, agents)
        with run.span("turn", agents * turns):
            await all_at_once(group, turns)
        check(group[-1], FIRST_TURN + (turns - 1) * TURN)


async def tools(run: Round, tally: Tally | None, *, agents: int, turns: int) -> None:
    async with opened(script=call_then_text) as runtime:
        runtime.tools.register(echo)
        await all_at_once(await many(runtime.scope, 10), 3)
        group = await many(runtime.scope, agents)
        with run.span("tool_turn", agents * turns) as span:
            await all_at_once(group, turns)
            span.events = sum(len(agent.session.events) for agent in group)
        check(group[-1])


async def chunks(run: Round, tally: Tally | None, *, turns: int, pieces: int) -> None:
    """What each chunk of an answer adds: long answers against short ones."""
    long = Reply.text(*["piece of text "] * pieces)
    async with opened(script=long) as runtime, runtime.open_agent(options=OPTIONS) as agent:
        await turn(agent)
        with run.span("chunk", turns * pieces):
            for _ in range(turns):
                await turn(agent)
        check(agent)


async def latency(run: Round, tally: Tally | None, *, asks: int) -> None:
    async with opened() as runtime, runtime.open_agent(options=OPTIONS) as agent:
        for _ in range(20):
            await agent.ask(TEXT)
        with run.span("ask", asks):
            for _ in range(asks):
                start = time.perf_counter()
                await agent.ask(TEXT)
                run.add("ask latency", time.perf_counter() - start)


async def inbox(run: Round, tally: Tally | None, *, pairs: int, depths: list[int]) -> None:
    async with opened() as runtime:
        for depth in depths:
            async with runtime.open_agent(options=OPTIONS) as agent:
                for _ in range(depth):
                    agent.inbox.append(ta.UserMessage.from_text(TEXT), "next-step")
                for metric, count in (("", 50), (f"depth_{depth}", pairs)):
                    with run.span(metric, count):
                        for _ in range(count):
                            message = ta.UserMessage.from_text(TEXT)
                            agent.inbox.append(message, "next-step")
                            agent.inbox.remove(message.id)
                agent.inbox.clear()
