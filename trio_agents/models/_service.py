"""A provider that is spoken to over HTTP: what the adapters of all protocols hold, and do alike."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from ..errors import ModelError, UsageError
from ..values._chunks import Chunk
from ..values._json import JsonValue
from ..values._messages import Message
from ._contract import AttachmentReader, ModelInfo, ModelRequest
from ._deadlines import Deadlines
from ._failures import Redactor
from ._history import Entry, project
from ._http import Endpoint
from ._reading import Reader
from ._rendering import ImageCache, Images, encode_body, load_images

if TYPE_CHECKING:
    import httpx2

logger: Final = logging.getLogger("trio_agents")

MakeReader = Callable[[str, Callable[[Chunk], None], Redactor], Reader]
"""Makes the reader of one answer: for which provider, where to, and what takes secrets out of texts."""


@final
@attrs.frozen(kw_only=True)
class Dialect:
    """Where a protocol's public endpoint is, and how it wants to be asked.

    Attributes:
        adapter: the adapter's class, for texts.
        public_url: the endpoint where nothing else is said.
        url_variable, key_variable: what the environment calls another one, and the key.
        path: below the base URL, where requests go.
        key_header: what carries the key.
        key_prefix: what stands before it there.
        headers: sent with every request.
        clean_id: makes the id of a tool call one that the protocol allows.
    """

    adapter: str
    public_url: str
    url_variable: str
    key_variable: str
    path: str
    key_header: str
    key_prefix: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    clean_id: Callable[[str], str] = str


@final
class Service:
    """One provider: its name, its key, its endpoint, and what is known of its models."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        api_key: str | None,
        base_url: str | None,
        provider: str,
        headers: Mapping[str, str] | None,
        client: httpx2.AsyncClient | None,
        models: Mapping[str, ModelInfo] | None,
        read_attachment: AttachmentReader | None,
        extra_body: Mapping[str, JsonValue] | None,
        deadlines: Deadlines,
        max_connections: int,
        unknown: ModelInfo = ModelInfo(),  # noqa: B008 - an immutable value
    ) -> None:
        """Take what every adapter is given; no connection is made yet. `unknown` is said of models without an entry.

        Raises:
            UsageError: httpx2 is missing, or an argument cannot be right.
        """
        _load_httpx2(dialect.adapter)
        url = base_url or os.environ.get(dialect.url_variable) or dialect.public_url
        key = _secret(provider, api_key, dialect.key_variable)
        self._dialect = dialect
        self.provider: Final[str] = provider
        self.is_public: Final[bool] = url.rstrip("/") == dialect.public_url
        """Whether it is the protocol's own endpoint, which needs a key and knows every field."""
        self._needs_key = key is None and self.is_public and client is None
        self._models = dict(models or {})
        self._unknown = unknown
        self._read_attachment = read_attachment
        self._images = ImageCache()
        self._warned: set[str] = set()
        self._extra_body = dict(extra_body or {})
        self._endpoint = Endpoint(
            who=provider,
            base_url=url,
            headers={**dialect.headers, **(headers or {})},
            secrets={} if key is None else {dialect.key_header: dialect.key_prefix + key},
            deadlines=deadlines,
            client=client,
            max_connections=max_connections,
        )

    def __repr__(self) -> str:
        return f"{self._dialect.adapter}(provider={self.provider!r}, base_url={self._endpoint.shown_url!r})"

    async def info(self, model: str) -> ModelInfo:
        """What it was told of a model. A checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._models.get(model, self._unknown)

    async def aclose(self) -> None:
        """Close the connections of its own client. A checkpoint."""
        await self._endpoint.aclose()

    async def prepare(self, request: ModelRequest) -> tuple[list[Entry], Images]:  # noqa: ASYNC910
        """The conversation as the provider may see it, and the images in it. A checkpoint only if there are any.

        Raises:
            ModelError: there is no key (`MISSING_CREDENTIAL`), or the conversation cannot be sent.
        """
        if self._needs_key:
            raise ModelError(
                f"{self.provider} needs an API key: set {self._dialect.key_variable}, or give api_key=",
                code="MISSING_CREDENTIAL",
            )
        entries = project(
            request.messages,
            provider=request.provider,
            model=request.model,
            tools=request.tools,
            clean_id=self._dialect.clean_id,
            degraded=self._warn,
        )
        return entries, await load_images(entries, request, self._read_attachment, self._images)

    def _warn(self, message: Message) -> None:
        """Say once for each message that what the provider wants back with it is lost."""
        if message.id not in self._warned:
            self._warned.add(message.id)
            logger.warning(
                "message %r is sent to %r without its replay state, which does not fit its %d blocks",
                message.id,
                self.provider,
                len(message.content),
            )

    async def send(
        self, body: dict[str, object], emit: Callable[[Chunk], None], make_reader: MakeReader
    ) -> None:
        """Send a request and let its reader emit the answer. A checkpoint.

        Raises:
            ModelError: the request failed, before or during the answer.
        """
        reader = make_reader(self.provider, emit, self._endpoint.redact)
        try:
            await self._endpoint.exchange(self._dialect.path, encode_body(body | self._extra_body), reader)
        except ModelError as exc:
            # The frames below hold what the provider said, word for word; the error says what may be shown.
            exc.__traceback__ = None
            raise


def _load_httpx2(who: str) -> None:
    """See that httpx2 can be imported: it is an extra, and slow to import inside a running loop.

    Raises:
        UsageError: it is not installed; the text says how to get it.
    """
    try:
        import httpx2  # noqa: F401
    except ModuleNotFoundError as exc:
        raise UsageError(
            f"{who} needs httpx2, which comes with an extra: pip install 'trio-agents[openai]'"
        ) from exc


def _secret(who: str, value: str | None, variable: str) -> str | None:
    """An API key, given or from the environment, without the blanks around it; None if there is none.

    Raises:
        UsageError: it holds characters that no HTTP header may hold. The text does not show it.
    """
    if value is None:
        value = os.environ.get(variable)
    if value is None or not value.strip():
        return None
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise UsageError(f"the API key of {who} holds characters that cannot be sent in an HTTP header")
    return value
