"""A child process with everything that it starts, as one thing that ends.

The child leads a session, and so a process group, of its own. It is over when the direct child has exited: whoever
else holds its pipe does not count. Then, or when the time is up, or on a cancel, the whole group ends: TERM, a
grace, KILL. What took itself out of the group (`setsid`) is out of reach. The direct child stays a zombie until the
group has got its TERM, so that the group's number cannot have been given to somebody else meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import attrs
import trio

_CHUNK: Final = 65_536
_DRAIN: Final = 16
"""Chunks that are still read after the child has exited: more than a pipe holds, and no more."""

_POLL: Final = 0.01
KILLED: Final = 5.0
"""Seconds that a killed process may take to be gone; only one that hangs in the kernel takes any."""


@final
@attrs.frozen(kw_only=True)
class Exit:
    """How a child process ended.

    Attributes:
        code: its exit code; negative for a signal, as `subprocess` has it.
        timed_out: whether its time was up before it had exited.
    """

    code: int
    timed_out: bool


async def run_group(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    receive: Callable[[bytes], None],
    timeout: float,
    grace: float,
    leftover_grace: float = 0.5,
) -> Exit:
    """Run a program to the exit of the direct child, and end whatever is left of its group. A checkpoint.

    When this returns or raises, cancelled or not, the group has ended, or has got its KILL.

    Args:
        argv: the program and its arguments.
        cwd: where it runs.
        env: its whole environment.
        receive: called with each piece of its output, both streams in one, as it comes.
        timeout: seconds until it is ended.
        grace: seconds between TERM and KILL, at a time-out or a cancel.
        leftover_grace: the same for what an exited child left running.

    Raises:
        OSError: it cannot be started.
    """
    # Uncancellable once begun, so the process is never started and then forgotten.
    process = await trio.to_thread.run_sync(functools.partial(spawn, argv, cwd=cwd, env=env))
    exited = False
    try:
        with trio.move_on_after(timeout):
            await _collect_until_exit(process, receive)
            exited = True
    finally:
        patience = leftover_grace if exited else grace
        with trio.move_on_after(patience + KILLED, shield=True):
            await end_group(process, patience)
        close(process)
    return Exit(code=process.returncode, timed_out=not exited)


async def _collect_until_exit(process: subprocess.Popen[bytes], receive: Callable[[bytes], None]) -> None:
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    failed: list[Exception] = []
    async with trio.open_nursery() as nursery:

        async def collect() -> None:
            try:
                await _collect(pipe, receive)
            except Exception as exc:  # noqa: BLE001 - carried over the nursery, which would wrap it
                failed.append(exc)
                nursery.cancel_scope.cancel()

        nursery.start_soon(collect, name="output of a command")
        await wait_exited(process)
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    # What the child wrote before its exit is in the pipe by now; what others go on writing is not waited for.
    with contextlib.suppress(BlockingIOError):
        for _ in range(_DRAIN):
            data = os.read(pipe, _CHUNK)
            if not data:
                break
            receive(data)


async def _collect(pipe: int, receive: Callable[[bytes], None]) -> None:
    while True:
        await trio.lowlevel.wait_readable(pipe)
        with contextlib.suppress(BlockingIOError):
            data = os.read(pipe, _CHUNK)
            if not data:
                return  # closed by the child; its exit is what counts
            receive(data)


async def wait_exited(process: subprocess.Popen[bytes]) -> None:
    """Return when the process has exited, without reaping it where the platform allows."""
    if process.returncode is not None:
        await trio.lowlevel.checkpoint()
        return
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # macOS, or a sandbox
        await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End the group: TERM, and KILL if anything of it is still there after the grace."""
    group = process.pid
    gone = False
    _signal(group, signal.SIGTERM)
    with trio.move_on_after(grace):
        await _wait_gone(process)
        gone = True
    if not gone:  # while one member lives, or is not reaped, the number belongs to this group
        _signal(group, signal.SIGKILL)
        await _wait_gone(process)


def close(process: subprocess.Popen[bytes]) -> None:
    """Close its pipes: its group has ended, or has got its KILL."""
    if process.poll() is None:
        process.returncode = -signal.SIGKILL  # it hangs in the kernel; the signal waits for it there
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    _running.discard(process.pid)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # the latter: only zombies are left, on macOS
        os.killpg(group, number)


async def _wait_gone(process: subprocess.Popen[bytes]) -> None:
    """Reap the child when it has exited; return when no member of its group is alive."""
    await wait_exited(process)
    process.poll()
    await _wait_empty(process.pid)


async def _wait_empty(group: int) -> None:
    """Return when no member of the group is alive. Nobody tells, so it is asked for."""
    pause = _POLL
    while _has_member(group) and await trio.to_thread.run_sync(_has_living_member, group):
        await trio.sleep(pause)
        pause = min(2 * pause, 0.1)
    await trio.lowlevel.checkpoint()


def _has_member(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_living_member(group: int) -> bool:
    """Whether a member is more than a zombie: those of an init that is slow to reap, or never does, are dead too."""
    processes = Path("/proc")
    if not (processes / "self" / "stat").exists():
        return True  # no Linux: what has a member is alive
    for entry in processes.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may hold anything: state, parent, group.
                state, _, its_group = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:3]
                if int(its_group) == group and state not in {b"Z", b"X"}:
                    return True
    return False


# --- the last resort ------------------------------------------------------------------------------

_running: Final[set[int]] = set()
_starting: Final = threading.Lock()
"""Held from before a process exists until it is noted, so that the last resort misses none."""
_PATIENCE: Final = 1.0


def spawn(
    argv: Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    """Start a program as the leader of a session, and so of a process group, of its own. Blocks."""
    with _starting:
        process = subprocess.Popen(  # noqa: S603 - running what was asked for is the purpose
            argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        _running.add(process.pid)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            os.set_blocking(
                pipe.fileno(), False
            )  # ours alone: the child's ends are descriptions of their own
    return process


def kill_running_commands() -> None:
    """Kill every command and every child process that is running, with its group, at once.

    Synchronous; any thread may call it.

    This runs by itself when the interpreter exits. Call it before an `os._exit`.
    """
    noted = _starting.acquire(timeout=_PATIENCE)
    try:
        for group in tuple(_running):
            _signal(group, signal.SIGKILL)
    finally:
        if noted:
            _starting.release()


def _in_a_fork() -> None:
    _running.clear()  # the processes are the parent's, and so is whoever was starting one
    if _starting.locked():
        _starting.release()


atexit.register(kill_running_commands)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
