"""What the tests of the lifecycle share: one list of what happened, models that answer, stores that wait."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio

import trio_agents as ta
from trio_agents.models import Reply, ScriptedModel
from trio_agents.runtime._runtime import RuntimeBlock
from trio_agents.storage import OpenedLog

T = TypeVar("T")

MODEL = "scripted/m"
OPTIONS = ta.AgentOptions(model=MODEL)

BRACKETS = frozenset({"turn/start", "turn/end", "step/start", "step/end"})


class Recorder:
    """Everything that is told on a scope, as short strings in one list. Tests add what they do themselves."""

    def __init__(self, scope: ta.Scope, *, events: Iterable[str] = BRACKETS) -> None:
        self.seen: list[str] = []
        self.scope = scope
        wanted = frozenset(events)
        scope.on(ta.SessionCreated, lambda told: self.add("session/created", told.session.id))
        scope.on(ta.SessionDisposed, lambda told: self.add("session/disposed", told.session.id))
        scope.on(ta.AgentCreated, lambda told: self.add("agent/created", told.agent.id))
        scope.on(ta.AgentDisposed, lambda told: self.add("agent/disposed", told.agent.id))
        scope.on(ta.SessionStart, lambda told: self.add("agent/session-start", told.agent.id, told.source))
        scope.on(ta.AgentStatusChanged, lambda told: self.add("agent/status", told.agent.id, told.status))
        scope.on(ta.AgentFailed, lambda told: self.add("agent/error", told.agent.id, told.failure.message))

        def event(told: ta.SessionEvent) -> None:
            if told.event.type in wanted:
                self.add(told.event.type, told.agent.id, *_end_of(told.event))

        scope.on(ta.SessionEvent, event)

    def add(self, *words: str) -> None:
        """Note something."""
        self.seen.append(" ".join(words))

    def take(self) -> list[str]:
        """What was seen since the last call."""
        seen, self.seen = self.seen, []
        return seen

    def at(self, what: str) -> Callable[[object], None]:
        """A listener that notes its name."""
        return lambda told: self.add(what)

    def watched(self, what: str) -> Callable[[], AbstractAsyncContextManager[str]]:
        """A context manager class whose entry and exit are noted."""

        @asynccontextmanager
        async def context():
            self.add(f"enter {what}")
            try:
                yield what
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                self.add(f"leave {what}")

        return context


def _end_of(event: ta.Event) -> list[str]:
    if event.type != "turn/end":
        return []
    reason = event.data.reason
    cause = getattr(reason, "reason", None)
    return [reason.kind if cause is None else f"{reason.kind}({cause.kind})"]


def runtime(*answers: Any, store: Any = None, **more: Any) -> RuntimeBlock:
    """A runtime with one scripted model, which says `ok` for ever if no answers are given."""
    script: Any = list(answers) if answers else Reply.text("ok")
    return ta.open_runtime(store=store, models=[ScriptedModel(script)], plugins=(), **more)


def shows(runtime: ta.Runtime, id: str = "a") -> str:
    """Which of the two registries show an id, by `get` and by `list` alike."""
    found = []
    for name, registry in (("agent", runtime.agents), ("session", runtime.sessions)):
        got = registry.get(id)
        listed = [item for item in registry.list() if item.id == id]
        assert listed == ([] if got is None else [got])
        if got is not None:
            found.append(name)
    return "+".join(found) or "nothing"


class SlowStore:
    """A store whose loads wait for a gate. Everything else is the store's below it."""

    def __init__(self, store: ta.SessionStore) -> None:
        self._store = store
        self.reached = trio.Event()
        self.gate = trio.Event()
        self.opened = 0
        self.released = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def open(self, session_id: str) -> OpenedLog:
        opened = await self._store.open(session_id)
        self.opened += 1
        self.reached.set()
        try:
            await self.gate.wait()
        except BaseException:
            self.released += 1
            opened.writer.abandon()
            raise
        return opened


def run(main: Callable[[], Awaitable[T]], *, strict: bool = True) -> T:
    """`trio.run`, under either setting of Trio's strict exception groups."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trio.TrioDeprecationWarning)
        return trio.run(main, strict_exception_groups=strict)


def text_of(message: Any) -> str:
    """The text of a message of one text block."""
    [block] = message.content
    return str(block.text)


async def hang() -> None:
    """Wait for ever."""
    await trio.sleep_forever()


async def stored(store: Any, id: str = "a", *prompts: str) -> None:
    """Keep a session in a store: one turn for each prompt, `hello` if there is none."""
    async with runtime(store=store) as rt, rt.open_agent(id, model=MODEL) as agent:
        for prompt in prompts or ("hello",):
            await agent.ask(prompt)
