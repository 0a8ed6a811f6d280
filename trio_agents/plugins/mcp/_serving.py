"""The server: an agent as a tool of others, over standard input and output or as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, TypeAlias, cast

from ...agent import Agent, AgentOptions, Scope
from ...errors import UsageError
from ._loading import check_installed, load

AsgiApp: TypeAlias = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]
"""An ASGI 3 application."""

_LOOPBACK = ("127.0.0.1:*", "localhost:*", "[::1]:*")
_DESCRIPTION = "Send a message to the agent and get its reply."


async def serve_mcp(
    served: Agent | Scope,
    *,
    options: AgentOptions | None = None,
    name: str = "agent",
    tool: str = "ask",
    description: str = _DESCRIPTION,
) -> None:
    """Serve one MCP client over standard input and output, until it closes our input. A checkpoint.

    The client gets one tool, which sends a message and returns the reply. While the turn runs, its text goes to the
    client as progress, if it wants to hear of it. If the client cancels the call, the turn is cancelled. A turn that
    does not end in a reply is an error result.

    An agent answers all calls in one conversation, one after the other. For a scope, each call opens an agent there:
    the result names its session, and a call that gives that name goes on with it. Only sessions that were begun in
    this way can be named.

    Meanwhile what the process itself reads from its standard input is empty, and what it prints goes to its
    standard error. Cancelling ends the calls at work.

    Args:
        served: the agent, or the scope in which agents are opened.
        options: what those agents are opened with.
        name: what the server calls itself.
        tool: what the tool is called.
        description: what models read of it.

    Raises:
        UsageError: the extra `mcp` is not installed, options were given for an agent, or it is neither.
    """
    _check(served, options)
    module = await load("_answers")
    await module.serve_standard(
        module.new_server(served, options, name=name, tool=tool, description=description)
    )


def mcp_app(
    served: Agent | Scope,
    *,
    options: AgentOptions | None = None,
    name: str = "agent",
    tool: str = "ask",
    description: str = _DESCRIPTION,
    path: str = "/mcp",
    allowed_hosts: Collection[str] = _LOOPBACK,
) -> AsgiApp:
    """An ASGI application that serves MCP over streamable HTTP; otherwise as `serve_mcp`. No checkpoint.

    Run it under a server that has Trio below it and runs the lifespan protocol, such as hypercorn's Trio worker, inside
    the block of the runtime. It asks nobody who they are: whoever reaches it may use the agent, and all clients of a
    scope share its sessions.

    Args:
        served: the agent, or the scope in which agents are opened.
        options: what those agents are opened with.
        name: what the server calls itself.
        tool: what the tool is called.
        description: what models read of it.
        path: where it is served.
        allowed_hosts: what the `Host` header may say, `host` or `host:port`, with `*` for any port. It keeps web pages
            of others from reaching a server on this machine.

    Raises:
        UsageError: the extra `mcp` is not installed, options were given for an agent, or it is neither.
    """
    _check(served, options)
    from . import _answers

    server = _answers.new_server(served, options, name=name, tool=tool, description=description)
    return cast("AsgiApp", _answers.app(server, path, allowed_hosts))


def _check(served: Agent | Scope, options: AgentOptions | None) -> None:
    check_installed()
    if not isinstance(served, Scope) and not hasattr(served, "stream"):
        raise UsageError(f"an agent is served, or a scope such as runtime.scope, not {served!r}")
    if options is not None and not isinstance(served, Scope):
        raise UsageError("options are for the agents that a scope opens; this agent has its own")
