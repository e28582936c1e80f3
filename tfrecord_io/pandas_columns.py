"""Columns of pandas as Arrow, their values unchanged.

pyarrow's own conversion is used where it changes nothing. Of Python objects it takes the kind of
one for the kind of all: the time of a datetime among dates is cut off, a zone dropped or made up,
text becomes bytes, numbers become times, nanoseconds and fractions are lost. What may go that way
is looked at before or again.

Imported only where there is a frame, so that pandas is loaded by those alone who use it.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pandas.api.types import infer_dtype, is_string_dtype

from tfrecord_io.errors import (
    InferenceError,
    TFRecordError,
    TFRecordWarning,
    UnsupportedTypeError,
    warn,
)
from tfrecord_io.schema import leaf_type, list_depth, with_leaf

#: The dtype, to compare with: of some of Arrow's types pandas' `is_object_dtype` raises.
OBJECTS: np.dtype[Any] = np.dtype(object)


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

    Warns
    -----
    TFRecordWarning
        A level of the index has no name, or that of a column.
    """
    check_names(list(frame.columns))
    columns = {name: frame[name] for name in frame.columns}
    if not isinstance(frame.index, pd.RangeIndex):
        for level, name in enumerate(frame.index.names):
            # Named as pyarrow names it.
            free = f"__index_level_{level}__" if name is None or name in columns else name
            if free in columns:
                raise UnsupportedTypeError(
                    f"the frame's index would become the column {free!r}, and there is one: rename "
                    "it, or write frame.reset_index(drop=True) to leave the index out"
                )
            columns[free] = pd.Series(frame.index.get_level_values(level), name=free)
            if free != name:
                # Rows that were chosen, sorted or put together have such an index.
                warn(
                    f"the frame's index becomes the column {free!r}; write "
                    "frame.reset_index(drop=True) to leave it out, or rename the index",
                    TFRecordWarning,
                )
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
        if dtype == OBJECTS or is_string_dtype(dtype):
            advice = "convert the column"
            if any(getattr(value, "ndim", 0) > 1 for value in column):
                advice = "numpy.ravel makes lists of arrays with several axes"
            raise InferenceError(
                f"the values of column {column.name!r} have no one type of Arrow's ({error}); "
                f"{advice}",
                feature=str(column.name),
            ) from error
        raise UnsupportedTypeError(
            f"column {column.name!r} is of dtype {dtype}, which is no type of Arrow's ({error}); "
            "convert it",
            feature=str(column.name),
        ) from error


def _to_arrow(column: pd.Series) -> pa.Array | pa.ChunkedArray:
    dtype = column.dtype
    if dtype == OBJECTS:
        return _of_objects(column)
    if isinstance(dtype, pd.PeriodDtype):
        raise NotImplementedError("the frequency of periods would be lost")
    if isinstance(dtype, pd.SparseDtype):
        raise NotImplementedError("column.sparse.to_dense() has one")
    if isinstance(dtype, pd.CategoricalDtype):
        values = to_arrow(pd.Series(dtype.categories, name=column.name))
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        codes = column.cat.codes.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values)
    return pa.Array.from_pandas(column)


def _of_objects(column: pd.Series) -> pa.Array | pa.ChunkedArray:
    """Return Python objects as Arrow.

    Raises
    ------
    ValueError
        Something would be lost.
    """
    if infer_dtype(column, skipna=True) == "string":
        # The quick way for what most objects are.
        return pa.Array.from_pandas(column)
    types = _refuse_mixtures(column)
    array = _with_nans(column, pa.Array.from_pandas(column))
    leaf = leaf_type(array.type)
    is_number = pat.is_integer(leaf) or pat.is_floating(leaf) or pat.is_decimal(leaf)
    # Of what a list holds behind a text, bytes become text.
    may_mix = len(types) > 1 and (is_number or pat.is_string(leaf))
    if not (pat.is_temporal(leaf) or pat.is_binary(leaf) or may_mix):
        return array
    values = column.dropna()
    for _ in range(list_depth(array.type)):
        values = pd.Series(list(itertools.chain.from_iterable(values)), dtype=object).dropna()
    if is_number:
        _check_numbers(values, array)
        return array
    samples = {(type(v), getattr(v, "tzinfo", None) is None): v for v in values}
    kinds = {_kind(value, str(leaf)): value for value in samples.values()}
    if len(kinds) > 1:
        (one, a), (other, b), *_ = kinds.items()
        raise ValueError(f"{a!r} is a {one}, {b!r} a {other}")
    if _ZONED_TIME in kinds:
        raise ValueError(f"{kinds[_ZONED_TIME]!r} has a zone, and Arrow's times have none")
    if pat.is_timestamp(leaf):
        times = [value for value in values if isinstance(value, pd.Timestamp)]
        for time in times:
            if not datetime.MINYEAR <= time.year <= datetime.MAXYEAR:
                raise ValueError(f"{time.asm8} is in no year that Python has")
        if any(time.nanosecond for time in times):
            nanoseconds = pa.timestamp("ns", leaf.tz)
            return pa.Array.from_pandas(column, type=with_leaf(array.type, nanoseconds))
    if pat.is_duration(leaf):
        own = (value for value in values if isinstance(value, pd.Timedelta))
        # As Python's, which pyarrow asks, those of the long units are of no length.
        if any(value.nanoseconds or value.unit in ("s", "ms") for value in own):
            array = pa.Array.from_pandas(column, type=with_leaf(array.type, pa.duration("ns")))
        _check_durations(values, array)
    return array


def _with_nans(column: pd.Series, array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return lists with their NaNs, which pyarrow takes for nulls that no list can hold here."""
    leaves = _leaves(array)
    t = leaves.type
    # Of NaNs alone it makes nulls without a type, and of those beside integers nulls of integers.
    may_hold = pat.is_floating(t) or pat.is_integer(t) or pat.is_null(t)
    if leaves is array or not leaves.null_count or not may_hold:
        return array
    lists = column.where(column.notna(), None).tolist()
    try:
        return pa.array(lists, from_pandas=False)
    except pa.ArrowException:
        # They hold pandas' own signs of what is missing.
        return array


def _leaves(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    while list_depth(array.type):
        # Of lists in chunks their own method takes nothing apart.
        array = pc.list_flatten(array)
    return array


def _check_numbers(values: pd.Series, array: pa.Array | pa.ChunkedArray) -> None:
    """Raise `ValueError` for a number that another type of number cut."""
    found = [number for number in _leaves(array).drop_null().to_pylist() if number == number]
    for value, number in zip(values, found, strict=True):
        exact = value.item() if isinstance(value, np.generic) else value
        is_zero = isinstance(exact, float) and exact == 0
        if exact != number or (is_zero and math.copysign(1, exact) != math.copysign(1, number)):
            raise ValueError(f"{value!r} would become {number!r}")


def _check_durations(values: pd.Series, array: pa.Array | pa.ChunkedArray) -> None:
    """Raise `ValueError` for one of an array whose unit pyarrow took for that of another array."""
    for value, found in zip(values, _leaves(array).drop_null(), strict=True):
        if isinstance(value, np.timedelta64):
            kept = np.timedelta64(found.value, found.type.unit)
            if value != kept:
                raise ValueError(f"{value!r} would become {kept!r}")


def _refuse_mixtures(column: pd.Series) -> set[type]:
    """Raise `ValueError` for what pyarrow takes for one another, and return the types of scalars.

    These are times and numbers, and numbers and booleans. Beside some values of NumPy its times
    would even crash pyarrow (26.0.1).
    """
    samples: dict[type, Any] = {}
    # Many times as fast as what a series gives one by one.
    lists: list[Any] = [column.to_numpy().tolist()]
    for _ in range(_MOST_LEVELS):
        values = functools.partial(itertools.chain.from_iterable, lists)
        kinds = dict.fromkeys(map(type, values()))
        for kind in kinds:
            if not issubclass(kind, (*_LISTS, *_MISSING)):
                there = (value for value in values() if type(value) is kind and _is_there(value))
                for value in itertools.islice(there, 1):
                    samples[kind] = value
        if not any(issubclass(kind, _LISTS) for kind in kinds):
            break
        inner = []
        for value in values():
            if isinstance(value, np.ma.MaskedArray) and value.mask.any():
                raise ValueError("a masked array would lose its mask")
            if isinstance(value, np.ndarray) and value.dtype != object:
                one = value if value.size else np.zeros(1, value.dtype)
                samples[value.dtype.type] = one.flat[0]
            elif isinstance(value, _LISTS):
                inner.append(value)
        lists = inner
    for group in (_TIMES, _DURATIONS, np.datetime64, (bool, np.bool_)):
        these = [value for value in samples.values() if isinstance(value, group)]
        others = [value for value in samples.values() if not isinstance(value, group)]
        if these and others:
            raise ValueError(f"{these[0]!r} and {others[0]!r} are of several kinds")
    return set(samples)


def _is_there(value: Any) -> bool:
    if isinstance(value, float):
        return value == value
    # What is missing is of every kind, but for NumPy's times, and its NaNs other than Python's.
    return isinstance(value, np.datetime64 | np.floating) or pd.isna(value) is not True


_MISSING = (type(None), type(pd.NaT), type(pd.NA))
_LISTS = (list, tuple, set, frozenset, np.ndarray)
_DURATIONS = (datetime.timedelta, np.timedelta64)
_TIMES = (*_DURATIONS, datetime.date, datetime.time)

#: More than types have; a list may also hold itself.
_MOST_LEVELS = 4

_ZONED_TIME = "time with a zone"


def _kind(value: object, otherwise: str) -> str:
    if isinstance(value, str):
        return "str"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "binary"
    if isinstance(value, datetime.datetime):
        return "datetime" if value.tzinfo is None else "datetime with a zone"
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        return _ZONED_TIME
    return otherwise
