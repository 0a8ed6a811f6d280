"""The vocabulary of a model's stream: what an adapter emits, and what the log keeps of it."""

from __future__ import annotations

from typing import Any, ClassVar, final

from msgspec import UNSET, Struct, UnsetType

from ._json import Foreign, FrozenJson, OpenUnion
from ._messages import ContentBlock, TokenUsage


@final
class LlmFailure(Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """The facts of a failed request: a text, a stable code, and what the provider said of it."""

    message: str
    code: str
    status: int | UnsetType = UNSET
    provider_retry_after_ms: float | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


# --- how a stream ended ---------------------------------------------------------------------------


class FinishReason(OpenUnion):
    """Why a model stopped. Kinds that are not known here are kept as `ForeignFinish`."""

    __slots__ = ()
    tag_field = "kind"
    members: ClassVar[dict[str, type[Any]]] = {}

    @property
    def kind(self) -> str:
        """The kind as it stands in the log."""
        return self.tag


@final
class Stop(
    FinishReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="stop", forbid_unknown_fields=True,
):  # fmt: skip
    """The model had said what it wanted to say."""


@final
class ToolCalls(
    FinishReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="tool-calls", forbid_unknown_fields=True,
):  # fmt: skip
    """The model waits for the results of its calls."""


@final
class MaxTokens(
    FinishReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="max-tokens", forbid_unknown_fields=True,
):  # fmt: skip
    """The output cap cut the answer off."""


@final
class Refused(
    FinishReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="refusal", forbid_unknown_fields=True,
):  # fmt: skip
    """The provider declined to answer."""


@final
class FinishAborted(
    FinishReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="aborted", forbid_unknown_fields=True,
):  # fmt: skip
    """The stream was broken off from the provider's side."""

    failure: LlmFailure


@final
class FinishError(
    FinishReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="error", forbid_unknown_fields=True,
):  # fmt: skip
    """The request failed."""

    failure: LlmFailure


@final
class ForeignFinish(Foreign, FinishReason):
    """A reason that this version does not know; kept as it was."""

    __slots__ = ()


FinishReason.members = {
    "stop": Stop,
    "tool-calls": ToolCalls,
    "max-tokens": MaxTokens,
    "refusal": Refused,
    "aborted": FinishAborted,
    "error": FinishError,
}
FinishReason.foreign = ForeignFinish

# --- chunks ---------------------------------------------------------------------------------------


class Chunk(OpenUnion):
    """One piece of a stream. Kinds that are not known here are kept as `ForeignChunk`."""

    __slots__ = ()
    tag_field = "type"
    members: ClassVar[dict[str, type[Any]]] = {}


@final
class BlockStart(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="block-start", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A block begins; `block_type` is the type of a content block."""

    index: int
    block_type: str


@final
class TextDelta(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="text-delta", forbid_unknown_fields=True,
):  # fmt: skip
    """More text of the block at `index`."""

    index: int
    text: str


@final
class ReasoningDelta(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="reasoning-delta", forbid_unknown_fields=True,
):  # fmt: skip
    """More reasoning of the block at `index`."""

    index: int
    text: str


@final
class ToolCallDelta(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="tool-call-delta", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """More of a tool call's arguments; the last id and the last non-empty name count."""

    index: int
    id: str
    arguments_delta: str
    name: str | UnsetType = UNSET


@final
class BlockEnd(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="block-end", forbid_unknown_fields=True,
):  # fmt: skip
    """A block is complete: `block` replaces what its deltas gave."""

    index: int
    block: ContentBlock


@final
class Usage(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="usage", forbid_unknown_fields=True,
):  # fmt: skip
    """Tokens so far; the last one of a stream counts."""

    usage: TokenUsage


@final
class Finish(
    Chunk, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="finish", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """The stream is over; the first one counts. `replay_state` is the adapter's own."""

    reason: FinishReason
    replay_state: FrozenJson | UnsetType = UNSET


@final
class ForeignChunk(Foreign, Chunk):
    """A chunk of a kind that this version does not know; kept as it was."""

    __slots__ = ()


Chunk.members = {
    "block-start": BlockStart,
    "text-delta": TextDelta,
    "reasoning-delta": ReasoningDelta,
    "tool-call-delta": ToolCallDelta,
    "block-end": BlockEnd,
    "usage": Usage,
    "finish": Finish,
}
Chunk.foreign = ForeignChunk
