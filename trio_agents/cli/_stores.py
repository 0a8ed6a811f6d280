"""Where sessions are kept unless somebody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import StorageError
from ..session import SessionHeader
from ..storage import JsonlStore
from ..storage._layout import LOG_NAMES, PLAIN_NAME, project_segment, session_segment


def default_root() -> Path:
    """The folder for sessions: $TRIO_AGENTS_STORE, else below the user's data folder."""
    named = os.environ.get("TRIO_AGENTS_STORE")
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME")
    # What is not absolute is to be ignored, says the XDG specification.
    base = Path(data) if data and Path(data).is_absolute() else Path.home() / ".local" / "share"
    return base / "trio-agents" / "sessions"


def open_store(root: str | None) -> JsonlStore:
    """The store that a command works on.

    Raises:
        StorageError: something that is no folder is in its place.
    """
    path = Path(root) if root else default_root()
    if path.exists() and not path.is_dir():
        raise StorageError("sessions are kept in a folder, and this is none", path=path)
    return JsonlStore(path)


def log_path(store: JsonlStore, header: SessionHeader) -> str:
    """Where a session's log lies, or will lie as soon as there is something in it."""
    project = project_segment(header.cwd if isinstance(header.cwd, str) else None)
    folder = Path(store.root) / project / session_segment(header.id)
    there = (folder / name for name in LOG_NAMES if (folder / name).exists())
    return str(next(there, folder / PLAIN_NAME))
