"""What every adapter over HTTP is told by its constructor and its environment, and does alike."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import trio

from tests.unit.models.protocols import KEY, KINDS, Kind
from tests.unit.models.samples import call, collect, picture, request, result, said, tool, user
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import ModelInfo
from trio_agents.values import Attachment, Finish, Stop

pytestmark = pytest.mark.parametrize("kind", KINDS, ids=str)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        for name in (kind.key_variable, kind.url_variable):
            monkeypatch.delenv(name, raising=False)


async def test_the_public_endpoint(kind: Kind) -> None:
    model, requests = kind.answering()
    chunks = await collect(model)
    assert chunks[-1] == Finish(reason=Stop())
    [asked] = requests
    assert (asked.method, str(asked.url)) == ("POST", f"{kind.public_url}{kind.path}")
    assert asked.headers[kind.key_header] == f"{kind.key_prefix}{KEY}"


async def test_the_public_endpoint_needs_a_key(kind: Kind) -> None:
    model = kind.make()
    with pytest.raises(ModelError, match=kind.key_variable) as caught:
        await collect(model)
    assert caught.value.code == "MISSING_CREDENTIAL"
    assert repr(model) == f"{kind.make.__name__}(provider={kind.provider!r}, base_url={kind.public_url!r})"
    assert model.provider == kind.provider
    await model.aclose()


async def test_key_and_address_from_the_environment(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kind.key_variable, f" {KEY}\n")
    monkeypatch.setenv(kind.url_variable, "http://localhost:9/base/")
    model, requests = kind.answering(api_key=None)
    await collect(model)
    assert str(requests[0].url) == f"http://localhost:9/base{kind.path}"
    assert requests[0].headers[kind.key_header] == f"{kind.key_prefix}{KEY}"
    assert "http://localhost:9/base'" in repr(model)


async def test_another_endpoint_may_do_without_a_key(kind: Kind) -> None:
    model, requests = kind.answering(
        api_key=None, base_url="http://localhost:9/v1", headers={"x-team": "blue"}, provider="mine"
    )
    await collect(model)
    assert kind.key_header not in requests[0].headers
    assert requests[0].headers["x-team"] == "blue"
    assert model.provider == "mine"


async def test_a_header_of_the_caller_beats_the_key(kind: Kind) -> None:
    model, requests = kind.answering(headers={kind.key_header.title(): "Basic abc"})
    await collect(model)
    assert requests[0].headers.get_list(kind.key_header) == ["Basic abc"]


async def test_blanks_around_a_header_are_not_sent(kind: Kind) -> None:
    """As they are found around what is read from a file."""
    model, requests = kind.answering(headers={"x-team": " blue\n", "x-none": ""})
    await collect(model)
    assert (requests[0].headers["x-team"], requests[0].headers["x-none"]) == ("blue", "")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x-team", "bl\nue", "value of header 'x-team'"),
        ("x-team", "bl\u00fce", "value of header 'x-team'"),
        ("x-team", "bl\0ue", "value of header 'x-team'"),
        ("x-team", 7, "value of header 'x-team'"),
        ("x-team", b"blue", "value of header 'x-team'"),
        ("x team", "blue", "'x team', which is no name"),
        ("x-t\u00e9am", "blue", "which is no name"),
        ("", "blue", "'', which is no name"),
        (7, "blue", "7, which is no name"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_unseen(kind: Kind, name: Any, value: Any, text: str) -> None:
    """At once, and not as a broken connection, which is tried again."""
    with pytest.raises(UsageError, match=text) as caught:
        kind.make(api_key=KEY, headers={name: value})
    assert str(value) not in str(caught.value)


async def test_a_query_stays_with_every_request(kind: Kind) -> None:
    model, requests = kind.answering(base_url="http://x.test/v1/?api-version=3")
    await collect(model)
    assert str(requests[0].url) == f"http://x.test/v1{kind.path}?api-version=3"


async def test_extra_fields(kind: Kind) -> None:
    model, requests = kind.answering(extra_body={"seed": 3})
    await collect(model)
    assert json.loads(requests[0].content)["seed"] == 3


@pytest.mark.parametrize("url", ["api.test/v1", "ftp://x.test", "http://", "http://[::1"])
def test_a_base_url_is_an_http_url(kind: Kind, url: str) -> None:
    with pytest.raises(UsageError, match=f"base URL of {kind.provider}"):
        kind.make(api_key=KEY, base_url=url)


@pytest.mark.parametrize("name", ["connect", "first_byte", "silence", "total"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "3"])
def test_deadlines_are_positive(kind: Kind, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name}_timeout is a positive number"):
        kind.make(api_key=KEY, **{f"{name}_timeout": value})


async def test_info_is_what_the_constructor_was_told(kind: Kind) -> None:
    model = kind.make(api_key=KEY, models={"m": ModelInfo(context_window=5)})
    assert await model.info("m") == ModelInfo(context_window=5)
    assert (await model.info("n")).context_window is None


async def test_a_callers_client_stays_open(kind: Kind) -> None:
    model: Any = kind.answering()[0]
    await model.aclose()
    assert await collect(model)


async def test_a_name_that_a_model_made_up_does_not_come_back(kind: Kind) -> None:
    """Providers refuse it: without this, a session in which it fell once would be lost."""
    made_up, kept = call("c1", "functions.read"), call("c2", "my.tool")
    asked = request(
        user("x"), said(made_up, kept), result("c1"), result("c2", id="r2"), tools=(tool("my.tool"),)
    )
    model, requests = kind.answering()
    await collect(model, asked)
    sent = requests[0].content.decode()
    assert "functions.read" not in sent
    assert '"functions_read"' in sent
    assert sent.count('"my.tool"') == 2


async def test_images_come_from_the_request_or_the_constructor(kind: Kind) -> None:
    async def read(attachment: Attachment) -> bytes:
        await trio.lowlevel.checkpoint()
        return attachment.attachment_id.encode() * 50_000

    asked = request(user(picture("A")), said("x"), user(picture("A"), picture("BCD"), id="u2"))
    model, requests = kind.answering(read_attachment=read)
    await collect(model, asked)
    assert "QkNEQkNE" in requests[0].content.decode()

    bare, requests = kind.answering()
    with pytest.raises(ModelError, match="message 'u'") as caught:
        await collect(bare, asked)
    assert caught.value.code == "UNSUPPORTED_CONTENT"
    await collect(bare, request(user(picture("A")), read_attachment=read))
    assert "QUFB" in requests[0].content.decode()


async def test_an_image_is_read_once_for_all_requests_of_a_conversation(kind: Kind) -> None:
    """Where its id is the hash of what it holds; of another id nobody knows what it means the next time."""
    read: list[str] = []

    async def reader(attachment: Attachment) -> bytes:
        await trio.lowlevel.checkpoint()
        read.append(attachment.attachment_id)
        return b"x" * 3_000_000

    model, requests = kind.answering()
    hashed = [f"sha256:{number}" for number in range(5)]
    for asked in (hashed[:2], hashed[:3], ["plain"], ["plain"]):
        await collect(model, request(*(user(picture(id)) for id in asked), read_attachment=reader))
    assert read == [*hashed[:3], "plain", "plain"]
    assert len({len(asked.content) for asked in requests[2:]}) == 1
    # The cache is full: what was asked for longest ago is read again.
    await collect(model, request(*(user(picture(id)) for id in hashed[2:]), read_attachment=reader))
    await collect(model, request(user(picture(hashed[0])), user(picture(hashed[4])), read_attachment=reader))
    assert read[5:] == [*hashed[3:], hashed[0]]


async def test_state_that_does_not_fit_its_message_is_warned_of_once(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    """T8: the message goes without it, and the request succeeds."""
    wrong = said("a", id="a1", state={"response": None, "blocks": [None, {"x": 1}]}, provider=kind.provider)
    right = said("b", id="a2", state={"response": None, "blocks": [None]}, provider=kind.provider)
    model, requests = kind.answering()
    for _ in range(3):
        await collect(model, request(user("x"), wrong, user("y"), right, user("z"), provider=kind.provider))
    assert [record.getMessage() for record in caplog.records if record.name == "trio_agents"] == [
        f"message 'a1' is sent to {kind.provider!r} without its replay state, which does not fit its 1 blocks"
    ]
    assert all('"a"' in asked.content.decode() for asked in requests)


def test_a_missing_extra_is_named(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match=rf"{kind.make.__name__} needs httpx2.*trio-agents\[openai\]"):
        kind.make(api_key=KEY)
