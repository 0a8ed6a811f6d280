"""Recorded logs through the stores: packed or not, compressed or not, the events are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.storage.logs import load_events, unpacked
from trio_agents.session._codec import encode_event
from trio_agents.storage import JsonlStore, MemoryStore, SessionStore
from trio_agents.storage._layout import project_segment, session_segment

LOGS = Path(__file__).parents[2].parent / "shared" / "data" / "harness-logs"

pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the recorded logs are not here")


def place(root: Path, path: Path) -> str:
    """Put a recorded log where a store looks for it; gives its id."""
    data = path.read_bytes()
    header = json.loads(data.partition(b"\n")[0])
    target = root / project_segment(header.get("cwd")) / session_segment(header["id"]) / "session.jsonl"
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    return str(header["id"])


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.jsonl")), ids=lambda path: path.stem)
async def test_a_recorded_log_is_stored_without_loss(tmp_path: Path, path: Path) -> None:
    """PER-1, PER-19, PROP-10: loaded from where the harness keeps it, written out again in every way."""
    source = JsonlStore(tmp_path / "harness", durability="written")
    session_id = place(tmp_path / "harness", path)
    expected = {entry["file"]: entry for entry in json.loads((LOGS / "expected.json").read_bytes())}[
        path.name
    ]
    opened = await source.open(session_id)
    await opened.writer.aclose()
    events = unpacked(opened.events)
    assert len(events) == expected["events"]
    assert len((await source.verify(session_id)).issues) == expected["issues"]
    (entry,) = await source.list()
    assert (entry.header.id, entry.problem) == (session_id, None)
    if not expected["issues"]:
        assert entry.status == (await source.inspect(session_id)).status

    stores: list[SessionStore] = [
        MemoryStore(),
        JsonlStore(tmp_path / "packed", durability="written"),
        JsonlStore(tmp_path / "plain", durability="written", packing=False),
        JsonlStore(tmp_path / "zstd", durability="written", compression="zstd"),
    ]
    for store in stores:
        writer = store.create(opened.header)
        writer.write((), ())
        for start in range(0, len(events), 50):
            batch = events[start : start + 50]
            writer.write(batch, [encode_event(event) for event in batch])
        await writer.aclose()
        assert await load_events(store, session_id) == events
