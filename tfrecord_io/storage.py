"""Files and folders behind one seam; the one module that imports fsspec.

`open_storage` turns a URL or path into a `Storage` and a path in it. `LocalStorage` works with
calls of the operating system, because a commit needs what fsspec does not offer: exclusive creation
with whole content, atomic renames, and fsync of files and folders. `FsspecStorage` reads from any
fsspec file system, and writes to ``memory://``.

Invariants
----------
- Paths are plain strings with ``/``, absolute, without a slash at the end; only this module knows
  their protocol.
- A `FileInfo.version` is another one whenever the file was replaced or written to.
- Symbolic links to files are read through; links to folders are not followed, and deleting removes
  the link alone.
- No repr and no error holds credentials: use `Storage.url` to name a path.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

from tfrecord_io.errors import (
    DatasetChangedError,
    LimitExceededError,
    MissingDependencyError,
    OptionError,
)

#: Hadoop's names of the same store.
_SYNONYMS = {"s3a": "s3", "s3n": "s3", "local": "file"}

#: A protocol has two letters or more, so that a drive letter is none.
_URL = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]+)(?:://|:(?=/))")

#: A local sink writes to its file when it holds this many bytes.
_SPILL_BYTES = 4 * 1024 * 1024

#: Tries to remove a folder into which a task that was not told yet still writes.
_REMOVE_TRIES = 20
_REMOVE_PAUSE_SECONDS = 0.05

#: Where fsspec file systems say when or as what a file was written.
_VERSION_MARKS = (
    *("ETag", "etag", "version_id", "generation", "LastModified", "last_modified", "mtime"),
    *("modified", "modification_time", "created", "ino"),
)

Keep = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file as it was listed.

    Attributes
    ----------
    path : str
        Its path in the storage.
    size : int
        Its length in bytes.
    version : str
        A token that changes when the file is replaced or written to.
    """

    path: str
    size: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Everything below a folder: paths relative to it, sorted.

    Links are files here, whatever they point to.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]


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

    def close(self) -> None:
        """Make the file complete and durable."""


class Storage(Protocol):
    """What reading and committing need from a store.

    The store's own errors (``FileNotFoundError``, ``PermissionError``, ...) pass untouched.
    """

    #: Whether `create_sink` and the other methods that change something work.
    writable: bool

    def url(self, path: str) -> str:
        """Return how messages name `path`: without credentials."""

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
            The file is no longer the one that had `version`.
        """

    def read_bytes(self, path: str, limit: int) -> bytes:
        """Return a file's bytes; more than `limit` of them raise `LimitExceededError`."""

    def local_path(self, path: str) -> str | None:
        """Return a path that the operating system knows, or None for a remote store."""

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that fit a pattern with ``*``, ``?``, ``[...]`` and ``**``, sorted."""

    def tree(self, path: str, skip: str | None = None) -> Tree:
        """Return everything below a folder, except its entry named `skip`."""

    def age_seconds(self, path: str) -> float:
        """Return how long ago the file or folder was changed last."""

    def make_folder(self, path: str) -> None:
        """Make one folder; its parent must be there, it must not."""

    def make_folders(self, path: str) -> list[str]:
        """Make a folder and its parents where missing; return those made, outermost first."""

    def create_sink(self, path: str) -> Sink:
        """Return a sink for a new file in a folder that is there."""

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:
        """Create a durable file with this content at once; return False if there is one already.

        Parameters
        ----------
        path : str
            The new file, in a folder that is there.
        data : bytes
            Its content.
        scratch : str
            A folder in which an interrupted call may leave an unfinished file; it must be there.
        """

    def rename(self, source: str, target: str) -> None:
        """Move a file within the store, replacing a file at `target` atomically."""

    def remove(self, path: str) -> None:
        """Remove a file or link; a missing one is fine."""

    def remove_folder(self, path: str) -> bool:
        """Remove a folder if it is empty; return whether it is gone."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, never following links; a missing one is fine."""

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Make creations, renames and removals in these folders durable."""


def open_storage(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[Storage, str]:
    """Return the storage of a URL and the path in it.

    Parameters
    ----------
    url : str or path-like
        A bare path (``~`` is expanded), ``file://``, or any URL that fsspec knows. ``s3a`` and
        ``s3n`` mean ``s3``.
    storage_options : mapping, optional
        Passed to the fsspec file system; local paths take none.

    Raises
    ------
    OptionError
        An empty path, a NUL in it, an unknown protocol, or options that the file system refuses.
    MissingDependencyError
        The protocol's package is not installed.

    Examples
    --------
    >>> open_storage("/data/events/")[1]
    '/data/events'
    """
    text = os.fspath(url)
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError(f"{text!r} is not a path or URL")
    match = _URL.match(text)
    protocol = match["protocol"].lower() if match else "file"
    protocol = _SYNONYMS.get(protocol, protocol)
    if protocol == "file" and "::" not in text:
        if match:
            rest = text[match.end() :]
            if rest.startswith("localhost/"):
                rest = rest.removeprefix("localhost")
            text = rest
        return LocalStorage(), str(Path(os.path.abspath(Path(text).expanduser())))  # noqa: PTH100
    if match:
        text = f"{protocol}://{text[match.end() :]}"
    return _open_fsspec(text, protocol, dict(storage_options or {}))


def _open_fsspec(url: str, protocol: str, options: dict[str, Any]) -> tuple[FsspecStorage, str]:
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        extra = f"tfrecord-io[{protocol}]" if protocol in ("s3", "hdfs") else "its fsspec package"
        raise MissingDependencyError(
            f"{protocol}:// needs a package that is not installed; install {extra}"
        ) from error
    except (ValueError, TypeError) as error:
        raise OptionError(f"{redact(url)} cannot be opened: {type(error).__name__}") from error
    return FsspecStorage(filesystem, protocol), str(path).rstrip("/") or "/"


def redact(url: str) -> str:
    """Return a URL without user, password, query and fragment.

    Examples
    --------
    >>> redact("https://me:secret@host/a?token=x")
    'https://host/a'
    """
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class LocalStorage:
    """Folders of this machine."""

    writable = True

    def __repr__(self) -> str:
        return "LocalStorage()"

    def url(self, path: str) -> str:  # noqa: D102 - the protocol has the docstrings
        return path

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        if not self.is_folder(path):
            return [self.info(path)]
        found: list[FileInfo] = []
        pending = [path]
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if keep is not None and not keep(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file():
                        found.append(_file_info(entry.path, entry.stat()))
        return sorted(found, key=lambda info: info.path)

    def info(self, path: str) -> FileInfo:  # noqa: D102
        status = os.stat(path)  # noqa: PTH116
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return _file_info(path, status)

    def is_folder(self, path: str) -> bool:  # noqa: D102
        return Path(path).is_dir()

    def exists(self, path: str) -> bool:  # noqa: D102
        return os.path.lexists(path)

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the caller closes it
        try:
            if version is not None:
                _check_version(path, version, _file_info(path, os.fstat(file.fileno())).version)
        except BaseException:
            file.close()
            raise
        return cast("BinaryIO", file)

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        with Path(path).open("rb") as file:
            return _limited(file.read(limit + 1), limit, path)

    def local_path(self, path: str) -> str | None:  # noqa: D102
        return path

    def glob(self, pattern: str) -> list[str]:  # noqa: D102
        return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207

    def tree(self, path: str, skip: str | None = None) -> Tree:  # noqa: D102
        files: list[str] = []
        folders: list[str] = []
        pending = [""]
        while pending:
            prefix = pending.pop()
            with os.scandir(f"{path}/{prefix}") as entries:
                for entry in entries:
                    if not prefix and entry.name == skip:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(prefix + entry.name)
                        pending.append(f"{prefix}{entry.name}/")
                    else:
                        files.append(prefix + entry.name)
        return Tree(files=tuple(sorted(files)), folders=tuple(sorted(folders)))

    def age_seconds(self, path: str) -> float:  # noqa: D102
        return time.time() - os.lstat(path).st_mtime

    def make_folder(self, path: str) -> None:  # noqa: D102
        Path(path).mkdir()

    def make_folders(self, path: str) -> list[str]:  # noqa: D102
        missing: list[str] = []
        while not Path(path).is_dir():
            missing.append(path)
            path = os.path.dirname(path)  # noqa: PTH120
        made = []
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                Path(folder).mkdir()
                made.append(folder)
        return made

    def create_sink(self, path: str) -> Sink:  # noqa: D102
        return _LocalSink(path)

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:  # noqa: D102
        temporary = f"{scratch}/{uuid.uuid4().hex}.new"
        try:
            with Path(temporary).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        finally:
            Path(temporary).unlink(missing_ok=True)
        self.sync_folders([os.path.dirname(path)])  # noqa: PTH120
        return True

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        Path(source).replace(target)

    def remove(self, path: str) -> None:  # noqa: D102
        Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            # POSIX allows either for a folder that is not empty.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                return False
            raise
        return True

    def remove_tree(self, path: str) -> None:  # noqa: D102
        for _ in range(_REMOVE_TRIES):
            if _removed_tree(path):
                return
            time.sleep(_REMOVE_PAUSE_SECONDS)
        shutil.rmtree(path)

    def sync_folders(self, paths: Iterable[str]) -> None:  # noqa: D102
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class _LocalSink:
    """Appends to a file that is open only while bytes go out: a task may have thousands."""

    __slots__ = ("_chunks", "_path", "buffered", "size")

    def __init__(self, path: str) -> None:
        self._path = path
        self._chunks: list[Any] = []
        self.size = 0
        self.buffered = 0

    def write(self, data: Any) -> None:
        length = memoryview(data).nbytes
        self._chunks.append(data)
        self.size += length
        self.buffered += length
        if self.buffered >= _SPILL_BYTES:
            self.spill()

    def spill(self) -> None:
        self._write_out(sync=False)

    def close(self) -> None:
        self._write_out(sync=True)

    def _write_out(self, *, sync: bool) -> None:
        with Path(self._path).open("ab") as file:
            for chunk in self._chunks:
                file.write(chunk)
            self._chunks.clear()
            self.buffered = 0
            if sync:
                file.flush()
                os.fsync(file.fileno())


class FsspecStorage:
    """Any fsspec file system to read from; ``memory`` to write to as well."""

    def __init__(self, filesystem: Any, protocol: str) -> None:
        self._filesystem = filesystem
        self._protocol = protocol
        self.writable = protocol == "memory"

    def __repr__(self) -> str:
        return f"FsspecStorage({self._protocol!r})"

    def url(self, path: str) -> str:  # noqa: D102
        return redact(str(self._filesystem.unstrip_protocol(path)))

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        self._filesystem.invalidate_cache()
        found = self._filesystem.find(path, detail=True)
        if not found and not self._filesystem.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url(path))
        infos = []
        for name, details in found.items():
            below = name.removeprefix(path).strip("/")
            if keep is None or not below or all(map(keep, below.split("/"))):
                infos.append(_fsspec_info(details))
        return sorted(infos, key=lambda info: info.path)

    def info(self, path: str) -> FileInfo:  # noqa: D102
        details = self._filesystem.info(path)
        if details["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.url(path))
        return _fsspec_info(details)

    def is_folder(self, path: str) -> bool:  # noqa: D102
        return bool(self._filesystem.isdir(path))

    def exists(self, path: str) -> bool:  # noqa: D102
        return bool(self._filesystem.exists(path))

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        if version is not None:
            self._filesystem.invalidate_cache()
            _check_version(self.url(path), version, self.info(path).version)
        return cast("BinaryIO", self._filesystem.open(path, "rb"))

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        with self._filesystem.open(path, "rb") as file:
            return _limited(file.read(limit + 1), limit, self.url(path))

    def local_path(self, path: str) -> str | None:  # noqa: D102
        return None

    def glob(self, pattern: str) -> list[str]:  # noqa: D102
        return sorted(self._filesystem.glob(pattern))

    def tree(self, path: str, skip: str | None = None) -> Tree:  # noqa: D102
        files: list[str] = []
        folders: list[str] = []
        for name, details in self._filesystem.find(path, withdirs=True, detail=True).items():
            below = name.removeprefix(path).strip("/")
            if below and below.partition("/")[0] != skip:
                (folders if details["type"] == "directory" else files).append(below)
        return Tree(files=tuple(sorted(files)), folders=tuple(sorted(folders)))

    def age_seconds(self, path: str) -> float:  # noqa: D102
        return time.time() - float(self._filesystem.modified(path).timestamp())

    def make_folder(self, path: str) -> None:  # noqa: D102
        if not self.is_folder(path.rpartition("/")[0] or "/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url(path))
        self._filesystem.mkdir(path, create_parents=False)

    def make_folders(self, path: str) -> list[str]:  # noqa: D102
        missing = []
        while path.strip("/") and not self.is_folder(path):
            missing.append(path)
            path = path.rpartition("/")[0]
        for folder in reversed(missing):
            self._filesystem.mkdir(folder, create_parents=False)
        return missing[::-1]

    def create_sink(self, path: str) -> Sink:  # noqa: D102
        return _FsspecSink(self._filesystem, path)

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:  # noqa: D102
        for folder in (path.rpartition("/")[0], scratch):
            if not self.is_folder(folder):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url(folder))
        try:
            self._filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        self._filesystem.mv(source, target)

    def remove(self, path: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(path)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        try:
            self._filesystem.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                return False
            raise
        return True

    def remove_tree(self, path: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rm(path, recursive=True)

    def sync_folders(self, paths: Iterable[str]) -> None:  # noqa: D102
        return


class _FsspecSink:
    """Holds the file's bytes and gives them to the store at the end, all at once."""

    __slots__ = ("_chunks", "_filesystem", "_path", "buffered", "size")

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._chunks: list[bytes] = []
        self.size = 0
        self.buffered = 0

    def write(self, data: Any) -> None:
        self._chunks.append(bytes(data))
        self.size += len(self._chunks[-1])
        self.buffered = self.size

    def spill(self) -> None:
        return

    def close(self) -> None:
        self._filesystem.pipe_file(self._path, b"".join(self._chunks))
        self._chunks.clear()
        self.buffered = 0


def _removed_tree(path: str) -> bool:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return not os.path.lexists(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _file_info(path: str, status: os.stat_result) -> FileInfo:
    version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return FileInfo(path=path, size=status.st_size, version=version)


def _fsspec_info(details: Mapping[str, Any]) -> FileInfo:
    size = int(details["size"] or 0)
    known = [_mark_text(details[mark]) for mark in _VERSION_MARKS if details.get(mark) is not None]
    return FileInfo(path=str(details["name"]), size=size, version="-".join([str(size), *known]))


def _mark_text(value: Any) -> str:
    # Some file systems tell times as datetime when asked for one file and as a number in listings.
    return str(value.timestamp() if isinstance(value, datetime) else value)


def _check_version(path: str, expected: str, found: str) -> None:
    if found != expected:
        raise DatasetChangedError(
            "the file was replaced since it was listed; read the data set again", path=path
        )


def _limited(data: bytes, limit: int, path: str) -> bytes:
    if len(data) > limit:
        raise LimitExceededError(f"the file is longer than {limit} bytes", path=path)
    return data
