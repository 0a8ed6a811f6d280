"""What a running tool may know and do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, TypeAlias, TypeVar, final

import attrs
import trio

from ..errors import UsageError
from ..values._messages import Attachment, PluginSource, UserMessage
from ._results import ToolReturn

_T = TypeVar("_T")

ServiceBody: TypeAlias = "Callable[..., Awaitable[object]]"
"""An async function that takes `task_status`, as `nursery.start` calls it."""


def _no_progress(text: str) -> None:
    """Progress that nobody listens to is dropped."""


def _alone(*args: object) -> NoReturn:
    raise UsageError(
        "this ToolContext was made by hand and belongs to no agent; only a running agent can do that"
    )


async def _alone_async(*args: object) -> NoReturn:
    await trio.lowlevel.checkpoint()
    _alone(*args)


@final
@attrs.define(eq=False, kw_only=True)
class ToolContext:
    """One call, seen from inside the tool. A parameter annotated with this class receives it.

    A context made by hand, with no more than `call_id` and `name`, serves to call a tool in a test.

    Attributes:
        call_id: the call's id in the log: the same when the call is run again, so it serves as an idempotency key.
        name: the name under which the tool was called.
        turn: the turn's number.
        step: the step's number in its turn.
        session_id: the session of the agent that calls.
        agent: the agent that calls, a `trio_agents.Agent`, or None in a context made by hand. Its type here is `object`, since
            tools know no agents: type checkers want a `cast`.
        rerun: whether an earlier process may have begun this very call already.
    """

    call_id: str
    name: str
    turn: int = 1
    step: int = 1
    session_id: str = ""
    agent: object = None
    rerun: bool = False
    _progress: Callable[[str], None] = attrs.field(default=_no_progress, alias="progress")
    _stage: Callable[[UserMessage], object] = attrs.field(default=_alone, alias="stage")
    _call: Callable[[str, Mapping[str, object]], Awaitable[ToolReturn]] = attrs.field(
        default=_alone_async, alias="call"
    )
    _start_service: Callable[[ServiceBody], Awaitable[object]] = attrs.field(
        default=_alone_async, alias="start_service"
    )
    spill: Callable[[str], str] | None = None
    """Keeps a text that is too long for a result and returns its name; given by the loop."""
    attach: Callable[[Attachment, bytes], None] | None = None
    """Keeps the bytes of a picture beside the log; given by the loop."""

    def progress(self, text: str) -> None:
        """Tell whoever watches how far the call is. Not logged. May be called from the tool's thread."""
        _on_trio(self._progress, text)

    def stage(self, message: UserMessage | str) -> None:
        """Add a message for the model's next step, beside the result. May be called from the tool's thread.

        What a service, or a task that the call left behind, adds after the result waits for the agent's next step and
        wakes nobody, as with `Agent.inject`.

        Raises:
            UsageError: the call is over, and this is its thread, which was left to itself; or the context was made by
                hand.
            AgentClosedError: the agent is being disposed, and the call is over.
        """
        if not isinstance(message, UserMessage):
            source = PluginSource(plugin=f"tool:{self.name}", form="notice")
            message = UserMessage.from_text(message, source=source)
        _on_trio(self._stage, message)

    async def call(self, name: str, arguments: Mapping[str, object] | None = None) -> ToolReturn:
        """Call another tool that this agent has, through the same hooks and restrictions. A checkpoint.

        From the tool's thread: `trio.from_thread.run(context.call, name, arguments)`.

        Args:
            name: the tool.
            arguments: its arguments, as JSON values.

        Returns:
            Its result, which may be an error result (`is_error`).
        """
        return await self._call(name, {} if arguments is None else arguments)

    async def start_service(self, fn: ServiceBody) -> object:
        """Start a task that outlives this call, in the agent's scope. A checkpoint.

        Args:
            fn: an async function that takes `task_status` and calls `task_status.started(value)`.

        Returns:
            The value that it gave to `started`.
        """
        return await self._start_service(fn)


def _on_trio(fn: Callable[[_T], object], argument: _T) -> None:
    """Call `fn` on the Trio thread: a plain tool runs in a thread of its own."""
    if trio.lowlevel.in_trio_run():
        fn(argument)
    else:
        trio.from_thread.run_sync(fn, argument)
