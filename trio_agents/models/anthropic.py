"""The messages protocol of Anthropic."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

import msgspec
from msgspec import UNSET, Struct

from ..errors import ModelError, UsageError
from ..values._chunks import Chunk, FinishReason, MaxTokens, Refused, Stop, ToolCalls
from ..values._json import JsonValue, load_json
from ..values._messages import ContentBlock, ImageBlock, ReasoningBlock, TokenUsage, ToolCallBlock
from ._blocks import BlockWriter
from ._contract import AttachmentReader, ModelInfo, ModelRequest
from ._deadlines import Deadlines
from ._failures import Redactor, error_from_event
from ._history import NO_OUTPUT, Answered, Asked, Entry, Part, Said, project
from ._reading import NOTHING, PROGRESS, Count, Progress, Verdict, tokens
from ._rendering import Images, arguments_object, decode_event, image, texts
from ._service import Dialect, Service

if TYPE_CHECKING:
    import httpx2

EFFORTS: Final[Mapping[str, int]] = {"low": 2048, "medium": 8192, "high": 24576}
"""Tokens of thinking that each effort allows; `none` asks for no thinking."""

_LEAST_BUDGET: Final = 1024
_ANSWER: Final = 1024
"""Tokens that are left for the answer beside the thinking."""

_BEGIN: Final = "(The conversation begins with your message.)"
_GO_ON: Final = "(Your last message was cut off. Go on.)"


def _clean_id(call_id: str) -> str:
    """An id of the alphabet that the protocol allows."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)[:56]


MESSAGES: Final = Dialect(
    adapter="Anthropic",
    public_url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    path="v1/messages",
    key_header="x-api-key",
    headers={"anthropic-version": "2023-06-01"},
    clean_id=_clean_id,
)


@final
class Anthropic:
    """A model adapter for Anthropic's messages protocol.

    Args:
        api_key: by default the variable `ANTHROPIC_API_KEY`. Endpoints other than the public one may do without.
        base_url: without `/v1`; by default the variable `ANTHROPIC_BASE_URL`, else the public endpoint.
        provider: the name before the slash in `provider/model`.
        headers: sent with every request, such as `anthropic-beta`.
        client: your own `httpx2.AsyncClient`, which stays yours to close.
        models: what `info` says of models, by name.
        read_attachment: gives the bytes of images where a request does not bring its own reader.
        default_max_tokens: the output cap where a request has none; the protocol wants one.
        efforts: tokens of thinking for each effort. Thinking is left out of a request whose last tool calls were
            not made by this model with thinking, which the protocol would refuse.
        cache: mark the system prompt and the end of the conversation for the provider's cache.
        extra_body: further fields of every request, in the provider's own terms.
        connect_timeout, first_byte_timeout, silence_timeout, total_timeout: see `OpenAIChat`.
        max_connections: the size of our own connection pool.

    Raises:
        UsageError: httpx2 is missing, or an argument cannot be right.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "anthropic",
        headers: Mapping[str, str] | None = None,
        client: httpx2.AsyncClient | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        read_attachment: AttachmentReader | None = None,
        default_max_tokens: int = 8192,
        efforts: Mapping[str, int] = EFFORTS,
        cache: bool = True,
        extra_body: Mapping[str, JsonValue] | None = None,
        connect_timeout: float | None = 15.0,
        first_byte_timeout: float | None = 120.0,
        silence_timeout: float | None = 120.0,
        total_timeout: float | None = None,
        max_connections: int = 100,
    ) -> None:
        if type(default_max_tokens) is not int or default_max_tokens < 1:
            raise UsageError(f"default_max_tokens is a positive int, not {default_max_tokens!r}")
        self._service = Service(
            MESSAGES,
            api_key=api_key,
            base_url=base_url,
            provider=provider,
            headers=headers,
            client=client,
            models=models,
            read_attachment=read_attachment,
            extra_body=extra_body,
            deadlines=Deadlines(
                connect=connect_timeout,
                first_byte=first_byte_timeout,
                silence=silence_timeout,
                total=total_timeout,
            ),
            max_connections=max_connections,
            unknown=ModelInfo(default_max_tokens=default_max_tokens),
        )
        self._default_max_tokens = default_max_tokens
        self._efforts = dict(efforts)
        self._cache = cache

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        return self._service.provider

    def __repr__(self) -> str:
        return repr(self._service)

    async def info(self, model: str) -> ModelInfo:
        """What the constructor was told of a model; nothing is asked of the provider."""
        return await self._service.info(model)

    async def aclose(self) -> None:
        """Close the connections of our own client. A later request opens new ones."""
        await self._service.aclose()

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Send the request and push the answer's chunks, in order, as they come.

        Raises:
            ModelError: the request failed, before or during the answer.
        """
        entries, images = await self._service.prepare(request)
        body = _render(
            request,
            entries,
            images,
            default_max_tokens=self._default_max_tokens,
            efforts=self._efforts,
            cache=self._cache,
        )
        await self._service.send(body, emit, AnthropicReader)


# --- requests ---------------------------------------------------------------------------------------


def render_anthropic(
    request: ModelRequest,
    images: Images | None = None,
    *,
    default_max_tokens: int = 8192,
    efforts: Mapping[str, int] = EFFORTS,
    cache: bool = False,
) -> dict[str, object]:
    """The body of a request for messages: a pure function. Tool schemas stand in it as `FrozenJson`.

    Raises:
        ModelError: the history or a setting cannot be sent (`INVALID_REQUEST`, `UNSUPPORTED_CONTENT`,
            `UNSUPPORTED_REASONING_EFFORT`).
    """
    return _render(
        request,
        project(
            request.messages,
            provider=request.provider,
            model=request.model,
            tools=request.tools,
            clean_id=MESSAGES.clean_id,
        ),
        images or {},
        default_max_tokens=default_max_tokens,
        efforts=efforts,
        cache=cache,
    )


def _render(
    request: ModelRequest,
    entries: list[Entry],
    images: Images,
    *,
    default_max_tokens: int,
    efforts: Mapping[str, int],
    cache: bool,
) -> dict[str, object]:
    messages = _messages(entries, images)
    body: dict[str, object] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages,
        "stream": True,
    }
    mark: dict[str, object] = {"cache_control": {"type": "ephemeral"}} if cache else {}
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, **mark}]
    if messages:
        messages[-1][1][-1].update(mark)
    body["messages"] = [{"role": role, "content": content} for role, content in messages]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
    budget = _budget(request, efforts) if _may_think(entries) else 0
    if request.max_tokens is None:
        body["max_tokens"] = max(default_max_tokens, budget + _ANSWER)
    elif budget:  # the budget is a part of the cap, and smaller
        budget = min(budget, request.max_tokens - 1)
    if budget >= _LEAST_BUDGET:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    return body


def _budget(request: ModelRequest, efforts: Mapping[str, int]) -> int:
    if request.effort is None or request.effort == "none":
        return 0
    try:
        return efforts[request.effort]
    except KeyError:
        raise ModelError(
            f"effort {request.effort!r} is not known to {request.provider}; known: none, {', '.join(efforts)}",
            code="UNSUPPORTED_REASONING_EFFORT",
        ) from None


def _may_think(entries: list[Entry]) -> bool:
    """Whether the tool loop in progress, if there is one, began with thinking: the protocol insists on it.

    Input that directly follows results goes with them, and ends no loop.
    """
    is_new = False
    for entry in reversed(entries):
        if not isinstance(entry, Said):
            is_new = isinstance(entry, Asked)
        elif is_new:
            return True
        elif not isinstance(entry.parts[0].block, ReasoningBlock):
            return False
    return True


_Message = tuple[str, list[dict[str, object]]]


def _messages(entries: list[Entry], images: Images) -> list[_Message]:
    """Messages whose roles alternate, the first and the last being input."""
    messages: list[_Message] = []
    for entry in entries:
        role = "assistant" if isinstance(entry, Said) else "user"
        if isinstance(entry, Said):
            content = [_part(part) for part in entry.parts]
        elif isinstance(entry, Answered):
            content = [_result(entry, images)]
        else:
            content = _content(entry.content, entry.message_id, images)
        if messages and messages[-1][0] == role:
            messages[-1][1].extend(content)
        else:
            messages.append((role, content))
    if messages and messages[0][0] == "assistant":
        messages.insert(0, ("user", [{"type": "text", "text": _BEGIN}]))
    if messages and messages[-1][0] == "assistant":
        messages.append(("user", [{"type": "text", "text": _GO_ON}]))
    return messages


def _content(content: tuple[ContentBlock, ...], message_id: str, images: Images) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    for block in content:
        if isinstance(block, ImageBlock):
            source: dict[str, object] = {
                "type": "base64",
                "media_type": block.attachment.media_type,
                "data": image(images, block.attachment, message_id),
            }
            parts.append({"type": "image", "source": source})
        else:
            parts += [{"type": "text", "text": text} for text in texts([block])]
    return parts


def _part(part: Part) -> dict[str, object]:
    block, state = part.block, part.state
    if isinstance(block, ToolCallBlock):
        return {
            "type": "tool_use",
            "id": block.id,
            "name": block.name,
            "input": arguments_object(block.arguments),
        }
    if isinstance(block, ReasoningBlock) and isinstance(state, dict):
        if "redacted" in state:
            return {"type": "redacted_thinking", "data": state["redacted"]}
        return {"type": "thinking", "thinking": block.text, "signature": state.get("signature")}
    return {"type": "text", "text": "".join(texts([block]))}


def _result(entry: Answered, images: Images) -> dict[str, object]:
    content = _content(entry.content, entry.message_id, images) or [{"type": "text", "text": NO_OUTPUT}]
    result: dict[str, object] = {"type": "tool_result", "tool_use_id": entry.call_id, "content": content}
    if entry.is_error:
        result["is_error"] = True
    return result


# --- answers ----------------------------------------------------------------------------------------


class _Usage(Struct, gc=False):
    input_tokens: Count = None
    output_tokens: Count = None
    cache_read_input_tokens: Count = None
    cache_creation_input_tokens: Count = None


class _Started(Struct, gc=False):
    usage: _Usage | None = None


class _Block(Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None


class _Delta(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(Struct, gc=False):
    type: str
    index: int = 0
    message: _Started | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decoder: Final = msgspec.json.Decoder(_Event)

_REASONS: Final[Mapping[str, FinishReason]] = {
    "end_turn": Stop(),
    "stop_sequence": Stop(),
    "pause_turn": Stop(),
    "tool_use": ToolCalls(),
    "max_tokens": MaxTokens(),
    "model_context_window_exceeded": MaxTokens(),
    "refusal": Refused(),
}


@final
class AnthropicReader:
    """Reads the events of one answer and emits its chunks."""

    def __init__(self, who: str, emit: Callable[[Chunk], None], redact: Redactor) -> None:
        self._who = who
        self._redact = redact
        self._blocks = BlockWriter(emit)
        self._progress = Progress(who, emit)
        self._reason: str | None = None
        self._counts = _Usage()

    @property
    def complete(self) -> bool:
        """Whether the answer has all its content, so that only facts about it can be missing."""
        return self._progress.complete

    def read(self, name: bytes, data: bytes) -> Verdict:
        """Take an event.

        Raises:
            ModelError: it is malformed, or says that the request failed.
        """
        event = decode_event(_decoder, data, self._who, self._redact)
        kind = event.type
        if kind == "content_block_delta" and event.delta is not None:
            return self._delta(event.index, event.delta)
        if kind == "content_block_start" and event.content_block is not None:
            return self._start(event.index, event.content_block)
        if kind == "content_block_stop":
            self._blocks.close_prose()
            self._blocks.finish_call(event.index)
        elif kind == "message_start" and event.message is not None:
            self._count(event.message.usage)
        elif kind == "message_delta":
            self._count(event.usage)
            if event.delta is not None and event.delta.stop_reason:
                self._reason = event.delta.stop_reason
                self._progress.complete = True
                return Verdict.ENDING
        elif kind == "message_stop":
            self._progress.complete = True
            self.finish()
            return Verdict.LAST
        elif kind == "error":
            raise error_from_event(self._who, load_json(bytes(event.error) or b"null"), self._redact)
        return NOTHING

    def _start(self, index: int, block: _Block) -> Verdict:
        if block.type == "tool_use":
            self._blocks.call(index, block.id or "", block.name or "", "")
        elif block.type in {"thinking", "redacted_thinking"}:
            self._blocks.open_prose(is_text=False)
            self._blocks.reasoning(block.thinking or "")
            if block.data:
                self._blocks.prose_state({"redacted": block.data})
            elif block.signature:
                self._blocks.prose_state({"signature": block.signature})
        elif block.text:
            self._blocks.text(block.text)
        return PROGRESS

    def _delta(self, index: int, delta: _Delta) -> Verdict:
        if delta.text:
            self._blocks.text(delta.text)
        elif delta.thinking:
            self._blocks.reasoning(delta.thinking)
        elif delta.signature:
            self._blocks.prose_state({"signature": delta.signature})
        elif delta.partial_json:
            # Tools that the provider runs itself get their input in the same way, in blocks that are none of ours.
            self._blocks.arguments(index, delta.partial_json)
        else:
            return NOTHING
        return PROGRESS

    def _count(self, usage: _Usage | None) -> None:
        """Take over the counts that are there: the end corrects the start, field by field."""
        if usage is None:
            return
        for field in usage.__struct_fields__:
            value = getattr(usage, field)
            if value is not None:
                setattr(self._counts, field, value)
        counts = self._counts
        read, written = tokens(counts.cache_read_input_tokens), tokens(counts.cache_creation_input_tokens)
        self._blocks.usage(
            TokenUsage(
                input_tokens=tokens(counts.input_tokens) or 0,
                output_tokens=tokens(counts.output_tokens) or 0,
                cache_read_tokens=UNSET if read is None else read,
                cache_write_tokens=UNSET if written is None else written,
            )
        )

    def finish(self) -> None:
        """Emit the end of the answer, once.

        Raises:
            ModelError: the stream ended before the answer did (`STREAM_CLOSED`).
        """
        reason = _REASONS.get(self._reason or "")
        if reason is None:
            reason = ToolCalls() if self._blocks.called else Stop()
        self._progress.finish(self._blocks, reason)
