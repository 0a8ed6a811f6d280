"""Connections of the adapters, over real sockets: cancelled, reused, closed."""

from __future__ import annotations

import socket

import httpx2
import pytest
import trio

from tests.unit.models.samples import collect, kinds, request
from trio_agents.errors import ModelError
from trio_agents.models import Anthropic, Gate, Hang, ModelAdapter, OpenAIChat, OpenAIResponses, Reply
from trio_agents.testing import Broken, FakeProvider, ProviderRequest, Reset, Status, open_fake_provider

KEY = "sk-planted-0123456789"
TEXT = Reply.text("a", "b", "c")


def adapters(server: FakeProvider, **options) -> list:
    return [
        OpenAIChat(base_url=server.base_url, api_key=KEY, **options),
        OpenAIResponses(base_url=server.base_url, api_key=KEY, **options),
        Anthropic(base_url=server.root_url, api_key=KEY, **options),
    ]


@pytest.mark.parametrize("number", range(3))
async def test_500_cancelled_requests_on_a_pool_of_5(number: int) -> None:
    """X7: a cancel at any moment gives its place in the pool back; request 501 succeeds."""

    def answer(asked: ProviderRequest) -> Reply:
        return TEXT if last else Reply.hang(after=TEXT.steps[: len(server.requests) % 5])

    last = False
    async with open_fake_provider(answer) as server:
        model: ModelAdapter = adapters(server, max_connections=5)[number]

        async def cancelled(after: float) -> None:
            with trio.move_on_after(after):
                await collect(model)

        for batch in range(25):
            async with trio.open_nursery() as nursery:
                for place in range(20):
                    nursery.start_soon(cancelled, 0.0005 * ((batch + place) % 20))
        last = True
        with trio.fail_after(10):
            assert kinds(await collect(model))[-1] == "finish"
        await model.aclose()  # type: ignore[attr-defined]
        with trio.fail_after(10):
            await server.wait_connections(0)


@pytest.mark.parametrize("number", range(3))
async def test_a_connection_is_used_again(number: int) -> None:
    async with open_fake_provider([TEXT, Status(status=429), TEXT, Reply.empty()]) as server:
        model = adapters(server)[number]
        for place in range(4):
            if place == 1:
                with pytest.raises(ModelError):
                    await collect(model)
            else:
                await collect(model)
        assert server.connections == 1
        await model.aclose()
        with trio.fail_after(10):
            await server.wait_connections(0)


async def test_an_adapter_may_be_used_after_it_was_closed() -> None:
    async with open_fake_provider([TEXT, TEXT]) as server:
        model = adapters(server)[0]
        await collect(model)
        await model.aclose()
        await model.aclose()
        assert kinds(await collect(model))[-1] == "finish"
        assert server.connections == 2
        await model.aclose()


def test_an_adapter_outlives_a_run() -> None:
    """One adapter in two programs, one after the other: nothing of the first run is left in it."""
    port = _free_port()
    model = OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY)

    async def use() -> list[str]:
        with pytest.raises(ModelError) as caught:
            await collect(model)
        await model.aclose()
        return [caught.value.code]

    assert [trio.run(use) for _ in range(2)] == [["TRANSPORT"]] * 2


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_closing_under_a_cancel_closes_all_the_same() -> None:
    async with open_fake_provider(TEXT) as server:
        model = adapters(server)[0]
        await collect(model)
        with trio.CancelScope() as scope:
            scope.cancel()
            await model.aclose()
        with trio.fail_after(10):
            await server.wait_connections(0)


async def test_a_gate_of_the_server_orders_a_test() -> None:
    gate = Gate()
    async with open_fake_provider([Reply.chunks([*TEXT.steps[:2], gate, *TEXT.steps[2:]])]) as server:
        model = adapters(server)[0]
        seen: list = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(model.stream, request(), seen.append)
            with trio.fail_after(10):
                await gate.reached.wait()
            assert len(seen) <= 2
            gate.opened.set()
        assert kinds(seen)[-1] == "finish"
        await model.aclose()


async def test_the_key_is_in_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """ERR-10, over real sockets, with the provider repeating the key."""
    caplog.set_level(0)
    faults: list[Reset | Broken | Status] = [
        Reset(),
        Broken(TEXT, after=2),
        Status(status=401, message=f"wrong key {KEY}"),
        Status(status=500, raw=f"<p>Bearer {KEY}</p>".encode()),
        Broken(TEXT, after=1, how="garbage"),
    ]
    texts: list[str] = []
    async with open_fake_provider([fault for fault in faults for _ in range(3)]) as server:
        models = adapters(server)
        for _ in faults:
            for model in models:
                with pytest.raises(ModelError) as caught:
                    await collect(model)
                error: BaseException | None = caught.value
                while error is not None:
                    texts += [str(error), repr(error)]
                    error = error.__cause__
        for model in models:
            texts.append(repr(model))
            await model.aclose()
        sent = [dict(asked.headers) for asked in server.requests]
    assert all(KEY in str(headers) for headers in sent)
    texts += [record.getMessage() for record in caplog.records]
    assert len(texts) > 30
    assert not [text for text in texts if KEY in text]


# --- the fake provider itself ---------------------------------------------------------------------------


async def test_the_fake_provider_says_when_its_script_is_used_up() -> None:
    async with open_fake_provider(["one"]) as server:
        model = adapters(server)[0]
        await collect(model)
        with pytest.raises(ModelError, match="script is used up") as caught:
            await collect(model)
        assert caught.value.status == 501
        await model.aclose()


async def test_the_fake_provider_serves_its_paths_only() -> None:
    async with open_fake_provider(TEXT) as server, httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{server.base_url}/embeddings", content=b"not json")
        assert answer.status_code == 404
        assert "/v1/embeddings" in answer.text
        assert server.requests[0].body is None
        assert server.requests[0].method == "POST"


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError):
        async with open_fake_provider([Reply.chunks([Hang()])]):
            raise LookupError


async def test_a_block_left_early_ends_the_server(autojump_clock) -> None:
    with trio.move_on_after(1) as scope:
        async with open_fake_provider(TEXT):
            await trio.sleep_forever()
    assert scope.cancelled_caught
