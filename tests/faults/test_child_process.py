"""A child process that lives beside a program: its pipes, and its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.faults.mcp.servers import Mark, marked
from trio_agents.errors import UsageError
from trio_agents.tools import ChildProcess, open_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

STUBBORN = "trap '' TERM; (trap '' TERM; sleep 60) & echo ready; while :; do sleep 60; done"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Mark]:
    """A mark for processes; whatever is left of them is a failure."""
    with marked(tmp_path) as mark:
        yield mark


async def read_all(child: ChildProcess) -> bytes:
    data = b""
    while piece := await child.receive_some():
        data += piece
    return data


async def test_its_pipes(mark: Mark) -> None:
    argv = ["/bin/sh", "-c", "echo $A $HIDDEN >&2; pwd; cat; exit 3"]
    async with open_process(argv, env={"A": "b", "MARK": mark.mark}, cwd="/") as child:
        before = child.returncode
        assert await child.receive_some() == b"/\n"
        with pytest.raises(trio.WouldBlock):
            child.receive_nowait()
        await child.send_all(b"hello")
        assert await child.receive_some() == b"hello"
        assert await child.receive_error() == b"b\n"
        with pytest.raises(trio.WouldBlock):
            child.receive_error_nowait()
        assert child.pid in mark.alive()
    assert (before, child.returncode) == (None, 3)
    await child.aclose()
    for use in (lambda: child.send_all(b"more"), child.receive_some, child.receive_error):
        with pytest.raises(trio.ClosedResourceError):
            await use()
    with pytest.raises(trio.ClosedResourceError):
        child.receive_nowait()


async def test_a_program_that_cannot_start() -> None:
    with pytest.raises(FileNotFoundError):
        async with open_process(["no-such-program"]):
            pass
    block = open_process(["true"])
    async with block:
        pass
    with pytest.raises(UsageError, match="already started"):
        async with block:
            pass


async def test_a_large_message_is_written_whole(mark: Mark) -> None:
    """Several writers, one of them cancelled half-way: no message is torn."""
    big = b"a" * 300_000
    async with open_process(["cat"], env={"MARK": mark.mark}) as child:
        with trio.move_on_after(0.05) as scope:
            await child.send_all(big + b"\n")
        assert scope.cancelled_caught
        received = bytearray()

        async def read() -> None:
            while received.count(b"\n") < 4:
                received.extend(await child.receive_some())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for letter in (b"b", b"c", b"d"):
                nursery.start_soon(child.send_all, letter * 100_000 + b"\n")
        lines = bytes(received).split(b"\n")
        assert lines[0] == big
        assert sorted(lines[1:4]) == [letter * 100_000 for letter in (b"b", b"c", b"d")]


async def test_nobody_reads(mark: Mark) -> None:
    argv = ["/bin/sh", "-c", "exec <&-; echo closed; sleep 60"]
    async with open_process(argv, env={"MARK": mark.mark}, grace=0.1) as child:
        assert await child.receive_some() == b"closed\n"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError):
                await child.send_all(b"x" * 70_000)
        assert child.returncode is None


async def test_it_is_asked_first(mark: Mark, tmp_path: Path) -> None:
    """The end of its input comes first, and is enough for one that heeds it."""
    argv = ["/bin/sh", "-c", f"trap 'echo term >> {tmp_path}/log' TERM; cat; echo eof >> {tmp_path}/log"]
    async with open_process(argv, env={"MARK": mark.mark}, grace=30) as child:
        pass
    assert (tmp_path / "log").read_text() == "eof\n"
    assert child.returncode == 0


async def test_it_is_killed_last(mark: Mark) -> None:
    async with open_process(["/bin/sh", "-c", STUBBORN], env={"MARK": mark.mark}, grace=0.1) as child:
        assert await child.receive_some() == b"ready\n"
        assert len(mark.alive()) >= 2
    assert mark.alive() == []
    assert child.returncode == -9


@pytest.mark.parametrize("when", [0.0, 0.002, 0.01, 0.05])
async def test_a_cancel_leaves_none(when: float, mark: Mark) -> None:
    with trio.move_on_after(when) as scope:
        async with open_process(["/bin/sh", "-c", STUBBORN], env={"MARK": mark.mark}, grace=0.1):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert mark.alive() == []


async def test_what_it_leaves_is_ended(mark: Mark) -> None:
    """The exit is seen though somebody holds the pipe; reading ends with the block, not before."""
    argv = ["/bin/sh", "-c", "echo out; sleep 60 & exit 5"]
    async with open_process(argv, env={"MARK": mark.mark}, grace=0.1) as child:
        with trio.fail_after(5):
            await child.wait_exited()
        assert child.returncode == 5
        assert child.receive_nowait() == b"out\n"
        assert len(mark.alive()) == 1
        with trio.move_on_after(0.05) as scope:
            await read_all(child)
        assert scope.cancelled_caught
    assert mark.alive() == []


async def test_readers_of_a_closed_process(mark: Mark) -> None:
    """A reader that outlives the block is woken."""
    ended: list[str] = []

    async def read(child: ChildProcess) -> None:
        try:
            await read_all(child)
        except trio.ClosedResourceError:
            ended.append("closed")
        else:
            ended.append("the end")

    argv = ["/bin/sh", "-c", "sleep 60 & exit"]
    async with (
        trio.open_nursery() as nursery,
        open_process(argv, env={"MARK": mark.mark}, grace=0.1) as child,
    ):
        nursery.start_soon(read, child)
        await trio.testing.wait_all_tasks_blocked()
    assert ended in (["the end"], ["closed"])
