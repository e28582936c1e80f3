"""A sink for files of this machine: whole blocks go past the page cache.

A part file must be on the disk before it is published, so a copy of it in the page cache wins
nothing and costs much: memory has to be found for it, and the disk begins late. So blocks are
written with ``O_DIRECT``, where the file system knows it, on a thread of their own, while the next
rows are encoded. Files too small for that, and the ends of files, are written as any other.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfrecord_io.storage.protocol import naming
from tfrecord_io.storage.sending import Buffered, Sender, take

#: A sink sends its blocks when it holds this many bytes.
_SEND_BYTES = 4 * 1024 * 1024

#: What goes to the disk at a time: enough for its full rate.
_WRITE_BYTES = 2 * 1024 * 1024

#: Places, lengths and addresses of direct writes are multiples of a disk's block; few are larger.
_BLOCK_BYTES = 4096

_memory = threading.local()


class LocalSink(Buffered):
    """See `tfrecord_io.storage.protocol.Sink`.

    The file is open only while bytes go out: a task may have thousands.

    Parameters
    ----------
    path : str
        The file; it is made, in a folder that is there.
    """

    __slots__ = ("_path", "_sender")

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._sender = Sender()

    def write(self, data: Any) -> None:
        """Take bytes, and send what makes up blocks if it is much."""
        self._hold(data)
        if self.buffered >= _SEND_BYTES:
            self._send()

    def spill(self) -> None:
        """Write what is in memory."""
        self._write_rest(sync=False)

    def close(self) -> str:
        """Write the rest, and wait until the disk has all of it."""
        self._write_rest(sync=True)
        return self._path

    def discard(self) -> None:
        """Stop writing; the file stays until its folder is removed."""
        self._take(self.buffered)
        with contextlib.suppress(OSError):
            self._sender.wait()

    def _send(self) -> None:
        path, rest = self._path, self.size % _BLOCK_BYTES
        lead = (self.buffered - self.size) % _BLOCK_BYTES
        chunks = self._take(self.buffered - rest)
        self._sender.send(chunks, lambda: _append(path, lead, chunks))

    def _write_rest(self, *, sync: bool) -> None:
        self._sender.wait()
        chunks = self._take(self.buffered)
        with naming(self._path), Path(self._path).open("ab", buffering=0) as file:
            for chunk in chunks:
                _write_all(file, chunk)
            if sync:
                os.fsync(file.fileno())


def _append(path: str, lead: int, chunks: list[memoryview]) -> None:
    """Append to a file: `lead` bytes up to the border of a block, then whole blocks."""
    with naming(path), Path(path).open("ab", buffering=0) as file:
        for chunk in take(chunks, lead):
            _write_all(file, chunk)
        for chunk in _aligned(chunks) if _set_direct(file, direct=True) else chunks:
            _write_all(file, chunk)


def _aligned(blocks: Iterable[memoryview]) -> Iterator[memoryview]:
    """Give the same bytes at addresses that direct writes take; valid until the next is asked.

    `tfrecord_io.codec.base.BatchEncoder` puts most of them there; the rest is copied.
    """
    if not hasattr(_memory, "pages"):
        _memory.pages = pa.py_buffer(mmap.mmap(-1, _WRITE_BYTES))
    pages = _memory.pages
    filled = 0
    for chunk in blocks:
        left = chunk
        while left:
            gap = -filled % _BLOCK_BYTES
            address = pa.py_buffer(left).address
            if not gap and len(left) >= _BLOCK_BYTES and not address % _BLOCK_BYTES:
                if filled:
                    yield memoryview(pages)[:filled]
                    filled = 0
                whole = len(left) - len(left) % _BLOCK_BYTES
                yield left[:whole]
                left = left[whole:]
                continue
            part = left[: gap or _WRITE_BYTES - filled]
            # Unlike an assignment to a memoryview, this lets other threads go on.
            ctypes.memmove(pages.address + filled, address, len(part))
            filled += len(part)
            left = left[len(part) :]
            if filled == _WRITE_BYTES:
                yield memoryview(pages)
                filled = 0
    if filled:
        yield memoryview(pages)[:filled]


def _write_all(file: Any, data: memoryview) -> None:
    while data:
        data = data[_written(file, data) :]


def _written(file: Any, data: memoryview) -> int:
    """Write some bytes of `data`, and return how many."""
    try:
        return int(file.write(data))
    except OSError as error:
        # The file system takes no direct writes, or none like this one, and says so only now.
        if error.errno != errno.EINVAL or not _set_direct(file, direct=False):
            raise
    return int(file.write(data))


if sys.platform == "linux":
    import fcntl

    def _set_direct(file: Any, *, direct: bool) -> bool:
        """Set whether writes go past the page cache; return whether that changed anything."""
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        asked = flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT
        try:
            fcntl.fcntl(file, fcntl.F_SETFL, asked)
        except OSError:
            return False
        return asked != flags

else:

    def _set_direct(file: Any, *, direct: bool) -> bool:
        """Say that all writes go through the page cache."""
        del file, direct
        return False
