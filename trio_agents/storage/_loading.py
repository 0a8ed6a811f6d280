"""Reading a whole log file: in blocks, in a thread; decoded in slices, on the loop.

A decode holds the interpreter wherever it runs, so it runs where the next task is waiting, 256 KB at a time. The
disk is only ever waited for in a thread, which a cancelled caller leaves behind: it has nothing but its own file.
"""

from __future__ import annotations

from typing import Final, final

import attrs
import trio

from ..errors import SessionCorruptError, SessionNotFoundError, SessionUnsupportedError, StorageError
from ..session._codec import decode_header
from ..session._header import SessionHeader
from ..session._history import Events
from ._files import READ, Files, storage_error
from ._lines import SLICE, LogScan
from ._places import Place, check_identity
from ._zstd import decode_frame, find_frame, frame_at, require_zstd

_BLOCK: Final = 4 * 1024 * 1024


@attrs.frozen(kw_only=True)
class LoadedLog:
    """A log as it was read.

    Attributes:
        header: its header.
        events: its events, up to the end or to its torn tail.
        size: bytes of the file.
        good_end: bytes that are part of the log; the rest is a torn tail.
        salvaged: whole lines out of a torn last frame. They are in `events`, but lie behind `good_end`.
        identity: inode and device of the file.
        updated_at: Unix milliseconds of the last change.
    """

    header: SessionHeader
    events: Events
    size: int
    good_end: int
    salvaged: bytes = b""
    identity: tuple[int, int]
    updated_at: int


async def load(files: Files, place: Place) -> LoadedLog:
    """Read, decode and check a log. Changes nothing.

    Raises:
        SessionUnsupportedError: another version, or events that are not known and not ignorable.
        SessionIdentityError: the header does not fit the place.
        SessionCorruptError: it is damaged.
        StorageError: it cannot be read.
    """
    if place.is_compressed:
        return await _load_frames(files, place)
    return await _load_plain(files, place)


# --- plain ----------------------------------------------------------------------------------------


async def _load_plain(files: Files, place: Place) -> LoadedLog:
    reader = _Reader(files, place)
    rest = b""
    header: SessionHeader | None = None
    scan: LogScan | None = None
    while block := await reader.read():
        data = rest + block if rest else block
        at = 0
        if scan is None:
            end = data.find(b"\n")
            if end < 0:
                rest = data
                continue
            header = read_header(data[:end], place)
            at = end + 1
            scan = LogScan(place.session_id, at, place.path)
        last = data.rfind(b"\n") + 1
        while at < last:
            end = data.rfind(b"\n", at, at + SLICE) + 1 or data.find(b"\n", at) + 1
            scan.feed(data[at:end])
            at = end
            await trio.lowlevel.checkpoint()
        rest = data[last:]
    if scan is None or header is None:
        raise _headless(place, rest)
    if scan.refusal is not None:
        raise scan.refusal
    return LoadedLog(
        header=header, events=scan.events(), size=reader.at, good_end=scan.good_end,
        identity=reader.identity, updated_at=reader.updated_at,
    )  # fmt: skip


def _headless(place: Place, found: bytes) -> SessionCorruptError:
    return SessionCorruptError(
        f"the log has no header: its first line, {found[:40]!r}, has no end",
        session_id=place.session_id, path=place.path, offset=0, line=1,
    )  # fmt: skip


def read_header(line: bytes, place: Place) -> SessionHeader:
    """The header in the first line, checked against the place.

    Raises:
        SessionUnsupportedError: another version; found before anything else.
        SessionCorruptError: it is no header.
        SessionIdentityError: it belongs elsewhere.
    """
    try:
        header = decode_header(line)
    except SessionUnsupportedError as exc:
        raise SessionUnsupportedError(str(exc), session_id=place.session_id, path=place.path) from exc
    except SessionCorruptError as exc:
        raise SessionCorruptError(
            str(exc), session_id=place.session_id, path=place.path, offset=0, line=1
        ) from exc
    check_identity(header, place)
    return header


@final
class _Reader:
    """Reads one file block by block, each in a thread that may be left behind."""

    def __init__(self, files: Files, place: Place) -> None:
        self._files = files
        self._place = place
        self._is_done = False
        self.at = 0
        self.identity = (0, 0)
        self.updated_at = 0

    async def read(self) -> bytes:
        """The next block, empty at the end."""
        if self._is_done:
            return b""
        try:
            data, found = await trio.to_thread.run_sync(self._read_block, self.at, abandon_on_cancel=True)
        except FileNotFoundError as exc:
            raise SessionNotFoundError(
                f"session {self._place.session_id!r} has gone",
                session_id=self._place.session_id,
                path=self._place.path,
            ) from exc
        except OSError as exc:
            raise storage_error(
                exc, "cannot read the log", session_id=self._place.session_id, path=self._place.path
            ) from exc
        identity = (found[0], found[1])
        if self.at and identity != self.identity:
            raise StorageError(
                "the log was replaced while it was read; read it again",
                session_id=self._place.session_id, path=self._place.path,
            )  # fmt: skip
        self.identity = identity
        self.updated_at = found[2] // 1_000_000
        self._is_done = len(data) < _BLOCK
        self.at += len(data)
        return data

    def _read_block(self, at: int) -> tuple[bytes, tuple[int, int, int]]:
        fd = self._files.open(self._place.path, READ, 0)
        try:
            found = self._files.fstat(fd)
            data = self._files.pread(fd, _BLOCK, at)
        finally:
            self._files.close(fd)
        return data, (found.st_ino, found.st_dev, found.st_mtime_ns)


# --- compressed -----------------------------------------------------------------------------------


async def _load_frames(files: Files, place: Place) -> LoadedLog:
    require_zstd()
    reader = _Reader(files, place)
    blocks = []
    while block := await reader.read():
        blocks.append(block)
    frames = FrameScan(place, b"".join(blocks))
    while frames.step():
        await trio.lowlevel.checkpoint()
    scan = frames.scan
    if scan is None or frames.header is None:
        raise _headless(place, b"")
    if scan.refusal is not None:
        raise scan.refusal
    return LoadedLog(
        header=frames.header, events=scan.events(), size=reader.at, good_end=frames.good_end,
        salvaged=frames.salvaged, identity=reader.identity, updated_at=reader.updated_at,
    )  # fmt: skip


@final
class FrameScan:
    """Takes the frames of a compressed log one by one.

    Inside a whole frame nothing is forgiven: it was once complete. A last frame that is cut off gives the whole
    lines that can be decoded from it.

    Attributes:
        header: the header, once the first frame is read.
        scan: the lines so far.
        good_end: the byte after the last whole frame.
        salvaged: whole lines out of a cut-off last frame.
    """

    def __init__(self, place: Place, data: bytes) -> None:
        self._place = place
        self._data = data
        self.header: SessionHeader | None = None
        self.scan: LogScan | None = None
        self.good_end = 0
        self.salvaged = b""

    def step(self) -> bool:
        """Take the next frame; False at the end.

        Raises:
            SessionCorruptError: it is damaged.
        """
        start = self.good_end
        if start >= len(self._data):
            return False
        try:
            frame = frame_at(self._data, start)
        except ValueError as exc:
            return self._tail(str(exc))
        if not frame.is_whole:
            return self._tail("the frame is cut off")
        try:
            text = decode_frame(self._data[frame.start : frame.end])
        except ValueError as exc:
            raise self._damage(f"a frame does not decode: {exc}") from exc
        if not text.endswith(b"\n"):
            raise self._damage("a whole frame ends within a line")
        if self.scan is None:
            if text.find(b"\n") != len(text) - 1:
                raise self._damage("the first frame holds more than the header")
            self.header = read_header(text[:-1], self._place)
            self.scan = LogScan(self._place.session_id, len(text), self._place.path)
        else:
            self.scan.feed(text)
            if self.scan.fault is not None:
                raise self._damage(f"a whole frame holds a bad line: {self.scan.fault.problem}")
        self.good_end = frame.end
        return True

    def _tail(self, problem: str) -> bool:
        """What lies behind the last whole frame."""
        if self.scan is None:
            raise self._damage(f"the first frame, which holds the header, is not whole: {problem}")
        if find_frame(self._data, self.good_end + 1) >= 0:
            raise self._damage(f"{problem}, and a whole frame follows")
        try:
            text = decode_frame(self._data[self.good_end :])
        except ValueError:
            text = b""
        end = text.rfind(b"\n") + 1
        before = self.scan.good_end
        if end:
            self.scan.feed(text[:end])
        self.salvaged = text[: self.scan.good_end - before]
        return False

    def _damage(self, problem: str) -> SessionCorruptError:
        seq = self.scan.next_seq - 1 if self.scan is not None else -1
        line = self.scan.lines_seen + 1 if self.scan is not None else 1
        return SessionCorruptError(
            f"the log is damaged: {problem}", session_id=self._place.session_id, path=self._place.path,
            offset=self.good_end, line=line, last_good_seq=seq,
        )  # fmt: skip
