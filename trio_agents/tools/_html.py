"""From a web page to the text that a reader would see. Pure.

Pages come from anybody, so each is gone over once, from the left to the right: whatever is left open ends with the
page, as in a browser, and nothing is ever looked for again.
"""

from __future__ import annotations

import html
import re
from typing import Final, NamedTuple

_UNSEEN: Final = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object"})
_BLOCKS: Final = frozenset(
    """
    address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
    header hr li main nav ol p pre section summary table td th title tr ul br
    """.split()  # noqa: SIM905 - easier to read
)
# What these hold is no markup, up to their own end.
_RAW: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "iframe", "title", "textarea")
}

_TAG: Final = re.compile(r"[a-zA-Z][^\s/>]*")
_BETWEEN: Final = re.compile(r"[\s/]*")
_ATTRIBUTE: Final = re.compile(r"=?[^\s/>=]*")
_EQUALS: Final = re.compile(r"\s*=\s*")
_UNQUOTED: Final = re.compile(r"[^\s>]*")
# Numbers beyond every character: `html.unescape` would read them all the same, or fail on their length.
_NO_CHARACTER: Final = re.compile(r"&#(?:[xX]0*+[0-9a-fA-F]{7,}|0*+[0-9]{8,});?")
_KEPT_SPACE: Final = "\0"
"""Stands for a space of preformatted text until all others are counted as one."""


def html_to_text(page: str) -> str:
    """The visible text of a page, blocks on lines of their own, links as `[text](address)`. Never raises.

    Takes a time that grows with the length of the page, whatever is in it.
    """
    reader = _Reader()
    at = 0
    while (start := page.find("<", at)) >= 0:
        reader.take(page[at:start])
        at = _markup(page, start, reader)
    reader.take(page[at:])
    text = re.sub(r"[ \t\r\f\v]+", " ", "".join(reader.parts))
    text = re.sub(r"\n\s*\n\s*", "\n\n", re.sub(r" ?\n ?", "\n", text))
    return text.replace(_KEPT_SPACE, " ").strip()


def _markup(page: str, at: int, reader: _Reader) -> int:
    """Read what begins with a `<`; where it ends."""
    if page.startswith("<!--", at):
        return _behind(page, "-->", at + 2)
    if page.startswith(("<!", "<?"), at):
        return _behind(page, ">", at)
    is_end = page.startswith("</", at)
    found = _TAG.match(page, at + 1 + is_end)
    if found is None:
        if is_end:
            return _behind(page, ">", at)
        reader.take("<")
        return at + 1
    name = found[0].lower()
    tag = _rest_of_tag(page, found.end())
    if is_end:
        reader.end(name)
        return tag.end
    reader.start(name, tag.href)
    if tag.is_closed:
        reader.end(name)
    elif name in _RAW:
        last = _RAW[name].search(page, tag.end)
        end = len(page) if last is None else last.start()
        reader.take(page[tag.end : end])
        return end
    return tag.end


def _behind(page: str, what: str, at: int) -> int:
    found = page.find(what, at)
    return len(page) if found < 0 else found + len(what)


class _Tag(NamedTuple):
    """The rest of a tag behind its name: where it ends, its `href`, whether it closes itself."""

    end: int
    href: str | None
    is_closed: bool


def _rest_of_tag(page: str, at: int) -> _Tag:
    href: str | None = None
    while True:
        between = _end(_BETWEEN, page, at)
        if page.startswith(">", between):
            return _Tag(between + 1, href, page[at:between].endswith("/"))
        if between == len(page):
            return _Tag(between, href, False)
        at = _end(_ATTRIBUTE, page, between)
        name, value = page[between:at].lower(), ""
        equals = _EQUALS.match(page, at)
        if equals is not None:
            value, at = _value(page, equals.end())
        if name == "href" and href is None:
            href = _unescaped(value)


def _value(page: str, at: int) -> tuple[str, int]:
    quote = page[at : at + 1]
    if quote not in {'"', "'"}:
        end = _end(_UNQUOTED, page, at)
        return page[at:end], end
    end = page.find(quote, at + 1)
    if end < 0:
        return "", len(page)
    return page[at + 1 : end], end + 1


def _end(pattern: re.Pattern[str], page: str, at: int) -> int:
    """Where a match ends that may be empty."""
    found = pattern.match(page, at)
    return at if found is None else found.end()


def _unescaped(text: str) -> str:
    return html.unescape(_NO_CHARACTER.sub("\ufffd", text)) if "&" in text else text


class _Reader:
    """What a reader has seen so far."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._unseen = 0
        self._pre = 0
        self._links: list[str | None] = []

    def start(self, tag: str, href: str | None) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        if self._unseen:
            return
        if tag in _BLOCKS:
            self.parts.append("\n\n" if tag[0] == "h" or tag == "p" else "\n")
        if tag == "li":
            self.parts.append("- ")
        self._pre += tag == "pre"
        if tag == "a":
            self._links.append(href)
            self.parts.append("[" if href else "")

    def end(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        if self._unseen:
            return
        self._pre -= tag == "pre" and self._pre > 0
        if tag == "a" and self._links:
            target = self._links.pop()
            self.parts.append(f"]({target})" if target else "")
        if tag in _BLOCKS:
            self.parts.append("\n")

    def take(self, text: str) -> None:
        """Text between two tags."""
        if self._unseen:
            return
        text = _unescaped(text)
        if self._pre:
            self.parts.append(text.expandtabs().replace(" ", _KEPT_SPACE))
        else:
            self.parts.append(re.sub(r"\s+", " ", text))
