"""Cancellation: causes, what is kept, what is dropped, and when all is quiet (CAN)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import Gates, Refusal, calls, message, settle, world
from trio_agents.models import Gate, Reply, Stubborn
from trio_agents.session import AssistantMessage, decode_event, encode_event
from trio_agents.values import DISPOSED, ForeignCause


@pytest.mark.parametrize("keep", [False, True])
async def test_cancel_of_an_idle_agent(keep: bool, autojump_clock) -> None:
    """CAN-1"""
    async with world(Reply.text("fine")) as w:
        w.watch()
        w.agent.inject(message("i"))
        w.agent.inbox.append(message("q"))
        w.agent.cancel(keep_inbox=keep)
        assert w.pending() == ((["i"], ["q"]) if keep else ([], []))
        assert "running" not in w.notes()
        assert (await w.agent.ask("x")).end.kind == "completed"


@pytest.mark.parametrize("keep", [False, True])
async def test_cancel_in_the_tick_of_the_first_send(keep: bool, autojump_clock) -> None:
    """CAN-2"""
    async with world(["late"]) as w:
        w.watch()
        w.agent.followup(message("x"))
        w.agent.cancel(keep_inbox=keep)
        await w.agent.when_idle()
        assert w.model.request_count == 0
        assert w.turn_log == (["turn[0] +x"] if keep else ["turn[0] +x", "turn[0] -1 canceled"])
        assert [line for line in w.notes() if line in {"running", "idle"}] == ["running", "idle"]
        if keep:
            w.agent.wake()
            await w.agent.when_idle()
            assert w.ends == ["completed"]


@pytest.mark.parametrize("keep", [False, True])
async def test_cancel_between_claim_and_step(keep: bool, autojump_clock) -> None:
    """CAN-3"""
    async with world() as w:
        w.agent.scope.on(
            ta.SessionEvent,
            lambda p: p.agent.cancel(keep_inbox=True) if keep and "claim" in w.log[-1] else None,
        )

        async def assembles(payload: ta.AssemblePrompt, proceed) -> object:
            if not keep:
                payload.agent.cancel()
            return await proceed()

        w.agent.scope.on(ta.AssemblePrompt, assembles)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        gone = [] if keep else ["turn[0] -1 canceled"]
        assert w.log == [
            "turn[0] +x",
            "turn 1",
            "turn[0] -1 claim",
            "turn[0] +x",
            *gone,
            "turn end aborted(user)",
        ]


async def test_cancel_from_a_step_start_observer(autojump_clock) -> None:
    """CAN-4"""
    async with world() as w:
        asked: list[object] = []

        async def on_request(payload: ta.BeforeRequest, proceed) -> object:
            asked.append(payload)
            return await proceed()

        w.agent.scope.on(ta.BeforeRequest, on_request)
        w.agent.session.observe(
            lambda event: w.agent.cancel(keep_inbox=True) if event.type == "step/start" else None
        )
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.log[3:] == ["step 1", "user x", "step end", "turn end aborted(user)"]
        assert asked == []


async def test_cancel_mid_stream_keeps_what_was_said(autojump_clock) -> None:
    """CAN-5, C9"""
    chunks = Reply.tool_calls([("gated", {"key": "c"}, "c")], text="so far", reasoning="because").steps
    gate = Gate()
    async with world([Reply.chunks([*chunks[:-1], gate, *chunks[-1:]]), "next"], tools=[Gates().tool]) as w:
        w.agent.followup(message("x"))
        await gate.reached.wait()
        w.agent.cancel()
        await w.agent.when_idle()
        assert w.turn_log[-3:] == [
            "answer reasoning|so far (interrupted)",
            "step end",
            "turn end aborted(user)",
        ]
        [event] = [e for e in w.agent.session.events if type(e.data) is AssistantMessage]
        assert event.data.usage.output_tokens == 5
        cited = list(event.source_event_seqs)
        assert cited == [e.seq for e in w.agent.session.events if e.type == "assistant/chunk"]
        assert [block.tag for block in event.data.message.content] == ["reasoning", "text"]
        await w.agent.ask("y")  # T5: the unsigned reasoning stays out, the strict provider is content


@pytest.mark.parametrize("visible", ["nothing", "blank", "call only"])
async def test_nothing_visible_nothing_kept(visible: str, autojump_clock) -> None:
    """CAN-5"""
    chunks = {
        "nothing": (),
        "blank": Reply.text("  ", "\n").steps[:3],
        "call only": Reply.tool_call("gated", {"key": "c"}, id="c").steps[:2],
    }[visible]
    async with world([Reply.hang(after=chunks)], tools=[Gates().tool]) as w:
        w.agent.followup(message("x"))
        await settle()
        w.agent.cancel()
        await w.agent.when_idle()
        assert w.turn_log[-2:] == ["step end", "turn end aborted(user)"]
        assert not [line for line in w.log if line.startswith("answer")]


async def test_half_streamed_reasoning_never_comes_back(autojump_clock) -> None:
    """CAN-5, T5: also not with another model."""
    async with world([Reply.hang(after=Reply.text(reasoning="hmm").steps[:2]), "two", "three"]) as w:
        w.agent.followup("1")
        await settle()
        await w.agent.stop()
        await w.agent.ask("2")
        w.agent.select_model("scripted/other")
        await w.agent.ask("3")
        assert "answer reasoning (interrupted)" in w.log


@pytest.mark.parametrize("when", ["recovery", "back-off"])
async def test_cancel_of_a_failed_attempt_keeps_nothing(when: str, autojump_clock) -> None:
    """CAN-6"""
    failing = Reply.fail("SERVER", after=Reply.text("half", "way").steps[:2])
    async with world([failing], plugins=[ta.RetryPolicy(after_output=True, jitter=0)]) as w:

        async def on_failure(payload: ta.RequestFailed, proceed) -> object:
            if when == "recovery":
                await trio.sleep_forever()
            return await proceed()

        w.agent.scope.on(ta.RequestFailed, on_failure)
        w.agent.followup("x")
        await settle()
        if when == "back-off":
            assert w.log[-1] == "retry 1"
        w.agent.cancel()
        await w.agent.when_idle()
        assert not [line for line in w.log if line.startswith("answer")]
        assert w.ends == ["aborted(user)"]


async def test_the_first_cause_wins(autojump_clock) -> None:
    """CAN-7"""
    async with world(Reply.hang()) as w:
        for first, second in ((ta.BY_PARENT, ta.BY_USER), (ta.BY_USER, ta.ByHook(reason="r"))):
            w.agent.followup("x")
            await settle()
            w.agent.inbox.append(message("q"))
            w.agent.cancel(first, keep_inbox=True)
            assert w.pending() == ([], ["q"])
            w.agent.cancel(second)
            assert w.pending() == ([], [])
            await w.agent.when_idle()
        assert w.ends == ["aborted(parent)", "aborted(user)"]


async def test_a_cancel_before_the_teardown_gives_the_cause(autojump_clock) -> None:
    """CAN-7"""
    async with ta.open_runtime(models=[ta.models.ScriptedModel(Reply.hang())]) as runtime:
        for first, expected in ((ta.BY_USER, "user"), (None, "disposed")):
            handle = await runtime.agents.create(options=ta.AgentOptions(model="scripted/m"))
            handle.agent.followup("x")
            await settle()
            handle.agent.inbox.append(message("q"))
            if first is not None:
                handle.agent.cancel(first, keep_inbox=True)
            await handle.dispose()
            assert handle.agent.session.events[-1].data.reason.reason.kind == expected
            assert [m.text for m in handle.agent.inbox.next_turn] == ["q"]


@pytest.mark.parametrize("order", ["keep first", "plain first"])
async def test_one_plain_cancel_makes_the_activity_plain(order: str, autojump_clock) -> None:
    """CAN-7: its claimed batch included."""
    async with world() as w:

        async def pre_step(payload: ta.PreStep, proceed) -> object:
            payload.agent.cancel(keep_inbox=order == "keep first")
            payload.agent.cancel(keep_inbox=order == "plain first")
            return await proceed()

        w.agent.scope.on(ta.PreStep, pre_step)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.pending() == ([], [])
        assert w.turn_log[-3:] == ["turn[0] +x", "turn[0] -1 canceled", "turn end aborted(user)"]


async def test_causes_are_made_right(autojump_clock) -> None:
    """CAN-8"""
    for bad in ("", None, 3):
        with pytest.raises(ta.UsageError):
            ta.ByHook(reason=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        type(ta.BY_USER)(reason="r")
    async with world(Reply.hang()) as w:
        kinds = []
        for cause in (ta.BY_USER, ta.BY_PARENT, ta.ByHook(reason="budget"), DISPOSED):
            w.agent.followup("x")
            await settle()
            await w.agent.stop(cause)
            end = w.agent.session.events[-1]
            assert decode_event(encode_event(end), seq=end.seq) == end
            kinds.append(end.data.reason.reason)
        assert kinds == [ta.BY_USER, ta.BY_PARENT, ta.ByHook(reason="budget"), DISPOSED]
        line = b'{"type":"turn/end","seq":0,"time":1,"data":{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"legacy"}}}}'
        legacy = decode_event(line, seq=0).data.reason.reason
        foreign = ta.CancelCause.decode({"kind": "weather"})
        assert isinstance(foreign, ForeignCause)
        for wrong in (foreign, "user", None):
            with pytest.raises(ta.UsageError):
                w.agent.cancel(wrong)
        assert legacy.kind == "legacy"
        with pytest.raises((ta.UsageError, TypeError)):
            type(legacy)()


PLACES = ["assembly", "pre-step", "before request", "stream", "request failed", "stopping", "body"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("swallow", [False, True])
async def test_cancelled_reaches_every_place(place: str, swallow: bool, autojump_clock) -> None:
    """CAN-9, CAN-10, C7"""
    reached: list[str] = []

    async def wait_here() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:  # noqa: ASYNC103  the test is about code that swallows it
            reached.append("cancelled")
            with trio.CancelScope(shield=True):
                await trio.sleep(7)
            reached.append("handled")
            if not swallow:
                raise

    async def around(payload, proceed) -> object:
        await wait_here()
        return await proceed()

    async def serial(payload) -> None:
        await wait_here()

    @ta.tool
    async def body() -> str:
        """Wait."""
        await wait_here()
        return "ended"

    first: Reply = Reply.text("fine")
    if place == "body":
        first = Reply.tool_call("body", id="c")
    elif place == "request failed":
        first = Reply.fail("AUTH")
    elif place == "stream":
        first = Reply.hang()
    async with world([first, "more", "next"], tools=[body]) as w:
        hooks = {
            "assembly": ta.AssemblePrompt, "pre-step": ta.PreStep, "before request": ta.BeforeRequest,
            "request failed": ta.RequestFailed,
        }  # fmt: skip
        undo = lambda: None  # noqa: E731
        if place in hooks:
            undo = w.agent.scope.on(hooks[place], around)
        elif place == "stopping":
            undo = w.agent.scope.on(ta.TurnStopping, serial)
        w.agent.followup("x")
        await settle()
        start = trio.current_time()
        w.agent.cancel()
        await w.agent.when_idle()
        if place != "stream":
            assert reached == ["cancelled", "handled"]
            assert trio.current_time() - start == 7
        assert w.ends == ["aborted(user)"]
        undo()
        w.model._answers = iter(["next"])
        assert (await w.agent.ask("y")).text == "next"


async def test_cancel_is_synchronous(autojump_clock) -> None:
    """CAN-11"""
    async with world(Reply.hang()) as w:
        w.watch()
        w.agent.followup(message("x"))
        await settle()
        w.agent.inject(message("i"))
        w.agent.followup(message("q"))
        w.seen.clear()
        w.agent.cancel()
        assert w.seen == ["step[0] -1 canceled", "discarded i", "turn[0] -1 canceled", "discarded q"]
        await w.agent.when_idle()


@pytest.mark.parametrize("how", ["storage", "inside an append"])
async def test_a_clear_that_fails_cancels_all_the_same(how: str, autojump_clock, caplog) -> None:
    """CAN-11"""
    caplog.set_level(logging.CRITICAL)
    async with world([Reply.hang(after=Reply.text("a").steps[:1])]) as w:
        caught: list[type] = []
        if how == "inside an append":

            def observe(event: ta.Event) -> None:
                if event.type == "assistant/chunk":
                    try:
                        w.agent.cancel()
                    except ta.UsageError as exc:
                        caught.append(type(exc))

            w.agent.session.observe(observe)
        w.agent.followup(message("x"))
        w.agent.inbox.append(message("q"))
        await settle()
        if how == "storage":
            refusal = Refusal(w.agent)
            refusal.types = {"agent/inbox/spliced"}
            with pytest.raises(ta.StorageError):
                w.agent.cancel()
            refusal.types = set()
        else:
            assert caught == [ta.ReentrantAppendError]
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]
        assert w.pending() == ([], ["q"])


async def test_plain_cancel_drops_steering(autojump_clock) -> None:
    """CAN-12"""
    async with world(["one", "never"]) as w:

        async def stopping(payload: ta.TurnStopping) -> None:
            payload.agent.steer(message("s"))
            payload.agent.cancel()

        w.agent.scope.on(ta.TurnStopping, stopping)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.model.request_count == 1
        assert w.ends == ["aborted(user)"]
        assert w.pending() == ([], [])


async def test_cancel_from_a_turn_end_observer(autojump_clock) -> None:
    """CAN-13"""
    async with world(["one", "two"]) as w:
        done: list[str] = []

        def observe(event: ta.Event) -> None:
            if event.type == "turn/end" and not done:
                done.append("x")
                w.agent.cancel(keep_inbox=True)

        w.agent.session.observe(observe)
        w.agent.followup(message("a"))
        w.agent.followup(message("b"))
        await w.agent.when_idle()
        assert w.ends == ["completed", "completed"]


async def test_stop_returns_when_all_is_quiet(autojump_clock) -> None:
    """CAN-14, C1, C4"""
    beats: list[float] = []
    late: list[str] = []

    @ta.tool
    async def beating() -> None:
        """Beat, and take three seconds to end."""
        try:
            while True:
                beats.append(trio.current_time())
                await trio.sleep(1)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            late.append("finaliser")

    async with world([Reply.tool_call("beating"), "next"], tools=[beating]) as w:
        before = trio.lowlevel.current_statistics().tasks_living
        w.agent.scope.on(ta.AgentStatusChanged, lambda p: late.append(p.status))
        w.agent.followup("x")
        await trio.sleep(4.5)
        w.agent.cancel()
        w.agent.followup("y")
        late.clear()
        await w.agent.stop(keep_inbox=True)
        assert late[0:2] == ["finaliser", "idle"]
        count = len(beats)
        assert trio.lowlevel.current_statistics().tasks_living == before
        await trio.sleep(10)
        assert len(beats) == count


async def test_a_call_that_comes_after_the_cancel_is_not_run(autojump_clock) -> None:
    """CAN-14, C2: not even from a provider that ignores closing."""
    gates = Gates()
    chunks = Reply.tool_call("gated", {"key": "c"}, id="c").steps
    async with world([Reply.chunks([Stubborn(1.2), *chunks]), "never"], tools=[gates.tool]) as w:
        w.agent.followup("x")
        await trio.sleep(0.5)
        await w.agent.stop()
        assert gates.began == []
        assert w.model.request_count == 1
        assert not [e for e in w.agent.session.events if e.type == "assistant/chunk"]


async def test_a_cancelled_delegating_tool_cancels_its_child(autojump_clock) -> None:
    """CAN-15"""
    children: list[ta.Agent] = []

    @ta.tool
    async def delegate(context: ta.ToolContext) -> str:
        """Let a child do it."""
        agent: Any = context.agent
        async with agent.scope.open_agent("child", model="scripted/m") as child:
            children.append(child)
            try:
                return (await child.ask("do it")).text
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await child.stop(ta.BY_PARENT)
                raise

    async with world([Reply.tool_call("delegate"), Reply.hang()], tools=[delegate]) as w:
        w.agent.followup("x")
        await settle()
        await w.agent.stop()
        [child] = children
        assert child.status == "idle"
        ends = [e.data.reason.reason.kind for e in child.session.events if e.type == "turn/end"]
        assert ends in (["parent"], ["user"])  # the ask that was cancelled stops its turn, too
        assert w.ends == ["aborted(user)"]


async def test_work_sent_while_a_cancel_converges(autojump_clock) -> None:
    """C5"""

    @ta.tool
    async def slow() -> None:
        """Take a while to end."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    for case in ("a", "b", "c"):
        script = [Reply.tool_call("slow"), "1", "2"]
        async with world(script, tools=[slow]) as w:
            w.agent.followup(message("x"))
            await settle()
            w.agent.followup(message("before"))
            w.agent.cancel(keep_inbox=case != "c")
            await trio.sleep(1)
            if case != "a":
                w.agent.followup(message("after"))
            await w.agent.when_idle()
            users = [line for line in w.log if line.startswith("user")]
            assert users == {
                "a": ["user x"], "b": ["user x", "user before", "user after"], "c": ["user x", "user after"],
            }[case]  # fmt: skip
            if case == "a":
                assert w.pending() == ([], ["before"])


async def test_cancelling_one_agent_touches_no_other(autojump_clock) -> None:
    """C8"""
    model = ta.models.ScriptedModel(Reply.text("a", "b").paced(1))
    async with ta.open_runtime(models=[model]) as runtime, trio.open_nursery() as nursery:
        handles = [
            await runtime.agents.create(options=ta.AgentOptions(model="scripted/m")) for _ in range(20)
        ]
        for handle in handles:
            handle.agent.followup("x")
        await trio.sleep(1.5)
        handles[7].agent.cancel()
        for handle in handles:
            nursery.start_soon(handle.agent.when_idle)
        await trio.sleep(10)
        ends = [handle.agent.session.events[-1].data.reason.kind for handle in handles]
        assert ends == ["completed"] * 7 + ["aborted"] + ["completed"] * 12


async def test_interrupt_keeps_what_was_finished(autojump_clock) -> None:
    """T1"""
    gates = Gates()
    async with world([calls("a", "b", "c"), "next"], tools=[gates.tool]) as w:
        w.agent.followup("x")
        await settle()
        gates.open("a")
        await settle()
        await w.agent.stop()
        await w.agent.ask("y")
        said = w.sent()
        assert said[:2] == ["x", "call a"]
        assert [line.split(":")[0] for line in said if line.startswith("result")] == [
            "result a",
            "result b",
            "result c",
        ]
