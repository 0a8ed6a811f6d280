"""Must not check: the status is for an int."""

from trio_typing import TaskStatus

from trio_agents.errors import TrioAgentsError


async def service(*, task_status: TaskStatus[int]) -> None:
    task_status.started("one")


def told(error: TrioAgentsError) -> str:
    return str(error)
