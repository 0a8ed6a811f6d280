"""Where a session lies below the root, as text: which name stands for which id or working directory.

    <root>/<project>/<session>/session.jsonl | session.jsonl.zstd

Pure: names only. The escaping works on UTF-16 code units, as the format was first written by a program whose
strings are made of them; so a character beyond the basic plane gives two escapes, and lone surrogates stay apart.
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import UsageError

PLAIN_NAME: Final = "session.jsonl"
ZSTD_NAME: Final = "session.jsonl.zstd"
LOG_NAMES: Final = (PLAIN_NAME, ZSTD_NAME)
LOCK_NAME: Final = "lock"
ATTACHMENTS_NAME: Final = "attachments"
SPILL_NAME: Final = "spill"
NO_CWD: Final = "_no-cwd"

_SLUG_LENGTH: Final = 251
_KEPT: Final = frozenset(map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"))
_SEPARATORS: Final = frozenset(map(ord, "/\\:"))
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
_SEGMENT: Final = re.compile(r"(?:[A-Za-z0-9._-]|~[0-9A-F]{4})+")
_ESCAPE: Final = re.compile(r"~([0-9A-F]{4})")


def _units(text: str) -> list[int]:
    raw = text.encode("utf-16-le", "surrogatepass")
    return [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]


def session_segment(session_id: str) -> str:
    """The directory name of a session. Different ids have different names, and none leads elsewhere.

    Raises:
        UsageError: the id is empty or no string, or writes one character as two surrogates: no log could tell it
            from the id with that character.
    """
    if type(session_id) is not str or not session_id:
        raise UsageError(f"a session id is a non-empty string, not {session_id!r}")
    if session_id in {".", ".."}:
        return session_id.replace(".", "~002E")
    if _PLAIN.fullmatch(session_id):
        return session_id
    if _joined(session_id) != session_id:
        raise UsageError(f"session id {session_id!r} holds a pair of surrogates in the place of a character")
    return "".join(chr(unit) if unit in _KEPT else f"~{unit:04X}" for unit in _units(session_id))


def _joined(text: str) -> str:
    """The text with each pair of surrogates as the character that it stands for."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def session_id_of(segment: str) -> str | None:
    """The id that a directory name stands for, or None if it stands for none."""
    if not _SEGMENT.fullmatch(segment):
        return None
    if "~" not in segment:
        return None if segment in {".", ".."} else segment
    escaped = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), segment)
    session_id = _joined(escaped)
    # Only the one spelling that `session_segment` gives is a session's: `~0041` is not another `A`.
    return session_id if session_segment(session_id) == segment else None


def project_segment(cwd: str | None) -> str:
    """The directory name of everything that was run in one working directory. Lossy: names may coincide.

    Raises:
        UsageError: the path is empty.
    """
    if cwd is None:
        return NO_CWD
    if not cwd:
        raise UsageError("a working directory is a non-empty path, or absent")
    slug = "".join(_slug_parts(_units(cwd))).lstrip("-")
    return f"--{slug[:_SLUG_LENGTH] or 'root'}--"


def _slug_parts(units: list[int]) -> list[str]:
    parts: list[str] = []
    in_separator = False
    for unit in units:
        if unit in _SEPARATORS:
            if not in_separator:
                parts.append("-")
            in_separator = True
            continue
        in_separator = False
        parts.append(chr(unit) if unit in _KEPT else f"~{unit:04X}")
    return parts
