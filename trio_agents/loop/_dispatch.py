"""From a call to its result: the `AroundTool` chain, the barrier, the body, and calls that a body makes in turn.

Nothing here decides about other calls of the step, or writes results: see `_calls.py`.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, final

import attrs
import trio
from msgspec import UNSET

from ..agent import AroundTool
from ..agent._layer import Offer
from ..errors import (
    FatalToolError,
    MessageError,
    SessionLogError,
    StorageError,
    ToolArgumentsError,
    UsageError,
    ValueNotJsonError,
)
from ..session import ForeignEvent, ToolStarted
from ..session._codec import to_plain
from ..tools import Tool, ToolContext, ToolReturn, error_result
from ..tools._context import ServiceBody
from ..tools._definition import too_late
from ..tools._results import check_result, encode_result
from ..values import Attachment, ImageBlock, TextBlock, ToolCallBlock, UserMessage
from ..values._describe import describe
from ..values._json import FrozenJson, dump_json
from ._call import UNLOADED, Body, Call, Stage, failed

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._pipeline import Pipeline

logger: Final = logging.getLogger("trio_agents")

Arguments = Mapping[str, object]

NESTED_START: Final = "tool/code-dispatch-start"
NESTED_END: Final = "tool/code-dispatch"


@final
class Dispatch:
    """Runs calls of one step, each from its `tool/call` to its result."""

    __slots__ = ("_agent", "_pipeline", "_step", "_turn")

    def __init__(self, agent: LoopAgent, pipeline: Pipeline, turn: int, step: int) -> None:
        self._agent = agent
        self._pipeline = pipeline
        self._turn = turn
        self._step = step

    async def result(self, call: Call) -> ToolReturn:
        """The result of a call, whatever its body or a listener raises. A checkpoint, except under a refusal.

        Raises:
            FatalToolError: the tool ends the turn.
            Cancelled: the call's own scope, or the turn, was cancelled.
        """
        try:
            answer = await self._through_hooks(
                call.block, call.offer, call.arguments, lambda given: self._run(call, given)
            )
        except Exception as exc:  # noqa: BLE001 - what a tool or a listener raised is the call's result
            return _of_exception(exc)  # noqa: ASYNC910  a body is one; a refusal need not be
        if call.kept:
            answer = await self._stored(call, answer)
        return self._with_its_pictures(answer)

    async def _through_hooks(
        self,
        block: ToolCallBlock,
        offer: Offer | None,
        arguments: Arguments | None,
        run: Callable[[Arguments | None], Awaitable[ToolReturn]],
    ) -> ToolReturn:
        if not self._pipeline.listeners(AroundTool):
            return await run(arguments)
        tool = None if offer is None else offer.tool
        proposal = AroundTool(
            agent=self._agent, turn=self._turn, step=self._step, call=block, tool=tool, arguments=arguments
        )
        given: ToolReturn | None = None
        raised: Exception | None = None

        async def default(payload: AroundTool) -> ToolReturn:
            nonlocal given, raised
            try:
                given = await run(payload.arguments)
            except Exception as exc:
                raised = exc
                raise
            return given

        try:
            answer: object = await self._pipeline.around_tool(proposal, default)
            if not isinstance(answer, ToolReturn):
                raise UsageError(
                    f"AroundTool listeners answer with a ToolReturn, not {type(answer).__name__}"
                )
            if given is None:
                return check_result(answer)  # no body ran, so nothing may say that it did
        except FatalToolError:
            raise
        except Exception as exc:
            # The model reads it as the call's result. That a judge has failed is for people, too.
            if exc is not raised:
                logger.error(
                    "the AroundTool listeners failed on the call of tool %r by agent %r",
                    block.name,
                    self._agent.id,
                    exc_info=exc,
                )
            raise
        # What the body gave was encoded already; what a listener made of it is looked at as if a tool had returned it.
        return answer if answer is given else encode_result(answer, None)

    # --- the body -----------------------------------------------------------------------------

    async def _run(self, call: Call, arguments: Arguments | None) -> ToolReturn:
        """What `proceed` does at the end of the chain: the body, or why there is none."""
        await trio.lowlevel.checkpoint_if_cancelled()
        offer, body = call.offer, call.body
        assert body is not None
        if offer is None:
            return self._unknown(call.block.name)
        if offer.is_unloaded:
            return UNLOADED
        if arguments is None:
            assert call.fault is not None
            return error_result(call.fault)
        # Entered before the barrier: an owner that closes during it ends this call, too.
        offer.enter(body)
        try:
            await self._start(call)
            return await self._invoke(offer.tool, arguments, self._context(call, call.block, call.block.id))
        except FatalToolError:
            raise
        except Exception as exc:
            if call.broken is not None:
                raise
            return _of_exception(exc)
        finally:
            offer.leave(body)
            body.note_over()

    async def _start(self, call: Call) -> None:
        """Say in the log that the body starts, and make that durable before it does."""
        agent = self._agent
        try:
            agent.driving_pen.append(ToolStarted(turn=self._turn, step=self._step, call_id=call.block.id))
            if agent.session.is_dirty:
                await agent.session.flush()
        except SessionLogError as exc:
            call.broken = exc  # not the tool's failure: it ends the turn, whatever a listener makes of it
            raise
        await trio.lowlevel.checkpoint_if_cancelled()
        call.stage = Stage.STARTED

    async def _invoke(
        self, tool: Tool[..., object], arguments: Arguments, context: ToolContext
    ) -> ToolReturn:
        try:
            return await self._in_time(tool, arguments, context)
        except Exception:
            raise
        except BaseException as exc:  # noqa: ASYNC103 - a cancel that is in force goes on
            if _ends_the_task(exc):
                raise
            return _of_exception(exc)  # noqa: ASYNC104 - likewise

    async def _in_time(
        self, tool: Tool[..., object], arguments: Arguments, context: ToolContext
    ) -> ToolReturn:
        limit = self._agent.options.tool_timeout
        if tool.timeout is not None or limit is None:
            return await tool.invoke(arguments, context)
        with trio.CancelScope(deadline=trio.current_time() + limit) as scope:
            return await tool.invoke(arguments, context)
        assert scope.cancelled_caught
        return failed(too_late(tool, limit), "ToolError", "TOOL_TIMEOUT")

    def _unknown(self, name: str) -> ToolReturn:
        known = ", ".join(sorted(self._pipeline.offers)) or "none"
        return failed(f"There is no tool {name!r}. There are: {known}.", "UnknownToolError", "UNKNOWN_TOOL")

    async def _stored(self, call: Call, answer: ToolReturn) -> ToolReturn:
        """Store the bytes that the result refers to, before the result can be in the log.

        The body has ended, so a cancel that comes now, or came before, does not cost the call its result.
        """
        agent = self._agent
        grace = agent.options.grace
        kept, call.kept = call.kept or [], None
        for attachment, data, note in kept:
            name = None if attachment.name is UNSET else attachment.name
            error: Exception = StorageError(f"storing it took longer than {grace:g} s")
            with trio.move_on_after(grace, shield=True):
                try:
                    await agent.loop.store.put_attachment(agent.id, data, attachment.media_type, name)
                    continue
                except (MessageError, SessionLogError) as exc:
                    error = exc
            if not note:
                return failed(
                    f"The tool ran, but its result could not be kept: {describe(error)}",
                    type(error).__name__,
                    "INVALID_TOOL_OUTPUT",
                )
            answer = _noted(answer, note, f"the whole could not be kept: {describe(error)}")
        return answer

    def _with_its_pictures(self, answer: ToolReturn) -> ToolReturn:
        """The result, unless it refers to a picture that is not there: every later request would fail on it."""
        agent = self._agent
        for block in answer.content:
            if type(block) is ImageBlock:
                attachment_id = block.attachment.attachment_id
                if not agent.loop.store.has_attachment(agent.id, attachment_id):
                    return failed(
                        f"The tool ran, but its result refers to attachment {attachment_id!r}, which session "
                        f"{agent.id!r} does not have; an Image brings its bytes along.",
                        "MessageError",
                        "INVALID_TOOL_OUTPUT",
                    )
        return answer

    # --- what a body may do -------------------------------------------------------------------

    def _context(self, call: Call, block: ToolCallBlock, call_id: str) -> ToolContext:
        agent = self._agent

        async def nested(name: str, arguments: Arguments) -> ToolReturn:
            return await self._nested(call, call_id, name, arguments)

        async def service(fn: ServiceBody) -> object:
            return await agent.scope.start(fn)

        def spill(text: str) -> str:
            data = text.encode("utf-8", "surrogatepass")
            name = f"sha256:{hashlib.sha256(data).hexdigest()}"
            attachment = Attachment(
                attachment_id=name, media_type="text/plain", bytes=len(data), width=0, height=0
            )
            call.keep(attachment, data, note=f"the whole is in attachment {name}")
            return f"attachment {name}"

        def stage(message: UserMessage) -> None:
            if call.stage is not Stage.COMMITTED:
                call.stage_context(message)
            elif call.may_be_abandoned:
                raise UsageError(f"call {call_id!r} is over: its thread was left to itself")
            else:
                agent.inject(message)  # a service, or a task that the body left behind

        return ToolContext(
            call_id=call_id,
            name=block.name,
            turn=self._turn,
            step=self._step,
            session_id=agent.id,
            agent=agent,
            stage=stage,
            call=nested,
            start_service=service,
            spill=spill,
            attach=call.keep,
        )

    # --- calls within calls -------------------------------------------------------------------

    async def _nested(self, root: Call, parent_id: str, name: str, arguments: Arguments) -> ToolReturn:
        """A tool calls a tool: the same chain and restrictions, under the outer call's barrier."""
        root.nested += 1
        call_id = f"{parent_id}:code:{root.nested}"
        facts: dict[str, object] = {
            "rootCallId": root.block.id,
            "parentCallId": parent_id,
            "subCallId": call_id,
            "name": name,
            "arguments": dict(arguments),
        }
        try:
            started = FrozenJson.of(facts)
        except ValueNotJsonError as exc:
            return failed(
                f"The arguments of {name} are not JSON: {exc}", "ToolArgumentsError", "INVALID_ARGS"
            )
        # Written out, since a listener may judge a call by its text.
        block = ToolCallBlock(id=call_id, name=name, arguments=dump_json(facts["arguments"]).decode())
        pen = self._agent.driving_pen
        pen.append(ForeignEvent(NESTED_START, started))
        result = await self._nested_result(root, block, arguments)
        for message in result.contexts:
            root.stage_context(message)
        said = {**facts, "isError": result.is_error, "content": [to_plain(part) for part in result.content]}
        pen.append(ForeignEvent(NESTED_END, FrozenJson.of(said)))
        return result

    async def _nested_result(self, root: Call, block: ToolCallBlock, arguments: Arguments) -> ToolReturn:
        offer = self._pipeline.offers.get(block.name)
        typed: Arguments | None = None
        fault: ToolArgumentsError | None = None
        if offer is not None:
            try:
                typed = offer.tool.structure(arguments)
            except ToolArgumentsError as exc:
                fault = exc
        body = Body()

        async def run(given: Arguments | None) -> ToolReturn:
            if offer is None:
                return self._unknown(block.name)
            if offer.is_unloaded:
                return UNLOADED
            if given is None:
                assert fault is not None
                return error_result(fault)
            offer.enter(body)
            try:
                return await self._invoke(offer.tool, given, self._context(root, block, block.id))
            finally:
                offer.leave(body)
                body.note_over()

        try:
            with body.scope:
                return await self._through_hooks(block, offer, typed, run)
        except Exception as exc:  # noqa: BLE001 - what a tool or a listener raised is the call's result
            return _of_exception(exc)
        return body.verdict or UNLOADED


def _ends_the_task(exc: BaseException) -> bool:
    """Whether what a body raised is meant for more than its call: a cancel that is in force, or the end of the program.

    Anything else that is no `Exception`, such as the `CancelledError` of asyncio, is a failure like any other. So is a
    `Cancelled` that somebody kept and raised again: no scope here would take it.
    """
    if isinstance(exc, BaseExceptionGroup):
        return any(_ends_the_task(member) for member in exc.exceptions)
    if isinstance(exc, trio.Cancelled):
        return trio.current_effective_deadline() == -math.inf
    return isinstance(exc, SystemExit | KeyboardInterrupt | GeneratorExit)


def _noted(answer: ToolReturn, note: str, instead: str) -> ToolReturn:
    """The result with another note in the place of one that does not hold."""
    content = tuple(
        TextBlock(text=block.text.replace(note, instead)) if type(block) is TextBlock else block
        for block in answer.content
    )
    return attrs.evolve(answer, content=content)


def fatal_in(exc: BaseException) -> FatalToolError | None:
    """The `FatalToolError` that an exception is, or that a group holds: a tool may raise it out of a nursery."""
    if isinstance(exc, FatalToolError):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        for member in exc.exceptions:
            found = fatal_in(member)
            if found is not None:
                return found
    return None


def _of_exception(exc: BaseException) -> ToolReturn:
    """The error result for what was raised, unless it ends the turn."""
    fatal = fatal_in(exc)
    if fatal is not None:
        raise fatal
    return error_result(exc)
