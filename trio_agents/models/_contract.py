"""The seam between agents and providers of models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import attrs

from ..session._events import ToolSpec
from ..values._chunks import Chunk
from ..values._messages import Attachment, Message

AttachmentReader: TypeAlias = Callable[[Attachment], Awaitable[bytes]]
"""Gives the bytes that an attachment in a message stands for."""


@attrs.frozen(kw_only=True)
class ModelRequest:
    """One request to a model: a pure function of the session's log.

    Attributes:
        provider: the adapter's name, the part before the slash of `provider/model`.
        model: the model's name at that provider.
        messages: the conversation, oldest first.
        system: the system prompt, or None.
        tools: the tools on offer, in order.
        max_tokens: cap on the tokens of the answer; like every setting, None leaves it to the provider.
        effort: reasoning effort, in the provider's own words.
        temperature: sampling temperature.
        stop: texts at which the model stops.
        session_id: where in the log the request belongs, for tracing and caching.
        turn: likewise, the turn.
        step: likewise, the step.
        attempt: which attempt of the step it is, from 1.
        read_attachment: gives the bytes of the attachments in `messages`; no part of the request's identity.
    """

    provider: str
    model: str
    messages: Sequence[Message]
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    effort: str | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    session_id: str = ""
    turn: int = 1
    step: int = 1
    attempt: int = 1
    read_attachment: AttachmentReader | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class ModelInfo:
    """What an adapter knows of one of its models.

    Attributes:
        context_window: tokens that fit into a request and its answer, or None if unknown.
        default_max_tokens: the output cap that the adapter uses where none is asked for, or None.
        default_effort: likewise for the reasoning effort.
    """

    context_window: int | None = None
    default_max_tokens: int | None = None
    default_effort: str | None = None


class ModelAdapter(Protocol):
    """A way to one provider's models. Adapters hold no agent and no session."""

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`; unique in a runtime."""
        ...

    async def info(self, model: str) -> ModelInfo:
        """What is known of a model. Asked once for all agents of a runtime; a refusal is asked again.

        Raises:
            ModelError: there is no such model (`UNKNOWN_MODEL`), or it cannot be asked.
        """
        ...

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Send the request and push the answer's chunks, in order, as they come.

        `emit` is synchronous and may raise; the call then ends with that error. The last chunk is a `Finish`.
        The caller's cancel scope is the only bound: cancelling it must close the connection before returning.

        Raises:
            ModelError: the request failed, before or during the answer.
        """
        ...
