"""A host that uses plain `trio.run` and is interrupted again and again from outside.

    python interrupted_host.py STORE COUNT

Says `ready N` when session N is about to be at work, and `done N` when Ctrl-C has ended it.
"""

import sys

import trio

import trio_agents as ta
from trio_agents.models import ModelRequest, Reply, ScriptedModel


@ta.tool(effect="pure")
async def work(amount: int) -> str:
    """Take a moment.

    Args:
        amount: how long.
    """
    await trio.sleep(amount / 1000)
    return f"worked {amount}"


def answer(request: ModelRequest) -> Reply:
    if request.messages[-1].source.kind == "tool":
        return Reply.text("done with that, in some more words than are needed")
    return Reply.tool_calls([("work", {"amount": 0})])


async def main(root: str, session_id: str) -> None:
    model = ScriptedModel(answer, record=False)
    async with (
        ta.open_runtime(store=ta.JsonlStore(root, durability="written"), models=[model]) as runtime,
        runtime.open_agent(session_id, model="scripted/x", tools=[work]) as agent,
    ):
        while True:
            reply = await agent.ask("do it")
            assert reply.text


def one(root: str, number: int) -> None:
    try:
        print("ready", number, flush=True)
        trio.run(main, root, f"s{number}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    for number in range(int(sys.argv[2])):
        one(sys.argv[1], number)
        print("done", number, flush=True)
