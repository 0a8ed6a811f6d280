"""File functions that fail when a test wants them to."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import Any, final

import attrs

from ..storage import Files


@final
@attrs.define
class _Fault:
    first: int
    last: float
    error: int
    writes: int | None


@final
class FaultyFiles:
    """The real file functions, with faults planned for some of their calls.

        faults = FaultyFiles()
        store = JsonlStore(root, files=faults.files)
        faults.fail("write", error=errno.ENOSPC)

    Attributes:
        files: what a `JsonlStore` takes.
        calls: the name of each call so far, in order.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._counts: dict[str, int] = {}
        self._faults: dict[str, list[_Fault]] = {}
        self.files: Files = Files(
            **{
                field.name: functools.partial(self._call, field.name, getattr(Files(), field.name))
                for field in attrs.fields(Files)
            }
        )

    def count(self, name: str) -> int:
        """How often a function was called."""
        return self._counts.get(name, 0)

    def fail(
        self,
        name: str,
        *,
        error: int = errno.EIO,
        skip: int = 0,
        times: float = 1,
        writes: int | None = None,
    ) -> None:
        """Plan a fault.

        Args:
            name: the function, such as `write`, `fdatasync`, `link`.
            error: the error number that its `OSError` has.
            skip: how many calls from now on still work.
            times: how many calls fail then; `math.inf` for all, until `heal`.
            writes: for `write`: how many bytes reach the file before it fails, as when a disk becomes full.
        """
        first = self.count(name) + skip + 1
        self._faults.setdefault(name, []).append(_Fault(first, first + times - 1, error, writes))

    def heal(self) -> None:
        """Forget all faults that are still planned."""
        self._faults.clear()

    def _call(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        self.calls.append(name)
        number = self._counts[name] = self.count(name) + 1
        for fault in self._faults.get(name, ()):
            if fault.first <= number <= fault.last:
                if name == "close":
                    fn(*args)  # a close that fails has closed the file
                if fault.writes and name == "write":
                    fn(args[0], args[1][: fault.writes])
                raise OSError(fault.error, os.strerror(fault.error))
        return fn(*args)
