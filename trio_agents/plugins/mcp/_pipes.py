"""JSON-RPC messages over pipes, one a line, as the streams that `mcp` wants. Needs `mcp`.

No task stands between a pipe and its user. A message that was begun is written whole although its sender is
cancelled; a line is never half read.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, final

import anyio
import mcp_types
import trio
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

logger: Final = logging.getLogger("trio_agents")

_CANCEL: Final = "notifications/cancelled"
_CANCEL_WAIT: Final = 0.5
"""Seconds that a call which was given up waits for a peer that does not read; the notice stays queued."""

LONGEST: Final = 64 * 1024 * 1024
"""Bytes that one message may have."""


@final
class Lines:
    """Bytes to lines."""

    def __init__(self) -> None:
        self._whole: deque[bytes] = deque()
        self._begun = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            ValueError: a line is too long to be a message.
        """
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._begun += line
            self._whole.append(bytes(self._begun))
            self._begun.clear()
        self._begun += rest
        if len(self._begun) > LONGEST:
            raise ValueError(f"a message of more than {LONGEST} bytes")

    def take(self) -> bytes | None:
        """The next whole line, or None."""
        return self._whole.popleft() if self._whole else None


class _Entered:
    """An async context that does nothing but close."""

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:  # noqa: ASYNC910 - there is nothing to wait for
        """Whoever owns the pipe closes it."""


@final
class Incoming(_Entered):
    """The messages that come. Ends when its source does; lines that are no messages are handed to `stray`.

    It ends as well at a message that is too long, of which `flooded` is told: nothing that follows can be trusted.
    """

    def __init__(
        self,
        source: Callable[[], Awaitable[bytes]],
        stray: Callable[[bytes], None],
        flooded: Callable[[str], None],
    ) -> None:
        self._source = source
        self._stray = stray
        self._flooded = flooded
        self._lines = Lines()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            while (line := self._lines.take()) is not None:
                message = self._parsed(line)
                if message is not None:
                    await trio.lowlevel.checkpoint()
                    return message
            data = await self._source()
            if not data:
                raise StopAsyncIteration
            try:
                self._lines.feed(data)
            except ValueError as exc:
                self._flooded(str(exc))
                raise StopAsyncIteration from exc

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            anyio.EndOfStream: there is none.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _parsed(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return _message(line)
        except ValidationError as exc:
            return self._unreadable(line, exc)

    def _unreadable(self, line: bytes, exc: ValidationError) -> SessionMessage | None:
        """Half characters, such as Python writes for odd file names, are replaced.

        An answer that cannot be read must not be waited for: the request fails. All else is put aside.
        """
        try:
            found = json.loads(line.decode("utf-8", "replace"))
            with contextlib.suppress(ValidationError):
                return _message(_whole(json.dumps(found, ensure_ascii=False)))
        except (ValueError, RecursionError):
            found = None
        answered = found.get("id") if isinstance(found, dict) and found.get("method") is None else None
        if type(answered) not in {int, str}:
            self._stray(line)
            return None
        reason = f"the answer cannot be read: {exc.errors()[0]['msg']}"
        error = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=reason)
        return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=answered, error=error))


def _message(line: bytes) -> SessionMessage:
    return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))


def _whole(text: str) -> bytes:
    """UTF-8 of a text whose half characters are joined where they fit, and replaced elsewhere."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


@final
class Outgoing(_Entered):
    """The messages that go. `write` must keep the bytes of each call together."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], broken: Callable[[], None]) -> None:
        self._write = write
        self._broken = broken

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. A checkpoint.

        Raises:
            anyio.BrokenResourceError: nobody reads it.
        """
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        message = item.message
        is_cancel = isinstance(message, mcp_types.JSONRPCNotification) and message.method == _CANCEL
        try:
            with trio.move_on_after(_CANCEL_WAIT if is_cancel else math.inf):
                await self._write(line.encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self._broken()
            raise anyio.BrokenResourceError from exc
