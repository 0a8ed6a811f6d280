"""On whose behalf code runs: a context variable, never a permission."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, final

import trio

from ..errors import UsageError
from ..scope._lifetime import GRACE, logger
from ..scope._waits import ancestors

if TYPE_CHECKING:
    from ._interface import Agent


@final
class Boundary:
    """One stretch of code that runs on behalf of an agent, or of nobody."""

    __slots__ = ("agent", "owner", "task")

    def __init__(
        self, agent: Agent | None, owner: Initiators | None, task: trio.lowlevel.Task | None
    ) -> None:
        self.agent = agent
        self.owner = owner
        self.task = task


NOBODY: Final = Boundary(None, None, None)

_current: contextvars.ContextVar[Boundary] = contextvars.ContextVar("trio_agents_initiator", default=NOBODY)


def enter_for_good(agent: Agent | None) -> None:
    """Make the rest of the current task run on behalf of an agent: for a driver, first thing in its task."""
    _current.set(Boundary(agent, None, None))


@final
class on_nobodys_behalf:  # noqa: N801 - reads as what it does
    """Run a block on nobody's behalf, without counting as a boundary: for teardowns."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        # A teardown mostly runs in a task of its own, on nobody's behalf already.
        self._token = None if _current.get() is NOBODY else _current.set(NOBODY)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)


@final
class Initiators:
    """The initiator boundaries of one runtime; closing refuses new ones and waits for the open ones."""

    __slots__ = ("_closers", "_closing", "_disposed", "_open", "_quiet")

    def __init__(self) -> None:
        self._open: set[Boundary] = set()
        self._closers: set[trio.lowlevel.Task | None] = set()
        self._closing = False
        self._disposed = False
        self._quiet: trio.Event | None = None

    def current(self) -> Agent | None:
        """The agent on whose behalf this code runs, or None.

        Raises:
            UsageError: the runtime is disposed.
        """
        if self._disposed:
            raise UsageError("the runtime is disposed; nothing has an initiator any more")
        return _current.get().agent

    def require(self) -> Agent:
        """Like `current`, but never None.

        Raises:
            UsageError: nobody initiated this, or the runtime is disposed.
        """
        agent = self.current()
        if agent is None:
            raise UsageError("no agent initiated this; use with_initiator")
        return agent

    @contextmanager
    def boundary(self, agent: Agent | None) -> Iterator[None]:
        """Run the block on behalf of `agent`, or of nobody. Tasks started inside inherit it."""
        if self._closing:
            raise UsageError("the runtime is closing; no new initiator boundary can be opened")
        mark = Boundary(agent, self, trio.lowlevel.current_task())
        self._open.add(mark)
        token = _current.set(mark)
        try:
            yield
        finally:
            _current.reset(token)
            self._open.discard(mark)
            if self._quiet is not None and not self._foreign():
                self._quiet.set()

    def _foreign(self) -> bool:
        """Whether boundaries are open that this close has to wait for."""
        return any(mark.task not in self._closers for mark in self._open)

    async def aclose(self) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
        """Refuse new boundaries, wait for the open ones, then make every reading raise.

        A chain that closes from inside one of its own boundaries is not waited for by itself. What does not end
        within the grace is named and not waited for any longer.
        """
        self._closing = True
        self._closers = set(ancestors(trio.lowlevel.current_task()))
        if self._foreign():
            self._quiet = trio.Event()
            with trio.move_on_after(GRACE) as bound:
                await self._quiet.wait()
            if bound.cancelled_caught:
                logger.error("tasks that still run on behalf of agents: %s", ", ".join(self._late()))
        self._disposed = True

    def _late(self) -> list[str]:
        return sorted({mark.task.name for mark in self._open if mark.task not in self._closers and mark.task})
