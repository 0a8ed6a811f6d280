"""No process of a server outlives its session, however that ends (field faults P1, P7).

The servers ignore TERM and the end of their input, and each has a child that does likewise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.faults.mcp.servers import Mark
from trio_agents.plugins.mcp import connect_mcp
from trio_agents.tools import kill_running_commands, open_process

HOST = Path(__file__).with_name("host.py")
ROOT = Path(__file__).parents[3]
OPTIONS = ta.AgentOptions(model="x/y")

counts = pytest.mark.parametrize("count", [2, pytest.param(50, marks=pytest.mark.slow)])


def zombies() -> list[str]:
    """Children of this process that have ended and were not reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state == b"Z" and int(parent) == os.getpid():
                found.append(entry.name)
    return found


def servers_of(mark: Mark) -> Any:
    async def setup(agent: ta.Agent) -> None:
        await connect_mcp(agent.scope, mark.server("orphan"), name="t")

    return setup


async def create(runtime: ta.Runtime, mark: Mark, count: int, handles: list[ta.AgentHandle]) -> None:
    async def one() -> None:
        handles.append(await runtime.agents.create(setup=servers_of(mark), options=OPTIONS))

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)


@counts
async def test_dispose(count: int, mark: Mark) -> None:
    before = zombies()
    async with ta.open_runtime() as runtime:
        handles: list[ta.AgentHandle] = []
        await create(runtime, mark, count, handles)
        assert len(mark.alive()) == 2 * count
        async with trio.open_nursery() as nursery:
            for handle in handles:
                nursery.start_soon(handle.dispose)
        assert mark.alive() == []
        assert set(zombies()) <= set(before)


@pytest.mark.slow
async def test_an_agent_with_little_patience(mark: Mark) -> None:
    """Its server gets no more of it than it has: the end is whole, and in time."""
    options = ta.AgentOptions(model="x/y", grace=1.6)

    async def setup(agent: ta.Agent) -> None:
        await connect_mcp(agent.scope, mark.server("orphan", grace=60), name="t")

    async with ta.open_runtime() as runtime:
        handle = await runtime.agents.create(setup=setup, options=options)
        with trio.fail_after(3):
            await handle.dispose()
        assert mark.alive() == []


@counts
async def test_the_owner_is_cancelled(count: int, mark: Mark) -> None:
    with trio.CancelScope() as scope:
        async with ta.open_runtime() as runtime:
            await create(runtime, mark, count, [])
            assert len(mark.alive()) == 2 * count
            scope.cancel()
            await trio.sleep_forever()
    assert mark.alive() == []


@counts
async def test_a_setup_fails(count: int, mark: Mark) -> None:
    async with ta.open_runtime() as runtime:

        async def setup(agent: ta.Agent) -> None:
            await servers_of(mark)(agent)
            assert mark.alive()
            raise RuntimeError("the setup failed")

        async def one() -> None:
            with pytest.raises(RuntimeError, match="the setup failed"):
                await runtime.agents.create(setup=setup, options=OPTIONS)

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)
        assert mark.alive() == []


@counts
async def test_a_setup_is_cancelled(count: int, mark: Mark) -> None:
    """Whenever that comes: before the process is there, while it says hello, and later."""
    async with ta.open_runtime() as runtime:

        async def one(number: int) -> None:
            with trio.move_on_after(0.4 * number / count):
                await runtime.agents.create(setup=servers_of(mark), options=OPTIONS)
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(one, number)
    assert mark.alive() == []


@counts
async def test_repeated_creation_of_one_id(count: int, mark: Mark) -> None:
    """Those that come too late leave nothing, and the first keeps what it has."""
    async with ta.open_runtime() as runtime:
        refused: list[Exception] = []

        async def one() -> None:
            try:
                await runtime.agents.create("same", setup=servers_of(mark), options=OPTIONS)
            except ta.UsageError as exc:
                refused.append(exc)

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)
        assert len(refused) == count - 1
        assert len(mark.alive()) == 2
    assert mark.alive() == []


# --- the host ends --------------------------------------------------------------------------------


def start(mark: Mark, count: int, how: str, grace: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HOST), mark.mark, str(count), how, str(grace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("how", ["never", pytest.param("during", marks=pytest.mark.slow)])
@counts
def test_the_second_signal(count: int, how: str, mark: Mark) -> None:
    """The first waits for servers that have half a minute to end; the second does not, and leaves none."""
    with start(mark, count, how, grace=30.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130
    assert mark.gone(1)


@pytest.mark.slow
@counts
def test_one_signal(count: int, mark: Mark) -> None:
    """They get their grace, and then KILL."""
    with start(mark, count, "never", grace=0.2) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143
    assert mark.alive() == []


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("exit", 7), ("raise", 1)])
def test_the_program_ends_by_itself(how: str, code: int, mark: Mark) -> None:
    """Its exit code is its own."""
    with start(mark, 3, how, grace=0.2) as process:
        process.communicate(timeout=30)
    assert process.returncode == code
    assert mark.alive() == []


@pytest.mark.slow
def test_the_host_is_killed(mark: Mark) -> None:
    """What heeds the end of its input ends; of what does not, nothing is promised."""
    with start(mark, 3, "heeding", grace=30.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(mark.alive()) == 3
        process.kill()
        process.communicate(timeout=20)
    assert mark.gone(5)


def test_the_last_resort(mark: Mark) -> None:
    """Synchronous, whatever the loop is doing."""

    async def main() -> None:
        server = mark.server("orphan", grace=0.1)
        async with open_process([server.command, *server.args], env=server.env, grace=0.1) as child:
            while len(mark.alive()) < 2:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
            kill_running_commands()
            assert mark.gone(1)
            await child.wait_exited()
            assert child.returncode == -signal.SIGKILL

    trio.run(main)
