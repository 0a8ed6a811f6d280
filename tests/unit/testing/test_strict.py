"""A strict runtime: what a test leaves behind makes it fail, with everything at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.driving import MODEL, message
from tests.lifecycle.stage import run
from trio_agents.models import Reply, ScriptedModel
from trio_agents.testing import Finding, FindingKind, StrictBlock, StrictRuntimeError, open_strict_runtime

OPTIONS = ta.AgentOptions(model=MODEL)


def strict(*answers: Any, **more: Any) -> StrictBlock:
    """A strict runtime with one scripted model, which says `ok` for ever if no answers are given."""
    script: Any = list(answers) if answers else Reply.text("ok")
    more.setdefault("plugins", ())
    return open_strict_runtime(models=[ScriptedModel(script)], **more)


@asynccontextmanager
async def agent_fixture(*answers: Any, **more: Any) -> AsyncIterator[ta.Agent]:
    """What a fixture would give its tests."""
    async with strict(*answers, **more) as runtime, runtime.open_agent("a", model=MODEL) as agent:
        yield agent


def kinds(caught: pytest.ExceptionInfo[StrictRuntimeError]) -> list[str]:
    """The kinds of all findings."""
    return [finding.kind for finding in caught.value.findings]


class CrashingWriter:
    """Breaks an agent's log in a way that no storage does: its driver cannot close the turn, and crashes."""

    def __init__(self, agent: Any) -> None:
        self._writer = agent.session._ledger.writer
        agent.session._ledger.writer = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def write(self, events: Any, lines: Any) -> None:
        if "turn/end" in {event.type for event in events}:
            self.write = self._writer.write  # type: ignore[method-assign]  # once
            raise LookupError("the writer is broken")
        self._writer.write(events, lines)


# --- what passes -----------------------------------------------------------------------------------


async def test_a_test_that_waits_for_everything_passes() -> None:
    heard: list[ta.Scope] = []
    store = ta.MemoryStore()
    async with strict(store=store, plugins=[heard.append]) as runtime:
        assert isinstance(runtime, ta.Runtime)
        assert heard == [runtime.scope]
        async with runtime.open_agent("a", model=MODEL) as agent:
            assert (await agent.ask("x")).text == "ok"
            agent.followup("y")
            await agent.when_idle()
        handle = await runtime.agents.create("b", options=OPTIONS)
        child = await handle.agent.scope.agents.create("c", options=OPTIONS)
        await child.dispose()
    assert {summary.header.id for summary in await store.list()} == {"a"}


LOOKS: dict[str, Callable[[ta.Agent], Awaitable[object]]] = {}


def look(fn: Callable[[ta.Agent], Awaitable[object]]) -> Callable[[ta.Agent], Awaitable[object]]:
    LOOKS[fn.__name__] = fn
    return fn


@look
async def ask(agent: ta.Agent) -> None:
    with pytest.raises(ta.TurnFailed):
        await agent.ask("x")


@look
async def ask_unchecked(agent: ta.Agent) -> None:
    assert (await agent.ask("x", check=False)).end is not None


@look
async def settled(agent: ta.Agent) -> None:
    assert (await agent.followup("x").settled()).turn == 1


@look
async def settled_afterwards(agent: ta.Agent) -> None:
    receipt = agent.followup("x")
    await agent.when_idle()
    assert receipt.state == "settled"
    await receipt.settled()


@look
async def one_of_two_receipts(agent: ta.Agent) -> None:
    agent.inject("first")
    await agent.followup("x").settled()


@look
async def the_result_of_a_stream(agent: ta.Agent) -> None:
    async with agent.stream("x") as stream:
        async for _ in stream:
            pass
    with pytest.raises(ta.TurnFailed):
        _ = stream.result


@pytest.mark.parametrize("how", LOOKS)
async def test_a_failure_that_was_looked_at_passes(how: str) -> None:
    async with agent_fixture(Reply.fail("AUTH")) as agent:
        await LOOKS[how](agent)


async def test_cancellation_can_be_tested_inside(autojump_clock: object) -> None:
    """X10: turns that are stopped, waits that time out, and blocks that are left by them."""
    async with strict(Reply.hang()) as runtime:
        async with runtime.open_agent("a", model=MODEL) as agent:
            agent.followup("stopped")
            await trio.testing.wait_all_tasks_blocked()
            await agent.stop()
        model = cast("ScriptedModel", runtime.models.require("scripted"))
        model.extend(Reply.hang(), Reply.hang(), Reply.hang(), "after all")
        with trio.move_on_after(5) as scope:
            async with runtime.open_agent("b", model=MODEL) as agent:
                await agent.ask("the wait and the block are cancelled")
        assert scope.cancelled_caught
        async with runtime.open_agent("c", model=MODEL) as agent:
            with pytest.raises(trio.TooSlowError), trio.fail_after(5):
                async with agent.stream("left early") as stream:
                    await anext(stream)
            receipt = agent.followup("cancelled")
            await trio.testing.wait_all_tasks_blocked()
            agent.cancel(keep_inbox=True)
            assert (await receipt.settled()).end is not None
            assert (await agent.ask("y")).text == "after all"


# --- what does not ---------------------------------------------------------------------------------


async def test_a_driver_that_crashes_after_the_body(caplog: pytest.LogCaptureFixture) -> None:
    """X10: the body has passed; its fixture fails."""
    body_passed = False
    with pytest.raises(StrictRuntimeError) as caught:  # noqa: PT012 - the block is the point
        async with agent_fixture(Reply.hang()) as agent:
            CrashingWriter(agent)
            agent.followup("x")
            await trio.testing.wait_all_tasks_blocked()
            body_passed = True
    assert body_passed
    assert "failed" in kinds(caught)
    assert "turn 1 of agent 'a' failed and nobody looked at it: LookupError: the writer is broken" in str(
        caught.value
    )
    assert "the driver of agent 'a' failed" in caplog.text


@pytest.mark.parametrize("how", ["when idle", "a stream without its result", "a listener", "a resumed one"])
async def test_a_failed_turn_that_nobody_looked_at(how: str) -> None:
    """X10"""
    with pytest.raises(StrictRuntimeError, match=r"turn 1 of agent 'a' failed .*AUTH") as caught:  # noqa: PT012 - the block is the point
        async with strict(Reply.fail("AUTH")) as runtime, runtime.open_agent("a", model=MODEL) as agent:
            if how == "a stream without its result":
                async with agent.stream("x") as stream:
                    assert [piece async for piece in stream] == []
            elif how == "a resumed one":
                agent.inbox.append(message("x"))
                agent.wake()
                await agent.when_idle()
            else:
                failures: list[object] = []
                if how == "a listener":
                    agent.scope.on(ta.AgentFailed, failures.append)
                agent.followup("x")
                await agent.when_idle()
                assert len(failures) == (how == "a listener")
    assert kinds(caught) == ["failed"]
    [finding] = caught.value.findings
    assert finding.agent_id == "a"
    assert str(finding) == finding.text


@pytest.mark.parametrize("owner", ["block", "runtime"])
async def test_an_agent_that_is_still_running(owner: str) -> None:
    """X10: whether its own block ends it, or the end of the runtime."""
    with pytest.raises(StrictRuntimeError) as caught:  # noqa: PT012 - the block is the point
        async with strict(Reply.hang()) as runtime:
            if owner == "block":
                async with runtime.open_agent("a", model=MODEL) as agent:
                    agent.followup("x")
                    await trio.testing.wait_all_tasks_blocked()
            else:
                handle = await runtime.agents.create("a", options=OPTIONS)
                handle.agent.followup("x")
                await trio.testing.wait_all_tasks_blocked()
    assert kinds(caught) == ["running"]
    assert "turn 1 of agent 'a' was still at work when the agent was ended" in str(caught.value)


@pytest.mark.parametrize("owner", ["block", "runtime"])
async def test_a_live_child(owner: str) -> None:
    """X10: all idle, and still there. Children of children, too."""
    with pytest.raises(StrictRuntimeError) as caught:  # noqa: PT012 - the block is the point
        async with strict() as runtime:
            if owner == "block":
                async with runtime.open_agent("a", model=MODEL) as parent:
                    child = (await parent.scope.agents.create("b", options=OPTIONS)).agent
                    await child.scope.agents.create("c", options=OPTIONS)
            else:
                parent = (await runtime.agents.create("a", options=OPTIONS)).agent
                async with parent.scope.open_child("group") as scope:
                    await scope.agents.create("ended with its group", options=OPTIONS)
                child = (await parent.scope.agents.create("b", options=OPTIONS)).agent
                await child.scope.agents.create("c", options=OPTIONS)
    assert kinds(caught) == ["child", "child"]
    assert [finding.agent_id for finding in caught.value.findings] == ["c", "b"]
    assert "agent 'b', a child of agent 'a', was alive when its parent was ended" in str(caught.value)


@pytest.mark.parametrize("lane", ["next-step", "next-turn"])
@pytest.mark.parametrize("owner", ["block", "runtime"])
async def test_a_pending_message(lane: Any, owner: str) -> None:
    """X10"""
    with pytest.raises(StrictRuntimeError) as caught:  # noqa: PT012 - the block is the point
        async with strict() as runtime:
            if owner == "block":
                async with runtime.open_agent("a", model=MODEL) as agent:
                    agent.send("never read", target=lane, wake=False)
            else:
                handle = await runtime.agents.create("a", options=OPTIONS)
                handle.agent.send("never read", target=lane, wake=False)
    assert kinds(caught) == ["pending"]
    assert f"agent 'a' ended while this was pending: 'never read' ({lane})" in str(caught.value)


async def test_a_followup_that_has_not_even_begun() -> None:
    """X10: the test ends in the tick of its delivery, too early and green."""
    with pytest.raises(StrictRuntimeError) as caught:
        async with agent_fixture() as agent:
            agent.followup("x" * 100)
    assert kinds(caught) == ["pending"]
    assert f"{'x' * 60}...' (next-turn)" in str(caught.value)


async def test_what_was_discarded_is_not_pending() -> None:
    async with strict() as runtime:
        handle = await runtime.agents.create("a", options=OPTIONS)
        handle.agent.inject("no longer wanted")
        await handle.dispose(discard_inbox=True)


async def leave_everything(block: StrictBlock) -> None:
    """Leave one of each behind."""
    async with block as runtime:
        parent = (await runtime.agents.create("a", options=OPTIONS)).agent
        parent.followup("fails")
        await parent.when_idle()
        await parent.scope.agents.create("b", options=OPTIONS)
        parent.followup("hangs")
        await trio.testing.wait_all_tasks_blocked()
        parent.inject("waits")


ALL = ["failed", "running", "child", "pending"]


async def test_all_findings_come_at_once() -> None:
    """X10: one error, one line for each."""
    with pytest.raises(StrictRuntimeError) as caught:
        await leave_everything(strict(Reply.fail("AUTH"), Reply.hang()))
    assert kinds(caught) == ALL
    assert str(caught.value).splitlines() == [
        "the runtime was left with something behind:",
        *(f"- {finding}" for finding in caught.value.findings),
    ]
    assert isinstance(caught.value, ta.TrioAgentsError)
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("kind", ALL)
async def test_each_kind_can_be_allowed(kind: FindingKind) -> None:
    with pytest.raises(StrictRuntimeError) as caught:
        await leave_everything(strict(Reply.fail("AUTH"), Reply.hang(), allow=[kind]))
    assert kinds(caught) == [other for other in ALL if other != kind]


async def test_everything_can_be_allowed() -> None:
    await leave_everything(strict(Reply.fail("AUTH"), Reply.hang(), allow=iter(ALL)))


@pytest.mark.parametrize("bad", ["pending", ["pending", "late"], None, [[]], 3])
def test_what_cannot_be_allowed(bad: Any) -> None:
    with pytest.raises(ta.UsageError, match="allow= is a collection of kinds of findings"):
        open_strict_runtime(allow=bad)


# --- beside other exceptions -----------------------------------------------------------------------

NOTE = "the strict runtime found, too: agent 'a' ended while this was pending: 'never read' (next-step)"


@pytest.mark.parametrize("trio_is_strict", [True, False])
@pytest.mark.parametrize(
    "error", [LookupError("mine"), KeyboardInterrupt(), ExceptionGroup("mine", [LookupError()])], ids=repr
)
def test_the_bodys_exception_is_not_hidden(error: BaseException, trio_is_strict: bool) -> None:
    """X10: it goes on as it is; the findings become notes."""
    error.__dict__.pop("__notes__", None)

    async def main() -> None:
        caught: BaseException | None = None
        try:
            async with agent_fixture() as agent:
                agent.inject("never read")
                raise error
        except BaseException as exc:  # noqa: ASYNC103 - the test means it
            caught = exc
        assert caught is error
        assert getattr(error, "__notes__", []) == [NOTE]

    run(main, strict=trio_is_strict)


async def test_a_block_that_is_cancelled_from_outside() -> None:
    """X10: the cancel goes on, and is caught where it belongs."""
    with trio.CancelScope() as scope:
        async with agent_fixture(Reply.hang()) as agent:
            agent.followup("x")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_an_end_that_fails_is_raised_with_the_findings() -> None:
    with pytest.raises(ta.TeardownError, match="ZeroDivisionError") as caught:  # noqa: PT012 - the block is the point
        async with strict() as runtime:
            handle = await runtime.agents.create("a", options=OPTIONS)
            handle.agent.scope.callback(lambda: 1 / 0)
            handle.agent.inject("never read")
    assert NOTE in caught.value.__notes__


async def test_the_block_is_used_once() -> None:
    block = strict()
    async with block:
        pass
    with pytest.raises(ta.UsageError, match="already opened"):
        await block.__aenter__()


def test_findings_are_values() -> None:
    one = Finding(kind="failed", agent_id="a", text="so")
    assert one == Finding(kind="failed", agent_id="a", text="so")
    assert StrictRuntimeError((one,)).findings == (one,)
