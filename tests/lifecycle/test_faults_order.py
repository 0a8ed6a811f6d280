"""What depends on each other is read in that order, whatever the reader was doing; and nothing is read for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.conftest import Sweep
from tests.lifecycle.driving import MODEL, World, echo_tool, message, texts, world
from tests.lifecycle.sweeping import AtStep, check_log
from trio_agents.models import Reply, ScriptedModel
from trio_agents.testing import seeded_scheduler

# --- Q7: a report and the settlement that follows it -----------------------------------------------


def by_followup(parent: ta.Agent, message: ta.UserMessage) -> None:
    parent.followup(message)


def by_inject_and_wake(parent: ta.Agent, message: ta.UserMessage) -> None:
    parent.inject(message)
    parent.wake()


async def steps(count: int) -> None:
    """Let the others go on for a while."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


def slow_tool(unwinding: int) -> Any:
    """A tool that waits to be cancelled, and takes its time then."""

    @ta.tool
    async def slow() -> None:
        """Wait."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await steps(unwinding)

    return slow


async def settle_during(
    doing: str, deliver: Callable[[ta.Agent, ta.UserMessage], None], ahead: int
) -> list[str]:
    """What a parent reads of a child that reports while it works and settles when it is idle.

    Args:
        doing: what the parent does meanwhile.
        deliver: how both messages come.
        ahead: how many steps the parent's doing is ahead of the child.
    """
    script: list[Any] = []
    if doing == "running":
        script = [Reply.tool_call("echo"), Reply.tool_call("echo")]
    elif doing == "converging":
        script = [Reply.tool_call("slow")]
    parent_model = ScriptedModel(lambda request: script.pop(0) if script else Reply.text("fine"))
    child_model = ScriptedModel([Reply.tool_call("report"), "done"], "child")

    async with (
        ta.open_runtime(models=[parent_model, child_model], plugins=()) as runtime,
        runtime.open_agent("parent", model=MODEL, tools=[echo_tool(), slow_tool(ahead)]) as parent,
    ):

        @ta.tool
        async def report() -> str:
            """Tell the parent."""
            deliver(parent, message("report"))
            await trio.lowlevel.checkpoint()
            return "told"

        def settled(told: ta.AgentStatusChanged) -> None:
            if told.status == "idle":
                deliver(parent, message("settled"))

        options = ta.AgentOptions(model="child/m", tools=[report])
        child = (await parent.scope.agents.create("child", options=options)).agent
        child.scope.on(ta.AgentStatusChanged, settled)
        async with trio.open_nursery() as nursery:
            await begin(doing, parent, nursery, ahead)
            child.followup("go")
            await child.when_idle()
        await parent.when_idle()
        check_log(parent.session.events, inbox=parent.inbox)
        assert not parent.inbox.has_pending
        for request in parent_model.requests:
            told = texts(request.messages)
            assert "settled" not in told or "report" in told[: told.index("settled")]
        said = [event.data.text for event in parent.session.events if event.type == "user/message"]
        return [text for text in said if text in {"report", "settled"}]


async def begin(doing: str, parent: ta.Agent, nursery: trio.Nursery, ahead: int) -> None:
    """Bring the parent into what it does."""
    if doing == "maintenance":
        nursery.start_soon(parent.run_maintenance, lambda: steps(ahead))
        await steps(1)
    elif doing == "running":
        parent.followup("work")
        await steps(ahead)
    elif doing == "converging":
        parent.followup("work")
        await trio.testing.wait_all_tasks_blocked()
        parent.followup("work left")
        parent.cancel(keep_inbox=True)


@pytest.mark.parametrize("doing", ["idle", "running", "maintenance", "converging"])
@pytest.mark.parametrize("deliver", [by_followup, by_inject_and_wake])
async def test_the_report_is_read_before_the_settlement(doing: str, deliver: Any, sweep: Sweep) -> None:
    """Q7: both come by one lane; whatever the parent does meanwhile, and however far it has come."""
    for ahead in sweep(range(60), keep=12):
        for seed in range(3):
            with seeded_scheduler(seed):
                assert await settle_during(doing, deliver, ahead) == ["report", "settled"], (ahead, seed)


# --- Q9: a wake whose message is gone --------------------------------------------------------------

WAYS: dict[str, Callable[[World], object]] = {
    "followup": lambda w: w.agent.followup(message("x")),
    "steer": lambda w: w.agent.steer(message("x")),
    "send": lambda w: w.agent.send(message("x"), target="next-step"),
    "deliver": lambda w: w.agent.deliver(message("x")),
    "inject and wake": lambda w: (w.agent.inject(message("x")), w.agent.wake()),
    "when idle": lambda w: w.agent.try_followup_when_idle(lambda: message("x")),
}
GONE: dict[str, Callable[[World], bool]] = {
    "removed": lambda w: w.agent.inbox.remove("x"),
    "cleared": lambda w: w.agent.inbox.has_pending and w.agent.inbox.clear() is None,
    "spliced out": lambda w: any(
        w.agent.inbox.splice(target, 0, 1) is None
        for target, messages in (("next-step", w.agent.inbox.next_step), ("next-turn", w.agent.inbox.next_turn))
        if messages
    ),
}  # fmt: skip


def check_nothing_was_spent(w: World) -> None:
    """No request, no turn; the run came and went."""
    assert w.model.request_count == 0
    assert [event.type for event in w.agent.session.events] == ["agent/inbox/spliced"] * 2
    assert [note for note in w.notes() if note in {"running", "idle"}] == ["running", "idle"]
    assert w.pending() == ([], [])
    assert w.agent.status == "idle"


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("way", WAYS)
async def test_a_wake_whose_message_is_gone_costs_nothing(way: str, gone: str) -> None:
    """Q9, INB-14, DRV-2: taken back in the tick of its delivery; waiting for idle ends, and the agent is usable."""
    async with world(["later"]) as w:
        w.watch()
        WAYS[way](w)
        assert GONE[gone](w)
        with trio.fail_after(1):
            await w.agent.when_idle()
        check_nothing_was_spent(w)
        assert (await w.agent.ask("y")).turn == 1
        assert w.sent() == ["y"]


async def test_a_listener_takes_it_back() -> None:
    """Q9: where the wake itself is being told."""
    async with world(["later"]) as w:
        w.watch()
        taken: list[bool] = []
        undo = w.agent.scope.on(ta.AgentStatusChanged, lambda told: taken.append(w.agent.inbox.remove("x")))
        w.agent.followup(message("x"))
        undo()
        await w.agent.when_idle()
        assert taken == [True]
        check_nothing_was_spent(w)
        assert (await w.agent.ask("y")).turn == 1


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("way", WAYS)
async def test_it_is_either_gone_or_answered(way: str, gone: str) -> None:
    """Q9: taken back after any step of the run: then nothing was spent; or it was claimed, and the turn has it."""
    outcomes = []
    for k in range(1, 30):
        with seeded_scheduler(0):
            async with world(["fine"]) as w:
                w.watch()
                taken: list[bool] = []
                probe = AtStep(k, lambda w=w, taken=taken: taken.append(GONE[gone](w)))  # type: ignore[misc]
                WAYS[way](w)
                trio.lowlevel.add_instrument(probe)
                try:
                    await w.agent.when_idle()
                finally:
                    trio.lowlevel.remove_instrument(probe)
                if taken == [True]:
                    check_nothing_was_spent(w)
                else:
                    assert (w.model.request_count, w.ends) == (1, ["completed"])
                    assert w.sent() == ["x"]
                check_log(w.agent.session.events, inbox=w.agent.inbox)
                outcomes.append(taken)
    assert [True] in outcomes
    assert [False] in outcomes


async def test_a_latched_wake_whose_message_is_gone(autojump_clock: object) -> None:
    """Q9, DRV-9: latched while a cancel converges, and removed before that ends."""
    async with world([Reply.tool_call("slow")], tools=[slow_tool(5)]) as w:
        w.agent.followup("work")
        await trio.testing.wait_all_tasks_blocked()
        w.agent.cancel()
        w.agent.followup(message("x"))
        assert w.agent.inbox.remove("x")
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]
        assert w.model.request_count == 1
