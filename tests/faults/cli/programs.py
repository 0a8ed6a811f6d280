"""Running the command line as a program, the way a shell does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trio

ROOT = Path(__file__).parents[3]


def environment(**more: str) -> dict[str, str]:
    """An environment without anybody's keys, in which this very package is found."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


def command(*arguments: str | Path) -> list[str]:
    """The program with its arguments."""
    return [sys.executable, "-m", "trio_agents", *map(str, arguments)]


async def run_cli(
    *arguments: str | Path, input: str = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, with a minute for it."""
    with trio.fail_after(60):
        done = await trio.run_process(
            command(*arguments), stdin=input.encode(), capture_stdout=True, capture_stderr=True, check=False,
            cwd=cwd, env=environment(**variables),
        )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def start_cli(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
    """Start the program in a process group of its own; its stdout can be read line by line."""
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env=environment(**variables), start_new_session=True,
    )  # fmt: skip


def complaints(stderr: str) -> list[str]:
    """The lines that say what went wrong."""
    assert "Traceback" not in stderr, stderr
    return [line for line in stderr.splitlines() if line.startswith("trio-agents")]
