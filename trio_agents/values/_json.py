"""JSON without loss: which values may enter a log, and the one encoder that writes them."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar, Final, TypeAlias, final

import msgspec

from ..errors import ValueNotJsonError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""What `json.loads` gives. Containers are plain lists and dicts, numbers are finite."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 500


def check_json(value: object) -> None:
    """Raise `ValueNotJsonError` unless `value` survives a round trip through JSON exactly.

    Refused, with the path to the fault: NaN, infinities, -0.0, integers beyond 2^53-1, keys that are no
    strings, sets, bytes, tuples, subclasses of str, int, float, list and dict, cycles (found as nesting beyond
    500). Shared references and lone surrogates are fine.
    """
    # An explicit stack: input nested deeper than the interpreter's recursion limit gets the same clear error.
    stack: list[tuple[object, str, int]] = [(value, "$", 0)]
    while stack:
        node, path, depth = stack.pop()
        kind = type(node)
        if node is None or kind is bool or kind is str:
            continue
        if kind is int:
            assert isinstance(node, int)
            if not -MAX_SAFE_INTEGER <= node <= MAX_SAFE_INTEGER:
                raise ValueNotJsonError(path, f"integer {node} is beyond 2^53-1")
        elif kind is float:
            assert isinstance(node, float)
            if not math.isfinite(node):
                raise ValueNotJsonError(path, f"{node!r} is no JSON number")
            if node == 0.0 and math.copysign(1.0, node) < 0:
                raise ValueNotJsonError(path, "-0.0 does not survive every reader")
        elif kind is list or kind is dict:
            if depth >= MAX_DEPTH:
                raise ValueNotJsonError(path[:200], f"nested deeper than {MAX_DEPTH}, or a cycle")
            if isinstance(node, list):
                stack.extend((item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node))
            elif isinstance(node, dict):
                for key, item in node.items():
                    if type(key) is not str:
                        raise ValueNotJsonError(path[:200], f"key {key!r} is no string")
                    stack.append((item, f"{path}.{key}", depth + 1))
        else:
            raise ValueNotJsonError(path[:200], f"a {kind.__name__} has no JSON form")


def dump_json(value: object) -> bytes:
    """Encode what `check_json` accepts, compactly, as UTF-8; a lone surrogate becomes its escape."""
    try:
        return _plain.encode(value)
    except UnicodeEncodeError:
        return escape_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def escape_surrogates(text: str) -> bytes:
    """UTF-8 bytes of JSON text in which each lone surrogate is written as an escape."""
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def load_json(data: bytes | str) -> JsonValue:
    """Decode any JSON text of the log format, lone surrogates and bytes that are not UTF-8 included.

    Raises:
        ValueError: not JSON, NaN or an infinity, or nested too deeply to be read.
    """
    try:
        value: JsonValue = _reader.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    return value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


_plain: Final = msgspec.json.Encoder()
_reader: Final = msgspec.json.Decoder()


@final
class FrozenJson:
    """A JSON value that cannot change: its encoded bytes. `value` decodes a fresh copy each time."""

    __slots__ = ("raw",)

    raw: bytes

    def __init__(self, raw: bytes) -> None:
        object.__setattr__(self, "raw", raw)

    @classmethod
    def of(cls, value: object) -> FrozenJson:
        """Freeze a value.

        Raises:
            ValueNotJsonError: it would not survive a round trip.
        """
        check_json(value)
        return cls(dump_json(value))

    @property
    def value(self) -> JsonValue:
        """The value, decoded afresh; changing it changes nothing here."""
        return load_json(self.raw)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"FrozenJson is immutable; cannot set {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenJson):
            return NotImplemented
        return self.raw == other.raw or self.value == other.value

    def __hash__(self) -> int:
        return hash(FrozenJson)  # equal values may be spelled differently, so only the type is sure

    def __repr__(self) -> str:
        return f"FrozenJson({self.raw!r})"

    def __copy__(self) -> FrozenJson:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> FrozenJson:
        return self


class OpenUnion:
    """Base of a family of tagged structs that others may extend: an unknown member is kept as it was.

    A family is a direct subclass that names its tag field. Members are frozen structs which inherit from the
    family and carry their tag; one more class, `foreign`, keeps what no member fits, byte for byte.
    """

    __slots__ = ()

    tag_field: ClassVar[str]
    members: ClassVar[dict[str, type[Any]]]
    foreign: ClassVar[type[Any]]

    @property
    def tag(self) -> str:
        """The value of the tag field, as it stands on the wire."""
        return str(type(self).__struct_config__.tag)  # type: ignore[attr-defined]

    @classmethod
    def decode(cls, value: object) -> Any:
        """The member that a decoded JSON object stands for.

        Raises:
            msgspec.ValidationError: not an object, or without a tag that is a non-empty string.
        """
        if type(value) is not dict:
            raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
        tag = value.get(cls.tag_field)
        if type(tag) is not str or not tag:
            raise msgspec.ValidationError(f"Expected an object with a non-empty `{cls.tag_field}`")
        member = cls.members.get(tag)
        if member is not None:
            try:
                return msgspec.convert(value, member, dec_hook=decode_hook)
            except (msgspec.ValidationError, UnicodeEncodeError):
                pass
        return cls.foreign(tag, FrozenJson(dump_json(value)))


class Foreign(OpenUnion):
    """What a member of an open family is when this version does not know it: its tag and its JSON, untouched."""

    __slots__ = ("_tag", "raw")

    def __init__(self, tag: str, raw: FrozenJson) -> None:
        self._tag = tag
        self.raw: FrozenJson = raw

    @property
    def tag(self) -> str:
        """The value of the tag field, as it stands on the wire."""
        return self._tag

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self._tag)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._tag!r}, {self.raw!r})"


def decode_hook(kind: type, value: object) -> object:
    """The `dec_hook` of every decoder in this package."""
    if kind is FrozenJson:
        return FrozenJson(dump_json(value))
    if issubclass(kind, OpenUnion):
        return kind.decode(value)
    raise NotImplementedError(f"no JSON form is defined for {kind.__qualname__}")


def encode_hook(value: object) -> object:
    """The `enc_hook` of every encoder in this package."""
    if type(value) is FrozenJson:
        return msgspec.Raw(value.raw)
    if isinstance(value, Foreign):
        return msgspec.Raw(value.raw.raw)
    if type(value) is range:
        return list(value)
    raise NotImplementedError(f"a {type(value).__qualname__} has no JSON form")
