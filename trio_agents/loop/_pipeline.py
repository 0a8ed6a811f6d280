"""One consistent snapshot of what a step works with: tools, prompt and hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ..agent import AroundTool, AssemblePrompt, BeforeRequest, PreStep, RequestFailed, TurnStopping
from ..agent._scope import Offer
from ..prompt import Section, assemble
from ..scope._dispatch import Hook, Listener, around
from ..session._events import ToolSpec
from ..tools import Tool

if TYPE_CHECKING:
    from ._agent import LoopAgent

STEP_HOOKS: Final[tuple[type[Hook], ...]] = (
    AssemblePrompt, PreStep, BeforeRequest, RequestFailed, AroundTool, TurnStopping,
)  # fmt: skip

OPENING: Final = "options"
"""Name of the prompt section that an agent's own `system` option makes; it comes first."""


@final
class Pipeline:
    """A lease: what is registered, replaced or removed after it was taken does not show in it."""

    __slots__ = ("_agent", "_hooks", "_sections", "_variables", "offers")

    def __init__(self, agent: LoopAgent) -> None:
        scope = agent.scope
        self._agent = agent
        self._hooks = {hook: found for hook in STEP_HOOKS if (found := scope.listeners(hook))}
        offers = scope.visible_tools()
        own = agent.own_offers
        self.offers: dict[str, Offer] = {**offers, **own} if own else offers
        self._sections = scope.visible_sections()
        self._variables = scope.visible_variables()

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools in force, by name."""
        return {name: offer.tool for name, offer in self.offers.items()}

    def listeners(self, hook: type[Hook]) -> tuple[Listener, ...]:
        """The listeners of a step's hook."""
        return self._hooks.get(hook, ())

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model is told of them, in code point order of their names."""
        return tuple(self.offers[name].tool.spec for name in sorted(self.offers))

    async def system(self, turn: int, step: int) -> str | None:
        """The system prompt, or None if there is none."""
        sections = tuple(self._sections.values())
        opening = self._agent.options.system
        if opening:
            first = min((section.order for section in sections), default=0) - 1
            sections = (Section(OPENING, opening, order=first, verbatim=True), *sections)
        listeners = self.listeners(AssemblePrompt)
        if not sections and not listeners:
            return None
        proposal = AssemblePrompt(
            agent=self._agent,
            turn=turn,
            step=step,
            sections=sections,
            variables=tuple(self._variables.values()),
        )
        return await around(listeners, proposal, _assemble) or None


async def _assemble(proposal: AssemblePrompt) -> str | None:
    return assemble(proposal.sections, proposal.variables)
