"""The recordings of another program that lie beside the project, if they do, and ways to spoil them."""

from __future__ import annotations

import copy
import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from trio_agents.cli._logs import read_log
from trio_agents.session import encode_event, encode_header

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "harness-logs"

needs_recordings = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the recordings are not beside this checkout (../shared/data/harness-logs)"
)

CORE = {
    "turn/start", "turn/end", "step/start", "step/end", "user/message", "assistant/message", "assistant/chunk",
    "tool/call", "tool/result", "agent/inbox/spliced", "request/header", "request/context",
}  # fmt: skip


@functools.cache
def expectations() -> list[dict[str, Any]]:
    """What is known of each recording; empty if they are not there."""
    path = FOLDER / "expected.json"
    return json.loads(path.read_text()) if path.exists() else []


def kind_of(expected: dict[str, Any]) -> str:
    """`broken`, `nothing` to replay, of an `older` writer, or `today`'s."""
    types = expected["types"]
    if expected["issues"]:
        return "broken"
    if "turn/start" not in types:
        return "nothing"
    return "today" if "agent/inbox/spliced" in types else "older"


def named(kind: str) -> list[str]:
    """The recordings of a kind."""
    return [expected["file"] for expected in expectations() if kind_of(expected) == kind]


Plain = tuple[dict[str, Any], list[dict[str, Any]]]


async def as_plain(path: Path) -> Plain:
    """A log's header and events as JSON values, chunks unpacked."""
    log = await read_log(path)
    return json.loads(encode_header(log.header)), [json.loads(encode_event(event)) for event in log.events]


def write_plain(path: Path, header: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """Write such a log, with its numbers, and what refers to them, as they have to be now."""
    numbers: dict[int, int] = {}
    for index, event in enumerate(events):
        numbers.setdefault(event["seq"], index)
    lines = [header]
    for index, given in enumerate(events):
        event = {**copy.deepcopy(given), "seq": index}
        if "sourceEventSeqs" in event:
            cited = [numbers[seq] for seq in event["sourceEventSeqs"] if seq in numbers]
            event["sourceEventSeqs"] = sorted(seq for seq in cited if seq < index)
        if isinstance(event.get("surfaceOp"), dict):
            for end in ("start", "end"):
                event["surfaceOp"][end] = numbers.get(event["surfaceOp"][end], 0)
        lines.append(event)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def spoilable(events: list[dict[str, Any]], start: int) -> list[int]:
    """The core events that a replay brings about itself.

    The rest is input to a replay, as what tools returned is: what listeners of the recorded program added to a
    step (also by way of the inbox), what its host delivered, cancelled or selected.
    """
    claimed = _claimed(events)
    found = []
    for index, event in enumerate(events):
        data = event["data"]
        match event["type"]:
            case "user/message":
                own = data["id"] in claimed
            case "agent/inbox/spliced":
                own = "removedCount" in data and "outcome" not in data
            case "request/header":
                own = data["reason"] != "change"
            case kind:
                own = kind in CORE
        if own and index >= start:
            found.append(index)
    return found


def _claimed(events: list[dict[str, Any]]) -> set[str]:
    """The ids of the messages that a turn took out of the inbox."""
    lists: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    claimed = set()
    for event in events:
        if event["type"] == "agent/inbox/spliced":
            data = event["data"]
            queue, first = lists[data["target"]], data["start"]
            removed = queue[first : first + data.get("removedCount", 0)]
            queue[first : first + len(removed)] = [message["id"] for message in data["inserted"]]
            if "outcome" not in data:
                claimed.update(removed)
    return claimed


def altered(event: dict[str, Any]) -> dict[str, Any] | None:
    """The event with one fact changed, or None for a type of which nothing is told twice."""
    event = copy.deepcopy(event)
    data = event["data"]
    match event["type"]:
        case "turn/start" | "assistant/chunk" | "assistant/message" | "tool/call" | "tool/result":
            data["turn"] += 1
        case "step/start" | "step/end":
            data["step"] += 1
        case "turn/end":
            data["reason"] = {"kind": "completed" if data["reason"]["kind"] == "max-tokens" else "max-tokens"}
        case "user/message":
            data["content"] = [{"type": "text", "text": "something else"}]
        case "request/context":
            data["model"] = "another"
        case "request/header":
            data["reason"] = "initial" if data["reason"] == "change" else "change"
        case _:
            return None
    return event


def spoil(
    rng: random.Random, events: list[dict[str, Any]], start: int
) -> tuple[str, int, list[dict[str, Any]]]:
    """Drop, swap or alter one core event: what was done, where, and what came of it."""
    core = spoilable(events, start)
    plain = [index for index in core if events[index]["type"] != "assistant/chunk"]
    while True:
        at = rng.choice(rng.choice([core, plain]))
        event = events[at]
        how = rng.choice(["drop", "swap", "alter"])
        # Of the pieces of a stream little is told twice where a secret was taken out of them.
        if (
            event["type"] == "assistant/chunk"
            and how != "alter"
            and event["data"]["chunk"]["type"] != "finish"
        ):
            continue
        if how == "drop":
            return f"drop {event['type']}", at, events[:at] + events[at + 1 :]
        if how == "alter" and (changed := altered(event)) is not None:
            return f"alter {event['type']}", at, [*events[:at], changed, *events[at + 1 :]]
        after = next((index for index in core if index > at), None)
        if how == "swap" and after is not None and _is_bound(event, events[after]):
            swapped = list(events)
            swapped[at], swapped[after] = swapped[after], swapped[at]
            return f"swap {event['type']} and {events[after]['type']}", at, swapped


def _is_bound(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the order of two neighbours is the program's, and no accident of when something came in."""
    kinds = (one["type"], other["type"])
    if "agent/inbox/spliced" in kinds or set(kinds) == {"tool/call", "tool/result"}:
        return False
    return kinds[0] != kinds[1]
