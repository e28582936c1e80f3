"""The hidden folder beside a target that is one file: its name, and which of them are dead.

Its name says which file it is for and which process writes it: by that, what is dead is known on
this host. Of another host's processes age decides, as it does in `tfrecord_io.commit.staging`.

In a store of uploads each attempt uploads to the target itself, and notes down in the hidden folder
which upload that is: others may upload to the same name. Killed before it could do so, it leaves an
upload without a byte.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from tfrecord_io.commit.ownership import OWNER_TEXT, Owner, is_gone, owner_of
from tfrecord_io.commit.staging import STALE_AFTER_SECONDS, Staging
from tfrecord_io.storage import Storage, Upload

#: Bytes of the target's name that the hidden folder repeats; names end at 255.
_NAME_BYTES = 120

_HIDDEN = re.compile(rf"\.(?P<target>.*)\.{OWNER_TEXT}-[0-9a-f]{{8}}", re.DOTALL)

#: Not those that would let a program run as another owner than before.
_PERMISSIONS = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO

#: Notes of uploads, see `tfrecord_io.storage.protocol.Storage.create_sink`.
_NOTE = "upload-"
_MAX_NOTE_BYTES = 64 * 1024


def behind_link(storage: Storage, path: str) -> str:
    """Return where the file is that a link to one leads to, or the path if it is no link."""
    local = storage.local_path(path)
    return os.path.realpath(local) if local and Path(local).is_symlink() else path


def keep_permissions(place: str, made: str) -> None:
    """Have a local file be read and written by whom a file may be in whose place it will be."""
    with contextlib.suppress(FileNotFoundError):
        kept, given = (Path(one).stat().st_mode & _PERMISSIONS for one in (place, made))
        if kept != given:
            Path(made).chmod(kept)


def replace_file(storage: Storage, path: str, data: bytes) -> None:
    """Write a small file; one that is there stays as it is until the new one is complete."""
    if not storage.has_folders:
        storage.write_bytes(path, data)
        return
    path = behind_link(storage, path)
    parent, _, name = path.rpartition("/")
    folder = f"{parent}/{hidden_name(name)}"
    made = f"{folder}/file"
    try:
        storage.make_folder(folder)
        try:
            storage.write_bytes(made, data)
            if storage.local_path(made) is not None:
                keep_permissions(path, made)
            storage.rename(made, path)
        finally:
            storage.remove_tree(folder)
    except OSError as error:
        # Nobody but us knows the hidden names.
        error.filename = storage.url(path)
        raise


def hidden_name(target: str) -> str:
    """Return a new name of a folder in which this process stages a file of that name."""
    return f".{_shortened(target)}.{owner_of()}-{secrets.token_hex(4)}"


def _shortened(name: str) -> str:
    return os.fsencode(name)[:_NAME_BYTES].decode("utf-8", "ignore")


def note_path(folder: str, attempt: str) -> str:
    """Return where an attempt notes down its upload."""
    return f"{folder}/{_NOTE}{attempt}"


def hidden_folders(
    storage: Storage,
    folder: str,
    target: str | None = None,
    *,
    stale_after: float = STALE_AFTER_SECONDS,
) -> Iterator[tuple[str, bool]]:
    """Give the hidden folders in a folder.

    Parameters
    ----------
    storage : Storage
        Of the folder.
    folder : str
        Where the targets are; it may be missing.
    target : str, optional
        Only those for a file of this name.
    stale_after : float
        Seconds without a change after which one of another host counts as dead.

    Yields
    ------
    name : str
        Its name.
    is_dead : bool
        Whether the process that made it is gone.
    """
    for name in storage.folders(folder, "." if target is None else f".{_shortened(target)}."):
        match = _HIDDEN.fullmatch(name)
        if match is None or (target is not None and match["target"] != _shortened(target)):
            continue
        is_old = functools.partial(_is_old, storage, f"{folder}/{name}", stale_after)
        try:
            is_dead = is_gone(Owner.of_name(match), is_old)
        except FileNotFoundError:
            continue
        yield name, is_dead


def _is_old(storage: Storage, path: str, stale_after: float) -> bool:
    return storage.age_seconds(path) >= stale_after


def uploads_of(storage: Storage, path: str) -> list[Upload]:
    """Return the open uploads to targets that a hidden folder has notes of."""
    if storage.stages_by == "rename":
        return []
    notes = [name for name in storage.tree(path).files if name.startswith(_NOTE)]
    noted = {_noted(storage, f"{path}/{name}") for name in notes}
    uploads = storage.uploads(path.rpartition("/")[0]) if noted else []
    return [upload for upload in uploads if upload.upload_id in noted]


def _noted(storage: Storage, path: str) -> str | None:
    try:
        return storage.read_bytes(path, _MAX_NOTE_BYTES).decode()
    except (FileNotFoundError, ValueError):
        # It went since, or is none of ours.
        return None


def remove_hidden(storage: Storage, path: str) -> None:
    """Remove a hidden folder, with its uploads; tasks that still write to it fail."""
    staging = Staging(storage, path)
    for job_id in staging.job_ids():
        # Before its uploads are looked for, so that none is added behind that.
        storage.remove_tree(staging.job_folder(job_id))
    storage.abort_uploads(uploads_of(storage, path))
    storage.remove_tree(path)
