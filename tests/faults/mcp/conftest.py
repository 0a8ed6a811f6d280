"""Fixtures for the tests of servers of tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import trio_agents as ta
from tests.faults.mcp.servers import Mark, marked


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Mark]:
    """A maker of servers; whatever is left of them is a failure."""
    if sys.platform != "linux":
        pytest.skip("looks at /proc")
    with marked(tmp_path) as mark:
        yield mark


@pytest.fixture
async def runtime() -> AsyncIterator[ta.Runtime]:
    """A runtime without models."""
    async with ta.open_runtime() as runtime:
        yield runtime
