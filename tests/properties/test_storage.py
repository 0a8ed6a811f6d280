"""What holds for every log and every way to write it."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import trio
from hypothesis import given, settings, strategies as st

from tests.unit.storage.logs import Script, header, load_events, log_of, unpacked, write
from trio_agents.errors import SessionCorruptError, SessionLogError, UsageError
from trio_agents.session import AssistantChunk, Event, SessionHeader
from trio_agents.session._codec import decode_event, encode_event
from trio_agents.storage import JsonlStore, MemoryStore, SessionStore
from trio_agents.storage._layout import project_segment, session_id_of, session_segment
from trio_agents.storage._lines import LogScan
from trio_agents.values import ReasoningDelta, TextDelta, ToolCallDelta

texts = st.text(max_size=20) | st.sampled_from(
    ["\u2028", "\ud83d", "\N{GRINNING FACE}", "\x00", '"\\', "\x85\r\n"]
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Turns with streams of every kind of delta, times that jump, and messages of any text."""
    script = Script()
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 4))):
        events += script.open_turn(draw(texts))
        for _ in range(draw(st.integers(0, 4))):
            index = draw(st.integers(0, 2))
            kind = draw(st.sampled_from(["text", "reasoning", "call", "named call"]))
            for text in draw(st.lists(texts, max_size=6)):
                chunk = {
                    "text": TextDelta(index=index, text=text),
                    "reasoning": ReasoningDelta(index=index, text=text),
                    "call": ToolCallDelta(index=index, id="c", arguments_delta=text),
                    "named call": ToolCallDelta(index=index, id="c", name="n", arguments_delta=text),
                }[kind]
                event = script.event(AssistantChunk(turn=script.turn, step=1, chunk=chunk))
                time = draw(st.sampled_from([event.time, 0, -5, 2**53 - 1, -(2**53) + 1]))
                events.append(Event(type=event.type, seq=event.seq, time=time, data=event.data))
        if draw(st.booleans()):
            called = script.call(draw(st.text(min_size=1, max_size=5)))
            events += called
            events += script.result(called[0].data.message.content[0].id, called[1].seq)
        events += script.close_turn()
    return events


def batches(events: list[Event], cuts: list[int]) -> list[list[Event]]:
    edges = sorted({0, len(events), *(cut % (len(events) + 1) for cut in cuts)})
    return [events[start:end] for start, end in pairwise(edges)]


@given(logs(), st.lists(st.integers(0, 1000), max_size=6), st.lists(st.integers(0, 1000), max_size=3))
@settings(max_examples=40)
def test_every_store_gives_back_what_was_written(
    events: list[Event], cuts: list[int], reopened: list[int]
) -> None:
    """PROP-10: any events, any split into batches, any encoding; and the stores agree."""

    async def main(store: SessionStore) -> list[Event]:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.serve)
            writer = store.create(header())
            writer.write((), ())
            for number, batch in enumerate(batches(events, cuts)):
                write(writer, batch)
                if number in reopened:
                    await writer.aclose()
                    writer = (await store.open("s1")).writer
            await writer.aclose()
            loaded = await load_events(store)
            shown = list((await store.inspect("s1")).events)
            assert shown == loaded
            nursery.cancel_scope.cancel()
        return loaded

    with tempfile.TemporaryDirectory() as root:
        assert trio.run(main, MemoryStore()) == events
        for name, packing, compression in (("a", True, None), ("b", False, None), ("c", True, "zstd")):
            store = JsonlStore(
                Path(root) / name, durability="written", packing=packing, compression=compression  # type: ignore[arg-type]
            )  # fmt: skip
            assert trio.run(main, store) == events


@given(logs(), st.integers(0, 10**6), st.binary(max_size=8))
@settings(max_examples=60)
def test_any_truncation_loads_as_a_prefix(events: list[Event], cut: int, junk: bytes) -> None:
    """PROP-9: cut anywhere, also with a few bytes behind it: a prefix of the events, or a refusal."""

    async def main(root: str) -> None:
        store = JsonlStore(root, durability="written")
        writer = store.create(header())
        writer.write((), ())
        size = len(log_of(store).read_bytes())
        for batch in batches(events, [3, 7, 20]):
            write(writer, batch)
        await writer.aclose()
        path = log_of(store)
        whole = path.read_bytes()
        end = size + cut % (len(whole) - size + 1)
        path.write_bytes(whole[:end] + junk)
        try:
            loaded = await load_events(store)
        except SessionCorruptError:
            assert junk
            return
        assert loaded == events[: len(loaded)]
        assert whole[:end].startswith(path.read_bytes())
        again = await load_events(store)
        assert again == loaded

    with tempfile.TemporaryDirectory() as root:
        trio.run(main, root)


@given(logs(), st.integers(0, 10**9))
@settings(max_examples=60)
def test_any_flipped_bit_is_told_or_shows(events: list[Event], bit: int) -> None:
    """PROP-9: a flipped bit is refused, cuts the tail, or changes exactly what it hits; numbers stay dense."""

    async def main(root: str) -> None:
        store = JsonlStore(root, durability="written", packing=False)
        writer = store.create(header())
        write(writer, events)
        await writer.aclose()
        path = log_of(store)
        data = bytearray(path.read_bytes())
        at = bit % (len(data) * 8)
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        try:
            loaded = await load_events(store)
        except SessionLogError:
            assert path.read_bytes() == data
            return
        assert [event.seq for event in loaded] == list(range(len(loaded)))
        assert sum(one != other for one, other in zip(loaded, events, strict=False)) <= 1
        if len(loaded) < len(events):
            assert list(path.parent.glob("torn-*"))

    with tempfile.TemporaryDirectory() as root:
        trio.run(main, root)


@given(logs(), st.integers(1, 40))
@settings(max_examples=60)
def test_reading_at_once_and_line_by_line_agree(events: list[Event], size: int) -> None:
    """PROP-10: the fast way to load gives what the exact way gives, however the text is sliced."""
    lines = [encode_event(event) for event in events]
    text = b"".join(line + b"\n" for line in lines)
    scan = LogScan("s1", 0)
    for start in range(0, len(lines), size):
        scan.feed(b"".join(line + b"\n" for line in lines[start : start + size]))
    assert unpacked(scan.events()) == [decode_event(line) for line in lines] == events
    assert (scan.good_end, scan.next_seq, scan.fault, scan.refusal) == (len(text), len(events), None, None)


anything = st.text(max_size=20) | st.text(st.characters(categories=["Cs", "Lu"]), max_size=6)


@given(anything, anything)
def test_ids_and_directories_are_one_to_one(one: str, two: str) -> None:
    """PER-18: injective, reversible, and never a way out of the directory."""
    segments = {}
    for session_id in (one, two):
        try:
            segment = segments[session_id] = session_segment(session_id)
        except UsageError:
            assert not session_id or any("\ud800" <= char < "\udc00" for char in session_id)
            continue
        assert session_id_of(segment) == session_id
        assert "/" not in segment
        assert segment not in {".", ".."}
        assert segment.isascii()
    assert len(set(segments.values())) == len(segments)


@given(anything)
def test_projects_are_plain_names(cwd: str) -> None:
    """PER-18."""
    if cwd:
        name = project_segment(cwd)
        assert name.startswith("--")
        assert name.endswith("--")
        assert "/" not in name
        assert 5 <= len(name) <= 255


@given(logs(), st.integers(0, 100))
@settings(max_examples=30)
def test_forks_are_exact_prefixes(events: list[Event], at: int) -> None:
    """LOG-13: at every closed boundary, in either store."""
    ends = [event.seq for event in events if event.type == "turn/end"]
    if not ends:
        return

    async def main(store: SessionStore) -> tuple[SessionHeader, list[Event]]:
        from trio_agents.storage import fork_session

        writer = store.create(header())
        write(writer, events)
        await writer.aclose()
        await fork_session(store, "s1", ends[at % len(ends)], id="f", now=lambda: 7)
        found = await store.inspect("f")
        return found.header, list(found.events)

    with tempfile.TemporaryDirectory() as root:
        results = [trio.run(main, store) for store in (MemoryStore(), JsonlStore(root, durability="written"))]
    assert results[0] == results[1]
    assert results[0][1] == events[: ends[at % len(ends)] + 1]
