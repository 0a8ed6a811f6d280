"""The bracket rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.samples import answer, asks, called, delta, insert, result, started, user
from trio_agents.errors import UsageError
from trio_agents.session import (
    Event,
    LlmRetryStarted,
    Replace,
    StepEnd,
    StepStart,
    ToolFailure,
    TurnEnd,
    TurnStart,
    trace_issues,
)
from trio_agents.session._grammar import START, Brackets, OpenCall, after_all
from trio_agents.session._packing import pack
from trio_agents.values import COMPLETED


def log(*datas: Any) -> list[Event]:
    events = []
    for seq, data in enumerate(datas):
        fields: dict[str, Any] = {}
        if isinstance(data, tuple):
            data, fields = data  # noqa: PLW2901
        if data.wire_type in ("user/message", "assistant/message", "tool/result"):
            fields.setdefault("surface_op", "append")
        events.append(Event(type=data.wire_type, seq=seq, time=1, data=data, **fields))
    return events


def start(turn: int = 1) -> TurnStart:
    return TurnStart(turn=turn)


def end(turn: int = 1) -> TurnEnd:
    return TurnEnd(turn=turn, reason=COMPLETED)


def enter(step: int = 1, turn: int = 1) -> StepStart:
    return StepStart(turn=turn, step=step)


def leave(step: int = 1, turn: int = 1) -> StepEnd:
    return StepEnd(turn=turn, step=step)


NOT_STARTED = ToolFailure(name="N", code="TOOL_NOT_STARTED")
ABORTED = ToolFailure(name="N", code="ABORTED")

SOUND = {
    "nothing": (),
    "no step": (start(), end(), start(2), end(2)),
    "steps": (start(), enter(), leave(), enter(2), leave(2), end()),
    "steps restart": (start(), enter(), leave(), end(), start(2), enter(1, 2), leave(1, 2), end(2)),
    "anywhere": (insert(user()), user(), start(), user(), insert(user()), enter(), user(), insert(user())),
    "stream": (start(), enter(), delta(1, 1, "x"), answer(1, 1), LlmRetryStarted(retry_id="r", turn=1, step=1, retry=1)),
    "calls": (start(), enter(), answer(1, 1, *asks("c", "d")), called(1, 1, "d"), called(1, 1, "c"), result(1, 1, "c"), result(1, 1, "d"), leave(), end()),
    "tracked": (start(), enter(), called(1, 1, "c", tracked=True), started(1, 1, "c"), result(1, 1, "c"), leave(), end()),
    "same id twice": (start(), enter(), answer(1, 1, *asks("c", "c")), called(1, 1, "c"), called(1, 1, "c"), result(1, 1, "c"), result(1, 1, "c"), leave(), end()),
    "never started": (start(), enter(), answer(1, 1, *asks("c")), result(1, 1, "c", error=NOT_STARTED), leave(), end()),
    "never run": (start(), enter(), answer(1, 1, *asks("c")), leave(), end()),
    "replaced later": (start(), enter(), called(1, 1, "c"), result(1, 1, "c"), leave(), end(), (result(1, 1, "c"), {"surface_op": Replace(start=3, end=3), "source_event_seqs": (3,)})),
}  # fmt: skip

UNSOUND = {
    "end before start": (end(),),
    "nested turns": (start(), start(2)),
    "turn 0 skipped": (start(2),),
    "turn repeated": (start(), end(), start()),
    "wrong end": (start(), end(2)),
    "turn ends in a step": (start(), enter(), end()),
    "step outside": (enter(),),
    "step of another turn": (start(), enter(1, 2)),
    "step skipped": (start(), enter(2)),
    "step repeated": (start(), enter(), leave(), enter()),
    "nested steps": (start(), enter(), enter(2)),
    "wrong step end": (start(), enter(), leave(2)),
    "chunk outside": (start(), delta(1, 1, "x")),
    "chunk of another step": (start(), enter(), delta(1, 2, "x")),
    "chunk of another turn": (start(), enter(), delta(2, 1, "x")),
    "answer outside": (start(), answer(1, 1)),
    "call outside": (called(1, 1, "c"),),
    "result outside": (result(1, 1, "c"),),
    "result without a call": (start(), enter(), answer(1, 1, *asks("c")), result(1, 1, "c", error=ABORTED)),
    "two results": (start(), enter(), called(1, 1, "c"), result(1, 1, "c"), result(1, 1, "c")),
    "result in the next step": (start(), enter(), answer(1, 1, *asks("c")), leave(), enter(2), result(1, 2, "c")),
    "step ends without a result": (start(), enter(), called(1, 1, "c"), leave()),
    "started without a call": (start(), enter(), started(1, 1, "c")),
    "started twice": (start(), enter(), called(1, 1, "c"), started(1, 1, "c"), started(1, 1, "c")),
    "started outside": (started(1, 1, "c"),),
    "retry outside": (LlmRetryStarted(retry_id="r", turn=1, step=1, retry=1),),
}  # fmt: skip


@pytest.mark.parametrize("datas", SOUND.values(), ids=SOUND.keys())
def test_sound_logs_have_no_issues(datas):
    """LOG-16"""
    assert trace_issues(log(*datas)) == []


@pytest.mark.parametrize("datas", UNSOUND.values(), ids=UNSOUND.keys())
def test_each_broken_rule_is_one_issue(datas):
    """LOG-16"""
    events = log(*datas)
    [issue] = trace_issues(events)
    assert issue.startswith(f"event {events[-1].seq} ({events[-1].type}): ")
    brackets = Brackets()
    for event in events[:-1]:
        brackets.check(event)
        brackets.advance(event)
    state = brackets.state
    with pytest.raises(UsageError, match=f"{events[-1].type} refused"):
        brackets.check(events[-1])
    assert brackets.state is state


def test_the_state_says_what_is_open():
    brackets = Brackets()
    for event in log(
        start(), enter(), leave(), enter(2), answer(1, 2, *asks("c", "d")), called(1, 2, "d", tracked=True)
    ):
        brackets.advance(event)
    assert (brackets.last_turn, brackets.open_turn, brackets.open_step) == (1, 1, 2)
    assert brackets.open_calls == (OpenCall(call_id="c"), OpenCall(call_id="d", seq=5, tracked=True))


def test_results_go_to_the_call_that_they_cite():
    """TOOL-7"""
    events = log(
        start(),
        enter(),
        called(1, 1, "c"),
        called(1, 1, "c"),
        (result(1, 1, "c"), {"source_event_seqs": (3,)}),
    )
    assert after_all(START, events).calls == (OpenCall(call_id="c", seq=2),)


def test_a_broken_log_is_followed_all_the_same():
    events = log(
        enter(),
        end(),
        start(7),
        leave(3, 7),
        enter(4, 7),
        answer(9, 9),
        started(7, 4, "x"),
        result(7, 4, "x"),
    )
    state = after_all(START, events)
    assert (state.last_turn, state.turn, state.step) == (7, 7, 4)
    outside = log(
        answer(1, 1, *asks("c")), called(1, 1, "c"), (answer(1, 1), {"surface_op": Replace(start=0, end=0)})
    )
    assert after_all(START, outside) == START


def test_packed_runs_change_nothing():
    events = log(start(), enter(), *(delta(1, 1, "x") for _ in range(5)))
    assert after_all(START, pack(events)) == after_all(START, events)
