"""From the lines of a log to its records, and what a bad line means. Pure.

The rule about bad lines: what is followed by a whole record was once complete, so it is damage and the log is
refused; what is followed by nothing valid is the tail of a write that never came to its end, and is no part of
the log. Everything that is wrong with a whole record (an unknown type, a message without an id) is no such tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, TypeAlias, final

import attrs

from ..errors import SessionCorruptError, SessionLogError, SessionUnsupportedError, UsageError
from ..session._bulk import decode_bulk
from ..session._codec import BadLineError, parse_line
from ..session._events import Event
from ..session._history import Events
from ..session._packing import ChunkRun, decode_record, decode_row, is_row
from ..session._shapes import is_nat
from ..session._wire import Line, is_frequent

Record: TypeAlias = Event | ChunkRun
"""What one line holds."""

SLICE: Final = 256 * 1024
"""How many bytes are decoded without a checkpoint."""

_BULK: Final = 16 * 1024
"""How many bytes are tried at once: so many are decoded twice where something unusual is among them."""

_SHORT: Final = 4
"""So few lines are taken one by one."""

_REFUSALS: Final = (ValueError, UsageError, RecursionError)


@attrs.frozen(kw_only=True)
class Fault:
    """A bad line.

    Attributes:
        offset: its first byte.
        line: its number; the header is line 1.
        last_good_seq: the last event before it.
        problem: what is wrong with it.
    """

    offset: int
    line: int
    last_good_seq: int
    problem: str


@final
class LogScan:
    """Takes the lines behind the header, in order, and builds the list of records.

    Attributes:
        lines_seen: how many lines there were, the header included.
        next_seq: the number that the next event must have.
        good_end: the byte after the last good record.
        fault: the first bad line, or None.
        refusal: the first thing wrong with a whole record, or None.
    """

    __slots__ = ("_path", "_records", "_session_id", "fault", "good_end", "lines_seen", "next_seq", "refusal")

    def __init__(self, session_id: str, start: int, path: str | None = None) -> None:
        self._session_id = session_id
        self._path = path
        self.lines_seen = 1
        self._records: list[Record | Line] = []
        self.next_seq = 0
        self.good_end = start
        self.fault: Fault | None = None
        self.refusal: SessionLogError | None = None

    def events(self) -> Events:
        """What was read up to the first bad line."""
        return Events.of(self._records)

    def feed(self, text: bytes) -> None:
        """Take some more lines, whole and with their ends.

        Raises:
            SessionCorruptError: a whole record follows a bad line.
        """
        at = 0
        while at < len(text):
            end = text.rfind(b"\n", at, at + _BULK) + 1 or text.index(b"\n", at) + 1
            piece = text[at:end]
            if self.fault is not None or not self._take_all(piece):
                self._take_some(piece[:-1].split(b"\n"))
            at = end

    def _take_all(self, piece: bytes) -> bool:
        """The usual case at a stretch: nothing but frequent events. If it is not so, nothing has changed."""
        try:
            records, seq, count = decode_bulk(piece, self.next_seq)
        except _REFUSALS:
            return False
        self._records.extend(records)
        self.lines_seen += count
        self.next_seq = seq
        self.good_end += len(piece)
        return True

    def _take_some(self, lines: list[bytes]) -> None:
        """Lines among which something is unusual: what stands between is taken at a stretch all the same."""
        for is_usual, group in groupby(lines, _is_usual):
            if is_usual:
                self._take_stretch(list(group))
            else:
                self._take_each(list(group))

    def _take_stretch(self, lines: list[bytes]) -> None:
        if self.fault is not None or len(lines) < _SHORT:
            self._take_each(lines)
        elif not self._take_all(b"\n".join([*lines, b""])):
            middle = len(lines) // 2
            self._take_stretch(lines[:middle])
            self._take_stretch(lines[middle:])

    def _take_each(self, lines: list[bytes]) -> None:
        for line in lines:
            self.lines_seen += 1
            if self.fault is None:
                self._take(line)
            elif is_record(line):
                raise self.damage()

    def _take(self, line: bytes) -> None:
        seq = self.next_seq
        try:
            record = decode_record(
                line, seq=seq, session_id=self._session_id, message_id_at=self._message_id_at
            )
        except BadLineError as exc:
            self.fault = Fault(
                offset=self.good_end, line=self.lines_seen, last_good_seq=seq - 1, problem=str(exc)
            )
            if line.strip() == b"null":  # no write of anybody ever leaves this behind
                raise self.damage() from None
            return
        except (SessionCorruptError, SessionUnsupportedError) as exc:
            if self.refusal is None:
                self.refusal = self._at_this_line(exc)
            # Read on as if it had been fine: damage further on is the graver news.
            self.next_seq = seq + 1
            self.good_end += len(line) + 1
            return
        self._records.append(record)
        self.next_seq = seq + (record.count if type(record) is ChunkRun else 1)
        self.good_end += len(line) + 1

    def _at_this_line(self, exc: SessionLogError) -> SessionLogError:
        if isinstance(exc, SessionUnsupportedError):
            return SessionUnsupportedError(str(exc), session_id=self._session_id, path=self._path)
        error = SessionCorruptError(
            str(exc), session_id=self._session_id, path=self._path,
            offset=self.good_end, line=self.lines_seen, last_good_seq=self.next_seq - 1,
        )  # fmt: skip
        error.__cause__ = exc
        return error

    def _message_id_at(self, seq: int) -> str | None:
        return message_id_at(self._records, seq)

    def damage(self) -> SessionCorruptError:
        """The error for the first bad line, as damage."""
        fault = self.fault
        assert fault is not None
        return SessionCorruptError(
            f"the log is damaged: {fault.problem}", session_id=self._session_id, path=self._path,
            offset=fault.offset, line=fault.line, last_good_seq=fault.last_good_seq,
        )  # fmt: skip


def _is_usual(line: bytes) -> bool:
    """Whether the type of a line is one that is taken at a stretch, if nothing else is unusual about it."""
    return is_frequent(line) or is_row(line)


def is_record(line: bytes) -> bool:
    """Whether a line is a whole record of some number: it was complete when it was written."""
    try:
        plain = parse_line(line)
        if is_row(line):
            decode_row(line)
            return True
    except SessionLogError:
        return False
    return type(plain.get("type")) is str and is_nat(plain.get("seq")) and "data" in plain


def message_id_at(records: Sequence[Record | Line], seq: int) -> str | None:
    """The id of an earlier message. Only results of older shapes need it, so it is looked for when it is."""
    for record in records:
        if isinstance(record, Event) and record.seq == seq:
            found = getattr(getattr(record.data, "message", record.data), "id", None)
            return found if type(found) is str else None
    return None
