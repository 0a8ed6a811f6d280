"""Failed requests: what is logged, who is asked, what is tried again, and the deadlines (ERR, M1, M2)."""

from __future__ import annotations

import logging

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import Gates, Refusal, calls, message, settle, world
from trio_agents.models import ModelInfo, Reply, ScriptedModel
from trio_agents.session import LlmRetry, LlmRetryStarted
from trio_agents.values import LlmFailure, TextDelta
from trio_agents.values._describe import describe

POLICY = ta.RetryPolicy(jitter=0)


def retries(w) -> list[tuple[int, float]]:
    """The retries in the log: number and delay in seconds."""
    return [
        (e.data.retry, e.data.delay_ms / 1000) for e in w.agent.session.events if type(e.data) is LlmRetry
    ]


@pytest.mark.parametrize(
    "how", ["raise", "raise late", "in band", "aborted", "unknown provider", "no answer"]
)
async def test_every_failure_of_a_request_is_asked_about(how: str, autojump_clock) -> None:
    """ERR-1"""
    some = Reply.text("par", "tial").steps[:2]
    script = {
        "raise": Reply.fail("RATE_LIMIT"),
        "raise late": Reply.fail("SERVER", after=some),
        "in band": Reply.finish_error("SERVER", after=some),
        "aborted": Reply.finish_aborted(after=some),
        "unknown provider": "never",
        "no answer": Reply.hang(),
    }[how]
    async with world([script], model="other/m" if how == "unknown provider" else "scripted/m") as w:
        asked: list[tuple[str, int, bool, str]] = []

        async def on_failure(payload: ta.RequestFailed, proceed) -> object:
            finish = w.agent.session.events[-1].data.chunk
            asked.append((payload.failure.code, payload.attempt, payload.had_output, finish.reason.kind))
            return await proceed()

        w.agent.scope.on(ta.RequestFailed, on_failure)
        w.agent.followup("x")
        await w.agent.when_idle()
        late = how in {"raise late", "in band", "aborted"}
        code = {"unknown provider": "NO_ADAPTER", "aborted": "ABORTED", "no answer": "TIMEOUT"}
        expected = code.get(how, "RATE_LIMIT" if how == "raise" else "SERVER")
        assert asked == [(expected, 1, late, "aborted" if how == "aborted" else "error")]
        assert w.ends == [f"error({expected})"]
        assert len([line for line in w.log if line.startswith("finish")]) == 1


@pytest.mark.parametrize("how", ["before request", "observer", "append"])
async def test_other_failures_end_the_turn_without_asking(how: str, autojump_clock, caplog) -> None:
    """ERR-1"""
    caplog.set_level(logging.CRITICAL)
    async with world(["fine"], plugins=[POLICY]) as w:
        asked: list[object] = []

        async def on_failure(payload: ta.RequestFailed, proceed) -> object:
            asked.append(payload)
            return await proceed()

        w.agent.scope.on(ta.RequestFailed, on_failure)
        refusal = Refusal(w.agent)
        if how == "before request":

            async def fails(payload: ta.BeforeRequest, proceed) -> object:
                raise LookupError("no")

            w.agent.scope.on(ta.BeforeRequest, fails)
        elif how == "append":
            refusal.types = {"assistant/chunk"}
        else:

            def observer(event: ta.Event) -> None:
                if event.type == "assistant/chunk":
                    raise LookupError("observer")

            w.agent.session.observe(observer)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert asked == []
        assert w.ends == ["completed" if how == "observer" else "error(UNKNOWN)"]


async def test_a_retry_stays_in_its_step(autojump_clock) -> None:
    """ERR-2"""
    failing = Reply.finish_error("SERVER", after=Reply.text("secret").steps[:1])
    async with world([failing, "fine", "next"], plugins=[POLICY]) as w:
        w.watch()
        before: list[int] = []

        async def on_request(payload: ta.BeforeRequest, proceed) -> object:
            before.append(payload.attempt)
            return await proceed()

        w.agent.scope.on(ta.BeforeRequest, on_request)
        await w.agent.ask(message("x"))
        assert [line for line in w.log if not line.startswith(("header", "context"))] == [
            "turn[0] +x", "turn 1", "turn[0] -1 claim", "step 1", "user x", "finish error", "retry 1", "retry-started 1",
            "text-delta", "finish stop", "answer fine", "step end", "turn end completed",
        ]  # fmt: skip
        assert before == [1, 2]
        await w.agent.when_idle()
        assert [line for line in w.notes() if line in {"running", "idle"}] == ["running", "idle"]
        await w.agent.ask("y")
        assert w.sent() == ["x", "fine", "y"]


async def test_a_cancel_beats_a_retry(autojump_clock) -> None:
    """ERR-3"""
    async with world([Reply.fail("SERVER"), "never"]) as w:

        async def on_failure(payload: ta.RequestFailed, proceed) -> ta.Retry:
            payload.agent.cancel()
            return ta.Retry(delay=0, policy_key="mine")

        w.agent.scope.on(ta.RequestFailed, on_failure)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]
        assert w.model.request_count == 1
        assert retries(w) == []


async def test_a_raising_listener_gives_the_reason(autojump_clock) -> None:
    """ERR-3"""
    async with world([Reply.fail("SERVER")]) as w:

        async def on_failure(payload: ta.RequestFailed, proceed) -> ta.Retry:
            raise LookupError("confused")

        w.agent.scope.on(ta.RequestFailed, on_failure)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(UNKNOWN)"]
        assert "confused" in w.agent.session.events[-1].data.reason.error.message


async def test_a_wrong_answer_of_a_listener(autojump_clock) -> None:
    """ERR-3"""
    async with world([Reply.fail("SERVER")]) as w:

        async def on_failure(payload: ta.RequestFailed, proceed) -> object:
            return "again, please"

        w.agent.scope.on(ta.RequestFailed, on_failure)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(UNKNOWN)"]


async def test_a_cancel_ends_the_back_off_at_once(autojump_clock) -> None:
    """ERR-4, C6"""
    failure = ta.ModelError("slow down", code="RATE_LIMIT", retry_after_ms=300_000)
    async with world([Reply.fail(failure), "never"], plugins=[ta.RetryPolicy(max_delay=400)]) as w:
        w.agent.followup("x")
        await trio.sleep(1)
        assert retries(w) == [(1, 300.0)]
        start = trio.current_time()
        await w.agent.stop()
        assert trio.current_time() == start
        assert w.ends == ["aborted(user)"]
        assert w.model.request_count == 1
        assert not [e for e in w.agent.session.events if type(e.data) is LlmRetryStarted]


async def test_the_wait_lies_between_the_two_records(autojump_clock) -> None:
    """ERR-4"""
    async with world([Reply.fail("SERVER"), "fine"], plugins=[POLICY]) as w:
        at: dict[str, float] = {}
        w.agent.session.observe(lambda event: at.setdefault(event.type, trio.current_time()))
        await w.agent.ask("x")
        assert at["llm/retry-started"] - at["llm/retry"] == 0.5


@pytest.mark.parametrize("code", ["EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"])
async def test_what_is_retried_and_how_often(code: str, autojump_clock) -> None:
    """ERR-5, ERR-6, ERR-7"""
    async with world(lambda request: Reply.fail(code), plugins=[POLICY]) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == [f"error({code})"]
        assert w.model.request_count == 6
        assert retries(w) == [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0)]
        records = [e.data for e in w.agent.session.events if type(e.data) is LlmRetry]
        assert len({record.retry_id for record in records}) == 1
        assert {record.max_retries for record in records} == {5}


@pytest.mark.parametrize("code", ["AUTH", "INVALID_REQUEST", "QUOTA", "CONTEXT_WINDOW_EXCEEDED", "UNKNOWN"])
async def test_what_is_not_retried(code: str, autojump_clock) -> None:
    """ERR-5"""
    async with world([Reply.fail(code)], plugins=[POLICY]) as w:
        asked: list[str] = []

        async def behind(payload: ta.RequestFailed, proceed) -> object:
            asked.append(payload.failure.code)
            return await proceed()

        w.agent.scope.on(ta.RequestFailed, behind)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert asked == [code]  # the policy proceeds
        assert w.model.request_count == 1


@pytest.mark.parametrize("after_output", [False, True])
async def test_no_blind_retry_after_visible_output(after_output: bool, autojump_clock) -> None:
    """ERR-5, M1"""
    script = [Reply.fail("SERVER", after=Reply.text("vis", "ible").steps[:2]), "fine"]
    async with world(script, plugins=[ta.RetryPolicy(jitter=0, after_output=after_output)]) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["completed" if after_output else "error(SERVER)"]


async def test_an_empty_reply_is_no_success(autojump_clock) -> None:
    """ERR-5, M2"""
    async with world([Reply.empty(), Reply.chunks([]), "text"], plugins=[POLICY]) as w:
        reply = await w.agent.ask("x")
        assert reply.text == "text"
        assert len(retries(w)) == 2
        assert len([line for line in w.log if line.startswith("answer")]) == 1
        finishes = [
            e.data.chunk.reason.failure.code
            for e in w.agent.session.events
            if e.type == "assistant/chunk"
            and e.data.chunk.tag == "finish"
            and e.data.chunk.reason.kind == "error"
        ]
        assert finishes == ["EMPTY_RESPONSE"] * 2


async def test_reasoning_counts_as_content(autojump_clock) -> None:
    """ERR-5, M2"""
    async with world([Reply.text(reasoning="hmm")], plugins=[POLICY]) as w:
        reply = await w.agent.ask("x")
        assert (reply.text, reply.end.kind) == ("", "completed")
        assert retries(w) == []


@pytest.mark.parametrize(
    "bad", [{"max_retries": 0}, {"first_delay": -1}, {"max_delay": float("inf")}, {"jitter": 1}]
)
def test_policies_are_validated(bad: dict[str, object]) -> None:
    """ERR-5"""
    with pytest.raises(ta.UsageError):
        ta.RetryPolicy(**bad)  # type: ignore[arg-type]


def test_back_off() -> None:
    """ERR-6"""
    low, high = ta.RetryPolicy(random=lambda: 0.0), ta.RetryPolicy(random=lambda: 0.999999)
    for n, base in ((1, 0.5), (2, 1.0), (5, 8.0)):
        assert low.delay(n) == pytest.approx(base * 0.9)
        assert high.delay(n) == pytest.approx(base * 1.1, rel=1e-4)
    assert high.delay(6) == 10.0
    assert high.delay(5000) == 10.0
    assert low.delay(1, 7000) == 7.0
    assert low.delay(1, 10_000) == 10.0
    assert low.delay(1, 10_001) is None
    for odd in (0, -5, float("nan"), float("inf")):
        assert low.delay(1, odd) == pytest.approx(0.45)


async def test_a_hint_above_the_cap_is_not_followed(autojump_clock) -> None:
    """ERR-6"""
    failure = ta.ModelError("slow down", code="RATE_LIMIT", retry_after_ms=11_000)
    async with world([Reply.fail(failure)], plugins=[POLICY]) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(RATE_LIMIT)"]
        assert retries(w) == []


async def test_a_new_step_and_another_provider_have_chains_of_their_own(autojump_clock) -> None:
    """ERR-7"""
    gates = Gates()
    gates.open("c")
    other = ScriptedModel([Reply.fail("SERVER"), "fine"], "other")
    script = [Reply.fail("SERVER"), Reply.fail("SERVER"), calls("c"), Reply.fail("SERVER")]
    async with world(script, tools=[gates.tool], plugins=[POLICY]) as w:
        w.runtime.models.register(other)
        from msgspec import structs

        async def reroute(payload: ta.BeforeRequest, proceed) -> object:
            header = await proceed()
            if payload.step == 2 and payload.attempt > 1:
                return structs.replace(header, config=structs.replace(header.config, provider="other"))
            return header

        w.agent.scope.on(ta.BeforeRequest, reroute)
        await w.agent.ask("x")
        records = [e.data for e in w.agent.session.events if type(e.data) is LlmRetry]
        assert [(r.step, r.provider, r.retry) for r in records] == [
            (1, "scripted", 1), (1, "scripted", 2), (2, "scripted", 1), (2, "other", 1),
        ]  # fmt: skip
        assert len({r.retry_id for r in records}) == 3


def test_error_text() -> None:
    """ERR-8"""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    try:
        try:
            raise KeyError("root")
        except KeyError as exc:
            raise ValueError("middle") from exc
    except ValueError as exc:
        group = ExceptionGroup("group", [exc, Unprintable()])
    text = describe(group)
    assert "root" in text
    assert "middle" in text
    assert "Unprintable" in text
    loop = ValueError("one")
    loop.__cause__ = ValueError("two")
    loop.__cause__.__cause__ = loop
    assert describe(loop).count("one") == 1
    assert describe(Unprintable()) != ""


class _Adapter:
    """An adapter whose stream is a function."""

    provider = "scripted"

    def __init__(self, stream, info=None) -> None:
        self.stream = stream
        self._info = info

    async def info(self, model: str) -> ModelInfo:
        if self._info is not None:
            return await self._info(model)
        await trio.lowlevel.checkpoint()
        return ModelInfo()


async def run_with(adapter: object, **options: object) -> ta.Agent:
    """One turn over an adapter; gives the agent, which has ended."""
    async with (
        ta.open_runtime(models=[adapter], plugins=()) as runtime,  # type: ignore[list-item]
        runtime.open_agent("a", model="scripted/m", **options) as agent,  # type: ignore[arg-type]
    ):
        agent.followup("x")
        await agent.when_idle()
        return agent


async def test_a_request_left_early_is_cancelled_and_awaited(autojump_clock) -> None:
    """ERR-9"""
    seen: list[str] = []

    async def stream(request, emit) -> None:
        emit(TextDelta(index=0, text="a"))
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            seen.append("clean")

    agent = await run_with(_Adapter(stream), silence_timeout=5)
    assert seen == ["clean"]
    assert agent.session.events[-1].data.reason.error.code == "TIMEOUT"


async def test_a_failing_clean_up_is_raised_as_itself(autojump_clock) -> None:
    """ERR-9"""

    async def stream(request, emit) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("clean-up")

    agent = await run_with(_Adapter(stream), first_byte_timeout=5)
    assert "clean-up" in agent.session.events[-1].data.reason.error.message


async def test_a_failure_behind_a_whole_answer_does_not_undo_it(autojump_clock, caplog) -> None:
    """ERR-1: the log has the finish, so the answer stands."""
    caplog.set_level(logging.CRITICAL)
    whole = Reply.text("whole")

    async def stream(request, emit) -> None:
        await trio.lowlevel.checkpoint()
        for chunk in whole.steps:
            emit(chunk)
        raise LookupError("late")

    agent = await run_with(_Adapter(stream))
    assert agent.session.events[-1].data.reason.kind == "completed"


async def test_a_group_of_user_code_stays_and_ours_never_show(autojump_clock) -> None:
    """ERR-10"""

    async def fails(payload: ta.PreStep, proceed) -> object:
        raise ExceptionGroup("theirs", [LookupError("a"), ValueError("b")])

    async with world() as w:
        w.agent.scope.on(ta.PreStep, fails)
        with pytest.raises(ta.TurnFailed) as info:
            await w.agent.ask("x")
        assert isinstance(info.value.__cause__, ExceptionGroup)
        assert info.value.__cause__.message == "theirs"


async def test_cancelled_is_never_wrapped(autojump_clock) -> None:
    """ERR-10"""
    async with world([Reply.hang()]) as w:
        with trio.move_on_after(1) as scope:
            await w.agent.ask("x")
        assert scope.cancelled_caught


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["headers only", "one fragment"])
async def test_a_silent_stream_ends_at_its_deadline(how: str, autojump_clock) -> None:
    """M1"""
    start = trio.current_time()
    after = Reply.text("frag", "ment").steps[:2] if how == "one fragment" else ()
    async with world(
        [Reply.hang(after=after), "fine"], plugins=[POLICY], first_byte_timeout=7, silence_timeout=3
    ) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        if how == "headers only":
            assert w.ends == ["completed"]  # retried
            assert trio.current_time() - start == pytest.approx(7.5)
        else:
            assert w.ends == ["error(TIMEOUT)"]  # no blind retry
            assert trio.current_time() - start == pytest.approx(3)


async def test_the_observers_time_does_not_count(autojump_clock) -> None:
    """M1"""
    async with world([Reply.text("a", "b", "c").paced(2)], first_byte_timeout=5, silence_timeout=5) as w:
        w.agent.session.observe(
            lambda event: autojump_clock.jump(50) if event.type == "assistant/chunk" else None
        )
        assert (await w.agent.ask("x")).text == "abc"


async def test_no_deadline_is_possible(autojump_clock) -> None:
    """M1"""
    slow = Reply.text("late").delayed(100_000)
    async with world([slow], first_byte_timeout=None, silence_timeout=None) as w:
        assert (await w.agent.ask("x")).text == "late"


async def test_an_adapter_that_never_says_what_a_model_is(autojump_clock) -> None:
    """M1: asking for a model's properties has the first byte's deadline."""

    async def info(model: str) -> ModelInfo:
        await trio.sleep_forever()
        raise AssertionError

    async def stream(request, emit) -> None:
        raise AssertionError

    agent = await run_with(_Adapter(stream, info), first_byte_timeout=4)
    assert agent.session.events[-1].data.reason.error.code == "TIMEOUT"
    assert trio.current_time() == pytest.approx(4, abs=1)


async def test_an_adapter_that_fails_to_say_what_a_model_is(autojump_clock) -> None:
    """ERR-1"""

    async def info(model: str) -> ModelInfo:
        raise LookupError("no idea")

    async def stream(request, emit) -> None:
        raise AssertionError

    agent = await run_with(_Adapter(stream, info))
    failure = agent.session.events[-1].data.reason.error
    assert failure.code == "UNKNOWN"
    assert "no idea" in failure.message


@pytest.mark.parametrize(
    "hook", [ta.PreStep, ta.AssemblePrompt, ta.BeforeRequest, ta.RequestFailed, ta.TurnStopping]
)
async def test_a_hook_that_never_returns(hook: type, autojump_clock) -> None:
    """ERR-10, D19: every wait has its deadline and its typed end."""

    async def around(payload, proceed) -> None:
        await trio.sleep_forever()

    async def serial(payload) -> None:
        await trio.sleep_forever()

    script = [Reply.fail("AUTH") if hook is ta.RequestFailed else Reply.text("fine")]
    async with world(script, hook_timeout=9) as w:
        w.agent.scope.on(hook, serial if hook is ta.TurnStopping else around)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(UNKNOWN)"]
        assert f"the {hook.__name__} listeners did not answer within 9 s" in (
            w.agent.session.events[-1].data.reason.error.message
        )
        assert trio.current_time() == pytest.approx(9, abs=1)


async def test_a_tool_that_never_ends_and_a_hook_around_it(autojump_clock) -> None:
    """D19"""

    @ta.tool
    async def forever() -> None:
        """Never end."""
        await trio.sleep_forever()

    async def around(payload: ta.AroundTool, proceed) -> object:
        result = await proceed()
        if payload.call.id == "b":
            await trio.sleep_forever()
        return result

    script = [Reply.tool_calls([("forever", {}, "a"), ("forever", {}, "b")]), "done"]
    async with world(script, tools=[forever], tool_timeout=100, hook_timeout=10) as w:
        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        results = [line for line in w.log if line.startswith("result")]
        # While the body runs the hook's time stands still; afterwards it has ten seconds again.
        assert results == ["result a TOOL_TIMEOUT", "result b TOOL_FAILED"]
        assert trio.current_time() == pytest.approx(210, abs=1)


async def test_a_failure_holds_the_providers_facts_alone(autojump_clock) -> None:
    """ERR-8"""
    failure = LlmFailure(message="overloaded", code="SERVER", status=529)
    async with world([Reply.finish_error(failure)]) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.agent.session.events[-1].data.reason.error == failure


async def test_idle_comes_also_when_everything_fails(autojump_clock) -> None:
    """I1"""
    async with world([Reply.fail("AUTH")]) as w:
        w.agent.followup("x")
        with trio.fail_after(1000):
            await w.agent.when_idle()
        await settle()
        assert w.agent.status == "idle"
