"""A program for the tests of signals: agents at work under `trio_agents.run`, or under plain `trio.run`.

Arguments: the store's directory, the runner (`ours` or `plain`), what the agents do (`quick`, `slow` or `stuck`), the
grace of the drain in seconds.
"""

from __future__ import annotations

import atexit
import sys
import time

import trio

import trio_agents as ta
from trio_agents.models import Reply, ScriptedModel


@ta.tool
async def stuck() -> str:
    """Take no notice of anything."""
    with trio.CancelScope(shield=True):
        await trio.sleep(60)
    return "?"


async def main(directory: str, work: str) -> None:
    """Set agents to work and say so."""
    replies = {
        "quick": lambda request: Reply.text("done").delayed(1.0),
        "slow": lambda request: Reply.text("late").delayed(60),
        "stuck": lambda request: Reply.tool_call("stuck"),
    }
    store = ta.JsonlStore(directory, durability="written")
    async with ta.open_runtime(store=store, models=[ScriptedModel(replies[work])], plugins=()) as rt:
        options = ta.AgentOptions(model="scripted/m", tools=[stuck], grace=0.5)
        for number in range(3):
            handle = await rt.agents.create(f"agent-{number}", options=options)
            handle.agent.followup("go")
            handle.agent.followup("and then")
        await trio.sleep(0.1)
        print("ready", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    _, directory, runner, work, grace = sys.argv
    atexit.register(lambda: print("exit functions ran", flush=True))
    started = time.monotonic()
    if runner == "ours":
        ta.run(main, directory, work, grace=float(grace))
    else:
        trio.run(main, directory, work)
