"""Whatever comes when, is cancelled when and takes how long: limits hold, nobody overtakes, and nothing stays taken."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import given, strategies as st

from trio_agents.models import Limited, Limits, ModelRequest, Reply, ScriptedModel
from trio_agents.values import TokenUsage, UserMessage


@attrs.frozen
class Asked:
    """One request: when it comes, how long it takes, what it uses, and when its task gives up."""

    at: float
    takes: float
    tokens: int
    patience: float | None


@attrs.define
class Seen:
    """What became of it."""

    asked: Asked
    place: int
    began: float
    order: int
    ended: float | None = None


moments = st.integers(0, 120).map(float)
requests = st.lists(
    st.builds(
        Asked,
        at=moments,
        takes=st.integers(0, 90).map(float),
        tokens=st.integers(1, 80),
        patience=st.none() | st.integers(0, 100).map(float),
    ),
    min_size=1,
    max_size=25,
)
bounds = st.none() | st.integers(1, 6)


@given(
    requests=requests,
    concurrency=bounds,
    per_minute=bounds,
    tokens=st.none() | st.integers(20, 200),
)
def test_limits_hold_and_nothing_stays_taken(
    requests: list[Asked], concurrency: int | None, per_minute: int | None, tokens: int | None
) -> None:
    limits = Limits(
        concurrency=concurrency, requests_per_minute=per_minute, tokens_per_minute=tokens, max_wait=None
    )
    begun: list[Seen] = []
    places: dict[str, int] = {}

    def answer(asked: ModelRequest) -> Reply:
        name = asked.session_id
        wanted = requests[int(name)]
        begun.append(Seen(wanted, places[name], trio.current_time(), len(begun)))
        usage = TokenUsage(input_tokens=wanted.tokens, output_tokens=0)
        return Reply.text("ok", usage=usage).delayed(wanted.takes)

    model = Limited(ScriptedModel(answer, strict=False), limits)
    message = UserMessage.from_text("x")

    async def ask(number: int, wanted: Asked) -> None:
        await trio.sleep(wanted.at)
        with trio.move_on_after(10**6 if wanted.patience is None else wanted.patience):
            places[str(number)] = len(places)
            asked = ModelRequest(provider="scripted", model="m", messages=(message,), session_id=str(number))
            await model.stream(asked, lambda chunk: None)
        for seen in begun:
            if seen.place == places[str(number)]:
                seen.ended = trio.current_time()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, wanted in enumerate(requests):
                nursery.start_soon(ask, number, wanted)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert (limits.running, limits.waiting) == (0, 0)
    # Who was patient was served; who began, began in the order of arrival.
    served = {seen.place for seen in begun}
    assert {places[str(n)] for n, wanted in enumerate(requests) if wanted.patience is None} <= served
    assert [seen.place for seen in begun] == sorted(served)
    for seen in begun:
        before: list[Any] = begun[: seen.order]
        if concurrency is not None:
            assert sum(other.ended > seen.began for other in before) < concurrency
        last_minute = [other for other in before if other.began + 60 > seen.began]
        if per_minute is not None:
            assert len(last_minute) < per_minute
        if tokens is not None:
            # What is still under way may turn out to be anything; a cancelled one never says what it used.
            known = [
                other.asked.tokens
                for other in last_minute
                if other.ended < seen.began and other.ended == other.began + other.asked.takes
            ]
            assert sum(known) < tokens
