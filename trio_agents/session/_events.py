"""The durable facts: one frozen struct for the payload of every event type that is written or folded here.

The wire tag gives the class mechanically: `turn/start` is `TurnStart`. The one exception is
`agent/inbox/spliced`, which is `InboxSpliced`. `Event` is the envelope around a payload, as the log has it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, TypeAlias, final

from msgspec import UNSET, Struct, UnsetType

from ..errors import UsageError
from ..values._causes import TurnEndReason
from ..values._chunks import Chunk, LlmFailure
from ..values._json import FrozenJson
from ..values._messages import Message, TokenUsage, UserMessage


class Payload:
    """What an event says. `wire_type` is its type in the log.

    Plugins subclass this together with a frozen `msgspec.Struct` and register the class with
    `register_event`. `ignorable` payloads may be skipped by readers that do not know them.
    """

    __slots__ = ()
    wire_type: ClassVar[str]
    ignorable: ClassVar[bool] = False


def _positive(what: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise UsageError(f"{what} numbers are ints that count from 1, not {value!r}")


# --- turns and steps ------------------------------------------------------------------------------


@final
class TurnStart(Payload, Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A turn begins. Turns count from 1 over the whole log."""

    wire_type = "turn/start"
    turn: int

    def __post_init__(self) -> None:
        _positive("turn", self.turn)


@final
class TurnEnd(Payload, Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A turn is over, and why."""

    wire_type = "turn/end"
    turn: int
    reason: TurnEndReason

    def __post_init__(self) -> None:
        _positive("turn", self.turn)
        if not isinstance(self.reason, TurnEndReason):
            raise UsageError(f"a turn ends for a TurnEndReason, not {self.reason!r}")


@final
class StepStart(Payload, Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A step (one request and its tool calls) begins. Steps count from 1 in each turn."""

    wire_type = "step/start"
    turn: int
    step: int

    def __post_init__(self) -> None:
        _positive("turn", self.turn)
        _positive("step", self.step)


@final
class StepEnd(Payload, Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A step is over."""

    wire_type = "step/end"
    turn: int
    step: int

    def __post_init__(self) -> None:
        _positive("turn", self.turn)
        _positive("step", self.step)


# --- messages -------------------------------------------------------------------------------------

# The payload of `user/message` is the message itself (`values.UserMessage`).


@final
class AssistantMessage(Payload, Struct, frozen=True, kw_only=True, gc=False):
    """What a model answered in one attempt; `interrupted` if it was cut off by a cancel."""

    wire_type = "assistant/message"
    turn: int
    step: int
    message: Message
    usage: TokenUsage | UnsetType = UNSET
    interrupted: Literal[True] | UnsetType = UNSET


@final
class AssistantChunk(Payload, Struct, frozen=True, kw_only=True, gc=False):
    """One chunk of a model's stream, as it came."""

    wire_type = "assistant/chunk"
    turn: int
    step: int
    chunk: Chunk


@final
class ToolFailure(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """What went wrong in a tool call: the error's name and a stable code."""

    name: str
    code: str


@final
class ToolCall(
    Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True
):
    """A tool call begins. `arguments` is the model's raw text. `tracked` calls also log `tool/started`."""

    wire_type = "tool/call"
    turn: int
    step: int
    call_id: str
    name: str
    arguments: str
    tracked: Literal[True] | UnsetType = UNSET


@final
class ToolStarted(
    Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True
):
    """The body of a tool call is about to run: from here on it may have had its effect."""

    wire_type = "tool/started"
    ignorable = True
    turn: int
    step: int
    call_id: str


@final
class ToolResult(Payload, Struct, frozen=True, kw_only=True, gc=False):
    """What a tool answered. The message holds exactly one tool-result block."""

    wire_type = "tool/result"
    turn: int
    step: int
    message: Message
    error: ToolFailure | UnsetType = UNSET
    meta: FrozenJson | UnsetType = UNSET


# --- requests -------------------------------------------------------------------------------------


@final
class RequestConfig(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Route and settings of a request."""

    provider: str
    model: str
    reasoning_effort: str | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    stop: tuple[str, ...] | UnsetType = UNSET


@final
class ToolSpec(Struct, frozen=True, kw_only=True, gc=False):
    """A tool as a model sees it; `parameters` is a JSON schema object."""

    name: str
    description: str
    parameters: FrozenJson


@final
class AdapterDefaults(
    Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True
):
    """Which settings of a config were chosen by the adapter, not by anybody here."""

    reasoning_effort: Literal[True] | UnsetType = UNSET
    max_tokens: Literal[True] | UnsetType = UNSET


@final
class Header(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Everything of a request but its messages. Empty parts are absent."""

    config: RequestConfig
    adapter_defaults: AdapterDefaults | UnsetType = UNSET
    system: str | UnsetType = UNSET
    tools: tuple[ToolSpec, ...] | UnsetType = UNSET


@final
class RequestHeader(Payload, Struct, frozen=True, kw_only=True, gc=False):
    """A full snapshot of what the following requests are sent with; the last one counts."""

    wire_type = "request/header"
    header: Header
    reason: Literal["initial", "resume", "change"]


@final
class RequestContext(Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Where requests go and how many tokens fit there; no part of the request."""

    wire_type = "request/context"
    provider: str
    model: str
    context_window: int | UnsetType = UNSET


@final
class LlmRetry(Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """A failed request will be sent again after `delay_ms`."""

    wire_type = "llm/retry"
    retry_id: str
    turn: int
    step: int
    provider: str
    mode: Literal["normal", "always"]
    policy_key: str
    retry: int
    delay_ms: int
    failure: LlmFailure
    max_retries: int | UnsetType = UNSET


@final
class LlmRetryStarted(Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """The wait before a retry is over."""

    wire_type = "llm/retry-started"
    retry_id: str
    turn: int
    step: int
    retry: int


# --- inbox ----------------------------------------------------------------------------------------

Target: TypeAlias = Literal["next-turn", "next-step"]


@final
class InboxSpliced(Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One change of one inbox list.

    A removal without `outcome` is a claim; `canceled` without an insertion is dropped work, with one it is a
    replacement; `moved` is followed by the insertion into the other list.
    """

    wire_type = "agent/inbox/spliced"
    target: Target
    start: int
    removed_count: int | UnsetType = UNSET
    inserted: tuple[UserMessage, ...] = ()
    outcome: Literal["canceled", "moved"] | UnsetType = UNSET


# --- session --------------------------------------------------------------------------------------


@final
class SessionEndSeed(Payload, Struct, frozen=True, kw_only=True, gc=False):
    """Everything before this event was there when the session was opened."""

    wire_type = "session/end-seed"


@final
class CompactionStart(Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """History is about to be shortened; `turn` is None between turns."""

    wire_type = "compaction/start"
    compaction_id: str
    turn: int | None
    source_command_id: str | UnsetType = UNSET


@final
class CompactionEnd(Payload, Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """The shortening is over; `error` says why it failed, if it did."""

    wire_type = "compaction/end"
    compaction_id: str
    turn: int | None
    source_command_id: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


@final
class ForeignEvent(Payload):
    """The payload of an event type that is kept but not interpreted here. `value` is its JSON."""

    __slots__ = ("ignorable", "value", "wire_type")

    def __init__(self, wire_type: str, value: FrozenJson, *, ignorable: bool = False) -> None:
        self.wire_type: str = wire_type  # type: ignore[misc]
        self.value: FrozenJson = value
        self.ignorable: bool = ignorable  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ForeignEvent)
            and self.wire_type == other.wire_type
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash(self.wire_type)

    def __repr__(self) -> str:
        return f"ForeignEvent({self.wire_type!r}, {self.value!r})"


# --- envelope -------------------------------------------------------------------------------------


@final
class Replace(
    Struct, frozen=True, kw_only=True, gc=False, tag_field="op", tag="replace", forbid_unknown_fields=True
):
    """A surface operation: this event takes the place of the nodes from `start` to `end`, two event numbers."""

    start: int
    end: int


SurfaceOp: TypeAlias = Literal["append"] | Replace


class Event(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One event of a log.

    Attributes:
        type: its wire type, such as `turn/start`.
        seq: its number, which is its index in the log.
        time: Unix milliseconds of the wall clock when it was appended; may go backwards.
        data: the payload.
        surface_op: what it does to the model-visible view; only on the three message types.
        source_event_seqs: the events that it was made from; only on the three message types. A long run of
            consecutive numbers is held as a range.
        ignorable: True if readers that do not know the type may skip it.
    """

    type: str
    seq: int
    time: int
    data: Any
    surface_op: SurfaceOp | UnsetType = UNSET
    source_event_seqs: tuple[int, ...] | range | UnsetType = UNSET
    ignorable: Literal[True] | UnsetType = UNSET


@final
class VerbatimEvent(Event, frozen=True, kw_only=True, gc=False):
    """An event read from a line that its typed form would not give back exactly: the line is kept."""

    line: bytes


@final
class Draft(Struct, frozen=True, gc=False):
    """An event that is to be appended: a payload, and for messages their surface operation and sources."""

    data: Any
    surface_op: SurfaceOp = "append"
    source_event_seqs: tuple[int, ...] | range | UnsetType = UNSET


SURFACE_TYPES: Final = frozenset({"user/message", "assistant/message", "tool/result"})

CORE_PAYLOADS: Final[dict[str, type[Any]]] = {
    cls.wire_type: cls
    for cls in (
        TurnStart, TurnEnd, StepStart, StepEnd, AssistantMessage, AssistantChunk, ToolCall, ToolStarted,
        ToolResult, RequestHeader, RequestContext, LlmRetry, LlmRetryStarted, InboxSpliced, SessionEndSeed,
        CompactionStart, CompactionEnd,
    )
} | {"user/message": UserMessage}  # fmt: skip
"""Wire type to payload class, for every type that this package interprets."""

KNOWN_TYPES: Final = frozenset(
    [
        "agent-preset/selected",
        "agent/inbox/spliced",
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "assistant/chunk",
        "assistant/message",
        "command/done",
        "command/run",
        "compaction/end",
        "compaction/prune",
        "compaction/start",
        "compaction/summary",
        "feedback/record",
        "goal/change",
        "hook/invoked",
        "hook/result",
        "llm/retry",
        "llm/retry-started",
        "permission/preset",
        "plan/mode",
        "request/context",
        "request/header",
        "sandbox/mode",
        "schedule/change",
        "session/end-seed",
        "session/title",
        "session/title-llm-request",
        "step/end",
        "step/start",
        "subagent/descriptor",
        "team/member",
        "team/task",
        "team/message/delivered",
        "team/message/queued",
        "todo/write",
        "tool-workflow/agent-end",
        "tool-workflow/agent-start",
        "tool-workflow/run-end",
        "tool-workflow/run-start",
        "tool/call",
        "tool/code-dispatch",
        "tool/code-dispatch-start",
        "tool/result",
        "turn/end",
        "turn/start",
        "user/message",
        "web/deepseek-search-llm-request",
    ]
)
"""The 48 types of format version 0. Any other type must be ignorable, or the log is refused."""
