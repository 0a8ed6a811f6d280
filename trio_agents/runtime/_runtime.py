"""`open_runtime`: one nursery, the store's worker, the root scope, the loop, the plugins; and their end, in order."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Literal, TypeVar, Unpack, final

import trio

from ..agent import (
    Agent,
    AgentBlock,
    AgentCreated,
    AgentDisposed,
    AgentOptions,
    AgentRegistry,
    Scope,
    SessionCreated,
    SessionDisposed,
    SessionRegistry,
    Setup,
)
from ..agent._directory import Directory
from ..agent._initiator import on_nobodys_behalf
from ..agent._registry import RegistryCore
from ..agent._scope import OptionFields
from ..agent._views import ScopedPrompt, ScopedTools
from ..errors import StorageError, UsageError
from ..loop import AgentLoop
from ..models import ModelAdapter, ModelRegistry
from ..plugins import DEFAULT_PLUGINS, Plugin
from ..scope._lifetime import Homes
from ..scope._scope import ScopeLife
from ..session import Session
from ..storage import MemoryStore, SessionStore
from ..values import DISPOSED

T = TypeVar("T")

logger: Final = logging.getLogger("trio_agents")

_live: Final[trio.lowlevel.RunVar[set[Runtime]]] = trio.lowlevel.RunVar("trio_agents_runtimes")


def live_runtimes() -> set[Runtime]:
    """The runtimes that are open in this run of Trio, for the runner that drains them on a signal."""
    try:
        return _live.get()
    except LookupError:
        found: set[Runtime] = set()
        _live.set(found)
        return found


@final
class Runtime:
    """Everything that agents need, for the length of an `open_runtime` block."""

    __slots__ = ("_loop", "_models", "_scope", "_sessions")

    def __init__(
        self, scope: Scope, loop: AgentLoop, models: ModelRegistry, sessions: SessionRegistry
    ) -> None:
        self._scope = scope
        self._loop = loop
        self._models = models
        self._sessions = sessions

    @property
    def scope(self) -> Scope:
        """The root scope; it owns what nobody else does, and its listeners hear everything."""
        return self._scope

    @property
    def agents(self) -> AgentRegistry:
        """The registry of agents, seen from the root scope."""
        return self._scope.agents

    @property
    def sessions(self) -> SessionRegistry:
        """The live sessions."""
        return self._sessions

    @property
    def models(self) -> ModelRegistry:
        """The model adapters."""
        return self._models

    @property
    def tools(self) -> ScopedTools:
        """The tools of the root scope; every agent sees them, unless they are restricted."""
        return self._scope.tools

    @property
    def prompt(self) -> ScopedPrompt:
        """The prompt sections and variables of the root scope."""
        return self._scope.prompt

    @property
    def loop(self) -> AgentLoop:
        """The factory of its agents."""
        return self._loop

    def open_agent(
        self,
        session_id: str | None = None,
        *,
        mode: Literal["create", "resume", "either"] = "create",
        setup: Setup | None = None,
        options: AgentOptions | None = None,
        **fields: Unpack[OptionFields],
    ) -> AgentBlock:
        """An agent for the length of a block; see `Scope.open_agent`."""
        return self._scope.open_agent(session_id, mode=mode, setup=setup, options=options, **fields)

    async def drain(self, grace: float) -> None:
        """Start nothing any more, let running turns end, and stop what has not ended after `grace` seconds.

        What is delivered meanwhile is stored, not started: a resume elsewhere finds it. Turns that are stopped end as
        aborted(disposed) and their agents keep what is pending. The runtime does not become usable again.
        A checkpoint; cancelling it leaves the runtime draining.
        """
        _check_grace(grace)
        self._loop.is_draining = True
        with trio.move_on_after(grace):
            await self._until_idle()
        late = self._running()
        for agent in late:
            agent.cancel(DISPOSED, keep_inbox=True)
        if late:
            with trio.move_on_after(max(agent.options.grace for agent in late)):
                await self._until_idle()
        for agent in self._running():
            logger.error("work of agent %r shields itself; the drain does not wait for it", agent.id)
        await trio.lowlevel.checkpoint()

    def _running(self) -> list[Agent]:
        return [agent for agent in self.agents.list() if agent.status == "running"]

    async def _until_idle(self) -> None:
        while running := self._running():
            for agent in running:
                try:
                    await agent.when_idle()
                except StorageError as exc:
                    logger.error("the log of agent %r could not be made durable", agent.id, exc_info=exc)


def _check_grace(grace: object) -> None:
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not grace >= 0:
        raise UsageError(f"grace is a number of seconds >= 0, not {grace!r}")


def _agent_hooks() -> Directory[Agent]:
    return Directory(
        "agent",
        AgentCreated,
        AgentDisposed,
        lambda agent: AgentCreated(agent=agent),
        lambda agent: AgentDisposed(agent=agent),
    )


def _session_hooks() -> Directory[Session]:
    return Directory(
        "session",
        SessionCreated,
        SessionDisposed,
        lambda session: SessionCreated(session=session),
        lambda session: SessionDisposed(session=session),
    )


def open_runtime(
    *,
    store: SessionStore | None = None,
    models: Iterable[ModelAdapter] = (),
    plugins: Iterable[Plugin] = DEFAULT_PLUGINS,
) -> RuntimeBlock:
    """A runtime for the length of a block.

    `async with open_runtime(store=..., models=[...]) as runtime`. Leaving the block ends every agent (running turns are cancelled, their ends are logged), flushes every log and
    leaves no task behind, whatever the body did. That wait is shielded; an agent's part of it is bounded by the
    grace of its options.

    Args:
        store: where sessions are kept; in memory if None.
        models: the adapters on offer. Those that have an `aclose` are closed at the end; they open anew if they
            are used again.
        plugins: optional behaviour, each called with the root scope.

    Raises:
        UsageError: two adapters of one name, or something among them that is none; a plugin that cannot be called.
        TeardownError: everything has ended, but something failed on the way.
    """
    registry = ModelRegistry()
    for adapter in _several("models", models):
        registry.register(adapter)
    wanted = _several("plugins", plugins)
    for plugin in wanted:
        if not callable(plugin):
            raise UsageError(f"a plugin is called with the root scope, and {plugin!r} cannot be called")
    core = RegistryCore(_agent_hooks(), _session_hooks(), MemoryStore() if store is None else store)
    return RuntimeBlock(core, registry, wanted)


def _several(what: str, given: Iterable[T]) -> tuple[T, ...]:
    """What was given as several things: one alone is easily given as itself."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{what}= takes a list, not {given!r} itself")
    return tuple(given)


@final
class RuntimeBlock:
    """The block that `open_runtime` gives. Not reusable.

    A class, not a generator: no generator may yield inside a nursery. The nursery is entered and left by hand, and
    the body's exception is kept out of it, so that callers never see a group of ours.
    """

    __slots__ = (
        "_core",
        "_failures",
        "_homes",
        "_homes_left",
        "_manager",
        "_models",
        "_nursery",
        "_plugins",
        "_runtime",
        "_stop",
        "_worker",
    )

    def __init__(self, core: RegistryCore, models: ModelRegistry, plugins: tuple[Plugin, ...]) -> None:
        self._core = core
        self._models = models
        self._plugins = plugins
        self._failures: list[Exception] = []
        self._stop = trio.Event()
        self._homes_left = trio.Event()
        self._worker = trio.CancelScope(shield=True)
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._runtime: Runtime | None = None

    async def __aenter__(self) -> Runtime:
        """Open the runtime. A checkpoint."""
        if self._manager is not None:
            raise UsageError("this runtime was already opened; call open_runtime() again")
        self._manager = trio.open_nursery(strict_exception_groups=True)
        self._nursery = await self._manager.__aenter__()
        try:
            await self._start()
            self._compose()
        except BaseException as exc:
            await self._give_up(exc)  # noqa: ASYNC102 - shielded and bounded inside
            raise
        assert self._runtime is not None
        live_runtimes().add(self._runtime)
        return self._runtime

    def _compose(self) -> None:
        root = Scope("root", parent=None, core=self._core)
        root.life = ScopeLife(root, self._homes)
        loop = AgentLoop(root, self._core, self._models)
        root.agents.set_factory(loop)
        sessions = SessionRegistry(self._core.sessions, self._core.store)
        self._runtime = Runtime(root, loop, self._models, sessions)
        for plugin in self._plugins:
            plugin(root)

    async def _give_up(self, exc: BaseException) -> None:
        """It could not be opened: end what stands already; a crash of one of our own tasks is raised instead."""
        if self._runtime is not None:
            await self._end(self._runtime)
            failure = self._failure()
            if failure is not None:
                exc.add_note(f"while it was undone: {failure}")
        self._stop.set()
        self._worker.cancel()
        crash = await self._leave(exc)
        if crash is not None and crash is not exc:
            raise crash

    @trio.lowlevel.enable_ki_protection
    async def _start(self) -> None:
        """Start the store's worker, then the homes.

        Not by `Nursery.start`: under a cancelled caller it would wait for the end of what is shielded.
        """
        serving, hosting = _Started(), _Started()
        self._nursery.start_soon(self._serve_store, serving, name="store of the runtime")
        await serving.event.wait()
        self._nursery.start_soon(self._host_homes, hosting, name="homes of the runtime")
        await hosting.event.wait()

    async def _serve_store(self, status: _Started) -> None:
        with self._worker:
            await self._core.store.serve(task_status=status)

    async def _host_homes(self, status: _Started) -> None:
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery(strict_exception_groups=True) as nursery:
                    with on_nobodys_behalf():  # whoever opens the runtime initiates nothing in it
                        self._homes = Homes(nursery)
                    try:
                        status.started()
                        await self._stop.wait()
                    finally:
                        self._homes.is_open = False
        finally:
            self._homes_left.set()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End everything, shielded; the body's exception goes on unchanged."""
        assert self._runtime is not None
        interrupt = await self._end(self._runtime)  # noqa: ASYNC102 - shielded and bounded inside
        live_runtimes().discard(self._runtime)
        crash = await self._leave(exc)  # noqa: ASYNC102 - shielded and bounded inside
        if interrupt is not None:
            raise interrupt
        if crash is not None:
            raise crash
        failure = self._failure()
        if failure is not None:
            if exc is None:
                raise failure
            exc.add_note(f"while it was raised, the end of the runtime failed: {failure}")
        if exc is None:
            await trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC102 - shielded and bounded inside

    async def _end(self, runtime: Runtime) -> BaseException | None:
        """End everything, shielded. Gives the interrupt that came meanwhile, if one did.

        Trio raises KeyboardInterrupt in its main task wherever that waits, and it may wait here. The end goes on: each
        stage may be asked for again. A further interrupt cancels what is still running.
        """
        interrupt: BaseException | None = None
        with trio.CancelScope(shield=True):
            while True:
                try:
                    await self._run_stages(runtime)
                except BaseException as exc:  # noqa: BLE001, ASYNC103 - given back: it is raised when all has ended
                    if interrupt is not None:
                        self._homes.cancel()
                    interrupt = exc
                else:
                    break
        return interrupt

    async def _run_stages(self, runtime: Runtime) -> None:
        for stage in (runtime.scope.aclose, runtime.loop.aclose, self._core.initiators.aclose):
            try:
                await stage()
            except Exception as error:  # noqa: BLE001 - every stage is reached; the first failure is raised
                self._failures.append(error)
        self._homes.is_open = False
        self._stop.set()
        await self._homes_left.wait()
        for provider in runtime.models.providers:
            close = getattr(runtime.models.require(provider), "aclose", None)
            if close is not None:
                try:
                    await close()
                except Exception as error:  # noqa: BLE001 - likewise
                    self._failures.append(error)
        self._worker.cancel()

    def _failure(self) -> Exception | None:
        if not self._failures:
            return None
        first, *others = self._failures
        for later in others:
            first.add_note(f"then, too: {later}")
        return first

    async def _leave(self, exc: BaseException | None) -> BaseException | None:
        """Leave the nursery. Only if one of our own tasks crashed does it see the body's exception."""
        assert self._manager is not None
        crashed = self._nursery.cancel_scope.cancel_called
        try:
            if crashed and exc is not None:
                await self._manager.__aexit__(type(exc), exc, exc.__traceback__)
            else:
                await self._manager.__aexit__(None, None, None)
        except BaseException as group:  # noqa: BLE001, ASYNC103 - given back: the caller raises it
            return _plain(group)  # noqa: ASYNC104 - raised later
        return None


@final
class _Started:
    """A `trio.TaskStatus` that only tells that a task has started."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = trio.Event()

    def started(self, value: None = None) -> None:
        self.event.set()


def _plain(exc: BaseException) -> BaseException:
    """What a group of ours is about: its only member, or the first with notes on the others."""
    while isinstance(exc, BaseExceptionGroup):
        first, *rest = exc.exceptions
        for other in rest:
            first.add_note(f"then, too: {type(other).__name__}: {other}")
        exc = first
    return exc
