"""Filters that Spark pushes down, as one Arrow expression.

What is pushed only leaves rows out early: Spark filters again. So a filter that cannot be said
exactly is left to Spark. Comparisons of floats are among those, since to Spark NaN is a number that
is larger than all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import datasource

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    datasource.EqualTo: lambda column, value: column == value,
    datasource.GreaterThan: lambda column, value: column > value,
    datasource.GreaterThanOrEqual: lambda column, value: column >= value,
    datasource.LessThan: lambda column, value: column < value,
    datasource.LessThanOrEqual: lambda column, value: column <= value,
    datasource.In: lambda column, value: column.isin(value),
}
_TEXTS: dict[type, Callable[[Any, str], Any]] = {
    datasource.StringStartsWith: pc.starts_with,
    datasource.StringEndsWith: pc.ends_with,
    datasource.StringContains: pc.match_substring,
}


def expression(filters: Iterable[datasource.Filter], schema: pa.Schema) -> Any:
    """Return what all filters say that can be said exactly, or None.

    Parameters
    ----------
    filters : iterable of pyspark.sql.datasource.Filter
        All must hold.
    schema : pyarrow.Schema
        The columns.
    """
    found = [_one(one, schema) for one in filters]
    said = [one for one in found if one is not None]
    return reduce(lambda a, b: a & b, said) if said else None


def _one(one: datasource.Filter, schema: pa.Schema) -> Any:
    if isinstance(one, datasource.Not):
        inner = _one(one.child, schema)
        return None if inner is None else ~inner
    if len(one.attribute) != 1 or one.attribute[0] not in schema.names:
        return None
    column, t = pc.field(one.attribute[0]), schema.field(one.attribute[0]).type
    if isinstance(one, datasource.IsNull):
        return column.is_null()
    if isinstance(one, datasource.IsNotNull):
        return column.is_valid()
    if type(one) in _TEXTS and pat.is_string(t) and isinstance(one.value, str):
        return _TEXTS[type(one)](column, one.value)
    if type(one) not in _COMPARISONS or not _is_exact(t):
        return None
    values = list(one.value) if isinstance(one, datasource.In) else [one.value]
    try:
        scalars = pa.array(values, t)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if scalars.null_count:
        return None
    return _COMPARISONS[type(one)](column, scalars if len(values) != 1 else scalars[0])


def _is_exact(t: pa.DataType) -> bool:
    return bool(pat.is_integer(t) or pat.is_string(t) or pat.is_date(t) or pat.is_boolean(t))
