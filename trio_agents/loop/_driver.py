"""One run of an agent: its turns, and how each of them is closed.

The model, once.

* A run exists while there is something to do. It opens turns until nothing is pending, or a turn ends blocked,
  failed or aborted. "Nothing pending" and "become idle" are one section, so no wake falls between them.
* A turn: `turn/start`, a claim, steps, `turn/end`. A step: prompt and `PreStep`, then `step/start` with its messages,
  requests until one succeeds, tool calls, `step/end`.
* Only the steps run inside the activity's cancel scope. After it is left, the closers are written with no checkpoint
  in between, whatever came out of it. The recorded cause decides how the turn ends, not what surfaced.
* If Trio cancels the driver itself, the runtime has crashed: the cause is recorded as disposed, the same closers are
  written, and the exception goes on.

The whole task is protected from KeyboardInterrupt: Ctrl-C reaches the host's own code, never the middle of a turn.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from ..agent import AgentFailed
from ..agent._inbox import NOTHING
from ..agent._initiator import enter_for_good
from ..errors import SessionLogError
from ..scope._dispatch import notify
from ..scope._waits import working_for
from ..session import TurnEnd, TurnStart
from ..values import DISPOSED, Aborted, Failed, LlmFailure, TurnEndReason
from ._failures import RequestError, failure_of
from ._receipts import LoopReceipt, TurnOutcome
from ._step import Turn

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._call import Call

logger: Final = logging.getLogger("trio_agents")

GOES_ON: Final = frozenset({"completed", "max-tokens", "refusal", "max-turn-requests"})
"""Ends after which a run goes on with what is pending."""


@final
class Driver:
    """Drives one run; made at the wake, gone when the agent is idle again."""

    __slots__ = ("_agent", "_turn", "receipts")

    def __init__(self, agent: LoopAgent) -> None:
        self._agent = agent
        self._turn: Turn | None = None
        self.receipts: list[LoopReceipt] = []

    @property
    def turn(self) -> int | None:
        """The number of the turn at work, or None."""
        return None if self._turn is None else self._turn.number

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """End the body of one call of the step at work."""
        return self._turn is not None and self._turn.cancel_tool(call_id, reason)

    # --- the run ------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:  # noqa: ASYNC910  a task; nobody awaits it
        """The task. Nothing but `Cancelled`, `SystemExit` and `KeyboardInterrupt` leaves it."""
        agent = self._agent
        enter_for_good(agent)
        try:
            with working_for(agent):
                while not agent.activity.is_cancelled and agent.wants_turn and not agent.loop.is_draining:
                    if not await self._run_turn():
                        break
        except Exception as exc:
            logger.exception("the driver of agent %r failed; the agent becomes idle", agent.id)
            if agent.driver is self:
                self._give_up(exc)
        finally:
            self._turn = None
            if agent.driver is self:
                agent.end_run()

    def _give_up(self, exc: Exception) -> None:
        """Something failed that no turn can take the blame for: tell it, and leave what is open to be closed later."""
        agent = self._agent
        failure = failure_of(exc)
        if agent.session.open_turn is not None and not agent.owes_closers:
            agent.owe(Failed(error=failure), cancelled=())
        agent.note_turn_failed()
        turn = self._turn or Turn(agent, agent.session.turn + 1)
        self._tell_failure(turn, turn.last_step, failure, exc)
        self._settle(turn, Failed(error=failure), exc)

    async def _run_turn(self) -> bool:
        """One turn. Whether the run may go on."""
        agent = self._agent
        self._turn = turn = Turn(agent, agent.session.turn + 1)
        if not self._open(turn):
            return False
        activity = agent.activity
        end: TurnEndReason | None = None
        error: Exception | None = None
        try:
            with activity.scope:
                end = await turn.work()
        except Exception as exc:  # noqa: BLE001 - how the turn ends
            error = exc
        except BaseException:
            if agent.driver is self:
                activity.record(DISPOSED, plain=False)
                self._close(turn, Aborted(reason=activity.cause or DISPOSED), None)
            raise
        if agent.driver is not self:
            return False  # the teardown has closed the turn and gone on without this task
        if activity.cause is not None:
            end = Aborted(reason=activity.cause)
        elif error is not None:
            end = Failed(error=failure_of(error))
        assert end is not None
        self._close(turn, end, error)
        return await self._after(turn, end)

    def _open(self, turn: Turn) -> bool:
        agent = self._agent
        try:
            agent.pay_owed()
            agent.driving_pen.append(TurnStart(turn=turn.number))
        except SessionLogError as exc:
            self._tell_failure(turn, None, failure_of(exc), exc)
            agent.note_turn_failed()
            return False
        return True

    async def _after(self, turn: Turn, end: TurnEndReason) -> bool:
        agent = self._agent
        goes_on = end.kind in GOES_ON and not agent.owes_closers
        if not goes_on:
            agent.note_turn_failed()
        if agent.session.is_dirty:
            try:
                await agent.session.flush()
            except SessionLogError as exc:
                logger.error(
                    "the end of turn %d of agent %r is not durable", turn.number, agent.id, exc_info=exc
                )
                if goes_on:
                    agent.note_turn_failed()
                return False
        return goes_on

    # --- closing a turn -----------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def _close(
        self, turn: Turn, end: TurnEndReason, error: BaseException | None, *, overstayed: bool = False
    ) -> None:
        """Write what closes the turn, in one append; a failed turn tells its failure in between."""
        agent = self._agent
        try:
            if turn.step is None and turn.claim is NOTHING and type(end) is not Failed:
                agent.pen.append(TurnEnd(turn=turn.number, reason=end))
            else:
                self._close_open(turn, end, error, overstayed=overstayed)
        except SessionLogError as exc:
            agent.owe(end, cancelled=turn.cancelled_ids)
            logger.error(
                "turn %d of agent %r could not be closed in its log", turn.number, agent.id, exc_info=exc
            )
        self._settle(turn, end, error)
        agent.renew_activity()

    def _close_open(
        self, turn: Turn, end: TurnEndReason, error: BaseException | None, *, overstayed: bool
    ) -> None:
        agent = self._agent
        plain = isinstance(end, Aborted) and agent.activity.is_plain
        if plain:
            turn.cancelled_ids |= {message.id for message in turn.claim.messages}
        drafts, closed = turn.closers(aborted=isinstance(end, Aborted), overstayed=overstayed)
        if isinstance(end, Failed):
            self._append(turn, drafts, closed)
            drafts, closed = [], []
            self._tell_failure(turn, turn.last_step, end.error, error)
        drafts += turn.claim.given_back(cancelled=plain)
        drafts.append(TurnEnd(turn=turn.number, reason=end))
        self._append(turn, drafts, closed)

    def _append(self, turn: Turn, drafts: list[object], closed: list[Call]) -> None:
        if drafts:
            # The driver's own pen may have been taken away by a teardown that waited long enough; this is the agent's.
            self._agent.pen.append(*drafts)
            turn.note_closed(closed)

    def _settle(self, turn: Turn, end: TurnEndReason, error: BaseException | None) -> None:
        receipts, self.receipts = self.receipts, []
        if not receipts:
            return
        outcome = TurnOutcome(turn.number, end, turn.answer, turn.usage, _original(error))
        returned = {message.id for message in turn.claim.messages}
        for receipt in receipts:
            receipt.settle_by(outcome, returned=returned, discarded=turn.cancelled_ids)

    def overstay(self) -> str:
        """The teardown does not wait any longer: close the turn on the driver's behalf. Says where it hangs."""
        agent, turn = self._agent, self._turn
        if turn is None:
            return "its driver"
        where = turn.where()
        if agent.session.open_turn is not None:
            self._close(turn, Aborted(reason=agent.activity.cause or DISPOSED), None, overstayed=True)
        return where

    def _tell_failure(
        self, turn: Turn, step: int | None, failure: LlmFailure, error: BaseException | None
    ) -> None:
        listeners = self._agent.scope.listeners(AgentFailed)
        if listeners:
            notify(
                listeners,
                AgentFailed(
                    agent=self._agent, turn=turn.number, step=step, failure=failure, error=_original(error)
                ),
            )


def _original(error: BaseException | None) -> BaseException | None:
    """What the adapter raised, for a failed request; that may be nothing."""
    return error.error if isinstance(error, RequestError) else error
