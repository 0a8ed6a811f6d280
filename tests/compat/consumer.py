"""A program that uses both packages. Checked with mypy, never run."""

import trio
from trio_typing import Nursery, TaskStatus

from trio_agents.errors import TrioAgentsError


async def service(*, task_status: TaskStatus[int]) -> None:
    task_status.started(1)


async def start(nursery: Nursery) -> TrioAgentsError | None:
    try:
        await nursery.start(service)
    except TrioAgentsError as error:
        return error
    return None


async def main() -> None:
    async with trio.open_nursery() as nursery:
        await start(nursery)
