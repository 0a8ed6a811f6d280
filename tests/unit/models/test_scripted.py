"""The scripted model: what it is told to do, and what it refuses."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from tests.unit.models.samples import call, collect, kinds, request, result, said, thought, user
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import Call, Gate, Hang, ModelRequest, Raise, Reply, ScriptedModel, Sleep, Stubborn
from trio_agents.values._chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishAborted,
    FinishError,
    MaxTokens,
    Refused,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from trio_agents.values._messages import TextBlock, TokenUsage, ToolCallBlock

# --- answers ----------------------------------------------------------------------------------------


async def test_a_text_comes_in_the_pieces_that_it_is_given_in() -> None:
    assert await collect(ScriptedModel([Reply.text("Hel", "lo")])) == [
        BlockStart(index=0, block_type="text"),
        TextDelta(index=0, text="Hel"),
        TextDelta(index=0, text="lo"),
        BlockEnd(index=0, block=TextBlock(text="Hello")),
        Usage(usage=TokenUsage(input_tokens=10, output_tokens=5)),
        Finish(reason=Stop()),
    ]


async def test_calls_are_numbered_by_request_and_place() -> None:
    model = ScriptedModel(["x", Reply.tool_calls(["now", ("read", {"path": "a"}), ("raw", "{oops", "mine")])])
    await collect(model)
    chunks = await collect(model)
    assert [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)] == [
        ToolCallBlock(id="call-2-1", name="now", arguments="{}"),
        ToolCallBlock(id="call-2-2", name="read", arguments='{"path":"a"}'),
        ToolCallBlock(id="mine", name="raw", arguments="{oops"),
    ]
    assert [chunk.id for chunk in chunks if isinstance(chunk, ToolCallDelta)] == [
        "call-2-1",
        "call-2-2",
        "mine",
    ]
    assert chunks[-1] == Finish(reason=ToolCalls())


async def test_one_call_after_a_text() -> None:
    chunks = await collect(ScriptedModel([Reply.tool_call("read", {"a": 1}, id="c", text="Let me see.")]))
    assert kinds(chunks) == [
        "block-start", "text-delta", "block-end", "block-start", "tool-call-delta", "block-end", "usage", "finish",
    ]  # fmt: skip
    block = ToolCallBlock(id="given", name="n", arguments="")
    assert BlockEnd(index=0, block=block) in await collect(ScriptedModel([Reply.tool_calls([block])]))


async def test_reasoning_comes_first_and_may_be_signed() -> None:
    bare, signed = Reply.text("x", reasoning="why", usage=None), Reply.text("x", reasoning="why", signed=True)
    chunks = await collect(ScriptedModel([bare]))
    assert kinds(chunks) == [
        "block-start", "reasoning-delta", "block-end", "block-start", "text-delta", "block-end", "finish",
    ]  # fmt: skip
    assert chunks[-1] == Finish(reason=Stop())
    finish = (await collect(ScriptedModel([signed])))[-1]
    assert isinstance(finish, Finish)
    assert finish.replay_state.value == {"response": None, "blocks": [{"signature": "scripted"}, None]}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply.refusal("No."), Refused()),
        (Reply.max_tokens("Once upon", calls=[("read", '{"pa')]), MaxTokens()),
        (Reply.empty(), Stop()),
    ],
    ids=["refusal", "max-tokens", "empty"],
)
async def test_other_ends(reply: Reply, reason: object) -> None:
    assert (await collect(ScriptedModel([reply])))[-1] == Finish(reason=reason)  # type: ignore[arg-type]


async def test_failures_in_band() -> None:
    chunks = await collect(
        ScriptedModel([Reply.finish_error("SERVER", after=[TextDelta(index=0, text="x")])])
    )
    assert kinds(chunks) == ["text-delta", "finish"]
    assert isinstance(chunks[-1], Finish)
    assert isinstance(chunks[-1].reason, FinishError)
    assert chunks[-1].reason.failure.code == "SERVER"
    [aborted] = await collect(ScriptedModel([Reply.finish_aborted()]))
    assert isinstance(aborted, Finish)
    assert isinstance(aborted.reason, FinishAborted)


# --- scripts ----------------------------------------------------------------------------------------


async def test_shorthands_and_functions() -> None:
    def echo(asked: ModelRequest) -> str:
        return f"{asked.model} heard {asked.messages[-1].text}"

    model = ScriptedModel(["text", KeyError("k"), echo])
    assert TextDelta(index=0, text="text") in await collect(model)
    with pytest.raises(KeyError):
        await collect(model)
    assert TextDelta(index=0, text="m heard hello") in await collect(model)
    assert TextDelta(index=0, text="m heard hello") in await collect(ScriptedModel(echo))
    same = ScriptedModel(Reply.text("again"))
    assert await collect(same) == await collect(same)


async def test_a_used_up_script_says_where_it_was() -> None:
    model = ScriptedModel(["one"])
    await collect(model)
    with pytest.raises(ModelError, match=r"'scripted' is used up: request 2 .*'s', turn 3, step 4") as caught:
        await collect(model, request(turn=3, step=4))
    assert caught.value.code == "SCRIPT_EXHAUSTED"
    model.extend("two")
    assert TextDelta(index=0, text="two") in await collect(model)


def test_a_script_is_made_of_replies() -> None:
    with pytest.raises(UsageError, match="list of replies"):
        ScriptedModel("hello")
    with pytest.raises(UsageError, match="chunks and steps"):
        Reply.chunks(["hello"])  # type: ignore[list-item]


async def test_an_entry_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="gives a Reply"):
        await collect(ScriptedModel([3]))  # type: ignore[list-item]


async def test_requests_are_kept_or_only_counted() -> None:
    asked = request()
    model, forgetful = ScriptedModel(["x", "y"]), ScriptedModel(["x"], record=False)
    await collect(model, asked)
    assert model.requests == [asked]
    await collect(forgetful)
    assert (forgetful.requests, forgetful.request_count) == ([], 1)


async def test_info_is_what_the_author_says() -> None:
    with trio.testing.assert_checkpoints():
        info = await ScriptedModel(context_window=8000).info("any")
    assert info.context_window == 8000
    assert ScriptedModel(provider="p").provider == "p"


# --- between the chunks -----------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
async def test_streaming_is_a_checkpoint(strict: bool) -> None:
    with trio.testing.assert_checkpoints():
        await collect(ScriptedModel(["x"], strict=strict))


async def test_time_passes_where_it_is_told_to(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[tuple[float, str]] = []
    reply = Reply.text("a", "b", usage=None).paced(2).delayed(5)
    await ScriptedModel([reply]).stream(
        request(), lambda chunk: seen.append((trio.current_time(), chunk.tag))
    )
    start = seen[0][0]
    assert [(round(when - start), tag) for when, tag in seen] == [
        (0, "block-start"), (2, "text-delta"), (4, "text-delta"), (6, "block-end"), (8, "finish"),
    ]  # fmt: skip
    assert trio.current_time() >= 15


async def test_a_gate_holds_the_stream() -> None:
    gate = Gate()
    seen: list[Chunk] = []
    model = ScriptedModel([Reply.chunks([TextDelta(index=0, text="a"), gate, Finish(reason=Stop())])])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.stream, request(), seen.append)
        await gate.reached.wait()
        assert kinds(seen) == ["text-delta"]
        gate.opened.set()
    assert kinds(seen) == ["text-delta", "finish"]
    opened = trio.Event()
    opened.set()
    assert kinds(await collect(ScriptedModel([Reply.empty().gated(opened)]))) == ["usage", "finish"]


@pytest.mark.parametrize("count", range(7))
async def test_a_failure_before_and_after_each_chunk(count: int) -> None:
    error = RuntimeError("mine")
    reply = Reply.text("a", "b").cut(count, Raise(error))
    model = ScriptedModel([reply, reply])
    for _ in range(2):
        seen: list[Chunk] = []
        with pytest.raises(RuntimeError) as caught:
            await model.stream(request(), seen.append)
        assert caught.value is error
        assert len(seen) == count


async def test_fail_takes_a_code() -> None:
    with pytest.raises(ModelError) as caught:
        await collect(ScriptedModel([Reply.fail("RATE_LIMIT")]))
    assert caught.value.code == "RATE_LIMIT"


async def test_a_hanging_stream_ends_by_cancel(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Chunk] = []
    with trio.move_on_after(60) as scope:
        await ScriptedModel([Reply.hang(after=[TextDelta(index=0, text="a")])]).stream(request(), seen.append)
    assert scope.cancelled_caught
    assert kinds(seen) == ["text-delta"]
    assert kinds(Reply.text("a").cut(2, Hang()).steps[:2]) == ["block-start", "text-delta"]  # type: ignore[arg-type]


async def test_a_stubborn_stream_does_not_hear_a_cancel(autojump_clock: trio.testing.MockClock) -> None:
    """C2: what comes after the cancel is emitted all the same."""
    seen: list[Chunk] = []
    start = trio.current_time()
    with trio.move_on_after(1):
        await ScriptedModel([Reply.chunks([Stubborn(10), *Reply.text("late").steps])]).stream(
            request(), seen.append
        )
    assert trio.current_time() - start == 10
    assert TextDelta(index=0, text="late") in seen


async def test_a_call_happens_exactly_there() -> None:
    seen: list[Chunk] = []
    lengths: list[int] = []
    steps = Reply.text("a").steps
    reply = Reply.chunks([*steps[:2], Call(lambda: lengths.append(len(seen))), *steps[2:], Sleep()])
    await ScriptedModel([reply]).stream(request(), seen.append)
    assert lengths == [2]


# --- strictness -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (
            [user("x"), said(call(), call("c2")), result("c1")],
            r"history ends before the result of tool call 'c2'",
        ),
        (
            [user("x"), said(call()), user("y", id="u2"), result()],
            "'u2' comes before the result of tool call 'c1'",
        ),
        ([user("x"), said(call()), said("y", id="a2")], "'a2' comes before"),
        ([user("x"), result("c9")], "'r' is the result of call 'c9', which is not asked for"),
        ([user("x"), said(call()), result(), result()], "not asked for directly before it"),
        ([said("hello")], "'a' stands first"),
        ([result()], "'r' stands first"),
        ([user("x"), said()], "'a' has no content"),
        ([user("x"), said("y"), user(" \n", id="u2")], "'u2' holds nothing but blank text"),
        ([user(call())], "'u' holds a tool-call block"),
        ([user("x"), said("y", result().content[0])], "'a' holds a tool-result block"),
    ],
    ids=str,
)
async def test_a_strict_model_refuses(messages: list, problem: str) -> None:
    """T1: the next request must hold every call's result directly after it."""
    model = ScriptedModel(["answer"])
    with pytest.raises(ModelError, match=problem) as caught:
        await collect(model, request(*messages))
    assert caught.value.code == "INVALID_REQUEST"
    assert TextDelta(index=0, text="answer") in await collect(model), "a refused request took a reply"
    assert len(model.requests) == 2
    assert await collect(ScriptedModel(["answer"], strict=False), request(*messages))


async def test_a_strict_model_refuses_an_empty_history() -> None:
    with pytest.raises(ModelError, match="no message"):
        await collect(ScriptedModel(["x"]), ModelRequest(provider="p", model="m", messages=()))
    system = user("x")
    with pytest.raises(ModelError, match="role 'system'"):
        await collect(
            ScriptedModel(["x"]),
            request(
                system, type(said())(id="z", role="system", content=system.content, source=system.source)
            ),
        )


@pytest.mark.parametrize(
    "messages",
    [
        [user("x"), said("y", call("c1"), call("c2")), result("c2", id="r2"), result("c1"), user("z")],
        [user("x"), said(call("same"), call("same")), result("same", "a"), result("same", "b", id="r2")],
        [user("x"), said(thought())],
        [user("x"), user("y"), said("z"), said("w")],
        [user("x", "  ")],
    ],
    ids=[
        "results in any order",
        "duplicate ids",
        "cut-off reasoning",
        "same role twice",
        "a blank beside text",
    ],
)
async def test_a_strict_model_accepts(messages: list) -> None:
    assert await collect(ScriptedModel(["answer"]), request(*messages))
