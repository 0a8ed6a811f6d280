"""Several processes and one session; processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.storage.logs import Script, load_events, log_of, stored, write
from trio_agents.errors import SessionBusyError
from trio_agents.storage import JsonlStore

PROJECT = Path(__file__).parents[3]


def start(module: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.faults.storage.{module}", *map(str, args)],
        cwd=PROJECT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def killed_at_exit(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


async def test_two_processes_fight_for_one_session(tmp_path: Path) -> None:
    """PER-8: 200 rounds; one writer at a time, the busy error names the owner, a killed owner blocks nobody."""
    store = JsonlStore(tmp_path, durability="written")
    await stored(store, Script().whole_turn())
    fighters = [start("fighter", tmp_path, name, 100) for name in ("one", "two")]
    doomed = start("fighter", tmp_path, "doomed", 10_000)
    with killed_at_exit(*fighters, doomed):
        for _ in range(20):
            read(doomed)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        assert doomed.stdout is not None
        known = {str(process.pid) for process in (*fighters, doomed)}
        output = [process.communicate(timeout=50)[0].splitlines() for process in fighters]
        assert [process.returncode for process in fighters] == [0, 0]
        last = doomed.stdout.read().splitlines()
    lines = [line for each in output for line in each]
    assert {line.split()[1] for line in lines if line.startswith("busy")} <= known
    assert sum(line.startswith("wrote") for line in lines) == 200
    # Every turn began where the one before had ended: nobody ever wrote over or between another.
    events = await load_events(store)
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.data.turn for event in events if event.type == "turn/start"][:10] == list(range(1, 11))
    starts = [int(line.split()[1]) for line in [*lines, *last] if line.startswith("wrote")]
    assert len(starts) == len(set(starts))
    verdict = await store.verify("s1")
    assert (verdict.problems, verdict.torn) == ((), 0)


async def test_reading_works_while_another_process_writes(tmp_path: Path) -> None:
    """PER-8, L3, T15: the second writer gets the owner's name; listing works; a kill frees the session at once."""
    store = JsonlStore(tmp_path, durability="written")
    victim = start("victim", tmp_path, "plain", "hold")
    with killed_at_exit(victim):
        assert read(victim) == "holding 3\n"
        for _ in range(3):
            with pytest.raises(SessionBusyError) as busy:
                await store.open("s1")
            assert busy.value.owner.startswith(f"pid {victim.pid} on ")
            with pytest.raises(SessionBusyError):
                await store.delete("s1")
        assert [entry.status for entry in await store.list()] == ["live"]
        shown = await store.inspect("s1")
        assert (shown.status, shown.stored, len(shown.events)) == ("live", 3, 3)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        assert [entry.status for entry in await store.list()] == ["interrupted"]
        opened = await store.open("s1")
        write(opened.writer, Script(3).chunks("x"))
        await opened.writer.aclose()
    assert len(await load_events(store)) == 4


@pytest.mark.parametrize("compression", ["plain", "zstd"])
async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path, compression: str) -> None:
    """PER-13, PER-3: whatever `write` returned for is there, and numbers are dense."""
    for round_number in range(3):
        root = tmp_path / str(round_number)
        store = JsonlStore(root, durability="written")
        victim = start("victim", root, compression, "write")
        with killed_at_exit(victim):
            read(victim)
            acknowledged = int(read(victim))
            time.sleep(0.05 * round_number)  # noqa: ASYNC251
            victim.send_signal(signal.SIGKILL)
            assert victim.stdout is not None
            rest = victim.stdout.read().split()
            acknowledged = int(rest[-1]) if rest else acknowledged
        events = await load_events(store)
        assert [event.seq for event in events] == list(range(len(events)))
        assert len(events) > acknowledged
        assert (await store.verify("s1")).problems == ()
        assert log_of(store).name.endswith("zstd" if compression == "zstd" else "jsonl")


def test_a_new_process_sees_no_lock_of_its_own(tmp_path: Path) -> None:
    """The lock is not inherited by programs that are started while it is held."""
    store = JsonlStore(tmp_path)
    from tests.unit.storage.logs import header

    writer = store.create(header())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        writer.abandon()
        store.create(header()).abandon()
    finally:
        child.communicate(b"\n")
    assert os.listdir(tmp_path / "_no-cwd") == []  # noqa: PTH208
