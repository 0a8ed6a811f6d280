"""A host that works without end and tells what has been accepted: to be killed at any moment.

python killed_host.py STORE SESSION
"""

import os
import sys
from collections.abc import Callable

import trio

import trio_agents as ta
from trio_agents.models import ModelRequest, Reply, ScriptedModel


def tell(*words: str) -> None:
    """One whole line, in one write: what was told can be relied on."""
    os.write(1, (" ".join(words) + "\n").encode())


@ta.tool(effect="pure", parallel=True)
async def work(amount: int) -> str:
    """Take a moment.

    Args:
        amount: how long.
    """
    await trio.sleep(amount / 1000)
    return f"worked {amount}"


@ta.tool(effect="once")
async def act(name: str) -> str:
    """Have an effect.

    Args:
        name: which.
    """
    await trio.sleep(0.002)
    return f"did {name}"


def answer(request: ModelRequest) -> Reply:
    if request.messages[-1].source.kind == "tool":
        return Reply.text("done with that")
    calls = [("work", {"amount": 1}), ("work", {"amount": 4}), ("act", {"name": "this"})]
    return Reply.tool_calls(calls)


def told_results(scope: ta.Scope) -> Callable[[], None]:
    def tell_result(finished: ta.ToolFinished) -> None:
        tell("result", finished.call.id, finished.result.text.replace(" ", "_"))

    return scope.on(ta.ToolFinished, tell_result)


async def main(root: str, session_id: str) -> None:
    model = ScriptedModel(answer, record=False)
    async with ta.open_runtime(store=ta.JsonlStore(root), models=[model]) as runtime:
        told_results(runtime.scope)
        async with runtime.open_agent(
            session_id, mode="either", model="scripted/x", tools=[work, act]
        ) as agent:
            tell("open", session_id)
            for number in range(10_000):
                message = ta.UserMessage.from_text(f"message {number}")
                agent.followup(message)
                tell("accepted", message.id)
                if number % 3 == 0:
                    steer = ta.UserMessage.from_text(f"and {number}")
                    agent.inject(steer)
                    tell("accepted", steer.id)
                await agent.when_idle()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
