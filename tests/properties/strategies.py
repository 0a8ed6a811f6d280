"""Legal logs of every shape: a generated script drives a real session, one legal act after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from hypothesis import strategies as st

from tests.unit.session.samples import MODEL, Clock, MemoryWriter, header
from trio_agents.session import (
    AssistantChunk,
    AssistantMessage,
    Draft,
    Event,
    Header,
    InboxSpliced,
    Payload,
    Pen,
    Replace,
    RequestConfig,
    RequestContext,
    RequestHeader,
    Session,
    StepEnd,
    StepStart,
    ToolCall,
    ToolFailure,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    open_log,
    register_event,
)
from trio_agents.session._ledger import Writer
from trio_agents.values import (
    BY_USER,
    COMPLETED,
    Aborted,
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishError,
    FrozenJson,
    LlmFailure,
    MaxTokens,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    Stop,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
    ToolSource,
    Usage,
    UserMessage,
)

texts = st.text(max_size=8) | st.sampled_from(
    ["\u2028", "\ud83d", "\N{GRINNING FACE}", "\x00", '"\\', "\x85\r\n"]
)


@register_event
class Marked(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plugin notes."""

    wire_type: ClassVar[str] = "property/marked"
    ignorable: ClassVar[bool] = True
    value: FrozenJson


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """Any chunk, at one of few indexes."""
    index = draw(st.integers(0, 2))
    block = st.sampled_from(
        [TextBlock(text="whole"), ReasoningBlock(text="r"), ToolCallBlock(id="c", name="n", arguments="{}")]
    )
    failure = LlmFailure(message="m", code="C")
    return draw(
        st.one_of(
            st.builds(TextDelta, index=st.just(index), text=texts),
            st.builds(ReasoningDelta, index=st.just(index), text=texts),
            st.builds(
                ToolCallDelta, index=st.just(index), id=st.sampled_from(["", "c"]), arguments_delta=texts
            ),
            st.builds(
                ToolCallDelta, index=st.just(index), id=st.just("c"), name=texts, arguments_delta=texts
            ),
            st.builds(
                BlockStart, index=st.just(index), block_type=st.sampled_from(["text", "tool-call", "later"])
            ),
            st.builds(BlockEnd, index=st.just(index), block=block),
            st.just(Usage(usage=TokenUsage(input_tokens=index, output_tokens=1))),
            st.builds(
                Finish,
                reason=st.sampled_from([Stop(), MaxTokens(), FinishError(failure=failure)]),
                replay_state=st.sampled_from([FrozenJson.of({"blocks": [1, 2]}), msgspec.UNSET]),
            ),
        )
    )


class Script:
    """Drives a session through legal acts, each chosen by a number."""

    def __init__(self, writer: Writer | None = None) -> None:
        self.writer = MemoryWriter() if writer is None else writer
        self.session: Session
        self.pen: Pen
        self.session, self.pen = open_log(header(), writer=self.writer, now=Clock())
        self.count = 0
        self.stream: list[int] = []

    def fresh(self) -> str:
        self.count += 1
        return f"id-{self.count}"

    def user(self, text: str) -> UserMessage:
        return UserMessage.from_text(text, id=self.fresh())

    def acts(self) -> list[Callable[[str, Chunk], None]]:
        """What may come next."""
        state = self.session.brackets
        acts: list[Callable[[str, Chunk], None]] = [self.insert, self.mark, self.replace]
        if len(self.pen.pending):
            acts += [self.splice, self.move]
        if state.turn is None:
            return [*acts, self.start_turn, self.start_turn]
        if state.step is None:
            return [*acts, self.claim, self.start_step, self.start_step, self.end_turn]
        acts += [self.chunk, self.chunk, self.chunk, self.say, self.answer, self.header]
        if any(call.seq is None for call in state.calls):
            acts += [self.call, self.call]
        if any(call.seq is not None for call in state.calls):
            return [*acts, self.result, self.result, self.start]
        return [*acts, self.end_step]

    def run(self, moves: list[tuple[int, str, Chunk]]) -> None:
        """Act once for every move."""
        for choice, text, chunk in moves:
            acts = self.acts()
            acts[choice % len(acts)](text, chunk)

    # --- acts -------------------------------------------------------------------------------------

    @property
    def at(self) -> dict[str, Any]:
        return {"turn": self.session.open_turn, "step": self.session.open_step}

    def insert(self, text: str, chunk: Chunk) -> None:
        target: Any = "next-turn" if len(text) % 2 else "next-step"
        self.pen.append(InboxSpliced(target=target, start=0, inserted=(self.user(text),)))

    def splice(self, text: str, chunk: Chunk) -> None:
        target: Any = "next-turn" if self.pen.pending.next_turn else "next-step"
        self.pen.append(InboxSpliced(target=target, start=0, removed_count=1, outcome="canceled"))

    def move(self, text: str, chunk: Chunk) -> None:
        pending = self.pen.pending
        if pending.next_turn:
            self.pen.append(
                InboxSpliced(target="next-turn", start=0, removed_count=1, outcome="moved"),
                InboxSpliced(
                    target="next-step", start=pending.length("next-step"), inserted=pending.next_turn[:1]
                ),
            )

    def claim(self, text: str, chunk: Chunk) -> None:
        pending = self.pen.pending
        for target in ("next-step", "next-turn"):
            length = pending.length(target)
            if length:
                self.pen.append(InboxSpliced(target=target, start=0, removed_count=length))

    def mark(self, text: str, chunk: Chunk) -> None:
        self.session.append(Marked(value=FrozenJson.of({"text": text})))

    def replace(self, text: str, chunk: Chunk) -> None:
        surface = self.session.surface
        if len(surface) >= 3:
            start, end = surface[0], surface[1]
            self.pen.append(Draft(self.user(text), Replace(start=start, end=end), (start, end)))

    def start_turn(self, text: str, chunk: Chunk) -> None:
        self.pen.append(TurnStart(turn=self.session.turn + 1))

    def end_turn(self, text: str, chunk: Chunk) -> None:
        reason = COMPLETED if len(text) % 2 else Aborted(reason=BY_USER)
        assert self.session.open_turn is not None
        self.pen.append(TurnEnd(turn=self.session.open_turn, reason=reason))

    def start_step(self, text: str, chunk: Chunk) -> None:
        claimed = [message for _, message in self.pen.pending.claimed]
        step = self.session.brackets.last_step + 1
        assert self.session.open_turn is not None
        self.pen.append(StepStart(turn=self.session.open_turn, step=step), *claimed)
        self.stream = []

    def end_step(self, text: str, chunk: Chunk) -> None:
        self.pen.append(StepEnd(**self.at))

    def say(self, text: str, chunk: Chunk) -> None:
        self.pen.append(self.user(text))

    def chunk(self, text: str, chunk: Chunk) -> None:
        [event] = self.pen.append(AssistantChunk(chunk=chunk, **self.at))
        self.stream.append(event.seq)

    def header(self, text: str, chunk: Chunk) -> None:
        config = RequestConfig(provider="p", model="m")
        self.pen.append(
            RequestHeader(header=Header(config=config, system=text or msgspec.UNSET), reason="change"),
            RequestContext(provider="p", model="m", context_window=len(text)),
        )

    def answer(self, text: str, chunk: Chunk) -> None:
        calls = [ToolCallBlock(id=self.fresh(), name="n", arguments=text) for _ in range(len(text) % 3)]
        content = (*([TextBlock(text=text)] if text else []), *calls)
        message = Message(id=self.fresh(), role="assistant", content=content, source=MODEL)
        self.pen.append(
            Draft(AssistantMessage(message=message, **self.at), source_event_seqs=tuple(self.stream))
        )
        self.stream = []

    def call(self, text: str, chunk: Chunk) -> None:
        call = next(call for call in self.session.brackets.calls if call.seq is None)
        tracked: Any = {"tracked": True} if len(text) % 2 else {}
        self.pen.append(ToolCall(call_id=call.call_id, name="n", arguments=text, **tracked, **self.at))

    def start(self, text: str, chunk: Chunk) -> None:
        for call in self.session.brackets.calls:
            if call.seq is not None and not call.started:
                self.pen.append(ToolStarted(call_id=call.call_id, **self.at))
                return

    def result(self, text: str, chunk: Chunk) -> None:
        call = next(call for call in self.session.brackets.calls if call.seq is not None)
        assert call.seq is not None
        block = ToolResultBlock(tool_call_id=call.call_id, content=(TextBlock(text=text),), is_error=not text)
        message = Message(
            id=self.fresh(), role="user", content=(block,), source=ToolSource(call_id=call.call_id)
        )
        error: Any = {} if text else {"error": ToolFailure(name="E", code="ABORTED")}
        self.pen.append(Draft(ToolResult(message=message, **error, **self.at), source_event_seqs=(call.seq,)))


moves = st.lists(st.tuples(st.integers(0, 10_000), texts, chunks()), max_size=24)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """The events of a legal log, perhaps with a turn, a step or calls open at its end."""
    script = Script()
    script.run(draw(moves))
    return list(script.session.events)
