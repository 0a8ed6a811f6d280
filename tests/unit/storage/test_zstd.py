"""Compressed logs: frames, their damage, and their torn ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio
import zstandard

from tests.conftest import Sweep
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
from trio_agents.errors import SessionCorruptError, SessionUnsupportedError, UsageError
from trio_agents.session import Event
from trio_agents.storage import JsonlStore, _zstd
from trio_agents.storage._zstd import MAGIC, FrameWriter, decode_frame, find_frame, frame_at


@pytest.fixture
def store(tmp_path: Path) -> JsonlStore:
    return JsonlStore(tmp_path, durability="written", compression="zstd")


def frames_of(data: bytes) -> list[bytes]:
    frames = []
    at = 0
    while at < len(data):
        frame = frame_at(data, at)
        assert frame.is_whole
        frames.append(decode_frame(data[at : frame.end]))
        at = frame.end
    return frames


async def test_a_frame_for_the_header_and_one_for_each_barrier(store: JsonlStore) -> None:
    """PER-19: the layout that the format asks for, readable by any Zstandard tool."""
    script = Script()
    writer = store.create(header())
    first, second = script.whole_turn(chunks=0), script.whole_turn(chunks=0)
    write_each(writer, first)
    await writer.barrier()
    write_each(writer, second)
    await writer.aclose()
    data = log_of(store).read_bytes()
    texts = frames_of(data)
    assert [text.count(b"\n") for text in texts] == [1, 5, 5]
    assert texts[0].startswith(b'{"type":"session"')
    assert zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read() == b"".join(texts)
    at = 0
    while at < len(data):
        assert data[at : at + 5] == MAGIC + b"\x04"  # a checksum, no size of the content
        at = frame_at(data, at).end


async def test_each_append_can_be_read_before_its_frame_ends(store: JsonlStore) -> None:
    """PER-13, PER-19: a killed process loses nothing that was acknowledged."""
    script = Script()
    writer = store.create(header())
    written: list[Event] = []
    for event in script.whole_turn(chunks=2):
        write(writer, [event])
        written.append(event)
        found = await store.inspect("s1")
        assert list(found.events)[: found.stored] == written
        assert found.torn > 0
    assert writer.is_dirty
    await writer.barrier()
    assert (await store.inspect("s1")).torn == 0
    writer.abandon()


async def test_a_long_frame_ends_by_itself(store: JsonlStore) -> None:
    script = Script()
    writer = store.create(header())
    write(writer, script.open_turn("x" * 200_000))
    assert writer.is_dirty
    write(writer, script.chunks("y" * 100_000))
    assert len(frames_of(log_of(store).read_bytes())) == 2
    await writer.aclose()


async def test_torn_at_every_byte(store: JsonlStore, sweep: Sweep) -> None:
    """PER-19, PROP-9: a torn last frame yields its whole records; what was cut is kept aside."""
    script = Script()
    writer = store.create(header())
    events = script.whole_turn()
    write(writer, events)
    await writer.barrier()
    more: list[Event] = []
    for event in script.whole_turn("z", chunks=0):
        write(writer, [event])
        more.append(event)
    writer.abandon()
    path = log_of(store)
    whole = path.read_bytes()
    first = frame_at(whole, frame_at(whole, 0).end).end
    previous = 0
    for cut in sweep(range(first, len(whole) + 1), keep=30):
        path.write_bytes(whole[:cut])
        loaded = await load_events(store)
        kept = len(loaded) - len(events)
        assert kept >= previous
        previous = kept
        assert loaded == (events + more)[: len(loaded)]
        if cut > first:
            aside = path.with_name(f"torn-{first}")
            assert aside.read_bytes() == whole[first:cut]
            aside.unlink()
        assert (await store.verify("s1")).torn == 0
        assert await load_events(store) == loaded
        assert path.read_bytes().startswith(whole[:first])
        assert names_beside(path) == ["lock", path.name]
    assert previous == len(more)


@pytest.mark.parametrize("keep", [0, 1, 4, 5, 6, 20])
async def test_a_torn_first_frame_is_damage(store: JsonlStore, keep: int) -> None:
    """PER-19: without a header there is nothing to go on."""
    await stored(store, Script().whole_turn())
    path = log_of(store)
    path.write_bytes(path.read_bytes()[: keep or 1])
    with pytest.raises(SessionCorruptError, match="header"):
        await store.open("s1")
    assert (await store.list())[0].status == "damaged"


async def with_frames(store: JsonlStore, *texts: bytes, tail: bytes = b"") -> Path:
    await stored(store, Script().whole_turn())
    path = log_of(store)
    head = path.read_bytes()
    head = head[: frame_at(head, 0).end]
    path.write_bytes(head + b"".join(FrameWriter().whole(text) for text in texts) + tail)
    return path


GOOD = b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}\n'
NEXT = b'{"type":"turn/end","seq":1,"time":1,"data":{"turn":1,"reason":{"kind":"completed"}}}\n'


@pytest.mark.parametrize(
    "texts",
    [(GOOD[:-1],), (GOOD, NEXT[:20]), (b"\n",), (GOOD + b"{]\n",), (NEXT,), (GOOD, GOOD), (b"",)],
    ids=["no end", "half a record", "an empty line", "no JSON", "a gap", "a repeat", "nothing"],
)
async def test_nothing_is_forgiven_inside_a_whole_frame(store: JsonlStore, texts: tuple[bytes, ...]) -> None:
    """PER-19: a complete frame with a torn record is corruption, also at the end."""
    path = await with_frames(store, *texts)
    before = path.read_bytes()
    with pytest.raises(SessionCorruptError, match="damaged"):
        await store.open("s1")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "tail", [b"\0" * 50, b"\x28", b"\x28\xb5\x2f\xfd\x04", b"garbage", b"\x50\x2a\x4d\x18\x04\0\0\0abcd"]
)
async def test_what_is_no_frame_at_the_end_is_a_torn_tail(store: JsonlStore, tail: bytes) -> None:
    """PER-7: nothing valid follows, so it is kept aside and cut."""
    path = await with_frames(store, GOOD, NEXT, tail=tail)
    good = path.read_bytes()[: -len(tail)]
    assert len(await load_events(store)) == 2
    assert path.read_bytes() == good
    assert path.with_name(f"torn-{len(good)}").read_bytes() == tail


async def test_garbage_before_a_whole_frame_is_damage(store: JsonlStore) -> None:
    """PER-7."""
    path = await with_frames(store, GOOD, tail=b"\0" * 9 + FrameWriter().whole(NEXT))
    with pytest.raises(SessionCorruptError, match="a whole frame follows"):
        await store.open("s1")
    verdict = await store.verify("s1")
    assert verdict.events == 1 or verdict.problems
    assert path.exists()


async def test_an_unknown_required_event_in_a_frame(store: JsonlStore) -> None:
    """PER-17."""
    await with_frames(store, GOOD, b'{"type":"x/y","seq":1,"time":1,"data":{}}\n')
    with pytest.raises(SessionUnsupportedError, match="x/y"):
        await store.open("s1")


async def test_a_first_frame_with_more_than_the_header(store: JsonlStore) -> None:
    await stored(store, Script().whole_turn())
    path = log_of(store)
    path.write_bytes(FrameWriter().whole(b"".join(frames_of(path.read_bytes()))))
    with pytest.raises(SessionCorruptError, match="more than the header"):
        await store.open("s1")


async def test_flipped_bits_are_found(store: JsonlStore, sweep: Sweep) -> None:
    """PER-7, PER-19: never a wrong event: an error, or a prefix with the rest kept aside."""
    script = Script()
    writer = store.create(header())
    events = script.whole_turn()
    write(writer, events)
    await writer.barrier()
    more = script.whole_turn()
    write(writer, more)
    await writer.aclose()
    path = log_of(store)
    whole = path.read_bytes()
    for bit in sweep(range(len(whole) * 8), keep=60):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            loaded = await load_events(store)
        except SessionCorruptError:
            assert path.read_bytes() == damaged
            continue
        assert loaded == (events + more)[: len(loaded)]
        if len(loaded) < 20:
            assert [name for name in names_beside(path) if name.startswith("torn-")]
        for name in names_beside(path):
            if name.startswith("torn-"):
                path.with_name(name).unlink()


async def test_held_chunks_become_rows_in_frames(store: JsonlStore) -> None:
    script = Script()
    async with serving(store):
        writer = store.create(header())
        write(writer, script.open_turn())
        write_each(writer, script.chunks("a", "b", "c"))
        write(writer, script.close_turn())
        await writer.aclose()
    assert b'"text-chunks"' in b"".join(frames_of(log_of(store).read_bytes()))


async def test_the_extra_is_named_when_it_is_missing(
    store: JsonlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot compress says what to install: when it is described, and when it meets such a log."""
    await stored(store, Script().whole_turn())
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    _zstd._codec.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"trio-agents\[zstd\]"):
            JsonlStore(tmp_path, compression="zstd")
        plain = JsonlStore(tmp_path)
        with pytest.raises(UsageError, match=r"trio-agents\[zstd\]"):
            await plain.open("s1")
        assert "trio-agents[zstd]" in str((await plain.list())[0].problem)
    finally:
        _zstd._codec.cache_clear()


def test_measuring_frames() -> None:
    for text in (b"", b"a", b"ab" * 200_000, bytes(300_000)):
        for codec in (
            zstandard.ZstdCompressor(level=1),
            zstandard.ZstdCompressor(level=1, write_checksum=True),
            zstandard.ZstdCompressor(level=1, write_content_size=False),
        ):
            data = codec.compress(text)
            frame = frame_at(data + b"rest", 0)
            assert (frame.end, frame.is_whole) == (len(data), True)
            for cut in range(1, min(len(data), 30)):
                assert not frame_at(data[:cut], 0).is_whole
    for bad in (b"", b"x", b"\x28\xb5\x2f\xfe", MAGIC + b"\x0c\x00", MAGIC + b"\x04\x00\x07\x00\x00"):
        with pytest.raises(ValueError):  # noqa: PT011
            frame_at(bad, 0)


def test_finding_the_next_sound_frame() -> None:
    good = FrameWriter().whole(b"hello\n")
    assert find_frame(MAGIC + b"\x04" + good, 0) == 5
    assert find_frame(good[:-1], 0) == -1
    assert find_frame(b"xx" + good, 0) == 2


async def test_reading_a_compressed_log_is_no_stall(store: JsonlStore) -> None:
    """Each frame is a slice of its own: others run in between."""
    writer = store.create(header())
    script = Script()
    for _ in range(20):
        write(writer, script.whole_turn())
        await writer.barrier()
    await writer.aclose()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await load_events(store)
        nursery.cancel_scope.cancel()
    assert turns > 20
