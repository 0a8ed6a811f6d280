"""Which providers there are, and how `provider/model` finds one."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from ..errors import ModelError, UsageError
from ._contract import ModelAdapter


@final
@attrs.define(eq=False)
class ModelRegistry:
    """The adapters of a runtime, by provider name. Every method is synchronous."""

    _adapters: dict[str, ModelAdapter] = attrs.field(factory=dict, init=False)

    def register(self, adapter: ModelAdapter) -> Callable[[], None]:
        """Add an adapter under its provider name and return the undo: idempotent, it removes this adapter only.

        Raises:
            UsageError: this is no adapter, or its name is taken, empty or holds a slash; nothing has changed.
        """
        if isinstance(
            adapter, type
        ):  # its `provider` is a property, which says nothing to whoever reads of it
            raise UsageError(f"a model adapter is an object, not a class: {adapter.__name__}(...)")
        if not hasattr(adapter, "provider") or not hasattr(adapter, "stream"):
            raise UsageError(
                f"a model adapter has a provider, info and stream, such as DemoModel(); {adapter!r} is none"
            )
        provider = adapter.provider
        if type(provider) is not str or not provider or "/" in provider:
            raise UsageError(
                f"a provider's name is a non-empty string without a slash, not {provider!r} "
                f"(of {type(adapter).__name__})"
            )
        taken = self._adapters.get(provider)
        if taken is not None:
            raise UsageError(
                f"provider {provider!r} is already registered ({type(taken).__name__}); "
                f"give one of the two another name: {type(adapter).__name__}(provider=...)"
            )
        self._adapters[provider] = adapter

        def undo() -> None:
            if self._adapters.get(provider) is adapter:
                del self._adapters[provider]

        return undo

    @property
    def providers(self) -> tuple[str, ...]:
        """The names that are registered, in the order of their registration."""
        return tuple(self._adapters)

    def get(self, provider: str) -> ModelAdapter | None:
        """The adapter of a provider, or None."""
        return self._adapters.get(provider)

    def require(self, provider: str) -> ModelAdapter:
        """The adapter of a provider.

        Raises:
            ModelError: there is none (`NO_ADAPTER`); the text names those that there are.
        """
        adapter = self._adapters.get(provider)
        if adapter is None:
            known = ", ".join(sorted(self._adapters)) or "none"
            raise ModelError(
                f"no adapter for provider {provider!r}; registered: {known}",
                code="NO_ADAPTER",
            )
        return adapter

    def resolve(self, name: str) -> tuple[ModelAdapter, str]:
        """The adapter that `provider/model` names, and the model's own name, which may hold slashes.

        Raises:
            ModelError: not of that form (`UNKNOWN_MODEL`), or no such provider (`NO_ADAPTER`).
        """
        provider, model = split_model_name(name)
        return self.require(provider), model


def split_model_name(name: str) -> tuple[str, str]:
    """Provider and model of a name like `openai/gpt-5`: all after the first slash is the model's.

    Raises:
        ModelError: the name is not of that form (`UNKNOWN_MODEL`).
    """
    provider, slash, model = name.partition("/") if type(name) is str else ("", "", "")
    if not provider or not slash or not model:
        raise ModelError(
            f"a model is named 'provider/model', such as 'openai/gpt-5', not {name!r}",
            code="UNKNOWN_MODEL",
        )
    return provider, model
