"""The measured process of our own scenarios."""

from __future__ import annotations

from typing import Any

import trio

from benchmarks.counting import Tally
from benchmarks.worker import Round, about, converse

from . import durable, lifecycle, turns, wire

FUNCTIONS = {
    fn.__name__: fn
    for fn in (
        lifecycle.create_dispose,
        lifecycle.create_dispose_files,
        lifecycle.create_turn_dispose,
        lifecycle.create_context_dispose,
        lifecycle.close_idle,
        lifecycle.cancel_to_quiet,
        lifecycle.memory_idle,
        lifecycle.memory_running,
        turns.growth,
        turns.turns,
        turns.crowd,
        turns.tools,
        turns.chunks,
        turns.latency,
        turns.inbox,
        durable.append,
        durable.durable,
        durable.durable_crowd,
        durable.stream,
        durable.durable_create,
        durable.resume,
        durable.stall,
        wire.wire,
    )
}


def run(case: str, params: dict[str, Any]) -> Round:
    """One timed round."""
    made = Round()

    async def main() -> None:
        await FUNCTIONS[case](made, None, **params)

    trio.run(main)
    return made


def count(case: str, params: dict[str, Any]) -> Round:
    """One round that is counted; its times mean nothing."""
    tally = Tally()
    made = Round(tally)

    async def main() -> None:
        await FUNCTIONS[case](made, tally, **params)

    trio.run(main, instruments=[tally])
    return made


if __name__ == "__main__":
    converse(run, count, about("trio", "attrs", "msgspec", "trio-agents"))
