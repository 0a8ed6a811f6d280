"""Answering from a recording."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.unit.models.samples import collect, request
from trio_agents.errors import ModelError, SessionLogError, UsageError
from trio_agents.models import ModelInfo, ReplayModel, recorded_attempts
from trio_agents.session import (
    AdapterDefaults,
    AssistantChunk,
    Event,
    Header,
    RequestConfig,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    TurnEnd,
)
from trio_agents.session._packing import decode_record
from trio_agents.values import COMPLETED, Chunk, Finish, FinishError, LlmFailure, Stop, TextDelta

LOGS = Path(__file__).parents[3] / "../shared/data/harness-logs"


def recording(*payloads: Any) -> list[Event]:
    return [Event(type=data.wire_type, seq=seq, time=0, data=data) for seq, data in enumerate(payloads)]


def header(provider: str = "p", model: str = "m", **fields: Any) -> RequestHeader:
    config = RequestConfig(provider=provider, model=model, **fields.pop("config", {}))
    return RequestHeader(header=Header(config=config, **fields), reason="initial")


def chunk(what: Chunk | str, turn: int = 1, step: int = 1) -> AssistantChunk:
    what = TextDelta(index=0, text=what) if isinstance(what, str) else what
    return AssistantChunk(turn=turn, step=step, chunk=what)


STOP = Finish(reason=Stop())
FAILED = Finish(reason=FinishError(failure=LlmFailure(message="busy", code="SERVER")))


def texts(chunks: Iterable[Chunk]) -> list[str]:
    return [part.text if isinstance(part, TextDelta) else part.tag for part in chunks]


async def test_each_request_gets_the_next_attempt() -> None:
    model = ReplayModel(
        recording(
            header(),
            StepStart(turn=1, step=1),
            chunk("a"),
            chunk(STOP),
            StepEnd(turn=1, step=1),
            StepStart(turn=1, step=2),
            chunk("b", step=2),
            chunk(STOP, step=2),
        )
    )
    assert model.provider == "p"
    assert model.remaining == 2
    assert texts(await collect(model)) == ["a", "finish"]
    assert texts(await collect(model)) == ["b", "finish"]
    assert model.remaining == 0
    with pytest.raises(ModelError, match=r"holds 2 attempts.*turn 3, step 4") as caught:
        await collect(model, request(turn=3, step=4))
    assert caught.value.code == "REPLAY_EXHAUSTED"


async def test_a_retry_in_the_same_step_is_another_attempt() -> None:
    """ERR-2: chunks are split by their finish, not by turn and step; a failure fails again."""
    model = ReplayModel(
        recording(header(), chunk("a"), chunk(FAILED), chunk(FAILED), chunk("b"), chunk(STOP))
    )
    assert texts(await collect(model)) == ["a", "finish"]
    assert await collect(model) == [FAILED]
    assert texts(await collect(model)) == ["b", "finish"]


@pytest.mark.parametrize(
    "end", [[], [StepEnd(turn=1, step=1)], [TurnEnd(turn=1, reason=COMPLETED)], [StepStart(turn=2, step=1)]]
)
async def test_a_cut_attempt_waits_for_its_cancel(end: list, autojump_clock: trio.testing.MockClock) -> None:
    more = [*end, chunk("b", turn=2), chunk(STOP, turn=2)] if end else []
    model = ReplayModel(recording(header(), chunk("a"), *more))
    seen: list[Chunk] = []
    with trio.move_on_after(5) as scope:
        await model.stream(request(), seen.append)
    assert scope.cancelled_caught
    assert texts(seen) == ["a"]
    if end:
        assert texts(await collect(model)) == ["b", "finish"]


async def test_a_step_without_a_chunk_waits_too(autojump_clock: trio.testing.MockClock) -> None:
    """A request that was cancelled before its first chunk must not be given the next step's answer."""
    model = ReplayModel(
        recording(
            header(),
            StepStart(turn=1, step=1), StepEnd(turn=1, step=1),
            StepStart(turn=2, step=1), chunk("b", turn=2), chunk(STOP, turn=2), StepEnd(turn=2, step=1),
            StepStart(turn=3, step=1),
        )
    )  # fmt: skip
    for turn in (1, 3):
        with trio.move_on_after(5) as scope:
            await model.stream(request(turn=turn), lambda chunk: None)
        assert scope.cancelled_caught
        if turn == 1:
            assert texts(await collect(model, request(turn=2))) == ["b", "finish"]


async def test_what_was_known_of_a_model_is_known_again() -> None:
    """HDR-7."""
    log = recording(
        header(
            config={"max_tokens": 9, "reasoning_effort": "high"},
            adapter_defaults=AdapterDefaults(max_tokens=True),
        ),
        RequestContext(provider="p", model="m", context_window=100),
        chunk(STOP),
        RequestContext(provider="p", model="m"),
        chunk(STOP),
        header(
            "q",
            "n",
            config={"reasoning_effort": "low"},
            adapter_defaults=AdapterDefaults(reasoning_effort=True),
        ),
    )
    model, other = ReplayModel.for_each_provider(log)
    assert await model.info("m") == ModelInfo(context_window=100, default_max_tokens=9)
    await collect(model)
    assert await model.info("m") == ModelInfo(default_max_tokens=9)
    assert await model.info("unheard of") == ModelInfo()
    assert await other.info("n") == ModelInfo(default_effort="low")


async def test_providers_share_one_recording() -> None:
    log = recording(header("p"), chunk("a"), chunk(STOP), header("q"), chunk("b"), chunk(STOP))
    first, second = ReplayModel.for_each_provider(log)
    assert (first.provider, second.provider) == ("p", "q")
    assert texts(await collect(first)) == ["a", "finish"]
    assert first.remaining == second.remaining == 1
    assert texts(await collect(second)) == ["b", "finish"]
    assert [(one.provider, one.whole) for one in recorded_attempts(log)] == [("p", True), ("q", True)]
    with pytest.raises(UsageError, match="no request header"):
        ReplayModel.for_each_provider([])
    assert ReplayModel([], "named").provider == "named"


async def test_a_replayer_may_act_before_each_chunk() -> None:
    seen: list[object] = []

    async def before(event: Event) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(event.seq)

    model = ReplayModel(recording(header(), chunk("a"), chunk(STOP)), before_chunk=before)
    await model.stream(request(), lambda chunk: seen.append(chunk.tag))
    assert seen == [1, "text-delta", 2, "finish"]


@pytest.mark.skipif(not LOGS.is_dir(), reason="the recorded logs are not here")
def test_recorded_logs_are_cut_into_whole_attempts() -> None:
    """Every recorded stream of the real logs that has a finish is one attempt, and nothing is left over."""
    count = 0
    for path in sorted(LOGS.glob("*.jsonl")):
        events: list[Event] = []
        try:
            for line in path.read_bytes().split(b"\n")[1:-1]:
                record = decode_record(line, seq=len(events))
                events += [record] if isinstance(record, Event) else record.expand()
        except SessionLogError:
            continue  # one of those that are broken on purpose
        attempts = recorded_attempts(events)
        assert [event for attempt in attempts for event in attempt.events] == [
            event for event in events if event.type == "assistant/chunk"
        ]
        finished = sum(
            type(event.data.chunk) is Finish for event in events if event.type == "assistant/chunk"
        )
        assert sum(attempt.whole for attempt in attempts) == finished
        count += len(attempts)
    assert count > 100
