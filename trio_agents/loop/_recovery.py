"""What a resume makes of a log whose last process died: options, closers, and calls that can be settled for real.

Nothing is written before setup has ended: the closers go into the log in one append, directly before the first edge.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import attrs
from msgspec import UNSET

from ..agent import AgentOptions
from ..session import (
    Draft,
    Header,
    Pen,
    Session,
    ToolCall,
    ToolFailure,
    ToolResult,
    prefix_marker,
)
from ..tools import Tool, ToolContext, ToolReturn, error_result
from ..values import INTERRUPTED, Message, ToolResultBlock

if TYPE_CHECKING:
    from ._agent import LoopAgent

logger: Final = logging.getLogger("trio_agents")


@final
class Recovery:
    """The recovery of one stored session."""

    __slots__ = ("_session", "_settled")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._settled: dict[int, ToolReturn] = {}  # the number of a tool/call, and its real result

    def options(self, given: AgentOptions | None) -> AgentOptions:
        """The options to go on with: what is not given comes from the last request of the log."""
        options = given or AgentOptions()
        cwd, last = self._session.header.cwd, self._session.request_header()
        if options.cwd is None and cwd is not UNSET:
            options = attrs.evolve(options, cwd=cwd)
        return options if last is None else _completed(options, last)

    async def ask_tools(self, agent: LoopAgent, *, rerun: bool) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
        """Settle what can be settled of the calls that were at work: a tool may know, or may run again.

        Only for calls whose body may have run. With `rerun`, pure and idempotent calls run again, under the same
        call id. A checkpoint if there is anything to ask.
        """
        offers = agent.lease_pipeline().offers
        for call in agent.session.brackets.calls:
            if call.seq is None:
                continue
            fact = agent.session.events[call.seq].data
            offer = offers.get(fact.name)
            if offer is None:
                continue
            ran = call.started or not call.tracked
            result = await _reconciled(offer.tool, fact) if ran else None
            if result is None and rerun and offer.tool.effect in {"pure", "idempotent"}:
                result = await _run_again(agent, offer.tool, fact)
            if result is not None:
                self._settled[call.seq] = result

    def opening(self, pen: Pen) -> list[Draft]:
        """What is appended before the first edge: the closers, then the marker behind the prefix."""
        drafts = [self._with_result(draft) for draft in pen.closers(INTERRUPTED)]
        if drafts:
            return [*drafts, *prefix_marker([])]
        events = self._session.events
        return prefix_marker([events[-1]] if len(events) else [])

    def _with_result(self, draft: Draft) -> Draft:
        fact, sources = draft.data, draft.source_event_seqs
        if type(fact) is not ToolResult or sources is UNSET:
            return draft
        result = self._settled.get(sources[0])
        if result is None:
            return draft
        block = ToolResultBlock(
            tool_call_id=fact.message.source.call_id,  # type: ignore[attr-defined]
            content=result.content,
            is_error=result.is_error,
        )
        message = Message(id=fact.message.id, role="user", content=(block,), source=fact.message.source)
        error = result.error
        return Draft(
            ToolResult(
                turn=fact.turn,
                step=fact.step,
                message=message,
                error=UNSET if error is None else ToolFailure(name=error.name, code=error.code),
                meta=UNSET if result.meta is None else result.meta,
            ),
            "append",
            sources,
        )


async def _reconciled(tool: Tool[..., object], call: ToolCall) -> ToolReturn | None:
    try:
        return await tool.reconcile(call)
    except Exception:
        # The session stays usable: what became of the call is unknown, as if the tool could not tell.
        logger.exception("tool %r could not tell what became of call %r", call.name, call.call_id)
        return None


async def _run_again(agent: LoopAgent, tool: Tool[..., object], call: ToolCall) -> ToolReturn:
    context = ToolContext(
        call_id=call.call_id,
        name=call.name,
        turn=call.turn,
        step=call.step,
        session_id=agent.id,
        agent=agent,
        rerun=True,
    )
    try:
        return await tool.invoke(tool.parse(call.arguments), context)
    except Exception as exc:  # noqa: BLE001 - the result of the call, as in a turn
        return error_result(exc)


def _completed(options: AgentOptions, header: Header) -> AgentOptions:
    """What is not given comes from the header, save what its adapter had chosen."""
    config, defaults = header.config, header.adapter_defaults
    model, effort, max_tokens = options.model, options.effort, options.max_tokens
    temperature, stop = options.temperature, options.stop
    if model is None:
        model = f"{config.provider}/{config.model}"
        effort_is_default = defaults is not UNSET and defaults.reasoning_effort is not UNSET
        if effort is None and config.reasoning_effort is not UNSET and not effort_is_default:
            effort = config.reasoning_effort
    cap_is_default = defaults is not UNSET and defaults.max_tokens is not UNSET
    if max_tokens is None and config.max_tokens is not UNSET and not cap_is_default:
        max_tokens = config.max_tokens
    if temperature is None and config.temperature is not UNSET:
        temperature = config.temperature
    if not stop and config.stop is not UNSET:
        stop = config.stop
    return attrs.evolve(
        options, model=model, effort=effort, max_tokens=max_tokens, temperature=temperature, stop=stop
    )
