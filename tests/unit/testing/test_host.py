"""A Trio run that synchronous code drives."""

from __future__ import annotations

import pytest
import trio

from trio_agents.testing import TrioHost


def test_jobs_share_one_run() -> None:
    """What one job has opened another may close; between them nothing moves."""
    seen: list[str] = []

    async def tick(gate: trio.Event) -> None:
        await gate.wait()
        seen.append("tick")

    managers = []

    async def open_it() -> tuple[trio.Nursery, trio.Event]:
        manager = trio.open_nursery()
        managers.append(manager)
        nursery = await manager.__aenter__()
        gate = trio.Event()
        nursery.start_soon(tick, gate)
        return nursery, gate

    async def close_it() -> None:
        await managers[0].__aexit__(None, None, None)

    with TrioHost() as host:
        _, gate = host.run(open_it)
        host.settle()
        assert seen == []

        async def set_it() -> None:
            gate.set()

        host.run(set_it)
        host.settle()
        assert seen == ["tick"]
        host.run(close_it)
    host.close()


def test_time_jumps() -> None:
    with TrioHost() as host:

        async def sleep() -> float:
            start = trio.current_time()
            await trio.sleep(5000)
            return trio.current_time() - start

        assert host.run(sleep) == pytest.approx(5000)


def test_results_and_exceptions_come_back() -> None:
    async def fail() -> None:
        raise LookupError("mine")

    async def answer() -> int:
        return 42

    with TrioHost() as host:
        with pytest.raises(LookupError, match="mine"):
            host.run(fail)
        assert host.run(answer) == 42


def test_a_run_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a failure, not a wait for ever."""
    monkeypatch.setattr("trio_agents.testing._host.PATIENCE", 0.05)
    host = TrioHost()
    gate = trio.Event()
    with pytest.raises(TimeoutError, match="hangs"):
        host.run(gate.wait)
    host._ready.put(gate.set)
    host.close()
