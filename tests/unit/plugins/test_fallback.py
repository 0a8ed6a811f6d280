"""Fallback: which model answers, what the log says of it, and what comes of retries, cancels and selections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.driving import show
from trio_agents.models import Gate, Reply, ScriptedModel
from trio_agents.session import LlmRetry, RequestHeader, trace_issues

CHAIN = ["one/a", "two/b"]
DOWN = Reply.fail("SERVER")
FINE = Reply.text("fine")
SOME = Reply.text("par", "tial").steps[:2]

MockClock = trio.testing.MockClock


class World:
    """Agents over scripted providers `one`, `two`, ..."""

    def __init__(self, runtime: ta.Runtime, models: dict[str, ScriptedModel]) -> None:
        self.runtime = runtime
        self.models = models

    @property
    def counts(self) -> list[int]:
        """How many requests each provider got."""
        return [model.request_count for model in self.models.values()]


@asynccontextmanager
async def world(*scripts: Any, plugins: Any, **settings: Any) -> AsyncIterator[World]:
    names = ["one", "two", "three"][: len(scripts)]
    models = {
        name: ScriptedModel(script, name, **settings) for name, script in zip(names, scripts, strict=True)
    }
    async with ta.open_runtime(models=models.values(), plugins=plugins) as runtime:
        yield World(runtime, models)


def story(agent: ta.Agent) -> list[str]:
    """Headers, failed attempts, changes of model and answers, as short lines."""
    lines = []
    for event in agent.session.events:
        data = event.data
        if isinstance(data, RequestHeader):
            config = data.header.config
            lines.append(f"header {config.provider}/{config.model}")
        elif isinstance(data, LlmRetry):
            kind = "fall" if '"fallback"' in data.policy_key else "retry"
            lines.append(f"{kind} {data.provider} {data.failure.code} {data.retry}/{data.max_retries}")
        elif event.type == "assistant/message":
            lines.append(f"{show(event)} by {data.message.source.provider}/{data.message.source.model}")
        elif event.type == "turn/end":
            lines.append(show(event))
    return lines


async def test_the_next_model_answers_and_the_log_says_so() -> None:
    async with (
        world([DOWN], ["fine"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        assert (await agent.ask("hello")).text == "fine"
        assert story(agent) == [
            "header one/a", "fall one SERVER 1/1", "header two/b", "answer fine by two/b", "turn end completed",
        ]  # fmt: skip
        assert trace_issues(list(agent.session.events)) == []
        [fall] = [event.data for event in agent.session.events if isinstance(event.data, LlmRetry)]
        assert fall.policy_key == '{"fallback":"best","from":"one/a","to":"two/b"}'
        assert fall.delay_ms == 0


async def test_the_first_model_answers_as_if_it_had_been_named() -> None:
    async with (
        world(["fine"], [], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        await agent.ask("hello")
        assert story(agent) == ["header one/a", "answer fine by one/a", "turn end completed"]
        assert w.counts == [1, 0]


async def test_behind_the_retry_policy_a_model_is_left_when_that_gives_up(autojump_clock: MockClock) -> None:
    plugins = [ta.RetryPolicy(max_retries=2), ta.Fallback("best", CHAIN)]
    async with (
        world(DOWN, [DOWN, "fine"], plugins=plugins) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        assert (await agent.ask("hello")).text == "fine"
        assert story(agent) == [
            "header one/a", "retry one SERVER 1/2", "retry one SERVER 2/2", "fall one SERVER 1/1",
            "header two/b", "retry two SERVER 1/2", "answer fine by two/b", "turn end completed",
        ]  # fmt: skip
        assert w.counts == [3, 2]


async def test_before_the_retry_policy_a_model_is_left_at_once(autojump_clock: MockClock) -> None:
    """The last of them is retried: there is nobody else to ask."""
    plugins = [ta.Fallback("best", CHAIN), ta.RetryPolicy(max_retries=2)]
    async with (
        world([DOWN], [DOWN, "fine"], plugins=plugins) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        await agent.ask("hello")
        assert story(agent)[1:4] == ["fall one SERVER 1/1", "header two/b", "retry two SERVER 1/2"]


async def test_a_long_wait_that_a_provider_asks_for_is_not_waited(autojump_clock: MockClock) -> None:
    busy = Reply.fail(ta.ModelError("busy", code="RATE_LIMIT", retry_after_ms=600_000))
    plugins = [ta.RetryPolicy(), ta.Fallback("best", CHAIN, cooldown=5)]
    async with (
        world([busy, "again"], FINE, plugins=plugins) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        start = trio.current_time()
        await agent.ask("hello")
        assert trio.current_time() == start
        await trio.sleep(599)
        assert (await agent.ask("and now?")).text == "fine"
        await trio.sleep(2)
        assert (await agent.ask("and now?")).text == "again"


@pytest.mark.parametrize("how", ["raise", "in band"])
async def test_after_the_first_content_no_other_model_is_asked(how: str) -> None:
    """D7: an answer is never made of two."""
    failing = Reply.fail("SERVER", after=SOME) if how == "raise" else Reply.finish_error("SERVER", after=SOME)
    async with (
        world([failing], ["never"], plugins=[ta.RetryPolicy(), ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        with pytest.raises(ta.TurnFailed):
            await agent.ask("hello")
        assert story(agent) == ["header one/a", "turn end error(SERVER)"]
        assert w.counts == [1, 0]


@pytest.mark.parametrize(
    "code",
    ["EMPTY_RESPONSE", "MALFORMED_RESPONSE", "QUOTA", "RATE_LIMIT", "STREAM_CLOSED", "TIMEOUT", "TRANSPORT"],
)
async def test_what_says_that_a_model_is_not_available(code: str) -> None:
    first = Reply.empty() if code == "EMPTY_RESPONSE" else Reply.fail(code)
    async with (
        world([first], ["fine"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        assert (await agent.ask("hello")).text == "fine"


@pytest.mark.parametrize("code", ["AUTH", "INVALID_REQUEST", "CONTEXT_WINDOW_EXCEEDED", "MISSING_CREDENTIAL"])
async def test_what_another_model_does_not_cure_is_told(code: str) -> None:
    async with (
        world([Reply.fail(code)], ["never"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        with pytest.raises(ta.TurnFailed):
            await agent.ask("hello")
        assert story(agent)[-1] == f"turn end error({code})"
        assert w.counts == [1, 0]


async def test_a_model_that_says_nothing(autojump_clock: MockClock) -> None:
    """M1: the agent's own deadline is a failure like any other."""
    async with (
        world([Reply.hang()], [FINE], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best", first_byte_timeout=7) as agent,
    ):
        start = trio.current_time()
        assert (await agent.ask("hello")).text == "fine"
        assert trio.current_time() - start == pytest.approx(7)
        assert story(agent)[1] == "fall one TIMEOUT 1/1"


async def test_a_fall_is_a_request_of_the_turn() -> None:
    async with (
        world([DOWN], ["never"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best", max_requests=1) as agent,
    ):
        with pytest.raises(ta.TurnFailed):
            await agent.ask("hello")
        assert w.counts == [1, 0]


async def test_a_session_goes_on_with_the_model_that_answered_unless_the_chain_is_named(
    tmp_path: Path,
) -> None:
    store = ta.JsonlStore(tmp_path)
    two = ScriptedModel(FINE, "two")
    for name, expected in ((None, "two/b"), ("fallback/best", "one/a")):
        one = ScriptedModel([DOWN] if name is None else [FINE], "one")
        plugins = [ta.Fallback("best", CHAIN)]
        async with ta.open_runtime(store=store, models=[one, two], plugins=plugins) as runtime:
            if name is None:
                async with runtime.open_agent("s", model="fallback/best") as agent:
                    await agent.ask("hello")
            async with runtime.open_agent("s", mode="resume", model=name) as agent:
                await agent.ask("and now?")
                assert story(agent)[-2] == f"answer fine by {expected}"
                assert trace_issues(list(agent.session.events)) == []


async def test_codes_can_be_chosen() -> None:
    fallback = ta.Fallback("long", CHAIN, codes={"CONTEXT_WINDOW_EXCEEDED"})
    async with (
        world([Reply.fail("CONTEXT_WINDOW_EXCEEDED")], ["fine"], plugins=[fallback]) as w,
        w.runtime.open_agent(model="fallback/long") as agent,
    ):
        assert (await agent.ask("hello")).text == "fine"


async def test_each_model_is_left_once_and_the_last_failure_stands() -> None:
    fallback = ta.Fallback("best", [*CHAIN, "three/c"])
    async with (
        world([DOWN], [Reply.fail("TIMEOUT")], [Reply.fail("QUOTA")], plugins=[fallback]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        with pytest.raises(ta.TurnFailed, match="QUOTA"):
            await agent.ask("hello")
        assert story(agent) == [
            "header one/a", "fall one SERVER 1/1", "header two/b", "fall two TIMEOUT 1/1", "header three/c",
            "turn end error(QUOTA)",
        ]  # fmt: skip


async def test_two_models_of_one_provider() -> None:
    async with (
        world([DOWN, DOWN, "fine"], plugins=[ta.Fallback("best", ["one/a", "one/b", "one/c"])]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        await agent.ask("hello")
        assert story(agent)[-2:] == ["answer fine by one/c", "turn end completed"]
        assert [request.model for request in w.models["one"].requests] == ["a", "b", "c"]


async def test_a_model_that_was_left_is_passed_over_by_every_agent_for_a_while(
    autojump_clock: MockClock,
) -> None:
    fallback = ta.Fallback("best", CHAIN, cooldown=30)
    async with (
        world([DOWN, "back"], FINE, plugins=[fallback]) as w,
        w.runtime.open_agent(model="fallback/best") as first,
        w.runtime.open_agent(model="fallback/best") as second,
    ):
        await first.ask("hello")
        await trio.sleep(29)
        await second.ask("hello")
        assert story(second)[0] == "header two/b"
        assert w.counts == [1, 2]
        await trio.sleep(2)
        assert (await second.ask("again")).text == "back"
        assert story(second)[-3:] == ["header one/a", "answer back by one/a", "turn end completed"]


async def test_the_longest_of_several_cooldowns_counts(autojump_clock: MockClock) -> None:
    """Two requests are under way; the one that fails last brings no wish of the provider."""
    gate = Gate()
    busy = Reply.fail(ta.ModelError("busy", code="RATE_LIMIT", retry_after_ms=600_000))
    late = Reply(steps=(gate, *DOWN.steps))
    async with (
        world([late, busy, "back"], FINE, plugins=[ta.Fallback("best", CHAIN, cooldown=5)]) as w,
        w.runtime.open_agent(model="fallback/best") as first,
        w.runtime.open_agent(model="fallback/best") as second,
    ):
        first.followup("hello")
        await gate.reached.wait()
        await second.ask("hello")
        gate.opened.set()
        await first.when_idle()
        assert w.counts == [2, 2]
        await trio.sleep(590)
        assert (await first.ask("and now?")).text == "fine"
        await trio.sleep(20)
        assert (await first.ask("and now?")).text == "back"


async def test_no_wish_of_a_provider_holds_for_ever(autojump_clock: MockClock) -> None:
    """A date in the next century, from a proxy whose clock is wrong."""
    busy = Reply.fail(ta.ModelError("busy", code="RATE_LIMIT", retry_after_ms=1e15))
    async with (
        world([busy, "back"], FINE, plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        await agent.ask("hello")
        await trio.sleep(3599)
        assert (await agent.ask("and now?")).text == "fine"
        await trio.sleep(2)
        assert (await agent.ask("and now?")).text == "back"


async def test_steps_of_a_turn_do_not_fail_again_and_again() -> None:
    @ta.tool
    async def look() -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        return "seen"

    async with (
        world([DOWN], [Reply.tool_call("look"), "done"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best", tools=[look]) as agent,
    ):
        await agent.ask("hello")
        assert w.counts == [1, 2]
        assert trace_issues(list(agent.session.events)) == []


async def test_where_all_cool_down_the_first_is_asked() -> None:
    async with (
        world([DOWN, "fine"], [DOWN], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        with pytest.raises(ta.TurnFailed):
            await agent.ask("hello")
        assert (await agent.ask("again")).text == "fine"
        assert story(agent)[-3:-1] == ["header one/a", "answer fine by one/a"]


async def test_a_model_can_be_selected_for_a_step() -> None:
    """HDR-8: from one chain to a model and on to another chain."""
    plugins = [ta.Fallback("best", CHAIN, cooldown=0), ta.Fallback("other", ["two/b", "one/a"])]
    async with (
        world([DOWN, "one says"], ["two says", DOWN, Reply.fail("SERVER")], plugins=plugins) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        await agent.ask("hello")
        agent.select_model("two/b")
        with pytest.raises(ta.TurnFailed):
            await agent.ask("no chain here")
        agent.select_model("fallback/other")
        assert (await agent.ask("the other way round")).text == "one says"
        assert story(agent) == [
            "header one/a", "fall one SERVER 1/1", "header two/b", "answer two says by two/b", "turn end completed",
            "turn end error(SERVER)",
            "fall two SERVER 1/1", "header one/a", "answer one says by one/a", "turn end completed",
        ]  # fmt: skip


async def test_a_name_that_no_chain_has() -> None:
    async with (
        world(["never"], [], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/worst") as agent,
    ):
        with pytest.raises(ta.TurnFailed, match="there is no provider 'fallback'"):
            await agent.ask("hello")


async def test_a_model_whose_provider_is_not_registered_is_a_mistake() -> None:
    async with (
        world(["never"], plugins=[ta.Fallback("best", ["open/a", "one/a"])]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        with pytest.raises(ta.TurnFailed, match="no provider 'open'"):
            await agent.ask("hello")


async def test_a_cancel_ends_it() -> None:
    """ERR-3, D8: a cancel in the attempt that failed asks nobody else."""
    async with (
        world([Reply.hang()], ["never"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        agent.followup("hello")
        await trio.testing.wait_all_tasks_blocked()
        agent.cancel()
        await agent.when_idle()
        assert story(agent) == ["header one/a", "turn end aborted(user)"]
        assert w.counts == [1, 0]


async def test_reasoning_of_one_model_is_not_sent_to_the_other() -> None:
    """T5: the messages are rendered for who answers, whatever the agent calls its model."""
    signed = Reply.text("first", reasoning="deep", signed=True)
    async with (
        world([signed, DOWN], ["second"], plugins=[ta.Fallback("best", CHAIN)]) as w,
        w.runtime.open_agent(model="fallback/best") as agent,
    ):
        await agent.ask("hello")
        assert (await agent.ask("again")).text == "second"
        request = w.models["two"].requests[-1]
        assert (request.provider, request.model) == ("two", "b")
        spoken: list[Any] = [m.source for m in request.messages if m.role == "assistant"]
        assert [source.provider for source in spoken] == ["one"]


async def test_nothing_is_kept_of_an_agent_that_is_gone() -> None:
    fallback = ta.Fallback("best", CHAIN)
    async with world(FINE, [], plugins=[fallback]) as w:
        for _ in range(3):
            async with w.runtime.open_agent(model="fallback/best") as agent:
                await agent.ask("hello")
        assert fallback._choices == {}


@pytest.mark.parametrize(
    ("name", "models", "options", "text"),
    [
        ("", CHAIN, {}, "name of a fallback"),
        ("best", "one/a", {}, "not the single string 'one/a'"),
        ("best", ["one/a"], {}, "two or more models"),
        ("best", ["one/a", "one/a"], {}, "each once"),
        ("best", ["one/a", "two"], {}, "named provider/model, not 'two'"),
        ("best", ["one/a", 2], {}, "named provider/model, not 2"),
        ("best", ["one/a", "fallback/other"], {}, "is a fallback itself"),
        ("best", CHAIN, {"cooldown": -1}, "cooldown of a fallback"),
        ("best", CHAIN, {"cooldown": float("nan")}, "cooldown of a fallback"),
        ("best", CHAIN, {"codes": "SERVER"}, "codes of a fallback"),
    ],
)
async def test_what_cannot_be_right_is_refused(name: Any, models: Any, options: Any, text: str) -> None:
    with pytest.raises(ta.UsageError, match=text):
        ta.Fallback(name, models, **options)
