"""What reads the events of an answer: the words that it answers with, and how every answer ends."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from msgspec import UNSET

from ..errors import ModelError
from ..values._chunks import Chunk, Finish, FinishReason
from ..values._json import MAX_SAFE_INTEGER, FrozenJson, JsonValue, dump_json
from ._blocks import BlockWriter


class Verdict(enum.Enum):
    """What an adapter says of an event."""

    PROGRESS = 1
    """It told something."""
    NOTHING = 2
    """It only kept the stream alive."""
    ENDING = 3
    """The answer is complete; facts such as the usage may follow."""
    LAST = 4
    """Nothing can follow."""


NOTHING: Final = Verdict.NOTHING
PROGRESS: Final = Verdict.PROGRESS
"""What is said of almost every event; older interpreters look a member of an enumeration up slowly."""

Count: TypeAlias = "int | float | None"
"""How many tokens, as a provider tells it: some say 12.0, or nothing."""

OnEvent = Callable[[bytes, bytes], Verdict]


def tokens(count: Count) -> int | None:
    """A count that can be one. A whole answer is worth more than what is wrong with its statistics."""
    return None if count is None else int(min(max(count, 0), MAX_SAFE_INTEGER))


class Reader(Protocol):
    """Reads the events of one answer and emits its chunks."""

    @property
    def complete(self) -> bool:
        """Whether the answer has all its content, so that only facts about it can be missing."""
        ...

    def read(self, name: bytes, data: bytes) -> Verdict:
        """Take an event."""
        ...

    def finish(self) -> None:
        """Emit the end of the answer, once; raise if it is not complete."""
        ...


class Progress:
    """How far an answer is, and the chunk that ends it; what every reader has in common."""

    def __init__(self, who: str, emit: Callable[[Chunk], None]) -> None:
        self._who = who
        self._emit = emit
        self._finished = False
        self.complete = False

    def finish(self, blocks: BlockWriter, reason: FinishReason) -> None:
        """Close every block and emit the end, with what the adapter keeps of the blocks. Only once.

        Raises:
            ModelError: the stream ended before the answer did (`STREAM_CLOSED`).
        """
        if self._finished:
            return
        if not self.complete:
            raise ModelError(
                f"the stream of {self._who} ended before its answer was complete", code="STREAM_CLOSED"
            )
        self._finished = True
        blocks.close()
        kept: JsonValue = {"response": None, "blocks": list(blocks.states)}
        state = FrozenJson(dump_json(kept)) if any(blocks.states) else UNSET
        self._emit(Finish(reason=reason, replay_state=state))
