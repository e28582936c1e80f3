"""The commit record, and carrying it out.

A record says everything that publishing does: which staged files become which data files, which old
files go, and that the new manifest comes last. Carrying it out may stop anywhere and start again,
in this process or another, and always ends in the same tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfrecord_io.errors import CommitStateUnknownError
from tfrecord_io.manifest import MANIFEST_NAME
from tfrecord_io.staging import STAGING_NAME, Staging

#: A record of a million files has about 150 MB.
_MAX_RECORD_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """What a commit does to the data set. All paths are relative.

    Attributes
    ----------
    publish : tuple of (str, str)
        Staged path in the job's folder, path in the data set.
    remove : tuple of str
        Files that were replaced; none of them is published.
    remove_folders : tuple of str
        Folders that go if nothing is left in them.
    """

    publish: tuple[tuple[str, str], ...]
    remove: tuple[str, ...]
    remove_folders: tuple[str, ...]

    def dumps(self) -> bytes:
        """Return the record as JSON."""
        value = {
            "publish": self.publish,
            "remove": self.remove,
            "remove_folders": self.remove_folders,
        }
        # Names of other writers' files may be no Unicode; ASCII escapes carry them.
        return json.dumps(value, ensure_ascii=True).encode()

    @staticmethod
    def loads(data: bytes) -> CommitRecord:
        """Return the record that `dumps` wrote.

        Raises
        ------
        ValueError
            It is no such text, or a path in it would leave the data set.
        """
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")  # noqa: TRY004 - one error for any bad text
        publish = tuple((_inside(staged), _inside(final)) for staged, final in value["publish"])
        return CommitRecord(
            publish=publish,
            remove=tuple(map(_inside, value["remove"])),
            remove_folders=tuple(map(_inside, value["remove_folders"])),
        )


def _inside(path: Any) -> str:
    names = path.split("/") if isinstance(path, str) else [""]
    if "\0" in names[-1] or names[0] == STAGING_NAME or {"", ".", ".."} & {*names}:
        raise ValueError(f"{path!r} is not a path inside the data set")
    return "/".join(names)


def carry_out(staging: Staging, job_id: str) -> None:
    """Do what a commit record says, perhaps once more; without one there is nothing to do.

    Only for the process whose turn it is, or that holds the last claim, and only during the turn.

    Raises
    ------
    CommitStateUnknownError
        The record cannot be understood, or a staged file is gone that was not published.
    """
    if staging.is_decided(job_id):
        _publish(staging, job_id, _read_record(staging, job_id))


def _read_record(staging: Staging, job_id: str) -> CommitRecord:
    path = staging.record_path(job_id)
    try:
        return CommitRecord.loads(staging.storage.read_bytes(path, _MAX_RECORD_BYTES))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommitStateUnknownError(
            f"the commit record cannot be understood: {error}; look at the target before you write "
            "again",
            path=staging.storage.url(path),
        ) from error


def _publish(staging: Staging, job_id: str, record: CommitRecord) -> None:
    storage, root = staging.storage, staging.root
    folders = sorted({_folder(final) for _, final in record.publish})
    made = [path for folder in folders for path in storage.make_folders(_join(root, folder))]
    for staged, final in record.publish:
        _move(staging, f"{staging.job_folder(job_id)}/{staged}", f"{root}/{final}")
    changed = {*(_join(root, folder) for folder in folders), *map(_parent, made)}
    storage.sync_folders(sorted(changed))

    for path in record.remove:
        storage.remove(f"{root}/{path}")
    for folder in sorted(record.remove_folders, key=lambda path: path.count("/"), reverse=True):
        storage.remove_folder(f"{root}/{folder}")
    _sync_what_is_left(staging, map(_folder, (*record.remove, *record.remove_folders)))

    manifest = f"{staging.job_folder(job_id)}/{MANIFEST_NAME}"
    _move(staging, manifest, f"{root}/{MANIFEST_NAME}")
    storage.sync_folders([root])


def _move(staging: Staging, source: str, target: str) -> None:
    """Rename a file, unless that was done before."""
    try:
        staging.storage.rename(source, target)
    except FileNotFoundError:
        if not staging.storage.exists(source) and staging.storage.exists(target):
            return
        raise CommitStateUnknownError(
            "a staged file of a decided commit is gone and was not published; write the data set "
            "again",
            path=staging.storage.url(source),
        ) from None


def _sync_what_is_left(staging: Staging, folders: Iterable[str]) -> None:
    paths = {_join(staging.root, folder) for folder in folders}
    staging.storage.sync_folders(sorted(filter(staging.storage.is_folder, paths)))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _join(root: str, folder: str) -> str:
    return f"{root}/{folder}" if folder else root
