"""One tool call: how far it has come, and what it ends with if it does not end by itself."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple, final

import trio

from ..agent._layer import Offer
from ..errors import SessionLogError, ToolArgumentsError
from ..tools import ToolReturn
from ..values import Attachment, ToolCallBlock, UserMessage


class Stage(enum.Enum):
    """How far a call has come."""

    NEW = "nothing logged"
    CALLED = "tool/call logged"
    STARTED = "body running, or about to"
    DONE = "result known"
    COMMITTED = "tool/result logged"


def failed(text: str, name: str, code: str) -> ToolReturn:
    """An error result of ours."""
    return ToolReturn.failed(text, name=name, code=code)


ABORTED: Final = failed("The call was cancelled while it ran.", "AbortError", "ABORTED")
BEFORE_DISPATCH: Final = failed(
    "The call was cancelled before it ran.", "AbortError", "ABORTED_BEFORE_DISPATCH"
)
UNLOADED: Final = failed(
    "The tool was removed; the call did not complete.", "ToolUnloadedError", "TOOL_UNLOADED"
)
NOT_STARTED: Final = failed(
    "The call did not run; it may be made again.", "ToolNotStartedError", "TOOL_NOT_STARTED"
)
OUTCOME_UNKNOWN: Final = failed(
    "It is not known whether the call had its effect. Find out before making it again.",
    "ToolOutcomeUnknownError",
    "TOOL_OUTCOME_UNKNOWN",
)


@final
class Body:
    """A body at work, as the registration of its tool sees it: it can be ended, and waited for."""

    __slots__ = ("_over", "scope", "verdict")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.verdict: ToolReturn | None = None  # what the call ends with if the body's own scope is cancelled
        self._over: trio.Event | None = None

    def end(self, verdict: ToolReturn) -> None:
        """Cancel the body; the first verdict counts."""
        if self.verdict is None:
            self.verdict = verdict
        self.scope.cancel(reason=verdict.error.code if verdict.error else None)

    def unload(self) -> None:
        """The owner of its tool is closing."""
        self.end(UNLOADED)

    async def over(self) -> None:
        """Wait until the body has ended."""
        if self._over is None:
            self._over = trio.Event()
        await self._over.wait()

    def note_over(self) -> None:
        """The body has ended."""
        if self._over is not None:
            self._over.set()


class Kept(NamedTuple):
    """Bytes that a result refers to; see `Call.keep`."""

    attachment: Attachment
    data: bytes
    note: str


@final
class Call:
    """One call of one step."""

    __slots__ = (
        "arguments", "block", "body", "broken", "contexts", "fault", "kept", "nested", "offer", "result", "seq", "stage",
    )  # fmt: skip

    def __init__(self, block: ToolCallBlock, offer: Offer | None) -> None:
        self.block = block
        self.offer = offer
        self.arguments: Mapping[str, object] | None = None
        self.fault: ToolArgumentsError | None = None
        self.broken: SessionLogError | None = None  # a barrier failed: not the tool's failure
        self.stage = Stage.NEW
        self.seq: int | None = None
        self.result: ToolReturn | None = None
        self.contexts: list[UserMessage] | None = None
        self.kept: list[Kept] | None = None  # what its result refers to, not yet stored
        self.nested = 0
        self.body: Body | None = None
        if offer is not None:
            try:
                self.arguments = offer.tool.parse(block.arguments)
            except ToolArgumentsError as exc:
                self.fault = exc

    @property
    def is_parallel(self) -> bool:
        """Whether it may run beside its neighbours; whatever is unclear runs alone."""
        return (
            self.offer is not None
            and self.arguments is not None
            and self.offer.tool.is_parallel(self.arguments)
        )

    @property
    def is_abandoned(self) -> bool:
        """Whether a cancelled body may still be at work, in a thread that was left to itself."""
        return self.stage is Stage.STARTED and self.may_be_abandoned

    @property
    def may_be_abandoned(self) -> bool:
        """Whether a cancel leaves its thread to itself."""
        return self.offer is not None and self.offer.tool.is_threaded and self.offer.tool.abandon_on_cancel

    @property
    def is_running(self) -> bool:
        """Whether its body, or the chain around it, is at work."""
        return self.body is not None and self.stage in {Stage.CALLED, Stage.STARTED}

    def end(self, verdict: ToolReturn) -> bool:
        """Cancel the body; False if it is not running."""
        if self.body is None or not self.is_running:
            return False
        self.body.end(verdict)
        return True

    def stage_context(self, message: UserMessage) -> None:
        """Keep a message for the next step, until the result is committed."""
        if self.contexts is None:
            self.contexts = []
        self.contexts.append(message)

    def keep(self, attachment: Attachment, data: bytes, *, note: str = "") -> None:
        """Keep bytes that the result will refer to, until they are stored.

        Args:
            attachment: what stands for them.
            data: the bytes.
            note: what the result's text says of them, if that is all: then it can do without them.
        """
        if self.kept is None:
            self.kept = []
        self.kept.append(Kept(attachment, data, note))
