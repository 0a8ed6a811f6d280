"""What the first bytes of a picture say of it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_PNG: Final = b"\x89PNG\r\n\x1a\n"
# Start-of-frame markers: all of C0 to CF but DHT, JPG and DAC.
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})


class ImageInfo(NamedTuple):
    """Format and size of a picture."""

    media_type: str
    width: int
    height: int


def image_info(data: bytes) -> ImageInfo | None:
    """Format and size of a PNG, JPEG, GIF or WebP picture, or None if it is none of these, or is cut short."""
    if data.startswith(_PNG):
        return _sized("image/png", data[16:20], data[20:24], "big") if data[12:16] == b"IHDR" else None
    if data[:6] in {b"GIF87a", b"GIF89a"}:
        return _sized("image/gif", data[6:8], data[8:10], "little")
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _sized(media_type: str, width: bytes, height: bytes, order: str, plus: int = 0) -> ImageInfo | None:
    if not width or len(width) != len(height):
        return None
    little = order == "little"
    wide = int.from_bytes(width, "little" if little else "big") + plus
    high = int.from_bytes(height, "little" if little else "big") + plus
    return ImageInfo(media_type, wide, high)


def _jpeg(data: bytes) -> ImageInfo | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_FRAMES:
            return _sized("image/jpeg", data[at + 7 : at + 9], data[at + 5 : at + 7], "big")
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _webp(data: bytes) -> ImageInfo | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return _sized("image/webp", data[24:27], data[27:30], "little", plus=1)
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return ImageInfo("image/webp", (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
    if kind == b"VP8 " and len(data) >= 30:
        wide = int.from_bytes(data[26:28], "little") & 0x3FFF
        high = int.from_bytes(data[28:30], "little") & 0x3FFF
        return ImageInfo("image/webp", wide, high)
    return None
