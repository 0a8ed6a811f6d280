"""Chat completions: the protocol of OpenAI and of everything that is compatible with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

import msgspec
from msgspec import UNSET, Struct

from ..errors import ModelError
from ..values._chunks import Chunk, FinishReason, MaxTokens, Refused, Stop, ToolCalls
from ..values._json import JsonValue, load_json
from ..values._messages import ReasoningBlock, TokenUsage, ToolCallBlock
from ._answers import schema_asked_for
from ._blocks import BlockWriter
from ._contract import AttachmentReader, ModelInfo, ModelRequest
from ._deadlines import Deadlines
from ._failures import Redactor, error_from_event
from ._history import Answered, Asked, Entry, Said, project
from ._reading import NOTHING, PROGRESS, Count, Progress, Verdict, tokens
from ._rendering import (
    Images,
    arguments_text,
    decode_event,
    image,
    pictures,
    result_text,
    texts,
)
from ._service import Dialect, Service

if TYPE_CHECKING:
    import httpx2

CHAT: Final = Dialect(
    adapter="OpenAIChat",
    public_url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    path="chat/completions",
    key_header="authorization",
    key_prefix="Bearer ",
)


@final
class OpenAIChat:
    """A model adapter for chat completions, OpenAI's own or any compatible endpoint's.

    Args:
        api_key: sent as a bearer token; by default the variable `OPENAI_API_KEY`. Endpoints other than the public
            one may do without.
        base_url: by default the variable `OPENAI_BASE_URL`, else the public endpoint.
        provider: the name before the slash in `provider/model`.
        headers: sent with every request.
        client: your own `httpx2.AsyncClient`, which stays yours to close.
        models: what `info` says of models, by name.
        read_attachment: gives the bytes of images where a request does not bring its own reader.
        max_tokens_field: the protocol's name of the output cap; by default `max_completion_tokens` at the public
            endpoint and `max_tokens`, which more servers know, elsewhere.
        replay_reasoning: send a model's own reasoning back while it is at work with tools, if the server gave it
            as text: some then require it. It is never sent after the next input, nor to another model.
        enforce_schemas: send the schema that `ask(returns=...)` asks for as `response_format` too, in requests without
            tools. For servers that hold a model to any JSON schema, as llama.cpp does.
        extra_body: further fields of every request, in the provider's own terms.
        connect_timeout, first_byte_timeout, silence_timeout, total_timeout: seconds, or None for no bound. The
            first byte is the first event that tells something; keep-alives do not end a silence.
        max_connections: the size of our own connection pool.

    Raises:
        UsageError: httpx2 is missing, or an argument cannot be right.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "openai",
        headers: Mapping[str, str] | None = None,
        client: httpx2.AsyncClient | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        read_attachment: AttachmentReader | None = None,
        max_tokens_field: str | None = None,
        replay_reasoning: bool = True,
        enforce_schemas: bool = False,
        extra_body: Mapping[str, JsonValue] | None = None,
        connect_timeout: float | None = 15.0,
        first_byte_timeout: float | None = 120.0,
        silence_timeout: float | None = 120.0,
        total_timeout: float | None = None,
        max_connections: int = 100,
    ) -> None:
        self._service = Service(
            CHAT,
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
        )
        self._replay_reasoning = replay_reasoning
        self._enforce_schemas = enforce_schemas
        self._max_tokens_field = max_tokens_field or (
            "max_completion_tokens" if self._service.is_public else "max_tokens"
        )

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
            max_tokens_field=self._max_tokens_field,
            replay_reasoning=self._replay_reasoning,
        )
        if self._enforce_schemas:
            body |= response_format(request)
        await self._service.send(body, emit, ChatReader)


# --- requests ---------------------------------------------------------------------------------------


def render_chat(
    request: ModelRequest,
    images: Images | None = None,
    *,
    max_tokens_field: str = "max_tokens",
    replay_reasoning: bool = True,
) -> dict[str, object]:
    """The body of a request for chat completions: a pure function. Tool schemas stand in it as `FrozenJson`.

    Args:
        request: what is asked.
        images: base64 text of the images in it, by attachment id.
        max_tokens_field: see `OpenAIChat`.
        replay_reasoning: see `OpenAIChat`.

    Raises:
        ModelError: the history cannot be sent (`INVALID_REQUEST`, `UNSUPPORTED_CONTENT`).
    """
    entries = project(request.messages, provider=request.provider, model=request.model, tools=request.tools)
    return _render(
        request, entries, images or {}, max_tokens_field=max_tokens_field, replay_reasoning=replay_reasoning
    )


def response_format(request: ModelRequest) -> dict[str, object]:
    """The field that holds a model to the schema which the last input asks for: none beside tools, or without one."""
    schema = None if request.tools else schema_asked_for(request.messages)
    if schema is None:
        return {}
    form = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _render(
    request: ModelRequest,
    entries: list[Entry],
    images: Images,
    *,
    max_tokens_field: str,
    replay_reasoning: bool,
) -> dict[str, object]:
    messages: list[dict[str, object]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    last_input = max((place for place, entry in enumerate(entries) if isinstance(entry, Asked)), default=-1)
    shown: list[dict[str, object]] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, Answered):
            messages.append({"role": "tool", "tool_call_id": entry.call_id, "content": result_text(entry)})
            shown += _image_parts(entry, images)
            continue
        # A tool message holds text only, and nothing may stand between the results of one message.
        _show(messages, shown)
        if isinstance(entry, Asked):
            messages.append({"role": "user", "content": _input(entry, images)})
        else:
            messages.append(_assistant(entry, replay=replay_reasoning and place > last_input))
    _show(messages, shown)
    body: dict[str, object] = {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def _input(entry: Asked, images: Images) -> str | list[dict[str, object]]:
    text = "\n\n".join(texts(entry.content))
    shown = _image_parts(entry, images)
    if not shown:
        return text
    if text:
        shown.insert(0, {"type": "text", "text": text})
    return shown


def _image_parts(entry: Asked | Answered, images: Images) -> list[dict[str, object]]:
    return [
        {
            "type": "image_url",
            "image_url": {
                "url": f"data:{picture.media_type};base64,{image(images, picture, entry.message_id)}"
            },
        }
        for picture in pictures(entry.content)
    ]


def _show(messages: list[dict[str, object]], shown: list[dict[str, object]]) -> None:
    if shown:
        note: dict[str, object] = {"type": "text", "text": "Images from the tool results above:"}
        messages.append({"role": "user", "content": [note, *shown]})
        shown.clear()


def _assistant(entry: Said, *, replay: bool) -> dict[str, object]:
    spoken = [
        part.block for part in entry.parts if not isinstance(part.block, ReasoningBlock | ToolCallBlock)
    ]
    text = "".join(texts(spoken))
    calls = [part.block for part in entry.parts if isinstance(part.block, ToolCallBlock)]
    message: dict[str, object] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
            }
            for call in calls
        ]
    for part in entry.parts:
        if replay and calls and isinstance(part.block, ReasoningBlock) and isinstance(part.state, dict):
            field = part.state.get("field")
            if isinstance(field, str):
                before = message.get(field)
                message[field] = f"{before}{part.block.text}" if isinstance(before, str) else part.block.text
    return message


# --- answers ----------------------------------------------------------------------------------------


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolDelta] | None = None


class _Choice(Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: Count = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: Count = None


class _Usage(Struct, gc=False):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: Count = None


_NO_ERROR: Final = msgspec.Raw()


class _ChatChunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _NO_ERROR


_decoder: Final = msgspec.json.Decoder(_ChatChunk)

_REASONS: Final[Mapping[str, FinishReason]] = {"length": MaxTokens(), "content_filter": Refused()}
_SHORT: Final = 20
"""Bytes of an event that may be no JSON but the protocol's last word."""
_FAILED: Final = frozenset({"error", "insufficient_system_resource"})


@final
class ChatReader:
    """Reads the events of one answer and emits its chunks."""

    def __init__(self, who: str, emit: Callable[[Chunk], None], redact: Redactor) -> None:
        self._who = who
        self._redact = redact
        self._blocks = BlockWriter(emit)
        self._reason: str | None = None
        self._declined = False
        self._progress = Progress(who, emit)

    @property
    def complete(self) -> bool:
        """Whether the answer has all its content, so that only facts about it can be missing."""
        return self._progress.complete

    def read(self, name: bytes, data: bytes) -> Verdict:
        """Take an event.

        Raises:
            ModelError: it is malformed, or says that the request failed.
        """
        if len(data) < _SHORT and data.strip() == b"[DONE]":
            self._progress.complete = True
            self.finish()
            return Verdict.LAST
        chunk = decode_event(_decoder, data, self._who, self._redact)
        if chunk.error is not _NO_ERROR and bytes(chunk.error) != b"null":
            raise error_from_event(self._who, load_json(bytes(chunk.error)), self._redact)
        progress = False
        for choice in chunk.choices or ():
            if choice.index == 0 and self._reason is None:
                progress = self._choice(choice) or progress
        if chunk.usage is not None:
            usage = _token_usage(chunk.usage)
            if usage is not None:
                self._blocks.usage(usage)
        if self._reason is not None:
            return Verdict.ENDING
        return PROGRESS if progress else NOTHING

    def _choice(self, choice: _Choice) -> bool:
        progress = False
        delta = choice.delta
        if delta is not None:
            thought = delta.reasoning_content or delta.reasoning
            if thought:
                self._reasoning(thought, "reasoning_content" if delta.reasoning_content else "reasoning")
                progress = True
            if delta.content:
                self._blocks.text(delta.content)
                progress = True
            if delta.refusal:
                self._blocks.text(delta.refusal)
                self._declined = progress = True
            for place, call in enumerate(delta.tool_calls or ()):
                self._call(place, call)
                progress = True
        if choice.finish_reason:
            if choice.finish_reason in _FAILED:
                raise ModelError(f"{self._who} broke off its answer: {choice.finish_reason}", code="SERVER")
            self._reason = choice.finish_reason
            self._progress.complete = True
            self._blocks.close()
            progress = True
        return progress

    def _reasoning(self, thought: str, field: str) -> None:
        self._blocks.reasoning(thought)
        self._blocks.prose_state({"field": field})

    def _call(self, place: int, delta: _ToolDelta) -> None:
        function = delta.function or _Function()
        key = place if delta.index is None else delta.index
        self._blocks.call(key, delta.id or "", function.name or "", function.arguments or "")

    def finish(self) -> None:
        """Emit the end of the answer, once.

        Raises:
            ModelError: the stream ended before the answer did (`STREAM_CLOSED`).
        """
        self._progress.finish(self._blocks, self._finish_reason())

    def _finish_reason(self) -> FinishReason:
        known = _REASONS.get(self._reason or "")
        if known is not None:
            return known
        if self._declined:
            return Refused()
        # Servers disagree about the word for a reply with calls; the calls themselves say it.
        return ToolCalls() if self._blocks.called else Stop()


def _token_usage(usage: _Usage) -> TokenUsage | None:
    """Disjoint counts: the protocol counts what came from the cache among the prompt."""
    asked, answered = tokens(usage.prompt_tokens), tokens(usage.completion_tokens)
    if asked is None and answered is None:
        return None
    details, of_answer = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = tokens(details.cached_tokens) if details else None
    if cached is None:
        cached = tokens(usage.prompt_cache_hit_tokens)
    thought = tokens(of_answer.reasoning_tokens) if of_answer else None
    return TokenUsage(
        input_tokens=max((asked or 0) - (cached or 0), 0),
        output_tokens=answered or 0,
        cache_read_tokens=UNSET if cached is None else cached,
        reasoning_tokens=UNSET if thought is None else thought,
    )
