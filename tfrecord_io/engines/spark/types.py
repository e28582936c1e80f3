"""Spark's column types and Arrow's, in both directions, and ML vectors as lists.

Spark's own conversion does the work; here stands what it lacks: types that only other engines
write, ML vectors, and errors that name the column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    NullType,
    ShortType,
    SpatialType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
)
from pyspark.sql.types import IntegerType as IntType

from tfrecord_io.errors import UnsupportedTypeError
from tfrecord_io.schema import is_any_list, normal_schema
from tfrecord_io.time_text import storage_integer

#: Spark's Arrow exchange takes every timestamp with a zone in UTC.
_ZONE = "UTC"

#: An ML vector in its Spark form: {type: 0 sparse, 1 dense; size; indices; values}.
_VECTOR = pa.list_(pa.field("element", pa.float64(), nullable=False))


#: Types that Arrow has as structs, whose fields no SQL takes apart, and what does.
_NOT_IN_RECORDS: tuple[tuple[type[DataType], str], ...] = (
    (VariantType, "take values out by variant_get, or write to_json(column)"),
    (SpatialType, "write st_asbinary(column)"),
)


def arrow_schema(struct: StructType) -> pa.Schema:
    """Return the Arrow schema of Spark's batches of these columns, vectors as lists.

    Raises
    ------
    UnsupportedTypeError
        Spark has no Arrow form of a column's type.
    """
    return pa.schema([_arrow_field(field) for field in struct.fields])


def _arrow_field(field: StructField) -> pa.Field:
    if is_vector(field.dataType):
        return pa.field(field.name, _VECTOR, field.nullable)
    name = field.dataType.simpleString()
    for kind, advice in _NOT_IN_RECORDS:
        if isinstance(_leaf(field.dataType), kind):
            raise _unsupported(field.name, name, advice)
    if _holds_objects(field.dataType):
        # Neither a field's name nor to_json takes these apart.
        advice = "make numbers, texts or lists of its objects by a udf of your own"
        if isinstance(field.dataType, ArrayType) and is_vector(field.dataType.elementType):
            advice = "make lists of its vectors by transform(column, vector_to_array)"
        raise _unsupported(field.name, name, advice)
    try:
        arrow = to_arrow_type(field.dataType, timezone=_ZONE)
    except (PySparkException, ValueError):
        # A ValueError is pyarrow's, of nulls in what holds none: the type of array() and map().
        advice = f", such as {name.replace('void', 'int')}" if _is_empty(field.dataType) else ""
        raise _unsupported(field.name, name, f"cast it to a supported type{advice}") from None
    return pa.field(field.name, arrow, field.nullable)


def _unsupported(column: str, type_name: str, advice: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"column {column!r} has the type {type_name}, which TFRecord cannot hold: {advice}",
        feature=column,
    )


def _leaf(t: DataType) -> DataType:
    return _leaf(t.elementType) if isinstance(t, ArrayType) else t


def _holds_objects(t: DataType) -> bool:
    """Return whether a type is of Python objects that Spark holds as structs, or lists of them."""
    if isinstance(t, ArrayType):
        return _holds_objects(t.elementType)
    return isinstance(t, UserDefinedType) and isinstance(t.sqlType(), StructType)


def _is_empty(t: DataType) -> bool:
    """Return whether a type is that of arrays of nothing."""
    return isinstance(t, ArrayType) and (
        isinstance(t.elementType, NullType) or _is_empty(t.elementType)
    )


def is_vector(spark_type: DataType) -> bool:
    """Return whether a type is that of ``pyspark.ml`` or ``pyspark.mllib`` vectors."""
    return isinstance(spark_type, UserDefinedType) and type(spark_type).__name__ == "VectorUDT"


def vector_columns(struct: StructType) -> tuple[str, ...]:
    """Return the names of the columns that hold ML vectors."""
    return tuple(field.name for field in struct.fields if is_vector(field.dataType))


#: What Spark lacks, as the next wider type that it has; no record holds more than a long.
_WIDER: dict[pa.DataType, DataType] = {
    pa.uint8(): ShortType(),
    pa.uint16(): IntType(),
    pa.uint32(): LongType(),
    pa.uint64(): LongType(),
    pa.float16(): FloatType(),
    pa.date64(): DateType(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark columns that an Arrow schema of TFRecord types is read as.

    Returns
    -------
    pyspark.sql.types.StructType
        What Spark lacks becomes the next wider type that it has: unsigned integers the next signed
        one (``uint64`` a long, since a record holds no more), ``float16`` a float, ``date64`` a
        date.
    """
    return StructType(
        [StructField(field.name, _spark_type(field.type)) for field in normal_schema(schema)]
    )


def _spark_type(t: pa.DataType) -> DataType:
    if is_any_list(t):
        return ArrayType(_spark_type(t.value_type))
    if t in _WIDER:
        return _WIDER[t]
    if pat.is_time(t):
        return LongType()
    if pat.is_decimal(t):
        is_known = t.precision <= 38 and 0 <= t.scale <= t.precision
        return DecimalType(t.precision, t.scale) if is_known else DoubleType()
    return from_arrow_type(t)


def conformed(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns, types and flags of `target`.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value does not fit, such as nanoseconds that microseconds cannot hold.
    """
    if batch.schema.equals(target):
        return batch
    columns = [_cast(batch.column(field.name), field.type) for field in target]
    if not columns:
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: pa.Array, t: pa.DataType) -> pa.Array:
    if column.type.equals(t):
        return column
    return column.cast(_as_integers(column.type)).cast(t)


def _as_integers(t: pa.DataType) -> pa.DataType:
    """Return a type with integers for times of the day, which only go to those of their width."""
    if is_any_list(t):
        return pa.list_(_as_integers(t.value_type))
    if pat.is_time(t):
        return storage_integer(t)
    return t


def with_lists(batch: pa.RecordBatch, vectors: tuple[str, ...]) -> pa.RecordBatch:
    """Return a batch whose ML vectors, dense and sparse, are lists of their values."""
    for name in vectors:
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, pa.field(name, _VECTOR), _lists(batch.column(index)))
    return batch


def _lists(vectors: pa.StructArray) -> pa.ListArray:
    kinds, sizes, indices, values = vectors.flatten()
    is_there = vectors.is_valid().to_numpy(zero_copy_only=False)
    is_sparse = is_there & (kinds.fill_null(1).to_numpy(zero_copy_only=False) == 0)
    counts = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    lengths = np.where(is_sparse, sizes.fill_null(0).to_numpy(zero_copy_only=False), counts)
    lengths = np.where(is_there, lengths, 0)
    offsets: Any = np.zeros(len(vectors) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    held = np.where(is_there, counts, 0)
    # Where each value stands in its own vector: as it says if sparse, else in turn.
    starts: Any = np.repeat(np.cumsum(held) - held, held)
    places = np.arange(held.sum()) - starts
    of_sparse: Any = np.repeat(is_sparse, held)
    places[of_sparse] = _flat(indices.filter(pa.array(is_sparse)))
    out = np.zeros(offsets[-1])
    out[np.repeat(offsets[:-1], held) + places] = _flat(values.filter(pa.array(is_there)))
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)),
        pa.array(out),
        type=_VECTOR,
        mask=pa.array(~is_there),
    )


def _flat(lists: pa.ListArray) -> Any:
    return lists.flatten().to_numpy(zero_copy_only=False)
