"""A file of a store that gives ranges of bytes, to read and seek in."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from tfrecord_io.storage.protocol import Storage, as_listed, check_version

#: Read at once where less is asked for.
_BUFFER_BYTES = 1024 * 1024


def open_by_ranges(
    storage: Storage, path: str, version: str | None, *, checks_each: bool = True
) -> BinaryIO:
    """Carry out `Storage.open_read` by `Storage.read_range`.

    Parameters
    ----------
    storage : Storage
        Where the file is.
    path, version
        See `Storage.open_read`.
    checks_each : bool
        Whether each range is held to the version that the file has now.
    """
    with as_listed(storage.url(path), version):
        info = storage.info(path)
    check_version(storage.url(path), version, info.version)

    def read(start: int, end: int) -> bytes | memoryview:
        return storage.read_range(path, start, end, info.version if checks_each else None)

    return cast("BinaryIO", io.BufferedReader(_RangeFile(read, info.size), _BUFFER_BYTES))


class _RangeFile(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], bytes | memoryview], size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        data = self._read(self._position, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
