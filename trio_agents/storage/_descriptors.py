"""Open log files: few at a time, whatever the number of sessions."""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from collections.abc import Callable
from typing import Final, final

from ._files import APPEND, Files

CAPACITY: Final = 64


@final
class Descriptor:
    """One open log. While it is pinned (a thread syncs it) closing it is put off."""

    __slots__ = ("_files", "_forget", "_is_wanted", "_pins", "fd", "was_used")

    def __init__(self, files: Files, fd: int, forget: Callable[[], None]) -> None:
        self._files = files
        self._forget = forget
        self._pins = 0
        self._is_wanted = True
        self.fd = fd
        self.was_used = True

    @property
    def is_pinned(self) -> bool:
        """Whether a thread works on it."""
        return self._pins > 0

    def pin(self) -> None:
        """Keep the number valid until `unpin`."""
        self._pins += 1

    def unpin(self) -> None:
        """Close it now if that was asked for in the meantime."""
        self._pins -= 1
        self._close_if_done()

    def close(self) -> None:
        """Close it, at once or when the last pin goes; its writer forgets it at once. Idempotent."""
        if self._is_wanted:
            self._is_wanted = False
            self._forget()
            self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._is_wanted and not self._pins and self.fd >= 0:
            fd, self.fd = self.fd, -1
            # All of it was written and, where promised, synced: what close could report was asked for before.
            with contextlib.suppress(OSError):
                self._files.close(fd)


@final
class Descriptors:
    """The cache: a log that was not used since the last round is closed when room is needed."""

    __slots__ = ("_capacity", "_files", "_open")

    def __init__(self, files: Files, capacity: int = CAPACITY) -> None:
        self._files = files
        self._capacity = capacity
        self._open: deque[Descriptor] = deque()

    def open(self, path: str, forget: Callable[[], None]) -> Descriptor:
        """Open a log for appending.

        Args:
            path: the log, which exists.
            forget: called when the cache closes it.

        Raises:
            OSError: the system refuses, also after everything that can be closed here was closed.
        """
        if len(self._open) >= self._capacity:
            self._make_room(keep_used=True)
        try:
            fd = self._files.open(path, APPEND, 0)
        except OSError as exc:
            if exc.errno not in {errno.EMFILE, errno.ENFILE} or not self._open:
                raise
            while self._make_room(keep_used=False):
                pass
            fd = self._files.open(path, APPEND, 0)
        return self.adopt(fd, forget)

    def adopt(self, fd: int, forget: Callable[[], None]) -> Descriptor:
        """Take a file that is open already into the cache."""
        if len(self._open) >= self._capacity:
            self._make_room(keep_used=True)
        descriptor = Descriptor(self._files, fd, forget)
        self._open.append(descriptor)
        return descriptor

    def drop(self, descriptor: Descriptor) -> None:
        """Close a log whose writer needs it no more."""
        with contextlib.suppress(ValueError):
            self._open.remove(descriptor)
        descriptor.close()

    def _make_room(self, *, keep_used: bool) -> bool:
        # Two rounds at most: the first takes the marks away, the second finds one without.
        for _ in range(2 * len(self._open)):
            candidate = self._open.popleft()
            if candidate.is_pinned or (keep_used and candidate.was_used):
                candidate.was_used = False
                self._open.append(candidate)
                continue
            candidate.close()
            return True
        return False
