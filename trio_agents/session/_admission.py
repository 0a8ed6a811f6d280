"""What may enter a log: from a draft to an event and its line, or a refusal.

A value made in this process may hold anything, whatever its annotations say. What could not be read back exactly
is refused here, before anything is written: the frequent types by a look at their fields, all others by decoding
the line that was made of them.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType

from ..errors import TrioAgentsError, UsageError
from ..values._json import FrozenJson
from ..values._messages import UserMessage
from ._codec import MUTABLE, check_exact, decode_event, encode, encode_event, is_registered
from ._events import (
    CORE_PAYLOADS,
    KNOWN_TYPES,
    SURFACE_TYPES,
    AssistantMessage,
    Draft,
    Event,
    ForeignEvent,
    Payload,
    ToolResult,
)
from ._grammar import RULES
from ._plainness import PLAIN
from ._wire import compact

_MESSAGES: Final = frozenset((UserMessage, AssistantMessage, ToolResult))
FREQUENT: Final = {
    cls: (wire_type, PLAIN[cls], RULES.get(cls), cls in _MESSAGES)
    for wire_type, cls in CORE_PAYLOADS.items()
    if cls in PLAIN and (cls in _MESSAGES or not cls.ignorable)
}
"""What a turn is made of: wire type, the quick look at a payload, its bracket rule, whether it is a message."""


def event_of(item: object, seq: int, time: int) -> Event:
    """The event that a payload, or a draft of one, becomes.

    Raises:
        UsageError: it is no payload of a known type, or a draft says of it what only messages can have.
    """
    frequent = FREQUENT.get(type(item))
    if frequent is not None:
        wire_type, _, _, is_message = frequent
        place: Literal["append"] | UnsetType = "append" if is_message else UNSET
        return Event(type=wire_type, seq=seq, time=time, data=item, surface_op=place)
    if type(item) is Draft:
        data, op, sources = item.data, item.surface_op, item.source_event_seqs
    else:
        data, op, sources = item, "append", UNSET
    kind = type(data)
    if kind in _MESSAGES:
        return Event(
            type=data.wire_type,
            seq=seq,
            time=time,
            data=data,
            surface_op=op,
            source_event_seqs=sources if sources is UNSET else compact(sources),
        )
    wire_type = getattr(data, "wire_type", "")
    if CORE_PAYLOADS.get(wire_type) is not kind:
        _check_kind(data)
    if op != "append" or sources is not UNSET:
        raise UsageError(f"{wire_type} refused: only messages have a surface operation or sources")
    ignorable = data.ignorable
    return Event(type=wire_type, seq=seq, time=time, data=data, ignorable=True if ignorable else UNSET)


def _check_kind(data: object) -> None:
    if is_registered(type(data)):
        return
    if type(data) is not ForeignEvent:
        kind = (
            f"{data.wire_type} ({type(data).__name__})" if isinstance(data, Payload) else type(data).__name__
        )
        raise UsageError(f"{kind} refused: it is no payload of a known type; see register_event")
    if data.wire_type in CORE_PAYLOADS or data.wire_type in SURFACE_TYPES:
        raise UsageError(f"{data.wire_type} refused: this type has a payload class of its own")
    if data.wire_type not in KNOWN_TYPES and not data.ignorable:
        raise UsageError(f"{data.wire_type} refused: a type that is not registered must be ignorable")


def admit(event: Event) -> tuple[Event, bytes]:
    """The event as a log may keep it, and its line.

    Usually the very event that was given; one with a mutable part in it (a list where a tuple belongs) is replaced
    by what its line says.

    Raises:
        ValueNotJsonError: a part of it would not survive as JSON; the message names the event's type.
        UsageError: a field has a value of the wrong type.
    """
    data = event.data
    check = PLAIN.get(type(data))
    if check is not None and check(data):
        try:
            return event, encode(event)
        except UnicodeEncodeError:  # a lone surrogate
            return event, encode_event(event)
    line = encode_event(event)
    return _read_back(event, line), line


def _read_back(event: Event, line: bytes) -> Event:
    check_exact(event)
    try:
        back = decode_event(line, seq=event.seq)
    except TrioAgentsError as exc:
        raise UsageError(f"{event.type} refused: {exc}") from exc
    if back == event:
        # Equal at every depth, containers of the same types included: the original, whose parts are shared with
        # others, is as good as the copy, unless the copy is there to be independent.
        return back if type(event.data) in MUTABLE else event
    if type(back) is not Event or not _says_the_same(event.data, back.data):
        raise UsageError(f"{event.type} refused: a field has a value of the wrong type")
    return back


def _says_the_same(made: object, read: object) -> bool:
    """Whether what was read back differs from what was made in its containers alone: a tuple for a list."""
    if type(made) is FrozenJson:
        return read in (made, made.value)
    if isinstance(made, (list, tuple)):
        return (
            isinstance(read, (list, tuple))
            and len(made) == len(read)
            and all(map(_says_the_same, made, read))
        )
    if isinstance(made, dict):
        return (
            isinstance(read, dict)
            and made.keys() == read.keys()
            and all(_says_the_same(value, read[key]) for key, value in made.items())
        )
    if isinstance(made, Struct):
        return type(made) is type(read) and all(
            _says_the_same(getattr(made, name), getattr(read, name)) for name in made.__struct_fields__
        )
    return made == read
