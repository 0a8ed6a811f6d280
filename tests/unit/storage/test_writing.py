"""How a file store writes: what waits, what is one write, what a barrier does."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.unit.storage.logs import (
    Script,
    header,
    load_events,
    log_of,
    names_beside,
    serving,
    stored,
    write,
    write_each,
)
from trio_agents.errors import SessionCorruptError, StorageError, UsageError
from trio_agents.storage import Files, JsonlStore, LogWriter, fork_session
from trio_agents.testing import FaultyFiles


def lines_of(store: JsonlStore) -> list[dict[str, object]]:
    return [json.loads(line) for line in log_of(store).read_bytes().splitlines()[1:]]


def is_dirty(writer: LogWriter) -> bool:
    return writer.is_dirty  # asked through a call, so that a type checker does not remember the answer


def tags_of(store: JsonlStore) -> list[object]:
    return [line["type"] for line in lines_of(store)]


@pytest.fixture
def faults() -> FaultyFiles:
    return FaultyFiles()


# --- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"durability": "maybe"}, {"compression": "gzip"}, {"chunk_delay": -1}, {"chunk_delay": math.nan}],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        JsonlStore(tmp_path, **options)  # type: ignore[arg-type]


def test_describing_a_store_touches_nothing(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "x" / ".." / "root")
    assert Path(store.root).is_absolute()
    assert list(tmp_path.iterdir()) == []


# --- appends ---------------------------------------------------------------------------------------


async def test_an_append_is_in_the_file_when_it_returns(tmp_path: Path) -> None:
    """PER-13: one write for a batch, before `write` returns, also without anybody serving."""
    faults = FaultyFiles()
    store = JsonlStore(tmp_path, files=faults.files)
    script = Script()
    writer = store.create(header())
    assert faults.count("write") == 0
    write(writer, script.open_turn())
    assert tags_of(store) == ["turn/start", "step/start", "user/message"]
    assert faults.count("write") == 1
    write_each(writer, script.chunks("a", "b", "c"))
    assert tags_of(store)[3:] == ["assistant/chunk"] * 3
    write(writer, [*script.chunks("d", "e", "f"), *script.close_turn()])
    assert tags_of(store)[6:] == ["text-chunks", "step/end", "turn/end"]
    assert faults.count("write") == 5
    await writer.aclose()


async def test_neighbouring_chunks_wait_a_fixed_delay_from_the_first(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """PER-13: chunks are packed into a row when the delay is over, however many come in the meantime."""
    store = JsonlStore(tmp_path, durability="written", chunk_delay=0.1)
    script = Script()
    async with serving(store):
        writer = store.create(header())
        write(writer, script.open_turn())
        assert not is_dirty(writer)
        for text in "abcd":
            write(writer, script.chunks(text))
            await trio.sleep(0.02)
        assert is_dirty(writer)
        assert tags_of(store)[3:] == []
        await trio.sleep(0.03)
        assert tags_of(store)[3:] == ["text-chunks"]
        assert lines_of(store)[3]["data"]["texts"] == ["a", "b", "c", "d"]  # type: ignore[index]
        assert not is_dirty(writer)
        # The next one begins a delay of its own.
        write(writer, script.chunks("e"))
        await trio.sleep(0.09)
        assert len(tags_of(store)) == 4
        await trio.sleep(0.02)
        assert tags_of(store)[4:] == ["assistant/chunk"]
        await writer.aclose()


async def test_any_other_event_or_a_barrier_writes_held_chunks_first(tmp_path: Path) -> None:
    """PER-13: in the same write, in front."""
    faults = FaultyFiles()
    store = JsonlStore(tmp_path, durability="written", files=faults.files, chunk_delay=1000)
    script = Script()
    async with serving(store):
        writer = store.create(header())
        write(writer, script.open_turn())
        write_each(writer, script.chunks("a", "b", "c"))
        write(writer, script.chunks("d", "e"))
        assert faults.count("write") == 1
        write(writer, script.close_turn())
        assert faults.count("write") == 2
        assert tags_of(store)[3:] == ["text-chunks", "step/end", "turn/end"]
        write(writer, script.open_turn())
        write(writer, script.chunks("f"))
        await writer.barrier()
        assert faults.count("write") == 4
        assert tags_of(store)[-1] == "assistant/chunk"
        write(writer, script.chunks("g"))
        await writer.aclose()
        assert faults.count("write") == 5
    assert len(await load_events(store)) == 15


async def test_the_end_of_serving_writes_what_is_held(tmp_path: Path) -> None:
    """PER-13, DIS-14: nothing is left behind when the store's task ends."""
    store = JsonlStore(tmp_path, durability="written", chunk_delay=1000)
    script = Script()
    writer = store.create(header())
    async with serving(store):
        write(writer, script.open_turn())
        write_each(writer, script.chunks("a", "b", "c"))
        assert len(tags_of(store)) == 3
    assert tags_of(store)[3:] == ["text-chunks"]
    # From here on nobody would come for them, so chunks do not wait.
    write(writer, script.chunks("d"))
    assert len(tags_of(store)) == 5
    await writer.aclose()


async def test_many_held_bytes_do_not_wait(tmp_path: Path) -> None:
    """PER-13: what is held back is bounded."""
    store = JsonlStore(tmp_path, durability="written", chunk_delay=1000)
    script = Script()
    async with serving(store):
        writer = store.create(header())
        write(writer, script.open_turn())
        for _ in range(4):
            write(writer, script.chunks("x" * 30_000))
        assert tags_of(store)[3:] == ["text-chunks"]
        await writer.aclose()


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("partial", [0, 1, 30])
async def test_a_refused_append_leaves_the_file_as_it_was(
    tmp_path: Path, faults: FaultyFiles, partial: int, compression: str | None
) -> None:
    """PER-9, PER-12: undone to the former size; the retry leaves no gap and no duplicate."""
    store = JsonlStore(tmp_path, files=faults.files, compression=compression, durability="written")  # type: ignore[arg-type]
    script = Script()
    writer = store.create(header())
    first, second, third = script.whole_turn(), script.whole_turn(), script.whole_turn()
    write(writer, first)
    write(writer, second)
    before = log_of(store).read_bytes()
    faults.fail("write", error=errno.ENOSPC, writes=partial, times=2)
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left") as caught:
            write(writer, third)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert log_of(store).read_bytes() == before
    write(writer, third)
    fourth = script.whole_turn()
    write(writer, fourth)
    await writer.aclose()
    assert await load_events(store) == first + second + third + fourth
    assert (await store.verify("s1")).problems == ()


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_both_errors_are_told_when_undoing_fails(
    tmp_path: Path, faults: FaultyFiles, compression: str | None
) -> None:
    """PER-9: and nothing is written before the file is cut back."""
    store = JsonlStore(tmp_path, files=faults.files, compression=compression, durability="written")  # type: ignore[arg-type]
    script = Script()
    writer = store.create(header())
    first, second = script.whole_turn(), script.open_turn()[:1]
    write_each(writer, first)
    before = log_of(store).read_bytes()
    faults.fail("write", error=errno.EIO, writes=20)
    faults.fail("ftruncate", error=errno.EROFS, times=3)
    with pytest.raises(StorageError, match=r"cannot append.*; and cannot take back"):
        write(writer, second)
    assert writer.is_dirty
    assert len(log_of(store).read_bytes()) == len(before) + 20
    with pytest.raises(StorageError, match="cannot take back"):
        write(writer, second)
    with pytest.raises(StorageError, match="cannot take back"):
        await writer.barrier()
    write(writer, second)
    await writer.aclose()
    assert await load_events(store) == first + second


async def test_held_chunks_stay_first_when_writing_fails(
    tmp_path: Path,
    faults: FaultyFiles,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PER-12: they were accepted, so they are retried in order; what was refused was not."""
    store = JsonlStore(tmp_path, files=faults.files, durability="written")
    script = Script()
    async with serving(store):
        writer = store.create(header())
        begin = script.open_turn()
        write(writer, begin)
        held = script.chunks("a", "b", "c")
        write_each(writer, held)
        faults.fail("write", error=errno.ENOSPC, times=math.inf)
        await trio.sleep(1)  # the delay is over, and the write failed
        assert "chunks could not be written yet" in caplog.text
        assert writer.is_dirty
        end = script.close_turn()
        with pytest.raises(StorageError):
            write(writer, end)
        with pytest.raises(StorageError):
            await writer.barrier()
        more = script.chunks()
        faults.heal()
        write(writer, end)
        assert tags_of(store)[3:] == ["text-chunks", "step/end", "turn/end"]
        await writer.aclose()
    assert await load_events(store) == begin + held + more + end


async def test_a_close_that_cannot_write_says_so_and_releases_the_lock(
    tmp_path: Path, faults: FaultyFiles
) -> None:
    """PER-12, DIS-8."""
    store = JsonlStore(tmp_path, files=faults.files)
    script = Script()
    writer = store.create(header())
    events = script.whole_turn()
    write(writer, events)
    faults.fail("fdatasync")
    with pytest.raises(StorageError, match="durable"):
        await writer.aclose()
    await writer.aclose()
    assert await load_events(store) == events


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("name", ["open", "write", "link", "fstat"])
async def test_a_creation_that_fails_leaves_nothing(
    tmp_path: Path, faults: FaultyFiles, name: str, compression: str | None
) -> None:
    """PER-2, PER-12: no log, nor a part of one; the next append brings everything."""
    store = JsonlStore(tmp_path, files=faults.files, compression=compression)  # type: ignore[arg-type]
    events = Script().whole_turn()
    writer = store.create(header(seed_length=len(events)), events)
    more = Script(len(events)).chunks()
    faults.fail(name, error=errno.ENOSPC, writes=10)
    with pytest.raises(StorageError, match="cannot create the log"):
        writer.write((), ())
    assert await store.list() == []
    assert os.listdir(tmp_path / "_no-cwd" / "s1") == ["lock"]  # noqa: PTH208
    writer.write((), ())
    await writer.aclose()
    assert await load_events(store) == events + more


async def test_a_log_that_appears_in_the_meantime_is_not_overwritten(tmp_path: Path) -> None:
    """PER-2: creating never overwrites."""
    store = JsonlStore(tmp_path)
    writer = store.create(header())
    path = tmp_path / "_no-cwd" / "s1" / "session.jsonl"
    path.write_bytes(b"somebody else's")
    with pytest.raises(StorageError, match="File exists"):
        write(writer, Script().whole_turn())
    assert path.read_bytes() == b"somebody else's"
    await writer.aclose()
    assert path.read_bytes() == b"somebody else's"


async def test_an_empty_log_in_the_way_counts_as_never_written(tmp_path: Path) -> None:
    """PER-2."""
    store = JsonlStore(tmp_path)
    writer = store.create(header())
    (tmp_path / "_no-cwd" / "s1" / "session.jsonl").touch()
    events = Script().whole_turn()
    write(writer, events)
    await writer.aclose()
    assert await load_events(store) == events


async def test_a_file_system_without_links(tmp_path: Path, faults: FaultyFiles) -> None:
    """PER-2: a rename takes the link's place; a log in the way still is not overwritten."""
    store = JsonlStore(tmp_path, files=faults.files)
    faults.fail("link", error=errno.EPERM, times=math.inf)
    events = Script().whole_turn()
    await stored(store, events)
    assert names_beside(log_of(store)) == ["lock", "session.jsonl"]
    assert await load_events(store) == events
    writer = store.create(header("s2"))
    path = tmp_path / "_no-cwd" / "s2" / "session.jsonl"
    path.write_bytes(b"x")
    with pytest.raises(StorageError, match="File exists"):
        write(writer, events)
    writer.abandon()
    assert path.read_bytes() == b"x"


async def test_what_an_interrupted_creation_left_is_swept(tmp_path: Path) -> None:
    """PER-2: a temporary file is no log, and goes when the session is opened."""
    store = JsonlStore(tmp_path)
    events = Script().whole_turn()
    await stored(store, events)
    left = log_of(store).with_name("session.jsonl.0123456789ab.tmp")
    left.write_bytes(b"half")
    assert len(await store.list()) == 1
    assert await load_events(store) == events
    assert not left.exists()


# --- barriers --------------------------------------------------------------------------------------


async def test_writing_waits_for_no_disk(tmp_path: Path, faults: FaultyFiles) -> None:
    """PER-21: creation and appends sync nothing; the next barrier syncs file and directories, once."""
    store = JsonlStore(tmp_path / "root", files=faults.files)
    script = Script()
    writer = store.create(header())
    write(writer, script.whole_turn())
    write(writer, script.whole_turn())
    assert (faults.count("fdatasync"), faults.count("fsync")) == (0, 0)
    assert writer.is_dirty
    await writer.barrier()
    # The session's directory, its project, the root, and what holds the root.
    assert (faults.count("fdatasync"), faults.count("fsync")) == (1, 4)
    await writer.barrier()
    assert (faults.count("fdatasync"), faults.count("fsync")) == (1, 4)
    write(writer, script.whole_turn())
    await writer.aclose()
    assert (faults.count("fdatasync"), faults.count("fsync")) == (2, 4)


async def test_written_syncs_nothing(tmp_path: Path, faults: FaultyFiles) -> None:
    store = JsonlStore(tmp_path, durability="written", files=faults.files)
    await stored(store, Script().whole_turn())
    assert (faults.count("fdatasync"), faults.count("fsync")) == (0, 0)


async def test_an_idle_flush_writes_nothing(tmp_path: Path, faults: FaultyFiles) -> None:
    """PER-15: stored bytes stay identical."""
    store = JsonlStore(tmp_path, files=faults.files)
    await stored(store, Script().whole_turn())
    before = log_of(store).read_bytes()
    opened = await store.open("s1")
    calls = faults.count("write"), faults.count("fdatasync")
    assert not opened.writer.is_dirty
    await opened.writer.barrier()
    await opened.writer.aclose()
    assert (faults.count("write"), faults.count("fdatasync")) == calls
    assert log_of(store).read_bytes() == before


class Disk:
    """Syncs that wait until they are let go."""

    def __init__(self) -> None:
        self.started = 0
        self.gate = threading.Event()

    def fdatasync(self, fd: int) -> None:
        self.started += 1
        self.gate.wait(20)
        os.fdatasync(fd)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.gate.set()


@pytest.mark.parametrize("served", [True, False])
async def test_concurrent_barriers_share_one_sync(tmp_path: Path, disk: Disk, *, served: bool) -> None:
    """PER-13: those who need no more than a running sync covers wait for it; later ones share the next."""
    store = JsonlStore(tmp_path, files=Files(fdatasync=disk.fdatasync))
    script = Script()
    done: list[str] = []

    async def barrier(name: str) -> None:
        await writer.barrier()
        done.append(name)

    async with trio.open_nursery() as nursery:
        if served:
            await nursery.start(store.serve)
        writer = store.create(header())
        write(writer, script.whole_turn())
        async with trio.open_nursery() as waiters:
            for i in range(5):
                waiters.start_soon(barrier, f"first {i}")
            await trio.testing.wait_all_tasks_blocked(0.01)
            write(writer, script.whole_turn())
            for i in range(5):
                waiters.start_soon(barrier, f"second {i}")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert done == []
            assert disk.started == 1
            disk.gate.set()
        assert sorted(done[:5]) == [f"first {i}" for i in range(5)]
        assert len(done) == 10
        assert disk.started == 2
        await writer.aclose()
        nursery.cancel_scope.cancel()


async def test_a_slow_disk_stops_nobody_else(tmp_path: Path, disk: Disk) -> None:
    """PER-14, PER-21: appends, and barriers of stores on other disks, go on while a sync hangs."""
    store = JsonlStore(tmp_path, files=Files(fdatasync=disk.fdatasync))
    async with serving(store):
        writers = [store.create(header(f"s{i}")) for i in range(20)]
        scripts = [Script() for _ in writers]
        for writer, script in zip(writers, scripts, strict=True):
            write(writer, script.whole_turn())
        async with trio.open_nursery() as waiters:
            for writer in writers:
                waiters.start_soon(writer.barrier)
            await trio.testing.wait_all_tasks_blocked(0.01)
            for writer, script in zip(writers, scripts, strict=True):
                write(writer, script.whole_turn())
            disk.gate.set()
        for writer in writers:
            await writer.aclose()


async def test_a_cancelled_barrier_changes_nothing(tmp_path: Path, disk: Disk) -> None:
    """PER-14: the sync goes on, the writer works on, the lock is released by a cancelled close."""
    store = JsonlStore(tmp_path, files=Files(fdatasync=disk.fdatasync))
    script = Script()
    events = script.whole_turn()
    async with serving(store):
        writer = store.create(header())
        write(writer, events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.barrier)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        more = script.whole_turn()
        write(writer, more)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.aclose)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        opened = await store.open("s1")
        disk.gate.set()
        await opened.writer.aclose()
    assert await load_events(store) == events + more


async def test_a_barrier_that_was_cancelled_before_it_began_makes_nothing_durable(tmp_path: Path) -> None:
    """PER-11: without a worker, a cancelled wait never counts as a sync."""
    faults = FaultyFiles()
    store = JsonlStore(tmp_path, files=faults.files)
    writer = store.create(header())
    write(writer, Script().whole_turn())
    with trio.CancelScope() as scope:
        scope.cancel()
        await writer.barrier()
    assert scope.cancelled_caught
    assert is_dirty(writer)
    await writer.barrier()
    assert not is_dirty(writer)
    assert faults.count("fdatasync") == 1
    await writer.aclose()


async def test_a_failed_sync_is_told_and_the_next_one_writes_again(
    tmp_path: Path, faults: FaultyFiles
) -> None:
    """PER-11, PER-12: after a failed sync the same pages may count as clean, so they are made dirty again."""
    store = JsonlStore(tmp_path, files=faults.files)
    script = Script()
    async with serving(store):
        writer = store.create(header())
        write(writer, script.whole_turn())
        await writer.barrier()
        size = log_of(store).stat().st_size
        write(writer, script.whole_turn())
        grown = log_of(store).read_bytes()
        faults.fail("fdatasync")
        errors: list[StorageError] = []

        async def barrier() -> None:
            with pytest.raises(StorageError, match="durable") as caught:
                await writer.barrier()
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(barrier)
            nursery.start_soon(barrier)
        assert len({id(error) for error in errors}) == 2
        assert writer.is_dirty
        assert faults.count("pwrite") == 0
        await writer.barrier()
        assert faults.count("pwrite") == 1
        assert log_of(store).read_bytes() == grown
        assert len(grown) > size
        write(writer, script.whole_turn())
        await writer.barrier()
        assert faults.count("pwrite") == 1
        await writer.aclose()
    assert len(await load_events(store)) == 30


@pytest.mark.parametrize("name", ["fdatasync", "write", "link"])
async def test_a_fork_that_fails_leaves_nothing(tmp_path: Path, faults: FaultyFiles, name: str) -> None:
    """LOG-14: a copy that could not be made durable is taken back."""
    store = JsonlStore(tmp_path, files=faults.files)
    await stored(store, Script().whole_turn())
    faults.fail(name, error=errno.ENOSPC)
    with pytest.raises(StorageError):
        await fork_session(store, "s1", id="f")
    assert [entry.header.id for entry in await store.list()] == ["s1"]
    assert os.listdir(tmp_path / "_no-cwd") == ["s1"]  # noqa: PTH208
    await fork_session(store, "s1", id="f")
    assert len(await load_events(store, "f")) == 10


async def test_a_fork_that_is_cancelled_while_it_is_synced_leaves_nothing(tmp_path: Path, disk: Disk) -> None:
    """LOG-14: the caller that is cancelled finds no half-known copy later."""
    store = JsonlStore(tmp_path, files=Files(fdatasync=disk.fdatasync))
    disk.gate.set()
    await stored(store, Script().whole_turn())
    disk.gate.clear()
    async with serving(store):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fork_session, store, "s1")
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        disk.gate.set()
        assert [entry.header.id for entry in await store.list()] == ["s1"]


# --- files that others change ----------------------------------------------------------------------


async def test_a_file_that_changed_under_its_writer(tmp_path: Path) -> None:
    """PER-20: noticed at the barrier; nothing is written, and the session is read-only from then on."""

    def grow(path: Path) -> None:
        with path.open("ab") as log:
            log.write(b"x")

    def shrink(path: Path) -> None:
        os.truncate(path, path.stat().st_size - 3)

    def replace(path: Path) -> None:
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)

    changes: list[tuple[Callable[[Path], None], str]] = [
        (grow, "bytes where"), (shrink, "bytes where"), (replace, "replaced"), (Path.unlink, "removed"),
    ]  # fmt: skip
    for number, (change, match) in enumerate(changes):
        for served in (True, False):
            name = f"s{number}{served}"
            store = JsonlStore(tmp_path, chunk_delay=1000 if served else 0)
            script = Script()
            async with serving(store):
                writer = store.create(header(name))
                write(writer, script.open_turn())
                write_each(writer, script.chunks("a"))
                path = log_of(store, name)
                change(path)
                after = path.read_bytes() if path.exists() else None
                with pytest.raises(StorageError, match=f"{match}.*only be read"):
                    await writer.barrier()
                with pytest.raises(StorageError, match=match):
                    write(writer, script.close_turn())
                with pytest.raises(StorageError, match=match):
                    await writer.aclose()
                assert (path.read_bytes() if path.exists() else None) == after


async def test_a_change_is_noticed_when_the_file_is_opened_again(tmp_path: Path) -> None:
    """PER-20, PER-22."""
    store = JsonlStore(tmp_path, durability="written")
    await stored(store, Script().whole_turn())
    opened = await store.open("s1")
    log_of(store).unlink()
    with pytest.raises(StorageError, match="removed"):
        write(opened.writer, Script(10).whole_turn())
    opened.writer.abandon()


# --- descriptors -----------------------------------------------------------------------------------


async def test_one_descriptor_for_each_live_session(tmp_path: Path) -> None:
    """PER-22: logs are opened as needed, at most 64 at a time; every write still lands."""
    faults = FaultyFiles()
    store = JsonlStore(tmp_path, files=faults.files, durability="written")

    def open_files() -> int:
        return faults.count("open") - faults.count("close")

    writers = [store.create(header(f"s{i:03}")) for i in range(150)]
    assert open_files() == 150
    scripts = [Script() for _ in writers]
    for _ in range(3):
        for writer, script in zip(writers, scripts, strict=True):
            write(writer, script.whole_turn())
        assert open_files() <= 150 + 64
    for writer in writers:
        await writer.aclose()
    assert open_files() == 0
    for i in range(150):
        assert len(await load_events(store, f"s{i:03}")) == 30
    assert open_files() == 0


async def test_too_many_open_files(tmp_path: Path, faults: FaultyFiles) -> None:
    """PER-22: EMFILE names the limit; the cache gives up its files first; work goes on afterwards."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    store = JsonlStore(tmp_path, files=faults.files, durability="written")
    faults.fail("open", error=errno.EMFILE)
    with pytest.raises(StorageError, match=f"limit of open files is {limit}"):
        store.create(header())
    first, second = store.create(header("a")), store.create(header("b"))
    write(first, Script().whole_turn())
    write(second, Script().whole_turn())
    await first.aclose()
    opened = await store.open("a")
    closed = faults.count("close")
    faults.fail("open", error=errno.EMFILE)
    write(opened.writer, Script(10).whole_turn())
    assert faults.count("close") == closed + 1  # the log of "b"
    write(second, Script(10).whole_turn())
    faults.fail("open", error=errno.EMFILE, times=math.inf)
    with pytest.raises(StorageError, match="limit of open files"):
        await store.open("a")
    faults.heal()
    await opened.writer.aclose()
    await second.aclose()
    assert len(await load_events(store, "a")) == 20
    assert len(await load_events(store, "b")) == 20


async def test_a_read_only_file_system(tmp_path: Path, faults: FaultyFiles) -> None:
    """Reading works, writing says why it does not."""
    store = JsonlStore(tmp_path, files=faults.files)
    events = Script().whole_turn()
    await stored(store, events)
    log_of(store).with_name("lock").unlink()
    faults.fail("mkdir", error=errno.EROFS, times=math.inf)
    faults.fail("unlink", error=errno.EROFS, times=math.inf)
    with pytest.raises(StorageError, match="Read-only file system"):
        store.create(header("s2"))
    assert list((await store.inspect("s1")).events) == events
    assert len(await store.list()) == 1
    faults.fail("open", error=errno.EROFS)
    with pytest.raises(StorageError, match="Read-only file system"):
        await store.open("s1")
    with pytest.raises(StorageError, match="cannot delete"):
        await store.delete("s1")


async def test_a_clock_that_steps_back(tmp_path: Path) -> None:
    """LOG-1: times are what they are; order is by number."""
    store = JsonlStore(tmp_path)
    script = Script()
    events = [
        event.__class__(
            type=event.type, seq=event.seq, time=-event.time, data=event.data, surface_op=event.surface_op
        )
        for event in script.whole_turn(chunks=4)
    ]
    await stored(store, events)
    assert await load_events(store) == events


async def test_a_store_of_the_other_encoding_goes_on_as_it_is(tmp_path: Path) -> None:
    """PER-19: reading knows both encodings; an existing log keeps its own."""
    plain, packed = JsonlStore(tmp_path), JsonlStore(tmp_path, compression="zstd")
    await stored(plain, Script().whole_turn(), "a")
    await stored(packed, Script().whole_turn(), "b")
    for store in (plain, packed):
        for name, suffix in (("a", ".jsonl"), ("b", ".jsonl.zstd")):
            opened = await store.open(name)
            before = log_of(store, name).read_bytes()
            write(opened.writer, Script(sum(1 for _ in await _events(store, name))).whole_turn())
            await opened.writer.aclose()
            assert log_of(store, name).name.endswith(suffix)
            assert log_of(store, name).read_bytes().startswith(before)
    assert len(await load_events(plain, "a")) == 30
    assert len(await load_events(plain, "b")) == 30


async def _events(store: JsonlStore, name: str) -> list[object]:
    return list((await store.inspect(name)).events)


async def test_attachments_on_a_file_system_without_links(tmp_path: Path, faults: FaultyFiles) -> None:
    """A fork gets copies where it cannot get further names."""
    store = JsonlStore(tmp_path, files=faults.files)
    writer = store.create(header())
    kept = await store.put_attachment("s1", b"words", "text/plain")
    write(writer, Script().whole_turn(f"see {kept.attachment_id}"))
    await writer.aclose()
    faults.fail("link", error=errno.EXDEV, skip=1, times=math.inf)
    await fork_session(store, "s1", id="f")
    await store.delete("s1")
    assert await store.get_attachment("f", kept.attachment_id) == b"words"
    faults.fail("open", error=errno.EIO)
    with pytest.raises(StorageError, match="cannot read the attachment"):
        await store.get_attachment("f", kept.attachment_id)
    (log_of(store, "f").parent / "attachments" / kept.attachment_id[7:]).write_bytes(b"swords")
    with pytest.raises(SessionCorruptError, match="not those"):
        await store.get_attachment("f", kept.attachment_id)
