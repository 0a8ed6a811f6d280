"""The floor: the same work by hand on bare Trio, without what makes it safe. The measured process of `floor`.

No scopes, no registry with events, no validation, no containment, no closers: nobody should write an agent like
this. It tells how much of a figure is Trio, the encoder and the disk.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from benchmarks import typed_log
from benchmarks.ours.setting import directory
from benchmarks.worker import Growth, Round, about, converse


class Event(msgspec.Struct, frozen=True, gc=False):
    """An envelope with its payload."""

    type: str
    seq: int
    time: int
    data: Any


class Text(msgspec.Struct, frozen=True, gc=False):
    type: str
    text: str


class Said(msgspec.Struct, frozen=True, gc=False):
    id: str
    role: str
    content: list[Text]


class Mark(msgspec.Struct, frozen=True, gc=False):
    turn: int
    step: int


class Splice(msgspec.Struct, frozen=True, gc=False):
    target: str
    start: int
    removed: int
    inserted: list[Said]


class Answer(msgspec.Struct, frozen=True, gc=False):
    turn: int
    step: int
    message: Said


class Piece(msgspec.Struct, frozen=True, gc=False):
    turn: int
    step: int
    chunk: Text


ENCODE = msgspec.json.Encoder().encode


class Syncer:
    """One thread that syncs files and wakes those who wait."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[int, trio.Event] | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            os.fdatasync(job[0])
            self._token.run_sync_soon(job[1].set)

    async def sync(self, fd: int) -> None:
        done = trio.Event()
        self._jobs.put((fd, done))
        await done.wait()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class Agent:
    """A list of events, and a task while a turn runs."""

    def __init__(self, nursery: trio.Nursery, fd: int | None = None, syncer: Syncer | None = None) -> None:
        self.log: list[Event] = []
        self.surface: list[Said] = []
        self._nursery = nursery
        self._fd = fd
        self._syncer = syncer
        self._turn = 0
        self._idle = trio.Event()
        self._scope = trio.CancelScope()

    def append(self, type: str, data: object) -> None:
        event = Event(type, len(self.log), time.time_ns() // 1_000_000, data)
        line = ENCODE(event)
        if self._fd is not None:
            os.write(self._fd, line + b"\n")
        self.log.append(event)

    def followup(self, text: str, answer: Callable[[Agent], Awaitable[None]]) -> None:
        message = Said(str(uuid.uuid4()), "user", [Text("text", text)])
        self.append("agent/inbox/spliced", Splice("next-turn", 0, 0, [message]))
        self._idle = trio.Event()
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._run, message, answer)

    async def _run(self, message: Said, answer: Callable[[Agent], Awaitable[None]]) -> None:
        self._turn += 1
        mark = Mark(self._turn, 1)
        self.append("turn/start", mark)
        self.append("agent/inbox/spliced", Splice("next-turn", 0, 1, []))
        self.append("step/start", mark)
        self.append("user/message", message)
        self.surface.append(message)
        with self._scope:
            if self._syncer is not None and self._fd is not None:
                await self._syncer.sync(self._fd)
            await answer(self)
            said = Said(str(uuid.uuid4()), "assistant", [Text("text", "ok")])
            self.append("assistant/message", Answer(self._turn, 1, said))
            self.surface.append(said)
        self.append("step/end", mark)
        self.append("turn/end", mark)
        if self._syncer is not None and self._fd is not None:
            await self._syncer.sync(self._fd)
        self._idle.set()

    async def when_idle(self) -> None:
        await self._idle.wait()

    def cancel(self) -> None:
        self._scope.cancel()

    async def ok(self) -> None:
        """Two chunks at once."""
        await trio.lowlevel.checkpoint()
        self.append("assistant/chunk", Piece(self._turn, 1, Text("text-delta", "ok")))
        self.append("assistant/chunk", Piece(self._turn, 1, Text("finish", "stop")))

    async def endless(self) -> None:
        self.append("assistant/chunk", Piece(self._turn, 1, Text("text-delta", "ok")))
        await trio.sleep_forever()

    async def turn(self) -> None:
        self.followup("hello there", Agent.ok)
        await self.when_idle()


async def create_dispose(run: Round, *, agents: int) -> None:
    registry: dict[str, Agent] = {}
    async with trio.open_nursery() as nursery:
        with run.span("create_dispose", agents):
            for _ in range(agents):
                await trio.lowlevel.checkpoint()
                name = str(uuid.uuid4())
                registry[name] = Agent(nursery)
                await trio.lowlevel.checkpoint()
                del registry[name]


@asynccontextmanager
async def _context() -> AsyncIterator[None]:
    await trio.lowlevel.checkpoint()
    yield
    await trio.lowlevel.checkpoint()


async def create_context_dispose(run: Round, *, agents: int) -> None:
    """An agent is a task with a nursery of its own, which enters the context and stays in it until it is released."""

    async def home(release: trio.Event, gone: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery(), _context():
            task_status.started()
            await release.wait()
        gone.set()

    registry: dict[str, Agent] = {}
    async with trio.open_nursery() as nursery:
        with run.span("create_context_dispose", agents):
            for _ in range(agents):
                release, gone = trio.Event(), trio.Event()
                name = str(uuid.uuid4())
                await nursery.start(home, release, gone)
                registry[name] = Agent(nursery)
                release.set()
                await gone.wait()
                del registry[name]


async def create_turn_dispose(run: Round, *, agents: int) -> None:
    async with trio.open_nursery() as nursery:
        with run.span("create_turn_dispose", agents):
            for _ in range(agents):
                await trio.lowlevel.checkpoint()
                await Agent(nursery).turn()
                await trio.lowlevel.checkpoint()


async def growth(run: Round, *, turns: int, windows: dict[str, str]) -> None:
    async with trio.open_nursery() as nursery:
        agent = Agent(nursery)
        marks = Growth(run, {int(last): metric for last, metric in windows.items()})
        for number in range(1, turns + 1):
            await agent.turn()
            marks.turn(number)


async def _all(agents: list[Agent], turns: int) -> None:
    async def go(agent: Agent) -> None:
        for _ in range(turns):
            await agent.turn()

    async with trio.open_nursery() as nursery:
        for agent in agents:
            nursery.start_soon(go, agent)


async def crowd(run: Round, *, agents: int, turns: int) -> None:
    async with trio.open_nursery() as nursery:
        group = [Agent(nursery) for _ in range(agents)]
        with run.span("turn", agents * turns):
            await _all(group, turns)


async def durable(run: Round, *, turns: int) -> None:
    syncer = Syncer()
    with directory() as place:
        for tier in ("memory", "written", "synced"):
            fd = None if tier == "memory" else _new(place, tier)
            async with trio.open_nursery() as nursery:
                agent = Agent(nursery, fd, syncer if tier == "synced" else None)
                with run.span(tier, turns):
                    for _ in range(turns):
                        await agent.turn()
            if fd is not None:
                os.close(fd)
    syncer.close()


async def durable_crowd(run: Round, *, agents: int, turns: int) -> None:
    syncer = Syncer()
    with directory() as place:
        for tier in ("written", "synced"):
            fds = [_new(place, f"{tier}-{number}") for number in range(agents)]
            async with trio.open_nursery() as nursery:
                group = [Agent(nursery, fd, syncer if tier == "synced" else None) for fd in fds]
                with run.span(tier, agents * turns):
                    await _all(group, turns)
            for fd in fds:
                os.close(fd)
    syncer.close()


def _new(place: str, name: str) -> int:
    return os.open(f"{place}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def cancel_to_quiet(run: Round, *, agents: int, single: int) -> None:
    async with trio.open_nursery() as nursery:
        group = [Agent(nursery) for _ in range(agents)]
        for agent in group:
            agent.followup("hello there", Agent.endless)
        await trio.testing.wait_all_tasks_blocked()
        with run.span("cancel_to_quiet", agents):
            for agent in group:
                agent.cancel()
            for agent in group:
                await agent.when_idle()


async def resume(run: Round, *, root: str, sizes: list[int]) -> None:
    for size in sizes:
        path = Path(root, str(size), "_no-cwd", "resume-me", "session.jsonl")
        with run.span(f"resume_{size}", 1):
            events = typed_log.DECODER.decode_lines(path.read_bytes().partition(b"\n")[2])  # noqa: ASYNC240
        assert len(events) > size * 0.9
        await trio.lowlevel.checkpoint()


async def append(run: Round, *, events: int, tiers: list[str]) -> None:
    with directory() as place:
        for tier in tiers:
            fd = None if tier == "memory" else _new(place, tier)
            async with trio.open_nursery() as nursery:
                agent = Agent(nursery, fd)
                with run.span(tier, events):
                    for _ in range(events):
                        agent.append("bench/note", Mark(1, 1))
            if fd is not None:
                os.close(fd)


async def primitives(run: Round, *, ops: int) -> None:
    """What Trio and the system charge for one of each."""

    async def nothing() -> None:
        pass

    with run.span("checkpoint", ops):
        for _ in range(ops):
            await trio.lowlevel.checkpoint()
    with run.span("cancel_scope", ops):
        for _ in range(ops):
            with trio.CancelScope():  # noqa: ASYNC100 - the price of an empty one
                pass
    with run.span("nursery", ops):
        for _ in range(ops):
            async with trio.open_nursery():
                pass
    async with trio.open_nursery() as nursery:
        with run.span("task", ops):
            for _ in range(ops):
                nursery.start_soon(nothing)
                await trio.lowlevel.checkpoint()
    with run.span("thread_hop", ops // 10):
        for _ in range(ops // 10):
            await trio.to_thread.run_sync(int)
    event = Event("turn/start", 1, 1, Mark(1, 1))
    with run.span("encode", ops):
        for _ in range(ops):
            ENCODE(event)
    with directory() as place:
        fd = _new(place, "file")
        with run.span("write", ops):
            for _ in range(ops):
                os.write(fd, b"x" * 150)
        with run.span("write_and_sync", ops // 20):
            for _ in range(ops // 20):
                os.write(fd, b"x" * 1500)
                os.fdatasync(fd)
        os.close(fd)


FUNCTIONS: dict[str, Callable[..., Awaitable[None]]] = {
    fn.__name__: fn
    for fn in (
        create_dispose,
        create_context_dispose,
        create_turn_dispose,
        growth,
        crowd,
        durable,
        durable_crowd,
        cancel_to_quiet,
        resume,
        append,
        primitives,
    )
}


def run(case: str, params: dict[str, Any]) -> Round:
    """One timed round."""
    made = Round()

    async def main() -> None:
        await FUNCTIONS[case](made, **params)

    trio.run(main)
    return made


if __name__ == "__main__":
    converse(run, None, about("trio", "msgspec"))
