"""From stored events to the views of a live session, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, final

from msgspec import UNSET

from ..errors import UsageError
from ._admission import admit
from ._codec import payload_class
from ._events import SURFACE_TYPES, Event, ForeignEvent, RequestContext, RequestHeader
from ._grammar import START, after, after_all, violation
from ._history import history_of
from ._ledger import Ledger
from ._packing import ChunkRun
from ._pending import ABOUT_INBOX, SPLICED, take_stored
from ._wire import INBOX_LINES, LATER

STRETCH: Final = 2000
"""How many records are replayed at a time, if others are to have their turn in between: a millisecond or two."""


def replay(ledger: Ledger, records: Iterable[Event | ChunkRun]) -> None:
    """Give a new ledger its history and every view of it; see `replay_in_stretches`."""
    for _ in replay_in_stretches(ledger, records):
        pass


def replay_in_stretches(ledger: Ledger, records: Iterable[Event | ChunkRun]) -> Iterator[None]:
    """Give a new ledger its history and every view of it; a pause after each stretch, complete only at its end.

    Bracket rules are not enforced: a log of another program that breaks them can be read.

    Raises:
        UsageError: numbers are not dense, or the surface breaks its rules.
        SessionCorruptError: an inbox splice does not fit.
    """
    ledger.history = history = history_of(records)
    views = _Views(ledger)
    stored = history.records
    for start in range(0, len(stored), STRETCH):
        if start:
            yield
        views.take(stored[start : start + STRETCH])
    views.settle()
    ledger.state = after_all(START, history.last_turn())


@final
class _Views:
    """The views of a log that is being replayed."""

    __slots__ = ("_expected", "_ledger", "_seed_length", "_shown")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seed_length: int = 0 if ledger.header.seed_length is UNSET else ledger.header.seed_length
        self._expected = 0  # the number of the next record
        self._shown: list[Event] = []  # appended to the surface since the last replacement

    def take(self, records: Iterable[Any]) -> None:
        """Move on by some records."""
        ledger, seed_length = self._ledger, self._seed_length
        pending, surface, expected = ledger.pending, ledger.surface, self._expected
        # Lines that are still lines are frequent and of exactly the present shape: the few kinds that say anything
        # to a view say it without becoming events.
        for record in records:
            kind = type(record)
            if kind is ChunkRun:
                _check_number(record.seq0, expected)
                expected += record.count
                continue
            if record.seq != expected:
                _check_number(record.seq, expected)
            expected += 1
            if kind in LATER:
                if kind in INBOX_LINES:
                    pending.take_line(record, seed_length)
                continue
            data = record.data
            kind = type(data)
            op = record.surface_op
            if op == "append":
                if record.source_event_seqs is not UNSET or record.type not in SURFACE_TYPES:
                    surface.check(record)
                self._shown.append(record)
            elif op is not UNSET:
                self._show()
                surface.check(record)
                surface.apply(record)
            if record.type == SPLICED:
                take_stored(pending, record, seed_length)
            elif kind in ABOUT_INBOX:
                if pending.is_claimed_from:
                    pending.take(record)
            elif kind is RequestHeader:
                ledger.request = data.header
            elif kind is RequestContext:
                ledger.context = data
        self._expected = expected

    def _show(self) -> None:
        self._ledger.surface.extend(self._shown)
        self._shown = []

    def settle(self) -> None:
        """All records were taken."""
        self._show()
        self._ledger.pending.settle()


def _check_number(found: int, expected: int) -> None:
    if found != expected:
        raise UsageError(f"events are numbered without gaps: {expected} expected, found {found}")


def check_prefix(records: Iterable[Event | ChunkRun]) -> Iterator[Event | ChunkRun]:
    """Pass on the events of a prefix that somebody made, each checked as an append would check it.

    Raises:
        UsageError, ValueNotJsonError: an event could not have been appended; the message names its type.
    """
    state = START
    for record in records:
        events = record.expand() if type(record) is ChunkRun else [record]
        for event in events:
            if not isinstance(event, Event):
                raise UsageError(f"a prefix is made of Events, not {type(event).__name__}")
            _check_envelope(event)
            problem = violation(state, event)
            if problem is not None:
                raise UsageError(f"{event.type} refused as event {event.seq} of a prefix: {problem}")
            state = after(state, event)
        if type(record) is ChunkRun:
            yield record
        else:
            yield admit(events[0])[0]


def _check_envelope(event: Event) -> None:
    data = event.data
    wire_type = getattr(data, "wire_type", None)
    if wire_type != event.type or not (type(data) is ForeignEvent or payload_class(event.type) is type(data)):
        raise UsageError(f"{event.type} refused: its payload is a {type(data).__name__}")
    if type(event.seq) is not int or type(event.time) is not int:
        raise UsageError(
            f"{event.type} refused: number and time are ints, not {event.seq!r} and {event.time!r}"
        )
