"""Retry of failed requests: which failures, how often, and how long to wait in between."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import msgspec
from msgspec import UNSET

from ..agent import RequestFailed, Retry, Scope
from ..errors import UsageError
from ..session import LlmRetry

RETRIED: Final = frozenset({"EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"})
"""The failure codes that are likely to pass."""


def _number(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value <= 0
    ):
        raise UsageError(f"{attribute.name} of a retry policy is a number of seconds > 0, not {value!r}")


def _count(instance: object, attribute: attrs.Attribute[int], value: object) -> None:
    if type(value) is not int or value < 1:
        raise UsageError(f"{attribute.name} of a retry policy is an int >= 1, not {value!r}")


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Retries failed requests, in their step, with growing pauses. A plugin: give it to `open_runtime`.

    Retries are counted from the log, for each turn, step, provider and policy. What this policy does not retry is left
    to whoever is registered behind it.

    Attributes:
        max_retries: how often one request is sent again.
        first_delay: seconds before the first retry; each further one waits twice as long.
        max_delay: the longest wait in seconds. A provider that asks for more is not asked again.
        jitter: by which part of itself, at the most, a wait is made longer or shorter at random.
        codes: the failure codes that are retried.
        after_output: whether to retry even if part of the answer had come already.
        random: gives numbers from 0 up to 1; for tests.
    """

    max_retries: int = attrs.field(default=5, validator=_count)
    first_delay: float = attrs.field(default=0.5, validator=_number)
    max_delay: float = attrs.field(default=10.0, validator=_number)
    jitter: float = attrs.field(default=0.1)
    codes: frozenset[str] = attrs.field(default=RETRIED, converter=frozenset)
    after_output: bool = False
    random: Callable[[], float] = attrs.field(default=random.random, eq=False, repr=False)

    @jitter.validator
    def _check_jitter(self, attribute: attrs.Attribute[float], value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise UsageError(f"jitter of a retry policy is a number from 0 up to 1, not {value!r}")

    @property
    def key(self) -> str:
        """How the log names this policy; JSON text."""
        return msgspec.json.encode(
            {
                "maxRetries": self.max_retries,
                "firstDelay": self.first_delay,
                "maxDelay": self.max_delay,
                "codes": sorted(self.codes),
                "afterOutput": self.after_output,
            }
        ).decode()

    def __call__(self, scope: Scope) -> None:
        """Register with a scope."""
        scope.on(RequestFailed, self._on_failure)

    async def _on_failure(
        self, failed: RequestFailed, proceed: Callable[[], Awaitable[Retry | None]]
    ) -> Retry | None:
        if failed.failure.code not in self.codes or (failed.had_output and not self.after_output):
            return await proceed()
        header = failed.agent.session.request_header()
        provider = "" if header is None else header.config.provider
        done = _retries(failed, provider, self.key)
        delay = self.delay(done + 1, failed.failure.provider_retry_after_ms)
        if done >= self.max_retries or delay is None:
            return await proceed()
        return Retry(delay=delay, policy_key=self.key, max_retries=self.max_retries)

    def delay(self, retry: int, asked_ms: object = UNSET) -> float | None:
        """Seconds to wait before the retry of this number, or None if the provider asks for too long a wait."""
        if isinstance(asked_ms, (int, float)) and 0 < asked_ms < math.inf:
            asked = asked_ms / 1000
            return asked if asked <= self.max_delay else None
        doublings = min(retry - 1, 64)  # far beyond any cap, and no overflow
        wait = min(self.first_delay * 2.0**doublings, self.max_delay)
        return min(wait * (1 + self.jitter * (2 * self.random() - 1)), self.max_delay)


def _retries(failed: RequestFailed, provider: str, key: str) -> int:
    """How often this policy has retried in this step, as the log tells; only the open step is looked at."""
    events = failed.agent.session.events
    count = 0
    for index in range(len(events) - 1, -1, -1):
        data = events[index].data
        if type(data) is LlmRetry and data.provider == provider and data.policy_key == key:
            count += 1
        elif getattr(data, "wire_type", "") == "step/start":
            break
    return count
