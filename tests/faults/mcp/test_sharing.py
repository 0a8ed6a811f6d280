"""Connections end in any order, from any task, and harm nobody (field fault P2)."""

from __future__ import annotations

import pytest
import trio

import trio_agents as ta
from tests.faults.mcp.servers import Mark, use
from trio_agents.models import ModelRequest, Reply, ScriptedModel
from trio_agents.plugins.mcp import McpConnection, McpServers, connect_mcp


async def test_first_in_first_out_from_another_task(runtime: ta.Runtime, mark: Mark) -> None:
    """A call in flight on the third finishes while the first two are closed, by a task that entered neither."""
    connections: list[McpConnection] = []
    results: list[str] = []

    async def connect(name: str) -> None:
        connections.append(await connect_mcp(runtime.scope, mark.server(), name=name))

    async def call() -> None:
        results.append((await use(runtime, "c_steps", {"count": 4, "every": 0.1})).text)

    for name in "abc":
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect, name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(connections[0].aclose)
        nursery.start_soon(connections[1].aclose)
    assert results == ["all steps"]
    assert [connection.is_connected for connection in connections] == [False, False, True]
    assert {tool.name[0] for tool in runtime.tools.list()} == {"c"}
    assert len(mark.alive()) == 1


@pytest.mark.slow
async def test_the_owner_leaves_first(mark: Mark) -> None:
    """Scopes that were entered first are left first; what the others have is untouched."""
    async with ta.open_runtime() as runtime:
        handles = []
        for number in range(3):

            async def setup(agent: ta.Agent, number: int = number) -> None:
                await connect_mcp(agent.scope, mark.server(), name=f"s{number}")

            handles.append(await runtime.agents.create(setup=setup, options=ta.AgentOptions(model="x/y")))
        for number, handle in enumerate(handles):
            for later in range(number, 3):
                scope = handles[later].agent.scope
                assert (await use(scope, f"s{later}_echo", {"text": "hi"})).text == "hi"
            await handle.dispose()
            assert len(mark.alive()) == 2 - number


async def test_twenty_agents_share_one_client(mark: Mark) -> None:
    """The agents that come and go first take nothing from the others."""

    def answer(request: ModelRequest) -> Reply:
        has_result = any(block.tag == "tool-result" for block in request.messages[-1].content)
        return Reply.text("done") if has_result else Reply.tool_call("t_steps", {"count": 2, "every": 0.01})

    servers = McpServers({"t": mark.server()})
    ends: list[str] = []
    async with ta.open_runtime(models=[ScriptedModel(answer)], plugins=[servers]) as runtime:
        await servers.wait_connected()

        async def work(number: int) -> None:
            async with runtime.open_agent(model="scripted/m") as agent:
                for _ in range(1 + number % 3):
                    reply = await agent.ask("go")
                    ends.append(reply.text)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(work, number)
        assert len(mark.alive()) == 1
    assert ends == ["done"] * sum(1 + number % 3 for number in range(20))
