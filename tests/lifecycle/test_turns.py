"""Turns and steps: what is logged in which order, and how a turn ends (TRN)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import Gates, Refusal, calls, echo_tool, message, settle, store_of, world
from trio_agents.models import Gate, Reply
from trio_agents.session import AssistantMessage
from trio_agents.values import (
    COMPLETED,
    Aborted,
    Failed,
    FinishError,
    ForeignEnd,
    LlmFailure,
    TurnEndReason,
)


async def test_a_plain_turn(autojump_clock) -> None:
    """TRN-1"""
    async with world([Reply.text("an", "swer")]) as w:
        await w.agent.ask(message("x"))
        assert w.types == [
            "agent/inbox/spliced", "turn/start", "agent/inbox/spliced", "step/start", "user/message", "request/header",
            "request/context", *["assistant/chunk"] * 6, "assistant/message", "step/end", "turn/end",
        ]  # fmt: skip
        assert w.turn_log == [
            "turn[0] +x", "turn 1", "turn[0] -1 claim", "step 1", "user x", "answer answer", "step end",
            "turn end completed",
        ]  # fmt: skip


async def test_a_tool_turn(autojump_clock) -> None:
    """TRN-2"""
    gates = Gates()
    gates.open("c", "d")
    async with world([calls("c", "d"), "done"], tools=[gates.tool]) as w:
        await w.agent.ask(message("x"))
        assert [line for line in w.turn_log[3:] if not line.startswith("started")] == [
            "step 1", "user x", "answer call c|call d", "call c", "call d", "result c ok", "result d ok", "step end",
            "step 2", "answer done", "step end", "turn end completed",
        ]  # fmt: skip
        assert w.sent() == ["x", "call c", "call d", "result c: c", "result d: d"]


async def test_what_comes_before_a_step(autojump_clock) -> None:
    """TRN-3"""
    gates = Gates()
    gates.open("c")
    async with world([calls("c"), "done"], tools=[gates.tool]) as w:
        seen: list[tuple[object, ...]] = []

        async def assembles(payload: ta.AssemblePrompt, proceed) -> object:
            seen.append(("prompt", payload.turn, payload.step, w.agent.session.open_step))
            return await proceed()

        async def pre_step(payload: ta.PreStep, proceed) -> object:
            texts = [m.text for m in payload.batch]
            seen.append(("pre-step", payload.turn, payload.step, texts, w.agent.session.open_step))
            return await proceed()

        w.agent.scope.on(ta.AssemblePrompt, assembles)
        w.agent.scope.on(ta.PreStep, pre_step)
        await w.agent.ask(message("x"))
        assert seen == [
            ("prompt", 1, 1, None), ("pre-step", 1, 1, ["x"], None),
            ("prompt", 1, 2, None), ("pre-step", 1, 2, [], None),
        ]  # fmt: skip


async def test_pre_step_rejects_the_first_and_a_later_step(autojump_clock) -> None:
    """TRN-4"""
    gates = Gates()
    gates.open("c")
    for step in (1, 2):
        async with world([calls("c"), "never"], tools=[gates.tool]) as w:

            async def pre_step(payload: ta.PreStep, proceed, step: int = step) -> object:
                if payload.step == step:
                    payload.agent.inject(message("staged"))
                    return ta.Reject()
                return await proceed()

            w.agent.scope.on(ta.PreStep, pre_step)
            with pytest.raises(ta.TurnBlocked):
                await w.agent.ask(message("x"))
            await w.agent.when_idle()
            assert [line for line in w.log if line.startswith(("step 1", "step 2", "turn end"))] == [
                *(["step 1"] if step == 2 else []), "turn end blocked",
            ]  # fmt: skip
            assert w.pending() == (["staged"], [])


async def test_pre_step_rewrites_and_extends(autojump_clock) -> None:
    """TRN-5"""

    async def pre_step(payload: ta.PreStep, proceed) -> ta.Enter:
        note = ta.UserMessage.from_webhook("note", hook_id="h", delivery_id="d", id="note")
        return ta.Enter(messages=(note, *payload.batch))

    async with world(["answer"]) as w:
        w.agent.scope.on(ta.PreStep, pre_step)
        await w.agent.ask(message("x"))
        users = [event.data for event in w.agent.session.events if event.type == "user/message"]
        assert [(m.text, m.source.kind) for m in users] == [("note", "webhook"), ("x", "user")]
        assert w.sent() == ["note", "x"]


@pytest.mark.parametrize("answer", [None, "enter", ta.Enter(messages=("text",))])  # type: ignore[arg-type]
async def test_a_wrong_answer_of_pre_step(answer: object, autojump_clock) -> None:
    """TRN-5: an error turn that says what was wrong; the batch returns."""

    async def pre_step(payload: ta.PreStep, proceed) -> object:
        return answer

    async with world() as w:
        w.agent.scope.on(ta.PreStep, pre_step)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.ends == ["error(UNKNOWN)"]
        assert "not" in w.agent.session.events[-1].data.reason.error.message
        assert w.pending() == ([], ["x"])


async def test_a_first_batch_rewritten_to_nothing(autojump_clock) -> None:
    """TRN-5"""

    async def pre_step(payload: ta.PreStep, proceed) -> ta.Enter:
        return ta.Enter(messages=())

    async with world() as w:
        w.agent.scope.on(ta.PreStep, pre_step)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.turn_log == [
            "turn[0] +x", "turn 1", "turn[0] -1 claim", "turn[0] +x", "turn[0] -1 canceled", "turn end completed",
        ]  # fmt: skip
        assert w.model.request_count == 0


@pytest.mark.parametrize("tools", [False, True])
async def test_a_later_batch_rewritten_to_nothing(tools: bool, autojump_clock) -> None:
    """TRN-6"""
    gates = Gates()
    gates.open("c")

    async def pre_step(payload: ta.PreStep, proceed) -> object:
        return ta.Enter(messages=()) if payload.step > 1 else await proceed()

    gate = Gate()
    first = calls("c") if tools else Reply.max_tokens("cut")
    async with world([first.gated(gate), "after tools"], tools=[gates.tool]) as w:
        w.agent.scope.on(ta.PreStep, pre_step)
        w.agent.followup(message("x"))
        await gate.reached.wait()
        w.agent.steer(message("s"))
        gate.opened.set()
        await w.agent.when_idle()
        assert w.ends == ["completed" if tools else "max-tokens"]
        assert w.model.request_count == (2 if tools else 1)


async def test_messages_staged_during_pre_step_join_the_next_step(autojump_clock) -> None:
    """TRN-7"""

    async def pre_step(payload: ta.PreStep, proceed) -> object:
        if payload.step == 1:
            payload.agent.steer(message("s"))
        return await proceed()

    async with world(["one", "two"]) as w:
        w.agent.scope.on(ta.PreStep, pre_step)
        await w.agent.ask(message("x"))
        assert w.sent(0) == ["x"]
        assert w.sent(1) == ["x", "one", "s"]


async def test_steering_during_tools_follows_all_results(autojump_clock) -> None:
    """TRN-7"""
    gates = Gates()
    async with world([calls("c", "d"), "done"], tools=[gates.tool]) as w:
        w.agent.followup(message("x"))
        await settle()
        w.agent.inject(message("i"))
        w.agent.steer(message("s"))
        gates.open("c", "d")
        await w.agent.when_idle()
        assert w.sent() == ["x", "call c", "call d", "result c: c", "result d: d", "i", "s"]
        start = w.turn_log.index("step 2")
        assert w.turn_log[start - 2 : start + 3] == [
            "step end",
            "step[0] -2 claim",
            "step 2",
            "user i",
            "user s",
        ]


async def test_turn_stopping_listeners(autojump_clock) -> None:
    """TRN-8"""
    gates = Gates()
    gates.open("c")
    async with world([calls("c"), "one", "two", "three"], tools=[gates.tool]) as w:
        seen: list[str] = []

        async def first(payload: ta.TurnStopping) -> None:
            await trio.sleep(1)
            seen.append(f"first {payload.turn}")

        async def second(payload: ta.TurnStopping) -> None:
            seen.append("second")
            if seen.count("second") == 1:
                payload.agent.steer(message("more"))
            elif seen.count("second") == 2:
                payload.agent.inject(message("and more"))

        w.agent.scope.on(ta.TurnStopping, first)
        w.agent.scope.on(ta.TurnStopping, second)
        await w.agent.ask(message("x"))
        assert seen == ["first 1", "second"] * 3
        assert [line for line in w.turn_log if line.startswith(("answer", "user", "turn end"))] == [
            "user x", "answer call c", "answer one", "user more", "answer two", "user and more", "answer three",
            "turn end completed",
        ]  # fmt: skip


async def test_a_stopping_hook_that_never_lets_go(autojump_clock) -> None:
    """TRN-8, H4: an absolute cap, a reason that says so, and a fresh count for the next turn."""
    async with world(Reply.text("ok"), max_stop_continuations=3) as w:

        async def more(payload: ta.TurnStopping) -> None:
            payload.agent.steer("more")

        w.agent.scope.on(ta.TurnStopping, more)
        for turn in (1, 2):
            reply = await w.agent.ask(f"x{turn}")
            assert reply.end.kind == "max-turn-requests"
            await w.agent.when_idle()
            # The steer of the last round stays pending, and joins the next turn.
            assert w.model.request_count == 4 * turn
            assert w.pending() == (["more"], [])
        assert w.ends == ["max-turn-requests"] * 2


@pytest.mark.parametrize("how", ["success", "error", "abort"])
async def test_every_bracket_closes(how: str, autojump_clock) -> None:
    """TRN-9"""
    script = {"success": Reply.text("ok"), "error": Reply.fail("AUTH"), "abort": Reply.hang()}[how]
    async with world([script, "next"]) as w:
        w.agent.followup(message("x"))
        await settle()
        if how == "abort":
            steps: list[object] = []
            w.agent.session.observe(lambda event: steps.append(event.type))
            w.agent.cancel()
        await w.agent.when_idle()
        assert w.log[-2] == "step end"
        await w.agent.ask("y")
        assert [line for line in w.log if line.startswith("turn ")][2::2] == ["turn 2"]


async def test_turn_numbers_continue_in_a_resumed_log(autojump_clock) -> None:
    """TRN-9"""
    store = ta.MemoryStore()
    async with world(["1", "2"], store=store) as w:
        await w.agent.ask("x")
        await w.agent.ask("y")
    async with world(["3"], store=store, mode="resume") as w:
        assert (await w.agent.ask("z")).turn == 3


async def test_an_error_turn(autojump_clock) -> None:
    """TRN-10"""
    failure = ta.ModelError("no credit", code="QUOTA", status=402, retry_after_ms=5000, request_id="r-1")
    async with world([Reply.fail(failure)]) as w:
        w.watch()
        told: list[ta.AgentFailed] = []
        w.agent.scope.on(ta.AgentFailed, told.append)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        start = w.seen.index("step end")
        assert w.seen[start:] == ["step end", "error 1.1 QUOTA", "turn end error(QUOTA)", "idle"]
        end = w.agent.session.events[-1].data.reason
        assert (end.error.status, end.error.provider_retry_after_ms, end.error.request_id) == (
            402,
            5000,
            "r-1",
        )
        assert told[0].error is failure


async def test_an_error_that_is_not_the_providers(autojump_clock) -> None:
    """TRN-10"""

    async def fails(payload: ta.PreStep, proceed) -> object:
        try:
            raise LookupError("inner")
        except LookupError as exc:
            raise RuntimeError("outer") from exc

    async with world() as w:
        w.watch()
        w.agent.scope.on(ta.PreStep, fails)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert [line for line in w.seen if line.startswith("error")] == ["error 1.None UNKNOWN"]
        failure = w.agent.session.events[-1].data.reason.error
        assert "outer" in failure.message
        assert "inner" in failure.message


async def test_an_aborted_turn_tells_no_error(autojump_clock) -> None:
    """TRN-10"""

    async def fails(payload: ta.PreStep, proceed) -> object:
        payload.agent.cancel()
        raise RuntimeError("whatever")

    async with world() as w:
        w.watch()
        w.agent.scope.on(ta.PreStep, fails)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert not [line for line in w.seen if line.startswith("error")]
        assert w.ends == ["aborted(user)"]


async def test_a_step_that_hits_the_output_cap(autojump_clock) -> None:
    """TRN-11, T7: calls are dropped, the rest stays, and the next request is whole."""
    gates = Gates()
    script = [
        Reply.max_tokens("so far", calls=[("gated", '{"key": "a"}', "a"), ("gated", '{"ke', "b")]),
        Reply.max_tokens(calls=[("gated", '{"ke', "c")]),
        "fine",
    ]
    async with world(script, tools=[gates.tool]) as w:
        assert (await w.agent.ask("1")).text == "so far"
        reply = await w.agent.ask("2")
        assert (reply.text, reply.end.kind, reply.usage.output_tokens) == ("", "max-tokens", 5)
        await w.agent.ask("3")
        assert gates.began == []
        answers = [e.data for e in w.agent.session.events if type(e.data) is AssistantMessage]
        assert [(a.message.text, len(a.message.content)) for a in answers] == [
            ("so far", 1),
            ("", 0),
            ("fine", 1),
        ]
        assert all(a.usage for a in answers)
        assert w.sent() == ["1", "so far", "2", "3"]
        assert len([m for m in w.agent.session.messages() if m.role == "assistant"]) == 2


async def test_max_tokens_is_sticky_within_its_turn(autojump_clock) -> None:
    """TRN-12, M8"""
    gate = Gate()
    async with world([Reply.max_tokens("cut").gated(gate), "whole", "next"]) as w:
        receipt = w.agent.followup(message("x"))
        await gate.reached.wait()
        w.agent.steer(message("s"))
        gate.opened.set()
        assert (await receipt.settled()).end.kind == "max-tokens"
        assert (await w.agent.ask("y")).end.kind == "completed"
        assert w.model.request_count == 3


async def test_a_refusal(autojump_clock) -> None:
    """TRN-13"""
    gates = Gates()
    refusal = Reply.chunks(
        [
            *Reply.tool_calls([("gated", {"key": "c"}, "c")], text="no").steps[:-1],
            *Reply.refusal("x").steps[-1:],
        ]
    )
    async with world([refusal], tools=[gates.tool], strict=False) as w:
        reply = await w.agent.ask("x")
        assert (reply.end.kind, reply.text) == ("refusal", "no")
        assert gates.began == []


async def test_the_request_after_a_refusal_with_calls_is_whole(autojump_clock) -> None:
    """TRN-13, T1: a refused message's calls have no results, so they must not stand in a request."""
    refusal = Reply.chunks(
        [
            *Reply.tool_calls([("gated", {"key": "c"}, "c")], text="no").steps[:-1],
            *Reply.refusal("x").steps[-1:],
        ]
    )
    async with world([refusal, "fine"], tools=[Gates().tool]) as w:
        await w.agent.ask("x")
        assert (await w.agent.ask("y")).text == "fine"
        assert w.sent() == ["x", "no", "y"]


async def test_the_request_cap(autojump_clock) -> None:
    """TRN-13"""
    gates = Gates()
    gates.open("c", "d")
    async with world([calls("c"), calls("d"), "next turn"], tools=[gates.tool], max_requests=2) as w:
        gate = trio.Event()

        async def steers(payload: ta.AroundTool, proceed) -> object:
            if payload.call.id == "d":
                payload.agent.inject(message("waiting"))
            return await proceed()

        del gate
        w.agent.scope.on(ta.AroundTool, steers)
        reply = await w.agent.ask("x")
        assert reply.end.kind == "max-turn-requests"
        assert w.model.request_count == 2
        assert w.pending() == (["waiting"], [])


def test_ends_are_made_right() -> None:
    """TRN-14"""
    failure = LlmFailure(message="m", code="C")
    assert set(TurnEndReason.members) == {
        "completed", "blocked", "max-tokens", "refusal", "max-turn-requests", "aborted", "error", "interrupted",
    }  # fmt: skip
    with pytest.raises(TypeError):
        Aborted()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Failed()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        type(COMPLETED)(reason=ta.BY_USER)
    with pytest.raises(ta.UsageError):
        Aborted(reason=failure)  # type: ignore[arg-type]
    with pytest.raises(ta.UsageError):
        Failed(error=ta.BY_USER)  # type: ignore[arg-type]
    from trio_agents.session import StepStart, TurnEnd, TurnStart

    for bad in (0, -1, 1.0, True, "1", None):
        with pytest.raises(ta.UsageError):
            TurnStart(turn=bad)  # type: ignore[arg-type]
        with pytest.raises(ta.UsageError):
            StepStart(turn=1, step=bad)  # type: ignore[arg-type]
        with pytest.raises(ta.UsageError):
            TurnEnd(turn=bad, reason=COMPLETED)  # type: ignore[arg-type]


async def test_an_unknown_end_reads_as_no_success(autojump_clock) -> None:
    """TRN-15"""
    from trio_agents.loop._reply import end_error
    from trio_agents.session import decode_event, encode_event

    line = b'{"type":"turn/end","seq":0,"time":1,"data":{"turn":1,"reason":{"kind":"exploded","by":"them"}}}'
    event = decode_event(line, seq=0)
    assert encode_event(event) == line
    assert type(event.data.reason) is ForeignEnd
    assert isinstance(end_error(1, event.data.reason), ta.TurnFailed)


async def test_a_concluding_result(autojump_clock) -> None:
    """TRN-16"""

    @ta.tool
    async def finish() -> ta.ToolReturn:
        """Conclude."""
        return ta.ToolReturn("done", concludes=True)

    async with world([Reply.tool_call("finish")], tools=[finish]) as w:
        stops: list[int] = []

        async def stopping(payload: ta.TurnStopping) -> None:
            stops.append(payload.turn)

        w.agent.scope.on(ta.TurnStopping, stopping)
        reply = await w.agent.ask("x")
        assert reply.end.kind == "completed"
        assert w.model.request_count == 1
        assert stops == []


async def test_steering_after_a_concluding_result_still_gets_a_step(autojump_clock) -> None:
    """TRN-16"""

    @ta.tool
    async def finish(context: ta.ToolContext) -> ta.ToolReturn:
        """Conclude."""
        agent: Any = context.agent
        agent.steer(message("s"))
        return ta.ToolReturn("done", concludes=True)

    async with world([Reply.tool_call("finish", id="c"), "seen"], tools=[finish]) as w:
        await w.agent.ask("x")
        assert w.sent() == ["x", "call c", "result c: done", "s"]
        assert w.ends == ["completed"]


async def test_a_finish_that_says_aborted(autojump_clock) -> None:
    """TRN-17"""
    async with world([Reply.finish_aborted(after=Reply.text("par").steps[:2])]) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(ABORTED)"]
        assert not [line for line in w.log if line.startswith("answer")]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (None, "no model was chosen"),
        ("gpt-5", "a model is named provider/model, not 'gpt-5'"),
        ("/gpt-5", "a model is named provider/model, not 'gpt-5'"),
        ("unknown/m", "no provider 'unknown'"),
    ],
)
async def test_no_provider_or_model(model: str | None, said: str, autojump_clock) -> None:
    """TRN-17"""
    async with world(["never"], model=model) as w:
        w.agent.followup("x")
        await w.agent.when_idle()
        assert w.ends == ["error(NO_ADAPTER)"]
        text = w.agent.session.events[-1].data.reason.error.message
        assert said in text
        assert w.model.request_count == 0


async def test_a_before_request_listener_may_supply_the_model(autojump_clock) -> None:
    """TRN-17"""
    from msgspec import structs

    async with world(["fine"], model=None) as w:

        async def supply(payload: ta.BeforeRequest, proceed) -> object:
            header = await proceed()
            return structs.replace(
                header, config=structs.replace(header.config, provider="scripted", model="supplied")
            )

        w.agent.scope.on(ta.BeforeRequest, supply)
        assert (await w.agent.ask("x")).text == "fine"
        assert w.model.requests[0].model == "supplied"


@pytest.mark.parametrize("what", ["variable", "tool order", "raising"])
async def test_a_prompt_that_cannot_be_assembled(what: str, autojump_clock) -> None:
    """TRN-18"""
    order = ["missing"] if what == "tool order" else []
    async with world(["fine"], tool_order=order) as w:
        w.watch()
        scope = w.agent.scope
        undo = lambda: None  # noqa: E731
        if what == "variable":
            undo = scope.prompt.section(ta.Section("s", "Be {{mood}}."))
        elif what == "raising":

            async def fails(payload: ta.AssemblePrompt, proceed) -> object:
                raise LookupError("no prompt")

            undo = scope.on(ta.AssemblePrompt, fails)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.turn_log == [
            "turn[0] +x", "turn 1", "turn[0] -1 claim", "turn[0] +x", "turn end error(UNKNOWN)",
        ]  # fmt: skip
        undo()
        if what == "tool order":
            scope.tools.register(echo_tool("missing"))
        w.agent.wake()
        await w.agent.when_idle()
        assert w.ends == ["error(UNKNOWN)", "completed"]


async def test_storage_that_refuses_the_start(autojump_clock) -> None:
    """TRN-19"""
    async with world(["fine"]) as w:
        w.watch()
        refusal = Refusal(w.agent)
        refusal.types = {"turn/start"}
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.log == ["turn[0] +x"]
        assert w.pending() == ([], ["x"])
        assert w.notes() == ["inserted x", "running", "error 1.None UNKNOWN", "idle"]
        refusal.types = set()
        w.agent.wake()
        await w.agent.when_idle()
        assert w.ends == ["completed"]


@pytest.mark.parametrize("refused", ["turn/end", "step/end"])
async def test_storage_that_refuses_a_closer(refused: str, autojump_clock, caplog) -> None:
    """TRN-19"""
    caplog.set_level(logging.CRITICAL)
    async with world([Reply.text("fine"), "later"]) as w:
        refusal = Refusal(w.agent)
        refusal.types = {refused}
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.agent.status == "idle"
        assert w.agent.session.open_turn == 1
        refusal.types = set()
        start = len(w.turn_log)
        await w.agent.ask(message("y"))
        closers = ["step end"] if refused == "step/end" else []
        kind = "completed" if refused == "turn/end" else "error(UNKNOWN)"
        assert w.turn_log[start : start + 3 + len(closers)] == [
            "turn[0] +y", *closers, f"turn end {kind}", "turn 2",
        ]  # fmt: skip


@pytest.mark.parametrize("keep", [False, True])
async def test_a_refused_end_of_a_cancelled_turn_keeps_its_word(keep: bool, autojump_clock, caplog) -> None:
    """TRN-19, INB-11: what the plain cancel dropped does not come back with the closers."""
    caplog.set_level(logging.CRITICAL)
    async with world(Reply.text("later")) as w:
        gate = trio.Event()

        async def waits(payload: ta.PreStep, proceed) -> object:
            await gate.wait()
            return await proceed()

        undo = w.agent.scope.on(ta.PreStep, waits)
        w.agent.inject(message("i"))
        w.agent.followup(message("x"))
        await settle()
        refusal = Refusal(w.agent)
        w.agent.cancel(keep_inbox=keep)
        refusal.types = {"turn/end"}
        await w.agent.when_idle()
        refusal.types = set()
        undo()
        await w.agent.ask(message("y"))
        await w.agent.when_idle()
        users = [line for line in w.log if line.startswith("user")]
        assert users == (["user i", "user x", "user y"] if keep else ["user y"])


async def test_chunks_are_logged_in_order_and_cited_by_their_own_attempt(autojump_clock) -> None:
    """TRN-20"""
    failing = Reply.finish_error("SERVER", after=Reply.text("par", "tial").steps[:1])
    policy = ta.RetryPolicy(jitter=0)
    async with world([failing, Reply.text("a", "b")], plugins=[policy]) as w:
        await w.agent.ask("x")
        events = w.agent.session.events
        chunks = [e.seq for e in events if e.type == "assistant/chunk"]
        [answer] = [e for e in events if e.type == "assistant/message"]
        [retried] = [e.seq for e in events if e.type == "llm/retry-started"]
        own = [seq for seq in chunks if seq > retried]
        assert list(answer.source_event_seqs) == own
        assert len(chunks) > len(own)
        texts = [e.data.chunk.text for e in events if e.seq in own and e.data.chunk.tag == "text-delta"]
        assert texts == ["a", "b"]


async def test_a_crashed_turn_is_interrupted_and_the_live_driver_never_says_so(autojump_clock) -> None:
    """TRN-15"""
    async with world(["x"]) as w:
        await w.agent.ask("go")
        events = list(w.agent.session.events)
    for cut in range(1, len(events)):
        store = await store_of(events[:cut])
        async with world(Reply.text("again"), store=store, mode="resume") as w:
            await w.agent.ask("y")
            assert w.ends.count("interrupted") <= 1
            assert w.ends[-1] == "completed"


def test_a_finish_error_needs_a_failure() -> None:
    """TRN-14"""
    with pytest.raises(TypeError):
        FinishError()  # type: ignore[call-arg]
