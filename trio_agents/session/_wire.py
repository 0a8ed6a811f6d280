"""The fast way from a line to an event: one typed decode of the whole line, for the frequent types.

Open families cost a call into Python for every member (3-5 us). The structs here spell the families out as closed
unions, in which msgspec decodes by itself, and refuse every field they do not know. So what they accept is exact;
whatever they refuse goes the slow way in `_codec`, which decides whether it is bad or only unusual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ..values import _causes as causes, _chunks as chunks, _messages as messages
from ..values._json import MAX_SAFE_INTEGER, FrozenJson, decode_hook
from ._events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    InboxSpliced,
    Replace,
    StepEnd,
    StepStart,
    ToolCall,
    ToolFailure,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
)
from ._shapes import sources_fault

Nat: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
Safe: TypeAlias = Annotated[int, Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]

LONG_RUN: Final = 32
"""From this length on, sources that are consecutive are held as a range: a message costs no memory per chunk."""


class Inexact(ValueError):
    """A line that only the slow way can judge."""


def compact(seqs: tuple[int, ...] | range) -> tuple[int, ...] | range:
    """The form in which a log holds sources: a range if they are many and consecutive, else a tuple."""
    if len(seqs) >= LONG_RUN and seqs[-1] - seqs[0] == len(seqs) - 1:
        run = range(seqs[0], seqs[-1] + 1)
        if type(seqs) is range or seqs == tuple(run):
            return run
    return seqs if type(seqs) is tuple else tuple(seqs)


# --- closed families ------------------------------------------------------------------------------

_Block: TypeAlias = (
    messages.TextBlock | messages.ReasoningBlock | messages.ImageBlock | messages.ToolCallBlock
)
_Source: TypeAlias = (
    messages.UserSource
    | messages.ModelSource
    | messages.ToolSource
    | messages.GoalSource
    | messages.AgentSource
    | messages.WebhookSource
    | messages.PluginSource
)
_Cause: TypeAlias = causes.ByUser | causes.ByParent | causes.ByHook | causes.Disposed
_Stopped: TypeAlias = (
    chunks.Stop
    | chunks.ToolCalls
    | chunks.MaxTokens
    | chunks.Refused
    | chunks.FinishAborted
    | chunks.FinishError
)


class _Exact(Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """Base of the structs that take no unknown field."""


class _Aborted(_Exact, frozen=True, kw_only=True, gc=False, tag_field="kind", tag="aborted"):
    reason: _Cause


_End: TypeAlias = (
    causes.Completed
    | causes.Blocked
    | causes.HitMaxTokens
    | causes.Refusal
    | causes.HitMaxRequests
    | causes.Interrupted
    | causes.Failed
    | _Aborted
)


class _Turn(_Exact, frozen=True, kw_only=True, gc=False):
    turn: Count


class _TurnEnd(_Exact, frozen=True, kw_only=True, gc=False):
    turn: Count
    reason: _End


class _Step(_Exact, frozen=True, kw_only=True, gc=False):
    turn: Count
    step: Count


class _UserMessage(_Exact, frozen=True, kw_only=True, gc=False):
    id: Text
    role: Literal["user"]
    content: tuple[_Block, ...]
    source: _Source


class _ModelMessage(_Exact, frozen=True, kw_only=True, gc=False):
    id: Text
    role: Literal["assistant"]
    content: tuple[_Block, ...]
    source: messages.ModelSource


class _Answer(_Exact, frozen=True, kw_only=True, gc=False):
    turn: int
    step: int
    message: _ModelMessage
    usage: messages.TokenUsage | UnsetType = UNSET
    interrupted: Literal[True] | UnsetType = UNSET


class _ResultBlock(_Exact, frozen=True, kw_only=True, gc=False, tag_field="type", tag="tool-result"):
    tool_call_id: Text
    content: tuple[_Block, ...]
    is_error: bool | UnsetType = UNSET


class _ResultMessage(_Exact, frozen=True, kw_only=True, gc=False):
    id: Text
    role: Literal["user"]
    content: tuple[_ResultBlock]
    source: messages.ToolSource


class _Result(_Exact, frozen=True, kw_only=True, gc=False):
    turn: int
    step: int
    message: _ResultMessage
    error: ToolFailure | UnsetType = UNSET
    meta: FrozenJson | UnsetType = UNSET


class _BlockEnd(_Exact, frozen=True, kw_only=True, gc=False, tag_field="type", tag="block-end"):
    index: int
    block: _Block


class _Finish(_Exact, frozen=True, kw_only=True, gc=False, tag_field="type", tag="finish"):
    reason: _Stopped
    replay_state: FrozenJson | UnsetType = UNSET


class _Chunk(_Exact, frozen=True, kw_only=True, gc=False):
    turn: int
    step: int
    chunk: (
        chunks.BlockStart
        | chunks.TextDelta
        | chunks.ReasoningDelta
        | chunks.ToolCallDelta
        | chunks.Usage
        | _BlockEnd
        | _Finish
    )


class _Splice(_Exact, frozen=True, kw_only=True, gc=False):
    target: Literal["next-turn", "next-step"]
    start: int
    inserted: tuple[_UserMessage, ...]
    removed_count: int | UnsetType = UNSET
    outcome: Literal["canceled", "moved"] | UnsetType = UNSET


class _OpenUserMessage(_Exact, frozen=True, kw_only=True, gc=False):
    """A message whose source or content may be of a kind that is not known here."""

    id: Text
    role: Literal["user"]
    content: tuple[messages.ContentBlock, ...]
    source: messages.MessageSource


class _OpenSplice(_Exact, frozen=True, kw_only=True, gc=False):
    """A splice of such messages."""

    target: Literal["next-turn", "next-step"]
    start: int
    inserted: tuple[_OpenUserMessage, ...]
    removed_count: int | UnsetType = UNSET
    outcome: Literal["canceled", "moved"] | UnsetType = UNSET


# --- envelopes ------------------------------------------------------------------------------------


class Line(_Exact, frozen=True, kw_only=True, gc=False):
    """A line as it was decoded. `to_event` makes the event that it stands for, now or when somebody asks."""

    seq: Nat
    time: Safe
    ignorable: Literal[True] | UnsetType = UNSET


class _OnSurface(Line, frozen=True, kw_only=True, gc=False):
    surface_op: Literal["append"] | Replace
    source_event_seqs: tuple[Nat, ...] | UnsetType = UNSET


class _TurnStartLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="turn/start"):
    data: _Turn


class _TurnEndLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="turn/end"):
    data: _TurnEnd


class _StepStartLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="step/start"):
    data: _Step


class _StepEndLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="step/end"):
    data: _Step


class _ToolCallLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="tool/call"):
    data: ToolCall


class _ToolStartedLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="tool/started"):
    data: ToolStarted


class _ChunkLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="assistant/chunk"):
    data: _Chunk


class SpliceLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="agent/inbox/spliced"):
    data: _Splice


class _UserLine(_OnSurface, frozen=True, kw_only=True, gc=False, tag_field="type", tag="user/message"):
    data: _UserMessage


class _AnswerLine(_OnSurface, frozen=True, kw_only=True, gc=False, tag_field="type", tag="assistant/message"):
    data: _Answer


class _ResultLine(_OnSurface, frozen=True, kw_only=True, gc=False, tag_field="type", tag="tool/result"):
    data: _Result


class RawLine(Line, frozen=True, kw_only=True, gc=False):
    """Any line without surface fields, its payload not looked at."""

    type: str
    data: Raw


class _OpenUserLine(_OnSurface, frozen=True, kw_only=True, gc=False, tag_field="type", tag="user/message"):
    data: _OpenUserMessage


class _OpenSpliceLine(Line, frozen=True, kw_only=True, gc=False, tag_field="type", tag="agent/inbox/spliced"):
    data: _OpenSplice


_Line: TypeAlias = (
    _TurnStartLine
    | _TurnEndLine
    | _StepStartLine
    | _StepEndLine
    | _ToolCallLine
    | _ToolStartedLine
    | _ChunkLine
    | SpliceLine
    | _UserLine
    | _AnswerLine
    | _ResultLine
)

LATER: Final = frozenset(
    (
        _TurnStartLine,
        _TurnEndLine,
        _StepStartLine,
        _StepEndLine,
        _ToolCallLine,
        _ToolStartedLine,
        _ChunkLine,
        SpliceLine,
    )
)
"""The lines that may be kept and made into events when somebody reads them."""

INBOX_LINES: Final = frozenset((SpliceLine, _TurnStartLine, _TurnEndLine))
"""Of them those from which the inbox lists can be told."""

# --- from wire structs to the vocabulary ----------------------------------------------------------

# The builders take the structs above as Any: they are called once per line, and a chain of isinstance to narrow
# the union would cost more than the decoding.


def _as_it_is(kind: str) -> Callable[[Any], Event]:
    def build(line: Any) -> Event:
        return Event(type=kind, seq=line.seq, time=line.time, data=line.data, ignorable=line.ignorable)

    return build


def _turn_start(line: Any) -> Event:
    data = TurnStart(turn=line.data.turn)
    return Event(type="turn/start", seq=line.seq, time=line.time, data=data, ignorable=line.ignorable)


def _step_start(line: Any) -> Event:
    data = StepStart(turn=line.data.turn, step=line.data.step)
    return Event(type="step/start", seq=line.seq, time=line.time, data=data, ignorable=line.ignorable)


def _step_end(line: Any) -> Event:
    data = StepEnd(turn=line.data.turn, step=line.data.step)
    return Event(type="step/end", seq=line.seq, time=line.time, data=data, ignorable=line.ignorable)


def _turn_end(line: Any) -> Event:
    reason = line.data.reason
    if type(reason) is _Aborted:
        reason = causes.Aborted(reason=reason.reason)
    data = TurnEnd(turn=line.data.turn, reason=reason)
    return Event(type="turn/end", seq=line.seq, time=line.time, data=data, ignorable=line.ignorable)


def _chunk(line: Any) -> Event:
    wire = line.data
    chunk = wire.chunk
    if type(chunk) is _BlockEnd:
        chunk = chunks.BlockEnd(index=chunk.index, block=chunk.block)
    elif type(chunk) is _Finish:
        chunk = chunks.Finish(reason=chunk.reason, replay_state=chunk.replay_state)
    data = AssistantChunk(turn=wire.turn, step=wire.step, chunk=chunk)
    return Event(type="assistant/chunk", seq=line.seq, time=line.time, data=data, ignorable=line.ignorable)


def user_message(wire: Any) -> messages.UserMessage:
    """The message that was decoded as part of a line."""
    return messages.UserMessage(id=wire.id, content=wire.content, source=wire.source)


def _user(line: Any) -> Event:
    return _on_surface("user/message", line, user_message(line.data))


def _answer(line: Any) -> Event:
    wire = line.data
    message = wire.message
    if not message.source.provider or not message.source.model:
        raise Inexact
    data = AssistantMessage(
        turn=wire.turn,
        step=wire.step,
        message=messages.Message(
            id=message.id, role="assistant", content=message.content, source=message.source
        ),
        usage=wire.usage,
        interrupted=wire.interrupted,
    )
    return _on_surface("assistant/message", line, data)


def _result(line: Any) -> Event:
    wire = line.data
    message = wire.message
    (block,) = message.content
    if block.tool_call_id != message.source.call_id:
        raise Inexact
    content = messages.ToolResultBlock(
        tool_call_id=block.tool_call_id, content=block.content, is_error=block.is_error
    )
    data = ToolResult(
        turn=wire.turn,
        step=wire.step,
        message=messages.Message(id=message.id, role="user", content=(content,), source=message.source),
        error=wire.error,
        meta=wire.meta,
    )
    return _on_surface("tool/result", line, data)


def _splice(line: Any) -> Event:
    wire = line.data
    data = InboxSpliced(
        target=wire.target,
        start=wire.start,
        removed_count=wire.removed_count,
        inserted=tuple(map(user_message, wire.inserted)),
        outcome=wire.outcome,
    )
    return Event(
        type="agent/inbox/spliced", seq=line.seq, time=line.time, data=data, ignorable=line.ignorable
    )


def _on_surface(kind: str, line: Any, data: Any) -> Event:
    op, seqs = line.surface_op, line.source_event_seqs
    if seqs is not UNSET:
        if sources_fault(seqs, line.seq, may_be_empty=kind == "assistant/message") is not None:
            raise Inexact
        if len(seqs) >= LONG_RUN:
            seqs = compact(seqs)
    if op != "append" and not (0 <= op.start <= MAX_SAFE_INTEGER and 0 <= op.end <= MAX_SAFE_INTEGER):
        raise Inexact
    return Event(
        type=kind,
        seq=line.seq,
        time=line.time,
        data=data,
        surface_op=op,
        source_event_seqs=seqs,
        ignorable=line.ignorable,
    )


BUILDERS: Final[dict[type[Any], Callable[[Any], Event]]] = {
    _TurnStartLine: _turn_start,
    _TurnEndLine: _turn_end,
    _StepStartLine: _step_start,
    _StepEndLine: _step_end,
    _ToolCallLine: _as_it_is("tool/call"),
    _ToolStartedLine: _as_it_is("tool/started"),
    _ChunkLine: _chunk,
    SpliceLine: _splice,
    _UserLine: _user,
    _AnswerLine: _answer,
    _ResultLine: _result,
}

_lines: Final = msgspec.json.Decoder(_Line, dec_hook=decode_hook)
_open_users: Final = msgspec.json.Decoder(_OpenUserLine, dec_hook=decode_hook)
_open_splices: Final = msgspec.json.Decoder(_OpenSpliceLine, dec_hook=decode_hook)


def to_event(line: Line) -> Event:
    """The event that a decoded line stands for.

    Raises:
        ValueError, UsageError: it is none that is exact. Cannot happen for lines that `_bulk` left as they were.
    """
    return BUILDERS[type(line)](line)


_TAGS: Final = frozenset(str(kind.__struct_config__.tag).encode() for kind in BUILDERS)
_HEAD: Final = b'{"type":"'


def is_frequent(line: bytes) -> bool:
    """Whether a line may be of a frequent type. Nearly every line begins with its type, which can then be told."""
    if line.startswith(_HEAD):
        return line[len(_HEAD) : line.find(b'"', len(_HEAD))] in _TAGS
    return True


def decode_frequent(line: bytes) -> Event:
    """The event in a line of a frequent type and of exactly the present shape.

    Raises:
        ValueError, UsageError: it is anything else, good or bad.
    """
    return to_event(_lines.decode(line))


def decode_open(kind: str, line: bytes) -> Event:
    """The same for users' messages whose source or content is of a kind that is not known here.

    Raises:
        ValueError, UsageError: it is anything else, good or bad.
    """
    if kind == "user/message":
        return _user(_open_users.decode(line))
    if kind == "agent/inbox/spliced":
        return _splice(_open_splices.decode(line))
    raise Inexact
