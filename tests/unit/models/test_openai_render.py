"""Requests for chat completions: a pure function of the conversation."""

from __future__ import annotations

import json

import pytest

from tests.unit.models.samples import call, picture, request, result, said, thought, tool, user
from trio_agents.errors import ModelError
from trio_agents.models._rendering import encode_body
from trio_agents.models.openai import render_chat
from trio_agents.values._json import FrozenJson
from trio_agents.values._messages import ForeignBlock


def body(*messages, images=None, rendering=None, **settings) -> dict:
    rendered = render_chat(request(*messages, **settings), images, **(rendering or {}))
    return json.loads(encode_body(rendered))


def messages_of(*messages, **options) -> list:
    return body(*messages, **options)["messages"]


def test_the_smallest_request() -> None:
    assert body(user("hi")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_settings_stand_where_the_protocol_has_them() -> None:
    settings = {
        "system": "Be brief.", "tools": (tool("read"),), "max_tokens": 50, "effort": "low", "temperature": 0.0,
        "stop": ("END",),
    }  # fmt: skip
    rendered = body(user("hi"), rendering={"max_tokens_field": "max_completion_tokens"}, **settings)
    assert rendered["messages"][0] == {"role": "system", "content": "Be brief."}
    assert rendered["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "read",
                "description": "Does read.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]
    assert {key: rendered[key] for key in ("max_completion_tokens", "reasoning_effort", "temperature", "stop")} == {
        "max_completion_tokens": 50, "reasoning_effort": "low", "temperature": 0.0, "stop": ["END"],
    }  # fmt: skip
    assert body(user("hi"), max_tokens=50)["max_tokens"] == 50


def test_a_tool_turn() -> None:
    rendered = messages_of(
        user("a", "b"),
        said("Let me see.", call("c1", "read", '{"p": 1}'), call("c2", "list", "")),
        result("c1", "one", "two"),
        result("c2", "no such file", id="r2", error=True),
        said("Done."),
    )
    assert rendered == [
        {"role": "user", "content": "a\n\nb"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"p": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one\n\ntwo"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no such file"},
        {"role": "assistant", "content": "Done."},
    ]


def test_empty_results_and_errors_say_so() -> None:
    rendered = messages_of(
        user("x"), said(call("c1"), call("c2"), call("c3")),
        result("c1"), result("c2", " ", id="r2", error=True), result("c3", "ERROR 3", id="r3", error=True),
    )  # fmt: skip
    assert rendered[1]["content"] is None
    assert [message["content"] for message in rendered[2:]] == [
        "(no output)",
        "Error: (no output)",
        "ERROR 3",
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", {}),
        (" ", {}),
        ('{"a":1}', {"a": 1}),
        ("[1]", {"malformed_arguments": "[1]"}),
        ('{"a": NaN}', {"malformed_arguments": '{"a": NaN}'}),
        ('{"path": "ab', {"malformed_arguments": '{"path": "ab'}),
        ('{"s": "\\ud83d"}', {"s": "\ud83d"}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, sent: dict) -> None:
    """D6: servers parse the arguments of earlier calls, and fail on what a model wrote badly."""
    rendered = messages_of(user("x"), said(call(arguments=arguments)), result())
    assert json.loads(rendered[1]["tool_calls"][0]["function"]["arguments"]) == sent


def test_unsigned_reasoning_is_never_sent() -> None:
    """T5: in neither the next request nor one to another model; interrupted text is in both."""
    cut = said(thought("deep"), "half an ans")
    for model in ("m", "other"):
        assert messages_of(user("x"), cut, user("y"), model=model) == [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "half an ans"},
            {"role": "user", "content": "y"},
        ]
    assert [m["role"] for m in messages_of(user("x"), said(thought("deep")), user("y"))] == ["user", "user"]
    assert [m["role"] for m in messages_of(user("x"), said(), user("y"))] == ["user", "user"]


def test_reasoning_of_a_tool_loop_goes_back_until_the_next_input() -> None:
    kept = {
        "response": None,
        "blocks": [{"field": "reasoning_content"}, {"field": "reasoning_content"}, None],
    }
    loop = [user("x"), said(thought("a"), thought("b"), call(), state=kept), result("c1", "out")]
    assert messages_of(*loop)[1]["reasoning_content"] == "ab"
    assert "reasoning_content" not in messages_of(*loop, user("y"))[1]
    assert "reasoning_content" not in messages_of(*loop, model="other")[1]
    assert "reasoning_content" not in messages_of(*loop, rendering={"replay_reasoning": False})[1]
    answer = said(thought("a"), "text", state={"blocks": [{"field": "reasoning_content"}, None]})
    assert "reasoning_content" not in messages_of(user("x"), answer)[1]


def test_images_are_data_urls() -> None:
    image = picture("sha256:ab")
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    loaded = {"sha256:ab": "QUJD"}
    assert messages_of(user("look", image), images=loaded)[0]["content"] == [
        {"type": "text", "text": "look"},
        url,
    ]
    assert messages_of(user(image), images=loaded)[0]["content"] == [url]
    with pytest.raises(ModelError, match="'sha256:ab' of message 'u' was not loaded") as caught:
        messages_of(user(image))
    assert caught.value.code == "UNSUPPORTED_CONTENT"


def test_images_of_results_follow_the_last_of_them() -> None:
    image = picture("sha256:ab")
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    note = {"type": "text", "text": "Images from the tool results above:"}
    shown = {"role": "user", "content": [note, url]}
    start = [user("x"), said(call("c1"), call("c2")), result("c1", image), result("c2", "text", id="r2")]
    rendered = messages_of(*start, images={"sha256:ab": "QUJD"})
    assert [message["role"] for message in rendered] == ["user", "assistant", "tool", "tool", "user"]
    assert rendered[2]["content"] == "(see the image that follows)"
    assert rendered[4] == shown
    more = messages_of(*start, said("I see."), images={"sha256:ab": "QUJD"})
    assert more[:5] == rendered
    assert more[5] == {"role": "assistant", "content": "I see."}


def test_a_block_of_another_program_is_named() -> None:
    """T13: it must not make every later request fail."""
    block = ForeignBlock("video", FrozenJson(b'{"type":"video"}'))
    assert messages_of(user("x", block))[0]["content"] == (
        "x\n\n[a block of type 'video', which cannot be shown here]"
    )


def test_half_characters_are_joined_or_replaced() -> None:
    schema = tool("read")
    rendered = body(user("a\ud83d", "\ude00 \ud83d\ude00"), tools=(schema,))
    assert rendered["messages"][0]["content"] == "a\ufffd\n\n\ufffd 😀"
    assert rendered["tools"][0]["function"]["parameters"] == schema.parameters.value


def test_a_broken_history_is_refused() -> None:
    with pytest.raises(ModelError, match="'c1'"):
        messages_of(user("x"), said(call()))
