"""Answers as values of a type: `ask(..., returns=T)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

import attrs
import msgspec
import pytest
import trio

import trio_agents as ta
from tests.lifecycle.driving import Gates, calls, message, settle, world
from trio_agents.models import Reply


@attrs.frozen
class Point:
    x: int
    y: float


@dataclass
class Named:
    name: str


class Place(TypedDict):
    city: str


class Wire(msgspec.Struct):
    id: int


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (Point, '{"x": 1, "y": 2.5}', Point(1, 2.5)),
        (Named, '{"name": "n"}', Named("n")),
        (Place, '{"city": "Ulm"}', {"city": "Ulm"}),
        (Wire, '{"id": 7}', Wire(id=7)),
        (list[int], "[1, 2]", [1, 2]),
        (int, "42", 42),
        (bool, "true", True),
        (Literal["yes", "no"], '"yes"', "yes"),
        (str, "just words", "just words"),
        (str, '"quoted"', "quoted"),
        (Point, 'Sure:\n```json\n{"x": 1, "y": 2}\n```\nDone.', Point(1, 2.0)),
        (Point, 'The point is {"x": 1, "y": 2}, I think.', Point(1, 2.0)),
    ],
)
async def test_values(kind, answer: str, value: object, autojump_clock) -> None:
    """Each kind of type, and the ways in which a model wraps its JSON."""
    async with world([answer]) as w:
        reply = await w.agent.ask(message("x"), returns=kind)
        assert reply.value == value
        assert reply.turn == 1
        text = w.sent()[1]
        assert "JSON schema" in text
        assert [line.split("Give")[0] for line in w.log if line.startswith("user")] == ["user x"]


async def test_the_model_is_told_its_faults(autojump_clock) -> None:
    """All faults at once, with their paths; the turns are ordinary ones."""
    async with world(['{"x": "1"}', "no", '{"x": 1, "y": 2}']) as w:
        reply = await w.agent.ask("x", returns=Point)
        assert reply.value == Point(1, 2.0)
        assert (reply.turn, reply.usage.input_tokens) == (3, 30)
        told = [line for line in w.sent() if line.startswith("That answer")]
        assert "$.x: expected an integer" in told[0]
        assert "$.y" in told[0]
        assert w.ends == ["completed"] * 3
        sources = [m.source.kind for m in w.agent.session.messages() if m.role == "user"]
        assert sources == ["user", "plugin", "plugin"]


async def test_it_gives_up(autojump_clock) -> None:
    """After three answers; with `check=False` there is a reply without a value."""
    async with world(Reply.text("no")) as w:
        with pytest.raises(ta.AnswerInvalid) as info:
            await w.agent.ask("x", returns=Point)
        assert info.value.turn == 3
        assert info.value.faults
        reply = await w.agent.ask("x", returns=Point, check=False)
        assert (reply.value, reply.text, reply.turn) == (None, "no", 6)


async def test_a_refusal_is_not_asked_again(autojump_clock) -> None:
    """The model has declined."""
    async with world([Reply.refusal("no"), Reply.fail("AUTH")]) as w:
        with pytest.raises(ta.AnswerInvalid, match="declined"):
            await w.agent.ask("x", returns=Point)
        with pytest.raises(ta.TurnFailed):
            await w.agent.ask("x", returns=Point)


async def test_a_type_without_a_schema(autojump_clock) -> None:
    """Nothing is delivered."""
    async with world() as w:
        with pytest.raises(ta.UsageError, match="JSON"):
            await w.agent.ask("x", returns=object.__init__)
        assert w.log == []


async def test_with_tools_and_cancelled(autojump_clock) -> None:
    """Tools run on the way; a cancelled wait withdraws as `ask` does."""
    gates = Gates()
    gates.open("a")
    async with world([calls("a"), '{"x": 1, "y": 1}', Reply.hang()], tools=[gates.tool]) as w:
        assert (await w.agent.ask("x", returns=Point)).value == Point(1, 1.0)
        with trio.move_on_after(1):
            await w.agent.ask("y", returns=Point)
        await w.agent.when_idle()
        await settle()
        assert w.ends == ["completed", "aborted(user)"]
