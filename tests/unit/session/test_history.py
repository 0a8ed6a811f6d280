"""Where events are kept, and the view of them."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.session.samples import delta, opened, write_turn
from trio_agents.session import Event, Events, StepEnd, StepStart, TurnStart
from trio_agents.session._history import History
from trio_agents.session._packing import ChunkRun


def numbered(*datas: object) -> list[Event]:
    return [Event(type=d.wire_type, seq=seq, time=1, data=d) for seq, d in enumerate(datas)]  # type: ignore[attr-defined]


def streamed(count: int) -> list[Event]:
    return numbered(
        TurnStart(turn=1),
        StepStart(turn=1, step=1),
        *(delta(1, 1, str(n)) for n in range(count)),
        StepEnd(turn=1, step=1),
        StepStart(turn=1, step=2),
    )


@pytest.fixture(params=["plain", "packed"])
def both(request):
    """A view of 1,000 deltas between brackets, and the events that it must show."""
    events = streamed(1000)
    history = History()
    for event in events:
        history.append(event)
        if request.param == "packed" and event.type == "step/end":
            history.compact()
    assert any(type(record) is ChunkRun for record in history.records) is (request.param == "packed")
    return history.view(), events


def test_views_are_sequences(both):
    """LOG-8, LOG-18"""
    view, events = both
    assert len(view) == len(events)
    assert list(view) == events
    assert list(reversed(view)) == events[::-1]
    assert [view[n] for n in (0, 2, 500, -1, -3)] == [events[n] for n in (0, 2, 500, -1, -3)]
    for part in (
        slice(None),
        slice(1, 4),
        slice(500, 600),
        slice(None, None, 7),
        slice(10, 2, -3),
        slice(5, 5),
    ):
        assert view[part] == tuple(events[part])
    for bad in (len(events), -len(events) - 1):
        with pytest.raises(IndexError):
            view[bad]
    assert events[300] in view


def test_earlier_views_do_not_change():
    """LOG-8"""
    events = streamed(10)
    history = History()
    views = []
    for event in events:
        history.append(event)
        views.append(history.view())
        if event.type == "step/end":
            history.compact()
    for length, view in enumerate(views, 1):
        assert list(view) == events[:length]
        assert list(view.prefix(length).records) == list(view.records)


def test_an_iteration_survives_packing():
    events = streamed(10)
    history = History(events[:-2])
    reader = iter(history.view())
    got = list(itertools.islice(reader, 5))
    history.append(events[-2])
    history.compact()
    assert got + list(reader) == events[:-2]


def test_records_stay_packed_as_far_as_they_are_whole():
    session, pen, _ = opened()
    write_turn(pen, 1, deltas=list("abcdefgh"))
    view = session.events
    [run] = [record for record in view.records if type(record) is ChunkRun]
    for length in (run.seq0, run.seq0 + 3, run.seq0 + len(run), len(view)):
        prefix = view.prefix(length)
        assert list(prefix) == list(view[:length])
        assert (run in prefix.records) is (length >= run.seq0 + len(run))


def test_the_open_turn_before_any_event():
    session, pen, _ = opened()
    write_turn(pen, 1, deltas=list("abcdefgh"))
    write_turn(pen, 2)
    view = session.events
    starts = {event.data.turn: event.seq for event in view if event.type == "turn/start"}
    ends = {event.data.turn: event.seq for event in view if event.type == "turn/end"}
    for stop in range(len(view) + 1):
        inside = [turn for turn, seq in starts.items() if seq < stop <= ends[turn]]
        assert view.open_turn(stop) == (inside[0] if inside else None)
    assert view.open_turn() is None


def test_few_chunks_are_left_alone():
    history = History(streamed(2)[:-1])
    history.compact()
    assert not any(type(record) is ChunkRun for record in history.records)
    empty = History()
    empty.compact()
    assert len(empty.view()) == 0
    assert Events.of([]).open_turn() is None
