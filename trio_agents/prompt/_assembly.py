"""System prompts out of named sections and variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar, final

import attrs

from ..errors import UsageError

Variables: TypeAlias = Mapping[str, str]

_REFERENCE: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


def _check_name(_instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise UsageError(f"a prompt's {attribute.name} is a non-empty string, not {value!r}")


@final
@attrs.frozen
class Section:
    """A part of a system prompt.

    Attributes:
        name: unique among the sections of a prompt.
        text: the text, in which `{{name}}` stands for a variable; or a function of all variables that returns
            the finished text.
        order: sections are sorted by this number, those of one number by name.
        verbatim: whether `{{...}}` in the text is no variable but what the model should read.
    """

    name: str = attrs.field(validator=_check_name)
    text: str | Callable[[Variables], str]
    order: int = attrs.field(default=0, kw_only=True)
    verbatim: bool = attrs.field(default=False, kw_only=True)


@final
@attrs.frozen
class Variable:
    """A value that sections refer to.

    Attributes:
        name: what stands between the braces.
        value: its text, or a function that returns it; called at most once for each assembly, and only if a
            section wants it.
    """

    name: str = attrs.field(validator=_check_name)
    value: str | Callable[[], str]


def assemble(sections: Iterable[Section], variables: Iterable[Variable] = (), *, strict: bool = True) -> str:
    """The system prompt: the sections in their order, joined by blank lines, empty ones left out.

    The result depends on what is given, not on the order in which it is given.

    Args:
        sections: the sections, each name once.
        variables: the variables, each name once. What their values contain is not looked at again.
        strict: whether an unknown variable is an error; otherwise it stays as it stands.

    Raises:
        UsageError: an unknown variable (section and variable are named), a name that is there twice, or a text
            that is no string.
        Exception: what a function of a section or variable raised.
    """
    values = _Values(_unique("variable", variables))
    ordered = sorted(_unique("section", sections).values(), key=lambda section: (section.order, section.name))
    texts = (_render(section, values, strict=strict).strip("\n") for section in ordered)
    return "\n\n".join(text for text in texts if text.strip())


class _Values(Mapping[str, str]):
    """The variables, each worked out when it is first asked for."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self._variables = variables
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            value = self._variables[name].value
            self._known[name] = _text(f"variable {name!r}", value() if callable(value) else value)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._variables))

    def __len__(self) -> int:
        return len(self._variables)


def _render(section: Section, values: _Values, *, strict: bool) -> str:
    if callable(section.text):
        return _text(f"section {section.name!r}", section.text(values))
    text = _text(f"section {section.name!r}", section.text)
    if section.verbatim:
        return text

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1]
        if name in values:
            return values[name]
        if strict:
            legal = ", ".join(values) or "none"
            raise UsageError(
                f"section {section.name!r} of the system prompt names the unknown variable {name!r} (there are: {legal})"
            )
        return reference[0]

    return _REFERENCE.sub(value_of, text)


def _text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise UsageError(f"{what} of the system prompt gives text, not {type(text).__name__}")
    return text


_Item = TypeVar("_Item", Section, Variable)


def _unique(what: str, items: Iterable[_Item]) -> dict[str, _Item]:
    found: dict[str, _Item] = {}
    for item in items:
        if item.name in found:
            raise UsageError(f"the system prompt has the {what} {item.name!r} twice")
        found[item.name] = item
    return found
