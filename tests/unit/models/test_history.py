"""What of a conversation goes to a provider."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.unit.models.samples import call, result, said, thought, tool, user
from trio_agents.errors import ModelError
from trio_agents.models._history import Answered, Asked, Part, Said, project
from trio_agents.values._messages import Message, TextBlock, ToolCallBlock


def view(*messages: Message, provider: str = "openai", model: str = "m", **options) -> list:
    return project(messages, provider=provider, model=model, **options)


def texts(entry: Said | Asked) -> list[str]:
    blocks = [part.block for part in entry.parts] if isinstance(entry, Said) else entry.content
    return [getattr(block, "text", block.tag) for block in blocks]


def call_ids(entry: Said) -> list[str]:
    return [part.block.id for part in entry.parts if isinstance(part.block, ToolCallBlock)]


def test_a_plain_exchange() -> None:
    assert view(user("hi"), said("hello", call()), result("c1", "out", error=True)) == [
        Asked(message_id="u", content=(TextBlock(text="hi"),)),
        Said(message_id="a", parts=(Part(block=TextBlock(text="hello")), Part(block=call()))),
        Answered(message_id="r", call_id="c1", content=(TextBlock(text="out"),), is_error=True),
    ]


def test_blank_text_and_empty_messages_are_left_out() -> None:
    """D6."""
    entries = view(user("  ", "x"), said("\n"), said(), user(" "), said("kept", " "))
    assert [texts(entry) for entry in entries] == [["x"], ["kept"]]


def test_interrupted_text_stays() -> None:
    """CAN-5: what was said before a cancel is part of the conversation."""
    assert texts(view(user("x"), said("half an ans"))[1]) == ["half an ans"]


def test_reasoning_goes_back_only_where_it_is_signed_for_this_model() -> None:
    """T5: neither cut-off reasoning nor that of another model is ever sent."""
    state = {"response": "r", "blocks": [{"signature": "s"}, None]}
    signed = said(thought(), "answer", state=state)
    assert view(user("x"), signed)[1] == Said(
        message_id="a",
        parts=(Part(block=thought(), state={"signature": "s"}), Part(block=TextBlock(text="answer"))),
        response="r",
    )
    bare = [Said(message_id="a", parts=(Part(block=TextBlock(text="answer")),))]
    assert view(user("x"), said(thought(), "answer"))[1:] == bare
    assert view(user("x"), signed, model="other")[1:] == bare
    assert view(user("x"), signed, provider="other")[1:] == bare
    assert view(user("x"), said(thought()))[1:] == []
    assert view(user("x"), said(thought(), state={"blocks": [{"signature": "s"}]}))[1:] == []


@pytest.mark.parametrize(
    "state",
    [
        {"response": "r", "blocks": [{"signature": "s"}]},
        {"response": "r", "blocks": "none"},
        ["blocks"],
        "text",
    ],
)
def test_state_that_does_not_fit_is_left_out(state: object) -> None:
    """T8: a message whose state is out of step with its content is sent without it, and nothing fails."""
    entry = view(user("x"), said(thought(), "answer", state=state))[1]
    assert texts(entry) == ["answer"]
    assert entry.response is None


def test_state_of_the_message_alone() -> None:
    assert view(user("x"), said("answer", state={"response": "r"}))[1].response == "r"


def test_every_call_id_is_unique_and_results_follow() -> None:
    """TOOL-7: duplicate ids are told apart by position."""
    entries = view(
        user("x"),
        said(call("c"), call("c"), call("c-2")),
        result("c", "1"),
        result("c", "2", id="r2"),
        result("c-2", "3", id="r3"),
        said(call("c")),
        result("c", "4", id="r4"),
    )
    calls = [name for entry in entries if isinstance(entry, Said) for name in call_ids(entry)]
    answers = [entry.call_id for entry in entries if isinstance(entry, Answered)]
    assert calls == answers == ["c", "c-2", "c-2-2", "c-3"]


def test_ids_are_cleaned_before_they_are_made_unique() -> None:
    entries = view(
        user("x"), said(call("a.b"), call("a:b"), call("")), result("a.b"), result("a:b"), result(""),
        clean_id=lambda text: text.replace(".", "_").replace(":", "_"),
    )  # fmt: skip
    assert call_ids(entries[1]) == ["a_b", "a_b-2", "call"]
    assert [entry.call_id for entry in entries[2:]] == ["a_b", "a_b-2", "call"]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("read", "read"), ("functions.read", "functions_read"), ("", "unknown"), ("a b\n", "a_b_"),
        ("\u00e4\ud800", "__"), ("x" * 65, "x" * 64),
    ],
)  # fmt: skip
def test_a_name_that_a_model_made_up_is_one_that_providers_take(name: str, sent: str) -> None:
    """They give it away, and refuse it in every later request. What is on offer keeps its name."""
    messages = [user("x"), said(call(name=name)), result()]
    [part] = view(*messages)[1].parts
    assert part.block.name == sent
    [part] = view(*messages, tools=[tool(name)])[1].parts
    assert part.block.name == name


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([user("x"), said(call())], "history ends before the result of tool call 'c1'"),
        ([user("x"), said(call()), user("y", id="u2")], "'u2' comes before"),
        ([user("x"), result("c9")], "'r' is the result of call 'c9'"),
    ],
)
def test_calls_without_results_are_refused(messages: list[Message], problem: str) -> None:
    """T1."""
    with pytest.raises(ModelError, match=problem) as caught:
        view(*messages)
    assert caught.value.code == "INVALID_REQUEST"


STEPS = st.lists(st.sampled_from(["user", "said", "blank", "thought", "call", "two"]), min_size=1, max_size=8)


def conversation(steps: list[str]) -> list[Message]:
    made: list[Message] = [user("start")]
    for step in steps:
        made += {
            "user": [user("more")],
            "said": [said("text")],
            "blank": [said(" ")],
            "thought": [said(thought(), state={"blocks": [{"s": 1}]})],
            "call": [said("t", call()), result()],
            "two": [said(call("c"), call("c")), result("c"), result("c")],
        }[step]
    return made


@given(STEPS, STEPS)
def test_more_history_only_extends_the_view(first: list[str], second: list[str]) -> None:
    """HDR-3: what was sent before stays as it was, so a provider's cache can use it."""
    before = view(*conversation(first))
    assert view(*conversation(first + second))[: len(before)] == before


@given(STEPS)
def test_pairs_stay_together(steps: list[str]) -> None:
    """M5."""
    waiting: list[str] = []
    seen: set[str] = set()
    for entry in view(*conversation(steps)):
        if isinstance(entry, Answered):
            assert entry.call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = call_ids(entry) if isinstance(entry, Said) else []
            assert not seen & set(waiting)
            seen |= set(waiting)
    assert waiting == []
