"""Filters: those of an option, as the core takes them; those that Spark pushes, as an expression.

An option is made before anyone knows the columns' types, so its texts stand for values of whatever
type a column has, as in Spark's SQL.

What is pushed only leaves rows out early: Spark filters again. So a filter that cannot be said
exactly is left to Spark. Comparisons of floats are among those, since to Spark NaN is a number that
is larger than all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import date, tzinfo
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import datasource

from tfrecord_io.errors import OptionError
from tfrecord_io.filters import Filters, Term, TextValue, parse

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


def filters_text(filters: Filters) -> str:
    """Return filters, as `tfrecord_io.filters.parse` takes them, as the text of an option.

    Raises
    ------
    OptionError
        An expression, or a value of a type that no text tells.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, set | frozenset):
            return list(value)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Decimal):
            return str(value)
        if isinstance(value, np.generic):
            return value.item()
        raise OptionError(
            f"filters have {value!r}; Spark's reads take lists of (column, operator, value), with "
            "numbers, bools, texts, dates, times and decimals as values"
        )

    return json.dumps(filters, default=plain)


def parse_filters(text: str | None, zone: tzinfo) -> Filters:
    """Return the filters in the text of an option.

    Parameters
    ----------
    text : str or None
        JSON: a list of ``[column, operator, value]``, or a list of such lists.
    zone : datetime.tzinfo
        Of times without an offset.

    Raises
    ------
    OptionError
        Neither of these, or an unknown operator.
    """
    if text is None:
        return None

    def value(told: Any) -> Any:
        if isinstance(told, list):
            return [*map(value, told)]
        return TextValue(told, zone) if isinstance(told, str) else told

    def terms(group: list[Any]) -> list[Term]:
        return [(name, operator, value(told)) for name, operator, told in group]

    try:
        found = json.loads(text)
        is_one_group = all(isinstance(name, str) for name, *_ in found)
        groups = [terms(found)] if is_one_group else [*map(terms, found)]
    except (ValueError, TypeError):
        raise OptionError(
            f"filters is {text!r}; it must be JSON like "
            '[["day", ">=", "2026-01-05"], ["place", "in", ["a", "b"]]], of which all must hold, '
            "or a list of such lists, of which one must"
        ) from None
    return parse(groups if found else [])


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
