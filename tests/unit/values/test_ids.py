"""New ids: version 7, never twice, whoever mints them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid

import pytest

from trio_agents.values import mint_id

FORKED = """
import os
from trio_agents.values import mint_id
mint_id()
reader, writer = os.pipe()
child = os.fork()
made = " ".join(mint_id()[-12:] for _ in range(100))
if child == 0:
    os.write(writer, made.encode())
    os._exit(0)
os.waitpid(child, 0)
ours, theirs = set(made.split()), set(os.read(reader, 10_000).decode().split())
print(len(ours), len(theirs), len(ours & theirs))
"""


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = uuid.UUID(mint_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_ids_of_several_threads_are_never_the_same() -> None:
    made: list[str] = []

    def mint() -> None:
        made.extend([mint_id() for _ in range(1000)])

    threads = [threading.Thread(target=mint) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Without their times, which would tell most of them apart.
    assert len({id[15:] for id in made}) == 4000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_mints_ids_of_its_own() -> None:
    run = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["100", "100", "0"]
