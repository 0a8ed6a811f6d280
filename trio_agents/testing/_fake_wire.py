"""From scripted chunks to the events of each protocol, as a provider would send them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

from msgspec import UNSET

from ..values._chunks import (
    BlockEnd,
    BlockStart,
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
from ..values._messages import ContentBlock, ReasoningBlock, TokenUsage, ToolCallBlock

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


@final
class ResponsesWire:
    """Responses."""

    def __init__(self, body: Json) -> None:
        self._model = body.get("model")
        self._usage: TokenUsage | None = None

    def start(self) -> list[bytes]:
        """What stands before the first chunk."""
        return [self._event("response.created", {"response": {"id": "resp-1", "status": "in_progress"}})]

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """The events of a chunk; some have none."""
        if isinstance(chunk, TextDelta):
            return [self._delta("response.output_text.delta", chunk.index, chunk.text)]
        if isinstance(chunk, ReasoningDelta):
            return [self._delta("response.reasoning_summary_text.delta", chunk.index, chunk.text)]
        if isinstance(chunk, ToolCallDelta):
            return self._call(chunk)
        if isinstance(chunk, BlockStart):
            kind = _RESPONSE_ITEMS.get(chunk.block_type)
            return [] if kind is None else [self._item("added", chunk.index, {"type": kind})]
        if isinstance(chunk, BlockEnd):
            return [self._item("done", chunk.index, _response_item(chunk.block))]
        if isinstance(chunk, Usage):
            self._usage = chunk.usage
            return []
        return [self._finish(chunk.reason)] if isinstance(chunk, Finish) else []

    def error(self, reason: FinishReason | None = None) -> bytes:
        """An event that reports a failure."""
        kind, message = server_error(reason)
        failure: Json = {"status": "failed", "error": {"code": kind, "message": message}}
        return self._event("response.failed", {"response": failure})

    def _call(self, chunk: ToolCallDelta) -> list[bytes]:
        events = []
        if chunk.name is not UNSET:
            item: Json = {"type": "function_call", "call_id": chunk.id, "name": chunk.name, "arguments": ""}
            events.append(self._item("added", chunk.index, item))
        if chunk.arguments_delta:
            kind = "response.function_call_arguments.delta"
            events.append(self._delta(kind, chunk.index, chunk.arguments_delta))
        return events

    def _finish(self, reason: FinishReason) -> bytes:
        if isinstance(reason, FinishError | FinishAborted):
            return self.error(reason)
        why = _RESPONSE_REASONS.get(type(reason))
        status = "completed" if why is None else "incomplete"
        response: Json = {"id": "resp-1", "status": status, "model": self._model}
        if why is not None:
            response["incomplete_details"] = {"reason": why}
        if self._usage is not None:
            response["usage"] = _response_usage(self._usage)
        return self._event(f"response.{status}", {"response": response})

    def _delta(self, kind: str, index: int, text: str) -> bytes:
        return self._event(kind, {"output_index": index, "content_index": 0, "delta": text})

    def _item(self, edge: str, index: int, item: Json) -> bytes:
        return self._event(f"response.output_item.{edge}", {"output_index": index, "item": item})

    def _event(self, kind: str, fields: Json) -> bytes:
        return event({"type": kind, **fields}, kind)


_RESPONSE_ITEMS: Final = {"text": "message", "reasoning": "reasoning"}
_RESPONSE_REASONS: Final[dict[type, str]] = {MaxTokens: "max_output_tokens", Refused: "content_filter"}


def _response_item(block: ContentBlock) -> Json:
    if isinstance(block, ToolCallBlock):
        return {
            "type": "function_call",
            "call_id": block.id,
            "name": block.name,
            "arguments": block.arguments,
        }
    if isinstance(block, ReasoningBlock):
        summary: JsonValue = [{"type": "summary_text", "text": block.text}]
        return {"type": "reasoning", "id": "rs-1", "summary": summary, "encrypted_content": "scripted"}
    return {"type": "message", "role": "assistant"}


def _response_usage(usage: TokenUsage) -> Json:
    chat = _chat_usage(usage)
    facts: Json = {"input_tokens": chat["prompt_tokens"], "output_tokens": chat["completion_tokens"]}
    if "prompt_tokens_details" in chat:
        facts["input_tokens_details"] = chat["prompt_tokens_details"]
    if "completion_tokens_details" in chat:
        facts["output_tokens_details"] = chat["completion_tokens_details"]
    return facts


@final
class AnthropicWire:
    """Messages."""

    def __init__(self, body: Json) -> None:
        self._model = body.get("model")
        self._usage: TokenUsage | None = None

    def start(self) -> list[bytes]:
        """What stands before the first chunk."""
        usage: Json = {"input_tokens": 0, "output_tokens": 0}
        message: Json = {"id": "msg-1", "role": "assistant", "model": self._model, "usage": usage}
        return [self._event("message_start", {"message": message}), self._event("ping", {})]

    def chunk(self, chunk: Chunk) -> list[bytes]:
        """The events of a chunk; some have none."""
        if isinstance(chunk, TextDelta):
            return [self._delta(chunk.index, {"type": "text_delta", "text": chunk.text})]
        if isinstance(chunk, ReasoningDelta):
            return [self._delta(chunk.index, {"type": "thinking_delta", "thinking": chunk.text})]
        if isinstance(chunk, ToolCallDelta):
            return self._call(chunk)
        if isinstance(chunk, BlockStart):
            kind = _CONTENT_BLOCKS.get(chunk.block_type)
            return [] if kind is None else [self._block(chunk.index, dict(kind))]
        if isinstance(chunk, BlockEnd):
            events = [self._event("content_block_stop", {"index": chunk.index})]
            if isinstance(chunk.block, ReasoningBlock):
                events.insert(
                    0, self._delta(chunk.index, {"type": "signature_delta", "signature": "scripted"})
                )
            return events
        if isinstance(chunk, Usage):
            self._usage = chunk.usage
            return []
        return self._finish(chunk.reason) if isinstance(chunk, Finish) else []

    def error(self, reason: FinishReason | None = None) -> bytes:
        """An event that reports a failure."""
        kind, message = server_error(reason)
        return self._event("error", {"error": {"type": kind, "message": message}})

    def _call(self, chunk: ToolCallDelta) -> list[bytes]:
        events = []
        if chunk.name is not UNSET:
            block: Json = {"type": "tool_use", "id": chunk.id, "name": chunk.name, "input": {}}
            events.append(self._block(chunk.index, block))
        if chunk.arguments_delta:
            delta: Json = {"type": "input_json_delta", "partial_json": chunk.arguments_delta}
            events.append(self._delta(chunk.index, delta))
        return events

    def _finish(self, reason: FinishReason) -> list[bytes]:
        if isinstance(reason, FinishError | FinishAborted):
            return [self.error(reason)]
        delta: Json = {"stop_reason": _STOP_REASONS.get(type(reason), "end_turn")}
        fields: Json = {"delta": delta}
        if self._usage is not None:
            fields["usage"] = _anthropic_usage(self._usage)
        return [self._event("message_delta", fields), self._event("message_stop", {})]

    def _block(self, index: int, block: Json) -> bytes:
        return self._event("content_block_start", {"index": index, "content_block": block})

    def _delta(self, index: int, delta: Json) -> bytes:
        return self._event("content_block_delta", {"index": index, "delta": delta})

    def _event(self, kind: str, fields: Json) -> bytes:
        return event({"type": kind, **fields}, kind)


_CONTENT_BLOCKS: Final[dict[str, Json]] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}
_STOP_REASONS: Final[dict[type, str]] = {ToolCalls: "tool_use", MaxTokens: "max_tokens", Refused: "refusal"}


def _anthropic_usage(usage: TokenUsage) -> Json:
    facts: Json = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    if usage.cache_read_tokens is not UNSET:
        facts["cache_read_input_tokens"] = usage.cache_read_tokens
    if usage.cache_write_tokens is not UNSET:
        facts["cache_creation_input_tokens"] = usage.cache_write_tokens
    return facts


Wire: TypeAlias = ChatWire | ResponsesWire | AnthropicWire

PROTOCOLS: Final[dict[str, Callable[[Json], Wire]]] = {
    "/chat/completions": ChatWire,
    "/responses": ResponsesWire,
    "/messages": AnthropicWire,
}
"""How a path ends, and what is spoken there."""
