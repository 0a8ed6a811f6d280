"""What prepares an agent: SET."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from tests.lifecycle.stage import MODEL, OPTIONS, Recorder, hang, run, runtime, shows, stored
from trio_agents.models import Gate, Reply, ScriptedModel

BORN = ["session/created a", "agent/created a", "agent/session-start a startup"]


async def test_commit_runs_directly_before_the_first_edge() -> None:
    """SET-1: synchronously after the last await; None is fine, and a setup need not be async."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        def setup(agent):
            recorder.add("setup")
            return lambda: recorder.add("commit")

        await rt.agents.create("a", setup=setup)
        assert recorder.take() == ["setup", "commit", *BORN]

        async def returns_none(agent):
            await trio.lowlevel.checkpoint()

        await rt.agents.create("b", setup=returns_none)
        assert [line.split()[1] for line in recorder.take()] == ["b"] * 3


@pytest.mark.parametrize("kind", ["async commit", "no function"])
async def test_a_commit_that_is_none(kind: str) -> None:
    """SET-1: a commit that returns an awaitable, or is no function, is refused; nothing is published."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def commit():
            raise AssertionError("never awaited")

        with pytest.raises(ta.UsageError, match="commit"):
            await rt.agents.create("a", setup=lambda agent: commit if kind == "async commit" else 17)
        assert recorder.take() == []
        assert shows(rt) == "nothing"
        await rt.agents.create("a")


@pytest.mark.parametrize("where", ["setup", "commit"])
@pytest.mark.parametrize("how", ["create", "resume"])
@pytest.mark.parametrize("strict", [True, False])
def test_failures(where: str, how: str, strict: bool) -> None:
    """SET-2: the caller gets that very exception after all is unwound; no edge, the id is free."""
    error = LookupError("mine")

    async def main() -> None:
        store = ta.MemoryStore()
        await stored(store)
        async with runtime(store=store) as rt:
            recorder = Recorder(rt.scope)

            async def setup(agent):
                await agent.scope.enter_async_context(recorder.watched("context")())
                agent.scope.callback(recorder.add, "callback")

                async def cleanup():
                    await trio.lowlevel.checkpoint()
                    recorder.add("async callback")

                agent.scope.callback(cleanup)

                def fail():
                    raise error

                if where == "setup":
                    fail()
                return fail

            call = rt.agents.create if how == "create" else rt.agents.resume
            id = "new" if how == "create" else "a"
            with pytest.raises(LookupError) as caught:
                await call(id, setup=setup)
            assert caught.value is error
            assert not hasattr(error, "__notes__")
            assert recorder.take() == ["enter context", "async callback", "callback", "leave context"]
            assert shows(rt, id) == "nothing"
            await call(id)

    run(main, strict=strict)


async def test_the_setups_error_beats_the_reason_of_an_abort() -> None:
    """SET-2: also when the owner closed meanwhile."""
    async with runtime() as rt:
        caught: list[BaseException] = []

        async def setup(agent):
            try:
                await hang()
            finally:
                raise LookupError("mine")

        async def create(owner):
            try:
                await owner.agents.create("a", setup=setup)
            except LookupError as exc:
                caught.append(exc)

        async with trio.open_nursery() as nursery, rt.scope.open_child("owner") as owner:
            nursery.start_soon(create, owner)
            await wait_all_tasks_blocked()
            await owner.aclose()
            assert [str(exc) for exc in caught] == ["mine"]


async def test_two_failures_at_once() -> None:
    """SET-2, DIS-17: the setup's error is raised, what fails while it is unwound becomes a note on it."""
    async with runtime() as rt:

        def bad_cleanup():
            raise ValueError("in the clean-up")

        def setup(agent):
            agent.scope.callback(bad_cleanup)
            raise LookupError("in setup")

        with pytest.raises(LookupError, match="in setup") as caught:
            await rt.agents.create("a", setup=setup)
        assert "in the clean-up" in "".join(caught.value.__notes__)
        assert shows(rt) == "nothing"


async def test_what_setup_registers_is_in_force() -> None:
    """SET-3: for session-start and the first prompt; its listeners hear their own agent's created edges."""
    model = ScriptedModel(Reply.text("ok"))
    async with ta.open_runtime(models=[model], plugins=()) as rt:
        seen: list[Any] = []

        @ta.tool
        async def now() -> str:
            """Tell the time."""
            return "noon"

        def setup(agent):
            agent.scope.tools.register(now)
            agent.scope.prompt.section(ta.Section("rules", "Be {{mood}}."))
            agent.scope.prompt.variable(ta.Variable("mood", "kind"))
            agent.scope.on(ta.SessionCreated, lambda told: seen.append("session"))
            agent.scope.on(ta.AgentCreated, lambda told: seen.append("agent"))

        def start(told):
            seen.append([tool.name for tool in told.agent.scope.tools.list()])

        rt.scope.on(ta.SessionStart, start)
        async with rt.agents.open("a", setup=setup, options=OPTIONS) as agent:
            assert seen == ["session", "agent", ["now"]]
            await agent.ask("hello")
            [request] = model.requests
            header = agent.session.request_header()
            assert header is not None
            assert "Be kind." in str(header.system)
            assert [tool.name for tool in request.tools] == ["now"]


async def test_no_deliveries_before_the_publication() -> None:
    """SET-4: `AgentNotPublishedError`; log and inbox stay unchanged."""
    async with runtime() as rt:

        def setup(agent):
            for act in (
                lambda: agent.followup("x"),
                lambda: agent.steer("x"),
                lambda: agent.inject("x"),
                lambda: agent.deliver("x"),
                agent.wake,
                lambda: agent.try_followup_when_idle(lambda: "x"),
                lambda: agent.inbox.append(ta.UserMessage.from_text("x")),
            ):
                with pytest.raises(ta.AgentNotPublishedError):
                    act()
            assert len(agent.session.events) == 0
            assert not agent.inbox.has_pending

        handle = await rt.agents.create("a", setup=setup, options=OPTIONS)
        assert len(handle.agent.session.events) == 0


async def test_the_initiator_of_a_setup_is_the_parent() -> None:
    """SET-5: the scope's agent is the child; afterwards the parent's initiator is intact while the child runs."""
    seen: list[object] = []
    gate = Gate()
    async with ta.open_runtime(
        models=[
            ScriptedModel([Reply.tool_call("spawn"), "done"]),
            ScriptedModel([Reply.text("child").gated(gate)], provider="child"),
        ],
        plugins=(),
    ) as rt:

        @ta.tool
        async def spawn(ctx: ta.ToolContext) -> str:
            """Start a child."""

            def setup(child):
                initiator = rt.agents.current_initiator()
                seen.append((initiator.id if initiator else None, child.scope.agent is child))

            handle = await rt.agents.require_initiator().scope.agents.create(
                "child", setup=setup, options=ta.AgentOptions(model="child/m")
            )
            handle.agent.followup("go")
            await gate.reached.wait()
            seen.append(rt.agents.require_initiator().id)
            gate.opened.set()
            await handle.dispose()
            return "ok"

        async with rt.open_agent("parent", model=MODEL, tools=[spawn]) as parent:
            await parent.ask("go")
        assert seen == [("parent", True), "parent"]


@pytest.mark.parametrize("how", ["shields", "swallows"])
async def test_a_stubborn_setup_only_delays(how: str, autojump_clock) -> None:
    """SET-6: a setup that shields itself or swallows Cancelled never publishes by its later success."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def setup(agent):
            if how == "shields":
                with trio.CancelScope(shield=True):
                    await trio.sleep(5)
            else:
                with contextlib.suppress(trio.Cancelled):
                    await hang()
                with trio.CancelScope(shield=True):
                    await trio.sleep(5)
            recorder.add("setup succeeded")
            return lambda: recorder.add("commit")

        async def create(owner):
            with pytest.raises(ta.CreationAbortedError, match="owner closed during setup"):
                await owner.agents.create("a", setup=setup)

        async with trio.open_nursery() as nursery, rt.scope.open_child("owner") as owner:
            nursery.start_soon(create, owner)
            await trio.sleep(1)
            await owner.aclose()
            recorder.add("closed")
        with trio.move_on_after(1) as scope:
            await rt.agents.create("a", setup=setup)
        assert scope.cancelled_caught
        assert recorder.take() == ["setup succeeded", "closed", "setup succeeded"]
        assert shows(rt) == "nothing"
