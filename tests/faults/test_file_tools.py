"""The file tools against real processes and real races."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from trio_agents.errors import ToolError
from trio_agents.tools import Tool, ToolContext, _search, file_tools


def tool_of(root: Path, name: str) -> Tool[..., object]:
    return next(tool for tool in file_tools(root, writable=True) if tool.name == name)


async def run(tool: Tool[..., object], **arguments: object) -> str:
    return (await tool.invoke(tool.structure(arguments), ToolContext(call_id="c", name=tool.name))).text


def children() -> set[str]:
    return set(Path("/proc/self/task").joinpath(str(os.getpid()), "children").read_text().split())


async def test_grep(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def one():\n    pass\n")
    (tmp_path / "b.txt").write_text("define\n")
    (tmp_path / "to-src").symlink_to("src")
    grep = tool_of(tmp_path, "grep")
    assert await run(grep, pattern=r"^def\b") == "src/a.py:1: def one():"
    assert await run(grep, pattern="def") == "b.txt:1: define\nsrc/a.py:1: def one():"
    assert (
        await run(grep, pattern="DEF", ignore_case=True, limit=1)
        == "b.txt:1: define\n[only the first 1 are shown]"
    )
    assert await run(grep, pattern="def", path="src") == "src/a.py:1: def one():"
    assert await run(grep, pattern="def", path="to-src") == "to-src/a.py:1: def one():"
    assert await run(grep, pattern="pass", path="src/a.py") == "src/a.py:2:     pass"
    assert await run(grep, pattern="pass", glob="*.txt") == "[no line matches]"
    assert grep("def", "src") == "src/a.py:1: def one():"
    for pattern in ("(", "*", r"\8"):
        with pytest.raises(ToolError) as caught:
            await run(grep, pattern=pattern)
        assert caught.value.code == "FS_BAD_PATTERN"


async def test_a_pattern_that_never_ends_is_stopped_by_cancel(tmp_path: Path) -> None:
    """The interpreter goes on meanwhile, the process is gone afterwards."""
    (tmp_path / "evil").write_text("a" * 60 + "b\n")
    before = children()
    ticks = 0
    with trio.move_on_after(0.5) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: run(tool_of(tmp_path, "grep"), pattern="(a+)+c"))
            while True:
                await trio.sleep(0.02)
                ticks += 1
    assert scope.cancelled_caught
    assert ticks > 5
    assert children() == before


def test_the_search_ends_by_itself_when_its_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("a" * 60 + "b\n")
    request = {"pattern": "(a+)+c", "name": ".", "glob": None, "ignore_case": False, "limit": 1, "seconds": 1}
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_search.__file__), str(folder)],
            input=json.dumps(request).encode(),
            pass_fds=(folder,),
            timeout=30,
            check=False,
        )
    finally:
        os.close(folder)
    assert done.returncode == -signal.SIGALRM


def swap_for_ever(stop: threading.Event, inside: Path, link: Path, outside: Path) -> None:
    """Let `link` be a folder inside and a link to the outside, in turns."""
    while not stop.is_set():
        inside.rename(link)
        link.rename(inside)
        link.symlink_to(outside)
        link.unlink()


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    """Neither reading nor writing ever gets outside, whenever the link appears."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "real").mkdir(parents=True)
    (root / "real" / "x").write_text("inside")
    outside.mkdir()
    (outside / "x").write_text("secret")
    read, edit = tool_of(root, "read"), tool_of(root, "edit")
    stop = threading.Event()
    swapper = threading.Thread(target=swap_for_ever, args=(stop, root / "real", root / "link", outside))
    swapper.start()
    seen: set[str] = set()
    try:
        for number in range(1500):
            try:
                text = str(read("link/x") if number % 2 else edit("link/x", "inside", "inside"))
                seen.add("ok")
                assert text in {"inside", "replaced 1 place in link/x"}
            except ToolError as exc:
                seen.add(exc.code)
    finally:
        stop.set()
        swapper.join()
    assert (outside / "x").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["x"]
    assert seen <= {"ok", "FS_OUTSIDE_ROOT", "FS_NOT_FOUND", "FS_CHANGED"}
    assert len(seen) > 1
