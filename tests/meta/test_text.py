"""What no file says, and what only one file says."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from tests.meta.repository import PYPROJECT, ROOT, repository_files

# Written in pieces, so that this file does not say it either.
FORBIDDEN = {
    "an absolute path of one machine": re.compile(
        r"(?<![\w.:/~}-])/(?:work|root|opt|home/\w+|Users/\w+)" + r"/|[A-Z]:\\Users\b"
    ),
    "the host of a package index": re.compile(
        "|".join([r"pypi\." + "org", "python" + r"hosted\.org", "registry" + r"\.npmjs", r"deb\." + "debian"])
    ),
    "an option that names a package index": re.compile("--(?:extra-)?" + "index-url|--find" + "-links[ =]"),
}
VERSION = PYPROJECT["project"]["version"]


def _text(path: Path) -> str:
    return (ROOT / path).read_text("utf-8", errors="replace")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_says(what: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:160]}"
        for path in repository_files()
        for number, line in enumerate(_text(path).splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("an absolute path of one machine", "see /" + "work/notes.md"),
        ("an absolute path of one machine", 'open("/' + 'home/someone/notes")'),
        ("the host of a package index", "https://pypi." + "org/simple"),
        ("an option that names a package index", "--index" + "-url x"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


def test_one_file_says_the_version() -> None:
    said = re.compile(rf"""version\W{{1,9}}["']?{re.escape(VERSION)}\b""", re.IGNORECASE)
    assert [path for path in repository_files() if path.suffix != ".lock" and said.search(_text(path))] == [
        Path("pyproject.toml")
    ]


def test_the_installed_package_has_that_version() -> None:
    assert importlib.metadata.version("trio-agents") == VERSION


def test_top_level_is_as_small_as_it_was() -> None:
    allowed = {
        ".ci", ".gitignore", "LICENSE", "Makefile", "README.md", "benchmarks", "docs", "pyproject.toml",
        "requirements.lock", "tests", "trio_agents",
    }  # fmt: skip
    assert {path.parts[0] for path in repository_files()} <= allowed
