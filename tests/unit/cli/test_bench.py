"""`trio-agents bench` finds the benchmarks of a checkout, or says where they are."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from trio_agents.cli import main
from trio_agents.cli._bench import main as bench
from trio_agents.errors import UsageError


def test_options_reach_the_benchmarks(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    assert "create_dispose" in capfd.readouterr().out


def test_an_installed_package_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no part of the installed package.*make bench"):
        bench(argparse.Namespace(arguments=[]), checkout=tmp_path)


def test_unknown_cases_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "nothing"]) == 1
    assert "no case or group is called 'nothing'" in capfd.readouterr().err
