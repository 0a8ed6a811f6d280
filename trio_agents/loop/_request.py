"""One request and its answer: header, barrier, stream, and the log of all of it.

A request is a pure function of the log before its first chunk: its messages are the surface, the rest is the last
`request/header`. So both are settled and logged, and made durable, before the adapter is called.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import attrs
import trio
from msgspec import UNSET, structs

from ..agent import BeforeRequest
from ..errors import ModelError, UsageError
from ..models import ModelAdapter, ModelInfo, ModelRequest
from ..session import (
    AdapterDefaults,
    AssistantChunk,
    AssistantMessage,
    Draft,
    Header,
    RequestConfig,
    RequestContext,
    RequestHeader,
    ToolSpec,
)
from ..session._header import is_same_header
from ..session._packing import DELTAS
from ..values import (
    BlockStart,
    Chunk,
    Finish,
    FinishAborted,
    FinishError,
    FinishReason,
    LlmFailure,
    Message,
    ModelSource,
    Stop,
    ToolCalls,
    Usage,
    mint_id,
)
from ..values._assembly import Assembly
from ._failures import failure_of

if TYPE_CHECKING:
    from ._agent import LoopAgent
    from ._pipeline import Pipeline

logger: Final = logging.getLogger("trio_agents")


@attrs.frozen
class Route:
    """Where a request goes: the adapter, or why there is none."""

    adapter: ModelAdapter | None
    info: ModelInfo
    problem: ModelError | None = None


@final
class Routes:
    """The routes that were found, for all agents together: an adapter is asked about a model once.

    Names come from whoever chooses models, so there is an end to how many are kept.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Route] = {}

    def get(self, provider: str, model: str) -> Route | None:
        """The route to a model, or None if nobody has asked yet. Its provider may have got another adapter since."""
        return self._found.get((provider, model))

    def keep(self, provider: str, model: str, route: Route) -> Route:
        """Remember a route, and give it back."""
        if len(self._found) >= MOST_ROUTES:
            self._found.clear()
        self._found[provider, model] = route
        return route


MOST_ROUTES: Final = 1000


@final
class Settled:
    """What the last request of an agent was settled to: while nothing that it depends on changes, so is the next.

    Attributes:
        route: where it went.
        asked: selection, system prompt and tools that it was made of.
        header: the header in the log that says it.
    """

    __slots__ = ("asked", "header", "route")

    def __init__(self, route: Route, asked: _Asked, header: Header | None) -> None:
        self.route: Route = route
        self.asked: _Asked = asked
        self.header: Header | None = header

    def fits(self, agent: LoopAgent, pipeline: Pipeline) -> bool:
        """Whether a request of this agent and this step would come out the same, and the log already says so."""
        header = self.header
        return (
            header is not None
            and header is agent.session.request_header()
            and self.asked == _asked(pipeline)
            and self.route.adapter is agent.loop.models.get(header.config.provider)
        )


_Asked: TypeAlias = tuple[tuple[str, str | None] | None, str | None, tuple[ToolSpec, ...]]


def _asked(pipeline: Pipeline) -> _Asked:
    return (pipeline.selection, pipeline.system, pipeline.specs)


@final
class Attempt:
    """One attempt of a request: what has come of it so far."""

    __slots__ = (
        "_activity", "_agent", "_pen", "assembly", "config", "defect", "failure", "finish", "had_output", "is_over",
        "seqs", "silence", "step", "turn", "watch",
    )  # fmt: skip

    def __init__(self, agent: LoopAgent, turn: int, step: int, config: RequestConfig) -> None:
        self._agent = agent
        self._activity = agent.activity
        self._pen = agent.driving_pen
        self.turn = turn
        self.step = step
        self.config = config
        self.assembly = Assembly()
        self.seqs: list[int] = []
        self.finish: FinishReason | None = None
        self.failure: LlmFailure | None = None
        self.defect: Exception | None = None
        self.had_output = False
        self.is_over = False
        self.silence = agent.options.silence_timeout
        first = agent.options.first_byte_timeout
        self.watch = (
            trio.CancelScope() if first is None else trio.CancelScope(deadline=trio.current_time() + first)
        )

    # --- the stream ---------------------------------------------------------------------------

    def emit(self, chunk: Chunk) -> None:
        """Take one chunk from the adapter: log it, then assemble it. Raises what the log raises."""
        if self.is_over or self._activity.cause is not None:
            return  # nothing that comes after the end, or after a cancel, has any effect
        if type(chunk) not in DELTAS:
            if not isinstance(chunk, Chunk):
                raise UsageError(f"an adapter emits chunks, not {type(chunk).__name__}")
            if type(chunk) is Finish:
                chunk = self._judged(chunk)
        try:
            self._log(chunk)
        except Exception as exc:
            # Not the adapter's failure: it must not be taken for one when it comes back through the adapter.
            self.defect = exc
            self.is_over = True
            raise
        if self.silence is not None and not self.is_over:
            # Set after the observers have run: their time is not the provider's silence. Moving a deadline costs as much
            # as logging a chunk, so one that would move by less than a hundredth stays: it is that much earlier.
            deadline = trio.current_time() + self.silence
            if not 0 <= deadline - self.watch.deadline < self.silence / 100:
                self.watch.deadline = deadline

    def _judged(self, chunk: Finish) -> Finish:
        """An answer that stops without any block is a failure, whatever its adapter says."""
        if self.assembly.is_empty and type(chunk.reason) in {Stop, ToolCalls}:
            return Finish(reason=FinishError(failure=EMPTY))
        return chunk

    def _log(self, chunk: Chunk) -> None:
        [event] = self._pen.append(AssistantChunk(turn=self.turn, step=self.step, chunk=chunk))
        self.seqs.append(event.seq)
        self.assembly.feed(chunk)
        kind = type(chunk)
        if kind in DELTAS:
            self.had_output = True
        elif type(chunk) is Finish:
            self.is_over = True
            self.finish = reason = chunk.reason
            if isinstance(reason, (FinishError, FinishAborted)):
                self.failure = reason.failure
        elif kind is not BlockStart and kind is not Usage:
            self.had_output = True

    def fail(self, failure: LlmFailure) -> None:
        """Log the failure as the terminal chunk, unless the stream already has one."""
        if self.finish is None and not self._activity.is_cancelled:
            self._log(Finish(reason=FinishError(failure=failure)))
        self.failure = failure

    async def run(self, route: Route, request: ModelRequest) -> BaseException | None:
        """Stream the answer. Returns the adapter's exception, if it raised one. A checkpoint."""
        error: Exception | None = route.problem
        if route.adapter is not None:
            with self.watch:
                try:
                    await route.adapter.stream(request, self.emit)
                except Exception as exc:  # noqa: BLE001 - a failure of the request, told to RequestFailed
                    error = exc
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.defect is not None:
            raise self.defect
        if self.failure is None:
            self._conclude(error)
        return error

    def _conclude(self, error: Exception | None) -> None:
        if self.finish is not None:
            if error is not None:  # the answer is whole and logged as such: it stands
                logger.warning(
                    "the adapter of %r failed after its answer", self.config.provider, exc_info=error
                )
        elif error is not None:
            self.fail(failure_of(error))
        elif self.watch.cancelled_caught:
            what = "no further chunk" if self.seqs else "no answer"
            seconds = self.silence if self.seqs else self._agent.options.first_byte_timeout
            self.fail(LlmFailure(message=f"the model sent {what} for {seconds:g} seconds", code="TIMEOUT"))
        elif self.assembly.is_empty:
            self.fail(EMPTY)

    # --- the answer ---------------------------------------------------------------------------

    def answer(self) -> Draft:
        """The assistant message of a whole stream."""
        assembly = self.assembly
        return self._draft(
            Message(
                id=mint_id(),
                role="assistant",
                content=assembly.blocks(),
                source=self._source(assembly.replay_state),
            )
        )

    def interrupted(self) -> Draft | None:
        """The assistant message of a stream that a cancel cut off, or None if nothing was visible yet."""
        content = self.assembly.interrupted_blocks()
        if not content or self.failure is not None:
            return None
        message = Message(id=mint_id(), role="assistant", content=content, source=self._source(UNSET))
        return self._draft(message, interrupted=True)

    def _source(self, replay_state: object) -> ModelSource:
        return ModelSource(
            provider=self.config.provider,
            model=self.config.model,
            replay_state=replay_state if replay_state is not None else UNSET,  # type: ignore[arg-type]
        )

    def _draft(self, message: Message, *, interrupted: bool = False) -> Draft:
        usage = self.assembly.usage
        return Draft(
            AssistantMessage(
                turn=self.turn,
                step=self.step,
                message=message,
                usage=UNSET if usage is None else usage,
                interrupted=True if interrupted else UNSET,
            ),
            "append",
            tuple(self.seqs),
        )


EMPTY: Final = LlmFailure(message="the model answered with nothing at all", code="EMPTY_RESPONSE")

# --- before the stream ----------------------------------------------------------------------------


async def prepare(
    agent: LoopAgent, pipeline: Pipeline, turn: int, step: int, attempt: int
) -> tuple[Route, ModelRequest]:
    """Settle and log header and context of an attempt, make them durable, and give the request. A checkpoint.

    Raises:
        ModelError: no model was chosen.
        StorageError: the log could not be written, or not made durable; nothing must be sent.
        Exception: what a `BeforeRequest` listener raised.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    session = agent.session
    messages = session.conversation()
    listened = bool(pipeline.listeners(BeforeRequest))
    settled = agent.settled
    if settled is not None and not listened and settled.fits(agent, pipeline):
        assert settled.header is not None
        header, route = settled.header, settled.route
    else:
        header = _header(agent, pipeline)
        if listened:
            proposal = BeforeRequest(
                agent=agent, turn=turn, step=step, attempt=attempt, header=header, messages=messages
            )
            header = _checked(await pipeline.around(proposal, _accept(proposal)))
        if not header.config.provider or not header.config.model:
            raise _no_model(header.config)
        route = await _route(agent, header.config)
        await trio.lowlevel.checkpoint_if_cancelled()
        header = _with_defaults(header, route.info)
        _log_header(agent, header, route.info)
        if route.adapter is not None and not listened:
            agent.settled = Settled(route, _asked(pipeline), session.request_header())
    if session.is_dirty:
        await session.flush()
        await trio.lowlevel.checkpoint_if_cancelled()
    return route, _request(agent, header, messages, turn, step, attempt)


def _no_model(config: RequestConfig) -> ModelError:
    """What to say where provider or model is missing: whoever named one half did choose, and forgot the other."""
    half = config.provider or config.model
    fault = f"a model is named provider/model, not {half!r}" if half else "no model was chosen"
    return ModelError(f"{fault}: give model='provider/model' in the agent's options", code="NO_ADAPTER")


def _checked(header: object) -> Header:
    """The header that listeners answered with; what they left empty is absent."""
    if not isinstance(header, Header):
        raise UsageError(f"BeforeRequest listeners answer with a Header, not {type(header).__name__}")
    if header.system == "" or header.tools == () or header.config.stop == ():
        config = header.config
        if config.stop == ():
            config = structs.replace(config, stop=UNSET)
        header = structs.replace(
            header, config=config, system=header.system or UNSET, tools=header.tools or UNSET
        )
    return header


def _accept(asked: BeforeRequest) -> Callable[[BeforeRequest], Awaitable[Header]]:
    async def default(proposal: BeforeRequest) -> Header:
        if proposal.messages is not asked.messages and list(proposal.messages) != list(asked.messages):
            raise UsageError("a BeforeRequest listener may change the header; the messages are the log's")
        return proposal.header

    return default


def _header(agent: LoopAgent, pipeline: Pipeline) -> Header:
    """The header that agent and pipeline ask for; what is empty is absent."""
    options = agent.options
    model, effort = options.model, options.effort
    if pipeline.selection is not None:
        model, effort = pipeline.selection
    provider, _, name = (model or "").partition("/")
    return Header(
        config=RequestConfig(
            provider=provider,
            model=name,
            reasoning_effort=effort or UNSET,
            temperature=UNSET if options.temperature is None else float(options.temperature),
            max_tokens=UNSET if options.max_tokens is None else options.max_tokens,
            stop=options.stop or UNSET,
        ),
        system=pipeline.system or UNSET,
        tools=pipeline.specs or UNSET,
    )


async def _route(agent: LoopAgent, config: RequestConfig) -> Route:
    """Where a request goes."""
    adapter = agent.loop.models.get(config.provider)
    if adapter is None:
        known = ", ".join(agent.loop.models.providers) or "none"
        problem = ModelError(
            f"there is no provider {config.provider!r}; registered are: {known}", code="NO_ADAPTER"
        )
        return Route(None, ModelInfo(), problem)
    asked = agent.loop.routes.get(config.provider, config.model)
    if asked is not None and asked.adapter is adapter:
        return asked
    limit = agent.options.first_byte_timeout
    try:
        with trio.CancelScope(deadline=math.inf if limit is None else trio.current_time() + limit):
            info = await adapter.info(config.model)
            return agent.loop.routes.keep(config.provider, config.model, Route(adapter, info))
    except ModelError as exc:
        return Route(None, ModelInfo(), exc)
    except Exception as exc:  # noqa: BLE001 - the adapter's failure, like one of its streams
        problem = ModelError(f"the provider {config.provider!r} could not say what {config.model!r} is")
        problem.__cause__ = exc
        return Route(None, ModelInfo(), problem)
    problem = ModelError(
        f"the provider {config.provider!r} did not say within {limit:g} seconds what {config.model!r} is",
        code="TIMEOUT",
    )
    return Route(None, ModelInfo(), problem)


def _with_defaults(header: Header, info: ModelInfo) -> Header:
    """The header with the adapter's own choices filled in, and marked as such."""
    config = header.config
    effort: Literal[True] | None = None
    tokens: Literal[True] | None = None
    if config.reasoning_effort is UNSET and info.default_effort is not None:
        effort = True
    if config.max_tokens is UNSET and info.default_max_tokens is not None:
        tokens = True
    if effort is None and tokens is None:
        return header
    return Header(
        config=RequestConfig(
            provider=config.provider,
            model=config.model,
            reasoning_effort=info.default_effort if effort else config.reasoning_effort,  # type: ignore[arg-type]
            temperature=config.temperature,
            max_tokens=info.default_max_tokens if tokens else config.max_tokens,  # type: ignore[arg-type]
            stop=config.stop,
        ),
        adapter_defaults=AdapterDefaults(reasoning_effort=effort or UNSET, max_tokens=tokens or UNSET),
        system=header.system,
        tools=header.tools,
    )


def _log_header(agent: LoopAgent, header: Header, info: ModelInfo) -> None:
    """Log header and context, each only if it says something new."""
    session = agent.session
    drafts: list[object] = []
    last = session.request_header()
    if not agent.has_logged_header:
        drafts.append(RequestHeader(header=header, reason="initial" if last is None else "resume"))
    elif last is None or not is_same_header(last, header):
        drafts.append(RequestHeader(header=header, reason="change"))
    config = header.config
    context = RequestContext(
        provider=config.provider,
        model=config.model,
        context_window=UNSET if info.context_window is None else info.context_window,
    )
    if session.request_context() != context:
        drafts.append(context)
    if drafts:
        agent.driving_pen.append(*drafts)
        agent.has_logged_header = True


def _request(
    agent: LoopAgent, header: Header, messages: Sequence[Message], turn: int, step: int, attempt: int
) -> ModelRequest:
    config = header.config
    return ModelRequest(
        provider=config.provider,
        model=config.model,
        messages=messages,
        system=None if header.system is UNSET else header.system,
        tools=() if header.tools is UNSET else header.tools,
        max_tokens=None if config.max_tokens is UNSET else config.max_tokens,
        effort=None if config.reasoning_effort is UNSET else config.reasoning_effort,
        temperature=None if config.temperature is UNSET else config.temperature,
        stop=() if config.stop is UNSET else config.stop,
        session_id=agent.id,
        turn=turn,
        step=step,
        attempt=attempt,
        read_attachment=agent.read_attachment,
    )
