"""Limits that hold for one provider across all agents: who waits, and for how long.

One queue, first come, first served: only its head looks at the limits, and nobody overtakes it. What is taken is taken
by the task that waits, between two of its checkpoints, so a cancel finds either a place in the queue or a request under
way, and nothing in between.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, final

import trio

from ..errors import ModelError, UsageError
from ..values._chunks import Chunk, Finish, FinishAborted, FinishError, Usage
from ..values._messages import TokenUsage
from ._contract import ModelAdapter, ModelInfo, ModelRequest

_MINUTE: Final = 60.0
_LONGEST_HOLD: Final = 3600.0
"""Seconds after which a provider is asked again, whatever it said."""


@final
class _Used:
    """The tokens that one request counts with, for a minute after its beginning."""

    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: float) -> None:
        self.at = at
        self.tokens = tokens


@final
class _Permit:
    """A request under way: what it holds of the limits, and gives back."""

    __slots__ = ("_limits", "_tokens", "_used")

    def __init__(self, limits: Limits, used: _Used) -> None:
        self._limits = limits
        self._used = used
        self._tokens: int | None = None

    def note(self, usage: TokenUsage) -> None:
        """The provider says what the request has used so far."""
        self._tokens = _count(usage)

    def release(self) -> None:
        """The request is over."""
        limits = self._limits
        limits._running -= 1
        if self._tokens is not None:
            limits._settle(self._used, self._tokens)
        limits._wake()


@final
class Limits:
    """How much may be asked of a provider, by all agents together. Give it to `Limited`, to one or to several of them.

    Requests that have to wait do so in the order in which they came. When a provider asks one of them to wait
    (`Retry-After`), all wait until then. Belongs to one run of Trio.

    Args:
        concurrency: how many requests may be under way at a time.
        requests_per_minute: how many may begin in any sixty seconds.
        tokens_per_minute: how many tokens the requests of any sixty seconds may use before the next has to wait. What a
            request uses is known when its answer ends; until then it counts with the mean of those before it.
        max_wait: the longest wait in seconds; a request that would wait longer fails with `RATE_LIMIT` and the wait that
            is known of as its `retry_after_ms`. The agent's own `first_byte_timeout` counts the wait too. None: no bound.

    Raises:
        UsageError: an argument cannot be right.
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        max_wait: float | None = 60.0,
    ) -> None:
        for name, value in (
            ("concurrency", concurrency),
            ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
        ):
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} of limits is an int >= 1 or None, not {value!r}")
        if max_wait is not None and not (type(max_wait) in {int, float} and 0 <= max_wait < math.inf):
            raise UsageError(f"max_wait of limits is a number of seconds >= 0 or None, not {max_wait!r}")
        self._concurrency = concurrency
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._max_wait = math.inf if max_wait is None else max_wait
        self._running = 0
        self._begun: deque[float] = deque(maxlen=requests_per_minute)
        self._used: deque[_Used] = deque()
        self._sum = 0.0
        self._mean = 0.0
        self._held_until = -math.inf
        self._queue: OrderedDict[object, trio.Event] = OrderedDict()

    def __repr__(self) -> str:
        shown = {
            "concurrency": self._concurrency,
            "requests_per_minute": self._requests,
            "tokens_per_minute": self._tokens,
        }
        return f"Limits({', '.join(f'{name}={value}' for name, value in shown.items() if value is not None)})"

    @property
    def running(self) -> int:
        """How many requests are under way."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def hold(self, seconds: float) -> None:
        """Begin no request for so long, an hour at the most; the longest of several such times counts."""
        self._held_until = max(self._held_until, trio.current_time() + min(seconds, _LONGEST_HOLD))

    async def _acquire(self, who: str) -> _Permit:
        """Wait for one's turn. A checkpoint only if there is a wait; cancelling that leaves nothing taken.

        Args:
            who: the provider, for the text of the error.

        Raises:
            ModelError: the wait is, or would be, longer than `max_wait` (`RATE_LIMIT`).
        """
        now = trio.current_time()
        if not self._queue and self._free_at(now) <= now:
            return self._take(now)  # noqa: ASYNC910 - waits only if there is something to wait for
        latest = now + self._max_wait
        ticket = object()
        self._queue[ticket] = trio.Event()
        try:
            while True:
                now = trio.current_time()
                free_at = self._free_at(now) if next(iter(self._queue)) is ticket else math.inf
                if free_at <= now:
                    return self._take(now)  # noqa: ASYNC910 - it has waited
                known = self._held_until if free_at == math.inf else free_at
                if now >= latest or known > latest:
                    raise self._too_long(who, max(known - now, 0.0))
                with trio.CancelScope(deadline=min(free_at, latest)):
                    await self._queue[ticket].wait()
                # Woken and cancelled in the same moment: then the turn is for the next one.
                await trio.lowlevel.checkpoint_if_cancelled()
                self._queue[ticket] = trio.Event()
        finally:
            del self._queue[ticket]
            self._wake()

    # --- the limits ---------------------------------------------------------------------------

    def _free_at(self, now: float) -> float:
        """When a request may begin, as far as is known; never, until another one ends."""
        if self._concurrency is not None and self._running >= self._concurrency:
            return math.inf
        free_at = self._held_until
        if self._requests is not None and len(self._begun) == self._requests:
            free_at = max(free_at, self._begun[0] + _MINUTE)
        if self._tokens is not None:
            free_at = max(free_at, self._tokens_free_at(now, self._tokens))
        return free_at

    def _tokens_free_at(self, now: float, most: int) -> float:
        """When the requests of the last minute will have used less than they may."""
        while self._used and self._used[0].at + _MINUTE <= now:
            self._sum -= self._used.popleft().tokens
        if not self._used:
            self._sum = 0.0  # what rounding left of it
        over = self._sum - most
        free_at = now
        for used in self._used:
            if over < 0:
                break
            over -= used.tokens
            free_at = used.at + _MINUTE
        return free_at

    def _take(self, now: float) -> _Permit:
        self._running += 1
        used = _Used(now, self._mean)
        if self._requests is not None:
            self._begun.append(now)
        if self._tokens is not None:
            self._used.append(used)
            self._sum += used.tokens
        return _Permit(self, used)

    def _settle(self, used: _Used, tokens: int) -> None:
        if self._tokens is None:
            return
        if self._used and self._used[0].at <= used.at:
            self._sum += tokens - used.tokens
        used.tokens = tokens
        # Of the last ten or so: prompts grow with their conversations.
        self._mean = tokens if self._mean == 0 else self._mean * 0.9 + tokens * 0.1

    def _wake(self) -> None:
        """Let the head of the queue look again."""
        if self._queue:
            next(iter(self._queue.values())).set()

    def _too_long(self, who: str, known: float) -> ModelError:
        what = f"a request to {who} would have to wait" if known > 0 else f"a request to {who} has waited"
        seconds = known if known > 0 else self._max_wait
        return ModelError(
            f"{what} {seconds:g} s; {self!r} and {len(self._queue) - 1} other requests are in its way, "
            f"and max_wait is {self._max_wait:g} s",
            code="RATE_LIMIT",
            retry_after_ms=known * 1000 if known > 0 else None,
        )


def _count(usage: TokenUsage) -> int:
    """All tokens of a request. What was read from a cache counts too: with most providers it does."""
    cached = (usage.cache_read_tokens, usage.cache_write_tokens)
    return usage.input_tokens + usage.output_tokens + sum(count for count in cached if type(count) is int)


@final
class Limited:
    """A model adapter whose requests keep limits: `Limited(OpenAIChat(), Limits(concurrency=8))`.

    Adapters that share an account may share the limits: give the same `Limits` to both.
    """

    def __init__(self, adapter: ModelAdapter, limits: Limits) -> None:
        if not isinstance(limits, Limits):
            raise UsageError(f"an adapter is limited by Limits, not by {limits!r}")
        self._adapter = adapter
        self.limits: Final[Limits] = limits
        """The limits, which say how many requests run and wait."""

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        return self._adapter.provider

    def __repr__(self) -> str:
        return f"Limited({self._adapter!r}, {self.limits!r})"

    async def info(self, model: str) -> ModelInfo:
        """What the adapter says of a model; not limited."""
        return await self._adapter.info(model)

    async def aclose(self) -> None:
        """Close the adapter, if it can be closed. A checkpoint."""
        await trio.lowlevel.checkpoint()
        aclose = getattr(self._adapter, "aclose", None)
        if aclose is not None:
            await aclose()

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Wait for one's turn, then let the adapter answer. A checkpoint.

        Cancelling leaves nothing taken.

        Raises:
            ModelError: the wait was too long (`RATE_LIMIT`), or the request failed.
        """
        permit = await self.limits._acquire(self.provider)

        def watch(chunk: Chunk) -> None:
            if type(chunk) is Usage:
                permit.note(chunk.usage)
            elif type(chunk) is Finish and isinstance(chunk.reason, (FinishError, FinishAborted)):
                self._hear(chunk.reason.failure.provider_retry_after_ms)
            emit(chunk)

        try:
            await self._adapter.stream(request, watch)
        except ModelError as exc:
            self._hear(exc.retry_after_ms)
            raise
        finally:
            permit.release()

    def _hear(self, wait_ms: object) -> None:
        """A provider that asks one request to wait asks all of them."""
        if isinstance(wait_ms, (int, float)) and 0 < wait_ms < math.inf:
            self.limits.hold(wait_ms / 1000)
