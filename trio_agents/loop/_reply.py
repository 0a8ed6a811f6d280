"""Asking an agent and reading its answer: `ask` and `stream`."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, final

import trio

from ..agent import Deliverable, Reply, Settlement
from ..errors import (
    AgentClosedError,
    MessageDiscarded,
    TrioAgentsError,
    TurnAborted,
    TurnBlocked,
    TurnError,
    TurnFailed,
    UsageError,
)
from ..session import AssistantChunk, InboxSpliced, TurnEnd
from ..values import BY_USER, Aborted, Blocked, Failed, ForeignEnd, Interrupted, TextDelta, TurnEndReason
from ._inside import waiting_for
from ._receipts import NO_TOKENS, LoopReceipt

if TYPE_CHECKING:
    from ..session import Follower
    from ._agent import LoopAgent

logger: Final = logging.getLogger("trio_agents")


async def ask(agent: LoopAgent, message: Deliverable, *, check: bool) -> Reply[None]:
    """Deliver a message and wait for the turn that takes it."""
    with waiting_for(agent, "ask()"):  # asked before anything is delivered
        receipt = agent.followup(message)
        return reply_to(receipt, await wait_or_withdraw(agent, receipt), check=check)


async def wait_or_withdraw(agent: LoopAgent, receipt: LoopReceipt) -> Settlement:
    """Wait for a settlement; a wait that is cancelled takes its message back, or stops its turn."""
    try:
        return await receipt.settled()
    except trio.Cancelled:
        withdraw(agent, receipt)
        raise


def withdraw(agent: LoopAgent, receipt: LoopReceipt) -> None:
    """Take a message back if it is pending, or cancel its turn if that is the one at work; keep everything else.

    Never raises: it is what a cancelled wait does last.
    """
    try:
        if receipt.state == "settled" or agent.is_closing:
            return
        if receipt.state == "pending":
            agent.inbox.remove(receipt.message_id)
        elif agent.driver is not None and agent.driver.turn == receipt.turn:
            agent.cancel(BY_USER, keep_inbox=True)
    except TrioAgentsError:
        logger.exception("message %s of agent %r could not be taken back", receipt.message_id, agent.id)


def reply_to(receipt: LoopReceipt, settlement: Settlement, *, check: bool) -> Reply[None]:
    """The reply, or the error that the settlement amounts to."""
    if check:
        error = _error(receipt, settlement)
        if error is not None:
            raise error
    outcome = receipt.outcome
    answer = None if outcome is None else outcome.answer
    return Reply(
        text="" if answer is None else answer.text,
        turn=settlement.turn,
        end=settlement.end,
        usage=NO_TOKENS if outcome is None else outcome.usage,
        message_id=receipt.message_id,
        value=None,
    )


def _error(receipt: LoopReceipt, settlement: Settlement) -> Exception | None:
    turn, end = settlement.turn, settlement.end
    if settlement.outcome == "kept":
        return AgentClosedError(
            f"the agent ended before a turn took message {receipt.message_id!r}; it stays in the log"
        )
    by_end = None if end is None else end_error(turn, end)
    if settlement.outcome == "discarded" and not isinstance(end, Blocked | Aborted):
        return MessageDiscarded(
            f"message {receipt.message_id!r} was removed before a step took it", turn=turn, end=end
        )
    if by_end is not None and receipt.outcome is not None:
        by_end.__cause__ = receipt.outcome.error
    return by_end


def end_error(turn: int | None, end: TurnEndReason) -> TurnError | None:
    """The error that an end is to somebody who waited for a reply, or None."""
    if isinstance(end, Blocked):
        return TurnBlocked(f"turn {turn} was blocked before its first step", turn=turn, end=end)
    if isinstance(end, Failed):
        return TurnFailed(f"turn {turn} failed: {end.error.message} ({end.error.code})", turn=turn, end=end)
    if isinstance(end, Aborted):
        return TurnAborted(f"turn {turn} was cancelled: {end.reason.kind}", turn=turn, end=end)
    if isinstance(end, Interrupted | ForeignEnd):
        return TurnFailed(f"turn {turn} ended as {end.kind!r}", turn=turn, end=end)
    return None


@final
class LoopReplyStream:
    """The text of one turn as it comes. A plain object over the log: no buffer, nothing to close."""

    __slots__ = ("_follower", "_receipt", "is_over")

    def __init__(self, receipt: LoopReceipt, follower: Follower) -> None:
        self._receipt = receipt
        self._follower = follower
        self.is_over = False

    def __aiter__(self) -> LoopReplyStream:
        """Itself."""
        return self

    async def __anext__(self) -> str:
        """The next piece of text. A checkpoint."""
        while not self.is_over:
            try:
                event = await self._follower.__anext__()
            except StopAsyncIteration:
                break
            text = self._take(event.data)
            if text:
                return text  # noqa: ASYNC910  the follower is one
        self.is_over = True
        await trio.lowlevel.checkpoint()
        raise StopAsyncIteration

    def _take(self, data: object) -> str | None:
        if type(data) is AssistantChunk:
            if data.turn == self._receipt.turn and type(data.chunk) is TextDelta:
                return data.chunk.text
        elif type(data) is TurnEnd:
            # The claim is noted before the turn's first chunk, so a turn that ends without it is another one.
            self.is_over = data.turn == self._receipt.turn
        elif type(data) is InboxSpliced and self._receipt.state == "settled" and self._receipt.turn is None:
            self.is_over = True  # removed before any turn took it
        return None

    @property
    def result(self) -> Reply[None]:
        """The whole reply, once the turn has ended."""
        settlement = self._receipt.settlement
        if settlement is None:
            raise UsageError("the turn has not ended yet; iterate to the end first")
        self._receipt.is_read = True
        return reply_to(self._receipt, settlement, check=True)


@final
class LoopReplyContext:
    """The block of `agent.stream`."""

    __slots__ = ("_agent", "_message", "_receipt", "_stream", "_waiting")

    def __init__(self, agent: LoopAgent, message: Deliverable) -> None:
        self._agent = agent
        self._message = message
        self._receipt: LoopReceipt | None = None
        self._stream: LoopReplyStream | None = None
        self._waiting: AbstractContextManager[None] = waiting_for(agent, "stream()")

    async def __aenter__(self) -> LoopReplyStream:
        """Deliver the message. A checkpoint, after which nothing is taken back if it was cancelled."""
        if self._receipt is not None:
            raise UsageError("this block was already entered; call stream() again")
        await trio.lowlevel.checkpoint()
        self._waiting.__enter__()
        try:
            follower = self._agent.session.follow(len(self._agent.session.events))
            self._receipt = self._agent.followup(self._message)
        except BaseException:
            self._waiting.__exit__(None, None, None)
            raise
        self._stream = LoopReplyStream(self._receipt, follower)
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Stop the turn if it is still at work, and wait until it has ended: shielded, bounded by the grace."""
        try:
            await self._settle(exc)  # noqa: ASYNC102  it shields its wait, bounded by the grace
        finally:
            self._waiting.__exit__(None, None, None)

    async def _settle(self, exc: BaseException | None) -> None:
        receipt, stream = self._receipt, self._stream
        assert receipt is not None
        assert stream is not None
        if receipt.state == "settled":
            return
        if stream.is_over and exc is None:
            await receipt.wait()
            return
        withdraw(self._agent, receipt)
        with trio.move_on_after(self._agent.options.grace, shield=True):
            await receipt.wait()
        if exc is None:
            await trio.lowlevel.checkpoint_if_cancelled()
