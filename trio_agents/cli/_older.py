"""Logs of an older writer, which kept no account of its inbox: made into what today's order would have been. Pure.

Such a log has the messages of a turn before its first step, and those that joined a turn wherever they came in. The
deliveries that must have been there are put in. Positions keep the numbers of the recording, so a difference is still
shown where it is; but an event that was put in shares its number with the one behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from ..session import (
    AssistantChunk,
    AssistantMessage,
    Event,
    Header,
    InboxSpliced,
    RequestConfig,
    RequestContext,
    RequestHeader,
    StepStart,
    TurnEnd,
    TurnStart,
)
from ..session._header import is_same_header
from ..values import BlockEnd, Finish, ModelSource, Stop, ToolCallBlock, ToolCalls, Usage, UserMessage


def is_older(events: Sequence[Event]) -> bool:
    """Whether a log has turns and not one inbox event."""
    kinds = {type(event.data) for event in events}
    return TurnStart in kinds and InboxSpliced not in kinds


def modernize(events: Sequence[Event]) -> list[Event]:
    """The events with the deliveries and request facts that today's order has."""
    return list(_Modern(events).run())


class _Modern:
    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._header: Header | None = None
        self._has_context = any(type(event.data) is RequestContext for event in events)
        self._had_chunks = False
        self._start: Event | None = None  # a turn that has begun and has no step yet
        self._batch: list[Event] = []  # the messages of its first step
        self._in_turn = False
        self._waiting: list[Event] = []  # messages for the next step

    def run(self) -> Iterator[Event]:
        for event in self._events:
            data = event.data
            if type(data) is TurnStart:
                self._start, self._batch, self._in_turn = event, [], True
            elif type(data) is UserMessage and self._in_turn and event.surface_op == "append":
                yield from self._message(event)
            elif type(data) is StepStart:
                self._had_chunks = False
                yield from self._step(event)
            elif type(data) is TurnEnd:
                yield from self._opening(event)
                self._in_turn = False
                yield event
            elif type(data) is RequestHeader:
                if self._header is not None and is_same_header(self._header, data.header):
                    continue  # it only changed what is no longer part of a header
                self._header = data.header
                yield event
                yield from self._context(event, data.header.config)
            elif type(data) is AssistantChunk or type(data) is AssistantMessage:
                yield from self._answer(event)
            else:
                yield event
        if self._start is not None:
            yield self._start

    def _message(self, event: Event) -> Iterator[Event]:
        if self._start is not None:
            self._batch.append(event)
            return
        splice = InboxSpliced(target="next-step", start=len(self._waiting), inserted=(event.data,))
        self._waiting.append(event)
        yield _made(event, splice)

    def _opening(self, near: Event) -> Iterator[Event]:
        """A turn's start: its first message was delivered, and the turn took it."""
        start, self._start = self._start, None
        if start is None:
            return
        if self._batch:
            delivered = self._batch[0].data
            yield _made(start, InboxSpliced(target="next-turn", start=0, inserted=(delivered,)))
        yield start
        if self._batch:
            yield _made(near, InboxSpliced(target="next-turn", start=0, removed_count=1))

    def _step(self, step: Event) -> Iterator[Event]:
        yield from self._opening(step)
        batch, self._batch = self._batch, []
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield _made(step, InboxSpliced(target="next-step", start=0, removed_count=len(waiting)))
        yield step
        yield from batch
        yield from waiting

    def _context(self, event: Event, config: RequestConfig) -> Iterator[Event]:
        if not self._has_context:
            self._has_context = True
            yield _made(event, RequestContext(provider=config.provider, model=config.model))

    def _answer(self, event: Event) -> Iterator[Event]:
        data = event.data
        if (
            type(data) is AssistantMessage
            and not self._had_chunks
            and isinstance(data.message.source, ModelSource)
        ):
            if self._header is None:
                source = data.message.source
                config = RequestConfig(provider=source.provider, model=source.model)
                self._header = Header(config=config)
                yield _made(event, RequestHeader(header=self._header, reason="initial"))
                yield from self._context(event, config)
            for chunk in _chunks(data):
                yield _made(event, AssistantChunk(turn=data.turn, step=data.step, chunk=chunk))
        self._had_chunks = type(data) is AssistantChunk
        yield event


def _chunks(answer: AssistantMessage) -> Iterator[BlockEnd | Usage | Finish]:
    """A stream that would have given this answer."""
    for index, block in enumerate(answer.message.content):
        yield BlockEnd(index=index, block=block)
    if answer.usage is not UNSET:
        yield Usage(usage=answer.usage)
    calls = any(type(block) is ToolCallBlock for block in answer.message.content)
    yield Finish(reason=ToolCalls() if calls else Stop())


def _made(near: Event, data: object) -> Event:
    """An event that the recording does not have, at the place of one that it has."""
    return Event(type=data.wire_type, seq=near.seq, time=near.time, data=data)  # type: ignore[attr-defined]
