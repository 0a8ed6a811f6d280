"""What every reader of the format checks on a parsed event, before it is given a type.

Each function takes parsed JSON (after older shapes were upgraded) and returns None, or one sentence saying what
was found and what would be right. They are as lenient as the format is: most payloads are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeGuard

from ..values._json import MAX_SAFE_INTEGER
from ._events import SURFACE_TYPES

ENVELOPE_KEYS: Final = frozenset(
    ("type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"),
)
_BARE_ENDS: Final = frozenset(("completed", "blocked", "max-tokens", "interrupted"))
_DEFAULTED: Final = frozenset(("reasoningEffort", "maxTokens"))


def is_nat(value: object) -> TypeGuard[int]:
    """Whether it is an integer from 0 to 2^53-1 (True is none)."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def is_safe(value: object) -> TypeGuard[int]:
    """Whether it is an integer that every reader of JSON holds exactly."""
    return type(value) is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether it is a JSON object."""
    return type(value) is dict


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a string that is not empty."""
    return type(value) is str and value != ""


def make_integral(value: dict[str, object]) -> bool:
    """Turn every number in a parsed object that is whole and safe into an int, in place: `1.0` is the number 1.

    Returns:
        False if a number in it is too large for a float, such as `1e999`: then it is no good.
    """
    # An explicit stack: what was nested as deep as an append allows must be readable from any depth of calls.
    stack: list[dict[str, object] | list[object]] = [value]
    while stack:
        node = stack.pop()
        entries = node.items() if isinstance(node, dict) else enumerate(node)
        for key, item in list(entries):
            if type(item) is float:
                if not math.isfinite(item):
                    return False
                if item.is_integer() and abs(item) <= MAX_SAFE_INTEGER:
                    node[key] = int(item)  # type: ignore[index, call-overload]
            elif isinstance(item, (dict, list)):
                stack.append(item)
    return True


# --- envelope -------------------------------------------------------------------------------------


def envelope_fault(event: Mapping[str, object]) -> str | None:
    """What is wrong with the fields around the payload."""
    for key in event:
        if key not in ENVELOPE_KEYS:
            return f"unknown field {key!r} beside the payload"
    if not is_nat(event.get("seq")):
        return f"`seq` is an integer from 0, not {event.get('seq')!r}"
    if not is_safe(event.get("time")):
        return f"`time` is an integer, not {event.get('time')!r}"
    if "data" not in event:
        return "there is no `data`"
    if "ignorable" in event and event["ignorable"] is not True:
        return f"`ignorable` is true or absent, not {event['ignorable']!r}"
    return _surface_fault(event)


def _surface_fault(event: Mapping[str, object]) -> str | None:
    kind = event["type"]
    if kind not in SURFACE_TYPES:
        for key in ("surfaceOp", "sourceEventSeqs"):
            if key in event:
                return f"`{key}` belongs to messages only"
        return None
    op = event.get("surfaceOp")
    if op != "append" and not _is_replace(op):
        return f'`surfaceOp` is "append" or a replacement with start and end, not {op!r}'
    if "sourceEventSeqs" not in event:
        return None
    seqs = event["sourceEventSeqs"]
    if type(seqs) is not list or not all(map(is_nat, seqs)):
        return "`sourceEventSeqs` is a list of event numbers"
    seq = event["seq"]
    return sources_fault(seqs, seq if is_nat(seq) else 0, may_be_empty=kind == "assistant/message")


def _is_replace(op: object) -> bool:
    return (
        is_object(op)
        and op.keys() == {"op", "start", "end"}
        and op["op"] == "replace"
        and is_nat(op["start"])
        and is_nat(op["end"])
    )


def sources_fault(seqs: list[int] | tuple[int, ...] | range, seq: int, *, may_be_empty: bool) -> str | None:
    """What is wrong with the sources of the event numbered `seq`."""
    if not seqs:
        return None if may_be_empty else "only an assistant message may cite an empty stream"
    if type(seqs) is range and seqs.step == 1:
        first, last, distinct = seqs[0], seqs[-1], True
    elif len(seqs) <= 2 and seqs[0] <= seqs[-1]:  # nearly always so, and every message is looked at
        first, last = seqs[0], seqs[-1]
        distinct = first != last or len(seqs) == 1
    else:
        first, last, distinct = min(seqs), max(seqs), len(set(seqs)) == len(seqs)
    if not distinct:
        return "an event is cited twice"
    if first < 0 or last >= seq:
        return f"event {seq} can only cite earlier events, not {last if last >= seq else first}"
    return None


# --- messages -------------------------------------------------------------------------------------


def message_fault(kind: str, data: object) -> str | None:
    """What is wrong with the message of a `user/message`, `assistant/message` or `tool/result`."""
    if not is_object(data):
        return "the payload is no object"
    message = data if kind == "user/message" else data.get("message")
    if not is_object(message):
        return "there is no message"
    if not is_text(message.get("id")):
        return f"a message has an id, not {message.get('id')!r}"
    role = "assistant" if kind == "assistant/message" else "user"
    if message.get("role") != role:
        return f"the role is {role!r}, not {message.get('role')!r}"
    source, content = message.get("source"), message.get("content")
    if not is_object(source) or not is_text(source.get("kind")):
        return "the source has no kind"
    if type(content) is not list:
        return "the content is a list of blocks"
    if kind == "assistant/message":
        return _model_fault(source)
    return None if kind == "user/message" else _result_fault(source, content)


def _model_fault(source: Mapping[str, object]) -> str | None:
    if source["kind"] != "model" or not is_text(source.get("provider")) or not is_text(source.get("model")):
        return "an assistant's source is a model, with provider and model"
    return None


def _result_fault(source: Mapping[str, object], content: list[object]) -> str | None:
    call_id = source.get("callId")
    if source["kind"] != "tool" or not is_text(call_id):
        return "a result's source is a tool, with the call's id"
    block = content[0] if len(content) == 1 else None
    if not is_object(block) or block.get("type") != "tool-result" or type(block.get("content")) is not list:
        return "a result holds exactly one tool-result block, with a list as content"
    if block.get("toolCallId") != call_id:
        return f"the result answers {block.get('toolCallId')!r} but comes from call {call_id!r}"
    return None


# --- other payloads -------------------------------------------------------------------------------


def turn_end_fault(data: object) -> str | None:
    """What is wrong with the payload of a `turn/end`."""
    if not is_object(data) or data.keys() != {"turn", "reason"}:
        return "the payload is exactly turn and reason"
    turn, reason = data["turn"], data["reason"]
    if type(turn) is not int or turn < 1:
        return f"turn numbers count from 1, not {turn!r}"
    if not is_object(reason) or type(reason.get("kind")) is not str:
        return "the reason has no kind"
    kind = reason["kind"]
    if kind in _BARE_ENDS and len(reason) != 1:
        return f"an end of kind {kind!r} has no other field"
    if kind == "aborted" and "reason" not in reason:
        return "an aborted turn has a cause"
    if kind == "error" and "error" not in reason:
        return "a failed turn has an error"
    return None


def header_fault(data: object) -> str | None:
    """What is wrong with the payload of a `request/header`."""
    header = data.get("header") if is_object(data) else None
    config = header.get("config") if is_object(header) else None
    if not is_object(data) or not is_object(header) or not is_object(config):
        return "there is no header with a config"
    if not is_text(config.get("provider")) or not is_text(config.get("model")):
        return "the config names provider and model"
    if "reasoningEffort" in config and not is_text(config["reasoningEffort"]):
        return "a reasoning effort is a string that is not empty"
    return _defaults_fault(header, config)


def _defaults_fault(header: Mapping[str, object], config: Mapping[str, object]) -> str | None:
    if "adapterDefaults" not in header:
        return None
    defaults = header["adapterDefaults"]
    if not is_object(defaults):
        return "adapterDefaults is an object"
    for key, value in defaults.items():
        if key not in _DEFAULTED or value is not True or key not in config:
            return f"adapterDefaults marks settings of the config, not {key!r}: {value!r}"
    return None


PAYLOAD_FAULTS: Final[Mapping[str, Callable[[object], str | None]]] = {
    "user/message": lambda data: message_fault("user/message", data),
    "assistant/message": lambda data: message_fault("assistant/message", data),
    "tool/result": lambda data: message_fault("tool/result", data),
    "turn/end": turn_end_fault,
    "request/header": header_fault,
}
"""Wire type to the check of its payload, for the few types whose payload every reader checks."""
