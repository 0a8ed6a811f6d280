"""Every Python example of the README, the pages and the docstrings runs, and prints what it says it prints.

An example is a fenced block ```` ```python ````. `#> text` after a line says what that line prints; a block that cannot run by itself
is ```` ```python test="skip" ````, and the page has to say why. Blocks run in an empty folder. Those that ask a provider get a fake one;
see `provider.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

from tests.docs.provider import provider_for

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "trio_agents"]
EXAMPLES = [
    pytest.param(example, id=str(example).replace(str(ROOT) + "/", ""))
    for example in find_examples(*(str(source) for source in SOURCES if "_build" not in source.parts))
]


def test_the_pages_are_found() -> None:
    assert {"README.md", "index.md", "contributing.md"} <= {source.name for source in SOURCES}


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(
    example: CodeExample, eval_example: EvalExample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if example.prefix_settings().get("test") == "skip":
        pytest.skip("the page says why")
    monkeypatch.chdir(tmp_path)
    eval_example.set_config(line_length=110)
    with provider_for(example.prefix_settings()) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        if eval_example.update_examples:
            eval_example.run_print_update(example)
        else:
            eval_example.run_print_check(example)
