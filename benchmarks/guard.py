"""The counts that tests hold: small enough to be exact, taken without a clock.

`python -m benchmarks.guard` prints what they are now.
"""

from __future__ import annotations

from typing import Any, Final

import trio
import trio.testing

from .counting import Tally
from .ours import durable, lifecycle, turns
from .worker import Round

SMALL: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "create_dispose": (lifecycle.create_dispose, {"agents": 20}),
    "create_context_dispose": (lifecycle.create_context_dispose, {"agents": 20}),
    "turns": (turns.turns, {"turns": 20}),
    "tools": (turns.tools, {"agents": 5, "turns": 4}),
    "stream": (durable.stream, {"turns": 4, "pieces": 100}),
    "durable": (durable.durable, {"turns": 20}),
    "durable_create": (durable.durable_create, {"agents": 5}),
    "append": (durable.append, {"events": 100, "tiers": ["written"]}),
}


def counted(name: str) -> Round:
    """One counted round of a case, in this process."""
    fn, params = SMALL[name]
    tally = Tally()
    made = Round(tally)

    async def main() -> None:
        await fn(made, tally, **params)

    # A clock that stands still: no delay ends by itself, so what is written together does not depend on the machine.
    trio.run(main, instruments=[tally], clock=trio.testing.MockClock())
    return made


def per_operation(made: Round, metric: str) -> dict[str, float]:
    """The counts of one span for one operation; of a turn also its events."""
    [sample] = [sample for sample in made.samples if sample["metric"] == metric]
    found = {name: value / sample["ops"] for name, value in sample["counts"].items()}
    if sample["events"] is not None:
        found["events"] = sample["events"] / sample["ops"]
    return found


def idle_agent(agents: int = 100, crowds: int = 5) -> dict[str, float]:
    """What the allocator, the collector and the scheduler hold for one idle agent more."""
    made = Round()

    async def main() -> None:
        await lifecycle.held_by_idle(made, agents, crowds)

    trio.run(main)
    return made.values


if __name__ == "__main__":
    for case in SMALL:
        for sample in counted(case).samples:
            if sample["metric"]:
                counts = {name: value / sample["ops"] for name, value in sample["counts"].items()}
                print(f"{case:24} {sample['metric']:24} {counts}, events {sample['events']}")
    print("idle agent", idle_agent())
