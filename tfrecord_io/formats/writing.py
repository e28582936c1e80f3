"""Part files of other formats: a job's batches in normal form, in groups that only rows decide.

pyarrow's writers make a row group, stripe or batch of what they are given at once. So rows are
gathered here and cut where a count of rows, or of bytes that is worked out from the values alone,
is reached. Memory is bounded by a group for each open file.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.arrow_views import without_any_views, without_dictionary_views
from tfrecord_io.compression import Compression, Compressor, Map, compressor, suffix
from tfrecord_io.errors import EncodeError, OptionError, UnsupportedTypeError
from tfrecord_io.formats import get_format
from tfrecord_io.formats.base import (
    Format,
    TableWriter,
    refuse_far_times,
    refuse_null,
    refuse_unfit_times,
)
from tfrecord_io.plan import WriteJob
from tfrecord_io.schema import check_writable as check_columns
from tfrecord_io.schema import normal_schema
from tfrecord_io.storage import Sink
from tfrecord_io.writing.part_writer import FileWriter, WrittenFile

#: A group ends with the row that reaches one of these.
_GROUP_ROWS = 131_072
_GROUP_BYTES = 32 * 1024 * 1024


def check_writable(
    name: str, schema: pa.Schema, compression: Compression | None, level: int | None
) -> None:
    """See `tfrecord_io.writing.part_writer.check_file_format`."""
    found = get_format(name)
    if compression is not None and compression not in found.compressions:
        known = ", ".join(map(repr, found.compressions)) or "none"
        raise OptionError(
            f"compression is {compression!r}, which {name} files do not have; they have {known}"
        )
    if level is not None and compression not in found.leveled:
        raise OptionError(
            f"compression_level is {level!r}, and {name} files with compression {compression!r} "
            "have no levels; leave it out"
        )
    # What TFRecord cannot hold, manifests cannot name.
    check_columns(schema, "SequenceExample")
    for field in normal_schema(schema):
        only = pa.schema([field])
        try:
            writer = found.open_writer(cast("BinaryIO", io.BytesIO()), only, None, None)
            writer.write(pa.RecordBatch.from_arrays([pa.array([], field.type)], schema=only))
            writer.close()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, UnsupportedTypeError) as error:
            raise UnsupportedTypeError(
                f"column {field.name!r} has the type {field.type}, which {name} files cannot "
                "hold: cast it, leave it out with columns, or choose another format",
                feature=field.name,
            ) from error


class OtherFormat:
    """Files of a format of `tfrecord_io.formats`, as `FileFormat` of the part writer has them."""

    def __init__(self, job: WriteJob, map_pieces: Map = map) -> None:
        self._job = job
        self._map_pieces = map_pieces
        self._format = get_format(job.file_format)
        self._fields = list(job.data_schema)
        self._schema = normal_schema(job.data_schema)
        self.extension = extension_of(self._format, job.compression)

    def prepare(
        self, batch: pa.RecordBatch, row_offset: int
    ) -> tuple[pa.RecordBatch, frozenset[str]]:
        """Cast to normal form, which changes no value."""
        if not self._fields and batch.num_rows:
            raise EncodeError(
                f"there are rows without columns, and {self._format.name} files cannot hold them: "
                "choose at least one column, or write TFRecord"
            )
        arrays = []
        for field, target in zip(self._fields, self._schema, strict=True):
            column = batch.column(field.name)
            if not self._format.has_far_years:
                refuse_far_times(field.name, column, row_offset)
            array = _normal(column, target.type)
            if not field.nullable:
                # Only now the nulls that a dictionary has among its values are counted.
                refuse_null(field.name, array, row_offset)
            refuse_unfit_times(field.name, array, row_offset, self._format)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), frozenset()

    def open(self, sink: Sink) -> FileWriter:
        """Begin a file."""
        return _Writer(sink, self._format, self._schema, self._job, self._map_pieces)


def extension_of(found: Format, compression: Compression | None) -> str:
    """Return what the names of part files end in."""
    return found.suffixes[0] + (suffix(compression) if found.is_wrapped else "")


def _normal(array: pa.Array, target: pa.DataType) -> pa.Array:
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    array = without_any_views(array)
    return array if array.type == target else without_dictionary_views(array).cast(target)


class _SinkFile(io.RawIOBase):
    """A sink as a file object, through a compressor or not; closing it leaves the sink open."""

    def __init__(self, sink: Sink, stream: Compressor | None) -> None:
        self._sink = sink
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        copied = bytes(data)
        self._sink.write(copied if self._stream is None else self._stream.compress(copied))
        return len(copied)

    def finish(self) -> None:
        """Write what the compressor holds."""
        if self._stream is not None:
            self._sink.write(self._stream.flush())


class _Writer:
    """Writes one part file."""

    def __init__(
        self, sink: Sink, found: Format, schema: pa.Schema, job: WriteJob, map_pieces: Map
    ) -> None:
        self._sink = sink
        self._is_grouped = found.is_grouped
        inner, level = job.compression, job.compression_level
        stream = None
        if found.is_wrapped and inner is not None:
            stream = compressor(inner, level, map_pieces)
            inner, level = None, None
        self._file = _SinkFile(sink, stream)
        file = cast("BinaryIO", self._file)
        self._table: TableWriter = found.open_writer(file, schema, inner, level)
        self._rows = 0
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if not self._is_grouped:
            self._table.write(batch)
            return
        ends = _row_ends(batch)
        start, start_bytes = 0, 0
        while start < batch.num_rows:
            full = int(np.searchsorted(ends, start_bytes + _GROUP_BYTES - self._held_bytes)) + 1
            end = min(full, start + _GROUP_ROWS - self._held_rows, batch.num_rows)
            self._held.append(batch.slice(start, end - start))
            self._held_rows += end - start
            self._held_bytes += int(ends[end - 1]) - start_bytes
            start, start_bytes = end, int(ends[end - 1])
            if self._held_rows == _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
                self._write_group()

    def _write_group(self) -> None:
        if not self._held:
            return
        group = pa.concat_batches(self._held)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        self._table.write(group)

    def close(self) -> WrittenFile:
        self._write_group()
        self._table.close()
        self._file.finish()
        staged = self._sink.close()
        return WrittenFile(staged=staged, rows=self._rows, bytes=self._sink.size)


def _row_ends(batch: pa.RecordBatch) -> Any:
    """Return the bytes of the values up to and with each row, as int64."""
    total = np.zeros(batch.num_rows + 1, np.int64)
    for column in batch.columns:
        total += _ends(column)
    return total[1:]


def _ends(array: pa.Array) -> Any:
    """Return the bytes of the values before each row, and of all."""
    t = array.type
    if pat.is_list(t) or pat.is_fixed_size_list(t):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        return _ends(array.flatten())[_sums(lengths)]
    if pat.is_string(t) or pat.is_binary(t):
        lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        return _sums(lengths)
    width = 0 if pat.is_null(t) else max(1, t.bit_width // 8)
    return np.arange(len(array) + 1, dtype=np.int64) * width


def _sums(lengths: Any) -> Any:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
