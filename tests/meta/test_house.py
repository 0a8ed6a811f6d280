"""The house itself: pins, environment, test folders, and that the guards of conftest.py bite."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import re
import socket
from collections.abc import Iterator

import pytest
import trio
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import NetworkBlocked, Sweep
from tests.meta.repository import PYPROJECT, ROOT

LOCKS = {
    "requirements.lock": ({"mcp", "openai", "zstd"}, "dev"),
    "tests/compat/requirements.lock": ({"trio-typing"}, "compat"),
    "tests/providers/requirements.lock": ({"local", "openai"}, "providers"),
}


def _group(name: str) -> Iterator[Requirement]:
    for entry in PYPROJECT["dependency-groups"][name]:
        if isinstance(entry, dict):
            yield from _group(entry["include-group"])
        else:
            yield Requirement(entry)


def _pins(text: str) -> list[tuple[str, str, str]]:
    """Name, extras as they are written, and version of each pin."""
    return re.findall(r"^([\w.-]+)(?:\[([\w,.-]+)\])?==(\S+)", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_that_is_asked_for_is_pinned(lock: str) -> None:
    extras, group = LOCKS[lock]
    text = (ROOT / lock).read_text("utf-8")
    pins: dict[str, list[str]] = {}
    for name, _, version in _pins(text):
        pins.setdefault(canonicalize_name(name), []).append(version)
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) >= len(pins)

    project = PYPROJECT["project"]
    wanted = [Requirement(line) for line in project["dependencies"]] + list(_group(group))
    for extra in extras:
        wanted += [Requirement(line) for line in project["optional-dependencies"][extra]]
    assert len(wanted) > 5
    for requirement in wanted:
        for version in pins[canonicalize_name(requirement.name)]:
            assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_what_is_asked_for_with_an_extra_is_pinned_with_it() -> None:
    """pip before 23.3 takes the newest release where only the name without the extra is pinned."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    pinned = {canonicalize_name(name): set(extras.split(",")) for name, extras, _ in _pins(text)}
    seen = 0
    for name in pinned:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # for another platform
            for line in importlib.metadata.requires(name) or ():
                wanted = Requirement(line)
                if wanted.extras and (not wanted.marker or wanted.marker.evaluate({"extra": ""})):
                    seen += 1
                    assert wanted.extras <= pinned[canonicalize_name(wanted.name)], f"{name}: {line}"
    assert seen, "nothing here asks for an extra: this test sees nothing"


def test_exactly_four_dependencies_at_run_time() -> None:
    assert {Requirement(line).name for line in PYPROJECT["project"]["dependencies"]} == {
        "trio", "attrs", "cattrs", "msgspec",
    }  # fmt: skip


def test_trio_typing_is_not_beside_the_type_checkers() -> None:
    assert importlib.util.find_spec("mypy") is not None
    assert importlib.util.find_spec("trio_typing") is None
    assert "trio-typing" not in {
        canonicalize_name(found.name) for found in importlib.metadata.distributions()
    }


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "trio_agents" / "py.typed").exists()


def test_each_test_folder_is_explained() -> None:
    text = (ROOT / "tests" / "README.md").read_text("utf-8")
    explained = set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
    folders = {
        path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert "meta" in folders
    assert folders <= explained
    assert list((ROOT / "tests").glob("test_*.py")) == []


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.invalid"])
async def test_no_host_but_loopback(host: str) -> None:
    with pytest.raises(NetworkBlocked):
        await trio.open_tcp_stream(host, 80)
    with pytest.raises(NetworkBlocked):
        socket.create_connection((host, 80), timeout=0.1)


async def test_loopback_is_open() -> None:
    async with trio.open_nursery() as nursery:
        serve = functools.partial(trio.serve_tcp, _greet, 0, host="127.0.0.1")
        listeners = await nursery.start(serve)
        async with await trio.open_tcp_stream("localhost", listeners[0].socket.getsockname()[1]) as stream:
            assert await stream.receive_some() == b"hello"
        nursery.cancel_scope.cancel()


async def _greet(stream: trio.SocketStream) -> None:
    await stream.send_all(b"hello")


def test_a_sweep_keeps_both_ends_and_the_order() -> None:
    taken = Sweep("1 test", factor=1)(range(1000), keep=20)
    assert len(taken) == 20
    assert (taken[0], taken[-1]) == (0, 999)
    assert taken == sorted(set(taken))
    assert taken == Sweep("1 test", factor=1)(range(1000), keep=20)
    assert taken != Sweep("2 test", factor=1)(range(1000), keep=20)
    assert len(Sweep("1 test", factor=10)(range(1000), keep=20)) == 200
    assert Sweep("1 test", factor=None)(range(1000), keep=20) == list(range(1000))


def test_a_sweep_over_nothing_fails() -> None:
    with pytest.raises(AssertionError, match="tests nothing"):
        Sweep("1 test", factor=1)([], keep=20)
