"""The public scope: ownership, plus what is registered in it for the agents below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, cast, final

import trio

from ..errors import ScopeClosedError, UsageError
from ..prompt import Section, Variable
from ..scope._holder import Contribution
from ..scope._lifetime import GRACE, Lifetime
from ..scope._scope import OwnerScope, ScopeLife, Undo
from ._layer import Layer, Offer, Restriction
from ._options import AgentOptions, AnyTool
from ._registry import AgentBlock, AgentRegistry, RegistryCore
from ._views import ScopedPrompt, ScopedTools

if TYPE_CHECKING:
    from ._interface import Agent, Setup


class OptionFields(TypedDict, total=False):
    """The fields of `AgentOptions`, as keyword arguments."""

    model: str | None
    system: str | None
    tools: Iterable[AnyTool]
    max_tokens: int | None
    effort: str | None
    temperature: float | None
    stop: Iterable[str]
    cwd: str | None
    max_requests: int
    max_parallel_tools: int
    max_stop_continuations: int
    tool_order: Iterable[str]
    grace: float
    first_byte_timeout: float | None
    silence_timeout: float | None
    tool_timeout: float | None
    hook_timeout: float | None


@final
class Scope(OwnerScope):
    """Owns agents, child scopes, tasks, contexts and registrations, and ends all of them with itself.

    Closing ends the members first (agents, child scopes, creations under way: all asked at once, then settled,
    newest first), then gives back what was registered, in reverse. Closing twice is closing once; everybody waits
    for the same end.

    Registrations are seen by the agents of this scope and of the scopes below it; a nearer one hides an outer one
    of the same name, whichever came first.
    """

    __slots__ = ("_agent", "_core", "_layer")

    def __init__(
        self,
        name: str | None,
        *,
        parent: Scope | None,
        core: RegistryCore,
        agent: Agent | None = None,
    ) -> None:
        self._agent = agent
        super().__init__(name, parent=parent)
        self._core = core
        self._layer: Layer | None = None

    def _default_name(self) -> str:
        # Not kept: of an idle agent it would be a good part of the memory.
        return "unnamed" if self._agent is None else f"agent {self._agent.id}"

    def let_go(self) -> None:
        """Hold the agent and its life no longer, as its last act: so nothing of it waits for the garbage collector."""
        self._name = self.name
        self._agent = None
        super().let_go()

    # --- agents -------------------------------------------------------------------------------

    @property
    def agents(self) -> AgentRegistry:
        """The registry, seen from here; what is created through it is owned by this scope."""
        return AgentRegistry(self._core, self)

    @property
    def agent(self) -> Agent | None:
        """The agent whose scope this is; None if it is no agent's, or that has ended."""
        return self._agent

    @property
    def owner_agent(self) -> Agent | None:
        """The nearest agent above this scope, or None."""
        scope = self.parent
        while scope is not None:
            assert isinstance(scope, Scope)
            if scope._agent is not None:
                return scope._agent
            scope = scope.parent
        return None

    def open_agent(
        self,
        session_id: str | None = None,
        *,
        mode: Literal["create", "resume", "either"] = "create",
        setup: Setup | None = None,
        options: AgentOptions | None = None,
        **fields: Unpack[OptionFields],
    ) -> AgentBlock:
        """An agent for the length of a block: `async with scope.open_agent(model=..., tools=[...]) as agent`.

        The fields of `AgentOptions` may be given one by one. See `AgentRegistry.open`.
        """
        if fields and options is not None:
            raise UsageError(f"give either options= or {', '.join(sorted(fields))}, not both")
        if fields:
            options = AgentOptions(**fields)
        return self.agents.open(session_id, mode=mode, setup=setup, options=options)

    # --- child scopes and the end -------------------------------------------------------------

    def open_child(self, name: str) -> AbstractAsyncContextManager[Scope]:
        """A scope below this one, for the length of a block; it also ends with this one."""
        return _ScopeBlock(self, name)

    def close_soon(self) -> None:
        """Ask for the end and do not wait. No checkpoint; for listeners."""
        self.life.ask_soon()

    async def aclose(self) -> None:
        """End this scope and wait for the end. A checkpoint if there is something to wait for.

        Raises:
            TeardownError: everything is released, but something failed on the way.
        """
        self.life.ask()
        await self.life.settle()

    # --- registrations ------------------------------------------------------------------------

    @property
    def tools(self) -> ScopedTools:
        """The tools, seen from here."""
        return ScopedTools(self)

    @property
    def prompt(self) -> ScopedPrompt:
        """The sections and variables of the system prompt, seen from here."""
        return ScopedPrompt(self)

    def restrict(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> Undo:
        """Hide inherited tools from the agents of this scope and below. Returns an undo.

        Several restrictions add up; what is registered in this very scope is exempt from its own.

        Args:
            allow: the only names that may be seen, or None for all.
            deny: names that may not be seen.

        Raises:
            UsageError: nothing is named, or a name that no tool has here.
            ScopeClosedError: the scope is closed.
        """
        names = frozenset(deny) | (frozenset() if allow is None else frozenset(allow))
        if not names:
            raise UsageError("a restriction names at least one tool, in allow= or deny=")
        known = self.inherited_tools()
        unknown = sorted(names - known.keys())
        if unknown:
            raise UsageError(
                f"no tool named {unknown} is inherited by scope {self.name!r}; there are {sorted(known)}"
            )
        restriction = Restriction(None if allow is None else frozenset(allow), frozenset(deny))
        return self._register(
            "a restriction", lambda layer: layer.restrictions.setdefault(restriction),
            lambda layer: layer.restrictions.pop(restriction, None),
        )  # fmt: skip

    def layer(self) -> Layer:
        """What this scope adds, made when it is first needed."""
        if self._layer is None:
            self._layer = Layer()
        return self._layer

    def _register(
        self,
        what: str,
        add: Callable[[Layer], object],
        remove: Callable[[Layer], object],
        *,
        close: Callable[[], object] | None = None,
        waits: Callable[[], bool] | None = None,
    ) -> Undo:
        """Add to the layer until the undo is called, or the scope closes: then `close` is called, and awaited, too."""
        self.check_open(what)
        layer = self.layer()
        add(layer)
        live = True

        def take_back() -> None:
            nonlocal live
            if live:
                live = False
                remove(layer)

        def give_back() -> object:
            take_back()
            return None if close is None else close()

        forget = self.contribute(Contribution(what, act=give_back, waits=waits))

        def undo() -> None:
            take_back()
            forget()

        return undo

    # --- what agents see ----------------------------------------------------------------------

    def inherited_tools(self) -> dict[str, Offer]:
        """The tools of the scopes above, as restricted there."""
        return {} if self.parent is None else cast("Scope", self.parent).visible_tools()

    def visible_tools(self) -> dict[str, Offer]:
        """The tools in force here: inherited and not hidden, then this scope's own, which win."""
        found: dict[str, Offer] = {}
        for layer in self._layers():
            for restriction in layer.restrictions:
                found = {name: offer for name, offer in found.items() if restriction.admits(name)}
            found.update(layer.tools)
        return found

    def visible_sections(self) -> dict[str, Section]:
        """The prompt sections in force here."""
        found: dict[str, Section] = {}
        for layer in self._layers():
            found.update(layer.sections)
        return found

    def visible_variables(self) -> dict[str, Variable]:
        """The prompt variables in force here."""
        found: dict[str, Variable] = {}
        for layer in self._layers():
            found.update(layer.variables)
        return found

    def _layers(self) -> list[Layer]:
        """What this scope and those above it add, outermost first."""
        layers = []
        scope: Scope | None = self
        while scope is not None:
            if scope._layer is not None:
                layers.append(scope._layer)
            scope = scope.parent  # type: ignore[assignment]  # above a scope there are only such
        layers.reverse()
        return layers


@final
class _ScopeBlock:
    """The block of `open_child`."""

    def __init__(self, parent: Scope, name: str) -> None:
        self._parent = parent
        self._name = name
        self._scope: Scope | None = None

    async def __aenter__(self) -> Scope:
        parent = self._parent
        if parent.closing:
            raise ScopeClosedError(f"scope {parent.name!r} is closing; it takes no child scope")
        if self._scope is not None:
            raise UsageError("this block was already entered; call open_child() again")
        await trio.lowlevel.checkpoint()
        if parent.closing:
            raise ScopeClosedError(f"scope {parent.name!r} is closing; it takes no child scope")
        self._scope = new_scope(self._name, parent)
        return self._scope

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._scope is not None
        await leave(self._scope.life, exc)  # noqa: ASYNC102 - shielded and bounded inside


def new_scope(name: str, parent: Scope) -> Scope:
    """A scope of its own life below `parent`, which owns it."""
    scope = Scope(name, parent=parent, core=parent._core)
    scope.life = ScopeLife(scope, parent.homes)
    parent.adopt(scope.life)
    return scope


async def leave(life: Lifetime, exc: BaseException | None, grace: float = GRACE) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
    """Leave a block that owns a lifetime: ask for its end and wait for it, shielded and bounded.

    The body's exception wins: a failure of the end becomes a note on it. Ends in a checkpoint, so that a timeout
    around the block is raised.
    """
    life.ask()
    try:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + bound(grace)) as shield:
            await life.settle()
    except Exception as failure:
        if exc is None:
            raise
        exc.add_note(f"while it was raised, the teardown failed: {failure}")
    else:
        if shield.cancelled_caught and exc is None:
            raise TimeoutError("the teardown did not end within its grace; it goes on in the background")
    if exc is None:
        await trio.lowlevel.checkpoint_if_cancelled()


def bound(grace: float) -> float:
    """How long a block's exit waits for an end whose own parts take `grace` seconds at the most."""
    return math.inf if math.isinf(grace) else 2 * grace + 5.0
