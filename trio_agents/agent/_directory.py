"""Who is live: agents and sessions by id, each publication an entry of its own.

An entry is identified by itself, never by its id: a detach takes back the publication that it was made for, or
nothing. Entering and announcing are two steps, so that both registries can hold a pair before anybody hears of it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

import trio

from ..errors import AgentExistsError, UsageError
from ..scope._dispatch import Notification, notify, notify_or_veto

if TYPE_CHECKING:
    from ._scope import Scope


class HasId(Protocol):
    """What a directory can hold."""

    @property
    def id(self) -> str:
        """The id under which it is found."""
        ...


T = TypeVar("T", bound=HasId)


class EntryState(enum.Enum):
    """How far a publication has come."""

    ENTERED = "entered"
    ANNOUNCING = "being announced"
    LEAVING = "being announced, and detached as soon as that is over"
    ANNOUNCED = "announced"
    DETACHED = "detached"


@final
class OwnerToken:
    """Identifies one publication. Compares equal only to itself; authorises nothing."""

    __slots__ = ("_entry",)

    def __init__(self, entry: object) -> None:
        self._entry = entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnerToken) and self._entry is other._entry

    def __hash__(self) -> int:
        return id(self._entry)

    def __repr__(self) -> str:
        return f"<owner token {id(self._entry):#x}>"


@final
class Entry(Generic[T]):
    """One publication in a directory."""

    __slots__ = ("directory", "scope", "state", "value")

    def __init__(self, directory: Directory[T], value: T, scope: Scope) -> None:
        self.directory: Directory[T] = directory
        self.value: T = value
        self.scope: Scope = scope
        self.state: EntryState = EntryState.ENTERED

    @property
    def id(self) -> str:
        """The id under which it is found."""
        return self.value.id

    @property
    def is_live(self) -> bool:
        """Whether the directory shows it."""
        return self.state is not EntryState.DETACHED

    @trio.lowlevel.enable_ki_protection
    def announce(self, *, keep: bool = False) -> bool:
        """Tell the listeners of `created`, once. A listener that raises vetoes: that very exception is raised.

        Args:
            keep: a veto leaves the entry in place, for a caller that then takes back more than this entry.

        Returns:
            whether anybody was told, who may have changed something.

        Raises:
            UsageError: already announced, or no longer live.
        """
        if self.state is EntryState.DETACHED:
            raise UsageError(f"this {self.directory.what} is not live; it cannot be announced")
        if self.state is not EntryState.ENTERED:
            raise UsageError(f"{self.directory.what} {self.id!r} was already announced")
        self.state = EntryState.ANNOUNCING
        listeners = self.scope.listeners(self.directory.created)
        veto = notify_or_veto(listeners, self.directory.tell_created(self.value)) if listeners else None
        leaving = self.state is EntryState.LEAVING
        self.state = EntryState.ANNOUNCED
        if leaving or (veto is not None and not keep):
            self.detach()
        if veto is not None:
            raise veto
        return bool(listeners)

    @trio.lowlevel.enable_ki_protection
    def detach(self) -> None:
        """Take this publication back, and tell the listeners of `disposed` if it was announced. Idempotent.

        Asked for by a listener of `created`, it waits until all of them have been told.
        """
        state = self.state
        if state is EntryState.ANNOUNCING:
            self.state = EntryState.LEAVING
        elif state is EntryState.ENTERED or state is EntryState.ANNOUNCED:
            self.state = EntryState.DETACHED
            self.directory.drop(self)
            if state is EntryState.ANNOUNCED:
                listeners = self.scope.listeners(self.directory.disposed)
                if listeners:
                    notify(listeners, self.directory.tell_disposed(self.value))
            # Who keeps a token of this publication does not keep what was published.
            self.value = None  # type: ignore[assignment]  # nobody asks a detached entry for it


@final
class Directory(Generic[T]):
    """Entries by id, in the order of their registration."""

    __slots__ = ("_entries", "created", "disposed", "tell_created", "tell_disposed", "what")

    def __init__(
        self,
        what: str,
        created: type[Notification],
        disposed: type[Notification],
        tell_created: Callable[[T], Notification],
        tell_disposed: Callable[[T], Notification],
    ) -> None:
        self.what: str = what
        self.created: type[Notification] = created
        self.disposed: type[Notification] = disposed
        self.tell_created: Callable[[T], Notification] = tell_created
        self.tell_disposed: Callable[[T], Notification] = tell_disposed
        self._entries: dict[str, Entry[T]] = {}

    @trio.lowlevel.enable_ki_protection
    def enter(self, id: str, value: T, scope: Scope) -> Entry[T]:
        """Add an entry; nobody is told.

        Raises:
            AgentExistsError: the id is taken.
        """
        entry = Entry(self, value, scope)
        if self._entries.setdefault(id, entry) is not entry:
            self.check_free(id)
        return entry

    def check_free(self, id: str) -> None:
        """Raise `AgentExistsError` if the id is taken."""
        if id in self._entries:
            raise AgentExistsError(f"{self.what} {id!r} already exists: it is already registered")

    def drop(self, entry: Entry[T]) -> None:
        """Remove this very entry."""
        id = entry.value.id
        if self._entries.get(id) is entry:
            del self._entries[id]

    def entry(self, id: str) -> Entry[T] | None:
        """The live entry under an id, or None."""
        return self._entries.get(id)

    def values(self) -> list[T]:
        """A snapshot, in the order of registration."""
        return [entry.value for entry in self._entries.values()]

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)
