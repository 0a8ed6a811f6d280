"""The operating system's file functions, as one object: the place where a test lets them fail."""

from __future__ import annotations

import errno
import os
import stat as stat_modes
from collections.abc import Callable
from typing import Final, NoReturn

import attrs

from ..errors import StorageError

_CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
APPEND: Final = os.O_WRONLY | os.O_APPEND | _CLOEXEC
CREATE: Final = APPEND | os.O_CREAT | os.O_EXCL
UPDATE: Final = os.O_RDWR | _CLOEXEC
READ: Final = os.O_RDONLY | _CLOEXEC
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def _absent(*_: object) -> NoReturn:
    raise OSError(errno.ENOSYS, "this system has no such function")


def _ignored(*_: object) -> None:
    pass


# macOS has no fdatasync; there fsync is what there is.
_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
# Nor has it posix_fadvise, which is only ever a hint.
_fadvise: Callable[[int, int, int, int], None] = getattr(os, "posix_fadvise", _ignored)
DONTNEED: Final[int] = getattr(os, "POSIX_FADV_DONTNEED", 0)
"""Advice by which Linux starts to write what is not on the disk yet, and does not wait for it."""

_pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _absent)
_pwrite: Callable[[int, bytes, int], int] = getattr(os, "pwrite", _absent)


@attrs.frozen(kw_only=True)
class Files:
    """The calls through which a `JsonlStore` touches files. Each is the function of `os` with its name.

    Replace members to make them fail (`attrs.evolve`, or `testing.FaultyFiles`).
    """

    open: Callable[[str, int, int], int] = os.open
    close: Callable[[int], None] = os.close
    read: Callable[[int, int], bytes] = os.read
    pread: Callable[[int, int, int], bytes] = _pread
    write: Callable[[int, bytes], int] = os.write
    pwrite: Callable[[int, bytes, int], int] = _pwrite
    ftruncate: Callable[[int, int], None] = os.ftruncate
    fdatasync: Callable[[int], None] = _fdatasync
    fsync: Callable[[int], None] = os.fsync
    posix_fadvise: Callable[[int, int, int, int], None] = _fadvise
    fstat: Callable[[int], os.stat_result] = os.fstat
    stat: Callable[[str], os.stat_result] = os.stat
    link: Callable[[str, str], None] = os.link
    rename: Callable[[str, str], None] = os.rename
    unlink: Callable[[str], None] = os.unlink
    mkdir: Callable[[str, int], None] = os.mkdir
    rmdir: Callable[[str], None] = os.rmdir
    listdir: Callable[[str], list[str]] = os.listdir


OS_FILES: Final = Files()
"""The real thing."""


def write_all(files: Files, fd: int, data: bytes) -> None:
    """Write everything, in as many calls as it takes."""
    done = files.write(fd, data)
    while done < len(data):
        count = files.write(fd, data[done:])
        if count <= 0:
            raise OSError(errno.EIO, "the system wrote nothing")
        done += count


def write_new_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Create a file with this content, or leave nothing behind. It must not exist."""
    fd = files.open(path, CREATE, FILE_MODE)
    try:
        try:
            write_all(files, fd, data)
            if sync:
                files.fsync(fd)
        finally:
            files.close(fd)
    except BaseException:
        files.unlink(path)
        raise


def sync_directory(files: Files, path: str) -> None:
    """Make the entries of a directory durable."""
    fd = files.open(path, READ, 0)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def size_of(files: Files, path: str) -> int | None:
    """Size of a regular file, or None where there is nothing.

    Raises:
        StorageError: something else is there, such as a directory.
        OSError: the system cannot say.
    """
    try:
        found = files.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat_modes.S_ISREG(found.st_mode):
        kind = "a directory" if stat_modes.S_ISDIR(found.st_mode) else "no regular file"
        raise StorageError(f"a log should be a file; {kind} is in its place", path=path)
    return found.st_size


def storage_error(
    exc: OSError, doing: str, *, session_id: str | None = None, path: str | None = None
) -> StorageError:
    """The typed error for a refusal of the system, in words that say what to do about it. Raise it `from exc`."""
    reason = exc.strerror or type(exc).__name__
    if exc.errno in {errno.EMFILE, errno.ENFILE}:
        reason = f"{reason}: {_descriptor_limit()}"
    elif exc.errno == errno.EROFS:
        reason = f"{reason}: reading works, writing needs a file system that can be written"
    elif exc.errno == errno.ENOSPC:
        reason = f"{reason}: work goes on once there is space again"
    return StorageError(f"{doing}: {reason}", session_id=session_id, path=path)


def _descriptor_limit() -> str:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return "the limit of open files is reached"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"the limit of open files is {soft} (ulimit -n; at most {hard}); each live session holds one"
