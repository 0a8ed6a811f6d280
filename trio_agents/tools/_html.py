"""From a web page to the text that a reader would see. Pure."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_UNSEEN: Final = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object"})
_BLOCKS: Final = frozenset(
    """
    address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
    header hr li main nav ol p pre section summary table td th title tr ul br
    """.split()  # noqa: SIM905 - easier to read
)


def html_to_text(page: str) -> str:
    """The visible text of a page, blocks on lines of their own, links as `[text](address)`. Never raises."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    text = re.sub(r"[ \t\r\f\v]+", " ", "".join(reader.parts))
    return re.sub(r"\n\s*\n\s*", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._unseen = 0
        self._pre = 0
        self._links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
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
            target = dict(attrs).get("href")
            self._links.append(target)
            self.parts.append("[" if target else "")

    def handle_endtag(self, tag: str) -> None:
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

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))
