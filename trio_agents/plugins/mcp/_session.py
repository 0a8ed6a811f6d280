"""One connection with a server, from its start to its loss. Needs `mcp`.

Everything of it is entered and left by the one task that calls `run`: process or HTTP client, `mcp.Client`, the tasks
beside them. Whoever calls a tool only borrows the client. The connection is lost when the transport says so, and
never because a call failed: of a server behind a URL that forgot its session the next call tells.
"""

from __future__ import annotations

import importlib.metadata
import ipaddress
import logging
import math
from collections.abc import Callable
from typing import Any, Final, Literal, final
from urllib.parse import urlsplit

import httpx2
import mcp_types
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...tools import Effect, open_process
from ...values import FrozenJson, describe
from ._numbers import storable
from ._offers import RemoteTool
from ._program import Program
from ._servers import HttpServer, Server, StdioServer, redact

logger: Final = logging.getLogger("trio_agents")

Protocol = Literal["auto", "legacy"]

_MOST_PAGES: Final = 100
_LEAVE: Final = 2.0
"""Seconds that the farewell may take: of an HTTP server, the end of its session."""
_WRITE: Final = 30.0


@final
class Session:
    """A connection.

    Attributes:
        client: what speaks with the server, or None before the connection stands and after its end.
        lost: set when the server is gone, or when it is to be left.
        has_stood: whether the server has answered and listed its tools.
        over: set when it is known why.
        reason: why, or an empty text.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        *,
        ready: Callable[[Session, list[RemoteTool]], None],
        relisted: Callable[[list[RemoteTool]], None],
        connect_timeout: float,
        protocol: Protocol,
    ) -> None:
        self._server = server
        self._name = name
        self._ready = ready
        self._relisted = relisted
        self._timeout = connect_timeout
        self._protocol = protocol
        self._changed = trio.Event()
        self._asks = False  # whether `_listen` hears of changes; what else comes of them is an echo
        self.has_stood = False
        self._last_words: Callable[[], str] = str
        self.client: Client | None = None
        self.lost = trio.Event()
        self.over = trio.Event()
        self.reason = ""

    @property
    def instructions(self) -> str | None:
        """What the server says of its use."""
        return None if self.client is None else self.client.instructions

    def leave(self, reason: str = "") -> None:
        """End the connection; the task in `run` does it. No checkpoint."""
        self.reason = self.reason or reason
        self.lost.set()

    async def run(self) -> None:
        """Connect, and stay connected until the server is lost or left. A checkpoint.

        Raises:
            ToolServerError: the server could not be connected.
            UsageError: its tools cannot be registered.
        """
        failure: Exception | None = None
        with trio.CancelScope(deadline=trio.current_time() + self._timeout) as bound:
            try:
                if isinstance(self._server, StdioServer):
                    await self._run_program(self._server, bound)
                else:
                    await self._run_http(self._server, bound)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the server is lost by it
                failure = _innermost(exc)
        if bound.cancelled_caught and not self.has_stood:
            failure = TimeoutError(f"it did not answer within {self._timeout:g} s")
        if failure is not None and not self.reason:
            self.reason = redact(self._server, describe(failure) + self._last_words())
        self.over.set()
        if failure is not None:
            raise failure
        await trio.lowlevel.checkpoint()

    # --- what it runs over --------------------------------------------------------------------

    async def _run_program(self, server: StdioServer, bound: trio.CancelScope) -> None:
        failure: Exception | None = None
        async with open_process(
            [server.command, *server.args], env=server.env, cwd=server.cwd, grace=server.grace
        ) as child:
            program = Program(child, self.lost)
            self._last_words = program.last_words
            async with trio.open_nursery() as nursery:
                nursery.start_soon(program.watch, name=f"exit of MCP server {self._name!r}")
                nursery.start_soon(program.listen_to_errors, name=f"errors of MCP server {self._name!r}")
                try:
                    await self._talk(program.transport(), bound)
                except Exception as exc:  # noqa: BLE001 - raised below, outside of the nursery that would wrap it
                    failure = exc
                if self.lost.is_set() and not self.reason:
                    self.reason = redact(server, await program.how_it_ended())
                    self.over.set()
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _run_http(self, server: HttpServer, bound: trio.CancelScope) -> None:
        # What bounds a silence is the deadline of the call: a stream of notices is silent for hours.
        timeout = httpx2.Timeout(_WRITE, connect=server.connect_timeout, read=None)
        async with httpx2.AsyncClient(
            headers=dict(server.headers), timeout=timeout, trust_env=not _is_local(server.url)
        ) as client:
            await self._talk(streamable_http_client(server.url, http_client=client), bound)

    # --- what is said over it -----------------------------------------------------------------

    async def _talk(self, transport: Any, bound: trio.CancelScope) -> None:
        client = Client(
            transport,
            mode=self._protocol,
            cache=None,  # a list that is asked for after a notice must be the new one
            message_handler=self._hear,
            client_info=mcp_types.Implementation(
                name="trio-agents", version=importlib.metadata.version("trio-agents")
            ),
        )
        failure: Exception | None = None
        async with client:
            async with trio.open_nursery() as nursery:
                try:
                    self._asks = _tells_when_asked(client)
                    if self._asks:
                        await nursery.start(
                            self._listen, client, name=f"notices of MCP server {self._name!r}"
                        )
                    listed = await _listed(client)
                    self.client = client
                    self.has_stood = True
                    self._ready(self, listed)
                    bound.deadline = math.inf
                    nursery.start_soon(self._relist, client, name=f"tools of MCP server {self._name!r}")
                    await self.lost.wait()
                except Exception as exc:  # noqa: BLE001 - raised below, outside of the nursery that would wrap it
                    failure = exc
                finally:
                    self.client = None
                nursery.cancel_scope.cancel()
            bound.deadline = trio.current_time() + _LEAVE
        bound.deadline = math.inf
        if failure is not None:
            raise failure

    async def _hear(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification) and not self._asks:
            self._changed.set()
        await trio.lowlevel.checkpoint()

    async def _listen(self, client: Client, *, task_status: trio.TaskStatus[None]) -> None:
        """Hear of changes where the protocol wants that to be asked for; ask again when the answer breaks off."""
        has_started = False
        pause = 0.5
        while True:
            try:
                async with client.listen(tools_list_changed=True) as notices:
                    if has_started:
                        self._changed.set()  # what changed meanwhile was told to nobody
                    else:
                        has_started = True
                        task_status.started()
                    async for _ in notices:
                        pause = 0.5
                        self._changed.set()
            except Exception as exc:  # noqa: BLE001 - it is asked for again
                said = redact(self._server, describe(exc))
                logger.debug("MCP server %r tells no changes for now: %s", self._name, said)
                if not has_started:
                    has_started = True
                    task_status.started()
            await trio.sleep(pause)
            pause = min(2 * pause, 60.0)

    async def _relist(self, client: Client) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()  # a notice that comes during the listing asks for another one
            try:
                with trio.fail_after(self._timeout):
                    listed = await _listed(client)
            except Exception as exc:  # noqa: BLE001 - the old list stays
                if not self.lost.is_set():
                    said = redact(self._server, describe(exc))
                    logger.warning("MCP server %r does not list its tools anew: %s", self._name, said)
            else:
                self._relisted(listed)


def _tells_when_asked(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return (
        client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools is not None and bool(tools.list_changed)
    )


async def _listed(client: Client) -> list[RemoteTool]:
    if client.server_capabilities.tools is None:
        return []
    found: list[RemoteTool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [_remote(each) for each in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _remote(tool: mcp_types.Tool) -> RemoteTool:
    # Some providers refuse an object schema that does not name its properties.
    schema = {"type": "object", "properties": {}, **tool.input_schema}
    return RemoteTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters=FrozenJson.of(storable(schema)),
        effect=_effect(tool.annotations),
    )


def _effect(hints: mcp_types.ToolAnnotations | None) -> Effect:
    if hints is None:
        return "once"
    if hints.read_only_hint:
        return "pure"
    return "idempotent" if hints.idempotent_hint else "once"


def _innermost(exc: Exception) -> Exception:
    """What a group is about: its first member."""
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
