"""Verifying: each kind of fault is found where it is, and nothing else is."""

from __future__ import annotations

import errno
import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrecord_io as tfr
from tests.support import wire
from tests.support.frames import example, frame
from tests.support.program import runner
from tests.support.servers import Server
from tests.support.trees import data_files, tree
from tfrecord_io.cli.main import program
from tfrecord_io.plan import CleanResult
from tfrecord_io.reading import source, tasks
from tfrecord_io.schema import wire_schema
from tfrecord_io.storage import open_storage
from tfrecord_io.storage.local import LocalStorage

FRAMES = [frame(example(n=n)) for n in range(10)]
ENDS = [sum(map(len, FRAMES[: n + 1])) for n in range(10)]


def part(folder: Path, month: int) -> Path:
    return folder / f"month={month}" / "part-00000-000.tfrecord"


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    table = pa.table({"n": range(40), "month": [n // 10 for n in range(40)]})
    tfr.write_table(table, tmp_path / "data", partition_by="month")
    return tmp_path / "data"


def places(report: tfr.VerifyReport) -> list[tuple[Any, ...]]:
    return [(fault.path, fault.start, fault.end) for fault in report.faults]


def test_sound_data(data: Path, codec: str) -> None:
    sizes = [part(data, month).stat().st_size for month in range(4)]
    seen: list[tuple[int, int]] = []
    report = tfr.verify(data, codec=codec, progress=lambda *done: seen.append(done))  # type: ignore[arg-type]
    assert report == tfr.VerifyReport(
        files=4, records=40, bytes=sum(sizes), record_type="Example", faults=()
    )
    assert report.is_sound
    assert seen == [(sum(sizes[: count + 1]), sum(sizes)) for count in range(4)]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_fault_is_told(data: Path, codec: str, threads: int) -> None:
    damaged, shorter, missing, longer = (part(data, month) for month in range(4))
    size = len(FRAMES[0])
    flip(damaged, 2 * size + 3)
    flip(damaged, 5 * size + 20)
    shorter.write_bytes(shorter.read_bytes()[:-1])
    missing.unlink()
    longer.write_bytes(longer.read_bytes() + FRAMES[0])
    other = data / "month=3" / "other"
    other.write_bytes(gzip.compress(b"".join(FRAMES))[:-4])

    report = tfr.verify(data, codec=codec, threads=threads)  # type: ignore[arg-type]
    assert not report.is_sound
    assert (report.files, report.records) == (4, 8 + 9 + 11 + 10)
    assert places(report) == [
        (str(damaged), 2 * size, 3 * size),
        (str(damaged), 5 * size, 6 * size),
        (str(shorter), None, None),
        (str(shorter), 9 * size, 10 * size - 1),
        (str(other), ENDS[-1], None),
        (str(longer), None, None),
        (str(missing), None, None),
    ]
    words = ["length", "payload", f"{10 * size} bytes, and it has", "ends inside", "gzip stream"]
    words += [f"{10 * size} bytes, and it has", "has 10 records, and it is not"]
    for fault, word in zip(report.faults, words, strict=True):
        assert word in fault.what


def test_payloads_are_held_to_protobufs_rules(tmp_path: Path, codec: str) -> None:
    bad = frame(wire.example(wire.entry(b"z", wire.field(2, wire.field(1, b"\0\0\0")))))
    (tmp_path / "a").write_bytes(FRAMES[0] + bad + FRAMES[1])
    report = tfr.verify(tmp_path, codec=codec)  # type: ignore[arg-type]
    assert report.records == 2
    assert places(report) == [(str(tmp_path / "a"), len(FRAMES[0]), len(FRAMES[0] + bad))]
    assert tfr.verify(tmp_path, record_type="ByteArray").is_sound


def test_what_ends_a_file_does_not_end_the_others(tmp_path: Path) -> None:
    sequence = frame(wire.sequence_example(lists=[wire.entry(b"x", wire.feature_list(b""))]))
    (tmp_path / "a").write_bytes(FRAMES[0] + sequence + FRAMES[1])
    (tmp_path / "b").write_bytes(frame(bytes(100)))
    (tmp_path / "c").write_bytes(FRAMES[0])
    limits = tfr.Limits(max_record_bytes=99)
    report = tfr.verify(tmp_path, limits=limits)
    assert (report.files, report.records) == (3, 2)
    [first, second] = report.faults
    assert (first.path, first.start, first.end) == (str(tmp_path / "a"), len(FRAMES[0]), None)
    assert 'record_type="SequenceExample"' in first.what
    assert (second.path, second.start, second.end) == (str(tmp_path / "b"), 0, None)
    assert "max_record_bytes" in second.what


def test_damage_before_what_ends_a_file(tmp_path: Path, codec: str) -> None:
    damage = FRAMES[1][:-1] + b"."
    place = (len(FRAMES[0]), len(FRAMES[0] + damage))
    sequence = frame(wire.sequence_example(lists=[wire.entry(b"x", wire.feature_list(b""))]))
    ends = {"a": sequence, "b": frame(bytes(100))}
    for name, end in ends.items():
        (tmp_path / name).write_bytes(FRAMES[0] + damage + FRAMES[2] + end + FRAMES[3])
    limits = tfr.Limits(max_record_bytes=99)
    report = tfr.verify(tmp_path, limits=limits, codec=codec)  # type: ignore[arg-type]
    assert report.records == 2 + 2
    last = len(FRAMES[0] + damage + FRAMES[2])
    assert places(report) == [
        (str(tmp_path / name), *where) for name in ends for where in (place, (last, None))
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_before_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(source, "_SMALL_BYTES", 0)
    monkeypatch.setattr(source, "_READ_BYTES", 256)
    monkeypatch.setattr(source, "_READ_OVER_BYTES", 0)
    damage = FRAMES[1][:-1] + b"."
    (tmp_path / "a").write_bytes(FRAMES[0] + damage + FRAMES[2] * 500)
    (tmp_path / "b").write_bytes(FRAMES[0])
    preadv = os.preadv

    def broken(handle: int, buffers: Any, offset: int) -> int:
        if offset > 5000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", broken)
    report = tfr.verify(tmp_path, threads=threads)
    assert places(report) == [
        (str(tmp_path / "a"), len(FRAMES[0]), len(FRAMES[0] + damage)),
        (str(tmp_path / "a"), None, None),
    ]
    assert "cannot be read" in report.faults[1].what


def test_as_many_bytes_and_fewer_records(data: Path) -> None:
    file = part(data, 0)
    two = file.read_bytes()[: 2 * len(file.read_bytes()) // 10]
    one = frame(example(n=0, s="x" * 100))
    for length in range(200):
        one = frame(example(n=0, s="x" * length))
        if len(one) == len(two):
            break
    file.write_bytes(one + file.read_bytes()[len(two) :])
    [fault] = tfr.verify(data).faults
    assert "has 10 records, and it has 9" in fault.what


def test_the_type_is_the_manifests(tmp_path: Path) -> None:
    table = pa.table({"x": [[[1], [2]]]})
    tfr.write_table(table, tmp_path / "lists", record_type="SequenceExample")
    assert tfr.verify(tmp_path / "lists").is_sound
    with pytest.raises(tfr.SchemaMismatchError, match="SequenceExample"):
        tfr.verify(tmp_path / "lists", record_type="Example")
    tfr.write_table(pa.table({"x": [1]}), tmp_path / "plain")
    with pytest.raises(tfr.OptionError, match="one by one"):
        tfr.verify([tmp_path / "lists", tmp_path / "plain"])
    tfr.convert(tmp_path / "plain", tmp_path / "parquet", to_format="parquet")
    with pytest.raises(tfr.OptionError, match="parquet"):
        tfr.verify(tmp_path / "parquet")
    with pytest.raises(FileNotFoundError):
        tfr.verify(tmp_path / "no")


def test_values_that_do_not_fit_the_manifests_columns(tmp_path: Path, codec: str) -> None:
    schema = pa.schema([pa.field("n", pa.int8(), nullable=False), ("d", pa.decimal128(6, 2))])
    for name in ("one", "two"):
        table = pa.table([range(5), [None, *map(Decimal, "1234")]], schema=schema)
        tfr.write_table(table, tmp_path / name)
    assert tfr.verify(tmp_path, codec=codec).is_sound  # type: ignore[arg-type]
    one, two = (tmp_path / name / "part-00000-000.tfrecord" for name in ("one", "two"))
    frames = [frame(example(n=n, more="features")) for n in range(5)]
    one.write_bytes(b"".join([*frames[:2], frame(example(n=300)), frames[3], frames[4]]))
    two.write_bytes(b"".join([*frames[:2], frame(example(n="2")), frames[3], frames[4]]))
    flip(one, one.stat().st_size - 5)
    for root in (tmp_path, [tmp_path / "one", tmp_path / "two"]):
        report = tfr.verify(root, codec=codec)  # type: ignore[arg-type]
        assert (report.files, report.records) == (2, 9)
        start, end = len(frames[0]) * 2, one.stat().st_size
        assert places(report) == [
            (str(one), None, None),
            (str(one), end - len(frames[4]), end),
            (str(one), start, None),
            (str(two), None, None),
            (str(two), start, None),
        ]
        assert [fault.feature for fault in report.faults] == [None, None, "n", None, "n"]
        words = ["bytes, and it has", "payload", "int8", "bytes, and it has", "BytesList"]
        for fault, word in zip(report.faults, words, strict=True):
            assert word in fault.what


def test_values_of_files_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    # Readers hold them to its columns as well.
    table = pa.table({"n": pa.array([1, 2], pa.int8()), "p": [0, 0]})
    tfr.write_table(table, tmp_path / "data", partition_by="p")
    other = tmp_path / "data" / "p=0" / "other.tfrecord"
    other.write_bytes(frame(example(n=3)) + frame(example(n=4, m=1000)))
    assert tfr.verify(tmp_path / "data").is_sound
    other.write_bytes(frame(example(n=3)) + frame(example(n=1000)))
    for path in (tmp_path, tmp_path / "data", other):
        [fault] = tfr.verify(path).faults
        assert (fault.path, fault.start, fault.feature) == (str(other), len(FRAMES[0]), "n")


def test_values_where_the_manifests_files_have_none(tmp_path: Path) -> None:
    tfr.write_table(pa.table({"n": [1, 2], "z": pa.nulls(2)}), tmp_path / "data")
    [file] = (tmp_path / "data").glob("part-*")
    other = tmp_path / "data" / "z.tfrecord"
    other.write_bytes(frame(example(n=3, z=4)))
    assert tfr.read_table(tmp_path / "data")["z"].to_pylist() == [None, None, 4]
    assert tfr.verify(tmp_path / "data").is_sound
    other.write_bytes(frame(example(n="3", z=4)))
    assert [fault.feature for fault in tfr.verify(tmp_path / "data").faults] == ["n"]
    other.unlink()
    # Where it is one of the manifest's, readers do not look for a kind. As many bytes:
    size = file.stat().st_size
    texts = (frame(example(z="x" * length)) for length in range(size))
    file.write_bytes(next(text for text in texts if len(text) == size))
    assert [fault.feature for fault in tfr.verify(tmp_path / "data").faults] == ["z"]
    with pytest.raises(tfr.SchemaMismatchError, match="no kind"):
        tfr.read_table(tmp_path / "data")


def test_a_value_that_does_not_fit_and_a_record_that_ends_its_file(data: Path) -> None:
    sequence = frame(wire.sequence_example(lists=[wire.entry(b"x", wire.feature_list(b""))]))
    text = frame(example(n="text"))
    part(data, 0).write_bytes(text + FRAMES[0] + sequence)
    part(data, 1).write_bytes(FRAMES[0] + sequence)
    report = tfr.verify(data)
    assert report.records == 2 + 1 + 10 + 10
    assert places(report) == [
        (str(part(data, 0)), None, None),
        (str(part(data, 0)), 0, None),
        (str(part(data, 0)), len(text + FRAMES[0]), None),
        (str(part(data, 1)), None, None),
        (str(part(data, 1)), len(FRAMES[0]), None),
    ]
    assert [fault.feature for fault in report.faults] == [None, "n", None, None, None]


def test_columns_are_looked_at_once_for_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It was done for each file, and for all of them again behind each one that did not fit.
    asked = 0

    def counted(*arguments: Any, **options: Any) -> pa.Schema:
        nonlocal asked
        asked += 1
        return wire_schema(*arguments, **options)

    table = pa.table({"n": pa.array([1] * 40, pa.int8())})
    tfr.write_table(table, tmp_path / "data", rows_per_task=1)
    wrong = sorted((tmp_path / "data").glob("part-*"))[7::10]
    for file in wrong:
        file.write_bytes(frame(example(n=1000)))
    monkeypatch.setattr(tasks, "wire_schema", counted)
    report = tfr.verify(tmp_path / "data", threads=1)
    told = [fault.path for fault in report.faults if fault.feature is not None]
    assert told == [str(file) for file in wrong]
    # The data set's and those of files without columns, at first and behind each misfit.
    assert asked == 2 * (1 + len(wrong))


def test_decimals_are_held_to_floats(tmp_path: Path) -> None:
    # As they were written: a reader takes no integers for them.
    table = pa.table({"d": pa.array([Decimal(1), Decimal(2)], pa.decimal128(9, 2))})
    tfr.write_table(table, tmp_path / "data")
    [file] = (tmp_path / "data").glob("part-*")
    # As many bytes as a float has.
    file.write_bytes(frame(example(d=1.0)) + frame(example(d=2**21)))
    [fault] = tfr.verify(tmp_path / "data").faults
    assert "Int64List" in fault.what
    with pytest.raises(tfr.SchemaMismatchError, match="Int64List"):
        tfr.read_table(tmp_path / "data")


def test_data_sets_below_a_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tfr.write_table(pa.table({"n": range(10)}), tmp_path / name, rows_per_task=5)
    gone, changed = (tmp_path / name / "part-00001-000.tfrecord" for name in ("one", "two"))
    gone.unlink()
    changed.write_bytes(changed.read_bytes() + FRAMES[0])
    report = tfr.verify(tmp_path)
    assert (report.files, report.records) == (3, 16)
    assert places(report) == [(str(changed), None, None), (str(gone), None, None)]


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_what_is_gone_is_told_after_another_write(data: Path, mode: str) -> None:
    cut, gone, replaced, last = (part(data, month) for month in range(4))
    cut.write_bytes(cut.read_bytes()[: ENDS[4]])
    for file in (gone, replaced, last):
        file.unlink()
    more = pa.table({"n": range(40, 50), "month": [2] * 10})
    tfr.write_table(more, data, partition_by="month", mode=mode)  # type: ignore[arg-type]
    report = tfr.verify(data)
    assert report.records == 5 + 10
    expected = [cut, gone, last] if mode == "overwrite_partitions" else [cut, gone, replaced, last]
    assert places(report) == [(str(path), None, None) for path in expected]
    assert tfr.read_table(data).num_rows == 15


def test_an_append_takes_no_name_of_a_file_that_is_gone(tmp_path: Path) -> None:
    for mode in ("error", "append"):
        tfr.write_table(pa.table({"n": range(10)}), tmp_path / "data", mode=mode)  # type: ignore[arg-type]
    gone = tmp_path / "data" / "part-00001-000.tfrecord"
    gone.unlink()
    tfr.write_table(pa.table({"n": range(10)}), tmp_path / "data", mode="append")
    assert sorted(tree(tmp_path / "data")) == [
        "_SUCCESS",
        "part-00000-000.tfrecord",
        "part-00002-000.tfrecord",
    ]
    assert places(tfr.verify(tmp_path / "data")) == [(str(gone), None, None)]


def test_what_was_removed_on_purpose_is_forgotten(data: Path) -> None:
    cut, gone, *_ = (part(data, month) for month in range(4))
    cut.write_bytes(cut.read_bytes()[: ENDS[4]])
    gone.unlink()
    before = tree(data)
    expected = ("month=0/part-00000-000.tfrecord", "month=1/part-00000-000.tfrecord")
    assert tfr.clean(data, dry_run=True, forget_missing=True).forgotten == expected
    assert tfr.clean(data) == CleanResult()
    assert tree(data) == before
    assert len(tfr.verify(data).faults) == 2

    run = runner().invoke(program, ["clean", str(data), "--forget-missing", "--yes"])
    assert (run.exit_code, json.loads(run.stdout)["forgotten"]) == (0, list(expected))
    assert tfr.verify(data).is_sound
    assert sorted(before) == sorted(tree(data))
    manifest = json.loads((data / "_SUCCESS").read_bytes())
    assert [(file["path"], file["rows"]) for file in manifest["files"]] == [
        (f"month={month}/part-00000-000.tfrecord", 10) for month in (2, 3)
    ]
    assert tfr.clean(data, forget_missing=True) == CleanResult()


class TestParts:
    """A part of a data set is held to the manifest of the whole."""

    @pytest.fixture
    def parts(self, tmp_path: Path) -> Path:
        # The name of the one folder begins that of the other.
        table = pa.table({"n": range(40), "p": [1] * 20 + [10] * 20})
        tfr.write_table(table, tmp_path / "data", partition_by="p", rows_per_task=10)
        for name in ("p=1/part-00001-000.tfrecord", "p=10/part-00003-000.tfrecord"):
            (tmp_path / "data" / name).unlink()
        return tmp_path / "data"

    def test_a_folder(self, parts: Path) -> None:
        gone = [str(parts / "p=1/part-00001-000.tfrecord")]
        assert [fault.path for fault in tfr.verify(parts / "p=1").faults] == gone

    def test_folders_that_fit_a_pattern(self, parts: Path) -> None:
        gone = ["p=1/part-00001-000.tfrecord", "p=10/part-00003-000.tfrecord"]
        found = tfr.verify(str(parts / "p=*")).faults
        assert [fault.path for fault in found] == [str(parts / name) for name in gone]

    @pytest.mark.parametrize("name", ["p=1/part-00000-000.tfrecord", "p=*/*-00000-*"])
    def test_of_files_only_they(self, parts: Path, name: str) -> None:
        file = parts / "p=1/part-00000-000.tfrecord"
        report = tfr.verify(str(parts / name))
        assert (report.is_sound, report.files, report.records) == (True, 1, 10)
        file.write_bytes(file.read_bytes()[: ENDS[4]])
        assert places(tfr.verify(str(parts / name))) == [(str(file), None, None)]

    def test_the_type_of_records(self, tmp_path: Path) -> None:
        table = pa.table({"byteArray": [b"\xff"] * 4, "p": [0, 0, 1, 1]})
        tfr.write_table(table, tmp_path / "data", partition_by="p", record_type="ByteArray")
        report = tfr.verify(tmp_path / "data" / "p=0")
        assert (report.record_type, report.is_sound) == ("ByteArray", True)


def test_what_is_no_fault_of_the_data_is_raised(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_GROUP_TASKS", 1)
    with pytest.raises(tfr.OptionError, match="gzip"):
        tfr.verify(data, compression="gzip")
    with pytest.raises(tfr.OptionError, match="codec"):
        tfr.verify(data, codec="no")  # type: ignore[arg-type]

    def overwrite(*_: int) -> None:
        tfr.write_table(pa.table({"n": range(10)}), data, mode="overwrite")

    with pytest.raises(tfr.DatasetChangedError):
        tfr.verify(data, threads=1, progress=overwrite)
    part(data, 0).parent.mkdir(exist_ok=True)
    part(data, 0).symlink_to(data / "nothing")
    with pytest.raises(tfr.LayoutError, match="leads nowhere"):
        tfr.verify(data)


def test_repaired(data: Path, tmp_path: Path) -> None:
    expected = tfr.read_table(data).to_pylist()
    size = len(FRAMES[0])
    flip(part(data, 0), 2 * size + 3)
    part(data, 1).unlink()
    seen: list[tuple[int, int]] = []
    before = tree(data)
    with pytest.warns(tfr.CorruptDataWarning):
        report = tfr.repair(data, tmp_path / "sound", progress=lambda *at: seen.append(at))
    assert places(tfr.verify(data)) == [
        (fault.path, fault.start, fault.end) for fault in report.faults
    ]
    assert [fault.path for fault in report.faults] == [str(part(data, 0)), str(part(data, 1))]
    assert (report.files, report.records) == (3, 29)
    assert report.bytes == sum(len(text) for text in data_files(tmp_path / "sound").values())
    assert tree(data) == before
    assert tfr.verify(tmp_path / "sound").is_sound
    kept = [row for row in expected if row["month"] != 1 and row["n"] != 2]
    assert tfr.read_table(tmp_path / "sound").to_pylist() == kept
    assert seen == sorted(seen)
    assert seen[0][0] == 10 * size
    # The source twice, with the damaged record.
    assert seen[-1][0] == 2 * 30 * size
    assert {of for _, of in seen} == {2 * 30 * size}
    with pytest.raises(tfr.DatasetExistsError):
        tfr.repair(data, tmp_path / "sound")


@pytest.mark.filterwarnings("ignore::tfrecord_io.CorruptDataWarning")
def test_repaired_without_a_manifest(tmp_path: Path) -> None:
    steps = pa.table({"x": [[[1], [2]], [[3]]], "f": [0.1, None], "p": ["", "b"]})
    options: Any = {"record_type": "SequenceExample", "float64": "cast"}
    tfr.write_table(steps, tmp_path / "ds", partition_by="p", empty_partition="null", **options)
    expected = tfr.read_table(tmp_path / "ds", record_type="SequenceExample")
    report = tfr.repair(tmp_path / "ds", tmp_path / "again")
    assert (report.records, report.faults) == (2, ())
    # A task of its own numbers each file.
    texts = [sorted(data_files(tmp_path / name).values()) for name in ("ds", "again")]
    assert texts[0] == texts[1]
    again = tfr.read_table(tmp_path / "again", record_type="SequenceExample")
    assert again.equals(expected)

    (tmp_path / "ds" / "_SUCCESS").unlink()
    # Others name the folder of empty texts so; it cannot be written, and null stands for it.
    (tmp_path / "ds" / "p=__HIVE_DEFAULT_PARTITION__").rename(tmp_path / "ds" / "p=")
    file = tmp_path / "ds" / "p=b" / "part-00000-000.tfrecord"
    file.write_bytes(file.read_bytes() * 2 + b"more")
    tfr.repair(tmp_path / "ds", tmp_path / "sound", record_type="SequenceExample")
    rows = tfr.read_table(tmp_path / "sound", record_type="SequenceExample").to_pylist()
    first, second = expected.to_pylist()
    assert rows == [first, second, second]
    one = tmp_path / "one.tfrecord.gz"
    report = tfr.repair(file, one, record_type="SequenceExample")
    assert (report.files, report.records, len(report.faults)) == (1, 2, 1)
    assert gzip.decompress(one.read_bytes()) == file.read_bytes()[:-4]


def test_integers_among_floats_are_not_rounded_in_silence(tmp_path: Path) -> None:
    source = tmp_path / "mixed.tfrecord"
    source.write_bytes(frame(example(x=2**24 + 1)) + frame(example(x=0.5)))
    with (
        pytest.warns(tfr.InferenceWarning, match="read as float64: 'x'"),
        pytest.warns(tfr.PrecisionWarning, match="'x'"),
    ):
        tfr.repair(source, tmp_path / "rounded")
    source.write_bytes(frame(example(x=2**24)) + frame(example(x=0.5)))
    with pytest.warns(tfr.InferenceWarning):
        tfr.repair(source, tmp_path / "exact")
    assert tfr.read_table(tmp_path / "exact")["x"].to_pylist() == [2**24, 0.5]


def test_decimals_are_repaired_without_a_warning(tmp_path: Path) -> None:
    decimals = pa.array(["0.10", "2.34"]).cast(pa.decimal128(9, 2))
    table = pa.table({"d": decimals, "x": [0.5, 2.0]})
    tfr.write_table(table, tmp_path / "ds", float64="cast")
    tfr.repair(tmp_path / "ds", tmp_path / "sound")
    assert tfr.read_table(tmp_path / "sound").equals(table)
    # Integers beside them are warned of.
    (tmp_path / "ds" / "other").write_bytes(frame(example(x=2**24 + 1)))
    with pytest.warns(tfr.PrecisionWarning, match="values of 'x' were rounded") as caught:
        tfr.repair(tmp_path / "ds", tmp_path / "rounded")
    assert [one.message.columns for one in caught] == [("x",)]  # type: ignore[union-attr]
    # And so is damage.
    (tmp_path / "ds" / "other").write_bytes(FRAMES[0][:-1])
    with pytest.warns(tfr.CorruptDataWarning, match="other: skipped"):
        tfr.repair(tmp_path / "ds", tmp_path / "again")
    assert tfr.read_table(tmp_path / "again").equals(table)


def test_what_does_not_fit_is_not_left_out(data: Path, tmp_path: Path) -> None:
    part(data, 0).write_bytes(frame(example(n="text")))
    with pytest.raises(tfr.SchemaMismatchError):
        tfr.repair(data, tmp_path / "sound")
    assert not (tmp_path / "sound").exists()
    # With a schema that all records fit it is kept.
    part(data, 0).write_bytes(frame(example(n=300)))
    wide, narrow = (
        pa.schema([("n", one), ("month", pa.int32())]) for one in (pa.int16(), pa.int8())
    )
    with pytest.raises(tfr.SchemaMismatchError, match="int8"):
        tfr.repair(data, tmp_path / "sound", schema=narrow)
    assert tfr.repair(data, tmp_path / "sound", schema=wide).records == 31
    found = tfr.read_table(tmp_path / "sound")
    assert found.schema == wide
    assert found["n"].to_pylist() == [300, *range(10, 40)]


@pytest.mark.filterwarnings("ignore::tfrecord_io.CorruptDataWarning")
def test_a_data_set_is_repaired_where_it_is(data: Path) -> None:
    flip(part(data, 0), 20)
    assert tfr.repair(data, data, mode="overwrite").records == 39
    assert tfr.verify(data).is_sound
    assert tfr.read_table(data)["n"].to_pylist() == [*range(1, 40)]


def test_on_stores(store: Server, tmp_path: Path) -> None:
    target = f"{store.url}/verify"
    options = store.storage_options
    table = pa.table({"n": range(10), "month": [1] * 5 + [2] * 5})
    tfr.write_table(table, target, partition_by="month", storage_options=options)
    report = tfr.verify(target, storage_options=options)
    assert (report.is_sound, report.files, report.records) == (True, 2, 10)
    storage, root = open_storage(target, options)
    gone = f"{root}/month=2/part-00000-000.tfrecord"
    storage.remove(gone)
    [fault] = tfr.verify(target, storage_options=options).faults
    assert fault.path == storage.url(gone)
    assert "5 records" in fault.what
    cleaned = tfr.clean(target, options, forget_missing=True)
    assert cleaned.forgotten == ("month=2/part-00000-000.tfrecord",)
    assert tfr.verify(target, storage_options=options).is_sound
    tfr.write_table(table, tmp_path / "here")
    sound = f"{store.url}/sound"
    tfr.repair(tmp_path / "here", sound, target_storage_options=options)
    assert tfr.read_table(sound, storage_options=options).equals(table)


def test_the_command(data: Path) -> None:
    done = runner().invoke(program, ["verify", str(data)])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["files"], said["records"], said["faults"]) == (0, 4, 40, [])
    flip(part(data, 1), 20)
    done = runner().invoke(program, ["verify", str(data)])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["records"]) == (1, 39)
    [fault] = said["faults"]
    assert (fault["path"], fault["start"]) == (str(part(data, 1)), 0)
    wrong = runner().invoke(program, ["verify", str(data), "--record-type", "SequenceExample"])
    assert wrong.exit_code == 1
    assert runner().invoke(program, ["verify", str(data / "no")]).exit_code == 3


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EBADMSG])
@pytest.mark.parametrize("threads", [1, 2])
def test_files_that_cannot_be_read_do_not_hide_the_others(
    data: Path, monkeypatch: pytest.MonkeyPatch, number: int, threads: int
) -> None:
    flip(part(data, 3), 20)
    unreadable = [str(part(data, month)) for month in (0, 2)]
    read_range = LocalStorage.read_range

    def refuse(storage: LocalStorage, path: str, *args: Any) -> bytes:
        if path in unreadable:
            raise OSError(number, os.strerror(number), path)
        return read_range(storage, path, *args)

    monkeypatch.setattr(LocalStorage, "read_range", refuse)
    report = tfr.verify(data, threads=threads)
    assert [fault.path for fault in report.faults] == [*unreadable, str(part(data, 3))]
    assert report.faults[0].what == f"the file cannot be read: {os.strerror(number)}"
    assert (report.files, report.records) == (4, 19)
    # A repair would leave out what may be sound.
    with pytest.raises(OSError, match=os.strerror(number)):
        tfr.repair(data, data.parent / "sound")
    assert not (data.parent / "sound").exists()


def test_what_is_the_trouble_of_all_files_is_raised(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> bytes:
        raise ConnectionResetError(errno.ECONNRESET, "gone")

    monkeypatch.setattr(LocalStorage, "read_range", refuse)
    with pytest.raises(ConnectionResetError):
        tfr.verify(data)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv.gz", "x.json/"])
def test_repaired_data_get_no_name_of_another_format(data: Path, name: str) -> None:
    target = data.parent / name
    with pytest.raises(tfr.OptionError, match="the target's name says"):
        tfr.repair(data, f"{target}/" if name.endswith("/") else target)
    assert not target.exists()


@pytest.mark.filterwarnings("ignore::tfrecord_io.CorruptDataWarning")
def test_where_no_record_is_sound_nothing_is_written(data: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "y.parquet")
    with pytest.raises(tfr.CorruptDataError, match=r"no sound record to keep.*looks like Parquet"):
        tfr.repair(tmp_path / "y.parquet", tmp_path / "sound")
    assert not (tmp_path / "sound").exists()
    # Without faults a data set without rows is repaired as any other.
    tfr.write_table(pa.table({"x": pa.array([], pa.int8())}), tmp_path / "empty")
    assert tfr.repair(tmp_path / "empty", tmp_path / "sound").records == 0
    assert tfr.read_table(tmp_path / "sound").schema == pa.schema({"x": pa.int8()})


@pytest.mark.parametrize("name", ["there", "there.tfrecord", "data/below"])
def test_a_repair_is_refused_before_anything_is_read(data: Path, tmp_path: Path, name: str) -> None:
    tfr.write_table(pa.table({"x": [1]}), tmp_path / "there")
    (tmp_path / "there.tfrecord").touch()
    seen: list[int] = []
    kind = tfr.OptionError if name.startswith("data") else tfr.DatasetExistsError
    with pytest.raises(kind):
        tfr.repair(data, tmp_path / name, progress=lambda *_: seen.append(1))
    assert not seen


def test_the_command_repair(data: Path, tmp_path: Path) -> None:
    flip(part(data, 1), 20)
    arguments = ["repair", str(data), str(tmp_path / "sound"), "--compression", "gzip"]
    done = runner().invoke(program, arguments)
    said = json.loads(done.stdout)
    assert (done.exit_code, said["files"], said["records"]) == (0, 4, 39)
    [fault] = said["faults"]
    assert (fault["path"], fault["start"]) == (str(part(data, 1)), 0)
    assert tfr.read_table(tmp_path / "sound").num_rows == 39
    texts = map(gzip.decompress, data_files(tmp_path / "sound").values())
    assert b"".join(texts) == b"".join(frame(example(n=n)) for n in range(40) if n != 10)
    assert runner().invoke(program, arguments).exit_code == 4


def test_the_command_tells_paths_that_are_no_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "a\udcff"
    folder.mkdir()
    (folder / "b").write_bytes(FRAMES[0][:-1])
    done = runner().invoke(program, ["verify", str(folder)])
    [fault] = json.loads(done.stdout)["faults"]
    assert (done.exit_code, fault["path"]) == (1, str(folder / "b"))


def test_warnings_tell_the_ranges(data: Path) -> None:
    file = part(data, 0)
    flip(file, 20)
    with pytest.warns(tfr.CorruptDataWarning) as caught:
        tfr.read_table(file, on_corrupt="skip_record")
    [warning] = [one.message for one in caught]
    assert isinstance(warning, tfr.CorruptDataWarning)
    [(start, end, what)] = warning.ranges
    assert (start, end) == (0, len(frame(example(n=0))))
    assert "payload" in what
