"""Partition values as the text of folder names, and back.

The text of each type is Spark's (``Cast`` to string; Java's ``Double.toString``), and so are the
rules by which text without a schema gets a type (``PartitioningUtils.scala`` of Apache Spark).
Strings and arrays alone, no I/O; the grammar of folders is in `tfrecord_io.layout`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.errors import LayoutError, OptionError
from tfrecord_io.options import no_time_zone
from tfrecord_io.schema import is_bytes, is_text

_INT = re.compile(r"[+-]?[0-9]+")
#: What java.lang.Double.parseDouble takes.
_JAVA_DOUBLE = re.compile(
    r"\s*[+-]?(?:NaN|Infinity|(?:"
    r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)"
    r")[fFdD]?)\s*",
    re.ASCII,
)
_BIG_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: Spark's pattern, which has room for one digit of a second's fraction: text with more stays text.
_TIMESTAMP = re.compile(
    r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9])?"
)
_FIRST_NANOSECONDS = r"^1677-09-21[ T]00:12:43\."
#: Spark's DecimalType ends here.
_MAX_PRECISION = 38

#: No folder's name is as long, and what a manifest names is made for each row.
_MAX_WIDTH = 65_536

#: Digits of a float are written plainly from 10**-3 up to 10**7, as java.lang.Double.toString says.
_PLAIN_EXPONENTS = range(-3, 7)


def value_texts(name: str, values: pa.Array) -> list[str | None]:
    """Return the text that Spark gives each value of a partition column; null stays None.

    Raises
    ------
    LayoutError
        The type has no such text, or a value is not valid UTF-8, no whole day, or outside the years
        1 to 9999.
    """
    t = values.type
    if pat.is_dictionary(t):
        return value_texts(name, values.dictionary_decode())
    if pat.is_null(t):
        return [None] * len(values)
    if pat.is_boolean(t) or pat.is_integer(t):
        return list(pc.cast(values, pa.string()).to_pylist())
    if pat.is_floating(t):
        return _float_texts(values if pat.is_float64(t) else values.cast(pa.float32()))
    if pat.is_decimal(t):
        return [None if v is None else f"{v:f}" for v in values.to_pylist()]
    if pat.is_date(t):
        return [_checked_day(name, v) for v in _days(name, values).cast(pa.string()).to_pylist()]
    if pat.is_timestamp(t):
        # The stored integers count in UTC whatever the zone.
        naive = values.cast(pa.int64()).cast(pa.timestamp(t.unit)).cast(pa.string()).to_pylist()
        return [_trim_zeros(_checked_day(name, v)) for v in naive]
    if is_text(t) or is_bytes(t):
        return _utf8_texts(name, values)
    raise LayoutError(
        f"partition column {name!r} is of type {t}, and only numbers, booleans, dates, timestamps, "
        "text and bytes can name a folder",
        feature=name,
    )


def _utf8_texts(name: str, values: pa.Array) -> list[str | None]:
    try:
        found = values.to_pylist()
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in found]
    except UnicodeDecodeError as error:
        raise LayoutError(
            f"partition column {name!r} has bytes that are not valid UTF-8: {error.object!r}",
            feature=name,
        ) from error


def _days(name: str, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.date32())
    except pa.ArrowInvalid as error:
        raise LayoutError(
            f"partition column {name!r} has a {values.type} that is no whole day: {error}; correct "
            "it, or cast the column to a timestamp",
            feature=name,
        ) from error


def _checked_day(name: str, text: str | None) -> str | None:
    if text is not None and (not _DATE.fullmatch(text[:10]) or text.startswith("0000")):
        raise LayoutError(
            f"partition column {name!r} has the date {text}, outside the years 1 to 9999",
            feature=name,
        )
    return text


def _trim_zeros(text: str | None) -> str | None:
    if text is None or "." not in text:
        return text
    return text.rstrip("0").rstrip(".")


def _float_texts(values: pa.Array) -> list[str | None]:
    """Return ``Double.toString`` or ``Float.toString`` of each value."""
    shortest: list[str | None] = values.cast(pa.string()).to_pylist()
    # Java wants two digits at least, and of those the nearest (4.9E-324, 1.4E-45).
    nearest = [None if v is None else f"{v:.1e}" for v in values.to_pylist()]
    same = pc.equal(pa.array(nearest, pa.string()).cast(values.type), values).to_pylist()
    texts = [n if is_same else s for s, n, is_same in zip(shortest, nearest, same, strict=True)]
    return [None if text is None else _java_float(text) for text in texts]


def _java_float(shortest: str) -> str:
    """Return Java's form of a number in any decimal form, with the same digits."""
    if shortest.lower() == "nan":
        return "NaN"
    sign, unsigned = ("-", shortest[1:]) if shortest.startswith("-") else ("", shortest)
    if unsigned.lower() == "inf":
        return f"{sign}Infinity"
    _, digit_tuple, scale = Decimal(unsigned).as_tuple()
    digits = "".join(map(str, digit_tuple)).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    exponent = len(digits) - 1 + int(scale)
    digits = digits.rstrip("0")
    if exponent not in _PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


# --- text to values -------------------------------------------------------------------------------


def infer_partition_types(columns: Mapping[str, Iterable[str | None]]) -> dict[str, pa.DataType]:
    """Return the type of each partition column by the rules of Spark's own file sources.

    Parameters
    ----------
    columns : mapping of str to iterable of (str or None)
        The decoded values of each column's folders, None for null.

    Returns
    -------
    dict of str to pyarrow.DataType
        ``int32``, ``int64``, ``decimal128(n, 0)`` for larger whole numbers, ``float64``,
        ``date32``, ``timestamp`` (without a zone: the text has none), else ``string``; of nulls
        alone ``null``, as in Spark 3 and later.

    Notes
    -----
    ``PartitioningUtils.inferPartitionColumnValue`` and ``findWiderTypeForPartitionColumn``: whole
    numbers widen among themselves, int32 widens to float64, dates to timestamps, and everything
    else that disagrees becomes ``string``.
    """
    return {
        name: reduce(_wider, map(_infer_one, {*values}), pa.null())
        for name, values in columns.items()
    }


def _infer_one(text: str | None) -> pa.DataType:
    if text is None:
        return pa.null()
    if _INT.fullmatch(text):
        # Unlike int, which has a limit, Decimal takes any number of digits, and soon.
        number = Decimal(text)
        if -(2**31) <= number < 2**31:
            return pa.int32()
        if -(2**63) <= number < 2**63:
            return pa.int64()
    return _infer_decimal(text) or _infer_fraction(text) or _infer_time(text) or pa.string()


def _infer_decimal(text: str) -> pa.DataType | None:
    # What java.math.BigDecimal takes and gives a scale of at most 0.
    if not _BIG_DECIMAL.fullmatch(text):
        return None
    try:
        _, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    if not isinstance(exponent, int) or exponent < 0:
        return None
    precision = len(digits) + exponent
    return pa.decimal128(precision, 0) if precision <= _MAX_PRECISION else None


def _infer_fraction(text: str) -> pa.DataType | None:
    return pa.float64() if _JAVA_DOUBLE.fullmatch(text) else None


def _infer_time(text: str) -> pa.DataType | None:
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match:
            datetime.fromisoformat(match["time"])
            return pa.timestamp("us")
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return pa.date32()
    except ValueError:
        return None
    return None


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if a == b or pat.is_null(b):
        return a
    if pat.is_null(a):
        return b
    if _whole_digits(a) and _whole_digits(b):
        digits = max(_whole_digits(a), _whole_digits(b))
        is_decimal = pat.is_decimal(a) or pat.is_decimal(b)
        return pa.decimal128(digits, 0) if is_decimal else pa.int64()
    if {a, b} == {pa.int32(), pa.float64()}:
        return pa.float64()
    if (pat.is_timestamp(a) or pat.is_date(a)) and (pat.is_timestamp(b) or pat.is_date(b)):
        return pa.timestamp("us")
    return pa.string()


def _whole_digits(t: pa.DataType) -> int:
    """Return Spark's precision of a whole-number type (``DecimalType.forType``), else 0."""
    if pat.is_decimal(t):
        return int(t.precision)
    return {pa.int32(): 10, pa.int64(): 20}.get(t, 0)


def cast_partition_values(
    name: str, texts: Sequence[str | None], t: pa.DataType, time_zone: str = "UTC"
) -> pa.Array:
    """Return the values of a partition column's folders as an array of a given type.

    Parameters
    ----------
    name : str
        The column's name, for errors.
    texts : sequence of (str or None)
        Decoded values, None for null. ``01`` is 1.
    t : pyarrow.DataType
        From a user's schema, a manifest or `infer_partition_types`.
    time_zone : str
        The zone in which texts tell the values of a timestamp with a zone, those that end in Z
        aside. A time that its clocks went through twice is the earlier one; one that they left out
        is as much later as they did.

    Raises
    ------
    LayoutError
        A text that is no value of the type, or a type that partition columns cannot have.
    OptionError
        A zone that this system does not know, where it is needed.
    """
    for text in texts:
        if text is not None:
            _check_text(name, text, t)
    try:
        return _cast_texts(name, texts, t, time_zone)
    except (LayoutError, OptionError):
        raise
    except pa.ArrowNotImplementedError as error:
        raise LayoutError(
            f"partition column {name!r} cannot be of type {t}: {error}; {_ANOTHER_TYPE}",
            feature=name,
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, ArithmeticError, ValueError) as error:
        raise LayoutError(
            f"a folder's value of partition column {name!r} is not of type {t}: {error}; "
            f"{_ANOTHER_TYPE}",
            feature=name,
        ) from error


#: What to do about a value or a type that does not fit.
_ANOTHER_TYPE = "give the column another type in the schema"

#: Between digits they mean something to Python alone.
_NO_UNDERSCORES = re.compile("[^_]*")

#: What all texts of a kind of type look like.
_PATTERNS = {
    pat.is_integer: _INT,
    pat.is_floating: _NO_UNDERSCORES,
    pat.is_decimal: _NO_UNDERSCORES,
    pat.is_boolean: re.compile("true|false", re.IGNORECASE),
    pat.is_date: _DATE,
    pat.is_null: re.compile("(?!)"),
}


def _check_text(name: str, text: str, t: pa.DataType) -> None:
    t = t.value_type if pat.is_dictionary(t) else t
    for is_kind, pattern in _PATTERNS.items():
        if is_kind(t) and not pattern.fullmatch(text):
            raise LayoutError(
                f"the folder value {text!r} of partition column {name!r} is not of type {t}; "
                f"{_ANOTHER_TYPE}",
                feature=name,
            )


def _cast_texts(name: str, texts: Sequence[str | None], t: pa.DataType, time_zone: str) -> pa.Array:
    if pat.is_dictionary(t):
        return _cast_texts(name, texts, t.value_type, time_zone).dictionary_encode().cast(t)
    if pat.is_null(t):
        return pa.nulls(len(texts))
    if pat.is_fixed_size_binary(t) and t.byte_width > _MAX_WIDTH:
        raise LayoutError(
            f"partition column {name!r} is of type {t}, and no folder's name has as many bytes; "
            f"{_ANOTHER_TYPE}",
            feature=name,
        )
    if is_text(t) or is_bytes(t):
        return pa.array(texts, pa.large_string()).cast(pa.large_binary()).cast(t)
    if pat.is_boolean(t):
        return pa.array([None if x is None else x.lower() == "true" for x in texts], t)
    if pat.is_integer(t):
        return pa.array([None if x is None else int(x) for x in texts], t)
    if pat.is_floating(t):
        wide = pa.array([None if x is None else _parse_double(x) for x in texts], pa.float64())
        narrow = wide.cast(t)
        if pc.any(pc.and_(pc.is_inf(narrow), pc.is_finite(wide))).as_py():
            raise ValueError("it is too large")
        return narrow
    if pat.is_decimal(t):
        decimals = [None if x is None else Decimal(x) for x in texts]
        found = pa.array(decimals, t)
        if found.to_pylist() != decimals:
            # Of numbers that are far from the scale pyarrow makes zeros.
            raise ValueError("rescaling it would cause data loss")
        return found
    if pat.is_date(t):
        return pa.array(
            [None if x is None else date.fromisoformat(x) for x in texts], pa.date32()
        ).cast(t)
    if pat.is_timestamp(t):
        naive = pa.array([None if x is None else x.removesuffix("Z") for x in texts], pa.string())
        stamps = _stamps(naive, t.unit)
        if t.tz is None:
            return stamps
        is_utc = pa.array([x is not None and x.endswith("Z") for x in texts], pa.bool_())
        return pc.if_else(is_utc, _instants(stamps, t, "UTC"), _instants(stamps, t, time_zone))
    raise LayoutError(
        f"partition column {name!r} cannot be of type {t}; {_ANOTHER_TYPE}", feature=name
    )


def _stamps(texts: pa.Array, unit: str) -> pa.Array:
    """Return times without a zone, those of the first second of nanoseconds too.

    Arrow (26.0.1) writes that second and does not read it, since it begins before they do.
    """
    t = pa.timestamp(unit)
    is_first = pc.match_substring_regex(texts, _FIRST_NANOSECONDS)
    if unit != "ns" or not pc.any(is_first).as_py():
        return texts.cast(t)
    later = pc.if_else(is_first, pc.replace_substring(texts, ":43.", ":44."), texts).cast(t)
    moved = pc.if_else(is_first, pa.scalar(10**9), pa.scalar(0))
    return pc.subtract_checked(later.cast(pa.int64()), moved).cast(t)


def _instants(stamps: pa.Array, t: pa.DataType, time_zone: str) -> pa.Array:
    """Return the instants, of a type with a zone, at which the clocks of a zone tell times."""
    if time_zone == "UTC":
        # No machine needs to know zones for this one.
        return stamps.cast(pa.int64()).cast(t)
    try:
        zoned = pc.assume_timezone(stamps, time_zone, ambiguous="earliest", nonexistent="earliest")
    except pa.ArrowInvalid:
        raise no_time_zone(time_zone) from None
    # As Java tells times that clocks left out: by the offset that they had before.
    utc = zoned.cast(pa.int64())
    offsets = pc.subtract_checked(pc.local_timestamp(zoned).cast(pa.int64()), utc)
    return pc.subtract_checked(stamps.cast(pa.int64()), offsets).cast(t)


def _parse_double(text: str) -> float:
    match = _JAVA_DOUBLE.fullmatch(text)
    if match is None:
        return float(text)
    digits = text.strip().rstrip("fFdD")
    try:
        return float.fromhex(digits) if match["hex"] else float(digits)
    except OverflowError:
        return -math.inf if digits.startswith("-") else math.inf
