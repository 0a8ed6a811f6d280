"""What `open_runtime` and its store are given by mistake is refused at once, with what would be right."""

from __future__ import annotations

from typing import Any

import pytest

import trio_agents as ta
from trio_agents.models import DemoModel


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"models": DemoModel()}, "models= takes a list, not <.*DemoModel"),
        ({"models": "openai"}, "models= takes a list, not 'openai'"),
        ({"models": [DemoModel]}, "DemoModel"),
        ({"plugins": ta.RetryPolicy()}, r"plugins= takes a list, not RetryPolicy\("),
        ({"plugins": [3]}, "a plugin is called with the root scope, and 3 cannot be called"),
    ],
)
def test_what_is_no_list_of_them(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ta.UsageError, match=problem):
        ta.open_runtime(**given)


@pytest.mark.parametrize("root", [3, None, b"sessions"])
def test_a_root_that_is_no_path(root: Any) -> None:
    with pytest.raises(ta.UsageError, match="the root of a store is a path, not "):
        ta.JsonlStore(root)
