"""Who does the work: commands that start measured processes, and how peers get their environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = Path(os.environ.get("BENCH_ROOT") or HERE.parent)
PEERS: Final = HERE.parent / ".bench-peers"
"""Environments of peers; not part of the project."""


def scratch_place() -> Path:
    """Where logs and results go: beside the project, on its disk. `BENCH_SCRATCH` names another place."""
    place = Path(os.environ.get("BENCH_SCRATCH") or HERE.parent / ".bench-out")
    place.mkdir(parents=True, exist_ok=True)
    if "BENCH_SCRATCH" not in os.environ:
        (place / ".gitignore").write_text("*\n", "utf-8")
    return place


@attrs.frozen(kw_only=True)
class Subject:
    """Somebody who does the work.

    Attributes:
        name: as the cases call it.
        title: for people.
        module: the Python module of its process, or None.
        requires: packages of a peer's environment.
        is_node: whether it runs on Node.
    """

    name: str
    title: str
    module: str | None = None
    requires: tuple[str, ...] = ()
    is_node: bool = False

    @property
    def is_peer(self) -> bool:
        """Whether it needs an environment of its own."""
        return self.is_node or bool(self.requires)

    @property
    def place(self) -> Path:
        """Its environment."""
        return PEERS / self.name

    @property
    def is_installed(self) -> bool:
        """Whether it can be run."""
        if self.is_node:
            return (self.place / "node_modules" / ".bin" / "node").exists()
        return not self.requires or (self.place / "bin" / "python").exists()

    def command(self) -> tuple[list[str], Path]:
        """The command of its process, without case and parameters, and where it is run."""
        if self.is_node:
            node = self.place / "node_modules" / ".bin" / "node"
            return [str(node), "--expose-gc", str(self.place / "worker.mjs")], self.place
        python = str(self.place / "bin" / "python") if self.requires else sys.executable
        assert self.module is not None
        return [python, "-m", self.module], ROOT


SUBJECTS: Final = {
    subject.name: subject
    for subject in (
        Subject(name="trio_agents", title="trio_agents", module="benchmarks.ours"),
        Subject(name="floor", title="bare Trio", module="benchmarks.floor"),
        Subject(name="harness", title="DeepSeek Harness", is_node=True),
        Subject(
            name="pydantic-ai",
            title="pydantic-ai",
            module="benchmarks.peers.python.on_pydantic_ai",
            requires=("pydantic-ai-slim==2.68.0",),
        ),
        Subject(
            name="openai-agents",
            title="openai-agents",
            module="benchmarks.peers.python.on_openai_agents",
            requires=("openai-agents==0.24.0",),
        ),
        Subject(
            name="langgraph",
            title="langgraph",
            module="benchmarks.peers.python.on_langgraph",
            requires=("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"),
        ),
    )
}


def install(name: str) -> None:
    """Make the environment of a peer. Needs a network with package registries.

    Raises:
        subprocess.CalledProcessError: a package could not be installed.
    """
    subject = SUBJECTS[name]
    subject.place.mkdir(parents=True, exist_ok=True)
    (PEERS / ".gitignore").write_text("*\n", "utf-8")
    if subject.is_node:
        source = HERE / "peers" / "harness"
        shutil.copy(source / "package.json", subject.place)
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        subprocess.run(["npm", "install", *quiet], cwd=subject.place, check=True)
    else:
        if not (subject.place / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(subject.place)], check=True)
        pip = [str(subject.place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *subject.requires], check=True)


def refresh(subject: Subject) -> None:
    """Put the current process of a peer on Node where its packages are found."""
    if subject.is_node:
        shutil.copy(HERE / "peers" / "harness" / "worker.mjs", subject.place)
