"""The server of the how-to page, as a program, with real clients and a real SIGTERM."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

import trio_agents as ta
from trio_agents.values import BY_USER, COMPLETED, Aborted

pytest.importorskip("hypercorn.trio")
wsproto = pytest.importorskip("wsproto")
from wsproto.events import AcceptConnection, CloseConnection, RejectConnection, Request, TextMessage  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "server.md"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")


class Client:
    """One WebSocket connection."""

    def __init__(self, port: int, path: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.events: list[object] = []
        self.send(Request(host="127.0.0.1", target=f"/{path}"))

    def send(self, event: object) -> None:
        """Send an event."""
        self.socket.sendall(self.ws.send(event))

    def next(self) -> object:
        """The next event that came, or None at the end of the connection."""
        while not self.events:
            data = self.socket.recv(4096)
            self.ws.receive_data(data or None)
            self.events += list(self.ws.events())
            if not data:
                break
        return self.events.pop(0) if self.events else None

    def text(self, size: int) -> str:
        """The next characters of text."""
        found = ""
        while len(found) < size:
            event = self.next()
            assert isinstance(event, TextMessage), event
            found += event.data
        return found


@pytest.fixture
def connect() -> Iterator[Callable[[int, str], Client]]:
    """Connects clients, and closes them in the end."""
    clients: list[Client] = []

    def connect(port: int, path: str) -> Client:
        clients.append(Client(port, path))
        return clients[-1]

    yield connect
    for client in clients:
        client.socket.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The program of the page, once it answers, on a free port."""
    match = re.search(r"```python test=\"skip\"\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = tmp_path / "server.py"
    assert "127.0.0.1:8000" in match[1]
    program.write_text(match[1].replace("127.0.0.1:8000", f"127.0.0.1:{port}"), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(program)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield process, port
    finally:
        process.kill()
        process.communicate()


def ends(directory: Path, id: str) -> list[object]:
    """How the turns of a stored session ended."""

    async def read() -> list[object]:
        store = ta.JsonlStore(directory / "sessions")
        assert (await store.verify(id)).problems == ()
        events = (await store.inspect(id)).events
        return [event.data.reason for event in events if event.type == "turn/end"]

    return trio.run(read)


def test_the_server_of_the_page(
    server: tuple[subprocess.Popen[str], int], connect: Callable[[int, str], Client], tmp_path: Path
) -> None:
    """DIS-11, DIS-13: an agent for each connection, one id once, lost connections, and a drain on SIGTERM."""
    process, port = server
    one, two = connect(port, "one"), connect(port, "two")
    for client in (one, two):
        assert isinstance(client.next(), AcceptConnection)
        client.send(TextMessage("hello"))
    assert [client.text(13) for client in (one, two)] == ["Hello, world."] * 2
    second = connect(port, "one")
    assert isinstance(second.next(), RejectConnection | CloseConnection)

    two.send(TextMessage("and again"))
    time.sleep(0.3)
    two.socket.close()  # the client is gone in the middle of a turn
    for _ in range(100):
        again = connect(port, "two")
        if isinstance(again.next(), AcceptConnection):
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the agent of a lost connection was never ended")

    one.send(TextMessage("slowly"))
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert one.text(13) == "Hello, world."
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert ends(tmp_path, "one") == [COMPLETED, COMPLETED]
    assert ends(tmp_path, "two") == [COMPLETED, Aborted(reason=BY_USER)]
