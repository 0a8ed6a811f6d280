"""Answers that come over HTTP: what the way from a provider's bytes to the log adds to reading them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import httpx2
import msgspec

from benchmarks.counting import Tally
from benchmarks.worker import Round
from trio_agents.models import ModelRequest, OpenAIChat
from trio_agents.values import Chunk, UserMessage

from .setting import OPTIONS, TEXT, check, opened, turn

PIECE: Final = "piece of text "


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta
    finish_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice]


_decode: Final = msgspec.json.Decoder(_Event).decode


class _Body(httpx2.AsyncByteStream):
    """A body that is there already, one event of the stream at a time, as servers send them."""

    def __init__(self, events: list[bytes]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900 - the shape of httpx2's streams
        for event in self._events:
            yield event

    async def aclose(self) -> None:  # noqa: ASYNC910 - nothing to close
        pass


def _event(finish: str | None = None, **delta: str) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    body = {
        "id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
        "system_fingerprint": "fp_0123456789", "choices": [choice],
    }  # fmt: skip
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _client(pieces: int) -> httpx2.AsyncClient:
    events = [_event(role="assistant", content=""), *[_event(content=PIECE)] * pieces, _event("stop")]
    body = [*events, b"data: [DONE]\n\n"]

    def answer(asked: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=_Body(body))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


async def _bare(client: httpx2.AsyncClient) -> str:
    """What a program does that wants the text and nothing else."""
    found = []
    sent = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "stream": True}
    async with client.stream("POST", "http://localhost/v1/chat/completions", json=sent) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                found += [choice.delta.content or "" for choice in _decode(line[6:]).choices]
    return "".join(found)


def _adapter(client: httpx2.AsyncClient) -> OpenAIChat:
    return OpenAIChat(base_url="http://localhost/v1", api_key="none", provider="scripted", client=client)


async def _chunks(model: OpenAIChat) -> list[Chunk]:
    found: list[Chunk] = []
    emit: Callable[[Chunk], None] = found.append
    message = UserMessage.from_text(TEXT)
    await model.stream(ModelRequest(provider="scripted", model="m", messages=(message,)), emit)
    return found


async def wire(run: Round, tally: Tally | None, *, turns: int, pieces: int) -> None:
    """The same bytes read by hand, by an adapter, and by an agent with an adapter: each piece of text."""
    ops = turns * pieces
    async with _client(pieces) as client:
        model = _adapter(client)
        text: str = ""
        chunks: list[Chunk] = []
        for metric, times in (("", 1), ("bare", turns)):
            with run.span(metric, ops):
                for _ in range(times):
                    text = await _bare(client)
        for metric, times in (("", 1), ("adapter", turns)):
            with run.span(metric, ops):
                for _ in range(times):
                    chunks = await _chunks(model)
        if len(text) != pieces * len(PIECE) or len(chunks) != pieces + 3:
            raise RuntimeError(f"{len(text)} characters and {len(chunks)} chunks are not the work")
        for tier in ("memory", "written"):
            opening = opened(tier, adapter=model, tally=tally)
            async with opening as runtime, runtime.open_agent(options=OPTIONS) as agent:
                await turn(agent)
                with run.span(tier, ops):
                    for _ in range(turns):
                        await turn(agent)
                check(agent)
