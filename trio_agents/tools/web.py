"""A tool that fetches what a URL names, from public hosts."""

from __future__ import annotations

import codecs
import contextlib
import ipaddress
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeAlias, final

import attrs
import trio

from ..errors import ToolError, UsageError
from ..session._events import ToolFailure
from ._definition import Tool, tool
from ._html import html_to_text
from ._results import ToolReturn

if TYPE_CHECKING:
    import httpx2

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""From a host's name and a port to its addresses."""

_MAX_REDIRECTS: Final = 10
_MAX_BODY: Final = 2_000_000
_CLOSE_GRACE: Final = 2.0
_TEXTUAL: Final = (
    "json",
    "xml",
    "javascript",
    "yaml",
    "toml",
    "csv",
    "x-sh",
    "x-python",
    "x-www-form-urlencoded",
)
# Networks whose addresses hold an IPv4 address in their last 32 bits: NAT64, the two old ways to write one, and SIIT.
_HOLDING: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
# NAT64 as a network chose it: where in it the IPv4 address stands is that network's business.
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
# Codecs of Python's own, which no page is written in; one of them takes a time that grows with the square.
_NO_CHARSETS: Final = frozenset(
    {"idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
)


def fetch_tool(
    *, allow: Collection[str] = (), timeout: float = 30.0, output_limit: int = 50_000
) -> Tool[..., object]:
    """The tool `fetch`: the text behind an http or https URL. Needs httpx2.

    Only public addresses are reached, whatever the name in the URL is: a host is looked up first, its addresses are
    checked, and the connection goes to the very address that was checked. Each redirect is checked in the same
    way. Proxies and credentials of the environment are not used. At most 2 MB of a page are read, whatever it is packed
    as and unpacks to.

    Args:
        allow: hosts that may be reached though their addresses are not public, as `host` or `host:port`.
        timeout: seconds for everything, redirects included.
        output_limit: how many characters of text are kept.

    Raises:
        UsageError: httpx2 is not installed, or an option is out of range.
    """
    if isinstance(allow, str):
        raise UsageError(f"allow is a collection of hosts, such as [{allow!r}], not one of them")
    try:
        import httpx2  # noqa: F401 - now rather than in a running loop, which it would hold up
    except ModuleNotFoundError as exc:
        raise UsageError(
            "the fetch tool needs httpx2, which comes with an extra: pip install 'trio-agents[openai]'"
        ) from exc
    fetcher = Fetcher(allow=frozenset(each.lower() for each in allow))

    @tool(effect="idempotent", parallel=True, timeout=timeout, output_limit=output_limit)
    async def fetch(url: str, raw: bool = False) -> ToolReturn:
        """Fetch a URL and give back its text. Of a web page, the readable text with its links.

        Args:
            url: the URL, http or https.
            raw: give back the source of a web page instead.
        """
        return await fetcher.fetch(url, raw=raw)

    return fetch


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, as the operating system knows them.

    Raises:
        OSError: there are none.
    """
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def is_public(address: str) -> bool:
    """Whether an address is one that anybody on the internet may reach, also where it wraps another one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.is_site_local or found in _LOCAL_NAT64:
            return False
        inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
        if any(found in network for network in _HOLDING):
            inner.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
        if any(each is not None and not is_public(str(each)) for each in inner):
            return False
        if found.ipv4_mapped is not None:
            return True  # judged by what it wraps
    return found.is_global and not found.is_multicast


@final
@attrs.frozen(kw_only=True)
class Fetcher:
    """What `fetch` does. The look-up of names can be replaced."""

    allow: frozenset[str] = frozenset()
    resolve: Resolve = resolve

    async def fetch(self, url: str, *, raw: bool) -> ToolReturn:
        """Follow a URL to its end and read what is there.

        Raises:
            ToolError: FETCH_BAD_URL, FETCH_FORBIDDEN, FETCH_FAILED, FETCH_NOT_TEXT.
        """
        import httpx2

        try:
            at = httpx2.URL(url)
            async with httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None) as client:
                for _ in range(_MAX_REDIRECTS + 1):
                    response = await self._send(client, at)
                    async with _closed_in_time(response):
                        if not response.has_redirect_location:
                            return await _result(response, at, raw=raw)
                        at = at.join(response.headers["location"])
        except (httpx2.InvalidURL, UnicodeError) as exc:  # or a name that DNS cannot express
            raise ToolError(f"{url}: it is no valid URL: {exc}", code="FETCH_BAD_URL") from exc
        except httpx2.HTTPError as exc:
            raise ToolError(f"{url}: {str(exc) or type(exc).__name__}", code="FETCH_FAILED") from exc
        raise ToolError(f"{url}: it redirects more than {_MAX_REDIRECTS} times", code="FETCH_FAILED")

    async def _send(self, client: httpx2.AsyncClient, at: httpx2.URL) -> httpx2.Response:
        import httpx2

        if at.scheme not in {"http", "https"} or not at.host:
            raise ToolError(f"{at}: only http and https URLs can be fetched", code="FETCH_BAD_URL")
        if at.port is not None and not 0 < at.port < 65536:
            raise ToolError(f"{at}: there is no port {at.port}", code="FETCH_BAD_URL")
        if at.userinfo:
            raise ToolError("a URL with a user name or password is not fetched", code="FETCH_BAD_URL")
        host = at.raw_host.decode("ascii")
        last: httpx2.ConnectError | None = None
        for address in await self._addresses(at, host):
            request = client.build_request(
                "GET",
                at.copy_with(host=address),
                headers={
                    "host": at.netloc.decode("ascii"),
                    "user-agent": "trio-agents",
                    "accept": "text/*, */*;q=0.5",
                    "accept-encoding": "gzip",
                },
                extensions={"sni_hostname": host},
            )
            try:
                return await client.send(request, stream=True)
            except httpx2.ConnectError as exc:
                last = exc
        raise ToolError(f"{at}: no connection to {host}: {last}", code="FETCH_FAILED") from last

    async def _addresses(self, at: httpx2.URL, host: str) -> list[str]:
        port = at.port or (443 if at.scheme == "https" else 80)
        try:
            addresses = [str(ipaddress.ip_address(host.strip("[]")))]
        except ValueError:
            try:
                addresses = await self.resolve(host, port)
            except OSError as exc:
                raise ToolError(f"{at}: the host {host} is not known: {exc}", code="FETCH_FAILED") from exc
        if self.allow.isdisjoint({host, f"{host}:{port}"}):
            for address in addresses:
                if not is_public(address):
                    raise ToolError(f"{at}: {host} is no public host", code="FETCH_FORBIDDEN")
        return addresses


@contextlib.asynccontextmanager
async def _closed_in_time(response: httpx2.Response) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with trio.move_on_after(_CLOSE_GRACE, shield=True):
            await response.aclose()


async def _result(response: httpx2.Response, at: httpx2.URL, *, raw: bool) -> ToolReturn:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and not kind.startswith("text/") and not any(word in kind for word in _TEXTUAL):
        raise ToolError(f"{at}: it is {kind}, not text", code="FETCH_NOT_TEXT")
    data, is_whole = await _body(response, at)
    if b"\0" in data[:1024]:
        raise ToolError(f"{at}: it is binary, not text", code="FETCH_NOT_TEXT")
    text = _decoded(response, data)
    if not raw and kind in {"text/html", "application/xhtml+xml"}:
        text = await trio.to_thread.run_sync(html_to_text, text, abandon_on_cancel=True)
    status = f"[{response.status_code} {response.reason_phrase} from {at}{'' if is_whole else '; only the beginning'}]"
    failed = response.status_code >= 400
    return ToolReturn(
        f"{status}\n{text}",
        is_error=failed,
        error=ToolFailure(name="ToolError", code="FETCH_STATUS") if failed else None,
        meta={"status": response.status_code, "url": str(at)},
    )


async def _body(response: httpx2.Response, at: httpx2.URL) -> tuple[bytes, bool]:
    """The beginning of a body, and whether it is all of it."""
    unpack = _unpacker(response, at)
    data = bytearray()
    problem: zlib.error | None = None
    # A stream is a chain of generators. Left half-way, the inner ones would wait for the garbage collector, so the
    # next read is cancelled instead, which ends all of them.
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_raw():
            try:
                data += unpack(chunk, _MAX_BODY + 1 - len(data))
            except zlib.error as exc:
                problem = exc
            if problem is not None or len(data) > _MAX_BODY:
                enough.cancel()
    if problem is not None:
        raise ToolError(f"{at}: it cannot be unpacked: {problem}", code="FETCH_FAILED") from problem
    return bytes(data[:_MAX_BODY]), len(data) <= _MAX_BODY


def _unpacker(response: httpx2.Response, at: httpx2.URL) -> Callable[[bytes, int], bytes]:
    """From a piece of a body to what it says, of which so many bytes are wanted: a small piece may hold gigabytes."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return lambda data, _wanted: data
    if encoding not in {"gzip", "x-gzip"}:
        raise ToolError(f"{at}: it is packed as {encoding}, which was not asked for", code="FETCH_FAILED")
    gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    return lambda data, wanted: gzip.decompress(data, max(wanted, 1))  # 0 would be all of it


def _decoded(response: httpx2.Response, data: bytes) -> str:
    charset = response.charset_encoding or "utf-8"
    try:
        if codecs.lookup(charset).name.replace("_", "-") not in _NO_CHARSETS:
            return data.decode(charset, "replace")
    except LookupError:  # a charset that nobody knows
        pass
    return data.decode("utf-8", "replace")
