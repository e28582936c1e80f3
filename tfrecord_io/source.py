"""The bytes of one file in windows, plain or decompressed, mapped or read.

A decoder asks for the window at its offset and takes what it can of it. Two sources give windows:

- `_Mapped`: a plain local file, mapped piece by piece. Nothing is copied, and a record larger than
  a piece is mapped as a whole. The file must not be cut short in place meanwhile: the operating
  system then ends the process. Writers that replace files (ours, Hadoop's, most others) are safe.
- `_Streamed`: everything else. Chunks are read one after the other, and only the record that
  crosses from one chunk into the next is copied together, once.

Invariants: memory is bounded by a chunk and a record; no length that stands in a file is trusted
for an allocation; remote files are read one chunk ahead of the decoder. The file is held to the
version it was listed with when it is opened.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO, Protocol

import pyarrow as pa

from tfrecord_io.compression import HEAD_BYTES, detect, normalize_compression
from tfrecord_io.decompression import decompressor
from tfrecord_io.errors import LimitExceededError
from tfrecord_io.plan import ScanFile, ScanOptions
from tfrecord_io.storage import Storage

#: Bytes that are mapped, or read, at a time.
_WINDOW_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 4 * 1024 * 1024


class Source(Protocol):
    """The bytes of a file in windows.

    Attributes
    ----------
    size : int or None
        Length of the bytes; None where it shows at the end only.
    is_mapped : bool
        Whether a large window costs no memory.
    """

    size: int | None
    is_mapped: bool

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        """Return a buffer and where in it `offset` is.

        At least `needed` bytes stand there from `offset` on, unless the file ends before. Offsets
        may grow from call to call; in a mapped file they may also shrink.

        Raises
        ------
        CompressionError
            See `tfrecord_io.decompression.Decompressor.read`.
        LimitExceededError
            More decompressed bytes than ``max_decompressed_bytes``.
        """


class OpenFile:
    """A file that is open for reading; a context manager.

    Parameters
    ----------
    storage : Storage
        Where it is.
    file : ScanFile
        What it is; its version is held to.
    options : ScanOptions
        How it is read.
    start : int
        Offset of the first window; of no meaning to compressed files, which are read from their
        beginning.

    Attributes
    ----------
    source : Source
        Its bytes.
    compression : str or None
        What it turned out to be compressed with.
    """

    def __init__(
        self, storage: Storage, file: ScanFile, options: ScanOptions, *, start: int = 0
    ) -> None:
        self._handle: BinaryIO = storage.open_read(file.path, file.version)
        self._ahead: _ReadAhead | None = None
        try:
            is_local = storage.local_path(file.path) is not None
            head = b""
            if options.compression == "infer":
                head = _head(self._handle)
                self.compression = detect(head, file.path)
            else:
                self.compression = normalize_compression(options.compression)
            if self.compression is None and start:
                self._handle.seek(start)
                head = b""
            reader: _Readable = self._handle
            if not is_local:
                reader = self._ahead = _ReadAhead(self._handle)
            reader = _Prefixed(head, reader)
            self.source: Source
            if self.compression is not None:
                stream = decompressor(self.compression, reader)
                limit = options.limits.max_decompressed_bytes
                self.source = _Streamed(stream.read, limit=limit)
            elif is_local and options.memory_map:
                self.source = _Mapped(self._handle.fileno(), file.size)
            else:
                self.source = _Streamed(reader.read, size=file.size, start=start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; buffers that were given out stay good."""
        if self._ahead is not None:
            self._ahead.close()
        self._handle.close()

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _head(file: _Readable) -> bytes:
    head = b""
    while len(head) < HEAD_BYTES and (more := file.read(HEAD_BYTES - len(head))):
        head += more
    return head


class _Prefixed:
    """Bytes that were read already, and a file behind them."""

    def __init__(self, head: bytes, file: _Readable) -> None:
        self._head = head
        self._file = file

    def read(self, size: int, /) -> bytes:
        if not self._head:
            return self._file.read(size)
        taken, self._head = self._head[:size], self._head[size:]
        return taken


class _ReadAhead:
    """Reads the next chunk of a file while the last one is worked on."""

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(1, "tfrecord-io-read-ahead")
        self._next: Future[bytes] = self._pool.submit(self._chunk)
        self._chunk_left = memoryview(b"")

    def _chunk(self) -> bytes:
        return self._file.read(_CHUNK_BYTES)

    def read(self, size: int, /) -> bytes:
        if not self._chunk_left:
            chunk = self._next.result()
            if not chunk:
                return b""
            self._next = self._pool.submit(self._chunk)
            if len(chunk) <= size:
                return chunk
            self._chunk_left = memoryview(chunk)
        taken, self._chunk_left = self._chunk_left[:size], self._chunk_left[size:]
        return bytes(taken)

    def close(self) -> None:
        self._next.cancel()
        self._pool.shutdown(wait=True)


class _Mapped:
    """A plain local file, mapped a window at a time, so that what was read leaves memory again."""

    is_mapped = True

    def __init__(self, descriptor: int, size: int) -> None:
        self.size: int | None = size
        self._descriptor = descriptor
        self._length = size
        self._base = 0
        self._buffer = pa.py_buffer(b"")

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        end = min(offset + needed, self._length)
        if offset >= self._length:
            return pa.py_buffer(b""), 0
        if not self._base <= offset or end > self._base + self._buffer.size:
            self._base = offset - offset % mmap.ALLOCATIONGRANULARITY
            length = min(max(_WINDOW_BYTES, end - self._base), self._length - self._base)
            mapping = mmap.mmap(
                self._descriptor, length, access=mmap.ACCESS_READ, offset=self._base
            )
            self._buffer = pa.py_buffer(mapping)
        return self._buffer, offset - self._base


class _Streamed:
    """Bytes that come one chunk after the other."""

    is_mapped = False

    def __init__(
        self,
        read: Callable[[int], bytes],
        *,
        size: int | None = None,
        limit: int | None = None,
        start: int = 0,
    ) -> None:
        self.size = size
        self._read = read
        self._limit = limit
        self._taken = start
        # (offset, bytes), one behind the other; the first may overlap the second.
        self._pieces: deque[tuple[int, pa.Buffer]] = deque()

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        while True:
            while self._pieces and _end(self._pieces[0]) <= offset:
                self._pieces.popleft()
            if self._pieces or not self._take():
                break
        if not self._pieces:
            return pa.py_buffer(b""), 0
        base, buffer = self._pieces[0]
        if base + buffer.size < offset + needed:
            self._join(offset, needed)
            base, buffer = self._pieces[0]
        return buffer, offset - base

    def _take(self) -> bool:
        data = self._read(_CHUNK_BYTES)
        if not data:
            return False
        self._pieces.append((self._taken, pa.py_buffer(data)))
        self._taken += len(data)
        if self._limit is not None and self._taken > self._limit:
            raise LimitExceededError(
                f"the file holds more than max_decompressed_bytes, {self._limit}, once it is "
                "decompressed; raise max_decompressed_bytes if the file is to be trusted"
            )
        return True

    def _join(self, offset: int, needed: int) -> None:
        """Put `needed` bytes from `offset` on in front, as one piece."""
        # A bytearray grows in place, so that a large record is held once, not twice.
        joined = bytearray()
        try:
            while len(joined) < needed and (self._pieces or self._take()):
                base, buffer = self._pieces[0]
                start = offset + len(joined) - base
                joined += memoryview(buffer)[start : start + needed - len(joined)]
                if base + buffer.size <= offset + len(joined):
                    self._pieces.popleft()
        finally:
            self._pieces.appendleft((offset, pa.py_buffer(joined)))


def _end(piece: tuple[int, pa.Buffer]) -> int:
    base, buffer = piece
    return base + int(buffer.size)
