"""The local model does what the contract of model adapters says, with its process around whatever the provider does.

The process is real, and has a double of llama.cpp in it that names the fake provider's address as its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.models import test_local as local
from trio_agents.models import LocalModel, ModelAdapter
from trio_agents.testing import MODEL_CHECKS, FakeProvider
from trio_agents.testing._check_models import ModelCheck, check_broken_streams, check_silence

site = local.site


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(
            check, id=check.__name__, marks=[pytest.mark.slow] if check is check_broken_streams else []
        )
        for check in MODEL_CHECKS
        if check is not check_silence  # it has no bound of its own for the first byte: agents have
    ],
)
async def test_adapter(check: ModelCheck, tmp_path: Path) -> None:
    """See the check of that name. Each broken connection waits a moment for the end of the process."""
    file = tmp_path / "model.gguf"

    def make(server: FakeProvider, seconds: float | None) -> ModelAdapter:
        file.write_text(f"GGUF elsewhere {server.base_url.removesuffix('/v1')}")
        return LocalModel(file, name="m")

    await check(make)
