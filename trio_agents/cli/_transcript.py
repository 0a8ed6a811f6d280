"""Showing a turn while it happens: its answer on stdout, everything else on stderr; or all of it as JSON lines."""

from __future__ import annotations

from typing import Protocol, final

from msgspec import UNSET

from ..session import AssistantChunk, AssistantMessage, Event, LlmRetry, StepEnd, ToolCall, ToolResult
from ..values import JsonValue, TextBlock, TextDelta, ToolResultBlock
from ._console import note, shorten, write, write_json

_WIDTH = 100


class Transcript(Protocol):
    """Something that shows the events of a turn."""

    def begin(self, session_id: str, path: str | None, model: str, *, is_demo: bool) -> None:
        """The agent stands."""
        ...

    def show(self, event: Event) -> None:
        """An event has been logged."""
        ...

    def end(self, turn: int | None, kind: str, detail: str | None) -> None:
        """The turn is over."""
        ...


@final
class TextTranscript:
    """For people and pipes."""

    def __init__(self) -> None:
        self._is_mid_line = False
        self._names: dict[str, str] = {}

    def begin(self, session_id: str, path: str | None, model: str, *, is_demo: bool) -> None:
        """Say where the log lies and who answers."""
        note(f"session {session_id}, log {path}")
        if is_demo:
            note(f"model {model}: no language model, only a small program; --model names a real one")
        else:
            note(f"model {model}")

    def show(self, event: Event) -> None:
        """Show an event, if there is something to see."""
        data = event.data
        if isinstance(data, AssistantChunk):
            if isinstance(data.chunk, TextDelta) and data.chunk.text:
                write(data.chunk.text)
                self._is_mid_line = not data.chunk.text.endswith("\n")
        elif isinstance(data, ToolCall):
            self._names[data.call_id] = data.name
            self._line(f"> {data.name} {shorten(data.arguments, _WIDTH)}")
        elif isinstance(data, ToolResult):
            self._line(f"< {self._result(data)}")
        elif isinstance(data, LlmRetry):
            self._line(
                f"~ {shorten(data.failure.message, _WIDTH)}; trying again in {data.delay_ms / 1000:g} s"
            )
        elif isinstance(data, StepEnd):
            self._break()

    def _result(self, data: ToolResult) -> str:
        [block] = data.message.content
        text, failed = "", False
        if isinstance(block, ToolResultBlock):
            text = "".join(part.text for part in block.content if isinstance(part, TextBlock))
            failed = block.is_error is True
        name = self._names.get(getattr(data.message.source, "call_id", ""), "tool")
        lines = text.count("\n") + 1
        more = f" (+{lines - 1} lines)" if lines > 1 else ""
        first = text.partition("\n")[0] if text else "(nothing)"
        return f"{name} {'failed: ' if failed else ''}{shorten(first, _WIDTH)}{more}"

    def _break(self) -> None:
        if self._is_mid_line:
            write("\n")
            self._is_mid_line = False

    def _line(self, text: str) -> None:
        self._break()
        note(text)

    def end(self, turn: int | None, kind: str, detail: str | None) -> None:
        """Close the last line, and say how it ended if that is not the usual way."""
        self._break()
        if kind not in {"completed", "error"}:
            note(f"turn {turn} ended: {kind}{f' ({detail})' if detail else ''}")


@final
class JsonTranscript:
    """For programs: one JSON object on each line."""

    def begin(self, session_id: str, path: str | None, model: str, *, is_demo: bool) -> None:
        """The first line."""
        write_json(
            {
                "type": "session",
                "session": session_id,
                "path": path,
                "model": model,
                "is_language_model": not is_demo,
            }
        )

    def show(self, event: Event) -> None:
        """A line for each piece of text, each answer, each call and each result."""
        line = self.line(event)
        if line is not None:
            write_json(line)

    def line(self, event: Event) -> dict[str, JsonValue] | None:
        """What is told of an event, or None if nothing is."""
        line = self._line(event.data)
        return None if line is None else {**line, "seq": event.seq}

    def _line(self, data: object) -> dict[str, JsonValue] | None:
        if isinstance(data, AssistantChunk):
            if isinstance(data.chunk, TextDelta):
                return {"type": "text", "turn": data.turn, "step": data.step, "text": data.chunk.text}
        elif isinstance(data, AssistantMessage):
            usage: JsonValue = None
            if data.usage is not UNSET:
                usage = {"input_tokens": data.usage.input_tokens, "output_tokens": data.usage.output_tokens}
            return {
                "type": "answer",
                "turn": data.turn,
                "step": data.step,
                "text": data.message.text,
                "interrupted": data.interrupted is True,
                "usage": usage,
            }
        elif isinstance(data, ToolCall):
            return {
                "type": "tool_call",
                "turn": data.turn,
                "step": data.step,
                "call_id": data.call_id,
                "name": data.name,
                "arguments": data.arguments,
            }
        elif isinstance(data, ToolResult):
            return self._result(data)
        elif isinstance(data, LlmRetry):
            return {"type": "retry", "turn": data.turn, "step": data.step, "message": data.failure.message}
        return None

    def _result(self, data: ToolResult) -> dict[str, JsonValue]:
        [block] = data.message.content
        text = ""
        if isinstance(block, ToolResultBlock):
            text = "".join(part.text for part in block.content if isinstance(part, TextBlock))
        return {
            "type": "tool_result",
            "turn": data.turn,
            "step": data.step,
            "call_id": getattr(data.message.source, "call_id", ""),
            "is_error": isinstance(block, ToolResultBlock) and block.is_error is True,
            "error": None if data.error is UNSET else data.error.code,
            "text": text,
        }

    def end(self, turn: int | None, kind: str, detail: str | None) -> None:
        """The last line."""
        write_json({"type": "end", "turn": turn, "end": kind, "detail": detail})
