"""Which tasks somebody waits for: the question behind "would this wait for itself?".

Asked of the task tree. A context variable would not do: background tasks inherit it (false alarm), and it can be
reset (deadlock).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Final, final

import trio

_working: Final[dict[trio.lowlevel.Task, list[object]]] = {}
"""Tasks that somebody waits for, and who does, innermost last."""


@final
class working_for:  # noqa: N801 - reads as what it does: `with working_for(agent)`
    """Mark the current task as one that somebody waits for, for the length of a block, or between two calls."""

    __slots__ = ("_has_begun", "_task", "_whom")

    def __init__(self, whom: object) -> None:
        self._has_begun = False
        self._whom = whom
        self._task = trio.lowlevel.current_task()

    def begin(self) -> None:
        """From now on somebody waits."""
        self._has_begun = True
        waiters = _working.get(self._task)
        if waiters is None:
            _working[self._task] = [self._whom]
        else:
            waiters.append(self._whom)

    def end(self) -> None:
        """Nobody waits any more, if somebody did."""
        if self._has_begun:
            self._has_begun = False
            waiters = _working[self._task]
            waiters.remove(self._whom)
            if not waiters:
                del _working[self._task]

    __enter__ = begin

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.end()


def waiters_of_this_task() -> list[object]:
    """Who waits for the current task, directly or as an ancestor of it."""
    if not _working:
        return []
    found: list[object] = []
    for task in ancestors(trio.lowlevel.current_task()):
        found.extend(_working.get(task, ()))
    return found


def ancestors(task: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    """A task and the tasks whose nurseries it runs in, outwards."""
    while task is not None:
        yield task
        nursery = task.parent_nursery
        task = None if nursery is None else nursery.parent_task
