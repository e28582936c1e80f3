"""Columns of pandas as Arrow, their values unchanged.

pyarrow's own conversion is used where it changes nothing. Of Python objects it takes the kind of
one for the kind of all: the time of a datetime among dates is cut off, a zone dropped or made up,
text becomes bytes, nanoseconds are lost. What may have gone that way is looked at again.

Imported only where there is a frame, so that pandas is loaded by those alone who use it.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.types as pat
from pandas.api.types import is_object_dtype, is_string_dtype

from tfrecord_io.errors import InferenceError, TFRecordError, UnsupportedTypeError
from tfrecord_io.schema import leaf_type, list_depth, with_leaf


def check_names(names: Sequence[Any]) -> None:
    """Raise `UnsupportedTypeError` unless columns have names that features can have."""
    for name in names:
        if not isinstance(name, str):
            raise UnsupportedTypeError(
                f"the column name {name!r} is a {type(name).__name__}; features are named by "
                "text: rename the columns"
            )
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UnsupportedTypeError(
                f"the column name {name!r} is no text ({error}); rename the column"
            ) from error
        if names.count(name) > 1:
            raise UnsupportedTypeError(f"two columns are named {name!r}; rename one of them")


def to_table(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as Arrow; an index other than a plain range becomes columns at the end.

    Raises
    ------
    UnsupportedTypeError, InferenceError
        See `check_names` and `to_arrow`.
    """
    columns = {name: frame.iloc[:, at] for at, name in enumerate(frame.columns)}
    check_names(list(frame.columns))
    if not isinstance(frame.index, pd.RangeIndex):
        for level, name in enumerate(frame.index.names):
            # Named as pyarrow names it.
            free = f"__index_level_{level}__" if name is None or name in columns else name
            columns[free] = pd.Series(frame.index.get_level_values(level), name=free)
    if not columns:
        return pa.Table.from_pandas(frame)
    check_names(list(columns))
    return pa.table({name: to_arrow(column) for name, column in columns.items()})


def to_arrow(column: pd.Series) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow, of the type that its dtype means, or else its values.

    Raises
    ------
    UnsupportedTypeError
        Arrow has no type that keeps what the dtype means.
    InferenceError
        The values have no one type. Both name the column.
    """
    dtype = column.dtype
    try:
        return _to_arrow(column)
    except (pa.ArrowException, NotImplementedError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, TFRecordError):
            raise
        if is_object_dtype(dtype) or is_string_dtype(dtype):
            raise InferenceError(
                f"the values of column {column.name!r} have no one type of Arrow's ({error}); "
                "convert the column",
                feature=str(column.name),
            ) from error
        raise UnsupportedTypeError(
            f"column {column.name!r} is of dtype {dtype}, which is no type of Arrow's ({error}); "
            "convert it",
            feature=str(column.name),
        ) from error


def _to_arrow(column: pd.Series) -> pa.Array | pa.ChunkedArray:
    dtype = column.dtype
    if is_object_dtype(dtype):
        return _of_objects(column)
    if isinstance(dtype, pd.PeriodDtype):
        raise NotImplementedError("the frequency of periods would be lost")
    if isinstance(dtype, pd.CategoricalDtype):
        values = to_arrow(pd.Series(dtype.categories, name=column.name))
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        codes = column.cat.codes.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values)
    return pa.Array.from_pandas(column)


def _of_objects(column: pd.Series) -> pa.Array:
    """Return Python objects as Arrow.

    Raises
    ------
    ValueError
        Something would be lost.
    """
    array = pa.Array.from_pandas(column)
    leaf = leaf_type(array.type)
    if not (pat.is_temporal(leaf) or pat.is_binary(leaf)):
        return array
    values = column.dropna()
    for _ in range(list_depth(array.type)):
        values = pd.Series(list(itertools.chain.from_iterable(values)), dtype=object).dropna()
    samples = {(type(v), getattr(v, "tzinfo", None) is None): v for v in values}
    kinds = {_kind(value, str(leaf)): value for value in samples.values()}
    if len(kinds) > 1:
        (one, a), (other, b), *_ = kinds.items()
        raise ValueError(f"{a!r} is a {one}, {b!r} a {other}")
    if _ZONED_TIME in kinds:
        raise ValueError(f"{kinds[_ZONED_TIME]!r} has a zone, and Arrow's times have none")
    unit = {pa.lib.Type_TIMESTAMP: "nanosecond", pa.lib.Type_DURATION: "nanoseconds"}.get(leaf.id)
    if unit is not None and any(getattr(value, unit, 0) for value in values):
        exact = pa.duration("ns") if pat.is_duration(leaf) else pa.timestamp("ns", leaf.tz)
        return pa.Array.from_pandas(column, type=with_leaf(array.type, exact))
    return array


_ZONED_TIME = "time with a zone"


def _kind(value: object, otherwise: str) -> str:
    if isinstance(value, str):
        return "str"
    if isinstance(value, datetime.datetime):
        return "datetime" if value.tzinfo is None else "datetime with a zone"
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        return _ZONED_TIME
    return otherwise
