"""A turn with everything in it, broken off in every way at every scheduling step (PROP-3, PROP-4, PROP-5)."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.conftest import Sweep
from tests.lifecycle.driving import message
from tests.lifecycle.sweeping import AtStep, check_log
from trio_agents.models import Reply, ScriptedModel

WAYS = [
    "cancel",
    "cancel keep",
    "cancel twice",
    "trio",
    "dispose",
    "dispose discarding",
    "owner close",
    "drain",
]


@ta.tool(parallel=True)
async def wait(seconds: float, context: ta.ToolContext) -> ta.ToolReturn:
    """Wait, and leave a context behind."""
    await trio.sleep(seconds)
    return ta.ToolReturn("waited", contexts=[message(f"context {context.call_id}")])


def script() -> list[Reply]:
    """Three parallel tools, a failure that is retried, a text in pieces, and one more for the stopping hook."""
    three = [("wait", {"seconds": n}, f"c{n}") for n in (3, 1, 2)]
    return [
        Reply.tool_calls(three, text="let me see").paced(0),
        Reply.fail("SERVER"),
        Reply.text("a", "b", "c", reasoning="hm").paced(1),
        Reply.text("and more"),
        Reply.text("second turn"),
    ]


class Run:
    """One run of the scenario, broken off in one way at one step."""

    def __init__(self, way: str, k: int) -> None:
        self.way = way
        self.accepted: list[str] = []
        self.left = -1
        self.agent: ta.Agent | None = None
        self.probe = AtStep(k, self.act)
        self.scope = trio.CancelScope()
        self.handle: ta.AgentHandle | None = None
        self.owner: ta.Scope | None = None
        self.loop: object = None

    def act(self) -> None:
        """Break it off."""
        agent, handle, owner = self.agent, self.handle, self.owner
        assert agent is not None
        assert handle is not None
        assert owner is not None
        if self.way.startswith("cancel"):
            agent.cancel(keep_inbox=self.way == "cancel keep")
            if self.way == "cancel twice":
                agent.cancel(ta.BY_PARENT, keep_inbox=True)
        elif self.way == "trio":
            self.scope.cancel()
        elif self.way == "dispose":
            handle.dispose_soon()
        elif self.way == "dispose discarding":
            handle._want_discard(True)  # type: ignore[attr-defined]
            handle.dispose_soon()
        elif self.way == "owner close":
            owner.close_soon()
        else:
            self.loop.is_draining = True  # type: ignore[attr-defined]

    def deliver(self, how: str, text: str) -> None:
        """Deliver, if the agent still takes anything."""
        assert self.agent is not None
        try:
            getattr(self.agent, how)(message(text))
        except ta.AgentClosedError:
            return
        self.accepted.append(text)

    async def main(self) -> None:
        """The scenario."""
        model = ScriptedModel(script())
        with self.scope:
            async with ta.open_runtime(models=[model], plugins=[ta.RetryPolicy(jitter=0)]) as runtime:
                self.loop = runtime.loop
                async with runtime.scope.open_child("owner") as self.owner:
                    await self.inside(self.owner)
        if self.agent is not None and self.agent.session.is_closed:
            check_log(self.agent.session.events, self.accepted, self.agent.inbox)

    async def inside(self, owner: ta.Scope) -> None:
        """Where the agent lives."""
        options = ta.AgentOptions(model="scripted/m", tools=[wait])
        before = trio.lowlevel.current_statistics().tasks_living
        self.handle = await owner.agents.create("a", options=options)
        self.agent = agent = self.handle.agent
        stopped: list[str] = []

        async def stopping(payload: ta.TurnStopping) -> None:
            await trio.lowlevel.checkpoint()
            if not stopped:
                stopped.append("x")
                self.deliver("inject", "from the hook")

        agent.scope.on(ta.TurnStopping, stopping)
        trio.lowlevel.add_instrument(self.probe)
        try:
            self.deliver("followup", "x")
            self.deliver("followup", "queued")
            await trio.sleep(0.5)
            self.deliver("steer", "steered")
            self.deliver("inject", "injected")
            await trio.sleep(1)
            await agent.when_idle()
        finally:
            trio.lowlevel.remove_instrument(self.probe)
            with trio.CancelScope(shield=True):
                if self.way in {"dispose", "dispose discarding", "owner close"} and self.probe.fired:
                    await self.handle.dispose()
                    await trio.testing.wait_all_tasks_blocked()  # the task that ended it ends, too
                    check_log(agent.session.events, self.accepted, agent.inbox)
                    assert trio.lowlevel.current_statistics().tasks_living == before
                elif self.way != "trio":
                    assert agent.status == "idle"
                    check_log(agent.session.events, self.accepted, agent.inbox)
                    assert trio.lowlevel.current_statistics().tasks_living == before


def run(way: str, k: int) -> Run:
    """One run."""
    found = Run(way, k)
    trio.run(found.main, clock=trio.testing.MockClock(autojump_threshold=0))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_broken_off_at_every_step(way: str, sweep: Sweep, caplog: pytest.LogCaptureFixture) -> None:
    """PROP-3, PROP-4, PROP-5, X7, C7: the log is balanced, every message accounted for, no task left."""
    caplog.set_level(logging.CRITICAL)
    whole = run(way, 10**9)
    assert not whole.probe.fired
    assert whole.agent is not None
    ends = [e.data.reason.kind for e in whole.agent.session.events if e.type == "turn/end"]
    assert ends == ["completed", "completed"]
    for k in sweep(range(1, whole.probe.steps + 1), keep=12):
        found = run(way, k)
        agent = found.agent
        assert agent is not None
        turns = [e.data.reason.kind for e in agent.session.events if e.type == "turn/end"]
        assert turns.count("aborted") <= 1
        assert "error" not in turns
        if way in {"cancel", "cancel keep", "cancel twice"}:
            assert not agent.inbox.next_turn or way == "cancel keep"
