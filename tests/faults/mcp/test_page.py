"""The two servers of the how-to page, as programs, with real clients."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import trio_agents as ta
from tests.faults.mcp.servers import use
from trio_agents.plugins.mcp import HttpServer, StdioServer, connect_mcp

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "mcp.md"
STDIO, HTTP = re.findall(r'```python test="skip"\n(.*?)```', PAGE.read_text(), re.DOTALL)

pytestmark = pytest.mark.slow


async def test_over_standard_input_and_output(runtime: ta.Runtime, tmp_path: Path) -> None:
    server = StdioServer(sys.executable, ["-c", STDIO], env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    await connect_mcp(runtime.scope, server, name="clerk")
    tool = runtime.tools.get("clerk_ask")
    assert tool is not None
    assert tool.description == "Ask the clerk of the shop."
    assert "demo model" in (await use(runtime, "clerk_ask", {"message": "Who are you?"})).text
    assert len(list((tmp_path / "sessions").rglob("mcp-*"))) > 0


@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
async def test_over_http(runtime: ta.Runtime, tmp_path: Path, unused_port: int, swept: None) -> None:
    program = HTTP.replace("127.0.0.1:8000", f"127.0.0.1:{unused_port}")
    assert program != HTTP
    with subprocess.Popen(  # noqa: ASYNC220 - it is waited for below
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path, stderr=subprocess.PIPE
    ) as process:
        try:
            with trio.fail_after(30):
                while True:
                    try:
                        await connect_mcp(
                            runtime.scope, HttpServer(f"http://127.0.0.1:{unused_port}/mcp"), name="clerk"
                        )
                    except ta.ToolServerError:
                        await trio.sleep(0.05)
                    else:
                        break
            assert "demo model" in (await use(runtime, "clerk_ask", {"message": "Who are you?"})).text
        finally:
            process.kill()
