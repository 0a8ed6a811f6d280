"""What outlives an end or a lost race: staged contexts, and the session that was there first."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trio_agents import AgentExistsError, AgentOptions, MemoryStore, ToolContext, open_runtime, tool
from trio_agents.models import Reply, ScriptedModel
from trio_agents.session import TurnStart


async def test_contexts_of_a_tool_that_ends_during_the_teardown_stay_parked(autojump_clock: object) -> None:
    """DIS-7: staged to next-step although the agent is closing; no turn; a resume finds them."""
    store = MemoryStore()
    at_work, may_end = trio.Event(), trio.Event()

    @tool
    async def slow(context: ToolContext) -> str:
        """Finish what was begun."""
        with trio.CancelScope(shield=True):
            at_work.set()
            await may_end.wait()
        context.stage("left behind")
        return "done"

    model = ScriptedModel([Reply.tool_call("slow")])
    async with open_runtime(store=store, models=[model]) as runtime:
        handle = await runtime.agents.create("s", options=AgentOptions(model="scripted/m", tools=[slow]))
        handle.agent.followup("go")
        await at_work.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handle.dispose)
            await trio.testing.wait_all_tasks_blocked()
            may_end.set()
        turns = [event for event in handle.agent.session.events if type(event.data) is TurnStart]
        assert len(turns) == 1

    async with open_runtime(store=store, models=[ScriptedModel()]) as runtime:
        handle = await runtime.agents.resume("s")
        assert [message.text for message in handle.agent.inbox.next_step] == ["left behind"]
        assert handle.agent.status == "idle"


async def test_a_prepared_session_never_displaces_a_live_one() -> None:
    """LOG-11: an id is refused when a session is prepared, and again when it is entered."""
    may_go_on = trio.Event()

    async def wait(agent: object) -> None:
        await may_go_on.wait()

    async with open_runtime() as runtime:
        failures = []

        async def late() -> None:
            try:
                await runtime.agents.create("s", setup=wait)
            except AgentExistsError as exc:
                failures.append(exc)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            await trio.testing.wait_all_tasks_blocked()
            first = await runtime.agents.create("s")
            may_go_on.set()

        assert len(failures) == 1
        assert runtime.sessions.get("s") is first.agent.session
        assert runtime.sessions.list() == [first.agent.session]
        with pytest.raises(AgentExistsError):
            await runtime.agents.create("s")
        assert runtime.sessions.get("s") is first.agent.session
