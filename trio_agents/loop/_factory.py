"""AgentLoop: the factory of the concrete agent, and the third owner of everything that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import trio
from msgspec import UNSET

from ..agent import AgentOptions, Scope, Setup
from ..agent._registry import RegistryCore
from ..errors import AgentExistsError, SessionBusyError, TeardownError, UsageError
from ..models import ModelRegistry
from ..scope._lifetime import Homes
from ..scope._scope import BREATHER
from ..scope._waits import working_for
from ..session import Event, Pen, Session, SessionHeader, open_log, prefix_marker
from ..session._log import open_stored
from ..storage import OpenedLog, SessionStore, fork_into
from ..values import mint_id, now_ms
from ._agent import LoopAgent
from ._lifecycle import LOOP_CLOSED, OWNER_CLOSED, Birth, Creation, Handle, aborted, check_wanted, roll_back
from ._recovery import Recovery
from ._request import Routes

BUSY_PAUSE: Final = 0.05
"""Seconds between two looks at a lock that another process holds, at first; it doubles up to a second."""


@final
class AgentLoop:
    """Makes agents, and ends every one that it made when it closes, whoever owns it."""

    __slots__ = (
        "_fork_into",
        "_resuming",
        "_root",
        "core",
        "homes",
        "is_closing",
        "is_draining",
        "models",
        "routes",
        "store",
    )

    def __init__(self, root: Scope, core: RegistryCore, models: ModelRegistry) -> None:
        self._root = root
        self.core: RegistryCore = core
        self.homes: Homes = root.homes
        self.models: ModelRegistry = models
        self.routes: Routes = Routes()
        self.store: SessionStore = core.store
        self._fork_into = fork_into(self.store)
        self.is_closing: bool = False
        self.is_draining: bool = False
        self._resuming: set[str] = set()

    # --- owning -------------------------------------------------------------------------------

    @property
    def lives(self) -> list[Handle | Creation]:
        """What it made and what is being made, owners before what they own; a snapshot."""
        # Each has an owner below the root: a list of its own would be a good part of the memory of idle agents.
        return [
            life
            for life in self._root.everything()
            if isinstance(life, Handle | Creation) and life.loop is self
        ]

    async def aclose(self) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
        """End every agent that this loop made, and every creation under way, and wait for it. Idempotent."""
        self.is_closing = True
        failures = []
        while lives := [life for life in self.lives if not life.is_ended]:
            for index, life in enumerate(lives, 1):
                if isinstance(life, Creation):
                    life.abort(LOOP_CLOSED)
                life.ask()
                if index % BREATHER == 0:
                    await trio.lowlevel.cancel_shielded_checkpoint()
            for index, life in enumerate(reversed(lives), 1):
                try:
                    await life.settle(from_the_start=True)
                except TeardownError as exc:
                    failures.append(exc)
                if index % BREATHER == 0:
                    await trio.lowlevel.cancel_shielded_checkpoint()
        if failures:
            for later in failures[1:]:
                failures[0].add_note(f"then, too: {later}")
            raise failures[0]

    # --- creating -----------------------------------------------------------------------------

    async def create(
        self,
        owner: Scope,
        session_id: str | None,
        *,
        setup: Setup | None,
        options: AgentOptions,
        prefix: tuple[Event, ...] | None,
    ) -> Handle:
        """Create an agent in a fresh session; see `AgentRegistry.create`."""
        await trio.lowlevel.checkpoint()
        id = mint_id() if session_id is None else _checked_id(session_id)
        check_wanted(self, owner, id)
        self.core.check_free(id)
        header = SessionHeader(
            id=id,
            created_at=now_ms(),
            cwd=options.cwd or UNSET,
            seed_length=len(prefix) if prefix else UNSET,
        )
        seed = prefix or ()
        opening = None if prefix is None else lambda: prefix_marker(seed)
        # Without a setup there is nothing to wait for, hence nothing that could be aborted.
        creation = None if setup is None else self._begin(owner, id)
        try:
            session, pen = open_log(header, seed, fork_into=self._fork_into)
            birth = self._conceive(owner, creation, session, pen, options, seed)
            try:
                if creation is None:
                    birth.publish_now(opening, "startup")
                else:
                    await birth.publish(await birth.prepare(setup), opening, "startup")
            except BaseException as exc:
                await roll_back(birth.handle, exc)  # noqa: ASYNC102 - shielded and bounded inside
                raise
            return birth.handle
        finally:
            if creation is not None:
                self._end(owner, creation)

    async def resume(
        self,
        owner: Scope,
        session_id: str,
        *,
        setup: Setup | None,
        options: AgentOptions | None,
        rerun: bool,
        wait: bool,
    ) -> Handle:
        """Bring a stored session back to life; see `AgentRegistry.resume`."""
        await trio.lowlevel.checkpoint()
        id = _checked_id(session_id)
        check_wanted(self, owner, id)
        creation = self._begin(owner, id)
        opened: OpenedLog | None = None
        try:
            with creation.stretch():
                opened = await self._acquire(id, wait=wait)
            return await self._revive(owner, creation, opened, setup, options, rerun=rerun)
        finally:
            if opened is not None:
                self._resuming.discard(id)
            self._end(owner, creation)

    async def _revive(
        self,
        owner: Scope,
        creation: Creation,
        opened: OpenedLog | None,
        setup: Setup | None,
        options: AgentOptions | None,
        *,
        rerun: bool,
    ) -> Handle:
        if opened is None:
            raise aborted(creation.id, creation.reason or OWNER_CLOSED)
        handle: Handle | None = None
        live: tuple[Session, Pen] | None = None
        try:
            with creation.stretch():
                live = await open_stored(opened.header, opened.events, fork_into=self._fork_into)
            if live is None:
                raise aborted(creation.id, creation.reason or OWNER_CLOSED)
            recovery = Recovery(live[0])
            birth = self._conceive(owner, creation, *live, recovery.options(options))
            handle = birth.handle
            handle.writer = opened.writer
            birth.agent.pen.attach(opened.writer)
            commit = await birth.prepare(setup)
            with creation.stretch(), working_for(birth.agent):
                await recovery.ask_tools(birth.agent, rerun=rerun)
            await trio.lowlevel.checkpoint_if_cancelled()
            await birth.publish(commit, lambda: recovery.opening(birth.agent.pen), "resume")
        except BaseException as exc:
            if handle is None:
                opened.writer.abandon()
            else:
                await roll_back(handle, exc)  # noqa: ASYNC102 - shielded and bounded inside
            raise
        return handle

    async def _acquire(self, id: str, *, wait: bool) -> OpenedLog:
        """Lock and load a stored session; with `wait`, as soon as nobody else has it."""
        pause = BUSY_PAUSE
        while True:
            try:
                return await self._open(id)
            except (AgentExistsError, SessionBusyError):
                if not wait:
                    raise
            # Nothing tells when another process lets go: look again, less and less often.
            await trio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _open(self, id: str) -> OpenedLog:
        if self.core.agents.entry(id) is not None or self.core.sessions.entry(id) is not None:
            raise AgentExistsError(f"session {id!r} cannot be resumed while it is live")
        if id in self._resuming:
            raise AgentExistsError(f"session {id!r} is already being resumed")
        self._resuming.add(id)
        try:
            return await self.store.open(id)
        except BaseException:
            self._resuming.discard(id)
            raise

    # --- parts --------------------------------------------------------------------------------

    def _begin(self, owner: Scope, id: str) -> Creation:
        creation = Creation(self, id)
        owner.adopt(creation)
        return creation

    def _end(self, owner: Scope, creation: Creation) -> None:
        owner.release(creation)
        creation.settled()

    def _conceive(
        self,
        owner: Scope,
        creation: Creation | None,
        session: Session,
        pen: Pen,
        options: AgentOptions,
        seed: Sequence[Event] = (),
    ) -> Birth:
        agent = LoopAgent(self, session, pen, options)
        scope = Scope(None, parent=owner, core=self.core, agent=agent)
        handle = Handle(agent)
        scope.life = handle
        agent.scope = scope
        return Birth(self, owner, creation, handle, agent, seed)


def _checked_id(session_id: object) -> str:
    if type(session_id) is not str or not session_id:
        raise UsageError(f"a session id is a non-empty string, not {session_id!r}")
    return session_id
