"""One run of an agent: turns, their steps, and how each of them is closed.

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
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, final

import trio
from msgspec import UNSET

from ..agent import AgentFailed, Enter, PreStep, Reject, RequestFailed, Retry, TurnStopping
from ..agent._inbox import NOTHING, Claim
from ..agent._initiator import enter_for_good
from ..errors import SessionLogError, UsageError
from ..scope._dispatch import around, notify, serial
from ..session._events import LlmRetry, LlmRetryStarted, StepEnd, StepStart, TurnEnd, TurnStart
from ..values import (
    BLOCKED,
    COMPLETED,
    DISPOSED,
    MAX_TOKENS,
    MAX_TURN_REQUESTS,
    REFUSAL,
    Aborted,
    Failed,
    LlmFailure,
    MaxTokens,
    Message,
    Refused,
    TokenUsage,
    ToolCallBlock,
    TurnEndReason,
    UserMessage,
    mint_id,
)
from ._calls import Call, Calls
from ._failures import RequestError, failure_of
from ._inside import working_for
from ._receipts import NO_TOKENS, LoopReceipt, TurnOutcome
from ._request import Attempt, prepare

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._pipeline import Pipeline

logger: Final = logging.getLogger("trio_agents")

GOES_ON: Final = frozenset({"completed", "max-tokens", "refusal", "max-turn-requests"})
"""Ends after which a run goes on with what is pending."""


@final
class Driver:
    """Drives one run; made at the wake, gone when the agent is idle again."""

    __slots__ = (
        "_agent", "_answer", "_attempt", "_calls", "_claim", "_cancelled_ids", "_requests", "_step", "_task", "_turn",
        "_usage", "receipts",
    )  # fmt: skip

    def __init__(self, agent: LoopAgent) -> None:
        self._agent = agent
        self._task: trio.lowlevel.Task | None = None
        self.receipts: list[LoopReceipt] = []
        self._begin(0)

    def _begin(self, turn: int) -> None:
        """Forget the last turn."""
        self._turn = turn
        self._step: int | None = None
        self._claim: Claim = NOTHING  # claimed, and in no step yet
        self._cancelled_ids: set[str] = set()
        self._requests = 0
        self._attempt: Attempt | None = None
        self._calls: Calls | None = None
        self._answer: Message | None = None
        self._usage = NO_TOKENS

    @property
    def turn(self) -> int:
        """The number of the turn at work."""
        return self._turn

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """End the body of one call of the step at work."""
        return self._calls is not None and self._calls.cancel_tool(call_id, reason)

    # --- the run ------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The task. Nothing but `Cancelled`, `SystemExit` and `KeyboardInterrupt` leaves it."""
        agent = self._agent
        enter_for_good(agent)
        self._task = trio.lowlevel.current_task()
        try:
            with working_for(agent):
                while not agent.activity.is_cancelled and agent.wants_turn and not agent.loop.is_draining:
                    if not await self._run_turn():
                        break
        except Exception:
            logger.exception("the driver of agent %r failed; the agent becomes idle", agent.id)
        finally:
            if agent.driver is self:
                agent.end_run()

    async def _run_turn(self) -> bool:
        """One turn. Whether the run may go on."""
        agent = self._agent
        self._begin(agent.session.turn + 1)
        if not self._open_turn():
            return False
        activity = agent.activity
        end: TurnEndReason | None = None
        error: Exception | None = None
        try:
            with activity.scope:
                end = await self._steps()
        except Exception as exc:
            error = exc
        except BaseException:
            if agent.driver is not self:
                raise
            activity.record(DISPOSED, plain=False)
            self._close_turn(Aborted(reason=activity.cause or DISPOSED), None)
            raise
        if agent.driver is not self:
            return False  # the teardown has closed the turn and gone on without this task
        if activity.cause is not None:
            end = Aborted(reason=activity.cause)
        elif error is not None:
            end = Failed(error=failure_of(error))
        assert end is not None
        self._close_turn(end, error)
        return await self._after_turn(end)

    def _open_turn(self) -> bool:
        agent = self._agent
        try:
            agent.pay_owed()
            agent.driving_pen.append(TurnStart(turn=self._turn))
        except SessionLogError as exc:
            self._tell_failure(None, failure_of(exc), exc)
            agent.note_turn_failed()
            return False
        return True

    async def _after_turn(self, end: TurnEndReason) -> bool:
        agent = self._agent
        goes_on = end.kind in GOES_ON and not agent.owes_closers
        if not goes_on:
            agent.note_turn_failed()
        if agent.session.is_dirty:
            try:
                await agent.session.flush()
            except SessionLogError as exc:
                logger.error(
                    "the end of turn %d of agent %r is not durable", self._turn, agent.id, exc_info=exc
                )
                if goes_on:
                    agent.note_turn_failed()
                return False
        return goes_on

    # --- closing a turn -----------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def _close_turn(
        self, end: TurnEndReason, error: BaseException | None, *, overstayed: bool = False
    ) -> None:
        """Write what closes the turn, in one append; a failed turn tells its failure in between."""
        agent = self._agent
        plain = agent.activity.is_plain and isinstance(end, Aborted)
        if plain:
            self._cancelled_ids |= {message.id for message in self._claim.messages}
        try:
            drafts, closed = self._step_closers(end, overstayed=overstayed)
            if isinstance(end, Failed):
                self._append_closers(drafts, closed)
                drafts, closed = [], []
                self._tell_failure(self._last_step, end.error, error)
            drafts += self._claim.given_back(cancelled=plain)
            drafts.append(TurnEnd(turn=self._turn, reason=end))
            self._append_closers(drafts, closed)
        except SessionLogError as exc:
            agent.owe(end)
            logger.error(
                "turn %d of agent %r could not be closed in its log", self._turn, agent.id, exc_info=exc
            )
        outcome = TurnOutcome(self._turn, end, self._answer, self._usage, error)
        receipts, self.receipts = self.receipts, []
        agent.settle_claimed(receipts, outcome, {m.id for m in self._claim.messages}, self._cancelled_ids)
        agent.renew_activity()

    @property
    def _last_step(self) -> int | None:
        return self._step if self._step is not None else (self._calls.step if self._calls else None)

    def _step_closers(self, end: TurnEndReason, *, overstayed: bool) -> tuple[list[Any], list[Call]]:
        drafts: list[Any] = []
        closed: list[Call] = []
        if self._step is None:
            return drafts, closed
        aborted = isinstance(end, Aborted)
        if aborted and self._attempt is not None:
            partial = self._attempt.interrupted()
            if partial is not None:
                drafts.append(partial)
                self._answer = partial.data.message
                self._add_usage(self._attempt)
        if self._calls is not None:
            seq = len(self._agent.session.events) + len(drafts)
            more, closed = self._calls.closers(seq, aborted=aborted, overstayed=overstayed)
            drafts += more
        drafts.append(StepEnd(turn=self._turn, step=self._step))
        return drafts, closed

    def _append_closers(self, drafts: list[Any], closed: list[Call]) -> None:
        if not drafts:
            return
        # The driver's own pen may have been taken away by a teardown that waited long enough; this is the agent's.
        self._agent.pen.append(*drafts)
        self._step = None
        if self._calls is not None:
            self._calls.told(closed)

    def overstay(self) -> str:
        """The teardown does not wait any longer: close the turn on the driver's behalf. Says where it hangs."""
        agent = self._agent
        where = f"turn {self._turn}"
        if self._calls is not None:
            names = [call.block.name for call in self._calls.calls if call.offer and call.offer.running]
            if names:
                where += f", tool {', '.join(names)}"
        if agent.session.open_turn is not None:
            self._close_turn(Aborted(reason=agent.activity.cause or DISPOSED), None, overstayed=True)
        return where

    def _tell_failure(self, step: int | None, failure: LlmFailure, error: BaseException | None) -> None:
        if isinstance(error, RequestError):
            error = error.error
        listeners = self._agent.scope.listeners(AgentFailed)
        if listeners:
            notify(
                listeners,
                AgentFailed(agent=self._agent, turn=self._turn, step=step, failure=failure, error=error),
            )

    # --- steps --------------------------------------------------------------------------------

    async def _steps(self) -> TurnEndReason:
        """The steps of a turn, and how it ends if nothing goes wrong."""
        agent, inbox = self._agent, self._agent.inbox
        await trio.lowlevel.checkpoint_if_cancelled()
        must_step = agent.take_continuation()
        self._take("next-turn")
        if not self._claim.messages and not must_step:
            return COMPLETED
        decided: TurnEndReason = COMPLETED
        continuations = 0
        step = 0
        while True:
            step += 1
            pipeline = agent.lease_pipeline()
            system = await pipeline.system(self._turn, step)
            messages = await self._propose(pipeline, step)
            if messages is None:
                return BLOCKED
            if not messages and not must_step:
                return decided
            if self._requests >= agent.options.max_requests:
                return MAX_TURN_REQUESTS
            self._open_step(step, messages)
            finish, calls = await self._work(pipeline, system, step)
            if isinstance(finish, MaxTokens):
                decided = MAX_TOKENS
            ran_tools = calls is not None
            concluded = calls is not None and calls.concludes
            agent.driving_pen.append(StepEnd(turn=self._turn, step=step))
            self._step = None
            self._attempt = None
            await trio.lowlevel.checkpoint_if_cancelled()
            if isinstance(finish, Refused):
                return REFUSAL
            must_step = ran_tools and not concluded
            if not must_step and not inbox.next_step:
                if concluded:
                    return decided
                await serial(pipeline.listeners(TurnStopping), TurnStopping(agent=agent, turn=self._turn))
                await trio.lowlevel.checkpoint_if_cancelled()
                if not inbox.next_step:
                    return decided
                continuations += 1
                if continuations > agent.options.max_stop_continuations:
                    agent.unwoken()  # what the hook adds stays pending; it must not open turn after turn
                    return MAX_TURN_REQUESTS
            if self._requests >= agent.options.max_requests:
                return MAX_TURN_REQUESTS
            self._calls = None
            self._take("next-step")

    def _take(self, target: Any) -> None:
        agent = self._agent
        if agent.inbox.next_step:
            agent.unwoken()
        self._claim = agent.inbox.claim(target, self._turn)

    async def _propose(self, pipeline: Pipeline, step: int) -> tuple[UserMessage, ...] | None:
        """What enters the step, or None if it was rejected. What is left out is recorded as cancelled."""
        claim = self._claim
        messages: Iterable[UserMessage] = claim.messages
        listeners = pipeline.listeners(PreStep)
        if listeners:
            proposal = PreStep(agent=self._agent, turn=self._turn, step=step, batch=claim.messages)
            answer = await around(listeners, proposal, _enter)
            await trio.lowlevel.checkpoint_if_cancelled()
            if isinstance(answer, Reject):
                self._drop(claim)
                return None
            if not isinstance(answer, Enter):
                raise UsageError(
                    f"PreStep listeners answer with Enter or Reject, not {type(answer).__name__}"
                )
            messages = answer.messages
            left_out = claim.without({message.id for message in messages})
            if left_out.messages:
                self._drop(left_out)
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        return tuple(messages)

    def _drop(self, claim: Claim) -> None:
        """Record claimed messages that enter no step as returned and cancelled."""
        splices = claim.given_back(cancelled=True)
        if splices:
            self._agent.driving_pen.append(*splices)
        ids = {message.id for message in claim.messages}
        self._cancelled_ids |= ids
        self._claim = self._claim.without(ids)

    def _open_step(self, step: int, messages: tuple[UserMessage, ...]) -> None:
        self._agent.driving_pen.append(StepStart(turn=self._turn, step=step), *messages)
        self._step = step
        self._claim = NOTHING

    async def _work(self, pipeline: Pipeline, system: str | None, step: int) -> tuple[Any, Calls | None]:
        """Request and tool calls of an open step: how the model finished, and the calls, if there were any."""
        agent = self._agent
        attempt = await self._request(pipeline, system, step)
        draft = attempt.answer()
        message: Message = draft.data.message
        agent.driving_pen.append(draft)
        self._answer = message
        self._attempt = None
        self._add_usage(attempt)
        finish = attempt.finish
        if isinstance(finish, MaxTokens | Refused):
            return finish, None
        blocks = [block for block in message.content if type(block) is ToolCallBlock]
        if not blocks:
            return finish, None
        self._calls = calls = Calls(agent, pipeline, self._turn, step, blocks)
        await calls.run()
        return finish, calls

    def _add_usage(self, attempt: Attempt) -> None:
        usage = attempt.assembly.usage
        if usage is not None:
            self._usage = add_usage(self._usage, usage)

    # --- requests -----------------------------------------------------------------------------

    async def _request(self, pipeline: Pipeline, system: str | None, step: int) -> Attempt:
        """Send the step's request until it succeeds, or nobody wants to try again."""
        agent = self._agent
        retries: dict[tuple[str, str], tuple[str, int]] = {}
        number = 0
        while True:
            number += 1
            route, request = await prepare(agent, pipeline, system, self._turn, step, number)
            header = agent.session.request_header()
            assert header is not None
            self._requests += 1
            self._attempt = attempt = Attempt(agent, self._turn, step, header.config)
            error = await attempt.run(route, request)
            failure = attempt.failure
            if failure is None:
                return attempt
            proposal = RequestFailed(
                agent=agent,
                turn=self._turn,
                step=step,
                attempt=number,
                failure=failure,
                had_output=attempt.had_output,
            )
            answer = await around(pipeline.listeners(RequestFailed), proposal, _give_up)
            await trio.lowlevel.checkpoint_if_cancelled()
            if answer is None or self._requests >= agent.options.max_requests:
                raise RequestError(failure, error)
            if not isinstance(answer, Retry):
                raise UsageError(
                    f"RequestFailed listeners answer with Retry or None, not {type(answer).__name__}"
                )
            self._attempt = None
            await self._back_off(answer, header.config.provider, step, failure, retries)

    async def _back_off(
        self,
        retry: Retry,
        provider: str,
        step: int,
        failure: LlmFailure,
        retries: dict[tuple[str, str], tuple[str, int]],
    ) -> None:
        agent = self._agent
        retry_id, count = retries.get((provider, retry.policy_key), (mint_id(), 0))
        count += 1
        retries[provider, retry.policy_key] = (retry_id, count)
        agent.driving_pen.append(
            LlmRetry(
                retry_id=retry_id,
                turn=self._turn,
                step=step,
                provider=provider,
                mode="always" if retry.max_retries is None else "normal",
                policy_key=retry.policy_key,
                retry=count,
                max_retries=UNSET if retry.max_retries is None else retry.max_retries,
                delay_ms=min(max(0, round(retry.delay * 1000)), 2**31 - 1),
                failure=failure,
            )
        )
        await trio.sleep(retry.delay)
        agent.driving_pen.append(LlmRetryStarted(retry_id=retry_id, turn=self._turn, step=step, retry=count))


async def _enter(proposal: PreStep) -> Enter | Reject:
    return Enter(messages=proposal.batch)


async def _give_up(proposal: RequestFailed) -> Retry | None:
    return None


def add_usage(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    """The tokens of both together; a count that neither has stays absent."""

    def total(name: str) -> Any:
        first, second = getattr(one, name), getattr(other, name)
        if first is UNSET and second is UNSET:
            return UNSET
        return (0 if first is UNSET else first) + (0 if second is UNSET else second)

    return TokenUsage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_read_tokens=total("cache_read_tokens"),
        cache_write_tokens=total("cache_write_tokens"),
        reasoning_tokens=total("reasoning_tokens"),
    )
