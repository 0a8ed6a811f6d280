"""A model that answers with what a recorded session holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias, final

import attrs
import trio
from msgspec import UNSET

from ..errors import ModelError, UsageError
from ..session._events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    TurnEnd,
)
from ..values._chunks import Chunk, Finish
from ._contract import ModelInfo, ModelRequest

BeforeChunk: TypeAlias = Callable[[Event], Awaitable[None]]
"""Awaited before each recorded chunk is emitted again; gets the recorded event."""


@final
@attrs.frozen(kw_only=True)
class RecordedAttempt:
    """One attempt of a recording: its chunks, as events, and whether they come to an end.

    Attributes:
        provider, model: who was asked, as the request header before it says.
        turn, step: where it stands in the recording.
        events: the recorded `assistant/chunk` events.
        whole: False for an attempt that was cut off, by a cancel or a crash.
    """

    provider: str
    model: str
    turn: int
    step: int
    events: tuple[Event, ...]
    whole: bool


def recorded_attempts(events: Iterable[Event]) -> list[RecordedAttempt]:
    """The attempts of a recording, in order. Every `finish` ends one, so retries within a step are told apart."""
    tape = _Tape(events)
    return tape.attempts


@final
class ReplayModel:
    """Answers each request with the stream of the next attempt in a recording.

    A failed attempt fails again, by the same last chunk. One that was cut off emits its chunks and then waits to
    be cancelled, as does a request at a step that has no chunk in the recording. Nothing is compared: whoever
    replays compares the new log with the recorded one.

    Args:
        events: the recording, from its first event on.
        provider: the name to answer under; by default the provider of the recording's first request.
        before_chunk: awaited before each chunk, so that a replayer can act where the recording did.
    """

    def __init__(
        self,
        events: Iterable[Event],
        provider: str | None = None,
        *,
        before_chunk: BeforeChunk | None = None,
    ) -> None:
        self._tape = _Tape(events)
        self._provider = provider or next(iter(self._tape.providers), "replay")
        self._before_chunk = before_chunk

    @classmethod
    def for_each_provider(
        cls, events: Iterable[Event], *, before_chunk: BeforeChunk | None = None
    ) -> tuple[ReplayModel, ...]:
        """One model for each provider of a recording; together they go through it once.

        Raises:
            UsageError: the recording holds no request.
        """
        tape = _Tape(events)
        if not tape.providers:
            raise UsageError("the recording holds no request header, so there is no model to replay")
        models = []
        for provider in tape.providers:
            model = cls((), provider, before_chunk=before_chunk)
            model._tape = tape
            models.append(model)
        return tuple(models)

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        return self._provider

    @property
    def remaining(self) -> int:
        """How many recorded attempts have not been asked for."""
        return len(self._tape.attempts) - self._tape.position

    async def info(self, model: str) -> ModelInfo:
        """What the recording says of a model at the place where the replay is."""
        await trio.lowlevel.checkpoint()
        return self._tape.info(self._provider, model)

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Emit the chunks of the next recorded attempt.

        Raises:
            ModelError: there is none left (`REPLAY_EXHAUSTED`).
        """
        attempt = self._tape.take(request, self._provider)
        await trio.lowlevel.checkpoint()
        if attempt is not None:
            for event in attempt.events:
                if self._before_chunk is not None:
                    await self._before_chunk(event)
                emit(event.data.chunk)
            if attempt.whole:
                return
        await trio.sleep_forever()


@final
class _Tape:
    """A recording cut into attempts, and how far it has been played."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.attempts: list[RecordedAttempt] = []
        self.providers: dict[str, None] = {}
        self.position = 0
        self._silent: set[tuple[int, int]] = set()
        self._infos: list[tuple[int, str, str, ModelInfo]] = []
        _Cutter(self).cut(events)

    def note(self, provider: str, model: str, info: ModelInfo) -> None:
        """Something is known of a model from the next attempt on."""
        self.providers.setdefault(provider)
        self._infos.append((len(self.attempts), provider, model, info))

    def known(self, provider: str, model: str) -> ModelInfo:
        """What was noted last of a model."""
        infos = (info for _, who, what, info in reversed(self._infos) if (who, what) == (provider, model))
        return next(infos, ModelInfo())

    def silent(self, turn: int, step: int) -> None:
        """A step was cancelled before its model had said anything."""
        self._silent.add((turn, step))

    def info(self, provider: str, model: str) -> ModelInfo:
        """The last of what is known of a model here; before that, what comes first."""
        known = [(place, info) for place, who, what, info in self._infos if (who, what) == (provider, model)]
        before = [info for place, info in known if place <= self.position]
        return before[-1] if before else known[0][1] if known else ModelInfo()

    def take(self, request: ModelRequest, provider: str) -> RecordedAttempt | None:
        """The next attempt, or None where the recording has a step without one."""
        place = (request.turn, request.step)
        if self.position < len(self.attempts):
            attempt = self.attempts[self.position]
            if place not in self._silent or (attempt.turn, attempt.step) == place:
                self.position += 1
                return attempt
        if place in self._silent:
            return None
        raise ModelError(
            f"the recording of {provider!r} holds {len(self.attempts)} attempts, and all have been played: "
            f"turn {request.turn}, step {request.step} has none",
            code="REPLAY_EXHAUSTED",
        )


@final
class _Cutter:
    """Cuts a recording into attempts."""

    def __init__(self, tape: _Tape) -> None:
        self._tape = tape
        self._provider = ""
        self._model = ""
        self._defaults = ModelInfo()
        self._open: list[Event] = []
        self._step: tuple[int, int] | None = None
        self._answered = False

    def cut(self, events: Iterable[Event]) -> None:
        for event in events:
            data = event.data
            if type(data) is AssistantChunk:
                self._answered = True
                self._open.append(event)
                if type(data.chunk) is Finish:
                    self._close(whole=True)
            elif type(data) is RequestHeader:
                self._header(data)
            elif type(data) is RequestContext:
                self._context(data)
            elif type(data) is StepStart:
                self._close(whole=False)
                self._step, self._answered = (data.turn, data.step), False
            elif type(data) in {AssistantMessage, StepEnd, TurnEnd}:
                self._close(whole=False)
                self._answered = self._answered or type(data) is AssistantMessage
                if type(data) is StepEnd:
                    self._step_end()
        self._close(whole=False)
        self._step_end()

    def _step_end(self) -> None:
        if self._step is not None and not self._answered:
            self._tape.silent(*self._step)
        self._step = None

    def _close(self, *, whole: bool) -> None:
        if not self._open:
            return
        first = self._open[0].data
        self._tape.attempts.append(
            RecordedAttempt(
                provider=self._provider,
                model=self._model,
                turn=first.turn,
                step=first.step,
                events=tuple(self._open),
                whole=whole,
            )
        )
        self._open = []

    def _header(self, data: RequestHeader) -> None:
        config, defaults = data.header.config, data.header.adapter_defaults
        self._provider, self._model = config.provider, config.model
        max_tokens = effort = None
        if defaults is not UNSET:
            if defaults.max_tokens is True and config.max_tokens is not UNSET:
                max_tokens = config.max_tokens
            if defaults.reasoning_effort is True and config.reasoning_effort is not UNSET:
                effort = config.reasoning_effort
        # A header says nothing of the window: what the last context said of this model still holds.
        window = self._tape.known(self._provider, self._model).context_window
        self._defaults = ModelInfo(
            context_window=window, default_max_tokens=max_tokens, default_effort=effort
        )
        self._tape.note(self._provider, self._model, self._defaults)

    def _context(self, data: RequestContext) -> None:
        window = None if data.context_window is UNSET else data.context_window
        self._tape.note(data.provider, data.model, attrs.evolve(self._defaults, context_window=window))
