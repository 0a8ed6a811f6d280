"""The list of tools changes (field fault P9)."""

from __future__ import annotations

import pytest
import trio

import trio_agents as ta
from tests.faults.mcp.servers import Mark, refused, until, use
from trio_agents.models import ModelRequest, Reply, ScriptedModel
from trio_agents.plugins.mcp import connect_mcp


@pytest.mark.parametrize("mode", ["early", "amid"])
async def test_a_notice_during_the_first_listing(mode: str, runtime: ta.Runtime, mark: Mark) -> None:
    """No tool is registered twice, and none is missed."""
    connection = await connect_mcp(runtime.scope, mark.server(mode), name="t")
    await until(lambda: f"t_{mode}" in connection.tools)
    assert sorted(connection.tools) == sorted(set(connection.tools))
    assert {tool.name for tool in runtime.tools.list()} == set(connection.tools)
    assert (await use(runtime, f"t_{mode}")).text == f"{mode} at work"


async def test_a_storm_of_notices(runtime: ta.Runtime, mark: Mark) -> None:
    connection = await connect_mcp(runtime.scope, mark.server(), name="t")
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(use, runtime, "t_change", {"extra": [f"storm{number}"]})
    await use(runtime, "t_change", {"extra": ["last"]})
    await until(lambda: "t_last" in connection.tools)
    assert not [name for name in connection.tools if name.startswith("t_storm")]
    assert {tool.name for tool in runtime.tools.list()} == set(connection.tools)


async def test_a_list_that_fails(runtime: ta.Runtime, mark: Mark, caplog: pytest.LogCaptureFixture) -> None:
    """The old list stays, until there is a new one."""
    server = mark.server(SECRET_KEY="s3cr3t-token")
    connection = await connect_mcp(runtime.scope, server, name="t")
    before = connection.tools
    await use(runtime, "t_break")
    await until(lambda: "does not list its tools anew: MCPError: no list today ***" in caplog.text)
    assert "s3cr3t" not in caplog.text
    assert connection.tools == before
    await use(runtime, "t_mend")
    await until(lambda: "t_mended" in connection.tools)


async def test_turns_across_changes(mark: Mark) -> None:
    """Each request shows the newest list once; there is no gap in which a tool that stays is missing."""
    shown: list[list[str]] = []
    seen_without: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        shown.append([tool.name for tool in request.tools])
        return Reply.text("ok")

    async with ta.open_runtime(models=[ScriptedModel(answer)]) as runtime:
        connection = await connect_mcp(
            runtime.scope, mark.server("tool=first"), name="t", tools=["change", "first", "second", "exit"]
        )
        offered = runtime.tools.get("t_change")

        async def watch() -> None:
            while True:
                if runtime.tools.get("t_change") is not offered:
                    seen_without.append("t_change was away, or is another one")
                await trio.lowlevel.checkpoint()

        async with runtime.open_agent(model="scripted/m") as agent, trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await agent.ask("1")
            await use(runtime, "t_change", {"extra": ["second"]})
            await until(lambda: "t_second" in connection.tools)
            await agent.ask("2")
            await refused(runtime, "t_exit")  # another list comes with the next connection
            await until(lambda: "t_first" in connection.tools)
            await agent.ask("3")
            nursery.cancel_scope.cancel()
    both = ["t_change", "t_exit"]
    assert shown == [[*both, "t_first"], [*both, "t_second"], [*both, "t_first"]]
    assert seen_without == []


@pytest.mark.slow
async def test_a_tool_goes_while_it_is_called(runtime: ta.Runtime, mark: Mark) -> None:
    connection = await connect_mcp(runtime.scope, mark.server("tool=steps"), name="t")
    results: list[str] = []
    async with runtime.scope.open_child("child") as scope:
        other = await connect_mcp(scope, mark.server("tool=slow"), name="u")

        async def call() -> None:
            results.append((await use(scope, "u_steps", {"count": 4, "every": 0.05})).text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await use(scope, "u_change", {"extra": []})
            await until(lambda: "u_slow" not in other.tools)
        assert results == ["all steps"]
    assert "t_steps" in connection.tools
