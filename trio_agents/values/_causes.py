"""Why a turn was cancelled, and how turns end."""

from __future__ import annotations

from typing import Any, ClassVar, final

from msgspec import Struct

from ..errors import UsageError
from ._chunks import LlmFailure
from ._json import Foreign, FrozenJson, OpenUnion

# --- causes of a cancel ---------------------------------------------------------------------------


class CancelCause(OpenUnion):
    """Why an agent's work was cancelled: `BY_USER`, `BY_PARENT`, `ByHook(reason=...)` or `DISPOSED`."""

    __slots__ = ()
    tag_field = "kind"
    members: ClassVar[dict[str, type[Any]]] = {}

    @property
    def kind(self) -> str:
        """The kind as it stands in the log."""
        return self.tag


@final
class ByUser(
    CancelCause, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="user", forbid_unknown_fields=True,
):  # fmt: skip
    """A person, or the program on their behalf."""


@final
class ByParent(
    CancelCause, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="parent", forbid_unknown_fields=True,
):  # fmt: skip
    """The agent that delegated this work was cancelled."""


@final
class ByHook(
    CancelCause, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="hook", forbid_unknown_fields=True,
):  # fmt: skip
    """A hook; it says why."""

    reason: str

    def __post_init__(self) -> None:
        if type(self.reason) is not str or not self.reason:
            raise UsageError(f"a hook's cancel needs a reason, a non-empty string, not {self.reason!r}")


@final
class Disposed(
    CancelCause, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="disposed", forbid_unknown_fields=True,
):  # fmt: skip
    """The agent was ended while it was at work."""


@final
class ForeignCause(Foreign, CancelCause):
    """A cause that can be read but not given: `legacy`, or one of another program; kept as it was."""

    __slots__ = ()


CancelCause.members = {"user": ByUser, "parent": ByParent, "hook": ByHook, "disposed": Disposed}
CancelCause.foreign = ForeignCause

BY_USER = ByUser()
BY_PARENT = ByParent()
DISPOSED = Disposed()
LEGACY = ForeignCause("legacy", FrozenJson(b'{"kind":"legacy"}'))

# --- ends of a turn -------------------------------------------------------------------------------


class TurnEndReason(OpenUnion):
    """How a turn ended. Kinds that are not known here are kept as `ForeignEnd` and never read as success."""

    __slots__ = ()
    tag_field = "kind"
    members: ClassVar[dict[str, type[Any]]] = {}

    @property
    def kind(self) -> str:
        """The kind as it stands in the log, such as `completed` or `max-tokens`."""
        return self.tag


@final
class Completed(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="completed", forbid_unknown_fields=True,
):  # fmt: skip
    """The turn did what it was asked, or there was nothing left to do."""


@final
class Aborted(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="aborted", forbid_unknown_fields=True,
):  # fmt: skip
    """A cancel hit the turn; `reason` is the first cause."""

    reason: CancelCause

    def __post_init__(self) -> None:
        if not isinstance(self.reason, CancelCause):
            raise UsageError(f"an aborted turn has a CancelCause, not {self.reason!r}")


@final
class Blocked(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="blocked", forbid_unknown_fields=True,
):  # fmt: skip
    """A `PreStep` listener rejected the input."""


@final
class Failed(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="error", forbid_unknown_fields=True,
):  # fmt: skip
    """The turn failed; `error` has the facts."""

    error: LlmFailure

    def __post_init__(self) -> None:
        if not isinstance(self.error, LlmFailure):
            raise UsageError(f"a failed turn has an LlmFailure, not {self.error!r}")


@final
class HitMaxTokens(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="max-tokens", forbid_unknown_fields=True,
):  # fmt: skip
    """A step of the turn hit the output cap."""


@final
class Refusal(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="refusal", forbid_unknown_fields=True,
):  # fmt: skip
    """The provider declined to answer."""


@final
class HitMaxRequests(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="max-turn-requests", forbid_unknown_fields=True,
):  # fmt: skip
    """A cap of ours on steps or requests ended the turn with more to do."""


@final
class Interrupted(
    TurnEndReason, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="interrupted", forbid_unknown_fields=True,
):  # fmt: skip
    """The process died in the turn; only recovery writes this."""


@final
class ForeignEnd(Foreign, TurnEndReason):
    """An end that this version does not know; kept as it was."""

    __slots__ = ()


TurnEndReason.members = {
    "completed": Completed,
    "aborted": Aborted,
    "blocked": Blocked,
    "error": Failed,
    "max-tokens": HitMaxTokens,
    "refusal": Refusal,
    "max-turn-requests": HitMaxRequests,
    "interrupted": Interrupted,
}
TurnEndReason.foreign = ForeignEnd

COMPLETED = Completed()
BLOCKED = Blocked()
MAX_TOKENS = HitMaxTokens()
REFUSAL = Refusal()
MAX_TURN_REQUESTS = HitMaxRequests()
INTERRUPTED = Interrupted()
