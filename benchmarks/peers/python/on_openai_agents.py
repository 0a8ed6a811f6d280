"""The measured process of openai-agents: one `Agent` for each conversation; its input list, or a SQLite session."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN204, PTH118
# Runs in the peer's own environment; its packages are not installed beside ours.

from __future__ import annotations

import contextlib
import os

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.peers.python.cases import TEXT, main

set_tracing_disabled(True)
CONFIG = RunConfig(tracing_disabled=True)


class Fake(Model):
    def __init__(self, tool):
        self.tool, self.count = tool, 0

    async def get_response(self, system_instructions, input, *args, **kwargs):
        self.count += 1
        if self.tool and (isinstance(input, str) or input[-1].get("role") == "user"):
            made = ResponseFunctionToolCall(
                type="function_call", call_id=f"c{self.count}", name="echo", arguments='{"x":"1"}'
            )
        else:
            text = ResponseOutputText(type="output_text", text="ok", annotations=[])
            made = ResponseOutputMessage(
                id=f"m{self.count}", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[made], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


@function_tool
async def echo(x: str) -> str:
    """Give back what it got."""
    return x


class Conversation:
    def __init__(self, tool, session):
        self.agent = Agent(name="a", model=Fake(tool), tools=[echo] if tool else [])
        self.input = []
        self.session = session

    async def turn(self):
        if self.session:
            result = await Runner.run(self.agent, TEXT, session=self.session, run_config=CONFIG)
        else:
            said = [*self.input, {"role": "user", "content": TEXT}]
            result = await Runner.run(self.agent, said, run_config=CONFIG)
            self.input = result.to_input_list()
        assert result.final_output == "ok"

    async def close(self):
        if self.session:
            self.session.close()


class OpenAIAgents:
    packages = ("openai-agents", "openai", "pydantic")

    def __init__(self):
        self.directory = None
        self.count = 0

    async def make(self, *, tool=False, durable=False):
        self.count += 1
        path = os.path.join(self.directory, "sessions.db") if durable else None
        return Conversation(tool, SQLiteSession(f"s{self.count}", path) if path else None)

    @contextlib.asynccontextmanager
    async def durably(self, directory):
        self.directory = directory
        yield


if __name__ == "__main__":
    main(OpenAIAgents())
