"""A tool that runs shell commands."""

from __future__ import annotations

import codecs
import os
import signal
import sys
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from ..errors import ToolError, UsageError
from ..session._events import ToolFailure
from ._context import ToolContext
from ._definition import Tool, tool
from ._process_group import Exit, run_group
from ._results import ToolReturn

_SECRET: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def command_tool(
    cwd: str | os.PathLike[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    grace: float = 2.0,
    output_limit: int = 30_000,
) -> Tool[..., object]:
    """The tool `run`: one shell command, with everything that it starts.

    The command is over when the shell exits; processes that it left in the background end then. At a time-out or a
    cancel the whole process group gets TERM, and after the grace KILL; when the interpreter exits, KILL at once.
    A process that leaves the group (`setsid`) is out of reach, and so is everything if the host itself is killed
    with SIGKILL.

    A command may do whatever the user may: it begins in `cwd` and is not confined to it.

    Args:
        cwd: where commands begin.
        env: their whole environment; otherwise this process's, without variables whose names speak of keys, tokens,
            secrets, passwords or credentials.
        timeout: seconds that a command may take, however long the model wants to wait.
        grace: seconds between TERM and KILL.
        output_limit: bytes of output that are kept; of more, the beginning and the end.

    Raises:
        UsageError: there is no such folder, or the platform has no process groups.
    """
    if sys.platform == "win32":
        raise UsageError("the command tool needs a platform with process groups")
    folder = os.path.abspath(cwd)  # noqa: PTH100 - links must stay as they are
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"commands run in a folder; {folder!r} is none")
    longest, output_bytes = timeout, output_limit

    @tool(effect="once", output_limit=None)
    async def run(
        command: Annotated[str, Meta(min_length=1)],
        context: ToolContext,
        timeout: Annotated[float, Meta(gt=0)] = longest,
    ) -> ToolReturn:
        """Run a shell command and give back its output and exit code. What it leaves in the background is ended.

        Args:
            command: the command, for a POSIX shell.
            context: the call.
            timeout: seconds that it may take.
        """
        if "\0" in command:
            raise ToolError("a command holds no NUL character", code="COMMAND_FAILED")
        output = _Output(output_bytes, context)
        limit = min(timeout, longest)
        try:
            ended = await run_group(
                ["/bin/sh", "-c", command],
                cwd=folder,
                env=_environment() if env is None else env,
                receive=output.receive,
                timeout=limit,
                grace=grace,
            )
        except (OSError, UnicodeEncodeError) as exc:
            raise ToolError(f"the command could not be started: {exc}", code="COMMAND_FAILED") from exc
        return _result(output.text(), ended, limit)

    return run


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not any(word in name.upper() for word in _SECRET)
    }


def _result(output: str, ended: Exit, limit: float) -> ToolReturn:
    if ended.timed_out:
        note = f"[it took longer than {limit:g} s and was ended]"
    elif ended.code < 0:
        note = f"[ended by {_signal_name(-ended.code)}]"
    elif ended.code:
        note = f"[exit code {ended.code}]"
    else:
        note = "" if output else "[no output]"
    text = f"{output}{'' if not output or output.endswith(chr(10)) or not note else chr(10)}{note}"
    error = ToolFailure(name="ToolError", code="COMMAND_TIMEOUT") if ended.timed_out else None
    return ToolReturn(text, is_error=ended.timed_out, error=error, meta={"exitCode": ended.code})


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Output:
    """The output of a command: its beginning and its end, whatever lies between."""

    def __init__(self, limit: int, context: ToolContext) -> None:
        self._room = limit - limit // 2
        self._keep = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._context = context
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def receive(self, data: bytes) -> None:
        self._total += len(data)
        room = self._room - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._keep + len(data):
            self._trim()
        self._context.progress(self._decoder.decode(data))

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._keep)]

    def text(self) -> str:
        self._trim()
        left_out = self._total - len(self._head) - len(self._tail)
        note = f"\n[... {left_out} of {self._total} bytes left out here ...]\n".encode() if left_out else b""
        return bytes(self._head + note + self._tail).decode("utf-8", "replace")
