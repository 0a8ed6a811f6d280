"""Clean-ups at an end: each is started, none can hold up the end, and what became of each is told."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.stage import MODEL, hang, runtime, shows
from trio_agents.models import Reply
from trio_agents.session import trace_issues

GRACE = 10.0
"""Seconds that the agent's end may take."""

HOOKS = ("fast", "hung", "raising")
ORDERS = list(itertools.permutations(HOOKS))


class Ends:
    """Registers clean-ups in a scope, and notes what happens at its end."""

    def __init__(self, *, shielded: bool, check: Callable[[], Awaitable[None]]) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.error = LookupError("raising")
        self.over = trio.Event()
        self._shielded = shielded
        self._check = check

    async def act(self, name: str) -> None:
        """What the clean-up of this name does."""
        self.started.append(name)
        await self._check()
        if name == "raising":
            raise self.error
        if name.startswith("hung"):
            with trio.CancelScope(shield=self._shielded):
                await self.over.wait()
        self.ended.append(name)

    async def register(self, scope: ta.Scope, kind: str, name: str) -> None:
        """Have it done when the scope ends, under a name that reports can show."""

        async def clean_up() -> None:
            await self.act(name)

        act = self.act

        class Context:
            async def __aenter__(self) -> None:
                await trio.lowlevel.checkpoint()

            async def __aexit__(self, *details: object) -> None:
                await act(name)  # noqa: ASYNC102 - the test means it

            def __repr__(self) -> str:
                return name

        async def task() -> None:
            try:
                await hang()
            finally:
                with trio.CancelScope(shield=True):
                    await self.act(name)

        clean_up.__qualname__ = name
        if kind == "callback":
            scope.callback(clean_up)
        elif kind == "context":
            await scope.enter_async_context(Context())
        else:
            scope.start_soon(task, name=name)


def reports(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """The errors in the program's log that say a name."""
    found = []
    for record in caplog.records:
        text = f"{record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        if record.levelno >= logging.ERROR and name in text:
            found.append(text)
    return found


@pytest.mark.parametrize(
    ("kind", "shielded"),
    [("callback", False), ("callback", True), ("context", False), ("context", True), ("task", True)],
)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_the_end_of_an_agent(
    order: tuple[str, ...],
    kind: str,
    shielded: bool,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """H8: with a turn at work, whose end is in the log before the first of them runs."""
    async with runtime(Reply.hang()) as rt:
        store = rt.sessions.store

        async def check() -> None:
            events = agent.session.events
            assert trace_issues(list(events)) == []
            assert agent.session.open_turn is None
            assert events[-1].type == "turn/end"
            stored = await store.inspect("a")
            assert [event.type for event in stored.events] == [event.type for event in events]

        ends = Ends(shielded=shielded, check=check)

        async def setup(agent: ta.Agent) -> None:
            for name in reversed(order):  # they run in reverse
                await ends.register(agent.scope, kind, name)

        handle = await rt.agents.create("a", setup=setup, options=ta.AgentOptions(model=MODEL, grace=GRACE))
        agent = handle.agent
        agent.followup("hangs")
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        with pytest.raises(ta.TeardownError) as caught:
            await handle.dispose()
        took, ended = trio.current_time() - start, list(ends.ended)
        ends.over.set()  # or one that shields itself would hold the runtime, whatever is found below

        assert ends.started == list(order)
        assert ended == ["fast"]
        assert took <= GRACE + 1
        assert shows(rt) == "nothing"
        first, second = (name for name in order if name != "fast")
        cause = caught.value.__cause__
        assert cause is not None
        assert (cause is ends.error) is (first == "raising")
        assert first in str(caught.value)
        assert second in "".join(cause.__notes__)
        assert "".join(cause.__notes__).count("then, too") == 1
        assert len(reports(caplog, "raising")) == 1
        [hung] = reports(caplog, "hung")
        assert ("shields itself" in hung) is shielded
        assert reports(caplog, "fast") == []


@pytest.mark.parametrize("where", ["scope", "runtime"])
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_the_end_of_a_scope_and_of_the_runtime(
    order: tuple[str, ...], where: str, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """H8: likewise; its agents have ended before any of them runs."""
    seen: list[str] = []

    async def check() -> None:
        await trio.lowlevel.checkpoint()
        seen.append(shows(rt))

    ends = Ends(shielded=False, check=check)
    start = trio.current_time()
    with pytest.raises(ta.TeardownError) as caught:  # noqa: PT012 - the block is the point
        async with runtime(Reply.hang()) as rt, rt.scope.open_child("owner") as owner:
            for name in reversed(order):
                await ends.register(owner if where == "scope" else rt.scope, "callback", name)
            handle = await owner.agents.create("a", options=ta.AgentOptions(model=MODEL))
            handle.agent.followup("hangs")
            await trio.testing.wait_all_tasks_blocked()
    assert ends.started == list(order)
    assert ends.ended == ["fast"]
    assert seen == ["nothing"] * 3
    assert trio.current_time() - start <= 31
    first = next(name for name in order if name != "fast")
    assert first in str(caught.value)
    assert len(reports(caplog, "raising")) == 1
    assert len(reports(caplog, "hung")) == 1


async def test_one_that_uses_up_the_grace_leaves_the_others_some(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """H8: a good clean-up that takes its time is not cut off because others before it have hung."""
    async with runtime() as rt:
        done: list[str] = []

        async def slow() -> None:
            await trio.sleep(4)
            done.append("slow")

        async def hung() -> None:
            await hang()

        def setup(agent: ta.Agent) -> None:
            for clean_up in (slow, hung, slow, hung, slow):
                agent.scope.callback(clean_up)

        handle = await rt.agents.create("a", setup=setup, options=ta.AgentOptions(grace=GRACE))
        start = trio.current_time()
        with pytest.raises(ta.TeardownError, match="hung"):
            await handle.dispose()
        assert done == ["slow"] * 3
        # The grace, in which the first two are; five seconds for the second that hangs, and what the others take.
        assert trio.current_time() - start <= GRACE + 4 + 5 + 4 + 1
        assert len(reports(caplog, "hung")) == 2


@pytest.mark.parametrize("hook", [ta.AgentDisposed, ta.SessionDisposed])
async def test_listeners_of_the_end(hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    """H8: they are plain functions, so none can hang; one that raises is reported, and the others are told."""
    told: list[str] = []

    async with runtime() as rt:

        def raising(payload: object) -> None:
            told.append("raising")
            raise LookupError("raising")

        async def hung(payload: object) -> None:
            raise AssertionError

        rt.scope.on(hook, lambda payload: told.append("first"))
        rt.scope.on(hook, raising)
        rt.scope.on(hook, lambda payload: told.append("last"))
        with pytest.raises(ta.UsageError, match="plain functions"):
            rt.scope.on(hook, hung)
        handle = await rt.agents.create("a")
        await handle.dispose()
    assert told == ["first", "raising", "last"]
    assert len(reports(caplog, f"of {hook.__name__} failed")) == 1
