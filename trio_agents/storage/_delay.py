"""Chunks that wait a moment for their neighbours, and who writes them when the moment is over."""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol, final

import trio

from ..errors import StorageError

_logger = logging.getLogger("trio_agents")


class Holder(Protocol):
    """A writer that holds chunks back."""

    @property
    def session_id(self) -> str:
        """Whose chunks they are."""
        ...

    def write_held(self, ticket: int) -> None:
        """Write them, if they are still those of this ticket."""
        ...


@final
class Delay:
    """One timer for all sessions of a store. The delay is the same for all, so the first in is the first due."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due: deque[tuple[float, Holder, int]] = deque()
        self._alarm: trio.Event | None = None
        self._is_serving = False

    @property
    def is_on(self) -> bool:
        """Whether somebody will write what is held back. If not, nothing may be held back."""
        return self._is_serving

    def begin(self, holder: Holder, ticket: int) -> None:
        """A writer holds its first chunk."""
        self._due.append((trio.current_time() + self.seconds, holder, ticket))
        if self._alarm is not None:
            self._alarm.set()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write what is due until cancelled, and everything else then."""
        self._is_serving = self.seconds > 0
        try:
            task_status.started()
            while True:
                await self._wait_for_first()
                self._write_until(trio.current_time())
        finally:
            self._is_serving = False
            self._write_until(float("inf"))

    async def _wait_for_first(self) -> None:
        if not self._due:
            self._alarm = trio.Event()
            try:
                await self._alarm.wait()
            finally:
                self._alarm = None
        await trio.sleep_until(self._due[0][0])

    def _write_until(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            _, holder, ticket = self._due.popleft()
            try:
                holder.write_held(ticket)
            except StorageError as exc:
                # They stay first in line: the next append or flush of the session tries again, and raises.
                _logger.warning("session %r: chunks could not be written yet: %s", holder.session_id, exc)
