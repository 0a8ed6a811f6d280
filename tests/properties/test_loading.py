"""A log is the same however it was read: at a stretch or line by line, made into events early, late or never."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from tests.properties.strategies import logs
from tests.unit.session.samples import MemoryWriter, header
from trio_agents.errors import SessionLogError
from trio_agents.session import (
    Draft,
    Event,
    Events,
    ForeignEvent,
    InboxSpliced,
    Session,
    decode_event,
    encode_event,
    fold_header,
    open_log,
    repair,
)
from trio_agents.session._grammar import START, after_all
from trio_agents.session._history import history_of
from trio_agents.session._pending import Pending, fold_pending
from trio_agents.session._surface import fold_surface
from trio_agents.session._wire import Line
from trio_agents.storage._lines import LogScan
from trio_agents.storage._views import status_of
from trio_agents.values import FrozenJson, UserMessage


def scanned(lines: list[bytes], *, at_a_stretch: bool = True) -> tuple[object, ...]:
    """Everything that a scan says of some lines, its refusal included."""
    scan = LogScan("s", 0, "path")
    stretches = [lines] if at_a_stretch else [[line] for line in lines]
    raised = None
    try:
        for stretch in stretches:
            scan.feed(b"".join(line + b"\n" for line in stretch))
    except SessionLogError as exc:
        raised = facts(exc)
    refusal = None if scan.refusal is None else facts(scan.refusal)
    return list(scan.events()), scan.good_end, scan.next_seq, scan.lines_seen, scan.fault, refusal, raised


def facts(exc: SessionLogError) -> tuple[object, ...]:
    places = [getattr(exc, name, None) for name in ("path", "offset", "line", "last_good_seq")]
    return type(exc), str(exc), *places


def loaded(events: list[Event]) -> Events:
    scan = LogScan("s", 0)
    scan.feed(b"".join(encode_event(event) + b"\n" for event in events))
    assert scan.fault is None
    assert scan.refusal is None
    return scan.events()


def lists(pending: Pending) -> tuple[object, ...]:
    return pending.next_turn, pending.next_step, pending.claimed, pending.moving, len(pending)


def views(session: Session, pending: Pending) -> tuple[object, ...]:
    return (
        session.surface,
        session.messages(),
        session.brackets,
        session.request_header(),
        session.request_context(),
        lists(pending),
        len(session.events),
    )


def opened(events: Any, seed_length: int) -> tuple[object, ...]:
    """The views of a resumed session, or why there is none."""
    try:
        session, pen = open_log(header(seed_length=seed_length), events, loaded=True)
    except SessionLogError as exc:
        return type(exc), str(exc), str(exc.__cause__)
    found = views(session, pen.pending)
    assert fold_header(session.events) == session.request_header()
    return found


@settings(max_examples=50)
@given(logs(), st.integers(0, 100))
def test_a_session_is_resumed_from_lines_as_from_events(events: list[Event], seed: int) -> None:
    """PER-1: also where inherited splices do not count, and where they leave others without a place."""
    seed_length = seed % (len(events) + 1)
    read = [decode_event(encode_event(event)) for event in events]
    whole = loaded(events)
    assert opened(whole, 0)[:3] == (
        fold_surface(read, read.__getitem__).nodes,
        fold_surface(read, read.__getitem__).messages(),
        after_all(START, read),
    )
    assert opened(whole, 0)[5] == lists(fold_pending(read))
    assert opened(whole, seed_length) == opened(read, seed_length)
    assert repair(whole) == repair(read)
    assert lists(fold_pending(history_of(whole).records)) == lists(fold_pending(read))
    assert status_of(whole, is_live=False) == status_of(read, is_live=False)
    assert list(whole) == read


@settings(max_examples=50)
@given(logs(), st.data())
def test_events_are_the_same_in_whatever_order_they_are_read(
    events: list[Event], data: st.DataObject
) -> None:
    """LOG-8"""
    assume(events)
    whole = loaded(events)
    read = [decode_event(encode_event(event)) for event in events]
    for seq in data.draw(st.lists(st.integers(0, len(events) - 1), max_size=8)):
        assert whole[seq] == read[seq]
        assert whole.open_turn(seq + 1) == Events.of(read).open_turn(seq + 1)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(read)), st.integers(0, len(read)))))
    assert list(whole[start:stop]) == read[start:stop]
    assert list(whole.prefix(stop)) == read[:stop]
    assert not any(isinstance(record, Line) for record in whole.prefix(stop).records)
    assert list(whole) == list(reversed(list(reversed(whole)))) == read


@settings(max_examples=50)
@given(logs())
def test_two_sessions_of_one_loaded_log_go_their_own_ways(events: list[Event]) -> None:
    """LOG-8"""
    whole = loaded(events)
    sessions = [open_log(header(), whole, writer=MemoryWriter(), loaded=True) for _ in range(2)]
    (one, pen), (other, _) = sessions
    for index in range(2):
        message = UserMessage.from_text(f"more {index}", id=f"more {index}")
        end = pen.pending.length("next-turn")
        pen.append(Draft(InboxSpliced(target="next-turn", start=end, inserted=(message,))))
    assert list(one.events)[: len(events)] == list(other.events) == list(whole)
    assert len(one.events) == len(events) + 2


FOREIGN = ForeignEvent("somebody/else", FrozenJson(b'{"a":[1.50,"b"]}'), ignorable=True)


def renumbered(line: bytes, seq: int) -> bytes:
    found: dict[str, msgspec.Raw] = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**found, "seq": seq})


DAMAGE = [
    b"",
    b"null",
    b"{",
    b'{"type":"turn/start"}',
    b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":0}}',
    b'{"type":"un/known","seq":%d,"time":1,"data":{}}',
    b'{"type":"un/known","seq":%d,"time":1,"data":{},"ignorable":true}',
    b'{"type":"turn/end","seq":%d,"time":1,"data":{"turn":1,"reason":{"kind":"aborted"}}}',
    b'{"type":"turn/end","seq":%d,"time":1,"data":{"turn":0,"reason":{"kind":"completed"}}}',
    b'{"type":"step/start","seq":%d,"time":1,"data":{"turn":1,"step":-1}}',
    b'{"type":"request/header","seq":%d,"time":1,"data":{"header":{"config":{"provider":"","model":"m"}},"reason":"change"}}',
    b'{"type":"request/header","seq":%d,"time":1,"data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"fallback"}}',
    b'{"data":{"turn":1},"time":1,"seq":%d,"type":"turn/start"}',
    b'{"type":"bench-of-nobody","seq":%d,"time":1.0,"data":{"x":-0},"ignorable":true}',
    b'{"type":"user/message","seq":%d,"time":1,"data":{"id":"u","role":"user","content":[{"type":"h"}],"source":{"kind":"s"}},"surfaceOp":"append"}',
]


@settings(max_examples=50)
@given(logs(), st.lists(st.tuples(st.integers(0, 200), st.sampled_from(DAMAGE)), max_size=3), st.booleans())
@example([], [(0, DAMAGE[1])], False)
def test_what_is_unusual_is_judged_the_same_at_a_stretch_and_line_by_line(
    events: list[Event], odd: list[tuple[int, bytes]], is_foreign: bool
) -> None:
    """PER-7: the same events, the same fault at the same byte, line and number, the same refusal."""
    lines = [encode_event(event) for event in events]
    if is_foreign:
        lines.insert(len(lines) // 2, encode_event(event_of_nobody()))
    for place, line in odd:
        lines.insert(place % (len(lines) + 1), line)
    numbered = []
    for seq, line in enumerate(lines):
        try:
            numbered.append(line % seq if line in DAMAGE and b"%d" in line else renumbered(line, seq))
        except ValueError:
            numbered.append(line)
    assert scanned(numbered) == scanned(numbered, at_a_stretch=False)


def event_of_nobody() -> Event:
    return Event(type=FOREIGN.wire_type, seq=0, time=1, data=FOREIGN, ignorable=True)


def test_one_unusual_line_leaves_its_neighbours_lines() -> None:
    lines = [b'{"type":"turn/start","seq":%d,"time":1,"data":{"turn":1}}' % seq for seq in range(100)]
    lines[50] = renumbered(encode_event(event_of_nobody()), 50)
    scan = LogScan("s", 0)
    scan.feed(b"".join(line + b"\n" for line in lines))
    kept = history_of(scan.events()).records
    assert [isinstance(record, Line) for record in kept] == [seq != 50 for seq in range(100)]


@pytest.mark.parametrize("count", [1, 5])
def test_chunks_of_a_loaded_step_are_packed_with_the_step(count: int) -> None:
    lines = [b'{"type":"step/start","seq":0,"time":1,"data":{"turn":1,"step":1}}']
    lines += [
        b'{"type":"assistant/chunk","seq":%d,"time":1,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,'
        b'"text":"%d"}}}' % (seq, seq)
        for seq in range(1, count + 1)
    ]
    scan = LogScan("s", 0)
    for line in lines:  # one by one, so that nothing is packed as it is read
        scan.feed(line + b"\n")
    whole = scan.events()
    history = history_of(whole)
    before = list(history.view())
    history.compact()
    assert list(history.view()) == before == list(whole)
    assert len(history.records) == (2 if count > 1 else 1 + count)
