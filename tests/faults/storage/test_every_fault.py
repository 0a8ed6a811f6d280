"""Each file operation fails once, at each place; the log is cut at each byte."""

from __future__ import annotations

import errno
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.conftest import Sweep
from tests.unit.storage.logs import Script, header, load_events, log_of, names_beside, serving, write
from trio_agents.errors import SessionCorruptError, SessionNotFoundError, StorageError
from trio_agents.session import Event
from trio_agents.storage import JsonlStore
from trio_agents.testing import FaultyFiles


def scenario() -> list[list[Event]]:
    script = Script()
    batches = []
    for _ in range(3):
        batches += [[event] for event in script.open_turn()]
        batches += [[event] for event in script.chunks("a", "b", "c", "d")]
        batches += [[event] for event in script.call("c1")]
        batches.append([*script.result("c1", script.seq - 1), *script.close_turn()])
    return batches


async def persist(store: JsonlStore, batches: list[list[Event]]) -> int:
    """Write as a program that retries what was refused; gives the number of refusals."""
    refusals = 0

    async def stubborn(act: Callable[[], Any]) -> Any:
        nonlocal refusals
        for _ in range(5):
            try:
                result = act()
                return await result if isinstance(result, Awaitable) else result
            except StorageError as exc:
                assert isinstance(exc.__cause__, OSError)  # noqa: PT017
                refusals += 1
        raise AssertionError("refused five times for one fault")

    writer = await stubborn(lambda: store.create(header()))
    async with serving(store):
        for batch in batches:
            await stubborn(lambda batch=batch: write(writer, batch))  # type: ignore[misc]
            if batch[-1].type in {"turn/end", "tool/call"}:
                await stubborn(writer.barrier)
        await stubborn(writer.barrier)
    try:
        await writer.aclose()
    except StorageError:
        refusals += 1  # the last look at the file failed; the lock is released all the same
    return refusals


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize(
    ("name", "error"),
    [("write", errno.ENOSPC), ("write", errno.EIO), ("fdatasync", errno.EIO), ("fsync", errno.EIO), ("link", errno.ENOSPC),
     ("open", errno.EMFILE), ("stat", errno.EIO), ("unlink", errno.EIO), ("close", errno.EIO)],
)  # fmt: skip
async def test_any_one_fault_costs_nothing(
    tmp_path: Path, sweep: Sweep, name: str, error: int, compression: str | None
) -> None:
    """PER-9, PER-12: whichever call fails: no acknowledged event lost, no gap, work goes on when the fault ends."""
    batches = scenario()
    count = FaultyFiles()
    options = {"compression": compression, "chunk_delay": 0.001}
    await persist(JsonlStore(tmp_path / "count", files=count.files, **options), batches)  # type: ignore[arg-type]
    for skip in sweep(range(max(2, count.count(name))), keep=4):
        faults = FaultyFiles()
        store = JsonlStore(tmp_path / str(skip), files=faults.files, **options)  # type: ignore[arg-type]
        faults.fail(name, error=error, skip=skip, writes=skip * 7 % 40)
        await persist(store, batches)
        assert await load_events(store) == [event for batch in batches for event in batch]
        assert (await store.verify("s1")).problems == ()
        assert names_beside(log_of(store))[0] == "lock"


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_a_disk_that_is_full_for_a_while(tmp_path: Path, compression: str | None) -> None:
    """PER-12: every n-th write fails, for ever; everything that was accepted is there, nothing else."""
    for every in (2, 3, 5):
        faults = FaultyFiles()
        store = JsonlStore(tmp_path / str(every), files=faults.files, compression=compression)  # type: ignore[arg-type]
        for skip in range(0, 400, every):
            faults.fail("write", error=errno.ENOSPC, skip=skip, writes=skip % 50)
        batches = scenario()
        assert await persist(store, batches) > 0
        faults.heal()
        assert await load_events(store) == [event for batch in batches for event in batch]


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_a_crash_at_every_byte(tmp_path: Path, sweep: Sweep, compression: str | None) -> None:
    """PROP-9, L1: after each append, and at each byte of each batch: a prefix of what was acknowledged."""
    store = JsonlStore(tmp_path, durability="written", compression=compression, chunk_delay=0)  # type: ignore[arg-type]
    batches = scenario()
    writer = store.create(header())
    ends: list[tuple[int, int]] = []
    path = None
    for number, batch in enumerate(batches):
        write(writer, batch)
        if number % 4 == 3:
            await writer.barrier()
        path = path or log_of(store)
        ends.append((path.stat().st_size, sum(map(len, batches[: number + 1]))))
    writer.abandon()
    assert path is not None
    whole = path.read_bytes()
    events = [event for batch in batches for event in batch]
    first = ends[0][0]
    for cut in sweep(range(first, len(whole) + 1), keep=40):
        path.write_bytes(whole[:cut])
        loaded = await load_events(store)
        acknowledged = max(count for size, count in ends if size <= cut)
        assert len(loaded) >= acknowledged
        assert loaded == events[: len(loaded)]
        for name in names_beside(path):
            if name.startswith("torn-"):
                path.with_name(name).unlink()
    for cut in sweep(range(1, first), keep=10):
        path.write_bytes(whole[:cut])
        try:
            assert await load_events(store) == []
        except SessionCorruptError as exc:
            assert "header" in str(exc)  # noqa: PT017
        for name in names_beside(path):
            if name.startswith("torn-"):
                path.with_name(name).unlink()


async def test_opening_is_cancelled_at_every_step(tmp_path: Path) -> None:
    """PUB-16: a cancelled open leaves the session unlocked, wherever the cancel lands."""
    store = JsonlStore(tmp_path, durability="written")
    events = [event for batch in scenario() for event in batch]
    writer = store.create(header())
    write(writer, events)
    await writer.aclose()
    with log_of(store).open("ab") as log:
        log.write(b"{torn")
    for steps in range(12):
        opened = None
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel(steps: int = steps, scope: trio.CancelScope = scope) -> None:
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                nursery.start_soon(cancel)
                opened = await store.open("s1")
        if opened is not None:
            opened.writer.abandon()
        assert await load_events(store) == events


@pytest.mark.parametrize("name", ["open", "pread", "listdir", "stat", "unlink", "rmdir"])
async def test_reading_and_deleting_with_faults(tmp_path: Path, name: str) -> None:
    """PER-12: each is a typed error with its cause, no lock is left, and the next try works."""
    for skip in range(4):
        faults = FaultyFiles()
        store = JsonlStore(tmp_path / str(skip), durability="written", files=faults.files)
        events = [event for batch in scenario() for event in batch]
        writer = store.create(header())
        write(writer, events)
        await writer.aclose()
        for call in (store.open, store.inspect, store.verify, store.delete):
            faults.fail(name, error=errno.EIO, skip=skip)
            try:
                result = await call("s1")
            except StorageError as exc:
                assert isinstance(exc.__cause__, OSError)  # noqa: PT017
            else:
                if call == store.open:
                    result.writer.abandon()  # type: ignore[union-attr]
            faults.heal()
        try:
            assert await load_events(store) == events
        except SessionNotFoundError:
            continue  # it was deleted before the fault, or by it
        await store.delete("s1")


async def test_faults_that_last(tmp_path: Path) -> None:
    """PER-12: a store whose disk has gone says so on every call, and everything comes back with it."""
    faults = FaultyFiles()
    store = JsonlStore(tmp_path, files=faults.files)
    script = Script()
    async with serving(store):
        writer = store.create(header())
        first, second = script.whole_turn(), script.whole_turn()
        write(writer, first)
        for name in ("write", "fdatasync", "ftruncate", "open", "stat"):
            faults.fail(name, error=errno.EIO, times=math.inf)
        for _ in range(3):
            with pytest.raises(StorageError):
                write(writer, second)
            with pytest.raises(StorageError):
                await writer.barrier()
            with pytest.raises(StorageError):
                await store.open("s1")
            with pytest.raises(StorageError):
                store.create(header("s2"))
        faults.heal()
        write(writer, second)
        await writer.aclose()
    assert await load_events(store) == first + second
