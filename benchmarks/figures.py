"""Samples to figures: medians with their spread, ratios round by round, aims held or missed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .cases import CASES, OURS, Aim, Case, Metric

Figure = dict[str, Any]
"""`median`, `low` and `high` (quartiles), `samples`, in the unit of its metric; for times also `wall`."""

FACTOR = {"us": 1e6, "ms": 1e3, "bytes": 1.0, "count": 1.0}


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Quartiles; with few values their ends."""
    if len(values) < 4:
        return min(values), max(values)
    cut = statistics.quantiles(values, n=4, method="inclusive")
    return cut[0], cut[2]


def figure(values: Sequence[float], wall: Sequence[float] = ()) -> Figure:
    """The figure of some samples."""
    low, high = spread(values)
    made: Figure = {"median": statistics.median(values), "low": low, "high": high, "samples": list(values)}
    if wall:
        made["wall"] = statistics.median(wall)
    return made


def figures_of(case: Case, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """The figures of one subject in one case, by metric."""
    made: dict[str, Figure] = {}
    for metric in case.metrics:
        factor = FACTOR[metric.unit]
        samples = [s for r in rounds for s in r["samples"] if s["metric"] == metric.key]
        values = [r["values"][metric.key] for r in rounds if metric.key in r["values"]]
        if samples:
            cpu = [s["cpu"] / s["ops"] * factor for s in samples]
            made[metric.key] = figure(cpu, [s["wall"] / s["ops"] * factor for s in samples])
        elif values:
            made[metric.key] = figure([value * factor for value in values])
    extra = _extra_per_event(rounds)
    if extra:
        made["written_extra"] = figure(extra)
    return made


def _extra_per_event(rounds: Sequence[Mapping[str, Any]]) -> list[float]:
    """What writing adds to each event of a turn: both sides of each difference are of one round."""
    made = []
    for r in rounds:
        by = {s["metric"]: s for s in r["samples"]}
        if "written" in by and "memory" in by and by["written"]["events"]:
            one, other = by["written"], by["memory"]
            made.append((one["cpu"] / one["events"] - other["cpu"] / other["events"]) * 1e6)
    return made


def ratio(ours: Figure, theirs: Figure) -> Figure:
    """How many times longer they take: pairs of the same round where both have it, since those ran one after another."""
    pairs = [b / a for a, b in zip(ours["samples"], theirs["samples"], strict=False) if a > 0]
    return figure(pairs)


def judge(
    case: Case, metric: Metric, aim: Aim, found: Mapping[str, Mapping[str, Figure]]
) -> dict[str, Any] | None:
    """Whether we hold an aim: the figure, what was wanted, and the verdict; None if it was not measured."""
    ours = found.get(OURS, {}).get(metric.key)
    if ours is None:
        return None
    if aim.at_most is not None:
        value, wanted = ours["median"], f"at most {aim.at_most:g}"
        return {"aim": wanted, "value": value, "held": value <= aim.at_most, "kind": metric.unit}
    assert aim.times is not None
    if aim.of is not None:
        other = found[OURS].get(aim.of)
        if other is None:
            return None
        value = ratio(other, ours)["median"]
        title = next(m.title for m in case.metrics if m.key == aim.of)
        return {
            "aim": f"at most {aim.times:g} × {title}",
            "value": value,
            "held": value <= aim.times,
            "kind": "×",
        }
    theirs = found.get(aim.faster_than or "", {}).get(metric.key)
    if theirs is None:
        return None
    if aim.times < 1:  # the floor is never reached: how far above it is the question
        value, most = ratio(theirs, ours)["median"], 1 / aim.times
        wanted = f"at most {most:g} × {aim.faster_than}"
        return {"aim": wanted, "value": value, "held": value <= most, "kind": "×"}
    value = ratio(ours, theirs)["median"]
    return {
        "aim": f"{aim.times:g} × faster than {aim.faster_than}",
        "value": value,
        "held": value >= aim.times,
        "kind": "×",
    }


def verdicts(results: Mapping[str, Mapping[str, Mapping[str, Figure]]]) -> list[dict[str, Any]]:
    """Every aim that could be judged."""
    made = []
    for case, metric in each_metric(results):
        for aim in metric.aims:
            found = judge(case, metric, aim, results[case.name])
            if found is not None:
                made.append(
                    {
                        "case": case.name,
                        "metric": metric.key,
                        "title": f"{case.title}: {metric.title}",
                        **found,
                    }
                )
    return made


def each_metric(names: Iterable[str]) -> list[tuple[Case, Metric]]:
    """Cases that were measured, and their metrics, in order."""
    known = set(names)
    return [(case, metric) for case in CASES if case.name in known for metric in case.metrics]
