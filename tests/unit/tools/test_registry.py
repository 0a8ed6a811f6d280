"""Layers of names (SCP-2, SCP-3, SCP-5, SCP-6)."""

from __future__ import annotations

from typing import Any

import pytest

from trio_agents.errors import UsageError
from trio_agents.tools import Layer


def layers(count: int = 3) -> list[Layer[str]]:
    made: list[Layer[str]] = [Layer()]
    for number in range(1, count):
        made.append(Layer(made[-1], owner=f"scope {number}"))
    return made


def seen(layer: Layer[str]) -> dict[str, str]:
    return {name: entry.value for name, entry in layer.visible().items()}


def test_inner_layers_see_outer_ones_only() -> None:
    outer, inner, sibling = Layer[str](), None, None
    inner, sibling = Layer(outer), Layer(outer)
    outer.register("a", "A")
    inner.register("b", "B")
    assert seen(outer) == {"a": "A"}
    assert seen(inner) == {"a": "A", "b": "B"}
    assert seen(sibling) == {"a": "A"}
    assert inner.values() == ("A", "B")
    assert inner.own() == {"b": "B"}
    assert (inner.get("a"), sibling.get("b")) == ("A", None)


@pytest.mark.parametrize("inner_first", [True, False])
def test_the_nearest_wins_in_either_order(inner_first: bool) -> None:
    """SCP-3"""
    outer, inner, innermost = layers()
    order = (inner, outer) if inner_first else (outer, inner)
    undo = {layer: layer.register("a", layer.owner) for layer in order}
    assert outer.get("a") == "root"
    assert inner.get("a") == innermost.get("a") == "scope 1"
    assert seen(innermost) == {"a": "scope 1"}
    undo[inner]()
    assert innermost.get("a") == "root"


def test_duplicates_in_one_layer_are_refused() -> None:
    """SCP-3"""
    layer = Layer[str](owner="main", kind="section")
    layer.register("a", "A")
    with pytest.raises(UsageError, match="scope 'main' has a section 'a' already"):
        layer.register("a", "A")
    assert seen(layer) == {"a": "A"}


@pytest.mark.parametrize("name", ["", None, 3])
def test_names_are_strings(name: Any) -> None:
    with pytest.raises(UsageError):
        Layer[str]().register(name, "x")


def test_an_undo_is_idempotent_and_removes_its_own_only() -> None:
    """SCP-6"""
    layer = Layer[str]()
    undo = layer.register("a", "same")
    undo()
    again = layer.register("a", "same")
    undo()
    assert layer.get("a") == "same"
    again()
    assert layer.get("a") is None


def test_a_replacement_is_another_entry() -> None:
    layer = Layer[str]()
    undo = layer.register("a", "same")
    first = layer.entry("a")
    undo()
    layer.register("a", "same")
    assert layer.entry("a") is not first


def test_a_listener_that_raises_undoes_the_registration() -> None:
    """SCP-6"""
    outer, inner = layers(2)
    outer.register("a", "A")

    def refuse() -> None:
        raise RuntimeError("no")

    end = inner.watch(refuse)
    with pytest.raises(RuntimeError):
        inner.register("b", "B")
    with pytest.raises(RuntimeError):
        inner.restrict(deny=["a"])
    assert seen(inner) == {"a": "A"}
    end()
    end()
    inner.register("b", "B")
    assert seen(inner) == {"a": "A", "b": "B"}


def test_watchers_hear_each_change_once() -> None:
    layer = Layer[str]()
    heard = []
    layer.watch(lambda: heard.append(sorted(layer.visible())))
    undo = layer.register("a", "A")
    undo()
    undo()
    assert heard == [["a"], []]


# --- restrictions ---------------------------------------------------------------------------------


def restricted() -> tuple[Layer[str], Layer[str], Layer[str]]:
    outer, inner, innermost = layers()
    for name in "abc":
        outer.register(name, name)
    return outer, inner, innermost


def test_restrictions_bind_descendants_and_spare_the_outer_view() -> None:
    """SCP-5"""
    outer, inner, innermost = restricted()
    inner.restrict(allow=["a", "b"])
    assert set(seen(outer)) == {"a", "b", "c"}
    assert set(seen(inner)) == set(seen(innermost)) == {"a", "b"}
    assert innermost.get("c") is None
    assert innermost.get("a") == "a"


def test_several_intersect_and_each_can_be_lifted() -> None:
    """SCP-5, SCP-6"""
    _, inner, _ = restricted()
    lift_one = inner.restrict(allow=["a", "b"])
    lift_two = inner.restrict(deny=["a"])
    assert set(seen(inner)) == {"b"}
    lift_one()
    lift_one()
    assert set(seen(inner)) == {"b", "c"}
    lift_two()
    assert set(seen(inner)) == {"a", "b", "c"}


def test_equal_restrictions_are_lifted_one_by_one() -> None:
    """SCP-6"""
    _, inner, _ = restricted()
    first, second = inner.restrict(allow=["a"]), inner.restrict(allow=["a"])
    first()
    first()
    assert set(seen(inner)) == {"a"}
    second()
    assert set(seen(inner)) == {"a", "b", "c"}


def test_they_apply_to_the_live_inherited_set() -> None:
    """SCP-5"""
    outer, inner, _ = restricted()
    inner.restrict(allow=["a"])
    other = Layer(outer)
    other.restrict(deny=["a"])
    outer.register("late", "late")
    assert set(seen(inner)) == {"a"}
    assert set(seen(other)) == {"b", "c", "late"}


def test_own_registrations_are_exempt() -> None:
    """SCP-5"""
    _, inner, innermost = restricted()
    inner.register("mine", "mine")
    inner.register("b", "own b")
    inner.restrict(allow=["a"])
    assert seen(inner) == {"a": "a", "mine": "mine", "b": "own b"}
    innermost.restrict(allow=["mine"])
    assert seen(innermost) == {"mine": "mine"}


@pytest.mark.parametrize(
    "options",
    [{}, {"allow": []}, {"deny": []}, {"allow": ["zz"]}, {"deny": ["a", "zz"]}, {"allow": "ab"}],
    ids=str,
)
def test_a_restriction_names_what_is_there(options) -> None:
    """SCP-5"""
    _, inner, _ = restricted()
    with pytest.raises(UsageError):
        inner.restrict(**options)
    assert set(seen(inner)) == {"a", "b", "c"}


def test_the_root_inherits_nothing_to_restrict() -> None:
    outer, _, _ = restricted()
    with pytest.raises(UsageError, match="it inherits: none"):
        outer.restrict(allow=["a"])


def test_order_is_outer_first_then_registration() -> None:
    outer, inner = layers(2)
    inner.register("z", "inner")
    outer.register("b", "outer")
    outer.register("a", "outer")
    inner.register("b", "inner")
    assert list(inner.visible()) == ["a", "z", "b"]
