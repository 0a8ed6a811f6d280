"""The lines of the benchmark logs as typed values and nothing more: the least that anybody who reads them has to do."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec


class _Part(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Base of what a line is made of."""


class _Turn(_Part, frozen=True, gc=False, kw_only=True):
    turn: int


class _Step(_Part, frozen=True, gc=False, kw_only=True):
    turn: int
    step: int


class _Kind(_Part, frozen=True, gc=False, kw_only=True):
    kind: str


class _TurnEnd(_Part, frozen=True, gc=False, kw_only=True):
    turn: int
    reason: _Kind


class _Text(_Part, frozen=True, gc=False, kw_only=True, tag_field="type", tag="text"):
    text: str


class _Source(_Part, frozen=True, gc=False, kw_only=True):
    kind: str
    provider: str | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET


class _Message(_Part, frozen=True, gc=False, kw_only=True):
    id: str
    role: Literal["user", "assistant"]
    content: tuple[_Text, ...]
    source: _Source


class _Answer(_Part, frozen=True, gc=False, kw_only=True):
    turn: int
    step: int
    message: _Message


class _Splice(_Part, frozen=True, gc=False, kw_only=True):
    target: Literal["next-turn", "next-step"]
    start: int
    removed_count: int | msgspec.UnsetType = msgspec.UNSET
    inserted: tuple[_Message, ...]


class _Delta(_Part, frozen=True, gc=False, kw_only=True, tag_field="type", tag="text-delta"):
    index: int
    text: str


class _Finish(_Part, frozen=True, gc=False, kw_only=True, tag_field="type", tag="finish"):
    reason: _Kind


class _Chunk(_Part, frozen=True, gc=False, kw_only=True):
    turn: int
    step: int
    chunk: _Delta | _Finish


class _Config(_Part, frozen=True, gc=False, kw_only=True):
    provider: str
    model: str


class _Header(_Part, frozen=True, gc=False, kw_only=True):
    config: _Config


class _Asked(_Part, frozen=True, gc=False, kw_only=True):
    header: _Header
    reason: str


class _Line(_Part, frozen=True, gc=False, kw_only=True, tag_field="type"):
    seq: int
    time: int


class _MessageLine(_Line, frozen=True, gc=False, kw_only=True):
    surface_op: Literal["append"]
    source_event_seqs: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class _TurnStartLine(_Line, frozen=True, gc=False, kw_only=True, tag="turn/start"):
    data: _Turn


class _TurnEndLine(_Line, frozen=True, gc=False, kw_only=True, tag="turn/end"):
    data: _TurnEnd


class _StepStartLine(_Line, frozen=True, gc=False, kw_only=True, tag="step/start"):
    data: _Step


class _StepEndLine(_Line, frozen=True, gc=False, kw_only=True, tag="step/end"):
    data: _Step


class _SpliceLine(_Line, frozen=True, gc=False, kw_only=True, tag="agent/inbox/spliced"):
    data: _Splice


class _UserLine(_MessageLine, frozen=True, gc=False, kw_only=True, tag="user/message"):
    data: _Message


class _AnswerLine(_MessageLine, frozen=True, gc=False, kw_only=True, tag="assistant/message"):
    data: _Answer


class _ChunkLine(_Line, frozen=True, gc=False, kw_only=True, tag="assistant/chunk"):
    data: _Chunk


class _HeaderLine(_Line, frozen=True, gc=False, kw_only=True, tag="request/header"):
    data: _Asked


class _ContextLine(_Line, frozen=True, gc=False, kw_only=True, tag="request/context"):
    data: _Config


_AnyLine: TypeAlias = (
    _TurnStartLine | _TurnEndLine | _StepStartLine | _StepEndLine | _SpliceLine | _UserLine | _AnswerLine | _ChunkLine
    | _HeaderLine | _ContextLine
)  # fmt: skip

DECODER: Final = msgspec.json.Decoder(_AnyLine)
"""Decodes a line, or with `decode_lines` all of them."""
