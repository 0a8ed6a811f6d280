"""Operations on one id come one after the other; those on different ids do not wait for each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import final

import attrs
import trio


@attrs.define(eq=False)
class _Queue:
    lock: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)
    users: int = 0


@final
class Turns:
    """One fair queue for every id that somebody is using or waiting for."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def of(self, session_id: str) -> AsyncIterator[None]:
        """Hold the id's turn. Who is cancelled while waiting never gets it; a failure frees it for the next."""
        queue = self._queues.setdefault(session_id, _Queue())
        queue.users += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[session_id]
