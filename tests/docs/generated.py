"""Parts of the documentation that are made from the code. `python -m tests.docs.generated` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from trio_agents.loop._phase import TRANSITIONS, WAKES
from trio_agents.session._events import CORE_PAYLOADS

DOCS = Path(__file__).parents[2] / "docs"


def events() -> str:
    """One row for each event type that is written or folded."""
    rows = ["| wire type | class | fields | says |", "|---|---|---|---|"]
    for wire, cls in sorted(CORE_PAYLOADS.items()):
        fields = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(cls)) or "none"
        says = (cls.__doc__ or "").split("\n")[0].split(". ")[0].rstrip(".")
        mark = " (ignorable)" if cls.ignorable else ""
        rows.append(f"| `{wire}`{mark} | `{cls.__name__}` | {fields} | {says} |")
    return "\n".join(rows)


def phases() -> str:
    """One row for each phase of an agent: what follows on what, and what a wake does."""
    rows = ["| phase | a wake | what follows |", "|---|---|---|"]
    for phase, edges in TRANSITIONS.items():
        follows = "; ".join(f"{happened.value}: {after.value}" for happened, after in edges.items())
        rows.append(f"| {phase.value} | {WAKES[phase]} | {follows} |")
    return "\n".join(rows)


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("reference/sessions.md", "events"): events,
    ("explanation/lifecycle.md", "phases"): phases,
}
"""Page and marker, and what stands between `<!-- marker -->` and `<!-- /marker -->` there."""


def split(text: str, marker: str) -> tuple[str, str, str]:
    """What stands before, between and behind the two marks."""
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, found, rest = text.partition(start)
    inside, closed, behind = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no {start} ... {end}")
    return before + start, inside, end + behind


def main() -> None:
    """Write every generated part anew."""
    for (page, marker), make in PARTS.items():
        path = DOCS / page
        before, _, behind = split(path.read_text(), marker)
        path.write_text(f"{before}\n\n{make()}\n\n{behind}")


if __name__ == "__main__":
    main()
