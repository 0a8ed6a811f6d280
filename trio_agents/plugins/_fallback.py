"""Fallback: one name for several models, of which the next answers where one cannot."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, final

import attrs
import msgspec
import trio
from msgspec import UNSET, structs

from ..agent import Agent, AgentDisposed, BeforeRequest, RequestFailed, Retry, Scope
from ..errors import UsageError
from ..session import Header
from ..values import LlmFailure
from ._retry import RETRIED

PROVIDER: Final = "fallback"
"""What stands before the slash in the name of a chain."""

UNAVAILABLE: Final = RETRIED | {"MALFORMED_RESPONSE", "QUOTA", "STREAM_CLOSED"}
"""The failure codes that say something of the provider and nothing of the request."""
_LONGEST_WISH: Final = 3600.0
"""Seconds after which a provider is asked again, whatever it said."""


def _name(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if type(value) is not str or not value:
        raise UsageError(f"the name of a fallback is a non-empty string, not {value!r}")


def _models(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise UsageError(f"the models of a fallback are a sequence of names, not the single string {value!r}")
    found = tuple(value)
    for model in found:
        if type(model) is not str or not all(model.partition("/")):
            raise UsageError(f"the models of a fallback are named provider/model, not {model!r}")
        if model.startswith(f"{PROVIDER}/"):
            raise UsageError(f"a fallback is made of models, and {model!r} is a fallback itself")
    if len(found) < 2 or len(set(found)) != len(found):
        raise UsageError(f"a fallback is made of two or more models, each once, not {found!r}")
    return found


def _codes(value: Iterable[str]) -> frozenset[str]:
    if isinstance(value, str):
        raise UsageError(f"codes of a fallback are a set of failure codes, not the single string {value!r}")
    return frozenset(value)


def _cooldown(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise UsageError(f"cooldown of a fallback is a number of seconds >= 0, not {value!r}")


@final
@attrs.define
class _Choice:
    """What a step goes by: where its last attempt went, and what it has left already."""

    turn: int
    step: int
    model: str
    left: set[str] = attrs.field(factory=set)


@final
@attrs.define(eq=False)
class Fallback:
    """Several models under one name: where one cannot answer, the next is asked. A plugin: give it to `open_runtime`.

    `Fallback("best", ["openai/gpt-5", "anthropic/claude-opus-4"])` makes the model `fallback/best`, for `AgentOptions`
    and `select_model` alike. The log says who answered: each request's header has the model itself, and each change
    of model in a step is an `llm/retry` whose policy names both.

    A model is left only before the first content of its answer, and only for what says that it is not available;
    an answer is never made of two. Plugins are asked in their order: behind a `RetryPolicy`, a model is left when that
    gives up; before it, at once. In one step each model is left once; when all are, the last failure stands. Model and
    effort are those of the request's options otherwise.

    Attributes:
        name: the name behind `fallback/`.
        models: `provider/model` of each, the preferred first.
        cooldown: seconds for which every agent passes over a model that was left, or longer, up to an hour, if its
            provider asked for it. Where all cool down, the first is asked.
        codes: the failure codes for which a model is left.
    """

    name: str = attrs.field(validator=_name)
    models: tuple[str, ...] = attrs.field(converter=_models)
    cooldown: float = attrs.field(default=60.0, kw_only=True, validator=_cooldown)
    codes: frozenset[str] = attrs.field(default=UNAVAILABLE, kw_only=True, converter=_codes)
    _until: dict[str, float] = attrs.field(factory=dict, init=False, repr=False)
    _choices: dict[Agent, _Choice] = attrs.field(factory=dict, init=False, repr=False)

    def __call__(self, scope: Scope) -> None:
        """Register with a scope."""
        scope.on(BeforeRequest, self._before)
        scope.on(RequestFailed, self._on_failure)
        scope.on(AgentDisposed, self._forget)

    async def _before(
        self, asked: BeforeRequest, proceed: Callable[[BeforeRequest], Awaitable[Header]]
    ) -> Header:
        config = asked.header.config
        if config.provider != PROVIDER or config.model != self.name:
            self._choices.pop(asked.agent, None)
            return await proceed(asked)
        choice = self._choices.get(asked.agent)
        if choice is None or (choice.turn, choice.step) != (asked.turn, asked.step):
            choice = _Choice(asked.turn, asked.step, self._best(self.models))
            self._choices[asked.agent] = choice
        provider, _, model = choice.model.partition("/")
        config = structs.replace(config, provider=provider, model=model)
        return await proceed(attrs.evolve(asked, header=structs.replace(asked.header, config=config)))

    async def _on_failure(
        self, failed: RequestFailed, proceed: Callable[[], Awaitable[Retry | None]]
    ) -> Retry | None:
        choice = self._choices.get(failed.agent)
        header = failed.agent.session.request_header()
        if (
            choice is None
            or header is None
            or choice.model != f"{header.config.provider}/{header.config.model}"
            or failed.had_output
            or failed.failure.code not in self.codes
        ):
            return await proceed()
        self._cool(choice.model, failed.failure)
        rest = [model for model in self.models if model not in choice.left and model != choice.model]
        if not rest:
            return await proceed()
        left = choice.model
        choice.left.add(left)
        choice.model = self._best(rest)
        key = {"fallback": self.name, "from": left, "to": choice.model}
        await trio.lowlevel.checkpoint_if_cancelled()
        return Retry(delay=0, policy_key=msgspec.json.encode(key).decode(), max_retries=1)

    def _forget(self, disposed: AgentDisposed) -> None:
        self._choices.pop(disposed.agent, None)

    # --- who is available ---------------------------------------------------------------------

    def _best(self, models: Iterable[str]) -> str:
        """The first that does not cool down, or the first if all do."""
        now = trio.current_time()
        found = list(models)
        return next((model for model in found if self._until.get(model, now) <= now), found[0])

    def _cool(self, model: str, failure: LlmFailure) -> None:
        wait = failure.provider_retry_after_ms
        asked = 0.0 if wait is UNSET else min(wait / 1000, _LONGEST_WISH)
        until = trio.current_time() + max(self.cooldown, asked)
        # Of several failures at about the same time, one may have brought the provider's wish.
        self._until[model] = max(self._until.get(model, until), until)
