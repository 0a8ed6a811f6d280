"""MCP without a server: names, registrations, descriptions, lines, results."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import hypothesis
import mcp_types
import pytest
import trio
from hypothesis import strategies as st
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.message import SessionMessage

import trio_agents as ta
from trio_agents.plugins.mcp import HttpServer, McpServers, StdioServer, connect_mcp
from trio_agents.plugins.mcp._answers import _end
from trio_agents.plugins.mcp._calls import call_tool as call_tool_at, to_return
from trio_agents.plugins.mcp._connection import ConnectionOptions
from trio_agents.plugins.mcp._numbers import storable
from trio_agents.plugins.mcp._offers import Offers, RemoteTool, tool_name
from trio_agents.plugins.mcp._pipes import Incoming, Lines, Outgoing
from trio_agents.plugins.mcp._servers import harmless, redact
from trio_agents.plugins.mcp._session import Session, _is_local
from trio_agents.tools import ToolContext, ToolReturn
from trio_agents.tools._child import safe_environment
from trio_agents.values import FrozenJson

# --- imports --------------------------------------------------------------------------------------


def test_the_extra_is_imported_late() -> None:
    program = """
import sys, trio_agents, trio_agents.plugins.mcp as ours
ours.StdioServer("x"), ours.McpServers({})
print(sorted(sys.modules.keys() & {"mcp", "mcp_types", "pydantic", "anyio", "httpx2"}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    async def main() -> None:
        async with ta.open_runtime(plugins=[McpServers({"a": StdioServer("x")})]):
            raise AssertionError("it was opened")

    with pytest.raises(ta.UsageError, match=re.escape("pip install 'trio-agents[mcp]'")):
        trio.run(main)


# --- names ----------------------------------------------------------------------------------------

SERVER_NAMES = st.from_regex(r"[A-Za-z0-9-]{1,32}", fullmatch=True)
TOOL_NAMES = st.text(max_size=80) | st.from_regex(r"[A-Za-z0-9_.-]{1,80}", fullmatch=True)


@hypothesis.given(SERVER_NAMES, TOOL_NAMES)
def test_names_suit_every_provider(server: str, tool: str) -> None:
    name = tool_name(server, tool)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
    assert name.partition("_")[0] == server
    if re.fullmatch(r"[A-Za-z0-9_-]{1,31}", tool):
        assert name == f"{server}_{tool}"


@hypothesis.given(st.sets(st.tuples(SERVER_NAMES, TOOL_NAMES), min_size=2, max_size=10))
def test_names_do_not_clash(pairs: set[tuple[str, str]]) -> None:
    assert len({tool_name(*pair) for pair in pairs}) == len(pairs)


def test_names_that_look_alike() -> None:
    names = ["a.b", "a/b", "a_b", "a b", "x" * 80, "x" * 81]
    assert len({tool_name("s", name) for name in names}) == len(names)


# --- registrations --------------------------------------------------------------------------------


def remote(name: str, description: str = "d") -> RemoteTool:
    return RemoteTool(name=name, description=description, parameters=FrozenJson(b"{}"), effect="once")


async def call(tool: str, arguments: Mapping[str, object], context: ToolContext) -> ToolReturn:
    await trio.lowlevel.checkpoint()
    return ToolReturn(tool)


@pytest.fixture
async def scope() -> AsyncIterator[ta.Scope]:
    async with ta.open_runtime() as runtime:
        yield runtime.scope


def shown(scope: ta.Scope) -> dict[str, str]:
    return {tool.name: tool.description for tool in scope.tools.list()}


async def test_a_list_replaces_another(scope: ta.Scope) -> None:
    offers = Offers(scope, "s", call, None)
    offers.put([remote("a"), remote("b"), remote("a")])
    kept = scope.tools.get("s_a")
    offers.put([remote("a"), remote("b", "other"), remote("c")])
    assert shown(scope) == {"s_a": "d", "s_b": "other", "s_c": "d"}
    assert scope.tools.get("s_a") is kept
    offers.put([remote("c")])
    assert shown(scope) == {"s_c": "d"}
    offers.withdraw()
    offers.withdraw()
    assert (shown(scope), offers.names) == ({}, [])


async def test_a_clash_changes_nothing(scope: ta.Scope, caplog: pytest.LogCaptureFixture) -> None:
    @ta.tool(name="s_mine")
    async def mine() -> None:
        """Mine."""

    scope.tools.register(mine)
    offers = Offers(scope, "s", call, None)
    offers.put([remote("a")])
    with pytest.raises(ta.UsageError, match="already has a tool named 's_mine'"):
        offers.put([remote("b"), remote("mine")])
    assert shown(scope) == {"s_mine": "Mine.", "s_a": "d"}
    offers.put_what_fits([remote("b"), remote("mine")])
    assert shown(scope) == {"s_mine": "Mine.", "s_a": "d"}
    assert "the new list of tools of MCP server 's' is not taken" in caplog.text


async def test_a_list_that_comes_too_late(caplog: pytest.LogCaptureFixture) -> None:
    async with ta.open_runtime() as runtime:
        async with runtime.scope.open_child("child") as scope:
            offers = Offers(scope, "s", call, None)
            offers.put([remote("a")])
        offers.put_what_fits([remote("b")])
        assert runtime.tools.list() == []
    assert caplog.text == ""


async def test_only_what_was_chosen(scope: ta.Scope) -> None:
    Offers(scope, "s", call, ["a", "x"]).put([remote("a"), remote("b")])
    assert list(shown(scope)) == ["s_a"]


# --- descriptions ---------------------------------------------------------------------------------

WRONG: list[Callable[[], object]] = [
    lambda: StdioServer(""),
    lambda: StdioServer("a\0b"),
    lambda: StdioServer("a", "not a list"),
    lambda: StdioServer("a", [1]),  # type: ignore[list-item]
    lambda: StdioServer("a", env={"A": 1}),  # type: ignore[dict-item]
    lambda: StdioServer("a", grace=0),
    lambda: StdioServer("a", grace=float("inf")),
    lambda: StdioServer("a", grace=True),
    lambda: HttpServer("ftp://x"),
    lambda: HttpServer("http://"),
    lambda: HttpServer("https://me:secret@example.org/mcp"),
    lambda: HttpServer("http://x", headers={"A": None}),  # type: ignore[dict-item]
    lambda: HttpServer("http://x", headers={"A": "x\ny"}),
    lambda: HttpServer("http://x", headers={"A": "\u00fc"}),
    lambda: HttpServer("http://x", headers={"A b": "x"}),
    lambda: HttpServer("http://x", headers={"": "x"}),
    lambda: HttpServer("http://x", connect_timeout=-1),
    lambda: ConnectionOptions(silence_timeout=0),
    lambda: ConnectionOptions(call_timeout="1"),  # type: ignore[arg-type]
    lambda: ConnectionOptions(tools="echo"),
    lambda: ConnectionOptions(protocol="old"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("make", WRONG, ids=range(len(WRONG)))
def test_what_cannot_be(make: Callable[[], object]) -> None:
    with pytest.raises(ta.UsageError):
        make()


async def test_what_is_no_server(scope: ta.Scope) -> None:
    with pytest.raises(ta.UsageError, match="a StdioServer or an HttpServer"):
        McpServers({"a": "http://x"})(scope)  # type: ignore[dict-item]
    with pytest.raises(ta.UsageError, match=r"such as agent\.scope"):
        await connect_mcp(scope.agents, HttpServer("http://x"), name="a")  # type: ignore[arg-type]


def test_what_was_given_in_confidence_is_not_shown() -> None:
    server = StdioServer("x", env={"KEY": "abcdef-longer", "OTHER": "abcdef", "N": "1"})
    assert redact(server, "1 abcdef-longer abcdef") == "1 *** ***"
    assert "abcdef" not in repr(server)
    remote = HttpServer("https://x", headers={"Authorization": "Bearer s3cr3t-token"})
    assert redact(remote, "token s3cr3t-token of Bearer s3cr3t-token") == "token *** of ***"
    assert "s3cr3t" not in repr(remote)
    padded = HttpServer("https://x", headers={"A": " s3cr3t-token\n"})
    assert padded.headers == {"A": "s3cr3t-token"}
    keyed = HttpServer("https://x/mcp?key=s3cr3t-key&n=1")
    assert redact(keyed, "https://x/mcp?key=s3cr3t-key&n=1") == "https://x/mcp?key=***&n=1"


def test_no_cause_shows_it_either() -> None:
    """ERR-10: a report of an error shows what led to it, too."""
    server = StdioServer("x", env={"KEY": "s3cr3t-token"})
    plain, telling = ValueError("plain"), ValueError("with s3cr3t-token")
    assert harmless(server, plain) is plain
    assert harmless(server, telling) is None
    plain.__context__ = ExceptionGroup("several", [telling])
    assert harmless(server, plain) is None


def test_what_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "() { :; }")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("OTHER", "x")
    inherited = safe_environment()
    assert inherited["LC_TIME"] == "C"
    assert not {"SHELL", "OTHER"} & inherited.keys()


# --- lines ----------------------------------------------------------------------------------------


@hypothesis.given(st.lists(st.binary(max_size=6)), st.data())
def test_lines_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    whole = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    reader = Lines()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        reader.feed(whole[start:end])
        while (line := reader.take()) is not None:
            found.append(line)
    assert found == lines


async def test_what_is_no_message_is_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [b'Hello\n{"jsonrpc":"2.0","met', b'hod":"a"}\n\n[]\n', b'{"jsonrpc":"2.0","method":"b"}\n', b""]
    aside: list[bytes] = []

    async def source() -> bytes:
        await trio.lowlevel.checkpoint()
        return pieces.pop(0)

    faults: list[str] = []
    found: list[Any] = [message async for message in Incoming(source, aside.append, faults.append)]
    assert [message.message.method for message in found] == ["a", "b"]
    assert aside == [b"Hello", b"[]"]

    monkeypatch.setattr("trio_agents.plugins.mcp._pipes.LONGEST", 10)
    pieces[:] = [b"x" * 11]
    assert [message async for message in Incoming(source, aside.append, faults.append)] == []
    assert faults == ["a message of more than 10 bytes"]
    assert aside == [b"Hello", b"[]"]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"t":"a\\ud800b\\ud83d\\ude00"}}', {"t": "a\ufffdb\U0001f600"}),
        (b'{"jsonrpc":"2.0","id":1,"result":{"t":"a\xffb"}}', {"t": "a\ufffdb"}),
        (b'{"jsonrpc":"2.0","id":1,"result":7}', None),
        (b'{"jsonrpc":"2.0","id":1}', None),
        (b'{"jsonrpc":"2.0","id":1,"result":"a\\ud800b"}', None),
    ],
)
async def test_an_answer_is_not_waited_for_in_vain(line: bytes, read: object) -> None:
    """P3 c: half characters are replaced; what cannot be read at all fails the call."""
    pieces = [line + b"\n", b""]
    aside: list[bytes] = []

    async def source() -> bytes:
        await trio.lowlevel.checkpoint()
        return pieces.pop(0)

    [found] = [message async for message in Incoming(source, aside.append, lambda fault: None)]
    assert isinstance(found, SessionMessage)
    message = found.message
    assert getattr(message, "id", None) == 1
    if isinstance(message, mcp_types.JSONRPCResponse):
        assert message.result == read
    else:
        assert isinstance(message, mcp_types.JSONRPCError)
        assert message.error.message.startswith("the answer cannot be read")
        assert read is None
    assert aside == []


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b"\xff", b'{"id":true,"result":{}}', b'{"id":1,"method":7}', b'{"id":[1]}']
)
async def test_what_answers_nothing_is_put_aside(line: bytes) -> None:
    pieces = [line + b"\n", b""]
    aside: list[bytes] = []

    async def source() -> bytes:
        await trio.lowlevel.checkpoint()
        return pieces.pop(0)

    assert [message async for message in Incoming(source, aside.append, lambda fault: None)] == []
    assert aside == [line]


# --- results --------------------------------------------------------------------------------------


def test_a_picture_that_cannot_be_kept() -> None:
    """Without a place for pictures, and with one that is no picture, a note stands in."""
    content: list[mcp_types.ContentBlock] = [
        mcp_types.ImageContent(type="image", data="AAAA", mime_type="image/png"),
        mcp_types.ImageContent(type="image", data="not base64!", mime_type="image/png"),
        mcp_types.EmbeddedResource(
            type="resource",
            resource=mcp_types.BlobResourceContents(uri="x:y", blob="AAAAAAAA", mime_type="image/gif"),
        ),
        mcp_types.EmbeddedResource(
            type="resource", resource=mcp_types.BlobResourceContents(uri="x:y", blob="AAAAAAAA")
        ),
    ]
    result = to_return(mcp_types.CallToolResult(content=content), ToolContext(call_id="c", name="t"))
    assert not result.is_error
    assert result.text == (
        "[image/png, about 3 bytes, left out][image/png, about 8 bytes, left out]"
        "[image/gif, about 6 bytes, left out][application/octet-stream, about 6 bytes, left out]"
    )


def test_structured_content_beside_text_is_for_programs() -> None:
    told = mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text="one")], structured_content={"n": 1}, is_error=True
    )
    result = to_return(told, ToolContext(call_id="c", name="t"))
    assert (result.text, result.is_error) == ("one", True)
    assert result.meta is not None
    assert result.meta.value == {"structuredContent": {"n": 1}}
    assert result.error is not None
    assert result.error.code == "MCP_TOOL_FAILED"


# --- a session with a server in this process ------------------------------------------------------


class Host:
    """A server in this process, and the session of one client with it; what it lists, and when it was listed."""

    def __init__(self, **handlers: Any) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)
        self.names = ["a"]
        self.listed: list[list[str]] = []
        self.server: Server[Any] = Server(
            "x", on_list_tools=self.list_tools, on_subscriptions_listen=self.listen, **handlers
        )
        self.session = Session(
            StdioServer("x"),
            "x",
            ready=lambda session, tools: self.note(tools),
            relisted=self.note,
            connect_timeout=30.0,
            protocol="auto",
        )

    def note(self, tools: list[RemoteTool]) -> None:
        self.listed.append([tool.name for tool in tools])

    async def list_tools(self, context: Any, params: Any) -> mcp_types.ListToolsResult:
        await trio.lowlevel.checkpoint()
        tools = [mcp_types.Tool(name=name, input_schema={"type": "object"}) for name in self.names]
        return mcp_types.ListToolsResult(tools=tools)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.session._talk, self.server, trio.CancelScope())
            await trio.testing.wait_all_tasks_blocked()
            yield
            self.session.leave()


async def test_notices_are_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    """The server ends its answer to who wants to hear of changes: what changed meanwhile is not missed."""
    host = Host()
    async with host.at_work():
        assert host.listed == [["a"]]
        host.names = ["a", "b"]
        await host.bus.publish(ToolsListChanged())
        await trio.testing.wait_all_tasks_blocked()
        assert host.listed == [["a"], ["a", "b"]]
        host.listen.close()
        await trio.testing.wait_all_tasks_blocked()
        host.names = ["c"]
        await host.bus.publish(ToolsListChanged())  # nobody hears it
        await trio.sleep(1)
        assert host.listed == [["a"], ["a", "b"], ["c"]]


async def test_a_server_without_tools(autojump_clock: trio.testing.MockClock) -> None:
    host = Host()
    host.server = Server("bare")
    async with host.at_work():
        assert host.listed == [[]]


@pytest.mark.parametrize(("every", "after"), [(50, 600), (59, 600), (61, 60), (None, 60)])
async def test_the_deadlines_of_a_call(
    every: float | None, after: float, autojump_clock: trio.testing.MockClock
) -> None:
    """It may be silent for a minute, and last ten, to the second."""

    async def call_tool(context: Any, params: Any) -> mcp_types.CallToolResult:
        count = 0
        while True:
            await trio.sleep(math.inf if every is None else every)
            count += 1
            await context.session.report_progress(
                count, message=None if count % 2 else f"step {count}", total=99
            )

    told: list[str] = []
    host = Host(on_call_tool=call_tool)
    async with host.at_work():
        begin = trio.current_time()
        with pytest.raises(ta.ToolServerError) as caught:
            await call_tool_of(host.session, told.append)
        assert trio.current_time() - begin == pytest.approx(after)
    assert caught.value.code == "MCP_TIMEOUT"
    if every == 50:
        assert told[:3] == ["1 of 99", "step 2", "3 of 99"]


async def call_tool_of(session: Session, progress: Callable[[str], None]) -> ToolReturn:
    context = ToolContext(call_id="c", name="t", progress=progress)
    return await call_tool_at(session, StdioServer("x"), "x", "a", {}, context, ConnectionOptions())


# --- the rest -------------------------------------------------------------------------------------


def test_numbers_that_are_rounded() -> None:
    odd = {
        "a": [2**63, -(2**53), 2**53 - 1, 10**400, True],
        "b": -0.0,
        "c": math.inf,
        "d": math.nan,
        "e": 1.5,
    }
    assert storable(odd) == {
        "a": [2.0**63, -(2.0**53), 2**53 - 1, str(10**400), True],
        "b": 0,
        "c": "inf",
        "d": "nan",
        "e": 1.5,
    }
    FrozenJson.of(storable(odd))


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8000/mcp", True),
        ("http://[::1]/mcp", True),
        ("http://localhost/mcp", True),
        ("https://example.org/mcp", False),
        ("https://192.0.2.1/mcp", False),
    ],
)
def test_what_needs_no_proxy(url: str, local: bool) -> None:
    assert _is_local(url) is local


async def test_the_ends_of_the_pipes() -> None:
    async def nothing() -> bytes:
        await trio.lowlevel.checkpoint()
        return b""

    with pytest.raises(anyio.EndOfStream):
        await Incoming(nothing, lambda line: None, lambda fault: None).receive()

    lost = trio.Event()

    async def write(data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        raise trio.ClosedResourceError

    message = SessionMessage(mcp_types.JSONRPCNotification(jsonrpc="2.0", method="a"))
    with pytest.raises(anyio.BrokenResourceError):
        await Outgoing(write, lost.set).send(message)
    assert lost.is_set()


def test_a_client_that_is_given_up_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    _end("a message of more than 10 bytes")
    assert "an MCP client is served no longer: it sent a message of more than 10 bytes" in caplog.text
