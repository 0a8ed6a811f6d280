"""A turn whose process dies at every event boundary and inside its tool, resumed and gone on with (TOOL-23, T4, T14)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

import trio_agents as ta
from tests.conftest import Sweep
from tests.lifecycle.sweeping import check_log

PROGRAM = Path(__file__).with_name("crashing.py")
ROOT = Path(__file__).parents[3]


def run(store: Path, effects: Path, at: str, effect: str, mode: str) -> int:
    """Run the program; gives its exit code."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(store), str(effects), at, effect, mode],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 9}, done.stderr.decode()
    return done.returncode


def events_of(store: Path) -> list[ta.Event]:
    """What is stored."""

    async def read() -> list[ta.Event]:
        return list((await ta.JsonlStore(store).inspect("a")).events)

    return trio.run(read)


def boundaries(tmp_path: Path) -> list[str]:
    """Every place to die at, found by a run that does not."""
    store = tmp_path / "whole"
    assert run(store, tmp_path / "whole.txt", "never", "once", "first") == 0
    return [*map(str, range(len(events_of(store)))), "before effect", "after effect"]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_crash_matrix(effect: str, tmp_path: Path, sweep: Sweep) -> None:
    """TOOL-23, PROP-6: `once` at most once, `idempotent` under the same key, nothing said not to have started that may."""
    for number, at in enumerate(sweep(boundaries(tmp_path), keep=6)):
        store, effects = tmp_path / f"s{number}", tmp_path / f"e{number}.txt"
        assert run(store, effects, at, effect, "first") == 9
        done = effects.read_text().split() if effects.exists() else []
        run(store, effects, at, effect, "again")
        keys = effects.read_text().split() if effects.exists() else []
        events = events_of(store)
        check_log(events)
        assert set(keys) <= {"call-1"}
        if effect == "once":
            # A second request may ask for another call; the same call never has its effect twice.
            assert len(keys) <= 1, f"died at {at}"
        codes = [
            e.data.error.code
            for e in events
            if e.type == "tool/result" and e.data.message.content[0].is_error
        ]
        if done:
            assert "TOOL_NOT_STARTED" not in codes, f"died at {at}"
        if at == "before effect" and effect == "once":
            assert codes == ["TOOL_OUTCOME_UNKNOWN"]
        last = [e.data.reason.kind for e in events if e.type == "turn/end"][-1]
        answers = [e.data.message.text for e in events if e.type == "assistant/message"]
        # Where the answer was in the log already, nothing is owed, and the turn stays interrupted.
        assert last == "completed" or (last == "interrupted" and answers[-1] == "done")
        assert answers.count("done") == 1
        assert [e.data.id for e in events if e.type == "user/message"] == ["go"]
        again = events_of(store)
        assert again == events
