"""Bytes that messages refer to: admitted, named by their hash, kept beside the log that refers to them.

Each session has its own names for them; a fork gets further names for the same bytes (hard links), so that either
session can be deleted without asking the other, and the system drops the bytes with the last name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable
from typing import Final

from msgspec import UNSET

from ..errors import MessageError, SessionCorruptError
from ..values._messages import Attachment
from ._files import DIRECTORY_MODE, READ, Files, sync_directory, write_new_file
from ._images import sniff
from ._layout import ATTACHMENTS_NAME

SIZE_LIMIT: Final = 32 * 1024 * 1024
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_ID: Final = re.compile(r"sha256:([0-9a-f]{64})")
_REFERENCE: Final = re.compile(rb"sha256:[0-9a-f]{64}")
_NAME_LENGTH: Final = 255


def admit(data: bytes, media_type: str, name: str | None) -> Attachment:
    """Check bytes and describe them. Pictures are measured; anything else has no size in pixels (0 by 0).

    Raises:
        MessageError: empty, too large, no media type, or not the picture that the media type promises.
    """
    if type(data) is not bytes:
        raise MessageError(f"an attachment is made of bytes, not {type(data).__name__}")
    if not data:
        raise MessageError("an attachment has at least one byte")
    if len(data) > SIZE_LIMIT:
        raise MessageError(f"an attachment has at most {SIZE_LIMIT} bytes, not {len(data)}")
    if type(media_type) is not str or not _MEDIA_TYPE.fullmatch(media_type):
        raise MessageError(f"a media type looks like 'image/png', not {media_type!r}")
    if name is not None and (type(name) is not str or not 0 < len(name) <= _NAME_LENGTH):
        raise MessageError(f"an attachment's name has 1 to {_NAME_LENGTH} characters, not {name!r}")
    picture = sniff(data)
    if media_type in _PICTURES and (picture is None or picture.media_type != media_type):
        found = "no picture" if picture is None else picture.media_type
        raise MessageError(f"the attachment is said to be {media_type}, but its bytes are {found}")
    is_measured = picture is not None and picture.media_type == media_type
    return Attachment(
        attachment_id=f"sha256:{hashlib.sha256(data).hexdigest()}",
        media_type=media_type,
        bytes=len(data),
        width=picture.width if picture is not None and is_measured else 0,
        height=picture.height if picture is not None and is_measured else 0,
        name=UNSET if name is None else name,
    )


def digest_of(attachment_id: str) -> str:
    """The hash in an attachment's id.

    Raises:
        MessageError: it is no such id.
    """
    match = _ID.fullmatch(attachment_id) if type(attachment_id) is str else None
    if match is None:
        raise MessageError(f"an attachment id is 'sha256:' and 64 hex digits, not {attachment_id!r}")
    return match[1]


def check_bytes(data: bytes, attachment_id: str, *, path: str | None = None) -> bytes:
    """The bytes, if they are those of the id.

    Raises:
        SessionCorruptError: they are others.
    """
    if hashlib.sha256(data).hexdigest() != digest_of(attachment_id):
        raise SessionCorruptError(
            f"the bytes of attachment {attachment_id} are not those that were stored", path=path
        )
    return data


def references(lines: Iterable[bytes]) -> set[str]:
    """Every attachment id that occurs in some lines, whatever kind of event they are."""
    found: set[str] = set()
    for line in lines:
        found.update(match.decode() for match in _REFERENCE.findall(line))
    return found


def path_of(directory: str, attachment_id: str) -> str:
    """Where a session keeps an attachment."""
    return f"{directory}/{ATTACHMENTS_NAME}/{digest_of(attachment_id)}"


def store(files: Files, directory: str, attachment_id: str, data: bytes, *, sync: bool) -> None:
    """Write an attachment, unless it is there. Blocks.

    Raises:
        OSError: the system refuses; nothing is left behind under its name.
    """
    path = path_of(directory, attachment_id)
    folder = f"{directory}/{ATTACHMENTS_NAME}"
    with contextlib.suppress(FileExistsError):
        files.mkdir(folder, DIRECTORY_MODE)
    try:
        files.stat(path)
    except FileNotFoundError:
        temporary = f"{path}.{os.urandom(6).hex()}.tmp"
        write_new_file(files, temporary, data, sync=sync)
        files.rename(temporary, path)
        if sync:
            sync_directory(files, folder)
            sync_directory(files, directory)


def read(files: Files, path: str) -> bytes:
    """The bytes of a file. Blocks."""
    fd = files.open(path, READ, 0)
    try:
        parts = []
        while part := files.read(fd, 1 << 20):
            parts.append(part)
    finally:
        files.close(fd)
    return b"".join(parts)


def link(files: Files, source: str, target: str, attachment_ids: Iterable[str], *, sync: bool) -> None:
    """Give the session in `target` names for attachments of the one in `source`. Blocks.

    Raises:
        OSError: the system refuses.
    """
    for attachment_id in sorted(set(attachment_ids)):
        old, new = path_of(source, attachment_id), path_of(target, attachment_id)
        with contextlib.suppress(FileExistsError):
            files.mkdir(f"{target}/{ATTACHMENTS_NAME}", DIRECTORY_MODE)
        try:
            files.link(old, new)
        except (FileNotFoundError, FileExistsError):
            continue
        except OSError as exc:
            if exc.errno not in {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise
            store(files, target, attachment_id, read(files, old), sync=sync)


def collect(files: Files, directory: str, wanted: set[str]) -> list[str]:
    """Remove the attachments that are not wanted, and what interrupted writes left. Blocks; gives their ids."""
    folder = f"{directory}/{ATTACHMENTS_NAME}"
    try:
        names = files.listdir(folder)
    except FileNotFoundError:
        return []
    removed = []
    for name in sorted(names):
        attachment_id = f"sha256:{name}"
        if attachment_id in wanted:
            continue
        files.unlink(f"{folder}/{name}")
        if _ID.fullmatch(attachment_id):
            removed.append(attachment_id)
    return removed
