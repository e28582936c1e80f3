"""The statistics of a data set as values, and as JSON."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.cast_leaves import UNITS_OF_A_DAY
from tfrecord_io.schema import leaf_type, schema_from_json
from tfrecord_io.time_text import storage_integer, time_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStatistics:
    """Numbers: values, lengths of lists, or lengths of strings.

    Attributes
    ----------
    count : int
        How many there are; NaNs are not among them.
    nans : int
        How many NaNs there are.
    min, max : number, date, time, str or None
        Exact, in the column's type; None without numbers. A date or time that Python has none for
        is a text in ISO 8601's form, and a duration its whole number of units.
    mean : number, date, time, str or None
        In the column's type; that of ints is a float. Ints, dates and times are added up exactly,
        and their mean has the 53 bits of a double: that of timestamps in nanoseconds may be off by
        some hundred. Floats and decimals are added up as doubles: where they cancel each other out,
        the mean has the error that a sum of the greatest ones has.
    quantiles : dict of str to number, date, time or str
        ``"1%"``, ``"5%"``, ``"25%"``, ``"50%"``, ``"75%"``, ``"95%"`` and ``"99%"``: values of a
        sample. Exact up to 16,383 numbers, beyond with an error of about 0.6 % of the ranks.
    histogram : tuple of tuple (float, float, float)
        Lower edge, upper edge and share of each bin, of the same sample; finite numbers only.
    """

    count: int
    nans: int
    min: Any
    mean: Any
    max: Any
    quantiles: dict[str, Any]
    histogram: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequentValue:
    """One of the most frequent strings.

    Attributes
    ----------
    value : str or bytes
        The string; bytes of a binary column.
    count, at_most : int
        How often it comes: no less, and no more. They are equal where few strings are distinct.
    """

    value: str | bytes
    count: int
    at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureStatistics:
    """One feature.

    Attributes
    ----------
    name, type : str
        The column and its type.
    kind : {"int64", "float", "bytes", None}
        What holds its values in a record; None if it has never had any.
    is_partition : bool
        Whether it stands in the folders' names, and in no record.
    rows, missing : int
        All rows, and those without the feature.
    lengths : tuple of NumberStatistics
        Values of a row's list; of a list of lists, its steps, and then the values of a step.
    values : NumberStatistics or None
        The values, of numbers.
    byte_lengths : NumberStatistics or None
        Bytes of a value, of strings.
    distinct : int or None
        About how many values are distinct (HyperLogLog, standard error 0.8 %); None without values.
        Zeros of both signs are one value, and so are all NaNs.
    frequent : tuple of FrequentValue
        The most frequent strings first; those longer than 256 bytes are not looked at.
    examples : tuple of bytes
        The first few strings.
    """

    name: str
    type: str
    kind: Literal["int64", "float", "bytes"] | None
    is_partition: bool
    rows: int
    missing: int
    lengths: tuple[NumberStatistics, ...]
    values: NumberStatistics | None
    byte_lengths: NumberStatistics | None
    distinct: int | None
    frequent: tuple[FrequentValue, ...]
    examples: tuple[bytes, ...]

    @property
    def missing_share(self) -> float:
        """The share of rows without the feature, 0 to 1."""
        return self.missing / self.rows if self.rows else 0.0

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of its values, without lists."""
        return leaf_type(schema_from_json([{"name": "", "type": self.type}]).field(0).type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A data set.

    Attributes
    ----------
    rows : int
        All rows.
    files, bytes : int
        The files they stand in, and their size.
    features : tuple of FeatureStatistics
        In the order of the columns.
    """

    rows: int
    files: int
    bytes: int
    features: tuple[FeatureStatistics, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the examples as values that `json.dumps` takes.

        Bytes are in base64, NaN and infinities are strings, dates and times in ISO 8601's form, and
        durations whole numbers of their unit, as in the other output of the command line.
        """
        value = _plain(self)
        for feature, plain in zip(self.features, value["features"], strict=True):
            plain["missing_share"] = feature.missing_share
        return value  # type: ignore[no-any-return]


#: Floats and decimals of Arrow have fewer digits, on both sides of the point together.
_CONTEXT = decimal.Context(prec=500)


def typed(value: float | None, t: pa.DataType) -> Any:
    """Return a number as a value of a column's type, as `NumberStatistics` has them."""
    if value is None or pat.is_floating(t):
        return value
    if pat.is_decimal(t):
        # Where a float is beyond all of the type, Arrow (26.0.1) makes a zero of it.
        most = decimal.Decimal((0, (9,) * t.precision, -t.scale))
        return max(-most, min(most, decimal.Decimal(value).quantize(most, context=_CONTEXT)))
    value = round(value)
    if pat.is_boolean(t):
        return bool(value)
    if not pat.is_temporal(t):
        return value
    # The double of the last of 64 bits is one more.
    value = min(value, 2 ** (t.bit_width - 1) - 1)
    if pat.is_date64(t):
        # The mean of days is a day.
        value -= value % UNITS_OF_A_DAY["ms"]
    array = pa.array([value], storage_integer(t)).view(t)
    try:
        found = array[0].as_py()
        # Python cuts nanoseconds of a day off, and pandas has no least time.
        if pa.scalar(found, t) == array[0]:
            return found
    except (TypeError, ValueError, OverflowError):
        pass
    return value if pat.is_duration(t) else str(time_texts(array)[0]).replace(" ", "T")


def text_of(value: object) -> str:
    """Return what is no number as a person reads it."""
    if isinstance(value, datetime.timedelta) and value < datetime.timedelta():
        # Python has a negative day and a positive rest.
        return f"-{-value}"
    return str(value).lower() if isinstance(value, bool) else str(value)


_IMAGE_STARTS: dict[bytes, Literal["png", "jpeg", "gif"]] = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
}


def image_kind(value: bytes) -> Literal["png", "jpeg", "gif", "webp"] | None:
    """Return which image begins as a value does, by the subtypes of media types; None if none."""
    if value.startswith(b"RIFF") and value[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _IMAGE_STARTS.items() if value.startswith(start)), None)


def json_scalar(value: Any) -> Any:
    """Return bytes, NaN and infinities as protobuf's JSON mapping has them, all else as it is."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any, of: FeatureStatistics | None = None) -> Any:
    if isinstance(value, FeatureStatistics):
        of = value
    if isinstance(value, Statistics | FeatureStatistics | NumberStatistics | FrequentValue):
        names = (field.name for field in fields(value) if field.name != "examples")
        return {name: _plain(getattr(value, name), of) for name in names}
    if isinstance(value, dict):
        return {key: _plain(item, of) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item, of) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta) and of is not None:
        return pa.scalar(value, of.value_type).value
    return str(value) if isinstance(value, decimal.Decimal) else json_scalar(value)
