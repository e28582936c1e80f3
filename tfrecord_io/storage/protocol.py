"""What a store must do: the seam between this package and files.

Invariants
----------
- Paths are plain strings with ``/``, absolute, without a slash at the end; only `open_storage`
  knows URLs.
- A `FileInfo.version` is another one whenever the file was replaced or written to.
- Symbolic links to files and folders are read through. When files are listed, a link that leads
  nowhere or round in circles is an error. Deleting and replacing take the link alone and never
  reach what it leads to.
- No repr and no error holds credentials: use `Storage.url` to name a path.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, cast

from tfrecord_io.errors import (
    CommitStateUnknownError,
    DatasetChangedError,
    LayoutError,
    LimitExceededError,
    OptionError,
)

Keep = Callable[[str], bool]

#: A file that is created exclusively is no longer: the commit record of a million files has about
#: 150 MB.
MAX_RECORD_BYTES = 512 * 1024 * 1024

#: How a file gets from its attempt to its place: it lies in the job's hidden folder and is renamed,
#: or it is an upload to its place that only the driver completes.
StagesBy: TypeAlias = Literal["rename", "upload"]


class FileInfo(NamedTuple):
    """A file as it was listed.

    Attributes
    ----------
    path : str
        Its path in the storage.
    size : int
        Its length in bytes.
    version : str
        A token that changes when the file is replaced or written to.
    modified : float or None
        When it was written last, in seconds since 1970; None where the store does not tell.
    """

    path: str
    size: int
    version: str
    modified: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Everything below a folder: paths relative to it, sorted.

    Links are files here, whatever they point to.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload that is neither completed nor aborted.

    Attributes
    ----------
    path : str
        The file it would make.
    upload_id : str
        The store's name of it.
    """

    path: str
    upload_id: str


class Sink(Protocol):
    """A new file that is being written, front to back.

    Attributes
    ----------
    size : int
        Bytes taken so far.
    buffered : int
        How many of them are still in memory.
    """

    size: int
    buffered: int

    def write(self, data: Any) -> None:
        """Take a bytes-like object, which must not change afterwards."""

    def spill(self) -> None:
        """Give buffered bytes to the store, where it can take them now."""

    def close(self) -> str:
        """Make the file complete and durable.

        Returns
        -------
        str
            What `Storage.publish` needs to put it into its place.
        """

    def discard(self) -> None:
        """Give the file up; on local disk its bytes stay until its folder is removed."""


class Storage(Protocol):
    """What reading and committing need from a store.

    The store's own errors (``FileNotFoundError``, ``PermissionError``, ...) pass untouched.
    """

    #: See `StagesBy`.
    stages_by: StagesBy

    #: Whether folders are there by themselves. Elsewhere they are the beginnings of names; those
    #: that are made get a marker, so only the hidden ones are.
    has_folders: bool

    #: Whether all that is read of an open file is of the version that it had when it was opened.
    checks_ranges: bool

    #: How many calls are worth making at the same time.
    concurrency: int

    #: How many files are worth closing at the same time: each waits until it is kept for good.
    close_concurrency: int

    def url(self, path: str) -> str:
        """Return how messages name `path`: without credentials."""

    def check_target(self, path: str) -> None:
        """Raise `OptionError` if nothing can be written to a path, whatever is there."""

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:
        """Return all files below a folder, sorted by path; of a file, the file itself.

        Parameters
        ----------
        path : str
            A folder or file.
        keep : callable, optional
            Asked for every name below `path`, of files and folders; a folder that is not kept is
            not entered.
        """

    def info(self, path: str) -> FileInfo:
        """Return the file's info; a folder raises ``IsADirectoryError``."""

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder at `path`."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder at `path`."""

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:
        """Open a file to read and seek in.

        Raises
        ------
        DatasetChangedError
            The file is gone, or no longer the one that had `version`.
        """

    def read_range(
        self, path: str, start: int, end: int, version: str | None = None
    ) -> bytes | memoryview:
        """Return the bytes from `start` up to `end`, or up to the end of the file.

        May be called by many threads at a time.

        Raises
        ------
        DatasetChangedError
            The file is gone, or no longer the one that had `version`.
        """

    def read_bytes(self, path: str, limit: int) -> bytes:
        """Return a file's bytes; more than `limit` of them raise `LimitExceededError`."""

    def local_path(self, path: str) -> str | None:
        """Return a path that the operating system knows, or None for a remote store."""

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:
        """Return what fits a pattern with ``*``, ``?``, ``[...]`` and ``**``.

        Returns
        -------
        dict
            From the paths, sorted, to the infos of files, and None for folders and for what
            `list_files` raises for.
        """

    def tree(self, path: str, skip: str | None = None) -> Tree:
        """Return everything below a folder, except its entry named `skip`."""

    def holds_more(self, path: str, skip: str) -> bool:
        """Return whether there is anything in a folder but its entry named `skip`.

        Unlike `tree` this need not go through all of it.
        """

    def folders(self, path: str, start: str) -> list[str]:
        """Return the names, sorted, of the folders in a folder that begin in some way.

        Links are none of them; of a missing folder there are none.
        """

    def age_seconds(self, path: str) -> float:
        """Return how long ago anything at or below `path` changed last."""

    def make_folder(self, path: str) -> None:
        """Make one folder; its parent must be there, it must not."""

    def make_folders(self, path: str) -> None:
        """Make a folder and its parents where missing."""

    def check_changeable(self, folders: Mapping[str, Collection[str]]) -> None:
        """Raise ``PermissionError`` if it can be known that folders may not be changed.

        Parameters
        ----------
        folders : mapping of str to collection of str
            Folders that are there, and of each the names in it that are to be replaced or removed.
        """

    def create_sink(self, path: str, final: str, note: str | None = None) -> Sink:
        """Return a sink for a new file.

        Parameters
        ----------
        path : str
            Where the file is staged, in a folder that is there. The same as `final` for a file that
            belongs to no job.
        final : str
            Where it is going to be published; until then, a store that renames looks at no more
            than whether it takes so long a path.
        note : str, optional
            Where a store of uploads says which upload it began, before it sends a part: for a file
            whose name does not tell that the upload is ours.
        """

    def write_bytes(self, path: str, data: bytes) -> None:
        """Make or replace a small file, whole and durable, in a folder that is there."""

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:
        """Create a durable file with this content at once; return False if there is one already.

        A store whose answer got lost is asked what it holds: the content must be the caller's own.

        Parameters
        ----------
        path : str
            The new file, in a folder that is there.
        data : bytes
            Its content, no more than `MAX_RECORD_BYTES`.
        scratch : str
            A folder in which an interrupted call may leave an unfinished file; it must be there.
        """

    def rename(self, source: str, target: str) -> None:
        """Move a small file within the store, replacing a file at `target`.

        Atomic in stores that stage by renaming. Others copy, and may be left with both.
        """

    def publish(self, staged: str, final: str) -> None:
        """Put a closed sink's file into its place; once more is fine.

        Parameters
        ----------
        staged : str
            What `Sink.close` returned.
        final : str
            Its place, in a folder that is there; a file there is replaced atomically.

        Raises
        ------
        CommitStateUnknownError
            What was staged is gone, and was not published.
        """

    def uploads(self, path: str) -> list[Upload]:
        """Return the open uploads of files below a folder; stores that rename have none."""

    def upload_id(self, staged: str) -> str:
        """Return the name of the upload that a closed sink told of, in a store of uploads."""

    def abort_uploads(self, uploads: Iterable[Upload]) -> None:
        """End uploads; those that have ended are fine."""

    def remove(self, path: str) -> None:
        """Remove a file or link; a missing one is fine."""

    def release(self, path: str, scratch: str) -> None:
        """Remove a file that `create_exclusive` made, and none that others make in its place.

        A client that gets no answer may try again by itself, when the name is another's already.

        Parameters
        ----------
        path : str
            The file. If it is not there any more, that is fine.
        scratch : str
            A folder of the caller alone, into which the file may be moved; it is made if need be.
        """

    def remove_files(self, paths: Iterable[str]) -> None:
        """Remove many files or links; missing ones are fine."""

    def remove_folder(self, path: str) -> bool:
        """Remove a folder if it is empty; return whether it is gone."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, never following links; a missing one is fine."""

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Make creations, renames and removals in these folders durable."""


#: Errors that clients raise without a number.
_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
}


def error_number(error: OSError) -> int:
    """Return the system's number for what a store's client raised."""
    kinds = (number for kind, number in _NUMBERS.items() if isinstance(error, kind))
    return error.errno or next(kinds, errno.EIO)


def check_names(url: str, path: str) -> None:
    """Raise `OptionError` if a target is a root or has names that mean others.

    Parameters
    ----------
    url : str
        How messages name it.
    path : str
        Its path, without a slash at the beginning.
    """
    if not path:
        raise OptionError(
            f"{url} is the root of a file system, and cannot be written to as a whole; name a "
            "folder in it"
        )
    if not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise OptionError(
            f"{url} has an empty name, '.' or '..' between its slashes, which stores refuse or "
            "take for something else; leave it out"
        )


def check_length(url: str, length: int, most: int) -> None:
    """Raise `LayoutError` if the path of a file that is to be staged is longer than stores take."""
    if length > most:
        raise LayoutError(
            f"the path of a part file would have a length of {length}, and here no more than "
            f"{most} is possible; partition by fewer columns or shorter values, or choose a "
            "shorter path",
            path=url,
        )


def not_found(url: str) -> FileNotFoundError:
    """Return the error of a file or folder that is not there."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)


def is_a_folder(url: str) -> IsADirectoryError:
    """Return the error of a folder where a file is asked for."""
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), url)


def may_not_change(url: str) -> PermissionError:
    """Return the error of a commit that must change a folder, or what is in it, and may not."""
    return PermissionError(
        errno.EACCES,
        "the commit would have to change this, and may not; nothing was changed: get the right to "
        "write there, or write elsewhere",
        url,
    )


def check_version(url: str, expected: str | None, found: str) -> None:
    """Raise `DatasetChangedError` unless a file is the one that was listed, if one was."""
    if expected not in (None, found):
        raise DatasetChangedError(
            "the file was replaced since it was listed; read the data set again", path=url
        )


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Have errors name the file; Python names one only where it is opened."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


@contextlib.contextmanager
def as_listed(url: str, version: str | None) -> Iterator[None]:
    """Raise `DatasetChangedError` where a file that was listed with a version is gone."""
    try:
        yield
    except FileNotFoundError:
        if version is None:
            raise
        raise DatasetChangedError(
            "the file was removed since it was listed; read the data set again", path=url
        ) from None


def limited(data: bytes, limit: int, path: str) -> bytes:
    """Return `data`, or raise `LimitExceededError` if it is longer than `limit`."""
    if len(data) > limit:
        raise LimitExceededError(f"the file is longer than {limit} bytes", path=path)
    return data


def publish_by_rename(storage: Storage, staged: str, final: str) -> None:
    """Carry out `Storage.publish` in a store that stages by renaming."""
    try:
        storage.rename(staged, final)
    except FileNotFoundError:
        if not storage.exists(staged) and storage.exists(final):
            return
        raise staged_file_is_gone(storage.url(staged)) from None


class StagesByRename:
    """What stores that stage by renaming have in common, see `Storage`."""

    stages_by: StagesBy = "rename"
    has_folders = True

    def publish(self, staged: str, final: str) -> None:  # noqa: D102
        publish_by_rename(cast("Storage", self), staged, final)

    def uploads(self, path: str) -> list[Upload]:  # noqa: D102
        return []

    def upload_id(self, staged: str) -> str:  # noqa: D102
        raise NotImplementedError

    def abort_uploads(self, uploads: Iterable[Upload]) -> None:  # noqa: D102
        return


def staged_file_is_gone(url: str) -> CommitStateUnknownError:
    """Return the error of a decided commit that cannot be carried out."""
    return CommitStateUnknownError(
        "a staged file of a decided commit is gone and was not published; write the data set again",
        path=url,
    )
