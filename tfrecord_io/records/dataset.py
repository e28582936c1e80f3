"""Records of any number of files, for loops over TensorFlow's TFRecordDataset."""

from __future__ import annotations

import itertools
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from tfrecord_io.errors import OptionError
from tfrecord_io.options import Limits
from tfrecord_io.records.options import options_of
from tfrecord_io.records.reader import TFRecordReader

#: How TensorFlow is asked to find a number by itself.
AUTOTUNE = -1


class Record(bytes):
    """The payload of a record, which a program may ask for its bytes as it asks a tensor."""

    __slots__ = ()

    def numpy(self) -> bytes:
        """Return the bytes."""
        return bytes(self)


class RecordDataset(Iterable[Record]):
    """Records that may be gone through any number of times, or a part of them.

    Of the methods of a tf.data.Dataset it has those of programs that take records one by one.
    """

    @abstractmethod
    def _payloads(self) -> Iterator[bytes]: ...

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self._payloads())

    def as_numpy_iterator(self) -> Iterator[bytes]:
        """Return an iterator over the records' bytes."""
        return self._payloads()

    def take(self, count: int) -> RecordDataset:
        """Return the first so many records.

        Parameters
        ----------
        count : int
            If it is below 0, or there are fewer, these are all.

        Returns
        -------
        RecordDataset
            Of what follows no file is opened.
        """
        return _Part(self, 0, None if count < 0 else count)

    def skip(self, count: int) -> RecordDataset:
        """Return the records behind the first so many.

        Parameters
        ----------
        count : int
            If it is below 0, or there are no more, none is left.

        Returns
        -------
        RecordDataset
            The first ones are read each time, and left out.
        """
        return self.take(0) if count < 0 else _Part(self, count, None)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a dataset of records has no {name!r}, since they are bytes and not tensors: "
            "tfrecord_io.tf.dataset makes one of TensorFlow's, and tfrecord_io.batches gives arrays"
        )


class TFRecordDataset(RecordDataset):
    """The records of files, by the arguments of tf.data.TFRecordDataset.

    Parameters
    ----------
    filenames : str, bytes, path-like or iterable of these
        Local paths or fsspec URLs; none is a pattern.
    compression_type : {"", "GZIP", "ZLIB"} or None
        Of all files. None looks at each, and reads any compression that this package knows.
    buffer_size : int, optional
        Without effect.
    num_parallel_reads : int, optional
        So many files are open at a time, and each gives one record in turn, in TensorFlow's order.
        By default, and for `AUTOTUNE`, where TensorFlow's order hangs on the machine, one file
        comes after the other.
    name : str, optional
        Without effect.
    storage_options : mapping, optional
        For the fsspec file systems.
    limits : Limits, optional
        What a file may demand before it is refused.

    Raises
    ------
    OptionError
        No such compression, or `num_parallel_reads` is 0 or below -1.

    Notes
    -----
    Files are opened when it is gone through, which raises what `TFRecordReader` does.

    Examples
    --------
    >>> import tfrecord_io as tf
    >>> with tf.io.TFRecordWriter("memory://dataset.tfrecord") as writer:
    ...     for record in (b"one", b"two", b"three"):
    ...         writer.write(record)
    >>> dataset = tf.data.TFRecordDataset("memory://dataset.tfrecord")
    >>> [record.numpy() for record in dataset.take(2)]
    [b'one', b'two']
    """

    def __init__(
        self,
        filenames: str | bytes | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        del buffer_size, name
        if isinstance(filenames, str | bytes | os.PathLike):
            filenames = [filenames]
        self._paths = [*filenames]
        if num_parallel_reads not in (None, AUTOTUNE) and num_parallel_reads < 1:
            raise OptionError(
                f"num_parallel_reads is {num_parallel_reads}; it must be above 0, or AUTOTUNE"
            )
        self._at_a_time = max(num_parallel_reads or 1, 1)
        self._open = partial(
            TFRecordReader,
            options=options_of(compression_type),
            storage_options=storage_options,
            limits=limits,
        )

    def _payloads(self) -> Iterator[bytes]:
        return _interleaved((iter(self._open(path)) for path in self._paths), self._at_a_time)


class _Part(RecordDataset):
    def __init__(self, whole: RecordDataset, start: int, stop: int | None) -> None:
        self._whole = whole
        self._slice = start, stop

    def _payloads(self) -> Iterator[bytes]:
        return itertools.islice(self._whole._payloads(), *self._slice)


def _interleaved(files: Iterator[Iterator[bytes]], count: int) -> Iterator[bytes]:
    """Give a record of each of so many files in turn, as TensorFlow does.

    Where one ends its turn is over, and at the next one another file takes its place.
    """
    if count == 1:
        yield from itertools.chain.from_iterable(files)
        return
    places: list[Iterator[bytes] | None] = [None] * count
    for place in itertools.cycle(range(count)):
        file = places[place] = places[place] or next(files, None)
        if file is not None:
            record = next(file, None)
            if record is None:
                places[place] = None
            else:
                yield record
        elif not any(places):
            return
