"""What may follow what: turns, steps, tool calls and chunks, as one table.

A log's brackets nest strictly: steps lie in turns, chunks, answers and calls lie in steps, every logged call has
its result before its step ends. `RULES` says so for each type of event; live appends, the repair of an open tail,
`verify` and the trace checker all ask it. Types that are not in the table (users' messages, inbox splices, titles,
policies ...) may occur anywhere.

A log that breaks these rules can still be read: the state goes on as the event says (`after`), whatever
`violation` thinks of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, final

from msgspec import UNSET, Struct

from ..errors import UsageError
from ..values._messages import ToolCallBlock
from ._events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    LlmRetry,
    LlmRetryStarted,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
)
from ._packing import ChunkRun

NOT_STARTED: Final = "TOOL_NOT_STARTED"
"""The code of a result that repair gives to a call of which nothing was logged."""


@final
class OpenCall(Struct, frozen=True, kw_only=True, gc=False):
    """A tool call of the open step that has no result yet.

    Attributes:
        call_id: its id. Ids may repeat in one message; calls are told apart by position.
        seq: the number of its `tool/call`, or None if the model asked for it and nothing was logged since.
        tracked: whether its `tool/call` promises that a `tool/started` precedes the body.
        started: whether there is one.
    """

    call_id: str
    seq: int | None = None
    tracked: bool = False
    started: bool = False


@final
class State(Struct, frozen=True, kw_only=True, gc=False):
    """Which brackets are open. Immutable: an append that is refused leaves no trace.

    Attributes:
        last_turn: the number of the last turn that started, 0 before the first.
        turn: the number of the open turn, or None.
        last_step: the number of the last step of that turn, 0 before its first.
        step: the number of the open step, or None.
        calls: the calls of the open step without a result, in the model's order.
    """

    last_turn: int = 0
    turn: int | None = None
    last_step: int = 0
    step: int | None = None
    calls: tuple[OpenCall, ...] = ()


START: Final = State()

# --- what the rules are made of -------------------------------------------------------------------

# Payloads are taken as Any: each rule is called for the one class under which it stands in the table.


def _where(state: State) -> str:
    if state.turn is None:
        return f"no turn is open (the last was {state.last_turn})"
    if state.step is None:
        return f"turn {state.turn} is open and no step in it (the last was {state.last_step})"
    return f"step {state.step} of turn {state.turn} is open"


def _in_step(state: State, data: Any) -> str | None:
    if state.step is None or state.step != data.step or state.turn != data.turn:
        return f"it belongs to step {data.step} of turn {data.turn}, but {_where(state)}"
    return None


def _keep(state: State, event: Event) -> State:
    return state


# --- turns and steps ------------------------------------------------------------------------------


def _may_start_turn(state: State, event: Event) -> str | None:
    turn = event.data.turn
    if state.turn is not None or turn != state.last_turn + 1:
        return f"turn {turn} cannot start: {_where(state)}"
    return None


def _start_turn(state: State, event: Event) -> State:
    turn = event.data.turn
    return State(last_turn=turn, turn=turn)


def _may_end_turn(state: State, event: Event) -> str | None:
    turn = event.data.turn
    if state.turn != turn or state.step is not None:
        return f"turn {turn} cannot end: {_where(state)}"
    return None


def _end_turn(state: State, event: Event) -> State:
    return State(last_turn=state.last_turn)


def _may_start_step(state: State, event: Event) -> str | None:
    data = event.data
    if state.turn != data.turn or state.step is not None or data.step != state.last_step + 1:
        return f"step {data.step} of turn {data.turn} cannot start: {_where(state)}"
    return None


def _start_step(state: State, event: Event) -> State:
    step = event.data.step
    return State(last_turn=state.last_turn, turn=state.turn, last_step=step, step=step)


def _may_end_step(state: State, event: Event) -> str | None:
    data = event.data
    if state.step != data.step or state.turn != data.turn:
        return f"step {data.step} of turn {data.turn} cannot end: {_where(state)}"
    waiting = [call.call_id for call in state.calls if call.seq is not None]
    if waiting:
        return f"step {data.step} of turn {data.turn} cannot end: no result for {', '.join(waiting)}"
    return None


def _end_step(state: State, event: Event) -> State:
    return State(last_turn=state.last_turn, turn=state.turn, last_step=state.last_step)


# --- answers and calls ----------------------------------------------------------------------------


def _belongs(state: State, event: Event) -> str | None:
    return _in_step(state, event.data)


def _may_answer(state: State, event: Event) -> str | None:
    return None if _replaces(event) else _in_step(state, event.data)


def _replaces(event: Event) -> bool:
    """Whether a message takes the place of others: that may happen long after its step."""
    return event.surface_op is not UNSET and event.surface_op != "append"


def _with_calls(state: State, calls: tuple[OpenCall, ...]) -> State:
    return State(
        last_turn=state.last_turn,
        turn=state.turn,
        last_step=state.last_step,
        step=state.step,
        calls=calls,
    )


def _answer(state: State, event: Event) -> State:
    if _replaces(event) or state.step is None:
        return state
    asked = [
        OpenCall(call_id=block.id) for block in event.data.message.content if type(block) is ToolCallBlock
    ]
    return _with_calls(state, (*state.calls, *asked)) if asked else state


def _find(calls: tuple[OpenCall, ...], call_id: str, wanted: Callable[[OpenCall], bool]) -> int:
    for position, call in enumerate(calls):
        if call.call_id == call_id and wanted(call):
            return position
    return -1


def _call(state: State, event: Event) -> State:
    data = event.data
    if state.step is None:
        return state
    call = OpenCall(call_id=data.call_id, seq=event.seq, tracked=data.tracked is True)
    position = _find(state.calls, data.call_id, lambda call: call.seq is None)
    if position < 0:
        return _with_calls(state, (*state.calls, call))
    return _with_calls(state, (*state.calls[:position], call, *state.calls[position + 1 :]))


def _is_waiting(call: OpenCall) -> bool:
    return call.seq is not None and not call.started


def _may_begin(state: State, event: Event) -> str | None:
    problem = _in_step(state, event.data)
    if problem is None and _find(state.calls, event.data.call_id, _is_waiting) < 0:
        return f"no call {event.data.call_id!r} is waiting to start in this step"
    return problem


def _begin(state: State, event: Event) -> State:
    position = _find(state.calls, event.data.call_id, _is_waiting)
    if position < 0:
        return state
    call = state.calls[position]
    begun = OpenCall(call_id=call.call_id, seq=call.seq, tracked=call.tracked, started=True)
    return _with_calls(state, (*state.calls[:position], begun, *state.calls[position + 1 :]))


def _answered(state: State, event: Event) -> int:
    """The position of the call that a result answers: the one it cites, else the first one of its id."""
    cited = event.source_event_seqs
    call_id = event.data.message.source.call_id
    if cited is not UNSET and len(cited) > 0:
        position = _find(state.calls, call_id, lambda call: call.seq is not None and call.seq in cited)
        if position >= 0:
            return position
    position = _find(state.calls, call_id, lambda call: call.seq is not None)
    return position if position >= 0 else _find(state.calls, call_id, lambda call: True)


def _may_result(state: State, event: Event) -> str | None:
    if _replaces(event):
        return None
    data = event.data
    problem = _in_step(state, data)
    if problem is not None:
        return problem
    position = _answered(state, event)
    if position >= 0 and state.calls[position].seq is not None:
        return None
    if data.error is not UNSET and data.error.code == NOT_STARTED:
        return None
    return f"call {data.message.source.call_id!r} has no tool/call without a result in this step"


def _result(state: State, event: Event) -> State:
    if _replaces(event):
        return state
    position = _answered(state, event)
    if position < 0:
        return state
    return _with_calls(state, (*state.calls[:position], *state.calls[position + 1 :]))


# --- the table ------------------------------------------------------------------------------------

Rule: TypeAlias = "tuple[Callable[[State, Event], str | None], Callable[[State, Event], State]]"
"""Why an event may not come now, and the state that it leads to."""

RULES: Final[dict[type[Any], Rule]] = {
    TurnStart: (_may_start_turn, _start_turn),
    TurnEnd: (_may_end_turn, _end_turn),
    StepStart: (_may_start_step, _start_step),
    StepEnd: (_may_end_step, _end_step),
    AssistantChunk: (_belongs, _keep),
    AssistantMessage: (_may_answer, _answer),
    ToolCall: (_belongs, _call),
    ToolStarted: (_may_begin, _begin),
    ToolResult: (_may_result, _result),
    LlmRetry: (_belongs, _keep),
    LlmRetryStarted: (_belongs, _keep),
}


def violation(state: State, event: Event) -> str | None:
    """Why the event may not come in this state, as one sentence; None if it may."""
    rule = RULES.get(type(event.data))
    return None if rule is None else rule[0](state, event)


def after(state: State, event: Event) -> State:
    """The state that the event leads to, allowed or not."""
    rule = RULES.get(type(event.data))
    return state if rule is None else rule[1](state, event)


def after_all(state: State, records: Iterable[Event | ChunkRun]) -> State:
    """The state that a stretch of a log leads to. Packed runs change nothing and stay packed."""
    for record in records:
        if type(record) is ChunkRun:
            continue
        rule = RULES.get(type(record.data))
        if rule is not None:
            state = rule[1](state, record)
    return state


def trace_issues(events: Iterable[Event]) -> list[str]:
    """One sentence for every event of a log that breaks a rule, in order; empty for a sound log."""
    state = START
    issues = []
    for event in events:
        problem = violation(state, event)
        if problem is not None:
            issues.append(f"event {event.seq} ({event.type}): {problem}")
        state = after(state, event)
    return issues


@final
class Brackets:
    """The state of one log, moved on event by event."""

    __slots__ = ("state",)

    def __init__(self, state: State = START) -> None:
        self.state = state

    def check(self, event: Event) -> None:
        """Raise unless the event may come next.

        Raises:
            UsageError: it may not; the message says why, and what is open.
        """
        problem = violation(self.state, event)
        if problem is not None:
            raise UsageError(f"{event.type} refused: {problem}")

    def advance(self, event: Event) -> None:
        """Take the event as the next one."""
        self.state = after(self.state, event)

    @property
    def last_turn(self) -> int:
        """The number of the last turn that started, 0 before the first."""
        return self.state.last_turn

    @property
    def open_turn(self) -> int | None:
        """The number of the open turn, or None."""
        return self.state.turn

    @property
    def open_step(self) -> int | None:
        """The number of the open step, or None."""
        return self.state.step

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls of the open step without a result, in the model's order."""
        return self.state.calls
