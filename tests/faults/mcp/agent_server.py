"""An agent as an MCP server over standard input and output.

Arguments: `agent` or `scope`, what is served; and the path of a log of what happens to its turns.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio_agents as ta
from trio_agents.models import ModelRequest, Reply, ScriptedModel
from trio_agents.plugins.mcp import serve_mcp


def answer(request: ModelRequest) -> Reply:
    """What the message asks for."""
    said = [message.text for message in request.messages if message.role == "user" and message.text]
    if said[-1] == "hang":
        return Reply.text("Well", ", let me think").delayed(60)
    if said[-1] == "fail":
        raise RuntimeError("the provider is away")
    return Reply.text(f"{len(said)}: ", said[-1])


async def main(what: str, log: str) -> None:
    """Serve."""

    def note(event: ta.SessionEvent) -> None:
        if event.event.type in {"turn/start", "turn/end"}:
            write(log, f"{event.event.type} {getattr(event.event.data, 'reason', '')}")

    print("this is no message, and goes elsewhere")
    model = ScriptedModel(answer)
    async with ta.open_runtime(models=[model], plugins=()) as runtime:
        runtime.scope.on(ta.SessionEvent, note)
        options = ta.AgentOptions(model="scripted/m")
        if what == "agent":
            async with runtime.open_agent(options=options) as agent:
                await serve_mcp(agent, name="one")
        else:
            await serve_mcp(runtime.scope, options=options, name="many")
    write(log, "over")


def write(log: str, line: str) -> None:
    """Note something."""
    with Path(log).open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    ta.run(main, sys.argv[1], sys.argv[2])
