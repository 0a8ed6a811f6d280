"""Runs of like stream deltas as one compact row, and back. Rows exist in storage and memory only, never as events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any, Final, TypeAlias, final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..values._chunks import ReasoningDelta, TextDelta, ToolCallDelta
from ..values._json import MAX_SAFE_INTEGER, escape_surrogates
from ._codec import BadLineError, decode_event, parse_line
from ._events import AssistantChunk, Event
from ._legacy import MessageIdAt
from ._wire import Nat, Safe

SHORTEST_RUN: Final = 3
"""Fewer like neighbours than this are written one by one."""

ROW_TYPES: Final = frozenset(("text-chunks", "reasoning-chunks", "tool-call-chunks"))

Texts: TypeAlias = Annotated[tuple[str, ...], Meta(min_length=1)]


class _Exact(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Base of the structs that take no unknown field. Field order is the order on disk."""


class _Deltas(_Exact, frozen=True, kw_only=True, gc=False):
    turn: int | float
    step: int | float
    index: int | float
    dt: tuple[Safe, ...]
    texts: Texts


class _CallDeltas(_Exact, frozen=True, kw_only=True, gc=False):
    turn: int | float
    step: int | float
    index: int | float
    dt: tuple[Safe, ...]
    id: str
    name: str | UnsetType = UNSET
    args: Texts


class _TextRow(_Exact, frozen=True, kw_only=True, gc=False, tag_field="type", tag="text-chunks"):
    seq0: Nat
    time0: Safe
    data: _Deltas


class _ReasoningRow(_Exact, frozen=True, kw_only=True, gc=False, tag_field="type", tag="reasoning-chunks"):
    seq0: Nat
    time0: Safe
    data: _Deltas


class _CallRow(_Exact, frozen=True, kw_only=True, gc=False, tag_field="type", tag="tool-call-chunks"):
    seq0: Nat
    time0: Safe
    data: _CallDeltas


_Row: TypeAlias = _TextRow | _ReasoningRow | _CallRow
_rows: Final = msgspec.json.Decoder(_Row)
_encoder: Final = msgspec.json.Encoder()


@final
class ChunkRun(Struct, frozen=True, gc=False):
    """Consecutive `assistant/chunk` events, held as the bytes of their packed row.

    A run of one may also be any single event that is held as its line, because its payload could be changed.

    Attributes:
        seq0: number of the first of them.
        count: how many they are.
        row: the line, without its line end.
    """

    seq0: int
    count: int
    row: bytes

    def __len__(self) -> int:
        return self.count

    def expand(self) -> list[Event]:
        """The events, made afresh."""
        if self.count == 1 and not is_row(self.row):
            return [decode_event(self.row)]
        return _events(_decode_row(self.row))


# --- packing --------------------------------------------------------------------------------------


DELTAS: Final[frozenset[type[Any]]] = frozenset((TextDelta, ReasoningDelta, ToolCallDelta))
"""The chunks of which runs are made."""


def pack(events: Iterable[Event | ChunkRun]) -> list[Event | ChunkRun]:
    """One batch with each run of three or more like deltas as a `ChunkRun`; everything else as it is."""
    packed: list[Event | ChunkRun] = []
    run: list[Event] = []
    previous: object = None
    for event in events:
        likeness = None if type(event) is ChunkRun else _likeness(event)
        if run and (likeness is None or likeness != previous or not _follows(run[-1], event)):  # type: ignore[arg-type]
            _close(run, packed)
            run = []
        if likeness is None:
            packed.append(event)
        else:
            run.append(event)  # type: ignore[arg-type]
        previous = likeness
    _close(run, packed)
    return packed


def _likeness(event: Event) -> object:
    """What the members of a run have in common, or None for an event that cannot be in one."""
    data = event.data
    if type(data) is not AssistantChunk or type(event) is not Event or event.ignorable is not UNSET:
        return None
    chunk = data.chunk
    kind = type(chunk)
    if kind is TextDelta or kind is ReasoningDelta:
        return kind, data.turn, data.step, chunk.index  # type: ignore[attr-defined]
    if type(chunk) is ToolCallDelta:
        return kind, data.turn, data.step, chunk.index, chunk.id, chunk.name
    return None


def _follows(last: Event, event: Event) -> bool:
    return event.seq == last.seq + 1 and abs(event.time - last.time) <= MAX_SAFE_INTEGER


def _close(run: list[Event], packed: list[Event | ChunkRun]) -> None:
    if len(run) < SHORTEST_RUN:
        packed.extend(run)
    else:
        packed.append(ChunkRun(run[0].seq, len(run), _encode(_row(run))))


def _row(run: list[Event]) -> _Row:
    first = run[0]
    data = first.data
    chunk = data.chunk
    times = [event.time for event in run]
    dt = tuple(later - earlier for earlier, later in pairwise(times))
    if type(chunk) is ToolCallDelta:
        members = tuple(event.data.chunk.arguments_delta for event in run)
        calls = _CallDeltas(
            turn=data.turn,
            step=data.step,
            index=chunk.index,
            dt=dt,
            id=chunk.id,
            name=chunk.name,
            args=members,
        )
        return _CallRow(seq0=first.seq, time0=first.time, data=calls)
    texts = tuple(event.data.chunk.text for event in run)
    deltas = _Deltas(turn=data.turn, step=data.step, index=chunk.index, dt=dt, texts=texts)
    kind: type[_TextRow | _ReasoningRow] = _TextRow if type(chunk) is TextDelta else _ReasoningRow
    return kind(seq0=first.seq, time0=first.time, data=deltas)


def _encode(row: _Row) -> bytes:
    try:
        return _encoder.encode(row)
    except UnicodeEncodeError:  # a lone surrogate: text that was cut inside a character
        text = json.dumps(msgspec.to_builtins(row), ensure_ascii=False, separators=(",", ":"))
        return escape_surrogates(text)


# --- unpacking ------------------------------------------------------------------------------------


def is_row(line: bytes) -> bool:
    """Whether a line claims to be a packed row."""
    if line.startswith(b'{"type":"'):
        return line[9 : line.find(b'"', 9)] in _ROW_TAGS
    try:
        return parse_line(line).get("type") in ROW_TYPES
    except BadLineError:
        return False


_ROW_TAGS: Final = frozenset(name.encode() for name in ROW_TYPES)


def decode_row(line: bytes, *, seq: int | None = None) -> ChunkRun:
    """The run in a packed row (a line without its line end).

    Args:
        line: a line for which `is_row` holds.
        seq: the number that its first event must have, or None if any will do.

    Raises:
        BadLineError: it breaks the shape of a row in any way.
    """
    row = _decode_row(line)
    count = len(row.data.args if type(row) is _CallRow else row.data.texts)  # type: ignore[union-attr]
    if seq is not None and row.seq0 != seq:
        raise BadLineError(f"event {seq} expected, found a row that starts with {row.seq0}")
    if len(row.data.dt) != count - 1:
        raise BadLineError(
            f"a row of {count} chunks has {count - 1} time differences, not {len(row.data.dt)}"
        )
    if row.seq0 + count - 1 > MAX_SAFE_INTEGER:
        raise BadLineError("a row's numbers go beyond 2^53-1")
    for time in accumulate(row.data.dt, initial=row.time0):
        if not -MAX_SAFE_INTEGER <= time <= MAX_SAFE_INTEGER:
            raise BadLineError("a row's times go beyond 2^53-1")
    return ChunkRun(row.seq0, count, line)


def _decode_row(line: bytes) -> _Row:
    try:
        row: _Row = _rows.decode(line)
    except (ValueError, RecursionError):
        pass
    else:
        return row
    # Lone surrogates, bytes that are not UTF-8, 1.0 for 1: all allowed, none of it for msgspec's decoder.
    try:
        row = msgspec.convert(parse_line(line), _Row)
    except msgspec.ValidationError as exc:
        raise BadLineError(f"a malformed row: {exc}") from exc
    return row


def _events(row: _Row) -> list[Event]:
    data = row.data
    turn, step, index = data.turn, data.step, data.index
    chunks: Sequence[Any]
    if type(data) is _CallDeltas:
        chunks = [
            ToolCallDelta(index=index, id=data.id, name=data.name, arguments_delta=text)  # type: ignore[arg-type]
            for text in data.args
        ]
    else:
        delta: type[Any] = TextDelta if type(row) is _TextRow else ReasoningDelta
        chunks = [delta(index=index, text=text) for text in data.texts]  # type: ignore[union-attr]
    times = accumulate(data.dt, initial=row.time0)
    return [
        Event(
            type="assistant/chunk",
            seq=seq,
            time=time,
            data=AssistantChunk(turn=turn, step=step, chunk=chunk),  # type: ignore[arg-type]
        )
        for seq, (time, chunk) in enumerate(zip(times, chunks, strict=True), row.seq0)
    ]


def decode_record(
    line: bytes,
    *,
    seq: int | None = None,
    session_id: str = "",
    message_id_at: MessageIdAt | None = None,
) -> Event | ChunkRun:
    """What a line of a log holds: an event, or the run of a packed row. See `decode_event` for the arguments."""
    if is_row(line):
        return decode_row(line, seq=seq)
    return decode_event(line, seq=seq, session_id=session_id, message_id_at=message_id_at)
