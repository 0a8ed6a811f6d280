"""From scripted chunks to the events of each protocol, as a provider would send them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

from msgspec import UNSET

from ..values._chunks import (
    Chunk,
    Finish,
    FinishAborted,
    FinishError,
    FinishReason,
    MaxTokens,
    ReasoningDelta,
    Refused,
    TextDelta,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from ..values._json import JsonValue, dump_json
from ..values._messages import TokenUsage

Json: TypeAlias = "dict[str, JsonValue]"


def event(data: Json, name: str = "") -> bytes:
    """An event as it stands on the wire."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + dump_json(data) + b"\n\n"


def server_error(reason: FinishReason | None = None) -> tuple[str, str]:
    """Type and text of a failure that a provider reports inside a stream."""
    if isinstance(reason, FinishError | FinishAborted):
        return "server_error", reason.failure.message
    return "server_error", "The server had an error while it was answering."


@final
class ChatWire:
    """Chat completions."""

    def __init__(self, body: Json) -> None:
        options = body.get("stream_options")
        self._with_usage = isinstance(options, dict) and options.get("include_usage") is True
        self._model = body.get("model")
        self._calls: dict[int, int] = {}
        self._usage: TokenUsage | None = None

    def start(self) -> list[bytes]:
        """What stands before the first chunk."""
        return [self._choice({"role": "assistant", "content": ""})]

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """The events of a chunk; many chunks have none."""
        if isinstance(chunk, TextDelta):
            return [self._choice({"content": chunk.text})]
        if isinstance(chunk, ReasoningDelta):
            return [self._choice({"reasoning_content": chunk.text})]
        if isinstance(chunk, ToolCallDelta):
            return [self._choice({"tool_calls": [self._call(chunk)]})]
        if isinstance(chunk, Usage):
            self._usage = chunk.usage
            return []
        return self._finish(chunk.reason) if isinstance(chunk, Finish) else []

    def error(self, reason: FinishReason | None = None) -> bytes:
        """An event that reports a failure."""
        kind, message = server_error(reason)
        return event({"error": {"message": message, "type": kind, "code": kind}})

    def _call(self, chunk: ToolCallDelta) -> Json:
        function: Json = {"arguments": chunk.arguments_delta}
        if chunk.index in self._calls:
            return {"index": self._calls[chunk.index], "function": function}
        self._calls[chunk.index] = len(self._calls)
        if chunk.name is not UNSET:
            function["name"] = chunk.name
        return {"index": self._calls[chunk.index], "id": chunk.id, "type": "function", "function": function}

    def _finish(self, reason: FinishReason) -> list[bytes]:
        if isinstance(reason, FinishError | FinishAborted):
            return [self.error(reason)]
        events = [self._choice({}, _CHAT_REASONS.get(type(reason), "stop"))]
        if self._usage is not None and self._with_usage:
            events.append(event({**self._envelope(), "choices": [], "usage": _chat_usage(self._usage)}))
        return [*events, b"data: [DONE]\n\n"]

    def _choice(self, delta: Json, finish: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**self._envelope(), "choices": [choice]})

    def _envelope(self) -> Json:
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": self._model}


_CHAT_REASONS: Final[dict[type, str]] = {
    ToolCalls: "tool_calls",
    MaxTokens: "length",
    Refused: "content_filter",
}


def _chat_usage(usage: TokenUsage) -> Json:
    cached = 0 if usage.cache_read_tokens is UNSET else usage.cache_read_tokens
    facts: Json = {
        "prompt_tokens": usage.input_tokens + cached,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + cached + usage.output_tokens,
    }
    if usage.cache_read_tokens is not UNSET:
        facts["prompt_tokens_details"] = {"cached_tokens": cached}
    if usage.reasoning_tokens is not UNSET:
        facts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return facts


Wire: TypeAlias = ChatWire

PROTOCOLS: Final[dict[str, Callable[[Json], Wire]]] = {"/chat/completions": ChatWire}
"""How a path ends, and what is spoken there."""
