"""From deltas to chunks: blocks open, grow and close in order."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from tests.unit.models.samples import kinds
from trio_agents.models._blocks import BlockWriter
from trio_agents.values._chunks import BlockEnd, BlockStart, Chunk, TextDelta, ToolCallDelta
from trio_agents.values._json import FrozenJson
from trio_agents.values._messages import ReasoningBlock, TextBlock, TokenUsage, ToolCallBlock


def write() -> tuple[BlockWriter, list[Chunk]]:
    chunks: list[Chunk] = []
    return BlockWriter(chunks.append), chunks


def ended(chunks: list[Chunk]) -> list:
    return [(chunk.index, chunk.block) for chunk in chunks if isinstance(chunk, BlockEnd)]


def test_text_and_reasoning_close_each_other() -> None:
    blocks, chunks = write()
    blocks.reasoning("why")
    blocks.prose_state("s")
    blocks.text("a")
    blocks.text("")
    blocks.text("b")
    blocks.reasoning("and")
    blocks.close()
    assert ended(chunks) == [
        (0, ReasoningBlock(text="why")), (1, TextBlock(text="ab")), (2, ReasoningBlock(text="and")),
    ]  # fmt: skip
    assert blocks.states == ["s", None, None]
    assert not blocks.called
    assert blocks.count == 3


def test_calls_may_grow_at_the_same_time() -> None:
    blocks, chunks = write()
    blocks.text("look")
    blocks.call(0, "c0", "read", "")
    blocks.call(1, "c1", "list", '{"p')
    blocks.call(0, "", "", "{}")
    blocks.call(1, "", "", '":1}')
    blocks.call(0, "", "", "")
    blocks.call_state(1, "kept")
    blocks.call_state(7, "nobody's")
    blocks.finish_call(7)
    blocks.close()
    assert ended(chunks) == [
        (0, TextBlock(text="look")),
        (1, ToolCallBlock(id="c0", name="read", arguments="{}")),
        (2, ToolCallBlock(id="c1", name="list", arguments='{"p":1}')),
    ]
    assert [(chunk.index, chunk.id) for chunk in chunks if isinstance(chunk, ToolCallDelta)] == [
        (1, "c0"), (2, "c1"), (1, "c0"), (2, "c1"),
    ]  # fmt: skip
    assert blocks.states == [None, None, "kept"]
    assert blocks.called


def test_one_key_for_two_calls() -> None:
    """Servers that count every call as number 0 send a new id together with a new name."""
    blocks, chunks = write()
    blocks.call(0, "a", "read", "{}")
    blocks.call(0, "b", "list", "{}")
    blocks.close()
    assert [block.id for _, block in ended(chunks)] == ["a", "b"]


def test_an_id_that_wanders_is_still_one_call() -> None:
    blocks, chunks = write()
    blocks.call(0, "a", "read", "{")
    blocks.call(0, "b", "", "}")
    blocks.close()
    assert ended(chunks) == [(0, ToolCallBlock(id="a", name="read", arguments="{}"))]


def test_a_late_name_and_a_missing_id() -> None:
    blocks, chunks = write()
    blocks.call(0, "", "", "{")
    blocks.call(0, "", "read", "}")
    blocks.call(1, "", "list", "")
    blocks.close()
    (_, first), (_, second) = ended(chunks)
    assert (first.name, first.arguments) == ("read", "{}")
    assert first.id.startswith("call_")
    assert first.id != second.id


def test_usage_is_told_where_it_changes() -> None:
    blocks, chunks = write()
    for tokens in (1, 1, 2):
        blocks.usage(TokenUsage(input_tokens=5, output_tokens=tokens))
    assert kinds(chunks) == ["usage", "usage"]


def test_prose_may_be_opened_before_its_text() -> None:
    blocks, chunks = write()
    blocks.prose_state("lost")
    blocks.open_prose(is_text=False)
    blocks.prose_state("kept")
    blocks.close()
    blocks.close()
    assert chunks == [
        BlockStart(index=0, block_type="reasoning"), BlockEnd(index=0, block=ReasoningBlock(text="")),
    ]  # fmt: skip
    assert blocks.states == ["kept"]


def test_half_a_character_waits_for_the_other_half() -> None:
    blocks, chunks = write()
    for piece in ("a\ud83d", "\ude00b", "\ud83d"):
        blocks.text(piece)
    blocks.close()
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a", "😀b", "\ud83d"]
    assert ended(chunks) == [(0, TextBlock(text="a😀b\ud83d"))]


@given(st.lists(st.text(st.sampled_from("a\ud83d\ude00😀é"), max_size=3), max_size=6))
def test_what_is_streamed_is_what_the_log_gives_back(pieces: list[str]) -> None:
    """LOG-10: text that is cut anywhere, even in a character, is the same before and after the log."""
    blocks, chunks = write()
    for piece in pieces:
        decoded = json.loads(json.dumps(piece))
        blocks.call("k", "c", "n", decoded)
    blocks.close()
    arguments = "".join(chunk.arguments_delta for chunk in chunks if isinstance(chunk, ToolCallDelta))
    assert [block.arguments for _, block in ended(chunks) if block.tag == "tool-call"] == (
        [arguments] if pieces else []
    )
    assert FrozenJson.of(arguments).value == arguments

    blocks, chunks = write()
    for piece in pieces:
        blocks.text(json.loads(json.dumps(piece)))
    blocks.close()
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
    assert [block.text for _, block in ended(chunks)] == ([text] if text else [])
    assert FrozenJson.of(text).value == text
