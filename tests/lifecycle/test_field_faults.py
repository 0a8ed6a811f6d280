"""Faults that users of such runtimes met: races of one id, late clean-up, listeners that raise, draining, recovery."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import trio_agents as ta
from trio_agents import AgentExistsError, AgentOptions, MemoryStore, StorageError, open_runtime, tool
from trio_agents.errors import SessionBusyError
from trio_agents.models import Reply, ScriptedModel
from trio_agents.session import TurnStart
from trio_agents.storage import OpenedLog

SCRIPTED = AgentOptions(model="scripted/m")


async def test_late_clean_up_leaves_the_successor_alone() -> None:
    """I3: the old closure and the old handle take back what they were made for, or nothing."""
    gone: list[Any] = []
    async with open_runtime() as runtime:
        runtime.scope.on(ta.AgentDisposed, lambda told: gone.append(told.agent))
        first = await runtime.agents.create("x")
        await first.dispose()
        second = await runtime.agents.create("x")

        await first.dispose()
        first.dispose_soon()
        await trio.testing.wait_all_tasks_blocked()

        assert runtime.agents.get("x") is second.agent
        assert gone == [first.agent]
    assert gone == [first.agent, second.agent]


async def test_ten_creates_of_one_id_have_one_winner() -> None:
    """I4: the others get one typed error, and everything that their setups registered is taken back."""
    go = trio.Event()
    open_ends: list[int] = []
    failures: list[Exception] = []
    winners: list[ta.AgentHandle] = []

    async def one(number: int, agents: ta.AgentRegistry) -> None:
        async def setup(agent: ta.Agent) -> None:
            open_ends.append(number)
            agent.scope.callback(open_ends.remove, number)
            await go.wait()

        try:
            winners.append(await agents.create("x", setup=setup))
        except AgentExistsError as exc:
            failures.append(exc)

    async with open_runtime() as runtime:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(one, number, runtime.agents)
            await trio.testing.wait_all_tasks_blocked()
            assert len(open_ends) == 10
            go.set()

        assert (len(winners), len(failures)) == (1, 9)
        assert len(open_ends) == 1
        assert runtime.agents.list() == [winners[0].agent]
    assert open_ends == []


async def test_the_first_request_waits_for_the_tools(autojump_clock: object) -> None:
    """I5: nobody finds the agent before its slow server is connected; the first request lists the tool."""
    model = ScriptedModel([Reply.text("ready")])

    @tool
    async def lookup() -> str:
        """Look something up."""
        return ""

    async def setup(agent: ta.Agent) -> None:
        await trio.sleep(8)
        agent.scope.tools.register(lookup)

    async with open_runtime(models=[model]) as runtime:

        async def send_when_found() -> None:
            while (agent := runtime.agents.get("x")) is None:  # noqa: ASYNC110  looks as an outsider would
                await trio.sleep(0.5)
            assert trio.current_time() - start >= 8
            await agent.ask("go")

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_when_found)
            await runtime.agents.create("x", setup=setup, options=SCRIPTED)
    assert [spec.name for spec in model.requests[0].tools] == ["lookup"]


async def test_a_live_session_is_not_deleted(autojump_clock: object) -> None:
    """I8, PER-16: refused while its agent lives; its turn is unaffected."""
    store = MemoryStore()
    async with open_runtime(store=store, models=[ScriptedModel([Reply.text("done").delayed(5)])]) as runtime:
        handle = await runtime.agents.create("x", options=SCRIPTED)
        receipt = handle.agent.followup("go")
        await trio.sleep(1)
        with pytest.raises(SessionBusyError):
            await store.delete("x")
        assert (await receipt.settled()).end == ta.values.COMPLETED
        await handle.dispose()
        await store.delete("x")
        assert await store.list() == []


async def test_one_throwing_listener_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """I9: the later ones hear everything; the outcome is the same; one report for each occurrence."""
    heard: dict[int, list[str]] = {1: [], 2: [], 3: []}
    calls = 0

    def fail(told: ta.SessionEvent) -> None:
        nonlocal calls
        calls += 1
        heard[1].append(told.event.type)
        raise (ValueError("no") if calls % 2 else ExceptionGroup("several", [ValueError("no")]))

    def listener(number: int) -> Callable[[ta.SessionEvent], None]:
        return lambda told: heard[number].append(told.event.type)

    @tool
    async def nothing() -> str:
        """Do nothing."""
        return "nothing"

    model = ScriptedModel([Reply.tool_call("nothing"), Reply.text("done")])
    async with open_runtime(models=[model]) as runtime:
        runtime.scope.on(ta.SessionEvent, fail)
        runtime.scope.on(ta.SessionEvent, listener(2))
        runtime.scope.on(ta.SessionEvent, listener(3))
        async with runtime.open_agent(model="scripted/m", tools=[nothing]) as agent:
            with caplog.at_level(logging.ERROR, "trio_agents"):
                assert (await agent.ask("go")).text == "done"
            types = [event.type for event in agent.session.events]
    assert heard[1] == heard[2] == heard[3] == types
    assert len(caplog.records) == len(types)


async def test_what_comes_during_a_drain_runs_once_elsewhere() -> None:
    """X11: the draining runtime starts nothing; who resumes it afterwards and wakes it runs it once."""
    store = MemoryStore()
    model = ScriptedModel([Reply.text("late")])
    async with open_runtime(store=store, models=[model]) as old:
        handle = await old.agents.create("x", options=SCRIPTED)
        await old.drain(0)
        handle.agent.followup("work")
        async with open_runtime(store=store, models=[model]) as new:
            with pytest.raises(SessionBusyError):
                await new.agents.resume("x", options=SCRIPTED)
        assert model.requests == []
    async with open_runtime(store=store, models=[model]) as new:
        handle = await new.agents.resume("x", options=SCRIPTED)
        handle.agent.wake()
        await handle.agent.when_idle()
        turns = [event for event in handle.agent.session.events if type(event.data) is TurnStart]
    assert len(turns) == len(model.requests) == 1


class FlakyStore(MemoryStore):  # type: ignore[misc]  # final for users; here its loads are made to fail
    """Loads of some sessions fail, once or always."""

    def __init__(self) -> None:
        super().__init__()
        self.once: set[str] = set()
        self.always: set[str] = set()

    async def open(self, session_id: str) -> OpenedLog:
        if session_id in self.once | self.always:
            self.once.discard(session_id)
            raise StorageError("the disk stumbles", session_id=session_id)
        return await super().open(session_id)


async def test_one_passing_error_strands_nobody(autojump_clock: object) -> None:
    """X13, PUB-24: tried again; what fails for good is told with its reason; the others run."""
    store = FlakyStore()
    ids = [f"s{number:02}" for number in range(50)]
    async with open_runtime(store=store) as runtime:
        for id in ids:
            handle = await runtime.agents.create(id)
            handle.agent.inject("kept")
    store.once, store.always = {"s07"}, {"s09"}

    async with open_runtime(store=store) as runtime:
        outcomes = {outcome.session_id: outcome for outcome in await runtime.agents.resume_all()}
        assert sorted(outcomes) == ids
        failed = {id for id, outcome in outcomes.items() if outcome.handle is None}
        assert failed == {"s09"}
        assert isinstance(outcomes["s09"].error, StorageError)
        assert len(runtime.agents.list()) == 49

        again = await runtime.agents.resume_all()
        assert [outcome.session_id for outcome in again] == ["s09"]
        assert len(runtime.agents.list()) == 49


async def test_session_start_comes_once_with_its_source() -> None:
    """H6, PUB-12, PUB-21: create, resume, clear; none for a create that lost."""
    edges: list[tuple[str, str]] = []
    store = MemoryStore()

    def hear(runtime: ta.Runtime) -> None:
        runtime.scope.on(ta.SessionStart, lambda told: edges.append((told.agent.id, told.source)))

    async with open_runtime(store=store, models=[ScriptedModel([Reply.text("yes")])]) as runtime:
        hear(runtime)
        handle = await runtime.agents.create("x", options=SCRIPTED)
        with pytest.raises(AgentExistsError):
            await runtime.agents.create("x")
        await handle.agent.ask("remember")
        await handle.agent.clear_context()
    async with open_runtime(store=store) as runtime:
        hear(runtime)
        await runtime.agents.resume("x")
    assert edges == [("x", "startup"), ("x", "clear"), ("x", "resume")]
