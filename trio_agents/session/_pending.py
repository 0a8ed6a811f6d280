"""What waits for an agent: the fold of inbox splices into two lists.

`agent/inbox/spliced` events are the only truth; this is what they add up to. `Pending` also remembers which
messages the open turn has claimed and not yet shown to the model, and a move of which only the first half is
there: what recovery has to give back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, final

from msgspec import UNSET

from ..errors import DuplicateMessageError, MessageError, SessionCorruptError, UsageError
from ..values._messages import UserMessage
from ._events import Event, InboxSpliced, Target, TurnEnd, TurnStart
from ._packing import ChunkRun
from ._wire import INBOX_LINES, Line, SpliceLine, to_event, user_message

SPLICED: Final = "agent/inbox/spliced"

ABOUT_INBOX: Final = frozenset((InboxSpliced, UserMessage, TurnStart, TurnEnd))
"""The payloads that `Pending.take` has to see."""

Kind: TypeAlias = Literal["insert", "claim", "cancel", "replace", "move"]
"""What a splice did, as the log alone tells it."""


def kind_of(splice: InboxSpliced) -> Kind:
    """Whether a splice inserted, claimed, cancelled, replaced, or took out what is moved elsewhere."""
    if splice.removed_count is UNSET:
        return "insert"
    if splice.outcome is UNSET:
        return "replace" if splice.inserted else "claim"
    if splice.outcome == "moved":
        return "move"
    return "replace" if splice.inserted else "cancel"


@final
class _Queue:
    """One list, and the tuple of it that was last asked for."""

    __slots__ = ("items", "taken")

    def __init__(self) -> None:
        self.items: list[UserMessage] = []
        self.taken: tuple[UserMessage, ...] | None = ()

    def snapshot(self) -> tuple[UserMessage, ...]:
        taken = self.taken
        if taken is None:
            taken = self.taken = tuple(self.items)
        return taken


_NO_QUEUE: Final = _Queue()
_NO_IDS: Final[dict[str, Target]] = {}
_NO_CLAIMS: Final[dict[str, tuple[Target, UserMessage]]] = {}


@final
class Pending:
    """Two lists of messages, moved on splice by splice. Changing it is the log's business alone."""

    __slots__ = ("_claimed", "_ids", "_moving", "_step", "_turn")

    def __init__(self) -> None:
        # Shared until the first splice: most sessions of a large program wait for nothing.
        self._turn = _NO_QUEUE
        self._step = _NO_QUEUE
        self._ids: dict[str, Target] = _NO_IDS
        self._claimed: dict[str, tuple[Target, UserMessage]] = _NO_CLAIMS
        self._moving: tuple[UserMessage, ...] = ()

    def _settle_in(self) -> None:
        self._turn, self._step = _Queue(), _Queue()
        self._ids, self._claimed = {}, {}

    # --- reading ----------------------------------------------------------------------------------

    @property
    def next_turn(self) -> tuple[UserMessage, ...]:
        """What opens turns, oldest first. The tuple never changes; after a change there is another one."""
        return self._turn.snapshot()

    @property
    def next_step(self) -> tuple[UserMessage, ...]:
        """What joins the next step. The tuple never changes; after a change there is another one."""
        return self._step.snapshot()

    def __len__(self) -> int:
        return len(self._ids)

    def target_of(self, message_id: str) -> Target | None:
        """The list in which a message is pending, or None."""
        return self._ids.get(message_id)

    def length(self, target: Target) -> int:
        """How many messages one list holds."""
        return len(self._queue(target).items)

    def index_of(self, message_id: str) -> int:
        """The position of a pending message in its list.

        Raises:
            KeyError: it is not pending.
        """
        items = self._queue(self._ids[message_id]).items
        # From both ends: messages are taken from the front and changed at the back.
        for index, (first, last) in enumerate(zip(items, reversed(items), strict=True)):
            if first.id == message_id:
                return index
            if last.id == message_id:
                return len(items) - 1 - index
        raise KeyError(message_id)

    def removed_by(self, splice: InboxSpliced) -> tuple[UserMessage, ...]:
        """The messages that a splice takes out, seen before it is applied."""
        if splice.removed_count is UNSET:
            return ()
        items = self._queue(splice.target).items
        return tuple(items[splice.start : splice.start + splice.removed_count])

    @property
    def claimed(self) -> tuple[tuple[Target, UserMessage], ...]:
        """What the open turn has claimed and neither logged as `user/message` nor returned, in order."""
        return tuple(self._claimed.values())

    @property
    def is_claimed_from(self) -> bool:
        """Whether there is anything in `claimed`."""
        return bool(self._claimed)

    @property
    def moving(self) -> tuple[UserMessage, ...]:
        """What was taken out of one list by a move and has not arrived in the other."""
        return self._moving

    def _queue(self, target: Target) -> _Queue:
        return self._turn if target == "next-turn" else self._step

    # --- changing ---------------------------------------------------------------------------------

    def check(self, splice: InboxSpliced) -> None:
        """Raise unless the splice fits the lists as they are.

        Raises:
            UsageError: its numbers do not.
            DuplicateMessageError: it inserts a message that is already pending, or one message twice.
        """
        count = len(self._queue(splice.target).items)
        start, removed = splice.start, splice.removed_count
        if splice.target not in ("next-turn", "next-step"):
            raise UsageError(f"a splice's target is next-turn or next-step, not {splice.target!r}")
        if type(start) is not int or not 0 <= start <= count:
            raise UsageError(f"a splice of {splice.target} starts within 0..{count}, not at {start!r}")
        if removed is not UNSET and (type(removed) is not int or not 0 < removed <= count - start):
            raise UsageError(
                f"a splice of {splice.target} at {start} can remove 1..{count - start}, not {removed!r}"
            )
        if splice.inserted:
            self._check_ids(splice)

    def _check_ids(self, splice: InboxSpliced) -> None:
        ids = self._ids
        fresh: set[str] = set()
        leaving: set[str] | None = None
        for message in splice.inserted:
            if type(message) is not UserMessage:
                raise MessageError(f"an inbox holds UserMessages, not {type(message).__name__}")
            message_id = message.id
            if message_id in fresh:
                raise DuplicateMessageError(f"message {message_id!r} is already pending: it comes twice")
            if message_id in ids:
                if leaving is None:
                    leaving = {gone.id for gone in self.removed_by(splice)}
                if message_id not in leaving:
                    raise DuplicateMessageError(
                        f"message {message_id!r} is already pending in {ids[message_id]}"
                    )
            fresh.add(message_id)

    def apply(self, splice: InboxSpliced) -> tuple[UserMessage, ...]:
        """Take a splice for which `check` holds. Returns what it removed. No checkpoint, cannot fail."""
        if self._turn is _NO_QUEUE:
            self._settle_in()
        queue = self._queue(splice.target)
        start, inserted = splice.start, splice.inserted
        removed: tuple[UserMessage, ...] = ()
        if splice.removed_count is not UNSET:
            removed = self.removed_by(splice)
            for message in removed:
                del self._ids[message.id]
            self._note_removal(splice, removed)
        queue.items[start : start + len(removed)] = inserted
        queue.taken = None
        if inserted:
            target = splice.target
            for message in inserted:
                self._ids[message.id] = target
                if self._claimed:
                    self._claimed.pop(message.id, None)
            if self._moving and splice.removed_count is UNSET:
                self._moving = tuple(m for m in self._moving if m.id not in self._ids)
        return removed

    def _note_removal(self, splice: InboxSpliced, removed: tuple[UserMessage, ...]) -> None:
        kind = kind_of(splice)
        if kind == "claim":
            for message in removed:
                self._claimed[message.id] = (splice.target, message)
        elif kind == "move":
            self._moving += removed

    def check_all(self, splices: Sequence[InboxSpliced]) -> None:
        """Raise unless the splices fit one after another. Changes nothing.

        Raises:
            UsageError: see `check`.
        """
        if len(splices) == 1:
            self.check(splices[0])
            return
        trial = Pending()
        trial._settle_in()
        trial._turn.items = self._turn.items.copy()
        trial._step.items = self._step.items.copy()
        trial._ids = self._ids.copy()
        for splice in splices:
            trial.check(splice)
            trial.apply(splice)

    def take(self, event: Event) -> tuple[UserMessage, ...]:
        """Take any event of the log: splices change the lists, turns and messages what counts as claimed.

        Returns:
            what was removed, if it was a splice for which `check` holds.
        """
        data = event.data
        kind = type(data)
        if kind is InboxSpliced:
            return self.apply(data)
        if self._claimed:
            if kind is UserMessage:
                self._claimed.pop(data.id, None)
            elif kind is TurnStart or kind is TurnEnd:
                self._claimed.clear()
        return ()

    # --- loading ----------------------------------------------------------------------------------

    def take_line(self, line: Line, seed_length: int) -> None:
        """Take one of the `INBOX_LINES` of a stored log. `settle` has to follow before anybody reads.

        The usual two splices, an insertion at the end and a claim of the first, move what was decoded: most
        messages leave again, and only those that stay are made.

        Raises:
            SessionCorruptError: it is a splice that does not fit; see `take_stored`.
        """
        if type(line) is not SpliceLine:
            if self._claimed:
                self._claimed.clear()
            return
        if line.seq < seed_length:
            return
        if self._turn is _NO_QUEUE:
            self._settle_in()
        splice = line.data
        target, start, inserted, removed = splice.target, splice.start, splice.inserted, splice.removed_count
        items, ids = (self._turn if target == "next-turn" else self._step).items, self._ids
        message: Any
        if removed is UNSET and len(inserted) == 1 and start == len(items) and not self._moving:
            message = inserted[0]
            if message.id not in ids:
                items.append(message)
                ids[message.id] = target
                if self._claimed:
                    self._claimed.pop(message.id, None)
                return
        elif removed == 1 and start == 0 and items and not inserted and splice.outcome is UNSET:
            message = items.pop(0)
            del ids[message.id]
            self._claimed[message.id] = (target, message)
            return
        take_stored(self, to_event(line), seed_length)

    def settle(self) -> None:
        """Make the messages that `take_line` left as they were decoded."""
        for queue in (self._turn, self._step):
            if queue is not _NO_QUEUE:
                queue.items[:] = map(_made, queue.items)
                queue.taken = None
        for message_id, (target, message) in self._claimed.items():
            self._claimed[message_id] = (target, _made(message))
        self._moving = tuple(map(_made, self._moving))


def _made(message: Any) -> UserMessage:
    return message if type(message) is UserMessage else user_message(message)


def fold_pending(records: Iterable[Event | ChunkRun | Line], seed_length: int = 0) -> Pending:
    """The inbox that a stored log adds up to. Splices inherited from a parent do not count.

    Raises:
        SessionCorruptError: a splice does not fit the lists; names its number, with the reason as cause.
    """
    pending = Pending()
    for record in records:
        if isinstance(record, Event):
            take_stored(pending, record, seed_length)
        elif type(record) in INBOX_LINES:
            pending.take_line(record, seed_length)  # type: ignore[arg-type]
    pending.settle()
    return pending


def take_stored(pending: Pending, event: Event, seed_length: int) -> None:
    """Take one event of a stored log.

    Raises:
        SessionCorruptError: it is a splice that does not fit; names its number, with the reason as cause.
    """
    if event.type != SPLICED:
        pending.take(event)
    elif event.seq >= seed_length:
        try:
            if type(event.data) is not InboxSpliced:
                raise MessageError("its payload is no splice of messages")
            pending.check(event.data)
        except UsageError as exc:
            raise SessionCorruptError(f"invalid persisted inbox splice at session seq {event.seq}") from exc
        pending.apply(event.data)
