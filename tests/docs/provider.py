"""The provider that the examples ask: a fake one on a thread of its own, which the environment points to.

A block says what it answers: ```` ```python answers="one. | two." ```` are its answers in order, `down="chat/completions"` are
the paths that answer with HTTP 503. That line is read in lower case, so an answer gets its capital here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import trio

from trio_agents.testing import FakeProvider, ProviderRequest, Status, open_fake_provider

KEY = "sk-example-0123456789"


@contextmanager
def provider_for(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of an example with these settings; empty if it asks nobody."""
    if "answers" not in settings:
        yield {}
        return
    answers = iter(settings["answers"].split(" | "))
    down = tuple(settings.get("down", "nothing").split())

    def answer(request: ProviderRequest) -> Status | str:
        if request.path.endswith(down):
            return Status(status=503, message="overloaded")
        return next(answers).capitalize()

    with _serving(answer) as server:
        yield {
            "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url,
            "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.root_url,
            "LAB_URL": server.base_url,
        }  # fmt: skip


@contextmanager
def _serving(answer: Callable[[ProviderRequest], Status | str]) -> Iterator[FakeProvider]:
    started: queue.SimpleQueue[tuple[FakeProvider, trio.lowlevel.TrioToken, trio.Event]] = queue.SimpleQueue()

    async def serve() -> None:
        stop = trio.Event()
        async with open_fake_provider(answer) as server:
            started.put((server, trio.lowlevel.current_trio_token(), stop))
            await stop.wait()

    thread = threading.Thread(target=trio.run, args=(serve,), name="provider of the examples")
    thread.start()
    server, token, stop = started.get(timeout=20)
    try:
        yield server
    finally:
        token.run_sync_soon(stop.set)
        thread.join()
