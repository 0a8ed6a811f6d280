"""A durable agent runtime for Trio applications.

A `Session` holds durable facts: an append-only log. An `Agent` is the live driver of one session in this process. An
`AgentHandle` is the capability to end it.
"""

from . import errors as errors, models as models
from ._public import publish as _publish
from .agent import (
    Agent as Agent,
    AgentCreated as AgentCreated,
    AgentDisposed as AgentDisposed,
    AgentFailed as AgentFailed,
    AgentHandle as AgentHandle,
    AgentOptions as AgentOptions,
    AgentRegistry as AgentRegistry,
    AgentStatusChanged as AgentStatusChanged,
    AroundTool as AroundTool,
    AssemblePrompt as AssemblePrompt,
    BeforeRequest as BeforeRequest,
    Enter as Enter,
    Inbox as Inbox,
    InboxClaimed as InboxClaimed,
    InboxDiscarded as InboxDiscarded,
    InboxInserted as InboxInserted,
    PreStep as PreStep,
    Receipt as Receipt,
    Reject as Reject,
    Reply as Reply,
    RequestFailed as RequestFailed,
    ResumeOutcome as ResumeOutcome,
    Retry as Retry,
    Scope as Scope,
    SessionCreated as SessionCreated,
    SessionDisposed as SessionDisposed,
    SessionEvent as SessionEvent,
    SessionRegistry as SessionRegistry,
    SessionStart as SessionStart,
    Settlement as Settlement,
    ToolFinished as ToolFinished,
    TurnStopping as TurnStopping,
)
from .errors import (
    AgentBusyError as AgentBusyError,
    AgentClosedError as AgentClosedError,
    AgentExistsError as AgentExistsError,
    AgentNotFoundError as AgentNotFoundError,
    AgentNotPublishedError as AgentNotPublishedError,
    AgentStateError as AgentStateError,
    AnswerInvalid as AnswerInvalid,
    CreationAbortedError as CreationAbortedError,
    DuplicateMessageError as DuplicateMessageError,
    FatalToolError as FatalToolError,
    InternalError as InternalError,
    MessageDiscarded as MessageDiscarded,
    MessageError as MessageError,
    ModelError as ModelError,
    ReentrantAppendError as ReentrantAppendError,
    ReentrantWaitError as ReentrantWaitError,
    ScopeClosedError as ScopeClosedError,
    SessionBusyError as SessionBusyError,
    SessionClosedError as SessionClosedError,
    SessionCorruptError as SessionCorruptError,
    SessionExistsError as SessionExistsError,
    SessionIdentityError as SessionIdentityError,
    SessionLogError as SessionLogError,
    SessionNotFoundError as SessionNotFoundError,
    SessionUnsupportedError as SessionUnsupportedError,
    StorageError as StorageError,
    TeardownError as TeardownError,
    ToolArgumentsError as ToolArgumentsError,
    ToolError as ToolError,
    ToolServerError as ToolServerError,
    TrioAgentsError as TrioAgentsError,
    TurnAborted as TurnAborted,
    TurnBlocked as TurnBlocked,
    TurnError as TurnError,
    TurnFailed as TurnFailed,
    UsageError as UsageError,
    ValueNotJsonError as ValueNotJsonError,
)
from .plugins import (
    DEFAULT_PLUGINS as DEFAULT_PLUGINS,
    Fallback as Fallback,
    Plugin as Plugin,
    RetryPolicy as RetryPolicy,
)
from .prompt import Section as Section, Variable as Variable
from .runtime import Runtime as Runtime, open_runtime as open_runtime, run as run
from .session import Event as Event, Session as Session, register_event as register_event
from .storage import (
    JsonlStore as JsonlStore,
    MemoryStore as MemoryStore,
    SessionStore as SessionStore,
    SessionSummary as SessionSummary,
    StoredSession as StoredSession,
    Verdict as Verdict,
)
from .tools import (
    Image as Image,
    Tool as Tool,
    ToolContext as ToolContext,
    ToolReturn as ToolReturn,
    tool as tool,
)
from .values import (
    BY_PARENT as BY_PARENT,
    BY_USER as BY_USER,
    DISPOSED as DISPOSED,
    ByHook as ByHook,
    CancelCause as CancelCause,
    ContentBlock as ContentBlock,
    ImageBlock as ImageBlock,
    Message as Message,
    TextBlock as TextBlock,
    TokenUsage as TokenUsage,
    TurnEndReason as TurnEndReason,
    UserMessage as UserMessage,
)

_publish(__name__, globals())
