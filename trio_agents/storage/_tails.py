"""What lies behind the last good record of a log that is opened for writing: kept aside, then cut off."""

from __future__ import annotations

import os

from ._files import CREATE, FILE_MODE, READ, UPDATE, Files, write_all
from ._loading import LoadedLog
from ._places import Place
from ._zstd import FrameWriter


def cut_tail(files: Files, place: Place, loaded: LoadedLog) -> tuple[int, tuple[int, int]]:
    """Give the log a clean end. Blocks; the lock is held.

    Plain logs are cut back. A compressed log whose last frame is cut off is written anew with what the frame
    gave as a frame of its own, and takes the old one's place as a whole.

    Returns:
        Size and identity of the log now.

    Raises:
        OSError: the system refuses; the log is as it was.
    """
    keep_aside(files, place, loaded.good_end, loaded.size)
    if loaded.salvaged:
        return replace_log(files, place, loaded.good_end, FrameWriter().whole(loaded.salvaged))
    fd = files.open(place.path, UPDATE, 0)
    try:
        files.ftruncate(fd, loaded.good_end)
        files.fdatasync(fd)
    finally:
        files.close(fd)
    return loaded.good_end, loaded.identity


def keep_aside(files: Files, place: Place, start: int, end: int) -> str:
    """Copy a part of the log into a side file `torn-<offset>`; gives its path."""
    source = files.open(place.path, READ, 0)
    try:
        path, target = _new_side_file(files, f"{place.directory}/torn-{start}")
        try:
            copy_range(files, source, target, start, end)
            files.fsync(target)
        finally:
            files.close(target)
    finally:
        files.close(source)
    return path


def _new_side_file(files: Files, name: str) -> tuple[str, int]:
    for attempt in range(1, 1000):
        path = name if attempt == 1 else f"{name}-{attempt}"
        try:
            return path, files.open(path, CREATE, FILE_MODE)
        except FileExistsError:
            continue
    raise FileExistsError(f"{name} and its successors are taken")


def copy_range(files: Files, source: int, target: int, start: int, end: int) -> None:
    """Append bytes of one open file to another."""
    while start < end:
        data = files.pread(source, min(1 << 20, end - start), start)
        if not data:
            break
        write_all(files, target, data)
        start += len(data)


def replace_log(files: Files, place: Place, keep: int, end: bytes) -> tuple[int, tuple[int, int]]:
    """Put a new log in the old one's place: its first bytes and a new end. All or nothing, also in a power cut."""
    temporary = f"{place.path}.{os.urandom(6).hex()}.tmp"
    source = files.open(place.path, READ, 0)
    try:
        target = files.open(temporary, CREATE, FILE_MODE)
        try:
            copy_range(files, source, target, 0, keep)
            write_all(files, target, end)
            files.fsync(target)
            found = files.fstat(target)
            files.rename(temporary, place.path)
        except BaseException:
            files.unlink(temporary)
            raise
        finally:
            files.close(target)
    finally:
        files.close(source)
    return found.st_size, (found.st_ino, found.st_dev)


def unfinished(files: Files, directory: str) -> list[str]:
    """Names that an interrupted creation left in a session's directory."""
    return [
        name for name in files.listdir(directory) if name.startswith("session.") and name.endswith(".tmp")
    ]
