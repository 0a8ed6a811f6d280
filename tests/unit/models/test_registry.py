"""Names of models, and the adapters behind them."""

from __future__ import annotations

from typing import Any

import pytest

from trio_agents.errors import ModelError, UsageError
from trio_agents.models import ModelRegistry, ScriptedModel


def test_resolve_gives_adapter_and_the_model_with_its_slashes() -> None:
    models = ModelRegistry()
    router = ScriptedModel(provider="router")
    models.register(ScriptedModel())
    models.register(router)
    assert models.resolve("router/meta/llama-3") == (router, "meta/llama-3")
    assert models.providers == ("scripted", "router")
    assert models.get("router") is router
    assert models.get("nobody") is None


@pytest.mark.parametrize("name", ["gpt-5", "/gpt-5", "openai/", "", "/", None])
def test_a_name_without_both_halves_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="provider/model") as caught:
        ModelRegistry().resolve(name)
    assert caught.value.code == "UNKNOWN_MODEL"
    assert repr(name) in str(caught.value)


def test_an_unknown_provider_names_the_known_ones() -> None:
    """TRN-17: no other adapter is tried."""
    models = ModelRegistry()
    with pytest.raises(ModelError, match="'openai'; registered: none") as caught:
        models.resolve("openai/x")
    assert caught.value.code == "NO_ADAPTER"
    models.register(ScriptedModel(provider="b"))
    models.register(ScriptedModel(provider="a"))
    with pytest.raises(ModelError, match="registered: a, b"):
        models.resolve("openai/x")


def test_a_second_adapter_of_a_name_is_refused_and_changes_nothing() -> None:
    models = ModelRegistry()
    first = ScriptedModel()
    models.register(first)
    with pytest.raises(UsageError, match="'scripted' is already registered"):
        models.register(ScriptedModel())
    assert models.require("scripted") is first


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_a_provider_needs_a_name(name: str) -> None:
    models = ModelRegistry()
    with pytest.raises(UsageError, match="without a slash"):
        models.register(ScriptedModel(provider=name))
    assert models.providers == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ScriptedModel, r"not a class: ScriptedModel\(\.\.\.\)"),
        ("demo/demo", "'demo/demo' is none"),
        (None, "None is none"),
    ],
)
def test_what_is_no_adapter_is_refused(given: Any, said: str) -> None:
    models = ModelRegistry()
    with pytest.raises(UsageError, match=said):
        models.register(given)
    assert models.providers == ()


def test_undo_removes_its_own_adapter_only() -> None:
    """SCP-6."""
    models = ModelRegistry()
    undo = models.register(ScriptedModel())
    undo()
    second = ScriptedModel()
    models.register(second)
    undo()
    assert models.get("scripted") is second
