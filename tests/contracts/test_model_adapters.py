"""The adapters that ship with the package do what the contract of model adapters says."""

from __future__ import annotations

import pytest
import trio

from trio_agents.models import (
    Anthropic,
    Limited,
    Limits,
    ModelAdapter,
    ModelRequest,
    OpenAIChat,
    OpenAIResponses,
    Reply,
)
from trio_agents.testing import MODEL_CHECKS, FakeProvider, check_model_adapter
from trio_agents.testing._check_models import MakeAdapter, ModelCheck

KEY = "sk-planted-0123456789"


def chat(server: FakeProvider, seconds: float | None) -> ModelAdapter:
    if seconds is None:
        return OpenAIChat(base_url=server.base_url, api_key=KEY)
    return OpenAIChat(
        base_url=server.base_url, api_key=KEY, first_byte_timeout=seconds, silence_timeout=seconds
    )


def responses(server: FakeProvider, seconds: float | None) -> ModelAdapter:
    if seconds is None:
        return OpenAIResponses(base_url=server.base_url, api_key=KEY)
    return OpenAIResponses(
        base_url=server.base_url, api_key=KEY, first_byte_timeout=seconds, silence_timeout=seconds
    )


def anthropic(server: FakeProvider, seconds: float | None) -> ModelAdapter:
    if seconds is None:
        return Anthropic(base_url=server.root_url, api_key=KEY)
    return Anthropic(
        base_url=server.root_url, api_key=KEY, first_byte_timeout=seconds, silence_timeout=seconds
    )


def limited(server: FakeProvider, seconds: float | None) -> ModelAdapter:
    return Limited(chat(server, seconds), Limits(concurrency=3))


ADAPTERS = [chat, responses, anthropic, limited]


@pytest.mark.parametrize("make", ADAPTERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
async def test_adapter(check: ModelCheck, make: MakeAdapter) -> None:
    """ERR-10, T5, M1, D6, D7, D19: see the check of that name."""
    await check(make)


# --- the suite itself can fail --------------------------------------------------------------------------


class Wrong:
    """An adapter that passes most of it on, and spoils something."""

    def __init__(self, inner: ModelAdapter, fault: str) -> None:
        self.inner = inner
        self.fault = fault

    @property
    def provider(self) -> str:
        return self.inner.provider

    async def info(self, model: str):
        return await self.inner.info(model)

    async def aclose(self) -> None:
        await self.inner.aclose()  # type: ignore[attr-defined]

    async def stream(self, request: ModelRequest, emit) -> None:
        def spoiled(chunk) -> None:
            if self.fault == "no deltas" and chunk.tag == "text-delta":
                return
            if self.fault == "no finish" and chunk.tag == "finish":
                return
            if self.fault == "swallows":
                try:
                    emit(chunk)
                except LookupError:
                    return
            else:
                emit(chunk)
            if self.fault == "twice" and chunk.tag == "finish":
                emit(chunk)

        try:
            await self.inner.stream(request, spoiled)
        except Exception as exc:
            if self.fault == "other error":
                raise RuntimeError("failed") from exc
            if self.fault != "no error":
                raise
        except trio.Cancelled:
            if self.fault == "talks on":
                emit(Reply.text("x").steps[0])
            raise


@pytest.mark.parametrize(
    "fault", ["no deltas", "no finish", "twice", "swallows", "other error", "no error", "talks on"]
)
async def test_a_wrong_adapter_fails(fault: str) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        await check_model_adapter(lambda server, seconds: Wrong(chat(server, seconds), fault))


async def test_the_whole_suite_at_once() -> None:
    await check_model_adapter(chat)
