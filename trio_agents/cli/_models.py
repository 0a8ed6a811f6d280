"""From a model's name to the adapter that speaks with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ..errors import UsageError
from ..models import Anthropic, DemoModel, ModelAdapter, OpenAIChat, OpenAIResponses

DEMO: Final = "demo/demo"

PROVIDERS: Final[dict[str, Callable[[], ModelAdapter]]] = {
    "anthropic": Anthropic,
    "demo": DemoModel,
    "openai": OpenAIChat,
    "openai-responses": lambda: OpenAIResponses(provider="openai-responses"),
}
"""How the adapter of each provider is made; each takes its key and address from the environment."""


def default_model() -> str:
    """The model if none is named: the one of $TRIO_AGENTS_MODEL, else $OPENAI_MODEL where OpenAI is set up, else demo."""
    named = os.environ.get("TRIO_AGENTS_MODEL")
    if named:
        return named
    model = os.environ.get("OPENAI_MODEL")
    if model and (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return f"openai/{model}"
    return DEMO


def adapter_for(model: str) -> ModelAdapter:
    """The adapter for `provider/model`.

    Raises:
        UsageError: it is named otherwise, or there is no such provider.
    """
    provider, slash, name = model.partition("/")
    known = ", ".join(sorted(PROVIDERS))
    if not slash or not provider or not name:
        raise UsageError(f"a model is named provider/model, not {model!r}; there are the providers {known}")
    make = PROVIDERS.get(provider)
    if make is None:
        raise UsageError(f"unknown model {model!r}: there is no provider {provider!r}, there are {known}")
    return make()
