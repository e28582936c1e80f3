"""Reads single files of records as bytes: one after the other, by index, or by offset.

Going through a file takes the payloads of many records by one call of the codec. Random access to a
plain file looks at the record alone; to a compressed one it decompresses what stands before it. By
index, it first hops over the file once to learn where records start, or takes that from an index
file.
"""

from __future__ import annotations

import itertools
import operator
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, overload

import pyarrow as pa

from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import HEADER_BYTES, OVERHEAD_BYTES
from tfrecord_io.compression import detect
from tfrecord_io.errors import (
    ClosedError,
    CorruptDataError,
    DatasetChangedError,
    TFRecordError,
    TruncatedRecordError,
)
from tfrecord_io.options import Limits, settings
from tfrecord_io.plan import ScanFile, ScanOptions
from tfrecord_io.reading.frames import PayloadCursor, walk
from tfrecord_io.reading.ranges import Fetch
from tfrecord_io.reading.source import OpenFile, Source, check_end, head_of, range_fetcher
from tfrecord_io.records.index_files import read_index, record_starts
from tfrecord_io.records.options import TFRecordOptions, compression_to_read, options_of
from tfrecord_io.storage import Storage, open_storage
from tfrecord_io.tf_errors import as_tensorflow, dressed

#: The least that is fetched of a remote file for one record.
_RANGE_BYTES = 64 * 1024


class TFRecordReader(Sequence[bytes]):
    """The records of one file, as bytes: a sequence, which may be gone through any number of times.

    Parameters
    ----------
    path : str, bytes or path-like
        Local path or fsspec URL.
    options : TFRecordOptions, str, int or None
        See `TFRecordOptions`. Without a compression the file is looked at, and any that this
        package knows is read; ``""`` is a plain file.
    index : str or path-like, optional
        An index file of it (`tfrecord_io.write_index`), which saves hopping over a plain file.
    storage_options : mapping, optional
        For the fsspec file systems of both.
    limits : Limits, optional
        What the file may demand before it is refused.

    Raises
    ------
    OptionError
        No such compression.
    CorruptDataError
        The index is that of another file, or none. One that fits in length but cuts the file
        elsewhere shows once a record that it tells wrong is asked for. One that is older than the
        file is warned of, since it may count other records.
    FileNotFoundError, PermissionError, IsADirectoryError
        The file cannot be read.

    Notes
    -----
    Going through it, and ``reader[i]``, raise `CorruptDataError` where the file is damaged,
    `OptionError` if it is a plain one and `options` has a compression, and `DatasetChangedError` if
    it was replaced meanwhile. ``len(reader)`` and the first ``reader[i]`` hop over the whole file.
    It pickles by its path; use it in one thread at a time.

    Examples
    --------
    >>> import tfrecord_io as tfr
    >>> with tfr.TFRecordWriter("memory://reader.tfrecord") as writer:
    ...     for record in (b"one", b"two", b"three"):
    ...         writer.write(record)
    >>> reader = tfr.TFRecordReader("memory://reader.tfrecord")
    >>> list(reader), len(reader), reader[-1], reader.read(0)
    ([b'one', b'two', b'three'], 3, b'three', (b'one', 19))
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        options: Any = None,
        *,
        index: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._path = os.fsdecode(path) if isinstance(path, bytes) else path
        self._record_options = options_of(options)
        self._storage_options = settings(storage_options)
        self._options = ScanOptions(
            compression=compression_to_read(self._record_options),
            limits=limits if limits is not None else Limits(),
        )
        self._codec = get_codec()
        self._starts: array[int] | None = None
        self._index = index
        self._access: _Access | None = None
        self._is_closed = False
        with as_tensorflow():
            self._storage, inner = open_storage(self._path, storage_options)
            info = self._storage.info(inner)
        self._file = ScanFile(
            location=0,
            path=inner,
            url=self._storage.url(inner),
            size=info.size,
            version=info.version,
        )
        if index is not None:
            with as_tensorflow():
                self._starts = read_index(index, self._file, info.modified, storage_options)

    def __iter__(self) -> Iterator[bytes]:
        self._check_open()
        return itertools.chain.from_iterable(self._payloads(self._cursor()))

    def _cursor(self) -> PayloadCursor:
        return PayloadCursor(self._codec, self._options.limits)

    def _payloads(self, cursor: PayloadCursor) -> Iterator[list[bytes]]:
        with as_tensorflow(of_bytes=True):
            try:
                with self._opened() as opened:
                    for _ in walk(opened.source, cursor, cursor.take):
                        yield cursor.payloads
            except TFRecordError as error:
                raise self._placed(error) from error.__cause__

    def __len__(self) -> int:
        return len(self._known_starts()) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        position = operator.index(index)
        count = len(self)
        if not -count <= position < count:
            raise IndexError(f"record {position} is asked for, and the file has {count}")
        position %= count
        starts = self._known_starts()
        start = starts[position]
        return self._record(start, starts[position + 1] - start, record=position)

    def read(self, offset: int) -> tuple[bytes, int]:
        """Read the record that starts at an offset, like TensorFlow's random reader.

        Parameters
        ----------
        offset : int
            In the (decompressed) file: 0, or where another record ends.

        Returns
        -------
        record : bytes
            Its payload.
        end : int
            Offset of the next record.

        Raises
        ------
        IndexError
            The file ends there, or before.
        CorruptDataError
            No sound record starts there.
        """
        if offset < 0:
            raise IndexError(f"offset {offset} is before the file's beginning")
        record = self._record(offset, None)
        return record, offset + len(record) + OVERHEAD_BYTES

    def close(self) -> None:
        """Close the file; once more is fine."""
        self._is_closed = True
        self._let_go()

    def __enter__(self) -> TFRecordReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_access"):
            self._let_go()

    def __reduce__(self) -> tuple[Any, ...]:
        how = {
            "index": self._index,
            "storage_options": self._storage_options,
            "limits": self._options.limits,
        }
        return _reopened, (self._path, self._record_options, how)

    def _record(self, offset: int, size: int | None, *, record: int | None = None) -> bytes:
        """Return the payload of the frame at an offset, of which the size may be known."""
        self._check_open()
        with as_tensorflow(of_bytes=True):
            try:
                access = self._accessed(offset)
                cursor = self._cursor()
                cursor.seek(offset=offset, record=0)
                needed = size or HEADER_BYTES
                while True:
                    try:
                        data, start = access.window(offset, needed)
                    except BaseException:
                        # What was on its way is lost: asked again, the file is opened anew.
                        self._let_go()
                        raise
                    there = data.size - start
                    if there < needed:
                        check_end(offset + there, access.size, offset=offset)
                    if there <= 0:
                        raise IndexError(f"the file ends at or before offset {offset}")
                    cursor.take(data.slice(0, start + min(there, needed)), start)
                    if cursor.payloads:
                        payload = cursor.payloads[0]
                        if size is not None:
                            self._check_index(offset, size, len(payload) + OVERHEAD_BYTES)
                        return payload
                    if there < needed:
                        raise TruncatedRecordError(
                            f"the file ends inside a record: {there} of its {cursor.needed} "
                            "bytes are there; write or copy it again",
                            offset=offset,
                        )
                    needed = cursor.needed
            except TFRecordError as error:
                error.record = record
                raise self._placed(error) from error.__cause__

    def _check_index(self, offset: int, told: int, found: int) -> None:
        if told != found:
            raise CorruptDataError(
                "the index is that of another file, or of another state of it: it has a record of "
                f"{told} bytes here, which takes {found}; write the index again",
                offset=offset,
            )

    def _known_starts(self) -> array[int]:
        """Return where each record starts, and at last where the last one ends."""
        self._check_open()
        if self._starts is None:
            with as_tensorflow(of_bytes=True):
                self._starts = record_starts(self._storage, self._file, self._options, self._codec)
        return self._starts

    def _opened(self) -> OpenFile:
        return OpenFile(self._storage, self._file, self._options)

    def _accessed(self, offset: int) -> _Access:
        if self._access is not None and not self._access.reaches(offset):
            self._let_go()
        if self._access is None:
            self._access = _access(self._storage, self._file, self._options)
        return self._access

    def _identity(self) -> tuple[int, int] | None:
        """Return what tells the file on this machine from another one in its place, or None."""
        local = self._storage.local_path(self._file.path)
        try:
            status = None if local is None else os.stat(local)  # noqa: PTH116
        except FileNotFoundError:
            return None
        return None if status is None else (status.st_dev, status.st_ino)

    def _let_go(self) -> None:
        access, self._access = self._access, None
        if access is not None:
            access.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise dressed(
                ClosedError("the reader is closed; open another one", path=self._file.url)
            )

    def _placed(self, error: TFRecordError) -> TFRecordError:
        if error.path is None:
            error.path = self._file.url
        return error


def _reopened(
    path: str | os.PathLike[str], options: TFRecordOptions, how: dict[str, Any]
) -> TFRecordReader:
    return TFRecordReader(path, options, **how)


def tf_record_iterator(
    path: str | bytes | os.PathLike[str], options: Any = None
) -> Iterator[bytes]:
    """Return an iterator over a file's records, like tf.compat.v1.python_io.tf_record_iterator.

    Parameters
    ----------
    path : str, bytes or path-like
        Local path or fsspec URL.
    options : TFRecordOptions, str, int or None
        See `TFRecordReader`.

    Returns
    -------
    iterator of bytes
        The records' payloads. Behind the last one, and behind one that is only there in part, it
        goes on when the file has grown. It may be closed.

    Raises
    ------
    FileNotFoundError, TFRecordError
        See `TFRecordReader`.
    """
    return _Records(path, options)


class _Records(Iterator[bytes]):
    """The records of a file that may be growing: TensorBoard, and its like, count on that."""

    def __init__(self, path: str | bytes | os.PathLike[str], options: Any) -> None:
        self._open = partial(TFRecordReader, path, options)
        self._reader = self._open()
        self._cursor = self._reader._cursor()
        self._identity: tuple[int, int] | None = None
        self._run: Iterator[bytes] | None = None
        self._is_closed = False

    def __next__(self) -> bytes:
        while True:
            if self._run is None:
                self._run = self._begun()
            try:
                return next(self._run)
            except DatasetChangedError:
                # A file on this machine has grown between the look at it and its opening.
                self._run = None
                if self._identity is None:
                    raise
            except BaseException:
                # Its end, or an interrupt, behind which an iterator of Python's gives nothing more.
                self._run = None
                raise

    def _begun(self) -> Iterator[bytes]:
        offset = self._cursor.offset
        identity = self._reader._identity()
        if self._is_closed or (offset and (identity is None or identity != self._identity)):
            # Of another file in its place, the offset says nothing.
            raise StopIteration
        self._identity = identity
        self._cursor.seek(offset=offset, record=self._cursor.record)
        self._reader = self._open()
        return itertools.chain.from_iterable(self._reader._payloads(self._cursor))

    def close(self) -> None:
        """Close the file; there are no records any more."""
        self._is_closed = True
        self._run = None


class _Access:
    """An open file at any place of which records are looked at."""

    def __init__(self, source: Source | _Ranged, close: Callable[[], None]) -> None:
        self._source = source
        self.size: int | None = source.size
        self._reached = 0
        # Threads that fetch a remote file ahead do not come along into a forked process.
        self._process = os.getpid()
        self.close = close

    def reaches(self, offset: int) -> bool:
        """Return whether a window at an offset can be had without opening the file anew."""
        is_ours = self._process == os.getpid()
        return is_ours and (self._source.is_mapped or offset >= self._reached)

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        """See `tfrecord_io.reading.source.Source.window`."""
        self._reached = offset
        return self._source.window(offset, needed)


class _Ranged:
    """A plain file in a remote store, of which ranges are fetched where they are asked for."""

    is_mapped = True

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch = fetch
        self.size = size
        self._begin = 0
        self._buffer = pa.py_buffer(b"")

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        """See `tfrecord_io.reading.source.Source.window`."""
        end = min(offset + needed, self.size)
        if not self._begin <= offset <= end <= self._begin + self._buffer.size:
            self._begin = offset
            end = min(max(end, offset + _RANGE_BYTES), self.size)
            self._buffer = pa.py_buffer(self._fetch(self._begin, end) if end > offset else b"")
        return self._buffer, offset - self._begin


def _access(storage: Storage, file: ScanFile, options: ScanOptions) -> _Access:
    if storage.local_path(file.path) is None and file.size:
        fetch = range_fetcher(storage, file)
        compression = options.compression
        if compression == "infer":
            compression = detect(head_of(fetch, file), file.path)
        if compression is None:
            return _Access(_Ranged(fetch, file.size), lambda: None)
    opened = OpenFile(storage, file, options)
    return _Access(opened.source, opened.close)
