"""Written bytes against protobuf's, and that nothing but rows, schema and options decides them."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import os
import pickle
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.frames import examples
from tests.support.peaks import peak_bytes
from tests.support.trees import data_files, expected_files, tree
from tfrecord_io.commit.job import abort_job, commit_job
from tfrecord_io.engines.local import read_table, write_table
from tfrecord_io.errors import (
    CommitError,
    DatasetExistsError,
    EncodeError,
    LayoutError,
    OptionError,
    PrecisionWarning,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from tfrecord_io.manifest import Manifest
from tfrecord_io.plan import TaskCommit, WriteResult
from tfrecord_io.storage import LocalStorage
from tfrecord_io.writing import attempt, feed, part_writer
from tfrecord_io.writing import plan as write_plan
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

ROWS = [
    {"a": n, "b": f"v{n}", "c": [0.5 * n, 1.0], "p": "xyz"[n * n % 3], "q": n % 2}
    for n in range(50)
]
TABLE = pa.table(
    {
        "a": pa.array([row["a"] for row in ROWS], pa.int64()),
        "b": pa.array([row["b"] for row in ROWS]),
        "c": pa.array([row["c"] for row in ROWS], pa.list_(pa.float32())),
        "p": pa.array([row["p"] for row in ROWS]),
        "q": pa.array([row["q"] for row in ROWS], pa.int8()),
    }
)


def manifest(root: Path) -> Manifest:
    loaded = Manifest.loads((root / "_SUCCESS").read_bytes())
    assert loaded is not None
    return loaded


@pytest.mark.parametrize("partition_by", [(), ("p",), ("q", "p")])
@pytest.mark.parametrize("rows_per_task", [7, 50, 1000])
def test_files_are_what_protobuf_writes(
    tmp_path: Path, partition_by: tuple[str, ...], rows_per_task: int
) -> None:
    root = tmp_path / "ds"
    result = write_table(TABLE, root, partition_by=partition_by, rows_per_task=rows_per_task)
    expected = expected_files(ROWS, partition_by, rows_per_task=rows_per_task)
    assert data_files(root) == expected
    assert {path for path, data in tree(root).items() if data is not None} == {
        *expected,
        "_SUCCESS",
    }
    size = sum(map(len, expected.values()))
    assert result == WriteResult(files=len(expected), rows=50, bytes=size)
    told = {file.path: (file.bytes, file.marks) for file in manifest(root).files}
    assert told == {path: (len(data), ()) for path, data in expected.items()}
    assert sum(file.rows for file in manifest(root).files) == 50
    assert manifest(root).partition_schema.names == list(partition_by)


class Stream:
    """What Polars, DuckDB and others look like."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """What a batch of other libraries looks like."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def dressed(table: pa.Table) -> pa.Table:
    """The same values in other types of the same normal form."""
    return pa.table(
        {
            "a": table["a"],
            "b": table["b"].cast(pa.large_string()).dictionary_encode(),
            "c": table["c"].cast(pa.large_list(pa.float32())),
            "p": table["p"].dictionary_encode(),
            "q": table["q"],
        }
    )


SOURCES: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda t: t,
    "chunked table": lambda t: pa.concat_tables([t.slice(0, 3), t.slice(3)]),
    "batch": lambda t: t.combine_chunks().to_batches()[0],
    "reader": lambda t: pa.RecordBatchReader.from_batches(t.schema, t.to_batches(3)),
    "single rows": lambda t: (t.slice(n, 1) for n in range(t.num_rows)),
    "batches": lambda t: t.to_batches(11),
    "stream": Stream,
    "batch of others": Batch,
    "data set of Arrow": ds.dataset,
    "scanner": lambda t: ds.dataset(t).scanner(batch_size=7),
    "dressed": dressed,
    "dressed stream": lambda t: Stream(dressed(t)),
    "string view": lambda t: t.set_column(3, "p", t["p"].cast(pa.string_view())),
}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("source", SOURCES)
def test_only_rows_schema_and_options_decide(tmp_path: Path, source: str, threads: int) -> None:
    options: dict[str, Any] = {"partition_by": ["p"], "rows_per_task": 8, "compression": "zstd"}
    write_table(TABLE, tmp_path / "expected", threads=1, **options)
    write_table(SOURCES[source](TABLE), tmp_path / "found", threads=threads, **options)
    assert tree(tmp_path / "found") == tree(tmp_path / "expected")


def test_threads_compress_one_file_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"v": [random.Random(n).randbytes(10_000) for n in range(300)]})
    write_table(table, tmp_path / "expected", compression="bzip2", threads=1)
    together = threading.Barrier(2, timeout=60)
    pieces = itertools.count()
    original = bz2.compress

    def compress(*arguments: Any) -> bytes:
        if next(pieces) < 2:
            together.wait()
        return original(*arguments)

    monkeypatch.setattr(bz2, "compress", compress)
    write_table(table, tmp_path / "found", compression="bzip2", threads=2)
    assert tree(tmp_path / "found") == tree(tmp_path / "expected")
    (data,) = data_files(tmp_path / "found").values()
    assert len(bz2.decompress(data)) > 3_000_000


def test_pandas_frames(tmp_path: Path) -> None:
    frame = TABLE.drop_columns(["c"]).to_pandas()
    write_table(frame, tmp_path / "range", partition_by="p")
    rows = [{key: row[key] for key in row if key != "c"} for row in ROWS]
    assert data_files(tmp_path / "range") == expected_files(rows, ["p"])
    named = pd.DataFrame({"v": [1, 2]}, index=pd.Index([7, 8], name="w"))
    write_table(named, tmp_path / "named")
    assert data_files(tmp_path / "named") == expected_files([{"v": 1, "w": 7}, {"v": 2, "w": 8}])


def test_a_dict_of_arrays(tmp_path: Path) -> None:
    data = {"x": np.arange(12, dtype=np.float32).reshape(2, 3, 2), "y": np.array([1, 2])}
    with pytest.raises(OptionError, match=r"pyarrow\.table\(data\).*from_numpy_ndarray\(array\)"):
        write_table(data, tmp_path / "out")
    x = pa.FixedShapeTensorArray.from_numpy_ndarray(data["x"])
    write_table(pa.table({**data, "x": x}), tmp_path / "out")
    rows = [
        {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": 1},
        {"x": [6.0, 7.0, 8.0, 9.0, 10.0, 11.0], "y": 2},
    ]
    assert data_files(tmp_path / "out") == expected_files(rows)


def test_a_frame_of_dask(tmp_path: Path) -> None:
    import dask.dataframe as dd

    frame = dd.from_pandas(pd.DataFrame({"v": [1, 2]}), npartitions=2)
    with pytest.raises(OptionError, match=r"a DataFrame of Dask, .*to_tfrecord.*compute\(\)"):
        write_table(frame, tmp_path / "out")


def test_chunks_of_pandas_frames(tmp_path: Path) -> None:
    def chunks() -> Iterator[pd.DataFrame]:
        return pd.read_csv(io.StringIO("n,s\n5,x\n,\n6,\n"), chunksize=2)

    with pytest.raises(OptionError, match=r"from_pandas\(frame, schema\)"):
        write_table(chunks(), tmp_path / "out")
    with pytest.raises(OptionError, match=r"holds a dict; .*from_pylist.*with_format\(\"arrow\"\)"):
        write_table(iter([{"n": 1}]), tmp_path / "out")
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    tables = (pa.Table.from_pandas(chunk, schema) for chunk in chunks())
    write_table(tables, tmp_path / "out", schema=schema)
    rows = [{"n": 5, "s": "x"}, {"n": None, "s": None}, {"n": 6, "s": None}]
    assert data_files(tmp_path / "out") == expected_files(rows)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=10), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_batches_do_not_matter(sizes: list[int], rows_per_task: int) -> None:
    def batches() -> Iterator[pa.Table]:
        start = 0
        for size in [*sizes, 50]:
            yield TABLE.slice(start, size)
            start += size

    url = "memory://test-write/batches"
    write_table(batches(), url, mode="overwrite", rows_per_task=rows_per_task)
    import fsspec

    filesystem = fsspec.filesystem("memory")
    root = "/test-write/batches/"
    found = {path.removeprefix(root): filesystem.cat_file(path) for path in filesystem.find(root)}
    assert found.pop("_SUCCESS")
    assert found == expected_files(ROWS, rows_per_task=rows_per_task)


def test_small_batches_are_put_together() -> None:
    ones = [TABLE.slice(n, 1).to_batches()[0] for n in range(50)]
    gathered = list(feed.gathered(ones))
    assert [batch.num_rows for batch in gathered] == [50]
    assert gathered[0].to_pylist() == ROWS
    thousands = [pa.record_batch({"a": range(1000)})] * 20
    assert [batch.num_rows for batch in feed.gathered(thousands)] == [8000, 8000, 4000]
    # A megabyte each, of which eight go together.
    longs = [pa.record_batch({"a": [bytes(1_000_000)]})] * 20
    assert [batch.num_rows for batch in feed.gathered(longs)] == [8, 8, 4]
    # Not with large ones, those of other columns, or dictionaries.
    large = pa.record_batch({"a": range(50_000)})
    fat = pa.record_batch({"a": [bytes(2_000_000)]})
    words = pa.record_batch({"a": pa.array(["x"]).dictionary_encode()})
    lists = pa.record_batch({"a": pa.ListArray.from_arrays([0, 1], words["a"])})
    mixed = [large, fat, *ones[:2], large.slice(0, 3), words, words, lists, lists]
    rows = [batch.num_rows for batch in feed.gathered(mixed)]
    assert rows == [50_000, 1, 2, 3, 1, 1, 1, 1]


def test_rows_keep_their_order_whatever_the_sizes_of_their_batches() -> None:
    kinds = [
        *(pa.array([bytes(size)] * 2, pa.binary()) for size in (0, 200_000, 520_000, 600_000)),
        pa.array([bytes(6_000_000)], pa.binary()),
        pa.array([b""] * 5000, pa.binary()),
        pa.array([b""] * 9000, pa.binary()),
        pa.array([b"x"] * 3, pa.large_binary()),
        pa.array([b"y"] * 3, pa.binary()).dictionary_encode(),
    ]
    for chosen in itertools.product(kinds, repeat=3):
        ends = [*itertools.accumulate(map(len, chosen))]
        batches = [
            pa.record_batch({"n": pa.array(range(end - len(values), end)), "values": values})
            for end, values in zip(ends, chosen, strict=True)
        ]
        numbers = [batch["n"] for batch in feed.gathered(batches)]
        assert pa.concat_arrays(numbers).equals(pa.array(range(ends[-1])))


@pytest.mark.parametrize("compression", ["gzip", "org.apache.hadoop.io.compress.GzipCodec"])
def test_compressed_files(tmp_path: Path, compression: str) -> None:
    write_table(TABLE, tmp_path, partition_by="q", compression=compression, mode="append")
    found = {path: gzip.decompress(data) for path, data in data_files(tmp_path).items()}
    assert found == expected_files(ROWS, ["q"], suffix=".gz")
    assert manifest(tmp_path).compression == "gzip"


@pytest.mark.parametrize("batch_rows", [1, 3, 50])
def test_files_roll_after_max_records(tmp_path: Path, batch_rows: int) -> None:
    batches = TABLE.select(["a", "q"]).to_batches(batch_rows)
    write_table(batches, tmp_path, partition_by="q", max_records_per_file=10, rows_per_task=41)
    expected = {}
    for q in (0, 1):
        for task, rows in enumerate((ROWS[:41], ROWS[41:])):
            mine = [{"a": row["a"]} for row in rows if row["q"] == q]
            for file in range(-(-len(mine) // 10)):
                name = f"q={q}/part-{task:05d}-{file:03d}.tfrecord"
                expected[name] = examples(*mine[file * 10 : file * 10 + 10])
    assert data_files(tmp_path) == expected


def frame_starts(data: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 16 + struct.unpack_from("<Q", data, at)[0]
    return starts


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_marks_are_the_first_records_from_each_multiple_on(lengths: list[int], batch: int) -> None:
    data = pa.table({"byteArray": [bytes(length) for length in lengths]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_writer, "SPLIT_BYTES", 100)
        job = plan_write(
            data.schema, "memory://test-write/marks", record_type="ByteArray", mode="overwrite"
        )
        commit = write_task(job, 0, data.to_batches(batch))
        abort_job(job)
    starts = frame_starts(b"".join(_framed(length) for length in lengths))
    expected = {}
    for multiple in range(100, starts[-1] + 1, 100):
        offset = next(start for start in starts if start >= multiple)
        expected[offset] = starts.index(offset)
    assert commit.files[0].marks == tuple(expected.items())


def _framed(length: int) -> bytes:
    return struct.pack("<QI", length, 0) + bytes(length + 4)


def test_large_rows_are_marked_and_cut(tmp_path: Path) -> None:
    rows = [bytes([n]) * 9_000_000 for n in range(5)]
    write_table(pa.table({"byteArray": rows}), tmp_path, record_type="ByteArray")
    (file,) = manifest(tmp_path).files
    # 16 MiB, 32 MiB and 48 MiB lie inside records 1, 3 and 5.
    assert file.marks == tuple((record * 9_000_016, record) for record in (2, 4))
    assert len(list(attempt._pieces(pa.record_batch({"b": rows})))) == 3


def test_empty_tables(tmp_path: Path) -> None:
    expected = write_table(TABLE.slice(0, 0), tmp_path / "table", partition_by="p")
    assert expected == WriteResult()
    assert list(tree(tmp_path / "table")) == ["_SUCCESS"]
    assert manifest(tmp_path / "table").schema.names == ["a", "b", "c", "q"]
    write_table(iter([]), tmp_path / "iterable", schema=TABLE.schema, partition_by="p")
    assert tree(tmp_path / "iterable") == tree(tmp_path / "table")
    with pytest.raises(OptionError, match="schema"):
        write_table([], tmp_path / "no schema")
    with pytest.raises(SchemaMismatchError):
        write_table(TABLE, tmp_path / "no columns", schema=pa.schema([]))


def test_rows_without_columns(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert write_table(batch, tmp_path).rows == 2
    assert data_files(tmp_path) == expected_files([{}, {}])


def test_one_warning_names_all_narrowed_columns(tmp_path: Path) -> None:
    table = pa.table({"x": [0.1] * 10, "y": [0.5] * 10, "z": [0.3] * 10})
    with pytest.warns(PrecisionWarning) as caught:
        write_table(table, tmp_path / "warn", rows_per_task=2)
    assert len(caught) == 1
    assert "'x', 'z'" in str(caught[0].message)
    write_table(table, tmp_path / "cast", float64="cast")
    with pytest.raises(EncodeError):
        write_table(table, tmp_path / "error", float64="error")
    assert not (tmp_path / "error").exists()


REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "unknown partition column": ({"partition_by": ["no"]}, OptionError),
    "partition column twice": ({"partition_by": ["p", "p"]}, OptionError),
    "partition column of no name": ({"partition_by": [3]}, OptionError),
    "no list of partition columns": ({"partition_by": 3}, OptionError),
    "all columns": ({"partition_by": list("abpq")}, LayoutError),
    "list as partition": ({"partition_by": "l"}, LayoutError),
    "one of two columns as partition": ({"partition_by": "l"}, LayoutError),
    "mode": ({"mode": "replace"}, OptionError),
    "record type": ({"record_type": "Sample"}, OptionError),
    "compression": ({"compression": "rar"}, OptionError),
    "level": ({"compression": "gzip", "compression_level": 77}, OptionError),
    "max records": ({"max_records_per_file": 0}, OptionError),
    "max records of no 64 bits": ({"max_records_per_file": 2**63}, OptionError),
    "rows per task": ({"rows_per_task": 0}, OptionError),
    "rows per task of no 64 bits": ({"rows_per_task": 2**63}, OptionError),
    "threads": ({"threads": 0}, OptionError),
    "float64": ({"float64": "round"}, OptionError),
    "codec": ({"codec": "fast"}, OptionError),
    "empty partition": ({"empty_partition": "drop"}, OptionError),
    "no partitions": ({"mode": "overwrite_partitions"}, OptionError),
    "ByteArray": ({"record_type": "ByteArray"}, UnsupportedTypeError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_write_nothing(tmp_path: Path, case: str) -> None:
    options, error = REFUSED[case]
    table = TABLE.drop_columns(["c"])
    if case == "list as partition":
        table = table.append_column("l", pa.array([[1]] * 50))
    if case == "one of two columns as partition":
        table = table.append_column("l", table["p"]).append_column("l", table["p"])

    def rows() -> Iterator[pa.RecordBatch]:
        pytest.fail("they are asked for")
        yield

    with pytest.raises(error):
        write_table(rows(), tmp_path / "new" / "ds", schema=table.schema, **options)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([{"x": 1}]), UnsupportedTypeError),
        (pa.array([[[1]]]), UnsupportedTypeError),
        (pa.array([2**63], pa.uint64()), EncodeError),
        (pa.array([[1, None]]), EncodeError),
        (pa.array([1e300]), EncodeError),
    ],
)
def test_columns_and_values_that_cannot_be_written(
    tmp_path: Path, column: pa.Array, error: type[Exception]
) -> None:
    with pytest.raises(error, match="'bad'"):
        write_table(pa.table({"bad": column}), tmp_path / "ds")
    assert tree(tmp_path) == {}


TEXTS = [None, b"plain", "größer".encode(), b"caf\xe9", b"\xc3"]
STRINGS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": lambda texts: texts.view(pa.string()),
    "large_string": lambda texts: texts.cast(pa.large_binary()).view(pa.large_string()),
    "dictionary": lambda texts: texts.view(pa.string()).dictionary_encode(),
}


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("start", [0, 2])
def test_strings_that_are_no_text(tmp_path: Path, kind: str, start: int) -> None:
    column = STRINGS[kind](pa.array(TEXTS, pa.binary())).slice(start)
    with pytest.raises(EncodeError, match="'s' holds bytes that are no text in UTF-8") as caught:
        write_table(pa.table({"s": column}), tmp_path / "ds")
    assert (caught.value.row, caught.value.feature) == (3 - start, "s")
    assert tree(tmp_path) == {}
    sound = column.slice(0, 3 - start)
    write_table(pa.table({"s": sound}), tmp_path / "ds")
    assert read_table(tmp_path / "ds")["s"].to_pylist() == sound.to_pylist()


def test_a_letter_of_two_strings_is_none(tmp_path: Path) -> None:
    # Together both are text.
    halves = pa.array(["ä".encode()[:1], "ä".encode()[1:]], pa.binary()).view(pa.string())
    with pytest.raises(EncodeError, match="no text in UTF-8") as caught:
        write_table(pa.table({"s": halves}), tmp_path / "ds")
    assert caught.value.row == 0


def test_lists_of_strings_that_are_no_text(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", b"b"], pa.binary()).view(pa.string())
    lists = pa.ListArray.from_arrays([0, 1, 1, 3], texts)
    with pytest.raises(EncodeError, match="no text in UTF-8") as caught:
        write_table(pa.table({"s": lists}), tmp_path / "ds")
    assert (caught.value.row, caught.value.feature) == (2, "s")


@pytest.mark.parametrize(
    "data",
    ["text", b"bytes", 3, {"a": [1]}, [3], None, pa.array([1]), pa.chunked_array([["a"], ["b"]])],
)
def test_data_that_is_no_table(tmp_path: Path, data: object) -> None:
    with pytest.raises(OptionError):
        write_table(data, tmp_path / "ds")
    assert tree(tmp_path) == {}


def test_errors_count_rows_as_they_came_in(tmp_path: Path) -> None:
    values = [[1]] * 50
    values[33] = [1, None]  # type: ignore[list-item]
    table = TABLE.append_column("d", pa.array(values))
    with pytest.raises(EncodeError) as caught:
        write_table(table.to_batches(7), tmp_path / "ds", partition_by="p", rows_per_task=20)
    assert (caught.value.row, caught.value.feature) == (33, "d")
    assert tree(tmp_path) == {}


def test_errors_of_a_folders_file_count_rows_of_all_folders(tmp_path: Path) -> None:
    table = pa.table({"byteArray": [b"a", b"b", None, b"c"], "p": [1, 1, 2, 1]})
    with pytest.raises(EncodeError, match="a null cannot be written") as caught:
        write_table(table, tmp_path / "ds", partition_by="p", record_type="ByteArray")
    assert caught.value.row == 2


def test_no_partition_columns_may_be_none(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    write_table(table, tmp_path / "none", partition_by=None)
    write_table(table, tmp_path / "left-out")
    assert list(data_files(tmp_path / "none")) == ["part-00000-000.tfrecord"]
    assert tree(tmp_path / "none") == tree(tmp_path / "left-out")


def test_partition_values_that_cannot_be_written(tmp_path: Path) -> None:
    for value in ("", "a\0", "x" * 300):
        table = pa.table({"p": ["x", value], "v": [1, 2]})
        with pytest.raises(LayoutError):
            write_table(table, tmp_path / "ds", partition_by="p")
    assert tree(tmp_path) == {}
    table = pa.table({"p": ["", None], "v": [1, 2]})
    write_table(table, tmp_path / "ds", partition_by="p", empty_partition="null")
    assert list(data_files(tmp_path / "ds")) == [
        "p=__HIVE_DEFAULT_PARTITION__/part-00000-000.tfrecord"
    ]


@pytest.mark.parametrize("t", [pa.struct([("a", pa.int64())]), pa.map_(pa.int8(), pa.int8())])
def test_partition_columns_that_have_no_text(tmp_path: Path, t: pa.DataType) -> None:
    table = pa.table({"p": pa.nulls(1, t), "v": [1]})
    with pytest.raises(LayoutError, match=re.escape(f"'p' is of type {t}, and only numbers")):
        write_table(table, tmp_path / "ds", partition_by="p")


def test_dictionaries_of_views_name_folders(tmp_path: Path) -> None:
    texts = pa.array(["x", "a longer text than a view holds"], pa.string_view())
    values = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), texts)
    write_table(pa.table({"p": values, "v": [1, 2, 3]}), tmp_path / "ds", partition_by="p")
    rows = [{"p": text, "v": n} for n, text in enumerate(values.to_pylist(), 1)]
    assert data_files(tmp_path / "ds") == expected_files(rows, ["p"])


def test_extension_types_name_folders_as_what_they_are_stored_as(tmp_path: Path) -> None:
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
    write_table(pa.table({"p": flags, "v": [1, 2]}), tmp_path / "ds", partition_by="p")
    assert list(data_files(tmp_path / "ds")) == [
        "p=0/part-00000-000.tfrecord",
        "p=1/part-00000-000.tfrecord",
    ]


def test_partition_values_never_leave_the_target(tmp_path: Path) -> None:
    values = ["..", "../..", "/etc", "a/../../b", ".", "~"]
    write_table(pa.table({"p": values, "v": range(6)}), tmp_path / "ds", partition_by="p")
    assert len(data_files(tmp_path / "ds")) == 6
    assert list(tmp_path.iterdir()) == [tmp_path / "ds"]


def test_names_of_folders_that_have_no_room_in_one_array(tmp_path: Path) -> None:
    rows = 1_200_000
    names = [letter * 240 for letter in "abcdefgh"]
    values = pa.array([1, 2], pa.int8()).take(pa.array([0] * (rows - 1) + [1]))
    table = pa.table({"v": pa.nulls(rows), **dict.fromkeys(names, values)})
    assert rows * len("/".join(f"{name}=1" for name in names)) > 2**31
    write_table(table, tmp_path / "ds", partition_by=names, rows_per_task=rows)
    assert {file.path: file.rows for file in manifest(tmp_path / "ds").files} == {
        "/".join(f"{name}={value}" for name in names) + "/part-00000-000.tfrecord": count
        for value, count in ((1, rows - 1), (2, 1))
    }


def test_declared_nullability_is_held_to(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False), pa.field("p", pa.int64())])
    table = pa.table({"v": [1, None], "p": [1, 2]})
    with pytest.raises(EncodeError, match="'v'"):
        write_table(table, tmp_path / "ds", schema=schema)
    write_table(table.slice(0, 1), tmp_path / "ds", schema=schema)
    write_table(table.slice(0, 1), tmp_path / "nullable")
    assert tree(tmp_path / "ds") == tree(tmp_path / "nullable")


@pytest.mark.parametrize(
    "nulls",
    [
        pa.array(["a", None, "a", None]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1]), pa.array(["a", None])),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 0, 1]), pa.array(["a", None])),
    ],
)
def test_nulls_in_partition_columns_that_have_none(tmp_path: Path, nulls: pa.Array) -> None:
    schema = pa.schema([pa.field("p", pa.string(), nullable=False), pa.field("v", pa.int64())])
    batch = pa.record_batch({"p": nulls, "v": [1, 2, 3, 4]})
    for start, row in ((0, 1), (2, 5)):
        batches = [batch.slice(0, 1)] * 2 * start + [batch.slice(start)]
        with pytest.raises(EncodeError, match=rf"'p' is declared not nullable .*row {row}"):
            write_table(batches, tmp_path / "ds", schema=schema, partition_by="p")
    assert tree(tmp_path) == {}


def test_a_target_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "ds").write_text("x")
    for mode in ("error", "overwrite", "append", "ignore"):
        with pytest.raises(DatasetExistsError, match="file") as caught:
            write_table(TABLE, tmp_path / "ds", mode=mode)
        assert caught.value.path == str(tmp_path / "ds")
    assert tree(tmp_path) == {"ds": b"x"}


def test_a_target_that_is_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "ds").symlink_to("no")
    for mode in ("error", "overwrite", "append", "ignore"):
        with pytest.raises(DatasetExistsError, match="file"):
            write_table(TABLE, tmp_path / "ds", mode=mode)
    assert (tmp_path / "ds").is_symlink()
    assert not (tmp_path / "no").exists()


def test_overwriting_never_removes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis").write_text("x")
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "link").symlink_to("work")
    for target in (".", "..", str(tmp_path), "/", "../link"):
        with pytest.raises(LayoutError, match="working") as caught:
            write_table(TABLE, target, mode="overwrite")
        assert Path(caught.value.path or "").samefile(target)
    assert (tmp_path / "work" / "thesis").exists()
    (tmp_path / "work" / "thesis").unlink()
    for mode in ("error", "append"):
        write_table(TABLE, ".", mode=mode)
    assert read_table(".").num_rows == 2 * TABLE.num_rows


def test_overwriting_never_removes_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "me").mkdir(parents=True)
    (tmp_path / "home" / "me" / "thesis").write_text("x")
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    for target in ("home/me", "home"):
        with pytest.raises(LayoutError, match="home"):
            write_table(TABLE, tmp_path / target, mode="overwrite")
    assert (tmp_path / "home" / "me" / "thesis").exists()
    # Of another store such a path says nothing.
    url = f"memory:/{tmp_path}/home/me"
    write_table(TABLE, url, mode="overwrite")
    assert read_table(url).num_rows == TABLE.num_rows


def test_overwriting_without_a_working_or_a_home_directory(tmp_path: Path) -> None:
    # As under users whom a system does not know: they have no home without the variable.
    code = """
        import os, sys
        import pyarrow as pa
        import tfrecord_io as tfr
        tfr.write_table(pa.table({"v": [1]}), sys.argv[1])
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        os.environ.pop("HOME", None)
        os.getuid = lambda: 2**31 - 2
        tfr.write_table(pa.table({"v": [2]}), sys.argv[1], mode="overwrite")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "ds")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert read_table(tmp_path / "ds").to_pylist() == [{"v": 2}]


def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def source() -> Iterator[pa.Table]:
        yield TABLE
        yield TABLE
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="broke"):
        write_table(source(), tmp_path / "a" / "ds", rows_per_task=30)
    assert tree(tmp_path) == {}


def test_batches_of_other_columns(tmp_path: Path) -> None:
    for other in (TABLE.drop_columns(["a"]), TABLE.rename_columns(list("abcpz"))):
        with pytest.raises(SchemaMismatchError, match=r"are declared.*: give each batch those"):
            write_table([TABLE, other], tmp_path / "ds")
    retyped = TABLE.set_column(4, "q", TABLE["q"].cast(pa.string()))
    with pytest.raises(SchemaMismatchError, match=r"'q'.*declared: cast it"):
        write_table([TABLE, retyped], tmp_path / "ds", partition_by="q")
    reordered = TABLE.select(["q", "p", "c", "b", "a"])
    write_table([TABLE, reordered], tmp_path / "ds")
    assert data_files(tmp_path / "ds") == expected_files([*ROWS, *ROWS])


@pytest.mark.parametrize("dress", [lambda nulls: nulls, lambda nulls: nulls.dictionary_encode()])
def test_null_columns_of_one_batch(tmp_path: Path, dress: Callable[[pa.Array], pa.Array]) -> None:
    nulls = pa.table({"a": pa.nulls(2), "p": dress(pa.nulls(2))})
    some = pa.table({"a": [1, 2], "p": ["x", None]})
    write_table([some, nulls], tmp_path, partition_by="p", mode="append")
    null = "__HIVE_DEFAULT_PARTITION__"
    rows = [{"a": 1, "p": "x"}, {"a": 2, "p": null}, {"a": None, "p": null}, {"a": None, "p": null}]
    assert data_files(tmp_path) == expected_files(rows, ["p"])


def test_dictionaries_of_nulls_are_nulls(tmp_path: Path) -> None:
    nulls = pa.table({"a": [1, 2], "p": pa.nulls(2)})
    dressed = nulls.set_column(1, "p", nulls["p"].dictionary_encode())
    for name, table in {"plain": nulls, "dressed": dressed}.items():
        write_table(table, tmp_path / name, partition_by="p")
    assert tree(tmp_path / "dressed") == tree(tmp_path / "plain")


def test_streams_are_written_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, unwritten, most = threading.Lock(), 0, 0
    are_many = threading.Event()
    # Made once: rows come faster than they are written.
    made = pa.record_batch({"v": pa.array(range(10_000), pa.int64())})

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal unwritten, most
        for _ in range(100):
            with lock:
                unwritten += 1
                most = max(most, unwritten)
                if unwritten == 10:
                    are_many.set()
            yield made

    def slow(job: object, index: int, batches: Iterator[pa.RecordBatch], **_: int) -> TaskCommit:
        nonlocal unwritten
        are_many.wait(10)
        for batch in batches:
            time.sleep(0.01)
            with lock:
                unwritten -= batch.num_rows // 10_000
        return TaskCommit(task_index=index, files=())

    monkeypatch.setattr(feed, "_IN_FLIGHT_BYTES", 800_000)
    monkeypatch.setattr(feed, "write_task", slow)
    write_table(source(), tmp_path / "ds", rows_per_task=150_000, threads=2)
    # Ten batches of 80,000 bytes on the way, one that waits, and one in each thread's hands.
    assert 10 <= most <= 13


@pytest.mark.parametrize(
    "values",
    [
        "pa.DictionaryArray.from_arrays([0] * n, text)",
        "pa.ListArray.from_arrays([*range(n + 1)], pa.DictionaryArray.from_arrays([0] * n, text))",
        "pa.ListViewArray.from_arrays([0] * n, [6000] * n, pa.array([7] * 6000))",
        "view",
        "pa.ListArray.from_arrays([*range(n + 1)], view)",
    ],
)
def test_rows_that_share_their_values_are_written_in_bounded_memory(
    tmp_path: Path, values: str
) -> None:
    code = f"""
        import pyarrow as pa
        text = pa.array(["x" * 50_000])
        _, view, data = text.cast(pa.string_view()).buffers()
        view = pa.py_buffer(view.to_pybytes()[:16] * n)
        view = pa.Array.from_buffers(pa.string_view(), n, [None, view, data])
        write_table(pa.table({{"x": {values}}}), f"ds{{n}}")
    """
    few, many = (peak_bytes(tmp_path, f"n = {rows}\n{textwrap.dedent(code)}") for rows in (6, 6000))
    # Of the many, the values take 300 MB.
    assert many - few < 150e6


def test_a_failing_task_stops_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_IN_FLIGHT_BYTES", 10_000)
    # The task that fails gives nothing back of what it was given, which is more than may be there.
    good, bad = pa.table({"v": range(1000)}), pa.table({"v": ["x" * 100] * 1000})
    taken = 0

    def source() -> Iterator[pa.Table]:
        nonlocal taken
        for table in [good, bad, *[good] * 1000]:
            taken += 1
            yield table

    with pytest.raises(EncodeError):
        write_table(source(), tmp_path / "ds", rows_per_task=500, threads=3)
    assert taken < 100
    assert tree(tmp_path) == {}


def test_many_partitions_need_few_open_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc").exists() else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 30, hard))
    try:
        table = pa.table({"p": [n % 200 for n in range(600)], "v": range(600)})
        result = write_table(table.to_batches(50), tmp_path / "ds", partition_by="p", threads=2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.files == 200


def test_jobs_and_commits_cross_processes_and_attempts_do_not_meet(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    job = plan_write(TABLE.schema, root, partition_by="p", storage_options={"secret": "hunter2"})
    assert "hunter2" not in repr(job)
    job = pickle.loads(pickle.dumps(job))
    abandoned = write_task(job, 0, TABLE.slice(0, 10).to_batches())
    twin = write_task(job, 0, TABLE.slice(0, 10).to_batches())
    with pytest.raises(EncodeError):
        write_task(job, 1, [TABLE.set_column(0, "a", pa.array([[1, None]] * 50))])
    write_task(job, 1, TABLE.slice(10).to_batches(3))
    assert {f.staged for f in twin.files}.isdisjoint(f.staged for f in abandoned.files)
    assert data_files(root) == {}
    with pytest.raises(CommitError, match="two commits"):
        commit_job(job, [abandoned, twin])
    assert tree(tmp_path) == {}
    job = plan_write(TABLE.schema, root, partition_by="p")
    commits = [write_task(job, k, TABLE.slice(k * 25, 25).to_batches()) for k in (1, 0)]
    write_task(job, 0, TABLE.slice(0, 10).to_batches())
    commit_job(job, pickle.loads(pickle.dumps(commits)))
    assert data_files(root) == expected_files(ROWS, ["p"], rows_per_task=25)
    assert not (root / ".tfrecord-io").exists()


def test_a_job_is_of_the_folder_where_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    job = plan_write(TABLE.schema, "ds")
    monkeypatch.chdir(tmp_path)
    commit_job(job, [write_task(job, 0, TABLE.to_batches())])
    assert data_files(tmp_path / "here" / "ds") == expected_files(ROWS)
    assert [*tmp_path.iterdir()] == [tmp_path / "here"]


def test_an_aborted_job_refuses_its_tasks(tmp_path: Path) -> None:
    job = plan_write(TABLE.schema, tmp_path / "a" / "b" / "ds")
    assert (tmp_path / "a" / "b" / "ds").is_dir()
    abort_job(job, [None])
    assert tree(tmp_path) == {}
    with pytest.raises(CommitError, match="aborted"):
        write_task(job, 0, TABLE.to_batches())
    abort_job(job)
    assert tree(tmp_path) == {}


def test_ignore_writes_only_where_nothing_is(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    assert write_table(TABLE, root, mode="ignore").rows == 50
    before = tree(root)
    for other in (TABLE.slice(0, 3), pa.table({"other": [1]})):
        assert write_table(other, root, mode="ignore") == WriteResult()
    assert tree(root) == before
    (tmp_path / "new").mkdir()
    assert write_table(TABLE, tmp_path / "new", mode="ignore").rows == 50
    # As the mode "error" refuses it, and no row is asked for.
    (tmp_path / "folders" / "empty").mkdir(parents=True)
    rows = (pytest.fail("they are asked for") for _ in "x")
    schema = TABLE.schema
    found = write_table(rows, tmp_path / "folders", schema=schema, mode="ignore")
    assert found == WriteResult()
    assert tree(tmp_path / "folders") == {"empty": None}


def test_a_target_that_another_job_makes_meanwhile_is_not_taken_for_a_file(tmp_path, monkeypatch):
    write_table(pa.table({"x": [1]}), tmp_path / "t")
    answers = iter([False])
    is_folder = LocalStorage.is_folder
    monkeypatch.setattr(
        LocalStorage, "is_folder", lambda self, path: next(answers, is_folder(self, path))
    )
    write_table(pa.table({"x": [2]}), tmp_path / "t", mode="append")
    assert next(answers, None) is None
    assert read_table(tmp_path / "t")["x"].to_pylist() == [1, 2]


def writing_threads() -> list[str]:
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("tfrecord-io-write")]


def test_a_task_that_no_thread_could_be_started_for_waits_for_no_rows(tmp_path, monkeypatch):
    """A pool has taken the task on by then, and threads that are there begin it."""

    class Refused(feed.ThreadPoolExecutor):
        def submit(self, *arguments: Any, **named: Any) -> Any:
            super().submit(*arguments, **named)
            raise RuntimeError("can't start new thread")

    def call() -> None:
        try:
            write_table(TABLE, tmp_path / "t")
        except RuntimeError as error:
            found.append(str(error))

    monkeypatch.setattr(feed, "ThreadPoolExecutor", Refused)
    found: list[str] = []
    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(20)
    assert found == ["can't start new thread"]
    assert not writing_threads()
    assert [*tmp_path.iterdir()] == []


def test_an_interrupt_when_the_job_is_set_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = write_plan.replace

    def interrupt(job: Any, **changes: Any) -> Any:
        if "job_id" in changes:
            raise KeyboardInterrupt
        return undisturbed(job, **changes)

    monkeypatch.setattr(write_plan, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_table(TABLE, tmp_path / "new" / "t")
    assert [*tmp_path.iterdir()] == []


def test_an_interrupt_while_tasks_write_waits_for_their_end(tmp_path, monkeypatch):
    main = threading.main_thread()
    if threading.current_thread() is not main or main.ident is None:
        pytest.skip("only the main thread is interrupted")
    is_fed = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        is_fed.set()

    def interrupted(*arguments: Any, **named: Any) -> TaskCommit:
        commit = write_task(*arguments, **named)
        is_fed.wait(10)
        signal.pthread_kill(main.ident, signal.SIGINT)
        # So that who waits for no end is gone by then.
        time.sleep(0.3)
        return commit

    monkeypatch.setattr(feed, "write_task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_table(batches(), tmp_path / "t", schema=TABLE.schema)
    assert not writing_threads()
    assert [*tmp_path.iterdir()] == []
