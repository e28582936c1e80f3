"""Columns as tensors: which type and shape, and their values taken apart.

Both `tfrecord_io.tensors.numpy_batches` and `tfrecord_io.tensors.tf_dataset` make tensors of what
stands here, so that a column has the same values in all frameworks:

- Booleans, integers and floats keep their type. Dates, times, timestamps and durations are the
  integers that the file holds; a decimal is a float64; a dictionary is its values.
- A column of fixed-size lists is dense; one of lists is ragged, lists of lists twice so, even where
  the outer ones have a fixed size.
- A null list is an empty one. A null in a column of single values or of fixed-size lists has to be
  given a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.cast_leaves import decimal_to_float64
from tfrecord_io.errors import OptionError, SchemaMismatchError, UnsupportedTypeError
from tfrecord_io.options import settings
from tfrecord_io.schema import is_any_list, leaf_type, normal_type, plain_list, storage_type
from tfrecord_io.time_text import storage_integer


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorColumn:
    """What a column becomes.

    Attributes
    ----------
    name : str
        Its name.
    leaf : pyarrow.DataType
        Type of its values: bool, an integer, a float, string or binary.
    ragged_rank : int
        How many lists stand around a value, down to the innermost of any length: 0, 1 or 2.
    inner : int or None
        Length of the fixed-size list inside of these, if there is one.
    default : object
        What stands for null where a column has single values, and for a null fixed-size list, then
        as a list; None if nothing does.
    is_specified : bool
        Whether it is read for a feature of a specification, which is where a default has its place.
    """

    name: str
    leaf: pa.DataType
    ragged_rank: int
    inner: int | None
    default: Any = None
    is_specified: bool = False

    @property
    def is_bytes(self) -> bool:
        """Whether its values are text or bytes."""
        return bool(pat.is_string(self.leaf) or pat.is_binary(self.leaf))

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of its numbers."""
        dtype: np.dtype[Any] = np.dtype(self.leaf.to_pandas_dtype())
        return dtype


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema by which columns are read that `taken_apart` takes, of the same values.

    Without dictionaries above all: those of several files need not fit into one.
    """
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(t: pa.DataType) -> pa.DataType:
    t = storage_type(t)
    if pat.is_dictionary(t):
        return _plain_type(t.value_type)
    return plain_list(t, _plain_type(t.value_type)) if is_any_list(t) else t


def tensor_columns(
    schema: pa.Schema, defaults: Mapping[str, Any] | None, *, are_specified: bool = False
) -> tuple[TensorColumn, ...]:
    """Return what the columns of a schema become.

    Parameters
    ----------
    schema : pyarrow.Schema
        Types that TFRecord can hold.
    defaults : mapping, optional
        By column, what stands for null.
    are_specified : bool
        See `TensorColumn.is_specified`.

    Raises
    ------
    OptionError
        A default for lists of any length, or one that the column's type cannot hold.
    UnsupportedTypeError
        A column of which no record has a value, or one of fixed-size lists of no values.
    """
    given = settings(defaults, "defaults")
    found = []
    for field in schema:
        leaf = _leaf(field)
        t = normal_type(field.type)
        depth, rank, inner = 0, 0, None
        while is_any_list(t):
            depth += 1
            if pat.is_fixed_size_list(t):
                inner = t.list_size if inner is None else inner * t.list_size
            else:
                rank, inner = depth, None
            t = t.value_type
        if inner == 0:
            raise UnsupportedTypeError(
                f"column {field.name!r} holds lists of no values, of which there are no tensors: "
                "leave it out with columns, or read it as lists of any length with schema",
                feature=field.name,
            )
        default = None
        if field.name in given:
            default = _checked_default(field, leaf, given.pop(field.name))
        found.append(
            TensorColumn(
                name=field.name,
                leaf=leaf,
                ragged_rank=rank,
                inner=inner,
                default=default,
                is_specified=are_specified,
            )
        )
    if given:
        raise OptionError(f"defaults names {next(iter(given))!r}, and no such column is read")
    return tuple(found)


def _leaf(field: pa.Field) -> pa.DataType:
    leaf = leaf_type(normal_type(field.type))
    if pat.is_null(leaf):
        raise UnsupportedTypeError(
            f"no record has a value of column {field.name!r}, so its type is not known: leave it "
            "out with columns, or give a schema",
            feature=field.name,
        )
    if pat.is_decimal(leaf):
        return pa.float64()
    if pat.is_temporal(leaf):
        return storage_integer(leaf)
    return pa.binary() if pat.is_fixed_size_binary(leaf) else leaf


def _checked_default(field: pa.Field, leaf: pa.DataType, value: Any) -> Any:
    t = normal_type(field.type)
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if not is_any_list(t):
        return _checked_value(field, leaf, value)
    if is_any_list(t.value_type):
        raise OptionError(f"defaults names {field.name!r}, which holds lists of lists")
    if not pat.is_fixed_size_list(t):
        raise OptionError(
            f"defaults names {field.name!r}, which holds lists: a null list is an empty one"
        )
    values = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(values, list | tuple) or len(values) != t.list_size:
        raise OptionError(
            f"defaults gives {field.name!r} {value!r}; it must be a list of {t.list_size} values"
        )
    return [_checked_value(field, leaf, value) for value in values]


def _checked_value(field: pa.Field, leaf: pa.DataType, value: Any) -> Any:
    try:
        held = pa.scalar(value, leaf).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        held = None
    # Arrow cuts off fractions, and makes infinities of floats that are too large.
    is_cut = pat.is_integer(leaf) and held != value
    if held is None or is_cut or (pat.is_floating(leaf) and np.isinf(held) and not np.isinf(value)):
        raise OptionError(f"defaults gives {field.name!r} {value!r}, which is no {leaf}")
    return value


def taken_apart(array: pa.Array, column: TensorColumn) -> tuple[list[np.ndarray[Any, Any]], Any]:
    """Return the lengths of the lists of each rank, outermost first, and all leaf values.

    Parameters
    ----------
    array : pyarrow.Array
        Values of the column, of a type as in `plain_schema`.
    column : TensorColumn
        What they become.

    Returns
    -------
    lengths : list of numpy.ndarray of int64
        As many as `TensorColumn.ragged_rank`.
    values : pyarrow.Array
        Of the leaf type, without nulls.

    Raises
    ------
    SchemaMismatchError
        A null that nothing stands for.
    """
    if array.type == column.leaf:
        return [], _without_nulls(array, column)
    is_there = None
    lengths: list[np.ndarray[Any, Any]] = []
    while is_any_list(array.type):
        if len(lengths) < column.ragged_rank:
            counts = pc.fill_null(pc.list_value_length(array), 0)
            lengths.append(counts.to_numpy().astype(np.int64, copy=False))
        elif array.null_count:
            if column.default is None:
                raise _null(column)
            is_there = array.is_valid()
        array = array.flatten()
    if pat.is_temporal(array.type):
        array = array.view(column.leaf)
    elif pat.is_decimal(array.type):
        array = decimal_to_float64(array)
    elif array.type != column.leaf:
        array = array.cast(column.leaf)
    if is_there is not None:
        array = _with_default(array, is_there, column)
    return lengths, _without_nulls(array, column)


def _with_default(values: pa.Array, is_there: pa.Array, column: TensorColumn) -> pa.Array:
    """Return the values of all fixed-size lists, given those of the lists that are there."""
    there = is_there.to_numpy(zero_copy_only=False)
    # The default stands behind the others, as one more list.
    lists = np.where(there, np.cumsum(there) - 1, np.count_nonzero(there))
    size = column.inner or 0
    places = (lists[:, np.newaxis] * size + np.arange(size)).ravel()
    return pa.concat_arrays([values, pa.array(column.default, column.leaf)]).take(pa.array(places))


def _without_nulls(array: pa.Array, column: TensorColumn) -> pa.Array:
    if not array.null_count:
        return array
    if column.default is None or column.inner is not None:
        raise _null(column)
    return array.fill_null(pa.scalar(column.default, column.leaf))


def _null(column: TensorColumn) -> SchemaMismatchError:
    if column.is_specified:
        advice = (
            "give its feature a default_value, make it a VarLenFeature, or filter these rows out"
        )
    else:
        advice = "filter these rows out"
        if not column.ragged_rank:
            advice = f"give it a value with defaults={{{column.name!r}: ...}}, or {advice}"
        if column.inner is not None:
            advice += ", or read it as lists of any length with schema"
    return SchemaMismatchError(
        f"a row has no value of column {column.name!r}, and a tensor has no null: {advice}",
        feature=column.name,
    )
