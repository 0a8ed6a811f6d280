"""Arguments of calls: from raw text into typed values, strictly, with every fault (TOOL-6)."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import pathlib
import uuid
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest

from tests.unit.tools.test_schema import Cat, Colour, Half, Level, Node, Point, Whole
from trio_agents.errors import ToolArgumentsError
from trio_agents.tools import tool


class Mode(str, enum.Enum):
    FAST = "fast"


@attrs.frozen
class Even:
    n: int = attrs.field()

    @n.validator
    def _check(self, attribute, value) -> None:
        if value % 2:
            raise ValueError("n must be even")


class Dog(msgspec.Struct, tag="dog"):
    name: str


@attrs.frozen
class Not:
    op: Literal["not"]
    of: Condition


@attrs.frozen
class And:
    op: Literal["and"]
    left: Condition
    of: Condition
    counted: list[int] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.counted.append(1)


@attrs.frozen
class Or:
    op: Literal["or"]
    left: Condition
    of: Condition


Condition = str | Not | And | Or


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@attrs.frozen
class Fussy:
    n: int = attrs.field()

    @n.validator
    def _check(self, attribute, value) -> None:
        raise Unprintable


def one(annotation: object):
    def fn(x): ...

    fn.__annotations__["x"] = annotation
    return tool(fn)


def faults_of(annotation: object, value: object) -> list[str]:
    with pytest.raises(ToolArgumentsError) as caught:
        one(annotation).parse(json.dumps({"x": value}))
    assert caught.value.code == "INVALID_ARGS"
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        (str, "a", "a"),
        (int, 3, 3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (None, None, None),
        (Any, [None, {"a": 1}], [None, {"a": 1}]),
        (int | None, None, None),
        (int | str, "3", "3"),
        (float | int, 3, 3),
        (int | float, 3.0, 3.0),
        (bool | int, 1, 1),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[int], [1, 1], {1}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
        (Literal["a", 1], 1.0, 1),
        (Colour, "red", Colour.RED),
        (Level, 2, Level.HIGH),
        (Mode, "fast", Mode.FAST),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (datetime.date, "2020-01-02", datetime.date(2020, 1, 2)),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678123456781234567812345678")),
        (bytes, "YWI=", b"ab"),
        (Node, {"value": 1, "children": [{"value": 2, "hidden": "x"}]}, Node(1, [Node(2, hidden="x")])),
        (Point, {"x": 1}, Point(1)),
        (Half, {"need": 1}, {"need": 1}),
        (Whole, {"need": 1, "may": "m"}, {"need": 1, "may": "m"}),
        (Cat, {"type": "cat", "lifeCount": 3}, Cat(3)),
        (Cat | Dog, {"type": "dog", "name": "rex"}, Dog("rex")),
        (Node | Point, {"x": 3}, Point(3)),
        (list[int] | list[str], ["a"], ["a"]),
        (Annotated[int, msgspec.Meta(ge=1, examples=[1])], 1, 1),
    ],
    ids=str,
)
def test_what_fits(annotation: object, given: object, expected: object) -> None:
    found = one(annotation).parse(json.dumps({"x": given}))["x"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "given", "fault"),
    [
        (str, 3, "$.x: expected a string, found the number 3"),
        (int, "3", '$.x: expected an integer, found the string "3"'),
        (int, True, "$.x: expected an integer, found the boolean true"),
        (int, 3.5, "$.x: expected an integer, found the number 3.5"),
        (float, "1", '$.x: expected a number, found the string "1"'),
        (float, False, "$.x: expected a number, found the boolean false"),
        (bool, 1, "$.x: expected true or false, found the number 1"),
        (None, 0, "$.x: expected null, found the number 0"),
        (int | None, "a", '$.x: expected int or null, found the string "a"'),
        (list[int], "ab", '$.x: expected an array, found the string "ab"'),
        (list[str], ["a", 1], "$.x[1]: expected a string, found the number 1"),
        (tuple[int, str], [1], "$.x: expected an array of 2 items, found 1"),
        (dict[str, int], {"a": "b"}, '$.x.a: expected an integer, found the string "b"'),
        (dict[str, int], [1], "$.x: expected an object, found an array"),
        (dict[Colour, int], {"pink": 1}, '$.x.pink: expected one of "red", "blue", found the string "pink"'),
        (Literal["a", 1], True, '$.x: expected one of "a", 1, found the boolean true'),
        (Literal["a"], ["a"], '$.x: expected one of "a", found an array'),
        (Colour, "pink", '$.x: expected one of "red", "blue", found the string "pink"'),
        (Level, True, "$.x: expected one of 1, 2, found the boolean true"),
        (Mode, "slow", '$.x: expected one of "fast", found the string "slow"'),
        (pathlib.Path, 3, "$.x: expected a string, found the number 3"),
        (pathlib.Path, "a\0b", "$.x: a path holds no NUL character"),
        (datetime.date, "soon", '$.x: Invalid RFC3339 encoded date, found the string "soon"'),
        (datetime.date, 3, "$.x: expected a string (date), found the number 3"),
        (Point, [1], "$.x: expected an object, found an array"),
        (Point, {"x": -1}, "$.x.x: must be at least 0, found the number -1"),
        (Point, {"x": 1, "z": 2}, '$.x: there is no field "z" (there are: x, y)'),
        (Point | None, {"x": "1"}, '$.x.x: expected an integer, found the string "1"'),
        (Half, {"may": "a"}, "$.x.need: missing, and it has no default"),
        (Cat, {"lifeCount": 3}, '$.x: expected "type" to be "cat"'),
        (Even, {"n": 3}, "$.x: n must be even"),
        (Node | Point, {"x": "1"}, '$.x: fits none of Node or Point; closest: x: expected an integer, found the string "1"'),
        (Annotated[str, msgspec.Meta(pattern="^a")], "b", '$.x: must match the pattern ^a, found the string "b"'),
        (Annotated[str, msgspec.Meta(max_length=1)], "ab", '$.x: must have at most 1 characters, has 2, found the string "ab"'),
        (Annotated[list[int], msgspec.Meta(min_length=1)], [], "$.x: must have at least 1 items, has 0, found an array"),
        (Annotated[float, msgspec.Meta(gt=0)], 0, "$.x: must be above 0, found the number 0"),
        (Annotated[float, msgspec.Meta(lt=1)], 1, "$.x: must be below 1, found the number 1"),
        (Annotated[int, msgspec.Meta(le=1)], 2, "$.x: must be at most 1, found the number 2"),
        (Annotated[int, msgspec.Meta(multiple_of=5)], 7, "$.x: must be a multiple of 5, found the number 7"),
        (Annotated[int, msgspec.Meta(multiple_of=5)], 10**17 + 1, f"$.x: must be a multiple of 5, found the number {10**17 + 1}"),
        (Annotated[decimal.Decimal, msgspec.Meta(ge=0)], "-5", '$.x: must be at least 0, found the string "-5"'),
        (Annotated[decimal.Decimal, msgspec.Meta(multiple_of=0.25)], "0.3", '$.x: must be a multiple of 0.25, found the string "0.3"'),
        (decimal.Decimal, "NaN", '$.x: expected a finite decimal, found the string "NaN"'),
        (Fussy, {"n": 1}, "$.x: Unprintable"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit(annotation: object, given: object, fault: str) -> None:
    """TOOL-6: no coercion, and the fault says where, what was found and what would be right."""
    assert faults_of(annotation, given) == [fault]


def nested(levels: int, innermost: object) -> Any:
    value = innermost
    for _ in range(levels):
        value = {"op": "or", "left": "a", "of": value}
    return value


def test_a_nested_union_is_read_in_a_time_that_grows_with_its_size() -> None:
    """TOOL-6: each member of each union around it asks for the innermost value, which is read once all the same."""
    found = one(Condition).parse(json.dumps({"x": nested(30, "b")}))["x"]
    for _ in range(30):
        assert type(found) is Or
        found = found.of
    assert found == "b"
    [fault] = faults_of(Condition, nested(30, 3))
    assert fault.startswith("$.x: fits none of str or Not or And or Or; closest: ")


def test_each_part_of_a_union_keeps_its_place() -> None:
    """TOOL-6: what is known of a value is known of that one alone."""
    wrong = {"op": "or", "left": 1, "of": "a"}
    assert faults_of(list[Condition | None], [wrong, "a", wrong, {"op": "or", "left": "b", "of": "a"}]) == [
        f"$.x[{index}]: fits none of str or Not or And or Or or null; closest: left: expected str or Not or And or Or"
        ", found the number 1"
        for index in (0, 2)
    ]
    right = {"op": "and", "left": "a", "of": "b"}
    first, second = one(list[Condition]).parse(json.dumps({"x": [right, right]}))["x"]
    assert first == second
    assert first.counted is not second.counted


def test_every_fault_at_once() -> None:
    """TOOL-6"""

    @tool
    def fn(a: int, b: Node, c: list[Point], d: str = "x") -> None: ...

    with pytest.raises(ToolArgumentsError) as caught:
        fn.parse(
            '{"b": {"value": "1", "children": [{"value": 1}, {}]}, "c": [{"x": -1, "y": null}], "d": 1, "e": 2}'
        )
    assert list(caught.value.faults) == [
        "$.a: missing, and it has no default",
        '$.b.value: expected an integer, found the string "1"',
        "$.b.children[1].value: missing, and it has no default",
        "$.c[0].x: must be at least 0, found the number -1",
        "$.c[0].y: expected an integer, found null",
        "$.d: expected a string, found the number 1",
        "$.e: there is no such argument (there are: a, b, c, d)",
    ]
    assert caught.value.tool == "fn"
    assert all(fault in str(caught.value) for fault in caught.value.faults)


@pytest.mark.parametrize("raw", ["", "  \n", "{}"])
def test_empty_text_is_no_arguments(raw: str) -> None:
    """TOOL-6"""

    @tool
    def fn(a: int = 1) -> int:
        return a

    assert fn.parse(raw) == {}


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ("{", "$: not JSON: "),
        ("{} {}", "$: not JSON: "),
        ("nothing", "$: not JSON: "),
        ('{"x": NaN}', "$: not JSON: NaN is no JSON number"),
        ('{"x": -Infinity}', "$: not JSON: -Infinity is no JSON number"),
        ('{"x": 1e999}', "$: the number 1e999 is too large"),
        ('{"x": ' + "1" * 5000 + "}", "$: not JSON: "),
        ("[1]", "$: expected an object of named arguments, found an array"),
        ("null", "$: expected an object of named arguments, found null"),
        ('{"x": 1, "x": 2}', '$: the key "x" stands twice in one object'),
        ('{"x": {"y": 1, "y": 1}}', '$: the key "y" stands twice in one object'),
        ('{"x":' + "[" * 100_000, "$: "),
    ],
    ids=range(12),
)
def test_text_that_is_no_object(raw: str, fault: str) -> None:
    """TOOL-6"""
    with pytest.raises(ToolArgumentsError) as caught:
        one(Any).parse(raw)
    (found,) = caught.value.faults
    assert found.startswith(fault)


def test_lone_surrogates_pass() -> None:
    assert one(str).parse('{"x": "\\ud800"}') == {"x": "\ud800"}


def test_a_user_error_in_a_nested_item_keeps_its_place() -> None:
    assert faults_of(list[Even], [{"n": 2}, {"n": 3}]) == ["$.x[1]: n must be even"]


@pytest.mark.parametrize(
    ("kind", "raw"),
    [(list[None], "[false]"), (dict[str, None], '{"a": 0}'), (tuple[None, int], "[0, 1]")],
    ids=["list", "dict", "tuple"],
)
def test_null_inside_a_container_is_null_alone(kind: object, raw: str) -> None:
    """TOOL-6: nothing is taken for null because it is as empty."""

    async def body(x: object) -> None: ...

    body.__annotations__["x"] = kind
    made = tool(body)

    with pytest.raises(ToolArgumentsError):
        made.parse(f'{{"x": {raw}}}')
