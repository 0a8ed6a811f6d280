"""Sessions of this runtime come out the same when they are replayed, whatever happened in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import trio
import trio.testing

from tests.conftest import Sweep
from trio_agents import (
    Agent,
    AgentOptions,
    AroundTool,
    ByHook,
    Enter,
    FatalToolError,
    MemoryStore,
    PreStep,
    Reject,
    RetryPolicy,
    Runtime,
    ToolContext,
    ToolReturn,
    TurnStopping,
    UserMessage,
    open_runtime,
    tool,
)
from trio_agents.cli._logs import Log
from trio_agents.cli._replay import Verdict, replay_log
from trio_agents.errors import ModelError
from trio_agents.models import Gate, Hang, Reply, ScriptedModel
from trio_agents.values import BY_PARENT, MaxTokens, Refused

Scenario = Callable[[Runtime, ScriptedModel], Awaitable[None]]
SCENARIOS: list[Scenario] = []


def scenario(fn: Scenario) -> Scenario:
    SCENARIOS.append(fn)
    return fn


@tool(effect="pure", parallel=True)
async def look(name: str) -> str:
    """Look at something."""
    await trio.sleep({"slow": 0.02, "fast": 0.001}.get(name, 0.01))
    return f"saw {name}"


@tool
async def act(name: str, context: ToolContext) -> ToolReturn:
    """Do something."""
    if name == "fatal":
        raise FatalToolError("no further")
    if name == "last":
        return ToolReturn("that is all", concludes=True)
    if name == "steered":
        cast("Agent", context.agent).steer("while it runs")
    if name == "told":
        return ToolReturn("done", contexts=[UserMessage.from_text("beside the result")])
    if name == "long":
        await trio.sleep_forever()
    return ToolReturn(f"did {name}")


TOOLS = (look, act)
ONE = AgentOptions(model="scripted/x", tools=TOOLS)


def calls(*names: str) -> Reply:
    """Calls as `tool:name`."""
    parts = [name.split(":") for name in names]
    return Reply.tool_calls([(kind, {"name": name}) for kind, name in parts])


@scenario
async def plain_turns(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend("one", "two", "three")
    async with runtime.open_agent("s", options=ONE) as agent:
        await agent.ask("a")
        agent.followup("b")
        agent.followup("c")
        await agent.when_idle()


@scenario
async def tools_of_all_kinds(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend(
        calls("look:slow", "look:fast", "act:x", "look:a", "look:b"),
        Reply.tool_calls([("nothing", {}), ("look", "{broken"), ("look", {"nam": 1})]),
        calls("act:told"),
        calls("act:steered"),
        calls("look:again", "act:last"),
    )
    async with runtime.open_agent("s", options=ONE) as agent:
        await agent.ask("go")


@scenario
async def more_calls_than_places(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend(calls("look:a", "look:b", "look:c", "look:d"), "done")
    options = AgentOptions(model="scripted/x", tools=TOOLS, max_parallel_tools=2)
    async with runtime.open_agent("s", options=options) as agent:
        await agent.ask("go")


@scenario
async def cancelled_in_the_stream(runtime: Runtime, model: ScriptedModel) -> None:
    gate = Gate()
    model.extend(Reply(steps=(*Reply.text("half a sent").steps[:-2], gate, Hang())), "after")
    async with runtime.open_agent("s", options=ONE) as agent:
        agent.followup("a")
        await gate.reached.wait()
        agent.followup("kept")
        agent.cancel(ByHook(reason="enough"), keep_inbox=True)
        await agent.when_idle()
        agent.wake()
        await agent.when_idle()


@scenario
async def cancelled_in_a_tool(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend(calls("look:a", "act:long", "act:never"), "after")
    async with runtime.open_agent("s", options=ONE) as agent:
        agent.followup("a")
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
        agent.followup("dropped")
        agent.inject("dropped, too")
        await agent.stop(BY_PARENT)
        await agent.ask("b")


@scenario
async def cancelled_before_it_began(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend("one")
    async with runtime.open_agent("s", options=ONE) as agent:
        agent.followup("a")
        agent.cancel()
        await agent.when_idle()
        await agent.ask("b")


@scenario
async def disposed_and_resumed(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend(Reply(steps=(Hang(),)), "back")
    async with runtime.open_agent("s", options=ONE) as agent:
        agent.followup("a")
        agent.followup("b")
        await trio.testing.wait_all_tasks_blocked()
    async with runtime.open_agent("s", mode="resume", options=ONE) as agent:
        agent.wake()
        await agent.when_idle()


@scenario
async def an_inbox_that_is_rearranged(runtime: Runtime, model: ScriptedModel) -> None:
    gate = Gate()
    model.extend(Reply(steps=(gate, *Reply.text("one").steps)), *["more"] * 6)
    async with runtime.open_agent("s", options=ONE) as agent:
        agent.followup("a")
        await gate.reached.wait()
        ids = [agent.followup(text).message_id for text in "bcdef"]
        agent.inbox.prepend(UserMessage.from_text("first"))
        agent.inbox.remove(ids[1])
        agent.inbox.replace(ids[2], UserMessage.from_text("another"))
        agent.inbox.move_to_next_step(ids[3])
        agent.inbox.splice("next-turn", -1, 1, UserMessage.from_text("x"), UserMessage.from_text("y"))
        agent.steer("and this")
        gate.opened.set()
        await agent.when_idle()


@scenario
async def parked_and_continued(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend(ModelError("down", code="SERVER"), "one", "two")
    async with runtime.open_agent("s", options=ONE) as agent:
        agent.inject("first of all")
        agent.followup("a")
        await agent.when_idle()
        agent.continue_turn()
        await agent.when_idle()
        await agent.clear_context()
        await agent.ask("afresh")


@scenario
async def requests_that_fail(runtime: Runtime, model: ScriptedModel) -> None:
    RetryPolicy(first_delay=0.01)(runtime.scope)
    down = ModelError("down", code="SERVER")
    model.extend(
        down, down, "up again", Reply.text("half", finish=MaxTokens()), Reply.text("no", finish=Refused())
    )
    async with runtime.open_agent("s", options=ONE) as agent:
        await agent.ask("a")
        await agent.ask("b")
        await agent.ask("c")


@scenario
async def listeners_that_add_reject_and_keep_going(runtime: Runtime, model: ScriptedModel) -> None:
    async def pre_step(
        proposal: PreStep, proceed: Callable[[PreStep], Awaitable[Enter | Reject]]
    ) -> Enter | Reject:
        if any(message.text == "forbidden" for message in proposal.batch):
            return Reject()
        if any(message.text == "ignored" for message in proposal.batch):
            return Enter(messages=())
        if any(message.text == "broken" for message in proposal.batch):
            raise ValueError("a listener's fault")
        added = UserMessage.from_text(f"context of step {proposal.step}")
        return Enter(messages=(*proposal.batch, added)) if proposal.batch else await proceed(proposal)

    async def stopping(hook: TurnStopping) -> None:
        if hook.turn == 1 and model.request_count == 1:
            hook.agent.inject("one more thing")

    runtime.scope.on(PreStep, pre_step)
    runtime.scope.on(TurnStopping, stopping)
    model.extend("one", "and two", "three")
    async with runtime.open_agent("s", options=ONE) as agent:
        await agent.ask("a")
        for text in ("forbidden", "ignored", "b", "broken"):
            await agent.ask(text, check=False)


@scenario
async def calls_that_are_denied_and_turns_that_break_off(runtime: Runtime, model: ScriptedModel) -> None:
    async def deny(call: AroundTool, proceed: Callable[[AroundTool], Awaitable[ToolReturn]]) -> ToolReturn:
        if call.arguments == {"name": "denied"}:
            return ToolReturn.failed("not allowed", name="Denied", code="DENIED")
        return await proceed(call)

    runtime.scope.on(AroundTool, deny)
    model.extend(calls("act:denied", "act:x"), "one", calls("look:a", "act:fatal", "act:never"))
    async with runtime.open_agent("s", options=ONE) as agent:
        await agent.ask("a")
        await agent.ask("b", check=False)


@scenario
async def more_than_one_model(runtime: Runtime, model: ScriptedModel) -> None:
    runtime.models.register(ScriptedModel(["other"], provider="other", context_window=1000))
    model.extend("one", "two")
    async with runtime.open_agent("s", options=ONE) as agent:
        await agent.ask("a")
        agent.select_model("other/y", effort="high")
        await agent.ask("b")
        agent.select_model("scripted/x")
        await agent.ask("c")


@scenario
async def a_cap_on_requests(runtime: Runtime, model: ScriptedModel) -> None:
    model.extend(calls("act:x"), calls("act:y"), "never")
    options = AgentOptions(model="scripted/x", tools=TOOLS, max_requests=2)
    async with runtime.open_agent("s", options=options) as agent:
        await agent.ask("a")


async def replayed(play: Scenario) -> Verdict:
    store, model = MemoryStore(), ScriptedModel([], strict=False)
    async with open_runtime(store=store, models=[model], plugins=()) as runtime:
        await play(runtime, model)
    stored = await store.inspect("s")
    assert stored.stored == len(stored.events)
    return await replay_log(Log(header=stored.header, events=stored.events, path=None))


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
async def test_it_comes_out_the_same(play: Scenario, autojump_clock: trio.testing.MockClock) -> None:
    """HDR-1, PROP-7"""
    verdict = await replayed(play)
    assert (verdict.outcome, verdict.difference) == ("same", None)
    assert verdict.compared > 0


async def test_a_fork_comes_out_the_same(autojump_clock: trio.testing.MockClock) -> None:
    """LOG-13: what was inherited is not replayed."""
    store, model = MemoryStore(), ScriptedModel(["one", "two"])
    async with open_runtime(store=store, models=[model], plugins=()) as runtime:
        async with runtime.open_agent("s", options=ONE) as agent:
            await agent.ask("a")
            child = await agent.session.fork()
        async with runtime.open_agent(child, mode="resume", options=ONE) as agent:
            await agent.ask("b")
    stored = await store.inspect(child)
    verdict = await replay_log(Log(header=stored.header, events=stored.events, path=None))
    assert (verdict.outcome, verdict.difference, verdict.turns) == ("same", None, 1)
    assert verdict.inherited == stored.header.seed_length


async def test_a_delivered_message_that_says_something_else_is_a_difference() -> None:
    store, model = MemoryStore(), ScriptedModel(["one"])

    async def rewrite(
        proposal: PreStep, proceed: Callable[[PreStep], Awaitable[Enter | Reject]]
    ) -> Enter | Reject:
        return Enter(messages=tuple(UserMessage.from_text("else", id=m.id) for m in proposal.batch))

    async with open_runtime(store=store, models=[model], plugins=()) as runtime:
        runtime.scope.on(PreStep, rewrite)
        async with runtime.open_agent("s", options=ONE) as agent:
            await agent.ask("a")
    stored = await store.inspect("s")
    verdict = await replay_log(Log(header=stored.header, events=stored.events, path=None))
    assert verdict.difference is not None
    assert verdict.difference.what == "different content"
    assert stored.events[verdict.difference.recorded_seq].type == "user/message"


@pytest.mark.parametrize("places", [1, 2, 3, 5])
async def test_calls_overlap_as_they_did(
    places: int, sweep: Sweep, autojump_clock: trio.testing.MockClock
) -> None:
    """TOOL-3, TOOL-4: whatever the number of places, and however long each body takes."""

    @tool(effect="pure", parallel=True)
    async def take(steps: int) -> str:
        """Take some time."""
        await trio.sleep(steps / 100)
        return f"{steps} steps"

    rng = sweep.random
    for _ in sweep(range(40), keep=6):
        durations = [rng.randrange(5) for _ in range(rng.randrange(2, 9))]
        reply = Reply.tool_calls([("take", {"steps": steps}) for steps in durations])
        store, model = MemoryStore(), ScriptedModel([reply, "done"])
        options = AgentOptions(model="scripted/x", tools=(take,), max_parallel_tools=places)
        async with (
            open_runtime(store=store, models=[model], plugins=()) as runtime,
            runtime.open_agent("s", options=options) as agent,
        ):
            await agent.ask("go")
        stored = await store.inspect("s")
        verdict = await replay_log(Log(header=stored.header, events=stored.events, path=None))
        assert verdict.difference is None, durations
