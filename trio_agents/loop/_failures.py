"""From exceptions to the facts that the log keeps of them."""

from __future__ import annotations

import math
from typing import Final, final

from msgspec import UNSET

from ..errors import ModelError
from ..values import LlmFailure
from ..values._describe import describe

UNKNOWN: Final = "UNKNOWN"


@final
class RequestError(Exception):
    """Carries the failure of a request that nobody wanted to retry out of its step."""

    def __init__(self, failure: LlmFailure, error: BaseException | None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.error = error


def failure_of(exc: BaseException) -> LlmFailure:
    """The facts of an exception: the provider's, if it says so itself, else the text of its chain."""
    if isinstance(exc, RequestError):
        return exc.failure
    if isinstance(exc, ModelError):
        wait = exc.retry_after_ms
        return LlmFailure(
            message=describe(exc),
            code=exc.code or UNKNOWN,
            status=UNSET if exc.status is None or not 100 <= exc.status <= 599 else exc.status,
            provider_retry_after_ms=UNSET if wait is None or not 0 < wait < math.inf else wait,
            request_id=exc.request_id or UNSET,
        )
    return LlmFailure(message=describe(exc), code=UNKNOWN)
