"""A recorded log as a replay reads it: its core events in order, and for each who brought it about. Pure.

Most events of a log are the agent's own doing and come about by themselves when a replay goes well. Some were
brought about from outside: a delivery, a message withdrawn or moved, a piece of history replaced, a cancel, a
resume. A replay has to do these itself, where the recording did them. `Tape.acts` says what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, final

import attrs
from msgspec import UNSET

from ..session import (
    AssistantChunk,
    AssistantMessage,
    Event,
    Header,
    InboxSpliced,
    LlmRetry,
    LlmRetryStarted,
    Replace,
    RequestConfig,
    RequestContext,
    RequestHeader,
    SessionEndSeed,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    ToolSpec,
    TurnEnd,
    TurnStart,
)
from ..values import (
    BY_USER,
    Aborted,
    Completed,
    Finish,
    FrozenJson,
    HitMaxRequests,
    HitMaxTokens,
    Interrupted,
    ModelSource,
    UserMessage,
)

CORE: Final = frozenset((
    TurnStart, TurnEnd, StepStart, StepEnd, UserMessage, AssistantMessage, AssistantChunk, ToolCall, ToolResult,
    RequestHeader, RequestContext, InboxSpliced, LlmRetry, LlmRetryStarted, SessionEndSeed,
))  # fmt: skip
"""The payloads that a replay compares. All others are taken over from the recording."""

Act: TypeAlias = Literal["insert", "remove", "replace", "move", "surface", "resume", "cancel"]
"""What has to be done from outside. A cancel has no event of its own; the others are what an event says."""

_ANYTHING: Final = FrozenJson(b'{"type":"object"}')
_ENDED_BY_CANCEL: Final = frozenset(("ABORTED", "ABORTED_BEFORE_DISPATCH", "TOOL_OUTCOME_UNKNOWN"))
_ENDED_BY_CRASH: Final = frozenset(("TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"))


@final
@attrs.frozen(kw_only=True)
class Cancel:
    """A cancel that a recording shows by its consequences.

    Attributes:
        end: the end of the turn that it hit.
        keeps_inbox: whether what was pending stayed.
    """

    end: TurnEnd
    keeps_inbox: bool


@final
class Tape:
    """The core events of a recording.

    Attributes:
        header: the recording's header.
        events: its core events, in order. Positions below are indices into it.
        start: where the replay begins; what comes before was there when the session was opened.
        acts: what has to be done from outside, by the position where it is due.
        cancels: the cancels, by the position where they are due.
    """

    def __init__(self, header: SessionHeader, events: Sequence[Event]) -> None:
        self.header = header
        self.events = [event for event in events if type(event.data) in CORE]
        self.acts: dict[int, Act] = {}
        self.cancels: dict[int, Cancel] = {}
        self._given_back: set[int] = set()
        self._classify()
        self.start = self._find_start()
        self._find_cancels()
        self._find_cut_answers()

    def __len__(self) -> int:
        return len(self.events)

    def at(self, position: int) -> Event | None:
        """The event at a position, or None behind the end."""
        return self.events[position] if position < len(self.events) else None

    def data_at(self, position: int) -> object:
        """What it says, or None behind the end."""
        event = self.at(position)
        return None if event is None else event.data

    def has_turn(self) -> bool:
        """Whether there is a turn at all behind the start."""
        return any(type(event.data) is TurnStart for event in self.events[self.start :])

    # --- who did what -------------------------------------------------------------------------

    def _classify(self) -> None:
        lists: dict[str, list[UserMessage]] = {"next-turn": [], "next-step": []}
        claimed: set[str] = set()
        back: set[str] = set()
        for position, event in enumerate(self.events):
            data = event.data
            if type(data) is TurnStart:
                claimed, back = set(), set()
            elif type(data) is UserMessage:
                if type(event.surface_op) is Replace:
                    self.acts[position] = "surface"
                claimed.discard(data.id)
            elif type(data) is SessionEndSeed:
                self.acts[position] = "resume"
            elif type(data) is InboxSpliced:
                removed = _splice(lists[data.target], data)
                act = _act_of(data)
                if act is None:
                    claimed |= removed
                elif act == "insert" and claimed.issuperset(m.id for m in data.inserted):
                    back |= {m.id for m in data.inserted}
                    self._given_back.add(position)
                elif act == "remove" and removed and back >= removed:
                    self._given_back.add(position)
                else:
                    self.acts[position] = act

    def is_given_back(self, position: int) -> bool:
        """Whether the event is a turn's own: it puts back, or records as cancelled, what the turn had claimed."""
        return position in self._given_back

    # --- where it begins ----------------------------------------------------------------------

    def _find_start(self) -> int:
        """The first position that a replay can bring about.

        Before it: what a fork inherited, what a session was seeded with, and what a crash has cut short.
        """
        start = 0
        length = 0 if self.header.seed_length is UNSET else self.header.seed_length
        delivered = False
        for position, event in enumerate(self.events):
            if event.seq < length:
                start = position + 1
            elif type(event.data) is InboxSpliced:
                delivered = True
            elif type(event.data) is SessionEndSeed and not delivered:
                start = position
            elif type(event.data) is TurnEnd and isinstance(event.data.reason, Interrupted):
                start = self._closers(position, _ENDED_BY_CRASH)
                delivered = True
        return start

    def _find_cancels(self) -> None:
        for position in range(self.start, len(self.events)):
            data = self.events[position].data
            if type(data) is not TurnEnd or not isinstance(data.reason, Aborted):
                continue
            first = self._closers(position, _ENDED_BY_CANCEL)
            cleared = False
            while first > self.start and self.acts.get(first - 1) == "remove":
                first -= 1
                cleared = True
                del self.acts[first]
            kept = any(
                self.is_given_back(between) and not self.events[between].data.removed_count
                for between in range(first, position)
            )
            dropped = any(
                self.is_given_back(between) and self.events[between].data.removed_count
                for between in range(first, position)
            )
            keeps = not cleared and not dropped and (kept or self._is_pending(first))
            self.cancels[first] = Cancel(end=data, keeps_inbox=keeps)

    def _find_cut_answers(self) -> None:
        """An answer that was cut off shows a cancel, whatever the recording says of the turn's end."""
        for position in range(self.start, len(self.events)):
            data = self.events[position].data
            if type(data) is AssistantMessage and data.interrupted is True and position not in self.cancels:
                end = TurnEnd(turn=data.turn, reason=Aborted(reason=BY_USER))
                self.cancels[position] = Cancel(end=end, keeps_inbox=True)

    def _closers(self, end: int, codes: frozenset[str]) -> int:
        """The first of the events that only close what was open when a turn was broken off."""
        first = end
        while first > 0:
            position = first - 1
            data = self.events[position].data
            if (
                type(data) is StepEnd
                or (type(data) is AssistantMessage and data.interrupted is True)
                or self.is_given_back(position)
                or (type(data) is ToolResult and error_code(data) in codes)
                or (
                    type(data) is ToolCall
                    and type(after := self.data_at(first)) is ToolResult
                    and error_code(after) == "ABORTED_BEFORE_DISPATCH"
                )
            ):
                first = position
            else:
                break
        return first

    def _is_pending(self, stop: int) -> bool:
        lists: dict[str, list[UserMessage]] = {"next-turn": [], "next-step": []}
        for event in self.events[:stop]:
            if type(event.data) is InboxSpliced:
                _splice(lists[event.data.target], event.data)
        return any(lists.values())

    # --- looking ahead ------------------------------------------------------------------------

    def ahead(self, position: int) -> Iterator[Event]:
        """The events from a position on that the agent brings about by itself."""
        for index in range(position, len(self.events)):
            if index not in self.acts:
                yield self.events[index]

    def step_messages(self, position: int) -> list[UserMessage] | None:
        """The messages with which the next step of this turn starts, or None if the turn ends without another."""
        messages: list[UserMessage] | None = None
        for event in self.ahead(position):
            data = event.data
            if messages is not None:
                if type(data) is not UserMessage:
                    break
                messages.append(data)
            elif type(data) is StepStart:
                messages = []
            elif type(data) is not InboxSpliced:
                break
        return messages

    def gives_back(self, position: int) -> set[str]:
        """The ids of the messages that the turn gives back or drops from here on, before a step or its end."""
        ids: set[str] = set()
        for event in self.ahead(position):
            if type(event.data) is not InboxSpliced:
                break
            ids |= {message.id for message in event.data.inserted}
        return ids

    def turn_end(self, position: int) -> TurnEnd | None:
        """The end of the turn, if nothing but what closes it comes before."""
        for event in self.ahead(position):
            if type(event.data) is TurnEnd:
                return event.data
            if type(event.data) not in {InboxSpliced, StepEnd}:
                break
        return None

    def header_at(self, position: int) -> RequestHeader | None:
        """The header that the next request is sent with."""
        following = next(self.ahead(position), None)
        if following is not None and type(following.data) is RequestHeader:
            return following.data
        before = (event.data for event in reversed(self.events[:position]))
        return next((data for data in before if type(data) is RequestHeader), None)

    def stand_in_header(self) -> list[Event]:
        """A request header to start from, made of the first answer, for a recording that has none at all."""
        if any(type(event.data) is RequestHeader for event in self.events):
            return []
        provider, model = "replay", "replay"
        for event in self.events:
            if type(event.data) is AssistantMessage and isinstance(event.data.message.source, ModelSource):
                provider, model = event.data.message.source.provider, event.data.message.source.model
                break
        header = RequestHeader(
            header=Header(config=RequestConfig(provider=provider, model=model)), reason="initial"
        )
        return [Event(type=header.wire_type, seq=0, time=0, data=header)]

    def results(self) -> dict[tuple[int, int, str, int], Event]:
        """Every result by turn, step, call id, and how many calls of the step had that id before it."""
        found: dict[tuple[int, int, str, int], Event] = {}
        for event in self.events:
            data = event.data
            if type(data) is ToolResult and type(event.surface_op) is not Replace:
                count = 0
                while (key := (data.turn, data.step, call_id_of(data), count)) in found:
                    count += 1
                found[key] = event
        return found

    def overlapping(self) -> set[tuple[int, int, str]]:
        """The tools that ran beside others: turn, step, name."""
        together: set[tuple[int, int, str]] = set()
        running: list[ToolCall] = []
        for event in self.events:
            data = event.data
            if type(data) is ToolCall:
                running.append(data)
                if len(running) > 1:
                    together |= {(call.turn, call.step, call.name) for call in running}
            elif type(data) is ToolResult:
                running = [call for call in running if call.call_id != call_id_of(data)]
            elif type(data) is StepEnd:
                running = []
        return together

    def tool_specs(self) -> dict[str, ToolSpec]:
        """Every tool that was on offer or called, by name."""
        specs: dict[str, ToolSpec] = {}
        for event in self.events:
            data = event.data
            if type(data) is RequestHeader and data.header.tools is not UNSET:
                specs.update((spec.name, spec) for spec in data.header.tools)
            elif type(data) is ToolCall and data.name and data.name not in specs:
                specs[data.name] = ToolSpec(name=data.name, description="", parameters=_ANYTHING)
        return specs

    def concludes(self, result: Event) -> bool:
        """Whether a result ended its turn: no step follows although a tool has answered."""
        position = self.events.index(result)
        following = [event.data for event in itertools.islice(self.ahead(position + 1), 2)]
        return [type(data) for data in following] == [StepEnd, TurnEnd] and isinstance(
            following[1].reason, Completed | HitMaxTokens
        )

    def request_cap(self) -> int | None:
        """After how many requests turns were ended by a cap, or None if none was."""
        cap: int | None = None
        requests = 0
        for event in self.events[self.start :]:
            data = event.data
            if type(data) is TurnStart:
                requests = 0
            elif type(data) is AssistantChunk:
                requests += type(data.chunk) is Finish
            elif type(data) is TurnEnd and isinstance(data.reason, HitMaxRequests):
                cap = requests if cap is None else min(cap, requests)
        return cap


def call_id_of(result: ToolResult) -> str:
    """The call that a result answers."""
    return str(getattr(result.message.source, "call_id", ""))


def error_code(result: object) -> str | None:
    """The code of a result that is a failure, or None."""
    if type(result) is not ToolResult:
        return None
    return None if result.error is UNSET else result.error.code


def _act_of(splice: InboxSpliced) -> Act | None:
    """What a splice does; None for a claim, which is the agent's own."""
    if not splice.removed_count:
        return "insert"
    if splice.inserted:
        return "replace"
    if splice.outcome is UNSET:
        return None
    return "move" if splice.outcome == "moved" else "remove"


def _splice(items: list[UserMessage], splice: InboxSpliced) -> set[str]:
    """Follow a splice; gives the ids of what it removed. Numbers that do not fit are the comparison's affair."""
    stop = splice.start + (splice.removed_count or 0)
    removed = {message.id for message in items[splice.start : stop]}
    items[splice.start : stop] = splice.inserted
    return removed
