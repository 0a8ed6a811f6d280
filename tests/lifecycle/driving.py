"""One agent over a scripted model, and everything that happens to it as one list of short lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from msgspec import UNSET

import trio_agents as ta
from trio_agents.models import Reply, ScriptedModel
from trio_agents.session import SessionHeader, encode_event, trace_issues
from trio_agents.values import TextBlock

MODEL = "scripted/m"


def texts(messages: Iterable[Any]) -> list[str]:
    """What messages say, tool results and calls included."""
    found = []
    for message in messages:
        for block in message.content:
            if type(block) is TextBlock:
                found.append(block.text)
            elif block.tag == "tool-call":
                found.append(f"call {block.id}")
            elif block.tag == "tool-result":
                found.append(f"result {block.tool_call_id}: " + "".join(b.text for b in block.content))
            else:
                found.append(block.tag)
    return found


def show(event: Any) -> str:  # noqa: C901 - one line for each type
    """One event as a short line."""
    data = event.data
    match event.type:
        case "agent/inbox/spliced":
            lane = data.target.removeprefix("next-")
            parts = [f"{lane}[{data.start}]"]
            if data.removed_count is not UNSET:
                how = "claim" if data.outcome is UNSET else data.outcome
                parts.append(f"-{data.removed_count} {how}")
            if data.inserted:
                parts.append("+" + ",".join(message.text for message in data.inserted))
            return " ".join(parts)
        case "turn/start":
            return f"turn {data.turn}"
        case "turn/end":
            end = data.reason
            extra = ""
            if end.kind == "aborted":
                extra = f"({end.reason.kind})"
            elif end.kind == "error":
                extra = f"({end.error.code})"
            return f"turn end {end.kind}{extra}"
        case "step/start":
            return f"step {data.step}"
        case "step/end":
            return "step end"
        case "user/message":
            return f"user {data.text}"
        case "request/header":
            return f"header {data.reason}"
        case "request/context":
            return "context"
        case "assistant/chunk":
            kind = data.chunk.tag
            if kind == "finish":
                return f"finish {data.chunk.reason.kind}"
            return "." if kind in {"block-start", "block-end", "usage"} else kind
        case "assistant/message":
            mark = " (interrupted)" if data.interrupted is True else ""
            return f"answer {'|'.join(texts([data.message]))}{mark}"
        case "tool/call":
            return f"call {data.call_id}"
        case "tool/started":
            return f"started {data.call_id}"
        case "tool/result":
            [block] = data.message.content
            what = "ok" if not block.is_error else data.error.code if data.error is not UNSET else "error"
            return f"result {block.tool_call_id} {what}"
        case "llm/retry":
            return f"retry {data.retry}"
        case "llm/retry-started":
            return f"retry-started {data.retry}"
    return event.type


class World:
    """A runtime with one agent."""

    def __init__(self, runtime: ta.Runtime, agent: ta.Agent, model: ScriptedModel) -> None:
        self.runtime = runtime
        self.agent: Any = agent  # the loop's own, of which tests look at more than its interface has
        self.model = model
        self.seen: list[str] = []

    @property
    def log(self) -> list[str]:
        """Every event but the frame of a stream's blocks, as short lines."""
        return [line for line in map(show, self.agent.session.events) if line != "."]

    @property
    def turn_log(self) -> list[str]:
        """The log without requests' headers and chunks."""
        return [
            line
            for line in self.log
            if not line.startswith(
                ("header", "context", "finish", "text-delta", "reasoning", "tool-call-delta")
            )
        ]

    @property
    def types(self) -> list[str]:
        """The types of all events."""
        return [event.type for event in self.agent.session.events]

    @property
    def ends(self) -> list[str]:
        """How the turns ended, in order."""
        return [line.removeprefix("turn end ") for line in self.log if line.startswith("turn end")]

    def sent(self, index: int = -1) -> list[str]:
        """What the messages of a request say."""
        return texts(self.model.requests[index].messages)

    def pending(self) -> tuple[list[str], list[str]]:
        """What is pending: next-step, next-turn."""
        inbox = self.agent.inbox
        return [m.text for m in inbox.next_step], [m.text for m in inbox.next_turn]

    def watch(self, scope: ta.Scope | None = None) -> None:
        """Record notifications from here on."""
        scope = scope or self.agent.scope

        def note(line: Callable[[Any], str]) -> Callable[[Any], None]:
            return lambda payload: self.seen.append(line(payload))

        scope.on(ta.AgentStatusChanged, note(lambda p: p.status))
        scope.on(ta.AgentFailed, note(lambda p: f"error {p.turn}.{p.step} {p.failure.code}"))
        scope.on(ta.InboxInserted, note(lambda p: f"inserted {p.message.text}"))
        scope.on(ta.InboxClaimed, note(lambda p: f"claimed {p.message.text} by {p.turn}"))
        scope.on(ta.InboxDiscarded, note(lambda p: f"discarded {p.message.text}"))
        scope.on(ta.ToolFinished, note(lambda p: f"finished {p.call.id}"))
        scope.on(ta.SessionEvent, note(lambda p: show(p.event)))

    def notes(self) -> list[str]:
        """The notifications that are not events of the log."""
        firsts = ("running", "idle", "error ", "inserted", "claimed", "discarded", "finished")
        return [line for line in self.seen if line.startswith(firsts)]

    def check(self) -> None:
        """What holds of every log whenever nothing runs."""
        events = list(self.agent.session.events)
        assert trace_issues(events) == []
        assert [event.seq for event in events] == list(range(len(events)))
        assert self.agent.session.open_turn is None


@asynccontextmanager
async def world(
    script: Any = (),
    *,
    store: Any = None,
    plugins: Any = (),
    setup: Any = None,
    session_id: str = "a",
    mode: Any = "create",
    strict: bool = True,
    provider: str = "scripted",
    **options: Any,
) -> AsyncIterator[World]:
    """A runtime with one agent over a scripted model; everything is checked at the end."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script, provider, strict=strict)
    options.setdefault("model", MODEL)
    async with ta.open_runtime(store=store, models=[model], plugins=plugins) as runtime:
        async with runtime.open_agent(session_id, mode=mode, setup=setup, **options) as agent:
            found = World(runtime, agent, model)
            yield found
        found.check()


def message(text: str, id: str | None = None, **source: Any) -> ta.UserMessage:
    """A user's message whose id is its text."""
    return ta.UserMessage.from_text(text, id=id or text, **source)


def echo_tool(name: str = "echo", **options: Any) -> Any:
    """A tool that returns what it gets."""

    @ta.tool(name=name, **options)
    async def echo(text: str = "") -> str:
        """Give the text back."""
        await trio.lowlevel.checkpoint()
        return text

    return echo


class Gates:
    """A tool whose calls wait until they are let go; says which bodies began and ended."""

    def __init__(self, *, parallel: Any = True, name: str = "gated", **options: Any) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self._gates: dict[str, trio.Event] = {}

        @ta.tool(name=name, parallel=parallel, **options)
        async def gated(key: str) -> str:
            """Wait for the gate of this key."""
            self.began.append(key)
            try:
                await self.gate(key).wait()
            except trio.Cancelled:
                self.ended.append(f"{key} cancelled")
                raise
            self.ended.append(key)
            return key

        self.tool = gated

    def gate(self, key: str) -> trio.Event:
        """The gate of a key."""
        return self._gates.setdefault(key, trio.Event())

    def open(self, *keys: str) -> None:
        """Let calls go."""
        for key in keys:
            self.gate(key).set()


def calls(*keys: str, name: str = "gated", text: str = "") -> Reply:
    """A reply with one call for each key; the key is the call's id."""
    return Reply.tool_calls([(name, {"key": key}, key) for key in keys], text=text)


async def settle() -> None:
    """Let everything run that can."""
    await trio.testing.wait_all_tasks_blocked()


class Refusal:
    """Makes the storage of an agent refuse appends, or barriers, while `on` says so for an event's type."""

    def __init__(self, agent: ta.Agent) -> None:
        ledger = agent.session._ledger
        writer: Any = ledger.writer
        self.types: set[str] = set()
        self.barriers = False
        refusal = self

        class Writer:
            @property
            def is_dirty(self) -> bool:
                return refusal.barriers or writer.is_dirty

            def __getattr__(self, name: str) -> Any:
                return getattr(writer, name)

            def write(self, events: Any, lines: Any) -> None:
                if refusal.types & {"*", *(event.type for event in events)}:
                    raise ta.StorageError("the disk is full")
                writer.write(events, lines)

            async def barrier(self) -> None:
                await trio.lowlevel.checkpoint()
                if refusal.barriers:
                    raise ta.StorageError("the disk is gone")
                await writer.barrier()

        ledger.writer = Writer()


async def store_of(events: Any, id: str = "a") -> ta.MemoryStore:
    """A store that holds a log with exactly these events."""
    store = ta.MemoryStore()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.serve)
        writer = store.create(SessionHeader(id=id, created_at=1), [])
        writer.write(tuple(events), tuple(encode_event(event) for event in events))
        await writer.aclose()
        nursery.cancel_scope.cancel()
    return store
