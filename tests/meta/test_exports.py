"""Every public name can be found, says where it lives and what it is for."""

from __future__ import annotations

import importlib
import inspect
import types

import pytest

import trio_agents
from tests.meta.repository import exported, public_modules

MODULES = public_modules()
NAMES = [
    pytest.param(module, name, value, id=f"{module.__name__}.{name}")
    for module in MODULES
    for name, value in exported(module)
]


def test_there_are_names_to_look_at() -> None:
    assert len(NAMES) >= 30
    assert {"TrioAgentsError", "UsageError"} <= {
        name for name, _ in exported(importlib.import_module("trio_agents.errors"))
    }


def test_the_front_door_exports_what_it_names() -> None:
    for name in getattr(trio_agents, "__all__", ()):
        assert hasattr(trio_agents, name)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_module_has_a_docstring(module: types.ModuleType) -> None:
    assert (module.__doc__ or "").strip()


@pytest.mark.parametrize(("module", "name", "value"), NAMES)
def test_name_has_a_docstring(module: types.ModuleType, name: str, value: type) -> None:
    # Not inspect.getdoc: a class must not inherit the description of its base.
    assert (value.__doc__ or "").strip()


@pytest.mark.parametrize(("module", "name", "value"), NAMES)
def test_methods_have_docstrings(module: types.ModuleType, name: str, value: object) -> None:
    bare = [
        member
        for member, what in (vars(value).items() if isinstance(value, type) else ())
        if not member.startswith("_")
        and isinstance(what, types.FunctionType | property | classmethod | staticmethod)
        and not inspect.getdoc(getattr(value, member))
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("module", "name", "value"), [case for case in NAMES if case.values[0] is trio_agents]
)
def test_what_the_front_door_hands_on_says_a_public_module(
    module: types.ModuleType, name: str, value: type
) -> None:
    home = value.__module__
    assert not any(part.startswith("_") for part in home.split(".")), f"{name} says that it lives in {home}"
    assert getattr(importlib.import_module(home), value.__name__) is value
