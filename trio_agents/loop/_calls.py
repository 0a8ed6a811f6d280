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

import enum
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import trio
from msgspec import UNSET

from ..agent import AroundTool, ToolFinished
from ..agent._scope import Offer
from ..errors import FatalToolError, SessionLogError, ToolArgumentsError, UsageError
from ..scope._dispatch import around, notify
from ..session._events import Draft, ToolCall, ToolFailure, ToolResult, ToolStarted
from ..tools import ToolContext, ToolReturn, error_result
from ..values import Message, ToolCallBlock, ToolResultBlock, ToolSource, UserMessage, mint_id

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._pipeline import Pipeline


logger: Final = logging.getLogger("trio_agents")


class Stage(enum.Enum):
    """How far a call has come."""

    NEW = "nothing logged"
    CALLED = "tool/call logged"
    STARTED = "body running, or about to"
    DONE = "result known"
    COMMITTED = "tool/result logged"


@final
class Call:
    """One call of one step."""

    __slots__ = (
        "_over",
        "arguments",
        "block",
        "broken",
        "contexts",
        "fault",
        "offer",
        "result",
        "scope",
        "seq",
        "stage",
        "verdict",
    )

    def __init__(self, block: ToolCallBlock, offer: Offer | None) -> None:
        self.block = block
        self.offer = offer
        self.arguments: Mapping[str, object] | None = None
        self.fault: ToolArgumentsError | None = None
        self.broken: SessionLogError | None = None
        self.stage = Stage.NEW
        self.seq: int | None = None
        self.result: ToolReturn | None = None
        self.contexts: list[UserMessage] | None = None
        self.scope: trio.CancelScope | None = None
        self.verdict: ToolReturn | None = None  # what the call ends with if its own scope is cancelled
        self._over: trio.Event | None = None
        if offer is not None:
            try:
                self.arguments = offer.tool.parse(block.arguments)
            except ToolArgumentsError as exc:
                self.fault = exc

    @property
    def is_parallel(self) -> bool:
        """Whether it may run beside its neighbours; whatever is unclear runs alone."""
        return (
            self.offer is not None
            and self.arguments is not None
            and self.offer.tool.is_parallel(self.arguments)
        )

    @property
    def is_abandoned(self) -> bool:
        """Whether a cancelled body may still be at work, in a thread that was left to itself."""
        return (
            self.stage is Stage.STARTED
            and self.offer is not None
            and self.offer.tool.is_threaded
            and self.offer.tool.abandon_on_cancel
        )

    def end(self, verdict: ToolReturn) -> bool:
        """Cancel the body; False if it is not running."""
        if self.scope is None or self.stage in {Stage.DONE, Stage.COMMITTED}:
            return False
        if self.verdict is None:
            self.verdict = verdict
        self.scope.cancel(
            reason=f"tool call {self.block.id}: {verdict.error.code if verdict.error else 'ended'}"
        )
        return True

    def unload(self) -> None:
        """The owner of its tool is closing."""
        self.end(UNLOADED)

    async def over(self) -> None:
        """Wait until the body has ended."""
        if self._over is None:
            self._over = trio.Event()
        await self._over.wait()

    def note_over(self) -> None:
        """The body has ended."""
        if self._over is not None:
            self._over.set()


def _failed(text: str, name: str, code: str) -> ToolReturn:
    return ToolReturn.failed(text, name=name, code=code)


ABORTED: Final = _failed("The call was cancelled while it ran.", "AbortError", "ABORTED")
BEFORE_DISPATCH: Final = _failed(
    "The call was cancelled before it ran.", "AbortError", "ABORTED_BEFORE_DISPATCH"
)
UNLOADED: Final = _failed(
    "The tool was removed; the call did not complete.", "ToolUnloadedError", "TOOL_UNLOADED"
)
NOT_STARTED: Final = _failed(
    "The call did not run; it may be made again.", "ToolNotStartedError", "TOOL_NOT_STARTED"
)
OUTCOME_UNKNOWN: Final = _failed(
    "It is not known whether the call had its effect. Find out before making it again.",
    "ToolOutcomeUnknownError",
    "TOOL_OUTCOME_UNKNOWN",
)


@final
class Calls:
    """The calls of one step, in the model's order."""

    __slots__ = ("_agent", "_committed", "_error", "_pipeline", "calls", "concludes", "step", "turn")

    def __init__(
        self, agent: LoopAgent, pipeline: Pipeline, turn: int, step: int, blocks: Sequence[ToolCallBlock]
    ) -> None:
        self._agent = agent
        self._pipeline = pipeline
        self.turn = turn
        self.step = step
        self.calls = [Call(block, pipeline.offers.get(block.name)) for block in blocks]
        self.concludes = False
        self._committed = 0
        self._error: Exception | None = None

    # --- running ------------------------------------------------------------------------------

    async def run(self) -> None:
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

    async def _work(self, waiting: Any) -> None:
        """Take calls until there are none left, or one failed in a way that ends the turn."""
        for call in waiting:
            await trio.lowlevel.checkpoint_if_cancelled()
            if self._error is not None:
                return
            try:
                await self._run_one(call)
                self._commit()
            except Exception as exc:
                self._break_off(exc)

    def _break_off(self, exc: Exception) -> None:
        if self._error is None:
            self._error = exc
        if isinstance(exc, FatalToolError):
            for sibling in self.calls:
                sibling.end(ABORTED)

    # --- one call -----------------------------------------------------------------------------

    async def _run_one(self, call: Call) -> None:
        self._log_call(call)
        fatal: FatalToolError | None = None
        with trio.CancelScope() as call.scope:
            try:
                call.result = await self._through_hooks(call)
            except FatalToolError as exc:
                fatal = exc
                call.result = error_result(exc)
            except Exception as exc:
                call.result = error_result(exc)
        if call.broken is not None:
            call.result = NOT_STARTED
        elif call.result is None:  # only a cancel of this very call leaves the block without a result
            call.result = OUTCOME_UNKNOWN if call.is_abandoned else call.verdict or ABORTED
        call.stage = Stage.DONE
        if call.broken is not None or fatal is not None:
            self._commit()
            raise call.broken or fatal  # type: ignore[misc]

    def _log_call(self, call: Call) -> None:
        block = call.block
        [event] = self._agent.driving_pen.append(
            ToolCall(
                turn=self.turn,
                step=self.step,
                call_id=block.id,
                name=block.name,
                arguments=block.arguments,
                tracked=True,
            )
        )
        call.seq = event.seq
        call.stage = Stage.CALLED

    async def _through_hooks(self, call: Call) -> ToolReturn:
        listeners = self._pipeline.listeners(AroundTool)
        if not listeners:
            return await self._dispatch(call, call.arguments)
        proposal = AroundTool(
            agent=self._agent,
            turn=self.turn,
            step=self.step,
            call=call.block,
            tool=None if call.offer is None else call.offer.tool,
            arguments=call.arguments,
        )

        async def default(payload: AroundTool) -> ToolReturn:
            return await self._dispatch(call, payload.arguments)

        answer = await around(listeners, proposal, default)
        if not isinstance(answer, ToolReturn):
            raise UsageError(f"AroundTool listeners answer with a ToolReturn, not {type(answer).__name__}")
        return answer

    async def _dispatch(self, call: Call, arguments: Mapping[str, object] | None) -> ToolReturn:
        """What `proceed` does at the end of the chain: the body, or why there is none."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if call.offer is not None and call.offer.is_unloaded:
            return UNLOADED
        if call.offer is None:
            known = ", ".join(sorted(self._pipeline.offers)) or "none"
            return _failed(
                f"There is no tool {call.block.name!r}. There are: {known}.",
                "UnknownToolError",
                "UNKNOWN_TOOL",
            )
        if arguments is None:
            assert call.fault is not None
            return error_result(call.fault)
        await self._start(call)
        call.offer.enter(call)
        try:
            return await call.offer.tool.invoke(arguments, self._context(call))
        except (FatalToolError, trio.Cancelled):
            raise
        except Exception as exc:
            return error_result(exc)
        finally:
            call.offer.leave(call)
            call.note_over()

    async def _start(self, call: Call) -> None:
        """Say in the log that the body starts, and make that durable before it does."""
        agent = self._agent
        try:
            agent.driving_pen.append(ToolStarted(turn=self.turn, step=self.step, call_id=call.block.id))
            if agent.session.is_dirty:
                await agent.session.flush()
        except SessionLogError as exc:
            call.broken = exc  # not the tool's failure: it ends the turn, whatever a listener makes of it
            raise
        await trio.lowlevel.checkpoint_if_cancelled()
        call.stage = Stage.STARTED

    def _context(self, call: Call) -> ToolContext:
        agent = self._agent

        def stage(message: UserMessage) -> None:
            if call.contexts is None:
                call.contexts = []
            call.contexts.append(message)

        async def nested(name: str, arguments: Mapping[str, object]) -> ToolReturn:
            return await self._nested(call, name, arguments)

        async def service(fn: Any) -> object:
            return await agent.scope.start(fn)

        return ToolContext(
            call_id=call.block.id,
            name=call.block.name,
            turn=self.turn,
            step=self.step,
            session_id=agent.id,
            agent=agent,
            stage=stage,
            call=nested,
            start_service=service,
        )

    async def _nested(self, outer: Call, name: str, arguments: Mapping[str, object]) -> ToolReturn:
        """A tool calls a tool: the same chain and restrictions, under the outer call's barrier."""
        offer = self._pipeline.offers.get(name)
        if offer is None:
            known = ", ".join(sorted(self._pipeline.offers)) or "none"
            return _failed(
                f"There is no tool {name!r}. There are: {known}.", "UnknownToolError", "UNKNOWN_TOOL"
            )
        block = ToolCallBlock(id=f"{outer.block.id}:call:{mint_id()}", name=name, arguments="{}")
        try:
            typed = offer.tool.structure(arguments)
        except ToolArgumentsError as exc:
            return error_result(exc)
        proposal = AroundTool(
            agent=self._agent, turn=self.turn, step=self.step, call=block, tool=offer.tool, arguments=typed
        )

        async def default(payload: AroundTool) -> ToolReturn:
            if payload.arguments is None:
                raise UsageError("an AroundTool listener passed on no arguments")
            return await offer.tool.invoke(payload.arguments, self._context(outer))

        try:
            return await around(self._pipeline.listeners(AroundTool), proposal, default)
        except FatalToolError:
            raise
        except Exception as exc:
            return error_result(exc)

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
        self._agent.driving_pen.append(*(self._result(call, call.result) for call in ready))
        self._committed += len(ready)
        for call in ready:
            call.stage = Stage.COMMITTED
            self._after_commit(call)

    def _after_commit(self, call: Call) -> None:
        assert call.result is not None
        self.concludes = self.concludes or call.result.concludes
        for message in (*(call.contexts or ()), *call.result.contexts):
            self._agent.inbox.insert(message, "next-step")
        listeners = self._agent.scope.listeners(ToolFinished)
        if listeners:
            notify(listeners, ToolFinished(agent=self._agent, call=call.block, result=call.result))

    def _result(self, call: Call, result: ToolReturn | None) -> Draft:
        assert result is not None
        block = call.block
        message = Message(
            id=mint_id(),
            role="user",
            content=(
                ToolResultBlock(tool_call_id=block.id, content=result.content, is_error=result.is_error),
            ),
            source=ToolSource(call_id=block.id),
        )
        fact = ToolResult(
            turn=self.turn,
            step=self.step,
            message=message,
            error=UNSET
            if result.error is None
            else ToolFailure(name=result.error.name, code=result.error.code),
            meta=UNSET if result.meta is None else result.meta,
        )
        return Draft(fact, "append", UNSET if call.seq is None else (call.seq,))

    # --- breaking off -------------------------------------------------------------------------

    def closers(self, seq: int, *, aborted: bool, overstayed: bool = False) -> tuple[list[Any], list[Call]]:
        """What closes the calls that have no result in the log, in the model's order, and those calls.

        A body that ended all the same keeps its real result. `seq` is the number that the first of them will get.

        Args:
            seq: the number of the first event that is appended.
            aborted: whether a cancel ended the turn; otherwise it failed.
            overstayed: whether bodies may still be at work, because the teardown did not wait for them any longer.
        """
        drafts: list[Any] = []
        closed = []
        for call in self.calls[self._committed :]:
            if call.stage is Stage.COMMITTED:
                continue
            if call.stage is Stage.NEW:
                call.seq = seq + len(drafts)
                block = call.block
                drafts.append(
                    ToolCall(
                        turn=self.turn, step=self.step, call_id=block.id, name=block.name, arguments=block.arguments,
                        tracked=True,
                    )
                )  # fmt: skip
            if call.stage is not Stage.DONE:
                call.result = self._verdict(call, aborted=aborted, overstayed=overstayed)
            drafts.append(self._result(call, call.result))
            closed.append(call)
        return drafts, closed

    def _verdict(self, call: Call, *, aborted: bool, overstayed: bool) -> ToolReturn:
        if call.stage is Stage.STARTED:
            return ABORTED if aborted and not overstayed and not call.is_abandoned else OUTCOME_UNKNOWN
        if isinstance(self._error, FatalToolError) or aborted:
            return BEFORE_DISPATCH
        return OUTCOME_UNKNOWN if call.stage is Stage.CALLED else NOT_STARTED

    def told(self, closed: list[Call]) -> None:
        """The closers are in the log: stage what the calls left behind, and tell their results."""
        for call in closed:
            call.stage = Stage.COMMITTED
            try:
                self._after_commit(call)
            except Exception:
                logger.exception("what tool call %s left behind was lost", call.block.id)
        self._committed = len(self.calls)

    def cancel_tool(self, call_id: str, reason: str) -> bool:
        """End the body of one call."""
        for call in self.calls:
            if (
                call.block.id == call_id
                and call.stage in {Stage.CALLED, Stage.STARTED}
                and call.scope is not None
            ):
                text = (
                    f"The call was cancelled: {reason}." if reason else "The call was cancelled while it ran."
                )
                return call.end(_failed(text, "AbortError", "ABORTED"))
        return False
