"""Create, resume, dispose and open_runtime, cancelled at every step: nothing leaks, the next one works."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.stage import MODEL, runtime, stored
from trio_agents.agent._scope import new_scope
from trio_agents.loop._inside import insiders
from trio_agents.models import Reply, ScriptedModel
from trio_agents.scope._waits import _working
from trio_agents.testing import cancel_sweep, seeded_scheduler

OPTIONS = ta.AgentOptions(model=MODEL, grace=5)
SEEDS = [0, 1, 2]


class Leaks:
    """What must be as before after every run: tasks, owned things, ids, marks, descriptors."""

    def __init__(self, rt: ta.Runtime) -> None:
        self.rt = rt
        self.before = self.now()

    def now(self) -> dict[str, object]:
        """What there is."""
        scope = self.rt.scope
        return {
            "tasks": trio.lowlevel.current_statistics().tasks_living,
            "members": len(scope._members or ()),
            "contributions": len(scope._contributions or ()),
            "lives": len(self.rt.loop.lives),
            "resuming": len(self.rt.loop._resuming),
            "agents": [agent.id for agent in self.rt.agents.list()],
            "sessions": [session.id for session in self.rt.sessions.list()],
            "marks": len(_working),
            "files": files(),
        }

    async def check(self) -> None:
        """Compare; whatever ends in the background may end first."""
        await trio.testing.wait_all_tasks_blocked()
        assert self.now() == self.before


def files() -> int | None:
    """How many descriptors this process has open, where the system tells."""
    try:
        return len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return None


def store_for(kind: str, tmp_path: Path) -> ta.SessionStore:
    """A fresh store."""
    return ta.MemoryStore() if kind == "memory" else ta.JsonlStore(tmp_path, durability="written")


class Context:
    """An async context that takes a step to enter and a step to leave."""

    open = 0

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint()
        Context.open += 1

    async def __aexit__(self, *details: object) -> None:
        Context.open -= 1
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()


async def setup(agent: ta.Agent) -> Callable[[], None]:
    """Of everything a little."""
    await agent.scope.enter_async_context(Context())
    agent.scope.start_soon(trio.sleep_forever)
    agent.scope.callback(trio.lowlevel.checkpoint)
    await agent.scope.agents.create(f"{agent.id} child")
    await trio.lowlevel.checkpoint()
    return lambda: None


def sweep_in_runtime(
    store: ta.SessionStore, scenario: Callable[[ta.Runtime], Callable[[], Any]], seed: int, **more: Any
) -> int:
    """Sweep a scenario inside one runtime."""

    async def main() -> int:
        async with runtime(store=store) as rt:
            leaks = Leaks(rt)

            async def check() -> None:
                await leaks.check()
                assert Context.open == 0

            return await cancel_sweep(scenario(rt), check, seed=seed, **more)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_create_and_dispose(kind: str, seed: int, tmp_path: Path) -> None:
    """PUB-5, PUB-19, DIS-2: whatever the step, the same id can be created again, and it runs a turn."""

    def scenario(rt: ta.Runtime) -> Callable[[], Any]:
        runs = iter(range(10_000))

        async def run() -> None:
            id = f"a{next(runs)}" if kind == "files" else "a"
            handle = None
            try:
                handle = await rt.agents.create(id, setup=setup, options=OPTIONS)
                await trio.lowlevel.checkpoint()
            finally:
                if handle is not None:
                    await handle.aclose()
                with trio.CancelScope(shield=True):
                    async with rt.agents.open(id, options=OPTIONS) as agent:
                        assert agent.status == "idle"

        return run

    assert sweep_in_runtime(store_for(kind, tmp_path), scenario, seed) >= 20


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_resume(kind: str, seed: int, tmp_path: Path) -> None:
    """PUB-16: whatever the step, the lock is released, and the id can be resumed at once."""
    store = store_for(kind, tmp_path)

    async def prepare() -> None:
        await stored(store, "a")

    trio.run(prepare)

    def scenario(rt: ta.Runtime) -> Callable[[], Any]:
        async def run() -> None:
            try:
                async with rt.agents.open("a", mode="resume", setup=setup, options=OPTIONS):
                    await trio.lowlevel.checkpoint()
            finally:
                with trio.CancelScope(shield=True):
                    async with rt.agents.open("a", mode="resume") as agent:
                        assert agent.session.turn == 1

        return run

    # A store with files hands work to threads: its steps are not the same each time, so a few have to do.
    more: dict[str, Any] = {"steps": range(1, 40)} if kind == "files" else {}
    assert sweep_in_runtime(store, scenario, seed, **more) >= 20


@pytest.mark.parametrize("seed", SEEDS)
def test_dispose_of_a_running_agent(seed: int) -> None:
    """DIS-2, DIS-13: a cancelled waiter changes nothing: the end comes all the same, and the log is balanced."""
    store = ta.MemoryStore()

    async def main() -> None:
        models = [ScriptedModel(Reply.text("slow").delayed(100))]
        async with ta.open_runtime(store=store, models=models, plugins=()) as rt:
            leaks = Leaks(rt)
            runs = iter(range(10_000))

            async def scenario() -> None:
                id = f"a{next(runs)}"
                with trio.CancelScope(shield=True):
                    handle = await rt.agents.create(id, setup=setup, options=OPTIONS)
                    handle.agent.followup("go")
                    handle.agent.followup("queued")
                    await trio.testing.wait_all_tasks_blocked()
                try:
                    await handle.dispose()
                finally:
                    with trio.CancelScope(shield=True):
                        await handle.dispose()
                        assert rt.agents.get(id) is None
                        assert (await store.verify(id)).problems == ()
                        assert (await store.inspect(id)).status == "closed"

            assert await cancel_sweep(scenario, leaks.check, seed=seed) >= 20

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_open_runtime(kind: str, seed: int, tmp_path: Path) -> None:
    """DIS-14: whatever the step, no task and no file is left, logs are balanced, and the next runtime opens."""
    store = store_for(kind, tmp_path)
    entered = 0

    async def main() -> int:
        tasks = trio.lowlevel.current_statistics().tasks_living
        open_files = files()
        models = [ScriptedModel(Reply.text("slow").delayed(1))]
        runs = iter(range(10_000))

        async def scenario() -> None:
            nonlocal entered
            id = f"a{next(runs)}"
            async with ta.open_runtime(store=store, models=models, plugins=()) as rt:
                entered += 1
                async with rt.agents.open(id, setup=setup, options=OPTIONS) as agent:
                    agent.followup("go")
                    await agent.when_idle()

        async def check() -> None:
            assert trio.lowlevel.current_statistics().tasks_living == tasks
            assert files() == open_files
            assert Context.open == 0
            async with ta.open_runtime(store=store, models=models, plugins=()) as rt:
                assert rt.agents.list() == []

        more: dict[str, Any] = {"steps": range(1, 90, 2)} if kind == "files" else {}
        return await cancel_sweep(scenario, check, seed=seed, **more)

    runs = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert runs > 30
    assert 0 < entered < runs

    async def verify() -> None:
        summaries = await store.list()
        assert len(summaries) > 5
        for summary in summaries:
            assert summary.status == "closed"
            assert (await store.verify(summary.header.id)).problems == ()

    trio.run(verify)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("who", ["owner", "loop"])
def test_owner_and_loop_close_at_every_step(who: str, seed: int) -> None:
    """PUB-6, PUB-7: a close instead of a cancel: the call ends in one of two ways, and nothing is left."""

    async def main() -> None:
        outcomes: set[str] = set()
        for step in count(1):
            async with runtime() as rt:
                outcome, struck = await create_and_strike(rt, who, step)
                outcomes.add(outcome)
                assert rt.agents.list() == []
                assert rt.sessions.list() == []
                assert rt.loop.lives == []
                assert insiders() == []
                assert Context.open == 0
            if not struck:
                break
        assert outcomes == {"aborted", "created"}

    with seeded_scheduler(seed):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Strike(trio.abc.Instrument):
    """Calls a function after a number of steps of the run."""

    def __init__(self, step: int, fn: Callable[[], object]) -> None:
        self.left = step
        self.fn = fn

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            trio.lowlevel.current_trio_token().run_sync_soon(self.fn)


async def create_and_strike(rt: ta.Runtime, who: str, step: int) -> tuple[str, bool]:
    """Create an agent while owner or loop close after a number of steps; whether it was, and whether they did."""
    owner = new_scope("owner", rt.scope)
    over = False
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:

        def close() -> None:
            if not over:
                nursery.start_soon(owner.aclose if who == "owner" else rt.loop.aclose)

        probe = Strike(step, close)
        trio.lowlevel.add_instrument(probe)
        try:
            handle = await owner.agents.create("a", setup=setup, options=OPTIONS)
        except ta.CreationAbortedError:
            outcome = "aborted"
        else:
            outcome = "created"
            await handle.dispose()
        finally:
            trio.lowlevel.remove_instrument(probe)
            over = True
    await owner.aclose()
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    return outcome, probe.left <= 0
