"""Schemas that `@tool` makes of signatures."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pathlib
import sys
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, TypedDict

import attrs
import msgspec
import pytest
import trio

from trio_agents.errors import UsageError
from trio_agents.tools import Tool, ToolContext, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.define
class Node:
    """A node.

    Attributes:
        value: what it holds
    """

    value: int
    children: list[Node] = attrs.field(factory=list)
    _hidden: str = "h"
    made: int = attrs.field(default=0, init=False)


@dataclasses.dataclass
class Point:
    x: Annotated[int, msgspec.Meta(ge=0, description="across")]
    y: int = 0


class Half(TypedDict, total=False):
    need: Required[int]
    may: str


class Whole(TypedDict):
    need: int
    may: NotRequired[str]


class Cat(msgspec.Struct, tag="cat", rename="camel"):
    life_count: int = 9


UserId = NewType("UserId", str)


def properties_of(made: Tool[..., object]) -> Any:
    return made.parameters.value


def schema_of(annotation: object) -> Any:
    def fn(x): ...

    fn.__annotations__["x"] = annotation
    return properties_of(tool(fn))


def property_of(annotation: object) -> Any:
    return schema_of(annotation)["properties"]["x"]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (UserId, {"type": "string"}),
        (pathlib.Path, {"type": "string"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array"}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (Literal["z", "a"], {"type": "string", "enum": ["z", "a"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (list[int] | list[str], {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "string"}}]}),
        (
            Annotated[int, msgspec.Meta(gt=0, le=9, multiple_of=3, description="d")],
            {"type": "integer", "exclusiveMinimum": 0, "maximum": 9, "multipleOf": 3, "description": "d"},
        ),
        (
            Annotated[str, msgspec.Meta(min_length=1, max_length=2, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^a"},
        ),
        (
            Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ),
    ],
    ids=str,
)  # fmt: skip
def test_types(annotation: object, schema: object) -> None:
    assert property_of(annotation) == schema


def test_a_whole_signature() -> None:
    @tool
    async def forecast(city: str, days: int = 3, *, colour: Colour = Colour.RED) -> str:
        """Tell the weather.

        Args:
            city: the city
            days: how many
        """
        return city

    assert forecast.name == "forecast"
    assert forecast.description == "Tell the weather."
    assert forecast.parameters.value == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "the city"},
            "days": {"type": "integer", "description": "how many", "default": 3},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert forecast.spec.name == "forecast"
    assert forecast.spec.parameters == forecast.parameters


def test_no_parameters() -> None:
    @tool
    def now() -> str:
        return ""

    assert now.parameters.value == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.description == ""


def test_records_are_definitions_and_closed() -> None:
    assert schema_of(Node) == {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/Node"}},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {
            "Node": {
                "description": "A node.",
                "type": "object",
                "properties": {
                    "value": {"type": "integer", "description": "what it holds"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    "hidden": {"type": "string", "default": "h"},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    }


@pytest.mark.parametrize("kind", [Half, Whole], ids=["half", "whole"])
def test_typed_dicts(kind: type) -> None:
    definition = schema_of(kind)["$defs"][kind.__name__]
    assert definition == {
        "type": "object",
        "properties": {"need": {"type": "integer"}, "may": {"type": "string"}},
        "required": ["need"],
        "additionalProperties": False,
    }


def test_dataclasses_and_structs() -> None:
    definitions = schema_of(Point | Cat)["$defs"]
    assert definitions == {
        "Cat": {
            "type": "object",
            "properties": {"type": {"const": "cat"}, "lifeCount": {"type": "integer", "default": 9}},
            "required": ["type"],
            "additionalProperties": False,
        },
        "Point": {
            "type": "object",
            "properties": {
                "x": {"type": "integer", "minimum": 0, "description": "across"},
                "y": {"type": "integer", "default": 0},
            },
            "required": ["x"],
            "additionalProperties": False,
        },
    }


def test_two_classes_of_one_name() -> None:
    other = attrs.make_class("Point", {"z": attrs.field(type=int)})
    schema = schema_of(tuple[Point, other])  # type: ignore[valid-type]
    assert schema["properties"]["x"]["prefixItems"] == [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Point2"}]
    assert set(schema["$defs"]) == {"Point", "Point2"}


def test_types_beside_the_function_are_found() -> None:
    @attrs.frozen
    class Local:
        x: int

    @tool
    def fn(local: Local) -> int:
        return local.x

    assert fn.parse('{"local": {"x": 1}}') == {"local": Local(1)}


@pytest.mark.parametrize(
    "annotation",
    [
        "ToolContext",
        "ToolContext | None",
        "trio.TaskStatus[int]",
        "trio_typing.TaskStatus[int]",
        "TaskStatus",
    ],
)
def test_what_is_ours_is_left_out(annotation: str) -> None:
    async def fn(x: int, ours): ...

    fn.__annotations__["ours"] = annotation
    made = tool(fn)
    assert list(properties_of(made)["properties"]) == ["x"]
    assert made.is_service == ("TaskStatus" in annotation)


def test_task_status_as_a_type() -> None:
    async def fn(*, task_status): ...

    fn.__annotations__["task_status"] = trio.TaskStatus[int]
    assert tool(fn).is_service
    fn.__annotations__["task_status"] = trio.TaskStatus
    assert tool(fn).is_service


class Callback:
    pass


def _no_annotation(x): ...
def _variable(*x: int): ...
def _keywords(**x: int): ...
def _unknown(x: Callback): ...
def _unresolved(x: Missing): ...  # type: ignore[name-defined]  # noqa: F821
def _nested(x: list[dict[str, Callback]]): ...
def _int_keys(x: dict[int, str]): ...
def _not_a_type(x: [int]): ...  # type: ignore[valid-type, misc]
def _odd_choice(x: Literal[b"a"]): ...
def _two_contexts(a: ToolContext, x: ToolContext): ...


@pytest.mark.parametrize(
    "fn",
    [
        _no_annotation,
        _variable,
        _keywords,
        _unknown,
        _unresolved,
        _nested,
        _int_keys,
        _not_a_type,
        _odd_choice,
        _two_contexts,
    ],
)
def test_what_cannot_be_described_is_refused_by_name(fn) -> None:
    with pytest.raises(UsageError, match=rf"{fn.__name__}.*'x'"):
        tool(fn)


def test_a_class_inside_names_the_field() -> None:
    @attrs.define
    class Holder:
        inner: Callback

    def fn(x): ...

    fn.__annotations__["x"] = Holder
    with pytest.raises(UsageError, match=r"fn, parameter 'x': Holder\.inner: Callback"):
        tool(fn)


class Array(msgspec.Struct, array_like=True):
    x: int


@dataclasses.dataclass
class Opening:
    x: int
    secret: dataclasses.InitVar[str]


@attrs.define
class Dangling:
    x: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Array, "array-like"),
        (Dangling, "Nowhere"),
        (complex, "complex"),
        (list[complex], "complex"),
        (Opening, "Opening: secret is an InitVar"),
    ],
)
def test_classes_without_a_schema(kind: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        schema_of(kind)


def test_what_json_cannot_show_is_no_default() -> None:
    def fn(x: float = float("inf"), y: int | None = None, z: int = sys.maxsize): ...

    assert properties_of(tool(fn))["properties"] == {
        "x": {"type": "number"},
        "z": {"type": "integer"},
        "y": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    }


def test_bare_tuples_and_titles() -> None:
    assert property_of(tuple) == {"type": "array"}
    meta = msgspec.Meta(title="T", examples=[1], extra_json_schema={"format": "x"})
    assert property_of(Annotated[int, meta]) == {
        "type": "integer",
        "title": "T",
        "examples": [1],
        "format": "x",
    }
    assert property_of(Annotated[dict[str, int], msgspec.Meta(min_length=1)])["minProperties"] == 1
