"""Limits of a provider: who begins when, what a cancel leaves, and what one request's Retry-After does to the others."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.unit.models.samples import collect, request
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import Gate, Limited, Limits, Reply, ScriptedModel
from trio_agents.values import Chunk, LlmFailure, TokenUsage

MockClock = trio.testing.MockClock
SETTLE = trio.testing.wait_all_tasks_blocked


def used(tokens: int) -> Reply:
    return Reply.text("ok", usage=TokenUsage(input_tokens=tokens - 1, output_tokens=1))


def busy(seconds: float) -> Reply:
    return Reply.fail(ModelError("busy", code="RATE_LIMIT", retry_after_ms=seconds * 1000))


class Crowd:
    """Requests to one limited model, all begun in order, and when each of them began and ended."""

    def __init__(self, script: Any, **limits: Any) -> None:
        self.limits = Limits(**limits)
        self.began: list[tuple[str, float]] = []
        self.failed: list[tuple[str, float, ModelError]] = []
        self.running = self.most = 0
        self.start = trio.current_time()
        replies = iter(script) if isinstance(script, list) else None

        def answer(asked: Any) -> Any:
            self.began.append((asked.session_id, self.now))
            return script if replies is None else next(replies)

        self.model = Limited(ScriptedModel(answer, strict=False), self.limits)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return round(trio.current_time() - self.start, 6)

    async def ask(self, name: str) -> None:
        """One request."""
        try:
            await self.model.stream(attrs.evolve(request(provider="scripted"), session_id=name), self.emit)
        except ModelError as error:
            self.failed.append((name, self.now, error))

    def emit(self, chunk: Chunk) -> None:
        self.most = max(self.most, self.limits.running)

    async def ask_all(self, count: int) -> None:
        """So many requests at once."""
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(self.ask, f"{number}")
                await SETTLE()
        assert (self.limits.running, self.limits.waiting) == (0, 0)


# --- one after the other ------------------------------------------------------------------------------


async def test_no_more_at_a_time_and_in_order(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok").delayed(2), concurrency=3)
    await crowd.ask_all(8)
    assert crowd.began == [(str(n), n // 3 * 2.0) for n in range(8)]
    assert crowd.most == 3


async def test_no_more_in_any_sixty_seconds(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok"), requests_per_minute=2, max_wait=None)
    await crowd.ask("a")
    await trio.sleep(50)
    await crowd.ask_all(5)
    assert [at for _, at in crowd.began] == [0, 50, 60, 110, 120, 170]


async def test_tokens_count_when_they_are_known(autojump_clock: MockClock) -> None:
    crowd = Crowd([used(60), used(60), used(10), used(10)], tokens_per_minute=100, max_wait=None)
    for name in "abcd":
        await crowd.ask(name)
    assert [at for _, at in crowd.began] == [0, 0, 60, 60]


async def test_a_request_under_way_counts_with_the_mean_of_those_before_it(autojump_clock: MockClock) -> None:
    crowd = Crowd([used(60), *[used(60).delayed(5)] * 3], tokens_per_minute=100, max_wait=None)
    await crowd.ask("first")
    await crowd.ask_all(3)
    assert [at for _, at in crowd.began] == [0, 0, 60, 60]


async def test_a_request_larger_than_the_limit_is_let_through_alone(autojump_clock: MockClock) -> None:
    crowd = Crowd([used(500), used(500), used(500)], tokens_per_minute=100, max_wait=None)
    for name in "abc":
        await crowd.ask(name)
    assert [at for _, at in crowd.began] == [0, 60, 120]


async def test_an_answer_that_ends_after_its_minute(autojump_clock: MockClock) -> None:
    crowd = Crowd([used(90).delayed(100), used(90), used(90)], tokens_per_minute=100, max_wait=None)
    await crowd.ask("a")
    await crowd.ask("b")
    await crowd.ask("c")
    assert [at for _, at in crowd.began] == [0, 100, 100]


async def test_all_limits_hold_together(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok").delayed(25), concurrency=2, requests_per_minute=3, max_wait=None)
    await crowd.ask_all(6)
    assert [at for _, at in crowd.began] == [0, 0, 25, 60, 60, 85]


async def test_without_limits_nothing_waits(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok").delayed(1))
    await crowd.ask_all(20)
    assert {at for _, at in crowd.began} == {0}


# --- waits that end otherwise -------------------------------------------------------------------------


async def test_a_cancel_while_waiting_leaves_nothing_taken(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok").delayed(10), concurrency=1, requests_per_minute=2)
    scopes = {name: trio.CancelScope() for name in "abcd"}

    async def ask(name: str) -> None:
        with scopes[name]:
            await crowd.ask(name)

    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(ask, name)
            await SETTLE()
        assert crowd.limits.waiting == 3
        scopes["c"].cancel()  # in the middle of the queue
        await SETTLE()
        assert (crowd.limits.running, crowd.limits.waiting) == (1, 2)
        scopes["b"].cancel()  # its head
        await SETTLE()
        assert (crowd.limits.running, crowd.limits.waiting) == (1, 1)
    assert crowd.began == [("a", 0), ("d", 10)]
    assert (crowd.limits.running, crowd.limits.waiting) == (0, 0)


async def test_a_cancel_in_the_moment_of_its_turn() -> None:
    """The place goes to the next one, and the request of the cancelled one does not begin."""
    gate = Gate()
    crowd = Crowd([Reply.text("ok").gated(gate), "ok"], concurrency=1)
    scope = trio.CancelScope()

    async def first() -> None:
        await crowd.ask("a")
        scope.cancel()  # the next one is awake, but has not run yet

    async def second() -> None:
        with scope:
            await crowd.ask("b")

    async with trio.open_nursery() as nursery:
        for task in (first, second, lambda: crowd.ask("c")):
            nursery.start_soon(task)
            await SETTLE()
        gate.opened.set()
    assert [name for name, _ in crowd.began] == ["a", "c"]


async def test_a_cancelled_or_failed_request_gives_its_place_back(autojump_clock: MockClock) -> None:
    crowd = Crowd([Reply.hang(), Reply.fail("SERVER"), Reply.fail(LookupError("x")), "ok"], concurrency=1)
    with trio.move_on_after(3):
        await crowd.ask("a")
    await crowd.ask("b")
    with pytest.raises(LookupError):
        await crowd.ask("c")
    await crowd.ask("d")
    assert [name for name, _ in crowd.began] == ["a", "b", "c", "d"]
    assert crowd.limits.running == 0


async def test_a_wait_that_is_too_long(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok").delayed(100), concurrency=1, max_wait=30)
    await crowd.ask_all(3)
    assert {(name, at, error.code) for name, at, error in crowd.failed} == {
        ("1", 30, "RATE_LIMIT"), ("2", 30, "RATE_LIMIT"),
    }  # fmt: skip
    error = crowd.failed[0][2]
    assert "has waited 30 s; Limits(concurrency=1) and 1 other requests" in str(error)
    assert error.retry_after_ms is None


async def test_a_wait_that_is_known_to_be_too_long_is_not_begun(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok"), requests_per_minute=1, max_wait=30)
    await crowd.ask("a")
    await trio.sleep(10)
    await crowd.ask("b")
    [(name, at, error)] = crowd.failed
    assert (name, at, error.code, error.retry_after_ms) == ("b", 10, "RATE_LIMIT", 50_000)
    assert "would have to wait 50 s" in str(error)


async def test_no_wait_at_all(autojump_clock: MockClock) -> None:
    crowd = Crowd(Reply.text("ok").delayed(5), concurrency=1, max_wait=0)
    await crowd.ask_all(2)
    assert [(name, at) for name, at, _ in crowd.failed] == [("1", 0)]


# --- what a provider asks for -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["raise", "in band"])
async def test_retry_after_of_one_holds_back_the_others(how: str, autojump_clock: MockClock) -> None:
    failure = LlmFailure(message="busy", code="RATE_LIMIT", provider_retry_after_ms=20_000)
    first = busy(20) if how == "raise" else Reply.finish_error(failure)
    crowd = Crowd([first, busy(5), "ok", "ok"], concurrency=1)
    await crowd.ask_all(4)
    assert crowd.began == [("0", 0), ("1", 20), ("2", 25), ("3", 25)]


async def test_those_who_wait_are_told_when_it_gets_too_long(autojump_clock: MockClock) -> None:
    crowd = Crowd([busy(300).delayed(1), "ok"], concurrency=1, max_wait=60)
    await crowd.ask_all(3)
    assert [(name, at, error.retry_after_ms) for name, at, error in crowd.failed] == [
        ("0", 1, 300_000), ("1", 1, 300_000), ("2", 1, 300_000),
    ]  # fmt: skip
    await trio.sleep(300)
    await crowd.ask("late")
    assert crowd.began[-1] == ("late", 301)


async def test_a_provider_is_asked_again_after_an_hour(autojump_clock: MockClock) -> None:
    crowd = Crowd([busy(10**9), "ok"])
    await crowd.ask("a")
    await trio.sleep(3600)
    await crowd.ask("b")
    assert crowd.began[-1] == ("b", 3600)


async def test_two_adapters_share_their_limits(autojump_clock: MockClock) -> None:
    limits = Limits(requests_per_minute=1)
    one, two = (Limited(ScriptedModel(Reply.text("ok"), name, strict=False), limits) for name in "ab")
    start = trio.current_time()
    await collect(one)
    await collect(two)
    assert trio.current_time() - start == pytest.approx(60)


# --- agents -------------------------------------------------------------------------------------------


async def test_a_hundred_agents(autojump_clock: MockClock) -> None:
    """Each gets its answer; no more than allowed are ever under way; the first come are the first served."""
    order: list[str] = []

    def answer(asked: Any) -> Reply:
        order.append(asked.session_id)
        most.append(limits.running)
        return Reply.text("ok").delayed(1)

    most: list[int] = []
    limits = Limits(concurrency=10, max_wait=None)
    model = Limited(ScriptedModel(answer), limits)
    async with ta.open_runtime(models=[model]) as runtime:
        agents = [
            (await runtime.agents.create(options=ta.AgentOptions(model="scripted/m"))).agent
            for _ in range(100)
        ]
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for agent in agents:
                nursery.start_soon(agent.ask, "hello")
        assert trio.current_time() - start == pytest.approx(10)
        assert sorted(order) == sorted(agent.id for agent in agents)
        assert max(most) == 10
        assert (limits.running, limits.waiting) == (0, 0)


async def test_a_hundred_agents_and_a_busy_provider(autojump_clock: MockClock) -> None:
    """Retry-After of one agent spares the provider the requests of the others; with the retry policy all succeed."""
    began: list[float] = []

    def answer(asked: Any) -> Reply:
        began.append(trio.current_time() - start)
        return busy(8) if len(began) == 3 else Reply.text("ok").delayed(1)

    limits = Limits(concurrency=2, max_wait=None)
    async with ta.open_runtime(models=[Limited(ScriptedModel(answer), limits)]) as runtime:
        agents = [
            (await runtime.agents.create(options=ta.AgentOptions(model="scripted/m"))).agent
            for _ in range(100)
        ]
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for agent in agents:
                nursery.start_soon(agent.ask, "hello")
    assert len(began) == 101
    assert [at for at in began if 1.1 < at < 8.9] == []


async def test_a_cancelled_agent_waits_no_longer(autojump_clock: MockClock) -> None:
    """D8: `stop` reaches a request that has not begun."""
    limits = Limits(concurrency=1)
    model = Limited(ScriptedModel([Reply.text("ok").delayed(50), "ok"]), limits)
    async with (
        ta.open_runtime(models=[model]) as runtime,
        runtime.open_agent(model="scripted/m") as first,
        runtime.open_agent(model="scripted/m") as second,
    ):
        first.followup("a")
        await trio.sleep(1)
        second.followup("b")
        await trio.sleep(1)
        assert (limits.running, limits.waiting) == (1, 1)
        start = trio.current_time()
        await second.stop()
        assert trio.current_time() == start
        assert (limits.running, limits.waiting) == (1, 0)
        await first.when_idle()


async def test_a_wait_beyond_the_agents_own_deadline_is_its_timeout(autojump_clock: MockClock) -> None:
    limits = Limits(concurrency=1, max_wait=None)
    model = Limited(ScriptedModel([Reply.text("ok").delayed(500), "ok"]), limits)
    async with (
        ta.open_runtime(models=[model], plugins=[]) as runtime,
        runtime.open_agent(model="scripted/m", first_byte_timeout=None) as first,
        runtime.open_agent(model="scripted/m", first_byte_timeout=40) as second,
    ):
        first.followup("a")
        await trio.sleep(1)
        with pytest.raises(ta.TurnFailed, match="no answer for 40 seconds"):
            await second.ask("b")
        assert limits.waiting == 0


async def test_where_one_provider_is_full_the_next_one_answers(autojump_clock: MockClock) -> None:
    full = Limited(ScriptedModel(Reply.text("slow").delayed(100), "one"), Limits(concurrency=1, max_wait=5))
    plugins = [ta.Fallback("best", ["one/a", "two/b"])]
    async with (
        ta.open_runtime(models=[full, ScriptedModel(["quick"], "two")], plugins=plugins) as runtime,
        runtime.open_agent(model="fallback/best") as first,
        runtime.open_agent(model="fallback/best") as second,
    ):
        first.followup("a")
        await trio.sleep(1)
        assert (await second.ask("b")).text == "quick"
        await first.when_idle()


# --- what it passes on, and what it refuses -----------------------------------------------------------


class Closing:
    """An adapter that counts how often it is closed."""

    provider = "closing"
    ends = 0

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ends += 1


async def test_everything_else_is_the_adapters() -> None:
    inner = ScriptedModel([], "mine", 100)
    model = Limited(inner, Limits(concurrency=2, tokens_per_minute=9))
    assert model.provider == "mine"
    assert (await model.info("m")).context_window == 100
    assert repr(model) == f"Limited({inner!r}, Limits(concurrency=2, tokens_per_minute=9))"
    await model.aclose()
    closing: Any = Closing()
    await Limited(closing, Limits()).aclose()
    assert closing.ends == 1


async def test_what_emit_raises_passes_through() -> None:
    model = Limited(ScriptedModel(["ok"]), Limits(concurrency=1))
    error = KeyError("mine")

    def emit(chunk: Chunk) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await model.stream(request(provider="scripted"), emit)
    assert caught.value is error
    assert model.limits.running == 0


@pytest.mark.parametrize("name", ["concurrency", "requests_per_minute", "tokens_per_minute"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_limits_are_positive(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} of limits is an int >= 1"):
        Limits(**{name: value})


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "3"])
def test_a_wait_is_a_number_of_seconds(value: Any) -> None:
    with pytest.raises(UsageError, match="max_wait of limits"):
        Limits(max_wait=value)


def test_an_adapter_is_limited_by_limits() -> None:
    with pytest.raises(UsageError, match="limited by Limits, not by 3"):
        Limited(ScriptedModel([]), 3)  # type: ignore[arg-type]
