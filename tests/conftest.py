"""What holds for every test: loopback only, sampled sweeps with a printed seed, hypothesis profiles."""

from __future__ import annotations

import ipaddress
import os
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

T = TypeVar("T")

# --- the network -----------------------------------------------------------------------------------


class NetworkBlocked(BaseException):
    """A test tried to reach something that is not on this machine.

    Not an `Exception`: code under test that contains failures must not contain this one.
    """


_CONNECTS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname"}


def _is_loopback(host: object) -> bool:
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str):
        return host is None
    if host in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _guard(event: str, args: tuple[object, ...]) -> None:
    """An audit hook: sees every socket of the process, whichever library made it."""
    if event in _LOOKUPS:
        host = args[0]
    elif event in _CONNECTS:
        address = args[1]
        if not isinstance(address, tuple):  # a Unix socket's path, or a connected socket
            return
        host = address[0]
    else:
        return
    if not _is_loopback(host):
        raise NetworkBlocked(f"{event} to {host!r}: tests reach loopback only")


sys.addaudithook(_guard)

# --- options ---------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trio_agents")
    group.addoption("--run-slow", action="store_true", help="run the tests marked slow, with larger sweeps")
    group.addoption("--sweep-all", action="store_true", help="sweeps take every case")
    group.addoption(
        "--sweep-seed", type=int, default=None, help="the seed of sampled sweeps (default: random)"
    )
    group.addoption("--run-compat", action="store_true", help="collect tests/compat, which needs trio-typing")
    group.addoption(
        "--run-providers",
        action="store_true",
        help="collect tests/providers, which needs `make test-providers`",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.sweep_seed is None:
        config.option.sweep_seed = random.SystemRandom().randrange(2**32)
    # In CI the same examples every time, so that what a run says is about the change; chance serves at the desk.
    same = bool(os.environ.get("CI"))
    for name, examples in (("fast", 50), ("slow", 1000)):
        hypothesis.settings.register_profile(
            name, max_examples=examples, deadline=None, print_blob=not same, derandomize=same
        )
    hypothesis.settings.load_profile("slow" if config.option.run_slow else "fast")


def pytest_report_header(config: pytest.Config) -> str:
    return f"sweeps: --sweep-seed={config.option.sweep_seed}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    apart = {"compat": config.option.run_compat, "providers": config.option.run_providers}
    if collection_path.parent == Path(__file__).parent and not apart.get(collection_path.name, True):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.run_slow:
        return
    skip = pytest.mark.skip(reason="slow: runs with --run-slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


# --- sweeps ----------------------------------------------------------------------------------------


class Sweep:
    """Samples the cases of a sweep: all of them with --sweep-all, ten times `keep` with --run-slow."""

    def __init__(self, seed: str, *, factor: int | None) -> None:
        self.random = random.Random(seed)
        self._factor = factor

    def __call__(self, cases: Iterable[T], *, keep: int) -> list[T]:
        """Some of the cases in their order, the first and the last included.

        Args:
            cases: all of them; there must be one.
            keep: how many the fast lane takes, at least 2.
        """
        every = list(cases)
        assert every, "a sweep over nothing tests nothing"
        assert keep >= 2
        if self._factor is None or len(every) <= keep * self._factor:
            return every
        inner = self.random.sample(range(1, len(every) - 1), keep * self._factor - 2)
        return [every[index] for index in sorted({0, len(every) - 1, *inner})]


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> Sweep:
    """The sampler of this test."""
    option = request.config.option
    factor = None if option.sweep_all else 10 if option.run_slow else 1
    return Sweep(f"{option.sweep_seed} {request.node.nodeid}", factor=factor)
