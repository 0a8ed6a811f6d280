"""Names are shown where users import them from, not where they are defined."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import get_type_hints


def publish(module: str, namespace: Mapping[str, object]) -> None:
    """Give what a package re-exports the package's own name as its module: for tracebacks, pickles and documentation.

    Only what is defined in private modules below `module`, or in packages that are themselves below it.
    """
    for name, value in namespace.items():
        if name.startswith("_") or not isinstance(value, type | types.FunctionType):
            continue
        if value.__module__.startswith(f"{module}."):
            if isinstance(value, type) and not _resolve(value):
                continue
            value.__module__ = module


def _resolve(cls: type) -> bool:
    """Evaluate a class's own annotations while its module still says in which namespace that has to happen."""
    own = cls.__dict__.get("__annotations__")
    if not own or not any(isinstance(hint, str) for hint in own.values()):
        return True
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:
        return False  # names something that exists for type checkers only
    for name in own:
        own[name] = hints[name]
    return True
