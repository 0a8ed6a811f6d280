"""Many lines of a log at once, for loading: one call into the decoder, and no object that nobody needs yet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import sub
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET

from ..values._chunks import ReasoningDelta, TextDelta, ToolCallDelta
from ..values._json import MAX_SAFE_INTEGER, decode_hook
from ..values._messages import TextBlock
from ._events import Event
from ._packing import SHORTEST_RUN, ChunkRun, _CallDeltas, _CallRow, _Deltas, _encode, _ReasoningRow, _TextRow
from ._wire import BUILDERS, LATER, Inexact, Line, SpliceLine, _ChunkLine, _Line, to_event

_lines: Final = msgspec.json.Decoder(_Line | _TextRow | _ReasoningRow | _CallRow, dec_hook=decode_hook)
_DELTAS: Final = frozenset((TextDelta, ReasoningDelta, ToolCallDelta))
_ROW_OF: Final[dict[type[Any], type[_TextRow | _ReasoningRow]]] = {
    TextDelta: _TextRow,
    ReasoningDelta: _ReasoningRow,
}


def _splice(line: Any) -> Event | Line:
    # Text is all that was checked as it was decoded; making a message looks at other blocks.
    for message in line.data.inserted:
        for block in message.content:
            if type(block) is not TextBlock:
                return to_event(line)
    return line  # type: ignore[no-any-return]


_AT_ONCE: Final[dict[type[Any], Callable[[Any], Event | Line]]] = {
    kind: build for kind, build in BUILDERS.items() if kind not in LATER
} | {SpliceLine: _splice}
"""What becomes an event at once: messages are needed by every resume, and have to be looked at.

All others stay lines until somebody reads them. Making their events cannot fail.
"""

# One letter for what a line asks of us, so that a stretch of lines can be looked at as a text.
_ROW, _CHUNK, _NOW, _LATER = b"rcnl"
_LETTERS: Final[dict[type[Any], int]] = (
    dict.fromkeys(get_args(_Line), _LATER)
    | dict.fromkeys(_AT_ONCE, _NOW)
    | {_ChunkLine: _CHUNK, _TextRow: _ROW, _ReasoningRow: _ROW, _CallRow: _ROW}
)
_SHORTEST: Final = bytes([_CHUNK]) * SHORTEST_RUN
_IS_NOW: Final = bytes(letter == _NOW for letter in range(256))


def decode_bulk(lines: bytes, seq: int) -> tuple[list[Event | ChunkRun | Line], int, int]:
    """What some whole lines (with their ends) hold, if all of it is frequent and exactly in shape.

    Several times faster than line by line. Runs of like chunks come packed, whether the lines were or not; events
    that are not needed to resume a session come as the lines that were decoded.

    Args:
        lines: the lines.
        seq: the number that their first event must have.

    Returns:
        The records, the number that follows them, and how many lines it were.

    Raises:
        ValueError, UsageError: a line is anything else, good or bad, or has another number.
    """
    wires = _lines.decode_lines(lines)
    count = len(wires)
    if count != lines.count(b"\n"):
        raise Inexact("an empty line, or one with several values")
    letters = bytes(map(_LETTERS.__getitem__, map(type, wires)))
    if _ROW in letters or _SHORTEST in letters:
        return *_packed(wires, letters, seq), count
    if [wire.seq for wire in wires] != list(range(seq, seq + count)):
        raise Inexact("not the next numbers")
    records: list[Event | ChunkRun | Line] = wires
    for index in compress(range(count), letters.translate(_IS_NOW)):
        wire = wires[index]
        records[index] = _AT_ONCE[type(wire)](wire)
    return records, seq + count, count


def _packed(wires: list[Any], letters: bytes, seq: int) -> tuple[list[Event | ChunkRun | Line], int]:
    """Lines with runs among them: as records with these packed, and the number that follows."""
    records: list[Event | ChunkRun | Line] = []
    run: list[Any] = []
    # What the chunk that a run begins with is like. Compared in place: such a log is nearly all chunks.
    kind_of_run: type[Any] = type(None)
    turn = step = index = None
    for wire, letter in zip(wires, letters, strict=True):
        if letter == _CHUNK and wire.seq == seq:
            data = wire.data
            chunk = data.chunk
            if (
                type(chunk) is not kind_of_run
                or chunk.index != index
                or data.turn != turn
                or data.step != step
                or wire.ignorable is not UNSET
                or (kind_of_run is ToolCallDelta and _names(chunk) != _names(run[0].data.chunk))
            ):
                if run:
                    _close(run, records)
                    run = []
                kind_of_run = (
                    type(chunk) if type(chunk) in _DELTAS and wire.ignorable is UNSET else type(None)
                )
                turn, step, index = data.turn, data.step, getattr(chunk, "index", None)
            run.append(wire)
            seq += 1
            continue
        if run:
            _close(run, records)
            run = []
            kind_of_run = type(None)
        if letter == _ROW:
            seq = _take_row(wire, seq, records)
            continue
        if wire.seq != seq:
            raise Inexact("not the next number")
        records.append(_AT_ONCE[type(wire)](wire) if letter == _NOW else wire)
        seq += 1
    _close(run, records)
    return records, seq


def _names(chunk: Any) -> tuple[object, object]:
    return chunk.id, chunk.name


def _close(run: list[Any], records: list[Event | ChunkRun | Line]) -> None:
    if len(run) < SHORTEST_RUN:
        records += run
        return
    times = [wire.time for wire in run]
    if max(times) - min(times) > MAX_SAFE_INTEGER:
        records += run
        return
    records.append(ChunkRun(run[0].seq, len(run), _encode(_row_of(run, times))))


def _row_of(run: list[Any], times: list[int]) -> _TextRow | _ReasoningRow | _CallRow:
    first = run[0]
    data = first.data
    chunk = data.chunk
    dt = tuple(map(sub, times[1:], times))
    if type(chunk) is ToolCallDelta:
        calls = _CallDeltas(
            turn=data.turn,
            step=data.step,
            index=chunk.index,
            dt=dt,
            id=chunk.id,
            name=chunk.name,
            args=tuple([wire.data.chunk.arguments_delta for wire in run]),
        )
        return _CallRow(seq0=first.seq, time0=first.time, data=calls)
    texts = tuple([wire.data.chunk.text for wire in run])
    deltas = _Deltas(turn=data.turn, step=data.step, index=chunk.index, dt=dt, texts=texts)
    return _ROW_OF[type(chunk)](seq0=first.seq, time0=first.time, data=deltas)


def _take_row(row: Any, seq: int, records: list[Event | ChunkRun | Line]) -> int:
    data = row.data
    count = len(data.args if type(row) is _CallRow else data.texts)
    if row.seq0 != seq or len(data.dt) != count - 1 or seq + count - 1 > MAX_SAFE_INTEGER:
        raise Inexact("not the next numbers, or a malformed row")
    if abs(row.time0) + sum(map(abs, data.dt)) > MAX_SAFE_INTEGER:
        raise Inexact("its times have to be looked at one by one")
    records.append(ChunkRun(seq, count, _encode(row)))
    return seq + count
