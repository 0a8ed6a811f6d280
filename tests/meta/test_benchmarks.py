"""The benchmarks themselves: from samples to figures, verdicts, table, page; and one real run, small."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks import report, table
from benchmarks.__main__ import chosen, main
from benchmarks.cases import CASES, OURS, Aim, Case, Metric
from benchmarks.figures import figure, figures_of, judge, ratio, verdicts
from benchmarks.runner import run_cases
from benchmarks.subjects import SUBJECTS
from benchmarks.worker import Growth, Round


def _sample(metric: str, seconds: float, ops: int = 10, events: int | None = None) -> dict[str, Any]:
    return {"metric": metric, "ops": ops, "cpu": seconds, "wall": 2 * seconds, "events": events, "counts": {}}


def _round(*samples: dict[str, Any], **values: float) -> dict[str, Any]:
    return {"samples": list(samples), "values": values, "series": {}}


CASE = Case(
    name="work",
    group="Group",
    title="Some work",
    about="About it.",
    sizes={OURS: {}, "harness": {}},
    metrics=(
        Metric(key="a", title="the work", aims=(Aim(faster_than="harness", times=3), Aim(at_most=5))),
        Metric(key="written_extra", title="extra"),
    ),
)


def test_figures_are_medians_for_one_operation_with_quartiles_and_wall_time() -> None:
    rounds = [_round(_sample("a", seconds)) for seconds in (1e-5, 3e-5, 2e-5, 9e-5, 4e-5)]
    found = figures_of(CASE, rounds)["a"]
    assert found["median"] == pytest.approx(3)
    assert (found["low"], found["high"]) == (pytest.approx(2), pytest.approx(4))
    assert found["wall"] == pytest.approx(6)


def test_what_writing_adds_is_taken_within_each_round() -> None:
    rounds = [
        _round(_sample("memory", base, events=100), _sample("written", base + 3e-4, events=100))
        for base in (1e-3, 5e-3, 2e-3)
    ]
    assert figures_of(CASE, rounds)["written_extra"]["median"] == pytest.approx(3)


def test_ratios_pair_rounds_that_ran_together() -> None:
    # The machine was three times slower in the second round: the ratio does not see it.
    assert ratio(figure([1.0, 3.0]), figure([10.0, 30.0]))["median"] == pytest.approx(10)


def test_aims_are_judged_within_one_run() -> None:
    found = {OURS: {"a": figure([4.0])}, "harness": {"a": figure([10.0])}}
    faster, bound = CASE.metrics[0].aims
    slow, quick = judge(CASE, CASE.metrics[0], faster, found), judge(CASE, CASE.metrics[0], bound, found)
    assert slow is not None
    assert quick is not None
    assert (slow["held"], quick["held"]) == (False, True)
    assert judge(CASE, CASE.metrics[0], faster, {OURS: found[OURS]}) is None  # no peer, no verdict


@pytest.mark.parametrize(("ours", "held"), [(19.0, True), (21.0, False)])
def test_an_aim_above_the_floor_says_how_far(ours: float, held: bool) -> None:
    found = {OURS: {"a": figure([ours])}, "floor": {"a": figure([10.0])}}
    verdict = judge(CASE, CASE.metrics[0], Aim(faster_than="floor", times=0.5), found)
    assert verdict == {"aim": "at most 2 × floor", "value": ours / 10, "held": held, "kind": "×"}


def test_growth_marks_each_hundred_turns() -> None:
    made = Round()
    marks = Growth(made, {200: "late"})
    for number in range(1, 301):
        marks.turn(number)
    assert [point[0] for point in made.series["growth"]] == [100, 200, 300]
    assert [sample["metric"] for sample in made.samples] == ["late"]


def test_every_case_is_done_by_somebody_known() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    for case in CASES:
        assert case.sizes.keys() <= SUBJECTS.keys()
        keys = {metric.key for metric in case.metrics}
        aims = [aim for metric in case.metrics for aim in metric.aims]
        assert all(aim.of is None or aim.of in keys for aim in aims)


def test_cases_are_chosen_by_name_or_group() -> None:
    assert [case.name for case in chosen("inbox")] == ["inbox"]
    assert {case.group for case in chosen("memory")} == {"Memory"}
    with pytest.raises(SystemExit, match="no case or group"):
        chosen("nothing")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        links = [value or "" for name, value in attrs if name in {"src", "href"}]
        self.outside += [link for link in links if not link.startswith("#")]


async def _small_run() -> dict[str, Any]:
    [case] = chosen("create_dispose")
    small = attrs.evolve(case, sizes={OURS: {"agents": 20}, "floor": {"agents": 20}}, counted={"agents": 5})
    return await run_cases([small], [OURS, "floor"], lambda case: 2, lambda text: None)


async def test_a_run_becomes_a_table_and_a_page_that_needs_nothing(tmp_path: Path) -> None:
    results = await _small_run()
    assert not results["failed"]
    assert len(results["figures"]["create_dispose"]["floor"]["create_dispose"]["samples"]) == 2
    assert results["counts"]["create_dispose"]["create_dispose"]["tasks"] == 0
    results["machine"] = {
        "date": "2000-01-01 00:00 UTC", "system": "a system", "cpu": "a <processor>", "cores": 1, "python": "CPython",
        "build": "plain", "load": 0.1, "load_end": 9.0, "seconds": 1,
    }  # fmt: skip
    results["verdicts"] = verdicts(results["figures"])
    assert "Create and dispose one agent" in table.table(results)
    tags = _Tags()
    tags.feed(page := report.html(results))
    assert tags.seen["svg"] == 1
    assert "script" not in tags.seen
    assert tags.outside == []
    assert "a &lt;processor&gt;" in page
    assert "busy with other work" in page
    assert "| work |" in report.markdown(results)

    stored = tmp_path / "results.json"
    stored.write_text(json.dumps(results), "utf-8")
    shown = ["--from", str(stored), "--compare", str(stored), "--html", str(tmp_path / "page.html")]
    assert main(shown) == 0
    assert (tmp_path / "page.html").read_text("utf-8") == page


async def test_who_cannot_do_the_work_is_named_and_the_others_go_on() -> None:
    [case] = chosen("create_dispose")
    broken = attrs.evolve(case, sizes={OURS: {"agents": "many"}, "floor": {"agents": 20}}, counted=None)
    results = await run_cases([broken], [OURS, "floor"], lambda case: 1, lambda text: None)
    assert "TypeError" in results["failed"]["create_dispose"][OURS]
    assert "floor" in results["figures"]["create_dispose"]
