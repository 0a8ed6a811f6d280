"""The fixture of the page on testing is used as it stands there; and each name for tests is in the reference."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.generated import DOCS
from trio_agents import testing

FIXTURE = next(
    block
    for block in re.findall(r"^```python\n(.*?)^```", (DOCS / "howto/testing.md").read_text(), re.DOTALL | re.MULTILINE)
    if "@pytest.fixture" in block
)  # fmt: skip

USERS = """
import trio
import trio.testing
import trio_agents as ta

async def hang(told, proceed):
    await trio.sleep_forever()

async def test_pending(runtime):
    async with runtime.open_agent("a", model="scripted/demo") as agent:
        agent.followup("Tidy up.")

async def test_child(runtime):
    async with runtime.open_agent("a", model="scripted/demo") as agent:
        await agent.scope.agents.create("b")

async def test_failed(runtime):
    async with runtime.open_agent("a", model="nowhere/demo") as agent:
        agent.followup("Tidy up.")
        await agent.when_idle()

async def test_running(runtime):
    async with runtime.open_agent("a", model="scripted/demo") as agent:
        agent.scope.on(ta.BeforeRequest, hang)
        agent.followup("Tidy up.")
        await trio.testing.wait_all_tasks_blocked()

async def test_cancellation_inside(runtime, autojump_clock):
    async with runtime.open_agent("a", model="scripted/demo") as agent:
        agent.scope.on(ta.BeforeRequest, hang)
        with trio.move_on_after(5) as scope:
            await agent.ask("Tidy up.")
        assert scope.cancelled_caught
"""
"""Tests that use the fixture: four leave something behind, and would be green without it."""

TOLD = {
    "test_pending": "agent 'a' ended while this was pending: 'Tidy up.' (next-turn)",
    "test_child": "agent 'b', a child of agent 'a', was alive when its parent was ended",
    "test_failed": "turn 1 of agent 'a' failed and nobody looked at it",
    "test_running": "turn 1 of agent 'a' was still at work when the agent was ended",
}


def run_pytest(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a file of tests as a user of pytest-trio does."""
    (folder / "test_page.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", "-p", "no:cacheprovider", "-o", "trio_mode=true"]  # fmt: skip
    return subprocess.run(
        [*command, "-W", "error", "--rootdir", str(folder), "test_page.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_the_fixture_of_the_page(tmp_path: Path) -> None:
    """X10: its own test passes; each that leaves something behind fails, and says what."""
    ran = run_pytest(FIXTURE + USERS, tmp_path)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "4 failed, 2 passed" in ran.stdout
    parts = dict(re.findall(r"^_+ (test_\w+) _+$(.*?)(?=^_{3}|^={3})", ran.stdout, re.DOTALL | re.MULTILINE))
    assert parts.keys() == TOLD.keys()
    for name, part in parts.items():
        assert "StrictRuntimeError: the runtime was left with something behind:" in part
        assert [other for other, told in TOLD.items() if f"- {told}" in part] == [name]


def test_every_name_for_tests_has_a_place_in_the_reference() -> None:
    page = (DOCS / "reference/testing.md").read_text()
    names = [name for name in vars(testing) if not name.startswith("_") and name != "annotations"]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf":: {name}\b", page)] == []
