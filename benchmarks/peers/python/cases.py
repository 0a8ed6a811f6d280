"""The cases, for any peer written in Python: it only says how an agent is made, how a turn is run, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Protocol

from benchmarks.worker import Growth, Round, about, converse, resident_kib

TEXT = "hello there"
"""What is said to every agent of every subject."""


class Agent(Protocol):
    """A conversation that keeps its history."""

    async def turn(self) -> None:
        """Say `TEXT` and wait for the answer."""
        ...

    async def close(self) -> None:
        """Let go of what the peer keeps for it."""
        ...


class Peer(Protocol):
    """How a peer is used, as its documentation shows it."""

    packages: tuple[str, ...]

    async def make(self, *, tool: bool = False, durable: bool = False) -> Agent:
        """A new agent. The model answers `ok`; with `tool` it first calls `echo` with `{"x": "1"}`."""
        ...

    def durably(self, directory: str) -> contextlib.AbstractAsyncContextManager[None]:
        """While it lasts, durable agents are kept below the directory."""
        ...


async def create_dispose(peer: Peer, run: Round, *, agents: int) -> None:
    with run.span("create_dispose", agents):
        for _ in range(agents):
            await (await peer.make()).close()


async def create_turn_dispose(peer: Peer, run: Round, *, agents: int) -> None:
    with run.span("create_turn_dispose", agents):
        for _ in range(agents):
            agent = await peer.make()
            await agent.turn()
            await agent.close()


async def growth(peer: Peer, run: Round, *, turns: int, windows: dict[str, str]) -> None:
    warm = await peer.make()
    for _ in range(20):
        await warm.turn()
    agent = await peer.make()
    marks = Growth(run, {int(last): metric for last, metric in windows.items()})
    for number in range(1, turns + 1):
        await agent.turn()
        marks.turn(number)
    await agent.close()


async def _all(group: list[Agent], turns: int) -> None:
    async def go(agent: Agent) -> None:
        for _ in range(turns):
            await agent.turn()

    await asyncio.gather(*[go(agent) for agent in group])


async def _crowd(peer: Peer, run: Round, metric: str, agents: int, turns: int, **kind: bool) -> None:
    group = [await peer.make(**kind) for _ in range(agents)]
    with run.span(metric, agents * turns):
        await _all(group, turns)
    for agent in group:
        await agent.close()


async def crowd(peer: Peer, run: Round, *, agents: int, turns: int) -> None:
    await _crowd(peer, run, "turn", agents, turns)


async def tools(peer: Peer, run: Round, *, agents: int, turns: int) -> None:
    await _crowd(peer, run, "tool_turn", agents, turns, tool=True)


@contextlib.asynccontextmanager
async def _kept(peer: Peer) -> AsyncIterator[None]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ["BENCH_SCRATCH"]) as directory:
        async with peer.durably(directory):
            yield


async def durable(peer: Peer, run: Round, *, turns: int) -> None:
    async with _kept(peer):
        await _crowd(peer, run, "synced", 1, turns, durable=True)


async def durable_crowd(peer: Peer, run: Round, *, agents: int, turns: int) -> None:
    async with _kept(peer):
        await _crowd(peer, run, "synced", agents, turns, durable=True)


async def memory_idle(peer: Peer, run: Round, *, agents: int) -> None:
    warm = await peer.make()
    await warm.turn()
    kept: list[Agent] = []
    before = resident_kib()
    for _ in range(agents):
        kept.append(await peer.make())  # noqa: PERF401 - one at a time, as an application would
    run.value("resident_bytes", (resident_kib() - before) * 1024 / agents)


FUNCTIONS = {
    fn.__name__: fn
    for fn in (
        create_dispose,
        create_turn_dispose,
        growth,
        crowd,
        tools,
        durable,
        durable_crowd,
        memory_idle,
    )
}


def main(peer: Peer) -> None:
    """Be the measured process of a peer."""

    def run(case: str, params: dict[str, Any]) -> Round:
        made = Round()
        asyncio.run(FUNCTIONS[case](peer, made, **params))
        return made

    converse(run, None, about(*peer.packages))
