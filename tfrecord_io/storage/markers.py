"""Folders in stores of objects, where they are only the beginnings of names.

A folder is a *marker*, an empty object `MARKER` in it; only the hidden folder has any. Keys that
end with ``/``, the markers of others, will not do: some servers say they are there whenever
anything is below. Who removes a folder removes its marker first, and who adds to one looks at the
marker again afterwards, so that nothing is added to a folder behind its removal.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Protocol

from tfrecord_io.storage.protocol import Storage, Tree, not_found

#: What makes a folder.
MARKER = ".folder"

#: What Amazon EMR and Hadoop's s3n put behind a folder's name, for the key of its marker beside it.
MARKER_BESIDE = "_$folder$"


class _Marking(Storage, Protocol):
    def is_object(self, path: str) -> bool:
        """Return whether there is an object of this name."""

    def names(self, path: str) -> Iterable[str]:
        """Give the paths of all objects below a folder, as they are listed."""

    def entries(self, path: str, skip: str | None) -> Iterator[str]: ...

    def put_if_none(self, path: str, data: bytes) -> bool:
        """Carry out `Storage.create_exclusive`, without a look at the folder."""

    def check_marker(self, folder: str) -> None: ...


class MarksFolders:
    """What stores of objects have in common, see `Storage`."""

    has_folders = False

    def tree(self: _Marking, path: str, skip: str | None = None) -> Tree:  # noqa: D102
        files, folders = [], set()
        for below in self.entries(path, skip):
            folder = folder_of(below)
            if folder is None:
                files.append(below)
            else:
                folders.add(folder)
        return Tree(files=tuple(sorted(files)), folders=tuple(sorted(folders)))

    def holds_more(self: _Marking, path: str, skip: str) -> bool:  # noqa: D102
        return any(True for _ in self.entries(path, skip))

    def entries(self: _Marking, path: str, skip: str | None) -> Iterator[str]:
        """Give what is in a folder, relative to it, without its own mark and an entry `skip`."""
        for name in self.names(path):
            below = name[len(path) + 1 :]
            if below.partition("/")[0] != skip and folder_of(below) != "":
                yield below

    def make_folders(self: _Marking, path: str) -> None:  # noqa: D102
        try:
            self.write_bytes(f"{path}/{MARKER}", b"")
        except FileNotFoundError as error:
            bucket = path.partition("/")[0]
            raise OSError(errno.ENXIO, "the bucket does not exist", self.url(bucket)) from error

    def make_folder(self: _Marking, path: str) -> None:  # noqa: D102
        parent = path.rpartition("/")[0]
        self.check_marker(parent)
        self.write_bytes(f"{path}/{MARKER}", b"")
        try:
            self.check_marker(parent)
        except FileNotFoundError:
            self.remove(f"{path}/{MARKER}")
            raise

    def check_marker(self: _Marking, folder: str) -> None:
        """Raise ``FileNotFoundError`` if a folder that was marked is gone."""
        if not self.is_object(f"{folder}/{MARKER}"):
            raise not_found(self.url(folder))

    def create_exclusive(self: _Marking, path: str, data: bytes, scratch: str) -> bool:  # noqa: D102
        folder = path.rpartition("/")[0]
        self.check_marker(folder)
        if not self.put_if_none(path, data):
            return False
        try:
            self.check_marker(folder)
        except FileNotFoundError:
            self.release(path, scratch)
            raise
        return True


def folder_of(below: str) -> str | None:
    """Return the folder that a name marks, or None for a file's name."""
    folder, _, name = below.rpartition("/")
    if name.endswith(MARKER_BESIDE):
        return below.removesuffix(MARKER_BESIDE)
    return folder if name in ("", MARKER) else None
