"""A thing that ends once: its end is asked for, carried out by exactly one runner, awaited by many.

The model, once. Agents, scopes, entered contexts, background tasks and pending creations are all lifetimes.

* **Asking** is synchronous and idempotent. It does what must happen at once (refuse new work, cancel running work).
* **The tail** does the rest. If, at the moment of asking, something has to be waited for, a task in the runtime's
  nursery runs the tail. If nothing has, whoever settles runs it in place, and it has no checkpoint. So a tail
  that waits never runs in a waiter's task, and a cancelled waiter cancels nothing.
* **Settling** waits for the end. Everybody who waits shares that one end; everybody who was waiting when it failed
  gets an error of their own.

There is one flat nursery, `Homes`. No scope and no agent owns a nursery, so a cancel of whoever owns them never
reaches their tasks directly: it reaches the owner's block, and leaving that block asks and settles.
"""

from __future__ import annotations

import contextvars
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVarTuple, Unpack, final

import trio

from ..errors import TeardownError

if TYPE_CHECKING:
    from ._scope import OwnerScope

logger: Final = logging.getLogger("trio_agents")

Ts = TypeVarTuple("Ts")

GRACE: Final = 30.0
"""Seconds that an end may take before what still runs is cancelled, unless an agent's options say otherwise."""


@final
class Homes:
    """The one nursery in which everything runs that runs for agents; shielded, flat, left last.

    Tasks start in the context in which the runtime was opened, never in their spawner's.
    """

    __slots__ = ("_context", "_nursery", "ended", "heard", "is_open")

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._context = contextvars.copy_context()
        self.heard: dict[type, int] = {}  # listeners of each hook in all scopes together: mostly, none
        # Cleared before the nursery refuses tasks: a nursery closes one step before the code after its block runs.
        self.is_open: bool = True
        self.ended: Lifetime = _Ended(self)

    def spawn(self, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts, name: str) -> bool:
        """Start a task; False if the nursery takes none any more. No checkpoint: the task first runs later."""
        if not self.is_open:
            return False
        self._context.run(self._nursery.start_soon, fn, *args, name=name)  # type: ignore[arg-type]
        return True

    def cancel(self) -> None:
        """Cancel every task: the host wants the end now."""
        self._nursery.cancel_scope.cancel(reason="the host was interrupted while the runtime was ending")


class State(enum.Enum):
    """How far the end of a lifetime has come."""

    OPEN = "open"
    ASKED = "asked for, and left to whoever settles"
    RUNNING = "being carried out"
    ENDED = "ended"


class Lifetime:
    """Base of everything that ends once. Subclasses say what asking does, when to wait, and what the tail is."""

    __slots__ = ("_done", "_failures", "_state", "homes")

    def __init__(self, homes: Homes) -> None:
        self.homes: Homes = homes
        self._state = State.OPEN
        self._done: trio.Event | None = None
        self._failures: list[BaseException] | None = None

    # --- what a subclass is -------------------------------------------------------------------

    def _describe(self) -> str:
        """What this is, for error texts and task names."""
        raise NotImplementedError

    def _on_ask(self) -> None:
        """What must happen at once when the end is asked for. Must not raise."""

    def _must_wait(self) -> bool:
        """Whether the tail has something to wait for."""
        raise NotImplementedError

    async def _tail(self, waits: bool) -> None:
        """Carry the end out. Failures go to `_failed`.

        Each of its waits is shielded by itself: a crash of the runtime cancels the nursery of the tails, and an end
        that is under way still goes its whole way.

        Args:
            waits: what `_must_wait` said. If it was false, there is no checkpoint.
        """
        raise NotImplementedError

    @property
    def owned(self) -> OwnerScope | None:
        """The scope that ends with this, or None."""
        return None

    # --- what everybody sees ------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether the end was asked for (or has come)."""
        return self._state is not State.OPEN

    @property
    def is_ended(self) -> bool:
        """Whether the end has come."""
        return self._state is State.ENDED

    @trio.lowlevel.enable_ki_protection
    def ask(self) -> None:
        """Ask for the end and promise to settle. Idempotent, no checkpoint."""
        if self._state is not State.OPEN:
            return
        self._state = State.ASKED
        self._on_ask()
        if self._must_wait():
            self._launch()

    @trio.lowlevel.enable_ki_protection
    def ask_soon(self) -> None:
        """Ask for the end and walk away: somebody else runs the tail. Idempotent, no checkpoint."""
        self.ask()
        if self._state is State.ASKED:
            self._launch()

    def _launch(self) -> None:
        if self.homes.spawn(self._run, True, name=f"end of {self._describe()}"):
            self._state = State.RUNNING
        # else: the nursery is closed, and the root scope's close settles whatever is left

    @trio.lowlevel.enable_ki_protection
    async def settle(self, *, from_the_start: bool = False) -> bool:  # noqa: ASYNC910 - waits only if there is something to wait for
        """Wait until the end, once asked for, has come. A checkpoint only if there is something to wait for.

        Args:
            from_the_start: the caller was there before the end: a failure is also raised if all is over by now.

        Returns:
            whether it waited, so that it was a checkpoint.

        Raises:
            TeardownError: something failed on the way; one of its own for each waiter. Everything is released.
        """
        waited = False
        if self._state is State.ASKED:
            waits = self._must_wait()
            if waits:
                self._launch()  # something to wait for came between the asking and now
            if self._state is State.ASKED:
                self._state = State.RUNNING
                await self._run(waits)  # no checkpoint, unless the runtime takes no tasks any more
        elif self._state is State.ENDED and not from_the_start:
            return False  # noqa: ASYNC910 - waits only if there is something to wait for
        if self._state is State.RUNNING:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
            waited = True
        if self._failures:
            raise self._error()
        return waited  # noqa: ASYNC910 - waits only if there is something to wait for

    @trio.lowlevel.enable_ki_protection
    async def _run(self, waits: bool) -> None:
        try:
            await self._tail(waits)
        except Exception as exc:  # noqa: BLE001 - whatever a tail lets through is a failure of this end
            self._failed(exc)
        finally:
            self._state = State.ENDED
            if self._done is not None:
                self._done.set()

    def _failed(self, exc: BaseException) -> None:
        """Remember a failure on the way to the end: the first is raised, later ones become notes on it."""
        if self._failures is None:
            self._failures = []
        else:
            self._failures[0].add_note(f"then, too: {type(exc).__name__}: {exc}")
        self._failures.append(exc)
        logger.error("failure while ending %s", self._describe(), exc_info=exc)

    def _error(self) -> TeardownError:
        assert self._failures
        first = self._failures[0]
        error = TeardownError(f"{self._describe()} ended, but not cleanly: {type(first).__name__}: {first}")
        error.__cause__ = first
        return error

    def _deadline(self) -> float:
        """Until when, on Trio's clock, the parts of this end may take; what is late is cancelled and named."""
        return trio.current_time() + GRACE


@final
class _Ended(Lifetime):
    """What an ended scope has in place of its life: over, with nothing to tell, and nobody's."""

    __slots__ = ()

    def __init__(self, homes: Homes) -> None:
        super().__init__(homes)
        self._state = State.ENDED

    def _describe(self) -> str:
        return "what has ended"


LAST_PART: Final = 5.0
"""Seconds that a part of an end gets, within its grace, although the parts before it used the grace up."""


def at_least(deadline: float, grace: float = GRACE) -> float:
    """A deadline for the next part of an end: it gets some seconds even if the grace is over."""
    return max(deadline, trio.current_time() + min(LAST_PART, grace))
