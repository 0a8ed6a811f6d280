"""Build the wheel, install it alone in a fresh environment outside the tree, and look at it from an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIRECT = {"trio", "attrs", "cattrs", "msgspec"}
IMPORT_LIMIT = 0.4  # seconds, the best of five fresh processes

# Runs in the fresh environment: what is installed, and what of it is wanted by whom.
INSTALLED = """
import importlib.metadata as m, json
from pip._vendor.packaging.requirements import Requirement
found = {}
for dist in m.distributions():
    wanted = [Requirement(line) for line in dist.requires or ()]
    found[dist.name.lower().replace("_", "-")] = sorted(
        r.name.lower().replace("_", "-") for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""}))
print(json.dumps(found))
"""

# What `import trio_agents` costs and brings along, beside what `import trio` brings along.
IMPORTED = """
import json, sys, time
start = time.perf_counter()
import trio_agents
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "file": trio_agents.__file__, "modules": sorted({n.partition(".")[0] for n in sys.modules})}))
"""
FOREIGN = {
    "aiohttp",
    "anyio",
    "asyncio",
    "curio",
    "httpx",
    "httpx2",
    "openai",
    "pydantic",
    "requests",
    "trio_typing",
    "twisted",
}


def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """The standard output; ends this program if the command fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))[:200]}\nexited with {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def check(what: str, ok: bool, detail: object) -> None:
    """Say it, and end this program if it is not so."""
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {detail}")
    if not ok:
        sys.exit(1)


def main() -> None:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    with tempfile.TemporaryDirectory(prefix="check-wheel-") as temporary:
        base = Path(temporary)
        empty = base / "empty"
        empty.mkdir()

        run(
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            base / "dist",
            cwd=ROOT,
            env=env,
        )
        (wheel,) = (base / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        tops = {name.partition("/")[0] for name in names}
        check("the wheel holds the package alone", len(tops) == 2 and "trio_agents" in tops, sorted(tops))
        check("the wheel says that it is typed", "trio_agents/py.typed" in names, f"{len(names)} files")
        sources = {str(path.relative_to(ROOT)) for path in (ROOT / "trio_agents").rglob("*.py")}
        check("the wheel holds every module", sources <= set(names), sorted(sources - set(names)) or "all")

        venv.create(base / "venv", with_pip=True)
        python = base / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        # The pinned versions without their hashes: constraints, so that only what the wheel asks for is installed.
        pins = re.findall(
            r"^[\w.-]+==\S+(?: ;[^\\\n]+)?", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE
        )
        (base / "constraints.txt").write_text("\n".join(pins), "utf-8")
        run(python, "-m", "pip", "install", "-q", "-c", base / "constraints.txt", wheel, cwd=empty, env=env)

        wants = json.loads(run(python, "-c", INSTALLED, cwd=empty, env=env))
        check("the wheel wants four packages", set(wants["trio-agents"]) == DIRECT, wants["trio-agents"])
        closure = {"trio-agents"}
        while more := {want for name in closure for want in wants[name]} - closure:
            closure |= more
        extra = set(wants) - closure - {"pip", "setuptools", "wheel"}
        check("nothing else came along", not extra, sorted(closure | extra))

        runs = [json.loads(run(python, "-c", IMPORTED, cwd=empty, env=env)) for _ in range(5)]
        inside = Path(runs[0]["file"]).resolve().is_relative_to((base / "venv").resolve())
        check("it is the wheel that is imported", inside, "from the fresh environment")
        best = min(result["seconds"] for result in runs)
        check(f"import trio_agents takes under {IMPORT_LIMIT} s", best < IMPORT_LIMIT, f"{best:.3f} s")
        foreign = FOREIGN & set(runs[0]["modules"])
        check("no other framework is imported", not foreign, sorted(foreign) or "none")

        script = python.parent / "trio-agents"
        commands: list[list[str | Path]] = [[script, "--help"], [python, "-m", "trio_agents", "--help"]]
        for command in commands:
            shown = run(*command, cwd=empty, env=env)
            check(
                f"{Path(command[0]).name} {' '.join(map(str, command[1:]))}",
                "usage" in shown.lower(),
                shown.split("\n")[0],
            )
    print("the wheel passed")


if __name__ == "__main__":
    main()
