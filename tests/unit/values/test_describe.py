"""ERR-8: one text for an exception and everything that led to it."""

from __future__ import annotations

from trio_agents.values._describe import MAX_LENGTH, describe


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raised(fn) -> BaseException:
    try:
        fn()
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def test_message_and_type() -> None:
    assert describe(ValueError("bad")) == "ValueError: bad"
    assert describe(KeyError()) == "KeyError"
    assert describe(ValueError("two\nlines")) == "ValueError: two lines"


def test_cause_goes_before_context() -> None:
    """ERR-8"""

    def fn() -> None:
        try:
            raise OSError("disk")
        except OSError:
            raise ValueError("outer") from KeyError("k")

    assert describe(raised(fn)) == "ValueError: outer; caused by KeyError: 'k'"


def test_context_shows_unless_suppressed() -> None:
    """ERR-8"""

    def shown() -> None:
        try:
            raise OSError("disk")
        except OSError:
            raise ValueError("outer")  # noqa: B904 - without a cause

    def hidden() -> None:
        try:
            raise OSError("disk")
        except OSError:
            raise ValueError("outer") from None

    assert describe(raised(shown)) == "ValueError: outer; caused by OSError: disk"
    assert describe(raised(hidden)) == "ValueError: outer"


def test_members_of_groups_with_their_own_causes() -> None:
    """ERR-8"""
    inner = OSError("a")
    inner.__cause__ = KeyError("k")
    group = ExceptionGroup("two", [inner, ExceptionGroup("deep", [ValueError("b")])])
    assert (
        describe(group)
        == "ExceptionGroup: two [OSError: a; caused by KeyError: 'k' | ExceptionGroup: deep [ValueError: b]]"
    )


def test_repeats_collapse() -> None:
    """ERR-8"""
    exc = ValueError("same")
    exc.__cause__ = ValueError("same")
    exc.__cause__.__cause__ = OSError("root")
    assert describe(exc) == "ValueError: same; caused by OSError: root"
    assert describe(ExceptionGroup("g", [OSError("x"), OSError("x")])) == "ExceptionGroup: g [OSError: x]"


def test_cycles_end() -> None:
    """ERR-8"""
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    assert describe(a) == "ValueError: a; caused by ValueError: b"
    loop = ExceptionGroup("g", [a])
    b.__cause__ = loop
    assert describe(loop) == "ExceptionGroup: g [ValueError: a; caused by ValueError: b]"


def test_what_cannot_be_printed_degrades() -> None:
    """ERR-8"""
    exc = Broken()
    exc.__cause__ = ValueError("why")
    assert describe(exc) == "Broken (it cannot be printed); caused by ValueError: why"


def test_the_text_is_bounded() -> None:
    exc = ValueError("x")
    for number in range(1000):
        outer = ValueError(f"{number} " + "y" * 100)
        outer.__cause__ = exc
        exc = outer
    assert len(describe(exc)) == MAX_LENGTH
    assert describe(exc).endswith("…")
