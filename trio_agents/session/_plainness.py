"""A quick look at a payload that was made in this process: would it be read back exactly?

True means yes. False means that only reading its line back can tell: unusual values, or wrong ones. A frozen struct
does not check what it is made of, so this looks at the exact type of every field of the frequent payloads, which
costs a fraction of decoding them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from ..values._causes import (
    Aborted,
    Blocked,
    ByParent,
    ByUser,
    Completed,
    Disposed,
    HitMaxRequests,
    HitMaxTokens,
    Interrupted,
    Refusal,
)
from ..values._chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    MaxTokens,
    ReasoningDelta,
    Refused,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCalls,
    Usage,
)
from ..values._json import MAX_SAFE_INTEGER
from ..values._messages import (
    USER,
    Message,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    TokenUsage,
    ToolCallBlock,
    ToolResultBlock,
    ToolSource,
    UserMessage,
)
from ._events import (
    AssistantChunk,
    AssistantMessage,
    Header,
    InboxSpliced,
    RequestConfig,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    ToolCall,
    ToolFailure,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
)

_BARE_ENDS: Final = frozenset((Completed, Blocked, HitMaxTokens, Refusal, HitMaxRequests, Interrupted))
_BARE_CAUSES: Final = frozenset((ByUser, ByParent, Disposed))
_BARE_FINISHES: Final = frozenset((Stop, ToolCalls, MaxTokens, Refused))

# Values are taken as Any: each function is called for the one class under which it stands in a table, and looks at
# exact types because subclasses of str and int are refused.


def _was_checked_when_made(data: object) -> bool:
    """For payloads whose constructor takes nothing that would not be read back."""
    return True


def _end(data: Any) -> bool:
    kind = type(data.reason)
    return kind in _BARE_ENDS or (kind is Aborted and type(data.reason.reason) in _BARE_CAUSES)


# --- blocks, messages -----------------------------------------------------------------------------


def _blocks(content: object) -> bool:
    if type(content) is not tuple:
        return False
    for block in content:
        kind = type(block)
        if kind is TextBlock or kind is ReasoningBlock:
            if type(block.text) is not str:
                return False
        elif kind is not ToolCallBlock or not (
            type(block.id) is str and type(block.name) is str and type(block.arguments) is str
        ):
            return False
    return True


def _user(data: Any) -> bool:
    if data.source is not USER:
        return False
    for block in data.content:  # noqa: SIM110 - a generator costs more than the whole look
        if type(block) is not TextBlock:
            return False
    return True


def _message(message: Any, role: str) -> bool:
    return (
        type(message) is Message
        and type(message.id) is str
        and message.id != ""
        and message.role == role
        and type(message.content) is tuple
    )


def _usage(usage: Any) -> bool:
    if type(usage) is not TokenUsage or type(usage.input_tokens) is not int:
        return False
    rest = (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens)
    return type(usage.output_tokens) is int and all(type(count) is int or count is UNSET for count in rest)


def _answer(data: Any) -> bool:
    message = data.message
    if not _message(message, "assistant") or not _in_step(data) or not _blocks(message.content):
        return False
    source = message.source
    return (
        type(source) is ModelSource
        and type(source.provider) is str
        and type(source.model) is str
        and source.provider != ""
        and source.model != ""
        and source.replay_state is UNSET
        and (data.usage is UNSET or _usage(data.usage))
        and (data.interrupted is UNSET or data.interrupted is True)
    )


def _result(data: Any) -> bool:
    message, error = data.message, data.error
    if not _message(message, "user") or not _in_step(data) or len(message.content) != 1:
        return False
    source, block = message.source, message.content[0]
    if type(source) is not ToolSource or type(block) is not ToolResultBlock:
        return False
    call_id: object = source.call_id
    flag: object = block.is_error
    return (
        type(call_id) is str
        and call_id != ""
        and block.tool_call_id == call_id
        and (flag is UNSET or type(flag) is bool)
        and _blocks(block.content)
        and data.meta is UNSET
        and (error is UNSET or _failure(error))
    )


def _failure(error: Any) -> bool:
    return type(error) is ToolFailure and type(error.name) is str and type(error.code) is str


# --- calls, chunks, splices -----------------------------------------------------------------------


def _in_step(data: Any) -> bool:
    turn, step = data.turn, data.step
    return type(turn) is int and type(step) is int


def _call(data: Any) -> bool:
    return (
        _in_step(data)
        and type(data.call_id) is str
        and type(data.name) is str
        and type(data.arguments) is str
        and (data.tracked is UNSET or data.tracked is True)
    )


def _started(data: Any) -> bool:
    return _in_step(data) and type(data.call_id) is str


def _text_delta(chunk: Any) -> bool:
    return type(chunk.index) is int and type(chunk.text) is str


def _call_delta(chunk: Any) -> bool:
    return (
        type(chunk.index) is int
        and type(chunk.id) is str
        and type(chunk.arguments_delta) is str
        and (chunk.name is UNSET or type(chunk.name) is str)
    )


_CHUNKS: Final[dict[type[Any], Callable[[Any], bool]]] = {
    TextDelta: _text_delta,
    ReasoningDelta: _text_delta,
    ToolCallDelta: _call_delta,
    BlockStart: lambda chunk: type(chunk.index) is int and type(chunk.block_type) is str,
    BlockEnd: lambda chunk: type(chunk.index) is int and _blocks((chunk.block,)),
    Usage: lambda chunk: _usage(chunk.usage),
    Finish: lambda chunk: type(chunk.reason) in _BARE_FINISHES and chunk.replay_state is UNSET,
}


def _chunk(data: Any) -> bool:
    check = _CHUNKS.get(type(data.chunk))
    return check is not None and type(data.turn) is int and type(data.step) is int and check(data.chunk)


def _splice(data: Any) -> bool:
    # Target, start and removed count were checked against the lists, exact types included.
    inserted: object = data.inserted
    if type(inserted) is not tuple or (
        data.outcome is not UNSET and data.outcome not in ("canceled", "moved")
    ):
        return False
    for message in inserted:  # noqa: SIM110 - likewise
        if type(message) is not UserMessage or not _user(message):
            return False
    return True


# --- requests -------------------------------------------------------------------------------------


def _route(where: Any) -> bool:
    provider, model = where.provider, where.model
    return type(provider) is str and provider != "" and type(model) is str and model != ""


def _count(value: object) -> bool:
    return value is UNSET or (type(value) is int and 0 < value <= MAX_SAFE_INTEGER)


def _header(data: Any) -> bool:
    # One with tools is read back: whether their schemas are JSON takes a look at each byte.
    header: Any = data.header
    if type(header) is not Header or data.reason not in ("initial", "resume", "change"):
        return False
    config: Any = header.config
    return (
        type(config) is RequestConfig
        and _route(config)
        and config.reasoning_effort is config.temperature is config.stop is UNSET
        and _count(config.max_tokens)
        and header.adapter_defaults is header.tools is UNSET
        and (header.system is UNSET or type(header.system) is str)
    )


def _context(data: Any) -> bool:
    return _route(data) and _count(data.context_window)


PLAIN: Final[dict[type[Any], Callable[[Any], bool]]] = {
    TurnStart: _was_checked_when_made,
    TurnEnd: _end,
    StepStart: _was_checked_when_made,
    StepEnd: _was_checked_when_made,
    UserMessage: _user,
    AssistantMessage: _answer,
    AssistantChunk: _chunk,
    ToolCall: _call,
    ToolStarted: _started,
    ToolResult: _result,
    InboxSpliced: _splice,
    RequestHeader: _header,
    RequestContext: _context,
}
"""Payload class to the quick look at it. Classes that are not here are always read back."""
