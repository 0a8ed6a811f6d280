"""`trio-agents sessions`: what is stored, and what can be done with it."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import trio

from ..errors import UsageError
from ..session import Event, SessionHeader, TurnEnd, TurnStart, encode_header, open_log
from ..storage import JsonlStore, SessionSummary, StoredSession, Verdict, export_session, fork_session
from ..values import Aborted, Failed, JsonValue, Message, TextBlock, ToolCallBlock, ToolResultBlock
from ..values._json import load_json
from ._console import bold, shorten, write, write_json
from ._logs import inspect_log
from ._program import FAILED
from ._stores import open_store

_WIDTH: Final = 100


def main(options: argparse.Namespace) -> int:
    """Do what was asked for."""
    return trio.run(_ACTIONS[options.action], options, open_store(options.store))


# --- list -----------------------------------------------------------------------------------------


async def _list(options: argparse.Namespace, store: JsonlStore) -> int:
    found = sorted(await store.list(), key=lambda summary: summary.updated_at, reverse=True)
    if options.limit is not None:
        if options.limit < 0:
            raise UsageError(f"--limit is a number from 0, not {options.limit}")
        found = found[: options.limit]
    if options.json:
        write_json([_summary_json(summary) for summary in found])
        return 0
    for summary in found:
        when = datetime.fromtimestamp(summary.updated_at / 1000, UTC).astimezone()
        about = summary.problem or summary.title or ""
        write(
            f"{summary.header.id}  {when:%Y-%m-%d %H:%M}  {summary.status:<11}  {_size(summary.size):>8}  "
            f"{shorten(about, 60)}".rstrip()
            + "\n"
        )
    if not found:
        print(f"no sessions in {store.root}", file=sys.stderr)
    return 0


def _summary_json(summary: SessionSummary) -> JsonValue:
    return {
        "id": summary.header.id,
        "status": summary.status,
        "title": summary.title,
        "created_at": summary.header.created_at,
        "updated_at": summary.updated_at,
        "size": summary.size,
        "path": summary.path,
        "problem": summary.problem,
    }


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


# --- show -----------------------------------------------------------------------------------------


async def _show(options: argparse.Namespace, store: JsonlStore) -> int:
    stored = await inspect_log(store, options.session)
    facts = about(stored)
    if options.json:
        write_json(facts)
    else:
        _write_session(stored, facts)
    return 0


def about(stored: StoredSession) -> dict[str, JsonValue]:
    """What a stored session holds. Its events are those that are stored, without what a repair would add."""
    events = list(stored.events.prefix(stored.stored))
    session, _ = open_log(stored.header, events, loaded=True)
    return {
        "header": header_json(stored.header),
        "status": stored.status,
        "path": stored.path,
        "torn": stored.torn,
        "events": len(events),
        "types": dict(Counter(event.type for event in events)),
        "surface": list(session.surface),
        "messages": len(session.messages()),
        "roles": [message.role for message in session.messages()],
        "turns": _turns(events),
    }


def header_json(header: SessionHeader) -> JsonValue:
    """The header as it stands in the log."""
    return load_json(encode_header(header))


def _turns(events: list[Event]) -> list[JsonValue]:
    """Each turn with how it ended; None for one that is open."""
    ends: dict[int, dict[str, JsonValue]] = {}
    for event in events:
        data = event.data
        if type(data) is TurnStart:
            ends[data.turn] = {"turn": data.turn, "end": None}
        elif type(data) is TurnEnd:
            end: dict[str, JsonValue] = {"turn": data.turn, "end": data.reason.kind}
            if isinstance(data.reason, Aborted):
                end["cause"] = data.reason.reason.kind
            elif isinstance(data.reason, Failed):
                end["error"] = data.reason.error.code
            ends[data.turn] = end
    return list(ends.values())


def _write_session(stored: StoredSession, facts: dict[str, JsonValue]) -> None:
    header = stored.header
    write(bold(f"session {header.id}", sys.stdout) + "\n")
    created = datetime.fromtimestamp(header.created_at / 1000, UTC).astimezone()
    write(f"  status   {stored.status}\n  created  {created:%Y-%m-%d %H:%M:%S}\n")
    if isinstance(header.cwd, str):
        write(f"  folder   {header.cwd}\n")
    if isinstance(header.parent_session, str):
        write(f"  parent   {header.parent_session}\n")
    if stored.path is not None:
        write(f"  log      {stored.path}\n")
    torn = f", and {stored.torn} bytes of a torn tail" if stored.torn else ""
    write(f"  events   {stored.stored}{torn}\n")
    types = facts["types"]
    assert isinstance(types, dict)
    for name, count in sorted(types.items()):
        write(f"    {count!s:>6}  {name}\n")
    session, _ = open_log(header, stored.events, loaded=True)
    for message in session.messages():
        write(f"\n{bold(_who(message), sys.stdout)}\n")
        for line in _lines(message):
            write(f"  {line}\n")
    turns = facts["turns"]
    assert isinstance(turns, list)
    write("\n")
    for turn in turns:
        assert isinstance(turn, dict)
        write(f"turn {turn['turn']}: {turn['end'] or 'open'}\n")


def _who(message: Message) -> str:
    return message.role if message.source.kind in {"user", "model"} else message.source.kind


def _lines(message: Message) -> list[str]:
    lines: list[str] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            lines += block.text.splitlines() or [""]
        elif isinstance(block, ToolCallBlock):
            lines.append(f"> {block.name} {shorten(block.arguments, _WIDTH)}")
        elif isinstance(block, ToolResultBlock):
            text = "".join(part.text for part in block.content if isinstance(part, TextBlock))
            lines.append(f"< {'failed: ' if block.is_error is True else ''}{shorten(text, _WIDTH)}")
        else:
            lines.append(f"[{block.tag}]")
    return lines


# --- the rest -------------------------------------------------------------------------------------


async def _verify(options: argparse.Namespace, store: JsonlStore) -> int:
    verdict = await store.verify(options.session)
    _tell(verdict, options)
    return FAILED if verdict.problems or verdict.issues else 0


async def _repair(options: argparse.Namespace, store: JsonlStore) -> int:
    verdict = await store.repair(options.session)
    _tell(verdict, options)
    return 0


def _tell(verdict: Verdict, options: argparse.Namespace) -> None:
    if options.json:
        write_json(
            {
                "session": verdict.session_id,
                "path": verdict.path,
                "events": verdict.events,
                "torn": verdict.torn,
                "problems": list(verdict.problems),
                "issues": list(verdict.issues),
                "kept_aside": verdict.kept_aside,
            }
        )
        return
    write(f"{verdict.session_id}: {verdict.events} whole events\n")
    if verdict.torn:
        write(f"  torn tail: {verdict.torn} bytes that are no part of the log\n")
    for problem in verdict.problems:
        write(f"  damaged: {problem}\n")
    for issue in verdict.issues:
        write(f"  out of order: {issue}\n")
    if verdict.kept_aside is not None:
        write(f"  the damaged log is kept: {verdict.kept_aside}\n")


async def _fork(options: argparse.Namespace, store: JsonlStore) -> int:
    child = await fork_session(store, options.session, options.at, id=options.id)
    if options.json:
        write_json({"session": child, "parent": options.session})
    else:
        write(f"{child}\n")
    return 0


async def _delete(options: argparse.Namespace, store: JsonlStore) -> int:
    await store.delete(options.session)
    if options.json:
        write_json({"deleted": options.session})
    else:
        print(f"deleted {options.session}", file=sys.stderr)
    return 0


async def _export(options: argparse.Namespace, store: JsonlStore) -> int:
    def out(data: bytes) -> None:
        sys.stdout.buffer.write(data)

    await export_session(store, options.session, out)
    sys.stdout.buffer.flush()
    return 0


_ACTIONS: Final[dict[str, Callable[[argparse.Namespace, JsonlStore], Awaitable[int]]]] = {
    "list": _list,
    "show": _show,
    "verify": _verify,
    "repair": _repair,
    "fork": _fork,
    "delete": _delete,
    "export": _export,
}
