"""Signals sent to real processes: the first drains, the second ends at once; without our runner nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import trio_agents as ta
from trio_agents.values import COMPLETED, DISPOSED, Aborted

PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")


@contextmanager
def program(directory: Path, runner: str, work: str, grace: float) -> Iterator[subprocess.Popen[str]]:
    """The program, once its agents are at work."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(directory), runner, work, str(grace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def logs(directory: Path) -> list[tuple[list[object], int]]:
    """How the turns of each stored session ended, and how many messages are still pending."""

    async def read() -> list[tuple[list[object], int]]:
        store = ta.JsonlStore(directory)
        found: list[tuple[list[object], int]] = []
        async with ta.open_runtime(store=store, models=[], plugins=()) as rt:
            for summary in await store.list():
                assert (await store.verify(summary.header.id)).problems == ()
                async with rt.open_agent(summary.header.id, mode="resume") as agent:
                    ends: list[object] = [
                        event.data.reason for event in agent.session.events if event.type == "turn/end"
                    ]
                    found.append((ends, len(agent.inbox.next_turn)))
        return found

    return trio.run(read)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(number: signal.Signals, tmp_path: Path) -> None:
    """DIS-11, X2: turns that end in time complete; the rest stays pending; the code is 128 plus the number."""
    with program(tmp_path, "ours", "quick", 20) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert out == "exit functions ran\n"
    assert "Traceback" not in err
    assert logs(tmp_path) == [([COMPLETED], 1)] * 3


def test_what_does_not_end_in_time_is_stopped(tmp_path: Path) -> None:
    """DIS-11, X2: its turn ends aborted(disposed), and what was queued behind it stays pending."""
    with program(tmp_path, "ours", "slow", 0.3) as process:
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 143
    assert time.monotonic() - begin < 15
    assert logs(tmp_path) == [([Aborted(reason=DISPOSED)], 1)] * 3


def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    """X1: although a tool shields itself; exit functions run, and the log loads."""
    with program(tmp_path, "ours", "stuck", 60) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - begin < 5
    assert out == "exit functions ran\n"
    assert [len(ends) for ends, _ in logs(tmp_path)] == [1, 1, 1]


def test_without_our_runner(tmp_path: Path) -> None:
    """X3: Trio's own handling is untouched, KeyboardInterrupt is raised, and the logs are balanced."""
    with program(tmp_path, "plain", "slow", 0) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode in {1, 130, -signal.SIGINT}
    assert "KeyboardInterrupt" in err
    assert logs(tmp_path) == [([Aborted(reason=DISPOSED)], 1)] * 3


def test_what_run_gives() -> None:
    """Without a signal it is `trio.run`: the result, or the very exception, and the signal handlers as before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    error = LookupError("mine")

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    assert ta.run(double, 21) == 42
    with pytest.raises(LookupError) as caught:
        ta.run(fail)
    assert caught.value is error
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
