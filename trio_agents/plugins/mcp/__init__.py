"""MCP, the Model Context Protocol, both ways: servers of tools for agents, and agents as servers. Extra `mcp`."""

from __future__ import annotations

from ..._public import publish as _publish
from ._connection import McpConnection as McpConnection, connect_mcp as connect_mcp
from ._servers import HttpServer as HttpServer, Server as Server, StdioServer as StdioServer
from ._serving import AsgiApp as AsgiApp, mcp_app as mcp_app, serve_mcp as serve_mcp
from ._shared import McpServers as McpServers

_publish(__name__, globals())
