"""Where a session keeps its events, and the immutable view of them that everybody else gets.

The events of a log stand in one list that only grows at its end. Stream deltas of steps that are over are held as
packed runs there (their bytes, not their objects) and made into events again when somebody reads them, so memory
grows with the messages of a session and not with its chunks. What was loaded may stand there as the line that was
decoded: it becomes an event when it is first read, and stays one. A view is a length over that list: taking one
costs nothing, whatever the length of the log, and what it shows never changes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, final, overload

from ..errors import InternalError
from ._codec import MUTABLE, encode_event
from ._events import Event, Header, RequestHeader, TurnEnd, TurnStart
from ._packing import SHORTEST_RUN, ChunkRun, pack
from ._wire import LATER, Line, to_event

_BLOCK: Final = 256
"""How many events a reader takes at a time."""

_EMPTY: Final[list[Event | ChunkRun | Line]] = []
"""What every log without events shares; it stays empty."""


@final
class History:
    """The events of one log, in order. Only the session's own code has it."""

    __slots__ = ("_expanded", "_lines", "_records", "_starts", "_view", "length")

    def __init__(self, records: Iterable[Event | ChunkRun | Line] = ()) -> None:
        self._records: list[Event | ChunkRun | Line] = list(records) or _EMPTY
        # The number of each record's first event, kept only once there are runs: before, it is its index.
        self._starts: array[int] | None = None
        self.length: int = len(self._records)
        # Up to this index there may be lines among the records.
        self._lines: int = 0
        self._view: Events | None = None
        self._expanded: tuple[int, list[Event]] | None = None
        if self._records:
            self._look_through()

    def _look_through(self) -> None:
        """Learn what kinds of records there are, and keep as bytes those that could be changed."""
        kinds = set(map(type, self._records))
        if not kinds.isdisjoint(LATER):
            self._lines = len(self._records)
        if MUTABLE:
            for index, record in enumerate(self._records):
                if isinstance(record, Event) and type(record.data) in MUTABLE:
                    self._records[index] = ChunkRun(record.seq, 1, encode_event(record))
                    kinds.add(ChunkRun)
        if ChunkRun in kinds:
            self._number()

    def copy(self, stop: int) -> History:
        """Another history that begins with the first events of this one and goes on by itself."""
        if stop != self.length:
            return History(self.prefix(stop))
        twin = History()
        twin._records = self._records.copy() or _EMPTY
        twin._starts = None if self._starts is None else self._starts[:]
        twin._lines = self._lines
        twin.length = stop
        return twin

    def __len__(self) -> int:
        return self.length

    @property
    def records(self) -> Sequence[Event | ChunkRun | Line]:
        """The events, with packed runs and lines left as they are. Not to be changed."""
        return self._records

    def _at(self, index: int) -> Event | ChunkRun:
        """The record at an index; if it is a line, it becomes the event."""
        record = self._records[index]
        if isinstance(record, Line):
            record = self._records[index] = to_event(record)
        return record

    def _slice(self, start: int, stop: int) -> list[Event | ChunkRun]:
        """Some records; the lines among them become events."""
        part: list[Any] = self._records[start:stop]
        if start < self._lines:
            if not LATER.isdisjoint(map(type, part)):
                part = [to_event(record) if type(record) in LATER else record for record in part]
                self._records[start:stop] = part
            if start == 0 and stop >= self._lines:
                self._lines = 0
        return part

    def _number(self) -> None:
        starts = array("q")
        length = 0
        for record in self._records:
            starts.append(length)
            length += record.count if type(record) is ChunkRun else 1
        self._starts = starts
        self.length = length

    def append(self, event: Event) -> None:
        """Take the next event; its number is the length so far."""
        if type(event.data) in MUTABLE:
            self._append_line(event)
            return
        records = self._records
        if not records:
            records = self._records = []
        records.append(event)
        if self._starts is not None:
            self._starts.append(self.length)
        self.length += 1
        self._view = None

    def _append_line(self, event: Event) -> None:
        """Take an event whose payload could be changed: keep its line, and make it afresh for every reader."""
        if self._starts is None:
            self._starts = array("q", range(self.length))
        if not self._records:
            self._records = []
        self._records.append(ChunkRun(event.seq, 1, encode_event(event)))
        self._starts.append(self.length)
        self.length += 1
        self._view = None

    def view(self) -> Events:
        """The events so far: the same object until the next append."""
        view = self._view
        if view is None:
            view = self._view = Events(self, self.length)
        return view

    def compact(self) -> None:
        """Pack the deltas of the last step. To be called when it is over; what views show stays the same."""
        tail = self._last_step()
        loose = self._slice(tail, len(self._records))
        if len(loose) < SHORTEST_RUN:
            return
        packed = pack(loose)
        if len(packed) == len(loose):
            return
        if self._starts is None:
            self._starts = array("q", range(len(self._records)))
        first = self._starts[tail]
        del self._records[tail:], self._starts[tail:]
        for record in packed:
            self._records.append(record)
            self._starts.append(first)
            first += record.count if type(record) is ChunkRun else 1

    def _last_step(self) -> int:
        """The index of the first record behind the last start of a step."""
        for index in range(len(self._records) - 1, -1, -1):
            record = self._at(index)
            if type(record) is not ChunkRun and record.type == "step/start":
                return index + 1
        return 0

    # --- reading ----------------------------------------------------------------------------------

    def event(self, seq: int) -> Event:
        """The event with this number, which must exist."""
        if self._starts is None:
            record = self._at(seq)
        else:
            index = bisect_right(self._starts, seq) - 1
            record = self._at(index)
        if type(record) is ChunkRun:
            return self._expand(record)[seq - record.seq0]
        assert isinstance(record, Event)
        return record

    def block(self, seq: int, stop: int) -> Sequence[Event]:
        """Some events from `seq` on, at least one and none from `stop` on, for a reader in order."""
        starts = self._starts
        if starts is None:
            return self._slice(seq, min(stop, seq + _BLOCK))  # type: ignore[return-value]
        index = bisect_right(starts, seq) - 1
        record = self._at(index)
        if type(record) is ChunkRun:
            offset = seq - record.seq0
            return self._expand(record)[offset : offset + stop - seq]
        events = []
        for record in self._slice(index, index + min(stop - seq, _BLOCK)):
            if type(record) is ChunkRun:
                break
            events.append(record)
        return events

    def _expand(self, run: ChunkRun) -> list[Event]:
        if run.count == 1:
            return run.expand()  # never shared: it may be an event that its reader could change
        expanded = self._expanded
        if expanded is not None and expanded[0] == run.seq0:
            return expanded[1]
        events = run.expand()
        if len(events) != run.count:
            raise InternalError(f"a run of {run.count} chunks holds {len(events)}")
        self._expanded = (run.seq0, events)
        return events

    def open_turn(self, stop: int) -> int | None:
        """The turn that is open before event `stop`: the last turn bracket before it is its start."""
        index = stop if self._starts is None else bisect_right(self._starts, stop - 1)
        for position in range(index - 1, -1, -1):
            record = self._at(position)
            if type(record) is not ChunkRun:
                data = record.data
                if type(data) is TurnEnd:
                    return None
                if type(data) is TurnStart:
                    return data.turn
        return None

    def last_turn(self) -> list[Event | ChunkRun]:
        """The records from the last start of a turn on; all of them before the first."""
        for index in range(len(self._records) - 1, -1, -1):
            record = self._at(index)
            if type(record) is not ChunkRun and type(record.data) is TurnStart:
                return self._slice(index, len(self._records))
        return self._slice(0, len(self._records))

    def prefix(self, stop: int) -> list[Event | ChunkRun]:
        """The records up to an event, packed runs left packed where they are whole."""
        if self._starts is None:
            return self._slice(0, stop)
        records = self._slice(0, bisect_right(self._starts, stop - 1))
        if records and type(records[-1]) is ChunkRun:
            run = records.pop()
            assert isinstance(run, ChunkRun)
            records += [run] if run.seq0 + run.count <= stop else run.expand()[: stop - run.seq0]
        return records


@final
class Events(Sequence[Event]):
    """The events of a log up to some point. Immutable; later appends make a new view and leave this one alone.

    Indexing and `len` take constant time. A slice is a tuple.
    """

    __slots__ = ("_history", "_length")

    def __init__(self, history: History, length: int) -> None:
        self._history = history
        self._length = length

    @classmethod
    def of(cls, records: Iterable[Event | ChunkRun | Line]) -> Events:
        """A view of a log that is complete: its events in order, the chunk runs among them packed."""
        return History(records).view()

    @property
    def records(self) -> Sequence[Event | ChunkRun]:
        """The same with packed runs left packed, for code that only passes them on."""
        return self._history.prefix(self._length)

    def prefix(self, length: int) -> Events:
        """The first events of them, as a log of its own."""
        return Events.of(self._history.prefix(length))

    def open_turn(self, stop: int | None = None) -> int | None:
        """The number of the turn that is open before event `stop` (by default, at the end), or None."""
        return self._history.open_turn(self._length if stop is None else stop)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...

    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        length = self._length
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step == 1:
                return tuple(self._between(start, stop))
            return tuple(self._history.event(seq) for seq in range(start, stop, step))
        if index < 0:
            index += length
        if not 0 <= index < length:
            raise IndexError(f"event {index} of {length}")
        return self._history.event(index)

    def __iter__(self) -> Iterator[Event]:
        return self._between(0, self._length)

    def _between(self, start: int, stop: int) -> Iterator[Event]:
        while start < stop:
            block = self._history.block(start, stop)
            yield from block
            start += len(block)

    def __repr__(self) -> str:
        return f"<Events: {self._length}>"


def fold_header(records: Iterable[object]) -> Header | None:
    """What the next request of a log is sent with: the last `request/header`, or None before the first.

    Args:
        records: the log's events; packed runs among them are passed over.
    """
    if isinstance(records, Events):
        # The records behind it, from their end: no line is made into an event for this.
        length = len(records)
        for record in reversed(records._history.records):
            if isinstance(record, Event) and type(record.data) is RequestHeader and record.seq < length:
                return record.data.header
        return None
    header: Header | None = None
    for item in records:
        if isinstance(item, Event) and type(item.data) is RequestHeader:
            header = item.data.header
    return header


def history_of(records: Iterable[Event | ChunkRun | Line]) -> History:
    """A history of its own that begins with these events; what was loaded and not yet read stays so."""
    if isinstance(records, Events):
        return records._history.copy(len(records))
    return History(records)
