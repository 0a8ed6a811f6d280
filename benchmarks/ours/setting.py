"""What the scenarios share: models that answer at once, stores that may be counted, agents in numbers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Literal

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from benchmarks.counting import Tally
from benchmarks.subjects import scratch_place
from trio_agents.models import ModelAdapter, ModelRequest, Reply, ScriptedModel
from trio_agents.storage import Files
from trio_agents.values import COMPLETED, Finish, Stop, TextDelta, ToolResultBlock

TEXT: Final = "hello there"
"""What is said to every agent of every subject."""

OPTIONS: Final = ta.AgentOptions(model="scripted/m")

OK: Final = Reply.chunks([TextDelta(index=0, text="ok"), Finish(reason=Stop())])
"""The least answer: one piece of text, and the end. So says every peer's model."""

SLOW_SYNC: Final = 0.5
"""Seconds that the slow disk takes for a sync."""


@ta.tool
async def echo(x: str) -> str:
    """Give back what it got."""
    return x


CALL: Final = Reply.tool_call("echo", {"x": "1"})


def call_then_text(request: ModelRequest) -> Reply:
    """Ask for the tool once, then answer."""
    last = request.messages[-1].content[-1]
    return OK if isinstance(last, ToolResultBlock) else CALL


def model(script: object = OK) -> ScriptedModel:
    """A model that looks at nothing and keeps nothing: its own cost is not what is measured."""
    return ScriptedModel(script, strict=False, record=False)  # type: ignore[arg-type]


@attrs.frozen(kw_only=True)
class Waste:
    """Something added to every runtime and store, to see whether the figures show it."""

    on_open: Callable[[ta.Runtime], object] = lambda runtime: None
    store: dict[str, Any] = attrs.field(factory=dict)


_wasted: Final[list[Waste]] = []


@contextmanager
def wasting(waste: Waste) -> Iterator[None]:
    """While it lasts, every runtime opened here has this waste in it."""
    _wasted.append(waste)
    try:
        yield
    finally:
        _wasted.remove(waste)


def scratch() -> str:
    """Where files go."""
    return str(scratch_place())


@contextmanager
def directory() -> Iterator[str]:
    """A fresh directory, removed in the end."""
    made = tempfile.mkdtemp(prefix="bench-", dir=scratch())
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def slow_files() -> Files:
    """A disk that takes half a second to sync."""

    def slow(fd: int) -> None:
        import time

        time.sleep(SLOW_SYNC)  # in one of the store's threads

    return attrs.evolve(Files(), fsync=slow, fdatasync=slow)


@asynccontextmanager
async def opened(
    tier: Literal["memory", "written", "synced"] = "memory",
    *,
    script: object = OK,
    adapter: ModelAdapter | None = None,
    tally: Tally | None = None,
    files: Files | None = None,
    root: str | None = None,
) -> AsyncIterator[ta.Runtime]:
    """A runtime over a store of this durability; a scripted model answers, unless there is another adapter."""
    models = [model(script) if adapter is None else adapter]
    if tier == "memory":
        async with ta.open_runtime(models=models) as runtime:
            for waste in _wasted:
                waste.on_open(runtime)
            yield runtime
        return
    with directory() as made:
        used = files or (tally.files() if tally else Files())
        more = {name: value for waste in _wasted for name, value in waste.store.items()}
        store = ta.JsonlStore(root or made, durability=tier, files=used, **more)
        async with ta.open_runtime(store=store, models=models) as runtime:
            for waste in _wasted:
                waste.on_open(runtime)
            yield runtime


async def turn(agent: ta.Agent) -> None:
    """Wake, run one turn, become idle."""
    agent.followup(TEXT)
    await agent.when_idle()


def check(agent: ta.Agent, events: int | None = None) -> None:
    """Refuse figures of work that was not done: the last turn completed, with so many events."""
    log = agent.session.events
    last = log[-1]
    if last.type != "turn/end" or last.data.reason != COMPLETED:
        raise RuntimeError(f"the measured turns did not complete; the log ends with {last.data!r}")
    if events is not None and len(log) != events:
        raise RuntimeError(f"the log has {len(log)} events; {events} are the work that all subjects do")


async def many(owner: ta.Scope, count: int) -> list[ta.Agent]:
    """Agents owned by a scope."""
    return [(await owner.agents.create(options=OPTIONS)).agent for _ in range(count)]


async def all_at_once(agents: list[ta.Agent], turns: int) -> None:
    """Each agent runs its turns, all agents together."""

    async def run(agent: ta.Agent) -> None:
        for _ in range(turns):
            await turn(agent)

    async with trio.open_nursery() as nursery:
        for agent in agents:
            nursery.start_soon(run, agent)


async def mid_stream(owner: ta.Scope, count: int) -> list[ta.Agent]:
    """Agents whose model has begun to answer and goes on for ever."""
    agents = await many(owner, count)
    for agent in agents:
        agent.followup(TEXT)
    await wait_all_tasks_blocked()
    return agents
