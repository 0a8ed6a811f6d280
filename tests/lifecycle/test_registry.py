"""Who is live: REG."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.stage import OPTIONS, Recorder, runtime, shows, stored
from trio_agents.agent._scope import new_scope


def twin(agent, *, id: str | None = None):
    """An agent of another loop: an id, a session, a scope."""
    return SimpleNamespace(id=id or agent.id, session=agent.session, scope=agent.scope)


class Bench:
    """A runtime with an agent of nobody's, to be entered by hand."""

    def __init__(self, rt) -> None:
        self.rt = rt
        self.recorder = Recorder(rt.scope)
        self.scope = new_scope("stranger", rt.scope)
        self.agent = self.another()

    def another(self, id: str = "x") -> Any:
        return SimpleNamespace(id=id, session=SimpleNamespace(id=id), scope=self.scope)


async def test_enter_and_announce() -> None:
    """REG-1: enter emits nothing and shows the agent at once; announce emits once, the entry being there."""
    async with runtime() as rt:
        bench = Bench(rt)
        with trio.testing.assert_no_checkpoints():
            rt.agents.enter(bench.agent)
            assert bench.recorder.take() == []
            found: Any = rt.agents.get("x")
            assert found is bench.agent
            assert rt.agents.list() == [bench.agent]
            rt.scope.on(
                ta.AgentCreated, lambda told: bench.recorder.add(str(rt.agents.get("x") is told.agent))
            )
            rt.agents.announce(bench.agent)
        assert bench.recorder.take() == ["agent/created x", "True"]


async def test_a_detach_removes_its_own_entry() -> None:
    """REG-2: not the successor under the same id; a second detach is silent."""
    async with runtime() as rt:
        bench = Bench(rt)
        detach = rt.agents.register(bench.agent)
        detach()
        successor = bench.another()
        rt.agents.register(successor)
        bench.recorder.take()
        detach()
        assert rt.agents.get("x") is successor
        assert bench.recorder.take() == []


async def test_old_capabilities_do_not_touch_the_successor() -> None:
    """REG-2, REG-11: an old handle's dispose, an old token: the new agent of the same id is untouched."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        old = await rt.agents.create("a")
        token = old.agent.owner_token
        assert token == old.agent.owner_token
        await old.dispose()
        new = await rt.agents.create("a")
        recorder.take()
        await old.dispose()
        old.dispose_soon()
        await trio.testing.wait_all_tasks_blocked()
        assert recorder.take() == []
        assert rt.agents.get("a") is new.agent
        assert new.agent.owner_token != token
        assert len({token, old.agent.owner_token, new.agent.owner_token}) == 2


@pytest.mark.parametrize("late", ["tells", "raises"])
async def test_a_detach_inside_created_waits(late: str) -> None:
    """REG-3: later listeners still find the entry; then it is gone and `agent/disposed` fires once."""
    async with runtime() as rt:
        bench = Bench(rt)
        detach = rt.agents.enter(bench.agent)

        def early(told):
            detach()
            detach()

        def later(told):
            bench.recorder.add(f"found {rt.agents.get('x') is bench.agent}")
            if late == "raises":
                raise LookupError("veto")

        rt.scope.on(ta.AgentCreated, early)
        rt.scope.on(ta.AgentCreated, later)
        if late == "raises":
            with pytest.raises(LookupError, match="veto"):
                rt.agents.announce(bench.agent)
        else:
            rt.agents.announce(bench.agent)
        assert bench.recorder.take() == ["agent/created x", "found True", "agent/disposed x"]
        assert rt.agents.get("x") is None


async def test_a_veto() -> None:
    """REG-4: `register` raises that very exception, the entry is gone, the listeners hear `agent/disposed`."""
    async with runtime() as rt:
        bench = Bench(rt)
        veto = LookupError("no")

        def refuse(told):
            raise veto

        undo = rt.scope.on(ta.AgentCreated, refuse)
        with pytest.raises(LookupError) as caught:
            rt.agents.register(bench.agent)
        assert caught.value is veto
        assert bench.recorder.take() == ["agent/created x", "agent/disposed x"]
        assert rt.agents.get("x") is None
        undo()
        rt.agents.enter(bench.agent)()
        assert bench.recorder.take() == []


async def test_a_second_agent_under_a_live_id() -> None:
    """REG-5: "already registered", the first untouched; ids of agent and session must be equal."""
    async with runtime() as rt:
        bench = Bench(rt)
        rt.agents.register(bench.agent)
        bench.recorder.take()
        with pytest.raises(ta.AgentExistsError, match="already registered"):
            rt.agents.enter(bench.another())
        assert rt.agents.get("x") is bench.agent
        odd = SimpleNamespace(id="one", session=SimpleNamespace(id="two"), scope=bench.scope)
        with pytest.raises(ta.UsageError, match=r"'one'.*'two'"):
            rt.agents.enter(odd)
        assert bench.recorder.take() == []


async def test_announced_twice_or_not_live() -> None:
    """REG-6: "already announced" or "not live", and nothing is told."""
    async with runtime() as rt:
        bench = Bench(rt)
        with pytest.raises(ta.UsageError, match="not live"):
            rt.agents.announce(bench.agent)
        detach = rt.agents.enter(bench.agent)
        with pytest.raises(ta.UsageError, match="not live"):
            rt.agents.announce(bench.another())
        again: list[str] = []

        def reentrant(told):
            with pytest.raises(ta.UsageError, match="already announced"):
                rt.agents.announce(bench.agent)
            again.append("refused")

        rt.scope.on(ta.AgentCreated, reentrant)
        rt.agents.announce(bench.agent)
        with pytest.raises(ta.UsageError, match="already announced"):
            rt.agents.announce(bench.agent)
        assert again == ["refused"]
        assert bench.recorder.take() == ["agent/created x"]
        detach()
        bench.recorder.take()
        with pytest.raises(ta.UsageError, match="not live"):
            rt.agents.announce(bench.agent)
        assert bench.recorder.take() == []


async def test_is_owned_by() -> None:
    """REG-7: only while the child is live and only for the exact parent in whose scope it was created."""
    async with runtime() as rt:
        parent = await rt.agents.create("parent")
        child = await parent.agent.scope.agents.create("child")
        grandchild = await child.agent.scope.agents.create("grandchild")
        owned = rt.agents.is_owned_by
        assert owned(child.agent, parent.agent)
        assert owned("child", "parent")
        assert not owned(parent.agent, child.agent)
        assert not owned(grandchild.agent, parent.agent)
        assert not owned(child.agent, child.agent)
        assert not owned("nobody", "parent")
        assert not owned("child", "nobody")
        async with parent.agent.scope.open_child("nested") as nested:
            inner = await nested.agents.create("inner")
            assert owned(inner.agent, parent.agent)
        await child.dispose()
        assert not owned(child.agent, parent.agent)
        old = parent.agent
        await parent.dispose()
        again = await rt.agents.create("parent")
        late = await again.agent.scope.agents.create("late")
        assert owned(late.agent, again.agent)
        assert not owned(late.agent, old)


async def test_roots_and_snapshots() -> None:
    """REG-8: agents that no live agent owns; a resumed fork is a root; snapshots in order of registration."""
    store = ta.MemoryStore()
    await stored(store, "origin")
    async with runtime(store=store) as rt:
        async with rt.open_agent("origin", mode="resume") as origin:
            fork = await origin.session.fork(id="fork")
        parent = await rt.agents.create("parent")
        child = await parent.agent.scope.agents.create("child")
        forked = await rt.agents.resume(fork)
        assert forked.agent.session.header.parent_session == "origin"
        agents = [parent.agent, child.agent, forked.agent]
        listed, roots = rt.agents.list(), rt.agents.roots()
        assert listed == agents
        assert roots == [parent.agent, forked.agent]
        await parent.dispose()
        assert (listed, roots) == (agents, [parent.agent, forked.agent])
        assert rt.agents.list() == rt.agents.roots() == [forked.agent]


async def test_inside_disposed() -> None:
    """REG-9: `agents.get` finds nothing while `sessions.get` still returns the session."""
    async with runtime() as rt:
        seen = []
        handle = await rt.agents.create("a")
        rt.scope.on(ta.AgentDisposed, lambda told: seen.append(shows(rt)))
        rt.scope.on(ta.SessionDisposed, lambda told: seen.append(shows(rt)))
        await handle.dispose()
        assert seen == ["session", "nothing"]


async def test_the_factory_slot() -> None:
    """REG-10: without a factory create and resume raise; a second is refused; its owner's close empties the slot."""
    async with runtime() as rt:
        owners = []

        class Factory:
            async def create(self, owner, session_id, **options):
                owners.append(owner)
                await trio.lowlevel.checkpoint()

            async def resume(self, owner, session_id, **options):
                owners.append(owner)
                await trio.lowlevel.checkpoint()

        with pytest.raises(ta.UsageError, match="already set"):
            rt.agents.set_factory(Factory())
        rt.scope._core.factory = None
        for call in (rt.agents.create, rt.agents.resume):
            with pytest.raises(ta.UsageError, match="factory"):
                await call("a")
        async with rt.scope.open_child("slot") as slot, rt.scope.open_child("caller") as caller:
            slot.agents.set_factory(Factory())
            await caller.agents.create("a")
            await caller.agents.resume("a")
            assert owners == [caller, caller]
        with pytest.raises(ta.UsageError, match="factory"):
            await rt.agents.create("a")
        undo = rt.agents.set_factory(Factory())
        undo()
        undo()
        rt.agents.set_factory(rt.loop)
        undo()
        await rt.agents.create("a")


async def test_looking_up_gives_no_power() -> None:
    """REG-12: only the handle, the owner scope and the factory end an agent."""
    async with runtime() as rt:
        await rt.agents.create("a")
        agent = rt.agents.get("a")
        public = {name for name in dir(agent) if not name.startswith("_")}
        assert not public & {"dispose", "dispose_soon", "aclose", "close", "detach", "handle"}
        assert "dispose" in dir(ta.AgentHandle)


@pytest.mark.parametrize("act", ["deliver", "register", "announce", "detach", "publish"])
def test_an_interrupt_never_lands_in_a_section(act: str) -> None:
    """REG-13: raised at the next checkpoint, when write, projection and notification are over."""
    seen: list[str] = []
    store = ta.MemoryStore()

    async def main() -> None:
        async with runtime(store=store) as rt:
            recorder = Recorder(rt.scope)
            handle = await rt.agents.create("a", options=OPTIONS)
            bench = SimpleNamespace(id="x", session=SimpleNamespace(id="x"), scope=handle.agent.scope)

            def interrupt(told):
                signal.raise_signal(signal.SIGINT)
                seen.append("listener went on")

            hook = {"deliver": ta.InboxInserted, "detach": ta.AgentDisposed, "publish": ta.SessionCreated}
            detach = rt.agents.register(bench) if act == "detach" else lambda: None
            rt.scope.on(hook.get(act, ta.AgentCreated), interrupt)
            rt.scope.on(hook.get(act, ta.AgentCreated), lambda told: seen.append("later listener"))
            if act == "deliver":
                handle.agent.inject("whole")
                seen.append(str(len(handle.agent.inbox.next_step)))
            elif act == "register":
                rt.agents.register(bench)
            elif act == "announce":
                rt.agents.enter(bench)
                rt.agents.announce(bench)
            elif act == "detach":
                detach()
            else:
                await rt.agents.create("b")
                seen.append(shows(rt, "b"))
            recorder.add("section over")

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert seen[:2] == ["listener went on", "later listener"]
    if act in {"deliver", "publish"}:
        assert seen[2] == {"deliver": "1", "publish": "agent+session"}[act]


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_the_runtime_ends(times: int) -> None:
    """REG-13, DIS-14: the end goes on, and the interrupt is raised when it is over; a second one cancels the rest."""
    seen: list[str] = []
    store = ta.MemoryStore()

    @trio.lowlevel.enable_ki_protection  # so that it is raised in the main task
    async def cleanup() -> None:
        try:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
                for _ in range(5):
                    await trio.lowlevel.checkpoint()
            seen.append("clean-up over")
        except trio.Cancelled:
            seen.append("clean-up cancelled")
            raise

    async def main() -> None:
        async with runtime(store=store) as rt:
            rt.scope.on(ta.SessionDisposed, lambda told: seen.append("session/disposed"))
            handle = await rt.agents.create("a", options=OPTIONS)
            handle.agent.scope.callback(cleanup)
            handle.agent.inject("kept")

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert seen == [{1: "clean-up over", 2: "clean-up cancelled"}[times], "session/disposed"]
    store.check_free("b")


async def test_the_depth_of_ownership() -> None:
    """REG-14: 64 agents deep is fine, the next is refused, and the top still closes all of them."""
    async with runtime() as rt:
        handles = [await rt.agents.create("1")]
        for number in range(2, 65):
            handles.append(await handles[-1].agent.scope.agents.create(str(number)))
        with pytest.raises(ta.UsageError, match="64"):
            await handles[-1].agent.scope.agents.create("65")
        assert rt.agents.get("65") is None
        recorder = Recorder(rt.scope)
        await handles[0].dispose()
        assert recorder.take() == [
            f"{what}/disposed {number}" for number in range(64, 0, -1) for what in ("agent", "session")
        ]
