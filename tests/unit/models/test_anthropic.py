"""Anthropic's messages: requests as a pure function, answers event by event."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.unit.models.samples import (
    call,
    collect,
    kinds,
    picture,
    request,
    result,
    said,
    thought,
    tool,
    user,
)
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import Anthropic, ModelInfo
from trio_agents.models._rendering import encode_body
from trio_agents.models.anthropic import render_anthropic
from trio_agents.values import (
    BlockEnd,
    Chunk,
    Finish,
    MaxTokens,
    ReasoningBlock,
    Refused,
    Stop,
    TextBlock,
    TokenUsage,
    ToolCallBlock,
    ToolCalls,
    Usage,
)

KEY = "sk-ant-planted-0123456789"

# --- requests ---------------------------------------------------------------------------------------


def body(*messages: Any, images: Any = None, rendering: Any = None, **settings: Any) -> dict:
    rendered = render_anthropic(request(*messages, **settings), images, **(rendering or {}))
    return json.loads(encode_body(rendered))


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def test_the_smallest_request() -> None:
    assert body(user("hi")) == {
        "model": "m",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [text("hi")]}],
        "stream": True,
    }


def test_settings_stand_where_the_protocol_has_them() -> None:
    rendered = body(
        user("hi"), system="Be brief.", tools=(tool("read"),), max_tokens=50, temperature=0.5, stop=("END",)
    )
    assert rendered["system"] == [text("Be brief.")]
    assert rendered["tools"] == [
        {
            "name": "read",
            "description": "Does read.",
            "input_schema": {"type": "object", "properties": {}},
        }
    ]
    assert (rendered["max_tokens"], rendered["temperature"], rendered["stop_sequences"]) == (50, 0.5, ["END"])


def test_a_tool_turn_alternates_its_roles() -> None:
    rendered = body(
        user("a"),
        user("b", id="u2"),
        said("Let me see.", call("c.1", "read", '{"p": 1}'), call("c2", "list", "oops")),
        result("c.1", "one"),
        result("c2", id="r2", error=True),
        user("go on", id="u3"),
    )["messages"]
    assert rendered == [
        {"role": "user", "content": [text("a"), text("b")]},
        {
            "role": "assistant",
            "content": [
                text("Let me see."),
                {"type": "tool_use", "id": "c_1", "name": "read", "input": {"p": 1}},
                {"type": "tool_use", "id": "c2", "name": "list", "input": {"malformed_arguments": "oops"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c_1", "content": [text("one")]},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [text("(no output)")],
                    "is_error": True,
                },
                text("go on"),
            ],
        },
    ]


def test_a_conversation_begins_and_ends_with_input() -> None:
    """DRV-25: a history that ends in a cut-off answer can be continued although the protocol wants input last."""
    roles = [message["role"] for message in body(said("hello"), user("x"), said("half an ans"))["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


def test_signed_thinking_goes_back_and_nothing_else_does() -> None:
    """T5, T8."""
    state = {"response": None, "blocks": [{"signature": "s"}, {"redacted": "r"}, None]}
    kept = said(thought("deep"), thought(""), "text", state=state)
    assert body(user("x"), kept, user("y"))["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "deep", "signature": "s"},
        {"type": "redacted_thinking", "data": "r"},
        text("text"),
    ]
    for other in (said(thought("deep"), "text"), said(thought("deep"), "text", state={"blocks": [1]})):
        assert body(user("x"), other, user("y"))["messages"][1]["content"] == [text("text")]
    assert body(user("x"), kept, user("y"), model="n")["messages"][1]["content"] == [text("text")]


def test_images_in_input_and_in_results() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    shown = picture("sha256:ab")
    rendered = body(user("x", shown), said(call()), result("c1", shown), images={"sha256:ab": "QUJD"})[
        "messages"
    ]
    assert rendered[0]["content"] == [text("x"), image]
    assert rendered[2]["content"][0]["content"] == [image]


def test_marks_for_the_cache() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    rendered = body(user("a", "b"), system="s", rendering={"cache": True})
    assert rendered["system"] == [text("s") | mark]
    assert rendered["messages"][0]["content"] == [text("a"), text("b") | mark]


@pytest.mark.parametrize(
    ("settings", "budget", "cap"),
    [
        ({}, None, 8192),
        ({"effort": "none"}, None, 8192),
        ({"effort": "low"}, 2048, 8192),
        ({"effort": "high"}, 24576, 25600),
        ({"effort": "high", "max_tokens": 4000}, 3999, 4000),
        ({"effort": "high", "max_tokens": 500}, None, 500),
    ],
)
def test_effort_is_a_budget_below_the_cap(settings: dict, budget: int | None, cap: int) -> None:
    rendered = body(user("x"), **settings)
    assert rendered["max_tokens"] == cap
    assert rendered.get("thinking") == (budget and {"type": "enabled", "budget_tokens": budget})


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(
        ModelError, match="'huge' is not known to openai; known: none, low, medium, high"
    ) as caught:
        body(user("x"), effort="huge")
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


def test_a_tool_loop_without_thinking_goes_on_without() -> None:
    """After a change of model in a tool loop the protocol would refuse thinking. Steering does not end the loop."""
    bare = [user("x"), said(call()), result()]
    signed = [user("x"), said(thought(), call(), state={"blocks": [{"signature": "s"}, None]}), result()]
    steering = [user("y"), user("z")]
    for more in ([], steering):
        assert "thinking" not in body(*bare, *more, effort="low")
        assert "thinking" in body(*signed, *more, effort="low")
    assert "thinking" in body(*bare, said("done"), *steering, effort="low")
    assert "thinking" in body(*steering, effort="low")


# --- answers ----------------------------------------------------------------------------------------


def sse(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


START = sse(
    "message_start", message={"usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 1}}
)
STOP = sse("message_stop")


def block(index: int, **fields: Any) -> bytes:
    return sse("content_block_start", index=index, content_block=fields)


def delta(index: int, **fields: Any) -> bytes:
    return sse("content_block_delta", index=index, delta=fields)


def end(index: int) -> bytes:
    return sse("content_block_stop", index=index)


def stopped(reason: str, **usage: int) -> bytes:
    return sse("message_delta", delta={"stop_reason": reason}, usage=usage)


def adapter(*pieces: bytes, **options: Any) -> tuple[Anthropic, list[httpx2.Request]]:
    requests: list[httpx2.Request] = []

    def answer(asked: httpx2.Request) -> httpx2.Response:
        requests.append(asked)
        headers = {"content-type": "text/event-stream", "request-id": "req-9"}
        return httpx2.Response(200, headers=headers, content=b"".join(pieces))

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    settings: dict[str, Any] = {"api_key": KEY, "client": client, **options}
    return Anthropic(**settings), requests


async def answer(*pieces: bytes) -> list[Chunk]:
    return await collect(adapter(*pieces)[0])


def blocks(chunks: list[Chunk]) -> list:
    return [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]


async def test_a_text() -> None:
    model, requests = adapter(
        START,
        sse("ping"),
        block(0, type="text", text=""),
        delta(0, type="text_delta", text="Hel"),
        delta(0, type="text_delta", text="lo"),
        end(0),
        stopped("end_turn", output_tokens=3, cache_creation_input_tokens=2),
        STOP,
    )
    chunks = await collect(model)
    assert kinds(chunks) == [
        "usage",
        "block-start",
        "text-delta",
        "text-delta",
        "block-end",
        "usage",
        "finish",
    ]
    assert blocks(chunks) == [TextBlock(text="Hello")]
    usage = TokenUsage(input_tokens=9, output_tokens=3, cache_read_tokens=4, cache_write_tokens=2)
    assert chunks[-2:] == [Usage(usage=usage), Finish(reason=Stop())]
    [asked] = requests
    assert str(asked.url) == "https://api.anthropic.com/v1/messages"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")


async def test_odd_usage_costs_no_answer() -> None:
    usage: dict[str, Any] = {"input_tokens": 1e3, "output_tokens": -1, "cache_read_input_tokens": 10**30}
    chunks = await answer(block(0, type="text", text="a"), stopped("end_turn", **usage), STOP)
    wanted = TokenUsage(input_tokens=1000, output_tokens=0, cache_read_tokens=2**53 - 1)
    assert [chunk.usage for chunk in chunks if isinstance(chunk, Usage)] == [wanted]


async def test_thinking_with_signatures_and_a_call() -> None:
    chunks = await answer(
        START,
        block(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="why"),
        delta(0, type="signature_delta", signature="sig"),
        end(0),
        block(1, type="redacted_thinking", data="r"),
        end(1),
        block(2, type="tool_use", id="t", name="read", input={}),
        delta(2, type="input_json_delta", partial_json='{"p":'),
        delta(2, type="input_json_delta", partial_json="1}"),
        end(2),
        stopped("tool_use"),
        STOP,
    )
    assert blocks(chunks) == [
        ReasoningBlock(text="why"),
        ReasoningBlock(text=""),
        ToolCallBlock(id="t", name="read", arguments='{"p":1}'),
    ]
    finish = chunks[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == ToolCalls()
    assert finish.replay_state.value == {
        "response": None,
        "blocks": [{"signature": "sig"}, {"redacted": "r"}, None],
    }


@pytest.mark.parametrize(
    ("said_to_end", "reason"),
    [
        ("end_turn", Stop()), ("stop_sequence", Stop()), ("max_tokens", MaxTokens()), ("refusal", Refused()),
        ("model_context_window_exceeded", MaxTokens()), ("something_new", Stop()),
    ],
)  # fmt: skip
async def test_ends(said_to_end: str, reason: Any) -> None:
    chunks = await answer(block(0, type="text", text="a"), end(0), stopped(said_to_end), STOP)
    assert chunks[-1] == Finish(reason=reason)
    assert blocks(chunks) == [TextBlock(text="a")]
    assert kinds(await answer(stopped(said_to_end))) == ["usage", "finish"]


async def test_failures_inside_the_stream() -> None:
    with pytest.raises(ModelError, match="busy") as caught:
        await answer(START, sse("error", error={"type": "overloaded_error", "message": "busy"}))
    assert (caught.value.code, caught.value.request_id) == ("SERVER", "req-9")
    for pieces, code in (((START,), "STREAM_CLOSED"), ((b"data: {}\n\n",), "MALFORMED_RESPONSE")):
        with pytest.raises(ModelError) as caught:
            await answer(*pieces)
        assert caught.value.code == code


async def test_events_that_are_not_known_are_skipped() -> None:
    unknown = [
        sse("new_event"),
        delta(0, type="citations_delta", citation={}),
        block(7, type="new_block"),
        end(7),
    ]
    assert blocks(
        await answer(*unknown, block(0, type="text", text="a"), end(0), stopped("end_turn"), STOP)
    ) == [TextBlock(text="a")]


async def test_a_tool_that_the_provider_runs_itself_is_no_call() -> None:
    """Its input comes as that of our tools does; taken for a call without a name it would cost a step, and be refused
    in every later request."""
    chunks = await answer(
        block(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta(0, type="input_json_delta", partial_json='{"query":'),
        delta(0, type="input_json_delta", partial_json='"x"}'),
        end(0),
        block(1, type="web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
        end(1),
        block(2, type="text", text=""),
        delta(2, type="text_delta", text="found"),
        end(2),
        stopped("end_turn"),
        STOP,
    )
    assert blocks(chunks) == [TextBlock(text="found")]
    assert chunks[-1] == Finish(reason=Stop())


# --- configuration ------------------------------------------------------------------------------------


async def test_the_output_cap() -> None:
    assert await Anthropic(api_key=KEY, default_max_tokens=100).info("n") == ModelInfo(default_max_tokens=100)
    with pytest.raises(UsageError, match="default_max_tokens is a positive int, not 0"):
        Anthropic(api_key=KEY, default_max_tokens=0)


async def test_headers_beside_those_of_the_protocol() -> None:
    model, requests = adapter(STOP, headers={"anthropic-beta": "x"})
    await collect(model)
    assert (requests[0].headers["anthropic-beta"], requests[0].headers["anthropic-version"]) == (
        "x",
        "2023-06-01",
    )
