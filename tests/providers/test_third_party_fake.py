"""The three adapters against a double that others wrote, on the other side of a socket.

Our own fake provider was written with our adapters; llm-mock-api was not, and speaks the protocols as its authors read them.
Where it deviates from the providers themselves, the test says so.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.faults.cli.programs import environment
from tests.unit.models.samples import request, tool, user
from trio_agents.errors import ModelError
from trio_agents.models import Anthropic, ModelAdapter, OpenAIChat, OpenAIResponses
from trio_agents.plugins import RetryPolicy
from trio_agents.values import (
    Chunk,
    ContentBlock,
    Finish,
    ReasoningBlock,
    Stop,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCalls,
    Usage,
)
from trio_agents.values._assembly import Assembly

KEY = "sk-planted-0123456789"

MAKE: dict[str, Callable[[str], Anthropic | OpenAIChat | OpenAIResponses]] = {
    "chat": lambda url: OpenAIChat(base_url=f"{url}/v1", api_key=KEY, provider="p"),
    "responses": lambda url: OpenAIResponses(base_url=f"{url}/v1", api_key=KEY, provider="p"),
    "anthropic": lambda url: Anthropic(base_url=url, api_key=KEY, provider="p"),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    program = Path(__file__).with_name("mock_server.py")
    with subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        # It waits for its answers to end, and some take minutes.
        server.kill()


@pytest.fixture(params=sorted(MAKE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def model(kind: str, url: str) -> AsyncIterator[ModelAdapter]:
    adapter = MAKE[kind](url)
    try:
        yield adapter
    finally:
        await adapter.aclose()


async def ask(adapter: ModelAdapter, text: str, **settings: Any) -> list[Chunk]:
    chunks: list[Chunk] = []
    await adapter.stream(request(user(text), provider="p", **settings), chunks.append)
    return chunks


def content(chunks: list[Chunk]) -> tuple[ContentBlock, ...]:
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed(chunk)
    return assembly.blocks()


def usage(chunks: list[Chunk]) -> TokenUsage:
    return [chunk.usage for chunk in chunks if isinstance(chunk, Usage)][-1]


def end(chunks: list[Chunk]) -> object:
    assert [chunk for chunk in chunks if isinstance(chunk, Finish)] == chunks[-1:]
    assert isinstance(chunks[-1], Finish)
    return chunks[-1].reason


# --- answers --------------------------------------------------------------------------------------


async def test_a_text_streams(model: ModelAdapter) -> None:
    """Not as real: pieces are four characters each; chat completions give the usage beside an empty choice, Responses
    leave out the events' names, and only chat completions say anything of a cache.
    """
    chunks = await ask(model, "greet")
    pieces = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
    assert pieces == ["Grüß", "e au", "s Zü", "rich", ": 你好", " 😀"]
    assert content(chunks) == (TextBlock(text="Grüße aus Zürich: 你好 😀"),)
    used = usage(chunks)
    assert (used.input_tokens, used.output_tokens) == (11, 7)
    assert end(chunks) == Stop()


async def test_reasoning(model: ModelAdapter, kind: str) -> None:
    """Not as real: its chat completions leave the reasoning out, and its Messages do not sign it."""
    chunks = await ask(model, "think")
    thought = () if kind == "chat" else (ReasoningBlock(text="Let me see."),)
    assert content(chunks) == (*thought, TextBlock(text="Seen."))
    assert end(chunks) == Stop()


async def test_calls(model: ModelAdapter) -> None:
    """Not as real: the arguments of a call come in one piece."""
    chunks = await ask(model, "use tools", tools=(tool("find"),))
    assert content(chunks) == (
        TextBlock(text="I look."),
        ToolCallBlock(id="call_a", name="find", arguments='{"town": "K\\u00f6ln"}'),
        ToolCallBlock(id="call_b", name="find", arguments='{"town": "Ulm"}'),
    )
    assert end(chunks) == ToolCalls()


async def test_an_answer_without_content(model: ModelAdapter) -> None:
    chunks = await ask(model, "nothing")
    assert "".join(block.text for block in content(chunks) if isinstance(block, TextBlock)) == ""
    assert end(chunks) == Stop()


async def test_what_is_sent(model: ModelAdapter) -> None:
    """Model, system prompt and message stand where the double, too, looks for them."""
    chunks = await ask(model, "echo me, Zoë", system="Be brief.", model="m-1")
    assert content(chunks) == (TextBlock(text="m-1|Be brief.|echo me, Zoë"),)


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "INVALID_REQUEST"), (401, "AUTH"), (429, "RATE_LIMIT"), (500, "SERVER"), (529, "SERVER")],
)
async def test_errors(status: int, code: str, model: ModelAdapter) -> None:
    """Not as real: there is no `retry-after`, no request id, and an error of chat completions has no code."""
    with pytest.raises(ModelError, match=f"told to fail with {status}") as caught:
        await ask(model, f"fail {status}")
    assert (caught.value.code, caught.value.status) == (code, status)
    assert (caught.value.retry_after_ms, caught.value.request_id) == (None, None)
    assert KEY not in str(caught.value)


# --- several, and cut off -------------------------------------------------------------------------


async def test_two_at_once(model: ModelAdapter) -> None:
    answers: list[list[Chunk]] = [[], []]
    order: list[int] = []

    async def listen(number: int) -> None:
        def emit(chunk: Chunk) -> None:
            answers[number].append(chunk)
            order.append(number)

        await model.stream(request(user("slowly"), provider="p"), emit)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, 0)
        nursery.start_soon(listen, 1)
    text = TextBlock(text="one two three four five six seven eight")
    assert [content(chunks) for chunks in answers] == [(text,), (text,)]
    assert order not in (sorted(order), sorted(order, reverse=True))


async def test_cut_off_in_the_middle(model: ModelAdapter) -> None:
    chunks: list[Chunk] = []
    with trio.CancelScope() as scope:

        def emit(chunk: Chunk) -> None:
            chunks.append(chunk)
            if len(chunks) == 4:
                scope.cancel()

        await model.stream(request(user("stay"), provider="p"), emit)
    assert scope.cancelled_caught
    assert len(chunks) == 4
    assert isinstance(chunks[-1], TextDelta)
    assert content(await ask(model, "greet"))


# --- through the runtime --------------------------------------------------------------------------


async def test_an_agent_works_with_tools(model: ModelAdapter) -> None:
    """The calls are run and their results understood: the double finds the id of the last one."""
    towns: list[str] = []

    @ta.tool
    async def find(town: str) -> str:
        """Find a town.

        Args:
            town: its name.
        """
        towns.append(town)
        return f"{town} lies on a river."

    async with (
        ta.open_runtime(models=[model]) as runtime,
        runtime.open_agent(model="p/m", tools=[find]) as agent,
    ):
        reply = await agent.ask("use tools")
    assert sorted(towns) == ["Köln", "Ulm"]
    assert reply.text == "Found both."


async def test_an_agent_keeps_what_was_said(model: ModelAdapter) -> None:
    async with ta.open_runtime(models=[model]) as runtime, runtime.open_agent(model="p/m") as agent:
        said = ""
        async with agent.stream("stay") as reply:
            async for piece in reply:
                said += piece
                if len(said) >= 8:
                    break
        assert agent.session.messages()[-1].text == said
        assert (await agent.ask("greet")).text.startswith("Grüße")


async def test_an_agent_tries_again(model: ModelAdapter, kind: str) -> None:
    policy = RetryPolicy(max_retries=3, first_delay=0.01)
    async with (
        ta.open_runtime(models=[model], plugins=[policy]) as runtime,
        runtime.open_agent(model="p/m") as agent,
    ):
        reply = await agent.ask(f"flaky {kind}")
    assert reply.text == "At last."
    assert [event.type for event in agent.session.events].count("llm/retry") == 2
