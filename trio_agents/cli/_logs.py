"""Finding the log that a user means: a file anywhere, or a session of a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from ..errors import SessionCorruptError, SessionLogError, SessionNotFoundError, SessionUnsupportedError
from ..session import Event, Events, SessionHeader, decode_header
from ..storage import SessionStore, StoredSession
from ..storage._files import storage_error
from ..storage._layout import project_segment
from ..storage._lines import SLICE, LogScan, Record
from ..storage._loading import FrameScan
from ..storage._places import Place
from ..storage._views import first_misfit, stored_session
from ..storage._zstd import MAGIC, decode_frame, frame_at
from ..values import describe


@attrs.frozen(kw_only=True)
class Log:
    """A log as it is stored, without the closers that a reader would add to an open turn.

    Attributes:
        header: its header.
        events: its events.
        path: where it lies, or None.
    """

    header: SessionHeader
    events: Events
    path: str | None


async def read_log(path: str | os.PathLike[str]) -> Log:
    """Read the log in a file, wherever that lies and whatever it is called.

    Raises:
        SessionNotFoundError: there is no such file.
        SessionCorruptError, SessionUnsupportedError, StorageError: it is not a log that can be used.
    """
    header, records, _ = await _read(Path(path))
    return Log(header=header, events=Events.of(records), path=str(path))


async def find_log(store: SessionStore, id_or_file: str) -> Log:
    """The log in a file of that name, or else of the session with that id.

    Raises:
        SessionLogError: as `read_log` and `SessionStore.inspect`.
    """
    if await _is_file(id_or_file):
        return await read_log(id_or_file)
    stored = await _inspect(store, id_or_file)
    return Log(header=stored.header, events=stored.events.prefix(stored.stored), path=stored.path)


async def inspect_log(store: SessionStore, id_or_file: str) -> StoredSession:
    """A stored session as `SessionStore.inspect` shows it, from a file of that name or from the store.

    Raises:
        SessionLogError: as `find_log`.
    """
    if not await _is_file(id_or_file):
        return await _inspect(store, id_or_file)
    header, records, torn = await _read(Path(id_or_file))
    return stored_session(header, records, is_live=False, torn=torn, path=id_or_file)


async def _is_file(name: str) -> bool:
    return await trio.to_thread.run_sync(os.path.isfile, name)


async def _inspect(store: SessionStore, session_id: str) -> StoredSession:
    try:
        return await store.inspect(session_id)
    except SessionNotFoundError as exc:
        if os.sep in session_id or session_id.endswith(".jsonl"):
            raise SessionNotFoundError(f"there is no file {session_id!r}", session_id=None) from exc
        raise


async def _read(path: Path) -> tuple[SessionHeader, Sequence[Record], int]:
    """Header, records, and how many bytes behind them are a torn tail."""
    try:
        data = await trio.to_thread.run_sync(path.read_bytes)
    except FileNotFoundError as exc:
        raise SessionNotFoundError("there is no such file", path=path) from exc
    except OSError as exc:
        raise storage_error(exc, "cannot read the log", path=str(path)) from exc
    header, scan, good_end = await (_frames if data.startswith(MAGIC) else _lines)(path, data)
    if scan.refusal is not None:
        raise scan.refusal
    records = scan.events().records
    misfit = first_misfit(header, records)
    if misfit is not None:
        raise SessionCorruptError(f"the log is damaged: {misfit[1]}", session_id=header.id, path=path)
    return header, records, len(data) - good_end


async def _lines(path: Path, data: bytes) -> tuple[SessionHeader, LogScan, int]:
    line, found, _ = data.partition(b"\n")
    if not found:
        raise SessionCorruptError("this is no session log: its first line has no end", path=path)
    header = _header(path, line)
    at = len(line) + 1
    scan = LogScan(header.id, at, str(path))
    last = data.rfind(b"\n") + 1
    while at < last:
        end = data.rfind(b"\n", at, at + SLICE) + 1 or data.find(b"\n", at) + 1
        scan.feed(data[at:end])
        at = end
        await trio.lowlevel.checkpoint()
    return header, scan, scan.good_end


async def _frames(path: Path, data: bytes) -> tuple[SessionHeader, LogScan, int]:
    try:
        frame = frame_at(data, 0)
        header = _header(path, decode_frame(data[frame.start : frame.end]).rstrip(b"\n"))
    except ValueError as exc:
        raise SessionCorruptError(
            f"this is no session log: its first frame does not decode: {describe(exc)}", path=path
        ) from exc
    cwd = header.cwd if isinstance(header.cwd, str) else None
    place = Place(
        session_id=header.id, project=project_segment(cwd), directory=str(path.parent), path=str(path)
    )
    frames = FrameScan(place, data)
    while frames.step():
        await trio.lowlevel.checkpoint()
    assert frames.scan is not None
    return header, frames.scan, frames.good_end


def _header(path: Path, line: bytes) -> SessionHeader:
    try:
        return decode_header(line)
    except SessionUnsupportedError as exc:
        raise SessionUnsupportedError(str(exc), path=path) from exc
    except SessionLogError as exc:
        raise SessionCorruptError(f"this is no session log: {exc}", path=path) from exc


def plain_events(log: Log) -> list[Event]:
    """All events of a log, runs of chunks unpacked."""
    return list(log.events)
