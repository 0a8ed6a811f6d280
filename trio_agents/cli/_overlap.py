"""When the bodies of overlapping tool calls ended, as far as a log tells: it shows calls and results, not bodies. Pure.

A body that has ended frees a place at once; its result is logged when those before it are there. So a call that is
logged while all places are taken shows that some body had ended; which one does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from ..session import Event, Replace, StepEnd, ToolCall, ToolResult

_MOST: Final = 64


def ends_of_bodies(events: Sequence[Event]) -> tuple[int, dict[int, int]]:
    """How many calls ran at once, and when each may end.

    Returns:
        The number of places, and for the position of each `tool/call` the position of the event that follows the end
        of its body. The largest number of places with which all of it fits together.
    """
    runs = list(_runs(events))
    most = max((_most_in_flight(events, run) for run in runs), default=1)
    for places in range(min(most, _MOST), 0, -1):
        ends: dict[int, int] = {}
        if all(_fits(events, run, places, ends) for run in runs):
            return places, ends
    return most, {
        call: position
        for run in runs
        for call, position in zip(_calls(events, run), _results(events, run), strict=False)
    }


def _runs(events: Sequence[Event]) -> Iterable[list[int]]:
    """The positions of calls and results, cut wherever every call has its result."""
    run: list[int] = []
    open_calls = 0
    for position, event in enumerate(events):
        if type(event.data) is ToolCall:
            open_calls += 1
        elif type(event.data) is ToolResult and type(event.surface_op) is not Replace:
            open_calls -= 1
        elif type(event.data) is StepEnd and run:
            open_calls = 0
        else:
            continue
        if type(event.data) is not StepEnd:
            run.append(position)
        if open_calls <= 0 and run:
            yield run
            run, open_calls = [], 0
    if run:
        yield run


def _calls(events: Sequence[Event], run: list[int]) -> list[int]:
    return [position for position in run if type(events[position].data) is ToolCall]


def _results(events: Sequence[Event], run: list[int]) -> list[int]:
    return [position for position in run if type(events[position].data) is ToolResult]


def _most_in_flight(events: Sequence[Event], run: list[int]) -> int:
    open_calls = most = 0
    for position in run:
        open_calls += 1 if type(events[position].data) is ToolCall else -1
        most = max(most, open_calls)
    return most


def _fits(events: Sequence[Event], run: list[int], places: int, ends: dict[int, int]) -> bool:
    """Whether a run of calls could have come about with so many places; notes when its bodies ended."""
    kinds = [type(events[position].data) is ToolCall for position in run]
    found = _Schedule(kinds, places).search(0, frozenset(), 0, 0)
    if found is None:
        return False
    calls = _calls(events, run)
    ends.update((calls[call], run[index]) for call, index in found.items())
    return True


@final
class _Schedule:
    """Looks for an order in which bodies ended that explains a run. `kinds` is True for a call, False for a result."""

    def __init__(self, kinds: list[bool], places: int) -> None:
        self._kinds = kinds
        self._places = places
        self._count = sum(kinds)
        self._hopeless: set[tuple[int, frozenset[int]]] = set()

    def search(
        self, index: int, running: frozenset[int], logged: int, committed: int
    ) -> dict[int, int] | None:
        """The index at which each body had ended, from a state of affairs on; None if nothing explains it."""
        if index == len(self._kinds):
            return {}
        if (index, running) in self._hopeless:
            return None
        for now_running, ended in self._before(index, running, logged, committed):
            call = self._kinds[index]
            after = now_running | {logged} if call else now_running
            found = self.search(index + 1, after, logged + call, committed + (not call))
            if found is not None:
                return {**found, **dict.fromkeys(ended, index)}
        self._hopeless.add((index, running))
        return None

    def _before(
        self, index: int, running: frozenset[int], logged: int, committed: int
    ) -> Iterator[tuple[frozenset[int], tuple[int, ...]]]:
        """What runs directly before an event, and which body had to end for it."""
        is_full = len(running) >= self._places or logged == self._count
        is_waiting = committed < logged and committed not in running
        if self._kinds[index]:
            if is_waiting:
                return  # its result would have come first
            if not is_full:
                yield running, ()
                return
            # The first without a result cannot have ended: its result would have been logged.
            for body in sorted(running):
                if body > committed:
                    yield running - {body}, (body,)
        elif is_waiting:
            yield running, ()  # it was waiting for the one before it
        elif committed < logged and is_full:  # with a place free, a call would have come first
            yield running - {committed}, (committed,)
