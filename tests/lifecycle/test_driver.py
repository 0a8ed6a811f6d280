"""The run of an agent: what wakes it, what it takes on, and when it is idle (DRV)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.driving import Gates, Refusal, calls, message, settle, store_of, world
from trio_agents.loop._phase import TRANSITIONS, WAKES, Phase
from trio_agents.models import Reply

DELIVERIES = ["send", "followup", "steer"]


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_a_delivery_returns_before_the_turn_starts(delivery: str, autojump_clock) -> None:
    """DRV-1"""
    async with world(["answer"]) as w:
        w.watch()
        getattr(w.agent, delivery)(message("x"))
        lane = "step" if delivery == "steer" else "turn"
        assert w.seen == [f"{lane}[0] +x", "inserted x", "running"]
        assert w.agent.status == "running"
        await settle()
        assert w.seen[3:6] == ["turn 1", f"{lane}[0] -1 claim", "claimed x by 1"]


async def test_a_wake_that_finds_nothing(autojump_clock) -> None:
    """DRV-2"""
    async with world() as w:
        w.watch()
        w.agent.wake()
        await w.agent.when_idle()
        assert w.seen == []
        w.agent.followup(message("x"))
        w.agent.inbox.clear()
        await w.agent.when_idle()
        assert w.model.request_count == 0
        assert [line for line in w.notes() if line in {"running", "idle"}] == ["running", "idle"]


@pytest.mark.parametrize("kind", ["error", "aborted", "blocked"])
async def test_a_failed_turn_stops_the_driver(kind: str, autojump_clock) -> None:
    """DRV-3: what is parked runs all of it, in order, with the next waking delivery."""
    first = Reply.fail("AUTH") if kind == "error" else Reply.hang()
    async with world([first, "2", "3", "4"]) as w:
        blocking = kind == "blocked"

        async def pre_step(payload: ta.PreStep, proceed) -> object:
            return ta.Reject() if blocking else await proceed()

        w.agent.scope.on(ta.PreStep, pre_step)
        for name in ("a", "b", "c"):
            w.agent.followup(message(name))
        await settle()
        if kind == "aborted":
            w.agent.cancel(keep_inbox=True)
        await w.agent.when_idle()
        assert w.pending() == ([], ["b", "c"])
        blocking = False
        if kind == "blocked":
            w.model.extend("5")
            w.model._answers = iter(["2", "3", "4"])
        w.agent.followup(message("d"))
        await w.agent.when_idle()
        assert [line.split("(")[0] for line in w.ends] == [kind, "completed", "completed", "completed"]
        assert [line for line in w.log if line.startswith("user")][-3:] == ["user b", "user c", "user d"]


@pytest.mark.parametrize("kind", ["completed", "max-tokens", "refusal", "max-turn-requests", "no step"])
async def test_other_ends_go_on(kind: str, autojump_clock) -> None:
    """DRV-4"""
    first = {
        "completed": Reply.text("1"),
        "max-tokens": Reply.max_tokens("1"),
        "refusal": Reply.refusal("1"),
        "max-turn-requests": calls("c"),
        "no step": Reply.text("never"),
    }[kind]
    gates = Gates()
    gates.open("c")
    script = ["2"] if kind == "no step" else [first, "2"]
    async with world(script, tools=[gates.tool], max_requests=1) as w:
        if kind == "no step":

            async def empties_a(payload: ta.PreStep, proceed) -> ta.Enter:
                return ta.Enter(messages=tuple(m for m in payload.batch if m.id != "a"))

            w.agent.scope.on(ta.PreStep, empties_a)
        w.watch()
        w.agent.followup(message("a"))
        w.agent.followup(message("b"))
        await w.agent.when_idle()
        assert w.ends == ["completed" if kind == "no step" else kind, "completed"]
        assert [line for line in w.notes() if line in {"running", "idle"}] == ["running", "idle"]


async def test_an_inject_never_opens_a_turn(autojump_clock) -> None:
    """DRV-5"""
    async with world(["one"]) as w:
        w.watch()
        w.agent.inject(message("i"))
        await settle()
        assert w.seen == ["step[0] +i", "inserted i"]
        await w.agent.ask(message("x"))
        assert w.sent() == ["i", "x"]


async def test_an_inject_that_comes_when_the_turn_has_ended_opens_none(autojump_clock) -> None:
    """DRV-5: not even in the run that is about to end."""
    async with world(["one", "two"]) as w:
        refusal = Refusal(w.agent)
        reached = trio.Event()
        gate = trio.Event()

        class Slow:
            is_dirty = True

            def __getattr__(self, name: str):
                return getattr(writer, name)

            async def barrier(self) -> None:
                await trio.lowlevel.checkpoint()
                if w.agent.session.open_turn is None:
                    reached.set()
                    await gate.wait()

        del refusal
        ledger = w.agent.session._ledger
        writer = ledger.writer
        ledger.writer = Slow()
        w.agent.followup(message("x"))
        await reached.wait()
        w.agent.inject(message("i"))
        gate.set()
        ledger.writer = writer
        await w.agent.when_idle()
        assert w.ends == ["completed"]
        assert w.pending() == (["i"], [])


async def test_no_wake_falls_between_nothing_pending_and_idle(autojump_clock) -> None:
    """DRV-6: a delivery at each scheduling step around the end of a turn is answered."""
    for steps in range(30):
        async with world(["1", "2"]) as w:
            w.agent.followup("first")
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            w.agent.followup("second")
            await w.agent.when_idle()
            assert w.ends == ["completed", "completed"]


async def test_a_wake_after_a_cancel_is_latched_however_late(autojump_clock) -> None:
    """DRV-7"""
    for late in range(4):

        @ta.tool
        async def slow_to_stop() -> None:
            """Wait."""
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)

        async with world([Reply.tool_call("slow_to_stop"), "b", "c"], tools=[slow_to_stop]) as w:
            w.watch()
            w.agent.followup(message("a"))
            w.agent.followup(message("b"))
            await settle()
            w.agent.cancel(keep_inbox=True)
            await trio.sleep(late * 0.9)
            w.agent.followup(message("c"))
            await w.agent.when_idle()
            assert w.ends == ["aborted(user)", "completed", "completed"]
            statuses = [line for line in w.notes() if line in {"running", "idle"}]
            # The last one comes after idle: nothing has to be latched then.
            assert statuses == ["running", "idle", "running", "idle"]
            assert [line for line in w.log if line.startswith("user")] == ["user a", "user b", "user c"]


async def test_a_delivery_of_a_live_turn_is_not_latched(autojump_clock) -> None:
    """DRV-8"""
    async with world([Reply.fail("AUTH").delayed(1), "later"]) as w:
        w.agent.followup(message("a"))
        await settle()
        w.agent.followup(message("b"))
        await w.agent.when_idle()
        assert w.ends == ["error(AUTH)"]
        assert w.pending() == ([], ["b"])


async def test_a_delivery_while_the_run_ends_is_latched(autojump_clock) -> None:
    """DRV-8"""
    async with world([Reply.fail("AUTH"), "b"]) as w:
        sent: list[str] = []

        def on_idle(payload: ta.AgentStatusChanged) -> None:
            if payload.status == "idle" and not sent:
                sent.append("b")
                payload.agent.followup(message("b"))

        w.agent.scope.on(ta.AgentStatusChanged, on_idle)
        w.agent.followup(message("a"))
        await w.agent.when_idle()
        assert w.ends == ["error(AUTH)", "completed"]


async def test_a_delivery_during_the_barrier_after_a_failed_turn_is_latched(autojump_clock) -> None:
    """DRV-8"""
    async with world([Reply.fail("AUTH"), "b"]) as w:
        ledger = w.agent.session._ledger
        writer = ledger.writer
        delivered: list[str] = []

        class Slow:
            @property
            def is_dirty(self) -> bool:
                return w.agent.session.open_turn is None and not delivered

            def __getattr__(self, name: str):
                return getattr(writer, name)

            async def barrier(self) -> None:
                await trio.sleep(1)
                delivered.append("b")
                w.agent.followup(message("b"))

        ledger.writer = Slow()
        w.agent.followup(message("a"))
        await w.agent.when_idle()
        ledger.writer = writer
        assert w.ends == ["error(AUTH)", "completed"]


async def test_plain_cancel_clears_the_latch(autojump_clock) -> None:
    """DRV-9"""
    async with world([Reply.hang(), "d"]) as w:
        w.agent.followup(message("a"))
        await settle()
        w.agent.cancel(keep_inbox=True)
        w.agent.followup(message("b"))  # latched
        w.agent.cancel()  # and cleared
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]
        w.model._answers = iter([Reply.hang(), "d"])
        w.agent.followup(message("c"))
        await settle()
        w.agent.cancel()
        w.agent.followup(message("d"))  # latched anew
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)", "aborted(user)", "completed"]


async def test_a_latched_wake_whose_messages_are_gone_opens_no_turn(autojump_clock) -> None:
    """DRV-9"""
    async with world([Reply.hang()]) as w:
        w.agent.followup(message("a"))
        await settle()
        w.agent.cancel(keep_inbox=True)
        w.agent.followup(message("b"))
        w.agent.inbox.remove("b")
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]


async def test_an_idle_listener_that_delivers_while_a_wake_is_latched(autojump_clock) -> None:
    """DRV-9: one driver starts."""
    async with world([Reply.hang(), "b", "c"]) as w:
        w.watch()
        seen: list[str] = []

        def on_idle(payload: ta.AgentStatusChanged) -> None:
            if payload.status == "idle" and not seen:
                seen.append("idle")
                payload.agent.followup(message("c"))

        w.agent.scope.on(ta.AgentStatusChanged, on_idle)
        w.agent.followup(message("a"))
        await settle()
        w.agent.cancel(keep_inbox=True)
        w.agent.followup(message("b"))
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)", "completed", "completed"]
        assert [line for line in w.notes() if line in {"running", "idle"}] == ["running", "idle"] * 2


async def test_when_idle_follows_replacement_work(autojump_clock) -> None:
    """DRV-10"""
    async with world([Reply.fail("AUTH"), Reply.text("b").delayed(5)]) as w:
        await w.agent.when_idle()
        again: list[str] = []

        def on_idle(payload: ta.AgentStatusChanged) -> None:
            if payload.status == "idle" and not again:
                again.append("b")
                payload.agent.followup(message("b"))

        w.agent.scope.on(ta.AgentStatusChanged, on_idle)
        w.agent.followup(message("a"))
        await w.agent.when_idle()
        assert w.ends == ["error(AUTH)", "completed"]


async def test_when_idle_covers_maintenance_and_its_flush(autojump_clock) -> None:
    """DRV-11"""
    async with world() as w:
        done: list[str] = []

        async def job() -> None:
            await trio.sleep(3)
            done.append("job")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(w.agent.run_maintenance, job)
            await settle()
            assert w.agent.status == "idle"
            await w.agent.when_idle()
            assert done == ["job"]
        refusal = Refusal(w.agent)
        refusal.barriers = True
        with pytest.raises(ta.StorageError):
            await w.agent.when_idle()
        refusal.barriers = False


@pytest.mark.parametrize("what", ["when_idle", "stop", "settled", "ask", "stream"])
async def test_waiting_for_oneself_is_refused(what: str, autojump_clock) -> None:
    """DRV-12"""
    caught: list[str] = []

    async def attempt(agent: ta.Agent) -> None:
        before = agent.inbox.next_turn
        try:
            if what == "ask":
                await agent.ask("x")
            elif what == "stream":
                async with agent.stream("x"):
                    pass
            elif what == "settled":
                receipt = agent.inject(message(f"r{len(caught)}"))
                await receipt.settled()
            else:
                await getattr(agent, what)()
        except ta.ReentrantWaitError:
            caught.append(what)
        if what in {"ask", "stream"}:
            assert agent.inbox.next_turn == before

    @ta.tool
    async def waits(context: ta.ToolContext) -> str:
        """Wait for the agent."""
        async with trio.open_nursery() as nursery:
            agent: Any = context.agent
            nursery.start_soon(attempt, agent)
        return "ok"

    async with world(
        [Reply.tool_call("waits"), "done", "more"], tools=[waits], max_stop_continuations=1
    ) as w:

        async def stopping(payload: ta.TurnStopping) -> None:
            await attempt(payload.agent)

        undo = w.agent.scope.on(ta.TurnStopping, stopping)
        w.agent.followup("go")
        await w.agent.when_idle()
        undo()
        w.agent.inbox.clear()

        async def job() -> None:
            await attempt(w.agent)

        await w.agent.run_maintenance(job)
        assert len(caught) >= 2
        assert set(caught) == {what}


async def test_waiting_in_a_scopes_own_task_is_no_reentrancy(autojump_clock) -> None:
    """DRV-12"""
    idle: list[str] = []

    @ta.tool
    async def starts(context: ta.ToolContext) -> str:
        """Start a waiter."""
        agent: Any = context.agent

        async def waiter() -> None:
            await agent.when_idle()
            idle.append(agent.status)

        agent.scope.start_soon(waiter)
        return "started"

    async with world([Reply.tool_call("starts"), "done"], tools=[starts]) as w:
        await w.agent.ask("go")
        await settle()
        assert idle == ["idle"]


async def test_agents_that_wait_for_each_other(autojump_clock) -> None:
    """DRV-12: across agents, along recorded waits."""
    caught: list[str] = []
    async with world([Reply.tool_call("delegate"), Reply.tool_call("back"), "b", "a"]) as w:
        other_box: list[ta.Agent] = []

        @ta.tool
        async def delegate() -> str:
            """Ask the other."""
            return (await other_box[0].ask("do it")).text

        @ta.tool
        async def back() -> str:
            """Ask the asker."""
            try:
                await w.agent.ask("and you?")
            except ta.ReentrantWaitError:
                caught.append("back")
            return "no"

        w.agent.scope.tools.register(delegate)
        async with w.runtime.open_agent("b", model="scripted/m", tools=[back]) as other:
            other_box.append(other)
            reply = await w.agent.ask("go")
        assert caught == ["back"]
        assert reply.text == "a"


async def test_every_turn_is_fresh(autojump_clock) -> None:
    """DRV-13"""
    async with world([Reply.hang(), "b"]) as w:
        w.agent.followup(message("a"))
        await settle()
        w.agent.cancel(keep_inbox=True)
        w.agent.followup(message("b"))
        await w.agent.when_idle()
        assert [line for line in w.log if line.startswith(("turn ", "step "))] == [
            "turn 1", "step 1", "step end", "turn end aborted(user)", "turn 2", "step 1", "step end", "turn end completed",
        ]  # fmt: skip


async def test_maintenance_needs_an_idle_agent(autojump_clock) -> None:
    """DRV-14"""
    async with world([Reply.hang()]) as w:
        w.watch()

        async def job() -> int:
            return 7

        async def fails() -> int:
            raise LookupError("job")

        assert await w.agent.run_maintenance(job) == 7
        with pytest.raises(LookupError):
            await w.agent.run_maintenance(fails)
        assert w.seen == []

        async def nested() -> None:
            with pytest.raises(ta.AgentBusyError):
                await w.agent.run_maintenance(job)

        await w.agent.run_maintenance(nested)
        w.agent.followup("x")
        with pytest.raises(ta.AgentBusyError):
            await w.agent.run_maintenance(job)
        with pytest.raises(ta.AgentBusyError):
            await w.agent.clear_context()
        await w.agent.stop()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_wake_during_maintenance_is_latched(fails: bool, autojump_clock) -> None:
    """DRV-15"""
    async with world(["answer"]) as w:
        w.watch()
        gate = trio.Event()

        async def job() -> None:
            await gate.wait()
            if fails:
                raise LookupError("job")

        async def run() -> None:
            try:
                await w.agent.run_maintenance(job)
            except LookupError:
                assert fails

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await settle()
            w.agent.inject(message("i"))
            w.agent.followup(message("x"))
            await settle()
            assert w.turn_log == ["step[0] +i", "turn[0] +x"]
            gate.set()
        await w.agent.when_idle()
        assert w.ends == ["completed"]
        assert [line for line in w.notes() if line in {"running", "idle"}] == ["running", "idle"]


@pytest.mark.parametrize("keep", [False, True])
async def test_cancel_during_maintenance(keep: bool, autojump_clock) -> None:
    """DRV-16"""
    async with world(["s", "x"]) as w:
        ended: list[str] = []

        async def job() -> None:
            try:
                await trio.sleep_forever()
            finally:
                ended.append("job")

        async def run() -> None:
            with pytest.raises(ta.TurnAborted):
                await w.agent.run_maintenance(job)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await settle()
            w.agent.followup(message("x"))
            w.agent.cancel(keep_inbox=keep)
            assert w.pending() == ([], ["x"] if keep else [])
            w.agent.steer(message("s"))
            assert w.pending()[1] == (["x", "s"] if keep else ["s"])
        await w.agent.when_idle()
        assert ended == ["job"]
        assert w.ends == (["completed", "completed"] if keep else ["completed"])


async def test_a_running_listener_that_cancels(autojump_clock) -> None:
    """DRV-17"""
    async with world() as w:
        undo = w.agent.scope.on(
            ta.AgentStatusChanged, lambda p: p.agent.cancel() if p.status == "running" else None
        )
        w.agent.followup(message("a"))
        await w.agent.when_idle()
        assert w.turn_log == ["turn[0] +a", "turn[0] -1 canceled"]
        assert w.agent.status == "idle"
        undo()


async def test_a_running_listener_that_cancels_and_sends(autojump_clock) -> None:
    """DRV-17"""
    async with world(["b"]) as w:
        done: list[str] = []

        def on_running(payload: ta.AgentStatusChanged) -> None:
            if payload.status == "running" and not done:
                done.append("x")
                payload.agent.cancel()
                payload.agent.followup(message("b"))

        w.agent.scope.on(ta.AgentStatusChanged, on_running)
        w.agent.followup(message("a"))
        await w.agent.when_idle()
        assert [line for line in w.turn_log if line.startswith(("turn 1", "user", "turn end"))] == [
            "turn 1", "user b", "turn end completed",
        ]  # fmt: skip


async def test_a_running_listener_that_requests_teardown(autojump_clock) -> None:
    """DRV-17"""
    store = ta.MemoryStore()
    async with ta.open_runtime(store=store) as runtime:
        handle = await runtime.agents.create("a", options=ta.AgentOptions(model="scripted/m"))
        agent = handle.agent
        agent.scope.on(
            ta.AgentStatusChanged, lambda p: handle.dispose_soon() if p.status == "running" else None
        )
        agent.followup(message("a"))
        await handle.dispose()
        assert [event.type for event in agent.session.events] == ["agent/inbox/spliced"]
        assert [m.text for m in agent.inbox.next_turn] == ["a"]
        assert agent.status == "idle"


async def test_an_idle_listener_that_sends_cancels_and_sends(autojump_clock) -> None:
    """DRV-18"""
    async with world(["a", "c"]) as w:
        done: list[str] = []

        def on_idle(payload: ta.AgentStatusChanged) -> None:
            if payload.status == "idle" and not done:
                done.append("x")
                payload.agent.followup(message("b"))
                payload.agent.cancel()
                payload.agent.followup(message("c"))

        w.agent.scope.on(ta.AgentStatusChanged, on_idle)
        w.agent.followup(message("a"))
        await w.agent.when_idle()
        assert [line for line in w.log if line.startswith("user")] == ["user a", "user c"]


async def test_an_observer_cannot_deliver_inside_an_append(autojump_clock, caplog) -> None:
    """DRV-19"""
    caplog.set_level(logging.CRITICAL)
    async with world(["answer"]) as w:
        caught: list[BaseException] = []

        def observe(event: ta.Event) -> None:
            if event.type == "agent/inbox/spliced":
                try:
                    w.agent.followup(message("inner"))
                except ta.ReentrantAppendError as exc:
                    caught.append(exc)
                    raise

        w.agent.session.observe(observe)
        reply = await w.agent.ask(message("outer"))
        assert reply.text == "answer"
        assert len(caught) == 2
        assert w.pending() == ([], [])


async def test_nothing_leaves_the_driver(autojump_clock, caplog) -> None:
    """DRV-20"""
    caplog.set_level(logging.CRITICAL)
    async with world(["answer", "next"]) as w:
        w.watch()
        broken = [True]
        take = w.agent.take_continuation

        class Broken(Exception):
            pass

        pen = w.agent.pen
        append = type(pen).append

        def fails(self, *drafts):
            if broken[0] and any(getattr(d, "wire_type", "") == "turn/start" for d in drafts):
                raise Broken("a bug")
            return append(self, *drafts)

        type(pen).append = fails
        try:
            w.agent.followup(message("x"))
            await w.agent.when_idle()
        finally:
            type(pen).append = append
        del take
        assert w.agent.status == "idle"
        assert "error 1.None UNKNOWN" in w.notes()
        broken[0] = False
        w.agent.wake()
        await w.agent.when_idle()
        assert w.ends == ["completed"]


async def test_statuses_alternate_and_are_current(autojump_clock) -> None:
    """DRV-21"""
    async with world(["a", "b", "c"]) as w:
        seen: list[tuple[str, str]] = []
        sent: list[str] = []

        def note(payload: ta.AgentStatusChanged) -> None:
            seen.append((payload.status, payload.agent.status))
            if payload.status == "idle" and len(sent) < 2:
                sent.append("x")
                payload.agent.followup(message(f"m{len(sent)}"))

        w.agent.scope.on(ta.AgentStatusChanged, note)
        w.agent.followup(message("first"))
        await w.agent.when_idle()
        assert seen == [("running", "running"), ("idle", "idle")] * 3


async def test_try_followup_when_idle(autojump_clock) -> None:
    """DRV-22"""
    async with world(["one", Reply.hang()]) as w:
        w.watch()
        asked: list[str] = []

        def prepare() -> str | None:
            asked.append("prepare")
            return "x"

        assert w.agent.try_followup_when_idle(lambda: None) is False
        assert w.seen == []
        assert w.agent.try_followup_when_idle(prepare, lambda: w.seen.append("accepted")) is True
        assert w.seen == ["turn[0] +x", "inserted x", "accepted", "running"]
        assert w.agent.try_followup_when_idle(prepare) is False
        assert asked == ["prepare"]
        await w.agent.when_idle()
        w.agent.inject(message("parked"))
        assert w.agent.try_followup_when_idle(prepare) is False
        assert asked == ["prepare"]

        def fails() -> None:
            raise LookupError("accepted")

        w.agent.inbox.clear()
        with pytest.raises(LookupError):
            w.agent.try_followup_when_idle(prepare, fails)
        assert w.agent.status == "running"  # it was accepted, whatever became of telling it
        await settle()
        await w.agent.stop()


async def test_deliver_within_a_budget(autojump_clock) -> None:
    """DRV-23"""
    async with world([Reply.text("1").delayed(1), "2"]) as w:
        agent = w.agent
        assert agent.deliver(message("a"), wake_budget=1) == "WOKE"
        assert w.pending() == ([], ["a"])
        await settle()
        source = ta.UserMessage.from_agent("b", sender_session_id="s", id="b")
        assert agent.deliver(source, wake_budget=1) == "JOINED"
        assert w.pending() == (["b"], [])
        await agent.when_idle()
        for bad in (-1, 1.5, True):
            with pytest.raises(ta.UsageError):
                agent.deliver("x", wake_budget=bad)
        assert agent.deliver(message("z"), wake_budget=0) == "PARKED"
        assert w.pending() == (["z"], [])
        assert agent.status == "idle"


async def test_the_budget_is_refilled_by_the_claim_of_a_users_message(autojump_clock) -> None:
    """DRV-24"""

    def told(text: str) -> ta.UserMessage:
        return ta.UserMessage.from_agent(text, sender_session_id="s", id=text)

    async with world(Reply.text("ok")) as w:
        agent = w.agent
        assert agent.deliver(told("1"), wake_budget=2) == "WOKE"
        await agent.when_idle()
        assert agent.deliver(told("2"), wake_budget=2) == "WOKE"
        await agent.when_idle()
        await trio.sleep(10_000)
        assert agent.deliver(told("3"), wake_budget=2) == "PARKED"
        agent.inbox.append(message("user"))  # its arrival does not count
        assert agent.deliver(told("4"), wake_budget=2) == "PARKED"
        agent.wake()
        await agent.when_idle()
        assert agent.deliver(told("5"), wake_budget=2) == "WOKE"
        await agent.when_idle()
        assert agent.deliver(told("6"), wake_budget=None) == "WOKE"
        await agent.when_idle()


async def test_continue_turn(autojump_clock) -> None:
    """DRV-25"""
    async with world([Reply.text("half").cut(2, None), Reply.hang(), "whole"]) as w:
        with pytest.raises(ta.UsageError, match="owes no answer"):
            w.agent.continue_turn()
        await w.agent.ask("hello")
        with pytest.raises(ta.UsageError, match="owes no answer"):
            w.agent.continue_turn()
        w.agent.followup("again")
        await settle()
        with pytest.raises(ta.AgentBusyError):
            w.agent.continue_turn()
        await w.agent.stop()
        start = len(w.turn_log)
        assert w.agent.continue_turn() == 3
        await w.agent.when_idle()
        assert w.turn_log[start:] == ["turn 3", "step 1", "answer whole", "step end", "turn end completed"]
        assert w.sent() == ["hello", "half", "again"]


async def test_continue_turn_leaves_queued_prompts_their_own_turns(autojump_clock) -> None:
    """DRV-25"""
    async with world([Reply.hang(), "whole", "queued"]) as w:
        w.agent.followup(message("x"))
        await settle()
        await w.agent.stop()
        w.agent.inbox.append(message("q"))
        w.agent.continue_turn()
        await w.agent.when_idle()
        assert w.sent(1) == ["x"]
        assert w.sent(2) == ["x", "whole", "q"]


async def test_a_crash_after_a_result_can_be_continued(autojump_clock) -> None:
    """DRV-25, T9"""
    gates = Gates()
    gates.open("c")
    async with world([calls("c"), "done"], tools=[gates.tool]) as w:
        await w.agent.ask("go")
        events = list(w.agent.session.events)
    cut = next(event.seq for event in events if event.type == "tool/result") + 1
    store = await store_of(events[:cut])
    async with world(["continued"], store=store, mode="resume", tools=[gates.tool]) as w:
        await settle()
        assert w.model.request_count == 0
        w.agent.continue_turn()
        await w.agent.when_idle()
        assert w.sent() == ["go", "call c", "result c: c"]
        assert w.ends == ["interrupted", "completed"]
        assert [line for line in w.log if line.startswith("user")] == ["user go"]
    assert gates.began == ["c"]


def test_the_table_is_whole() -> None:
    """DRV-6: every phase says what a wake does, and leads somewhere."""
    assert set(WAKES) == set(TRANSITIONS) == set(Phase)
    reached = {phase for row in TRANSITIONS.values() for phase in row.values()}
    assert reached == set(Phase) - {Phase.HELD}
