"""trio-typing beside the package: both import, its TaskStatus knows ours, and a consumer still type-checks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio_typing

import trio_agents

HERE = Path(__file__).parent


def test_both_import_in_this_environment() -> None:
    assert trio_agents.__doc__
    assert importlib.util.find_spec("trio-stubs") is not None, (
        "without its stubs this environment tests nothing"
    )


def test_the_names_are_the_same_types() -> None:
    assert trio_typing.Nursery is trio.Nursery


async def test_the_status_that_trio_hands_out_is_a_trio_typing_task_status() -> None:
    seen = []

    async def service(*, task_status: trio_typing.TaskStatus[str]) -> None:
        seen.append(isinstance(task_status, trio_typing.TaskStatus))
        task_status.started("ready")

    async with trio.open_nursery() as nursery:
        assert await nursery.start(service) == "ready"
    seen.append(isinstance(trio.TASK_STATUS_IGNORED, trio_typing.TaskStatus))
    seen.append(isinstance(object(), trio_typing.TaskStatus))
    assert seen == [True, True, False]


async def test_what_one_starts_the_other_may_annotate() -> None:
    @asynccontextmanager
    async def opened(nursery: trio_typing.Nursery) -> AsyncIterator[str]:
        yield await nursery.start(_ready)

    async with trio.open_nursery() as nursery, opened(nursery) as value:
        assert value == "ready"
        nursery.cancel_scope.cancel()


async def _ready(*, task_status: trio_typing.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    task_status.started("ready")
    await trio.sleep_forever()


@pytest.mark.parametrize(("file", "errors"), [("consumer.py", []), ("consumer_wrong.py", ["arg-type"])])
def test_a_consumer_type_checks(file: str, errors: list[str], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(tmp_path),
        "--strict",
    ]
    done = subprocess.run([*command, file], cwd=HERE, text=True, capture_output=True, check=False)
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(lines) == len(errors), done.stdout + done.stderr
    for line, code in zip(lines, errors, strict=True):
        assert f"[{code}]" in line
    assert done.returncode == bool(errors)
