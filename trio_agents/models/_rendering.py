"""What the adapters' renderings share: texts, arguments, images, and the encoding of a request's body."""

from __future__ import annotations

import base64
import contextlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar, final

import msgspec
import trio

from ..errors import ModelError
from ..values._json import FrozenJson, JsonValue, dump_json, encode_hook, load_json
from ..values._messages import Attachment, ContentBlock, ImageBlock, ReasoningBlock, TextBlock
from ._contract import AttachmentReader, ModelRequest
from ._failures import Redactor
from ._history import NO_OUTPUT, Answered, Entry, Said

Event = TypeVar("Event")

Images = Mapping[str, str]
"""Base64 text of each attachment, by its id."""

_CACHED: Final = 16 * 1024 * 1024
"""Characters of images that an adapter keeps."""
_ON_LOOP: Final = 64 * 1024
"""Bytes that are encoded in place; more than that goes to a thread."""


def texts(content: Iterable[ContentBlock]) -> list[str]:
    """The texts of a content in order. A block that has none here is named, so that the model knows of it."""
    found = []
    for block in content:
        if isinstance(block, TextBlock | ReasoningBlock):
            found.append(block.text)
        elif not isinstance(block, ImageBlock):
            found.append(f"[a block of type {block.tag!r}, which cannot be shown here]")
    return found


def pictures(content: Iterable[ContentBlock]) -> list[Attachment]:
    """The images of a content, in order."""
    return [block.attachment for block in content if isinstance(block, ImageBlock)]


def result_text(result: Answered) -> str:
    """The text of a tool's result; an error says so, for protocols that have no flag for it."""
    text = "\n\n".join(texts(result.content))
    if not text:
        text = "(see the image that follows)" if pictures(result.content) else NO_OUTPUT
    if result.is_error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return text


def arguments_object(arguments: str) -> dict[str, JsonValue]:
    """The arguments of an earlier call as an object.

    What a model wrote that was no object is wrapped: providers refuse the whole conversation otherwise, and the
    model should see what it did.
    """
    if not arguments.strip():
        return {}
    try:
        value = load_json(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"malformed_arguments": arguments}


def arguments_text(arguments: str) -> str:
    """The same as JSON text; text that is an object already stays as the model wrote it."""
    try:
        if type(load_json(arguments)) is dict:
            return arguments
    except ValueError:
        pass
    return dump_json(arguments_object(arguments)).decode()


@final
class ImageCache:
    """Base64 texts of the images that were sent last: each request of a conversation sends all of its images again.

    Only of those whose id is the hash of what they hold; any other id may mean something else the next time.
    """

    def __init__(self, most: int = _CACHED) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._room = most

    def get(self, image_id: str) -> str | None:
        """The text, if it is still there."""
        text = self._texts.get(image_id)
        if text is not None:
            self._texts.move_to_end(image_id)
        return text

    def add(self, image_id: str, text: str) -> None:
        """Keep a text, in the place of those that were asked for longest ago."""
        if not image_id.startswith("sha256:") or image_id in self._texts:
            return
        self._texts[image_id] = text
        self._room -= len(text)
        while self._room < 0:
            _, oldest = self._texts.popitem(last=False)
            self._room += len(oldest)


async def load_images(
    entries: Iterable[Entry], request: ModelRequest, reader: AttachmentReader | None, cache: ImageCache
) -> dict[str, str]:
    """Base64 text of every image in a conversation. A checkpoint only if one has to be read.

    Raises:
        ModelError: nobody can give its bytes (`UNSUPPORTED_CONTENT`); the message is named.
    """
    images: dict[str, str] = {}
    read = request.read_attachment or reader
    for entry in entries:
        content = [part.block for part in entry.parts] if isinstance(entry, Said) else entry.content
        for attachment in pictures(content):
            if attachment.attachment_id in images:
                continue
            if read is None:
                raise ModelError(
                    f"message {entry.message_id!r} holds an image, and nobody here can read attachments: "
                    "give the adapter read_attachment=",
                    code="UNSUPPORTED_CONTENT",
                )
            text = cache.get(attachment.attachment_id)
            if text is None:
                text = await _base64(await read(attachment))
                cache.add(attachment.attachment_id, text)
            images[attachment.attachment_id] = text
    return images  # noqa: ASYNC910  a checkpoint only if an image has to be read


async def _base64(data: bytes) -> str:
    if len(data) <= _ON_LOOP:
        return base64.b64encode(data).decode()
    return (await trio.to_thread.run_sync(base64.b64encode, data)).decode()


def image(images: Images, attachment: Attachment, message_id: str) -> str:
    """The base64 text of an image that has been loaded.

    Raises:
        ModelError: it has not (`UNSUPPORTED_CONTENT`).
    """
    try:
        return images[attachment.attachment_id]
    except KeyError:
        raise ModelError(
            f"the image {attachment.attachment_id!r} of message {message_id!r} was not loaded",
            code="UNSUPPORTED_CONTENT",
        ) from None


def encode_body(body: Mapping[str, object]) -> bytes:
    """Encode a request. Half characters, which providers fail on, are joined where they fit and replaced elsewhere."""
    try:
        return msgspec.json.encode(body, enc_hook=encode_hook)
    except UnicodeEncodeError:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_plain)
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _plain(value: object) -> JsonValue:
    if isinstance(value, FrozenJson):
        return value.value
    raise TypeError(f"a {type(value).__qualname__} has no JSON form")


def decode_event(decoder: msgspec.json.Decoder[Event], data: bytes, who: str, redact: Redactor) -> Event:
    """Decode an event of a stream, half characters included.

    Raises:
        ModelError: it is no JSON, or not of the shape that the protocol has (`MALFORMED_RESPONSE`).
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        fault = str(exc)
    with contextlib.suppress(ValueError):
        event: Event = msgspec.convert(load_json(data), decoder.type)
        return event
    shown = redact.excerpt(data.decode("utf-8", "replace"), 200)
    raise ModelError(
        redact(f"{who} sent an event that cannot be read ({fault}): {shown}"), code="MALFORMED_RESPONSE"
    )
