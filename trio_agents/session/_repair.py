"""What has to be appended so that a log can go on: closers of an open turn, and the marker behind a prefix.

Everything here is a pure function from the state of a log to drafts. The same closers end a turn whose process
died, a turn whose closers the storage refused, and a turn whose driver was taken down by force.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..values._causes import INTERRUPTED, TurnEndReason
from ..values._messages import Message, TextBlock, ToolResultBlock, ToolSource
from ._admission import event_of
from ._events import (
    Draft,
    Event,
    InboxSpliced,
    SessionEndSeed,
    StepEnd,
    Target,
    ToolFailure,
    ToolResult,
    TurnEnd,
)
from ._grammar import NOT_STARTED, START, OpenCall, State, after_all
from ._history import history_of
from ._packing import ChunkRun
from ._pending import Pending, fold_pending

OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"

_NEVER_RAN: Final = "This call never started: the program stopped before it could run. Nothing happened; it can be made again."
_MAY_HAVE_RUN: Final = (
    "The program stopped while this call was running. It may have taken effect, in part or in whole, and its answer "
    "is lost. Check what it did before making it again, unless it only reads or can safely be repeated."
)


def closers(
    state: State,
    pending: Pending,
    next_seq: int,
    reason: TurnEndReason = INTERRUPTED,
) -> list[Draft]:
    """What closes everything that is open, in the order in which it must be appended.

    A half-written move is completed; each call of the open step without a result gets an error result; the step
    ends; claimed messages that the turn never showed to the model return to the front of their lists; the turn
    ends. Nothing for a log in which nothing is open.

    Args:
        state: the brackets of the log.
        pending: its inbox.
        next_seq: the number that the first of them will get.
        reason: how the turn ended.
    """
    drafts = [Draft(splice) for splice in moved_splices(pending)]
    if state.turn is None:
        return drafts
    if state.step is not None:
        for call in state.calls:
            drafts.append(_result(state, call, next_seq + len(drafts)))
        drafts.append(Draft(StepEnd(turn=state.turn, step=state.step)))
    drafts += [Draft(splice) for splice in returned_splices(pending)]
    drafts.append(Draft(TurnEnd(turn=state.turn, reason=reason)))
    return drafts


def moved_splices(pending: Pending) -> list[InboxSpliced]:
    """The second half of a move of which only the first is in the log."""
    if not pending.moving:
        return []
    end = pending.length("next-step")
    return [InboxSpliced(target="next-step", start=end, inserted=pending.moving)]


def returned_splices(pending: Pending) -> list[InboxSpliced]:
    """What puts the claimed messages that entered no step back to the front of their lists, next-step first."""
    targets: tuple[Target, ...] = ("next-step", "next-turn")
    splices = []
    for target in targets:
        messages = tuple(message for origin, message in pending.claimed if origin == target)
        if messages:
            splices.append(InboxSpliced(target=target, start=0, inserted=messages))
    return splices


def _result(state: State, call: OpenCall, seq: int) -> Draft:
    """The error result of a call that was cut off: whether its body may have run depends on what was logged."""
    ran = call.seq is not None and (call.started or not call.tracked)
    failure = (
        ToolFailure(name="ToolOutcomeUnknownError", code=OUTCOME_UNKNOWN)
        if ran
        else ToolFailure(name="ToolNotStartedError", code=NOT_STARTED)
    )
    block = ToolResultBlock(
        tool_call_id=call.call_id,
        content=(TextBlock(text=_MAY_HAVE_RUN if ran else _NEVER_RAN),),
        is_error=True,
    )
    message = Message(
        id=f"interrupted-tool-result-{call.call_id}-{seq}",
        role="user",
        content=(block,),
        source=ToolSource(call_id=call.call_id),
    )
    assert state.turn is not None
    assert state.step is not None
    result = ToolResult(turn=state.turn, step=state.step, message=message, error=failure)
    if call.seq is None:
        return Draft(result)
    return Draft(result, source_event_seqs=(call.seq,))


def repair(records: Sequence[Event | ChunkRun], seed_length: int = 0) -> list[Event]:
    """The events that close a stored log, numbered and dated as its continuation; none if nothing is open.

    Their time is that of the last stored event: nobody knows when the process died.

    Raises:
        SessionCorruptError: an inbox splice does not fit.
    """
    history = history_of(records)
    if not history.length:
        return []
    last = history.event(history.length - 1)
    pending = fold_pending(history.records, seed_length)
    drafts = closers(after_all(START, history.last_turn()), pending, last.seq + 1)
    return [event_of(draft, seq, last.time) for seq, draft in enumerate(drafts, last.seq + 1)]


def prefix_marker(records: Sequence[Event | ChunkRun]) -> list[Draft]:
    """What ends the prefix that a session starts with: one marker, or nothing if the prefix ends with one.

    For a session that was given a prefix, even an empty one; a fresh session has none.
    """
    last = records[-1] if records else None
    if isinstance(last, Event) and type(last.data) is SessionEndSeed:
        return []
    return [Draft(SessionEndSeed())]
