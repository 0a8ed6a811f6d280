"""`trio-agents bench`: the benchmarks of a checkout. They are programs of their own and do not ship."""

from __future__ import annotations

import argparse
import subprocess
import sys

from ._program import CHECKOUT


def main(options: argparse.Namespace) -> int:
    """Run the benchmarks in the checkout's folder, with the arguments as they are."""
    done = subprocess.run(  # noqa: S603 - this interpreter, with the user's own arguments
        [sys.executable, "-m", "benchmarks", *options.arguments], cwd=CHECKOUT, check=False
    )
    return done.returncode
