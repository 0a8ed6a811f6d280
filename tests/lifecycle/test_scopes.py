"""Ownership and layers: SCP."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from tests.lifecycle.stage import OPTIONS, Recorder, hang, runtime
from trio_agents.agent._scope import new_scope


def tool_named(name: str, says: str = ""):
    """A tool under a name."""

    @ta.tool(name=name)
    async def made() -> str:
        """Say something."""
        return says

    return made


def names(scope) -> list[str]:
    """The tools that a scope sees."""
    return sorted(tool.name for tool in scope.tools.list())


async def test_who_hears_whom() -> None:
    """SCP-1: a scope hears its agent and what is below, never siblings or ancestors; outer scopes hear all."""
    async with runtime() as rt:
        heard: list[str] = []

        def listen(scope, name):
            scope.on(ta.InboxInserted, lambda told: heard.append(f"{name}<{told.agent.id}"))

        parent = await rt.agents.create("parent", options=OPTIONS)
        sibling = await rt.agents.create("sibling", options=OPTIONS)
        child = await parent.agent.scope.agents.create("child", options=OPTIONS)
        for scope, name in (
            (rt.scope, "root"),
            (parent.agent.scope, "parent"),
            (sibling.agent.scope, "sibling"),
            (child.agent.scope, "child"),
        ):
            listen(scope, name)
        for handle in (parent, sibling, child):
            handle.agent.inject("x")
        assert heard == [
            "root<parent",
            "parent<parent",
            "root<sibling",
            "sibling<sibling",
            "root<child",
            "parent<child",
            "child<child",
        ]


async def test_disposing_removes_what_was_registered() -> None:
    """SCP-2: tools, sections, variables, listeners, restrictions; the outer view is unchanged; then "closed"."""
    async with runtime() as rt:
        rt.tools.register(tool_named("outer"))
        handle = await rt.agents.create("a", options=OPTIONS)
        scope = handle.agent.scope
        heard: list[object] = []
        before = names(rt.scope), rt.scope.visible_sections(), rt.scope.visible_variables()
        scope.tools.register(tool_named("inner"))
        scope.prompt.section(ta.Section("s", "text"))
        scope.prompt.variable(ta.Variable("v", "value"))
        scope.on(ta.AgentDisposed, heard.append)
        undo = scope.restrict(deny=["outer"])
        assert names(scope) == ["inner"]
        assert (names(rt.scope), rt.scope.visible_sections(), rt.scope.visible_variables()) == before
        await handle.dispose()
        undo()
        assert heard == []
        assert names(scope) == ["outer"]
        assert scope.visible_sections() == {}
        assert scope.visible_variables() == {}
        for register in (
            lambda: scope.tools.register(tool_named("x")),
            lambda: scope.prompt.section(ta.Section("x", "x")),
            lambda: scope.prompt.variable(ta.Variable("x", "x")),
            lambda: scope.on(ta.AgentCreated, print),
            lambda: scope.restrict(deny=["outer"]),
            lambda: scope.callback(print),
            lambda: scope.start_soon(hang),
            lambda: scope.enter_context(nullcontext()),
        ):
            with pytest.raises(ta.ScopeClosedError, match="closed"):
                register()
        for wait in (
            lambda: scope.enter_async_context(trio.open_nursery()),
            lambda: scope.start(hang),
        ):
            with pytest.raises(ta.ScopeClosedError, match="closed"):
                await wait()
        with pytest.raises(ta.ScopeClosedError):
            async with scope.open_child("x"):
                raise AssertionError("never entered")


@pytest.mark.parametrize("first", ["inner", "outer"])
async def test_the_nearest_name_wins(first: str) -> None:
    """SCP-3: in either order of registration; removal shows the outer again; duplicates in one scope are refused."""
    async with runtime() as rt, rt.scope.open_child("inner") as inner:
        outer_tool, inner_tool = tool_named("t", "outer"), tool_named("t", "inner")
        order = [(inner, inner_tool), (rt.scope, outer_tool)]
        undos = {}
        for scope, tool in order if first == "inner" else reversed(order):
            undos[scope] = scope.tools.register(tool)
        assert inner.tools.get("t") is inner_tool
        assert rt.tools.get("t") is outer_tool
        with pytest.raises(ta.UsageError, match="already has a tool named 't'"):
            inner.tools.register(tool_named("t"))
        undos[inner]()
        assert inner.tools.get("t") is outer_tool
        for register, value in (
            (
                lambda scope, text: scope.prompt.section(ta.Section("s", text)),
                lambda s: s.visible_sections()["s"].text,
            ),
            (
                lambda scope, text: scope.prompt.variable(ta.Variable("v", text)),
                lambda s: s.visible_variables()["v"].value,
            ),
        ):
            order2 = [(inner, "inner"), (rt.scope, "outer")]
            for scope, text in order2 if first == "inner" else reversed(order2):
                undos[scope] = register(scope, text)
            assert (value(inner), value(rt.scope)) == ("inner", "outer")
            with pytest.raises(ta.UsageError, match="already has"):
                register(inner, "again")
            undos[inner]()
            assert value(inner) == "outer"


async def test_closing_a_scope() -> None:
    """SCP-4: concurrent closers share one close; entries close LIFO, one failing does not skip the others."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        scope = new_scope("s", rt.scope)
        gate = trio.Event()

        def fails():
            recorder.add("fails")
            raise LookupError("one")

        async def slow():
            await gate.wait()
            recorder.add("slow")

        scope.callback(recorder.add, "first")
        scope.callback(fails)
        await scope.enter_async_context(recorder.watched("context")())
        undo = scope.callback(recorder.add, "forgotten")
        scope.callback(slow)
        undo()
        undo()
        recorder.take()
        errors = []

        async def close():
            try:
                await scope.aclose()
            except ta.TeardownError as exc:
                errors.append(exc)
            recorder.add("returned")

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(close)
            await wait_all_tasks_blocked()
            assert recorder.take() == []
            gate.set()
        assert recorder.take() == ["slow", "leave context", "fails", "first", *["returned"] * 3]
        assert len({id(exc) for exc in errors}) == 3
        await scope.aclose()


async def test_restrictions() -> None:
    """SCP-5: non-empty, of known names, intersecting, lifted one by one, live, binding below, own ones exempt."""
    async with runtime() as rt, rt.scope.open_child("mid") as mid, mid.open_child("low") as low:
        for name in ("a", "b", "c"):
            rt.tools.register(tool_named(name))
        nothing: list[dict[str, list[str]]] = [{}, {"allow": []}, {"deny": []}, {"allow": [], "deny": []}]
        for bad in nothing:
            with pytest.raises(ta.UsageError, match="at least one"):
                mid.restrict(**bad)
        with pytest.raises(ta.UsageError, match="nope"):
            mid.restrict(deny=["nope"])
        one = mid.restrict(allow=["a", "b"])
        two = mid.restrict(deny=["b"])
        mid.tools.register(tool_named("own"))
        assert names(mid) == ["a", "own"]
        assert names(low) == ["a", "own"]
        rt.tools.register(tool_named("later"))
        assert names(low) == ["a", "own"], "an allow list binds what comes later, too"
        with pytest.raises(ta.UsageError, match="b"):
            low.restrict(allow=["b"])
        two()
        assert names(low) == ["a", "b", "own"]
        one()
        one()
        assert names(low) == ["a", "b", "c", "later", "own"]
        assert names(rt.scope) == ["a", "b", "c", "later"]


async def test_undo_is_exact() -> None:
    """SCP-6: idempotent, and it removes only its own entry, even among equal ones."""
    async with runtime() as rt:
        heard: list[object] = []

        def listener(told):
            heard.append(told)

        undos = [rt.scope.on(ta.AgentCreated, listener) for _ in range(3)]
        undos[1]()
        undos[1]()
        await rt.agents.create()
        assert len(heard) == 2
        tool = tool_named("t")
        undo = rt.tools.register(tool)
        undo()
        again = rt.tools.register(tool)
        undo()
        assert rt.tools.get("t") is tool
        again()
        calls: list[int] = []
        scope = new_scope("s", rt.scope)
        undo_callbacks = [scope.callback(calls.append, 1) for _ in range(2)]
        undo_callbacks[0]()
        undo_callbacks[0]()
        await scope.aclose()
        assert calls == [1]


async def test_a_failing_task_or_context(caplog) -> None:
    """SCP-7: contained and reported at once; nothing else of the scope is cancelled; its close raises it."""
    async with runtime() as rt:
        scope = new_scope("s", rt.scope)
        gate = trio.Event()
        alive = []

        async def fails():
            await gate.wait()
            raise LookupError("task")

        async def lives():
            try:
                await hang()
            finally:
                alive.append("ended")

        scope.start_soon(fails)
        scope.start_soon(lives)
        nursery = await scope.enter_async_context(trio.open_nursery())

        async def crash():
            await gate.wait()
            raise ValueError("context")

        nursery.start_soon(crash)
        await wait_all_tasks_blocked()
        assert not caplog.records
        gate.set()
        await wait_all_tasks_blocked()
        assert len(caplog.records) == 2
        assert alive == []
        scope.callback(alive.append, "still usable")
        with pytest.raises(ta.TeardownError) as caught:
            await scope.aclose()
        assert alive == ["still usable", "ended"]
        cause = caught.value.__cause__
        assert isinstance(cause, ExceptionGroup)
        assert "LookupError" in "".join(cause.__notes__)


async def test_a_context_that_hangs_is_named(autojump_clock) -> None:
    """By the generator function that it was made of: its own repr says nothing."""

    @asynccontextmanager
    async def database(name):
        yield name
        await hang()

    async with runtime() as rt:
        scope = new_scope("s", rt.scope)
        await scope.enter_async_context(database("orders"))
        with pytest.raises(ta.TeardownError, match=r"context \S*database\(\)"):
            await scope.aclose()


async def test_start_and_contexts() -> None:
    """SCP-7, SCP-4: `start` gives what the task started with; a failed start raises that very exception."""
    async with runtime() as rt:
        scope = new_scope("s", rt.scope)

        async def serve(what, *, task_status):
            task_status.started(f"started {what}")
            await hang()

        async def broken(*, task_status):
            await trio.lowlevel.checkpoint()
            raise LookupError("before started")

        async def silent(*, task_status):
            await trio.lowlevel.checkpoint()

        assert await scope.start(serve, "it") == "started it"
        with pytest.raises(LookupError, match="before started"):
            await scope.start(broken)
        with pytest.raises(ta.UsageError, match="without calling started"):
            await scope.start(silent)
        assert len(scope._contributions or ()) == 1
        with trio.CancelScope() as cancel:
            cancel.cancel()
            await scope.start(serve, "too late")
        assert cancel.cancelled_caught
        assert len(scope._contributions or ()) == 1
        await scope.aclose()


async def test_a_start_cut_short() -> None:
    """SCP-4: a cancelled start has left its context when Cancelled is raised; a closing scope ends a start."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        scope = new_scope("s", rt.scope)

        class Slow:
            async def __aenter__(self):
                recorder.add("entering")
                try:
                    await hang()
                finally:
                    with trio.CancelScope(shield=True):
                        await wait_all_tasks_blocked()
                    recorder.add("given up")

            async def __aexit__(self, *details):
                raise AssertionError("never entered")

        with trio.CancelScope() as cancel:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scope.enter_async_context, Slow())
                await wait_all_tasks_blocked()
                cancel.cancel()
        assert recorder.take() == ["entering", "given up"]

        async def enter():
            with pytest.raises(ta.ScopeClosedError, match="closed while"):
                await scope.enter_async_context(Slow())
            recorder.add("raised")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enter)
            await wait_all_tasks_blocked()
            await scope.aclose()
        assert recorder.take() == ["entering", "given up", "raised"]


async def test_many_scopes_breathe() -> None:
    """SCP-4: closing many members lets others run in between."""
    async with runtime() as rt:
        turns = 0
        done = False

        async def other():
            nonlocal turns
            while not done:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            async with rt.scope.open_child("owner") as owner:
                for _ in range(1000):
                    await owner.agents.create()
                nursery.start_soon(other)
                await trio.lowlevel.checkpoint()
                turns = 0
                await owner.aclose()
                seen = turns
            done = True
        assert seen >= 2 * (1000 // 64)
