"""Folders of this machine, by calls of the operating system.

A commit needs what fsspec does not offer: exclusive creation with whole content, atomic renames,
and fsync of files and folders.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
import shutil
import stat
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from tfrecord_io.errors import LayoutError, OptionError
from tfrecord_io.parallel import each
from tfrecord_io.storage.local_sink import LocalSink
from tfrecord_io.storage.protocol import (
    FileInfo,
    Keep,
    Sink,
    StagesByRename,
    Tree,
    as_listed,
    check_length,
    check_version,
    is_a_folder,
    limited,
    may_not_change,
    naming,
    not_found,
)

#: How mounts of object stores, Windows shares and FAT disks refuse a hard link.
_NO_LINKS = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM}

#: How Linux says that a file system, as that of Windows shares, syncs files and no folders.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.EOPNOTSUPP}

#: Tries to make a folder that other jobs keep removing.
_MAKE_TRIES = 20

#: Tries to remove a folder into which a task that was not told yet still writes.
_REMOVE_TRIES = 20
_REMOVE_PAUSE_SECONDS = 0.05


class LocalStorage(StagesByRename):
    """Folders of this machine."""

    checks_ranges = False
    concurrency = 1
    # A disk takes what several threads wait for in one go: thousands of files 2 to 5 times as fast.
    close_concurrency = 8

    def __repr__(self) -> str:
        return "LocalStorage()"

    def url(self, path: str) -> str:  # noqa: D102 - the protocol has the docstrings
        return path

    def check_target(self, path: str) -> None:  # noqa: D102
        return

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        while not self.is_folder(path):
            # It may have been made since: then it is a folder now.
            with contextlib.suppress(IsADirectoryError):
                return [self.info(path)]
        found: list[FileInfo] = []
        for entry in _files_below(path, keep):
            # What goes while we look is not there; readers notice commits by their own means.
            with contextlib.suppress(FileNotFoundError):
                found.append(_listed(entry))
        return sorted(found, key=lambda info: info.path)

    def info(self, path: str) -> FileInfo:  # noqa: D102
        status = os.stat(path)  # noqa: PTH116
        if stat.S_ISDIR(status.st_mode):
            raise is_a_folder(path)
        return _file_info(path, status)

    def is_folder(self, path: str) -> bool:  # noqa: D102
        return Path(path).is_dir()

    def exists(self, path: str) -> bool:  # noqa: D102
        return os.path.lexists(path)

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        with as_listed(path, version):
            file = _NamedFile(path, "rb", opener=_at_once)
        try:
            info = _file_info(path, os.fstat(file.fileno()))
            check_version(path, version, info.version)
        except BaseException:
            file.close()
            raise
        return cast("BinaryIO", file)

    def read_range(  # noqa: D102
        self, path: str, start: int, end: int, version: str | None = None
    ) -> bytes:
        with as_listed(path, version):
            descriptor = _at_once(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            info = _file_info(path, os.fstat(descriptor))
            check_version(path, version, info.version)
            with naming(path):
                data = os.pread(descriptor, end - start, start)
                # Network file systems may give less at a time than there is.
                while 0 < len(data) < min(end, info.size) - start and (
                    more := os.pread(descriptor, end - start - len(data), start + len(data))
                ):
                    data += more
            return data
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        with naming(path), open(path, "rb", opener=_at_once) as file:
            size = _file_info(path, os.fstat(file.fileno())).size
            # Python finds memory for all that is asked for first.
            return limited(file.read(min(size, limit) + 1), limit, path)

    def local_path(self, path: str) -> str | None:  # noqa: D102
        return path

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:  # noqa: D102
        _check_has_no_circles(pattern)
        found: dict[str, FileInfo | None] = {}
        for path in sorted(glob.glob(pattern, recursive=True)):  # noqa: PTH207
            try:
                status = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                if Path(path).is_symlink():
                    found[path] = None
                continue
            # Who looks into what is no folder either is told so.
            found[path] = _file_info(path, status) if stat.S_ISREG(status.st_mode) else None
        return found

    def tree(self, path: str, skip: str | None = None) -> Tree:  # noqa: D102
        files: list[str] = []
        folders: list[str] = []
        pending = [""]
        if not self.is_folder(path):
            raise not_found(path)
        while pending:
            prefix = pending.pop()
            for entry in _scan(f"{path}/{prefix}"):
                if not prefix and entry.name == skip:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(prefix + entry.name)
                    pending.append(f"{prefix}{entry.name}/")
                else:
                    files.append(prefix + entry.name)
        return Tree(files=tuple(sorted(files)), folders=tuple(sorted(folders)))

    def holds_more(self, path: str, skip: str) -> bool:  # noqa: D102
        return any(entry.name != skip for entry in _scan(path))

    def folders(self, path: str, start: str) -> list[str]:  # noqa: D102
        with contextlib.suppress(NotADirectoryError):
            found = (one.name for one in _scan(path) if one.is_dir(follow_symlinks=False))
            return sorted(name for name in found if name.startswith(start))
        return []

    def age_seconds(self, path: str) -> float:  # noqa: D102
        newest = os.lstat(path).st_mtime
        if self.is_folder(path):
            tree = self.tree(path)
            for name in (*tree.folders, *tree.files):
                with contextlib.suppress(FileNotFoundError):
                    newest = max(newest, os.lstat(f"{path}/{name}").st_mtime)
        return time.time() - newest

    def make_folder(self, path: str) -> None:  # noqa: D102
        Path(path).mkdir()

    def make_folders(self, path: str) -> None:  # noqa: D102
        if not any(_is_made(path) for _ in range(_MAKE_TRIES)):
            Path(path).mkdir(parents=True, exist_ok=True)

    def check_changeable(self, folders: Mapping[str, Collection[str]]) -> None:  # noqa: D102
        user = os.geteuid()
        # The data set's folder, in which files are staged, is the first.
        root = min(folders)
        for folder, names in sorted(folders.items()):
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
                raise may_not_change(folder)
            status = os.stat(folder)  # noqa: PTH116
            if not _can_rename(root, folder):
                raise OSError(
                    errno.EXDEV,
                    "the folder is on another disk than its data set, and no file can be moved to "
                    "it; nothing was changed: unmount it, or write elsewhere",
                    folder,
                )
            # Of a sticky folder, as /tmp is one, only what is one's own may be moved and removed.
            if status.st_mode & stat.S_ISVTX and user not in (0, status.st_uid):
                for name in names:
                    if os.lstat(f"{folder}/{name}").st_uid != user:
                        raise may_not_change(f"{folder}/{name}")

    def create_sink(  # noqa: D102
        self, path: str, final: str, note: str | None = None
    ) -> Sink:
        del note
        if final != path:
            # The system counts the NUL at the end.
            check_length(final, len(os.fsencode(final)), os.pathconf("/", "PC_PATH_MAX") - 1)
        return LocalSink(path)

    def write_bytes(self, path: str, data: bytes) -> None:  # noqa: D102
        _write_durably(path, data, "wb")

    def create_exclusive(self, path: str, data: bytes, scratch: str) -> bool:  # noqa: D102
        temporary = f"{scratch}/{uuid.uuid4().hex}.new"
        try:
            _write_durably(temporary, data, "xb")
            try:
                link(temporary, path)
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

    def release(self, path: str, scratch: str) -> None:  # noqa: D102
        del scratch
        self.remove(path)

    def remove_files(self, paths: Iterable[str]) -> None:  # noqa: D102
        for path in paths:
            self.remove(path)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        try:
            Path(path).rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            # POSIX allows either for a folder that is not empty; another disk may be mounted there.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
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
        todo = list(paths)
        # Few are synced in less time than threads begin.
        each(_sync_folder, todo, min(self.close_concurrency, len(todo) // 4))


class _NamedFile(io.FileIO):
    """An open file, whose errors name it."""

    def readinto(self, buffer: Any) -> Any:
        with naming(str(self.name)):
            return super().readinto(buffer)

    def read(self, size: Any = -1) -> Any:
        with naming(str(self.name)):
            return super().read(size)

    def readall(self) -> Any:
        with naming(str(self.name)):
            return super().readall()


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting, as that of a pipe would, for somebody at its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def link(source: str, target: str) -> None:
    """Give a file a second name, unless there is such a file.

    Raises
    ------
    FileExistsError
        There is.
    OSError
        The file system has no hard links.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        # link(2): of NFS the answer may be wrong, when it got lost and the call was repeated.
        # What is in the way may have gone since.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(source), os.lstat(target)):
                return
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise OSError(
            error.errno,
            "the file system has no hard links, which a commit needs, and nothing was changed: "
            "write to the store by its own URL, or to a local disk, and copy",
            os.path.dirname(target),  # noqa: PTH120
        ) from error


def _can_rename(source: str, target: str) -> bool:
    """Return whether files of one folder can be moved to another: whether they are of one mount."""
    if os.stat(source).st_dev != os.stat(target).st_dev:  # noqa: PTH116
        return False
    nothing = uuid.uuid4().hex
    try:
        # Linux looks at the mounts first, of which a disk may have several, and for the file then.
        Path(f"{source}/{nothing}").rename(f"{target}/{nothing}")
    except OSError as error:
        return error.errno != errno.EXDEV
    return True


def check_links(folder: str) -> None:
    """Raise what `link` raises if a commit of what is staged in a folder could not be decided."""
    probe = f"{folder}/{uuid.uuid4().hex}.probe"
    with naming(probe):
        Path(probe).touch()
    try:
        link(probe, f"{probe}.link")
        Path(f"{probe}.link").unlink(missing_ok=True)
    finally:
        Path(probe).unlink(missing_ok=True)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def _write_durably(path: str, data: bytes, mode: str) -> None:
    with naming(path), Path(path).open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """Return a folder's entries; none if it went meanwhile."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _is_made(path: str) -> bool:
    """Make a folder with those above it; false if one was there and was removed meanwhile."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        # pathlib looks once more at what was there, and finds no folder.
        if os.path.lexists(path) and not Path(path).is_dir():
            raise
        return False
    return True


def _files_below(root: str, keep: Keep | None) -> Iterator[os.DirEntry[str]]:
    """Give what is no folder, in folders and in those that links lead to."""
    pending = [root]
    while pending:
        for entry in _scan(pending.pop()):
            if keep is not None and not keep(entry.name):
                continue
            if not entry.is_dir():
                yield entry
                continue
            if entry.is_symlink():
                _check_is_no_circle(root, entry.path)
            pending.append(entry.path)


def _check_is_no_circle(root: str, link: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        status, folder = os.stat(link), link  # noqa: PTH116
        while folder != root:
            folder = os.path.dirname(folder)  # noqa: PTH120
            if os.path.samestat(status, os.stat(folder)):  # noqa: PTH116
                raise LayoutError(
                    "the link leads to a folder that it is in; remove it, or name what to read",
                    path=link,
                )


def _check_has_no_circles(pattern: str) -> None:
    """Look where ``**`` will: `glob.glob` goes round in circles as often as the system lets it."""
    folder, is_recursive, _ = f"{pattern}/".partition("/**/")
    if is_recursive:
        for base in filter(os.path.isdir, glob.glob(folder or "/")):  # noqa: PTH207
            for _ in _files_below(base, lambda name: not name.startswith(".")):
                pass


def _listed(entry: os.DirEntry[str]) -> FileInfo:
    try:
        return _file_info(entry.path, entry.stat())
    except FileNotFoundError:
        if Path(entry.path).is_symlink():
            raise LayoutError(
                "the link leads nowhere; remove it, or put there what it leads to",
                path=entry.path,
            ) from None
        raise


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
    if not stat.S_ISREG(status.st_mode):
        raise OptionError(
            "a pipe, device or socket is no regular file, and neither read nor written as one; "
            "write its bytes to a file first, or choose another target",
            path=path,
        )
    version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return FileInfo(
        path=path, size=status.st_size, version=version, modified=status.st_mtime_ns / 1e9
    )
