"""Where output goes and how it looks: plain for pipes, coloured for people, JSON for programs."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from ..values import JsonValue
from ..values._json import dump_json


def is_colourful(stream: TextIO) -> bool:
    """Whether a stream shows colours: a terminal that can, and nobody who said no (`NO_COLOR`)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    """A text that stands back a little."""
    return f"\x1b[2m{text}\x1b[0m" if is_colourful(stream) else text


def bold(text: str, stream: TextIO) -> str:
    """A text that stands out."""
    return f"\x1b[1m{text}\x1b[0m" if is_colourful(stream) else text


def write(text: str) -> None:
    """Write to stdout at once. What the terminal's encoding lacks is shown as an escape."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def note(text: str) -> None:
    """Write a line to stderr, dimmed where that can be."""
    text = text.encode("utf-8", "backslashreplace").decode()
    try:
        print(dim(text, sys.stderr), file=sys.stderr, flush=True)
    except UnicodeEncodeError:
        print(ascii(text), file=sys.stderr, flush=True)


def write_json(value: JsonValue) -> None:
    """Write one JSON value as a line to stdout."""
    write(dump_json(value).decode() + "\n")


def shorten(text: str, limit: int) -> str:
    """A text on one line, cut to a length."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
