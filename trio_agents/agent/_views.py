"""Tools and system prompt, seen from one scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, final

import trio

from ..errors import UsageError
from ..prompt import Section, Variable
from ..scope._scope import Undo
from ..tools import Tool
from ._layer import Layer, Offer
from ._options import AnyTool

if TYPE_CHECKING:
    from ._scope import Scope

T = TypeVar("T")


@final
class ScopedTools:
    """The tools, seen from one scope."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def register(self, tool: AnyTool) -> Undo:
        """Offer a tool to the agents of this scope and below. Returns an undo. No checkpoint.

        Raises:
            UsageError: not a tool, or the scope itself already has one of this name.
            ScopeClosedError: the scope is closed.
        """
        if not isinstance(tool, Tool):
            raise UsageError(f"tools are made with @tool; {tool!r} is none")
        scope, name = self._scope, tool.name
        layer = scope._layer
        if layer is not None and name in layer.tools:
            raise UsageError(f"scope {scope.name!r} already has a tool named {name!r}")
        offer = Offer(tool)

        def close() -> object:
            offer.is_unloaded = True
            return offer.unload() if offer.running else None

        offer.undo = scope._register(
            f"tool {name!r}",
            lambda layer: layer.tools.__setitem__(name, offer),
            lambda layer: layer.tools.pop(name, None),
            close=close,
            waits=lambda: bool(offer.running),
        )
        return offer.undo

    async def unload(self, name: str) -> bool:
        """Take back a tool of this very scope whose owner goes away, such as a server that has ended. A checkpoint.

        Calls of it that are at work are cancelled and have ended on return; they, and those that wait for their turn in
        a step under way, end as TOOL_UNLOADED. The turns go on. (An undo lets the steps under way use the tool.)

        Returns:
            False if this scope has no tool of that name.
        """
        layer = self._scope._layer
        offer = None if layer is None else layer.tools.get(name)
        if offer is None:
            await trio.lowlevel.checkpoint()
            return False
        assert offer.undo is not None
        offer.undo()
        offer.is_unloaded = True
        await trio.lowlevel.checkpoint()
        await offer.unload()
        return True

    def get(self, name: str) -> AnyTool | None:
        """The tool of this name that is in force here, or None."""
        offer = self._scope.visible_tools().get(name)
        return None if offer is None else offer.tool

    def list(self) -> list[AnyTool]:
        """The tools in force here: a snapshot."""
        return [offer.tool for offer in self._scope.visible_tools().values()]


@final
class ScopedPrompt:
    """The system prompt's sections and variables, seen from one scope."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def section(self, section: Section) -> Undo:
        """Add a section to the prompt of the agents of this scope and below. Returns an undo.

        Raises:
            UsageError: the scope itself already has a section of this name.
            ScopeClosedError: the scope is closed.
        """
        return self._add("section", section.name, section, lambda layer: layer.sections)

    def variable(self, variable: Variable) -> Undo:
        """Set a variable that sections may use. Returns an undo.

        Raises:
            UsageError: the scope itself already has a variable of this name.
            ScopeClosedError: the scope is closed.
        """
        return self._add("variable", variable.name, variable, lambda layer: layer.variables)

    def _add(self, what: str, name: str, value: T, of: Callable[[Layer], dict[str, T]]) -> Undo:
        scope = self._scope
        if scope._layer is not None and name in of(scope._layer):
            raise UsageError(f"scope {scope.name!r} already has a prompt {what} named {name!r}")
        return scope._register(
            f"prompt {what} {name!r}",
            lambda layer: of(layer).__setitem__(name, value),
            lambda layer: of(layer).pop(name, None),
        )
