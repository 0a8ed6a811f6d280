"""From the names on a command line to tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..tools import Tool, command_tool, fetch_tool, file_tools
from ._program import TOOL_NAMES

DEFAULT = ("read", "list", "grep")


def tool_names(given: str | None) -> tuple[str, ...]:
    """The tools that were asked for.

    Raises:
        UsageError: a name is none of ours.
    """
    if given is None:
        return DEFAULT
    names = tuple(name for part in given.split(",") if (name := part.strip()))
    if names == ("none",):
        return ()
    for name in names:
        if name not in TOOL_NAMES:
            raise UsageError(
                f"there is no tool {name!r}; there are {', '.join(TOOL_NAMES)}, and none for no tools"
            )
    return tuple(dict.fromkeys(names))


def make_tools(names: tuple[str, ...], cwd: str) -> list[Tool[..., Any]]:
    """The tools of these names, at work in a folder.

    Raises:
        UsageError: there is no such folder, or what a tool needs is not installed.
    """
    if not Path(cwd).is_dir():
        raise UsageError(f"there is no folder {cwd!r} for the tools to work in; give --cwd")
    files = {tool.name: tool for tool in file_tools(cwd, writable=True)}
    made: list[Tool[..., Any]] = []
    for name in names:
        if name == "run":
            made.append(command_tool(cwd))
        elif name == "fetch":
            made.append(fetch_tool())
        else:
            made.append(files[name])
    return made
