"""The layers that import-linter holds are the layers that there are."""

from __future__ import annotations

import ast
import importlib.util
import re

import pytest

from tests.meta.repository import PYPROJECT, ROOT

CONTRACTS = {contract["type"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}
PACKAGE = ROOT / "trio_agents"


def _layers() -> list[list[str]]:
    return [re.findall(r"\w+", layer) for layer in CONTRACTS["layers"]["layers"]]


def test_each_part_of_the_package_has_one_layer() -> None:
    parts = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    parts.discard("__init__")
    assert {"errors", "values"} <= parts
    placed = [name for layer in _layers() for name in layer]
    assert len(placed) == len(set(placed))
    assert parts <= set(placed)


def test_nobody_may_import_the_loop_but_what_composes_it() -> None:
    order = [name for layer in _layers() for name in layer]
    assert set(order[: order.index("loop")]) == {"__main__", "cli", "testing", "runtime", "plugins"}
    assert order.index("loop") < order.index("agent")


def test_no_import_is_excused() -> None:
    for contract in CONTRACTS.values():
        assert "ignore_imports" not in contract


@pytest.mark.parametrize("module", CONTRACTS["forbidden"]["source_modules"])
def test_pure_modules_exist(module: str) -> None:
    assert importlib.util.find_spec(module) is not None
    assert "trio" in CONTRACTS["forbidden"]["forbidden_modules"]


def _io_of(source: str) -> list[str]:
    """What a module's text uses of `os` beyond the harmless, and its calls of `open`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in {
                "PathLike",
                "fspath",
                "register_at_fork",
                "urandom",
            }:
                found.append(f"os.{name}")
            case ast.ImportFrom(module="os", names=names):
                found += [f"os.{alias.name}" for alias in names]
            case ast.Call(func=ast.Name(id="open" | "input" | "print" as name)):
                found.append(name)
    return found


def test_whatever_decides_what_is_legal_is_pure() -> None:
    decide = {
        f"trio_agents.session._{name}"
        for name in ("events", "codec", "grammar", "header", "surface", "pending", "repair")
    }
    assert {"trio_agents.values", *decide} <= set(CONTRACTS["forbidden"]["source_modules"])


def test_pure_modules_open_nothing() -> None:
    files = []
    for module in CONTRACTS["forbidden"]["source_modules"]:
        path = ROOT / module.replace(".", "/")
        files += sorted(path.glob("**/*.py")) if path.is_dir() else [path.with_suffix(".py")]
    assert len(files) >= 5
    assert {
        path.relative_to(ROOT): _io_of(path.read_text("utf-8"))
        for path in files
        if _io_of(path.read_text("utf-8"))
    } == {}


def test_opening_something_would_be_seen() -> None:
    source = "import os\nfrom os import remove\nos.urandom(1)\nos.stat('x')\nopen('x')"
    assert sorted(_io_of(source)) == ["open", "os.remove", "os.stat"]
