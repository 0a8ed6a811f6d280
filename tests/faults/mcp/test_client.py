"""What a server of tools is to agents: its tools, their results, their errors, its environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.faults.mcp.servers import Mark, refused, until, use
from trio_agents.models import Reply, ScriptedModel
from trio_agents.plugins.mcp import HttpServer, McpServers, StdioServer, connect_mcp


async def test_tools_and_their_results(runtime: ta.Runtime, mark: Mark) -> None:
    kept: list[bytes] = []

    def keep(attachment: object, data: bytes) -> None:
        kept.append(data)

    connection = await connect_mcp(runtime.scope, mark.server("noisy"), name="t")
    assert connection.is_connected
    assert connection.name == "t"
    assert connection.instructions == "Use it well."
    assert set(connection.tools) == {tool.name for tool in runtime.tools.list()}

    effects = {tool.name: (tool.effect, tool.is_parallel({})) for tool in runtime.tools.list()}
    assert effects["t_look"] == ("pure", True)
    assert effects["t_set"] == ("idempotent", False)
    assert effects["t_echo"] == ("once", False)
    spec = runtime.tools.get("t_echo")
    assert spec is not None
    assert spec.description == "The tool echo."
    assert spec.parameters.value == {"type": "object", "properties": {}}

    assert (await use(runtime, "t_echo", {"text": "grüß"})).text == "grüß"
    assert (await use(runtime, "t_odd_name_919b02", {"text": "x"})).text == "x"

    facts = await use(runtime, "t_facts")
    assert facts.text == '{"n":1}'
    assert facts.meta is not None
    assert facts.meta.value == {"structuredContent": {"n": 1}}

    bad = await use(runtime, "t_bad")
    assert bad.is_error
    assert bad.error is not None
    assert (bad.text, bad.error.code) == ("it did not work", "MCP_TOOL_FAILED")

    picture = await use(runtime, "t_picture", attach=keep)
    assert [block.tag for block in picture.content] == ["image", "text", "text", "text", "text"]
    assert len(kept) == 1
    assert picture.text == (
        "[image/svg+xml, about 6 bytes, left out][audio/wav, about 3 bytes, left out][resource r: file:///r]inside"
    )


async def test_odd_schemas_and_numbers(runtime: ta.Runtime, mark: Mark) -> None:
    """Bounds of 64-bit integers are common, and no reason to lose a tool."""
    await connect_mcp(runtime.scope, mark.server("odd"), name="t")
    look = runtime.tools.get("t_look")
    assert look is not None
    assert look.parameters.value == {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9.223372036854775807e18}},
    }
    large = await use(runtime, "t_large")
    assert large.meta is not None
    assert large.meta.value == {"structuredContent": {"n": 9.223372036854775807e18, "m": 1}}


async def test_a_server_that_wants_to_be_greeted(runtime: ta.Runtime, mark: Mark) -> None:
    """Asked which protocol it speaks, it ends: it is started again and greeted in the older way."""
    await connect_mcp(runtime.scope, mark.server("picky"), name="t")
    assert (await use(runtime, "t_echo", {"text": "x"})).text == "x"
    await connect_mcp(runtime.scope, mark.server("picky"), name="u", protocol="legacy")
    assert len(mark.alive()) == 2


async def test_a_server_that_fails_at_first_is_asked_again(
    runtime: ta.Runtime, mark: Mark, tmp_path: Path
) -> None:
    """That it ended when it was asked tells nothing, if it ended at the older greeting as well."""
    servers = McpServers({"t": mark.server(f"moody={tmp_path / 'starts'}")})
    servers(runtime.scope)
    with trio.fail_after(10):
        await servers.wait_connected()
    assert (tmp_path / "starts").read_text() == "3"


async def test_a_list_in_pages(runtime: ta.Runtime, mark: Mark) -> None:
    whole = await connect_mcp(runtime.scope, mark.server(), name="t")
    paged = await connect_mcp(runtime.scope, mark.server("paged"), name="p")
    assert [name.partition("_")[2] for name in paged.tools] == [
        name.partition("_")[2] for name in whole.tools
    ]


async def test_an_agent_uses_a_server_of_its_own(mark: Mark) -> None:
    """The tools are there for the first request, and the server is gone with the agent."""
    model = ScriptedModel([Reply.tool_call("t_echo", {"text": "hi"}), Reply.text("done")])

    async def setup(agent: ta.Agent) -> None:
        await connect_mcp(agent.scope, mark.server(), name="t", tools=["echo", "missing"])

    async with ta.open_runtime(models=[model]) as runtime:
        async with runtime.open_agent(model="scripted/m", setup=setup) as agent:
            assert (await agent.ask("go")).text == "done"
            assert [tool.name for tool in agent.scope.tools.list()] == ["t_echo"]
            assert "hi" in [block.text for message in agent.session.messages() for block in _texts(message)]
        assert runtime.tools.list() == []
        assert mark.alive() == []


def _texts(message: ta.Message) -> list[Any]:
    found: list[Any] = []
    for block in message.content:
        found += getattr(block, "content", [block] if block.tag == "text" else [])
    return found


async def test_one_client_for_all_agents(mark: Mark) -> None:
    """The plugin: connected in the background, once."""
    servers = McpServers({"a": mark.server(), "b": mark.server("fail")}, tools=["echo", "pid"])
    model = ScriptedModel(lambda request: Reply.text(",".join(tool.name for tool in request.tools)))
    async with ta.open_runtime(models=[model], plugins=[servers]) as runtime:
        with trio.fail_after(10):
            await servers.connections["a"].wait_connected()
        with trio.move_on_after(0.05) as waiting:
            await servers.wait_connected()
        assert waiting.cancelled_caught  # one of them does not come up, and is in nobody's way
        assert (servers.connections["a"].is_connected, servers.connections["b"].is_connected) == (True, False)
        async with (
            runtime.open_agent(model="scripted/m") as one,
            runtime.open_agent(model="scripted/m") as other,
        ):
            assert (await one.ask("?")).text == (await other.ask("?")).text == "a_echo,a_pid"
        with pytest.raises(ta.UsageError, match="connected already"):
            servers(runtime.scope)
    assert (servers.connections["a"].is_connected, mark.alive()) == (False, [])
    with pytest.raises(ta.ToolServerError, match="never connected"):
        await servers.wait_connected()


async def test_it_inherits_no_secret(
    runtime: ta.Runtime, mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is safe and what is declared; what is declared is never shown."""
    monkeypatch.setenv("GITHUB_TOKEN", "planted-token")
    monkeypatch.setenv("ANYTHING", "planted-thing")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    await connect_mcp(runtime.scope, mark.server(SECRET_KEY="planted-key"), name="t")
    seen = json.loads((await use(runtime, "t_env")).text)
    assert "planted-token" not in seen.values()
    assert "planted-thing" not in seen.values()
    assert seen["SECRET_KEY"] == "planted-key"
    assert {"PATH", "LC_ALL"} <= seen.keys()

    told = [await refused(runtime, "t_refuse"), await refused(runtime, "t_exit")]
    assert [exc.code for exc in told] == ["MCP_FAILED", "MCP_LOST"]
    assert all("planted" not in str(exc) and "***" in str(exc) for exc in told)


BAD: dict[str, tuple[Callable[[Mark], StdioServer | HttpServer], dict[str, Any], str]] = {
    "no program": (lambda mark: StdioServer("no-such-program"), {}, "No such file"),
    "no folder": (lambda mark: StdioServer(sys.executable, cwd="missing-folder"), {}, "missing-folder"),
    "it exits": (
        lambda mark: mark.server("fail"),
        {},
        "it exited with code 4; its last words: there is no key",
    ),
    "it cannot be understood": (
        lambda mark: mark.server("deep"),
        {},
        "the answer cannot be read: .*recursion",
    ),
    "it says nothing": (lambda mark: mark.server("mute"), {"connect_timeout": 0.4}, "within 0.4 s"),
    "nobody is there": (lambda mark: HttpServer("http://127.0.0.1:9/mcp"), {}, "ConnectError"),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_cannot_be_connected(what: str, runtime: ta.Runtime, mark: Mark) -> None:
    make, options, text = BAD[what]
    with pytest.raises(ta.ToolServerError, match=text) as caught:
        await connect_mcp(runtime.scope, make(mark), name="t", **options)
    assert (caught.value.server, caught.value.code) == ("t", "MCP_UNAVAILABLE")
    assert caught.value.__cause__ is not None
    assert runtime.tools.list() == []
    assert mark.alive() == []


async def test_a_name_is_taken_once(runtime: ta.Runtime, mark: Mark) -> None:
    """Nothing of the second is left: no tool, no process."""
    first = await connect_mcp(runtime.scope, mark.server(), name="t")
    with pytest.raises(ta.UsageError, match="already has a tool named"):
        await connect_mcp(runtime.scope, mark.server("tool=new"), name="t")
    assert {tool.name for tool in runtime.tools.list()} == set(first.tools)
    assert len(mark.alive()) == 1
    assert (await use(runtime, "t_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize("name", ["", "a_b", "a b", "ü", "x" * 33])
async def test_names_of_servers(name: str, runtime: ta.Runtime, mark: Mark) -> None:
    with pytest.raises(ta.UsageError, match="is named with"):
        await connect_mcp(runtime.scope, mark.server(), name=name)


async def test_a_cancel_leaves_the_server_usable(runtime: ta.Runtime, mark: Mark) -> None:
    await connect_mcp(runtime.scope, mark.server(), name="t")
    started = (await use(runtime, "t_pid")).text
    with trio.move_on_after(0.1) as scope:
        await use(runtime, "t_wait")
    assert scope.cancelled_caught
    assert (await use(runtime, "t_cancelled")).text == "1"
    assert (await use(runtime, "t_pid")).text == started


async def test_closing_early(runtime: ta.Runtime, mark: Mark) -> None:
    """The calls at work are cancelled, the tools are gone, the process too; closing twice is closing once."""
    connection = await connect_mcp(runtime.scope, mark.server(), name="t")
    tool = runtime.tools.get("t_echo")
    assert tool is not None
    await connection.aclose()
    assert runtime.tools.list() == []
    assert connection.tools == []
    assert mark.alive() == []
    await connection.aclose()
    with pytest.raises(ta.ToolServerError, match="its connection has ended"):
        await tool.invoke({}, ta.ToolContext(call_id="c", name="t"))
    again = await connect_mcp(runtime.scope, mark.server(), name="t")
    assert again.is_connected


async def test_closing_from_several_tasks(runtime: ta.Runtime, mark: Mark) -> None:
    """The end is carried out once, and awaited by all."""
    connection = await connect_mcp(runtime.scope, mark.server(), name="t")
    ended: list[bool] = []

    async def close() -> None:
        await connection.aclose()
        ended.append(not mark.alive())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(close)
    assert ended == [True] * 3
    assert connection.tools == []


async def test_what_is_a_checkpoint(runtime: ta.Runtime, mark: Mark) -> None:
    """Each public async function, also where it has nothing to wait for; a call of a tool, whatever comes of it."""
    checkpoints = trio.testing.assert_checkpoints
    with checkpoints():
        connection = await connect_mcp(runtime.scope, mark.server(), name="t")
    tool = runtime.tools.get("t_echo")
    assert tool is not None
    with checkpoints():
        await connection.wait_connected()
    with checkpoints():
        await tool.invoke({"text": "x"}, ta.ToolContext(call_id="c", name="t"))
    for _ in range(2):
        with checkpoints():
            await connection.aclose()
    with checkpoints(), pytest.raises(ta.ToolServerError):
        await tool.invoke({"text": "x"}, ta.ToolContext(call_id="c", name="t"))
    with checkpoints():
        await McpServers({}).wait_connected()


async def test_real_servers(runtime: ta.Runtime, tmp_path: Path) -> None:
    """A server that is made with the `mcp` package, and speaks the newer protocol."""
    program = tmp_path / "server.py"
    program.write_text(REAL)
    server = StdioServer(sys.executable, [str(program)])
    with trio.fail_after(30):
        connection = await connect_mcp(runtime.scope, server, name="real")
        assert (await use(runtime, "real_add", {"a": 1, "b": 2})).text == "3"
        wrong = await use(runtime, "real_add", {"a": "x"})
        assert wrong.is_error
        assert (await use(runtime, "real_grow")).text == "grown"
        await until(lambda: "real_grown" in connection.tools)
        assert (await use(runtime, "real_grown")).text == "new"


REAL = """
import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("real")

@server.tool()
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

@server.tool()
async def grow(context: Context) -> str:
    "Get another tool."
    async def grown() -> str:
        return "new"
    server.add_tool(grown)
    await context.notify_tools_changed()
    return "grown"

anyio.run(server.run_stdio_async, backend="trio")
"""
