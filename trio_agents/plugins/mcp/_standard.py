"""This process's standard input and output as a wire. Needs a platform with file descriptors that can be waited for."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from typing import Final, final

import trio

from ...errors import UsageError

_CHUNK: Final = 65_536


@contextlib.contextmanager
def standard_wire() -> Iterator[Wire]:
    """Standard input and output, kept from everybody else.

    Meanwhile descriptor 0 is empty and 1 goes where 2 goes, so that a stray print, or a child's, tears no message.
    """
    try:
        wire = Wire(os.dup(0), os.dup(1))
    except OSError as exc:
        raise UsageError("there is no standard input or output to serve over") from exc
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        sys.stdout.flush()  # what was printed before, and kept in the buffer, is no message either
        yield wire
    finally:
        sys.stdout.flush()
        os.dup2(wire.input, 0)
        os.dup2(wire.output, 1)
        for descriptor in (nothing, wire.input, wire.output):
            os.close(descriptor)


@final
class Wire:
    """Two descriptors that may be shared with other processes, and so stay blocking: each is waited for, then used."""

    def __init__(self, input: int, output: int) -> None:
        self.input = input
        self.output = output
        self._unsent = bytearray()
        self._sending = trio.Lock()

    async def receive(self) -> bytes:
        """What has come, or no bytes at the end. A checkpoint."""
        await _ready(trio.lowlevel.wait_readable, self.input)
        return os.read(self.input, _CHUNK)

    async def send(self, data: bytes) -> None:
        """Write, all of it, though this write be cancelled: what is left goes before the next one. A checkpoint.

        Raises:
            trio.BrokenResourceError: nobody reads any more.
        """
        self._unsent += data
        async with self._sending:
            while self._unsent:
                await _ready(trio.lowlevel.wait_writable, self.output)
                try:
                    # A pipe that can be written to takes this much without blocking.
                    sent = os.write(self.output, self._unsent[: select.PIPE_BUF])
                except OSError as exc:
                    self._unsent.clear()
                    raise trio.BrokenResourceError("the client reads no more") from exc
                del self._unsent[:sent]


async def _ready(wait: object, descriptor: int) -> None:
    assert callable(wait)
    try:
        await wait(descriptor)
    except PermissionError:  # a plain file, which is always ready
        await trio.lowlevel.checkpoint()
