"""What a recorded stream says of itself twice: a replay streams it as it is, so it has to agree with itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from msgspec import UNSET

from ..session import AssistantChunk, AssistantMessage, Event, StepEnd
from ..values import (
    BlockEnd,
    BlockStart,
    Chunk,
    ContentBlock,
    Finish,
    FinishAborted,
    FinishError,
    MaxTokens,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
)

_KINDS = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "tool-call"}


def stream_fault(events: Iterable[Event]) -> tuple[Event, str] | None:
    """The first chunk that contradicts the stream it is part of, and how; None if there is none.

    Writers differ in how much they say: what a recording says nowhere is not missed.
    """
    events = list(events)
    at_end = _ends_together(events)
    begins = any(type(e.data) is AssistantChunk and isinstance(e.data.chunk, BlockStart) for e in events)
    bare = _bare_block(events)
    stream = _Stream(begins, at_end)
    for event in events:
        data = event.data
        if type(data) is AssistantChunk:
            if event is bare:
                return event, "the block has a text, and not one piece of it was streamed"
            if stream.is_finished:
                stream = _Stream(begins, at_end)  # another attempt
            fault = stream.take(event, data.chunk)
        elif type(data) is AssistantMessage:
            fault = stream.answer(event, data)
            stream = _Stream(begins, at_end)
        elif type(data) is StepEnd:
            fault = None
            stream = _Stream(begins, at_end)
        else:
            continue
        if fault is not None:
            return fault
    return None


def _ends_together(events: Iterable[Event]) -> bool:
    """Whether this writer ends the blocks of a stream at its end, and not each before the next one begins."""
    begun: set[int] = set()
    overtaken: set[int] = set()
    for event in events:
        if type(event.data) is not AssistantChunk:
            continue
        chunk = event.data.chunk
        if isinstance(chunk, BlockStart):
            overtaken |= begun
            begun.add(chunk.index)
        elif isinstance(chunk, BlockEnd):
            if chunk.index in overtaken:
                return True
            begun.discard(chunk.index)
        elif isinstance(chunk, Finish):
            begun, overtaken = set(), set()
    return False


def _bare_block(events: Iterable[Event]) -> Event | None:
    """The end of the only block of a recording that has a text and no pieces, if all others have theirs."""
    has_piece: set[int] = set()
    bare: list[Event] = []
    others = 0
    for event in events:
        if type(event.data) is not AssistantChunk:
            continue
        chunk = event.data.chunk
        if isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta):
            has_piece.add(chunk.index)
        elif isinstance(chunk, BlockEnd) and _text(chunk.block):
            others += chunk.index in has_piece
            if chunk.index not in has_piece:
                bare.append(event)
        elif isinstance(chunk, Finish):
            has_piece = set()
    return bare[0] if len(bare) == 1 and others else None


@final
class _Block:
    """One block of a stream: what was begun, its pieces, and where they stand."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[tuple[Event, str]] = []
        self.after: Event | None = None  # the event behind the last one of this block
        self.is_over = False


@final
class _Stream:
    """One attempt, chunk by chunk."""

    def __init__(self, begins: bool, ends_together: bool) -> None:
        self._begins = begins
        self._ends_together = ends_together
        self._blocks: dict[int, _Block] = {}
        self._events: list[Event] = []
        self._has_usage = False
        self._finish: Event | None = None
        self._current: _Block | None = None

    @property
    def is_finished(self) -> bool:
        """Whether its last chunk has come."""
        return self._finish is not None

    def take(self, event: Event, chunk: Chunk) -> tuple[Event, str] | None:
        """The fault that the next chunk brings to light, if any."""
        self._events.append(event)
        index = getattr(chunk, "index", None)
        block = self._blocks.get(index) if index is not None else None
        if self._current is not None and block is not self._current and self._current.after is None:
            self._current.after = event
        if isinstance(chunk, BlockStart):
            if block is not None:
                return event, f"block {chunk.index} begins a second time"
            self._current = self._blocks[chunk.index] = _Block(chunk.block_type)
        elif isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta):
            return self._delta(event, chunk, block)
        elif isinstance(chunk, BlockEnd):
            return self._end(event, chunk, block)
        elif isinstance(chunk, Usage):
            self._has_usage = True
        elif isinstance(chunk, Finish):
            self._finish = event
            return self._finished(event, chunk)
        return None

    def _delta(
        self, event: Event, chunk: TextDelta | ReasoningDelta | ToolCallDelta, block: _Block | None
    ) -> tuple[Event, str] | None:
        if block is None:
            return (event, f"block {chunk.index} was not begun") if self._begins else None
        if block.is_over:
            return event, f"block {chunk.index} goes on after its end"
        kind = _KINDS[type(chunk)]
        if kind != block.kind:
            return event, f"block {chunk.index} was begun as {block.kind}, and goes on as {kind}"
        piece = chunk.arguments_delta if isinstance(chunk, ToolCallDelta) else chunk.text
        block.pieces.append((event, piece))
        block.after = None
        self._current = block
        return None

    def _end(self, event: Event, chunk: BlockEnd, block: _Block | None) -> tuple[Event, str] | None:
        if block is None:
            return (event, f"block {chunk.index} was not begun") if self._begins else None
        if block.is_over:
            return event, f"block {chunk.index} ends a second time"
        if chunk.block.tag != block.kind:
            return event, f"block {chunk.index} was begun as {block.kind}, and ends as {chunk.block.tag}"
        block.is_over = True
        self._current = None
        return _torn(event, block.pieces, _text(chunk.block))

    def _finished(self, event: Event, chunk: Finish) -> tuple[Event, str] | None:
        if isinstance(chunk.reason, FinishError | FinishAborted | MaxTokens):
            return None
        for index, block in self._blocks.items():
            if not block.is_over:
                return self._missing_end(index, block) or event, f"block {index} has no end"
        return None

    def _missing_end(self, index: int, block: _Block) -> Event | None:
        """Where the end of a block should have been."""
        if not self._ends_together:
            return block.after
        for event in self._events:
            chunk = event.data.chunk
            if (isinstance(chunk, BlockEnd) and chunk.index > index) or isinstance(chunk, Usage):
                return event
        return None

    def answer(self, event: Event, message: AssistantMessage) -> tuple[Event, str] | None:
        """The fault that shows when the stream is compared with the answer that was made of it."""
        if event.source_event_seqs is not UNSET:
            for chunk, cited in zip(self._events, event.source_event_seqs, strict=False):
                if chunk.seq != cited:
                    return chunk, "the answer does not cite it where it stands"
        if self._finish is not None and message.usage is not UNSET and not self._has_usage:
            return self._finish, "the answer has a usage that the stream does not tell before it finishes"
        return None


def _torn(end: Event, pieces: Sequence[tuple[Event, str]], whole: str | None) -> tuple[Event, str] | None:
    """Whether one piece is missing, or pieces were exchanged. Pieces and whole may well say something else.

    (Programs that take secrets out of logs change one of the two, and not always both.)
    """
    joined = "".join(piece for _, piece in pieces)
    if whole is None or joined == whole or not pieces:
        return None
    same = 0
    while same < min(len(joined), len(whole)) and joined[same] == whole[same]:
        same += 1
    rest = len(joined) - same
    is_cut = len(joined) < len(whole) and (rest == 0 or whole.endswith(joined[same:]))
    is_mixed = len(joined) == len(whole) and sorted(joined) == sorted(whole)
    if not is_cut and not is_mixed:
        return None
    length = 0
    for event, piece in pieces:
        length += len(piece)
        if length > same:
            return event, "a piece of the block is missing before it, or out of order"
    return end, "the last piece of the block is missing"


def _text(block: ContentBlock) -> str | None:
    if isinstance(block, TextBlock | ReasoningBlock):
        return block.text
    return block.arguments if isinstance(block, ToolCallBlock) else None
