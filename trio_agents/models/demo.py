"""A stand-in for a model, for the first steps without a key or a network. It is no language model.

It looks for names of files and folders, and for words to search, in what it is asked; it plans real calls of
the tools that are on offer; and it answers from what the tools returned. The same conversation gives the same
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, final

import attrs
import trio

from ..session._events import ToolSpec
from ..values._chunks import Chunk, Finish, Stop, ToolCalls
from ..values._json import JsonValue, dump_json, load_json
from ..values._messages import TokenUsage, ToolCallBlock
from ._blocks import BlockWriter
from ._contract import ModelInfo, ModelRequest
from ._history import Answered, Asked, Entry, Said, project
from ._rendering import texts

ABOUT: Final = "I am the demo model: a small program, no language model."

_MAX_CALLS: Final = 8
_PIECE: Final = re.compile(r"\S+\s*|\s+")
_QUOTED: Final = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|'([^'\n]+)'|“([^”\n]+)”")
_PATH: Final = re.compile(
    r"(?<![\w./-])(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9}\b|(?<![\w/.-])(?:[\w.-]+/)+[\w.-]*"
)
_URL: Final = re.compile(r"\w+://\S+")
_EXPLICIT: Final = re.compile(r"^/(\w[\w-]*)[ \t]*(\{.*\})?[ \t]*$", re.MULTILINE)
_LIST_WORDS: Final = re.compile(r"(?i)\b(list|ls|folders?|director(?:y|ies)|files|what is in|what's in)\b")
_SEARCH_WORDS: Final = re.compile(
    r"(?i)\b(search(?:es)?|find|grep|where|which files?|occurrences?|contains?)\b"
)
_DEFINED: Final = re.compile(r"(?i)\b(?:search(?: for)?|find|grep(?: for)?|where is|uses of)\s+([\w.]{3,})")


@final
class DemoModel:
    """A model adapter for `demo/...`, whatever the model's name. See the module's description.

    A line such as `/read {"path": "setup.py"}` in the input calls exactly that tool.

    Args:
        provider: the name before the slash.
        pace: seconds between two pieces of text; 0 is a bare checkpoint.
    """

    def __init__(self, provider: str = "demo", *, pace: float = 0.0) -> None:
        self._provider = provider
        self._pace = pace

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        return self._provider

    async def info(self, model: str) -> ModelInfo:
        """Every name will do; there is no context to fill."""
        await trio.lowlevel.checkpoint()
        return ModelInfo()

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Plan calls, or answer from their results."""
        await trio.lowlevel.checkpoint()
        entries = project(request.messages, provider=request.provider, model=request.model)
        question, done = _situation(entries)
        calls = [] if done else _plan(question, request.tools)
        text = _announcement(calls) if calls else _answer(question, done, request.tools)
        blocks = BlockWriter(emit)
        for piece in _PIECE.findall(text):
            await trio.sleep(self._pace)
            blocks.text(piece)
        blocks.close_prose()
        spent = len(text)
        for number, call in enumerate(calls, 1):
            await trio.sleep(self._pace)
            arguments = dump_json(call.arguments).decode()
            spent += len(arguments)
            blocks.call(number, f"demo-{request.turn}-{request.step}-{number}", call.tool, arguments)
            blocks.finish_call(number)
        blocks.usage(TokenUsage(input_tokens=_tokens(_size(entries)), output_tokens=_tokens(spent)))
        emit(Finish(reason=ToolCalls() if calls else Stop()))


@final
@attrs.frozen
class _Call:
    tool: str
    arguments: dict[str, JsonValue]


# --- reading the conversation -------------------------------------------------------------------------


def _situation(entries: list[Entry]) -> tuple[str, list[tuple[ToolCallBlock, Answered]]]:
    """The last input, and the calls made for it with their results."""
    question: list[str] = []
    done: list[tuple[ToolCallBlock, Answered]] = []
    calls: dict[str, ToolCallBlock] = {}
    for entry in entries:
        if isinstance(entry, Asked):
            question = texts(entry.content)
            done = []
        elif isinstance(entry, Said):
            for part in entry.parts:
                if isinstance(part.block, ToolCallBlock):
                    calls[part.block.id] = part.block
        else:
            done.append((calls[entry.call_id], entry))
    return "\n".join(question), done


def _size(entries: list[Entry]) -> int:
    size = 0
    for entry in entries:
        content = [part.block for part in entry.parts] if isinstance(entry, Said) else entry.content
        size += sum(map(len, texts(content)))
    return size


def _tokens(characters: int) -> int:
    return (characters + 3) // 4


# --- planning -----------------------------------------------------------------------------------------


def _plan(question: str, tools: tuple[ToolSpec, ...]) -> list[_Call]:
    offered = {tool.name: _properties(tool) for tool in tools}
    explicit = list(_explicit_calls(question, offered))
    if explicit:
        return explicit[:_MAX_CALLS]
    calls: list[_Call] = []
    for call in _implied_calls(question, offered):
        if call not in calls:
            calls.append(call)
    return calls[:_MAX_CALLS]


def _properties(tool: ToolSpec) -> frozenset[str]:
    schema = tool.parameters.value
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties) if isinstance(properties, dict) else frozenset()


def _explicit_calls(question: str, offered: dict[str, frozenset[str]]) -> Iterator[_Call]:
    for match in _EXPLICIT.finditer(question):
        if match[1] not in offered:
            continue
        try:
            arguments = load_json(match[2]) if match[2] else {}
        except ValueError:
            continue
        if isinstance(arguments, dict):
            yield _Call(match[1], arguments)


def _implied_calls(question: str, offered: dict[str, frozenset[str]]) -> Iterator[_Call]:
    question = _URL.sub(" ", question)
    quoted = [next(filter(None, groups)).strip() for groups in _QUOTED.findall(question)]
    words = [text for text in quoted if text and not _PATH.fullmatch(text)]
    paths = _paths(
        _QUOTED.sub(lambda match: " " if match.group()[1:-1].strip() in words else match.group(), question)
    )
    folders = [path for path in paths if _is_folder(path)]
    searched = False
    if _SEARCH_WORDS.search(question) and "pattern" in offered.get("grep", ()):
        for word in words or _DEFINED.findall(question):
            if word not in paths:
                searched = True
                yield _Call("grep", {"pattern": re.escape(word), "path": (folders or ["."])[0]})
    if "path" in offered.get("read", ()):
        for path in paths:
            if not _is_folder(path):
                yield _Call("read", {"path": path})
    if "path" in offered.get("list", ()):
        for path in folders:
            yield _Call("list", {"path": path.rstrip("/") or "."})
        if not paths and not searched and _LIST_WORDS.search(question):
            yield _Call("list", {"path": "."})


def _paths(text: str) -> list[str]:
    found = [match.group().rstrip(".,:;") for match in _PATH.finditer(text)]
    return list(dict.fromkeys(path for path in found if path.strip("./")))


def _is_folder(path: str) -> bool:
    return path.endswith("/") or "." not in path.rsplit("/", 1)[-1]


# --- answering ----------------------------------------------------------------------------------------


def _announcement(calls: list[_Call]) -> str:
    plans = ", ".join(f"{call.tool} {_target(call.arguments)}".rstrip() for call in calls)
    return f"{ABOUT} Going by the names in your message I will use: {plans}."


def _target(arguments: JsonValue) -> str:
    if not isinstance(arguments, dict):
        return ""
    shown = [arguments[name] for name in ("pattern", "path") if isinstance(arguments.get(name), str)]
    return " in ".join(f"'{value}'" for value in shown)


def _answer(question: str, done: list[tuple[ToolCallBlock, Answered]], tools: tuple[ToolSpec, ...]) -> str:
    if done:
        return "\n\n".join(_report(call, result) for call, result in done)
    names = ", ".join(tool.name for tool in tools) or "none"
    shown = " ".join(question.split())
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return (
        f"{ABOUT} I cannot answer questions; I can read, list and search what you name, if there are tools for it "
        f"(on offer: {names}). You wrote: {shown}\n"
        "For a real answer choose a real model, such as --model openai/gpt-5 with OPENAI_API_KEY set."
    )


def _report(call: ToolCallBlock, result: Answered) -> str:
    try:
        arguments = load_json(call.arguments)
    except ValueError:
        arguments = None
    head = f"{call.name} {_target(arguments)}".rstrip()
    text = "\n".join(texts(result.content)).strip()
    if result.is_error:
        return f"{head} failed: {text or 'no reason given'}"
    if not text:
        return f"{head} gave nothing."
    lines = text.splitlines()
    shown = "\n".join(f"    {line[:160]}" for line in lines[:5])
    count = f"{len(lines)} line{'s' if len(lines) != 1 else ''}"
    more = "" if len(lines) <= 5 else f"\n    ... ({len(lines) - 5} more)"
    return f"{head} gave {count}:\n{shown}{more}"
