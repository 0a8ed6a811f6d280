"""A folder that paths cannot lead out of, whatever they hold and whatever is moved meanwhile.

A path is walked one name at a time, each opened relative to the folder before it and never through a symbolic
link. Links are read and walked in the same way, so one that stays inside works, and one that leads out is
refused. `..` goes back to a folder that is still open. So no check and no use of a path are ever apart.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from typing import Final, final

import attrs

from ..errors import ToolError, UsageError

_MAX_LINKS: Final = 40
FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC
"""How a folder is opened: not if it is a link, and without waiting for anybody if it is a pipe."""

_CODES: Final = {
    errno.ENOENT: ("FS_NOT_FOUND", "there is no such file or folder"),
    errno.ENOTDIR: ("FS_NOT_FOUND", "a part of the path is a file, not a folder"),
    errno.EISDIR: ("FS_IS_FOLDER", "it is a folder"),
    errno.EACCES: ("FS_DENIED", "permission denied"),
    errno.EPERM: ("FS_DENIED", "permission denied"),
    errno.EROFS: ("FS_DENIED", "the file system is read-only"),
    errno.ELOOP: ("FS_CHANGED", "it was replaced by a link in the same moment"),
}


@final
@attrs.frozen
class Root:
    """The folder that a set of tools is confined to.

    Attributes:
        path: its real path.
        given: its path as it was given, made absolute.
    """

    path: str
    given: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Root:
        """The root at a path.

        Raises:
            UsageError: there is no folder, or the platform cannot confine.
        """
        if os.open not in os.supports_dir_fd or sys.platform == "win32":
            raise UsageError("the file tools need a platform that can open files relative to a folder")
        given = os.path.abspath(path)  # noqa: PTH100 - links must stay as they are, which `resolve` would not do
        real = os.path.realpath(given)
        if not os.path.isdir(real):  # noqa: PTH112
            raise UsageError(f"the root of the file tools is a folder; {given!r} is none")
        return cls(real, given)

    @contextlib.contextmanager
    def place_of(self, path: str, *, make_folders: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder that a path ends in, and the last name: `.` for the root itself, never a link.

        Args:
            path: relative to the root, or absolute and below it.
            make_folders: whether folders that are missing on the way are made. If the block fails, they are taken away again.

        Raises:
            ToolError: FS_OUTSIDE_ROOT, FS_NOT_FOUND, FS_DENIED, FS_CHANGED, FS_FAILED.
        """
        with fs_errors(path), contextlib.ExitStack() as opened:
            walk = _Walk(self, path, opened)
            try:
                yield walk.go(make_folders=make_folders)
            except BaseException:
                walk.unmake()
                raise

    def open_file(self, path: str) -> int:
        """Open a regular file for reading; return its descriptor.

        Raises:
            ToolError: as `place_of`, or FS_IS_FOLDER, FS_NOT_FILE (a device, a pipe, a socket).
        """
        with self.place_of(path) as (folder, name):
            # Without O_NONBLOCK, opening a pipe would wait for a writer.
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
            try:
                check_regular(path, os.fstat(descriptor))
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

    def open_folder(self, path: str) -> int:
        """Open a folder; return its descriptor.

        Raises:
            ToolError: as `place_of`, or FS_NOT_FOLDER.
        """
        with self.place_of(path) as (folder, name):
            try:
                return os.open(name, FOLDER, dir_fd=folder)
            except NotADirectoryError:
                raise ToolError(f"{path}: it is a file, not a folder", code="FS_NOT_FOLDER") from None

    def name_below(self, path: str) -> str:
        """A path as it is written relative to the root, without looking at the disk; `.` for the root."""
        return "/".join(_parts(self, path)) or "."


class _Walk:
    """One walk from the root to where a path leads."""

    def __init__(self, root: Root, path: str, opened: contextlib.ExitStack) -> None:
        self._root = root
        self._path = path
        self._opened = opened
        self._todo = deque(_parts(root, path))
        self._links = 0
        self._made: list[tuple[int, str]] = []
        self._folders = [self._open(root.path, None)]

    def go(self, *, make_folders: bool) -> tuple[int, str]:
        while self._todo:
            name = self._todo.popleft()
            here = self._folders[-1]
            if name == "..":
                if len(self._folders) == 1:
                    raise _outside(self._path)
                self._folders.pop()  # it stays open until the walk is over, which is short
            elif (target := _link(name, here)) is not None:
                self._follow(target)
            elif not self._todo:
                return here, name
            else:
                self._folders.append(self._enter(name, here, make=make_folders))
        return self._folders[-1], "."

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise ToolError(f"{self._path}: its links lead in a circle", code="FS_FAILED")
        if target.startswith("/"):
            if not _is_below(target, (self._root.path, self._root.given)):
                raise _outside(self._path)
            del self._folders[1:]
            self._todo.extendleft(reversed(_parts(self._root, target)))
        else:
            self._todo.extendleft(reversed(_names(target)))

    def _enter(self, name: str, here: int, *, make: bool) -> int:
        try:
            return self._open(name, here)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):  # somebody else made it: as good
            os.mkdir(name, dir_fd=here)
            self._made.append((here, name))
        return self._open(name, here)

    def unmake(self) -> None:
        """Take away the folders that were made, unless somebody uses them already."""
        for here, name in reversed(self._made):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=here)

    def _open(self, name: str, here: int | None) -> int:
        descriptor = os.open(name, FOLDER, dir_fd=here)
        self._opened.callback(os.close, descriptor)
        return descriptor


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as exc:
        if exc.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _is_below(path: str, folders: tuple[str, ...]) -> str | None:
    """The one of the folders that a path begins with, by its text."""
    return next(
        (folder for folder in folders if path == folder or path.startswith(folder.rstrip("/") + "/")), None
    )


def _parts(root: Root, path: str) -> list[str]:
    if "\0" in path:
        raise ToolError(f"{path!r}: a path holds no NUL character", code="FS_NOT_FOUND")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(f"{path!r}: no file can have this name", code="FS_NOT_FOUND") from None
    if not path.startswith("/"):
        return _names(path)
    folder = _is_below(path, (root.path, root.given))
    if folder is None:
        raise _outside(path)
    return _names(path[len(folder) :])


def _outside(path: str) -> ToolError:
    return ToolError(
        f"{path}: it leads out of the folder that these tools are confined to", code="FS_OUTSIDE_ROOT"
    )


def check_regular(path: str, status: os.stat_result) -> None:
    """Raise unless this is the status of a regular file.

    Raises:
        ToolError: FS_IS_FOLDER, FS_NOT_FILE.
    """
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{path}: it is a folder, not a file", code="FS_IS_FOLDER")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{path}: it is no regular file", code="FS_NOT_FILE")


@contextlib.contextmanager
def fs_errors(path: str) -> Iterator[None]:
    """Errors of the operating system, in the block, become `ToolError`s about this path."""
    try:
        yield
    except OSError as exc:
        code, text = _CODES.get(exc.errno or 0, ("FS_FAILED", exc.strerror or str(exc)))
        raise ToolError(f"{path}: {text}", code=code) from exc
