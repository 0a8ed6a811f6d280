"""A program, not a part of this package: looks for a regular expression in files.

It runs in a process of its own, since a regular expression that a model wrote may take for ever, cannot be
stopped from outside, and holds the interpreter meanwhile. It imports the standard library only, reads what to do
from its input, gets at files through one open folder only, and never follows a link.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterable

MAX_FILE = 5_000_000
MAX_LINE = 10_000
MAX_SHOWN = 300
MAX_DEPTH = 100
"""Folders within folders that are gone into: each costs an open descriptor."""


def matches_glob(path: str, pattern: str) -> bool:
    """Whether a relative path fits a pattern: by its last name, or as a whole if the pattern has a slash.

    A `**` between slashes, or before the first, stands for any number of folders, also for none.
    """
    if "/" not in pattern:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern)
    first, *rest = re.split(r"(?:^|/)(?:\*\*/)+", pattern)
    if not rest:
        return fnmatch.fnmatchcase(path, pattern)
    names = path.split("/")
    at = 0
    if first:
        at = _end(names, [0], first)
    for piece in rest[:-1]:
        at = _end(names, range(at, len(names)), piece)
    return any(fnmatch.fnmatchcase("/".join(names[i:]), rest[-1]) for i in range(at, len(names)))


def _end(names: list[str], starts: Iterable[int], piece: str) -> int:
    """The first place where a piece of a pattern can end that begins at one of the places; behind all if there is none."""
    ends = (
        end
        for start in starts
        for end in range(start + 1, len(names))
        if fnmatch.fnmatchcase("/".join(names[start:end]), piece)
    )
    return min(ends, default=len(names))


def _lines(folder: int, name: str) -> tuple[list[str], bool]:
    """The lines of a file, or none if it is no text, and whether they are all."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return [], True
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return [], True
        data = file.read(MAX_FILE + 1)
    if b"\0" in data[:8192]:
        return [], True
    return data[:MAX_FILE].decode("utf-8", "replace").split("\n"), len(data) <= MAX_FILE


def search(folder: int, name: str, request: dict[str, object]) -> dict[str, object]:
    """Look through one file, or with the name `.` through a folder and all below it."""
    pattern = re.compile(str(request["pattern"]), re.IGNORECASE if request["ignore_case"] else 0)
    glob, limit = request["glob"], int(str(request["limit"]))
    found: list[tuple[str, int, str]] = []
    partly: list[str] = []
    answer: dict[str, object] = {"matches": found, "more": False, "partly": partly}

    def look(where: int, file: str, path: str) -> bool:
        if glob and not matches_glob(path, str(glob)):
            return True
        lines, is_whole = _lines(where, file)
        for number, line in enumerate(lines, 1):
            if pattern.search(line, 0, MAX_LINE):
                if len(found) >= limit:
                    answer["more"] = True
                    return False
                found.append((path, number, line.strip("\r")[:MAX_SHOWN]))
            elif len(line) > MAX_LINE:
                is_whole = False
        if not is_whole:
            partly.append(path)
        return True

    if name != ".":
        look(folder, name, name)
        return answer
    for top, folders, files, where in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        prefix = "" if top == "." else top[2:] + "/"
        if not all(look(where, file, prefix + file) for file in sorted(files)):
            break
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if folders and prefix.count("/") >= MAX_DEPTH:
            partly.append(prefix)
            folders.clear()
    return answer


def main() -> None:
    """Read a request, write an answer; die by SIGALRM when the time is up."""
    request = json.loads(sys.stdin.buffer.read())
    signal.alarm(int(request["seconds"]))
    try:
        answer = search(int(sys.argv[1]), request["name"], request)
    except (re.error, OverflowError, RecursionError) as exc:
        answer = {"error": str(exc)}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
