"""One choke point for every tool: whatever way a call takes, a hook that does not allow it keeps the body from running."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import MODEL, texts
from trio_agents.models import Reply, ScriptedModel
from trio_agents.tools.files import file_tools
from trio_agents.values import TextBlock, ToolCallBlock

LIMIT = 5.0
"""Seconds that hooks have."""


@attrs.frozen
class Guarded:
    """An agent whose model calls one guarded tool, once, in some way."""

    agent: ta.Agent
    judged: str  # the name of the guarded tool
    has_run: Callable[[], bool]


@asynccontextmanager
async def guarded(
    way: str, runtime: ta.Runtime, model: ScriptedModel, folder: Path
) -> AsyncIterator[Guarded]:
    """An agent for one way that a call can take to its tool."""
    ran: list[str] = []

    @ta.tool
    async def danger(text: str = "") -> str:
        """Do what was not allowed."""
        ran.append(text)
        return "done"

    @ta.tool
    async def install(context: ta.ToolContext) -> str:
        """Add the tool while the turn is at work."""
        agent: Any = context.agent
        agent.scope.tools.register(danger)
        return "installed"

    @ta.tool
    async def outer(context: ta.ToolContext) -> str:
        """Call the tool from inside of another."""
        return (await context.call("danger", {"text": "x"})).text

    @ta.tool
    async def delegate(context: ta.ToolContext) -> str:
        """Have a child do it, which brings the tool along."""
        parent: Any = context.agent
        async with parent.scope.open_agent("child", model=MODEL, tools=[danger], hook_timeout=LIMIT) as child:
            return (await child.ask("do it")).text

    call = Reply.tool_call("danger", {"text": "x"}, id="guarded")
    tools: list[Any] = [danger]
    judged = "danger"
    script: list[Any] = [call, "end"]
    if way == "built-in":
        tools, judged = file_tools(folder, writable=True), "write"
        script[0] = Reply.tool_call("write", {"path": "x", "content": "x"}, id="guarded")
    elif way == "late-registered":
        tools = [install]
        script.insert(0, Reply.tool_call("install"))
    elif way == "nested":
        tools = [outer, danger]
        script[0] = Reply.tool_call("outer")
    elif way == "child's":
        tools = [delegate]
        script = [Reply.tool_call("delegate"), call, "child's end", "end"]
    model.extend(*script)
    async with runtime.open_agent("a", model=MODEL, tools=tools, hook_timeout=LIMIT) as agent:
        yield Guarded(agent, judged, lambda: bool(ran) or (folder / "x").exists())


async def denies(payload: ta.AroundTool, proceed: Any) -> object:
    await trio.sleep(2)
    return ta.ToolReturn.failed("not on a Tuesday", code="DENIED")


async def raises(payload: ta.AroundTool, proceed: Any) -> object:
    raise PermissionError("the policy is unreadable")


async def raises_a_group(payload: ta.AroundTool, proceed: Any) -> object:
    raise ExceptionGroup(
        "both judges", [PermissionError("the policy is unreadable"), ValueError("so is the other")]
    )


async def never_answers(payload: ta.AroundTool, proceed: Any) -> object:
    await trio.sleep_forever()
    raise AssertionError


async def times_out_itself(payload: ta.AroundTool, proceed: Any) -> object:
    with trio.fail_after(3):
        await trio.sleep_forever()
    raise AssertionError


def answers(answer: Callable[[], object]) -> Any:
    async def malformed(payload: ta.AroundTool, proceed: Any) -> object:
        await trio.lowlevel.checkpoint()
        return answer()

    return malformed


def passes_on(what: object) -> Any:
    async def malformed(payload: ta.AroundTool, proceed: Any) -> object:
        return await proceed(what)

    return malformed


A_CALL: Any = ToolCallBlock(id="other", name="danger", arguments="{}")
WRONG: Any = "DENIED"

# A hook, the reason that the model reads, and whether the hook has failed.
HOOKS: dict[str, tuple[Any, str, bool]] = {
    "denies": (denies, "not on a Tuesday", False),
    "raises": (raises, "the policy is unreadable", True),
    "raises a group": (raises_a_group, "so is the other", True),
    "never answers": (never_answers, f"did not answer within {LIMIT:g} s", True),
    "times out itself": (times_out_itself, "TooSlowError", True),
    "answers nothing": (answers(lambda: None), "not NoneType", True),
    "answers yes": (answers(lambda: True), "not bool", True),
    "answers a dict": (answers(lambda: {"decision": "allow"}), "not dict", True),
    "answers no text": (answers(lambda: ta.ToolReturn([TextBlock(text=A_CALL)])), "str, not ToolCallBlock", True),
    "answers no failure": (answers(lambda: ta.ToolReturn("no", error=WRONG)), "error of a ToolReturn", True),
    "answers no code": (answers(lambda: ta.ToolReturn.failed("no", code=A_CALL)), "a code that are str", True),
    "answers no flag": (answers(lambda: ta.ToolReturn("no", is_error=WRONG)), "is_error of a ToolReturn", True),
    "answers no message": (answers(lambda: ta.ToolReturn("no", contexts=[WRONG])), "contexts of a ToolReturn", True),
    "passes on a text": (passes_on("allow"), "not a AroundTool", True),
}  # fmt: skip


@pytest.mark.parametrize("how", HOOKS)
@pytest.mark.parametrize("way", ["built-in", "late-registered", "nested", "child's"])
@pytest.mark.parametrize(
    ("allow_all", "streamed"), [("no", False), ("outside", True), ("inside", False)]
)  # fmt: skip
async def test_what_is_not_allowed_does_not_run(
    how: str,
    way: str,
    allow_all: str,
    streamed: bool,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """H1: the body never runs, the model reads why, the turn goes on; a hook that failed is reported, once."""
    hook, reason, is_reported = HOOKS[how]
    model = ScriptedModel()
    judgements: list[str] = []

    async def allow(payload: ta.AroundTool, proceed: Any) -> ta.ToolReturn:
        result: ta.ToolReturn = await proceed()
        return result

    async with (
        ta.open_runtime(models=[model], plugins=()) as runtime,
        guarded(way, runtime, model, tmp_path) as case,
    ):
        scope = case.agent.scope  # a child's calls are heard here, too

        async def judge(payload: ta.AroundTool, proceed: Any) -> object:
            if payload.call.name != case.judged:
                return await proceed()
            judgements.append(payload.agent.id)
            return await hook(payload, proceed)

        if allow_all == "outside":
            runtime.scope.on(ta.AroundTool, allow)
        scope.on(ta.AroundTool, judge)
        if allow_all == "inside":
            scope.on(ta.AroundTool, allow)
        if streamed:
            async with case.agent.stream("go") as stream:
                assert [piece async for piece in stream][-1] == "end"
            assert stream.result.text == "end"
        else:
            assert (await case.agent.ask("go")).text == "end"

        assert not case.has_run()
        assert judgements == ["child" if way == "child's" else "a"]
        told = [text for request in model.requests for text in texts(request.messages)]
        assert any(reason in text for text in told if text.startswith("result "))
        assert case.agent.session.open_turn is None
    reports = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(reports) == (1 if is_reported else 0)
    assert all("AroundTool" in report and repr(case.judged) in report for report in reports)


async def test_the_ways_lead_to_the_body(tmp_path: Path) -> None:
    """H1: without a hook each of these calls does run, or the test above would show nothing."""
    for number, way in enumerate(["built-in", "late-registered", "nested", "child's"]):
        model, folder = ScriptedModel(), tmp_path / str(number)
        folder.mkdir()
        async with (
            ta.open_runtime(models=[model], plugins=()) as runtime,
            guarded(way, runtime, model, folder) as case,
        ):
            assert (await case.agent.ask("go")).text == "end"
            assert case.has_run()
