"""`trio-agents run`: one message, one turn, one log."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, final

import attrs
import trio

from ..agent import Agent, AgentOptions, Settlement
from ..errors import SessionNotFoundError, TrioAgentsError, UsageError
from ..models import ModelAdapter
from ..plugins import RetryPolicy
from ..runtime import open_runtime
from ..runtime._run import end_at_once
from ..session import Header, fold_header
from ..storage import JsonlStore
from ..values import BY_USER, Aborted, Blocked, Failed, ForeignEnd, Interrupted, TurnEndReason, describe
from ._console import write_json
from ._models import DEMO, adapter_for, default_model
from ._program import FAILED, complain
from ._stores import log_path, open_store
from ._tools import make_tools, tool_names
from ._transcript import JsonTranscript, TextTranscript, Transcript

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_GRACE: Final = 10.0


def main(options: argparse.Namespace) -> int:
    """Run one turn. 0 if it came to an end of its own, 1 if it failed, 128 plus the signal that stopped it."""
    prompt = _prompt(options)
    names = tool_names(options.tools)
    store = open_store(options.store)
    return trio.run(_Run(options, prompt, names, store).main)


def _prompt(options: argparse.Namespace) -> str | None:
    given: str | None = options.prompt
    if given == "-":
        given = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if given is None and not options.resume:
        raise UsageError(
            "run needs a PROMPT; - reads it from stdin, --resume without one goes on with a turn"
        )
    if given is not None and not given.strip():
        raise UsageError("the prompt is empty")
    return given


@final
@attrs.define
class _Run:
    """One run of the command."""

    options: argparse.Namespace
    prompt: str | None
    tools: tuple[str, ...]
    store: JsonlStore
    signal: int | None = None
    agent: Agent | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    shown: int = 0

    async def main(self) -> int:
        transcript: Transcript = JsonTranscript() if self.options.json else TextTranscript()
        code = 0
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(self._listen)
            with self.scope:
                try:
                    code = await self._run(transcript)
                except Exception as exc:  # noqa: BLE001 - raised below, outside of the nursery that would wrap it
                    failure = exc
            nursery.cancel_scope.cancel(reason="the command is done")
        if self.signal is not None:
            return 128 + self.signal
        if failure is not None:
            if self.options.json and not isinstance(failure, OSError):
                write_json({"type": "error", "message": describe(failure)})
            raise failure
        return code

    async def _listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        """The first signal stops the turn and keeps what was said; the second ends the process."""
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    end_at_once(128 + number)
                self.signal = number
                if self.agent is None:
                    self.scope.cancel(reason="a signal came before the agent stood")
                else:
                    self._stop(self.agent)

    def _stop(self, agent: Agent) -> None:
        try:
            agent.cancel(BY_USER)
        except TrioAgentsError as exc:
            complain(describe(exc))
        if agent.status == "idle":
            self.scope.cancel(reason="a signal came and nothing was at work")

    async def _run(self, transcript: Transcript) -> int:
        session_id, header = await self._session()
        model = self.options.model or _model_of(header) or default_model()
        adapter = adapter_for(model)
        options = AgentOptions(
            model=model,
            system=self.options.system,
            max_tokens=self.options.max_tokens,
            effort=self.options.effort,
            cwd=self._cwd() if not self.options.resume else None,
            grace=_GRACE,
        )
        plugins = [RetryPolicy(max_retries=self.options.retries)] if self.options.retries else []
        async with open_runtime(store=self.store, models=[adapter], plugins=plugins) as runtime:
            try:
                async with runtime.open_agent(
                    session_id,
                    mode="resume" if self.options.resume else "create",
                    setup=self._equip,
                    options=options,
                ) as agent:
                    self.agent = agent
                    is_demo = model.partition("/")[0] == DEMO.partition("/")[0]
                    path = log_path(self.store, agent.session.header)
                    transcript.begin(agent.id, path, model, is_demo=is_demo)
                    code = await self._turn(agent, transcript)
            finally:
                self.agent = None
                with trio.move_on_after(2, shield=True):
                    await _close(adapter)
        return code

    async def _session(self) -> tuple[str | None, Header | None]:
        """Which session, and what its last request was sent with."""
        session_id: str | None = self.options.session
        if not self.options.resume:
            return session_id, None
        if session_id is None:
            session_id = await self._last_session()
        stored = await self.store.inspect(session_id)
        return session_id, fold_header(stored.events)

    async def _last_session(self) -> str:
        def is_usable(summary: object) -> bool:
            return getattr(summary, "status", "") in {"closed", "interrupted"}

        found = await self.store.list(matching=is_usable)
        if not found:
            raise SessionNotFoundError("there is no session to go on with", path=self.store.root)
        return max(found, key=lambda summary: summary.updated_at).header.id

    def _cwd(self) -> str:
        return str(Path(self.options.cwd).absolute()) if self.options.cwd else str(Path.cwd())

    def _equip(self, agent: Agent) -> None:
        """The agent's setup: its tools, at work where the session belongs."""
        cwd = agent.session.header.cwd
        folder = self._cwd() if self.options.cwd or not isinstance(cwd, str) else cwd
        if self.tools:
            for tool in make_tools(self.tools, folder):
                agent.scope.tools.register(tool)

    # --- the turn -----------------------------------------------------------------------------

    async def _turn(self, agent: Agent, transcript: Transcript) -> int:
        self.shown = len(agent.session.events)
        if self.signal is not None:
            return 128 + self.signal
        if self.prompt is None:
            turn: int | None = agent.continue_turn() if not agent.inbox.has_pending else None
            agent.wake()
            await self._watch(agent, transcript, agent.when_idle)
            return self._result(transcript, turn or agent.session.turn, _last_end(agent))
        receipt = agent.followup(self.prompt)
        settlements: list[Settlement] = []

        async def settled() -> None:
            settlements.append(await receipt.settled())
            await agent.when_idle()

        await self._watch(agent, transcript, settled)
        return self._result(transcript, settlements[0].turn, settlements[0].end)

    async def _watch(self, agent: Agent, transcript: Transcript, wait: Callable[[], Awaitable[None]]) -> None:
        """Show what happens until the wait is over and all of it has been shown."""
        failure: list[Exception] = []

        async def follow(scope: trio.CancelScope) -> None:
            try:
                async for event in agent.session.follow(self.shown):
                    transcript.show(event)
                    self.shown = event.seq + 1
            except Exception as exc:  # noqa: BLE001 - raised below: nobody reads our output any more
                failure.append(exc)
                scope.cancel(reason="what happens cannot be shown")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, nursery.cancel_scope)
            await wait()
            while self.shown < len(agent.session.events):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel(reason="everything has been shown")
        if failure:
            raise failure[0]

    def _result(self, transcript: Transcript, turn: int | None, end: TurnEndReason | None) -> int:
        if end is None:
            transcript.end(turn, "discarded", "the message was taken back before a turn took it")
            return FAILED
        detail = None
        if isinstance(end, Aborted):
            detail = f"cancelled by {end.reason.kind}"
        elif isinstance(end, Failed):
            detail = f"{end.error.message} ({end.error.code})"
        transcript.end(turn, end.kind, detail)
        if isinstance(end, Failed):
            complain(f"turn {turn} failed: {detail}")
        failed = isinstance(end, Failed | Aborted | Blocked | Interrupted | ForeignEnd)
        return FAILED if failed else 0


def _model_of(header: Header | None) -> str | None:
    """The model that a stored session was last answered by."""
    return None if header is None else f"{header.config.provider}/{header.config.model}"


def _last_end(agent: Agent) -> TurnEndReason | None:
    for event in reversed(agent.session.events):
        if event.type == "turn/end":
            end: TurnEndReason = event.data.reason
            return end
    return None


async def _close(adapter: ModelAdapter) -> None:
    """Close an adapter's connections, if it has any."""
    aclose = getattr(adapter, "aclose", None)
    if aclose is None:
        await trio.lowlevel.checkpoint()
    else:
        await aclose()
