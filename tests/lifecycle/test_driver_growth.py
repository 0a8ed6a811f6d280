"""Nothing piles up over a long session (I10)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import message
from trio_agents.loop._activity import Activity
from trio_agents.loop._call import Call
from trio_agents.loop._driver import Driver
from trio_agents.loop._receipts import LoopReceipt
from trio_agents.loop._request import Attempt
from trio_agents.loop._step import Turn
from trio_agents.models import Reply, ScriptedModel

LIVE = (Activity, Attempt, Call, Driver, LoopReceipt, Turn)


@ta.tool(parallel=True)
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


def answer(request) -> Reply:
    """Tools first, a failure now and then, then a text."""
    turn = request.turn
    if request.step == 1:
        if turn % 5 == 0 and request.attempt == 1:
            return Reply.fail("SERVER")
        return Reply.tool_calls([("wait", {"seconds": 1}), ("wait", {"seconds": 2})])
    return Reply.text("done")


def counts(agent: Any) -> dict[str, int]:
    """How many live things there are."""
    gc.collect()
    found = {cls.__name__: 0 for cls in LIVE}
    for thing in gc.get_objects():
        if type(thing) in LIVE:
            found[type(thing).__name__] += 1
    scope = agent.scope
    found["tasks"] = trio.lowlevel.current_statistics().tasks_living
    found["contributions"] = len(scope._contributions or {})
    found["members"] = len(scope._members or {})
    found["listeners"] = sum(len(entries) for entries in (scope._listeners or {}).values())
    found["observers"] = len(agent.session._ledger.observers)
    found["receipts"] = len(agent._receipts or {})
    return found


@pytest.mark.parametrize("turns", [200, pytest.param(2000, marks=pytest.mark.slow)])
async def test_nothing_grows_with_turns(turns: int, autojump_clock) -> None:
    """I10: counts after turn 10 and at the end are equal."""
    model = ScriptedModel(answer, strict=False, record=False)
    async with (
        ta.open_runtime(models=[model], plugins=[ta.RetryPolicy(jitter=0)]) as runtime,
        runtime.open_agent("a", model="scripted/m", tools=[wait]) as agent,
    ):
        early: dict[str, int] = {}
        for turn in range(1, turns + 1):
            agent.followup(message(f"m{turn}"))
            if turn % 7 == 0:
                await trio.sleep(0.5)
                agent.cancel()
            await agent.when_idle()
            if turn == 10:
                early = counts(agent)
        assert counts(agent) == early
        assert agent.session.turn == turns
