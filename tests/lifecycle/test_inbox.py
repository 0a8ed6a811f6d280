"""The inbox: splices, claims, returns, moves, and what the log says of each (INB)."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.driving import Gates, Refusal, calls, message, settle, show, store_of, world
from trio_agents.errors import DuplicateMessageError, MessageError, SessionCorruptError
from trio_agents.models import Reply
from trio_agents.session import InboxSpliced
from trio_agents.values import GoalSource, ImageBlock, ToolCallBlock


async def test_observers_still_see_the_lists_before_the_splice(autojump_clock) -> None:
    """INB-1"""
    async with world() as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        inbox.append(message("y"))
        seen: list[list[str]] = []

        def observe(event: ta.Event) -> None:
            data = event.data
            assert isinstance(data, InboxSpliced)
            lane = inbox.next_turn if data.target == "next-turn" else inbox.next_step
            gone = lane[data.start : data.start + (data.removed_count or 0)]
            seen.append([m.text for m in gone])

        w.agent.session.observe(observe)
        inbox.remove("x")
        assert seen == [["x"]]
        assert w.pending() == ([], ["y"])


async def test_a_refused_append_changes_nothing(autojump_clock) -> None:
    """INB-2"""
    async with world(["never"]) as w:
        w.watch()
        refusal = Refusal(w.agent)
        refusal.types = {"*"}
        with pytest.raises(ta.StorageError):
            w.agent.followup("x")
        for change in (lambda: w.agent.inbox.append(message("y")), lambda: w.agent.steer("z")):
            with pytest.raises(ta.StorageError):
                change()
        await settle()
        assert w.seen == []
        assert w.log == []
        assert w.pending() == ([], [])
        assert w.agent.status == "idle"
        refusal.types = set()


async def test_an_id_is_pending_once_over_both_lists(autojump_clock) -> None:
    """INB-3"""
    async with world() as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        before = len(w.agent.session.events)
        for attempt in (
            lambda: inbox.append(message("x")),
            lambda: inbox.append(message("x"), "next-step"),
            lambda: inbox.prepend(message("x"), "next-step"),
            lambda: inbox.splice("next-step", 0, 0, message("x")),
            lambda: inbox.splice("next-step", 0, 0, message("y"), message("y")),
            lambda: w.agent.followup(message("x")),
            lambda: w.agent.inject(message("x")),
        ):
            with pytest.raises(DuplicateMessageError, match="already pending"):
                attempt()
        inbox.append(message("z"))
        with pytest.raises(DuplicateMessageError, match="already pending"):
            inbox.replace("z", message("x"))
        assert len(w.agent.session.events) == before + 1
        assert inbox.remove("x")
        inbox.append(message("x"), "next-step")
        assert w.pending() == (["x"], ["z"])


async def test_a_claim_takes_next_step_then_one_of_next_turn(autojump_clock) -> None:
    """INB-4"""
    async with world() as w:
        inbox = w.agent.inbox
        for name in ("a", "b"):
            inbox.append(message(name), "next-step")
        for name in ("x", "y"):
            inbox.append(message(name))
        w.watch()
        claim = inbox.claim("next-turn", 3)
        assert [m.text for m in claim.messages] == ["a", "b", "x"]
        assert w.seen == [
            "step[0] -2 claim", "claimed a by 3", "claimed b by 3", "turn[0] -1 claim", "claimed x by 3",
        ]  # fmt: skip
        w.seen.clear()
        inbox.append(message("c"), "next-step")
        assert [m.text for m in inbox.claim("next-step", 3).messages] == ["c"]
        assert w.pending() == ([], ["y"])
        w.seen.clear()
        assert inbox.claim("next-step", 3).messages == ()
        assert w.seen == []


async def test_clear_and_a_second_clear(autojump_clock) -> None:
    """INB-5"""
    async with world() as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        inbox.append(message("y"))
        inbox.append(message("a"), "next-step")
        w.watch()
        inbox.clear()
        assert w.seen == [
            "step[0] -1 canceled", "discarded a", "turn[0] -2 canceled", "discarded x", "discarded y",
        ]  # fmt: skip
        inbox.clear()
        assert len(w.seen) == 5


async def test_replace_is_one_splice_in_place(autojump_clock) -> None:
    """INB-6"""
    async with world() as w:
        inbox = w.agent.inbox
        for name in ("x", "y", "z"):
            inbox.append(message(name))
        w.watch()
        assert inbox.replace("y", message("new"))
        assert w.seen == ["turn[1] -1 canceled +new", "discarded y", "inserted new"]
        assert inbox.replace("new", message("same id", "new"))
        assert w.pending() == ([], ["x", "same id", "z"])


async def test_what_is_not_pending_is_not_changed(autojump_clock) -> None:
    """INB-7"""
    async with world(["answer"]) as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        w.watch()
        assert inbox.remove("x")
        assert w.seen == ["turn[0] -1 canceled", "discarded x"]
        await w.agent.ask(message("claimed"))
        before = len(w.agent.session.events)
        for id in ("unknown", "x", "claimed"):
            assert inbox.remove(id) is False
            assert inbox.replace(id, message("other")) is False
            assert inbox.move_to_next_step(id) is False
        assert len(w.agent.session.events) == before


async def test_a_move_is_two_splices_in_one_section(autojump_clock) -> None:
    """INB-8"""
    async with world() as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        inbox.append(message("y"))
        inbox.append(message("a"), "next-step")
        w.watch()
        assert inbox.move_to_next_step("x")
        assert w.seen == ["turn[0] -1 moved", "step[1] +x", "inserted x"]
        assert w.pending() == (["a", "x"], ["y"])
        assert inbox.move_to_next_step("x") is False
        assert len(w.seen) == 3


async def test_a_half_written_move_is_completed_by_the_repair(autojump_clock) -> None:
    """INB-8"""
    store = ta.MemoryStore()
    async with world(store=store) as w:
        w.agent.inbox.append(message("x"))
        w.agent.inbox.move_to_next_step("x")
        events = list(w.agent.session.events)
    half = await store_of(events[:-1])
    async with world(store=half, mode="resume") as w:
        assert w.pending() == (["x"], [])
        assert w.log[:3] == ["turn[0] +x", "turn[0] -1 moved", "step[0] +x"]


async def test_the_log_alone_tells_what_a_removal_was(autojump_clock) -> None:
    """INB-9"""
    async with world(["answer"]) as w:
        inbox = w.agent.inbox
        for name in ("removed", "replaced", "moved", "cleared"):
            inbox.append(message(name))
        inbox.remove("removed")
        inbox.replace("replaced", message("put"))
        inbox.move_to_next_step("moved")
        inbox.clear()
        await w.agent.ask(message("claimed"))
        removals = [line for line in w.log if "] -" in line]
        assert removals == [
            "turn[0] -1 canceled",
            "turn[0] -1 canceled +put",
            "turn[1] -1 moved",
            "step[0] -1 canceled",
            "turn[0] -2 canceled",
            "turn[0] -1 claim",
        ]


async def test_a_claimed_batch_returns_to_the_front(autojump_clock) -> None:
    """INB-10"""

    async def fails(payload: ta.PreStep, proceed) -> ta.Enter:
        raise RuntimeError("no")

    async with world(["answer"]) as w:
        w.agent.inject(message("a"))
        w.agent.inbox.append(message("later"))
        undo = w.agent.scope.on(ta.PreStep, fails)
        w.agent.inbox.prepend(message("x"))
        w.agent.wake()
        await w.agent.when_idle()
        assert w.pending() == (["a"], ["x", "later"])
        assert w.turn_log[3:] == [
            "turn 1", "step[0] -1 claim", "turn[0] -1 claim", "step[0] +a", "turn[0] +x", "turn end error(UNKNOWN)",
        ]  # fmt: skip
        undo()


async def test_the_same_batch_under_plain_cancel_is_recorded_as_cancelled(autojump_clock) -> None:
    """INB-11"""

    async def cancels(payload: ta.PreStep, proceed) -> object:
        payload.agent.cancel()
        return await proceed()

    async with world() as w:
        w.watch()
        w.agent.scope.on(ta.PreStep, cancels)
        receipt = w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.turn_log == [
            "turn[0] +x", "turn 1", "turn[0] -1 claim", "turn[0] +x", "turn[0] -1 canceled", "turn end aborted(user)",
        ]  # fmt: skip
        assert w.notes().count("discarded x") == 1
        assert (await receipt.settled()).outcome == "discarded"


async def test_a_rejected_batch_is_consumed(autojump_clock) -> None:
    """INB-12"""

    async def rejects(payload: ta.PreStep, proceed) -> ta.Reject:
        return ta.Reject()

    async with world() as w:
        w.watch()
        w.agent.scope.on(ta.PreStep, rejects)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.turn_log == [
            "turn[0] +x", "turn 1", "turn[0] -1 claim", "turn[0] +x", "turn[0] -1 canceled", "turn end blocked",
        ]  # fmt: skip
        assert w.notes().count("discarded x") == 1
        assert w.pending() == ([], [])


async def test_what_a_rewrite_leaves_out_is_cancelled_before_the_step(autojump_clock) -> None:
    """INB-12"""

    async def keeps_x(payload: ta.PreStep, proceed) -> ta.Enter:
        return ta.Enter(messages=tuple(m for m in payload.batch if m.id == "x"))

    async with world(["answer"]) as w:
        w.watch()
        w.agent.scope.on(ta.PreStep, keeps_x)
        left_out = w.agent.inject(message("a"))
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        assert w.turn_log[2:9] == [
            "turn 1", "step[0] -1 claim", "turn[0] -1 claim", "step[0] +a", "step[0] -1 canceled", "step 1", "user x",
        ]  # fmt: skip
        assert w.notes().count("discarded a") == 1
        assert (await left_out.settled()).outcome == "discarded"


async def test_returns_are_written_with_the_turns_end(autojump_clock) -> None:
    """INB-13: whatever a reader of the log sees, a returned message is pending when the turn has ended."""
    async with world() as w:

        async def fails(payload: ta.AssemblePrompt, proceed) -> str:
            raise RuntimeError("no")

        w.agent.scope.on(ta.AssemblePrompt, fails)
        ends: list[int] = []

        def observe(event: ta.Event) -> None:
            if event.type == "turn/end":
                events = w.agent.session.events
                ends.append(len(events) - event.seq)

        w.agent.session.observe(observe)
        w.agent.followup(message("x"))
        await w.agent.when_idle()
        # Observers of the first closer already see the whole append.
        assert ends == [1]
        assert w.turn_log[-2:] == ["turn[0] +x", "turn end error(UNKNOWN)"]


async def test_the_repair_returns_what_no_step_has_shown(autojump_clock) -> None:
    """INB-13: in one write with the end, and repairing again changes nothing."""
    store = ta.MemoryStore()
    async with world(["answer"], store=store) as w:
        w.agent.inject(message("a"))
        await w.agent.ask(message("x"))
        events = list(w.agent.session.events)
    cut = next(event.seq for event in events if event.type == "step/start")
    torn = await store_of(events[:cut])
    async with world(["now"], store=torn, mode="resume") as w:
        assert w.pending() == (["a"], ["x"])
        tail = w.log[cut:]
        assert tail == ["step[0] +a", "turn[0] +x", "turn end interrupted", "session/end-seed"]
    async with world(["now"], store=torn, mode="resume") as w:
        assert w.log[cut:] == tail
        w.agent.wake()
        await w.agent.when_idle()
        assert w.sent() == ["a", "x"]


async def test_a_message_removed_in_the_tick_of_its_delivery(autojump_clock) -> None:
    """INB-14"""
    async with world(["never"]) as w:
        w.watch()
        receipt = w.agent.followup(message("x"))
        assert w.agent.inbox.remove("x") is True
        await w.agent.when_idle()
        assert w.turn_log == ["turn[0] +x", "turn[0] -1 canceled"]
        assert w.model.request_count == 0
        assert w.notes() == ["inserted x", "running", "discarded x", "idle"]
        assert (await receipt.settled()).outcome == "discarded"


async def test_a_steer_that_comes_after_the_cancel_opens_a_turn_of_its_own(autojump_clock) -> None:
    """INB-15"""
    async with world([Reply.hang(), "second"]) as w:
        w.agent.followup(message("x"))
        await settle()
        w.agent.cancel()
        w.agent.steer(message("s"))
        w.agent.inject(message("i"))
        assert w.pending() == (["i"], ["s"])
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)", "completed"]


async def test_an_observer_that_cancels_does_not_change_the_target(autojump_clock) -> None:
    """INB-15"""
    async with world([Reply.hang(), "second"]) as w:
        w.agent.followup(message("x"))
        await settle()
        w.agent.scope.on(ta.InboxInserted, lambda payload: payload.agent.cancel(keep_inbox=True))
        w.agent.steer(message("s"))
        assert w.pending() == (["s"], [])
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)", "completed"]  # the wake came after the cancel: latched (DRV-7)


async def test_a_fork_starts_empty_and_a_resume_does_not(autojump_clock) -> None:
    """INB-16"""
    store = ta.MemoryStore()
    async with world(["answer"], store=store) as w:
        await w.agent.ask("hello")
        w.agent.inbox.append(message("parked"))
        fork = await w.agent.session.fork()
    async with world(store=store, mode="resume") as w:
        assert w.pending() == ([], ["parked"])
    async with world(store=store, session_id=fork, mode="resume") as w:
        assert w.pending() == ([], [])


@pytest.mark.parametrize(
    "splice",
    [
        InboxSpliced(target="next-turn", start=5, inserted=(message("y"),)),
        InboxSpliced(target="next-turn", start=0, removed_count=3),
        InboxSpliced(target="next-step", start=0, inserted=(message("x"),)),
    ],
    ids=["past the end", "too much removed", "duplicate id"],
)
async def test_a_stored_splice_that_does_not_fit(splice: InboxSpliced, autojump_clock) -> None:
    """INB-17"""
    store = ta.MemoryStore()
    async with world(store=store) as w:
        w.agent.inbox.append(message("x"))
        [event] = w.agent.session.events
    bad = await store_of([event, type(event)(type="agent/inbox/spliced", seq=1, time=1, data=splice)])
    async with ta.open_runtime(store=bad) as runtime:
        created: list[str] = []
        runtime.scope.on(ta.SessionCreated, lambda payload: created.append(payload.session.id))
        with pytest.raises(
            SessionCorruptError, match="invalid persisted inbox splice at session seq 1"
        ) as info:
            await runtime.agents.resume("a")
        assert info.value.__cause__ is not None
        assert created == []


async def test_splice_logs_normalised_coordinates(autojump_clock) -> None:
    """INB-18"""
    async with world() as w:
        inbox = w.agent.inbox
        for name in ("x", "y", "z"):
            inbox.append(message(name))
        start = len(w.log)
        inbox.splice("next-turn", -1, 99)
        inbox.splice("next-turn", 50, 0, message("end"))
        inbox.splice("next-turn", -50, -3, message("front"))
        inbox.splice("next-turn", 1, 0)
        inbox.splice("next-step", 0, 7)
        assert w.log[start:] == ["turn[2] -1 canceled", "turn[2] +end", "turn[0] +front"]
        for bad in (1.0, True, "1", None):
            with pytest.raises(ta.UsageError):
                inbox.splice("next-turn", bad)
            with pytest.raises(ta.UsageError):
                inbox.splice("next-turn", 0, bad)
        with pytest.raises(ta.UsageError):
            inbox.splice("next", 0)
        assert len(w.log) == start + 3


async def test_lists_are_snapshots_and_messages_immutable(autojump_clock) -> None:
    """INB-19"""
    async with world() as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        taken = inbox.next_turn
        inbox.append(message("y"))
        inbox.clear()
        assert [m.text for m in taken] == ["x"]
        with pytest.raises(AttributeError):
            taken[0].content = ()
        with pytest.raises(MessageError):
            ta.UserMessage.from_text(3)  # type: ignore[arg-type]
        with pytest.raises(MessageError):
            ta.UserMessage(id="m", content=(ta.TextBlock(text=3),), source=message("x").source)  # type: ignore[arg-type]


async def test_a_splice_that_removes_and_inserts(autojump_clock) -> None:
    """INB-20"""
    async with world() as w:
        inbox = w.agent.inbox
        inbox.append(message("x"))
        inbox.append(message("y"))
        seen: list[tuple[str, list[str]]] = []

        def note(payload) -> None:
            seen.append((payload.message.text, w.pending()[1]))

        w.agent.scope.on(ta.InboxDiscarded, note)
        w.agent.scope.on(ta.InboxInserted, note)
        inbox.splice("next-turn", 0, 2, message("new"), message("newer"))
        after = ["new", "newer"]
        assert seen == [("x", after), ("y", after), ("new", after), ("newer", after)]


async def test_ids_and_threads(autojump_clock) -> None:
    """INB-21"""
    minted = ta.UserMessage.from_text("x").id
    assert minted[14] == "7"
    assert ta.UserMessage.from_text("x", id="mine").id == "mine"
    async with world(["one"]) as w:
        failures: list[BaseException] = []

        def outside() -> None:
            try:
                w.agent.followup("from a thread")
            except Exception as exc:
                failures.append(exc)
            trio.from_thread.run_sync(w.agent.followup, "through trio")

        await trio.to_thread.run_sync(outside)
        await w.agent.when_idle()
        assert len(failures) == 1
        assert w.sent() == ["through trio"]


async def test_receipts_settle(autojump_clock) -> None:
    """INB-22"""
    async with world(["one", Reply.fail("AUTH"), "three"]) as w:
        claimed = w.agent.followup(message("x"))
        assert claimed.state == "pending"
        settled = await claimed.settled()
        assert (settled.outcome, settled.turn, settled.end.kind) == ("claimed", 1, "completed")
        failing = w.agent.followup(message("y"))
        parked = w.agent.followup(message("parked"))
        assert (await failing.settled()).end.kind == "error"
        await w.agent.when_idle()
        assert parked.state == "pending"
        with trio.move_on_after(5) as scope:
            await parked.settled()
        assert scope.cancelled_caught
        w.agent.wake()
        assert (await parked.settled()).turn == 3
        kept = w.agent.inbox
        kept.append(message("no receipt"))
        waiting = w.agent.inject(message("kept"))
    assert (await waiting.settled()).outcome == "kept"


async def test_a_returned_message_settles_as_returned(autojump_clock) -> None:
    """INB-22"""

    async def fails(payload: ta.PreStep, proceed) -> ta.Enter:
        raise RuntimeError("no")

    async with world(["answer"]) as w:
        undo = w.agent.scope.on(ta.PreStep, fails)
        receipt = w.agent.followup(message("x"))
        settled = await receipt.settled()
        assert (settled.outcome, settled.turn, settled.end.kind) == ("returned", 1, "error")
        undo()
        with pytest.raises(ta.UsageError):
            w.agent.continue_turn()


async def test_factories_mint_provenance_that_survives(autojump_clock) -> None:
    """INB-24"""
    store = ta.MemoryStore()
    sent = [
        ta.UserMessage.from_goal_round("g", goal_id="goal", revision=2, round=1),
        ta.UserMessage.from_agent("a", sender_session_id="other", sender_name="Bea"),
        ta.UserMessage.from_webhook("w", hook_id="hook", delivery_id="d-1"),
        ta.UserMessage.from_text("t"),
    ]
    async with world(store=store) as w:
        for one in sent:
            w.agent.inbox.append(one)
    async with world(store=store, mode="resume") as w:
        assert list(w.agent.inbox.next_turn) == sent
    assert isinstance(sent[0].source, GoalSource)
    with pytest.raises(MessageError):
        ta.UserMessage.from_goal_round("g", goal_id="goal", revision=2, round=0)


PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9cc\xf8\x0f\x00\x00\x01\x01\x00\x05\x18\xd8N\x00\x00\x00\x00IEND\xaeB`\x82"
)


async def test_attachments_are_admitted_before_the_message(autojump_clock) -> None:
    """INB-25, INB-27"""
    async with world(["a dot"], store=ta.MemoryStore()) as w:
        reference = await w.agent.attach(PNG)
        assert (reference.media_type, reference.width, reference.bytes) == ("image/png", 1, len(PNG))
        await w.agent.ask([ta.TextBlock(text="what is it?"), ImageBlock(attachment=reference)])
        before = len(w.agent.session.events)
        request = w.model.requests[0]
        assert request.read_attachment is not None
        assert await request.read_attachment(reference) == PNG
        with pytest.raises(MessageError):
            await w.agent.attach(b"no picture", media_type="image/png")
        with pytest.raises(MessageError):
            await w.agent.attach(b"")
        unknown = type(reference)(
            attachment_id="sha256:" + "0" * 64, media_type="image/png", bytes=1, width=1, height=1
        )
        for deliver in (w.agent.followup, w.agent.inject, w.agent.deliver):
            with pytest.raises(MessageError, match="attach"):
                deliver([ImageBlock(attachment=unknown)])
        assert len(w.agent.session.events) == before
        assert w.agent.status == "idle"


@pytest.mark.parametrize("bad", ["", "  \n", [], 3, [ToolCallBlock(id="c", name="n", arguments="")]])
async def test_what_cannot_be_delivered(bad, autojump_clock) -> None:
    """INB-25: a refused delivery writes nothing."""
    async with world() as w:
        with pytest.raises(MessageError):
            w.agent.followup(bad)
        assert w.log == []
        assert w.agent.status == "idle"


async def test_stream_gives_the_text_as_it_comes(autojump_clock) -> None:
    """INB-26"""
    async with world([Reply.text("Hel", "lo").paced(1)]) as w:
        async with w.agent.stream("hi") as reply:
            with pytest.raises(ta.UsageError):
                _ = reply.result
            pieces = [piece async for piece in reply]
            assert reply.result.text == "Hello"
            assert reply.result.turn == 1
        assert pieces == ["Hel", "lo"]


async def test_leaving_a_stream_early_cancels_its_turn(autojump_clock) -> None:
    """INB-26"""
    async with world([Reply.text("a", "b", "c").paced(1), "next"]) as w:
        async with w.agent.stream("hi") as reply:
            async for _ in reply:
                break
            w.agent.inbox.append(message("kept"))
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]
        assert w.pending() == ([], ["kept"])
        w.agent.wake()
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)", "completed"]


async def test_an_abandoned_iterator_leaks_nothing(autojump_clock) -> None:
    """INB-26"""
    async with world(["answer", "answer"]) as w:
        before = trio.lowlevel.current_statistics().tasks_living
        async with w.agent.stream("hi") as reply:
            iterator = reply.__aiter__()
            del iterator
        await w.agent.when_idle()
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_ask_returns_or_raises_by_the_end(autojump_clock) -> None:
    """INB-23"""
    script = [
        Reply.text("fine"),
        Reply.max_tokens("cut"),
        Reply.refusal("no"),
        Reply.fail("AUTH"),
        Reply.fail("AUTH"),
    ]
    async with world(script) as w:
        replies = [await w.agent.ask(text) for text in ("1", "2", "3")]
        assert [(r.text, r.end.kind, r.turn) for r in replies] == [
            ("fine", "completed", 1), ("cut", "max-tokens", 2), ("no", "refusal", 3),
        ]  # fmt: skip
        with pytest.raises(ta.TurnFailed) as info:
            await w.agent.ask("4")
        assert info.value.turn == 4
        assert isinstance(info.value.__cause__, ta.ModelError)
        reply = await w.agent.ask("5", check=False)
        assert (reply.text, reply.end.kind) == ("", "error")


async def test_ask_ends_of_other_kinds(autojump_clock) -> None:
    """INB-23"""
    async with world(
        [calls("c"), Reply.hang(), Reply.hang(), Reply.hang()], tools=[(g := Gates()).tool], max_requests=1
    ) as w:
        g.open("c")
        reply = await w.agent.ask("one")
        assert reply.end.kind == "max-turn-requests"

        async def rejects(payload: ta.PreStep, proceed) -> ta.Reject:
            return ta.Reject()

        undo = w.agent.scope.on(ta.PreStep, rejects)
        with pytest.raises(ta.TurnBlocked):
            await w.agent.ask("two")
        undo()
        results: list[str] = []

        async def ask(text: str) -> None:
            try:
                await w.agent.ask(message(text))
            except ta.TrioAgentsError as exc:
                results.append(f"{text} {type(exc).__name__}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "aborted")
            await settle()
            nursery.start_soon(ask, "discarded")
            await settle()
            w.agent.inbox.remove("discarded")
            await settle()
            w.agent.cancel()
        assert results == ["discarded MessageDiscarded", "aborted TurnAborted"]


async def test_ask_of_a_returned_and_of_a_kept_message(autojump_clock) -> None:
    """INB-23"""

    async def fails(payload: ta.PreStep, proceed) -> ta.Enter:
        raise LookupError("no")

    async with world([Reply.hang()]) as w:
        undo = w.agent.scope.on(ta.PreStep, fails)
        with pytest.raises(ta.TurnFailed) as info:
            await w.agent.ask("returned")
        assert isinstance(info.value.__cause__, LookupError)
        undo()
        w.agent.inbox.clear()
        caught: list[BaseException] = []
        async with trio.open_nursery() as nursery:
            w.agent.followup("first")

            async def ask() -> None:
                try:
                    await w.agent.ask("kept")
                except ta.AgentClosedError as exc:
                    caught.append(exc)

            nursery.start_soon(ask)
            await settle()
            for life in w.runtime.loop.lives:
                life.ask_soon()
        assert len(caught) == 1


async def test_a_cancelled_ask_takes_its_message_back(autojump_clock) -> None:
    """INB-23"""
    async with world([Reply.hang(), "after"]) as w:
        w.agent.followup(message("first"))
        await settle()
        with trio.move_on_after(1):
            await w.agent.ask(message("withdrawn"))
        assert w.pending() == ([], [])
        assert w.agent.status == "running"
        await w.agent.stop()
        w.model.extend(Reply.hang(), "then")
        w.agent.inbox.clear()
        with trio.move_on_after(1):
            await w.agent.ask(message("claimed"))
        w.agent.inbox.append(message("stays"))
        await w.agent.when_idle()
        assert w.pending() == ([], ["stays"])


async def test_a_notification_that_fails_is_contained(autojump_clock, caplog) -> None:
    """INB-20: and the log is unaffected."""
    caplog.set_level(logging.CRITICAL)
    async with world() as w:

        def fails(payload) -> None:
            raise RuntimeError("listener")

        w.agent.scope.on(ta.InboxInserted, fails)
        w.watch()
        w.agent.inbox.append(message("x"))
        assert w.seen == ["turn[0] +x", "inserted x"]
        assert show(w.agent.session.events[0]) == "turn[0] +x"
