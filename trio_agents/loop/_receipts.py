"""What became of delivered messages, for whoever wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import attrs
import trio

from ..agent._interface import Settlement
from ..values import Message, TokenUsage, TurnEndReason
from ._inside import waiting_for

if TYPE_CHECKING:
    from ._agent import LoopAgent

NO_TOKENS: Final = TokenUsage(input_tokens=0, output_tokens=0)


@attrs.frozen
class TurnOutcome:
    """How a turn ended, and what came of it."""

    turn: int
    end: TurnEndReason
    answer: Message | None = None
    usage: TokenUsage = NO_TOKENS
    error: BaseException | None = None


@final
class LoopReceipt:
    """The receipt of one delivery.

    Attributes:
        is_read: whether somebody was told what became of the message.
    """

    __slots__ = ("_agent", "_event", "_settlement", "is_read", "message_id", "outcome", "turn")

    def __init__(self, agent: LoopAgent, message_id: str) -> None:
        self._agent = agent
        self.message_id = message_id
        self.turn: int | None = None
        self.outcome: TurnOutcome | None = None
        self.is_read = False
        self._settlement: Settlement | None = None
        self._event: trio.Event | None = None

    @property
    def state(self) -> Literal["pending", "claimed", "settled"]:
        """How far the message has come."""
        if self._settlement is not None:
            return "settled"
        return "pending" if self.turn is None else "claimed"

    @property
    def settlement(self) -> Settlement | None:
        """What became of the message, or None while it is not decided."""
        return self._settlement

    async def settled(self) -> Settlement:
        """Wait until it is decided what became of the message. A checkpoint."""
        settlement = await self.wait()
        self.is_read = True
        return settlement

    # Unprotected, an interrupt can land in Trio's own wait between its note of the task and the task's sleep.
    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> Settlement:
        """Like `settled`, for somebody who waits for the end alone, and does not look at it."""
        if self._settlement is not None:
            await trio.lowlevel.checkpoint()
            return self._settlement
        with waiting_for(self._agent, "settled()"):
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        return self._decided()

    def _decided(self) -> Settlement:
        assert self._settlement is not None
        return self._settlement

    def settle_by(self, outcome: TurnOutcome, *, returned: set[str], discarded: set[str]) -> None:
        """Decide it by the turn that had claimed the message, given what that put back and what it cancelled."""
        what: Literal["claimed", "discarded", "returned"] = "claimed"
        if discarded and self.message_id in discarded:
            what = "discarded"
        elif self.message_id in returned:
            what = "returned"
        self.settle(Settlement(outcome=what, turn=outcome.turn, end=outcome.end), outcome)

    def settle(self, settlement: Settlement, outcome: TurnOutcome | None = None) -> None:
        """Decide it, once."""
        if self._settlement is None:
            self._settlement = settlement
            self.outcome = outcome
            if self._event is not None:
                self._event.set()

    def __repr__(self) -> str:
        return f"<receipt of message {self.message_id!r}: {self.state}>"
