"""The file tools against real processes and real races."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
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


# --- races ----------------------------------------------------------------------------------------


class AtCall:
    """Does something right before one of the calls that a block makes to the operating system."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self._number = number
        self._act = act
        self.count = 0

    def _profile(self, _frame: object, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__module__", None) == "posix":
            if self.count == self._number:
                self._act()
            self.count += 1

    def __enter__(self) -> AtCall:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.setprofile(None)


CALLS: dict[str, tuple[object, ...]] = {
    "read": ("link/x",),
    "list": ("link",),
    "write": ("link/x", "written"),
    "write deep": ("link/new/x", "written"),
    "edit": ("link/x", "inside", "edited"),
}


@pytest.mark.parametrize("deep", [False, True], ids=["folder", "file"])
@pytest.mark.parametrize("call", CALLS)
def test_a_swap_for_a_link_at_any_moment_leads_nowhere(tmp_path: Path, call: str, deep: bool) -> None:
    """Whenever the folder, or the file in it, becomes a link to the outside: nothing there is read or changed."""
    codes: set[str] = set()
    number = calls = 0
    while number <= calls:
        base = tmp_path / str(number)
        root, outside = base / "root", base / "outside"
        (root / "link").mkdir(parents=True)
        (root / "link" / "x").write_text("inside")
        outside.mkdir()
        (outside / "x").write_text("secret")
        victim, target = (root / "link" / "x", outside / "x") if deep else (root / "link", outside)

        def swap(victim: Path = victim, target: Path = target) -> None:
            victim.rename(victim.with_name("aside"))
            victim.symlink_to(target)

        tool = tool_of(root, call.partition(" ")[0])
        with AtCall(number, swap) as at:
            try:
                text = str(tool(*CALLS[call]))
                codes.add("ok")
            except ToolError as exc:
                text = str(exc)
                codes.add(exc.code)
        calls = at.count
        number += 1
        assert "secret" not in text
        assert (outside / "x").read_text() == "secret"
        assert [path.name for path in outside.iterdir()] == ["x"]
    assert calls > 3
    assert "ok" in codes
    assert codes <= {"ok", "FS_OUTSIDE_ROOT", "FS_NOT_FOUND", "FS_CHANGED", "FS_NOT_FILE", "FS_NOT_FOLDER"}
    assert len(codes) > 1 or (deep and call in {"list", "write deep"})  # those never look at the file
