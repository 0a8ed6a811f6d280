"""The cancellable work of one turn, or of one maintenance job."""

from __future__ import annotations

from typing import final

import trio

from ..values import CancelCause


@final
class Activity:
    """One stretch of cancellable work. The first cause counts; one plain cancel makes it plain for good.

    It exists from the wake on, and its cancel scope from when either side first asks for it: so a cancel that comes
    before the driver task first runs is not lost.
    """

    __slots__ = ("_scope", "cause", "is_plain")

    def __init__(self) -> None:
        self._scope: trio.CancelScope | None = None
        self.cause: CancelCause | None = None
        self.is_plain = False

    @property
    def scope(self) -> trio.CancelScope:
        """What the work runs in; always the same one."""
        scope = self._scope
        if scope is None:
            scope = self._scope = trio.CancelScope()
        return scope

    @property
    def is_cancelled(self) -> bool:
        """Whether a cancel was recorded."""
        return self.cause is not None

    def record(self, cause: CancelCause, *, plain: bool) -> None:
        """Note a cancel; the scope is cancelled separately, when the inbox has followed."""
        if self.cause is None:
            self.cause = cause
        self.is_plain = self.is_plain or plain
