"""Cancelling at every step, in an order that repeats itself."""

from __future__ import annotations

import pytest
import trio

from trio_agents.testing import cancel_sweep, seeded_scheduler


async def test_every_step_of_the_own_task() -> None:
    done: list[int] = []

    async def scenario() -> None:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            done.append(number)

    checked: list[list[int]] = []

    def check() -> None:
        checked.append(done.copy())
        done.clear()

    assert await cancel_sweep(scenario, check, of="own task") == 4
    assert checked == [[], [0], [0, 1], [0, 1, 2]]


async def test_every_step_of_all_tasks() -> None:
    async def other() -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)

    own = await cancel_sweep(scenario, of="own task")
    assert await cancel_sweep(scenario) > own


async def test_some_steps() -> None:
    runs: list[int] = []

    async def scenario() -> None:
        await trio.lowlevel.checkpoint()
        runs.append(1)

    assert await cancel_sweep(scenario, steps=[1, 5, 9], of="own task") == 3
    assert len(runs) == 2


async def test_a_failure_says_where() -> None:
    """What the scenario or an async check raised is raised, with step and seed as a note."""

    async def scenario() -> None:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            raise LookupError("leak") from None  # noqa: ASYNC104 - the test means it

    async def check() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("left behind")

    with pytest.raises(LookupError) as caught:
        await cancel_sweep(scenario, seed=7, of="own task")
    assert caught.value.__notes__ == ["cancelled after step 1, seed 7"]
    with pytest.raises(ValueError, match="left behind") as other:
        await cancel_sweep(trio.lowlevel.checkpoint, check)
    assert other.value.__notes__ == ["cancelled after step 1, seed 0"]


def order(seed: int) -> list[int]:
    """The order in which ten tasks take turns."""
    seen: list[int] = []

    async def task(number: int) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            seen.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(task, number)

    with seeded_scheduler(seed):
        trio.run(main)
    return seen


def test_the_order_depends_on_the_seed_alone() -> None:
    assert order(1) == order(1)
    assert order(2) == order(2)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1
