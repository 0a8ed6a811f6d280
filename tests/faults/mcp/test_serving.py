"""Agents as MCP servers: a program over stdio, an application over HTTP, and in process."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

import trio_agents as ta
from tests.faults.mcp.agent_server import answer
from tests.faults.mcp.servers import refused, until, use
from trio_agents.models import Hang, Reply, ScriptedModel
from trio_agents.plugins.mcp import HttpServer, StdioServer, connect_mcp, mcp_app, serve_mcp
from trio_agents.tools import ToolReturn

PROGRAM = Path(__file__).with_name("agent_server.py")
ROOT = Path(__file__).parents[3]
OPTIONS = ta.AgentOptions(model="scripted/m")


def program(what: str, log: Path) -> StdioServer:
    return StdioServer(sys.executable, [str(PROGRAM), what, str(log)], env={"PYTHONPATH": str(ROOT)})


async def test_one_agent_over_stdio(runtime: ta.Runtime, tmp_path: Path) -> None:
    """One conversation; a stray print tears nothing; the end of the input ends the program in order."""
    log = tmp_path / "log"
    connection = await connect_mcp(runtime.scope, program("agent", log), name="one")
    tool = runtime.tools.get("one_ask")
    assert tool is not None
    parameters: Any = tool.parameters.value
    assert parameters["properties"].keys() == {"message"}
    assert (await use(runtime, "one_ask", {"message": "hello"})).text == "1: hello"
    assert (await use(runtime, "one_ask", {"message": "again"})).text == "2: again"

    failed = await use(runtime, "one_ask", {"message": "fail"})
    assert failed.is_error
    assert "the provider is away" in failed.text
    for arguments in ({}, {"message": ""}, {"message": 1}, {"message": "x", "session": "y"}):
        assert (await refused(runtime, "one_ask", arguments)).code == "MCP_FAILED"

    with trio.move_on_after(0.3) as scope:
        await use(runtime, "one_ask", {"message": "hang"})
    assert scope.cancelled_caught
    await until(lambda: "Aborted" in log.read_text())
    # What was said before is still known; the message whose turn was cancelled is part of it.
    assert (await use(runtime, "one_ask", {"message": "there?"})).text.endswith(": there?")
    await connection.aclose()
    assert log.read_text().endswith("over\n")


@pytest.mark.slow
def test_a_signal_ends_a_server_that_waits_for_input(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), "scope", str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert b'"id":1' in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
        assert process.stdout.read() == b""
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


# --- over HTTP ------------------------------------------------------------------------------------

# `mcp` leaves the generators of an answer that it has read to the garbage collector; nothing is open behind them.
over_http = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


@asynccontextmanager
async def http(app: Any, port: int = 0) -> AsyncIterator[str]:
    """The application under hypercorn; its URL."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.graceful_timeout = 0.2
    config.errorlog = None
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(functools.partial(serve, app, config, shutdown_trigger=stop.wait))
        try:
            yield f"{bound[0]}/mcp"
        finally:
            stop.set()


def session_of(result: ToolReturn) -> str:
    """The session that a reply names."""
    assert result.meta is not None
    facts: Any = result.meta.value
    return str(facts["structuredContent"]["session"])


@over_http
async def test_agents_of_a_scope_over_http(swept: None) -> None:
    """A session for each conversation; only those that were begun in this way can be named."""
    async with ta.open_runtime(models=[ScriptedModel(answer)]) as runtime:
        async with runtime.open_agent("private", options=OPTIONS) as agent:
            await agent.ask("a secret")
        async with (
            http(mcp_app(runtime.scope, options=OPTIONS, name="many")) as url,
            ta.open_runtime() as other,
        ):
            await connect_mcp(other.scope, HttpServer(url, headers={"X-Key": "planted-key"}), name="many")
            first = await use(other, "many_ask", {"message": "hello"})
            second = await use(other, "many_ask", {"message": "hello"})
            assert (first.text, second.text) == ("1: hello", "1: hello")
            assert session_of(first) != session_of(second)
            again = await use(other, "many_ask", {"message": "more", "session": session_of(first)})
            assert again.text == "2: more"
            for name in ("private", "mcp-private", "../private", "missing"):
                exc = await refused(other, "many_ask", {"message": "?", "session": name})
                assert "there is no session" in str(exc)
            assert runtime.agents.list() == []


@over_http
async def test_calls_of_one_session_wait_for_each_other(swept: None) -> None:
    async with (
        ta.open_runtime(models=[ScriptedModel(answer)]) as runtime,
        http(mcp_app(runtime.scope, options=OPTIONS)) as url,
        ta.open_runtime() as other,
    ):
        await connect_mcp(other.scope, HttpServer(url), name="a")
        session = session_of(await use(other, "a_ask", {"message": "0"}))
        texts: list[str] = []

        async def ask(number: int) -> None:
            texts.append((await use(other, "a_ask", {"message": str(number), "session": session})).text[0])

        async with trio.open_nursery() as nursery:
            for number in range(1, 5):
                nursery.start_soon(ask, number)
        assert sorted(texts) == ["2", "3", "4", "5"]


@over_http
async def test_a_server_behind_a_url_starts_anew(swept: None) -> None:
    """Its calls fail while it is away and work when it is back, at the same address; the other one is untouched."""
    async with ta.open_runtime(models=[ScriptedModel(answer)]) as runtime, ta.open_runtime() as other:
        app = mcp_app(runtime.scope, options=OPTIONS)
        async with http(mcp_app(runtime.scope, options=OPTIONS)) as steady:
            await connect_mcp(other.scope, HttpServer(steady), name="steady")
            async with http(app) as url:
                connection = await connect_mcp(other.scope, HttpServer(url), name="a")
                assert (await use(other, "a_ask", {"message": "x"})).text == "1: x"
            port = int(url.rpartition(":")[2].partition("/")[0])
            with trio.fail_after(2):
                exc = await refused(other, "a_ask", {"message": "x"})
            assert exc.code in {"MCP_LOST", "MCP_UNAVAILABLE"}
            await until(lambda: not connection.is_connected)
            assert (await refused(other, "a_ask", {"message": "x"})).code == "MCP_UNAVAILABLE"
            assert (await use(other, "steady_ask", {"message": "x"})).text == "1: x"
            async with http(mcp_app(runtime.scope, options=OPTIONS), port):
                await until(lambda: connection.is_connected)
                assert (await use(other, "a_ask", {"message": "x"})).text == "1: x"


@over_http
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_server_behind_a_url_ends_during_calls(protocol: Any, swept: None) -> None:
    """P3 a: the calls end within a second of it."""
    codes: list[str] = []
    async with ta.open_runtime(models=[ScriptedModel(answer)]) as runtime, ta.open_runtime() as other:
        async with trio.open_nursery() as nursery:

            async def hang() -> None:
                codes.append((await refused(other, "a_ask", {"message": "hang"})).code)

            async with http(mcp_app(runtime.scope, options=OPTIONS)) as url:
                await connect_mcp(other.scope, HttpServer(url), name="a", protocol=protocol)
                for _ in range(3):
                    nursery.start_soon(hang)
                await until(lambda: sum(agent.status == "running" for agent in runtime.agents.list()) == 3)
            begin = trio.current_time()
        assert trio.current_time() - begin < 1.5
    assert len(codes) == 3
    assert set(codes) <= {"MCP_LOST", "MCP_FAILED"}


@pytest.mark.slow
@over_http
async def test_a_session_that_was_forgotten(swept: None) -> None:
    """The server was exchanged between two calls: the next one fails, and those after it have a new session."""
    async with ta.open_runtime(models=[ScriptedModel(answer)]) as runtime, ta.open_runtime() as other:
        async with http(mcp_app(runtime.scope, options=OPTIONS)) as url:
            connection = await connect_mcp(other.scope, HttpServer(url), name="a", protocol="legacy")
            assert (await use(other, "a_ask", {"message": "x"})).text == "1: x"
        port = int(url.rpartition(":")[2].partition("/")[0])
        async with http(mcp_app(runtime.scope, options=OPTIONS), port):
            assert connection.is_connected
            exc = await refused(other, "a_ask", {"message": "x"})
            assert "session" in str(exc).lower()
            await until(lambda: other.tools.get("a_ask") is not None and connection.is_connected)
            assert (await use(other, "a_ask", {"message": "x"})).text == "1: x"


@over_http
async def test_a_session_is_said_good_bye_to(swept: None) -> None:
    """The older protocol keeps something for each client: it is told when that is not needed any more."""
    methods: list[str] = []

    async with ta.open_runtime(models=[ScriptedModel(answer)]) as runtime:
        app = mcp_app(runtime.scope, options=OPTIONS)

        async def noted(scope: Any, receive: Any, send: Any) -> None:
            methods.append(scope.get("method", ""))
            await app(scope, receive, send)

        async with http(noted) as url:
            async with ta.open_runtime() as other:
                await connect_mcp(other.scope, HttpServer(url), name="a", protocol="legacy")
                await use(other, "a_ask", {"message": "x"})
            assert methods[-1] == "DELETE"


@over_http
async def test_another_host_is_refused(swept: None) -> None:
    """A web page of somebody else, whose name leads to this machine, reaches nothing."""
    import httpx2

    async with (
        ta.open_runtime(models=[ScriptedModel(answer)]) as runtime,
        http(mcp_app(runtime.scope, options=OPTIONS)) as url,
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answered = await client.post(url, json=body, headers={"Host": "evil.example"})
        assert answered.status_code == 421
        answered = await client.post(url, json=body, headers={"Origin": "http://evil.example"})
        assert answered.status_code == 403


# --- in process -----------------------------------------------------------------------------------


async def test_progress_while_it_streams() -> None:
    """The text so far goes to the client; a cancel by the client ends the turn, and nothing of it is left."""
    from mcp import Client

    from trio_agents.plugins.mcp._answers import new_server

    reply = Reply.text("Hello", " there").cut(2, Hang())
    async with (
        ta.open_runtime(models=[ScriptedModel([reply])]) as runtime,
        runtime.open_agent(options=OPTIONS) as agent,
    ):
        server = new_server(agent, None, name="x", tool="ask", description="d")
        async with Client(server) as client:
            heard: list[str | None] = []
            told = trio.Event()

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                heard.append(message)
                if message:
                    told.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "ask", {"message": "hi"}, None, progress)
                await told.wait()
                nursery.cancel_scope.cancel()
            assert "Hello" in "".join(text or "" for text in heard)
            await agent.when_idle()
            assert "Aborted" in repr(agent.session.events[-1].data)


async def test_what_cannot_be_served(runtime: ta.Runtime) -> None:
    async with runtime.open_agent(options=ta.AgentOptions(model="x/y")) as agent:
        with pytest.raises(ta.UsageError, match="this agent has its own"):
            await serve_mcp(agent, options=OPTIONS)
        with pytest.raises(ta.UsageError, match="this agent has its own"):
            mcp_app(agent, options=OPTIONS)
        with pytest.raises(ta.UsageError, match=r"such as runtime\.scope"):
            mcp_app(runtime)  # type: ignore[arg-type]
        app = mcp_app(agent)
    assert callable(app)


def damage(folder: Path, session: str) -> None:
    """Put a line into a log that is none."""
    (log,) = [path for path in folder.rglob("*.jsonl") if session in str(path)]
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*lines[:2], b"damaged", *lines[2:]]))


async def test_errors_tell_nothing_of_this_machine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A session that is there and damaged; an agent that has ended."""
    from mcp import Client

    from trio_agents.plugins.mcp._answers import new_server

    store = ta.JsonlStore(tmp_path, durability="written")
    async with ta.open_runtime(store=store, models=[ScriptedModel(answer)]) as runtime:
        handle = await runtime.agents.create(options=OPTIONS)
        await handle.dispose()
        dead = new_server(handle.agent, None, name="x", tool="ask", description="d")
        async with Client(dead) as client:
            result = await client.call_tool("ask", {"message": "hi"})
        assert result.is_error

        server = new_server(runtime.scope, OPTIONS, name="x", tool="ask", description="d")
        async with Client(server) as client:
            result = await client.call_tool("ask", {"message": "hi"})
            assert not result.is_error
            facts: Any = result.structured_content
            damage(tmp_path, facts["session"])
            result = await client.call_tool("ask", {"message": "more", "session": facts["session"]})
            assert result.is_error
            assert "SessionCorruptError" in str(result.content)
            assert str(tmp_path) not in str(result.content)
    assert str(tmp_path) in caplog.text
