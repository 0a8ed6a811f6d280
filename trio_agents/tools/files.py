"""Tools for the files below one folder."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import attrs
import trio
from msgspec import Meta

from ..errors import ToolError
from . import _search
from ._confined import FOLDER, Root, check_regular, fs_errors
from ._definition import Tool, tool

MAX_FILE: Final = 32 * 1024 * 1024
"""Bytes that a file may have to be read or edited."""

_MAX_SHOWN: Final = 40_000
_MAX_ENTRIES: Final = 1_000
_MAX_VISITED: Final = 100_000
_NAME_KEPT: Final = 80
"""Bytes of its name that the file begins with which is to take another's place: names may be as long as the disk takes."""
_MAX_NAMED: Final = 5
_SEARCH_SECONDS: Final = 10


def file_tools(root: str | os.PathLike[str], *, writable: bool = False) -> list[Tool[..., object]]:
    """Tools for the files below a folder: `read`, `list` and `grep`; with `writable` also `write` and `edit`.

    Nothing outside the folder can be reached: not by `..`, not by an absolute path, not by a symbolic link, and not
    by one that is put in place while a tool is at work. Links that stay inside work. They need Linux or macOS.

    Args:
        root: the folder.
        writable: whether files may be made and changed.

    Raises:
        UsageError: there is no such folder, or the platform cannot confine.
    """
    place = Root.of(root)
    tools: list[Tool[..., object]] = [_read_tool(place), _list_tool(place), _grep_tool(place)]
    return [*tools, _write_tool(place), _edit_tool(place)] if writable else tools


# --- reading --------------------------------------------------------------------------------------


def _read_tool(root: Root) -> Tool[..., object]:
    @tool(effect="pure", parallel=True)
    def read(
        path: str,
        start: Annotated[int, Meta(ge=1)] = 1,
        lines: Annotated[int, Meta(ge=1)] = 2000,
    ) -> str:
        """Read a text file, exactly as it is. A note in brackets at the end says if there is more of it.

        Args:
            path: the file, relative to the working folder.
            start: the first line to read, counting from 1.
            lines: how many lines to read at most.
        """
        text, _ = _read_text(root, path)
        return _excerpt(path, text, start, lines)

    return read


def _read_text(root: Root, path: str) -> tuple[str, os.stat_result]:
    """A text file, and its status before it was read."""
    descriptor = root.open_file(path)
    with fs_errors(path), open(descriptor, "rb") as file:  # noqa: PTH123 - it is a descriptor
        status = os.fstat(descriptor)
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ToolError(f"{path}: it is larger than {MAX_FILE // 1024 // 1024} MiB", code="FS_TOO_LARGE")
    if b"\0" in data:
        raise ToolError(f"{path}: it is a binary file of {len(data)} bytes, not text", code="FS_NOT_TEXT")
    try:
        return data.decode("utf-8"), status
    except UnicodeDecodeError as exc:
        raise ToolError(f"{path}: it is not UTF-8 text (byte {exc.start})", code="FS_NOT_TEXT") from None


def _excerpt(path: str, text: str, start: int, count: int) -> str:
    if not text:
        return "[the file is empty]"
    every = text.split("\n")
    total = len(every) - 1 if text.endswith("\n") else len(every)
    if start > total:
        raise ToolError(f"{path}: it has {total} lines, so none from {start} on", code="FS_NO_SUCH_LINE")
    taken: list[str] = []
    size = 0
    for line in every[start - 1 : min(start - 1 + count, total)]:
        size += len(line) + 1
        if taken and size > _MAX_SHOWN:
            break
        taken.append(line)
    last = start - 1 + len(taken)
    shown = "\n".join(taken)
    if len(shown) > _MAX_SHOWN:
        return f"{shown[:_MAX_SHOWN]}\n[line {start} of {total} is {len(shown)} characters long; the rest is left out]"
    if last < total:
        return f"{shown}\n[lines {start} to {last} of {total}; to read on: start={last + 1}]"
    return shown + "\n" if text.endswith("\n") else shown


# --- listing --------------------------------------------------------------------------------------


def _list_tool(root: Root) -> Tool[..., object]:
    @tool(name="list", effect="pure", parallel=True)
    def list_files(path: str = ".", pattern: str | None = None, recursive: bool = False) -> str:
        """List a folder, one path to a line; folders end with a slash.

        Args:
            path: the folder, relative to the working folder.
            pattern: show only names that fit, such as *.py.
            recursive: go into all folders below, except those whose names begin with a dot.
        """
        folder = root.open_folder(path)
        try:
            with fs_errors(path):
                found, more = _listing(folder, root.name_below(path), pattern, recursive=recursive)
        finally:
            os.close(folder)
        if more:
            found.append(f"[only the first {len(found)} are shown; narrow it down with path or pattern]")
        return "\n".join(found) if found else "[nothing there]" if pattern is None else "[nothing fits]"

    return list_files


def _listing(folder: int, prefix: str, pattern: str | None, *, recursive: bool) -> tuple[list[str], bool]:
    found: list[str] = []
    more = False
    for visited, (path, shown) in enumerate(_entries(folder, recursive=recursive)):
        if visited >= _MAX_VISITED:
            return found, True
        more = more or (shown.endswith("/") and path.count("/") == _search.MAX_DEPTH)
        if pattern is None or _search.matches_glob(path, pattern):
            if len(found) >= _MAX_ENTRIES:
                return found, True
            found.append(shown if prefix == "." else f"{prefix}/{shown}")
    return found, more


def _entries(folder: int, *, recursive: bool) -> Iterator[tuple[str, str]]:
    """The entries of a folder, and as they are shown."""
    for top, folders, files, where in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        prefix = "" if top == "." else top[2:] + "/"
        names = sorted([*((name, True) for name in folders), *((name, False) for name in files)])
        for name, is_folder in names:
            yield prefix + name, prefix + _shown(name, where, is_folder=is_folder)
        if not recursive or prefix.count("/") >= _search.MAX_DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _shown(name: str, folder: int, *, is_folder: bool) -> str:
    with contextlib.suppress(OSError):
        return f"{name} -> {os.readlink(name, dir_fd=folder)}"
    return name + "/" if is_folder else name


# --- searching ------------------------------------------------------------------------------------


@attrs.frozen
class _Answer:
    """What the search program found: where and what, whether there is more, and what it did not look through whole."""

    matches: list[tuple[str, int, str]]
    more: bool
    partly: list[str]


def _grep_tool(root: Root) -> Tool[..., object]:
    @tool(effect="pure", parallel=True)
    def grep(
        pattern: Annotated[str, Meta(min_length=1, max_length=1000)],
        path: str = ".",
        glob: str | None = None,
        ignore_case: bool = False,
        limit: Annotated[int, Meta(ge=1, le=1000)] = 200,
    ) -> str:
        """Search text files for a regular expression, line by line. Answers with path:line: text.

        Args:
            pattern: the regular expression, in Python's form.
            path: a file, or a folder to search with all below it, except folders whose names begin with a dot.
            glob: search only files whose names fit, such as *.py.
            ignore_case: take upper and lower case as the same.
            limit: how many lines to show at most.
        """
        request = {"pattern": pattern, "glob": glob, "ignore_case": ignore_case, "limit": limit}
        where, name, prefix = _search_place(root, path)
        try:
            answer = _run_search(where, name, request)
        finally:
            os.close(where)
        lines = [f"{prefix}{file}:{number}: {text}" for file, number, text in answer.matches]
        if answer.more:
            lines.append(f"[only the first {limit} are shown]")
        elif not lines:
            lines.append("[no line matches]")
        if answer.partly:
            lines.append(
                f"[searched in part only, being too large or too deep: {_some(prefix, answer.partly)}]"
            )
        return "\n".join(lines)

    return grep


def _search_place(root: Root, path: str) -> tuple[int, str, str]:
    """An open folder, the name to search in it (`.` for all of it), and what to put before the paths found."""
    shown = root.name_below(path)
    with root.place_of(path) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            where = os.open(name, FOLDER, dir_fd=folder)
            return where, ".", "" if shown == "." else f"{shown}/"
        check_regular(path, status)
        return os.dup(folder), name, shown[: shown.rfind("/") + 1]


def _some(prefix: str, paths: list[str]) -> str:
    more = len(paths) - _MAX_NAMED
    return ", ".join(prefix + path for path in paths[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _run_search(folder: int, name: str, request: Mapping[str, object]) -> _Answer:
    """Run the search in a process of its own; it ends when the call is cancelled, or when its time is up."""
    if not sys.executable:
        raise ToolError("there is no interpreter here to run the search with", code="FS_FAILED")
    task = json.dumps({**request, "name": name, "seconds": _SEARCH_SECONDS}).encode()
    process = subprocess.Popen(  # noqa: S603 - our own program, with no argument of the model's
        [sys.executable, "-I", "-S", _search.__file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(folder,),
    )
    with process:
        try:
            output = _communicate(process, task)
        except BaseException:
            process.kill()
            raise
    if process.returncode == -signal.SIGALRM:
        raise ToolError(
            f"the search took longer than {_SEARCH_SECONDS} s: simplify the pattern, or narrow it down with path or glob",
            code="FS_SEARCH_TIMEOUT",
        )
    if process.returncode != 0:
        raise ToolError(f"the search failed (exit {process.returncode})", code="FS_FAILED")
    answer = json.loads(output)
    if "error" in answer:
        raise ToolError(f"the pattern is no regular expression: {answer['error']}", code="FS_BAD_PATTERN")
    return _Answer(**answer)


def _communicate(process: subprocess.Popen[bytes], data: bytes) -> bytes:
    given: bytes | None = data
    while True:
        with contextlib.suppress(RuntimeError):  # called directly, from no thread of Trio's
            trio.from_thread.check_cancelled()
        try:
            return process.communicate(given, timeout=0.05)[0]
        except subprocess.TimeoutExpired:
            given = None


# --- writing --------------------------------------------------------------------------------------


def _write_tool(root: Root) -> Tool[..., object]:
    @tool(effect="idempotent")
    def write(path: str, content: str) -> str:
        """Write a text file, whole: it is made, or takes the place of the one that is there. Folders are made.

        Args:
            path: the file, relative to the working folder.
            content: the whole text.
        """
        with root.place_of(path, make_folders=True) as (folder, name):
            existed = _replace(path, folder, name, _encoded(path, content), expected=None)
        return f"{'replaced' if existed else 'made'} {path} ({len(content)} characters)"

    return write


def _edit_tool(root: Root) -> Tool[..., object]:
    @tool
    def edit(path: str, old: Annotated[str, Meta(min_length=1)], new: str, every: bool = False) -> str:
        """Replace a piece of a text file, found by its exact text.

        Args:
            path: the file, relative to the working folder.
            old: the text to replace, with every space and line break; it must occur exactly once.
            new: the text to put there.
            every: replace all occurrences, however many there are.
        """
        text, before = _read_text(root, path)
        places = _places(text, old)
        if not places:
            raise ToolError(
                f"{path}: the old text is not in it; read it and copy exactly", code="FS_NO_MATCH"
            )
        if places > 1 and not every:
            raise ToolError(
                f"{path}: the old text is in it {places} times; give more of what is around it, or every=true",
                code="FS_AMBIGUOUS",
            )
        with root.place_of(path) as (folder, name):
            _replace(path, folder, name, _encoded(path, text.replace(old, new)), expected=before)
        count = text.count(old)
        return f"replaced {count} {'place' if count == 1 else 'places'} in {path}"

    return edit


def _places(text: str, piece: str) -> int:
    """How often a piece is in a text; places may overlap, as three line breaks hold two twice."""
    count, at = 0, text.find(piece)
    while at >= 0:
        count, at = count + 1, text.find(piece, at + 1)
    return count


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError(
            f"{path}: the text holds half a character (a lone surrogate)", code="FS_NOT_TEXT"
        ) from None


def _replace(path: str, folder: int, name: str, data: bytes, *, expected: os.stat_result | None) -> bool:
    """Put a file in place as one act: readers see the old one or the new one. Returns whether there was an old one."""
    old = _status(name, folder)
    if name == ".":
        raise ToolError(f"{path}: it is a folder, not a file", code="FS_IS_FOLDER")
    if old is not None:
        check_regular(path, old)
    beginning = os.fsencode(name)[:_NAME_KEPT].decode("utf-8", "ignore")
    temporary = f".{beginning}.{secrets.token_hex(6)}.tmp"
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it is a descriptor
            if old is not None:
                os.fchmod(descriptor, mode)  # the umask may have taken bits away
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if expected is not None and not _is_same(_status(name, folder), expected):
            raise ToolError(f"{path}: it was changed meanwhile; read it again", code="FS_CHANGED")
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    with contextlib.suppress(OSError):  # the file is there; some file systems cannot sync a folder
        os.fsync(folder)
    return old is not None


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_same(now: os.stat_result | None, then: os.stat_result) -> bool:
    return now is not None and (now.st_ino, now.st_size, now.st_mtime_ns) == (
        then.st_ino,
        then.st_size,
        then.st_mtime_ns,
    )
