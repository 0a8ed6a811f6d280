"""One endpoint of a provider over HTTP: connection pool, deadlines, events in, errors as `ModelError`.

The rules that every adapter gets from here:

* A response is closed, and its connection given back or broken, before `post` returns or raises.
* The adapter's four deadlines measure what the provider does. Time that passes inside the callback, and lines
  that only keep a connection alive, count for nothing.
* An httpx2 stream is a chain of generators. It is read to its end, or cancelled to its end; it is never dropped
  half-way, which would leave its connection to the garbage collector.
"""

from __future__ import annotations

import contextlib
import functools
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, final

import trio

from ..errors import ModelError, UsageError
from ._deadlines import Deadlines, Watch
from ._failures import Redactor, error_from_response, request_id
from ._reading import NOTHING, PROGRESS, OnEvent, Reader, Verdict
from ._sse import SseDecoder

if TYPE_CHECKING:
    import httpx2

_ERROR_BODY: Final = 64 * 1024
"""Bytes of an error's body that are looked at."""
_ERROR_BODY_WAIT: Final = 5.0
_DRAIN: Final = 0.5
"""Seconds that the end of a response may take after its last event; its connection can then be used again."""
_CLOSE_GRACE: Final = 5.0
_MOST_PIECES: Final = 10_000
"""Pieces that are taken from a stream which should have ended at its next checkpoint."""
_SECRET: Final = re.compile(
    "(?i)auth|key|token|secret|cookie|passw|pwd|credential|signature|^(sig|code|pass)$"
)
"""Names of headers and of parts of a query that hold secrets."""
_TOKEN: Final = re.compile("(?i)[a-z0-9]{16}|[0-9a-f]{8}-[0-9a-f]{4}-")
"""What makes a header's value one, whatever its name."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


@final
class Endpoint:
    """Posts requests and pushes the events of their answers. One per adapter; safe for many tasks at once."""

    def __init__(
        self,
        *,
        who: str,
        base_url: str,
        headers: Mapping[str, str],
        secrets: Mapping[str, str],
        deadlines: Deadlines,
        client: httpx2.AsyncClient | None = None,
        max_connections: int = 100,
    ) -> None:
        """Keep what is needed; no connection is made yet.

        Args:
            who: the provider, for texts.
            base_url: what paths are added to.
            headers: sent with every request, and shown to nobody.
            secrets: likewise; their values are taken out of every text as well.
            deadlines: see there.
            client: the caller's own client, which stays theirs to close.
            max_connections: the size of our own client's pool.

        Raises:
            UsageError: no HTTP URL, or one with a secret in it; or a header that cannot be sent.
        """
        self._who = who
        self._url = _checked_url(who, base_url)
        # A header that the caller gives beats the key that was found in the environment.
        named = {name.lower(): value for name, value in _checked_headers(who, headers.items())}
        self._headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "trio-agents",
            **secrets,
            **named,
        }
        self._deadlines = deadlines
        self._client = client
        self._owned: httpx2.AsyncClient | None = None
        self._opening = trio.Lock()
        self._max_connections = max_connections
        told = [value for name, value in named.items() if _SECRET.search(name) or _TOKEN.search(value)]
        hidden = [*secrets.values(), *told]
        self.redact = Redactor(hidden)

    @property
    def shown_url(self) -> str:
        """The base URL without its query."""
        port = "" if self._url.port is None else f":{self._url.port}"
        return self.redact(f"{self._url.scheme}://{self._url.host}{port}{self._url.path.rstrip('/')}")

    async def aclose(self) -> None:
        """Close our own client and its connections; a later request opens another. A caller's client is left."""
        owned, self._owned = self._owned, None
        if owned is not None:
            with trio.move_on_after(_CLOSE_GRACE, shield=True):
                await owned.aclose()
        await trio.lowlevel.checkpoint()

    async def exchange(self, path: str, body: bytes, reader: Reader) -> None:  # noqa: ASYNC910  `post` is one
        """Send a request and let a reader emit the answer.

        Raises:
            ModelError: the request failed, or the stream ended before the answer did.
        """
        try:
            await self.post(path, body, reader.read)
        except ModelError as error:
            # The answer was complete; what failed is the end of its transport, which told nothing more.
            if not reader.complete or error.code not in {"MALFORMED_RESPONSE", "TIMEOUT", "TRANSPORT"}:
                raise
        reader.finish()

    async def post(self, path: str, body: bytes, on_event: OnEvent) -> bool:
        """Send a request and hand over each event of the answer as it comes.

        Returns:
            True if `on_event` called one the last, False if the stream came to its end without it.

        Raises:
            ModelError: the request failed. What `on_event` raises passes through unchanged.
        """
        import httpx2

        watch = Watch(self._who, self._deadlines)
        try:
            with watch.scope:
                client = await self._get_client()
                request = client.build_request(
                    "POST",
                    self._url.copy_with(path=self._url.path + path),
                    content=body,
                    headers=self._headers,
                    timeout=httpx2.Timeout(None, connect=self._deadlines.connect),
                )
                # A redirect would take the key along: clients strip only the header that they know.
                response = await client.send(request, stream=True, follow_redirects=False)
                try:
                    await self._check(response)
                    return await self._pump(response, on_event, watch)
                finally:
                    with trio.move_on_after(_CLOSE_GRACE, shield=True):
                        await response.aclose()
            cause = None
            error = watch.timeout()
        except httpx2.ConnectTimeout as exc:
            cause = self.redact.cause(exc)
            error = watch.connect_timeout()
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as exc:
            cause = self.redact.cause(exc)
            text = str(exc) or type(exc).__name__
            error = ModelError(
                self.redact(f"the connection to {self._who} ({self.shown_url}) failed: {text}"),
                code="TRANSPORT",
                request_id=watch.request_id,
            )
        # Not where it was caught: what may not be its cause would be its context.
        raise error from cause

    async def _get_client(self) -> httpx2.AsyncClient:
        if self._client is not None:
            return self._client
        async with self._opening:
            if self._owned is None:
                # Reading the certificates of the system takes tens of milliseconds: not on the loop.
                make = functools.partial(_make_client, self._url, self._max_connections)
                self._owned = make() if self._url.scheme == "http" else await trio.to_thread.run_sync(make)
            return self._owned

    async def _check(self, response: httpx2.Response) -> None:
        """See that an answer is a stream of events; anything else is an error, and says which."""
        import httpx2

        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        ok = response.status_code == 200
        if ok and kind not in {"application/json", "text/html"}:
            return
        body = bytearray()
        parts = response.aiter_bytes()
        # A body that breaks off, or is not packed as it says, takes nothing away from what the status says.
        with trio.move_on_after(_ERROR_BODY_WAIT), contextlib.suppress(httpx2.HTTPError):
            while len(body) < _ERROR_BODY:
                try:
                    body += await anext(parts)
                except StopAsyncIteration:
                    break
            else:
                await _cancel_to_the_end(parts)
        error = error_from_response(
            self._who, response.status_code, response.headers, bytes(body), self.redact
        )
        if ok:
            raise ModelError(
                self.redact(
                    f"{self._who} answered with {kind} where a stream of events was asked for: {error}"
                ),
                code="MALFORMED_RESPONSE",
                status=200,
                request_id=error.request_id,
            )
        raise error

    async def _pump(self, response: httpx2.Response, on_event: OnEvent, watch: Watch) -> bool:
        decoder = SseDecoder()
        parts = response.aiter_bytes()
        watch.request_id = request_id(response.headers, self.redact)
        while True:
            try:
                piece = await anext(parts)
            except StopAsyncIteration:
                break
            try:
                last = _hand_over(decoder.feed(piece), on_event, watch)
            except BaseException as exc:
                if isinstance(exc, ModelError):
                    exc.request_id = exc.request_id or watch.request_id
                await _cancel_to_the_end(parts)  # noqa: ASYNC102  it is shielded, and already cancelled
                raise
            if last:
                await _drain(parts, watch)
                return True
        try:
            return _hand_over(decoder.close(), on_event, watch)
        except ModelError as exc:
            if exc.code == "MALFORMED_RESPONSE":
                return False  # half an event: the end of the stream cut it off
            exc.request_id = exc.request_id or watch.request_id
            raise


def _checked_url(who: str, base_url: str) -> httpx2.URL:
    """The URL that paths are added to; a query stays with every request.

    Raises:
        UsageError: it is no HTTP URL, or holds a secret: addresses are logged by the HTTP client and by proxies.
            The text does not show it.
    """
    import httpx2

    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError):
        url = httpx2.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(f"the base URL of {who} must begin with http:// or https:// and name a host")
    if url.userinfo or any(_SECRET.search(name) for name in url.params):
        raise UsageError(
            f"the base URL of {who} holds a password or a key, which logs would show: give api_key= or headers="
        )
    return url.copy_with(path=url.path.rstrip("/") + "/")


def _checked_headers(who: str, headers: Iterable[tuple[object, object]]) -> Iterator[tuple[str, str]]:
    """Headers without the blanks around their values.

    Raises:
        UsageError: one cannot be sent. The text does not show its value.
    """
    for name, value in headers:
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise UsageError(f"a header of {who} is called {name!r}, which is no name of an HTTP header")
        plain = value.strip() if isinstance(value, str) else None
        if plain is None or not _HEADER_VALUE.fullmatch(plain):
            raise UsageError(f"the value of header {name!r} of {who} must be a text of printable ASCII")
        yield name, plain


def _make_client(url: httpx2.URL, max_connections: int) -> httpx2.AsyncClient:
    import httpx2

    limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
    if url.scheme == "http":
        # No certificate is ever looked at; a context without any is cheap and trusts nobody.
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        local = url.host in {"localhost", "127.0.0.1", "::1"}
        return httpx2.AsyncClient(limits=limits, verify=bare, trust_env=not local)
    return httpx2.AsyncClient(limits=limits)


def _hand_over(events: list[tuple[bytes, bytes]], on_event: OnEvent, watch: Watch) -> bool:
    seen = NOTHING
    for name, data in events:
        verdict = on_event(name, data)
        if verdict is not NOTHING:
            if verdict is Verdict.LAST:
                return True
            seen = verdict
    if seen is PROGRESS:
        watch.progress()
    elif seen is not NOTHING:
        watch.ending()
    return False


async def _drain(parts: AsyncIterator[bytes], watch: Watch) -> None:
    """Read on to the end of a response that has said everything, so that its connection can be used again."""
    import httpx2

    watch.done()
    with trio.move_on_after(_DRAIN), contextlib.suppress(httpx2.HTTPError):
        async for _ in parts:
            pass


async def _cancel_to_the_end(parts: AsyncIterator[bytes]) -> None:
    """End a chain of generators from its innermost: closing only the outermost would drop the others.

    What it ends by does not matter: the caller has an error of its own.
    """
    import httpx2

    with trio.CancelScope(shield=True) as scope:
        scope.cancel()
        with contextlib.suppress(StopAsyncIteration, httpx2.HTTPError):
            for _ in range(_MOST_PIECES):
                await anext(parts)
