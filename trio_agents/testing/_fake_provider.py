"""A provider on loopback: a real HTTP server that answers from a script, faults included."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, assert_never, final

import trio

from ..errors import UsageError
from ..models import Call, Gate, Hang, Raise, Reply, Sleep, Stubborn
from ..models._reply import NumberedCall
from ..values._chunks import Chunk
from ..values._json import JsonValue, dump_json, load_json
from ._fake_script import (
    Broken,
    Dripped,
    ProviderAnswer,
    ProviderReply,
    ProviderRequest,
    Reset,
    Status,
    as_provider_reply,
)
from ._fake_wire import PROTOCOLS, Wire

if TYPE_CHECKING:
    import h11

_KEEP_ALIVE_EVERY: Final = 0.01
_EXHAUSTED: Final = Status(
    status=501, message="the fake provider's script is used up", code="script_exhausted"
)


@asynccontextmanager
async def open_fake_provider(
    script: Iterable[ProviderAnswer] | Callable[[ProviderRequest], ProviderReply] | Reply = (),
) -> AsyncIterator[FakeProvider]:
    """A fake provider on a free port of the loopback interface, for as long as the block lasts.

    It speaks the protocol of the path that it is asked on: `.../chat/completions`, `.../responses` or
    `.../messages`. Point an adapter at `base_url`, that of `Anthropic` at `root_url`. Use a real clock: under an autojump clock, sockets look like silence.

    Args:
        script: what to answer, one entry per request over all connections; a function of the request; or one
            reply for all of them.

    Raises:
        UsageError: h11 is missing.
    """
    try:
        import h11  # noqa: F401
    except ModuleNotFoundError as exc:
        raise UsageError("a fake provider needs h11: pip install 'trio-agents[openai]'") from exc
    server = FakeProvider(script)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server._port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, server._serve, [listener], name="fake provider")
        try:
            yield server
        except Exception as exc:  # noqa: BLE001 - raised again below, where the nursery does not wrap it
            failure = exc
        finally:
            nursery.cancel_scope.cancel("the fake provider's block is left")
    if failure is not None:
        raise failure


@final
class FakeProvider:
    """What `open_fake_provider` gives: where the server is, and what it has seen."""

    def __init__(
        self, script: Iterable[ProviderAnswer] | Callable[[ProviderRequest], ProviderReply] | Reply
    ) -> None:
        self._answer = (
            (lambda _: script) if isinstance(script, Reply) else script if callable(script) else None
        )
        self._answers: Iterator[ProviderAnswer] = (
            iter(()) if isinstance(script, Reply) or callable(script) else iter(script)
        )
        self._port = 0
        self._requests: list[ProviderRequest] = []
        self._open = 0
        self._connections = 0
        self._changed = trio.Event()
        self._stalled = trio.Event()

    @property
    def base_url(self) -> str:
        """What to give an adapter as its `base_url`."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The same without `/v1`, for adapters that add it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[ProviderRequest]:
        """Every request so far, oldest first."""
        return self._requests

    @property
    def connections(self) -> int:
        """How many connections there have been."""
        return self._connections

    @property
    def open_connections(self) -> int:
        """How many connections stand now."""
        return self._open

    async def wait_connections(self, count: int) -> None:
        """Wait until exactly so many connections stand."""
        while self._open != count:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_stalled(self) -> None:
        """Wait until an answer has come to the place where it says nothing more (`stall`, `Hang`)."""
        await self._stalled.wait()

    def _count(self, by: int) -> None:
        self._open += by
        self._connections += max(by, 0)
        self._changed.set()
        self._changed = trio.Event()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._count(1)
        try:
            await _Connection(self, stream).run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client left, which is a client's right
        finally:
            self._count(-1)

    def _next(self, request: ProviderRequest) -> Reply | Broken | Dripped | Status | Reset:
        self._requests.append(request)
        if self._answer is not None:
            return as_provider_reply(self._answer(request))
        answer = next(self._answers, _EXHAUSTED)
        return as_provider_reply(
            answer(request) if callable(answer) and not isinstance(answer, Reply) else answer
        )


@final
class _Gone(Exception):
    """This connection serves no further request."""


@final
class _Connection:
    """One connection: requests in, answers out, until one side leaves."""

    def __init__(self, server: FakeProvider, stream: trio.SocketStream) -> None:
        import h11

        self._server = server
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        import h11

        try:
            while True:
                request = await self._receive()
                if request is None:
                    return
                await self._answer(request, self._server._next(request))
                if self._http.our_state is h11.MUST_CLOSE:
                    return
                self._http.start_next_cycle()
        except (_Gone, h11.RemoteProtocolError):
            return  # broken by us, or left by the client in the middle of a request

    async def _receive(self) -> ProviderRequest | None:
        import h11

        head: h11.Request | None = None
        body = bytearray()
        while True:
            item = self._http.next_event()
            if item is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some())
            elif isinstance(item, h11.Request):
                head = item
            elif isinstance(item, h11.Data):
                body += item.data
            elif isinstance(item, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:  # the connection is over
                return None

    async def _answer(
        self, request: ProviderRequest, reply: Reply | Broken | Dripped | Status | Reset
    ) -> None:
        make = next((make for path, make in PROTOCOLS.items() if request.path.endswith(path)), None)
        if make is None:
            reply = Status(status=404, message=f"nothing is served at {request.path}", code="not_found")
            make = next(iter(PROTOCOLS.values()))
        wire = make(request.body if isinstance(request.body, dict) else {})
        if isinstance(reply, Reset):
            self._reset()
        elif isinstance(reply, Status):
            await self._error(reply)
        elif isinstance(reply, Dripped):
            await self._head()
            whole = b"".join(data for item in _items(reply.reply, wire, 1) if isinstance(data := item, bytes))
            for start in range(0, len(whole), reply.size):
                await self._data(whole[start : start + reply.size])
                await trio.sleep(reply.seconds)
            await self._end()
        elif isinstance(reply, Broken):
            await self._broken(reply, wire)
        elif isinstance(reply, Reply):
            await self._whole(reply, wire)
        else:
            assert_never(reply)

    async def _whole(self, reply: Reply, wire: Wire) -> None:
        await self._head()
        for item in _items(reply, wire, len(self._server._requests)):
            await self._act(item)
        await self._end()

    async def _broken(self, fault: Broken, wire: Wire) -> None:
        await self._head()
        sent = 0
        for item in _items(fault.reply, wire, len(self._server._requests)):
            if sent >= fault.after:
                break
            await self._act(item)
            sent += isinstance(item, bytes)
        if fault.how == "reset":
            self._reset()
        elif fault.how == "stall":
            await self._until_client_leaves()
        elif fault.how == "keep-alive":
            while True:
                await self._data(b": keep-alive\n\n")
                await trio.sleep(_KEEP_ALIVE_EVERY)
        elif fault.how == "garbage":
            await self._data(b'data: {"choices": [{"delta"\n\n')
        elif fault.how == "error":
            await self._data(wire.error())
        await self._end()

    async def _act(self, item: bytes | Sleep | Gate | Raise | Hang | Stubborn | Call) -> None:
        if isinstance(item, bytes):
            await self._data(item)
        elif isinstance(item, Sleep | Stubborn):
            await trio.sleep(item.seconds)
        elif isinstance(item, Gate):
            item.reached.set()
            await item.opened.wait()
        elif isinstance(item, Hang):
            await self._until_client_leaves()
        elif isinstance(item, Raise):
            self._reset()
        elif isinstance(item, Call):
            item.fn()
        else:
            assert_never(item)

    # --- bytes

    async def _head(self) -> None:
        import h11

        headers = [("content-type", "text/event-stream"), ("x-request-id", self._request_id())]
        await self._send(h11.Response(status_code=200, headers=[*headers, ("transfer-encoding", "chunked")]))

    async def _error(self, status: Status) -> None:
        import h11

        body = status.raw
        if body is None:
            error: JsonValue = {"message": status.message, "type": status.code, "code": status.code}
            body = dump_json({"error": error})
        headers = [
            ("content-type", status.content_type),
            ("content-length", str(len(body))),
            ("x-request-id", status.request_id or self._request_id()),
        ]
        if status.retry_after is not None:
            headers.append(("retry-after", status.retry_after))
        await self._send(h11.Response(status_code=status.status, headers=headers))
        await self._data(body)
        await self._end()

    async def _data(self, data: bytes) -> None:
        import h11

        await self._send(h11.Data(data=data))

    async def _end(self) -> None:
        import h11

        await self._send(h11.EndOfMessage())

    async def _send(self, item: h11.Event) -> None:
        data = self._http.send(item)
        if data:
            await self._stream.send_all(data)

    def _request_id(self) -> str:
        return f"req-{len(self._server._requests)}"

    def _reset(self) -> None:
        """Break the connection as a crash would: the client reads a reset, not an end."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._stream.socket.close()
        raise _Gone

    async def _until_client_leaves(self) -> None:
        self._server._stalled.set()
        while await self._stream.receive_some():
            pass
        raise _Gone


def _request(head: h11.Request, body: bytes) -> ProviderRequest:
    try:
        parsed = load_json(body)
    except ValueError:
        parsed = None
    return ProviderRequest(
        method=head.method.decode(),
        path=head.target.decode().partition("?")[0],
        headers={name.decode().lower(): value.decode() for name, value in head.headers},
        body=parsed,
    )


def _items(
    reply: Reply, wire: Wire, number: int
) -> Iterator[bytes | Sleep | Gate | Raise | Hang | Stubborn | Call]:
    yield from wire.start()
    for step in reply.steps:
        if isinstance(step, NumberedCall):
            for chunk in step.expand(number):
                yield from wire.chunk(chunk)
        elif isinstance(step, Chunk):
            yield from wire.chunk(step)
        else:
            yield step
