"""Driving a recorded session through the whole runtime again.

The model, once.

* The new log is compared with the recording event by event, as it grows. `position` is how far they agree.
* Where the recording has something that came from outside (a delivery, a cancel, a withdrawn message), the replayer
  does it: it acts when `position` has come there, at the next place where it has control. Such places are the hooks
  around steps, requests, failures and calls, the model's stream, and the moments in which everything waits.
* The model streams what the recorded one did, tools answer what they answered. A tool's answer is held back until the
  recording's next event is that answer, so calls overlap as they did.
* If everything waits and there is nothing to do, the two logs part there: the recording goes on and the replay does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, cast, final

import attrs
import trio
import trio.testing
from msgspec import UNSET

from ..agent import (
    Agent,
    AgentHandle,
    AgentOptions,
    AroundTool,
    BeforeRequest,
    Enter,
    PreStep,
    Reject,
    RequestFailed,
    Retry,
    ToolFinished,
    TurnStopping,
)
from ..errors import TrioAgentsError, UsageError
from ..models import ReplayModel
from ..runtime import Runtime, open_runtime
from ..session import (
    Event,
    Header,
    InboxSpliced,
    LlmRetry,
    LlmRetryStarted,
    Replace,
    RequestContext,
    RequestHeader,
    ToolCall,
    ToolFailure,
    ToolResult,
    ToolSpec,
    encode_event,
)
from ..storage import MemoryStore, SessionStore
from ..tools import Tool, ToolContext, ToolReturn, schema_tool
from ..values import (
    Aborted,
    Blocked,
    Disposed,
    Failed,
    Message,
    ToolResultBlock,
    UserMessage,
)
from ._comparison import Difference, compare, compare_messages, describe_event, is_compared
from ._overlap import ends_of_bodies
from ._tape import Cancel, Tape, error_code

_LONG: Final = 10**6


@attrs.frozen(kw_only=True)
class Outcome:
    """What came of a replay.

    Attributes:
        compared: how many events agreed.
        events: how many events the new log has.
        difference: the first difference, or None.
        messages: what the model sees at the end, as the replay derives it.
    """

    compared: int
    events: int
    difference: Difference | None
    messages: Sequence[Message]


async def replay(tape: Tape, prefix: Sequence[Event], recorded_messages: Sequence[Message]) -> Outcome:
    """Drive a recording through a runtime of its own and compare the new log with it.

    Args:
        tape: the recording.
        prefix: all its events before `tape.start`, those that are not compared included.
        recorded_messages: what the model sees at its end.
    """
    player = _Player(tape, recorded_messages)
    await player.play(prefix)
    return Outcome(
        compared=player.position - tape.start,
        events=player.count,
        difference=player.difference,
        messages=player.messages,
    )


@final
class _Recorded:
    """A store in memory that vouches for attachments: a recording refers to them and does not hold their bytes."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def has_attachment(self, session_id: str, attachment_id: str) -> bool:
        """Whether the bytes are there: whatever the recording refers to was there."""
        return True


class _Stop(Exception):
    """The recording's turn failed here; so the replay's does."""


@final
class _Player:
    def __init__(self, tape: Tape, recorded_messages: Sequence[Message]) -> None:
        self.tape = tape
        self.position = tape.start
        self.count = 0
        self.difference: Difference | None = None
        self.messages: Sequence[Message] = ()
        self._recorded_messages = recorded_messages
        self._seqs: dict[int, int] = {}
        self._cancelled: set[int] = set()
        self._results = tape.results()
        self._together = tape.overlapping()
        self._width, self._ends = ends_of_bodies(tape.events)
        self._scope = trio.CancelScope()
        self._lot = trio.lowlevel.ParkingLot()
        self._hurry = False
        self._agent: Agent | None = None
        self._handle: AgentHandle | None = None
        self._is_ending = False

    # --- from the first event to the last -----------------------------------------------------

    async def play(self, prefix: Sequence[Event]) -> None:
        store = cast(SessionStore, _Recorded())
        kept = [event for event in self.tape.events[: self.tape.start] if type(event.data) in _ABOUT_REQUESTS]
        models = ReplayModel.for_each_provider(
            [*self.tape.stand_in_header(), *kept, *self.tape.events[self.tape.start :]],
            before_chunk=self._before_chunk,
        )
        if prefix:
            await self._store(store, prefix)
        async with open_runtime(store=store, models=models, plugins=()) as runtime:
            with self._scope:
                await self._open(runtime, resumes=bool(prefix))
                await self._conduct(runtime)
                self._compare_ends()
            if self._handle is not None:
                self._is_ending = True
                await self._handle.dispose()

    async def _store(self, store: SessionStore, prefix: Sequence[Event]) -> None:
        """Have the beginning that is not replayed lie there as it was left."""
        writer = store.create(self.tape.header)
        writer.write(prefix, [encode_event(event) for event in prefix])
        await writer.aclose()
        self._seqs = {event.seq: event.seq for event in prefix}
        self.count = len(prefix)

    async def _open(self, runtime: Runtime, *, resumes: bool) -> None:
        id = self.tape.header.id or "replay"
        registry, options = runtime.agents, self._options()
        if resumes:
            self._handle = await registry.resume(id, setup=self._listen, options=options)
        else:
            is_seeded = self.tape.start in self.tape.acts and self.tape.acts[self.tape.start] == "resume"
            self._handle = await registry.create(
                id, setup=self._listen, options=options, prefix=() if is_seeded else None
            )
        self._agent = self._handle.agent
        for event in self._agent.session.events[self.count :]:
            self._see(event)
        self._agent.session.observe(self._see)

    def _options(self) -> AgentOptions:
        tools = tuple(self._tool(name, spec) for name, spec in self.tape.tool_specs().items())
        return AgentOptions(
            model=self._model(),
            tools=tools,
            max_parallel_tools=self._width,
            max_requests=self.tape.request_cap() or _LONG,
            max_stop_continuations=_LONG,
            first_byte_timeout=None,
            silence_timeout=None,
        )

    def _model(self) -> str:
        headers = (*self.tape.events, *self.tape.stand_in_header())
        config = next(event.data.header.config for event in headers if type(event.data) is RequestHeader)
        return f"{config.provider}/{config.model}"

    async def _conduct(self, runtime: Runtime) -> None:
        """Do what came from outside whenever everything waits, until both logs are at their ends."""
        while True:
            await trio.testing.wait_all_tasks_blocked()
            position = self.position
            if self._is_resume_due():
                await self._resume(runtime)
                continue
            self.catch_up()
            agent = self.agent
            if self.position == position and agent.status == "idle" and not self._wake():
                return
            if self.position == position and agent.status == "running":
                await trio.testing.wait_all_tasks_blocked()
                if self.position == position and not self._loosen():
                    self._part("the recording goes on, but in the replay everything waits")

    def _is_resume_due(self) -> bool:
        return self.tape.acts.get(self.position) == "resume"

    async def _resume(self, runtime: Runtime) -> None:
        assert self._handle is not None
        before = len(self.agent.session.events)
        self._is_ending = True
        await self._handle.dispose()
        self.count = before
        self._is_ending = False
        await self._open(runtime, resumes=True)

    def _wake(self) -> bool:
        """Start a run if the recording has one here. False at the end of both logs."""
        if self.position >= len(self.tape):
            return False
        agent = self.agent
        if agent.inbox.has_pending:
            agent.wake()
            return True
        try:
            agent.continue_turn()
        except TrioAgentsError as exc:
            self._part(f"the recording goes on, but the replay is idle and nothing is pending: {exc}")
        return True

    def _loosen(self) -> bool:
        """Let held back answers go, so that it shows what comes instead. False if there are none."""
        if self._hurry or not self._lot:
            return False
        self._hurry = True
        self._lot.unpark_all()
        return True

    def _compare_ends(self) -> None:
        self.messages = self.agent.session.messages()
        found = compare_messages(self._recorded_messages, self.messages)
        if found is not None and self.difference is None:
            index, what = found
            self.difference = Difference(
                what=f"the derived messages differ at message {index + 1}: {what}",
                recorded_seq=self._recorded_length(),
                replayed_seq=self.count,
                recorded=_said(self._recorded_messages, index),
                replayed=_said(self.messages, index),
            )

    @property
    def agent(self) -> Agent:
        """The agent of the moment."""
        assert self._agent is not None
        return self._agent

    # --- comparing ----------------------------------------------------------------------------

    def _see(self, event: Event) -> None:
        """The new log has grown by an event."""
        if self._is_ending or self.difference is not None:
            return
        self.count = event.seq + 1
        if not is_compared(event):
            return
        recorded = self.tape.at(self.position)
        what = (
            "the recording ends, but the replay goes on"
            if recorded is None
            else compare(recorded, event, self._seqs)
        )
        if recorded is None or what is not None:
            self._part(what or "", event)
            return
        self._seqs[recorded.seq] = event.seq
        self.position += 1
        self._lot.unpark_all()

    def _part(self, what: str, event: Event | None = None) -> None:
        """Note where the logs part, and stop."""
        if self.difference is None:
            recorded = self.tape.at(self.position)
            self.difference = Difference(
                what=what,
                recorded_seq=self._recorded_length() if recorded is None else recorded.seq,
                replayed_seq=self.count if event is None else event.seq,
                recorded=describe_event(recorded),
                replayed=describe_event(event),
            )
        self._scope.cancel(reason="the replay differs from the recording")

    def _recorded_length(self) -> int:
        return self.tape.events[-1].seq + 1 if len(self.tape) else 0

    # --- acting -------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Do everything from outside that is due."""
        while self.difference is None:
            position = self.position
            cancel = self.tape.cancels.get(position)
            if cancel is not None and position not in self._cancelled:
                self._cancelled.add(position)
                self._cancel(cancel)
            elif position in self.tape.acts and self.tape.acts[position] != "resume":
                self._act(self.tape.events[position])
            else:
                return
            if self.position == position and cancel is None:
                self._part("the replay could not do what the recording shows here")

    def _cancel(self, cancel: Cancel) -> None:
        assert isinstance(cancel.end.reason, Aborted)
        cause = cancel.end.reason.reason
        if isinstance(cause, Disposed):
            assert self._handle is not None
            self._handle.dispose_soon()
        else:
            with contextlib.suppress(UsageError):  # a cause that can only be read: it ends as a difference
                self.agent.cancel(cause, keep_inbox=cancel.keeps_inbox)

    def _act(self, event: Event) -> None:
        try:
            if isinstance(event.data, UserMessage):
                self._replace_surface(event, event.data)
            elif isinstance(event.data, InboxSpliced):
                self._splice(event.data)
        except TrioAgentsError as exc:
            self._part(f"the replay could not do what the recording shows here: {exc}")

    def _splice(self, splice: InboxSpliced) -> None:
        inbox, agent = self.agent.inbox, self.agent
        items = inbox.next_turn if splice.target == "next-turn" else inbox.next_step
        act = self.tape.acts[self.position]
        if act == "insert" and splice.start == len(items) and len(splice.inserted) == 1:
            agent.send(splice.inserted[0], target=splice.target, wake=False)
        elif act == "move" and splice.start < len(items):
            inbox.move_to_next_step(items[splice.start].id)
        elif act == "remove" and splice.removed_count == 1 and splice.start < len(items):
            inbox.remove(items[splice.start].id)
        else:
            inbox.splice(splice.target, splice.start, splice.removed_count or 0, *splice.inserted)

    def _replace_surface(self, event: Event, message: UserMessage) -> None:
        assert isinstance(event.surface_op, Replace)
        sources = () if event.source_event_seqs is UNSET else event.source_event_seqs
        self.agent.replace_surface(
            message,
            start=self._seqs.get(event.surface_op.start, -1),
            end=self._seqs.get(event.surface_op.end, -1),
            sources=tuple(self._seqs[seq] for seq in sources if seq in self._seqs),
        )

    # --- the places of control ----------------------------------------------------------------

    def _listen(self, agent: Agent) -> None:
        """The setup of the agent: hear of everything that the recording may have an answer to."""
        self._agent = agent
        scope = agent.scope
        scope.on(PreStep, self._pre_step)
        scope.on(BeforeRequest, self._before_request)
        scope.on(RequestFailed, self._request_failed)
        scope.on(AroundTool, self._around_tool)
        scope.on(ToolFinished, lambda _: self.catch_up())
        scope.on(TurnStopping, self._turn_stopping)

    async def _before_chunk(self, _: Event) -> None:
        self.catch_up()
        await trio.lowlevel.checkpoint()

    async def _pause(self) -> None:
        """Act where something is due, and let a cancel that was due have its effect."""
        self.catch_up()
        await trio.lowlevel.checkpoint()

    async def _pre_step(
        self, proposal: PreStep, proceed: Callable[[PreStep], Awaitable[Enter | Reject]]
    ) -> Enter | Reject:
        await self._pause()
        end = self.tape.turn_end(self.position)
        if end is not None and isinstance(end.reason, Failed):
            raise _Stop(end.reason.error.message)
        if end is not None and isinstance(end.reason, Blocked):
            return Reject(reason="as recorded")
        return Enter(messages=self._entering(proposal.batch))

    def _entering(self, batch: tuple[UserMessage, ...]) -> tuple[UserMessage, ...]:
        """What was delivered, as it was delivered, and what listeners added; without what they left out."""
        recorded = self.tape.step_messages(self.position)
        given_back = self.tape.gives_back(self.position)
        delivered = {message.id: message for message in batch}
        known = {message.id for message in recorded or ()}
        first = [m for m in batch if m.id not in known and m.id not in given_back]
        return (*first, *(delivered.get(message.id, message) for message in recorded or ()))

    async def _before_request(
        self, proposal: BeforeRequest, proceed: Callable[[BeforeRequest], Awaitable[Header]]
    ) -> Header:
        await self._pause()
        end = self.tape.turn_end(self.position)
        if end is not None and isinstance(end.reason, Failed):
            raise _Stop(end.reason.error.message)
        header = self.tape.header_at(self.position)
        return proposal.header if header is None else header.header

    async def _request_failed(
        self, failed: RequestFailed, proceed: Callable[[RequestFailed], Awaitable[Retry | None]]
    ) -> Retry | None:
        await self._pause()
        retry = next(self.tape.ahead(self.position), None)
        if retry is None or not isinstance(retry.data, LlmRetry):
            return await proceed(failed)
        following = self.tape.data_at(self.position + 1)
        return Retry(
            delay=0 if isinstance(following, LlmRetryStarted) else _LONG,
            policy_key=retry.data.policy_key,
            max_retries=None if retry.data.max_retries is UNSET else retry.data.max_retries,
        )

    async def _turn_stopping(self, stopping: TurnStopping) -> None:
        await self._pause()
        end = self.tape.turn_end(self.position)
        if end is not None and isinstance(end.reason, Failed):
            raise _Stop(end.reason.error.message)

    # --- tools --------------------------------------------------------------------------------

    def _tool(self, name: str, spec: ToolSpec) -> Tool[..., object]:
        async def body(arguments: Mapping[str, object], context: ToolContext) -> ToolReturn:
            await self._pause()
            return ToolReturn()

        def is_parallel(_: Mapping[str, object]) -> bool:
            return self._is_parallel(name)

        return schema_tool(
            body, name=name, description=spec.description, parameters=spec.parameters, parallel=is_parallel
        )

    def _is_parallel(self, name: str) -> bool:
        """Whether the calls of this tool in the step at work ran beside others."""
        session = self.agent.session
        turn, step = session.open_turn, session.open_step
        return turn is not None and step is not None and (turn, step, name) in self._together

    async def _around_tool(
        self, call: AroundTool, proceed: Callable[[AroundTool], Awaitable[ToolReturn]]
    ) -> ToolReturn:
        position = self.position - 1
        recorded = self._results.get((call.turn, call.step, call.call.id, self._earlier(call, position)))
        if recorded is not None and error_code(recorded.data) == "ABORTED_BEFORE_DISPATCH":
            await self._pause()  # a cancel is due, and the body must not have begun
        await proceed(call)
        while not self._hurry and (recorded is None or self._next_own() < self._ends.get(position, _LONG)):
            await self._lot.park()
        self.catch_up()
        return self._answer(recorded)

    def _earlier(self, call: AroundTool, position: int) -> int:
        """How many calls of the step had this id before the one at a position."""
        return sum(
            isinstance(event.data, ToolCall)
            and (event.data.turn, event.data.step, event.data.call_id) == (call.turn, call.step, call.call.id)
            for event in self.tape.events[self.tape.start : max(position, 0)]
        )

    def _next_own(self) -> int:
        """The position of the next event that does not come from outside."""
        position = self.position
        while position in self.tape.acts:
            position += 1
        return position

    def _answer(self, recorded: Event | None) -> ToolReturn:
        if recorded is None or not isinstance(recorded.data, ToolResult):
            return ToolReturn("the recording holds no result of this call", is_error=True)
        result = recorded.data
        [block] = result.message.content
        assert isinstance(block, ToolResultBlock)
        return ToolReturn(
            block.content,
            is_error=block.is_error is True,
            error=None
            if result.error is UNSET
            else ToolFailure(name=result.error.name, code=result.error.code),
            meta=None if result.meta is UNSET else result.meta,
            concludes=self.tape.concludes(recorded),
        )


_ABOUT_REQUESTS: Final = frozenset((RequestHeader, RequestContext))


def _said(messages: Sequence[Message], index: int) -> str:
    if index >= len(messages):
        return "nothing: there are no more messages"
    message = messages[index]
    text = " ".join(message.text.split())
    return f"{message.role} message from {message.source.kind}: {text[:120]!r}"
