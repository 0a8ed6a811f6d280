"""An end that is under way when the runtime crashes goes its whole way: DIS-13."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.lifecycle.stage import OPTIONS, runtime


async def _crash() -> None:
    raise KeyboardInterrupt("in a task of a scope")


class Stubborn:
    """Something that shields itself until it is let go."""

    def __init__(self, seen: list[str], what: str) -> None:
        self.gate = trio.Event()
        self._seen = seen
        self._what = what

    async def hold(self, *agents: Any) -> None:
        with trio.CancelScope(shield=True):
            await self.gate.wait()
        self._seen.append(self._what)


async def test_an_owner_waits_for_its_agents_although_the_runtime_crashed() -> None:
    """DIS-10, DIS-13: what the owner holds is given back when its agent's clean-up is over, not before."""
    seen: list[str] = []
    cleanup = Stubborn(seen, "cleaned up")
    with pytest.raises(KeyboardInterrupt, match="in a task"):  # noqa: PT012 - the block is the point
        async with runtime() as rt, rt.scope.open_child("owner") as owner:
            owner.callback(seen.append, "given back")
            handle = await owner.agents.create("a", options=OPTIONS)
            handle.agent.scope.callback(cleanup.hold)
            owner.close_soon()
            await wait_all_tasks_blocked()
            rt.scope.start_soon(_crash)
            with trio.CancelScope(shield=True):
                await wait_all_tasks_blocked()
                assert seen == []
                cleanup.gate.set()
    assert seen == ["cleaned up", "given back"]


async def test_an_owner_waits_for_a_creation_although_the_runtime_crashed() -> None:
    """PUB-7, DIS-13: the closing side goes on only when the call has settled."""
    seen: list[str] = []
    setup = Stubborn(seen, "setup over")
    with pytest.raises(KeyboardInterrupt, match="in a task"):  # noqa: PT012 - the block is the point
        async with runtime() as rt, rt.scope.open_child("owner") as owner:
            owner.callback(seen.append, "given back")

            async def create() -> None:
                try:
                    await owner.agents.create("a", setup=setup.hold, options=OPTIONS)
                finally:
                    seen.append("settled")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                await wait_all_tasks_blocked()
                owner.close_soon()
                await wait_all_tasks_blocked()
                rt.scope.start_soon(_crash)
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                    assert seen == []
                    setup.gate.set()
    assert seen == ["setup over", "settled", "given back"]
