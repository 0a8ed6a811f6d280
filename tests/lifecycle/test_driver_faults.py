"""Faults that people met, as far as runs, steps and the inbox can show them (field faults Q, T, X)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import Gates, message, settle, store_of, world
from trio_agents.models import Gate, Reply
from trio_agents.session import AssistantMessage
from trio_agents.values import FrozenJson, Message, ModelSource, TextBlock


async def test_no_message_overtakes_another_of_its_lane(autojump_clock) -> None:
    """Q1: a steer, then a follow-up, at each checkpoint around the end of a turn."""
    for steps in range(25):
        async with world(Reply.text("ok")) as w:
            w.agent.followup(message("first"))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            w.agent.steer(message("A"))
            w.agent.followup(message("B"))
            await w.agent.when_idle()
            users = [line for line in w.log if line.startswith("user")]
            assert sorted(users) == ["user A", "user B", "user first"]
            assert users.index("user A") < users.index("user B")


@pytest.mark.parametrize("when", ["streaming", "last byte", "step end", "stopping"])
async def test_no_steer_is_stranded(when: str, autojump_clock) -> None:
    """Q2: each is read by a request before idle."""
    gate = Gate()
    async with world([Reply.text("a").gated(gate), "b"]) as w:

        def steer(event: Any) -> None:
            """From a task of the scope: an observer may not deliver itself."""
            at = {"last byte": "assistant/message", "step end": "step/end"}.get(when)
            if event.type == at and len(w.model.requests) == 1:

                async def send() -> None:
                    w.agent.steer(message("s"))

                w.agent.scope.start_soon(send)

        async def stopping(payload: ta.TurnStopping) -> None:
            if when == "stopping" and len(w.model.requests) == 1:
                payload.agent.steer(message("s"))
            await settle()

        w.agent.session.observe(steer)
        w.agent.scope.on(ta.TurnStopping, stopping)
        w.agent.followup(message("x"))
        await gate.reached.wait()
        if when == "streaming":
            w.agent.steer(message("s"))
        gate.opened.set()
        await w.agent.when_idle()
        assert w.sent() == ["x", "a", "s"]
        assert w.ends == ["completed"]


@pytest.mark.parametrize("keep", [False, True])
async def test_what_an_interrupt_does_to_the_queue(keep: bool, autojump_clock) -> None:
    """Q5: reported with content and id, and a durable trace; or kept in order."""
    async with world([Reply.hang()]) as w:
        gone: list[tuple[str, str]] = []
        w.agent.scope.on(ta.InboxDiscarded, lambda p: gone.append((p.message.id, p.message.text)))
        w.agent.followup("running")
        await settle()
        w.agent.followup(message("typed one", "1"))
        w.agent.followup(message("typed two", "2"))
        await w.agent.stop(keep_inbox=keep)
        if keep:
            assert gone == []
            assert w.pending() == ([], ["typed one", "typed two"])
        else:
            assert gone == [("1", "typed one"), ("2", "typed two")]
            assert "turn[0] -2 canceled" in w.log


async def test_replay_state_that_does_not_fit_its_blocks(autojump_clock) -> None:
    """T8: a stored message whose state lists other blocks is degraded; nothing fails."""
    async with world([Reply.text("answer", reasoning="hm", signed=True)]) as w:
        await w.agent.ask("x")
        events = list(w.agent.session.events)
    for index, event in enumerate(events):
        if type(event.data) is AssistantMessage:
            old = event.data.message
            source = ModelSource(
                provider="scripted",
                model="m",
                replay_state=FrozenJson.of({"response": None, "blocks": [1, 2, 3, 4]}),
            )
            content = (*old.content, TextBlock(text="more"))
            new = Message(id=old.id, role="assistant", content=content, source=source)
            data = AssistantMessage(turn=1, step=1, message=new)
            events[index] = type(event)(
                type=event.type, seq=event.seq, time=event.time, data=data, surface_op="append",
                source_event_seqs=event.source_event_seqs,
            )  # fmt: skip
    async with world(["fine"], store=await store_of(events), mode="resume") as w:
        assert (await w.agent.ask("y")).text == "fine"


async def test_a_stream_that_is_left_in_every_way(autojump_clock) -> None:
    """X5: no warning, no stray error, the agent is unaffected."""
    async with world(Reply.text("a", "b", "c").paced(1)) as w:
        async with w.agent.stream("never iterated"):
            pass

        async def leave() -> None:
            async with w.agent.stream("left by an exception") as reply:
                async for _ in reply:
                    raise LookupError("out")

        with pytest.raises(LookupError):
            await leave()
        with trio.move_on_after(1.5):
            async with w.agent.stream("left by a cancel") as reply:
                async for _ in reply:
                    pass
        w.agent.stream("never entered")
        gc.collect()
        assert (await w.agent.ask("after all")).text == "abc"
        assert w.ends[-1] == "completed"


async def test_a_pre_check_in_blocking_mode(autojump_clock) -> None:
    """C13: a denial that takes its time still comes before the body."""
    gates = Gates()
    async with world([Reply.tool_call("gated", {"key": "a"}, id="a"), "done"], tools=[gates.tool]) as w:

        async def around(payload: ta.AroundTool, proceed: Any) -> ta.ToolReturn:
            await trio.sleep(2)
            return ta.ToolReturn.failed("not today", code="DENIED")

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        assert gates.began == []
        assert "result a: not today" in w.sent()


async def test_fifty_decisions_each_apply_to_their_own_call(autojump_clock) -> None:
    """H3: equal arguments, answers in another order than the calls."""
    keys = [f"c{n}" for n in range(50)]
    gates = Gates()
    gates.open("same")
    script = Reply.tool_calls([("gated", {"key": "same"}, key) for key in keys])
    async with world([script, "done"], tools=[gates.tool], max_parallel_tools=50) as w:

        async def around(payload: ta.AroundTool, proceed: Any) -> object:
            number = int(payload.call.id[1:])
            await trio.sleep((number * 7) % 50)
            if number % 3 == 0:
                return ta.ToolReturn.failed("no", code="DENIED")
            return await proceed()

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        results = [line for line in w.log if line.startswith("result")]
        assert results == [f"result c{n} {'DENIED' if n % 3 == 0 else 'ok'}" for n in range(50)]
