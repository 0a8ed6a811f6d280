"""Names of things that outlive a process, and how new ones are minted."""

from __future__ import annotations

import os
import time
from typing import Final, NewType

SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)


_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def uuid7(time_ms: int, random: bytes) -> str:
    """A UUID of version 7 (RFC 9562) out of a time in Unix milliseconds and ten random bytes."""
    time, rest = time_ms.to_bytes(6, "big").hex(), random.hex()
    # The version takes the place of four random bits, the variant that of two.
    return f"{time[:8]}-{time[8:]}-7{rest[1:4]}-{_VARIANT[rest[4]]}{rest[5:8]}-{rest[8:]}"


# Random bytes for the next ids: one call of the system gives many. Taking from a list is one step of the interpreter, so
# no two threads get the same; a forked process drops what its parent may use.
_AT_A_TIME: Final = 50
_spare: Final[list[bytes]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spare.clear)


def mint_id() -> str:
    """A new id: a UUID of version 7, so ids sort by the time of their minting."""
    try:
        random = _spare.pop()
    except IndexError:
        fresh = os.urandom(10 * _AT_A_TIME)
        random = fresh[:10]
        _spare.extend([fresh[at : at + 10] for at in range(10, len(fresh), 10)])
    return uuid7(time.time_ns() // 1_000_000, random)


def now_ms() -> int:
    """Wall clock time in Unix milliseconds. It may go backwards."""
    return time.time_ns() // 1_000_000
