"""The responses protocol of OpenAI, used without state on the provider's side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

import attrs
import msgspec
from msgspec import UNSET, Struct

from ..errors import ModelError
from ..values._chunks import Chunk, FinishReason, MaxTokens, Refused, Stop, ToolCalls
from ..values._json import JsonValue, load_json
from ..values._messages import ContentBlock, ImageBlock, ReasoningBlock, TokenUsage, ToolCallBlock
from ._blocks import BlockWriter
from ._contract import AttachmentReader, ModelInfo, ModelRequest
from ._deadlines import Deadlines
from ._failures import Redactor, error_from_event
from ._history import Answered, Asked, Entry, project
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
from ._service import Service
from .openai import CHAT

if TYPE_CHECKING:
    import httpx2

RESPONSES: Final = attrs.evolve(CHAT, adapter="OpenAIResponses", path="responses")


@final
class OpenAIResponses:
    """A model adapter for the responses protocol. The provider is asked to store nothing.

    Args:
        api_key: sent as a bearer token; by default the variable `OPENAI_API_KEY`. Endpoints other than the public
            one may do without.
        base_url: by default the variable `OPENAI_BASE_URL`, else the public endpoint.
        provider: the name before the slash in `provider/model`.
        headers: sent with every request.
        client: your own `httpx2.AsyncClient`, which stays yours to close.
        models: what `info` says of models, by name.
        read_attachment: gives the bytes of images where a request does not bring its own reader.
        reasoning_summary: ask for summaries of reasoning, `auto`, `concise` or `detailed`; None does not ask.
        replay_reasoning: ask for reasoning in encrypted form and send it back with the conversation. By default
            only where an effort is asked for: models without reasoning refuse it.
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
        provider: str = "openai-responses",
        headers: Mapping[str, str] | None = None,
        client: httpx2.AsyncClient | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        read_attachment: AttachmentReader | None = None,
        reasoning_summary: str | None = None,
        replay_reasoning: bool | None = None,
        extra_body: Mapping[str, JsonValue] | None = None,
        connect_timeout: float | None = 15.0,
        first_byte_timeout: float | None = 120.0,
        silence_timeout: float | None = 120.0,
        total_timeout: float | None = None,
        max_connections: int = 100,
    ) -> None:
        self._service = Service(
            RESPONSES,
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
        self._reasoning_summary = reasoning_summary
        self._replay_reasoning = replay_reasoning

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
            reasoning_summary=self._reasoning_summary,
            replay_reasoning=self._replay_reasoning,
        )
        await self._service.send(body, emit, ResponsesReader)


# --- requests ---------------------------------------------------------------------------------------


def render_responses(
    request: ModelRequest,
    images: Images | None = None,
    *,
    reasoning_summary: str | None = None,
    replay_reasoning: bool | None = None,
) -> dict[str, object]:
    """The body of a request for a response: a pure function. Tool schemas stand in it as `FrozenJson`.

    Raises:
        ModelError: the history or a setting cannot be sent (`INVALID_REQUEST`, `UNSUPPORTED_CONTENT`,
            `UNSUPPORTED_OPTION`).
    """
    entries = project(request.messages, provider=request.provider, model=request.model, tools=request.tools)
    return _render(
        request,
        entries,
        images or {},
        reasoning_summary=reasoning_summary,
        replay_reasoning=replay_reasoning,
    )


def _render(
    request: ModelRequest,
    entries: list[Entry],
    images: Images,
    *,
    reasoning_summary: str | None,
    replay_reasoning: bool | None,
) -> dict[str, object]:
    if request.stop:
        raise ModelError(
            f"{request.provider} speaks the responses protocol, which has no stop sequences; leave stop empty",
            code="UNSUPPORTED_OPTION",
        )
    items: list[dict[str, object]] = []
    for entry in entries:
        items += _items(entry, images)
    body: dict[str, object] = {"model": request.model, "input": items, "stream": True, "store": False}
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    reasoning: dict[str, object] = {"effort": request.effort, "summary": reasoning_summary}
    reasoning = {name: value for name, value in reasoning.items() if value is not None}
    if reasoning:
        body["reasoning"] = reasoning
    if replay_reasoning or (replay_reasoning is None and request.effort is not None):
        body["include"] = ["reasoning.encrypted_content"]
    return body


def _items(entry: Entry, images: Images) -> list[dict[str, object]]:
    if isinstance(entry, Asked):
        content = _input(entry.content, entry.message_id, images)
        return [{"type": "message", "role": "user", "content": content}]
    if isinstance(entry, Answered):
        return [_output(entry, images)]
    return [item for part in entry.parts for item in [_said(part.block, part.state)] if item is not None]


def _input(content: tuple[ContentBlock, ...], message_id: str, images: Images) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    for block in content:
        if isinstance(block, ImageBlock):
            picture = block.attachment
            data = image(images, picture, message_id)
            parts.append({"type": "input_image", "image_url": f"data:{picture.media_type};base64,{data}"})
        else:
            parts += [{"type": "input_text", "text": text} for text in texts([block])]
    return parts


def _output(entry: Answered, images: Images) -> dict[str, object]:
    output: object = result_text(entry)
    if pictures(entry.content):
        parts = _input(entry.content, entry.message_id, images)
        if entry.is_error:  # there is no flag for it, and words are all that can say so
            parts = [{"type": "input_text", "text": output}, *(each for each in parts if "text" not in each)]
        output = parts
    return {"type": "function_call_output", "call_id": entry.call_id, "output": output}


def _said(block: ContentBlock, state: JsonValue) -> dict[str, object] | None:
    if isinstance(block, ToolCallBlock):
        arguments = arguments_text(block.arguments)
        return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
    if isinstance(block, ReasoningBlock):
        return dict(state) if isinstance(state, dict) else None
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts([block])]
    return {"type": "message", "role": "assistant", "content": content}


# --- answers ----------------------------------------------------------------------------------------


class _Item(Struct, gc=False):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None
    summary: msgspec.Raw = msgspec.Raw()


class _InputDetails(Struct, gc=False):
    cached_tokens: Count = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: Count = None


class _Usage(Struct, gc=False):
    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Event(Struct, gc=False):
    type: str
    output_index: int = 0
    summary_index: int = 0
    delta: str | None = None
    item: _Item | None = None
    response: _Response | None = None


_decoder: Final = msgspec.json.Decoder(_Event)
_TEXTS: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


@final
class ResponsesReader:
    """Reads the events of one answer and emits its chunks."""

    def __init__(self, who: str, emit: Callable[[Chunk], None], redact: Redactor) -> None:
        self._who = who
        self._redact = redact
        self._blocks = BlockWriter(emit)
        self._progress = Progress(who, emit)
        self._reason: FinishReason | None = None
        self._with_arguments: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether the answer has all its content, so that only facts about it can be missing."""
        return self._progress.complete

    def read(self, name: bytes, data: bytes) -> Verdict:
        """Take an event.

        Raises:
            ModelError: it is malformed, or says that the request failed.
        """
        if data.strip() == b"[DONE]":
            return Verdict.LAST if self.complete else NOTHING
        event = decode_event(_decoder, data, self._who, self._redact)
        kind = event.type
        if event.delta is not None:
            return self._delta(event, event.delta)
        if event.item is not None:
            return self._item(event.output_index, event.item, is_done=kind.endswith(".done"))
        if kind == "response.reasoning_summary_part.added" and event.summary_index > 0:
            self._blocks.reasoning("\n\n")
        elif kind in {"response.completed", "response.incomplete"} and event.response is not None:
            return self._end(event.response)
        elif kind == "response.failed" and event.response is not None:
            raise error_from_event(self._who, load_json(bytes(event.response.error) or b"null"), self._redact)
        elif kind == "error":
            raise error_from_event(self._who, load_json(data), self._redact)
        return NOTHING

    def _delta(self, event: _Event, delta: str) -> Verdict:
        if not delta:
            return NOTHING
        if event.type in _TEXTS:
            self._blocks.text(delta)
            if event.type == "response.refusal.delta":
                self._reason = Refused()
        elif event.type in _THOUGHTS:
            self._blocks.reasoning(delta)
        elif event.type == "response.function_call_arguments.delta":
            self._with_arguments.add(event.output_index)
            self._blocks.call(event.output_index, "", "", delta)
        else:
            return NOTHING
        return PROGRESS

    def _item(self, index: int, item: _Item, *, is_done: bool) -> Verdict:
        if item.type == "function_call":
            late = item.arguments or "" if is_done and index not in self._with_arguments else ""
            self._blocks.call(index, item.call_id or "", item.name or "", late)
            if is_done:
                self._blocks.finish_call(index)
        elif item.type == "reasoning":
            if not is_done:
                self._blocks.open_prose(is_text=False)
            else:
                self._blocks.prose_state(_reasoning_state(item))
                self._blocks.close_prose()
        elif item.type == "message" and is_done:
            self._blocks.close_prose()
        return PROGRESS

    def _end(self, response: _Response) -> Verdict:
        usage = response.usage
        if usage is not None:
            details, of_answer = usage.input_tokens_details, usage.output_tokens_details
            cached = tokens(details.cached_tokens) if details else None
            thought = tokens(of_answer.reasoning_tokens) if of_answer else None
            self._blocks.usage(
                TokenUsage(
                    input_tokens=max((tokens(usage.input_tokens) or 0) - (cached or 0), 0),
                    output_tokens=tokens(usage.output_tokens) or 0,
                    cache_read_tokens=UNSET if cached is None else cached,
                    reasoning_tokens=UNSET if thought is None else thought,
                )
            )
        why = response.incomplete_details.reason if response.incomplete_details else None
        if why is not None:
            self._reason = Refused() if why == "content_filter" else MaxTokens()
        self._progress.complete = True
        self.finish()
        return Verdict.LAST

    def finish(self) -> None:
        """Emit the end of the answer, once.

        Raises:
            ModelError: the stream ended before the answer did (`STREAM_CLOSED`).
        """
        reason = self._reason
        if reason is None:
            reason = ToolCalls() if self._blocks.called else Stop()
        self._progress.finish(self._blocks, reason)


def _reasoning_state(item: _Item) -> JsonValue:
    """What has to go back to the provider: the item in encrypted form. Without that, nothing may."""
    if not item.encrypted_content:
        return None
    state: dict[str, JsonValue] = {
        "type": "reasoning",
        "summary": load_json(bytes(item.summary) or b"[]") or [],
        "encrypted_content": item.encrypted_content,
    }
    if item.id:
        state["id"] = item.id
    return state
