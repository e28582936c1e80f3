"""Folder names against trees that Spark wrote and pyarrow reads; values against Java's forms."""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfrecord_io import layout
from tfrecord_io.errors import LayoutError, OptionError
from tfrecord_io.partition_values import cast_partition_values, infer_partition_types

GOLDEN = Path(__file__).parent / "golden" / "spark_tfrecord"


def spark_case(name: str) -> tuple[list[str], set[str]]:
    """The partition values that went into Spark, and the folders that it made."""
    told = json.loads((GOLDEN / f"{name}.manifest.json").read_text())
    names = [field["name"] for field in told["schema"]["fields"]]
    index = names.index(told["partitionBy"][0])
    folders = {entry.name for entry in (GOLDEN / name).iterdir() if entry.is_dir()}
    return [row[index] for row in told["rows"]], folders


@pytest.mark.parametrize(
    ("case", "type_"), [("part_string_special", pa.string()), ("part_int", pa.int32())]
)
def test_folders_are_named_as_spark_named_them(case: str, type_: pa.DataType) -> None:
    values, folders = spark_case(case)
    array = pa.array(list(dict.fromkeys(values)), type_)
    assert set(layout.format_segments("p", array, empty_partition="null")) == folders


def test_spark_escapes_these_and_no_others() -> None:
    # ExternalCatalogUtils.charToEscape.
    escaped = {*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\\x7f{[]^"}
    for code in range(1, 0x100):
        assert layout.escape(chr(code)) == (f"%{code:02X}" if chr(code) in escaped else chr(code))


@pytest.mark.parametrize("case", ["part_string_special", "part_int"])
def test_spark_folders_parse_to_the_values_that_went_in(case: str) -> None:
    values, folders = spark_case(case)
    expected = {None if value in (None, "") else str(value) for value in values}
    assert {layout.parse_partition_path(folder)[0][1] for folder in folders} == expected


def test_two_levels_parse_in_the_order_of_the_folders() -> None:
    root = GOLDEN / "part_two_levels"
    found = [
        layout.parse_partition_path(path.parent.relative_to(root).as_posix())
        for path in sorted(root.rglob("part-*"))
    ]
    told = json.loads((GOLDEN / "part_two_levels.manifest.json").read_text())
    assert found == [[("p1", row[0]), ("p2", str(row[2]))] for row in told["rows"]]


values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
names = values.filter(lambda name: not name.startswith("."))


@given(names, st.lists(values, min_size=1, max_size=5, unique=True))
def test_formatting_and_parsing_are_inverse(name: str, texts: list[str]) -> None:
    try:
        segments = layout.format_segments(name, pa.array([*texts, None]))
    except LayoutError:
        assert any(len(f"{name}={t}".encode()) > 80 or "._COPYING_" in t for t in texts) or (
            layout.NULL_VALUE in texts
        )
        return
    assert all("/" not in s and layout.is_data_name(s) and s not in (".", "..") for s in segments)
    parsed = [layout.parse_partition_path(s) for s in segments]
    assert parsed == [[(name, text)] for text in [*texts, None]]


ODD = ["a b", "a/b", "50%", "é", "日本", "k=v", "x:y", "..", "%20", "plus+", "it's", "t\tb"]


def test_pyarrow_reads_our_folders(tmp_path: Path) -> None:
    for text, segment in zip(ODD, layout.format_segments("p", pa.array(ODD)), strict=True):
        (tmp_path / segment).mkdir()
        pq.write_table(pa.table({"v": [text]}), tmp_path / segment / "part.parquet")
    hive = pads.partitioning(pa.schema([("p", pa.string())]), flavor="hive")
    rows = pads.dataset(tmp_path, partitioning=hive).to_table().to_pylist()
    assert sorted(row["v"] for row in rows) == sorted(ODD)
    assert all(row["p"] == row["v"] for row in rows)


def test_folders_of_pyarrow_parse_alike(tmp_path: Path) -> None:
    table = pa.table({"p": [*ODD, None], "v": [*ODD, "null"]})
    pads.write_dataset(
        table, tmp_path, format="parquet", partitioning=["p"], partitioning_flavor="hive"
    )
    for path in tmp_path.rglob("*.parquet"):
        value = pq.ParquetFile(path).read().column("v")[0].as_py()
        parsed = layout.parse_partition_path(path.parent.relative_to(tmp_path).as_posix())
        assert parsed == [("p", None if value == "null" else value)]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("", []),
        ("p=", [("p", "")]),
        ("deep/p=1/x/q=2", [("p", "1"), ("q", "2")]),
        ("p=100%", [("p", "100%")]),
        ("p=%4", [("p", "%4")]),
        ("p=%zz%41", [("p", "%zzA")]),
        ("p=%E9", [("p", "é")]),
        ("p=%c3%a9", [("p", "é")]),
        ("p=%5F_HIVE_DEFAULT_PARTITION__", [("p", "__HIVE_DEFAULT_PARTITION__")]),
        ("p%3D=%3D", [("p=", "=")]),
        ("p=a=b", [("p", "a=b")]),
    ],
)
def test_wild_folders(folder: str, expected: list[tuple[str, str | None]]) -> None:
    assert layout.parse_partition_path(folder) == expected


@pytest.mark.parametrize("folder", ["=1", "p=1/p=2"])
def test_folders_that_say_nothing_sound(folder: str) -> None:
    with pytest.raises(LayoutError) as caught:
        layout.parse_partition_path(folder)
    assert caught.value.path == folder


# Expected texts: java.lang.Double.toString and Float.toString (JDK 19 and later), java.sql forms.
@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (pa.float64(), 1.0, "1.0"),
        (pa.float64(), 100.0, "100.0"),
        (pa.float64(), 1e300, "1.0E300"),
        (pa.float64(), 1.25e-5, "1.25E-5"),
        (pa.float64(), 0.001, "0.001"),
        (pa.float64(), 9.99e-4, "9.99E-4"),
        (pa.float64(), 9999999.0, "9999999.0"),
        (pa.float64(), 1e7, "1.0E7"),
        (pa.float64(), 12345678.9, "1.23456789E7"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 5e-324, "4.9E-324"),
        (pa.float64(), 1e23, "1.0E23"),
        (pa.float64(), 2e-3, "0.002"),
        (pa.float32(), 1.401298464324817e-45, "1.4E-45"),
        (pa.float64(), math.nan, "NaN"),
        (pa.float64(), -math.inf, "-Infinity"),
        (pa.float32(), 0.1, "0.1"),
        (pa.float32(), 16777216.0, "1.6777216E7"),
        (pa.float16(), 0.5, "0.5"),
        (pa.bool_(), True, "true"),
        (pa.uint64(), 2**64 - 1, "18446744073709551615"),
        (pa.int8(), -1, "-1"),
        (pa.decimal128(20, 10), Decimal("1E-10"), "0.0000000001"),
        (pa.decimal128(5, 2), Decimal("1.50"), "1.50"),
        (pa.date32(), date(2026, 1, 2), "2026-01-02"),
        (pa.date64(), date(1, 1, 1), "0001-01-01"),
        (pa.timestamp("us"), datetime(2026, 1, 2, 3, 4, 5, 120000), "2026-01-02 03%3A04%3A05.12"),
        (pa.timestamp("s"), datetime(2026, 1, 2, 3, 4, 50), "2026-01-02 03%3A04%3A50"),
        (
            pa.timestamp("ms", "Europe/Paris"),
            datetime(2026, 7, 2, tzinfo=timezone.utc),
            "2026-07-02 00%3A00%3A00",
        ),
        (pa.binary(), "é".encode(), "é"),
        (pa.large_string(), "x", "x"),
        (pa.string_view(), "x", "x"),
        (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
        (pa.null(), None, "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_text_of_each_type(type_: pa.DataType, value: object, text: str) -> None:
    assert layout.format_segments("p", pa.array([value], type_)) == [f"p={text}"]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.bool_(), True),
        (pa.int8(), 1),
        (pa.float64(), 1.5),
        (pa.decimal128(3, 1), Decimal("1.5")),
        (pa.date32(), date(2026, 1, 2)),
        (pa.date64(), date(2026, 1, 2)),
        (pa.timestamp("ns"), datetime(2026, 1, 2, 3, 4, 5, 600000)),
        (pa.binary(), b"x"),
    ],
)
def test_nulls_beside_values(type_: pa.DataType, value: object) -> None:
    values = pa.array([None, value, None], type_)
    texts = layout.value_texts("p", values)
    assert [text is None for text in texts] == [True, False, True]
    assert cast_partition_values("p", texts, type_).equals(values)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back_to_the_same_bits(value: float) -> None:
    (text,) = layout.value_texts("p", pa.array([value]))
    assert text is not None
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    assert float(text) == value
    (back,) = cast_partition_values("p", [text], pa.float64()).to_pylist()
    assert back == value


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("", pa.array(["x"])),
        (".hidden", pa.array(["x"])),
        ("nul\0", pa.array(["x"])),
        ("p", pa.array([""])),
        ("p", pa.array(["a\0b"])),
        ("p", pa.array([b"\xff"])),
        ("p", pa.array(["x" * 300])),
        ("p", pa.array(["é" * 150])),
        ("p", pa.array(["x._COPYING_"])),
        ("p", pa.array(["__HIVE_DEFAULT_PARTITION__"])),
        ("p", pa.array([2932897], pa.date32())),
        ("p", pa.array([-719163], pa.date32())),
        ("p", pa.array([86_400_001], pa.int64()).view(pa.date64())),
        ("p", pa.array([-(2**40)], pa.timestamp("s"))),
        ("p", pa.array([[1]])),
        ("p", pa.array([1], pa.time64("us"))),
        ("p", pa.array([1], pa.duration("s"))),
    ],
)
def test_refused_names_and_values(name: str, array: pa.Array) -> None:
    with pytest.raises(
        LayoutError, match=re.escape(f"column {name!r}" if name else "an empty name")
    ):
        layout.format_segments(name, array)


@pytest.mark.parametrize(
    "values", [[""], ["a\0b"], ["x" * 300], ["x._COPYING_"], [layout.NULL_VALUE], [b"\xff"], [[1]]]
)
def test_refused_values_name_their_column(values: list[Any]) -> None:
    with pytest.raises(LayoutError) as caught:
        layout.format_segments("p", pa.array(values))
    assert caught.value.feature == "p"


@pytest.mark.parametrize("name", ["", ".hidden", "nul\0", "x" * 255, "/" * 85])
def test_refused_names_are_told_without_values(name: str) -> None:
    with pytest.raises(LayoutError):
        layout.format_segments(name, pa.nulls(0, pa.string()))
    assert layout.format_segments("/" * 84 + "xx", pa.nulls(0, pa.string())) == []


def test_a_folders_name_may_have_255_bytes() -> None:
    longest = "é" * 126 + "x"
    assert layout.format_segments("p", pa.array([longest])) == [f"p={longest}"]
    with pytest.raises(LayoutError, match="256 bytes"):
        layout.format_segments("p", pa.array([longest + "x"]))


def test_empty_strings_become_null_on_demand() -> None:
    segments = layout.format_segments("_p", pa.array(["", None]), empty_partition="null")
    assert segments == ["_p=__HIVE_DEFAULT_PARTITION__"] * 2


# Expected types: the table and code of PartitioningUtils.inferPartitionColumnValue.
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["01", "1"], pa.int32()),
        (["+1", "-2147483648"], pa.int32()),
        (["2147483647"], pa.int32()),
        (["1", "2147483648"], pa.int64()),
        (["-2147483649"], pa.int64()),
        (["-9223372036854775808"], pa.int64()),
        (["-9223372036854775809"], pa.decimal128(19, 0)),
        (["0" * 80 + "1"], pa.int32()),
        (["0E5"], pa.decimal128(6, 0)),
        (["001E5"], pa.decimal128(6, 0)),
        (["9223372036854775808"], pa.decimal128(19, 0)),
        (["1", "9223372036854775808"], pa.decimal128(19, 0)),
        (["2147483648", "9223372036854775808"], pa.decimal128(20, 0)),
        (["1E5"], pa.decimal128(6, 0)),
        (["1E5", "1"], pa.decimal128(10, 0)),
        (["+1.E5"], pa.decimal128(6, 0)),
        ([".1E5"], pa.decimal128(5, 0)),
        (["1" * 38], pa.decimal128(38, 0)),
        (["9223372036854775807"], pa.int64()),
        (["1.0E300"], pa.float64()),
        ([" 1", "+1.5", "2.5D ", "1F", "0x1.p3"], pa.float64()),
        (["1" * 39], pa.float64()),
        (["1", "1.5"], pa.float64()),
        (["1.5", "2147483648"], pa.string()),
        (["1.5", "9223372036854775808"], pa.string()),
        (["NaN", "Infinity", "-Infinity", "1d", ".5"], pa.float64()),
        (["0x1p3", "0X.8P-1", "-0x1.8p1f", "1"], pa.float64()),
        (["0x10"], pa.string()),
        (["0x.p1"], pa.string()),
        (["nan"], pa.string()),
        (["1_000"], pa.string()),
        (["2026-01-02"], pa.date32()),
        (["2026-02-30"], pa.string()),
        (["2026-1-2"], pa.string()),
        (["2026-W01-1"], pa.string()),
        (["2026-01-02 03:04:05.1"], pa.timestamp("us")),
        (["2026-01-02 03:04:05.12"], pa.string()),
        (["2026-01-02 03:04:05", "2026-01-02"], pa.timestamp("us")),
        (["2026-01-02 03:04:05.123456789"], pa.string()),
        (["2026-01-02 25:04:05"], pa.string()),
        (["2026-01-02", "1"], pa.string()),
        (["x", "1", None], pa.string()),
        (["", "1"], pa.string()),
        (["true"], pa.string()),
        ([None, "1"], pa.int32()),
        ([None], pa.null()),
        ([], pa.null()),
        (["9" * 100_000], pa.float64()),
        (["1e" + "9" * 50], pa.float64()),
    ],
)
def test_inference_follows_spark(texts: list[str | None], expected: pa.DataType) -> None:
    assert infer_partition_types({"p": texts}) == {"p": expected}
    assert infer_partition_types({"p": texts[::-1]}) == {"p": expected}


@pytest.mark.parametrize("time", ["", " 03:04:05"])
def test_times_beside_other_text_are_text_in_any_order(time: str) -> None:
    # Values come in an order that changes from process to process.
    columns = {str(day): [f"2026-01-{day}{time}", "x"] for day in range(10, 20)}
    assert {*infer_partition_types(columns).values()} == {pa.string()}


def test_dates_beside_times_are_times_in_any_order() -> None:
    columns = {str(day): ["2026-01-02 03:04:05", f"2026-01-{day}"] for day in range(10, 20)}
    assert {*infer_partition_types(columns).values()} == {pa.timestamp("us")}


@pytest.mark.parametrize(
    ("type_", "texts", "expected"),
    [
        (pa.int32(), ["01", "1", None], [1, 1, None]),
        (pa.float32(), ["1", "NaN", "1.0E10"], [1.0, math.nan, 1e10]),
        (pa.float64(), ["0x1p3", "0X.8P-1", "-0x1.8p1f", "0xAbp1"], [8.0, 0.25, -3.0, 342.0]),
        (pa.float64(), ["0x1p1024", "-0x1p99999", "1e999"], [math.inf, -math.inf, math.inf]),
        (pa.float64(), ["2.5D ", " 1f", "nan", "-inf"], [2.5, 1.0, math.nan, -math.inf]),
        (pa.bool_(), ["true", "FALSE", "TRUE"], [True, False, True]),
        (pa.string(), ["", "x"], ["", "x"]),
        (pa.binary(), ["é"], ["é".encode()]),
        (pa.large_string(), ["x"], ["x"]),
        (pa.decimal128(5, 2), ["1.5"], [Decimal("1.50")]),
        (pa.date32(), ["2026-01-02"], [date(2026, 1, 2)]),
        (pa.timestamp("us"), ["2026-01-02 03:04:05.12"], [datetime(2026, 1, 2, 3, 4, 5, 120000)]),
        (pa.timestamp("us"), ["1677-09-21 00:12:43.5"], [datetime(1677, 9, 21, 0, 12, 43, 500000)]),
        (pa.timestamp("us", "UTC"), ["2026-01-02"], [datetime(2026, 1, 2, tzinfo=timezone.utc)]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "a", None], ["a", "a", None]),
        (pa.null(), [None, None], [None, None]),
    ],
)
def test_values_of_a_given_type(
    type_: pa.DataType, texts: list[str | None], expected: list[object]
) -> None:
    found = cast_partition_values("p", texts, type_)
    assert found.type == type_
    assert repr(found.to_pylist()) == repr(pa.array(expected, type_).to_pylist())


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("value", [-(2**63) + 1, -(2**63) + 145_224_193, -(2**63) + 10**9, 0, None])
def test_the_first_second_of_nanoseconds(zone: str | None, value: int | None) -> None:
    values = pa.array([value, 2**63 - 1], pa.int64()).cast(pa.timestamp("ns", zone))
    texts = [text for _, text in map(_parsed, layout.format_segments("p", values))]
    assert cast_partition_values("p", texts, values.type).equals(values)


def _parsed(segment: str) -> tuple[str, str | None]:
    return layout.parse_partition_path(segment)[0]


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("America/New_York", "2026-03-08 02:30:00", "2026-03-08 07:30:00"),
        ("America/New_York", "2026-03-08 03:00:00", "2026-03-08 07:00:00"),
        ("America/New_York", "2026-11-01 01:30:00", "2026-11-01 05:30:00"),
        ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 22:00:00"),
        ("+05:30", "2026-01-02 00:00:00", "2026-01-01 18:30:00"),
        ("+05:30", "2026-01-02 00:00:00Z", "2026-01-02 00:00:00"),
    ],
)
def test_times_that_clocks_left_out_and_went_through_twice(
    zone: str, text: str, expected: str
) -> None:
    """As java.time tells them, and so Spark."""
    found = cast_partition_values("p", [text], pa.timestamp("us", "UTC"), zone)
    assert found.type == pa.timestamp("us", "UTC")
    assert str(found[0].cast(pa.timestamp("us"))) == expected


def test_times_without_a_zone_are_of_none() -> None:
    found = cast_partition_values(
        "p", ["2026-03-08 02:30:00"], pa.timestamp("us"), "America/New_York"
    )
    assert found.to_pylist() == [datetime(2026, 3, 8, 2, 30)]


def test_a_time_zone_that_is_none() -> None:
    with pytest.raises(OptionError, match="no time zone 'Nowhere/City'"):
        cast_partition_values("p", ["2026-01-02"], pa.timestamp("us", "UTC"), "Nowhere/City")
    # Where no text tells a time in it, nobody asks for it.
    text = cast_partition_values("p", ["a"], pa.string(), "Nowhere/City")
    assert text.to_pylist() == ["a"]


def test_instants_in_folders_of_pyarrow(tmp_path: Path) -> None:
    instants = pa.array([0, None, 1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    pads.write_dataset(
        pa.table({"p": instants, "v": instants}),
        tmp_path,
        format="parquet",
        partitioning=["p"],
        partitioning_flavor="hive",
    )
    for path in tmp_path.rglob("*.parquet"):
        text = _parsed(path.parent.name)[1]
        for zone in ["UTC", "America/New_York"]:
            found = cast_partition_values("p", [text], instants.type, zone)
            assert found.equals(pq.ParquetFile(path).read().column("v").combine_chunks())


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (pa.int8(), "300"),
        (pa.uint8(), "-1"),
        (pa.int32(), "1.0"),
        (pa.int32(), ""),
        (pa.int32(), "1_0"),
        (pa.int32(), "\u0661"),
        (pa.dictionary(pa.int32(), pa.int32()), "1_0"),
        (pa.int64(), "9" * 10_000),
        (pa.bool_(), "yes"),
        (pa.float64(), "x"),
        (pa.float64(), "1_0"),
        (pa.decimal128(3, 0), "1_0"),
        (pa.float32(), "1e300"),
        (pa.decimal128(3, 0), "1000"),
        (pa.decimal128(3, 0), "1.5"),
        (pa.decimal128(3, 3), "15611.902743064666714e-54"),
        (pa.decimal128(5, 2), "1e-1997"),
        (pa.decimal128(3, 0), "x"),
        (pa.date32(), "2026-02-30"),
        (pa.date32(), "20260102"),
        (pa.timestamp("s"), "soon"),
        (pa.null(), "x"),
        (pa.list_(pa.int32()), "1"),
        (pa.dictionary(pa.int32(), pa.decimal64(3, 0)), "1"),
        (pa.timestamp("ns"), "1677-09-21 00:12:43.145224191"),
    ],
)
def test_values_that_do_not_fit_a_given_type(type_: pa.DataType, text: str) -> None:
    with pytest.raises(LayoutError, match=r"'p'.*give the column another type in the schema"):
        cast_partition_values("p", [text], type_)


def test_no_null_is_wider_than_names_of_folders_are() -> None:
    # Each row of the data set has it, and a manifest may name any type.
    with pytest.raises(LayoutError, match=r"'p'.*fixed_size_binary\[65537\]"):
        cast_partition_values("p", [None], pa.binary(65_537))
    assert cast_partition_values("p", [None], pa.binary(65_536)).to_pylist() == [None]
    assert cast_partition_values("p", ["ab", None], pa.binary(2)).to_pylist() == [
        b"ab",
        None,
    ]


def test_the_data_set_of_a_partition_folder() -> None:
    assert layout.data_set_of("/x=1/flights/p=1/q=2") == "/x=1/flights"


def test_part_names() -> None:
    name = layout.format_part_name(3, 12, ".tfrecord.gz")
    assert name == "part-00003-012.tfrecord.gz"
    assert layout.parse_part_name(name) == (3, 12, ".tfrecord.gz")
    assert layout.parse_part_name(layout.format_part_name(123456, 1000, ".x")) == (
        123456,
        1000,
        ".x",
    )
    longest = layout.format_part_name(10**18 - 1, 10**18 - 1, ".x")
    assert layout.parse_part_name(longest) == (10**18 - 1, 10**18 - 1, ".x")


@pytest.mark.parametrize(
    "name",
    [
        "part-0003-012.tfrecord",
        "part-00003-012",
        "part-00003-012.",
        "part-000003-012.x",
        "part-00003-0012.x",
        "xpart-00003-012.x",
        f"part-1{'0' * 18}-012.x",
        f"part-00003-1{'0' * 18}.x",
        "",
    ],
)
def test_names_that_are_no_part_names(name: str) -> None:
    assert layout.parse_part_name(name) is None
    assert layout.reading_order(f"p=1/{name}") == f"p=1/{name}"


numbers = st.integers(0, 17).flatmap(lambda digits: st.integers(0, 10 ** (digits + 1) - 1))


@given(st.lists(st.tuples(st.sampled_from(["p=1", "p=12"]), numbers, numbers), max_size=6))
@example([("p=12", 0, 0), ("p=1", 10**5, 0)])
@example([("p=1", 10**17, 0), ("p=1", 10**16, 0), ("p=1", 0, 10**17), ("p=1", 0, 10**16)])
def test_part_files_are_read_as_they_are_numbered(files: list[tuple[str, int, int]]) -> None:
    paths = [layout.format_part_path(*file, ".tfrecord") for file in files]
    expected = [layout.format_part_path(*file, ".tfrecord") for file in sorted(files)]
    assert sorted(paths, key=layout.reading_order) == expected


def test_numbering_goes_on_after_every_writers_files() -> None:
    spark = "part-00007-2a5cf6e5-c000.tfrecord"
    assert layout.next_task_index([]) == 0
    assert layout.next_task_index(["part-00002-000.tfrecord", spark, "_SUCCESS", "x"]) == 8
    assert layout.next_task_index(["part-r-00009", "part-" + "9" * 30, "part-" + "9" * 19]) == 0
    assert layout.next_task_index(["part-3", "part-" + "0" * 19]) == 4
    assert layout.next_task_index(["part-" + "9" * 18]) == 10**18


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("part-0", True),
        ("_p=1", True),
        ("p=1", True),
        ("_SUCCESS", False),
        ("_temporary", False),
        (".part-0.crc", False),
        (".p=1", False),
        ("part-0._COPYING_", False),
        ("part-0._COPYING_.x", True),
    ],
)
def test_hidden_names(name: str, expected: bool) -> None:
    assert layout.is_data_name(name) is expected


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("/a/p=1/x", "/a", True),
        ("/a/p=1/x", "/a/", True),
        ("/a", "/", True),
        ("/a/_b/x", "/a", False),
        ("/a/p=1/_x", "/a", False),
        ("/_a/x", "/_a", True),
        ("/b/a/x", "a", False),
        ("/ab/x", "/a", False),
        ("/a", "/a", False),
    ],
)
def test_what_is_read_with_a_folder(path: str, folder: str, expected: bool) -> None:
    assert layout.is_read_with(path, folder) is expected
