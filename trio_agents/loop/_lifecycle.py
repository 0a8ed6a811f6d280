"""Creation and teardown of one agent, each from top to bottom.

**Creation** runs in the caller's task. Setup runs inside a cancel scope of its own, the creation's, which owner and
loop can cancel; around it, the caller's own cancel scope governs. Whatever raced: after every await, and once more
before the first edge, caller, owner and loop are asked again, and only then comes one section without a checkpoint:
commit, lock, both registries, the three announcements. Its last act starts what was delivered meanwhile. From its first
edge on the caller's cancel no longer counts, and nothing after it is a checkpoint: that would lose the only handle
of a live agent.

**Teardown** is written once, in `Handle._tail`: wait for the work to end, unwind the scope, detach the agent, flush
and close the log, detach the session, release. A creation that failed is rolled back by the very same steps, over an
agent that was never announced.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NoReturn, final

import trio

from ..agent import Agent, AgentHandle, Scope, Setup
from ..agent._directory import Entry
from ..agent._hooks import SessionStartSource
from ..agent._initiator import on_nobodys_behalf
from ..agent._scope import bound, leave
from ..errors import CreationAbortedError, ReentrantWaitError, UsageError
from ..scope._lifetime import Lifetime, at_least
from ..scope._waits import working_for
from ..session import Draft, Event, Session
from ..storage import LogWriter
from ..values import DISPOSED
from ._inside import is_inside

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._factory import AgentLoop

logger: Final = logging.getLogger("trio_agents")

OWNER_CLOSED: Final = "owner closed during setup"
LOOP_CLOSED: Final = "agent loop is not active"


@final
class Handle(Lifetime, AgentHandle):
    """The life of one agent, and the capability to end it."""

    # What the agent has is asked of the agent: each field counts in the memory of an idle one.
    __slots__ = ("_agent", "_discard", "session_entry", "writer")

    def __init__(self, agent: LoopAgent) -> None:
        super().__init__(agent.loop.homes)
        self._agent = agent
        self.writer: LogWriter | None = None
        self.session_entry: Entry[Session] | None = None
        self._discard: Literal["no", "now", "again"] = "no"

    # --- the capability -----------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self._agent

    async def dispose(self, *, discard_inbox: bool = False) -> None:
        """End the agent and wait for its end; see `AgentHandle.dispose`."""
        self._want_discard(discard_inbox)
        if not self.is_ended and is_inside(self._agent):
            await self._ask_from_inside()
        self.ask()
        if not await self.settle():
            await trio.lowlevel.checkpoint()  # there was nothing to wait for

    async def _ask_from_inside(self) -> NoReturn:
        """The agent waits for this very task: it cannot wait for the agent. The request stands."""
        self.ask_soon()
        await trio.lowlevel.checkpoint()
        raise ReentrantWaitError(
            f"agent {self._agent.id!r} is being disposed from inside its own work, which cannot wait for it; "
            "the end was asked for"
        )

    def dispose_soon(self) -> None:
        """Ask for the end and do not wait."""
        self.ask_soon()

    async def aclose(self) -> None:
        """Like `dispose`, shielded and bounded."""
        if not self.is_ended and is_inside(self._agent):
            await self._ask_from_inside()
        await leave(self, None, self._agent.options.grace)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End the agent, shielded and bounded; an exception of the body goes on unchanged."""
        if not self.is_ended and is_inside(self._agent):
            if exc is None:
                await self._ask_from_inside()  # noqa: ASYNC102 - shielded and bounded inside
            self.ask_soon()
            return  # noqa: ASYNC910 - waits only if there is something to wait for
        await leave(self, exc, self._agent.options.grace)  # noqa: ASYNC102 - shielded and bounded inside

    def __repr__(self) -> str:
        return f"<handle of {self._agent!r}>"

    # --- the end ------------------------------------------------------------------------------

    def _want_discard(self, discard: bool) -> None:
        if discard and not self.is_ending:
            self._discard = "now"

    def _describe(self) -> str:
        return f"agent {self._agent.id!r}"

    def _deadline(self) -> float:
        return trio.current_time() + self._agent.options.grace

    def _on_ask(self) -> None:
        agent = self._agent
        agent.begin_closing()
        try:
            agent.stop_work(DISPOSED, plain=self._discard == "now")
        except Exception:
            # Refused by the storage, or asked from an observer of an append: the tail says it again, and only then,
            # since contexts that a tool stages meanwhile are to be kept.
            logger.debug("the inbox of agent %r is discarded later", agent.id, exc_info=True)
            self._discard = "again"

    @property
    def owned(self) -> Scope:
        """The agent's scope."""
        return self._agent.scope

    @property
    def loop(self) -> AgentLoop:
        """The loop that made the agent."""
        return self._agent.loop

    def _must_wait(self) -> bool:
        agent, writer = self._agent, self.writer
        return (
            agent.has_work
            or self._discard == "again"
            or agent.scope.must_wait()
            or (writer is not None and writer.is_dirty)
        )

    async def _tail(self, waits: bool) -> None:
        agent = self._agent
        scope = agent.scope
        deadline = 0.0
        with on_nobodys_behalf():
            if waits or not scope.is_empty:
                deadline = self._deadline()
                with working_for(agent):
                    await self._end_work(deadline)
                    await scope.unwind(self._failed, deadline, agent.options.grace)
            else:
                scope.close_empty()
            if agent.entry is not None:
                agent.entry.detach()
            if self.writer is not None:
                if self.writer.is_dirty:
                    await self._flush(self.writer, deadline)
                else:
                    self._attempt(self.writer.abandon)
            agent.pen.close()
            agent.keep_receipts()
            if self.session_entry is not None:
                self.session_entry.detach()
            owner = scope.parent
            assert owner is not None
            owner.release(self)
            if self._failures is None:
                agent.let_go()

    async def _end_work(self, deadline: float) -> None:
        agent = self._agent
        if agent.is_busy:
            await self._wait_for_work(deadline)
        if self._discard == "again":
            self._attempt(agent.inbox.discard_all)
        if agent.owes_closers:
            self._attempt(agent.pay_owed)

    async def _wait_for_work(self, deadline: float) -> None:
        """Wait until the cancelled work has ended; at the deadline take its pen away and close its turn for it."""
        agent = self._agent
        with trio.CancelScope(deadline=deadline, shield=True):
            await agent.wait_idle()
        if not agent.is_busy:
            return
        where = agent.abandon_driver()
        self._failed(
            TimeoutError(
                f"work of agent {agent.id!r} did not end within its grace ({agent.options.grace:g} s) although it was "
                f"cancelled, and lost its right to write: {where}"
            )
        )

    async def _flush(self, writer: LogWriter, deadline: float) -> None:
        """The final flush; the writer is closed and its lock released whatever becomes of it."""
        try:
            with trio.CancelScope(
                deadline=at_least(deadline, self._agent.options.grace), shield=True
            ) as scope:
                await writer.aclose()
            if scope.cancelled_caught:
                self._failed(
                    TimeoutError(f"the log of agent {self._agent.id!r} could not be flushed in time")
                )
                writer.abandon()
        except Exception as exc:  # noqa: BLE001 - reported; the session is detached all the same
            self._failed(exc)

    def _attempt(self, fn: Callable[[], object]) -> None:
        try:
            fn()
        except Exception as exc:  # noqa: BLE001 - reported; the end goes on
            self._failed(exc)


@final
class Creation(Lifetime):
    """A creation under way: owner and loop can abort it, and wait until the call has settled."""

    __slots__ = ("_has_settled", "_scope", "_settled", "id", "loop", "reason")

    def __init__(self, loop: AgentLoop, id: str) -> None:
        super().__init__(loop.homes)
        self.loop = loop
        self.id = id
        self.reason: str | None = None
        self._scope: trio.CancelScope | None = None
        self._has_settled = False
        self._settled: trio.Event | None = None

    def _describe(self) -> str:
        return f"the creation of agent {self.id!r}"

    def abort(self, reason: str) -> None:
        """Say why, before asking for the end."""
        if self.reason is None:
            self.reason = reason

    def stretch(self) -> trio.CancelScope:
        """A cancel scope for the next stretch of awaits, which the end of this creation cancels."""
        scope = self._scope = trio.CancelScope()
        if self.reason is not None:
            scope.cancel(reason=self.reason)
        return scope

    def _on_ask(self) -> None:
        self.abort(OWNER_CLOSED)
        if self._scope is not None:
            self._scope.cancel(reason=self.reason)

    def _must_wait(self) -> bool:
        return True

    async def _tail(self, waits: bool) -> None:
        if not self._has_settled:
            self._settled = trio.Event()
            with trio.CancelScope(shield=True):
                await self._settled.wait()

    def settled(self) -> None:
        """The call has returned or raised."""
        self._has_settled = True
        if self._settled is not None:
            self._settled.set()


@final
class Birth:
    """One agent on its way from being made to being published."""

    __slots__ = ("agent", "creation", "handle", "loop", "owner", "seed", "session")

    def __init__(
        self,
        loop: AgentLoop,
        owner: Scope,
        creation: Creation | None,
        handle: Handle,
        agent: LoopAgent,
        seed: Sequence[Event],
    ) -> None:
        """Take what was made.

        Args:
            loop: who makes the agent.
            owner: who is to own it.
            creation: what can be aborted, or None where nothing is awaited before the publication.
            handle: the agent's life.
            agent: the agent.
            seed: what a new log holds from the start; not asked for if the handle has a writer by then.
        """
        self.loop = loop
        self.owner = owner
        self.creation = creation
        self.handle = handle
        self.agent = agent
        self.seed = seed
        self.session = agent.session

    def check(self) -> None:
        """Raise if owner, loop or the handle itself no longer want the agent. No checkpoint."""
        creation, loop, owner = self.creation, self.loop, self.owner
        if creation is not None and creation.reason is not None:
            raise aborted(self.agent.id, creation.reason)
        check_wanted(loop, owner, self.agent.id)

    async def prepare(self, setup: Setup | None) -> object:
        """Run setup in the caller's task; gives what it returned. Raises what setup raised, or why it was aborted."""
        commit: object = None
        if setup is None:
            return commit  # noqa: ASYNC910 - waits only if there is something to wait for
        assert self.creation is not None
        with self.creation.stretch(), working_for(self.agent):
            commit = setup(self.agent)
            if inspect.isawaitable(commit):
                commit = await commit
        self.check()
        return commit  # noqa: ASYNC910 - likewise; the publication asks whether the caller was cancelled

    async def publish(
        self,
        commit: object,
        opening: Callable[[], list[Draft]] | None,
        source: SessionStartSource,
    ) -> None:
        """Make the agent visible and tell it: one section, and no checkpoint after its first edge."""
        self.check()
        await trio.lowlevel.checkpoint_if_cancelled()  # raises or does not yield
        if commit is not None:
            if not callable(commit):
                raise UsageError(f"setup returns a commit function or None, not {commit!r}")
            _run_commit(commit)
            self.check()
            await trio.lowlevel.checkpoint_if_cancelled()
        self.publish_now(opening, source)

    @trio.lowlevel.enable_ki_protection
    def publish_now(self, opening: Callable[[], list[Draft]] | None, source: SessionStartSource) -> None:
        """The section itself. Where nothing was awaited since caller, owner and loop were asked, it is all there is.

        Args:
            opening: gives the events that the log goes on with at once; None for none.
            source: what `SessionStart` tells.
        """
        agent, handle, core = self.agent, self.handle, self.loop.core
        id = agent.id
        core.check_free(id)
        if handle.writer is None:
            writer = handle.writer = self.loop.store.create(self.session.header, self.seed)
            agent.pen.attach(writer)
        drafts = None if opening is None else opening()
        if drafts:
            agent.pen.append(*drafts)
        scope = agent.scope
        told = handle.session_entry = core.sessions.enter(id, self.session, scope)
        entry = core.agents.enter(id, agent, scope)
        self.owner.adopt(handle)
        agent.entered(entry)
        if told.announce(keep=True):
            self.check_live()
        if entry.announce(keep=True):
            self.check_live()
        if agent.announce_start(source):
            self.check_live()
        agent.published()

    def check_live(self) -> None:
        """Like `check`, between two edges: also a dispose asked for by a listener ends the publication."""
        self.check()
        if self.handle.is_ending:
            raise aborted(self.agent.id, "it was disposed while it was being announced")


def check_wanted(loop: AgentLoop, owner: Scope, id: str) -> None:
    """Raise if the loop or the owner takes no agents any more."""
    if loop.is_closing:
        raise aborted(id, LOOP_CLOSED)
    if owner.closing:
        raise aborted(id, OWNER_CLOSED)


def aborted(id: str, reason: str) -> CreationAbortedError:
    """The error of a creation that owner or loop have ended."""
    return CreationAbortedError(f"agent {id!r} was not created: {reason}")


def _run_commit(commit: Callable[[], object]) -> None:
    answer = commit()
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise UsageError(f"the commit of a setup is a plain function; {commit!r} returned an awaitable")


async def roll_back(handle: Handle, exc: BaseException) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
    """Undo a creation that failed, by the teardown's own steps; what fails on the way becomes a note on `exc`."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + bound(handle.agent.options.grace)):
        handle.ask()
        try:
            await handle.settle()
        except Exception as failure:  # noqa: BLE001 - the error that made this necessary wins
            exc.add_note(f"while it was rolled back: {failure}")
            for note in getattr(failure.__cause__, "__notes__", ()):  # what failed after that
                exc.add_note(note)
