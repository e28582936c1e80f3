"""Casts of columns that change no value.

pyarrow's safe cast refuses most values that do not fit. What it changes all the same is looked at
here: for the few pairs of types in `_check`, inside lists too, values are compared with what became
of them. Nothing is rounded, with one exception: texts and decimals become the nearest float, since
hardly any of them is one. Such a float must be finite, must not be zero for a number that is not,
and its shortest digits must be the decimal. A text that is a whole number from `INTEGERS_END` on,
which may tell one thing from another, must be the float. Decimals, whose arithmetic in pyarrow
(26.0.1) overflows in silence, must stay as large. Times do not become integers, which tell no unit,
nor days instants, for which they lack a zone; a text of a time must be read as that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.arrow_views import without_any_views, without_dictionary_views
from tfrecord_io.cast_leaves import UNITS_OF_A_DAY
from tfrecord_io.schema import is_any_list, is_bytes, is_text, leaf_type, storage_type, with_leaf
from tfrecord_io.time_text import storage_integer

#: Up to here every integer is a float64.
INTEGERS_END = 2**53

#: A number that is not zero: infinities and NaN are words without digits.
_NONZERO = "^[^eE]*[1-9]"
_WHOLE = "^[+-]?[0-9]+$"

#: Takes values and what became of them, and returns where they are the same, as booleans or null.
_Check: TypeAlias = Callable[[pa.Array, pa.Array], pa.Array]


def exact_cast(array: pa.Array, t: pa.DataType) -> pa.Array:
    """Cast a column.

    Parameters
    ----------
    array : pyarrow.Array
        The column.
    t : pyarrow.DataType
        The type asked for.

    Raises
    ------
    pyarrow.ArrowException
        A value does not fit, or no value of the one type is one of the other.
    """
    array = without_dictionary_views(without_any_views(array))
    if array.type == t:
        return array
    if pat.is_fixed_size_list(t) and is_any_list(array.type) and array.null_count == len(array):
        # pyarrow takes the first value for all that is not there, even if there is none.
        return pa.nulls(len(array), t)
    source, target = leaf_type(array.type), leaf_type(t)
    is_plain = pat.is_string(source) or pat.is_large_string(source)
    if (is_text(source) or is_bytes(source)) and not (
        is_plain or is_text(target) or is_bytes(target)
    ):
        # What is read from bytes is their text, and of texts in views nothing can be asked.
        return exact_cast(array.cast(with_leaf(array.type, pa.large_string())), t)
    if _loses_unit(source, target):
        raise pa.ArrowInvalid(
            "they would be numbers without their unit; ask for a date, time, timestamp or duration"
        )
    is_kept = _check(source, target)
    if is_kept is None:
        return array.cast(t)
    if pat.is_decimal(source) and pat.is_floating(target):
        # pyarrow's own cast often misses the nearest float (6.3, pyarrow 26.0.1).
        out = array.cast(with_leaf(array.type, pa.large_string())).cast(t)
    else:
        out = array.cast(t)
    before, after = leaves(array), leaves(out)
    kept = is_kept(before, after)
    if not pc.all(kept, min_count=0).as_py():
        first = pc.index(kept, False).as_py()
        raise pa.ArrowInvalid(f"{_text(before, first)} would become {_text(after, first)}")
    return out


def leaves(array: pa.Array) -> pa.Array:
    """Return the values inside all lists and dictionaries, without those under a null list."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pat.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif is_any_list(storage_type(array.type)):
            array = array.flatten()
        else:
            return array


def _text(values: pa.Array, index: int) -> str:
    one = values.slice(index, 1)
    if pat.is_floating(one.type):
        # The digits of the wider type show what is lost.
        one = one.cast(pa.float64())
    elif pat.is_timestamp(one.type) and one.type.tz is not None:
        # Whose text is the whole instant.
        one = one.cast(pa.timestamp(one.type.unit, "UTC"))
    return str(one.cast(pa.string())[0])


def _check(source: pa.DataType, target: pa.DataType) -> _Check | None:
    """Return how to find what pyarrow's cast changes in silence; None if it changes nothing."""
    if source == target:
        return None
    if pat.is_null(target):
        # pyarrow forgets what is in a dictionary.
        return _none
    is_number = pat.is_integer(source) or pat.is_floating(source)
    if is_number and pat.is_boolean(target):
        return _same_numbers
    if pat.is_floating(target):
        if pat.is_decimal(source):
            return _same_digits
        if pat.is_floating(source):
            return _same_numbers if source.bit_width > target.bit_width else None
        if pat.is_integer(source):
            # Of others pyarrow knows which integers they hold.
            return _same_numbers if pat.is_float16(target) else None
        return _same_as_text if is_text(source) else None
    if pat.is_floating(source) and pat.is_decimal(target):
        return _same_digits
    if pat.is_decimal(target) and (is_text(source) or pat.is_decimal(source)):
        return _same_sizes
    if pat.is_integer(target):
        if is_text(source):
            return _same_signs if pat.is_signed_integer(target) else None
        if pat.is_decimal(source):
            return _same_sizes
    if pat.is_time(source) and is_text(target):
        # The text of others is that they are out of range.
        number = storage_integer(source)
        return lambda before, _: _is_in_a_day(before.view(number), before)
    if pat.is_date(source) or pat.is_timestamp(source):
        if is_text(target):
            return _same_times
        if pat.is_date(target) or pat.is_timestamp(target):
            if _has_zone(source) is not _has_zone(target):
                # Which instant a time without a zone is, its zone would tell.
                return _none
            if pat.is_date(target):
                return lambda before, after: pc.equal(before, after.cast(source))
        # A time of a day has no day.
        return _none if pat.is_time(target) else None
    if pat.is_integer(source) and pat.is_date64(target):
        # The safe cast to whole days.
        return lambda _, after: pc.equal(after, after.cast(pa.date32()).cast(target))
    if pat.is_integer(source) and pat.is_time(target):
        return _is_in_a_day
    return None


def _loses_unit(source: pa.DataType, target: pa.DataType) -> bool:
    if pat.is_duration(source) and is_text(target):
        return True
    return bool(pat.is_temporal(source) and pat.is_integer(target))


def _has_zone(t: pa.DataType) -> bool:
    return pat.is_timestamp(t) and t.tz is not None


def _none(before: pa.Array, _: pa.Array) -> pa.Array:
    return before.is_null()


def _same_times(before: pa.Array, after: pa.Array) -> pa.Array:
    """Find what texts do not tell: far years, times of days, the seconds in old zones' offsets."""
    return pc.equal(before, after.cast(pa.large_string()).cast(before.type))


def _same_signs(before: pa.Array, after: pa.Array) -> pa.Array:
    """Find hexadecimal digits that became a negative number."""
    return pc.or_(pc.greater_equal(after, 0), pc.match_substring(before, "-"))


def _same_numbers(before: pa.Array, after: pa.Array) -> pa.Array:
    a, b = before.cast(pa.float64()), after.cast(pa.float64())
    return pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))


def _same_digits(before: pa.Array, after: pa.Array) -> pa.Array:
    return pc.equal(before, after.cast(pa.string()).cast(before.type))


def _same_as_text(before: pa.Array, after: pa.Array) -> pa.Array:
    floats = after.cast(pa.float64())
    is_large = pc.greater_equal(pc.abs(floats), float(INTEGERS_END))
    is_zero = pc.equal(floats, 0.0)
    if not pc.any(pc.or_(is_large, is_zero), min_count=0).as_py():
        return pc.invert(is_large)
    is_beyond = pc.or_(pc.is_inf(floats), is_zero)
    is_lost = pc.and_(is_beyond, pc.match_substring_regex(before, _NONZERO))
    is_whole = pc.and_(is_large, pc.match_substring_regex(before, _WHOLE))
    if pc.any(is_whole, min_count=0).as_py():
        columns = (column.to_pylist() for column in (is_whole, before, floats))
        is_rounded = [
            whole and not math.isinf(number) and int(text) != number
            for whole, text, number in zip(*columns, strict=True)
        ]
        is_lost = pc.or_(is_lost, pa.array(is_rounded, pa.bool_()))
    return pc.invert(is_lost)


def _same_sizes(before: pa.Array, after: pa.Array) -> pa.Array:
    """Find decimals that overflowed: what 2**n is taken from so often is never near."""
    numbers = before
    if is_text(before.type):
        # Floats are not read behind a plus.
        numbers = pc.replace_substring_regex(before, r"^\s*\+", "")
    a, b = numbers.cast(pa.float64()), after.cast(pa.float64(), safe=False)
    near = pc.less_equal(pc.abs(pc.subtract(a, b)), pc.multiply(pc.abs(a), 1e-3))
    kept = pc.and_(pc.is_finite(a), near)
    is_zero = pc.equal(b, 0.0)
    if is_text(before.type) and pc.any(is_zero, min_count=0).as_py():
        is_lost = pc.and_(is_zero, pc.match_substring_regex(before, _NONZERO))
        kept = pc.and_(kept, pc.invert(is_lost))
    return kept


def _is_in_a_day(numbers: pa.Array, times: pa.Array) -> pa.Array:
    end = UNITS_OF_A_DAY[times.type.unit]
    return pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, end))
