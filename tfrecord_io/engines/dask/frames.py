"""Arrow tables to pandas frames and back, column by column, and the types on either side.

- *To pandas*: Arrow's own types (``dtype_backend="pyarrow"``), pandas' nullable ones, or NumPy's.
- *To Arrow*: a NaN in a NumPy column is a missing value and becomes null, as
  ``pyarrow.Table.from_pandas`` has it; in lists, and in Arrow's and pandas' nullable columns, NaN
  stays NaN. No value is changed: what is no value of its column's type is refused.
- Columns of dtype object, and categoricals whose values Dask does not know yet, have no type until
  their values are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, TypeAlias, cast

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.errors import InferenceError, SchemaMismatchError
from tfrecord_io.formats.exact import exact_cast
from tfrecord_io.pandas_columns import OBJECTS, to_arrow
from tfrecord_io.schema import is_any_list, leaf_type, list_depth, normal_schema, with_leaf

#: What else there is to do where types follow from the values.
ADVICE = ", or pass a schema with its type"

DtypeBackend: TypeAlias = Literal["pyarrow", "numpy_nullable"] | None

_NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.string(): pd.StringDtype(),
    pa.large_string(): pd.StringDtype(),
}


def types_mapper(backend: DtypeBackend, *, arrow_strings: bool) -> Callable[[pa.DataType], Any]:
    """Return what says which pandas dtype an Arrow type becomes; None leaves it to pyarrow.

    Parameters
    ----------
    backend : {"pyarrow", "numpy_nullable"} or None
        Whose dtypes; None are NumPy's.
    arrow_strings : bool
        Whether strings are ``string[pyarrow]`` beside NumPy's types.
    """
    if backend == "pyarrow":
        return cast("Callable[[pa.DataType], Any]", pd.ArrowDtype)
    if backend == "numpy_nullable":
        return _NULLABLE.get
    strings = pd.StringDtype("pyarrow") if arrow_strings else None
    return {pa.string(): strings, pa.large_string(): strings}.get


def with_plain_bytes(table: pa.Table) -> pa.Table:
    """Return a table whose lists of bytes of a fixed size, of which pandas has none, are plain."""
    for index, field in enumerate(table.schema):
        if is_any_list(field.type) and pat.is_fixed_size_binary(leaf_type(field.type)):
            plain = field.with_type(with_leaf(field.type, pa.binary()))
            table = table.set_column(index, plain, table.column(index).cast(plain.type))
    return table


# --- to Arrow -------------------------------------------------------------------------------------


def known_type(column: pd.Series) -> pa.DataType | None:
    """Return the Arrow type that a column's dtype means; None if its values have to tell.

    Raises
    ------
    UnsupportedTypeError
        Arrow has no such type.
    """
    dtype = column.dtype
    if dtype == OBJECTS:
        return None
    if isinstance(dtype, pd.CategoricalDtype) and _is_unknown(dtype):
        return None
    return to_arrow(column.iloc[:0]).type


def _is_unknown(dtype: pd.CategoricalDtype) -> bool:
    from dask.dataframe.utils import UNKNOWN_CATEGORIES

    categories = dtype.categories
    # Dask's Parquet reader gives none where it has not looked at the values. Of no values pandas
    # makes objects or floats.
    is_empty = categories is None or (categories.empty and categories.dtype in (object, float))
    return is_empty or UNKNOWN_CATEGORIES in categories


def check_columns(frame: Any, names: Collection[str]) -> None:
    """Raise `SchemaMismatchError` unless a partition is a frame with the columns of the meta."""
    advice = "; whatever made the partition was given a wrong meta"
    if not isinstance(frame, pd.DataFrame):
        raise SchemaMismatchError(
            f"a partition is a {type(frame).__name__}, and not a pandas DataFrame{advice}"
        )
    if len(frame.columns) != len(names) or {*frame.columns} != {*names}:
        raise SchemaMismatchError(
            f"a partition has the columns {list(frame.columns)}, the frame's meta says "
            f"{list(names)}{advice}"
        )


def seen_types(frame: pd.DataFrame, names: Collection[str]) -> dict[str, pa.DataType]:
    """Return the types of the values of a frame, which is to have these columns, in normal form.

    Of a column without values that is the null type.

    Raises
    ------
    SchemaMismatchError
        See `check_columns`.
    InferenceError, UnsupportedTypeError
        A column's values have no one type, or one that TFRecord cannot hold.
    """
    check_columns(frame, names)
    return {name: _seen_type(frame[name]) for name in names}


def _seen_type(column: pd.Series) -> pa.DataType:
    array = to_arrow(column)
    return _known_of(_normal_type_of(array, column.name), array)


def _known_of(t: pa.DataType, array: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """Return what the values of an array tell of its type.

    Without values it is of any type: pandas and NumPy make floats of what is not there.
    """
    for _ in range(list_depth(t)):
        array = pc.list_flatten(array)
    return with_leaf(t, pa.null()) if array.null_count == len(array) else t


def _normal_type_of(array: pa.Array | pa.ChunkedArray, name: Any) -> pa.DataType:
    return normal_schema(pa.schema([(name, array.type)])).field(0).type


def to_table(
    frame: pd.DataFrame,
    schema: pa.Schema,
    *,
    given: Collection[str] = (),
    partition_by: Collection[str] = (),
) -> pa.Table:
    """Return a frame's columns as Arrow.

    Parameters
    ----------
    frame : pandas.DataFrame
        With the schema's columns.
    schema : pyarrow.Schema
        The types, in normal form.
    given : collection of str
        The columns whose types the caller said: their values are converted. Those of the others
        must be what was seen of the frame.
    partition_by : collection of str
        The columns that are to stand in no record.

    Returns
    -------
    pyarrow.Table
        Where float32 is wanted in records, and the values have more digits, it is float64:
        whoever writes it has rules for that.

    Raises
    ------
    SchemaMismatchError
        See `check_columns`. A value is not of its column's type, or would not be the same in it.
    InferenceError, UnsupportedTypeError
        See `tfrecord_io.pandas_columns.to_arrow`.
    """
    check_columns(frame, schema.names)
    if not schema.names:
        # Made of no columns, a table would have no rows.
        return pa.Table.from_struct_array(pa.array([{}] * len(frame), pa.struct([])))
    columns = [
        _converted(
            frame[name], wanted, is_given=name in given, may_be_wider=name not in partition_by
        )
        for name, wanted in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=schema.names)


def _converted(
    column: pd.Series, wanted: pa.DataType, *, is_given: bool, may_be_wider: bool
) -> pa.ChunkedArray | pa.Array:
    try:
        array = to_arrow(column)
    except InferenceError as error:
        if is_given and isinstance(column.dtype, pd.CategoricalDtype):
            # Of the categories those that are there.
            values = column.astype(object)
            return _converted(values, wanted, is_given=True, may_be_wider=may_be_wider)
        if not is_given:
            error.what += ADVICE
            raise
        kinds = column.map(_kind_of_object)
        if kinds.nunique() < 2:
            raise
        return _converted_apart(column, kinds, wanted, may_be_wider=may_be_wider)
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    # Dress, such as a large string or a dictionary, is taken off by whoever writes.
    found = _normal_type_of(array, column.name)
    if found == wanted:
        return array
    if may_be_wider and _is_longer_float32(found, wanted):
        wanted = with_leaf(wanted, pa.float64())
    try:
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        undressed = pa.chunked_array([_castable(chunk, wanted) for chunk in chunks])
        if pat.is_null(leaf_type(_known_of(found, undressed))):
            return pa.array(undressed.to_pylist(), wanted)
        _check_kinds(found, wanted, is_given=is_given)
        return pa.chunked_array([exact_cast(chunk, wanted) for chunk in undressed.chunks], wanted)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"column {column.name!r} is {found} in this partition, and its values do not fit "
            f"{wanted}: {error}; convert the column" + ("" if is_given else ADVICE),
            feature=str(column.name),
        ) from error


def _kind_of_object(value: object) -> str:
    """Return what values have in common of which pyarrow makes an array: arrays have dtypes."""
    return f"{type(value)} {getattr(value, 'dtype', '')}"


def _converted_apart(
    column: pd.Series, kinds: pd.Series, wanted: pa.DataType, *, may_be_wider: bool
) -> pa.ChunkedArray:
    """Convert the values of each kind by themselves, as if they were in other partitions."""
    codes, found = pd.factorize(kinds)
    parts = [
        _converted(column[codes == code], wanted, is_given=True, may_be_wider=may_be_wider)
        for code in range(len(found))
    ]
    # Times keep their zones until they are written, and there is one for a column.
    undressed = [part.cast(_normal_type_of(part, column.name)) for part in parts]
    # Some may be float64 where others are float32.
    tables = [pa.table({"values": part}) for part in undressed]
    values = pa.concat_tables(tables, promote_options="permissive")["values"]
    return values.take(pa.array(codes.argsort(kind="stable").argsort()))


def _check_kinds(found: pa.DataType, wanted: pa.DataType, *, is_given: bool) -> None:
    if kind_of(found) == kind_of(wanted):
        return
    if not is_given:
        raise pa.ArrowInvalid("they are of another kind")
    zones = {_has_zone(leaf_type(found)), _has_zone(leaf_type(wanted))}
    if zones == {True, False}:
        raise pa.ArrowInvalid("set the time zone first, or drop it")


def _has_zone(t: pa.DataType) -> bool | None:
    """Return whether the times of a type have a zone; None where there are none."""
    if pat.is_timestamp(t):
        return t.tz is not None
    return False if pat.is_date(t) else None


def _castable(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array without its dress, in a type that Arrow casts to the one wanted."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pat.is_dictionary(array.type):
        array = array.dictionary_decode()
    leaf = leaf_type(wanted)
    if pat.is_integer(leaf_type(array.type)) and pat.is_decimal(leaf):
        # Arrow wants room for all integers, not for those that are there.
        return array.cast(with_leaf(array.type, pa.decimal256(76, leaf.scale)))
    return array


def _is_longer_float32(found: pa.DataType, wanted: pa.DataType) -> bool:
    t = leaf_type(found)
    has_more = pat.is_float64(t) or pat.is_decimal(t) or pat.is_string(t)
    return bool(has_more and pat.is_float32(leaf_type(wanted)))


#: Values of types of one of these kinds differ in width or unit alone.
_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda t: pat.is_integer(t) or pat.is_floating(t) or pat.is_decimal(t),
    *(pat.is_date, pat.is_time, pat.is_duration),
    lambda t: pat.is_timestamp(t) and t.tz is None,
    lambda t: pat.is_timestamp(t) and t.tz is not None,
)


def kind_of(t: pa.DataType) -> tuple[int, Any]:
    """Return what values of a type are: how deep in lists, of which kind, or else which type."""
    leaf = leaf_type(t)
    kind = next((number for number, is_one in enumerate(_KINDS) if is_one(leaf)), leaf)
    return list_depth(t), kind
