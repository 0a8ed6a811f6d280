"""Request headers: the last one counts, in canonical form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.session.samples import opened
from trio_agents.session import Header, RequestConfig, RequestContext, RequestHeader, ToolSpec, fold_header
from trio_agents.session._events import AdapterDefaults
from trio_agents.session._header import canonical_header, is_same_header
from trio_agents.values import FrozenJson

CONFIG = RequestConfig(provider="p", model="m")
BARE = Header(config=CONFIG)
ONE, TWO = (ToolSpec(name=name, description="", parameters=FrozenJson.of({})) for name in ("one", "two"))


def with_(**fields: Any) -> Header:
    return msgspec.structs.replace(BARE, **fields)


@pytest.mark.parametrize(
    "header",
    [
        with_(system=""),
        with_(tools=()),
        with_(adapter_defaults=AdapterDefaults()),
        with_(config=RequestConfig(provider="p", model="m", stop=())),
    ],
    ids=["system", "tools", "defaults", "stop"],
)
def test_absent_equals_empty(header):
    """HDR-5"""
    assert canonical_header(header) == BARE
    assert is_same_header(header, BARE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BARE, with_(system="x")),
        (with_(tools=(ONE, TWO)), with_(tools=(TWO, ONE))),
        (BARE, with_(config=RequestConfig(provider="p", model="n"))),
        (BARE, with_(adapter_defaults=AdapterDefaults(max_tokens=True))),
    ],
    ids=["system", "order of tools", "model", "defaults"],
)
def test_what_differs_differs(one, other):
    """HDR-5"""
    assert not is_same_header(one, other)
    assert canonical_header(other) == other


def test_spelling_of_a_schema_does_not_matter():
    """HDR-5"""
    spaced = msgspec.structs.replace(ONE, parameters=FrozenJson(b"{ }"))
    assert is_same_header(with_(tools=(ONE,)), with_(tools=(spaced,)))


def test_the_last_header_counts():
    """HDR-9"""
    session, pen, _ = opened()
    assert session.request_header() is None
    assert session.request_context() is None
    for header in (BARE, with_(system="x")):
        pen.append(RequestHeader(header=header, reason="initial"))
        assert session.request_header() == header == fold_header(session.events)
    with pytest.raises(AttributeError):
        session.request_header().system = "y"  # type: ignore[union-attr, misc]
    context = RequestContext(provider="p", model="m", context_window=5)
    pen.append(context)
    assert session.request_context() == context
