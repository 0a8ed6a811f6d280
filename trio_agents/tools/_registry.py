"""Names in layers: what one scope adds to, hides from, or takes over from what it inherits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar, final

from ..errors import UsageError

T = TypeVar("T")
Undo: TypeAlias = Callable[[], None]


@final
class Entry(Generic[T]):
    """One registration. Its identity is what an undo goes by, so equal values are no trouble."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: T) -> None:
        self.name: str = name
        self.value: T = value


@final
class _Filter:
    __slots__ = ("allow", "deny")

    def __init__(self, allow: frozenset[str] | None, deny: frozenset[str]) -> None:
        self.allow = allow
        self.deny = deny

    def passes(self, name: str) -> bool:
        return name not in self.deny and (self.allow is None or name in self.allow)


@final
class Layer(Generic[T]):
    """The names of one scope, on top of those of its parent. Everything is immediate; nothing is a checkpoint.

    The nearest layer wins, in whatever order the names were registered; what it hid shows again when its own
    entry goes. Restrictions filter what is inherited, as it is at the moment of looking, and so bind the layers
    below too; a layer's own names are exempt.
    """

    __slots__ = ("_entries", "_filters", "_watchers", "kind", "owner", "parent")

    def __init__(self, parent: Layer[T] | None = None, *, kind: str = "tool", owner: str = "root") -> None:
        """Make an empty layer.

        Args:
            parent: the layer that it lies upon, or None.
            kind: what is registered here, for error texts.
            owner: the scope that it belongs to, for error texts.
        """
        self.parent: Layer[T] | None = parent
        self.kind: str = kind
        self.owner: str = owner
        self._entries: dict[str, Entry[T]] = {}
        self._filters: list[_Filter] = []
        self._watchers: list[Callable[[], object]] = []

    def register(self, name: str, value: T) -> Undo:
        """Add a name.

        Returns:
            What removes exactly this registration. Calling it again, or after the name was taken anew, does
            nothing.

        Raises:
            UsageError: the name is no non-empty string, or is registered in this layer already.
            Exception: what a watcher raised; the registration is undone then.
        """
        _check_name(self.kind, name)
        if name in self._entries:
            raise UsageError(f"scope {self.owner!r} has a {self.kind} {name!r} already")
        entry = Entry(name, value)
        self._entries[name] = entry

        def remove() -> bool:
            if self._entries.get(name) is not entry:
                return False
            del self._entries[name]
            return True

        return self._changed(remove)

    def restrict(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> Undo:
        """Hide inherited names, from this layer and those below it. Several restrictions add up.

        Args:
            allow: if given, only these stay visible.
            deny: these do not.

        Returns:
            What lifts exactly this restriction, once.

        Raises:
            UsageError: neither names anything, or a name is not inherited here (hidden ones count).
            Exception: what a watcher raised; the restriction is lifted then.
        """
        allowed = None if allow is None else frozenset(_names(self.kind, allow))
        denied = frozenset(_names(self.kind, deny))
        if not (allowed or denied):
            raise UsageError(f"a restriction names at least one {self.kind} to allow or to deny")
        inherited = {} if self.parent is None else self.parent.visible()
        unknown = sorted(((allowed or frozenset()) | denied) - inherited.keys())
        if unknown:
            legal = ", ".join(sorted(inherited)) or "none"
            raise UsageError(
                f"scope {self.owner!r} inherits no {self.kind} {', '.join(map(repr, unknown))} (it inherits: {legal})"
            )
        restriction = _Filter(allowed, denied)
        self._filters.append(restriction)

        def remove() -> bool:
            # By identity: an equal restriction of somebody else stays.
            if restriction not in self._filters:
                return False
            self._filters.remove(restriction)
            return True

        return self._changed(remove)

    def watch(self, listener: Callable[[], object]) -> Undo:
        """Call `listener` after each change of this very layer. One that raises vetoes an addition.

        Returns:
            What ends it.
        """
        self._watchers.append(listener)

        def unwatch() -> None:
            if listener in self._watchers:
                self._watchers.remove(listener)

        return unwatch

    def get(self, name: str) -> T | None:
        """What a name stands for, seen from here; None if there is nothing, or it is hidden."""
        entry = self.entry(name)
        return None if entry is None else entry.value

    def entry(self, name: str) -> Entry[T] | None:
        """The registration behind a name, seen from here: what tells a tool from its replacement."""
        layer: Layer[T] | None = self
        while layer is not None:
            found = layer._entries.get(name)
            if found is not None:
                return found
            if not all(restriction.passes(name) for restriction in layer._filters):
                return None
            layer = layer.parent
        return None

    def visible(self) -> dict[str, Entry[T]]:
        """Everything that can be seen from here, a fresh dict: outer layers first, each in order of registration."""
        found: dict[str, Entry[T]] = {} if self.parent is None else self.parent.visible()
        if self._filters:
            found = {
                name: entry
                for name, entry in found.items()
                if all(restriction.passes(name) for restriction in self._filters)
            }
        for name, entry in self._entries.items():
            found.pop(name, None)  # a name that is taken over moves to its new layer's place
            found[name] = entry
        return found

    def values(self) -> tuple[T, ...]:
        """What can be seen from here, without the names."""
        return tuple(entry.value for entry in self.visible().values())

    def own(self) -> Mapping[str, T]:
        """What this layer itself registers, a fresh dict."""
        return {name: entry.value for name, entry in self._entries.items()}

    def _changed(self, remove: Callable[[], bool]) -> Undo:
        """Tell the watchers of an addition, and give its undo; a watcher that raises undoes it."""

        def undo() -> None:
            if remove():
                for listener in tuple(self._watchers):
                    listener()

        try:
            for listener in tuple(self._watchers):
                listener()
        except BaseException:
            remove()
            raise
        return undo


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"a {kind} is registered under a non-empty string, not {name!r}")


def _names(kind: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise UsageError(f"a restriction takes several {kind} names, not one string: [{names!r}]")
    return list(names)
