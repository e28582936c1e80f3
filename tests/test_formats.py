"""Files of other formats against pyarrow, fastavro and protobuf: both ways, all types."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import gzip
import io
import json
import random
import re
import struct
import threading
import time
from collections.abc import Iterator
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from fastavro import _read, _read_common

from tests.support.frames import examples, records, sequence_example
from tests.support.trees import data_files, tree
from tfrecord_io import convert, read_table, write_table
from tfrecord_io.conversion.source import plan_source, read_piece
from tfrecord_io.errors import (
    CompressionError,
    CorruptDataError,
    EncodeError,
    InferenceError,
    MissingDependencyError,
    OptionError,
    SchemaMismatchError,
    TFRecordError,
    UnsupportedTypeError,
)
from tfrecord_io.filters import filter_batch
from tfrecord_io.formats import avro, base, get_format, json_lines, text, writing
from tfrecord_io.formats.base import InputFile, divided
from tfrecord_io.formats.detection import format_of_name
from tfrecord_io.formats.exact import exact_cast
from tfrecord_io.plan import WriteJob

UTC = dt.timezone.utc
DAY = dt.date(2026, 1, 2)
TIME = dt.time(3, 4, 5, 678901)
STAMP = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
SECOND = dt.datetime(2026, 1, 2, 3, 4, 5)

#: Name -> (type, value). All values are such that TFRecord's 64-bit ints and 32-bit floats hold.
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), True),
    "i8": (pa.int8(), -8),
    "i16": (pa.int16(), -16),
    "i32": (pa.int32(), -32),
    "i64": (pa.int64(), -(2**62)),
    "u8": (pa.uint8(), 200),
    "u16": (pa.uint16(), 60_000),
    "u32": (pa.uint32(), 2**32 - 1),
    "u64": (pa.uint64(), 2**63 - 1),
    "f16": (pa.float16(), 1.5),
    "f32": (pa.float32(), 0.5),
    "f64": (pa.float64(), 2.0),
    "s": (pa.string(), 'a"b,c\n\té\\'),
    "bin": (pa.binary(), b"\x00\xff"),
    "fixed": (pa.binary(3), b"\x00\xffx"),
    "dec": (pa.decimal128(10, 2), Decimal("1.50")),
    "big": (pa.decimal256(50, 2), Decimal("2.50")),
    "date": (pa.date32(), DAY),
    "date64": (pa.date64(), DAY),
    "t32s": (pa.time32("s"), dt.time(3, 4, 5)),
    "t32ms": (pa.time32("ms"), dt.time(3, 4, 5, 678000)),
    "t64us": (pa.time64("us"), TIME),
    "t64ns": (pa.time64("ns"), TIME),
    "ts": (pa.timestamp("s"), SECOND),
    "tms": (pa.timestamp("ms"), SECOND),
    "tus": (pa.timestamp("us"), STAMP),
    "tns": (pa.timestamp("ns"), STAMP),
    "tz": (pa.timestamp("us", "UTC"), STAMP.replace(tzinfo=UTC)),
    "dur": (pa.duration("us"), dt.timedelta(microseconds=5)),
    "null": (pa.null(), None),
    "li": (pa.list_(pa.int64()), [1, 2]),
    "lf": (pa.list_(pa.float32()), []),
    "ls": (pa.list_(pa.string()), ["x", "", 'y"']),
    "lb": (pa.list_(pa.binary()), [b"\xff", b""]),
    "fl": (pa.list_(pa.float32(), 2), [0.5, 1.5]),
    "ll": (pa.list_(pa.list_(pa.int64())), [[1, 2], [], [3]]),
}

LISTS = {"li", "lf", "ls", "lb", "fl", "ll"}
#: What each format cannot hold, from its own specification or its writer's.
CANNOT = {
    "parquet": set(),
    "arrow": set(),
    "orc": {"u8", "u16", "u32", "u64", "f16", "big", "t32s", "t32ms", "t64us", "t64ns", "dur"}
    | {"null"},
    "csv": LISTS | {"bin", "fixed"},
    "jsonl": set(),
    "avro": {"u64", "t64ns", "tns", "dur"},
}
FORMATS = list(CANNOT)

AVRO_CODECS = ["deflate", "snappy", "zstandard", "lz4", "xz", "bzip2"]


def table(fmt: str, *, leave_out: set[str] = frozenset()) -> pa.Table:
    """Three rows: values, nulls, values."""
    leave_out = CANNOT[fmt] | leave_out
    if fmt == "parquet" and pa.__version__.startswith("25."):
        leave_out |= {"fl"}  # pyarrow 25 writes nulls among them and does not read them back
    names = [name for name in VALUES if name not in leave_out]
    return pa.table(
        {
            name: pa.array([VALUES[name][1], None, VALUES[name][1]], VALUES[name][0])
            for name in names
        }
    )


def read_directly(path: Path, fmt: str) -> list[dict[str, Any]]:
    if fmt == "parquet":
        return pq.read_table(path).to_pylist()
    if fmt == "orc":
        return po.read_table(path).to_pylist()
    if fmt == "arrow":
        with pa.ipc.open_file(path) as reader:
            return reader.read_all().to_pylist()
    if fmt == "avro":
        with path.open("rb") as file:
            return list(fastavro.reader(file))
    if fmt == "jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def as_text(name: str, value: Any, fmt: str) -> Any:
    """What Python's own csv and json readers should see."""
    if value is None:
        return "" if fmt == "csv" else None
    if fmt == "jsonl" and name in ("bin", "fixed"):
        return {"bin": "AP8=", "fixed": "AP94"}[name]
    if name == "lb":
        return ["/w==", ""]
    if name == "dur":
        return 5 if fmt == "jsonl" else "5"
    if name in ("dec", "big"):
        return float(value) if fmt == "jsonl" else str(value)
    if isinstance(value, dt.date | dt.time):
        return TEXTS[name] if fmt == "csv" else TEXTS[name].replace(" ", "T")
    if fmt == "csv":
        return {True: "true"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    return value


TEXTS = {
    "date": "2026-01-02",
    "date64": "2026-01-02",
    "t32s": "03:04:05",
    "t32ms": "03:04:05.678",
    "t64us": "03:04:05.678901",
    "t64ns": "03:04:05.678901000",
    "ts": "2026-01-02 03:04:05",
    "tms": "2026-01-02 03:04:05.000",
    "tus": "2026-01-02 03:04:05.678901",
    "tns": "2026-01-02 03:04:05.678901000",
    "tz": "2026-01-02 03:04:05.678901Z",
}


def hold_damage_to_our_errors(path: Path, fmt: str, count: int = 50) -> None:
    """Flip, cut out and cut off bytes of a file: it is read, or refused with an error of ours."""
    data = path.read_bytes()
    for seed in range(count):
        drawn = random.Random(seed)
        at = drawn.randrange(len(data))
        damaged = [
            data[:at] + drawn.randbytes(1) + data[at + 1 :],
            data[:at] + data[at + drawn.randrange(1, 20) :],
            data[:at],
        ][seed % 3]
        path.write_bytes(damaged)
        try:
            for _ in read_source(path, fmt):
                pass
        except TFRecordError as error:
            assert error.path == str(path), seed
            assert error.what[-2:] != ": ", seed
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def read_source(path: Path, fmt: str) -> Iterator[Any]:
    plan = plan_source(
        path,
        file_format=fmt,
        columns=None,
        schema=None,
        filters=None,
        record_type="Example",
        on_corrupt="raise",
        storage_options=None,
    )
    for piece in plan.pieces:
        yield from read_piece(plan, piece)


@pytest.mark.parametrize("fmt", FORMATS)
def test_from_tfrecord(tmp_path: Path, fmt: str) -> None:
    source = table(fmt)
    write_table(source, tmp_path / "ds", record_type="SequenceExample", float64="error")
    path = tmp_path / f"x.{fmt}"
    result = convert(tmp_path / "ds", path, record_type="SequenceExample")
    assert (result.files, result.rows, result.bytes) == (1, 3, path.stat().st_size)
    assert (result.from_format, result.to_format) == ("tfrecord", fmt)
    expected = source.to_pylist()
    if fmt in ("csv", "jsonl"):
        expected = [{k: as_text(k, v, fmt) for k, v in row.items()} for row in expected]
    found = read_directly(path, fmt)
    if fmt == "orc":  # whose timestamps are all of nanoseconds
        stamps = ("ts", "tms", "tus", "tns", "tz")
        assert [str(found[0][k])[:26] for k in stamps] == [str(expected[0][k])[:26] for k in stamps]
        for row in (*found, *expected):
            for k in stamps:
                del row[k]
    assert found == expected
    if fmt in ("parquet", "arrow"):
        schema = pq.read_schema(path) if fmt == "parquet" else pa.ipc.open_file(path).schema
        kept = {pa.date64(): pa.date32(), pa.time32("s"): pa.time32("ms")}
        kept |= {pa.timestamp("s"): pa.timestamp("ms")}
        types = source.schema.types
        assert schema.types == [kept.get(t, t) if fmt == "parquet" else t for t in types]


def write_directly(data: pa.Table, path: Path, fmt: str) -> None:
    if fmt == "parquet":
        pq.write_table(data, path)
    elif fmt == "orc":
        po.write_table(data, path)
    elif fmt in ("arrow", "arrows"):
        make = pa.ipc.new_file if fmt == "arrow" else pa.ipc.new_stream
        with make(path, data.schema) as writer:
            writer.write_table(data)
    elif fmt == "csv":
        pcsv.write_csv(data, path)


def wire(value: Any, name: str) -> Any:
    """What TFRecord's specification in this project makes of a value."""
    t = VALUES[name][0]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return float(value)
    if value is not None and (pa.types.is_temporal(t)):
        return pa.scalar(value, t).cast(pa.int64() if t.bit_width == 64 else pa.int32()).as_py()
    return value


def all_equal(path: Path, expected: bytes) -> None:
    assert list(data_files(path).values()) == [expected]


@pytest.mark.parametrize("fmt", ["parquet", "orc", "arrow"])
def test_to_tfrecord(tmp_path: Path, fmt: str) -> None:
    # ORC has one timestamp, of nanoseconds, and no second day type.
    leave_out = {"lf", "ll"} | ({"ts", "tms", "tus", "tz", "date64"} if fmt == "orc" else set())
    if fmt == "parquet":
        leave_out |= {"ts", "t32s", "date64"}  # kept as milliseconds and as days
    source = table(fmt, leave_out=leave_out)
    write_directly(source, tmp_path / f"x.{fmt}", fmt)
    convert(tmp_path / f"x.{fmt}", tmp_path / "ds")
    rows = [{k: wire(v, k) for k, v in row.items()} for row in source.to_pylist()]
    all_equal(tmp_path / "ds", examples(*rows))


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "jsonl"])
def test_lists_of_lists_are_feature_lists(tmp_path: Path, fmt: str) -> None:
    data = pa.table({"i": [1, 2], "l": [[[1, 2], [3]], [[]]]})
    path = tmp_path / f"x.{fmt}"
    if fmt == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in data.to_pylist()))
    else:
        write_directly(data, path, fmt)
    with pytest.raises(UnsupportedTypeError, match="'l'"):
        convert(path, tmp_path / "ds")
    convert(path, tmp_path / "ds", record_type="SequenceExample")
    found = b"".join(data_files(tmp_path / "ds").values())
    first = records(sequence_example({"i": 1}, {"l": [[1, 2], [3]]}))
    assert found.startswith(first)


def test_tfrecord_through_every_format_and_back(tmp_path: Path) -> None:
    """With the schema given where a format keeps no types, everything comes back."""
    for fmt in FORMATS:
        source = table(fmt, leave_out={"null"} if fmt == "csv" else set())
        write_table(source, tmp_path / fmt / "ds", record_type="SequenceExample")
        path = tmp_path / fmt / f"x.{fmt}"
        convert(tmp_path / fmt / "ds", path, record_type="SequenceExample")
        convert(path, tmp_path / fmt / "back", record_type="SequenceExample", schema=source.schema)
        assert tree(tmp_path / fmt / "back") == tree(tmp_path / fmt / "ds"), fmt


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_a_format_cannot_hold_is_refused_by_name(tmp_path: Path, fmt: str) -> None:
    for name in CANNOT[fmt]:
        t, value = VALUES[name]
        data = pa.table({"ok": [1], name: pa.array([value], t)})
        write_table(data, tmp_path / fmt / name, record_type="SequenceExample", mode="overwrite")
        before = tree(tmp_path)
        with pytest.raises(UnsupportedTypeError, match=f"'{name}'") as caught:
            convert(
                tmp_path / fmt / name, tmp_path / f"{name}.{fmt}", record_type="SequenceExample"
            )
        assert caught.value.feature == name
        assert tree(tmp_path) == before


@pytest.mark.parametrize("fmt", FORMATS)
def test_partitioned_folders(tmp_path: Path, fmt: str) -> None:
    data = pa.table({"v": [1, 2, 3, 4], "p": ["a/b", None, "a/b", "c"], "q": [1, 1, 1, 2]})
    write_table(data, tmp_path / "ds")
    convert(tmp_path / "ds", tmp_path / "out", to_format=fmt, partition_by=["p", "q"])
    found = {
        path: read_directly(tmp_path / "out" / path, fmt) for path in data_files(tmp_path / "out")
    }
    ending = ".jsonl" if fmt == "jsonl" else f".{fmt}"
    values = {path: [int(row["v"]) for row in rows] for path, rows in found.items()}
    assert values == {
        f"p=__HIVE_DEFAULT_PARTITION__/q=1/part-00000-000{ending}": [2],
        f"p=a%2Fb/q=1/part-00000-000{ending}": [1, 3],
        f"p=c/q=2/part-00000-000{ending}": [4],
    }
    assert all("p" not in row and "q" not in row for rows in found.values() for row in rows)
    manifest = json.loads((tmp_path / "out/_SUCCESS").read_text())
    assert manifest["file_format"] == fmt
    assert manifest["partition_columns"] == [
        {"name": "p", "type": "string"},
        {"name": "q", "type": "int64"},
    ]
    convert(tmp_path / "out", tmp_path / "back")
    rows = read_table(tmp_path / "back").to_pylist()
    assert sorted(rows, key=lambda row: row["v"]) == data.to_pylist()


def test_partitions_of_another_writer(tmp_path: Path) -> None:
    data = pa.table({"v": [1, 2, 3], "p": ["a b", "c", None]})
    pq.write_to_dataset(data, tmp_path / "in", partition_cols=["p"])
    convert(tmp_path / "in", tmp_path / "ds", filters=[("p", "!=", "c")])
    assert read_table(tmp_path / "ds").to_pylist() == [{"v": 1, "p": "a b"}]
    convert(tmp_path / "in", tmp_path / "all", columns=["p", "v"])
    rows = read_table(tmp_path / "all").to_pylist()
    assert sorted(rows, key=lambda row: row["v"]) == [
        {"p": "a b", "v": 1},
        {"p": "c", "v": 2},
        {"p": None, "v": 3},
    ]


@pytest.mark.parametrize("fmt", FORMATS)
def test_files_without_rows(tmp_path: Path, fmt: str) -> None:
    write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "ds")
    path = tmp_path / f"x.{fmt}"
    result = convert(tmp_path / "ds", path)
    assert (result.files, result.rows) == (1, 0)
    assert read_directly(path, fmt) == []
    if fmt != "jsonl":  # which keeps no columns
        convert(path, tmp_path / "back", schema=pa.schema([("a", pa.int64())]))
        assert tree(tmp_path / "back") == tree(tmp_path / "ds")


class TestDivision:
    def test_row_groups_are_pieces_of_a_size(self) -> None:
        pieces = divided([100, 100, 100], 90, [1, 2, 3])
        assert [(p.start, p.end, p.row, p.bytes) for p in pieces] == [(0, 3, 0, 90)]

    def test_pieces_cover_everything_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tfrecord_io.formats.base.PIECE_BYTES", 100)
        pieces = divided([60, 60, 30, 10, 200, 1], 36, [5, 6, 7, 8, 9, 10])
        assert [(p.start, p.end, p.row) for p in pieces] == [
            (0, 1, 0),
            (1, 4, 5),
            (4, 5, 26),
            (5, 6, 35),
        ]
        assert sum(p.bytes for p in pieces) == 36

    @pytest.mark.parametrize("fmt", ["parquet", "orc", "arrow"])
    def test_a_divided_file_becomes_several_part_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str
    ) -> None:
        monkeypatch.setattr("tfrecord_io.formats.base.PIECE_BYTES", 1)
        data = pa.table({"a": pa.array(range(100_000), pa.int64())})
        path = tmp_path / f"x.{fmt}"
        if fmt == "orc":
            po.write_table(data, path, stripe_size=100_000, compression="uncompressed")
        elif fmt == "parquet":
            pq.write_table(data, path, row_group_size=30_000)
        else:
            with pa.ipc.new_file(path, data.schema) as writer:
                writer.write_table(data, max_chunksize=30_000)
        result = convert(path, tmp_path / "ds")
        assert result.files > 1
        assert read_table(tmp_path / "ds").equals(data)


class TestGroups:
    """Row groups depend on rows alone."""

    def job(self, fmt: str, schema: pa.Schema) -> WriteJob:
        return WriteJob(
            url="",
            job_id="",
            mode="error",
            skip=False,
            first_task_index=0,
            schema=schema,
            partition_by=(),
            file_format=fmt,
            record_type="Example",
            compression=None,
            compression_level=None,
            max_records_per_file=None,
            float64="warn",
            codec="auto",
            empty_partition="error",
        )

    class Sink:
        def __init__(self) -> None:
            self.data = b""
            self.size = 0
            self.buffered = 0

        def write(self, data: Any) -> None:
            self.data += bytes(data)
            self.size = len(self.data)

        def spill(self) -> None:
            pass

        def close(self) -> None:
            pass

    @pytest.mark.parametrize("fmt", FORMATS)
    @pytest.mark.parametrize("group_rows", [8, 40])
    def test_bytes_do_not_depend_on_batches(
        self, fmt: str, monkeypatch: pytest.MonkeyPatch, group_rows: int
    ) -> None:
        # Most groups end by their rows, or by their bytes.
        monkeypatch.setattr(writing, "_GROUP_ROWS", group_rows)
        monkeypatch.setattr(writing, "_GROUP_BYTES", 3_000)
        rows = table(fmt).to_pylist() * 60
        for index, row in enumerate(rows):
            row["s"] = "x" * (index * 7 % 300)
        data = pa.Table.from_pylist(rows, schema=table(fmt).schema)
        outputs = set()
        for size in (1, 7, 1000):
            made = writing.OtherFormat(self.job(fmt, data.schema))
            sink = self.Sink()
            writer = made.open(sink)
            for batch in data.to_batches(max_chunksize=size):
                writer.write(made.prepare(batch, 0)[0])
            assert writer.close().rows == 180
            outputs.add(sink.data)
        assert len(outputs) == 1
        if fmt == "parquet":
            metadata = pq.ParquetFile(pa.BufferReader(outputs.pop())).metadata
            most = max(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))
            assert most == 8 if group_rows == 8 else most < 40

    def test_a_group_ends_by_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "_GROUP_BYTES", 1_000)
        data = pa.table({"s": ["x" * 300] * 10, "l": [[1, 2]] * 10})  # 316 bytes a row
        made = writing.OtherFormat(self.job("parquet", data.schema))
        sink = self.Sink()
        writer = made.open(sink)
        for batch in data.to_batches():
            writer.write(made.prepare(batch, 0)[0])
        writer.close()
        metadata = pq.ParquetFile(pa.BufferReader(sink.data)).metadata
        assert [metadata.row_group(n).num_rows for n in range(3)] == [4, 4, 2]

    def test_other_dresses_are_the_same_file(self) -> None:
        plain = pa.table({"s": ["a", "b"], "l": [["x"], None], "t": [[1, 2], [3]]})
        dressed = pa.table(
            {
                "s": plain["s"].dictionary_encode(),
                "l": plain["l"].cast(pa.large_list(pa.large_string())),
                "t": pa.array([[1, 2], [3]], pa.list_view(pa.int64())),
            }
        )
        found = []
        for data in (plain, dressed):
            made = writing.OtherFormat(self.job("parquet", plain.schema))
            sink = self.Sink()
            writer = made.open(sink)
            writer.write(made.prepare(data.combine_chunks().to_batches()[0], 0)[0])
            writer.close()
            found.append(sink.data)
        assert found[0] == found[1]

    def test_a_null_where_none_may_be(self) -> None:
        schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
        made = writing.OtherFormat(self.job("parquet", schema))
        batch = pa.record_batch({"a": pa.array([1, None, 3])})
        with pytest.raises(EncodeError, match="'a'") as caught:
            made.prepare(batch, 10)
        assert caught.value.row == 11


class TestSchemas:
    """Values are cast exactly, or refused with file, column and row."""

    @pytest.mark.parametrize("fmt", ["csv", "jsonl", "parquet", "arrow", "orc", "avro"])
    def test_a_null_where_none_may_be(self, tmp_path: Path, fmt: str) -> None:
        path = tmp_path / f"x.{fmt}"
        table = pa.table({"x": [1, None, 3], "y": [1, 2, 3]})
        write_directly(table, tmp_path / "in.arrow", "arrow")
        convert(tmp_path / "in.arrow", path)
        schema = pa.schema([("y", pa.int64()), pa.field("x", pa.int64(), nullable=False)])
        with pytest.raises(SchemaMismatchError, match="'x' has a null, and the schema") as caught:
            convert(path, tmp_path / "ds", schema=schema)
        error = caught.value
        assert (error.path, error.feature, error.row) == (str(path), "x", 1)
        assert not (tmp_path / "ds").exists()

    def test_a_piece_whose_rows_before_nobody_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(base, "PIECE_BYTES", 1)
        path = tmp_path / "x.arrow"
        table = pa.concat_tables([pa.table({"x": pa.array([n], pa.int64())}) for n in (1, 2, None)])
        write_directly(table, path, "arrow")
        schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
        with pytest.raises(SchemaMismatchError, match="'x' has a null, and the schema") as caught:
            convert(path, tmp_path / "ds", schema=schema)
        error = caught.value
        assert (error.path, error.feature, error.row) == (str(path), "x", None)

    @pytest.mark.parametrize("fmt", ["csv", "jsonl", "parquet", "arrow", "orc", "avro"])
    def test_columns_that_some_files_lack_are_null_there(self, tmp_path: Path, fmt: str) -> None:
        tables = [pa.table({"a": [1], "b": ["x"]}), pa.table({"b": ["y", "z"], "c": [2, 3]})]
        for number, table in enumerate(tables):
            write_directly(table, tmp_path / f"{number}.arrow", "arrow")
            convert(tmp_path / f"{number}.arrow", tmp_path / f"in/{number}.{fmt}")
        convert(tmp_path / "in", tmp_path / "ds")
        expected = pa.concat_tables(tables, promote_options="default")
        assert read_table(tmp_path / "ds").equals(expected)

    @pytest.mark.parametrize("fmt", ["parquet", "arrow"])
    def test_types_that_others_define(self, tmp_path: Path, fmt: str) -> None:
        flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
        days = pa.ExtensionArray.from_storage(
            pa.opaque(pa.date32(), "day", "others"), pa.array([0, None], pa.date32())
        )
        path = tmp_path / f"x.{fmt}"
        write_directly(pa.table({"x": flags, "day": days}), path, fmt)
        convert(path, tmp_path / "ds", schema=pa.schema([("x", pa.bool_()), ("day", pa.date32())]))
        assert read_table(tmp_path / "ds").to_pydict() == {
            "x": [True, False],
            "day": [dt.date(1970, 1, 1), None],
        }

    def refuse(self, tmp_path: Path, path: Path, t: pa.DataType, row: int) -> None:
        with pytest.raises(SchemaMismatchError, match="give the column another type") as caught:
            convert(path, tmp_path / "out.parquet", schema=pa.schema([("x", t)]), mode="overwrite")
        error = caught.value
        assert (error.path, error.feature, error.row) == (str(path), "x", row)
        assert not (tmp_path / "out.parquet").exists()

    @pytest.mark.parametrize(
        ("values", "t"),
        [
            (pa.array([0.5, 1e300]), pa.float32()),
            (pa.array([0.5, 1e-300]), pa.float32()),
            (pa.array([0.5, 0.1]), pa.float32()),
            (pa.array([0.5, 1e300]), pa.float16()),
            (pa.array([0.5, 1e5], pa.float32()), pa.float16()),
            (pa.array([2048, 2049]), pa.float16()),
            (pa.array([[0.5], [0.5, 1e300]]), pa.list_(pa.float32())),
            (pa.array([1, 2]), pa.bool_()),
            (pa.array([1, -1], pa.int8()), pa.bool_()),
            (pa.array([None, 0.5]), pa.bool_()),
            (pa.array([1.0, float("nan")]), pa.bool_()),
            (pa.array([0.5, 0.125]), pa.decimal128(10, 2)),
            (pa.array([Decimal("0.50"), Decimal("12345678.91")]), pa.float32()),
            (pa.array([dt.datetime(2026, 1, 2), SECOND]), pa.date32()),
            (pa.array([dt.datetime(2026, 1, 2), SECOND]), pa.date64()),
            (pa.array([None, SECOND]), pa.time64("us")),
            (pa.array([0, -1]), pa.time64("us")),
            (pa.array([86_400_000, 86_400_001]), pa.date64()),
            (pa.array(["0.1", "1e300"]), pa.float32()),
            (pa.array(["inf", "1e400"]), pa.float64()),
            (pa.array(["0", "1e-50"]), pa.float32()),
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, values: pa.Array, t: pa.DataType) -> None:
        pq.write_table(pa.table({"x": values}), tmp_path / "in.parquet")
        self.refuse(tmp_path, tmp_path / "in.parquet", t, 1)

    @pytest.mark.parametrize(
        ("value", "t"),
        [
            (SECOND, pa.int64()),
            (dt.timedelta(seconds=1), pa.int64()),
            (dt.timedelta(seconds=1), pa.string()),
            (dt.time(1), pa.int64()),
            (DAY, pa.int32()),
        ],
    )
    def test_times_without_their_unit(self, tmp_path: Path, value: Any, t: pa.DataType) -> None:
        """Other files of the same table may have another."""
        pq.write_table(pa.table({"x": [value]}), tmp_path / "in.parquet")
        self.refuse(tmp_path, tmp_path / "in.parquet", t, 0)

    @pytest.mark.parametrize(
        ("values", "t", "expected"),
        [
            ([0.5, None, float("inf")], pa.float32(), [0.5, None, float("inf")]),
            ([1, 0, None], pa.bool_(), [True, False, None]),
            ([0.0, 1.0], pa.bool_(), [False, True]),
            ([2048, -7], pa.float16(), [2048.0, -7.0]),
            ([[0.5, 1.5], None, []], pa.list_(pa.float32()), [[0.5, 1.5], None, []]),
            ([0.1, 6.3], pa.decimal128(10, 2), [Decimal("0.10"), Decimal("6.30")]),
            # pyarrow's own cast gives 6.300000000000001.
            ([Decimal("6.3"), None], pa.float64(), [6.3, None]),
            ([[Decimal("6.3")]], pa.list_(pa.float64()), [[6.3]]),
            ([dt.datetime(2026, 1, 2), None], pa.date32(), [DAY, None]),
            (["0.1", "inf", None, "-0.0"], pa.float64(), [0.1, float("inf"), None, -0.0]),
        ],
    )
    def test_what_fits(
        self, tmp_path: Path, values: list[Any], t: pa.DataType, expected: list[Any]
    ) -> None:
        with pa.ipc.new_file(tmp_path / "x.arrow", pa.schema([("x", pa.array(values).type)])) as f:
            f.write(pa.record_batch({"x": values}))
        convert(tmp_path / "x.arrow", tmp_path / "y.arrow", schema=pa.schema([("x", t)]))
        with pa.ipc.open_file(tmp_path / "y.arrow") as reader:
            assert reader.read_all().to_pylist() == [{"x": value} for value in expected]

    def test_nan_stays(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"x": [float("nan")]}), tmp_path / "x.parquet")
        convert(tmp_path / "x.parquet", tmp_path / "ds", schema=pa.schema([("x", pa.float32())]))
        all_equal(tmp_path / "ds", examples({"x": float("nan")}))

    def test_list_views(self, tmp_path: Path) -> None:
        views = pa.ListViewArray.from_arrays([2, 0, 0], [1, 2, 0], [0.5, 1.5, 2.5])
        with pa.ipc.new_file(tmp_path / "x.arrow", pa.schema([("x", views.type)])) as file:
            file.write(pa.record_batch({"x": views}))
        schema = pa.schema([("x", pa.list_(pa.float32()))])
        convert(tmp_path / "x.arrow", tmp_path / "y.parquet", schema=schema)
        found = pq.read_table(tmp_path / "y.parquet")["x"].to_pylist()
        assert found == [[2.5], [0.5, 1.5], []]

    @pytest.mark.parametrize(
        ("t", "bad"),
        [
            (pa.float16(), "70000"),
            (pa.float32(), "1e300"),
            (pa.float32(), "-1e-50"),
            (pa.float16(), "1e-10"),
            (pa.float64(), "1e400"),
        ],
    )
    def test_numbers_in_texts_beyond_the_range(
        self, tmp_path: Path, t: pa.DataType, bad: str
    ) -> None:
        (tmp_path / "in.csv").write_text(f"x\n0.5\n 0e5\t\n{bad}\n")
        self.refuse(tmp_path, tmp_path / "in.csv", t, 2)
        (tmp_path / "in.jsonl").write_text(f'{{"x": 0.5}}\n{{"x": 0e5}}\n{{"x": {bad}}}\n')
        if bad == "1e400":  # for pyarrow no JSON
            with pytest.raises(CorruptDataError, match="too big"):
                convert(tmp_path / "in.jsonl", tmp_path / "ds", schema=pa.schema([("x", t)]))
        else:
            self.refuse(tmp_path, tmp_path / "in.jsonl", t, 2)
            (tmp_path / "in.jsonl").write_text(f'{{"x": []}}\n{{"x": [0.5, {bad}]}}\n')
            self.refuse(tmp_path, tmp_path / "in.jsonl", pa.list_(t), 1)

    def test_an_inferred_number_beyond_the_range(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("x\n0.5\n1e400\n")
        with pytest.raises(SchemaMismatchError, match="1e400 would become inf") as caught:
            convert(tmp_path / "x.csv", tmp_path / "ds")
        assert caught.value.row == 1

    @pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.jsonl.gz"])
    @pytest.mark.parametrize("is_given", [False, True])
    def test_whole_numbers_that_are_no_float(
        self, tmp_path: Path, name: str, is_given: bool
    ) -> None:
        """A float among identifiers, or one beyond int64, makes pyarrow infer doubles."""
        schema = pa.schema({"x": pa.float64()}) if is_given else None

        def converted(*texts: str) -> pa.Table:
            line = "{}\n".format if name == "x.csv" else (lambda text: f'{{"x": {text}}}\n')
            text = ("x\n" if name == "x.csv" else "") + "".join(map(line, texts))
            data = text.encode()
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
            convert(tmp_path / name, tmp_path / "y.parquet", schema=schema, mode="overwrite")
            return pq.read_table(tmp_path / "y.parquet")

        for bad in ("9007199254740993", "-9007199254740993", "18446744073709551615", "1" * 300):
            with pytest.raises(SchemaMismatchError, match=f"'x'.* {bad}") as caught:
                converted("0.5", "null" if "json" in name else "", "9007199254740992", bad)
            assert caught.value.row in (3, None)
        # Those that floats are, and numbers with a point, which are the nearest.
        texts = ["0.5", "-9007199254740994", "18446744073709551616", "9007199254740993.0", "3e300"]
        expected = [0.5, -9007199254740994.0, 2.0**64, 9007199254740992.0, 3e300]
        assert converted(*texts).to_pydict() == {"x": expected}

    def test_whole_numbers_that_are_no_float_in_lists(self, tmp_path: Path) -> None:
        text = json.dumps({"s": '"l": [9007199254740993]', "i": 9007199254740993, "l": [1e300]})
        (tmp_path / "x.jsonl").write_text(text)
        convert(tmp_path / "x.jsonl", tmp_path / "y.parquet")
        (tmp_path / "x.jsonl").write_text(text.replace("1e+300", "1e+300, 9007199254740993"))
        with pytest.raises(SchemaMismatchError, match="'l' holds 9007199254740993"):
            convert(tmp_path / "x.jsonl", tmp_path / "no.parquet")

    @pytest.mark.parametrize("is_list", [False, True])
    @pytest.mark.parametrize("is_given", [False, True])
    def test_numbers_that_would_be_zero(
        self, tmp_path: Path, is_given: bool, is_list: bool
    ) -> None:
        t = pa.list_(pa.float64()) if is_list else pa.float64()
        schema = pa.schema({"x": t, "t": pa.string()}) if is_given else None

        def converted(*texts: str) -> list[Any]:
            lines = (f'{{"x": {f"[1.5, {x}]" if is_list else x}, "t": "1e-400"}}\n' for x in texts)
            (tmp_path / "x.jsonl").write_text("".join(lines))
            convert(tmp_path / "x.jsonl", tmp_path / "y.parquet", schema=schema, mode="overwrite")
            values = pq.read_table(tmp_path / "y.parquet")["x"].to_pylist()
            return [value[1] for value in values] if is_list else values

        long = f"0.{'0' * 400}1"
        for bad in ("1e-400", "-2E-324", "0.01e-0323", long):
            with pytest.raises(SchemaMismatchError, match=f"'x' holds {bad[:99]}.* from zero"):
                converted("0.5", "null", bad)
        # Zeros, and numbers that a double tells from it.
        texts = ["0.5", "0", "0.0", "0e-400", f"0.{'0' * 400}", "3e-324", f"{long}e400"]
        assert converted(*texts) == [0.5, 0.0, 0.0, 0.0, 0.0, 5e-324, 0.1]

    @pytest.mark.parametrize("zones", [(None, "UTC"), ("UTC", None)])
    @pytest.mark.parametrize("is_list", [False, True])
    def test_times_with_and_without_a_zone(
        self, tmp_path: Path, zones: tuple[Any, Any], is_list: bool
    ) -> None:
        source, target = (pa.timestamp("us", zone) for zone in zones)
        values = pa.array([0, None, 1, 2]).cast(source)
        if is_list:
            source, target = pa.list_(source), pa.list_(target)
            values = pa.ListArray.from_arrays([0, 0, 1, 2, 4], values)
        pq.write_table(pa.table({"x": values}), tmp_path / "in.parquet")
        self.refuse(tmp_path, tmp_path / "in.parquet", target, 1 if is_list else 0)

    @pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
    def test_numbers_in_texts_become_the_nearest_float(self, tmp_path: Path, name: str) -> None:
        # The double nearest to the last one is halfway between two floats, whose even one is
        # farther from what is written here.
        texts = ["0.1", "16777217", "1e-45", "7.038531e-26"]
        line = (lambda text: f'{{"x": {text}}}\n') if name == "x.jsonl" else "{}\n".format
        head = "x\n" if name == "x.csv" else ""
        (tmp_path / name).write_text(head + "".join(map(line, texts)))
        convert(tmp_path / name, tmp_path / "ds", schema=pa.schema([("x", pa.float32())]))
        expected = [
            struct.unpack("<f", struct.pack("<I", bits))[0]
            for bits in (0x3DCCCCCD, 0x4B800000, 0x00000001, 0x15AE43FD)
        ]
        all_equal(tmp_path / "ds", examples(*({"x": value} for value in expected)))


class TestCsv:
    def test_types_and_nulls_as_pyarrow_infers_them(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text('i,f,s,d\n1,0.5,a,2026-01-02\n,,"",\n3,1,NA,2026-01-03\n')
        convert(tmp_path / "x.csv", tmp_path / "ds")
        days = [(DAY - dt.date(1970, 1, 1)).days, None, (DAY - dt.date(1970, 1, 1)).days + 1]
        all_equal(
            tmp_path / "ds",
            examples(
                {"i": 1, "f": 0.5, "s": "a", "d": days[0]},
                {"s": ""},
                {"i": 3, "f": 1.0, "s": "NA", "d": days[2]},
            ),
        )

    def test_a_later_block_does_not_change_types(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(text, "_BLOCK_BYTES", 64)
        path = tmp_path / "x.csv"
        path.write_text("a,b\n" + "1,x\n" * 50 + "0.5,x\n")
        with pytest.raises(SchemaMismatchError, match=r"0\.5.*in the schema") as caught:
            convert(path, tmp_path / "ds")
        assert (caught.value.path, caught.value.row) == (str(path), 50)
        assert not (tmp_path / "ds").exists()
        convert(path, tmp_path / "ds", schema=pa.schema([("a", pa.float32())]))
        assert read_table(tmp_path / "ds")["a"].to_pylist() == [1.0] * 50 + [0.5]

    def test_names_take_no_whole_block(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parsed = []

        def opened(stream: Any, read_options: pcsv.ReadOptions, **how: Any) -> Any:
            parsed.append(read_options.block_size)
            return open_csv(stream, read_options=read_options, **how)

        open_csv = pcsv.open_csv
        monkeypatch.setattr(pcsv, "open_csv", opened)
        (tmp_path / "x.csv").write_text("a,b\n" + "1,x\n" * 50_000)
        convert(tmp_path / "x.csv", tmp_path / "ds")
        few, whole = text._NAMES_BYTES, text._BLOCK_BYTES
        assert parsed == [few, whole] * 2

    def test_names_longer_than_that(self, tmp_path: Path) -> None:
        long = "b" * text._NAMES_BYTES
        for values in ("1,2\n", f"1,{long}\n"):
            (tmp_path / "x.csv").write_text(f"a,{long}\n{values}")
            convert(tmp_path / "x.csv", tmp_path / "ds", mode="overwrite")
            assert read_table(tmp_path / "ds").column_names == ["a", long]

    def test_ragged_lines(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n")
        with pytest.raises(CorruptDataError, match="Expected 2 columns") as caught:
            convert(tmp_path / "x.csv", tmp_path / "ds")
        assert caught.value.row == 1

    @pytest.mark.parametrize(
        ("name", "text"), [("x.csv", "a;b\n1,5;2\n"), ("x.tsv", "a,b\n1\t5\n")]
    )
    def test_another_delimiter(self, tmp_path: Path, name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        with pytest.raises(CorruptDataError, match=r"one column.*commas.*tabs.*open_csv") as caught:
            convert(tmp_path / name, tmp_path / "ds")
        assert caught.value.row == 0

    def test_nulls_of_a_single_column(self, tmp_path: Path) -> None:
        write_table(pa.table({"a": pa.array([1, None, 3])}), tmp_path / "ds")
        convert(tmp_path / "ds", tmp_path / "x.csv")
        convert(tmp_path / "x.csv", tmp_path / "back")
        assert tree(tmp_path / "back") == tree(tmp_path / "ds")

    @pytest.mark.parametrize("head", ["\n", "\r\n\n", "\ufeff\n"])
    @pytest.mark.parametrize("names", ["a", "a,b"])
    def test_empty_lines_before_the_header(self, tmp_path: Path, head: str, names: str) -> None:
        # In a file of one column an empty line is a row, but only behind the names.
        row = names.replace("a", "1").replace("b", "2")
        (tmp_path / "x.csv").write_text(f"{head}{names}\n{row}\n")
        expected = [{"a": 1, "b": 2} if "b" in names else {"a": 1}]
        schema = pa.schema([(name, pa.int64()) for name in names.split(",")])
        for number, given in enumerate((None, schema)):
            convert(tmp_path / "x.csv", tmp_path / f"{number}", schema=given)
            assert read_table(tmp_path / f"{number}").to_pylist() == expected
        (tmp_path / "x.csv").write_text(f"{head}{names}\n{row}\n1,2,3\n")
        with pytest.raises(CorruptDataError) as caught:
            convert(tmp_path / "x.csv", tmp_path / "ds")
        assert caught.value.row == 1

    def test_tabs_and_compression(self, tmp_path: Path) -> None:
        write_table(pa.table({"a": [1.0, 2.0], "b": ["x\ty", "z"]}), tmp_path / "ds")
        convert(tmp_path / "ds", tmp_path / "x.tsv.gz")
        found = gzip.decompress((tmp_path / "x.tsv.gz").read_bytes())
        assert found == b'"a"\t"b"\n1.0\t"x\ty"\n2.0\t"z"\n'
        convert(tmp_path / "x.tsv.gz", tmp_path / "back")
        assert data_files(tmp_path / "back") == data_files(tmp_path / "ds")

    @pytest.mark.parametrize("t", [pa.float16(), pa.float32(), pa.float64()])
    def test_non_finite_numbers_are_the_words_of_spark(self, tmp_path: Path, t: Any) -> None:
        # Spark writes them so, and makes nulls of "nan" and "inf".
        values = [float("nan"), -float("nan"), float("inf"), float("-inf"), 0.5, None]
        table = pa.table({"x": pa.array(values, pa.float64()).cast(t)})
        with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as file:
            file.write_table(table)
        convert(tmp_path / "x.arrow", tmp_path / "x.csv")
        words = ["NaN", "NaN", "Infinity", "-Infinity", "0.5", ""]
        assert (tmp_path / "x.csv").read_text().splitlines() == ['"x"', *words]
        convert(tmp_path / "x.csv", tmp_path / "back.arrow")
        with pa.ipc.open_file(tmp_path / "back.arrow") as reader:
            found = reader.read_all()["x"].to_pylist()
        assert str(found) == "[nan, nan, inf, -inf, 0.5, None]"

    @pytest.mark.parametrize("value", [-5.0, -0.0, 0.0, 2.0**24, -(2.0**70)])
    def test_whole_floats_stay_floats(self, tmp_path: Path, value: float) -> None:
        write_table(pa.table({"x": [value]}), tmp_path / "ds")
        convert(tmp_path / "ds", tmp_path / "x.csv")
        found = pcsv.read_csv(tmp_path / "x.csv")["x"]
        assert found.type == pa.float64()
        assert str(found.to_pylist()) == f"[{np.float32(value).item()}]"

    @pytest.mark.parametrize("names", ["a,b", "a,b,c"])
    def test_empty_lines_between_rows(self, tmp_path: Path, names: str) -> None:
        count = names.count(",") + 1
        rows = [",".join(f"{row}{column}" for column in range(count)) for row in range(1, 4)]
        lines = [names, "", rows[0], rows[1], "", "", rows[2], ""]
        (tmp_path / "x.csv").write_text("\n".join(lines))
        convert(tmp_path / "x.csv", tmp_path / "ds")
        expected = csv.DictReader([names, *rows])
        found = read_table(tmp_path / "ds").to_pylist()
        assert [{name: str(value) for name, value in row.items()} for row in found] == [*expected]

    def test_lists_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("a\n1\n")
        with pytest.raises(UnsupportedTypeError, match="'a'"):
            convert(
                tmp_path / "x.csv", tmp_path / "ds", schema=pa.schema([("a", pa.list_(pa.int8()))])
            )

    def test_empty_files(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("")
        result = convert(tmp_path / "x.csv", tmp_path / "ds")
        assert (result.files, result.rows) == (0, 0)

    @pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
    @pytest.mark.parametrize("size", [7, 8, 64])
    def test_a_header_without_a_line_end(
        self, tmp_path: Path, name: str, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(text, "_BLOCK_BYTES", size)
        for data in (b'"a",b,cd', b"a,b,cd\n", b"\n\na,b,cd"):
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
            convert(tmp_path / name, tmp_path / "y.arrow", mode="overwrite")
            with pa.ipc.open_file(tmp_path / "y.arrow") as reader:
                table = reader.read_all()
            assert table.schema == pa.schema([(n, pa.null()) for n in ("a", "b", "cd")])
            assert table.num_rows == 0
            convert(tmp_path / name, tmp_path / "y.arrow", columns=["b"], mode="overwrite")

    def test_a_quote_that_is_not_closed(self, tmp_path: Path) -> None:
        for data in (b'"a,b\n1,2\n', b'"a,b', b'a,"', b'a"b,"c\n1,2\n'):
            (tmp_path / "x.csv").write_bytes(data)
            with pytest.raises(CorruptDataError, match=r"a quote is not closed.*x\.csv"):
                convert(tmp_path / "x.csv", tmp_path / "ds")

    @pytest.mark.parametrize("piece_bytes", [1, 3, 10, 1024])
    @pytest.mark.parametrize("is_given", [False, True])
    @pytest.mark.parametrize(
        ("lines", "last"),
        [
            ('1,"x\n2,y\n3,z\n', None),
            ('1,"x""\n', None),
            ('"1"",\n2",5" by 6" x\n3,"', None),
            ('1,5" x\n', '5" x'),
            ('1,"x""""\n,"""\n', 'x""\n,"'),
            ('1," "" "\n2, "x\n', ' "x'),
        ],
    )
    def test_a_quote_in_a_value_that_is_not_closed(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        piece_bytes: int,
        is_given: bool,
        lines: str,
        last: str | None,
    ) -> None:
        # Whatever stands behind one would become a part of the value.
        monkeypatch.setattr(text, "_PIECE_BYTES", piece_bytes)
        (tmp_path / "x.csv").write_text(f"a,b\n{lines}")
        schema = pa.schema({"a": pa.string(), "b": pa.string()}) if is_given else None
        if last is not None:
            convert(tmp_path / "x.csv", tmp_path / "ds", schema=schema)
            assert read_table(tmp_path / "ds")["b"].to_pylist()[-1] == last
            return
        with pytest.raises(CorruptDataError, match=r"a quote is not closed.*x\.csv"):
            convert(tmp_path / "x.csv", tmp_path / "ds", schema=schema)

    @pytest.mark.parametrize("end", ["", "\n", "\r", "\r\n"])
    @pytest.mark.parametrize("line", ['"x",', "x,", '"",'])
    def test_an_empty_field_at_the_end_is_null(self, tmp_path: Path, line: str, end: str) -> None:
        (tmp_path / "x.csv").write_bytes(f"a,b\ny,z\n{line}{end}".encode())
        convert(tmp_path / "x.csv", tmp_path / "ds")
        expected = [{"a": "y", "b": "z"}, {"a": line.strip('",'), "b": None}]
        assert read_table(tmp_path / "ds").to_pylist() == expected

    @pytest.mark.parametrize("options", [{}, {"schema": pa.schema([("b", pa.int64())])}])
    def test_names_that_are_not_utf_8(self, tmp_path: Path, options: Any) -> None:
        path = tmp_path / "x.csv"
        path.write_bytes(b"n\xffme,b\n1,2\n")
        with pytest.raises(CorruptDataError, match=r"header cannot be read: .*0xff.*x\.csv"):
            convert(path, tmp_path / "ds", **options)

    @pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz"])
    def test_quotes_that_a_backslash_escapes(self, tmp_path: Path, name: str) -> None:
        """Spark writes them so."""
        delimiter = "\t" if ".tsv" in name else ","

        def write(*rows: list[str]) -> Path:
            data = "".join(f"{delimiter.join(row)}\n" for row in rows).encode()
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
            return tmp_path / name

        fine = [["1", '"C:\\dir\\"'], ["2", '5\\" x'], ["3", '"a\\""b"'], ["4", '"\\"']]
        convert(write(["i", "s"], *fine, *[["5", "x" * 999]] * 9000), tmp_path / "y.arrow")
        with pa.ipc.open_file(tmp_path / "y.arrow") as reader:
            values = reader.read_all()["s"].to_pylist()
        assert values[:4] == ["C:\\dir\\", '5\\" x', 'a\\"b', "\\"]
        for bad in ('"a\\"b"', '"\\"a\\""', '"a\nb\\"c"'):
            for rows in (
                [["5", bad]],
                [["5", "x"], [bad, "y"]],
                [["5", "x" * 999]] * 9000 + [["6", bad]],
            ):
                with pytest.raises(CorruptDataError, match="escaped by a backslash") as caught:
                    convert(write(["i", "s"], *fine, *rows), tmp_path / "ds")
                assert caught.value.path == str(tmp_path / name)

    def test_text_in_utf_16(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("i,s\n1,x\n", encoding="utf-16")
        with pytest.raises(CorruptDataError, match="UTF-16"):
            convert(tmp_path / "x.csv", tmp_path / "ds")

    def test_a_row_that_is_too_long(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("x\n1\n" + "2" * 10**7 + "\n")
        with pytest.raises(CorruptDataError, match="row is longer than 4 MiB") as caught:
            convert(tmp_path / "x.csv", tmp_path / "ds", schema=pa.schema({"x": pa.string()}))
        assert caught.value.path == str(tmp_path / "x.csv")

    def test_nothing_is_read_behind_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A thread of pyarrow that still reads when the interpreter ends aborts the process."""
        reads: list[int] = []
        readinto = base.TextStream.readinto

        def slow(stream: base.TextStream, buffer: Any) -> int:
            time.sleep(0.02)
            reads.append(size := readinto(stream, buffer))
            return size

        monkeypatch.setattr(base.TextStream, "readinto", slow)
        (tmp_path / "x.csv").write_text("a,b\n1\n" + "1,2\n" * 5_000_000)
        with pytest.raises(CorruptDataError, match="Expected 2 columns"):
            convert(tmp_path / "x.csv", tmp_path / "ds")
        before = len(reads)
        time.sleep(0.3)
        assert len(reads) == before

    @pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
    def test_no_thread_of_pyarrow_lets_a_text_go_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """One that does so when the interpreter ends aborts the process."""
        last: list[threading.Thread] = []

        class Stream(io.BufferedReader):
            def __del__(self) -> None:
                last.append(threading.current_thread())

        monkeypatch.setattr(base.io, "BufferedReader", Stream)
        monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 64)
        (tmp_path / name).write_text("a\n1\n" if name == "x.csv" else '{"a": 1}\n' * 2000)
        for _ in range(50):
            with pytest.raises(OptionError, match="no column 'b'"):
                convert(tmp_path / name, tmp_path / "ds", columns=["b"])
        assert len(last) >= 50
        assert not any("Dummy" in thread.name for thread in last)


class TestJsonLines:
    def test_non_finite_numbers_and_short_digits(self, tmp_path: Path) -> None:
        values = [float("nan"), float("inf"), float("-inf"), 0.1, 1.0]
        write_table(pa.table({"f": pa.array(values, pa.float32())}), tmp_path / "ds")
        convert(tmp_path / "ds", tmp_path / "x.jsonl")
        assert (tmp_path / "x.jsonl").read_text() == (
            '{"f":NaN}\n{"f":Infinity}\n{"f":-Infinity}\n{"f":0.1}\n{"f":1.0}\n'
        )
        convert(tmp_path / "x.jsonl", tmp_path / "back", float64="cast")
        assert data_files(tmp_path / "back") == data_files(tmp_path / "ds")

    def test_a_later_block_does_not_change_types(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 64)
        path = tmp_path / "x.jsonl"
        for last, what in [('{"a": "x"}', "changed"), ('{"a": 1, "b": 2}', "unexpected field")]:
            path.write_text('{"a": 1}\n' * 50 + last + "\n")
            with pytest.raises(SchemaMismatchError, match=f"{what}.*give a schema") as caught:
                convert(path, tmp_path / "ds")
            assert caught.value.path == str(path)
            assert caught.value.row in (50, None)
            assert not (tmp_path / "ds").exists()
        convert(path, tmp_path / "ds", schema=pa.schema([("a", pa.int8()), ("b", pa.int8())]))
        assert read_table(tmp_path / "ds")["b"].to_pylist() == [None] * 50 + [2]

    def test_a_projection_does_not_hide_new_keys(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text('{"a": 1, "b": 2}\n{"b": 3}\n')
        convert(tmp_path / "x.json", tmp_path / "ds", columns=["a"])
        all_equal(tmp_path / "ds", examples({"a": 1}, {}))

    def test_words_in_quotes_where_floats_are_asked_for(self, tmp_path: Path) -> None:
        inf, nan = float("inf"), float("nan")
        rows = [
            {"f": nan, 'g"é': -inf, "l": [0.5, inf, nan], "Infinity": 1, "s": "NaN", "NaN": 1},
            {
                "f": 0.5,
                'g"é': None,
                "l": [2.5],
                "Infinity": 2,
                "s": '"f":"NaN",{"f": "NaN"}',
                "NaN": 2,
            },
            {"f": inf, 'g"é': 1.5, "l": [-inf], "Infinity": 3, "s": '\\","f":"NaN"', "NaN": 3},
        ]

        def quoted(value: Any) -> Any:
            if isinstance(value, list):
                return [quoted(item) for item in value]
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)

        lines = [
            json.dumps({k: quoted(v) for k, v in row.items()}, ensure_ascii=False) for row in rows
        ]
        schema = pa.schema(
            {
                "f": pa.float32(),
                'g"é': pa.float64(),
                "l": pa.list_(pa.float32()),
                "Infinity": pa.int64(),
                "s": pa.string(),
                "NaN": pa.int64(),
            }
        )
        (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
        convert(tmp_path / "x.jsonl", tmp_path / "ds", schema=schema)
        expected = [{k: v for k, v in row.items() if v is not None} for row in rows]
        all_equal(tmp_path / "ds", examples(*expected))
        # A file of several reads, in which lines stand across their ends.
        (tmp_path / "x.jsonl").write_text("\n".join(lines * 10_000), encoding="utf-8")
        convert(tmp_path / "x.jsonl", tmp_path / "many", schema=schema)
        all_equal(tmp_path / "many", examples(*expected) * 10_000)
        # Where no float is asked for, a text is none.
        (tmp_path / "x.jsonl").write_text('{"f": 0.5}\n{"f": "NaN"}\n')
        with pytest.raises(SchemaMismatchError):
            convert(tmp_path / "x.jsonl", tmp_path / "no")

    @pytest.mark.parametrize(
        ("texts", "t"),
        [
            (["2020-01-01T00:00:00Z", "2019-12-31T22:00:00-02:00"], pa.timestamp("s", "UTC")),
            (["2020-01-01", "2020-01-01 00", "2020-01-01T00:00"], pa.timestamp("s")),
            (["2020-01-01T00:00:00Z", "2020-01-01T00:00:00"], pa.string()),
        ],
    )
    @pytest.mark.parametrize("is_list", [False, True])
    def test_zones(self, tmp_path: Path, texts: list[str], t: pa.DataType, is_list: bool) -> None:
        rows = [None, texts, []] if is_list else [None, *texts]
        lines = "".join(json.dumps({"t": row}) + "\n" for row in rows)
        (tmp_path / "x.jsonl").write_text(lines)
        convert(tmp_path / "x.jsonl", tmp_path / "y.arrow")
        found = pa.ipc.open_file(tmp_path / "y.arrow").read_all()["t"].combine_chunks()
        assert found.type == (pa.list_(t) if is_list else t)
        values = found.flatten() if is_list else found.drop_null()
        days = texts if t == pa.string() else [dt.datetime(2020, 1, 1, tzinfo=t.tz and UTC)] * 3
        assert values.to_pylist() == days[: len(texts)]
        assert found.null_count == 1

    @pytest.mark.parametrize(
        ("text", "t"),
        [
            ("2020-01-01T00:00:00+02:00", pa.timestamp("s")),
            ("2020-01-01T00:00:00Z", pa.timestamp("us")),
            ("2020-01-01T00:00:00", pa.timestamp("s", "UTC")),
            ("2020-01-01", pa.timestamp("s", "America/New_York")),
        ],
    )
    def test_zones_that_a_schema_does_not_say(
        self, tmp_path: Path, text: str, t: pa.DataType
    ) -> None:
        (tmp_path / "x.jsonl").write_text(json.dumps({"t": None}) + "\n" + json.dumps({"t": text}))
        with pytest.raises(SchemaMismatchError, match="zone offset") as caught:
            convert(tmp_path / "x.jsonl", tmp_path / "ds", schema=pa.schema({"t": t}))
        assert (caught.value.row, caught.value.feature) == (1, "t")

    def test_instants_come_back(self, tmp_path: Path) -> None:
        instant = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        table = pa.table({"t": pa.array([instant, None], pa.timestamp("s", "UTC"))})
        write_table(table, tmp_path / "ds")
        convert(tmp_path / "ds", tmp_path / "x.jsonl")
        convert(tmp_path / "x.jsonl", tmp_path / "back")
        assert read_table(tmp_path / "back").equals(table)

    def test_text_that_is_no_base64(self, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"a": "AP8="}\n{"a": "?"}\n')
        with pytest.raises(SchemaMismatchError, match="Base64") as caught:
            convert(tmp_path / "x.jsonl", tmp_path / "ds", schema=pa.schema([("a", pa.binary())]))
        assert caught.value.row == 1

    @pytest.mark.parametrize(
        ("text", "row", "shown"),
        [
            ('[{"a": 1}]\n', 0, '[{"a": 1}]'),
            ('[\n{"a": 1},\n{"a": 2}\n]\n', 0, "["),
            ("5\n", 0, "5"),
            ("null", 0, "null"),
            ('{"a": 1}\r\n\r\nnull\r\n', 1, "null"),
            ('{"a": 1}\n{"a": 1} null {"a": 1}\n', 1, '{"a": 1} null'),
            ('{"a":\n9007199254740993}\n', 0, '{"a":'),
            ('{"a": 0.5}\n{"a":\n{}}\n', 1, '{"a":'),
        ],
    )
    def test_what_is_not_an_object_a_line(
        self, tmp_path: Path, text: str, row: int, shown: str
    ) -> None:
        (tmp_path / "x.json").write_text(text)
        for schema in (None, pa.schema([("b", pa.int64())])):
            with pytest.raises(
                CorruptDataError, match=f"line is not one object.*{re.escape(shown)}"
            ) as caught:
                convert(tmp_path / "x.json", tmp_path / "ds", schema=schema)
            assert (caught.value.path, caught.value.row) == (str(tmp_path / "x.json"), row)

    @pytest.mark.parametrize("opening", ["[", '{"a":'])
    @pytest.mark.parametrize("hidden", ["", "]}"])
    def test_what_nests_deep(self, tmp_path: Path, opening: str, hidden: str) -> None:
        """It would end the process."""
        closing = "]" if opening == "[" else "}"
        deep = f'["{hidden}",' * 20_000 + opening * 20_000 + "1" + closing * 20_000 + "]" * 20_000
        (tmp_path / "x.jsonl").write_text(f'{{"a": 1, "t": "{"[" * 200}"}}\n{{"b": {deep}}}\n')
        with pytest.raises(CorruptDataError, match="inside more than 100 others") as caught:
            convert(tmp_path / "x.jsonl", tmp_path / "ds", schema=pa.schema({"a": pa.int64()}))
        assert caught.value.row == 1

    def test_what_looks_like_no_object_in_a_text(self, tmp_path: Path) -> None:
        rows = [{"a": "} null"}, {"a": '\\"} null \\'}, {"a": "[" * 500}, {"a": '"}\n\r{'}]
        lines = [*map(json.dumps, rows), '\t{"a": "x"} {"a": "y"}\r', ""]
        (tmp_path / "x.jsonl").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
        convert(tmp_path / "x.jsonl", tmp_path / "ds")
        all_equal(tmp_path / "ds", examples(*rows, {"a": "x"}, {"a": "y"}))

    def test_a_line_that_is_too_long(self, tmp_path: Path) -> None:
        with (tmp_path / "x.jsonl").open("w") as file:
            file.write('{"a": 1}\n{"a": 1, "t": "' + "x" * 2**25 + '"}\n')
        with pytest.raises(CorruptDataError, match="longer than 16 MiB") as caught:
            convert(tmp_path / "x.jsonl", tmp_path / "ds")
        assert caught.value.row == 1

    def test_a_line_that_ends_early(self, tmp_path: Path) -> None:
        """Whether it ends in what looks like an object, and what it has in it, does not matter."""
        for end in ('{"a":', '{"b": {"b": 1}', '{"t": "' + '\\"' * 500_000, '{"t": "\\'):
            (tmp_path / "x.jsonl").write_text('{"a": 1}\n' + end)
            with pytest.raises(CorruptDataError, match=r"not one object|cannot be read"):
                convert(tmp_path / "x.jsonl", tmp_path / "ds", schema=pa.schema({"a": pa.int64()}))

    def test_text_that_is_not_utf_8(self, tmp_path: Path) -> None:
        for bad in (b'"\xff": 1', b'"o": {"\xff": 1}', b'"a": "\xc3"'):
            (tmp_path / "x.jsonl").write_bytes(b'{"a": "\xc3\xa9"}\n{' + bad + b"}\n")
            with pytest.raises(CorruptDataError, match="line is not UTF-8") as caught:
                convert(tmp_path / "x.jsonl", tmp_path / "x.arrow")
            assert caught.value.row == 1

    def test_whole_numbers_that_are_no_float32(self, tmp_path: Path) -> None:
        path, schema = tmp_path / "x.jsonl", pa.schema({"a": pa.float32()})
        path.write_text('{"a": 16777217}\n{"a": 9007199254740991}\n{"a": 18446744073709551616}\n')
        convert(path, tmp_path / "ds", schema=schema)
        assert read_table(tmp_path / "ds")["a"].to_pylist() == [2.0**24, 2.0**53, 2.0**64]
        path.write_text('{"a": 9007199254740994}\n')
        with pytest.raises(SchemaMismatchError, match=r"'a' holds 9007199254740994, .* no float;"):
            convert(path, tmp_path / "no", schema=schema)

    @pytest.mark.parametrize("key", ["pr\\u00e9", "pré", "\\u0070\\u0072é"])
    def test_keys_of_any_spelling(self, tmp_path: Path, key: str) -> None:
        path, t, inf, nan = tmp_path / "x.jsonl", pa.float64(), float("inf"), float("nan")
        for bad in ("9007199254740993", "1e-400"):
            lines = f'{{"pré": 0.5}}\n{{"o": {{"pré": 9007199254740993}}, "{key}": {bad}}}\n'
            path.write_text(lines, encoding="utf-8")
            with pytest.raises(SchemaMismatchError, match=f"'pré' holds {bad}"):
                convert(path, tmp_path / "ds", schema=pa.schema({"pré": t}))
        # What other columns and objects hold does not matter, words and large numbers do not.
        lines = (
            '{"o": {"pré": 9007199254740993}, "pré": [18446744073709551616, Inf, -NaN, "NaN"]}\n'
        )
        path.write_text(lines.replace("pré", key), encoding="utf-8")
        convert(path, tmp_path / "ds", schema=pa.schema({"pré": pa.list_(t)}))
        (values,) = read_table(tmp_path / "ds")["pré"].to_pylist()
        assert str(values) == str([2.0**64, inf, nan, nan])

    def test_empty_files(self, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text("")
        assert convert(tmp_path / "x.jsonl", tmp_path / "ds").rows == 0


class TestAvro:
    def write(self, path: Path, fields: list[Any], *rows: dict[str, Any]) -> None:
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)

    def test_logical_types_and_unions(self, tmp_path: Path) -> None:
        def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
            return {"type": kind, "logicalType": name, **more}

        colour = {"type": "enum", "name": "colour", "symbols": ["red", "blue"]}
        fields = [
            {"name": "b", "type": "boolean"},
            {"name": "i", "type": ["null", "int"]},
            {"name": "l", "type": ["long", "null"]},
            {"name": "f", "type": "float"},
            {"name": "d", "type": "double"},
            {"name": "s", "type": "string"},
            {"name": "by", "type": "bytes"},
            {"name": "fx", "type": {"type": "fixed", "name": "fx", "size": 2}},
            {"name": "fy", "type": "fx"},
            {"name": "e", "type": colour},
            {"name": "e2", "type": ["null", "colour"]},
            {"name": "day", "type": logical("int", "date")},
            {"name": "ms", "type": ["null", logical("long", "timestamp-millis")]},
            {"name": "us", "type": logical("long", "timestamp-micros")},
            {"name": "tm", "type": logical("int", "time-millis")},
            {"name": "dec", "type": logical("bytes", "decimal", precision=5, scale=2)},
            {"name": "a", "type": {"type": "array", "items": "int"}},
        ]
        stamp = STAMP.replace(tzinfo=UTC)
        row = {"b": True, "i": None, "l": 5, "f": 0.5, "d": 2.0, "s": "x", "by": b"\xff"}
        row |= {"fx": b"ab", "fy": b"cd", "e": "red", "e2": "blue", "day": DAY, "ms": stamp}
        row |= {"us": stamp, "tm": dt.time(0, 0, 1), "dec": Decimal("1.50"), "a": [1, 2]}
        self.write(tmp_path / "x.avro", fields, row)
        convert(tmp_path / "x.avro", tmp_path / "ds")
        micros = int((stamp - dt.datetime(1970, 1, 1, tzinfo=UTC)) / dt.timedelta(microseconds=1))
        row |= {"b": 1, "day": micros // 86_400_000_000, "us": micros, "ms": micros // 1000}
        all_equal(tmp_path / "ds", examples(row | {"tm": 1000, "dec": 1.5}))
        assert read_table(tmp_path / "ds").schema.field("dec").type == pa.decimal128(5, 2)

    @pytest.mark.parametrize(
        ("kind", "value", "t"),
        [
            ({"type": "fixed", "name": "f", "size": 6}, Decimal("-1.5"), pa.decimal128(10, 2)),
            ({"type": "bytes"}, Decimal("1.5"), pa.decimal128(38, 2)),
            ({"type": "bytes"}, Decimal("1.5"), pa.decimal256(39, 2)),
            ({"type": "bytes"}, Decimal("-1.5"), pa.decimal256(76, 2)),
            ({"type": "bytes"}, Decimal(-5), pa.decimal128(3, 0)),
            # Not a decimal by the specification, but its number.
            ({"type": "int"}, -5, pa.int32()),
        ],
    )
    @pytest.mark.parametrize("is_nullable", [False, True])
    def test_decimals(
        self, tmp_path: Path, kind: Any, value: Any, t: pa.DataType, is_nullable: bool
    ) -> None:
        digits = {"precision": getattr(t, "precision", 3)}
        if getattr(t, "scale", 0):
            digits["scale"] = t.scale
        decimal = {**kind, "logicalType": "decimal", **digits}
        fields = [{"name": "x", "type": ["null", decimal] if is_nullable else decimal}]
        rows = [{"x": value}, {"x": None if is_nullable else value}]
        self.write(tmp_path / "x.avro", fields, *rows)
        convert(tmp_path / "x.avro", tmp_path / "y.arrow")
        with pa.ipc.open_file(tmp_path / "y.arrow") as reader:
            found = reader.read_all()
        assert found.schema.types == [t]
        assert found.to_pylist() == rows

    @pytest.mark.parametrize("is_outer", [False, True])
    def test_errors_are_records(self, tmp_path: Path, is_outer: bool) -> None:
        """https://avro.apache.org/docs/1.12.0/specification/#error-records"""
        inner = {"type": "error", "name": "e", "fields": [{"name": "x", "type": ["null", "e"]}]}
        fields = [{"name": "ok", "type": "int"}, {"name": "bad", "type": inner}]
        schema = {"type": "error" if is_outer else "record", "name": "r", "fields": fields}
        with (tmp_path / "x.avro").open("wb") as file:
            fastavro.writer(file, schema, [{"ok": 1, "bad": {"x": None}}])
        with pytest.raises(UnsupportedTypeError, match="'bad'"):
            convert(tmp_path / "x.avro", tmp_path / "ds")
        convert(tmp_path / "x.avro", tmp_path / "ds", columns=["ok"])
        all_equal(tmp_path / "ds", examples({"ok": 1}))

    def test_names_have_namespaces(self, tmp_path: Path) -> None:
        """https://avro.apache.org/docs/1.12.0/specification/#names"""
        enum = {"type": "enum", "name": "T", "symbols": ["A"]}
        inner = {"type": "array", "items": {**enum, "namespace": "other"}}
        fields = [
            {"name": "x", "type": {"type": "fixed", "name": "T", "size": 4}},
            {"name": "y", "type": inner},
            {"name": "z", "type": "T"},
            {"name": "w", "type": ["null", "other.T"]},
            {"name": "bad", "type": {"type": "bytes", "logicalType": "decimal"}},
        ]
        schema = {"type": "record", "name": "r", "namespace": "one", "fields": fields}
        row = {"x": b"wxyz", "y": ["A"], "z": b"1234", "w": "A", "bad": b"\x01"}
        # As other writers do, who leave out of a name what its place says.
        block = io.BytesIO()
        fastavro.schemaless_writer(block, schema, row)
        header = {"magic": b"Obj\x01", "meta": {"avro.schema": json.dumps(schema).encode()}}
        with (tmp_path / "x.avro").open("wb") as file:
            fastavro.schemaless_writer(
                file, _read_common.HEADER_SCHEMA, {**header, "sync": b"S" * 16}
            )
            fastavro.schemaless_writer(file, "long", 1)
            fastavro.schemaless_writer(file, "bytes", block.getvalue())
            file.write(b"S" * 16)
        convert(tmp_path / "x.avro", tmp_path / "y.parquet")
        table = pq.read_table(tmp_path / "y.parquet")
        assert table.to_pylist() == [row]
        assert table.schema.field("z").type == pa.binary(4)

    @pytest.mark.parametrize("codec", AVRO_CODECS)
    def test_all_codecs(self, tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
        schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
        with (tmp_path / "x.avro").open("wb") as file:
            fastavro.writer(file, schema, [{"a": n} for n in range(1000)], codec=codec)
        convert(tmp_path / "x.avro", tmp_path / "ds")
        all_equal(tmp_path / "ds", examples(*({"a": n} for n in range(1000))))

        missing = _read_common.missing_codec_lib(codec, ["some_package"])
        monkeypatch.setitem(_read.BLOCK_READERS, codec, missing)
        with pytest.raises(MissingDependencyError, match=rf"{codec}.*tfrecord-io\[avro\]"):
            convert(tmp_path / "x.avro", tmp_path / "no")

    def test_uuids_are_strings(self, tmp_path: Path) -> None:
        uuid = {"type": "string", "logicalType": "uuid"}
        fields = [
            {"name": "a", "type": uuid},
            {"name": "b", "type": ["null", uuid]},
            {"name": "c", "type": {"type": "array", "items": uuid}},
            {"name": "d", "type": {"type": "array", "items": ["null", uuid]}},
        ]
        text = "12345678-1234-5678-9abc-def012345678"
        rows: list[dict[str, Any]] = [{"a": text, "b": text, "c": [text, text], "d": [text]}]
        rows.append({"a": text, "b": None, "c": [], "d": []})
        self.write(tmp_path / "x.avro", fields, *rows)
        convert(tmp_path / "x.avro", tmp_path / "y.parquet")
        assert pq.read_table(tmp_path / "y.parquet").to_pylist() == rows

    def test_times_beyond_those_of_python(self, tmp_path: Path) -> None:
        def logical(kind: str, name: str) -> list[Any]:
            return ["null", {"type": kind, "logicalType": name}]

        fields = [
            {"name": "us", "type": logical("long", "timestamp-micros")},
            {"name": "ms", "type": logical("long", "local-timestamp-millis")},
            {"name": "day", "type": logical("int", "date")},
            {"name": "l", "type": {"type": "array", "items": logical("long", "timestamp-micros")}},
        ]
        rows = [
            {"us": 2**62, "ms": -(2**62), "day": 2**31 - 1, "l": [2**62, 5]},
            {"us": None, "ms": 0, "day": None, "l": [-(2**62)]},
        ]
        self.write(tmp_path / "x.avro", fields, *rows)
        convert(tmp_path / "x.avro", tmp_path / "ds")
        all_equal(tmp_path / "ds", examples(*rows))
        assert read_table(tmp_path / "ds").schema.types == [
            pa.timestamp("us", "UTC"),
            pa.timestamp("ms"),
            pa.date32(),
            pa.list_(pa.timestamp("us", "UTC")),
        ]

    def test_times_beyond_those_of_python_in_a_column_that_is_left_out(
        self, tmp_path: Path
    ) -> None:
        day = {"type": "int", "logicalType": "date"}
        inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": day}]}
        fields = [
            {"name": "ok", "type": "int"},
            {"name": "m", "type": {"type": "map", "values": day}},
            {"name": "r", "type": inner},
        ]
        last = 2**31 - 1
        self.write(tmp_path / "x.avro", fields, {"ok": 1, "m": {"k": last}, "r": {"x": last}})
        convert(tmp_path / "x.avro", tmp_path / "ds", columns=["ok"])
        all_equal(tmp_path / "ds", examples({"ok": 1}))

    def test_nanoseconds(self, tmp_path: Path) -> None:
        kinds = ("timestamp-nanos", "local-timestamp-nanos")
        fields = [
            {"name": f"x{n}", "type": ["null", {"type": "long", "logicalType": kind}]}
            for n, kind in enumerate(kinds)
        ]
        rows = [{"x0": 2**62 + 1, "x1": None}, {"x0": None, "x1": -(2**62) - 1}]
        self.write(tmp_path / "x.avro", fields, *rows)
        convert(tmp_path / "x.avro", tmp_path / "ds")
        all_equal(tmp_path / "ds", examples(*rows))
        types = [pa.timestamp("ns", "UTC"), pa.timestamp("ns")]
        assert read_table(tmp_path / "ds").schema.types == types

    @pytest.mark.parametrize(
        "kind",
        [
            {"type": "map", "values": "int"},
            {
                "type": "record",
                "name": "inner",
                "fields": [{"name": "x", "type": ["null", "inner"]}],
            },
            ["int", "string"],
            "r",
            {"type": "array", "items": "r"},
            {"type": "bytes", "logicalType": "decimal", "precision": 77},
        ],
    )
    def test_what_tfrecord_cannot_hold(self, tmp_path: Path, kind: Any) -> None:
        fields = [{"name": "ok", "type": "int"}, {"name": "bad", "type": ["null", kind]}]
        if isinstance(kind, list):
            fields[1]["type"] = ["null", *kind]
        self.write(tmp_path / "x.avro", fields, {"ok": 1, "bad": None})
        with pytest.raises(UnsupportedTypeError, match="'bad'") as caught:
            convert(tmp_path / "x.avro", tmp_path / "ds")
        assert caught.value.feature == "bad"
        convert(tmp_path / "x.avro", tmp_path / "ds", columns=["ok"])
        all_equal(tmp_path / "ds", examples({"ok": 1}))

    @pytest.mark.parametrize(
        ("kind", "value", "t"),
        [
            (["null", "int", "string"], "x", pa.string()),
            (["null", "int", "string"], 5, pa.int64()),
            ({"type": "array", "items": ["int", "string"]}, [1, "x"], pa.list_(pa.string())),
            ({"type": "bytes", "logicalType": "decimal", "precision": 77}, Decimal(5), pa.string()),
        ],
    )
    def test_what_no_column_holds_is_no_damage(
        self, tmp_path: Path, kind: Any, value: Any, t: pa.DataType
    ) -> None:
        self.write(tmp_path / "x.avro", [{"name": "u", "type": kind}], {"u": value})
        with pytest.raises(UnsupportedTypeError, match="'u'") as caught:
            convert(tmp_path / "x.avro", tmp_path / "ds", schema=pa.schema({"u": t}))
        assert (caught.value.path, caught.value.feature) == (str(tmp_path / "x.avro"), "u")

    def test_damage(self, tmp_path: Path) -> None:
        self.write(tmp_path / "x.avro", [{"name": "a", "type": "long"}], *[{"a": 5}] * 100)
        data = (tmp_path / "x.avro").read_bytes()
        for damaged in (data[:-30], data[:20]):
            (tmp_path / "x.avro").write_bytes(damaged)
            with pytest.raises(CorruptDataError) as caught:
                convert(tmp_path / "x.avro", tmp_path / "ds")
            assert caught.value.path == str(tmp_path / "x.avro")
            assert not (tmp_path / "ds").exists()

    @pytest.mark.parametrize("codec", AVRO_CODECS)
    def test_damaged_blocks(self, tmp_path: Path, codec: str) -> None:
        path = tmp_path / "x.avro"
        schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
        with path.open("wb") as file:
            rows = [{"a": f"text {n}"} for n in range(1000)]
            fastavro.writer(file, schema, rows, codec=codec, sync_marker=b"S" * 16)
        data = path.read_bytes()
        start = data.index(b"S" * 16) + 16
        path.write_bytes(data[: start + 4] + b"\xff" * 100 + data[start + 104 :])
        with pytest.raises(CorruptDataError, match=r"damaged: .*x\.avro, row 0") as caught:
            convert(path, tmp_path / "ds")
        assert caught.value.path == str(path)

    @pytest.mark.parametrize("codec", AVRO_CODECS)
    def test_any_damage(self, tmp_path: Path, codec: str) -> None:
        fields = [
            {"name": "a", "type": ["null", "long"]},
            {"name": "s", "type": "string"},
            {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["x", "y"]}},
            {"name": "l", "type": {"type": "array", "items": "double"}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ]
        schema = {"type": "record", "name": "r", "fields": fields}
        row = {"s": "text", "e": "y", "l": [0.5, 1.5], "d": Decimal(5), "t": STAMP}
        with (tmp_path / "x.avro").open("wb") as file:
            rows = [{**row, "a": n % 3 and n} for n in range(50)]
            fastavro.writer(file, schema, rows, codec=codec, sync_interval=500)
        hold_damage_to_our_errors(tmp_path / "x.avro", "avro")

    def test_large_values_come_in_small_batches(self, tmp_path: Path) -> None:
        # So that memory is bounded, and a column never more than an array of Arrow's holds.
        values = [bytes([n]) * 2**20 for n in range(50)]
        fields = [{"name": "a", "type": "bytes"}]
        self.write(tmp_path / "x.avro", fields, *({"a": value} for value in values))
        batches = [*read_source(tmp_path / "x.avro", "avro")]
        assert max(batch.nbytes for batch in batches) < 2**24
        assert [value for batch in batches for value in batch["a"].to_pylist()] == values

    @pytest.mark.parametrize("batch_rows", [4, 8192])
    def test_fewer_records_than_a_block_has(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
    ) -> None:
        monkeypatch.setattr(avro, "_BATCH_ROWS", batch_rows)
        path = tmp_path / "x.avro"
        self.write(path, [{"name": "a", "type": "long"}], *[{"a": 5}] * 60)
        # The counts of records and of bytes as zigzag numbers of Avro: 60 twice.
        data = path.read_bytes()
        assert data.count(b"\x78\x78") == 1
        path.write_bytes(data.replace(b"\x78\x78", b"\x14\x78"))
        with pytest.raises(CorruptDataError, match=r"more than its records.*x\.avro, row 10"):
            convert(path, tmp_path / "ds")

    @pytest.mark.parametrize(
        "schema",
        [b"{", b"\xff", b"5", b"[" * 10_000, b'{"type": "record", "name": "r", "fields": [5]}'],
    )
    def test_damaged_schemas(self, tmp_path: Path, schema: bytes) -> None:
        header = {"magic": b"Obj\x01", "meta": {"avro.schema": schema}, "sync": b"S" * 16}
        with (tmp_path / "x.avro").open("wb") as file:
            fastavro.schemaless_writer(file, _read_common.HEADER_SCHEMA, header)
        with pytest.raises(CorruptDataError, match=r"not Avro, or damaged: .*x\.avro"):
            convert(tmp_path / "x.avro", tmp_path / "ds")

    def test_a_store_that_fails_is_no_damage(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Failing(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                raise RuntimeError("connection lost")

        self.write(tmp_path / "x.avro", [{"name": "a", "type": "long"}], {"a": 5})
        monkeypatch.setattr(InputFile, "open", lambda file: Failing())
        with pytest.raises(RuntimeError, match="connection lost"):
            convert(tmp_path / "x.avro", tmp_path / "ds", from_format="avro")

    def test_nothing_but_nulls(self, tmp_path: Path) -> None:
        fields = [{"name": "a", "type": "int"}, {"name": "n", "type": ["null"]}]
        self.write(tmp_path / "x.avro", fields, {"a": 1, "n": None})
        convert(tmp_path / "x.avro", tmp_path / "ds")
        assert read_table(tmp_path / "ds").to_pylist() == [{"a": 1, "n": None}]

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            ("string", "a"),
            (["null", "long"], 1),
            ({"type": "array", "items": "int"}, [1]),
        ],
    )
    def test_values_that_are_no_records(self, tmp_path: Path, schema: Any, value: Any) -> None:
        path = tmp_path / "x.avro"
        with path.open("wb") as file:
            fastavro.writer(file, schema, [value])
        with pytest.raises(UnsupportedTypeError, match="values that are no records") as caught:
            convert(path, tmp_path / "ds")
        assert caught.value.path == str(path)
        assert not (tmp_path / "ds").exists()

    def test_names_that_avro_does_not_allow(self, tmp_path: Path) -> None:
        write_table(pa.table({"a b": [1]}), tmp_path / "ds")
        with pytest.raises(OptionError, match="'a b'"):
            convert(tmp_path / "ds", tmp_path / "x.avro")

    def test_the_missing_package_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.write(tmp_path / "x.avro", [{"name": "a", "type": "long"}], {"a": 5})
        monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
        with pytest.raises(MissingDependencyError, match=r"tfrecord-io\[avro\]"):
            convert(tmp_path / "x.avro", tmp_path / "ds")
        write_table(pa.table({"a": [1]}), tmp_path / "ds")
        with pytest.raises(MissingDependencyError, match=r"tfrecord-io\[avro\]"):
            convert(tmp_path / "ds", tmp_path / "y.avro")


class TestColumnar:
    def test_streams_are_read(self, tmp_path: Path) -> None:
        write_directly(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "x.arrows", "arrows")
        convert(tmp_path / "x.arrows", tmp_path / "ds", columns=["b"])
        all_equal(tmp_path / "ds", examples({"b": "x"}, {"b": "y"}))

    @pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
    @pytest.mark.parametrize("is_list", [False, True])
    def test_intervals_beside_what_is_wanted(
        self, tmp_path: Path, make: Any, is_list: bool
    ) -> None:
        t, value = pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3])
        column = pa.array([[value]], pa.list_(t)) if is_list else pa.array([value], t)
        table = pa.table({"a": column, "b": [5]})
        with make(tmp_path / "x.arrow", table.schema) as writer:
            writer.write_table(table)
        convert(tmp_path / "x.arrow", tmp_path / "ds", columns=["b"])
        all_equal(tmp_path / "ds", examples({"b": 5}))
        assert convert(tmp_path / "x.arrow", tmp_path / "none", columns=[]).rows == 1
        target = pa.list_(pa.string()) if is_list else pa.string()
        with pytest.raises(SchemaMismatchError, match=r"'a' is .*interval.*do not fit"):
            convert(tmp_path / "x.arrow", tmp_path / "no", schema=pa.schema({"a": target}))

    def test_streams_of_before_arrow_0_15_are_read(self, tmp_path: Path) -> None:
        table = pa.table({"a": [1, 2], "b": ["x", "y"]})
        options = pa.ipc.IpcWriteOptions(
            use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4
        )
        with pa.ipc.new_stream(tmp_path / "x.arrow", table.schema, options=options) as writer:
            writer.write_table(table)
        convert(tmp_path / "x.arrow", tmp_path / "ds", columns=["b"])
        all_equal(tmp_path / "ds", examples({"b": "x"}, {"b": "y"}))
        for damaged in ((tmp_path / "x.arrow").read_bytes()[:200], b"\1\0\0\0", b"\0" * 9, b"no"):
            (tmp_path / "y.arrow").write_bytes(damaged)
            with pytest.raises(CorruptDataError, match=r"cannot be read: .*y\.arrow"):
                convert(tmp_path / "y.arrow", tmp_path / "none")

    def test_types_that_pyarrow_does_not_have(self, tmp_path: Path) -> None:
        frame = polars.DataFrame({"a": [1]}, schema={"a": polars.Int128})
        frame.write_ipc(tmp_path / "x.arrow")
        frame.write_parquet(tmp_path / "x.parquet")
        for name in ("x.arrow", "x.parquet"):
            with pytest.raises(UnsupportedTypeError, match=rf"more than 64 bits.*{name}"):
                convert(tmp_path / name, tmp_path / "ds")
        with pytest.raises(UnsupportedTypeError, match=r"a column's type.*cast the column"):
            write_table(frame, tmp_path / "ds")

    def test_objects_of_polars_are_not_written_as_their_addresses(self, tmp_path: Path) -> None:
        frame = polars.DataFrame({"a": [1], "b": [object()]}, schema_overrides={"b": polars.Object})
        with pytest.raises(UnsupportedTypeError, match="column 'b' is one of Python objects"):
            write_table(frame, tmp_path / "ds")
        write_table(frame.select("a"), tmp_path / "ds")

    @pytest.mark.parametrize("is_ended", [True, False])
    def test_what_is_behind_a_stream(self, tmp_path: Path, is_ended: bool) -> None:
        path = tmp_path / "x.arrows"
        write_directly(pa.table({"a": [1, 2]}), path, "arrows")
        stream = path.read_bytes()
        path.write_bytes(stream if is_ended else stream.removesuffix(b"\xff\xff\xff\xff\0\0\0\0"))
        assert convert(path, tmp_path / "ds").rows == 2
        path.write_bytes(stream + stream)
        with pytest.raises(CorruptDataError, match="ends before the file") as caught:
            convert(path, tmp_path / "two")
        assert caught.value.path == str(path)

    @pytest.mark.parametrize("t", [pa.string_view(), pa.binary_view()])
    @pytest.mark.parametrize("fmt", ["arrow", "parquet", "jsonl", "tfrecord"])
    def test_dictionaries_of_views(self, tmp_path: Path, t: pa.DataType, fmt: str) -> None:
        words = pa.array(["a", "b" * 20], t)
        values = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.uint32()), words)
        lists = pa.ListArray.from_arrays([0, 1, 1, 4], values.drop_null().take([0, 1, 2, 0]))
        columns = {"n": [1, 2, 3], "x": values[:3], "y": lists}
        write_directly(pa.table(columns), tmp_path / "x.arrow", "arrow")
        plain = pa.string() if t == pa.string_view() else pa.binary()
        schema = pa.schema([("n", pa.int64()), ("x", plain), ("y", pa.list_(plain))])
        expected = pa.table(
            {n: pa.array(c.to_pylist() if n != "n" else c) for n, c in columns.items()}
        )
        for given in (None, schema):
            target = tmp_path / f"out-{given is None}"
            convert(tmp_path / "x.arrow", target, to_format=fmt, schema=given)
            convert(target, target.with_suffix(".back"), to_format="tfrecord", schema=schema)
            assert read_table(target.with_suffix(".back")).equals(expected.cast(schema))
        if plain == pa.string():
            write_table(pa.table(columns), tmp_path / "parts", partition_by="x")
            found = read_table(tmp_path / "parts").sort_by("n")
            assert found["x"].to_pylist() == expected["x"].to_pylist()

    @pytest.mark.parametrize(
        "t", [pa.list_(pa.int64()), pa.list_view(pa.int64()), pa.list_(pa.int64(), 2)], ids=str
    )
    @pytest.mark.parametrize("fmt", ["arrow", "parquet", "jsonl", "tfrecord"])
    def test_dictionaries_of_lists(self, tmp_path: Path, t: pa.DataType, fmt: str) -> None:
        values = pa.array([[1, 2], [3, 4]], t)
        # pyarrow 25 cannot read a null among lists of one size that it wrote as Parquet.
        has_null = not (
            fmt == "parquet" and pa.types.is_fixed_size_list(t) and pa.__version__.startswith("25.")
        )
        indices = [1, None, 0] if has_null else [1, 0]
        column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)
        write_directly(pa.table({"x": column}), tmp_path / "x.arrow", "arrow")
        convert(tmp_path / "x.arrow", tmp_path / "out", to_format=fmt)
        convert(tmp_path / "out", tmp_path / "back", to_format="tfrecord")
        expected = [[3, 4], None, [1, 2]] if has_null else [[3, 4], [1, 2]]
        assert read_table(tmp_path / "back")["x"].to_pylist() == expected

    def test_a_struct_may_be_left_out(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"s": [{"x": 1}], "a": [1]}), tmp_path / "x.parquet")
        with pytest.raises(UnsupportedTypeError, match="'s'"):
            convert(tmp_path / "x.parquet", tmp_path / "ds")
        convert(tmp_path / "x.parquet", tmp_path / "ds", columns=["a"])
        all_equal(tmp_path / "ds", examples({"a": 1}))

    def test_names_with_dots(self, tmp_path: Path) -> None:
        for fmt in ("parquet", "orc", "arrow"):
            data = pa.table({"a": [1], "a.b": [2], "c": [3]})
            write_directly(data, tmp_path / f"x.{fmt}", fmt)
            convert(tmp_path / f"x.{fmt}", tmp_path / fmt, columns=["a.b", "a"])
            all_equal(tmp_path / fmt, examples({"a.b": 2, "a": 1}))

    def test_values_that_do_not_fit_a_schema(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1, 2, 300]}), tmp_path / "x.parquet")
        with pytest.raises(SchemaMismatchError, match="int8") as caught:
            convert(tmp_path / "x.parquet", tmp_path / "ds", schema=pa.schema([("a", pa.int8())]))
        assert (caught.value.feature, caught.value.row) == ("a", 2)
        assert caught.value.path == str(tmp_path / "x.parquet")

    def test_the_row_of_a_list_that_does_not_fit_a_schema(self, tmp_path: Path) -> None:
        values = pa.array([[1], [2], None, [3, 300], [4]])
        schema = pa.schema([("x", pa.list_(pa.int8()))])
        with pytest.raises(SchemaMismatchError, match="int8") as caught:
            convert(arrow_file(tmp_path / "x.arrow", values), tmp_path / "ds", schema=schema)
        assert (caught.value.feature, caught.value.row) == ("x", 3)

    def test_files_that_disagree(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
        pq.write_table(pa.table({"a": ["x"]}), tmp_path / "2.parquet")
        with pytest.raises(InferenceError, match=r"1\.parquet.*2\.parquet"):
            convert(tmp_path / "*.parquet", tmp_path / "ds")
        pq.write_table(pa.table({"a": [[1]]}), tmp_path / "2.parquet")
        pq.write_table(pa.table({"a": [["x"]]}), tmp_path / "3.parquet")
        for number in (1, 3):
            with pytest.raises(InferenceError, match=rf"{number}\.parquet"):
                convert([tmp_path / "2.parquet", tmp_path / f"{number}.parquet"], tmp_path / "ds")

    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
    def test_lists_of_nothing_are_lists_of_any_type(self, tmp_path: Path, order: list[int]) -> None:
        rows: list[Any] = [[], [[0.5], []], [[]]]
        for number, at in enumerate(order):
            (tmp_path / f"{number}.jsonl").write_text(json.dumps({"a": rows[at]}))
        convert(tmp_path / "*.jsonl", tmp_path / "out.arrow")
        with pa.ipc.open_file(tmp_path / "out.arrow") as reader:
            table = reader.read_all()
        assert table.schema.field("a").type == pa.list_(pa.list_(pa.float64()))
        assert table["a"].to_pylist() == [rows[at] for at in order]

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize(
        ("types", "values", "expected"),
        [
            ([pa.string(), pa.large_string()], ["x", "y"], pa.string()),
            ([pa.string_view(), pa.string()], ["x", None], pa.string()),
            ([pa.dictionary(pa.int8(), pa.string()), pa.string()], ["x", "y"], pa.string()),
            (
                [pa.dictionary(pa.int8(), pa.int64()), pa.dictionary(pa.int16(), pa.int64())],
                [1, 2],
                pa.int64(),
            ),
            ([pa.binary(), pa.large_binary()], [b"\xff", b""], pa.binary()),
            (
                [pa.list_(pa.string()), pa.large_list(pa.string_view())],
                [["x"], []],
                pa.list_(pa.string()),
            ),
            (
                [pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris")],
                [STAMP.replace(tzinfo=UTC)] * 2,
                pa.timestamp("us", "UTC"),
            ),
        ],
    )
    def test_types_of_one_normal_form_are_one(
        self, tmp_path: Path, types: Any, values: Any, expected: pa.DataType, order: int
    ) -> None:
        for number, (value, t) in enumerate(list(zip(values, types, strict=True))[::order]):
            one = pa.table({"a": pa.array([value, None], t)})
            with pa.ipc.new_file(tmp_path / f"{number}.arrow", one.schema) as file:
                file.write_table(one)
        convert(tmp_path / "*.arrow", tmp_path / "ds")
        table = read_table(tmp_path / "ds")
        assert table.schema.field("a").type == expected
        first, second = values[::order]
        assert table["a"].to_pylist() == [first, None, second, None]

    def test_columns_that_a_file_lacks_are_null(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
        pq.write_table(pa.table({"b": ["x"], "a": pa.nulls(1)}), tmp_path / "2.parquet")
        convert([tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path / "ds")
        assert read_table(tmp_path / "ds").to_pylist() == [
            {"a": 1, "b": None},
            {"a": None, "b": "x"},
        ]

    @pytest.mark.parametrize("fmt", ["parquet", "orc", "arrow"])
    def test_damage(self, tmp_path: Path, fmt: str) -> None:
        path = tmp_path / f"x.{fmt}"
        write_directly(pa.table({"a": list(range(1000))}), path, fmt)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(CorruptDataError) as caught:
            convert(path, tmp_path / "ds")
        assert caught.value.path == str(path)
        assert not (tmp_path / "ds").exists()

    @pytest.mark.parametrize("fmt", ["parquet", "orc", "arrow"])
    def test_any_damage(self, tmp_path: Path, fmt: str) -> None:
        path = tmp_path / f"x.{fmt}"
        write_directly(table("orc"), path, fmt)
        hold_damage_to_our_errors(path, fmt)

    @pytest.mark.parametrize("fmt", ["parquet", "orc", "arrow", "arrows"])
    @pytest.mark.parametrize("options", [{}, {"schema": pa.schema([("b", pa.int64())])}])
    def test_names_that_are_not_utf_8(self, tmp_path: Path, fmt: str, options: Any) -> None:
        path = tmp_path / f"x.{fmt}"
        write_directly(pa.table({"name": [1], "b": [2]}), path, fmt)
        path.write_bytes(path.read_bytes().replace(b"name", b"n\xffme"))
        with pytest.raises(CorruptDataError, match=rf"cannot be read: .*0xff.*x\.{fmt}"):
            convert(path, tmp_path / "ds", **options)

    @pytest.mark.parametrize("fmt", ["arrow", "arrows"])
    def test_time_zones_that_are_not_utf_8(self, tmp_path: Path, fmt: str) -> None:
        path = tmp_path / f"x.{fmt}"
        stamps = pa.array([[1]], pa.list_(pa.timestamp("us", "zone")))
        write_directly(pa.table({"t": stamps}), path, fmt)
        path.write_bytes(path.read_bytes().replace(b"zone", b"z\xffne"))
        with pytest.raises(CorruptDataError, match=rf"cannot be read: .*0xff.*x\.{fmt}"):
            convert(path, tmp_path / "ds")

    def test_lengths_beyond_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "x.arrows"
        write_directly(pa.table({"a": list(range(1000))}), path, "arrows")
        sizes = [size.to_bytes(8, "little") for size in (8000, 2**60)]
        assert sizes[0] in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(*sizes))
        with pytest.raises(CorruptDataError, match=r"larger than memory.*x\.arrows"):
            convert(path, tmp_path / "ds")

    def test_compressions_that_a_format_does_not_have(self, tmp_path: Path) -> None:
        write_table(pa.table({"a": [1, 2]}), tmp_path / "ds")
        for fmt, bad in [
            ("parquet", "bzip2"),
            ("orc", "gzip"),
            ("arrow", "snappy"),
            ("avro", "lz4"),
        ]:
            with pytest.raises(OptionError, match=bad):
                convert(tmp_path / "ds", tmp_path / f"x.{fmt}", compression=bad)

    @pytest.mark.parametrize("fmt", ["tsv", *FORMATS])
    def test_a_level_changes_the_file_or_is_refused(self, tmp_path: Path, fmt: str) -> None:
        source = tmp_path / "in.arrow"
        words = [f"{n * n * 7919 % 10_007}" for n in range(20_000)]
        write_directly(pa.table({"a": words}), source, "arrow")

        def written(compression: str, level: int) -> list[bytes]:
            out = tmp_path / f"{compression}-{level}"
            convert(
                source,
                out,
                to_format=fmt,
                compression=compression,
                compression_level=level,
            )
            return list(data_files(out).values())

        found = get_format(fmt)
        for compression in found.compressions:
            if compression in found.leveled and compression not in ("snappy", "lz4"):
                assert written(compression, 1) != written(compression, 9)
                continue
            with pytest.raises(OptionError, match=rf"compression_level is 1, .*{compression}"):
                written(compression, 1)
            assert not (tmp_path / f"{compression}-1").exists()


@pytest.mark.parametrize("fmt", [*FORMATS, "arrows"])
def test_progress_counts_the_bytes_of_files(tmp_path: Path, fmt: str) -> None:
    data = pa.table({"a": range(1000)})
    path = tmp_path / f"x.{fmt}"
    if fmt == "arrows":
        write_directly(data, path, fmt)
    else:
        write_table(data, tmp_path / "in")
        convert(tmp_path / "in", path)
    seen: list[Any] = []
    convert(path, tmp_path / "ds", progress=seen.append)
    size = path.stat().st_size
    assert [(one.bytes_done, one.bytes, one.rows) for one in seen] == [(size, size, 1000)]


COMPRESSED: dict[str, dict[str | None, Any]] = {
    "parquet": {"gzip": "GZIP", "zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4"}
    | {"none": "UNCOMPRESSED", None: "SNAPPY"},
    "orc": {"deflate": "ZLIB", "zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4"}
    | {"none": "UNCOMPRESSED", None: "ZSTD"},
    "avro": {"deflate": "deflate", "bzip2": "bzip2", "none": "null", None: "deflate"},
    # What frames of Zstandard and of LZ4 begin with.
    "arrow": {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18", "none": None, None: None},
}


@pytest.mark.parametrize("fmt", COMPRESSED)
def test_what_files_are_compressed_with(tmp_path: Path, fmt: str) -> None:
    names = COMPRESSED[fmt]
    assert names.keys() == {*get_format(fmt).compressions, "none", None}
    write_directly(pa.table({"a": ["text"] * 1000}), tmp_path / "in.arrow", "arrow")
    for compression, name in names.items():
        path = tmp_path / f"{compression}.{fmt}"
        convert(tmp_path / "in.arrow", path, compression=compression)
        data = path.read_bytes()
        if fmt == "parquet":
            found = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
        elif fmt == "orc":
            found = po.ORCFile(path).compression
        elif fmt == "avro":
            found = fastavro.reader(io.BytesIO(data)).codec
        else:
            found = next((magic for magic in names.values() if magic and magic in data), None)
        assert found == name, compression


@pytest.mark.parametrize("fmt", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("scale", [-2, 7])
@pytest.mark.parametrize("is_list", [False, True])
def test_scales_of_decimals(tmp_path: Path, fmt: str, scale: int, is_list: bool) -> None:
    """pyarrow's writers end the process at such values, or name no column."""
    whole = pa.array([Decimal(123)], pa.decimal128(5, 0))
    values = pa.Array.from_buffers(pa.decimal128(5, scale), 1, whole.buffers())
    if is_list:
        values = pa.ListArray.from_arrays([0, 1], values)
    write_directly(pa.table({"ok": [1], "x": values}), tmp_path / "in.arrow", "arrow")
    before = tree(tmp_path)
    with pytest.raises(UnsupportedTypeError, match=f"'x' has the type .*{fmt}") as caught:
        convert(tmp_path / "in.arrow", tmp_path / f"x.{fmt}")
    assert caught.value.feature == "x"
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "t", [pa.binary(0), pa.list_(pa.int64(), 0), pa.list_(pa.binary(), 0), pa.list_(pa.binary(0))]
)
def test_parquet_has_no_values_without_length(tmp_path: Path, t: pa.DataType) -> None:
    """pyarrow's writer ends the process, or writes what it does not read."""
    value = b"" if t == pa.binary(0) else []
    write_directly(pa.table({"x": pa.array([value, None] * 20, t)}), tmp_path / "in.arrow", "arrow")
    before = tree(tmp_path)
    with pytest.raises(UnsupportedTypeError, match=r"'x' has the type .*parquet") as caught:
        convert(tmp_path / "in.arrow", tmp_path / "x.parquet")
    assert caught.value.feature == "x"
    assert tree(tmp_path) == before


@pytest.mark.parametrize("fmt", ["csv", "parquet", "orc", "arrow", "arrows"])
def test_two_columns_of_one_name(tmp_path: Path, fmt: str) -> None:
    data = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    path = tmp_path / f"x.{fmt}"
    write_directly(data, path, fmt)
    for schema in (None, pa.schema([("a", pa.int64())])):
        with pytest.raises(UnsupportedTypeError, match="two columns are named 'a'") as caught:
            convert(path, tmp_path / "ds", schema=schema)
        assert (caught.value.path, caught.value.feature) == (str(path), "a")
        assert not (tmp_path / "ds").exists()
    convert(path, tmp_path / "ds", schema=pa.schema([("b", pa.int64())]))
    all_equal(tmp_path / "ds", examples({"b": 2}))


class TestDetection:
    def test_names(self) -> None:
        assert format_of_name("a.parquet") == ("parquet", None)
        assert format_of_name("a.csv.gz") == ("csv", "gzip")
        assert format_of_name("a.TFRecord.zst") == ("tfrecord", "zstd")
        assert format_of_name("a.tfrecord-00003-of-00010") == ("tfrecord", None)
        assert format_of_name("a.csv.gz-00003-of-00010") == ("csv", "gzip")
        assert format_of_name("a.tfrecord-00003-of-00010.gz") == ("tfrecord", "gzip")
        assert format_of_name("a.record-00003-of-00010") == ("tfrecord", None)
        assert format_of_name("a.parquet-00003-of-00010.gz") is None
        assert format_of_name("a.parquet.gz") is None
        assert format_of_name("part-00000") is None

    @pytest.mark.parametrize(
        ("fmt", "compressed"),
        [
            *((fmt, False) for fmt in ("parquet", "orc", "arrow", "avro", "jsonl", "tfrecord")),
            *(("jsonl", True), ("tfrecord", True)),
        ],
    )
    def test_content(self, tmp_path: Path, fmt: str, compressed: bool) -> None:
        path = tmp_path / f"x.{fmt}"
        if fmt == "tfrecord":
            path.write_bytes(examples({"a": 1}))
        elif fmt == "avro":
            with path.open("wb") as file:
                fields = [{"name": "a", "type": "long"}]
                fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, [{"a": 1}])
        elif fmt == "jsonl":
            path.write_text('{"a": 1}\n')
        else:
            write_directly(pa.table({"a": [1]}), path, fmt)
        data = path.read_bytes()
        (tmp_path / "part-m-00000").write_bytes(gzip.compress(data) if compressed else data)
        result = convert(tmp_path / "part-m-00000", tmp_path / "ds", to_format="tfrecord")
        assert result.from_format == fmt
        all_equal(tmp_path / "ds", examples({"a": 1}))

    def test_an_empty_file_tells_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in/part-0").write_bytes(b"")
        (tmp_path / "in/part-1").write_bytes(examples({"a": 1}))
        convert(tmp_path / "in", tmp_path / "x.jsonl")
        assert (tmp_path / "x.jsonl").read_text() == '{"a":1}\n'

    def test_unknown(self, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(struct.pack("<Q", 5) + b"not a record")
        with pytest.raises(OptionError, match="from_format"):
            convert(tmp_path / "x.bin", tmp_path / "ds")
        (tmp_path / "empty").mkdir()
        with pytest.raises(OptionError, match="from_format"):
            convert(tmp_path / "empty", tmp_path / "ds")
        with pytest.raises(OptionError, match=r"from_format.*'xls'"):
            convert(tmp_path / "x.bin", tmp_path / "ds", from_format="xls")
        with pytest.raises(OptionError, match="'xls'"):
            get_format("xls")

    def test_several(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in/a.csv").write_text("a\n1\n")
        (tmp_path / "in/b.jsonl").write_text('{"a": 1}\n')
        with pytest.raises(OptionError, match=r"a\.csv.*b\.jsonl"):
            convert(tmp_path / "in", tmp_path / "ds")

    def test_a_folder_of_tensorflow_datasets(self, tmp_path: Path) -> None:
        folder = tmp_path / "mnist"
        folder.mkdir()
        (folder / "mnist-train.tfrecord-00000-of-00001").write_bytes(examples({"a": 1}))
        (folder / "dataset_info.json").write_text('{"name": "mnist", "version": "3.0.1"}')
        with pytest.raises(OptionError, match=r"jsonl files .*info.* tfrecord files .*-00001\)"):
            convert(folder, tmp_path / "ds", to_format="parquet")
        with pytest.raises(CorruptDataError, match=r"looks like JSON, .*, such as "):
            read_table(folder)
        convert(f"{folder}/*.tfrecord*", tmp_path / "ds", to_format="parquet")

    def test_a_folder_of_the_object_detection_api(self, tmp_path: Path) -> None:
        folder = tmp_path / "pets"
        folder.mkdir()
        (folder / "train.record").write_bytes(examples({"a": 1}))
        (folder / "label_map.pbtxt").write_text("item {\n  id: 1\n}\n")
        with pytest.raises(CorruptDataError, match=r"looks like text .* name them, .*pbtxt"):
            convert(folder, tmp_path / "ds", to_format="parquet")
        convert(f"{folder}/*.record", tmp_path / "ds", to_format="parquet")


FAR = {
    "day": pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()),
    "time": pa.array([0, 2**62]).cast(pa.timestamp("us")),
    "zoned": pa.array([0, -(2**62)]).cast(pa.timestamp("us", "UTC")),
    "list": pa.array([[0, 1], [2**60]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ms"))),
}


@pytest.mark.parametrize("name", [*FAR][:3])
def test_csv_texts_of_far_times_are_refused(tmp_path, name):
    """pyarrow's texts of them are no times, or other ones."""
    data, out = str(tmp_path / "data"), tmp_path / "out.csv"
    write_table(pa.table({name: FAR[name]}), data)
    with pytest.raises(EncodeError, match=rf"'{name}' has a time beyond .* row 1,"):
        convert(data, out)
    assert not out.exists()


@pytest.mark.parametrize("suffix", ["avro", "jsonl"])
def test_far_times_are_held(tmp_path, suffix):
    table = pa.table(FAR)
    write_table(table, tmp_path / "data")
    convert(tmp_path / "data", tmp_path / f"out.{suffix}")
    convert(tmp_path / f"out.{suffix}", tmp_path / "back", schema=table.schema)
    assert read_table(tmp_path / "back").cast(table.schema).equals(table)


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (pa.date32(), "+5881580-07-12"),
        (pa.timestamp("us"), "+294247-01-10T04:00:54.775808"),
        (pa.timestamp("ns"), "+10000-01-01T00:00:00"),
        (pa.timestamp("s"), "+292277026597-12-04T15:30:08"),
        (pa.timestamp("s"), "+9999999999999-01-01T00:00:00"),
        (pa.timestamp("s"), "+10000-02-30T00:00:00"),
        (pa.timestamp("s", "UTC"), "+10000-01-01T00:00:00"),
    ],
)
def test_texts_that_are_no_far_times_of_a_type_are_refused(tmp_path, t, text):
    (tmp_path / "x.jsonl").write_text('{"x": "1970-01-01"}\n' + json.dumps({"x": text}))
    with pytest.raises(SchemaMismatchError, match="'x'"):
        convert(tmp_path / "x.jsonl", tmp_path / "out", schema=pa.schema({"x": t}))


def arrow_file(path: Path, values: pa.Array) -> Path:
    write_directly(pa.table({"ok": pa.nulls(len(values), pa.int64()), "x": values}), path, "arrow")
    return path


@pytest.mark.parametrize("fmt", ["parquet", "avro"])
@pytest.mark.parametrize("tz", [None, "UTC"])
@pytest.mark.parametrize("is_list", [False, True])
def test_seconds_beyond_those_of_a_format(tmp_path, fmt, tz, is_list):
    """Both hold milliseconds."""
    last = (2**63 - 1) // 1000
    for beyond in (last + 1, -last - 1, 2**62):
        values = pa.array([last, -last, None, beyond, beyond]).cast(pa.timestamp("s", tz))
        if is_list:
            values = pa.ListArray.from_arrays([0, 1, 1, 3, 5], values)
        source, out = arrow_file(tmp_path / "in.arrow", values), tmp_path / f"x.{fmt}"
        with pytest.raises(
            EncodeError, match=rf"'x' .* does not fit .*{fmt}.*: .*{beyond}"
        ) as caught:
            convert(source, out)
        assert (caught.value.path, caught.value.feature) == (str(source), "x")
        assert caught.value.row == 3
        assert not out.exists()
        convert(arrow_file(tmp_path / "in.arrow", values[:3]), out)
        assert convert(out, tmp_path / "back.arrow").rows == 3
        with pa.ipc.open_file(tmp_path / "back.arrow") as reader:
            assert reader.read_all()["x"].cast(values.type).combine_chunks() == values[:3]
        out.unlink()
        (tmp_path / "back.arrow").unlink()


#: Milliseconds that are no date64 of whole days in 32 bits: a time of a day, and a far one.
NO_DAYS = [86_400_001, -1, 86_400_000 * 2**31]


def days(milliseconds: list[int | None], *, is_list: bool) -> pa.Array:
    values = pa.array(milliseconds, pa.int64()).view(pa.date64())
    return pa.ListArray.from_arrays(range(len(values) + 1), values) if is_list else values


@pytest.mark.parametrize(
    ("fmt", "is_list"),
    [(fmt, False) for fmt in ("parquet", "orc", "csv", "jsonl", "avro")]
    + [(fmt, True) for fmt in ("parquet", "orc", "jsonl", "avro")],
)
def test_dates_that_are_no_whole_days_are_refused(tmp_path, fmt, is_list):
    """pyarrow cuts the time of the day off; a far day overflows."""
    out = tmp_path / f"x.{fmt}"
    for milliseconds in NO_DAYS:
        values = days([0, None, 86_400_000, milliseconds, milliseconds], is_list=is_list)
        source = arrow_file(tmp_path / "in.arrow", values)
        with pytest.raises(EncodeError, match="'x'") as caught:
            convert(source, out)
        assert (caught.value.path, caught.value.feature) == (str(source), "x")
        assert caught.value.row == 3
        assert not out.exists()
    convert(arrow_file(tmp_path / "in.arrow", values[:3]), out)
    back = convert(out, tmp_path / "back.arrow", schema=pa.schema([("x", values.type)]))
    assert back.rows == 3
    with pa.ipc.open_file(tmp_path / "back.arrow") as reader:
        assert reader.read_all()["x"].combine_chunks() == values[:3]


def test_dates_in_arrow_files_stay(tmp_path):
    values = days([0, None, *NO_DAYS], is_list=False)
    convert(arrow_file(tmp_path / "in.arrow", values), tmp_path / "x.arrow")
    with pa.ipc.open_file(tmp_path / "x.arrow") as reader:
        assert reader.read_all()["x"].combine_chunks() == values


def test_avro_holds_far_days(tmp_path):
    values = days([86_400_000 * (2**31 - 1), 0, -86_400_000 * 2**31], is_list=False)
    convert(arrow_file(tmp_path / "in.arrow", values), tmp_path / "x.avro")
    schema = pa.schema([("x", pa.date64())])
    convert(tmp_path / "x.avro", tmp_path / "back.arrow", schema=schema)
    with pa.ipc.open_file(tmp_path / "back.arrow") as reader:
        assert reader.read_all()["x"].combine_chunks() == values


@pytest.mark.parametrize("number", [-1, 86_400_000_000])
@pytest.mark.parametrize(
    ("fmt", "is_list"),
    [("csv", False), ("parquet", False), ("jsonl", True), ("avro", False), ("avro", True)],
)
def test_times_that_are_of_no_day_are_refused(tmp_path, fmt, is_list, number):
    times = pa.array([0, 86_399_999_999, None, number]).cast(pa.time64("us"))
    if is_list:
        times = pa.ListArray.from_arrays([0, 1, 2, 3, 4], times)
    write_directly(pa.table({"n": [1] * 4, "x": times}), tmp_path / "x.arrow", "arrow")
    with pytest.raises(EncodeError, match="no time of a day") as caught:
        convert(tmp_path / "x.arrow", tmp_path / f"y.{fmt}")
    assert (caught.value.feature, caught.value.row) == ("x", 3)
    convert(tmp_path / "x.arrow", tmp_path / "same.arrow")
    with pa.ipc.open_file(tmp_path / "same.arrow") as file:
        assert file.read_all()["x"].combine_chunks().equals(times)


@pytest.mark.parametrize("t", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_of_dates_that_are_no_whole_days(tmp_path, t):
    schema = pa.schema([("x", t)])
    for milliseconds in NO_DAYS:
        source = arrow_file(tmp_path / "in.arrow", days([0, None, milliseconds], is_list=False))
        with pytest.raises(SchemaMismatchError, match="'x'") as caught:
            convert(source, tmp_path / "x.csv", schema=schema)
        assert (caught.value.path, caught.value.row) == (str(source), 2)
    source = arrow_file(tmp_path / "in.arrow", days([0, None], is_list=False))
    convert(source, tmp_path / "x.csv", schema=schema)
    assert (tmp_path / "x.csv").read_text() == '"x"\n"1970-01-01"\n\n'


#: The first and the last microseconds that fit 64 bits as nanoseconds.
NEAR = [-(2**63 // 1000), (2**63 - 1) // 1000]


def stamps(microseconds: list[int | None], *, tz: str | None, is_list: bool) -> pa.Array:
    values = pa.array(microseconds, pa.int64()).cast(pa.timestamp("us", tz))
    return pa.ListArray.from_arrays(range(len(values) + 1), values) if is_list else values


@pytest.mark.parametrize("tz", [None, "UTC"])
@pytest.mark.parametrize("is_list", [False, True])
def test_orc_holds_times_of_nanoseconds_alone(tmp_path, tz, is_list):
    """pyarrow writes others, and nobody who reads with pyarrow gets them back."""
    out = tmp_path / "x.orc"
    for beyond in (NEAR[0] - 1, NEAR[1] + 1):
        values = stamps([*NEAR, None, beyond, beyond], tz=tz, is_list=is_list)
        source = arrow_file(tmp_path / "in.arrow", values)
        message = r"'x' .* does not fit timestamp\[ns.*orc files.*: .*another format"
        with pytest.raises(EncodeError, match=message) as caught:
            convert(source, out)
        assert (caught.value.path, caught.value.feature) == (str(source), "x")
        assert caught.value.row == 3
        assert not out.exists()
    convert(arrow_file(tmp_path / "in.arrow", values[:3]), out)
    schema = pa.schema([("x", values.type)])
    convert(out, tmp_path / "back.arrow", schema=schema)
    with pa.ipc.open_file(tmp_path / "back.arrow") as reader:
        assert reader.read_all()["x"].cast(values.type).combine_chunks() == values[:3]


@pytest.mark.parametrize("is_list", [False, True])
def test_orc_files_with_times_that_arrow_cannot_read(tmp_path, is_list):
    path, near = tmp_path / "x.orc", pa.array([1, 2]).cast(pa.timestamp("us"))
    far = stamps([0, NEAR[1] + 1], tz=None, is_list=is_list)
    write_directly(pa.table({"a": [1, 2], "near": near, "x": far, "z": [3, 4]}), path, "orc")
    with pytest.raises(SchemaMismatchError, match=r"'x' .*1677 to 2262.* with columns") as caught:
        convert(path, tmp_path / "ds")
    assert (caught.value.path, caught.value.feature) == (str(path), "x")
    assert not (tmp_path / "ds").exists()
    convert(path, tmp_path / "ds", columns=["a", "z"])
    all_equal(tmp_path / "ds", examples({"a": 1, "z": 3}, {"a": 2, "z": 4}))


EXTENSIONS = [pa.json_(), pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.int64(), [1])]
KEYED = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.bool_()),
]


@pytest.mark.parametrize(
    ("fmt", "t"),
    [*(("csv", t) for t in [*EXTENSIONS, *KEYED]), *(("jsonl", t) for t in EXTENSIONS)],
)
def test_types_that_no_text_is_read_as(tmp_path, fmt, t):
    """The file is sound; the schema asks for what pyarrow does not parse."""
    path = tmp_path / f"x.{fmt}"
    path.write_text("y,x\n1,2\n" if fmt == "csv" else '{"y": 1, "x": 2}\n')
    schema = pa.schema([("y", pa.int64()), ("x", t)])
    with pytest.raises(UnsupportedTypeError, match=r"'x' is asked for as .*another type") as caught:
        convert(path, tmp_path / "ds", schema=schema)
    assert (caught.value.path, caught.value.feature) == (str(path), "x")
    assert not (tmp_path / "ds").exists()


DECIMALS = [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)]


@pytest.mark.parametrize("t", DECIMALS)
def test_decimals_in_csv(tmp_path, t):
    path, schema = tmp_path / "x.csv", pa.schema([("x", t)])
    path.write_text("x,y\n 1.5 ,\n,\n-999.99,\n1e2,\n")
    convert(path, tmp_path / "x.arrow", schema=schema)
    with pa.ipc.open_file(tmp_path / "x.arrow") as reader:
        values = reader.read_all()["x"].to_pylist()
    assert values == [Decimal("1.50"), None, Decimal("-999.99"), Decimal("100.00")]
    for bad in ("1000", "1.505", "x", '""'):
        path.write_text(f"x,y\n1,\n{bad},\n")
        with pytest.raises(SchemaMismatchError, match="'x'") as caught:
            convert(path, tmp_path / "ds", schema=schema)
        assert (caught.value.path, caught.value.row) == (str(path), 1)


@pytest.mark.parametrize(
    ("t", "bad"),
    [
        (pa.bool_(), "yes"),
        (pa.date32(), "2026-02-30"),
        (pa.timestamp("s"), "soon"),
        (pa.time32("s"), "24:00:01"),
        (pa.uint8(), "256"),
        (pa.binary(2), "abc"),
    ],
)
@pytest.mark.parametrize("columns", ["xy", "yx", "x"])
def test_texts_in_csv_that_are_no_values_of_a_type(tmp_path, t, bad, columns):
    path, schema = tmp_path / "x.csv", pa.schema([("x", t), ("y", pa.int64())])
    path.write_text(f"z,y,x\n,1,\n,2,{bad}\n")
    schema = pa.schema([schema.field(name) for name in columns])
    told = f"does not fit its column.*{bad if t != pa.binary(2) else '3-byte'}.*another type"
    with pytest.raises(SchemaMismatchError, match=told) as caught:
        convert(path, tmp_path / "ds", schema=schema)
    error = caught.value
    assert (error.path, error.feature, error.row) == (str(path), "x", 1)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("t", DECIMALS)
def test_texts_in_json_that_are_no_decimals(tmp_path, t):
    path = tmp_path / "x.jsonl"
    path.write_text('{"x": 1}\n{"x": "a"}\n')
    with pytest.raises(SchemaMismatchError, match="'a' is not a valid decimal") as caught:
        convert(path, tmp_path / "ds", schema=pa.schema([("x", t)]))
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("last", "error", "told"),
    [
        ('{"x": "a", "y": 1e2}', SchemaMismatchError, "'x' holds a, which is no decimal"),
        ('{"x": "NaN", "y": 1e2}', SchemaMismatchError, "'x' holds NaN, which is no decimal"),
        ('{"x": 1e-99999999999999999999}', SchemaMismatchError, "'x' holds 1e-9.*no decimal"),
        ('{"x": 1e2, "y": }', CorruptDataError, "cannot be read: Expecting value at character 16"),
    ],
)
def test_what_comes_behind_numbers_that_pyarrow_may_change(
    tmp_path, monkeypatch, last, error, told
):
    # The whole file is looked at for such numbers.
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 64)
    path = tmp_path / "x.jsonl"
    path.write_text('{"x": 1e2}\n' * 20 + last + "\n")
    with pytest.raises(error, match=told) as caught:
        convert(path, tmp_path / "ds", schema=pa.schema([("x", pa.decimal128(5, 2))]))
    assert caught.value.path == str(path)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("digits", ["1" * 308 + "2", "9" * 309, "-" + "2" * 309, "1" * 5000])
@pytest.mark.parametrize("t", [pa.float32(), pa.float64()])
def test_digits_behind_a_large_number_that_no_float_has(tmp_path, monkeypatch, digits, t):
    # Behind one that pyarrow may have changed the whole file is looked at for such.
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 64)
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"x": {2**53}}}\n' * 20 + f'{{"x": {digits}}}\n')
    with pytest.raises(
        SchemaMismatchError, match=f"'x' holds {digits[:9]}.*, which is no {t}"
    ) as caught:
        convert(path, tmp_path / "ds", schema=pa.schema([("x", t)]))
    assert (caught.value.path, caught.value.feature) == (str(path), "x")


def test_a_decimal_of_json_is_zero_with_any_exponent(tmp_path):
    path, schema = tmp_path / "x.jsonl", pa.schema([("x", pa.decimal128(5, 2))])
    path.write_text('{"x": 0e2}\n{"x": 0e-99}\n{"x": 0.000000}\n{"x": -0}\n')
    convert(path, tmp_path / "ds", schema=schema)
    assert read_table(tmp_path / "ds")["x"].to_pylist() == [Decimal("0.00")] * 4


@pytest.mark.parametrize("t", DECIMALS)
@pytest.mark.parametrize("is_list", [False, True])
def test_decimals_in_json(tmp_path, t, is_list):
    path, schema = tmp_path / "x.jsonl", pa.schema([("x", pa.list_(t) if is_list else t)])
    texts = ["1.5", "null", "-999.99", "1e2"]

    def write(texts):
        lines = [f'{{"x": {f"[{text}]" if is_list else text}}}\n' for text in texts]
        path.write_text("".join(lines))

    write(texts)
    convert(path, tmp_path / "x.arrow", schema=schema)
    with pa.ipc.open_file(tmp_path / "x.arrow") as reader:
        values = reader.read_all()["x"].to_pylist()
    expected = [Decimal("1.50"), None, Decimal("-999.99"), Decimal("100.00")]
    assert values == ([[value] for value in expected] if is_list else expected)
    for bad in ("1000", "1.505"):
        write(["1", bad])
        with pytest.raises(SchemaMismatchError) as caught:
            convert(path, tmp_path / "ds", schema=schema)
        assert caught.value.path == str(path)
        # pyarrow tells no row where it refuses by itself.
        assert bad != "1000" or (caught.value.feature, caught.value.row) == ("x", 1)


@pytest.mark.parametrize("head", [b"\n" * 100, b""], ids=["blank lines", "at once"])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_first_line_that_is_longer_than_a_block(tmp_path, monkeypatch, head, is_compressed):
    # pyarrow calls a file empty whose first block has no whole line.
    monkeypatch.setattr(text, "_BLOCK_BYTES", 64)
    names = [f"column{n}" for n in range(100)]
    data = head + ",".join(names).encode() + b"\n" + b",".join([b"1"] * 100) + b"\n"
    path = tmp_path / ("t.csv.gz" if is_compressed else "t.csv")
    path.write_bytes(gzip.compress(data) if is_compressed else data)
    assert convert(path, tmp_path / "t", scheduler="synchronous").rows == 1
    assert read_table(tmp_path / "t").to_pylist() == [dict.fromkeys(names, 1)]


def test_a_first_line_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(text, "_MOST_BLOCK_BYTES", 128)
    (tmp_path / "t.csv").write_bytes(b"a" * 1000 + b"\n1\n")
    with pytest.raises(CorruptDataError, match=r"first line is longer.*t\.csv"):
        convert(tmp_path / "t.csv", tmp_path / "t", scheduler="synchronous")
    (tmp_path / "t.csv").write_bytes(b"\n" * 100)
    assert convert(tmp_path / "t.csv", tmp_path / "u", scheduler="synchronous").rows == 0


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize(
    "value",
    [pa.binary(), pa.list_(pa.int32()), pa.list_(pa.date32()), pa.list_(pa.list_(pa.date32(), 1))],
    ids=str,
)
def test_arrow_files_whose_offsets_lead_out_of_their_buffers(tmp_path, make, value):
    # What stands in memory behind the buffer would be given as values.
    four = b"AAAA" if pa.types.is_binary(value) else [None] * 4
    table = pa.table({"b": pa.array([four, None, four], value)})
    path = tmp_path / "t.arrow"
    with make(path, table.schema) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    offsets, forged = struct.pack("<4i", 0, 4, 4, 8), struct.pack("<4i", 0, 65540, 4, 8)
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, forged))
    with pytest.raises(CorruptDataError, match=r"cannot be read: .*t\.arrow"):
        convert(path, tmp_path / "t.parquet", scheduler="synchronous")
    assert [one.name for one in tmp_path.iterdir()] == ["t.arrow"]


@pytest.mark.parametrize("is_list", [False, True])
def test_arrow_files_whose_nulls_are_miscounted(tmp_path, is_list):
    buffers = pa.array([1, None, 3]).buffers()
    values = pa.Array.from_buffers(pa.timestamp("us"), 3, buffers, null_count=2)
    if is_list:
        values = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), values)
    write_directly(pa.table({"t": values}), tmp_path / "t.arrow", "arrow")
    with pytest.raises(CorruptDataError, match=r"cannot be read: .*null_count.*t\.arrow"):
        convert(tmp_path / "t.arrow", tmp_path / "ds")


def test_arrow_files_whose_dictionaries_have_no_such_index(tmp_path):
    days, index = pa.array([DAY, None]), pa.array([0, 1, None, 7])
    for size, path in [(3, tmp_path / "good.arrow"), (4, tmp_path / "bad.arrow")]:
        values = pa.DictionaryArray.from_arrays(index[:size], days, safe=False)
        write_directly(pa.table({"t": values}), path, "arrow")
    convert(tmp_path / "good.arrow", tmp_path / "ds")
    assert read_table(tmp_path / "ds")["t"].to_pylist() == [DAY, None, None]
    with pytest.raises(CorruptDataError, match=r"cannot be read: .*7 out of bounds.*bad\.arrow"):
        convert(tmp_path / "bad.arrow", tmp_path / "no")


@pytest.mark.parametrize("fmt", ["csv", "parquet", "avro"])
@pytest.mark.parametrize("t", [pa.int64(), pa.float64()])
def test_errors_quote_no_whole_values(tmp_path, fmt, t):
    path, value = tmp_path / f"x.{fmt}", "x" * 1_000_000
    if fmt == "avro":
        TestAvro().write(path, [{"name": "a", "type": "string"}], {"a": value})
    else:
        write_directly(pa.table({"a": [value]}), path, fmt)
    with pytest.raises(SchemaMismatchError, match=r"xxx \.\.\. ") as caught:
        convert(path, tmp_path / "ds", schema=pa.schema([("a", t)]))
    assert caught.value.row == 0
    assert len(caught.value.what) < 700


@pytest.mark.parametrize("fmt", ["csv", "jsonl"])
def test_damaged_compression(tmp_path, fmt):
    path = tmp_path / f"x.{fmt}.gz"
    data = gzip.compress(b'{"a": 1}\n' * 1000 if fmt == "jsonl" else b"a\n" + b"1\n" * 1000)
    for damaged in (data[:-10], data[:-6] + b"\0" * 6):
        path.write_bytes(damaged)
        with pytest.raises(CompressionError) as caught:
            convert(path, tmp_path / "ds")
        assert caught.value.path == str(path)


def decimal_type(rng: random.Random) -> pa.DataType:
    make, most = rng.choice([(pa.decimal128, 38), (pa.decimal256, 76), (pa.decimal32, 9)])
    precision = rng.randrange(1, most + 1)
    return make(precision, rng.randrange(precision + 1))


def decimal_text(rng: random.Random) -> str:
    digits = "".join(rng.choices("0129", k=rng.choice([3, 9, 40, 80, 200]))).lstrip("0") or "1"
    point = rng.randrange(1, len(digits) + 1)
    text = digits[:point] + (f".{digits[point:]}" if point < len(digits) else "")
    exponent = rng.choice(["", "", f"e{rng.randrange(-90, 90)}", "e-400", "e400", "E4294967297"])
    return rng.choice(["", "-"]) + text + exponent


def held(text: str, t: pa.DataType) -> bool:
    """Whether a decimal type holds a number, as Python sees it."""
    number = Decimal(text).normalize(Context(prec=1000, Emax=10**12, Emin=-(10**12)))
    exponent = number.as_tuple().exponent
    fits = -t.scale <= exponent and number.adjusted() < t.precision - t.scale
    return not number or fits


@pytest.mark.parametrize("form", ["text", "decimal", "jsonl"])
def test_decimals_never_overflow_in_silence(tmp_path: Path, form: str) -> None:
    """pyarrow's arithmetic does, in casts and in its parser of JSON."""
    rng = random.Random(7)
    kept = 0
    for _ in range(2000 if form != "jsonl" else 250):
        t, text = decimal_type(rng), decimal_text(rng)
        array = pa.array([text])
        if form == "decimal":
            if not held(text, pa.decimal256(76, 40)):
                continue
            array = pa.array([Decimal(text)], pa.decimal256(76, 40))
        try:
            if form == "jsonl":
                text_in_json = rng.choice([text, f'"{text}"'])
                (tmp_path / "x.jsonl").write_text(f'{{"x": {text_in_json}}}')
                convert(tmp_path / "x.jsonl", tmp_path / "x.arrow", schema=pa.schema({"x": t}))
                array = pa.ipc.open_file(tmp_path / "x.arrow").read_all()["x"]
                (tmp_path / "x.arrow").unlink()
            found = exact_cast(array, t)[0].as_py()
        except (pa.ArrowInvalid, SchemaMismatchError, CorruptDataError):
            continue
        assert held(text, t), text
        assert found == Decimal(text), (text, t)
        kept += 1
    assert kept > 5


def test_decimals_in_texts_with_a_plus() -> None:
    found = exact_cast(pa.array(["+1.5", "0.00", "-0"]), pa.decimal128(5, 2))
    assert found.to_pylist() == [Decimal("1.50"), Decimal(0), Decimal(0)]


def test_a_message_shows_no_long_number(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"x": {"9" * 100_000}}}')
    for t in (pa.float64(), pa.decimal128(9, 2), pa.int64()):
        with pytest.raises((SchemaMismatchError, CorruptDataError)) as caught:
            convert(tmp_path / "x.jsonl", tmp_path / "ds", schema=pa.schema({"x": t}))
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie"])
def test_tables_whose_log_says_which_files_count(tmp_path: Path, log: str) -> None:
    table = tmp_path / "table"
    (table / log).mkdir(parents=True)
    for name in ("old", "new"):
        pq.write_table(pa.table({"x": [name]}), table / f"{name}.parquet")
    schema = pa.schema([("x", pa.string())])
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"x": ["plain"]}), tmp_path / "plain" / "x.parquet")
    for source in (table, f"{table}/*.parquet", f"{tmp_path}/t*", [tmp_path / "plain", table]):
        for given in (None, schema):
            with pytest.raises(OptionError, match=log):
                convert(source, tmp_path / "ds", schema=given)
    convert([table / "new.parquet"], tmp_path / "ds")
    all_equal(tmp_path / "ds", examples({"x": "new"}))


class TestInt96:
    """Timestamps as Spark writes them to Parquet files, which pyarrow makes others in silence."""

    FAR = dt.datetime(9999, 12, 31)

    def write(self, path: Path, values: list[Any], t: pa.DataType) -> None:
        table = pa.table({"n": range(len(values)), "x": pa.array(values, t)})
        pq.write_table(table, path, row_group_size=2, use_deprecated_int96_timestamps=True)

    @pytest.mark.parametrize("is_list", [False, True])
    def test_beyond_nanoseconds(self, tmp_path: Path, is_list: bool) -> None:
        source, target = tmp_path / "x.parquet", tmp_path / "out"
        values = [STAMP, None, None, STAMP, self.FAR]
        t = pa.timestamp("us")
        if is_list:
            values, t = [value and [value] for value in values], pa.list_(t)
        self.write(source, values, t)
        with pytest.raises(SchemaMismatchError, match=r"1677 to 2262.*microseconds") as caught:
            convert(source, target)
        assert (caught.value.path, caught.value.row, caught.value.feature) == (str(source), 4, "x")
        convert(source, target, columns=["n"])
        schema = pa.schema([("x", t)])
        convert(source, target, schema=schema, mode="overwrite")
        assert read_table(target).equals(pa.table({"x": pa.array(values, t)}))

    def test_finer_than_microseconds(self, tmp_path: Path) -> None:
        source, target = tmp_path / "x.parquet", tmp_path / "out"
        values, t = [0, -1, None], pa.timestamp("ns")
        self.write(source, values, t)
        convert(source, target, columns=["x"])
        assert read_table(target).equals(pa.table({"x": pa.array(values, t)}))
        schema = pa.schema([("x", pa.timestamp("us"))])
        with pytest.raises(SchemaMismatchError, match=r"that microseconds cannot tell") as caught:
            convert(source, target, schema=schema, mode="overwrite")
        assert (caught.value.row, caught.value.feature) == (1, "x")


#: By Spark 4.3: 2020-01-01, 1500-01-01 and 1582-10-15.
ORC_OF_SPARK = (
    "T1JDCgYSBAgDUAAKFAoCAAASDggDOggIjfoUEKydAlAAbgIAjqwFPQ0EUOUKBggGEAAYCAoGCAYQARgWCgYIARABGAsS"
    "AggAEgIIAgoYCgQIA1AAChAIAzoICI36FBCsnQJQAFgLCAMQTBoKCAMQHhgLICAoAyIICAwSAQEaAWQiAggPKiEKGG9y"
    "Zy5hcGFjaGUuc3BhcmsudmVyc2lvbhIFNC4zLjAwAzoECANQADoQCAM6CAiN+hQQrJ0CUABYC0CQTkgAWAFiBTIuMy4w"
    "CGkQACICAAwoGjAJgvQDA09SQxM="
)


def test_old_days_in_orc_by_spark(tmp_path: Path) -> None:
    """pyarrow reads 1500-01-10."""
    (tmp_path / "x.orc").write_bytes(base64.b64decode(ORC_OF_SPARK))
    with pytest.raises(SchemaMismatchError, match=r"before 1582-10-15.* calendar") as caught:
        convert(tmp_path / "x.orc", tmp_path / "x.arrow")
    assert (caught.value.path, caught.value.feature) == (str(tmp_path / "x.orc"), "d")
    assert caught.value.row == 1
    # Others' writers know one calendar.
    po.write_table(pa.table({"d": [dt.date(1500, 1, 1)]}), tmp_path / "y.orc")
    convert(tmp_path / "y.orc", tmp_path / "y.arrow")
    with pa.ipc.open_file(tmp_path / "y.arrow") as reader:
        assert reader.read_all()["d"].to_pylist() == [dt.date(1500, 1, 1)]


def test_old_days_in_orc_by_the_writer_that_its_footer_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, old = dt.date(1582, 10, 15), dt.date(1582, 10, 14)
    days = pa.table({"d": [first] * 100_000 + [old]})
    path = tmp_path / "x.orc"
    po.write_table(days, path, stripe_size=65_536, compression="uncompressed")
    assert po.ORCFile(path).nstripes > 1
    content = path.read_bytes()
    footer = len(content) - 200
    # The field of the writer is 1 for C++; 99 is nobody yet.
    assert content.count(b"\x48\x01", footer) == 1
    path.write_bytes(content[:footer] + content[footer:].replace(b"\x48\x01", b"\x48\x63"))
    convert(path, tmp_path / "x.arrow")
    with pa.ipc.open_file(tmp_path / "x.arrow") as reader:
        assert reader.read_all().equals(days)
    # Java's.
    path.write_bytes(content[:footer] + content[footer:].replace(b"\x48\x01", b"\x48\x00"))
    for piece_bytes, row in ((base.PIECE_BYTES, 100_000), (1, None)):
        # Footers do not tell pyarrow how many rows stand before a stripe.
        monkeypatch.setattr("tfrecord_io.formats.base.PIECE_BYTES", piece_bytes)
        with pytest.raises(SchemaMismatchError, match="another calendar") as caught:
            convert(path, tmp_path / "no.arrow")
        assert caught.value.row == row


ROWS_OF_SPARK = {"org.apache.spark.sql.parquet.row.metadata": "{}"}


@pytest.mark.parametrize(
    ("metadata", "is_old"),
    [
        (None, False),
        ({}, False),
        ({"org.apache.spark.version": "3.5.0"} | ROWS_OF_SPARK, False),
        ({"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyDateTime": ""}, True),
        ({"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyINT96": ""}, True),
        ({"org.apache.spark.version": "2.4.8"} | ROWS_OF_SPARK, True),
        (ROWS_OF_SPARK, True),
    ],
)
@pytest.mark.parametrize("int96", [False, True])
def test_old_times_in_parquet_by_spark(
    tmp_path: Path, metadata: dict[str, str] | None, is_old: bool, int96: bool
) -> None:
    first, second = dt.date(1582, 10, 15), dt.datetime(1900, 1, 1)
    day = dt.timedelta(days=1)
    tables = [
        pa.table({"n": [1, 2, 3], "d": [None, first, first], "t": [[second], [], [second, None]]}),
        pa.table({"d": [first, first - day], "t": [[second], [second]]}),
        pa.table({"d": [first, None], "t": [[second], [None, second - day]]}),
    ]
    for number, table in enumerate(tables):
        path = tmp_path / f"{number}.parquet"
        with pq.ParquetWriter(
            path, table.schema, use_deprecated_int96_timestamps=int96, store_schema=False
        ) as writer:
            writer.write_table(table, row_group_size=1)
            if metadata is not None:
                writer.add_key_value_metadata(metadata)
        if is_old and number:
            with pytest.raises(SchemaMismatchError, match="another calendar") as caught:
                convert(path, tmp_path / "no.arrow")
            assert (caught.value.path, caught.value.row) == (str(path), 1)
            assert caught.value.feature == ("d" if number == 1 else "t")
        else:
            convert(path, tmp_path / "x.arrow", mode="overwrite")
            with pa.ipc.open_file(tmp_path / "x.arrow") as reader:
                assert reader.read_all().to_pydict() == table.to_pydict()


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        # Of a dictionary pyarrow would forget the values.
        (1, pa.dictionary(pa.int8(), pa.int64()), pa.null()),
        ("a", pa.dictionary(pa.int8(), pa.large_string()), pa.null()),
        # Bytes that are a number by their digits.
        (b"1e400", pa.binary(), pa.float64()),
        (b"2e-324", pa.binary_view(), pa.float32()),
        (b"9007199254740993", pa.large_binary(), pa.float64()),
        (b"9" * 39, pa.binary(), pa.decimal128(38, 0)),
        (b"\xff", pa.binary(), pa.float64()),
        # Hexadecimal digits that are the bits of -1.
        ("0xff", pa.string(), pa.int8()),
        ("0xFFFFFFFFFFFFFFFF", pa.string_view(), pa.int64()),
        (b"0xffff", pa.binary(), pa.int16()),
        # Zeros behind a decimal that an integer has no room for.
        (-558477, pa.decimal32(7, -7), pa.int32()),
        (1628, pa.decimal32(9, -9), pa.int32()),
        # Years that are longer than texts of times, and offsets with seconds.
        (2**31 - 1, pa.date32(), pa.string()),
        (2**62, pa.timestamp("s"), pa.string_view()),
        (2**62, pa.timestamp("s", "America/New_York"), pa.string()),
        (2**63 - 1, pa.timestamp("ns", "Europe/Berlin"), pa.large_string()),
        (-62135596800, pa.timestamp("s", "Europe/Berlin"), pa.string()),
        # Times that no day has.
        (86_400, pa.time32("s"), pa.string()),
        (-1, pa.time32("ms"), pa.large_string()),
        (86_400 * 10**6, pa.time64("us"), pa.string_view()),
        (2**62, pa.time64("ns"), pa.string()),
        # A day has no zone.
        (0, pa.date32(), pa.timestamp("s", "UTC")),
        (0, pa.date64(), pa.timestamp("ms", "America/New_York")),
        (0, pa.timestamp("s", "UTC"), pa.date32()),
        (0, pa.timestamp("us", "+05:30"), pa.date64()),
    ],
    ids=str,
)
def test_what_a_type_cannot_say_is_refused(
    value: Any, source: pa.DataType, target: pa.DataType, is_list: bool
) -> None:
    if isinstance(value, int) and not pa.types.is_dictionary(source):
        data = pa.py_buffer(value.to_bytes(source.bit_width // 8, "little", signed=True))
        array = pa.Array.from_buffers(source, 1, [None, data])
    else:
        array = pa.array([value], source)
    if is_list:
        array = pa.ListArray.from_arrays([0, 1], array)
        target = pa.list_(target)
    with pytest.raises(pa.ArrowInvalid):
        exact_cast(array, target)
    assert exact_cast(array.slice(1), target).type == target
    nulls = pa.array([None], array.type)
    assert exact_cast(nulls, target).to_pylist() == [None]


@pytest.mark.parametrize(
    ("array", "target", "values"),
    [
        (pa.array([b"1.5", b"0", None]), pa.float64(), [1.5, 0.0, None]),
        (
            pa.array(["1.5", "+0", "9007199254740992"], pa.string_view()),
            pa.float32(),
            [1.5, 0.0, 2.0**53],
        ),
        (pa.array(["+1", "0"], pa.string_view()), pa.decimal128(3, 1), [1, 0]),
        (pa.array([b"-1", b"0x7f"]), pa.int8(), [-1, 127]),
        (pa.array(["0xff"]), pa.uint8(), [255]),
        (pa.array([Decimal("12e5")], pa.decimal32(3, -5)), pa.int32(), [1200000]),
        (
            pa.array([0], pa.timestamp("s", "America/New_York")),
            pa.string(),
            ["1969-12-31 19:00:00-0500"],
        ),
        (pa.array([dt.date(9999, 12, 31)]), pa.string(), ["9999-12-31"]),
        (
            pa.array([dt.time(0), dt.time(23, 59, 59)], pa.time32("s")),
            pa.string(),
            ["00:00:00", "23:59:59"],
        ),
        (pa.array([dt.date(2024, 2, 29)]), pa.timestamp("ns"), [dt.datetime(2024, 2, 29)]),
    ],
)
def test_what_a_type_can_say_is_cast(
    array: pa.Array, target: pa.DataType, values: list[Any] | None
) -> None:
    found = exact_cast(array, target)
    assert found.type == target
    if values is not None:
        assert found.to_pylist() == values


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "jsonl", "tfrecord"])
def test_nulls_among_the_values_of_a_dictionary_are_nulls(tmp_path: Path, fmt: str) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["x", None])
    write_directly(pa.table([column], names=["a"]), tmp_path / "x.arrow", "arrow")
    schema = pa.schema([pa.field("a", column.type, nullable=False)])
    with pytest.raises(EncodeError, match="not nullable") as caught:
        convert(tmp_path / "x.arrow", tmp_path / f"y.{fmt}", schema=schema)
    assert (caught.value.feature, caught.value.row) == ("a", 1)


@pytest.mark.parametrize("t", [pa.int8(), pa.int64(), None])
def test_hexadecimal_numbers_in_csv(tmp_path: Path, t: pa.DataType | None) -> None:
    schema = None if t is None else pa.schema({"x": t})
    (tmp_path / "x.csv").write_text("x\n 0x7f\n-1\n")
    convert(tmp_path / "x.csv", tmp_path / "x.arrow", schema=schema)
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all()["x"].to_pylist() == [127, -1]
    digits = "0xff" if t == pa.int8() else "0xffffffffffffffff"
    (tmp_path / "x.csv").write_text(f"x\n1\n{digits}\n")
    with pytest.raises(SchemaMismatchError, match=f"{digits} would become -1") as caught:
        convert(tmp_path / "x.csv", tmp_path / "y.arrow", schema=schema)
    assert caught.value.row == 1


@pytest.mark.parametrize("make", [pa.ListViewArray, pa.LargeListViewArray])
@pytest.mark.parametrize("kind", ["list", "large", "view", "fixed"])
def test_list_views_inside_lists(tmp_path: Path, make: Any, kind: str) -> None:
    index = pa.int32() if make is pa.ListViewArray else pa.int64()
    starts, sizes = pa.array([3, 0, 0, 1], index), pa.array([1, 2, 0, 3], index)
    is_null = pa.array([False, False, True, False])
    views = make.from_arrays(starts, sizes, pa.array([1, 2, 3, 4]), mask=is_null)
    offsets = pa.array([0, 2, 4], pa.int64() if kind == "large" else pa.int32())
    array = {
        "list": lambda: pa.ListArray.from_arrays(offsets, views),
        "large": lambda: pa.LargeListArray.from_arrays(offsets, views),
        "view": lambda: pa.ListViewArray.from_arrays(
            pa.array([0, 2], pa.int32()), pa.array([2, 2], pa.int32()), views
        ),
        "fixed": lambda: pa.FixedSizeListArray.from_arrays(views, 2),
    }[kind]()
    rows = [[[4], [1, 2]], [None, [2, 3, 4]]]
    t = pa.list_(pa.list_(pa.int16()))
    for part, values in ((array, rows), (array[1:], rows[1:]), (array[:0], [])):
        found = exact_cast(part, t)
        found.validate(full=True)
        assert found.to_pylist() == values
    table = pa.table({"x": array})
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    convert(tmp_path / "x.arrow", tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet")["x"].to_pylist() == rows
    kept = filter_batch(
        table.to_batches()[0], pc.list_value_length(pc.list_element(pc.field("x"), 1)) > 2, ["x"]
    )
    assert kept["x"].to_pylist() == rows[1:]


def test_lists_that_are_all_null(tmp_path: Path) -> None:
    t = pa.list_(pa.dictionary(pa.int8(), pa.string()), 2)
    pq.write_table(pa.table({"x": pa.nulls(3, pa.list_(pa.string()))}), tmp_path / "x.parquet")
    convert(tmp_path / "x.parquet", tmp_path / "x.arrow", schema=pa.schema({"x": t}))
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all()["x"].null_count == 3


def test_lists_of_another_length(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([[1, 2]], pa.list_(pa.int64(), 2))})
    pq.write_table(table, tmp_path / "x.parquet")
    t = pa.list_(pa.int64(), 3)
    with pytest.raises(SchemaMismatchError, match="not the same") as caught:
        convert(tmp_path / "x.parquet", tmp_path / "x.arrow", schema=pa.schema({"x": t}))
    assert caught.value.row == 0
