"""Replies of a scripted model: chunks, and what happens between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, final

import attrs
import trio
from msgspec import UNSET

from ..errors import ModelError, UsageError
from ..values._chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishAborted,
    FinishError,
    FinishReason,
    LlmFailure,
    MaxTokens,
    ReasoningDelta,
    Refused,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from ..values._json import FrozenJson, JsonValue, dump_json
from ..values._messages import ReasoningBlock, TextBlock, TokenUsage, ToolCallBlock

USAGE: Final = TokenUsage(input_tokens=10, output_tokens=5)
"""What a scripted reply says that it used, unless told otherwise."""

# --- what happens between chunks --------------------------------------------------------------------


@final
@attrs.frozen
class Sleep:
    """Let time pass; 0 is a bare checkpoint."""

    seconds: float = 0.0


@final
@attrs.frozen(eq=False)
class Gate:
    """Wait until somebody sets `opened`. `reached` is set when the stream has come here."""

    opened: trio.Event = attrs.field(factory=trio.Event)
    reached: trio.Event = attrs.field(factory=trio.Event)


@final
@attrs.frozen(eq=False)
class Raise:
    """Raise an exception out of `stream`."""

    error: BaseException


@final
@attrs.frozen
class Hang:
    """Wait until cancelled."""


@final
@attrs.frozen
class Stubborn:
    """Let time pass without hearing a cancel; what follows is emitted all the same."""

    seconds: float


@final
@attrs.frozen(eq=False)
class Call:
    """Call a plain function, such as one that cancels the agent at exactly this place."""

    fn: Callable[[], object]


@final
@attrs.frozen(kw_only=True)
class NumberedCall:
    """A tool call whose id is made when it is sent: `call-<request>-<n>`, both counted from 1."""

    index: int
    number: int
    name: str
    arguments: str

    def expand(self, request: int) -> tuple[Chunk, ...]:
        """The chunks of this call in the reply to the model's request of that number."""
        return _call_chunks(self.index, f"call-{request}-{self.number}", self.name, self.arguments)


Step: TypeAlias = Chunk | Sleep | Gate | Raise | Hang | Stubborn | Call | NumberedCall
"""One thing that a scripted stream does."""

CallLike: TypeAlias = str | tuple[str, object] | tuple[str, object, str] | ToolCallBlock
"""A tool call: a name, `(name, arguments)`, `(name, arguments, id)`, or a block. Text is passed on as it is."""


def _call_chunks(index: int, call_id: str, name: str, arguments: str) -> tuple[Chunk, ...]:
    return (
        BlockStart(index=index, block_type="tool-call"),
        ToolCallDelta(index=index, id=call_id, name=name, arguments_delta=arguments),
        BlockEnd(index=index, block=ToolCallBlock(id=call_id, name=name, arguments=arguments)),
    )


def _raw_arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return dump_json({} if arguments is None else arguments).decode()


def _call_steps(index: int, number: int, call: CallLike) -> tuple[Step, ...]:
    if isinstance(call, ToolCallBlock):
        return _call_chunks(index, call.id, call.name, call.arguments)
    if isinstance(call, str):
        return (NumberedCall(index=index, number=number, name=call, arguments="{}"),)
    if len(call) == 3:
        return _call_chunks(index, call[2], call[0], _raw_arguments(call[1]))
    return (NumberedCall(index=index, number=number, name=call[0], arguments=_raw_arguments(call[1])),)


def _text_chunks(index: int, pieces: Iterable[str]) -> tuple[Chunk, ...]:
    texts = [piece for piece in pieces if piece]
    return (
        BlockStart(index=index, block_type="text"),
        *(TextDelta(index=index, text=text) for text in texts),
        BlockEnd(index=index, block=TextBlock(text="".join(texts))),
    )


def _reasoning_chunks(index: int, text: str) -> tuple[Chunk, ...]:
    return (
        BlockStart(index=index, block_type="reasoning"),
        ReasoningDelta(index=index, text=text),
        BlockEnd(index=index, block=ReasoningBlock(text=text)),
    )


def _failure(what: str | LlmFailure) -> LlmFailure:
    if isinstance(what, LlmFailure):
        return what
    return LlmFailure(message=f"scripted failure {what}", code=what)


# --- replies ----------------------------------------------------------------------------------------


@final
@attrs.frozen(eq=False)
class Reply:
    """What a scripted model does for one request: chunks, and what happens before and between them.

    Immutable; one reply may serve many requests.
    """

    steps: tuple[Step, ...]
    plain: bool = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for step in self.steps:
            if not isinstance(step, Step):
                raise UsageError(f"a reply is made of chunks and steps, not {step!r}")
        object.__setattr__(self, "plain", all(isinstance(step, Chunk) for step in self.steps))

    # --- answers

    @classmethod
    def chunks(cls, steps: Iterable[Step]) -> Reply:
        """Exactly these chunks and steps, nothing added."""
        return cls(tuple(steps))

    @classmethod
    def text(
        cls,
        *pieces: str,
        reasoning: str = "",
        signed: bool = False,
        usage: TokenUsage | None = USAGE,
        finish: FinishReason = Stop(),  # noqa: B008 - an immutable value
    ) -> Reply:
        """A text, one delta for each piece, after some reasoning if there is any.

        `signed` reasoning carries a replay state, so that it may be sent back; usage None leaves it out.
        """
        return cls._made(pieces, (), reasoning, signed=signed, usage=usage, finish=finish)

    @classmethod
    def tool_call(
        cls, name: str, arguments: object = None, *, id: str | None = None, text: str = ""
    ) -> Reply:
        """One tool call, perhaps after a text. Arguments that are a string are sent as they stand."""
        return cls.tool_calls([(name, arguments) if id is None else (name, arguments, id)], text=text)

    @classmethod
    def tool_calls(
        cls,
        calls: Sequence[CallLike],
        *,
        text: str = "",
        reasoning: str = "",
        signed: bool = False,
        usage: TokenUsage | None = USAGE,
        finish: FinishReason = ToolCalls(),  # noqa: B008 - an immutable value
    ) -> Reply:
        """Several tool calls, perhaps after reasoning and a text."""
        pieces = (text,) if text else ()
        return cls._made(pieces, calls, reasoning, signed=signed, usage=usage, finish=finish)

    @classmethod
    def refusal(cls, *pieces: str) -> Reply:
        """The provider declines, with these words."""
        return cls.text(*pieces, finish=Refused())

    @classmethod
    def max_tokens(cls, *pieces: str, calls: Sequence[CallLike] = ()) -> Reply:
        """A text, and calls, cut off by the output cap."""
        return cls._made(pieces, calls, "", signed=False, usage=USAGE, finish=MaxTokens())

    @classmethod
    def empty(cls, finish: FinishReason = Stop()) -> Reply:  # noqa: B008 - an immutable value
        """No block at all."""
        return cls((Usage(usage=USAGE), Finish(reason=finish)))

    # --- faults

    @classmethod
    def fail(cls, error: str | BaseException, *, after: Iterable[Step] = ()) -> Reply:
        """Raise, after some chunks or at once. A string is the code of a `ModelError`."""
        if isinstance(error, str):
            error = ModelError(f"scripted failure {error}", code=error)
        return cls((*after, Raise(error)))

    @classmethod
    def finish_error(cls, failure: str | LlmFailure, *, after: Iterable[Step] = ()) -> Reply:
        """A stream that reports its failure in band, by its last chunk. A string is the failure's code."""
        return cls((*after, Finish(reason=FinishError(failure=_failure(failure)))))

    @classmethod
    def finish_aborted(cls, failure: str | LlmFailure = "ABORTED", *, after: Iterable[Step] = ()) -> Reply:
        """A stream that the provider broke off, and says so."""
        return cls((*after, Finish(reason=FinishAborted(failure=_failure(failure)))))

    @classmethod
    def hang(cls, *, after: Iterable[Step] = ()) -> Reply:
        """Some chunks, then silence until cancelled."""
        return cls((*after, Hang()))

    # --- the same reply, disturbed

    def delayed(self, seconds: float) -> Reply:
        """The same after some time."""
        return Reply((Sleep(seconds), *self.steps))

    def gated(self, gate: Gate | trio.Event) -> Reply:
        """The same once the gate is open."""
        return Reply((gate if isinstance(gate, Gate) else Gate(gate), *self.steps))

    def paced(self, seconds: float = 0.0) -> Reply:
        """The same with a wait before each chunk; 0 is a bare checkpoint."""
        paced: list[Step] = []
        for step in self.steps:
            if isinstance(step, (Chunk, NumberedCall)):
                paced.append(Sleep(seconds))
            paced.append(step)
        return Reply(tuple(paced))

    def cut(self, count: int, then: Step | None = None) -> Reply:
        """The first `count` steps, and then something else: nothing (a stream without end), `Raise`, `Hang`, ..."""
        return Reply((*self.steps[:count], *(() if then is None else (then,))))

    @classmethod
    def _made(
        cls,
        pieces: Sequence[str],
        calls: Sequence[CallLike],
        reasoning: str,
        *,
        signed: bool,
        usage: TokenUsage | None,
        finish: FinishReason,
    ) -> Reply:
        steps: list[Step] = []
        index = 0
        if reasoning:
            steps += _reasoning_chunks(index, reasoning)
            index += 1
        if any(pieces):
            steps += _text_chunks(index, pieces)
            index += 1
        for number, call in enumerate(calls, 1):
            steps += _call_steps(index, number, call)
            index += 1
        if usage is not None:
            steps.append(Usage(usage=usage))
        states: list[JsonValue] = [None] * index
        if reasoning and signed:
            states[0] = {"signature": "scripted"}
        replay_state = FrozenJson.of({"response": None, "blocks": states}) if signed else UNSET
        steps.append(Finish(reason=finish, replay_state=replay_state))
        return cls(tuple(steps))
