"""A program that fights for a session: opens it, appends one turn, says so, and lets go or is killed."""

from __future__ import annotations

import random
import sys
import time

import trio

from tests.unit.storage.logs import Script, unpacked, write_each
from trio_agents.errors import SessionBusyError
from trio_agents.storage import JsonlStore


async def main(root: str, name: str, rounds: int) -> None:
    store = JsonlStore(root, durability="written")
    dice = random.Random(name)
    done = 0
    while done < rounds:
        try:
            opened = await store.open("s1")
        except SessionBusyError as busy:
            print(f"busy {busy.owner.split()[1]}", flush=True)
            time.sleep(dice.random() / 500)  # noqa: ASYNC251 - a process of its own, and real time
            continue
        events = unpacked(opened.events)
        script = Script(len(events))
        script.turn = sum(event.type == "turn/end" for event in events)
        write_each(opened.writer, script.whole_turn(name, chunks=1))
        done += 1
        print(f"wrote {len(events)}", flush=True)
        if dice.random() < 0.3:
            time.sleep(dice.random() / 500)  # noqa: ASYNC251
        await opened.writer.aclose()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
