"""Fixtures for the tests of servers of tools."""

from __future__ import annotations

import gc
import socket
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


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def swept() -> Iterator[None]:
    """Collects what a test has left, while its warnings are still those of that test."""
    yield
    gc.collect()
