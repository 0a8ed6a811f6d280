"""The demo model: it plans calls from names and answers from results, and says what it is."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.unit.models.samples import call, collect, kinds, request, result, said, user
from trio_agents.models import DemoModel, ModelInfo
from trio_agents.session import ToolSpec
from trio_agents.values import (
    BlockEnd,
    Chunk,
    Finish,
    FrozenJson,
    Stop,
    TextBlock,
    ToolCallBlock,
    ToolCalls,
    Usage,
)


def tool(name: str, *parameters: str) -> ToolSpec:
    schema = {"type": "object", "properties": {parameter: {"type": "string"} for parameter in parameters}}
    return ToolSpec(name=name, description="", parameters=FrozenJson.of(schema))


TOOLS = (
    tool("read", "path"),
    tool("list", "path"),
    tool("grep", "pattern", "path"),
    tool("pause", "seconds"),
)


async def planned(text: str, tools: tuple[ToolSpec, ...] = TOOLS) -> list[tuple[str, Any]]:
    chunks = await collect(DemoModel(), request(user(text), tools=tools))
    blocks = [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]
    return [
        (block.name, FrozenJson(block.arguments.encode()).value)
        for block in blocks
        if isinstance(block, ToolCallBlock)
    ]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(
        chunk.block.text
        for chunk in chunks
        if isinstance(chunk, BlockEnd) and isinstance(chunk.block, TextBlock)
    )


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What does setup.py do?", [("read", {"path": "setup.py"})]),
        ("Read src/a.py, then b.txt.", [("read", {"path": "src/a.py"}), ("read", {"path": "b.txt"})]),
        ("Compare a.py with a.py", [("read", {"path": "a.py"})]),
        ("What is in trio_agents/models/?", [("list", {"path": "trio_agents/models"})]),
        ("Which files are there?", [("list", {"path": "."})]),
        (
            "Where is `open_runtime` in trio_agents/?",
            [
                ("grep", {"pattern": "open_runtime", "path": "trio_agents/"}),
                ("list", {"path": "trio_agents"}),
            ],
        ),
        ('Search for "a.b(c)"', [("grep", {"pattern": r"a\.b\(c\)", "path": "."})]),
        ("Search for Endpoint please", [("grep", {"pattern": "Endpoint", "path": "."})]),
        ("See https://example.org/a.html and README.md", [("read", {"path": "README.md"})]),
        ('/pause {"seconds": "3"}\nand read a.py', [("pause", {"seconds": "3"})]),
        ("/list\n/nothing\n/read {oops}\n/pause [1]", [("list", {})]),
        ("Why is the sky blue?", []),
        ("Wait... and then go on", []),
    ],
)
async def test_plans(text: str, calls: list) -> None:
    assert await planned(text) == calls


async def test_only_tools_on_offer_are_called() -> None:
    question = "Search for `x` in src/ and read a.py"
    assert await planned(question, ()) == []
    assert await planned(question, (tool("read", "file"), tool("list", "path"))) == [
        ("list", {"path": "src"})
    ]
    bare = ToolSpec(name="read", description="", parameters=FrozenJson(b'{"type":"object"}'))
    assert await planned(question, (bare,)) == []


async def test_a_plan_is_bounded() -> None:
    assert len(await planned(" ".join(f"f{number}.py" for number in range(50)))) == 8


async def test_it_says_what_it_is() -> None:
    chunks = await collect(DemoModel(), request(user("Why is the sky blue? " * 9)))
    assert "no language model" in text_of(chunks)
    assert "on offer: none" in text_of(chunks)
    assert chunks[-1] == Finish(reason=Stop())
    calling = await collect(DemoModel(), request(user("read a.py"), tools=TOOLS, turn=2, step=3))
    assert "no language model" in text_of(calling)
    assert "read 'a.py'" in text_of(calling)
    assert calling[-1] == Finish(reason=ToolCalls())
    [made] = [chunk.block for chunk in calling if isinstance(chunk, BlockEnd) and chunk.index == 1]
    assert made == ToolCallBlock(id="demo-2-3-1", name="read", arguments='{"path":"a.py"}')


async def test_it_answers_from_what_the_tools_returned() -> None:
    history = [
        user("old a.py"), said(call("c0", "read", '{"path": "old"}')), result("c0", "old"), said("old"),
        user("read a.py and b.py, search for `x`", id="u2"),
        said(call("c1", "read", '{"path": "a.py"}'), call("c2", "read", '{"path": "b.py"}'), id="a2"),
        result("c1", "\n".join(f"line {number}" for number in range(8)), id="r1"),
        result("c2", "b.py: there is no such file", id="r2", error=True),
        said(call("c3", "grep", '{"pattern": "x", "path": "."}'), call("c4", "run", "{oops"), id="a3"),
        result("c3", "one", id="r3"), result("c4", id="r4"),
    ]  # fmt: skip
    chunks = await collect(DemoModel(), request(*history, tools=TOOLS))
    assert text_of(chunks) == (
        "read 'a.py' gave 8 lines:\n"
        "    line 0\n    line 1\n    line 2\n    line 3\n    line 4\n    ... (3 more)\n\n"
        "read 'b.py' failed: b.py: there is no such file\n\n"
        "grep 'x' in '.' gave 1 line:\n    one\n\n"
        "run gave nothing."
    )
    assert chunks[-1] == Finish(reason=Stop())
    assert kinds(chunks).count("text-delta") > 20


async def test_the_same_conversation_gives_the_same_answer() -> None:
    asked = request(user("read a.py"), tools=TOOLS)
    assert await collect(DemoModel(), asked) == await collect(DemoModel(), asked)


async def test_usage_grows_with_the_conversation() -> None:
    [short] = [
        chunk.usage for chunk in await collect(DemoModel(), request(user("hi"))) if isinstance(chunk, Usage)
    ]
    [long] = [c.usage for c in await collect(DemoModel(), request(user("hi" * 500))) if isinstance(c, Usage)]
    assert 0 < short.input_tokens < long.input_tokens == 250
    assert short.output_tokens > 0


async def test_text_comes_in_pieces_that_can_be_cut(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Chunk] = []
    with trio.move_on_after(1.05):
        await DemoModel(pace=0.1).stream(request(user("hi")), seen.append)
    assert kinds(seen) == ["block-start", *["text-delta"] * 10]


async def test_any_name_will_do() -> None:
    assert await DemoModel("toy").info("anything") == ModelInfo()
    assert DemoModel("toy").provider == "toy"
