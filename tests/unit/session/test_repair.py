"""What closes a log that was cut off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.samples import (
    MemoryWriter,
    answer,
    asks,
    called,
    claim,
    delta,
    header,
    insert,
    opened,
    result,
    started,
    user,
    write_turn,
)
from trio_agents.session import (
    Draft,
    Event,
    InboxSpliced,
    StepStart,
    ToolFailure,
    TurnEnd,
    TurnStart,
    open_log,
    repair,
    trace_issues,
)
from trio_agents.session._packing import pack
from trio_agents.session._pending import fold_pending
from trio_agents.values import BY_USER, INTERRUPTED, Aborted

A, B, C = (user(name, id=name) for name in "abc")


def cut(*batches: Any) -> list[Event]:
    _, pen, _ = opened()
    for batch in batches:
        pen.append(*(batch if isinstance(batch, tuple) else (batch,)))
    return list(pen.session.events)


def closed(events: list[Event]) -> list[Event]:
    """The closers; that they make a sound log, and that nothing is left to do, is checked each time."""
    added = repair(events)
    whole = events + added
    assert trace_issues(whole) == []
    assert repair(whole) == []
    assert [event.seq for event in whole] == list(range(len(whole)))
    assert {event.time for event in added} <= {events[-1].time}
    session, pen = open_log(header(), events, writer=MemoryWriter(), loaded=True, now=lambda: events[-1].time)
    drafts = pen.closers()
    if drafts:
        assert list(pen.append(*drafts)) == added
    assert session.open_turn is None
    assert fold_pending(whole).claimed == ()
    return added


def test_a_balanced_log_needs_nothing():
    """PER-5"""
    _, pen, _ = opened()
    assert repair([]) == []
    pen.append(insert(A))
    assert closed(list(pen.session.events)) == []
    write_turn_session = opened()
    write_turn(write_turn_session[1], 1)
    assert closed(list(write_turn_session[0].events)) == []


def test_an_open_turn_is_interrupted():
    """PER-4"""
    [end] = closed(cut(TurnStart(turn=1)))
    assert end.data == TurnEnd(turn=1, reason=INTERRUPTED)


IN_STEP = (TurnStart(turn=1), StepStart(turn=1, step=1))
STORIES: dict[str, tuple[tuple[Any, ...], str, bool]] = {
    "asked only": ((answer(1, 1, *asks("c")),), "TOOL_NOT_STARTED", False),
    "untracked call": ((answer(1, 1, *asks("c")), called(1, 1, "c")), "TOOL_OUTCOME_UNKNOWN", True),
    "tracked call": ((answer(1, 1, *asks("c")), called(1, 1, "c", tracked=True)), "TOOL_NOT_STARTED", True),
    "started call": (
        (answer(1, 1, *asks("c")), called(1, 1, "c", tracked=True), started(1, 1, "c")),
        "TOOL_OUTCOME_UNKNOWN",
        True,
    ),
}


@pytest.mark.parametrize(("story", "code", "cites"), STORIES.values(), ids=STORIES.keys())
def test_a_call_without_a_result_gets_one(story, code, cites):
    """PER-4, TOOL-5"""
    events = cut(IN_STEP, *story)
    answered, step_end, turn_end = closed(events)
    assert [step_end.type, turn_end.type] == ["step/end", "turn/end"]
    message = answered.data.message
    [block] = message.content
    assert message.id == f"interrupted-tool-result-c-{answered.seq}"
    assert (block.tool_call_id, block.is_error, len(block.content)) == ("c", True, 1)
    name = "ToolNotStartedError" if code == "TOOL_NOT_STARTED" else "ToolOutcomeUnknownError"
    assert answered.data.error == ToolFailure(name=name, code=code)
    call = [event.seq for event in events if event.type == "tool/call"]
    assert (answered.source_event_seqs == tuple(call)) is cites


def test_calls_are_closed_in_the_order_of_the_model():
    """PER-4"""
    events = cut(
        IN_STEP,
        answer(1, 1, *asks("a", "b", "c", "b")),
        called(1, 1, "c"),
        called(1, 1, "a"),
        result(1, 1, "a"),
    )
    added = closed(events)
    answered = [event.data.message.source.call_id for event in added if event.type == "tool/result"]
    assert answered == ["b", "c", "b"]
    assert len({event.data.message.id for event in added if event.type == "tool/result"}) == 3


def test_nothing_is_made_of_half_a_stream():
    """PER-4"""
    assert [event.type for event in closed(cut(IN_STEP, delta(1, 1, "half")))] == ["step/end", "turn/end"]


def test_claimed_input_returns_to_the_front():
    """INB-13"""
    events = cut(
        insert(A, B),
        insert(C, target="next-step"),
        TurnStart(turn=1),
        (claim(1, "next-step"), claim()),
        StepStart(turn=1, step=1),
    )
    added = closed(events)
    assert [event.type for event in added] == [
        "step/end",
        "agent/inbox/spliced",
        "agent/inbox/spliced",
        "turn/end",
    ]
    assert [event.data for event in added[1:3]] == [insert(C, target="next-step"), insert(A)]
    pending = fold_pending(events + added)
    assert (pending.next_turn, pending.next_step) == ((A, B), (C,))


def test_input_that_the_model_saw_does_not_return():
    """INB-13"""
    events = cut(insert(A, B), TurnStart(turn=1), claim(2), (StepStart(turn=1, step=1), A))
    pending = fold_pending(events + closed(events))
    assert pending.next_turn == (B,)


def test_a_half_written_move_is_completed():
    """INB-8, PER-5"""
    half = InboxSpliced(target="next-turn", start=0, removed_count=1, outcome="moved")
    events = cut(insert(A), insert(C, target="next-step"), half)
    [completed] = closed(events)
    assert completed.data == insert(A, target="next-step", start=1)
    inside = cut(
        insert(A, B),
        TurnStart(turn=1),
        claim(),
        InboxSpliced(target="next-turn", start=0, removed_count=1, outcome="moved"),
    )
    added = closed(inside)
    pending = fold_pending(inside + added)
    assert (pending.next_turn, pending.next_step) == ((A,), (B,))


def test_the_reason_may_be_another_one():
    """TRN-19"""
    _, pen, _ = opened()
    pen.append(*IN_STEP)
    assert pen.closers(Aborted(reason=BY_USER))[-1] == Draft(TurnEnd(turn=1, reason=Aborted(reason=BY_USER)))


def test_every_cut_of_a_turn_can_be_closed():
    """PROP-6"""
    session, pen, _ = opened()
    write_turn(pen, 1)
    write_turn(pen, 2)
    events = list(session.events)
    for length in range(1, len(events) + 1):
        closed(events[:length])


def test_a_packed_tail_is_dated_by_its_last_chunk():
    session, pen, _ = opened()
    pen.append(*IN_STEP)
    for text in "abcd":
        pen.append(delta(1, 1, text))
    events = list(session.events)
    packed = pack(events)
    assert len(packed) < len(events)
    assert repair(packed) == repair(events)
    assert repair(packed)[0].time == events[-1].time
