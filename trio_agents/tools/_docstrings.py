"""What a docstring says of a function and its parameters, in Google, NumPy or reST form. Pure."""

from __future__ import annotations

import inspect
import re
from typing import Final

import attrs

_GOOGLE: Final = re.compile(
    r"(args|arguments|parameters|params|attributes|keyword args|keyword arguments|other parameters):\s*$",
    re.IGNORECASE,
)
_NUMPY: Final = re.compile(r"(parameters|other parameters|attributes)\s*$", re.IGNORECASE)
_UNDERLINE: Final = re.compile(r"[-=]{3,}\s*$")
_OTHER_SECTION: Final = re.compile(
    r"(returns?|raises|yields?|notes?|examples?|warnings?|see also):\s*$", re.IGNORECASE
)
_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?:\s+(.*)|$)")
_NUMPY_ENTRY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST_ENTRY: Final = re.compile(
    r":(?:param|parameter|arg|argument|ivar|var|key)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_REST_ANY: Final = re.compile(r":\w+[^:]*:")


@attrs.frozen
class Docstring:
    """A docstring, taken apart.

    Attributes:
        summary: its first paragraph, on one line.
        parameters: what it says of each parameter, by name.
    """

    summary: str = ""
    parameters: dict[str, str] = attrs.field(factory=dict)


def parse_docstring(text: str | None) -> Docstring:
    """Take a docstring apart. Whatever is in no known form is left alone."""
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).split("\n")
    found: dict[str, list[str]] = {}
    for i, line in enumerate(lines):
        if _GOOGLE.match(line.strip()):
            _google(lines, i, found)
        elif _NUMPY.match(line.strip()) and i + 1 < len(lines) and _UNDERLINE.match(lines[i + 1].strip()):
            _numpy(lines, i + 2, found)
        elif rest := _REST_ENTRY.match(line.strip()):
            found.setdefault(rest[1], [rest[2], *_deeper(lines, i + 1, _indent(line))])
    return Docstring(_summary(lines), {name: _join(said) for name, said in found.items() if _join(said)})


def _summary(lines: list[str]) -> str:
    paragraph: list[str] = []
    for i, line in enumerate(lines):
        text = line.strip()
        underlined = i + 1 < len(lines) and bool(_UNDERLINE.match(lines[i + 1].strip()))
        if (
            not text
            or _GOOGLE.match(text)
            or _OTHER_SECTION.match(text)
            or _REST_ANY.match(text)
            or (paragraph and underlined)
        ):
            break
        paragraph.append(text)
    return _join(paragraph)


def _google(lines: list[str], header: int, found: dict[str, list[str]]) -> None:
    outer = _indent(lines[header]) if header else -1  # the first line of a docstring has lost its indentation
    inner: int | None = None
    for i in range(header + 1, len(lines)):
        line = lines[i]
        if not line.strip():
            continue
        indent = _indent(line)
        if indent <= outer:
            return
        inner = indent if inner is None else inner
        entry = _GOOGLE_ENTRY.match(line.strip())
        if indent == inner and entry:
            found.setdefault(entry[1], [entry[2] or "", *_deeper(lines, i + 1, inner)])


def _numpy(lines: list[str], first: int, found: dict[str, list[str]]) -> None:
    if first >= len(lines):
        return
    outer = _indent(lines[first])
    for i in range(first, len(lines)):
        line = lines[i]
        following = lines[i + 1].strip() if i + 1 < len(lines) else ""
        if line.strip() and (_indent(line) < outer or _UNDERLINE.match(following)):
            return
        entry = _NUMPY_ENTRY.match(line.strip())
        if entry and _indent(line) == outer:
            for name in entry[1].split(","):
                found.setdefault(name.strip().lstrip("*"), _deeper(lines, i + 1, outer))


def _deeper(lines: list[str], first: int, indent: int) -> list[str]:
    """The lines from `first` on that are indented deeper than `indent`."""
    taken: list[str] = []
    for line in lines[first:]:
        if line.strip() and _indent(line) <= indent:
            break
        taken.append(line.strip())
    return taken


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _join(lines: list[str]) -> str:
    return " ".join(line for line in lines if line).strip()
