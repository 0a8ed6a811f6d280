"""`python -m benchmarks`, which is what `make bench` and `trio-agents bench` run."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from . import machine, report
from .cases import CASES, OURS, Case
from .figures import verdicts
from .runner import run_cases
from .subjects import SUBJECTS, install, scratch_place
from .table import comparison, table


def arguments() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="trio-agents bench",
        description="Measure the agent lifecycle. Prints a table, and leaves results.json and report.html.",
    )
    parser.add_argument("--only", metavar="NAMES", help="cases or groups, separated by commas (see --list)")
    parser.add_argument("--peers", action="store_true", help="measure the installed peers too")
    parser.add_argument("--json", metavar="FILE", help="where the results go (.bench-out/results.json)")
    parser.add_argument("--html", metavar="FILE", help="where the page goes (.bench-out/report.html)")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables of the documentation")
    parser.add_argument("--compare", metavar="FILE", help="compare with the results of an earlier run")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="rounds of each case, instead of its own number"
    )
    parser.add_argument("--pyperf", metavar="FILE", help="also write times for `pyperf compare_to`")
    parser.add_argument("--from", dest="source", metavar="FILE", help="measure nothing: show these results")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument(
        "--install-peers",
        nargs="*",
        metavar="NAME",
        help="install peers (all, or these), each for itself; then stop",
    )
    parser.add_argument(
        "--profile", metavar="CASE", help="profile one case instead; says where its time goes"
    )
    return parser


def chosen(only: str | None) -> list[Case]:
    """The cases that are asked for.

    Raises:
        SystemExit: a name is neither a case nor a group.
    """
    if only is None:
        return list(CASES)
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if not any(name in {case.name, case.group.lower(), case.group} for case in CASES):
            raise SystemExit(f"no case or group is called {name!r}; --list shows them")
    return [case for case in CASES if {case.name, case.group, case.group.lower()} & set(names)]


def subjects(peers: bool) -> list[str]:
    """Who takes part."""
    if not peers:
        return [name for name, subject in SUBJECTS.items() if not subject.is_peer]
    for subject in SUBJECTS.values():
        if not subject.is_installed:
            print(
                f"{subject.title} is left out: install it with --install-peers {subject.name}",
                file=sys.stderr,
            )
    return [name for name, subject in SUBJECTS.items() if subject.is_installed]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run what is asked for."""
    described = machine.describe()
    start = time.perf_counter()
    shows_progress = sys.stderr.isatty()

    def progress(text: str) -> None:
        if shows_progress:
            print(
                f"\r\x1b[K{time.perf_counter() - start:5.0f} s  {text}", end="", file=sys.stderr, flush=True
            )
        elif text.endswith(" s"):
            print(f"{time.perf_counter() - start:5.0f} s  {text}", file=sys.stderr)

    def rounds(case: Case) -> int:
        return options.rounds or case.rounds

    results = trio.run(run_cases, chosen(options.only), subjects(options.peers), rounds, progress)
    if shows_progress:
        print("\r\x1b[K", end="", file=sys.stderr)
    described["load_end"] = machine.describe()["load"]
    described["seconds"] = round(time.perf_counter() - start)
    results["machine"] = described
    results["verdicts"] = verdicts(results["figures"])
    _shorten(results)
    return results


def _shorten(results: dict[str, Any]) -> None:
    """Thousands of latencies become a hundred quantiles."""
    for by_subject in results["series"].values():
        for series in by_subject.values():
            for name, values in series.items():
                if values and not isinstance(values[0], list):
                    last = len(values) - 1
                    series[name] = {"quantiles": [values[round(last * share / 100)] for share in range(101)]}


def write_pyperf(results: dict[str, Any], path: str) -> None:
    """Samples in the form of pyperf, whose tools test whether a difference is one.

    Raises:
        SystemExit: pyperf is not installed.
    """
    try:
        pyperf = importlib.import_module("pyperf")
    except ImportError:
        raise SystemExit("--pyperf needs pyperf: python -m pip install pyperf") from None
    benchmarks = []
    for case in CASES:
        for subject, found in results["figures"].get(case.name, {}).items():
            for metric in case.metrics:
                if metric.key in found and metric.unit in {"us", "ms"}:
                    factor = 1e-6 if metric.unit == "us" else 1e-3
                    values = [value * factor for value in found[metric.key]["samples"] if value > 0]
                    name = f"{case.name}/{metric.key}" + ("" if subject == OURS else f" ({subject})")
                    run = pyperf.Run(values, metadata={"name": name}, collect_metadata=False)
                    benchmarks.append(pyperf.Benchmark([run]))
    pyperf.BenchmarkSuite(benchmarks).dump(path, replace=True)


def profile(name: str) -> None:
    """Run one case under cProfile, and print the functions that take the most time of their own."""
    [case] = chosen(name)
    code = (
        "import cProfile, json, pstats, sys; from benchmarks.ours.__main__ import run; "
        "params = json.loads(sys.argv[2]); run(sys.argv[1], params); p = cProfile.Profile(); "
        "p.runcall(run, sys.argv[1], params); s = pstats.Stats(p); s.strip_dirs(); "
        "s.sort_stats('tottime').print_stats(30)"
    )
    command, cwd = SUBJECTS[OURS].command()
    params = json.dumps(case.sizes[OURS]).replace("{logs}", str(scratch_place() / "logs"))
    subprocess.run([command[0], "-c", code, name, params], cwd=cwd, check=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code: 1 if somebody could not do their work."""
    options = arguments().parse_args(argv)
    if options.list:
        for case in CASES:
            print(f"{case.name:24} {case.group:12} {case.title}")
        return 0
    if options.install_peers is not None:
        for name in options.install_peers or [name for name, s in SUBJECTS.items() if s.is_peer]:
            if name not in SUBJECTS or not SUBJECTS[name].is_peer:
                peers = ", ".join(name for name, s in SUBJECTS.items() if s.is_peer)
                raise SystemExit(f"no peer is called {name!r}; there are {peers}")
            print(f"installing {name}")
            install(name)
        return 0
    if options.profile:
        profile(options.profile)
        return 0
    results = json.loads(Path(options.source).read_text("utf-8")) if options.source else measure(options)
    print(table(results))
    if options.compare:
        print()
        print(comparison(json.loads(Path(options.compare).read_text("utf-8")), results))
    _write(results, options)
    return 1 if results["failed"] else 0


def _write(results: dict[str, Any], options: argparse.Namespace) -> None:
    out = scratch_place()
    data, page = Path(options.json or out / "results.json"), Path(options.html or out / "report.html")
    if not options.source or options.json:
        data.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page.write_text(report.html(results), "utf-8")
    if options.markdown:
        Path(options.markdown).write_text(report.markdown(results), "utf-8")
    if options.pyperf:
        write_pyperf(results, options.pyperf)
    print(f"\n{data} and {page}, after {results['machine'].get('seconds', '?')} s")


if __name__ == "__main__":
    sys.exit(main())
