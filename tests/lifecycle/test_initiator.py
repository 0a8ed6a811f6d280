"""On whose behalf code runs: INI."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from tests.lifecycle.stage import OPTIONS, hang, runtime
from trio_agents.models import Gate, Reply, ScriptedModel


def current(rt) -> str | None:
    """The id of the current initiator."""
    agent = rt.agents.current_initiator()
    return None if agent is None else agent.id


async def test_nobody() -> None:
    """INI-1: outside any boundary, and under `without_initiator`, there is none; `require_initiator` raises."""
    async with runtime() as rt:
        handle = await rt.agents.create("a")
        assert current(rt) is None
        with pytest.raises(ta.UsageError, match="no agent initiated"):
            rt.agents.require_initiator()
        with rt.agents.with_initiator(handle.agent):
            assert rt.agents.require_initiator() is handle.agent
            with rt.agents.without_initiator():
                seen = []

                async def task():
                    seen.append(current(rt))

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(task)
                assert seen == [None]
                assert current(rt) is None
                with pytest.raises(ta.UsageError):
                    rt.agents.require_initiator()


async def test_where_it_is_seen() -> None:
    """INI-2: across awaits and in tasks started inside, not in a scope's; boundaries and exceptions restore."""
    async with runtime() as rt:
        a, b = [(await rt.agents.create(id)).agent for id in "ab"]
        seen: list[object] = []

        async def task(*, task_status=trio.TASK_STATUS_IGNORED):
            seen.append(current(rt))
            task_status.started()

        async def context_entered():
            seen.append(current(rt))

        with rt.agents.with_initiator(a):
            await trio.lowlevel.checkpoint()
            assert current(rt) == "a"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(task)
            rt.scope.start_soon(task)
            await rt.scope.start(task)
            await wait_all_tasks_blocked()
            assert seen == ["a", None, None]
            with pytest.raises(LookupError), rt.agents.with_initiator(b):  # noqa: PT012 - the block is the point
                assert current(rt) == "b"
                with rt.agents.without_initiator():
                    assert current(rt) is None
                    raise LookupError
            assert current(rt) == "a"
        assert current(rt) is None


async def test_concurrent_drivers_never_see_each_other() -> None:
    """INI-2, INI-3: each driver runs under its own agent, even when another's driver or a listener woke it."""
    seen: list[tuple[str, str | None]] = []
    gates = {"a": Gate(), "b": Gate()}
    model = ScriptedModel(
        lambda request: (
            Reply.text("ok").gated(gates[request.session_id]) if request.turn == 1 else Reply.text("ok")
        )
    )
    async with ta.open_runtime(models=[model], plugins=()) as rt:
        agents = {id: (await rt.agents.create(id, options=OPTIONS)).agent for id in "ab"}

        async def look(told, proceed):
            seen.append((told.agent.id, current(rt)))
            answer = await proceed()
            seen.append((told.agent.id, current(rt)))
            return answer

        def wake_b(told):
            if told.agent.id == "a" and told.status == "running" and agents["b"].status == "idle":
                agents["b"].followup("woken by a's listener")

        async def stopping(told):
            seen.append((told.agent.id, current(rt)))
            if told.agent.id == "a":
                agents["b"].followup("from a's driver")

        rt.scope.on(ta.PreStep, look)
        rt.scope.on(ta.AgentStatusChanged, wake_b)
        rt.scope.on(ta.TurnStopping, stopping)
        with rt.agents.with_initiator(agents["b"]):
            agents["a"].followup("go")
        for gate in gates.values():
            gate.opened.set()
        for agent in agents.values():
            await agent.when_idle()
        for agent in agents.values():
            await agent.when_idle()
        assert {id for id, _ in seen} == {"a", "b"}
        assert all(id == initiator for id, initiator in seen)


async def test_a_runtime_opened_inside_a_boundary() -> None:
    """INI-1: whoever opens a runtime initiates nothing in it."""
    async with runtime() as outer:
        handle = await outer.agents.create("a")
        with outer.agents.with_initiator(handle.agent):
            async with runtime() as inner:
                seen = []

                async def task():
                    seen.append(current(inner))

                inner.scope.start_soon(task)
                await wait_all_tasks_blocked()
                assert seen == [None]


async def test_teardowns_run_on_nobodys_behalf() -> None:
    """INI-2: a disposed listener sees no initiator, in whatever task the teardown runs."""
    async with runtime() as rt:
        other = await rt.agents.create("other")
        seen = []
        rt.scope.on(ta.AgentDisposed, lambda told: seen.append(current(rt)))
        for setup in (None, lambda agent: agent.scope.start_soon(hang)):
            handle = await rt.agents.create("a", setup=setup)
            with rt.agents.with_initiator(other.agent):
                await handle.dispose()
                assert current(rt) == "other"
        assert seen == [None, None]


async def test_closing() -> None:
    """INI-4: new boundaries are refused, open ones go on, read and are waited for; then reads raise."""
    seen: list[object] = []
    entered, let_go = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        async with runtime() as rt:
            handle = await rt.agents.create("a")
            agent = handle.agent

            async def outsider():
                with rt.agents.with_initiator(agent):
                    entered.set()
                    await let_go.wait()
                    seen.append(current(rt))
                    with pytest.raises(ta.UsageError, match="closing"), rt.agents.with_initiator(agent):
                        raise AssertionError("never entered")

            async def opener():
                await wait_all_tasks_blocked()
                let_go.set()

            nursery.start_soon(outsider)
            await entered.wait()
            nursery.start_soon(opener)
        seen.append("left")
    assert seen == ["a", "left"]
    with pytest.raises(ta.UsageError, match="disposed"):
        rt.agents.current_initiator()


async def test_a_chain_that_closes_from_inside() -> None:
    """INI-4: it is not waited for by itself; agents drain while the initiator is still readable."""
    seen = []
    block = runtime()
    rt = await block.__aenter__()
    handle = await rt.agents.create("a")
    rt.scope.callback(lambda: seen.append(current(rt)))
    with rt.agents.with_initiator(handle.agent):
        await block.__aexit__(None, None, None)
    assert len(seen) == 1


async def test_a_boundary_that_never_ends(autojump_clock, caplog) -> None:
    """INI-4: it is named after the grace, and the runtime is left all the same."""
    async with trio.open_nursery() as nursery:
        async with runtime() as rt:
            handle = await rt.agents.create("a")
            agent = handle.agent

            async def forever():
                with rt.agents.with_initiator(agent):
                    await hang()

            nursery.start_soon(forever, name="never ends")
            await wait_all_tasks_blocked()
        assert "never ends" in caplog.text
        nursery.cancel_scope.cancel()
