"""The fetch tool against a real server on loopback, and what it refuses to reach."""

from __future__ import annotations

import contextlib
import functools
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest
import trio

from trio_agents.errors import ToolError, UsageError
from trio_agents.tools import ToolContext, ToolReturn, fetch_tool
from trio_agents.tools._html import html_to_text
from trio_agents.tools.web import Fetcher, is_public, resolve


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b:1::808:808", False),
        ("::127.0.0.1", False),
        ("::ffff:0:10.0.0.1", False),
        ("fec0::1", False),
        ("name", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


# --- a server -------------------------------------------------------------------------------------

Answer = Callable[[str, str], bytes]


def ok(body: bytes, kind: str = "text/plain", status: str = "200 OK", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{extra}\r\n"
    return head.encode() + body


def to(location: str) -> bytes:
    return ok(b"", status="302 Found", extra=f"location: {location}\r\n")


class Server:
    def __init__(self, port: int, seen: list[tuple[str, str]]) -> None:
        self.port = port
        self.seen = seen

    def fetcher(self, *allowed: str) -> Fetcher:
        async def lookup(host: str, _port: int) -> list[str]:
            await trio.lowlevel.checkpoint()
            if host == "nowhere.test":
                raise OSError("no such host")
            return ["127.0.0.1"]

        return Fetcher(allow=frozenset(allowed), resolve=lookup)


@contextlib.asynccontextmanager
async def serving(pages: dict[str, bytes]) -> AsyncIterator[Server]:
    """A server of fixed pages, by path; it notes host and path of each request."""
    seen: list[tuple[str, str]] = []

    async def serve(stream: trio.SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some()
        lines = data.decode().split("\r\n")
        path = lines[0].split()[1]
        host = next(line[6:] for line in lines if line.lower().startswith("host: "))
        seen.append((host, path))
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(pages.get(path, ok(b"no", status="404 Not Found")))
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        start = functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        listeners = await nursery.start(start)
        yield Server(listeners[0].socket.getsockname()[1], seen)
        nursery.cancel_scope.cancel()


async def code_of(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await fetcher.fetch(url, raw=False)
    return caught.value.code


async def test_text_and_pages() -> None:
    page = b"<html><head><title>T</title><style>x{}</style></head><body><h1>Hi</h1><p>a <a href='/b'>link</a></p></body>"
    pages = {
        "/text": ok("é".encode()),
        "/latin": ok(b"\xe9", "text/plain; charset=latin-1"),
        "/odd": ok("é".encode(), "text/plain; charset=nonsense"),
        "/page": ok(page, "text/html"),
        "/json": ok(b"{}", "application/problem+json"),
    }
    async with serving(pages) as server:
        base = f"http://one.test:{server.port}"
        fetch = server.fetcher("one.test").fetch
        assert (await fetch(f"{base}/text", raw=False)).text == f"[200 OK from {base}/text]\né"
        assert (await fetch(f"{base}/latin", raw=False)).text.endswith("\né")
        assert (await fetch(f"{base}/odd", raw=False)).text.endswith("\né")
        assert (await fetch(f"{base}/json", raw=False)).text.endswith("\n{}")
        assert (await fetch(f"{base}/page", raw=False)).text.endswith("\nT\n\nHi\n\na [link](/b)")
        assert (await fetch(f"{base}/page", raw=True)).text.endswith(page.decode())
        assert server.seen[0] == (f"one.test:{server.port}", "/text")
        missing = await fetch(f"{base}/missing", raw=False)
        assert missing.is_error
        assert missing.error is not None
        assert missing.error.code == "FETCH_STATUS"
        assert missing.text == f"[404 Not Found from {base}/missing]\nno"
        assert missing.meta is not None
        assert missing.meta.value == {"status": 404, "url": f"{base}/missing"}


def packed(body: bytes, encoding: str) -> bytes:
    return ok(body, extra=f"content-encoding: {encoding}\r\n")


async def test_packed_bodies() -> None:
    """A piece of a body may hold gigabytes: no more of it is unpacked than is kept."""
    once = gzip.compress(b"x" * 300_000_000)
    pages = {
        "/plain": packed("é".encode(), "identity"),
        "/small": packed(gzip.compress("é".encode()), "gzip"),
        "/bomb": packed(once, "GZIP"),
        "/twice": packed(gzip.compress(once), "gzip, gzip"),
        "/other": packed(b"x", "br"),
        "/broken": packed(b"no gzip", "gzip"),
    }
    async with serving(pages) as server:
        base = f"http://one.test:{server.port}"
        fetcher = server.fetcher("one.test")
        for path in ("/plain", "/small"):
            assert (await fetcher.fetch(base + path, raw=False)).text == f"[200 OK from {base}{path}]\né"
        tracemalloc.start()
        text = (await fetcher.fetch(f"{base}/bomb", raw=False)).text
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert text.startswith(f"[200 OK from {base}/bomb; only the beginning]\n")
        assert text.count("x") == 2_000_000
        assert most < 30_000_000
        for path in ("/twice", "/other", "/broken"):
            assert await code_of(fetcher, base + path) == "FETCH_FAILED"


@pytest.mark.parametrize("charset", ["idna", "punycode", "undefined", "unicode_escape", "zlib", "nonsense"])
async def test_charsets_that_are_none(charset: str) -> None:
    """Names that only Python knows, some of which fail, and one of which takes for ever."""
    async with serving(
        {"/": ok(b"a-b-" + b"\\u0041-9" * 200_000, f"text/plain; charset={charset}")}
    ) as server:
        fetched = await server.fetcher("one.test").fetch(f"http://one.test:{server.port}/", raw=False)
        assert fetched.text.endswith("-b-" + "\\u0041-9" * 200_000)


async def test_redirects_are_followed_and_each_is_checked() -> None:
    pages = {
        "/ok": ok(b"there"),
        "/relative": to("ok"),
        "/loop": to("/loop"),
        "/out": to("http://two.test/secret"),
    }
    pages |= {
        "/number": to("http://127.0.0.1/x"),
        "/file": to("file:///etc/passwd"),
        "/bad": to("http://x:y/"),
    }
    async with serving(pages) as server:
        port = server.port
        fetcher = server.fetcher("one.test")
        base = f"http://one.test:{port}"
        assert (await fetcher.fetch(f"{base}/relative", raw=False)).text == f"[200 OK from {base}/ok]\nthere"
        assert await code_of(fetcher, f"{base}/out") == "FETCH_FORBIDDEN"
        assert await code_of(fetcher, f"{base}/number") == "FETCH_FORBIDDEN"
        assert await code_of(fetcher, f"{base}/file") == "FETCH_BAD_URL"
        assert await code_of(fetcher, f"{base}/bad") == "FETCH_BAD_URL"
        server.seen.clear()
        assert await code_of(fetcher, f"{base}/loop") == "FETCH_FAILED"
        assert len(server.seen) == 11
        assert {host for host, _ in server.seen} == {f"one.test:{port}"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:PORT/", "FETCH_FORBIDDEN"),
        ("http://[::1]:PORT/", "FETCH_FORBIDDEN"),
        ("http://[::ffff:127.0.0.1]:PORT/", "FETCH_FORBIDDEN"),
        ("http://169.254.169.254/latest/meta-data", "FETCH_FORBIDDEN"),
        ("http://inside.test:PORT/", "FETCH_FORBIDDEN"),
        ("http://nowhere.test/", "FETCH_FAILED"),
        ("http://user:password@one.test:PORT/", "FETCH_BAD_URL"),
        ("file:///etc/passwd", "FETCH_BAD_URL"),
        ("ftp://one.test/", "FETCH_BAD_URL"),
        ("one.test", "FETCH_BAD_URL"),
        ("http://", "FETCH_BAD_URL"),
        ("http://one.test/\ud800", "FETCH_BAD_URL"),
        ("http://\ud800.test/", "FETCH_BAD_URL"),
        ("http://[::127.0.0.1]:PORT/", "FETCH_FORBIDDEN"),
        ("http://2130706433:PORT/", "FETCH_FORBIDDEN"),
        ("http://one.test:99999999/", "FETCH_BAD_URL"),
        ("http://one.test:1/", "FETCH_FAILED"),
    ],
)
async def test_what_is_not_fetched(url: str, code: str) -> None:
    async with serving({}) as server:
        assert await code_of(server.fetcher("one.test"), url.replace("PORT", str(server.port))) == code
        assert server.seen == []


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".test"])
async def test_a_host_that_no_name_server_can_be_asked_for(host: str) -> None:
    with pytest.raises(ToolError) as caught:
        await Fetcher().fetch(f"http://{host}/", raw=False)
    assert caught.value.code == "FETCH_BAD_URL"


def test_one_host_where_several_belong() -> None:
    with pytest.raises(UsageError, match=r"such as \['localhost'\]"):
        fetch_tool(allow="localhost")


async def test_one_port_may_be_allowed() -> None:
    async with serving({"/": ok(b"x")}) as server:
        fetcher = server.fetcher(f"one.test:{server.port}")
        assert (await fetcher.fetch(f"http://one.test:{server.port}/", raw=False)).text.endswith("x")
        assert await code_of(fetcher, "http://one.test/") == "FETCH_FORBIDDEN"


async def test_what_is_no_text_or_too_long() -> None:
    pages = {
        "/png": ok(b"x", "image/png"),
        "/binary": ok(b"a\0b"),
        "/long": ok(b"x" * 3_000_000),
        "/cut": ok(b"x" * 10)[:-5],
    }
    async with serving(pages) as server:
        base = f"http://one.test:{server.port}"
        fetcher = server.fetcher("one.test")
        assert await code_of(fetcher, f"{base}/png") == "FETCH_NOT_TEXT"
        assert await code_of(fetcher, f"{base}/binary") == "FETCH_NOT_TEXT"
        assert await code_of(fetcher, f"{base}/cut") == "FETCH_FAILED"
        text = (await fetcher.fetch(f"{base}/long", raw=False)).text
        assert text.startswith(f"[200 OK from {base}/long; only the beginning]\n")
        assert text.count("x") == 2_000_000


async def test_the_tool_itself() -> None:
    async with serving({"/": ok(b"y" * 50)}) as server:
        tool = fetch_tool(allow=["LOCALHOST"], output_limit=60)
        assert (tool.name, tool.effect, tool.is_parallel({})) == ("fetch", "idempotent", True)
        url = f"http://localhost:{server.port}/"
        result: ToolReturn = await tool.invoke(
            tool.structure({"url": url}), ToolContext(call_id="c", name="fetch")
        )
        assert "characters left out here" in result.text
        assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]


# --- pages to text --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("plain", "plain"),
        ("a<br>b<div>c</div>d", "a\nb\nc\nd"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("a &amp; b &lt;c&gt;", "a & b <c>"),
        ("<script>x<b></script>y<style>z</style>", "y"),
        ("<a>no target</a> <a href=''>empty</a>", "no target empty"),
        ("</script>a</a></pre>b", "a\nb"),
        ("x   y\n\n z", "x y z"),
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("<!-- a --><!doctype html>b<", "b<"),
        ("<!-->a<!--b->c-->d<!--", "ad"),
        ("a<?php x?>b</ c>d</>e<![endif]-->f<![<![ g", "abdef"),
        ("a < b <= c &lt;d", "a < b <= c <d"),
        ("<a title='<a>' HREF = \"/x?a&amp;b\" href=/y>one</a >", "[one](/x?a&b)"),
        ("<a href=/x/>one</a><a href='/y'/>two<a href", "[one](/x/)[](/y)two"),
        ("a<div class='open>b</div>", "a"),
        ("<title>a < <b> &amp; c</TITLE>d<textarea><p></textarea>", "a < <b> & c\nd<p>"),
        ("<script>a", ""),
        ("<svg><a href=/x>x</a></svg>y", "y"),
        ("a<script>'</scripts>'</script\n>b<script/>c<iframe><p>d</iframe>e", "abce"),
        ("&#x41;&#0000000065;&#99999999999;&#x" + "0" * 9 + "41;&#" + "9" * 5000, "AA\ufffdA\ufffd"),
        ("<p>a<pre>if x:\n    y\n\tz</pre>b  c", "a\nif x:\n    y\n        z\nb c"),
    ],
)
def test_html(page: str, text: str) -> None:
    assert html_to_text(page) == text


@pytest.mark.parametrize(
    "piece",
    ["<", "</", "<a ", "<a/", "<a =", "<a b=\"", "<a b='\"", "<!--", "<!-- --", "<![", "<?", "&", "&#", "<a x=y ", "<pre> ", "\n\xa0", "<script></script", "<title></title ", "<svg>"],
)  # fmt: skip
def test_no_page_takes_long(piece: str) -> None:
    """A time that grows with the square of the length would be hours for a page of two megabytes."""
    html_to_text(piece * (200_000 // len(piece)))
