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

HASTY = """

async def test_it_is_told(runtime):
    async with runtime.open_agent(model="scripted/demo") as agent:
        agent.followup("Tidy up.")
"""
"""A test that ends before anything has happened."""


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
    """X10: its own test passes; one that ends too early fails, and says why."""
    ran = run_pytest(FIXTURE + HASTY, tmp_path)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in ran.stdout
    assert "FAILED test_page.py::test_it_is_told" in ran.stdout
    assert re.search(r"StrictRuntimeError: .*\n.*pending: 'Tidy up.' \(next-turn\)", ran.stdout)


def test_every_name_for_tests_has_a_place_in_the_reference() -> None:
    page = (DOCS / "reference/testing.md").read_text()
    names = [name for name in vars(testing) if not name.startswith("_") and name != "annotations"]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf":: {name}\b", page)] == []
