"""What may enter a log: values made in this process may hold anything."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

from tests.unit.session.samples import (
    MODEL,
    answer,
    asks,
    called,
    claim,
    delta,
    insert,
    opened,
    result,
    started,
    user,
)
from trio_agents.errors import UsageError, ValueNotJsonError
from trio_agents.session import (
    AssistantChunk,
    Draft,
    Event,
    ForeignEvent,
    Header,
    Payload,
    RequestConfig,
    RequestContext,
    RequestHeader,
    ToolFailure,
    TurnEnd,
    TurnStart,
    decode_event,
    register_event,
)
from trio_agents.session._admission import admit, event_of
from trio_agents.session._plainness import PLAIN
from trio_agents.values import (
    BY_USER,
    COMPLETED,
    MAX_TOKENS,
    USER,
    Aborted,
    BlockEnd,
    BlockStart,
    ByHook,
    Failed,
    Finish,
    FinishError,
    ForeignSource,
    FrozenJson,
    LlmFailure,
    MaxTokens,
    PluginSource,
    ReasoningBlock,
    Stop,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolSource,
    Usage,
    UserMessage,
)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


def chunk(data: Any, **at: Any) -> AssistantChunk:
    return AssistantChunk(**{"turn": 1, "step": 1, **at}, chunk=data)


def bad(cls: Any, **fields: Any) -> Any:
    return cls(**fields)


def swap(data: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(data, **fields)


def inside(data: Any, **fields: Any) -> Any:
    return swap(data, message=swap(data.message, **fields))


USAGE = TokenUsage(input_tokens=1, output_tokens=1)
FAILURE = LlmFailure(message="m", code="C")
ANSWER = answer(1, 1, TextBlock(text="x"), ReasoningBlock(text="r"), *asks("c"), usage=USAGE)
RESULT = result(1, 1, "c")
[BLOCK] = RESULT.message.content
HEADER = RequestHeader(
    header=Header(config=RequestConfig(provider="p", model="m", temperature=0.5)), reason="initial"
)

PLAIN_ONES: list[Any] = [
    TurnStart(turn=1), TurnEnd(turn=1, reason=COMPLETED), TurnEnd(turn=1, reason=MAX_TOKENS),
    TurnEnd(turn=1, reason=Aborted(reason=BY_USER)), user(), ANSWER, answer(1, 1, interrupted=True), RESULT,
    called(1, 1, "c"), called(1, 1, "c", tracked=True), started(1, 1, "c"), delta(1, 1, "\u2028"), insert(user()),
    claim(), chunk(ToolCallDelta(index=0, id="", arguments_delta="")),
    chunk(ToolCallDelta(index=0, id="", name="n", arguments_delta="")), chunk(BlockStart(index=0, block_type="t")),
    chunk(BlockEnd(index=0, block=TextBlock(text="x"))), chunk(Usage(usage=USAGE)), chunk(Finish(reason=MaxTokens())),
    RequestContext(provider="p", model="m"), RequestContext(provider="p", model="m", context_window=1),
    RequestHeader(header=Header(config=RequestConfig(provider="p", model="m")), reason="initial"),
    RequestHeader(
        header=Header(config=RequestConfig(provider="p", model="m", max_tokens=9), system="s"), reason="change"
    ),
]  # fmt: skip

UNUSUAL_ONES: list[Any] = [
    TurnEnd(turn=1, reason=Aborted(reason=ByHook(reason="r"))), TurnEnd(turn=1, reason=Failed(error=FAILURE)),
    UserMessage.from_text("x", source=PluginSource(plugin="p")), user("\ud800"), insert(user("\ud800")),
    UserMessage.from_text("x", source=ForeignSource("later", FrozenJson(b'{"kind":"later"}'))),
    inside(ANSWER, source=swap(MODEL, replay_state=FrozenJson.of([1]))), swap(RESULT, meta=FrozenJson.of(None)),
    chunk(Finish(reason=Stop(), replay_state=FrozenJson.of(1))), chunk(Finish(reason=FinishError(failure=FAILURE))),
    HEADER, ForeignEvent("session/title", FrozenJson.of({})), ForeignEvent("x/y", FrozenJson.of(1), ignorable=True),
    chunk(BlockEnd(index=0, block=BLOCK)),
]  # fmt: skip

WRONG_ONES: list[Any] = [
    swap(ANSWER, turn="1"), swap(ANSWER, turn=True), swap(ANSWER, step=1.5), swap(ANSWER, usage=1), swap(ANSWER, interrupted=False),
    swap(ANSWER, message=None), inside(ANSWER, id=""), inside(ANSWER, id=5), inside(ANSWER, role="user"),
    inside(ANSWER, content=None), inside(ANSWER, content=("x",)), inside(ANSWER, content=(bad(TextBlock, text=None),)),
    inside(ANSWER, content=(bad(ToolCallBlock, id=1, name="n", arguments="{}"),)), inside(ANSWER, source=USER),
    inside(ANSWER, source=swap(MODEL, provider="")), inside(ANSWER, source=swap(MODEL, model=7)),
    inside(ANSWER, content=(bad(TextBlock, text=Text("x")),)), swap(ANSWER, usage=swap(USAGE, output_tokens="1")),
    swap(ANSWER, usage=swap(USAGE, cache_read_tokens="1")), swap(ANSWER, usage=swap(USAGE, input_tokens=None)),
    inside(RESULT, content=()), inside(RESULT, content=(BLOCK, BLOCK)), inside(RESULT, source=ToolSource(call_id="d")),
    inside(RESULT, source=ToolSource(call_id="")), inside(RESULT, source=MODEL), swap(RESULT, error="no"),
    inside(RESULT, content=(swap(BLOCK, is_error=1),)), inside(RESULT, content=(bad(TextBlock, text="x"),)),
    swap(RESULT, error=bad(ToolFailure, name="n", code=1)), swap(RESULT, error=bad(ToolFailure, name=None, code="c")),
    swap(called(1, 1, "c"), arguments=b"{}"), swap(called(1, 1, "c"), name=None), swap(called(1, 1, "c"), tracked=False),
    swap(started(1, 1, "c"), call_id=1), swap(delta(1, 1, "x"), turn=None), chunk(None), chunk("text"),
    chunk(bad(TextDelta, index=0, text=1)), chunk(bad(TextDelta, index=0, text=Text("x"))), chunk(bad(TextDelta, index="0", text="")),
    chunk(bad(TextDelta, index=float("nan"), text="")), chunk(bad(ToolCallDelta, index=0, id=None, arguments_delta="")),
    chunk(bad(ToolCallDelta, index=0, id="", arguments_delta=None)), chunk(bad(ToolCallDelta, index=0, id="", name=1, arguments_delta="")),
    chunk(bad(BlockStart, index=0, block_type=None)), chunk(bad(BlockEnd, index=0, block=None)), chunk(bad(Usage, usage=None)),
    chunk(bad(Finish, reason=None)), chunk(bad(Finish, reason=Stop(), replay_state={"a": {1}})),
    swap(insert(user()), inserted=("x",)), swap(claim(), outcome="lost"),
    swap(HEADER, reason="again"), swap(HEADER, header=swap(HEADER.header, config=swap(HEADER.header.config, temperature=-0.0))),
    swap(HEADER, header=swap(HEADER.header, config=swap(HEADER.header.config, temperature=float("inf")))),
    swap(HEADER, header=swap(HEADER.header, config=swap(HEADER.header.config, model=""))),
    swap(HEADER, header=Header(config=bad(RequestConfig, provider="p", model=1))),
    swap(HEADER, header=Header(config=bad(RequestConfig, provider="p", model="m", max_tokens="9"))),
    swap(HEADER, header=bad(Header, config=RequestConfig(provider="p", model="m"), system=1)),
    swap(HEADER, header=bad(Header, config=None)), swap(HEADER, header=None),
    bad(RequestContext, provider=1, model="m"), bad(RequestContext, provider="p", model=None),
    bad(RequestContext, provider="p", model="m", context_window="1"),
    ForeignEvent("x/y", FrozenJson.of(1)), ForeignEvent("turn/start", FrozenJson.of({"turn": 1})),
    ForeignEvent("x/y", FrozenJson(b"{"), ignorable=True),
]  # fmt: skip


def event(data: Any) -> Event:
    return event_of(data, 9, 1)


@pytest.mark.parametrize("data", PLAIN_ONES, ids=range(len(PLAIN_ONES)))
def test_plain_values_are_taken_at_a_glance(data):
    """LOG-3"""
    assert PLAIN[type(data)](data)
    given = event(data)
    kept, line = admit(given)
    assert kept is given
    assert decode_event(line) == kept


@pytest.mark.parametrize("data", UNUSUAL_ONES, ids=range(len(UNUSUAL_ONES)))
def test_unusual_values_are_read_back(data):
    """LOG-2, LOG-10"""
    kept, line = admit(event(data))
    assert decode_event(line) == kept == event(data)


@pytest.mark.parametrize("data", WRONG_ONES, ids=range(len(WRONG_ONES)))
def test_wrong_values_are_refused_by_their_type(data):
    """LOG-3, LOG-10, TRN-14"""
    check = PLAIN.get(type(data))
    assert check is None or not check(data)
    with pytest.raises((UsageError, ValueNotJsonError), match=data.wire_type):
        admit(event(data))


def test_only_payloads_are_events():
    """LOG-17"""

    class Unregistered(Payload, msgspec.Struct, frozen=True):
        wire_type: ClassVar[str] = "admission/unregistered"

    for data in (1, "turn/start", None, object(), Unregistered(), Draft(Unregistered())):
        with pytest.raises(UsageError, match="refused"):
            event(data)
    with pytest.raises(UsageError, match="only messages"):
        event(Draft(TurnStart(turn=1), source_event_seqs=(1,)))
    assert event(Draft(TurnStart(turn=1))).surface_op is msgspec.UNSET


@register_event
class Loose(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """Anything at all."""

    wire_type: ClassVar[str] = "admission/loose"
    value: Any


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$.value"),
        ({"a": [float("inf")]}, "$.value.a[0]"),
        (-0.0, "$.value"),
        ({1: 2}, "$.value"),
        ([{1, 2}], "$.value[0]"),
        (b"x", "$.value"),
        (Text("x"), "$.value"),
        ([Number(1)], "$.value[0]"),
        (2**53, "$.value"),
        ([-(2**53)], "$.value[0]"),
        (CYCLE, "$.value"),
        (nested(501), "$.value"),
        (object(), "$.value"),
    ],
    ids=range(13),
)
def test_what_json_would_lose_is_refused_with_its_path(value, path):
    """LOG-10"""
    with pytest.raises(ValueNotJsonError) as caught:
        admit(event(Loose(value=value)))
    assert caught.value.path.startswith(f"admission/loose {path}")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        2**53 - 1,
        1.5,
        1e300,
        "",
        "\ud800",
        [],
        {},
        {"": [{"a": None}]},
        nested(500),
        {"\udfff": "\u2028"},
    ],
    ids=range(14),
)
def test_what_json_keeps_round_trips(value):
    """LOG-10"""
    session, _, writer = opened()
    session.append(Loose(value=value))
    [line] = writer.lines
    assert decode_event(line).data.value == value
    assert session.events[0].data.value == value


def test_deep_values_with_lone_surrogates_round_trip():
    """LOG-10"""
    value = nested(500)
    leaf = value
    while leaf:
        leaf = leaf[0]
    leaf.append("\ud800")
    with pytest.raises(ValueNotJsonError):
        admit(event(Loose(value=[value])))
    kept, line = admit(event(Loose(value=value)))
    assert decode_event(line) == kept
