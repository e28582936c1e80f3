"""Arrow tables to pandas frames and back, column by column, and the types on either side.

- *To pandas*: Arrow's own types (``dtype_backend="pyarrow"``), pandas' nullable ones, or NumPy's.
- *To Arrow*: by pyarrow's rules. A NaN in a NumPy column is a missing value and becomes null, as
  ``pyarrow.Table.from_pandas`` has it; in Arrow's and pandas' nullable columns NaN stays NaN.
- Columns of dtype object, and categoricals whose values Dask does not know yet, have no type until
  their values are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import pandas as pd
import pyarrow as pa

from tfrecord_io.errors import SchemaMismatchError, UnsupportedTypeError
from tfrecord_io.schema import normal_type

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


# --- to Arrow -------------------------------------------------------------------------------------


def known_type(column: pd.Series) -> pa.DataType | None:
    """Return the Arrow type that a column's dtype means; None if its values have to tell.

    Raises
    ------
    UnsupportedTypeError
        Arrow has no such type.
    """
    dtype = column.dtype
    if pd.api.types.is_object_dtype(dtype):
        return None
    if isinstance(dtype, pd.CategoricalDtype) and _is_unknown(dtype):
        return None
    try:
        return pa.Array.from_pandas(column.iloc[:0]).type
    except (pa.ArrowException, NotImplementedError) as error:
        raise UnsupportedTypeError(
            f"column {column.name!r} is of dtype {dtype}, which is no type of Arrow's; convert it",
            feature=str(column.name),
        ) from error


def _is_unknown(dtype: pd.CategoricalDtype) -> bool:
    from dask.dataframe.utils import UNKNOWN_CATEGORIES

    return dtype.categories is None or UNKNOWN_CATEGORIES in dtype.categories


def seen_types(frame: pd.DataFrame) -> dict[str, pa.DataType | str]:
    """Return the types of a frame's values; what is wrong with a column that has none."""
    return {str(name): _seen_type(column) for name, column in frame.items()}


def _seen_type(column: pd.Series) -> pa.DataType | str:
    try:
        return normal_type(pa.Array.from_pandas(column).type)
    except (pa.ArrowException, NotImplementedError) as error:
        return str(error)


def to_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return a frame's columns as Arrow.

    Parameters
    ----------
    frame : pandas.DataFrame
        With the schema's columns.
    schema : pyarrow.Schema
        The types, in normal form.

    Raises
    ------
    SchemaMismatchError
        A value is not of its column's type.
    """
    if sorted(frame.columns) != sorted(schema.names):
        raise SchemaMismatchError(
            f"a partition has the columns {list(frame.columns)}, the frame's meta says "
            f"{schema.names}; whatever made the partition was given a wrong meta"
        )
    columns = [_to_arrow(frame[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(columns, names=schema.names)


def _to_arrow(column: pd.Series, wanted: pa.DataType) -> pa.ChunkedArray | pa.Array:
    try:
        if pd.api.types.is_object_dtype(column.dtype):
            return pa.Array.from_pandas(column, type=wanted)
        array = pa.Array.from_pandas(column)
        # Dress, such as a large string or a dictionary, is taken off by whoever writes.
        return array if normal_type(array.type) == wanted else array.cast(wanted)
    except (pa.ArrowException, NotImplementedError, OverflowError) as error:
        raise SchemaMismatchError(
            f"a value of dtype {column.dtype} is no {wanted}: {error}; convert the column, or pass "
            "a schema with its type",
            feature=str(column.name),
        ) from error
