"""Results in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .cases import CASES, OURS
from .figures import ratio
from .subjects import SUBJECTS
from .svg import number

UNITS: Final = {"us": "µs", "ms": "ms", "bytes": "B", "count": ""}


def table(results: Mapping[str, Any]) -> str:
    """Figures by case; then counts; then which aims are held."""
    lines: list[str] = []
    for case in CASES:
        found = results["figures"].get(case.name)
        if found is None:
            continue
        lines += ["", f"{case.title}  [{case.name}]"]
        for metric in case.metrics:
            for subject in case.sizes:
                figure = found.get(subject, {}).get(metric.key)
                if figure is None:
                    continue
                ours = found.get(OURS, {}).get(metric.key)
                times = ""
                if subject != OURS and ours is not None and ours["median"]:
                    times = f"{number(ratio(ours, figure)['median'])}×"
                value = f"{number(figure['median'])} {UNITS[metric.unit]}"
                quartiles = f"{number(figure['low'])}–{number(figure['high'])}"
                wall = f"wall {number(figure['wall'])}" if "wall" in figure else ""
                lines.append(
                    f"  {metric.title:28.28} {SUBJECTS[subject].title:17.17} {value:>14} {quartiles:>19} {times:>8}  {wall}"
                )
        for span, counts in results["counts"].get(case.name, {}).items():
            said = ", ".join(f"{name} {number(value)}" for name, value in counts.items() if value)
            lines.append(f"  counts of {span}: {said or 'none'}")
        for subject, why in results["failed"].get(case.name, {}).items():
            lines.append(f"  ! {SUBJECTS[subject].title} did not do it: {why}")
    lines += ["", "Aims", *_aims(results)]
    return "\n".join(lines)


def _aims(results: Mapping[str, Any]) -> list[str]:
    return [
        f"  {'held  ' if v['held'] else 'MISSED'} {number(v['value']):>8} {v['kind']:5} {v['aim']:32} {v['title']}"
        for v in results["verdicts"]
    ]


def comparison(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Two runs beside one another: what differs by more than both spreads is marked."""
    lines = [f"compared with the run of {before['machine']['date']} ({before['machine']['cpu']})", ""]
    lines.append(f"  {'':52} {'before':>12} {'now':>12} {'change':>9}")
    for case in CASES:
        old, new = (r["figures"].get(case.name, {}).get(OURS, {}) for r in (before, now))
        for metric in case.metrics:
            if metric.key not in old or metric.key not in new:
                continue
            a, b = old[metric.key], new[metric.key]
            if not a["median"]:
                continue
            clear = a["high"] < b["low"] or b["high"] < a["low"]
            change = (b["median"] / a["median"] - 1) * 100
            mark = ("slower" if change > 0 else "faster") if clear else ""
            name = f"{case.name}: {metric.title}"
            lines.append(
                f"  {name:52.52} {number(a['median']):>12} {number(b['median']):>12} {change:>+8.0f}% {mark}"
            )
    for case in CASES:
        old, new = (r["counts"].get(case.name, {}) for r in (before, now))
        for span in old.keys() & new.keys():
            lines += [
                f"  {case.name}: {count} of one {span}: {number(value)} before, {number(new[span][count])} now"
                for count, value in old[span].items()
                if abs(value - new[span].get(count, value)) > 0.01
            ]
    return "\n".join(lines)
