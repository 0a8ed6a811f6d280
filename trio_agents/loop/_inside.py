"""Who would wait for itself: asked of the task tree, and across agents of the waits under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from ..agent import Scope
from ..errors import ReentrantWaitError
from ..scope._waits import waiters_of_this_task

if TYPE_CHECKING:
    from ._agent import LoopAgent


def insiders() -> list[LoopAgent]:
    """The agents that wait for the current task, directly or as an ancestor of it."""
    found: list[LoopAgent] = []
    for waiter in waiters_of_this_task():
        agent = waiter.agent if isinstance(waiter, Scope) else waiter  # a scope waits on its agent's behalf
        if agent is not None:
            found.append(cast("LoopAgent", agent))
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
