"""A child process that lives beside a program and talks with it over pipes, such as a server of tools."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Final, final

import trio

from ..errors import UsageError
from ._process_group import KILLED, close, end_group, spawn, wait_exited

_CHUNK: Final = 65_536
_MOST_UNSENT: Final = 64 * 1024 * 1024
"""Bytes of cancelled writes that are kept for a process which does not read; then it counts as broken."""
_SAFE: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


def safe_environment() -> dict[str, str]:
    """What a child process may inherit without inheriting a secret: where programs and homes are, and the locale."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in _SAFE or name.startswith("LC_")) and not value.startswith("()")  # the latter: a function
    }


@final
class ChildProcess:
    """A running program with three pipes, the leader of a process group of its own. `open_process` makes it."""

    def __init__(self, process: subprocess.Popen[bytes], grace: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._grace = grace
        self._input = process.stdin
        self._output = process.stdout
        self._errors = process.stderr
        self._unsent = bytearray()
        self._sending = trio.Lock()

    @property
    def pid(self) -> int:
        """Its process id, which is its group's number too."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None as long as it runs."""
        if self._process.returncode is None and hasattr(os, "waitid"):
            # Looked at, not reaped: until its group has got its TERM, the number has to stay taken.
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if seen is None:
                return None
            return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
        return self._process.poll()

    async def send_all(self, data: bytes) -> None:
        """Write to its standard input. A checkpoint.

        Several tasks may write: each one's bytes stay together. If a write is cancelled, what is left of it goes out
        before the next one, so that no message is torn.

        Raises:
            trio.BrokenResourceError: it reads no more, or has not read for long.
            trio.ClosedResourceError: the process was ended from here.
        """
        await trio.lowlevel.checkpoint()
        if len(self._unsent) > _MOST_UNSENT:
            raise trio.BrokenResourceError(f"process {self.pid} does not read")
        self._unsent += data
        async with self._sending:
            while self._unsent:
                await self._send_some()

    async def _send_some(self) -> None:
        if self._input.closed:
            raise trio.ClosedResourceError
        try:
            sent = os.write(self._input.fileno(), self._unsent)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(self._input)
        except OSError as exc:
            self._unsent.clear()
            raise trio.BrokenResourceError(f"process {self.pid} reads no more: {exc}") from exc
        else:
            del self._unsent[:sent]

    async def receive_some(self) -> bytes:
        """What it has written to its standard output, or no bytes at the end. A checkpoint; cancelling loses none.

        The end comes when nobody holds the pipe any more, so a process that it left behind may delay it: see
        `wait_exited`.

        Raises:
            trio.ClosedResourceError: the process was ended from here.
        """
        return await _read(self._output)

    def receive_nowait(self) -> bytes:
        """Like `receive_some`, without waiting. No checkpoint.

        Raises:
            trio.WouldBlock: there is nothing to read now.
            trio.ClosedResourceError: the process was ended from here.
        """
        return _read_nowait(self._output)

    async def receive_error(self) -> bytes:
        """What it has written to its standard error; otherwise like `receive_some`."""
        return await _read(self._errors)

    def receive_error_nowait(self) -> bytes:
        """What it has written to its standard error; otherwise like `receive_nowait`."""
        return _read_nowait(self._errors)

    async def wait_exited(self) -> None:
        """Wait until the process itself has exited, whatever it left behind. A checkpoint."""
        await wait_exited(self._process)

    async def aclose(self) -> None:
        """End it: close its input, and if it has not exited after the grace, end its whole group with TERM, then KILL.

        What an exited process left in its group is ended likewise. Shielded from cancellation, and bounded.
        """
        with trio.move_on_after(2 * self._grace + KILLED, shield=True):
            if not self._input.closed:
                trio.lowlevel.notify_closing(self._input)
                with contextlib.suppress(OSError):
                    self._input.close()
                with trio.move_on_after(self._grace):
                    await wait_exited(self._process)
            await end_group(self._process, self._grace)
        for pipe in (self._output, self._errors):
            if not pipe.closed:
                trio.lowlevel.notify_closing(pipe)
        close(self._process)


async def _read(pipe: IO[bytes]) -> bytes:
    await trio.lowlevel.checkpoint()
    while True:
        try:
            return _read_nowait(pipe)
        except trio.WouldBlock:
            await trio.lowlevel.wait_readable(pipe)


def _read_nowait(pipe: IO[bytes]) -> bytes:
    if pipe.closed:
        raise trio.ClosedResourceError
    try:
        return os.read(pipe.fileno(), _CHUNK)
    except BlockingIOError:
        raise trio.WouldBlock from None


def open_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    grace: float = 2.0,
) -> ProcessBlock:
    """A child process for the length of a block.

    `async with open_process(["server", "--stdio"]) as child`. It leads a session, and so a process group, of its own: a Ctrl-C in the terminal does not reach it. Leaving the
    block closes its input, which is how a server is asked to end; after `grace` seconds the whole group gets TERM,
    and after as many again KILL. When the interpreter exits, or `kill_running_commands` is called, KILL at once. A
    process that leaves the group (`setsid`) is out of reach, and so is everything if the host itself is killed with
    SIGKILL, though its child then reads the end of its input.

    Args:
        argv: the program and its arguments.
        env: variables beside the safe few that it inherits (`PATH`, `HOME`, the locale and the like).
        cwd: where it runs; otherwise where this process does.
        grace: seconds, as above.

    Raises:
        UsageError: the platform has no process groups.
        OSError: on entering: it cannot be started.
    """
    if sys.platform == "win32":
        raise UsageError("a child process needs a platform with process groups")
    return ProcessBlock(
        argv, safe_environment() | dict(env or {}), None if cwd is None else os.fspath(cwd), grace
    )


@final
class ProcessBlock:
    """The block that `open_process` gives. Not reusable."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, grace: float) -> None:
        self._argv = argv
        self._env = env
        self._cwd = cwd
        self._grace = grace
        self._child: ChildProcess | None = None

    async def __aenter__(self) -> ChildProcess:
        """Start the process. A checkpoint; cancelling leaves none."""
        if self._child is not None:
            raise UsageError("this process was already started; call open_process() again")
        start = functools.partial(
            spawn, self._argv, cwd=self._cwd, env=self._env, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        # Uncancellable once begun, and the cancel comes at a later checkpoint: never started and then forgotten.
        process = await trio.to_thread.run_sync(start)
        self._child = ChildProcess(process, self._grace)
        return self._child

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End the process and what it left in its group."""
        assert self._child is not None
        await self._child.aclose()  # noqa: ASYNC102 - shielded and bounded inside
