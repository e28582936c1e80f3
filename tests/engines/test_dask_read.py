"""`read_tfrecord`: the same rows as `read_table`, in partitions, reading no more than it must."""

import functools
import gzip
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem

import tfrecord_io as tfr
from tests.support.frames import examples
from tests.support.frames import frame as framed
from tfrecord_io.engines.dask import reading
from tfrecord_io.reading import boundaries
from tfrecord_io.storage.generic import FsspecStorage

ROWS = 300
TABLE = pa.table(
    {
        "i": pa.array([None if i % 7 == 0 else i for i in range(ROWS)], pa.int64()),
        "s": [f"text {i}" for i in range(ROWS)],
        "b": [b"\xff" * (i % 4) for i in range(ROWS)],
        "l": pa.array([[i] * (i % 3) for i in range(ROWS)], pa.list_(pa.int64())),
        "f": pa.array([i / 2 for i in range(ROWS)], pa.float32()),
        "none": pa.nulls(ROWS, pa.int32()),
        "p": [f"k{i * 3 // ROWS}" for i in range(ROWS)],
    }
)


def arrow(frame: pd.DataFrame) -> pa.Table:
    """A frame as Arrow, by pyarrow alone."""
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Twelve files in three folders, in the order of the table's rows."""
    tfr.write_table(TABLE, tmp_path / "data", partition_by="p", rows_per_task=25)
    return str(tmp_path / "data")


@pytest.mark.parametrize("limit", [None, 40, 50])
def test_the_next_small_files_of_a_store_are_fetched_ahead(dataset, monkeypatch, limit):
    """A partition of them would take as many answers of the store, one after the other."""
    url = f"memory://fetched-ahead-{limit}"
    files = sorted(Path(dataset).rglob("*.tfrecord"))
    for number, path in enumerate(files):
        fsspec.filesystem("memory").pipe_file(f"{url}/{number:02d}", path.read_bytes())
    together = threading.Barrier(len(files) if limit is None else 1, timeout=30)
    read = []
    fetch = FsspecStorage.read_range

    def fetched(storage, path, *arguments):
        read.append(path)
        together.wait()
        return fetch(storage, path, *arguments)

    schema = pa.schema([("i", pa.int64())])
    frame = tfr.read_tfrecord(url, schema=schema, dtype_backend="pyarrow")
    assert frame.npartitions == 1
    monkeypatch.setattr(FsspecStorage, "read_range", fetched)
    found = (frame if limit is None else frame.head(limit, compute=False)).compute()
    assert found["i"].isna().sum() == TABLE["i"][:limit].null_count
    assert found["i"].sum() == pc.sum(TABLE["i"][:limit]).as_py()
    # What is not needed is not fetched.
    assert len(read) == (len(files) if limit is None else 2)


def spoil(path: Path, start: int = 0) -> None:
    """Overwrite a file's bytes, but not their number: whoever reads them fails."""
    data = path.read_bytes()
    path.write_bytes(data[:start] + b"\xee" * (len(data) - start))


class TestRows:
    def test_all_types_come_back(self, dataset):
        frame = tfr.read_tfrecord(dataset)
        assert isinstance(frame, dd.DataFrame)
        assert frame.npartitions == 1
        assert arrow(frame.compute()).equals(TABLE)
        assert list(frame.dtypes) == [pd.ArrowDtype(t) for t in TABLE.schema.types]

    @pytest.mark.parametrize("blocksize", [None, 100, 700, "2 kB", "1 MiB"])
    def test_partitions_are_of_the_size_asked_for(self, dataset, blocksize):
        frame = tfr.read_tfrecord(dataset, blocksize=blocksize)
        assert arrow(frame.compute()).equals(TABLE)
        files = list(Path(dataset).rglob("part-*"))
        size = sum(file.stat().st_size for file in files)
        if blocksize is None:
            assert frame.npartitions == len(files)
        else:
            block = dask.utils.parse_bytes(blocksize)
            assert size / block <= frame.npartitions <= 2 * size / block + len(files)

    @pytest.mark.parametrize("give", [str, Path, lambda p: [p], lambda p: f"file://{p}"])
    def test_paths_in_any_form(self, dataset, give):
        assert len(tfr.read_tfrecord(give(dataset)).compute()) == ROWS

    def test_pattern_and_list_of_files(self, dataset):
        files = sorted(map(str, Path(dataset).rglob("part-*")))
        assert arrow(tfr.read_tfrecord(files[4:]).compute()["i"].to_frame()).equals(
            TABLE.select(["i"]).slice(100)
        )
        frame = tfr.read_tfrecord(f"{dataset}/p=k1/*.tfrecord", columns=["s"])
        assert frame["s"].compute().tolist() == TABLE["s"].to_pylist()[100:200]

    def test_file_system_object(self, dataset):
        memory = fsspec.filesystem("memory")
        memory.put(dataset, "/dask-filesystem", recursive=True)
        try:
            texts = TABLE["s"].to_pylist()
            some = ["/dask-filesystem/p=k0", "/dask-filesystem/p=k2"]
            for path, expected in (("/dask-filesystem", texts), (some, texts[:100] + texts[200:])):
                frame = tfr.read_tfrecord(path, filesystem=memory)
                assert frame["s"].compute().tolist() == expected
            assert len(tfr.read_tfrecord("memory://dask-filesystem")) == ROWS
        finally:
            memory.rm("/dask-filesystem", recursive=True)
        for wrong in ("arrow", pa.fs.LocalFileSystem()):
            with pytest.raises(tfr.OptionError, match="fsspec"):
                tfr.read_tfrecord(dataset, filesystem=wrong)
        with pytest.raises(tfr.OptionError, match="storage_options and filesystem are both given"):
            tfr.read_tfrecord(dataset, filesystem=memory, storage_options={"use_listings": True})
        positional = fsspec.get_filesystem_class("file")(True)
        with pytest.raises(tfr.OptionError, match="made with positional arguments; give a URL"):
            tfr.read_tfrecord(dataset, filesystem=positional)

    def test_file_system_object_with_options(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("a.tfrecord", examples({"x": 1}))
        options = {"fo": str(tmp_path / "a.zip")}
        frame = tfr.read_tfrecord("a.tfrecord", filesystem=fsspec.filesystem("zip", **options))
        assert frame["x"].compute().tolist() == [1]

    def test_filesystems_before_others(self, dataset):
        inner = fsspec.filesystem("file")
        parent = Path(dataset).parent
        above = DirFileSystem(str(parent.parent), inner)
        arrow = ArrowFSWrapper(fs=pyarrow.fs.LocalFileSystem())
        assert len(tfr.read_tfrecord(dataset, filesystem=arrow)) == ROWS
        for one in (DirFileSystem(str(parent), inner), DirFileSystem(path=parent.name, fs=above)):
            assert len(tfr.read_tfrecord("data", filesystem=one)) == ROWS
        cache = fsspec.filesystem("simplecache", target_protocol="s3")
        for wrong in (cache, ArrowFSWrapper(fs=pyarrow.fs.SubTreeFileSystem("/", arrow.fs))):
            with pytest.raises(tfr.OptionError, match="stands before another one; give that one"):
                tfr.read_tfrecord(dataset, filesystem=wrong)

    def test_columns(self, dataset):
        assert list(tfr.read_tfrecord(dataset, columns=["p", "s"]).columns) == ["p", "s"]
        for array in (pd.Index(["p", "s"]), np.array(["p", "s"])):
            assert list(tfr.read_tfrecord(dataset, columns=array).columns) == ["p", "s"]
        series = tfr.read_tfrecord(dataset, columns="s")
        assert isinstance(series, dd.Series)
        assert series.compute().tolist() == TABLE["s"].to_pylist()
        with pytest.raises(tfr.OptionError, match="'nothing'"):
            tfr.read_tfrecord(dataset, columns="nothing")
        with pytest.raises(tfr.OptionError, match="index is True"):
            tfr.read_tfrecord(dataset, index=True)
        with pytest.raises(tfr.OptionError, match=r"index is 'i', and there are no .*set_index"):
            tfr.read_tfrecord(dataset, index="i")
        with pytest.raises(tfr.OptionError, match="include_path_column is 0"):
            tfr.read_tfrecord(dataset, include_path_column=0)
        for path in (None, 5, [None]):
            with pytest.raises(tfr.OptionError, match="is not a path or URL"):
                tfr.read_tfrecord(path, filesystem=fsspec.filesystem("file"))

    def test_filters_prune_and_filter(self, dataset):
        for file in Path(dataset).rglob("p=k[02]/part-*"):
            spoil(file)
        frame = tfr.read_tfrecord(dataset, filters=[("p", "==", "k1"), ("i", "<", 150)])
        expected = TABLE.filter((pc.field("p") == "k1") & (pc.field("i") < 150))
        assert arrow(frame.compute()).equals(expected)
        assert arrow(frame[["s"]].compute()).equals(expected.select(["s"]))
        assert len(frame) == expected.num_rows

    def test_long_filters_that_differ_are_different_reads(self, dataset):
        def read(chosen):
            return tfr.read_tfrecord(dataset, filters=[("i", "in", chosen)])

        chosen, others = [*range(100, 130)], [*range(100, 115), 199, *range(116, 130)]
        one, other = read(chosen), read(others)
        assert read(chosen)._name == one._name != other._name
        assert dask.compute(one["i"].sum(), other["i"].sum()) == tuple(
            sum(i for i in range(ROWS) if i in wanted and i % 7) for wanted in (chosen, others)
        )

    def test_path_column(self, dataset):
        frame = tfr.read_tfrecord(dataset, include_path_column=True)
        paths = frame["path"].compute()
        assert [Path(path).parent.name for path in paths] == [
            f"p={p}" for p in TABLE["p"].to_pylist()
        ]
        assert tfr.read_tfrecord(dataset, include_path_column="from").columns[-1] == "from"
        with pytest.raises(tfr.OptionError, match="column of paths is 'p'; it must"):
            tfr.read_tfrecord(dataset, include_path_column="p")

    def test_sequence_examples_and_raw_records(self, tmp_path):
        steps = pa.table(
            {"c": [1, 2], "steps": pa.array([[[1], [2, 3]], []], pa.list_(pa.list_(pa.int64())))}
        )
        tfr.write_table(steps, tmp_path / "s", record_type="SequenceExample")
        read = tfr.read_tfrecord(tmp_path / "s", record_type="SequenceExample")
        assert arrow(read.compute()).equals(steps)
        raw = tfr.read_tfrecord(tmp_path / "s" / "part-00000-000.tfrecord", record_type="ByteArray")
        assert raw["byteArray"].to_bag().map(type).compute() == [bytes, bytes]

    @pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable", None])
    def test_views_are_read_as_plain_types(self, tmp_path, backend):
        plain = {
            "s": pa.string(),
            "b": pa.binary(),
            "l": pa.list_(pa.string()),
            "f": pa.list_(pa.string(), 1),
            "v": pa.list_(pa.int64()),
            "w": pa.large_list(pa.binary()),
        }
        views = {
            "s": pa.string_view(),
            "b": pa.binary_view(),
            "l": pa.list_(pa.string_view()),
            "f": pa.list_(pa.string_view(), 1),
            "v": pa.list_view(pa.int64()),
            "w": pa.large_list_view(pa.binary_view()),
        }
        row = {"s": "a", "b": b"b", "l": ["c", "d"], "f": ["e"], "v": [1, 2], "w": [b"f"]}
        rows = [row, dict.fromkeys(row)]
        tfr.write_table(pa.Table.from_pylist(rows, pa.schema(plain)), tmp_path / "out")
        frame = tfr.read_tfrecord(tmp_path / "out", schema=pa.schema(views), dtype_backend=backend)
        if backend == "pyarrow":
            assert frame.dtypes.to_dict() == {n: pd.ArrowDtype(t) for n, t in plain.items()}
            assert arrow(frame.compute()).to_pylist() == rows
        found = frame.compute().iloc[0].to_dict()
        assert {name: v if name in "sb" else list(v) for name, v in found.items()} == row

    @pytest.mark.parametrize("backend", ["numpy_nullable", None])
    def test_other_dtypes_are_those_of_pandas(self, dataset, backend):
        numbers = ["i", "f", "s"]
        frame = tfr.read_tfrecord(dataset, dtype_backend=backend, columns=numbers).compute()
        if backend is None:
            with dask.config.set({"dataframe.convert-string": False}):
                frame = tfr.read_tfrecord(dataset, dtype_backend=None, columns=numbers).compute()
            expected = TABLE.select(numbers).to_pandas()
        else:
            expected = (
                TABLE.select(numbers)
                .to_pandas()
                .convert_dtypes(dtype_backend="numpy_nullable")
                .astype({"f": "Float32"})
            )
        pd.testing.assert_frame_equal(frame.reset_index(drop=True), expected)

    @pytest.mark.parametrize("backend", ["numpy_nullable", None])
    @pytest.mark.parametrize(
        ("number", "t"), [(1, pa.time64("ns")), (2**30, pa.date32()), (2**30, pa.date64())]
    )
    def test_values_that_are_none_of_pythons(self, tmp_path, backend, number, t):
        days = 86_400_000 if pa.types.is_date64(t) else 1
        values = pa.array([None, number * days]).cast(
            pa.int32() if t.bit_width == 32 else pa.int64()
        )
        tfr.write_table(pa.table({"a": [1, 2], "x": values.cast(t)}), tmp_path / "x")
        frame = tfr.read_tfrecord(tmp_path / "x", dtype_backend=backend)
        with pytest.raises(tfr.SchemaMismatchError, match=r"'x' is .*='pyarrow'") as caught:
            frame.compute()
        assert caught.value.feature == "x"
        assert frame["a"].compute().tolist() == [1, 2]
        frame = tfr.read_tfrecord(tmp_path / "x").compute()
        assert arrow(frame)["x"].combine_chunks().equals(values.cast(t))

    @pytest.mark.parametrize("backend", ["numpy_nullable", None])
    @pytest.mark.parametrize("t", [pa.list_(pa.binary(2)), pa.list_(pa.binary(2), 1)])
    def test_lists_of_bytes_of_one_length(self, tmp_path, backend, t):
        tfr.write_table(pa.table({"x": pa.array([[b"ab"], None], t)}), tmp_path / "x")
        found = tfr.read_tfrecord(tmp_path / "x", dtype_backend=backend)["x"].compute()
        assert [value if value is None else list(value) for value in found] == [[b"ab"], None]
        kept = tfr.read_tfrecord(tmp_path / "x", schema=pa.schema([("x", t)]))
        assert kept["x"].compute().dtype == kept.dtypes["x"] == pd.ArrowDtype(t)

    @pytest.mark.parametrize("t", [pa.int64(), pa.uint64()])
    def test_integers_with_nulls_that_no_float_is(self, tmp_path, t):
        table = pa.table({"a": pa.array([2**53, None], t), "x": pa.array([2**53 + 1, None], t)})
        tfr.write_table(table, tmp_path / "x")
        frame = tfr.read_tfrecord(tmp_path / "x", dtype_backend=None)
        with pytest.raises(tfr.SchemaMismatchError, match=r"'x' is .*='pyarrow'"):
            frame.compute()
        assert frame["a"].compute().tolist()[0] == 2**53
        assert frame.partitions[0].head(1)["x"].tolist() == [2**53 + 1]
        frame = tfr.read_tfrecord(tmp_path / "x", dtype_backend="numpy_nullable")
        assert frame["x"].compute().tolist() == [2**53 + 1, pd.NA]

    def test_booleans_with_nulls(self, tmp_path):
        table = pa.table({"a": [1, 2], "p": [True, None]})
        tfr.write_table(table, tmp_path / "x", partition_by="p")
        frame = tfr.read_tfrecord(tmp_path / "x", dtype_backend=None).compute()
        assert frame["p"].dtype == object
        assert set(frame["p"]) == {True, None}

    @pytest.mark.parametrize("backend", ["numpy_nullable", None])
    def test_categories_are_not_known(self, tmp_path, backend):
        tfr.write_table(pa.table({"s": ["a", "b", "c", "a"]}), tmp_path / "s", rows_per_task=2)
        schema = pa.schema([("s", pa.dictionary(pa.int32(), pa.string()))])
        frame = tfr.read_tfrecord(
            tmp_path / "s", schema=schema, dtype_backend=backend, blocksize=None
        )
        assert not frame["s"].cat.known
        with pytest.raises(NotImplementedError, match="categorize"):
            dd.get_dummies(frame)
        assert list(frame.categorize()["s"].cat.categories) == ["a", "b", "c"]
        assert frame["s"].compute().tolist() == ["a", "b", "c", "a"]

    def test_strings_as_dask_has_them(self, dataset):
        frame = tfr.read_tfrecord(dataset, dtype_backend=None)
        assert str(frame["s"].dtype) == str(frame["s"].compute().dtype) == "string"
        with pytest.raises(tfr.OptionError, match="dtype_backend"):
            tfr.read_tfrecord(dataset, dtype_backend="numpy")


class TestNothing:
    def test_empty_data_set(self, tmp_path):
        tfr.write_table(TABLE.slice(0, 0), tmp_path / "empty")
        frame = tfr.read_tfrecord(tmp_path / "empty")
        assert len(frame) == 0
        assert arrow(frame.compute()).schema == TABLE.schema

    def test_filters_that_leave_no_file(self, dataset):
        frame = tfr.read_tfrecord(dataset, filters=[("p", "==", "none")])
        assert arrow(frame.compute()).equals(TABLE.slice(0, 0))
        assert len(frame[frame["p"] == "k0"].compute()) == 0

    def test_empty_files_among_others(self, tmp_path):
        (tmp_path / "a.tfrecord").write_bytes(b"")
        (tmp_path / "b.tfrecord").write_bytes(examples({"x": 1}))
        frame = tfr.read_tfrecord(tmp_path, blocksize=None)
        assert frame.npartitions == 2
        assert frame["x"].compute().tolist() == [1]

    def test_records_without_columns(self, tmp_path):
        (tmp_path / "a.tfrecord").write_bytes(examples({}, {}, {}))
        with pytest.warns(tfr.InferenceWarning, match="no record has a feature"):
            frame = tfr.read_tfrecord(tmp_path)
        assert frame.compute().shape == (3, 0)


class TestLaziness:
    """What must not be read is spoiled, so that reading it fails."""

    def test_a_manifest_is_enough_for_the_graph_and_for_len(self, dataset):
        for file in Path(dataset).rglob("part-*"):
            spoil(file)
        for blocksize in (None, 700, "1 MiB"):
            frame = tfr.read_tfrecord(dataset, blocksize=blocksize)
            assert len(frame) == len(frame[["s"]]) == len(frame["s"]) == ROWS
        with pytest.raises(tfr.ChecksumError, match="part-00000"):
            frame.compute()

    @pytest.mark.parametrize("has_manifest", [True, False])
    def test_rows_of_some_partitions(self, dataset, has_manifest):
        if not has_manifest:
            (Path(dataset) / "_SUCCESS").unlink()
        frame = tfr.read_tfrecord(dataset, blocksize=4000)
        assert frame.npartitions > 3
        each = frame.map_partitions(len).compute().tolist()
        assert sum(each) == ROWS
        if has_manifest:
            for file in Path(dataset).rglob("part-*"):
                spoil(file)
        for chosen in (frame, frame[["s"]]):
            assert len(chosen.partitions[1]) == each[1]
            assert len(chosen.partitions[[2, 0]]) == each[2] + each[0]

    @pytest.mark.parametrize("blocksize", [None, 100, "1 MiB"])
    def test_files_that_are_listed_twice_count_twice(self, tmp_path, blocksize):
        tfr.write_table(TABLE, tmp_path, rows_per_task=25)
        file = tmp_path / "part-00001-000.tfrecord"
        frame = tfr.read_tfrecord([file, tmp_path], columns=["s"], blocksize=blocksize)
        rows = len(frame.compute())
        assert rows == ROWS + 25
        assert len(frame) == frame.shape[0].compute() == frame["s"].size.compute() == rows
        assert len(tfr.read_tfrecord([tmp_path, tmp_path], blocksize=blocksize)) == 2 * ROWS

    def test_a_schema_is_enough_for_the_graph(self, tmp_path):
        (tmp_path / "a.tfrecord").write_bytes(b"\xee" * 5000)
        frame = tfr.read_tfrecord(tmp_path, schema=pa.schema([("x", pa.int64())]), blocksize=1000)
        assert frame.npartitions == 5
        with pytest.raises(tfr.ChecksumError):
            len(frame)

    def test_a_partition_reads_its_files_alone(self, dataset):
        files = sorted(Path(dataset).rglob("part-*"))
        for file in files[:1] + files[2:]:
            spoil(file)
        frame = tfr.read_tfrecord(dataset, blocksize=None)
        assert arrow(frame.partitions[1].compute()).equals(TABLE.slice(25, 25))
        assert len(frame.partitions[3:]) == ROWS - 75

    @pytest.mark.parametrize(
        ("keep", "parts"),
        [
            (lambda f: f["p"] == "k1", "1"),
            (lambda f: f["p"] != "k1", "02"),
            (lambda f: f["p"] > "k0", "12"),
            (lambda f: ~(f["p"] >= "k1"), "0"),
            (lambda f: f["p"].isin(["k0", "k2"]), "02"),
            (lambda f: f["p"].between("k1", "k2"), "12"),
            (lambda f: f["p"].isna(), ""),
            (lambda f: (f["p"] == "k1") & (f["i"] > 150), "1"),
            (lambda f: (f["i"] > 150) & (f["p"] == "k1"), "1"),
            (lambda f: (f["p"] == "k0") | ((f["p"] == "k2") & (f["i"] > 210)), "02"),
            (lambda f: (f["p"] == "k0") | (f["i"] > 290), "012"),
            (lambda f: ~((f["p"] == "k0") & (f["i"] > 290)), "012"),
            (lambda f: ~((f["p"] == "k0") | (f["p"] == "k2")), "1"),
            (lambda f: ~((f["p"] > "k0") & (f["p"] < "k2")), "02"),
            (lambda f: f["i"] > 290, "012"),
            (lambda f: f["p"].str.upper() == "K1", "012"),
            (lambda f: f[["p"]].replace("k0", "k1")["p"] == "k1", "012"),
        ],
    )
    @pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable", None])
    @pytest.mark.parametrize(("blocksize", "partitions"), [(None, 12), ("1 MiB", 1)])
    def test_a_predicate_excludes_files_by_their_folders(
        self, dataset, keep, parts, backend, blocksize, partitions
    ):
        options = {"blocksize": blocksize, "dtype_backend": backend}
        whole = tfr.read_tfrecord(dataset, **options).compute()
        expected = whole[keep(whole)]
        assert bool(len(expected)) is bool(parts)
        for file in Path(dataset).rglob("part-*"):
            if file.parent.name[-1] not in parts:
                spoil(file)
        frame = tfr.read_tfrecord(dataset, **options)
        kept = frame[keep(frame)]
        assert kept.npartitions == partitions
        for found, rows in (
            (kept, expected),
            (kept["s"], expected["s"]),
            (kept.groupby("s")["p"].count(), expected.groupby("s")["p"].count()),
            (kept[kept["i"] > 120], expected[expected["i"] > 120]),
            (frame[["i", "p"]][keep(frame[["i", "p"]])], expected[["i", "p"]]),
        ):
            # Of NumPy's dtypes an empty partition of integers has no floats.
            how = {"check_dtype": backend is not None, "check_index_type": False}
            if isinstance(rows, pd.Series):
                pd.testing.assert_series_equal(
                    found.compute().sort_index(), rows.sort_index(), **how
                )
            else:
                pd.testing.assert_frame_equal(found.compute(), rows, **how)

    @pytest.mark.parametrize("schema", [None, TABLE.schema.remove(6)])
    @pytest.mark.parametrize("filters", [None, [("i", ">", 30)]])
    def test_rows_keep_their_places_when_files_are_left_out(self, dataset, schema, filters):
        (Path(dataset) / "_SUCCESS").unlink()
        frame = tfr.read_tfrecord(dataset, schema=schema, filters=filters)
        assert frame.npartitions == 1
        whole = frame.compute()
        found = frame[frame["p"].isin(["k0", "k2"])].compute()
        assert found.equals(whole[whole["p"] != "k1"])
        if schema is None and filters is None:
            # Here all rows were counted when their columns were looked for.
            for file in Path(dataset).rglob("p=k1/*"):
                file.unlink()
            assert frame[frame["p"] != "k1"].compute().equals(found)

    def test_partitions_of_which_nothing_is_kept_are_not_read(self, dataset):
        (Path(dataset) / "_SUCCESS").unlink()
        whole = tfr.read_tfrecord(dataset).compute()
        for file in Path(dataset).rglob("p=k1/*"):
            spoil(file)
        # How many rows there are nobody knows.
        frame = tfr.read_tfrecord(dataset, schema=TABLE.schema.remove(6), blocksize=None)
        expected = whole["p"][whole["p"] != "k1"].tolist()
        assert frame[frame["p"] != "k1"]["p"].compute().tolist() == expected

    @pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable", None])
    def test_a_predicate_on_folders_with_a_null(self, tmp_path, backend):
        table = pa.table(
            {"x": range(6), "p": [2**53 + 1, 1, None] * 2, "q": [True, None, False] * 2}
        )
        tfr.write_table(table, tmp_path, partition_by=["p", "q"])
        frame = tfr.read_tfrecord(tmp_path, blocksize=None, dtype_backend=backend)
        for keep, expected in (
            (lambda f: f["p"] == 1, [1, 4]),
            (lambda f: f["p"] == 2**53 + 1, [0, 3]),
            (lambda f: f["p"].isna(), [2, 5]),
            (lambda f: f["q"] == True, [0, 3]),  # noqa: E712
            (lambda f: f["q"].isin([False]), [2, 5]),
            (lambda f: f["p"] != 1, [0, 3] if backend else [0, 2, 3, 5]),
        ):
            assert sorted(frame[keep(frame)]["x"].compute()) == expected
        if backend:
            for file in tmp_path.rglob("part-*"):
                if file.parent.parent.name != "p=1":
                    spoil(file)
            frame = tfr.read_tfrecord(tmp_path, blocksize=None, dtype_backend=backend)
            assert sorted(frame[frame["p"] == 1]["x"].compute()) == [1, 4]

    def test_a_predicate_excludes_nothing_that_others_need(self, dataset, monkeypatch):
        frame = tfr.read_tfrecord(dataset, blocksize=None)
        whole = frame.compute()
        is_one, there = frame["p"] == "k1", whole["p"] == "k1"
        for kept, expected in (
            (frame[is_one & (frame["i"] > frame["i"].mean())], whole["i"] > whole["i"].mean()),
            (frame[is_one & (frame["i"].cumsum() > 9000)], whole["i"].cumsum() > 9000),
            (frame[is_one & (frame["i"].shift(1) > 100)], whole["i"].shift(1) > 100),
        ):
            rows = whole[there & expected.to_numpy()]
            assert 0 < len(rows) < 100
            assert kept["s"].compute().tolist() == rows["s"].tolist()
        of_rows = frame["s"].str.replace("text ", "k")
        assert frame[frame["p"] == of_rows]["s"].compute().tolist() == ["text 0"]
        # All rows stay, but for their values.
        assert frame[frame[["p"]] == "k1"].compute().equals(whole[whole[["p"]] == "k1"])
        both = dd.concat([frame[is_one], frame[frame["p"] != "k1"]])
        assert len(both.compute()) == ROWS
        read = []
        read_tasks = reading.read_tasks
        monkeypatch.setattr(
            reading, "read_tasks", lambda *given: read.append(given) or read_tasks(*given)
        )
        share = frame[is_one]["i"].sum() / frame["i"].sum()
        assert share.compute() == whole[there]["i"].sum() / whole["i"].sum()
        assert len(read) == frame.npartitions

    @pytest.mark.filterwarnings(r"ignore:\s*You did not provide metadata")
    def test_a_predicate_excludes_nothing_of_what_is_told_of_a_whole_partition(self, dataset):
        frame = tfr.read_tfrecord(dataset)
        assert frame.npartitions == 1
        whole = frame.compute()
        for told in (
            lambda f: f.reset_index(drop=True)["f"] > 60,
            lambda f: f.eval("f.cumsum() > 3000"),
            lambda f: f[["f"]].combine(f[["f"]], lambda a, _: a.cumsum())["f"] > 3000,
            lambda f: f["f"].isin(f["i"]),
            lambda f: (f["i"] - 30).map(f["f"]) > 40,
            lambda f: (f["i"] - 30).replace(f["i"]) > 0,
        ):
            found = frame[(frame["p"] == "k1") & told(frame)].compute()
            expected = whole[(whole["p"] == "k1") & told(whole)]
            assert 0 < len(expected) < 100
            pd.testing.assert_frame_equal(found, expected)

    def test_a_count_of_rows_that_are_kept_reads_once(self, tmp_path, monkeypatch):
        (tmp_path / "a.tfrecord").write_bytes(examples({"x": 1, "y": 2}, {"x": 3, "y": 4}))
        schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
        frame = tfr.read_tfrecord(tmp_path, schema=schema)
        read = []
        read_tasks = reading.read_tasks
        monkeypatch.setattr(
            reading,
            "read_tasks",
            lambda plan, tasks: read.append(plan.schema.names) or read_tasks(plan, tasks),
        )
        assert len(frame[frame["x"] > 1]) == 1
        assert read == [["x"]]

    def test_head_reads_a_few_rows(self, dataset):
        files = sorted(Path(dataset).rglob("part-*"))
        spoil(files[0], files[0].stat().st_size // 2)
        frame = tfr.read_tfrecord(dataset, batch_rows=4)
        for count in (3, 0):
            assert arrow(frame.head(count)).equals(TABLE.slice(0, count))
        assert frame["s"].head(6).tolist() == TABLE["s"].to_pylist()[:6]

    def test_head_without_the_last_rows(self, dataset):
        frame = tfr.read_tfrecord(dataset, blocksize=None)
        # Dask takes them for rows that are not there.
        with pytest.warns(UserWarning, match="Insufficient elements"):
            head = frame.head(-2)
        assert arrow(head).equals(TABLE.slice(0, 23))

    def test_columns_that_are_not_chosen_are_not_decoded(self, tmp_path):
        (tmp_path / "a.tfrecord").write_bytes(examples({"x": 1, "y": b"bytes"}))
        schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
        frame = tfr.read_tfrecord(tmp_path, schema=schema)
        assert frame["x"].sum().compute() == 1
        assert frame[["x"]].compute()["x"].tolist() == [1]
        assert frame[frame["x"] > 0]["x"].compute().tolist() == [1]
        assert len(frame) == 1
        with pytest.raises(tfr.SchemaMismatchError, match="'y'"):
            frame.compute()

    def test_equal_reads_have_equal_names(self, dataset):
        one, other = tfr.read_tfrecord(dataset), tfr.read_tfrecord(dataset)
        assert one._name == other._name
        assert one._name.startswith("read-tfrecord-")
        assert one._name != tfr.read_tfrecord(dataset, blocksize=700)._name
        os.utime(next(Path(dataset).rglob("part-*")), ns=(1, 1))
        assert one._name != tfr.read_tfrecord(dataset)._name

    def test_files_that_are_put_together_otherwise_are_different_reads(self, tmp_path):
        for name in "abcd":
            (tmp_path / f"{name}.tfrecord").write_bytes(examples({"x": 1}))
        size = (tmp_path / "a.tfrecord").stat().st_size
        frames = [tfr.read_tfrecord(tmp_path, blocksize=files * size) for files in (2, 3)]
        assert [frame.npartitions for frame in frames] == [2, 2]
        firsts = dask.compute(*(frame.partitions[0] for frame in frames))
        assert [len(part) for part in firsts] == [2, 3]

    def test_rows_that_are_left_out_are_of_the_name(self, tmp_path):
        # Of 1 and 23 rows, and of 1, 2 and 3, once were made the same digits.
        rows = {0: 1, 1: 23, 2: 2, 3: 3, 9: 2}
        folders = [folder for folder, count in rows.items() for _ in range(count)]
        tfr.write_table(pa.table({"x": folders, "p": folders}), tmp_path, partition_by="p")
        kept = []
        for some in ([0, 1, 9], [0, 2, 3, 9]):
            frame = tfr.read_tfrecord([f"{tmp_path}/p={folder}*" for folder in some])
            kept.append(frame[frame["p"] == 9])
        assert dd.concat(kept).compute().index.tolist() == [24, 25, 6, 7]

    def test_units_that_a_manifest_no_longer_tells(self, tmp_path):
        tfr.write_table(pa.table({"t": pa.array([1], pa.timestamp("s"))}), tmp_path)
        schema = pa.schema([("t", pa.timestamp("ms"))])
        told = tfr.read_tfrecord(tmp_path, schema=schema)
        (tmp_path / "_SUCCESS").unlink()
        not_told = tfr.read_tfrecord(tmp_path, schema=schema)
        found = [pa.array(frame.compute()["t"]).cast(pa.int64()) for frame in (told, not_told)]
        assert found == [pa.array([1000]), pa.array([1])]

    def test_the_public_way_does_without_dasks_private_parts(self, dataset, monkeypatch):
        from tfrecord_io.engines.dask import expression

        monkeypatch.setattr(expression, "FromMapProjectable", None)
        frame = tfr.read_tfrecord(dataset, blocksize=700)
        assert arrow(frame.compute()).equals(TABLE)
        assert len(frame) == ROWS
        assert arrow(frame[["s"]].head(2)).equals(TABLE.select(["s"]).slice(0, 2))


def nested(count: int) -> list[bytes]:
    """Payloads, most of which hold whole frames; some hold a whole file."""
    inner = b"".join(framed(b"inner %d" % i) for i in range(20))
    return [(b"x" * i + inner) if i % 3 else framed(inner) for i in range(count)]


class TestCutting:
    @pytest.mark.parametrize("blocksize", [300, 1000, 5001])
    @pytest.mark.parametrize("give", [str, lambda p: f"memory:/{p}"], ids=["local", "memory"])
    def test_frames_in_payloads_are_no_records(self, tmp_path, blocksize, give):
        payloads = nested(40)
        url = give(str(tmp_path / "a.tfrecord"))
        with fsspec.open(url, "wb") as file:
            file.write(b"".join(map(framed, payloads)))
        frame = tfr.read_tfrecord(url, record_type="ByteArray", blocksize=blocksize)
        assert frame.npartitions >= 4
        assert frame["byteArray"].compute().tolist() == payloads
        # In any order, and each for itself.
        parts = [frame.partitions[i].compute() for i in reversed(range(frame.npartitions))]
        assert [p for part in reversed(parts) for p in part["byteArray"]] == payloads

    @pytest.mark.parametrize("give", [str, lambda p: f"memory:/{p}"], ids=["local", "memory"])
    @pytest.mark.parametrize("source", ["data", "data/a.tfrecord", "data/*.tfrecord"])
    def test_an_index_says_where_records_start(self, tmp_path, monkeypatch, source, give):
        payloads = [payload * 40 for payload in nested(600)]
        data = b"".join(map(framed, payloads))
        file, url = give(str(tmp_path / "data/a.tfrecord")), give(str(tmp_path / source))
        fsspec.core.url_to_fs(file)[0].makedirs(give(str(tmp_path / "data")), exist_ok=True)
        with fsspec.open(file, "wb") as out:
            out.write(data)
        index = give(str(tmp_path / "index"))
        tfr.write_index(url, index)
        # Nobody hops over the file to find out.
        monkeypatch.setattr(boundaries, "walk", None)
        frame = tfr.read_tfrecord(url, record_type="ByteArray", blocksize="2 MiB", index=index)
        assert frame.npartitions >= len(data) // 2**22
        assert frame["byteArray"].compute().tolist() == payloads
        with fsspec.open(file, "ab") as out:
            out.write(framed(b"more"))
        with pytest.raises(tfr.CorruptDataError, match="write the index again"):
            tfr.read_tfrecord(url, record_type="ByteArray", blocksize="2 MiB", index=index)

    def test_a_rest_of_a_file_is_shared_by_its_partitions(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        path.write_bytes(framed(b"x" * 84) * 100)
        frame = tfr.read_tfrecord(path, record_type="ByteArray", blocksize=3333)
        assert frame.map_partitions(len).compute().tolist() == [25] * 4

    def test_a_file_is_hopped_over_once(self, tmp_path, monkeypatch):
        payloads = nested(40)
        (tmp_path / "a.tfrecord").write_bytes(b"".join(map(framed, payloads)))
        frame = tfr.read_tfrecord(tmp_path, record_type="ByteArray", blocksize=1000)
        assert frame["byteArray"].compute().tolist() == payloads
        monkeypatch.setattr(boundaries, "walk", None)
        assert frame["byteArray"].compute().tolist() == payloads

    def test_an_index_of_another_file_spoils_no_read_without_it(self, tmp_path):
        payloads = [b"x" * 999] * 1500 + [b"y" * 1234] * 500
        for name, order in (("a", 1), ("b", -1)):
            (tmp_path / name).write_bytes(b"".join(map(framed, payloads[::order])))
        tfr.write_index(tmp_path / "b", tmp_path / "b.idx")
        how = {"record_type": "ByteArray", "blocksize": 500_000}
        frame = tfr.read_tfrecord(tmp_path / "a", index=tmp_path / "b.idx", **how)
        with pytest.raises(tfr.CorruptDataError):
            frame.compute()
        # Of frames with one name Dask has one, as long as somebody holds it.
        other = tfr.read_tfrecord(tmp_path / "a", **how)
        assert other["byteArray"].compute().tolist() == payloads

    def test_files_of_one_name_in_two_archives(self, tmp_path):
        # What was found of the one once was taken for the other's, which is as long.
        payloads = [b"x" * 83] * 50 + [b"y" * 171] * 25
        for name, order in (("a", 1), ("b", -1)):
            with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
                archive.writestr("x.tfrecord", b"".join(map(framed, payloads[::order])))
        for name, order in (("a", 1), ("b", -1)):
            url = f"zip://x.tfrecord::{tmp_path}/{name}.zip"
            frame = tfr.read_tfrecord(url, record_type="ByteArray", blocksize=1000)
            assert frame["byteArray"].compute().tolist() == payloads[::order]

    def test_a_file_that_another_one_replaced(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        payloads = [b"x" * 83] * 50 + [b"y" * 171] * 25
        for order in (1, -1):
            path.write_bytes(b"".join(map(framed, payloads[::order])))
            os.utime(path, ns=(order + 2, order + 2))
            frame = tfr.read_tfrecord(path, record_type="ByteArray", blocksize=1000)
            assert frame["byteArray"].compute().tolist() == payloads[::order]

    def test_a_compressed_file_that_was_said_to_be_plain(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        path.write_bytes(gzip.compress(b"".join(framed(b"%d" % i) for i in range(2000))))
        read = functools.partial(tfr.read_tfrecord, path, record_type="ByteArray", blocksize=1000)
        with pytest.raises(tfr.CorruptDataError):
            read(compression=None).partitions[0].compute()
        assert len(read().partitions[0].compute()) == 2000

    def test_a_process_that_hops_can_fork(self, tmp_path):
        """As the workers of PyTorch's DataLoader begin while their parent reads ahead."""
        path = tmp_path / "a.tfrecord"
        path.write_bytes(framed(b"x" * 84) * 100)
        code = (
            "import os, select, sys, threading\n"
            "import tfrecord_io as tfr\n"
            "from tfrecord_io.reading import boundaries\n"
            "frame = tfr.read_tfrecord(sys.argv[1], record_type='ByteArray', blocksize=5000)\n"
            "walk, hops, may_go = boundaries.walk, threading.Event(), threading.Event()\n"
            "def slow_walk(*args, **options):\n"
            "    hops.set()\n"
            "    may_go.wait()\n"
            "    return walk(*args, **options)\n"
            "boundaries.walk = slow_walk\n"
            "thread = threading.Thread(target=lambda: frame.compute(scheduler='sync'))\n"
            "thread.start()\n"
            "hops.wait()\n"
            "reader, writer = os.pipe()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    boundaries.walk = walk\n"
            "    os.write(writer, b'%d' % len(frame.compute(scheduler='sync')))\n"
            "    os._exit(0)\n"
            "ready, _, _ = select.select([reader], [], [], 20)\n"
            "os.kill(child, 9)\n"
            "may_go.set()\n"
            "thread.join()\n"
            "assert ready, 'the child hangs'\n"
            "print(os.read(reader, 10).decode())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr

    def test_at_the_same_time(self, tmp_path):
        payloads = nested(200)
        (tmp_path / "a.tfrecord").write_bytes(b"".join(map(framed, payloads)))
        frame = tfr.read_tfrecord(tmp_path, record_type="ByteArray", blocksize=2000)
        with dask.config.set(scheduler="threads", num_workers=8):
            assert frame["byteArray"].compute().tolist() == payloads

    @pytest.mark.parametrize("give", [str, lambda p: f"memory:/{p}"], ids=["local", "memory"])
    def test_the_look_for_the_schema_finds_where_to_cut(self, tmp_path, give):
        rows = 5000
        data = b"".join(examples({"x": i, "blob": b"\x0a" * 3000}) for i in range(rows))
        url = give(str(tmp_path / "a.tfrecord"))
        with fsspec.open(url, "wb") as file:
            file.write(data)
        frame = tfr.read_tfrecord(url, blocksize="4 MiB")
        assert frame.npartitions >= 3
        assert len(frame) == rows
        sizes = frame.map_partitions(len, meta=(None, "int64")).compute()
        assert sizes.sum() == rows
        assert sizes.max() <= rows / 3
        assert frame["x"].compute().tolist() == list(range(rows))
        if "memory" not in url:
            spoil(tmp_path / "a.tfrecord")
            os.utime(tmp_path / "a.tfrecord", ns=(1, 1))
            with pytest.raises(tfr.DatasetChangedError):
                frame.compute()

    @pytest.mark.parametrize("give", [str, lambda p: f"memory:/{p}"], ids=["local", "memory"])
    @pytest.mark.parametrize("name", ["a.tfrecord.gz", "a.tfrecord"])
    @pytest.mark.parametrize("compression", ["infer", "gzip"])
    def test_compressed_files_are_whole(self, tmp_path, name, give, compression):
        data = b"".join(examples({"x": i}) for i in range(2000))
        url = give(str(tmp_path / name))
        with fsspec.open(url, "wb") as file:
            file.write(gzip.compress(data))
        for schema in (pa.schema([("x", pa.int64())]), None):
            frame = tfr.read_tfrecord(url, schema=schema, blocksize=500, compression=compression)
            is_told = compression == "gzip" or name.endswith(".gz")
            assert (frame.npartitions == 1) is is_told
            assert frame["x"].compute().tolist() == list(range(2000))
            assert len(frame) == 2000

    @pytest.mark.parametrize("give", [str, lambda p: f"memory:/{p}"], ids=["local", "memory"])
    @pytest.mark.parametrize("schema", [pa.schema([("x", pa.int64())]), None])
    def test_files_that_are_said_to_be_plain_are_cut(self, tmp_path, give, schema):
        url = give(str(tmp_path / "a.tfrecord"))
        with fsspec.open(url, "wb") as file:
            file.write(b"".join(examples({"x": i}) for i in range(2000)))
        for compression in (None, "none"):
            frame = tfr.read_tfrecord(url, schema=schema, blocksize=5000, compression=compression)
            assert frame.npartitions > 5
            assert frame["x"].compute().tolist() == list(range(2000))
        with pytest.raises(tfr.OptionError, match="compression is 'gzip', and the file is a plain"):
            tfr.read_tfrecord(url, schema=schema, blocksize=5000, compression="gzip").compute()

    def test_a_file_that_ends_inside_a_record(self, tmp_path):
        data = b"".join(map(framed, nested(10)))
        (tmp_path / "a.tfrecord").write_bytes(data[:-1])
        frame = tfr.read_tfrecord(tmp_path, record_type="ByteArray", blocksize=500)
        with pytest.raises(tfr.TruncatedRecordError, match="record 9"):
            frame.compute()
        assert frame.partitions[0]["byteArray"].compute().tolist() == nested(1)

    def test_errors_count_records_of_the_file(self, tmp_path):
        good = [examples({"x": i}) for i in range(50)]
        (tmp_path / "a.tfrecord").write_bytes(
            b"".join([*good[:40], examples({"x": b"no"}), *good[40:]])
        )
        frame = tfr.read_tfrecord(tmp_path, schema=pa.schema([("x", pa.int64())]), blocksize=100)
        with pytest.raises(tfr.SchemaMismatchError, match="record 40, feature 'x'") as caught:
            frame.compute()
        assert caught.value.offset == sum(map(len, good[:40]))

    def test_damage_is_skipped_and_told(self, tmp_path):
        data = bytearray(b"".join(examples({"x": i}) for i in range(100)))
        data[30 * len(data) // 100 + 14] ^= 1
        (tmp_path / "a.tfrecord").write_bytes(data)
        frame = tfr.read_tfrecord(
            tmp_path, schema=pa.schema([("x", pa.int64())]), on_corrupt="skip_record", blocksize=100
        )
        assert frame.npartitions == 1
        with pytest.warns(tfr.CorruptDataWarning, match="skipped 1 damaged"):
            assert len(frame.compute()) == 99

    def test_rows_of_damaged_files_are_not_counted(self, dataset):
        spoil(next(Path(dataset).rglob("part-*")))
        frame = tfr.read_tfrecord(dataset, on_corrupt="skip_file", blocksize=None)
        with pytest.warns(tfr.CorruptDataWarning):
            assert len(frame) == sum(map(len, frame.partitions)) == ROWS - 25

    def test_damage_is_kept(self, tmp_path):
        data = bytearray(b"".join(examples({"x": i}) for i in range(100)))
        size = len(data) // 100
        data[30 * size + 14] ^= 1
        (tmp_path / "a.tfrecord").write_bytes(data)
        frame = tfr.read_tfrecord(
            tmp_path,
            schema=pa.schema([("x", pa.int64())]),
            on_corrupt="keep",
            corrupt_column="damaged",
            blocksize=100,
        )
        assert list(frame.columns) == ["x", "damaged"]
        with pytest.warns(tfr.CorruptDataWarning, match="made rows of 1 damaged"):
            found = frame.compute()
        assert found["x"].dropna().tolist() == [i for i in range(100) if i != 30]
        assert found["damaged"].dropna().to_dict() == {30: bytes(data[30 * size : 31 * size])}
        # A column of its own is read without keeping bytes, and rows stay as many.
        with pytest.warns(tfr.CorruptDataWarning):
            assert len(frame["x"].compute()) == len(frame) == 100

    @pytest.mark.parametrize("blocksize", [0, -1, "many", "1e400", 1.5, True])
    def test_a_blocksize_that_is_none(self, dataset, blocksize):
        with pytest.raises(tfr.OptionError, match="blocksize"):
            tfr.read_tfrecord(dataset, blocksize=blocksize)


def test_files_that_disagree_name_the_feature_and_the_files(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(examples({"x": 1}))
    (tmp_path / "b.tfrecord").write_bytes(examples({"x": b"text"}))
    with pytest.raises(tfr.InferenceError, match=r"'x'.*b\.tfrecord"):
        tfr.read_tfrecord(tmp_path)


def test_dask_works_on_what_was_read(dataset):
    frame = tfr.read_tfrecord(dataset, blocksize=700)
    sums = frame.groupby("p")["i"].sum().compute()
    expected = TABLE.group_by("p").aggregate([("i", "sum")]).to_pydict()
    assert sums.to_dict() == dict(zip(expected["p"], expected["i_sum"], strict=True))
    joined = frame[["s", "f"]].merge(frame[["s", "i"]], on="s").compute()
    assert len(joined) == ROWS
    assert np.array_equal(joined.loc[joined.i.notna(), "f"] * 2, joined.i.dropna())
