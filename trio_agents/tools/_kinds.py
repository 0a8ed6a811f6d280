"""Looking at type annotations: what both the schema and the reading of arguments need to know of them."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import pathlib
import types
import typing
import uuid
from typing import Annotated, Final, Literal, NotRequired, Required, TypeAlias, Union

import attrs
import msgspec

Kind: TypeAlias = object
"""A type annotation: a class, a generic alias, a union, ... as `typing.get_type_hints` gives it."""

MISSING: Final[object] = msgspec.NODEFAULT

SEQUENCES: Final = frozenset(
    {
        list,
        collections.abc.Sequence,
        collections.abc.MutableSequence,
        collections.abc.Iterable,
        collections.abc.Collection,
    }
)
SETS: Final = frozenset({set, frozenset, collections.abc.Set, collections.abc.MutableSet})
MAPPINGS: Final = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
# What JSON carries as text and msgspec knows how to read.
TEXTUAL: Final[tuple[type, ...]] = (
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    decimal.Decimal,
    bytes,
)


@attrs.frozen
class Field:
    """A field of a record that a user defined.

    Attributes:
        name: its name in Python.
        key: its name in JSON.
        kind: its type annotation.
        required: whether it has no default.
        default: the default, or `MISSING` if it has none, or none that can be shown.
    """

    name: str
    key: str
    kind: Kind
    required: bool
    default: object = MISSING


def unwrap(kind: Kind) -> Kind:
    """The type behind a `NewType`, a `type` statement, `Required`, `NotRequired`, `Final` or `ReadOnly`."""
    while True:
        origin = typing.get_origin(kind)
        if isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif origin in {Required, NotRequired, typing.Final, getattr(typing, "ReadOnly", Required)}:
            kind = typing.get_args(kind)[0]
        elif hasattr(kind, "__value__") and type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def split_annotated(kind: Kind) -> tuple[Kind, tuple[msgspec.Meta, ...]]:
    """The bare type of an annotation and the `msgspec.Meta` around it, outermost last."""
    found: list[msgspec.Meta] = []
    kind = unwrap(kind)
    while typing.get_origin(kind) is Annotated:
        found = [meta for meta in typing.get_args(kind)[1:] if isinstance(meta, msgspec.Meta)] + found
        kind = unwrap(typing.get_args(kind)[0])
    return kind, tuple(found)


def is_union(kind: Kind) -> bool:
    """Whether this is `A | B`, `Union[A, B]` or `Optional[A]`."""
    return typing.get_origin(kind) in {Union, types.UnionType}


def is_literal(kind: Kind) -> bool:
    """Whether this is a `Literal[...]`."""
    return typing.get_origin(kind) is Literal


def is_enum(kind: Kind) -> bool:
    """Whether this is an enumeration."""
    return inspect.isclass(kind) and issubclass(kind, enum.Enum)


def members_of(kind: Kind) -> list[enum.Enum]:
    """The members of an enumeration."""
    return list(typing.cast("type[enum.Enum]", kind))


def is_textual(kind: Kind) -> bool:
    """Whether JSON carries this as text: dates, times, UUIDs, decimals, bytes as base64."""
    return kind in TEXTUAL


def is_path(kind: Kind) -> bool:
    """Whether this is a path of the file system."""
    return inspect.isclass(kind) and issubclass(kind, pathlib.PurePath)


def is_anything(kind: Kind) -> bool:
    """Whether this puts no bound on the value."""
    return kind is object or kind is typing.Any


def is_struct(kind: Kind) -> bool:
    """Whether this is a msgspec struct."""
    return inspect.isclass(kind) and issubclass(kind, msgspec.Struct)


def is_record(kind: Kind) -> bool:
    """Whether this is a class with named fields: attrs, dataclass, TypedDict or msgspec struct."""
    return inspect.isclass(kind) and (
        attrs.has(kind) or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or is_struct(kind)
    )


def container_of(kind: Kind) -> tuple[object, tuple[Kind, ...]]:
    """The generic class behind `list[int]`, `Mapping[str, int]`, bare `list`, ... and its arguments."""
    origin = typing.get_origin(kind)
    return (kind, ()) if origin is None else (origin, typing.get_args(kind))


def fields_of(kind: type) -> tuple[Field, ...]:
    """The fields of a record that its constructor takes.

    Raises:
        NameError: an annotation names what cannot be found.
        TypeError: an annotation is none, or the constructor takes what is no field.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    if typing.is_typeddict(kind):
        needed: frozenset[str] = getattr(kind, "__required_keys__", frozenset())
        return tuple(Field(name, name, hint, _is_needed(name, hint, needed)) for name, hint in hints.items())
    if issubclass(kind, msgspec.Struct):
        return tuple(
            Field(
                found.name,
                found.encode_name,
                hints.get(found.name, found.type),
                found.required,
                found.default,
            )
            for found in msgspec.structs.fields(kind)
        )
    if attrs.has(kind):
        return tuple(
            Field(
                found.alias,
                found.alias,
                hints.get(found.name, object),
                found.default is attrs.NOTHING,
                _shown(found.default),
            )
            for found in attrs.fields(kind)
            if found.init
        )
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise TypeError(f"{name} is an InitVar, which is no field; use a field")
    return tuple(
        Field(
            found.name,
            found.name,
            hints[found.name],
            found.default is dataclasses.MISSING and found.default_factory is dataclasses.MISSING,
            MISSING if found.default is dataclasses.MISSING else found.default,
        )
        for found in dataclasses.fields(kind)  # type: ignore[arg-type] # what is left is a dataclass
        if found.init
    )


def _is_needed(name: str, hint: Kind, required: frozenset[str]) -> bool:
    # With postponed annotations, Required and NotRequired are not seen by the class itself.
    origin = typing.get_origin(hint)
    return origin is Required or (origin is not NotRequired and name in required)


def _shown(default: object) -> object:
    return MISSING if default is attrs.NOTHING or type(default).__name__ == "Factory" else default


def tag_of(kind: type) -> tuple[str | None, object]:
    """The field that tells a struct from others, and its value in this one; (None, None) if there is none."""
    if not issubclass(kind, msgspec.Struct):
        return None, None
    config = kind.__struct_config__
    return config.tag_field, config.tag
