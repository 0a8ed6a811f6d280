"""Statements about all deliveries, inbox operations and interleavings (PROP-1 to PROP-4, PROP-11)."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

import trio_agents as ta
from tests.lifecycle.driving import Gates, World, calls, message, show
from tests.lifecycle.sweeping import check_log
from trio_agents.models import Reply, ScriptedModel
from trio_agents.session._pending import fold_pending
from trio_agents.values import (
    BlockEnd,
    BlockStart,
    Finish,
    MaxTokens,
    ReasoningDelta,
    Stop,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
)
from trio_agents.values._assembly import Assembly


def play(scenario: Callable[[World], Any], script: Any = (), **options: Any) -> None:
    """Run a scenario with one agent in a Trio of its own."""

    async def main() -> None:
        model = ScriptedModel(script)
        options.setdefault("model", "scripted/m")
        async with ta.open_runtime(models=[model], plugins=()) as runtime:
            async with runtime.open_agent("a", **options) as agent:
                await scenario(World(runtime, agent, model))
            check_log(agent.session.events, (), agent.inbox)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# --- the inbox against a model of two lists -------------------------------------------------------

IDS = [f"m{n}" for n in range(6)]
LANES = st.sampled_from(["next-turn", "next-step"])
WHERE = st.integers(-3, 8)

OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(IDS), LANES),
    st.tuples(st.just("prepend"), st.sampled_from(IDS), LANES),
    st.tuples(st.just("send"), st.sampled_from(IDS), LANES),
    st.tuples(st.just("replace"), st.sampled_from(IDS), st.sampled_from(IDS)),
    st.tuples(st.just("remove"), st.sampled_from(IDS)),
    st.tuples(st.just("move"), st.sampled_from(IDS)),
    st.tuples(st.just("splice"), LANES, WHERE, WHERE, st.lists(st.sampled_from(IDS), max_size=2)),
    st.tuples(st.just("claim"), LANES),
    st.tuples(st.just("clear")),
)


class Lists:
    """The model: two lists of ids, and what each operation does to them."""

    def __init__(self) -> None:
        self.lanes: dict[str, list[str]] = {"next-turn": [], "next-step": []}

    def all(self) -> list[str]:
        return self.lanes["next-step"] + self.lanes["next-turn"]

    def expect(self, operation: tuple[Any, ...]) -> bool:
        """Apply it, if it is legal; whether it was."""
        what, *rest = operation
        pending = self.all()
        if what in {"append", "prepend", "send"}:
            id, lane = rest
            if id in pending:
                return False
            self.lanes[lane].insert(0 if what == "prepend" else len(self.lanes[lane]), id)
        elif what == "replace":
            old, new = rest
            if old in pending:
                if new in pending and new != old:
                    return False
                lane = next(lane for lane in self.lanes.values() if old in lane)
                lane[lane.index(old)] = new
        elif what == "remove":
            for lane in self.lanes.values():
                if rest[0] in lane:
                    lane.remove(rest[0])
        elif what == "move":
            if rest[0] in self.lanes["next-turn"]:
                self.lanes["next-turn"].remove(rest[0])
                self.lanes["next-step"].append(rest[0])
        elif what == "splice":
            lane_name, start, count, inserted = rest
            lane = self.lanes[lane_name]
            start = max(0, len(lane) + start) if start < 0 else min(start, len(lane))
            count = min(max(0, count), len(lane) - start)
            staying = [id for id in pending if id not in lane[start : start + count]]
            if len(set(inserted)) != len(inserted) or set(inserted) & set(staying):
                return False
            lane[start : start + count] = inserted
        elif what == "claim":
            self.lanes["next-step"].clear()
            if rest[0] == "next-turn":
                del self.lanes["next-turn"][:1]
        else:
            self.lanes["next-step"].clear()
            self.lanes["next-turn"].clear()
        return True


def do(agent: ta.Agent, operation: tuple[Any, ...]) -> None:
    """Do it for real."""
    what, *rest = operation
    inbox = agent.inbox
    if what == "send":
        agent.send(message(rest[0]), target=rest[1], wake=False)
    elif what in {"append", "prepend"}:
        getattr(inbox, what)(message(rest[0]), rest[1])
    elif what == "replace":
        inbox.replace(rest[0], message(rest[1]))
    elif what == "remove":
        inbox.remove(rest[0])
    elif what == "move":
        inbox.move_to_next_step(rest[0])
    elif what == "splice":
        inbox.splice(rest[0], rest[1], rest[2], *map(message, rest[3]))
    elif what == "claim":
        inbox.claim(rest[0], 1)
    else:
        inbox.clear()


@given(operations=st.lists(OPERATIONS, max_size=30))
def test_any_operations_leave_the_lists_as_the_log_says(operations: list[tuple[Any, ...]]) -> None:
    """PROP-2: replay of the log after each equals the live lists, and both equal the model."""

    async def scenario(w: World) -> None:
        model = Lists()
        for operation in operations:
            before = len(w.agent.session.events)
            legal = model.expect(operation)
            if legal:
                do(w.agent, operation)
            else:
                with pytest.raises(ta.DuplicateMessageError):
                    do(w.agent, operation)
                assert len(w.agent.session.events) == before
            inbox = w.agent.inbox
            assert [m.id for m in inbox.next_turn] == model.lanes["next-turn"]
            assert [m.id for m in inbox.next_step] == model.lanes["next-step"]
            replayed = fold_pending(w.agent.session.events)
            assert replayed.next_turn == inbox.next_turn
            assert replayed.next_step == inbox.next_step
            assert len({m.id for m in (*inbox.next_turn, *inbox.next_step)}) == len(model.all())

    async def main() -> None:
        # Claims belong to turns; here they are made by hand, so only the lists are compared.
        async with ta.open_runtime(plugins=()) as runtime, runtime.open_agent("a") as agent:
            await scenario(World(runtime, agent, ScriptedModel()))

    trio.run(main)


def test_fifty_tasks_edit_at_random() -> None:
    """PROP-2, Q11: ten thousand operations."""
    chosen = random.Random(7)

    async def main() -> None:
        async with ta.open_runtime(plugins=()) as runtime, runtime.open_agent("a") as agent:
            replayed = fold_pending([])
            seen = 0

            async def edit(task: int) -> None:
                nonlocal seen
                ids = [f"t{task}-{n}" for n in range(3)]
                for _ in range(200):
                    operation = chosen.choice(
                        [
                            ("append", chosen.choice(ids), "next-turn"),
                            ("prepend", chosen.choice(ids), "next-step"),
                            ("replace", chosen.choice(ids), chosen.choice(ids)),
                            ("remove", chosen.choice(ids)),
                            ("move", chosen.choice(ids)),
                            ("claim", "next-turn"),
                        ]
                    )
                    with contextlib.suppress(ta.DuplicateMessageError):
                        do(agent, operation)
                    events = agent.session.events
                    for event in events[seen:]:
                        replayed.take(event)
                    seen = len(events)
                    assert replayed.next_turn == agent.inbox.next_turn
                    assert replayed.next_step == agent.inbox.next_step
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                for task in range(50):
                    nursery.start_soon(edit, task)

    trio.run(main)


# --- turns ----------------------------------------------------------------------------------------


@given(count=st.integers(1, 8), gaps=st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_a_burst_of_sends(count: int, gaps: list[int]) -> None:
    """PROP-1: turns 1..N, one message each, one running and one idle if nothing lies in between."""

    async def scenario(w: World) -> None:
        w.watch()
        for n in range(count):
            w.agent.send(message(f"m{n}"))
            for _ in range(gaps[n]):
                await trio.lowlevel.checkpoint()
        await w.agent.when_idle()
        assert [line for line in w.log if line.startswith("user")] == [f"user m{n}" for n in range(count)]
        assert w.ends == ["completed"] * count
        statuses = [line for line in w.notes() if line in {"running", "idle"}]
        assert statuses == ["running", "idle"] * (len(statuses) // 2)
        if not any(gaps):
            assert statuses == ["running", "idle"]

    play(scenario, Reply.text("ok"))


@given(
    deliveries=st.lists(
        st.tuples(st.sampled_from(["followup", "steer", "inject"]), st.integers(0, 6)), max_size=10
    )
)
def test_any_mix_of_deliveries(deliveries: list[tuple[str, int]]) -> None:
    """PROP-1: nothing is lost, doubled or reordered within its lane."""

    async def scenario(w: World) -> None:
        for n, (how, gap) in enumerate(deliveries):
            getattr(w.agent, how)(message(f"{how}{n}"))
            for _ in range(gap):
                await trio.lowlevel.checkpoint()
        w.agent.followup(message("last"))
        await w.agent.when_idle()
        shown = [e.data.id for e in w.agent.session.events if e.type == "user/message"]
        sent = [f"{how}{n}" for n, (how, _) in enumerate(deliveries)]
        for lane in (("followup",), ("steer", "inject")):
            assert [id for id in shown if id.startswith(lane)] == [id for id in sent if id.startswith(lane)]
        assert sorted(shown) == sorted([*sent, "last"])

    play(scenario, Reply.text("ok"))


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["followup", "steer", "inject"])),
    st.tuples(st.just("cancel"), st.booleans()),
    st.tuples(st.just("open"), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.just("step"), st.integers(1, 5)),
    st.tuples(st.just("sleep")),
    st.tuples(st.just("cancel tool"), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.just("wake")),
)


@given(actions=st.lists(ACTIONS, max_size=20), dispose=st.booleans())
def test_any_interleaving(actions: list[tuple[Any, ...]], dispose: bool) -> None:
    """PROP-3, PROP-4: brackets closed once, numbers dense, one result for each call, statuses alternating."""
    logging.disable(logging.CRITICAL)

    async def scenario(w: World) -> None:
        seen: list[str] = []
        w.agent.scope.on(ta.AgentStatusChanged, lambda payload: seen.append(payload.status))
        accepted = []
        for n, (what, *rest) in enumerate(actions):
            if what in {"followup", "steer", "inject"}:
                getattr(w.agent, what)(message(f"{what}{n}"))
                accepted.append(f"{what}{n}")
            elif what == "cancel":
                w.agent.cancel(keep_inbox=rest[0])
            elif what == "open":
                gates.open(rest[0])
            elif what == "cancel tool":
                w.agent.cancel_tool(rest[0])
            elif what == "wake":
                w.agent.wake()
            elif what == "sleep":
                await trio.sleep(1)
            else:
                for _ in range(rest[0]):
                    await trio.lowlevel.checkpoint()
        if not dispose:
            gates.open("a", "b", "c")
            await w.agent.when_idle()
            assert seen == ["running", "idle"] * (len(seen) // 2)
            check_log(w.agent.session.events, accepted, w.agent.inbox)

    def answer(request: Any) -> Reply:
        return calls("a", "b", "c") if request.step == 1 else Reply.text("done").delayed(0.5)

    gates = Gates()
    try:
        play(scenario, answer, tools=[gates.tool], max_parallel_tools=2)
    finally:
        logging.disable(logging.NOTSET)


# --- assembly -------------------------------------------------------------------------------------

BLOCKS = st.sampled_from([TextBlock(text="whole"), ToolCallBlock(id="c", name="n", arguments="{}")])
INDEX = st.integers(0, 2)
CHUNKS = st.one_of(
    st.builds(BlockStart, index=INDEX, block_type=st.sampled_from(["text", "tool-call", "reasoning", "odd"])),
    st.builds(TextDelta, index=INDEX, text=st.text(max_size=3)),
    st.builds(ReasoningDelta, index=INDEX, text=st.text(max_size=3)),
    st.builds(ToolCallDelta, index=INDEX, id=st.text(max_size=2), arguments_delta=st.text(max_size=3)),
    st.builds(BlockEnd, index=INDEX, block=BLOCKS),
    st.builds(Finish, reason=st.sampled_from([Stop(), MaxTokens()])),
)


@given(chunks=st.lists(CHUNKS, max_size=20))
def test_any_order_of_chunks(chunks: list[Any]) -> None:
    """PROP-11: never raises, the last finish wins, the first close of a block wins."""
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed(chunk)
    finishes = [chunk.reason for chunk in chunks if type(chunk) is Finish]
    assert assembly.finish == (finishes[-1] if finishes else None)
    closed: dict[int, Any] = {}
    order: list[int] = []
    for chunk in chunks:
        index = getattr(chunk, "index", None)
        if index is not None and index not in order:
            order.append(index)
        if type(chunk) is BlockEnd:
            closed.setdefault(chunk.index, chunk.block)
    cut = assembly.finish == MaxTokens()
    expected = [closed[n] for n in order if n in closed and not (cut and closed[n].tag == "tool-call")]
    found = list(assembly.blocks())
    assert [block for block in found if any(block is one for one in closed.values())] == expected
    assembly.interrupted_blocks()


def test_show_names_every_event() -> None:
    """The helper of these tests tells events apart."""
    event = ta.Event(type="turn/start", seq=0, time=1, data=type("T", (), {"turn": 3})())
    assert show(event) == "turn 3"
