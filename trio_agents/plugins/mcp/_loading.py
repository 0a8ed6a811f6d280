"""The `mcp` package is an extra and takes more than a second to import: late, and not in the loop's thread."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import trio

from ...errors import UsageError


def check_installed() -> None:
    """See that the extra is there.

    Raises:
        UsageError: it is not.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("MCP needs an extra: pip install 'trio-agents[mcp]'")


async def load(name: str) -> ModuleType:
    """Import a module of this package that needs `mcp`, in a thread. A checkpoint; if it is cancelled, the import goes on.

    Raises:
        UsageError: the extra is not installed.
    """
    check_installed()
    return await trio.to_thread.run_sync(
        importlib.import_module, f"{__package__}.{name}", abandon_on_cancel=True
    )
