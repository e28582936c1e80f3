"""A conversion's target that is one file, not a folder.

The file is written by the same task as any other, staged in a hidden folder beside the target, and
then published in one step: moved, or its upload to the target completed. So the target is never
seen half written, and no byte is copied. Without "overwrite" a local file is published by a hard
link, which never replaces one that appeared meanwhile. A killed process leaves only the hidden
folder and the upload, which the next conversion to the same target removes, or `tfrecord_io.clean`.

"overwrite" is for the user what writing into the file would be, as cp and pyarrow do: the target
of a link is replaced, not the link, and who may read and write it stays as it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrecord_io.commit.file_staging import (
    behind_link,
    hidden_folders,
    hidden_name,
    keep_permissions,
    note_path,
    remove_hidden,
)
from tfrecord_io.commit.job import check_commits, warn_of_inexact_columns
from tfrecord_io.commit.staging import Staging
from tfrecord_io.errors import DatasetExistsError, OptionError
from tfrecord_io.options import SaveMode
from tfrecord_io.plan import TaskCommit, WriteJob, WriteResult
from tfrecord_io.storage import Storage, open_storage
from tfrecord_io.storage.local import link
from tfrecord_io.writing.part_writer import WrittenFile, file_format


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """A target file.

    Attributes
    ----------
    storage : Storage
        Where it is to be.
    path : str
        Its path there.
    mode : {"error", "overwrite", "ignore"}
        What becomes of a file that is there.
    folder : str
        Path of the hidden folder.
    url : str
        How the caller would name the hidden folder.
    """

    storage: Storage
    path: str
    mode: SaveMode
    folder: str
    url: str

    def is_there(self) -> bool:
        """Return whether there is something, and the mode is to leave it.

        Raises
        ------
        DatasetExistsError
            There is, and the mode is "error".
        """
        if self.mode == "overwrite" or not self.storage.exists(self.path):
            return False
        if self.mode == "error":
            raise self._exists()
        return True

    def _exists(self) -> DatasetExistsError:
        return DatasetExistsError(
            'the target already exists; choose another path, or mode="overwrite"',
            path=self.storage.url(self.path),
        )

    def publish(self, job: WriteJob, commits: Sequence[TaskCommit]) -> WriteResult:
        """Move the file that a job's one task wrote into its place.

        Raises
        ------
        DatasetExistsError
            A file appeared meanwhile, and the mode is "error".
        """
        staging = Staging(self.storage, self.folder)
        check_commits(staging, job, commits)
        folder = staging.job_folder(job.job_id)
        files = [file for commit in commits for file in commit.files]
        written = files[0] if files else self._empty(job, folder)
        staged = written.staged
        if files and self.storage.stages_by == "rename":
            staged = f"{folder}/{staged}"
        if not self._move(staged):
            return WriteResult()
        self.storage.sync_folders([self.path.rpartition("/")[0] or "/"])
        warn_of_inexact_columns(commits)
        return WriteResult(files=1, rows=written.rows, bytes=written.bytes)

    def _empty(self, job: WriteJob, folder: str) -> WrittenFile:
        """Write a file without rows: a task without rows writes none."""
        note = note_path(self.folder, "empty")
        sink = self.storage.create_sink(f"{folder}/empty", self.path, note)
        return file_format(job).open(sink).close()

    def _move(self, staged: str) -> bool:
        local = self.storage.local_path(staged)
        try:
            if self.mode == "overwrite":
                if local is not None:
                    keep_permissions(self.path, local)
            elif local is not None:
                link(local, self.path)
                return True
            elif self.storage.exists(self.path):
                raise FileExistsError
        except FileExistsError:
            if self.mode == "ignore":
                return False
            raise self._exists() from None
        self.storage.publish(staged, self.path)
        return True

    def clean(self, job: WriteJob) -> None:
        """Remove a job and the hidden folder; what stays, the next write removes."""
        Staging(self.storage, self.folder).remove_job_quietly(job.job_id)
        with contextlib.suppress(OSError):
            remove_hidden(self.storage, self.folder)


def open_target(
    target: str | os.PathLike[str], mode: SaveMode, storage_options: dict[str, Any]
) -> FileTarget:
    """Begin a conversion to one file, and remove what dead ones left.

    Raises
    ------
    OptionError
        The mode is none for a single file, or what is there is none.
    """
    if mode not in ("error", "overwrite", "ignore"):
        raise OptionError(
            f"mode is {mode!r}, and the target is a single file, to which nothing can be added; "
            'end the target with "/" to write a folder'
        )
    storage, path = open_storage(target, storage_options)
    text = os.fspath(target)
    if mode == "overwrite":
        path = behind_link(storage, path)
        _refuse_device(storage, path)
    parent, _, name = path.rpartition("/")
    hidden = hidden_name(name)
    with contextlib.suppress(OSError):
        for left, is_dead in hidden_folders(storage, parent or "/", name):
            if is_dead:
                remove_hidden(storage, f"{parent}/{left}")
    is_local = storage.local_path(path) is not None
    url = f"{parent}/{hidden}" if is_local else text[: len(text) - len(name)] + hidden
    return FileTarget(storage=storage, path=path, mode=mode, folder=f"{parent}/{hidden}", url=url)


def _refuse_device(storage: Storage, path: str) -> None:
    local = storage.local_path(path)
    if local is not None and os.path.lexists(local) and not Path(local).is_file():
        raise OptionError(
            "the target is no regular file but a pipe, device or the like, which a file would "
            "replace; choose another path",
            path=storage.url(path),
        )
