"""Who would wait for itself: asked of the task tree, and across agents of the waits under way.

A context variable would not do: background tasks inherit it (false alarm), and it can be reset (deadlock).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from ..agent._initiator import ancestors
from ..errors import ReentrantWaitError

if TYPE_CHECKING:
    from ._agent import LoopAgent

_working: Final[dict[trio.lowlevel.Task, list[LoopAgent]]] = {}
"""Tasks that an agent waits for (its driver; who runs its setup, maintenance or teardown), innermost last."""


@contextmanager
def working_for(agent: LoopAgent) -> Iterator[None]:
    """Mark the current task as one that `agent` waits for, for the length of a block."""
    task = trio.lowlevel.current_task()
    _working.setdefault(task, []).append(agent)
    try:
        yield
    finally:
        agents = _working[task]
        agents.remove(agent)
        if not agents:
            del _working[task]


def insiders() -> list[LoopAgent]:
    """The agents that wait for the current task, directly or as an ancestor of it."""
    if not _working:
        return []
    found: list[LoopAgent] = []
    for task in ancestors(trio.lowlevel.current_task()):
        found.extend(_working.get(task, ()))
    return found


def is_inside(agent: LoopAgent) -> bool:
    """Whether `agent` waits for the current task."""
    return agent in insiders()


@contextmanager
def waiting_for(agent: LoopAgent, what: str) -> Iterator[None]:
    """Record that the current task waits for `agent`, for the length of a block.

    Raises:
        ReentrantWaitError: `agent` waits for this task, or for an agent that (in the end) waits for this task.
    """
    inside = insiders()
    if inside:
        _refuse(agent, inside, what)
        for waiter in inside:
            waiter.waits_for.append(agent)
    try:
        yield
    finally:
        for waiter in inside:
            waiter.waits_for.remove(agent)


def _refuse(agent: LoopAgent, inside: list[LoopAgent], what: str) -> None:
    seen: list[LoopAgent] = []
    todo = [agent]
    while todo:
        current = todo.pop()
        if current in inside:
            via = "" if current is agent else f", which waits for agent {current.id!r},"
            raise ReentrantWaitError(
                f"{what} of agent {agent.id!r}{via} would wait for the very work that is calling it; "
                "start a task with Scope.start_soon to wait there"
            )
        if current not in seen:
            seen.append(current)
            todo.extend(current.waits_for)
