"""A model that does what a script says: every chunk, delay, gate and failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, assert_never, final

import trio

from ..errors import ModelError, UsageError
from ..values._chunks import Chunk
from ._contract import ModelInfo, ModelRequest
from ._history import check_history, project
from ._reply import Call, Gate, Hang, NumberedCall, Raise, Reply, Sleep, Stubborn

ReplyLike: TypeAlias = Reply | str | BaseException
"""A reply, the text of one, or an error to raise."""

Answer: TypeAlias = ReplyLike | Callable[[ModelRequest], ReplyLike]
"""One entry of a script: a reply, or a function of the request that gives one."""


@final
class ScriptedModel:
    """A model adapter under full control, for tests and benchmarks.

    `script` is an iterable of replies, used up one per request over all agents that share the model; or a
    function of the request; or a single `Reply`, which then answers every request. Texts stand for
    `Reply.text`, exceptions for `Reply.fail`. A request takes its reply when it arrives, whatever becomes of it
    then.

    Args:
        script: what to answer.
        provider: the name before the slash.
        context_window: what `info` says.
        strict: refuse, as the pickiest provider would (`INVALID_REQUEST`), a history in which a call and its
            result are not together, a model's message stands first, or a message is empty or blank. Such a
            request takes no reply. Strictness reads the whole history for each request; benchmarks turn it off.
        record: keep every request in `requests`. A recorded request keeps its messages alive.
    """

    def __init__(
        self,
        script: Iterable[Answer] | Callable[[ModelRequest], ReplyLike] | Reply = (),
        provider: str = "scripted",
        context_window: int | None = None,
        *,
        strict: bool = True,
        record: bool = True,
    ) -> None:
        if isinstance(script, str):
            raise UsageError(f"a script is a list of replies; for one text that is [{script!r}]")
        self._provider = provider
        self._info = ModelInfo(context_window=context_window)
        self._same = script if isinstance(script, Reply) else None
        self._answer = script if callable(script) else None
        self._answers: Iterator[Answer] = (
            iter(()) if isinstance(script, Reply) or callable(script) else iter(script)
        )
        self._strict = strict
        self._record = record
        self._count = 0
        self._requests: list[ModelRequest] = []

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        return self._provider

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request so far, oldest first, the refused ones included. Empty with `record=False`."""
        return self._requests

    @property
    def request_count(self) -> int:
        """How many requests there have been."""
        return self._count

    def extend(self, *answers: Answer) -> None:
        """Add to the end of a script that is a list."""
        before = self._answers
        self._answers = iter([*before, *answers])

    async def info(self, model: str) -> ModelInfo:
        """What the script's author says of any model."""
        await trio.lowlevel.checkpoint()
        return self._info

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Do what the next reply says."""
        self._count += 1
        number = self._count
        if self._record:
            self._requests.append(request)
        if self._strict:
            check_history(request.messages)
            project(request.messages, provider=request.provider, model=request.model)
        reply = self._same if self._same is not None else self._take(request, number)
        await trio.lowlevel.checkpoint()
        if reply.plain:
            for chunk in reply.steps:
                emit(chunk)  # type: ignore[arg-type]  # a plain reply is chunks only
        else:
            await _play(reply, number, emit)

    def _take(self, request: ModelRequest, number: int) -> Reply:
        if self._answer is not None:
            return _as_reply(self._answer(request))
        try:
            answer = next(self._answers)
        except StopIteration:
            raise ModelError(
                f"the script of {self._provider!r} is used up: request {number} (session {request.session_id!r}, "
                f"turn {request.turn}, step {request.step}) has no reply",
                code="SCRIPT_EXHAUSTED",
            ) from None
        return _as_reply(answer(request) if callable(answer) else answer)


def _as_reply(answer: ReplyLike) -> Reply:
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, str):
        return Reply.text(answer)
    if isinstance(answer, BaseException):
        return Reply.fail(answer)
    raise UsageError(f"a script gives a Reply, a text or an exception, not {answer!r}")


async def _play(reply: Reply, number: int, emit: Callable[[Chunk], None]) -> None:
    for step in reply.steps:
        if isinstance(step, Chunk):
            emit(step)
        elif isinstance(step, NumberedCall):
            for chunk in step.expand(number):
                emit(chunk)
        elif isinstance(step, Sleep):
            await trio.sleep(step.seconds)
        elif isinstance(step, Gate):
            step.reached.set()
            await step.opened.wait()
        elif isinstance(step, Raise):
            # The same object may be raised again: it must not carry the frames of the last time.
            raise step.error.with_traceback(None)
        elif isinstance(step, Hang):
            await trio.sleep_forever()
        elif isinstance(step, Stubborn):
            with trio.CancelScope(shield=True):
                await trio.sleep(step.seconds)
        elif isinstance(step, Call):
            step.fn()
        else:
            assert_never(step)
