"""The commit record, what is made ready for it, and carrying it out.

A record says everything that publishing does: which staged files become which data files, which old
files go, and that the new manifest comes last. Carrying it out may stop anywhere and start again,
in this process or another, and always ends in the same tree.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tfrecord_io.commit.replaced import Replaced
from tfrecord_io.commit.staging import STAGING_NAME, Staging, is_link
from tfrecord_io.errors import (
    CommitStateUnknownError,
    LayoutError,
    LimitExceededError,
    ManifestError,
)
from tfrecord_io.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest, read_manifest
from tfrecord_io.parallel import each
from tfrecord_io.storage.protocol import MAX_RECORD_BYTES, Storage, publish_by_rename


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """What a commit does to the data set. All paths are relative.

    Attributes
    ----------
    publish : tuple of (str, str)
        What names a staged file (see `tfrecord_io.plan.StagedFile`), its path in the data set.
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
    def loads(data: bytes, *, staged_paths: bool) -> CommitRecord:
        """Return the record that `dumps` wrote.

        Parameters
        ----------
        data : bytes
            The text.
        staged_paths : bool
            Whether what names staged files are paths in the job's folder.

        Raises
        ------
        ValueError
            It is no such text, or a path in it would leave the data set.
        """
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")  # noqa: TRY004 - one error for any bad text
        check = inside if staged_paths else str
        publish = tuple((check(staged), inside(final)) for staged, final in value["publish"])
        return CommitRecord(
            publish=publish,
            remove=tuple(map(inside, value["remove"])),
            remove_folders=tuple(map(inside, value["remove_folders"])),
        )


def inside(path: Any) -> str:
    """Return a relative path; raise ``ValueError`` if it may leave its folder, or is not plain."""
    names = path.split("/") if isinstance(path, str) else [""]
    if names[0] == STAGING_NAME or {"", ".", ".."} & {*names}:
        raise ValueError(f"{path!r} is not a path inside the data set")
    if "\0" in path:
        raise ValueError(f"{path!r} is not a path")
    # Names that no system has end here as well.
    os.fsencode(path)
    return str(path)


def make_ready(staging: Staging, job_id: str, record: CommitRecord, manifest: Manifest) -> None:
    """Stage the manifest, and make the folders that a record needs.

    What fails here, for want of room or rights or over a limit of the store, fails before the
    commit is decided.

    Raises
    ------
    LimitExceededError
        Nobody would read so long a manifest.
    LayoutError
        The store takes a folder for another one.
    """
    storage, folder = staging.storage, staging.job_folder(job_id)
    data = manifest.dumps()
    if len(data) > MAX_MANIFEST_BYTES:
        raise LimitExceededError(
            f"the manifest would have {len(data)} bytes, and readers take {MAX_MANIFEST_BYTES} at "
            f"most; write fewer files than {len(manifest.files)}, or have 'tfrecord-io clean "
            "--forget-missing' take out those that are gone",
            path=storage.url(staging.root),
        )
    storage.write_bytes(f"{folder}/{MANIFEST_NAME}", data)
    # What takes the folders back finds them in it.
    storage.sync_folders([folder])
    _make_folders(staging, record)
    _check_names(staging, record)


def take_back(staging: Staging, job_id: str) -> None:
    """Remove the folders that `make_ready` made for a job that was not decided.

    They are among those of the manifest's files, and empty.
    """
    storage = staging.storage
    if not storage.has_folders:
        return
    try:
        manifest = read_manifest(storage, staging.job_folder(job_id))
    except ManifestError:
        manifest = None
    if manifest is None:
        # Without a whole one no folder was made.
        return
    places = {_folder(file.path) for file in manifest.files}
    folders = {path for place in places for path in _lineage(staging.root, place)} - {staging.root}
    links = tuple(f"{path}/" for path in folders if is_link(storage, path))
    for path in sorted(folders, key=len, reverse=True):
        if path.startswith(links):
            # Behind a link nothing was made.
            continue
        # What may not be removed was not made either.
        with contextlib.suppress(PermissionError):
            storage.remove_folder(path)


def carry_out(staging: Staging, job_id: str, replaced: Replaced) -> None:
    """Do what a commit record says, perhaps once more; without one take back what it prepared.

    Only for the process whose turn it is, or that holds the last claim, and only during the turn.

    Parameters
    ----------
    staging : Staging
        Of the data set.
    job_id : str
        The job whose record it is.
    replaced : Replaced
        Holds local files that are replaced.

    Raises
    ------
    CommitStateUnknownError
        The record cannot be understood, or a staged file is gone that was not published.
    LayoutError
        A path in the record leads through a link, as none does when a commit is decided.
    """
    record = _read_record(staging, job_id)
    if record is None:
        take_back(staging, job_id)
    else:
        _publish(staging, job_id, record, replaced)


def completed_uploads(staging: Staging, job_id: str) -> set[str]:
    """Return the names of the uploads that `carry_out` completes."""
    if staging.storage.stages_by == "rename":
        return set()
    record = _read_record(staging, job_id)
    if record is None:
        return set()
    return {staging.storage.upload_id(staged) for staged, _ in record.publish}


def _read_record(staging: Staging, job_id: str) -> CommitRecord | None:
    """Return what a job decided; None if it did not."""
    path = staging.record_path(job_id)
    try:
        data = staging.storage.read_bytes(path, MAX_RECORD_BYTES)
        return CommitRecord.loads(data, staged_paths=staging.storage.stages_by == "rename")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommitStateUnknownError(
            f"the commit record cannot be understood: {error}; look at the target before you write "
            "again",
            path=staging.storage.url(path),
        ) from error


def _publish(staging: Staging, job_id: str, record: CommitRecord, replaced: Replaced) -> None:
    storage, root = staging.storage, staging.root
    _check_links(storage, root, (final for _, final in record.publish))
    _check_links(storage, root, (*record.remove, *record.remove_folders))
    if storage.stages_by == "rename":
        _check_links(storage, staging.job_folder(job_id), (staged for staged, _ in record.publish))
    folders = {_folder(final) for _, final in record.publish}

    def publish(pair: tuple[str, str]) -> None:
        staged, final = pair
        if storage.stages_by == "rename":
            staged = f"{staging.job_folder(job_id)}/{staged}"
        replaced.hold(storage.local_path(f"{root}/{final}"))
        storage.publish(staged, f"{root}/{final}")

    # Those that were made before the decision may have got lost with the system's cache.
    _make_folders(staging, record)
    each(publish, record.publish, storage.concurrency)
    storage.sync_folders(sorted({path for folder in folders for path in _lineage(root, folder)}))

    storage.remove_files(f"{root}/{path}" for path in record.remove)
    _remove_folders(staging, record)
    _sync_what_is_left(staging, map(_folder, (*record.remove, *record.remove_folders)))

    manifest = f"{staging.job_folder(job_id)}/{MANIFEST_NAME}"
    publish_by_rename(storage, manifest, f"{root}/{MANIFEST_NAME}")
    storage.sync_folders([root])


def _check_links(storage: Storage, root: str, paths: Iterable[str]) -> None:
    """Raise `LayoutError` if a link stands on the way to a path: what it leads to is not ours."""
    folders = {folder for place in {*map(_folder, paths)} for folder in _lineage(root, place)}
    for folder in sorted(folders - {root}):
        if is_link(storage, folder):
            raise LayoutError(
                "a commit that is to be finished would go through this link, and what it leads to "
                "is not the data set's; remove the link",
                path=storage.url(folder),
            )


def _make_folders(staging: Staging, record: CommitRecord) -> None:
    """Make the folders into which files are published."""
    storage = staging.storage
    if storage.has_folders:
        places = sorted({_join(staging.root, _folder(final)) for _, final in record.publish})
        each(storage.make_folders, places, storage.concurrency)


def _check_names(staging: Staging, record: CommitRecord) -> None:
    """Raise `LayoutError` if a folder is there by another name than it was made by."""
    storage, root = staging.storage, staging.root
    if not storage.has_folders:
        return
    asked: dict[str, set[str]] = {}
    for place in {_folder(final) for _, final in record.publish}:
        for folder in _lineage(root, place):
            if folder != root:
                asked.setdefault(_folder(folder), set()).add(folder.rpartition("/")[2])

    def check(parent: str) -> None:
        there = storage.folders(parent, "")
        for name in sorted(asked[parent].difference(there)):
            twin = next((one for one in there if _folded(one) == _folded(name)), None)
            raise LayoutError(
                "its file system does not keep the name of this folder"
                + (f", and takes it for {twin!r}" if twin else "")
                + ", so its rows would be read with other values; write to a file system that "
                "tells all names apart, or change the values of the partition columns",
                path=storage.url(f"{parent}/{name}"),
            )

    each(check, sorted(asked), storage.concurrency)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _remove_folders(staging: Staging, record: CommitRecord) -> None:
    """Remove the folders that are left empty, those within others first."""

    def depth(path: str) -> int:
        return path.count("/")

    def remove(path: str) -> None:
        staging.storage.remove_folder(_join(staging.root, path))

    deepest_first = sorted(record.remove_folders, key=depth, reverse=True)
    for _, folders in itertools.groupby(deepest_first, depth):
        each(remove, folders, staging.storage.concurrency)


def _lineage(root: str, folder: str) -> Iterator[str]:
    """Give a folder of the data set and all above it, up to the data set's own."""
    while folder:
        yield f"{root}/{folder}"
        folder = _folder(folder)
    yield root


def _sync_what_is_left(staging: Staging, folders: Iterable[str]) -> None:
    for path in sorted({_join(staging.root, folder) for folder in folders}):
        with contextlib.suppress(FileNotFoundError):
            staging.storage.sync_folders([path])


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _join(root: str, folder: str) -> str:
    return f"{root}/{folder}" if folder else root
