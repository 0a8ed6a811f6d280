"""One line of text for an exception and everything that led to it."""

from __future__ import annotations

from typing import Final

MAX_LENGTH: Final = 4000
_MAX_PARTS: Final = 50


def describe(exc: BaseException) -> str:
    """The text of an exception, its causes, and for a group its members: one line for a log or a model.

    A cause is `__cause__`, else `__context__` unless it is suppressed. What was said already is not said again,
    a cycle ends, an exception that cannot be printed shows its type only. Never raises; the text is bounded.
    """
    said: set[str] = set()
    text = _chain(exc, said, seen=set())
    if len(text) > MAX_LENGTH:
        text = text[: MAX_LENGTH - 1] + "…"
    return text


def _chain(exc: BaseException, said: set[str], seen: set[int]) -> str:
    parts: list[str] = []
    link: BaseException | None = exc
    while link is not None and id(link) not in seen and len(seen) < _MAX_PARTS:
        seen.add(id(link))
        text = _one(link)
        if isinstance(link, BaseExceptionGroup):
            text = _group(text, link, said, seen)
        if text not in said:
            said.add(text)
            parts.append(text)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "; caused by ".join(parts)


def _group(text: str, group: BaseExceptionGroup[BaseException], said: set[str], seen: set[int]) -> str:
    members = [_chain(member, said, seen) for member in group.exceptions]
    members = [member for member in members if member]  # a member that only repeats adds nothing
    return f"{text} [{' | '.join(members)}]" if members else text


def _one(exc: BaseException) -> str:
    name = type(exc).__name__
    message = printed(exc)
    if message is None:
        return f"{name} (it cannot be printed)"
    message = " ".join(message.split("\n")).strip()
    return f"{name}: {message}" if message else name


def printed(exc: BaseException) -> str | None:
    """What an exception says for itself, or None if it cannot be printed."""
    try:
        return exc.message if isinstance(exc, BaseExceptionGroup) else str(exc)
    except Exception:  # noqa: BLE001 - a broken __str__ may raise anything, and this text is the last resort
        return None
