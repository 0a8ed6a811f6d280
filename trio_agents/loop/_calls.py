"""The tool calls of one step: who runs when, and what each leaves in the log.

The model, once.

* Calls run in groups. Neighbours that are all *parallel* form a group; any other call is a group of its own. A group
  starts when the results of the one before it are committed.
* In a group at most `max_parallel_tools` bodies run. A place is free as soon as a body has ended.
* Results are committed in the model's order, whatever the order in which bodies end.
* A call goes through: `tool/call`, arguments, the `AroundTool` chain, `tool/started` with the durability barrier, the
  body, `tool/result`. Where it stands when a turn is broken off decides what closes it.
* Nothing that a body raises leaves this module, except that `FatalToolError` ends the turn, and that a failure of the
  log itself does: then nothing new starts, running bodies are waited for, and the first error alone is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

import trio
from msgspec import UNSET

from ..agent import ToolFinished
from ..errors import FatalToolError, MessageError, SessionLogError
from ..scope._dispatch import notify
from ..session import Draft, ToolCall, ToolFailure, ToolResult
from ..tools import ToolReturn, error_result
from ..values import Message, ToolCallBlock, ToolResultBlock, ToolSource, mint_id
from ._call import ABORTED, BEFORE_DISPATCH, NOT_STARTED, OUTCOME_UNKNOWN, Body, Call, Stage, failed
from ._dispatch import Dispatch, fatal_in

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._pipeline import Pipeline

logger: Final = logging.getLogger("trio_agents")


@final
class Calls:
    """The calls of one step, in the model's order."""

    __slots__ = ("_agent", "_committed", "_dispatch", "_error", "calls", "concludes", "step", "turn")

    def __init__(
        self, agent: LoopAgent, pipeline: Pipeline, turn: int, step: int, blocks: Sequence[ToolCallBlock]
    ) -> None:
        self._agent = agent
        self._dispatch = Dispatch(agent, pipeline, turn, step)
        self.turn = turn
        self.step = step
        self.calls = [Call(block, pipeline.offers.get(block.name)) for block in blocks]
        self.concludes = False
        self._committed = 0
        self._error: Exception | None = None

    # --- running ------------------------------------------------------------------------------

    async def run(self) -> None:  # noqa: ASYNC910  there is a call, and a call is one
        """Run them all. A checkpoint.

        Raises:
            FatalToolError: a tool ended the turn.
            StorageError: the log, or a barrier, failed.
        """
        start = 0
        while start < len(self.calls):
            end = start + 1
            if self.calls[start].is_parallel:
                while end < len(self.calls) and self.calls[end].is_parallel:
                    end += 1
            await self._run_group(self.calls[start:end])
            start = end
            await trio.lowlevel.checkpoint_if_cancelled()

    async def _run_group(self, group: list[Call]) -> None:
        width = min(self._agent.options.max_parallel_tools, len(group))
        waiting = iter(group)
        if width == 1:
            await self._work(waiting)
        else:
            async with trio.open_nursery() as nursery:
                for number in range(width):
                    nursery.start_soon(self._work, waiting, name=f"tool worker {number} of {self._agent.id}")
        if self._error is not None:
            raise self._error

    async def _work(self, waiting: Iterator[Call]) -> None:
        """Take calls until there are none left, or one failed in a way that ends the turn."""
        for call in waiting:
            await trio.lowlevel.checkpoint_if_cancelled()
            if self._error is not None:
                return
            try:
                await self._run_one(call)
                self._commit()
            except Exception as exc:  # noqa: BLE001 - the first one is raised when all bodies have ended
                self._break_off(exc)

    def _break_off(self, exc: Exception) -> None:
        if self._error is None:
            self._error = exc
        if isinstance(exc, FatalToolError):
            for sibling in self.calls:
                sibling.end(ABORTED)

    async def _run_one(self, call: Call) -> None:
        self._log_call(call)
        fatal: FatalToolError | None = None
        call.body = body = Body()
        try:
            with body.scope:
                call.result = await self._dispatch.result(call)
        except FatalToolError as exc:
            fatal = exc
            call.result = error_result(exc)
        except Exception as exc:  # noqa: BLE001 - what is left of a group whose cancellation the scope took
            fatal = fatal_in(exc)
            call.result = error_result(exc)
        if call.broken is not None:
            call.result = NOT_STARTED
        elif call.result is None:  # only a cancel of this very call leaves the block without a result
            call.result = OUTCOME_UNKNOWN if call.is_abandoned else body.verdict or ABORTED
        call.stage = Stage.DONE
        if call.broken is not None or fatal is not None:
            self._commit()
            raise call.broken or fatal  # type: ignore[misc] # one of them is there

    def _log_call(self, call: Call) -> None:
        [event] = self._agent.driving_pen.append(self._called(call))
        call.seq = event.seq
        call.stage = Stage.CALLED

    def _called(self, call: Call) -> ToolCall:
        block = call.block
        return ToolCall(
            turn=self.turn,
            step=self.step,
            call_id=block.id,
            name=block.name,
            arguments=block.arguments,
            tracked=True,
        )

    # --- results ------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Log the results that are next in the model's order, as many as are known."""
        ready = []
        for call in self.calls[self._committed :]:
            if call.stage is not Stage.DONE:
                break
            ready.append(call)
        if not ready:
            return
        self._agent.driving_pen.append(*(self._result(call) for call in ready))
        self._committed += len(ready)
        for call in ready:
            call.stage = Stage.COMMITTED
            self._after_commit(call)

    def _after_commit(self, call: Call) -> None:
        result = call.result
        assert result is not None
        self.concludes = self.concludes or result.concludes
        for message in (*(call.contexts or ()), *result.contexts):
            try:
                self._agent.inbox.insert(message, "next-step")
            except MessageError as exc:
                logger.error("a context of tool call %s was dropped: %s", call.block.id, exc)
        listeners = self._agent.scope.listeners(ToolFinished)
        if listeners:
            notify(listeners, ToolFinished(agent=self._agent, call=call.block, result=result))

    def _result(self, call: Call) -> Draft:
        block, result = call.block, call.result
        assert result is not None
        answer = ToolResultBlock(tool_call_id=block.id, content=result.content, is_error=result.is_error)
        fact = ToolResult(
            turn=self.turn,
            step=self.step,
            message=Message(
                id=mint_id(), role="user", content=(answer,), source=ToolSource(call_id=block.id)
            ),
            error=UNSET
            if result.error is None
            else ToolFailure(name=result.error.name, code=result.error.code),
            meta=UNSET if result.meta is None else result.meta,
        )
        return Draft(fact, "append", UNSET if call.seq is None else (call.seq,))

    # --- breaking off -------------------------------------------------------------------------

    def closers(
        self, seq: int, *, aborted: bool, overstayed: bool = False
    ) -> tuple[list[object], list[Call]]:
        """What closes the calls that have no result in the log, in the model's order, and those calls.

        A body that ended all the same keeps its real result.

        Args:
            seq: the number that the first of them will get.
            aborted: whether a cancel ended the turn; otherwise it failed.
            overstayed: whether bodies may still be at work, because the teardown did not wait for them any longer.
        """
        drafts: list[object] = []
        closed = []
        for call in self.calls[self._committed :]:
            if call.stage is Stage.COMMITTED:
                continue
            if call.stage is not Stage.DONE:
                call.result = self._verdict(call, aborted=aborted, overstayed=overstayed)
            if call.stage is Stage.NEW:
                call.seq = seq + len(drafts)
                drafts.append(self._called(call))
            drafts.append(self._result(call))
            closed.append(call)
        return drafts, closed

    def _verdict(self, call: Call, *, aborted: bool, overstayed: bool) -> ToolReturn:
        if call.stage is Stage.STARTED:
            return ABORTED if aborted and not overstayed and not call.is_abandoned else OUTCOME_UNKNOWN
        if aborted or isinstance(self._error, FatalToolError):
            return BEFORE_DISPATCH
        return OUTCOME_UNKNOWN if call.stage is Stage.CALLED else NOT_STARTED

    def told(self, closed: list[Call]) -> None:
        """The closers are in the log: stage what the calls left behind, and tell their results."""
        for call in closed:
            call.stage = Stage.COMMITTED
            try:
                self._after_commit(call)
            except SessionLogError:
                logger.exception("what tool call %s left behind was lost", call.block.id)
        self._committed = len(self.calls)

    # --- for others ---------------------------------------------------------------------------

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """End the body of one call."""
        text = f"The call was cancelled: {reason}." if reason else "The call was cancelled while it ran."
        verdict = failed(text, "AbortError", "ABORTED")
        return any(call.end(verdict) for call in self.calls if call.block.id == call_id)

    def running_names(self) -> list[str]:
        """The names of the tools whose bodies are at work."""
        return [call.block.name for call in self.calls if call.stage is Stage.STARTED]
