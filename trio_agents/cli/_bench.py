"""`trio-agents bench`: the benchmarks of a checkout. They are programs of their own and do not ship."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from ..errors import UsageError
from ._program import CHECKOUT


def main(options: argparse.Namespace, *, checkout: Path = CHECKOUT) -> int:
    """Run the benchmarks in the checkout's folder, with the arguments as they are.

    Raises:
        UsageError: the package was installed without them.
    """
    if not (checkout / "benchmarks" / "__main__.py").exists():
        raise UsageError(
            "the benchmarks are no part of the installed package: their scenarios, peers and reports are the folder "
            "benchmarks/ of the project's source; run `make bench` there"
        )
    done = subprocess.run(  # noqa: S603 - this interpreter, with the user's own arguments
        [sys.executable, "-m", "benchmarks", *options.arguments], cwd=checkout, check=False
    )
    return done.returncode
