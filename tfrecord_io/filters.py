"""Filters: from what callers write to an Arrow expression, the columns it needs, files it excludes.

Callers write pyarrow's two forms: tuples ``(column, operator, value)`` in a list (all must hold) or
in a list of lists (one of the lists must hold), or a `pyarrow.compute.Expression`. Rows are kept
where the expression is true; null is not true. Nulls are found by Dask's ``is`` and ``is not``.

Nothing here opens a file. Excluding is careful: a file goes only if no row of it can be kept.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.arrow_take import take_rows
from tfrecord_io.arrow_views import without_any_views
from tfrecord_io.cast_leaves import decimals
from tfrecord_io.errors import OptionError
from tfrecord_io.options import no_column
from tfrecord_io.schema import schema_without_views, type_without_views

Term: TypeAlias = tuple[str, str, Any]
Filters: TypeAlias = Any

_INT64_END = 2**63
_NANOSECONDS = re.compile(r"[.,]\d{6,}[1-9]")
_MOST_FLOAT32 = float(np.finfo(np.float32).max)

#: Of NumPy's times, those of which Arrow (26.0.1) makes no scalars.
_COARSE_UNITS = {"Y", "M", "W", "D", "h", "m"}


@dataclass(frozen=True, slots=True)
class TextValue:
    """A value as text, for callers who do not know the column's type yet.

    Attributes
    ----------
    text : str
        As Arrow and ISO 8601 have it: ``12``, ``true``, ``2026-01-05``, ``2026-01-05 12:00``.
    zone : datetime.tzinfo
        Of a time without an offset, where the column's times have a zone.
    """

    text: str
    zone: datetime.tzinfo = datetime.timezone.utc

    def __repr__(self) -> str:
        return repr(self.text)

    def typed(self, t: pa.DataType) -> Any:
        """Return the value of this type."""
        if pat.is_null(t):
            return self.text
        value = pa.scalar(self.text)
        if not (pat.is_timestamp(t) and t.tz is not None):
            return value.cast(t).as_py()
        if not _NANOSECONDS.search(self.text):
            time = datetime.datetime.fromisoformat(self.text)
            return time if time.tzinfo else time.replace(tzinfo=self.zone)
        # Python would cut them off.
        try:
            return value.cast(t).as_py()
        except pa.ArrowInvalid:
            # There is no offset.
            return value.cast(pa.timestamp(t.unit)).as_py().replace(tzinfo=self.zone)


def _is_in(column: pc.Expression, values: list[Any]) -> pc.Expression:
    found = _is_one_of(column, values)
    # Arrow looks for bits, so 0.0 would not find -0.0, which is equal.
    has_zero = any(_is_number(value) and value == 0 for value in values)
    return found | column.isin([0.0, -0.0]) if has_zero else found


def _is_one_of(column: pc.Expression, values: list[Any]) -> pc.Expression:
    if any(map(_is_beyond_int64, values)):
        return column.isin(pa.array(values, pa.uint64()))
    fine = next((value for value in values if _type_of_nanoseconds(value) is not None), None)
    if fine is not None:
        whole = [None if value is None else type(fine)(value).value for value in values]
        return column.isin(pa.array(whole, _type_of_nanoseconds(fine)))
    if any(value is not None for value in values):
        return column.isin(values)
    # Values without a type fit columns of some types only.
    return column.is_null() if values else pc.scalar(False)


_OPERATORS: dict[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "=": eq,
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "in": _is_in,
    "not in": lambda column, values: ~_is_in(column, values),
    "is": lambda column, _: column.is_null(),
    "is not": lambda column, _: column.is_valid(),
}
#: Those that take several values, in a list, and none.
_OF_LISTS = ("in", "not in")
_OF_NULLS = ("is", "is not")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_beyond_int64(value: Any) -> bool:
    """Return whether a value is an integer that Arrow does not take for one by itself."""
    return isinstance(value, int) and _INT64_END <= value < 2 * _INT64_END


def _type_of_nanoseconds(value: Any) -> pa.DataType | None:
    """Return the type of a time of pandas that has nanoseconds, which Arrow drops by itself."""
    if getattr(value, "nanosecond", 0):
        return pa.timestamp("ns", None if value.tzinfo is None else "UTC")
    return pa.duration("ns") if getattr(value, "nanoseconds", 0) else None


def parse(filters: Filters) -> list[list[Term]] | pc.Expression | None:
    """Return filters as a list of lists of terms, as the expression that was given, or None.

    Raises
    ------
    OptionError
        Neither of the forms, or an unknown operator.

    Examples
    --------
    >>> parse([("year", "=", 2026), ("place", "in", ["a", "b"])])
    [[('year', '=', 2026), ('place', 'in', ['a', 'b'])]]
    """
    if filters is None or isinstance(filters, pc.Expression):
        return filters
    if not isinstance(filters, Sequence) or isinstance(filters, str):
        raise _not_filters(filters)
    if not filters:
        return None
    groups = [filters] if all(isinstance(term, tuple) for term in filters) else filters
    for group in groups:
        if not isinstance(group, Sequence) or not group:
            raise _not_filters(filters)
        for term in group:
            _check_term(term, filters)
    return [list(group) for group in groups]


def _check_term(term: Any, filters: Filters) -> None:
    if not isinstance(term, tuple) or len(term) != 3 or not isinstance(term[0], str):
        raise _not_filters(filters)
    if term[1] not in _OPERATORS:
        known = ", ".join(_OPERATORS)
        raise OptionError(f"filters have the operator {term[1]!r}; it must be one of {known}")
    if (term[2] is None) is not (term[1] in _OF_NULLS):
        raise OptionError(
            f"filters compare {term[0]!r} by {term[1]!r} with {term[2]!r}; a null is found by "
            f"({term[0]!r}, 'is', None), what is none by ({term[0]!r}, 'is not', None)"
        )
    is_many = isinstance(term[2], list | tuple | set | frozenset)
    if is_many is not (term[1] in _OF_LISTS):
        wanted = "a list, tuple or set" if term[1] in _OF_LISTS else "one value"
        raise OptionError(f"filters compare {term[0]!r} with {term[1]!r}, which takes {wanted}")


def _not_filters(filters: Filters) -> OptionError:
    return OptionError(
        f"filters are {filters!r}; give a list of (column, operator, value), a list of such lists, "
        "or a pyarrow.compute.Expression"
    )


def expression(
    parsed: list[list[Term]] | pc.Expression | None, schema: pa.Schema
) -> pc.Expression | None:
    """Return parsed filters as one expression on columns of a schema.

    Raises
    ------
    OptionError
        A value that Arrow has no type for.
    """
    if parsed is None or isinstance(parsed, pc.Expression):
        return parsed
    groups = [
        reduce(lambda a, b: a & b, (_compared(term, schema) for term in group)) for group in parsed
    ]
    return reduce(lambda a, b: a | b, groups)


def _compared(term: Term, schema: pa.Schema) -> pc.Expression:
    name, operator, value = term
    try:
        t = schema.field(name).type if name in schema.names else pa.null()
        column = pc.field(name)
        value = _typed(value, t)
        if pat.is_decimal(t):
            return _compared_decimals(column, operator, value, t)
        value = _widened(value)
        if pat.is_float16(t):
            # Arrow (26.0.1) compares no halves.
            column = column.cast(pa.float32())
        if pat.is_uint64(t) and operator in _OF_LISTS:
            # Arrow would look for all in a type that has these as well.
            value = [one for one in value if not _is_whole(one) or 0 <= one < 2 * _INT64_END]
        if operator in _OF_LISTS:
            value = _in_kinds(value, t)
        elif pat.is_integer(t) and _is_none_of(value, t):
            return _beside(column, operator, value, t)
        else:
            value = _in_kind(value, t)
        if pat.is_timestamp(t) and t.tz is not None:
            value = _in_zone(operator, value, t)
        elif _is_beyond_int64(value):
            value = pa.scalar(value, pa.uint64())
        elif _is_whole(value) and pat.is_uint64(t):
            # As int64, which it would be, it would make int64 of all values of the column.
            value = pa.scalar(value, pa.decimal128(20))
        elif (fine := _type_of_nanoseconds(value)) is not None:
            value = pa.scalar(value.value, fine)
        return _OPERATORS[operator](column, value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise OptionError(f"filters compare {name!r} with {value!r}: {error}") from error


def _typed(value: Any, t: pa.DataType) -> Any:
    """Return a value with what was text in the column's type, and several values as a list."""
    if isinstance(value, set | frozenset):
        # Of equal sets of texts the order hangs on the process; what is named by filters must not.
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple | set | frozenset):
        return [_typed(one, t) for one in value]
    return value.typed(t) if isinstance(value, TextValue) else value


def _widened(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_widened, value)]
    if isinstance(value, np.datetime64 | np.timedelta64):
        is_coarse = np.datetime_data(value.dtype)[0] in _COARSE_UNITS
        return value.astype(f"{value.dtype.kind}8[s]") if is_coarse else value
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.float16) else value


def _in_kind(value: Any, t: pa.DataType) -> Any:
    """Return a float as an integer for a type of integers, and an integer as a float for floats.

    Arrow (26.0.1) compares integers with floats as floats of 32 bits if these are enough for the
    float, or the column's, and refuses integers from 2**24 on.
    """
    if pat.is_integer(t) and _is_float(value):
        return int(value)
    if pat.is_floating(t) and _is_whole(value) and abs(value) < 2 * _INT64_END:
        return float(value) if float(value) == value else value
    return value


def _in_kinds(values: list[Any], t: pa.DataType) -> list[Any]:
    """Return values without numbers that no row has, for which Arrow would look for others."""
    known = [value for value in values if not _is_none_of(value, t)]
    # It takes no list of floats and decimals.
    are_plain = all(value is None or _is_whole(value) or _is_float(value) for value in known)
    return [_in_kind(value, t) for value in known] if are_plain else known


def _is_none_of(value: Any, t: pa.DataType) -> bool:
    """Return whether a float is none of a type's integers, or a number none of its floats.

    A float stands for the nearest one of 32 bits: it is none only if it is too large.
    """
    if pat.is_integer(t) and _is_float(value):
        first, last = _units_of(t)
        return not value.is_integer() or not first <= int(value) <= last
    if pat.is_floating(t) and _is_whole(value) and abs(value) < 2 * _INT64_END:
        return bool(float(value if pat.is_float64(t) else np.float32(value)) != value)
    is_narrow = pat.is_float16(t) or pat.is_float32(t)
    return is_narrow and isinstance(value, float) and _MOST_FLOAT32 < abs(value) < math.inf


def _is_float(value: Any) -> bool:
    return isinstance(value, float | np.floating)


def _in_zone(operator: str, value: Any, t: pa.DataType) -> Any:
    """Return times with a zone as the same instants in a column's zone, others as they are.

    Arrow (26.0.1) compares no times of two zones.
    """
    times = value if operator in _OF_LISTS else [value]
    there = [time for time in times if time is not None]
    if not all(isinstance(time, datetime.datetime) and time.tzinfo for time in there):
        return value
    unit = "ns" if any(getattr(time, "nanosecond", 0) for time in there) else "us"
    found = list(pa.array(times, pa.timestamp(unit, t.tz)))
    return found if operator in _OF_LISTS else found[0]


def _compared_decimals(
    column: pc.Expression, operator: str, value: Any, t: pa.DataType
) -> pc.Expression:
    """Compare decimals with numbers by their digits.

    Arrow (26.0.1) compares decimals with floats by a float that is often not the nearest, and so
    finds no 0.3. A float means its value here or, if the type lacks it, its shortest digits.
    """
    compare = _OPERATORS[operator]
    if operator not in _OF_LISTS:
        if not _is_number(value):
            return compare(column, value)
        one = _as_decimal(value, t)
        return _beside(column, operator, value, t) if one is None else compare(column, one)
    found = {one: _as_decimal(one, t) for one in value}
    if any(one is not None and not _is_number(one) for one in found):
        return compare(column, value)
    # No row has what the type does not have.
    known = [one for value, one in found.items() if value is None or one is not None]
    return compare(column, known)


def _beside(column: pc.Expression, operator: str, value: Any, t: pa.DataType) -> pc.Expression:
    """Compare decimals or integers with a number that is none of their type."""
    number = Decimal(str(value))
    if operator == "!=":
        return column.is_valid()
    if operator in ("=", "==") or number.is_nan():
        return pc.scalar(False)
    # The last value below the number tells the smaller ones from the larger ones.
    first, end = _units_of(t)
    below = min(math.floor(_units(number, t)), end)
    if below < first:
        return pc.scalar(False) if operator in ("<", "<=") else column.is_valid()
    last = decimals([below], t if pat.is_decimal(t) else pa.decimal128(20))[0]
    return column <= last if operator in ("<", "<=") else column > last


def _is_number(value: Any) -> bool:
    # NumPy's durations are integers to Python.
    is_one = isinstance(value, int | float | np.integer | np.floating | Decimal)
    return is_one and not isinstance(value, bool | np.timedelta64)


def _as_decimal(value: Any, t: pa.DataType) -> pa.Scalar | None:
    if not _is_number(value):
        return None
    digits = Decimal(str(value))
    is_binary = not isinstance(value, Decimal | int | np.integer)
    for number in (Decimal(float(value)) if is_binary else digits, digits):
        if number.is_finite():
            units = _units(number, t)
            if units.denominator == 1 and abs(units) < 10**t.precision:
                return decimals([int(units)], t)[0]
    return None


def _units_of(t: pa.DataType) -> tuple[int, int]:
    """Return the first and the last value of a type of integers or decimals, in units."""
    if pat.is_decimal(t):
        return 1 - 10**t.precision, 10**t.precision - 1
    values = np.iinfo(t.to_pandas_dtype())
    return int(values.min), int(values.max)


def _units(number: Decimal, t: pa.DataType) -> Fraction:
    """Return a number in units of a type's last digit, or one as far from all of its values."""
    if not number:
        return Fraction(0)
    if number.is_infinite() or abs(number.adjusted()) > _MOST_DIGITS:
        far = -_MOST_DIGITS if number.adjusted() < 0 else _MOST_DIGITS
        number = Decimal((int(number.is_signed()), (1,), far))
    return Fraction(number) * Fraction(f"1e{t.scale if pat.is_decimal(t) else 0}")


#: Decimals of Arrow have fewer, on either side of the point.
_MOST_DIGITS = 200


def only_columns(parsed: list[list[Term]], schema: pa.Schema) -> pc.Expression | None:
    """Return what must hold of these columns alone if the terms are to hold, or None."""
    known = set(schema.names)
    groups = [[term for term in group if term[0] in known] for group in parsed]
    return expression(groups, schema) if all(groups) else None


def columns_of(parsed: list[list[Term]] | pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the names of the columns that filters need, in the order of the schema.

    Raises
    ------
    OptionError
        They do not fit the schema: an unknown column, or a value of another type.
    """
    if isinstance(parsed, pc.Expression):
        return _columns_of_expression(parsed, schema)
    terms = list(itertools.chain.from_iterable(parsed))
    for term in terms:
        name, _, value = term
        if name not in schema.names:
            raise no_column(name, schema.names)
        field = schema.field(name)
        problem = _problem_of(term, field)
        if problem is not None:
            raise OptionError(
                f"filters compare the column {name!r}, which is {field.type}, with {value!r}; "
                f"give a value of that type: {problem}"
            )
    needed = {name for name, _, _ in terms}
    return [name for name in schema.names if name in needed]


def _problem_of(term: Term, field: pa.Field) -> str | None:
    """Return why a column cannot be compared with a value, or with one of several."""
    name, operator, value = term
    schema = pa.schema([field])
    if operator in _OF_LISTS:
        # Arrow casts what is in a list to the column's type: it reads a text as a number, and cuts
        # a time to its day. So each must be what alone would be compared.
        for one in {type(one): one for one in value if one is not None}.values():
            problem = _problem(_compared((name, "==", one), schema), schema)
            if problem is not None:
                return problem
        if pat.is_date(field.type):
            for one in value:
                if isinstance(one, datetime.datetime) and (
                    one.time() != datetime.time() or _type_of_nanoseconds(one) is not None
                ):
                    return f"{one!r} is no date"
    return _problem(_compared(term, schema), schema)


def _columns_of_expression(filter_expression: pc.Expression, schema: pa.Schema) -> list[str]:
    problem = _problem(filter_expression, schema)
    if problem is not None:
        raise OptionError(f"filters do not fit the columns {', '.join(schema.names)}: {problem}")
    if not _is_by_name(filter_expression):
        return list(schema.names)
    # Arrow tells no names. So: the shortest run of columns with which the expression can be bound
    # ends in one that it needs; with that one put in front, look for the next.
    needed: list[int] = []
    while not _binds(filter_expression, schema, needed):
        shortest = bisect_left(
            range(len(schema)),
            True,
            key=lambda count: _binds(filter_expression, schema, [*needed, *range(count)]),
        )
        needed.append(shortest - 1)
    return [schema.field(index).name for index in sorted(needed)]


def _binds(filter_expression: pc.Expression, schema: pa.Schema, columns: list[int]) -> bool:
    part = pa.schema([schema.field(index) for index in sorted({*columns})])
    return _problem(filter_expression, part) is None


def _problem(filter_expression: pc.Expression, schema: pa.Schema) -> str | None:
    # Of no rows at all Arrow does not look at everything.
    schema = schema_without_views(schema)
    nulls = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    try:
        _filtered(nulls, filter_expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        return str(error)
    return None


def fits(filter_expression: pc.Expression, schema: pa.Schema) -> bool:
    """Return whether an expression names no columns but these, and their types suit it."""
    return _is_by_name(filter_expression) and _problem(filter_expression, schema) is None


def _is_by_name(filter_expression: pc.Expression) -> bool:
    """Return whether no column is meant by its position, which is another among fewer columns."""
    try:
        # Arrow tells no names, but only an expression by name can be taken to pieces for pickle.
        filter_expression.__reduce__()
    except pa.ArrowNotImplementedError:
        return False
    return True


def filter_batch(
    batch: pa.RecordBatch, filter_expression: pc.Expression, columns: Sequence[str]
) -> pa.RecordBatch:
    """Return the rows of a batch for which an expression, which needs these columns, is true.

    Raises
    ------
    OptionError
        A value of the batch cannot be compared as the expression says.
    """
    kept = _kept(batch.select(columns), filter_expression)
    return batch if len(kept) == batch.num_rows else take_rows(batch, kept)


def kept_rows(table: pa.Table, filter_expression: pc.Expression) -> list[int]:
    """Return the indices of a table's rows for which an expression is true.

    Raises
    ------
    OptionError
        See `filter_batch`.
    """
    return list(_kept(table, filter_expression).to_pylist())


def _kept(columns: pa.Table | pa.RecordBatch, filter_expression: pc.Expression) -> pa.Array:
    """Return the indices of the rows for which an expression is true."""
    name = "row"
    while name in columns.schema.names:
        name += "_"
    with _comparing():
        arrays = map(_without_views, columns.columns)
        table = pa.table(
            [*arrays, pa.array(np.arange(columns.num_rows))], [*columns.schema.names, name]
        )
        return _filtered(table, filter_expression)[name].combine_chunks()


def _filtered(table: pa.Table, filter_expression: pc.Expression) -> pa.Table:
    """Return what `pyarrow.Table.filter` does, worked out by this thread alone.

    Arrow's own threads let go of the table after the result is there. If its memory is Python's, as
    that of NumPy is, and the interpreter has begun to end by then, that aborts the process (pyarrow
    26.0.1).
    """
    from pyarrow.acero import Declaration, FilterNodeOptions, TableSourceNodeOptions

    steps = [
        Declaration("table_source", TableSourceNodeOptions(table)),
        Declaration("filter", FilterNodeOptions(filter_expression)),
    ]
    return Declaration.from_sequence(steps).to_table(use_threads=False)


def _without_views(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = without_any_views(array)
    t = type_without_views(array.type)
    return array if array.type == t else array.cast(t)


@contextlib.contextmanager
def _comparing() -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise OptionError(
            f"filters do not fit the values of their columns: {error}; compare with values of the "
            "columns' own types"
        ) from error


def possible_rows(
    table: pa.Table, filter_expression: pc.Expression, schema: pa.Schema
) -> list[int]:
    """Return the indices of rows of known values for which an expression may still be true.

    Parameters
    ----------
    table : pyarrow.Table
        One row a file: the values that all rows of the file have in these columns.
    filter_expression : pyarrow.compute.Expression
        On the columns of `schema`.
    schema : pyarrow.Schema
        All columns, those of the table among them.

    Raises
    ------
    OptionError
        See `filter_batch`.
    """
    import pyarrow.dataset as ds
    import pyarrow.fs as pafs

    # Arrow's data sets simplify a filter by what is known of a fragment; nothing is opened.
    # Like rows, they are compared without views, which Arrow cannot.
    columns = dict(zip(table.column_names, map(_without_views, table.columns), strict=True))
    known = [
        reduce(lambda a, b: a & b, (_is_value(name, columns[name][row]) for name in columns))
        for row in range(table.num_rows)
    ]
    # Of a null in a dictionary Arrow 25 says that it is a value; so values are compared.
    fields = schema_without_views(schema)
    values = pa.schema(
        [f.with_type(f.type.value_type) if pat.is_dictionary(f.type) else f for f in fields]
    )
    dataset = ds.FileSystemDataset.from_paths(
        [str(row) for row in range(table.num_rows)],
        schema=values,
        format=ds.IpcFileFormat(),
        filesystem=pafs.LocalFileSystem(),
        partitions=known,
    )
    with _comparing():
        possible = list(dataset.get_fragments(filter=filter_expression))
    return [int(fragment.path) for fragment in possible]


def _is_value(name: str, scalar: pa.Scalar) -> pc.Expression:
    if not scalar.is_valid:
        return pc.field(name).is_null()
    if pat.is_floating(scalar.type) and math.isnan(scalar.as_py()):
        # NaN equals nothing, itself included; so nothing is said of it.
        return pc.scalar(True)
    return pc.field(name) == scalar
