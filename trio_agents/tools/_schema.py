"""From type annotations to a JSON schema (draft 2020-12)."""

from __future__ import annotations

import datetime
import typing
from collections.abc import Iterable

import msgspec

from ..errors import ValueNotJsonError
from ..values._json import JsonValue, check_json
from ._docstrings import parse_docstring
from ._kinds import (
    MAPPINGS,
    MISSING,
    SEQUENCES,
    SETS,
    Field,
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
    unwrap,
)
from ._plain import plain

Schema: typing.TypeAlias = dict[str, object]

_SIMPLE: typing.Final[dict[object, str]] = {
    None: "null",
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}
# msgspec leaves this one out, since a time without a zone has no format; a model should know all the same.
_FORMATS: typing.Final[dict[object, Schema]] = {datetime.datetime: {"format": "date-time"}}
_BOUNDS: typing.Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}


class NotDescribable(TypeError):
    """A type has no JSON schema."""


class Describer:
    """Makes the schemas of one tool; classes become shared definitions, so they may refer to themselves."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._names: dict[object, str] = {}

    def describe(self, kind: Kind) -> Schema:
        """The schema of values of a type.

        Raises:
            NotDescribable: there is none.
        """
        bare, metas = split_annotated(kind)
        schema = self._bare(bare)
        for meta in metas:
            schema = _with_meta(schema, meta)
        return schema

    def object_of(self, fields: Iterable[Field], said: typing.Mapping[str, str]) -> Schema:
        """The schema of an object with these fields and no others; `said` describes them by name."""
        properties: dict[str, object] = {}
        required: list[str] = []
        for field in fields:
            try:
                schema = self.describe(field.kind)
            except NotDescribable as exc:
                raise NotDescribable(f"{field.name}: {exc}") from None
            if field.name in said:
                schema = {**schema}
                schema.setdefault("description", said[field.name])
            if field.default is not MISSING:
                schema = {**schema, **_default(field.default)}
            properties[field.key] = schema
            if field.required:
                required.append(field.key)
        schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        return schema

    def _bare(self, kind: Kind) -> Schema:
        try:
            hash(kind)
        except TypeError:
            raise NotDescribable(f"{kind!r} is no type") from None
        if kind in _SIMPLE:
            return {"type": _SIMPLE[kind]}
        if is_anything(kind):
            return {}
        if is_union(kind):
            return self._union(typing.get_args(kind))
        if is_literal(kind):
            return _choice(typing.get_args(kind))
        if is_enum(kind):
            return _choice(member.value for member in members_of(kind))
        if is_path(kind):
            return {"type": "string"}
        if is_textual(kind):
            return dict(msgspec.json.schema(kind)) | _FORMATS.get(kind, {})
        if is_record(kind):
            return {"$ref": f"#/$defs/{self._define(typing.cast('type', kind))}"}
        return self._container(kind)

    def _union(self, members: tuple[Kind, ...]) -> Schema:
        return {"anyOf": [self.describe(member) for member in members]}

    def _container(self, kind: Kind) -> Schema:
        origin, args = container_of(kind)
        if origin is tuple:
            return self._tuple(args)
        if origin in SEQUENCES or origin in SETS:
            schema: Schema = {"type": "array", "items": self.describe(args[0])} if args else {"type": "array"}
            return schema | ({"uniqueItems": True} if origin in SETS else {})
        if origin in MAPPINGS:
            if args:
                self._check_key(args[0])
            return {"type": "object", "additionalProperties": self.describe(args[1]) if args else True}
        raise NotDescribable(f"{name_of(kind)} has no JSON form")

    def _tuple(self, args: tuple[Kind, ...]) -> Schema:
        if not args:
            return {"type": "array"}
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.describe(args[0])}
        size = {"minItems": len(args), "maxItems": len(args)}
        return {"type": "array", "prefixItems": [self.describe(arg) for arg in args], "items": False, **size}

    def _check_key(self, kind: Kind) -> None:
        bare, _ = split_annotated(kind)
        if bare is str or is_anything(bare):
            return
        values = typing.get_args(bare) if is_literal(bare) else members_of(bare) if is_enum(bare) else [None]
        if not all(isinstance(getattr(value, "value", value), str) for value in values):
            raise NotDescribable(f"the keys of a JSON object are text, not {name_of(kind)}")

    def _define(self, kind: type) -> str:
        """Put a record among the definitions, once; return its name there."""
        if kind in self._names:
            return self._names[kind]
        name, number = kind.__name__, 2
        while name in self.definitions:
            name, number = f"{kind.__name__}{number}", number + 1
        self._names[kind] = name
        self.definitions[name] = {}  # taken: the fields may lead back here
        doc = parse_docstring(own_doc(kind))
        try:
            fields = fields_of(kind)
        except (NameError, TypeError) as exc:
            raise NotDescribable(f"{kind.__name__}: {exc}") from None
        try:
            schema = self.object_of(fields, doc.parameters)
        except NotDescribable as exc:
            raise NotDescribable(f"{kind.__name__}.{exc}") from None
        schema = _tagged(schema, kind)
        if doc.summary:
            schema = {"description": doc.summary, **schema}
        self.definitions[name] = schema
        return name


def own_doc(kind: type) -> str | None:
    """The docstring that a person wrote for a class: not an inherited one, not one that was generated."""
    doc = vars(kind).get("__doc__")
    if not isinstance(doc, str) or doc.startswith((f"{kind.__name__}(", "Method generated by attrs")):
        return None
    return doc


def _tagged(schema: Schema, kind: type) -> Schema:
    if issubclass(kind, msgspec.Struct) and kind.__struct_config__.array_like:
        raise NotDescribable(f"{kind.__name__}: array-like structs are not supported here")
    field, tag = tag_of(kind)
    if field is None:
        return schema
    properties = typing.cast("Schema", schema["properties"])
    required = typing.cast("list[str]", schema.get("required", []))
    return {**schema, "properties": {field: {"const": tag}, **properties}, "required": [field, *required]}


def _choice(values: Iterable[object]) -> Schema:
    options = list(values)
    for option in options:
        if option is not None and type(option) not in {str, int, bool}:
            raise NotDescribable(f"the choice {option!r} is no text, integer, boolean or null")
    kinds = {_SIMPLE[type(option)] for option in options}
    return {"type": kinds.pop(), "enum": options} if len(kinds) == 1 else {"enum": options}


def _with_meta(schema: Schema, meta: msgspec.Meta) -> Schema:
    schema = {**schema}
    for attribute, keyword in _BOUNDS.items():
        bound: object = getattr(meta, attribute)
        if bound is not None:
            schema[keyword] = bound
    kind = schema.get("type")
    noun = {"array": "Items", "object": "Properties"}.get(str(kind), "Length")
    if meta.min_length is not None:
        schema[f"min{noun}"] = meta.min_length
    if meta.max_length is not None:
        schema[f"max{noun}"] = meta.max_length
    for keyword, text in (
        ("title", meta.title),
        ("description", meta.description),
        ("examples", meta.examples),
    ):
        if text is not None:
            schema[keyword] = text
    return schema | (meta.extra_json_schema or {})


def _default(value: object) -> Schema:
    """The default as a schema shows it; one that JSON cannot show is left to the function."""
    try:
        shown = plain(value)
        check_json(shown)
    except (ValueNotJsonError, RecursionError):
        return {}
    return {"default": shown}


def name_of(kind: Kind) -> str:
    """A type annotation as a person would write it."""
    kind = unwrap(kind)
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__name__
    return str(kind).replace("typing.", "").replace("collections.abc.", "")


def object_schema(
    describer: Describer, fields: Iterable[Field], said: typing.Mapping[str, str]
) -> dict[str, JsonValue]:
    """A whole schema document for an object with these fields, definitions included.

    Raises:
        NotDescribable: a field has no schema; the text begins with its name.
    """
    schema = describer.object_of(fields, said)
    if describer.definitions:
        schema["$defs"] = dict(sorted(describer.definitions.items()))
    return typing.cast("dict[str, JsonValue]", schema)
