"""The right to write a session: an exclusive `flock` on a file beside its log.

The system releases it when its owner dies, whatever the file says. `flock` belongs to the open file, not to the
process, so it also tells two writers of one process apart (`lockf` would grant both).
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import os
import socket
from typing import Final, final

from ..errors import SessionBusyError, UsageError
from ._files import FILE_MODE, Files, storage_error
from ._layout import LOCK_NAME

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_OPEN: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
_PROBE: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_TRIES: Final = 100


def require_flock() -> None:
    """Raise `UsageError` on a system without `flock`."""
    if fcntl is None:
        raise UsageError(
            "JsonlStore needs flock, which this system (Windows?) does not have; MemoryStore works everywhere"
        )


@final
class SessionLock:
    """A held lock. Its file stays where it is unless it is removed together with the directory."""

    __slots__ = ("_files", "fd", "path")

    def __init__(self, files: Files, fd: int, path: str) -> None:
        self._files = files
        self.fd = fd
        self.path = path

    def release(self) -> None:
        """Give the lock up. Idempotent."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            with contextlib.suppress(OSError):  # the system has closed it all the same
                self._files.close(fd)


def acquire(files: Files, directory: str, session_id: str) -> SessionLock:
    """Lock a session's directory, which exists. Does not wait for another owner.

    Raises:
        SessionBusyError: another writer has it.
        StorageError: the lock file cannot be made.
        FileNotFoundError: the directory has gone.
    """
    path = f"{directory}/{LOCK_NAME}"
    for _ in range(_TRIES):
        try:
            fd = files.open(path, _OPEN, FILE_MODE)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise storage_error(exc, "cannot make the lock", session_id=session_id, path=path) from exc
        try:
            if _try_lock(fd) and _is_still_there(files, fd, path):
                _sign(fd)
                return SessionLock(files, fd, path)
            if _is_owned(fd):
                owner = _read_owner(fd)
                raise SessionBusyError(
                    f"session {session_id!r} is being written by {owner}",
                    owner=owner, session_id=session_id, path=path,
                )  # fmt: skip
        except BaseException as exc:
            files.close(fd)
            if isinstance(exc, OSError):
                raise storage_error(exc, "cannot lock", session_id=session_id, path=path) from exc
            raise
        files.close(fd)
    raise SessionBusyError(
        f"session {session_id!r} is being opened and left all the time",
        owner="several",
        session_id=session_id,
        path=path,
    )


def owner_of(files: Files, directory: str) -> str | None:
    """Who writes the session in this directory, or None if nobody does. Disturbs no writer."""
    path = f"{directory}/{LOCK_NAME}"
    try:
        fd = files.open(path, _PROBE, 0)
    except OSError:
        return None
    try:
        return _read_owner(fd) if _is_owned(fd) else None
    finally:
        files.close(fd)


def _try_lock(fd: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    return True


def _is_owned(fd: int) -> bool:
    # A look takes the lock shared for a moment, so that lookers are never mistaken for owners: where the
    # shared lock is to be had, nobody owns the exclusive one.
    return not _try_lock(fd, shared=True)


def _is_still_there(files: Files, fd: int, path: str) -> bool:
    # The former owner may have removed the file between our opening and our locking it; a lock on a file
    # without a name protects nothing.
    try:
        named = files.stat(path)
    except FileNotFoundError:
        return False
    ours = files.fstat(fd)
    return (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev)


def _sign(fd: int) -> None:
    # For people and for the busy error only: nothing is decided by it, so a failure to write it is harmless.
    text = _signature(os.getpid())
    with contextlib.suppress(OSError):
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))


@functools.lru_cache(maxsize=1)
def _signature(pid: int) -> bytes:
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return f"pid {pid} on {socket.gethostname()}, since {started}\n".encode()


def _read_owner(fd: int) -> str:
    try:
        text = os.pread(fd, 500, 0).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    # Between an owner's locking and its signing the text is missing, or that of an owner before it.
    pid = _owner_pid(fd)
    if pid is not None and not text.startswith(f"pid {pid} "):
        return f"pid {pid} on {socket.gethostname()}"
    return text or "an unknown process"


def _owner_pid(fd: int) -> int | None:
    """Who holds the exclusive lock, where the system has a list of its locks (Linux)."""
    try:
        inode = os.fstat(fd).st_ino
        with open("/proc/locks", encoding="ascii") as table:  # noqa: PTH123 - one line of text each
            locks = [line.split() for line in table]
    except (OSError, ValueError):
        return None
    # 7: FLOCK  ADVISORY  WRITE 4711 fe:00:1835045 0 EOF
    owners = {
        lock[4]
        for lock in locks
        if lock[1] == "FLOCK" and lock[3] == "WRITE" and lock[5].endswith(f":{inode}")
    }
    return int(owners.pop()) or None if len(owners) == 1 else None
