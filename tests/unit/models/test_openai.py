"""Chat completions through httpx2's mock transport, in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx2
import msgspec
import pytest
import trio
import trio.testing

from tests.unit.models.samples import collect, kinds, request, said, thought, user
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import ModelRequest, OpenAIChat
from trio_agents.values._chunks import (
    BlockEnd,
    Chunk,
    Finish,
    MaxTokens,
    Refused,
    Stop,
    TextDelta,
    ToolCalls,
    Usage,
)
from trio_agents.values._json import FrozenJson
from trio_agents.values._messages import ReasoningBlock, TextBlock, TokenUsage, ToolCallBlock

KEY = "sk-planted-0123456789"


class Stream(httpx2.AsyncByteStream):
    """A response's body: pieces, and between them seconds to wait, events to wait for, or errors to raise."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self.pieces = list(pieces)
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  the shape of httpx2's streams
        for piece in self.pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, trio.Event):
                await piece.wait()
            elif isinstance(piece, Exception):
                raise piece
            else:
                await trio.sleep(piece)

    async def aclose(self) -> None:
        self.closed += 1


def sse(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else msgspec.json.encode(value)) + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return sse({"id": "x", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


DONE = sse(b"[DONE]")
SSE = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "req-7"}


class Provider:
    """An adapter whose provider answers with these pieces."""

    def __init__(self, *pieces: Any, status: int = 200, answer_headers: Any = None, **options: Any) -> None:
        self.body = Stream(pieces)
        self.status = status
        self.headers = SSE if answer_headers is None else answer_headers
        self.requests: list[httpx2.Request] = []
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self.handle))
        settings: dict[str, Any] = {"api_key": KEY, "client": client, **options}
        self.model = OpenAIChat(**settings)

    def handle(self, asked: httpx2.Request) -> httpx2.Response:
        self.requests.append(asked)
        return httpx2.Response(self.status, headers=self.headers, stream=self.body)

    async def chunks(self, asked: ModelRequest | None = None) -> list[Chunk]:
        return await collect(self.model, asked)

    async def error(self, asked: ModelRequest | None = None) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.chunks(asked)
        assert self.body.closed or not self.requests
        return caught.value


def blocks(chunks: list[Chunk]) -> list:
    return [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]


# --- answers ----------------------------------------------------------------------------------------


async def test_a_text() -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    provider = Provider(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop"),
        sse({"choices": [], "usage": usage}),
        DONE,
    )
    chunks = await provider.chunks()
    assert kinds(chunks) == ["block-start", "text-delta", "text-delta", "block-end", "usage", "finish"]
    assert blocks(chunks) == [TextBlock(text="Hello")]
    assert chunks[-2] == Usage(usage=TokenUsage(input_tokens=8, output_tokens=3, cache_read_tokens=4))
    assert chunks[-1] == Finish(reason=Stop())
    assert provider.body.closed
    [asked] = provider.requests
    assert (asked.method, str(asked.url)) == ("POST", "https://api.openai.com/v1/chat/completions")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(asked.content)["messages"] == [{"role": "user", "content": "hello"}]


async def test_reasoning_is_kept_with_the_field_that_it_came_in() -> None:
    for field in ("reasoning_content", "reasoning"):
        chunks = await Provider(delta(**{field: "why"}), delta(content="a"), delta("stop"), DONE).chunks()
        assert blocks(chunks) == [ReasoningBlock(text="why"), TextBlock(text="a")]
        state = {"response": None, "blocks": [{"field": field}, None]}
        assert chunks[-1] == Finish(reason=Stop(), replay_state=FrozenJson.of(state))


def tool_delta(**fields: Any) -> bytes:
    return delta(tool_calls=[fields])


async def test_calls_with_split_arguments() -> None:
    chunks = await Provider(
        tool_delta(index=0, id="a", type="function", function={"name": "read", "arguments": ""}),
        tool_delta(index=0, function={"arguments": '{"p":'}),
        tool_delta(index=1, id="b", function={"name": "list", "arguments": "{}"}),
        tool_delta(index=0, function={"arguments": "1}"}),
        delta("tool_calls"),
        DONE,
    ).chunks()
    assert blocks(chunks) == [
        ToolCallBlock(id="a", name="read", arguments='{"p":1}'),
        ToolCallBlock(id="b", name="list", arguments="{}"),
    ]
    assert chunks[-1] == Finish(reason=ToolCalls())


async def test_whole_calls_without_an_index() -> None:
    calls = [
        {"id": "a", "function": {"name": "read", "arguments": "{}"}},
        {"id": "b", "function": {"name": "list", "arguments": "{}"}},
    ]
    chunks = await Provider(delta(tool_calls=calls), delta("stop"), DONE).chunks()
    assert [block.id for block in blocks(chunks)] == ["a", "b"]
    assert chunks[-1] == Finish(reason=ToolCalls())


@pytest.mark.parametrize(
    ("said_to_end", "reason"),
    [
        ("stop", Stop()), ("length", MaxTokens()), ("content_filter", Refused()), ("eos", Stop()),
        ("tool_calls", Stop()),
    ],
)  # fmt: skip
async def test_ends(said_to_end: str, reason: Any) -> None:
    chunks = await Provider(delta(content="a"), delta(said_to_end), DONE).chunks()
    assert chunks[-1] == Finish(reason=reason)


async def test_a_refusal_in_words() -> None:
    """TRN-13: the words are kept, the end says that it was a refusal."""
    chunks = await Provider(delta(refusal="I can't."), delta("stop"), DONE).chunks()
    assert blocks(chunks) == [TextBlock(text="I can't.")]
    assert chunks[-1] == Finish(reason=Refused())


async def test_an_empty_reply_is_a_stop_without_blocks() -> None:
    """M2: the driver calls it EMPTY_RESPONSE."""
    assert kinds(await Provider(delta("stop"), DONE).chunks()) == ["finish"]
    assert kinds(await Provider(DONE).chunks()) == ["finish"]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, TokenUsage(input_tokens=5, output_tokens=2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3},
            TokenUsage(input_tokens=2, output_tokens=2, cache_read_tokens=3),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 9,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            TokenUsage(input_tokens=5, output_tokens=9, reasoning_tokens=7),
        ),
        (
            {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}},
            TokenUsage(input_tokens=0, output_tokens=0, cache_read_tokens=3),
        ),
        ({"total_tokens": 4}, None),
        (None, None),
        (
            {"prompt_tokens": 1e3, "completion_tokens": -2},
            TokenUsage(input_tokens=1000, output_tokens=0),
        ),
        (
            {"prompt_tokens": 10**30, "prompt_tokens_details": {"cached_tokens": -3}},
            TokenUsage(input_tokens=2**53 - 1, output_tokens=0, cache_read_tokens=0),
        ),
    ],
)
async def test_usage_is_disjoint(usage: Any, expected: TokenUsage | None) -> None:
    chunks = await Provider(
        delta(content="a"), delta("stop"), sse({"choices": [], "usage": usage}), DONE
    ).chunks()
    assert [chunk.usage for chunk in chunks if isinstance(chunk, Usage)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    "tail",
    [
        [],
        [httpx2.ReadError("reset")],
        [3600],
        [sse(b"{}x")],
        [b'data: {"choi'],
        [b'data: {"choi', httpx2.ReadError("")],
    ],
    ids=["end", "reset", "silence", "garbage", "cut", "cut and reset"],
)
async def test_an_end_without_the_terminator_is_an_end(
    tail: list, autojump_clock: trio.testing.MockClock
) -> None:
    """Many servers never send `[DONE]`; the finish reason says that the answer is complete."""
    start = trio.current_time()
    chunks = await Provider(delta(content="a"), delta("stop"), *tail).chunks()
    assert kinds(chunks) == ["block-start", "text-delta", "block-end", "finish"]
    assert trio.current_time() - start < 10


async def test_an_end_that_does_not_end_is_left(autojump_clock: trio.testing.MockClock) -> None:
    """M1: the finish reason has come, and after it events for ever that tell nothing."""
    start = trio.current_time()
    beat = [sse({"choices": []}), 3]
    chunks = await Provider(delta(content="a"), delta("stop"), *beat * 1000).chunks()
    assert kinds(chunks)[-1] == "finish"
    assert trio.current_time() - start < 10


async def test_other_choices_and_what_follows_the_end_are_ignored() -> None:
    other = sse({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})
    chunks = await Provider(
        other, delta(content="a"), delta("stop"), delta(content="late"), DONE, delta("x")
    ).chunks()
    assert blocks(chunks) == [TextBlock(text="a")]


async def test_half_characters_of_a_provider() -> None:
    """A text cut inside an emoji reaches the log as the emoji."""
    first = sse(b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}')
    second = sse(b'{"choices":[{"delta":{"content":"\\ude00"}}]}')
    chunks = await Provider(first, second, delta("stop"), DONE).chunks()
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["a", "😀"]


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [[], [delta(content="a")], [b": only a comment\n\n"], [delta(content="a"), delta(content="b")[:-9]]],
)
async def test_a_clean_end_in_the_middle(pieces: list[bytes]) -> None:
    assert (await Provider(*pieces).error()).code == "STREAM_CLOSED"


@pytest.mark.parametrize(
    "garbage", [b'{"choices"', b"[1]", b'{"choices": 3}', b'{"choices":[{"delta":{"content":7}}]}', b"{NaN}"]
)
async def test_malformed_events(garbage: bytes) -> None:
    error = await Provider(delta(content="a"), sse(garbage)).error()
    assert (error.code, error.request_id) == ("MALFORMED_RESPONSE", "req-7")


async def test_failures_inside_the_stream() -> None:
    error = await Provider(delta(content="a"), sse({"error": {"message": "boom", "code": 503}})).error()
    assert (error.code, error.status, error.request_id) == ("SERVER", 503, "req-7")
    for reason in ("error", "insufficient_system_resource"):
        assert (await Provider(delta(content="a"), delta(reason)).error()).code == "SERVER"


async def test_http_errors_carry_their_facts() -> None:
    body = msgspec.json.encode({"error": {"message": "slow down", "type": "rate_limit"}})
    headers = {"content-type": "application/json", "retry-after": "7", "x-request-id": "r-1"}
    error = await Provider(body, status=429, answer_headers=headers).error()
    assert (error.code, error.status, error.retry_after_ms, error.request_id) == (
        "RATE_LIMIT",
        429,
        7000.0,
        "r-1",
    )
    assert str(error) == "openai answered with HTTP 429: slow down"


@pytest.mark.parametrize(
    ("pieces", "packed"),
    [
        ([b'{"err', httpx2.ReadError("reset")], "identity"),
        ([httpx2.RemoteProtocolError("cut")], "identity"),
        ([b"no gzip"], "gzip"),
    ],
)
async def test_a_status_counts_although_its_body_is_lost(pieces: list, packed: str) -> None:
    """What cannot be cured by another attempt must not look like a broken connection, which is tried again."""
    headers = {"retry-after": "7", "x-request-id": "r-1", "content-encoding": packed}
    error = await Provider(*pieces, status=429, answer_headers=headers).error()
    facts = (error.code, error.status, error.retry_after_ms, error.request_id)
    assert facts == ("RATE_LIMIT", 429, 7000.0, "r-1")
    assert (await Provider(*pieces, status=401, answer_headers=headers).error()).code == "AUTH"


async def test_what_follows_a_failure_inside_the_stream_does_not_hide_it() -> None:
    """ERR-10: the clean-up of the connection fails, too."""
    failure = sse({"error": {"message": "x", "code": "insufficient_quota"}})
    for pieces in ([failure], [delta(content="a"), failure]):
        error = await Provider(*pieces, httpx2.RemoteProtocolError("illegal chunk header")).error()
        assert (error.code, error.request_id) == ("QUOTA", "req-7")
    last = await Provider(failure.rstrip()).error()
    assert (last.code, last.request_id) == ("QUOTA", "req-7")


async def test_an_answer_that_is_no_stream() -> None:
    html = await Provider(b"<h1>Log in</h1>", answer_headers={"content-type": "text/html"}).error()
    assert html.code == "MALFORMED_RESPONSE"
    assert "text/html" in str(html)
    assert "Log in" in str(html)


async def test_a_huge_error_body_is_not_read_whole(autojump_clock: trio.testing.MockClock) -> None:
    error = await Provider(*[b"x" * 10_000] * 1000, status=500, answer_headers={}).error()
    assert error.code == "SERVER"
    assert len(str(error)) < 1000
    slow = await Provider(b"busy", 3600, status=503, answer_headers={}).error()
    assert (slow.code, "busy" in str(slow)) == ("SERVER", True)


@pytest.mark.parametrize("kind", [httpx2.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError])
async def test_broken_connections(kind: type[Exception]) -> None:
    error = await Provider(delta(content="a"), kind("broken")).error()
    assert (error.code, error.request_id) == ("TRANSPORT", "req-7")
    assert "https://api.openai.com/v1" in str(error)
    assert isinstance(error.__cause__, kind)


async def test_what_emit_raises_passes_through() -> None:
    """ERR-10: an observer's failure is not the provider's."""
    provider = Provider(delta(content="a"), delta(content="b"), delta("stop"), DONE)
    error = KeyError("mine")

    def emit(chunk: Chunk) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await provider.model.stream(request(), emit)
    assert caught.value is error
    assert provider.body.closed


# --- deadlines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "options", "seconds", "text"),
    [
        ([3600], {}, 120, "did not begin to answer within 120 s"),
        ([b": keep-alive\n\n", 100, b": keep-alive\n\n", 100], {}, 120, "did not begin"),
        ([delta(role="assistant", content=""), 3600], {"first_byte_timeout": 9}, 9, "did not begin"),
        ([delta(content="a"), 3600], {}, 120, "fell silent for 120 s"),
        ([10, delta(content="a"), 3600], {"silence_timeout": 20}, 30, "fell silent for 20 s"),
        (
            [delta(content="a"), *[15, b": keep-alive\n\n"] * 9],
            {"silence_timeout": 20}, 20, "fell silent",
        ),
        ([*[delta(content="a"), 50] * 9], {"total_timeout": 120}, 120, "not complete within 120 s"),
        ([3600], {"total_timeout": 5}, 5, "not complete within 5 s"),
    ],
)  # fmt: skip
async def test_each_deadline(
    pieces: list, options: dict, seconds: float, text: str, autojump_clock: trio.testing.MockClock
) -> None:
    """M1: a silent stream, or one that only keeps the connection alive, ends as a typed timeout."""
    provider = Provider(*pieces, **options)
    start = trio.current_time()
    error = await provider.error()
    assert (error.code, text in str(error)) == ("TIMEOUT", True), str(error)
    assert seconds <= trio.current_time() - start <= seconds * 1.02


async def test_a_slow_stream_that_keeps_talking_is_fine(autojump_clock: trio.testing.MockClock) -> None:
    pieces = [piece for _ in range(50) for piece in (100, delta(content="a"))]
    assert len(await Provider(*pieces, delta("stop"), DONE).chunks()) == 53


async def test_no_bound_is_no_bound(autojump_clock: trio.testing.MockClock) -> None:
    unbounded: dict[str, Any] = {"first_byte_timeout": None, "silence_timeout": None, "connect_timeout": None}
    pieces = [delta(content="a"), 10**6, delta("stop"), DONE]
    assert await Provider(10**6, *pieces, **unbounded).chunks()


async def test_time_inside_the_observer_does_not_count(mock_clock: trio.testing.MockClock) -> None:
    """M1."""
    provider = Provider(delta(content="a"), 0, delta(content="b"), 0, delta("stop"), DONE, silence_timeout=10)
    seen: list[Chunk] = []

    def slow(chunk: Chunk) -> None:
        seen.append(chunk)
        mock_clock.jump(60)

    await provider.model.stream(request(), slow)
    assert kinds(seen)[-1] == "finish"


async def test_a_connect_timeout(autojump_clock: trio.testing.MockClock) -> None:
    def refuse(asked: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("slow")

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse))
    with pytest.raises(ModelError, match="no connection to openai within 15 s") as caught:
        await collect(OpenAIChat(api_key=KEY, client=client))
    assert caught.value.code == "TIMEOUT"


# --- cancelling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(5))
async def test_cancelled_after_each_piece(count: int, autojump_clock: trio.testing.MockClock) -> None:
    """D7, D8: what came stays, the response is closed, nothing comes after the cancel."""
    whole = [delta(role="assistant", content=""), delta(content="a"), delta(content="b"), delta("stop"), DONE]
    never = trio.Event()
    provider = Provider(*whole[:count], never)
    chunks: list[Chunk] = []
    with trio.move_on_after(1) as scope:
        await provider.model.stream(request(), chunks.append)
    assert scope.cancelled_caught
    assert provider.body.closed
    assert kinds(chunks) == [[], [], ["block-start", "text-delta"], ["block-start", "text-delta", "text-delta"],
                             ["block-start", "text-delta", "text-delta", "block-end"]][count]  # fmt: skip


# --- keys --------------------------------------------------------------------------


async def test_extra_fields_and_the_name_of_the_cap() -> None:
    public, other = Provider(DONE, extra_body={"seed": 3}), Provider(DONE, base_url="http://x.test/v1")
    for provider in (public, other):
        await provider.chunks(request(max_tokens=9))
    assert json.loads(public.requests[0].content) | {"seed": 3, "max_completion_tokens": 9} == json.loads(
        public.requests[0].content
    )
    assert json.loads(other.requests[0].content)["max_tokens"] == 9


def test_a_key_that_no_header_can_hold_is_refused_unseen() -> None:
    with pytest.raises(UsageError, match="cannot be sent") as caught:
        OpenAIChat(api_key="sk-one\nsk-two")
    assert "sk-" not in str(caught.value)


async def test_reasoning_of_a_tool_loop_is_sent_back() -> None:
    unsigned = Provider(DONE)
    await unsigned.chunks(request(user("x"), said(thought("deep"), "text"), user("y")))
    assert "deep" not in unsigned.requests[0].content.decode()


# --- importing --------------------------------------------------------------------------------------


def test_importing_the_package_does_not_import_httpx2() -> None:
    program = "import sys, trio_agents.models; sys.exit('httpx2' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
