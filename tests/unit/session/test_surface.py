"""What the model sees, and what may replace it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.session.samples import answer, asks, called, opened, result, user
from trio_agents.errors import UsageError
from trio_agents.session import Draft, Replace, StepEnd, StepStart, TurnEnd, TurnStart
from trio_agents.session._surface import fold_surface
from trio_agents.values import COMPLETED, FrozenJson, TextBlock, ToolSource


def replace(data: Any, start: int, end: int, *also: int, sources: Any = None) -> Draft:
    cited = tuple(range(start, end + 1)) + also if sources is None else sources
    return Draft(data, Replace(start=start, end=end), cited)


def conversation() -> Any:
    """user 0, then in turn 1: user 3, answer 4, call 5, result 6; surface 0 3 4 6."""
    session, pen, writer = opened()
    pen.append(user("zero", id="zero"))
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1), user("three", id="three"))
    pen.append(answer(1, 1, *asks("c")), called(1, 1, "c"))
    pen.append(Draft(result(1, 1, "c", meta=FrozenJson.of(1)), source_event_seqs=(5,)))
    pen.append(StepEnd(turn=1, step=1), TurnEnd(turn=1, reason=COMPLETED))
    assert session.surface == (0, 3, 4, 6)
    return session, pen, writer


def ids(session: Any) -> list[str]:
    return [message.id for message in session.messages()]


def test_a_replacement_takes_the_place_of_its_nodes():
    """LOG-7"""
    session, pen, _ = conversation()
    held, before = session.conversation(), ids(session)
    pen.append(replace(user("summary", id="summary"), 3, 4, sources=(3, 4)))
    assert session.surface == (0, 9, 6)
    assert ids(session) == ["zero", "summary", "r-c"]
    assert [message.id for message in held] == before
    pen.append(user("more", id="more"))
    assert ids(session) == ["zero", "summary", "r-c", "more"]
    pen.append(replace(user("all", id="all"), 0, 10, sources=(0, 6, 9, 10)))
    assert ids(session) == ["all"]


def test_a_span_may_run_backwards_in_numbers():
    """LOG-7"""
    session, pen, _ = conversation()
    pen.append(replace(user(id="a"), 0, 3, sources=(0, 3)))
    assert session.surface == (9, 4, 6)
    pen.append(replace(user(id="b"), 9, 4, sources=(9, 4)))
    assert session.surface == (10, 6)


def test_a_result_may_be_pruned():
    """LOG-7"""
    session, pen, _ = conversation()
    pruned = result(1, 1, "c", text="(cut)", meta=FrozenJson.of(1))
    pen.append(replace(pruned, 6, 6))
    assert session.surface == (0, 3, 4, 9)
    assert session.messages()[-1] == pruned.message


FOREIGN_SOURCE = msgspec.structs.replace(
    result(1, 1, "c", meta=FrozenJson.of(1)).message, source=ToolSource(call_id="d")
)

REFUSED = {
    "not on the surface": replace(user(), 1, 3, sources=(0, 1, 3)),
    "gone": replace(user(), 99, 99),
    "backwards": replace(user(), 4, 3, sources=(3, 4)),
    "not cited": replace(user(), 0, 4, sources=(0, 4)),
    "no sources": Draft(user(), Replace(start=0, end=0)),
    "cited twice": replace(user(), 0, 0, sources=(0, 0)),
    "cites the future": replace(user(), 0, 0, sources=(0, 9)),
    "cites nothing": Draft(user(), source_event_seqs=()),
    "result over a user": replace(result(1, 1, "c"), 0, 0),
    "result over several": replace(result(1, 1, "c", meta=FrozenJson.of(1)), 4, 6, sources=(4, 6)),
    "other meta": replace(result(1, 1, "c"), 6, 6),
    "other call": replace(result(1, 1, "d", meta=FrozenJson.of(1)), 6, 6),
    "other operation": Draft(user(), "insert"),  # type: ignore[arg-type]
}


def test_a_result_replaces_no_more_than_one_result():
    """LOG-7"""
    session, pen, _ = opened()
    pen.append(TurnStart(turn=1), StepStart(turn=1, step=1))
    for _ in range(2):
        pen.append(called(1, 1, "c"), result(1, 1, "c"))
    first, second = session.surface
    with pytest.raises(UsageError, match="one result"):
        pen.append(replace(result(1, 1, "c", text="cut"), first, second, sources=(first, second)))
    assert session.surface == (first, second)


@pytest.mark.parametrize("draft", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_replacement_changes_nothing(draft):
    """LOG-7"""
    session, pen, writer = conversation()
    before = session.surface, ids(session), session.conversation(), len(writer.batches)
    with pytest.raises(UsageError, match=f"{draft.data.wire_type} refused"):
        pen.append(draft)
    assert (session.surface, ids(session), session.conversation(), len(writer.batches)) == before


def test_several_replacements_in_one_append_see_each_other():
    """LOG-3, LOG-7"""
    session, pen, _ = conversation()
    pen.append(
        replace(user(id="a"), 0, 3, sources=(0, 3)), replace(user(id="b"), 9, 4, sources=(9, 4)), user(id="c")
    )
    assert session.surface == (10, 6, 11)
    assert ids(session) == ["b", "r-c", "c"]
    with pytest.raises(UsageError, match="not on the surface"):
        pen.append(replace(user(id="x"), 10, 6, sources=(10, 6)), replace(user(id="y"), 6, 6))
    assert session.surface == (10, 6, 11)
    pen.append(
        replace(result(1, 1, "c", text="1", meta=FrozenJson.of(1)), 6, 6),
        replace(result(1, 1, "c", text="2", meta=FrozenJson.of(1)), 12, 12),
    )
    assert session.messages()[1] == result(1, 1, "c", text="2").message


def test_the_incremental_surface_is_the_fold():
    """PROP-8"""
    session, pen, _ = conversation()
    pen.append(replace(user("s", id="s"), 3, 4, sources=(3, 4)))
    events = session.events
    folded = fold_surface(events, events.__getitem__)
    assert folded.nodes == session.surface
    assert folded.messages() == session.messages()


def test_conversations_are_sequences():
    session, pen, _ = conversation()
    view = session.conversation()
    listed = session.messages()
    assert (len(view), list(view), view[-1], view[1:3]) == (4, listed, listed[-1], tuple(listed[1:3]))
    assert view[::-1] == tuple(listed[::-1])
    assert view == tuple(listed)
    assert view != listed[:-1]
    assert view != "text"
    for bad in (4, -5):
        with pytest.raises(IndexError):
            view[bad]
    pen.append(user(id="more"))
    assert list(view) == listed
    assert TextBlock(text="three") in view[1].content
