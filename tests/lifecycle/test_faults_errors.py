"""What callers get when something fails: one documented error, whatever else fails with it, under both settings of Trio."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.driving import Gates, calls
from tests.lifecycle.stage import MODEL, OPTIONS, hang, run, runtime, shows, stored
from trio_agents.models import Reply
from trio_agents.testing import FaultyFiles

Case: TypeAlias = Callable[[Path], Awaitable[None]]

CREATE: dict[str, Case] = {}
RESUME: dict[str, Case] = {}
SEND: dict[str, Case] = {}
DISPOSE: dict[str, Case] = {}


def case(table: dict[str, Case]) -> Callable[[Case], Case]:
    """Enter a case into a table, under its name."""

    def enter(fn: Case) -> Case:
        table[fn.__name__] = fn
        return fn

    return enter


async def caught_from(fn: Callable[..., Awaitable[object]], *args: Any, **more: Any) -> BaseException:
    """What a call raises."""
    try:
        await fn(*args, **more)
    except BaseException as exc:  # noqa: ASYNC103 - given back
        return exc  # noqa: ASYNC104 - given back
    raise AssertionError("it raised nothing")


def causes(exc: BaseException | None) -> Iterator[BaseException]:
    """An exception, what it was raised from, and what is in it."""
    while exc is not None:
        yield exc
        if isinstance(exc, BaseExceptionGroup):
            for member in exc.exceptions:
                yield from causes(member)
        exc = exc.__cause__


def check(
    exc: BaseException, kind: type[BaseException], cause: object = None, *, notes: tuple[str, ...] = ()
) -> None:
    """It is exactly of the documented type, has the cause, tells the rest in notes, and wraps no cancellation."""
    assert type(exc) is kind
    assert exc.__cause__ is cause
    told = "".join(getattr(cause if isinstance(cause, BaseException) else exc, "__notes__", []))
    assert all(note in told for note in notes), told
    assert not any(isinstance(found, trio.Cancelled) for found in causes(exc))


class Mine(Exception):
    """The caller's own."""


class Other(Exception):
    """Something else of his."""


def fails(error: BaseException) -> Callable[..., object]:
    """A function that raises."""

    def fail(*told: object) -> object:
        raise error

    return fail


def fails_later(error: BaseException) -> Callable[[], Awaitable[None]]:
    """A clean-up that takes a step, and raises."""

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return fail


def setup_with(*cleanups: Callable[[], object], then: Callable[..., object] = lambda agent: None) -> Any:
    """A setup that registers clean-ups; the first of them runs first."""

    async def setup(agent: ta.Agent) -> object:
        for cleanup in reversed(cleanups):
            agent.scope.callback(cleanup)
        answer: Any = then(agent)
        return await answer if isinstance(answer, Awaitable) else answer

    return setup


async def two_tasks(*errors: Exception) -> None:
    """Run tasks that all fail, in a nursery of the caller's own."""

    async def fail(error: Exception) -> None:
        raise error

    async with trio.open_nursery() as nursery:
        for error in errors:
            nursery.start_soon(fail, error)


@attrs.define
class Own:
    """Runs the caller's own nursery, and keeps what comes out of it."""

    errors: tuple[Exception, ...]
    raised: BaseException | None = None

    async def __call__(self, *told: object) -> object:
        try:
            await two_tasks(*self.errors)
        except BaseException as exc:
            self.raised = exc
            raise
        raise AssertionError


async def fails_when_cancelled(error: Exception) -> None:
    """Wait, and fail on the way out."""
    try:
        await hang()
    finally:
        raise error


# --- create ----------------------------------------------------------------------------------------


@case(CREATE)
async def setup_fails(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine()
        assert await caught_from(rt.agents.create, "a", setup=setup_with(then=fails(error))) is error
        check(error, Mine)
        assert shows(rt) == "nothing"


@case(CREATE)
async def setup_fails_and_its_clean_ups_too(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine()
        setup = setup_with(fails_later(Other("first")), fails(Other("second")), then=fails(error))
        assert await caught_from(rt.agents.create, "a", setup=setup) is error
        check(error, Mine, notes=("first", "second"))
        assert shows(rt) == "nothing"


@case(CREATE)
async def two_tasks_of_a_setup_fail(tmp_path: Path) -> None:
    """The nursery is the caller's, and so is what it makes of that."""
    async with runtime() as rt:
        for errors in ([Mine()], [Mine(), Other()]):
            own = Own(tuple(errors))
            assert await caught_from(rt.agents.create, "a", setup=setup_with(then=own)) is own.raised
            check(own.raised, type(own.raised))


@case(CREATE)
async def the_commit_fails_and_a_clean_up_too(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine()
        setup = setup_with(fails_later(Other("clean-up")), then=lambda agent: fails(error))
        assert await caught_from(rt.agents.create, "a", setup=setup) is error
        check(error, Mine, notes=("clean-up",))


@case(CREATE)
async def two_listeners_veto_and_a_clean_up_fails(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine()
        rt.scope.on(ta.AgentCreated, fails(error))
        rt.scope.on(ta.AgentCreated, fails(Other()))
        setup = setup_with(fails_later(Other("clean-up")))
        assert await caught_from(rt.agents.create, "a", setup=setup) is error
        check(error, Mine, notes=("clean-up",))
        assert shows(rt) == "nothing"


@case(CREATE)
async def the_disk_refuses(tmp_path: Path) -> None:
    faults = FaultyFiles()
    async with runtime(store=ta.JsonlStore(tmp_path / "root", files=faults.files)) as rt:
        faults.fail("mkdir", error=errno.ENOSPC, times=9)
        exc = await caught_from(rt.agents.create, "a")
        faults.heal()
        check(exc, ta.StorageError, exc.__cause__)
        assert isinstance(exc.__cause__, OSError)
        assert exc.__cause__.errno == errno.ENOSPC
        await rt.agents.create("a")


@case(CREATE)
async def the_disk_refuses_and_a_clean_up_fails(tmp_path: Path) -> None:
    faults = FaultyFiles()
    async with runtime(store=ta.JsonlStore(tmp_path / "root", files=faults.files)) as rt:
        faults.fail("mkdir", error=errno.ENOSPC, times=9)
        exc = await caught_from(rt.agents.create, "a", setup=setup_with(fails_later(Other("clean-up"))))
        faults.heal()
        assert type(exc) is ta.StorageError
        assert isinstance(exc.__cause__, OSError)
        assert "clean-up" in "".join(exc.__notes__)


@case(CREATE)
async def cancelled_while_a_clean_up_fails(tmp_path: Path) -> None:
    async with runtime() as rt:
        cleaned: list[str] = []
        setup = setup_with(
            lambda: cleaned.append("up"), fails_later(Other("clean-up")), then=lambda agent: hang()
        )
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: rt.agents.create("a", setup=setup))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert cleaned == ["up"]
        assert shows(rt) == "nothing"


@case(CREATE)
async def setup_fails_because_it_is_cancelled(tmp_path: Path) -> None:
    """What it raises is its own; the cancellation has been answered by it."""
    async with runtime() as rt:
        error = Mine()
        found: list[BaseException] = []

        async def create() -> None:
            setup = setup_with(fails_later(Other("clean-up")), then=lambda agent: fails_when_cancelled(error))
            found.append(await caught_from(rt.agents.create, "a", setup=setup))

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert found == [error]
        check(error, Mine, notes=("clean-up",))
        assert shows(rt) == "nothing"


@case(CREATE)
async def the_owner_closes_while_a_clean_up_fails(tmp_path: Path) -> None:
    async with runtime() as rt:
        found: list[BaseException] = []
        async with trio.open_nursery() as nursery, rt.scope.open_child("owner") as owner:

            async def create() -> None:
                setup = setup_with(fails_later(Other("clean-up")), then=lambda agent: hang())
                found.append(await caught_from(owner.agents.create, "a", setup=setup))

            nursery.start_soon(create)
            await trio.testing.wait_all_tasks_blocked()
            await owner.aclose()
        check(found[0], ta.CreationAbortedError, notes=("clean-up",))


# --- resume ----------------------------------------------------------------------------------------


class Unloadable:
    """A memory store whose loads fail, or wait until they are cancelled and fail then."""

    def __init__(self, store: ta.MemoryStore, error: BaseException, *, waits: bool = False) -> None:
        self._store = store
        self.error: BaseException | None = error
        self.waits = waits

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def open(self, session_id: str) -> object:
        if self.waits:
            with trio.CancelScope(shield=True):
                opened = await self._store.open(session_id)
            try:
                await hang()
            finally:
                opened.writer.abandon()
        elif self.error is not None:
            raise self.error
        return await self._store.open(session_id)


@case(RESUME)
async def the_load_fails(tmp_path: Path) -> None:
    store = ta.MemoryStore()
    await stored(store)
    error = ta.StorageError("the disk stumbles")
    error.__cause__ = cause = OSError(errno.EIO, "no")
    unloadable = Unloadable(store, error)
    async with runtime(store=unloadable) as rt:
        assert await caught_from(rt.agents.resume, "a") is error
        check(error, ta.StorageError, cause)
        unloadable.error = None
        await rt.agents.resume("a")


@case(RESUME)
async def the_disk_fails_twice(tmp_path: Path) -> None:
    """The read fails, and so does giving back what was opened for it."""
    faults = FaultyFiles()
    store = ta.JsonlStore(tmp_path / "root", files=faults.files)
    await stored(store)
    async with runtime(store=store) as rt:
        faults.fail("read", error=errno.EIO, times=9)
        faults.fail("pread", error=errno.EIO, times=9)
        faults.fail("close", error=errno.EIO, times=9)
        exc = await caught_from(rt.agents.resume, "a")
        faults.heal()
        assert type(exc) is ta.StorageError
        assert isinstance(exc.__cause__, OSError)
        await rt.agents.resume("a")


@case(RESUME)
async def nothing_is_stored(tmp_path: Path) -> None:
    async with runtime() as rt:
        check(await caught_from(rt.agents.resume, "a"), ta.SessionNotFoundError)


@case(RESUME)
async def a_resumed_setup_fails_and_its_clean_ups_too(tmp_path: Path) -> None:
    store = ta.MemoryStore()
    await stored(store)
    async with runtime(store=store) as rt:
        error = Mine()
        setup = setup_with(fails_later(Other("first")), fails(Other("second")), then=fails(error))
        assert await caught_from(rt.agents.resume, "a", setup=setup) is error
        check(error, Mine, notes=("first", "second"))
        await rt.agents.resume("a")


@case(RESUME)
async def a_load_is_cancelled(tmp_path: Path) -> None:
    store = ta.MemoryStore()
    await stored(store)
    unloadable = Unloadable(store, Mine(), waits=True)
    async with runtime(store=unloadable) as rt:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rt.agents.resume, "a")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        unloadable.waits, unloadable.error = False, None
        await rt.agents.resume("a")


@case(RESUME)
async def a_resumed_setup_is_cancelled_while_a_clean_up_fails(tmp_path: Path) -> None:
    store = ta.MemoryStore()
    await stored(store)
    async with runtime(store=store) as rt:
        setup = setup_with(fails_later(Other("clean-up")), then=lambda agent: hang())
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: rt.agents.resume("a", setup=setup))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        await rt.agents.resume("a")


@case(RESUME)
async def many_fail_and_each_is_told(tmp_path: Path) -> None:
    """`resume_all` raises for none of them."""
    store = ta.MemoryStore()
    await stored(store, "a")
    await stored(store, "b")
    error = ta.SessionCorruptError("bad bytes")
    async with runtime(store=Unloadable(store, error)) as rt:
        outcomes = await rt.agents.resume_all()
    assert [(outcome.session_id, outcome.error) for outcome in outcomes] == [("a", error), ("b", error)]


# --- send, and ask ---------------------------------------------------------------------------------


def agent_of(handle: ta.AgentHandle) -> Any:
    """Its agent."""
    return handle.agent


@case(SEND)
async def the_log_refuses(tmp_path: Path) -> None:
    faults = FaultyFiles()
    async with runtime(store=ta.JsonlStore(tmp_path / "root", files=faults.files)) as rt:
        agent = agent_of(await rt.agents.create("a", options=OPTIONS))
        await agent.ask("x")
        faults.fail("write", error=errno.ENOSPC)
        with pytest.raises(ta.StorageError) as caught:
            agent.send("y")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert not agent.inbox.has_pending
        assert (await agent.ask("y")).turn == 2


@case(SEND)
async def the_log_refuses_and_cannot_be_undone(tmp_path: Path) -> None:
    """The second failure is told with the first."""
    faults = FaultyFiles()
    async with runtime(store=ta.JsonlStore(tmp_path / "root", files=faults.files)) as rt:
        agent = agent_of(await rt.agents.create("a", options=OPTIONS))
        await agent.ask("x")
        faults.fail("write", error=errno.ENOSPC, writes=20)
        faults.fail("ftruncate", error=errno.EROFS)
        with pytest.raises(ta.StorageError, match=r"No space left.*cannot take back.*Read-only") as caught:
            agent.send("y")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert (await agent.ask("y")).turn == 2


@case(SEND)
async def the_log_refuses_and_the_caller_is_cancelled(tmp_path: Path) -> None:
    """A delivery has no checkpoint: it raises its own error, and the cancellation comes where the caller waits."""
    faults = FaultyFiles()
    async with runtime(store=ta.JsonlStore(tmp_path / "root", files=faults.files)) as rt:
        agent = agent_of(await rt.agents.create("a", options=OPTIONS))
        await agent.ask("x")
        faults.fail("write", error=errno.ENOSPC)
        with trio.CancelScope() as scope:
            scope.cancel()
            with pytest.raises(ta.StorageError):
                agent.send("y")
            receipt = agent.send("z")
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert (await receipt.settled()).turn == 2


@case(SEND)
async def a_turn_fails(tmp_path: Path) -> None:
    async with runtime(Reply.fail(Mine("model")), "fine") as rt:
        agent = agent_of(await rt.agents.create("a", options=OPTIONS))
        exc = await caught_from(agent.ask, "x")
        check(exc, ta.TurnFailed, exc.__cause__)
        assert type(exc.__cause__) is Mine


@case(SEND)
async def a_turn_fails_twice(tmp_path: Path) -> None:
    """The request, and who is asked about it: the later one ends the turn, the earlier is told with it."""
    async with runtime(Reply.fail("AUTH")) as rt:
        agent = agent_of(await rt.agents.create("a", options=OPTIONS))
        error = Mine("judge")

        async def judge(told: ta.RequestFailed, proceed: Any) -> None:
            raise error from ta.ModelError(told.failure.message, code=told.failure.code)

        agent.scope.on(ta.RequestFailed, judge)
        exc = await caught_from(agent.ask, "x")
        check(exc, ta.TurnFailed, error)
        assert [type(found) for found in causes(exc)] == [ta.TurnFailed, Mine, ta.ModelError]


@case(SEND)
async def two_tasks_of_a_hook_fail(tmp_path: Path) -> None:
    """The nursery is the hook's own, and what it raises is the cause as it is."""
    async with runtime() as rt:
        for errors in ([Mine()], [Mine(), Other()]):
            own = Own(tuple(errors))
            agent = agent_of(await rt.agents.create(options=OPTIONS))
            agent.scope.on(ta.PreStep, own.__call__)
            check(await caught_from(agent.ask, "x"), ta.TurnFailed, own.raised)
            assert own.raised is not None


@case(SEND)
async def two_tools_end_the_turn(tmp_path: Path) -> None:
    """One plain error, of the first; no group of ours, although both ran in a nursery of ours."""
    both = trio.Event()
    began: list[str] = []

    @ta.tool(parallel=True)
    async def fatal(key: str) -> None:
        """End it all."""
        began.append(key)
        if len(began) == 2:
            both.set()
        await both.wait()
        raise ta.FatalToolError(f"fatal {key}")

    async with runtime(calls("a", "b", name="fatal"), "next") as rt:
        options = ta.AgentOptions(model=MODEL, tools=[fatal])
        agent = agent_of(await rt.agents.create("a", options=options))
        exc = await caught_from(agent.ask, "x")
        assert type(exc) is ta.TurnFailed
        assert type(exc.__cause__) is ta.FatalToolError
        assert not any(isinstance(found, BaseExceptionGroup | trio.Cancelled) for found in causes(exc))


@case(SEND)
async def a_tool_fails_because_it_is_cancelled(tmp_path: Path) -> None:
    """The recorded cause decides, whatever comes out of the work."""

    @ta.tool
    async def stubborn() -> None:
        """Fail on the way out."""
        await fails_when_cancelled(Mine())

    async with runtime(Reply.tool_call("stubborn"), "next") as rt:
        options = ta.AgentOptions(model=MODEL, tools=[stubborn])
        agent = agent_of(await rt.agents.create("a", options=options))
        found: list[BaseException] = []

        async def ask() -> None:
            found.append(await caught_from(agent.ask, "x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            agent.cancel()
        check(found[0], ta.TurnAborted)


@case(SEND)
async def an_ask_is_cancelled_and_its_message_cannot_be_taken_back(tmp_path: Path) -> None:
    faults = FaultyFiles()
    gates = Gates()
    store = ta.JsonlStore(tmp_path / "root", files=faults.files)
    async with runtime(calls("a"), "one", "two", store=store) as rt:
        options = ta.AgentOptions(model=MODEL, tools=[gates.tool])
        agent = agent_of(await rt.agents.create("a", options=options))
        agent.followup("holds the agent")
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.ask, "x")
                await trio.testing.wait_all_tasks_blocked()
                faults.fail("write", error=errno.ENOSPC)
                scope.cancel()
        assert scope.cancelled_caught
        assert [message.text for message in agent.inbox.next_turn] == ["x"]
        gates.open("a")
        await agent.when_idle()


@case(SEND)
async def two_asks_fail_in_the_callers_nursery(tmp_path: Path) -> None:
    """The group is of the caller's nursery; in it are the documented errors, as they are."""
    async with runtime(Reply.fail(Mine()), Reply.fail(Mine())) as rt:
        agents = [agent_of(await rt.agents.create(id, options=OPTIONS)) for id in "ab"]
        found: list[BaseException] = []

        async def ask(agent: Any) -> None:
            found.append(await caught_from(agent.ask, "x"))
            raise found[-1]

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                for agent in agents:
                    nursery.start_soon(ask, agent)

        exc = await caught_from(both)
        failed = [one for one in found if type(one) is ta.TurnFailed]
        assert failed
        assert [one for one in causes(exc) if type(one) is ta.TurnFailed] == failed
        assert all(type(one.__cause__) is Mine for one in failed)
        assert all(type(one) in {ta.TurnFailed, trio.Cancelled} for one in found)


# --- dispose ---------------------------------------------------------------------------------------


@case(DISPOSE)
async def a_clean_up_fails(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine()
        handle = await rt.agents.create("a", setup=setup_with(fails_later(error)))
        check(await caught_from(handle.dispose), ta.TeardownError, error)
        await handle.dispose()
        assert shows(rt) == "nothing"


@case(DISPOSE)
async def two_clean_ups_and_a_task_fail(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine()
        handle = await rt.agents.create("a", setup=setup_with(fails_later(error), fails(Other("second"))))
        handle.agent.scope.callback(lambda: None)
        async with rt.scope.open_child("unaffected"):
            check(await caught_from(handle.dispose), ta.TeardownError, error, notes=("Other: second",))


@case(DISPOSE)
async def two_tasks_of_a_clean_up_fail(tmp_path: Path) -> None:
    """The nursery is the clean-up's own, and what it raises is the cause as it is."""
    async with runtime() as rt:
        for errors in ([Mine()], [Mine(), Other()]):
            own = Own(tuple(errors))
            handle = await rt.agents.create("a", setup=setup_with(own.__call__))
            check(await caught_from(handle.dispose), ta.TeardownError, own.raised)
            assert own.raised is not None


@case(DISPOSE)
async def two_children_fail(tmp_path: Path) -> None:
    """Each level wraps once: parent, child, the clean-up's error."""
    async with runtime() as rt:
        parent = await rt.agents.create("a")
        errors = [Mine("one"), Mine("two")]
        for error in errors:
            await parent.agent.scope.agents.create(str(error), setup=setup_with(fails_later(error)))
        exc = await caught_from(parent.dispose)
        assert [type(found) for found in causes(exc)] == [ta.TeardownError, ta.TeardownError, Mine]
        assert exc.__cause__ is not None
        assert "agent 'one' ended, but not cleanly" in "".join(exc.__cause__.__notes__)


@case(DISPOSE)
async def a_waiter_is_cancelled_while_a_clean_up_fails(tmp_path: Path) -> None:
    async with runtime() as rt:
        error, gate = Mine(), trio.Event()

        async def clean_up() -> None:
            await gate.wait()
            raise error

        handle = await rt.agents.create("a", setup=setup_with(clean_up))
        found: list[BaseException] = []

        async def dispose() -> None:
            found.append(await caught_from(handle.dispose))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispose)
            with trio.CancelScope() as scope:
                scope.cancel()
                await handle.dispose()
            assert scope.cancelled_caught
            gate.set()
        check(found[0], ta.TeardownError, error)


@case(DISPOSE)
async def a_block_is_cancelled_and_its_end_fails(tmp_path: Path) -> None:
    """The body's cancellation goes on, as itself."""
    async with runtime() as rt:
        with trio.CancelScope() as scope:
            async with rt.agents.open("a", setup=setup_with(fails_later(Mine()), fails(Other()))):
                scope.cancel()
                await hang()
        assert scope.cancelled_caught
        assert shows(rt) == "nothing"


@case(DISPOSE)
async def a_block_fails_and_its_end_too(tmp_path: Path) -> None:
    async with runtime() as rt:
        error = Mine("body")

        async def body() -> None:
            async with rt.agents.open("a", setup=setup_with(fails_later(Other("clean-up")), fails(Other()))):
                raise error

        assert await caught_from(body) is error
        check(error, Mine, notes=("clean-up",))


@case(DISPOSE)
async def aclose_under_a_cancelled_caller(tmp_path: Path) -> None:
    """Its wait is shielded, so the failure is known: raised as itself, and the cancellation comes afterwards."""
    async with runtime() as rt:
        error = Mine()
        handle = await rt.agents.create("a", setup=setup_with(fails_later(error)))
        with trio.CancelScope() as scope:
            scope.cancel()
            check(await caught_from(handle.aclose), ta.TeardownError, error)
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught


@case(DISPOSE)
async def two_agents_fail_at_the_end_of_the_runtime(tmp_path: Path) -> None:
    async def body() -> None:
        async with runtime() as rt:
            for error in (Mine("one"), Mine("two")):
                await rt.agents.create(str(error), setup=setup_with(fails_later(error)))

    exc = await caught_from(body)
    assert [type(found) for found in causes(exc)] == [ta.TeardownError, ta.TeardownError, Mine]
    assert exc.__cause__ is not None
    assert "agent 'one' ended, but not cleanly" in "".join(exc.__cause__.__notes__)


@pytest.mark.parametrize("trio_is_strict", [True, False], ids=["strict", "loose"])
@pytest.mark.parametrize(
    ("table", "name"),
    [
        pytest.param(table, name, id=f"{what}-{name}")
        for what, table in {"create": CREATE, "resume": RESUME, "send": SEND, "dispose": DISPOSE}.items()
        for name in table
    ],
)
def test_callers_get_the_documented_error(
    table: dict[str, Case], name: str, trio_is_strict: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X4, ERR-10: one plain error with its cause, whatever fails beside it; `Cancelled` is never wrapped."""
    caplog.set_level(logging.CRITICAL)

    async def main() -> None:
        tasks = trio.lowlevel.current_statistics().tasks_living
        await table[name](tmp_path)
        assert trio.lowlevel.current_statistics().tasks_living == tasks

    run(main, strict=trio_is_strict)
