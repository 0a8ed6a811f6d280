"""Lines to events and back.

`decode_event` tries the frequent, exact case first (`_wire`). What that refuses is parsed as plain JSON, brought
into its present form (`_legacy`), checked as leniently as the format asks (`_shapes`) and then typed as far as it
goes: an event that its typed form would not give back exactly is a `VerbatimEvent` and keeps its line, a payload
that has no typed form is a `ForeignEvent` and keeps its JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, inspect

from ..errors import SessionCorruptError, SessionUnsupportedError, UsageError, ValueNotJsonError
from ..values._json import (
    MAX_SAFE_INTEGER,
    Foreign,
    FrozenJson,
    OpenUnion,
    check_json,
    decode_hook,
    dump_json,
    encode_hook,
    escape_surrogates,
    load_json,
)
from ..values._messages import ModelSource, ToolResultBlock, ToolSource
from ._events import (
    CORE_PAYLOADS,
    KNOWN_TYPES,
    SURFACE_TYPES,
    AssistantMessage,
    Event,
    ForeignEvent,
    Payload,
    Replace,
    RequestHeader,
    ToolResult,
    VerbatimEvent,
)
from ._header import FORMAT_VERSION, SessionHeader
from ._legacy import MessageIdAt, refuse_retired, upgrade
from ._shapes import PAYLOAD_FAULTS, envelope_fault, header_fault, is_nat, is_object, is_text, make_integral
from ._wire import RawLine, compact, decode_frequent, decode_open, is_frequent

_REFUSALS: Final = (ValueError, UsageError, RecursionError, NotImplementedError)
"""What a typed decode raises: msgspec's own errors are ValueErrors, UsageError comes from our constructors,
NotImplementedError from a plugin's field of a type without JSON form."""


class BadLineError(SessionCorruptError):
    """A line that is no whole record: not JSON, no object, a malformed row, or not the next number.

    The end of a file may legitimately look like this (a torn tail); every other fault is damage wherever it is.
    """


# --- registry of payload types --------------------------------------------------------------------

PayloadT = TypeVar("PayloadT", bound=Payload)

MUTABLE: Final[set[type[Any]]] = set()
"""Payload classes of plugins with values that could be changed. Their events are kept as lines and read afresh."""

_registered: Final[dict[str, type[Any]]] = {}
_decoders: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}


def register_event(cls: type[PayloadT]) -> type[PayloadT]:
    """Make a payload class known to every log; usable as a class decorator.

    The class is a final, frozen `msgspec.Struct` that inherits from `Payload`, with its `wire_type` and, unless
    programs that do not know it shall refuse logs that hold it, `ignorable = True`. Logs that were loaded before
    keep such events untyped. Registering the same class again changes nothing.

    Raises:
        UsageError: it is no such class, or its wire type belongs to another.
    """
    wire_type = getattr(cls, "wire_type", None)
    given: object = cls
    if not (isinstance(given, type) and issubclass(given, Payload) and issubclass(given, Struct)):
        raise UsageError(f"an event payload is a msgspec.Struct and a Payload, not {cls!r}")
    if not is_text(wire_type) or "/" not in wire_type:
        raise UsageError(f"{cls.__qualname__}.wire_type is a text such as 'plugin/thing', not {wire_type!r}")
    if not given.__struct_config__.frozen:
        raise UsageError(
            f"{cls.__qualname__} must be declared with frozen=True: what is logged cannot change"
        )
    if type(cls.ignorable) is not bool:
        raise UsageError(f"{cls.__qualname__}.ignorable is True or False, not {cls.ignorable!r}")
    owner = CORE_PAYLOADS.get(wire_type) or _registered.get(wire_type)
    if owner is not None and owner is not cls:
        raise UsageError(
            f"event type {wire_type!r} already belongs to {owner.__module__}.{owner.__qualname__}"
        )
    if wire_type in SURFACE_TYPES:
        raise UsageError(f"{wire_type!r} is a message type; plugins cannot redefine it")
    try:
        _decoder(cls)
        mutable = _is_mutable(inspect.type_info(cls), set())
    except (TypeError, NameError) as exc:
        raise UsageError(f"{cls.__qualname__} has a field that cannot be read from JSON: {exc}") from exc
    _registered[wire_type] = cls
    if mutable:
        MUTABLE.add(cls)
    return cls


def _is_mutable(info: object, seen: set[object]) -> bool:
    """Whether values of a type can hold something that can be changed: a list, a dict, anything at all."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            if cls in seen:
                return False
            seen.add(cls)
            return not cls.__struct_config__.frozen or any(_is_mutable(field.type, seen) for field in fields)
        case inspect.VarTupleType(item_type=item) | inspect.Metadata(type=item):
            return _is_mutable(item, seen)
        case inspect.TupleType(item_types=items) | inspect.UnionType(types=items):
            return any(_is_mutable(item, seen) for item in items)
        case inspect.CustomType(cls=cls):
            return not issubclass(cls, (FrozenJson, OpenUnion))
    return isinstance(info, _CHANGEABLE)


_CHANGEABLE: Final = (
    inspect.AnyType,
    inspect.ListType,
    inspect.SetType,
    inspect.DictType,
    inspect.TypedDictType,
    inspect.DataclassType,
    inspect.ByteArrayType,
)


def payload_class(wire_type: str) -> type[Any] | None:
    """The class for payloads of a type, or None if its payload is kept untyped."""
    return CORE_PAYLOADS.get(wire_type) or _registered.get(wire_type)


def is_registered(cls: type[Any]) -> bool:
    """Whether a plugin registered exactly this class."""
    return _registered.get(getattr(cls, "wire_type", "")) is cls


def is_supported(wire_type: str) -> bool:
    """Whether a log may hold events of this type without marking them ignorable."""
    return wire_type in KNOWN_TYPES or payload_class(wire_type) is not None


def _decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(cls)
    if decoder is None:
        decoder = _decoders[cls] = msgspec.json.Decoder(cls, dec_hook=decode_hook)
    return decoder


# --- encoding -------------------------------------------------------------------------------------


def _raw_hook(value: object) -> object:
    return Raw(value.value.raw) if type(value) is ForeignEvent else encode_hook(value)


def _plain_hook(value: object) -> object:
    if type(value) is ForeignEvent:
        return value.value.value
    if type(value) is FrozenJson:
        return value.value
    if isinstance(value, Foreign):
        return value.raw.value
    return encode_hook(value)


encode: Final = msgspec.json.Encoder(enc_hook=_raw_hook).encode
"""The line of an event in which nothing is unusual; everything else is for `encode_event`."""


def encode_event(event: Event) -> bytes:
    """The line of an event, without its line end. One that was kept verbatim gives back its line.

    Raises:
        ValueNotJsonError: a part of it has no JSON form.
    """
    if type(event) is VerbatimEvent:
        return event.line
    try:
        line = encode(event)
    except UnicodeEncodeError:  # a lone surrogate
        return _encode_text(event)
    except (NotImplementedError, TypeError, ValueError, RecursionError) as exc:
        raise _not_json(event, str(exc)) from exc
    # JSON kept from elsewhere may be laid out over several lines.
    return line if b"\n" not in line else dump_json(load_json(line))


def _encode_text(event: Event) -> bytes:
    try:
        return escape_surrogates(json.dumps(to_plain(event), ensure_ascii=False, separators=(",", ":")))
    except (ValueError, RecursionError) as exc:
        raise _not_json(event, str(exc)) from exc


def to_plain(value: object) -> Any:
    """A struct of the vocabulary as plain JSON containers."""
    plain = [msgspec.to_builtins(value, enc_hook=_plain_hook)]
    stack: list[Any] = [plain]
    while stack:  # lists for the tuples that msgspec leaves as they are
        node = stack.pop()
        for key, item in list(node.items() if type(node) is dict else enumerate(node)):
            if type(item) is tuple:
                node[key] = list(item)
            if type(item) in (tuple, list, dict):
                stack.append(node[key])
    return plain[0]


def check_exact(event: Event) -> None:
    """Refuse an event with a value in it that would not survive as JSON.

    Raises:
        ValueNotJsonError: names the event's type, and the path to the value.
    """
    try:
        _check_value(event.data, "$")
    except ValueNotJsonError as exc:
        raise ValueNotJsonError(f"{event.type} {exc.path}", exc.problem) from exc


def _check_value(value: object, path: str) -> None:
    if isinstance(value, Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        for name, wire_name in names:
            item = getattr(value, name)
            kind = type(item)
            if kind is str or kind is bool or item is None or item is UNSET:
                continue  # most fields are; a call for each would be most of the cost
            if kind is not int or not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                _check_value(item, f"{path}.{wire_name}")
    elif type(value) is tuple or (type(value) is list and value and isinstance(value[0], Struct)):
        for index, item in enumerate(value):
            _check_value(item, f"{path}[{index}]")
    elif value is not UNSET and not isinstance(value, (FrozenJson, Foreign, ForeignEvent)):
        try:
            check_json(value)
        except ValueNotJsonError as exc:
            raise ValueNotJsonError(path + exc.path[1:], exc.problem) from exc


def _not_json(event: Event, problem: str) -> ValueNotJsonError:
    """The error for an event that cannot be encoded, with the path to the fault where it can be found."""
    try:
        check_exact(event)
    except ValueNotJsonError as exc:
        return exc
    except RecursionError:
        pass
    return ValueNotJsonError(event.type, problem)


# --- decoding -------------------------------------------------------------------------------------


def decode_event(
    line: bytes,
    *,
    seq: int | None = None,
    session_id: str = "",
    message_id_at: MessageIdAt | None = None,
) -> Event:
    """The event in a line (without its line end).

    Args:
        line: one line of a log that is no packed row.
        seq: the number that it must have, or None if any will do.
        session_id: the session, for the ids that messages of older shapes get.
        message_id_at: looks up the id of an earlier message, for results of older shapes that replace one.

    Raises:
        BadLineError: it is no JSON object, or not the event numbered `seq`.
        SessionCorruptError: it is JSON, but breaks a rule that every event keeps.
        SessionUnsupportedError: its type is not known here and it may not be skipped.
    """
    try:
        event = decode_frequent(line) if is_frequent(line) else None
    except _REFUSALS:
        event = None
    if event is None:
        event = _decode_unusual(line, session_id, message_id_at)
    if seq is not None and event.seq != seq:
        raise BadLineError(f"event {seq} expected, found {event.seq}")
    return event


def _decode_unusual(line: bytes, session_id: str, message_id_at: MessageIdAt | None) -> Event:
    try:
        raw = _raw_lines.decode(line)
    except _REFUSALS:
        kind = "user/message"  # the other surface types have no open way
    else:
        kind = raw.type
        cls = payload_class(kind)
        event = None
        if cls is not None:
            event = _decode_as(cls, raw)
        elif kind in KNOWN_TYPES or raw.ignorable is True:
            event = _decode_foreign(raw)
        if event is not None:
            return event
    try:
        return decode_open(kind, line)
    except _REFUSALS:
        return _decode_exactly(line, session_id, message_id_at)


_JUDGED: Final = frozenset(PAYLOAD_FAULTS) - {"request/header"} | {"turn/start"}
"""Types with older shapes, or with more to look at than their class does."""


def _decode_as(cls: type[Any], line: RawLine) -> Event | None:
    """An event whose payload, as its class, gives back the very bytes; None if only the letter of the format can say."""
    if line.type in _JUDGED:
        return None
    raw = bytes(line.data)
    try:
        data = _decoder(cls).decode(raw)
        if encode(data) != raw or (cls is RequestHeader and header_fault(_any.decode(raw)) is not None):
            return None
    except _REFUSALS:
        return None
    return Event(type=line.type, seq=line.seq, time=line.time, data=data, ignorable=line.ignorable)


def _decode_foreign(line: RawLine) -> Event | None:
    """An event whose payload is not looked at; None if its bytes are not quite what they should be."""
    value = bytes(line.data)
    try:
        _any.decode(value)
    except _REFUSALS:
        return None
    return _foreign(line.type, FrozenJson(value), line.seq, line.time, ignorable=line.ignorable is True)


def _foreign(kind: str, value: FrozenJson, seq: int, time: int, *, ignorable: bool) -> Event:
    data = ForeignEvent(kind, value, ignorable=ignorable)
    return Event(type=kind, seq=seq, time=time, data=data, ignorable=True if ignorable else UNSET)


_raw_lines: Final = msgspec.json.Decoder(RawLine)
_any: Final = msgspec.json.Decoder()


def parse_line(line: bytes) -> dict[str, object]:
    """A line as a JSON object, whole numbers as ints.

    Raises:
        BadLineError: it is nothing of the kind.
    """
    try:
        value = load_json(line)
    except ValueError as exc:
        raise BadLineError(f"not JSON: {exc}") from exc
    if not is_object(value):
        raise BadLineError(f"a record is a JSON object, not {line[:40]!r}")
    if not make_integral(value):
        raise BadLineError("a number is too large")
    return value


def _decode_exactly(line: bytes, session_id: str, message_id_at: MessageIdAt | None) -> Event:
    """Judge a line by the letter of the format, in the order in which its rules apply."""
    plain = parse_line(line)
    if not is_text(plain.get("type")):
        raise BadLineError(f"a record has a type, not {plain.get('type')!r}")
    refuse_retired(plain)
    if upgrade(plain, session_id=session_id, message_id_at=message_id_at):
        line = dump_json(plain)
    kind = str(plain["type"])
    check = PAYLOAD_FAULTS.get(kind)
    fault = check(plain.get("data")) if check is not None else None
    if fault is None:
        if plain.get("ignorable") is not True and not is_supported(kind):
            raise SessionUnsupportedError(
                f"event {plain.get('seq')} has the type {kind!r}, which is not known here and is not ignorable"
            )
        fault = envelope_fault(plain)
    if fault is not None:
        raise SessionCorruptError(f"event {plain.get('seq')} ({kind}): {fault}")
    return _typed(plain, kind, line)


def _typed(plain: dict[str, Any], kind: str, line: bytes) -> Event:
    """Give a checked event its type. If that loses anything, keep its line beside it."""
    op = plain.get("surfaceOp", UNSET)
    seqs = plain.get("sourceEventSeqs", UNSET)
    data = _payload(kind, plain["data"], ignorable=plain.get("ignorable") is True)
    if kind in SURFACE_TYPES and type(data) is ForeignEvent:
        # Stricter than the format: a message that cannot be shown to a model is no message.
        raise SessionCorruptError(
            f"event {plain['seq']} ({kind}): a content block or a number has no proper type"
        )
    event = Event(
        type=kind,
        seq=plain["seq"],
        time=plain["time"],
        data=data,
        surface_op=op if type(op) is not dict else Replace(start=op["start"], end=op["end"]),
        source_event_seqs=seqs if type(seqs) is not list else compact(tuple(seqs)),
        ignorable=plain.get("ignorable", UNSET),
    )
    if to_plain(event) == plain:
        return event
    return VerbatimEvent(**{name: getattr(event, name) for name in Event.__struct_fields__}, line=line)


def _payload(kind: str, data: object, *, ignorable: bool) -> object:
    cls = payload_class(kind)
    if cls is not None:
        for candidate in (data, _pruned(kind, cls, data)):
            typed = _convert(candidate, cls)
            if typed is not None and _is_usable(typed):
                return typed
    return ForeignEvent(kind, FrozenJson(dump_json(data)), ignorable=ignorable)


def _convert(data: object, cls: type[Any]) -> object:
    """The payload as its class, or None if it has no such form."""
    try:
        return _decoder(cls).decode(dump_json(data))
    except _REFUSALS:
        pass
    try:
        # A lone surrogate has no bytes that msgspec would decode, but it converts.
        return msgspec.convert(data, cls, dec_hook=decode_hook)
    except _REFUSALS:
        return None


def _is_usable(data: object) -> bool:
    """Whether answers and results have the parts that code relies on, and not foreign members in their place."""
    if type(data) is AssistantMessage:
        return type(data.message.source) is ModelSource
    if type(data) is ToolResult:
        block = data.message.content[0]
        return type(data.message.source) is ToolSource and type(block) is ToolResultBlock
    return True


def _pruned(kind: str, cls: type[Any], data: Any) -> object:
    """The payload without the fields that its class does not know; for messages also within the message.

    Only what code relies on is mended: the payload itself, its message, the source of an answer, the block of a
    result. Anything else that is not known is kept as a foreign member by its family.
    """
    if not is_object(data):
        return data
    data = _known(data, cls)
    message = data.get("message")
    if kind not in SURFACE_TYPES or not is_object(message):
        return data
    message = {key: message[key] for key in ("id", "role", "content", "source")}
    if kind == "assistant/message":
        message["source"] = _known(message["source"], ModelSource, "kind")
    else:
        (block,) = message["content"]
        block = _known(block, ToolResultBlock, "type")
        if type(block.get("isError", False)) is not bool:
            del block["isError"]
        message["content"] = [block]
        message["source"] = {"kind": "tool", "callId": block["toolCallId"]}
    return {**data, "message": message}


def _known(data: dict[str, object], cls: type[Any], *also: str) -> dict[str, object]:
    names = {*also, *cls.__struct_encode_fields__}
    return {key: value for key, value in data.items() if key in names}


# --- header ---------------------------------------------------------------------------------------

_RETIRED_HEADER_KEYS: Final = ("sandboxMode", "approvalPolicy")


def encode_header(header: SessionHeader) -> bytes:
    """The first line of a log, without its line end."""
    try:
        return _header_encoder.encode(header)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(header), ensure_ascii=False, separators=(",", ":"))
        return escape_surrogates(text)


def decode_header(line: bytes) -> SessionHeader:
    """The header in the first line of a log (without its line end). Fields that are not known are dropped.

    Raises:
        SessionUnsupportedError: another format version; this comes before any other check but that it is JSON.
        SessionCorruptError: it is no header.
    """
    plain = _header_json(line)
    fault = _header_fault(plain) or _place_fault(plain)
    if fault is not None:
        raise SessionCorruptError(f"the header is damaged: {fault}")
    plain.setdefault("delegationDepth", 0)  # older logs lack it
    return msgspec.convert(_known(plain, SessionHeader), SessionHeader)


def _header_json(line: bytes) -> dict[str, object]:
    try:
        plain = load_json(line)
    except ValueError as exc:
        raise SessionCorruptError(f"the header is not JSON: {exc}") from exc
    if not is_object(plain):
        raise SessionCorruptError(f"the header is a JSON object, not {line[:40]!r}")
    for key in ("createdAt", "delegationDepth"):
        value = plain.get(key)
        if type(value) is float and value == 0 and math.copysign(1.0, value) < 0:
            raise SessionCorruptError(f"the header is damaged: {key} is -0")
    if not make_integral(plain):
        raise SessionCorruptError("the header is damaged: a number is too large")
    version = plain.get("version")
    if type(version) in (int, float) and version != FORMAT_VERSION:
        newer = "a newer" if version > FORMAT_VERSION else "an unknown, older"  # type: ignore[operator]
        raise SessionUnsupportedError(
            f"the log has {newer} format version, {version}; this program reads version {FORMAT_VERSION}"
        )
    return plain


def _header_fault(plain: dict[str, object]) -> str | None:
    for key in _RETIRED_HEADER_KEYS:
        if key in plain:
            return f"it has the retired field {key!r}"
    if plain.get("type") != "session":
        return f"its type is {plain.get('type')!r}, not 'session'"
    if type(plain.get("version")) is not int:
        return f"its version is {plain.get('version')!r}, not {FORMAT_VERSION}"
    if type(plain.get("id")) is not str:
        return f"its id is a text, not {plain.get('id')!r}"
    if not is_nat(plain.get("createdAt")):
        return f"createdAt is an integer from 0, not {plain.get('createdAt')!r}"
    if not is_nat(plain.get("delegationDepth", 0)):
        return f"delegationDepth is an integer from 0, not {plain['delegationDepth']!r}"
    if plain.get("origin", "subagent") != "subagent":
        return f"origin is 'subagent' or absent, not {plain['origin']!r}"
    if type(plain.get("agentPreset", "")) is not str:
        return f"agentPreset is a text, not {plain['agentPreset']!r}"
    return None


def _place_fault(plain: dict[str, object]) -> str | None:
    cwd = plain.get("cwd", "/")
    if type(cwd) is not str or not is_absolute(cwd):
        return f"cwd is an absolute path, not {cwd!r}"
    if type(plain.get("parentSession", "")) is not str:
        return f"parentSession is a text, not {plain['parentSession']!r}"
    if not is_nat(plain.get("seedLength", 0)):
        return f"seedLength is an integer from 0, not {plain['seedLength']!r}"
    return None


def is_absolute(path: str) -> bool:
    """Whether a path is absolute, by the rules of POSIX or of Windows: a log may come from either."""
    return path.startswith(("/", "\\")) or (path[1:3] in (":\\", ":/") and path[0].isalpha())


_header_encoder: Final = msgspec.json.Encoder()
