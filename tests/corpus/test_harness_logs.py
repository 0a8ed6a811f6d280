"""Recorded logs of the program whose format this is, and golden logs of our own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trio_agents.session import (
    Event,
    SessionHeader,
    decode_event,
    decode_header,
    encode_event,
    encode_header,
    open_log,
    repair,
    trace_issues,
)
from trio_agents.session._packing import ChunkRun, decode_record, pack

RECORDED = Path(__file__).parents[2].parent / "shared" / "data" / "harness-logs"
GOLDEN = Path(__file__).parent / "logs"

recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded logs are not here")


def expectations() -> list[Any]:
    if not RECORDED.is_dir():
        return []
    return [pytest.param(x, id=x["file"]) for x in json.loads((RECORDED / "expected.json").read_bytes())]


def load(path: Path) -> tuple[SessionHeader, list[Event | ChunkRun], list[bytes]]:
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b""
    header = decode_header(lines[0])
    records: list[Event | ChunkRun] = []
    seq = 0
    for line in lines[1:]:
        record = decode_record(line, seq=seq, session_id=header.id)
        records.append(record)
        seq += len(record) if isinstance(record, ChunkRun) else 1
    return header, records, lines


def unpacked(records: list[Event | ChunkRun]) -> list[Event]:
    return [e for r in records for e in (r.expand() if isinstance(r, ChunkRun) else [r])]


def is_old(line: bytes) -> bool:
    """Whether a line has a shape that is brought up to date when it is read."""
    event = json.loads(line)
    data = event["data"]
    return "trigger" in data or "provenance" in data or (
        event["type"] in ("user/message", "tool/result") and "id" not in data and "message" not in data
    )  # fmt: skip


@recorded
@pytest.mark.parametrize("expected", expectations())
def test_a_recorded_log_has_what_is_known_of_it(expected):
    """PER-1, LOG-16"""
    header, records, _ = load(RECORDED / expected["file"])
    events = unpacked(records)
    assert len(events) == expected["events"]
    assert Counter(event.type for event in events) == expected["types"]
    assert len(trace_issues(events)) == expected["issues"]
    session, pen = open_log(header, records, loaded=True)
    assert list(session.surface) == expected["surface"]
    messages = session.messages()
    assert [message.role for message in messages] == expected["roles"]
    assert len(messages) == expected["messages"]
    assert (session.open_turn is None) == (repair(records) == [])
    assert pen.closers() == [] or session.open_turn is not None


@recorded
@pytest.mark.parametrize("expected", expectations())
def test_a_recorded_log_survives_being_written_again(expected):
    """PER-1, PER-19"""
    header, records, lines = load(RECORDED / expected["file"])
    assert decode_header(encode_header(header)) == header
    events = unpacked(records)
    rewritten = [r.row if isinstance(r, ChunkRun) else encode_event(r) for r in pack(events)]
    again: list[Event] = []
    for line in rewritten:
        again += unpacked([decode_record(line, seq=len(again))])
    assert again == events
    for record, line in zip(records, lines[1:], strict=True):
        if isinstance(record, ChunkRun):
            assert record.row == line
            [row] = pack(record.expand()) if len(record) >= 3 else [record]
            assert isinstance(row, ChunkRun)
            assert json.loads(row.row) == json.loads(line)
        elif not is_old(line):
            assert json.loads(encode_event(record)) == json.loads(line)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_golden_log_loads_for_ever(path):
    """PER-1"""
    header, records, lines = load(path)
    assert encode_header(header) == lines[0]
    assert [r.row if isinstance(r, ChunkRun) else encode_event(r) for r in records] == lines[1:]
    events = unpacked(records)
    assert all(decode_event(encode_event(event)) == event for event in events)
    facts = json.loads(path.with_suffix(".json").read_bytes())
    session, pen = open_log(header, records)
    assert len(events) == facts["events"]
    assert list(session.surface) == facts["surface"]
    assert [(message.role, message.text) for message in session.messages()] == [
        tuple(pair) for pair in facts["messages"]
    ]
    assert [m.id for m in pen.pending.next_turn] == facts["next_turn"]
    assert [m.id for m in pen.pending.next_step] == facts["next_step"]
    assert [event.type for event in repair(records)] == facts["repair"]


def test_there_are_golden_logs():
    assert len(list(GOLDEN.glob("*.jsonl"))) >= 4
