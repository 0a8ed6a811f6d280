"""What both stores promise."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.unit.storage.logs import Script, header, load_events, serving, stored, unpacked, write, write_each
from trio_agents.errors import (
    MessageError,
    SessionBusyError,
    SessionClosedError,
    SessionExistsError,
    SessionNotFoundError,
    UsageError,
)
from trio_agents.session import open_log
from trio_agents.storage import (
    Files,
    JsonlStore,
    MemoryStore,
    SessionStore,
    export_session,
    fork_into,
    fork_session,
    prune,
)
from trio_agents.values import ImageBlock, UserMessage

MakeStore = Callable[[], SessionStore]


@pytest.fixture(params=["memory", "written", "synced", "zstd", "unpacked"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    match request.param:
        case "memory":
            return MemoryStore()
        case "synced":
            return JsonlStore(tmp_path / "root")
        case "zstd":
            return JsonlStore(tmp_path / "root", durability="written", compression="zstd")
        case "unpacked":
            return JsonlStore(tmp_path / "root", durability="written", packing=False, chunk_delay=0)
    return JsonlStore(tmp_path / "root", durability="written")


async def test_what_was_written_is_loaded(store: SessionStore) -> None:
    """PER-1: header and events come back the same, over several openings; PER-15: only new ones are added."""
    script = Script()
    first = header(cwd="/x/y", parent_session="p", seed_length=0, delegation_depth=2)
    async with serving(store):
        writer = store.create(first)
        events = script.whole_turn()
        write_each(writer, events)
        await writer.barrier()
        assert not writer.is_dirty
        await writer.aclose()

        opened = await store.open("s1")
        assert opened.header == first
        assert unpacked(opened.events) == events
        more = script.whole_turn("again", chunks=2)
        write(opened.writer, more)
        await opened.writer.aclose()
        assert await load_events(store) == events + more


async def test_nothing_is_stored_before_the_first_write(store: SessionStore) -> None:
    """PER-2, PUB-25: an abandoned id is reusable and unlisted."""
    for end in ("abandon", "aclose"):
        writer = store.create(header())
        assert await store.list() == []
        with pytest.raises(SessionNotFoundError):
            await store.open("s1")
        if end == "abandon":
            writer.abandon()
        else:
            await writer.aclose()
    assert await store.list() == []
    await stored(store, Script().whole_turn())
    assert [summary.header.id for summary in await store.list()] == ["s1"]


async def test_the_first_write_brings_header_and_seed(store: SessionStore) -> None:
    """PER-2: the seed comes with the first batch, even with an empty one."""
    seed = Script().whole_turn()
    writer = store.create(header(seed_length=len(seed)), seed)
    writer.write((), ())
    await writer.aclose()
    assert await load_events(store) == seed


async def test_one_writer(store: SessionStore) -> None:
    """PER-8: the second writer is refused, the first goes on."""
    script = Script()
    writer = store.create(header())
    with pytest.raises(SessionBusyError) as busy:
        store.create(header())
    assert busy.value.owner
    events = script.whole_turn()
    write(writer, events)
    with pytest.raises(SessionBusyError):
        await store.open("s1")
    with pytest.raises(SessionBusyError):
        await store.delete("s1")
    assert [summary.status for summary in await store.list()] == ["live"]
    more = script.whole_turn()
    write(writer, more)
    await writer.aclose()
    assert await load_events(store) == events + more


async def test_an_id_is_taken_once(store: SessionStore) -> None:
    """PER-16: a stored session is never overwritten or merged with another."""
    await stored(store, Script().whole_turn(), cwd="/one")
    for cwd in ("/one", "/two"):
        with pytest.raises(SessionExistsError, match="already stored"):
            store.create(header(cwd=cwd))
    with pytest.raises(SessionExistsError):
        store.check_free("s1")
    store.check_free("s2")
    assert len(await load_events(store)) == 10


async def test_an_empty_id_is_refused(store: SessionStore) -> None:
    """PER-18."""
    with pytest.raises(UsageError, match="non-empty"):
        store.create(header(""))


async def test_a_closed_writer_writes_nothing(store: SessionStore) -> None:
    """LOG-12: appends after the end are refused; closing twice is fine."""
    script = Script()
    writer = store.create(header())
    write(writer, script.whole_turn())
    await writer.aclose()
    await writer.aclose()
    writer.abandon()
    with pytest.raises(SessionClosedError):
        write(writer, script.whole_turn())
    with pytest.raises(SessionClosedError):
        await writer.barrier()
    assert len(await load_events(store)) == 10


async def test_waits_are_checkpoints(store: SessionStore) -> None:
    writer = store.create(header())
    write(writer, Script().whole_turn())
    for call in (writer.barrier, writer.aclose, writer.aclose):
        with trio.testing.assert_checkpoints():
            await call()
    with trio.testing.assert_checkpoints():
        opened = await store.open("s1")
    with trio.testing.assert_checkpoints():
        await opened.writer.aclose()
    for read in (store.inspect, store.verify, store.repair, store.delete):
        with trio.testing.assert_checkpoints():
            await read("s1")
    with trio.testing.assert_checkpoints():
        assert await store.list() == []


async def test_unknown_ids(store: SessionStore) -> None:
    """PUB-17: an unknown id is told apart from a failure."""
    for call in (store.open, store.inspect, store.delete, store.verify, store.repair):
        with pytest.raises(SessionNotFoundError, match="'nobody'"):
            await call("nobody")


async def test_delete(store: SessionStore) -> None:
    await stored(store, Script().whole_turn())
    await store.delete("s1")
    assert await store.list() == []
    with pytest.raises(SessionNotFoundError):
        await store.open("s1")
    await stored(store, Script().whole_turn())


async def test_inspect_closes_an_open_turn_in_memory_only(store: SessionStore) -> None:
    """PER-6: the repaired view is shown, nothing is written; a live session is shown as it is."""
    script = Script()
    events = script.open_turn() + script.call("c1")
    writer = store.create(header())
    write(writer, events)
    live = await store.inspect("s1")
    assert (live.status, live.stored, list(live.events)) == ("live", len(events), events)
    await writer.aclose()

    for _ in range(2):
        left = await store.inspect("s1")
        assert left.status == "interrupted"
        assert left.stored == len(events)
        assert [event.type for event in left.events][len(events) :] == ["tool/result", "step/end", "turn/end"]
        assert [event.seq for event in left.events] == list(range(len(left.events)))
    assert await load_events(store) == events


async def test_inspect_of_a_sound_log(store: SessionStore) -> None:
    """PER-5: a balanced log gets nothing added."""
    events = Script().whole_turn()
    await stored(store, events)
    found = await store.inspect("s1")
    assert (found.status, found.stored, list(found.events)) == ("closed", len(events), events)
    verdict = await store.verify("s1")
    assert (verdict.events, verdict.problems, verdict.issues, verdict.torn) == (len(events), (), (), 0)
    assert (await store.repair("s1")).problems == ()
    assert await load_events(store) == events


async def test_list_pages_and_filters(store: SessionStore) -> None:
    for name in ("b", "a", "d/e", "c"):
        script = Script()
        await stored(store, script.whole_turn() if name != "c" else script.open_turn(), name)
    everything = await store.list()
    assert [(one.header.id, one.status) for one in everything] == [
        ("a", "closed"), ("b", "closed"), ("c", "interrupted"), ("d/e", "closed"),
    ]  # fmt: skip
    assert all(one.problem is None and one.updated_at > 0 for one in everything)
    first = await store.list(limit=2)
    assert [one.header.id for one in first] == ["a", "b"]
    rest = await store.list(limit=2, after=first[-1].header.id)
    assert [one.header.id for one in rest] == ["c", "d/e"]
    assert await store.list(after="d/e") == []
    assert await store.list(limit=0) == []
    closed = await store.list(limit=3, matching=lambda one: one.status == "closed")
    assert [one.header.id for one in closed] == ["a", "b", "d/e"]


async def test_different_ids_do_not_wait_for_each_other(store: SessionStore) -> None:
    """PER-14: many sessions at once, each with its own events."""
    scripts = {f"s{i}": Script() for i in range(30)}
    expected: dict[str, list[object]] = {}

    async def run(name: str, script: Script) -> None:
        writer = store.create(header(name))
        expected[name] = []
        for _ in range(3):
            events = script.whole_turn(name)
            expected[name] += events
            for event in events:
                write(writer, [event])
                if event.type != "assistant/chunk":
                    await writer.barrier()
        await writer.aclose()

    async with serving(store):
        async with trio.open_nursery() as nursery:
            for name, script in scripts.items():
                nursery.start_soon(run, name, script)
        for name, events in expected.items():
            assert await load_events(store, name) == events


# --- forks -----------------------------------------------------------------------------------------


async def test_a_live_session_is_forked(store: SessionStore) -> None:
    """LOG-13: the fork is stored with its header, the source goes on."""
    writer = store.create(header(cwd="/x"))
    session, pen = open_log(header(cwd="/x"), writer=writer, fork_into=fork_into(store))
    for event in Script().whole_turn():
        pen.append(event.data)
    child = await session.fork(id="child")
    assert child == "child"
    opened = await store.open("child")
    await opened.writer.aclose()
    assert opened.header.parent_session == "s1"
    assert opened.header.seed_length == 10
    assert opened.header.cwd == "/x"
    assert unpacked(opened.events) == list(session.events)
    with pytest.raises(SessionExistsError):
        await session.fork(id="child")
    with pytest.raises(SessionExistsError):
        await session.fork(99, id="child")  # LOG-14: the taken id is told first
    await writer.aclose()


async def test_a_stored_session_is_forked_at_a_closed_boundary(store: SessionStore) -> None:
    """LOG-14: a closed boundary works while the source has an open tail; anything else creates nothing."""
    script = Script()
    events = script.whole_turn() + script.open_turn()
    await stored(store, events)
    with pytest.raises(UsageError, match="turn 2 is open"):
        await fork_session(store, "s1", id="f")
    for boundary in (-1, 13, 4, True, 2.0, "1"):
        with pytest.raises(UsageError):
            await fork_session(store, "s1", boundary, id="f")  # type: ignore[arg-type]
    with pytest.raises(SessionNotFoundError):
        await fork_session(store, "unknown", id="f")
    with pytest.raises(SessionExistsError):
        await fork_session(store, "s1", 999, id="s1")
    assert [one.header.id for one in await store.list()] == ["s1"]
    assert await fork_session(store, "s1", 9, id="f") == "f"
    assert await load_events(store, "f") == events[:10]
    assert await load_events(store) == events


async def test_a_cancelled_fork_leaves_nothing(store: SessionStore) -> None:
    """LOG-14, PER-14: there is a whole fork, or none."""
    await stored(store, Script().whole_turn())
    with trio.CancelScope() as scope:
        scope.cancel()
        await fork_session(store, "s1", id="f")
    assert scope.cancelled_caught
    assert [one.header.id for one in await store.list()] == ["s1"]


# --- retention and export --------------------------------------------------------------------------


async def test_prune(store: SessionStore) -> None:
    for name in ("a", "b", "c", "live"):
        await stored(store, Script().whole_turn(), name)
    times = {one.header.id: one.updated_at for one in await store.list()}
    newest = max(times.values())
    writer = (await store.open("live")).writer
    assert await prune(store, older_than=60, now=lambda: newest + 59_000) == ()
    assert set(await prune(store, older_than=60, keep=10, now=lambda: newest + 61_000)) == set()
    assert set(await prune(store, older_than=60, matching=lambda one: one.header.id < "b", now=lambda: newest + 61_000)) == {"a"}  # fmt: skip
    assert set(await prune(store, keep=0)) == {"b", "c"}
    assert [one.header.id for one in await store.list()] == ["live"]
    await writer.aclose()


@pytest.mark.parametrize("options", [{}, {"older_than": -1}, {"keep": -1}])
async def test_prune_wants_a_rule(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        await prune(MemoryStore(), **options)  # type: ignore[arg-type]


async def test_export_gives_plain_lines(store: SessionStore, tmp_path: Path) -> None:
    """What is exported can be stored elsewhere and loads the same."""
    events = Script().whole_turn(chunks=7)
    await stored(store, events)
    for packed, lines in ((False, 13), (True, None)):
        parts: list[bytes] = []
        assert await export_session(store, "s1", parts.append, packed=packed) == len(events)
        data = b"".join(parts)
        if lines is not None:
            assert data.count(b"\n") == lines
        target = tmp_path / f"other-{packed}" / "_no-cwd" / "s1" / "session.jsonl"
        target.parent.mkdir(parents=True)
        target.write_bytes(data)
        assert await load_events(JsonlStore(tmp_path / f"other-{packed}")) == events


# --- attachments -----------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


async def test_attachments_are_kept_by_content(store: SessionStore) -> None:
    """INB-25: admitted before they are referred to, named by their hash."""
    writer = store.create(header())
    picture = await store.put_attachment("s1", png(3, 4), "image/png", "a.png")
    assert (picture.width, picture.height, picture.bytes, picture.name) == (3, 4, len(png(3, 4)), "a.png")
    again = await store.put_attachment("s1", png(3, 4), "image/png")
    assert again.attachment_id == picture.attachment_id
    text = await store.put_attachment("s1", b"words", "text/plain")
    assert (text.width, text.height, text.media_type) == (0, 0, "text/plain")
    assert await store.get_attachment("s1", picture.attachment_id) == png(3, 4)
    assert store.has_attachment("s1", text.attachment_id)
    unknown = "sha256:" + "0" * 64
    for bad in (unknown, "x", "sha256:../../../lock"):
        assert not store.has_attachment("s1", bad)
        with pytest.raises(MessageError):
            await store.get_attachment("s1", bad)
    with pytest.raises(SessionNotFoundError):
        await store.put_attachment("nobody", b"x", "text/plain")
    assert not store.has_attachment("nobody", text.attachment_id)
    write(writer, Script().whole_turn())
    with pytest.raises(SessionBusyError):
        await store.collect_attachments("s1")
    await writer.aclose()


async def test_an_abandoned_session_takes_its_attachments_along(store: SessionStore) -> None:
    """PUB-25."""
    writer = store.create(header())
    kept = await store.put_attachment("s1", b"words", "text/plain")
    writer.abandon()
    assert not store.has_attachment("s1", kept.attachment_id)
    store.create(header()).abandon()


async def test_forks_share_attachments_and_each_may_go(store: SessionStore) -> None:
    """Attachments live as long as some log refers to them."""
    writer = store.create(header())
    picture = await store.put_attachment("s1", png(1, 1), "image/png")
    loose = await store.put_attachment("s1", b"never referred to", "text/plain")
    script = Script()
    message = UserMessage.from_text(ImageBlock(attachment=picture))
    events = [*script.open_turn(), script.event(message, surface_op="append"), *script.close_turn()]
    write(writer, events)
    await writer.aclose()
    assert await store.collect_attachments("s1") == [loose.attachment_id]
    assert not store.has_attachment("s1", loose.attachment_id)
    await fork_session(store, "s1", id="f")
    await store.delete("s1")
    assert await store.get_attachment("f", picture.attachment_id) == png(1, 1)
    assert await store.collect_attachments("f") == []


# --- order -----------------------------------------------------------------------------------------


class SlowDirectory:
    """A file store's directory whose reads wait until they are let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.reads = 0

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        self.reads += 1
        self.gate.wait(20)
        return os.pread(fd, count, offset)


async def test_operations_on_one_id_come_one_after_the_other(tmp_path: Path) -> None:
    """PER-14: none interleave; other ids go on; a cancelled queued one never runs; a failed one blocks nobody."""
    disk = SlowDirectory()
    store = JsonlStore(tmp_path, durability="written", files=Files(pread=disk.pread))
    for name in ("s1", "s2"):
        await stored(store, Script().whole_turn(), name)
    seen: list[str] = []

    async def inspect(name: str) -> None:
        await store.inspect(name)
        seen.append(f"inspected {name}")

    async def delete(scope: trio.CancelScope) -> None:
        with scope:
            await store.delete("s1")
        seen.append("cancelled" if scope.cancelled_caught else "deleted")

    async def fail() -> None:
        with pytest.raises(SessionNotFoundError):
            await store.inspect("s1")
        seen.append("failed")

    never, later = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inspect, "s1")
        await trio.testing.wait_all_tasks_blocked(0.01)
        for fn, *args in ((delete, never), (inspect, "s1"), (delete, later), (fail,), (fail,)):
            nursery.start_soon(fn, *args)
            await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(inspect, "s2")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert disk.reads == 2  # the first one of each id
        assert seen == []
        never.cancel()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert seen == ["cancelled"]
        disk.gate.set()
    seen.remove("inspected s2")
    assert seen == ["cancelled", "inspected s1", "inspected s1", "deleted", "failed", "failed"]


async def test_a_deletion_that_has_begun_is_carried_out(tmp_path: Path) -> None:
    """PER-14: a started one completes, cancelled or not."""
    gate = threading.Event()

    def unlink(path: str) -> None:
        gate.wait(20)
        os.unlink(path)  # noqa: PTH108

    store = JsonlStore(tmp_path, durability="written", files=Files(unlink=unlink))
    gate.set()
    await stored(store, Script().whole_turn())
    gate.clear()
    scope = trio.CancelScope()

    async def delete() -> None:
        with scope:
            await store.delete("s1")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        await trio.testing.wait_all_tasks_blocked(0.01)
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate.set()
    assert await store.list() == []
    await stored(store, Script().whole_turn())


async def test_a_blocked_load_is_cut_short(tmp_path: Path) -> None:
    """PUB-16: a cancel does not wait for the disk, and the session can be opened again at once."""
    disk = SlowDirectory()
    store = JsonlStore(tmp_path, durability="written", files=Files(pread=disk.pread))
    events = Script().whole_turn()
    await stored(store, events)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.open, "s1")
        await trio.testing.wait_all_tasks_blocked(0.01)
        with pytest.raises(SessionBusyError):
            await JsonlStore(tmp_path).open("s1")
        nursery.cancel_scope.cancel()
    opened = await JsonlStore(tmp_path, durability="written").open("s1")
    disk.gate.set()
    await opened.writer.aclose()
    assert await load_events(store) == events
