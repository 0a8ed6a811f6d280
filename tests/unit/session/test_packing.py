"""Packed rows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.unit.session.samples import called
from trio_agents.session import AssistantChunk, Event, decode_event
from trio_agents.session._codec import BadLineError
from trio_agents.session._packing import ChunkRun, decode_record, decode_row, is_row, pack
from trio_agents.values import BlockStart, ReasoningDelta, TextDelta, ToolCallDelta


def chunks(*deltas: Any, times: Any = None, start: int = 4) -> list[Event]:
    times = times or range(len(deltas))
    return [
        Event(
            type="assistant/chunk", seq=start + n, time=time, data=AssistantChunk(turn=1, step=2, chunk=chunk)
        )
        for n, (chunk, time) in enumerate(zip(deltas, times, strict=True))
    ]


def text(*texts: str) -> list[Any]:
    return [TextDelta(index=0, text=item) for item in texts]


def call(*texts: str, **fields: Any) -> list[Any]:
    return [ToolCallDelta(index=1, id="c", arguments_delta=item, **fields) for item in texts]


def test_a_run_is_one_row_in_the_form_of_the_format():
    """PER-19"""
    [run] = pack(chunks(*text("a", "b", "c"), times=[10, 7, 7]))
    assert type(run) is ChunkRun
    assert (run.seq0, len(run)) == (4, 3)
    assert run.row == (
        b'{"type":"text-chunks","seq0":4,"time0":10,'
        b'"data":{"turn":1,"step":2,"index":0,"dt":[-3,0],"texts":["a","b","c"]}}'
    )


@pytest.mark.parametrize(
    "deltas",
    [
        text("a", "b", "c", ""),
        [ReasoningDelta(index=3, text=item) for item in "abc"],
        call("{", "}", "x"),
        call("{", "}", "x", name="n"),
        text("\ud800", "\u2028", "c"),
    ],
    ids=["text", "reasoning", "call", "named call", "surrogate"],
)
def test_rows_expand_to_the_same_events(deltas):
    """PROP-10, PER-19"""
    events = chunks(*deltas)
    [run] = pack(events)
    assert isinstance(run, ChunkRun)
    assert run.expand() == events
    assert decode_row(run.row, seq=4) == run
    assert is_row(run.row)
    assert [type(event) for event in run.expand()] == [Event] * len(events)


def test_runs_end_where_anything_differs():
    events = chunks(
        *text("a", "b", "c"),
        *[TextDelta(index=1, text="x") for _ in range(3)],
        *call("1", "2", "3"),
        *call("4", "5", "6", name="n"),
        *text("y", "z"),
        BlockStart(index=2, block_type="text"),
    )
    packed = pack(events)
    assert [type(item) for item in packed] == [ChunkRun] * 4 + [Event] * 3
    assert [len(item) for item in packed if isinstance(item, ChunkRun)] == [3, 3, 3, 3]


def test_what_is_not_quite_a_delta_stays_as_it_is():
    events = chunks(*text(*"abcdef"))
    events[1] = msgspec.structs.replace(events[1], ignorable=True)
    events[3] = Event(type="tool/call", seq=7, time=1, data=called(1, 2, "c"))
    assert pack(events) == events
    gap = chunks(*text("a", "b", "c"))[:2] + chunks(*text("c", "d"), start=9)
    assert pack(gap) == gap


def test_runs_pass_through():
    run, *_ = pack(chunks(*text("a", "b", "c")))
    assert pack([run]) == [run]


ROW: dict[str, Any] = {
    "type": "text-chunks",
    "seq0": 1,
    "time0": 1,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [1], "texts": ["a", "b"]},
}


def row(data: Any = None, **fields: Any) -> bytes:
    return json.dumps({**ROW, **fields, "data": {**ROW["data"], **(data or {})}}).encode()


def test_short_rows_are_read():
    """PER-19"""
    assert len(decode_row(row())) == 2
    assert len(decode_row(row({"dt": [], "texts": ["a"]}))) == 1
    run = decode_row(row({"turn": 1.0}, seq0=1.0))
    assert run.expand() == decode_row(row()).expand()
    turned = json.dumps(dict(reversed(ROW.items()))).encode()
    assert is_row(turned)
    assert decode_record(turned, seq=1).expand() == run.expand()  # type: ignore[union-attr]
    assert decode_row(row({"texts": ["\ud800", "b"]})).expand()[0].data.chunk.text == "\ud800"


@pytest.mark.parametrize(
    "raw",
    [
        row({"dt": []}),
        row({"dt": [1, 1]}),
        row({"dt": [1.5]}),
        row({"dt": [2**53]}),
        row({"texts": []}),
        row({"texts": ["a", 1]}),
        row({"turn": "1"}),
        row({"more": 1}),
        row({"id": "c"}),
        row(seq0=-1),
        row(seq0=2**53 - 1),
        row(time0=2**53 - 1),
        row(more=1),
        row(time0=None),
        row(type="tool-call-chunks"),
        b'{"type":"text-chunks"}',
    ],
)  # fmt: skip
def test_a_row_that_breaks_its_shape_is_a_bad_line(raw):
    """PER-7, PER-19"""
    with pytest.raises(BadLineError):
        decode_record(raw)


def test_a_row_must_continue_the_log():
    with pytest.raises(BadLineError, match="event 2 expected"):
        decode_record(row(), seq=2)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"type":5}', b'{"type":"turn/start"}', b'{"type":"text-chunk"}']
)
def test_other_lines_are_no_rows(raw):
    assert not is_row(raw)


def test_events_are_records_too():
    raw = b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}'
    assert decode_record(raw, seq=0) == decode_event(raw)
