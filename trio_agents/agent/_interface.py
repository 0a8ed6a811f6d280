"""What an agent is to everybody who does not drive it: the interface, and the capability to end it."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

import attrs
import trio

from ..errors import TrioAgentsError
from ..session import Session
from ..session._events import Event, Target
from ..values import (
    BY_USER,
    Attachment,
    CancelCause,
    ContentBlock,
    TokenUsage,
    TurnEndReason,
    UserMessage,
)
from ._inbox import Inbox
from ._options import AgentOptions
from ._scope import Scope

T = TypeVar("T")

Deliverable: TypeAlias = "str | UserMessage | ContentBlock | list[ContentBlock] | tuple[ContentBlock, ...]"
"""What can be delivered: a message, or text or blocks that become a message with a user's source."""


@attrs.frozen(kw_only=True)
class Settlement:
    """What became of a delivered message.

    Attributes:
        outcome: `claimed` by a turn that has ended; `discarded` (recorded as cancelled); `returned` to the queue
            by a turn that ended before a step took it; `kept` in the log by an agent that has ended.
        turn: the turn that claimed it, or None.
        end: how that turn ended, or None.
    """

    outcome: Literal["claimed", "discarded", "returned", "kept"]
    turn: int | None = None
    end: TurnEndReason | None = None


class Receipt(Protocol):
    """What a delivery returns. It may be dropped; it holds nothing open."""

    @property
    def message_id(self) -> str:
        """The id of the delivered message."""
        ...

    @property
    def state(self) -> Literal["pending", "claimed", "settled"]:
        """How far the message has come."""
        ...

    async def settled(self) -> Settlement:
        """Wait until it is decided what became of the message. A checkpoint; cancelling changes nothing.

        A message returned to the queue settles as returned; claimed again later, it has no second settlement.

        Raises:
            ReentrantWaitError: called from inside the agent's own work.
        """
        ...


V_co = TypeVar("V_co", covariant=True)


@attrs.frozen(kw_only=True)
class Reply(Generic[V_co]):
    """The answer to an `ask` or a `stream`.

    Attributes:
        text: the text of the turn's last assistant message; empty if there is none.
        turn: the turn's number, or None if no turn took the message.
        end: how it ended, or None.
        usage: the tokens of all its requests together.
        message_id: the id of the message that was answered.
        value: what `returns=` asked for, else None; also None if the turn did not end in an answer (`check=False`).
    """

    text: str
    turn: int | None
    end: TurnEndReason | None
    usage: TokenUsage
    message_id: str
    value: V_co


Delivery: TypeAlias = Literal["JOINED", "WOKE", "PARKED"]
"""What `deliver` did: joined the live run, woke the agent, or left the message parked."""


class ReplyStream(Protocol):
    """The text of a turn as it comes. A plain object: dropping it leaks nothing."""

    def __aiter__(self) -> ReplyStream:
        """Itself."""
        ...

    async def __anext__(self) -> str:
        """The next piece of text. A checkpoint. Ends when the turn has ended."""
        ...

    @property
    def result(self) -> Reply[None]:
        """The whole reply, once the iteration is over.

        Raises:
            UsageError: the turn has not ended yet.
            TurnError: it did not end in a reply.
        """
        ...


class ReplyContext(Protocol):
    """What `agent.stream` gives: an async context manager around a `ReplyStream`."""

    async def __aenter__(self) -> ReplyStream:
        """Deliver the message."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Cancel the turn if it is still at work (or withdraw the message), and wait until it is quiet."""
        ...


class Lease(Protocol):
    """One consistent snapshot of an agent's tools, prompt and hooks, as `lease_pipeline` gives it."""

    @property
    def tools(self) -> dict[str, Any]:
        """The tools in force, by name."""
        ...


class Agent(Protocol):
    """The live driver of one session in this process.

    Every method that is not `async` is synchronous in the strict sense: it has no checkpoint, it takes effect as
    a whole before it returns, and it belongs to the Trio thread (`trio.from_thread.run_sync` from another).
    """

    @property
    def id(self) -> str:
        """The agent's id, which is its session's."""
        ...

    @property
    def owner_token(self) -> object:
        """Identifies this exact publication; unequal for any other agent, also one of the same id."""
        ...

    @property
    def options(self) -> AgentOptions:
        """What it was created with."""
        ...

    @property
    def session(self) -> Session:
        """Its facts."""
        ...

    @property
    def inbox(self) -> Inbox:
        """What is pending."""
        ...

    @property
    def scope(self) -> Scope:
        """What it owns. Its end closes the scope."""
        ...

    @property
    def status(self) -> Literal["idle", "running"]:
        """Whether a run is under way. Maintenance counts as idle."""
        ...

    def send(self, message: Deliverable, *, target: Target = "next-turn", wake: bool = True) -> Receipt:
        """Deliver a message: the fact is durable in the log before this returns.

        Args:
            message: what to deliver.
            target: `next-turn` opens a turn of its own; `next-step` joins the next step of the current one.
            wake: whether an idle agent starts to work.

        Raises:
            MessageError: it cannot be accepted.
            AgentNotPublishedError, AgentClosedError: the agent takes nothing yet, or no more.
            StorageError: the log refused it. Nothing was accepted.
        """
        ...

    def followup(self, message: Deliverable) -> Receipt:
        """Queue a message for a turn of its own, and wake the agent. Raises as `send`."""
        ...

    def steer(self, message: Deliverable) -> Receipt:
        """Put a message into the next step of the turn at work; an idle agent opens a turn. Raises as `send`."""
        ...

    def inject(self, message: Deliverable) -> Receipt:
        """Put a message into the next step, whenever that is; wakes nobody. Raises as `send`."""
        ...

    def deliver(self, message: Deliverable, *, wake_budget: int | None = None) -> Delivery:
        """Deliver on a program's behalf: at most `wake_budget` times in a row does it wake an idle agent.

        What joins a run may be read before what an earlier call has woken the agent with. Messages that depend on
        each other take one lane whatever the agent does: `followup`, or `inject` and `wake`.

        Returns:
            JOINED if a run was under way (next-step, budget untouched), WOKE if it woke the agent (next-turn),
            PARKED if the budget is spent (next-step). A claimed user message refills the budget.
        """
        ...

    def try_followup_when_idle(
        self, prepare: Callable[[], Deliverable | None], accepted: Callable[[], object] | None = None
    ) -> bool:
        """Deliver what `prepare` gives, if and only if the agent is idle and nothing is pending. One section.

        Returns:
            False if it is not idle, something is pending, or `prepare` gave None: nothing was written.
        """
        ...

    def wake(self) -> None:
        """Work on what is pending, if anything is. Raises as `send`."""
        ...

    @overload
    async def ask(self, message: Deliverable, *, check: bool = True, returns: None = None) -> Reply[None]: ...

    @overload
    async def ask(self, message: Deliverable, *, check: bool = True, returns: type[T]) -> Reply[T]: ...

    async def ask(
        self, message: Deliverable, *, check: bool = True, returns: type[T] | None = None
    ) -> Reply[T] | Reply[None]:
        """Deliver a message and wait for the turn that takes it. A checkpoint.

        If the wait is cancelled the message is withdrawn, or its turn cancelled (what else is pending stays).

        Args:
            message: what to ask.
            check: False gives every end as a `Reply` instead of raising.
            returns: a type that the answer is to be a value of: an attrs class, dataclass, TypedDict, msgspec struct,
                `list[...]`, `Literal[...]`, ... The model is told its JSON schema, and, if what it answers does not fit,
                the faults, in up to two further turns. `Reply.value` is the value, `Reply.turn` the last turn.

        Raises:
            TurnBlocked, TurnFailed, TurnAborted, MessageDiscarded: the turn did not end in a reply.
            AgentClosedError: the agent ended first.
            ReentrantWaitError: called from inside the agent's own work.
        """
        ...

    def stream(self, message: Deliverable) -> ReplyContext:
        """Deliver a message on entering the block and give the text of its turn as it comes."""
        ...

    async def attach(
        self, data: bytes, *, media_type: str | None = None, name: str | None = None
    ) -> Attachment:
        """Store an attachment beside the log; a message may refer to it from then on. A checkpoint.

        Raises:
            MessageError: too large, or of a kind that is not accepted.
            StorageError: it could not be stored.
        """
        ...

    def cancel(self, cause: CancelCause = BY_USER, *, keep_inbox: bool = False) -> None:
        """Stop the work at hand; the agent lives on. The first cause of an activity counts.

        What is pending is recorded as cancelled, unless `keep_inbox` is true.

        Raises:
            StorageError, ReentrantAppendError: that could not be recorded. The work is stopped all the same.
        """
        ...

    def cancel_tool(self, call_id: str, *, reason: str = "") -> bool:
        """End the body of one tool call; the turn and the other calls go on. False if no such body runs."""
        ...

    async def stop(self, cause: CancelCause = BY_USER, *, keep_inbox: bool = False) -> None:
        """Cancel, then wait until all is quiet. A checkpoint.

        Raises:
            ReentrantWaitError: called from inside the agent's own work; the cancel stands.
        """
        ...

    async def when_idle(self) -> None:
        """Wait until the agent is quiescent, replacement work and maintenance included, and its log durable.

        A checkpoint. Never raises because a turn failed or was cancelled.

        Raises:
            StorageError: the log could not be made durable.
            ReentrantWaitError: called from inside the agent's own work.
        """
        ...

    async def run_maintenance(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a job while no turn runs; what is delivered meanwhile waits. A checkpoint.

        Raises:
            AgentBusyError: it is running, or in maintenance; the job was not started.
        """
        ...

    def select_model(self, model: str, *, effort: str | None = None) -> None:
        """Use another model from the next step on."""
        ...

    def continue_turn(self) -> int:
        """Open a turn without input, if the history owes an answer. Returns once it is under way.

        Returns:
            the number that the turn will have.

        Raises:
            AgentBusyError: the agent is not idle.
            UsageError: nothing is owed.
        """
        ...

    async def clear_context(self, notice: str = ...) -> None:
        """Start the conversation afresh: requests no longer show what came before; the log keeps it.

        Raises:
            AgentBusyError: the agent is not idle.
        """
        ...

    def replace_surface(
        self, message: UserMessage, *, start: int, end: int, sources: tuple[int, ...] = ()
    ) -> Event:
        """Put a message in the place of the surface nodes from `start` to `end` (event numbers). For plugins."""
        ...

    def lease_pipeline(self) -> Lease:
        """One consistent snapshot of tools, prompt and hooks, as a step uses it."""
        ...


class AgentHandle(trio.abc.AsyncResource):
    """The capability to end one agent, held by who created it."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def agent(self) -> Agent:
        """The agent."""

    @abc.abstractmethod
    async def dispose(self, *, discard_inbox: bool = False) -> None:
        """End the agent and wait for its end. Idempotent; cancelling the wait cancels nothing.

        What is pending stays in the log for a resume, unless `discard_inbox` is true.

        Raises:
            TeardownError: it has ended and everything is released, but something failed on the way.
            ReentrantWaitError: called from inside the agent, shielded; the end is asked for all the same.
        """

    @abc.abstractmethod
    def dispose_soon(self) -> None:
        """Ask for the end and do not wait. No checkpoint."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Like `dispose`, but the wait is shielded from cancellation, and bounded by the agent's grace."""

    async def __aenter__(self) -> AgentHandle:
        """Itself. Leaving the block closes the agent."""
        return self


@attrs.frozen(kw_only=True)
class ResumeOutcome:
    """What `resume_all` made of one stored session: a handle, or the error that stood in the way."""

    session_id: str
    handle: AgentHandle | None = None
    error: TrioAgentsError | None = None


class Setup(Protocol):
    """Prepares an agent before anybody can see it.

    Called in the creator's own task with the agent; registers tools, prompt sections, listeners and contexts in
    `agent.scope`. It may be sync or async, and may return a function, the *commit*, which is called right before
    publication.
    """

    def __call__(self, agent: Agent, /) -> Any: ...


class AgentFactory(Protocol):
    """What makes agents: the loop. One per runtime."""

    async def create(
        self,
        owner: Scope,
        session_id: str | None,
        *,
        setup: Setup | None,
        options: AgentOptions,
        prefix: tuple[Event, ...] | None,
    ) -> AgentHandle:
        """Create an agent in a fresh session, owned by `owner`."""
        ...

    async def resume(
        self,
        owner: Scope,
        session_id: str,
        *,
        setup: Setup | None,
        options: AgentOptions | None,
        rerun: bool,
        wait: bool,
    ) -> AgentHandle:
        """Bring a stored session back to life, owned by `owner`."""
        ...
