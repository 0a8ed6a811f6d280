"""A program whose agents have servers that do not want to end.

Arguments: a mark for its servers, how many, how it ends by itself: `never`, `exit`, `raise`, `during` (it says that it is
ready while the servers are still being connected) or `heeding` (its servers heed the end of their input), and the
grace of its servers.
"""

from __future__ import annotations

import sys

import trio

import trio_agents as ta
from tests.faults.mcp.servers import Mark, until
from trio_agents.plugins.mcp import connect_mcp


async def main(mark: Mark, count: int, how: str, grace: float) -> None:
    """Connect the servers and say so."""
    modes = [] if how == "heeding" else ["orphan"]

    async def setup(agent: ta.Agent) -> None:
        await connect_mcp(agent.scope, mark.server(*modes, grace=grace), name="t")

    async with ta.open_runtime() as runtime:

        async def create() -> None:
            await runtime.agents.create(setup=setup, options=ta.AgentOptions(model="x/y"))

        async with trio.open_nursery() as nursery:
            if how == "during":
                nursery.start_soon(say_soon, mark)
            for _ in range(count):
                nursery.start_soon(create)
        if how == "exit":
            sys.exit(7)
        if how == "raise":
            raise RuntimeError("the program failed")
        if how != "during":
            print("ready", flush=True)
        await trio.sleep_forever()


async def say_soon(mark: Mark) -> None:
    """Say so when there is a process, and nothing more."""
    await until(mark.alive)
    print("ready", flush=True)


if __name__ == "__main__":
    _, name, number, how, grace = sys.argv
    ta.run(main, Mark(name), int(number), how, float(grace), grace=30.0)
