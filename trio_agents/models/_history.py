"""What of a conversation goes to a provider: a pure projection that every adapter starts from.

The log keeps everything. A provider gets what it would accept: pairs of call and result, no blank text, no
reasoning that it has not signed, every call id once, no tool's name that could not be one. The projection never looks
at anything but the messages and the tools on offer, so the request stays a function of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, final

import attrs
from msgspec import UNSET

from ..errors import ModelError
from ..session._events import ToolSpec
from ..values._json import JsonValue
from ..values._messages import (
    ContentBlock,
    Message,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

NO_OUTPUT: Final = "(no output)"
"""What a provider is told where a tool answered nothing: an empty text is refused by some."""
_NO_NAME: Final = "unknown"
_LONGEST_NAME: Final = 64


@final
@attrs.frozen(kw_only=True)
class Asked:
    """Input: what a person, a plugin or another agent said. Never empty."""

    message_id: str
    content: tuple[ContentBlock, ...]


@final
@attrs.frozen(kw_only=True)
class Part:
    """A block of a model's message with what the adapter kept of it (None if nothing, or nothing that fits)."""

    block: ContentBlock
    state: JsonValue = None


@final
@attrs.frozen(kw_only=True)
class Said:
    """What a model said, without what may not go back. `response` is the adapter's state of the whole message."""

    message_id: str
    parts: tuple[Part, ...]
    response: JsonValue = None


@final
@attrs.frozen(kw_only=True)
class Answered:
    """The result of the call with this id. The content may be empty."""

    message_id: str
    call_id: str
    content: tuple[ContentBlock, ...]
    is_error: bool


Entry: TypeAlias = Asked | Said | Answered


def _nobody(message: Message) -> None:
    pass


def project(
    messages: Iterable[Message],
    *,
    provider: str,
    model: str,
    tools: Iterable[ToolSpec] = (),
    clean_id: Callable[[str], str] = str,
    degraded: Callable[[Message], None] = _nobody,
) -> list[Entry]:
    """The conversation as this provider and model may see it.

    Args:
        messages: the derived messages of a session, oldest first.
        provider: who is asked; replay state of another provider or model is left out.
        model: likewise.
        tools: the tools on offer, whose names stay as they are.
        clean_id: makes a call id acceptable to the provider; ids are made unique after it.
        degraded: told of each message that goes without its replay state since that does not fit its blocks.

    Raises:
        ModelError: a call and its result are not together (`INVALID_REQUEST`); the message is named.
    """
    entries: list[Entry] = []
    ids = _CallIds(clean_id)
    offered = frozenset(tool.name for tool in tools)
    for message in messages:
        if message.role == "assistant":
            ids.close(message)
            said = _said(message, provider, model, ids, offered, degraded)
            if said is not None:
                entries.append(said)
            continue
        result = _result(message)
        if result is not None:
            entries.append(
                Answered(
                    message_id=message.id,
                    call_id=ids.answer(message, result.tool_call_id),
                    content=_not_blank(result.content),
                    is_error=result.is_error is True,
                )
            )
            continue
        ids.close(message)
        content = _not_blank(message.content)
        if content:
            entries.append(Asked(message_id=message.id, content=content))
    ids.close(None)
    return entries


def _said(
    message: Message,
    provider: str,
    model: str,
    ids: _CallIds,
    offered: frozenset[str],
    degraded: Callable[[Message], None],
) -> Said | None:
    response, states = _replay_state(message, provider, model, degraded)
    parts: list[Part] = []
    visible = False
    for position, block in enumerate(message.content):
        state = states[position] if states else None
        if type(block) is ReasoningBlock:
            # Cut-off reasoning has no state, that of another model has a state which does not count here:
            # a provider refuses both, and would refuse every later request as well.
            if state is not None:
                parts.append(Part(block=block, state=state))
        elif type(block) is ToolCallBlock:
            name = block.name if block.name in offered else _clean_name(block.name)
            call = ToolCallBlock(id=ids.call(block.id), name=name, arguments=block.arguments)
            parts.append(Part(block=call, state=state))
            visible = True
        elif type(block) is not TextBlock or block.text.strip():
            parts.append(Part(block=block, state=state))
            visible = True
    # Reasoning alone is no message that a provider takes back.
    return Said(message_id=message.id, parts=tuple(parts), response=response) if visible else None


def _clean_name(name: str) -> str:
    """A name that every provider takes: one that a model made up is refused by them in each later request."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST_NAME] or _NO_NAME


def _replay_state(
    message: Message, provider: str, model: str, degraded: Callable[[Message], None]
) -> tuple[JsonValue, list[JsonValue] | None]:
    """The adapter's state of a message and of its blocks; None where it is absent, foreign, or does not fit."""
    source = message.source
    if type(source) is not ModelSource or source.replay_state is UNSET:
        return None, None
    if source.provider != provider or source.model != model:
        return None, None
    state = source.replay_state.value
    if not isinstance(state, dict):
        return None, None
    blocks = state.get("blocks")
    if blocks is None:
        return state.get("response"), None
    if not isinstance(blocks, list) or len(blocks) != len(message.content):
        degraded(message)  # out of step with the content: a message without state
        return None, None
    return state.get("response"), blocks


def _result(message: Message) -> ToolResultBlock | None:
    if len(message.content) == 1:
        block = message.content[0]
        if type(block) is ToolResultBlock:
            return block
    return None


def _not_blank(content: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
    return tuple(block for block in content if type(block) is not TextBlock or block.text.strip())


class _CallIds:
    """Pairs calls with results, and gives every call of the history an id of its own.

    Some providers count ids from 0 in every reply, and a stream may repeat one inside a message; others refuse a
    conversation in which an id occurs twice. Results answer calls with the same id in the order of the calls.
    """

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._used: set[str] = set()
        self._open: list[tuple[str, str]] = []

    def call(self, call_id: str) -> str:
        base = self._clean(call_id) or "call"
        unique, count = base, 1
        while unique in self._used:
            count += 1
            unique = f"{base}-{count}"
        self._used.add(unique)
        self._open.append((call_id, unique))
        return unique

    def answer(self, message: Message, call_id: str) -> str:
        for position, (original, unique) in enumerate(self._open):
            if original == call_id:
                del self._open[position]
                return unique
        raise ModelError(
            f"message {message.id!r} is the result of call {call_id!r}, which is not asked for directly before it",
            code="INVALID_REQUEST",
        )

    def close(self, message: Message | None) -> None:
        if self._open:
            missing = ", ".join(repr(original) for original, _ in self._open)
            where = "the history ends" if message is None else f"message {message.id!r} comes"
            raise ModelError(
                f"{where} before the result of tool call {missing}; each call needs its result directly after it",
                code="INVALID_REQUEST",
            )


def check_history(messages: Iterable[Message]) -> None:
    """Refuse what the pickiest of providers would refuse although `project` can render it.

    Raises:
        ModelError: no message, a model's message first, a role that does not belong, or nothing in a message
            (`INVALID_REQUEST`).
    """
    first: Message | None = None
    for message in messages:
        if first is None:
            first = message
            if message.role == "assistant" or _result(message) is not None:
                raise _refused(message, "stands first; a conversation begins with input")
        if message.role not in {"user", "assistant"}:
            raise _refused(message, f"has role {message.role!r}; only user and assistant belong here")
        if not message.content:
            raise _refused(message, "has no content")
        if message.role == "user" and not _not_blank(message.content):
            raise _refused(message, "holds nothing but blank text")
        misplaced = ToolResultBlock if message.role == "assistant" else ToolCallBlock
        for block in message.content:
            if type(block) is misplaced or (type(block) is ToolResultBlock and len(message.content) > 1):
                raise _refused(message, f"holds a {block.tag} block where none may be")
    if first is None:
        raise ModelError("the request holds no message", code="INVALID_REQUEST")


def _refused(message: Message, problem: str) -> ModelError:
    return ModelError(f"message {message.id!r} {problem}", code="INVALID_REQUEST")
