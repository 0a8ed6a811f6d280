"""Lines to events and back, payload types of plugins, headers."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import msgspec
import pytest

from tests.unit.session.samples import MODEL, answer, called, delta, insert, result, started, user
from trio_agents.errors import SessionCorruptError, SessionUnsupportedError, UsageError, ValueNotJsonError
from trio_agents.session import (
    AssistantChunk,
    Event,
    ForeignEvent,
    Header,
    LlmRetry,
    Payload,
    Replace,
    RequestConfig,
    RequestHeader,
    SessionHeader,
    StepStart,
    ToolFailure,
    ToolSpec,
    TurnEnd,
    TurnStart,
    VerbatimEvent,
    decode_event,
    decode_header,
    encode_event,
    encode_header,
    register_event,
)
from trio_agents.session._codec import BadLineError
from trio_agents.session._events import CORE_PAYLOADS, KNOWN_TYPES
from trio_agents.values import (
    BLOCKED,
    BY_USER,
    COMPLETED,
    DISPOSED,
    INTERRUPTED,
    MAX_TOKENS,
    MAX_TURN_REQUESTS,
    REFUSAL,
    Aborted,
    Attachment,
    BlockEnd,
    BlockStart,
    ByHook,
    Failed,
    Finish,
    FinishError,
    ForeignBlock,
    ForeignChunk,
    ForeignEnd,
    ForeignSource,
    FrozenJson,
    ImageBlock,
    LlmFailure,
    PluginSource,
    ReasoningBlock,
    ReasoningDelta,
    Stop,
    TextBlock,
    TokenUsage,
    ToolCallDelta,
    Usage,
    UserMessage,
)

SPEC = ToolSpec(name="t", description="d", parameters=FrozenJson.of({"type": "object"}))
USAGE = TokenUsage(input_tokens=1, output_tokens=2, cache_read_tokens=3)
IMAGE = Attachment(attachment_id="sha256:00", media_type="image/png", bytes=1, width=2, height=3)


def event(data: Any, seq: int = 9, **fields: Any) -> Event:
    if data.wire_type in ("user/message", "assistant/message", "tool/result"):
        fields.setdefault("surface_op", "append")
    return Event(type=data.wire_type, seq=seq, time=5, data=data, **fields)


def chunk(data: Any) -> Event:
    return event(AssistantChunk(turn=1, step=1, chunk=data))


def line(**fields: Any) -> bytes:
    plain = {"type": "turn/start", "seq": 0, "time": 1, "data": {"turn": 1}, **fields}
    found = {key: value for key, value in plain.items() if value is not ...}
    return json.dumps(found, separators=(",", ":")).encode()  # as it is written, so that the fast ways see it


ROUND_TRIPS = [
    event(TurnStart(turn=1)),
    event(StepStart(turn=1, step=2)),
    *(
        event(TurnEnd(turn=1, reason=reason))
        for reason in (COMPLETED, BLOCKED, MAX_TOKENS, REFUSAL, MAX_TURN_REQUESTS, INTERRUPTED)
    ),
    *(
        event(TurnEnd(turn=1, reason=Aborted(reason=cause)))
        for cause in (BY_USER, DISPOSED, ByHook(reason="why"))
    ),
    event(TurnEnd(turn=1, reason=Failed(error=LlmFailure(message="m", code="C", status=500)))),
    event(user("hello")),
    event(user("hello"), surface_op=Replace(start=1, end=2), source_event_seqs=(1, 2)),
    event(UserMessage.from_text([TextBlock(text="x"), ImageBlock(attachment=IMAGE)])),
    event(UserMessage.from_text("x", source=PluginSource(plugin="p", sections=FrozenJson.of([1.5])))),
    event(UserMessage.from_goal_round("x", goal_id="g", revision=0, round=1)),
    event(UserMessage.from_agent("x", sender_session_id="s", sender_name="n")),
    event(UserMessage.from_webhook("x", hook_id="h", delivery_id="d")),
    event(answer(1, 1, ReasoningBlock(text="r"), TextBlock(text="t"), usage=USAGE), source_event_seqs=()),
    event(answer(1, 1, interrupted=True), source_event_seqs=(2, 1)),
    event(called(1, 1, "c", tracked=True)),
    event(started(1, 1, "c"), ignorable=True),
    event(result(1, 1, "c", error=ToolFailure(name="N", code="C"), meta=FrozenJson.of({"a": None})), source_event_seqs=(3,)),
    chunk(BlockStart(index=0, block_type="text")),
    chunk(ReasoningDelta(index=0, text="\u2028\x85")),
    chunk(ToolCallDelta(index=0, id="c", arguments_delta="{")),
    chunk(BlockEnd(index=0, block=TextBlock(text="x"))),
    chunk(Usage(usage=USAGE)),
    chunk(Finish(reason=Stop(), replay_state=FrozenJson.of({"response": 1}))),
    chunk(Finish(reason=FinishError(failure=LlmFailure(message="m", code="C", provider_retry_after_ms=1.5)))),
    event(insert(user("x"), user("y"), start=3)),
    event(RequestHeader(header=Header(config=RequestConfig(provider="p", model="m", temperature=0.5), tools=(SPEC,)), reason="initial")),
    event(LlmRetry(retry_id="r", turn=1, step=1, provider="p", mode="always", policy_key="{}", retry=1, delay_ms=0, failure=LlmFailure(message="m", code="C"))),
    event(ForeignEvent("session/title", FrozenJson(b'{"title":"x","messageSeqs":[]}'))),
    event(ForeignEvent("x/y", FrozenJson(b"null"), ignorable=True), ignorable=True),
]  # fmt: skip


@pytest.mark.parametrize("event", ROUND_TRIPS, ids=range(len(ROUND_TRIPS)))
def test_what_is_written_is_read(event):
    """PER-1, TRN-15"""
    encoded = encode_event(event)
    assert b"\n" not in encoded
    again = decode_event(encoded, seq=event.seq)
    assert again == event
    assert type(again) is Event
    assert json.loads(encode_event(again)) == json.loads(encoded)


@pytest.mark.parametrize("event", ROUND_TRIPS, ids=range(len(ROUND_TRIPS)))
def test_key_order_does_not_matter(event):
    plain = json.loads(encode_event(event))

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(item) for item in value] if isinstance(value, list) else value

    assert decode_event(json.dumps(turned(plain)).encode()) == event


def test_wire_types_are_the_names_of_the_classes():
    for wire_type, cls in CORE_PAYLOADS.items():
        words = "".join(word.capitalize() for part in wire_type.split("/") for word in part.split("-"))
        assert cls.__name__ == {"AgentInboxSpliced": "InboxSpliced"}.get(words, words)


def test_the_known_types_are_those_of_the_format():
    assert len(KNOWN_TYPES) == 48
    assert set(CORE_PAYLOADS) - KNOWN_TYPES == {"tool/started"}


# --- unusual, but good ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["\ud800", "\udfffx", "a\ud83d", "\u2028\u0085\r", "\U0001f600", '"\\'], ids=ascii
)
def test_strings_survive_exactly(text):
    """LOG-10, PER-1"""
    for given in (event(user(text)), chunk(ToolCallDelta(index=0, id="c", name=text, arguments_delta=text))):
        assert decode_event(encode_event(given)) == given


def test_bytes_that_are_not_utf8_are_replaced_and_kept():
    raw = encode_event(event(user("a?b"))).replace(b"a?b", b"a\xffb")
    read = decode_event(raw)
    assert read.data.text == "a\ufffdb"
    assert decode_event(encode_event(read)).data == read.data


def test_a_whole_float_is_an_integer():
    read = decode_event(b'{"type":"turn/start","seq":0.0,"time":1e3,"data":{"turn":1.0}}', seq=0)
    assert read == Event(type="turn/start", seq=0, time=1000, data=TurnStart(turn=1))


@pytest.mark.parametrize(
    ("kind", "data", "check"),
    [
        ("turn/end", {"turn": 1, "reason": {"kind": "later", "x": 1}}, lambda d: type(d.reason) is ForeignEnd),
        ("assistant/chunk", {"turn": 1, "step": 1, "chunk": {"type": "later"}}, lambda d: type(d.chunk) is ForeignChunk),
        ("user/message", {"id": "u", "role": "user", "content": [{"type": "later"}], "source": {"kind": "user"}}, lambda d: type(d.content[0]) is ForeignBlock),
        ("user/message", {"id": "u", "role": "user", "content": [], "source": {"kind": "later", "x": None}}, lambda d: type(d.source) is ForeignSource),
        ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{"id": "u", "role": "user", "content": [], "source": {"kind": "later"}}]}, lambda d: type(d.inserted[0].source) is ForeignSource),
        ("session/title", {"anything": [1, {"x": None}]}, lambda d: d.value.value == {"anything": [1, {"x": None}]}),
        ("assistant/chunk", {"turn": "x"}, lambda d: type(d) is ForeignEvent),
        ("turn/start", {"turn": 0}, lambda d: type(d) is ForeignEvent),
    ],
)  # fmt: skip
def test_what_is_not_known_is_kept(kind, data, check):
    """TRN-15, PER-17"""
    marks = {"surfaceOp": "append"} if kind == "user/message" else {}
    raw = line(type=kind, data=data, **marks)
    read = decode_event(raw)
    assert check(read.data)
    assert json.loads(encode_event(read)) == json.loads(raw)
    assert decode_event(encode_event(read)) == read


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("tool/call", {"turn": 1, "step": 1, "callId": "c", "name": "n", "arguments": "", "extra": None}),
        ("step/start", {"turn": 1, "step": 1, "extra": 1}),
        ("request/header", {"header": {"config": {"provider": "p", "model": "m"}, "messagePrefix": []}, "reason": "initial"}),
        ("assistant/message", {"turn": 1, "step": 1, "message": {"id": "a", "role": "assistant", "content": [], "source": {"kind": "model", "provider": "p", "model": "m", "extra": 1}}}),
        ("tool/result", {"turn": 1, "step": 1, "message": {"id": "a", "role": "user", "content": [{"type": "tool-result", "toolCallId": "c", "content": [], "isError": "no", "extra": 1}], "source": {"kind": "tool", "callId": "c", "extra": 1}}}),
        ("user/message", {"id": "u", "role": "user", "content": [], "source": {"kind": "user"}, "extra": 1}),
    ],
)  # fmt: skip
def test_an_event_with_more_than_its_type_says_keeps_its_line(kind, data):
    marks = {"surfaceOp": "append"} if kind.endswith(("message", "result")) else {}
    raw = line(type=kind, data=data, **marks)
    read = decode_event(raw)
    assert type(read) is VerbatimEvent
    assert type(read.data) is CORE_PAYLOADS[kind]
    assert encode_event(read) == raw
    assert decode_event(encode_event(read)) == read


# --- bad ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [b"", b"   ", b"null", b"1", b"[]", b"{", b'{"type":"turn/start"', b"\x00\x00", b'{"a":NaN}', b'{"a":1e999}',
     b'{"type":"turn/start","seq":0,"time":1,"data":NaN}', b'{"seq":0}', b'{"type":5}', b"[" * 100_000],
    ids=lambda raw: repr(raw[:30]),
)  # fmt: skip
def test_what_is_no_record_is_a_bad_line(raw):
    """PER-7"""
    with pytest.raises(BadLineError):
        decode_event(raw)


def test_the_number_must_be_the_one_expected():
    """PER-7"""
    assert decode_event(line(), seq=0).seq == 0
    with pytest.raises(BadLineError, match="event 1 expected, found 0"):
        decode_event(line(), seq=1)


MESSAGE: dict[str, Any] = {"id": "u", "role": "user", "content": [], "source": {"kind": "user"}}
TOOL: dict[str, Any] = {
    "id": "u",
    "role": "user",
    "content": [{"type": "tool-result", "toolCallId": "c", "content": []}],
    "source": {"kind": "tool", "callId": "c"},
}
BROKEN: list[tuple[bytes, str]] = [
    (line(more=1), "unknown field 'more'"),
    (line(seq=-1), "`seq`"),
    (line(seq=True), "`seq`"),
    (line(seq=2**53), "`seq`"),
    (line(time=None), "`time`"),
    (line(time=1.5), "`time`"),
    (line(data=...), "no `data`"),
    (line(ignorable=False), "`ignorable`"),
    (line(ignorable=None), "`ignorable`"),
    (line(surfaceOp="append"), "messages only"),
    (line(surfaceOp=None), "messages only"),
    (line(sourceEventSeqs=[]), "messages only"),
    *(
        (line(type="user/message", data=MESSAGE, seq=5, **fields), match)  # type: ignore[arg-type]
        for fields, match in [
            ({}, "surfaceOp"),
            ({"surfaceOp": None}, "surfaceOp"),
            ({"surfaceOp": {"op": "replace", "start": 0}}, "surfaceOp"),
            ({"surfaceOp": {"op": "replace", "start": 0, "end": -1}}, "surfaceOp"),
            ({"surfaceOp": {"op": "replace", "start": 0, "end": 1, "x": 1}}, "surfaceOp"),
            ({"surfaceOp": "append", "sourceEventSeqs": []}, "empty stream"),
            ({"surfaceOp": "append", "sourceEventSeqs": [1, 1]}, "twice"),
            ({"surfaceOp": "append", "sourceEventSeqs": [5]}, "earlier"),
            ({"surfaceOp": "append", "sourceEventSeqs": [-1]}, "numbers"),
            ({"surfaceOp": "append", "sourceEventSeqs": "x"}, "numbers"),
        ]
    ),
    *(
        (line(type="user/message", data=data, surfaceOp="append"), match)
        for data, match in [
            (None, "no object"),
            ({**MESSAGE, "id": ""}, "has an id"),
            ({**MESSAGE, "role": "assistant"}, "role"),
            ({**MESSAGE, "source": {}}, "no kind"),
            ({**MESSAGE, "content": "x"}, "list of blocks"),
            ({**MESSAGE, "content": ["x"]}, "proper type"),
        ]
    ),
    *(
        (line(type="assistant/message", data=data, surfaceOp="append"), match)
        for data, match in [
            ({"turn": 1, "step": 1}, "no message"),
            ({"turn": 1, "step": 1, "message": {**MESSAGE, "role": "assistant"}}, "a model"),
            ({"turn": 1, "step": 1, "message": {**MESSAGE, "role": "assistant", "source": {"kind": "model", "provider": "p", "model": ""}}}, "a model"),
        ]
    ),
    *(
        (line(type="tool/result", data={"turn": 1, "step": 1, "message": {**TOOL, **change}}, surfaceOp="append"), match)  # type: ignore[dict-item]
        for change, match in [
            ({"source": {"kind": "user"}}, "a tool"),
            ({"source": {"kind": "tool", "callId": ""}}, "a tool"),
            ({"content": []}, "exactly one"),
            ({"content": TOOL["content"] * 2}, "exactly one"),
            ({"source": {"kind": "tool", "callId": "d"}}, "comes from call 'd'"),
        ]
    ),
    *(
        (line(type="turn/end", data=data), match)
        for data, match in [
            ({"turn": 1}, "exactly"),
            ({"turn": 0, "reason": {"kind": "completed"}}, "count from 1"),
            ({"turn": True, "reason": {"kind": "completed"}}, "count from 1"),
            ({"turn": 1, "reason": {}}, "no kind"),
            ({"turn": 1, "reason": {"kind": "completed", "x": 1}}, "no other field"),
            ({"turn": 1, "reason": {"kind": "completed"}, "x": 1}, "exactly"),
        ]
    ),
    *(
        (line(type="request/header", data={"header": header, "reason": reason}), match)
        for header, reason, match in [
            (None, "initial", "no header"),
            ({"config": {"provider": "p", "model": ""}}, "initial", "names provider"),
            ({"config": {"provider": "p", "model": "m", "reasoningEffort": ""}}, "initial", "effort"),
            ({"config": {"provider": "p", "model": "m"}, "adapterDefaults": []}, "initial", "object"),
            ({"config": {"provider": "p", "model": "m"}, "adapterDefaults": {"maxTokens": True}}, "initial", "marks"),
            ({"config": {"provider": "p", "model": "m"}}, "fallback", "retired"),
        ]
    ),
    (line(type="mode/set"), "retired"),
    (line(type="request/header-delta"), "retired"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "match"), BROKEN, ids=range(len(BROKEN)))
def test_what_breaks_a_rule_is_corrupt(raw, match):
    """LOG-6, TRN-14"""
    with pytest.raises(SessionCorruptError, match=match) as caught:
        decode_event(raw)
    assert not isinstance(caught.value, BadLineError)


def test_unknown_required_types_are_unsupported_not_corrupt():
    """PER-17"""
    with pytest.raises(SessionUnsupportedError, match="nobody/knows"):
        decode_event(line(type="nobody/knows"))
    read = decode_event(b'{"type":"nobody/knows","seq":0,"time":1,"data":{"a":1.0 },"ignorable":true}')
    assert read.data.value.raw == b'{"a":1.0 }'
    assert read.ignorable is True


# --- encoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        AssistantChunk(turn=1, step=1, chunk=object()),  # type: ignore[arg-type]
        AssistantChunk(turn=1, step=1, chunk=Usage(usage={1: 2, (1, 2): 3})),  # type: ignore[arg-type]
    ],
    ids=["object", "keys"],
)
def test_what_has_no_json_form_is_refused_by_its_type(data):
    """LOG-10"""
    with pytest.raises(ValueNotJsonError, match="assistant/chunk"):
        encode_event(event(data))


def test_long_runs_of_sources_are_ranges():
    """LOG-18"""
    for count, kind in ((31, tuple), (32, range)):
        given = event(answer(1, 1), seq=99, source_event_seqs=tuple(range(count)))
        assert type(decode_event(encode_event(given)).source_event_seqs) is kind
    gappy = (*range(40), 41)
    given = event(answer(1, 1), seq=99, source_event_seqs=gappy)
    assert decode_event(encode_event(given)).source_event_seqs == gappy


# --- payload types of plugins ---------------------------------------------------------------------


class Kept(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """A required event of a plugin."""

    wire_type: ClassVar[str] = "codec/kept"
    count: int


class _Loose(Payload, msgspec.Struct):
    wire_type: ClassVar[str] = "codec/loose"


class _Thief(Payload, msgspec.Struct, frozen=True):
    wire_type: ClassVar[str] = "turn/start"


class _Copy(Payload, msgspec.Struct, frozen=True):
    wire_type: ClassVar[str] = "codec/kept"


class _Nameless(Payload, msgspec.Struct, frozen=True):
    wire_type: ClassVar[str] = "x"


class _Unreadable(Payload, msgspec.Struct, frozen=True):
    wire_type: ClassVar[str] = "codec/unreadable"
    value: "Missing"  # type: ignore[name-defined]  # noqa: F821, UP037


class _Undecided(Payload, msgspec.Struct, frozen=True):
    wire_type: ClassVar[str] = "codec/undecided"
    ignorable: ClassVar[Any] = None


def test_registered_types_are_typed():
    """PER-17, LOG-17"""
    raw = line(type="codec/kept", data={"count": 3})
    assert register_event(Kept) is Kept
    assert register_event(Kept) is Kept
    assert decode_event(raw).data == Kept(count=3)
    more = decode_event(line(type="codec/kept", data={"count": 3, "x": 1}))
    assert more.data == Kept(count=3)
    assert type(more) is VerbatimEvent
    assert type(decode_event(line(type="codec/kept", data={"count": "x"})).data) is ForeignEvent


@pytest.mark.parametrize("cls", [_Loose, _Thief, _Copy, _Nameless, _Unreadable, _Undecided, int, Payload])
def test_what_is_no_payload_class_is_refused(cls):
    register_event(Kept)
    with pytest.raises(UsageError):
        register_event(cls)


# --- headers --------------------------------------------------------------------------------------

FULL = {
    "type": "session", "version": 0, "id": "i", "createdAt": 5, "cwd": "/w", "parentSession": "p", "seedLength": 2,
    "origin": "subagent", "delegationDepth": 1, "agentPreset": "x",
}  # fmt: skip


def header_line(**changes: Any) -> bytes:
    return json.dumps({k: v for k, v in {**FULL, **changes}.items() if v is not ...}).encode()


def test_headers_round_trip_in_the_order_of_the_format():
    assert encode_header(decode_header(header_line())).decode() == json.dumps(FULL, separators=(",", ":"))
    bare = SessionHeader(id="\ud800", created_at=0)
    assert decode_header(encode_header(bare)) == bare
    assert b'"delegationDepth":0' in encode_header(bare)


def test_a_missing_depth_is_zero_and_unknown_fields_are_dropped():
    read = decode_header(header_line(delegationDepth=..., more=1))
    assert read.delegation_depth == 0
    assert b"more" not in encode_header(read)


@pytest.mark.parametrize("version", [1, -1, 0.5, 2**60])
def test_another_version_is_unsupported_before_anything_else(version):
    """PER-17"""
    direction = "newer" if version > 0 else "older"
    with pytest.raises(SessionUnsupportedError, match=direction):
        decode_header(header_line(version=version, id=5, type="x"))


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"null", b"{", b'{"createdAt":1e999}',
        *(header_line(**change) for change in [  # type: ignore[arg-type]
            {"type": "x"}, {"version": "0"}, {"version": None}, {"version": True}, {"version": ...}, {"id": 5},
            {"id": ...}, {"createdAt": -1}, {"createdAt": 1.5}, {"createdAt": True}, {"createdAt": -0.0},
            {"createdAt": ...}, {"delegationDepth": None}, {"delegationDepth": -0.0}, {"origin": "x"},
            {"origin": None}, {"agentPreset": 5}, {"cwd": "relative"}, {"cwd": ""}, {"cwd": None},
            {"parentSession": None}, {"seedLength": -1}, {"seedLength": None}, {"sandboxMode": "x"},
            {"approvalPolicy": "ask"},
        ]),
    ],
)  # fmt: skip
def test_damaged_headers_are_corrupt(raw):
    """PER-17, PER-18"""
    with pytest.raises(SessionCorruptError):
        decode_header(raw)


@pytest.mark.parametrize("cwd", ["/", "/a b", "C:\\x", "C:/x", "\\\\host\\share"])
def test_absolute_paths_of_either_kind(cwd):
    assert decode_header(header_line(cwd=cwd)).cwd == cwd


def test_models_are_sources_of_answers():
    assert decode_event(encode_event(event(answer(1, 1)))).data.message.source == MODEL
    assert delta(1, 1, "x").chunk.text == "x"  # type: ignore[attr-defined]
