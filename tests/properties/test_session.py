"""What holds for every log."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, strategies as st

from tests.properties.strategies import Marked, Script, chunks, logs, moves
from tests.unit.session.samples import MemoryWriter, header
from trio_agents.session import (
    Draft,
    Event,
    Events,
    StepEnd,
    decode_event,
    encode_event,
    fold_header,
    open_log,
    prefix_marker,
    repair,
    trace_issues,
)
from trio_agents.session._grammar import START, after_all
from trio_agents.session._history import History
from trio_agents.session._packing import ChunkRun, decode_record, pack
from trio_agents.session._pending import fold_pending
from trio_agents.session._surface import fold_surface
from trio_agents.values import Assembly, BlockEnd, Finish, FrozenJson, Stop, TextDelta, ToolCallBlock


def unpacked(records: list[Event | ChunkRun]) -> list[Event]:
    return [e for r in records for e in (r.expand() if isinstance(r, ChunkRun) else [r])]


@given(logs())
def test_reading_gives_what_was_written(events: list[Event]) -> None:
    """PER-1"""
    for event in events:
        line = encode_event(event)
        assert b"\n" not in line
        assert decode_event(line, seq=event.seq) == event


@given(logs(), st.lists(st.integers(0, 100), max_size=5))
def test_packing_is_the_identity_for_any_split(events: list[Event], cuts: list[int]) -> None:
    """PROP-10"""
    edges = sorted({0, len(events), *(cut % (len(events) + 1) for cut in cuts)})
    records: list[Event | ChunkRun] = []
    for start, end in pairwise(edges):
        records += pack(events[start:end])
    assert unpacked(records) == events
    lines = [r.row if isinstance(r, ChunkRun) else encode_event(r) for r in records]
    again: list[Event] = []
    for line in lines:
        again += unpacked([decode_record(line, seq=len(again))])
    assert again == events


@given(logs(), st.data())
def test_every_crash_point_can_be_repaired(events: list[Event], data: st.DataObject) -> None:
    """PROP-6"""
    stored = events[: data.draw(st.integers(0, len(events)))]
    added = repair(stored)
    whole = stored + added
    assert trace_issues(whole) == []
    assert repair(whole) == []
    assert after_all(START, whole).turn is None
    pending, before = fold_pending(whole), fold_pending(stored)
    assert (pending.claimed, pending.moving) == ((), ())
    lost = {m.id for _, m in before.claimed} | {m.id for m in before.moving}
    assert lost == {m.id for m in (*pending.next_turn, *pending.next_step)} - {
        m.id for m in (*before.next_turn, *before.next_step)
    }
    # What was repaired is an ordinary log: it can be opened, its closers are what an append accepts.
    session, pen = open_log(header(), stored, writer=MemoryWriter())
    pen.append(*[Draft(e.data, **_marks(e)) for e in added], *prefix_marker(whole))
    assert [e.data for e in session.events[: len(whole)]] == [e.data for e in whole]


def _marks(event: Event) -> dict[str, Any]:
    if event.surface_op is msgspec.UNSET:
        return {}
    return {"surface_op": event.surface_op, "source_event_seqs": event.source_event_seqs}


@given(logs())
def test_replay_gives_the_same_and_at_most_one_more_marker(events: list[Event]) -> None:
    """PROP-7"""
    first, pen = open_log(header(), events, writer=MemoryWriter())
    pen.append(*prefix_marker(events)) if prefix_marker(events) else None
    again, _ = open_log(header(), first.events)
    assert again.messages() == first.messages()
    assert list(again.events) == list(first.events)
    assert len(first.events) in (len(events), len(events) + 1)
    assert prefix_marker(again.events) == []


@given(logs(), st.data())
def test_events_that_are_no_messages_change_no_message(events: list[Event], data: st.DataObject) -> None:
    """PROP-7"""
    place = data.draw(st.integers(0, len(events)))
    marked = Marked(value=FrozenJson.of(1))
    extra = Event(type=Marked.wire_type, seq=place, time=1, data=marked, ignorable=True)
    shifted = [*events[:place], extra, *(_shifted(event, place) for event in events[place:])]
    assert open_log(header(), shifted)[0].messages() == open_log(header(), events)[0].messages()


def _shifted(event: Event, place: int) -> Event:
    def move(seq: int) -> int:
        return seq + (seq >= place)

    changes: dict[str, Any] = {"seq": event.seq + 1}
    if event.source_event_seqs is not msgspec.UNSET:
        changes["source_event_seqs"] = tuple(map(move, event.source_event_seqs))
    op = event.surface_op
    if op is not msgspec.UNSET and op != "append":
        changes["surface_op"] = type(op)(start=move(op.start), end=move(op.end))
    return msgspec.structs.replace(event, **changes)


@given(moves)
def test_incremental_views_are_folds_from_scratch(script_moves: list[Any]) -> None:
    """PROP-2, PROP-8, HDR-9"""
    script = Script()
    session, pen = script.session, script.pen
    shown = []

    def compare() -> None:
        events = list(session.events)
        surface = fold_surface(events, events.__getitem__)
        assert session.surface == surface.nodes
        assert session.messages() == surface.messages() == list(session.conversation())
        assert session.request_header() == fold_header(events)
        assert session.brackets == after_all(START, events)
        pending = fold_pending(events)
        for view in ("next_turn", "next_step", "claimed", "moving"):
            assert getattr(pending, view) == getattr(pen.pending, view)
        shown.append((session.events, events))

    for move in script_moves:
        script.run([move])
        compare()
    for view, events in shown:
        assert list(view) == events
    assert trace_issues(session.events) == []
    lines = script.writer.lines  # type: ignore[attr-defined]
    assert [decode_event(line) for line in lines] == list(session.events)
    assert all(json.loads(line)["seq"] == seq for seq, line in enumerate(lines))


@given(logs(), st.data())
def test_views_read_the_same_packed_or_not(events: list[Event], data: st.DataObject) -> None:
    """LOG-8, LOG-18"""
    history = History()
    for event in events:
        history.append(event)
        if type(event.data) is StepEnd:
            history.compact()
    start, stop = data.draw(st.integers(-70, 70)), data.draw(st.integers(-70, 70))
    for view in (history.view(), Events.of(pack(events)), Events.of(events)):
        assert list(view) == events
        assert view[start:stop] == tuple(events[start:stop])
        assert [view[n] for n in range(len(view))] == events
        assert unpacked(list(view.records)) == events
        cut = abs(start) % (len(events) + 1)
        assert list(view.prefix(cut)) == events[:cut]
        assert view.open_turn(cut) == after_all(START, events[:cut]).turn


@given(st.lists(chunks(), max_size=30))
def test_assembly_takes_any_order_of_chunks(stream: list[Any]) -> None:
    """PROP-11"""
    assembly = Assembly()
    for chunk in stream:
        assembly.feed(chunk)
    finishes = [chunk for chunk in stream if isinstance(chunk, Finish)]
    assert assembly.finish == (finishes[-1].reason if finishes else None)
    blocks = assembly.blocks()
    cut = bool(finishes) and finishes[-1].reason.kind == "max-tokens"
    ended: dict[int, Any] = {}
    for chunk in stream:
        if isinstance(chunk, BlockEnd):
            ended.setdefault(chunk.index, chunk.block)
    kept = [block for block in ended.values() if not (cut and isinstance(block, ToolCallBlock))]
    assert all(block in blocks for block in kept)
    assert not cut or not any(isinstance(block, ToolCallBlock) for block in blocks)
    assert all(block.text.strip() for block in assembly.interrupted_blocks())  # type: ignore[attr-defined]
    state = assembly.replay_state
    if cut and state is not msgspec.UNSET:
        assert len(state.value["blocks"]) == len(blocks)  # type: ignore[index, arg-type, call-overload]
    assembly.feed(Finish(reason=Stop()))
    assembly.feed(TextDelta(index=9, text="x"))
    assert assembly.finish == Stop()
    assert assembly.blocks()[-1].text == "x"  # type: ignore[attr-defined]
