"""From the text that a model wrote to the arguments of a call, every fault at once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final

from ..errors import ToolArgumentsError
from ..values._json import JsonValue
from ._kinds import Field
from ._structuring import Fault, describe_json, list_faults, quote, structure_value

_SHOWN: Final = 60


def parse_object(tool: str, raw: str) -> dict[str, JsonValue]:
    """The arguments of a call as JSON values; empty text is an empty object.

    Raises:
        ToolArgumentsError: no JSON (NaN, infinities and numbers too large for a float included), no object, or an
            object that says a key twice.
    """
    if not raw.strip():
        return {}
    try:
        value: object = _decoder.decode(raw)
    except Fault as exc:
        raise ToolArgumentsError(tool, [f"$: {exc}"]) from None
    except RecursionError:
        raise ToolArgumentsError(tool, ["$: nested too deeply"]) from None
    except ValueError as exc:
        raise ToolArgumentsError(tool, [f"$: not JSON: {exc}"]) from None
    if not isinstance(value, dict):
        raise ToolArgumentsError(
            tool, [f"$: expected an object of named arguments, found {describe_json(value)}"]
        )
    return value


def _no_constant(text: str) -> float:
    raise Fault(f"not JSON: {text} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Fault(f"the number {text[:_SHOWN]} is too large")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Fault(f"the key {quote(key)} stands twice in one object")
            seen.add(key)
    return value


_decoder: Final = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
)


def structure(tool: str, fields: Mapping[str, Field], given: Mapping[str, object]) -> dict[str, object]:
    """The arguments as values of the types of `fields` (by key). What is left out stays left out.

    Raises:
        ToolArgumentsError: with every fault and the path to it.
    """
    found: dict[str, object] = {}
    faults: list[str] = []
    for key, field in fields.items():
        if key in given:
            try:
                found[field.name] = structure_value(given[key], field.kind)
            except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
                faults += list_faults(exc, f"$.{key}")
        elif field.required:
            faults.append(f"$.{key}: missing, and it has no default")
    unknown = [key for key in given if key not in fields]
    if unknown:
        legal = ", ".join(fields) or "none"
        faults += [f"$.{key}: there is no such argument (there are: {legal})" for key in unknown]
    if faults:
        raise ToolArgumentsError(tool, faults)
    return found
