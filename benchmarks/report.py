"""Results as one page: self-contained HTML that needs no network and no script; and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from . import svg
from .cases import CASES, OURS, Case, Metric
from .figures import Figure, ratio
from .subjects import SUBJECTS

UNITS: Final = {"us": "µs of CPU", "ms": "ms of CPU", "bytes": "bytes", "count": ""}

STYLE: Final = """
:root { --ink: #1d2430; --soft: #5c6675; --line: #d9dee6; --page: #fbfbf9; --card: #fff; --ours: #0b7a75;
  --floor: #a9b2bd; --good: #1d7a3d; --bad: #b23a2e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #333c49; --page: #14181e;
  --card: #1b2129; --ours: #35b6ad; --floor: #66717f; --good: #5cc483; --bad: #e8796c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 880px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 30px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 22px; margin: 48px 0 8px; border-bottom: 1px solid var(--line); padding-bottom: 6px; }
h3 { font-size: 17px; margin: 0 0 2px; }
h4 { font-size: 14px; margin: 16px 0 4px; font-weight: 600; }
p { margin: 6px 0 12px; } p.about, .facts, .note { color: var(--soft); font-size: 14px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 18px 20px; margin: 16px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; } th { color: var(--soft); font-weight: 600; }
.held { color: var(--good); font-weight: 600; white-space: nowrap; } .missed { color: var(--bad); font-weight: 600; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 11px; } svg .own { font-weight: 700; }
svg .grid { stroke: var(--line); } svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
code, pre { font: 13px/1.5 ui-monospace, monospace; } pre { background: var(--page); border: 1px solid var(--line);
  border-radius: 6px; padding: 10px 12px; overflow-x: auto; }
.busy { color: var(--bad); }
.wide { overflow-x: auto; }
"""

FAIRNESS: Final = """\
Times are CPU time of the whole process, threads included, for one operation: the median of the rounds, with quartiles. Wall time stands beside it where waiting matters.
Subjects work in turn, each in a process of its own, one at a time. A ratio is the median of the ratios of rounds that ran directly after one another.
Every model is in the process and answers at once with one piece of text, so what is measured is the runtime. Ours, the harness and the floor stream two chunks and log the same ten events a turn; the Python peers' models do not stream and nothing is logged, which is less work.
“Dispose” exists only in ours and the harness. For the others, creating is making the object.
Durable turns: ours syncs before each request and at the end of each turn, the harness flushes at its checkpoints, openai-agents and langgraph use the SQLite stores that they offer, and pydantic-ai, which has no store, an append and a sync by hand.
Ours runs the whole contract in every figure: locks, barriers, validation, containment, closers. Bare Trio runs none of it.
Garbage is collected before each span, and the collector runs during it.
""".splitlines()


INTRODUCTION: Final = """<p>What creating, waking, running, logging, cancelling and ending agents costs in trio_agents,
on bare Trio, and elsewhere. Scales are logarithmic; shorter is better; numbers in brackets are times as long as ours.
</p>"""

REPRODUCE: Final = """<h2>Do it again</h2><section><pre>
make bench                                  # our own scenarios
python -m benchmarks --install-peers        # each peer in an environment of its own
python -m benchmarks --peers --json results.json --html report.html
</pre></section></main></body></html>"""


def _title(subject: str) -> str:
    return SUBJECTS[subject].title if subject in SUBJECTS else subject


def _ratio_note(found: Mapping[str, Mapping[str, Figure]], subject: str, key: str) -> str:
    ours = found.get(OURS, {}).get(key)
    if subject == OURS or ours is None or not ours["median"]:
        return ""
    return f"  ({svg.number(ratio(ours, found[subject][key])['median'])}×)"


def _chart(case: Case, metric: Metric, found: Mapping[str, Mapping[str, Figure]]) -> str:
    rows: list[svg.Bar] = []
    for subject in case.sizes:
        figure = found.get(subject, {}).get(metric.key)
        if figure is not None and figure["median"] > 0:
            note = _ratio_note(found, subject, metric.key)
            rows.append((subject, _title(subject), figure["median"], figure["low"], figure["high"], note))
    if len(rows) < 2:
        return ""
    label = f"{case.title}: {metric.title}"
    return f"<h4>{escape(metric.title)}</h4>" + svg.bars(label, rows, UNITS[metric.unit])


def _figures_table(case: Case, found: Mapping[str, Mapping[str, Figure]]) -> str:
    """A table for what has no rival, and wall times."""
    rows = []
    for metric in case.metrics:
        for subject in case.sizes:
            figure = found.get(subject, {}).get(metric.key)
            if figure is None:
                continue
            wall = f"{svg.number(figure['wall'])}" if "wall" in figure else ""
            rows.append(
                f"<tr><td>{escape(metric.title)}</td><td>{escape(_title(subject))}</td>"
                f'<td class="n">{svg.number(figure["median"])}</td>'
                f'<td class="n">{svg.number(figure["low"])} – {svg.number(figure["high"])}</td>'
                f'<td class="n">{wall}</td><td>{escape(UNITS[metric.unit])}</td></tr>'
            )
    head = (
        '<tr><th></th><th>who</th><th class="n">median</th><th class="n">quartiles</th><th class="n">wall</th>'
        "<th>unit</th></tr>"
    )
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _counts(counts: Mapping[str, Mapping[str, float]]) -> str:
    said = []
    for metric, found in counts.items():
        words = [
            f"{name} {svg.number(value)}"
            for name, value in found.items()
            if value or name in {"tasks", "steps"}
        ]
        said.append(f"{metric}: {', '.join(words)}")
    return f'<p class="note">Counts for one operation. {escape("; ".join(said))}.</p>' if said else ""


def _plots(case: Case, series: Mapping[str, Mapping[str, Any]]) -> str:
    if case.name == "growth":
        curves = {
            subject: [(x, y * 1e6) for x, y in found["growth"]]
            for subject, found in series.items()
            if "growth" in found
        }
        titles = {subject: _title(subject) for subject in curves}
        return svg.lines(
            "Cost of a turn by its number", curves, titles, "number of the turn", "µs of CPU a turn"
        )
    quantiles = {
        name: [value * 1e6 for value in values["quantiles"]]
        for name, values in series.get(OURS, {}).items()
        if isinstance(values, dict)
    }
    return svg.distribution(f"Latencies of {case.title}", quantiles, "µs, wall time") if quantiles else ""


def _case(case: Case, results: Mapping[str, Any]) -> str:
    found = results["figures"][case.name]
    charts = "".join(_chart(case, metric, found) for metric in case.metrics)
    parts = [
        f'<section id="{case.name}"><h3>{escape(case.title)}</h3><p class="about">{escape(case.about)}</p>',
        _plots(case, results["series"].get(case.name, {})),
        charts,
        f"<details{'' if charts else ' open'}><summary>all figures</summary>{_figures_table(case, found)}</details>",
        _counts(results["counts"].get(case.name, {})),
        "</section>",
    ]
    for subject, why in results["failed"].get(case.name, {}).items():
        parts.insert(-1, f'<p class="busy">{escape(_title(subject))} did not do it: {escape(why)}</p>')
    return "".join(parts)


def _aims(found: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for verdict in found:
        unit = {"us": " µs", "ms": " ms", "bytes": " bytes", "×": " ×"}.get(verdict["kind"], "")
        word = '<span class="held">held</span>' if verdict["held"] else '<span class="missed">missed</span>'
        rows.append(
            f'<tr><td><a href="#{verdict["case"]}">{escape(verdict["title"])}</a></td>'
            f"<td>{escape(verdict['aim'])}</td>"
            f'<td class="n">{svg.number(verdict["value"])}{unit}</td><td>{word}</td></tr>'
        )
    head = '<tr><th>work</th><th>aim</th><th class="n">reached</th><th></th></tr>'
    held = sum(1 for verdict in found if verdict["held"])
    return (
        f"<h2>What we aim for</h2><section><p>{held} of {len(found)} aims that could be judged in this run are held."
        f'</p><div class="wide"><table>{head}{"".join(rows)}</table></div></section>'
    )


def _facts(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    versions = "; ".join(
        f"{_title(name)}: " + ", ".join(f"{package} {version}" for package, version in about.items())
        for name, about in results["about"].items()
    )
    return (
        f'<p class="facts">{escape(machine["date"])} · {escape(machine["cpu"])}, {machine["cores"]} cores · '
        f"{escape(machine['system'])} · {escape(machine['python'])} ({escape(machine['build'])}) · load at the start "
        f"{machine['load']}, at the end {machine.get('load_end', '?')}<br>{escape(versions)}</p>"
    )


def html(results: Mapping[str, Any]) -> str:
    """The page."""
    groups: dict[str, list[Case]] = {}
    for case in CASES:
        if case.name in results["figures"]:
            groups.setdefault(case.group, []).append(case)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>trio_agents: throughput of the agent lifecycle</title><style>{STYLE}</style></head><body><main>",
        "<h1>Throughput of the agent lifecycle</h1>",
        INTRODUCTION,
        _facts(results),
        _busy(results),
        _aims(results["verdicts"]),
    ]
    for group, cases in groups.items():
        parts.append(f"<h2>{escape(group)}</h2>")
        parts += [_case(case, results) for case in cases]
    notes = "".join(f"<li>{escape(note)}</li>" for note in FAIRNESS)
    parts.append(f"<h2>What is compared, and what is not equal</h2><section><ul>{notes}</ul></section>")
    parts.append(REPRODUCE)
    return "\n".join(part for part in parts if part)


def _busy(results: Mapping[str, Any]) -> str:
    load = max(results["machine"].get("load") or 0, results["machine"].get("load_end") or 0)
    if load <= 1.5:
        return ""
    return (
        '<p class="busy">The machine was busy with other work during this run. CPU times are up to twice those of a '
        "quiet one; ratios hold better than figures, counts hold exactly.</p>"
    )


# --- Markdown -------------------------------------------------------------------------------------------


def markdown(results: Mapping[str, Any]) -> str:
    """The tables for the documentation page."""
    machine = results["machine"]
    taken = f"Taken {machine['date'][:10]} on {machine['cpu']}, {machine['cores']} cores, {machine['python']}"
    unit = "µs of CPU time for one operation, medians; in brackets how many times ours."
    lines = [f"{taken} ({machine['build']}). {unit}", ""]
    rivals = [name for name in SUBJECTS if any(name in found for found in results["figures"].values())]
    lines.append("| work | " + " | ".join(_title(name) for name in rivals) + " |")
    lines.append("|---|" + "---:|" * len(rivals))
    for case in CASES:
        found = results["figures"].get(case.name, {})
        for metric in case.metrics:
            if (
                metric.unit not in {"us", "ms"}
                or sum(metric.key in figures for figures in found.values()) < 2
            ):
                continue
            cells = []
            for name in rivals:
                figure = found.get(name, {}).get(metric.key)
                cells.append(
                    ""
                    if figure is None
                    else _cell(figure, metric) + _ratio_note(found, name, metric.key).replace("  ", " ")
                )
            lines.append(f"| {_work(case, metric)} | " + " | ".join(cells) + " |")
    lines += ["", "| aim | reached | |", "|---|---:|---|"]
    for verdict in results["verdicts"]:
        unit = {"us": " µs", "ms": " ms", "bytes": " bytes", "×": " ×"}.get(verdict["kind"], "")
        lines.append(
            f"| {verdict['title']}: {verdict['aim']} | {svg.number(verdict['value'])}{unit} | "
            f"{'held' if verdict['held'] else 'missed'} |"
        )
    return "\n".join(lines) + "\n"


def _cell(figure: Figure, metric: Metric) -> str:
    return svg.number(figure["median"]) + (" ms" if metric.unit == "ms" else "")


def _work(case: Case, metric: Metric) -> str:
    return case.title if len(case.metrics) == 1 else f"{case.title}: {metric.title}"
