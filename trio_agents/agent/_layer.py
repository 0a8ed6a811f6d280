"""What one scope adds for the agents below it."""

from __future__ import annotations

from typing import Protocol, final

from ..prompt import Section, Variable
from ..scope._scope import Undo
from ._options import AnyTool


class Layer:
    """What one scope adds for the agents below it: tools, restrictions, prompt sections, variables."""

    __slots__ = ("restrictions", "sections", "tools", "variables")

    def __init__(self) -> None:
        self.tools: dict[str, Offer] = {}
        self.restrictions: dict[Restriction, None] = {}
        self.sections: dict[str, Section] = {}
        self.variables: dict[str, Variable] = {}


class RunningCall(Protocol):
    """A tool body at work, as its tool's registration sees it."""

    def unload(self) -> None:
        """Cancel the body: the owner of its tool is closing."""
        ...

    async def over(self) -> None:
        """Wait until the body has ended."""
        ...


@final
class Offer:
    """One registration of a tool: the tool, and the bodies that run on its account."""

    __slots__ = ("is_unloaded", "running", "tool", "undo")

    def __init__(self, tool: AnyTool) -> None:
        self.tool = tool
        self.is_unloaded = False  # set when its owner closes; a mere undo leaves snapshots of it usable
        self.running: set[RunningCall] | None = None
        self.undo: Undo | None = None

    def enter(self, call: RunningCall) -> None:
        """A body is about to run."""
        if self.running is None:
            self.running = set()
        self.running.add(call)

    def leave(self, call: RunningCall) -> None:
        """The body has ended."""
        if self.running is not None:
            self.running.discard(call)

    async def unload(self) -> None:  # noqa: ASYNC910 - waits only if there is something to wait for
        """Cancel the running bodies and wait for them."""
        for call in list(self.running or ()):
            call.unload()
        while self.running:
            await next(iter(self.running)).over()


@final
class Restriction:
    """One filter over the tools that a scope inherits."""

    __slots__ = ("allow", "deny")

    def __init__(self, allow: frozenset[str] | None, deny: frozenset[str]) -> None:
        self.allow = allow
        self.deny = deny

    def admits(self, name: str) -> bool:
        """Whether a tool of this name passes."""
        return name not in self.deny and (self.allow is None or name in self.allow)
