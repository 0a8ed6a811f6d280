"""Servers of tools as real processes, a count of what is left of them, and calls without an agent."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

import trio_agents as ta
from trio_agents.plugins.mcp import StdioServer
from trio_agents.tools import ToolContext, ToolReturn

SERVER = Path(__file__).with_name("server.py")


def context(**more: Any) -> ToolContext:
    return ToolContext(call_id="c", name="t", **more)


async def use(
    scope: Any, tool: str, arguments: Mapping[str, object] | None = None, **more: Any
) -> ToolReturn:
    """Call a tool of the scope by the name that models use, as a step does."""
    found = scope.tools.get(tool)
    assert found is not None, tool
    return await found.invoke(found.structure(arguments or {}), context(**more))


async def refused(scope: Any, tool: str, arguments: Mapping[str, object] | None = None) -> ta.ToolServerError:
    """Call a tool; the error that comes of it."""
    try:
        result = await use(scope, tool, arguments)
    except ta.ToolServerError as exc:
        return exc
    raise AssertionError(f"{tool} gave {result}")


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for what another process brings about."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


@attrs.frozen
class Mark:
    """Servers that can be told from all other processes."""

    mark: str

    def server(self, *modes: str, grace: float = 0.1, **env: str) -> StdioServer:
        return StdioServer(
            sys.executable, ["-S", str(SERVER), *modes], env={"MARK": self.mark, **env}, grace=grace
        )

    def alive(self) -> list[int]:
        """The processes of these servers, zombies left out."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"MARK={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def gone(self, seconds: float = 5.0) -> bool:
        """Whether none is left, soon."""
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True


@contextmanager
def marked(folder: Path) -> Iterator[Mark]:
    """A maker of servers. What they leave is a failure, and is killed."""
    mark = Mark(f"{folder.name}-{os.getpid()}")
    yield mark
    left = mark.alive()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
