"""Compressed logs: frames of Zstandard, one after the other.

The first frame holds the header line alone; each later one holds what was written up to a barrier. Within an open
frame every append ends a block, so that a reader of a file without the frame's end still gets every whole line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, Protocol, final

import attrs

from ..errors import UsageError

MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FRAME_BYTES: Final = 256 * 1024
_LEVEL: Final = 3


class _Compressor(Protocol):
    def block(self, data: bytes) -> bytes: ...
    def end(self) -> bytes: ...


@attrs.frozen
class _Codec:
    compressor: Callable[[], _Compressor]
    decode: Callable[[bytes], tuple[bytes, bool]]


def require_zstd() -> None:
    """Raise `UsageError` unless compressed logs can be read and written here."""
    _codec()


@functools.cache
def _codec() -> _Codec:
    """The codec of the standard library (from Python 3.14 on) or of the `zstandard` package."""
    try:
        return _standard_codec()
    except ImportError:
        pass
    try:
        return _package_codec()
    except ImportError as exc:
        raise UsageError(
            "compressed logs need the extra `zstd` before Python 3.14: pip install 'trio-agents[zstd]'"
        ) from exc


def _standard_codec() -> _Codec:
    import importlib

    zstd = importlib.import_module("compression.zstd")
    options = {
        zstd.CompressionParameter.compression_level: _LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
        zstd.CompressionParameter.content_size_flag: 0,
    }

    class Compressor:
        def __init__(self) -> None:
            self._inner = zstd.ZstdCompressor(options=options)

        def block(self, data: bytes) -> bytes:
            compressed: bytes = self._inner.compress(data, mode=self._inner.FLUSH_BLOCK)
            return compressed

        def end(self) -> bytes:
            rest: bytes = self._inner.flush(self._inner.FLUSH_FRAME)
            return rest

    def decode(data: bytes) -> tuple[bytes, bool]:
        inner = zstd.ZstdDecompressor()
        try:
            return inner.decompress(data), inner.eof
        except zstd.ZstdError as exc:
            raise ValueError(str(exc)) from exc

    return _Codec(Compressor, decode)


def _package_codec() -> _Codec:
    import zstandard

    class Compressor:
        def __init__(self) -> None:
            options = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=False)
            self._inner = options.compressobj()

        def block(self, data: bytes) -> bytes:
            return self._inner.compress(data) + self._inner.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

        def end(self) -> bytes:
            return self._inner.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)

    def decode(data: bytes) -> tuple[bytes, bool]:
        inner = zstandard.ZstdDecompressor().decompressobj()
        try:
            return inner.decompress(data), inner.eof
        except zstandard.ZstdError as exc:
            raise ValueError(str(exc)) from exc

    return _Codec(Compressor, decode)


# --- writing --------------------------------------------------------------------------------------


@final
class FrameWriter:
    """Turns batches into the bytes to be appended. Each is kept or undone before the next is made."""

    __slots__ = ("_added", "_compressor", "_ends", "_parts", "_size")

    def __init__(self) -> None:
        require_zstd()
        self._compressor: _Compressor | None = None
        self._parts: list[bytes] = []
        self._size = 0
        # What was made last and is neither kept nor undone yet:
        self._added: bytes | None = None
        self._ends = False

    @property
    def is_open(self) -> bool:
        """Whether the last frame has no end yet."""
        return bool(self._parts)

    def whole(self, data: bytes) -> bytes:
        """A frame of its own. Only while none is open."""
        compressor = _codec().compressor()
        return compressor.block(data) + compressor.end()

    def add(self, data: bytes) -> bytes:
        """The bytes that bring this batch into the open frame, or begin one."""
        if self._compressor is None:
            self._compressor = _codec().compressor()
        self._added = data
        compressed = self._compressor.block(data)
        if self._size + len(data) >= _FRAME_BYTES:
            compressed += self.finish()
        return compressed

    def finish(self) -> bytes:
        """The bytes that end the open frame."""
        assert self._compressor is not None
        self._ends = True
        return self._compressor.end()

    def keep(self) -> None:
        """What was made last is in the file."""
        if self._added is not None:
            self._parts.append(self._added)
            self._size += len(self._added)
            self._added = None
        if self._ends:
            self._ends = False
            self._compressor = None
            self._parts.clear()
            self._size = 0

    def undo(self) -> None:
        """What was made last is not in the file: go back to the state before it.

        A compressor cannot go back, but the same parts give the same bytes again.
        """
        self._added = None
        self._ends = False
        self._compressor = None
        if self._parts:
            self._compressor = _codec().compressor()
            for part in self._parts:
                self._compressor.block(part)


# --- reading --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Frame:
    """Where a frame lies in a file, judged by its headers alone.

    Attributes:
        start: its first byte.
        end: the byte after it, or the end of the data if it is cut off.
        is_whole: whether its end is there.
    """

    start: int
    end: int
    is_whole: bool


def frame_at(data: bytes, start: int) -> Frame:
    """Measure the frame that begins here.

    Raises:
        ValueError: no frame begins here, or one of a kind that a log does not have.
    """
    end = len(data)
    cut = Frame(start=start, end=end, is_whole=False)
    magic = data[start : start + 4]
    if magic != MAGIC[: len(magic)] or not magic:
        raise ValueError("no Zstandard frame begins here")
    if end - start < 5:
        return cut
    descriptor = data[start + 4]
    if descriptor & 0x08:
        raise ValueError("a reserved bit of the frame header is set")
    at = start + 5 + _header_rest(descriptor)
    while True:
        if at + 3 > end:
            return cut
        block = int.from_bytes(data[at : at + 3], "little")
        kind = block >> 1 & 3
        if kind == 3:
            raise ValueError("a block of the reserved kind")
        at += 3 + (1 if kind == 1 else block >> 3)
        if block & 1:
            break
    at += 4 if descriptor & 0x04 else 0
    return cut if at > end else Frame(start=start, end=at, is_whole=True)


def _header_rest(descriptor: int) -> int:
    """Bytes of a frame header behind its descriptor."""
    is_single = descriptor >> 5 & 1
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    size = (is_single, 2, 4, 8)[descriptor >> 6]
    return (0 if is_single else 1) + dictionary + size


def decode_frame(data: bytes) -> bytes:
    """The content of one frame, or of as much of it as is there.

    Raises:
        ValueError: it is damaged.
        UsageError: compressed logs cannot be read here.
    """
    return _codec().decode(data)[0]


def find_frame(data: bytes, start: int) -> int:
    """Where the next whole, sound frame begins at or behind `start`, or -1."""
    at = data.find(MAGIC, start)
    while at >= 0:
        try:
            frame = frame_at(data, at)
            if frame.is_whole:
                decode_frame(data[frame.start : frame.end])
                return at
        except ValueError:
            pass
        at = data.find(MAGIC, at + 1)
    return -1
