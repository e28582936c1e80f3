"""HDFS by hdfs-native: files are staged in the job's hidden folder and renamed.

HDFS renames atomically, and refuses an existing target unless told to replace it; that is all a
commit needs. A file's version is its length and its time of modification, which a rename keeps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

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
    check_length,
    check_names,
    check_version,
    error_number,
    is_a_folder,
    limited,
    may_not_change,
)
from tfrecord_io.storage.range_file import open_by_ranges
from tfrecord_io.storage.remote_sink import PART_BYTES, Piece, RemoteSink, Spool
from tfrecord_io.storage.sending import Sender

#: The client copies what it is given: so much is in the processor's cache still.
_WRITE_BYTES = 256 * 1024

#: Characters of a path: HdfsConstants.MAX_PATH_LENGTH of Apache Hadoop.
_MAX_PATH = 8000

#: Files that are kept open between ranges of them.
_OPEN_READERS = 16

#: What was opened in this process, held for good: by us, and what else fsspec has when the process
#: is forked. It drops its file systems in every forked child, and the end of a client waits for
#: threads that the child does not have: for ever.
_held: dict[int, Any] = {}

#: For so long after a read hdfs-native keeps its connection to the data node, for all clients of
#: the process (DATANODE_CACHE_EXPIRY, and some more). A forked child has a copy of it, whose end it
#: would wait for: for ever, since the threads that would see to it are the parent's.
_KEPT_SECONDS = 3.1

_Result = TypeVar("_Result")


class _KeptConnections:
    """When the process last read from a data node, and, in a fork of it, when that is forgotten."""

    def __init__(self) -> None:
        # By the clock that hdfs-native looks at.
        self.last_read = self.forgotten = 0.0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self.forgotten = self.last_read + _KEPT_SECONDS

    def wait(self) -> None:
        time.sleep(min(max(self.forgotten - time.time(), 0.0), _KEPT_SECONDS))


_kept = _KeptConnections()


def _hold() -> None:
    module = sys.modules.get("hdfs_native.fsspec")
    if module is not None:
        for kind in (module.HdfsFileSystem, module.ViewfsFileSystem):
            _held.update({id(one): one for one in [*kind._cache.values()]})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold)


class HdfsStorage(StagesByRename):
    """An HDFS cluster.

    Parameters
    ----------
    filesystem : hdfs_native.fsspec.HdfsFileSystem
        Its client makes the calls.
    """

    checks_ranges = True
    concurrency = close_concurrency = 16

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = _held.setdefault(id(filesystem), filesystem)
        self._client = filesystem.client
        self._spool = Spool()
        self._readers: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._readers_lock = threading.Lock()

    def __repr__(self) -> str:
        return "HdfsStorage()"

    def url(self, path: str) -> str:  # noqa: D102 - the protocol has the docstrings
        # Of a path, hdfs-native leaves out what follows "?" or "#".
        return str(self._filesystem.unstrip_protocol("/")).rstrip("/") + path

    def check_target(self, path: str) -> None:  # noqa: D102
        check_names(self.url(path), path[1:])
        if ":" in path:
            raise OptionError(
                f"{self.url(path)} has a colon in its path, which HDFS takes in no name; write to "
                "another path"
            )

    # --- looking ----------------------------------------------------------------------------------

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        while not self.is_folder(path):
            # It may have been made since: then it is a folder now.
            with contextlib.suppress(IsADirectoryError):
                return [self.info(path)]
        # Asking for all at once lists folder by folder as well; here hidden ones are left out.
        found = self._walk([path], keep)
        return sorted([_info(path, status) for path, is_folder, status in found if not is_folder])

    def _walk(
        self, folders: list[str], keep: Keep | None = None, levels: int | None = None
    ) -> Iterator[tuple[str, bool, Any]]:
        """Give all that is below folders and of a name to keep, one level after the other.

        Of each its path, whether it is a folder, and its status, of which each question takes time.
        """
        level = 0
        while folders and level != levels:
            found = each(self._entries, folders, self.concurrency)
            deeper = []
            for folder, entries in zip(folders, found, strict=True):
                start = len(folder.rstrip("/")) + 1
                for status in entries:
                    path = status.path
                    if keep is not None and not keep(path[start:]):
                        continue
                    is_folder = status.isdir
                    if is_folder:
                        deeper.append(path)
                    yield path, is_folder, status
            folders = deeper
            level += 1

    def _entries(self, folder: str) -> list[Any]:
        try:
            return self._call(lambda: list(self._client.list_status(folder)), folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _status(self, path: str) -> Any:
        return self._call(lambda: self._client.get_file_info(path), path)

    def info(self, path: str) -> FileInfo:  # noqa: D102
        status = self._status(path)
        if status.isdir:
            raise is_a_folder(self.url(path))
        return _info(status.path, status)

    def is_folder(self, path: str) -> bool:  # noqa: D102
        try:
            return bool(self._status(path).isdir)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def exists(self, path: str) -> bool:  # noqa: D102
        try:
            self._status(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        return open_by_ranges(self, path, version)

    def read_range(  # noqa: D102
        self, path: str, start: int, end: int, version: str | None = None
    ) -> bytes:
        reader = self._reader(path, version)
        # hdfs-native panics behind the end.
        length = min(end, len(reader)) - start
        if length <= 0:
            return b""
        _kept.wait()
        found = self._call(lambda: bytes(reader.read_range(start, length)), path)
        _kept.last_read = time.time()
        return found

    def _reader(self, path: str, version: str | None) -> Any:
        if version is None:
            return self._call(lambda: self._client.read(path), path)
        with self._readers_lock:
            found = self._readers.get((path, version))
        if found is not None:
            return found
        # Opened before it is looked at: what was opened is then not older than what is seen.
        with as_listed(self.url(path), version):
            reader = self._call(lambda: self._client.read(path), path)
            check_version(self.url(path), version, self.info(path).version)
        with self._readers_lock:
            self._readers[path, version] = reader
            while len(self._readers) > _OPEN_READERS:
                self._readers.popitem(last=False)
        return reader

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        return limited(self.read_range(path, 0, limit + 1), limit, self.url(path))

    def local_path(self, path: str) -> str | None:  # noqa: D102
        return None

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:  # noqa: D102
        from fsspec.utils import glob_translate

        # As fsspec's own, without making a dict of each file first.
        only_folders = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        folder = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        levels = None if "**" in pattern else pattern.count("/", len(folder))
        fits = re.compile(glob_translate(pattern)).match
        # What stands for all that is below folders stands for the folders.
        end = "/" if pattern.endswith("/**") else ""
        found: dict[str, FileInfo | None] = {}
        for path, is_folder, status in self._walk([folder or "/"], levels=levels):
            if is_folder:
                if fits(path + end):
                    found[path] = None
            elif not only_folders and fits(path):
                found[path] = _info(path, status)
        if end and fits(folder + end) and self.is_folder(folder or "/"):
            found[folder] = None
        return dict(sorted(found.items()))

    def tree(self, path: str, skip: str | None = None) -> Tree:  # noqa: D102
        if not self._status(path).isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.url(path))
        path = path.rstrip("/")
        skipped = None if skip is None else f"{path}/{skip}"
        top = [(one.path, one.isdir, one) for one in self._entries(path or "/")]
        top = [entry for entry in top if entry[0] != skipped]
        below = self._walk([one for one, is_folder, _ in top if is_folder])
        files: list[str] = []
        folders: list[str] = []
        for one, is_folder, _ in (*top, *below):
            (folders if is_folder else files).append(one[len(path) + 1 :])
        return Tree(files=tuple(sorted(files)), folders=tuple(sorted(folders)))

    def holds_more(self, path: str, skip: str) -> bool:  # noqa: D102
        return any(one.path.rpartition("/")[2] != skip for one in self._entries(path))

    def folders(self, path: str, start: str) -> list[str]:  # noqa: D102
        found = (one.path.rpartition("/")[2] for one in self._entries(path) if one.isdir)
        return sorted(name for name in found if name.startswith(start))

    def age_seconds(self, path: str) -> float:  # noqa: D102
        newest = self._status(path).modification_time
        for _, _, status in self._walk([path]):
            newest = max(newest, status.modification_time)
        return max(0.0, time.time() - float(newest) / 1000)

    # --- changing ---------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:  # noqa: D102
        self._call(lambda: self._client.mkdirs(path, 0o755, False), path)

    def make_folders(self, path: str) -> None:  # noqa: D102
        self._call(lambda: self._client.mkdirs(path, 0o755, True), path)

    def check_changeable(self, folders: Mapping[str, Collection[str]]) -> None:  # noqa: D102
        def check(folder: str) -> None:
            # The name node looks at the rights first, and then for the file, which is not there.
            try:
                self.remove(f"{folder}/{uuid.uuid4().hex}")
            except PermissionError as error:
                raise may_not_change(self.url(folder)) from error

        each(check, folders, self.concurrency)

    def create_sink(  # noqa: D102
        self, path: str, final: str, note: str | None = None
    ) -> Sink:
        del note
        if final != path:
            # Java counts them so.
            check_length(self.url(final), len(final.encode("utf-16-le")) // 2, _MAX_PATH)
        return RemoteSink(self._spool, lambda: _Stream(self, path))

    def write_bytes(self, path: str, data: bytes) -> None:  # noqa: D102
        stream = _Stream(self, path)
        stream.add([data])
        stream.finish()

    def _create(self, path: str) -> Any:
        from hdfs_native import WriteOptions

        options = WriteOptions()
        # A task whose job was aborted must not bring the job's folder back.
        options.create_parent = False
        options.overwrite = True
        return self._call(lambda: self._client.create(path, options), path)

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:  # noqa: D102
        temporary = f"{scratch}/{uuid.uuid4().hex}.new"
        self.write_bytes(temporary, data)
        try:
            self._call(lambda: self._client.rename(temporary, path, False), path)
        except OSError as error:
            # The answer may have got lost: what does the file hold?
            try:
                return self.read_bytes(path, MAX_RECORD_BYTES) == data
            except FileNotFoundError:
                if isinstance(error, FileExistsError):
                    # There was one, and it went since.
                    return False
            raise
        finally:
            with contextlib.suppress(OSError):
                self.remove(temporary)
        return True

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        self._call(lambda: self._client.rename(source, target, True), source)

    def remove(self, path: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            self._call(lambda: self._client.delete(path, False), path)

    def release(self, path: str, scratch: str) -> None:  # noqa: D102
        target = f"{scratch}/{path.rpartition('/')[2]}"

        def move() -> None:
            self._call(lambda: self._client.rename(path, target, False), path)

        # What was moved before is there, and nothing takes its place.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            try:
                move()
            except FileNotFoundError:
                # The file, or the folder it is to go to.
                self.make_folder(scratch)
                move()

    def remove_files(self, paths: Iterable[str]) -> None:  # noqa: D102
        each(self.remove, paths, self.concurrency)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        try:
            self.remove(path)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                return False
            raise
        return True

    def remove_tree(self, path: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            self._call(lambda: self._client.delete(path, True), path)

    def sync_folders(self, paths: Iterable[str]) -> None:  # noqa: D102
        return

    def _call(self, call: Callable[[], _Result], path: str) -> _Result:
        with self._own_errors(path):
            return call()

    @contextlib.contextmanager
    def _own_errors(self, path: str) -> Iterator[None]:
        """Give what hdfs-native raises as ``OSError``, without the name node's stack."""
        try:
            yield
        except OSError as error:
            number = error_number(error)
            text = str(error.args[-1] if error.args else error).partition("\n")[0]
            # Of some it gives the path alone.
            text = os.strerror(number) if text.startswith("/") else text
            raise type(error)(number, text, self.url(path)) from error
        except RuntimeError as error:
            text = str(error)
            kinds = (number for kind, number in _REFUSALS.items() if kind in text)
            refusal = _REFUSAL.match(text)
            first = (refusal["text"] if refusal else text).replace("\\n", "\n").partition("\n")[0]
            told = first.replace('\\"', '"')
            raise OSError(next(kinds, errno.EIO), told, self.url(path)) from error


#: What hdfs-native makes of a name node's exceptions.
_REFUSAL = re.compile(r'RPCError\("[\w.$]+", "(?P<text>[^\n]*?)("\))?(\n|\Z)')
_REFUSALS = {
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "is not a directory": errno.ENOTDIR,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "AccessControlException": errno.EACCES,
    "QuotaExceededException": errno.EDQUOT,
    "PathComponentTooLongException": errno.ENAMETOOLONG,
}


class _Stream:
    """A file that is written front to back; a part is on its way while the next is made."""

    def __init__(self, storage: HdfsStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._writer = storage._create(path)
        self._sender = Sender()

    def part_bytes(self) -> int:
        return PART_BYTES

    def add(self, pieces: list[Piece]) -> None:
        if sum(map(len, pieces)) < PART_BYTES:
            self._sender.wait()
            self._send(pieces)
        else:
            self._sender.send(pieces, lambda: self._send(pieces))

    def _send(self, pieces: Sequence[Piece]) -> None:
        with self._storage._own_errors(self._path):
            for block in _blocks(pieces, _WRITE_BYTES):
                self._writer.write(block)

    def finish(self) -> str:
        self._sender.wait()
        with self._storage._own_errors(self._path):
            # Data nodes keep what they were sent in memory until they are told to sync.
            self._writer.hsync()
            self._writer.close()
        return self._path

    def cancel(self) -> None:
        with contextlib.suppress(OSError):
            self._sender.wait()
        with contextlib.suppress(OSError), self._storage._own_errors(self._path):
            self._writer.close()
        with contextlib.suppress(OSError):
            # It is there, as far as it got.
            self._storage.remove(self._path)


def _blocks(pieces: Sequence[Piece], size: int) -> Iterator[bytes]:
    """Cut and join pieces: blocks of `size` bytes and a shorter last one."""
    held: list[Piece] = []
    room = size
    for piece in pieces:
        start = 0
        while len(piece) - start >= room:
            held.append(piece[start : start + room])
            yield b"".join(held)
            start += room
            held, room = [], size
        if start < len(piece):
            held.append(piece[start:])
            room -= len(piece) - start
    if held:
        yield b"".join(held)


def _info(path: str, status: Any) -> FileInfo:
    length, modified = status.length, status.modification_time
    return FileInfo(path, length, f"{length}-{modified}", modified / 1000)
