"""A plugin that connects servers for every agent of a runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, final

import trio

from ...agent import Scope
from ...errors import UsageError
from ._connection import ConnectionOptions, McpConnection, new_connection
from ._servers import Server


@final
class McpServers:
    """Connects servers in the background, once for all agents of a runtime. A plugin: give it to `open_runtime`.

    A server that cannot be connected is tried again, and is in nobody's way. Its tools are there from its first answer
    on; `wait_connected` waits for that.

    Args:
        servers: how each is reached, by the name that it is given here; see `connect_mcp`.
        tools: the tools that are offered, by the servers' names for them; None for all.
        connect_timeout: seconds until a server must have answered and listed its tools.
        silence_timeout: seconds that a call may last without news.
        call_timeout: seconds that a call may last in all.
        protocol: `auto` asks a server which protocol it speaks, and greets it in the older way if it ends at that;
            `legacy` never asks.

    Raises:
        UsageError: an argument is out of range.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        *,
        tools: Collection[str] | None = None,
        connect_timeout: float = 30.0,
        silence_timeout: float = 60.0,
        call_timeout: float = 600.0,
        protocol: Literal["auto", "legacy"] = "auto",
    ) -> None:
        self._servers = dict(servers)
        self._options = ConnectionOptions(
            tools=tools,
            connect_timeout=connect_timeout,
            silence_timeout=silence_timeout,
            call_timeout=call_timeout,
            protocol=protocol,
        )
        self._connections: dict[str, McpConnection] = {}

    @property
    def connections(self) -> Mapping[str, McpConnection]:
        """The connections, by name, once the plugin is at work. A snapshot."""
        return dict(self._connections)

    def __call__(self, scope: Scope) -> None:
        """Begin to connect.

        Raises:
            UsageError: a name or a server is none, the extra is missing, or the plugin is at work elsewhere.
        """
        if self._connections:
            raise UsageError("these servers are connected already; make an McpServers for each runtime")
        made = {
            name: new_connection(scope, server, name, self._options, patient=True)
            for name, server in self._servers.items()
        }
        for name, connection in made.items():
            scope.start_soon(connection.run_alone, name=f"MCP server {name!r}")
        self._connections = made

    async def wait_connected(self) -> None:
        """Wait until each server has been connected once. A checkpoint; put a timeout around it.

        Raises:
            ToolServerError: a connection has ended for good, or was refused.
        """
        await trio.lowlevel.checkpoint()
        for connection in self._connections.values():
            await connection.wait_connected()
