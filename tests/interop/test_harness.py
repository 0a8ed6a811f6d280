"""A root written here opens in the harness, and the other way round.

Skipped unless its published packages are there: run `npm install` in this folder, or in another that has a copy of
package.json and is named by TRIO_AGENTS_INTEROP.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.storage.logs import (
    Script,
    header,
    load_events,
    log_of,
    serving,
    stored,
    unpacked,
    write,
    write_each,
)
from trio_agents.session import Event, ToolStarted, TurnEnd, open_log
from trio_agents.session._codec import encode_event, encode_header, to_plain
from trio_agents.storage import JsonlStore, fork_session
from trio_agents.values import REFUSAL

HERE = Path(__file__).parent
PACKAGES = Path(os.environ.get("TRIO_AGENTS_INTEROP", HERE)) / "node_modules"
LOGS = HERE.parents[1].parent / "shared" / "data" / "harness-logs"

pytestmark = pytest.mark.skipif(
    not (PACKAGES / ".bin" / "node").exists(), reason="Node and the harness's packages are not installed"
)

Harness = Callable[..., Any]


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """Runs the program beside its packages."""
    home = tmp_path_factory.mktemp("harness")
    (home / "node_modules").symlink_to(PACKAGES.resolve())
    shutil.copy(HERE / "load_session.mjs", home)
    node = PACKAGES.resolve() / ".bin" / "node"

    def run(act: str, root: str, session_id: str, compression: str | None, given: object = None) -> Any:
        done = subprocess.run(
            [node, home / "load_session.mjs", act, root, session_id, compression or "none"],
            input=json.dumps(given), capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return run


def session_of(session_id: str) -> list[Event]:
    script = Script()
    events = script.whole_turn(chunks=7) + script.open_turn("\ud83d lone, \u2028, \N{GRINNING FACE}")
    events += script.call("c1")
    events.append(script.event(ToolStarted(turn=2, step=1, call_id="c1"), ignorable=True))
    events += script.result("c1", script.seq - 2)
    last = script.close_turn()
    events += [
        last[0],
        Event(type="turn/end", seq=last[1].seq, time=-5, data=TurnEnd(turn=2, reason=REFUSAL)),
    ]
    return events


def check(told: Any, store_header: Any, events: list[Event]) -> None:
    session, _ = open_log(store_header, events, loaded=True)
    assert told["count"] == len(events)
    assert told["types"] == [event.type for event in events]
    assert told["surface"] == list(session.surface)
    assert [message for message in told["messages"] if message and message["content"]] == [
        to_plain(message) for message in session.messages()
    ]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("packing", [True, False])
async def test_the_harness_loads_what_was_written_here(
    tmp_path: Path, harness: Harness, compression: str | None, *, packing: bool
) -> None:
    """Same number of events, same derived history; also of a fork, and while the session is written."""
    store = JsonlStore(tmp_path, durability="written", compression=compression, packing=packing)  # type: ignore[arg-type]
    events = session_of("a/b \N{SNOWMAN}")
    head = header("a/b \N{SNOWMAN}", cwd="/work space/x")
    async with serving(store):
        writer = store.create(head)
        write_each(writer, events)
        check(harness("inspect", store.root, head.id, compression), head, events)
        await writer.barrier()
        check(harness("inspect", store.root, head.id, compression), head, events)
        await writer.aclose()
        fork = await fork_session(store, head.id, 11, id="fork")
        found = await store.inspect(fork)
    check(harness("load", store.root, head.id, compression), head, events)
    check(harness("inspect", store.root, fork, compression), found.header, list(found.events))
    assert {entry["id"] for entry in harness("list", store.root, "-", compression)} == {head.id, fork}


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_what_the_harness_wrote_is_loaded_here(
    tmp_path: Path, harness: Harness, compression: str | None
) -> None:
    """The same root is opened from both sides, in turns."""
    store = JsonlStore(tmp_path, durability="written", compression=compression)  # type: ignore[arg-type]
    script = Script()
    events = script.whole_turn(chunks=5)
    head = header("s1", cwd="/x")
    plain_header = json.loads(encode_header(head))
    del plain_header["type"]
    harness(
        "write",
        store.root,
        "s1",
        compression,
        {"header": plain_header, "events": [to_plain(event) for event in events]},
    )
    assert await load_events(store) == events
    opened = await store.open("s1")
    assert opened.header == head
    more = script.whole_turn(chunks=3)
    write(opened.writer, more)
    await opened.writer.aclose()
    check(harness("load", store.root, "s1", compression), head, events + more)
    assert (await store.verify("s1")).problems == ()


async def test_an_interrupted_turn_is_closed_alike(tmp_path: Path, harness: Harness) -> None:
    """Both sides see the same closers, apart from their wording."""
    store = JsonlStore(tmp_path, durability="written")
    script = Script()
    await stored(store, script.open_turn() + script.call("c1"), cwd="/x")
    told = harness("inspect", store.root, "s1", None)
    ours = await store.inspect("s1")
    assert told["types"] == [event.type for event in ours.events]
    assert told["messages"][-1]["id"] == ours.events[-3].data.message.id
    assert log_of(store).read_bytes().count(b"\n") == 6


@pytest.mark.skipif(not LOGS.is_dir(), reason="the recorded logs are not here")
@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_recorded_logs_written_again_open_in_the_harness(
    tmp_path: Path, harness: Harness, compression: str | None
) -> None:
    """All sound ones, through one root."""
    expected = {entry["file"]: entry for entry in json.loads((LOGS / "expected.json").read_bytes())}
    store = JsonlStore(tmp_path / "ours", durability="written", compression=compression)  # type: ignore[arg-type]
    checked = 0
    for path in sorted(LOGS.glob("*.jsonl"))[:: 1 if os.environ.get("TRIO_AGENTS_INTEROP_ALL") else 12]:
        head = json.loads(path.read_bytes().partition(b"\n")[0])
        source = JsonlStore(tmp_path / path.stem, durability="written")
        from trio_agents.storage._layout import project_segment, session_segment

        target = (
            tmp_path
            / path.stem
            / project_segment(head.get("cwd"))
            / session_segment(head["id"])
            / "session.jsonl"
        )
        target.parent.mkdir(parents=True)
        shutil.copy(path, target)
        opened = await source.open(head["id"])
        await opened.writer.aclose()
        events = unpacked(opened.events)
        name = f"{path.stem}"
        copy = header(name, cwd="/x", seed_length=len(events))
        writer = store.create(copy)
        writer.write(events, [encode_event(event) for event in events])
        await writer.aclose()
        told = harness("inspect", store.root, name, compression)
        assert told["count"] >= expected[path.name]["events"] == len(events)
        if expected[path.name]["issues"] == 0 and told["count"] == len(events):
            assert told["surface"] == expected[path.name]["surface"]
            assert [m["role"] for m in told["messages"] if m and m["content"]] == expected[path.name]["roles"]
            checked += 1
    assert checked
