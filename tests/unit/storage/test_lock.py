"""The lock: who has it, and that it is given up."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from tests.unit.storage.logs import Script, header, load_events, stored
from trio_agents.errors import SessionBusyError, UsageError
from trio_agents.storage import Files, JsonlStore
from trio_agents.storage._files import OS_FILES
from trio_agents.storage._lock import acquire, owner_of


def test_the_owner_is_named(tmp_path: Path) -> None:
    """PER-8: process, host and start time; two locks of one process exclude each other."""
    lock = acquire(OS_FILES, str(tmp_path), "s1")
    with pytest.raises(SessionBusyError) as busy:
        acquire(OS_FILES, str(tmp_path), "s1")
    assert busy.value.owner.startswith(f"pid {os.getpid()} on {os.uname().nodename}, since 20")
    assert busy.value.owner in str(busy.value)
    assert owner_of(OS_FILES, str(tmp_path)) == busy.value.owner
    lock.release()
    lock.release()
    assert owner_of(OS_FILES, str(tmp_path)) is None
    acquire(OS_FILES, str(tmp_path), "s1").release()


def test_an_old_text_means_nothing(tmp_path: Path) -> None:
    """PER-8: the lock of a dead owner does not block, whatever its file says."""
    (tmp_path / "lock").write_text("pid 1 on elsewhere, since for ever, and a good deal longer than usual\n")
    assert owner_of(OS_FILES, str(tmp_path)) is None
    acquire(OS_FILES, str(tmp_path), "s1").release()
    assert "elsewhere" not in (tmp_path / "lock").read_text()


@pytest.mark.parametrize("text", [b"", b"pid 1 on elsewhere, since long ago\n"])
def test_an_owner_that_has_not_signed_yet(tmp_path: Path, text: bytes) -> None:
    """PER-8: the system's own list of locks knows better than an old text, where there is one."""
    (tmp_path / "lock").write_bytes(text)
    with (tmp_path / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SessionBusyError) as busy:
            acquire(OS_FILES, str(tmp_path), "s1")
    if Path("/proc/locks").exists():
        assert busy.value.owner == f"pid {os.getpid()} on {os.uname().nodename}"
    else:
        assert busy.value.owner in {"an unknown process", "pid 1 on elsewhere, since long ago"}


def test_a_lock_whose_file_was_removed_protects_nothing(tmp_path: Path) -> None:
    """The inode is checked after the lock was got: a name that has gone means to try again."""
    stats: list[str] = []

    def stat(path: str) -> os.stat_result:
        stats.append(path)
        if len(stats) == 1:
            os.unlink(path)  # noqa: PTH108 - the former owner, between our opening and our locking
        return os.stat(path)  # noqa: PTH116

    lock = acquire(Files(stat=stat), str(tmp_path), "s1")
    assert os.fstat(lock.fd).st_ino == (tmp_path / "lock").stat().st_ino
    assert len(stats) == 2
    lock.release()


def test_a_look_is_never_taken_for_an_owner(tmp_path: Path) -> None:
    """PER-8: listing takes the lock shared for a moment, and a writer that comes then is not refused."""
    (tmp_path / "lock").touch()
    looks: list[int] = []

    def fstat(fd: int) -> os.stat_result:
        return os.fstat(fd)

    def opening(path: str, flags: int, mode: int) -> int:
        # A look begins just before the writer comes, and ends while it tries.
        if len(looks) < 3:
            if looks:
                os.close(looks[-1])
            look = os.open(path, os.O_RDONLY)
            fcntl.flock(look, fcntl.LOCK_SH)
            looks.append(look)
        elif len(looks) == 3:
            os.close(looks[-1])
            looks.append(-1)
        return os.open(path, flags, mode)

    lock = acquire(Files(open=opening, fstat=fstat), str(tmp_path), "s1")
    assert len(looks) == 4
    lock.release()


async def test_looking_disturbs_no_opening(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    events = Script().whole_turn()
    await stored(store, events)
    for _ in range(20):
        assert owner_of(OS_FILES, str(tmp_path / "_no-cwd" / "s1")) is None
        assert await load_events(store) == events


def test_the_same_id_in_two_directories_at_once(tmp_path: Path) -> None:
    """PER-8: one writer for an id, whatever its working directory."""
    one, two = JsonlStore(tmp_path), JsonlStore(tmp_path)
    writer = one.create(header(cwd="/a"))
    with pytest.raises(SessionBusyError):
        two.create(header(cwd="/b"))
    assert sorted(path.name for path in tmp_path.glob("*/s1")) == ["s1"]
    writer.abandon()
    two.create(header(cwd="/b")).abandon()
    assert list(tmp_path.glob("*/s1")) == []


def test_a_system_without_flock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the memory store works and the file store says that it does not."""
    from trio_agents.storage import _lock

    monkeypatch.setattr(_lock, "fcntl", None)
    with pytest.raises(UsageError, match=r"flock.*MemoryStore"):
        JsonlStore(tmp_path)
    assert sys.platform != "win32"
