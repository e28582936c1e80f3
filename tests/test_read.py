import bz2
import datetime
import functools
import gzip
import itertools
import os
import pickle
import zlib
from decimal import Decimal
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from tests.support import wire
from tests.support.frames import example, examples, frame, records, sequence_example
from tfrecord_io.compression import compressor
from tfrecord_io.engines.local import count_rows, infer_schema, read_table, scan, write_table
from tfrecord_io.errors import (
    ChecksumError,
    CorruptDataWarning,
    DatasetChangedError,
    InferenceError,
    InferenceWarning,
    LayoutError,
    LimitExceededError,
    ManifestError,
    OptionError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from tfrecord_io.formats.exact import leaves
from tfrecord_io.manifest import Manifest, ManifestFile
from tfrecord_io.options import Limits
from tfrecord_io.reading.cuts import packed
from tfrecord_io.reading.files import Selection
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.reading.tasks import read_task

ROWS = [
    {"n": 1, "x": 0.5, "s": "one", "b": b"\xff", "l": [1, 2]},
    {"n": 2, "x": None, "s": "two", "b": b"\x00", "l": []},
    {"n": None, "x": 1.5, "s": None, "b": None, "l": None},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "part-00000-000.tfrecord"
    path.write_bytes(examples(*ROWS))
    return path


def write(path: Path, *rows, data=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(examples(*rows) if data is None else data)
    return path


def manifest(folder: Path, schema, partitions=(), *, rows=1, **changes):
    files = tuple(
        ManifestFile(path=str(f.relative_to(folder)), bytes=f.stat().st_size, rows=rows)
        for f in sorted(folder.rglob("*.tfrecord"))
    )
    made = Manifest(
        **{
            "record_type": "Example",
            "compression": None,
            "schema": pa.schema(schema),
            "partition_schema": pa.schema(partitions),
            "files": files,
            **changes,
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_SUCCESS").write_bytes(made.dumps())


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5)
WAIT = datetime.timedelta(hours=1, seconds=2)
CLOCK = datetime.time(1, 2, 3)


class TestValues:
    def test_inferred(self, file, codec):
        table = read_table(file, codec=codec)
        assert table.to_pylist() == [
            {"n": 1, "x": 0.5, "s": "one", "b": b"\xff", "l": [1, 2]},
            {"n": 2, "x": None, "s": "two", "b": b"\x00", "l": None},
            {"n": None, "x": 1.5, "s": None, "b": None, "l": None},
        ]
        assert table.schema.field("x").type == pa.float32()

    def test_the_last_decimals_of_a_type(self, tmp_path, codec):
        last = Decimal("99999999.99")
        table = pa.table({"x": pa.array([last, None, -last], pa.decimal128(10, 2))})
        write_table(table, tmp_path / "ours", float64="cast", codec=codec)
        assert read_table(tmp_path / "ours", codec=codec).equals(table)
        assert read_table(tmp_path / "ours", schema=table.schema, codec=codec).equals(table)
        # The same bytes as somebody else's, who may have meant 100000000.
        (tmp_path / "ours" / "_SUCCESS").unlink()
        (tmp_path / "int.tfrecord").write_bytes(examples({"x": 10**8}))
        for path in ("ours", "int.tfrecord"):
            with pytest.raises(SchemaMismatchError, match=r"holds 100000000\.0, .*ask for a wider"):
                read_table(tmp_path / path, schema=table.schema, codec=codec)

    @pytest.mark.parametrize(
        "t",
        [
            pa.decimal32(9, 0),
            pa.decimal32(9, -7),
            pa.decimal64(18, 2),
            pa.decimal128(38, 3),
            pa.decimal128(10, -10),
            pa.decimal256(38, 38),
        ],
        ids=str,
    )
    def test_the_last_decimals_in_any_dress(self, tmp_path, codec, t):
        last = 10**t.precision - 1
        ends = [end.to_bytes(t.byte_width, "little", signed=True) for end in (last, -last)]
        x = pa.Array.from_buffers(t, 2, [None, pa.py_buffer(b"".join(ends))])
        table = pa.table({"x": x, "y": pa.FixedSizeListArray.from_arrays(x, 1)})
        write_table(table, tmp_path / "ds", float64="cast", codec=codec)
        schemas = [
            None,
            table.schema,
            pa.schema({"x": pa.dictionary(pa.int8(), t), "y": pa.list_view(t)}),
            pa.schema({"x": pa.list_(t), "y": pa.large_list(t)}),
        ]
        for schema in schemas:
            found = read_table(tmp_path / "ds", schema=schema, codec=codec)
            assert schema is None or found.schema == schema
            for name in "xy":
                assert leaves(found[name].combine_chunks()).to_pylist() == x.to_pylist()

    def test_given_schema(self, file, codec):
        schema = pa.schema(
            {
                "n": pa.int8(),
                "x": pa.decimal128(5, 2),
                "s": pa.large_string(),
                "none": pa.date32(),
            }
        )
        table = read_table(file, schema=schema, codec=codec)
        assert table.schema == schema
        assert table["n"].to_pylist() == [1, 2, None]
        assert table["x"].to_pylist() == [Decimal("0.50"), None, Decimal("1.50")]
        assert table["none"].to_pylist() == [None] * 3

    def test_columns_in_the_order_asked_for(self, file, codec):
        assert read_table(file, columns=["s", "n"], codec=codec).column_names == ["s", "n"]
        assert read_table(file, columns=[], codec=codec).num_rows == 3

    def test_sequence_example(self, tmp_path, codec):
        payloads = [
            sequence_example({"id": 1}, {"steps": [[1.0, 2.0], [3.0]]}),
            sequence_example({"id": 2}, {"steps": []}),
        ]
        path = write(tmp_path / "a", data=records(*payloads))
        table = read_table(path, record_type="SequenceExample", codec=codec)
        assert table.to_pylist() == [
            {"id": 1, "steps": [[1.0, 2.0], [3.0]]},
            {"id": 2, "steps": []},
        ]

    def test_byte_array(self, tmp_path, codec):
        path = write(tmp_path / "a", data=records(b"", b"\xff\x00"))
        table = read_table(path, record_type="ByteArray", codec=codec)
        assert table.to_pylist() == [{"byteArray": b""}, {"byteArray": b"\xff\x00"}]

    def test_records_without_features(self, tmp_path, codec):
        path = write(tmp_path / "a", {}, {}, {})
        with pytest.warns(InferenceWarning, match="no record has a feature"):
            table = read_table(path, codec=codec)
        assert (table.num_rows, table.num_columns) == (3, 0)

    def test_empty_file(self, tmp_path, codec):
        table = read_table(write(tmp_path / "a"), codec=codec)
        assert (table.num_rows, table.num_columns) == (0, 0)

    def test_no_batch_is_empty(self, tmp_path):
        good = records(*(example(n=n) for n in range(6)))
        path = write(tmp_path / "a", data=good[:-1])
        schema, none = pa.schema([("n", pa.int64())]), [("n", ">", 3)]
        options = {"schema": schema, "batch_rows": 2, "filters": none, "on_corrupt": "keep"}
        with pytest.warns(CorruptDataWarning):
            batches = list(scan(path, **options))
        assert [batch.to_pydict() for batch in batches] == [{"n": [4]}]

    def test_batch_rows(self, tmp_path):
        path = write(tmp_path / "a", *({"n": n} for n in range(10)))
        sizes = [batch.num_rows for batch in scan(path, batch_rows=4)]
        assert sizes == [4, 4, 2]

    @pytest.mark.parametrize("threads", [1, 2])
    def test_record_larger_than_a_chunk(self, tmp_path, threads):
        large = os.urandom(9_000_000)
        rows = [{"n": 1, "b": b"x"}, {"n": 2, "b": large}, {"n": 3, "b": b"y"}]
        path = write(tmp_path / "a.gz", data=gzip.compress(examples(*rows), 1))
        assert read_table(path, threads=threads)["b"].to_pylist() == [b"x", large, b"y"]


class TestCompression:
    @pytest.mark.parametrize("kind", ["gzip", "deflate", "bzip2", "zstd", "snappy", "lz4"])
    @pytest.mark.parametrize("memory_map", [True, False])
    def test_each(self, tmp_path, kind, memory_map, codec):
        stream = compressor(kind)
        data = stream.compress(examples(*ROWS)) + stream.flush()
        path = write(tmp_path / "a.bin", data=data)
        options = {"compression": kind, "memory_map": memory_map, "codec": codec}
        assert read_table(path, **options)["s"].to_pylist() == ["one", "two", None]
        assert count_rows(path, compression=kind) == 3
        if kind not in ("snappy", "lz4"):
            assert read_table(path, codec=codec).num_rows == 3

    def test_others_and_wrong_suffixes(self, tmp_path):
        plain = examples(*ROWS)
        for name, data in [
            ("a.tfrecord", zlib.compress(plain)),
            ("b.zst", gzip.compress(plain)),
            ("c.gz", bz2.compress(plain)),
            ("d.gz", plain),
            ("e.tfrecord.gz", gzip.compress(plain) + gzip.compress(b"") + gzip.compress(plain)),
        ]:
            write(tmp_path / name, data=data)
        assert read_table(tmp_path).num_rows == 18

    def test_decompressed_size_is_limited(self, tmp_path):
        path = write(tmp_path / "a.gz", data=gzip.compress(frame(bytes(10_000_000))))
        limits = Limits(max_decompressed_bytes=1_000_000)
        with pytest.raises(LimitExceededError, match="max_decompressed_bytes") as caught:
            read_table(path, limits=limits, record_type="ByteArray")
        assert caught.value.path == str(path)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_as_many_decompressed_bytes_as_the_limit_says(self, tmp_path, threads):
        data = frame(bytes(1000))
        path = write(tmp_path / "a.gz", data=gzip.compress(data))
        options = {"record_type": "ByteArray", "threads": threads}
        limits = Limits(max_decompressed_bytes=len(data))
        assert read_table(path, limits=limits, **options).num_rows == 1
        with pytest.raises(LimitExceededError, match="max_decompressed_bytes"):
            read_table(path, limits=Limits(max_decompressed_bytes=len(data) - 1), **options)

    def test_unknown(self, file):
        with pytest.raises(OptionError, match="rar"):
            read_table(file, compression="rar")


class TestFiles:
    def test_order_and_hidden_names(self, tmp_path):
        for name in ("b/1", "a/2", "a/1", "_hidden/1", ".hidden/1", "a/_x", "a/.x", "_SUCCESS"):
            write(tmp_path / name, {"name": name})
        assert read_table(tmp_path)["name"].to_pylist() == ["a/1", "a/2", "b/1"]

    def test_a_list_keeps_its_order(self, tmp_path):
        paths = [write(tmp_path / name, {"name": name}) for name in "cab"]
        assert read_table(paths)["name"].to_pylist() == ["c", "a", "b"]

    def test_a_named_file_is_read_whatever_its_name(self, tmp_path):
        assert read_table(write(tmp_path / "_x", {"n": 1})).num_rows == 1

    def test_patterns(self, tmp_path):
        for year in (1, 2):
            for name in ("a.tfrecord", "b.other", "_c.tfrecord"):
                write(tmp_path / f"year={year}" / name, {"n": year})
        table = read_table(f"{tmp_path}/year=*/*.tfrecord")
        assert table.to_pylist() == [{"n": 1, "year": 1}, {"n": 2, "year": 2}]
        assert read_table(f"{tmp_path}/year=1/?.tfrecord").to_pylist() == [{"n": 1}]
        assert read_table(f"{tmp_path}/**/a.tfrecord").num_rows == 2
        with pytest.raises(FileNotFoundError):
            read_table(f"{tmp_path}/year=*/*.none")

    @pytest.mark.parametrize("name", ["a[1]", "a{1,2}"])
    def test_a_name_with_brackets_is_a_name(self, tmp_path, name):
        assert read_table(write(tmp_path / name, {"n": 1})).num_rows == 1

    def test_missing(self, tmp_path):
        for function in (read_table, scan, infer_schema, count_rows):
            with pytest.raises(FileNotFoundError):
                function(tmp_path / "nothing")

    @pytest.mark.parametrize("path", [[], 7, b"x"])
    def test_no_paths(self, path):
        with pytest.raises(OptionError, match=r"list of paths is empty|not a path or URL, or a li"):
            read_table(path)

    def test_paths_that_are_no_text(self, tmp_path):
        write(tmp_path / "a", *ROWS)
        write(tmp_path / os.fsdecode(b"b\xff"), *ROWS)
        what = r"path is no UTF-8.*rename.*'file'.*/b\\xff\]$"
        with pytest.raises(LayoutError, match=what) as raised:
            read_table(tmp_path, path_column="file")
        str(raised.value).encode()
        assert pickle.loads(pickle.dumps(raised.value)).path == f"{tmp_path}/b\\xff"
        with pytest.raises(LayoutError, match=what):
            read_table(tmp_path, path_column="file", filters=[("n", ">", 7)])
        assert read_table(tmp_path).num_rows == 6
        assert read_table(tmp_path / "a", path_column="file").num_rows == 3

    def test_path_column(self, tmp_path):
        path = write(tmp_path / "p=1" / "a", {"n": 1})
        table = read_table(tmp_path, path_column="file")
        assert table.to_pylist() == [{"n": 1, "p": 1, "file": str(path)}]
        assert read_table(tmp_path, columns=["n"], path_column="file").column_names == ["n", "file"]
        for bad in ("n", "p", "x\udcff"):
            with pytest.raises(OptionError, match="name of the column of paths"):
                read_table(tmp_path, path_column=bad)

    def test_memory_storage(self):
        fs = fsspec.filesystem("memory")
        for part in ("a", "b"):
            fs.pipe_file(f"/read-test/p={part}/x.tfrecord", examples(*ROWS))
        try:
            table = read_table("memory://read-test", path_column="file")
            assert table["p"].to_pylist() == ["a"] * 3 + ["b"] * 3
            assert table["file"][0].as_py().endswith("/read-test/p=a/x.tfrecord")
            assert count_rows("memory://read-test") == 6
        finally:
            fs.rm("/read-test", recursive=True)

    def test_a_changed_file(self, file):
        plan = plan_scan(file)
        file.write_bytes(examples(*ROWS, *ROWS))
        with pytest.raises(DatasetChangedError) as caught:
            list(read_task(plan, plan.tasks[0]))
        assert caught.value.path == str(file)


class TestPartitions:
    def test_typed_as_spark_does(self, tmp_path):
        write(tmp_path / "i=1" / "d=2026-01-02" / "s=a%2Fb" / "a", {"n": 1})
        write(tmp_path / "i=02" / "d=2026-01-03" / "s=__HIVE_DEFAULT_PARTITION__" / "a", {"n": 2})
        table = read_table(tmp_path)
        day = datetime.date(2026, 1, 2)
        assert table.schema.names == ["n", "i", "d", "s"]
        assert {"n": 1, "i": 1, "d": day, "s": "a/b"} in table.to_pylist()
        assert {"n": 2, "i": 2, "d": datetime.date(2026, 1, 3), "s": None} in table.to_pylist()

    @pytest.mark.parametrize(
        "kind", [pa.string(), pa.int64(), pa.dictionary(pa.int32(), pa.string())]
    )
    def test_the_callers_types(self, tmp_path, kind):
        for part in ("1", "2"):
            write(tmp_path / f"p={part}" / "a", {"n": 1}, {"n": 2})
        schema = pa.schema([("p", kind), ("n", pa.int64())])
        table = read_table(tmp_path, schema=schema)
        assert table.schema.names == ["n", "p"]
        assert table.schema.field("p").type == kind
        assert [str(p) for p in table["p"].to_pylist()] == ["1", "1", "2", "2"]
        plan = plan_scan(tmp_path, schema=schema)
        assert pickle.loads(pickle.dumps(plan)) == plan

    def test_a_null_that_the_schema_does_not_allow(self, tmp_path):
        for part in ("1", "__HIVE_DEFAULT_PARTITION__"):
            write(tmp_path / f"p={part}" / "a", {"n": 1})
        schema = pa.schema([("n", pa.int64()), pa.field("p", pa.int64(), nullable=False)])
        with pytest.raises(SchemaMismatchError, match="'p' is null in a folder") as caught:
            read_table(tmp_path, schema=schema)
        assert caught.value.path == str(tmp_path / "p=__HIVE_DEFAULT_PARTITION__" / "a")
        table = read_table(tmp_path, schema=schema, filters=[("p", "is not", None)])
        assert table.schema == schema
        assert table.to_pylist() == [{"n": 1, "p": 1}]

    @pytest.mark.parametrize(
        ("folder", "names"), [("P=1/q=2", ["p", "q"]), ("p=1/P=2", ["p", "P"])]
    )
    def test_names_where_case_does_not_count(self, tmp_path, folder, names):
        write(tmp_path / folder / "a", {"n": 1})
        schema = pa.schema([(name, pa.int32()) for name in names])
        plan = plan_scan(tmp_path, schema=schema, selection=Selection(ignores_case=True))
        (batch,) = read_task(plan, plan.tasks[0])
        assert batch.to_pylist() == [dict(zip(names, [1, 2], strict=True))]

    def test_names_that_are_one_where_case_does_not_count(self, tmp_path):
        write(tmp_path / "p=1" / "P=2" / "a", {"n": 1})
        schema = pa.schema([("P", pa.int32())])
        with pytest.raises(LayoutError, match=r"\['p', 'P'\], of which some differ in") as caught:
            plan_scan(tmp_path, schema=schema, selection=Selection(ignores_case=True))
        assert caught.value.path == str(tmp_path / "p=1" / "P=2" / "a")

    def test_times_that_python_does_not_have(self, tmp_path):
        """In UTC they are outside the years 1 to 9999."""
        for time in ("9999-12-31 23%3A59%3A59", "2026-01-02 03%3A04%3A05"):
            write(tmp_path / f"at={time}" / "a", {"n": 1})
        plan = plan_scan(tmp_path, selection=Selection(time_zone="America/New_York"))
        assert plan.schema.field("at").type == pa.timestamp("us", "UTC")
        assert pickle.loads(pickle.dumps(plan)) == plan
        found = pa.Table.from_batches(
            batch
            for task in plan.tasks
            for batch in read_task(pickle.loads(pickle.dumps(plan)), task)
        )
        assert found["at"].cast(pa.int64()).to_pylist() == [1767341045000000, 253402318799000000]

    def test_a_schema_without_the_partition_columns(self, tmp_path):
        write(tmp_path / "p=1" / "a", {"n": 1})
        table = read_table(tmp_path, schema=pa.schema([("n", pa.int32())]))
        assert table.to_pylist() == [{"n": 1, "p": 1}]

    def test_only_partition_columns(self, tmp_path, codec):
        write(tmp_path / "p=1" / "a", {"n": 1}, {"n": 2})
        assert read_table(tmp_path, columns=["p"], codec=codec).to_pylist() == [{"p": 1}] * 2

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("tasks", [1, 40])
    def test_rows_that_a_manifest_tells_open_no_file(self, tmp_path, tasks, threads):
        written = pa.table({"n": range(400), "p": ["b", None, "a", "b"] * 100})
        write_table(written, tmp_path, partition_by="p", rows_per_task=400 // tasks)
        for file in tmp_path.rglob("*.tfrecord"):
            file.write_bytes(b"\xee" * file.stat().st_size)
        options = {"columns": ["p"], "threads": threads}
        found = read_table(tmp_path, **options)["p"].value_counts().to_pylist()
        counts = {one["values"]: one["counts"] for one in found}
        assert counts == {"a": 100, "b": 200, None: 100}
        assert len(read_table(tmp_path, filters=[("p", "=", "b")], **options)) == 200
        with scan(tmp_path, batch_rows=7, **options) as batches:
            assert max(batch.num_rows for batch in batches) == (7 if tasks == 1 else 5)
        # Who does not take damage for an error wants to know of it, and others need the records.
        with pytest.warns(CorruptDataWarning):
            assert not len(read_table(tmp_path, on_corrupt="skip_record", **options))
        with pytest.raises(ChecksumError):
            read_table(tmp_path, filters=[("n", ">", 5)], **options)
        (tmp_path / "_SUCCESS").unlink()
        with pytest.raises(ChecksumError):
            read_table(tmp_path, schema=pa.schema([("n", pa.int64())]), **options)

    def test_in_the_path_and_in_the_records(self, tmp_path):
        write(tmp_path / "n=1" / "a", {"n": 1})
        with pytest.raises(LayoutError, match="in the records and in the names of folders"):
            read_table(tmp_path)
        schema = pa.schema([("n", pa.int64())])
        assert read_table(tmp_path, schema=schema).to_pylist() == [{"n": 1}]

    @pytest.mark.parametrize(
        "folders", [("p=1", "q=1"), ("p=1/q=1", "q=1/p=1"), ("p=1", "p=1/q=1"), ("", "p=1")]
    )
    def test_folders_that_disagree(self, tmp_path, folders):
        for folder in folders:
            write(tmp_path / folder / "a", {"n": 1})
        with pytest.raises(LayoutError, match="disagree"):
            read_table(tmp_path)

    @pytest.mark.parametrize("names", [(".", "p=1", "."), ("p=1/a", ".", "p=2"), (".", "p=*/a")])
    def test_paths_that_are_joined(self, tmp_path, names):
        for number in (1, 2):
            write(tmp_path / f"p={number}" / "a", {"n": number})
        plan = plan_scan(
            [f"{tmp_path}/{name}" for name in names],
            selection=Selection(joins_paths=True, partition_base=str(tmp_path)),
            filters=[("p", "<", 3), ("n", "<", 3)],
        )
        assert sorted(task.file.partition[0].as_py() for task in plan.tasks) == [1, 2]


class TestColumns:
    def test_unknown_names_near_ones(self, tmp_path):
        path = write(tmp_path / "a", {"label": 1, "weight": 1.0})
        with pytest.raises(OptionError, match=r"'lable'.*did you mean 'label'"):
            read_table(path, columns=["lable"])
        with pytest.raises(OptionError, match="the columns are 'label', 'weight'"):
            read_table(path, columns=["zzz"])
        write_table(pa.table({}), tmp_path / "b")
        with pytest.raises(OptionError, match=r"'label'.*there are none"):
            read_table(tmp_path / "b", columns=["label"])

    @pytest.mark.parametrize("columns", ["n", ["n", "n"], 7])
    def test_wrong(self, file, columns):
        with pytest.raises(OptionError, match="columns"):
            read_table(file, columns=columns)

    def test_a_schema_is_arrows(self, file):
        with pytest.raises(OptionError, match="schema is a dict; it must be"):
            plan_scan(file, schema={"a": pa.int64()})

    @pytest.mark.parametrize("of_items", [False, True])
    def test_a_schema_keeps_its_metadata(self, file, of_items):
        for metadata in (None, {"a": "1"}, {"a": "2"}, None):
            field = pa.field("l", pa.list_(pa.field("item", pa.int32(), metadata=metadata)))
            if not of_items:
                field = pa.field("n", pa.int32(), metadata=metadata)
            read = read_table(file, schema=pa.schema([field]))
            assert read.schema.field(0).equals(field, check_metadata=True)
            assert read[0].type.equals(field.type, check_metadata=True)

    @pytest.mark.parametrize("name", ["n", "p"])
    def test_schema_names_a_column_twice(self, tmp_path, name):
        write_table(pa.table({"n": [1], "p": [2]}), tmp_path, partition_by="p")
        schema = pa.schema([(name, pa.int64()), (name, pa.int64())])
        with pytest.raises(OptionError, match=f"names column '{name}' twice"):
            read_table(tmp_path, schema=schema)


class TestInference:
    def test_all_files_in_their_order(self, tmp_path):
        write(tmp_path / "a", {"b": 1})
        write(tmp_path / "b", {"a": 1, "b": [1, 2]})
        for threads in (1, 2):
            schema = infer_schema(tmp_path, threads=threads)
            assert schema == pa.schema([("b", pa.list_(pa.int64())), ("a", pa.int64())])
        assert infer_schema(tmp_path, sample_files=1) == pa.schema([("b", pa.int64())])

    def test_files_without_records_are_no_sample(self, tmp_path):
        write(tmp_path / "a")
        write(tmp_path / "b.gz", data=gzip.compress(b""))
        assert infer_schema(tmp_path, sample_files=1) == pa.schema([])
        write(tmp_path / "c", {"b": 1})
        write(tmp_path / "d", {"b": 2, "a": 1})
        for count in (1, 2, 3):
            table = read_table(tmp_path, sample_files=count)
            assert table["b"].to_pylist() == [1, 2]
            assert table.column_names == (["b", "a"] if count == 2 else ["b"])

    def test_kinds_that_disagree_name_their_places(self, tmp_path):
        write(tmp_path / "a", {"n": 1})
        write(tmp_path / "b", {"n": 2}, {"n": "text"})
        with pytest.raises(InferenceError, match=r"b, record 1, byte offset \d+") as caught:
            read_table(tmp_path)
        assert "a, record 0, byte offset 0" in str(caught.value)

    def test_widened(self, tmp_path):
        write(tmp_path / "a", {"n": 1}, {"n": 1.5})
        with pytest.warns(InferenceWarning, match="'n'"):
            assert read_table(tmp_path)["n"].to_pylist() == [1.0, 1.5]

    @pytest.mark.parametrize("record_type", ["Example", "SequenceExample"])
    def test_records_of_another_message_without_a_feature(self, tmp_path, record_type):
        # tf.Event { 1: double wall_time, 3: string file_version }: an Example of unknown fields.
        event = b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"
        write(tmp_path / "a", data=frame(event) * 3)
        with pytest.warns(InferenceWarning, match=r'no record has a feature.*"ByteArray"'):
            table = read_table(tmp_path, record_type=record_type)
        assert (table.num_rows, table.num_columns) == (3, 0)
        assert read_table(tmp_path, record_type="ByteArray")["byteArray"].to_pylist() == [event] * 3

    def test_records_without_a_feature_beside_a_data_set(self, tmp_path):
        """Others have some: nothing says that the records are of another message."""
        write_table(pa.table({"x": [1]}), tmp_path / "ds")
        write(tmp_path / "ds" / "z", {})
        assert read_table(tmp_path / "ds")["x"].to_pylist() == [1, None]


class TestManifest:
    def test_its_types_and_counts(self, tmp_path):
        write(tmp_path / "a.tfrecord", {"n": 1})
        manifest(tmp_path, [("n", pa.int16())], rows=1)
        assert read_table(tmp_path).schema == pa.schema([("n", pa.int16())])
        assert plan_scan(tmp_path).tasks[0].rows == 1
        assert count_rows(tmp_path) == 1

    def test_counts_are_believed_only_with_the_size(self, tmp_path):
        path = write(tmp_path / "a.tfrecord", {"n": 1})
        manifest(tmp_path, [("n", pa.int16())], rows=77)
        assert count_rows(tmp_path) == 77
        write(path, {"n": 1}, {"n": 2})
        assert count_rows(tmp_path) == 2
        assert infer_schema(tmp_path) == pa.schema([("n", pa.int64())])

    def test_new_files_add_names(self, tmp_path):
        write(tmp_path / "a.tfrecord", {"n": 1})
        manifest(tmp_path, [("n", pa.int16())])
        write(tmp_path / "b.tfrecord", {"new": "x", "n": 2})
        assert read_table(tmp_path).to_pylist() == [{"n": 1, "new": None}, {"n": 2, "new": "x"}]
        assert infer_schema(tmp_path).field("n").type == pa.int16()

    @pytest.mark.parametrize(
        ("nulls", "value", "t"),
        [
            (pa.null(), 1, pa.int64()),
            (pa.null(), ["a", "b"], pa.list_(pa.string())),
            (pa.list_(pa.null()), [1.5, 2.5], pa.list_(pa.float32())),
            # Nothing is known of these either.
            (pa.null(), None, pa.null()),
        ],
    )
    def test_new_files_have_values_where_there_were_nulls(self, tmp_path, nulls, value, t):
        write(tmp_path / "a.tfrecord", {"n": 1, "x": None})
        manifest(tmp_path, [("n", pa.int16()), ("x", nulls)])
        write(tmp_path / "b.tfrecord", {"n": 2, "new": 3, "x": value})
        table = read_table(tmp_path)
        assert table.schema == pa.schema([("n", pa.int16()), ("x", t), ("new", pa.int64())])
        assert table["x"].to_pylist() == [None, value]

    @pytest.mark.parametrize(
        ("nulls", "feature", "t", "value"),
        [
            (pa.null(), wire.int64_list([]), pa.list_(pa.int64()), []),
            (pa.list_(pa.null()), wire.float_list([1.5]), pa.list_(pa.float32()), [1.5]),
            (pa.list_(pa.null(), 2), wire.int64_list([1, 2]), pa.list_(pa.int64(), 2), [1, 2]),
        ],
    )
    def test_new_files_have_lists_where_there_were_nulls(self, tmp_path, nulls, feature, t, value):
        write_table(pa.table({"x": pa.nulls(1, nulls)}), tmp_path)
        payload = wire.example(wire.entry(b"x", feature))
        (tmp_path / "z.tfrecord").write_bytes(frame(payload))
        table = read_table(tmp_path)
        assert table.schema.field("x").type == t
        assert table["x"].to_pylist() == [None, value]

    def test_partition_types(self, tmp_path):
        write(tmp_path / "p=1" / "a.tfrecord", {"n": 1})
        manifest(tmp_path, [("n", pa.int64())], [("p", pa.string())])
        assert read_table(tmp_path).to_pylist() == [{"n": 1, "p": "1"}]

    def test_partition_types_that_disagree_are_those_of_the_names(self, tmp_path):
        for name, t in (("a", pa.int8()), ("b", pa.string())):
            p = pa.array([1]).cast(t)
            write_table(pa.table({"n": [1], "p": p}), tmp_path / name, partition_by="p")
        table = read_table([tmp_path / "a", tmp_path / "b"])
        # As Spark takes them.
        assert table.schema.field("p").type == pa.int32()
        assert table["p"].to_pylist() == [1, 1]

    @pytest.mark.parametrize(
        ("types", "t", "values"),
        [
            ([pa.null(), pa.string()], pa.string(), [None, "01"]),
            ([pa.null(), pa.int64()], pa.int64(), [None, 1]),
            ([pa.int32(), pa.int64()], pa.int64(), [1, 1]),
            ([pa.int8(), pa.null(), pa.uint16(), pa.int64()], pa.int64(), [1, None, 1, 1]),
        ],
    )
    def test_partition_types_that_another_one_holds(self, tmp_path, types, t, values):
        for number, (one, value) in enumerate(zip(types, values, strict=True)):
            table = pa.table({"n": [number], "p": pa.array([value], one)})
            write_table(table, tmp_path / str(number), partition_by="p")
        for some in (range(len(types)), reversed(range(len(types)))):
            table = read_table([tmp_path / str(number) for number in some]).sort_by("n")
            assert table.schema.field("p").type == t
            assert table["p"].to_pylist() == values

    @pytest.mark.parametrize(
        ("t", "value"),
        [(pa.timestamp("us", "Asia/Tokyo"), 253_402_300_799_999_999), (pa.timestamp("ns"), 1)],
    )
    def test_dictionaries_of_times_that_are_none_of_pythons(self, tmp_path, t, value):
        times = pa.array([value, None], pa.int64()).cast(t)
        write_table(pa.table({"n": [1, 2], "p": times}), tmp_path, partition_by="p")
        schema = pa.schema([("n", pa.int64()), ("p", pa.dictionary(pa.int8(), t))])
        table = read_table(tmp_path, schema=schema).sort_by("n")
        assert table.schema == schema
        assert table["p"].cast(t).combine_chunks().equals(times)

    def test_an_empty_data_set_has_its_columns(self, tmp_path):
        manifest(tmp_path, [("n", pa.int16())], [("p", pa.date32())])
        schema = pa.schema([("n", pa.int16()), ("p", pa.date32())])
        assert read_table(tmp_path) == schema.empty_table()
        assert count_rows(tmp_path) == 0
        for t in (pa.string(), pa.timestamp("us", "Asia/Tokyo")):
            given = pa.schema([("n", pa.int8()), pa.field("p", t, nullable=False)])
            assert read_table(tmp_path, schema=given).schema == given

    @pytest.mark.parametrize(
        ("nulls", "values"),
        [
            (pa.null(), pa.array([1])),
            (pa.null(), pa.array([MOMENT], pa.timestamp("ms"))),
            (pa.null(), pa.array([Decimal("99999999.99")], pa.decimal128(10, 2))),
            (pa.list_(pa.null()), pa.array([["a", "b"]])),
        ],
    )
    def test_nulls_of_one_data_set_and_values_of_another(self, tmp_path, nulls, values):
        write_table(pa.table({"x": pa.nulls(2, nulls)}), tmp_path / "a")
        write_table(pa.table({"x": values}), tmp_path / "b", float64="cast")
        for names in ("ab", "ba", "aba"):
            table = read_table([tmp_path / name for name in names])
            assert table.schema.field("x").type == values.type
            expected = [
                x for name in names for x in {"a": [None] * 2, "b": values.to_pylist()}[name]
            ]
            assert table["x"].to_pylist() == expected

    def test_integers_of_data_sets_that_another_one_holds(self, tmp_path):
        for name, t in (("a", pa.int64()), ("b", pa.int32()), ("c", pa.uint32())):
            write_table(pa.table({"x": pa.array([1], t)}), tmp_path / name)
        for names in ("ab", "ba", "cab", "aab"):
            table = read_table([tmp_path / name for name in names])
            assert table.schema == pa.schema([("x", pa.int64())])
            assert table["x"].to_pylist() == [1] * len(names)
        # Also where the first two hold none of each other.
        for names in itertools.permutations("abc"):
            assert infer_schema([tmp_path / name for name in names]).types == [pa.int64()]
        with pytest.raises(InferenceError, match="'x' is int32 in one data set and uint32 in ano"):
            read_table([tmp_path / "b", tmp_path / "c"])

    def test_nulls_of_one_data_set_and_another_unit(self, tmp_path):
        write_table(pa.table({"x": pa.nulls(1)}), tmp_path / "a")
        times = pa.array([MOMENT], pa.timestamp("ms"))
        write_table(pa.table({"x": times}), tmp_path / "b")
        schema = pa.schema([("x", pa.timestamp("us"))])
        table = read_table([tmp_path / "a", tmp_path / "b"], schema=schema)
        assert table["x"].to_pylist() == [None, MOMENT]

    def test_nothing_is_inferred_of_columns_that_a_manifest_has(self, tmp_path):
        write_table(pa.table({"x": [1]}), tmp_path)
        write(tmp_path / "other.tfrecord", {"x": 1, "y": 1}, {"x": b"a"}, {"x": 1.0})
        assert infer_schema(tmp_path) == pa.schema([("x", pa.int64()), ("y", pa.int64())])

    def test_data_sets_that_disagree(self, tmp_path):
        write_table(pa.table({"x": [1]}), tmp_path / "a")
        write_table(pa.table({"x": ["1"]}), tmp_path / "b")
        with pytest.raises(InferenceError, match="'x' is int64 in one data set and string in ano"):
            read_table([tmp_path / "a", tmp_path / "b"])

    def test_another_writers_marker(self, file):
        (file.parent / "_SUCCESS").touch()
        assert read_table(file.parent).num_rows == 3

    def test_damaged(self, file):
        (file.parent / "_SUCCESS").write_bytes(b'{"tfrecord_io_manifest": 1')
        with pytest.raises(ManifestError) as caught:
            read_table(file.parent)
        assert caught.value.path == str(file.parent / "_SUCCESS")

    def test_another_record_type(self, file):
        manifest(file.parent, [], record_type="SequenceExample")
        with pytest.raises(SchemaMismatchError, match="record_type='SequenceExample'"):
            read_table(file.parent)

    @pytest.mark.parametrize("record_type", ["Example", "SequenceExample"])
    def test_payloads_that_are_examples(self, tmp_path, record_type):
        """Programs serialize them, and write them as bytes."""
        table = pa.table({"x": [1, 2], "p": ["a", "b"]})
        write_table(table, tmp_path / "as", record_type=record_type, partition_by="p")
        payloads = read_table(tmp_path / "as", record_type="ByteArray")
        write_table(payloads, tmp_path / "raw", record_type="ByteArray", partition_by="p")
        with pytest.raises(SchemaMismatchError, match=r"ByteArray.*path/part-\*") as error:
            read_table(tmp_path / "raw", record_type=record_type)
        assert record_type in str(error.value)
        assert read_table(f"{tmp_path}/raw/p=*/part-*", record_type=record_type).equals(table)

    def test_a_schema_that_no_byte_array_fits(self, tmp_path, codec):
        write_table(pa.table({"x": [1, 2]}), tmp_path)
        read = functools.partial(read_table, tmp_path, record_type="ByteArray", codec=codec)
        for t in (pa.int64(), pa.list_(pa.binary())):
            with pytest.raises(UnsupportedTypeError, match=r"'x' has the type.*read with") as error:
                read(schema=pa.schema([("x", t)]))
            assert error.value.feature == "x"
        with pytest.raises(UnsupportedTypeError, match=r"2 columns \('a', 'b'\).* or read with"):
            read(schema=pa.schema([("a", pa.binary()), ("b", pa.binary())]))
        assert read(schema=pa.schema([])).num_rows == 2
        (first, _) = read(schema=pa.schema([("a", pa.binary_view())]))["a"].to_pylist()
        assert read(schema=pa.schema([("b", pa.binary(len(first)))]))["b"][0].as_py() == first

    def test_payloads_of_any_record_type(self, tmp_path):
        write_table(pa.table({"x": [1, 2], "p": ["01", "02"]}), tmp_path, partition_by="p")
        table = read_table(tmp_path, record_type="ByteArray")
        assert table["p"].to_pylist() == ["01", "02"]
        files = sorted(tmp_path.rglob("part-*"))
        frames = [frame(payload) for payload in table["byteArray"].to_pylist()]
        assert frames == [file.read_bytes() for file in files]


class TestPartsOfADataSet:
    """What is named is a part of a data set: its manifest says what the records hold."""

    SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC"))])

    @pytest.fixture(params=["local", "memory"])
    def data(self, request, tmp_path):
        root = str(tmp_path / "ds") if request.param == "local" else f"memory://{tmp_path}/ds"
        times = pa.array([MOMENT, MOMENT], pa.timestamp("ms", "UTC"))
        table = pa.table({"ts": times, "b": [True, None], "p": pa.array([1, 2])})
        write_table(table, root, partition_by="p")
        return root

    @pytest.mark.parametrize(
        "name",
        ["p=1", "p=1/*", "p=[1]*", "p=1/part-00000-000.tfrecord", "p={1,3}/part*", "*1"],
    )
    def test_units_and_types(self, data, name, codec):
        paths = [f"{data}/{name}"]
        row = read_table(data, filters=[("p", "=", 1)]).to_pylist()[0]
        table = read_table(paths, codec=codec)
        assert table.schema.field("b").type == pa.bool_()
        assert table.schema.field("ts").type == pa.timestamp("ms", "UTC")
        assert {**row, **table.to_pylist()[0]} == row
        given = read_table(paths, schema=self.SCHEMA, codec=codec)
        assert given["ts"].to_pylist() == [row["ts"]]

    def test_many_files(self, tmp_path):
        table = pa.table({"b": [True] * 40})
        write_table(table, tmp_path, rows_per_task=1)
        files = sorted(tmp_path.glob("part*"))
        assert read_table(files).equals(table)

    def test_types_of_partitions(self, tmp_path):
        table = pa.table({"x": [1, 2], "p": ["01", "02"], "q": ["1", "2"]})
        write_table(table, tmp_path, partition_by=["p", "q"])
        assert read_table(f"{tmp_path}/p=*", columns=["p"])["p"].to_pylist() == ["01", "02"]
        assert read_table(tmp_path / "p=01").to_pylist() == [{"x": 1, "q": "1"}]

    def test_data_sets_below_a_folder(self, tmp_path):
        times = pa.array([MOMENT], pa.timestamp("ms", "UTC"))
        for name in ("a", "p=1", "p=2/b"):
            write_table(pa.table({"ts": times}), tmp_path / "all" / name)
        (tmp_path / "all" / "a").rename(tmp_path / "all" / "p=3")
        table = read_table(tmp_path / "all", schema=self.SCHEMA)
        assert table["ts"].to_pylist() == [MOMENT.replace(tzinfo=datetime.timezone.utc)] * 3

    def test_another_record_type_is_asked_for(self, data):
        [row] = read_table(f"{data}/p=1", record_type="ByteArray").to_pylist()
        assert row["byteArray"]

    def test_other_files(self, tmp_path):
        """What the manifest does not name is read as it is, or refused where units may differ."""
        write_table(pa.table({"b": [True], "p": [1]}), tmp_path, partition_by="p")
        write(tmp_path / "p=1" / "other", {"more": 1})
        table = read_table(tmp_path / "p=1")
        assert table.sort_by("more").to_pylist() == [
            {"b": None, "more": 1},
            {"b": True, "more": None},
        ]
        times = pa.table({"ts": pa.array([MOMENT], pa.timestamp("ms"))})
        write_table(times, tmp_path / "times")
        write(tmp_path / "times" / "other", {"ts": 5})
        with pytest.raises(SchemaMismatchError, match="different units"):
            read_table(f"{tmp_path}/times/*", schema=pa.schema([("ts", pa.timestamp("us"))]))


class TestUnits:
    """A record holds a count; of what, its data set's manifest says, whatever the schema asks."""

    @pytest.mark.parametrize(
        ("written", "asked", "value"),
        [
            (pa.timestamp("s"), pa.timestamp("us"), MOMENT),
            (pa.timestamp("us"), pa.timestamp("ns"), MOMENT),
            (pa.timestamp("us"), pa.timestamp("s"), MOMENT),
            (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), MOMENT),
            (pa.timestamp("ms"), pa.timestamp("us", "UTC"), MOMENT),
            (pa.duration("us"), pa.duration("ns"), WAIT),
            (pa.duration("ms"), pa.duration("s"), WAIT),
            (pa.time64("us"), pa.time64("ns"), CLOCK),
            (pa.time64("ns"), pa.time32("s"), CLOCK),
            (pa.date32(), pa.date64(), MOMENT.date()),
            # No unit is known of whole numbers, nor of columns that the manifest does not name.
            (pa.int64(), pa.timestamp("ms"), 1_700_000_000_000),
            (pa.int32(), pa.date32(), 20_000),
            (None, pa.duration("us"), None),
        ],
    )
    @pytest.mark.parametrize("is_list", [False, True])
    def test_a_schema_of_another_unit(self, tmp_path, codec, written, asked, value, is_list):
        values = [value, None, value]
        if is_list:
            asked, values = pa.list_(asked), [[value, value], None, []]
            written = None if written is None else pa.list_(written)
        columns = {"n": [1, 2, 3]}
        if written is None:
            values = [None] * 3
        else:
            columns["x"] = pa.array(values, written)
        table = pa.table(columns)
        write_table(table, tmp_path / "ds")
        found = read_table(tmp_path / "ds", schema=pa.schema([("x", asked)]), codec=codec)
        if isinstance(value, int):
            # Numbers are counts of the unit asked for.
            expected = pa.array(values, written).cast(asked)
        else:
            expected = pa.array(values, asked)
        assert found.equals(pa.table({"x": expected}))

    def test_tensors_of_another_unit(self, tmp_path, codec):
        values = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.duration("s"), 2))
        write_table(pa.table({"x": values}), tmp_path / "ds")
        asked = pa.fixed_shape_tensor(pa.duration("ms"), [2])
        found = read_table(tmp_path / "ds", schema=pa.schema([("x", asked)]), codec=codec)["x"]
        assert found.type == asked
        expected = values.cast(asked.storage_type)
        assert found.combine_chunks().storage.equals(expected)

    def test_dictionaries_of_another_unit_are_refused(self, tmp_path):
        values = pa.array([[1, 2]], pa.list_(pa.duration("s")))
        write_table(pa.table({"x": values}), tmp_path / "ds")
        asked = pa.dictionary(pa.int32(), pa.list_(pa.duration("ms")))
        with pytest.raises(SchemaMismatchError, match=r"ask for list<item: duration\[s\]>"):
            read_table(tmp_path / "ds", schema=pa.schema([("x", asked)]))

    def test_filters_and_other_columns(self, tmp_path):
        table = pa.table(
            {"x": pa.array([MOMENT, MOMENT + WAIT], pa.timestamp("s")), "n": [1, 2], "p": [1, 1]}
        )
        write_table(table, tmp_path / "ds", partition_by="p")
        schema = pa.schema([("n", pa.int64()), ("x", pa.timestamp("us"))])
        later = [("x", ">", MOMENT)]
        kept = read_table(tmp_path / "ds", columns=["n", "p"], schema=schema, filters=later)
        assert kept.to_pylist() == [{"n": 2, "p": 1}]

    @pytest.mark.parametrize(
        "make", [pa.list_view, pa.large_list_view, lambda t: pa.list_(pa.dictionary(pa.int8(), t))]
    )
    def test_another_form_in_the_same_unit(self, tmp_path, codec, make):
        t = pa.timestamp("us")
        write_table(pa.table({"x": pa.array([[MOMENT], None], pa.list_(t))}), tmp_path / "ds")
        schema = pa.schema([("x", make(t))])
        table = read_table(tmp_path / "ds", schema=schema, codec=codec)
        assert table.schema == schema
        assert table["x"].to_pylist() == [[MOMENT], None]

    def test_a_value_that_does_not_fit(self, tmp_path, codec):
        values = [MOMENT, MOMENT.replace(microsecond=7)]
        write_table(pa.table({"x": pa.array(values, pa.timestamp("us"))}), tmp_path / "ds")
        what = r"'x' was written as timestamp\[us\], and a value does not fit timestamp\[ms\]"
        with pytest.raises(SchemaMismatchError, match=what) as caught:
            read_table(tmp_path / "ds", schema=pa.schema([("x", pa.timestamp("ms"))]), codec=codec)
        assert (caught.value.record, caught.value.feature) == (1, "x")

    @pytest.mark.parametrize(
        ("written", "asked", "value"),
        [
            (pa.date32(), pa.timestamp("us"), MOMENT.date()),
            (pa.timestamp("s"), pa.date32(), MOMENT),
            (pa.time64("us"), pa.duration("us"), CLOCK),
            (pa.bool_(), pa.date32(), True),
        ],
    )
    def test_another_kind_of_time(self, tmp_path, written, asked, value):
        write_table(pa.table({"x": pa.array([value], written)}), tmp_path / "ds")
        with pytest.raises(SchemaMismatchError, match="holds column 'x' as") as caught:
            read_table(tmp_path / "ds", schema=pa.schema([("x", asked)]))
        assert str(written) in str(caught.value)

    def test_counts_as_they_are(self, tmp_path):
        """As whole numbers; and where no manifest tells their unit, the schema does."""
        write_table(pa.table({"x": pa.array([MOMENT], pa.timestamp("ms"))}), tmp_path / "ds")
        count = int(MOMENT.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000)
        found = read_table(tmp_path / "ds", schema=pa.schema([("x", pa.int64())]))
        assert found["x"].to_pylist() == [count]
        write(tmp_path / "other" / "a.tfrecord", {"x": count})
        seconds = pa.schema([("x", pa.timestamp("s"))])
        found = read_table(tmp_path / "other", schema=seconds)
        assert found["x"].cast(pa.int64()).to_pylist() == [count]
        write(tmp_path / "ds" / "b.tfrecord", {"x": count})
        with pytest.raises(SchemaMismatchError, match=r"different units, timestamp\[ms\], time"):
            read_table(tmp_path / "ds", schema=seconds)
        found = read_table(tmp_path / "ds", schema=pa.schema([("x", pa.timestamp("ms"))]))
        assert found["x"].to_pylist() == [MOMENT, MOMENT]

    def test_counts_in_one_data_set_and_times_in_another(self, tmp_path):
        """Those that are counts are of the unit asked for."""
        for name, t in (("a", pa.int64()), ("b", pa.timestamp("ms"))):
            write_table(pa.table({"x": pa.array([0], t)}), tmp_path / name)
        both = [tmp_path / "a", tmp_path / "b"]
        with pytest.raises(SchemaMismatchError, match=r"units, timestamp\[ms\], timestamp\[us\]"):
            read_table(both, schema=pa.schema([("x", pa.timestamp("us"))]))
        found = read_table(both, schema=pa.schema([("x", pa.timestamp("ms"))]))
        assert found["x"].cast(pa.int64()).to_pylist() == [0, 0]


class TestMarks:
    ROWS = [{"n": n, "b": bytes(50)} for n in range(100)]

    @pytest.fixture
    def marked(self, tmp_path):
        size = len(frame(example(**self.ROWS[0])))
        path = write(tmp_path / "a.tfrecord", *self.ROWS)
        marks = tuple((size * k, k) for k in range(10, 100, 10))
        file = ManifestFile(path="a.tfrecord", bytes=path.stat().st_size, rows=100, marks=marks)
        manifest(tmp_path, [("n", pa.int64())], files=(file,))
        return tmp_path, size

    def test_tasks(self, marked, codec):
        folder, size = marked
        plan = plan_scan(folder, task_bytes=20 * size, codec=codec)
        assert [task.rows for task in plan.tasks] == [20] * 5
        assert [task.record for task in plan.tasks] == [0, 20, 40, 60, 80]
        worker = pickle.loads(pickle.dumps(plan.without_tasks()))
        for index, task in enumerate(plan.tasks):
            rows = [n for batch in read_task(worker, task) for n in batch["n"].to_pylist()]
            assert rows == list(range(20 * index, 20 * index + 20))
        plan = plan_scan(folder, task_bytes=10 * size, codec=codec)
        assert [task.rows for task in plan.tasks] == [10] * 10

    @pytest.mark.parametrize(
        ("mib", "count", "task_mib", "expected"),
        [(1, 12, 8, [6, 6]), (3, 10, 5.5, [2, 2, 1, 2, 2, 1])],
    )
    def test_where_records_were_seen_to_start(self, tmp_path, mib, count, task_mib, expected):
        """Of the end of a file and of its spans the look for the schema may tell twice."""
        path = write(tmp_path / "a.tfrecord", *[{"b": bytes(mib * 2**20)}] * count)
        plan = plan_scan(path, task_bytes=int(task_mib * 2**20), cut_unmarked=True)
        found = [sum(len(batch) for batch in read_task(plan, task)) for task in plan.tasks]
        assert found == expected
        (whole,) = plan_scan(path, task_bytes=2**26, cut_unmarked=True).tasks
        assert (whole.rows, whole.search) == (count, False)

    def test_where_records_were_seen_to_start_tells_which_they_are(self, tmp_path):
        row = {"b": bytes(3 * 2**20)}
        path = write(tmp_path / "a.tfrecord", *[row] * 10)
        plan = plan_scan(path, task_bytes=8 * 2**20, cut_unmarked=True)
        size = len(frame(example(**row)))
        assert [task.start for task in plan.tasks] == [task.record * size for task in plan.tasks]
        found = [sum(len(batch) for batch in read_task(plan, task)) for task in plan.tasks]
        assert [task.rows for task in plan.tasks] == found

    def test_of_files_that_were_not_looked_at_no_rows_are_known(self, tmp_path):
        for name in "ab":
            write(tmp_path / f"{name}.tfrecord", *self.ROWS)
        plan = plan_scan(tmp_path, task_bytes=2**26, cut_unmarked=True, sample_files=1)
        assert [task.rows for task in plan.tasks] == [100, None]

    def test_tasks_smaller_than_what_is_between_marks(self, marked, codec):
        folder, size = marked
        plan = plan_scan(folder, task_bytes=5 * size, cut_unmarked=True, codec=codec)
        # Each task looks for its start from the last mark on that is not behind it.
        nearest = [((10 * k * size, 10 * k),) if k else () for k in range(10)]
        tasks = [task for (task,) in packed(plan.tasks, None)]
        assert [task.file.marks for task in tasks] == [n for n in nearest for _ in "12"]
        # Which tasks that know where they start need no more.
        known = plan_scan(folder, task_bytes=20 * size, codec=codec).tasks
        assert {task.file.marks for group in packed(known, 100 * size) for task in group} == {()}
        rows = [batch["n"].to_pylist() for task in tasks for batch in read_task(plan, task)]
        assert rows == [[*range(n, n + 5)] for n in range(0, 100, 5)]

    def test_errors_name_the_record_of_the_file(self, marked, codec):
        folder, size = marked
        schema = pa.schema([("n", pa.int8()), ("b", pa.int64())])
        plan = plan_scan(folder, task_bytes=20 * size, schema=schema, codec=codec)
        with pytest.raises(SchemaMismatchError) as caught:
            list(read_task(plan, plan.tasks[2]))
        error = caught.value
        assert (error.record, error.offset, error.feature) == (40, 40 * size, "b")

    def test_marks_of_another_file(self, marked, codec):
        folder, size = marked
        path = folder / "a.tfrecord"
        # One record of the same length as all hundred.
        total = path.stat().st_size
        around = len(example(n=1, x=bytes(1000))) - 1000
        path.write_bytes(frame(example(n=1, x=bytes(total - 16 - around))))
        assert path.stat().st_size == total
        plan = plan_scan(folder, task_bytes=20 * size, record_type="Example", codec=codec)
        with pytest.raises(DatasetChangedError, match=f"should end at byte {20 * size}"):
            list(read_task(plan, plan.tasks[0]))


def test_a_repr_holds_no_credentials(file):
    plan = plan_scan(file, storage_options={"secret": "hunter2"})
    assert "hunter2" not in repr(plan)


def test_limits(file):
    with pytest.raises(LimitExceededError, match="max_record_bytes") as caught:
        read_table(file, limits=Limits(max_record_bytes=10))
    assert caught.value.path == str(file)
    with pytest.raises(OptionError, match="limits"):
        read_table(file, limits=7)
    with pytest.raises(OptionError, match="max_record_bytes is 2147483648; protobuf ends at 2147"):
        Limits(max_record_bytes=2**31)


def test_names_of_several_files_count_together(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.tfrecord", {name: 1})
    assert infer_schema(tmp_path, limits=Limits(max_features=3)).names == ["a", "b", "c"]
    with pytest.raises(LimitExceededError, match="max_features") as caught:
        infer_schema(tmp_path, limits=Limits(max_features=2))
    assert caught.value.path == str(tmp_path / "c.tfrecord")


@pytest.mark.parametrize("pattern", ["", "/*", "/{part-00000,part}-*", "/p*/*.tfrecord"])
def test_rows_come_as_they_were_written_however_many_files_there_are(
    tmp_path: Path, pattern: str
) -> None:
    values = [*range(1_010)]
    table = pa.table({"v": values, "p": [0] * len(values)})
    by = ["p"] if "/p*/" in pattern else []
    write_table(table, tmp_path / "ds", partition_by=by, max_records_per_file=1)
    assert read_table(f"{tmp_path}/ds{pattern}", columns=["v"])["v"].to_pylist() == values


def test_tasks_with_long_numbers_are_read_behind_the_others(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    root.mkdir()
    for value, name in enumerate(("part-99998-000", "part-99999-000", "part-100000-000")):
        write_table(pa.table({"v": [value]}), tmp_path / name)
        (tmp_path / name / "part-00000-000.tfrecord").rename(root / f"{name}.tfrecord")
    for value in (3, 4):
        write_table(pa.table({"v": [value]}), root, mode="append")
    assert read_table(root)["v"].to_pylist() == [0, 1, 2, 3, 4]
