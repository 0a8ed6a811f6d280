"""`ask(..., returns=T)`: the answer as a value of a type that the caller names.

The model is told the schema in the message itself, which works with every provider and leaves the log a plain
conversation. What it answers is read strictly, without coercion; if it does not fit, the model is told every fault
with its path and asked again, in a turn of its own, a bounded number of times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ..agent import Deliverable, Reply
from ..errors import AnswerInvalid, UsageError
from ..models._answers import ASKED, instructions
from ..tools._schema import Describer, NotDescribable
from ..tools._structuring import list_faults, structure_value
from ..values import Refusal, TextBlock, TokenUsage, UserMessage
from ._inside import waiting_for
from ._receipts import NO_TOKENS
from ._reply import reply_to, wait_or_withdraw
from ._step import add_usage

if TYPE_CHECKING:
    from ._agent import LoopAgent

T = TypeVar("T")

TRIES: Final = 3
"""How often the model may answer."""

ANSWERED: Final = frozenset({"completed", "max-tokens", "max-turn-requests"})
"""Ends of a turn whose last message may be the answer."""

MAX_FAULTS: Final = 20
"""How many faults the model is told at a time."""

_FENCE: Final = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)```", re.DOTALL)


async def ask_typed(
    agent: LoopAgent, message: Deliverable, returns: type[T], *, check: bool
) -> Reply[T] | Reply[None]:
    """Ask until the answer is a value of `returns`; see `Agent.ask`.

    Raises:
        AnswerInvalid: it was none in the last try, or the model declined.
        UsageError: the type has no JSON schema. Nothing was delivered.
    """
    from ._agent import as_message

    given = as_message(message)
    text = TextBlock(text=_instructions(returns))
    asked = UserMessage(id=given.id, content=(*given.content, text), source=given.source)
    usage = NO_TOKENS
    tries = 0
    with waiting_for(agent, "ask()"):
        while True:
            tries += 1
            receipt = agent.followup(asked)
            reply = reply_to(receipt, await wait_or_withdraw(agent, receipt), check=check)
            usage = add_usage(usage, reply.usage)
            faults: list[str] = []
            if reply.end is not None and reply.end.kind in ANSWERED:
                try:
                    value = read_value(reply.text, returns)
                except Exception as exc:  # noqa: BLE001 - a user's own validator may raise anything
                    faults = list_faults(exc) or [f"$: {exc}"]
                else:
                    return _with(reply, value, usage)
            if not faults or tries == TRIES:
                if check:
                    raise _invalid(reply, returns, faults)
                return _with(reply, None, usage)
            asked = UserMessage.from_text(_complaint(faults), source=ASKED)


def _with(reply: Reply[None], value: T, usage: TokenUsage) -> Reply[T]:
    return Reply(
        text=reply.text, turn=reply.turn, end=reply.end, usage=usage, message_id=reply.message_id, value=value
    )


def _invalid(reply: Reply[None], returns: object, faults: list[str]) -> AnswerInvalid:
    name = getattr(returns, "__name__", repr(returns))
    why = "; ".join(faults)
    if not faults:
        why = "the model declined" if isinstance(reply.end, Refusal) else "there is no answer"
    return AnswerInvalid(
        f"turn {reply.turn} gave no {name}: {why}", turn=reply.turn, end=reply.end, faults=tuple(faults)
    )


# --- what the model is told -----------------------------------------------------------------------


def _instructions(returns: object) -> str:
    describer = Describer()
    try:
        schema = describer.describe(returns)
    except NotDescribable as exc:
        raise UsageError(f"returns= needs a type that JSON can express: {exc}") from None
    if describer.definitions:
        schema = {**schema, "$defs": dict(sorted(describer.definitions.items()))}
    return instructions(schema)


def _complaint(faults: list[str]) -> str:
    shown = "\n".join(f"- {fault}" for fault in faults[:MAX_FAULTS])
    more = f"\n- and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
    return (
        f"That answer does not fit the JSON schema:\n{shown}{more}\n"
        "Give the whole answer again as one JSON value that fits, and nothing else."
    )


# --- what it answered -----------------------------------------------------------------------------


def read_value(text: str, returns: type[T]) -> T:
    """The value that an answer stands for. Pure.

    The JSON may stand alone, in a code fence, or behind some words; a type whose values are text takes the answer as
    it is if that is no JSON.

    Raises:
        Exception: it is no JSON, or does not fit; `list_faults` takes the exception apart.
    """
    first: Exception | None = None
    for value in _candidates(text):
        try:
            return cast("T", structure_value(value, returns))
        except Exception as exc:  # noqa: BLE001 - the first failure is raised if no other reading fits
            first = first or exc
    if returns is str and text.strip():
        return cast("T", text)
    raise first or ValueError("the answer has no JSON value in it")


def _candidates(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    for part in (text, *(match[1] for match in _FENCE.finditer(text))):
        try:
            yield decoder.decode(part)
        except (ValueError, RecursionError):
            continue
        return
    # Behind or before some words: the outermost object or array.
    for start in (match.start() for match in re.finditer(r"[\[{]", text)):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield value
        return


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")
