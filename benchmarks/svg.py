"""Plots as inline SVG: bars with spread on a logarithmic scale, lines, distributions. No scripts, no files beside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

COLOURS: Final = {
    "trio_agents": "var(--ours)",
    "floor": "var(--floor)",
    "harness": "#c2703d",
    "pydantic-ai": "#a0528f",
    "openai-agents": "#4f7d5c",
    "langgraph": "#5f6db3",
}
WIDTH: Final = 760
LEFT: Final = 150
RIGHT: Final = 130

Bar = tuple[str, str, float, float, float, str]
"""Subject, its title, median, low, high, and the text behind the bar."""


def number(value: float) -> str:
    """A figure for people: three digits that count."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2g}" if size < 1 else f"{value:.2f}"


def _log(value: float, low: float, high: float, start: float, length: float) -> float:
    span = math.log10(high) - math.log10(low) or 1.0
    return start + (math.log10(max(value, low)) - math.log10(low)) / span * length


def _decades(low: float, high: float) -> list[float]:
    return [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}">'
        + "".join(parts)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def bars(label: str, rows: Sequence[Bar], unit: str) -> str:
    """Horizontal bars on a logarithmic scale; whiskers show the quartiles."""
    values = [value for row in rows for value in row[2:5] if value > 0]
    if not values:
        return ""
    ticks = _decades(min(values), max(values))
    low, high = ticks[0], ticks[-1] if ticks[-1] > ticks[0] else ticks[0] * 10
    length, step = WIDTH - LEFT - RIGHT, 24
    bottom = len(rows) * step + 6
    parts = []
    for tick in ticks:
        x = _log(tick, low, high, LEFT, length)
        parts += [
            _rule(x, 2, x, bottom, "grid"),
            _text(x, bottom + 14, number(tick), anchor="middle", kind="tick"),
        ]
    for place, (subject, title, value, least, most, note) in enumerate(rows):
        y = place * step + 6
        end = _log(value, low, high, LEFT, length)
        colour = COLOURS.get(subject, "#888")
        parts.append(
            _text(LEFT - 8, y + 13, title, anchor="end", kind="own" if subject == "trio_agents" else "")
        )
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{max(end - LEFT, 1.5):.1f}" height="16" rx="2" fill="{colour}"/>'
        )
        note_at = end
        if most > least:
            a, b = (_log(v, low, high, LEFT, length) for v in (least, most))
            parts.append(_rule(a, y + 8, b, y + 8, "whisker"))
            note_at = max(end, b)
        parts.append(_text(note_at + 8, y + 13, f"{number(value)}{note}", kind="value"))
    parts.append(_text(WIDTH - 4, bottom + 14, unit, anchor="end", kind="tick"))
    return _svg(bottom + 20, label, parts)


def lines(
    label: str,
    curves: Mapping[str, Sequence[Sequence[float]]],
    titles: Mapping[str, str],
    x_title: str,
    y_title: str,
) -> str:
    """Curves, both axes logarithmic."""
    points = [point for curve in curves.values() for point in curve if point[0] > 0 and point[1] > 0]
    if not points:
        return ""
    xs = _decades(min(p[0] for p in points), max(p[0] for p in points))
    ys = _decades(min(p[1] for p in points), max(p[1] for p in points))
    left, top, width, height = 70, 10, WIDTH - 70 - RIGHT, 300
    parts = []
    for tick in xs:
        x = _log(tick, xs[0], xs[-1], left, width)
        parts += [
            _rule(x, top, x, top + height, "grid"),
            _text(x, top + height + 16, number(tick), anchor="middle", kind="tick"),
        ]
    for tick in ys:
        y = top + height - _log(tick, ys[0], ys[-1], 0, height)
        parts += [
            _rule(left, y, left + width, y, "grid"),
            _text(left - 6, y + 4, number(tick), anchor="end", kind="tick"),
        ]
    ends: list[tuple[float, float, str]] = []
    for subject, curve in curves.items():
        places = [
            (_log(x, xs[0], xs[-1], left, width), top + height - _log(y, ys[0], ys[-1], 0, height))
            for x, y in curve
            if x > 0 and y > 0
        ]
        if not places:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = COLOURS.get(subject, "#888")
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append((places[-1][1], places[-1][0], subject))
    used: list[float] = []
    for y, x, subject in sorted(ends):
        free = max([y, *(other + 14 for other in used if other + 14 > y)])
        used.append(free)
        parts.append(
            _text(
                x + 6,
                free + 4,
                titles.get(subject, subject),
                kind="own" if subject == "trio_agents" else "value",
            )
        )
    parts.append(_text(left + width, top + height + 32, x_title, anchor="end", kind="tick"))
    parts.append(_text(left, top + height + 32, y_title, kind="tick"))
    return _svg(top + height + 40, label, parts)


def distribution(label: str, quantiles: Mapping[str, Sequence[float]], y_title: str) -> str:
    """Percentiles of latencies: how long the quickest half, 90 and 99 of 100 take."""
    values = [value for curve in quantiles.values() for value in curve if value > 0]
    if not values:
        return ""
    ys = _decades(min(values), max(values))
    left, top, width, height = 70, 10, WIDTH - 70 - RIGHT, 220
    # The tail is what matters: the axis is the logarithm of how rare it is.
    marks = [0.5, 0.75, 0.9, 0.95, 0.99]
    top_rarity = -math.log10(1 - 0.99)

    def place(share: float) -> float:
        return left + min(-math.log10(max(1 - share, 0.01)), top_rarity) / top_rarity * width

    parts = []
    for mark in marks:
        x = place(mark)
        parts += [
            _rule(x, top, x, top + height, "grid"),
            _text(x, top + height + 16, f"p{mark * 100:g}", anchor="middle", kind="tick"),
        ]
    for tick in ys:
        y = top + height - _log(tick, ys[0], ys[-1], 0, height)
        parts += [
            _rule(left, y, left + width, y, "grid"),
            _text(left - 6, y + 4, number(tick), anchor="end", kind="tick"),
        ]
    for number_of, (name, curve) in enumerate(quantiles.items()):
        path = " ".join(
            f"{place(share / 100):.1f},{top + height - _log(value, ys[0], ys[-1], 0, height):.1f}"
            for share, value in enumerate(curve[:100])
        )
        colour = ("var(--ours)", "#c2703d", "#4f7d5c")[number_of % 3]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        end = top + height - _log(curve[99], ys[0], ys[-1], 0, height)
        parts.append(_text(left + width + 6, end + 4, name, kind="value"))
    parts.append(_text(left, top + height + 32, y_title, kind="tick"))
    return _svg(top + height + 40, label, parts)
