"""Names of things that outlive a process, and how new ones are minted."""

from __future__ import annotations

import os
import time
from typing import NewType

SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)


def uuid7(time_ms: int, random: bytes) -> str:
    """A UUID of version 7 (RFC 9562) out of a time in Unix milliseconds and ten random bytes."""
    value = bytearray(time_ms.to_bytes(6, "big") + random)
    value[6] = 0x70 | (value[6] & 0x0F)
    value[8] = 0x80 | (value[8] & 0x3F)
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def mint_id() -> str:
    """A new id: a UUID of version 7, so ids sort by the time of their minting."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def now_ms() -> int:
    """Wall clock time in Unix milliseconds. It may go backwards."""
    return time.time_ns() // 1_000_000
