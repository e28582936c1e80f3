"""All old or all new, whatever is killed, fails or races."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.support import faults
from tests.support.faults import NEW, OLD, Clock
from tests.support.folding import FoldingFiles
from tests.support.frames import examples, frame
from tests.support.trees import data_files, expected_files, tree
from tfrecord_io import convert, count_rows, read_table, verify
from tfrecord_io.commit import job as commit
from tfrecord_io.commit import publish, staging
from tfrecord_io.commit.job import abort_job, check_not_committing, clean, commit_job
from tfrecord_io.commit.ownership import Owner, owner_of
from tfrecord_io.commit.staging import Staging
from tfrecord_io.engines.local import write_table
from tfrecord_io.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DatasetExistsError,
    LayoutError,
    LimitExceededError,
    ManifestError,
    OptionError,
    SchemaMismatchError,
    TFRecordError,
)
from tfrecord_io.manifest import Manifest
from tfrecord_io.options import SaveMode
from tfrecord_io.plan import CleanResult, StreamBatch, WriteJob
from tfrecord_io.storage import LocalStorage
from tfrecord_io.writing import attempt
from tfrecord_io.writing import plan as write_plan
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

Tree = dict[str, bytes | None]
REPOSITORY = Path(__file__).parent.parent
STORAGE = LocalStorage()


def write_old(root: Path) -> None:
    write_table(OLD, root, partition_by="p", rows_per_task=2)


def write_new(root: Path, mode: SaveMode) -> None:
    write_table(NEW, root, mode=mode, partition_by="p", rows_per_task=2, threads=1)


def manifest(root: Path) -> Manifest:
    loaded = Manifest.loads((root / "_SUCCESS").read_bytes())
    assert loaded is not None
    return loaded


def cleaned(root: Path, *, dry_run: bool = False) -> CleanResult:
    """Clean what may not be there any more, or not yet."""
    try:
        return clean(root, dry_run=dry_run)
    except FileNotFoundError:
        return CleanResult()


OLD_FILES = expected_files(OLD.to_pylist(), ["p"], rows_per_task=2)
NEW_FILES = expected_files(NEW.to_pylist(), ["p"], rows_per_task=2)
APPENDED = {**OLD_FILES, **expected_files(NEW.to_pylist(), ["p"], rows_per_task=2, first_task=2)}
REPLACED = {p: d for p, d in OLD_FILES.items() if not p.startswith("p=2/")} | NEW_FILES
AFTER: dict[SaveMode, dict[str, bytes]] = {
    "overwrite": NEW_FILES,
    "append": APPENDED,
    "overwrite_partitions": REPLACED,
}
OLD_MODES: list[SaveMode] = ["overwrite", "append", "overwrite_partitions"]


@pytest.mark.parametrize("mode", OLD_MODES)
def test_modes(tmp_path: Path, mode: SaveMode) -> None:
    root = tmp_path / "ds"
    write_old(root)
    assert data_files(root) == OLD_FILES
    write_new(root, mode)
    assert data_files(root) == AFTER[mode]
    told = {file.path: file.bytes for file in manifest(root).files}
    assert told == {path: len(data) for path, data in AFTER[mode].items()}
    folders = {path for path, data in tree(root).items() if data is None}
    assert folders == {path.partition("/")[0] for path in AFTER[mode]}
    assert {*tree(root)} == {*AFTER[mode], *folders, "_SUCCESS"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["ds"]


def test_error_refuses_anything_that_is_there(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    before = tree(root)
    with pytest.raises(DatasetExistsError) as caught:
        write_new(root, "error")
    assert caught.value.path == str(root)
    assert tree(root) == before
    (tmp_path / "other").mkdir()
    write_new(tmp_path / "other", "error")
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / ".x").write_text("")
    with pytest.raises(DatasetExistsError):
        write_new(tmp_path / "junk", "error")
    assert tree(tmp_path / "junk") == {".x": b""}
    (tmp_path / "folders" / "empty").mkdir(parents=True)
    with pytest.raises(DatasetExistsError, match="already exists"):
        write_new(tmp_path / "folders", "error")
    assert tree(tmp_path / "folders") == {"empty": None}


def test_overwriting_removes_what_others_left(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden" / "spark_tfrecord" / "part_two_levels"
    root = tmp_path / "ds"
    shutil.copytree(golden, root)
    (root / "deep" / "empty").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path)
    write_new(root, "overwrite")
    assert data_files(root) == NEW_FILES
    assert {path for path, data in tree(root).items() if data is not None} == {
        *NEW_FILES,
        "_SUCCESS",
    }


@pytest.mark.parametrize("mode", OLD_MODES)
def test_nothing_is_changed_through_a_link(tmp_path: Path, mode: SaveMode) -> None:
    store, root = tmp_path / "store", tmp_path / "ds"
    write_table(OLD.drop(["p"]), store)
    write_old(root)
    shutil.rmtree(root / "p=1")
    # What is no partition, and one that is not written.
    (root / "p=2" / "link").symlink_to(store)
    (root / "p=1").symlink_to(store)
    outside, inside = tree(store), tree(root)
    rows = OLD.num_rows + OLD.filter(pc.field("p") != 1).num_rows
    assert count_rows(root) == rows + OLD.num_rows
    if mode == "overwrite":
        write_new(root, mode)
        assert data_files(root) == NEW_FILES
        assert not any(path.is_symlink() for path in root.rglob("*"))
    else:
        with pytest.raises(LayoutError):
            write_new(root, mode)
        assert tree(root) == inside
        (root / "p=1").unlink()
        write_new(root, mode)
        assert (root / "p=2" / "link").is_symlink() == (mode == "append")
    clean(root)
    assert tree(store) == outside


@pytest.mark.parametrize("act", [clean, lambda root: write_new(root, "append")])
def test_a_hidden_folder_that_is_a_link(tmp_path: Path, act: Any) -> None:
    root, outside = tmp_path / "ds", tmp_path / "outside"
    write_old(root)
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=False)
    (root / ".tfrecord-io").rename(outside)
    (outside / "old").mkdir()
    yesterday = time.time() - 25 * 60 * 60
    os.utime(outside / "old", (yesterday, yesterday))
    (root / ".tfrecord-io").symlink_to(outside)
    before = tree(tmp_path)
    with pytest.raises(LayoutError, match=r"is a link.*remove the link.*\.tfrecord-io\]"):
        act(root)
    assert tree(tmp_path) == before


#: What forged commits ask for: published, removed, and folders that go.
THROUGH_LINKS: list[tuple[list[list[str]], list[str], list[str]]] = [
    ([], ["link/victim"], []),
    ([], ["p=1/link/victim"], []),
    ([["staged", "link/new"]], [], []),
    ([["staged", "link/victim"]], [], []),
    ([["link/victim", "part-00009-000.tfrecord"]], [], []),
    ([], [], ["link/empty"]),
]


@pytest.mark.parametrize("act", [clean, *(partial(write_new, mode=mode) for mode in OLD_MODES)])
@pytest.mark.parametrize("asked", THROUGH_LINKS, ids=str)
def test_finishing_a_commit_goes_through_no_link(tmp_path: Path, asked: Any, act: Any) -> None:
    root, outside = tmp_path / "ds", tmp_path / "outside"
    write_old(root)
    (outside / "empty").mkdir(parents=True)
    (outside / "victim").write_text("not ours")
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=True)
    folder = root / ".tfrecord-io" / job_id(dead)
    (folder / "staged").write_text("forged")
    record = dict(zip(("publish", "remove", "remove_folders"), asked, strict=True))
    (folder / "commit.json").write_text(json.dumps(record))
    for place in (root, root / "p=1", folder):
        (place / "link").symlink_to(outside)
    before = tree(outside), data_files(root)
    with pytest.raises(LayoutError, match=r"through this link.*remove the link.*/link\]"):
        act(root)
    assert (tree(outside), data_files(root)) == before


@pytest.mark.parametrize("act", [clean, *(partial(write_new, mode=mode) for mode in OLD_MODES)])
@pytest.mark.parametrize("decided", [True, False])
def test_the_folder_of_a_dead_job_is_a_link(tmp_path: Path, decided: bool, act: Any) -> None:
    root, outside = tmp_path / "ds", tmp_path / "outside"
    write_old(root)
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=decided)
    folder = root / ".tfrecord-io" / job_id(dead)
    folder.rename(outside)
    folder.symlink_to(outside)
    before = tree(outside), data_files(root)
    with pytest.raises(LayoutError, match=r"is a link.*remove the link"):
        act(root)
    assert (tree(outside), data_files(root)) == before


def test_taking_back_goes_through_no_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "ds", tmp_path / "outside"
    write_old(root)
    (outside / "p=1").mkdir(parents=True)
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=False)
    text = (root / "_SUCCESS").read_text().replace("p=1/part", "link/p=1/part")
    (root / ".tfrecord-io" / job_id(dead) / "_SUCCESS").write_text(text)
    (root / "link").symlink_to(outside)
    clean(root)
    assert tree(outside) == {"p=1": None}
    assert not (root / ".tfrecord-io").exists()


@pytest.mark.parametrize(
    "path", ["a\0b/c", "a/b\0", "\ud800", "..", "/etc/x", "a//b", ".tfrecord-io/x"]
)
def test_no_path_of_a_commit_leaves_the_data_set(tmp_path: Path, path: str) -> None:
    root = tmp_path / "ds"
    write_old(root)
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=True)
    for record in (
        {"publish": [], "remove": [path], "remove_folders": []},
        {"publish": [], "remove": [], "remove_folders": [path]},
        {"publish": [["staged", path]], "remove": [], "remove_folders": []},
        {"publish": [[path, "part-00009-000.tfrecord"]], "remove": [], "remove_folders": []},
    ):
        (root / ".tfrecord-io" / job_id(dead) / "commit.json").write_text(json.dumps(record))
        with pytest.raises(CommitStateUnknownError, match="cannot be understood"):
            clean(root)
        assert data_files(root) == OLD_FILES


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
@pytest.mark.parametrize(
    "act", [read_table, clean, *(partial(write_new, mode=mode) for mode in OLD_MODES)]
)
def test_the_turn_is_no_file(tmp_path: Path, act: Any, make: Any) -> None:
    # Nobody is at the other end of the pipe: to wait for somebody would be to wait for ever.
    root = tmp_path / "ds"
    write_old(root)
    (root / ".tfrecord-io").mkdir()
    make(root / ".tfrecord-io" / "committing.json")
    with pytest.raises(CommitStateUnknownError, match="remove the file"):
        act(root)
    assert data_files(root) == OLD_FILES


@pytest.mark.parametrize("name", ["commit.json", "_SUCCESS"])
def test_pipes_in_the_folder_of_a_dead_job(tmp_path: Path, name: str) -> None:
    root = tmp_path / "ds"
    write_old(root)
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=False)
    folder = root / ".tfrecord-io" / job_id(dead)
    os.mkfifo(folder / name)
    if name == "commit.json":
        with pytest.raises(CommitStateUnknownError, match="a pipe"):
            clean(root)
    else:
        with pytest.raises(OptionError, match="a pipe"):
            clean(root)
    assert data_files(root) == OLD_FILES


def test_a_pipe_in_the_place_of_the_manifest(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    (root / "_SUCCESS").unlink()
    os.mkfifo(root / "_SUCCESS")
    for act in (read_table, partial(write_new, mode="append")):
        with pytest.raises(OptionError, match="a pipe"):
            act(root)
    assert data_files(root) == OLD_FILES


@pytest.mark.parametrize("act", [clean, *(partial(write_new, mode=mode) for mode in OLD_MODES)])
def test_a_file_in_the_place_of_the_hidden_folder(tmp_path: Path, act: Any) -> None:
    (tmp_path / ".tfrecord-io").write_text("mine")
    with pytest.raises(LayoutError, match=r"stands where the hidden folder.*\.tfrecord-io\]"):
        act(tmp_path)
    assert tree(tmp_path) == {".tfrecord-io": b"mine"}


def test_appending_to_a_data_set_of_spark(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden" / "spark_tfrecord" / "part_int"
    root = tmp_path / "ds"
    shutil.copytree(golden, root)
    old = data_files(root)
    new = pa.table({"v": ["x", "y", "z"], "p": pa.array([2, 2, 4], pa.int32())})
    write_table(new, root, mode="append", partition_by="p", rows_per_task=2)
    added = expected_files(new.to_pylist(), ["p"], rows_per_task=2, first_task=1)
    assert data_files(root) == {**old, **added}
    assert sorted(read_table(root)["v"].to_pylist()) == ["a", "b", "c", "d", "x", "y", "z"]
    assert [file.path for file in manifest(root).files] == sorted(added)
    assert not (root / "._SUCCESS.crc").exists()
    with pytest.raises(LayoutError, match="partitioned"):
        write_table(new, root, mode="append")


#: A record of TensorFlow's: v is 1.
ONE = examples({"v": 1})


def parquet(values: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": values}), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
@pytest.mark.parametrize(
    ("name", "data", "added", "told"),
    [
        ("p=1/a", ONE, {"v": ["x"], "p": [2]}, "Int64List"),
        ("p=1/a", ONE, {"v": pa.array([1], pa.float32()), "p": [2]}, "Int64List"),
        ("p=1/a", frame(b"\xff\xff"), {"v": [1], "p": [2]}, "not a valid Example"),
        ("p=1/a", b"no such file", {"v": [1], "p": [2]}, "not like TFRecord"),
        ("p=x/a", ONE, {"v": [1], "p": [2]}, "'x'"),
        ("p=1/a.parquet", parquet([1]), {"v": [1], "p": [2]}, "holds parquet files"),
        ("p=1/a", parquet([1]), {"v": [1], "p": [2]}, "holds parquet files"),
    ],
)
def test_files_of_others_beside_which_nothing_could_be_read(
    tmp_path: Path, mode: SaveMode, name: str, data: bytes, added: dict[str, Any], told: str
) -> None:
    root = tmp_path / "ds"
    (root / name).parent.mkdir(parents=True)
    (root / name).write_bytes(data)
    before = tree(tmp_path)
    with pytest.raises(SchemaMismatchError, match=told) as caught:
        write_table(pa.table(added), root, mode=mode, partition_by="p")
    assert str(root) in str(caught.value)
    assert tree(tmp_path) == before


def test_files_of_others_that_fit(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "more").write_bytes(examples({"v": 1, "w": b"x"}))
    write_table(pa.table({"v": [2], "x": [0.5]}), tmp_path, mode="append")
    rows = {"v": 1, "w": "x", "x": None}, {"v": 2, "w": None, "x": 0.5}
    found = read_table(tmp_path).select(["v", "w", "x"]).to_pylist()
    assert sorted(found, key=lambda row: row["v"]) == [*rows]


@pytest.mark.parametrize("t", [pa.int8(), pa.int32(), pa.uint64()])
def test_integers_beside_those_of_others(tmp_path: Path, t: pa.DataType) -> None:
    """Whatever follows in the files of others can be read, however small what is added."""
    large = -(2**40)
    rows = [{"v": 1, "w": [1, 2]}] * 150 + [{"v": large, "w": [large, 2]}]
    (tmp_path / "theirs").write_bytes(b"".join(examples(row) for row in rows))
    new = pa.table({"v": pa.array([7], t), "w": pa.array([[7, 8, 9]], pa.list_(t))})
    for _ in range(2):
        write_table(new, tmp_path, mode="append")
    back = read_table(tmp_path)
    assert back.schema.types == [pa.int64(), pa.list_(pa.int64())]
    assert sorted(back.to_pylist(), key=str) == sorted([*rows, *new.to_pylist() * 2], key=str)
    assert manifest(tmp_path).schema == back.schema


def test_larger_integers_of_others_at_first_sight(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(examples({"v": 1000}))
    write_table(pa.table({"v": pa.array([7], pa.int8())}), tmp_path, mode="append")
    assert sorted(read_table(tmp_path)["v"].to_pylist()) == [7, 1000]


def test_integers_that_take_the_place_of_those_of_others(tmp_path: Path) -> None:
    """Nothing of others is left, so the types are those of what is written."""
    (tmp_path / "p=1").mkdir()
    (tmp_path / "p=1" / "theirs").write_bytes(examples({"v": 1}))
    new = pa.table({"v": pa.array([7], pa.int8()), "p": pa.array([1], pa.int32())})
    write_table(new, tmp_path, mode="overwrite_partitions", partition_by="p")
    assert read_table(tmp_path).equals(new)


def test_tables_of_others(tmp_path: Path) -> None:
    """Of Parquet files a cast decides, as when they are read."""
    source, root = tmp_path / "source", tmp_path / "ds"
    root.mkdir()
    (root / "a.parquet").write_bytes(parquet([2**40]))
    write_table(pa.table({"v": [1]}), source)
    small = pa.schema([("v", pa.int32())])
    with pytest.raises(SchemaMismatchError, match=r"int64.*do not fit int32"):
        convert(source, root, to_format="parquet", mode="append", schema=small)
    with pytest.raises(SchemaMismatchError, match=r"holds parquet .* to be added are orc"):
        convert(source, root, to_format="orc", mode="append")
    assert [path.name for path in root.iterdir()] == ["a.parquet"]
    convert(source, root, to_format="parquet", mode="append")
    convert(root, tmp_path / "all")
    assert sorted(read_table(tmp_path / "all")["v"].to_pylist()) == [1, 2**40]


def test_replacing_partitions_that_are_spelled_otherwise(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_table(pa.table({"p": ["a b", "c"], "v": [1, 2]}), root, partition_by="p")
    (root / "p=a b").rename(root / "p=a%20b")
    (root / "p=a%20b" / ".part.crc").write_text("")
    new = pa.table({"p": ["a b"], "v": [9]})
    write_table(new, root, mode="overwrite_partitions", partition_by="p")
    assert {*data_files(root)} == {
        "p=a b/part-00000-000.tfrecord",
        "p=c/part-00000-000.tfrecord",
    }
    assert not (root / "p=a%20b").exists()


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("01", 1),
        ("1.50", Decimal("1.5")),
        ("1", 1.0),
        ("2026-01-02 00%3A00%3A00.0", dt.datetime(2026, 1, 2)),
        ("TRUE", True),
    ],
)
def test_replacing_partitions_of_the_same_value(tmp_path: Path, spelled: str, value: Any) -> None:
    """Which readers take for one partition."""
    root = tmp_path / "ds"
    new = pa.table({"p": [value], "v": [9]})
    write_table(new, root, partition_by="p")
    (root / "_SUCCESS").unlink()
    folder = next(root.glob("p=*"))
    folder.rename(root / f"p={spelled}")
    write_table(new, root, mode="overwrite_partitions", partition_by="p")
    assert [path.name for path in root.glob("p=*")] == [folder.name]
    assert read_table(root)["v"].to_pylist() == [9]


def test_texts_that_are_no_values_of_the_type_are_compared_as_texts(tmp_path: Path) -> None:
    write_table(pa.table({"p": [1], "v": [8]}), tmp_path, partition_by="p")
    for text, value in (("01", 1), ("x", 2)):
        (tmp_path / f"p={text}").mkdir()
        (tmp_path / f"p={text}" / "part-00000-000.tfrecord").write_bytes(examples({"v": value}))
    new = pa.table({"p": [1], "v": [9]})
    write_table(new, tmp_path, mode="overwrite_partitions", partition_by="p")
    assert sorted(path.name for path in tmp_path.glob("p=*")) == ["p=01", "p=1", "p=x"]


def changed_column(name: str, values: list[Any]) -> pa.Table:
    return NEW.set_column(NEW.schema.get_field_index(name), name, pa.array(values))


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
@pytest.mark.parametrize(
    ("table", "options", "error"),
    [
        (changed_column("v", ["x"] * 3), {}, SchemaMismatchError),
        (changed_column("p", ["x"] * 3), {}, SchemaMismatchError),
        (NEW.append_column("w", pa.array([1] * 3)), {}, SchemaMismatchError),
        (NEW, {"record_type": "SequenceExample"}, SchemaMismatchError),
        (NEW, {"partition_by": "v"}, LayoutError),
    ],
)
def test_what_does_not_fit_is_not_added(
    tmp_path: Path, mode: SaveMode, table: pa.Table, options: dict[str, Any], error: type[Exception]
) -> None:
    root = tmp_path / "ds"
    write_old(root)
    before = tree(root)
    with pytest.raises(error):
        write_table(table, root, mode=mode, **{"partition_by": "p", **options})
    assert tree(root) == before


def test_appending_in_other_dress_fits(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_table(pa.table({"s": ["a"]}), root)
    dressed = pa.table({"s": pa.array(["b"]).dictionary_encode()})
    write_table(dressed, root, mode="append", compression="gzip")
    assert {*data_files(root)} == {"part-00000-000.tfrecord", "part-00001-000.tfrecord.gz"}


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize(
    ("options", "error", "told", "place"),
    [
        (
            {"partition_by": "day"},
            LayoutError,
            "partitioned by 'v' and the data to be added by 'day'; partition them alike",
            "v=1/part-00000-000.tfrecord",
        ),
        (
            {},
            LayoutError,
            "partitioned by 'v' and the data to be added by nothing; partition them alike",
            "v=1/part-00000-000.tfrecord",
        ),
        (
            {"partition_by": "v", "record_type": "SequenceExample"},
            SchemaMismatchError,
            "holds Example and the data to be added are SequenceExample; write them elsewhere",
            "",
        ),
        (
            {"partition_by": "v", "columns": {"other": pa.array([1])}},
            SchemaMismatchError,
            "other columns than the data set: it has n: int64, they have other: int64; cast",
            "",
        ),
    ],
)
def test_what_cannot_be_appended_is_told_with_its_place(
    tmp_path: Path,
    options: dict[str, Any],
    error: type[TFRecordError],
    told: str,
    place: str,
    is_empty: bool,
) -> None:
    root = tmp_path / "ds"
    table = SMALL.append_column("n", pa.array([1]))
    write_table(table.slice(0, 0 if is_empty else None), root, partition_by="v")
    before = tree(tmp_path)
    options = dict(options)
    for name, column in options.pop("columns", {}).items():
        table = table.drop_columns(["n"]).append_column(name, column)
    with pytest.raises(error, match=re.escape(told)) as caught:
        write_table(table, root, mode="append", **options)
    assert caught.value.path == str(root if is_empty else root / place)
    assert tree(tmp_path) == before


def test_folders_that_are_one_to_the_file_system() -> None:
    """One file would take the other's place, or rows of "a" be read as rows of "A"."""
    fsspec.register_implementation("folding", FoldingFiles, clobber=True)
    table = pa.table({"x": [1, 2, 3], "p": ["A", "a", "B"], "q": ["Ä", "b", "b"]})
    url = f"folding:///{uuid.uuid4().hex}"
    with pytest.raises(LayoutError, match="takes it for 'p=A', so its rows") as caught:
        write_table(table, f"{url}/new", partition_by=["p", "q"])
    assert caught.value.path == f"{url}/new/p=a"
    files = fsspec.filesystem("folding")
    assert files.find(url, withdirs=True) == []

    write_table(table.slice(0, 1), f"{url}/ds", partition_by=["p", "q"])
    before = read_table(f"{url}/ds")
    modes: list[SaveMode] = ["append", "overwrite", "overwrite_partitions"]
    for mode in modes:
        with pytest.raises(LayoutError, match=r"ds/p=a\]$"):
            write_table(table.slice(1), f"{url}/ds", partition_by=["p", "q"], mode=mode)
    other = table.slice(0, 1).set_column(2, "q", pa.array(["a\u0308"]))
    with pytest.raises(LayoutError, match=r"does not keep the name.* for 'q=Ä', so"):
        write_table(other, f"{url}/ds", partition_by=["p", "q"], mode="append")
    assert read_table(f"{url}/ds") == before
    write_table(table.slice(2), f"{url}/ds", partition_by=["p", "q"], mode="append")
    assert read_table(f"{url}/ds") == pa.concat_tables([before, table.slice(2)])


def test_names_that_are_no_partitions_stay(tmp_path: Path) -> None:
    write_old(tmp_path)
    (tmp_path / "=b").mkdir()
    (tmp_path / "=b" / "_log").write_bytes(b"of others")
    write_new(tmp_path, "overwrite_partitions")
    assert (tmp_path / "=b" / "_log").read_bytes() == b"of others"
    (tmp_path / "=b" / "_log").rename(tmp_path / "=b" / "log")
    before = tree(tmp_path)
    with pytest.raises(LayoutError, match="'=b' names a partition column without a name") as caught:
        write_new(tmp_path, "overwrite_partitions")
    assert caught.value.path == str(tmp_path / "=b")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("nulls", "t", "value"),
    [
        (pa.null(), pa.int64(), 1),
        (pa.null(), pa.timestamp("us"), dt.datetime(2026, 1, 2)),
        (pa.null(), pa.list_(pa.string()), ["a"]),
        (pa.null(), pa.list_(pa.float32(), 2), [1.0, 2.0]),
        (pa.null(), pa.list_(pa.list_(pa.int64())), [[1], []]),
        (pa.list_(pa.null()), pa.list_(pa.int64()), [1, 2]),
        (pa.null(), pa.list_(pa.null()), None),
    ],
)
def test_a_column_of_nulls_goes_with_any_type(
    tmp_path: Path, nulls: pa.DataType, t: pa.DataType, value: Any
) -> None:
    without = pa.table({"x": pa.array([None, None], nulls), "n": [1, 2]})
    typed = pa.table({"x": pa.array([value], t), "n": [3]})
    for tables in ((without, typed, without), (typed, without)):
        root = tmp_path / str(len(tables))
        for table in tables:
            write_table(table, root, mode="append", record_type="SequenceExample")
        back = read_table(root, record_type="SequenceExample")
        assert back.schema == typed.schema
        rows = [row for table in tables for row in table["x"].to_pylist()]
        assert back["x"].to_pylist() == rows
    with pytest.raises(SchemaMismatchError, match="x: bool"):
        table = pa.table({"x": [True], "n": [1]})
        write_table(table, root, mode="append", record_type="SequenceExample")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (pa.int64(), pa.int8()),
        (pa.int64(), pa.uint64()),
        (pa.int32(), pa.int32()),
        (pa.int16(), pa.uint8()),
        (pa.uint32(), pa.uint16()),
    ],
)
def test_integers_go_with_a_type_that_has_room_for_them(
    tmp_path: Path, wide: pa.DataType, narrow: pa.DataType
) -> None:
    old, new = (
        pa.table({"v": pa.array([1], t), "w": pa.array([[2]], pa.list_(t)), "p": pa.array([3], t)})
        for t in (wide, narrow)
    )
    for table in (old, new):
        write_table(table, tmp_path, mode="append", partition_by="p")
    back = read_table(tmp_path)
    assert back.schema == old.schema
    assert back.to_pylist() == old.to_pylist() * 2


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int32(), pa.int64()),
        (pa.uint64(), pa.int8()),
        (pa.uint16(), pa.int16()),
        (pa.int16(), pa.uint16()),
        (pa.int64(), pa.float64()),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.list_(pa.int64(), 1), pa.list_(pa.int64())),
    ],
)
def test_integers_that_the_data_set_has_no_room_for(
    tmp_path: Path, narrow: pa.DataType, wide: pa.DataType
) -> None:
    write_table(pa.table({"v": pa.array([None], narrow)}), tmp_path)
    before = tree(tmp_path)
    with pytest.raises(SchemaMismatchError, match=re.escape(f"they have v: {wide}")):
        write_table(pa.table({"v": pa.array([None], wide)}), tmp_path, mode="append")
    assert tree(tmp_path) == before


SMALL = pa.table({"v": pa.array([1], pa.int16()), "day": [dt.date(2026, 1, 1)]})
OTHERS = {
    "int64": pa.array([1]),
    "date": pa.array([1], pa.int16()).cast(pa.int32()).cast(pa.date32()),
    "text": pa.array(["1"]),
}


def in_folder(p: int, root: Path, **columns: pa.Array) -> None:
    table = SMALL.drop_columns([*columns])
    for name, column in columns.items():
        table = table.append_column(name, column)
    write_table(table, root / f"p={p}", mode="append")


def test_what_is_added_to_a_partition_folder_keeps_the_types_of_the_data_set(
    tmp_path: Path,
) -> None:
    whole = SMALL.append_column("p", pa.array([1], pa.int8()))
    write_table(whole, tmp_path, partition_by="p")
    for _ in range(2):
        in_folder(1, tmp_path)
        write_table(whole, tmp_path, partition_by="p", mode="append")
    assert read_table(tmp_path).equals(pa.concat_tables([whole] * 5).combine_chunks())
    assert read_table(tmp_path / "p=1").equals(pa.concat_tables([SMALL] * 5).combine_chunks())
    assert verify(tmp_path).is_sound
    write_table(
        whole.set_column(2, "p", pa.array([2], pa.int8())),
        tmp_path,
        mode="append",
        partition_by="p",
    )
    before = tree(tmp_path)
    for other in OTHERS.values():
        for folder in (2, 3):
            with pytest.raises(SchemaMismatchError, match="it has v: int16, they have") as caught:
                in_folder(folder, tmp_path, v=other)
            assert caught.value.path == str(tmp_path)
    assert tree(tmp_path) == before


def test_what_is_added_above_partition_folders_keeps_their_types(tmp_path: Path) -> None:
    in_folder(1, tmp_path)
    in_folder(2, tmp_path)
    whole = SMALL.append_column("p", pa.array([3], pa.int32()))
    before = tree(tmp_path)
    for name, other in OTHERS.items():
        with pytest.raises(SchemaMismatchError, match="other columns than the data set") as caught:
            write_table(whole.set_column(0, "v", other), tmp_path, mode="append", partition_by="p")
        assert str(caught.value.path).startswith(str(tmp_path / "p=")), name
    with pytest.raises(LayoutError, match="partitioned by 'p'"):
        write_table(whole.rename_columns(["v", "day", "q"]), tmp_path, mode="append")
    assert tree(tmp_path) == before
    write_table(whole, tmp_path, mode="append", partition_by="p")
    back = read_table(tmp_path)
    assert back.schema == whole.schema
    assert back["p"].to_pylist() == [1, 2, 3]
    assert verify(tmp_path).is_sound
    write_table(whole, tmp_path, mode="overwrite_partitions", partition_by="p")
    assert read_table(tmp_path).equals(back)


def test_integers_beside_files_that_no_manifest_describes_are_read_together(
    tmp_path: Path,
) -> None:
    in_folder(1, tmp_path)
    in_folder(2, tmp_path)
    (tmp_path / "p=2" / "_SUCCESS").unlink()
    whole = SMALL.append_column("p", pa.array([3], pa.int32()))
    write_table(whole, tmp_path, mode="append", partition_by="p")
    back = read_table(tmp_path)
    assert back.schema.field("v").type == pa.int64()
    assert back.cast(whole.schema)["v"].to_pylist() == [1, 1, 1]


def test_steps_of_nulls_go_with_any_type(tmp_path: Path) -> None:
    steps = pa.list_(pa.list_(pa.null()))
    rows = [[[None], [], None], [[[1, 2], []]]]
    for values, t in zip(rows, (steps, pa.list_(pa.list_(pa.int64()))), strict=True):
        table = pa.table({"x": pa.array(values, t)})
        write_table(table, tmp_path, mode="append", record_type="SequenceExample")
    back = read_table(tmp_path, record_type="SequenceExample")
    assert back["x"].to_pylist() == [row for values in rows for row in values]


def test_a_list_of_nulls_does_not_go_with_single_values(tmp_path: Path) -> None:
    write_table(pa.table({"x": pa.array([None], pa.list_(pa.null()))}), tmp_path)
    with pytest.raises(SchemaMismatchError, match=r"list<item: null>.*x: int64"):
        write_table(pa.table({"x": [1]}), tmp_path, mode="append")


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_partitions_of_nulls_go_with_any_type(tmp_path: Path, mode: SaveMode) -> None:
    nulls = pa.table({"v": [1], "p": pa.nulls(1), "q": pa.array(["x"])})
    typed = pa.table({"v": [2], "p": [7], "q": pa.array(["x"])})
    for table in (nulls, typed, nulls):
        write_table(table, tmp_path, mode=mode, partition_by=["p", "q"])
    back = read_table(tmp_path)
    assert back.schema == typed.schema
    expected = [(1, None), (1, None), (2, 7)] if mode == "append" else [(1, None), (2, 7)]
    found = zip(back["v"].to_pylist(), back["p"].to_pylist(), strict=True)
    assert sorted(found, key=repr) == expected


@pytest.mark.parametrize(
    "text", ["{", "\xff", "[]", "null", "[" * 60_000, '{"job_id": 1}', '{"owner": {"host": 1}}']
)
def test_whose_turn_it_is_may_be_unreadable(tmp_path: Path, text: str) -> None:
    write_old(tmp_path)
    (tmp_path / ".tfrecord-io").mkdir()
    (tmp_path / ".tfrecord-io" / "committing.json").write_text(text, encoding="latin-1")
    before = tree(tmp_path)
    for call in (read_table, partial(write_new, mode="append"), partial(clean, stale_after=0)):
        with pytest.raises(CommitStateUnknownError, match="which job commits cannot be") as caught:
            call(tmp_path)
        assert caught.value.path == str(tmp_path / ".tfrecord-io" / "committing.json")
    assert tree(tmp_path) == before


def test_nothing_is_forgotten_without_a_manifest(tmp_path: Path) -> None:
    assert clean(tmp_path, forget_missing=True) == CleanResult()
    write_old(tmp_path)
    (tmp_path / "_SUCCESS").write_bytes(b"")
    before = tree(tmp_path)
    assert clean(tmp_path, forget_missing=True) == CleanResult()
    assert tree(tmp_path) == before


def test_a_damaged_manifest_stops_appending_but_not_overwriting(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    text = (root / "_SUCCESS").read_bytes()
    (root / "_SUCCESS").write_bytes(text[:100])
    with pytest.raises(ManifestError, match="_SUCCESS"):
        write_new(root, "append")
    write_new(root, "overwrite")
    assert data_files(root) == NEW_FILES


def test_files_that_changed_stay_in_the_manifest(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    (root / "p=1" / "part-00000-000.tfrecord").unlink()
    (root / "p=2" / "part-00001-000.tfrecord").write_bytes(b"other")
    write_new(root, "append")
    assert {file.path for file in manifest(root).files} == {*APPENDED}


def test_overwriting_the_data_set_that_is_read(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    seen = []

    def source() -> Iterator[pa.Table]:
        seen.append(data_files(root))
        yield NEW
        seen.append(data_files(root))

    write_table(source(), root, mode="overwrite", partition_by="p", rows_per_task=2)
    assert seen == [OLD_FILES, OLD_FILES]
    assert data_files(root) == NEW_FILES


# --- kills ----------------------------------------------------------------------------------------


def kill_at_every_step(work: str, mode: SaveMode, targets: Path) -> list[Path]:
    """Kill a process at each step of `work`; return the folders, the last of one not killed."""
    command = [sys.executable, "-m", "tests.support.faults", work, mode, str(targets)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (targets / "template").rename(targets.with_suffix(".template"))
    return sorted(targets.iterdir(), key=lambda path: int(path.name))


@pytest.mark.parametrize("mode", ["error", *OLD_MODES])
def test_killed_writers(tmp_path: Path, mode: SaveMode) -> None:
    template = tmp_path / "targets" / "template"
    template.mkdir(parents=True)
    (template / "neighbour").write_text("x")
    if mode != "error":
        write_old(template / "ds")
    old = tree(template)
    shutil.copytree(template, tmp_path / "after")
    write_new(tmp_path / "after" / "ds", mode)
    new = tree(tmp_path / "after")

    bases = kill_at_every_step("write", mode, tmp_path / "targets")
    assert len(bases) > 50
    outcomes = []
    for base in bases:
        root = base / "ds"
        records = list(root.glob(".tfrecord-io/*/commit.json"))
        turn = root / ".tfrecord-io" / "committing.json"
        if records and turn.exists():
            with pytest.raises(CommitConflictError, match="tfrecord-io clean"):
                check_not_committing(STORAGE, str(root))
        elif not records and data_files(root) != data_files(base.parent / bases[-1] / "ds"):
            assert data_files(root) == data_files(tmp_path / "targets.template" / "ds")
            check_not_committing(STORAGE, str(root))
        before = tree(base)
        planned = cleaned(root, dry_run=True)
        assert tree(base) == before
        done = cleaned(root)
        assert done == planned
        assert not done.running
        # Killed between the calls that make the target and the hidden folder: an empty target.
        assert tree(base) in (old, new, {**old, "ds": None})
        outcomes.append(tree(base) == new)
        assert cleaned(root) == CleanResult()
    # Once decided, always decided.
    assert outcomes == sorted(outcomes)
    assert {*outcomes} == {False, True}


def test_killed_recoveries(tmp_path: Path) -> None:
    start = tmp_path / "start" / "template"
    start.mkdir(parents=True)
    write_old(start / "ds")
    bases = kill_at_every_step("write", "overwrite", tmp_path / "start")
    shutil.copytree(tmp_path / "start.template", tmp_path / "after")
    write_new(tmp_path / "after" / "ds", "overwrite")
    new = tree(tmp_path / "after")
    decided = [base for base in bases if list(base.glob("ds/.tfrecord-io/*/commit.json"))]
    for number, base in enumerate([decided[0], decided[len(decided) // 2]]):
        targets = tmp_path / f"again{number}"
        shutil.copytree(base, targets / "template", symlinks=True)
        for again in kill_at_every_step("clean", "overwrite", targets):
            clean(again / "ds")
            assert tree(again) == new


def test_the_next_write_finishes_or_removes_what_was_killed(tmp_path: Path) -> None:
    template = tmp_path / "targets" / "template"
    template.mkdir(parents=True)
    write_old(template / "ds")
    bases = kill_at_every_step("write", "overwrite", tmp_path / "targets")
    for base in bases[:: len(bases) // 20]:
        write_new(base / "ds", "overwrite")
        assert data_files(base / "ds") == NEW_FILES
        assert not (base / "ds" / ".tfrecord-io").exists()


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stays_full", [False, True])
@pytest.mark.parametrize("mode", ["error", *OLD_MODES])
def test_full_disks(
    tmp_path: Path, mode: SaveMode, stays_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, after = tmp_path / "template", tmp_path / "after"
    template.mkdir()
    if mode != "error":
        write_old(template / "ds")
    old = tree(template)
    shutil.copytree(template, after)
    write_new(after / "ds", mode)
    new = tree(after)
    outcomes = []
    for step in range(10_000):
        base = tmp_path / str(step)
        shutil.copytree(template, base)
        clock = Clock(step, faults.full_disk, goes_on=stays_full)
        with monkeypatch.context() as patch:
            for module in (attempt, commit, write_plan):
                patch.setattr(module, "open_storage", faults.opener(clock))
            try:
                write_new(base / "ds", mode)
                outcome = "new"
            except CommitStateUnknownError:
                outcome = "unfinished"
            except OSError as error:
                assert error.errno == errno.ENOSPC
                outcome = "old"
        if outcome == "unfinished":
            assert len(clean(base / "ds").finished) == 1
        assert tree(base) == (old if outcome == "old" else new)
        outcomes.append(outcome)
        if clock.count <= step:
            break
    decided = [outcome != "old" for outcome in outcomes]
    assert decided == sorted(decided)
    assert decided.count(False) > 20
    assert ("unfinished" in outcomes) == stays_full


def rename_no_data(storage: LocalStorage, source: str, target: str) -> None:
    if "/claim-" not in source:
        faults.full_disk()
    Path(source).replace(target)


def test_a_disk_that_stays_full_while_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "ds"
    write_old(root)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "rename", rename_no_data)
        with pytest.raises(CommitStateUnknownError, match="No space left"):
            write_new(root, "overwrite")
        with pytest.raises(CommitStateUnknownError, match="No space left"):
            write_new(root, "append")
    with pytest.raises(CommitConflictError, match="clean"):
        check_not_committing(STORAGE, str(root))
    assert len(clean(root).finished) == 1
    assert data_files(root) == NEW_FILES


def test_a_store_that_does_not_tell_whether_it_has_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "ds"
    write_old(root)
    create = LocalStorage.create_exclusive
    is_gone = False

    def lose_answer(storage: LocalStorage, path: str, data: bytes, scratch: str) -> bool:
        nonlocal is_gone
        assert create(storage, path, data, scratch)
        if path.endswith("/commit.json"):
            is_gone = True
            raise TimeoutError(errno.ETIMEDOUT, "the answer did not come")
        return True

    def exists(storage: LocalStorage, path: str) -> bool:
        if is_gone:
            raise TimeoutError(errno.ETIMEDOUT, "the answer did not come")
        return Path(path).exists()

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create_exclusive", lose_answer)
        patch.setattr(LocalStorage, "exists", exists)
        with pytest.raises(CommitStateUnknownError, match="may be committed"):
            write_new(root, "overwrite")
    assert len(clean(root).finished) == 1
    assert data_files(root) == NEW_FILES


@pytest.mark.parametrize("step", ["create_exclusive", "publish"])
def test_a_commit_is_finished_by_the_process_that_lost_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As where credentials expire: the store does not even take the mark that it was given up."""
    root = tmp_path / "ds"
    write_old(root)

    def expired(*args: object) -> Any:
        raise PermissionError(errno.EACCES, "the token has expired")

    undisturbed = getattr(LocalStorage, step)
    with monkeypatch.context() as patch:

        def expire(storage: LocalStorage, *args: Any) -> Any:
            done = undisturbed(storage, *args)
            if step == "publish" or args[0].endswith("/commit.json"):
                for name in ("exists", "rename", "read_bytes", "release", "remove_tree", step):
                    patch.setattr(LocalStorage, name, expired)
                raise PermissionError(errno.EACCES, "the token has expired")
            return done

        patch.setattr(LocalStorage, step, expire)
        with pytest.raises(CommitStateUnknownError, match=r"has expired.*finishes it"):
            write_new(root, "overwrite")
    with pytest.raises(CommitConflictError, match="cut off"):
        check_not_committing(STORAGE, str(root))
    monkeypatch.setattr(staging, "TURN_SECONDS", 0.0)
    write_new(root, "append")
    assert data_files(root).keys() > NEW_FILES.keys()
    assert clean(root) == CleanResult()


@pytest.mark.parametrize("method", ["exists", "remove_tree"])
def test_what_a_failing_abort_left_goes_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    root = tmp_path / "ds"

    def batches() -> Iterator[pa.RecordBatch]:
        yield from NEW.to_batches()
        raise ValueError("the source broke off")

    def expired(*args: object) -> None:
        raise PermissionError(errno.EACCES, "the token has expired")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, method, expired)
        with pytest.raises(ValueError, match="broke off"):
            write_table(batches(), root, schema=NEW.schema, partition_by="p")
    assert tree(root)
    write_new(root, "error")
    assert data_files(root) == NEW_FILES
    assert clean(root) == CleanResult()


def test_a_turn_that_somebody_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "ds"
    write_old(root)
    before = tree(root)
    create = LocalStorage.create_exclusive

    def remove_turn(self: LocalStorage, path: str, data: bytes, scratch: str) -> bool:
        if path.endswith("/commit.json"):
            (root / ".tfrecord-io" / "committing.json").unlink()
        return create(self, path, data, scratch)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create_exclusive", remove_turn)
        with pytest.raises(CommitStateUnknownError, match="nothing was published"):
            write_new(root, "overwrite")
    # Folders are taken back during a turn only.
    assert tree(root) == {**before, "p=4": None}


def test_aborting_a_job_whose_turn_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "ds"
    write_old(root)
    before = tree(root)
    job, commits = staged(root, "overwrite")

    def refuse(*args: object) -> None:
        raise PermissionError(errno.EACCES, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "write_bytes", refuse)
        patch.setattr(Staging, "leave_turn", refuse)
        with pytest.raises(PermissionError, match="not now"):
            commit_job(job, commits)
    abort_job(job, commits)
    assert tree(root) == before


def test_aborting_a_decided_job_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "ds"
    job = plan_write(NEW.schema, root, partition_by="p")
    commits = [write_task(job, 0, NEW.to_batches())]
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "rename", rename_no_data)
        with pytest.raises(CommitStateUnknownError):
            commit_job(job, commits)
    abort_job(job, commits)
    clean(root)
    assert data_files(root) == expected_files(NEW.to_pylist(), ["p"])


@pytest.mark.parametrize("method", ["publish", "release", "remove_tree", "remove_folder"])
def test_an_interrupt_while_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What is decided is done before the interrupt is raised."""
    root = tmp_path / "ds"
    write_old(root)
    undisturbed = getattr(LocalStorage, method)
    left = 1

    def interrupt(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return undisturbed(*args)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, method, interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_new(root, "overwrite")
    assert {*data_files(root)} == {*NEW_FILES}
    assert [*root.glob(".*")] == []


@pytest.mark.parametrize(("which", "expected"), [(1, "old"), (2, "old"), (3, "new")])
def test_an_interrupt_behind_claim_turn_or_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, expected: str
) -> None:
    """What is decided is done, also if the interrupt comes before the writer knows that it is."""
    root = tmp_path / "ds"
    write_old(root)
    old = {*data_files(root)}
    undisturbed = LocalStorage.create_exclusive
    calls = 0

    def interrupt(*args: Any) -> bool:
        nonlocal calls
        calls += 1
        done = undisturbed(*args)
        if calls == which:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create_exclusive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_new(root, "overwrite")
    assert {*data_files(root)} == (old if expected == "old" else {*NEW_FILES})
    assert [*root.glob(".*")] == []


def test_an_interrupt_before_the_commit_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commit, "_check_is_staged", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_new(tmp_path / "ds", "error")
    assert [*tmp_path.iterdir()] == []


def test_two_interrupts_while_publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "ds"
    write_old(root)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "publish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_new(root, "overwrite")
    write_new(root, "append")
    assert {*data_files(root)} == {
        *NEW_FILES,
        *expected_files(NEW.to_pylist(), ["p"], rows_per_task=2, first_task=2),
    }


def test_committing_twice_or_after_an_abort(tmp_path: Path) -> None:
    job = plan_write(NEW.schema, tmp_path / "ds", partition_by="p")
    commits = [write_task(job, 0, NEW.to_batches())]
    commit_job(job, commits)
    before = tree(tmp_path)
    with pytest.raises(CommitStateUnknownError, match="committed or aborted"):
        commit_job(job, commits)
    abort_job(job)
    assert tree(tmp_path) == before


def test_a_batch_of_a_stream_is_published_once(tmp_path: Path) -> None:
    root = tmp_path / "ds"

    def commit_batch(stream: str, number: int) -> int:
        job = plan_write(NEW.schema, root, partition_by="p", mode="append")
        commits = [write_task(job, 0, NEW.to_batches())]
        batch = StreamBatch(stream=stream, number=number)
        return commit_job(replace(job, batch=batch), commits).rows

    assert [commit_batch("a", 0), commit_batch("a", 0)] == [3, 0]
    assert [commit_batch("b", 0), commit_batch("a", 1), commit_batch("a", 0)] == [3, 3, 0]
    assert manifest(root).streams == {"a": 1, "b": 0}
    # Who appends otherwise leaves it as it is; a data set that replaces another begins anew.
    write_new(root, "append")
    before = tree(tmp_path)
    assert commit_batch("a", 1) == 0
    assert tree(tmp_path) == before
    write_new(root, "overwrite")
    assert manifest(root).streams == {}


def test_things_in_the_way(tmp_path: Path) -> None:
    root, outside = tmp_path / "ds", tmp_path / "outside"
    outside.mkdir()
    root.mkdir()
    (root / "p=2").symlink_to(outside)
    before = tree(tmp_path)
    for mode in OLD_MODES:
        with pytest.raises(LayoutError, match=r"a partition folder would|link where a folder"):
            write_new(root, mode)
        assert tree(tmp_path) == before
    (root / "p=2").unlink()
    (root / "p=4" / "part-00001-000.tfrecord").mkdir(parents=True)
    with pytest.raises(LayoutError, match="folder stands"):
        write_new(root, "overwrite")
    assert list(tree(root)) == ["p=4", "p=4/part-00001-000.tfrecord"]


@pytest.mark.parametrize("room", [0, 1, 23, 24, 25, 200])
def test_paths_that_are_too_long(tmp_path: Path, room: int) -> None:
    """So long that folders have no room, or only their files, or both have it."""
    root, longest = tmp_path / "ds", os.pathconf("/", "PC_PATH_MAX") - 1
    write_old(root)
    before = tree(root)
    length = longest - room - len(str(root))
    rest = length % 200 + 200
    lengths = [200] * (length // 200 - 1) + [rest // 2, rest - rest // 2]
    values = {f"p{n:02}": "v" * (size - len("/p00=")) for n, size in enumerate(lengths)}
    table = pa.table({"v": [1], **{name: [value] for name, value in values.items()}})

    def write() -> None:
        write_table(table, root, partition_by=[*values], mode="overwrite")

    if room < len("/part-00000-000.tfrecord"):
        with pytest.raises(LayoutError, match=f"no more than {longest} is possible; partition by"):
            write()
        assert tree(root) == before
    else:
        write()
        assert read_table(root).to_pylist() == table.to_pylist()


def test_a_folder_in_the_place_of_the_manifest(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    (root / "_SUCCESS").unlink()
    (root / "_SUCCESS").mkdir()
    before = tree(root)
    for mode in OLD_MODES:
        with pytest.raises(LayoutError, match="folder stands where a file is to be") as caught:
            write_new(root, mode)
        assert caught.value.path == str(root / "_SUCCESS")
        assert tree(root) == before


def test_a_manifest_that_nobody_would_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "ds"
    write_old(root)
    before = tree(root)
    size = len(before["_SUCCESS"] or b"")
    monkeypatch.setattr(publish, "MAX_MANIFEST_BYTES", size)
    for mode in OLD_MODES[1:]:
        with pytest.raises(LimitExceededError, match=f"readers take {size} at most; write fewer"):
            write_new(root, mode)
        assert tree(root) == before
    write_new(root, "overwrite")
    assert data_files(root) == NEW_FILES


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Take the rights of a user who owns nothing, where that is possible."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which everybody may write, with a data set of somebody's in it."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "ds"
        write_old(root)
        for folder in (root.parent, root, *root.glob("p=*")):
            folder.chmod(0o777)
        yield root


@pytest.mark.parametrize("mode", OLD_MODES)
def test_a_folder_that_may_not_be_changed(shared: Path, mode: SaveMode) -> None:
    (shared / "p=2").chmod(0o555)
    before = tree(shared)
    with as_nobody():
        with pytest.raises(PermissionError, match="nothing was changed") as caught:
            write_new(shared, mode)
        assert caught.value.filename == str(shared / "p=2")
        assert tree(shared) == before
        assert read_table(shared).num_rows == OLD.num_rows
    (shared / "p=2").chmod(0o777)
    with as_nobody():
        write_new(shared, mode)
    assert data_files(shared) == AFTER[mode]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("sticky", "mode", "named"),
    [
        ("p=2", "overwrite", "p=2/part-00001-000.tfrecord"),
        ("p=2", "overwrite_partitions", "p=2/part-00001-000.tfrecord"),
        (".", "append", "_SUCCESS"),
    ],
)
def test_sticky_folders(shared: Path, sticky: str, mode: SaveMode, named: str) -> None:
    """Of a folder as /tmp is one, only its owner and that of a file may remove the file."""
    (shared / sticky).chmod(0o1777)
    before = tree(shared)
    with as_nobody(), pytest.raises(PermissionError, match="nothing was changed") as caught:
        write_new(shared, mode)
    assert caught.value.filename == str(shared / named)
    assert tree(shared) == before
    os.chown(shared / named, 65534, 65534)
    with as_nobody():
        write_new(shared, mode)
    assert data_files(shared) == AFTER[mode]


MOUNTED = """
import subprocess, sys
from pathlib import Path
from tests.test_commit import tree, write_new
root, mode, *mount = sys.argv[1:]
subprocess.run(["mount", *mount], check=True)
before = tree(Path(root))
try:
    write_new(Path(root), mode)
except OSError as error:
    print(error.errno, error.filename, tree(Path(root)) == before)
"""

may_mount = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode != 0,
    reason="only where one may mount",
)


def write_beside_mount(root: Path, mode: SaveMode, *mount: str) -> str:
    """Write to a data set when something is mounted, for that process alone."""
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", MOUNTED, root, mode, *mount],
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout


@may_mount
@pytest.mark.parametrize("what", [("-t", "tmpfs", "tmpfs"), ("--bind", "p=1")])
@pytest.mark.parametrize("mode", OLD_MODES)
def test_a_partition_folder_that_something_is_mounted_on(
    tmp_path: Path, mode: SaveMode, what: tuple[str, ...]
) -> None:
    """No file can be renamed to there, which once showed when the commit was decided."""
    write_old(tmp_path)
    *options, source = what
    place = str(tmp_path / "p=2")
    told = write_beside_mount(tmp_path, mode, *options, f"{tmp_path}/{source}", place)
    assert told == f"{errno.EXDEV} {place} True\n"
    assert read_table(tmp_path).num_rows == OLD.num_rows


@may_mount
def test_a_folder_that_is_empty_and_cannot_be_removed(tmp_path: Path) -> None:
    write_old(tmp_path)
    (tmp_path / "sub").mkdir()
    told = write_beside_mount(tmp_path, "overwrite", "-t", "tmpfs", "tmpfs", str(tmp_path / "sub"))
    assert told == ""
    (tmp_path / "sub").rmdir()
    assert data_files(tmp_path) == AFTER["overwrite"]
    assert not (tmp_path / ".tfrecord-io").exists()


# --- several jobs ---------------------------------------------------------------------------------


def run_together(script: str, *places: Path) -> list[subprocess.CompletedProcess[str]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(place), str(number)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, place in enumerate(places)
    ]
    done = []
    for process in started:
        out, err = process.communicate(timeout=120)
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


RACE = """
import sys
import pyarrow as pa
from tfrecord_io.engines.local import write_table
for turn in range(10):
    write_table(pa.table({"v": [int(sys.argv[2]) * 100 + turn]}), sys.argv[1], mode="append")
"""


def test_racing_appends_are_all_kept(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    for done in run_together(RACE, *[root] * 3):
        assert done.returncode == 0, done.stderr
    expected = {
        data
        for number in range(3)
        for turn in range(10)
        for data in expected_files([{"v": number * 100 + turn}]).values()
    }
    found = data_files(root)
    assert {*found.values()} == expected
    assert sorted(found) == [f"part-{number:05d}-000.tfrecord" for number in range(30)]
    assert {file.path for file in manifest(root).files} == {*found}
    assert {*tree(root)} == {*found, "_SUCCESS"}


def staged(root: Path, mode: SaveMode, table: pa.Table = NEW) -> tuple[WriteJob, list[Any]]:
    job = plan_write(table.schema, root, mode=mode, partition_by="p")
    return job, [write_task(job, 0, table.to_batches())]


def test_jobs_that_overlap(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    first, second = staged(root, "error"), staged(root, "error", OLD)
    third = staged(root, "ignore", OLD)
    commit_job(*first)
    before = data_files(root)
    with pytest.raises(DatasetExistsError, match="another job"):
        commit_job(*second)
    assert commit_job(*third).files == 0
    assert data_files(root) == before
    assert not (root / ".tfrecord-io").exists()


def test_the_last_of_several_aborted_jobs_removes_the_folders(tmp_path: Path) -> None:
    root = tmp_path / "a" / "ds"
    jobs = [staged(root, "append")[0] for _ in range(3)]
    assert clean(root).running == tuple(sorted(job.job_id for job in jobs))
    for job in jobs:
        assert (tmp_path / "a").exists()
        abort_job(job)
    assert tree(tmp_path) == {}


def hold_turn(root: Path, owner: Owner, job_id: str, *, decided: bool) -> None:
    folder = root / ".tfrecord-io" / job_id
    folder.mkdir(parents=True)
    turn = {
        "job_id": job_id,
        "owner": {"host": owner.host, "pid": owner.pid, "started": owner.started},
    }
    (folder.parent / "committing.json").write_text(json.dumps(turn))
    if decided:
        record = {"publish": [], "remove": [], "remove_folders": []}
        (folder / "commit.json").write_text(json.dumps(record))
        (folder / "_SUCCESS").write_bytes((root / "_SUCCESS").read_bytes())


def job_id(owner: Owner) -> str:
    return f"{owner.host}-{owner.pid}-{owner.started}-0-00000000"


def test_readers_and_writers_wait_for_a_live_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "ds"
    write_old(root)
    token = check_not_committing(STORAGE, str(root))
    me = owner_of()
    hold_turn(root, me, job_id(me), decided=False)
    assert check_not_committing(STORAGE, str(root)) == token
    shutil.rmtree(root / ".tfrecord-io")
    hold_turn(root, me, job_id(me), decided=True)
    monkeypatch.setattr(commit, "_READER_SECONDS", 0.1)
    for path in (root, root / "p=1", root / "p=1" / "part-00000-000.tfrecord"):
        with pytest.raises(CommitConflictError, match="being published"):
            check_not_committing(STORAGE, str(path))
    monkeypatch.setattr(staging, "TURN_SECONDS", 0.1)
    with pytest.raises(CommitConflictError, match="another job"):
        write_new(root, "append")
    assert data_files(root) == OLD_FILES
    assert clean(root).running == (job_id(me),)

    ender = threading.Timer(0.2, shutil.rmtree, [root / ".tfrecord-io"])
    monkeypatch.setattr(commit, "_READER_SECONDS", 10.0)
    monkeypatch.setattr(staging, "TURN_SECONDS", 10.0)
    ender.start()
    assert check_not_committing(STORAGE, str(root)) == token
    ender.join()
    write_new(root, "append")
    assert data_files(root) == APPENDED
    assert check_not_committing(STORAGE, str(root)) != token


def dead_owner() -> Owner:
    """A process of this host that is gone, its id in use again."""
    return Owner(host=owner_of().host, pid=os.getpid(), started="1")


FAR = Owner(host="0" * 12, pid=1, started="1")


@pytest.mark.parametrize("decided", [True, False])
def test_dead_and_far_commits(tmp_path: Path, decided: bool) -> None:
    root = tmp_path / "ds"
    write_old(root)
    before = tree(root)
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=decided)
    done = clean(root)
    assert (done.finished if decided else done.removed) == (job_id(dead),)
    assert tree(root) == before

    hold_turn(root, FAR, job_id(FAR), decided=decided)
    assert clean(root) == CleanResult(running=(job_id(FAR),))
    yesterday = time.time() - 25 * 60 * 60
    for path in (root / ".tfrecord-io").rglob("*"):
        os.utime(path, (yesterday, yesterday))
    done = clean(root)
    assert (done.finished if decided else done.removed) == (job_id(FAR),)
    assert tree(root) == before


def test_far_jobs_are_left_alone_for_a_day(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    folder = root / ".tfrecord-io" / job_id(FAR) / "00000-abcd"
    folder.mkdir(parents=True)
    write_new(root, "overwrite")
    assert folder.exists()
    assert data_files(root) == NEW_FILES
    assert clean(root, stale_after=0).removed == (job_id(FAR),)
    assert not (root / ".tfrecord-io").exists()


def test_a_job_lives_as_long_as_the_process_it_names(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    job = plan_write(NEW.schema, root, partition_by="p", owner_pid=sleeper.pid)
    assert clean(root).running == (job.job_id,)
    sleeper.communicate(b"\n")
    assert clean(root).removed == (job.job_id,)
    assert tree(tmp_path) == {}


def test_a_turn_that_cannot_be_understood(tmp_path: Path) -> None:
    root = tmp_path / "ds"
    write_old(root)
    (root / ".tfrecord-io").mkdir()
    (root / ".tfrecord-io" / "committing.json").write_text('{"job_id": "../../x"}')
    for act in (clean, lambda root: write_new(root, "append")):
        with pytest.raises(CommitStateUnknownError, match="newer version"):
            act(root)


HOSTILE_RECORDS: list[Any] = [
    {"publish": [["../x", "y"]], "remove": [], "remove_folders": []},
    {"publish": [], "remove": ["../../neighbour"], "remove_folders": []},
    {"publish": [], "remove": ["/etc/passwd"], "remove_folders": []},
    {"publish": [], "remove": [], "remove_folders": [""]},
    {"publish": [], "remove": [3], "remove_folders": []},
    {"publish": 3},
    [],
]


@pytest.mark.parametrize("record", HOSTILE_RECORDS)
def test_records_never_reach_outside(tmp_path: Path, record: Any) -> None:
    root = tmp_path / "ds"
    write_old(root)
    (tmp_path / "neighbour").write_text("x")
    dead = dead_owner()
    hold_turn(root, dead, job_id(dead), decided=True)
    (root / ".tfrecord-io" / job_id(dead) / "commit.json").write_text(json.dumps(record))
    with pytest.raises(CommitStateUnknownError, match="commit record"):
        clean(root)
    assert (tmp_path / "neighbour").exists()
    assert data_files(root) == OLD_FILES


def test_two_recoveries_at_once(tmp_path: Path) -> None:
    for number in range(10):
        root = tmp_path / str(number)
        write_old(root)
        before = tree(root)
        dead = dead_owner()
        hold_turn(root, dead, job_id(dead), decided=True)
        errors: list[BaseException] = []

        def recover(root: Path = root, errors: list[BaseException] = errors) -> None:
            try:
                write_new(root, "append")
            except BaseException as error:  # noqa: BLE001 - the main thread looks at it
                errors.append(error)

        threads = [threading.Thread(target=recover) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(data_files(root)) == len(OLD_FILES) + 3 * len(NEW_FILES)
        assert {*before} <= {*tree(root)}
        assert not (root / ".tfrecord-io").exists()


def test_cleaning_what_is_clean_or_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path / "no" / "no"):
        with pytest.raises(FileNotFoundError) as raised:
            clean(path)
        assert raised.value.filename == str(path)
    write_old(tmp_path / "ds")
    before = tree(tmp_path)
    assert clean(tmp_path / "ds") == CleanResult()
    assert tree(tmp_path) == before
    clean(tmp_path / "ds", dry_run=True)
    assert tree(tmp_path) == before
