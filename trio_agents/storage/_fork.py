"""Storing a copy of the beginning of a session under an id of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from ..errors import SessionLogError
from ..session._fork import plan_fork
from ..session._header import SessionHeader
from ..session._history import Events
from ..values._ids import mint_id, now_ms
from ._attachments import references
from ._contract import SessionStore
from ._views import plain_lines
from ._writer import LogFileWriter

_GRACE: Final = 30


def fork_into(
    store: SessionStore,
) -> Callable[[str, Callable[[], tuple[SessionHeader, Events]]], Awaitable[None]]:
    """What a live session needs to be forked: how a copy gets into this store.

    Returns:
        A function of the child's id and of a plan that gives its header and events. It refuses an id that is
        taken before it asks for the plan; it returns when the copy is as durable as the store promises; and if
        that fails, or is cancelled, there is no copy.
    """

    async def store_copy(session_id: str, plan: Callable[[], tuple[SessionHeader, Events]]) -> None:
        await trio.lowlevel.checkpoint()
        store.check_free(session_id)
        header, events = plan()
        writer = store.create(header, events)
        try:
            if isinstance(writer, LogFileWriter):
                await writer.prepare()
            writer.write((), ())
            await _share(store, header, events)
            await writer.barrier()
        except BaseException:
            writer.abandon()
            # The error that brought us here is the one to tell.
            with trio.move_on_after(_GRACE, shield=True), contextlib.suppress(SessionLogError):
                await store.delete(session_id)
            raise
        await writer.aclose()

    return store_copy


async def _share(store: SessionStore, header: SessionHeader, events: Events) -> None:
    wanted = sorted(references(plain_lines(events.records)))
    if wanted and isinstance(header.parent_session, str):
        await store.share_attachments(header.parent_session, header.id, wanted)


async def fork_session(
    store: SessionStore,
    session_id: str,
    boundary: int | None = None,
    *,
    id: str | None = None,
    now: Callable[[], int] = now_ms,
) -> str:
    """Store a copy of a stored session up to and including an event; the session itself is only read.

    Args:
        store: where both are.
        session_id: the session to copy. It may be live elsewhere; what is stored by now counts.
        boundary: the number of the last event to copy, outside any turn; by default the last one there is.
        id: the new session's id; by default a new one.
        now: the wall clock, in Unix milliseconds.

    Returns:
        The new session's id.

    Raises:
        SessionExistsError, SessionBusyError: the id is taken.
        UsageError: the boundary is no event's number, or lies within a turn.
        SessionNotFoundError, SessionCorruptError, SessionUnsupportedError, SessionIdentityError: about the source.
        StorageError: the copy could not be stored. Nothing was created.
    """
    child = mint_id() if id is None else id
    store.check_free(child)
    source = await store.inspect(session_id)
    events = source.events.prefix(source.stored)
    header, copied = plan_fork(source.header, events, boundary, id=child, now=now)
    await fork_into(store)(child, lambda: (header, copied))
    return child
