"""A check for the suspicious: is each request really a function of the log?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

from ..agent import BeforeRequest, Scope
from ..errors import InternalError
from ..session import Event, Header, Session, decode_event, encode_event, open_log


@final
class ReconstructionCheck:
    """Makes every request's messages again from the log alone and compares them byte for byte. A plugin, for debugging.

    Before each request the whole log is encoded, read back and replayed from scratch, so a turn costs as much as its
    history is long: switch it on for tests and when in doubt. A difference ends the turn as failed, before anything is
    sent, and names the first message that differs.
    """

    def __init__(self) -> None:
        self.checked: int = 0
        """How many requests were compared and found equal."""

    def __call__(self, scope: Scope) -> None:
        """Register with a scope."""
        scope.on(BeforeRequest, self._check)

    async def _check(self, asked: BeforeRequest, proceed: Callable[[], Awaitable[Header]]) -> Header:
        header = await proceed()
        session = asked.agent.session
        where = f"turn {asked.turn}, step {asked.step}"
        again = _replayed(session, where)
        logged = again.messages()
        for number, (sent, other) in enumerate(zip(asked.messages, logged, strict=False)):
            if sent != other:
                raise InternalError(
                    f"message {number} of the request of {where} is not what the log says: {sent!r}, logged {other!r}"
                )
        if len(asked.messages) != len(logged):
            raise InternalError(
                f"the request of {where} has {len(asked.messages)} messages, the log says {len(logged)}"
            )
        if again.request_header() != session.request_header():
            raise InternalError(f"the request header before {where} is not what the log says")
        self.checked += 1
        return header


def _replayed(session: Session, where: str) -> Session:
    """The session that the bytes of the log give; reading and writing them changes no byte."""
    events: list[Event] = []
    for event in session.events:
        line = encode_event(event)
        events.append(decode_event(line, seq=event.seq))
        if encode_event(events[-1]) != line:
            raise InternalError(
                f"before {where}: event {event.seq} ({event.type}) is not read back as it was written"
            )
    again, _ = open_log(session.header, events, loaded=True)
    return again
