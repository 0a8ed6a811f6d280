"""Ownership: what a scope holds, and how it is given back in order."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, Unpack, final

import trio

from ..errors import ScopeClosedError, UsageError
from ._dispatch import Hook, Listener, check_listener
from ._holder import Contribution, Holder, Status
from ._lifetime import GRACE, Homes, Lifetime, at_least
from ._waits import working_for

T = TypeVar("T")
H = TypeVar("H", bound=Hook)
Ts = TypeVarTuple("Ts")

MAX_DEPTH: Final = 64
"""How deep ownership may nest: each dispatch walks the owners, and closing a chain must stay cheap."""

BREATHER: Final = 64
"""How many members a close settles between two checkpoints, so that closing many does not stall the loop."""


class Undo(Protocol):
    """Takes one registration back: that one only, and only once; later calls do nothing."""

    def __call__(self) -> None: ...


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
        "_name",
        "life",
        "parent",
    )

    life: Lifetime

    def __init__(self, name: str | None, *, parent: OwnerScope | None) -> None:
        self._name: str | None = name
        self.parent: OwnerScope | None = parent
        if parent is not None and (depth := self.depth) > MAX_DEPTH:
            raise UsageError(f"scope {self.name!r} would be {depth} owners deep; the limit is {MAX_DEPTH}")
        self._is_closed = False
        # Made when first needed: most scopes of most agents hold nothing.
        self._members: dict[Lifetime, None] | None = None
        self._contributions: dict[Contribution | Holder[Any], None] | None = None
        self._listeners: dict[type[Hook], tuple[Listener, ...]] | None = None

    @property
    def name(self) -> str:
        """What it is called in error texts and task names."""
        return self._name or self._default_name()

    def _default_name(self) -> str:
        return "unnamed"

    @property
    def depth(self) -> int:
        """How many owners it has above it."""
        depth, scope = 0, self.parent
        while scope is not None:
            depth, scope = depth + 1, scope.parent
        return depth

    @property
    def homes(self) -> Homes:
        """Where its tasks run."""
        return self.life.homes

    # --- state --------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether this scope's end was asked for; it takes no new agents, child scopes or creations."""
        return self.life.is_ending

    @property
    def is_empty(self) -> bool:
        """Whether unwinding has nothing at all to do."""
        return not self._members and not self._contributions

    @property
    def is_closed(self) -> bool:
        """Whether its members have ended; nothing can be registered any more, and no listener is started."""
        return self._is_closed

    def check_open(self, what: str) -> None:
        """Raise `ScopeClosedError` if registrations are over."""
        if self._is_closed:
            raise ScopeClosedError(f"scope {self.name!r} is closed; {what} cannot be registered in it")

    def let_go(self) -> None:
        """Hold one's life no longer, now that it is over."""
        self.life = self.homes.ended

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

    def everything(self) -> list[Lifetime]:
        """What it owns, what that owns, and so on: a snapshot, owners before what they own."""
        found = list(self._members or ())
        for life in found:  # which grows meanwhile
            scope = life.owned
            if scope is not None and scope._members:
                found.extend(scope._members)
        return found

    # --- contributions ------------------------------------------------------------------------

    def contribute(self, contribution: Contribution) -> Undo:
        """Have something given back at the close. The undo only forgets it."""
        self.check_open(contribution.name)
        self._add(contribution)
        return lambda: self.forget(contribution)

    def _add(self, contribution: Contribution | Holder[Any]) -> None:
        if self._contributions is None:
            self._contributions = {}
        self._contributions[contribution] = None

    def forget(self, contribution: Contribution | Holder[Any]) -> None:
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
        try:
            self.contribute(
                Contribution(f"context {_named(context)}", act=lambda: context.__exit__(None, None, None))
            )
        except BaseException:  # entering it closed the scope
            context.__exit__(None, None, None)
            raise
        return value

    async def enter_async_context(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager in a task of its own; that task leaves it when this scope closes.

        So it may be entered from any task, and a crash inside it (a failing background task, a lost connection)
        harms nothing else: it is logged at once, and the scope's close raises it. A checkpoint. If the wait is
        cancelled, the context has been left when `Cancelled` is raised.

        Raises:
            ScopeClosedError: the scope is closed, or closed meanwhile.
        """

        async def hold(status: Status[T]) -> None:
            waiting = working_for(self)
            try:
                async with context as value:
                    status.started(value)
                    await status.released.wait()
                    waiting.begin()  # leaving it is waited for
            finally:
                waiting.end()

        return await self._start(hold, f"context {_named(context)}")

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

        async def run(status: Status[None]) -> None:
            status.started(None)
            await fn(*args)

        holder = Holder(self, run, f"task {label}")
        holder.cancels = True
        self._hold(holder)

    async def start(
        self, fn: Callable[..., Awaitable[object]], *args: object, name: str | None = None
    ) -> Any:
        """Like `start_soon`, but wait until the task called `task_status.started(value)`, and return the value.

        A checkpoint. If the wait is cancelled, so is the task, and it has ended when `Cancelled` is raised.
        """
        label = name or getattr(fn, "__qualname__", repr(fn))

        async def run(status: Status[Any]) -> None:
            await fn(*args, task_status=status)

        return await self._start(run, f"task {label}", cancels=True)

    def _hold(self, holder: Holder[Any]) -> None:
        self.check_open(holder.label)
        self._add(holder)
        if not self.homes.spawn(holder.run, name=f"{holder.label} of scope {self.name}"):
            self.forget(holder)
            raise ScopeClosedError(
                f"the runtime of scope {self.name!r} is ending; {holder.label} was not started"
            )

    async def _start(
        self, body: Callable[[Status[T]], Awaitable[None]], label: str, *, cancels: bool = False
    ) -> T:
        holder: Holder[T] = Holder(self, body, label)
        holder.cancels = cancels
        self._hold(holder)
        try:
            await holder.status.ready.wait()
        except trio.Cancelled:
            await holder.give_up()  # noqa: ASYNC102 - shielded and bounded inside
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
        heard = self.homes.heard
        heard[hook] = heard.get(hook, 0) + 1
        contribution = Contribution(f"listener {entry!r}", act=lambda: self._off(entry))
        self.contribute(contribution)

        def undo() -> None:
            self._off(entry)
            self.forget(contribution)

        return undo

    def _off(self, entry: Listener) -> None:
        listeners = self._listeners
        if listeners is None or entry not in listeners.get(entry.hook, ()):
            return  # taken back before
        left = tuple(other for other in listeners[entry.hook] if other is not entry)
        if left:
            listeners[entry.hook] = left
        else:
            del listeners[entry.hook]
        heard = self.homes.heard
        heard[entry.hook] -= 1
        if not heard[entry.hook]:
            del heard[entry.hook]

    def listeners(self, hook: type[Hook]) -> tuple[Listener, ...]:
        """Everybody who hears a dispatch from this scope: outer scopes first, then order of registration."""
        if hook not in self.life.homes.heard:
            return ()
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
        if self._contributions:
            for contribution in self._contributions:
                if contribution.must_wait:
                    return True
        return False

    async def unwind(  # noqa: ASYNC910 - waits only if there is something to wait for
        self, failed: Callable[[BaseException], None], deadline: float, grace: float = GRACE
    ) -> None:
        """End the members, then give the contributions back. Failures are reported and skip nothing.

        Members have bounds of their own and are waited for; contributions have until `deadline` (Trio's clock), and
        a few seconds of the grace at the least.
        """
        if self._members:
            with trio.CancelScope(shield=True):
                await self._end_members(failed)
        self._is_closed = True
        while self._contributions:
            contribution, _ = self._contributions.popitem()
            try:
                if isinstance(contribution, Holder):
                    await contribution.end_by(at_least(deadline, grace))
                else:
                    answer = contribution.call()
                    if answer is not None:
                        await self._finish(contribution.name, answer, at_least(deadline, grace))
            except Exception as exc:  # noqa: BLE001 - reported, and nothing is skipped
                failed(exc)

    def close_empty(self) -> None:
        """What `unwind` does where there is nothing to unwind."""
        self._is_closed = True

    async def _finish(self, name: str, answer: Awaitable[object], deadline: float) -> None:
        """Await a clean-up in a task of its own, so that one which shields itself can be left behind."""

        async def wait_for_it(status: Status[None]) -> None:
            await answer

        holder = Holder(self, wait_for_it, name)
        holder.status.started(None)
        if self.homes.spawn(holder.run, name=f"{name} of scope {self.name}"):
            await holder.end_by(deadline)
        else:
            with trio.CancelScope(deadline=deadline, shield=True) as bound:
                await answer
            if bound.cancelled_caught:
                raise TimeoutError(f"{name} did not end within the grace and was cancelled")

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
                    await member.settle(from_the_start=True)
                except Exception as exc:  # noqa: BLE001 - reported, and the others end all the same
                    failed(exc)
                self._members.pop(member, None)
                if index % BREATHER == 0:
                    await trio.lowlevel.checkpoint()


def _always() -> bool:
    return True


def _named(context: object) -> str:
    """A context manager for people: one that was made of a generator function says only by that which it is."""
    made_of = getattr(context, "func", None)
    name = getattr(made_of, "__qualname__", None)
    return repr(context) if name is None else f"{name}()"


@final
class ScopeLife(Lifetime):
    """The life of a scope that is no agent's."""

    __slots__ = ("scope",)

    def __init__(self, scope: OwnerScope, homes: Homes) -> None:
        super().__init__(homes)
        self.scope = scope

    def _describe(self) -> str:
        return f"scope {self.scope.name!r}"

    def _must_wait(self) -> bool:
        return self.scope.must_wait()

    @property
    def owned(self) -> OwnerScope:
        """The scope."""
        return self.scope

    async def _tail(self, waits: bool) -> None:
        await self.scope.unwind(self._failed, self._deadline())
        if self.scope.parent is not None:
            self.scope.parent.release(self)
