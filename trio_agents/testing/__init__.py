"""Tools for tests of agents and of what plugs into them; they ship with the package."""

from __future__ import annotations

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

for _public in (
    FaultyFiles,
    FakeProvider,
    open_fake_provider,
    Broken,
    Dripped,
    ProviderRequest,
    Reset,
    Status,
):
    _public.__module__ = __name__
del _public
