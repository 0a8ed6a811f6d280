"""Names are shown where users import them from, not where they are defined."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping


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


def lazily(module: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """A package's `__getattr__` for names whose modules are imported when the name is first asked for.

    Args:
        module: the package.
        places: for each name the submodule that defines it.
    """

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{module}.{places[name]}"), name)
        publish(module, {name: value})
        setattr(sys.modules[module], name, value)
        return value

    return get


def _resolve(cls: type) -> bool:
    """Evaluate a class's own annotations while its module still says in which namespace that has to happen."""
    own = inspect.get_annotations(cls)
    if not any(isinstance(hint, str) for hint in own.values()):
        return True
    space = vars(sys.modules[cls.__module__])
    try:
        cls.__annotations__ = {
            # What stands in our own source, evaluated where it stands; `get_type_hints` would do all bases again.
            name: eval(hint, space) if isinstance(hint, str) else hint  # noqa: S307
            for name, hint in own.items()
        }
    except NameError:
        return False  # names something that exists for type checkers only
    return True
