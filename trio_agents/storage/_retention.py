"""Deleting what is old, and handing out what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from ..errors import SessionBusyError, SessionNotFoundError, UsageError
from ..session._codec import encode_event, encode_header
from ..session._packing import ChunkRun
from ..values._ids import now_ms
from ._contract import SessionStore, SessionSummary

_SLICE: Final = 500


async def prune(
    store: SessionStore,
    *,
    older_than: float | None = None,
    keep: int | None = None,
    matching: Callable[[SessionSummary], bool] | None = None,
    now: Callable[[], int] = now_ms,
) -> tuple[str, ...]:
    """Delete old sessions.

    A session is deleted if it has not changed for `older_than` seconds and is not among the `keep` that changed
    last; whichever is None does not protect it. Live and damaged ones are never deleted, nor any that a writer
    takes in the meantime.

    Args:
        store: where they are.
        older_than: age in seconds.
        keep: how many of the newest stay, whatever their age.
        matching: which sessions this is about; by default all.
        now: the wall clock, in Unix milliseconds.

    Returns:
        The ids of those that were deleted.

    Raises:
        UsageError: neither an age nor a number was given, or one is negative.
        StorageError: the storage refused; those before are deleted.
    """
    if older_than is None and keep is None:
        raise UsageError("prune deletes by age or by number: give older_than, keep, or both")
    if (older_than is not None and not older_than >= 0) or (keep is not None and keep < 0):
        raise UsageError(f"older_than and keep are not negative: {older_than!r}, {keep!r}")
    candidates = sorted(
        await store.list(matching=matching),
        key=lambda summary: (summary.updated_at, summary.header.id),
        reverse=True,
    )
    limit = now() - (older_than or 0) * 1000
    deleted = []
    for summary in candidates[keep or 0 :]:
        if summary.status in {"live", "damaged"} or (older_than is not None and summary.updated_at > limit):
            continue
        try:
            await store.delete(summary.header.id)
        except (SessionBusyError, SessionNotFoundError):
            continue
        deleted.append(summary.header.id)
    return tuple(deleted)


async def export_session(
    store: SessionStore, session_id: str, write: Callable[[bytes], object], *, packed: bool = False
) -> int:
    """Hand out a stored session as plain lines, whatever it is stored as: the header, then what is stored.

    Args:
        store: where it is.
        session_id: the session.
        write: takes some whole lines at a time.
        packed: whether runs of chunks stay rows; by default each chunk is a line.

    Returns:
        How many events it has.

    Raises:
        SessionNotFoundError, SessionCorruptError, SessionUnsupportedError, SessionIdentityError, StorageError: as
            `SessionStore.open`.
    """
    stored = await store.inspect(session_id)
    write(encode_header(stored.header) + b"\n")
    records = stored.events.prefix(stored.stored).records
    for start in range(0, len(records), _SLICE):
        parts: list[bytes] = []
        for record in records[start : start + _SLICE]:
            if not isinstance(record, ChunkRun):
                parts.append(encode_event(record))
            elif packed:
                parts.append(record.row)
            else:
                parts += [encode_event(event) for event in record.expand()]
        write(b"".join([part + b"\n" for part in parts]))
        await trio.lowlevel.checkpoint()
    return stored.stored
