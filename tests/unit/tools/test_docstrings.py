"""Descriptions out of docstrings of every common form."""

from __future__ import annotations

import pytest

from trio_agents.tools._docstrings import Docstring, parse_docstring

GOOGLE = """Look it up,
    slowly.

    More about it.

    Args:
        city: the city,
            by its full name
        unit (str, optional): C or F: either
        *rest: the rest

    Returns:
        weather: not a parameter
    """
NUMPY = """Look it up,
    slowly.

    Parameters
    ----------
    city : str
        the city,
        by its full name
    unit, rest : str, optional
        C or F: either

    Returns
    -------
    weather
        not a parameter
    """
REST = """Look it up,
    slowly.

    :param city: the city,
        by its full name
    :param str unit: C or F: either
    :returns: weather
    """
CITY = "the city, by its full name"


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (GOOGLE, {"city": CITY, "unit": "C or F: either", "rest": "the rest"}),
        (NUMPY, {"city": CITY, "unit": "C or F: either", "rest": "C or F: either"}),
        (REST, {"city": CITY, "unit": "C or F: either"}),
    ],
    ids=["google", "numpy", "rest"],
)
def test_forms(text: str, parameters: dict[str, str]) -> None:
    assert parse_docstring(text) == Docstring("Look it up, slowly.", parameters)


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_nothing_said(text: str | None) -> None:
    assert parse_docstring(text) == Docstring("", {})


def test_a_section_is_no_summary() -> None:
    assert parse_docstring("Args:\n    x: the x") == Docstring("", {"x": "the x"})
    assert parse_docstring("One.\nArgs:\n    x: the x") == Docstring("One.", {"x": "the x"})
    assert parse_docstring("Returns:\n    something") == Docstring("", {})


def test_a_summary_may_end_in_a_colon() -> None:
    assert parse_docstring("Takes these:").summary == "Takes these:"
