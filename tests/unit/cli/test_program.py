"""Arguments and exit codes, within this process."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from trio_agents.cli import main
from trio_agents.cli._models import default_model
from trio_agents.cli._program import _parser
from trio_agents.cli._stores import default_root

BAD = [
    ("run",),
    ("run", ""),
    ("run", "x", "--tools", "hammer"),
    ("run", "x", "--max-tokens", "0"),
    ("run", "x", "--max-tokens", "many"),
    ("run", "x", "--cwd", "/nowhere/at/all"),
    ("run", "x", "--model", "demo"),
    ("run", "x", "--retries", "-1"),
    ("dance",),
    (),
    ("sessions",),
    ("sessions", "list", "--limit", "-1"),
]


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "TRIO_AGENTS_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRIO_AGENTS_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("arguments", BAD)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("trio-agents")


def test_the_librarys_log_is_left_as_it_was() -> None:
    logger = logging.getLogger("trio_agents")
    before = (logger.level, logger.propagate, list(logger.handlers))
    assert main(["sessions", "list"]) == 0
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_run_is_listed_shown_forked_exported_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    told("run", "hello", "--session", "one", "--tools", "none")
    assert [entry["id"] for entry in json.loads(told("sessions", "list", "--json"))] == ["one"]
    assert "one" in told("sessions", "list")
    shown = json.loads(told("sessions", "show", "one", "--json"))
    assert (shown["roles"], shown["status"]) == (["user", "assistant"], "closed")
    assert shown["turns"] == [{"turn": 1, "end": "completed"}]
    assert sum(shown["types"].values()) == shown["events"]
    assert shown["header"]["id"] == "one"
    assert "hello" in told("sessions", "show", "one")
    assert told("sessions", "fork", "one", "--id", "two") == "two\n"
    lines = told("sessions", "export", "two").splitlines()
    assert json.loads(lines[0])["parentSession"] == "one"
    assert len(lines) == shown["events"] + 1  # the header
    Path("copy.jsonl").write_text("\n".join(lines) + "\n")
    assert json.loads(told("sessions", "show", "copy.jsonl", "--json"))["header"]["id"] == "two"
    assert "the same" in told("replay", "one")
    assert json.loads(told("replay", "one", "--json"))["outcome"] == "same"
    assert json.loads(told("sessions", "delete", "two", "--json")) == {"deleted": "two"}
    assert main(["sessions", "show", "two"]) == 1


def test_a_replay_that_differs_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "hello", "--session", "one", "--tools", "none"])
    capsys.readouterr()
    main(["sessions", "export", "one"])
    lines = capsys.readouterr().out.splitlines()
    at = next(index for index, line in enumerate(lines) if '"turn/end"' in line)
    changed = lines[at].replace('"completed"', '"max-tokens"')
    Path("changed.jsonl").write_text("\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n")
    assert main(["replay", "changed.jsonl", "--json"]) == 1
    difference = json.loads(capsys.readouterr().out)["difference"]
    assert (difference["what"], difference["recorded_seq"]) == ("different end kind", at - 1)
    assert main(["replay", "changed.jsonl"]) == 1
    assert f"recorded, event {at - 1}: turn/end" in capsys.readouterr().out


def test_the_model_is_the_demo_one_unless_another_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_model() == "demo/demo"
    monkeypatch.setenv("OPENAI_MODEL", "gpt-x")
    assert default_model() == "demo/demo"
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert default_model() == "openai/gpt-x"
    monkeypatch.setenv("TRIO_AGENTS_MODEL", "anthropic/c")
    assert default_model() == "anthropic/c"


def test_the_store_is_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRIO_AGENTS_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_root() == tmp_path / "trio-agents" / "sessions"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # to be ignored, says its specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".local" / "share" / "trio-agents" / "sessions"


def test_the_reference_names_every_command_and_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "command-line.md").read_text()
    missing = [word for word in _spoken(_parser()) if word not in page]
    assert missing == []


def _spoken(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options and commands of a parser and of those below it."""
    for action in parser._actions:
        yield from (option for option in action.option_strings if option not in {"-h", "--help", "--version"})
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield name
                yield from _spoken(below)
