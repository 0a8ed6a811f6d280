"""What a function's signature says: which parameters a model fills in, and which are ours."""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping

import attrs

from ..errors import UsageError
from ..values._json import FrozenJson
from ._context import ToolContext
from ._docstrings import Docstring
from ._kinds import MISSING, Field, Kind, split_annotated
from ._schema import Describer, NotDescribable, object_schema

_STATUS = re.compile(r"(?:\w+\.)*TaskStatus(?:\[.*\])?$", re.DOTALL)


@attrs.frozen(kw_only=True)
class Signature:
    """A function as a tool sees it.

    Attributes:
        fields: the parameters that a model fills in, by name.
        positional: those of them that can be given by position only, in order.
        context: the parameter that takes the `ToolContext`, or None.
        status: the parameter that takes the `TaskStatus` of a service, or None.
        receiver: whether there is a first parameter for the instance.
        parameters: the JSON schema of the arguments.
    """

    fields: Mapping[str, Field]
    positional: tuple[str, ...]
    context: str | None
    status: str | None
    receiver: bool
    parameters: FrozenJson


def read_signature(
    fn: Callable[..., object], doc: Docstring, *, receiver: bool, names: Mapping[str, object]
) -> Signature:
    """Take a function's signature apart.

    Args:
        fn: the function.
        doc: its docstring, whose descriptions go into the schema.
        receiver: whether it is a method, so that its first parameter is the instance.
        names: what annotations may name beside the function's globals.

    Raises:
        UsageError: a parameter has no annotation, or one that JSON cannot express.
    """
    fields: dict[str, Field] = {}
    positional: list[str] = []
    special: dict[str, str] = {}
    for parameter in list(_signature(fn).parameters.values())[1 if receiver else 0 :]:
        kind = _annotation(fn, parameter, names)
        role = _role(kind)
        if role is not None:
            if role in special:
                raise UsageError(
                    f"{_where(fn, parameter)}: there is already {special[role]!r} for the same purpose"
                )
            special[role] = parameter.name
            continue
        fields[parameter.name] = _field(fn, parameter, kind)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
    return Signature(
        fields=types.MappingProxyType(fields),
        positional=tuple(positional),
        context=special.get("context"),
        status=special.get("status"),
        receiver=receiver,
        parameters=_schema(fn, fields, doc),
    )


def is_method(fn: Callable[..., object]) -> bool:
    """Whether this function was defined in the body of a class, and takes the instance first."""
    outer = getattr(fn, "__qualname__", "").rpartition(".")[0]
    if not outer or outer.endswith("<locals>") or inspect.ismethod(fn):
        return False
    first = next(iter(_signature(fn).parameters), None)
    return first in {"self", "cls"}


def _signature(fn: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _where(fn: Callable[..., object], parameter: inspect.Parameter) -> str:
    return f"tool {getattr(fn, '__qualname__', fn)}, parameter {parameter.name!r}"


def _annotation(fn: Callable[..., object], parameter: inspect.Parameter, names: Mapping[str, object]) -> Kind:
    kind = parameter.annotation
    if kind is parameter.empty:
        raise UsageError(
            f"{_where(fn, parameter)}: it needs an annotation, from which the model's schema is made"
        )
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        raise UsageError(
            f"{_where(fn, parameter)}: a tool's parameters are named one by one; use a list or a dict"
        )
    text = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", "")
    try:
        return _evaluate(fn, kind, names)
    except Exception as exc:
        # Imported for type checkers only, or from a package that is not there: the name is enough to know it.
        if _STATUS.match(text):
            return text
        raise UsageError(
            f"{_where(fn, parameter)}: its annotation {text or kind!r} cannot be resolved: {exc}"
        ) from exc


def _evaluate(fn: Callable[..., object], kind: Kind, names: Mapping[str, object]) -> Kind:
    inner = inspect.unwrap(fn)
    module = getattr(inner, "__globals__", None) or vars(sys.modules.get(type(fn).__module__, sys))
    holder = types.SimpleNamespace(__annotations__={"kind": kind})
    hints: dict[str, object] = typing.get_type_hints(holder, module, dict(names), include_extras=True)
    return hints["kind"]


def _role(kind: Kind) -> str | None:
    bare, _ = split_annotated(kind)
    members = [member for member in typing.get_args(bare) if member is not type(None)]
    if bare is ToolContext or members == [ToolContext]:
        return "context"
    origin = typing.get_origin(bare) or bare
    if isinstance(origin, str):
        return "status"  # `_annotation` lets no other text through
    home = getattr(origin, "__module__", "").partition(".")[0]
    return (
        "status"
        if home in {"trio", "trio_typing"} and getattr(origin, "__name__", "") == "TaskStatus"
        else None
    )


def _field(fn: Callable[..., object], parameter: inspect.Parameter, kind: Kind) -> Field:
    try:
        Describer().describe(kind)
    except NotDescribable as exc:
        raise UsageError(
            f"{_where(fn, parameter)}: {exc}; a tool's parameters are what JSON can express"
        ) from exc
    required = parameter.default is parameter.empty
    return Field(parameter.name, parameter.name, kind, required, MISSING if required else parameter.default)


def _schema(fn: Callable[..., object], fields: Mapping[str, Field], doc: Docstring) -> FrozenJson:
    try:
        return FrozenJson.of(object_schema(Describer(), fields.values(), doc.parameters))
    except (NotDescribable, ValueError) as exc:
        raise UsageError(f"tool {getattr(fn, '__qualname__', fn)}: no schema can be made: {exc}") from exc
