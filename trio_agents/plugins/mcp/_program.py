"""A server that is a program: its pipes as a transport, its last words, how it ended. Needs `mcp`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final, final

import trio

from ...tools import ChildProcess
from ._pipes import Incoming, Outgoing

_KEPT: Final = 8192
"""Bytes of its last words that are kept."""
_SHOWN: Final = 2000
_EXIT_WAIT: Final = 0.25
"""Seconds for a program that has closed a pipe to exit, so that its exit code can be told."""


@final
class Program:
    """A running server, seen through its pipes."""

    def __init__(self, child: ChildProcess, lost: trio.Event) -> None:
        self._child = child
        self._lost = lost
        self._words = bytearray()
        self._fault = ""
        self._has_exited = False
        self._reading: trio.CancelScope | None = None

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        """Its pipes, for an `mcp.Client`. The process itself is its opener's to end."""
        await trio.lowlevel.checkpoint()
        incoming = Incoming(self._receive, self._note_line, self._give_up)
        yield incoming, Outgoing(self._child.send_all, self._lost.set)
        await trio.lowlevel.checkpoint()

    async def watch(self) -> None:
        """Note its exit: whoever it left behind may hold its pipes for ever."""
        await self._child.wait_exited()
        self._has_exited = True
        if self._reading is not None:
            self._reading.cancel(reason="the server has exited")

    async def listen_to_errors(self) -> None:
        """Keep the end of what it writes to its standard error."""
        while data := await self._child.receive_error():
            self._note(data)

    async def how_it_ended(self) -> str:
        """What became of it, with its last words. A checkpoint."""
        with trio.move_on_after(_EXIT_WAIT):
            await self._child.wait_exited()
            self._has_exited = True
        with contextlib.suppress(trio.WouldBlock):
            while data := self._child.receive_error_nowait():
                self._note(data)
        code = self._child.returncode
        if self._fault:
            return f"it sent {self._fault}" + self.last_words()
        return ("it closed a pipe" if code is None else _ending(code)) + self.last_words()

    def last_words(self) -> str:
        """The end of what it wrote that was no message, as the end of a sentence; empty if it wrote nothing."""
        words = bytes(self._words).decode("utf-8", "replace").strip()[-_SHOWN:]
        return f"; its last words: {words}" if words else ""

    async def _receive(self) -> bytes:
        """What it wrote; no bytes once it has closed its output, or has exited and all is read."""
        data = b""
        with trio.CancelScope() as self._reading:
            if not self._has_exited:
                data = await self._child.receive_some()
        self._reading = None
        if self._has_exited and not data:
            with contextlib.suppress(trio.WouldBlock):
                data = self._child.receive_nowait()
        if not data:
            self._lost.set()
        await trio.lowlevel.checkpoint()
        return data

    def _give_up(self, fault: str) -> None:
        self._fault = fault
        self._lost.set()

    def _note_line(self, line: bytes) -> None:
        self._note(line + b"\n")

    def _note(self, data: bytes) -> None:
        self._words += data
        del self._words[:-_KEPT]


def _ending(code: int) -> str:
    return f"it exited with code {code}" if code >= 0 else f"signal {-code} ended it"
