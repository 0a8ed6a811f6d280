"""What an agent answers as an MCP server. Needs `mcp`."""

from __future__ import annotations

import importlib.metadata
import logging
import weakref
from collections.abc import Collection
from typing import Any, Final, final

import mcp_types
import trio
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.transport_security import TransportSecuritySettings

from ...agent import Agent, AgentOptions, Reply, Scope, SessionEvent
from ...errors import SessionLogError, SessionNotFoundError, TrioAgentsError
from ...values import describe, mint_id
from ._pipes import Incoming, Outgoing
from ._standard import standard_wire

logger: Final = logging.getLogger("trio_agents")

_PACE: Final = 0.1
"""Seconds between two notes of progress."""
_PREFIX: Final = "mcp-"
"""What the ids of sessions begin with that clients may name: the store may hold others."""
_LONGEST_NAME: Final = 100

Context = ServerRequestContext[Any, Any]


def new_server(
    served: Agent | Scope, options: AgentOptions | None, *, name: str, tool: str, description: str
) -> Server[Any]:
    """A server with one tool, which asks."""
    answers = Answers(served, options, tool, description)
    return Server(
        name,
        version=importlib.metadata.version("trio-agents"),
        on_list_tools=answers.list_tools,
        on_call_tool=answers.call_tool,
    )


async def serve_standard(server: Server[Any]) -> None:
    """Serve over standard input and output until the input ends. A checkpoint."""
    with standard_wire() as wire:
        incoming = Incoming(wire.receive, _ignore, _end)
        outgoing = Outgoing(wire.send, _ignore_end)
        await server.run(incoming, outgoing, server.create_initialization_options())


def _ignore(line: bytes) -> None:
    """A line that is no message is answered by nobody."""


def _end(reason: str) -> None:
    """It was the last that this client could say."""
    logger.warning("an MCP client is served no longer: it sent %s", reason)


def _ignore_end() -> None:
    """Nobody reads the answers any more; the input ends, too."""


def app(server: Server[Any], path: str, allowed_hosts: Collection[str]) -> object:
    """The ASGI application of a server."""
    hosts = list(allowed_hosts)
    return server.streamable_http_app(
        streamable_http_path=path,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
        ),
    )


@final
class Answers:
    """The tool of an agent, or of the agents that are opened in a scope."""

    def __init__(
        self, served: Agent | Scope, options: AgentOptions | None, tool: str, description: str
    ) -> None:
        self._served = served
        self._options = options
        self._tool = tool
        self._description = description
        # One turn at a time for each session that a client names.
        self._turns: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()

    async def list_tools(
        self, context: Context, params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        """The one tool. A checkpoint."""
        await trio.lowlevel.checkpoint()
        properties: dict[str, Any] = {
            "message": {"type": "string", "description": "What to say to the agent."}
        }
        if isinstance(self._served, Scope):
            properties["session"] = {
                "type": "string",
                "description": "The session of an earlier result, to go on with it. Without it, a new one begins.",
            }
        schema = {
            "type": "object",
            "properties": properties,
            "required": ["message"],
            "additionalProperties": False,
        }
        tool = mcp_types.Tool(name=self._tool, description=self._description, input_schema=schema)
        return mcp_types.ListToolsResult(tools=[tool])

    async def call_tool(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        """Ask, and answer with the reply. A checkpoint; cancelling cancels the turn."""
        await trio.lowlevel.checkpoint()
        if params.name != self._tool:
            raise MCPError(
                mcp_types.INVALID_PARAMS, f"there is no tool {params.name!r}; there is {self._tool!r}"
            )
        message, session = self._arguments(params.arguments or {})
        try:
            if isinstance(self._served, Scope):
                reply, session = await self._ask_in(self._served, message, session, context)
            else:
                reply = await _ask(self._served, message, context)
        except SessionNotFoundError:
            raise MCPError(mcp_types.INVALID_PARAMS, f"there is no session {session!r}") from None
        except SessionLogError as exc:
            # Its text names places of this machine.
            logger.error("a session that an MCP client asks for cannot be used", exc_info=exc)
            return _failed(f"the session cannot be used now ({type(exc).__name__})")
        except TrioAgentsError as exc:
            return _failed(str(exc) or describe(exc))
        facts: dict[str, Any] = {"text": reply.text, "turn": reply.turn}
        if session is not None:
            facts["session"] = session
        return mcp_types.CallToolResult(
            content=[mcp_types.TextContent(type="text", text=reply.text)], structured_content=facts
        )

    def _arguments(self, given: dict[str, Any]) -> tuple[str, str | None]:
        known = {"message", "session"} if isinstance(self._served, Scope) else {"message"}
        message, session = given.get("message"), given.get("session")
        if not isinstance(message, str) or not message:
            raise MCPError(mcp_types.INVALID_PARAMS, "`message` is a text that is not empty")
        if unknown := sorted(given.keys() - known):
            raise MCPError(mcp_types.INVALID_PARAMS, f"there is no argument {', '.join(unknown)}")
        if session is not None and not (isinstance(session, str) and 0 < len(session) <= _LONGEST_NAME):
            raise MCPError(mcp_types.INVALID_PARAMS, "`session` is the name that an earlier result gave")
        return message, session

    async def _ask_in(
        self, scope: Scope, message: str, session: str | None, context: Context
    ) -> tuple[Reply[None], str]:
        name = mint_id() if session is None else session
        mode: Any = "create" if session is None else "resume"
        lock = self._turns.setdefault(name, trio.Lock())
        async with (
            lock,
            scope.open_agent(_PREFIX + name, mode=mode, options=self._options) as agent,
        ):
            return await _ask(agent, message, context), name


def _failed(text: str) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)], is_error=True)


async def _ask(agent: Agent, message: str, context: Context) -> Reply[None]:
    """The reply to a message; meanwhile its text, and that anything happens at all, goes to the client as progress."""
    news = News()
    reply: Reply[None] | None = None
    failure: Exception | None = None

    def happened(event: SessionEvent) -> None:
        if event.agent is agent:
            news.add("")  # the text of other turns is not for this client

    async with trio.open_nursery() as nursery:
        nursery.start_soon(news.tell, context, name="progress of an MCP call")
        try:
            undo = agent.scope.on(SessionEvent, happened)
            try:
                async with agent.stream(message) as stream:
                    async for delta in stream:
                        news.add(delta)
                reply = stream.result
            finally:
                undo()
        except Exception as exc:  # noqa: BLE001 - raised below, outside of the nursery that would wrap it
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    assert reply is not None
    return reply


@final
class News:
    """What has happened since the client was last told."""

    def __init__(self) -> None:
        self._count = 0
        self._text = ""
        self._event = trio.Event()

    def add(self, text: str) -> None:
        """Something has happened. No checkpoint."""
        self._count += 1
        self._text += text
        self._event.set()

    async def tell(self, context: Context) -> None:
        """Tell the client, for ever, at a pace that it can bear; one that cannot be told is not told."""
        while True:
            await self._event.wait()
            self._event = trio.Event()
            text, self._text = self._text, ""
            try:
                await context.session.report_progress(self._count, message=text or None)
            except Exception as exc:
                logger.debug("an MCP client cannot be told of progress", exc_info=exc)
            await trio.sleep(_PACE)
