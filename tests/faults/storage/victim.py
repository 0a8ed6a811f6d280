"""A program that appends for ever and says what was acknowledged, until it is killed."""

from __future__ import annotations

import sys

import trio

from tests.unit.storage.logs import Script, header, write_each
from trio_agents.storage import JsonlStore


async def main(root: str, compression: str, mode: str) -> None:
    store = JsonlStore(root, durability="written", compression="zstd" if compression == "zstd" else None)
    script = Script()
    writer = store.create(header())
    write_each(writer, script.open_turn())
    print(f"holding {script.seq}", flush=True)
    if mode == "hold":
        await trio.sleep_forever()
    while True:
        for event in script.chunks("piece"):
            write_each(writer, [event])
            print(event.seq, flush=True)
        if script.seq % 50 == 0:
            await writer.barrier()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
