"""The interface of agents: what they are to everybody who does not drive them. Knows no loop, provider or storage."""

from .._public import publish as _publish
from ._directory import OwnerToken as OwnerToken
from ._hooks import (
    AgentCreated as AgentCreated,
    AgentDisposed as AgentDisposed,
    AgentFailed as AgentFailed,
    AgentStatusChanged as AgentStatusChanged,
    AroundTool as AroundTool,
    AssemblePrompt as AssemblePrompt,
    BeforeRequest as BeforeRequest,
    Enter as Enter,
    InboxClaimed as InboxClaimed,
    InboxDiscarded as InboxDiscarded,
    InboxInserted as InboxInserted,
    PreStep as PreStep,
    Reject as Reject,
    RequestFailed as RequestFailed,
    Retry as Retry,
    SessionCreated as SessionCreated,
    SessionDisposed as SessionDisposed,
    SessionEvent as SessionEvent,
    SessionStart as SessionStart,
    ToolFinished as ToolFinished,
    TurnStopping as TurnStopping,
)
from ._inbox import Inbox as Inbox
from ._interface import (
    Agent as Agent,
    AgentFactory as AgentFactory,
    AgentHandle as AgentHandle,
    Deliverable as Deliverable,
    Delivery as Delivery,
    Lease as Lease,
    Receipt as Receipt,
    Reply as Reply,
    ReplyContext as ReplyContext,
    ReplyStream as ReplyStream,
    ResumeOutcome as ResumeOutcome,
    Settlement as Settlement,
    Setup as Setup,
)
from ._options import AgentOptions as AgentOptions
from ._registry import (
    AgentBlock as AgentBlock,
    AgentRegistry as AgentRegistry,
    SessionRegistry as SessionRegistry,
)
from ._scope import Scope as Scope

_publish(__name__, globals())
