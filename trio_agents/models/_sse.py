"""Server-sent events out of bytes: pure, incremental, bounded."""

from __future__ import annotations

from typing import Final, final

from ..errors import ModelError

MAX_EVENT: Final = 32 * 1024 * 1024
"""Bytes of one event. A provider's largest honest event is a complete answer."""
_LF: Final = 10
_CR: Final = 13


@final
class SseDecoder:
    """Splits a byte stream into events. Lines end in LF, CR LF or CR; comments and unknown fields are skipped."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._partial: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._held = 0
        self._size = 0
        self._pending_cr = False
        self._fresh = True
        self._is_between = True

    def feed(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """Take the next bytes and give the events that they complete, as `(name, data)`; the name may be empty.

        Raises:
            ModelError: an event is larger than the bound (`MALFORMED_RESPONSE`).
        """
        if (
            self._is_between
            and piece.startswith(b"data: ")
            and piece.find(b"\n") == len(piece) - 2
            and piece[-1] == _LF
            and _CR not in piece
            and len(piece) <= self._max_event
        ):
            return [(b"", piece[6:-2])]  # one whole event of one line of data, as by far the most are
        if self._pending_cr or _CR in piece:
            piece = self._line_feeds(piece)
        if _LF not in piece:
            self._grow(len(piece))
            self._partial.append(piece)
            self._is_between = False
            return []
        first, *lines = piece.split(b"\n")
        self._partial.append(first)
        lines.insert(0, b"".join(self._partial))
        rest = lines.pop()
        self._partial = [rest] if rest else []
        self._grow(len(piece))
        events = self._lines(lines)
        self._size = len(rest) + self._held
        self._is_between = not (rest or self._data or self._name or self._pending_cr)
        return events

    def close(self) -> list[tuple[bytes, bytes]]:
        """Take the end of the stream: servers that forget the last blank line lose nothing."""
        return self._lines([b"".join(self._partial), b""])

    def _line_feeds(self, piece: bytes) -> bytes:
        """The same with each line ended by a line feed; a carriage return at the end waits for what follows it."""
        if self._pending_cr:
            piece = b"\r" + piece
        self._pending_cr = piece.endswith(b"\r")
        if self._pending_cr:
            piece = piece[:-1]
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _lines(self, lines: list[bytes]) -> list[tuple[bytes, bytes]]:
        events: list[tuple[bytes, bytes]] = []
        if self._fresh and lines:
            self._fresh = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        for line in lines:
            if not line:
                if self._data:
                    events.append((self._name, b"\n".join(self._data)))
                self._name = b""
                self._data = []
                self._held = 0
            elif line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(data)
                self._held += len(data) + 1  # an empty line takes its place, too
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
        return events

    def _grow(self, count: int) -> None:
        self._size += count
        if self._size > self._max_event:
            raise ModelError(
                f"the provider sent an event of more than {self._max_event} bytes", code="MALFORMED_RESPONSE"
            )
