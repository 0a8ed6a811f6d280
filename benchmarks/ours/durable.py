"""Logs on a disk: appends, turns, resumes, and whether a slow disk is felt."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Literal, final

import msgspec
import trio

import trio_agents as ta
from benchmarks.counting import Stalls, Tally
from benchmarks.worker import Round
from trio_agents.models import Reply
from trio_agents.session import Payload

from .setting import OPTIONS, all_at_once, check, directory, many, opened, slow_files, turn


@final
@ta.register_event
class Note(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """An event of about the size of a chunk."""

    wire_type = "bench/note"
    ignorable = True
    turn: int
    step: int
    text: str


NOTE: Final = Note(turn=1, step=1, text="ok")


async def append(
    run: Round, tally: Tally | None, *, events: int, tiers: list[Literal["memory", "written", "synced"]]
) -> None:
    for tier in tiers:
        async with opened(tier, tally=tally) as runtime, runtime.open_agent(options=OPTIONS) as agent:
            session = agent.session
            for metric, count in (("", 200), (tier, events)):
                with run.span(metric, count):
                    for _ in range(count):
                        session.append(NOTE)


async def durable(run: Round, tally: Tally | None, *, turns: int) -> None:
    """The same turns in memory and in each tier, in turn, so that their differences can be taken."""
    tiers: list[Literal["memory", "written", "synced"]] = ["memory", "written", "synced"]
    for tier in tiers:
        async with opened(tier, tally=tally) as runtime, runtime.open_agent(options=OPTIONS) as agent:
            for _ in range(10):
                await turn(agent)
            before = len(agent.session.events)
            with run.span(tier, turns) as span:
                for _ in range(turns):
                    await turn(agent)
                span.events = len(agent.session.events) - before
            check(agent)


async def stream(run: Round, tally: Tally | None, *, turns: int, pieces: int) -> None:
    """Long answers, written: neighbouring chunks wait for one another and become one row."""
    long = Reply.text(*["piece of text "] * pieces)
    opening = opened("written", script=long, tally=tally)
    async with opening as runtime, runtime.open_agent(options=OPTIONS) as agent:
        await turn(agent)
        with run.span("chunk", turns * pieces):
            for _ in range(turns):
                await turn(agent)
        check(agent)


async def durable_crowd(run: Round, tally: Tally | None, *, agents: int, turns: int) -> None:
    tiers: list[Literal["written", "synced"]] = ["written", "synced"]
    for tier in tiers:
        async with opened(tier, tally=tally) as runtime:
            await all_at_once(await many(runtime.scope, 5), 2)
            group = await many(runtime.scope, agents)
            with run.span(tier, agents * turns):
                await all_at_once(group, turns)
            check(group[-1])


async def durable_create(run: Round, tally: Tally | None, *, agents: int) -> None:
    async with opened("synced", tally=tally) as runtime:
        for metric, count in (("", 5), ("create_turn_dispose", agents)):
            with run.span(metric, count):
                for _ in range(count):
                    handle = await runtime.agents.create(options=OPTIONS)
                    await turn(handle.agent)
                    check(handle.agent)
                    await handle.dispose()


async def resume(run: Round, tally: Tally | None, *, root: str, sizes: list[int]) -> None:
    for size in sizes:
        with directory() as copy:
            shutil.copytree(Path(root, str(size)), copy, dirs_exist_ok=True)
            async with opened("written", root=copy, tally=tally) as runtime:
                with run.span(f"resume_{size}", 1):
                    stalls = Stalls()
                    trio.lowlevel.add_instrument(stalls)
                    handle = await runtime.agents.resume("resume-me", options=OPTIONS)
                    trio.lowlevel.remove_instrument(stalls)
                run.value(f"stall_{size}", max(stalls.seconds))
                await turn(handle.agent)
                check(handle.agent)


async def make_logs(root: str, sizes: list[int]) -> None:
    """Write the logs that are resumed, ten events a turn, unless they are there."""
    for size in sizes:
        place = Path(root, str(size))
        if place.exists():  # noqa: ASYNC240 - nothing else runs here
            continue
        made = f"{place}.tmp"
        shutil.rmtree(made, ignore_errors=True)
        async with opened("written", root=made) as runtime:
            handle = await runtime.agents.create("resume-me", options=OPTIONS)
            while len(handle.agent.session.events) + 10 <= size:
                await turn(handle.agent)
            check(handle.agent)
            await handle.dispose()
        Path(made).rename(place)  # noqa: ASYNC240 - likewise


async def stall(run: Round, tally: Tally | None, *, agents: int, turns: int) -> None:
    """The longest time for which the loop did not come round: on this disk, and with syncs that take half a second."""
    for metric, files in (("ordinary", None), ("longest", slow_files())):
        stalls = Stalls()
        async with opened("synced", files=files) as runtime:
            group = await many(runtime.scope, agents)
            trio.lowlevel.add_instrument(stalls)
            await all_at_once(group, turns)
            trio.lowlevel.remove_instrument(stalls)
            check(group[-1])
        run.value(metric, max(stalls.seconds))
