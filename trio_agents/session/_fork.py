"""Which part of a log a fork copies, and what the copy's header says."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import UsageError
from ._header import SessionHeader
from ._history import Events


def plan_fork(
    header: SessionHeader,
    events: Events,
    boundary: int | None,
    *,
    id: str,
    now: Callable[[], int],
) -> tuple[SessionHeader, Events]:
    """Header and events of a fork: the events up to and including `boundary`, by default all.

    Raises:
        UsageError: the boundary is no event's number, or lies within a turn.
    """
    if boundary is None:
        boundary = len(events) - 1
    elif type(boundary) is not int or not 0 <= boundary < len(events):
        last = f"0..{len(events) - 1}" if events else "none, it is empty"
        raise UsageError(f"session {header.id!r} has no event {boundary!r} to fork at; its events are {last}")
    turn = events.open_turn(boundary + 1)
    if turn is not None:
        raise UsageError(
            f"session {header.id!r} cannot be forked at event {boundary}: turn {turn} is open there; "
            "fork at the end of a turn"
        )
    child = SessionHeader(
        id=id,
        created_at=now(),
        cwd=header.cwd,
        parent_session=header.id,
        seed_length=boundary + 1,
        agent_preset=header.agent_preset,
    )
    return child, events.prefix(boundary + 1)
