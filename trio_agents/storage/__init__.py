"""Where session logs are kept."""

from ._contract import (
    LogWriter as LogWriter,
    OpenedLog as OpenedLog,
    SessionStore as SessionStore,
    SessionSummary as SessionSummary,
    StoredSession as StoredSession,
    Verdict as Verdict,
)
from ._jsonl import JsonlStore as JsonlStore
from ._memory import MemoryStore as MemoryStore
