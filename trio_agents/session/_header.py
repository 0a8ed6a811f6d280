"""The first line of a log, and when two requests are the same."""

from __future__ import annotations

from typing import Final, Literal, final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ._events import AdapterDefaults, Header

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


def canonical_header(header: Header) -> Header:
    """The header with empty parts absent, as it is logged: absent equals empty.

    The order of tools is kept; whoever assembles a header has put them in order.
    """
    config = header.config
    return Header(
        config=msgspec.structs.replace(config, stop=UNSET) if config.stop == () else config,
        adapter_defaults=UNSET if header.adapter_defaults == AdapterDefaults() else header.adapter_defaults,
        system=header.system or UNSET,
        tools=header.tools or UNSET,
    )


def is_same_header(one: Header, other: Header) -> bool:
    """Whether two headers send the same request: equal in canonical form, tools compared in order."""
    return one == other or canonical_header(one) == canonical_header(other)
