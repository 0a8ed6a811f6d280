"""The measured process of pydantic-ai: one `Agent` for each conversation, its history handed back to it."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, PTH118, PTH123
# Runs in the peer's own environment; its packages are not installed beside ours.

from __future__ import annotations

import contextlib
import os

from pydantic_ai import Agent, models
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from benchmarks.peers.python.cases import TEXT, main

models.ALLOW_MODEL_REQUESTS = False


def answer(messages, info):
    return ModelResponse(parts=[TextPart("ok")])


def call_then_answer(messages, info):
    if messages[-1].parts[0].part_kind == "user-prompt":
        return ModelResponse(parts=[ToolCallPart("echo", {"x": "1"})])
    return ModelResponse(parts=[TextPart("ok")])


async def echo(x: str) -> str:
    """Give back what it got."""
    return x


PLAIN, TOOL = FunctionModel(answer), FunctionModel(call_then_answer)


class Conversation:
    def __init__(self, tool, path):
        self.agent = Agent(TOOL, tools=[echo]) if tool else Agent(PLAIN)
        self.history = None
        self.file = open(path, "ab", buffering=0) if path else None  # noqa: SIM115 - closed by close

    async def turn(self):
        result = await self.agent.run(TEXT, message_history=self.history)
        assert result.output == "ok"
        self.history = result.all_messages()
        if self.file:
            self.file.write(result.new_messages_json() + b"\n")
            os.fsync(self.file.fileno())

    async def close(self):
        if self.file:
            self.file.close()


class PydanticAI:
    packages = ("pydantic-ai-slim", "pydantic")

    def __init__(self):
        self.directory = None
        self.count = 0

    async def make(self, *, tool=False, durable=False):
        self.count += 1
        return Conversation(tool, os.path.join(self.directory, f"{self.count}.jsonl") if durable else None)

    @contextlib.asynccontextmanager
    async def durably(self, directory):
        self.directory = directory
        yield


if __name__ == "__main__":
    main(PydanticAI())
