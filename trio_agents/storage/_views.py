"""What can be said of a log from its records: its state, its repair, its faults. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET

from ..errors import InternalError, SessionCorruptError, UsageError
from ..session._codec import encode_event
from ..session._events import Event
from ..session._grammar import START, after_all, trace_issues
from ..session._header import SessionHeader
from ..session._history import Events, history_of
from ..session._packing import ChunkRun, pack
from ..session._pending import fold_pending
from ..session._repair import repair
from ..session._surface import Surface
from ._contract import StoredSession
from ._lines import Record

Status: TypeAlias = Literal["live", "interrupted", "closed", "damaged"]


def seed_length(header: SessionHeader) -> int:
    """How many events a session inherited."""
    return 0 if header.seed_length is UNSET else header.seed_length


def status_of(records: Sequence[Record], *, is_live: bool) -> Status:
    """Whether somebody writes a session, or it was left in the middle of a turn, or between turns."""
    if is_live:
        return "live"
    last_turn = history_of(records).last_turn()
    return "closed" if after_all(START, last_turn).turn is None else "interrupted"


def stored_session(
    header: SessionHeader, records: Sequence[Record], *, is_live: bool, torn: int = 0, path: str | None = None
) -> StoredSession:
    """A session as `inspect` shows it: an open turn closed, unless somebody is in the middle of it.

    Raises:
        SessionCorruptError: an inbox splice does not fit.
    """
    closing = [] if is_live else repair(records, seed_length(header))
    return StoredSession(
        header=header,
        events=Events.of([*history_of(records).records, *closing]),
        stored=count_of(records),
        status=status_of(records, is_live=is_live),
        torn=torn,
        path=path,
    )


def records_of(events: Sequence[Record]) -> Sequence[Record]:
    """Some events with runs of like chunks packed; what comes packed, such as a session's own view, stays so."""
    if isinstance(events, Events):
        return events.records
    return events if any(type(event) is ChunkRun for event in events) else pack(events)


def count_of(records: Sequence[Record]) -> int:
    """How many events the records are."""
    if not records:
        return 0
    last = records[-1]
    return last.seq0 + last.count if isinstance(last, ChunkRun) else last.seq + 1


def first_misfit(header: SessionHeader, records: Sequence[Record]) -> tuple[int, str] | None:
    """The first event that is whole by itself and does not fit those before it.

    Returns:
        The index of its record and what is wrong; None for a log that fits together.
    """
    by_seq: dict[int, Event] = {}

    def event_at(seq: int) -> Event:
        return by_seq[seq]

    surface = Surface(event_at)
    for index, record in enumerate(records):
        if isinstance(record, ChunkRun):
            continue
        if record.surface_op is not UNSET:
            by_seq[record.seq] = record
        try:
            surface.check(record)
            surface.apply(record)
        except UsageError as exc:
            return index, f"event {record.seq}: {exc}"
    return _first_bad_splice(header, records)


def _first_bad_splice(header: SessionHeader, records: Sequence[Record]) -> tuple[int, str] | None:
    try:
        fold_pending(records, seed_length(header))
    except SessionCorruptError as exc:
        cause = f": {exc.__cause__}" if exc.__cause__ is not None else ""
        low, high = 0, len(records)
        # A fold fails from the bad splice on, so the longest prefix that folds ends before it.
        while low < high - 1:
            middle = (low + high) // 2
            try:
                fold_pending(records[:middle], seed_length(header))
            except SessionCorruptError:
                high = middle
            else:
                low = middle
        return high - 1, f"{exc}{cause}"
    return None


def issues_of(records: Sequence[Record]) -> tuple[str, ...]:
    """Which events break a rule of order."""
    return tuple(trace_issues(Events.of(records)))


def plain_lines(records: Sequence[Record]) -> list[bytes]:
    """The records as lines, runs unpacked."""
    lines = []
    for record in records:
        if isinstance(record, ChunkRun):
            events = record.expand()
            if len(events) != record.count:
                raise InternalError(f"a run of {record.count} chunks holds {len(events)}")
            lines += [encode_event(event) for event in events]
        else:
            lines.append(encode_event(record))
    return lines
