"""The live inbox: a projection of durable splices. The fact commits first, memory follows, then it is told.

Every change is one call without a checkpoint: check, append, observers, lists, notifications. A change that the
log refuses leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Set as AbstractSet
from typing import Protocol, final

import trio
from msgspec import UNSET

from ..errors import DuplicateMessageError, MessageError, UsageError
from ..session import InboxSpliced, Pen, Target
from ..values import UserMessage


class InboxListener(Protocol):
    """Whose inbox it is: asked before a change, and told what has become of messages after it is made."""

    def check_accepting(self) -> None:
        """Raise unless deliveries are taken at the moment."""
        ...

    def check_message(self, message: UserMessage) -> None:
        """Raise unless this message may become pending."""
        ...

    def inserted(self, message: UserMessage) -> None:
        """A message is pending."""
        ...

    def claimed(self, message: UserMessage, turn: int) -> None:
        """A turn took a message."""
        ...

    def discarded(self, message: UserMessage) -> None:
        """A message was recorded as cancelled, or replaced."""
        ...


@final
class Claim:
    """What a step took from the inbox, and from which list."""

    __slots__ = ("next_step", "next_turn")

    def __init__(
        self, next_step: tuple[UserMessage, ...] = (), next_turn: tuple[UserMessage, ...] = ()
    ) -> None:
        self.next_step: tuple[UserMessage, ...] = next_step
        self.next_turn: tuple[UserMessage, ...] = next_turn

    @property
    def messages(self) -> tuple[UserMessage, ...]:
        """All of it, in the order in which the step shows it."""
        return self.next_step + self.next_turn if self.next_turn else self.next_step

    def without(self, ids: set[str]) -> Claim:
        """What of it has none of these ids."""
        return Claim(
            tuple(m for m in self.next_step if m.id not in ids),
            tuple(m for m in self.next_turn if m.id not in ids),
        )

    def given_back(self, *, cancelled: bool) -> list[InboxSpliced]:
        """The splices that put it back at the front of its lists, and, if asked for, record it as cancelled there."""
        splices = []
        lists: tuple[tuple[Target, tuple[UserMessage, ...]], ...] = (
            ("next-step", self.next_step),
            ("next-turn", self.next_turn),
        )
        for target, messages in lists:
            if messages:
                splices.append(InboxSpliced(target=target, start=0, inserted=messages))
                if cancelled:
                    splices.append(
                        InboxSpliced(target=target, start=0, removed_count=len(messages), outcome="canceled")
                    )
        return splices


NOTHING = Claim()


@final
class Inbox:
    """What is pending for an agent: messages that open a turn of their own, and messages for the next step.

    `next_turn` and `next_step` are tuples that never change once taken.
    """

    __slots__ = ("_listener", "_pen", "_pending", "_turn")

    def __init__(self, pen: Pen, listener: InboxListener) -> None:
        self._pending = pen.pending
        self._pen = pen
        self._listener = listener
        self._turn = 0

    # --- looking ------------------------------------------------------------------------------

    @property
    def next_turn(self) -> tuple[UserMessage, ...]:
        """Pending messages that each open a turn of their own, oldest first."""
        return self._pending.next_turn

    @property
    def next_step(self) -> tuple[UserMessage, ...]:
        """Pending messages that join the next step, oldest first."""
        return self._pending.next_step

    @property
    def has_pending(self) -> bool:
        """Whether anything is pending."""
        return len(self._pending) > 0

    def __contains__(self, id: str) -> bool:
        return self._pending.target_of(id) is not None

    def _list(self, target: Target) -> tuple[UserMessage, ...]:
        if target == "next-turn":
            return self._pending.next_turn
        if target == "next-step":
            return self._pending.next_step
        raise UsageError(f"the inbox has the lists 'next-turn' and 'next-step', not {target!r}")

    def _length(self, target: Target) -> int:
        if target not in {"next-turn", "next-step"}:
            raise UsageError(f"the inbox has the lists 'next-turn' and 'next-step', not {target!r}")
        return self._pending.length(target)

    def _find(self, id: str) -> tuple[Target, int] | None:
        target = self._pending.target_of(id)
        return None if target is None else (target, self._pending.index_of(id))

    # --- changing -----------------------------------------------------------------------------

    def append(self, message: UserMessage, target: Target = "next-turn") -> None:
        """Add a message at the end of a list. Wakes nobody.

        Raises:
            DuplicateMessageError: its id is pending already.
            AgentNotPublishedError, AgentClosedError, StorageError: nothing was accepted.
        """
        self._listener.check_accepting()
        self.insert(message, target)

    @trio.lowlevel.enable_ki_protection
    def insert(self, message: UserMessage, target: Target) -> None:
        """Like `append`, also after the agent's teardown began: for what its own work still leaves behind."""
        if not isinstance(message, UserMessage):
            raise MessageError(f"an inbox holds UserMessages, not {type(message).__name__}")
        self._listener.check_message(message)
        # Whether its id is pending already, the log itself looks at.
        start = self._length(target)
        self._pen.append(InboxSpliced(target=target, start=start, inserted=(message,)))

    def prepend(self, message: UserMessage, target: Target = "next-turn") -> None:
        """Add a message at the front of a list. Wakes nobody. Raises as `append`."""
        self.splice(target, 0, 0, message)

    @trio.lowlevel.enable_ki_protection
    def replace(self, id: str, message: UserMessage) -> bool:
        """Put a message in the place of a pending one. False, and nothing logged, if that is not pending.

        The new id may equal the old one. Raises as `append`.
        """
        self._listener.check_accepting()
        found = self._find(id)
        if found is None:
            return False
        self._check_new((message,), {id})
        target, index = found
        self._pen.append(
            InboxSpliced(target=target, start=index, removed_count=1, inserted=(message,), outcome="canceled")
        )
        return True

    @trio.lowlevel.enable_ki_protection
    def remove(self, id: str) -> bool:
        """Record a pending message as cancelled. False, and nothing logged, if it is not pending."""
        self._listener.check_accepting()
        found = self._find(id)
        if found is None:
            return False
        target, index = found
        self._pen.append(InboxSpliced(target=target, start=index, removed_count=1, outcome="canceled"))
        return True

    @trio.lowlevel.enable_ki_protection
    def move_to_next_step(self, id: str) -> bool:
        """Move a message from next-turn to the end of next-step. False, and nothing logged, if it is not there."""
        self._listener.check_accepting()
        found = self._find(id)
        if found is None or found[0] == "next-step":
            return False
        message = self._pending.next_turn[found[1]]
        self._pen.append(
            InboxSpliced(target="next-turn", start=found[1], removed_count=1, outcome="moved"),
            InboxSpliced(target="next-step", start=self._pending.length("next-step"), inserted=(message,)),
        )
        return True

    def clear(self) -> None:
        """Record everything that is pending as cancelled; next-step first. Nothing pending, nothing logged."""
        self._listener.check_accepting()
        self.discard_all()

    @trio.lowlevel.enable_ki_protection
    def discard_all(self) -> None:
        """Like `clear`, also after the agent's teardown began."""
        splices = [
            InboxSpliced(target=target, start=0, removed_count=count, outcome="canceled")
            for target in ("next-step", "next-turn")
            if (count := self._pending.length(target))
        ]
        if splices:
            self._pen.append(*splices)

    @trio.lowlevel.enable_ki_protection
    def splice(self, target: Target, start: int, removed_count: int = 0, *inserted: UserMessage) -> None:
        """Remove `removed_count` messages of a list from `start` on, and insert others there.

        A negative start counts from the end; what is too much is clamped. What is removed is recorded as
        cancelled. A splice that changes nothing writes nothing. Raises as `append`.
        """
        self._listener.check_accepting()
        for what, value in (("start", start), ("removed_count", removed_count)):
            if type(value) is not int:
                raise UsageError(f"{what} of a splice is an int, not {value!r}")
        length = len(self._list(target))
        start = max(0, length + start) if start < 0 else min(start, length)
        removed_count = min(max(0, removed_count), length - start)
        going = {message.id for message in self._list(target)[start : start + removed_count]}
        self._check_new(inserted, going)
        if not removed_count and not inserted:
            return
        self._pen.append(
            InboxSpliced(
                target=target,
                start=start,
                removed_count=removed_count or UNSET,
                inserted=inserted,
                outcome="canceled" if removed_count else UNSET,
            )
        )

    @trio.lowlevel.enable_ki_protection
    def claim(self, target: Target, turn: int) -> Claim:
        """Take what a step is to show: all of next-step, and at a turn's start (`next-turn`) one of next-turn.

        For drivers. Empty lists write nothing.
        """
        steps = self._pending.next_step
        turns = self._pending.next_turn[:1] if target == "next-turn" else ()
        splices = []
        if steps:
            splices.append(InboxSpliced(target="next-step", start=0, removed_count=len(steps)))
        if turns:
            splices.append(InboxSpliced(target="next-turn", start=0, removed_count=1))
        if not splices:
            return NOTHING
        self._turn = turn
        self._pen.append(*splices)
        return Claim(steps, turns)

    def _check_new(self, messages: Iterable[UserMessage], going: AbstractSet[str] = frozenset()) -> None:
        seen: set[str] = set()
        for message in messages:
            if not isinstance(message, UserMessage):
                raise MessageError(f"an inbox holds UserMessages, not {type(message).__name__}")
            self._listener.check_message(message)
            if message.id in seen or (message.id in self and message.id not in going):
                raise DuplicateMessageError(f"message {message.id!r} is already pending")
            seen.add(message.id)

    # --- the projection -----------------------------------------------------------------------

    def tell(self, splice: InboxSpliced, removed: tuple[UserMessage, ...]) -> None:
        """Tell what a splice has changed, when the lists have followed it."""
        listener = self._listener
        if removed:
            if splice.outcome is UNSET:
                for message in removed:
                    listener.claimed(message, self._turn)
            elif splice.outcome == "canceled":
                for message in removed:
                    listener.discarded(message)
        for message in splice.inserted:
            listener.inserted(message)
