"""A recorded stream has to agree with itself."""

from __future__ import annotations

import pytest

from trio_agents.cli._streams import stream_fault
from trio_agents.session import AssistantChunk, AssistantMessage, Event
from trio_agents.values import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    Message,
    ModelSource,
    ReasoningDelta,
    Stop,
    TextBlock,
    TextDelta,
    TokenUsage,
    Usage,
)

USAGE = TokenUsage(input_tokens=1, output_tokens=1)
WHOLE: list[Chunk] = [
    BlockStart(index=0, block_type="text"),
    TextDelta(index=0, text="one "),
    TextDelta(index=0, text="two "),
    TextDelta(index=0, text="three"),
    BlockEnd(index=0, block=TextBlock(text="one two three")),
    Usage(usage=USAGE),
    Finish(reason=Stop()),
]


def recorded(chunks: list[Chunk]) -> list[Event]:
    events = [
        Event(type="assistant/chunk", seq=seq, time=0, data=AssistantChunk(turn=1, step=1, chunk=chunk))
        for seq, chunk in enumerate(chunks)
    ]
    message = Message(
        id="m", role="assistant", content=(TextBlock(text="one two three"),),
        source=ModelSource(provider="p", model="m"),
    )  # fmt: skip
    answer = AssistantMessage(turn=1, step=1, message=message, usage=USAGE)
    cited = tuple(range(len(chunks)))
    return [
        *events,
        Event(
            type="assistant/message", seq=len(chunks), time=0, data=answer, surface_op="append",
            source_event_seqs=cited,
        ),
    ]  # fmt: skip


def place(chunks: list[Chunk]) -> int | None:
    fault = stream_fault(recorded(chunks))
    return None if fault is None else fault[0].seq


def without(*indices: int) -> list[Chunk]:
    return [chunk for index, chunk in enumerate(WHOLE) if index not in indices]


def swapped(one: int, other: int) -> list[Chunk]:
    chunks = list(WHOLE)
    chunks[one], chunks[other] = chunks[other], chunks[one]
    return chunks


def test_a_whole_stream_is_fine() -> None:
    assert place(WHOLE) is None


@pytest.mark.parametrize(
    ("chunks", "at"),
    [
        (without(1), 1),
        (without(2), 2),
        (without(3), 3),
        (without(4), 4),
        (without(5), 5),
        (swapped(1, 2), 1),
        (swapped(3, 4), 3),
        ([*WHOLE[:2], ReasoningDelta(index=0, text="two "), *WHOLE[3:]], 2),
        ([*WHOLE[:4], WHOLE[3], *WHOLE[4:]], None),  # it says more than its end: told twice, and differently
        ([*WHOLE[:1], *WHOLE], 1),
    ],
)
def test_what_is_missing_or_out_of_place_is_found_there(chunks: list[Chunk], at: int | None) -> None:
    assert place(chunks) == at


def test_writers_that_say_less_are_not_asked_for_more() -> None:
    assert place(without(0, 4)) is None
    assert place(without(1, 2, 3)) is None


def test_an_answer_cites_its_stream_in_order() -> None:
    events = recorded(WHOLE)
    events[-1] = Event(
        type="assistant/message", seq=7, time=0, data=events[-1].data, surface_op="append",
        source_event_seqs=(0, 1, 3, 2, 4, 5, 6),
    )  # fmt: skip
    fault = stream_fault(events)
    assert fault is not None
    assert fault[0].seq == 2
