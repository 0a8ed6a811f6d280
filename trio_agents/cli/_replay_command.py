"""What `trio-agents replay` shows."""

from __future__ import annotations

import argparse

import trio

from ..values import JsonValue
from ._console import write, write_json
from ._logs import find_log
from ._replay import Verdict, replay_log
from ._stores import open_store


def main(options: argparse.Namespace) -> int:
    """Replay a log and show what came of it."""

    async def run() -> Verdict:
        return await replay_log(await find_log(open_store(options.store), options.log))

    verdict = trio.run(run)
    if options.json:
        write_json(as_json(verdict))
    else:
        write(as_text(verdict, options.log) + "\n")
    return 0 if verdict.is_good else 1


def as_json(verdict: Verdict) -> JsonValue:
    """A verdict for programs."""
    difference = verdict.difference
    return {
        "outcome": verdict.outcome,
        "session": verdict.session_id,
        "events": verdict.events,
        "turns": verdict.turns,
        "compared": verdict.compared,
        "carried": verdict.carried,
        "inherited": verdict.inherited,
        "older": verdict.older,
        "difference": None
        if difference is None
        else {
            "what": difference.what,
            "recorded_seq": difference.recorded_seq,
            "replayed_seq": difference.replayed_seq,
            "recorded": difference.recorded,
            "replayed": difference.replayed,
        },
    }


def as_text(verdict: Verdict, name: str) -> str:
    """A verdict for people."""
    difference = verdict.difference
    if verdict.outcome == "nothing":
        return f"{name}: nothing to replay: the log has no turn"
    if verdict.outcome == "broken":
        assert difference is not None
        return (
            f"{name}: the recording is broken at event {difference.recorded_seq}: "
            f"{difference.what}\n  {difference.recorded}"
        )
    if difference is not None:
        return (
            f"{name}: {difference.what}\n"
            f"  recorded, event {difference.recorded_seq}: {difference.recorded}\n"
            f"  replayed, event {difference.replayed_seq}: {difference.replayed}"
        )
    turns = f"{verdict.turns} turn{'s' if verdict.turns != 1 else ''}"
    what = "the derived messages are" if verdict.older else f"{verdict.compared} events are"
    extra = f", {verdict.carried} taken over" if verdict.carried else ""
    before = f", {verdict.inherited} were there before" if verdict.inherited else ""
    return f"{name}: the same: {turns}, {what} equal{extra}{before}"
