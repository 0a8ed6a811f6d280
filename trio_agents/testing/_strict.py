"""A runtime for tests that must not end green while something went wrong, or still goes on, behind them."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Literal, TypeAlias, final, get_args

import attrs

from ..agent import Agent, AgentDisposed, AgentFailed, Scope, SessionEvent
from ..errors import TrioAgentsError, UsageError
from ..loop._agent import LoopAgent
from ..loop._receipts import LoopReceipt
from ..models import ModelAdapter
from ..plugins import DEFAULT_PLUGINS, Plugin
from ..runtime import Runtime, open_runtime
from ..runtime._runtime import RuntimeBlock
from ..session import TurnEnd
from ..storage import SessionStore
from ..values import DISPOSED, Aborted, UserMessage

FindingKind: TypeAlias = Literal["failed", "running", "child", "pending"]
"""What a strict runtime finds: a failure that nobody looked at, a turn at work, a live child, a pending message."""

_KINDS: Final[tuple[str, ...]] = get_args(FindingKind)
_SHOWN: Final = 60


@final
@attrs.frozen(kw_only=True)
class Finding:
    """One thing that a strict runtime does not let pass.

    Attributes:
        kind: `failed`, a driver crashed or a turn failed, and nobody waited for its messages; `running`, an agent was
            ended while a turn was at work; `child`, an agent was ended by the end of the agent that owns it;
            `pending`, an agent ended with messages that no turn has taken.
        agent_id: the agent.
        text: a sentence for people.
    """

    kind: FindingKind
    agent_id: str
    text: str

    def __str__(self) -> str:
        return self.text


@final
class StrictRuntimeError(TrioAgentsError, AssertionError):
    """The block of `open_strict_runtime` was left with something behind that it does not allow.

    Attributes:
        findings: all of it, in the order in which it came up.
    """

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__(
            "the runtime was left with something behind:" + "".join(f"\n- {finding}" for finding in findings)
        )
        self.findings: tuple[Finding, ...] = findings


def open_strict_runtime(
    *,
    store: SessionStore | None = None,
    models: Iterable[ModelAdapter] = (),
    plugins: Iterable[Plugin] = DEFAULT_PLUGINS,
    allow: Iterable[FindingKind] = (),
) -> StrictBlock:
    """A runtime for the length of a block of a test, which fails if the test left something behind.

    `async with open_strict_runtime(models=[...]) as runtime`. It is what `open_runtime` gives, and it ends like that;
    what happens while it ends counts, too. Cancelling a turn, or a wait for one, is no failure.

    A failure was looked at if somebody was told how a message of that turn ended: by `ask`, by `Receipt.settled`, by
    the `result` of a stream. To wait for idle and to listen to `AgentFailed` is not enough.

    Args:
        store: as for `open_runtime`.
        models: likewise.
        plugins: likewise.
        allow: the kinds of findings that are let pass; see `Finding`.

    Raises:
        StrictRuntimeError: when the block is left, with all findings at once. Whatever else leaves the block, the
            body's exception or an end that failed, goes on unchanged and has the findings as notes.
        UsageError: `allow` names something else; or as for `open_runtime`.
    """
    watch = _Watch(_checked(allow))
    return StrictBlock(open_runtime(store=store, models=models, plugins=[watch.begin, *plugins]), watch)


def _checked(allow: object) -> frozenset[str]:
    kinds: list[object] = (
        list(allow) if isinstance(allow, Iterable) and not isinstance(allow, str) else [allow]
    )
    if isinstance(allow, str) or any(kind not in _KINDS for kind in kinds):
        known = ", ".join(map(repr, _KINDS))
        raise UsageError(f"allow= is a collection of kinds of findings ({known}), not {allow!r}")
    return frozenset(kind for kind in _KINDS if kind in kinds)


@final
class StrictBlock:
    """The block that `open_strict_runtime` gives. Not reusable."""

    __slots__ = ("_block", "_watch")

    def __init__(self, block: RuntimeBlock, watch: _Watch) -> None:
        self._block = block
        self._watch = watch

    async def __aenter__(self) -> Runtime:
        """Open the runtime. A checkpoint."""
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End everything as the runtime's own block does, then say what was found."""
        try:
            await self._block.__aexit__(kind, exc, tb)  # noqa: ASYNC102 - shielded and bounded inside
        except BaseException as failure:
            self._note(failure)
            raise
        if exc is not None:
            self._note(exc)
        elif findings := self._watch.findings():
            raise StrictRuntimeError(findings)

    def _note(self, exc: BaseException) -> None:
        for finding in self._watch.findings():
            exc.add_note(f"the strict runtime found, too: {finding}")


@final
class _Watch:
    """Hears everything in a runtime, from its first agent to the end of its last."""

    __slots__ = ("_allow", "_found")

    def __init__(self, allow: frozenset[str]) -> None:
        self._allow = allow
        self._found: list[tuple[Finding, tuple[LoopReceipt, ...]]] = []

    def begin(self, scope: Scope) -> None:
        """Listen. A plugin, and the first, so nothing is missed."""
        scope.on(AgentFailed, self._failed)
        scope.on(SessionEvent, self._happened)
        scope.on(AgentDisposed, self._disposed)

    def findings(self) -> tuple[Finding, ...]:
        """What was found, as of now: a failure may still be looked at when it is long over."""
        return tuple(found for found, receipts in self._found if not any(r.is_read for r in receipts))

    def _add(
        self, kind: FindingKind, agent: Agent, text: str, receipts: tuple[LoopReceipt, ...] = ()
    ) -> None:
        if kind not in self._allow:
            self._found.append((Finding(kind=kind, agent_id=agent.id, text=text), receipts))

    def _failed(self, told: AgentFailed) -> None:
        failure = told.failure
        text = (
            f"turn {told.turn} of agent {told.agent.id!r} failed and nobody looked at it: "
            f"{failure.message} ({failure.code})"
        )
        self._add("failed", told.agent, text, _receipts(told.agent, told.turn))

    def _happened(self, told: SessionEvent) -> None:
        end = told.event.data
        # Whoever cancels a turn leaves a cause of his own; this is the one of an end that nobody has waited for.
        if type(end) is TurnEnd and isinstance(end.reason, Aborted) and end.reason.reason == DISPOSED:
            text = f"turn {end.turn} of agent {told.agent.id!r} was still at work when the agent was ended"
            self._add("running", told.agent, text)

    def _disposed(self, told: AgentDisposed) -> None:
        agent = told.agent
        owner = agent.scope.owner_agent
        if owner is not None and owner.scope.closing:
            text = f"agent {agent.id!r}, a child of agent {owner.id!r}, was alive when its parent was ended"
            self._add("child", agent, text)
        inbox = agent.inbox
        lists = {"next-turn": inbox.next_turn, "next-step": inbox.next_step}
        pending = [f"{_shown(message)} ({name})" for name, messages in lists.items() for message in messages]
        if pending:
            self._add(
                "pending", agent, f"agent {agent.id!r} ended while this was pending: {', '.join(pending)}"
            )


def _receipts(agent: Agent, turn: int) -> tuple[LoopReceipt, ...]:
    """The receipts of the messages that the turn has claimed."""
    driver = agent.driver if isinstance(agent, LoopAgent) else None
    return () if driver is None else tuple(receipt for receipt in driver.receipts if receipt.turn == turn)


def _shown(message: UserMessage) -> str:
    text = message.text or f"message {message.id}"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
