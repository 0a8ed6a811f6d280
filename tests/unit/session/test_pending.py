"""The inbox as a fold of its splices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.samples import claim, insert, user
from trio_agents.errors import DuplicateMessageError, MessageError, SessionCorruptError, UsageError
from trio_agents.session import Event, InboxSpliced, TurnEnd, TurnStart, decode_event
from trio_agents.session._pending import Pending, fold_pending, kind_of
from trio_agents.values import COMPLETED

A, B, C, D = (user(name, id=name) for name in "abcd")


def splice(target: str = "next-turn", start: int = 0, **fields: Any) -> InboxSpliced:
    return InboxSpliced(target=target, start=start, **fields)  # type: ignore[arg-type]


def events(*datas: Any) -> list[Event]:
    marks = [{"surface_op": "append"} if d.wire_type == "user/message" else {} for d in datas]
    return [
        Event(type=data.wire_type, seq=seq, time=1, data=data, **mark)  # type: ignore[arg-type]
        for seq, (data, mark) in enumerate(zip(datas, marks, strict=True))
    ]


def lists(pending: Pending) -> tuple[str, str]:
    return "".join(m.id for m in pending.next_turn), "".join(m.id for m in pending.next_step)


def test_splices_add_up_to_two_lists():
    """INB-8, INB-9"""
    pending = fold_pending(
        events(
            insert(A, B, C),
            insert(D, target="next-step"),
            splice(start=1, removed_count=1, outcome="moved"),
            splice("next-step", start=1, inserted=(B,)),
            splice(start=1, removed_count=1, outcome="canceled"),
        )
    )
    assert lists(pending) == ("a", "db")
    assert len(pending) == 3
    assert (pending.target_of("a"), pending.target_of("b"), pending.target_of("c")) == (
        "next-turn",
        "next-step",
        None,
    )
    assert (pending.index_of("b"), pending.length("next-step")) == (1, 2)
    with pytest.raises(KeyError):
        pending.index_of("c")
    assert pending.moving == ()


def test_positions_are_found_from_both_ends():
    messages = tuple(user(id=str(n)) for n in range(7))
    pending = fold_pending(events(insert(*messages)))
    assert [pending.index_of(str(n)) for n in range(7)] == list(range(7))


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"inserted": (A,)}, "insert"),
        ({"removed_count": 1}, "claim"),
        ({"removed_count": 1, "outcome": "canceled"}, "cancel"),
        ({"removed_count": 1, "inserted": (A,)}, "replace"),
        ({"removed_count": 1, "inserted": (A,), "outcome": "canceled"}, "replace"),
        ({"removed_count": 1, "outcome": "moved"}, "move"),
    ],
)
def test_the_log_alone_tells_what_a_splice_did(fields, kind):
    """INB-9"""
    assert kind_of(splice(**fields)) == kind


def test_taken_tuples_never_change():
    """INB-19"""
    pending = fold_pending(events(insert(A, B)))
    taken = pending.next_turn
    assert pending.next_turn is taken
    pending.apply(claim())
    assert taken == (A, B)
    assert pending.next_turn == (B,)


def test_a_replacement_may_keep_the_id():
    """INB-6"""
    pending = fold_pending(events(insert(A, B)))
    new = user("new", id="b")
    change = splice(start=1, removed_count=1, inserted=(new,), outcome="canceled")
    pending.check(change)
    assert pending.removed_by(change) == (B,)
    assert pending.apply(change) == (B,)
    assert pending.next_turn == (A, new)


WRONG = {
    "start past the end": (splice(start=3, inserted=(C,)), UsageError),
    "negative start": (splice(start=-1, inserted=(C,)), UsageError),
    "start no int": (splice(start=True, inserted=(C,)), UsageError),
    "too much removed": (splice(start=1, removed_count=2), UsageError),
    "nothing removed": (splice(start=0, removed_count=0), UsageError),
    "removed no int": (splice(start=0, removed_count=1.0), UsageError),
    "no such list": (splice("next-year", inserted=(C,)), UsageError),
    "pending": (splice(inserted=(A,)), DuplicateMessageError),
    "pending in the other list": (splice("next-step", inserted=(B,)), DuplicateMessageError),
    "twice": (splice(inserted=(C, C)), DuplicateMessageError),
    "twice, leaving": (splice(start=0, removed_count=1, inserted=(A, A)), DuplicateMessageError),
    "no message": (splice(inserted=("c",)), MessageError),
}


@pytest.mark.parametrize(("change", "error"), WRONG.values(), ids=WRONG.keys())
def test_a_splice_that_does_not_fit_is_refused(change, error):
    """INB-3, INB-17"""
    stored = events(insert(A, B), change)
    pending = fold_pending(stored[:1])
    with pytest.raises(error):
        pending.check(change)
    assert lists(pending) == ("ab", "")
    with pytest.raises(
        SessionCorruptError, match="invalid persisted inbox splice at session seq 1"
    ) as caught:
        fold_pending(stored)
    assert isinstance(caught.value.__cause__, error)


def test_a_stored_splice_of_no_shape_is_refused():
    """INB-17"""
    raw = b'{"type":"agent/inbox/spliced","seq":0,"time":1,"data":{"target":"next-turn","start":"0","inserted":[]}}'
    with pytest.raises(SessionCorruptError, match="at session seq 0"):
        fold_pending([decode_event(raw)])


def test_inherited_splices_do_not_count():
    """INB-16"""
    stored = events(insert(A), splice(start=5, removed_count=9), insert(B))
    assert lists(fold_pending(stored, seed_length=2)) == ("b", "")


def test_several_splices_are_checked_one_after_another():
    """INB-3, LOG-3"""
    pending = fold_pending(events(insert(A), insert(B, target="next-step")))
    move = splice(removed_count=1, outcome="moved"), splice("next-step", start=1, inserted=(A,))
    pending.check_all(move)
    assert lists(pending) == ("a", "b")
    with pytest.raises(DuplicateMessageError):
        pending.check_all(move[::-1])
    with pytest.raises(UsageError):
        pending.check_all((claim(), claim()))
    pending.check_all((claim(),))
    assert lists(pending) == ("a", "b")


def test_what_a_turn_claimed_and_did_not_show():
    """INB-13"""
    turn = TurnStart(turn=1)
    log = [insert(A, B), insert(C, D, target="next-step"), turn, claim(2, "next-step"), claim()]
    pending = fold_pending(events(*log))
    assert pending.claimed == (("next-step", C), ("next-step", D), ("next-turn", A))
    shown = fold_pending(events(*log, C))
    assert shown.claimed == (("next-step", D), ("next-turn", A))
    returned = fold_pending(events(*log, C, insert(D, target="next-step"), insert(A)))
    assert returned.claimed == ()
    assert lists(returned) == ("ab", "d")
    for closing in (TurnEnd(turn=1, reason=COMPLETED), TurnStart(turn=2)):
        assert fold_pending(events(*log, closing)).claimed == ()
    assert fold_pending(events(insert(A), turn, splice(removed_count=1, outcome="canceled"))).claimed == ()


def test_a_half_written_move():
    """INB-8"""
    half = fold_pending(events(insert(A, B), splice(removed_count=1, outcome="moved")))
    assert half.moving == (A,)
    assert lists(half) == ("b", "")
    half.apply(insert(C))
    assert half.moving == (A,)
    half.apply(insert(A, target="next-step"))
    assert len(half.moving) == 0
