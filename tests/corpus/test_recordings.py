"""Sessions that another program recorded come out the same when they are replayed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Sweep
from tests.corpus.recordings import (
    CORE,
    FOLDER,
    as_plain,
    expectations,
    kind_of,
    named,
    needs_recordings,
    spoil,
    write_plain,
)
from trio_agents.cli._logs import inspect_log, read_log
from trio_agents.cli._replay import replay_log
from trio_agents.cli._sessions import about
from trio_agents.errors import SessionCorruptError
from trio_agents.storage import MemoryStore

pytestmark = needs_recordings


def test_there_are_as_many_as_there_should_be() -> None:
    kinds = [kind_of(expected) for expected in expectations()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "today": 91, "older": 13, "nothing": 12, "broken": 5
    }  # fmt: skip


async def test_what_is_shown_of_each_is_what_is_expected() -> None:
    for expected in expectations():
        shown = about(await inspect_log(MemoryStore(), str(FOLDER / expected["file"])))
        found = {name: shown[name] for name in ("events", "surface", "messages", "roles", "types")}
        assert found == {name: expected[name] for name in found}, expected["file"]


async def test_todays_recordings_come_out_the_same() -> None:
    """PROP-7, HDR-1: the log, replayed through the whole runtime, gives the same log."""
    for name in named("today"):
        verdict = await replay_log(await read_log(FOLDER / name))
        assert (verdict.outcome, verdict.difference) == ("same", None), name
        assert verdict.turns >= 1
        assert verdict.compared + verdict.carried + verdict.inherited == verdict.events, name


async def test_an_older_writers_recordings_have_the_same_messages() -> None:
    for name in named("older"):
        verdict = await replay_log(await read_log(FOLDER / name))
        assert (verdict.outcome, verdict.older) == ("same", True), (name, verdict.difference)


async def test_a_recording_without_a_turn_has_nothing_to_replay() -> None:
    for name in named("nothing"):
        verdict = await replay_log(await read_log(FOLDER / name))
        assert (verdict.outcome, verdict.is_good, verdict.compared) == ("nothing", True, 0), name


async def test_a_broken_recording_names_the_first_rule_that_it_breaks() -> None:
    """LOG-16"""
    for name in named("broken"):
        verdict = await replay_log(await read_log(FOLDER / name))
        assert verdict.outcome == "broken", name
        assert verdict.difference is not None
        assert "belongs to step" in verdict.difference.what


async def test_one_event_dropped_swapped_or_altered_is_found_at_its_place(
    tmp_path: Path, sweep: Sweep
) -> None:
    rng = sweep.random
    for name in rng.sample(named("today"), 10):
        header, events = await as_plain(FOLDER / name)
        start = (await replay_log(await read_log(FOLDER / name))).inherited
        for _ in sweep(range(20), keep=3):
            what, at, spoilt = spoil(rng, events, start)
            path = tmp_path / "spoilt.jsonl"
            write_plain(path, header, spoilt)
            found = await _place(path)
            assert found is not None, f"{name}: {what} at {at} was not found"
            assert _is_near(found, at, events), f"{name}: {what} at {at} was found at {found}"


async def _place(path: Path) -> int | None:
    """The number of the event at which a spoilt recording is refused or differs."""
    try:
        verdict = await replay_log(await read_log(path))
    except SessionCorruptError as exc:
        digits = [word.strip(":,") for word in str(exc).split() if word.strip(":,").isdigit()]
        return int(digits[0])
    return None if verdict.difference is None else verdict.difference.recorded_seq


def _is_near(found: int, at: int, events: list[dict[str, Any]]) -> bool:
    """Whether it is the place, or one of the next ones at which anything is compared."""
    before = max((index for index in range(at) if events[index]["type"] in CORE), default=0)
    following = [index for index in range(at + 1, len(events)) if events[index]["type"] in CORE]
    return before <= found <= (following[1] if len(following) > 1 else len(events))


@pytest.mark.parametrize("seed", range(3))
def test_spoiling_changes_something(seed: int) -> None:
    """The test above would prove nothing if it changed nothing."""
    events = [
        {"seq": 0, "type": "turn/start", "data": {"turn": 1}},
        {"seq": 1, "type": "turn/end", "data": {"turn": 1, "reason": {"kind": "completed"}}},
    ]
    _, _, spoilt = spoil(random.Random(seed), events, 0)
    assert spoilt != events
