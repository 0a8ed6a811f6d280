"""A program that runs two steps with a tool that writes to a file, and dies where it is told.

    python crashing.py STORE EFFECTS AT EFFECT MODE

AT is the number of the event after whose append the process dies, `in tool` (before the write, or after it), or
`never`. MODE is `first` or `again` (resume with `rerun` and go on).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

import trio_agents as ta
from trio_agents.models import Reply, ScriptedModel


def main(store: str, effects: str, at: str, effect: str, mode: str) -> None:
    """Run it."""

    def write(line: str) -> None:
        with Path(effects).open("a") as file:
            file.write(line)

    @ta.tool(effect=effect)  # type: ignore[call-overload]
    async def act(context: ta.ToolContext) -> str:
        """Write a line to a file."""
        if at == "before effect" and mode == "first":
            os._exit(9)
        write(f"{context.call_id}\n")
        if at == "after effect" and mode == "first":
            os._exit(9)
        return "acted"

    def answer(request: object) -> Reply:
        return Reply.tool_call("act", id="call-1") if not _has_result(request) else Reply.text("done")

    async def run() -> None:
        models = [ScriptedModel(answer)]
        async with ta.open_runtime(
            store=ta.JsonlStore(store, durability="written"), models=models
        ) as runtime:
            options = ta.AgentOptions(model="scripted/m", tools=[act])
            if mode == "first":
                handle = await runtime.agents.create("a", options=options)
                if at.isdigit():
                    handle.agent.session.observe(lambda event: os._exit(9) if event.seq == int(at) else None)
                await handle.agent.ask(ta.UserMessage.from_text("go", id="go"), check=False)
                return
            try:
                handle = await runtime.agents.resume("a", options=options, rerun=True)
            except ta.SessionNotFoundError:
                return
            agent = handle.agent
            if agent.inbox.has_pending:
                agent.wake()
            else:
                try:
                    agent.continue_turn()
                except ta.UsageError:
                    return
            await agent.when_idle()

    trio.run(run)


def _has_result(request: object) -> bool:
    messages = request.messages  # type: ignore[attr-defined]
    return any(block.tag == "tool-result" for message in messages for block in message.content)


if __name__ == "__main__":
    main(*sys.argv[1:])
