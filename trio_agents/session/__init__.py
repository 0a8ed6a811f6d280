"""What happened: events, the log they form, and everything that can be derived from it."""

from .._public import publish as _publish
from ._codec import (
    decode_event as decode_event,
    decode_header as decode_header,
    encode_event as encode_event,
    encode_header as encode_header,
    register_event as register_event,
)
from ._events import (
    AdapterDefaults as AdapterDefaults,
    AssistantChunk as AssistantChunk,
    AssistantMessage as AssistantMessage,
    CompactionEnd as CompactionEnd,
    CompactionStart as CompactionStart,
    Draft as Draft,
    Event as Event,
    ForeignEvent as ForeignEvent,
    Header as Header,
    InboxSpliced as InboxSpliced,
    LlmRetry as LlmRetry,
    LlmRetryStarted as LlmRetryStarted,
    Payload as Payload,
    Replace as Replace,
    RequestConfig as RequestConfig,
    RequestContext as RequestContext,
    RequestHeader as RequestHeader,
    SessionEndSeed as SessionEndSeed,
    StepEnd as StepEnd,
    StepStart as StepStart,
    Target as Target,
    ToolCall as ToolCall,
    ToolFailure as ToolFailure,
    ToolResult as ToolResult,
    ToolSpec as ToolSpec,
    ToolStarted as ToolStarted,
    TurnEnd as TurnEnd,
    TurnStart as TurnStart,
    VerbatimEvent as VerbatimEvent,
)
from ._grammar import trace_issues as trace_issues
from ._header import SessionHeader as SessionHeader
from ._history import Events as Events, fold_header as fold_header
from ._log import Follower as Follower, Pen as Pen, Session as Session, open_log as open_log
from ._pending import Pending as Pending
from ._repair import closers as closers, prefix_marker as prefix_marker, repair as repair
from ._surface import Messages as Messages

_publish(__name__, globals())
