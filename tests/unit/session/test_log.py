"""The live session: appends, observers, followers, forks."""

from __future__ import annotations

import logging
import threading
from typing import Any, ClassVar

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.unit.session import samples
from tests.unit.session.samples import (
    MemoryWriter,
    answer,
    claim,
    delta,
    header,
    insert,
    opened,
    user,
    write_turn,
)
from trio_agents.errors import (
    ReentrantAppendError,
    SessionClosedError,
    SessionCorruptError,
    SessionExistsError,
    StorageError,
    UsageError,
    ValueNotJsonError,
)
from trio_agents.session import (
    AssistantMessage,
    Draft,
    Event,
    Events,
    Payload,
    Replace,
    SessionEndSeed,
    SessionHeader,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    decode_event,
    open_log,
    prefix_marker,
    register_event,
)
from trio_agents.values import COMPLETED, FrozenJson, Message, TextBlock


@register_event
class Noted(Payload, msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's own event."""

    wire_type: ClassVar[str] = "test/noted"
    ignorable: ClassVar[bool] = True
    text: Any = ""


def state_of(session: object) -> tuple[object, ...]:
    events = session.events  # type: ignore[attr-defined]
    return list(events), session.surface, session.messages(), session.request_header(), session.brackets  # type: ignore[attr-defined]


# --- appending ------------------------------------------------------------------------------------


def test_numbers_are_dense_and_time_is_the_clock_even_backwards():
    """LOG-1"""
    times = iter([5, 3, 4])
    session, pen = open_log(header(), writer=MemoryWriter(), now=lambda: next(times))
    pen.append(TurnStart(turn=1))
    pen.append(TurnEnd(turn=1, reason=COMPLETED))
    pen.append(TurnStart(turn=2))
    assert [(event.seq, event.time) for event in session.events] == [(0, 5), (1, 3), (2, 4)]


def test_append_returns_the_logged_events():
    """LOG-2"""
    session, pen, writer = opened()
    events = pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    assert events == tuple(session.events)
    assert all(kept is event for kept, event in zip(session.events, events, strict=True))
    assert [decode_event(line) for line in writer.lines] == list(events)


def test_a_mutable_part_does_not_reach_the_log():
    """LOG-2"""
    session, pen, _ = opened()
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    content = [TextBlock(text="one")]
    message = Message(id="a", role="assistant", content=content, source=samples.MODEL)  # type: ignore[arg-type]
    [event] = pen.append(AssistantMessage(turn=1, step=1, message=message))
    content.append(TextBlock(text="two"))
    assert event.data.message.content == (TextBlock(text="one"),)
    assert session.messages()[0].content == (TextBlock(text="one"),)


def test_what_a_plugin_logs_can_be_changed_only_outside_the_log():
    """LOG-2"""
    session, _, _ = opened()
    value = {"deep": [1]}
    returned = session.append(Noted(text=value))
    value["deep"].append(2)
    returned.data.text["deep"].append(3)
    session.events[0].data.text["deep"].append(4)
    next(iter(session.events)).data.text["deep"].append(5)
    assert session.events[0].data.text == {"deep": [1]}
    again, _ = open_log(header(), session.events)
    next(iter(again.events)).data.text.clear()
    assert again.events[0] == session.events[0]


def test_logged_values_cannot_be_changed():
    """LOG-2"""
    session, pen, _ = opened()
    write_turn(pen, 1)
    for event in session.events:
        with pytest.raises(AttributeError):
            event.seq = 9  # type: ignore[misc]
    with pytest.raises(AttributeError):
        session.messages()[0].content = ()  # type: ignore[misc]
    listed = session.messages()
    listed.clear()
    assert len(session.messages()) == 4


class Ran:
    """Whoever runs a session: hears of the splices, and of everything if asked."""

    def __init__(self, *, is_heard: bool) -> None:
        self.is_heard = is_heard
        self.seen: list[object] = []

    def told(self, event: Event) -> None:
        self.seen.append(event.type)

    def spliced(self, splice: object, removed: tuple[object, ...]) -> None:
        self.seen.append(("spliced", len(removed)))


@pytest.mark.parametrize("is_heard", [False, True])
@pytest.mark.parametrize("wrapped", [lambda payload: payload, Draft])
@pytest.mark.parametrize("together", [False, True])
def test_an_event_is_the_same_event_however_it_is_appended(wrapped, together, is_heard):
    """LOG-2: alone or with others, as a payload or as a draft of it: checked, kept, told and projected alike."""
    session, pen, writer = opened()
    ran = Ran(is_heard=is_heard)
    pen.serve(ran)
    first, second = user("first", "1"), user("second", "2")
    items = [
        *(
            insert(first),
            insert(second, start=1),
            TurnStart(turn=1),
            claim(),
            StepStart(turn=1, step=1),
            first,
        ),
        *(
            answer(1, 1, TextBlock(text="yes")),
            StepEnd(turn=1, step=1),
            claim(),
            TurnEnd(turn=1, reason=COMPLETED),
        ),
    ]
    if together:
        pen.append(*map(wrapped, items))
    else:
        for item in items:
            pen.append(wrapped(item))
    assert [event.data for event in session.events] == items
    assert len(writer.lines) == len(items)
    assert pen.pending.next_turn == ()
    # What a turn has claimed counts until it is shown, or until the turn ends.
    assert not pen.pending.is_claimed_from
    assert [message.id for message in session.messages()] == ["1", "a"]
    assert session.brackets.last_turn == 1
    assert session.open_turn is None
    spliced = [("spliced", 0), ("spliced", 0), ("spliced", 1), ("spliced", 1)]
    assert [what for what in ran.seen if type(what) is tuple] == spliced
    if is_heard:
        assert [what for what in ran.seen if type(what) is str] == [event.type for event in session.events]
    with pytest.raises(UsageError, match="can remove"):
        pen.append(wrapped(claim(5)))
    assert len(session.events) == len(items)


def test_several_events_are_one_write():
    """LOG-3"""
    session, pen, writer = opened()
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1), user())
    assert [len(events) for events, _ in writer.batches] == [3]
    assert session.surface == (2,)


@pytest.mark.parametrize(
    ("drafts", "error", "name"),
    [
        pytest.param((StepStart(turn=1, step=1),), UsageError, "step/start", id="brackets"),
        pytest.param((TurnStart(turn=1), TurnStart(turn=2)), UsageError, "turn/start", id="brackets-later"),
        pytest.param((TurnStart(turn=1), Draft(user(), Replace(start=0, end=0))), UsageError, "user/message", id="surface"),
        pytest.param((Draft(user(), source_event_seqs=(7,)),), UsageError, "user/message", id="sources"),
        pytest.param((Draft(TurnStart(turn=1), Replace(start=0, end=0)),), UsageError, "turn/start", id="no-surface"),
        pytest.param((Draft(TurnStart(turn=1), source_event_seqs=(0,)),), UsageError, "turn/start", id="no-sources"),
        pytest.param((claim(),), UsageError, "next-turn", id="splice"),
        pytest.param((insert(user()), claim(), claim()), UsageError, "next-turn", id="splice-later"),
        pytest.param((Noted(text=float("nan")),), ValueNotJsonError, "test/noted", id="nan"),
        pytest.param((Noted(text={1, 2}),), ValueNotJsonError, "test/noted", id="set"),
        pytest.param((TurnStart(turn=1), Noted(text=-0.0)), ValueNotJsonError, "test/noted", id="negative-zero"),
        pytest.param(("turn/start",), UsageError, "str", id="no-payload"),
    ],
)  # fmt: skip
def test_a_refused_append_changes_nothing(drafts, error, name):
    """LOG-3, LOG-10"""
    session, pen, writer = opened()
    before, view = state_of(session), session.events
    with pytest.raises(error, match=name):
        pen.append(*drafts)
    assert state_of(session) == before
    assert session.events is view
    assert writer.batches == []
    [event] = pen.append(TurnStart(turn=1))
    assert event.seq == 0


def test_a_refusal_of_the_storage_changes_nothing_and_names_the_type():
    """LOG-3, INB-2"""
    session, pen, writer = opened()
    pen.append(insert(user(id="u")))
    seen: list[Event] = []
    session.observe(seen.append)
    writer.refuse = StorageError("disk full")
    writer.refuse.__cause__ = cause = OSError(28, "No space left on device")
    before = state_of(session), pen.pending.next_turn
    with pytest.raises(StorageError):
        pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    with pytest.raises(StorageError, match="disk full") as caught:
        pen.append(claim())
    assert caught.value.__cause__ is cause
    assert any("agent/inbox/spliced" in note for note in caught.value.__notes__)
    assert (state_of(session), pen.pending.next_turn) == before
    assert seen == []
    writer.refuse = None
    [event] = pen.append(claim())
    assert event.seq == 1


def test_a_bracket_that_storage_refused_to_close_can_be_closed_later():
    """TRN-19"""
    session, pen, writer = opened()
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    writer.refuse = StorageError("disk full")
    with pytest.raises(StorageError):
        pen.append(StepEnd(turn=1, step=1), TurnEnd(turn=1, reason=COMPLETED))
    assert (session.open_turn, session.open_step) == (1, 1)
    writer.refuse = None
    pen.append(*pen.closers(COMPLETED), TurnStart(turn=2))
    assert (session.open_turn, session.turn) == (2, 2)


def test_what_is_not_ready_refuses():
    """LOG-12"""
    session, pen = open_log(header())
    with pytest.raises(UsageError, match="no writer"):
        pen.append(TurnStart(turn=1))
    pen.attach(MemoryWriter())
    with pytest.raises(UsageError, match="already has a writer"):
        pen.attach(MemoryWriter())
    pen.append(TurnStart(turn=1))
    pen.close()
    assert session.is_closed
    with pytest.raises(SessionClosedError, match="turn/end"):
        pen.append(TurnEnd(turn=1, reason=COMPLETED))


def test_a_lent_pen_can_be_taken_back():
    """DIS-16"""
    session, pen, _ = opened()
    lent = pen.lend()
    lent.append(TurnStart(turn=1))
    lent.revoke()
    with pytest.raises(SessionClosedError, match="taken back; turn/end"):
        lent.append(TurnEnd(turn=1, reason=COMPLETED))
    pen.append(TurnEnd(turn=1, reason=COMPLETED))
    assert len(session.events) == 2


def test_another_thread_is_refused():
    _, pen, _ = opened()
    caught: list[BaseException] = []

    def run() -> None:
        try:
            pen.append(TurnStart(turn=1))
        except UsageError as exc:
            caught.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "another thread" in str(caught[0])


def test_plugins_append_their_types_and_no_others():
    """LOG-17"""
    session, _, _ = opened()
    event = session.append(Noted(text="one"))
    assert (event.type, event.ignorable, event.data.text) == ("test/noted", True, "one")
    assert [e.seq for e in session.append(Noted(), Noted())] == [1, 2]
    for payload in (TurnStart(turn=1), user(), "text"):
        with pytest.raises(UsageError, match="from outside"):
            session.append(payload)  # type: ignore[arg-type]
    assert len(session.events) == 3


def test_appends_are_protected_from_keyboard_interrupt():
    """REG-13"""
    session, pen, _ = opened()
    protected: list[bool] = []
    session.observe(lambda event: protected.append(trio.lowlevel.currently_ki_protected()))
    session.append(Noted())
    pen.append(TurnStart(turn=1))
    assert protected == [True, True]


# --- views ----------------------------------------------------------------------------------------


def test_messages_are_fresh_lists_of_shared_messages():
    """LOG-8"""
    session, pen, _ = opened()
    write_turn(pen, 1)
    one, two = session.messages(), session.messages()
    assert one == two
    assert one is not two
    assert all(a is b for a, b in zip(one, two, strict=True))
    assert session.conversation() == one
    assert session.conversation() is session.conversation()


def test_events_are_the_same_object_until_the_next_append():
    """LOG-8"""
    session, pen, _ = opened()
    empty = session.events
    assert session.events is empty
    pen.append(TurnStart(turn=1))
    view = session.events
    assert view is not empty
    assert session.events is view
    assert (len(empty), len(view)) == (0, 1)


def test_empty_answers_are_no_messages():
    """LOG-8, TRN-11"""
    session, pen, _ = opened()
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1), user(), answer(1, 1))
    assert session.surface == (2, 3)
    assert [message.role for message in session.messages()] == ["user"]


# --- observers ------------------------------------------------------------------------------------


def test_observers_see_committed_events_one_by_one():
    """LOG-3"""
    session, pen, writer = opened()
    seen: list[tuple[int, int, int]] = []
    session.observe(lambda event: seen.append((event.seq, len(session.events), len(writer.batches))))
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    assert seen == [(0, 2, 1), (1, 2, 1)]


class Runner:
    """Runs a session: looks at its inbox splices."""

    def __init__(self, spliced):
        self.spliced = spliced
        self.is_heard = True

    def told(self, event: Event) -> None:
        """Nothing to do."""


def test_the_inbox_changes_behind_the_observers():
    """INB-1"""
    session, pen, _ = opened()
    seen: list[object] = []
    message = user(id="u")
    session.observe(
        lambda event: seen.append(("observer", pen.pending.next_turn, pen.pending.removed_by(event.data)))
    )
    pen.serve(Runner(lambda splice, removed: seen.append(("projection", pen.pending.next_turn, removed))))
    pen.append(insert(message))
    pen.append(claim())
    assert seen == [
        ("observer", (), ()),
        ("projection", (message,), ()),
        ("observer", (message,), (message,)),
        ("projection", (), (message,)),
    ]


def test_a_raising_observer_is_contained(caplog):
    """LOG-4"""
    session, pen, _ = opened()
    seen: list[int] = []

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    session.observe(broken)
    session.observe(lambda event: seen.append(event.seq))
    with caplog.at_level(logging.ERROR, "trio_agents"):
        pen.append(TurnStart(turn=1))
    assert seen == [0]
    [record] = caplog.records
    for part in ("session s", "broken", "event 0", "turn/start"):
        assert part in record.getMessage()


def test_observers_added_or_removed_count_from_the_next_event():
    """LOG-4"""
    session, pen, _ = opened()
    seen: list[tuple[str, int]] = []

    def late(event: Event) -> None:
        seen.append(("late", event.seq))

    def first(event: Event) -> None:
        if event.seq == 0:
            session.observe(late)
            undo()
        seen.append(("first", event.seq))

    session.observe(first)
    undo = session.observe(lambda event: seen.append(("removed", event.seq)))
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    assert seen == [("first", 0), ("removed", 0), ("first", 1), ("late", 1)]


def test_an_undo_removes_only_its_own_entry():
    """SCP-6"""
    session, pen, _ = opened()
    seen: list[int] = []

    def fn(event: Event) -> None:
        seen.append(event.seq)

    undo = session.observe(fn)
    session.observe(fn)
    undo()
    undo()
    pen.append(TurnStart(turn=1))
    assert seen == [0]


def test_async_observers_are_refused():
    """HOOK-1"""
    session, _, _ = opened()

    async def fn(event: Event) -> None: ...

    with pytest.raises(UsageError, match="async"):
        session.observe(fn)


def test_an_observer_cannot_append_to_its_session(caplog):
    """LOG-5"""
    session, pen, writer = opened()
    other, other_pen, _ = opened()
    caught: list[BaseException] = []

    def greedy(event: Event) -> None:
        other_pen.append(TurnStart(turn=1))
        try:
            session.append(Noted())
        except ReentrantAppendError as exc:
            caught.append(exc)
            raise

    undo = session.observe(greedy)
    pen.append(TurnStart(turn=1))
    undo()
    assert len(caught) == 1
    assert len(caplog.records) == 1
    assert (len(session.events), len(other.events)) == (1, 1)
    writer.refuse = StorageError("no")
    with pytest.raises(StorageError):
        pen.append(StepStart(turn=1, step=1))
    writer.refuse = None
    pen.append(StepStart(turn=1, step=1))


def test_what_must_wait_for_the_dispatch_waits(caplog):
    """LOG-12"""
    session, pen, _ = opened()
    seen: list[str] = []

    def detach() -> None:
        seen.append("detached")
        pen.append(StepStart(turn=1, step=1))

    def first(event: Event) -> None:
        assert session.is_dispatching
        if event.seq == 0:
            pen.after_dispatch(detach)
            pen.after_dispatch(lambda: 1 / 0)
        seen.append(f"first {event.seq}")

    session.observe(first)
    session.observe(lambda event: seen.append(f"second {event.seq}"))
    pen.append(TurnStart(turn=1))
    assert seen == ["first 0", "second 0", "detached", "first 1", "second 1"]
    assert "after an append" in caplog.records[0].getMessage()
    assert not session.is_dispatching
    pen.after_dispatch(lambda: seen.append("at once"))
    assert seen[-1] == "at once"


def test_a_raising_projection_does_not_stop_the_inbox(caplog):
    _, pen, _ = opened()
    pen.serve(Runner(lambda splice, removed: 1 / 0))
    with pytest.raises(UsageError, match="already has"):
        pen.serve(Runner(lambda splice, removed: None))
    pen.append(insert(user(id="a")), insert(user(id="b"), start=1))
    assert [message.id for message in pen.pending.next_turn] == ["a", "b"]
    assert len(caplog.records) == 2


def test_an_exit_that_an_observer_asks_for_waits_for_the_end_of_the_section():
    session, pen, _ = opened()
    seen: list[int] = []

    def leave(event: Event) -> None:
        raise SystemExit(3)

    undo = session.observe(leave)
    session.observe(lambda event: seen.append(event.seq))
    with pytest.raises(SystemExit):
        pen.append(insert(user(id="a")), insert(user(id="b"), start=1))
    undo()
    pen.serve(Runner(lambda splice, removed: leave(session.events[0])))
    with pytest.raises(SystemExit):
        pen.append(claim(2))
    assert seen == [0, 1, 2]
    assert (len(session.events), pen.pending.next_turn, session.is_dispatching) == (3, (), False)


# --- followers ------------------------------------------------------------------------------------


async def test_follow_replays_then_goes_live_then_ends(nursery):
    """LOG-15, LOG-19"""
    session, pen, _ = opened()
    write_turn(pen, 1, deltas=list("abcdef"))
    seen: list[object] = []

    async def read() -> None:
        async for event in session.follow():
            seen.append(event)  # noqa: PERF401 - one by one is what is tested
        seen.append("end")

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    assert seen == list(session.events)
    write_turn(pen, 2)
    pen.append(TurnStart(turn=3))
    await wait_all_tasks_blocked()
    assert seen == list(session.events)
    pen.close()
    await wait_all_tasks_blocked()
    assert seen == [*session.events, "end"]


async def test_follow_from_the_middle_of_a_run_and_from_the_future(nursery):
    """LOG-15, LOG-18"""
    session, pen, _ = opened()
    write_turn(pen, 1, deltas=list("abcdefgh"))
    follower = session.follow(8)
    assert [(await anext(follower)).seq for _ in range(4)] == [8, 9, 10, 11]
    future = session.follow(len(session.events) + 1)
    got: list[int] = []

    async def wait() -> None:
        got.append((await anext(future)).seq)

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    pen.append(TurnStart(turn=2))
    await wait_all_tasks_blocked()
    assert got == []
    pen.append(StepStart(turn=2, step=1))
    await wait_all_tasks_blocked()
    assert got == [len(session.events) - 1]
    for bad in (-1, 1.0, True):
        with pytest.raises(UsageError):
            session.follow(bad)  # type: ignore[arg-type]


async def test_a_follower_loses_nothing_to_a_cancel():
    """LOG-15"""
    session, pen, _ = opened()
    follower = session.follow()
    with trio.move_on_after(0):
        await anext(follower)
    pen.append(TurnStart(turn=1))
    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(follower)
    assert (await anext(follower)).seq == 0
    pen.close()
    with pytest.raises(StopAsyncIteration):
        await anext(follower)


async def test_every_step_of_a_follower_is_a_checkpoint():
    session, pen, _ = opened()
    pen.append(TurnStart(turn=1))
    follower = session.follow()
    with trio.testing.assert_checkpoints():
        await anext(follower)
    with trio.testing.assert_checkpoints():
        await session.flush()


async def test_flush_is_the_barrier_of_the_writer():
    session, _, writer = opened()
    await session.flush()
    assert writer.barriers == 1
    bare, _ = open_log(header())
    await bare.flush()


# --- prefixes -------------------------------------------------------------------------------------


def prefix() -> list[Event]:
    session, pen, _ = opened()
    write_turn(pen, 1)
    return list(session.events)


def test_a_prefix_gives_the_same_views():
    """LOG-9, PER-1, PUB-14"""
    session, pen, _ = opened()
    write_turn(pen, 1)
    again, again_pen = open_log(header(), session.events, writer=MemoryWriter())
    assert state_of(again) == state_of(session)
    assert again_pen.pending.next_turn == ()
    again_pen.append(TurnStart(turn=2))


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda events: events[1:], id="gap"),
        pytest.param(lambda events: [*events, events[-1]], id="repeat"),
        pytest.param(
            lambda events: [*events[:4], msgspec.structs.replace(events[4], surface_op=Replace(start=0, end=0))],
            id="surface",
        ),
    ],
)  # fmt: skip
def test_a_bad_prefix_rejects_the_session(loaded, spoil):
    """LOG-9, PUB-18"""
    with pytest.raises(SessionCorruptError if loaded else UsageError):
        open_log(header(), spoil(prefix()), loaded=loaded)


def test_only_a_made_prefix_has_to_keep_the_brackets():
    """LOG-9"""
    events = [Event(type="step/end", seq=0, time=1, data=StepEnd(turn=1, step=1))]
    with pytest.raises(UsageError, match="step/end"):
        open_log(header(), events)
    session, _ = open_log(header(), events, loaded=True)
    assert len(session.events) == 1


@pytest.mark.parametrize(
    "event",
    [
        Event(type="turn/start", seq=0, time=1, data=StepEnd(turn=1, step=1)),
        Event(type="turn/start", seq=0, time=1.5, data=TurnStart(turn=1)),  # type: ignore[arg-type]
        Event(type="test/noted", seq=0, time=1, data=Noted(text=float("inf"))),
        "turn/start",
    ],
    ids=["type", "time", "value", "no event"],
)
def test_what_could_not_be_appended_is_no_prefix(event):
    """LOG-9, LOG-10, PUB-18"""
    with pytest.raises((UsageError, ValueNotJsonError)):
        open_log(header(), [event])


def test_one_marker_follows_a_prefix():
    """LOG-9"""
    events = prefix()
    assert [draft.data for draft in prefix_marker(events)] == [SessionEndSeed()]
    assert [draft.data for draft in prefix_marker([])] == [SessionEndSeed()]
    _, pen = open_log(header(), events, writer=MemoryWriter())
    pen.append(*prefix_marker(events))
    assert prefix_marker(pen.session.events) == []


def test_a_damaged_inbox_refuses_the_session():
    """INB-17"""
    events = [Event(type="agent/inbox/spliced", seq=0, time=1, data=claim())]
    with pytest.raises(
        SessionCorruptError, match="invalid persisted inbox splice at session seq 0"
    ) as caught:
        open_log(header(), events, loaded=True)
    assert isinstance(caught.value.__cause__, UsageError)


# --- forks ----------------------------------------------------------------------------------------


class Shelf:
    """Where forks go."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[SessionHeader, Events]] = {}

    async def __call__(self, child_id, plan) -> None:
        await trio.lowlevel.checkpoint()
        if child_id in self.stored:
            raise SessionExistsError(f"{child_id} exists")
        self.stored[child_id] = plan()


async def test_a_fork_copies_the_prefix():
    """LOG-13"""
    shelf = Shelf()
    session, pen = open_log(
        header(cwd="/w", agent_preset="x", delegation_depth=2), writer=MemoryWriter(), fork_into=shelf
    )
    write_turn(pen, 1, deltas=list("abcdef"))
    write_turn(pen, 2)
    ends = [event.seq for event in session.events if event.type == "turn/end"]
    child = await session.fork(ends[0], id="child")
    assert child == "child"
    fork_header, events = shelf.stored[child]
    assert list(events) == list(session.events[: ends[0] + 1])
    assert (fork_header.cwd, fork_header.parent_session, fork_header.seed_length) == ("/w", "s", ends[0] + 1)
    whole = await session.fork()
    assert list(shelf.stored[whole][1]) == list(session.events)
    forked, forked_pen = open_log(*shelf.stored[child], loaded=True)
    assert forked.messages() == session.messages()[:4]
    assert forked_pen.pending.next_turn == ()


async def test_a_fork_of_a_fork_starts_with_an_empty_inbox():
    """INB-16"""
    _, pen = open_log(header(seed_length=1), [event_with(insert(user()), 0)], writer=MemoryWriter())
    assert pen.pending.next_turn == ()
    pen.append(insert(user(id="own")))
    assert pen.pending.target_of("own") == "next-turn"


def event_with(data: object, seq: int) -> Event:
    return Event(type=data.wire_type, seq=seq, time=1, data=data)  # type: ignore[attr-defined]


async def test_fork_errors_come_in_order_and_create_nothing():
    """LOG-14"""
    shelf = Shelf()
    session, pen = open_log(header(), writer=MemoryWriter(), fork_into=shelf)
    write_turn(pen, 1)
    end = len(session.events) - 1
    pen.append(TurnStart(turn=2))
    await session.fork(end, id="taken")
    with pytest.raises(SessionExistsError):
        await session.fork(99, id="taken")
    with pytest.raises(UsageError, match="turn 2 is open"):
        await session.fork()
    with pytest.raises(UsageError, match="turn 1 is open"):
        await session.fork(3)
    for bad in (-1, end + 2, 1.0, True, "1"):
        with pytest.raises(UsageError, match="no event"):
            await session.fork(bad)  # type: ignore[arg-type]
    assert list(shelf.stored) == ["taken"]
    pen.close()
    with pytest.raises(SessionClosedError):
        await session.fork(end)
    homeless, _ = open_log(header())
    with pytest.raises(UsageError, match="store"):
        await homeless.fork()


async def test_an_empty_session_can_be_forked():
    """LOG-13"""
    shelf = Shelf()
    session, _ = open_log(header(), writer=MemoryWriter(), fork_into=shelf)
    child = await session.fork()
    assert shelf.stored[child][0].seed_length == 0
    with pytest.raises(UsageError, match="it is empty"):
        await session.fork(0)


def test_values_survive_exactly():
    """PER-1, LOG-10"""
    session, pen, writer = opened()
    shared = ["x"]
    value = {"lone": "\ud800", "shared": [shared, shared], "big": 2**53 - 1, "line": "\u2028", "deep": [[[]]]}
    session.append(Noted(text=value))
    session.append(Noted(text="\ud83d"))
    pen.append(insert(user("cut \ud83d")))
    events = [decode_event(line) for line in writer.lines]
    assert events[0].data.text == value
    assert events == list(session.events)
    assert all(b"\n" not in line for line in writer.lines)


def test_json_laid_out_over_lines_stays_one_line():
    session, _, writer = opened()
    session.append(Noted(text=FrozenJson(b'{"a":\n [1,\n2]}')))
    assert b"\n" not in writer.lines[0]
    assert decode_event(writer.lines[0]).data.text == {"a": [1, 2]}


def test_a_long_stream_costs_no_memory_per_chunk():
    """LOG-18"""
    session, pen, _ = opened()
    pieces = [f"piece {n}" for n in range(100)]
    write_turn(pen, 1, deltas=pieces)
    records = session.events.records
    assert len(records) < 20
    assert [e.data.chunk.text for e in session.events[5:105]] == pieces
    [message] = [e for e in session.events if e.type == "assistant/message" and e.data.step == 1]
    assert message.source_event_seqs == range(5, 106)


def test_reprs_name_the_session():
    session, pen, _ = opened()
    write_turn(pen, 1)
    assert "'s'" in repr(session)
    assert "4" in repr(session.conversation())
    assert repr(session.events).startswith("<Events")
    assert session.id == session.header.id == "s"
    assert session.request_context() is None
    assert delta(1, 1, "x").wire_type == "assistant/chunk"
