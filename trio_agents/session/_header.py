"""The first line of a log, and the folding of request headers."""

from __future__ import annotations

from typing import Final, Literal, final

from msgspec import UNSET, Struct, UnsetType

FORMAT_VERSION: Final = 0


@final
class SessionHeader(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """What a log says of itself in its first line.

    Attributes:
        id: the session's id.
        created_at: Unix milliseconds.
        cwd: absolute path of the workspace, or absent.
        parent_session: the session that this one was forked or delegated from, or absent.
        seed_length: number of leading events that were inherited from the parent, or absent.
        origin: `subagent` for a delegated session, or absent.
        delegation_depth: 0 for a root.
        agent_preset: what the agent was composed from, or absent.
    """

    type: Literal["session"] = "session"
    version: Literal[0] = FORMAT_VERSION
    id: str
    created_at: int
    cwd: str | UnsetType = UNSET
    parent_session: str | UnsetType = UNSET
    seed_length: int | UnsetType = UNSET
    origin: Literal["subagent"] | UnsetType = UNSET
    delegation_depth: int = 0
    agent_preset: str | UnsetType = UNSET
