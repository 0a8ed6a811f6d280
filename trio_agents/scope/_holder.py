"""What a scope gives back when it closes: calls, and tasks that it holds."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast, final

import trio

from ..errors import ScopeClosedError, UsageError
from ._lifetime import GRACE, Lifetime, logger
from ._waits import working_for

if TYPE_CHECKING:
    from ._scope import OwnerScope

T = TypeVar("T")

LAST_CALL: Final = 1.0
"""Seconds that cancelled code gets to leave before it counts as shielding itself."""


@final
class Contribution:
    """A call to make when a scope closes, whose answer may have to be awaited."""

    __slots__ = ("_act", "_waits", "name")

    def __init__(
        self, name: str, *, act: Callable[[], object], waits: Callable[[], bool] | None = None
    ) -> None:
        self.name: str = name
        self._act = act
        self._waits = waits

    @property
    def must_wait(self) -> bool:
        """Whether giving it back has something to wait for."""
        return self._waits is not None and self._waits()

    def call(self) -> Awaitable[object] | None:
        """Call what is to be called; gives what is left to be awaited, if there is anything."""
        answer = self._act()
        return answer if inspect.isawaitable(answer) else None


@final
class Status(Generic[T]):
    """How a held task says that it has started; fits wherever a `trio.TaskStatus` is expected."""

    __slots__ = ("has_started", "ready", "released", "value")

    def __init__(self) -> None:
        self.has_started: bool = False
        self.ready: trio.Event = trio.Event()
        self.released: trio.Event = trio.Event()
        self.value: T | None = None

    def started(self, value: T | None = None) -> None:
        """Say that the task has started, and with what; once."""
        if self.ready.is_set():
            raise UsageError("started() was called twice, or too late")
        self.value = value
        self.has_started = True
        self.ready.set()


@final
class Holder(Lifetime, Generic[T]):
    """One task that a scope owns: it enters a context and leaves it again, or runs a function.

    It stands among what the scope gives back, and nothing of it points back to itself: so it is freed when it has ended.
    """

    __slots__ = (
        "body",
        "cancel_scope",
        "cancels",
        "crash",
        "label",
        "left",
        "scope",
        "status",
    )

    def __init__(self, scope: OwnerScope, body: Callable[[Status[T]], Awaitable[None]], label: str) -> None:
        super().__init__(scope.homes)
        self.scope: OwnerScope = scope
        self.body: Callable[[Status[T]], Awaitable[None]] = body
        self.label: str = label
        self.status: Status[T] = Status()
        self.cancel_scope: trio.CancelScope = trio.CancelScope()
        self.cancels: bool = False  # whether the end cancels the body (a task) or releases it (a context)
        self.left: trio.Event = trio.Event()
        self.crash: BaseException | None = None

    @property
    def must_wait(self) -> bool:
        """Always: its task has to end."""
        return True

    def _describe(self) -> str:
        return f"{self.label} of scope {self.scope.name!r}"

    def _on_ask(self) -> None:
        self.status.released.set()
        if self.cancels or not self.status.ready.is_set():
            self.cancel_scope.cancel(reason="its scope is closing")

    def _must_wait(self) -> bool:
        return False  # the close that settles this waits in its own task

    async def _tail(self, waits: bool) -> None:
        with trio.CancelScope(shield=True):
            await self.left.wait()

    async def end_by(self, deadline: float) -> None:
        """Ask for the task's end and wait for it; raise what it failed with.

        Raises:
            TimeoutError: it did not end in time. It was cancelled; if it shields itself it is still there.
        """
        self.ask()
        with trio.CancelScope(deadline=deadline, shield=True):
            await self.left.wait()
        if not self.left.is_set():
            self.cancel_scope.cancel(reason="the grace is over")
            with trio.move_on_after(LAST_CALL, shield=True):
                await self.left.wait()
            ending = "was cancelled" if self.left.is_set() else "shields itself and still runs"
            raise TimeoutError(f"{self._describe()} did not end within the grace and {ending}")
        if self.crash is not None:
            raise self.crash

    async def give_up(self) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
        """Nobody waits for the start any more: end the task, shielded and bounded, and log what it failed with."""
        self.forget()
        try:
            await self.end_by(trio.current_time() + GRACE)
        except Exception as exc:  # noqa: BLE001 - the caller is cancelled, which wins
            logger.error("%s failed while its start was cancelled", self._describe(), exc_info=exc)

    async def run(self) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
        """The task."""
        try:
            with self.cancel_scope:
                if self.status.has_started:  # a clean-up: its scope waits for it from the first step on
                    with working_for(self.scope):
                        await self.body(self.status)
                else:
                    await self.body(self.status)
        except Exception as exc:  # noqa: BLE001 - contained: reported here, raised by the scope's close
            self.crash = exc
            if self.status.ready.is_set() and not self.is_ending:
                logger.error("%s failed", self._describe(), exc_info=exc)
        finally:
            self.left.set()
            self.status.ready.set()
            if self.crash is None and not self.is_ending:
                self.forget()

    def result(self) -> T:
        """What the task started with, or why it did not."""
        if self.status.has_started:
            return cast("T", self.status.value)
        self.forget()
        if self.crash is not None:
            raise self.crash
        if self.is_ending:
            raise ScopeClosedError(f"scope {self.scope.name!r} closed while {self.label} was starting")
        raise UsageError(f"{self.label} ended without calling started()")

    def forget(self) -> None:
        """The task is over and has nothing left to report."""
        self.scope.forget(self)
