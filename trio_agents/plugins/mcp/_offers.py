"""The tools of one server as registrations in a scope, kept equal to what the server lists."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, final

import attrs
import trio

from ...agent import Scope
from ...errors import ScopeClosedError, UsageError
from ...tools import Effect, ToolContext, ToolReturn, schema_tool
from ...values import FrozenJson

logger: Final = logging.getLogger("trio_agents")

_LONGEST: Final = 64
_DIGEST: Final = 6

Call: TypeAlias = Callable[[str, Mapping[str, object], ToolContext], Awaitable[ToolReturn]]
"""Calls a tool of the server by the server's own name for it."""


@final
@attrs.frozen(kw_only=True)
class RemoteTool:
    """A tool as its server lists it."""

    name: str
    description: str
    parameters: FrozenJson
    effect: Effect


@final
@attrs.frozen(kw_only=True)
class Standing:
    """A registration that stands: of what, and how it is taken back."""

    tool: RemoteTool
    undo: Callable[[], object]


def tool_name(server: str, tool: str) -> str:
    """What models call a server's tool: valid with every provider, the same in each session, unlike any other.

    A server's name has no underscore, so the first one separates. Where a tool's name has to be altered, a digest of
    it keeps it apart from its neighbours, whatever they are called.
    """
    plain = f"{server}_{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    if name == plain and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1]}_{digest}"


@final
class Offers:
    """What is registered for one server. Every change is synchronous: no agent sees half of it."""

    def __init__(self, scope: Scope, server: str, call: Call, only: Collection[str] | None) -> None:
        self._scope = scope
        self._server = server
        self._call = call
        self._only = None if only is None else frozenset(only)
        self._standing: dict[str, Standing] = {}
        self._is_over = False

    @property
    def names(self) -> list[str]:
        """What is registered, by the names that models use."""
        return list(self._standing)

    def put(self, listed: Iterable[RemoteTool]) -> None:
        """Register exactly these tools; what stands already and is listed alike is left alone. No checkpoint.

        A tool that is taken back stays usable for the calls and steps that have it.

        Raises:
            UsageError: the scope has a tool of such a name already; nothing has changed.
            ScopeClosedError: the scope is closed.
        """
        wanted = {
            tool_name(self._server, tool.name): tool
            for tool in listed
            if self._only is None or tool.name in self._only
        }
        fresh: dict[str, Standing] = {}
        try:
            for name, tool in wanted.items():
                if name not in self._standing:
                    fresh[name] = self._registered(name, tool)
        except BaseException:
            for standing in fresh.values():
                standing.undo()
            raise
        for name, standing in list(self._standing.items()):
            if wanted.get(name) != standing.tool:
                self._take_back(name)
                if name in wanted:
                    fresh[name] = self._registered(name, wanted[name])
        self._standing |= fresh

    def put_what_fits(self, listed: Iterable[RemoteTool]) -> None:
        """Like `put`, for a list that comes later: what cannot be registered is logged, and the old list stays."""
        try:
            if not self._is_over:
                self.put(listed)
        except ScopeClosedError:
            pass  # its tools have been given back already, or will be
        except UsageError as exc:
            logger.warning("the new list of tools of MCP server %r is not taken: %s", self._server, exc)

    def withdraw(self) -> None:
        """Take everything back, for good. No checkpoint."""
        self._is_over = True
        for name in self.names:
            self._take_back(name)

    async def unload(self) -> None:
        """Take everything back, for good, and cancel the calls at work. A checkpoint."""
        self._is_over = True
        await trio.lowlevel.checkpoint()
        while self._standing:  # the end of the connection may take back the rest meanwhile
            name = next(iter(self._standing))
            del self._standing[name]
            await self._scope.tools.unload(name)

    def _take_back(self, name: str) -> None:
        self._standing.pop(name).undo()

    def _registered(self, name: str, tool: RemoteTool) -> Standing:
        async def call(arguments: Mapping[str, object], context: ToolContext) -> ToolReturn:
            return await self._call(tool.name, arguments, context)

        made = schema_tool(
            call,
            name=name,
            description=tool.description,
            parameters=tool.parameters,
            effect=tool.effect,
            parallel=tool.effect == "pure",
        )
        return Standing(tool=tool, undo=self._scope.tools.register(made))
