"""Messages, the blocks they are made of, and where they came from."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..errors import MessageError, ValueNotJsonError
from ._ids import mint_id
from ._json import Foreign, FrozenJson, OpenUnion, check_json

# --- content blocks -------------------------------------------------------------------------------


class ContentBlock(OpenUnion):
    """A piece of a message's content. Kinds that are not known here are kept as `ForeignBlock`."""

    __slots__ = ()
    tag_field = "type"
    members: ClassVar[dict[str, type[Any]]] = {}


@final
class TextBlock(
    ContentBlock, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="text", forbid_unknown_fields=True,
):  # fmt: skip
    """Plain text."""

    text: str


@final
class ReasoningBlock(
    ContentBlock, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="reasoning", forbid_unknown_fields=True,
):  # fmt: skip
    """What a model thought before it answered. Providers may refuse it back without its replay state."""

    text: str


@final
class ImageSize(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Width and height in pixels."""

    width: int
    height: int


@final
class Attachment(Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """A reference to bytes kept beside the log, named by their hash (`sha256:` and 64 hex digits)."""

    attachment_id: str
    media_type: str
    bytes: int
    width: int
    height: int
    name: str | UnsetType = UNSET
    original_dimensions: ImageSize | UnsetType = UNSET


@final
class ImageBlock(
    ContentBlock, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="image", forbid_unknown_fields=True,
):  # fmt: skip
    """A picture; its bytes live outside the log."""

    attachment: Attachment


@final
class ToolCallBlock(
    ContentBlock, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="tool-call", forbid_unknown_fields=True,
):  # fmt: skip
    """A call that a model asked for. `arguments` is its raw text and may be no JSON at all."""

    id: str
    name: str
    arguments: str


@final
class ToolResultBlock(
    ContentBlock, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="type", tag="tool-result", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """What a tool answered to the call with the same id."""

    tool_call_id: str
    content: tuple[ContentBlock, ...]
    is_error: bool | UnsetType = UNSET


@final
class ForeignBlock(Foreign, ContentBlock):
    """A block of a kind, or with fields, that this version does not know; kept as it was."""

    __slots__ = ()


ContentBlock.members = {
    "text": TextBlock,
    "reasoning": ReasoningBlock,
    "image": ImageBlock,
    "tool-call": ToolCallBlock,
    "tool-result": ToolResultBlock,
}
ContentBlock.foreign = ForeignBlock

# --- sources --------------------------------------------------------------------------------------


class MessageSource(OpenUnion):
    """Where a message came from. Kinds that are not known here are kept as `ForeignSource`."""

    __slots__ = ()
    tag_field = "kind"
    members: ClassVar[dict[str, type[Any]]] = {}

    @property
    def kind(self) -> str:
        """The kind as it stands in the log, such as `user` or `model`."""
        return self.tag


@final
class UserSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="user", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A person, perhaps through a remote call."""

    rpc_id: str | UnsetType = UNSET
    client_time_zone: str | UnsetType = UNSET


@final
class ModelSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="model", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A model. `replay_state` is the adapter's own, given back to it with the message."""

    provider: str
    model: str
    replay_state: FrozenJson | UnsetType = UNSET


@final
class ToolSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="tool", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A tool, answering the call with this id."""

    call_id: str


@final
class GoalSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="goal", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A round of work on a goal; rounds count from 1."""

    goal_id: str
    revision: int
    round: int


@final
class AgentSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="coordinator", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """Another agent, by its session."""

    form: str
    sender_session_id: str
    sender_name: str | UnsetType = UNSET


@final
class WebhookSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="webhook", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A delivery of a web hook."""

    hook_id: str
    delivery_id: str


@final
class PluginSource(
    MessageSource, Struct, frozen=True, kw_only=True, gc=False,
    tag_field="kind", tag="plugin", forbid_unknown_fields=True, rename="camel",
):  # fmt: skip
    """A plugin, by its name. `form` says how the text is meant: `notice`, `instructions`, ...

    Fields that only some forms have (`summary`, `sections`, ...) are kept where they are present.
    """

    plugin: str
    form: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    sections: FrozenJson | UnsetType = UNSET
    compaction_id: str | UnsetType = UNSET
    source_command_id: str | UnsetType = UNSET


@final
class ForeignSource(Foreign, MessageSource):
    """A source of a kind, or with fields, that this version does not know; kept as it was."""

    __slots__ = ()


MessageSource.members = {
    "user": UserSource,
    "model": ModelSource,
    "tool": ToolSource,
    "goal": GoalSource,
    "coordinator": AgentSource,
    "webhook": WebhookSource,
    "plugin": PluginSource,
}
MessageSource.foreign = ForeignSource

USER = UserSource()
"""The source of what a person typed."""

# --- messages -------------------------------------------------------------------------------------


class Message(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """One message of a conversation: a user's, a model's, or a tool's result (whose role is `user`)."""

    id: str
    role: Literal["user", "assistant", "system"]
    content: tuple[ContentBlock, ...]
    source: MessageSource

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.content if type(block) is TextBlock)


@final
class UserMessage(Message, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A message to an agent. Immutable from construction on; its id is unique while it is pending.

    `content` may be given as a string, a single block, or an iterable of blocks.

    Raises:
        MessageError: content or source is no such thing, or could not be written to a log.
    """

    wire_type: ClassVar[str] = "user/message"
    ignorable: ClassVar[bool] = False
    role: Literal["user"] = "user"

    def __post_init__(self) -> None:
        content: object = self.content
        if type(content) is not tuple:
            content = _blocks(content)
            msgspec.structs.force_setattr(self, "content", content)
        if type(self.id) is not str or not self.id:
            raise MessageError(f"a message id is a non-empty string, not {self.id!r}")
        if not isinstance(self.source, MessageSource):
            raise MessageError(f"a message's source is a MessageSource, not {type(self.source).__name__}")
        for block in self.content:
            if type(block) is TextBlock:
                if type(block.text) is not str:
                    raise MessageError(f"the text of a block is a str, not {type(block.text).__name__}")
            elif isinstance(block, ContentBlock):
                _check_block(block)
            else:
                raise MessageError(f"message content is made of blocks, not {type(block).__name__}")

    @classmethod
    def from_text(cls, text: Content, *, id: str | None = None, source: MessageSource = USER) -> UserMessage:
        """A message out of plain text, a block, or several, as if a person had sent it."""
        return cls(id=mint_id() if id is None else id, content=_blocks(text), source=source)

    @classmethod
    def from_goal_round(
        cls, text: Content, *, goal_id: str, revision: int, round: int, id: str | None = None
    ) -> UserMessage:
        """A message that opens a round of work on a goal; rounds count from 1."""
        if type(round) is not int or round < 1:
            raise MessageError(f"rounds count from 1, not {round!r}")
        if type(revision) is not int or revision < 0:
            raise MessageError(f"a revision is an int >= 0, not {revision!r}")
        return cls.from_text(
            text, id=id, source=GoalSource(goal_id=_name("goal id", goal_id), revision=revision, round=round)
        )

    @classmethod
    def from_agent(
        cls, text: Content, *, sender_session_id: str, sender_name: str | None = None, id: str | None = None
    ) -> UserMessage:
        """A message from another agent."""
        source = AgentSource(
            form="relay",
            sender_session_id=_name("sender session id", sender_session_id),
            sender_name=UNSET if sender_name is None else _name("sender name", sender_name),
        )
        return cls.from_text(text, id=id, source=source)

    @classmethod
    def from_webhook(
        cls, text: Content, *, hook_id: str, delivery_id: str, id: str | None = None
    ) -> UserMessage:
        """A message that a web hook brought."""
        source = WebhookSource(
            hook_id=_name("hook id", hook_id), delivery_id=_name("delivery id", delivery_id)
        )
        return cls.from_text(text, id=id, source=source)


Content: TypeAlias = "str | ContentBlock | list[ContentBlock] | tuple[ContentBlock, ...]"
"""What a delivery may be made of."""


def _name(what: str, value: object) -> str:
    if type(value) is not str or not value:
        raise MessageError(f"a {what} is a non-empty string, not {value!r}")
    return value


def _blocks(content: object) -> tuple[ContentBlock, ...]:
    if type(content) is str:
        return (TextBlock(text=content),)
    if isinstance(content, ContentBlock):
        return (content,)
    if isinstance(content, (list, tuple)):
        return tuple(content)
    raise MessageError(f"message content is text or blocks, not {type(content).__name__}")


def _check_block(block: ContentBlock) -> None:
    """A block that this process made by hand may hold anything: see that it would be read back."""
    if type(block) is ForeignBlock:
        return
    try:
        plain = msgspec.to_builtins(block, enc_hook=_plain_json)
        check_json(plain)
    except (ValueNotJsonError, TypeError, NotImplementedError) as exc:
        raise MessageError(f"a {block.tag} block cannot be written: {exc}") from exc
    if type(ContentBlock.decode(plain)) is not type(block):
        raise MessageError(f"a {block.tag} block has fields of the wrong type: {plain!r}")


def _plain_json(value: object) -> object:
    if isinstance(value, FrozenJson):
        return value.value
    if isinstance(value, Foreign):
        return value.raw.value
    raise NotImplementedError(f"a {type(value).__qualname__} has no JSON form")


@final
class TokenUsage(Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """Tokens of one or more requests. The counts are disjoint: input excludes cache reads and writes."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
