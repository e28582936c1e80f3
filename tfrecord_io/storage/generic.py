"""Any other file system that fsspec knows: files are staged in the hidden folder and moved.

What a move is, and whether creating a file is exclusive, is the file system's: of ``memory://``
both are good within the process. Several jobs that write to one data set of another store at a time
are only as safe as its ``pipe_file(mode="create")``.
"""

from __future__ import annotations

import contextlib
import errno
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, BinaryIO

from tfrecord_io.errors import OptionError
from tfrecord_io.parallel import each
from tfrecord_io.storage.protocol import (
    MAX_RECORD_BYTES,
    FileInfo,
    Keep,
    Sink,
    StagesByRename,
    Tree,
    as_listed,
    check_names,
    check_version,
    is_a_folder,
    limited,
    not_found,
)
from tfrecord_io.storage.range_file import open_by_ranges
from tfrecord_io.storage.redaction import redact
from tfrecord_io.storage.remote_sink import PART_BYTES, Piece, RemoteSink, Spool

#: Of servers that give no parts of files, files may be as large.
_WHOLE_BYTES = 64 * 1024 * 1024

#: File systems that can only be read; of FTP's servers some move no file over another one.
_READ_ONLY = {
    *("http", "https", "ftp", "data", "github", "git"),
    *("zip", "tar", "libarchive", "reference"),
}

#: File systems before others, which keep what is read; of what is written they know too little.
CACHES = {"simplecache", "filecache", "blockcache", "cached"}

#: Those that are asked by one thread at a time. One has one connection. The others note what they
#: keep, and notes that one thread has not saved yet get lost when another reads them again, and so
#: does the file that was being opened.
_ONE_BY_ONE = {"ftp", *CACHES} - {"simplecache"}
_one_by_one = threading.RLock()

#: Those that are a web server's, or may be.
_OF_WEB = {"http", "https", *CACHES}

#: Of what servers have against requests, what they may not have against the next one.
_MAY_CHANGE = {408, 425, 429}

#: What makes a path a pattern to ``mv`` and ``rm`` of fsspec, which then find other files as well.
_PATTERN = re.compile(r"[*?[]")

#: Where fsspec file systems say when or as what a file was written.
_VERSION_MARKS = (
    *("ETag", "etag", "version_id", "generation", "LastModified", "last_modified", "mtime"),
    *("modified", "modification_time", "created", "ino"),
)

#: Where they say it as a datetime or in seconds since 1970.
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")


class FsspecStorage(StagesByRename):
    """An fsspec file system.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        Makes the calls.
    protocol : str
        Its name in URLs.
    begin : str
        What is put before the paths that it tells: "/" where it leaves it out.
    """

    checks_ranges = False
    concurrency = close_concurrency = 8

    def __init__(self, filesystem: Any, protocol: str, begin: str = "") -> None:
        if protocol in _ONE_BY_ONE:
            filesystem = Calls(filesystem, lambda _: _one_by_one)
        self._filesystem = filesystem
        self._protocol = protocol
        self._begin = begin
        self._spool = Spool()

    def __repr__(self) -> str:
        return f"FsspecStorage({self._protocol!r})"

    def url(self, path: str) -> str:  # noqa: D102
        return redact(str(self._filesystem.unstrip_protocol(path.removeprefix(self._begin))))

    def check_target(self, path: str) -> None:  # noqa: D102
        url = self.url(path)
        if self._protocol in CACHES:
            raise OptionError(
                f"{url} cannot be written to through {self._protocol}::, which is for reading; "
                f"write to the URL without {self._protocol}::"
            )
        if self._protocol in _READ_ONLY:
            raise OptionError(
                f"writing to {url} is not possible; write to a local folder and copy it"
            )
        check_names(url, path.removeprefix("/"))

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        self._filesystem.invalidate_cache()
        with _answers(self.url(path)):
            found = self._find(path)
        if not found and not self._filesystem.exists(path):
            raise not_found(self.url(path))
        infos = []
        for name, details in found.items():
            if is_folder_entry(name, details):
                continue
            below = name.removeprefix(path).strip("/")
            if keep is None or not below or all(map(keep, below.split("/"))):
                infos.append(self._told(name, details))
        return sorted(infos, key=lambda info: info.path)

    def _find(self, path: str) -> dict[str, dict[str, Any]]:
        found = self._filesystem.find(path, detail=True)
        # Of a file, adlfs tells the name alone, and WebHDFS one with a slash.
        if not isinstance(found, dict) or [*found] == [f"{path}/"]:
            details = self._filesystem.info(path)
            return {path: details} if details["type"] == "file" else found
        return found

    def info(self, path: str) -> FileInfo:  # noqa: D102
        try:
            details = self._filesystem.info(path)
        except FileNotFoundError as error:
            raise _not_there(error, self.url(path)) from None
        if details["type"] == "directory":
            raise is_a_folder(self.url(path))
        if details.get("size") is None:
            if details.get("mimetype") == "text/html":
                # Such a page, made when it is asked for.
                raise not_found(self.url(path))
            raise OSError(
                errno.EIO,
                "the server does not tell the file's size: fetch it, and read the copy",
                self.url(path),
            )
        return self._told(path, details)

    def _told(self, path: str, details: Mapping[str, Any]) -> FileInfo:
        """Return what a listing tells of a file; of a web server's it tells no sizes."""
        if details.get("size") is None:
            return self.info(path)
        size = int(details["size"])
        return FileInfo(
            path=f"{self._begin}{details['name']}",
            size=size,
            version=self._version(size, details),
            modified=next(filter(None, (_seconds(details.get(name)) for name in _TIMES)), None),
        )

    def _version(self, size: int, details: Mapping[str, Any]) -> str:
        known = (details.get(mark) for mark in _VERSION_MARKS)
        return "-".join([str(size), *(_mark_text(mark) for mark in known if mark is not None)])

    def is_folder(self, path: str) -> bool:  # noqa: D102
        with _answers(self.url(path)):
            return bool(self._filesystem.isdir(path))

    def exists(self, path: str) -> bool:  # noqa: D102
        with _answers(self.url(path)):
            return bool(self._filesystem.exists(path))

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        self._filesystem.invalidate_cache()
        # Not the file system's own files: those of some share one position.
        return open_by_ranges(self, path, version, checks_each=False)

    def read_range(  # noqa: D102
        self, path: str, start: int, end: int, version: str | None = None
    ) -> bytes:
        with as_listed(self.url(path), version):
            if version is not None:
                check_version(self.url(path), version, self.info(path).version)
            with _answers(self.url(path)):
                data = bytes(self._filesystem.cat_file(path, start=start, end=end))
        if len(data) <= end - start:
            return data
        # A web server may give the whole file whatever is asked for.
        if len(data) > _WHOLE_BYTES:
            raise OSError(
                errno.EOPNOTSUPP,
                "the server gives no parts of files, and this one is too large to be fetched as a "
                "whole for each; put simplecache:: before its URL",
                self.url(path),
            )
        return data[start:end]

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        with _answers(self.url(path)):
            try:
                opened = self._filesystem.open(path, "rb")
            except KeyError as error:
                # Of zip archives, up to fsspec 2026.7.
                raise not_found(self.url(path)) from error
            with opened as file:
                data = limited(file.read(limit + 1), limit, self.url(path))
        if self._protocol in _OF_WEB and data.lstrip()[:1] == b"<":
            # A page in the place of what is not there. Nothing that is read so is HTML.
            raise not_found(self.url(path))
        return data

    def local_path(self, path: str) -> str | None:  # noqa: D102
        return None

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:  # noqa: D102
        self._filesystem.invalidate_cache()
        with _answers(self.url(pattern)):
            found = self._filesystem.glob(pattern, detail=True)
        return {
            path.rstrip("/"): None if is_folder_entry(path, details) else self._told(path, details)
            for path, details in sorted(found.items())
        }

    def tree(self, path: str, skip: str | None = None) -> Tree:  # noqa: D102
        files: set[str] = set()
        folders: set[str] = set()
        for name, details in self._filesystem.find(path, withdirs=True, detail=True).items():
            below = name.removeprefix(path).strip("/")
            if below and below.partition("/")[0] != skip:
                (folders if is_folder_entry(name, details) else files).add(below)
        return Tree(files=tuple(sorted(files)), folders=tuple(sorted(folders)))

    def holds_more(self, path: str, skip: str) -> bool:  # noqa: D102
        tree = self.tree(path, skip)
        return bool(tree.files or tree.folders)

    def folders(self, path: str, start: str) -> list[str]:  # noqa: D102
        self._filesystem.invalidate_cache()
        try:
            found = self._filesystem.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = (_last(one["name"]) for one in found if one["type"] == "directory")
        return sorted(name for name in names if name.startswith(start))

    def age_seconds(self, path: str) -> float:  # noqa: D102
        paths = [path, *self._filesystem.find(path, withdirs=True)]
        times = []
        for one in paths:
            with contextlib.suppress(FileNotFoundError, NotImplementedError):
                times.append(float(self._filesystem.modified(one).timestamp()))
        if not times:
            raise not_found(self.url(path))
        return max(0.0, time.time() - max(times))

    def make_folder(self, path: str) -> None:  # noqa: D102
        if not self.is_folder(path.rpartition("/")[0] or "/"):
            raise not_found(self.url(path))
        self._filesystem.mkdir(path, create_parents=False)

    def make_folders(self, path: str) -> None:  # noqa: D102
        self._filesystem.makedirs(path, exist_ok=True)

    def check_changeable(self, folders: Mapping[str, Collection[str]]) -> None:  # noqa: D102
        # fsspec has no way to ask.
        return

    def create_sink(  # noqa: D102
        self, path: str, final: str, note: str | None = None
    ) -> Sink:
        del note
        return RemoteSink(self._spool, lambda: _Stream(self, path, is_staged=path != final))

    def write_bytes(self, path: str, data: bytes) -> None:  # noqa: D102
        self._check_folder(path.rpartition("/")[0])
        self._filesystem.pipe_file(path, data)

    def _check_folder(self, path: str) -> None:
        if not self.is_folder(path):
            raise not_found(self.url(path))

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:  # noqa: D102
        self._check_folder(path.rpartition("/")[0])
        self._check_folder(scratch)
        return self.put_if_none(path, data)

    def put_if_none(self, path: str, data: bytes) -> bool:  # noqa: D102
        try:
            self._filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            # The answer to an earlier try within the file system may have got lost.
            try:
                return self.read_bytes(path, MAX_RECORD_BYTES) == data
            except FileNotFoundError:
                # There was one, and it went since.
                return False
        return True

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        self._move(source, target)
        if self._type(source) is None:
            return
        # Some replace no file, as WebHDFS, and do not tell.
        self.remove(target)
        self._move(source, target)
        if self._type(source) is not None:
            raise OSError(errno.EIO, "a file could not be moved here", self.url(target))

    def _move(self, source: str, target: str) -> None:
        if _PATTERN.search(source):
            self._filesystem.cp_file(source, target)
            self._filesystem.rm_file(source)
        else:
            self._filesystem.mv(source, target)

    def _type(self, path: str) -> str | None:
        # fsspec's own isdir, exists and isfile take each error for a no.
        try:
            return str(self._filesystem.info(path)["type"])
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(path)

    def release(self, path: str, scratch: str) -> None:  # noqa: D102
        del scratch
        self.remove(path)

    def remove_files(self, paths: Iterable[str]) -> None:  # noqa: D102
        each(self.remove, paths, self.concurrency)

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
        if _PATTERN.search(path):
            tree = self.tree(path)
            self.remove_files(f"{path}/{below}" for below in tree.files)
            for below in reversed(tree.folders):
                self.remove_folder(f"{path}/{below}")
            self.remove_folder(path)
            return
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rm(path, recursive=True)

    def sync_folders(self, paths: Iterable[str]) -> None:  # noqa: D102
        return


class Calls:
    """A file system of which each call, also to files that it opens, is made within something.

    Parameters
    ----------
    client : fsspec.AbstractFileSystem
        Makes the calls.
    around : callable
        Takes the path that a call is about and returns a context manager.
    """

    def __init__(
        self,
        client: Any,
        around: Callable[[str], contextlib.AbstractContextManager[object]],
        path: str = "",
    ) -> None:
        self._client = client
        self._around = around
        self._path = path

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name == "unstrip_protocol":
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            path = self._path or next(iter(arguments), "")
            with self._around(path):
                answer = found(*arguments, **options)
            return Calls(answer, self._around, path) if name == "open" else answer

        return call


class _Stream:
    """A file that is written front to back."""

    def __init__(self, storage: FsspecStorage, path: str, *, is_staged: bool) -> None:
        if is_staged or storage.has_folders:
            storage._check_folder(path.rpartition("/")[0])
        self._storage = storage
        self._path = path
        self._file = storage._filesystem.open(path, "wb")

    def part_bytes(self) -> int:
        return PART_BYTES

    def add(self, pieces: list[Piece]) -> None:
        self._file.write(b"".join(pieces))

    def finish(self) -> str:
        self._file.close()
        return self._path

    def cancel(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            # A file that is closed is there, as far as it got.
            self._storage.remove(self._path)


@contextlib.contextmanager
def _answers(url: str) -> Iterator[None]:
    """Raise what a web server refuses, breaks off, or is late with, as ``OSError``.

    aiohttp's own errors show signed URLs, or none at all, and fsspec's of late answers no text.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise _not_there(error, url) from None
    except Exception as error:
        refusal = _refusal(error, url)
        if refusal is None:
            raise
        raise refusal from None


def _not_there(error: FileNotFoundError, url: str) -> OSError:
    """Return what is behind fsspec's error: it says so whatever a web server answers, or if none.

    Its own text may have the password in the URL.
    """
    status = getattr(error.__cause__, "status", None)
    if isinstance(status, int) and 400 <= status < 500 and status not in _MAY_CHANGE:
        # Stores refuse in many ways what is not there, or may not be listed.
        return not_found(url)
    return _refusal(error.__cause__, url) or not_found(url)


def _refusal(error: BaseException | None, url: str) -> OSError | None:
    import asyncio

    status = getattr(error, "status", None)
    number = errno.EACCES if status in (401, 403) else errno.EIO
    is_late = isinstance(error, asyncio.TimeoutError)
    if isinstance(status, int):
        what = f"the server answers {status} {getattr(error, 'message', '')}"
    elif not is_late and type(error).__module__.partition(".")[0] != "aiohttp":
        return None
    elif is_late or isinstance(error, OSError):
        what = f"the server did not answer ({type(error).__name__}); read again"
    else:
        what = f"the server's answer broke off ({type(error).__name__}); read again"
    return OSError(number, what.rstrip(), url)


def is_folder_entry(path: str, details: Mapping[str, Any]) -> bool:
    """Return whether what was found is a folder, or an object that marks one, as gcsfs finds it."""
    return path.endswith("/") or details.get("type") == "directory"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _seconds(value: Any) -> float | None:
    if isinstance(value, datetime):
        # Without a zone it is UTC, as fsspec has it.
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()
    return float(value) if isinstance(value, int | float) else None


def _mark_text(value: Any) -> str:
    # Some file systems tell times as datetime when asked for one file and as a number in listings.
    return str(value.timestamp() if isinstance(value, datetime) else value)
