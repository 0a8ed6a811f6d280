"""Older shapes of events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_agents.errors import SessionCorruptError, TrioAgentsError
from trio_agents.session import AssistantMessage, Replace, ToolResult, TurnEnd, TurnStart, decode_event
from trio_agents.values import DISPOSED, Aborted, Failed, LlmFailure, ModelSource, TextBlock, UserMessage

TEXT = {"type": "text", "text": "x"}
APPEND: Any = {"surfaceOp": "append"}


def read(kind: str, data: object, seq: int = 4, **fields: Any) -> Any:
    """What a line says, however it is laid out: the closest layout is the one in which logs are written."""
    plain = {"type": kind, "seq": seq, "time": 1, "data": data, **fields}
    lines = json.dumps(plain).encode(), json.dumps(plain, separators=(",", ":")).encode()
    found: list[Any] = []
    for line in lines:
        try:
            found.append(decode_event(line, seq=seq, session_id="s", message_id_at={2: "old"}.get))
        except TrioAgentsError as exc:
            found.append(exc)
    spaced, close = found
    if isinstance(close, TrioAgentsError):
        assert (type(spaced), str(spaced)) == (type(close), str(close))
        raise close
    assert spaced == close
    return close


def test_turn_starts_had_a_trigger():
    assert read("turn/start", {"turn": 3, "trigger": {"kind": "message", "x": 1}}).data == TurnStart(turn=3)


@pytest.mark.parametrize(
    ("reason", "upgraded"),
    [
        ({"kind": "disposed"}, Aborted(reason=DISPOSED)),
        ({"kind": "error", "step": 1, "message": "m"}, Failed(error=LlmFailure(message="m", code="UNKNOWN"))),
        (
            {"kind": "error", "step": 1, "message": "m", "code": "C"},
            Failed(error=LlmFailure(message="m", code="C")),
        ),
        (
            {"kind": "error", "step": 1, "failure": {"message": "m", "code": "C", "status": 429}},
            Failed(error=LlmFailure(message="m", code="C", status=429)),
        ),
    ],
)
def test_turn_ends_had_other_reasons(reason, upgraded):
    assert read("turn/end", {"turn": 1, "reason": reason}).data == TurnEnd(turn=1, reason=upgraded)


def test_an_old_abort_has_a_cause_that_can_be_read_but_not_made():
    """CAN-8"""
    event = read("turn/end", {"turn": 1, "reason": {"kind": "aborted"}})
    assert event.data.reason.reason.kind == "legacy"


def test_steering_had_a_type_of_its_own():
    message = {"id": "m", "role": "user", "content": [TEXT], "source": {"kind": "user"}}
    event = read("steering/message", {"turn": 1, "message": message}, **APPEND)
    assert (event.type, event.data.id, event.data.text) == ("user/message", "m", "x")
    event = read("steering/message", {"turn": 1, "content": [TEXT], "source": {"kind": "user"}}, **APPEND)
    assert event.data.id == "legacy-message:s:4"


def test_messages_had_no_id():
    event = read("user/message", {"content": [TEXT], "source": {"kind": "user"}}, **APPEND)
    assert type(event.data) is UserMessage
    assert (event.data.id, event.data.content) == ("legacy-message:s:4", (TextBlock(text="x"),))


def test_answers_had_a_provenance():
    data = {"turn": 1, "step": 2, "content": [TEXT], "provenance": {"provider": "p", "model": "m"}}
    event = read("assistant/message", data, sourceEventSeqs=[], **APPEND)
    assert type(event.data) is AssistantMessage
    assert event.data.message.id == "legacy-message:s:4"
    assert event.data.message.source == ModelSource(provider="p", model="m")
    assert (event.data.turn, event.data.step) == (1, 2)


@pytest.mark.parametrize(
    ("op", "message_id"),
    [
        ("append", "legacy-message:s:4"),
        ({"op": "replace", "start": 2, "end": 2}, "old"),
        ({"op": "replace", "start": 1, "end": 1}, "legacy-message:s:4"),
    ],
    ids=["append", "replace", "replace of nothing known"],
)
def test_results_were_flat(op, message_id):
    data = {"turn": 1, "step": 1, "callId": "c", "content": [TEXT], "isError": True, "meta": {"a": 1}}
    event = read("tool/result", data, surfaceOp=op, sourceEventSeqs=[1])
    assert type(event.data) is ToolResult
    block: Any = event.data.message.content[0]
    assert (event.data.message.id, block.tool_call_id, block.is_error) == (message_id, "c", True)
    assert event.data.meta.value == {"a": 1}
    assert event.surface_op == op or type(event.surface_op) is Replace


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("turn/start", {"turn": 0, "trigger": {"kind": "x"}}),
        ("turn/start", {"turn": 1, "trigger": {}}),
        ("turn/start", {"turn": 1, "trigger": {"kind": "x"}, "more": 1}),
        ("turn/end", {"turn": 1, "reason": {"kind": "disposed", "x": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "message": "m"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {"message": "m"}}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "m", "x": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "aborted", "x": 1}}),
        ("steering/message", {"turn": 1}),
        ("user/message", {"content": [], "source": {"kind": "user"}, "role": "user"}),
        ("assistant/message", {"turn": 1, "step": 1, "content": []}),
        ("tool/result", {"turn": 1, "step": 1, "callId": "c", "content": []}),
    ],
)
def test_what_was_never_written_is_corrupt(kind, data):
    with pytest.raises(SessionCorruptError, match=kind.replace("steering", "(steering|user)")):
        read(kind, data, **(APPEND if kind.endswith(("message", "result")) else {}))
