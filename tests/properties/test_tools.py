"""Statements about all arguments, all results and all orders of registration."""

from __future__ import annotations

import json
import math
import types
from typing import Annotated, Any, Literal, Optional

import msgspec
from hypothesis import assume, given, strategies as st

from trio_agents.errors import ToolArgumentsError
from trio_agents.session._events import ToolFailure
from trio_agents.tools import Tool, ToolReturn, encode_result, tool
from trio_agents.values._describe import MAX_LENGTH, describe
from trio_agents.values._json import check_json
from trio_agents.values._messages import UserMessage

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 1.0, -2.0]) | st.sampled_from(["", "a", "b", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    a: int
    b: list[str] = []


class Tagged(msgspec.Struct, forbid_unknown_fields=True, tag_field="a", tag="b"):
    c: bool = False


# Types that msgspec, which knows nothing of our hooks, can judge as well.
simple_types = st.sampled_from(
    [int, float, str, bool, None, Literal["a", 1], Annotated[int, msgspec.Meta(ge=0, lt=3)], Pair, Tagged]
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Annotations around others. Written with brackets they would be checked as types, which they are not yet."""
    return (
        inner.map(lambda kind: types.GenericAlias(list, (kind,)))
        | inner.map(lambda kind: types.GenericAlias(dict, (str, kind)))
        | inner.map(lambda kind: types.GenericAlias(tuple, (kind, ...)))
        | inner.map(lambda kind: types.GenericAlias(tuple, (int, kind)))
        | inner.map(Optional.__getitem__)
    )


kinds = st.recursive(simple_types, _wider, max_leaves=4)


def one(kind: object) -> Tool[..., Any]:
    def fn(x): ...

    fn.__annotations__["x"] = kind
    return tool(fn)


def faults_of(made: Tool[..., Any], raw: str) -> tuple[str, ...]:
    try:
        made.parse(raw)
    except ToolArgumentsError as exc:
        return exc.faults
    return ()


def fits(schema: Any, value: Any, definitions: dict[str, Any]) -> bool:
    """A validator for the part of JSON schema that tools use; independent of how arguments are read."""
    if "$ref" in schema:
        return fits(definitions[schema["$ref"].rpartition("/")[2]], value, definitions)
    if "anyOf" in schema:
        return any(fits(each, value, definitions) for each in schema["anyOf"])
    if "enum" in schema:
        return any(_same(value, each) for each in schema["enum"])
    if "const" in schema:
        return _same(value, schema["const"])
    kind = schema.get("type")
    if kind == "object":
        properties, more = schema.get("properties", {}), schema["additionalProperties"]
        return (
            isinstance(value, dict)
            and all(name in value for name in schema.get("required", ()))
            and all(
                fits(properties[name], item, definitions)
                if name in properties
                else more is not False and (more is True or fits(more, item, definitions))
                for name, item in value.items()
            )
        )
    if kind == "array":
        first = schema.get("prefixItems", [])
        return (
            isinstance(value, list)
            and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf)
            and all(
                fits(first[i] if i < len(first) else schema["items"], item, definitions)
                for i, item in enumerate(value)
            )
        )
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "number": is_number,
        "integer": is_number and value == int(value) and schema.get("minimum", -99) <= value < schema.get("exclusiveMaximum", 99),
    }[kind]  # fmt: skip


def _same(a: object, b: object) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


@given(kinds, json_values)
def test_arguments_fit_exactly_if_the_schema_says_so(kind: object, value: object) -> None:
    """TOOL-6"""
    made = one(kind)
    schema: Any = made.parameters.value
    faults = faults_of(made, json.dumps({"x": value}))
    assert all(fault.startswith("$.x") for fault in faults)
    assert (not faults) == fits(schema, {"x": value}, schema.get("$defs", {}))


@given(kinds, json_values)
def test_what_msgspec_takes_comes_out_the_same(kind: Any, value: object) -> None:
    try:
        expected = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return
    made = one(kind)
    schema: Any = made.parameters.value
    assume(fits(schema, {"x": value}, schema.get("$defs", {})))  # msgspec forgives a tag that is missing
    found = made.parse(json.dumps({"x": value}))["x"]
    assert found == expected
    assert type(found) is type(expected)


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_no_text_of_a_model_breaks_anything_else(raw: str) -> None:
    """TOOL-6"""

    @tool
    def fn(a: int = 1, b: list[str] | None = None) -> None: ...

    faults_of(fn, raw)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=10,
)


@given(anything, st.integers(0, 50))
def test_any_result_can_be_logged(value: object, limit: int) -> None:
    """TOOL-8, L6"""
    result = encode_result(value, limit)
    UserMessage.from_text(result.content)
    for block in result.content:
        check_json(msgspec.to_builtins(block))
    assert (result.error is None) == (not result.is_error)
    assert len(result.text) <= limit + 200


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_json_comes_out_as_itself(value: object) -> None:
    result = encode_result({"value": value}, None)
    assert result.error is None
    assert json.loads(result.text) == {"value": value}


exceptions = st.recursive(
    st.builds(ValueError, st.text()) | st.builds(KeyError, st.text()),
    lambda inner: st.builds(ExceptionGroup, st.text(), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=10,
)


@given(st.lists(exceptions, min_size=1, max_size=6), st.data())
def test_any_web_of_exceptions_has_a_text(excs: list[BaseException], data: st.DataObject) -> None:
    """ERR-8: cycles included."""
    for exc in excs:
        exc.__cause__ = data.draw(st.none() | st.sampled_from(excs))
        exc.__context__ = data.draw(st.none() | st.sampled_from(excs))
        exc.__suppress_context__ = data.draw(st.booleans())
    text = describe(excs[0])
    assert text.startswith(type(excs[0]).__name__)
    assert "\n" not in text
    assert len(text) <= MAX_LENGTH


def test_error_results_say_so() -> None:
    failed = ToolReturn.failed("x", name="N", code="C")
    assert failed == ToolReturn("x", is_error=True, error=ToolFailure(name="N", code="C"))
