"""The bytes of one file in windows, plain or decompressed, mapped or read.

A decoder asks for the window at its offset and takes what it can of it. Four sources give windows:

- `_Held`: a small plain local file, read as a whole.
- `_Mapped`: any other plain local file, mapped as a whole, once for all threads that read parts of
  it. Nothing is copied, and what was read leaves memory again. The file must not be cut
  short in place meanwhile: the operating system then ends the process. Writers that replace files
  (ours, Hadoop's, most others) are safe.
- `_Read`: one that is not to be mapped, or cannot be, or that its reader goes
  through. Of a mapped one it gives what stands in huge pages as it is, since the rest takes
  longer to map than to read. What is written, copied or read a little at a time stands in small
  ones, as do the first megabytes of what is read in its order, and every file where the kernel
  or the file system has no others.
- `_Streamed`: everything else. Chunks are read one after the other, and only the record that
  crosses from one chunk into the next is copied together, once. Those of remote files are
  `tfrecord_io.reading.ranges`, which are fetched ahead of the decoder.

Invariants: memory is bounded by a chunk, or the ranges under way, and a record; no length that
stands in a file is trusted for an allocation. A file is held to the version it was listed with:
a local one when it is opened, a remote one with every range.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import mmap
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import BinaryIO, Protocol

import pyarrow as pa

from tfrecord_io.compression import HEAD_BYTES, detect, normalize_compression
from tfrecord_io.decompression import decompressor
from tfrecord_io.errors import CompressionError, DatasetChangedError, LimitExceededError
from tfrecord_io.parallel import read_ahead
from tfrecord_io.plan import ScanFile, ScanOptions
from tfrecord_io.reading.ranges import Fetch, FirstRange, Ranges
from tfrecord_io.storage import Storage
from tfrecord_io.storage.protocol import naming

#: Bytes that are read at a time.
_CHUNK_BYTES = 4 * 1024 * 1024

#: Bytes that are decompressed ahead.
_AHEAD_BYTES = 2 * _CHUNK_BYTES

#: A local file of up to this many bytes is read in one go, which takes less than to map it.
_SMALL_BYTES = 256 * 1024

#: Mapped bytes are looked at, and leave memory again, so many at a time: that makes threads wait.
_RELEASE_BYTES = 16 * 1024 * 1024

#: A local file is read in so many bytes at a time, and over the place where its reader stops, since
#: the last record goes over it.
_READ_BYTES = 16 * 1024 * 1024
_READ_OVER_BYTES = 64 * 1024

#: A huge page, and how much of a file Linux maps at a time where there is none.
_HUGE_PAGE_BYTES = 2 * 1024 * 1024
_FAULT_BYTES = 64 * 1024
#: So many of these are looked at, to tell one from the other.
_PROBES = 4

# `mmap.madvise`, or an index into memory, holds the interpreter's lock meanwhile, for which the
# other threads would wait. These check no bounds.
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_memchr = ctypes.CDLL(None).memchr
_memchr.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t

#: Linux alone has them.
_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


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
    stop : int, optional
        Offset up to which a remote file is fetched ahead, and of a mapped one leaves memory again;
        without it, its end.
    first : FirstRange, optional
        What is fetched of a remote file already, from `start` on.
    mapped : MappedFile, optional
        The file as another one has it in memory, who found it plain and local.
    decompress_ahead : bool
        Whether a compressed file is decompressed by a thread of its own, ahead of the caller.
    goes_through : bool
        Whether the caller goes through all bytes and keeps none. Those of a mapped file are read
        then where that takes less than to map them.

    Attributes
    ----------
    source : Source
        Its bytes.
    glanced : Source
        The same, for whoever looks at few of them.
    compression : str or None
        What it turned out to be compressed with.
    mapped : MappedFile or None
        The file in memory, if it is there.
    """

    def __init__(
        self,
        storage: Storage,
        file: ScanFile,
        options: ScanOptions,
        *,
        start: int = 0,
        stop: int | None = None,
        first: FirstRange | None = None,
        mapped: MappedFile | None = None,
        decompress_ahead: bool = False,
        goes_through: bool = False,
    ) -> None:
        self.source: Source
        self.compression = None
        self.mapped = mapped
        self._opened: BinaryIO | Ranges | _Mapped
        self._decompress_ahead = decompress_ahead
        self._chunks: Generator[bytes, None, None] | None = None
        if mapped is None:
            if options.compression != "infer":
                self.compression = normalize_compression(options.compression)
            self._limit = options.limits.max_decompressed_bytes
            if storage.local_path(file.path) is not None:
                self._open_local(storage, file, options, start, stop)
            else:
                if self.compression is not None and start:
                    start, stop, first = 0, None, None
                self._open_remote(
                    range_fetcher(storage, file), file, options, start=start, stop=stop, first=first
                )
        if self.mapped is not None:
            self.source = self._opened = part = _Mapped(self.mapped, start, stop)
        self.glanced = self.source
        if self.mapped is not None and goes_through:
            self.source = _Read(self.mapped.handle, file.size, start, stop, part)

    def _open_local(
        self, storage: Storage, file: ScanFile, options: ScanOptions, start: int, stop: int | None
    ) -> None:
        data = None
        handle: BinaryIO
        reader: _Readable
        if file.size <= _SMALL_BYTES:
            data = storage.read_range(file.path, 0, file.size, file.version)
            check_end(len(data), file.size)
            reader = handle = io.BytesIO(data)
        else:
            handle = storage.open_read(file.path, file.version)
            reader = _InTurn(handle, file.size)
        self._opened = handle
        try:
            head = b""
            if options.compression == "infer":
                head = read_head(reader)
                self.compression = detect(head, file.path)
            if self.compression is not None:
                self.source = self._decompressed(_Prefixed(head, reader))
            elif data is not None:
                self.source = _Held(data)
            else:
                self.source = _Read(handle, file.size, start, stop)
                if options.memory_map:
                    # Some network file systems map nothing, some processes may map little, and a
                    # file that is shorter by now, of which reading it tells, is a ValueError.
                    with contextlib.suppress(OSError, ValueError):
                        self.mapped = MappedFile(handle, file.size)
        except BaseException:
            self.close()
            raise

    def _open_remote(
        self,
        fetch: Fetch,
        file: ScanFile,
        options: ScanOptions,
        *,
        start: int,
        stop: int | None,
        first: FirstRange | None,
    ) -> None:
        self._opened = ranges = Ranges(fetch, file.size, start=start, stop=stop, first=first)
        try:
            if options.compression == "infer":
                head = head_of(fetch, file) if start else ranges.peek(HEAD_BYTES)
                self.compression = detect(head, file.path)
                if self.compression is not None and start:
                    ranges.close()
                    self._opened = ranges = Ranges(fetch, file.size)
                elif self.compression is not None:
                    ranges.reach_the_end()
            if self.compression is not None:
                self.source = self._decompressed(ranges)
            else:
                self.source = _Streamed(ranges.take, size=file.size, start=start)
        except BaseException:
            self.close()
            raise

    def _decompressed(self, reader: _Readable) -> Source:
        assert self.compression is not None
        stream = decompressor(self.compression, reader)

        def read() -> bytes:
            return stream.read(_CHUNK_BYTES)

        if not self._decompress_ahead:
            return _Streamed(read, limit=self._limit)
        self._chunks = chunks = read_ahead(
            lambda: iter(read, b""), item_bytes=len, budget_bytes=_AHEAD_BYTES
        )
        return _Streamed(lambda: next(chunks, b""), limit=self._limit)

    def close(self) -> None:
        """Close the file; buffers that were given out stay good."""
        if self._chunks is not None:
            self._chunks.close()
        self._opened.close()

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def range_fetcher(storage: Storage, file: ScanFile) -> Fetch:
    """Return what fetches ranges of a file, in the version that was listed."""

    def fetch(start: int, end: int) -> bytes | memoryview:
        return storage.read_range(file.path, start, end, file.version)

    return fetch


def head_of(fetch: Fetch, file: ScanFile) -> bytes:
    """Fetch what tells how a file is compressed."""
    return bytes(fetch(0, min(HEAD_BYTES, file.size)))


def check_end(
    end: int, size: int | None, *, offset: int | None = None, record: int | None = None
) -> None:
    """Raise `DatasetChangedError` if a file ends before the size that it was listed with."""
    if size is not None and end < size:
        raise DatasetChangedError(
            f"the file ended at byte {end} when it was read, and behind it when it was listed; "
            "read the data set again",
            offset=offset,
            record=record,
        )


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_head(file: _Readable) -> bytes:
    """Read what tells how a file is compressed; a read may give less than it is asked for."""
    head = b""
    while len(head) < HEAD_BYTES and (more := file.read(HEAD_BYTES - len(head))):
        head += more
    return head


class _InTurn:
    """An open file's bytes from its beginning on, up to the size that it was listed with.

    The place is this object's own: a forked process shares that of the file with its parent.
    """

    def __init__(self, handle: BinaryIO, size: int) -> None:
        self._handle = handle
        self._size = size
        self._offset = 0

    def read(self, size: int, /) -> bytes:
        size = min(size, self._size - self._offset)
        with naming(self._handle.name):
            data = os.pread(self._handle.fileno(), size, self._offset)
        self._offset += len(data)
        if not data:
            check_end(self._offset, self._size)
        return data


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


class MappedFile:
    """A plain local file in memory, for all who read it at the same time.

    Parameters
    ----------
    handle : BinaryIO
        The open file. It is closed with this object.
    size : int
        Its length in bytes.

    Attributes
    ----------
    buffer : pyarrow.Buffer
        All of it. Only what is looked at takes memory.
    handle : BinaryIO
        The open file.
    """

    def __init__(self, handle: BinaryIO, size: int) -> None:
        self.handle = handle
        self.buffer = pa.py_buffer(
            mmap.mmap(handle.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        )
        # Not at the process's end, when threads may still read.
        weakref.finalize(self, handle.close).atexit = False
        if size and _HUGE_PAGES is not None:
            # What comes from the disk then stands in pages of 2 MiB, of which this and each later
            # reader maps one at a time, not 16 of 4 KiB. A kernel without them says so in vain.
            _madvise(self.buffer.address, size, _HUGE_PAGES)
        self._lock = threading.Lock()
        # Ranges that were read, and how many bytes these are.
        self._read: list[tuple[int, int]] = []
        self._read_bytes = 0

    def is_read_faster(self, start: int, end: int) -> bool:
        """Return whether to read a range takes less than to map it: no huge page is there.

        One of 2 MiB is mapped in less time than it is read. Small ones take twice as long as that.
        """
        # What stands first may have been read a little at a time, to tell what the file is.
        page = (start // _HUGE_PAGE_BYTES + 1) * _HUGE_PAGE_BYTES
        return page + _HUGE_PAGE_BYTES > end or not _is_huge(self.buffer, page)

    def release(self, start: int, end: int) -> None:
        """Let what stands between two offsets leave memory; it comes back when it is needed.

        Offsets behind the end of the file count as its end.
        """
        end = min(end, self.buffer.size)
        if start >= end:
            return
        with self._lock:
            self._read.append((start, end))
            self._read_bytes += end - start
            if self._read_bytes < _RELEASE_BYTES:
                return
            ranges, self._read, self._read_bytes = sorted(self._read), [], 0
        for first, last in _joined(ranges):
            first -= first % mmap.PAGESIZE
            _madvise(self.buffer.address + first, last - first, mmap.MADV_DONTNEED)


def _is_huge(buffer: pa.Buffer, start: int) -> bool:
    """Look at what may be a huge page, and tell by the faults whether it was mapped as one."""
    before = _faults()
    for place in range(start, start + _PROBES * _FAULT_BYTES, _FAULT_BYTES):
        _memchr(buffer.address + place, 0, 1)
    return _faults() - before < _PROBES // 2


def _faults() -> int:
    """Return how many pages this thread had to wait for; but on Linux, the process."""
    used = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    return used.ru_minflt + used.ru_majflt


def _joined(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start, end = ranges[0]
    for first, last in ranges[1:]:
        if first > end:
            yield start, end
            start = first
        end = max(end, last)
    yield start, end


class _Mapped:
    """A part of a mapped file that is gone through."""

    is_mapped = True

    def __init__(self, file: MappedFile, start: int, stop: int | None) -> None:
        self.size: int | None = file.buffer.size
        self.file = file
        self._released = start
        self._stop = file.buffer.size if stop is None else stop

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        if offset - self._released >= _RELEASE_BYTES:
            self._release(offset)
        buffer = self.file.buffer
        start = min(offset, buffer.size)
        return buffer.slice(start, min(max(needed, _RELEASE_BYTES), buffer.size - start)), 0

    def close(self) -> None:
        """Release the rest of the part."""
        self._release(self._stop)

    def _release(self, end: int) -> None:
        if self._released < end:
            self.file.release(self._released, end)
            self._released = end


class _Read:
    """A part of a local file, read at its places; what it gave out stays good.

    If it is mapped as well, what takes less to map than to read is not read.
    """

    is_mapped = False

    def __init__(
        self,
        handle: BinaryIO,
        size: int,
        start: int,
        stop: int | None,
        mapped: _Mapped | None = None,
    ) -> None:
        self.size: int | None = size
        self._handle = handle
        self._mapped = mapped
        self._end = size
        self._stop = size if stop is None else min(stop + _READ_OVER_BYTES, size)
        self._begin = start
        self._buffer = pa.py_buffer(b"")

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        start = offset - self._begin
        if not 0 <= start <= self._buffer.size - needed:
            end = max(min(offset + _READ_BYTES, self._stop), min(offset + needed, self._end))
            self._buffer = self._range(offset, max(end, offset))
            self._begin, start = offset, 0
        return self._buffer, start

    def _range(self, start: int, end: int) -> pa.Buffer:
        if self._mapped is not None:
            window, _ = self._mapped.window(start, end - start)
            if not self._mapped.file.is_read_faster(start, end):
                return window
        # Where Arrow can, this is memory that was in use before.
        buffer = pa.allocate_buffer(end - start)
        view = memoryview(buffer)
        there = 0
        while there < len(view):
            with naming(self._handle.name):
                more = os.preadv(self._handle.fileno(), [view[there:]], start + there)
            if not more:
                # The file was cut short.
                break
            there += more
        return buffer.slice(0, there)


class _Held:
    """A small file, all of it."""

    is_mapped = True

    def __init__(self, data: bytes | memoryview) -> None:
        self.size: int | None = len(data)
        self._buffer = pa.py_buffer(data)

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        del needed
        return self._buffer, min(offset, self._buffer.size)


class _Streamed:
    """Bytes that come one chunk after the other."""

    is_mapped = False

    def __init__(
        self,
        read: Callable[[], bytes | memoryview],
        *,
        size: int | None = None,
        limit: int | None = None,
        start: int = 0,
    ) -> None:
        self.size = size
        self._read = read
        self._limit = limit
        self._taken = start
        # A stream that broke gives nothing more, which is not its end.
        self._error: CompressionError | None = None
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
        if self._error is not None:
            raise self._error
        try:
            data = self._read()
        except CompressionError as error:
            self._error = error
            raise
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
