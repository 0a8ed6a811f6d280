"""What providers say of failures, and the codes that it stands for."""

from __future__ import annotations

import email.utils
import json
import time

import pytest

from trio_agents.models._failures import (
    Redactor,
    error_from_event,
    error_from_response,
    request_id,
    retry_after_ms,
)

NO_SECRETS = Redactor([])


def said(message: str, code: str = "", kind: str = "") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, said("bad key"), "AUTH"),
        (403, said("no access"), "AUTH"),
        (402, said("pay"), "QUOTA"),
        (429, said("slow down"), "RATE_LIMIT"),
        (429, said("You exceeded your current quota"), "QUOTA"),
        (429, said("x", code="insufficient_quota"), "QUOTA"),
        (400, said("Your credit balance is too low"), "QUOTA"),
        (429, said("Quota exceeded for requests per minute"), "RATE_LIMIT"),
        (500, said("oops"), "SERVER"),
        (503, b"<html>down</html>", "SERVER"),
        (529, said("overloaded"), "SERVER"),
        (400, said("bad field"), "INVALID_REQUEST"),
        (413, said("too large"), "INVALID_REQUEST"),
        (400, said("x", code="context_length_exceeded"), "CONTEXT_WINDOW_EXCEEDED"),
        (400, said("prompt is too long: 210000 tokens > 200000 maximum"), "CONTEXT_WINDOW_EXCEEDED"),
        (
            400,
            said("input length and `max_tokens` exceed context limit: 9 + 8 > 10"),
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (
            400,
            said("This model's maximum prompt length is 8 but the request contains 9 tokens"),
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (
            400,
            said("The input token count (9) exceeds the maximum number of tokens allowed (8)."),
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (413, said("the context window is full"), "INVALID_REQUEST"),
        (429, said("too many tokens per minute"), "RATE_LIMIT"),
        (404, said("The model `x` does not exist", code="model_not_found"), "UNKNOWN_MODEL"),
        (404, b"not found", "HTTP_404"),
        (408, b"", "TIMEOUT"),
        (418, b"", "HTTP_418"),
        (302, b"", "HTTP_302"),
    ],
)
def test_codes_of_statuses(status: int, body: bytes, code: str) -> None:
    error = error_from_response("openai", status, {}, body, NO_SECRETS)
    assert (error.code, error.status) == (code, status)
    assert f"HTTP {status}" in str(error)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "inner"}}', "inner"),
        (b'{"error": "plain"}', "plain"),
        (b'{"message": "outer"}', "outer"),
        (b'{"detail": [{"msg": "field"}]}', "[{'msg': 'field'}]"),
        (b'[{"error": {"message": "listed"}}]', "listed"),
        (b'"text"', "text"),
        (b"  <h1>Bad\n gateway</h1> ", "<h1>Bad gateway</h1>"),
        (b"", "no explanation"),
        (b"[]", "[]"),
        (b"\xff" * 3000, "\ufffd" * 400 + "..."),
    ],
)
def test_texts_of_bodies(body: bytes, text: str) -> None:
    assert str(error_from_response("p", 500, {}, body, NO_SECRETS)) == f"p answered with HTTP 500: {text}"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3000.0),
        ({"retry-after": "0.5"}, 500.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 250.0),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9000.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after_ms(headers) == wait


def test_retry_after_may_be_a_date() -> None:
    date = email.utils.formatdate(time.time() + 120, usegmt=True)
    wait = retry_after_ms({"retry-after": date})
    assert wait is not None
    assert 100_000 < wait <= 120_000


def test_request_ids() -> None:
    assert request_id({"x-request-id": "", "request-id": "r"}, NO_SECRETS) == "r"
    body = b'{"type": "error", "error": {"message": "m"}, "request_id": "from-body"}'
    assert error_from_response("p", 500, {}, body, NO_SECRETS).request_id == "from-body"
    assert error_from_response("p", 500, {"x-request-id": "h"}, body, NO_SECRETS).request_id == "h"
    assert error_from_response("p", 500, {}, b"", NO_SECRETS).request_id is None


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ({"type": "overloaded_error", "message": "busy"}, "SERVER", None),
        ({"type": "rate_limit_error", "message": "slow"}, "RATE_LIMIT", None),
        ({"message": "This model's maximum context length is 5"}, "CONTEXT_WINDOW_EXCEEDED", None),
        ({"message": "upstream", "code": 502}, "SERVER", 502),
        ({"message": "bad", "code": 429}, "RATE_LIMIT", 429),
        ({"type": "invalid_request_error"}, "INVALID_REQUEST", None),
        ({"code": "insufficient_quota"}, "QUOTA", None),
        ({"type": "authentication_error"}, "AUTH", None),
        ({"message": "the request timed out"}, "TIMEOUT", None),
        ("broken", "UNKNOWN", None),
        (None, "UNKNOWN", None),
    ],
)
def test_failures_inside_a_stream(error: object, code: str, status: int | None) -> None:
    failure = error_from_event("p", error, NO_SECRETS)  # type: ignore[arg-type]
    assert (failure.code, failure.status) == (code, status)
    assert str(failure).startswith("p broke off its answer: ")


# --- secrets ----------------------------------------------------------------------------------------


def test_secrets_are_taken_out() -> None:
    """ERR-10."""
    redact = Redactor(["hunter2-key", "hunter2-key-and-more", "abc"])
    assert redact("x hunter2-key-and-more y hunter2-key z abc") == "x *** y *** z abc"
    assert redact("Authorization: Bearer abcdef123") == "Authorization: ***"
    assert redact("Incorrect key sk-proj-abcDEF123_456 given") == "Incorrect key *** given"
    assert redact("a bearer of news") == "a bearer of news"
    error = error_from_response("p", 401, {}, said("wrong key: hunter2-key"), redact)
    assert "hunter2" not in str(error)


def test_a_cause_that_says_a_secret_is_no_cause() -> None:
    """ERR-8 joins the texts of causes, ERR-10 keeps keys out of them."""
    redact = Redactor(["hunter2-key"])
    inner = ValueError("illegal header value b'hunter2-key'")
    outer = OSError("failed")
    outer.__context__ = inner
    harmless = OSError("refused")
    assert redact.cause(inner) is None
    assert redact.cause(outer) is None
    assert redact.cause(harmless) is harmless
    circle = OSError("a")
    circle.__context__ = OSError("b")
    circle.__context__.__context__ = circle
    assert redact.cause(circle) is None
