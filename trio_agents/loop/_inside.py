"""Who would wait for itself: asked of the task tree, and across agents of the waits under way."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, cast, final

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


@final
class waiting_for:  # noqa: N801 - reads as what it does: `with waiting_for(agent, "ask()")`
    """Record that the current task waits for `agent`, for the length of a block.

    Raises:
        ReentrantWaitError: on entering: `agent` waits for this task, or for an agent that (in the end) waits for
            this task.
    """

    __slots__ = ("_agent", "_inside", "_what")

    def __init__(self, agent: LoopAgent, what: str) -> None:
        self._agent = agent
        self._what = what

    def __enter__(self) -> None:
        self._inside = insiders()
        if self._inside:
            _refuse(self._agent, self._inside, self._what)
            for waiter in self._inside:
                waiter.waits_for.append(self._agent)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for waiter in self._inside:
            waiter.waits_for.remove(self._agent)


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
