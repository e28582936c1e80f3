"""`to_tfrecord`: the tree that `write_table` writes, on every scheduler, once or not at all."""

import datetime
import decimal
import os
import pickle
import queue
import shutil
import signal
import threading
from pathlib import Path

import dask
import dask.array
import dask.bag
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.callbacks import Callback

import tfrecord_io as tfr
from tests.support.frames import examples, records
from tests.support.trees import data_files, tree
from tfrecord_io.commit.staging import STAGING_NAME

ROWS, PER_TASK = 120, 20
TABLE = pa.table(
    {
        "i": range(ROWS),
        "s": [f"text {i}" for i in range(ROWS)],
        "l": pa.array([[i] * (i % 3) for i in range(ROWS)], pa.list_(pa.int64())),
        "f": pa.array([i / 2 for i in range(ROWS)], pa.float32()),
        "n": pa.array([None if i % 5 == 0 else i for i in range(ROWS)], pa.int64()),
        "p": [f"k{i % 3}" for i in range(ROWS)],
    }
)

DATE, UTC = datetime.date(2026, 1, 2), datetime.timezone.utc
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=UTC)

# Dask's own Parquet asks pandas 3 for what goes with pandas 4.
BY_DASK = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")


def frame_of(table: pa.Table, rows_per_task: int = PER_TASK) -> dd.DataFrame:
    """A Dask frame with a partition for each run of rows."""
    starts = range(0, table.num_rows, rows_per_task)

    def part(start: int) -> pd.DataFrame:
        return table.slice(start, rows_per_task).to_pandas(types_mapper=pd.ArrowDtype)

    return dd.from_map(part, starts, meta=table.slice(0, 0).to_pandas(types_mapper=pd.ArrowDtype))


def failing(part: pd.DataFrame, at: int) -> pd.DataFrame:
    if (part["i"] == at).any():
        raise ZeroDivisionError("on purpose")
    return part


def failing_once(part: pd.DataFrame, flags: str) -> pd.DataFrame:
    """Fail at the first try at each partition."""
    try:
        Path(flags, str(part["i"].iloc[0])).touch(exist_ok=False)
    except FileExistsError:
        return part
    raise OSError("on purpose")


def killing_once(part: pd.DataFrame, at: int, flag: str) -> pd.DataFrame:
    """Kill the worker that comes to a row, once."""
    if (part["i"] == at).any() and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.fixture
def expected(tmp_path):
    tfr.write_table(TABLE, tmp_path / "expected", partition_by="p", rows_per_task=PER_TASK)
    return tree(tmp_path / "expected")


class TestTrees:
    @pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
    def test_schedulers(self, tmp_path, expected, scheduler):
        result = tfr.to_tfrecord(
            frame_of(TABLE),
            tmp_path / "out",
            partition_on="p",
            compute_kwargs={"scheduler": scheduler},
        )
        assert tree(tmp_path / "out") == expected
        assert (result.files, result.rows) == (18, ROWS)

    @pytest.mark.parametrize("compute", [True, False])
    def test_a_cluster(self, tmp_path, expected, cluster, compute):
        with cluster.as_current():
            made = tfr.to_tfrecord(
                frame_of(TABLE), tmp_path / "out", partition_on=["p"], compute=compute
            )
            if not compute:
                assert not (tmp_path / "out").exists()
                made = cluster.compute(made).result()
        assert made.rows == ROWS
        assert tree(tmp_path / "out") == expected

    @pytest.mark.parametrize(
        "options",
        [
            {"compression": "gzip", "compression_level": 3},
            {"max_records_per_file": 7},
            {"record_type": "SequenceExample"},
        ],
    )
    def test_options(self, tmp_path, options):
        tfr.write_table(TABLE, tmp_path / "a", rows_per_task=PER_TASK, **options)
        tfr.to_tfrecord(frame_of(TABLE), tmp_path / "b", **options)
        assert tree(tmp_path / "a") == tree(tmp_path / "b")

    def test_partitions_without_rows_keep_their_numbers(self, tmp_path):
        frame = frame_of(TABLE)
        tfr.to_tfrecord(frame[frame["i"] >= 100], tmp_path / "out")
        assert list(data_files(tmp_path / "out")) == ["part-00005-000.tfrecord"]
        tfr.to_tfrecord(frame[frame["i"] < 0], tmp_path / "none")
        assert tfr.read_table(tmp_path / "none").equals(TABLE.slice(0, 0))

    def test_rows_without_columns(self, tmp_path):
        tfr.write_table(TABLE, tmp_path / "data", rows_per_task=PER_TASK)
        rows = tfr.read_table(tmp_path / "data", columns=[])
        tfr.write_table(rows, tmp_path / "expected", rows_per_task=PER_TASK)
        read = tfr.read_tfrecord(tmp_path / "data", columns=[], blocksize=None)
        for name, frame in {"read": read, "left": frame_of(TABLE).set_index("i")[[]]}.items():
            result = tfr.to_tfrecord(frame, tmp_path / name, write_index=False)
            assert (result.files, result.rows) == (ROWS // PER_TASK, ROWS)
            assert tree(tmp_path / name) == tree(tmp_path / "expected")

    def test_file_system_object(self, tmp_path):
        memory = fsspec.filesystem("memory")
        tfr.to_tfrecord(frame_of(TABLE), "/dask-write", filesystem=memory)
        try:
            assert tfr.read_table("memory://dask-write").equals(TABLE)
        finally:
            memory.rm("/dask-write", recursive=True)

    def test_dask_strings_and_categories(self, tmp_path):
        plain = pa.table({"s": ["a", "b", None], "c": ["x", "y", "x"], "i": [1, 2, 3]})
        pandas = plain.to_pandas().astype({"c": "category"})
        frame = dd.from_pandas(pandas, npartitions=1)
        assert frame["s"].dtype == "string[pyarrow]"
        tfr.to_tfrecord(frame, tmp_path / "a")
        tfr.write_table(plain, tmp_path / "b")
        assert tree(tmp_path / "a") == tree(tmp_path / "b")
        # Categories that Dask does not know until it has looked.
        unknown = dd.from_map(lambda _: pandas, [0], meta=frame._meta.astype({"c": "category"}))
        unknown["c"] = unknown["c"].cat.as_unknown()
        tfr.to_tfrecord(unknown, tmp_path / "c", partition_on="c")
        tfr.write_table(plain, tmp_path / "d", partition_by="c")
        assert tree(tmp_path / "c") == tree(tmp_path / "d")

    @BY_DASK
    @pytest.mark.parametrize("by", [(), "c"])
    def test_categories_of_parquet_files(self, tmp_path, by):
        plain = pa.table({"c": ["a", "b", None], "i": [1, 2, 3]})
        dressed = plain.set_column(0, "c", plain["c"].dictionary_encode())
        (tmp_path / "parquet").mkdir()
        pq.write_table(dressed, tmp_path / "parquet" / "a.parquet")
        frame = dd.read_parquet(tmp_path / "parquet")
        tfr.to_tfrecord(frame, tmp_path / "a", partition_on=by)
        tfr.write_table(plain, tmp_path / "b", partition_by=by)
        assert tree(tmp_path / "a") == tree(tmp_path / "b")

    def test_repartition_on_puts_a_value_in_one_file(self, tmp_path):
        frame = frame_of(TABLE)
        out = [tmp_path / name for name in ("a", "b")]
        for path, scheduler in zip(out, ("threads", "synchronous"), strict=True):
            kwargs = {"scheduler": scheduler}
            tfr.to_tfrecord(
                frame, path, partition_on="p", repartition_on="p", compute_kwargs=kwargs
            )
        assert tree(out[0]) == tree(out[1])
        files = sorted(data_files(out[0]))
        assert [file.partition("/")[0] for file in files] == ["p=k0", "p=k1", "p=k2"]
        read = tfr.read_table(out[0]).sort_by("i").select(TABLE.column_names)
        assert read.equals(TABLE)

    def test_repartition_on_booleans_beside_nulls(self, tmp_path):
        values = [True, None, False, True, False, True]
        frame = frame_of(pa.table({"b": values, "x": range(6)}), rows_per_task=2)
        tfr.to_tfrecord(frame, tmp_path / "a", partition_on="b", repartition_on="b")
        files = sorted(data_files(tmp_path / "a"))
        folders = ["b=__HIVE_DEFAULT_PARTITION__", "b=false", "b=true"]
        assert [file.partition("/")[0] for file in files] == folders
        assert tfr.read_table(tmp_path / "a").sort_by("x")["b"].to_pylist() == values


class TestValues:
    def write(self, path, data, *, npartitions=1, **options):
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_pandas(pd.DataFrame(data), npartitions=npartitions, sort=False)
            tfr.to_tfrecord(frame, path, **options)
        return tfr.read_table(path)

    def objects(self, path, *values, **options):
        """Write objects one by one to a partition, and read them."""
        data = {"v": pd.Series(values, dtype=object)}
        return self.write(path, data, npartitions=len(values), **options)["v"].to_pylist()

    def test_objects_are_looked_at(self, tmp_path):
        data = {
            "text": ["a", None, "c"],
            "bytes": [b"\xff", b"", None],
            "lists": [[1, 2], [], None],
            "arrays": [np.array([0.5], np.float32)] * 3,
            "dates": [datetime.date(2026, 1, 2)] * 3,
            "decimals": [decimal.Decimal("1.5")] * 3,
            "ints": pd.Series([1, None, 3], dtype=object),
            "none": [None, None, None],
        }
        read = self.write(tmp_path / "out", data)
        expected = pa.Table.from_pandas(pd.DataFrame(data)).replace_schema_metadata(None)
        assert read.schema.names == expected.schema.names
        assert read.to_pylist() == expected.to_pylist()

    def test_a_look_goes_on_to_the_first_value(self, tmp_path):
        def part(index):
            return pd.DataFrame({"x": pd.Series([b"v"] if index == 5 else [None], dtype=object)})

        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(part, range(8), meta=part(0))
        tfr.to_tfrecord(frame, tmp_path / "out")
        assert tfr.read_table(tmp_path / "out")["x"].to_pylist() == [None] * 5 + [b"v"] + [None] * 2

    @pytest.mark.parametrize("missing", [[np.nan], [pd.NaT], []])
    def test_what_is_missing_is_of_no_dtype(self, tmp_path, missing):
        parts = [missing, [2**24 + 1], missing, [7]]
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(
                lambda values: pd.DataFrame({"x": values}),
                parts,
                meta=pd.DataFrame({"x": pd.Series(dtype=object)}),
            )
        tfr.to_tfrecord(frame, tmp_path / "out")
        read = tfr.read_table(tmp_path / "out")["x"]
        assert read.type == pa.int64()
        assert read.drop_null().to_pylist() == [2**24 + 1, 7]
        assert len(read) == sum(map(len, parts))

    @pytest.mark.parametrize("later", [np.array([2**53 + 1]), np.array(["x"]), [b"x"], [DATE]])
    def test_arrays_without_values_are_of_no_dtype(self, tmp_path, later):
        parts = [pd.DataFrame({"x": [np.array([]), None]}), pd.DataFrame({"x": [later]})]
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(lambda n: parts[n], [0, 1])
        tfr.to_tfrecord(frame, tmp_path / "out")
        assert tfr.read_table(tmp_path / "out")["x"].to_pylist() == [[], None, list(later)]

    def test_mixed_objects_are_refused_by_name(self, tmp_path):
        with pytest.raises(tfr.InferenceError, match=r"'mixed'.*schema"):
            self.write(tmp_path / "out", {"mixed": [1, "a"], "good": [1, 2]})
        assert tree(tmp_path) == {}

    def test_a_later_partition_that_differs_is_refused(self, tmp_path):
        def part(index):
            return pd.DataFrame({"x": pd.Series([b"v" if index < 2 else 1.5], dtype=object)})

        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(part, range(3), meta=part(0))
        with pytest.raises(tfr.SchemaMismatchError, match=r"partition 2 .*'x'"):
            tfr.to_tfrecord(frame, tmp_path / "out")
        assert tree(tmp_path) == {}

    @pytest.mark.parametrize("dtype", ["int64", object])
    @pytest.mark.parametrize(
        ("part", "told"),
        [
            (pd.DataFrame([[1, 2]], columns=[0, "a"]), r"columns \[0, 'a'\], .* \['b', 'a'\]"),
            (pd.DataFrame([[1, 2, 3]], columns=["b", "a", "a"]), r"columns \['b', 'a', 'a'\], "),
            (pd.Series([1, 2]), "is a Series, and not a pandas DataFrame"),
            (None, "is a NoneType, and not"),
        ],
    )
    def test_partitions_of_a_wrong_meta_are_refused(self, tmp_path, part, told, dtype):
        meta = pd.DataFrame(columns=["b", "a"], dtype=dtype)
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(lambda _: part, range(1), meta=meta)
        with pytest.raises(tfr.SchemaMismatchError, match=f"{told}.*wrong meta"):
            tfr.to_tfrecord(frame, tmp_path / "out", compute_kwargs={"scheduler": "sync"})
        assert tree(tmp_path) == {}

    @pytest.mark.parametrize(
        ("first", "later"),
        [
            (2, 2.5),
            (2, decimal.Decimal("1.5")),
            (decimal.Decimal("1.5"), decimal.Decimal("1.25")),
            ([2], [2.5]),
            ([2], np.array([2.5])),
            (True, 1),
            (1, True),
            ("5", 5),
            (5, "5"),
            ("a", b"a"),
            (b"a", "a"),
            (["a"], [b"a"]),
            (DATE, datetime.datetime(2026, 1, 2)),
            (DATE, datetime.datetime(2026, 1, 2, 3)),
            (datetime.datetime(2026, 1, 2), DATE),
            (datetime.datetime(2026, 1, 2), datetime.datetime(2026, 1, 2, tzinfo=UTC)),
            (datetime.datetime(2026, 1, 2, tzinfo=UTC), datetime.datetime(2026, 1, 2)),
            (pd.Timestamp(1000), pd.Timestamp(1)),
            (pd.Timedelta(1000), pd.Timedelta(1)),
            (1, [1]),
            ([1], 1),
        ],
    )
    def test_later_values_that_differ_are_refused(self, tmp_path, first, later):
        with pytest.raises(tfr.SchemaMismatchError, match=r"'v'.*schema.*partition 1 ") as caught:
            self.objects(tmp_path / "out", first, later)
        assert caught.value.feature == "v"
        with pytest.raises(tfr.SchemaMismatchError, match=r"'v'.*schema.*partition 3 "):
            self.objects(tmp_path / "out", None, first, None, later)
        assert tree(tmp_path) == {}

    @pytest.mark.parametrize("later", ["4", True])
    def test_later_values_of_several_kinds_are_refused(self, tmp_path, later):
        values = pd.Series([1, 2, 3, later], dtype=object)
        with pytest.raises(tfr.InferenceError, match=r"'v'.*schema.*partition 1 "):
            self.write(tmp_path / "out", {"v": values}, npartitions=2)
        assert tree(tmp_path) == {}

    @pytest.mark.parametrize(
        "values",
        [
            [2.5, 2],
            [decimal.Decimal("1.25"), decimal.Decimal("1.5"), 2],
            [[], None, [], [1], []],
            [[], [2.5], [2]],
            [pd.Timestamp(1), pd.Timestamp(1000)],
            [pd.Timestamp(1, tz="UTC"), pd.Timestamp(1000, tz="UTC")],
            [pd.Timedelta(1), pd.Timedelta(1000)],
            [datetime.datetime(2026, 1, 2, tzinfo=UTC), pd.Timestamp("2026-01-02", tz="UTC")],
        ],
    )
    def test_later_values_that_fit_are_as_they_were(self, tmp_path, values):
        assert self.objects(tmp_path / "out", *values) == values

    @pytest.mark.parametrize(
        ("value", "t"),
        [(datetime.time(1, 2), pa.time32("s")), (DATE, pa.date64()), (b"ab", pa.binary())],
    )
    def test_objects_behind_types_of_arrow(self, tmp_path, value, t):
        parts = [pd.Series([value], dtype=d, name="v").to_frame() for d in (pd.ArrowDtype(t), "O")]
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(lambda n: parts[n], [0, 1], meta=parts[0])
        tfr.to_tfrecord(frame, tmp_path / "out")
        read = tfr.read_table(tmp_path / "out")["v"]
        assert (read.type, read.to_pylist()) == (t, [value] * 2)

    def test_categories_that_dask_does_not_know(self, tmp_path):
        parts = [pd.DataFrame({"v": pd.Categorical(values)}) for values in ([None], [2, None, 1])]
        # Of nothing pandas makes categories of floats.
        assert parts[0]["v"].cat.categories.dtype == float
        known = dd.from_map(lambda n: parts[n], [0, 1], meta=parts[0])
        for name, frame in {
            "known": known,
            "unknown": known.assign(v=known["v"].cat.as_unknown()),
        }.items():
            tfr.to_tfrecord(frame, tmp_path / name)
            read = tfr.read_table(tmp_path / name)["v"]
            assert (read.type, read.to_pylist()) == (pa.int64(), [None, 2, None, 1])

    @pytest.mark.parametrize(
        ("values", "error", "told"),
        [
            ([{"a": 1}, {"a": 2}], tfr.UnsupportedTypeError, "struct"),
            ([2**63, 1], tfr.InferenceError, "too large.*schema"),
            (["\ud800", "a"], tfr.InferenceError, "surrogates.*schema"),
            ([1, {"a": 1}], tfr.UnsupportedTypeError, "struct.*partition 1 "),
            ([None, [1], ["a"]], tfr.InferenceError, "some are.*schema"),
            ([None, DATE, NEW_YEAR], tfr.InferenceError, "some are date32.*schema"),
        ],
    )
    def test_what_has_no_type_is_told_by_column(self, tmp_path, values, error, told):
        with pytest.raises(error, match=f"column 'v'.*{told}") as caught:
            self.objects(tmp_path / "out", *values)
        assert caught.value.feature == "v"
        assert tree(tmp_path) == {}

    @pytest.mark.parametrize(
        ("column", "t"),
        [
            (pd.Series([1.0, 1.7]), pa.int64()),
            (pd.Series([1, 1.7], dtype=object), pa.int64()),
            (pd.Series([1, "a"], dtype=object), pa.int64()),
            (pd.Series([1, 7]), pa.bool_()),
            (pd.Series([0.5, 0.15]), pa.decimal128(3, 1)),
            (pd.Series(pd.to_datetime(["2026-01-01T00", "2026-01-01T05"])), pa.date32()),
            (pd.Series(pd.to_datetime(["2026-01-01"] * 2)), pa.timestamp("us", "UTC")),
            (pd.Series(pd.to_datetime(["2026-01-01"] * 2, utc=True)), pa.timestamp("us")),
            (pd.Series(pd.to_datetime([1, 2])), pa.timestamp("us")),
            # Partitions may have several units.
            (pd.Series(pd.to_datetime([1, 2])), pa.int64()),
            (pd.Series(pd.to_timedelta([1, 2])), pa.int64()),
            (pd.Series(pd.to_timedelta([1, 2])), pa.string()),
            (pd.Series([DATE, None]), pa.timestamp("us", "UTC")),
        ],
    )
    def test_a_schema_changes_no_value(self, tmp_path, column, t):
        told = r"column 'v'.*convert the column \(in partition 0 "
        with pytest.raises(tfr.SchemaMismatchError, match=told) as caught:
            self.write(tmp_path / "out", {"v": column}, schema={"v": t})
        assert caught.value.feature == "v"
        assert tree(tmp_path) == {}

    @pytest.mark.parametrize(
        ("values", "t", "expected"),
        [
            (["a", 1, "b", None, True], pa.string(), ["a", "1", "b", None, "true"]),
            ([b"a", "b"], pa.binary(), [b"a", b"b"]),
            (["4", 1, np.nan, 0.5, "2.5"], pa.float32(), [4.0, 1.0, None, 0.5, 2.5]),
            ([DATE, datetime.datetime(2026, 1, 2)], pa.date32(), [DATE, DATE]),
            ([["4"], np.array([1]), ["5"]], pa.list_(pa.int64()), [[4], [1], [5]]),
            (
                [pd.Timestamp("2026-01-01 01:00", tz="Europe/Paris"), None, "2026-01-01T00:00:00Z"],
                pa.timestamp("us", "UTC"),
                [NEW_YEAR, None, NEW_YEAR],
            ),
            (
                [np.array([0.5]), np.array([2], "f4"), np.array([], "u8")],
                pa.list_(pa.float32()),
                [[0.5], [2.0], []],
            ),
            (
                [np.array([3], "m8[s]"), np.array([5, 7], "m8[ms]")],
                pa.list_(pa.duration("ms")),
                [[datetime.timedelta(milliseconds=n) for n in one] for one in ([3000], [5, 7])],
            ),
        ],
    )
    def test_a_schema_is_for_values_of_any_kind(self, tmp_path, values, t, expected):
        assert self.objects(tmp_path / "apart", *values, schema={"v": t}) == expected
        data = {"v": pd.Series(values, dtype=object)}
        assert self.write(tmp_path / "one", data, schema={"v": t})["v"].to_pylist() == expected

    @pytest.mark.parametrize(
        ("column", "zone"),
        [
            (pd.Series(pd.to_datetime(["2026-01-01"])), "UTC"),
            (pd.Series(pd.to_datetime(["2026-01-01"], utc=True)), None),
            (pd.Series([DATE], dtype=object), "UTC"),
        ],
    )
    def test_a_schema_makes_up_no_zone(self, tmp_path, column, zone):
        with pytest.raises(tfr.SchemaMismatchError, match=r"'v'.*set the time zone first, or drop"):
            self.write(tmp_path / "out", {"v": column}, schema={"v": pa.timestamp("us", zone)})

    def test_values_of_several_kinds_keep_their_places(self, tmp_path):
        values = [n if n % 3 else f"{n}" for n in range(1000)]
        data = {"v": pd.Series(values, dtype=object)}
        read = self.write(tmp_path / "out", data, schema={"v": pa.string()})
        assert read["v"].to_pylist() == [*map(str, values)]

    @pytest.mark.parametrize(
        ("values", "t", "expected"),
        [
            (["a", None, 1, "a"], pa.string(), ["a", None, "1", "a"]),
            ([1, 2], pa.int32(), [1, 2]),
            ([None], pa.int64(), [None]),
            ([], pa.int64(), []),
        ],
    )
    def test_a_schema_is_for_categories_of_any_kind(self, tmp_path, values, t, expected):
        data = {"v": pd.Categorical(values, categories=["a", 1, 2])}
        read = self.write(tmp_path / "out", data, schema={"v": t})
        assert (read["v"].type, read["v"].to_pylist()) == (t, expected)

    def test_types_of_arrow_alone(self, tmp_path):
        vectors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((3, 2), np.float32))
        ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16] * 3, pa.binary(16)))
        table = pa.table({"v": vectors, "i": ids})
        tfr.to_tfrecord(frame_of(table, 2), tmp_path / "dask")
        tfr.write_table(table, tmp_path / "core", rows_per_task=2)
        assert tree(tmp_path / "dask") == tree(tmp_path / "core")

    def test_a_schema_is_of_any_dress(self, tmp_path):
        flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
        data = {
            "c": pd.Series([7, None, 7]).astype("Int64").astype("category"),
            "u": pd.Series([b"x" * 16] * 3, dtype=pd.ArrowDtype(pa.binary(16))),
            "s": pd.Series(["7", None, "8"], dtype="string[pyarrow]"),
            "i": pd.Series([[7], [], None], dtype=object),
            "d": pd.Series([7, None, 7]).astype("Int64").astype("category"),
            "e": pd.arrays.ArrowExtensionArray(pa.chunked_array([flags])),
        }
        schema = {
            "c": pa.float64(),
            "u": pa.binary(),
            "s": pa.int64(),
            "i": pa.list_(pa.decimal128(3, 1)),
            "d": pa.decimal128(3, 1),
            "e": pa.decimal128(3, 1),
        }
        read = self.write(tmp_path / "out", data, schema=schema)
        assert dict(zip(read.schema.names, read.schema.types, strict=True)) == schema
        assert read.to_pydict() == {
            "c": [7.0, None, 7.0],
            "u": [b"x" * 16] * 3,
            "s": [7, None, 8],
            "i": [[decimal.Decimal("7.0")], [], None],
            "d": [decimal.Decimal("7.0"), None, decimal.Decimal("7.0")],
            "e": [decimal.Decimal("1.0"), decimal.Decimal("0.0"), None],
        }

    def test_a_schema_asks_for_float32(self, tmp_path):
        for number, values in enumerate(([1e300, 0.5], [[0.5], [1e300]])):
            t = pa.list_(pa.float32()) if number else pa.float32()
            with pytest.raises(tfr.EncodeError, match=r"'v'.*beyond the range"):
                self.write(tmp_path / "out", {"v": values}, schema={"v": t})
        exact = {"v": [0.5, np.nan], "l": [[0.5], None], "d": [decimal.Decimal("1.25")] * 2}
        schema = {"v": pa.float32(), "l": pa.list_(pa.float32(), 1), "d": pa.float32()}
        read = self.write(tmp_path / "exact", exact, schema=schema, float64="error")
        assert dict(zip(read.schema.names, read.schema.types, strict=True)) == schema
        assert read.to_pydict() == {"v": [0.5, None], "l": [[0.5], None], "d": [1.25, 1.25]}
        rounded = {"v": [0.1, 0.5]}
        for values in (rounded["v"], ["0.1", "0.5"], [decimal.Decimal("0.1")] * 2):
            with pytest.raises(tfr.EncodeError, match=r"'v' holds 0\.1"):
                schema = {"v": pa.float32()}
                self.write(tmp_path / "out", {"v": values}, schema=schema, float64="error")
        assert not (tmp_path / "out").exists()
        with pytest.warns(tfr.PrecisionWarning, match="'v'"):
            read = self.write(tmp_path / "warn", rounded, schema={"v": pa.float32()})
        assert read["v"].to_pylist() == [float(np.float32(0.1)), 0.5]
        folders = {"v": [0.5, 0.5], "x": [1, 2]}
        schema = {"v": pa.float32()}
        read = self.write(tmp_path / "folders", folders, schema=schema, partition_on="v")
        assert read["v"].to_pylist() == [0.5, 0.5]

    def test_nan_is_null_in_numpy_columns_alone(self, tmp_path):
        data = {
            "numpy": np.array([1.5, np.nan], np.float32),
            "arrow": pd.array([1.5, None], pd.ArrowDtype(pa.float32())),
        }
        nan = pd.arrays.ArrowExtensionArray(pa.array([1.5, float("nan")], pa.float32()))
        read = self.write(tmp_path / "out", {**data, "nan": nan})
        assert read["numpy"].to_pylist() == [1.5, None]
        assert read["arrow"].to_pylist() == [1.5, None]
        assert np.isnan(read["nan"].to_pylist()[1])

    def test_schema_of_some_columns_and_of_all(self, tmp_path):
        data = {"x": [1.0, np.nan], "y": ["a", "b"]}
        read = self.write(tmp_path / "some", data, schema={"x": pa.int64()})
        assert read.schema.field("x").type == pa.int64()
        assert read["x"].to_pylist() == [1, None]
        schema = pa.schema([("x", pa.int32()), pa.field("y", pa.binary(), nullable=False)])
        read = self.write(tmp_path / "all", data, schema=schema)
        assert read.to_pylist() == [{"x": 1, "y": b"a"}, {"x": None, "y": b"b"}]
        turned = pa.schema([("y", pa.string()), ("x", pa.float32())])
        assert self.write(tmp_path / "turned", data, schema=turned).schema.equals(turned)
        with pytest.raises(tfr.OptionError, match="they must be the same"):
            self.write(tmp_path / "wrong", data, schema=pa.schema([*turned, turned.field("x")]))
        with pytest.raises(tfr.EncodeError, match="'x'"):
            strict = pa.schema([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])
            self.write(tmp_path / "strict", data, schema=strict)
        with pytest.raises(tfr.SchemaMismatchError, match="'y'"):
            self.write(tmp_path / "wrong", data, schema={"y": pa.int64()})
        for schema in (pa.schema([("x", pa.int64())]), {"z": pa.int64()}, {"x": int}, "guess"):
            with pytest.raises(tfr.OptionError, match="schema"):
                self.write(tmp_path / "wrong", data, schema=schema)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "some", "turned"]

    def test_floats_that_are_rounded_are_told_once(self, tmp_path, cluster):
        frame = dd.from_pandas(pd.DataFrame({"x": [0.1] * 6}), npartitions=3)
        for number, scheduler in enumerate(["threads", cluster]):
            with pytest.warns(tfr.PrecisionWarning, match="'x'") as caught:
                tfr.to_tfrecord(
                    frame, tmp_path / str(number), compute_kwargs={"scheduler": scheduler}
                )
            assert [warning.filename for warning in caught] == [__file__]

    def test_index(self, tmp_path):
        frame = frame_of(TABLE.select(["i", "s"]))
        tfr.to_tfrecord(frame, tmp_path / "unnamed")
        assert tfr.read_table(tmp_path / "unnamed").column_names == ["i", "s"]
        tfr.to_tfrecord(frame, tmp_path / "asked", write_index=True)
        asked = tfr.read_table(tmp_path / "asked")
        assert asked.column_names == ["__null_dask_index__", "i", "s"]
        assert asked["__null_dask_index__"].to_pylist() == [*range(PER_TASK)] * (ROWS // PER_TASK)
        pandas = TABLE.to_pandas().rename(columns={"i": "index", "n": "level_0"})
        taken = dd.from_pandas(pandas[["index", "level_0"]], npartitions=2)
        tfr.to_tfrecord(taken, tmp_path / "taken", write_index=True)
        names = ["__null_dask_index__", "index", "level_0"]
        assert tfr.read_table(tmp_path / "taken").column_names == names
        named = frame.set_index("i", sorted=True)
        tfr.to_tfrecord(named, tmp_path / "named")
        assert tfr.read_table(tmp_path / "named").equals(TABLE.select(["i", "s"]))
        tfr.to_tfrecord(named, tmp_path / "left", write_index=False)
        assert tfr.read_table(tmp_path / "left").column_names == ["s"]

    @pytest.mark.parametrize(
        "index", [pd.to_datetime([1, 2]), pd.Index(["a", "b"], dtype="string"), pd.Index([0.5, 1])]
    )
    def test_an_index_that_is_lost_is_told(self, tmp_path, index):
        frame = dd.from_pandas(pd.DataFrame({"x": [1, 2]}, index=index), npartitions=1)
        with pytest.warns(tfr.TFRecordWarning, match="the index, which is .* write_index=True"):
            tfr.to_tfrecord(frame, tmp_path / "left")
        tfr.to_tfrecord(frame, tmp_path / "said", write_index=False)
        assert tfr.read_table(tmp_path / "said").column_names == ["x"]
        tfr.to_tfrecord(frame, tmp_path / "written", write_index=True, float64="cast")
        assert tfr.read_table(tmp_path / "written")[0].to_pandas().tolist() == index.tolist()

    def test_an_index_that_is_told_by_nobody(self, tmp_path):
        """Of dtype object is also that of a meta that was written by hand; a name is enough."""
        for number, index in enumerate(
            (pd.Index([], dtype=object), pd.DatetimeIndex([], name="t"))
        ):
            meta = pd.DataFrame({"x": pd.Series([], dtype="int64")}).set_index(index)
            with dask.config.set({"dataframe.convert-string": False}):
                frame = dd.from_map(lambda _, m=meta: m, [0], meta=meta)
            tfr.to_tfrecord(frame, tmp_path / str(number))
            read = tfr.read_table(tmp_path / str(number))
            assert read.column_names == [*filter(None, [index.name]), "x"]

    @BY_DASK
    def test_index_of_several_levels(self, tmp_path):
        pandas = pd.DataFrame({"a": [1, 1, 2], "b": ["x", "y", "x"], "v": [1, 2, 3]})
        grouped = dd.from_pandas(pandas, npartitions=1).groupby(["a", "b"]).sum()
        tfr.to_tfrecord(grouped, tmp_path / "named")
        assert tfr.read_table(tmp_path / "named").sort_by("v").to_pydict() == {
            name: pandas[name].tolist() for name in pandas.columns
        }
        tfr.to_tfrecord(grouped, tmp_path / "left", write_index=False)
        assert tfr.read_table(tmp_path / "left").column_names == ["v"]
        for names, expected in (
            ([None, "b"], ["level_0", "b"]),
            ([None] * 2, ["level_0", "level_1"]),
        ):
            meta = grouped._meta.rename_axis(names)
            renamed = grouped.map_partitions(pd.DataFrame.rename_axis, names, meta=meta)
            path = tmp_path / str(names)
            tfr.to_tfrecord(renamed, path)
            assert tfr.read_table(path).column_names == [*expected, "v"]
            # As Dask names them.
            renamed.to_parquet(path / "parquet")
            parts = pq.read_schema(path / "parquet" / "part.0.parquet")
            assert sorted(parts.names) == sorted([*expected, "v"])
        for names in (["v", "b"], ["b", "b"], ["level_1", None]):
            meta = grouped._meta.rename_axis(names)
            renamed = grouped.map_partitions(pd.DataFrame.rename_axis, names, meta=meta)
            with pytest.raises(tfr.OptionError, match="of the index, are named"):
                tfr.to_tfrecord(renamed, tmp_path / "out")
        assert not (tmp_path / "out").exists()


class TestRefused:
    """Before anything is computed, with nothing written."""

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"partition_on": "q"}, tfr.OptionError, "'q'"),
            ({"partition_on": "l"}, tfr.TFRecordError, "'l'"),
            ({"repartition_on": "q"}, tfr.OptionError, "repartition_on"),
            ({"repartition_on": 5}, tfr.OptionError, "repartition_on"),
            ({"repartition_on": []}, tfr.OptionError, r"repartition_on is \[\]"),
            ({"repartition_on": ["p", "l"]}, tfr.OptionError, "'l'.*lists"),
            ({"partition_on": 5}, tfr.OptionError, "partition_by is 5"),
            ({"partition_on": ["p", 5]}, tfr.OptionError, "partition_by is"),
            ({"append": True, "overwrite": True}, tfr.OptionError, "one of them"),
            ({"append": True, "mode": "append"}, tfr.OptionError, "one of them"),
            ({"mode": "replace"}, tfr.OptionError, "mode"),
            ({"append": "yes"}, tfr.OptionError, "append is 'yes'"),
            ({"overwrite": None}, tfr.OptionError, "overwrite is None"),
            ({"write_index": 1}, tfr.OptionError, "write_index is 1"),
            ({"compute_kwargs": "threads"}, tfr.OptionError, "compute_kwargs is a str"),
            ({"compute_kwargs": {"sync": False}}, tfr.OptionError, "futures"),
            ({"name_function": str}, tfr.OptionError, "name_function cannot.*fixed"),
            ({"compression": "rar"}, tfr.TFRecordError, "rar"),
            ({"engine": "pyarrow"}, TypeError, "engine"),
            ({"record_type": "ByteArray"}, tfr.TFRecordError, "ByteArray"),
        ],
    )
    @pytest.mark.parametrize("compute", [True, False])
    def test_options(self, tmp_path, options, error, message, compute):
        frame = frame_of(TABLE).map_partitions(failing, at=0, meta=frame_of(TABLE)._meta)
        with pytest.raises(error, match=message):
            tfr.to_tfrecord(frame, tmp_path / "out", compute=compute, **options)
        assert tree(tmp_path) == {}

    def test_types(self, tmp_path):
        struct = pa.table({"x": [{"a": 1}]})
        with pytest.raises(tfr.UnsupportedTypeError, match="'x'"):
            tfr.to_tfrecord(frame_of(struct), tmp_path / "out")
        numbers = dd.from_pandas(pd.DataFrame({0: [1]}), npartitions=1)
        with pytest.raises(tfr.UnsupportedTypeError, match="column name 0"):
            tfr.to_tfrecord(numbers, tmp_path / "out")
        numbers = dd.from_pandas(pd.DataFrame({"z": [1j]}), npartitions=1)
        with pytest.raises(tfr.UnsupportedTypeError, match=r"'z'.*complex"):
            tfr.to_tfrecord(numbers, tmp_path / "out")
        periods = pd.DataFrame({"p": pd.period_range("2026", periods=2, freq="M")})
        with pytest.raises(tfr.UnsupportedTypeError, match=r"'p'.*frequency"):
            tfr.to_tfrecord(dd.from_pandas(periods, npartitions=1), tmp_path / "out")
        with pytest.raises(tfr.LayoutError, match="all columns"):
            tfr.to_tfrecord(
                frame_of(TABLE.select(["i", "s"])), tmp_path / "out", partition_on=["s", "i"]
            )
        assert tree(tmp_path) == {}

    def test_what_is_no_dask_frame(self, tmp_path):
        for wrong, hint in (
            (TABLE.to_pandas(), "write_table"),
            (frame_of(TABLE)["i"], "to_frame"),
            (dask.array.ones((2, 2)), "to_dask_dataframe"),
            (frame_of(TABLE).to_delayed(), "from_delayed"),
            (dask.bag.from_sequence([{"i": 1}]), "to_dataframe"),
            ([1, 2], "write_table"),
            ([], "write_table"),
            (3, "write_table"),
        ):
            with pytest.raises(tfr.OptionError, match=hint):
                tfr.to_tfrecord(wrong, tmp_path / "out")
        with pytest.raises(tfr.OptionError, match="compute is 'no'"):
            tfr.to_tfrecord(frame_of(TABLE), tmp_path / "out", compute="no")
        for path in (None, 5, b"x", ["x"]):
            for filesystem in (None, fsspec.filesystem("file")):
                with pytest.raises(tfr.OptionError, match="is not a path or URL"):
                    tfr.to_tfrecord(frame_of(TABLE), path, filesystem=filesystem)
        delayed = tfr.to_tfrecord(frame_of(TABLE), tmp_path / "out", compute=False)
        with pytest.raises(tfr.OptionError, match="futures"):
            delayed.compute(asynchronous=True)
        assert tree(tmp_path) == {}

    def test_futures(self, tmp_path, cluster):
        futures = cluster.scatter([TABLE.to_pandas()])
        with pytest.raises(tfr.OptionError, match=r"from_delayed.* futures"):
            tfr.to_tfrecord(futures, tmp_path / "out")

    def test_a_shuffle_by_objects_that_are_lists(self, tmp_path):
        pandas = pd.DataFrame({"l": [[1], [2], [1]], "x": [1, 2, 3]})
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_pandas(pandas, npartitions=2)
        with pytest.raises(tfr.OptionError, match=r"'l'.*lists"):
            tfr.to_tfrecord(frame, tmp_path / "out", repartition_on="l")
        assert tree(tmp_path) == {}

    def test_a_shuffle_beside_a_column_that_dask_takes(self, tmp_path):
        frame = dd.from_pandas(pd.DataFrame({"x": [1, 2], "_partitions": [3, 4]}), npartitions=2)
        tfr.to_tfrecord(frame, tmp_path / "out")
        with pytest.raises(tfr.OptionError, match=r"'_partitions'.*rename"):
            tfr.to_tfrecord(frame, tmp_path / "out", repartition_on="x", overwrite=True)
        assert tfr.read_table(tmp_path / "out")["_partitions"].to_pylist() == [3, 4]

    def test_before_a_look_at_values(self, tmp_path):
        with dask.config.set({"dataframe.convert-string": False}):
            objects = dd.from_map(
                lambda _: failing(pd.DataFrame({"i": [0], "x": [b""]}), 0),
                [0],
                meta=pd.DataFrame({"i": [0], "x": pd.Series([b""], dtype=object)}),
            )
        tfr.write_table(TABLE, tmp_path / "out")
        before = tree(tmp_path)
        with pytest.raises(tfr.DatasetExistsError):
            tfr.to_tfrecord(objects, tmp_path / "out")
        for by, told in (("q", "there is no column 'q'"), (5, "partition_by is")):
            with pytest.raises(tfr.OptionError, match=told):
                tfr.to_tfrecord(objects, tmp_path / "new", partition_on=by)
        assert tree(tmp_path) == before


class TestModes:
    @pytest.mark.parametrize("added", [[7], [[1, 2]], ["x"]])
    def test_a_column_of_nulls_goes_with_any_type(self, tmp_path, added):
        for values in ([None, None], added, [None]):
            frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "n": range(len(values))})
            with dask.config.set({"dataframe.convert-string": False}):
                tfr.to_tfrecord(dd.from_pandas(frame, npartitions=1), tmp_path, append=True)
        back = tfr.read_table(tmp_path)
        assert back.schema.field("x").type == pa.array(added).type
        assert back["x"].to_pylist() == [None, None, *added, None]

    def test_existing_data(self, tmp_path):
        frame = frame_of(TABLE)
        path = tmp_path / "out"
        tfr.to_tfrecord(frame, path)
        before = tree(path)
        with pytest.raises(tfr.DatasetExistsError):
            tfr.to_tfrecord(frame, path)
        assert tfr.to_tfrecord(frame, path, mode="ignore") == tfr.WriteResult()
        assert tree(path) == before
        tfr.to_tfrecord(frame, path, append=True)
        assert tfr.read_table(path)["i"].to_pylist() == [*range(ROWS)] * 2
        tfr.to_tfrecord(frame, path, overwrite=True)
        assert tree(path) == before

    @pytest.mark.parametrize(
        ("before", "added"),
        [
            (["a"], ["b", None]),
            ([[1]], [[], [2, 3]]),
            ([DATE], [None, DATE]),
            ([2.5], [3, None]),
            ([b"a"], [b"b"]),
            ([pd.Timestamp(1)], [pd.Timestamp(1000)]),
        ],
    )
    def test_objects_are_added(self, tmp_path, before, added):
        def frame(values):
            pandas = pd.DataFrame({"v": pd.Series(values, dtype=object), "p": len(values)})
            return dd.from_pandas(pandas, npartitions=len(values), sort=False)

        with dask.config.set({"dataframe.convert-string": False}):
            for path, options in ((tmp_path / "a", {}), (tmp_path / "b", {"partition_on": "p"})):
                tfr.to_tfrecord(frame(before), path, **options)
                mode = "overwrite_partitions" if options else "append"
                tfr.to_tfrecord(frame(added), path, mode=mode, **options)
                again = tfr.read_table(path)["v"].to_pylist()
                kept = before if not options or len(added) != len(before) else []
                assert again == [*kept, *added]
                old = tree(path)
                with pytest.raises(tfr.SchemaMismatchError, match="'v'"):
                    tfr.to_tfrecord(frame([True]), path, append=True, **options)
                assert tree(path) == old

    @pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
    @pytest.mark.parametrize(
        ("before", "added"),
        [(1, 2), (1.5, 2.5), (b"a", b"b"), ([1, 2], [3, 4]), ([b"a"] * 2, [b"b"])],
    )
    def test_objects_are_added_to_files_of_others(self, tmp_path, before, added, mode):
        (tmp_path / "p=1").mkdir()
        (tmp_path / "p=1" / "a.tfrecord").write_bytes(examples({"v": before}))

        pandas = pd.DataFrame({"v": [added], "p": [2]}, dtype=object)
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_pandas(pandas, npartitions=1)
        tfr.to_tfrecord(frame, tmp_path, mode=mode, partition_on="p")
        assert tfr.read_table(tmp_path)["v"].to_pylist() == [before, added]

    def test_files_of_others_hold_other_types(self, tmp_path):
        (tmp_path / "a.tfrecord").write_bytes(examples({"i": b"a"}))
        before = tree(tmp_path)
        with dask.config.set({"dataframe.convert-string": False}):
            objects = pd.DataFrame({"i": pd.Series([1], dtype=object)})
            added = dd.from_pandas(objects, npartitions=1)
            # What a dtype tells needs no look at values.
            integers = pd.DataFrame({"i": [0], "v": [[1]]})
            not_made = dd.from_map(failing, [integers], at=0, meta=integers)
        for frame in (added, not_made):
            with pytest.raises(tfr.SchemaMismatchError, match=r"what is in the data set.*'i'"):
                tfr.to_tfrecord(frame, tmp_path, append=True)
        assert tree(tmp_path) == before

    def test_lists_are_added_to_lists_of_nulls(self, tmp_path):
        nulls = pa.table({"v": pa.array([None], pa.list_(pa.null())), "n": [1]})
        tfr.write_table(nulls, tmp_path / "out")
        pandas = pd.DataFrame({"v": pd.Series([[1, 2]], dtype=object), "n": [2]})
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_pandas(pandas, npartitions=1)
        tfr.to_tfrecord(frame, tmp_path / "out", append=True)
        assert tfr.read_table(tmp_path / "out")["v"].to_pylist() == [None, [1, 2]]

    def test_other_columns_are_not_added(self, tmp_path):
        tfr.write_table(pa.table({"v": ["a"]}), tmp_path / "out")
        before = tree(tmp_path)
        with dask.config.set({"dataframe.convert-string": False}):
            pandas = pd.DataFrame({"v": ["b"], "w": ["c"]})
            frame = dd.from_map(failing, [pandas.assign(i=0)], at=0, meta=pandas)
        with pytest.raises(tfr.SchemaMismatchError, match="other columns"):
            tfr.to_tfrecord(frame, tmp_path / "out", append=True)
        assert tree(tmp_path) == before

    @pytest.mark.parametrize(
        "form",
        [
            str,
            Path,
            lambda path: os.path.relpath(path),
            lambda path: f"file://{path}",
            lambda path: [str(path)],
            lambda path: f"{path}/p=*/*.tfrecord",
            lambda path: f"{path}/../data",
        ],
    )
    def test_overwriting_what_is_read(self, tmp_path, form):
        path = tmp_path / "data"
        tfr.write_table(TABLE, path, partition_by="p", rows_per_task=7)
        frame = tfr.read_tfrecord(form(path), blocksize=None)
        if "p" not in frame.columns:
            pytest.fail("the partition column is lost")
        doubled = frame.assign(i=frame["i"] * 2)
        tfr.to_tfrecord(doubled, path, partition_on="p", overwrite=True)
        read = tfr.read_table(path)
        assert sorted(read["i"].to_pylist()) == [2 * i for i in range(ROWS)]
        # The frame is of data that are gone, and says so.
        with pytest.raises((tfr.DatasetChangedError, FileNotFoundError)):
            frame["i"].sum().compute()
        assert len(tfr.read_tfrecord(form(path))) == ROWS

    def test_what_is_delayed_is_one_write(self, tmp_path):
        frame = frame_of(TABLE)
        path = tmp_path / "out"
        made = tfr.to_tfrecord(frame, path, compute=False)
        assert tree(tmp_path) == {}
        assert dask.compute(made, made)[0].rows == ROWS
        for again in (made.compute, lambda: dask.compute(made)):
            with pytest.raises(tfr.DatasetExistsError):
                again()
        before = tree(path)
        overwriting = tfr.to_tfrecord(frame, path, overwrite=True, compute=False)
        assert overwriting.compute() == overwriting.compute() == dask.compute(overwriting)[0]
        assert tree(path) == before
        adding = tfr.to_tfrecord(frame, path, append=True, compute=False)
        assert adding.compute().rows == ROWS
        for again in (adding.compute, lambda: dask.compute(adding)):
            with pytest.raises(tfr.CommitConflictError, match="append"):
                again()
        assert tfr.read_table(path)["i"].to_pylist() == [*range(ROWS)] * 2

    def test_what_is_not_to_be_written_is_not_made(self, tmp_path):
        made = []

        def part(number):
            made.append(number)
            return pd.DataFrame({"x": [number]})

        frame = dd.from_map(part, range(2), meta=pd.DataFrame({"x": [0]}))
        adding = tfr.to_tfrecord(frame, tmp_path / "out", append=True, compute=False)
        assert adding.compute(scheduler="sync").rows == len(made) == 2
        with pytest.raises(tfr.CommitConflictError, match="append"):
            adding.compute(scheduler="sync")
        kwargs = {"scheduler": "sync"}
        tfr.to_tfrecord(frame, tmp_path / "out", mode="ignore", compute_kwargs=kwargs)
        assert len(made) == 2

    def test_appends_that_were_made_of_one_state_add_their_rows_once(self, tmp_path):
        tfr.write_table(pa.table({"x": [1]}), tmp_path / "t")
        together = threading.Barrier(2)

        @dask.delayed(pure=False)
        def made():
            # Both have begun before either commits.
            together.wait(30)
            return pd.DataFrame({"x": [2]})

        df = dd.from_delayed([made()], meta=pd.DataFrame({"x": [2]}), verify_meta=False)
        target = tfr.to_tfrecord(df, tmp_path / "t", append=True, compute=False)

        def compute(results):
            try:
                results.append(target.compute(scheduler="sync"))
            except tfr.CommitConflictError as error:
                results.append(error)

        results = []
        threads = [threading.Thread(target=compute, args=(results,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(type(one).__name__ for one in results) == [
            "CommitConflictError",
            "WriteResult",
        ]
        assert tfr.read_table(tmp_path / "t")["x"].to_pylist() == [1, 2]

    def test_delayed_paths_are_those_of_the_caller(self, tmp_path, monkeypatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        made = tfr.to_tfrecord(frame_of(TABLE), "out", compute=False)
        monkeypatch.chdir(tmp_path / "elsewhere")
        dask.compute(made)
        assert tfr.read_table(tmp_path / "out").equals(TABLE)


class TestRawRecords:
    def test_a_bag(self, tmp_path):
        # More in a partition than are encoded at a time.
        payloads = [b"%d" % i * (i % 50) for i in range(5000)]
        bag = dask.bag.from_sequence(payloads, npartitions=4)
        tfr.to_tfrecord(bag, tmp_path / "out", record_type="ByteArray")
        assert b"".join(data_files(tmp_path / "out").values()) == records(*payloads)
        read = tfr.read_tfrecord(tmp_path / "out", record_type="ByteArray")
        assert read["byteArray"].to_bag().compute() == payloads

    def test_a_frame(self, tmp_path):
        payloads = [b"%d" % i * i for i in range(50)]
        frame = frame_of(pa.table({"byteArray": payloads}))
        tfr.to_tfrecord(frame, tmp_path / "out", record_type="ByteArray")
        assert b"".join(data_files(tmp_path / "out").values()) == records(*payloads)

    def test_delayed_objects(self, tmp_path):
        parts = [dask.delayed(iter)([b"a", bytearray(b"b")]), dask.delayed(list)([b"c"])]
        tfr.to_tfrecord(parts, tmp_path / "out", record_type="ByteArray")
        assert list(data_files(tmp_path / "out").values()) == [records(b"a", b"b"), records(b"c")]

    def test_refused(self, tmp_path):
        bag = dask.bag.from_sequence([b"a", "b"], npartitions=1)
        with pytest.raises(tfr.OptionError, match="ByteArray"):
            tfr.to_tfrecord(bag, tmp_path / "out")
        with pytest.raises(tfr.OptionError, match="repartition_on"):
            tfr.to_tfrecord(bag, tmp_path / "out", record_type="ByteArray", repartition_on="x")
        with pytest.raises(tfr.SchemaMismatchError, match="is a str"):
            tfr.to_tfrecord(
                bag,
                tmp_path / "out",
                record_type="ByteArray",
                compute_kwargs={"scheduler": "threads"},
            )
        nothing = [dask.delayed(None)]
        with pytest.raises(tfr.SchemaMismatchError, match="NoneType; it must be an iterable"):
            tfr.to_tfrecord(nothing, tmp_path / "out", record_type="ByteArray")
        assert tree(tmp_path) == {}


class TestFailures:
    @pytest.mark.parametrize("delayed", [False, True])
    def test_nothing_is_left(self, tmp_path, delayed):
        tfr.write_table(TABLE, tmp_path / "old")
        before = tree(tmp_path)
        frame = frame_of(TABLE).map_partitions(failing, at=70, meta=frame_of(TABLE)._meta)
        for target, mode in (("new", "error"), ("old", "overwrite"), ("old", "append")):
            with pytest.raises(ZeroDivisionError):
                if delayed:
                    tfr.to_tfrecord(frame, tmp_path / target, mode=mode, compute=False).compute()
                else:
                    tfr.to_tfrecord(frame, tmp_path / target, mode=mode)
            assert tree(tmp_path) == before

    def test_nothing_is_left_by_a_cluster(self, tmp_path, cluster):
        frame = frame_of(TABLE).map_partitions(failing, at=70, meta=frame_of(TABLE)._meta)
        with pytest.raises(ZeroDivisionError):
            tfr.to_tfrecord(frame, tmp_path / "out", compute_kwargs={"scheduler": cluster})
        assert tree(tmp_path) == {}

    def test_what_a_failed_graph_hides_is_nobodys_data(self, tmp_path):
        frame = frame_of(TABLE).map_partitions(failing, at=70, meta=frame_of(TABLE)._meta)
        with pytest.raises(ZeroDivisionError):
            dask.compute(
                tfr.to_tfrecord(frame, tmp_path / "out", compute=False), scheduler="synchronous"
            )
        assert data_files(tmp_path / "out") == {}
        tfr.to_tfrecord(frame_of(TABLE), tmp_path / "out")
        assert tfr.read_table(tmp_path / "out").equals(TABLE)

    def test_a_job_that_was_begun_twice_publishes_nothing(self, tmp_path):
        """As a scheduler does that lost the worker of the first node, and not those of others."""
        made = tfr.to_tfrecord(frame_of(TABLE), tmp_path / "out", compute=False)
        graph = dict(made.dask)
        write = next(key for key in graph if key[0].startswith("write-tfrecord"))
        staged = dask.get(graph, write)
        with pytest.raises(tfr.CommitError, match="nothing was written: compute it again"):
            dask.get({**graph, write: staged}, made.key)
        assert data_files(tmp_path / "out") == {}
        assert not (tmp_path / "out" / "_SUCCESS").exists()
        # The first job's, whose worker is gone; the second one has ended.
        assert len(list((tmp_path / "out" / STAGING_NAME).iterdir())) == 1

    def test_a_job_that_was_cleaned_away_is_no_matter_of_a_partition(self, tmp_path):
        def cleaning(part):
            shutil.rmtree(tmp_path / "out" / STAGING_NAME, ignore_errors=True)
            return part

        frame = frame_of(TABLE).map_partitions(cleaning, meta=frame_of(TABLE)._meta)
        with pytest.raises(tfr.CommitError, match="cleaned away; nothing is written") as caught:
            tfr.to_tfrecord(frame, tmp_path / "out", compute_kwargs={"scheduler": "sync"})
        assert "partition" not in str(caught.value)

    def test_retries(self, tmp_path, cluster, expected):
        flags = tmp_path / "flags"
        flags.mkdir()
        frame = frame_of(TABLE)
        frame = frame.map_partitions(failing_once, flags=str(flags), meta=frame._meta)
        tfr.to_tfrecord(
            frame,
            tmp_path / "out",
            partition_on="p",
            compute_kwargs={"scheduler": cluster, "retries": 2},
        )
        assert len(list(flags.iterdir())) == ROWS // PER_TASK
        assert tree(tmp_path / "out") == expected

    @pytest.mark.parametrize("compute", [True, False])
    def test_a_killed_worker(self, tmp_path, cluster, expected, compute):
        cluster.wait_for_workers(2)
        frame = frame_of(TABLE)
        flag = str(tmp_path / "flag")
        frame = frame.map_partitions(killing_once, at=90, flag=flag, meta=frame._meta)
        options = {"partition_on": "p", "compute": compute}
        if compute:
            options["compute_kwargs"] = {"scheduler": cluster}
        made = tfr.to_tfrecord(frame, tmp_path / "out", **options)
        if not compute:
            cluster.compute(made).result()
        assert Path(flag).exists()
        assert tree(tmp_path / "out") == expected

    def test_a_result_that_is_lost_is_not_written_twice(self, tmp_path, cluster):
        cluster.wait_for_workers(2)
        tfr.write_table(TABLE, tmp_path / "out")
        made = tfr.to_tfrecord(frame_of(TABLE), tmp_path / "out", append=True, compute=False)
        future = cluster.compute(made)
        assert future.result().rows == ROWS
        (holder,) = cluster.who_has([future])[future.key]
        os.kill(cluster.run(os.getpid)[holder], signal.SIGKILL)
        # The scheduler computes it anew when it misses the worker.
        cluster.wait_for_workers(2)
        cluster.run_on_scheduler(_until_gone, holder=holder)
        with pytest.raises(tfr.CommitConflictError, match="append"):
            future.result()
        assert tfr.read_table(tmp_path / "out")["i"].to_pylist() == [*range(ROWS)] * 2


async def _until_gone(dask_scheduler, holder):
    import asyncio

    while holder in dask_scheduler.workers:
        await asyncio.sleep(0.01)


def test_names_say_what_is_done(tmp_path):
    seen = []
    made = tfr.to_tfrecord(
        tfr.read_tfrecord(Path(_written(tmp_path)), blocksize=None), tmp_path / "b", compute=False
    )
    with Callback(posttask=lambda key, *_: seen.append(dask.utils.key_split(key))):
        dask.compute(made, scheduler="synchronous")
    assert sorted(set(seen)) == [
        "begin-tfrecord",
        "commit-tfrecord",
        "read-tfrecord",
        "write-tfrecord",
    ]
    assert seen.count("commit-tfrecord") == 1


def _written(tmp_path):
    tfr.write_table(TABLE, tmp_path / "a", rows_per_task=PER_TASK)
    return tmp_path / "a"


class TestStores:
    """Local disk, HDFS, S3 and memory; the cluster cannot share the last."""

    def test_write_read_and_overwrite(self, tmp_path, store, cluster, expected):
        options = {"storage_options": store.storage_options}
        path = f"{store.url}/data"
        kwargs = {"scheduler": "threads" if store.url.startswith("memory") else cluster}
        for mode, compute in (("error", True), ("overwrite", False)):
            made = tfr.to_tfrecord(
                frame_of(TABLE),
                path,
                partition_on="p",
                mode=mode,
                compute=compute,
                compute_kwargs=kwargs,
                **options,
            )
            if not compute:
                dask.compute(made, **kwargs)
        local = tmp_path / "copy"
        fsspec.core.url_to_fs(path, **store.storage_options)[0].get(
            f"{path}/", f"{local}/", recursive=True
        )
        assert data_files(local) == data_files_of(expected)
        assert (local / "_SUCCESS").read_bytes() == expected["_SUCCESS"]
        frame = tfr.read_tfrecord(path, blocksize=300, **options)
        assert frame.npartitions > 18
        parts = frame["i"].compute(**kwargs).tolist()
        assert sorted(parts) == [*range(ROWS)]
        tfr.to_tfrecord(frame, path, overwrite=True, compute_kwargs=kwargs, **options)
        assert sorted(tfr.read_table(path, **options)["i"].to_pylist()) == [*range(ROWS)]


def data_files_of(files):
    return {path: data for path, data in files.items() if data is not None and path != "_SUCCESS"}


def test_damage_on_a_worker_is_told_to_the_client(tmp_path, cluster):
    data = bytearray(records(*[b"x" * 20] * 10))
    data[100] ^= 1
    (tmp_path / "damaged.tfrecord").write_bytes(data)
    frame = tfr.read_tfrecord(tmp_path, record_type="ByteArray", on_corrupt="skip_record")
    seen = queue.Queue()
    cluster.subscribe_topic("warn", seen.put)
    try:
        assert len(frame.compute(scheduler=cluster)) == 9
        _, event = seen.get(timeout=60)
    finally:
        cluster.unsubscribe_topic("warn")
    assert issubclass(pickle.loads(event["category"]), tfr.CorruptDataWarning)


def test_floats_that_a_worker_rounds_are_told_to_the_client(tmp_path, cluster):
    frame = dd.from_pandas(pd.DataFrame({"x": [0.1] * 6}), npartitions=3)
    made = tfr.to_tfrecord(frame, tmp_path / "out", compute=False)
    seen = queue.Queue()
    cluster.subscribe_topic("warn", seen.put)
    try:
        assert cluster.compute(made).result().rows == 6
        _, event = seen.get(timeout=60)
    finally:
        cluster.unsubscribe_topic("warn")
    assert issubclass(pickle.loads(event["category"]), tfr.PrecisionWarning)
    assert seen.empty()


@pytest.mark.parametrize(
    ("value", "t", "told"),
    [
        ([1, "a"], pa.list_(pa.int64()), "Could not convert 'a'"),
        ("\ud800", pa.string(), "surrogates not allowed"),
        (1j, pa.string(), "Could not convert 1j"),
    ],
)
def test_objects_of_no_type_of_arrows_are_told_with_their_partition(tmp_path, value, t, told):
    values = pd.Series([None, value], dtype=object)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(pd.DataFrame({"v": values}), npartitions=2)
    with pytest.raises(tfr.InferenceError, match=f"column 'v' .*{told}.*partition 1 of") as caught:
        tfr.to_tfrecord(frame, tmp_path / "new", schema={"v": t})
    assert caught.value.feature == "v"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("t", [pa.bool_(), pa.int64()])
def test_types_of_arrow_that_others_define_are_cast(tmp_path, t):
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    column = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([flags])))
    frame = dd.from_pandas(pd.DataFrame({"v": column}), npartitions=1)
    tfr.to_tfrecord(frame, tmp_path / "new", schema={"v": t})
    assert tfr.read_table(tmp_path / "new")["v"].equals(pa.chunked_array([[1, 0, None]]).cast(t))
