"""Numbers of a server's JSON that a log would refuse: kept as well as numbers can be."""

from __future__ import annotations

from typing import Final

_LARGEST: Final = 2**53 - 1


def storable(value: object) -> object:
    """A JSON value whose numbers every reader of JSON has alike; the bounds of a 64-bit integer are rounded, say."""
    if isinstance(value, dict):
        return {key: storable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [storable(each) for each in value]
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        try:
            return float(value)
        except OverflowError:
            return str(value)
    if isinstance(value, float) and (value == 0 or value - value != 0):
        return 0 if value == 0 else str(value)  # negative zero, infinity, no number at all
    return value
