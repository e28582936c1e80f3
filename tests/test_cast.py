"""Expected values come from Python's own numbers, numpy's float32 and hand-made arrays."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecord_io.cast import ToWire, from_wire
from tfrecord_io.codec import get_codec
from tfrecord_io.errors import EncodeError, SchemaMismatchError
from tfrecord_io.schema import wire_schema

TENSOR = pa.fixed_shape_tensor(pa.float32(), [2, 2])
DAY = 86_400


def array(values: Any, t: pa.DataType) -> pa.Array:
    """`pa.array`, for extension types too."""
    if isinstance(values, pa.Array):
        return values
    if isinstance(t, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(t, array(values, t.storage_type))
    if pa.types.is_list(t) and isinstance(t.value_type, pa.BaseExtensionType):
        plain = pa.array(values, pa.list_(t.value_type.storage_type))
        items = pa.ExtensionArray.from_storage(t.value_type, plain.values)
        return pa.ListArray.from_arrays(plain.offsets, items, type=t, mask=plain.is_null())
    return pa.array(values, t)


def batch_of(values: Any, t: pa.DataType, *, nullable: bool = True) -> pa.RecordBatch:
    schema = pa.schema([pa.field("x", t, nullable=nullable)])
    return pa.RecordBatch.from_arrays([array(values, t)], schema=schema)


def written(
    values: Any, t: pa.DataType, *, float64: Any = "warn", nullable: bool = True
) -> pa.Array:
    """The wire array of a column, after all that must hold of any result."""
    batch = batch_of(values, t, nullable=nullable)
    wire, _ = ToWire(batch.schema, float64=float64)(batch)
    wire.validate(full=True)
    assert wire.schema.equals(wire_schema(batch.schema, reading=False), check_metadata=True)
    return wire.column(0)


def refused(
    values: Any, t: pa.DataType, *, float64: Any = "warn", nullable: bool = True
) -> tuple[int | None, str]:
    batch = batch_of(values, t, nullable=nullable)
    with pytest.raises(EncodeError) as caught:
        ToWire(batch.schema, float64=float64)(batch, row_offset=100)
    assert caught.value.feature == "x"
    return caught.value.row, caught.value.what


def read(
    values: Any, t: pa.DataType, *, nullable: bool = True, rounded: tuple[str, ...] = ()
) -> pa.Array:
    """What a wire column becomes when `t` is asked for."""
    schema = pa.schema([pa.field("x", t, nullable=nullable)])
    wire_type = wire_schema(schema, reading=True, rounded=rounded).field(0).type
    wire = pa.RecordBatch.from_arrays([array(values, wire_type)], names=["x"])
    batch = from_wire(wire, schema, place=lambda row: (row * 10, row + 100))
    batch.validate(full=True)
    assert batch.schema.equals(schema)
    return batch.column(0)


def misfit(values: Any, t: pa.DataType, **options: Any) -> int:
    """The first row that does not fit."""
    with pytest.raises(SchemaMismatchError) as caught:
        read(values, t, **options)
    assert caught.value.feature == "x"
    assert caught.value.offset is not None
    assert caught.value.record == caught.value.offset // 10 + 100
    return caught.value.offset // 10


def data_address(values: pa.Array) -> int:
    return int(values.buffers()[-1].address)


# ---- to the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "t", "wire"),
    [
        ([True, False, None], pa.bool_(), [1, 0, None]),
        ([-128, None, 127], pa.int8(), [-128, None, 127]),
        ([0, 2**32 - 1], pa.uint32(), [0, 2**32 - 1]),
        ([0, None, 2**63 - 1], pa.uint64(), [0, None, 2**63 - 1]),
        ([dt.date(1970, 1, 2), None], pa.date32(), [1, None]),
        ([dt.date(1969, 12, 31)], pa.date64(), [-DAY * 1000]),
        ([dt.time(0, 0, 1)], pa.time32("s"), [1]),
        ([dt.time(0, 0, 1), None], pa.time32("ms"), [1000, None]),
        ([dt.time(23, 59, 59, 999_999)], pa.time64("us"), [DAY * 10**6 - 1]),
        ([dt.timedelta(days=-1)], pa.duration("s"), [-DAY]),
        ([dt.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms"), [1000]),
        (
            [dt.datetime(1970, 1, 1, 9, tzinfo=dt.timezone(dt.timedelta(hours=9)))],
            pa.timestamp("us", "Asia/Tokyo"),
            [0],
        ),
        ([np.float16(0.5), None], pa.float16(), [0.5, None]),
        ([0.5, None, math.inf, -0.0], pa.float64(), [0.5, None, math.inf, -0.0]),
        (["é", None, ""], pa.string(), ["é".encode(), None, b""]),
        (["a", None], pa.large_string(), [b"a", None]),
        (["a", "longer than twelve"], pa.string_view(), [b"a", b"longer than twelve"]),
        ([b"\xff", None], pa.binary_view(), [b"\xff", None]),
        ([b"abcd", None], pa.binary(4), [b"abcd", None]),
        ([None, None], pa.null(), [None, None]),
        (["b", "a", None, "b"], pa.dictionary(pa.int8(), pa.string()), [b"b", b"a", None, b"b"]),
        ([b"\xff", None], pa.dictionary(pa.int8(), pa.binary()), [b"\xff", None]),
        ([3, None, 3], pa.dictionary(pa.int32(), pa.int16()), [3, None, 3]),
        ([[1, 2], None, []], pa.list_(pa.int8()), [[1, 2], None, []]),
        ([[1, 2], None, []], pa.large_list(pa.uint8()), [[1, 2], None, []]),
        ([[1, 2], None, [3]], pa.list_view(pa.int64()), [[1, 2], None, [3]]),
        ([[True], None, []], pa.large_list_view(pa.bool_()), [[1], None, []]),
        ([["a", "b"], None], pa.list_(pa.string(), 2), [[b"a", b"b"], None]),
        ([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2), [[1, 2], None, [3, 4]]),
        ([[], None], pa.list_(pa.int8(), 0), [[], None]),
        ([[[1], None, []], None, []], pa.list_(pa.list_(pa.int8())), [[[1], None, []], None, []]),
        ([[1.0, 2.0, 3.0, 4.0], None], TENSOR, [[1.0, 2.0, 3.0, 4.0], None]),
        ([[[1.0, 2.0, 3.0, 4.0]], None, []], pa.list_(TENSOR), [[[1, 2, 3, 4]], None, []]),
        ([[[1.0, 2.0, 3.0, 4.0], None]], pa.list_(TENSOR), [[[1, 2, 3, 4], None]]),
    ],
)
def test_to_wire(values: Any, t: pa.DataType, wire: Any) -> None:
    assert written(values, t).to_pylist() == wire
    whole = array(values, t)
    for start in range(len(whole) + 1):
        assert written(whole.slice(start), t).to_pylist() == wire[start:]
        assert written(whole.slice(0, start), t).to_pylist() == wire[:start]


def test_items_of_any_name_and_nullability() -> None:
    for make in (pa.list_, pa.large_list):
        t = make(pa.field("element", pa.int64(), nullable=False))
        assert written([[1, 2], [3]], t).to_pylist() == [[1, 2], [3]]


def test_overlapping_list_views() -> None:
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 0], pa.int32()), pa.array([2, 3, 0], pa.int32()), pa.array([1, 2, 3, 4])
    )
    assert written(views, views.type).to_pylist() == [[3, 4], [1, 2, 3], []]


def test_dictionaries_with_null_values() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert written(values, values.type).to_pylist() == [b"a", None, None]


def test_dictionaries_of_lists_of_lists() -> None:
    lists = pa.array([[[1], None], [[2]]], pa.list_(pa.list_(pa.int8())))
    values = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), lists)
    assert written(values, values.type).to_pylist() == [[[2]], [[1], None], None]


@pytest.mark.parametrize(
    ("values", "t", "row"),
    [
        ([1, None, 2**63], pa.uint64(), 102),
        ([[1], [2**64 - 1]], pa.list_(pa.uint64()), 101),
        ([0.0, 1e39], pa.float64(), 101),
        ([-1e300], pa.float64(), 100),
        ([None, Decimal("1e39")], pa.decimal256(76, 0), 101),
        ([[1, None]], pa.list_(pa.int64()), 100),
        ([[1, 2], None, [None, 1]], pa.list_(pa.int64(), 2), 102),
        ([["a"], [None]], pa.large_list(pa.string()), 101),
        ([[1], [2, None]], pa.list_view(pa.int64()), 101),
        ([[None]], pa.list_(pa.null()), 100),
        ([[1.0] * 4, [1.0, None, 1.0, 1.0]], TENSOR, 101),
        ([[[1.0] * 4], [[1.0] * 4, [None] * 4]], pa.list_(TENSOR), 101),
        ([[[1]], [[2], [None]]], pa.list_(pa.list_(pa.int64())), 101),
        ([["a"], [None]], pa.list_(pa.dictionary(pa.int8(), pa.string())), 101),
    ],
)
def test_values_that_cannot_be_written(values: Any, t: pa.DataType, row: int) -> None:
    for float64 in ("warn", "cast", "error"):
        assert refused(values, t, float64=float64)[0] == row


@pytest.mark.parametrize("bad", [b"\x80", b"\xed\xa0\x80"])
def test_texts_that_are_none(bad: bytes) -> None:
    texts = pa.array([b"a", bad, b"", None, bad]).view(pa.string())
    assert refused(texts, texts.type)[0] == 101
    assert refused(texts.slice(2), texts.type)[0] == 102
    assert written(texts.slice(2, 2), texts.type).to_pylist() == [b"", None]


def test_times_that_are_none() -> None:
    beyond = pa.array([0, DAY], pa.int32()).view(pa.time32("s"))
    row, what = refused(beyond, beyond.type)
    assert (row, "holds 86400, which is no time32[s]" in what) == (101, True)
    crooked = pa.array([0, None, 5], pa.int64()).view(pa.date64())
    assert refused(crooked, crooked.type)[0] == 102


@pytest.mark.parametrize(
    ("values", "t"),
    [
        ([1, None], pa.int64()),
        (["a", None], pa.string()),
        ([[1], None], pa.list_(pa.int64())),
        ([[1, 2], None], pa.list_(pa.int64(), 2)),
        (["a", None], pa.dictionary(pa.int8(), pa.string())),
        ([[1.0] * 4, None], TENSOR),
        ([[[1], None], [[2]]], pa.list_(pa.field("item", pa.list_(pa.int8()), nullable=False))),
    ],
)
def test_nulls_where_none_are_declared(values: Any, t: pa.DataType) -> None:
    nested = isinstance(values[0], list) and isinstance(values[0][0], list)
    assert refused(values, t, nullable=False)[0] == (100 if nested else 101)
    if nested:
        assert refused(values, t)[0] == 100


def test_a_null_of_a_dictionary_is_a_null() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    assert refused(values, values.type, nullable=False)[0] == 101


def test_what_stands_under_a_null_does_not_count() -> None:
    items = pa.array([1.0, None, 1e300, 0.1])
    ragged = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), items, mask=pa.array([False, True, False])
    )
    batch = batch_of(ragged, ragged.type)
    wire, narrowed = ToWire(batch.schema, float64="warn")(batch.slice(0, 2))
    assert wire.column(0).to_pylist() == [[1.0], None]
    assert narrowed == frozenset()
    fixed = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([True, False]))
    assert refused(fixed, fixed.type)[0] == 101
    assert written(fixed.slice(0, 1), fixed.type).to_pylist() == [None]


def test_what_stands_outside_of_a_slice_does_not_count() -> None:
    ragged = pa.array([[None], [1], [1e300]], pa.list_(pa.float64()))
    assert written(ragged.slice(1, 1), ragged.type).to_pylist() == [[1.0]]
    numbers = pa.array([2**64 - 1, 1, 2**63], pa.uint64())
    assert written(numbers.slice(1, 1), numbers.type).to_pylist() == [1]


@pytest.mark.parametrize("t", [pa.binary(), pa.large_string(), pa.list_(pa.binary())])
@pytest.mark.parametrize(
    ("make", "buffers"),
    [(pa.list_, 1), (pa.large_list, 1), (pa.list_view, 2), (lambda t: pa.list_(t, 0), 0)],
)
def test_offsets_of_no_values_may_begin_anywhere(
    t: pa.DataType, make: Callable[[pa.DataType], pa.DataType], buffers: int
) -> None:
    start = pa.py_buffer(struct.pack("<q" if t == pa.large_string() else "<i", 4))
    some = pa.array([b"some", b"", b"", b""])
    is_list = pa.types.is_list(t)
    ends, children = ([start], [some]) if is_list else ([start, some.buffers()[2]], [])
    # As arrow-rs exports them, and imports them from nobody.
    items = pa.Array.from_buffers(t, 0, [None, *ends], children=children)
    parts = [pa.array([True, False]).buffers()[1], *[pa.py_buffer(bytes(24))] * buffers]
    lists = pa.Array.from_buffers(make(t), 2, parts, children=[items])
    wire = written(lists, lists.type)
    assert wire.to_pylist() == [[], None]
    batch = pa.record_batch([wire], ["x"])
    record_type = "SequenceExample" if is_list else "Example"
    encoder = get_codec("native").encoder(batch.schema, record_type)
    assert encoder.encode(batch)[1].to_pylist()


def test_one_column_of_several_is_made_anew() -> None:
    nothing = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array([b"some"]).slice(1))
    batch = pa.record_batch([nothing, pa.array([1])], ["a", "b"])
    wire, _ = ToWire(batch.schema, float64="warn")(batch)
    assert (batch.column(0).values.offset, wire.column(0).values.offset) == (1, 0)
    assert wire.column(1).equals(batch.column(1))


@pytest.mark.parametrize("t", [pa.string(), pa.large_string()])
def test_buffers_may_be_longer(t: pa.DataType) -> None:
    _, ends, data = pa.array(["a", "é"], t).buffers()
    longer = pa.py_buffer(ends.to_pybytes() + b"x" * 3)
    values = pa.Array.from_buffers(t, 2, [None, longer, data])
    assert written(values, t).to_pylist() == [b"a", "é".encode()]


def test_the_first_bad_row_then_the_first_bad_column() -> None:
    schema = pa.schema([("a", pa.uint64()), ("b", pa.float64()), ("c", pa.list_(pa.int8()))])
    rows = {"a": [0, 0, 2**63], "b": [0, 1e300, 0], "c": [[0], [None], [None]]}
    batch = pa.RecordBatch.from_pydict(rows, schema=schema)
    with pytest.raises(EncodeError) as caught:
        ToWire(schema, float64="warn")(batch, row_offset=7)
    assert (caught.value.feature, caught.value.row) == ("b", 8)


def narrowed(values: Any, t: pa.DataType) -> bool:
    batch = batch_of(values, t)
    _, names = ToWire(batch.schema, float64="warn")(batch)
    exact = not names
    assert ToWire(batch.schema, float64="cast")(batch)[1] == frozenset()
    if exact:
        ToWire(batch.schema, float64="error")(batch)
    else:
        assert refused(values, t, float64="error")[0] is not None
    return not exact


@pytest.mark.parametrize(
    ("values", "t", "is_narrowed"),
    [
        ([0.5, None, math.nan, math.inf, -math.inf, 0.0], pa.float64(), False),
        ([0.5, 0.1], pa.float64(), True),
        ([2.0**24 + 1], pa.float64(), True),
        ([1e-300], pa.float64(), True),
        ([[0.5], [0.1]], pa.list_(pa.float64()), True),
        ([[[0.5], None], [[0.1]]], pa.list_(pa.list_(pa.float64())), True),
        ([0.1], pa.float32(), False),
        ([Decimal("0.5"), None, Decimal("-3.25")], pa.decimal128(10, 2), False),
        ([Decimal("1.23")], pa.decimal128(10, 2), True),
        ([Decimal(2**24)], pa.decimal128(10, 0), False),
        ([Decimal(2**24 + 1)], pa.decimal128(10, 0), True),
        ([Decimal("134219E3")], pa.decimal128(6, -3), True),
        ([Decimal("12E3")], pa.decimal128(6, -3), False),
        ([Decimal("0.1")], pa.decimal32(2, 1), True),
        ([Decimal(2) ** -20], pa.decimal256(60, 40), False),
        ([Decimal("0.00000095367431640625" + "0" * 19 + "1")], pa.decimal256(60, 40), True),
        # What 2 ** -30 is with no more than 28 places.
        ([Decimal("0.0000000009313225746154785156")], pa.decimal128(30, 28), True),
    ],
)
def test_float64_modes(values: Any, t: pa.DataType, is_narrowed: bool) -> None:
    assert narrowed(values, t) is is_narrowed


def test_decimals_keep_their_scale() -> None:
    values = [Decimal("1.23"), Decimal("-0.07"), None, Decimal("99999999.99")]
    floats = [1.23, -0.07, None, 99999999.99]
    assert written(values, pa.decimal128(10, 2)).equals(pa.array(floats, pa.float32()))
    # Of these digits Arrow's own cast to floats makes a neighbour.
    many = [Decimal("0.09726503118872642517")]
    floats = [0.09726503118872642517]
    assert written(many, pa.decimal128(38, 20)).equals(pa.array(floats, pa.float32()))


@given(
    st.lists(
        st.decimals(
            min_value=-(10**13), max_value=10**13, places=4, allow_nan=False, allow_infinity=False
        ),
        min_size=1,
        max_size=20,
    )
)
def test_decimals_are_the_nearest_floats(values: list[Decimal]) -> None:
    for t in (pa.decimal128(20, 4), pa.decimal64(18, 4), pa.decimal256(60, 4)):
        wire = written(values, t)
        floats = np.array([float(value) for value in values]).astype(np.float32)
        assert wire.equals(pa.array(floats, pa.float32()))
        exact = all(Fraction(float(f)) == Fraction(v) for f, v in zip(floats, values, strict=True))
        assert narrowed(values, t) is not exact


def test_nothing_is_copied_that_need_not_be() -> None:
    for values in (
        pa.array([1, 2, 3]),
        pa.array([1.0, 2.0], pa.float32()),
        pa.array(["a", "bc"]),
        pa.array(["a", "bc"], pa.large_string()),
        pa.array([b"a"]),
        pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us", "UTC")),
    ):
        assert data_address(written(values, values.type)) == data_address(values)
    for values in (
        pa.array([[1, 2], None, [3]]),
        pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
        pa.array([["a", "bc"]], pa.large_list(pa.string())),
        pa.array([[1]], pa.list_(pa.field("element", pa.int64()))),
        array([[1.0, 2.0, 3.0, 4.0]], TENSOR),
    ):
        storage = values.storage if isinstance(values, pa.ExtensionArray) else values
        found = written(values, values.type)
        assert data_address(found.values) == data_address(storage.values)


def test_a_batch_of_wire_types_is_passed_on() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": [[b"x"]]})
    assert ToWire(batch.schema, float64="warn")(batch)[0] is batch
    assert from_wire(batch, batch.schema, place=lambda row: (0, row)) is batch


def test_no_columns() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    assert ToWire(pa.schema([]), float64="warn")(batch)[0].num_rows == 3
    assert from_wire(batch, pa.schema([]), place=lambda row: (0, row)).num_rows == 3


def test_other_dresses_of_the_declared_type() -> None:
    schema = pa.schema([("s", pa.string()), ("l", pa.list_(pa.string())), ("n", pa.int64())])
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["a", None], pa.large_string()),
            pa.array([["b"], None], pa.large_list(pa.dictionary(pa.int8(), pa.string()))),
            pa.nulls(2),
        ],
        names=["s", "l", "n"],
    )
    wire, _ = ToWire(schema, float64="warn")(batch)
    wire.validate(full=True)
    assert wire.schema == wire_schema(schema, reading=False)
    assert wire.to_pydict() == {"s": [b"a", None], "l": [[b"b"], None], "n": [None, None]}


def test_each_batch_may_be_dressed_otherwise() -> None:
    to_wire = ToWire(pa.schema([("x", pa.string())]), float64="warn")
    expected = pa.array([b"a", None])
    for t in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.string()):
        wire, _ = to_wire(batch_of(["a", None], t))
        assert wire.column(0).equals(expected)
    with pytest.raises(EncodeError, match="int64"):
        to_wire(batch_of([1], pa.int64()))


def test_a_null_column_where_no_null_is_declared() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(EncodeError) as caught:
        ToWire(schema, float64="warn")(pa.RecordBatch.from_arrays([pa.nulls(1)], names=["x"]))
    assert (caught.value.feature, caught.value.row) == ("x", 0)


def test_other_columns_than_declared() -> None:
    batch = batch_of([1], pa.int64())
    with pytest.raises(EncodeError, match="columns"):
        ToWire(pa.schema([("y", pa.int64())]), float64="warn")(batch)
    with pytest.raises(
        EncodeError, match="has the type int64 in this batch, and float is declared"
    ):
        ToWire(pa.schema([("x", pa.float32())]), float64="warn")(batch)
    with pytest.raises(EncodeError, match="int32 is declared: cast it, or declare int64") as caught:
        ToWire(pa.schema([("x", pa.int32())]), float64="warn")(batch)
    assert caught.value.feature == "x"


def test_float64_where_float32_is_declared() -> None:
    for t, values in ((pa.float64(), [0.5, 0.1]), (pa.list_(pa.float64()), [[0.5], [0.1]])):
        declared = pa.schema([("x", pa.float32() if t == pa.float64() else pa.list_(pa.float32()))])
        batch = batch_of([*values, None], t)
        wire, narrowed = ToWire(declared, float64="warn")(batch)
        assert wire.schema == wire_schema(declared, reading=False)
        assert narrowed == {"x"}
        assert ToWire(declared, float64="cast")(batch)[1] == frozenset()
        with pytest.raises(EncodeError, match=r"'x' holds 0\.1"):
            ToWire(declared, float64="error")(batch)
    with pytest.raises(EncodeError, match="beyond the range"):
        ToWire(pa.schema([("x", pa.float32())]), float64="cast")(batch_of([1e300], pa.float64()))


# ---- from the wire -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "t", "values"),
    [
        ([1, 0, None], pa.bool_(), [True, False, None]),
        ([-128, None, 127], pa.int8(), [-128, None, 127]),
        ([0, 255], pa.uint8(), [0, 255]),
        ([2**63 - 1, None], pa.uint64(), [2**63 - 1, None]),
        ([1, None], pa.date32(), [dt.date(1970, 1, 2), None]),
        ([-DAY * 1000, None], pa.date64(), [dt.date(1969, 12, 31), None]),
        ([DAY - 1], pa.time32("s"), [dt.time(23, 59, 59)]),
        ([1, None], pa.time64("us"), [dt.time(0, 0, 0, 1), None]),
        ([1000], pa.timestamp("ms"), [dt.datetime(1970, 1, 1, 0, 0, 1)]),
        ([-DAY], pa.duration("s"), [dt.timedelta(days=-1)]),
        ([0.5, None, -0.0], pa.float16(), [0.5, None, -0.0]),
        ([0.5, None], pa.float64(), [0.5, None]),
        (["a", None], pa.large_string(), ["a", None]),
        (["a", None], pa.string_view(), ["a", None]),
        ([b"a", None], pa.large_binary(), [b"a", None]),
        ([b"ab", None, b"cd"], pa.binary(2), [b"ab", None, b"cd"]),
        ([None], pa.null(), [None]),
        (["b", None, "b"], pa.dictionary(pa.int8(), pa.large_string()), ["b", None, "b"]),
        ([3, None, 3], pa.dictionary(pa.uint16(), pa.int32()), [3, None, 3]),
        (["b", "a"], pa.dictionary(pa.int8(), pa.string(), ordered=True), ["b", "a"]),
        ([*range(128)], pa.dictionary(pa.int8(), pa.int64()), [*range(128)]),
        ([*range(256)], pa.dictionary(pa.uint8(), pa.int64()), [*range(256)]),
        ([[1], None, [1]], pa.dictionary(pa.int8(), pa.list_(pa.int8())), [[1], None, [1]]),
        ([[1], None, []], pa.large_list(pa.int16()), [[1], None, []]),
        ([["a"], None, []], pa.list_view(pa.string()), [["a"], None, []]),
        ([["a"], None, []], pa.large_list_view(pa.large_string()), [["a"], None, []]),
        ([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2), [[1, 2], None, [3, 4]]),
        ([[1, 2], [3, 4]], pa.list_(pa.int8(), 2), [[1, 2], [3, 4]]),
        ([[], None], pa.list_(pa.int8(), 0), [[], None]),
        ([[], None], pa.list_(pa.dictionary(pa.int8(), pa.time64("ns")), 0), [[], None]),
        ([[], None], pa.list_(pa.list_(pa.decimal64(3, 0), 2), 0), [[], None]),
        ([None, None], pa.list_(pa.string(), 3), [None, None]),
        ([[[1], None, []], None, []], pa.list_(pa.list_(pa.int8())), [[[1], None, []], None, []]),
        (
            [[["a", "b"], None], None],
            pa.large_list(pa.list_(pa.large_string(), 2)),
            [[["a", "b"], None], None],
        ),
        ([[1.0, 2.0, 3.0, 4.0], None], TENSOR, [[1.0, 2.0, 3.0, 4.0], None]),
        ([[[1.0, 2.0, 3.0, 4.0]], None, []], pa.list_(TENSOR), [[[1, 2, 3, 4]], None, []]),
    ],
)
def test_from_wire(wire: Any, t: pa.DataType, values: Any) -> None:
    assert read(wire, t).to_pylist() == values
    wire_type = wire_schema(pa.schema([("x", t)]), reading=True).field(0).type
    whole = array(wire, wire_type)
    for start in range(len(whole) + 1):
        assert read(whole.slice(start), t).to_pylist() == values[start:]


def test_no_value_of_a_list_of_a_fixed_size_stood_under_a_null() -> None:
    nulls = pa.array([False, True, False])
    wire = pa.ListArray.from_arrays([0, 2, 3, 5], pa.array([1, 2, 3, 4, 5]), mask=nulls)
    assert read(wire, pa.list_(pa.int8(), 2)).to_pylist() == [[1, 2], None, [4, 5]]


class Meters(pa.ExtensionType):  # type: ignore[misc]
    """A type as users define them, of which pyarrow makes no hash."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), "tests.meters")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Meters:
        return cls()


def test_types_without_a_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Meters())
    assert read([1, None], Meters()).to_pylist() == [1, None]
    assert read([[1, 2], None], pa.list_(Meters())).to_pylist() == [[1, 2], None]


def test_metadata_are_those_of_the_schema_that_was_given() -> None:
    wire = pa.RecordBatch.from_arrays([pa.array([[1]])], names=["x"])
    for note in (b"a", b"b"):
        item = pa.field("item", pa.int8(), metadata={b"note": note})
        asked = pa.schema([pa.field("x", pa.list_(item), metadata={b"note": note})])
        (found,) = from_wire(wire, asked, place=lambda row: (0, row)).schema
        assert found.metadata == found.type.value_field.metadata == {b"note": note}


@pytest.mark.parametrize("flags", [{"nullable": False}, {"metadata": {"note": "a"}}])
def test_values_that_stay_have_the_flags_and_metadata_that_were_asked_for(
    flags: dict[str, Any],
) -> None:
    schema = pa.schema([pa.field("x", pa.int64(), **flags)])
    wire = pa.record_batch([pa.array([1])], ["x"])
    found = from_wire(wire, schema, place=lambda row: (0, row))
    assert found.schema.equals(schema, check_metadata=True)


def test_time_zones() -> None:
    found = read([0, None], pa.timestamp("us", "Asia/Tokyo"))
    assert found.type == pa.timestamp("us", "Asia/Tokyo")
    assert found.view(pa.int64()).to_pylist() == [0, None]


@pytest.mark.parametrize(
    ("wire", "t", "row"),
    [
        ([1, None, 128], pa.int8(), 2),
        ([-129], pa.int8(), 0),
        ([0, -1], pa.uint8(), 1),
        ([2**32], pa.uint32(), 0),
        ([-1], pa.uint64(), 0),
        ([1, 2], pa.bool_(), 1),
        ([0, None, -1], pa.bool_(), 2),
        ([2**31], pa.date32(), 0),
        ([DAY * 1000, 1], pa.date64(), 1),
        ([DAY], pa.time32("s"), 0),
        ([1, 2**32], pa.time32("ms"), 1),
        ([0, -1], pa.time64("ns"), 1),
        ([0.5, 0.1], pa.float16(), 1),
        ([65536.0], pa.float16(), 0),
        ([[1], [1, 300]], pa.list_(pa.int8()), 1),
        ([None, [[1], None, [300]]], pa.list_(pa.list_(pa.int8())), 1),
        ([[1, 2], None, [1]], pa.list_(pa.int64(), 2), 2),
        ([[], [1, 2]], pa.list_(pa.int64(), 2), 0),
        ([[[1, 2]], [[1, 2], None, [3]]], pa.list_(pa.list_(pa.int64(), 2)), 1),
        ([b"ab", b"abc"], pa.binary(2), 1),
        ([[b"ab"], None, [b""]], pa.list_(pa.binary(2)), 2),
        ([[1.0] * 4, [1.0] * 3], TENSOR, 1),
        ([str(n) for n in range(130)], pa.dictionary(pa.int8(), pa.string()), 128),
        ([None, *range(257)], pa.dictionary(pa.uint8(), pa.int64()), 257),
    ],
)
def test_values_that_do_not_fit(wire: Any, t: pa.DataType, row: int) -> None:
    assert misfit(wire, t) == row


@pytest.mark.parametrize(
    ("wire", "t", "row"),
    [
        ([1, None], pa.int64(), 1),
        ([[1], None], pa.list_(pa.int64()), 1),
        ([[1, 2], None], pa.list_(pa.int64(), 2), 1),
        ([None, "a"], pa.dictionary(pa.int8(), pa.string()), 0),
        ([None], TENSOR, 0),
    ],
)
def test_nulls_where_the_schema_allows_none(wire: Any, t: pa.DataType, row: int) -> None:
    assert misfit(wire, t, nullable=False) == row


def test_null_steps_where_the_schema_allows_none() -> None:
    t = pa.list_(pa.field("item", pa.list_(pa.int8()), nullable=False))
    assert misfit([None, [[1]], [[1], None]], t) == 2


def test_rows_come_before_columns() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.bool_()), ("c", pa.list_(pa.int64(), 1))])
    wire = pa.RecordBatch.from_pydict(
        {"a": [0, 0, 300], "b": [0, 2, 2], "c": [[1], [], []]},
        schema=wire_schema(schema, reading=True),
    )
    with pytest.raises(SchemaMismatchError) as caught:
        from_wire(wire, schema, place=lambda row: (row * 1000, row))
    assert (caught.value.feature, caught.value.offset, caught.value.record) == ("b", 1000, 1)


@pytest.mark.parametrize(
    ("wire", "t", "values"),
    [
        ([float(np.float32(1.23)), None], pa.decimal128(10, 2), [Decimal("1.23"), None]),
        ([float(np.float32(-0.07))], pa.decimal32(5, 2), [Decimal("-0.07")]),
        ([3.0, 2.0**53], pa.decimal128(20, 1), [Decimal("3.0"), Decimal(2**53)]),
        ([12000.0], pa.decimal128(5, -3), [Decimal("12E3")]),
        ([2.0**-20], pa.decimal256(60, 40), [Decimal(2) ** -20]),
    ],
)
def test_decimals(wire: Any, t: pa.DataType, values: Any) -> None:
    assert read(wire, t).to_pylist() == values


@pytest.mark.parametrize(
    ("value", "t"),
    [
        (math.nan, pa.decimal128(10, 2)),
        (math.inf, pa.decimal128(10, 2)),
        (math.inf, pa.decimal256(76, 0)),
        (0.001, pa.decimal128(10, 2)),
        (1000.0, pa.decimal128(5, 2)),
        (999.9999, pa.decimal128(5, 2)),
        (12001.0, pa.decimal128(5, -3)),
        (2.0**53, pa.decimal128(10, 0)),
        (2.0**-149, pa.decimal256(76, 40)),
    ],
)
def test_floats_that_are_no_such_decimal(value: float, t: pa.DataType) -> None:
    assert misfit([1.0 * 10**5 if t.scale < 0 else 1.0, value], t) == 1


@pytest.mark.parametrize(
    ("last", "t"),
    [
        ("9999999999", pa.decimal128(10, 0)),
        ("9999999.99", pa.decimal64(9, 2)),
        ("0.99999999", pa.decimal32(8, 8)),
        ("99999999E2", pa.decimal256(8, -2)),
    ],
)
def test_the_last_decimals_come_back(last: str, t: pa.DataType) -> None:
    """As float32 they are a power of ten, which has a digit more than the type."""
    values = [Decimal(last), None, -Decimal(last), Decimal("0")]
    wire = written(values, t).to_pylist()
    assert wire[0] > Decimal(last)
    assert read(wire, t, rounded=("x",)).to_pylist() == values
    # Of a number that somebody else wrote, nobody knows.
    assert misfit(wire, t) == 0
    for beyond in (2 * wire[0], math.inf, math.nan):
        assert misfit([0.0, beyond], t, rounded=("x",)) == 1


@given(
    st.lists(
        st.none()
        | st.decimals(
            min_value=-99_999, max_value=99_999, places=2, allow_nan=False, allow_infinity=False
        ),
        max_size=20,
    ),
    st.sampled_from([(), ("x",)]),
)
def test_decimals_of_seven_digits_come_back(
    values: list[Decimal | None], rounded: tuple[str, ...]
) -> None:
    # float32 tells any two decimals of six digits apart; beyond, what comes back is the nearest.
    wire = written(values, pa.decimal128(7, 2))
    back = read(wire.to_pylist(), pa.decimal128(7, 2), rounded=rounded).to_pylist()
    for value, found in zip(values, back, strict=True):
        if value is None or abs(value) < 10_000:
            assert found == value
        else:
            assert np.float32(float(found)) == np.float32(float(value))


def test_an_embedding_is_not_copied() -> None:
    items = pa.array(np.arange(12, dtype=np.float32))
    wire = pa.ListArray.from_arrays(pa.array([0, 4, 8, 12], pa.int32()), items)
    for t in (pa.list_(pa.float32(), 4), TENSOR, pa.large_list(pa.float32())):
        found = read(wire, t)
        storage = found.storage if isinstance(found, pa.ExtensionArray) else found
        assert data_address(storage.values) == data_address(items)


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "values, t, row",
    [
        # A hostile manifest may name any size; a missing feature must not fill the memory.
        ([None], pa.list_(pa.int64(), HUGE), 0),
        ([[1], [2], None], pa.list_(pa.int64(), HUGE), 2),
        ([None], pa.list_(pa.list_(pa.int64(), HUGE), HUGE), 0),
        ([None], pa.list_(pa.string(), HUGE), 0),
        ([None], pa.list_(pa.binary(HUGE), 3), 0),
        ([[None]], pa.list_(pa.list_(pa.int64(), HUGE)), 0),
        ([[[1]]], pa.list_(pa.list_(pa.int64(), HUGE)), 0),
        ([[[1]]], pa.list_(pa.list_(pa.int64(), HUGE), 1), 0),
        ([None], pa.binary(HUGE), 0),
        ([b"a", None], pa.binary(2**30), 0),
        ([[b"a"]], pa.list_(pa.binary(HUGE), 1), 0),
        ([None], pa.dictionary(pa.int32(), pa.binary(HUGE)), 0),
    ],
    ids=str,
)
def test_room_for_nulls_has_an_end(values: Any, t: pa.DataType, row: int) -> None:
    assert misfit(values, t) == row


def test_room_for_nulls_is_that_of_all_columns() -> None:
    t = pa.list_(pa.int8(), 2**29)
    schema = pa.schema([("a", t), ("b", t), ("c", t)])
    wire = wire_schema(schema, reading=True, rounded=())
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in wire], schema=wire)
    with pytest.raises(SchemaMismatchError, match=r"'a'.*fixed_size_list.*536870912 bytes"):
        from_wire(batch, schema, place=lambda row: (0, row))


def test_large_tensors_may_be_missing() -> None:
    # Values of 64 MiB, and none of them in the file.
    t = pa.list_(pa.int64(), 2**23)
    wire = pa.nulls(4, pa.list_(pa.int64()))
    schema = pa.schema([("x", t)])
    batch = pa.RecordBatch.from_arrays([wire], ["x"])
    found = from_wire(batch, schema, place=lambda row: (0, row)).column(0)
    assert (len(found), found.null_count, found.type) == (4, 4, t)


# ---- both ways -----------------------------------------------------------------------------------

float32s = st.floats(width=32)
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.uint64(), st.integers(0, 2**63 - 1)),
    (pa.float16(), st.floats(width=16)),
    (pa.float32(), float32s),
    (pa.float64(), float32s),
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=5)),
    (pa.binary_view(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.timestamp("ns", "UTC"), st.integers(-(2**63), 2**63 - 1)),
    (pa.time32("ms"), st.integers(0, DAY * 1000 - 1)),
    (pa.duration("us"), st.integers(-(2**63), 2**63 - 1)),
    (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=2)),
]


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    t, values = draw(st.sampled_from(VALUES))
    for _ in range(draw(st.integers(0, 2))):
        make = draw(st.sampled_from([pa.list_, pa.large_list, lambda t: pa.list_(t, 2)]))
        item = values if not is_list(t) else st.none() | values
        t = make(t)
        size = 2 if pa.types.is_fixed_size_list(t) else None
        values = st.lists(item, min_size=size or 0, max_size=size or 3)
    rows = draw(st.lists(st.none() | values, max_size=6))
    start = draw(st.integers(0, len(rows)))
    return pa.array(rows, t).slice(start)


def is_list(t: pa.DataType) -> bool:
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t))


@settings(max_examples=300, deadline=None)
@given(columns())
def test_there_and_back(column: pa.Array) -> None:
    schema = pa.schema([("x", column.type)])
    batch = pa.RecordBatch.from_arrays([column], schema=schema)
    wire, names = ToWire(schema, float64="error")(batch)
    assert names == frozenset()
    # What a codec does in between, and no more: one wire type to the other.
    decoded = pa.RecordBatch.from_pylist(
        [{"x": as_text(value, column.type)} for value in wire.column(0).to_pylist()],
        schema=wire_schema(schema, reading=True),
    )
    back = from_wire(decoded, schema, place=lambda row: (0, row)).column(0)
    assert bits(back) == bits(column)


def as_text(value: Any, t: pa.DataType) -> Any:
    if isinstance(value, list):
        return [as_text(item, t.value_type) for item in value]
    if isinstance(value, bytes) and "string" in str(t):
        return value.decode()
    return value


def bits(column: pa.Array) -> Any:
    """Values to compare, NaN and the zeros told by their bits."""

    def of(scalar: Any) -> Any:
        if not scalar.is_valid:
            return None
        if is_list(scalar.type):
            return [of(item) for item in scalar.values]
        if pa.types.is_floating(scalar.type):
            value = float(scalar.as_py())
            return "nan" if math.isnan(value) else struct.pack("<d", value)
        if pa.types.is_temporal(scalar.type):
            return scalar.value
        return scalar.as_py()

    return [of(scalar) for scalar in column]
