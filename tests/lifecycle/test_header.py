"""Requests: header and context records, and that a request is what the log says (HDR)."""

from __future__ import annotations

import itertools

import attrs
import pytest
import trio
from msgspec import UNSET, structs

import trio_agents as ta
from tests.lifecycle.driving import Gates, calls, echo_tool, message, settle, texts, world
from trio_agents.models import Gate, ModelInfo, Reply, ScriptedModel
from trio_agents.plugins import ReconstructionCheck
from trio_agents.session import RequestContext, RequestHeader, fold_header


def headers(w) -> list[str]:
    """The reasons of the headers in the log."""
    return [e.data.reason for e in w.agent.session.events if type(e.data) is RequestHeader]


async def test_every_request_is_a_function_of_the_log(autojump_clock) -> None:
    """HDR-1: checked byte for byte, with tools, steering, inject, a replaced surface and another model."""
    gates = Gates()
    check = ReconstructionCheck()
    gate = Gate()
    script = [
        calls("a", "b", text="let me see").gated(gate),
        Reply.fail("SERVER"),
        Reply.text("one", reasoning="hm", signed=True),
        "two",
        "three",
    ]
    async with world(
        script, tools=[gates.tool, echo_tool()], plugins=[check, ta.RetryPolicy(jitter=0)], system="Be brief."
    ) as w:
        w.agent.inject(message("i"))
        w.agent.followup(message("x"))
        await gate.reached.wait()
        w.agent.steer(message("s"))
        gate.opened.set()
        gates.open("a", "b")
        await w.agent.when_idle()
        await w.agent.clear_context()
        w.agent.select_model("scripted/other", effort="high")
        await w.agent.ask(message("y"))
        await w.agent.ask(message("z"))
        assert w.ends == ["completed"] * 3
        assert check.checked == 5


async def test_the_check_finds_what_the_log_does_not_say(autojump_clock) -> None:
    """HDR-1: the option fails a turn whose request cannot be made again."""
    check = ReconstructionCheck()
    async with world(["one", "never"], plugins=[check]) as w:
        await w.agent.ask("x")
        other = (message("not in the log"),)

        class Session:
            def __getattr__(self, name: str):
                return getattr(inner, name)

            def conversation(self):
                return other

        inner = w.agent.session
        w.agent.session = Session()
        try:
            w.agent.followup("y")
            await w.agent.when_idle()
        finally:
            w.agent.session = inner
        assert w.ends == ["completed", "error(UNKNOWN)"]
        assert w.model.request_count == 1


async def test_reasons(autojump_clock) -> None:
    """HDR-2"""
    store = ta.MemoryStore()
    async with world(["1", "2", "3"], store=store) as w:
        await w.agent.ask("x")
        await w.agent.ask("y")
        assert headers(w) == ["initial"]
        w.agent.select_model("scripted/other")
        await w.agent.ask("z")
        assert headers(w) == ["initial", "change"]
    async with world(["4", "5"], store=store, mode="resume", model="scripted/other") as w:
        await w.agent.ask("x")
        await w.agent.ask("y")
        assert headers(w) == ["initial", "change", "resume"]
    async with world(["6"], store=store, mode="resume", model="scripted/third") as w:
        await w.agent.ask("x")
        assert headers(w)[-1] == "resume"


async def test_messages_extend_those_of_the_request_before(autojump_clock) -> None:
    """HDR-3"""
    gates = Gates()
    gates.open("a")
    async with world([calls("a"), "one", "two", "three"], tools=[gates.tool]) as w:
        await w.agent.ask("x")
        await w.agent.ask("y")
        sent = [list(request.messages) for request in w.model.requests]
        for earlier, later in itertools.pairwise(sent):
            assert later[: len(earlier)] == earlier
        await w.agent.clear_context("cleared")
        await w.agent.ask("z")
        assert w.sent() == ["cleared", "z"]


async def test_an_inject_inside_before_request_joins_the_next(autojump_clock) -> None:
    """HDR-4"""
    async with world(["one", "two"]) as w:
        order: list[str] = []

        async def on_request(payload: ta.BeforeRequest, proceed) -> object:
            if not order:
                payload.agent.inject(message("i"))
            order.append("listener")
            assert texts(payload.messages)[0] == "x"
            return await proceed()

        w.agent.scope.on(ta.BeforeRequest, on_request)
        w.agent.session.observe(
            lambda event: order.append("header") if event.type == "request/header" else None
        )
        await w.agent.ask(message("x"))
        assert order == ["listener", "header", "listener"]
        assert w.sent(0) == ["x"]
        assert w.sent(1) == ["x", "one", "i"]


@pytest.mark.parametrize("how", ["other messages", "no header"])
async def test_a_listener_changes_the_header_alone(how: str, autojump_clock) -> None:
    """HDR-4"""
    async with world(["never"]) as w:

        async def on_request(payload: ta.BeforeRequest, proceed) -> object:
            if how == "no header":
                return "header"
            return await proceed(attrs.evolve(payload, messages=(message("other"),)))

        w.agent.scope.on(ta.BeforeRequest, on_request)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(UNKNOWN)"]
        assert w.model.request_count == 0
        assert headers(w) == []


async def test_the_request_is_frozen(autojump_clock) -> None:
    """HDR-4"""
    async with world(["one"]) as w:
        await w.agent.ask("x")
        [request] = w.model.requests
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            request.model = "other"  # type: ignore[misc]
        with pytest.raises((TypeError, AttributeError)):
            request.messages[0] = None  # type: ignore[index]


async def test_canonical_form(autojump_clock) -> None:
    """HDR-5"""
    async with world(Reply.text("ok"), system="", stop=()) as w:
        await w.agent.ask("x")
        header = w.agent.session.request_header()
        assert header.system is UNSET
        assert header.tools is UNSET
        assert header.adapter_defaults is UNSET
        assert header.config.stop is UNSET

        async def empties(payload: ta.BeforeRequest, proceed) -> object:
            header = await proceed()
            return structs.replace(
                header, system="", tools=(), config=structs.replace(header.config, stop=())
            )

        undo = w.agent.scope.on(ta.BeforeRequest, empties)
        await w.agent.ask("y")
        assert headers(w) == ["initial"]  # absent equals empty
        undo()
        for name in ("b", "a", "C"):
            w.agent.scope.tools.register(echo_tool(name))
        await w.agent.ask("z")
        assert [tool.name for tool in w.model.requests[-1].tools] == ["C", "a", "b"]
        assert headers(w) == ["initial", "change"]


async def test_the_configured_order(autojump_clock) -> None:
    """HDR-5"""
    tools = [echo_tool(name) for name in ("a", "b", "c", "d")]
    async with world(["ok"], tools=tools, tool_order=["c", "b"]) as w:
        await w.agent.ask("x")
        assert [tool.name for tool in w.model.requests[-1].tools] == ["c", "b", "a", "d"]
    for bad in ("c", ["c", "c"], [3]):
        with pytest.raises(ta.UsageError):
            ta.AgentOptions(tool_order=bad)  # type: ignore[arg-type]


async def test_where_header_and_context_lie(autojump_clock) -> None:
    """HDR-6"""
    async with world(
        [Reply.fail("SERVER"), Reply.fail("SERVER"), "ok"], plugins=[ta.RetryPolicy(jitter=0)]
    ) as w:

        async def warmer(payload: ta.BeforeRequest, proceed) -> object:
            header = await proceed()
            if payload.attempt == 3:
                return structs.replace(header, config=structs.replace(header.config, temperature=1.0))
            return header

        w.agent.scope.on(ta.BeforeRequest, warmer)
        await w.agent.ask(message("x"))
        assert [line for line in w.log if not line.startswith("turn")] == [
            "step 1", "user x", "header initial", "context", "finish error", "retry 1", "retry-started 1",
            "finish error", "retry 2", "retry-started 2", "header change", "text-delta", "finish stop", "answer ok",
            "step end",
        ]  # fmt: skip


async def test_the_context_record(autojump_clock) -> None:
    """HDR-7"""

    wide = ScriptedModel(Reply.text("ok"), "wide", context_window=1000)
    async with world(Reply.text("ok")) as w:
        w.runtime.models.register(wide)
        await w.agent.ask("1")
        await w.agent.ask("2")
        w.agent.select_model("wide/m")
        await w.agent.ask("3")
        w.agent.select_model("scripted/m")
        await w.agent.ask("4")
        records = [e.data for e in w.agent.session.events if type(e.data) is RequestContext]
        assert [(r.provider, r.context_window) for r in records] == [
            ("scripted", UNSET), ("wide", 1000), ("scripted", UNSET),
        ]  # fmt: skip
        assert w.agent.session.request_context() == records[-1]


async def test_defaults_of_an_adapter_are_dropped_at_the_next_route(autojump_clock) -> None:
    """HDR-7"""

    class Choosy:
        provider = "choosy"

        def __init__(self) -> None:
            self.inner = ScriptedModel(Reply.text("ok"), "choosy")

        async def info(self, model: str) -> ModelInfo:
            await trio.lowlevel.checkpoint()
            return ModelInfo(default_max_tokens=500, default_effort="low")

        async def stream(self, request, emit) -> None:
            await self.inner.stream(request, emit)

    choosy = Choosy()
    async with world(Reply.text("ok"), temperature=0.5) as w:
        w.runtime.models.register(choosy)
        w.agent.select_model("choosy/m")
        await w.agent.ask("1")
        header = w.agent.session.request_header()
        assert (header.config.max_tokens, header.config.reasoning_effort) == (500, "low")
        assert (header.adapter_defaults.max_tokens, header.adapter_defaults.reasoning_effort) == (True, True)
        assert choosy.inner.requests[0].max_tokens == 500
        w.agent.select_model("scripted/m")
        await w.agent.ask("2")
        header = w.agent.session.request_header()
        assert (header.config.max_tokens, header.config.reasoning_effort) == (UNSET, UNSET)
        assert header.adapter_defaults is UNSET
        assert header.config.temperature == 0.5


async def test_select_model_takes_effect_whole_at_the_next_step(autojump_clock) -> None:
    """HDR-8"""
    gates = Gates()
    async with world(
        [calls("a"), Reply.fail("SERVER"), "done"],
        tools=[gates.tool],
        effort="low",
        plugins=[ta.RetryPolicy(jitter=0)],
    ) as w:
        with pytest.raises(ta.UsageError):
            w.agent.select_model("m")
        with pytest.raises(ta.UsageError):
            w.agent.select_model("scripted/m", effort="")

        # Not in the step in progress:
        w.agent.session.observe(
            lambda event: w.agent.select_model("scripted/third") if event.type == "llm/retry" else None
        )
        w.agent.followup("x")
        await settle()
        w.agent.select_model("scripted/other")
        gates.open("a")
        await w.agent.when_idle()
        routes = [(r.model, r.effort) for r in w.model.requests]
        # An absent effort clears the inherited one.
        assert routes == [("m", "low"), ("other", None), ("other", None)]
        w.model.extend("more")
        await w.agent.ask("y")
        assert w.model.requests[-1].model == "third"


async def test_the_header_is_a_fold(autojump_clock) -> None:
    """HDR-9"""
    gates = Gates()
    gates.open("a")
    async with world([calls("a"), "done"], tools=[gates.tool], system="s") as w:
        session = w.agent.session
        assert session.request_header() is None
        wrong: list[int] = []

        def observe(event: ta.Event) -> None:
            if session.request_header() != fold_header(list(session.events)[: event.seq + 1]):
                wrong.append(event.seq)

        session.observe(observe)
        await w.agent.ask("x")
        w.agent.select_model("scripted/other")
        w.model.extend("more")
        await w.agent.ask("y")
        assert wrong == []
        assert session.request_header() == fold_header(list(session.events))
        with pytest.raises(AttributeError):
            session.request_header().system = "other"


class Asked:
    """A provider that counts who asks it about its models."""

    provider = "asked"

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.questions: list[str] = []
        self.inner = ScriptedModel(Reply.text("ok"), "asked")

    async def info(self, model: str) -> ModelInfo:
        await trio.lowlevel.checkpoint()
        self.questions.append(model)
        if model == "none":
            raise ta.ModelError("no such model", code="UNKNOWN_MODEL")
        return ModelInfo(default_max_tokens=self.tokens)

    async def stream(self, request, emit) -> None:
        await self.inner.stream(request, emit)


async def test_a_model_is_asked_about_once_for_all_agents(autojump_clock) -> None:
    """HDR-7: what an adapter said of a model serves every agent; a refusal is asked again, another adapter too."""
    first, second = Asked(500), Asked(700)
    async with ta.open_runtime() as runtime:
        undo = runtime.models.register(first)
        handles = [await runtime.agents.create(options=ta.AgentOptions(model="asked/m")) for _ in range(3)]
        for handle in handles:
            await handle.agent.ask("1")
            await handle.agent.ask("2")
        assert first.questions == ["m"]
        agent = handles[0].agent
        agent.select_model("asked/none")
        for _ in range(2):
            with pytest.raises(ta.TurnFailed):
                await agent.ask("3")
        assert first.questions == ["m", "none", "none"]

        undo()
        runtime.models.register(second)
        for handle in handles:
            handle.agent.select_model("asked/m")
            await handle.agent.ask("4")
        assert second.questions == ["m"]
        assert [request.max_tokens for request in second.inner.requests] == [700, 700, 700]
        header = handles[1].agent.session.request_header()
        assert header is not None
        assert header.config.max_tokens == 700


async def test_what_a_request_is_made_of_may_change_at_any_time(autojump_clock) -> None:
    """HDR-1: tools, sections, variables and listeners that come or go between two requests show in the next."""
    async with world(Reply.text("ok")) as w:
        agent, seen = w.agent, []

        async def next_request() -> None:
            await agent.ask("x")
            request = w.model.requests[-1]
            seen.append((request.system, [tool.name for tool in request.tools], request.max_tokens))

        await next_request()
        remove_tool = w.runtime.tools.register(echo_tool())
        await next_request()
        texts_of = iter(["one", "two", "two"])
        remove = agent.scope.prompt.variable(ta.Variable("now", lambda: next(texts_of)))
        agent.scope.prompt.section(ta.Section("clock", "It is {{now}}."))
        for _ in range(3):
            await next_request()
        remove_tool()
        remove()

        async def capped(asked, proceed):
            header = await proceed(asked)
            return structs.replace(header, config=structs.replace(header.config, max_tokens=9))

        undo = agent.scope.on(ta.BeforeRequest, capped)
        agent.scope.prompt.variable(ta.Variable("now", "late"))
        await next_request()
        undo()
        await next_request()
        assert seen == [
            (None, [], None),
            (None, ["echo"], None),
            ("It is one.", ["echo"], None),
            ("It is two.", ["echo"], None),
            ("It is two.", ["echo"], None),
            ("It is late.", [], 9),
            ("It is late.", [], None),
        ]
        assert headers(w) == ["initial", *["change"] * 5]
