"""The steps of one turn: claim, prompt, `PreStep`, request until one succeeds, tool calls.

This is what runs inside the activity's cancel scope. It never closes what it opened except on the way of success:
whatever breaks it off, `_driver.py` writes the closers from the state that is left here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio
from msgspec import UNSET, UnsetType

from ..agent import Enter, PreStep, Reject, RequestFailed, Retry, TurnStopping
from ..agent._inbox import NOTHING, Claim
from ..errors import UsageError
from ..session import AssistantMessage, Draft, LlmRetry, LlmRetryStarted, StepEnd, StepStart, Target
from ..values import (
    BLOCKED,
    COMPLETED,
    MAX_TOKENS,
    MAX_TURN_REQUESTS,
    REFUSAL,
    FinishReason,
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
from ._calls import Calls
from ._failures import RequestError
from ._receipts import NO_TOKENS
from ._request import Attempt, prepare

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._call import Call
    from ._pipeline import Pipeline


@final
class Turn:
    """One turn at work: what it has open, and what has come of it.

    Attributes:
        number: its number.
        step: the step that is open in the log, or None.
        last_step: the last step that was opened, or None.
        claim: what it has claimed and not yet put into a step.
        cancelled_ids: claimed messages that were recorded as cancelled.
        answer: the last assistant message.
        usage: the tokens of all its requests together.
    """

    __slots__ = (
        "_agent", "_attempt", "_calls", "_continuations", "_decided", "_pen", "_requests", "answer", "cancelled_ids",
        "claim", "last_step", "number", "step", "usage",
    )  # fmt: skip

    def __init__(self, agent: LoopAgent, number: int) -> None:
        self._agent = agent
        self._pen = agent.driving_pen
        self.number = number
        self.step: int | None = None
        self.last_step: int | None = None
        self.claim: Claim = NOTHING
        self.cancelled_ids: set[str] = set()
        self.answer: Message | None = None
        self.usage = NO_TOKENS
        self._requests = 0
        self._continuations = 0
        self._decided: TurnEndReason = COMPLETED
        self._attempt: Attempt | None = None
        self._calls: Calls | None = None

    # --- the steps ----------------------------------------------------------------------------

    async def work(self) -> TurnEndReason:
        """Do the steps; how the turn ends if nothing goes wrong. A checkpoint, unless there is nothing to do.

        Raises:
            Exception: what ends the turn as failed.
        """
        agent = self._agent
        await trio.lowlevel.checkpoint_if_cancelled()
        must_step = agent.take_continuation()
        self._take("next-step" if must_step else "next-turn")
        if not self.claim.messages and not must_step:
            return COMPLETED
        step = 0
        while True:
            step += 1
            pipeline = agent.lease_pipeline()
            await pipeline.assemble(self.number, step)
            messages = await self._propose(pipeline, step)
            if messages is None:
                return BLOCKED
            if not messages and not must_step:
                return self._decided
            self._open_step(step, messages)
            finish, calls = await self._run_step(pipeline, step)
            await self._end_step(step)
            if isinstance(finish, Refused):
                return REFUSAL
            must_step = calls is not None and not calls.concludes
            end = None if must_step or agent.inbox.next_step else await self._stop(pipeline, calls)
            if end is not None:
                return end
            if self._requests >= agent.options.max_requests:
                return MAX_TURN_REQUESTS
            self._calls = None
            self._take("next-step")

    def _take(self, target: Target) -> None:
        # Whatever comes to next-step from here on opens a turn only if it wakes: an inject does not.
        self._agent.unwoken()
        self.claim = self._agent.inbox.claim(target, self.number)

    async def _propose(self, pipeline: Pipeline, step: int) -> tuple[UserMessage, ...] | None:
        """What enters the step, or None if it was rejected. What is left out is recorded as cancelled."""
        claim = self.claim
        if not pipeline.listeners(PreStep):
            await trio.lowlevel.checkpoint_if_cancelled()
            return claim.messages
        proposal = PreStep(agent=self._agent, turn=self.number, step=step, batch=claim.messages)
        answer: object = await pipeline.around(proposal, _enter)
        await trio.lowlevel.checkpoint_if_cancelled()
        if isinstance(answer, Reject):
            self._drop(claim)
            return None
        if not isinstance(answer, Enter):
            raise UsageError(f"PreStep listeners answer with Enter or Reject, not {type(answer).__name__}")
        messages = tuple(answer.messages)
        for message in messages:
            if not isinstance(message, UserMessage):
                raise UsageError(f"Enter holds UserMessages, not {type(message).__name__}")
            self._agent.check_message(message)
        self._drop(claim.without({message.id for message in messages}))
        return messages

    def _drop(self, claim: Claim) -> None:
        """Record claimed messages that enter no step as returned and cancelled."""
        splices = claim.given_back(cancelled=True)
        if splices:
            self._pen.append(*splices)
            ids = {message.id for message in claim.messages}
            self.cancelled_ids |= ids
            self.claim = self.claim.without(ids)

    def _open_step(self, step: int, messages: tuple[UserMessage, ...]) -> None:
        self._pen.append(StepStart(turn=self.number, step=step), *messages)
        self.step = self.last_step = step
        self.claim = NOTHING

    async def _run_step(self, pipeline: Pipeline, step: int) -> tuple[FinishReason | None, Calls | None]:
        """Request and tool calls of an open step: how the model finished, and the calls, if there were any."""
        attempt = await self._request(pipeline, step)
        message = self._log_answer(attempt.answer(), attempt)
        finish = attempt.finish
        if isinstance(finish, MaxTokens):
            self._decided = MAX_TOKENS
            return finish, None
        if isinstance(finish, Refused):
            return finish, None
        blocks = [block for block in message.content if type(block) is ToolCallBlock]
        if not blocks:
            return finish, None
        self._calls = calls = Calls(self._agent, pipeline, self.number, step, blocks)
        await calls.run()
        return finish, calls

    def _log_answer(self, draft: Draft, attempt: Attempt) -> Message:
        self._pen.append(draft)
        self._attempt = None
        return self._answered(draft, attempt)

    def _answered(self, draft: Draft, attempt: Attempt) -> Message:
        assert type(draft.data) is AssistantMessage
        message = draft.data.message
        self.answer = message
        usage = attempt.assembly.usage
        if usage is not None:
            self.usage = add_usage(self.usage, usage)
        return message

    async def _end_step(self, step: int) -> None:
        self._pen.append(StepEnd(turn=self.number, step=step))
        self.step = None
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _stop(self, pipeline: Pipeline, calls: Calls | None) -> TurnEndReason | None:
        """How the turn ends now that nothing is left to do, or None if a `TurnStopping` listener keeps it going."""
        agent = self._agent
        if calls is not None:
            return self._decided
        if pipeline.listeners(TurnStopping):
            await pipeline.serial(TurnStopping(agent=agent, turn=self.number))
            await trio.lowlevel.checkpoint_if_cancelled()
        if not agent.inbox.next_step:
            return self._decided
        self._continuations += 1
        if self._continuations > agent.options.max_stop_continuations:
            agent.unwoken()  # what the hook adds stays pending; it must not open turn after turn
            return MAX_TURN_REQUESTS
        return None

    # --- requests -----------------------------------------------------------------------------

    async def _request(self, pipeline: Pipeline, step: int) -> Attempt:
        """Send the step's request until it succeeds, or nobody wants to try again."""
        agent = self._agent
        retries: dict[tuple[str, str], tuple[str, int]] = {}
        number = 0
        while True:
            number += 1
            route, request = await prepare(agent, pipeline, self.number, step, number)
            header = agent.session.request_header()
            assert header is not None
            self._requests += 1
            self._attempt = attempt = Attempt(agent, self.number, step, header.config)
            error = await attempt.run(route, request)
            failure = attempt.failure
            if failure is None:
                return attempt
            proposal = RequestFailed(
                agent=agent,
                turn=self.number,
                step=step,
                attempt=number,
                failure=failure,
                had_output=attempt.had_output,
            )
            answer: object = await pipeline.around(proposal, _give_up)
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
        pen = self._pen
        retry_id, count = retries.get((provider, retry.policy_key), (mint_id(), 0))
        count += 1
        retries[provider, retry.policy_key] = (retry_id, count)
        pen.append(
            LlmRetry(
                retry_id=retry_id,
                turn=self.number,
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
        pen.append(LlmRetryStarted(retry_id=retry_id, turn=self.number, step=step, retry=count))

    # --- breaking off -------------------------------------------------------------------------

    def closers(self, *, aborted: bool, overstayed: bool) -> tuple[list[object], list[Call]]:
        """What closes the open step, in order, and the calls among it. Nothing if no step is open.

        Args:
            aborted: whether a cancel ended the turn; then what the model had said so far is kept.
            overstayed: whether bodies may still be at work.
        """
        drafts: list[object] = []
        closed: list[Call] = []
        if self.step is None:
            return drafts, closed
        attempt = self._attempt
        partial = attempt.interrupted() if aborted and attempt is not None else None
        if partial is not None and attempt is not None:
            drafts.append(partial)
            self._answered(partial, attempt)
        if self._calls is not None:
            seq = len(self._agent.session.events) + len(drafts)
            more, closed = self._calls.closers(seq, aborted=aborted, overstayed=overstayed)
            drafts += more
        drafts.append(StepEnd(turn=self.number, step=self.step))
        return drafts, closed

    def note_closed(self, closed: list[Call]) -> None:
        """The closers of the step are in the log."""
        self.step = None
        self._attempt = None
        if self._calls is not None:
            self._calls.told(closed)

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """End the body of one call of the step at work."""
        return self._calls is not None and self._calls.cancel_tool(call_id, reason)

    def where(self) -> str:
        """Where it is, for people."""
        names = [] if self._calls is None else self._calls.running_names()
        return f"turn {self.number}, tool {', '.join(names)}" if names else f"turn {self.number}"


async def _enter(proposal: PreStep) -> Enter | Reject:
    return Enter(messages=proposal.batch)


async def _give_up(proposal: RequestFailed) -> Retry | None:
    return None


def add_usage(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    """The tokens of both together; a count that neither has stays absent."""
    return TokenUsage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_read_tokens=_total(one.cache_read_tokens, other.cache_read_tokens),
        cache_write_tokens=_total(one.cache_write_tokens, other.cache_write_tokens),
        reasoning_tokens=_total(one.reasoning_tokens, other.reasoning_tokens),
    )


def _total(first: int | UnsetType, second: int | UnsetType) -> int | UnsetType:
    if first is UNSET:
        return second
    return first if second is UNSET else first + second
