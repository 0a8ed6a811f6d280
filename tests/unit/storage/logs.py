"""Logs to store: events of every usual kind, and ways to write and look at them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from trio_agents.session import (
    AssistantChunk,
    AssistantMessage,
    Event,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from trio_agents.session._codec import encode_event
from trio_agents.session._packing import ChunkRun
from trio_agents.storage import JsonlStore, LogWriter, SessionStore
from trio_agents.values import (
    COMPLETED,
    Message,
    ModelSource,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolResultBlock,
    ToolSource,
    UserMessage,
)


def header(session_id: str = "s1", **fields: object) -> SessionHeader:
    return SessionHeader(id=session_id, created_at=1_700_000_000_000, **fields)  # type: ignore[arg-type]


class Script:
    """Makes events in order; knows the next number."""

    def __init__(self, start: int = 0) -> None:
        self.seq = start
        self.turn = 0

    def event(self, data: Any, **fields: Any) -> Event:
        event = Event(
            type=data.wire_type, seq=self.seq, time=1_700_000_000_000 + self.seq, data=data, **fields
        )
        self.seq += 1
        return event

    def chunks(self, *texts: str) -> list[Event]:
        return [
            self.event(AssistantChunk(turn=self.turn, step=1, chunk=TextDelta(index=0, text=text)))
            for text in texts
        ]

    def open_turn(self, text: str = "hello") -> list[Event]:
        self.turn += 1
        return [
            self.event(TurnStart(turn=self.turn)),
            self.event(StepStart(turn=self.turn, step=1)),
            self.event(UserMessage.from_text(text, id=f"u{self.seq}"), surface_op="append"),
        ]

    def call(self, call_id: str) -> list[Event]:
        answer = AssistantMessage(
            turn=self.turn,
            step=1,
            message=Message(
                id=f"a{self.seq}",
                role="assistant",
                content=(ToolCallBlock(id=call_id, name="look", arguments="{}"),),
                source=ModelSource(provider="p", model="m"),
            ),
        )
        return [
            self.event(answer, surface_op="append", source_event_seqs=()),
            self.event(ToolCall(turn=self.turn, step=1, call_id=call_id, name="look", arguments="{}")),
        ]

    def result(self, call_id: str, call_seq: int) -> list[Event]:
        message = Message(
            id=f"r{self.seq}",
            role="user",
            content=(
                ToolResultBlock(tool_call_id=call_id, content=(TextBlock(text="seen"),), is_error=False),
            ),
            source=ToolSource(call_id=call_id),
        )
        data = ToolResult(turn=self.turn, step=1, message=message)
        return [self.event(data, surface_op="append", source_event_seqs=(call_seq,))]

    def close_turn(self) -> list[Event]:
        return [
            self.event(StepEnd(turn=self.turn, step=1)),
            self.event(TurnEnd(turn=self.turn, reason=COMPLETED)),
        ]

    def whole_turn(self, text: str = "hello", chunks: int = 5) -> list[Event]:
        return [
            *self.open_turn(text),
            *self.chunks(*(f"piece {i} \u2028 \N{SNOWMAN}" for i in range(chunks))),
            *self.close_turn(),
        ]


def write(writer: LogWriter, events: Sequence[Event]) -> None:
    writer.write(events, [encode_event(event) for event in events])


def write_each(writer: LogWriter, events: Iterable[Event]) -> None:
    for event in events:
        write(writer, [event])


def unpacked(records: Iterable[Event | ChunkRun]) -> list[Event]:
    events: list[Event] = []
    for record in records:
        events += record.expand() if isinstance(record, ChunkRun) else [record]
    return events


@asynccontextmanager
async def serving(store: SessionStore) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(store.serve)
        yield
        nursery.cancel_scope.cancel()


async def stored(
    store: SessionStore, events: Sequence[Event], session_id: str = "s1", **fields: object
) -> None:
    """Write a log and close it."""
    writer = store.create(header(session_id, **fields))
    write(writer, events)
    await writer.aclose()


async def load_events(store: SessionStore, session_id: str = "s1") -> list[Event]:
    opened = await store.open(session_id)
    await opened.writer.aclose()
    return unpacked(opened.events)


def log_of(store: JsonlStore, session_id: str = "s1") -> Path:
    """The one log file of a session."""
    (path,) = [
        path
        for path in Path(store.root).glob(f"*/{session_id}/session.jsonl*")
        if not path.name.endswith(".tmp")
    ]
    return path


def names_beside(path: Path) -> list[str]:
    return sorted(name.name for name in path.parent.iterdir())
