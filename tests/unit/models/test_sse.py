"""Server-sent events out of bytes, however they are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from trio_agents.errors import ModelError
from trio_agents.models._sse import SseDecoder


def decode(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data:a\n\n", [(b"", b"a")]),
        (b"data:  a \n\n", [(b"", b" a ")]),
        (b"event: ping\ndata: {}\n\n", [(b"ping", b"{}")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b": keep-alive\n\ndata: a\n\n", [(b"", b"a")]),
        (b"id: 3\nretry: 10\ndata: a\n\n", [(b"", b"a")]),
        (b"event: x\n\ndata: a\n\n", [(b"", b"a")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\rdata: b\r\r", [(b"", b"a"), (b"", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"data: a\n\ndata: [DONE]", [(b"", b"a"), (b"", b"[DONE]")]),
        (b"data: a\n\ndata: b\n", [(b"", b"a"), (b"", b"b")]),
        (b"data\n\n\n", []),
        (b"", []),
        ("data: \u2028\u0085\n\n".encode(), [(b"", "\u2028\u0085".encode())]),
    ],
)
def test_events(text: bytes, events: list) -> None:
    assert decode(text) == events
    assert decode(*(text[place : place + 1] for place in range(len(text)))) == events


LINES = st.lists(
    st.sampled_from([b"data: x", b"data:", b"event: e", b": c", b"", b"", b"other", b"data: \xc3\xa9"]),
    max_size=12,
)


@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 60), max_size=8))
def test_cutting_changes_nothing(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    text = end.join(lines)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:stop] for start, stop in itertools.pairwise(places)]
    assert decode(*pieces) == decode(b"\n".join(lines))


def test_an_event_has_a_bound_and_a_stream_has_none() -> None:
    decoder = SseDecoder(max_event=100)
    for _ in range(50):
        assert decoder.feed(b"data: " + b"x" * 60 + b"\n\n") == [(b"", b"x" * 60)]
    for _ in range(9):
        decoder.feed(b"data: xxxxx")
    with pytest.raises(ModelError, match="more than 100 bytes") as caught:
        decoder.feed(b"data: xxxxx")
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_the_bound_counts_the_lines_of_an_event_together() -> None:
    decoder = SseDecoder(max_event=100)
    for _ in range(11):
        decoder.feed(b"data: 1234567\n")
    with pytest.raises(ModelError, match="more than 100"):
        decoder.feed(b"data: " + b"7" * 40 + b"\n")


def test_the_bound_counts_lines_without_data() -> None:
    decoder = SseDecoder(max_event=100)
    for _ in range(20):
        decoder.feed(b"data:\n" * 5 + b"\n")
    for _ in range(15):
        decoder.feed(b"data:\n" * 5)
    with pytest.raises(ModelError, match="more than 100"):
        decoder.feed(b"data:\n" * 5)
