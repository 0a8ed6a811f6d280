"""Messages and requests for the tests of models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from trio_agents.models import ModelAdapter, ModelRequest
from trio_agents.session._events import ToolSpec
from trio_agents.values._chunks import Chunk
from trio_agents.values._json import FrozenJson
from trio_agents.values._messages import (
    Attachment,
    ContentBlock,
    ImageBlock,
    Message,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSource,
    UserMessage,
)


def user(*content: str | ContentBlock, id: str = "u") -> Message:
    return UserMessage.from_text(tuple(as_block(part) for part in content), id=id)


def as_block(part: str | ContentBlock) -> ContentBlock:
    return TextBlock(text=part) if isinstance(part, str) else part


def call(id: str = "c1", name: str = "read", arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(id=id, name=name, arguments=arguments)


def thought(text: str = "hmm") -> ReasoningBlock:
    return ReasoningBlock(text=text)


def said(
    *content: str | ContentBlock, id: str = "a", state: Any = None, provider: str = "openai", model: str = "m"
) -> Message:
    replay_state = UNSET if state is None else FrozenJson.of(state)
    return Message(
        id=id,
        role="assistant",
        content=tuple(as_block(part) for part in content),
        source=ModelSource(provider=provider, model=model, replay_state=replay_state),
    )


def result(call_id: str = "c1", *content: str | ContentBlock, id: str = "r", error: bool = False) -> Message:
    block = ToolResultBlock(
        tool_call_id=call_id, content=tuple(as_block(part) for part in content), is_error=error
    )
    return Message(id=id, role="user", content=(block,), source=ToolSource(call_id=call_id))


def picture(id: str, media_type: Any = "image/png") -> ImageBlock:
    attachment = Attachment(attachment_id=id, media_type=media_type, bytes=3, width=1, height=1)
    return ImageBlock(attachment=attachment)


def tool(name: str) -> ToolSpec:
    schema = FrozenJson.of({"type": "object", "properties": {}})
    return ToolSpec(name=name, description=f"Does {name}.", parameters=schema)


def request(*messages: Message, provider: str = "openai", model: str = "m", **settings: Any) -> ModelRequest:
    return ModelRequest(
        provider=provider, model=model, messages=messages or (user("hello"),), session_id="s", **settings
    )


async def collect(model: ModelAdapter, asked: ModelRequest | None = None) -> list[Chunk]:
    chunks: list[Chunk] = []
    await model.stream(request() if asked is None else asked, chunks.append)
    return chunks


def kinds(chunks: Iterable[Chunk]) -> list[str]:
    return [chunk.tag for chunk in chunks]
