"""From the chunks of a stream to the blocks of a message, whole or cut off. Pure."""

from __future__ import annotations

from typing import final

from msgspec import UNSET, UnsetType

from ._chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    MaxTokens,
    ReasoningDelta,
    Refused,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from ._json import FrozenJson, dump_json
from ._messages import ContentBlock, ReasoningBlock, TextBlock, TokenUsage, ToolCallBlock


@final
class _Partial:
    """A block that is still being streamed: its deltas, joined when somebody asks."""

    __slots__ = ("call_id", "kind", "name", "texts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.call_id = ""
        self.name = ""

    def block(self, index: int) -> ContentBlock | None:
        text = "".join(self.texts)
        if self.kind == "text":
            return TextBlock(text=text)
        if self.kind == "reasoning":
            return ReasoningBlock(text=text)
        if self.kind == "tool-call":
            return ToolCallBlock(id=self.call_id or f"call-{index}", name=self.name, arguments=text)
        return None  # a kind whose deltas are not known has no content before its end


@final
class Assembly:
    """Assembles one attempt's stream. Never raises, in whatever order chunks come.

    Blocks stand in the order in which their index was first seen. Deltas add up until a `BlockEnd`, which replaces
    them; the first end of a block counts, later deltas and ends of it do nothing. The last usage and the last finish
    count; without a finish the stream is taken to have stopped.
    """

    __slots__ = ("_blocks", "_finish", "_replay_state", "usage")

    def __init__(self) -> None:
        self._blocks: dict[int, _Partial | ContentBlock] = {}
        self._finish: FinishReason | None = None
        self._replay_state: FrozenJson | UnsetType = UNSET
        self.usage: TokenUsage | None = None

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        kind = type(chunk)
        if kind is TextDelta:
            self._partial(chunk.index, "text", chunk.text)  # type: ignore[attr-defined]
        elif kind is ReasoningDelta:
            self._partial(chunk.index, "reasoning", chunk.text)  # type: ignore[attr-defined]
        elif type(chunk) is ToolCallDelta:
            self._call_delta(chunk)
        elif type(chunk) is BlockStart:
            if chunk.index not in self._blocks:
                self._blocks[chunk.index] = _Partial(chunk.block_type)
        elif type(chunk) is BlockEnd:
            if not isinstance(self._blocks.get(chunk.index), ContentBlock):
                self._blocks[chunk.index] = chunk.block
        elif type(chunk) is Usage:
            self.usage = chunk.usage
        elif type(chunk) is Finish:
            self._finish = chunk.reason
            self._replay_state = chunk.replay_state

    def _partial(self, index: int, kind: str, text: str) -> _Partial | None:
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _Partial(kind)
        if not isinstance(block, _Partial):
            return None
        if not block.texts:
            block.kind = kind  # what comes says what it is; a wrong announcement must not lose it
        elif block.kind != kind:
            return None  # a delta of another kind than those before it belongs to nothing
        block.texts.append(text)
        return block

    def _call_delta(self, chunk: ToolCallDelta) -> None:
        block = self._partial(chunk.index, "tool-call", chunk.arguments_delta)
        if block is not None:
            block.call_id = chunk.id or block.call_id
            if chunk.name is not UNSET and chunk.name:
                block.name = chunk.name

    # --- what has come of it ------------------------------------------------------------------

    @property
    def finish(self) -> FinishReason | None:
        """Why the stream ended, or None while it has not said so."""
        return self._finish

    @property
    def is_empty(self) -> bool:
        """Whether no block has begun."""
        return not self._blocks

    @property
    def _is_cut(self) -> bool:
        return type(self._finish) is MaxTokens or type(self._finish) is Refused

    def _all(self) -> list[ContentBlock]:
        found = []
        for index, entry in self._blocks.items():
            block = entry.block(index) if isinstance(entry, _Partial) else entry
            if block is not None:
                found.append(block)
        return found

    def blocks(self) -> tuple[ContentBlock, ...]:
        """The content of the message.

        Without the tool calls of a stream that hit its cap (the last may be cut off) or ended in a refusal: they are
        not run, and a call without a result fits into no request.
        """
        found = self._all()
        if self._is_cut:
            found = [block for block in found if not isinstance(block, ToolCallBlock)]
        return tuple(found)

    @property
    def replay_state(self) -> FrozenJson | UnsetType:
        """The adapter's own state for the message, without the entries of blocks that were dropped.

        If it lists another number of blocks than there are, all of it is dropped.
        """
        state = self._replay_state
        if state is UNSET or not self._is_cut:
            return state
        value = state.value
        if not isinstance(value, dict) or "blocks" not in value:
            return state
        entries, blocks = value["blocks"], self._all()
        if not isinstance(entries, list) or len(entries) != len(blocks):
            return UNSET
        kept = [
            entry
            for entry, block in zip(entries, blocks, strict=True)
            if not isinstance(block, ToolCallBlock)
        ]
        if len(kept) == len(entries):
            return state
        return FrozenJson(dump_json({**value, "blocks": kept}))

    def interrupted_blocks(self) -> tuple[ContentBlock, ...]:
        """The content of a message whose stream was cut off: text and reasoning that show anything."""
        return tuple(
            block
            for block in self._all()
            if isinstance(block, TextBlock | ReasoningBlock) and block.text.strip()
        )
