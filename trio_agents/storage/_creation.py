"""The first write of a log: everything that it begins with appears at once, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import Final, final

import trio

from ..session._codec import encode_event, encode_header
from ..session._events import Event
from ..session._header import SessionHeader
from ..session._packing import ChunkRun
from ._files import CREATE, FILE_MODE, Files, write_all
from ._views import records_of

_SLICE: Final = 500
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@final
class Beginning:
    """Header and seed of a log that is not written yet, encoded when they are needed or ahead of that."""

    __slots__ = ("_lines", "_records", "header")

    def __init__(self, header: SessionHeader, seed: Sequence[Event], *, is_packing: bool) -> None:
        self.header = encode_header(header) + b"\n"
        self._records = records_of(seed) if is_packing else seed
        self._lines: list[bytes] = []

    def seed(self) -> bytes:
        """The lines that come before the first batch."""
        self._encode(len(self._records))
        return b"".join(self._lines)

    async def prepare(self) -> None:
        """Encode the seed in slices, for a seed that would stop the loop for too long. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while len(self._lines) < len(self._records):
            self._encode(len(self._lines) + _SLICE)
            await trio.lowlevel.checkpoint()

    def _encode(self, stop: int) -> None:
        for record in self._records[len(self._lines) : stop]:
            line = record.row if isinstance(record, ChunkRun) else encode_event(record)
            self._lines.append(line + b"\n")


def create_log(files: Files, path: str, data: bytes) -> tuple[int, os.stat_result]:
    """Create a log with this content. It is written under a name of its own first, and never overwrites one.

    Returns:
        The file, open for appending, and what the system says of it.

    Raises:
        OSError: the system refuses, or there is a log; nothing has changed.
    """
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    fd = files.open(temporary, CREATE, FILE_MODE)
    try:
        write_all(files, fd, data)
        found = files.fstat(fd)
        _publish(files, temporary, path)
    except BaseException:
        files.close(fd)
        raise
    finally:
        # A name that cannot be removed is removed when the session is opened next.
        with contextlib.suppress(OSError):
            files.unlink(temporary)
    return fd, found


def _publish(files: Files, temporary: str, path: str) -> None:
    try:
        try:
            files.link(temporary, path)
        except FileExistsError:
            if files.stat(path).st_size:
                raise
            files.unlink(path)  # a file without a byte counts as never written
            files.link(temporary, path)
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        _publish_without_links(files, temporary, path)


def _publish_without_links(files: Files, temporary: str, path: str) -> None:
    # A file system that knows no hard links: nobody else writes here while the lock is ours.
    try:
        files.stat(path)
    except FileNotFoundError:
        files.rename(temporary, path)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
