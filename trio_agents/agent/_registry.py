"""The registries of a runtime: its agents, seen from a scope, and its sessions."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Literal, final

import trio

from ..errors import (
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    StorageError,
    TrioAgentsError,
    UsageError,
)
from ..session import Event, Session
from ._directory import Directory, Entry
from ._initiator import Initiators
from ._options import DEFAULT_OPTIONS, AgentOptions

if TYPE_CHECKING:
    from ..storage import SessionStore, SessionSummary
    from ._interface import Agent, AgentFactory, AgentHandle, ResumeOutcome, Setup
    from ._scope import Scope


@final
class SessionRegistry:
    """The live sessions of a runtime, and the store that keeps all of them."""

    __slots__ = ("_directory", "_store")

    def __init__(self, directory: Directory[Session], store: SessionStore) -> None:
        self._directory = directory
        self._store = store

    @property
    def store(self) -> SessionStore:
        """Where the sessions are kept."""
        return self._store

    def get(self, id: str) -> Session | None:
        """The live session with this id, or None."""
        entry = self._directory.entry(id)
        return None if entry is None else entry.value

    def list(self) -> builtins.list[Session]:
        """The live sessions, in the order of their registration: a snapshot."""
        return self._directory.values()


@final
class RegistryCore:
    """What all views of a runtime's registry share."""

    __slots__ = ("agents", "factory", "initiators", "sessions", "store")

    def __init__(self, agents: Directory[Agent], sessions: Directory[Session], store: SessionStore) -> None:
        self.agents: Directory[Agent] = agents
        self.sessions: Directory[Session] = sessions
        self.store: SessionStore = store
        self.factory: AgentFactory | None = None
        self.initiators: Initiators = Initiators()

    def check_free(self, id: str) -> None:
        """Raise `AgentExistsError` if an agent or a session has the id."""
        self.agents.check_free(id)
        self.sessions.check_free(id)

    def require_factory(self) -> AgentFactory:
        """The factory, or a `UsageError`."""
        if self.factory is None:
            raise UsageError("no agent factory is set, or its owner has closed: the agent loop is not active")
        return self.factory


BUSY_PAUSE = 0.05
"""Seconds between two looks at an id that another writer has taken without storing anything yet."""

RESUME_TRIES = 3
"""How often `resume_all` tries a session whose storage fails."""

RESUME_PAUSE = 0.2
"""Seconds between these tries."""


@final
class AgentRegistry:
    """The live agents, seen from one scope: what is created through this view is owned by that scope."""

    __slots__ = ("_core", "_scope")

    def __init__(self, core: RegistryCore, scope: Scope) -> None:
        self._core = core
        self._scope = scope

    # --- looking ------------------------------------------------------------------------------

    def get(self, id: str) -> Agent | None:
        """The live agent with this id, or None. Finding it gives no power to end it."""
        entry = self._core.agents.entry(id)
        return None if entry is None else entry.value

    def list(self) -> builtins.list[Agent]:
        """The live agents, in the order of their registration: a snapshot."""
        return self._core.agents.values()

    def roots(self) -> builtins.list[Agent]:
        """The live agents that no live agent owns: a snapshot."""
        return [entry.value for entry in self._core.agents if self._owner(entry) is None]

    def is_owned_by(self, child: Agent | str, parent: Agent | str) -> bool:
        """Whether `child` is live and was created in the scope of exactly this live `parent`."""
        entry, owner = self._resolve(child), self._resolve(parent)
        return entry is not None and owner is not None and self._owner(entry) is owner

    def _resolve(self, agent: Agent | str) -> Entry[Agent] | None:
        if isinstance(agent, str):
            return self._core.agents.entry(agent)
        entry = self._core.agents.entry(agent.id)
        return entry if entry is not None and entry.value is agent else None

    def _owner(self, entry: Entry[Agent]) -> Entry[Agent] | None:
        owner = entry.scope.owner_agent
        return None if owner is None else self._resolve(owner)

    # --- creating -----------------------------------------------------------------------------

    async def create(
        self,
        session_id: str | None = None,
        *,
        setup: Setup | None = None,
        options: AgentOptions | None = None,
        prefix: tuple[Event, ...] | None = None,
    ) -> AgentHandle:
        """Create an agent in a fresh session, owned by this scope. A checkpoint, before setup.

        `setup` runs in the caller's task, so the caller's cancel and deadline govern it; from publication on they
        do not count any more, and this returns without a further checkpoint.

        Args:
            session_id: the id of session and agent; minted if None.
            setup: prepares the agent before anybody sees it, see `Setup`.
            options: how it works.
            prefix: events that the session starts with, as if it were a fork.

        Raises:
            AgentExistsError, SessionExistsError: the id is taken.
            SessionBusyError: another process has the id.
            SessionLogError: the prefix breaks the log's rules.
            CreationAbortedError: the owner or the loop closed meanwhile.
            Exception: whatever setup, its commit, or a vetoing listener raised: that very exception.
        """
        factory = self._core.require_factory()
        return await factory.create(
            self._scope, session_id, setup=setup, options=options or DEFAULT_OPTIONS, prefix=prefix
        )

    async def resume(
        self,
        session_id: str,
        *,
        setup: Setup | None = None,
        options: AgentOptions | None = None,
        rerun: bool = False,
        wait: bool = False,
    ) -> AgentHandle:
        """Bring a stored session back to life, owned by this scope. A checkpoint. Drives nothing by itself.

        Args:
            session_id: which.
            setup: as for `create`.
            options: how it works; what is absent comes from the log's last request header.
            rerun: whether interrupted calls of pure and idempotent tools run again, under the same call id.
            wait: whether to wait while another writer has the session, instead of raising `SessionBusyError`.

        Raises:
            SessionNotFoundError: nothing is stored under this id.
            AgentExistsError: it is live, or being resumed, in this runtime.
            SessionLogError: it cannot be used, see the subclasses; nothing was changed.
            CreationAbortedError, Exception: as for `create`.
        """
        factory = self._core.require_factory()
        return await factory.resume(
            self._scope, session_id, setup=setup, options=options, rerun=rerun, wait=wait
        )

    def open(
        self,
        session_id: str | None = None,
        *,
        mode: Literal["create", "resume", "either"] = "create",
        setup: Setup | None = None,
        options: AgentOptions | None = None,
        rerun: bool = False,
        wait: bool = False,
    ) -> AgentBlock:
        """An agent for the length of a block: `async with agents.open(...) as agent`.

        Leaving the block ends the agent, shielded and bounded by its grace; an exception of the body goes on
        unchanged. `either` resumes what is stored under the id, and creates it if there is nothing.
        """
        if mode not in {"create", "resume", "either"}:
            raise UsageError(f"mode is 'create', 'resume' or 'either', not {mode!r}")
        if session_id is None and mode != "create":
            raise UsageError(f"mode {mode!r} needs a session id")
        return AgentBlock(self, session_id, mode, setup, options, rerun, wait)

    async def resume_all(
        self,
        filter: Callable[[SessionSummary], bool] | None = None,
        *,
        setup: Setup | None = None,
        options: AgentOptions | None = None,
    ) -> builtins.list[ResumeOutcome]:
        """Resume every stored session that `filter` accepts; one failing does not stop the others. A checkpoint.

        A storage error is tried again, a few times, since it may pass. Sessions that are live here are left alone.
        """
        outcomes: builtins.list[ResumeOutcome] = []
        for summary in await self._core.store.list():
            id = summary.header.id
            if self._core.agents.entry(id) is not None or (filter is not None and not filter(summary)):
                continue
            outcomes.append(await self._resume_one(id, setup, options))
        return outcomes

    async def _resume_one(self, id: str, setup: Setup | None, options: AgentOptions | None) -> ResumeOutcome:
        from ._interface import ResumeOutcome  # that module imports this one

        for attempt in range(1, RESUME_TRIES + 1):
            try:
                handle = await self.resume(id, setup=setup, options=options)
            except StorageError as exc:
                if attempt == RESUME_TRIES:
                    return ResumeOutcome(session_id=id, error=exc)
                await trio.sleep(RESUME_PAUSE)
            except TrioAgentsError as exc:
                return ResumeOutcome(session_id=id, error=exc)
            else:
                return ResumeOutcome(session_id=id, handle=handle)
        raise AssertionError("unreachable")

    # --- for authors of loops -----------------------------------------------------------------

    def set_factory(self, factory: AgentFactory) -> Callable[[], None]:
        """Fill the factory slot until this scope closes. Returns an undo.

        Raises:
            UsageError: the slot is taken.
        """
        core = self._core
        if core.factory is not None:
            raise UsageError(f"an agent factory is already set: {core.factory!r}")
        core.factory = factory

        def empty() -> None:
            if core.factory is factory:
                core.factory = None

        undo = self._scope.callback(empty)

        def take_back() -> None:
            undo()
            empty()

        return take_back

    def enter(self, agent: Agent) -> Callable[[], None]:
        """Make an agent visible without telling anybody. Returns its detach: exact, idempotent. No checkpoint.

        Raises:
            AgentExistsError: its id is taken.
            UsageError: its id is not its session's.
        """
        if agent.id != agent.session.id:
            raise UsageError(
                f"agent {agent.id!r} drives session {agent.session.id!r}; the two ids must be equal"
            )
        return self._core.agents.enter(agent.id, agent, agent.scope).detach

    def announce(self, agent: Agent) -> None:
        """Tell the listeners of `agent/created` about an entered agent, once. No checkpoint.

        Raises:
            UsageError: it is not the live entry under its id, or was already announced.
            Exception: a listener's veto; the entry is gone, and `agent/disposed` was told.
        """
        entry = self._resolve(agent)
        if entry is None:
            raise UsageError(f"agent {agent.id!r} is not live; enter it first")
        entry.announce()

    def register(self, agent: Agent) -> Callable[[], None]:
        """`enter` and `announce` in one. Returns the detach."""
        detach = self.enter(agent)
        self.announce(agent)
        return detach

    # --- on whose behalf ----------------------------------------------------------------------

    def current_initiator(self) -> Agent | None:
        """The agent on whose behalf this code runs, or None. Never a permission."""
        return self._core.initiators.current()

    def require_initiator(self) -> Agent:
        """Like `current_initiator`, but raises `UsageError` instead of giving None."""
        return self._core.initiators.require()

    def with_initiator(self, agent: Agent) -> AbstractContextManager[None]:
        """Run a block on behalf of an agent; tasks started inside inherit it."""
        return self._core.initiators.boundary(agent)

    def without_initiator(self) -> AbstractContextManager[None]:
        """Run a block on nobody's behalf."""
        return self._core.initiators.boundary(None)


@final
class AgentBlock:
    """What `open` gives: an async context manager that creates or resumes an agent, and ends it."""

    __slots__ = ("_handle", "_id", "_mode", "_options", "_registry", "_rerun", "_setup", "_wait")

    def __init__(
        self,
        registry: AgentRegistry,
        id: str | None,
        mode: str,
        setup: Setup | None,
        options: AgentOptions | None,
        rerun: bool,
        wait: bool,
    ) -> None:
        self._registry = registry
        self._id = id
        self._mode = mode
        self._setup = setup
        self._options = options
        self._rerun = rerun
        self._wait = wait
        self._handle: AgentHandle | None = None

    async def __aenter__(self) -> Agent:
        """Create or resume the agent."""
        if self._handle is not None:
            raise UsageError("this block was already entered; call open() again")
        self._handle = await self._open()
        return self._handle.agent

    async def _open(self) -> AgentHandle:
        while True:
            if self._mode != "create":
                assert self._id is not None
                try:
                    return await self._registry.resume(
                        self._id, setup=self._setup, options=self._options, rerun=self._rerun, wait=self._wait
                    )
                except SessionNotFoundError:
                    if self._mode == "resume":
                        raise
            try:
                return await self._registry.create(self._id, setup=self._setup, options=self._options)
            except SessionExistsError:
                # Somebody stored a session under the id between the two looks: it is there to be resumed now.
                if self._mode == "create":
                    raise
            except SessionBusyError:
                # Somebody has taken the id and stored nothing yet: with `wait`, it is looked at again.
                if self._mode == "create" or not self._wait:
                    raise
                await trio.sleep(BUSY_PAUSE)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End the agent. The body's exception wins over a failure of the teardown, which becomes a note on it."""
        assert self._handle is not None
        await self._handle.__aexit__(kind, exc, tb)  # noqa: ASYNC102 - shielded and bounded inside
