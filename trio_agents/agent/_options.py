"""What an agent is created with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import attrs

from ..errors import UsageError
from ..tools import Tool

AnyTool: TypeAlias = Tool[..., Any]
"""A tool of whatever signature."""


def _positive_int(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None and attribute.default is None:
        return
    if type(value) is not int or value < 1:
        raise UsageError(f"{attribute.name} is an int >= 1, not {value!r}")


def _seconds(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None and attribute.name != "grace":
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise UsageError(f"{attribute.name} is a number of seconds >= 0, not {value!r}")


def _text(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and type(value) is not str:
        raise UsageError(f"{attribute.name} is a str or None, not {value!r}")


def _temperature(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f"temperature is a finite number or None, not {value!r}")


def _absolute(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    _text(instance, attribute, value)
    if value is not None and not PurePath(str(value)).is_absolute():
        raise UsageError(f"cwd is an absolute path, not {value!r}")


def _stop(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise UsageError(f"stop is a sequence of strings, not the single string {value!r}")
    found = tuple(value)
    if not all(type(item) is str and item for item in found):
        raise UsageError(f"stop is a sequence of non-empty strings, not {found!r}")
    return found


def _tool_order(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise UsageError(f"tool_order is a sequence of names, not the single string {value!r}")
    found = tuple(value)
    if not all(type(item) is str and item for item in found) or len(set(found)) != len(found):
        raise UsageError(f"tool_order is a sequence of names, each once, not {found!r}")
    return found


def _tools(value: Iterable[AnyTool]) -> tuple[AnyTool, ...]:
    found = tuple(value)
    for item in found:
        if not isinstance(item, Tool):
            raise UsageError(f"tools are made with @tool; {item!r} is none")
    return found


@attrs.frozen(kw_only=True)
class AgentOptions:
    """How an agent works. Every value is checked here; a wrong one raises `UsageError`.

    Attributes:
        model: `provider/model`, or None to take it from the log (resume) or from a `BeforeRequest` listener.
        system: text that the system prompt starts with, or None.
        tools: tools of this agent alone.
        max_tokens: cap on the tokens of one answer, or None for the adapter's own.
        effort: reasoning effort in the provider's own words, or None.
        temperature: sampling temperature, or None.
        stop: texts at which the model stops.
        cwd: absolute path of the workspace, kept in the session's header, or None.
        max_requests: how many requests one turn may send.
        max_parallel_tools: how many tool bodies may run at a time.
        max_stop_continuations: how often `TurnStopping` listeners may keep one turn going.
        tool_order: names of tools that the model is told of first, in this order; the others follow by name.
        grace: seconds that the teardown waits before it cancels what still runs.
        first_byte_timeout: seconds until the first chunk of an answer, or None to wait for ever.
        silence_timeout: seconds between two chunks of an answer, or None to wait for ever.
        tool_timeout: seconds that a call of a tool without a timeout of its own may take, or None for no bound.
        hook_timeout: seconds that the listeners of one hook may take, or None for no bound. While a tool that
            `AroundTool` listeners are around runs, their time stands still.
    """

    model: str | None = attrs.field(default=None, validator=_text)
    system: str | None = attrs.field(default=None, validator=_text)
    tools: tuple[AnyTool, ...] = attrs.field(default=(), converter=_tools)
    max_tokens: int | None = attrs.field(default=None, validator=_positive_int)
    effort: str | None = attrs.field(default=None, validator=_text)
    temperature: float | None = attrs.field(default=None, validator=_temperature)
    stop: tuple[str, ...] = attrs.field(default=(), converter=_stop)
    cwd: str | None = attrs.field(default=None, validator=_absolute)
    max_requests: int = attrs.field(default=200, validator=_positive_int)
    max_parallel_tools: int = attrs.field(default=10, validator=_positive_int)
    max_stop_continuations: int = attrs.field(default=8, validator=_positive_int)
    tool_order: tuple[str, ...] = attrs.field(default=(), converter=_tool_order)
    grace: float = attrs.field(default=30.0, validator=_seconds)
    first_byte_timeout: float | None = attrs.field(default=120.0, validator=_seconds)
    silence_timeout: float | None = attrs.field(default=120.0, validator=_seconds)
    tool_timeout: float | None = attrs.field(default=3600.0, validator=_seconds)
    hook_timeout: float | None = attrs.field(default=3600.0, validator=_seconds)


DEFAULT_OPTIONS: Final = AgentOptions()
"""What agents work by that were given no options; shared by all of them."""
