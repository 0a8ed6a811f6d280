"""Do something at the k-th scheduling step of a whole run, and check what has to hold of every log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import trio
from msgspec import UNSET

from trio_agents.session import Event, InboxSpliced, trace_issues
from trio_agents.session._pending import fold_pending


class AtStep(trio.abc.Instrument):
    """Counts the scheduling steps of all tasks, and acts once after the k-th."""

    def __init__(self, k: int, act: Callable[[], object]) -> None:
        self.k = k
        self.act = act
        self.steps = 0
        self.fired = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count."""
        self.steps += 1
        if self.steps == self.k:
            self.fired = True
            self.act()


def fates(events: Iterable[Event]) -> dict[str, str]:
    """What the log says has become of every message that was ever pending: pending, shown, cancelled or claimed."""
    found: dict[str, str] = {}
    lists: dict[str, list[Any]] = {"next-turn": [], "next-step": []}
    shown: list[str] = []
    for event in events:
        data = event.data
        if type(data) is InboxSpliced:
            lane = lists[data.target]
            count = 0 if data.removed_count is UNSET else data.removed_count
            for message in lane[data.start : data.start + count]:
                found[message.id] = "claimed" if data.outcome is UNSET else str(data.outcome)
            lane[data.start : data.start + count] = data.inserted
            for message in data.inserted:
                found[message.id] = "pending"
        elif event.type == "user/message" and data.id in found:
            assert found[data.id] == "claimed"
            found[data.id] = "shown"
            shown.append(data.id)
    assert len(shown) == len(set(shown)), "a message was shown twice"
    return found


def check_log(events: Iterable[Event], accepted: Iterable[str] = (), inbox: Any = None) -> None:
    """What holds of every log whenever nothing runs (PROP-3, PROP-4)."""
    log = list(events)
    assert trace_issues(log) == []
    assert [event.seq for event in log] == list(range(len(log)))
    starts = [e.data.turn for e in log if e.type == "turn/start"]
    ends = [e.data.turn for e in log if e.type == "turn/end"]
    assert starts == ends == list(range(1, len(starts) + 1))
    calls = [e.seq for e in log if e.type == "tool/call"]
    results = [e.source_event_seqs for e in log if e.type == "tool/result"]
    # A call of which nothing was logged has a result all the same, which cites nothing.
    assert sorted(seq for cited in results if cited is not UNSET for seq in cited) == calls
    fate = fates(log)
    assert set(accepted) <= set(fate)
    assert "claimed" not in fate.values(), "a message was lost"
    if inbox is not None:
        pending = fold_pending(log)
        assert pending.next_step == inbox.next_step
        assert pending.next_turn == inbox.next_turn
        assert {id for id, what in fate.items() if what == "pending"} == {
            m.id for m in (*inbox.next_step, *inbox.next_turn)
        }
