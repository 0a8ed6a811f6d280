"""OpenAI's responses: requests as a pure function, answers event by event."""

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
from trio_agents.errors import ModelError
from trio_agents.models import OpenAIResponses
from trio_agents.models._rendering import encode_body
from trio_agents.models.openai_responses import render_responses
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

KEY = "sk-planted-0123456789"

# --- requests ---------------------------------------------------------------------------------------


def body(*messages: Any, images: Any = None, rendering: Any = None, **settings: Any) -> dict:
    rendered = render_responses(request(*messages, **settings), images, **(rendering or {}))
    return json.loads(encode_body(rendered))


def asked(*parts: dict) -> dict:
    return {"type": "message", "role": "user", "content": list(parts)}


def text(words: str) -> dict:
    return {"type": "input_text", "text": words}


def test_the_smallest_request_stores_nothing() -> None:
    assert body(user("hi")) == {"model": "m", "input": [asked(text("hi"))], "stream": True, "store": False}


def test_settings_stand_where_the_protocol_has_them() -> None:
    rendered = body(
        user("hi"),
        system="Be brief.",
        tools=(tool("read"),),
        max_tokens=50,
        temperature=0.5,
        effort="low",
        rendering={"reasoning_summary": "auto"},
    )
    del rendered["input"]
    assert rendered == {
        "model": "m", "stream": True, "store": False, "instructions": "Be brief.", "max_output_tokens": 50,
        "temperature": 0.5, "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function", "name": "read", "description": "Does read.", "strict": False,
                "parameters": {"type": "object", "properties": {}},
            }
        ],
    }  # fmt: skip
    assert "include" not in body(user("x"), effort="low", rendering={"replay_reasoning": False})
    assert "include" in body(user("x"), rendering={"replay_reasoning": True})


def test_stop_sequences_are_refused() -> None:
    with pytest.raises(ModelError, match="no stop sequences") as caught:
        body(user("x"), stop=("END",))
    assert caught.value.code == "UNSUPPORTED_OPTION"


def test_a_tool_turn() -> None:
    image = picture("sha256:ab")
    shown = {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
    rendered = body(
        user("a", image),
        said("Let me see.", call("c1", "read", '{"p": 1}'), call("c2", "list", "")),
        result("c1", "one", image),
        result("c2", "gone", id="r2", error=True),
        images={"sha256:ab": "QUJD"},
    )["input"]
    assert rendered == [
        asked(text("a"), shown),
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"p": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [text("one"), shown]},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: gone"},
    ]


def test_a_failure_with_a_picture_is_told_as_one() -> None:
    image = picture("sha256:ab")
    shown = {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
    for content, words in (
        (("one", image, "two"), "Error: one\n\ntwo"),
        ((image,), "Error: (see the image that follows)"),
    ):
        failed = result("c1", *content, error=True)
        rendered = body(user("a"), said(call("c1")), failed, images={"sha256:ab": "QUJD"})["input"]
        assert rendered[-1]["output"] == [text(words), shown]


def test_only_encrypted_reasoning_goes_back() -> None:
    """T5."""
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}
    kept = said(thought("deep"), "text", state={"response": None, "blocks": [item, None]})
    assert body(user("x"), kept, user("y"))["input"][1] == item
    for message, model in ((said(thought("deep"), "text"), "m"), (kept, "other")):
        rendered = body(user("x"), message, user("y"), model=model)["input"]
        assert [entry["type"] for entry in rendered] == ["message"] * 3
    odd = said(thought("deep"), "text", state={"blocks": ["odd", None]})
    assert len(body(user("x"), odd)["input"]) == 2


# --- answers ----------------------------------------------------------------------------------------


def sse(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


def item(edge: str, index: int, **fields: Any) -> bytes:
    return sse(f"response.output_item.{edge}", output_index=index, item=fields)


def delta(what: str, index: int, words: str, **fields: Any) -> bytes:
    return sse(f"response.{what}.delta", output_index=index, delta=words, **fields)


def completed(**fields: Any) -> bytes:
    return sse("response.completed", response={"status": "completed", **fields})


def adapter(*pieces: bytes, **options: Any) -> tuple[OpenAIResponses, list[httpx2.Request]]:
    requests: list[httpx2.Request] = []

    def answer(asked: httpx2.Request) -> httpx2.Response:
        requests.append(asked)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(pieces))

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    settings: dict[str, Any] = {"api_key": KEY, "client": client, **options}
    return OpenAIResponses(**settings), requests


async def answer(*pieces: bytes) -> list[Chunk]:
    return await collect(adapter(*pieces)[0])


def blocks(chunks: list[Chunk]) -> list:
    return [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]


async def test_a_text() -> None:
    usage = {
        "input_tokens": 12, "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip
    model, requests = adapter(
        sse("response.created", response={"id": "r"}),
        item("added", 0, type="message", role="assistant", content=[]),
        sse("response.content_part.added", output_index=0, part={}),
        delta("output_text", 0, "Hel"),
        delta("output_text", 0, "lo"),
        delta("output_text", 0, ""),
        sse("response.output_text.done", output_index=0, text="Hello"),
        item("done", 0, type="message"),
        completed(usage=usage),
    )
    chunks = await collect(model)
    assert kinds(chunks) == ["block-start", "text-delta", "text-delta", "block-end", "usage", "finish"]
    assert blocks(chunks) == [TextBlock(text="Hello")]
    wanted = TokenUsage(input_tokens=8, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2)
    assert chunks[-2:] == [Usage(usage=wanted), Finish(reason=Stop())]
    assert str(requests[0].url) == "https://api.openai.com/v1/responses"
    assert requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": None, "output_tokens": 2.0}, TokenUsage(input_tokens=0, output_tokens=2)),
        (
            {"input_tokens": 10**30, "output_tokens": -1, "output_tokens_details": {"reasoning_tokens": -1}},
            TokenUsage(input_tokens=2**53 - 1, output_tokens=0, reasoning_tokens=0),
        ),
    ],
)
async def test_odd_usage_costs_no_answer(usage: Any, expected: TokenUsage) -> None:
    chunks = await answer(delta("output_text", 0, "a"), completed(usage=usage))
    assert blocks(chunks) == [TextBlock(text="a")]
    assert [chunk.usage for chunk in chunks if isinstance(chunk, Usage)] == [expected]


async def test_reasoning_and_calls() -> None:
    chunks = await answer(
        item("added", 0, type="reasoning", id="rs", summary=[]),
        sse("response.reasoning_summary_part.added", output_index=0, summary_index=0),
        delta("reasoning_summary_text", 0, "one"),
        sse("response.reasoning_summary_part.added", output_index=0, summary_index=1),
        delta("reasoning_summary_text", 0, "two"),
        item("done", 0, type="reasoning", id="rs", summary=[{"text": "one"}], encrypted_content="e"),
        item("added", 1, type="function_call", call_id="a", name="read", arguments=""),
        delta("function_call_arguments", 1, '{"p":'),
        delta("function_call_arguments", 1, "1}"),
        item("done", 1, type="function_call", call_id="a", name="read", arguments='{"p":1}'),
        item("done", 2, type="function_call", call_id="b", name="list", arguments='{"all":true}'),
        completed(),
    )
    assert blocks(chunks) == [
        ReasoningBlock(text="one\n\ntwo"),
        ToolCallBlock(id="a", name="read", arguments='{"p":1}'),
        ToolCallBlock(id="b", name="list", arguments='{"all":true}'),
    ]
    finish = chunks[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == ToolCalls()
    state = {"type": "reasoning", "id": "rs", "summary": [{"text": "one"}], "encrypted_content": "e"}
    assert finish.replay_state.value == {"response": None, "blocks": [state, None, None]}


async def test_reasoning_that_cannot_go_back_has_no_state() -> None:
    chunks = await answer(
        item("added", 0, type="reasoning"), item("done", 0, type="reasoning", id="rs"), completed()
    )
    assert blocks(chunks) == [ReasoningBlock(text="")]
    assert chunks[-1] == Finish(reason=Stop())


async def test_ends() -> None:
    def incomplete(reason: str) -> bytes:
        return sse("response.incomplete", response={"incomplete_details": {"reason": reason}})

    assert (await answer(delta("output_text", 0, "a"), incomplete("max_output_tokens")))[-1] == Finish(
        reason=MaxTokens()
    )
    assert (await answer(incomplete("content_filter")))[-1] == Finish(reason=Refused())
    refused = await answer(delta("refusal", 0, "No."), completed())
    assert blocks(refused) == [TextBlock(text="No.")]
    assert refused[-1] == Finish(reason=Refused())
    assert kinds(await answer(b"data: [DONE]\n\n", completed())) == ["finish"]


@pytest.mark.parametrize(
    ("piece", "code"),
    [
        (
            sse("response.failed", response={"error": {"code": "rate_limit_exceeded", "message": "m"}}),
            "RATE_LIMIT",
        ),
        (sse("response.failed", response={"status": "failed"}), "UNKNOWN"),
        (sse("error", code="server_error", message="m"), "SERVER"),
        (b"data: {}\n\n", "MALFORMED_RESPONSE"),
        (sse("response.created"), "STREAM_CLOSED"),
        (delta("audio", 0, "x"), "STREAM_CLOSED"),
        (b"data: [DONE]\n\n", "STREAM_CLOSED"),
    ],
)
async def test_failures(piece: bytes, code: str) -> None:
    with pytest.raises(ModelError) as caught:
        await answer(piece)
    assert caught.value.code == code
