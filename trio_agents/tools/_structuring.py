"""JSON values as values of a user's types, strictly, and every fault with the path to it.

cattrs dispatches and collects; the hooks here are strict where its own would coerce, and say what they found.
"""

from __future__ import annotations

import contextvars
import decimal
import functools
import json
import math
import pathlib
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ..values._describe import printed
from ._kinds import (
    MAPPINGS,
    SEQUENCES,
    SETS,
    Kind,
    container_of,
    fields_of,
    is_anything,
    is_enum,
    is_literal,
    is_path,
    is_record,
    is_textual,
    is_union,
    members_of,
    split_annotated,
    tag_of,
)
from ._schema import name_of

if TYPE_CHECKING:  # cattrs takes half as long to import as all of Trio: see `converter_of_tools`
    import cattrs

Hook: TypeAlias = Callable[[object, object], object]

_SHOWN: Final = 60


class Fault(ValueError):
    """One thing that does not fit; the text says what was found and what would be right."""


class _Misfit(ValueError):
    """What a union found wrong with an array or object, as often as that is asked."""

    def __init__(self, faults: list[str], *, is_near: bool) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.is_near = is_near


# What unions have made of the arrays and objects of the value at hand, by identity: an inner one is asked for by every
# member of every union around it, which would double the work with each level of nesting.
_known: Final = contextvars.ContextVar[dict[tuple[int, int], object]]("known")


def structure_value(value: object, kind: Kind) -> object:
    """A JSON value as a value of some type, without coercion.

    Raises:
        Exception: it does not fit; `list_faults` takes the exception apart.
    """
    token = _known.set({})
    try:
        return converter_of_tools().structure(value, _type(kind))
    finally:
        _known.reset(token)


def list_faults(exc: BaseException, path: str = "$") -> list[str]:
    """Every fault in an exception out of `structure_value`, as sentences that begin with their path."""
    return list(_faults(exc, path))


def _faults(exc: BaseException, path: str) -> Iterator[str]:
    import cattrs.errors as ce

    if isinstance(exc, ce.ClassValidationError):
        members, others = exc.group_exceptions()
        for inner, field in members:
            yield from _faults(inner, f"{path}.{field.name}")
        for other in others:
            yield from _faults(other, path)
    elif isinstance(exc, ce.IterableValidationError):
        items, others = exc.group_exceptions()
        for inner, item in items:
            step = f".{item.index}" if isinstance(item.index, str) else f"[{item.index}]"
            yield from _faults(inner, f"{path}{step}")
        for other in others:
            yield from _faults(other, path)
    elif isinstance(exc, ExceptionGroup):
        for member in exc.exceptions:
            yield from _faults(member, path)
    elif isinstance(exc, _Misfit):
        yield from (f"{path}{fault}" for fault in exc.faults)
    else:
        yield f"{path}: {printed(exc) or type(exc).__name__}"


@functools.cache
def converter_of_tools() -> cattrs.Converter:
    """The one converter. Its first use imports cattrs, which had better not happen while an agent runs."""
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    # These go before all predicates, and hold for subclasses too, of which only enumerations get this far.
    for kind, hook in _SCALARS.items():
        converter.register_structure_hook(kind, _or_enum(hook))
    # Of these the last one registered is asked first.
    factories: list[tuple[Callable[[Kind], bool], Callable[[Kind, cattrs.Converter], Hook]]] = [
        (_is_container, _container_hook),
        (is_record, _record_hook),
        (is_anything, lambda _kind, _converter: _as_it_is),
        (is_textual, lambda _kind, _converter: _textual),
        (is_path, lambda _kind, _converter: _path),
        (is_enum, lambda kind, _converter: _enum_hook(kind)),
        (is_literal, lambda kind, _converter: _choice_hook({_key(v): v for v in typing.get_args(kind)})),
        (is_union, _union_hook),
        (_is_bounded, _bounded_hook),
    ]
    for predicate, factory in factories:
        converter.register_structure_hook_factory(predicate, factory)
    return converter


def _type(kind: Kind) -> type[object]:
    """For signatures that know classes only, though any annotation will do; `list[None]` names no class."""
    return type(None) if kind is None else typing.cast("type[object]", kind)


# --- scalars --------------------------------------------------------------------------------------


def describe_json(value: object) -> str:
    """What a JSON value is, for a person or a model."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return f"the string {quote(value)}"
    if isinstance(value, int | float):
        return f"the number {str(value)[:_SHOWN]}"
    return "an array" if isinstance(value, list | tuple) else "an object"


def quote(text: str) -> str:
    """A text as JSON writes it, shortened for a sentence."""
    return json.dumps(text if len(text) <= _SHOWN else text[:_SHOWN] + "…", ensure_ascii=False)


def _wrong(expected: str, value: object) -> Fault:
    return Fault(f"expected {expected}, found {describe_json(value)}")


def _as_it_is(value: object, _kind: object) -> object:
    return value


def _str(value: object, _kind: object) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _bool(value: object, _kind: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _int(value: object, _kind: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(
            value
        )  # JSON has one kind of number: 1.0 is an integer to a schema, and models do write it
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong("an integer", value)
    return value


def _float(value: object, _kind: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise Fault("the number is too large") from None


def _none(value: object, _kind: object) -> None:
    if value is not None:
        raise _wrong("null", value)


def _textual(value: object, kind: object) -> object:
    if not isinstance(value, str):
        raise _wrong(f"a string ({name_of(kind)})", value)
    try:
        found: object = msgspec.convert(value, _type(kind))
    except msgspec.ValidationError as exc:
        raise Fault(f"{exc}, found {describe_json(value)}") from None
    if isinstance(found, decimal.Decimal) and not found.is_finite():
        raise _wrong("a finite decimal", value)
    return found


def _path(value: object, kind: object) -> object:
    text = _str(value, kind)
    if "\0" in text:
        raise Fault("a path holds no NUL character")
    return typing.cast("Callable[[str], object]", kind)(text)


_SCALARS: Final[dict[type, Hook]] = {
    str: _str,
    bool: _bool,
    int: _int,
    float: _float,
    type(None): _none,
    bytes: _textual,
    pathlib.Path: _path,
}


def _or_enum(plain: Hook) -> Hook:
    return lambda value, kind: _enum_hook(kind)(value, kind) if is_enum(kind) else plain(value, kind)


def _key(value: object) -> tuple[str, object]:
    """What tells JSON values apart: 1 and true are equal in Python, 1 and 1.0 are equal in JSON."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (type(value).__name__, value)


def _choice_hook(options: Mapping[tuple[str, object], object]) -> Hook:
    legal = ", ".join(json.dumps(value, ensure_ascii=False) for _, value in options)

    def hook(value: object, _kind: object) -> object:
        if not isinstance(value, list | dict) and _key(value) in options:
            return options[_key(value)]
        raise _wrong(f"one of {legal}", value)

    return hook


@functools.cache
def _enum_hook(kind: Kind) -> Hook:
    return _choice_hook({_key(member.value): member for member in members_of(kind)})


# --- bounds ---------------------------------------------------------------------------------------


def _is_bounded(kind: Kind) -> bool:
    return split_annotated(kind)[0] is not kind


def _bounded_hook(kind: Kind, converter: cattrs.Converter) -> Hook:
    bare, metas = split_annotated(kind)

    def hook(value: object, _kind: object) -> object:
        found = converter.structure(value, _type(bare))
        broken = [text for meta in metas for text in _broken(found, meta)]
        if broken:
            raise ExceptionGroup(
                "bounds", [Fault(f"{text}, found {describe_json(value)}") for text in broken]
            )
        return found

    return hook


def _broken(value: object, meta: msgspec.Meta) -> Iterator[str]:
    """The bounds of a `msgspec.Meta` that a value breaks."""
    if isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        if meta.gt is not None and not value > meta.gt:
            yield f"must be above {meta.gt}"
        if meta.ge is not None and not value >= meta.ge:
            yield f"must be at least {meta.ge}"
        if meta.lt is not None and not value < meta.lt:
            yield f"must be below {meta.lt}"
        if meta.le is not None and not value <= meta.le:
            yield f"must be at most {meta.le}"
        if meta.multiple_of is not None and not _is_multiple(value, meta.multiple_of):
            yield f"must be a multiple of {meta.multiple_of}"
    if isinstance(value, typing.Sized):
        noun = "characters" if isinstance(value, str) else "items"
        if meta.min_length is not None and len(value) < meta.min_length:
            yield f"must have at least {meta.min_length} {noun}, has {len(value)}"
        if meta.max_length is not None and len(value) > meta.max_length:
            yield f"must have at most {meta.max_length} {noun}, has {len(value)}"
    if meta.pattern is not None and isinstance(value, str) and not re.search(meta.pattern, value):
        yield f"must match the pattern {meta.pattern}"


def _is_multiple(value: float | decimal.Decimal, unit: float) -> bool:
    if isinstance(value, decimal.Decimal):
        return value % decimal.Decimal(str(unit)) == 0
    if float in {type(value), type(unit)}:
        return math.isclose(math.remainder(value, unit), 0, abs_tol=1e-9)
    return value % unit == 0  # whole numbers may be larger than a float can tell apart


# --- containers -----------------------------------------------------------------------------------


def _is_container(kind: Kind) -> bool:
    origin, _ = container_of(kind)
    return origin is tuple or origin in SEQUENCES or origin in SETS or origin in MAPPINGS


def _container_hook(kind: Kind, converter: cattrs.Converter) -> Hook:
    origin, args = container_of(kind)
    if origin in MAPPINGS:
        key, item = args or (str, object)
        return lambda value, _kind: _mapping(converter, value, key, item)
    if origin is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
        return lambda value, _kind: tuple(_items(converter, value, args, len(args)))
    each: Kind = args[0] if args else object
    make = (
        tuple
        if origin is tuple
        else list
        if origin in SEQUENCES
        else frozenset
        if origin is frozenset
        else set
    )

    def hook(value: object, _kind: object) -> object:
        return make(_items(converter, value, each, None))

    return hook


def _items(converter: cattrs.Converter, value: object, kinds: object, size: int | None) -> list[object]:
    import cattrs.errors as ce

    if not isinstance(value, list | tuple):
        raise _wrong("an array", value)
    if size is not None and len(value) != size:
        raise Fault(f"expected an array of {size} items, found {len(value)}")
    found: list[object] = []
    faults: list[Exception] = []
    for i, item in enumerate(value):
        kind = kinds if size is None else typing.cast("tuple[object, ...]", kinds)[i]
        try:
            found.append(converter.structure(item, _type(kind)))
        except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
            faults.append(_noted(exc, ce.IterableValidationNote(f"item {i}", i, kind)))
    if faults:
        raise ce.IterableValidationError("items", faults, list)
    return found


def _mapping(
    converter: cattrs.Converter, value: object, key_kind: Kind, item_kind: Kind
) -> dict[object, object]:
    import cattrs.errors as ce

    if not isinstance(value, dict):
        raise _wrong("an object", value)
    found: dict[object, object] = {}
    faults: list[Exception] = []
    for key, item in value.items():
        try:
            name = converter.structure(key, _type(key_kind))
            found[name] = converter.structure(item, _type(item_kind))
        except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
            faults.append(_noted(exc, ce.IterableValidationNote(f"key {key}", key, item_kind)))
    if faults:
        raise ce.IterableValidationError("entries", faults, dict)
    return found


def _noted(exc: Exception, note: str) -> Exception:
    """The same exception with the place where it happened, as cattrs notes it."""
    exc.__notes__ = [*getattr(exc, "__notes__", ()), note]
    return exc


# --- records --------------------------------------------------------------------------------------


def _record_hook(kind: Kind, converter: cattrs.Converter) -> Hook:
    """One way for attrs classes, dataclasses, TypedDicts and structs: field by field, as the schema says it."""
    import cattrs.errors as ce

    record = _type(kind)
    fields = fields_of(record)
    tag_field, tag = tag_of(record)

    def hook(value: object, _kind: object) -> object:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        left = dict(value)
        faults: list[Exception] = []
        if tag_field is not None and left.pop(tag_field, None) != tag:
            faults.append(Fault(f"expected {quote(tag_field)} to be {json.dumps(tag)}"))
        found: dict[str, object] = {}
        for field in fields:
            try:
                if field.key in left:
                    found[field.name] = converter.structure(left.pop(field.key), _type(field.kind))
                elif field.required:
                    raise Fault("missing, and it has no default")
            except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
                note = ce.AttributeValidationNote(f"field {field.key}", field.key, field.kind)
                faults.append(_noted(exc, note))
        faults += [Fault(f"there is no field {quote(key)} (there are: {legal})") for key in left]
        if faults:
            raise ce.ClassValidationError(f"{record.__name__} does not fit", faults, record)
        return record(**found)

    legal = ", ".join(field.key for field in fields) or "none"
    return hook


# --- unions ---------------------------------------------------------------------------------------


def _union_hook(kind: Kind, converter: cattrs.Converter) -> Hook:
    """The first member that takes the value as it is; if none does, the faults of the one that came closest."""
    members = typing.get_args(kind)
    names = " or ".join("null" if member is type(None) else name_of(member) for member in members)

    def find(value: object) -> object:
        near: list[Exception] = []
        for member in sorted(members, key=lambda member: not _is_exact(value, member)):
            try:
                return converter.structure(value, _type(member))
            except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
                if _is_near(exc):
                    near.append(exc)
        if len(near) == 1:
            raise near[0]
        if not near:
            raise _wrong(names, value)
        closest = min((list_faults(exc, "") for exc in near), key=len)
        raise Fault(f"fits none of {names}; closest: " + "; ".join(fault.lstrip(".: ") for fault in closest))

    def hook(value: object, _kind: object) -> object:
        if not isinstance(value, list | dict):
            return find(value)
        known = _known.get()
        place = (id(value), id(hook))
        if place not in known:
            try:
                known[place] = find(value)
            except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
                known[place] = _Misfit(list_faults(exc, ""), is_near=_is_near(exc))
        found = known[place]
        if isinstance(found, _Misfit):
            # A new one: each gets the notes of its own place.
            raise _Misfit(found.faults, is_near=found.is_near)
        return found

    return hook


def _is_near(exc: Exception) -> bool:
    """Whether the value was of the right kind, with something wrong inside."""
    return exc.is_near if isinstance(exc, _Misfit) else isinstance(exc, ExceptionGroup)


def _is_exact(value: object, member: Kind) -> bool:
    """Whether a union should try this member first: `3` is an int before it is a float, `3.0` the other way."""
    return type(value) is split_annotated(member)[0]
