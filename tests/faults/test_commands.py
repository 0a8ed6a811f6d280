"""The command tool and real processes (field faults P6, P7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_agents.errors import ToolError, UsageError
from trio_agents.tools import Tool, ToolContext, ToolReturn, command_tool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


async def run(tool: Tool[..., Any], command: str, **arguments: object) -> ToolReturn:
    return await tool.invoke(
        tool.structure({"command": command, **arguments}), ToolContext(call_id="c", name="run")
    )


def with_mark(mark: str) -> list[int]:
    """The processes, zombies left out, whose environment holds the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def gone(mark: str, seconds: float = 5) -> bool:
    """Whether no process with the mark is left, soon."""
    end = time.monotonic() + seconds
    while with_mark(mark):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Marked:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"{folder.name}-{os.getpid()}"

    def tool(self, **options: Any) -> Tool[..., Any]:
        return command_tool(self.folder, env={**os.environ, "MARK": self.mark}, **{"grace": 0.3, **options})


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    """A maker of command tools; whatever their commands left is killed, and is a failure."""
    marked = Marked(tmp_path)
    yield marked
    for pid in with_mark(marked.mark):
        os.kill(pid, signal.SIGKILL)


# --- what it answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("echo one; echo two >&2; echo three", "one\ntwo\nthree\n", 0),
        ("printf x", "x", 0),
        ("true", "[no output]", 0),
        ("echo no; exit 3", "no\n[exit code 3]", 3),
        ("printf no; exit 3", "no\n[exit code 3]", 3),
        ("kill -9 $$", "[ended by SIGKILL]", -9),
        ("printf '\\377'", "\ufffd", 0),
        ("cat", "[no output]", 0),
        ("missing-command 2>/dev/null", "[exit code 127]", 127),
        ("exec >&- 2>&-; exit 2", "[exit code 2]", 2),
    ],
    ids=range(10),
)
async def test_output_and_exit_code(marked: Marked, command: str, text: str, code: int) -> None:
    result = await run(marked.tool(), command)
    assert result.text == text
    assert not result.is_error
    assert result.meta is not None
    assert result.meta.value == {"exitCode": code}


async def test_where_and_with_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "planted")
    monkeypatch.setenv("GITHUB_TOKEN", "planted")
    monkeypatch.setenv("HARMLESS", "yes")
    tool = command_tool(tmp_path)
    assert (await run(tool, "pwd -P")).text == f"{tmp_path}\n"
    environment = (await run(tool, "env")).text
    assert "HARMLESS=yes" in environment
    assert "planted" not in environment
    assert (await run(command_tool(tmp_path, env={"A": "b"}), "echo $A$HARMLESS")).text == "b\n"


async def test_what_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        command_tool(tmp_path / "missing")
    folder = tmp_path / "folder"
    folder.mkdir()
    tool = command_tool(folder)
    folder.rmdir()
    for command in ("true", "a\0b", "\ud800"):
        with pytest.raises(ToolError) as caught:
            await run(tool, command)
        assert caught.value.code == "COMMAND_FAILED"


async def test_output_is_bounded_and_progress_shown(marked: Marked) -> None:
    """P6: a flood on either stream does not block, and its beginning and end are kept."""
    tool = marked.tool(output_limit=100)
    heard: list[str] = []
    context = ToolContext(call_id="c", name="run", progress=heard.append)
    command = "echo first; head -c 3000000 /dev/zero | tr '\\0' x >&2; echo; echo last"
    result = await tool.invoke(tool.structure({"command": command}), context)
    assert result.text.startswith("first\nxxx")
    assert result.text.endswith("xxx\nlast\n")
    assert "2999912 of 3000012 bytes left out" in result.text
    assert sum(map(len, heard)) == 3_000_012


async def test_an_error_in_progress_ends_the_command(marked: Marked) -> None:
    def refuse(_text: str) -> None:
        raise ZeroDivisionError

    tool = marked.tool()
    with pytest.raises(ZeroDivisionError):
        await tool.invoke(
            tool.structure({"command": "echo x; sleep 60"}),
            ToolContext(call_id="c", name="run", progress=refuse),
        )
    assert gone(marked.mark)


# --- what it leaves -------------------------------------------------------------------------------

BACKGROUND = {
    "silent": "sleep 60 &",
    "chatty": "(while :; do echo noise; done) &",
    "ignoring": "(trap '' TERM; while :; do sleep 0.1; done) &",
    "nested": "sh -c 'sleep 60 & sleep 60' &",
}


@pytest.mark.parametrize("kind", BACKGROUND)
async def test_a_grandchild_that_holds_the_pipe_is_not_waited_for(marked: Marked, kind: str) -> None:
    """P6"""
    started = time.monotonic()
    result = await run(marked.tool(), f"{BACKGROUND[kind]} echo said")
    assert time.monotonic() - started < 5
    assert "said\n" in result.text
    assert result.meta is not None
    assert result.meta.value == {"exitCode": 0}
    assert gone(marked.mark)


async def test_a_grandchild_in_a_session_of_its_own_is_not_waited_for(marked: Marked) -> None:
    """P6: it is out of reach, as documented."""
    started = time.monotonic()
    result = await run(marked.tool(), "setsid sleep 60 & echo said")
    assert time.monotonic() - started < 5
    assert result.text == "said\n"


STUBBORN = (
    "trap '' TERM; echo begun; (trap '' TERM; while :; do sleep 0.1; done) & while :; do sleep 0.1; done"
)


@pytest.mark.parametrize(
    "command", ["echo begun; sleep 60", f"{BACKGROUND['silent']} echo begun; sleep 60", STUBBORN]
)
async def test_timeout(marked: Marked, command: str) -> None:
    """P6: the output so far, and nothing of the group is left."""
    result = await run(marked.tool(), command, timeout=0.5)
    assert result.is_error
    assert result.error is not None
    assert result.error.code == "COMMAND_TIMEOUT"
    assert result.text == "begun\n[it took longer than 0.5 s and was ended]"
    assert gone(marked.mark)


async def test_the_model_cannot_wait_longer_than_the_tool(marked: Marked) -> None:
    result = await run(marked.tool(timeout=0.3), "sleep 60", timeout=1000)
    assert "0.3 s" in result.text


async def test_a_command_that_ends_on_term_may_clean_up(marked: Marked) -> None:
    result = await run(
        marked.tool(grace=5), "trap 'echo bye > bye; exit 0' TERM; sleep 60 & wait", timeout=0.5
    )
    assert result.is_error
    assert (marked.folder / "bye").read_text() == "bye\n"


@pytest.mark.parametrize("command", ["sleep 60", STUBBORN], ids=["plain", "stubborn"])
async def test_cancel(marked: Marked, command: str) -> None:
    """P6"""
    tool = marked.tool()
    with trio.move_on_after(0.3) as scope:
        await run(tool, command)
    assert scope.cancelled_caught
    assert gone(marked.mark, 0)


async def test_cancelled_at_once(marked: Marked) -> None:
    for delay in (0, 0.001, 0.005, 0.02):
        with trio.move_on_after(delay):
            await run(marked.tool(grace=0.05), "sleep 60")
        assert gone(marked.mark, 0)


async def test_without_a_descriptor_of_the_process(marked: Marked, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, or in a sandbox."""

    def refuse(_pid: int) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert (
        await run(marked.tool(), f"{BACKGROUND['ignoring']} echo said; exit 3")
    ).text == "said\n[exit code 3]"
    assert (await run(marked.tool(), STUBBORN, timeout=0.5)).is_error
    with trio.move_on_after(0.3) as scope:
        await run(marked.tool(), STUBBORN)
    assert scope.cancelled_caught
    assert gone(marked.mark, 0)


async def test_many_at_once_leave_no_descriptor_and_no_zombie(marked: Marked) -> None:
    tool = marked.tool()
    await run(tool, "true")
    before = descriptors()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, tool, f"sleep 0.0{number % 5}; exit {number}")
    assert descriptors() == before
    assert not any(has_children_called(b"sh"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def has_children_called(name: bytes) -> Iterator[bool]:
    """For each child of this process: whether it is one."""
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        yield Path(f"/proc/{pid}/comm").read_bytes().strip() == name


# --- the end of the host --------------------------------------------------------------------------

HOST = """
import os, sys, threading, time, trio
from trio_agents.tools import ToolContext, command_tool, kill_running_commands

how = sys.argv[1]
tool = command_tool(".", grace=0.5 if how in {"exit", "error"} else 30, env={**os.environ})

async def call():
    command = "trap '' TERM; touch begun; while :; do sleep 0.1; done"
    await tool.invoke(tool.structure({"command": command}), ToolContext(call_id="c", name="run"))

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        while not os.path.exists("begun"):
            await trio.sleep(0.01)
        if how == "hard":
            kill_running_commands()
            os._exit(7)
        if how == "exit":
            sys.exit(7)
        if how == "error":
            raise ZeroDivisionError
        ready.set()
        await trio.sleep_forever()

ready = threading.Event()
if how == "thread":
    threading.Thread(target=trio.run, args=(main,), daemon=True).start()
    ready.wait(20)
    sys.exit(7)
try:
    trio.run(main)
except BaseExceptionGroup as group:
    raise group.exceptions[0]
"""


@pytest.mark.parametrize(("how", "code"), [("hard", 7), ("exit", 7), ("error", 1), ("thread", 7)])
def test_no_child_survives_the_host(marked: Marked, how: str, code: int) -> None:
    """P7: a child that ignores TERM goes with its host, however the host ends, and the exit code is the host's."""
    (marked.folder / "host.py").write_text(HOST)
    environment = {**os.environ, "MARK": marked.mark, "PYTHONPATH": str(Path(__file__).parents[2])}
    host = subprocess.run(
        [sys.executable, "host.py", how],
        cwd=marked.folder,
        env=environment,
        timeout=25,
        check=False,
        stderr=subprocess.PIPE,
    )
    assert host.returncode == code, host.stderr.decode()
    assert gone(marked.mark)
