"""The hidden folder beside a target that is one file: its name, and which of them are dead.

Its name says which file it is for and which process writes it: by that, what is dead is known on
local disk. Of another host's processes age decides, as it does in `tfrecord_io.staging`.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from tfrecord_io.ownership import Owner, owner_of
from tfrecord_io.staging import STALE_AFTER_SECONDS
from tfrecord_io.storage import Storage

#: Bytes of the target's name that the hidden folder repeats; names end at 255.
_NAME_BYTES = 120

_HIDDEN = re.compile(
    r"\.(?P<target>.*)\.(?P<host>[0-9a-f]{12})-(?P<pid>[0-9]{1,10})-(?P<started>[0-9A-Za-z]{1,32})"
    r"-[0-9a-f]{8}",
    re.DOTALL,
)


def behind_link(storage: Storage, path: str) -> str:
    """Return where the file is that a link to one leads to, or the path if it is no link."""
    local = storage.local_path(path)
    return os.path.realpath(local) if local and Path(local).is_symlink() else path


def hidden_name(target: str) -> str:
    """Return a new name of a folder in which this process stages a file of that name."""
    owner = owner_of()
    process = f"{owner.host}-{owner.pid}-{owner.started}"
    return f".{_shortened(target)}.{process}-{secrets.token_hex(4)}"


def _shortened(name: str) -> str:
    return os.fsencode(name)[:_NAME_BYTES].decode("utf-8", "ignore")


def hidden_folders(
    storage: Storage,
    folder: str,
    target: str | None = None,
    *,
    stale_after: float = STALE_AFTER_SECONDS,
) -> Iterator[tuple[str, bool]]:
    """Give the hidden folders in a local folder; there are none in other stores.

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
    local = storage.local_path(folder)
    if local is None:
        return
    try:
        with os.scandir(local) as entries:
            found = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in found:
        match = _HIDDEN.fullmatch(name)
        if match is None or (target is not None and match["target"] != _shortened(target)):
            continue
        owner = Owner(host=match["host"], pid=int(match["pid"]), started=match["started"])
        alive = owner.is_alive
        if alive is None:
            try:
                alive = storage.age_seconds(f"{folder}/{name}") < stale_after
            except FileNotFoundError:
                continue
        yield name, not alive
