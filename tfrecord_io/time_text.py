"""Dates, times and timestamps as texts in ISO 8601's form, and back, whatever their year.

For JSON lines, the command line and statistics; names of folders are `partition_values`' own.
Arrow's texts of far years (pyarrow 26.0.1) are none, or those of another year, and it reads back
the years 0 to 9999 alone. Other years have a sign here, as Java and Spark write them:
``+10000-01-01``, ``-0001-12-31``. They are moved by whole cycles of the calendar for Arrow.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.cast_leaves import UNITS_OF_A_DAY

#: 1 January of the year 0, and the day after the year 9999, in days since 1970.
_FIRST_DAY, END_DAY = -719_528, 2_932_897

#: After so many the Gregorian calendar begins anew.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097

#: Years from here on, for a cycle, fit all units.
_NEAR_YEAR = 1800

#: No time of a type has a year of more digits.
_FAR = r"^[+-][0-9]{4,12}-"


def is_day_or_instant(t: pa.DataType) -> bool:
    """Return whether values of a type have a year."""
    return bool(pat.is_date(t) or pat.is_timestamp(t))


def time_texts(times: pa.Array) -> list[str | None]:
    """Return the texts of dates, times or timestamps; those with a zone are in UTC.

    Examples
    --------
    >>> time_texts(pa.array([0, 253_402_300_800], pa.timestamp("s", "UTC")))
    ['1970-01-01 00:00:00Z', '+10000-01-01 00:00:00Z']
    """
    t = times.type
    if pat.is_timestamp(t) and t.tz is not None:
        times = times.cast(t := pa.timestamp(t.unit, "UTC"))
    if not is_day_or_instant(t):
        return times.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    units, number = units_of_a_day(t), storage_integer(t)
    numbers = times.view(number)
    first, end = _FIRST_DAY * units, END_DAY * units
    least, most = pc.min_max(numbers).as_py().values()
    if least is None or first <= least <= most < end:
        return times.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    cycle = _CYCLE_DAYS * units
    values = numbers.to_pylist()
    cycles = [0 if x is None or first <= x < end else x // cycle for x in values]
    near = [None if x is None else x - n * cycle for x, n in zip(values, cycles, strict=True)]
    texts = pa.array(near, number).view(t).cast(pa.string()).to_pylist()
    return [
        _with_year(text, int(text[:4]) + n * _CYCLE_YEARS) if n else text
        for text, n in zip(texts, cycles, strict=True)
    ]


def _with_year(text: str, year: int) -> str:
    return f"{year:+05d}{text[4:]}"


def far_times(texts: pa.Array, t: pa.DataType) -> pa.Array:
    """Return dates or timestamps for texts some of which have years with a sign.

    Texts that have none are given back as they are.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no time of the type.
    """
    is_far = pc.match_substring_regex(texts, _FAR)
    if not pc.any(is_far).as_py():
        return texts
    units, number = units_of_a_day(t), storage_integer(t)
    near: list[str | None] = []
    moves: list[int] = []
    for text, far in zip(texts.to_pylist(), is_far.to_pylist(), strict=True):
        cycles = 0
        if far:
            year, dash, rest = text[1:].partition("-")
            year = int(text[0] + year)
            cycles = (year - _NEAR_YEAR) // _CYCLE_YEARS
            text = f"{year - cycles * _CYCLE_YEARS:04d}{dash}{rest}"
        near.append(text)
        moves.append(cycles * _CYCLE_DAYS * units)
    times = pa.array(near, pa.string()).cast(t).view(number).to_pylist()
    moved = [None if x is None else x + move for x, move in zip(times, moves, strict=True)]
    try:
        return pa.array(moved, number).view(t)
    except OverflowError as error:
        raise pa.ArrowInvalid(f"a time is beyond {t}") from error


def units_of_a_day(t: pa.DataType) -> int:
    """Return how many units of a date or timestamp a day has."""
    return 1 if pat.is_date32(t) else UNITS_OF_A_DAY["ms" if pat.is_date64(t) else t.unit]


def storage_integer(t: pa.DataType) -> pa.DataType:
    """Return the type of the integers that dates, times, timestamps or durations are."""
    return pa.int32() if t.bit_width == 32 else pa.int64()
