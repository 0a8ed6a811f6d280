"""`trio-agents demo`: a few seconds that show what this is about.

A recorded session is replayed; then an agent works with real tools in a process of its own, is killed in the middle of
one, and is resumed. Nothing of it needs a network, and nothing is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

import trio

from ..session import Event, ToolResult
from ..storage import JsonlStore
from ._console import bold, dim, shorten, write
from ._logs import read_log
from ._program import FAILED
from ._replay import replay_log
from ._replay_command import as_text
from ._transcript import JsonTranscript

_SESSION: Final = "demo"
_PATIENCE: Final = 30.0
_LOOKED_AT: Final = ("README.md", "pyproject.toml", "setup.py", "package.json", "Makefile")


def main(options: argparse.Namespace) -> int:
    """Show it. 0 if everything went as it should."""
    folder = Path(options.cwd or Path.cwd()).absolute()
    _title("1. A recorded session, driven through this version again")
    is_same = _replay_shipped()
    with tempfile.TemporaryDirectory(prefix="trio-agents-demo-") as store:
        _title(f"2. A fresh agent at work in {folder}, in a process of its own")
        marker = Path(store) / "running"
        seen = _run_and_kill(store, folder, marker)
        _title("3. What the log says now")
        write(_command("sessions", "show", _SESSION, "--store", store, "--json", shown=_short_status) + "\n")
        _title("4. The session is resumed in a new process, and asked again")
        _command(
            "run", "Please list the folder once more", "--session", _SESSION, "--resume", "--store", store
        )
        _title("5. Was anything lost?")
        is_whole = trio.run(_account, store, seen)
    if not is_same or not is_whole:
        return FAILED
    write(bold("\nNothing was lost.", sys.stdout) + "\n")
    return 0


def _title(text: str) -> None:
    write(bold(f"\n{text}", sys.stdout) + "\n")


def _replay_shipped() -> bool:
    with as_file(files(__package__).joinpath("recordings", "tour.jsonl")) as path:

        async def run() -> bool:
            verdict = await replay_log(await read_log(path))
            write(as_text(verdict, path.name) + "\n")
            return verdict.is_good

        return trio.run(run)


def _arguments(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trio_agents", *arguments]


def _environment() -> dict[str, str]:
    """The demo model whatever the user has set up, and this very package."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "TRIO_AGENTS_MODEL": "demo/demo", "PYTHONPATH": path}


def _prompt(folder: Path, marker: Path) -> str:
    calls: list[tuple[str, dict[str, str]]] = [("list", {"path": "."})]
    readable = next((name for name in _LOOKED_AT if (folder / name).is_file()), None)
    if readable is not None:
        calls.append(("read", {"path": readable}))
    # The command tells its process id, so that whoever kills its host can end it as well.
    calls.append(("run", {"command": f"echo $$ > '{marker}'; sleep 60; echo done"}))
    return "\n".join(f"/{name} {json.dumps(arguments)}" for name, arguments in calls)


def _run_and_kill(store: str, folder: Path, marker: Path) -> list[dict[str, Any]]:
    """Run an agent until its last tool is at work, then kill it. Gives what it had told by then."""
    child = subprocess.Popen(  # noqa: S603 - this program itself
        _arguments(
            "run", _prompt(folder, marker), "--session", _SESSION, "--store", store, "--cwd", str(folder),
            "--tools", "list,read,run", "--json",
        ),
        stdout=subprocess.PIPE,
        env=_environment(),
    )  # fmt: skip
    assert child.stdout is not None
    seen: list[dict[str, Any]] = []
    try:
        for line in child.stdout:
            told = json.loads(line)
            seen.append(told)
            _show(told)
            if told["type"] == "tool_call" and told["name"] == "run":
                break
        _wait_for(marker)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        _end_command(marker)
    write(bold("  x the process was killed (SIGKILL) while this command was running\n", sys.stdout))
    return seen


def _show(told: dict[str, Any]) -> None:
    if told["type"] == "tool_call":
        write(f"  > {told['name']} {shorten(told['arguments'], 90)}\n")
    elif told["type"] == "tool_result":
        write(dim(f"  < {shorten(told['text'], 90)}\n", sys.stdout))
    elif told["type"] == "answer":
        write(f"  {shorten(told['text'], 94)}\n")


def _wait_for(marker: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not (marker.exists() and marker.read_text().strip()):
        if time.monotonic() > deadline:
            raise TimeoutError("the agent's command did not start")
        time.sleep(0.02)


def _end_command(marker: Path) -> None:
    """End the command that the killed process has left."""
    with contextlib.suppress(OSError, ValueError):  # it never began, or is gone
        os.killpg(int(marker.read_text()), signal.SIGKILL)


def _command(*arguments: str, shown: Any = None) -> str:
    """Run a command of ours, with its output as it is or as something makes of it."""
    if shown is None:
        sys.stdout.flush()
        subprocess.run(_arguments(*arguments), env=_environment(), stderr=subprocess.STDOUT, check=True)  # noqa: S603
        return ""
    done = subprocess.run(_arguments(*arguments), env=_environment(), stdout=subprocess.PIPE, check=True)  # noqa: S603
    return str(shown(json.loads(done.stdout)))


def _short_status(facts: dict[str, Any]) -> str:
    return f"  {facts['events']} events, {facts['messages']} messages; the session is {facts['status']}"


async def _account(store: str, seen: list[dict[str, Any]]) -> bool:
    """Look for everything that the killed process had told in what is stored."""
    stored = await JsonlStore(store).inspect(_SESSION)
    events = list(stored.events)
    results = _results(events)
    told = [entry for entry in seen if "seq" in entry]
    kept = [entry for entry in told if _is_kept(entry, events)]
    write(f"  {len(kept)} of {len(told)} events that the killed process had told are in the log\n")
    whole = len(kept) == len(told)
    for entry in seen:
        if entry["type"] == "tool_call":
            result = results.get(entry["call_id"])
            whole = whole and result is not None
            write(f"  {entry['name']}: {_fate(result)}\n")
    verdict = await JsonlStore(store).verify(_SESSION)
    write(f"  the log has {verdict.events} events, {len(verdict.problems) + len(verdict.issues)} faults\n")
    return whole and not verdict.problems and not verdict.issues


def _is_kept(entry: dict[str, Any], events: list[Event]) -> bool:
    """Whether what was told stands in the log, under its number and word for word."""
    if entry["seq"] >= len(events):
        return False
    said = JsonTranscript().line(events[entry["seq"]])
    return said == entry


def _results(events: list[Event]) -> dict[str, ToolResult]:
    return {
        getattr(event.data.message.source, "call_id", ""): event.data
        for event in events
        if type(event.data) is ToolResult
    }


def _fate(result: ToolResult | None) -> str:
    if result is None:
        return "no result"
    code = result.error.code if result.error else None
    if code == "TOOL_OUTCOME_UNKNOWN":
        return "was at work when the process died; the log says that its outcome is not known"
    return f"failed ({code})" if code else "its result is there"
