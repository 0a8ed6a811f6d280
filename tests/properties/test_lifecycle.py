"""Agents of one runtime under everything that can happen to them, with the invariants looked at after every step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import hypothesis.strategies as st
import trio
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import trio_agents as ta
from trio_agents.agent._scope import new_scope
from trio_agents.models import Reply, ScriptedModel
from trio_agents.scope._waits import _working
from trio_agents.testing import TrioHost

OPTIONS = ta.AgentOptions(model="scripted/m", grace=20)
IDS = st.sampled_from(["a", "b", "c"])
OWNERS = st.sampled_from([0, 1])
SETUPS = st.sampled_from(["none", "some", "fails", "hangs", "slow", "stubborn"])
EXPECTED = (ta.UsageError, ta.SessionLogError, LookupError)


class Call:
    """One creation, resume, dispose or close that may still be waiting."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.scope = trio.CancelScope()
        self.handle: ta.AgentHandle | None = None
        self.is_over = False


class Lifecycle(RuleBasedStateMachine):
    """One runtime, two owners, three ids."""

    def __init__(self) -> None:
        super().__init__()
        self.host = TrioHost()
        self.store = ta.MemoryStore()
        self.calls: list[Call] = []
        self.told: dict[int, list[str]] = {}  # one publication (by its agent), and what was told of it
        self.running: dict[int, bool] = {}
        self.setups = 0  # setups and contexts that have begun and not ended
        self.unexpected: list[BaseException] = []
        self.host.run(self.open)

    async def open(self) -> None:
        """Open the runtime, and a nursery for calls that wait."""
        model = ScriptedModel(lambda request: Reply.text("ok").delayed(request.turn % 3), strict=False)
        self.block = ta.open_runtime(store=self.store, models=[model], plugins=())
        self.rt = await self.block.__aenter__()
        self.nursery_manager = trio.open_nursery()
        self.nursery = await self.nursery_manager.__aenter__()
        self.owners = [new_scope(f"owner {n}", self.rt.scope) for n in range(2)]
        self.rt.scope.on(ta.AgentCreated, lambda told: self.note(told.agent, "created"))
        self.rt.scope.on(ta.AgentDisposed, lambda told: self.note(told.agent, "disposed"))
        self.rt.scope.on(ta.AgentStatusChanged, self.status)

    def note(self, agent: ta.Agent, what: str) -> None:
        """Something was told of an agent."""
        self.told.setdefault(id(agent), []).append(what)
        self.kept = [*getattr(self, "kept", []), agent]  # so that the id stays its own

    def status(self, told: ta.AgentStatusChanged) -> None:
        """DRV-21: consecutive statuses differ."""
        now = told.status == "running"
        assert self.running.get(id(told.agent), False) is not now
        self.running[id(told.agent)] = now

    # --- what can happen ----------------------------------------------------------------------

    def start(self, what: str, job: Callable[[Call], Awaitable[object]]) -> None:
        """Start a call and let it come as far as it can."""
        call = Call(what)
        self.calls.append(call)

        async def run() -> None:
            try:
                with call.scope:
                    await job(call)
            except EXPECTED:
                pass
            except ta.TeardownError as exc:
                self.unexpected.append(exc)
            finally:
                call.is_over = True

        async def begin() -> None:
            self.nursery.start_soon(run)

        self.host.run(begin)

    def setup_of(self, kind: str) -> Callable[[ta.Agent], Awaitable[object]] | None:
        """A setup that does this."""
        if kind == "none":
            return None

        class Context:
            async def __aenter__(context) -> None:  # noqa: N805 - `self` is the machine
                await trio.lowlevel.checkpoint()
                self.setups += 1

            async def __aexit__(context, *details: object) -> None:  # noqa: N805 - likewise
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                self.setups -= 1

        async def setup(agent: ta.Agent) -> object:
            await agent.scope.enter_async_context(Context())
            agent.scope.start_soon(trio.sleep_forever)
            if kind == "fails":
                raise LookupError("setup")
            if kind == "hangs":
                await trio.sleep_forever()
            if kind == "slow":
                await trio.sleep(3)
            if kind == "stubborn":
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
            return lambda: None

        return setup

    @rule(id=IDS, owner=OWNERS, kind=SETUPS)
    def create(self, id: str, owner: int, kind: str) -> None:
        """Create an agent."""

        async def job(call: Call) -> None:
            scope = self.owners[owner]
            call.handle = await scope.agents.create(id, setup=self.setup_of(kind), options=OPTIONS)

        self.start(f"create {id}", job)

    @rule(id=IDS, owner=OWNERS, kind=SETUPS, wait=st.booleans())
    def resume(self, id: str, owner: int, kind: str, wait: bool) -> None:
        """Resume a session."""

        async def job(call: Call) -> None:
            with trio.move_on_after(30):
                call.handle = await self.owners[owner].agents.resume(
                    id, setup=self.setup_of(kind), options=OPTIONS, wait=wait
                )

        self.start(f"resume {id}", job)

    @rule(id=IDS, owner=OWNERS, kind=SETUPS, seconds=st.sampled_from([0, 1, 5]))
    def open_block(self, id: str, owner: int, kind: str, seconds: int) -> None:
        """Have an agent for the length of a block."""

        async def job(call: Call) -> None:
            registry = self.owners[owner].agents
            async with registry.open(id, mode="either", setup=self.setup_of(kind), options=OPTIONS):
                await trio.sleep(seconds)

        self.start(f"open {id}", job)

    @rule(id=IDS, kind=SETUPS)
    def create_child(self, id: str, kind: str) -> None:
        """Create an agent that another one owns."""
        parent = self.rt.agents.get(id)
        if parent is not None:

            async def job(call: Call) -> None:
                scope = parent.scope
                call.handle = await scope.agents.create(
                    f"{id}{id}", setup=self.setup_of(kind), options=OPTIONS
                )

            self.start(f"child of {id}", job)

    @rule(id=IDS, how=st.sampled_from(["followup", "steer", "inject", "cancel", "wake", "keep"]))
    def deliver(self, id: str, how: str) -> None:
        """Say something to whoever is live."""
        agent = self.rt.agents.get(id)
        if agent is None:
            return

        async def act() -> None:
            try:
                if how == "cancel":
                    agent.cancel()
                elif how == "keep":
                    agent.cancel(keep_inbox=True)
                elif how == "wake":
                    agent.wake()
                else:
                    getattr(agent, how)("hello")
            except ta.AgentClosedError:
                pass

        self.host.run(act)

    @rule(data=st.data())
    @precondition(lambda self: any(call.handle for call in self.calls))
    def dispose(self, data: st.DataObject) -> None:
        """Dispose of an agent, live or long gone; perhaps only ask."""
        handle = data.draw(st.sampled_from([call.handle for call in self.calls if call.handle]))
        how = data.draw(st.sampled_from(["dispose", "aclose", "soon", "discard"]))

        async def job(call: Call) -> None:
            if how == "soon":
                handle.dispose_soon()
            elif how == "aclose":
                await handle.aclose()
            else:
                await handle.dispose(discard_inbox=how == "discard")

        self.start("dispose", job)

    @rule(owner=OWNERS)
    def close_owner(self, owner: int) -> None:
        """Close an owner; another one takes its place."""
        scope = self.owners[owner]
        self.owners[owner] = new_scope("owner", self.rt.scope)
        self.start("close owner", lambda call: scope.aclose())

    @rule(data=st.data())
    @precondition(lambda self: any(not call.is_over for call in self.calls))
    def cancel_a_waiter(self, data: st.DataObject) -> None:
        """Cancel whoever waits."""
        call = data.draw(st.sampled_from([call for call in self.calls if not call.is_over]))

        async def cancel() -> None:
            call.scope.cancel()

        self.host.run(cancel)

    @rule(seconds=st.sampled_from([0, 1, 2, 4]))
    def let_time_pass(self, seconds: int) -> None:
        """Let everything go on."""

        async def sleep() -> None:
            await trio.sleep(seconds)

        self.host.run(sleep)

    # --- what stays true ----------------------------------------------------------------------

    @invariant()
    def told_in_pairs(self) -> None:
        """Disposed is told exactly if created was, once, and after it; who is listed has not been told as gone."""
        assert not self.unexpected
        for told in self.told.values():
            assert told in (["created"], ["created", "disposed"])
        for agent in self.rt.agents.list():
            assert self.told.get(id(agent), ["created"]) == ["created"]
            assert self.rt.sessions.get(agent.id) is agent.session

    @invariant()
    def one_of_each(self) -> None:
        """One live agent for each id, each with its lock: 6 of the architecture's list."""
        ids = [agent.id for agent in self.rt.agents.list()]
        assert len(ids) == len(set(ids))
        for id in ids:
            try:
                self.store.check_free(id)
            except ta.SessionLogError:
                continue
            raise AssertionError(f"{id} is live and nobody holds it")

    @invariant()
    def messages_are_somewhere(self) -> None:
        """An idle agent that is live has a balanced log: 3 and 5 of the list."""
        for agent in self.rt.agents.list():
            if agent.status == "idle":
                assert agent.session.open_turn is None

    def teardown(self) -> None:
        """Leave everything: no task, no mark, no context is left, and every log is balanced."""
        try:
            self.host.run(self.leave)
        finally:
            self.host.close()

    async def leave(self) -> None:
        """Cancel all calls, leave the runtime."""
        self.nursery.cancel_scope.cancel()
        await self.nursery_manager.__aexit__(None, None, None)
        await self.block.__aexit__(None, None, None)
        assert self.setups == 0
        assert not _working
        assert self.rt.loop.lives == []
        assert self.rt.loop._resuming == set()
        assert all(told == ["created", "disposed"] for told in self.told.values())
        for summary in await self.store.list():
            assert (await self.store.verify(summary.header.id)).problems == ()
            assert summary.status == "closed"
        for id in ("a", "b", "c"):
            async with (
                ta.open_runtime(store=self.store, models=[], plugins=()) as rt,
                rt.agents.open(id, mode="either") as agent,
            ):
                assert agent.status == "idle"


class LoopCloses(Lifecycle):
    """The same, and the loop itself may close."""

    @rule()
    def close_loop(self) -> None:
        """Close the factory: everything that it made ends, nothing new is made."""
        self.start("close loop", lambda call: self.rt.loop.aclose())


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestLoopCloses = LoopCloses.TestCase
TestLoopCloses.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
