"""How an agent is born: PUB."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from tests.lifecycle.stage import MODEL, OPTIONS, Recorder, SlowStore, hang, runtime, shows, stored, text_of
from tests.lifecycle.sweeping import AtStep
from trio_agents.models import Gate, Reply, ScriptedModel
from trio_agents.session import _replay, open_log
from trio_agents.session._events import TurnStart
from trio_agents.values import COMPLETED

BORN = ["session/created a", "agent/created a", "agent/session-start a startup"]


async def test_the_order_of_a_publication() -> None:
    """PUB-1: setup, commit, the three edges, return; outer listeners before those of setup on each edge."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def setup(agent):
            recorder.add("setup starts")
            agent.scope.on(ta.SessionCreated, recorder.at("own session/created"))
            agent.scope.on(ta.AgentCreated, recorder.at("own agent/created"))
            agent.scope.on(ta.SessionStart, recorder.at("own agent/session-start"))
            await trio.lowlevel.checkpoint()
            recorder.add("setup ends")
            return lambda: recorder.add("commit")

        await rt.agents.create("a", setup=setup)
        recorder.add("returned")
        assert recorder.take() == [
            "setup starts",
            "setup ends",
            "commit",
            "session/created a",
            "own session/created",
            "agent/created a",
            "own agent/created",
            "agent/session-start a startup",
            "own agent/session-start",
            "returned",
        ]


async def test_nobody_sees_it_before_the_first_edge() -> None:
    """PUB-2: not in setup, not in commit; at `session/created` both registries hold the pair."""
    async with runtime() as rt:
        seen = []
        rt.scope.on(ta.SessionCreated, lambda told: seen.append(("created", shows(rt))))

        async def setup(agent):
            seen.append(("setup", shows(rt)))
            return lambda: seen.append(("commit", shows(rt)))

        await rt.agents.create("a", setup=setup)
        assert seen == [("setup", "nothing"), ("commit", "nothing"), ("created", "agent+session")]


async def test_two_creates_of_one_id() -> None:
    """PUB-3: both setups run, one call returns, the other raises and leaves neither session nor edge."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        gate = trio.Event()

        async def create():
            async def setup(agent):
                recorder.add("setup")
                await gate.wait()

            try:
                await rt.agents.create("a", setup=setup)
            except ta.AgentExistsError as exc:
                recorder.add("refused" if "already exists" in str(exc) else repr(exc))
            else:
                recorder.add("returned")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            nursery.start_soon(create)
            await wait_all_tasks_blocked()
            gate.set()
        assert recorder.take() == ["setup", "setup", *BORN, "returned", "refused"]
        assert shows(rt) == "agent+session"
        with pytest.raises(ta.AgentExistsError, match="already exists"):
            await rt.agents.create("a")
        assert recorder.take() == []


async def test_ten_creates_and_ten_resumes_of_one_id() -> None:
    """PUB-3, PUB-25: one of ten wins, the others get one typed error, and nothing is left of them."""
    store = ta.MemoryStore()
    async with runtime(store=store) as rt:
        won: list[Any] = []
        lost: list[BaseException] = []

        async def attempt(call):
            try:
                won.append(await call())
            except ta.TrioAgentsError as exc:
                lost.append(exc)

        async def slow(agent):
            await trio.lowlevel.checkpoint()

        for call in (lambda: rt.agents.create("a", setup=slow), lambda: rt.agents.resume("a", setup=slow)):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(attempt, call)
            assert len(won) == 1
            assert [type(exc) for exc in lost] == [ta.AgentExistsError] * 9
            agent = won.pop().agent
            lost.clear()
            if not agent.session.events:
                agent.inject("kept")
            await rt.agents.create("other")
            for handle in cast("list[Any]", rt.loop.lives):
                await handle.dispose()
            assert not rt.loop.lives
            assert rt.agents.list() == []


async def test_the_callers_cancel_counts_until_create_returns() -> None:
    """PUB-4: cancelled afterwards, it does not touch the live agent; a following turn completes."""
    async with runtime() as rt:
        with trio.CancelScope() as scope:
            handle = await rt.agents.create("a", options=OPTIONS)
            scope.cancel()
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        reply = await handle.agent.ask("still there?")
        assert reply.end == COMPLETED


async def test_cancelled_in_setup() -> None:
    """PUB-5: raises Cancelled, publishes nothing, awaits the clean-up; the id is free at once."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def setup(agent):
            await agent.scope.enter_async_context(recorder.watched("context")())
            recorder.add("setup")
            await hang()

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: rt.agents.create("a", setup=setup))
                await wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert recorder.take() == ["enter context", "setup", "leave context"]
        assert shows(rt) == "nothing"
        await rt.agents.create("a")
        assert recorder.take() == BORN


async def test_cancelled_before_the_call() -> None:
    """PUB-5, PUB-23: setup never runs if the caller is cancelled already."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        with trio.CancelScope() as scope:
            scope.cancel()
            await rt.agents.create("a", setup=lambda agent: recorder.add("setup"))
        assert scope.cancelled_caught
        assert recorder.take() == []


class Steps(trio.abc.Instrument):
    """Counts the steps of one task."""

    def __init__(self) -> None:
        self.task = trio.lowlevel.current_task()
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def test_one_checkpoint_before_setup() -> None:
    """PUB-22, PUB-23: `create` is one checkpoint, with or without a setup, and it comes before setup."""
    async with runtime() as rt:
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        seen = []

        def setup(agent):
            seen.append(steps.count)
            return lambda: seen.append(steps.count)

        await rt.agents.create()
        assert steps.count == 1
        await rt.agents.create(setup=setup)
        assert steps.count == 2
        assert seen == [2, 2]
        trio.lowlevel.remove_instrument(steps)


@pytest.mark.parametrize("who", ["caller", "owner", "loop"])
@pytest.mark.parametrize("where", ["end of setup", "commit"])
async def test_asked_once_more_before_the_first_edge(who: str, where: str) -> None:
    """PUB-6: a close or a cancel in the very tick in which setup or commit ends publishes nothing."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        with trio.CancelScope() as scope:
            async with rt.scope.open_child("owner") as owner:

                def strike():
                    if who == "caller":
                        scope.cancel()
                    elif who == "owner":
                        owner.close_soon()
                    else:
                        rt.loop.is_closing = True

                async def setup(agent):
                    await trio.lowlevel.checkpoint()
                    if where == "commit":
                        return strike
                    strike()
                    return lambda: recorder.add("commit")

                if who == "caller":
                    await owner.agents.create("a", setup=setup)
                else:
                    with pytest.raises(ta.CreationAbortedError):
                        await owner.agents.create("a", setup=setup)
        assert scope.cancelled_caught is (who == "caller")
        assert recorder.take() == []
        assert shows(rt) == "nothing"


async def test_owner_closes_during_setup() -> None:
    """PUB-7: "owner closed during setup"; the close returns after setup is unwound and the call settled."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def setup(agent):
            await agent.scope.enter_async_context(recorder.watched("context")())
            await hang()

        async def create(owner):
            with pytest.raises(ta.CreationAbortedError, match="owner closed during setup"):
                await owner.agents.create("a", setup=setup)
            recorder.add("raised")

        async with trio.open_nursery() as nursery, rt.scope.open_child("owner") as owner:
            nursery.start_soon(create, owner)
            await wait_all_tasks_blocked()
            await owner.aclose()
            recorder.add("closed")
            with pytest.raises(ta.CreationAbortedError, match="owner closed during setup"):
                await owner.agents.create("b")
        assert sorted(recorder.take()[:2]) == ["enter context", "leave context"]
        assert shows(rt) == "nothing"


async def test_the_close_waits_until_the_call_has_settled() -> None:
    """PUB-7: also for a setup that takes its time to be cancelled."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def setup(agent):
            try:
                await hang()
            finally:
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                recorder.add("setup left")

        async def create(owner):
            with pytest.raises(ta.CreationAbortedError):
                await owner.agents.create("a", setup=setup)

        async with trio.open_nursery() as nursery, rt.scope.open_child("owner") as owner:
            nursery.start_soon(create, owner)
            await wait_all_tasks_blocked()
            await owner.aclose()
            recorder.add("closed")
        assert recorder.take() == ["setup left", "closed"]


async def test_loop_closes_during_setup() -> None:
    """PUB-7: "agent loop is not active", also for what comes afterwards."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        async def setup(agent):
            await agent.scope.enter_async_context(recorder.watched("context")())
            await hang()

        async def create():
            with pytest.raises(ta.CreationAbortedError, match="agent loop is not active"):
                await rt.agents.create("a", setup=setup)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await wait_all_tasks_blocked()
            await rt.loop.aclose()
            recorder.add("closed")
        assert recorder.take() == ["enter context", "leave context", "closed"]
        with pytest.raises(ta.CreationAbortedError, match="agent loop is not active"):
            await rt.agents.create("b")


@pytest.mark.parametrize(
    ("edge", "told"),
    [
        (ta.SessionCreated, ["session/created a", "late", "context left", "session/disposed a"]),
        (
            ta.AgentCreated,
            [
                "session/created a",
                "agent/created a",
                "late",
                "context left",
                "agent/disposed a",
                "session/disposed a",
            ],
        ),
        (
            ta.SessionStart,
            [
                "session/created a",
                "agent/created a",
                "agent/session-start a startup",
                "late",
                "registered later",
                "context left",
                "agent/disposed a",
                "session/disposed a",
            ],
        ),
    ],
)
async def test_owner_closes_inside_an_edge(edge, told) -> None:
    """PUB-8, PUB-9, PUB-10: later listeners see a live pair and a usable scope; then it is rolled back in order."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        async with rt.scope.open_child("owner") as owner:

            def close(event):
                owner.close_soon()

            def late(event):
                assert shows(rt) == "agent+session"
                agent = rt.agents.get("a")
                assert agent is not None
                recorder.add("late")
                if edge is ta.SessionStart:
                    agent.scope.callback(recorder.add, "registered later")
                    agent.followup("never started")

            rt.scope.on(edge, close)
            rt.scope.on(edge, late)

            def setup(agent):
                agent.scope.callback(recorder.add, "context left")

            with pytest.raises(ta.CreationAbortedError, match="owner closed during setup"):
                await owner.agents.create("a", setup=setup)
        assert recorder.take() == told
        assert shows(rt) == "nothing"


@pytest.mark.parametrize(
    ("edge", "told"),
    [
        (ta.SessionCreated, ["session/created a", "left", "session/disposed a"]),
        (
            ta.AgentCreated,
            ["session/created a", "agent/created a", "left", "agent/disposed a", "session/disposed a"],
        ),
    ],
)
async def test_vetoes(edge, told) -> None:
    """PUB-11: that very exception reaches the caller; what was told as created is told as disposed, agent first."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        veto = LookupError("no")

        def raise_it(event):
            raise veto

        rt.scope.on(edge, raise_it)

        def setup(agent):
            agent.scope.callback(recorder.add, "left")

        with pytest.raises(LookupError) as caught:
            await rt.agents.create("a", setup=setup)
        assert caught.value is veto
        assert recorder.take() == told
        assert shows(rt) == "nothing"


async def test_session_start() -> None:
    """PUB-12: once, before `create` returns and any turn; startup also with a prefix; a failure is contained."""
    store = ta.MemoryStore()
    await stored(store, "old")
    async with runtime(store=store) as rt:
        recorder = Recorder(rt.scope, events=["turn/start"])

        def bad(told):
            raise ValueError("contained")

        def start(told):
            told.agent.followup("from a listener")

        rt.scope.on(ta.SessionStart, bad)
        rt.scope.on(ta.SessionStart, start)
        handle = await rt.agents.create("a", options=OPTIONS)
        recorder.add("returned")
        await handle.agent.when_idle()
        assert recorder.take() == [
            *BORN,
            "agent/status a running",
            "returned",
            "turn/start a",
            "agent/status a idle",
        ]
        old = await rt.agents.resume("old", options=OPTIONS)
        assert recorder.take()[:3] == [
            "session/created old",
            "agent/created old",
            "agent/session-start old resume",
        ]
        await old.agent.when_idle()
        recorder.take()
        await rt.agents.create("b", prefix=tuple(old.agent.session.events[:1]), options=OPTIONS)
        assert recorder.take()[2] == "agent/session-start b startup"


@pytest.mark.parametrize("edge", [ta.SessionCreated, ta.AgentCreated, ta.SessionStart])
async def test_deliveries_on_the_edges(edge) -> None:
    """PUB-13: accepted; running and the first turn come after the last `session-start` listener."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope, events=["turn/start"])

        def deliver(told):
            agent = rt.agents.get("a")
            assert agent is not None
            agent.followup("early")
            assert agent.status == "idle"

        rt.scope.on(edge, deliver)
        rt.scope.on(ta.SessionStart, recorder.at("last listener"))
        handle = await rt.agents.create("a", options=OPTIONS)
        await handle.agent.when_idle()
        assert recorder.take() == [
            *BORN,
            "last listener",
            "agent/status a running",
            "turn/start a",
            "agent/status a idle",
        ]


async def test_deliveries_before_a_veto_stay_pending() -> None:
    """PUB-13: no turn opens; a resume finds them."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)

        def veto(told):
            told.agent.followup("kept")
            raise ValueError("veto")

        undo = rt.scope.on(ta.AgentCreated, veto)
        with pytest.raises(ValueError, match="veto"):
            await rt.agents.create("a", options=OPTIONS)
        assert recorder.take() == [
            "session/created a",
            "agent/created a",
            "agent/disposed a",
            "session/disposed a",
        ]
        undo()
        handle = await rt.agents.resume("a")
        assert [text_of(m) for m in handle.agent.inbox.next_turn] == ["kept"]


async def test_a_resumed_log() -> None:
    """PUB-14: stored events, one marker, dense numbers, the next turn number, and the stored messages in the request."""
    store = ta.MemoryStore()
    await stored(store, "a", "one", "two")
    model = ScriptedModel(Reply.text("three"))
    before = (await store.inspect("a")).events
    async with ta.open_runtime(store=store, models=[model], plugins=()) as rt:
        async with rt.open_agent("a", mode="resume") as agent:
            assert list(agent.session.events[: len(before)]) == list(before)
            assert [event.type for event in agent.session.events[len(before) :]] == [
                "session/prefix-end"
            ] or [event.type for event in agent.session.events[len(before) :]] == [
                agent.session.events[-1].type
            ]
            markers = len(agent.session.events) - len(before)
            assert markers == 1
            reply = await agent.ask("go on")
            assert reply.turn == 3
            assert [event.seq for event in agent.session.events] == list(range(len(agent.session.events)))
            texts = [text_of(message) for message in model.requests[0].messages]
            assert texts == ["one", "ok", "two", "ok", "go on"]
        count = len((await store.inspect("a")).events)
        async with rt.open_agent("a", mode="resume") as agent:
            marked = len(agent.session.events)
            assert marked == count + 1
        async with rt.open_agent("a", mode="resume") as agent:
            assert len(agent.session.events) == marked, "it ends with a marker already"


async def test_a_resume_closes_what_was_open() -> None:
    """PUB-14: the closers of an interrupted turn, then the marker, in front of the first edge."""
    store = ta.MemoryStore()
    await stored(store)
    opened = await store.open("a")
    _, pen = open_log(opened.header, opened.events, writer=opened.writer, loaded=True)
    pen.append(TurnStart(turn=2))
    opened.writer.abandon()
    async with runtime(store=store) as rt:
        recorder = Recorder(rt.scope)
        seen: list[str] = []

        def created(told):
            seen.extend(event.type for event in told.session.events[-2:])

        rt.scope.on(ta.SessionCreated, created)
        handle = await rt.agents.resume("a")
        assert seen[0] == "turn/end"
        assert len(seen) == 2
        assert handle.agent.session.open_turn is None
        assert recorder.take() == ["session/created a", "agent/created a", "agent/session-start a resume"]


async def test_resume_of_a_live_id() -> None:
    """PUB-15: refused "while it is live"; the live turn is not repaired on disk."""
    gate = Gate()
    store = ta.MemoryStore()
    async with runtime(Reply.text("late").gated(gate), store=store) as rt:  # noqa: SIM117 - two things
        async with rt.open_agent("a", model=MODEL) as agent:
            agent.followup("go")
            await gate.reached.wait()
            with pytest.raises(ta.AgentExistsError, match="while it is live"):
                await rt.agents.resume("a")
            assert agent.session.open_turn == 1
            assert (await store.inspect("a")).status == "live"
            gate.opened.set()
            await agent.when_idle()
            assert agent.session.events[-1].data.reason == COMPLETED


@pytest.mark.parametrize("who", ["caller", "owner", "loop"])
async def test_a_blocked_load_is_cut_short(who: str) -> None:
    """PUB-16: with the errors of PUB-5 and PUB-7; the lock is released once and the id can be resumed at once."""
    memory = ta.MemoryStore()
    await stored(memory)
    store = SlowStore(memory)
    errors: list[str] = []

    async def resume(scope, owner):
        with scope:
            try:
                await owner.agents.resume("a")
            except ta.CreationAbortedError as exc:
                errors.append(str(exc).partition(": ")[2])

    async with runtime(store=store) as rt, trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        async with rt.scope.open_child("owner") as owner:
            nursery.start_soon(resume, scope, owner)
            await store.reached.wait()
            await wait_all_tasks_blocked()
            with pytest.raises(ta.AgentExistsError, match="already being resumed"):
                await rt.agents.resume("a")
            if who == "caller":
                scope.cancel()
                await wait_all_tasks_blocked()
            elif who == "owner":
                await owner.aclose()
            else:
                await rt.loop.aclose()
        await wait_all_tasks_blocked()
        assert scope.cancelled_caught is (who == "caller")
        wanted = {"caller": [], "owner": ["owner closed during setup"], "loop": ["agent loop is not active"]}
        assert errors == wanted[who]
        assert (store.opened, store.released) == (1, 1)
        store.gate.set()
        if who != "loop":
            await rt.agents.resume("a")
    async with runtime(store=memory) as rt:
        await rt.agents.resume("a")


async def test_resume_drives_nothing() -> None:
    """PUB-17: restored messages stay parked; the first request takes next-step ones before the new prompt."""
    store = ta.MemoryStore()
    await stored(store)
    async with runtime(store=store) as rt, rt.open_agent("a", mode="resume") as agent:
        agent.inject("aside")
    model = ScriptedModel(Reply.text("yes"))
    async with ta.open_runtime(store=store, models=[model], plugins=()) as rt:
        recorder = Recorder(rt.scope)
        async with rt.open_agent("a", mode="resume", model=MODEL) as agent:
            await wait_all_tasks_blocked()
            assert recorder.take() == ["session/created a", "agent/created a", "agent/session-start a resume"]
            assert model.request_count == 0
            await agent.ask("prompt")
            texts = [text_of(message) for message in model.requests[0].messages]
            assert texts == ["hello", "ok", "aside", "prompt"]


async def test_resume_of_an_unknown_id() -> None:
    """PUB-17: `SessionNotFoundError`, and nothing is made of it."""
    async with runtime() as rt:
        with pytest.raises(ta.SessionNotFoundError):
            await rt.agents.resume("nobody")
        assert shows(rt, "nobody") == "nothing"
        assert not rt.loop.lives


async def test_a_load_failure_never_leads_to_a_fresh_session() -> None:
    """PUB-17: `open(mode="either")` passes it on."""

    class Broken(SlowStore):
        async def open(self, session_id):
            await trio.lowlevel.checkpoint()
            raise ta.StorageError("disk on fire", session_id=session_id)

    async with runtime(store=Broken(ta.MemoryStore())) as rt:
        with pytest.raises(ta.StorageError, match="disk on fire"):
            async with rt.open_agent("a", mode="either"):
                raise AssertionError("never entered")
        assert shows(rt) == "nothing"


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, True])
async def test_refused_max_tokens(value) -> None:
    """PUB-18: refused before either object exists."""
    with pytest.raises(ta.UsageError, match="max_tokens"):
        ta.AgentOptions(max_tokens=value)


async def test_refused_prefix_and_cwd() -> None:
    """PUB-18: a prefix with a gap, a relative cwd: no event, and the id is free."""
    store = ta.MemoryStore()
    await stored(store, "old")
    events = (await store.inspect("old")).events
    async with runtime(store=store) as rt:
        recorder = Recorder(rt.scope)
        with pytest.raises(ta.TrioAgentsError):
            await rt.agents.create("a", prefix=(events[0], events[2]))
        with pytest.raises(ta.UsageError, match="absolute"):
            ta.AgentOptions(cwd="some/where")
        assert recorder.take() == []
        assert shows(rt) == "nothing"
        await rt.agents.create("a")
        assert recorder.take() == BORN


def holds(scope: ta.Scope) -> tuple[int, int]:
    """How many members and contributions a scope has."""
    return len(scope._members or ()), len(scope._contributions or ())


async def test_nothing_is_left_in_the_owner() -> None:
    """PUB-19: after a dispose or a failed create the owner holds as many tasks and callbacks as before."""
    async with runtime() as rt:
        tasks = trio.lowlevel.current_statistics().tasks_living
        before = holds(rt.scope)

        async def failing(agent):
            await agent.scope.enter_async_context(Recorder(rt.scope).watched("x")())
            raise ValueError("setup")

        await (await rt.agents.create()).dispose()
        async with rt.scope.open_child("child") as child:
            child_before = holds(child)
            with pytest.raises(ValueError, match="setup"):
                await child.agents.create(setup=lambda agent: _raise())
            assert holds(child) == child_before
        deep = rt.scope
        while deep.depth < 64:
            deep = ta.agent._scope.new_scope("deep", deep)
        with pytest.raises(ta.UsageError, match="64"):
            await deep.agents.create()
        assert holds(deep) == (0, 0)
        child = cast("Any", next(iter(rt.scope._members or {}))).scope
        await child.aclose()
        assert holds(rt.scope) == before
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert rt.loop.lives == []


def _raise() -> None:
    raise ValueError("setup")


async def test_open_publishes_like_create() -> None:
    """PUB-20: leaving the block disposes, and the body's exception goes on unchanged after the teardown."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        error = LookupError("body")
        with pytest.raises(LookupError) as caught:  # noqa: PT012 - the block is the point
            async with rt.agents.open("a"):
                recorder.add("body")
                raise error
        assert caught.value is error
        assert recorder.take() == [*BORN, "body", "agent/disposed a", "session/disposed a"]


async def test_clear_context() -> None:
    """PUB-21: one notice instead of the surface, pending input stays, the source is clear, turn numbers go on."""
    gate = Gate()
    model = ScriptedModel(["one", Reply.text("two").gated(gate), "three"])
    async with ta.open_runtime(models=[model], plugins=()) as rt:
        recorder = Recorder(rt.scope, events=["turn/start"])
        async with rt.open_agent("a", model=MODEL) as agent:
            await agent.ask("first")
            agent.inject("aside")
            recorder.take()
            count = len(agent.session.events)
            await agent.clear_context()
            assert recorder.take() == ["agent/session-start a clear"]
            assert len(agent.session.messages()) == 1
            assert len(agent.session.events) == count + 1
            assert len(agent.inbox.next_step) == 1
            agent.followup("second")
            await gate.reached.wait()
            with pytest.raises(ta.AgentBusyError):
                await agent.clear_context()
            gate.opened.set()
            await agent.when_idle()
            assert agent.session.turn == 2


async def test_setup_runs_in_the_callers_task() -> None:
    """PUB-22: so the caller's deadline and initiator govern it; after the first edge a cancel loses no handle."""
    async with runtime() as rt:
        caller = trio.lowlevel.current_task()
        with trio.CancelScope() as scope:
            rt.scope.on(ta.SessionCreated, lambda told: scope.cancel())

            def setup(agent):
                assert trio.lowlevel.current_task() is caller

            handle = await rt.agents.create("a", setup=setup)
        assert shows(rt) == "agent+session"
        await handle.dispose()


@pytest.mark.parametrize("mode", ["create", "either"])
async def test_open_either_of_a_new_id(mode) -> None:
    """PUB-24: it is created, and found again afterwards; two at once: one wins."""
    store = ta.MemoryStore()
    async with runtime(store=store) as rt:
        entered: list[str] = []
        done = trio.Event()

        async def enter():
            try:
                async with rt.open_agent("a", mode=mode, model=MODEL) as agent:
                    entered.append("in")
                    await agent.ask("hello")
                    await done.wait()
            except ta.AgentExistsError:
                entered.append("refused")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enter)
            nursery.start_soon(enter)
            await wait_all_tasks_blocked()
            done.set()
        assert sorted(entered) == ["in", "refused"]
        async with rt.open_agent("a", mode="either") as agent:
            assert agent.session.turn == 1


async def test_open_either_while_somebody_else_stores_it() -> None:
    """PUB-24: an id stored between the two looks is resumed."""
    memory = ta.MemoryStore()

    class Late(SlowStore):
        async def open(self, session_id):
            try:
                return await memory.open(session_id)
            except ta.SessionNotFoundError as exc:
                missing = exc
            await stored(memory)
            raise missing

    async with runtime(store=Late(memory)) as rt, rt.open_agent("a", mode="either") as agent:
        assert agent.session.turn == 1


async def test_resume_waits_for_the_lock(autojump_clock) -> None:
    """PUB-24: `wait=True` waits inside the caller's scope until the other writer lets go."""
    memory = ta.MemoryStore()
    await stored(memory)
    async with runtime(store=memory) as first, runtime(store=memory) as second:
        async with first.open_agent("a", mode="resume"):
            with pytest.raises(ta.SessionBusyError):
                await second.agents.resume("a")
            with trio.move_on_after(5) as scope:
                await second.agents.resume("a", wait=True)
            assert scope.cancelled_caught

            async def let_go_later():
                await trio.sleep(3)

            start = trio.current_time()
            async with trio.open_nursery() as nursery:
                handles: list[ta.AgentHandle] = []

                async def wait():
                    handles.append(await second.agents.resume("a", wait=True))

                nursery.start_soon(wait)
                await let_go_later()
                assert handles == []
                [agent] = first.agents.list()
                for life in cast("list[Any]", first.loop.lives):
                    await life.dispose()
        assert handles[0].agent.id == agent.id
        assert 3 <= trio.current_time() - start <= 5


async def test_resume_all(autojump_clock) -> None:
    """PUB-24: an outcome per session; a passing storage error is tried again; one failing does not stop the rest."""
    memory = ta.MemoryStore()
    for id in ("a", "b", "c", "d"):
        await stored(memory, id)
    fails = {"b": 1, "c": 99}

    class Flaky(SlowStore):
        async def open(self, session_id):
            await trio.lowlevel.checkpoint()
            if fails.get(session_id, 0):
                fails[session_id] -= 1
                raise ta.StorageError("passing", session_id=session_id)
            return await memory.open(session_id)

    async with runtime(store=Flaky(memory)) as rt:
        live = await rt.agents.resume("d")
        outcomes = await rt.agents.resume_all(lambda summary: summary.header.id != "zzz")
        assert [(o.session_id, o.handle is not None, type(o.error).__name__) for o in outcomes] == [
            ("a", True, "NoneType"),
            ("b", True, "NoneType"),
            ("c", False, "StorageError"),
        ]
        assert rt.agents.get("d") is live.agent
        assert await rt.agents.resume_all(lambda summary: False) == []


async def test_the_lock_is_taken_in_the_commit_section() -> None:
    """PUB-25: a create in setup holds nothing; one that wrote nothing leaves nothing behind."""
    store = ta.MemoryStore()
    async with runtime(store=store) as rt, trio.open_nursery() as nursery:

        async def setup(agent):
            await hang()

        async def create():
            await rt.agents.create("a", setup=setup)

        nursery.start_soon(create)
        await wait_all_tasks_blocked()
        store.check_free("a")
        nursery.cancel_scope.cancel()
    async with runtime(store=store) as rt:
        handle = await rt.agents.create("a")
        with pytest.raises(ta.SessionBusyError):
            store.check_free("a")
        await handle.dispose()
        store.check_free("a")


async def test_options_come_from_the_log() -> None:
    """PUB-26: what is absent at `resume` comes from the last request header; cwd from the session's own."""
    store = ta.MemoryStore()
    options = ta.AgentOptions(model=MODEL, max_tokens=77, temperature=0.5, stop=("END",), cwd="/srv/work")
    async with runtime(store=store) as rt, rt.agents.open("a", options=options) as agent:
        await agent.ask("hello")
    async with runtime(store=store) as rt:
        assert ta.AgentOptions().cwd is None
        async with rt.agents.open("a", mode="resume") as agent:
            found = agent.options
            assert (found.model, found.max_tokens, found.temperature, found.stop, found.cwd) == (
                MODEL,
                77,
                0.5,
                ("END",),
                "/srv/work",
            )
        async with rt.agents.open("a", mode="resume", options=ta.AgentOptions(max_tokens=5)) as agent:
            assert (agent.options.model, agent.options.max_tokens) == (MODEL, 5)


# --- long logs ------------------------------------------------------------------------------------


async def _steps_of_others_during_a_resume(store: ta.SessionStore) -> int:
    """How often another task had its turn while a session was being resumed."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with runtime(store=store) as rt, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        handle = await rt.agents.resume("a")
        nursery.cancel_scope.cancel()
        assert len(handle.agent.session.messages()) == 6
        assert handle.agent.session.turn == 3
    return turns


async def test_others_have_their_turn_while_a_long_log_is_replayed(monkeypatch) -> None:
    """PUB-14: the loop is not held up by it, and the views that come of it are the same."""
    store = ta.MemoryStore()
    await stored(store, "a", "one", "two", "three")
    length = len((await store.inspect("a")).events)
    at_once = await _steps_of_others_during_a_resume(store)
    monkeypatch.setattr(_replay, "STRETCH", 3)
    assert await _steps_of_others_during_a_resume(store) >= at_once + length // 3 - 1


@pytest.mark.parametrize("who", ["caller", "owner"])
def test_a_resume_that_is_given_up_while_it_replays_leaves_the_session_free(
    monkeypatch, who, tmp_path
) -> None:
    """PUB-7, PUB-14: whoever gives it up, at whatever step: nothing is live, nothing locked, nothing lost."""
    monkeypatch.setattr(_replay, "STRETCH", 3)

    async def given_up_at(k: int) -> bool:
        store = ta.JsonlStore(tmp_path / str(k))
        await stored(store, "a", "one", "two", "three")
        async with runtime(store=store) as rt:
            async with rt.scope.open_child("owner") as owner:
                scope = trio.CancelScope()
                probe = AtStep(k, scope.cancel if who == "caller" else owner.close_soon)
                trio.lowlevel.add_instrument(probe)
                try:
                    with scope:
                        await owner.agents.resume("a")
                except (ta.CreationAbortedError, ta.ScopeClosedError):
                    assert who == "owner"
                finally:
                    trio.lowlevel.remove_instrument(probe)
            assert shows(rt) == "nothing"
            handle = await rt.agents.resume("a")
            assert len(handle.agent.session.messages()) == 6
        return probe.fired

    k = 1
    while trio.run(given_up_at, k):
        k += 1
    assert k > 10
