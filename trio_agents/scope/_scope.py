"""Ownership: what a scope holds, and how it is given back in order."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Generic, Protocol, TypeVar, TypeVarTuple, Unpack, cast, final

import trio

from ..errors import ScopeClosedError, UsageError
from ._dispatch import Hook, Listener, check_listener
from ._lifetime import Homes, Lifetime, logger

T = TypeVar("T")
H = TypeVar("H", bound=Hook)
Ts = TypeVarTuple("Ts")

MAX_DEPTH: Final = 64
"""How deep ownership may nest: each dispatch walks the owners, and closing a chain must stay cheap."""

BREATHER: Final = 64
"""How many members a close settles between two checkpoints, so that closing many does not stall the loop."""

LAST_CALL: Final = 1.0
"""Seconds that cancelled code gets to leave before it counts as shielding itself."""


class Undo(Protocol):
    """Takes one registration back: that one only, and only once; later calls do nothing."""

    def __call__(self) -> None: ...


@final
class Contribution:
    """One thing to give back when a scope closes: a call whose answer may have to be awaited, or a held task."""

    __slots__ = ("act", "life", "name", "waits")

    def __init__(
        self,
        name: str,
        *,
        act: Callable[[], object] | None = None,
        waits: Callable[[], bool] | None = None,
        life: _Holder[Any] | None = None,
    ) -> None:
        self.name = name
        self.act = act
        self.waits = waits
        self.life = life

    @property
    def must_wait(self) -> bool:
        """Whether giving it back has something to wait for."""
        return self.life is not None or (self.waits is not None and self.waits())

    async def give_back(self, deadline: float) -> None:
        """Give it back; what is not done by the deadline (Trio's clock) is cancelled, named, and left behind."""
        if self.life is not None:
            await self.life.end_by(deadline)
        elif self.act is not None:
            answer = self.act()
            if inspect.isawaitable(answer):
                with trio.CancelScope(deadline=deadline, shield=True) as bound:
                    await answer
                if bound.cancelled_caught:
                    raise TimeoutError(f"{self.name} did not end within the grace and was cancelled")


class OwnerScope:
    """Owns members (agents, child scopes, creations) and contributions (registrations, contexts, tasks).

    `life` is what ends it: itself for a plain scope, the handle for an agent's scope. The end settles the members,
    newest first, all of them asked at once; then it gives the contributions back in reverse.
    """

    __slots__ = (
        "_contributions",
        "_is_closed",
        "_listeners",
        "_members",
        "depth",
        "homes",
        "life",
        "name",
        "parent",
    )

    life: Lifetime

    def __init__(self, name: str, *, parent: OwnerScope | None, homes: Homes) -> None:
        self.name = name
        self.parent = parent
        self.homes = homes
        self.depth: int = 0 if parent is None else parent.depth + 1
        if self.depth > MAX_DEPTH:
            raise UsageError(f"scope {name!r} would be {self.depth} owners deep; the limit is {MAX_DEPTH}")
        self._is_closed = False
        # Made when first needed: most scopes of most agents hold nothing.
        self._members: dict[Lifetime, None] | None = None
        self._contributions: dict[Contribution, None] | None = None
        self._listeners: dict[type[Hook], tuple[Listener, ...]] | None = None

    # --- state --------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether this scope's end was asked for: it takes no new agents, child scopes or creations."""
        return self.life.is_ending

    @property
    def is_empty(self) -> bool:
        """Whether closing has nothing at all to do."""
        return not self._members and not self._contributions

    def check_open(self, what: str) -> None:
        """Raise `ScopeClosedError` if registrations are over."""
        if self._is_closed:
            raise ScopeClosedError(f"scope {self.name!r} is closed; {what} cannot be registered in it")

    # --- members ------------------------------------------------------------------------------

    def adopt(self, life: Lifetime) -> None:
        """Own a lifetime: closing this scope ends it."""
        if self._members is None:
            self._members = {}
        self._members[life] = None

    def release(self, life: Lifetime) -> None:
        """No longer own a lifetime that has ended."""
        if self._members is not None:
            self._members.pop(life, None)

    # --- contributions ------------------------------------------------------------------------

    def contribute(self, contribution: Contribution) -> Undo:
        """Have something given back at the close. The undo only forgets it."""
        self.check_open(contribution.name)
        if self._contributions is None:
            self._contributions = {}
        self._contributions[contribution] = None
        return lambda: self.forget(contribution)

    def forget(self, contribution: Contribution) -> None:
        """Drop a contribution without giving it back."""
        if self._contributions is not None:
            self._contributions.pop(contribution, None)

    def callback(self, fn: Callable[[Unpack[Ts]], object], *args: *Ts) -> Undo:
        """Call `fn(*args)` when this scope closes; an async function is awaited. Returns an undo.

        Raises:
            ScopeClosedError: the scope is closed.
        """
        waits = _always if inspect.iscoroutinefunction(fn) else None
        return self.contribute(Contribution(f"callback {fn!r}", act=lambda: fn(*args), waits=waits))

    def enter_context(self, context: AbstractContextManager[T]) -> T:
        """Enter a context manager; it is left when this scope closes.

        Raises:
            ScopeClosedError: the scope is closed; nothing was entered.
        """
        self.check_open("a context")
        value = context.__enter__()
        self.contribute(Contribution(f"context {context!r}", act=lambda: context.__exit__(None, None, None)))
        return value

    async def enter_async_context(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager in a task of its own; that task leaves it when this scope closes.

        So it may be entered from any task, and a crash inside it (a failing background task, a lost connection)
        harms nothing else: it is logged at once, and the scope's close raises it. A checkpoint. If the wait is
        cancelled, the context has been left when `Cancelled` is raised.

        Raises:
            ScopeClosedError: the scope is closed, or closed meanwhile.
        """

        async def hold(status: _Status[T]) -> None:
            async with context as value:
                status.started(value)
                await status.released.wait()

        return await self._start(hold, f"context {context!r}")

    def start_soon(
        self, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts, name: str | None = None
    ) -> None:
        """Run `fn(*args)` in a task that this scope owns: closing cancels it and waits for it. No checkpoint.

        The task runs in the runtime's own context: neither the caller's initiator nor its context variables are
        inherited. If it fails, the failure is logged at once and raised by the scope's close; nothing else ends.

        Raises:
            ScopeClosedError: the scope is closed, or the runtime is ending.
        """
        label = name or getattr(fn, "__qualname__", repr(fn))

        async def run(status: _Status[None]) -> None:
            status.started(None)
            await fn(*args)

        holder = _Holder(self, run, f"task {label}")
        holder.cancels = True
        self._hold(holder)

    async def start(
        self, fn: Callable[..., Awaitable[object]], *args: object, name: str | None = None
    ) -> Any:
        """Like `start_soon`, but wait until the task called `task_status.started(value)`, and return the value.

        A checkpoint. If the wait is cancelled, so is the task, and it has ended when `Cancelled` is raised.
        """
        label = name or getattr(fn, "__qualname__", repr(fn))

        async def run(status: _Status[Any]) -> None:
            await fn(*args, task_status=status)

        return await self._start(run, f"task {label}", cancels=True)

    def _hold(self, holder: _Holder[Any]) -> None:
        self.contribute(holder.contribution)
        if not self.homes.spawn(holder.run, name=f"{holder.label} of scope {self.name}"):
            self.forget(holder.contribution)
            raise ScopeClosedError(
                f"the runtime of scope {self.name!r} is ending; {holder.label} was not started"
            )

    async def _start(
        self, body: Callable[[_Status[T]], Awaitable[None]], label: str, *, cancels: bool = False
    ) -> T:
        holder: _Holder[T] = _Holder(self, body, label)
        holder.cancels = cancels
        self._hold(holder)
        try:
            await holder.status.ready.wait()
        except trio.Cancelled:
            holder.ask()
            with trio.CancelScope(shield=True):
                await holder.left.wait()
            holder.forget()
            raise
        return holder.result()

    # --- listeners ----------------------------------------------------------------------------

    def on(self, hook: type[H], listener: Callable[..., Any]) -> Undo:
        """Register a listener of a hook, for this scope and everything below it. Returns an undo.

        Raises:
            UsageError: the listener does not fit the hook's mode.
            ScopeClosedError: the scope is closed.
        """
        check_listener(hook, listener)
        self.check_open(f"a listener of {hook.__name__}")
        entry = Listener(self, hook, listener)
        if self._listeners is None:
            self._listeners = {}
        self._listeners[hook] = (*self._listeners.get(hook, ()), entry)
        contribution = Contribution(f"listener {entry!r}", act=lambda: self._off(entry))
        self.contribute(contribution)

        def undo() -> None:
            self._off(entry)
            self.forget(contribution)

        return undo

    def _off(self, entry: Listener) -> None:
        if not entry.is_live:
            return
        entry.is_live = False
        assert self._listeners is not None
        left = tuple(other for other in self._listeners[entry.hook] if other is not entry)
        if left:
            self._listeners[entry.hook] = left
        else:
            del self._listeners[entry.hook]

    def listeners(self, hook: type[Hook]) -> tuple[Listener, ...]:
        """Everybody who hears a dispatch from this scope: outer scopes first, then order of registration."""
        found: tuple[Listener, ...] = ()
        scope: OwnerScope | None = self
        while scope is not None:
            if scope._listeners is not None:
                own = scope._listeners.get(hook)
                if own is not None:
                    found = own + found
            scope = scope.parent
        return found

    # --- the end ------------------------------------------------------------------------------

    def must_wait(self) -> bool:
        """Whether unwinding has anything to wait for."""
        if self._members:
            return True
        return self._contributions is not None and any(c.must_wait for c in self._contributions)

    async def unwind(self, failed: Callable[[BaseException], None], deadline: float) -> None:
        """End the members, then give the contributions back. Failures are reported and skip nothing.

        Members have bounds of their own and are waited for; contributions have until `deadline` (Trio's clock).
        """
        if self._members:
            await self._end_members(failed)
        self._is_closed = True
        while self._contributions:
            contribution, _ = self._contributions.popitem()
            try:
                await contribution.give_back(deadline)
            except Exception as exc:
                failed(exc)

    async def _end_members(self, failed: Callable[[BaseException], None]) -> None:
        assert self._members is not None
        while self._members:  # whoever settles may still adopt, until the contributions are given back
            members = list(self._members)
            for index, member in enumerate(members, 1):
                member.ask()
                if index % BREATHER == 0:
                    await trio.lowlevel.checkpoint()
            for index, member in enumerate(reversed(members), 1):
                try:
                    await member.settle()
                except Exception as exc:
                    failed(exc)
                self._members.pop(member, None)
                if index % BREATHER == 0:
                    await trio.lowlevel.checkpoint()


def _always() -> bool:
    return True


@final
class _Status(Generic[T]):
    """How a held task says that it has started; fits wherever a `trio.TaskStatus` is expected."""

    __slots__ = ("has_started", "ready", "released", "value")

    def __init__(self) -> None:
        self.has_started = False
        self.ready = trio.Event()
        self.released = trio.Event()
        self.value: T | None = None

    def started(self, value: T | None = None) -> None:
        """Say that the task has started, and with what; once."""
        if self.ready.is_set():
            raise UsageError("started() was called twice, or too late")
        self.value = value
        self.has_started = True
        self.ready.set()


@final
class _Holder(Lifetime, Generic[T]):
    """One task that a scope owns: it enters a context and leaves it again, or runs a function."""

    __slots__ = (
        "body",
        "cancel_scope",
        "cancels",
        "contribution",
        "crash",
        "label",
        "left",
        "scope",
        "status",
    )

    def __init__(self, scope: OwnerScope, body: Callable[[_Status[T]], Awaitable[None]], label: str) -> None:
        super().__init__(scope.homes)
        self.scope = scope
        self.body = body
        self.label = label
        self.status: _Status[T] = _Status()
        self.cancel_scope = trio.CancelScope()
        self.cancels = False  # whether the end cancels the body (a task) or releases it (a context)
        self.left = trio.Event()
        self.crash: BaseException | None = None
        self.contribution = Contribution(label, life=self)

    def _describe(self) -> str:
        return f"{self.label} of scope {self.scope.name!r}"

    def _on_ask(self) -> None:
        self.status.released.set()
        if self.cancels or not self.status.ready.is_set():
            self.cancel_scope.cancel(reason="its scope is closing")

    def _must_wait(self) -> bool:
        return False  # the close that settles this waits in its own task

    async def _tail(self) -> None:
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

    async def run(self) -> None:
        """The task."""
        try:
            with self.cancel_scope:
                await self.body(self.status)
        except Exception as exc:
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
        self.scope.forget(self.contribution)


@final
class ScopeLife(Lifetime):
    """The life of a scope that is no agent's."""

    __slots__ = ("scope",)

    def __init__(self, scope: OwnerScope) -> None:
        super().__init__(scope.homes)
        self.scope = scope

    def _describe(self) -> str:
        return f"scope {self.scope.name!r}"

    def _must_wait(self) -> bool:
        return self.scope.must_wait()

    async def _tail(self) -> None:
        await self.scope.unwind(self._failed, self._deadline())
        if self.scope.parent is not None:
            self.scope.parent.release(self)
