"""flake8-async, for the rules that ruff lacks. `python -m tests.meta.async_rules FOLDER...`

ASYNC910 and ASYNC911 (a function that returns has been a checkpoint) are held for what is public in the package. A private helper and a test
promise nothing. `# noqa: ASYNC910  reason` stands on the line that the finding names: the `return` or the `def`.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.meta.repository import ROOT, repository_files

RULES = (
    "ASYNC101",  # no yield in a nursery or cancel scope
    "ASYNC102",  # an await in cleanup is shielded and bounded
    "ASYNC103",  # Cancelled is raised again
    "ASYNC104",  # likewise, on every path
    "ASYNC119",  # no yield in a context manager of an async generator
    "ASYNC120",  # no checkpoint in an except clause loses the exception
    "ASYNC900",  # no async generator that nobody closes
    "ASYNC910",  # each path is a checkpoint
    "ASYNC911",  # likewise, before each yield
)
GENERATORS = ("asynccontextmanager", "fixture", "pytest.fixture", "trio.as_safe_channel")
PROMISE = re.compile(r"^(?P<file>.+?):(?P<line>\d+):\d+: ASYNC91[01] ")


def findings(files: list[Path], *, promising: Path = ROOT / "trio_agents") -> list[str]:
    """What there is to say about the files; promises count below the folder `promising` only."""
    files = [file for file in files if "async def" in file.read_text("utf-8")]
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        runs = list(pool.map(_run, [files[start::workers] for start in range(workers)]))
    found = [line for run in runs for line in run]
    found = [line.removeprefix(f"{ROOT}/") for line in found if not _is_private(line, promising)]
    return sorted(
        found, key=lambda line: [int(part) if part.isdigit() else part for part in line.split(":")[:2]]
    )


def _run(files: list[Path]) -> list[str]:
    if not files:
        return []
    tool = Path(sys.executable).with_name("flake8-async")
    generators = f"--transform-async-generator-decorators={','.join(GENERATORS)}"
    done = subprocess.run(
        [tool, f"--enable={','.join(RULES)}", generators, *files], text=True, capture_output=True, check=False
    )
    if done.returncode not in {0, 1} or done.stderr:
        raise RuntimeError(f"flake8-async failed:\n{done.stderr}")
    return done.stdout.splitlines()


def _is_private(finding: str, promising: Path) -> bool:
    promise = PROMISE.match(finding)
    if promise is None:
        return False
    file = Path(promise["file"])
    return not file.is_relative_to(promising) or not _is_public(file.read_text("utf-8"), int(promise["line"]))


def _is_public(source: str, line: int) -> bool:
    """Whether anybody outside the module may call, by its name, the function that the line is in."""
    around = [
        node
        for node in ast.walk(ast.parse(source))  # breadth first: the outermost comes first
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    within_function = any(not isinstance(node, ast.ClassDef) for node in around[:-1])
    hidden = any(node.name.startswith("_") and not node.name.endswith("__") for node in around)
    return not within_function and not hidden


def main() -> None:
    """Print the findings; exit with 1 if there are any."""
    files = [
        ROOT / file
        for file in repository_files()
        if file.suffix == ".py" and any(file.is_relative_to(folder) for folder in sys.argv[1:])
    ]
    found = findings(files)
    print("\n".join(found) or "flake8-async: nothing found")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
