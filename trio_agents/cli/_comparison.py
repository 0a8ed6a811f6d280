"""What a replayed event has in common with the recorded one, and what not. Pure.

Compared are type, turn and step, the numbers and sources of splices, who said what to whom, calls, chunks, and
how things ended. Not compared is what every run mints anew: ids of messages and retries, times, and the text of
headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import msgspec
from msgspec import UNSET

from ..session import (
    AssistantChunk,
    AssistantMessage,
    Event,
    InboxSpliced,
    LlmRetry,
    Replace,
    RequestContext,
    RequestHeader,
    ToolCall,
    ToolResult,
    TurnEnd,
)
from ..values import Aborted, ContentBlock, Message, ToolResultBlock, UserMessage
from ..values._json import encode_hook
from ._tape import CORE

_SHOWN: Final = 160


@attrs.frozen(kw_only=True)
class Difference:
    """The first place where two logs part.

    Attributes:
        what: in what they differ, as one sentence.
        recorded_seq: the number of the event in the recording; its length if the recording has ended there.
        replayed_seq: the number of the event in the new log; its length if that has ended there.
        recorded: the recorded side, for people.
        replayed: the other side.
    """

    what: str
    recorded_seq: int
    replayed_seq: int
    recorded: str
    replayed: str


def is_compared(event: Event) -> bool:
    """Whether a replay compares events of this type."""
    return type(event.data) in CORE


def parts(event: Event, seqs: Mapping[int, int] | None = None) -> dict[str, object]:
    """What of an event has to be the same in both logs, by name.

    Args:
        event: the event.
        seqs: for a recorded event, the numbers that the events before it have in the new log.
    """
    data = event.data
    found: dict[str, object] = {"type": event.type}
    for name in ("turn", "step"):
        if hasattr(data, name):
            found[name] = getattr(data, name)
    if isinstance(data, InboxSpliced):
        found |= {
            "target": data.target,
            "start": data.start,
            "removed count": data.removed_count or 0,
            "outcome": data.outcome or None,
            "source kinds": [message.source.kind for message in data.inserted],
            "content": [_content(message.content) for message in data.inserted],
        }
    elif isinstance(data, UserMessage):
        found |= _message(data)
    elif isinstance(data, AssistantMessage):
        found |= _message(data.message)
        found["usage"] = data.usage or None
        found["interrupted"] = data.interrupted is True
    elif isinstance(data, ToolResult):
        found |= {"call id": getattr(data.message.source, "call_id", None), **_message(data.message)}
        found["error code"] = data.error.code if data.error else None
    elif isinstance(data, ToolCall):
        found |= {"call id": data.call_id, "name": data.name, "arguments": data.arguments}
    elif isinstance(data, AssistantChunk):
        found |= {"chunk type": data.chunk.tag, "chunk": data.chunk}
    elif isinstance(data, TurnEnd):
        found["end kind"] = data.reason.kind
        if isinstance(data.reason, Aborted):
            found["cause"] = data.reason.reason.kind
    else:
        found |= _request(data)
    found |= _surface(event, seqs)
    return found


def _request(data: object) -> dict[str, object]:
    if isinstance(data, RequestHeader):
        config = data.header.config
        return {"reason": data.reason, "provider": config.provider, "model": config.model}
    if isinstance(data, RequestContext):
        return {"provider": data.provider, "model": data.model}
    return {"retry": data.retry} if isinstance(data, LlmRetry) else {}


def _surface(event: Event, seqs: Mapping[int, int] | None) -> dict[str, object]:
    """Where a message stands in the conversation, and what it was made of."""
    if event.surface_op is UNSET:
        return {}
    known = {} if seqs is None else seqs
    found: dict[str, object] = {"surface": "append"}
    if isinstance(event.surface_op, Replace):
        span = (event.surface_op.start, event.surface_op.end)
        found["surface"] = [known.get(seq, seq) for seq in span]
    elif event.source_event_seqs is not UNSET:
        found["sources"] = [known.get(seq, seq) for seq in event.source_event_seqs]
    return found


def _message(message: Message) -> dict[str, object]:
    return {"role": message.role, "source kind": message.source.kind, "content": _content(message.content)}


def _content(blocks: Iterable[ContentBlock]) -> list[object]:
    """Blocks with what is absent and what is false made the same."""
    return [
        msgspec.structs.replace(block, is_error=False)
        if isinstance(block, ToolResultBlock) and block.is_error is UNSET
        else block
        for block in blocks
    ]


def compare(recorded: Event, replayed: Event, seqs: Mapping[int, int]) -> str | None:
    """In what two events differ, or None if they are the same fact."""
    ours, theirs = parts(recorded, seqs), parts(replayed)
    if "sources" not in ours:  # some writers do not say what a message was made of
        theirs.pop("sources", None)
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            return f"different {name}"
    return None


def compare_messages(recorded: Sequence[Message], replayed: Sequence[Message]) -> tuple[int, str] | None:
    """The index of the first derived message that differs and in what, or None."""
    for index, (ours, theirs) in enumerate(zip(recorded, replayed, strict=False)):
        one, other = _message(ours), _message(theirs)
        for name in one:
            if one[name] != other[name]:
                return index, f"different {name}"
    if len(recorded) != len(replayed):
        return min(
            len(recorded), len(replayed)
        ), f"{len(recorded)} messages recorded, {len(replayed)} replayed"
    return None


def describe_event(event: Event | None) -> str:
    """An event in one line, for people."""
    if event is None:
        return "nothing: the log ends here"
    facts = []
    for name, value in parts(event).items():
        if name not in {"type", "surface", "sources", "chunk", "role"} and value not in (None, [], False):
            facts.append(f"{name} {_plain(value)}")
    line = f"{event.type} ({', '.join(facts)})" if facts else event.type
    return line if len(line) <= _SHOWN else line[: _SHOWN - 4] + " ...)"


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=encode_hook).decode()
