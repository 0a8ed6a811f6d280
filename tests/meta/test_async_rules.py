"""The filter around flake8-async lets through what it should and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tests.meta.async_rules import findings

SOURCE = '''
import trio
from typing import Protocol


async def broken():
    return 1  # found


class Public:
    async def broken(self):
        return 1  # found

    async def __aenter__(self):
        return self  # found

    async def __aexit__(self, *details): return None

    async def _private(self):
        return 1


class _Private:
    async def broken(self):
        return 1


class Contract(Protocol):
    async def kept(self) -> int:
        """Anybody's."""
        ...


def outer():
    async def inner():
        return 1
    return inner


async def _generator():  # found
    yield 1
    yield 2
    await trio.lowlevel.checkpoint()


async def kept():
    await trio.lowlevel.checkpoint()


async def excused():
    return 1  # noqa: ASYNC910  a reason


async def cleans_up():
    try:
        await trio.sleep(1)
    finally:
        await trio.sleep(1)  # found
'''


def test_public_promises_and_everything_else(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(SOURCE, "utf-8")
    marked = [number for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith("# found")]
    assert len(marked) == 5

    found = findings([file], promising=tmp_path)
    assert [int(line) for line in re.findall(r"example\.py:(\d+):", "\n".join(found))] == marked

    elsewhere = findings([file], promising=tmp_path / "elsewhere")
    assert [re.findall(r"ASYNC\d+", line) for line in elsewhere] == [["ASYNC900"], ["ASYNC102"]]
