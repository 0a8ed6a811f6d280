"""Logs that are not as they should be: each is refused with its own error, or mended as stated."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import pytest

from tests.unit.storage.logs import (
    Script,
    header,
    load_events,
    log_of,
    names_beside,
    stored,
    unpacked,
    write,
)
from trio_agents.errors import (
    SessionCorruptError,
    SessionIdentityError,
    SessionLogError,
    SessionNotFoundError,
    SessionUnsupportedError,
    StorageError,
)
from trio_agents.session import Event
from trio_agents.storage import JsonlStore
from trio_agents.storage._zstd import MAGIC
from trio_agents.testing import FaultyFiles


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    return JsonlStore(tmp_path / "root", durability="written", packing=False)


@pytest.fixture
async def events(store: JsonlStore) -> list[Event]:
    script = Script()
    events = script.whole_turn(chunks=2) + script.whole_turn(chunks=2)
    await stored(store, events)
    return events


async def refused(
    store: JsonlStore, kind: type[SessionLogError], match: str | None = None
) -> SessionLogError:
    """The error with which a session is refused, by everything that loads it; no byte changes."""
    path = log_of(store)
    before, names = path.read_bytes(), [name for name in names_beside(path) if name != "lock"]
    with pytest.raises(kind, match=match) as caught:
        await store.open("s1")
    assert type(caught.value) is kind
    assert str(path) in str(caught.value)
    with pytest.raises(kind, match=match):
        await store.inspect("s1")
    assert path.read_bytes() == before
    assert [name for name in names_beside(path) if name != "lock"] == names
    # Nobody holds the lock of a session that was refused.
    with pytest.raises(kind, match=match):
        await store.open("s1")
    return caught.value


# --- torn tails ------------------------------------------------------------------------------------

TAILS = {
    "half a record": b'{"type":"turn/start","seq":14,"ti',
    "a whole record without its end": b'{"type":"turn/start","seq":14,"time":1,"data":{"turn":3}}',
    "zeros": b"\0" * 512,
    "zeros and an end": b"\0" * 100 + b"\n",
    "an empty line": b"\n",
    "several bad lines": b"{]\n\n\0\0\nnot json\n",
    "an array": b"[1]\n",
    "a duplicate number at the very end": b'{"type":"turn/start","seq":13,"time":1,"data":{"turn":3}}\n',
    "a gap at the very end": b'{"type":"turn/start","seq":15,"time":1,"data":{"turn":3}}\n',
    "a malformed row": b'{"type":"text-chunks","seq0":14,"time0":1,"data":{}}\n',
    "bytes that are no text": b"\xff\xfe\xfd",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
async def test_a_torn_tail_is_kept_aside_and_cut(store: JsonlStore, events: list[Event], tail: bytes) -> None:
    """PER-3, PER-7, L1: what is behind the last whole record is no part of the log."""
    path = log_of(store)
    good = path.read_bytes()
    path.write_bytes(good + tail)
    shown = await store.inspect("s1")
    assert (list(shown.events), shown.torn) == (events, len(tail))
    verdict = await store.verify("s1")
    assert (verdict.problems, verdict.torn, verdict.events) == ((), len(tail), len(events))
    assert path.read_bytes() == good + tail

    opened = await store.open("s1")
    assert unpacked(opened.events) == events
    assert path.read_bytes() == good
    aside = path.with_name(f"torn-{len(good)}")
    assert aside.read_bytes() == tail
    more = Script(14).whole_turn()
    write(opened.writer, more)
    await opened.writer.aclose()
    assert path.read_bytes().startswith(good)
    assert await load_events(store) == events + more


async def test_repair_cuts_a_torn_tail_too(store: JsonlStore, events: list[Event]) -> None:
    """PER-7: no damage, so no incomplete log."""
    path = log_of(store)
    good = path.read_bytes()
    path.write_bytes(good + b"{")
    assert (await store.repair("s1")).torn == 1
    assert path.read_bytes() == good
    assert await load_events(store) == events


async def test_a_second_tail_at_the_same_place_keeps_the_first(
    store: JsonlStore, events: list[Event]
) -> None:
    """PER-7: what was cut is never overwritten."""
    path = log_of(store)
    good = path.read_bytes()
    for tail in (b"{one", b"{two"):
        path.write_bytes(good + tail)
        await load_events(store)
    assert path.with_name(f"torn-{len(good)}").read_bytes() == b"{one"
    assert path.with_name(f"torn-{len(good)}-2").read_bytes() == b"{two"


# --- damage ----------------------------------------------------------------------------------------


def swap(path: Path, line: int, new: bytes) -> int:
    """Put other bytes in the place of a line (the header is line 1); gives its offset."""
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = new
    path.write_bytes(b"\n".join(lines))
    return sum(len(other) + 1 for other in lines[: line - 1])


DAMAGE = {
    "half a record": b'{"type":"step/start","seq":1,"ti',
    "an empty line": b"",
    "zeros": b"\0" * 40,
    "null": b"null",
    "an array": b"[]",
    "two records in one line": b'{"type":"step/start","seq":1,"time":1,"data":{}}{"a":1}',
    "another number": b'{"type":"step/start","seq":2,"time":1,"data":{"turn":1,"step":1}}',
    "a repeated number": b'{"type":"step/start","seq":0,"time":1,"data":{"turn":1,"step":1}}',
    "NaN": b'{"type":"step/start","seq":1,"time":1,"data":{"turn":NaN,"step":1}}',
    "a row with a gap": b'{"type":"text-chunks","seq0":2,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["x"]}}',
}


@pytest.mark.parametrize("line", DAMAGE.values(), ids=DAMAGE.keys())
async def test_damage_before_a_whole_record_is_refused(
    store: JsonlStore, events: list[Event], line: bytes
) -> None:
    """PER-7: the error names byte offset, line and last good number; nothing is written."""
    offset = swap(log_of(store), 3, line)
    error = await refused(store, SessionCorruptError, "damaged")
    assert isinstance(error, SessionCorruptError)
    assert (error.offset, error.line, error.last_good_seq) == (offset, 3, 0)
    verdict = await store.verify("s1")
    assert verdict.events == 1
    assert f"line 3 at byte {offset}" in verdict.problems[0]


async def test_null_is_damage_also_at_the_end(store: JsonlStore, events: list[Event]) -> None:
    """PER-7: no interrupted write leaves a null behind."""
    with log_of(store).open("ab") as log:
        log.write(b"null\n")
    await refused(store, SessionCorruptError)


async def test_a_missing_line_is_damage(store: JsonlStore, events: list[Event]) -> None:
    """PER-7: a sequence gap with whole records behind it."""
    path = log_of(store)
    lines = path.read_bytes().split(b"\n")
    del lines[5]
    path.write_bytes(b"\n".join(lines))
    error = await refused(store, SessionCorruptError, "event 4 expected, found 5")
    assert isinstance(error, SessionCorruptError)
    assert error.last_good_seq == 3


WRONG = {
    "an unknown field": b'{"type":"step/start","seq":1,"time":1,"data":{"turn":1,"step":1},"more":1}',
    "ignorable is false": b'{"type":"todo/write","seq":1,"time":1,"data":{},"ignorable":false}',
    "a message without a marker": b'{"type":"user/message","seq":1,"time":1,"data":{"id":"x","role":"user","content":[],"source":{"kind":"user"}}}',
    "a message without an id": b'{"type":"user/message","seq":1,"time":1,"data":{"role":"user","content":[],"source":{"kind":"user"}},"surfaceOp":"append"}',
    "a marker on another type": b'{"type":"step/start","seq":1,"time":1,"data":{"turn":1,"step":1},"surfaceOp":"append"}',
    "retired vocabulary": b'{"type":"mode/set","seq":1,"time":1,"data":{}}',
}


@pytest.mark.parametrize("at_end", [False, True], ids=["in the middle", "at the end"])
@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG.keys())
async def test_a_whole_record_against_the_rules_is_no_torn_tail(
    store: JsonlStore, events: list[Event], line: bytes, *, at_end: bool
) -> None:
    """PER-7: a complete record was once committed, so it is never cut off."""
    if at_end:
        path = log_of(store)
        path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:2]) + b"\n" + line + b"\n")
    else:
        swap(log_of(store), 3, line)
    error = await refused(store, SessionCorruptError)
    assert isinstance(error, SessionCorruptError)
    assert error.line == 3
    assert len((await store.verify("s1")).problems) == 1


async def test_unknown_required_events_are_unsupported(store: JsonlStore, events: list[Event]) -> None:
    """PER-17: intact, not corrupt; the type is named; nothing is written, not even a torn tail is cut."""
    path = log_of(store)
    swap(path, 3, b'{"type":"x/y","seq":1,"time":1,"data":{}}')
    path.write_bytes(path.read_bytes() + b"{torn")
    await refused(store, SessionUnsupportedError, "'x/y'")
    with pytest.raises(SessionUnsupportedError):
        await store.repair("s1")
    assert "x/y" in (await store.verify("s1")).problems[0]


async def test_unknown_ignorable_events_are_kept(store: JsonlStore, events: list[Event]) -> None:
    """PER-17: kept byte for byte."""
    line = b'{"type":"x/y","seq":14,"time":1,"data":{"a": [1,  2]},"ignorable":true}'
    path = log_of(store)
    path.write_bytes(path.read_bytes() + line + b"\n")
    loaded = await load_events(store)
    assert loaded[-1].type == "x/y"
    assert path.read_bytes().endswith(line + b"\n")


@pytest.mark.parametrize("version", [1, 2, -1, 0.5])
async def test_other_versions_are_told_before_anything_else(
    store: JsonlStore, events: list[Event], version: float
) -> None:
    """PER-17: even if nothing else about the header is right."""
    swap(log_of(store), 1, json.dumps({"version": version, "shape": "unheard of"}).encode())
    await refused(store, SessionUnsupportedError, f"version, {version}")
    assert "version" in (await store.verify("s1")).problems[0]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"type":"session","version":"0"}',
        b"\0" * 90,
        b'{"type":"turn/start","seq":0}',
    ],
)
async def test_a_log_without_a_header(store: JsonlStore, events: list[Event], line: bytes) -> None:
    """PER-7: there is nothing to go on, for repair either."""
    swap(log_of(store), 1, line)
    error = await refused(store, SessionCorruptError)
    assert isinstance(error, SessionCorruptError)
    assert (error.offset, error.line) == (0, 1)
    assert (await store.verify("s1")).events == 0
    with pytest.raises(SessionCorruptError):
        await store.repair("s1")


async def test_a_file_without_a_whole_line(store: JsonlStore, events: list[Event]) -> None:
    """PER-7."""
    path = log_of(store)
    path.write_bytes(path.read_bytes().split(b"\n")[0])
    await refused(store, SessionCorruptError, "no header")


# --- places ----------------------------------------------------------------------------------------


async def test_a_file_without_a_byte_was_never_written(store: JsonlStore, events: list[Event]) -> None:
    """PER-2, L12: nothing is stored, and the id is free."""
    path = log_of(store)
    path.write_bytes(b"")
    with pytest.raises(SessionNotFoundError):
        await store.open("s1")
    assert await store.list() == []
    await stored(store, events)
    assert await load_events(store) == events


async def test_a_header_only_file_is_an_empty_session(store: JsonlStore, events: list[Event]) -> None:
    """L12."""
    path = log_of(store)
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    assert await load_events(store) == []


async def test_swapped_headers(store: JsonlStore, events: list[Event]) -> None:
    """L12, PER-18: a header of another id is refused before any repair, and no byte changes."""
    await stored(store, Script().whole_turn(), "s2")
    first, second = log_of(store, "s1"), log_of(store, "s2")
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two.split(b"\n")[0] + b"\n" + one.partition(b"\n")[2] + b"{torn")
    await refused(store, SessionIdentityError, "says that it is session 's2'")
    assert [(entry.header.id, entry.problem is None) for entry in await store.list()] == [
        ("s1", False),
        ("s2", True),
    ]


async def test_a_header_of_another_directory(store: JsonlStore, events: list[Event]) -> None:
    """PER-18: the working directory decides where a log lies."""
    swap(
        log_of(store),
        1,
        b'{"type":"session","version":0,"id":"s1","createdAt":1,"cwd":"/x","delegationDepth":0}',
    )
    await refused(store, SessionIdentityError, "'/x'")


async def test_a_linked_project_directory_is_the_same_place(store: JsonlStore, events: list[Event]) -> None:
    """PER-18: names that lead to the same directory are one place."""
    swap(
        log_of(store),
        1,
        b'{"type":"session","version":0,"id":"s1","createdAt":1,"cwd":"/x","delegationDepth":0}',
    )
    project = log_of(store).parent.parent
    project.rename(project.with_name("--x--"))
    assert await load_events(store) == events
    project.with_name("--y--").symlink_to(project.with_name("--x--"))
    with pytest.raises(SessionIdentityError, match="stored 2 times"):
        await store.open("s1")


async def test_one_id_in_two_projects(store: JsonlStore, events: list[Event]) -> None:
    """L12: refused with both places; listing reports it and shows the others."""
    await stored(store, Script().whole_turn(), "s2")
    path = log_of(store)
    other = path.parent.parent.with_name("--x--") / "s1" / path.name
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    with pytest.raises(SessionIdentityError, match="stored 2 times") as caught:
        await store.open("s1")
    assert str(path) in str(caught.value)
    assert str(other) in str(caught.value)
    one, two = await store.list()
    assert "stored 2 times" in str(one.problem)
    assert two.problem is None


async def test_both_encodings_of_one_log(store: JsonlStore, events: list[Event]) -> None:
    """L12."""
    path = log_of(store)
    path.with_name("session.jsonl.zstd").write_bytes(b"x")
    with pytest.raises(SessionIdentityError, match="stored 2 times"):
        await store.open("s1")


async def test_a_log_beside_the_directories(store: JsonlStore, events: list[Event]) -> None:
    """A flat layout is an error, not overlooked."""
    path = log_of(store)
    path.parent.with_name("s9.jsonl").write_bytes(path.read_bytes())
    with pytest.raises(SessionIdentityError, match="directory of that name"):
        await store.open("s9")
    entries = await store.list()
    assert [(entry.header.id, entry.status) for entry in entries] == [("s1", "closed"), ("s9", "damaged")]


async def test_a_directory_where_the_log_belongs(store: JsonlStore, events: list[Event]) -> None:
    path = log_of(store)
    path.unlink()
    path.mkdir()
    for call in (store.open, store.inspect, store.delete):
        with pytest.raises(StorageError, match="a directory is in its place"):
            await call("s1")
    with pytest.raises(StorageError, match="a directory is in its place"):
        store.create(header())
    (entry,) = await store.list()
    assert (entry.status, entry.header.id) == ("damaged", "s1")


async def test_strange_names_are_no_sessions(store: JsonlStore, events: list[Event]) -> None:
    """Listing shows what a session could be, and nothing else."""
    root = Path(store.root)
    (root / "README").write_text("hello")
    (root / "other").mkdir()
    (root / "_no-cwd" / "a b").mkdir()
    (root / "_no-cwd" / "empty").mkdir()
    (root / "--file--").write_text("x")
    assert [entry.header.id for entry in await store.list()] == ["s1"]


async def test_no_root_yet(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "not" / "there")
    assert await store.list() == []
    with pytest.raises(SessionNotFoundError):
        await store.open("s1")
    assert not (tmp_path / "not").exists()
    await stored(store, Script().whole_turn())
    assert (tmp_path / "not" / "there").stat().st_mode & 0o777 == 0o700
    assert log_of(store).stat().st_mode & 0o777 == 0o600


# --- repair ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_repair_keeps_the_damaged_log_and_says_so(tmp_path: Path, compression: str | None) -> None:
    """Explicit repair: good prefix, damaged file beside it, the log says that it is incomplete."""
    store = JsonlStore(tmp_path, durability="written", packing=False, compression=compression)  # type: ignore[arg-type]
    script = Script()
    events = script.whole_turn()
    writer = store.create(header())
    write(writer, events)
    await writer.barrier()
    more = script.whole_turn()
    write(writer, more)
    await writer.barrier()
    last = script.whole_turn()
    write(writer, last)
    await writer.aclose()
    path = log_of(store)
    good = path.read_bytes()
    if compression is None:
        damaged = good.replace(b'"seq":12,', b'"seq":19,')
        keep = 12
    else:
        at = good.index(b"\x28\xb5\x2f\xfd", len(good) // 3)
        at = good.index(b"\x28\xb5\x2f\xfd", at) + 20
        damaged = good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
        keep = 10
    path.write_bytes(damaged)
    with pytest.raises(SessionCorruptError):
        await store.open("s1")
    verdict = await store.repair("s1")
    assert verdict.problems
    assert verdict.events == keep
    assert verdict.kept_aside is not None
    aside = path.with_name(path.name.replace("session", "damaged-1"))
    assert verdict.kept_aside == str(aside)
    assert aside.read_bytes() == damaged

    loaded = await load_events(store)
    assert loaded[:keep] == (events + more)[:keep]
    (marker,) = loaded[keep:]
    assert marker.type == "session/repaired"
    assert marker.ignorable is True
    assert marker.data.damaged_file == aside.name
    assert marker.data.problem
    assert marker.data.lost_bytes > 0
    assert (await store.verify("s1")).problems == ()
    again = await store.repair("s1")
    assert (again.problems, again.kept_aside) == ((), None)
    if compression is None:
        assert path.read_bytes().startswith(good.partition(b'{"type":"turn/start","seq":12')[0][:100])


async def test_a_log_that_does_not_fit_together_is_repaired_up_to_there(store: JsonlStore) -> None:
    """A replacement of a node that does not exist: every record is whole, the log is not."""
    events = Script().whole_turn(chunks=2)
    await stored(store, events)
    path = log_of(store)
    bad = (
        b'{"type":"user/message","seq":7,"time":1,"data":{"id":"x","role":"user","content":[],"source":'
        b'{"kind":"user"}},"surfaceOp":{"op":"replace","start":5,"end":5},"sourceEventSeqs":[5]}\n'
    )
    path.write_bytes(path.read_bytes() + bad + b'{"type":"turn/start","seq":8,"time":1,"data":{"turn":2}}\n')
    verdict = await store.verify("s1")
    assert verdict.events == 7
    assert "event 7" in verdict.problems[0]
    assert (await store.repair("s1")).kept_aside is not None
    assert (await load_events(store))[:7] == events
    assert (await store.verify("s1")).problems == ()


async def test_verify_lists_every_fault(store: JsonlStore, events: list[Event]) -> None:
    """All of them in order, numbers found again behind each."""
    path = log_of(store)
    swap(path, 3, b"{}")
    swap(path, 9, b"[")
    problems = (await store.verify("s1")).problems
    assert [problem.split(" at ")[0] for problem in problems] == ["line 3", "line 4", "line 9", "line 10"]


async def test_rules_of_order_are_issues_not_problems(store: JsonlStore) -> None:
    """LOG-16: such a log loads; verify says what is odd about it."""
    events = Script().whole_turn(chunks=2)
    await stored(
        store, [*events[:5], events[6].__class__(type="turn/end", seq=5, time=1, data=events[6].data)]
    )
    verdict = await store.verify("s1")
    assert verdict.problems == ()
    assert len(verdict.issues) == 1


async def test_repair_on_a_file_system_without_links(tmp_path: Path) -> None:
    """The damaged log is copied where it cannot get a second name; a second repair gets a second name."""
    faults = FaultyFiles()
    store = JsonlStore(tmp_path, packing=False, files=faults.files)
    await stored(store, Script().whole_turn())
    path = log_of(store)
    faults.fail("link", error=errno.EPERM, times=math.inf)
    for number in (1, 2):
        damaged = path.read_bytes().replace(b'"seq":%d,' % (8 - number), b'"seq":70,')
        path.write_bytes(damaged)
        verdict = await store.repair("s1")
        assert verdict.kept_aside == str(path.with_name(f"damaged-{number}.jsonl"))
        assert path.with_name(f"damaged-{number}.jsonl").read_bytes() == damaged
        faults.heal()
    assert (await store.verify("s1")).problems == ()


async def test_a_splice_that_does_not_fit(store: JsonlStore) -> None:
    """INB-17: every record is whole; verify finds the one that does not fit, and repair keeps what is before it."""
    events = Script().whole_turn(chunks=2)
    await stored(store, events)
    path = log_of(store)
    bad = b'{"type":"agent/inbox/spliced","seq":7,"time":1,"data":{"target":"next-turn","start":4,"inserted":[]}}\n'
    path.write_bytes(path.read_bytes() + bad + b'{"type":"turn/start","seq":8,"time":1,"data":{"turn":2}}\n')
    with pytest.raises(SessionCorruptError, match="seq 7"):
        await store.inspect("s1")
    verdict = await store.verify("s1")
    assert verdict.events == 7
    assert "session seq 7" in verdict.problems[0]
    assert (await store.repair("s1")).kept_aside is not None
    assert (await load_events(store))[:7] == events


async def test_verify_goes_on_behind_a_damaged_frame(tmp_path: Path) -> None:
    """Compressed logs too: what is behind a damaged frame is looked at."""
    store = JsonlStore(tmp_path, durability="written", compression="zstd")
    script = Script()
    writer = store.create(header())
    for _ in range(3):
        write(writer, script.whole_turn())
        await writer.barrier()
    await writer.aclose()
    path = log_of(store)
    whole = path.read_bytes()
    second = whole.index(MAGIC, whole.index(MAGIC, 4) + 4)
    path.write_bytes(whole[:second] + b"junk" + whole[second + 4 :])
    verdict = await store.verify("s1")
    assert verdict.events == 10
    assert any("are skipped" in problem for problem in verdict.problems)
    assert any("event 10 expected, found 20" in problem for problem in verdict.problems)
    assert (await store.repair("s1")).kept_aside is not None
    assert len(await load_events(store)) == 11
