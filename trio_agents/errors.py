"""Every error that this package raises on purpose.

```
TrioAgentsError
├── UsageError                    the caller asked for something that cannot be
│   ├── AgentStateError           the agent is in the wrong state for the call
│   │   ├── AgentNotPublishedError    setup has not ended yet
│   │   ├── AgentClosedError          its teardown has begun
│   │   └── AgentBusyError            it is running, or in maintenance
│   ├── AgentExistsError          the id is taken by a live agent
│   ├── AgentNotFoundError        no live agent has this id
│   ├── CreationAbortedError      the owner or the agent loop closed while an agent was being created
│   ├── ScopeClosedError          registering through a scope that has closed
│   ├── ReentrantAppendError      an observer appended to the session that is telling it about an append
│   ├── ReentrantWaitError        work inside an agent waits for that agent to be idle
│   ├── MessageError              a message cannot be accepted
│   │   └── DuplicateMessageError     its id is already pending
│   └── ValueNotJsonError         a value would not survive as JSON
├── SessionLogError               a stored session cannot be used; carries its path
│   ├── SessionNotFoundError      nothing is stored under the id
│   ├── SessionExistsError        something else is stored under the id
│   ├── SessionBusyError          another writer has it; names the owner
│   ├── SessionClosedError        its writer is closed
│   ├── SessionCorruptError       its bytes are damaged; names byte offset, line and last good number
│   ├── SessionUnsupportedError   it is intact, but of another version or with unknown required events
│   ├── SessionIdentityError      its header does not fit its place
│   └── StorageError              the disk refused; carries the operating system's error
├── TurnError                     a turn that was waited for did not end well; carries the turn's end
│   ├── TurnBlocked, TurnFailed, TurnAborted
│   ├── AnswerInvalid             it ended well, but not in a value of the type that was asked for
│   └── MessageDiscarded          the message was removed before any turn took it
├── ModelError                    the provider, or the way to it, failed; carries the failure
├── ToolError                     a tool failed in a way that the model should read
│   ├── ToolArgumentsError        arguments do not fit; lists every fault with its path
│   ├── ToolServerError           a server of tools cannot be reached, is gone, or does not keep to its protocol
│   └── FatalToolError            raised by a tool to end the turn
├── TeardownError                 an end was reached, but something failed on the way
└── InternalError                 a bug in this package
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike


class TrioAgentsError(Exception):
    """Root of every error that this package raises on purpose."""


# --- the caller -----------------------------------------------------------------------------------


class UsageError(TrioAgentsError):
    """The caller asked for something that cannot be; nothing has changed."""


class AgentStateError(UsageError):
    """An agent is in the wrong state for what was asked of it."""


class AgentNotPublishedError(AgentStateError):
    """The agent is still being set up: deliveries are accepted from publication on."""


class AgentClosedError(AgentStateError):
    """The agent's teardown has begun: it accepts nothing any more."""


class AgentBusyError(AgentStateError):
    """The agent is running or in maintenance, and the call needs it idle."""


class AgentExistsError(UsageError):
    """A live agent, or one that is being resumed, already has this id."""


class AgentNotFoundError(UsageError):
    """No live agent has this id."""


class CreationAbortedError(UsageError):
    """The owner scope or the agent loop closed while an agent was being created; nothing was published."""


class ScopeClosedError(UsageError):
    """Something was registered through a scope that is closed."""


class ReentrantAppendError(UsageError):
    """An observer appended to the very session that is telling it about an append.

    Schedule the work instead (`Scope.start_soon`), or use `Session.follow`.
    """


class ReentrantWaitError(UsageError):
    """Work that an agent waits for is itself waiting for that agent; it would wait for ever."""


class MessageError(UsageError):
    """A message cannot be accepted; nothing has been logged."""


class DuplicateMessageError(MessageError):
    """A message with this id is already pending."""


class ValueNotJsonError(UsageError, ValueError):
    """A value would not survive a round trip through JSON.

    Attributes:
        path: where in the value the fault lies, such as `$.items[3]`.
        problem: what was found there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"not JSON at {path}: {problem}")
        self.path = path
        self.problem = problem


# --- the bytes ------------------------------------------------------------------------------------


class SessionLogError(TrioAgentsError):
    """A stored session cannot be used as asked.

    Attributes:
        session_id: the session, if it is known.
        path: the file or directory, if the store has one.
    """

    def __init__(
        self,
        message: str,
        *,
        session_id: str | None = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(message if path is None else f"{message} ({path})")
        self.session_id = session_id
        self.path = path


class SessionNotFoundError(SessionLogError):
    """Nothing is stored under this id."""


class SessionExistsError(SessionLogError):
    """Something is already stored under this id that the new session does not continue."""


class SessionBusyError(SessionLogError):
    """Another writer has the session.

    Attributes:
        owner: who holds it, as far as the lock says: process id, host and start time.
    """

    def __init__(
        self,
        message: str,
        *,
        owner: str,
        session_id: str | None = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(message, session_id=session_id, path=path)
        self.owner = owner


class SessionClosedError(SessionLogError):
    """The session's writer is closed; nothing can be appended any more."""


class SessionCorruptError(SessionLogError):
    """The stored bytes are damaged where they should be whole; nothing was written.

    Attributes:
        offset: byte offset of the first bad line, or None where a whole event is at fault.
        line: its line number, the header being line 1, or None.
        last_good_seq: number of the last good event before it, -1 if there is none.
    """

    def __init__(
        self,
        message: str,
        *,
        session_id: str | None = None,
        path: str | PathLike[str] | None = None,
        offset: int | None = None,
        line: int | None = None,
        last_good_seq: int = -1,
    ) -> None:
        where = "" if offset is None else f" at byte {offset} (line {line}); last good event {last_good_seq}"
        super().__init__(f"{message}{where}", session_id=session_id, path=path)
        self.offset = offset
        self.line = line
        self.last_good_seq = last_good_seq


class SessionUnsupportedError(SessionLogError):
    """The log is intact, but of another format version or with required events that are not known here."""


class SessionIdentityError(SessionLogError):
    """The header does not belong to the place where the log was found."""


class StorageError(SessionLogError):
    """The storage refused: disk full, no permission, too many open files, a file changed under its writer.

    The operating system's error, where there is one, is the cause (`__cause__`).
    """


# --- turns ----------------------------------------------------------------------------------------


class TurnError(TrioAgentsError):
    """A turn that was waited for did not end in a reply.

    Attributes:
        turn: its number, or None if no turn took the message.
        end: how it ended, a `TurnEndReason`, or None.
    """

    def __init__(self, message: str, *, turn: int | None = None, end: object = None) -> None:
        super().__init__(message)
        self.turn = turn
        self.end = end


class TurnBlocked(TurnError):
    """A `PreStep` listener rejected the input."""


class TurnFailed(TurnError):
    """The turn ended in an error; `end.error` has the facts."""


class TurnAborted(TurnError):
    """The turn was cancelled; `end.reason` is the first cause."""


class AnswerInvalid(TurnError):
    """The model did not give a value of the type that was asked for, not even when told its faults.

    Attributes:
        faults: what is wrong with its last answer, one sentence each with the path; empty if it gave none.
    """

    def __init__(
        self, message: str, *, turn: int | None = None, end: object = None, faults: Sequence[str] = ()
    ) -> None:
        super().__init__(message, turn=turn, end=end)
        self.faults: tuple[str, ...] = tuple(faults)


class MessageDiscarded(TurnError):
    """The message was removed, or recorded as cancelled, before a step took it."""


# --- provider and tools ---------------------------------------------------------------------------


class ModelError(TrioAgentsError):
    """A provider, or the way to it, failed.

    Attributes:
        code: a stable code such as `RATE_LIMIT`, `TIMEOUT`, `AUTH`.
        status: HTTP status, if there was one.
        retry_after_ms: how long the provider asked to wait, if it did.
        request_id: the provider's name for the request, if it gave one.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        status: int | None = None,
        retry_after_ms: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id


class ToolError(TrioAgentsError):
    """Raised by a tool for a failure that the model should read and can act on.

    Attributes:
        code: a stable code for programs, such as `FS_NOT_FOUND`.
    """

    def __init__(self, message: str, *, code: str = "TOOL_FAILED") -> None:
        super().__init__(message)
        self.code = code


class ToolArgumentsError(ToolError):
    """The arguments of a call do not fit the tool's signature.

    Attributes:
        faults: one sentence for every fault, each with the path to it.
    """

    def __init__(self, tool: str, faults: Sequence[str]) -> None:
        super().__init__(
            f"arguments of {tool!r} do not fit: " + "; ".join(faults),
            code="INVALID_ARGS",
        )
        self.tool = tool
        self.faults: tuple[str, ...] = tuple(faults)


class ToolServerError(ToolError):
    """A server of tools cannot be reached, is gone, is silent, or does not keep to its protocol.

    Attributes:
        server: the name that it was given here.
    """

    def __init__(self, message: str, *, server: str, code: str) -> None:
        super().__init__(message, code=code)
        self.server: str = server


class FatalToolError(ToolError):
    """Raised by a tool to end the whole turn: sibling calls are cancelled, every call is closed."""


# --- endings and bugs -----------------------------------------------------------------------------


class TeardownError(TrioAgentsError):
    """An end was reached and everything is released, but something failed on the way.

    The first failure is the cause (`__cause__`); later ones are notes on it.
    """


class InternalError(TrioAgentsError):
    """A bug in this package. Please report it."""
