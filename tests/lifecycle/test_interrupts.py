"""Ctrl-C in a host that uses plain `trio.run`, landing where it hurts most: in the middle of Trio's own waits."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import pytest
import trio

from tests.conftest import Sweep
from trio_agents import MemoryStore, open_runtime
from trio_agents.models import Hang, Reply, ScriptedModel
from trio_agents.session import trace_issues


class Interrupter:
    """Sends this process a SIGINT when Trio begins to put the main task to sleep, at the N-th such moment."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.was_sent = False
        self._before = sys.gettrace()

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is trio.lowlevel.wait_task_rescheduled.__code__ and event == "call":
            self.left -= 1
            if self.left == 0:
                self.was_sent = True
                sys.settrace(self._before)
                signal.raise_signal(signal.SIGINT)
        return None

    def __enter__(self) -> Interrupter:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


async def _host(store: MemoryStore, interrupter: Interrupter) -> None:
    model = ScriptedModel([Reply.text("one"), Reply(steps=(Hang(),))])
    async with (
        open_runtime(store=store, models=[model]) as runtime,
        runtime.open_agent("s", model="scripted/x") as agent,
    ):
        with interrupter:
            await agent.ask("first")
            with trio.move_on_after(0.02):
                await agent.ask("second")
            await agent.stop()


def test_an_interrupt_in_the_middle_of_a_wait_ends_the_host_and_nothing_else(sweep: Sweep) -> None:
    """REG-13: the interrupt comes out of the wait, never out of the runtime's own bookkeeping."""
    sent = 0
    for nth in sweep(range(1, 40), keep=12):
        store = MemoryStore()
        if not _interrupted(store, Interrupter(nth)):
            continue
        sent += 1
        [summary] = trio.run(store.list)
        stored = trio.run(store.inspect, summary.header.id)
        assert (stored.status, trace_issues(stored.events)) == ("closed", [])
    assert sent > 0


def _interrupted(store: MemoryStore, interrupter: Interrupter) -> bool:
    """Whether the host was interrupted; anything else that it raises is a failure."""
    try:
        trio.run(_host, store, interrupter)
    except KeyboardInterrupt:
        return True
    except BaseExceptionGroup as group:
        pytest.fail(f"a group came out: {group!r}")
    return False
