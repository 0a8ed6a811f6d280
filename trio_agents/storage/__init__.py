"""Where session logs are kept."""

from .._public import publish as _publish
from ._contract import (
    LogWriter as LogWriter,
    OpenedLog as OpenedLog,
    SessionStore as SessionStore,
    SessionSummary as SessionSummary,
    StoredSession as StoredSession,
    Verdict as Verdict,
)
from ._files import Files as Files
from ._fork import fork_into as fork_into, fork_session as fork_session
from ._jsonl import JsonlStore as JsonlStore
from ._memory import MemoryStore as MemoryStore
from ._retention import export_session as export_session, prune as prune
from ._verify import SessionRepaired as SessionRepaired

_publish(__name__, globals())
