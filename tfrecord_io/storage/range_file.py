"""A file of a store that gives ranges of bytes, to read and seek in."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

#: Read at once where less is asked for.
_BUFFER_BYTES = 1024 * 1024


def open_ranges(read: Callable[[int, int], bytes | memoryview], size: int) -> BinaryIO:
    """Return a file whose bytes come from `read`.

    Parameters
    ----------
    read : callable
        Returns the bytes from a start up to an end.
    size : int
        Length of the file in bytes.
    """
    return cast("BinaryIO", io.BufferedReader(_RangeFile(read, size), _BUFFER_BYTES))


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
