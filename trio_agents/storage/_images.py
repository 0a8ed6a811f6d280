"""What kind of picture some bytes are, and how large: from their first bytes alone. Pure."""

from __future__ import annotations

from typing import Final, final

import attrs

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_SIZED_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE_MARKERS: Final = frozenset({0x01, *range(0xD0, 0xD9)})


@final
@attrs.frozen(kw_only=True)
class Picture:
    """A picture.

    Attributes:
        media_type: such as `image/png`.
        width: in pixels.
        height: in pixels.
    """

    media_type: str
    width: int
    height: int


def sniff(data: bytes) -> Picture | None:
    """The picture in these bytes, or None if they are none of the kinds that models take, or are cut off."""
    try:
        if data.startswith(_PNG):
            return _png(data)
        if data[:6] in {b"GIF87a", b"GIF89a"}:
            return _picture("image/gif", _little(data, 6, 2), _little(data, 8, 2))
        if data[:3] == b"\xff\xd8\xff":
            return _jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except IndexError:
        pass
    return None


def _picture(media_type: str, width: int, height: int) -> Picture | None:
    return Picture(media_type=media_type, width=width, height=height) if width > 0 and height > 0 else None


def _part(data: bytes, start: int, length: int) -> bytes:
    if start + length > len(data):
        raise IndexError(start)
    return data[start : start + length]


def _little(data: bytes, start: int, length: int) -> int:
    return int.from_bytes(_part(data, start, length), "little")


def _big(data: bytes, start: int, length: int) -> int:
    return int.from_bytes(_part(data, start, length), "big")


def _png(data: bytes) -> Picture | None:
    if data[12:16] != b"IHDR":
        return None
    return _picture("image/png", _big(data, 16, 4), _big(data, 20, 4))


def _jpeg(data: bytes) -> Picture | None:
    at = 2
    while True:
        if data[at] != 0xFF:
            return None
        while data[at] == 0xFF:  # any number of fill bytes
            at += 1
        marker = data[at]
        at += 1
        if marker in _SIZED_FRAMES:
            return _picture("image/jpeg", _big(data, at + 5, 2), _big(data, at + 3, 2))
        if marker in _BARE_MARKERS:
            continue
        if marker in {0xD9, 0xDA}:  # the picture's data, or its end, without a size before it
            return None
        at += _big(data, at, 2)


def _webp(data: bytes) -> Picture | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return _picture("image/webp", _little(data, 24, 3) + 1, _little(data, 27, 3) + 1)
    if kind == b"VP8L":
        if data[20] != 0x2F:
            return None
        bits = _little(data, 21, 4)
        return _picture("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        if _part(data, 23, 3) != b"\x9d\x01\x2a":
            return None
        return _picture("image/webp", _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF)
    return None
