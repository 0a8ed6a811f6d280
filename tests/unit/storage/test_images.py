"""Pictures told by their first bytes."""

from __future__ import annotations

import struct

import pytest

from trio_agents.errors import MessageError
from trio_agents.storage._attachments import SIZE_LIMIT, admit, check_bytes, references
from trio_agents.storage._images import sniff

PNG = (
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\0\0\0"
)
GIF = b"GIF89a" + struct.pack("<HH", 10, 20) + b"\0\0\0"
JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    b"\xff\xff\xdb\0\4ab\xff\xc2\0\x11\x08" + struct.pack(">HH", 30, 40) + b"\3"
)
WEBP_LOSSY = b"RIFF\x20\0\0\0WEBPVP8 \x10\0\0\0\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", 50 | 0x4000, 60)
WEBP_LOSSLESS = b"RIFF\x20\0\0\0WEBPVP8L\x10\0\0\0\x2f" + struct.pack("<I", 69 | 79 << 14)
WEBP_EXTENDED = (
    b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (99).to_bytes(3, "little") + (199).to_bytes(3, "little")
)


@pytest.mark.parametrize(
    ("data", "media_type", "size"),
    [
        (PNG, "image/png", (640, 480)),
        (GIF, "image/gif", (10, 20)),
        (JPEG, "image/jpeg", (40, 30)),
        (WEBP_LOSSY, "image/webp", (50, 60)),
        (WEBP_LOSSLESS, "image/webp", (70, 80)),
        (WEBP_EXTENDED, "image/webp", (100, 200)),
    ],
    ids=["png", "gif", "jpeg", "webp lossy", "webp lossless", "webp extended"],
)
def test_pictures(data: bytes, media_type: str, size: tuple[int, int]) -> None:
    """INB-25: kind and size come from the bytes, and a cut-off picture is none."""
    picture = sniff(data)
    assert picture is not None
    assert (picture.media_type, (picture.width, picture.height)) == (media_type, size)
    for cut in range(10):
        assert sniff(data[:cut]) is None
    found = admit(data, media_type, None)
    assert (found.width, found.height) == size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        PNG.replace(b"IHDR", b"IDAT"),
        GIF[:6] + bytes(8),
        b"\xff\xd8\xff\xda\0\4ab",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff\xe0\0\4abXX",
        b"\xff\xd8\xff\x01\xff\xd0\xff\xd9",
        WEBP_LOSSLESS.replace(b"\x2f", b"\x2e"),
        WEBP_LOSSY.replace(b"\x9d\x01", b"\0\0"),
        b"RIFF\x20\0\0\0WEBPXXXX" + bytes(20),
    ],
)
def test_other_bytes_are_no_picture(data: bytes) -> None:
    assert sniff(data) is None


@pytest.mark.parametrize(
    ("data", "media_type", "name", "match"),
    [
        (b"", "text/plain", None, "at least one byte"),
        ("text", "text/plain", None, "made of bytes"),
        (b"x", "text", None, "media type"),
        (b"x", "Text/Plain", None, "media type"),
        (b"x", None, None, "media type"),
        (b"x", "text/plain", "", "name"),
        (b"x", "text/plain", "n" * 256, "name"),
        (b"x", "text/plain", 7, "name"),
        (b"x", "image/png", None, "no picture"),
        (GIF, "image/png", None, "image/gif"),
        (bytes(SIZE_LIMIT + 1), "text/plain", None, "at most"),
    ],
)
def test_what_is_not_admitted(data: bytes, media_type: str, name: str | None, match: str) -> None:
    """INB-25: bounded in size and kind."""
    with pytest.raises(MessageError, match=match):
        admit(data, media_type, name)


def test_references_are_found_wherever_they_are() -> None:
    one, two = "sha256:" + "a" * 64, "sha256:" + "0" * 64
    lines = [f'{{"x":"{one}"}}'.encode(), b"{}", f'{{"y":["{two}","{one}"]}}'.encode(), b'"sha256:abc"']
    assert references(lines) == {one, two}


def test_other_bytes_than_those_that_were_stored() -> None:
    """INB-25: content addressed, so damage is seen."""
    from trio_agents.errors import SessionCorruptError

    good = admit(b"words", "text/plain", None)
    assert check_bytes(b"words", good.attachment_id) == b"words"
    with pytest.raises(SessionCorruptError, match="not those"):
        check_bytes(b"swords", good.attachment_id)
