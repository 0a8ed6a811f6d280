"""The part of a log that the model sees: an ordered list of message events, and the messages they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, TypeAlias, final, overload

import msgspec

from ..errors import UsageError
from ..values._messages import Message, UserMessage
from ._events import SURFACE_TYPES, AssistantMessage, Event, Replace, ToolResult
from ._packing import ChunkRun
from ._shapes import sources_fault

EventAt: TypeAlias = Callable[[int], Event]
"""The event with a number, which exists."""

_DIFFERENT: Final = "a result can only replace one result, and change nothing but its content"


def message_of(event: Event) -> Message | None:
    """The message of a surface event; None for an answer without content, which no request holds."""
    data = event.data
    if type(data) is UserMessage:
        return data
    if type(data) is AssistantMessage:
        return data.message if data.message.content else None
    assert type(data) is ToolResult
    return data.message


@final
class Messages(Sequence[Message]):
    """The conversation up to some point. Immutable, shared, and made in constant time."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[Message], length: int) -> None:
        self._items = items
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        length = self._length
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            return tuple(self._items[position] for position in range(start, stop, step))
        if index < 0:
            index += length
        if not 0 <= index < length:
            raise IndexError(f"message {index} of {length}")
        return self._items[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._items[: self._length])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Messages, tuple, list)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__: ClassVar[None]  # type: ignore[assignment]  # a class with __eq__ alone has none

    def __repr__(self) -> str:
        return f"<Messages: {self._length}>"


@final
class Surface:
    """The surface of one log, moved on event by event."""

    __slots__ = ("_event_at", "_messages", "_nodes", "_taken", "_view")

    def __init__(self, event_at: EventAt) -> None:
        self._event_at = event_at
        self._nodes: list[int] = []
        # Only ever grown; a replacement starts a new list, so that earlier views keep what they show.
        self._messages: list[Message] = []
        self._taken: tuple[int, ...] | None = ()
        self._view: Messages | None = None

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of the events on the surface, in order."""
        taken = self._taken
        if taken is None:
            taken = self._taken = tuple(self._nodes)
        return taken

    def messages(self) -> list[Message]:
        """A fresh list of the messages, oldest first."""
        return self._messages.copy()

    def view(self) -> Messages:
        """The messages as an immutable sequence that costs nothing to take."""
        view = self._view
        if view is None:
            view = self._view = Messages(self._messages, len(self._messages))
        return view

    def check(self, event: Event) -> None:
        """Raise unless the event may be the next one, as far as the surface is concerned.

        Raises:
            UsageError: the message says what is wrong with its operation or its sources.
        """
        op, sources = event.surface_op, event.source_event_seqs
        if event.type not in SURFACE_TYPES:
            if op is not msgspec.UNSET or sources is not msgspec.UNSET:
                raise UsageError(f"{event.type} refused: only messages have a surface operation or sources")
            return
        if sources is not msgspec.UNSET:
            fault = sources_fault(sources, event.seq, may_be_empty=event.type == "assistant/message")
            if fault is not None:
                raise UsageError(f"{event.type} refused: {fault}")
        if type(op) is Replace:
            self._check_replacement(event, op)
        elif op != "append":
            raise UsageError(
                f"{event.type} refused: a message appends to the surface or replaces, not {op!r}"
            )

    def _check_replacement(self, event: Event, op: Replace) -> None:
        first, last = self._span(event, op)
        shadowed = self._nodes[first : last + 1]
        sources = event.source_event_seqs
        missing = set(shadowed).difference(() if sources is msgspec.UNSET else sources)
        if missing:
            raise UsageError(
                f"{event.type} refused: it must cite what it replaces, event {min(missing)} is missing"
            )
        if type(event.data) is ToolResult:
            old = self._event_at(shadowed[0])
            if first != last or type(old.data) is not ToolResult or not _same_result(old.data, event.data):
                raise UsageError(f"{event.type} refused: {_DIFFERENT}")

    def _span(self, event: Event, op: Replace) -> tuple[int, int]:
        positions = []
        for name, seq in (("start", op.start), ("end", op.end)):
            try:
                positions.append(_index(self._nodes, seq))
            except ValueError:
                raise UsageError(
                    f"{event.type} refused: its {name}, {seq}, is not on the surface now"
                ) from None
        first, last = positions
        if first > last:
            raise UsageError(f"{event.type} refused: {op.start} comes behind {op.end} on the surface")
        return first, last

    def apply(self, event: Event) -> None:
        """Take an event for which `check` holds. Cannot fail."""
        if event.type not in SURFACE_TYPES:
            return
        op = event.surface_op
        if type(op) is Replace:
            first, last = self._span(event, op)
            self._nodes[first : last + 1] = (event.seq,)
            self._messages = self._derive(event)
        else:
            self._nodes.append(event.seq)
            message = message_of(event)
            if message is not None:
                self._messages.append(message)
        self._taken = self._view = None

    def extend(self, events: Sequence[Event]) -> None:
        """Take some events that are appended and for which `check` holds. Cannot fail."""
        self._nodes += [event.seq for event in events]
        for event in events:
            message = message_of(event)
            if message is not None:
                self._messages.append(message)
        self._taken = self._view = None

    def _derive(self, newest: Event) -> list[Message]:
        """The messages from scratch; the newest event may not be in the log yet."""
        found = []
        for seq in self._nodes:
            message = message_of(newest if seq == newest.seq else self._event_at(seq))
            if message is not None:
                found.append(message)
        return found

    def copy(self, event_at: EventAt) -> Surface:
        """An independent surface in the same state, to try several events on."""
        twin = Surface(event_at)
        twin._nodes = self._nodes.copy()
        twin._messages = self._messages.copy()
        twin._taken = None
        return twin


def _index(nodes: list[int], seq: int) -> int:
    """The position of a node. Replacements name recent nodes or the first one: look from both ends."""
    for position, (first, last) in enumerate(zip(nodes, reversed(nodes), strict=True)):
        if first == seq:
            return position
        if last == seq:
            return len(nodes) - 1 - position
    raise ValueError(seq)


def _same_result(old: ToolResult, new: ToolResult) -> bool:
    """Whether two results differ in the content of their block at most."""
    (block,) = new.message.content
    (was,) = old.message.content
    content = msgspec.structs.replace(block, content=was.content)  # type: ignore[type-var, attr-defined]
    message = msgspec.structs.replace(new.message, content=(content,))
    return msgspec.structs.replace(new, message=message) == old


def fold_surface(records: Iterable[Event | ChunkRun], event_at: EventAt) -> Surface:
    """The surface of a stored log.

    Raises:
        UsageError: an event breaks the rules of the surface; the message names its type.
    """
    surface = Surface(event_at)
    for record in records:
        if type(record) is ChunkRun:
            continue
        assert isinstance(record, Event)
        if record.type in SURFACE_TYPES:
            surface.check(record)
            surface.apply(record)
    return surface
