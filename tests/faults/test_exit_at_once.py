"""A process that ends the moment its agent is idle has lost nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trio_agents import JsonlStore
from trio_agents.session import TurnEnd

PROGRAM = """
import os, signal, sys, trio, trio_agents as ta
from trio_agents.models import Reply, ScriptedModel

async def main():
    model = ScriptedModel([Reply.text("the answer")])
    async with ta.open_runtime(store=ta.JsonlStore(sys.argv[1]), models=[model]) as runtime:
        handle = await runtime.agents.create("s", options=ta.AgentOptions(model="scripted/m"))
        handle.agent.followup("go")
        await handle.agent.when_idle()
        if sys.argv[2] == "exit":
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
async def test_the_last_answer_is_there(tmp_path: Path, how: str) -> None:
    """L10, PER-10: when `when_idle` returns, the turn is stored."""
    done = subprocess.run(  # noqa: ASYNC221  nothing else runs in this test
        [sys.executable, "-c", PROGRAM, str(tmp_path), how], capture_output=True, check=False
    )
    assert done.returncode == (0 if how == "exit" else -9), done.stderr

    stored = await JsonlStore(tmp_path).inspect("s")
    assert stored.status == "closed"
    assert stored.stored == len(stored.events)
    assert type(stored.events[-1].data) is TurnEnd
    assert any("the answer" in str(event.data) for event in stored.events)
