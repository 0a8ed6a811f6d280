"""A conversation that a real model had, on a machine of its own, comes out the same without it."""

from __future__ import annotations

from pathlib import Path

from trio_agents.cli._logs import read_log
from trio_agents.cli._replay import replay_log

RECORDING = Path(__file__).parent / "logs" / "local-model.jsonl"


async def test_it_comes_out_the_same() -> None:
    """An answer, one that was cancelled in the middle, and one as a value."""
    log = await read_log(RECORDING)
    verdict = await replay_log(log)
    assert (verdict.outcome, verdict.difference) == ("same", None)
    assert (verdict.turns, verdict.compared) == (3, verdict.events)
    ends = [event.data.reason.kind for event in log.events if event.type == "turn/end"]
    assert ends == ["completed", "aborted", "completed"]
