"""How listeners are called: HOOK."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
import trio

import trio_agents as ta
from tests.lifecycle.stage import MODEL, OPTIONS, runtime


async def test_notification_listeners_are_plain(caplog) -> None:
    """HOOK-1: an async one is refused with a hint; every one runs; failures are contained, once each."""
    async with runtime() as rt:
        heard: list[object] = []

        async def wrong(told):
            raise AssertionError("never called")

        class AlsoWrong:
            async def __call__(self, told):
                raise AssertionError("never called")

        for bad in (wrong, AlsoWrong()):
            with pytest.raises(ta.UsageError, match=r"Scope\.start_soon.*Session\.follow"):
                rt.scope.on(ta.InboxInserted, bad)
        with pytest.raises(ta.UsageError, match="callable"):
            rt.scope.on(ta.InboxInserted, cast("Any", "no"))
        with pytest.raises(ta.UsageError, match="hook class"):
            rt.scope.on(cast("Any", str), print)

        def fails(told):
            raise ExceptionGroup("several", [ValueError("contained")])

        rt.scope.on(ta.InboxInserted, fails)
        rt.scope.on(ta.InboxInserted, lambda told: wrong(told))  # noqa: PLW0108 - hides that it is async
        rt.scope.on(ta.InboxInserted, heard.append)
        handle = await rt.agents.create("a", options=OPTIONS)
        handle.agent.inject("x")
        assert len(heard) == 1
        assert len(caplog.records) == 2


async def test_who_listens_from_when_to_when() -> None:
    """HOOK-1: a listener hears everything from its registration to its undo or the close of its scope, no matter who
    else listens or has stopped listening."""
    async with runtime() as rt:
        heard: list[tuple[str, str]] = []

        def listen(scope: ta.Scope, name: str):
            return scope.on(ta.SessionEvent, lambda told: heard.append((name, told.event.type)))

        handle = await rt.agents.create("a", options=OPTIONS)
        agent = handle.agent
        agent.inject("nobody listens yet")
        assert heard == []
        undo_outer, undo_inner = listen(rt.scope, "outer"), listen(agent.scope, "inner")
        agent.inject("two listen")
        assert heard == [("outer", "agent/inbox/spliced"), ("inner", "agent/inbox/spliced")]
        undo_outer()
        undo_outer()
        agent.inject("one listens")
        assert heard[2:] == [("inner", "agent/inbox/spliced")]
        undo_inner()
        agent.inject("nobody listens any more")
        assert len(heard) == 3
        async with rt.scope.open_child("child") as child:
            listen(child, "child")
            agent.inject("one listens elsewhere")
            below = await child.agents.create("b", options=OPTIONS)
            below.agent.inject("and hears its own")
        assert {name for name, _ in heard[3:]} == {"child"}
        assert ("child", "agent/inbox/spliced") in heard[3:]
        count = len(heard)
        agent.inject("its scope has closed")
        assert len(heard) == count


@pytest.mark.parametrize("hook", [ta.AgentCreated, ta.SessionCreated])
async def test_vetoes(hook, caplog) -> None:
    """HOOK-1: the later listeners still run, the first exception wins, a second is contained."""
    async with runtime() as rt:
        heard: list[object] = []
        first, second = LookupError("first"), LookupError("second")

        def refuse(error):
            def listener(told):
                raise error

            return listener

        rt.scope.on(hook, refuse(first))
        rt.scope.on(hook, refuse(second))
        rt.scope.on(hook, heard.append)
        with pytest.raises(LookupError) as caught:
            await rt.agents.create("a")
        assert caught.value is first
        assert len(heard) == 1
        assert len(caplog.records) == 1


async def test_nothing_else_vetoes(caplog) -> None:
    """HOOK-1: failures of all other notifications change nothing."""
    async with runtime() as rt:

        def fails(told):
            raise LookupError(type(told).__name__)

        for hook in (
            ta.SessionDisposed,
            ta.AgentDisposed,
            ta.SessionStart,
            ta.SessionEvent,
            ta.AgentStatusChanged,
            ta.InboxInserted,
            ta.InboxClaimed,
        ):
            rt.scope.on(hook, fails)
        async with rt.open_agent("a", model=MODEL) as agent:
            reply = await agent.ask("x")
            assert reply.text == "ok"
        failed = {record.exc_info[1].args[0] for record in caplog.records if record.exc_info}
        assert failed == {
            "SessionDisposed",
            "AgentDisposed",
            "SessionStart",
            "SessionEvent",
            "AgentStatusChanged",
            "InboxInserted",
            "InboxClaimed",
        }


async def test_the_order_of_listeners() -> None:
    """HOOK-2: outer scopes first, registration order within one; for around hooks first means outermost."""
    async with runtime() as rt, rt.scope.open_child("mid") as mid:
        seen: list[str] = []

        def notify(name):
            return lambda told: seen.append(name)

        def serial(name):
            async def listener(told):
                seen.append(name)

            return listener

        def around(name):
            async def listener(told, proceed):
                seen.append(f"{name}(")
                answer = await proceed()
                seen.append(f"){name}")
                return answer

            return listener

        async with mid.open_agent("a", model=MODEL) as agent:
            for make, hook in ((notify, ta.InboxInserted), (serial, ta.TurnStopping), (around, ta.PreStep)):
                agent.scope.on(hook, make("inner"))
                mid.on(hook, make("mid 1"))
                rt.scope.on(hook, make("root"))
                mid.on(hook, make("mid 2"))
            await agent.ask("x")
        order = ["root", "mid 1", "mid 2", "inner"]
        assert seen[:4] == order
        assert seen[4:12] == [f"{name}(" for name in order] + [f"){name}" for name in reversed(order)]
        assert seen[12:] == order


async def test_serial_hooks() -> None:
    """HOOK-3: one at a time; the first exception ends the dispatch and fails the turn; later deliveries work."""
    async with runtime() as rt:
        seen: list[str] = []
        broken = True

        async def first(told):
            seen.append("first starts")
            await trio.lowlevel.checkpoint()
            seen.append("first ends")
            if broken:
                raise LookupError("stop")

        async def second(told):
            seen.append("second")

        rt.scope.on(ta.TurnStopping, first)
        rt.scope.on(ta.TurnStopping, second)
        async with rt.open_agent("a", model=MODEL) as agent:
            with pytest.raises(ta.TurnFailed) as caught:
                await agent.ask("x")
            assert "stop" in str(caught.value)
            broken = False
            assert (await agent.ask("y")).text == "ok"
        assert seen == ["first starts", "first ends", "first starts", "first ends", "second"]


async def test_around_hooks() -> None:
    """HOOK-4: change what is passed on, skip `proceed`, change the answer; errors go outwards unchanged."""
    async with runtime() as rt:
        batches: list[int] = []
        caught: list[LookupError] = []
        error = LookupError("inner")
        mode = "change"

        async def outer(told, proceed):
            try:
                return await proceed()
            except LookupError as exc:
                caught.append(exc)
                return ta.Reject(reason="outer saw it")

        async def middle(told, proceed):
            if mode == "skip":
                return ta.Reject(reason="skipped")
            if mode == "twice":
                await proceed()
                with pytest.raises(ta.UsageError, match="twice"):
                    await proceed()
            return (
                await proceed(attrs.evolve(told, batch=told.batch[:0]))
                if mode == "change"
                else await proceed_or(proceed)
            )

        async def proceed_or(proceed):
            return ta.Enter(messages=()) if mode == "twice" else await proceed()

        async def inner(told, proceed):
            batches.append(len(told.batch))
            if mode == "raise":
                raise error
            return await proceed()

        for listener in (outer, middle, inner):
            rt.scope.on(ta.PreStep, listener)
        async with rt.open_agent("a", model=MODEL) as agent:
            await agent.ask("x", check=False)
            assert batches == [0]
            mode = "skip"
            with pytest.raises(ta.TurnBlocked):
                await agent.ask("x")
            assert batches == [0]
            mode = "raise"
            with pytest.raises(ta.TurnBlocked):
                await agent.ask("x")
            assert batches == [0, 1]
            assert caught == [error]
            mode = "twice"
            await agent.ask("x", check=False)
            assert batches == [0, 1, 1]


async def test_without_listeners_the_default_runs() -> None:
    """HOOK-4: and an around listener that is no coroutine function works if it gives an awaitable."""
    async with runtime() as rt, rt.open_agent("a", model=MODEL) as agent:
        assert (await agent.ask("x")).text == "ok"


async def test_a_dispatch_uses_the_listeners_present_at_its_start() -> None:
    """HOOK-5: one added or taken back meanwhile counts from the next dispatch on."""
    async with runtime() as rt:
        seen: list[str] = []
        undo_second: Any = None

        def first(told):
            seen.append("first")
            rt.scope.on(ta.InboxInserted, lambda told: seen.append("added"))
            undo_second()

        rt.scope.on(ta.InboxInserted, first)
        undo_second = rt.scope.on(ta.InboxInserted, lambda told: seen.append("second"))
        handle = await rt.agents.create("a", options=OPTIONS)
        handle.agent.inject("x")
        assert seen == ["first", "second"]
        seen.clear()
        handle.agent.inject("y")
        assert seen == ["first", "added"]


async def test_no_listener_of_a_closed_scope_is_started() -> None:
    """HOOK-5: also not by a dispatch that began before the close."""
    async with runtime() as rt:
        seen: list[str] = []
        inside, gate = trio.Event(), trio.Event()

        async def outer(told, proceed):
            inside.set()
            await gate.wait()
            return await proceed()

        async def inner(told, proceed):
            seen.append("inner")
            return await proceed()

        rt.scope.on(ta.PreStep, outer)
        async with rt.scope.open_child("mid") as mid:
            mid.on(ta.PreStep, inner)
            listeners = mid.listeners(ta.PreStep)
        assert len(listeners) == 2
        from trio_agents.scope._dispatch import around

        async def default(told):
            seen.append("default")

        gate.set()
        await around(listeners, ta.PreStep(agent=cast("Any", None), turn=1, step=1, batch=()), default)
        assert seen == ["default"]


async def test_payloads() -> None:
    """HOOK-6: the agent is always the dispatching one, and payloads are immutable."""
    async with runtime() as rt:
        seen = []
        other = await rt.agents.create("other", options=OPTIONS)

        async def forger(told, proceed):
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                told.turn = 7
            return await proceed(attrs.evolve(told, agent=other.agent))

        async def reader(told, proceed):
            seen.append(told.agent.id)
            return await proceed()

        rt.scope.on(ta.PreStep, forger)
        rt.scope.on(ta.PreStep, reader)
        async with rt.open_agent("a", model=MODEL) as agent:
            await agent.ask("x")
        assert seen == ["a"]


async def test_a_proceed_with_something_else() -> None:
    """HOOK-4: what is passed on is a payload of the same hook, else the listener's error says so."""
    async with runtime() as rt:

        async def wrong(told, proceed):
            return await proceed("not a payload")

        rt.scope.on(ta.PreStep, wrong)
        async with rt.open_agent("a", model=MODEL) as agent:
            with pytest.raises(ta.TurnFailed, match="PreStep"):
                await agent.ask("x")
