"""Parquet, ORC and Arrow IPC through pyarrow.

Row groups, stripes and batches are what a file is divided by. Columns that are not wanted are not
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tfrecord_io.compression import Compression
from tfrecord_io.errors import CorruptDataError, SchemaMismatchError, UnsupportedTypeError
from tfrecord_io.formats import old_calendar
from tfrecord_io.formats.base import (
    InputFile,
    Look,
    Piece,
    TableWriter,
    casts,
    damage_named,
    divided,
    refuse_twins,
    row_of,
)
from tfrecord_io.formats.exact import leaves
from tfrecord_io.schema import is_any_list, leaf_type
from tfrecord_io.time_text import storage_integer

#: Rows that are decoded at a time, or fewer large ones.
_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 * 1024 * 1024

_STREAM_MAGIC = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFormat:
    """Parquet; see `tfrecord_io.formats.base.Format`."""

    name: str = "parquet"
    suffixes: tuple[str, ...] = (".parquet", ".parq", ".pq")
    compressions: tuple[Compression, ...] = ("gzip", "zstd", "snappy", "lz4")
    leveled: tuple[Compression, ...] = ("gzip", "zstd")
    default_compression: Compression | None = "snappy"
    has_far_years: bool = True
    timestamp_unit: Literal["s", "ms", "ns"] | None = "ms"
    is_wrapped: bool = False
    is_grouped: bool = True

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Read the footer."""
        import pyarrow.parquet as pq

        del schema
        with file.open() as handle, damage_named(file.url), pq.ParquetFile(handle) as parquet:
            groups = [parquet.metadata.row_group(n) for n in range(parquet.num_row_groups)]
            return Look(
                schema=_decoded(parquet.schema_arrow),
                pieces=divided(
                    [group.total_byte_size for group in groups],
                    file.size,
                    [group.num_rows for group in groups],
                ),
            )

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Read row groups."""
        import pyarrow.parquet as pq

        del found
        with file.open() as handle, damage_named(file.url), pq.ParquetFile(handle) as parquet:
            groups = range(piece.start, piece.end)
            has_old = old_calendar.is_in_parquet(parquet.metadata.metadata)

            def batches(reader: Any) -> Iterator[pa.RecordBatch]:
                found = _row_groups(reader, groups, schema.names)
                return old_calendar.refused(found, file.url, piece.row) if has_old else found

            if not _has_int96(parquet):
                yield from batches(parquet)
                return
            with (
                file.open() as other,
                pq.ParquetFile(
                    other, metadata=parquet.metadata, coerce_int96_timestamp_unit="us"
                ) as coarse,
            ):
                times = _Int96(parquet, coarse, schema)
                times.refuse_changed(groups, file.url, piece.row)
                yield from batches(times.reader)

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file; each write is a row group."""
        import pyarrow.parquet as pq

        _refuse_scales(schema)
        _refuse_zero_width(schema)
        writer = pq.ParquetWriter(
            stream, schema, compression=compression or "none", compression_level=level
        )
        return _Grouped(writer, lambda table: writer.write_table(table, max(1, table.num_rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcFormat:
    """ORC; see `tfrecord_io.formats.base.Format`."""

    name: str = "orc"
    suffixes: tuple[str, ...] = (".orc",)
    compressions: tuple[Compression, ...] = ("deflate", "zstd", "snappy", "lz4")
    leveled: tuple[Compression, ...] = ()
    default_compression: Compression | None = "zstd"
    has_far_years: bool = True
    timestamp_unit: Literal["s", "ms", "ns"] | None = "ns"
    is_wrapped: bool = False
    is_grouped: bool = True

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Read the footer."""
        import pyarrow.orc as po

        del schema
        with file.open() as handle, damage_named(file.url):
            orc = po.ORCFile(handle)
            return Look(
                schema=_decoded(orc.schema),
                pieces=divided(_evenly(file.size, orc.nstripes), file.size),
            )

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Read stripes."""
        import pyarrow.orc as po

        del found
        with file.open() as handle, damage_named(file.url):
            orc = po.ORCFile(handle)
            # Of two columns of one name it reads the last.
            refuse_twins(orc.schema.names, schema.names, file.url)
            there = {*orc.schema.names}
            columns = [name for name in schema.names if name in there]
            # Without a column it would tell no rows.
            columns = columns or orc.schema.names[:1]
            numbers = range(piece.start, piece.end)
            stripes = (_read_stripe(orc, number, columns, file.url) for number in numbers)
            is_old = old_calendar.is_in_orc(orc)
            yield from old_calendar.refused(stripes, file.url, piece.row) if is_old else stripes

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file."""
        import pyarrow.orc as po

        del level
        _refuse_scales(schema)
        codec = "zlib" if compression == "deflate" else compression or "uncompressed"
        writer = po.ORCWriter(stream, compression=codec)
        # A writer that was given no rows knows no columns.
        stored = pa.schema([field.with_type(_orc_type(field.type)) for field in schema])
        writer.write(stored.empty_table())
        return _Grouped(writer, lambda table: writer.write(table.cast(stored)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFormat:
    """Arrow IPC files, and streams to read; see `tfrecord_io.formats.base.Format`."""

    name: str = "arrow"
    suffixes: tuple[str, ...] = (".arrow", ".feather", ".ipc", ".arrows")
    compressions: tuple[Compression, ...] = ("zstd", "lz4")
    leveled: tuple[Compression, ...] = ("zstd",)
    default_compression: Compression | None = None
    has_far_years: bool = True
    timestamp_unit: Literal["s", "ms", "ns"] | None = None
    is_wrapped: bool = False
    is_grouped: bool = True

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Read the schema."""
        del schema
        with file.open() as handle, damage_named(file.url):
            if _is_stream(handle):
                found = pa.ipc.open_stream(handle).schema
                return Look(schema=_decoded(found), pieces=(Piece(bytes=file.size),))
            ipc = pa.ipc.open_file(handle)
            return Look(
                schema=_decoded(ipc.schema),
                pieces=divided(_evenly(file.size, ipc.num_record_batches), file.size),
            )

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Read record batches."""
        del found
        with file.open() as handle, damage_named(file.url):
            if _is_stream(handle):
                stream = pa.ipc.open_stream(handle)
                wanted = _places(stream.schema, schema)
                for batch in stream:
                    yield _checked(batch.select(wanted))
                if handle.read(1):
                    raise CorruptDataError(
                        "the stream ends before the file does; give streams that were put "
                        "together as files of their own",
                        path=file.url,
                    )
                return
            wanted = _places(pa.ipc.open_file(handle).schema, schema)
            options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
            handle.seek(0)
            ipc = pa.ipc.open_file(handle, options=options)
            for index in range(piece.start, piece.end):
                batch = ipc.get_batch(index)
                # No wanted field is taken for all fields.
                yield _checked(batch if wanted else batch.select([]))

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file; each write is a record batch."""
        codec = None
        if compression == "lz4":
            codec = pa.Codec("lz4_frame")
        elif compression is not None:
            codec = pa.Codec(compression, level)
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        writer = pa.ipc.new_file(stream, schema, options=options)
        return _Grouped(writer, writer.write_table)


def _row_groups(parquet: Any, groups: range, names: list[str]) -> Iterator[pa.RecordBatch]:
    for index in groups:
        group = parquet.metadata.row_group(index)
        row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
        # Group by group: a batch would go on into the next.
        yield from parquet.iter_batches(
            batch_size=min(_BATCH_ROWS, max(1, _BATCH_BYTES // row_bytes)),
            row_groups=[index],
            columns=names,
            use_threads=False,
        )


def _has_int96(parquet: Any) -> bool:
    columns = range(len(parquet.schema))
    return any(parquet.schema.column(index).physical_type == "INT96" for index in columns)


class _Int96:
    """Timestamps of 96 bits, Spark's and Impala's: days, and nanoseconds of the day.

    pyarrow (26.0.1) makes another time of one that does not fit 64 bits in the unit it is read in.

    Parameters
    ----------
    fine, coarse : pyarrow.parquet.ParquetFile
        The file, read in nanoseconds and in microseconds.
    schema : pyarrow.Schema
        The columns that are wanted.

    Attributes
    ----------
    reader : pyarrow.parquet.ParquetFile
        The one to read by: in nanoseconds, unless a coarser unit is asked for.
    """

    def __init__(self, fine: Any, coarse: Any, schema: pa.Schema) -> None:
        self._fine, self._coarse = fine, coarse
        pairs = zip(fine.schema_arrow, coarse.schema_arrow, strict=True)
        there = {one.name for one, other in pairs if one.type != other.type}
        types = {field.name: leaf_type(field.type) for field in schema if field.name in there}
        self._names = list(types)
        self._is_fine = not any(
            pa.types.is_date(t) or (pa.types.is_timestamp(t) and t.unit != "ns")
            for t in types.values()
        )
        self.reader = fine if self._is_fine else coarse

    def refuse_changed(self, groups: range, url: str, row: int | None) -> None:
        """Raise `SchemaMismatchError` for the first time that is another in the unit."""
        if not self._names:
            return
        readers = (self._fine, self._coarse)
        batches = (_row_groups(reader, groups, self._names) for reader in readers)
        for fine, coarse in zip(*batches, strict=True):
            for name in self._names:
                pair = pa.StructArray.from_arrays([fine[name], coarse[name]], ["fine", "coarse"])
                if self._is_changed(pair):
                    raise SchemaMismatchError(
                        f"column {name!r} has {self._what()}",
                        path=url,
                        feature=name,
                        row=row_of(self._is_changed, pair, row),
                    )
            row = None if row is None else row + fine.num_rows

    def _is_changed(self, pair: pa.StructArray) -> bool:
        fine, coarse = (leaves(pair.field(n)) for n in (0, 1))
        if self._is_fine:
            return not casts(coarse, fine.type)
        # Both go round at 2**64, so that the rest is right.
        numbers = pc.multiply(coarse.cast(pa.int64()), 1000)
        rest = pc.subtract(fine.cast(pa.int64()), numbers)
        return bool(pc.any(pc.not_equal(rest, 0), min_count=0).as_py())

    def _what(self) -> str:
        if self._is_fine:
            return (
                "a time beyond the years 1677 to 2262, which is no timestamp of nanoseconds: give "
                'a schema in which it is one of microseconds (pa.timestamp("us"))'
            )
        return (
            "a time that microseconds cannot tell: give a schema in which all such columns are "
            'timestamps of nanoseconds (pa.timestamp("ns"))'
        )


def _decoded(schema: pa.Schema) -> pa.Schema:
    """Return a file's schema without metadata.

    Raises
    ------
    UnicodeDecodeError
        A column or time zone has a name that is not UTF-8, which pyarrow looks at when asked.
    """
    for field in schema:
        t = leaf_type(field.type)
        _ = field.name, t.tz if pa.types.is_timestamp(t) else None
    return schema.remove_metadata()


#: Lists without values, by the ids of the types of lists that have offsets.
_HOLLOW = {
    pa.list_(pa.null()).id: pa.list_(pa.null()),
    pa.large_list(pa.null()).id: pa.large_list(pa.null()),
    pa.list_view(pa.null()).id: pa.list_view(pa.null()),
    pa.large_list_view(pa.null()).id: pa.large_list_view(pa.null()),
}


def _places(found: pa.Schema, wanted: pa.Schema) -> list[int]:
    """Return where in a file the columns are that are wanted."""
    names = {*wanted.names}
    return [index for index, name in enumerate(found.names) if name in names]


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a file, which has values as they are in memory, if they are sound.

    Raises
    ------
    pyarrow.ArrowInvalid
        An offset or index leads elsewhere, where what stands in memory would be taken for a value;
        or there are not as many nulls as are said to be.
    """
    for column in batch.columns:
        _check(column)
    return batch


def _check(array: pa.Array) -> None:
    t = array.type
    leaf = leaf_type(t)
    if not pa.types.is_temporal(leaf) or pa.types.is_interval(leaf):
        array.validate(full=True)
        return
    # That would refuse dates that are no whole days, too; more is told where they are cast.
    array.validate()
    if isinstance(array, pa.ExtensionArray):
        _check(array.storage)
    elif pa.types.is_dictionary(t):
        pa.DictionaryArray.from_arrays(array.indices, pa.nulls(len(array.dictionary)))
        _check(array.indices)
        _check(array.dictionary)
    elif is_any_list(t):
        _check_hollow(array)
        _check(array.values)
    else:
        array.view(storage_integer(t)).validate(full=True)


def _check_hollow(array: pa.Array) -> None:
    """Check lists as they are without their values."""
    t = array.type
    hollow = _HOLLOW.get(t.id)
    if hollow is not None:
        is_view = pa.types.is_list_view(t) or pa.types.is_large_list_view(t)
        own = array.buffers()[: 3 if is_view else 2]
        nothing = [pa.nulls(len(array.values))]
        pa.Array.from_buffers(
            hollow, len(array), own, array.null_count, array.offset, nothing
        ).validate(full=True)


class _Grouped:
    """Writes each batch as a table of one chunk."""

    def __init__(self, writer: Any, write_table: Any) -> None:
        self._writer = writer
        self._write_table = write_table

    def write(self, batch: pa.RecordBatch) -> None:
        self._write_table(pa.Table.from_batches([batch]))

    def close(self) -> None:
        self._writer.close()


def _refuse_scales(schema: pa.Schema) -> None:
    """Raise `UnsupportedTypeError` for decimals that neither Parquet nor ORC has.

    pyarrow's writer of ORC ends the process at a negative scale (pyarrow 26.0.1).
    """
    for field in schema:
        t = leaf_type(field.type)
        if pa.types.is_decimal(t) and not 0 <= t.scale <= t.precision:
            raise UnsupportedTypeError(
                f"the scale of {t} is not from 0 to its precision", feature=field.name
            )


def _refuse_zero_width(schema: pa.Schema) -> None:
    """Raise `UnsupportedTypeError` for types that are of no length.

    pyarrow's writer of Parquet ends the process, or writes files that nobody reads (26.0.1).
    """
    for field in schema:
        t = field.type
        while is_any_list(t) and t != pa.list_(t.value_field, 0):
            t = t.value_type
        if is_any_list(t) or t == pa.binary(0):
            raise UnsupportedTypeError(f"values of {t} have no length", feature=field.name)


def _read_stripe(orc: Any, stripe: int, columns: list[str], url: str) -> pa.RecordBatch:
    try:
        return orc.read_stripe(stripe, columns=columns)
    except pa.ArrowInvalid as error:
        if "out of range for nanosecond" not in str(error):
            raise
        # pyarrow names none.
        name = next((one for one in columns if not _is_readable(orc, stripe, one)), None)
        raise SchemaMismatchError(
            f"column {name!r} has a time beyond the years 1677 to 2262, and Arrow reads timestamps "
            f"of ORC files as nanoseconds only: {error}; leave the column out with columns, or "
            "with a schema",
            path=url,
            feature=name,
        ) from error


def _is_readable(orc: Any, stripe: int, name: str) -> bool:
    try:
        orc.read_stripe(stripe, columns=[name])
    except pa.ArrowInvalid:
        return False
    return True


def _orc_type(t: pa.DataType) -> pa.DataType:
    """Return the type to write: pyarrow makes timestamps of days in milliseconds."""
    if pa.types.is_list(t):
        return pa.list_(t.value_field.with_type(_orc_type(t.value_type)))
    return pa.date32() if pa.types.is_date64(t) else t


def _is_stream(handle: BinaryIO) -> bool:
    head = handle.read(4)
    handle.seek(0)
    # Before Arrow 0.15 a stream began with the length of its schema, which fits three bytes.
    return head == _STREAM_MAGIC or head[3:] == b"\0"


def _evenly(size: int, count: int) -> Sequence[int]:
    """Return the sizes of units that tell none."""
    return [size // count] * count if count else []
