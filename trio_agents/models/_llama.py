"""A process that llama.cpp runs in, as something that is opened, waited for and closed.

Not a thread of this process: xllamacpp holds the interpreter's lock for all the time that a model takes to load, which
would stop every task for seconds, and llama.cpp ends the process it is in when it finds itself in trouble. The process
ends with its stdin, so it outlives nobody; a session of its own keeps Ctrl-C away from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, Final, final

import attrs
import trio

from ..errors import ModelError

_PROGRAM: Final = str(Path(__file__).with_name("_llama_server.py"))
_KILLED: Final = 5.0
"""Seconds that a killed process may take to be gone; only one that hangs in the kernel takes any."""
_ERRORS: Final = 1
_INFOS: Final = 3
_EXCERPT: Final = 16 * 1024
_FIRST_ERROR: Final = re.compile(r"^[\d.]+ E (?:srv |cmn )?\s*(.+)$", re.MULTILINE)


@final
@attrs.frozen(kw_only=True)
class LlamaSettings:
    """What a server is started with.

    Attributes:
        path: the model's file.
        context: tokens of one conversation.
        parallel: how many answers it gives at once.
        threads: how many threads it computes with.
        cache_mib: memory for what conversations without a place have been read of already.
        log: where its own log goes, or None for nowhere.
    """

    path: str
    context: int
    parallel: int
    threads: int
    cache_mib: int
    log: str | None


@final
class LlamaProcess:
    """One process with one server. Made by `open_llama`."""

    def __init__(self, settings: LlamaSettings, process: trio.Process, log: BinaryIO, key: str) -> None:
        self._settings = settings
        self._process = process
        self._log = log
        self._log_start = log.tell()
        self._said = b""
        self._is_told = False
        self._address: str | None = None
        self._is_closed = False
        self.key: Final = key

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def address(self) -> str | None:
        """Where the server listens, once it does."""
        return self._address

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    async def wait_ready(self) -> str:
        """Wait until the server listens, and give its address. A checkpoint.

        One task at a time. One that is cancelled leaves the server on its way; the next goes on waiting.

        Raises:
            ModelError: the model could not be loaded (`LOAD_FAILED`).
        """
        await trio.lowlevel.checkpoint()
        while self._address is None:
            try:
                await self._tell()
                data = await self._read()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                raise self._not_loaded("its process ended" if not self._is_closed else "it was closed")
            self._said += data
            if self._said.endswith(b"\n"):
                answer = json.loads(self._said)
                if "error" in answer:
                    raise self._not_loaded(answer["error"])
                self._address = answer["address"]
        return self._address

    async def _tell(self) -> None:
        if not self._is_told:
            settings = attrs.asdict(self._settings) | {
                "key": self.key,
                "verbosity": _ERRORS if self._settings.log is None else _INFOS,
            }
            assert self._process.stdin is not None
            # Less than a pipe takes at once: it has been sent as a whole, or not at all.
            await self._process.stdin.send_all(json.dumps(settings).encode() + b"\n")
            self._is_told = True

    async def _read(self) -> bytes:
        assert self._process.stdout is not None
        return bytes(await self._process.stdout.receive_some())

    def _not_loaded(self, why: str) -> ModelError:
        return ModelError(
            f"llama.cpp could not load {self._settings.path}: {self._complaint() or why}", code="LOAD_FAILED"
        )

    def _complaint(self) -> str | None:
        """The first error in its log, which is about loading: the later ones are consequences."""
        if self._log.closed:
            return None
        text = os.pread(self._log.fileno(), _EXCERPT, self._log_start).decode("utf-8", "replace")
        found = _FIRST_ERROR.search(text)
        return found[1] if found else None

    async def explain_end(self, patience: float) -> str | None:
        """How the process ended, if it has or does so within some seconds. A checkpoint."""
        with trio.move_on_after(patience):
            await self._process.wait()
        await trio.lowlevel.checkpoint()
        code = self._process.returncode
        if code is None:
            return None
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def aclose(self) -> None:
        """End the process, at once: it holds nothing that could be lost. May be called again."""
        self._is_closed = True
        self._process.kill()
        with trio.move_on_after(_KILLED, shield=True):
            await self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with trio.CancelScope(shield=True):
                await stream.aclose()
        self._log.close()
        await trio.lowlevel.checkpoint()


async def open_llama(settings: LlamaSettings) -> LlamaProcess:
    """Start a process; it is not ready yet. The caller closes it.

    Raises:
        ModelError: no process can be started (`LOAD_FAILED`).
    """
    try:
        with contextlib.ExitStack() as opened:
            log = opened.enter_context(_open_log(settings.log))
            # Uncancellable once begun, so no process is started and then forgotten.
            process = await trio.lowlevel.open_process(
                # Without -P, the adapters beside the program would stand in for the packages that they are named after.
                [sys.executable, "-P", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            opened.pop_all()  # the process has it from now on
    except OSError as exc:
        raise ModelError(f"llama.cpp cannot be started: {exc}", code="LOAD_FAILED") from exc
    return LlamaProcess(settings, process, log, secrets.token_urlsafe(24))


def _open_log(path: str | None) -> BinaryIO:
    """A file for what llama.cpp prints: the terminal is not its own."""
    if path is None:
        return tempfile.TemporaryFile()
    return Path(path).open("a+b")
