"""System prompts out of sections and variables (TRN-18, HDR-5)."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from trio_agents.errors import UsageError
from trio_agents.prompt import Section, Variable, assemble


def test_sections_in_order_joined_by_blank_lines() -> None:
    sections = [
        Section("z", "last", order=9),
        Section("b", "two"),
        Section("a", "one\n"),
        Section("empty", "  \n"),
    ]
    assert assemble(sections) == "one\n\ntwo\n\nlast"
    assert assemble([]) == ""


def test_the_order_of_registration_does_not_matter() -> None:
    """HDR-5"""
    sections = [Section("a", "A {{x}}"), Section("b", "B", order=-1), Section("c", "C {{y}}")]
    variables = [Variable("x", "1"), Variable("y", "2")]
    texts = {
        assemble(some, others)
        for some in itertools.permutations(sections)
        for others in itertools.permutations(variables)
    }
    assert texts == {"B\n\nA 1\n\nC 2"}


def test_variables() -> None:
    calls = []

    def when() -> str:
        calls.append("when")
        return "{{who}} today"

    sections = [Section("a", "Hi {{ who }}, {{when}}, {{when}}, {{ not a name }}, {{}}")]
    variables = [
        Variable("who", "you"),
        Variable("when", when),
        Variable("unused", lambda: pytest.fail("called")),
    ]
    assert assemble(sections, variables) == "Hi you, {{who}} today, {{who}} today, {{ not a name }}, {{}}"
    assert calls == ["when"]


def test_functions_of_the_variables() -> None:
    section = Section("a", lambda variables: f"{variables['x']} {len(variables)} {list(variables)} {{{{x}}}}")
    assert assemble([section], [Variable("x", "1"), Variable("b", "2")]) == "1 2 ['b', 'x'] {{x}}"


def test_verbatim() -> None:
    assert assemble([Section("a", "write {{name}}", verbatim=True)]) == "write {{name}}"


def test_an_unknown_variable_names_section_and_variable() -> None:
    """TRN-18"""
    with pytest.raises(UsageError, match=r"section 'rules' .* variable 'user.name' \(there are: x\)"):
        assemble([Section("rules", "for {{user.name}}")], [Variable("x", "1")])
    assert assemble([Section("rules", "for {{user}}")], strict=False) == "for {{user}}"


@pytest.mark.parametrize(
    ("sections", "variables"),
    [
        ([Section("a", "1"), Section("a", "2")], []),
        ([], [Variable("a", "1"), Variable("a", "2")]),
        ([Section("a", cast("Any", 3))], []),
        ([Section("a", cast("Any", lambda _variables: None))], []),
        ([Section("a", "{{x}}")], [Variable("x", cast("Any", lambda: 3))]),
    ],
    ids=range(5),
)
def test_what_cannot_be_assembled(sections, variables) -> None:
    with pytest.raises(UsageError):
        assemble(sections, variables)


def test_an_error_in_a_function_comes_out_as_it_is() -> None:
    """TRN-18"""
    with pytest.raises(ZeroDivisionError):
        assemble([Section("a", lambda _variables: str(1 / 0))])


@pytest.mark.parametrize("kind", [Section, Variable])
@pytest.mark.parametrize("name", ["", None])
def test_names_are_strings(kind, name) -> None:
    with pytest.raises(UsageError):
        kind(name, "x")
