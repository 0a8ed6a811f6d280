"""Tools for tests of agents and of what plugs into them; they ship with the package."""

from __future__ import annotations

from .._public import publish as _publish
from ._check_models import MODEL_CHECKS as MODEL_CHECKS, check_model_adapter as check_model_adapter
from ._fake_provider import FakeProvider as FakeProvider, open_fake_provider as open_fake_provider
from ._fake_script import (
    CONTEXT_OVERFLOW as CONTEXT_OVERFLOW,
    Broken as Broken,
    Dripped as Dripped,
    ProviderRequest as ProviderRequest,
    Reset as Reset,
    Status as Status,
)
from ._faulty_files import FaultyFiles as FaultyFiles
from ._host import TrioHost as TrioHost
from ._strict import (
    Finding as Finding,
    FindingKind as FindingKind,
    StrictBlock as StrictBlock,
    StrictRuntimeError as StrictRuntimeError,
    open_strict_runtime as open_strict_runtime,
)
from ._sweep import cancel_sweep as cancel_sweep, seeded_scheduler as seeded_scheduler

_publish(__name__, globals())
