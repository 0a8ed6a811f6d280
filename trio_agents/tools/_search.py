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

MAX_FILE = 5_000_000
MAX_LINE = 10_000
MAX_SHOWN = 300


def matches_glob(path: str, pattern: str) -> bool:
    """Whether a relative path fits a pattern: by its last name, or as a whole if the pattern has a slash."""
    if "/" not in pattern:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern)
    if pattern.startswith("**/") and matches_glob(path, pattern[3:]):
        return True
    return fnmatch.fnmatchcase(path, pattern)


def _lines(folder: int, name: str) -> list[str]:
    """The lines of a file, or none if it is no text."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return []
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        data = file.read(MAX_FILE)
    return [] if b"\0" in data[:8192] else data.decode("utf-8", "replace").split("\n")


def search(folder: int, name: str, request: dict[str, object]) -> dict[str, object]:
    """Look through one file, or with the name `.` through a folder and all below it."""
    pattern = re.compile(str(request["pattern"]), re.IGNORECASE if request["ignore_case"] else 0)
    glob, limit = request["glob"], int(str(request["limit"]))
    found: list[tuple[str, int, str]] = []
    answer: dict[str, object] = {"matches": found, "more": False}

    def look(where: int, file: str, path: str) -> bool:
        if glob and not matches_glob(path, str(glob)):
            return True
        for number, line in enumerate(_lines(where, file), 1):
            if pattern.search(line, 0, MAX_LINE):
                if len(found) >= limit:
                    answer["more"] = True
                    return False
                found.append((path, number, line.strip("\r")[:MAX_SHOWN]))
        return True

    if name != ".":
        look(folder, name, name)
        return answer
    for top, folders, files, where in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        prefix = "" if top == "." else top[2:] + "/"
        if not all(look(where, file, prefix + file) for file in sorted(files)):
            break
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
