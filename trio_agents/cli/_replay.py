"""`trio-agents replay`: does a recorded session come out the same with this version?"""

from __future__ import annotations

import functools
from typing import Literal

import attrs
import trio

from ..errors import SessionLogError, UsageError
from ..session import Event, InboxSpliced, TurnEnd, TurnStart, open_log
from ..session._grammar import START, after, violation
from ._comparison import Difference, describe_event
from ._logs import Log, plain_events
from ._older import is_older, modernize
from ._replayer import Outcome, replay
from ._streams import stream_fault
from ._tape import Tape


@attrs.frozen(kw_only=True)
class Verdict:
    """What a replay has shown.

    Attributes:
        outcome: `same`; `different`, which `difference` shows; `broken`, if the recording itself breaks a rule of order
            before any difference; `nothing`, if it holds no turn to replay.
        session_id: the recording's session.
        events: how many events the recording has.
        compared: how many of them were brought about again and agree.
        carried: how many were taken over from the recording, since no agent brings them about.
        inherited: how many were there before the replay begins.
        turns: how many turns were replayed.
        older: whether the recording is of a writer without inbox events.
        difference: the first difference, or the first rule that is broken.
    """

    outcome: Literal["same", "different", "broken", "nothing"]
    session_id: str
    events: int
    compared: int = 0
    carried: int = 0
    inherited: int = 0
    turns: int = 0
    older: bool = False
    difference: Difference | None = None

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against this version, or the recording."""
        return self.outcome in {"same", "nothing"}


async def replay_log(log: Log) -> Verdict:
    """Drive a recorded session through a runtime again, and compare.

    Raises:
        SessionLogError: the recording cannot be used.
    """
    await trio.lowlevel.checkpoint()
    recorded = plain_events(log)
    broken = _first_broken_rule(recorded)
    about = functools.partial(Verdict, session_id=log.header.id, events=len(recorded))
    has_turn = any(type(event.data) is TurnStart for event in recorded)
    if not has_turn and broken is None:
        return about(outcome="nothing")
    older = is_older(recorded)
    was_driven = has_turn or any(type(event.data) is InboxSpliced for event in recorded)
    if broken is not None and (older or not was_driven):
        return about(outcome="broken", difference=broken, older=older)
    outcome, tape = await _replay(log, modernize(recorded) if older else recorded)
    difference = outcome.difference
    if broken is not None and (older or difference is None or broken.recorded_seq < difference.recorded_seq):
        return about(outcome="broken", difference=broken, older=older)
    inherited = tape.events[tape.start].seq if tape.start < len(tape) else len(recorded)
    return about(
        outcome="same" if difference is None else "different",
        difference=difference,
        compared=outcome.compared,
        carried=sum(
            not any(event is core for core in tape.events) for event in recorded if event.seq >= inherited
        )
        if not older
        else 0,
        inherited=inherited,
        turns=sum(type(event.data) is TurnEnd for event in tape.events[tape.start :]),
        older=older,
    )


async def _replay(log: Log, events: list[Event]) -> tuple[Outcome, Tape]:
    tape = Tape(log.header, events)
    start = tape.at(tape.start)
    prefix = [event for event in events if start is not None and event.seq < start.seq] if tape.start else []
    try:
        session, _ = open_log(log.header, log.events, loaded=True)
        messages = session.messages()
    except UsageError as exc:
        raise SessionLogError(f"the recording cannot be read: {exc}", path=log.path) from exc
    return await replay(tape, prefix, messages), tape


def _first_broken_rule(events: list[Event]) -> Difference | None:
    """The first event that may not stand where it stands."""
    fault = stream_fault(events)
    state = START
    for event in events:
        problem = violation(state, event)
        if problem is None and fault is not None and event is fault[0]:
            problem = fault[1]
        if problem is not None:
            return Difference(
                what=f"the recording breaks a rule: {problem}",
                recorded_seq=event.seq,
                replayed_seq=event.seq,
                recorded=describe_event(event),
                replayed="",
            )
        state = after(state, event)
    return None
