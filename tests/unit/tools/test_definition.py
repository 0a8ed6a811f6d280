"""`@tool`: what it makes of a function, and how a call runs (TOOL-2, TOOL-12, TOOL-23)."""

from __future__ import annotations

import functools
import threading
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import assert_checkpoints

from trio_agents.errors import ToolError, UsageError
from trio_agents.session._events import ToolCall
from trio_agents.tools import Tool, ToolContext, ToolReturn, schema_tool, tool


def context(**options) -> ToolContext:
    return ToolContext(call_id="c1", name="t", **options)


async def run(what: Tool, raw: str = "", **options) -> ToolReturn:
    return await what.invoke(what.parse(raw), context(**options))


# --- options --------------------------------------------------------------------------------------


def test_defaults() -> None:
    @tool
    def fn() -> None: ...

    assert (fn.name, fn.effect, fn.timeout, fn.abandon_on_cancel) == ("fn", "once", None, False)
    assert not fn.is_parallel({})
    assert fn.is_threaded
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        fn.name = "other"  # type: ignore[misc]


def test_options() -> None:
    @tool(name="look-up", description="Look.", effect="pure", parallel=True, timeout=3, output_limit=None)
    async def fn() -> None:
        """Something else."""

    assert (fn.name, fn.description, fn.effect, fn.timeout, fn.output_limit) == (
        "look-up",
        "Look.",
        "pure",
        3,
        None,
    )
    assert fn.is_parallel({})
    assert not fn.is_threaded


@pytest.mark.parametrize(
    "options",
    [
        {"effect": "twice"},
        {"timeout": 0},
        {"timeout": "3"},
        {"timeout": True},
        {"output_limit": -1},
        {"output_limit": 1.5},
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 65},
    ],
    ids=str,
)
def test_options_out_of_range(options) -> None:
    (what,) = options
    with pytest.raises(UsageError, match=f"{what} is|is named with"):
        tool(**{"name": "x", **options})(lambda: None)


def test_what_is_no_function() -> None:
    async def values():  # noqa: ASYNC900  it is refused, and never run
        yield 1

    for fn in (values, 3, int, classmethod(lambda cls: None)):
        with pytest.raises(UsageError):
            tool(name="x")(cast("Any", fn))
    with pytest.raises(UsageError, match="a tool already"):
        tool(tool(name="x")(lambda: None))
    with pytest.raises(UsageError, match="give name="):
        tool(lambda: None)


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        (True, True),
        (False, False),
        (1, False),
        ("yes", False),
        (None, False),
        (lambda _arguments: True, True),
        (lambda _arguments: 1, False),
        (lambda arguments: arguments["missing"], False),
        (lambda: True, False),
    ],
    ids=range(9),
)
def test_parallel_is_exactly_true(parallel, expected: bool) -> None:
    """TOOL-2"""
    assert tool(name="x", parallel=parallel)(lambda: None).is_parallel({}) is expected


def test_parallel_sees_typed_arguments() -> None:
    """TOOL-2"""

    @tool(parallel=lambda arguments: arguments["paths"] == ("a",))
    def fn(paths: tuple[str, ...]) -> None: ...

    assert fn.is_parallel(fn.parse('{"paths": ["a"]}'))
    assert not fn.is_parallel(fn.parse('{"paths": ["b"]}'))


# --- kinds of functions ---------------------------------------------------------------------------


def test_calling_it_calls_the_function() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert add(1, b=5) == 6


async def test_a_plain_function_runs_in_a_thread() -> None:
    @tool
    def fn(x: int) -> str:
        return f"{x} {threading.current_thread() is threading.main_thread()}"

    assert (await run(fn, '{"x": 1}')).text == "1 False"


async def test_an_async_function_is_a_checkpoint_even_if_it_never_waits() -> None:
    @tool
    async def fn() -> str:
        return "x"

    assert (await run(fn)).text == "x"


@pytest.mark.parametrize("position", range(2))
async def test_positional_only(position: int) -> None:
    @tool
    def fn(a: int, b: int = 7, c: int = 8, /, d: int = 9, *, e: int = 10) -> list[int]:
        return [a, b, c, d, e]

    raw, text = [('{"a": 1}', "[1,7,8,9,10]"), ('{"a": 1, "c": 3, "e": 5}', "[1,7,3,9,5]")][position]
    assert (await run(fn, raw)).text == text


class Counter:
    def __init__(self, start: int) -> None:
        self.count = start

    @tool
    async def add(self, n: int, ctx: ToolContext) -> str:
        """Add to the counter."""
        self.count += n
        return f"{self.count} {ctx.call_id}"

    @tool(name="peek")
    def look(self) -> int:
        return self.count

    @staticmethod
    @tool
    def outside(n: int) -> int:
        return n

    @tool
    @staticmethod
    def inside(n: int) -> int:
        return n

    def plain(self, n: int) -> int:
        return self.count + n

    @classmethod
    def named(cls, n: int) -> str:
        return f"{cls.__name__} {n}"


async def test_methods() -> None:
    one, two = Counter(1), Counter(10)
    assert one.add.parameters.value == Counter.add.parameters.value
    assert "self" not in str(one.add.parameters.value)
    assert (await run(one.add, '{"n": 2}')).text == "3 c1"
    assert (await run(two.add, '{"n": 2}')).text == "12 c1"
    assert (await run(one.look)).text == "3"
    assert one.look.name == "peek"
    assert one.look() == 3
    assert (await run(one.outside, '{"n": 2}')).text == "2"
    assert (await run(one.inside, '{"n": 2}')).text == "2"
    assert (await run(tool(one.plain), '{"n": 2}')).text == "5"
    assert (await run(tool(Counter.named), '{"n": 2}')).text == "Counter 2"


async def test_a_method_from_the_class_is_no_whole_tool() -> None:
    with pytest.raises(UsageError, match="from an instance"):
        await run(Counter.add, '{"n": 2}')


async def test_callables_and_wrappers() -> None:
    class Double:
        async def __call__(self, n: int) -> int:
            return 2 * n

    def base(factor: int, n: int) -> int:
        return factor * n

    def wrapped(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs)

        return wrapper

    async def inner(n: int) -> int:
        return n

    assert (await run(tool(name="double")(Double()), '{"n": 2}')).text == "4"
    assert (await run(tool(name="triple")(functools.partial(base, 3)), '{"n": 2}')).text == "6"
    assert (await run(tool(wrapped(inner)), '{"n": 2}')).text == "2"


async def test_a_tool_of_a_schema_gets_the_object_as_it_is() -> None:
    async def fn(arguments, ctx):
        return [arguments, ctx.call_id]

    made = schema_tool(fn, name="any/name", description="d", parameters={"type": "object"}, effect="pure")
    assert (await run(made, '{"a": [1]}')).text == '[{"a":[1]},"c1"]'
    assert (made.name, made.effect, made.spec.description) == ("any/name", "pure", "d")
    with pytest.raises(UsageError):
        schema_tool(fn, name="", description="", parameters={})
    with pytest.raises(UsageError):
        schema_tool(fn, name="x", description="", parameters=made.parameters.of([]))


# --- running --------------------------------------------------------------------------------------


async def test_results_are_encoded_and_bounded() -> None:
    spilled: list[str] = []

    def spill(text: str) -> str:
        spilled.append(text)
        return "here"

    @tool(output_limit=4)
    async def fn() -> str:
        return "abcdefgh"

    result = await run(fn, spill=spill)
    assert result.text == "ab\n[... 4 of 8 characters left out here; the whole is in here ...]\ngh"
    assert spilled == ["abcdefgh"]


async def test_what_the_function_raises_comes_out_as_it_is() -> None:
    class Odd(Exception): ...

    @tool
    async def fn() -> None:
        raise Odd

    @tool
    def threaded() -> None:
        raise Odd

    for each in (fn, threaded):
        with pytest.raises(Odd):
            await run(each)


async def test_timeout(autojump_clock: trio.testing.MockClock) -> None:
    ended = []

    @tool(timeout=5)
    async def fn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    start = trio.current_time()
    with pytest.raises(ToolError, match="longer than 5 s") as caught:
        await run(fn)
    assert caught.value.code == "TOOL_TIMEOUT"
    assert ended == [start + 5]


async def test_a_cancel_from_outside_is_no_timeout() -> None:
    @tool(timeout=5)
    async def fn() -> None:
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await run(fn)
        pytest.fail("not reached")
    assert scope.cancelled_caught


async def test_a_thread_is_waited_for_and_keeps_its_result() -> None:
    """TOOL-12"""
    started, go = threading.Event(), threading.Event()
    results = []

    @tool
    def fn() -> str:
        started.set()
        go.wait(10)
        return "done"

    async def call() -> None:
        results.append((await run(fn)).text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.to_thread.run_sync(started.wait, 10)
        nursery.cancel_scope.cancel()
        go.set()
    assert results == ["done"]


async def test_a_thread_may_be_abandoned() -> None:
    """TOOL-12"""
    started, go = threading.Event(), threading.Event()

    @tool(abandon_on_cancel=True)
    def fn() -> str:
        started.set()
        go.wait(10)
        return "late"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, fn)
        await trio.to_thread.run_sync(started.wait, 10)
        nursery.cancel_scope.cancel()
    go.set()


async def test_the_time_of_a_thread_that_may_be_abandoned(autojump_clock: trio.testing.MockClock) -> None:
    """TOOL-12: nobody says that it was stopped."""
    go = threading.Event()

    @tool(abandon_on_cancel=True, timeout=5)
    def fn() -> None:
        go.wait(10)

    with pytest.raises(ToolError, match="longer than 5 s and is not waited for any longer") as caught:
        await run(fn)
    assert caught.value.code == "TOOL_TIMEOUT"
    go.set()


async def test_a_service_is_started_and_goes_on() -> None:
    log: list[object] = []

    @tool
    async def serve(port: int, *, status: trio.TaskStatus[str], ctx: ToolContext) -> None:
        log.append(("up", port, ctx.call_id))
        status.started(f"listening on {port}")
        try:
            await trio.sleep_forever()
        finally:
            log.append("down")

    assert serve.is_service
    async with trio.open_nursery() as nursery:
        result = await run(serve, '{"port": 80}', start_service=nursery.start)
        assert result.text == "listening on 80"
        assert log == [("up", 80, "c1")]
        nursery.cancel_scope.cancel()
    assert log == [("up", 80, "c1"), "down"]


async def test_reconcile() -> None:
    """TOOL-23"""
    call = ToolCall(turn=1, step=1, call_id="c1", name="pay", arguments="{}")

    async def ask(given: ToolCall) -> str:
        return f"paid {given.call_id}"

    assert await tool(name="x")(lambda: None).reconcile(call) is None
    assert await tool(name="x", reconcile=lambda _call: None)(lambda: None).reconcile(call) is None
    assert await tool(name="x", reconcile=lambda _call: {"a": 1})(lambda: None).reconcile(call) == ToolReturn(
        '{"a":1}'
    )
    assert await tool(name="x", reconcile=ask)(lambda: None).reconcile(call) == ToolReturn("paid c1")
    with assert_checkpoints():
        await tool(name="x", reconcile=lambda _call: None)(lambda: None).reconcile(call)


# --- the context ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threaded", [False, True])
async def test_what_a_tool_may_do(threaded: bool) -> None:
    """TOOL-16, TOOL-20: the loop's callables are called on the Trio thread, whichever thread the tool is in."""
    seen = []

    def note(what):
        trio.lowlevel.current_task()  # raises outside of Trio
        seen.append(what)

    async def call(name, arguments):
        note((name, dict(arguments)))
        return ToolReturn("inner")

    @tool
    def plain(ctx: ToolContext) -> str:
        ctx.progress("half")
        ctx.stage("by the way")
        return trio.from_thread.run(ctx.call, "other", {"a": 1}).text

    @tool
    async def task(ctx: ToolContext) -> str:
        ctx.progress("half")
        ctx.stage("by the way")
        return (await ctx.call("other", {"a": 1})).text

    result = await run(plain if threaded else task, progress=note, stage=note, call=call)
    assert result.text == "inner"
    assert seen[0] == "half"
    assert (seen[1].text, seen[1].source.kind) == ("by the way", "plugin")
    assert seen[2] == ("other", {"a": 1})


async def test_a_context_made_by_hand() -> None:
    alone = context()
    alone.progress("nobody listens")
    with pytest.raises(UsageError, match="no agent"):
        alone.stage("x")
    with pytest.raises(UsageError, match="no agent"), assert_checkpoints():
        await alone.call("x")
    with pytest.raises(UsageError, match="no agent"), assert_checkpoints():
        await alone.start_service(trio.sleep_forever)
