"""Tool calls: groups, order, results, contexts, and what closes a call that did not end (TOOL)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

import trio_agents as ta
from tests.lifecycle.driving import Gates, Refusal, calls, echo_tool, message, settle, store_of, world
from trio_agents.errors import FatalToolError, ToolError
from trio_agents.models import Reply
from trio_agents.session import ToolCall, ToolResult
from trio_agents.values import ImageBlock, TextBlock

PICTURE = b"GIF89a\x03\x00\x02\x00"


def results(w) -> list[str]:
    """The results in the log, each with its code."""
    return [line for line in w.log if line.startswith("result")]


def call_log(w) -> list[str]:
    """Calls and results in the log."""
    return [line for line in w.log if line.startswith(("call", "result"))]


async def test_results_come_in_model_order(autojump_clock) -> None:
    """TOOL-1"""
    gates = Gates()
    async with world([calls("a", "b", "c"), "done"], tools=[gates.tool]) as w:
        w.agent.followup("x")
        await settle()
        for key in ("c", "a", "b"):
            gates.open(key)
            await settle()
        await w.agent.when_idle()
        assert gates.ended == ["c", "a", "b"]
        assert results(w) == ["result a ok", "result b ok", "result c ok"]
        seqs = {e.data.call_id: e.seq for e in w.agent.session.events if type(e.data) is ToolCall}
        for event in w.agent.session.events:
            if type(event.data) is ToolResult:
                source: Any = event.data.message.source
                assert list(event.source_event_seqs) == [seqs[source.call_id]]
        assert w.sent() == ["x", "call a", "call b", "call c", "result a: a", "result b: b", "result c: c"]


@pytest.mark.parametrize("parallel", [1, "yes", lambda arguments: 1, lambda arguments: 1 / 0, False], ids=str)
async def test_only_exactly_true_is_parallel(parallel, autojump_clock) -> None:
    """TOOL-2"""
    gates = Gates(parallel=parallel)
    async with world([calls("a", "b"), "done"], tools=[gates.tool]) as w:
        w.agent.followup("x")
        await settle()
        assert gates.began == ["a"]
        gates.open("a", "b")
        await w.agent.when_idle()
        assert call_log(w) == ["call a", "result a ok", "call b", "result b ok"]


async def test_unknown_and_invalid_calls_are_exclusive(autojump_clock) -> None:
    """TOOL-2"""
    gates = Gates()
    script = Reply.tool_calls(
        [
            ("gated", {"key": "a"}, "a"),
            ("nope", {}, "u"),
            ("gated", {"key": 3}, "i"),
            ("gated", {"key": "b"}, "b"),
        ]
    )
    async with world([script, "done"], tools=[gates.tool]) as w:
        w.agent.followup("x")
        await settle()
        assert gates.began == ["a"]
        gates.open("a")
        await settle()
        assert gates.began == ["a", "b"]
        gates.open("b")
        await w.agent.when_idle()
        assert results(w) == ["result a ok", "result u UNKNOWN_TOOL", "result i INVALID_ARGS", "result b ok"]


async def test_groups(autojump_clock) -> None:
    """TOOL-3"""
    gates = Gates(parallel=lambda arguments: not arguments["key"].startswith("x"))
    async with world([calls("a", "b", "x", "c", "d"), "done"], tools=[gates.tool]) as w:
        w.agent.followup("go")
        await settle()
        assert sorted(gates.began) == ["a", "b"]
        gates.open("a")
        await settle()
        assert sorted(gates.began) == ["a", "b"]
        gates.open("b")
        await settle()
        assert gates.began[2:] == ["x"]
        gates.open("x")
        await settle()
        assert sorted(gates.began[3:]) == ["c", "d"]
        gates.open("c", "d")
        await w.agent.when_idle()
        assert call_log(w) == [
            "call a", "call b", "result a ok", "result b ok", "call x", "result x ok", "call c", "call d",
            "result c ok", "result d ok",
        ]  # fmt: skip


async def test_the_cap(autojump_clock) -> None:
    """TOOL-4"""
    gates = Gates()
    async with world([calls("a", "b", "c", "d"), "done"], tools=[gates.tool], max_parallel_tools=2) as w:
        w.agent.followup("x")
        await settle()
        gates.open("a")
        await settle()
        assert call_log(w) == ["call a", "call b", "result a ok", "call c"]
        gates.open("c")  # ended, not committed: its place is free all the same
        await settle()
        assert call_log(w)[4:] == ["call d"]
        gates.open("b", "d")
        await w.agent.when_idle()
        assert results(w) == [f"result {key} ok" for key in "abcd"]


async def test_a_cap_of_one_is_serial(autojump_clock) -> None:
    """TOOL-4"""
    gates = Gates()
    gates.open("a", "b")
    async with world([calls("a", "b"), "done"], tools=[gates.tool], max_parallel_tools=1) as w:
        await w.agent.ask("x")
        assert call_log(w) == ["call a", "result a ok", "call b", "result b ok"]
    for bad in (0, -1, 1.5, True, "2"):
        with pytest.raises(ta.UsageError):
            ta.AgentOptions(max_parallel_tools=bad)  # type: ignore[arg-type]
    assert ta.AgentOptions().max_parallel_tools == 10


async def test_the_way_of_a_call(autojump_clock) -> None:
    """TOOL-5"""
    seen: list[str] = []

    @ta.tool
    async def body() -> str:
        """Say where it is."""
        seen.append("body")
        return "r"

    async with world([Reply.tool_call("body", id="c"), "done"], tools=[body]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            seen.append("around")
            result = await proceed()
            seen.append("around done")
            return result

        w.agent.scope.on(ta.AroundTool, around)
        w.agent.scope.on(ta.ToolFinished, lambda p: seen.append(f"finished {p.call.id}"))
        w.agent.session.observe(
            lambda event: seen.append(event.type) if event.type.startswith("tool/") else None
        )
        await w.agent.ask("x")
        assert seen == [
            "tool/call", "around", "tool/started", "body", "around done", "tool/result", "finished c",
        ]  # fmt: skip
        [call] = [e for e in w.agent.session.events if e.type == "tool/call"]
        [started] = [e for e in w.agent.session.events if e.type == "tool/started"]
        assert call.data.tracked is True
        assert started.ignorable is True


@pytest.mark.parametrize(
    ("upto", "code"),
    [
        ("assistant/message", "TOOL_NOT_STARTED"),
        ("tool/call", "TOOL_NOT_STARTED"),
        ("tool/started", "TOOL_OUTCOME_UNKNOWN"),
        ("tool/result", "ok"),
    ],
)
async def test_recovery_by_how_far_a_call_had_come(upto: str, code: str, autojump_clock) -> None:
    """TOOL-5, T4"""
    tool = echo_tool()
    async with world([Reply.tool_call("echo", id="c"), "done"], tools=[tool]) as w:
        await w.agent.ask("x")
        events = list(w.agent.session.events)
    cut = next(event.seq for event in events if event.type == upto) + 1
    async with world(store=await store_of(events[:cut]), mode="resume", tools=[tool]) as w:
        assert results(w) == [f"result c {code}"]


@pytest.mark.parametrize("raw", ["", "  "])
async def test_empty_arguments_are_an_empty_object(raw: str, autojump_clock) -> None:
    """TOOL-6"""
    async with world([Reply.tool_call("echo", raw, id="c"), "done"], tools=[echo_tool()]) as w:
        await w.agent.ask("x")
        assert results(w) == ["result c ok"]
        [call] = [e.data for e in w.agent.session.events if e.type == "tool/call"]
        assert call.arguments == raw


@pytest.mark.parametrize(
    "raw", ["{", "[]", "3", "null", '{"text": NaN}', '{"text": Infinity}', '{"text": 3}', '{"other": "x"}']
)
async def test_bad_arguments(raw: str, autojump_clock) -> None:
    """TOOL-6, T7"""
    ran: list[str] = []

    @ta.tool
    async def body(text: str = "") -> None:
        """Note that it ran."""
        ran.append(text)

    async with world([Reply.tool_call("body", raw, id="c"), "done"], tools=[body]) as w:
        await w.agent.ask("x")
        assert results(w) == ["result c INVALID_ARGS"]
        assert ran == []
        [call] = [e.data for e in w.agent.session.events if e.type == "tool/call"]
        assert call.arguments == raw


async def test_the_result_carries_the_models_id(autojump_clock) -> None:
    """TOOL-7"""
    script = Reply.tool_calls([("echo", {"text": "1"}, "same"), ("echo", {"text": "2"}, "same")])
    async with world([script, "done"], tools=[echo_tool()]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            changed = attrs.evolve(payload, call=type(payload.call)(id="other", name="echo", arguments="{}"))
            return await proceed(changed)

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        found = [e for e in w.agent.session.events if e.type == "tool/result"]
        assert [e.data.message.source.call_id for e in found] == ["same", "same"]
        assert [e.data.message.content[0].content[0].text for e in found] == ["1", "2"]
        cited = [list(e.source_event_seqs) for e in found]
        assert cited[0] != cited[1]


async def test_one_error_result_each(autojump_clock) -> None:
    """TOOL-8, S6"""

    @ta.tool(parallel=True)
    async def bad(how: str) -> object:
        """Fail."""
        await trio.lowlevel.checkpoint()
        if how == "raise":
            raise ValueError("no")
        if how == "group":
            raise ExceptionGroup("g", [ValueError("a"), LookupError("b")])
        if how == "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1)
                raise LookupError("in a nursery")
        return {"nan": float("nan"), "set": {1}, "key": {1: 2}, "surrogate": "\ud800", "bytes": b"\xff"}[how]

    hows = ["raise", "group", "nursery", "nan", "set", "key", "surrogate", "bytes"]
    script = Reply.tool_calls([("bad", {"how": how}, how) for how in hows] + [("nope", {}, "unknown")])
    async with world([script, "done"], tools=[bad]) as w:
        reply = await w.agent.ask("x")
        assert reply.text == "done"
        found = dict(line.removeprefix("result ").split() for line in results(w))
        assert found == {
            "raise": "TOOL_FAILED", "group": "TOOL_FAILED", "nursery": "TOOL_FAILED", "nan": "INVALID_TOOL_OUTPUT",
            "set": "INVALID_TOOL_OUTPUT", "key": "INVALID_TOOL_OUTPUT", "surrogate": "ok",
            "bytes": "INVALID_TOOL_OUTPUT", "unknown": "UNKNOWN_TOOL",
        }  # fmt: skip


async def test_a_block_that_cannot_be_written(autojump_clock) -> None:
    """TOOL-8, L6: also when a listener made it, and siblings are unharmed."""
    async with world(
        [Reply.tool_calls([("echo", {}, "a"), ("echo", {}, "b")]), "done"], tools=[echo_tool(parallel=True)]
    ) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            result = await proceed()
            if payload.call.id == "a":
                return attrs.evolve(result, content=[TextBlock(text=3)])  # type: ignore[arg-type]
            return result

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        assert results(w) == ["result a INVALID_TOOL_OUTPUT", "result b ok"]


async def test_a_very_long_result_is_kept_beside_the_log(autojump_clock) -> None:
    """TOOL-8, L6"""

    @ta.tool
    async def long() -> str:
        """Talk."""
        return "a" * 2_000_000 + "end"

    async with world([Reply.tool_call("long", id="c"), "done"], tools=[long]) as w:
        await w.agent.ask("x")
        [result] = [e.data for e in w.agent.session.events if e.type == "tool/result"]
        text = result.message.content[0].content[0].text
        assert len(text) < 60_000
        name = text[text.index("sha256:") : text.index("sha256:") + 71]
        data = await w.runtime.loop.store.get_attachment("a", name)
        assert len(data) == 2_000_003


class Keeping:
    """A store that does something before it keeps an attachment."""

    def __init__(self, act: Callable[[], Awaitable[None]]) -> None:
        self._act = act
        self._store = ta.MemoryStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put_attachment(self, *args: Any) -> Any:
        await self._act()
        return await self._store.put_attachment(*args)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refused", "the whole could not be kept: StorageError: the disk is full"),
        ("too slow", "the whole could not be kept: StorageError: storing it took longer than 5 s"),
        ("too long", "the whole could not be kept: MessageError: an attachment has at most 33554432 bytes"),
    ],
)
async def test_a_long_result_that_cannot_be_kept_whole_is_kept_in_part(
    how: str, said: str, autojump_clock
) -> None:
    """TOOL-8, L6: the call has had its effect."""

    @ta.tool
    async def long() -> str:
        """Talk."""
        return "begin" + "a" * (40_000_000 if how == "too long" else 60_000) + "end"

    async def act() -> None:
        if how == "refused":
            raise ta.StorageError("the disk is full")
        if how == "too slow":
            await trio.sleep_forever()

    async with world(
        [Reply.tool_call("long", id="c"), "done"], tools=[long], store=Keeping(act), grace=5
    ) as w:
        await w.agent.ask("x")
        assert results(w) == ["result c ok"]
        text = w.sent()[-1].removeprefix("result c: ")
        assert text.startswith("begina")
        assert text.endswith("aend")
        assert said in text
        assert "sha256:" not in text


async def test_a_picture_that_cannot_be_kept_is_an_error(autojump_clock) -> None:
    """TOOL-8, L6"""

    @ta.tool
    async def look() -> ta.Image:
        """Look."""
        return ta.Image(data=PICTURE)

    async def act() -> None:
        raise ta.StorageError("the disk is full")

    async with world([Reply.tool_call("look", id="c"), "done"], tools=[look], store=Keeping(act)) as w:
        await w.agent.ask("x")
        assert results(w) == ["result c INVALID_TOOL_OUTPUT"]
        assert "StorageError: the disk is full" in w.sent()[-1]


@pytest.mark.parametrize("when", ["while the body runs", "while the bytes are stored"])
async def test_a_cancel_does_not_cost_a_call_the_bytes_of_its_result(when: str, autojump_clock) -> None:
    """TOOL-10, TOOL-12: the body has ended, and keeps its real result."""
    storing = when == "while the bytes are stored"

    @ta.tool
    async def stubborn() -> str:
        """Finish all the same."""
        if not storing:
            with contextlib.suppress(trio.Cancelled):
                await trio.sleep_forever()
        return "a" * 60_000

    async def act() -> None:
        await trio.sleep(1)

    async with world([Reply.tool_call("stubborn", id="c")], tools=[stubborn], store=Keeping(act)) as w:
        w.agent.followup("x")
        await settle()
        w.agent.cancel()
        await w.agent.when_idle()
        assert results(w) == ["result c ok"]
        assert w.ends == ["aborted(user)"]
        [result] = [e.data for e in w.agent.session.events if e.type == "tool/result"]
        text = result.message.content[0].content[0].text
        name = text[text.index("sha256:") : text.index("sha256:") + 71]
        assert w.runtime.loop.store.has_attachment("a", name)


@pytest.mark.parametrize("known", [False, True])
async def test_a_picture_that_the_session_does_not_have_is_refused(known: bool, autojump_clock) -> None:
    """TOOL-8, T13: it would make every later request fail."""
    blocks: list[ImageBlock] = []

    @ta.tool
    async def look() -> ImageBlock:
        """Give a picture by its name."""
        return blocks[0]

    async with world([Reply.tool_call("look", id="c"), "done"], tools=[look]) as w:
        attachment = await w.agent.attach(PICTURE)
        if not known:
            attachment = msgspec.structs.replace(attachment, attachment_id="sha256:" + "0" * 64)
        blocks.append(ImageBlock(attachment=attachment))
        await w.agent.ask("x")
        assert results(w) == ["result c ok" if known else "result c INVALID_TOOL_OUTPUT"]


async def test_a_very_long_error_is_cut(autojump_clock) -> None:
    """TOOL-8, L6"""

    @ta.tool
    async def long() -> None:
        """Fail at length."""
        raise ToolError("begin" + "a" * 2_000_000 + "end", code="LONG")

    async with world([Reply.tool_call("long", id="c"), "done"], tools=[long]) as w:
        await w.agent.ask("x")
        assert results(w) == ["result c LONG"]
        text = w.sent()[-1].removeprefix("result c: ")
        assert len(text) < 60_000
        assert text.startswith("begina")
        assert text.endswith("aend")


class Odd(BaseException):
    """No `Exception`, and none that Trio or the interpreter means something by."""


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("what", ["odd", "asyncio", "kept"])
async def test_what_is_no_exception_is_an_error_result(what: str, grouped: bool, autojump_clock) -> None:
    """TOOL-8, DRV-20: only a cancel that is in force, and the end of the program, are more than a failed call."""
    kept: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as exc:
            kept.append(exc)
            raise
    raised = {"odd": Odd("no"), "asyncio": asyncio.CancelledError("no"), "kept": kept[0]}[what]

    @ta.tool(parallel=True)
    async def bad(key: str) -> str:
        """Raise, or do not."""
        await trio.lowlevel.checkpoint()
        if key == "b":
            raise BaseExceptionGroup("g", [raised, ValueError("v")]) if grouped else raised
        return key

    script = Reply.tool_calls([("bad", {"key": key}, key) for key in "abc"])
    async with world([script, "done", "more"], tools=[bad]) as w:
        await w.agent.ask("x")
        assert results(w) == ["result a ok", "result b TOOL_FAILED", "result c ok"]
        assert (await w.agent.ask("y")).text == "more"


@pytest.mark.parametrize("exit_", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
async def test_the_end_of_the_program_goes_on_its_way(exit_: BaseException) -> None:
    """DRV-20: after the closers."""

    @ta.tool
    async def leave() -> None:
        """End the program."""
        raise BaseExceptionGroup("g", [exit_])

    events: list[Any] = []

    async def host() -> None:
        async with world([Reply.tool_call("leave", id="c")], tools=[leave]) as w:
            w.agent.session.observe(events.append)
            w.agent.followup("x")
            await trio.sleep_forever()

    with pytest.raises(type(exit_)):
        await host()
    assert [event.type for event in events][-3:] == ["tool/result", "step/end", "turn/end"]


@pytest.mark.parametrize("plain", [False, True])
async def test_cancel_with_two_of_four_running(plain: bool, autojump_clock) -> None:
    """TOOL-9, TOOL-10"""
    gates = Gates()
    async with world([calls("a", "b", "c", "d")], tools=[gates.tool], max_parallel_tools=2) as w:
        w.agent.followup("x")
        await settle()
        w.agent.cancel(keep_inbox=not plain)
        await w.agent.when_idle()
        assert sorted(gates.ended) == ["a cancelled", "b cancelled"]
        start = w.turn_log.index("started b") + 1
        assert w.turn_log[start:] == [
            "result a ABORTED", "result b ABORTED", "call c", "result c ABORTED_BEFORE_DISPATCH", "call d",
            "result d ABORTED_BEFORE_DISPATCH", "step end", "turn end aborted(user)",
        ]  # fmt: skip
        assert w.model.request_count == 1


async def test_no_further_body_starts_behind_a_barrier(autojump_clock) -> None:
    """TOOL-9"""
    gates = Gates(parallel=False)
    async with world([calls("a", "b"), "next"], tools=[gates.tool]) as w:
        w.agent.followup("x")
        await settle()
        w.agent.cancel(keep_inbox=True)
        await w.agent.when_idle()
        assert gates.began == ["a"]
        assert results(w) == ["result a ABORTED", "result b ABORTED_BEFORE_DISPATCH"]
        await w.agent.ask("y")  # T1: the next request is whole


async def test_cancel_before_the_first_call(autojump_clock) -> None:
    """TOOL-9"""
    gates = Gates()
    async with world([calls("a", "b")], tools=[gates.tool]) as w:
        w.agent.scope.on(
            ta.SessionEvent,
            lambda p: p.agent.cancel(keep_inbox=True) if p.event.type == "assistant/message" else None,
        )
        w.agent.followup("x")
        await w.agent.when_idle()
        assert gates.began == []
        assert results(w) == ["result a ABORTED_BEFORE_DISPATCH", "result b ABORTED_BEFORE_DISPATCH"]


async def test_a_body_that_finishes_all_the_same_keeps_its_result(autojump_clock) -> None:
    """TOOL-10, CAN-10"""

    @ta.tool(parallel=True)
    async def stubborn(key: str) -> str:
        """Finish."""
        try:
            await trio.sleep(100)
        except trio.Cancelled:
            if key == "b":
                return "finished all the same"  # noqa: ASYNC104  the test is about code that swallows it
            raise
        return "slept"

    script = Reply.tool_calls([("stubborn", {"key": "a"}, "a"), ("stubborn", {"key": "b"}, "b")])
    async with world([script], tools=[stubborn]) as w:
        w.agent.followup("x")
        await settle()
        w.agent.cancel()
        await w.agent.when_idle()
        assert results(w) == ["result a ABORTED", "result b ok"]
        assert w.ends == ["aborted(user)"]


async def test_cancel_in_a_listener_before_proceed(autojump_clock) -> None:
    """TOOL-11"""
    gates = Gates()
    async with world([calls("a")], tools=[gates.tool]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            payload.agent.cancel()
            return await proceed()

        w.agent.scope.on(ta.AroundTool, around)
        w.agent.followup("x")
        await w.agent.when_idle()
        assert gates.began == []
        assert call_log(w) == ["call a", "result a ABORTED_BEFORE_DISPATCH"]


async def test_a_thread_tool_is_waited_for(autojump_clock) -> None:
    """TOOL-12, C11"""
    gate = threading.Event()

    @ta.tool
    def blocking() -> str:
        """Block."""
        gate.wait(10)
        return "real"

    async with world([Reply.tool_call("blocking", id="c")], tools=[blocking]) as w:
        w.agent.followup("x")
        while "started c" not in w.log:
            await trio.lowlevel.checkpoint()
        w.agent.cancel()
        gate.set()
        await w.agent.when_idle()
        assert results(w) == ["result c ok"]
        assert w.ends == ["aborted(user)"]


async def test_an_abandoned_thread_tool(autojump_clock) -> None:
    """TOOL-12, C11"""
    gate, done = threading.Event(), threading.Event()

    @ta.tool(abandon_on_cancel=True)
    def blocking(context: ta.ToolContext) -> str:
        """Block."""
        gate.wait(10)
        done.set()
        return "late"

    async with world([Reply.tool_call("blocking", id="c"), "next"], tools=[blocking]) as w:
        w.agent.followup("x")
        while "started c" not in w.log:
            await trio.lowlevel.checkpoint()
        await w.agent.stop()
        assert results(w) == ["result c TOOL_OUTCOME_UNKNOWN"]
        gate.set()
        await trio.to_thread.run_sync(done.wait)
        await w.agent.ask("y")
        assert results(w) == ["result c TOOL_OUTCOME_UNKNOWN"]


async def test_a_thread_tool_in_a_teardown_is_waited_for_up_to_the_grace(autojump_clock, caplog) -> None:
    """TOOL-12"""
    caplog.set_level(logging.CRITICAL)

    @ta.tool
    async def shielded() -> str:
        """Hear nothing, like a thread."""
        with trio.CancelScope(shield=True):
            await trio.sleep(50)
        return "late"

    store = ta.MemoryStore()
    async with ta.open_runtime(
        store=store, models=[ta.models.ScriptedModel([Reply.tool_call("shielded", id="c")])]
    ) as runtime:
        handle = await runtime.agents.create(
            "a", options=ta.AgentOptions(model="scripted/m", tools=[shielded], grace=10)
        )
        handle.agent.followup("x")
        await settle()
        with pytest.raises(ta.TeardownError):
            await handle.dispose()
        assert trio.current_time() == pytest.approx(10, abs=1)
        codes = [e.data.error.code for e in handle.agent.session.events if e.type == "tool/result"]
        assert codes == ["TOOL_OUTCOME_UNKNOWN"]
        count = len(handle.agent.session.events)
        await trio.sleep(60)
        assert len(handle.agent.session.events) == count


async def test_a_listener_may_answer_without_the_body(autojump_clock) -> None:
    """TOOL-13"""
    gates = Gates()
    gates.open("a", "b", "c")
    async with world([calls("a", "b", "c"), "done"], tools=[gates.tool]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            if payload.call.id == "a":
                await trio.sleep(5)
                return ta.ToolReturn.failed("not allowed", code="DENIED")
            if payload.call.id == "b":
                raise PermissionError("no")
            return await proceed()

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        assert gates.began == ["c"]
        assert results(w) == ["result a DENIED", "result b TOOL_FAILED", "result c ok"]
        assert "result a: not allowed" in w.sent()


async def test_a_listener_that_raises_after_the_body(autojump_clock) -> None:
    """TOOL-13"""
    gates = Gates()
    gates.open("a")
    async with world([calls("a"), "done"], tools=[gates.tool]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            await proceed()
            raise LookupError("after")

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        assert gates.ended == ["a"]
        assert results(w) == ["result a TOOL_FAILED"]


async def test_a_listener_may_bound_proceed(autojump_clock) -> None:
    """TOOL-14"""
    gates = Gates()
    async with world([calls("a"), "done"], tools=[gates.tool]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            with trio.fail_after(2):
                return await proceed()

        w.agent.scope.on(ta.AroundTool, around)
        assert (await w.agent.ask("x")).end.kind == "completed"
        assert gates.ended == ["a cancelled"]
        assert results(w) == ["result a TOOL_FAILED"]


async def test_a_body_runs_at_most_once(autojump_clock) -> None:
    """TOOL-14"""
    gates = Gates()
    gates.open("a")
    async with world([calls("a"), "done"], tools=[gates.tool]) as w:

        async def around(payload: ta.AroundTool, proceed) -> object:
            await proceed()
            return await proceed()

        w.agent.scope.on(ta.AroundTool, around)
        await w.agent.ask("x")
        assert gates.began == ["a"]
        assert results(w) == ["result a TOOL_FAILED"]


async def test_a_replaced_value_and_its_notification(autojump_clock, caplog) -> None:
    """TOOL-15"""
    caplog.set_level(logging.CRITICAL)
    async with world([Reply.tool_call("echo", {"text": "old"}, id="c"), "done"], tools=[echo_tool()]) as w:
        told: list[tuple[str, bool]] = []

        async def around(payload: ta.AroundTool, proceed) -> object:
            result = await proceed()
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                result.content = ()
            with pytest.raises(AttributeError):
                payload.call.name = "other"  # type: ignore[misc]
            return attrs.evolve(result, content="new")

        def fails(payload: ta.ToolFinished) -> None:
            raise LookupError("listener")

        def note(payload: ta.ToolFinished) -> None:
            committed = w.agent.session.events[-1].type == "tool/result"
            told.append((payload.result.text, committed))

        w.agent.scope.on(ta.AroundTool, around)
        w.agent.scope.on(ta.ToolFinished, fails)
        w.agent.scope.on(ta.ToolFinished, note)
        await w.agent.ask("x")
        assert told == [("new", True)]
        assert "result c: new" in w.sent()


def context_tool() -> object:
    """A tool whose results bring contexts."""

    @ta.tool(parallel=True)
    async def contextual(key: str, wait: float, context: ta.ToolContext) -> ta.ToolReturn:
        """Stage a message, return another."""
        context.stage(message(f"staged {key}"))
        await trio.sleep(wait)
        return ta.ToolReturn(key, contexts=[message(f"context {key}")])

    return contextual


async def test_contexts_are_staged_in_model_order(autojump_clock) -> None:
    """TOOL-16"""
    script = Reply.tool_calls(
        [("contextual", {"key": "a", "wait": 5}, "a"), ("contextual", {"key": "b", "wait": 1}, "b")]
    )
    async with world([script, "done"], tools=[context_tool()]) as w:
        await w.agent.ask("x")
        start = w.turn_log.index("step 2")
        assert w.turn_log[start : start + 5] == [
            "step 2", "user staged a", "user context a", "user staged b", "user context b",
        ]  # fmt: skip


async def test_contexts_of_an_aborted_turn_stay_parked(autojump_clock) -> None:
    """TOOL-16"""

    @ta.tool
    async def stubborn() -> ta.ToolReturn:
        """Finish all the same."""
        with contextlib.suppress(trio.Cancelled):
            await trio.sleep_forever()
        return ta.ToolReturn("r", contexts=[message("context")])

    async with world([Reply.tool_call("stubborn")], tools=[stubborn]) as w:
        w.agent.followup("x")
        await settle()
        w.agent.cancel()
        await w.agent.when_idle()
        assert w.ends == ["aborted(user)"]
        assert w.pending() == (["context"], [])


async def test_what_is_staged_after_the_result_waits_for_the_next_step(autojump_clock) -> None:
    """TOOL-16: a service may have something to say long after its call."""

    @ta.tool
    async def serve(*, status: trio.TaskStatus[str], context: ta.ToolContext) -> None:
        """Serve."""
        status.started("up")
        await trio.sleep(10)
        context.stage(message("news"))

    async with world([Reply.tool_call("serve", id="c"), "done", "more"], tools=[serve]) as w:
        await w.agent.ask("x")
        await trio.sleep(20)
        assert w.pending() == (["news"], [])
        assert w.agent.status == "idle"
        await w.agent.ask("y")
        assert w.sent()[-2:] == ["news", "y"]


async def test_a_thread_that_was_left_to_itself_stages_nothing(autojump_clock) -> None:
    """TOOL-12: as its late return, what it adds late is dropped; but it is told."""
    gate, done = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    @ta.tool(abandon_on_cancel=True)
    def blocking(context: ta.ToolContext) -> None:
        """Block."""
        gate.wait(10)
        try:
            context.stage("late")
        except ta.UsageError as exc:
            raised.append(exc)
        done.set()

    async with world([Reply.tool_call("blocking", id="c")], tools=[blocking]) as w:
        w.agent.followup("x")
        while "started c" not in w.log:
            await trio.lowlevel.checkpoint()
        await w.agent.stop()
        gate.set()
        await trio.to_thread.run_sync(done.wait)
        assert w.pending() == ([], [])
        assert "call 'c' is over" in str(raised[0])


@pytest.mark.parametrize("barrier", [False, True])
async def test_the_scheduler_itself_failing(barrier: bool, autojump_clock) -> None:
    """TOOL-17, PER-11"""
    gates = Gates()
    async with world([calls("a", "b", "c"), "next"], tools=[gates.tool], max_parallel_tools=2) as w:
        refusal = Refusal(w.agent)
        w.watch()
        w.agent.followup("x")
        await settle()
        if barrier:
            refusal.barriers = True
        else:
            refusal.types = {"tool/result", "tool/call"}
        gates.open("a")
        await settle()
        assert w.agent.status == "running"  # b is waited for
        refusal.types = set()
        gates.open("b")
        await settle()
        refusal.barriers = False
        await w.agent.when_idle()
        assert gates.ended == ["a", "b"]
        assert w.ends == ["error(UNKNOWN)"]
        assert [line for line in w.notes() if line.startswith("error")] == ["error 1.1 UNKNOWN"]
        assert results(w) == ["result a ok", "result b ok", "result c TOOL_NOT_STARTED"]
        await w.agent.ask("y")


async def test_one_snapshot_for_a_step(autojump_clock) -> None:
    """TOOL-18"""
    gates = Gates(parallel=False)
    async with world([calls("a", "b"), calls("c"), "done"], setup=None) as w:
        undo = w.agent.scope.tools.register(gates.tool)
        w.agent.followup("x")
        await settle()
        newer = Gates(parallel=True)
        newer.open("c")
        undo()
        w.agent.scope.tools.register(newer.tool)
        w.agent.scope.tools.register(echo_tool("added"))
        gates.open("a", "b")
        await w.agent.when_idle()
        assert gates.began == ["a", "b"]
        assert newer.began == ["c"]
        assert [t.name for t in w.model.requests[0].tools] == ["gated"]
        assert [t.name for t in w.model.requests[1].tools] == ["added", "gated"]


async def test_a_lease_is_a_snapshot(autojump_clock) -> None:
    """TOOL-18"""
    async with world() as w:
        w.agent.scope.tools.register(echo_tool())
        lease = w.agent.lease_pipeline()
        w.agent.scope.tools.register(echo_tool("later"))
        assert set(lease.tools) == {"echo"}


async def test_closing_the_owner_of_a_running_tool(autojump_clock) -> None:
    """TOOL-19, T1"""
    gates = Gates()
    async with world([calls("a", "b", "c"), "next"], max_parallel_tools=2) as w:
        tools = w.agent.scope.tools
        tools.register(gates.tool)
        w.agent.followup("x")
        await settle()
        assert sorted(gates.began) == ["a", "b"]
        assert await tools.unload("gated") is True
        assert sorted(gates.ended) == ["a cancelled", "b cancelled"]
        assert await tools.unload("gated") is False
        await w.agent.when_idle()
        assert results(w) == [f"result {key} TOOL_UNLOADED" for key in "abc"]
        assert w.ends == ["completed"]
        tools.register(gates.tool)


async def test_closing_the_owner_during_the_barrier(autojump_clock) -> None:
    """TOOL-19: the body must not begin under an owner that has gone."""
    gates = Gates()
    async with world([calls("a"), "next"]) as w:
        tools = w.agent.scope.tools
        tools.register(gates.tool)
        ledger = w.agent.session._ledger
        writer = ledger.writer
        unloaded: list[bool] = []

        class Slow:
            @property
            def is_dirty(self) -> bool:
                return w.agent.session.events[-1].type == "tool/started"

            def __getattr__(self, name: str):
                return getattr(writer, name)

            async def barrier(self) -> None:
                await trio.sleep(1)

        ledger.writer = Slow()
        w.agent.followup("x")
        await settle()
        unloaded.append(await tools.unload("gated"))
        ledger.writer = writer
        await w.agent.when_idle()
        assert gates.began == []
        assert results(w) == ["result a TOOL_UNLOADED"]


async def test_closing_the_owner_of_a_nested_call(autojump_clock) -> None:
    """TOOL-19, TOOL-20"""
    gates = Gates()

    @ta.tool
    async def outer(context: ta.ToolContext) -> str:
        """Call another."""
        result = await context.call("gated", {"key": "n"})
        return result.error.code if result.error else "ok"

    async with world([Reply.tool_call("outer", id="c"), "next"], tools=[outer]) as w:
        tools = w.agent.scope.tools
        tools.register(gates.tool)
        w.agent.followup("x")
        await settle()
        assert await tools.unload("gated")
        assert gates.ended == ["n cancelled"]
        await w.agent.when_idle()
        assert "result c: TOOL_UNLOADED" in w.sent()


@pytest.mark.parametrize("denied", [False, True])
async def test_a_nested_call(denied: bool, autojump_clock) -> None:
    """TOOL-20"""
    seen: list[tuple[str, str]] = []

    @ta.tool
    async def outer(context: ta.ToolContext) -> str:
        """Call another."""
        inner = await context.call("inner", {"text": "deep"})
        hidden = await context.call("hidden")
        wrong = await context.call("inner", {"text": 3})
        codes = [r.error.code if r.error else "ok" for r in (inner, hidden, wrong)]
        return f"{inner.text} {codes}"

    @ta.tool
    async def inner(text: str, context: ta.ToolContext) -> str:
        """Be called."""
        seen.append((context.name, context.call_id))
        context.stage(message("from inner"))
        return text

    def setup(agent: ta.Agent) -> None:
        agent.scope.restrict(deny=["hidden"])

    model = ta.models.ScriptedModel([Reply.tool_call("outer", id="c"), "done"])
    async with ta.open_runtime(models=[model], plugins=()) as runtime:
        runtime.tools.register(echo_tool("hidden"))
        async with runtime.open_agent("a", model="scripted/m", tools=[outer, inner], setup=setup) as agent:
            asked: list[str] = []
            written: list[str] = []

            async def around(payload: ta.AroundTool, proceed) -> object:
                asked.append(payload.call.id)
                written.append(payload.call.arguments)
                if denied and payload.call.name == "inner":
                    return ta.ToolReturn.failed("no", code="DENIED")
                return await proceed()

            agent.scope.on(ta.AroundTool, around)
            await agent.ask("x")
            assert asked == ["c", "c:code:1", "c:code:2", "c:code:3"]
            assert seen == ([] if denied else [("inner", "c:code:1")])
            types = [e.type for e in agent.session.events if e.type.startswith("tool/")]
            nested = ["tool/code-dispatch-start", "tool/code-dispatch"]
            assert types == ["tool/call", "tool/started", *nested * 3, "tool/result"]
            [result] = [e.data for e in agent.session.events if e.type == "tool/result"]
            text = result.message.content[0].content[0].text
            first = "DENIED" if denied else "ok"
            last = "DENIED" if denied else "INVALID_ARGS"
            assert text == f"{'no' if denied else 'deep'} {[first, 'UNKNOWN_TOOL', last]}"
            facts = next(e.data.value.value for e in agent.session.events if e.type == "tool/code-dispatch")
            assert facts["rootCallId"] == facts["parentCallId"] == "c"
            assert facts["arguments"] == {"text": "deep"}
            # A listener may judge a call by its text.
            assert written == ["{}", '{"text":"deep"}', "{}", '{"text":3}']
            assert facts["isError"] is denied
            users = [e.data.text for e in agent.session.events if e.type == "user/message"]
            assert users == (["x"] if denied else ["x", "from inner"])


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_fatal_error_ends_the_turn(grouped: bool, autojump_clock) -> None:
    """TOOL-21, S6"""
    gates = Gates()

    @ta.tool(parallel=True)
    async def fatal() -> None:
        """End it."""
        await trio.sleep(1)
        if grouped:
            raise ExceptionGroup("g", [FatalToolError("stop it all", code="STOP")])
        raise FatalToolError("stop it all", code="STOP")

    script = Reply.tool_calls(
        [
            ("gated", {"key": "a"}, "a"),
            ("fatal", {}, "f"),
            ("gated", {"key": "b"}, "b"),
            ("gated", {"key": "c"}, "c"),
        ]
    )
    async with world([script, "next"], tools=[gates.tool, fatal], max_parallel_tools=3) as w:
        w.watch()
        with pytest.raises(ta.TurnFailed) as info:
            await w.agent.ask("x")
        assert isinstance(info.value.__cause__, FatalToolError)
        assert sorted(gates.ended) == ["a cancelled", "b cancelled"]
        assert results(w) == [
            "result a ABORTED", "result f STOP", "result b ABORTED", "result c ABORTED_BEFORE_DISPATCH",
        ]  # fmt: skip
        assert w.ends == ["error(UNKNOWN)"]
        await w.agent.ask("y")


async def test_cancel_of_one_call(autojump_clock) -> None:
    """TOOL-22"""
    gates = Gates()
    async with world([calls("a", "b"), "done"], tools=[gates.tool]) as w:
        assert w.agent.cancel_tool("a") is False
        w.agent.followup("x")
        await settle()
        assert w.agent.cancel_tool("unknown") is False
        assert w.agent.cancel_tool("a", reason="too slow") is True
        await settle()
        assert gates.ended == ["a cancelled"]
        assert w.agent.cancel_tool("a") is False
        gates.open("b")
        await w.agent.when_idle()
        assert results(w) == ["result a ABORTED", "result b ok"]
        assert w.ends == ["completed"]
        assert "result a: The call was cancelled: too slow." in w.sent()


async def test_cancel_of_one_call_that_fails_on_the_way_out(autojump_clock) -> None:
    """TOOL-22, TOOL-8: what is left of its group is its result, not the end of the turn."""

    @ta.tool
    async def messy() -> None:
        """Fail when cancelled."""

        async def fails() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError("on the way out")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)

    async with world([Reply.tool_call("messy", id="c"), "done"], tools=[messy]) as w:
        w.agent.followup("x")
        await settle()
        assert w.agent.cancel_tool("c")
        await w.agent.when_idle()
        assert w.ends == ["completed"]
        assert results(w) == ["result c TOOL_FAILED"]


@pytest.mark.parametrize(
    ("effect", "rerun", "expected"),
    [
        ("once", False, "TOOL_OUTCOME_UNKNOWN"),
        ("once", True, "TOOL_OUTCOME_UNKNOWN"),
        ("idempotent", False, "TOOL_OUTCOME_UNKNOWN"),
        ("idempotent", True, "ok"),
        ("pure", True, "ok"),
    ],
)
async def test_effects(effect, rerun: bool, expected: str, autojump_clock) -> None:
    """TOOL-23"""
    ran: list[tuple[str, bool]] = []

    @ta.tool(effect=effect)
    async def act(context: ta.ToolContext) -> str:
        """Act."""
        ran.append((context.call_id, context.rerun))
        return "acted"

    async with world([Reply.tool_call("act", id="c"), "done"], tools=[act]) as w:
        await w.agent.ask("x")
        events = list(w.agent.session.events)
    cut = next(event.seq for event in events if event.type == "tool/started") + 1
    model = ta.models.ScriptedModel(["continued"])
    async with ta.open_runtime(store=await store_of(events[:cut]), models=[model]) as runtime:
        options = ta.AgentOptions(model="scripted/m", tools=[act])
        handle = await runtime.agents.resume("a", options=options, rerun=rerun)
        [result] = [e.data for e in handle.agent.session.events if e.type == "tool/result"]
        assert (result.error.code if result.message.content[0].is_error else "ok") == expected
        assert ran[1:] == ([("c", True)] if expected == "ok" else [])
        handle.agent.continue_turn()
        await handle.agent.when_idle()
        assert model.request_count == 1


async def test_reconcile_is_asked_what_happened(autojump_clock) -> None:
    """TOOL-23"""
    asked: list[str] = []

    async def reconcile(call: ToolCall) -> str:
        asked.append(call.call_id)
        return "it did happen"

    @ta.tool(reconcile=reconcile)
    async def act() -> str:
        """Act."""
        return "acted"

    async with world([Reply.tool_call("act", id="c"), "done"], tools=[act]) as w:
        await w.agent.ask("x")
        events = list(w.agent.session.events)
    for upto, called in (("tool/started", True), ("tool/call", False)):
        asked.clear()
        cut = next(event.seq for event in events if event.type == upto) + 1
        async with world(store=await store_of(events[:cut]), mode="resume", tools=[act]) as w:
            assert asked == (["c"] if called else [])
            assert results(w) == ["result c ok" if called else "result c TOOL_NOT_STARTED"]


async def test_every_call_has_one_result_over_many_schedules(autojump_clock) -> None:
    """L9: sixteen tools end in one tick, while one task steers and another cancels."""
    for seed in range(20):
        gates = Gates()
        keys = [f"k{n}" for n in range(16)]
        async with world([calls(*keys), Reply.text("done"), Reply.text("more")], tools=[gates.tool]) as w:
            w.agent.followup("x")
            await settle()

            async def steer(w=w) -> None:
                w.agent.steer("s")

            async def cancel(w=w, seed: int = seed) -> None:
                for _ in range(seed):
                    await trio.lowlevel.checkpoint()
                w.agent.cancel(keep_inbox=True)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(steer)
                nursery.start_soon(cancel)
                gates.open(*keys)
            await w.agent.when_idle()
            assert [line.split()[1] for line in results(w)] == keys
