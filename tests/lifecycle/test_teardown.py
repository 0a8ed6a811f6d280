"""How an agent ends: DIS."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from tests.lifecycle.stage import MODEL, OPTIONS, Recorder, hang, run, runtime, shows, text_of
from trio_agents.models import Gate, Reply, ScriptedModel
from trio_agents.values import DISPOSED

BORN = ["session/created a", "agent/created a", "agent/session-start a startup"]
GONE = ["agent/disposed a", "session/disposed a"]


class FlushStore:
    """A memory store whose writers are dirty: their last flush waits, fails, or is noted."""

    def __init__(self, note=None, *, error=None, gate=None) -> None:
        self._store = ta.MemoryStore()
        self.note = note or (lambda what: None)
        self.error = error
        self.gate = gate
        self.released = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def create(self, header, seed=()):
        return FlushWriter(self, self._store.create(header, seed))


class FlushWriter:
    """A writer of a `FlushStore`."""

    def __init__(self, store: FlushStore, writer) -> None:
        self.store = store
        self.writer = writer
        self.is_dirty = False

    def write(self, events, lines):
        self.writer.write(events, lines)
        self.is_dirty = True

    async def barrier(self):
        await self.writer.barrier()

    async def aclose(self):
        self.store.note("flush")
        try:
            if self.store.gate is not None:
                await self.store.gate.wait()
            await trio.lowlevel.checkpoint()
            if self.store.error is not None:
                raise self.store.error
        finally:
            self.abandon()

    def abandon(self):
        self.is_dirty = False
        self.store.released += 1
        self.writer.abandon()


async def test_the_order_of_a_teardown() -> None:
    """DIS-1: closers, idle, members newest first, contributions LIFO, agent, flush, session, released, return."""
    recorder: Recorder
    store = FlushStore(lambda what: recorder.add(what))  # noqa: PLW0108 - there is none yet
    async with runtime(Reply.hang(), store=store) as rt:
        recorder = Recorder(rt.scope)
        owner_holds = len(rt.scope._members or ())

        async def setup(agent):
            agent.scope.callback(recorder.add, "first callback")
            await agent.scope.enter_async_context(recorder.watched("context")())

            async def cleanup():
                await trio.lowlevel.checkpoint()
                recorder.add("last callback, awaited")

            agent.scope.callback(cleanup)

        handle = await rt.agents.create("a", setup=setup, options=OPTIONS)
        await handle.agent.scope.agents.create("old")
        await handle.agent.scope.agents.create("young")
        handle.agent.followup("go")
        await wait_all_tasks_blocked()
        assert handle.agent.status == "running"
        recorder.take()
        await handle.dispose()
        recorder.add("returned")
        assert recorder.take() == [
            "step/end a",
            "turn/end a aborted(disposed)",
            "agent/status a idle",
            "agent/disposed young",
            "session/disposed young",
            "agent/disposed old",
            "session/disposed old",
            "last callback, awaited",
            "leave context",
            "first callback",
            "agent/disposed a",
            "flush",
            "session/disposed a",
            "returned",
        ]
        assert len(rt.scope._members or ()) == owner_holds
        assert rt.loop.lives == []


async def test_members_are_all_asked_before_any_is_waited_for() -> None:
    """DIS-1: two children with a slow clean-up end together, not one after the other."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope)
        parent = await rt.agents.create("a")
        gate = trio.Event()

        def setup_for(name):
            async def cleanup():
                recorder.add(f"cleanup {name}")
                await gate.wait()

            return lambda agent: agent.scope.callback(cleanup) and None

        await parent.agent.scope.agents.create("one", setup=setup_for("one"))
        await parent.agent.scope.agents.create("two", setup=setup_for("two"))
        recorder.take()
        parent.dispose_soon()
        await wait_all_tasks_blocked()
        assert sorted(recorder.take()) == ["cleanup one", "cleanup two"]
        gate.set()
        await parent.dispose()
        ended = [line for line in recorder.take() if line.startswith("agent/disposed")]
        assert sorted(ended[:2]) == ["agent/disposed one", "agent/disposed two"]
        assert ended[2:] == ["agent/disposed a"]


@pytest.mark.parametrize("order", list(itertools.permutations(["dispose", "owner", "loop"])))
@pytest.mark.parametrize("busy", [False, True])
async def test_racing_ends(order, busy: bool) -> None:
    """DIS-2: dispose, owner close and factory close in any order run one sequence; each waits for its end."""
    async with runtime(Reply.hang()) as rt:
        recorder = Recorder(rt.scope, events=["turn/end"])
        gate = trio.Event()

        async def cleanup():
            await gate.wait()
            recorder.add("clean-up")

        async with rt.scope.open_child("owner") as owner:
            handle = await owner.agents.create(
                "a", options=OPTIONS, setup=lambda a: a.scope.callback(cleanup) and None
            )
            if busy:
                handle.agent.followup("go")
                await wait_all_tasks_blocked()
            recorder.take()
            ends = {"dispose": handle.dispose, "owner": owner.aclose, "loop": rt.loop.aclose}

            async def end(which):
                await ends[which]()
                recorder.add(f"{which} returned")

            async with trio.open_nursery() as nursery:
                for which in order:
                    nursery.start_soon(end, which)
                    await wait_all_tasks_blocked()
                assert not any("returned" in line for line in recorder.seen)
                gate.set()
        told = recorder.take()
        running = ["turn/end a aborted(disposed)", "agent/status a idle"] if busy else []
        assert told[:-3] == [*running, "clean-up", *GONE]
        assert sorted(told[-3:]) == ["dispose returned", "loop returned", "owner returned"]
        await handle.dispose()
        assert recorder.take() == []


async def test_a_cancelled_waiter_changes_nothing() -> None:
    """DIS-2: it gets Cancelled; the others still share the one end."""
    async with runtime() as rt:
        gate = trio.Event()
        handle = await rt.agents.create("a", setup=lambda a: a.scope.callback(gate.wait) and None)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(handle.dispose)
                await wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert shows(rt) == "agent+session"
        gate.set()
        await handle.dispose()
        assert shows(rt) == "nothing"


async def test_each_waiter_gets_its_own_error() -> None:
    """DIS-2, DIS-8: a failed teardown gives each a `TeardownError` with the cause; a later dispose returns."""
    async with runtime() as rt:
        cause = LookupError("clean-up")
        gate = trio.Event()

        async def cleanup():
            await gate.wait()
            raise cause

        errors: list[BaseException] = []

        async with rt.scope.open_child("owner") as owner:
            handle = await owner.agents.create("a", setup=lambda a: a.scope.callback(cleanup) and None)

            async def wait(end):
                try:
                    await end()
                except ta.TeardownError as exc:
                    errors.append(exc)

            async with trio.open_nursery() as nursery:
                for end in (handle.dispose, handle.dispose, owner.aclose):
                    nursery.start_soon(wait, end)
                await wait_all_tasks_blocked()
                gate.set()
            assert len(errors) == 3
            assert len({id(exc) for exc in errors}) == 3
            direct = [exc.__cause__ for exc in errors if exc.__cause__ is cause]
            assert len(direct) == 2
            [through_owner] = [exc for exc in errors if exc.__cause__ is not cause]
            assert through_owner.__cause__ is not None
            assert through_owner.__cause__.__cause__ is cause
            await handle.dispose()
            await owner.aclose()
        assert shows(rt) == "nothing"


async def test_an_owner_hears_of_a_failure_that_was_over_before_it_looked() -> None:
    """DIS-2: the owner waits for every member from its asking on, whichever it settles first."""
    async with runtime() as rt:
        gate = trio.Event()

        async def fails():
            raise LookupError("quick")

        with pytest.raises(ta.TeardownError, match="quick"):  # noqa: PT012 - the block is the point
            async with rt.scope.open_child("owner") as owner:
                await owner.agents.create("a", setup=lambda a: a.scope.callback(fails) and None)
                await owner.agents.create("b", setup=lambda a: a.scope.callback(gate.wait) and None)
                owner.close_soon()
                await wait_all_tasks_blocked()
                assert shows(rt, "a") == "nothing"
                gate.set()


@pytest.mark.parametrize("which", ["handle", "scope"])
async def test_requests_from_listeners(which: str) -> None:
    """DIS-2: `dispose_soon` and `close_soon` only request, so a listener may use them."""
    async with runtime() as rt:
        recorder = Recorder(rt.scope, events=["turn/start", "turn/end"])
        async with rt.scope.open_child("owner") as owner:
            handle = await owner.agents.create("a", options=OPTIONS)
            recorder.take()

            def end(told):
                (handle.dispose_soon if which == "handle" else owner.close_soon)()

            rt.scope.on(ta.InboxInserted, end)
            handle.agent.followup("go")
            await handle.dispose()
        assert recorder.take()[-2:] == GONE
        assert shows(rt) == "nothing"


async def test_ids_stay_taken_until_the_scope_has_closed() -> None:
    """DIS-3: both registries return the old pair; a same-id create fails, and succeeds afterwards."""
    async with runtime() as rt:
        gate = trio.Event()
        handle = await rt.agents.create("a", setup=lambda a: a.scope.callback(gate.wait) and None)
        handle.dispose_soon()
        await wait_all_tasks_blocked()
        assert rt.agents.get("a") is handle.agent
        assert rt.sessions.get("a") is handle.agent.session
        with pytest.raises(ta.AgentExistsError):
            await rt.agents.create("a")
        gate.set()
        await handle.dispose()
        assert shows(rt) == "nothing"
        await rt.agents.create("a")


async def test_disposed_mid_stream() -> None:
    """DIS-4: one turn/end, running then idle, the stream gets Cancelled, queued messages never start."""
    gate = Gate()
    async with runtime(Reply.text("never").gated(gate)) as rt:
        recorder = Recorder(rt.scope, events=["turn/start", "turn/end"])
        handle = await rt.agents.create("a", options=OPTIONS)

        handle.agent.followup("one")
        receipt = handle.agent.followup("two")
        await gate.reached.wait()
        await handle.dispose()
        assert recorder.take()[3:] == [
            "agent/status a running",
            "turn/start a",
            "turn/end a aborted(disposed)",
            "agent/status a idle",
            *GONE,
        ]
        assert (await receipt.settled()).outcome == "kept"


async def test_disposed_during_a_model_lookup() -> None:
    """DIS-4: the lookup is settled before dispose returns, and there is no `request/header`."""

    class Slow:
        provider = "slow"
        settled = False
        reached = trio.Event()

        async def info(self, model):
            self.reached.set()
            try:
                await hang()
            finally:
                self.settled = True

        async def stream(self, request, emit):
            raise AssertionError("no request")

    slow = Slow()
    async with ta.open_runtime(models=[slow], plugins=()) as rt:
        handle = await rt.agents.create("a", options=ta.AgentOptions(model="slow/m"))
        handle.agent.followup("go")
        await slow.reached.wait()
        await handle.dispose()
        assert slow.settled
        assert handle.agent.session.request_header() is None


@pytest.mark.parametrize("discard", [False, True])
async def test_pending_input(discard: bool) -> None:
    """DIS-5: kept and parked for a resume, receipts settle as kept; or recorded as cancelled before the activity is."""
    async with runtime(Reply.hang()) as rt:
        recorder = Recorder(rt.scope, events=["turn/end"])
        rt.scope.on(ta.InboxDiscarded, lambda told: recorder.add("discarded", text_of(told.message)))
        handle = await rt.agents.create("a", options=OPTIONS)
        first = handle.agent.followup("first")
        await wait_all_tasks_blocked()
        second = handle.agent.followup("second")
        recorder.take()
        await handle.dispose(discard_inbox=discard)
        closing = ["turn/end a aborted(disposed)", "agent/status a idle", *GONE]
        assert recorder.take() == (["discarded second", *closing] if discard else closing)
        assert (await first.settled()).outcome == "claimed"
        assert (await second.settled()).outcome == ("discarded" if discard else "kept")
        resumed = await rt.agents.resume("a")
        assert [text_of(m) for m in resumed.agent.inbox.next_turn] == ([] if discard else ["second"])
        await wait_all_tasks_blocked()
        assert resumed.agent.status == "idle"


async def test_a_claimed_batch_returns() -> None:
    """DIS-5: what was claimed and entered no step is pending again after the teardown."""
    async with runtime() as rt:

        async def stuck(proposal, proceed):
            await hang()

        rt.scope.on(ta.PreStep, stuck)
        handle = await rt.agents.create("a", options=OPTIONS)
        receipt = handle.agent.followup("claimed")
        await wait_all_tasks_blocked()
        await handle.dispose()
        assert (await receipt.settled()).outcome == "returned"
        resumed = await rt.agents.resume("a")
        assert [text_of(m) for m in resumed.agent.inbox.next_turn] == ["claimed"]


async def test_nothing_is_taken_after_the_teardown_began() -> None:
    """DIS-6: also from status and disposed listeners; after `dispose` returned nothing is appended."""
    async with runtime(Reply.hang()) as rt:
        refused = []
        handle = await rt.agents.create("a", options=OPTIONS)
        agent = handle.agent

        def deliver(told):
            for act in (lambda: agent.followup("x"), agent.wake, lambda: agent.inject("x")):
                try:
                    act()
                except ta.AgentClosedError:
                    refused.append(type(told).__name__)

        agent.followup("go")
        await wait_all_tasks_blocked()
        rt.scope.on(ta.AgentStatusChanged, deliver)
        rt.scope.on(ta.AgentDisposed, deliver)
        rt.scope.on(ta.SessionDisposed, deliver)
        await handle.dispose()
        assert refused == ["AgentStatusChanged"] * 3 + ["AgentDisposed"] * 3 + ["SessionDisposed"] * 3
        count = len(agent.session.events)
        deliver(None)
        with pytest.raises(ta.SessionClosedError):
            cast("Any", agent).pen.append(ta.UserMessage.from_text("x"))
        assert len(agent.session.events) == count
        assert agent.session.is_closed


@pytest.mark.parametrize("what", ["clean-up", "flush", "both"])
@pytest.mark.parametrize("strict", [True, False])
def test_failures_strand_nothing(what: str, strict: bool) -> None:
    """DIS-8, DIS-17: detached, released, ids free; the first failure is the cause, a later one a note on it."""

    async def main() -> None:
        flush_error = ta.StorageError("flush") if what != "clean-up" else None
        store = FlushStore(error=flush_error)
        async with runtime(store=store) as rt:
            recorder = Recorder(rt.scope)
            error = LookupError("clean-up")

            def cleanup():
                if what != "flush":
                    raise error

            def setup(agent):
                agent.scope.callback(cleanup)

            handle = await rt.agents.create("a", setup=setup, options=OPTIONS)
            handle.agent.inject("makes the log dirty")
            recorder.take()
            with pytest.raises(ta.TeardownError) as caught:
                await handle.dispose()
            assert caught.value.__cause__ is (flush_error if what == "flush" else error)
            if what == "both":
                assert "flush" in "".join(error.__notes__)
            assert recorder.take() == GONE
            assert shows(rt) == "nothing"
            assert store.released == 1
            assert rt.loop.lives == []
            await handle.dispose()
            await rt.agents.resume("a")

    run(main, strict=strict)


async def test_the_loops_close_ends_every_agent() -> None:
    """DIS-9: whoever owns it, before it returns; their handles' later `dispose` returns normally."""
    async with runtime() as rt, rt.scope.open_child("one") as one, rt.scope.open_child("two") as two:
        handles = [await owner.agents.create() for owner in (rt.scope, one, two, one)]
        await rt.loop.aclose()
        assert rt.agents.list() == []
        for handle in handles:
            await handle.dispose()
        await rt.loop.aclose()


async def test_a_childs_teardown_lies_inside_the_parents() -> None:
    """DIS-10: after the parent is idle and before its `agent/disposed`."""
    async with runtime(Reply.hang(), Reply.hang()) as rt:
        recorder = Recorder(rt.scope, events=["turn/end"])
        parent = await rt.agents.create("a", options=OPTIONS)
        child = await parent.agent.scope.agents.create("child", options=OPTIONS)
        for agent in (parent.agent, child.agent):
            agent.followup("go")
        await wait_all_tasks_blocked()
        recorder.take()
        await parent.dispose()
        assert recorder.take() == [
            "turn/end a aborted(disposed)",
            "agent/status a idle",
            "turn/end child aborted(disposed)",
            "agent/status child idle",
            "agent/disposed child",
            "session/disposed child",
            *GONE,
        ]


async def test_a_child_in_setup_fails() -> None:
    """DIS-10: with "owner closed during setup"."""
    async with runtime() as rt:
        parent = await rt.agents.create("a")
        errors = []

        async def create():
            async def setup(agent):
                await hang()

            try:
                await parent.agent.scope.agents.create("child", setup=setup)
            except ta.CreationAbortedError as exc:
                errors.append(str(exc))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await wait_all_tasks_blocked()
            await parent.dispose()
        assert len(errors) == 1
        assert "owner closed during setup" in errors[0]


async def test_drain(autojump_clock) -> None:
    """DIS-11: deliveries are stored, not started; turns in time complete, others end aborted; pending is kept."""
    store = ta.MemoryStore()
    script = {"quick": Reply.text("done").delayed(1), "slow": Reply.text("late").delayed(100)}
    model = ScriptedModel(lambda request: script[request.session_id])
    async with ta.open_runtime(store=store, models=[model], plugins=()) as rt:
        recorder = Recorder(rt.scope, events=["turn/start", "turn/end"])
        quick = (await rt.agents.create("quick", options=OPTIONS)).agent
        slow = (await rt.agents.create("slow", options=OPTIONS)).agent
        quick.followup("go")
        slow.followup("go")
        await trio.sleep(0.5)
        recorder.take()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rt.drain, 5)
            await trio.sleep(0.1)
            quick.followup("stored")
            slow.followup("stored")
            (await rt.agents.create("fresh", options=OPTIONS)).agent.followup("stored")
        assert trio.current_time() - start == pytest.approx(5)
        told = [
            line
            for line in recorder.take()
            if not line.startswith(("session/", "agent/created", "agent/session"))
        ]
        assert told == [
            "turn/end quick completed",
            "agent/status quick idle",
            "turn/end slow aborted(disposed)",
            "agent/status slow idle",
        ]
        assert [len(agent.inbox.next_turn) for agent in rt.agents.list()] == [1, 1, 1]
    async with runtime(store=store) as rt, rt.open_agent("slow", mode="resume", model=MODEL) as agent:
        agent.wake()
        await agent.when_idle()
        assert not agent.inbox.has_pending


@pytest.mark.parametrize("grace", [-1, True, "5", float("nan")])
async def test_drain_wants_seconds(grace) -> None:
    """DIS-11: anything else is refused before anything is stopped."""
    async with runtime() as rt:
        with pytest.raises(ta.UsageError, match="grace"):
            await rt.drain(grace)
        async with rt.open_agent(model=MODEL) as agent:
            await agent.ask("still works")


@pytest.mark.parametrize("where", ["tool", "hook", "stream"])
async def test_dispose_from_inside(where: str) -> None:
    """DIS-12: the request stands; the caller is cancelled at its next checkpoint and the teardown completes."""
    holder: list[ta.AgentHandle] = []
    seen: list[str] = []

    async def end_it():
        try:
            await holder[0].dispose()
        except trio.Cancelled:
            seen.append("cancelled")
            raise
        seen.append("returned")

    @ta.tool
    async def quit_() -> str:
        """End yourself."""
        await end_it()
        return "?"

    class Ending(ScriptedModelLike):
        async def stream(self, request, emit):
            await end_it()

    script = ScriptedModel([Reply.tool_call("quit_"), "?"])
    models = [Ending() if where == "stream" else script]
    async with ta.open_runtime(models=models, plugins=()) as rt:
        if where == "hook":

            async def hook(proposal, proceed):
                await end_it()

            rt.scope.on(ta.PreStep, hook)
        handle = await rt.agents.create("a", options=ta.AgentOptions(model=MODEL, tools=[quit_]))
        holder.append(handle)
        handle.agent.followup("go")
        await wait_all_tasks_blocked()
        await handle.dispose()
        assert seen == ["cancelled"]
        assert handle.agent.session.events[-1].data.reason.reason == DISPOSED


class ScriptedModelLike:
    """An adapter under the scripted model's name."""

    provider = "scripted"

    async def info(self, model):
        await trio.lowlevel.checkpoint()
        return ta.models.ModelInfo()


async def test_dispose_from_inside_a_shield() -> None:
    """DIS-12: it cannot wait for itself: `ReentrantWaitError`, and the teardown goes on."""
    seen: list[str] = []
    holder: list[ta.AgentHandle] = []

    @ta.tool
    async def quit_() -> str:
        """End yourself."""
        with trio.CancelScope(shield=True):
            for end in (holder[0].dispose, holder[0].aclose):
                with pytest.raises(ta.ReentrantWaitError):
                    await end()
                seen.append("refused")
        return "?"

    async with runtime(Reply.tool_call("quit_"), "?") as rt:
        handle = await rt.agents.create("a", options=ta.AgentOptions(model=MODEL, tools=[quit_]))
        holder.append(handle)
        handle.agent.followup("go")
        await wait_all_tasks_blocked()
        assert seen == ["refused", "refused"]
        assert shows(rt) == "nothing"


async def test_a_clean_up_that_disposes_its_own_agent() -> None:
    """DIS-12: a clean-up, an exiting context: the agent waits for them, so they cannot wait for it."""
    async with runtime() as rt:
        seen: list[str] = []
        holder: list[ta.AgentHandle] = []

        async def end(what):
            with pytest.raises(ta.ReentrantWaitError):
                await holder[0].dispose()
            seen.append(what)

        class Context:
            async def __aenter__(self):
                await trio.lowlevel.checkpoint()

            async def __aexit__(self, *details):
                await end("context")  # noqa: ASYNC102 - the test means it

        async def setup(agent):
            await agent.scope.enter_async_context(Context())
            agent.scope.callback(end, "callback")

        holder.append(await rt.agents.create("a", setup=setup))
        await holder[0].dispose()
        assert seen == ["callback", "context"]


async def test_trio_cancels_the_owners_block() -> None:
    """DIS-13: translated at the block's exit: cause disposed, closers, teardown, then Cancelled goes on."""
    store = ta.MemoryStore()
    async with runtime(Reply.hang(), store=store) as rt:
        recorder = Recorder(rt.scope)
        with trio.CancelScope() as scope:
            async with rt.open_agent("a", model=MODEL) as agent:
                agent.followup("go")
                await wait_all_tasks_blocked()
                recorder.take()
                scope.cancel()
                await hang()
        assert scope.cancelled_caught
        assert recorder.take() == ["step/end a", "turn/end a aborted(disposed)", "agent/status a idle", *GONE]
    assert (await store.verify("a")).problems == ()


async def test_the_runtime_crashes() -> None:
    """DIS-13: a KeyboardInterrupt out of a tool: the driver writes its closers; the interrupt itself is raised."""
    store = ta.MemoryStore()

    @ta.tool
    async def interrupted() -> str:
        """Be interrupted."""
        raise KeyboardInterrupt("in a tool")

    script = ScriptedModel(
        lambda request: Reply.tool_call("interrupted") if request.session_id == "a" else Reply.hang()
    )
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt, match="in a tool"):  # noqa: PT012 - the block is the point
        async with ta.open_runtime(store=store, models=[script], plugins=()) as rt:
            recorder = Recorder(rt.scope, events=["turn/end"])
            recorder.seen = told
            other = await rt.agents.create("other", options=OPTIONS)
            other.agent.followup("go")
            await wait_all_tasks_blocked()
            told.clear()
            one = await rt.agents.create("a", options=ta.AgentOptions(model=MODEL, tools=[interrupted]))
            one.agent.followup("go")
            await hang()
    assert "turn/end a aborted(disposed)" in told
    assert "turn/end other aborted(disposed)" in told
    assert sorted(told[-4:]) == [
        "agent/disposed a",
        "agent/disposed other",
        "session/disposed a",
        "session/disposed other",
    ]
    for id in ("a", "other"):
        assert (await store.verify(id)).problems == ()
        assert (await store.inspect(id)).status == "closed"


async def test_no_task_after_the_runtime_is_left() -> None:
    """DIS-14: the store's worker ends last, after the final events of every agent are stored."""
    order: list[str] = []

    class Watched(FlushStore):
        async def serve(self, *, task_status=trio.TASK_STATUS_IGNORED):
            try:
                await self._store.serve(task_status=task_status)
            finally:
                order.append("worker")

    store = Watched(order.append)
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with runtime(Reply.hang(), store=store) as rt:
        for id in ("a", "b"):
            handle = await rt.agents.create(id, options=OPTIONS)
            handle.agent.followup("go")
            handle.agent.scope.start_soon(hang)
        await wait_all_tasks_blocked()
    assert order == ["flush", "flush", "worker"]
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    for id in ("a", "b"):
        assert (await store.inspect(id)).status == "closed"


@pytest.mark.parametrize("how", ["open", "handle", "aclose"])
async def test_block_exits_wait_shielded(how: str, autojump_clock) -> None:
    """DIS-15: a timeout around the block never leaves the agent behind; a bare dispose is a cancellable wait."""
    async with runtime() as rt:

        async def cleanup():
            await trio.sleep(3)

        def setup(agent):
            agent.scope.callback(cleanup)

        start = trio.current_time()
        with trio.move_on_after(1) as scope:
            if how == "open":
                async with rt.agents.open("a", setup=setup):
                    await hang()
            elif how == "handle":
                async with await rt.agents.create("a", setup=setup):
                    await hang()
            else:
                handle = await rt.agents.create("a", setup=setup)
                try:
                    await hang()
                finally:
                    await handle.aclose()
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(4)
        assert shows(rt) == "nothing"
        handle = await rt.agents.create("a", setup=setup)
        with trio.move_on_after(1):
            await handle.dispose()
        assert shows(rt) == "agent+session"


@pytest.mark.parametrize("what", ["tool", "context", "callback", "task"])
async def test_the_end_of_the_grace(what: str, autojump_clock, caplog) -> None:
    """DIS-16: code that shields itself is named, loses its right to write, and the teardown goes on."""
    over = trio.Event()

    @ta.tool
    async def stubborn() -> str:
        """Shield yourself."""
        with trio.CancelScope(shield=True):
            await over.wait()
        return "too late"

    async def shielded():
        with trio.CancelScope(shield=True):
            await over.wait()

    class Context:
        async def __aenter__(self):
            await trio.lowlevel.checkpoint()

        async def __aexit__(self, *details):
            await shielded()  # noqa: ASYNC102 - the test means it

    async with runtime(Reply.tool_call("stubborn"), "?") as rt:

        async def setup(agent):
            if what == "context":
                await agent.scope.enter_async_context(Context())
            elif what == "callback":
                agent.scope.callback(shielded)
            elif what == "task":
                agent.scope.start_soon(shielded)

        options = ta.AgentOptions(model=MODEL, tools=[stubborn], grace=10)
        handle = await rt.agents.create("a", setup=setup, options=options)
        if what == "tool":
            handle.agent.followup("go")
        await wait_all_tasks_blocked()
        start = trio.current_time()
        with pytest.raises(ta.TeardownError) as caught:
            await handle.dispose()
        assert 10 <= trio.current_time() - start <= 12
        assert isinstance(caught.value.__cause__, TimeoutError)
        assert {"tool": "stubborn", "context": "Context", "callback": "shielded", "task": "shielded"}[
            what
        ] in str(caught.value)
        assert shows(rt) == "nothing"
        count = len(handle.agent.session.events)
        if what == "tool":
            assert handle.agent.session.events[-1].type == "turn/end"
        over.set()
        await wait_all_tasks_blocked()
        assert len(handle.agent.session.events) == count
        caplog.clear()


async def test_what_overstays_without_a_shield_is_cancelled(autojump_clock, caplog) -> None:
    """DIS-16: at the end of the grace what still runs is cancelled."""
    async with runtime() as rt:
        seen = []

        async def cleanup():
            try:
                await hang()
            except trio.Cancelled:
                seen.append("cancelled")
                raise

        handle = await rt.agents.create(
            "a", setup=lambda a: a.scope.callback(cleanup) and None, options=ta.AgentOptions(grace=2)
        )
        start = trio.current_time()
        with pytest.raises(ta.TeardownError, match="grace"):
            await handle.dispose()
        assert trio.current_time() - start == pytest.approx(2)
        assert seen == ["cancelled"]


async def test_the_bodys_error_wins() -> None:
    """DIS-17: over the teardown's, which becomes a note on it; without one the teardown's is raised."""
    async with runtime() as rt:

        def fails():
            raise ValueError("teardown")

        def setup(agent):
            agent.scope.callback(fails)

        with pytest.raises(LookupError, match="body") as caught:
            async with rt.agents.open("a", setup=setup):
                raise LookupError("body")
        assert "teardown" in "".join(caught.value.__notes__)
        with pytest.raises(ta.TeardownError, match="teardown"):
            async with rt.agents.open("a", mode="create", setup=setup):
                pass


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("what", ["body", "body and clean-up", "group", "listener", "plugin", "crash"])
def test_callers_get_one_plain_exception(what: str, strict: bool) -> None:
    """DIS-17, ERR-10: out of a runtime's block, under both settings of Trio's strict exception groups."""
    error: BaseException = ExceptionGroup("the user's own", [LookupError("one"), ValueError("two")])
    if what != "group":
        error = KeyboardInterrupt("mine") if what == "crash" else LookupError("mine")

    def fail(*told: object) -> None:
        raise error

    @ta.tool
    async def crash() -> str:
        """Be interrupted."""
        raise error

    async def main() -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        caught: BaseException | None = None
        plugins = [fail] if what == "plugin" else []
        model = ScriptedModel(Reply.tool_call("crash"))
        try:
            async with ta.open_runtime(models=[model], plugins=plugins) as rt:
                if what == "listener":
                    rt.scope.on(ta.AgentCreated, fail)
                handle = await rt.agents.create("a", options=ta.AgentOptions(model=MODEL, tools=[crash]))
                if what == "body and clean-up":
                    handle.agent.scope.callback(lambda: 1 / 0)
                if what == "crash":
                    handle.agent.followup("go")
                    await hang()
                fail()
        except BaseException as exc:  # noqa: ASYNC103 - the test means it
            caught = exc
        assert caught is error
        notes = "".join(getattr(caught, "__notes__", []))
        assert ("ZeroDivisionError" in notes) is (what == "body and clean-up")
        assert trio.lowlevel.current_statistics().tasks_living == tasks

    run(main, strict=strict)
