"""Conversions: targets, modes, schedulers, failures, memory."""

from __future__ import annotations

import errno
import io
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.frames import examples
from tests.support.peaks import peak_bytes
from tests.support.trees import data_files, tree
from tfrecord_io import (
    CleanResult,
    ConvertProgress,
    ConvertResult,
    clean,
    convert,
    read_table,
    repair,
    write_table,
)
from tfrecord_io.conversion import graph, single_file, source
from tfrecord_io.errors import (
    CorruptDataError,
    CorruptDataWarning,
    DatasetChangedError,
    DatasetExistsError,
    EncodeError,
    LayoutError,
    OptionError,
    PrecisionWarning,
    SchemaMismatchError,
)
from tfrecord_io.plan import TaskCommit, WriteJob
from tfrecord_io.storage import LocalStorage, range_file
from tfrecord_io.writing.attempt import write_task

ROWS = [{"a": n, "b": f"v{n}"} for n in range(30)]
TABLE = pa.Table.from_pylist(ROWS)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Three files of ten rows."""
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(3):
        pq.write_table(TABLE.slice(10 * index, 10), folder / f"{index}.parquet")
    return folder


class TestFolders:
    def test_a_file_of_the_source_is_a_task(self, parquet: Path, tmp_path: Path) -> None:
        result = convert(parquet, tmp_path / "ds")
        expected = {
            f"part-{index:05d}-000.tfrecord": examples(*ROWS[10 * index : 10 * index + 10])
            for index in range(3)
        }
        assert data_files(tmp_path / "ds") == expected
        assert result == ConvertResult(
            files=3,
            rows=30,
            bytes=sum(map(len, expected.values())),
            from_format="parquet",
            to_format="tfrecord",
        )

    def test_small_row_groups_are_put_together(
        self, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pq.write_table(TABLE, parquet / "0.parquet", row_group_size=1)
        sizes: list[list[int]] = []

        def counted(job: WriteJob, index: int, batches: Any, **how: Any) -> TaskCommit:
            parts = list(batches)
            sizes.append([part.num_rows for part in parts])
            return write_task(job, index, parts, **how)

        monkeypatch.setattr(graph, "write_task", counted)
        convert(parquet, tmp_path / "ds")
        convert(parquet, tmp_path / "one.tfrecord")
        assert sorted(sizes) == [[10], [10], [30], [30, 10, 10]]

    def test_options_are_those_of_writes(self, parquet: Path, tmp_path: Path) -> None:
        convert(
            parquet,
            tmp_path / "ds",
            columns=["b", "a"],
            filters=[("a", "<", 15)],
            max_records_per_file=4,
            compression="gzip",
        )
        sizes = {0: [4, 4, 2], 1: [4, 1]}
        assert list(data_files(tmp_path / "ds")) == [
            f"part-{task:05d}-{index:03d}.tfrecord.gz"
            for task, rows in sizes.items()
            for index in range(len(rows))
        ]
        assert read_table(tmp_path / "ds").to_pylist() == [
            {"b": f"v{n}", "a": n} for n in range(15)
        ]

    def test_modes(self, parquet: Path, tmp_path: Path) -> None:
        target = tmp_path / "ds"
        convert(parquet, target)
        before = tree(target)
        with pytest.raises(DatasetExistsError):
            convert(parquet, target)
        result = convert(parquet, target, mode="ignore")
        assert (result.files, tree(target)) == (0, before)
        convert(parquet / "0.parquet", target, mode="append")
        assert len(data_files(target)) == 4
        assert {path: tree(target)[path] for path in before if path != "_SUCCESS"} == {
            path: data for path, data in before.items() if path != "_SUCCESS"
        }
        convert(parquet, target, mode="overwrite")
        assert tree(target) == before

    def test_overwriting_partitions(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"p": [1, 2], "v": [1, 2]}), tmp_path / "a.parquet")
        pq.write_table(pa.table({"p": [2], "v": [3]}), tmp_path / "b.parquet")
        convert(tmp_path / "a.parquet", tmp_path / "ds", partition_by="p")
        convert(
            tmp_path / "b.parquet", tmp_path / "ds", partition_by="p", mode="overwrite_partitions"
        )
        assert read_table(tmp_path / "ds").to_pylist() == [{"v": 1, "p": 1}, {"v": 3, "p": 2}]

    def test_a_source_can_be_overwritten(self, tmp_path: Path) -> None:
        write_table(TABLE, tmp_path / "ds", rows_per_task=7)
        convert(tmp_path / "ds", tmp_path / "ds", to_format="parquet", mode="overwrite")
        assert len(data_files(tmp_path / "ds")) == 5
        assert pq.read_table(tmp_path / "ds").to_pylist() == ROWS
        convert(tmp_path / "ds", tmp_path / "ds", to_format="tfrecord", mode="overwrite")
        assert read_table(tmp_path / "ds").equals(TABLE)

    def test_adding_another_format_is_refused(self, parquet: Path, tmp_path: Path) -> None:
        convert(parquet, tmp_path / "ds")
        with pytest.raises(SchemaMismatchError, match="parquet"):
            convert(parquet, tmp_path / "ds", to_format="parquet", mode="append")

    def test_large_tfrecord_files_are_cut_at_marks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = [{"a": n, "b": "x" * 1000} for n in range(40)]
        monkeypatch.setattr("tfrecord_io.writing.part_writer.SPLIT_BYTES", 4000)
        monkeypatch.setattr("tfrecord_io.conversion.source.PIECE_BYTES", 8000)
        write_table(pa.Table.from_pylist(rows), tmp_path / "ds")
        result = convert(tmp_path / "ds", tmp_path / "out", to_format="parquet")
        assert result.files > 3
        assert pq.read_table(tmp_path / "out").to_pylist() == rows

    def test_a_list_of_sources(self, parquet: Path, tmp_path: Path) -> None:
        convert([parquet / "2.parquet", parquet / "0.parquet"], tmp_path / "ds")
        assert read_table(tmp_path / "ds").to_pylist() == [*ROWS[20:], *ROWS[:10]]

    @pytest.mark.parametrize("is_local", [True, False])
    @pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.avro"])
    def test_a_file_that_is_cut_short_while_it_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_local: bool
    ) -> None:
        """Where a line or a block ends, so that what is left is a sound file."""
        path = tmp_path / name
        write_table(pa.table({"n": range(300_000)}), tmp_path / "ds")
        convert(tmp_path / "ds", path)
        data = path.read_bytes()
        if name == "a.avro":
            end = [block.offset for block in fastavro.block_reader(io.BytesIO(data))][-1]
        else:
            end = data.rindex(b"\n", 0, -1) + 1
        memory = fsspec.filesystem("memory")
        url = str(path) if is_local else f"memory:/{path}"
        memory.pipe_file(str(path), data)
        monkeypatch.setattr(range_file, "_BUFFER_BYTES", 64 * 1024)
        real = source.conform

        def cut(*args: Any) -> Iterator[pa.RecordBatch]:
            for batch in real(*args):
                os.truncate(path, end)
                memory.pipe_file(str(path), data[:end])
                yield batch

        monkeypatch.setattr(source, "conform", cut)
        with pytest.raises(DatasetChangedError, match="the file was replaced since"):
            convert(url, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("t", [pa.null(), pa.int32()])
    def test_data_sets_and_files_whose_values_one_type_holds(
        self, tmp_path: Path, t: pa.DataType
    ) -> None:
        for name, values in (("a", pa.array([None], t)), ("b", pa.array([2**40]))):
            pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet")
            convert(tmp_path / "x.parquet", tmp_path / name, to_format="parquet")
        # No manifest tells of it. Its name comes first.
        added = pa.table({"x": pa.array([1], pa.int8()), "y": [2]})
        pq.write_table(added, tmp_path / "b/added.parquet")
        convert([tmp_path / "a", tmp_path / "b"], tmp_path / "ds")
        assert read_table(tmp_path / "ds").to_pydict() == {
            "x": [None, 1, 2**40],
            "y": [None, 2, None],
        }

    def test_memory_storage(self, parquet: Path) -> None:
        convert(parquet, "memory://test-convert/ds")
        convert("memory://test-convert/ds", "memory://test-convert/x.parquet")
        convert("memory://test-convert/x.parquet", "memory://test-convert/back")
        assert read_table("memory://test-convert/back").equals(TABLE)
        with pytest.raises(DatasetExistsError):
            convert("memory://test-convert/ds", "memory://test-convert/x.parquet")

    @pytest.mark.parametrize("error", [ConnectionResetError("gone"), OSError(errno.EIO, "gone")])
    def test_a_store_that_does_not_answer_damages_nothing(
        self, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
    ) -> None:
        """Errors that are made by hand have no number, as Arrow's of damage have none."""
        convert(parquet, "memory://test-convert-late/x.parquet", mode="overwrite")

        def fail(*_: Any, **__: Any) -> bytes:
            raise error

        monkeypatch.setattr(MemoryFileSystem, "cat_file", fail)
        with pytest.raises(type(error), match="gone"):
            convert("memory://test-convert-late/x.parquet", tmp_path / "ds")


class TestSingleFile:
    def test_all_tasks_in_one_file(self, parquet: Path, tmp_path: Path) -> None:
        result = convert(parquet, tmp_path / "new/x.tfrecord")
        assert (tmp_path / "new/x.tfrecord").read_bytes() == examples(*ROWS)
        assert names(tmp_path / "new") == ["x.tfrecord"]
        assert (result.files, result.rows) == (1, 30)
        assert result.bytes == len(examples(*ROWS))

    def test_the_name_says_the_compression(self, parquet: Path, tmp_path: Path) -> None:
        import gzip

        convert(parquet, tmp_path / "x.tfrecord.gz")
        assert gzip.decompress((tmp_path / "x.tfrecord.gz").read_bytes()) == examples(*ROWS)
        with pytest.raises(OptionError, match="zstd"):
            convert(parquet, tmp_path / "y.tfrecord.gz", compression="zstd")

    @pytest.mark.parametrize("name", ["x.parquet.gzip", "x.parquet.gz", "x.avro.bz2"])
    def test_a_name_of_a_whole_that_is_compressed(
        self, parquet: Path, tmp_path: Path, name: str
    ) -> None:
        """As pandas' manual names Parquet files; a data set of TFRecord is not what is meant."""
        before = tree(tmp_path)
        with pytest.raises(OptionError, match=r"compressed within.*leave the last suffix out"):
            convert(parquet, tmp_path / name)
        assert tree(tmp_path) == before
        convert(parquet, tmp_path / name, to_format="tfrecord")
        convert(parquet, tmp_path / name, mode="append")
        assert len(data_files(tmp_path / name)) == 6

    def test_a_slash_or_partitions_make_a_folder(self, parquet: Path, tmp_path: Path) -> None:
        convert(parquet, f"{tmp_path}/x.tfrecord/")
        assert len(data_files(tmp_path / "x.tfrecord")) == 3
        convert(parquet, tmp_path / "y.tfrecord", partition_by="b")
        assert len(data_files(tmp_path / "y.tfrecord")) == 30
        convert(parquet, tmp_path / "x.tfrecord", mode="append")
        assert len(data_files(tmp_path / "x.tfrecord")) == 6

    def test_no_partitions_may_be_none(self, parquet: Path, tmp_path: Path) -> None:
        convert(parquet, tmp_path / "x.tfrecord", partition_by=None)
        assert (tmp_path / "x.tfrecord").is_file()
        convert(parquet, tmp_path / "folder", partition_by=None)
        assert len(data_files(tmp_path / "folder")) == 3

    def test_a_file_of_another_format_keeps_out_of_a_data_set(
        self, parquet: Path, tmp_path: Path
    ) -> None:
        """Whose readers would refuse it, and with it all of the data set."""
        convert(parquet, tmp_path / "ds")
        before = tree(tmp_path)
        with pytest.raises(OptionError, match="csv file in a data set of tfrecord files"):
            convert(parquet, tmp_path / "ds" / "x.csv")
        assert tree(tmp_path) == before
        convert(tmp_path / "ds", tmp_path / "ds" / "_x.csv")
        convert(parquet, tmp_path / "ds" / "more.tfrecord")
        assert read_table(tmp_path / "ds").num_rows == 60

    def test_error(self, parquet: Path, tmp_path: Path) -> None:
        (tmp_path / "x.tfrecord").write_bytes(b"old")
        before = tree(tmp_path)
        with pytest.raises(DatasetExistsError, match="overwrite"):
            convert(parquet, tmp_path / "x.tfrecord")
        assert tree(tmp_path) == before

    def test_error_before_the_source_is_looked_at(self, parquet: Path, tmp_path: Path) -> None:
        convert(parquet, tmp_path / "ds")
        (tmp_path / "damaged.tfrecord").write_bytes(b"x" * 100)
        (tmp_path / "folders" / "empty").mkdir(parents=True)
        for target in ("ds", "folders"):
            with pytest.raises(DatasetExistsError):
                convert(tmp_path / "damaged.tfrecord", tmp_path / target)

    @pytest.mark.parametrize("mode", ["error", "ignore"])
    @pytest.mark.parametrize("is_seen", [True, False])
    def test_a_file_that_appears_meanwhile_stays(
        self,
        parquet: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        mode: Any,
        is_seen: bool,
    ) -> None:
        target = tmp_path / "out/x.tfrecord"
        target.parent.mkdir()

        def appear(progress: ConvertProgress) -> None:
            target.write_bytes(b"theirs")
            if not is_seen:
                # As if it appeared behind the last look.
                monkeypatch.setattr(LocalStorage, "exists", lambda *_: False)

        if mode == "error":
            with pytest.raises(DatasetExistsError):
                convert(parquet, target, progress=appear)
        else:
            assert convert(parquet, target, mode=mode, progress=appear).files == 0
        assert tree(target.parent) == {"x.tfrecord": b"theirs"}

    def test_overwrite_and_ignore(self, parquet: Path, tmp_path: Path) -> None:
        target = tmp_path / "out/x.tfrecord"
        target.parent.mkdir()
        target.write_bytes(b"old")
        assert convert(parquet, target, mode="ignore").files == 0
        assert tree(target.parent) == {"x.tfrecord": b"old"}
        convert(parquet, target, mode="overwrite")
        assert tree(target.parent) == {"x.tfrecord": examples(*ROWS)}
        # Its own source, too.
        convert(target, target, mode="overwrite", columns=["a"])
        assert tree(target.parent) == {"x.tfrecord": examples(*({"a": r["a"]} for r in ROWS))}

    def test_overwrite_is_as_writing_into_the_file(self, parquet: Path, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "links").mkdir()
        file, link = tmp_path / "real/of any name", tmp_path / "links/x.tfrecord"
        file.write_bytes(b"")
        file.chmod(0o604)
        link.symlink_to(Path("../real/of any name"))
        with pytest.raises(DatasetExistsError):
            convert(parquet, link)
        convert(parquet, link, mode="overwrite")
        assert link.is_symlink()
        assert file.read_bytes() == examples(*ROWS)
        assert stat.S_IMODE(file.stat().st_mode) == 0o604
        assert names(tmp_path / "links") == ["x.tfrecord"]
        assert names(tmp_path / "real") == ["of any name"]
        file.unlink()
        convert(parquet, link, mode="overwrite")
        assert file.read_bytes() == examples(*ROWS)

    def test_a_link_that_a_conversion_died_on(self, parquet: Path, tmp_path: Path) -> None:
        (tmp_path / "x.tfrecord").symlink_to("y")
        left = self.killed(parquet, tmp_path / "x.tfrecord", "overwrite", "y")
        assert clean(tmp_path / "x.tfrecord").removed == (left,)

    @pytest.mark.parametrize("is_link", [False, True])
    def test_what_is_no_file_stays(self, parquet: Path, tmp_path: Path, is_link: bool) -> None:
        os.mkfifo(tmp_path / "pipe.csv")
        target = tmp_path / "pipe.csv"
        if is_link:
            target = tmp_path / "link.csv"
            target.symlink_to("pipe.csv")
        with pytest.raises(OptionError, match=r"no regular file.*another path.*pipe\.csv\]"):
            convert(parquet, target, mode="overwrite")
        assert (tmp_path / "pipe.csv").is_fifo()

    @pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
    def test_nothing_can_be_added(self, parquet: Path, tmp_path: Path, mode: Any) -> None:
        with pytest.raises(OptionError, match="single file"):
            convert(parquet, tmp_path / "x.tfrecord", mode=mode)

    def test_a_limit_of_records_needs_a_folder(self, parquet: Path, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="max_records_per_file"):
            convert(parquet, tmp_path / "x.tfrecord", max_records_per_file=3)

    def killed(
        self, parquet: Path, target: Path, mode: str = "error", name: str | None = None
    ) -> str:
        """Kill a conversion, and return the name of what it leaves."""
        before = names(target.parent) if target.parent.exists() else []
        code = (
            "import os, signal, sys; from tfrecord_io import convert\n"
            "convert(sys.argv[1], sys.argv[2], mode=sys.argv[3], "
            "progress=lambda p: os.kill(os.getpid(), signal.SIGKILL))"
        )
        command = [sys.executable, "-c", code, str(parquet), str(target), mode]
        killed = subprocess.run(command, check=False, cwd=Path(__file__).parents[1])
        assert killed.returncode == -signal.SIGKILL
        (left,) = {*names(target.parent)} - {*before}
        assert left.startswith(f".{name or target.name}.")
        return left

    def test_what_dead_processes_left_is_removed(self, parquet: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        self.killed(parquet, out / "x.tfrecord")
        convert(parquet, out / "x.tfrecord")
        assert names(out) == ["x.tfrecord"]

    def test_cleaning_removes_what_dead_processes_left(self, parquet: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        one, other = (self.killed(parquet, out / name) for name in ("x.tfrecord", "y.tfrecord"))
        # Names that are no staging's, and a link.
        (out / ".x.tfrecord.notes").mkdir()
        (out / one[:-1]).mkdir()
        (out / f"{one[:-1]}{'1' if one[-1] == '0' else '0'}").symlink_to(tmp_path)
        kept = {*names(out)} - {one, other}
        assert clean(out / "x.tfrecord", dry_run=True).removed == (one,)
        assert {*names(out)} == {*kept, one, other}
        assert clean(out / "x.tfrecord").removed == (one,)
        assert {*names(out)} == {*kept, other}
        with pytest.raises(FileNotFoundError):
            clean(out / "x.tfrecord")
        assert clean(out).removed == (other,)
        assert {*names(out)} == kept
        assert clean(out) == CleanResult()
        (out / "x.tfrecord").write_bytes(b"")
        assert clean(out / "x.tfrecord") == CleanResult()

    def test_running_ones_are_left_alone(self, parquet: Path, tmp_path: Path) -> None:
        seen = []

        def begin_another(progress: ConvertProgress) -> None:
            single_file.open_target(tmp_path / "x.tfrecord", "error", {})
            for path in (tmp_path, tmp_path / "x.tfrecord"):
                seen.extend(clean(path, stale_after=0).running)
            seen.extend(name for name in names(tmp_path) if name.startswith("."))

        convert(parquet, tmp_path / "x.tfrecord", progress=begin_another)
        assert len(seen) == 3
        assert len({*seen}) == 1
        assert (tmp_path / "x.tfrecord").read_bytes() == examples(*ROWS)


class TestFailures:
    @pytest.mark.parametrize("target", ["out/ds", "out/x.tfrecord"])
    @pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
    def test_nothing_stays(
        self, parquet: Path, tmp_path: Path, target: str, scheduler: str
    ) -> None:
        (parquet / "2.parquet").write_bytes((parquet / "2.parquet").read_bytes()[:-10])
        before = tree(tmp_path)
        schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
        with pytest.raises(CorruptDataError, match=r"2\.parquet"):
            convert(parquet, tmp_path / target, scheduler=scheduler, schema=schema)
        bad = pa.table({"a": pa.array([2**63], pa.uint64()), "b": ["x"]})
        pq.write_table(bad, parquet / "2.parquet")
        schema = pa.schema([("a", pa.uint64()), ("b", pa.string())])
        with pytest.raises(EncodeError, match=r"'a'") as caught:
            convert(parquet, tmp_path / target, scheduler=scheduler, schema=schema)
        assert caught.value.path == str(parquet / "2.parquet")
        assert caught.value.row == (0 if target == "out/ds" else None)
        before.pop("in/2.parquet")
        found = tree(tmp_path)
        found.pop("in/2.parquet")
        assert found == before

    @pytest.mark.filterwarnings("ignore::tfrecord_io.errors.CorruptDataWarning")
    def test_a_row_is_told_where_it_is_one_of_the_file(self, tmp_path: Path) -> None:
        data = bytearray(examples({"t": 0}, {"t": 1}, {"t": 10**13}))
        path = tmp_path / "a.tfrecord"
        path.write_bytes(data)
        schema = pa.schema([("t", pa.timestamp("s"))])
        with pytest.raises(EncodeError, match="beyond the years 1 to 9999") as caught:
            convert(path, tmp_path / "a.csv", schema=schema)
        assert (caught.value.path, caught.value.row) == (str(path), 2)
        # In the payload of the first record, which is left out.
        data[13] ^= 1
        path.write_bytes(data)
        with pytest.raises(EncodeError, match="beyond the years 1 to 9999") as caught:
            convert(path, tmp_path / "a.csv", schema=schema, on_corrupt="skip_record")
        assert (caught.value.path, caught.value.row) == (str(path), None)

    @pytest.mark.parametrize(("name", "row"), [("x.parquet", 7), ("x.arrow", None)])
    def test_a_row_of_a_later_piece_is_told_where_the_file_tells_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, row: int | None
    ) -> None:
        monkeypatch.setattr("tfrecord_io.formats.base.PIECE_BYTES", 1)
        data = pa.table({"x": [[1]] * 7 + [[None]]})
        if row is None:
            with pa.ipc.new_file(tmp_path / name, data.schema) as writer:
                writer.write_table(data, max_chunksize=2)
        else:
            pq.write_table(data, tmp_path / name, row_group_size=2)
        with pytest.raises(EncodeError, match="null inside a list") as caught:
            convert(tmp_path / name, tmp_path / "ds")
        assert (caught.value.path, caught.value.row) == (str(tmp_path / name), row)

    def test_a_value_that_names_no_folder_is_told_with_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        for number, value in enumerate(("a", "", "b")):
            (tmp_path / f"in/{number}.csv").write_text(f'k,x\n"{value}",1\n')
        with pytest.raises(LayoutError, match="'k' has an empty string") as caught:
            convert(tmp_path / "in", tmp_path / "ds", partition_by="k")
        assert caught.value.path == str(tmp_path / "in/1.csv")

    def test_a_failing_callback_aborts(self, parquet: Path, tmp_path: Path) -> None:
        def fail(progress: ConvertProgress) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert(parquet, tmp_path / "out/ds", progress=fail, scheduler="synchronous")
        assert not (tmp_path / "out").exists()

    def test_damage_is_skipped_with_a_warning(self, tmp_path: Path) -> None:
        data = examples(*ROWS)
        (tmp_path / "x.tfrecord").write_bytes(data[:-20])
        with pytest.warns(CorruptDataWarning, match=r"x\.tfrecord"):
            convert(tmp_path / "x.tfrecord", tmp_path / "y.parquet", on_corrupt="skip_record")
        assert pq.read_table(tmp_path / "y.parquet").to_pylist() == ROWS[:-1]
        with pytest.raises(OptionError, match="on_corrupt"):
            convert(tmp_path / "y.parquet", tmp_path / "z", on_corrupt="skip_file")

    @pytest.mark.parametrize("target", ["ds", "x.tfrecord"])
    def test_narrowed_columns_are_named_once(self, tmp_path: Path, target: str) -> None:
        for index in range(3):
            pq.write_table(pa.table({"f": [0.1], "g": [0.5]}), tmp_path / f"{index}.parquet")
        with pytest.warns(PrecisionWarning, match="'f'") as caught:
            convert(tmp_path / "*.parquet", tmp_path / target)
        assert len(caught) == 1


class TestArguments:
    def test_formats(self, parquet: Path, tmp_path: Path) -> None:
        write_table(TABLE, tmp_path / "ds")
        with pytest.raises(OptionError, match="to_format"):
            convert(tmp_path / "ds", tmp_path / "out")
        with pytest.raises(OptionError, match=r"to_format.*'excel'"):
            convert(tmp_path / "ds", tmp_path / "out", to_format="excel")
        convert(tmp_path / "ds", tmp_path / "out", to_format="json")
        assert list(data_files(tmp_path / "out")) == ["part-00000-000.jsonl"]

    @pytest.mark.filterwarnings("ignore::tfrecord_io.InferenceWarning")
    @pytest.mark.parametrize("fmt", ["parquet", "orc", "csv", "jsonl", "arrow", "avro"])
    def test_rows_need_columns_but_in_tfrecord(self, tmp_path: Path, fmt: str) -> None:
        write_table(TABLE, tmp_path / "ds")
        (tmp_path / "empty.tfrecord").write_bytes(examples({}, {}))
        for target in (f"x.{fmt}", "folder"):
            with pytest.raises(OptionError, match="columns is empty"):
                convert(tmp_path / "ds", tmp_path / target, to_format=fmt, columns=[])
            with pytest.raises(EncodeError, match="rows without columns"):
                convert(tmp_path / "empty.tfrecord", tmp_path / target, to_format=fmt)
            assert names(tmp_path) == ["ds", "empty.tfrecord"]
        convert(tmp_path / "ds", tmp_path / f"x.{fmt}")
        convert(tmp_path / f"x.{fmt}", tmp_path / "back", columns=[])
        assert data_files(tmp_path / "back") == {"part-00000-000.tfrecord": examples(*[{}] * 30)}

    def test_partition_columns_alone(self, parquet: Path, tmp_path: Path) -> None:
        for fmt in ("parquet", "orc", "csv", "jsonl", "arrow", "avro"):
            convert(parquet / "0.parquet", tmp_path / fmt, to_format=fmt, partition_by="b")
            convert(tmp_path / fmt, tmp_path / f"{fmt}-b", to_format="tfrecord", columns=["b"])
            found = read_table(tmp_path / f"{fmt}-b")
            assert found.to_pylist() == [{"b": f"v{n}"} for n in range(10)]

    @pytest.mark.parametrize("scheduler", ["processes", 5, None, object()])
    def test_schedulers(self, parquet: Path, tmp_path: Path, scheduler: Any) -> None:
        with pytest.raises(OptionError, match="scheduler"):
            convert(parquet, tmp_path / "ds", scheduler=scheduler)
        assert not (tmp_path / "ds").exists()

    @pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
    def test_threads_do_without_distributed(
        self, parquet: Path, tmp_path: Path, scheduler: str
    ) -> None:
        code = (
            "import sys\n"
            "from tfrecord_io import convert\n"
            f"convert({str(parquet)!r}, {str(tmp_path / 'ds')!r}, scheduler={scheduler!r})\n"
            "print('distributed' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "False\n", done.stderr

    def test_missing_source(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            convert(tmp_path / "none.parquet", tmp_path / "ds")
        assert names(tmp_path) == []

    def test_a_folder_without_files(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        result = convert(tmp_path / "in", tmp_path / "ds", from_format="csv")
        assert (result.files, result.rows, result.bytes) == (0, 0, 0)
        assert read_table(tmp_path / "ds").num_rows == 0

    @pytest.mark.parametrize("filters", [None, [("n", ">", 4)]])
    def test_the_row_of_a_value_is_that_in_its_file_or_none(
        self, tmp_path: Path, filters: Any
    ) -> None:
        path = tmp_path / "x.parquet"
        pq.write_table(pa.table({"n": range(10), "bad": [[1]] * 9 + [[None]]}), path)
        with pytest.raises(EncodeError, match="null inside a list") as caught:
            convert(path, tmp_path / "ds", filters=filters)
        assert (caught.value.path, caught.value.feature) == (str(path), "bad")
        assert caught.value.row == (9 if filters is None else None)

    def test_progress(self, parquet: Path, tmp_path: Path) -> None:
        seen: list[ConvertProgress] = []
        convert(parquet, tmp_path / "ds", progress=seen.append)
        total = sum(path.stat().st_size for path in parquet.iterdir())
        assert [p.tasks_done for p in seen] == [1, 2, 3]
        assert {p.tasks for p in seen} == {3}
        assert {p.bytes for p in seen} == {total}
        assert (seen[-1].bytes_done, seen[-1].rows) == (total, 30)
        assert [p.rows for p in seen] == [10, 20, 30]

    def test_no_credentials_in_what_is_sent_around(self, tmp_path: Path, parquet: Path) -> None:
        secret = "s3cr3t-value"
        plan = source.plan_source(
            parquet,
            file_format="parquet",
            columns=None,
            schema=None,
            filters=None,
            record_type="Example",
            on_corrupt="raise",
            storage_options={"auto_mkdir": secret},
        )
        assert secret.encode() in pickle.dumps(plan)
        assert secret not in repr(plan)

    def test_nothing_is_loaded_before_it_is_needed(self) -> None:
        code = (
            "import sys, tfrecord_io\n"
            "print([m for m in ('dask', 'distributed', 'pandas', 'fastavro', 'fsspec') "
            "if m in sys.modules])"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]
        )
        assert done.stdout == "[]\n"

    def test_a_target_that_would_be_read_with_the_source(self, tmp_path: Path) -> None:
        source = tmp_path / "data"
        write_table(pa.table({"x": [1, 2]}), source)
        before = tree(source)
        for write in (
            lambda: convert(source, source / "sub", to_format="tfrecord"),
            lambda: convert(source, source / "x.tfrecord"),
            lambda: convert([tmp_path / "other", source], source / "p=1/sub/", to_format="csv"),
            lambda: repair(source, source / "sound"),
        ):
            with pytest.raises(OptionError, match="the target is in the source"):
                write()
        assert tree(source) == before
        # These are no part of it.
        assert convert(source, tmp_path / "data2", to_format="tfrecord").rows == 2
        assert convert(source, source / "_sub", to_format="parquet").rows == 2
        assert convert(source, source, to_format="tfrecord", mode="overwrite").rows == 2
        part = next(source.glob("*.tfrecord"))
        assert convert(part, tmp_path / "data" / "_x.csv").rows == 2


class TestScheduling:
    @pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
    def test_synchronous_is_the_thread_that_asks(
        self, parquet: Path, tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads: set[int] = set()

        def write(*arguments: Any, **options: Any) -> TaskCommit:
            threads.add(threading.get_ident())
            return write_task(*arguments, **options)

        monkeypatch.setattr(graph, "write_task", write)
        convert(parquet, tmp_path / "ds", scheduler=scheduler)
        assert (threads == {threading.get_ident()}) is (scheduler == "synchronous")

    def test_output_does_not_depend_on_threads(self, parquet: Path, tmp_path: Path) -> None:
        for index, options in enumerate([{"threads": 1}, {"threads": 4}, {}]):
            convert(parquet, tmp_path / str(index), partition_by="b", **options)
        convert(parquet, tmp_path / "3", partition_by="b", scheduler="synchronous")
        assert len({str(tree(tmp_path / str(index))) for index in range(4)}) == 1

    def test_a_task_that_runs_twice_shows_once(
        self, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        convert(parquet, tmp_path / "once")
        real = graph.write_pieces

        def twice(*args: Any) -> Any:
            real(*args)
            return real(*args)

        monkeypatch.setattr(graph, "write_pieces", twice)
        convert(parquet, tmp_path / "twice")
        assert tree(tmp_path / "twice") == tree(tmp_path / "once")


@pytest.mark.filterwarnings("ignore:Creating scratch directories is taking")
def test_a_killed_worker_neither_loses_nor_duplicates_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(12):
        data = pa.table({"a": range(index * 100, index * 100 + 100), "p": [index % 3] * 100})
        pq.write_table(data, folder / f"{index:02d}.parquet")
    convert(folder, tmp_path / "threads", partition_by="p")
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            local_directory=str(tmp_path / "scratch"),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill_one(progress: ConvertProgress) -> None:
            if not killed:
                # Only one of the two, and in the middle: what it wrote and returned is lost too.
                pids = client.run(os.getpid)
                killed.append(sorted(pids.values())[0])
                os.kill(killed[0], signal.SIGKILL)

        convert(folder, tmp_path / "killed", partition_by="p", scheduler=client, progress=kill_one)
        convert(folder, tmp_path / "file.parquet", scheduler=cluster.scheduler_address)
    assert killed
    assert tree(tmp_path / "killed") == tree(tmp_path / "threads")
    assert pq.read_table(tmp_path / "file.parquet")["a"].to_pylist() == list(range(1200))


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
class TestMemory:
    """Coarse: a conversion of much data needs far less memory than the data."""

    def test_streams_both_ways(self, tmp_path: Path) -> None:
        numbers = np.arange(600 * 131_072, dtype=np.float32)
        values = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 131_072)
        data = pa.table({"v": values})
        size = data.nbytes
        pq.write_table(
            data,
            tmp_path / "x.parquet",
            row_group_size=20,
            compression="none",
            use_dictionary=False,
        )
        del data, values, numbers
        base = peak_bytes(tmp_path, "import dask, pyarrow.parquet")
        there = peak_bytes(tmp_path, "convert('x.parquet', 'ds', scheduler='synchronous')")
        back = peak_bytes(
            tmp_path,
            "from tfrecord_io.formats import writing\nwriting._GROUP_BYTES = 2**23\n"
            "convert('ds', 'y.parquet', scheduler='synchronous')",
        )
        assert there - base < size * 2 / 3
        assert back - base < size * 5 / 6


def test_time_is_no_part_of_the_output(parquet: Path, tmp_path: Path) -> None:
    for fmt in ("parquet", "orc", "arrow", "avro", "csv", "jsonl"):
        convert(parquet, tmp_path / f"1.{fmt}")
        time.sleep(0.01)
        convert(parquet, tmp_path / f"2.{fmt}")
        assert (tmp_path / f"1.{fmt}").read_bytes() == (tmp_path / f"2.{fmt}").read_bytes()
