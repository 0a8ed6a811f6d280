"""What everything is made of: messages, chunks, causes, ids. Pure: no Trio, no files."""

from .._public import publish as _publish
from ._assembly import Assembly as Assembly
from ._causes import (
    BLOCKED as BLOCKED,
    BY_PARENT as BY_PARENT,
    BY_USER as BY_USER,
    COMPLETED as COMPLETED,
    DISPOSED as DISPOSED,
    INTERRUPTED as INTERRUPTED,
    LEGACY as LEGACY,
    MAX_TOKENS as MAX_TOKENS,
    MAX_TURN_REQUESTS as MAX_TURN_REQUESTS,
    REFUSAL as REFUSAL,
    Aborted as Aborted,
    Blocked as Blocked,
    ByHook as ByHook,
    ByParent as ByParent,
    ByUser as ByUser,
    CancelCause as CancelCause,
    Completed as Completed,
    Disposed as Disposed,
    Failed as Failed,
    ForeignCause as ForeignCause,
    ForeignEnd as ForeignEnd,
    HitMaxRequests as HitMaxRequests,
    HitMaxTokens as HitMaxTokens,
    Interrupted as Interrupted,
    Refusal as Refusal,
    TurnEndReason as TurnEndReason,
)
from ._chunks import (
    BlockEnd as BlockEnd,
    BlockStart as BlockStart,
    Chunk as Chunk,
    Finish as Finish,
    FinishAborted as FinishAborted,
    FinishError as FinishError,
    FinishReason as FinishReason,
    ForeignChunk as ForeignChunk,
    ForeignFinish as ForeignFinish,
    LlmFailure as LlmFailure,
    MaxTokens as MaxTokens,
    ReasoningDelta as ReasoningDelta,
    Refused as Refused,
    Stop as Stop,
    TextDelta as TextDelta,
    ToolCallDelta as ToolCallDelta,
    ToolCalls as ToolCalls,
    Usage as Usage,
)
from ._describe import (
    describe as describe,
)
from ._ids import (
    CallId as CallId,
    MessageId as MessageId,
    SessionId as SessionId,
    mint_id as mint_id,
    now_ms as now_ms,
)
from ._json import (
    FrozenJson as FrozenJson,
    JsonValue as JsonValue,
    check_json as check_json,
)
from ._messages import (
    USER as USER,
    AgentSource as AgentSource,
    Attachment as Attachment,
    Content as Content,
    ContentBlock as ContentBlock,
    ForeignBlock as ForeignBlock,
    ForeignSource as ForeignSource,
    GoalSource as GoalSource,
    ImageBlock as ImageBlock,
    ImageSize as ImageSize,
    Message as Message,
    MessageSource as MessageSource,
    ModelSource as ModelSource,
    PluginSource as PluginSource,
    ReasoningBlock as ReasoningBlock,
    TextBlock as TextBlock,
    TokenUsage as TokenUsage,
    ToolCallBlock as ToolCallBlock,
    ToolResultBlock as ToolResultBlock,
    ToolSource as ToolSource,
    UserMessage as UserMessage,
    UserSource as UserSource,
    WebhookSource as WebhookSource,
)

_publish(__name__, globals())
