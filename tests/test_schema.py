from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord_io.errors import ManifestError, UnsupportedTypeError
from tfrecord_io.schema import (
    check_writable,
    normal_schema,
    normal_type,
    schema_from_json,
    schema_to_json,
    wire_field,
    wire_schema,
)

TENSOR = pa.fixed_shape_tensor(pa.float32(), [2, 3])

#: A type, its normal form, and its wire types to read and to write.
FORMS: list[tuple[pa.DataType, pa.DataType, pa.DataType, pa.DataType]] = [
    (pa.bool_(), pa.bool_(), pa.int64(), pa.int64()),
    (pa.int8(), pa.int8(), pa.int64(), pa.int64()),
    (pa.uint64(), pa.uint64(), pa.int64(), pa.int64()),
    (pa.float16(), pa.float16(), pa.float32(), pa.float32()),
    (pa.float32(), pa.float32(), pa.float32(), pa.float32()),
    (pa.float64(), pa.float64(), pa.float64(), pa.float32()),
    (pa.decimal32(5, 2), pa.decimal128(5, 2), pa.float64(), pa.float32()),
    (pa.decimal64(5, 2), pa.decimal128(5, 2), pa.float64(), pa.float32()),
    (pa.decimal128(38, -2), pa.decimal128(38, -2), pa.float64(), pa.float32()),
    (pa.decimal256(70, 2), pa.decimal256(70, 2), pa.float64(), pa.float32()),
    (pa.date32(), pa.date32(), pa.int64(), pa.int64()),
    (pa.date64(), pa.date64(), pa.int64(), pa.int64()),
    (pa.time32("ms"), pa.time32("ms"), pa.int64(), pa.int64()),
    (pa.timestamp("us"), pa.timestamp("us"), pa.int64(), pa.int64()),
    (pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "UTC"), pa.int64(), pa.int64()),
    (pa.duration("ns"), pa.duration("ns"), pa.int64(), pa.int64()),
    (pa.string(), pa.string(), pa.string(), pa.binary()),
    (pa.large_string(), pa.string(), pa.string(), pa.large_binary()),
    (pa.string_view(), pa.string(), pa.string_view(), pa.large_binary()),
    (pa.binary(), pa.binary(), pa.binary(), pa.binary()),
    (pa.large_binary(), pa.binary(), pa.binary(), pa.large_binary()),
    (pa.binary_view(), pa.binary(), pa.binary_view(), pa.large_binary()),
    (pa.binary(16), pa.binary(16), pa.binary(), pa.large_binary()),
    (pa.null(), pa.null(), pa.null(), pa.null()),
    (pa.uuid(), pa.binary(16), pa.binary(), pa.large_binary()),
    (pa.bool8(), pa.int8(), pa.int64(), pa.int64()),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string(), pa.large_binary()),
    (pa.dictionary(pa.int8(), pa.int16()), pa.int16(), pa.int64(), pa.int64()),
    (pa.list_(pa.int8()), pa.list_(pa.int8()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    (
        pa.large_list(pa.string()),
        pa.list_(pa.string()),
        pa.list_(pa.string()),
        pa.large_list(pa.binary()),
    ),
    (
        pa.list_view(pa.float64()),
        pa.list_(pa.float64()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
    ),
    (
        pa.large_list_view(pa.int8()),
        pa.list_(pa.int8()),
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
    ),
    (
        pa.list_(pa.field("element", pa.float64(), nullable=False), 3),
        pa.list_(pa.float64(), 3),
        pa.list_(pa.float64()),
        pa.list_(pa.float32(), 3),
    ),
    (TENSOR, pa.list_(pa.float32(), 6), pa.list_(pa.float32()), pa.list_(pa.float32(), 6)),
    (
        pa.list_(TENSOR),
        pa.list_(pa.list_(pa.float32(), 6)),
        pa.list_(pa.list_(pa.float32())),
        pa.list_(pa.list_(pa.float32(), 6)),
    ),
    (
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.list_(pa.int8()),
        pa.list_(pa.int64()),
        pa.list_(pa.int64()),
    ),
]


@pytest.mark.parametrize(
    ("t", "normal", "reading", "writing"), FORMS, ids=[str(f[0]) for f in FORMS]
)
def test_forms(
    t: pa.DataType, normal: pa.DataType, reading: pa.DataType, writing: pa.DataType
) -> None:
    # Equality of list types looks at the name of the item, too.
    assert normal_type(t) == normal
    assert normal_type(normal) == normal
    field = pa.field("x", t, nullable=pa.types.is_null(t), metadata={"a": "b"})
    assert normal_schema(pa.schema([field])).equals(pa.schema([("x", normal)]), check_metadata=True)
    assert wire_field(field, reading=True).equals(pa.field("x", reading), check_metadata=True)
    assert wire_field(field, reading=False).equals(pa.field("x", writing), check_metadata=True)
    schema = pa.schema([field])
    assert wire_schema(schema, reading=True) == pa.schema([("x", reading)])
    check_writable(schema, "SequenceExample")


UNSUPPORTED = [
    (pa.struct([("a", pa.int8())]), "flatten"),
    (pa.list_(pa.struct([("a", pa.int8())])), "flatten"),
    (pa.map_(pa.string(), pa.int8()), "two list columns"),
    (pa.sparse_union([pa.field("a", pa.int8())]), "column of its own"),
    (pa.month_day_nano_interval(), "duration"),
    (pa.run_end_encoded(pa.int32(), pa.int8()), "run_end_decode"),
    (pa.list_(pa.list_(pa.list_(pa.int8()))), "two deep"),
    (pa.list_(pa.list_(TENSOR)), "two deep"),
    (pa.dictionary(pa.int8(), pa.list_(pa.list_(pa.list_(pa.int8())))), "two deep"),
]


@pytest.mark.parametrize(("t", "advice"), UNSUPPORTED, ids=[str(t) for t, _ in UNSUPPORTED])
def test_what_no_record_can_hold(t: pa.DataType, advice: str) -> None:
    schema = pa.schema([("fine", pa.int8()), ("x", t)])
    for refuse in (
        lambda: check_writable(schema, "SequenceExample"),
        lambda: normal_schema(schema),
        lambda: wire_schema(schema, reading=True),
        lambda: schema_to_json(schema),
    ):
        with pytest.raises(UnsupportedTypeError, match=advice) as caught:
            refuse()
        assert caught.value.feature == "x"
        assert "'x'" in str(caught.value)


@pytest.mark.parametrize(
    "t",
    [pa.list_(pa.list_(pa.int8())), pa.list_(TENSOR), pa.dictionary(pa.int8(), pa.list_(TENSOR))],
)
def test_lists_of_lists_want_a_sequence_example(t: pa.DataType) -> None:
    schema = pa.schema([("x", t)])
    check_writable(schema, "SequenceExample")
    with pytest.raises(UnsupportedTypeError, match="SequenceExample") as caught:
        check_writable(schema, "Example")
    assert caught.value.feature == "x"


def test_names() -> None:
    check_writable(pa.schema([]), "Example")
    with pytest.raises(UnsupportedTypeError, match="two columns are named 'a'"):
        check_writable(pa.schema([("a", pa.int8()), ("a", pa.string())]), "Example")


@pytest.mark.parametrize(
    "t",
    [
        pa.binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_byte_array(t: pa.DataType) -> None:
    check_writable(pa.schema([("x", t)]), "ByteArray")


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.binary()), ("b", pa.binary())]),
        pa.schema([("a", pa.int64())]),
        pa.schema([("a", pa.list_(pa.binary()))]),
    ],
)
def test_no_byte_array(schema: pa.Schema) -> None:
    with pytest.raises(UnsupportedTypeError, match="one column of bytes"):
        check_writable(schema, "ByteArray")


def test_json_text() -> None:
    schema = pa.schema(
        [
            ("a", pa.list_(pa.int64())),
            ("b", pa.list_(pa.float32(), 512)),
            ("c", pa.decimal128(10, 2)),
            ("d", pa.timestamp("us", "UTC")),
            ("e", pa.binary(16)),
            ("f", pa.list_(pa.list_(pa.string()))),
            ("", pa.float16()),
        ]
    )
    assert schema_to_json(schema) == [
        {"name": "a", "type": "list<int64>"},
        {"name": "b", "type": "fixed_size_list<float32, 512>"},
        {"name": "c", "type": "decimal128(10, 2)"},
        {"name": "d", "type": "timestamp[us, UTC]"},
        {"name": "e", "type": "fixed_size_binary[16]"},
        {"name": "f", "type": "list<list<string>>"},
        {"name": "", "type": "float16"},
    ]


units = st.sampled_from(["s", "ms", "us", "ns"])
leaves = st.one_of(
    st.sampled_from(
        [form[1] for form in FORMS if not pa.types.is_nested(form[1])]
        + [pa.time32("s"), pa.time64("us"), pa.time64("ns")]
    ),
    st.builds(pa.timestamp, units, st.sampled_from([None, "UTC"])),
    st.builds(pa.duration, units),
    st.builds(pa.binary, st.integers(0, 2**31 - 1)),
    st.builds(pa.decimal128, st.integers(1, 38), st.integers(-40, 40)),
    st.builds(pa.decimal256, st.integers(1, 76), st.integers(-80, 80)),
)


def lists_of(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        st.builds(lambda t, size: pa.list_(t, size), inner, st.integers(0, 2**31 - 1)),
    )


normal_types = st.one_of(leaves, lists_of(leaves), lists_of(lists_of(leaves)))


@given(st.dictionaries(st.text(max_size=5), normal_types, max_size=4))
def test_json_round_trip(fields: dict[str, pa.DataType]) -> None:
    schema = pa.schema(list(fields.items()))
    assert schema_from_json(schema_to_json(schema)).equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        "int64",
        [1],
        [None],
        [{}],
        [{"name": "a"}],
        [{"name": "a", "type": "int64", "more": 1}],
        [{"name": 1, "type": "int64"}],
        [{"name": "a", "type": ["int64"]}],
        [{"name": "\ud800", "type": "int64"}],
        [{"name": "a", "type": "int64"}, {"name": "a", "type": "int64"}],
        *(
            [{"name": "a", "type": text}]
            for text in (
                "",
                "int",
                "INT64",
                " int64",
                "list<>",
                "list<int64",
                "list<int64>>",
                "list<list<list<int64>>>",
                "list<" * 100_000,
                "large_list<int64>",
                "struct<a: int64>",
                "fixed_size_list<int64, -1>",
                "fixed_size_list<int64, 2147483648>",
                "fixed_size_list<int64>",
                "fixed_size_binary[2147483648]",
                "fixed_size_binary[" + "9" * 10_000 + "]",
                "fixed_size_binary[\u0661]",
                "decimal128(39, 0)",
                "decimal128(0, 0)",
                "decimal256(77, 0)",
                "decimal64(5, 2)",
                "timestamp[us, Europe/Berlin]",
                "timestamp[h]",
                "time32[us]",
            )
        ),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_hostile_json(value: Any) -> None:
    with pytest.raises(ManifestError):
        schema_from_json(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["name", "int64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "type", "x"]), inner, max_size=3)
    ),
)


@given(json_values | st.lists(st.fixed_dictionaries({"name": st.text(), "type": st.text()})))
def test_any_json_is_a_schema_or_a_manifest_error(value: Any) -> None:
    with contextlib.suppress(ManifestError):
        assert isinstance(schema_from_json(value), pa.Schema)
