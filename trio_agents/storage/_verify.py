"""Reading a log to the end whatever is wrong with it, and writing a new one from its good beginning."""

from __future__ import annotations

import errno
import os
from typing import final

import attrs
import msgspec

from ..errors import SessionCorruptError, SessionUnsupportedError
from ..session._codec import BadLineError, encode_event, register_event
from ..session._events import Event, Payload
from ..session._header import SessionHeader
from ..session._packing import ChunkRun, decode_record
from ..values._ids import now_ms
from ._attachments import read
from ._contract import Verdict
from ._files import CREATE, FILE_MODE, READ, Files
from ._lines import Record, message_id_at
from ._loading import read_header
from ._places import Place
from ._tails import copy_range, replace_log
from ._views import count_of, first_misfit, issues_of
from ._zstd import FrameWriter, decode_frame, find_frame, frame_at


@final
@register_event
class SessionRepaired(Payload, msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """The log is incomplete: it was damaged, and goes on here behind what was whole.

    Attributes:
        damaged_file: the side file that has the damaged log.
        lost_bytes: how many bytes of it are not in this log.
        problem: what was wrong.
    """

    wire_type = "session/repaired"
    ignorable = True
    damaged_file: str
    lost_bytes: int
    problem: str


@attrs.frozen(kw_only=True)
class Findings:
    """A log as far as it could be read.

    Attributes:
        header: its header.
        records: the records up to the first fault.
        good: bytes of text up to there, the header line included.
        text: the text of the whole log, decompressed as far as possible.
        problems: what is wrong, in order.
        is_unsupported: whether the first fault is a required event of an unknown type.
        torn: bytes behind the last whole record, where nothing is wrong but that.
        size: bytes of the file.
    """

    header: SessionHeader
    records: list[Record]
    good: int
    text: bytes
    problems: tuple[str, ...]
    is_unsupported: bool
    torn: int
    size: int


def examine(files: Files, place: Place) -> Findings:
    """Read a log to its end and note everything that is wrong. Blocks.

    Raises:
        SessionUnsupportedError: another format version.
        SessionCorruptError: not even the header can be read.
        SessionIdentityError: the log belongs elsewhere.
        OSError: it cannot be read.
    """
    raw = read(files, place.path)
    text, frame_problems, torn_frame = _decompress(raw) if place.is_compressed else (raw, [], 0)
    end = text.find(b"\n")
    if end < 0:
        raise SessionCorruptError(
            "; ".join(["the log has no header", *frame_problems]),
            session_id=place.session_id, path=place.path, offset=0, line=1,
        )  # fmt: skip
    header = read_header(text[:end], place)
    survey = _Survey(place.session_id, end + 1)
    survey.take(text[end + 1 :])
    problems = [*survey.problems, *frame_problems]
    records, good = survey.records, survey.good
    misfit = first_misfit(header, records)
    if misfit is not None:
        index, problem = misfit
        good = survey.starts[index]
        records = records[:index]
        problems.insert(0, problem)
    return Findings(
        header=header,
        records=records,
        good=good,
        text=text,
        problems=tuple(problems),
        is_unsupported=misfit is None and survey.is_unsupported,
        torn=0 if problems else torn_frame or survey.torn,
        size=len(raw),
    )


def _decompress(raw: bytes) -> tuple[bytes, list[str], int]:
    """The text of a compressed log, what is wrong with its frames, and how many bytes a torn last one has."""
    parts: list[bytes] = []
    problems: list[str] = []
    at = 0
    while at < len(raw):
        try:
            frame = frame_at(raw, at)
        except ValueError as exc:
            following = find_frame(raw, at + 1)
            if following < 0:
                return b"".join(parts), problems, len(raw) - at
            problems.append(f"at byte {at}: {exc}; {following - at} bytes are skipped")
            at = following
            continue
        try:
            text = decode_frame(raw[frame.start : frame.end])
        except ValueError as exc:
            problems.append(f"at byte {at}: a frame does not decode: {exc}")
            text = b""
        if frame.is_whole and not text.endswith(b"\n") and text:
            problems.append(f"at byte {at}: a whole frame ends within a line")
        parts.append(text)
        if not frame.is_whole:
            return b"".join(parts), problems, len(raw) - at
        at = frame.end
    return b"".join(parts), problems, 0


@final
class _Survey:
    """Takes every line, and goes on behind a fault with the next whole record.

    Bad lines, and a record with a wrong number, are the torn tail unless a whole record follows: until then they
    are `_loose`.
    """

    def __init__(self, session_id: str, start: int) -> None:
        self._session_id = session_id
        self._offset = start
        self._line = 1
        self._next = 0
        self._loose: list[str] = []
        self.records: list[Record] = []
        self.starts: list[int] = []
        self.good = start
        self.torn = 0
        self.problems: list[str] = []
        self.is_unsupported = False

    def take(self, text: bytes) -> None:
        """The lines behind the header; the last may have no end."""
        lines = text.split(b"\n")
        rest = lines.pop()
        for line in lines:
            self._line += 1
            self._take_line(line)
            self._offset += len(line) + 1
        self.torn = sum(len(line) + 1 for line in lines[len(lines) - len(self._loose) :]) + len(rest)

    def _take_line(self, line: bytes) -> None:
        try:
            record = decode_record(line, session_id=self._session_id, message_id_at=self._message_id_at)
        except BadLineError as exc:
            self._loose.append(self._sentence(str(exc)))
            if line.strip() == b"null":
                self._settle()
        except (SessionCorruptError, SessionUnsupportedError) as exc:
            self._settle()
            self.is_unsupported = isinstance(exc, SessionUnsupportedError) and not self.problems
            self.problems.append(self._sentence(str(exc)))
            self._next += 1
        else:
            self._take_record(record, line)

    def _take_record(self, record: Record, line: bytes) -> None:
        seq, count = (record.seq0, record.count) if isinstance(record, ChunkRun) else (record.seq, 1)
        was_sound = not self._loose
        self._settle()
        if seq != self._next:
            gap = self._sentence(f"event {self._next} expected, found {seq}")
            (self._loose if was_sound else self.problems).append(gap)
        elif not self.problems:
            self.records.append(record)
            self.starts.append(self._offset)
            self.good = self._offset + len(line) + 1
        self._next = seq + count

    def _settle(self) -> None:
        """What was loose is followed by a whole record: it is damage."""
        self.problems += self._loose
        self._loose = []

    def _sentence(self, problem: str) -> str:
        return f"line {self._line} at byte {self._offset}: {problem}"

    def _message_id_at(self, seq: int) -> str | None:
        return message_id_at(self.records, seq)


def verdict_of(place: Place, found: Findings, *, kept_aside: str | None = None) -> Verdict:
    """What an examination comes to."""
    return Verdict(
        session_id=place.session_id,
        events=count_of(found.records),
        problems=found.problems,
        issues=issues_of(found.records),
        torn=found.torn,
        path=place.path,
        kept_aside=kept_aside,
    )


def mend(files: Files, place: Place, found: Findings) -> str:
    """Put a new log in the place of a damaged one, which stays beside it; gives its path. Blocks; lock held.

    Raises:
        OSError: the system refuses; the log is as it was.
    """
    aside = _keep_damaged(files, place, found.size)
    marker = _marker(found, aside)
    if place.is_compressed:
        frames = FrameWriter()
        end = found.text.find(b"\n") + 1
        new = frames.whole(found.text[:end]) + frames.whole(found.text[end : found.good] + marker)
        replace_log(files, place, 0, new)
    else:
        replace_log(files, place, found.good, marker)
    return aside


def _marker(found: Findings, aside: str) -> bytes:
    lost = found.size if len(found.text) != found.size else found.size - found.good
    payload = SessionRepaired(
        damaged_file=aside.rpartition("/")[2], lost_bytes=lost, problem=found.problems[0][:500]
    )
    event = Event(
        type=payload.wire_type, seq=count_of(found.records), time=now_ms(), data=payload, ignorable=True
    )
    return encode_event(event) + b"\n"


def _keep_damaged(files: Files, place: Place, size: int) -> str:
    suffix = ".jsonl.zstd" if place.is_compressed else ".jsonl"
    for number in range(1, 1000):
        path = f"{place.directory}/damaged-{number}{suffix}"
        try:
            files.link(place.path, path)
        except FileExistsError:
            continue
        except OSError as exc:
            if exc.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
                raise
            _copy(files, place.path, path, size)
        return path
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{place.directory}/damaged-*")


def _copy(files: Files, source_path: str, target_path: str, size: int) -> None:
    source = files.open(source_path, READ, 0)
    try:
        target = files.open(target_path, CREATE, FILE_MODE)
        try:
            copy_range(files, source, target, 0, size)
            files.fsync(target)
        finally:
            files.close(target)
    finally:
        files.close(source)
