"""Cancel a scenario at every step, one after the other, with a scheduler that repeats itself."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Literal, final

import trio
from trio._core import _run


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Make Trio schedule in an order that depends on a seed alone, for the length of a block.

    Trio shuffles the tasks that are ready at the same time. Inside the block the order is the same each time, so what
    a test found it finds again. Several seeds look at several orders. The block may stand around `trio.run` or
    inside of it.
    """
    # Trio has this switch for Hypothesis, and no public name for it.
    allowed, state = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _run._r.seed(seed)
    try:
        yield
    finally:
        _run._r.setstate(state)
        _run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]


@final
class _CancelAtStep(trio.abc.Instrument):
    def __init__(self, scope: trio.CancelScope, step: int, only: trio.lowlevel.Task | None) -> None:
        self.scope = scope
        self.step = step
        self.only = only
        self.steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.only is None or task is self.only:
            self.steps += 1
            if self.steps == self.step:
                self.scope.cancel(reason=f"sweep: step {self.step}")


async def cancel_sweep(
    scenario: Callable[[], Awaitable[object]],
    check: Callable[[], object] | None = None,
    *,
    seed: int = 0,
    of: Literal["every task", "own task"] = "every task",
    steps: Iterable[int] | None = None,
) -> int:
    """Run a scenario again and again, cancelled after its first, second, ... step, until it survives.

    Each run starts in the same order of scheduling (see `seeded_scheduler`), so step 17 of one run is step 17 of the
    next. After each run `check` looks whether anything is left behind; it may be async. A checkpoint.

    Args:
        scenario: what is cancelled; called anew for each run. It may end in `Cancelled`, or survive.
        check: called after each run, outside of the cancel.
        seed: picks the order of scheduling.
        of: which steps are counted: those of all tasks of the run, or of the scenario's own task alone.
        steps: cancel after these steps only; by default after each there is.

    Returns:
        how many runs there were.

    Raises:
        BaseException: what the scenario or the check raised. A note says which step and seed it was.
    """
    runs = 0
    for step in count(1) if steps is None else steps:
        runs += 1
        survived = False
        try:
            with seeded_scheduler(seed), trio.CancelScope() as scope:
                only = None if of == "every task" else trio.lowlevel.current_task()
                probe = _CancelAtStep(scope, step, only)
                trio.lowlevel.add_instrument(probe)
                try:
                    await scenario()
                finally:
                    survived = not scope.cancel_called
                    trio.lowlevel.remove_instrument(probe)
            if check is not None:
                answer = check()
                if inspect.isawaitable(answer):
                    await answer
        except BaseException as exc:
            exc.add_note(f"cancelled after step {step}, seed {seed}")
            raise
        if survived and steps is None:
            break
    await trio.lowlevel.checkpoint()
    return runs
