"""Finding sessions below a root."""

from __future__ import annotations

import os
from typing import final

import attrs
from msgspec import UNSET

from ..errors import SessionIdentityError, SessionNotFoundError
from ..session._header import SessionHeader
from ._files import DIRECTORY_MODE, Files, size_of, storage_error
from ._layout import (
    ATTACHMENTS_NAME,
    LOCK_NAME,
    LOG_NAMES,
    PLAIN_NAME,
    ZSTD_NAME,
    project_segment,
    session_id_of,
    session_segment,
)


@attrs.frozen(kw_only=True)
class Place:
    """Where one session's log lies.

    Attributes:
        session_id: the session.
        project: name of the directory of its working directory.
        directory: its own directory.
        path: its log.
    """

    session_id: str
    project: str
    directory: str
    path: str

    @property
    def is_compressed(self) -> bool:
        """Whether the log is made of Zstandard frames."""
        return self.path.endswith(ZSTD_NAME)


@final
class Root:
    """The directory tree of a store."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def projects(self) -> list[str]:
        """Names of the directories in which sessions may lie; empty if there is no root yet."""
        try:
            return [name for name in self._files.listdir(self.path) if _is_project(name)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise storage_error(exc, "cannot read the root of the store", path=self.path) from exc

    def find(self, session_id: str) -> Place:
        """The one log that is stored under an id.

        Raises:
            SessionNotFoundError: there is none; a file without a byte is none.
            SessionIdentityError: there are several, or it lies where no log should.
            StorageError: something else is in its place.
        """
        places = self.find_all(session_id)
        if not places:
            raise SessionNotFoundError(
                f"no session {session_id!r} is stored", session_id=session_id, path=self.path
            )
        if len(places) > 1:
            raise SessionIdentityError(
                f"session {session_id!r} is stored {len(places)} times: "
                + ", ".join(place.path for place in places)
                + "; remove all but one",
                session_id=session_id,
            )
        return places[0]

    def find_all(self, session_id: str) -> list[Place]:
        """Every log that is stored under an id: one, unless somebody copied files about.

        Raises:
            SessionIdentityError: one lies beside the directories instead of in one.
            StorageError: a directory is where a log belongs, or the system refuses to look.
        """
        segment = session_segment(session_id)
        places: list[Place] = []
        for project in self.projects():
            directory = f"{self.path}/{project}/{segment}"
            try:
                places += self._logs_in(session_id, project, directory)
            except OSError as exc:
                raise storage_error(
                    exc, "cannot look for the log", session_id=session_id, path=directory
                ) from exc
        return places

    def _logs_in(self, session_id: str, project: str, directory: str) -> list[Place]:
        places = []
        for name in LOG_NAMES:
            path = f"{directory}/{name}"
            if size_of(self._files, path):
                places.append(Place(session_id=session_id, project=project, directory=directory, path=path))
            flat = directory + name.removeprefix("session")
            if size_of(self._files, flat) is not None:
                raise SessionIdentityError(
                    f"a log of session {session_id!r} lies where a directory of that name should hold it",
                    session_id=session_id, path=flat,
                )  # fmt: skip
        return places

    def make(self, header: SessionHeader, name: str = PLAIN_NAME) -> tuple[Place, tuple[str, ...]]:
        """Make the directory for a new session.

        Returns:
            The place, and the directories whose entries have to be synced for it to be found.

        Raises:
            StorageError: the system refuses.
        """
        project = project_segment(None if header.cwd is UNSET else header.cwd)
        parent = f"{self.path}/{project}"
        directory = f"{parent}/{session_segment(header.id)}"
        place = Place(session_id=header.id, project=project, directory=directory, path=f"{directory}/{name}")
        try:
            return place, (directory, *self._make_directory(directory, parent))
        except OSError as exc:
            raise storage_error(
                exc, "cannot make a directory for the session", session_id=header.id, path=directory
            ) from exc

    def remove_unwritten(self, directory: str) -> None:
        """Remove the directory of a session without a log, unless it holds what only a log leaves behind.

        Raises:
            OSError: the system refuses.
        """
        names = self._files.listdir(directory)
        if all(name in {LOCK_NAME, ATTACHMENTS_NAME} or name.startswith("session.jsonl") for name in names):
            self.remove(directory)

    def remake(self, directory: str) -> None:
        """Make a session's directory again if it has gone.

        Raises:
            StorageError: the system refuses.
        """
        try:
            self._make_directory(directory, parent_of(directory))
        except OSError as exc:
            raise storage_error(exc, "cannot make a directory for the session", path=directory) from exc

    def directory(self, project: str, session_id: str) -> str:
        """Where a session of this project has its files."""
        return f"{self.path}/{project}/{session_segment(session_id)}"

    def projects_with(self, session_id: str) -> list[str]:
        """The projects that have a directory for this id, with or without a log."""
        segment = session_segment(session_id)
        return [project for project in self.projects() if self._exists(f"{self.path}/{project}/{segment}")]

    def has_log(self, session_id: str, directory: str) -> bool:
        """Whether there is a log in a session's directory. A file without a byte is none.

        Raises:
            StorageError: something else is in its place.
        """
        try:
            return any(size_of(self._files, f"{directory}/{name}") for name in LOG_NAMES)
        except OSError as exc:
            raise storage_error(
                exc, "cannot look for the log", session_id=session_id, path=directory
            ) from exc

    def remove(self, directory: str) -> None:
        """Remove a session's directory with everything in it: the log first, the lock last.

        Raises:
            OSError: the system refuses; what is left holds no log, or is whole.
        """
        names = self._files.listdir(directory)
        for name in sorted(names, key=_removal_order):
            path = f"{directory}/{name}"
            try:
                self._files.unlink(path)
            except (IsADirectoryError, PermissionError):
                for inner in self._files.listdir(path):
                    self._files.unlink(f"{path}/{inner}")
                self._files.rmdir(path)
        self._files.rmdir(directory)

    def session_ids(self) -> list[str]:
        """Every id that has a directory, or a log where one should be, in order. Blocks."""
        found: set[str] = set()
        for project in self.projects():
            path = f"{self.path}/{project}"
            try:
                names = self._files.listdir(path)
            except (NotADirectoryError, FileNotFoundError):
                continue
            except OSError as exc:
                raise storage_error(exc, "cannot list the sessions", path=path) from exc
            for name in names:
                session_id = session_id_of(_flat_name(name))
                if session_id is not None:
                    found.add(session_id)
        return sorted(found)

    def _exists(self, path: str) -> bool:
        try:
            self._files.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as exc:
            raise storage_error(exc, "cannot look for the session", path=path) from exc
        return True

    def _make_directory(self, directory: str, parent: str) -> list[str]:
        """Make a directory and what is missing above it; gives the parents of all that was made."""
        try:
            self._files.mkdir(directory, DIRECTORY_MODE)
        except FileExistsError:
            return []
        except FileNotFoundError:
            made = self._make_directory(parent, parent_of(parent))
            return [*self._make_directory(directory, parent), *made]
        return [parent]


def parent_of(path: str) -> str:
    """The directory above an absolute path."""
    return path.rpartition("/")[0] or "/"


def check_identity(header: SessionHeader, place: Place) -> None:
    """See that a log lies where its header says.

    Raises:
        SessionIdentityError: it does not.
    """
    if header.id != place.session_id:
        raise SessionIdentityError(
            f"the log found under id {place.session_id!r} says that it is session {header.id!r}",
            session_id=place.session_id, path=place.path,
        )  # fmt: skip
    expected = project_segment(None if header.cwd is UNSET else header.cwd)
    if expected != place.project:
        parent, _, name = place.directory.rpartition("/")
        right = f"{parent_of(parent)}/{expected}/{name}"
        if os.path.realpath(right) != os.path.realpath(place.directory):
            raise SessionIdentityError(
                f"the log of session {header.id!r} says that its working directory is {header.cwd!r}, "
                f"which belongs into {expected}",
                session_id=place.session_id, path=place.path,
            )  # fmt: skip


def _is_project(name: str) -> bool:
    return name == "_no-cwd" or name.startswith("--")


def _flat_name(name: str) -> str:
    """A log beside the directories is reported under the id that it was named for."""
    return (
        name.removesuffix(".zstd").removesuffix(".jsonl")
        if name.endswith((".jsonl", ".jsonl.zstd"))
        else name
    )


def _removal_order(name: str) -> tuple[bool, bool]:
    return name == LOCK_NAME, name not in LOG_NAMES
