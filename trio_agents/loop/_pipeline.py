"""One consistent snapshot of what a step works with: tools, prompt, hooks and the chosen model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from ..agent import AroundTool, AssemblePrompt, BeforeRequest, PreStep, RequestFailed, TurnStopping
from ..agent._layer import Offer
from ..errors import UsageError
from ..prompt import Section, assemble
from ..scope._dispatch import Around, Hook, Listener, Serial, around, serial
from ..session import ToolSpec
from ..tools import Tool, ToolReturn

if TYPE_CHECKING:
    from ._agent import LoopAgent

R = TypeVar("R")
A = TypeVar("A", bound=Around[Any])

STEP_HOOKS: Final[tuple[type[Hook], ...]] = (
    AssemblePrompt, PreStep, BeforeRequest, RequestFailed, AroundTool, TurnStopping,
)  # fmt: skip

OPENING: Final = "options"
"""Name of the prompt section that an agent's own `system` option makes; it comes first."""


@final
class Pipeline:
    """A lease: what is registered, replaced, removed or selected after it was taken does not show in it."""

    __slots__ = ("_agent", "_hooks", "_sections", "_variables", "offers", "selection", "specs", "system")

    def __init__(self, agent: LoopAgent) -> None:
        scope = agent.scope
        self._agent = agent
        heard = scope.homes.heard
        self._hooks = {
            hook: found for hook in STEP_HOOKS if hook in heard and (found := scope.listeners(hook))
        }
        offers = scope.visible_tools()
        own = agent.own_offers
        self.offers: dict[str, Offer] = {**offers, **own} if own else offers
        self._sections = scope.visible_sections()
        self._variables = scope.visible_variables()
        self.selection = agent.selection
        self.system: str | None = None
        self.specs: tuple[ToolSpec, ...] = ()

    # --- tools --------------------------------------------------------------------------------

    @property
    def tools(self) -> dict[str, Tool[..., object]]:
        """The tools in force, by name."""
        return {name: offer.tool for name, offer in self.offers.items()}

    def _ordered_specs(self) -> tuple[ToolSpec, ...]:
        offers = self.offers
        order = self._agent.options.tool_order
        if not order:
            return tuple(offers[name].tool.spec for name in sorted(offers)) if offers else ()
        unknown = [name for name in order if name not in offers]
        if unknown:
            known = ", ".join(sorted(offers)) or "none"
            raise UsageError(
                f"tool_order names {', '.join(map(repr, unknown))}; the tools in force are: {known}"
            )
        rest = sorted(offers.keys() - set(order))
        return tuple(offers[name].tool.spec for name in (*order, *rest))

    # --- prompt -------------------------------------------------------------------------------

    async def assemble(self, turn: int, step: int) -> None:
        """Settle what the model is told besides the messages: `system`, and `specs`, its tools in their order.

        The order is the configured one, what that does not name follows in code point order.

        Raises:
            UsageError: the configured order names a tool that is not in force, or the prompt cannot be put together.
            Exception: what a listener of `AssemblePrompt` raised.
        """
        self.specs = self._ordered_specs()
        self.system = await self._system(turn, step)

    async def _system(self, turn: int, step: int) -> str | None:
        opening = self._agent.options.system
        if not opening and not self._sections and AssemblePrompt not in self._hooks:
            return None
        sections = tuple(self._sections.values())
        if opening:
            first = min((section.order for section in sections), default=0) - 1
            sections = (Section(OPENING, opening, order=first, verbatim=True), *sections)
        proposal = AssemblePrompt(
            agent=self._agent,
            turn=turn,
            step=step,
            sections=sections,
            variables=tuple(self._variables.values()),
        )
        text: object = await self.around(proposal, _assemble)
        if text is not None and not isinstance(text, str):
            raise UsageError(f"AssemblePrompt listeners answer with a str or None, not {type(text).__name__}")
        return text or None

    # --- hooks --------------------------------------------------------------------------------

    def listeners(self, hook: type[Hook]) -> tuple[Listener, ...]:
        """The listeners of a step's hook."""
        return self._hooks.get(hook, ())

    async def around(self, payload: A, default: Callable[[A], Awaitable[R]]) -> R:
        """Call the listeners around `default`, within the time that hooks have.

        Raises:
            TimeoutError: they did not answer in time.
        """
        listeners = self.listeners(type(payload))
        if not listeners:
            return await default(payload)
        with self._bound() as scope:
            return await around(listeners, payload, default)
        raise self._late(type(payload), scope)

    async def around_tool(
        self, payload: AroundTool, default: Callable[[AroundTool], Awaitable[ToolReturn]]
    ) -> ToolReturn:
        """Like `around`; the time of the body, which has a bound of its own, does not count."""
        with self._bound() as scope:

            async def body(given: AroundTool) -> ToolReturn:
                scope.deadline = float("inf")
                try:
                    return await default(given)
                finally:
                    scope.deadline = self._deadline()

            return await around(self.listeners(AroundTool), payload, body)
        raise self._late(AroundTool, scope)

    async def serial(self, payload: Serial) -> None:  # noqa: ASYNC910  its listeners are
        """Await the listeners one after the other, within the time that hooks have.

        Raises:
            TimeoutError: they did not end in time.
        """
        listeners = self.listeners(type(payload))
        with self._bound() as scope:
            await serial(listeners, payload)
        if scope.cancelled_caught:
            raise self._late(type(payload), scope)

    def _deadline(self) -> float:
        limit = self._agent.options.hook_timeout
        return float("inf") if limit is None else trio.current_time() + limit

    def _bound(self) -> trio.CancelScope:
        return trio.CancelScope(deadline=self._deadline())

    def _late(self, hook: type[Hook], scope: trio.CancelScope) -> TimeoutError:
        assert scope.cancelled_caught
        names = ", ".join(repr(listener) for listener in self.listeners(hook))
        return TimeoutError(
            f"the {hook.__name__} listeners did not answer within {self._agent.options.hook_timeout:g} s: {names}"
        )


async def _assemble(proposal: AssemblePrompt) -> str | None:
    return assemble(proposal.sections, proposal.variables)
