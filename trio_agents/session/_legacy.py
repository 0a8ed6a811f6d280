"""Older shapes of events, given their present form while a log is read. The stored lines stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ..errors import SessionCorruptError
from ._shapes import is_nat, is_object, is_text

MessageIdAt: TypeAlias = Callable[[int], "str | None"]
"""The id of the message in the event with this number, which comes earlier in the same log."""

_FAILURE_KEYS: Final = frozenset(("message", "code", "status", "providerRetryAfterMs", "requestId"))
_RETIRED: Final = frozenset(("request/header-delta", "mode/set"))


def refuse_retired(event: dict[str, object]) -> None:
    """Refuse what no reader understands any more.

    Raises:
        SessionCorruptError: an event of a retired type, or a header with the retired reason.
    """
    kind = event.get("type")
    if kind in _RETIRED:
        raise SessionCorruptError(f"event {event.get('seq')} has the retired type {kind!r}")
    data = event.get("data")
    if kind == "request/header" and is_object(data) and data.get("reason") == "fallback":
        raise SessionCorruptError(f"event {event.get('seq')} has the retired header reason 'fallback'")


def upgrade(event: dict[str, object], *, session_id: str, message_id_at: MessageIdAt | None) -> bool:
    """Bring one parsed event into its present form, in place. Returns whether that changed anything.

    Args:
        event: a parsed line.
        session_id: goes into the ids that old messages get.
        message_id_at: looks up an earlier message's id, for replacements, or None if nothing is known of them.

    Raises:
        SessionCorruptError: it has an old shape, but not one that was ever written.
    """
    data = event.get("data")
    step = _STEPS.get(str(event.get("type")))
    if step is None or not is_object(data):
        return False
    return step(event, data, f"legacy-message:{session_id}:{event.get('seq')}", message_id_at)


def _bad(event: dict[str, object], problem: str) -> SessionCorruptError:
    return SessionCorruptError(f"event {event.get('seq')} ({event.get('type')}): {problem}")


_Json: TypeAlias = "dict[str, object]"


def _turn_start(event: _Json, data: _Json, new_id: str, ids: MessageIdAt | None) -> bool:
    if "trigger" not in data:
        return False
    turn, trigger = data.get("turn"), data["trigger"]
    good = data.keys() == {"turn", "trigger"} and is_nat(turn) and turn >= 1
    if not good or not is_object(trigger) or not is_text(trigger.get("kind")):
        raise _bad(event, "an old turn start has exactly a turn from 1 and a trigger with a kind")
    event["data"] = {"turn": turn}
    return True


def _turn_end(event: _Json, data: _Json, new_id: str, ids: MessageIdAt | None) -> bool:
    reason = data.get("reason")
    if not is_object(reason):
        return False
    kind = reason.get("kind")
    new: _Json
    if kind == "aborted" and reason.keys() == {"kind"}:
        new = {"kind": "aborted", "reason": {"kind": "legacy"}}
    elif kind == "disposed":
        if reason.keys() != {"kind"}:
            raise _bad(event, "an old end of kind 'disposed' has no other field")
        new = {"kind": "aborted", "reason": {"kind": "disposed"}}
    elif kind == "error" and "error" not in reason:
        new = {"kind": "error", "error": _old_failure(event, reason)}
    else:
        return False
    event["data"] = {**data, "reason": new}
    return True


def _old_failure(event: _Json, reason: _Json) -> _Json:
    rest = reason.keys() - {"kind", "step"}
    failure = reason.get("failure")
    if not is_nat(reason.get("step")):
        raise _bad(event, "an old error end names its step")
    if rest == {"failure"} and is_object(failure) and failure.keys() <= _FAILURE_KEYS:
        if is_text(failure.get("message")) and is_text(failure.get("code")):
            return failure
    elif rest in ({"message"}, {"message", "code"}) and is_text(reason["message"]):
        return {"message": reason["message"], "code": reason.get("code") or "UNKNOWN"}
    raise _bad(event, "an old error end has a message and perhaps a code, or a failure with both")


def _steering(event: _Json, data: _Json, new_id: str, ids: MessageIdAt | None) -> bool:
    if data.keys() == {"turn", "message"}:
        message = data["message"]
    elif data.keys() == {"turn", "content", "source"}:
        message = {"id": new_id, "role": "user", "content": data["content"], "source": data["source"]}
    else:
        raise _bad(event, "old steering has exactly turn and message, or turn, content and source")
    event["type"], event["data"] = "user/message", message
    return True


def _user(event: _Json, data: _Json, new_id: str, ids: MessageIdAt | None) -> bool:
    if data.keys() & {"id", "role", "message"} or not {"content", "source"} <= data.keys():
        return False
    event["data"] = {"id": new_id, "role": "user", **data}
    return True


def _assistant(event: _Json, data: _Json, new_id: str, ids: MessageIdAt | None) -> bool:
    provenance = data.get("provenance")
    if "message" in data or "content" not in data or not is_object(provenance):
        return False
    rest = {key: value for key, value in data.items() if key not in ("content", "provenance")}
    source = {**provenance, "kind": "model"}
    message = {"id": new_id, "role": "assistant", "content": data["content"], "source": source}
    event["data"] = {**rest, "message": message}
    return True


def _tool_result(event: _Json, data: _Json, new_id: str, ids: MessageIdAt | None) -> bool:
    if "message" in data or not {"callId", "content", "isError"} <= data.keys():
        return False
    op = event.get("surfaceOp")
    start = op.get("start") if is_object(op) else None
    if ids is not None and is_nat(start):
        new_id = ids(start) or new_id
    call_id = data["callId"]
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": data["content"],
        "isError": data["isError"],
    }
    source = {"kind": "tool", "callId": call_id}
    rest = {key: value for key, value in data.items() if key not in ("callId", "content", "isError")}
    event["data"] = {**rest, "message": {"id": new_id, "role": "user", "content": [block], "source": source}}
    return True


_STEPS: Final = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "steering/message": _steering,
    "user/message": _user,
    "assistant/message": _assistant,
    "tool/result": _tool_result,
}
