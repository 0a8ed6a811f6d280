"""What every adapter over HTTP must do, as checks against a fake provider. Public: use it for yours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import trio

from ..errors import ModelError
from ..models import ModelAdapter, ModelRequest, Reply
from ..values._assembly import Assembly
from ..values._chunks import Chunk, Finish, FinishReason, MaxTokens, Refused, Stop, TextDelta, ToolCalls
from ..values._json import dump_json
from ..values._messages import (
    ContentBlock,
    Message,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    TokenUsage,
    ToolCallBlock,
    ToolResultBlock,
    ToolSource,
    UserMessage,
)
from ._fake_provider import FakeProvider, open_fake_provider
from ._fake_script import CONTEXT_OVERFLOW, Broken, Disturbance, Dripped, ProviderReply, Reset, Status

MakeAdapter: TypeAlias = Callable[[FakeProvider, float | None], ModelAdapter]
"""Makes a fresh adapter that asks the fake provider, with this many seconds for first byte and silence (None: its own)."""

ModelCheck: TypeAlias = Callable[[MakeAdapter], Awaitable[None]]

_PATIENCE: Final = 20.0
"""Seconds after which a check has failed whatever it waits for."""
_SHORT: Final = 0.2
_USAGE: Final = TokenUsage(input_tokens=7, output_tokens=3, cache_read_tokens=2)
_WHOLE: Final = Reply.tool_calls(
    [("read", {"path": "a"}, "call-a"), ("list", {}, "call-b")],
    text="Let me see.",
    reasoning="Two files.",
    usage=_USAGE,
)


async def check_model_adapter(make: MakeAdapter) -> None:
    """Run every check on an adapter. Needs a real clock. See `MODEL_CHECKS` to run them one by one.

    Raises:
        AssertionError: the adapter does not do what the contract of `ModelAdapter` says.
    """
    await trio.lowlevel.checkpoint()
    for check in MODEL_CHECKS:
        await check(make)


# --- running ----------------------------------------------------------------------------------------


def _request(*messages: Message, model: ModelAdapter | None = None) -> ModelRequest:
    return ModelRequest(
        provider="checked" if model is None else model.provider,
        model="m",
        messages=messages or (UserMessage.from_text("hello", id="u"),),
        session_id="s",
    )


@asynccontextmanager
async def _open_adapter(
    make: MakeAdapter, server: FakeProvider, seconds: float | None = None
) -> AsyncIterator[ModelAdapter]:
    """An adapter for as long as the block lasts, closed if it can be."""
    model = make(server, seconds)
    try:
        yield model
    finally:
        close = getattr(model, "aclose", None)
        if close is not None:
            with trio.move_on_after(_PATIENCE, shield=True):
                await close()


async def _ask(make: MakeAdapter, *script: ProviderReply, seconds: float | None = None) -> list[Chunk]:
    """The chunks of one answer, or of as many as the script has entries."""
    chunks: list[Chunk] = []
    with trio.fail_after(_PATIENCE):
        async with open_fake_provider(script) as server, _open_adapter(make, server, seconds) as model:
            for _ in script:
                await model.stream(_request(), chunks.append)
    return chunks


async def _fail(make: MakeAdapter, fault: ProviderReply, *, seconds: float | None = None) -> ModelError:
    """The error that a fault becomes."""
    try:
        chunks = await _ask(make, fault, seconds=seconds)
    except ModelError as error:
        _expect(error.__class__ is ModelError, f"a plain ModelError, not {error!r}")
        return error
    raise AssertionError(f"{fault!r} should be an error, but gave {chunks!r}")


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def _assembled(chunks: Iterable[Chunk]) -> tuple[ContentBlock, ...]:
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed(chunk)
    return assembly.blocks()


def _ends(chunks: list[Chunk], reason: FinishReason) -> None:
    finishes = [chunk for chunk in chunks if isinstance(chunk, Finish)]
    _expect(len(finishes) == 1, f"one finish, not {len(finishes)}")
    _expect(chunks[-1] is finishes[0], f"the finish last, not {chunks[-1]!r}")
    _expect(finishes[0].reason == reason, f"finish {reason!r}, not {finishes[0].reason!r}")


def _same(found: object, wanted: object, what: str) -> None:
    _expect(found == wanted, f"{what}: {wanted!r}, not {found!r}")


# --- answers ----------------------------------------------------------------------------------------


async def check_text(make: MakeAdapter) -> None:
    """A text comes as it is sent, delta by delta, with its usage and one finish."""
    chunks = await _ask(make, Reply.text("Hel", "lo", " wörld 😀", usage=_USAGE))
    deltas = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
    _same(deltas, ["Hel", "lo", " wörld 😀"], "deltas")
    _same(_assembled(chunks), (TextBlock(text="Hello wörld 😀"),), "content")
    usage = [chunk.usage for chunk in chunks if chunk.tag == "usage"]  # type: ignore[attr-defined]
    _same(usage[-1:], [_USAGE], "usage")
    _ends(chunks, Stop())


async def check_blocks(make: MakeAdapter) -> None:
    """Reasoning, text and several calls keep their order, ids, names and arguments."""
    chunks = await _ask(make, _WHOLE)
    wanted = (
        ReasoningBlock(text="Two files."),
        TextBlock(text="Let me see."),
        ToolCallBlock(id="call-a", name="read", arguments='{"path":"a"}'),
        ToolCallBlock(id="call-b", name="list", arguments="{}"),
    )
    _same(_assembled(chunks), wanted, "content")
    _ends(chunks, ToolCalls())


async def check_ends(make: MakeAdapter) -> None:
    """The output cap, a refusal and an empty answer are told apart."""
    _ends(await _ask(make, Reply.max_tokens("Once upon")), MaxTokens())
    _ends(await _ask(make, Reply.refusal("I would rather not.")), Refused())
    empty = await _ask(make, Reply.empty())
    _ends(empty, Stop())
    _same(_assembled(empty), (), "content of an empty answer")


async def check_duplicate_ids(make: MakeAdapter) -> None:
    """Two calls with one id are two calls."""
    chunks = await _ask(make, Reply.tool_calls([("read", {"n": 1}, "same"), ("read", {"n": 2}, "same")]))
    arguments = [block.arguments for block in _assembled(chunks) if isinstance(block, ToolCallBlock)]
    _same(arguments, ['{"n":1}', '{"n":2}'], "arguments")


async def check_dripped(make: MakeAdapter) -> None:
    """Bytes may come one by one, cut inside lines and characters."""
    whole, dripped = await _ask(make, _WHOLE), await _ask(make, Dripped(_WHOLE))
    _same(dripped, whole, "chunks of a dripped answer")


async def check_many_at_once(make: MakeAdapter) -> None:
    """Answers that stream at the same time do not mix."""
    answers: dict[int, list[Chunk]] = {number: [] for number in range(10)}
    with trio.fail_after(_PATIENCE):
        async with (
            open_fake_provider(lambda asked: _echo(asked.body)) as server,
            _open_adapter(make, server) as model,
            trio.open_nursery() as nursery,
        ):
            for number, chunks in answers.items():
                asked = _request(UserMessage.from_text(f"say {number};", id="u"))
                nursery.start_soon(model.stream, asked, chunks.append)
    for number, chunks in answers.items():
        _same(_assembled(chunks), (TextBlock(text=f"a {number} z"),), f"answer {number}")


def _echo(body: object) -> Reply:
    number = dump_json(body).decode().partition("say ")[2].partition(";")[0]
    return Reply.text("a ", number, " z").paced()


# --- failures ---------------------------------------------------------------------------------------


async def check_http_errors(make: MakeAdapter) -> None:
    """HTTP errors get their code, status, wait and request id."""
    slow = await _fail(make, Status(status=429, retry_after="7", request_id="r-1"))
    facts = (slow.code, slow.status, slow.retry_after_ms, slow.request_id)
    _same(facts, ("RATE_LIMIT", 429, 7000.0, "r-1"), "facts of a 429")
    for fault, code in (
        (Status(status=401), "AUTH"),
        (Status(status=403), "AUTH"),
        (Status(status=400), "INVALID_REQUEST"),
        (Status(status=429, code="insufficient_quota"), "QUOTA"),
        (Status(status=500), "SERVER"),
        (Status(status=503, raw=b"<html>", content_type="text/html"), "SERVER"),
        (CONTEXT_OVERFLOW, "CONTEXT_WINDOW_EXCEEDED"),
    ):
        error = await _fail(make, fault)
        _same((error.code, error.status), (code, fault.status), f"facts of {fault!r}")


async def check_broken_streams(make: MakeAdapter) -> None:
    """A connection that breaks, ends early, or carries nonsense is an error with its own code."""
    _same((await _fail(make, Reset())).code, "TRANSPORT", "reset before the headers")
    faults: dict[Disturbance, str] = {
        "reset": "TRANSPORT",
        "end": "STREAM_CLOSED",
        "garbage": "MALFORMED_RESPONSE",
        "error": "SERVER",
    }
    for how, code in faults.items():
        for after in (0, 4):
            error = await _fail(make, Broken(_WHOLE, after=after, how=how))
            _same(error.code, code, f"{how} after {after} events")


async def check_silence(make: MakeAdapter) -> None:
    """A stream that says nothing, or only keeps the connection alive, ends as a timeout."""
    for how in ("stall", "keep-alive"):
        for after in (0, 4):
            error = await _fail(make, Broken(_WHOLE, after=after, how=how), seconds=_SHORT)
            _same(error.code, "TIMEOUT", f"{how} after {after} events")


async def check_unreachable(make: MakeAdapter) -> None:
    """Nobody listens: an error about the transport."""
    async with open_fake_provider() as server:
        pass
    with trio.fail_after(_PATIENCE):
        async with _open_adapter(make, server) as model:
            try:
                await model.stream(_request(), lambda chunk: None)
            except ModelError as error:
                _same(error.code, "TRANSPORT", "nobody listens")
            else:
                raise AssertionError("nobody listens, and yet there was an answer")


async def check_failing_observer(make: MakeAdapter) -> None:
    """What `emit` raises comes out unchanged, and the adapter can go on."""

    def emit(chunk: Chunk) -> None:
        raise error

    error = LookupError("mine")
    with trio.fail_after(_PATIENCE):
        async with open_fake_provider(["one", "two"]) as server, _open_adapter(make, server) as model:
            try:
                await model.stream(_request(), emit)
            except LookupError as caught:
                _expect(caught is error, f"the observer's own error, not {caught!r}")
            else:
                raise AssertionError("the observer's error was swallowed")
            _same(_assembled(await _next(model)), (TextBlock(text="two"),), "the next answer")


# --- cancelling -------------------------------------------------------------------------------------


async def check_cancel_everywhere(make: MakeAdapter) -> None:
    """Cancelled after any event: what came stays, nothing follows, the connection is closed, the next one works."""
    whole = await _ask(make, _WHOLE)
    # Ends by itself: once the answer is complete there is nothing to cancel any more.
    for after in range(40):
        with trio.fail_after(_PATIENCE):
            async with (
                open_fake_provider([Broken(_WHOLE, after=after, how="stall"), "next"]) as server,
                _open_adapter(make, server) as model,
            ):
                chunks = await _cancelled(model, server)
                if chunks and isinstance(chunks[-1], Finish):
                    return
                _same(chunks, whole[: len(chunks)], f"chunks of a stream cancelled after {after} events")
                _same(_assembled(await _next(model)), (TextBlock(text="next"),), "the next answer")
    raise AssertionError("the answer never became complete")


async def _cancelled(model: ModelAdapter, server: FakeProvider) -> list[Chunk]:
    chunks: list[Chunk] = []
    seen = trio.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_when_quiet() -> None:
                await server.wait_stalled()
                await trio.sleep(0.005)  # what was sent has arrived
                scope.cancel()

            nursery.start_soon(cancel_when_quiet)
            await model.stream(_request(), chunks.append)
            seen.set()
            nursery.cancel_scope.cancel()
    if not seen.is_set():
        count = len(chunks)
        await server.wait_connections(0)
        _same(len(chunks), count, "chunks after the cancel")
    return chunks


async def _next(model: ModelAdapter) -> list[Chunk]:
    chunks: list[Chunk] = []
    await model.stream(_request(), chunks.append)
    return chunks


# --- history ----------------------------------------------------------------------------------------


async def check_history(make: MakeAdapter) -> None:
    """Cut-off reasoning stays at home, interrupted text and tool results travel."""
    async with open_fake_provider(["fine"]) as server, _open_adapter(make, server) as model:
        asked = _request(*_history(model.provider), model=model)
        with trio.fail_after(_PATIENCE):
            await model.stream(asked, lambda chunk: None)
        sent = dump_json(server.requests[-1].body).decode()
    for text in ("first-input", "a-path", "a-result", "half-an-answer", "last-input"):
        _expect(sent.count(text) == 1, f"{text!r} once in {sent}")
    _expect("secret-thought" not in sent, f"no unsigned reasoning in {sent}")


def _history(provider: str) -> tuple[Message, ...]:
    source = ModelSource(provider=provider, model="m")
    call = ToolCallBlock(id="c", name="read", arguments='{"path": "a-path"}')
    answer = ToolResultBlock(tool_call_id="c", content=(TextBlock(text="a-result"),), is_error=True)
    cut = (ReasoningBlock(text="secret-thought"), TextBlock(text="half-an-answer"))
    return (
        UserMessage.from_text("first-input", id="u1"),
        Message(id="a1", role="assistant", content=(call,), source=source),
        Message(id="r1", role="user", content=(answer,), source=ToolSource(call_id="c")),
        Message(id="a2", role="assistant", content=cut, source=source),
        Message(id="a3", role="assistant", content=cut[:1], source=source),
        UserMessage.from_text("last-input", id="u2"),
    )


MODEL_CHECKS: Final[tuple[ModelCheck, ...]] = (
    check_text,
    check_blocks,
    check_ends,
    check_duplicate_ids,
    check_dripped,
    check_many_at_once,
    check_http_errors,
    check_broken_streams,
    check_silence,
    check_unreachable,
    check_failing_observer,
    check_cancel_everywhere,
    check_history,
)
"""Every check, to be run one by one: each takes the function that makes the adapter."""
