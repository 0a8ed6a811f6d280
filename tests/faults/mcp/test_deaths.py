"""A server dies, or is silent, in the middle of a call (field fault P3)."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_agents as ta
from tests.faults.mcp.servers import Mark, refused, until, use
from trio_agents.plugins.mcp import connect_mcp

ENDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "it exits": ("t_exit", {}, "MCP_LOST", "exited with code 3; its last words: going down"),
    "it exits well": ("t_exit", {"code": 0}, "MCP_LOST", "exited with code 0"),
    "it exits, and somebody holds its pipes": ("t_exit", {"leave": True}, "MCP_LOST", "exited with code 3"),
    "it closes its output": ("t_close", {}, "MCP_LOST", "it closed a pipe"),
    "it answers with an error": ("t_refuse", {}, "MCP_FAILED", "no, not with None (-32000)"),
    "it answers with nonsense": ("t_nonsense", {}, "MCP_BAD_RESULT", "ValidationError"),
}
SLOW = {"it exits", "it exits well"}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=pytest.mark.slow) if what in SLOW else what for what in ENDS],
)
async def test_the_call_ends_within_a_second(what: str, runtime: ta.Runtime, mark: Mark) -> None:
    """P3 a to c: the call is an error at once; calls of another server are unaffected; the server comes back."""
    tool, arguments, code, text = ENDS[what]
    await connect_mcp(runtime.scope, mark.server(), name="other")
    connection = await connect_mcp(runtime.scope, mark.server(), name="t")
    first = (await use(runtime, "t_pid")).text
    beside: list[str] = []

    async def call_the_other() -> None:
        beside.append((await use(runtime, "other_steps", {"count": 3, "every": 0.02})).text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_the_other)
        with trio.fail_after(1):
            exc = await refused(runtime, tool, arguments)
        assert exc.code == code
        assert text in str(exc)
    assert beside == ["all steps"]

    if code != "MCP_LOST":
        assert (await use(runtime, "t_pid")).text == first
        return
    if not connection.is_connected:
        assert (await refused(runtime, "t_echo")).code == "MCP_UNAVAILABLE"
    await until(lambda: connection.is_connected)
    assert (await use(runtime, "t_pid")).text != first


async def test_a_message_without_end(
    runtime: ta.Runtime, mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows it cannot be told from it: the server is started again."""
    monkeypatch.setattr("trio_agents.plugins.mcp._pipes.LONGEST", 100_000)
    connection = await connect_mcp(runtime.scope, mark.server(), name="t")
    first = (await use(runtime, "t_pid")).text
    with trio.fail_after(5):
        exc = await refused(runtime, "t_flood", {"size": 300_000})
    assert exc.code == "MCP_LOST"
    assert "it sent a message of more than 100000 bytes" in str(exc)
    await until(lambda: connection.is_connected and connection.tools)
    assert (await use(runtime, "t_pid")).text != first


async def test_half_a_character_in_an_answer(runtime: ta.Runtime, mark: Mark) -> None:
    """As Python writes it for a file's name that is no text: the answer is taken, and not waited for."""
    await connect_mcp(runtime.scope, mark.server(), name="t")
    with trio.fail_after(5):
        assert (await use(runtime, "t_half")).text == "a\ufffdb"


async def test_a_report_of_a_failed_call_shows_no_secret(runtime: ta.Runtime, mark: Mark) -> None:
    """ERR-10: the server repeats what it was given in confidence."""
    await connect_mcp(runtime.scope, mark.server(SECRET_KEY="s3cr3t-token"), name="t")
    exc = await refused(runtime, "t_refuse")
    report = "".join(traceback.format_exception(exc))
    assert "no, not with ***" in report
    assert "s3cr3t" not in report


async def test_all_calls_of_a_lost_server_end(runtime: ta.Runtime, mark: Mark) -> None:
    await connect_mcp(runtime.scope, mark.server(), name="t")
    codes: list[str] = []

    async def call() -> None:
        codes.append((await refused(runtime, "t_wait")).code)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            codes.append((await refused(runtime, "t_exit")).code)
    assert codes == ["MCP_LOST"] * 11


@pytest.mark.slow
async def test_a_server_that_reads_no_more(runtime: ta.Runtime, mark: Mark) -> None:
    """It is noticed at the next call, which ends; then it is started again."""
    connection = await connect_mcp(runtime.scope, mark.server(), name="t", silence_timeout=0.3)
    assert (await refused(runtime, "t_deaf")).code in {"MCP_TIMEOUT", "MCP_LOST"}
    with trio.fail_after(2):
        while (exc := await refused(runtime, "t_wait")).code == "MCP_TIMEOUT":
            pass
    assert exc.code in {"MCP_LOST", "MCP_UNAVAILABLE"}
    await until(lambda: connection.is_connected)


@pytest.mark.slow
async def test_a_server_that_is_stuck(runtime: ta.Runtime, mark: Mark) -> None:
    """It reads nothing and is not gone: a call ends at its deadline although it could not even be sent."""
    await connect_mcp(runtime.scope, mark.server(), name="t", silence_timeout=0.3)
    assert (await refused(runtime, "t_stop")).code == "MCP_TIMEOUT"
    begin = trio.current_time()
    for _ in range(2):
        assert (await refused(runtime, "t_echo", {"text": "x" * 300_000})).code == "MCP_TIMEOUT"
    assert trio.current_time() - begin < 3


async def test_what_cannot_be_sent(runtime: ta.Runtime, mark: Mark) -> None:
    await connect_mcp(runtime.scope, mark.server(), name="t")
    exc = await refused(runtime, "t_echo", {"text": "\ud800"})
    assert (exc.code, "came to nothing" in str(exc)) == ("MCP_BAD_RESULT", True)
    assert (await use(runtime, "t_echo", {"text": "x"})).text == "x"


async def test_keeping_alive_is_not_progress(runtime: ta.Runtime, mark: Mark) -> None:
    """P3 d: log messages and pings for ever; the call ends at its deadline, and the server stays usable."""
    await connect_mcp(runtime.scope, mark.server(), name="t", silence_timeout=0.3)
    first = (await use(runtime, "t_pid")).text
    begin = trio.current_time()
    exc = await refused(runtime, "t_silent")
    assert 0.25 < trio.current_time() - begin < 2
    assert exc.code == "MCP_TIMEOUT"
    assert "was silent for 0.3 s" in str(exc)
    assert (await use(runtime, "t_pid")).text == first


async def test_progress_prolongs_a_call(runtime: ta.Runtime, mark: Mark) -> None:
    """P3 e: the deadline measures silence."""
    await connect_mcp(runtime.scope, mark.server(), name="t", silence_timeout=0.4)
    told: list[str] = []
    begin = trio.current_time()
    result = await use(runtime, "t_steps", {"count": 6, "every": 0.1}, progress=told.append)
    assert trio.current_time() - begin > 0.5
    assert result.text == "all steps"
    assert told == [f"s{step}" for step in range(6)]


@pytest.mark.slow
async def test_but_not_for_ever(runtime: ta.Runtime, mark: Mark) -> None:
    """P3 e: a hard cap applies."""
    await connect_mcp(runtime.scope, mark.server(), name="t", silence_timeout=5, call_timeout=0.5)
    exc = await refused(runtime, "t_steps", {"count": 1000, "every": 0.05})
    assert exc.code == "MCP_TIMEOUT"
    assert "took longer than 0.5 s" in str(exc)
    assert (await use(runtime, "t_echo", {"text": "x"})).text == "x"


async def test_a_server_that_does_not_come_back(
    runtime: ta.Runtime, mark: Mark, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its calls say why, at once; its tools stay; the attempts stop with the scope."""
    async with runtime.scope.open_child("child") as scope:
        connection = await connect_mcp(scope, mark.server(f"once={tmp_path / 'started'}"), name="t")
        assert (await refused(scope, "t_exit")).code == "MCP_LOST"
        for text in ("exited with code 3", "exited with code 5", "exited with code 5"):
            await until(lambda text=text: text in caplog.text)  # type: ignore[misc]
            exc = await refused(scope, "t_echo")
            assert exc.code == "MCP_UNAVAILABLE"
            assert "is not connected: it exited" in str(exc)
        assert "t_echo" in connection.tools
    assert mark.alive() == []
    away = [record for record in caplog.records if "is away" in record.message]
    assert len(away) == 2  # once for each reason, not for each attempt
