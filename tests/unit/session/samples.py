"""A writer that keeps what it is given, and the events of an ordinary turn."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from trio_agents.session import (
    AssistantChunk,
    AssistantMessage,
    Draft,
    Event,
    InboxSpliced,
    Pen,
    Session,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    open_log,
)
from trio_agents.values import (
    COMPLETED,
    Finish,
    Message,
    ModelSource,
    Stop,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolResultBlock,
    ToolSource,
    UserMessage,
)


class MemoryWriter:
    """Keeps every batch; raises `refuse` instead while it is set."""

    def __init__(self) -> None:
        self.batches: list[tuple[tuple[Event, ...], tuple[bytes, ...]]] = []
        self.refuse: BaseException | None = None
        self.barriers = 0

    @property
    def is_dirty(self) -> bool:
        return bool(self.batches)

    @property
    def lines(self) -> list[bytes]:
        return [line for _, lines in self.batches for line in lines]

    def write(self, events: Sequence[Event], lines: Sequence[bytes]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.batches.append((tuple(events), tuple(lines)))

    async def barrier(self) -> None:
        await trio.lowlevel.checkpoint()
        self.barriers += 1


class Clock:
    """Milliseconds that go on by one at every look."""

    def __init__(self) -> None:
        self.time = 1_000

    def __call__(self) -> int:
        self.time += 1
        return self.time


def header(**fields: object) -> SessionHeader:
    return SessionHeader(**{"id": "s", "created_at": 1, **fields})  # type: ignore[arg-type]


def opened(**options: object) -> tuple[Session, Pen, MemoryWriter]:
    """A fresh session with its pen and its writer."""
    writer = MemoryWriter()
    session, pen = open_log(header(), writer=writer, now=Clock(), **options)  # type: ignore[arg-type]
    return session, pen, writer


def user(text: str = "hello", id: str | None = None) -> UserMessage:
    return UserMessage.from_text(text, id=id)


MODEL = ModelSource(provider="p", model="m")


def answer(turn: int, step: int, *content: object, id: str = "a", **fields: object) -> AssistantMessage:
    message = Message(id=id, role="assistant", content=content, source=MODEL)  # type: ignore[arg-type]
    return AssistantMessage(turn=turn, step=step, message=message, **fields)  # type: ignore[arg-type]


def asks(*call_ids: str) -> tuple[ToolCallBlock, ...]:
    return tuple(ToolCallBlock(id=call_id, name="tool", arguments="{}") for call_id in call_ids)


def called(turn: int, step: int, call_id: str, *, tracked: bool = False) -> ToolCall:
    fields = {"tracked": True} if tracked else {}
    return ToolCall(turn=turn, step=step, call_id=call_id, name="tool", arguments="{}", **fields)  # type: ignore[arg-type]


def started(turn: int, step: int, call_id: str) -> ToolStarted:
    return ToolStarted(turn=turn, step=step, call_id=call_id)


def result(turn: int, step: int, call_id: str, text: str = "ok", **fields: object) -> ToolResult:
    block = ToolResultBlock(tool_call_id=call_id, content=(TextBlock(text=text),), is_error=False)
    message = Message(id=f"r-{call_id}", role="user", content=(block,), source=ToolSource(call_id=call_id))
    return ToolResult(turn=turn, step=step, message=message, **fields)  # type: ignore[arg-type]


def delta(turn: int, step: int, text: str, index: int = 0) -> AssistantChunk:
    return AssistantChunk(turn=turn, step=step, chunk=TextDelta(index=index, text=text))


def insert(*messages: UserMessage, target: str = "next-turn", start: int = 0) -> InboxSpliced:
    return InboxSpliced(target=target, start=start, inserted=messages)  # type: ignore[arg-type]


def claim(count: int = 1, target: str = "next-turn", start: int = 0) -> InboxSpliced:
    return InboxSpliced(target=target, start=start, removed_count=count)  # type: ignore[arg-type]


def write_turn(pen: Pen, turn: int, text: str = "hello", deltas: Sequence[str] = ("He", "l", "lo")) -> None:
    """A whole turn: a prompt, a streamed answer that asks for one call, its result, a last answer."""
    session = pen.session
    message = user(text, id=f"u-{turn}")
    pen.append(insert(message))
    pen.append(TurnStart(turn=turn))
    pen.append(claim())
    pen.append(StepStart(turn=turn, step=1), message)
    first = len(session.events)
    for piece in deltas:
        pen.append(delta(turn, 1, piece))
    pen.append(AssistantChunk(turn=turn, step=1, chunk=Finish(reason=Stop())))
    cited = tuple(range(first, len(session.events)))
    content = (TextBlock(text="".join(deltas)), *asks(f"c-{turn}"))
    pen.append(Draft(answer(turn, 1, *content, id=f"a-{turn}"), source_event_seqs=cited))
    [call] = pen.append(called(turn, 1, f"c-{turn}", tracked=True))
    pen.append(started(turn, 1, f"c-{turn}"))
    pen.append(Draft(result(turn, 1, f"c-{turn}"), source_event_seqs=(call.seq,)))
    pen.append(StepEnd(turn=turn, step=1))
    pen.append(StepStart(turn=turn, step=2))
    pen.append(Draft(answer(turn, 2, TextBlock(text="done"), id=f"b-{turn}"), source_event_seqs=()))
    pen.append(StepEnd(turn=turn, step=2), TurnEnd(turn=turn, reason=COMPLETED))
