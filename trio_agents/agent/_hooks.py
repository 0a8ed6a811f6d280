"""Live events: one frozen payload class for each hook. The class says in which mode its listeners are called.

Every payload is immutable, and its agent is always the one that dispatches. Listeners are registered with
`scope.on(Class, listener)`: those of an agent's scope hear that agent and everything below it, those of an outer
scope hear everything below that scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from ..prompt import Section, Variable
from ..scope._dispatch import Around, Notification, Serial
from ..session import Event, Session
from ..session._events import Header
from ..tools import ToolReturn
from ..values import LlmFailure, Message, ToolCallBlock, UserMessage
from ._interface import Agent
from ._options import AnyTool

# --- notifications --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SessionCreated(Notification):
    """A session was published (`session/created`). Raising vetoes the publication."""

    session: Session


@attrs.frozen(kw_only=True)
class SessionDisposed(Notification):
    """A session is gone (`session/disposed`). Its writer is closed and its id is free."""

    session: Session


@attrs.frozen(kw_only=True)
class SessionEvent(Notification):
    """An event was committed (`session/event`). Appending to the same session from here is refused."""

    agent: Agent
    event: Event


@attrs.frozen(kw_only=True)
class AgentCreated(Notification):
    """An agent was published (`agent/created`). Raising vetoes the publication."""

    agent: Agent


@attrs.frozen(kw_only=True)
class AgentDisposed(Notification):
    """An agent is gone (`agent/disposed`): the registry no longer finds it, its session is still there."""

    agent: Agent


SessionStartSource: TypeAlias = Literal["startup", "resume", "clear", "compact"]


@attrs.frozen(kw_only=True)
class SessionStart(Notification):
    """A conversation starts, or starts afresh (`agent/session-start`)."""

    agent: Agent
    source: SessionStartSource


@attrs.frozen(kw_only=True)
class AgentStatusChanged(Notification):
    """An agent became `running` or `idle` (`agent/status`)."""

    agent: Agent
    status: Literal["idle", "running"]


@attrs.frozen(kw_only=True)
class AgentFailed(Notification):
    """A turn failed (`agent/error`), told before its `turn/end`. `error` is the exception, if there was one."""

    agent: Agent
    turn: int
    step: int | None
    failure: LlmFailure
    error: BaseException | None


@attrs.frozen(kw_only=True)
class InboxInserted(Notification):
    """A message became pending (`agent/inbox/inserted`)."""

    agent: Agent
    message: UserMessage


@attrs.frozen(kw_only=True)
class InboxClaimed(Notification):
    """A turn took a pending message (`agent/inbox/claimed`)."""

    agent: Agent
    message: UserMessage
    turn: int


@attrs.frozen(kw_only=True)
class InboxDiscarded(Notification):
    """A pending message was recorded as cancelled, or replaced (`agent/inbox/discarded`)."""

    agent: Agent
    message: UserMessage


@attrs.frozen(kw_only=True)
class ToolFinished(Notification):
    """A tool call has its result in the log (`tools/result`); once for each call."""

    agent: Agent
    call: ToolCallBlock
    result: ToolReturn


# --- around ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Enter:
    """Answer of `PreStep`: the step takes place with these messages."""

    messages: tuple[UserMessage, ...]


@attrs.frozen(kw_only=True)
class Reject:
    """Answer of `PreStep`: the step does not take place, the turn ends blocked. `reason` is for people."""

    reason: str = ""


@attrs.frozen(kw_only=True)
class PreStep(Around["Enter | Reject"]):
    """A step is proposed (`agent/pre-step`): answer with `Enter` or `Reject`. The batch is empty after tools."""

    agent: Agent
    turn: int
    step: int
    batch: tuple[UserMessage, ...]


@attrs.frozen(kw_only=True)
class AssemblePrompt(Around["str | None"]):
    """The system prompt of a step is put together (`system-prompt/assemble`): answer with its text."""

    agent: Agent
    turn: int
    step: int
    sections: tuple[Section, ...]
    variables: tuple[Variable, ...]


@attrs.frozen(kw_only=True)
class BeforeRequest(Around[Header]):
    """A request is about to be sent (`agent/request`): answer with its header. The messages stand."""

    agent: Agent
    turn: int
    step: int
    attempt: int
    header: Header
    messages: Sequence[Message]


@attrs.frozen(kw_only=True)
class Retry:
    """Answer of `RequestFailed`: send the request again, in the same step, after a delay.

    Attributes:
        delay: seconds to wait.
        policy_key: names the policy in the log; retries are counted for each.
        max_retries: the policy's limit, or None for a policy without one.
    """

    delay: float
    policy_key: str
    max_retries: int | None = None


@attrs.frozen(kw_only=True)
class RequestFailed(Around["Retry | None"]):
    """A request failed (`agent/request-error`): answer with `Retry`, or None to let the turn fail.

    Attributes:
        attempt: which attempt of this step failed, from 1.
        had_output: whether content of this attempt was already streamed.
    """

    agent: Agent
    turn: int
    step: int
    attempt: int
    failure: LlmFailure
    had_output: bool


@attrs.frozen(kw_only=True)
class AroundTool(Around[ToolReturn]):
    """A tool call is about to run (`tools/execute`): answer with its result.

    Attributes:
        call: the call as the model wrote it.
        tool: the tool, or None if the name is unknown or hidden.
        arguments: the parsed arguments, or None if they do not fit (`proceed` then gives the error result).
    """

    agent: Agent
    turn: int
    step: int
    call: ToolCallBlock
    tool: AnyTool | None
    arguments: Mapping[str, object] | None


# --- serial ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class TurnStopping(Serial):
    """A turn is about to end by itself (`agent/turn-stopping`): a steer or an inject keeps it going."""

    agent: Agent
    turn: int
