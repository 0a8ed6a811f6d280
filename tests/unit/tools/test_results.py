"""What tools return, and what becomes of it (TOOL-8, TOOL-15, field fault L6)."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import struct
import zlib
from typing import Any, NamedTuple, cast

import attrs
import msgspec
import pytest

from trio_agents.errors import FatalToolError, StorageError, ToolArgumentsError, ToolError, UsageError
from trio_agents.session._events import ToolFailure
from trio_agents.tools import Image, ToolReturn, encode_result, error_result
from trio_agents.values._json import FrozenJson
from trio_agents.values._messages import ImageBlock, TextBlock, ToolCallBlock, UserMessage


class Colour(enum.Enum):
    RED = "red"


@attrs.define
class Thing:
    x: int
    _y: object = None


@dataclasses.dataclass
class Data:
    when: datetime.date


class Record(msgspec.Struct, tag="r", rename="camel"):
    some_field: int
    unset: int | msgspec.UnsetType = msgspec.UNSET


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (Text("sub"), "sub"),
        ("\ud800", "\ud800"),
        (b"bytes \xc3\xa9", "bytes é"),
        (3, "3"),
        (2**70, str(2**70)),
        (-0.0, "-0.0"),
        (True, "true"),
        ([], "[]"),
        ([1, "a", None], '[1,"a",null]'),
        ((1, (2,)), "[1,[2]]"),
        (Pair(1, 2), "[1,2]"),
        ({"a": {"é": 1.5}}, '{"a":{"é":1.5}}'),
        (Colour.RED, '"red"'),
        (Thing(1, [Thing(2)]), '{"x":1,"y":[{"x":2,"y":null}]}'),
        (Data(datetime.date(2020, 1, 2)), '{"when":"2020-01-02"}'),
        (Record(1), '{"type":"r","someField":1}'),
        (FrozenJson.of({"a": 1}), '{"a":1}'),
        ({"s": "\ud800"}, '{"s":"\ud800"}'),
    ],
    ids=repr,
)
def test_values(value: object, text: str) -> None:
    assert encode_result(value) == ToolReturn(text)


def test_none_is_no_content() -> None:
    assert encode_result(None) == ToolReturn()
    assert encode_result(None).content == ()


def cyclic() -> object:
    value: list[object] = []
    value.append(value)
    return value


def deep(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (math.nan, "nan is no JSON number (at $)"),
        ([1, {"a": math.inf}], "inf is no JSON number (at $[1].a)"),
        ({1, 2}, "a set has no JSON form (at $)"),
        ({"a": [b"x"]}, "a bytes has no JSON form (at $.a[0])"),
        (b"\xff", "bytes that are not UTF-8 text (byte 0) (at $)"),
        ({1: 2}, "key 1 is no string (at $)"),
        ({Colour.RED: 2}, "is no string (at $)"),
        (cyclic(), "nested deeper than 500, or a cycle"),
        (deep(501), "nested deeper than 500, or a cycle"),
        (object(), "a object has no JSON form (at $)"),
        (int, "a type has no JSON form (at $)"),
        (Thing, "a type has no JSON form (at $)"),
        ([TextBlock(text="a"), math.nan], "nan is no JSON number"),
        (TextBlock(text=cast("Any", 3)), "str, not int"),
        (ToolReturn((TextBlock(text=cast("Any", 3)),)), "str, not int"),
        (Image(data=b"no picture"), "a picture must be a whole PNG, JPEG, GIF or WebP file"),
    ],
    ids=range(16),
)
def test_what_cannot_be_written_down_is_an_error_result(value: object, where: str) -> None:
    """TOOL-8, L6: one error result, and never an exception."""
    result = encode_result(value, attach=lambda _a, _b: None)
    assert result.is_error
    assert result.error is not None
    assert result.error.code == "INVALID_TOOL_OUTPUT"
    assert where in result.text


def test_nesting_up_to_the_bound() -> None:
    assert encode_result(deep(500)).text == "[" * 500 + "0" + "]" * 500


def test_blocks_and_text_together() -> None:
    block = TextBlock(text="b")
    assert encode_result(["a", block, {"c": 1}]).content == (
        TextBlock(text="a"),
        block,
        TextBlock(text='{"c":1}'),
    )


def test_a_tool_return_stays_as_it_is() -> None:
    context = UserMessage.from_text("more", id="m")
    given = ToolReturn("x", meta={"a": (1,)}, concludes=True, contexts=[context])
    assert encode_result(given) == given
    assert given.meta == FrozenJson.of({"a": [1]})
    assert given.contexts == (context,)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        given.concludes = False  # type: ignore[misc]


def test_a_tool_return_of_something_else_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="text or blocks, not int"):
        ToolReturn([cast("Any", 3)])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"is_error": "yes"}, "is_error of a ToolReturn is a bool, not str"),
        ({"concludes": 1}, "concludes of a ToolReturn is a bool, not int"),
        ({"error": "DENIED"}, "error of a ToolReturn is a ToolFailure, not str"),
        ({"contexts": ["more"]}, "the contexts of a ToolReturn are UserMessages, not str"),
    ],
)
def test_a_tool_return_with_fields_of_another_type(fields: dict[str, Any], said: str) -> None:
    """H1: refused where it is made, not where the log would."""
    with pytest.raises(UsageError, match=said):
        ToolReturn("x", **fields)
    with pytest.raises(UsageError, match="a code that are str, not 403"):
        ToolReturn.failed("x", code=cast("Any", 403))


def test_a_call_block_in_a_result_is_kept_if_it_can_be_written() -> None:
    block = ToolCallBlock(id="a", name="b", arguments="{}")
    assert encode_result(block).content == (block,)


# --- pictures -------------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    header = struct.pack(">II", width, height) + b"\x08\x00\x00\x00\x00"
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


JPEG = b"\xff\xd8\xff\xe0\x00\x04JF\xff\xff\xc4\x00\x03x\xff\xc2\x00\x11\x08\x00\x02\x00\x03\x03"
GIF = b"GIF89a\x03\x00\x02\x00"
WEBP_X = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00"
WEBP_L = b"RIFF\x00\x00\x00\x00WEBPVP8L\x05\x00\x00\x00\x2f" + ((3 - 1) | ((2 - 1) << 14)).to_bytes(
    4, "little"
)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 \x0a\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x03\x00\x02\x00"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (png(3, 2), "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP_X, "image/webp"),
        (WEBP_L, "image/webp"),
        (WEBP, "image/webp"),
    ],
    ids=["png", "jpeg", "gif", "webp-x", "webp-l", "webp"],
)
def test_pictures_are_kept_beside_the_log(data: bytes, media_type: str) -> None:
    kept = []
    result = encode_result(["look", Image(data=data, name="n")], attach=lambda a, b: kept.append((a, b)))
    text, block = result.content
    assert text == TextBlock(text="look")
    assert type(block) is ImageBlock
    attachment = block.attachment
    assert (attachment.media_type, attachment.width, attachment.height) == (media_type, 3, 2)
    assert attachment.bytes == len(data)
    assert attachment.attachment_id.startswith("sha256:")
    assert kept == [(attachment, data)]


@pytest.mark.parametrize(
    "data",
    [b"", png(3, 2)[:18], JPEG[:12], GIF[:8], WEBP[:20], WEBP_X[:26], WEBP_L[:22], b"\xff\xd8\xff\x00\x00"],
)
def test_pictures_cut_short_are_none(data: bytes) -> None:
    assert encode_result(Image(data=data), attach=lambda _a, _b: None).is_error


def test_a_picture_that_cannot_be_kept() -> None:
    def full(_attachment, _data) -> None:
        raise OSError("disk full")

    for attach in (None, full):
        result = encode_result(Image(data=png(1, 1)), attach=attach)
        assert result.is_error
        assert result.error is not None
        assert result.error.code == "INVALID_TOOL_OUTPUT"


# --- bounds ---------------------------------------------------------------------------------------


def test_long_text_is_cut_in_its_middle() -> None:
    result = encode_result("a" * 10 + "b" * 10, 9)
    assert result.text == "aaaaa\n[... 11 of 20 characters left out here ...]\nbbbb"
    assert not result.is_error


def test_exactly_at_the_limit_stays() -> None:
    assert encode_result("a" * 9, 9).text == "a" * 9
    assert encode_result("a" * 99, None).text == "a" * 99


def test_the_rest_is_spilled() -> None:
    """L6"""
    kept = []

    def spill(text: str) -> str:
        kept.append(text)
        return "spill/1.txt"

    result = encode_result("a" * 20_000_000, 10, spill=spill)
    assert kept == ["a" * 20_000_000]
    assert (
        result.text
        == "aaaaa\n[... 19999990 of 20000000 characters left out here; the whole is in spill/1.txt ...]\naaaaa"
    )


def test_a_spill_that_fails_loses_no_result() -> None:
    def spill(_text: str) -> str:
        raise StorageError("disk full")

    result = encode_result("a" * 20, 2, spill=spill)
    assert not result.is_error
    assert "could not be kept: StorageError: disk full" in result.text


def test_the_limit_holds_for_all_blocks_together() -> None:
    result = encode_result([TextBlock(text="a" * 6), TextBlock(text="b" * 6), TextBlock(text="c" * 6)], 8)
    first, second, third = (cast("TextBlock", block).text for block in result.content)
    assert first == "a" * 6
    assert second == "b\n[... 4 of 6 characters left out here ...]\nb"
    assert third == "\n[... 6 of 6 characters left out here ...]\n"


# --- errors ---------------------------------------------------------------------------------------


class Mute(ToolError):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("exc", "text", "code"),
    [
        (ToolError("no such city", code="NO_CITY"), "no such city", "NO_CITY"),
        (FatalToolError("over"), "over", "TOOL_FAILED"),
        (ToolArgumentsError("t", ["$.x: bad"]), "arguments of 't' do not fit: $.x: bad", "INVALID_ARGS"),
        (ValueError("bad"), "ValueError: bad", "TOOL_FAILED"),
        (ExceptionGroup("g", [ValueError("a"), OSError("b")]), "ExceptionGroup: g [ValueError: a | OSError: b]", "TOOL_FAILED"),
        (Mute("x"), "Mute (it cannot be printed)", "TOOL_FAILED"),
        (ToolError(""), "ToolError", "TOOL_FAILED"),
    ],
    ids=range(7),
)  # fmt: skip
def test_errors(exc: Exception, text: str, code: str) -> None:
    """TOOL-8, ERR-8"""
    result = error_result(exc)
    assert result == ToolReturn(text, is_error=True, error=ToolFailure(name=type(exc).__name__, code=code))
