"""The repository as data: where it is, its files, its public modules and names."""

from __future__ import annotations

import importlib
import os
import pkgutil
import tomllib
import types
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import trio_agents

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

_MADE = (
    ".git",
    ".venv*",
    ".bench-*",
    "node_modules",
    "*cache*",
    "*cache__",
    ".hypothesis",
    "_build",
    "dist",
    "build",
    "htmlcov",
    "results",
    "*.egg-info",
)


def repository_files() -> list[Path]:
    """Every file of the working tree that nobody made by running something, relative to the root."""
    found = []
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = sorted(name for name in subfolders if not any(fnmatch(name, made) for made in _MADE))
        found += [
            Path(folder, name).relative_to(ROOT) for name in sorted(names) if not name.startswith(".coverage")
        ]
    assert Path("pyproject.toml") in found
    assert Path("tests/meta/repository.py") in found
    return found


def public_modules() -> list[types.ModuleType]:
    """`trio_agents` and every module below it whose dotted name has no underscore."""
    names = ["trio_agents"] + [
        info.name
        for info in pkgutil.walk_packages(trio_agents.__path__, "trio_agents.")
        if not any(part.startswith("_") for part in info.name.split("."))
    ]
    assert {"trio_agents", "trio_agents.errors", "trio_agents.values"} <= set(names)
    return [importlib.import_module(name) for name in names]


def exported(module: types.ModuleType) -> Iterator[tuple[str, object]]:
    """The classes and functions that a public module defines, or, if it is a package, hands on."""
    for name, value in sorted(vars(module).items()):
        home = getattr(value, "__module__", None) or ""
        ours = home == "trio_agents" or home.startswith("trio_agents.")
        if (
            not name.startswith("_")
            and isinstance(value, type | types.FunctionType)
            and ours
            and (hasattr(module, "__path__") or home == module.__name__ or module is trio_agents.errors)
        ):
            yield name, value
