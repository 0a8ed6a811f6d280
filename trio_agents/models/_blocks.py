"""From a provider's deltas to the chunks of a stream: opens, grows and closes blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from msgspec import UNSET

from ..values._chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from ..values._ids import mint_id
from ..values._json import JsonValue
from ..values._messages import ReasoningBlock, TextBlock, TokenUsage, ToolCallBlock


class _Halves:
    """Joins characters beyond U+FFFF that a provider cut in two.

    Written apart they would be two half characters in memory and one character in the log.
    """

    __slots__ = ("high",)

    def __init__(self) -> None:
        self.high = ""

    def join(self, piece: str) -> str:
        """The piece with the half that was kept before it, and without a half at its end, which is kept now."""
        if self.high:
            piece = (self.high + piece).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            self.high = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self.high = piece[:-1], piece[-1]
        return piece

    def rest(self) -> str:
        """A half that never got its other half."""
        high, self.high = self.high, ""
        return high


@final
class _Prose:
    """An open block of text or of reasoning."""

    __slots__ = ("halves", "index", "is_text", "pieces", "state")

    def __init__(self, index: int, *, is_text: bool) -> None:
        self.index = index
        self.is_text = is_text
        self.pieces: list[str] = []
        self.halves = _Halves()
        self.state: JsonValue = None


@final
class _OpenCall:
    """An open tool call."""

    __slots__ = ("arguments", "halves", "id", "index", "name", "state")

    def __init__(self, index: int, call_id: str, name: str) -> None:
        self.index = index
        self.id = call_id
        self.name = name
        self.arguments: list[str] = []
        self.halves = _Halves()
        self.state: JsonValue = None


@final
class BlockWriter:
    """Emits the chunks of one reply. Blocks get their index in the order in which they are first seen.

    Text and reasoning close each other; tool calls stay open until `close`, since providers mix their deltas.
    `states` collects what the adapter wants to get back with each block, in the order of the blocks.
    """

    def __init__(self, emit: Callable[[Chunk], None]) -> None:
        self._emit = emit
        self._count = 0
        self._prose: _Prose | None = None
        self._calls: dict[object, _OpenCall] = {}
        self._states: list[JsonValue] = []
        self._usage: TokenUsage | None = None
        self.called = False

    @property
    def count(self) -> int:
        """How many blocks there have been."""
        return self._count

    @property
    def states(self) -> list[JsonValue]:
        """The state of each block, None where there is none; complete once everything is closed."""
        return self._states

    # --- text and reasoning

    def text(self, piece: str) -> None:
        """More text."""
        self._write(piece, is_text=True)

    def reasoning(self, piece: str) -> None:
        """More reasoning."""
        self._write(piece, is_text=False)

    def open_prose(self, *, is_text: bool) -> None:
        """Begin a block of text or reasoning even if nothing is in it yet, closing one that is open."""
        self.close_prose()
        self._prose = _Prose(self._next(), is_text=is_text)
        self._emit(BlockStart(index=self._prose.index, block_type="text" if is_text else "reasoning"))

    def prose_state(self, state: JsonValue) -> None:
        """What to keep with the block of text or reasoning that is open."""
        if self._prose is not None:
            self._prose.state = state

    def close_prose(self) -> None:
        """End the block of text or reasoning, if one is open."""
        prose, self._prose = self._prose, None
        if prose is None:
            return
        rest = prose.halves.rest()
        if rest:
            prose.pieces.append(rest)
            make = TextDelta if prose.is_text else ReasoningDelta
            self._emit(make(index=prose.index, text=rest))
        text = "".join(prose.pieces)
        self._states[prose.index] = prose.state
        block = TextBlock(text=text) if prose.is_text else ReasoningBlock(text=text)
        self._emit(BlockEnd(index=prose.index, block=block))

    def _write(self, piece: str, *, is_text: bool) -> None:
        if not piece:
            return
        prose = self._prose
        if prose is None or prose.is_text is not is_text:
            self.open_prose(is_text=is_text)
            prose = self._prose
            assert prose is not None
        if prose.halves.high or "\ud800" <= piece[-1] <= "\udbff":
            piece = prose.halves.join(piece)
            if not piece:
                return
        prose.pieces.append(piece)
        make = TextDelta if is_text else ReasoningDelta
        self._emit(make(index=prose.index, text=piece))

    # --- tool calls

    def call(self, key: object, call_id: str, name: str, piece: str) -> None:
        """More of the tool call that the provider knows as `key`; id and name may come once or every time."""
        call = self._calls.get(key)
        if call is not None and call_id and name and call_id != call.id and (call.arguments or call.name):
            # One key for two calls: some servers count every call as number 0.
            self._finish_call(key)
            call = None
        if call is None:
            self.close_prose()
            call = _OpenCall(self._next(), call_id or f"call_{mint_id()}", name)
            self._calls[key] = call
            self.called = True
            self._emit(BlockStart(index=call.index, block_type="tool-call"))
            self._call_delta(call, name, call.halves.join(piece))
            return
        piece = call.halves.join(piece)
        if name and not call.name:
            call.name = name
            self._call_delta(call, name, piece)
        elif piece:
            self._call_delta(call, "", piece)

    def _call_delta(self, call: _OpenCall, name: str, piece: str) -> None:
        call.arguments.append(piece)
        self._emit(ToolCallDelta(index=call.index, id=call.id, name=name or UNSET, arguments_delta=piece))

    def arguments(self, key: object, piece: str) -> None:
        """More arguments of a tool call, if that has begun."""
        if key in self._calls:
            self.call(key, "", "", piece)

    def call_state(self, key: object, state: JsonValue) -> None:
        """What to keep with an open tool call."""
        if key in self._calls:
            self._calls[key].state = state

    def finish_call(self, key: object) -> None:
        """End a tool call, if it is open."""
        if key in self._calls:
            self._finish_call(key)

    def _finish_call(self, key: object) -> None:
        call = self._calls.pop(key)
        rest = call.halves.rest()
        if rest:
            self._call_delta(call, "", rest)
        self._states[call.index] = call.state
        block = ToolCallBlock(id=call.id, name=call.name, arguments="".join(call.arguments))
        self._emit(BlockEnd(index=call.index, block=block))

    # --- the whole

    def usage(self, usage: TokenUsage) -> None:
        """Tokens so far; emitted where they differ from the last time."""
        if usage != self._usage:
            self._usage = usage
            self._emit(Usage(usage=usage))

    def close(self) -> None:
        """End every block that is open."""
        self.close_prose()
        for key in list(self._calls):
            self._finish_call(key)

    def _next(self) -> int:
        index = self._count
        self._count += 1
        self._states.append(None)
        return index
