"""Values inside lists to wire types and back, and the faults of those that do not fit.

See `tfrecord_io.cast`, which does the same for columns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.options import Float64Mode
from tfrecord_io.schema import is_text

#: By a unit of time.
UNITS_OF_A_DAY = {unit: 86_400 * 10**n for unit, n in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))}

_INT64_MAX = 2**63 - 1

#: An array of NumPy.
NumPy: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Fault:
    """Values that have no place in the type they are cast to.

    ``rows`` are their rows in the array that the step was given, ascending, at least one;
    ``values`` are, as long as ``rows``, what ``describe`` wants to know of each.
    """

    rows: NumPy
    values: NumPy
    describe: Callable[[int], str]
    is_warning: bool = False

    def first_text(self) -> str:
        """Say what is wrong with the first of them."""
        return self.describe(int(self.values[0]))


Faults = list[Fault]


def faults_at(bad: NumPy, describe: Callable[[int], str], **flags: bool) -> Faults:
    """Return the fault of the positions at which `bad` is true."""
    rows = np.flatnonzero(bad)
    return [Fault(rows, rows, describe, **flags)] if len(rows) else []


def null_faults(array: pa.Array, text: str) -> Faults:
    """Return the fault of the nulls; `text` is what is wrong with one, "" if nothing."""
    if not text or not array.null_count:
        return []
    return faults_at(as_numpy(array.is_null()), lambda _: text)


def as_numpy(array: pa.Array) -> NumPy:
    """Return an array of NumPy, without a copy where that can be."""
    return array.to_numpy(zero_copy_only=False)


_LeafCast = Callable[[pa.Array], tuple[pa.Array, Faults]]


class Leaf:
    """A leaf's cast, and the check for nulls."""

    def __init__(self, cast: _LeafCast, null_text: str) -> None:
        self._cast = cast
        self._null_text = null_text
        #: Whether a value passes as it is.
        self.keeps = cast is _same

    def __call__(self, array: pa.Array) -> tuple[pa.Array, Faults]:
        """Return the values in the type asked for, and what did not fit."""
        out, faults = self._cast(array)
        return out, faults + null_faults(array, self._null_text)


def _same(array: pa.Array) -> tuple[pa.Array, Faults]:
    return array, []


def _plain(target: pa.DataType) -> _LeafCast:
    """Return a cast that every value survives."""
    return lambda array: (array.cast(target), [])


_SAME_LAYOUTS = {(pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())}


def leaf_to_wire(source: pa.DataType, target: pa.DataType, float64: Float64Mode) -> _LeafCast:
    """Return the cast to a wire type."""
    if source == target:
        return _same
    if pat.is_uint64(source):
        return _uint64_to_int64
    if pat.is_float64(source) or pat.is_decimal(source):
        return functools.partial(_to_float32, float64=float64)
    if pat.is_temporal(source):
        return functools.partial(_temporal_to_int64, text=_not_that_time(source))
    if is_text(source):
        return functools.partial(_text_to_bytes, target=target)
    return _plain(target)


def _text_to_bytes(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Faults]:
    # A cast takes ten times as long, to do the same.
    has_layout = (array.type, target) in _SAME_LAYOUTS
    out = array.view(target) if has_layout else array.cast(target)
    return out, _text_faults(out)


def _text_faults(values: pa.Array) -> Faults:
    """Return what of binary values is not UTF-8, which Arrow's strings are only said to be."""
    _, ends, data = values.buffers()
    if ends is None or data is None or not data.size:
        return []
    is_large = pat.is_large_binary(values.type)
    # A buffer may be longer, and by less than an offset.
    end = values.offset + len(values)
    offsets = np.frombuffer(ends, np.int64 if is_large else np.int32, end + 1)
    first, last = offsets[values.offset], offsets[end]
    # ASCII, as most are, is seen many times as fast.
    if first == last or np.frombuffer(data, np.uint8)[first:last].max() < 0x80:
        return []
    try:
        values.view(pa.large_string() if is_large else pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        bad = np.array([not _is_text(value) for value in values.to_pylist()])
        return faults_at(bad, lambda _: _NO_TEXT)
    return []


_NO_TEXT = "holds bytes that are no text in UTF-8: cast the column to binary, or correct them"


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or isinstance(value.decode(), str)
    except UnicodeDecodeError:
        return False


def _uint64_to_int64(array: pa.Array) -> tuple[pa.Array, Faults]:
    out = array.view(pa.int64())

    def describe(row: int) -> str:
        return f"holds {array[row]}, and an Int64List ends at 2**63 - 1: cast it to binary or float"

    return out, _out_of_range(out, 0, None, describe)


def _not_that_time(t: pa.DataType) -> str:
    return f"which is no {t}: cast it to integers, or correct it"


def _temporal_to_int64(array: pa.Array, *, text: str) -> tuple[pa.Array, Faults]:
    t = array.type
    out = array.view(pa.int64()) if t.bit_width == 64 else array.view(pa.int32()).cast(pa.int64())
    return out, _not_temporal(out, t, lambda row: f"holds {out[row]}, {text}")


def _not_temporal(values: pa.Array, t: pa.DataType, describe: Callable[[int], str]) -> Faults:
    """Return the integers that are no time of a day, or no whole day, where the type wants one."""
    if pat.is_time(t):
        return _out_of_range(values, 0, UNITS_OF_A_DAY[t.unit] - 1, describe)
    if pat.is_date64(t):
        whole = as_numpy(values.fill_null(0)) % UNITS_OF_A_DAY["ms"] == 0
        return [] if whole.all() else faults_at(~whole, describe)
    return []


def _out_of_range(
    values: pa.Array, low: int, high: int | None, describe: Callable[[int], str]
) -> Faults:
    """Return the values out of a range that has zero in it."""
    ends = pc.min_max(values)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least >= low and (high is None or most <= high)):
        return []
    numbers = as_numpy(values.fill_null(0))
    bad = numbers < low
    if high is not None:
        bad |= numbers > high
    return faults_at(bad, describe)


def _to_float32(array: pa.Array, *, float64: Float64Mode) -> tuple[pa.Array, Faults]:
    doubles = decimal_to_float64(array) if pat.is_decimal(array.type) else array
    out = doubles.cast(pa.float32(), safe=False)
    wide, narrow = as_numpy(doubles), as_numpy(out)
    is_beyond = np.isinf(narrow) & (np.isfinite(wide) | pat.is_decimal(array.type))

    def beyond(row: int) -> str:
        return f"holds {array[row]}, which is beyond the range of float32, all that TFRecord has"

    faults = faults_at(is_beyond, beyond)
    if float64 == "cast":
        return out, faults

    def inexact(row: int) -> str:
        return (
            f"holds {array[row]}, which float32 cannot hold exactly: cast the column to float32, "
            'or write with float64="warn" or "cast"'
        )

    is_exact = narrow.astype(np.float64) == wide
    if pat.is_decimal(array.type):
        # The float64 is only near the decimal, and of most decimals no float32 is even that.
        places = np.flatnonzero(is_exact)
        is_exact[places] = _is_decimal_of(array.take(places), narrow[places].astype(np.float64))
    is_exact |= np.isnan(wide)
    return out, faults + faults_at(~is_exact & ~is_beyond, inexact, is_warning=float64 == "warn")


def decimal_to_float64(array: pa.Array) -> pa.Array:
    """Return the nearest float64 of each decimal."""
    # By way of text: Arrow's direct cast multiplies by a power of ten that is not exact, and so
    # misses the nearest float64 (3 * 0.1); its parser of numbers never does.
    return array.cast(pa.string()).cast(pa.float64())


def _is_decimal_of(array: pa.Array, floats: NumPy) -> NumPy:
    """Return where a decimal is exactly the float, which is finite; there are no nulls.

    A float with no more binary than the decimal has decimal places has no more decimal places
    either, so that its cast to the decimal's scale is exact.
    """
    scale = max(array.type.scale, 0)
    is_short = np.ldexp(floats, scale) % 1 == 0
    wide = pa.decimal256(76, scale)
    cast = pa.array(floats).cast(wide, safe=False)
    return is_short & as_numpy(pc.equal(array.cast(wide, safe=False), cast))


def leaf_from_wire(source: pa.DataType, target: pa.DataType) -> _LeafCast:
    """Return the cast from a wire type to one that was asked for."""
    if source == target:
        return _same
    if pat.is_boolean(target):
        return _int64_to_bool
    if pat.is_integer(target) or pat.is_date32(target):
        return functools.partial(_int64_to_integer, target=target)
    if pat.is_temporal(target):
        return functools.partial(_int64_to_temporal, target=target)
    if pat.is_float16(target):
        return _float32_to_float16
    if pat.is_decimal(target):
        cast = _float32_to_decimal if pat.is_float32(source) else _float64_to_decimal
        return functools.partial(cast, target=target)
    if pat.is_fixed_size_binary(target):
        return functools.partial(_binary_to_fixed_size, target=target)
    return _plain(target)


def _does_not_fit(values: pa.Array, target: pa.DataType) -> Callable[[int], str]:
    return lambda row: (
        f"holds {values[row]}, which does not fit {target}: ask for a wider type, such as "
        f"{values.type}"
    )


def int_range(t: pa.DataType) -> tuple[int, int]:
    """Return the least and the largest integer of a type."""
    if pat.is_signed_integer(t):
        return -(2 ** (t.bit_width - 1)), 2 ** (t.bit_width - 1) - 1
    return 0, min(2**t.bit_width - 1, _INT64_MAX)


def _int64_to_bool(array: pa.Array) -> tuple[pa.Array, Faults]:
    faults = _out_of_range(array, 0, 1, _does_not_fit(array, pa.bool_()))
    return array.cast(pa.bool_(), safe=False), faults


def _int64_to_integer(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, Faults]:
    integer = pa.int32() if pat.is_date32(target) else target
    faults = _out_of_range(array, *int_range(integer), _does_not_fit(array, target))
    return array.cast(integer, safe=False).view(target), faults


def _int64_to_temporal(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, Faults]:
    faults = _not_temporal(array, target, _does_not_fit(array, target))
    if target.bit_width == 32:
        array = array.cast(pa.int32(), safe=False)
    return array.view(target), faults


def _float32_to_float16(array: pa.Array) -> tuple[pa.Array, Faults]:
    out = array.cast(pa.float16(), safe=False)
    wide = as_numpy(array)
    is_same = (as_numpy(out.cast(pa.float32())) == wide) | np.isnan(wide)
    return out, faults_at(~is_same, _does_not_fit(array, pa.float16()))


def _float64_to_decimal(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, Faults]:
    out = array.cast(target, safe=False)
    return out, faults_at(~_are_decimals_of(out, array), _does_not_fit(array, target))


def _float32_to_decimal(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, Faults]:
    """Return the decimals that were written: as float32 the last ones of a type are out of it.

    What decimal(10, 2) holds ends at 99999999.99, which becomes 1e8.
    """
    floats = array.cast(pa.float64())
    out = floats.cast(target, safe=False)
    is_beyond = ~_are_decimals_of(out, floats)
    if is_beyond.any():
        ends = _ends_of(target)
        index = np.arange(len(out))
        may_be_last = is_beyond & np.isfinite(as_numpy(array))
        for place, end in enumerate(ends.to_pylist(), len(out)):
            # Nothing finite is what is beyond the range of float32.
            as_float32 = pa.scalar(float(end), pa.float32()).as_py()
            index[may_be_last & (as_numpy(array) == as_float32)] = place
        # Others than `take` make another type of decimal32, decimal64 and negative scales.
        out = pa.concat_arrays([out, ends]).take(pa.array(index))
        is_beyond = ~_are_decimals_of(out, floats)
    return out, faults_at(is_beyond, _does_not_fit(array, target))


def _ends_of(t: pa.DataType) -> pa.Array:
    """Return the first and the last value of a decimal type, of which pyarrow makes not all."""
    last = 10**t.precision - 1
    return decimals((-last, last), t)


def decimals(units: Collection[int], t: pa.DataType) -> pa.Array:
    """Return decimals of a type, each told in units of its last digit."""
    data = b"".join(unit.to_bytes(t.byte_width, sys.byteorder, signed=True) for unit in units)
    return pa.Array.from_buffers(t, len(units), [None, pa.py_buffer(data)])


def _are_decimals_of(decimals: pa.Array, floats: pa.Array) -> NumPy:
    """Return where decimals, cast from float64, are what is to be read of it."""
    asked = as_numpy(floats)
    # What is out of range became zero in the cast.
    found = as_numpy(decimal_to_float64(decimals))
    with np.errstate(over="ignore"):
        # The writer's float32 of this decimal, or an integer that was read exactly.
        is_same = (found.astype(np.float32) == asked) | (found == asked)
    return is_same | as_numpy(floats.is_null())


def _binary_to_fixed_size(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, Faults]:
    lengths = pc.binary_length(array)
    fits = pc.equal(lengths, target.byte_width)
    if pc.all(fits, min_count=0).as_py():
        return array.cast(target), []
    faults = faults_at(
        ~as_numpy(fits.fill_null(True)),
        lambda row: f"has {lengths[row]} bytes in this record, and the schema asks for {target}",
    )
    # Nobody will see the values, and room for those that do not fit may be huge.
    return pa.nulls(0, target), faults
