"""The only three ways to call a listener: notification, around, serial."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, final

import attrs

from ..errors import UsageError

if TYPE_CHECKING:
    from ._scope import OwnerScope

logger: Final = logging.getLogger("trio_agents")

R = TypeVar("R")


class Hook:
    """Base of all hook payloads. A hook's class says in which mode its listeners are called."""

    __slots__ = ()


class Notification(Hook):
    """Listeners are plain functions `listener(payload)`; all are told, a failure is contained and logged."""

    __slots__ = ()


class Around(Hook, Generic[R]):
    """Listeners are `async def listener(payload, proceed)`: the first registered is the outermost.

    `await proceed()` runs the rest with the same payload, `await proceed(changed)` with another one; at most once.
    A listener may answer without it, or change the answer.
    """

    __slots__ = ()


class Serial(Hook):
    """Listeners are `async def listener(payload)`, awaited one after the other; the first failure ends it."""

    __slots__ = ()


@final
class Listener:
    """One registration of a listener in one scope."""

    __slots__ = ("fn", "hook", "scope")

    def __init__(self, scope: OwnerScope, hook: type[Hook], fn: Callable[..., Any]) -> None:
        self.scope = scope
        self.hook = hook
        self.fn = fn

    @property
    def is_over(self) -> bool:
        """Whether its scope has closed; it is not started any more, not even by a dispatch under way."""
        return self.scope.is_closed

    def __repr__(self) -> str:
        name = getattr(self.fn, "__qualname__", None) or repr(self.fn)
        return f"{name} (scope {self.scope.name!r})"


def check_listener(hook: object, fn: object) -> None:
    """Refuse what could not be called in the hook's mode.

    Raises:
        UsageError: not callable, no hook class, or a coroutine function where a plain one belongs (or vice versa).
    """
    if not (isinstance(hook, type) and issubclass(hook, Hook)):
        raise UsageError(f"listeners are registered for a hook class, not {hook!r}")
    if not callable(fn):
        raise UsageError(f"a listener of {hook.__name__} is callable, not {fn!r}")
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - asks what calling gives, not whether it can be called
    )
    if issubclass(hook, Notification) and is_async:
        raise UsageError(
            f"listeners of {hook.__name__} are plain functions: {fn!r} is async. "
            "Start the work with Scope.start_soon, or read Session.follow."
        )


def contained(listener: Listener, payload: Hook, exc: BaseException) -> None:
    """Log a listener's failure, once, and go on."""
    logger.error("listener %r of %s failed", listener, type(payload).__name__, exc_info=exc)


def _call(listener: Listener, payload: Hook) -> None:
    answer = listener.fn(payload)
    if inspect.iscoroutine(answer):
        answer.close()
        raise UsageError(
            f"listener {listener!r} of {type(payload).__name__} returned a coroutine; nobody awaits it"
        )


def notify(listeners: tuple[Listener, ...], payload: Notification) -> None:
    """Tell every listener; failures are contained. No checkpoint."""
    for listener in listeners:
        if not listener.is_over:
            try:
                _call(listener, payload)
            except Exception as exc:  # noqa: BLE001 - reported, and the others are told
                contained(listener, payload, exc)


def notify_or_veto(listeners: tuple[Listener, ...], payload: Notification) -> Exception | None:
    """Tell every listener; the first failure is returned as a veto, later ones are contained. No checkpoint."""
    veto: Exception | None = None
    for listener in listeners:
        if not listener.is_over:
            try:
                _call(listener, payload)
            except Exception as exc:  # noqa: BLE001 - the first is the veto, later ones are reported
                if veto is None:
                    veto = exc
                else:
                    contained(listener, payload, exc)
    return veto


H = TypeVar("H", bound=Hook)


async def around(listeners: tuple[Listener, ...], payload: H, default: Callable[[H], Awaitable[R]]) -> R:
    """Call the listeners around `default`, outermost first; an error goes outwards unchanged."""
    agent = getattr(payload, "agent", None)

    async def call(index: int, current: H) -> R:
        while index < len(listeners) and listeners[index].is_over:
            index += 1
        if index == len(listeners):
            return await default(current)
        listener = listeners[index]
        proceeded = False

        async def proceed(changed: H = current) -> R:
            nonlocal proceeded
            if proceeded:
                raise UsageError(f"listener {listener!r} of {type(payload).__name__} called proceed twice")
            proceeded = True
            if type(changed) is not type(payload):
                raise UsageError(
                    f"listener {listener!r} passed on a {type(changed).__name__}, not a {type(payload).__name__}"
                )
            if getattr(changed, "agent", None) is not agent:
                changed = attrs.evolve(cast("Any", changed), agent=agent)
            return await call(index + 1, changed)

        return cast("R", await listener.fn(current, proceed))

    if not listeners:
        return await default(payload)
    return await call(0, payload)


async def serial(listeners: tuple[Listener, ...], payload: Serial) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
    """Await the listeners one after the other; the first failure ends it and is raised."""
    for listener in listeners:
        if not listener.is_over:
            await listener.fn(payload)
