"""`run`: `trio.run` with our signal handling. The first signal drains, the second ends at once."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import trio

from ._runtime import Runtime, live_runtimes

logger: Final = logging.getLogger("trio_agents")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run(
    async_fn: Callable[[Unpack[Ts]], Awaitable[T]],
    *args: *Ts,
    grace: float = 30.0,
    clock: trio.abc.Clock | None = None,
) -> T:
    """Run `async_fn(*args)` in Trio, with SIGINT (Ctrl-C) and SIGTERM handled.

    The first signal drains every open runtime: nothing new starts, turns get `grace` seconds to end, those that do
    not are stopped, everything is logged and flushed; then `async_fn` is cancelled. The second signal ends the process
    at once, after the interpreter's exit functions have run.

    Args:
        async_fn: the program.
        args: its arguments.
        grace: seconds that running turns get to end by themselves.
        clock: Trio's clock, for tests.

    Returns:
        what `async_fn` returned, if no signal came.

    Raises:
        SystemExit: a signal ended it; the code is 128 plus the signal's number (130 for Ctrl-C).
        BaseException: what `async_fn` raised.
    """
    program = _Program(grace)
    result = trio.run(program.main, async_fn, args, clock=clock)
    if program.signal is not None:
        raise SystemExit(128 + program.signal)
    return result[0]


class _Program:
    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.signal: int | None = None
        self.scope = trio.CancelScope()

    async def main(self, async_fn: Callable[..., Awaitable[T]], args: tuple[object, ...]) -> list[T]:
        result: list[T] = []
        failure: BaseException | None = None
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            await nursery.start(self.listen, nursery, name="signals")
            try:
                with self.scope:
                    result.append(await async_fn(*args))
            except BaseException as exc:  # noqa: BLE001, ASYNC103 - raised below, outside of the nursery that would wrap it
                failure = exc
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    async def listen(self, nursery: trio.Nursery, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    end_at_once(128 + number)
                self.signal = number
                nursery.start_soon(self.drain, name="drain")

    async def drain(self) -> None:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            for runtime in list(live_runtimes()):
                nursery.start_soon(self.drain_one, runtime, name="drain of a runtime")
        self.scope.cancel(reason="a signal asked for the end")

    async def drain_one(self, runtime: Runtime) -> None:
        try:
            await runtime.drain(self.grace)
        except Exception:
            logger.exception("a runtime could not be drained; it is ended all the same")


def end_at_once(code: int) -> None:
    """Leave the process without waiting for anything but the interpreter's exit functions."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
