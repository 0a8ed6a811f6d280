"""One call of a server's tool: its deadlines, its errors, its result. Needs `mcp`."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Mapping
from typing import Final

import mcp_types
import trio
from mcp import MCPError
from msgspec import json

from ...errors import ToolServerError
from ...session import ToolFailure
from ...tools import Image, ToolContext, ToolReturn, encode_result
from ...values import ContentBlock, TextBlock, describe
from ._connection import ConnectionOptions
from ._numbers import storable
from ._servers import HttpServer, Server, harmless, redact
from ._session import Session

importlib.import_module("jsonschema.validators")  # now, in a thread, and not when the first result is checked

_TOLD: Final = 1.0
"""Seconds that a call whose server is gone waits to hear why."""
_SEEN: Final = 0.1

Arguments = Mapping[str, object]


async def call_tool(
    session: Session,
    server: Server,
    who: str,
    tool: str,
    arguments: Arguments,
    context: ToolContext,
    options: ConnectionOptions,
) -> ToolReturn:
    """Call a tool. A checkpoint; cancelling tells the server, and leaves the connection usable.

    Raises:
        ToolServerError: MCP_TIMEOUT, MCP_LOST, MCP_FAILED, MCP_BAD_RESULT.
    """
    client = session.client
    assert client is not None
    begin = trio.current_time()
    result: mcp_types.CallToolResult | None = None
    failure: Exception | None = None
    with (
        trio.CancelScope(deadline=begin + options.call_timeout) as whole,
        trio.CancelScope(deadline=begin + options.silence_timeout) as silence,
    ):

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            silence.deadline = trio.current_time() + options.silence_timeout
            is_under_way = result is None and failure is None
            if is_under_way and (message or total is not None):
                context.progress(redact(server, message) if message else f"{progress:g} of {total:g}")
            await trio.lowlevel.checkpoint()

        try:
            result = await client.call_tool(tool, dict(arguments), progress_callback=heard)
        except Exception as exc:  # noqa: BLE001 - told to the model below, whatever the library raises
            failure = exc
    if whole.cancelled_caught or silence.cancelled_caught:
        bound, what = (
            (options.call_timeout, "took longer than")
            if whole.cancelled_caught
            else (options.silence_timeout, "was silent for")
        )
        raise ToolServerError(
            f"{tool!r} of MCP server {who!r} {what} {bound:g} s and was given up",
            server=who,
            code="MCP_TIMEOUT",
        )
    if failure is not None:
        raise await _error(failure, session, server, who, tool) from harmless(server, failure)
    assert result is not None
    await trio.lowlevel.checkpoint()
    return to_return(result, context)


async def _error(exc: Exception, session: Session, server: Server, who: str, tool: str) -> ToolServerError:
    """What a failed call is told as. A checkpoint."""
    code = exc.code if isinstance(exc, MCPError) else None
    if code == mcp_types.CONNECTION_CLOSED and isinstance(server, HttpServer):
        # Either this one answer broke off, or all is lost and the owner of the session is about to see it.
        with trio.move_on_after(_SEEN):
            await session.over.wait()
    if session.lost.is_set() or session.client is None:
        with trio.move_on_after(_TOLD):
            await session.over.wait()
        return ToolServerError(
            f"MCP server {who!r} was lost during the call of {tool!r}: {session.reason or describe(exc)}",
            server=who,
            code="MCP_LOST",
        )
    await trio.lowlevel.checkpoint()
    text = redact(server, describe(exc) if code is None else f"{exc} ({code})")
    if code == mcp_types.INVALID_REQUEST and isinstance(server, HttpServer):
        session.leave(f"it takes no more requests of this session: {text}")
    if code is not None:
        return ToolServerError(
            f"the call of {tool!r} failed at MCP server {who!r}: {text}", server=who, code="MCP_FAILED"
        )
    return ToolServerError(
        f"the call of {tool!r} at MCP server {who!r} came to nothing: {text}",
        server=who,
        code="MCP_BAD_RESULT",
    )


# --- results --------------------------------------------------------------------------------------


def to_return(result: mcp_types.CallToolResult, context: ToolContext) -> ToolReturn:
    """A server's result as one of ours. Structured content is kept for programs, and shown if there is nothing else."""
    content = [block for each in result.content for block in _blocks(each, context)]
    structured = storable(result.structured_content)
    if not content and structured is not None:
        content = [TextBlock(text=json.encode(structured).decode())]
    error = ToolFailure(name="ToolError", code="MCP_TOOL_FAILED") if result.is_error else None
    meta = None if structured is None else {"structuredContent": structured}
    return ToolReturn(tuple(content), is_error=bool(result.is_error), error=error, meta=meta)


def _blocks(part: mcp_types.ContentBlock, context: ToolContext) -> tuple[ContentBlock, ...]:
    match part:
        case mcp_types.TextContent():
            return (TextBlock(text=part.text),)
        case mcp_types.ImageContent():
            return _picture(part.data, part.mime_type, context)
        case mcp_types.AudioContent():
            return (_left_out(part.mime_type, part.data),)
        case mcp_types.ResourceLink():
            about = f" ({part.description})" if part.description else ""
            return (TextBlock(text=f"[resource {part.name}: {part.uri}{about}]"),)
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as text):
            return (TextBlock(text=text.text),)
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as blob):
            kind = blob.mime_type or "application/octet-stream"
            return (
                _picture(blob.blob, kind, context)
                if kind.startswith("image/")
                else (_left_out(kind, blob.blob),)
            )
        case _:
            return (TextBlock(text=f"[content of type {part.type!r} left out]"),)


def _picture(data: str, kind: str, context: ToolContext) -> tuple[ContentBlock, ...]:
    try:
        image = Image(data=base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return (_left_out(kind, data),)
    shown = encode_result(image, None, attach=context.attach)
    return (_left_out(kind, data),) if shown.is_error else shown.content


def _left_out(kind: str, data: str) -> TextBlock:
    return TextBlock(text=f"[{kind}, about {len(data) * 3 // 4} bytes, left out]")
