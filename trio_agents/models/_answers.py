"""How a message asks for an answer of a given form, and how an adapter finds out that it did. Pure.

The model is told the schema in words, which every provider understands and which leaves the log a plain conversation.
An adapter whose server can hold a model to a schema reads it back from there: what it sends still follows from the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from ..values._json import JsonValue, load_json
from ..values._messages import Message, PluginSource, TextBlock

ASKED: Final = PluginSource(plugin="trio_agents", form="instructions")
"""The source of what the package itself tells a model about the form of its answer."""

_WORDS: Final = (
    "Give your final answer as one JSON value and nothing else: no explanation, no code fence. "
    "It must fit this JSON schema:\n"
)


def instructions(schema: Mapping[str, object]) -> str:
    """What a model is told of the form of its answer."""
    return f"{_WORDS}{json.dumps(schema, ensure_ascii=False)}"


def schema_asked_for(messages: Sequence[Message]) -> dict[str, JsonValue] | None:
    """The schema that the last input asks for, or None.

    Complaints about an answer that did not fit stand behind the input that they belong to.
    """
    for message in reversed(messages):
        if message.role != "user" or message.source.tag == "tool":
            continue
        last = message.content[-1] if message.content else None
        if isinstance(last, TextBlock) and last.text.startswith(_WORDS):
            return _object(last.text.removeprefix(_WORDS))
        if message.source != ASKED:
            return None
    return None


def _object(text: str) -> dict[str, JsonValue] | None:
    """A user may write such words too; what follows is then anything."""
    try:
        value = load_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
