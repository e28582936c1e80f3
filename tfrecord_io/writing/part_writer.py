"""One part file: batches in, bytes out. The seam for file formats.

`tfrecord_io.writing.attempt` knows tasks, folders and staging; what the bytes of a file are, it
leaves to a `FileFormat`.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tfrecord_io.cast import ToWire
from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import BatchEncoder
from tfrecord_io.compression import Compression, Compressor, Map, compressor, suffix
from tfrecord_io.options import SPLIT_BYTES
from tfrecord_io.plan import WriteJob
from tfrecord_io.schema import wire_schema
from tfrecord_io.storage import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """What a closed file holds; see `tfrecord_io.manifest.ManifestFile`.

    What `staged` says is for `tfrecord_io.storage.protocol.Storage.publish`.
    """

    staged: str
    rows: int
    bytes: int
    marks: tuple[tuple[int, int], ...] = ()


class FileWriter(Protocol):
    """Writes one part file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch that the format has prepared."""

    def close(self) -> WrittenFile:
        """Make the file whole and durable."""


class FileFormat(Protocol):
    """Makes the files of one task."""

    #: What the names of its files end in.
    extension: str

    def prepare(
        self, batch: pa.RecordBatch, row_offset: int
    ) -> tuple[pa.RecordBatch, frozenset[str]]:
        """Bring a batch of the data columns to what `FileWriter.write` takes.

        Returns
        -------
        batch : pyarrow.RecordBatch
            The same rows.
        inexact : frozenset of str
            Columns in which a value is not exactly what is written.
        """

    def open(self, sink: Sink) -> FileWriter:
        """Begin a file."""


def file_format(job: WriteJob, map_pieces: Map = map) -> FileFormat:
    """Return the format that a job writes; for `map_pieces` see `attempt.write_task`."""
    if job.file_format == "tfrecord":
        return TFRecordFormat(job, map_pieces)
    # Loaded on demand: most writes need no other format.
    from tfrecord_io.formats.writing import OtherFormat

    return OtherFormat(job, map_pieces)


def check_file_format(
    name: str, schema: pa.Schema, compression: Compression | None, level: int | None
) -> None:
    """Raise unless files of another format than TFRecord can hold rows of this schema.

    Parameters
    ----------
    name : str
        See `tfrecord_io.formats.get_format`.
    schema : pyarrow.Schema
        The columns that go into the files.
    compression : str or None
        What the files are to be compressed with.
    level : int or None
        The level that was asked for.

    Raises
    ------
    OptionError
        There is no such format, or it has no such compression, or no levels of it.
    UnsupportedTypeError
        A type that the format cannot hold.
    MissingDependencyError
        The format needs a package that is not installed.
    """
    from tfrecord_io.formats.writing import check_writable

    check_writable(name, schema, compression, level)


class TFRecordFormat:
    """TFRecord files, compressed or not."""

    def __init__(self, job: WriteJob, map_pieces: Map) -> None:
        self._job = job
        self._map_pieces = map_pieces
        self._to_wire = ToWire(job.data_schema, float64=job.float64)
        wire = wire_schema(job.data_schema, reading=False)
        self._encoder = get_codec(job.codec).encoder(wire, job.record_type)
        self.extension = f".tfrecord{suffix(job.compression)}"

    def prepare(
        self, batch: pa.RecordBatch, row_offset: int
    ) -> tuple[pa.RecordBatch, frozenset[str]]:
        """Cast to wire types; see `tfrecord_io.cast.ToWire` for what is refused."""
        return self._to_wire(batch, row_offset=row_offset)

    def open(self, sink: Sink) -> FileWriter:
        """Begin a file."""
        job = self._job
        if job.compression is None:
            return _PlainWriter(sink, self._encoder)
        stream = compressor(job.compression, job.compression_level, self._map_pieces)
        return _CompressedWriter(sink, self._encoder, stream)


class _PlainWriter:
    """Writes framed records, and marks one about every `SPLIT_BYTES`."""

    __slots__ = ("_encoder", "_marks", "_next_mark", "_rows", "_sink")

    def __init__(self, sink: Sink, encoder: BatchEncoder) -> None:
        self._sink = sink
        self._encoder = encoder
        self._rows = 0
        self._next_mark = SPLIT_BYTES
        self._marks: list[tuple[int, int]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        data, offsets = self._encoder.encode(batch, self._sink.size)
        self._mark(offsets)
        self._sink.write(data)
        self._rows += batch.num_rows

    def _mark(self, offsets: pa.UInt64Array) -> None:
        begin, rows = self._sink.size, len(offsets) - 1
        while rows and begin + offsets[rows - 1].as_py() >= self._next_mark:
            # The first that starts there or behind it.
            row = bisect.bisect_left(
                range(rows), self._next_mark - begin, key=lambda row: offsets[row].as_py()
            )
            offset = begin + offsets[row].as_py()
            self._marks.append((offset, self._rows + row))
            self._next_mark = (offset // SPLIT_BYTES + 1) * SPLIT_BYTES

    def close(self) -> WrittenFile:
        staged = self._sink.close()
        return WrittenFile(
            staged=staged, rows=self._rows, bytes=self._sink.size, marks=tuple(self._marks)
        )


class _CompressedWriter:
    """Writes framed records through a compressor."""

    __slots__ = ("_encoder", "_rows", "_sink", "_stream")

    def __init__(self, sink: Sink, encoder: BatchEncoder, stream: Compressor) -> None:
        self._sink = sink
        self._encoder = encoder
        self._stream = stream
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        data, _ = self._encoder.encode(batch)
        self._sink.write(self._stream.compress(data))
        self._rows += batch.num_rows

    def close(self) -> WrittenFile:
        self._sink.write(self._stream.flush())
        staged = self._sink.close()
        return WrittenFile(staged=staged, rows=self._rows, bytes=self._sink.size)
