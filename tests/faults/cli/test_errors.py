"""What goes wrong on the command line is one line and an exit code, and the log is unharmed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.cli.programs import complaints, run_cli
from trio_agents.models import Reply
from trio_agents.storage import JsonlStore
from trio_agents.testing import Broken, FakeProvider, Status, open_fake_provider

pytest.importorskip("httpx2")


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with open_fake_provider() as server:
        yield server


def log_of(store: Path, session_id: str = "s") -> Path:
    [log] = store.glob(f"*/{session_id}/session.jsonl")
    return log


async def is_sound(store: Path, session_id: str = "s") -> bool:
    verdict = await JsonlStore(store).verify(session_id)
    return not verdict.problems and not verdict.issues and not verdict.torn


async def ask(store: Path, *arguments: str, **variables: str) -> tuple[int, list[str], str]:
    done = await run_cli(
        "run", "hello", "--store", store, "--retries", "0", *arguments, cwd=None, input="", **variables
    )
    return done.returncode, complaints(done.stderr), done.stderr


async def test_an_unknown_provider_is_bad_usage_and_stores_nothing(tmp_path: Path) -> None:
    code, said, _ = await ask(tmp_path / "store", "--model", "nobody/nothing")
    assert (code, len(said)) == (2, 1)
    assert "nobody/nothing" in said[0]
    assert "demo" in said[0]
    assert not (tmp_path / "store").exists()


async def test_a_model_name_without_a_provider_is_bad_usage(tmp_path: Path) -> None:
    code, said, _ = await ask(tmp_path, "--model", "gpt")
    assert (code, len(said)) == (2, 1)
    assert "provider/model" in said[0]


async def test_a_model_that_the_provider_does_not_know(tmp_path: Path) -> None:
    answer = Status(status=404, message="The model `x` does not exist", code="model_not_found")
    async with open_fake_provider([answer]) as server:
        code, said, _ = await ask(
            tmp_path, "--model", "openai/x", "--session", "s",
            OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY="k",
        )  # fmt: skip
    assert (code, len(said)) == (1, 1)
    assert "does not exist" in said[0]
    assert await is_sound(tmp_path)


async def test_a_missing_key(tmp_path: Path) -> None:
    code, said, _ = await ask(tmp_path, "--model", "openai/x", "--session", "s")
    assert (code, len(said)) == (1, 1)
    assert "OPENAI_API_KEY" in said[0]
    assert await is_sound(tmp_path)


async def test_an_unreachable_endpoint(tmp_path: Path) -> None:
    code, said, _ = await ask(
        tmp_path, "--model", "openai/x", "--session", "s", OPENAI_BASE_URL="http://127.0.0.1:9/v1"
    )
    assert (code, len(said)) == (1, 1)
    assert "TRANSPORT" in said[0]
    assert await is_sound(tmp_path)


async def test_a_stream_that_breaks_keeps_what_came(tmp_path: Path) -> None:
    """ERR-1"""
    async with open_fake_provider([Broken(Reply.text("one two three"), after=2, how="reset")]) as server:
        code, said, _ = await ask(
            tmp_path, "--model", "openai/x", "--session", "s", OPENAI_BASE_URL=server.base_url
        )
    assert (code, len(said)) == (1, 1)
    assert await is_sound(tmp_path)


async def test_a_stream_that_breaks_is_tried_again(tmp_path: Path) -> None:
    """ERR-5: nothing had come yet, so the request is sent again."""
    async with open_fake_provider([Status(status=503), Reply.text("fine now")]) as server:
        done = await run_cli(
            "run", "hello", "--store", tmp_path, "--model", "openai/x", "--retries", "1",
            OPENAI_BASE_URL=server.base_url,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "fine now\n")
    assert "trying again" in done.stderr


async def test_a_tool_that_raises_and_arguments_that_do_not_fit_are_told_to_the_model(tmp_path: Path) -> None:
    """TOOL-8: a tool's failure is its result; the turn goes on."""
    prompt = '/read {"path": "nowhere.txt"}\n/read {"file": 3}'
    done = await run_cli(
        "run", prompt, "--store", tmp_path / "store", "--session", "s", "--json", cwd=tmp_path
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    results = [(line["is_error"], line["error"]) for line in told if line["type"] == "tool_result"]
    assert results == [(True, "FS_NOT_FOUND"), (True, "INVALID_ARGS")]
    assert (done.returncode, told[-1]["end"], complaints(done.stderr)) == (0, "completed", [])
    assert await is_sound(tmp_path / "store")


async def test_a_store_that_is_no_folder(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.write_text("not a folder")
    code, said, _ = await ask(place)
    assert (code, len(said)) == (1, 1)
    assert str(place) in said[0]
    assert place.read_text() == "not a folder"


async def test_a_log_of_another_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    """PER-17"""
    await ask(tmp_path, "--session", "s")
    log = log_of(tmp_path)
    changed = log.read_bytes().replace(b'"version":0', b'"version":7', 1)
    log.write_bytes(changed)
    code, said, _ = await ask(tmp_path, "--session", "s", "--resume")
    assert (code, len(said)) == (1, 1)
    assert "version" in said[0]
    for arguments in (("sessions", "show", "s"), ("replay", "s"), ("sessions", "show", str(log))):
        done = await run_cli(*arguments, "--store", tmp_path)
        assert (done.returncode, len(complaints(done.stderr))) == (1, 1)
    assert log.read_bytes() == changed


async def test_a_damaged_log_is_refused_verified_and_repaired(tmp_path: Path) -> None:
    """PER-7"""
    await ask(tmp_path, "--session", "s")
    log = log_of(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], b"{broken\n", *lines[5:]]))
    code, said, _ = await ask(tmp_path, "--session", "s", "--resume")
    assert (code, len(said)) == (1, 1)
    assert "line 5" in said[0]
    done = await run_cli("sessions", "verify", "s", "--store", tmp_path, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"]
    assert (await run_cli("sessions", "repair", "s", "--store", tmp_path)).returncode == 0
    assert (await run_cli("sessions", "verify", "s", "--store", tmp_path)).returncode == 0


async def test_a_session_that_is_there_already(tmp_path: Path) -> None:
    await ask(tmp_path, "--session", "s")
    code, said, _ = await ask(tmp_path, "--session", "s")
    assert (code, len(said)) == (1, 1)
    assert "'s'" in said[0]
    assert await is_sound(tmp_path)
