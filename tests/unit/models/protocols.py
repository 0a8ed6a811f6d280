"""The adapters over HTTP, one row each: what a test needs to do the same with all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import httpx2
import msgspec

from trio_agents.models import Anthropic, ModelAdapter, OpenAIChat, OpenAIResponses

KEY = "sk-planted-0123456789"
SSE = {"content-type": "text/event-stream"}


def events(*values: Any) -> bytes:
    """A body of one event for each value; bytes stand as they are."""
    return b"".join(
        b"data: " + (value if isinstance(value, bytes) else msgspec.json.encode(value)) + b"\n\n"
        for value in values
    )


@attrs.frozen(kw_only=True)
class Kind:
    """One adapter, and what its protocol looks like."""

    make: Callable[..., Any]
    provider: str
    public_url: str
    path: str
    key_variable: str
    url_variable: str
    key_header: str
    key_prefix: str = ""
    answer: bytes
    """The text `ok`, whole."""

    def adapter(self, handler: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> ModelAdapter:
        """The adapter over a transport that asks `handler`."""
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
        settings: dict[str, Any] = {"api_key": KEY, "client": client, **options}
        model: ModelAdapter = self.make(**settings)
        return model

    def answering(
        self,
        body: bytes | None = None,
        *,
        status: int = 200,
        answer_headers: Mapping[str, str] = SSE,
        **options: Any,
    ) -> tuple[ModelAdapter, list[httpx2.Request]]:
        """The adapter whose provider answers so, and the requests that it gets."""
        requests: list[httpx2.Request] = []

        def handle(asked: httpx2.Request) -> httpx2.Response:
            requests.append(asked)
            return httpx2.Response(
                status, headers=answer_headers, content=self.answer if body is None else body
            )

        return self.adapter(handle, **options), requests

    def __str__(self) -> str:
        return self.provider


CHAT = Kind(
    make=OpenAIChat,
    provider="openai",
    public_url="https://api.openai.com/v1",
    path="/chat/completions",
    key_variable="OPENAI_API_KEY",
    url_variable="OPENAI_BASE_URL",
    key_header="authorization",
    key_prefix="Bearer ",
    answer=events(
        {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}, b"[DONE]"
    ),
)
RESPONSES = attrs.evolve(
    CHAT,
    make=OpenAIResponses,
    provider="openai-responses",
    path="/responses",
    answer=events(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "ok"},
        {"type": "response.completed", "response": {"status": "completed"}},
    ),
)
ANTHROPIC = Kind(
    make=Anthropic,
    provider="anthropic",
    public_url="https://api.anthropic.com",
    path="/v1/messages",
    key_variable="ANTHROPIC_API_KEY",
    url_variable="ANTHROPIC_BASE_URL",
    key_header="x-api-key",
    answer=events(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ),
)
KINDS = [CHAT, RESPONSES, ANTHROPIC]
