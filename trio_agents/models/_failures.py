"""From what a provider says of a failure to a `ModelError` with a stable code. Nothing here says a secret."""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Final, final

from ..errors import ModelError
from ..values._json import JsonValue, load_json

_QUOTA: Final = (
    "insufficient_quota",
    "exceeded your current quota",
    "billing",
    "credit balance",
    "insufficient balance",
    "insufficient_balance",
    "insufficient credits",
    "payment required",
)
_OVERFLOW: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "context size",
    "context limit",
    "maximum prompt length",
    "maximum number of tokens allowed",
    "exceed_context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
)
_IN_BAND: Final = (
    ("RATE_LIMIT", ("rate_limit", "rate limit", "too many requests")),
    ("AUTH", ("authentication", "permission", "unauthorized", "invalid_api_key")),
    ("INVALID_REQUEST", ("invalid_request", "invalid_prompt", "bad_request")),
    ("TIMEOUT", ("timeout", "timed out")),
    (
        "SERVER",
        ("server", "overloaded", "api_error", "internal", "unavailable", "insufficient_system_resource"),
    ),
)
_BY_STATUS: Final = {
    400: "INVALID_REQUEST",
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    408: "TIMEOUT",
    413: "INVALID_REQUEST",
    429: "RATE_LIMIT",
}
_REQUEST_IDS: Final = ("x-request-id", "request-id", "x-amzn-requestid")
_SECRET: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=~-]{6,}|\b(?:sk|pk|key)-[\w*-]{8,}")
_LEAST: Final = 4
"""Characters of the shortest secret: to take out less would garble texts."""
_APART: Final = re.compile(r"[\s;,]+|=(?=.)")
_EXCERPT: Final = 400
"""Characters of what a provider says that are shown."""
_WINDOW: Final = 16 * 1024
"""Characters of it that are looked at."""


@final
class Redactor:
    """Takes secrets out of text: those that it was told of, and what looks like one."""

    __slots__ = ("_longest", "_secrets")

    def __init__(self, secrets: Iterable[str]) -> None:
        whole = {secret for secret in secrets if len(secret) >= _LEAST}
        # A key without the word before it, a cookie without its name.
        plain = whole | {part for secret in whole for part in _APART.split(secret) if len(part) >= _LEAST * 2}
        known = plain | {urllib.parse.quote(secret, safe="") for secret in plain}
        # The longest first: one secret may be a part of another.
        self._secrets = sorted(known, key=len, reverse=True)
        self._longest = max(map(len, known), default=0)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _SECRET.sub("***", text)

    def excerpt(self, text: str, most: int = _EXCERPT) -> str:
        """The beginning of the text without them, on one line. It is cut last: half a secret is not recognized."""
        clean = self(" ".join(text[:_WINDOW].split()))
        if len(text) > _WINDOW:
            clean = clean[: max(len(clean) - self._longest, 0)]
        return clean if len(clean) <= most else clean[:most] + "..."

    def cause(self, error: Exception) -> Exception | None:
        """The error itself if it may stand behind another as its cause, or None if its text has a secret.

        It loses its frames, and so do those behind it: their locals hold the request, headers and all.
        """
        seen: BaseException | None = error
        for _ in range(20):
            if seen is None:
                return error
            seen.__traceback__ = None
            text = str(seen)
            if self(text) != text:
                return None
            seen = seen.__cause__ or seen.__context__
        return None


def error_from_response(
    who: str, status: int, headers: Mapping[str, str], body: bytes, redact: Redactor
) -> ModelError:
    """The error that an HTTP response with this status and body stands for."""
    facts = _facts(body)
    detail = redact.excerpt(facts.message or body.decode("utf-8", "replace")) or _unexplained(status)
    return ModelError(
        redact(f"{who} answered with HTTP {status}: {detail}"),
        code=_code(status, facts),
        status=status if 100 <= status <= 599 else None,
        retry_after_ms=retry_after_ms(headers),
        request_id=request_id(headers, redact) or _clean(facts.request_id, redact),
    )


def _unexplained(status: int) -> str:
    return "a redirect, and requests with a key are not sent on" if 300 <= status < 400 else "no explanation"


def error_from_event(who: str, error: JsonValue, redact: Redactor) -> ModelError:
    """The error that a provider reports inside a stream that had begun well."""
    facts = _read(error)
    status = facts.status
    return ModelError(
        redact(f"{who} broke off its answer: {redact.excerpt(facts.message) or 'no explanation'}"),
        code=_code(status, facts),
        status=status,
        request_id=_clean(facts.request_id, redact),
    )


def retry_after_ms(headers: Mapping[str, str]) -> float | None:
    """How long a provider asks to wait: milliseconds, seconds or a date; None if it does not, or not sensibly."""
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return exact
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds * 1000
    if value is None or value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        return None
    from email.utils import parsedate_to_datetime  # slow to import, and seldom needed

    try:
        wait = parsedate_to_datetime(value).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return wait * 1000 if wait > 0 else None


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def request_id(headers: Mapping[str, str], redact: Redactor) -> str | None:
    """The provider's name for a request, out of the headers of its response."""
    for name in _REQUEST_IDS:
        value = headers.get(name)
        if value:
            return _clean(value, redact)
    return None


def _clean(text: str | None, redact: Redactor) -> str | None:
    return None if text is None else redact(text)


class _Facts:
    """What the body of an error says, in whichever of the common shapes."""

    __slots__ = ("message", "request_id", "status", "words")

    def __init__(self, message: str, words: str, status: int | None, request_id: str | None) -> None:
        self.message = message
        self.words = words.lower()
        self.status = status
        self.request_id = request_id


def _facts(body: bytes) -> _Facts:
    try:
        return _read(load_json(body))
    except ValueError:
        return _Facts("", body[:_WINDOW].decode("utf-8", "replace"), None, None)


def _read(value: JsonValue) -> _Facts:
    """Read `{"error": {...}}`, `{"error": "text"}`, `{"message": ...}`, `{"detail": ...}`, or the inner object."""
    request_id = None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict):
        outer = value.get("request_id")
        request_id = outer if isinstance(outer, str) and outer else None
        value = value.get("error", value)
    if isinstance(value, str):
        return _Facts(value, value, None, request_id)
    if not isinstance(value, dict):
        return _Facts("", "", None, request_id)
    message = value.get("message") or value.get("detail") or value.get("msg") or ""
    if not isinstance(message, str):
        message = str(message)
    kind, code = value.get("type"), value.get("code")
    status = code if type(code) is int and 100 <= code <= 599 else None
    return _Facts(message, f"{kind} {code} {message}", status, request_id)


def _code(status: int | None, facts: _Facts) -> str:
    """The stable code. Quota wording counts before the status, wording about the context only for 400 and in band."""
    words = facts.words
    if any(phrase in words for phrase in _QUOTA):
        return "QUOTA"
    if status in {None, 400} and any(phrase in words for phrase in _OVERFLOW):
        return "CONTEXT_WINDOW_EXCEEDED"
    if status is None:
        return next(
            (code for code, phrases in _IN_BAND if any(phrase in words for phrase in phrases)), "UNKNOWN"
        )
    if status == 404 and ("model_not_found" in words or ("model" in words and "not" in words)):
        return "UNKNOWN_MODEL"
    if status >= 500:
        return "SERVER"
    return _BY_STATUS.get(status, f"HTTP_{status}")
