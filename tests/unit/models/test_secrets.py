"""Keys that are planted everywhere, and looked for everywhere else (ERR-10)."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

import trio_agents as ta
from tests.unit.models.protocols import ANTHROPIC, CHAT, KINDS, Kind, events
from tests.unit.models.samples import collect
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import Limited, Limits
from trio_agents.testing import Status, open_fake_provider
from trio_agents.testing._fake_script import ProviderAnswer

KEY = "sk-planted/key+0123456789="
HEADERS = {
    "x-gateway-token": "gateway-hunter2",
    "x-team": "0f8fad5bd9cb469fa165",
    "cookie": "session=crumbs99",
}
PLANTED = [KEY, "sk-planted%2Fkey%2B0123456789%3D", *HEADERS.values(), "crumbs99"]
ECHO = " | ".join([f"Bearer {KEY}", *PLANTED])


def texts_of(error: BaseException) -> Iterator[str]:
    """Everything that a report of an error may show, the locals of its frames included."""
    shown: BaseException | None = error
    seen = set()
    while shown is not None and id(shown) not in seen:
        seen.add(id(shown))
        yield from (str(shown), repr(shown), *map(str, shown.args), *getattr(shown, "__notes__", ()))
        shown = shown.__cause__ or shown.__context__
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    # The frames of the test itself know the keys; they stand outermost.
    yield from (
        f"{frame.name} {name}={value}"
        for part in chain(report)
        for frame in part.stack
        if "tests" not in frame.filename
        for name, value in (frame.locals or {}).items()
    )


def chain(report: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    part: traceback.TracebackException | None = report
    while part is not None:
        yield part
        part = part.__cause__ or part.__context__


def clean(*texts: str) -> None:
    """No secret in any of them, nor half of the key."""
    assert texts
    for text in texts:
        for secret in [*PLANTED, "planted/key", "gateway-hunt"]:
            assert secret not in text, f"{secret} in {text[:2000]}"


ANSWERS: dict[str, dict[str, Any]] = {
    "text": {"status": 401, "body": f"wrong: {ECHO}".encode()},
    "json": {"status": 401, "body": json.dumps({"error": {"message": ECHO, "code": KEY}}).encode()},
    "request id": {"status": 500, "body": json.dumps({"request_id": ECHO, "message": "x"}).encode()},
    "headers": {"status": 500, "body": b"", "answer_headers": {"x-request-id": ECHO, "x-seen": ECHO}},
    "html": {"body": b"<h1>" + ECHO.encode(), "answer_headers": {"content-type": "text/html"}},
    "kind": {"body": b"x", "answer_headers": {"content-type": "text/html;" + ECHO, "request-id": ECHO}},
    "event": {"body": events({"error": {"message": ECHO, "code": 500}, "type": "error", "message": ECHO})},
    "garbage": {"body": events(b"{" + ECHO.encode())},
    "redirect": {"status": 307, "body": ECHO.encode(), "answer_headers": {"location": "http://other.test/"}},
}
for cut in (180, 195, 390, 399, 1590, 16_370, 65_530):
    # Wherever a text is cut, half a key is not shown.
    filler = "x" * cut
    ANSWERS[f"cut {cut}"] = {"status": 400, "body": f"{filler}{KEY}".encode()}
    ANSWERS[f"cut json {cut}"] = {"status": 400, "body": json.dumps({"error": filler + KEY}).encode()}
    ANSWERS[f"cut event {cut}"] = {"body": events(f"{{{filler}{KEY}".encode())}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_provider_that_repeats_them(
    kind: Kind, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model, requests = kind.answering(
        **ANSWERS[answer], api_key=KEY, headers=HEADERS, base_url="http://x.test/v1"
    )
    with pytest.raises(ModelError) as caught:
        await collect(model)
    assert len(requests) == 1
    assert requests[0].headers[kind.key_header] == f"{kind.key_prefix}{KEY}"
    clean(
        *texts_of(caught.value),
        str(vars(caught.value)),
        repr(model),
        str(vars(model)),
        repr(Limited(model, Limits(concurrency=1))),
        *(record.getMessage() for record in caplog.records),
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("error", [httpx2.ReadError, httpx2.LocalProtocolError, httpx2.ConnectTimeout])
async def test_a_transport_that_repeats_them(kind: Kind, error: type[httpx2.TransportError]) -> None:
    """A failing transport shows neither text nor frames: the request stands in their locals."""

    def fail(asked: httpx2.Request) -> httpx2.Response:
        headers = dict(asked.headers)
        try:
            raise OSError(f"inner {headers}")
        except OSError as exc:
            raise error(f"Illegal header value {KEY.encode()!r}", request=asked) from exc

    def fail_quietly(asked: httpx2.Request) -> httpx2.Response:
        headers = dict(asked.headers)
        assert headers
        raise error("broken", request=asked)

    for handler in (fail, fail_quietly):
        with pytest.raises(ModelError) as caught:
            await collect(kind.adapter(handler, api_key=KEY, headers=HEADERS))
        assert caught.value.code in {"TRANSPORT", "TIMEOUT"}
        clean(*texts_of(caught.value))
        assert [
            frame.name
            for part in chain(traceback.TracebackException.from_exception(caught.value))
            for frame in part.stack
            if frame.name.startswith("fail")
        ] == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_redirect_is_not_followed(kind: Kind) -> None:
    """The client would leave only the header out that it knows of."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(308, headers={"location": "https://other.test/"})

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), follow_redirects=True)
    model = kind.make(api_key=KEY, base_url="http://x.test/v1", client=client, headers=HEADERS)
    with pytest.raises(ModelError, match="a redirect, and requests with a key are not sent on") as caught:
        await collect(model)
    assert asked == ["x.test"]
    assert caught.value.code == "HTTP_308"


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    "where",
    [
        "http://user:{}@x.test/v1", "http://x.test/v1?api_key={}", "http://x.test/v1?sig={}", "http://x.test/?code={}",
        "http://x.test/?AccessToken={}", "ftp://{}.test",
    ],
)  # fmt: skip
async def test_an_address_holds_none(kind: Kind, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = where.format("gateway-hunter2")
    monkeypatch.setenv(kind.url_variable, url)
    for given in ({"base_url": url}, {}):
        with pytest.raises(UsageError) as caught:
            kind.make(api_key="x", **given)
        clean(str(caught.value), repr(caught.value), repr(caught.value.__cause__))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_key_in_the_path_of_an_address_is_not_shown(kind: Kind) -> None:
    def fail(asked: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("broken")

    model = kind.adapter(fail, base_url="http://x.test/sk-abcdef0123456789/v1")
    with pytest.raises(ModelError) as caught:
        await collect(model)
    for text in (repr(model), *texts_of(caught.value)):
        assert "abcdef0123456789" not in text


@pytest.mark.parametrize("kind", [CHAT, ANTHROPIC], ids=str)
async def test_logs_and_exports_hold_none(
    kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a real connection, with a store: no file, no record and no event has one."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(kind.key_variable, KEY)
    script: list[ProviderAnswer] = [
        Status(status=503, message=ECHO, request_id=ECHO), Status(status=401, message=ECHO, code=KEY), "fine"
    ]  # fmt: skip
    async with open_fake_provider(script) as server:
        url = server.root_url if kind is ANTHROPIC else server.base_url
        model = kind.make(base_url=url, headers=HEADERS)
        store = ta.JsonlStore(tmp_path / "sessions")
        plugins = [ta.RetryPolicy(first_delay=0.001)]
        async with (
            ta.open_runtime(store=store, models=[model], plugins=plugins) as runtime,
            runtime.open_agent("s", model=f"{kind.provider}/m") as agent,
        ):
            with pytest.raises(ta.TurnFailed) as caught:
                await agent.ask("hello")
            assert (await agent.ask("again")).text == "fine"
            shown = [repr(event) for event in agent.session.events]
        assert any(KEY in value for value in server.requests[0].headers.values())
    files = contents(tmp_path)
    assert files
    clean(
        *shown,
        *texts_of(caught.value),
        *files,
        *(record.getMessage() for record in caplog.records),
        *(record.exc_text or "" for record in caplog.records),
    )


def contents(folder: Path) -> list[str]:
    return [path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]


async def test_the_command_line_shows_none(tmp_path: Path) -> None:
    """`run` fails and is told why; neither it nor a look at the session says a key."""
    environment = {**os.environ, "OPENAI_API_KEY": KEY, "TRIO_AGENTS_STORE": str(tmp_path / "sessions")}
    echo = f"Bearer {KEY} {PLANTED[1]}"
    script = [Status(status=401, message=echo, code=KEY, request_id=echo)]
    async with open_fake_provider(script) as server:
        environment["OPENAI_BASE_URL"] = server.base_url
        run = await command(environment, "run", "-v", "--model", "openai/m", "--session", "s", "hello")
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    shown = await command(environment, "sessions", "show", "s")
    exported = await command(environment, "sessions", "export", "s")
    assert "HTTP 401" in run
    assert "HTTP 401" in exported
    clean(run, shown, exported)


async def command(environment: dict[str, str], *arguments: str) -> str:
    """What a command prints, on both of its streams."""
    done = await trio.run_process(
        [sys.executable, "-m", "trio_agents", *arguments],
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
    )
    return done.stdout.decode()
