"""The deadlines of one request: which one is running, and what its passing means."""

from __future__ import annotations

import math
from typing import Final, final

import attrs
import trio

from ..errors import ModelError, UsageError

_EPILOGUE: Final = 5.0
"""Seconds that are granted after the last content: some servers never say that they are done."""
_SLACK: Final = 0.01
"""The share of a silence by which its end may be late."""


@final
@attrs.frozen(kw_only=True)
class Deadlines:
    """Seconds; None is without a bound.

    Attributes:
        connect: until a connection stands.
        first_byte: from the request to the first event that tells something.
        silence: between two such events.
        total: for the whole request.
    """

    connect: float | None
    first_byte: float | None
    silence: float | None
    total: float | None

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if value is not None and not (type(value) in {int, float} and 0 < value < math.inf):
                raise UsageError(f"{name}_timeout is a positive number of seconds or None, not {value!r}")


@final
class Watch:
    """Holds the deadlines of one request: which one is running, and what its passing means."""

    def __init__(self, who: str, deadlines: Deadlines) -> None:
        self._who = who
        self._silence = math.inf if deadlines.silence is None else deadlines.silence
        now = trio.current_time()
        self._end = now + (math.inf if deadlines.total is None else deadlines.total)
        first = now + (math.inf if deadlines.first_byte is None else deadlines.first_byte)
        self._deadlines = deadlines
        self._started = False
        self._is_moved = False
        self._is_ending = False
        self.request_id: str | None = None
        self.scope = trio.CancelScope(deadline=min(first, self._end))

    def progress(self) -> None:
        """Something was told, and has been handed over: the silence is measured from now."""
        self._started = True
        now = trio.current_time()
        # Moving a deadline costs as much as reading a chunk: it is set a little late, and then left for a while.
        if self.scope.deadline < min(now + self._silence, self._end) or not self._is_moved:
            self._is_moved = True
            self.scope.deadline = min(now + self._silence * (1 + _SLACK), self._end)

    def ending(self) -> None:
        """The answer is complete: what may still follow is not worth a long wait, however often something does."""
        if not self._is_ending:
            self._is_ending = self._started = True
            self.scope.deadline = min(trio.current_time() + min(_EPILOGUE, self._silence), self._end)

    def done(self) -> None:
        """Nothing more is waited for."""
        self.scope.deadline = math.inf

    def connect_timeout(self) -> ModelError:
        """The error of a connection that did not come to be."""
        return ModelError(
            f"no connection to {self._who} within {self._deadlines.connect:g} s", code="TIMEOUT"
        )

    def timeout(self) -> ModelError:
        """The error of the deadline that has passed."""
        if self.scope.deadline >= self._end:
            text = f"the answer of {self._who} was not complete within {self._deadlines.total:g} s"
        elif self._started:
            text = f"{self._who} fell silent for {self._deadlines.silence:g} s in the middle of its answer"
        else:
            text = f"{self._who} did not begin to answer within {self._deadlines.first_byte:g} s"
        return ModelError(text, code="TIMEOUT", request_id=self.request_id)
