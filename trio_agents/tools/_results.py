"""From what a tool returns, or raises, to what the log and the model get."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, cast, final

import attrs
from msgspec import UNSET

from ..errors import MessageError, ToolError, TrioAgentsError, UsageError, ValueNotJsonError
from ..session._events import ToolFailure
from ..values._describe import describe
from ..values._json import FrozenJson
from ..values._messages import Attachment, Content, ContentBlock, ImageBlock, TextBlock, UserMessage
from ._images import image_info
from ._plain import json_text, plain

DEFAULT_OUTPUT_LIMIT: Final = 50_000
"""Characters of text that a result may have unless its tool says otherwise."""

Spill: TypeAlias = Callable[[str], str]
Attach: TypeAlias = Callable[[Attachment, bytes], None]


@final
@attrs.frozen(kw_only=True)
class Image:
    """A picture that a tool returns, alone or in a list with text. PNG, JPEG, GIF or WebP.

    Attributes:
        data: its bytes, as in a file.
        name: a name for people, or None.
    """

    data: bytes
    name: str | None = None


def _content(value: Content) -> tuple[ContentBlock, ...]:
    if isinstance(value, str):
        return (TextBlock(text=value),)
    if isinstance(value, ContentBlock):
        return (value,)
    blocks = tuple(value)
    for block in blocks:
        if not isinstance(block, ContentBlock):
            raise UsageError(f"the content of a ToolReturn is text or blocks, not {type(block).__name__}")
    return blocks


def _meta(value: object) -> FrozenJson | None:
    return value if value is None or isinstance(value, FrozenJson) else FrozenJson.of(plain(value))


def _contexts(value: Iterable[UserMessage]) -> tuple[UserMessage, ...]:
    messages: tuple[object, ...] = tuple(value)
    for message in messages:
        if not isinstance(message, UserMessage):
            raise UsageError(f"the contexts of a ToolReturn are UserMessages, not {type(message).__name__}")
    return cast("tuple[UserMessage, ...]", messages)


@final
@attrs.frozen
class ToolReturn:
    """The result of a call in full, for a tool that wants to say more than a value. Immutable.

    Attributes:
        content: what the model reads; may be given as a string, a block, or several blocks.
        is_error: whether the model should read it as a failure.
        error: the failure for programs: its name and a stable code, or None.
        meta: further facts for programs; any JSON value may be given. The model never sees them.
        concludes: whether the turn ends after this step, without another request.
        contexts: messages for the model's next step, beside the result.
    """

    content: tuple[ContentBlock, ...] = attrs.field(converter=_content, default=())
    is_error: bool = attrs.field(default=False, kw_only=True)
    error: ToolFailure | None = attrs.field(default=None, kw_only=True)
    meta: FrozenJson | None = attrs.field(converter=_meta, default=None, kw_only=True)
    concludes: bool = attrs.field(default=False, kw_only=True)
    contexts: tuple[UserMessage, ...] = attrs.field(converter=_contexts, default=(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        # What is of another type the log would refuse, when it is too late to say so to whoever made it.
        flags: tuple[object, object] = (self.is_error, self.concludes)
        if self.error is not None or type(flags[0]) is not bool or type(flags[1]) is not bool:
            _check_types(self)

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.content if type(block) is TextBlock)

    @classmethod
    def failed(cls, message: str, *, name: str = "ToolError", code: str = "TOOL_FAILED") -> ToolReturn:
        """An error result with a text for the model and a code for programs."""
        return cls(message, is_error=True, error=ToolFailure(name=name, code=code))


def _check_types(result: ToolReturn) -> None:
    flags: dict[str, object] = {"is_error": result.is_error, "concludes": result.concludes}
    for name, flag in flags.items():
        if type(flag) is not bool:
            raise UsageError(f"{name} of a ToolReturn is a bool, not {type(flag).__name__}")
    error: object = result.error
    if error is None:
        return
    if not isinstance(error, ToolFailure):
        raise UsageError(f"error of a ToolReturn is a ToolFailure, not {type(error).__name__}")
    said: tuple[object, ...] = (error.name, error.code)
    for text in said:
        if type(text) is not str:
            raise UsageError(f"error of a ToolReturn has a name and a code that are str, not {text!r}")


def encode_result(
    value: object,
    limit: int | None = DEFAULT_OUTPUT_LIMIT,
    *,
    spill: Spill | None = None,
    attach: Attach | None = None,
) -> ToolReturn:
    """The result for what a tool's body returned. Never raises for what a tool may return.

    None is no content; text stays as it is; a `ToolReturn` is taken as it is; pictures and blocks, alone or in a
    list with text, become content; everything else becomes JSON. What has no exact JSON form (NaN, a set, bytes
    that are not UTF-8, a key that is no string, a cycle, any other object) gives an error result
    INVALID_TOOL_OUTPUT that says where.

    Args:
        value: what the body returned.
        limit: how many characters of text may stay; None for all. What is longer is cut in its middle.
        spill: keeps a text that has to be cut and returns the name under which it can be found.
        attach: keeps the bytes of a picture; without it pictures are refused.
    """
    try:
        result = _encode(value, attach)
    except ValueNotJsonError as exc:
        return _invalid(
            f"The tool ran, but its result cannot be written down: {exc.problem} (at {exc.path}).", exc
        )
    except (MessageError, UsageError) as exc:
        return _invalid(f"The tool ran, but its result cannot be written down: {exc}", exc)
    if limit is None or _size(result.content) <= limit:
        return result
    return attrs.evolve(result, content=_bounded(result.content, limit, spill))


def _invalid(text: str, exc: BaseException) -> ToolReturn:
    if len(text) > DEFAULT_OUTPUT_LIMIT:
        text = _cut(text, DEFAULT_OUTPUT_LIMIT, None)
    return ToolReturn.failed(text, name=type(exc).__name__, code="INVALID_TOOL_OUTPUT")


def _encode(value: object, attach: Attach | None) -> ToolReturn:
    if value is None:
        return ToolReturn()
    if isinstance(value, ToolReturn):
        _check(value.content)
        return value
    items = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(item, ContentBlock | Image) for item in items):
        content = tuple(_block(item, attach) for item in items)
    else:
        content = (_text(value),)
    _check(content)
    return ToolReturn(content)


def _block(item: object, attach: Attach | None) -> ContentBlock:
    if isinstance(item, ContentBlock):
        return item
    if isinstance(item, Image):
        return _picture(item, attach)
    return _text(item)


def _text(value: object) -> TextBlock:
    if isinstance(value, str):
        return TextBlock(text=str.__str__(value))
    if isinstance(value, bytes | bytearray):
        try:
            return TextBlock(text=bytes(value).decode("utf-8"))
        except UnicodeDecodeError as exc:
            raise ValueNotJsonError("$", f"bytes that are not UTF-8 text (byte {exc.start})") from None
    return TextBlock(text=json_text(value))


def _picture(image: Image, attach: Attach | None) -> ImageBlock:
    info = image_info(image.data)
    if info is None:
        raise UsageError("a picture must be a whole PNG, JPEG, GIF or WebP file")
    if attach is None:
        raise UsageError("there is no place here to keep a picture")
    attachment = Attachment(
        attachment_id="sha256:" + hashlib.sha256(image.data).hexdigest(),
        media_type=info.media_type,
        bytes=len(image.data),
        width=info.width,
        height=info.height,
        name=UNSET if image.name is None else image.name,
    )
    try:
        attach(attachment, image.data)
    except (OSError, TrioAgentsError) as exc:
        raise UsageError(f"the picture could not be kept: {describe(exc)}") from exc
    return ImageBlock(attachment=attachment)


def check_result(result: ToolReturn) -> ToolReturn:
    """A result that was made by hand, by somebody who is no tool, if the log takes it.

    Raises:
        MessageError, ValueNotJsonError: it does not.
    """
    _check(result.content)
    return result


def _check(content: Sequence[ContentBlock]) -> None:
    """Let a message be the judge of blocks that were made by hand: what it takes, the log takes."""
    if any(type(block) is not TextBlock or type(block.text) is not str for block in content):
        UserMessage.from_text(tuple(content), id="check")


# --- bounds ---------------------------------------------------------------------------------------


def _size(content: tuple[ContentBlock, ...]) -> int:
    return sum(len(block.text) for block in content if type(block) is TextBlock)


def _bounded(content: tuple[ContentBlock, ...], limit: int, spill: Spill | None) -> tuple[ContentBlock, ...]:
    left = limit
    blocks: list[ContentBlock] = []
    for block in content:
        if type(block) is TextBlock:
            text = block.text if len(block.text) <= left else _cut(block.text, left, spill)
            left = max(0, left - len(block.text))
            blocks.append(TextBlock(text=text))
        else:
            blocks.append(block)
    return tuple(blocks)


def _cut(text: str, limit: int, spill: Spill | None) -> str:
    """Both ends of a text: the end of an output tells as much as its beginning."""
    head = text[: (limit + 1) // 2]
    tail = text[len(text) - limit // 2 :]
    note = f"{len(text) - len(head) - len(tail)} of {len(text)} characters left out here"
    if spill is not None:
        try:
            note += f"; the whole is in {spill(text)}"
        except (OSError, TrioAgentsError) as exc:  # the call has had its effect: what there is of it is kept
            note += f"; the whole could not be kept: {describe(exc)}"
    return f"{head}\n[... {note} ...]\n{tail}"


# --- errors ---------------------------------------------------------------------------------------


def error_result(exc: BaseException) -> ToolReturn:
    """The error result for what a tool's body raised: a `ToolError` in its own words, else the whole chain.

    The text has at most `DEFAULT_OUTPUT_LIMIT` characters; of more, its beginning and its end.
    """
    name = type(exc).__name__
    if isinstance(exc, ToolError):
        words = _words(exc)
        if len(words) > DEFAULT_OUTPUT_LIMIT:
            words = _cut(words, DEFAULT_OUTPUT_LIMIT, None)
        return ToolReturn.failed(words, name=name, code=exc.code)
    return ToolReturn.failed(describe(exc), name=name, code="TOOL_FAILED")


def _words(exc: ToolError) -> str:
    try:
        return str(exc) or type(exc).__name__
    except Exception:  # noqa: BLE001 - a subclass may have a broken __str__
        return describe(exc)
