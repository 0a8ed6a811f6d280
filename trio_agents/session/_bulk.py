"""Many lines of a log at once, for loading: one call into the decoder, and runs of chunks never made into objects."""

from __future__ import annotations

from operator import sub
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ..values._chunks import ReasoningDelta, TextDelta, ToolCallDelta
from ..values._json import MAX_SAFE_INTEGER, decode_hook
from ._events import Event
from ._packing import SHORTEST_RUN, ChunkRun, _CallDeltas, _CallRow, _Deltas, _encode, _ReasoningRow, _TextRow
from ._wire import _BUILDERS, Inexact, _chunk, _ChunkLine, _Line

_lines: Final = msgspec.json.Decoder(_Line | _TextRow | _ReasoningRow | _CallRow, dec_hook=decode_hook)
_DELTAS: Final = frozenset((TextDelta, ReasoningDelta, ToolCallDelta))
_ROW_OF: Final[dict[type[Any], type[_TextRow | _ReasoningRow]]] = {
    TextDelta: _TextRow,
    ReasoningDelta: _ReasoningRow,
}
_ROWS: Final = frozenset((_TextRow, _ReasoningRow, _CallRow))


def decode_bulk(lines: bytes, seq: int) -> tuple[list[Event | ChunkRun], int, int]:
    """What some whole lines (with their ends) hold, if all of it is frequent and exactly in shape.

    Several times faster than line by line. Runs of like chunks come packed, whether the lines were or not.

    Args:
        lines: the lines.
        seq: the number that their first event must have.

    Returns:
        The records, the number that follows them, and how many lines it were.

    Raises:
        ValueError, UsageError: a line is anything else, good or bad, or has another number.
    """
    wires = _lines.decode_lines(lines)
    if len(wires) != lines.count(b"\n"):
        raise Inexact("an empty line, or one with several values")
    records: list[Event | ChunkRun] = []
    run: list[Any] = []
    # What the chunk that a run begins with is like. Compared in place: this is the loop that loading consists of.
    kind_of_run: type[Any] = type(None)
    turn = step = index = None
    for wire in wires:
        kind = type(wire)
        if kind is _ChunkLine and wire.seq == seq:
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
        if kind in _ROWS:
            seq = _take_row(wire, seq, records)
            continue
        if wire.seq != seq:
            raise Inexact("not the next number")
        records.append(_BUILDERS[kind](wire))
        seq += 1
    _close(run, records)
    return records, seq, len(wires)


def _names(chunk: Any) -> tuple[object, object]:
    return chunk.id, chunk.name


def _close(run: list[Any], records: list[Event | ChunkRun]) -> None:
    if len(run) < SHORTEST_RUN:
        records += [_chunk(wire) for wire in run]
        return
    times = [wire.time for wire in run]
    if max(times) - min(times) > MAX_SAFE_INTEGER:
        records.extend(map(_BUILDERS[_ChunkLine], run))
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


def _take_row(row: Any, seq: int, records: list[Event | ChunkRun]) -> int:
    data = row.data
    count = len(data.args if type(row) is _CallRow else data.texts)
    if row.seq0 != seq or len(data.dt) != count - 1 or seq + count - 1 > MAX_SAFE_INTEGER:
        raise Inexact("not the next numbers, or a malformed row")
    if abs(row.time0) + sum(map(abs, data.dt)) > MAX_SAFE_INTEGER:
        raise Inexact("its times have to be looked at one by one")
    records.append(ChunkRun(seq, count, _encode(row)))
    return seq + count
