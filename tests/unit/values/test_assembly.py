"""From chunks to blocks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from trio_agents.values import (
    Assembly,
    BlockEnd,
    BlockStart,
    Finish,
    FinishError,
    ForeignBlock,
    ForeignChunk,
    FrozenJson,
    LlmFailure,
    MaxTokens,
    ReasoningBlock,
    ReasoningDelta,
    Stop,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolCalls,
    Usage,
)


def fed(*chunks: Any) -> Assembly:
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed(chunk)
    return assembly


def text(value: str, index: int = 0) -> TextDelta:
    return TextDelta(index=index, text=value)


def call(arguments: str, index: int = 0, id: str = "", **fields: Any) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=id, arguments_delta=arguments, **fields)


def test_deltas_are_joined_in_the_order_of_first_sight():
    """PROP-11"""
    assembly = fed(
        ReasoningDelta(index=5, text="think"),
        text("he", 2),
        ReasoningDelta(index=5, text="ing"),
        text("llo", 2),
    )
    assert assembly.blocks() == (ReasoningBlock(text="thinking"), TextBlock(text="hello"))


def test_the_end_of_a_block_replaces_its_deltas_and_counts_once():
    """PROP-11"""
    first, second = TextBlock(text="whole"), TextBlock(text="other")
    assembly = fed(text("par"), BlockEnd(index=0, block=first), text("tial"), BlockEnd(index=0, block=second))
    assert assembly.blocks() == (first,)


def test_a_call_has_its_last_id_and_name():
    assembly = fed(
        call('{"a"', id="x", name="one"), call(":1}", id="y", name=""), call("", id="", name="two")
    )
    assert assembly.blocks() == (ToolCallBlock(id="y", name="two", arguments='{"a":1}'),)
    assert fed(call("{}", index=3)).blocks() == (ToolCallBlock(id="call-3", name="", arguments="{}"),)


def test_usage_and_finish():
    """PROP-11"""
    one, two = TokenUsage(input_tokens=1, output_tokens=1), TokenUsage(input_tokens=2, output_tokens=2)
    assembly = fed(Usage(usage=one), Finish(reason=ToolCalls()), Usage(usage=two), Finish(reason=Stop()))
    assert (assembly.usage, assembly.finish) == (two, Stop())
    assert fed().finish is None
    assert fed().usage is None
    assert fed().is_empty
    assert not fed(BlockStart(index=0, block_type="text")).is_empty


def test_announced_blocks():
    assert fed(BlockStart(index=0, block_type="text")).blocks() == (TextBlock(text=""),)
    assert fed(BlockStart(index=0, block_type="image")).blocks() == ()
    assert fed(text("x"), BlockStart(index=0, block_type="reasoning")).blocks() == (TextBlock(text="x"),)
    assert fed(BlockStart(index=0, block_type="later"), text("x")).blocks() == (TextBlock(text="x"),)
    foreign = ForeignBlock("later", FrozenJson(b'{"type":"later"}'))
    assert fed(BlockEnd(index=0, block=foreign)).blocks() == (foreign,)


def test_strange_chunks_do_no_harm():
    """PROP-11"""
    assembly = fed(
        text("x"), call("{", id="c"), ForeignChunk("later", FrozenJson(b'{"type":"later"}')), text("y")
    )
    assert assembly.blocks() == (TextBlock(text="xy"),)


STATE = {"response": "r", "blocks": ["one", "two", "three"]}
CUT = (text("a", 0), call("{", 1, id="c", name="n"), text("b", 2))


def test_the_output_cap_drops_calls_and_their_state():
    """TRN-11"""
    assembly = fed(*CUT, Finish(reason=MaxTokens(), replay_state=FrozenJson.of(STATE)))
    assert assembly.blocks() == (TextBlock(text="a"), TextBlock(text="b"))
    assert assembly.replay_state == FrozenJson.of({"response": "r", "blocks": ["one", "three"]})


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ({"blocks": ["one"]}, UNSET),
        ({"blocks": {}}, UNSET),
        ({"response": 1}, FrozenJson.of({"response": 1})),
        ("opaque", FrozenJson.of("opaque")),
    ],
    ids=["another length", "no list", "no blocks", "no object"],
)
def test_state_that_does_not_fit_is_dropped_whole(state, kept):
    """TRN-11"""
    assembly = fed(*CUT, Finish(reason=MaxTokens(), replay_state=FrozenJson.of(state)))
    assert assembly.replay_state == kept


def test_state_stays_as_it_was_where_nothing_is_dropped():
    """TRN-11"""
    state = FrozenJson.of(STATE)
    assert fed(*CUT, Finish(reason=ToolCalls(), replay_state=state)).replay_state is state
    texts = (text("a", 0), text("b", 1), text("c", 2))
    assert fed(*texts, Finish(reason=MaxTokens(), replay_state=state)).replay_state is state
    assert fed(*texts, Finish(reason=MaxTokens())).replay_state is UNSET


def test_an_interrupted_stream_keeps_what_shows():
    """CAN-5"""
    assembly = fed(
        text(" \n", 0),
        ReasoningDelta(index=1, text="why"),
        text("so far", 2),
        call("{", 3, id="c"),
        BlockEnd(index=4, block=TextBlock(text="whole")),
    )
    assert assembly.interrupted_blocks() == (
        ReasoningBlock(text="why"),
        TextBlock(text="so far"),
        TextBlock(text="whole"),
    )
    failure = LlmFailure(message="m", code="C")
    assert fed(call("{"), Finish(reason=FinishError(failure=failure))).interrupted_blocks() == ()
