"""From a model's name to the adapter that speaks with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ..errors import UsageError
from ..models import Anthropic, DemoModel, LocalModel, ModelAdapter, OpenAIChat, OpenAIResponses

DEMO: Final = "demo/demo"


def _local(model: str) -> LocalModel:
    if model == "smollm2":
        return LocalModel()
    if model.endswith(".gguf"):
        return LocalModel(model, name=model)
    raise UsageError(
        f"no local model {model!r}: there is smollm2, or the path of a GGUF file, local/./model.gguf"
    )


PROVIDERS: Final[dict[str, Callable[[str], ModelAdapter]]] = {
    "anthropic": lambda _: Anthropic(),
    "demo": lambda _: DemoModel(),
    "local": _local,
    "openai": lambda _: OpenAIChat(),
    "openai-responses": lambda _: OpenAIResponses(provider="openai-responses"),
}
"""How the adapter of each provider is made, for a model's name; keys and addresses come from the environment."""


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
        UsageError: it is named otherwise, or there is no such provider, or no such model on this machine.
    """
    provider, slash, name = model.partition("/")
    known = ", ".join(sorted(PROVIDERS))
    if not slash or not provider or not name:
        raise UsageError(f"a model is named provider/model, not {model!r}; there are the providers {known}")
    make = PROVIDERS.get(provider)
    if make is None:
        raise UsageError(f"unknown model {model!r}: there is no provider {provider!r}, there are {known}")
    return make(name)
