"""Signals and pipes: what a shell user expects, and a log that is closed."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import trio

from tests.faults.cli.programs import command, complaints, environment, run_cli, start_cli
from trio_agents.session import TurnEnd, open_log, trace_issues
from trio_agents.storage import JsonlStore, StoredSession
from trio_agents.values import Aborted, Message


def until_running(process: subprocess.Popen[str], marker: Path) -> list[dict[str, object]]:
    """Read what the program tells until its command is at work."""
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        told.append(json.loads(line))
        if told[-1]["type"] == "tool_call":
            break
    while not marker.exists():
        time.sleep(0.01)
        assert process.poll() is None
    return told


def start_command(tmp_path: Path, script: str) -> tuple[subprocess.Popen[str], Path]:
    marker = tmp_path / "running"
    prompt = "/run " + json.dumps({"command": f"touch {marker}; {script}"})
    store = tmp_path / "store"
    return start_cli(
        "run", prompt, "--store", store, "--session", "s", "--tools", "run", "--json", cwd=tmp_path
    ), marker


async def stored(store: Path) -> StoredSession:
    return await JsonlStore(store).inspect("s")


def last_end(session: StoredSession) -> tuple[str, str]:
    [*_, end] = [event.data.reason for event in session.events if type(event.data) is TurnEnd]
    assert isinstance(end, Aborted)
    return end.kind, end.reason.kind


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_stops_the_turn_and_closes_the_log(
    tmp_path: Path, number: signal.Signals
) -> None:
    """CAN-10, TOOL-10: the turn ends aborted, its call has a result, and what was said is kept."""
    process, marker = start_command(tmp_path, "sleep 30")
    until_running(process, marker)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert complaints(err) == []
    assert json.loads(out.splitlines()[-1])["end"] == "aborted"
    session = await stored(tmp_path / "store")
    assert (session.status, last_end(session)) == ("closed", ("aborted", "user"))
    assert [message.role for message in messages(session)] == ["user", "assistant", "user"]
    assert trace_issues(session.events) == []


def messages(session: StoredSession) -> list[Message]:
    live, _ = open_log(session.header, session.events, loaded=True)
    return live.messages()


async def test_the_second_signal_ends_at_once(tmp_path: Path) -> None:
    """The command ignores TERM, so the first signal alone would take its grace."""
    process, marker = start_command(tmp_path, "trap '' TERM; sleep 30; sleep 30")
    until_running(process, marker)
    process.send_signal(signal.SIGINT)
    await trio.sleep(0.3)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - began < 1.5
    session = await stored(tmp_path / "store")
    assert trace_issues(session.events) == []


def test_a_reader_that_leaves_ends_the_run_quietly(tmp_path: Path) -> None:
    shell = " ".join(f"'{part}'" for part in command("run", "hello", "--store", tmp_path))
    done = subprocess.run(
        ["bash", "-c", f"{shell} | head -c 5; echo code ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, env=environment(), timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("I am ")
    assert done.stdout.endswith(("code 141\n", "code 0\n"))  # it may have written everything before
    assert complaints(done.stderr) == []


async def test_answers_go_to_stdout_and_everything_else_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    done = await run_cli("run", "-", "--store", tmp_path / "store", input="Read notes.txt\n", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("I am the demo model: a small program, no language model.")
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("session ")
    assert "session.jsonl" in lines[0]
    assert "no language model" in lines[1]
    assert [line[:2] for line in lines[2:]] == ["> ", "< "]


async def test_a_stored_session_goes_on_in_a_new_process(tmp_path: Path) -> None:
    """PUB-14, HDR-2: numbers go on, and the folder of the session is where its tools work."""
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    store = tmp_path / "store"
    await run_cli("run", "hello", "--store", store, "--session", "s", cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = await run_cli("run", "Read notes.txt", "--store", store, "--resume", "--json", cwd=elsewhere)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told[0]["session"] == "s"
    assert [(line["turn"], line["is_error"]) for line in told if line["type"] == "tool_result"] == [
        (2, False)
    ]
    shown = json.loads((await run_cli("sessions", "show", "s", "--store", store, "--json")).stdout)
    assert shown["turns"] == [{"turn": 1, "end": "completed"}, {"turn": 2, "end": "completed"}]
    assert (shown["status"], shown["types"]["session/end-seed"]) == ("closed", 1)
    assert (await run_cli("replay", "s", "--store", store)).returncode == 0


async def test_the_demo_shows_that_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A folder\n")
    done = await run_cli("demo", cwd=tmp_path)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert "tour.jsonl: the same" in done.stdout
    assert done.stdout.endswith("Nothing was lost.\n")


async def test_help_and_version_are_there() -> None:
    done = await run_cli("--help")
    assert done.returncode == 0
    assert {"run", "sessions", "replay", "demo"} <= set(done.stdout.split())
    assert (await run_cli("--version")).stdout.startswith("trio-agents ")
