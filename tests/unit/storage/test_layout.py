"""Names of directories: escaping, and back."""

from __future__ import annotations

import pytest

from trio_agents.errors import UsageError
from trio_agents.storage._layout import project_segment, session_id_of, session_segment


@pytest.mark.parametrize(
    ("session_id", "segment"),
    [
        ("plain-id_1.2", "plain-id_1.2"),
        ("a/b", "a~002Fb"),
        ("..", "~002E~002E"),
        (".", "~002E"),
        ("../../etc", "..~002F..~002Fetc"),
        ("~", "~007E"),
        ("é", "~00E9"),
        ("\N{GRINNING FACE}", "~D83D~DE00"),
        ("\ud83d", "~D83D"),
        ("a\x00b\n", "a~0000b~000A"),
        ("١", "~0661"),
    ],
)
def test_ids_are_escaped_by_unit(session_id: str, segment: str) -> None:
    """PER-18: an id maps to one name, injectively and without traversal."""
    assert session_segment(session_id) == segment
    assert session_id_of(segment) == session_id


@pytest.mark.parametrize("segment", ["~0041", "~00e9", "~41", "a~", "", ".", "..", "a b", "~002E.", "a/b"])
def test_other_spellings_are_no_session(segment: str) -> None:
    """PER-18: only the spelling that is written is read, so no two names stand for one id."""
    found = session_id_of(segment)
    assert found is None or session_segment(found) == segment


@pytest.mark.parametrize("session_id", ["", None, 7, b"x"])
def test_an_id_is_a_text(session_id: object) -> None:
    """PER-18: an empty id is refused."""
    with pytest.raises(UsageError, match="non-empty string"):
        session_segment(session_id)  # type: ignore[arg-type]


def test_two_surrogates_are_not_the_character() -> None:
    """PER-18: JSON cannot tell them apart, so the id that no log would give back is refused."""
    with pytest.raises(UsageError, match="pair of surrogates"):
        session_segment("\ud83d\ude00")


@pytest.mark.parametrize(
    ("cwd", "segment"),
    [
        (None, "_no-cwd"),
        ("/", "--root--"),
        ("/srv/ada/project", "--srv-ada-project--"),
        ("C:\\Users\\ada", "--C-Users-ada--"),
        ("/a//b/:c", "--a-b-c--"),
        ("/a b/~", "--a~0020b-~007E--"),
        ("/-x", "--x--"),
        ("/" + "y" * 400, "--" + "y" * 251 + "--"),
        ("/\N{GRINNING FACE}", "--~D83D~DE00--"),
    ],
)
def test_projects(cwd: str | None, segment: str) -> None:
    assert project_segment(cwd) == segment


def test_an_empty_cwd_is_refused() -> None:
    with pytest.raises(UsageError, match="non-empty path"):
        project_segment("")
