"""Listing sessions from the heads and tails of their logs: at most 64 KiB are read of each, whatever its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from ..errors import SessionLogError, UsageError
from ..session._codec import BadLineError, parse_line
from ..session._header import SessionHeader
from ..session._packing import ROW_TYPES
from ._contract import SessionSummary
from ._files import READ, Files, storage_error
from ._loading import read_header
from ._lock import owner_of
from ._places import Place, Root
from ._views import Status
from ._zstd import MAGIC, decode_frame, frame_at

HEAD: Final = 16 * 1024
TAIL: Final = 32 * 1024
PAGE: Final = 32

_IN_TURN: Final = ROW_TYPES | {
    "step/start", "step/end", "assistant/chunk", "assistant/message", "tool/call", "tool/started",
    "tool/result", "request/header", "request/context", "llm/retry", "llm/retry-started",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class _Ends:
    """The beginning and the end of a file. `is_all` if they are the whole of it."""

    head: bytes
    tail: bytes
    is_all: bool


def summarize(files: Files, root: Root, session_id: str) -> SessionSummary | None:
    """One session as `list` shows it, or None if nothing is stored under the id. Blocks."""
    try:
        places = root.find_all(session_id)
        if not places:
            return None
        if len(places) > 1:
            paths = ", ".join(place.path for place in places)
            return _unreadable(session_id, f"stored {len(places)} times: {paths}", path=places[0].path)
    except SessionLogError as exc:
        return _unreadable(session_id, str(exc))
    place = places[0]
    try:
        return _summarize_log(files, place)
    except FileNotFoundError:
        return None  # deleted in the meantime
    except (SessionLogError, UsageError) as exc:
        return _unreadable(session_id, str(exc), place=place, files=files)
    except OSError as exc:
        return _unreadable(session_id, str(storage_error(exc, "cannot read the log")), path=place.path)


def _unreadable(
    session_id: str,
    problem: str,
    *,
    path: str | None = None,
    place: Place | None = None,
    files: Files | None = None,
) -> SessionSummary:
    size, updated_at = 0, 0
    if place is not None and files is not None:
        path = place.path
        try:
            found = files.stat(path)
            size, updated_at = found.st_size, found.st_mtime_ns // 1_000_000
        except OSError:
            pass  # the problem that is reported matters more
    header = SessionHeader(id=session_id, created_at=0)
    return SessionSummary(
        header=header, status="damaged", updated_at=updated_at, size=size, path=path, problem=problem
    )


def _summarize_log(files: Files, place: Place) -> SessionSummary:
    fd = files.open(place.path, READ, 0)
    try:
        found = files.fstat(fd)
        ends = _read_ends(files, fd, found.st_size)
    finally:
        files.close(fd)
    if place.is_compressed:
        first, head, tail, is_all = _frame_lines(ends)
    else:
        first, head, tail, is_all = _plain_lines(ends)
    header = read_header(first, place)
    status: Status = "live" if owner_of(files, place.directory) is not None else _status(tail, is_all=is_all)
    return SessionSummary(
        header=header,
        status=status,
        updated_at=found.st_mtime_ns // 1_000_000,
        size=found.st_size,
        title=_title(tail) or _title(head),
        path=place.path,
    )


def _read_ends(files: Files, fd: int, size: int) -> _Ends:
    if size <= HEAD + TAIL:
        everything = files.pread(fd, HEAD + TAIL, 0)
        return _Ends(head=everything, tail=everything, is_all=True)
    return _Ends(head=files.pread(fd, HEAD, 0), tail=files.pread(fd, TAIL, size - TAIL), is_all=False)


def _plain_lines(ends: _Ends) -> tuple[bytes, list[bytes], list[bytes], bool]:
    """The header line, whole lines of the head, whole lines of the tail, and whether that is all."""
    first, found, rest = ends.head.partition(b"\n")
    if not found:
        raise SessionLogError("the first line has no end, or is longer than a header can be")
    head = rest.split(b"\n")[:-1]
    if ends.is_all:
        return first, head, head, True
    return first, head, ends.tail.split(b"\n")[1:-1], False


def _frame_lines(ends: _Ends) -> tuple[bytes, list[bytes], list[bytes], bool]:
    """The same for a compressed log."""
    parts = list(_frames(ends.head, 0))
    if not parts or not parts[0].endswith(b"\n"):
        raise SessionLogError("the log has no whole first frame")
    first = parts[0].partition(b"\n")[0]
    head = b"".join(parts[1:]).split(b"\n")[:-1]
    if ends.is_all:
        return first, head, head, True
    start = _chain_start(ends.tail)
    tail = b"".join(_frames(ends.tail, start)).split(b"\n")[:-1] if start >= 0 else []
    return first, head, tail, False


def _frames(data: bytes, at: int) -> Iterator[bytes]:
    """The text of one frame after the other, as far as they can be read."""
    while at < len(data):
        try:
            frame = frame_at(data, at)
            yield decode_frame(data[frame.start : frame.end])
        except ValueError:
            return
        at = frame.end


def _chain_start(data: bytes) -> int:
    """The first position from which frames follow one another up to the end; -1 if there is none."""
    at = data.find(MAGIC)
    while at >= 0:
        position = at
        try:
            while position < len(data):
                position = frame_at(data, position).end
        except ValueError:
            at = data.find(MAGIC, at + 1)
            continue
        return at
    return -1


def _status(tail: list[bytes], *, is_all: bool) -> Status:
    for line in reversed(tail):
        try:
            plain = parse_line(line)
        except BadLineError:
            continue  # a torn tail, or a line that begins before what was read
        kind = plain.get("type")
        if kind == "turn/end":
            return "closed"
        if kind == "turn/start":
            return "interrupted"
        # A turn may have begun before what was read. A message that replaces others is no sign of one.
        if not is_all and kind in _IN_TURN and not isinstance(plain.get("surfaceOp"), dict):
            return "interrupted"
    # Nothing decisive within reach: one record fills all of it, and records of that size are parts of turns.
    return "closed" if is_all else "interrupted"


def _title(lines: Iterable[bytes]) -> str | None:
    for line in reversed(list(lines)):
        if b'"session/title"' not in line[:200]:
            continue
        try:
            plain = parse_line(line)
        except BadLineError:
            continue
        data = plain.get("data")
        if (
            plain.get("type") == "session/title"
            and isinstance(data, dict)
            and isinstance(data.get("title"), str)
        ):
            return str(data["title"])
    return None
