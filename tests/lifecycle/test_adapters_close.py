"""The runtime closes the model adapters that can be closed."""

from __future__ import annotations

import pytest
import trio

from trio_agents import open_runtime
from trio_agents.models import ScriptedModel


class Closing:
    """An adapter that notes its end."""

    provider = "closing"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.ends = 0
        self._inner = ScriptedModel()
        self.info = self._inner.info
        self.stream = self._inner.stream

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ends += 1
        if self.error is not None:
            raise self.error


async def test_adapters_are_closed_once_after_the_agents() -> None:
    """DIS-14: nothing that the runtime used is left open."""
    adapter = Closing()

    async with open_runtime(models=[adapter, ScriptedModel()]):
        assert adapter.ends == 0

    assert adapter.ends == 1


async def test_an_adapter_that_fails_to_close_is_told() -> None:
    """DIS-8: everything has ended; the failure is raised."""
    adapter = Closing(ValueError("stuck"))

    with pytest.raises(ValueError, match="stuck"):
        async with open_runtime(models=[adapter]):
            pass
