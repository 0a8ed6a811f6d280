"""From the values of a Python program to what JSON can say, without altering any of them. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import uuid
from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from ..errors import ValueNotJsonError
from ..values._json import MAX_DEPTH, FrozenJson

_AS_IT_IS: Final = frozenset({type(None), bool, int, str})
_AS_TEXT: Final = (datetime.date, datetime.time, uuid.UUID, decimal.Decimal, pathlib.PurePath)


def plain(value: object, path: str = "$", depth: int = 0) -> object:
    """A tree of None, bool, int, float, str, list and dict that says the same as `value`.

    Taken as they are meant: tuples as lists, enum members as their values, attrs, dataclass and msgspec objects
    as objects of their fields, dates, UUIDs, decimals and paths as text.

    Raises:
        ValueNotJsonError: NaN or an infinity, a key that is no string, a set, bytes, any other object, or
            nesting deeper than 500, which a cycle is.
    """
    if depth > MAX_DEPTH:
        raise ValueNotJsonError(path[:200], f"nested deeper than {MAX_DEPTH}, or a cycle")
    if type(value) in _AS_IT_IS:  # nearly always
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, path, depth + 1)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueNotJsonError(path, f"{value!r} is no JSON number")
        return float(value)
    if isinstance(value, dict | Mapping):
        return _object(value, path, depth)
    if isinstance(value, list | tuple):
        found: list[object] = []
        for i, item in enumerate(value):  # no comprehension: one frame for each level of nesting
            found.append(plain(item, f"{path}[{i}]", depth + 1))
        return found
    if isinstance(value, FrozenJson):
        return value.value
    if isinstance(value, _AS_TEXT):
        return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)
    fields = _fields(value)
    if fields is None:
        raise ValueNotJsonError(path[:200], f"a {type(value).__name__} has no JSON form")
    return _object(fields, path, depth)


def _object(value: Mapping[object, object], path: str, depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, item in value.items():
        if isinstance(key, enum.Enum) or not isinstance(key, str):
            raise ValueNotJsonError(path[:200], f"key {key!r} is no string")
        found[str.__str__(key)] = plain(item, f"{path}.{key}", depth + 1)
    return found


def _fields(value: object) -> dict[object, object] | None:
    """The fields of a record, or None if it is none."""
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        fields: dict[object, object] = {key: getattr(value, name) for name, key in names}
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field is not None else {}
        return tag | {key: item for key, item in fields.items() if item is not msgspec.UNSET}
    kind = type(value)
    if attrs.has(kind):
        return {field.alias: getattr(value, field.name) for field in attrs.fields(kind)}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def json_text(value: object) -> str:
    """JSON text for any value that `plain` takes. Integers may have any size, surrogates may stand alone.

    Raises:
        ValueNotJsonError: as `plain`.
    """
    try:
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError) as exc:
        if isinstance(exc, ValueNotJsonError):
            raise
        raise ValueNotJsonError("$", f"it cannot be written as JSON: {exc}") from None
