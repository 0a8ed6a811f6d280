"""The client: one owner task for each server, which connects, connects again, and ends with its scope.

The model, once. `connect_mcp` starts a task that its scope owns. The task holds one session after the other, and the
tools that are registered in the scope outlive them: while the server is away, a call says so at once. When the scope
closes, its tools go first, with their calls; then the task is cancelled. That cancel is translated: what the task does
is shielded, is asked to leave, and has a few seconds for its farewell, so that a server is always told, and its
process is always gone when the scope has closed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final

import attrs
import trio

from ...agent import Scope
from ...errors import ToolServerError, UsageError
from ...tools import ToolContext, ToolReturn
from ._loading import check_installed, load
from ._offers import Offers, RemoteTool
from ._servers import HttpServer, Server, StdioServer, harmless, seconds

if TYPE_CHECKING:
    from ._session import Session

logger: Final = logging.getLogger("trio_agents")

_NAME: Final = re.compile("[A-Za-z0-9-]{1,32}")
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_STEADY: Final = 30.0
"""Seconds after which a connection counts as one that stood; the pauses begin afresh."""
_FAREWELL: Final = 3.0


@final
@attrs.frozen(kw_only=True)
class ConnectionOptions:
    """How a server is used. A wrong value raises `UsageError`.

    Attributes:
        tools: the tools that are offered, by the server's names for them; None for all.
        connect_timeout: seconds until a server must have answered and listed its tools.
        silence_timeout: seconds that a call may last without news; what the server tells of its progress is news.
        call_timeout: seconds that a call may last in all.
        protocol: `auto` asks a server which protocol it speaks, and greets it in the older way if it ends at that;
            `legacy` never asks.
    """

    tools: Collection[str] | None = None
    connect_timeout: float = attrs.field(default=30.0, validator=seconds)
    silence_timeout: float = attrs.field(default=60.0, validator=seconds)
    call_timeout: float = attrs.field(default=600.0, validator=seconds)
    protocol: Literal["auto", "legacy"] = "auto"

    def __attrs_post_init__(self) -> None:
        if isinstance(self.tools, str):
            raise UsageError(f"tools are several names, not the one text {self.tools!r}")
        if self.protocol not in {"auto", "legacy"}:
            raise UsageError(f"protocol is 'auto' or 'legacy', not {self.protocol!r}")


@final
class McpConnection:
    """A server whose tools are offered in a scope. `connect_mcp` makes it; it ends with its scope.

    If the server goes away, it is connected again, at growing intervals of up to 30 seconds.
    """

    def __init__(
        self, scope: Scope, server: Server, name: str, options: ConnectionOptions, *, patient: bool
    ) -> None:
        self._server = _within_grace(server, scope)
        self._name = name
        self._options = options
        self._patient = patient
        self._protocol = options.protocol
        self._took_offence = False  # some servers end if the first thing they hear is not the older greeting
        self._offers = Offers(scope, name, self._call, options.tools)
        self._session: Session | None = None
        self._why = "it is being connected"
        self._connected = trio.Event()
        self._turned = trio.Event()  # set with the first connection, and with the end
        self._closing = trio.Lock()
        self._ending = trio.Event()
        self._ended = trio.Event()
        self._shield = trio.CancelScope(shield=True)
        self._session_module: Any = None
        self._call_module: Any = None

    @property
    def name(self) -> str:
        """What the server is called here; the names of its tools begin with it."""
        return self._name

    @property
    def is_connected(self) -> bool:
        """Whether the server can be called now."""
        session = self._session
        return session is not None and session.client is not None and not session.lost.is_set()

    @property
    def tools(self) -> list[str]:
        """The names of its tools, as models call them. A snapshot."""
        return self._offers.names

    @property
    def instructions(self) -> str | None:
        """What the server says of its use, for a prompt section if you trust it; None if it says nothing."""
        return None if self._session is None else self._session.instructions

    async def aclose(self) -> None:
        """Take its tools back and end the connection before its scope does. A checkpoint.

        Calls at work are cancelled and have ended on return, and so has a server that is a program. Cancelling the wait
        does not keep the connection.
        """
        try:
            async with self._closing:  # whoever comes second waits for the calls, too
                await self._offers.unload()
        finally:
            self._ending.set()
        await self._ended.wait()

    async def wait_connected(self) -> None:
        """Wait until the server has been connected once. A checkpoint.

        Raises:
            ToolServerError: the connection has ended for good.
        """
        while not self._connected.is_set():
            if self._ended.is_set():
                raise ToolServerError(
                    f"MCP server {self._name!r} was never connected: {self._why}",
                    server=self._name,
                    code="MCP_UNAVAILABLE",
                )
            await self._turned.wait()
        await trio.lowlevel.checkpoint()

    # --- the owner task -----------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Be connected until the end is asked for. A checkpoint.

        Raises:
            ToolServerError: the first connection failed, and it is not patient.
            UsageError: the extra is missing, or the tools cannot be registered.
        """
        failures: list[Exception] = []
        try:
            await self._load()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, task_status, failures, name=f"MCP server {self._name!r}")
                try:
                    await self._ending.wait()
                finally:
                    self._leave()
        finally:
            self._why = "its connection has ended"
            self._offers.withdraw()
            self._ended.set()
            self._turned.set()
        if failures:
            raise failures[0]

    async def run_alone(self) -> None:
        """Likewise, where nobody waits for the start. A checkpoint."""
        await self.run(task_status=cast("trio.TaskStatus[None]", trio.TASK_STATUS_IGNORED))

    async def _load(self) -> None:
        self._session_module = await load("_session")
        self._call_module = await load("_calls")

    def _leave(self) -> None:
        """Ask what is shielded to end, within a bound; the end of a process has a bound of its own."""
        self._ending.set()
        if self.is_connected:
            self._shield.deadline = trio.current_time() + _FAREWELL
        else:
            self._shield.cancel(reason="the connection is not wanted any more")
        if self._session is not None:
            self._session.leave()

    async def _keep(self, task_status: trio.TaskStatus[None], failures: list[Exception]) -> None:
        pause = _FIRST_PAUSE
        with self._shield:
            if self._patient:
                task_status.started()
            while not self._ending.is_set():
                begin = trio.current_time()
                failure = await self._hold_session(task_status)
                if self._ending.is_set():
                    break
                if self._took_offence and self._protocol == "auto":
                    self._protocol = "legacy"
                    continue
                if self._took_offence:
                    # It ends at either, and so not because of what it hears.
                    self._protocol = self._options.protocol
                if failure is not None and not self._connected.is_set() and not self._patient:
                    failures.append(failure)
                    break
                if trio.current_time() - begin > _STEADY:
                    pause = _FIRST_PAUSE
                with trio.move_on_after(pause):
                    await self._ending.wait()
                pause = min(2 * pause, _LONGEST_PAUSE)
        self._ending.set()

    async def _hold_session(self, task_status: trio.TaskStatus[None]) -> Exception | None:
        """One session, from its start to its end. Gives what went wrong, if something did."""

        def ready(session: Session, listed: list[RemoteTool]) -> None:
            if self._connected.is_set():
                self._offers.put_what_fits(listed)
                logger.info("MCP server %r is connected again", self._name)
            else:
                self._offers.put(listed)
                self._connected.set()
                self._turned.set()
                if not self._patient:
                    task_status.started()

        session: Session = self._session_module.Session(
            self._server,
            self._name,
            ready=ready,
            relisted=self._offers.put_what_fits,
            connect_timeout=self._options.connect_timeout,
            protocol=self._protocol,
        )
        self._session = session
        failure: Exception | None = None
        try:
            await session.run()
        except UsageError as exc:
            failure = exc
        except Exception as exc:  # noqa: BLE001 - told to whoever connects, or logged
            failure = ToolServerError(
                f"MCP server {self._name!r} cannot be connected: {session.reason}",
                server=self._name,
                code="MCP_UNAVAILABLE",
            )
            failure.__cause__ = harmless(self._server, exc)
        finally:
            self._session = None
            self._took_offence = session.lost.is_set() and not session.has_stood
        if not self._ending.is_set() and self._why != session.reason:
            self._why = session.reason
            if self._patient or self._connected.is_set():
                logger.warning("MCP server %r is away and will be connected again: %s", self._name, self._why)
        return failure

    # --- calls --------------------------------------------------------------------------------

    async def _call(self, tool: str, arguments: Mapping[str, object], context: ToolContext) -> ToolReturn:
        session = self._session
        if session is None or not self.is_connected:
            await trio.lowlevel.checkpoint()
            why = self._why if session is None else session.reason or self._why
            raise ToolServerError(
                f"MCP server {self._name!r} is not connected: {why}",
                server=self._name,
                code="MCP_UNAVAILABLE",
            )
        return cast(
            "ToolReturn",
            await self._call_module.call_tool(
                session, self._server, self._name, tool, arguments, context, self._options
            ),
        )


def _within_grace(server: Server, scope: Scope) -> Server:
    """The server with a grace that fits into that of the agent with which it ends."""
    agent = scope.agent or scope.owner_agent
    if agent is None or not isinstance(server, StdioServer):
        return server
    return attrs.evolve(server, grace=min(server.grace, agent.options.grace / 4))  # it is waited out twice


async def connect_mcp(
    scope: Scope,
    server: Server,
    *,
    name: str,
    tools: Collection[str] | None = None,
    connect_timeout: float = 30.0,
    silence_timeout: float = 60.0,
    call_timeout: float = 600.0,
    protocol: Literal["auto", "legacy"] = "auto",
) -> McpConnection:
    """Connect a server and offer its tools to the agents of a scope and below. A checkpoint.

    In a setup function, the agent's own scope gives the agent a server of its own; the runtime's scope gives one to
    all. The tools are called `<name>_<tool>`. They follow the server's list, and go with the scope. What the server
    declares of a tool decides its effect: read-only is `pure`, idempotent is `idempotent`, anything else `once`.

    If the wait is cancelled, the server has ended when `Cancelled` is raised.

    Args:
        scope: whose agents see the tools, and which ends the connection.
        server: how the server is reached.
        name: what it is called here: letters, digits and hyphens, 32 at the most.
        tools: the tools that are offered, by the server's names for them; None for all.
        connect_timeout: seconds until the server must have answered and listed its tools.
        silence_timeout: seconds that a call may last without news; what the server tells of its progress is news.
        call_timeout: seconds that a call may last in all.
        protocol: `auto` asks the server which protocol it speaks, and greets it in the older way if it ends at that;
            `legacy` never asks.

    Raises:
        UsageError: the extra `mcp` is not installed, an argument is out of range, or a name is taken.
        ToolServerError: the server cannot be connected; its last words are in the text.
        ScopeClosedError: the scope is closed, or closed meanwhile.
    """
    options = ConnectionOptions(
        tools=tools,
        connect_timeout=connect_timeout,
        silence_timeout=silence_timeout,
        call_timeout=call_timeout,
        protocol=protocol,
    )
    connection = new_connection(scope, server, name, options)
    await scope.start(connection.run, name=f"MCP server {name!r}")
    return connection


def new_connection(
    scope: Scope, server: Server, name: str, options: ConnectionOptions, *, patient: bool = False
) -> McpConnection:
    """A connection whose task has not been started yet.

    Raises:
        UsageError: no such scope, name or server, or the extra is missing.
    """
    check_installed()
    if not isinstance(scope, Scope):
        raise UsageError(f"a server is connected in a scope, such as agent.scope, not in {scope!r}")
    if not _NAME.fullmatch(name):
        raise UsageError(f"a server is named with 1 to 32 of A-Z a-z 0-9 -, not {name!r}")
    if not isinstance(server, StdioServer | HttpServer):
        raise UsageError(f"a server is a StdioServer or an HttpServer, not {server!r}")
    return McpConnection(scope, server, name, options, patient=patient)
