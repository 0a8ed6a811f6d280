"""The schema of `ask(returns=...)`, found again in the messages, and sent to servers that hold a model to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.models.samples import call, collect, request, result, said, tool, user
from trio_agents.models import OpenAIChat
from trio_agents.models._answers import ASKED, instructions, schema_asked_for
from trio_agents.models.openai import response_format
from trio_agents.testing import open_fake_provider
from trio_agents.values._messages import USER, Message, TextBlock, UserMessage

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TYPED = UserMessage(
    id="t", content=(TextBlock(text="Where?"), TextBlock(text=instructions(SCHEMA))), source=USER
)
COMPLAINT = UserMessage.from_text("That answer does not fit", id="c", source=ASKED)
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
}


@pytest.mark.parametrize(
    "messages",
    [
        [TYPED],
        [user("before"), said("x"), TYPED],
        [TYPED, said("no"), COMPLAINT],
        [TYPED, said("no"), COMPLAINT, said("no"), COMPLAINT],
        [TYPED, said(call()), result("c1", "x")],
    ],
)
def test_the_last_input_asks_for_it(messages: list[Message]) -> None:
    assert schema_asked_for(messages) == SCHEMA


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("x")],
        [TYPED, said('{"city": "Ulm"}'), user("And why?")],
        [COMPLAINT],
        [user(instructions(SCHEMA) + " but briefly")],
        [user(instructions(SCHEMA).partition("{")[0] + "[1]")],
    ],
)
def test_nothing_asks_for_it(messages: list[Message]) -> None:
    assert schema_asked_for(messages) is None


def test_not_beside_tools() -> None:
    """A model that is held to the schema could call none."""
    assert response_format(request(TYPED)) == {"response_format": FORM}
    assert response_format(request(TYPED, tools=(tool("read"),))) == {}
    assert response_format(request(user("x"))) == {}


@pytest.mark.parametrize(("enforce", "sent"), [(True, FORM), (False, None)])
async def test_it_is_sent_where_the_adapter_is_told_to(enforce: bool, sent: object) -> None:
    async with open_fake_provider(["{}"]) as server:
        model = OpenAIChat(base_url=server.base_url, enforce_schemas=enforce)
        await collect(model, request(TYPED))
        await model.aclose()
        body = server.requests[-1].body
    assert isinstance(body, dict)
    assert body.get("response_format") == sent
