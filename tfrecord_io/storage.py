"""URLs and paths to storages; the one module that imports fsspec.

`open_storage` turns a URL or path into a `Storage` and a path in it: a `LocalStorage` for this
machine, else a `FsspecStorage`, which reads from any fsspec file system and writes to
``memory://``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit, urlunsplit

from tfrecord_io.errors import MissingDependencyError, OptionError
from tfrecord_io.local_storage import LocalStorage as LocalStorage
from tfrecord_io.storage_protocol import FileInfo as FileInfo
from tfrecord_io.storage_protocol import Keep as Keep
from tfrecord_io.storage_protocol import Sink as Sink
from tfrecord_io.storage_protocol import Storage as Storage
from tfrecord_io.storage_protocol import Tree as Tree
from tfrecord_io.storage_protocol import check_version, limited

#: Hadoop's names of the same store.
_SYNONYMS = {"s3a": "s3", "s3n": "s3", "local": "file"}

#: A protocol has two letters or more, so that a drive letter is none.
_URL = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]+)(?:://|:(?=/))")

#: Where fsspec file systems say when or as what a file was written.
_VERSION_MARKS = (
    *("ETag", "etag", "version_id", "generation", "LastModified", "last_modified", "mtime"),
    *("modified", "modification_time", "created", "ino"),
)


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
            check_version(self.url(path), version, self.info(path).version)
        return cast("BinaryIO", self._filesystem.open(path, "rb"))

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        with self._filesystem.open(path, "rb") as file:
            return limited(file.read(limit + 1), limit, self.url(path))

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


def _fsspec_info(details: Mapping[str, Any]) -> FileInfo:
    size = int(details["size"] or 0)
    known = [_mark_text(details[mark]) for mark in _VERSION_MARKS if details.get(mark) is not None]
    return FileInfo(path=str(details["name"]), size=size, version="-".join([str(size), *known]))


def _mark_text(value: Any) -> str:
    # Some file systems tell times as datetime when asked for one file and as a number in listings.
    return str(value.timestamp() if isinstance(value, datetime) else value)
