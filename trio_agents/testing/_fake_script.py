"""What a fake provider can be told to answer: a reply, whole or disturbed, or an HTTP error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, final

import attrs

from ..errors import UsageError
from ..models import Reply
from ..values._json import JsonValue

Disturbance: TypeAlias = Literal["reset", "stall", "end", "garbage", "keep-alive", "error"]


@final
@attrs.frozen(kw_only=True)
class ProviderRequest:
    """A request that a fake provider has received.

    Attributes:
        method: as it came.
        path: likewise.
        headers: names in lower case.
        body: its JSON, or None if it is none.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: JsonValue


@final
@attrs.frozen
class Broken:
    """A reply that breaks after some events of its protocol.

    `how`: `reset` breaks the connection, `stall` sends nothing more, `keep-alive` sends nothing but comments for
    ever, `end` ends the response properly but without the protocol's last words, `garbage` sends an event that
    is no JSON, `error` one that reports a failure of the server.
    """

    reply: Reply
    after: int = attrs.field(kw_only=True, default=0)
    how: Disturbance = attrs.field(kw_only=True, default="reset")


@final
@attrs.frozen
class Dripped:
    """A reply that comes in pieces of a few bytes, without regard for lines and characters."""

    reply: Reply
    size: int = attrs.field(kw_only=True, default=1)
    seconds: float = attrs.field(kw_only=True, default=0.0)


@final
@attrs.frozen(kw_only=True)
class Status:
    """An HTTP error.

    Attributes:
        status: the status code.
        message: what the body says.
        code: the body's code or type, in the provider's terms.
        retry_after: the header of that name.
        request_id: the provider's name for the request.
        raw: a whole body instead, as it stands.
        content_type: of the body.
    """

    status: int
    message: str = "scripted failure"
    code: str = ""
    retry_after: str | None = None
    request_id: str | None = None
    raw: bytes | None = None
    content_type: str = "application/json"


@final
@attrs.frozen
class Reset:
    """The connection breaks before a response begins."""


CONTEXT_OVERFLOW = Status(
    status=400,
    message="This model's maximum context length is 8192 tokens, but the messages are longer.",
    code="context_length_exceeded",
)
"""What a provider says of a conversation that does not fit."""

ProviderReply: TypeAlias = "Reply | str | Broken | Dripped | Status | Reset"
"""An entry of a fake provider's script; a text stands for `Reply.text`."""

ProviderAnswer: TypeAlias = "ProviderReply | Callable[[ProviderRequest], ProviderReply]"
"""An entry, or a function of the request that gives one."""


def as_provider_reply(answer: object) -> Reply | Broken | Dripped | Status | Reset:
    """The entry that an answer stands for.

    Raises:
        UsageError: it is none.
    """
    if isinstance(answer, str):
        return Reply.text(answer)
    if isinstance(answer, Reply | Broken | Dripped | Status | Reset):
        return answer
    raise UsageError(f"a fake provider's script is made of replies and faults, not {answer!r}")
