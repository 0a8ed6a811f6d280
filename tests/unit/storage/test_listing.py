"""Listing: from heads and tails alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.unit.storage.logs import Script, header, log_of, stored, write
from trio_agents.session import Event, ForeignEvent
from trio_agents.session._codec import encode_event
from trio_agents.storage import Files, JsonlStore
from trio_agents.values import FrozenJson


class Counted:
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes = 0
        self.files = Files(pread=self.pread, read=self.read)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        data = os.pread(fd, count, offset)
        self.bytes += len(data)
        return data

    def read(self, fd: int, count: int) -> bytes:
        data = os.read(fd, count)
        self.bytes += len(data)
        return data


def title(seq: int, text: str) -> Event:
    data = ForeignEvent(
        "session/title", FrozenJson.of({"title": text, "messageSeqs": [], "source": {"kind": "user"}})
    )
    return Event(type="session/title", seq=seq, time=1, data=data)


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
async def test_at_most_64_kib_are_read_of_each(tmp_path: Path, count: int) -> None:
    """L8: sessions of 50 MB (sparse files); bytes counted."""
    counted = Counted()
    store = JsonlStore(tmp_path, files=counted.files, durability="written")
    script = Script()
    begin = [*script.whole_turn(), title(script.seq, "what it is about")]
    for i in range(count):
        await stored(store, begin, f"s{i:04}")
        path = log_of(store, f"s{i:04}")
        end = b"\n" + b"".join(
            encode_event(event) + b"\n" for event in Script(99).whole_turn()[: -1 if i % 2 else None]
        )
        with path.open("r+b") as log:
            log.truncate(50_000_000)
            log.seek(0, os.SEEK_END)
            log.write(end)
    counted.bytes = 0
    entries = await store.list()
    assert counted.bytes <= count * 64 * 1024
    assert len(entries) == count
    assert {entry.status for entry in entries[::2]} == {"closed"}
    assert {entry.status for entry in entries[1::2]} == {"interrupted"}
    assert {entry.title for entry in entries} == {"what it is about"}
    assert all(entry.size > 50_000_000 for entry in entries)


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_the_last_title_counts(tmp_path: Path, compression: str | None) -> None:
    store = JsonlStore(tmp_path, durability="written", compression=compression)  # type: ignore[arg-type]
    script = Script()
    writer = store.create(header())
    write(writer, script.whole_turn())
    write(writer, [title(script.seq, "first")])
    script.seq += 1
    for _ in range(30):
        write(writer, script.whole_turn(os.urandom(3000).hex()))
        await writer.barrier()
    write(writer, [title(script.seq, "second")])
    script.seq += 1
    write(writer, script.open_turn())
    await writer.aclose()
    assert log_of(store).stat().st_size > 50_000
    (entry,) = await store.list()
    assert (entry.title, entry.status, entry.problem) == ("second", "interrupted", None)


async def test_one_huge_record_at_the_end(tmp_path: Path) -> None:
    """T15: what fills the whole tail is a part of a turn."""
    store = JsonlStore(tmp_path, durability="written")
    script = Script()
    await stored(store, [*script.whole_turn(), *script.open_turn("x" * 100_000)])
    (entry,) = await store.list()
    assert entry.status == "interrupted"


async def test_a_header_that_is_too_long_to_be_one(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, durability="written")
    await stored(store, Script().whole_turn())
    log_of(store).write_bytes(b"x" * 100_000)
    (entry,) = await store.list()
    assert (entry.status, entry.header.id, entry.size) == ("damaged", "s1", 100_000)


async def test_a_session_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    """Listing reads while others write: what has gone is not listed, and fails nothing."""
    paths: list[str] = []

    def opening(path: str, flags: int, mode: int) -> int:
        paths.append(path)
        if len(paths) == 1:
            raise FileNotFoundError(path)
        return os.open(path, flags, mode)

    store = JsonlStore(tmp_path, durability="written")
    for name in ("a", "b"):
        await stored(store, Script().whole_turn(), name)
    racing = JsonlStore(tmp_path, files=Files(open=opening))
    assert [entry.header.id for entry in await racing.list()] == ["b"]


async def test_a_cancelled_listing(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    await stored(store, Script().whole_turn())
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.list()
    assert scope.cancelled_caught
    assert len(await store.list()) == 1
