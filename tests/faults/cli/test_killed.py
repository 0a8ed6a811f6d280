"""Killed and interrupted hosts: what was accepted is there, and every log loads."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Sweep
from tests.faults.cli.programs import environment
from trio_agents import JsonlStore, open_runtime
from trio_agents.models import Reply, ScriptedModel
from trio_agents.session import InboxSpliced, ToolResult, trace_issues
from trio_agents.storage import StoredSession
from trio_agents.values import TextBlock, ToolResultBlock

HERE = Path(__file__).parent


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / program), *arguments],
        stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    )  # fmt: skip


def run_until_killed(store: Path, session_id: str, delay: float) -> list[list[str]]:
    """Let the host work for a while, kill it, and give what it had told."""
    process = start("killed_host.py", str(store), session_id)
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("open"), first
    time.sleep(delay)
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    whole = rest[: rest.rfind("\n") + 1]
    return [line.split(" ") for line in whole.splitlines()]


def accepted_in(session: StoredSession) -> set[str]:
    splices = [event.data for event in session.events if type(event.data) is InboxSpliced]
    return {message.id for splice in splices for message in splice.inserted}


def results_in(session: StoredSession) -> set[tuple[str, str]]:
    found = set()
    for event in session.events:
        if type(event.data) is ToolResult and not event.data.error:
            [block] = event.data.message.content
            assert isinstance(block, ToolResultBlock)
            text = "".join(part.text for part in block.content if isinstance(part, TextBlock))
            found.add((block.tool_call_id, text.replace(" ", "_")))
    return found


async def check_resumed(store: Path, told: list[list[str]]) -> None:
    accepted = {words[1] for words in told if words[0] == "accepted"}
    results = {(words[1], words[2]) for words in told if words[0] == "result"}
    if not accepted:
        return  # it was killed before there was anything to keep
    stored = await JsonlStore(store).inspect("s")
    assert accepted <= accepted_in(stored)
    assert results <= results_in(stored)
    model = ScriptedModel(Reply.text("back"))
    async with (
        open_runtime(store=JsonlStore(store), models=[model]) as runtime,
        runtime.open_agent("s", mode="resume", model="scripted/x") as agent,
    ):
        reply = await agent.ask("are you there?")
        assert reply.text == "back"
    after = await JsonlStore(store).inspect("s")
    assert trace_issues(after.events) == []
    assert [event.seq for event in after.events] == list(range(len(after.events)))
    assert after.events[: stored.stored] == stored.events[: stored.stored]
    # A message that was accepted is at the model's or still pending, and nowhere lost.
    assert accepted <= accepted_in(after)


def interrupt_hosts(store: Path, delays: list[float]) -> None:
    """Interrupt one host after the other, each a while after it has said that it is ready."""
    process = start("interrupted_host.py", str(store), str(len(delays)))
    assert process.stdout is not None
    for number, delay in enumerate(delays):
        assert process.stdout.readline() == f"ready {number}\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == f"done {number}\n"
    assert process.stdout.read() == ""
    assert process.wait() == 0
    process.stdout.close()


async def test_a_host_killed_at_any_moment_resumes_with_all_that_was_acknowledged(
    tmp_path: Path, sweep: Sweep
) -> None:
    """PER-10, PER-13, PROP-6: SIGKILL at 50 random moments of a run with tools."""
    kinds = set()
    for case in sweep(range(50), keep=3):
        store = tmp_path / f"store{case}"
        told = run_until_killed(store, "s", random.Random(f"{sweep.random.random()}").uniform(0, 0.4))
        await check_resumed(store, told)
        kinds |= {words[0] for words in told}
    assert kinds == {"accepted", "result"}


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_host_interrupted_at_any_moment_leaves_logs_that_load(
    tmp_path: Path, sweep: Sweep, count: int
) -> None:
    """REG-13: SIGINT from outside at random moments of hosts that use plain `trio.run`."""
    interrupt_hosts(tmp_path, [sweep.random.uniform(0.001, 0.06) for _ in range(count)])
    store = JsonlStore(tmp_path)
    found = await store.list()
    assert len(found) >= count // 2
    for summary in found:
        verdict = await store.verify(summary.header.id)
        assert (verdict.problems, verdict.issues, verdict.torn) == ((), (), 0), summary.header.id
        session = await store.inspect(summary.header.id)
        assert session.status == "closed"  # the turn at work was ended and logged on the way out
        assert [event.seq for event in session.events] == list(range(len(session.events)))
