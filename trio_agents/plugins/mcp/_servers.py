"""Descriptions of servers: how each is reached, and what of that may be shown."""

from __future__ import annotations

import math
import os
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, final
from urllib.parse import parse_qsl, urlsplit

import attrs

from ...errors import UsageError

_SHORT: Final = 6
"""Values of fewer characters are no secrets, and hiding them would make texts unreadable."""


def seconds(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
    """Check a number of seconds."""
    if type(value) not in {int, float} or not 0 < value < math.inf:  # type: ignore[operator]
        raise UsageError(
            f"{attribute.name} of a {type(instance).__name__} is a number of seconds > 0, not {value!r}"
        )


def _text(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError(
            f"{attribute.name} of a {type(instance).__name__} is a text without NUL, not {value!r}"
        )


def _texts(instance: object, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[object, ...]) -> None:
    if not all(isinstance(each, str) and "\0" not in each for each in value):
        raise UsageError(f"{attribute.name} of a {type(instance).__name__} are texts without NUL")


def _pairs(instance: object, attribute: attrs.Attribute[Mapping[str, str]], value: Mapping[str, str]) -> None:
    texts: list[object] = [each for pair in value.items() for each in pair]
    if not all(isinstance(each, str) and "\0" not in each for each in texts):
        raise UsageError(f"{attribute.name} of a {type(instance).__name__} maps texts to texts")


def _several(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise UsageError(f"several texts are asked for, not the one text {value!r}")
    return tuple(value)


def _headers(value: Mapping[str, str]) -> Mapping[str, str]:
    """Without the blanks around the values, such as are found around what is read from a file."""
    return {name: text.strip() if hasattr(text, "strip") else text for name, text in value.items()}


def _check_headers(
    instance: object, attribute: attrs.Attribute[Mapping[str, str]], value: Mapping[str, str]
) -> None:
    for name, text in value.items():
        if not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name):
            raise UsageError(
                f"a header of an HttpServer is called {name!r}, which is no name of an HTTP header"
            )
        if not re.fullmatch(r"[\t\x20-\x7e]*", text):
            raise UsageError(
                f"the value of header {name!r} of an HttpServer must be a text of printable ASCII"
            )


def _mapping(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value)


@final
@attrs.frozen
class StdioServer:
    """A server that is a program: started for the connection, spoken to over its standard input and output.

    It inherits the few variables of the environment that every program needs (`PATH`, `HOME`, the locale and the
    like) and those of `env`, nothing else. It leads a process group of its own, which ends with the connection.

    Attributes:
        command: the program.
        args: its arguments.
        env: further variables. Their values are blotted out wherever the server's own words are shown.
        cwd: where it runs; otherwise where this process does.
        grace: seconds that it gets to exit after the end of its input, and again between TERM and KILL; at the most
            a quarter of the grace of the agent with which it ends.
    """

    command: str = attrs.field(validator=_text)
    args: tuple[str, ...] = attrs.field(default=(), converter=_several, validator=_texts)
    env: Mapping[str, str] = attrs.field(
        factory=dict, converter=_mapping, validator=_pairs, kw_only=True, repr=False
    )
    cwd: str | os.PathLike[str] | None = attrs.field(default=None, kw_only=True)
    grace: float = attrs.field(default=2.0, validator=seconds, kw_only=True)


@final
@attrs.frozen
class HttpServer:
    """A server behind a URL, spoken to over streamable HTTP.

    Attributes:
        url: where it is, http or https.
        headers: sent with each request. Their values are blotted out of every text that is shown.
        connect_timeout: seconds until a connection to the host stands.
    """

    url: str = attrs.field(validator=_text)
    headers: Mapping[str, str] = attrs.field(
        factory=dict, converter=_headers, validator=[_pairs, _check_headers], kw_only=True, repr=False
    )
    connect_timeout: float = attrs.field(default=10.0, validator=seconds, kw_only=True)

    @url.validator
    def _check_url(self, attribute: attrs.Attribute[str], value: str) -> None:
        if not re.match("https?://[^/]", value):
            raise UsageError(f"the URL of an HttpServer begins with http:// or https://, not {value!r}")
        if urlsplit(value).username is not None:
            raise UsageError("the URL of an HttpServer holds no user and password: give a header")


Server: TypeAlias = StdioServer | HttpServer
"""How a server is reached."""


def redact(server: Server, text: str) -> str:
    """A text of or about a server without the values that it was given in confidence."""
    if isinstance(server, StdioServer):
        given = list(server.env.values())
    else:
        given = [*server.headers.values(), *(value for _, value in parse_qsl(urlsplit(server.url).query))]
    secrets = {part for value in given for part in (value, *value.split()) if len(part) >= _SHORT}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def harmless(server: Server, exc: Exception) -> Exception | None:
    """An error as the cause of another, or None if a report of it would show what was given in confidence."""
    text = "".join(traceback.format_exception(exc))
    return exc if redact(server, text) == text else None
