"""The file tools, and that nothing outside their root can be reached."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from trio_agents.errors import ToolError, UsageError
from trio_agents.tools import Tool, _search, file_tools
from trio_agents.tools.files import _replace


class Files:
    """The tools of one folder, called directly."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools: dict[str, Tool[..., Any]] = {tool.name: tool for tool in file_tools(root, writable=True)}

    def __getattr__(self, name: str) -> Tool[..., Any]:
        return self.tools[name]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A root with a file in a folder, beside a secret that is outside."""
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root-not").mkdir()
    (tmp_path / "root-not" / "secret").write_text("secret")
    return Files(root)


def code_of(tool: Tool[..., Any], *args: object, **options: object) -> str:
    with pytest.raises(ToolError) as caught:
        tool(*args, **options)
    return caught.value.code


def test_which_tools(tmp_path: Path) -> None:
    assert [tool.name for tool in file_tools(tmp_path)] == ["read", "list", "grep"]
    writable = file_tools(tmp_path, writable=True)
    assert [tool.name for tool in writable] == ["read", "list", "grep", "write", "edit"]
    assert [tool.effect for tool in writable] == ["pure", "pure", "pure", "idempotent", "once"]
    assert [tool.is_parallel({}) for tool in writable] == [True, True, True, False, False]
    assert all(tool.description for tool in writable)
    for tool in writable:
        schema: Any = tool.parameters.value
        assert all("description" in each for each in schema["properties"].values())


@pytest.mark.parametrize("name", ["missing", "file"])
def test_the_root_is_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a folder"):
        file_tools(tmp_path / name)


# --- read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"start": 2}, "two\nthree\n"),
        ({"start": 3}, "three\n"),
        ({"lines": 2}, "one\ntwo\n[lines 1 to 2 of 3; to read on: start=3]"),
        ({"start": 2, "lines": 1}, "two\n[lines 2 to 2 of 3; to read on: start=3]"),
    ],
    ids=str,
)
def test_read(files: Files, options: dict[str, int], text: str) -> None:
    assert files.read("src/a.py", **options) == text


@pytest.mark.parametrize(
    "text", ["no end", "\n", "\n\n", "a\r\nb\r\n", "\ufeffbom", "a\x0bb\x85c\u2028d\n", "é"]
)
def test_read_gives_the_text_exactly(files: Files, text: str) -> None:
    (files.root / "x").write_bytes(text.encode())
    assert files.read("x") == text


def test_read_says_when_there_is_nothing(files: Files) -> None:
    (files.root / "empty").write_text("")
    assert files.read("empty") == "[the file is empty]"
    assert code_of(files.read, "src/a.py", 4) == "FS_NO_SUCH_LINE"


def test_read_is_bounded(files: Files) -> None:
    (files.root / "long").write_text("x" * 99_999 + "\nshort\n")
    assert files.read("long").endswith("x\n[line 1 of 2 is 99999 characters long; the rest is left out]")
    assert files.read("long", 2) == "short\n"
    (files.root / "many").write_text("y" * 99 + "\n" + ("x" * 99 + "\n") * 1999)
    read = files.read("many")
    assert read.endswith("[lines 1 to 400 of 2000; to read on: start=401]")
    with (files.root / "huge").open("wb") as file:
        file.truncate(33 * 1024 * 1024)
    assert code_of(files.read, "huge") == "FS_TOO_LARGE"


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfe", b"ok" * 9000 + b"\xc3"])
def test_read_refuses_what_is_no_text(files: Files, data: bytes) -> None:
    (files.root / "x").write_bytes(data)
    assert code_of(files.read, "x") == "FS_NOT_TEXT"


# --- where paths lead -----------------------------------------------------------------------------


@pytest.fixture
def links(files: Files) -> Files:
    """Links of every kind, good and bad."""
    root = files.root
    for name, target in {
        "good": "src/a.py",
        "good-folder": "src",
        "good-absolute": str(root / "src"),
        "good-up": "src/../src/a.py",
        "good-chain": "good-folder/../good",
        "out": "../secret",
        "out-absolute": str(root.parent / "secret"),
        "out-prefix": str(root) + "-not/secret",
        "out-folder": "..",
        "out-root": "/",
        "loop": "loop",
        "loop-a": "loop-b",
        "loop-b": "loop-a",
        "dangling": "src/missing",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    return files


@pytest.mark.parametrize(
    "path",
    ["src/a.py", "./src//a.py", "src/../src/./a.py", "good", "good-folder/a.py", "good-absolute/a.py", "good-up", "good-chain", "ROOT/src/a.py", "ROOT/good"],
)  # fmt: skip
def test_paths_that_stay_inside(links: Files, path: str) -> None:
    assert links.read(path.replace("ROOT", str(links.root))) == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../secret", "FS_OUTSIDE_ROOT"),
        ("src/../../secret", "FS_OUTSIDE_ROOT"),
        ("good-folder/../../secret", "FS_OUTSIDE_ROOT"),
        ("ROOT/../secret", "FS_OUTSIDE_ROOT"),
        ("ROOT-not/secret", "FS_OUTSIDE_ROOT"),
        ("/etc/passwd", "FS_OUTSIDE_ROOT"),
        ("out", "FS_OUTSIDE_ROOT"),
        ("out-absolute", "FS_OUTSIDE_ROOT"),
        ("out-prefix", "FS_OUTSIDE_ROOT"),
        ("out-folder/secret", "FS_OUTSIDE_ROOT"),
        ("out-root/etc/passwd", "FS_OUTSIDE_ROOT"),
        ("loop", "FS_FAILED"),
        ("loop-a/x", "FS_FAILED"),
        ("dangling", "FS_NOT_FOUND"),
        ("missing", "FS_NOT_FOUND"),
        ("missing/../src/a.py", "FS_NOT_FOUND"),
        ("src/a.py/x", "FS_NOT_FOUND"),
        ("src/a.py/../a.py", "FS_NOT_FOUND"),
        ("a\0b", "FS_NOT_FOUND"),
        ("\ud800", "FS_NOT_FOUND"),
        ("x" * 300, "FS_FAILED"),
        ("src", "FS_IS_FOLDER"),
        (".", "FS_IS_FOLDER"),
        ("", "FS_IS_FOLDER"),
        ("pipe", "FS_NOT_FILE"),
    ],
)
def test_paths_that_do_not(links: Files, path: str, code: str) -> None:
    """Each is refused with its own code; nothing hangs, and no message tells what is outside."""
    path = path.replace("ROOT", str(links.root))
    assert code_of(links.read, path) == code
    if code == "FS_OUTSIDE_ROOT":
        assert code_of(links.write, path, "x") == code
        assert code_of(links.edit, path, "secret", "x") == code
        assert code_of(links.list, path) == code
        assert code_of(links.grep, "secret", path) == code
    assert (links.root.parent / "secret").read_text() == "secret"
    assert (links.root.parent / "root-not" / "secret").read_text() == "secret"


def test_a_root_behind_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "x").write_text("x")
    link = tmp_path / "link"
    link.symlink_to(real)
    files = Files(link)
    assert files.read("x") == files.read(str(link / "x")) == files.read(str(real / "x")) == "x"


def test_permission_denied(files: Files) -> None:
    (files.root / "x").write_text("x")
    (files.root / "x").chmod(0)
    if os.access(files.root / "x", os.R_OK):
        pytest.skip("this user may read everything")
    assert code_of(files.read, "x") == "FS_DENIED"


# --- list -----------------------------------------------------------------------------------------


def test_list(links: Files) -> None:
    (links.root / ".hidden").mkdir()
    (links.root / ".hidden" / "h.py").write_text("")
    (links.root / "src" / "sub").mkdir()
    (links.root / "src" / "sub" / "b.py").write_text("")
    lines = links.list().split("\n")
    assert lines == sorted(lines)
    assert {".hidden/", "src/", "good -> src/a.py", "out-folder -> ..", "pipe"} <= set(lines)
    assert links.list("src") == "src/a.py\nsrc/sub/"
    assert links.list("src", "*.py") == "src/a.py"
    assert links.list("src", "*.c") == "[nothing fits]"
    assert links.list("src", recursive=True) == "src/a.py\nsrc/sub/\nsrc/sub/b.py"
    assert links.list(".", "*.py", recursive=True) == "src/a.py\nsrc/sub/b.py"
    assert links.list(".", "**/sub/*", recursive=True) == "src/sub/b.py"
    assert links.list("good-folder", "*.py") == "good-folder/a.py"


def test_list_of_what_is_no_folder(files: Files) -> None:
    assert code_of(files.list, "src/a.py") == "FS_NOT_FOLDER"
    assert code_of(files.list, "missing") == "FS_NOT_FOUND"
    (files.root / "empty").mkdir()
    assert files.list("empty") == "[nothing there]"


def test_list_is_bounded(files: Files) -> None:
    for number in range(1005):
        (files.root / "src" / f"{number:04}").touch()
    lines = files.list("src").split("\n")
    assert len(lines) == 1001
    assert lines[0] == "src/0000"
    assert lines[-1] == "[only the first 1000 are shown; narrow it down with path or pattern]"


# --- write and edit -------------------------------------------------------------------------------


def test_write(links: Files) -> None:
    root = links.root
    assert links.write("new/deep/x.txt", "é\n") == "made new/deep/x.txt (2 characters)"
    assert (root / "new/deep/x.txt").read_bytes() == "é\n".encode()
    assert links.write("new/deep/x.txt", "") == "replaced new/deep/x.txt (0 characters)"
    assert (root / "new/deep/x.txt").read_bytes() == b""
    links.write("good", "through a link")
    assert (root / "good").is_symlink()
    assert (root / "src/a.py").read_text() == "through a link"
    links.write("dangling", "made")
    assert (root / "src/missing").read_text() == "made"


def test_write_leaves_nothing_beside_it_and_keeps_the_mode(files: Files) -> None:
    script = files.root / "src" / "a.py"
    script.chmod(0o777)
    files.write("src/a.py", "x")
    assert stat.S_IMODE(script.stat().st_mode) == 0o777
    assert [path.name for path in (files.root / "src").iterdir()] == ["a.py"]
    for path, content, code in [
        ("src", "x", "FS_IS_FOLDER"),
        (".", "x", "FS_IS_FOLDER"),
        ("src/a.py/x", "x", "FS_NOT_FOUND"),
        ("src/b.py", "\ud800", "FS_NOT_TEXT"),
        ("src/" + "x" * 300, "x", "FS_FAILED"),
    ]:
        assert code_of(files.write, path, content) == code
    assert [path.name for path in (files.root / "src").iterdir()] == ["a.py"]


def test_a_refused_write_takes_back_the_folders_that_it_made(files: Files) -> None:
    assert code_of(files.write, "new/deep/" + "x" * 300, "x") == "FS_FAILED"
    assert code_of(files.write, "src/new/deep/x/..", "x") in {"FS_IS_FOLDER", "FS_OUTSIDE_ROOT"}
    assert sorted(path.name for path in files.root.rglob("*")) == ["a.py", "src"]


def test_names_may_be_as_long_as_the_disk_takes(files: Files) -> None:
    name = "\u20ac" * 80  # three bytes each
    assert files.write(f"src/{name}", "x") == f"made src/{name} (1 characters)"
    assert files.read(f"src/{name}") == "x"


def test_a_disk_that_syncs_no_folders_is_no_failure(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(22, "Invalid argument")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write("src/a.py", "new")
    assert (files.root / "src/a.py").read_text() == "new"


def test_a_reader_keeps_the_old_file(files: Files) -> None:
    with (files.root / "src/a.py").open() as reader:
        files.write("src/a.py", "new")
        assert reader.read() == "one\ntwo\nthree\n"


def test_write_refuses_what_is_no_file(links: Files) -> None:
    assert code_of(links.write, "pipe", "x") == "FS_NOT_FILE"
    assert stat.S_ISFIFO((links.root / "pipe").stat().st_mode)


def test_edit(files: Files) -> None:
    assert files.edit("src/a.py", "two\n", "2\n\n") == "replaced 1 place in src/a.py"
    assert (files.root / "src/a.py").read_text() == "one\n2\n\nthree\n"
    assert code_of(files.edit, "src/a.py", "two", "2") == "FS_NO_MATCH"
    assert code_of(files.edit, "src/a.py", "e", "E") == "FS_AMBIGUOUS"
    assert files.edit("src/a.py", "e", "E", every=True) == "replaced 3 places in src/a.py"
    assert (files.root / "src/a.py").read_text() == "onE\n2\n\nthrEE\n"


def test_places_that_overlap_are_ambiguous(files: Files) -> None:
    path = files.root / "src" / "a.py"
    path.write_text("a\n\n\nb")
    assert code_of(files.edit, "src/a.py", "\n\n", "\n") == "FS_AMBIGUOUS"
    assert files.edit("src/a.py", "\n\n", "\n", every=True) == "replaced 1 place in src/a.py"
    assert path.read_text() == "a\n\nb"


def test_a_change_in_the_middle_of_an_edit_is_noticed(files: Files) -> None:
    path = files.root / "src" / "a.py"
    before = path.stat()
    path.write_text("somebody else's")
    folder = os.open(files.root / "src", os.O_RDONLY)
    try:
        with pytest.raises(ToolError) as caught:
            _replace("src/a.py", folder, "a.py", b"mine", expected=before)
    finally:
        os.close(folder)
    assert caught.value.code == "FS_CHANGED"
    assert path.read_text() == "somebody else's"
    assert [each.name for each in path.parent.iterdir()] == ["a.py"]


@pytest.mark.parametrize("path", ["missing", "src"])
def test_edit_needs_a_file(files: Files, path: str) -> None:
    assert code_of(files.edit, path, "a", "b") in {"FS_NOT_FOUND", "FS_IS_FOLDER"}


# --- the search program, in this process -----------------------------------------------------------


def found(root: Path, **options: object) -> tuple[list[tuple[str, int, str]], object]:
    request = {"pattern": "x", "glob": None, "ignore_case": False, "limit": 10, **options}
    name = str(request.pop("name", "."))
    folder = os.open(root, os.O_RDONLY)
    try:
        answer: Any = _search.search(folder, name, request)
    finally:
        os.close(folder)
    return answer["matches"], answer["more"]


def test_search(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text("one x\r\nno\nX two\n")
    (tmp_path / "b" / "c.txt").write_text("x" * 500)
    (tmp_path / ".git" / "d").write_text("x")
    (tmp_path / "e").write_bytes(b"x\0")
    (tmp_path / "f").symlink_to("a.py")
    (tmp_path / "g").symlink_to("b")
    os.mkfifo(tmp_path / "h")
    assert found(tmp_path) == ([("a.py", 1, "one x"), ("b/c.txt", 1, "x" * 300)], False)
    assert found(tmp_path, ignore_case=True, glob="*.py") == (
        [("a.py", 1, "one x"), ("a.py", 3, "X two")],
        False,
    )
    assert found(tmp_path, limit=1) == ([("a.py", 1, "one x")], True)
    assert found(tmp_path, name="a.py", pattern="^no$") == ([("a.py", 2, "no")], False)
    assert found(tmp_path, glob="b/*") == ([("b/c.txt", 1, "x" * 300)], False)


def test_what_was_searched_in_part_only_is_said(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "y" * _search.MAX_LINE + "x\n"
    (files.root / "long").write_text(long)
    assert files.grep("x") == "[no line matches]\n[searched in part only, being too large or too deep: long]"
    for number in range(7):
        (files.root / f"long{number}").write_text(long)
    assert files.grep("x").endswith("too deep: long, long0, long1, long2, long3 and 3 more]")
    monkeypatch.setattr(_search, "MAX_FILE", 10)
    folder = os.open(files.root, os.O_RDONLY)
    try:
        request: dict[str, object] = {"pattern": "three", "glob": "*.py", "ignore_case": False, "limit": 10}
        answer = _search.search(folder, ".", request)
    finally:
        os.close(folder)
    assert answer == {"matches": [], "more": False, "partly": ["src/a.py"]}


def test_folders_are_gone_into_to_a_bounded_depth(files: Files) -> None:
    deep = files.root
    for _ in range(_search.MAX_DEPTH + 5):
        deep /= "d"
        deep.mkdir()
    (deep / "x").write_text("x")
    assert files.grep("x").startswith(
        "[no line matches]\n[searched in part only, being too large or too deep: d/d/"
    )
    lines = files.list(".", "x", recursive=True).split("\n")
    assert lines[0] != "x"
    assert lines[-1].startswith("[only the first")


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a/b.py", "*.py", True),
        ("a/b.py", "a/*.py", True),
        ("a/b.py", "b/*.py", False),
        ("b.py", "**/*.py", True),
        ("a/b.py", "**/b.py", True),
        ("a/b.py", "*.PY", False),
        ("src/a.py", "src/**/*.py", True),
        ("src/x/y/a.py", "src/**/*.py", True),
        ("srcx/a.py", "src/**/*.py", False),
        ("a/b/c/d/e", "a/**/c/**/e", True),
        ("a/b/d/e", "a/**/c/**/e", False),
        ("a/c/b/c", "**/a/**/c", True),
    ],
)
def test_globs(path: str, pattern: str, fits: bool) -> None:
    assert _search.matches_glob(path, pattern) is fits
