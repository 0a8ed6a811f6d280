"""llm-mock-api, a double of three providers that others wrote, as a program. It prints its address; it ends with its stdin.

What the last message of a request says decides how it is answered.
"""

from __future__ import annotations

import asyncio
import sys

from llm_mock_api import MockServer
from llm_mock_api.mock_server import MockServerOptions
from llm_mock_api.types.reply import ErrorReply, ReplyObject, ReplyOptions, ToolCall, Usage

AT_ONCE = ReplyOptions(latency=0, chunk_size=4)


def add_rules(server: MockServer) -> None:
    usage = Usage(input=11, output=7)
    server.when("greet").reply(ReplyObject(text="Grüße aus Zürich: 你好 😀", usage=usage), AT_ONCE)
    server.when("think").reply(ReplyObject(reasoning="Let me see.", text="Seen.", usage=usage), AT_ONCE)
    calls = [
        ToolCall(id="call_a", name="find", args={"town": "Köln"}),
        ToolCall(id="call_b", name="find", args={"town": "Ulm"}),
    ]
    server.when("use tools").reply(ReplyObject(text="I look.", tools=calls, usage=usage), AT_ONCE)
    server.when_tool_result("call_b").reply("Found both.", AT_ONCE).first()
    server.when("slowly").reply(
        "one two three four five six seven eight", ReplyOptions(latency=20, chunk_size=4)
    )
    server.when("stay").reply("a" * 4000, ReplyOptions(latency=50, chunk_size=4))
    server.when("echo me").reply(
        lambda request: f"{request.model}|{request.system_message}|{request.last_message}"
    )
    for adapter in ("chat", "responses", "anthropic"):
        busy = ReplyObject(error=ErrorReply(status=503, message="busy"))
        server.when(f"flaky {adapter}").reply_sequence([busy, busy, "At last."])
    server.when("nothing").reply(ReplyObject(text="", usage=usage), AT_ONCE)
    for status, kind in (
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
    ):
        server.when(f"fail {status}").reply(
            ReplyObject(error=ErrorReply(status=status, message=f"told to fail with {status}", type=kind))
        )
    for status in (500, 529):
        server.when(f"fail {status}").reply(
            ReplyObject(error=ErrorReply(status=status, message=f"told to fail with {status}"))
        )


async def main() -> None:
    server = MockServer(MockServerOptions(default_latency=0, default_chunk_size=0))
    add_rules(server)
    async with server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
