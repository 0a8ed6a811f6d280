"""What is generated from the code stands in the documentation as it is now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import trio_agents
from tests.docs.generated import DOCS, PARTS, split


@pytest.mark.parametrize(("place", "make"), PARTS.items(), ids=[f"{page}:{mark}" for page, mark in PARTS])
def test_is_up_to_date(place: tuple[str, str], make: Callable[[], str]) -> None:
    page, marker = place
    _, inside, _ = split((DOCS / page).read_text(), marker)

    assert inside.strip() == make(), "run: python -m tests.docs.generated"


def test_every_public_name_has_a_place_in_the_reference() -> None:
    pages = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    names = [name for name in vars(trio_agents) if not name.startswith("_")]
    missing = [
        name
        for name in names
        if not isinstance(getattr(trio_agents, name), type(trio_agents)) and name not in pages
    ]

    assert len(names) > 80
    assert missing == []
