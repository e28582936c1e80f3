"""Avro object container files through fastavro (the extra ``avro``).

Avro is read and written record by record. Its types are Arrow's: unions with null are nullable
columns; enums and UUIDs are strings; logical dates, times, timestamps and decimals are Arrow's.
Maps, records and other unions become Arrow types that TFRecord cannot hold, so that they are
refused by name unless they are left out.

The sync marker of a written file is a hash of its schema, not a random one, so that equal rows make
equal files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.compression import Compression
from tfrecord_io.errors import (
    CorruptDataError,
    MissingDependencyError,
    OptionError,
    TFRecordError,
    UnsupportedTypeError,
)
from tfrecord_io.formats.base import InputFile, Look, Piece, TableWriter, said
from tfrecord_io.schema import is_any_list, leaf_type, normal_schema, with_leaf

#: Rows that are made a batch, or fewer large ones: so many bytes as the blocks have them, which are
#: several times as many in Python.
_BATCH_ROWS = 8192
_BATCH_BYTES = 8 * 1024 * 1024

#: Digits of Arrow's longest decimals.
_MOST_DIGITS = 76

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_CODECS: dict[Compression | None, str] = {None: "null", "deflate": "deflate", "bzip2": "bzip2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat:
    """Avro; see `tfrecord_io.formats.base.Format`."""

    name: str = "avro"
    suffixes: tuple[str, ...] = (".avro",)
    compressions: tuple[Compression, ...] = ("deflate", "bzip2")
    leveled: tuple[Compression, ...] = ("deflate",)
    default_compression: Compression | None = "deflate"
    has_far_years: bool = True
    timestamp_unit: Literal["s", "ms", "ns"] | None = "ms"
    is_wrapped: bool = False
    is_grouped: bool = False

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Read the header."""
        found = schema
        if found is None:
            with file.open() as handle:
                _, found = _open(_Source(handle, file))
        return Look(schema=found, pieces=(Piece(bytes=file.size),))

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the file."""
        del piece, found
        with file.open() as handle:
            source = _Source(handle, file)
            blocks, types = _open(source)
            _keep_plain(blocks.writer_schema)
            records = _records(blocks)
            asked = {*schema.names}
            wanted = pa.schema([field for field in types if field.name in asked])
            _refuse_unheld(wanted, file.url)
            done = 0
            while rows := _rows(records, source, done):
                with source.damage_named():
                    batch = _record_batch(rows, wanted)
                yield batch
                done += len(rows)

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file."""
        return _Writer(stream, schema, compression, level)


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as error:
        raise MissingDependencyError(
            "Avro needs a package that is not installed; install tfrecord-io[avro]"
        ) from error
    module: ModuleType = fastavro
    return module


# --- reading --------------------------------------------------------------------------------------


class _Source:
    """A file as fastavro reads it."""

    def __init__(self, handle: BinaryIO, file: InputFile) -> None:
        self._handle = handle
        self._size = file.size
        self._has_failed = False
        self.url = file.url

    def read(self, size: int) -> bytes:
        self._has_failed = True
        # A damaged length may be beyond all memory.
        data = self._handle.read(min(size, self._size))
        self._has_failed = False
        return data

    def tell(self) -> int:
        return self._handle.tell()

    @contextlib.contextmanager
    def damage_named(self, row: Callable[[], int | None] = lambda: None) -> Iterator[None]:
        """Raise what fastavro says of the file as `CorruptDataError`; the store's errors pass.

        There is no list of fastavro's errors and of those of what decompresses for it.
        """
        try:
            yield
        except Exception as error:
            if self._has_failed or isinstance(error, TFRecordError):
                raise
            _refuse_codec(error, self.url)
            raise CorruptDataError(
                f"the file is not Avro, or damaged: {said(error)}",
                path=self.url,
                row=row(),
            ) from error


def _open(source: _Source) -> tuple[Any, pa.Schema]:
    """Return fastavro's reader of a file's blocks, and the columns."""
    with source.damage_named():
        blocks = _fastavro().block_reader(source)
        return blocks, _arrow_schema(blocks.writer_schema, source.url)


def _records(blocks: Iterable[Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Give records, and how many bytes of their block each takes."""
    for block in blocks:
        start = 0
        for record in block:
            end = block.bytes_.tell()
            yield record, end - start
            start = end
        # fastavro takes the count of records for the truth.
        if block.bytes_.read(1):
            raise ValueError(f"the block at byte offset {block.offset} has more than its records")


def _refuse_codec(error: Exception, url: str) -> None:
    """Raise `MissingDependencyError` if fastavro lacks what decompresses a file."""
    if "you need to install" in str(error):
        raise MissingDependencyError(
            f"{url}: {error}; install tfrecord-io[avro], which has them all"
        ) from error


def _rows(
    records: Iterator[tuple[dict[str, Any], int]], source: _Source, done: int
) -> list[dict[str, Any]]:
    """Return the rows of the next batch; none at the end."""
    rows: list[dict[str, Any]] = []
    held_bytes = 0
    with source.damage_named(lambda: done + len(rows)):
        for record, size in records:
            rows.append(record)
            held_bytes += size
            if len(rows) == _BATCH_ROWS or held_bytes >= _BATCH_BYTES:
                break
    return rows


def _record_batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    if not len(schema):
        return pa.record_batch([pa.nulls(len(rows))], names=["row"]).select([])
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_schema(avro: Any, url: str) -> pa.Schema:
    if not isinstance(avro, dict) or avro.get("type") not in ("record", "error"):
        raise UnsupportedTypeError(
            "the file holds values that are no records, so that there are no columns", path=url
        )
    return pa.schema(list(_arrow(avro, {})))


def _refuse_unheld(schema: pa.Schema, url: str) -> None:
    """Raise `UnsupportedTypeError` for a column that may be of no type which is asked for.

    Of some, such as unions, Arrow makes no columns, which is no damage.
    """
    try:
        normal_schema(schema)
    except UnsupportedTypeError as error:
        error.path = url
        raise


def _keep_plain(avro: Any) -> None:
    """Make fastavro, which decodes by this very object, give integers and texts as they are.

    Arrow takes them as dates, times and timestamps. Python's end at the year 9999. A decimal
    without a precision is, as Avro says of what is not valid, its bytes.
    """
    if isinstance(avro, list):
        for part in avro:
            _keep_plain(part)
    elif isinstance(avro, dict):
        is_endless = avro.get("logicalType") == "decimal" and "precision" not in avro
        if is_endless or _logical_type(avro) is not None:
            del avro["logicalType"]
        for key in ("type", "items", "values", "fields"):
            _keep_plain(avro.get(key))


_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
    ("string", "uuid"): pa.string(),
}


def _logical_type(avro: dict[str, Any]) -> pa.DataType | None:
    """Return the Arrow type of a logical type of integers or texts; None if it is none of these."""
    kind, logical = avro.get("type"), avro.get("logicalType")
    if isinstance(kind, str) and isinstance(logical, str):
        return _LOGICAL.get((kind, logical))
    return None


def _arrow(avro: Any, known: dict[str, pa.DataType]) -> pa.DataType:
    """Return the Arrow type of an Avro type; `known` are the named types so far.

    fastavro gives every name with its namespace.
    """
    if isinstance(avro, list):
        types = [_arrow(member, known) for member in avro]
        members = [t for t in types if not pat.is_null(t)]
        if len(members) < 2:
            return members[0] if members else pa.null()
        return pa.dense_union([pa.field(str(n), member) for n, member in enumerate(members)])
    if isinstance(avro, str):
        return _PRIMITIVES[avro] if avro in _PRIMITIVES else known[avro]
    kind = avro["type"]
    if kind == "record" or kind == "error":
        # Stands for the record where it holds itself.
        known[avro["name"]] = pa.struct([])
    t = _arrow_of(avro, kind, known)
    if "name" in avro:
        known[avro["name"]] = t
    return t


def _arrow_of(avro: dict[str, Any], kind: Any, known: dict[str, pa.DataType]) -> pa.DataType:
    logical = avro.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed") and "precision" in avro:
        precision, scale = avro["precision"], avro.get("scale", 0)
        if precision > _MOST_DIGITS:
            # Refused by name, as a record is.
            return pa.struct([pa.field(f"decimal({precision}, {scale})", pa.binary())])
        make = pa.decimal128 if precision <= 38 else pa.decimal256
        return make(precision, scale)
    told = _logical_type(avro)
    if told is not None:
        return told
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary(avro["size"])
    if kind == "array":
        return pa.list_(_arrow(avro["items"], known))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(avro["values"], known))
    if kind in ("record", "error"):
        return pa.struct([pa.field(f["name"], _arrow(f["type"], known)) for f in avro["fields"]])
    return _arrow(kind, known)


# --- writing --------------------------------------------------------------------------------------


class _Writer:
    """Writes rows as records."""

    def __init__(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> None:
        _fastavro()
        from fastavro.write import Writer

        avro = {
            "type": "record",
            "name": "row",
            "fields": [_avro_field(field) for field in schema],
        }
        marker = hashlib.sha256(json.dumps(avro).encode()).digest()[:16]
        self._names = schema.names
        self._writer = Writer(
            stream,
            avro,
            codec=_CODECS[compression],
            sync_marker=marker,
            compression_level=level,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_values(column) for column in batch.columns]
        for row in zip(*columns, strict=True):
            self._writer.write(dict(zip(self._names, row, strict=True)))

    def close(self) -> None:
        self._writer.flush()


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"column {name!r} has a name that Avro does not allow (letters, digits and "
            "underscores, no digit first); rename it"
        )
    return name


def _avro_field(field: pa.Field) -> dict[str, Any]:
    name = _checked(field.name)
    if pat.is_null(field.type):
        return {"name": name, "type": "null"}
    return {"name": name, "type": ["null", _avro(field.type, name)], "default": None}


_WRITTEN: dict[pa.DataType, Any] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    **dict.fromkeys((pa.int64(), pa.uint32()), "long"),
    pa.bool_(): "boolean",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.date64(): {"type": "int", "logicalType": "date"},
    pa.time32("s"): {"type": "int", "logicalType": "time-millis"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}


def _avro(t: pa.DataType, name: str) -> Any:
    """Return the Avro type of a column, or of the items of its lists."""
    if t in _WRITTEN:
        return _WRITTEN[t]
    if pat.is_timestamp(t) and t.unit != "ns":
        unit = "micros" if t.unit == "us" else "millis"
        prefix = "" if t.tz is not None else "local-"
        return {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
    if pat.is_decimal(t) and 0 <= t.scale <= t.precision:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": t.precision,
            "scale": t.scale,
        }
    if pat.is_fixed_size_binary(t):
        return {"type": "fixed", "name": f"{name}_bytes", "size": t.byte_width}
    if is_any_list(t):
        item = _avro(t.value_type, name)
        return {"type": "array", "items": ["null", item]}
    # Said again, with the column's name, by `tfrecord_io.formats.writing.check_writable`.
    raise UnsupportedTypeError(f"Avro has no such type: {t}")


def _values(column: pa.Array) -> list[Any]:
    """Return the values as fastavro takes them."""
    t = leaf_type(column.type)
    # As integers: Python's dates and times end with the year 9999.
    if pat.is_date(t):
        days = column.cast(with_leaf(column.type, pa.date32()))
        column = days.cast(with_leaf(column.type, pa.int32()))
    elif pat.is_timestamp(t):
        if t.unit == "s":
            column = column.cast(with_leaf(column.type, pa.timestamp("ms", t.tz)))
        column = column.cast(with_leaf(column.type, pa.int64()))
    return list(column.to_pylist())
