"""Index files: their text, what they are good for, and which are refused."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import tracemalloc
from array import array
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from click.testing import CliRunner

import tfrecord_io as tfr
from tests.support.servers import Server
from tfrecord_io.cli.main import program
from tfrecord_io.plan import ScanFile
from tfrecord_io.records import index_files
from tfrecord_io.records.index_files import format_index, parse_index

RECORDS = [b"", b"one", b"x" * 1000, b"four"]
# Offset and size of each frame: 16 bytes and the payload.
TEXT = b"0 16\n16 19\n35 1016\n1051 20\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.tfrecord"
    with tfr.TFRecordWriter(path) as writer:
        for record in RECORDS:
            writer.write(record)
    return path


def test_the_text(file: Path, tmp_path: Path) -> None:
    result = tfr.write_index(file, tmp_path / "data.idx")
    assert result == tfr.IndexResult(files=1, records=4)
    assert (tmp_path / "data.idx").read_bytes() == TEXT


def test_an_index_of_many_records_takes_little_more_memory_than_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_files, "_RUN_LINES", 1000)
    starts = array("Q", range(0, 30_001 * 20, 20))
    text = b"".join(b"%d 20\n" % start for start in starts[:-1])
    file = ScanFile(location=0, path="f", url="f", size=starts[-1], version="")
    # What is imported for it does not count.
    format_index(starts[:2])
    tracemalloc.start()
    try:
        assert format_index(starts) == text
        assert parse_index(text, file, "i") == starts
        assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    finally:
        tracemalloc.stop()


def test_it_is_what_the_tfrecord_package_writes(file: Path, tmp_path: Path) -> None:
    import runpy

    tools = pytest.importorskip("importlib.util").find_spec("tfrecord").submodule_search_locations
    # As a file: importing the package would load messages that clash with TensorFlow's.
    module = runpy.run_path(str(Path(tools[0]) / "tools" / "tfrecord2idx.py"))
    module["create_index"](str(file), str(tmp_path / "theirs"))
    assert (tmp_path / "theirs").read_bytes() == TEXT


def test_a_reader_takes_places_from_it(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(TEXT)
    reader = tfr.TFRecordReader(file, index=tmp_path / "a.idx")
    # Damage that hopping over the file would meet is not met.
    data = bytearray(file.read_bytes())
    data[16] ^= 1
    with file.open("r+b") as handle:
        handle.write(data)
    (tmp_path / "a.idx").touch()
    again = tfr.TFRecordReader(file, index=tmp_path / "a.idx")
    assert (len(again), again[3], again[-2]) == (4, b"four", RECORDS[2])
    with pytest.raises(tfr.ChecksumError, match=r"data.tfrecord, byte offset 16, record 1\]"):
        again[1]
    with pytest.raises(tfr.ChecksumError):
        len(tfr.TFRecordReader(file))
    assert pickle.loads(pickle.dumps(again))[3] == b"four"
    assert len(reader) == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "that of another file"),
        (TEXT[:-8], "ends at byte 1051, and .*data.tfrecord at byte 1071"),
        (TEXT + b"1071 20\n", "that of another file"),
        (b"16 19\n", "line 1 .* a record of 19 bytes at 16, and the one before it ends at 0"),
        (b"0 15\n", "line 1 .* a record of 15 bytes"),
        (b"0 99999\n", "line 1 .* a record of 99999 bytes"),
        (b"0 16\n16 x\n", r"line 2 of the index is b'16 x'"),
        (b"0\n", "line 1 of the index"),
        (b"\xff\xfe\n", "line 1 of the index"),
    ],
)
def test_an_index_of_another_file(file: Path, tmp_path: Path, text: bytes, what: str) -> None:
    (tmp_path / "a.idx").write_bytes(text)
    with pytest.raises(tfr.CorruptDataError, match=rf"{what}.*write the index again.*a\.idx\]"):
        tfr.TFRecordReader(file, index=tmp_path / "a.idx")


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        # Two records as one, and one as two.
        (b"0 16\n16 1035\n1051 20\n", 1),
        (b"0 35\n35 1016\n1051 20\n", 0),
        (b"0 16\n16 19\n35 16\n51 1000\n1051 20\n", 2),
    ],
)
def test_an_index_that_cuts_elsewhere(file: Path, tmp_path: Path, text: bytes, bad: int) -> None:
    (tmp_path / "a.idx").write_bytes(text)
    reader = tfr.TFRecordReader(file, index=tmp_path / "a.idx")
    assert reader[-1] == b"four"
    with pytest.raises(tfr.CorruptDataError, match=rf"index.*write the index again.*{file},") as e:
        reader[bad]
    assert e.value.record == bad
    with pytest.raises(tfr.CorruptDataError):
        reader[:]


def test_an_index_that_is_older_than_its_file(file: Path, tmp_path: Path) -> None:
    tfr.write_index(file, tmp_path / "a.idx")
    with tfr.TFRecordWriter(file) as writer:
        # As long as before, and the last record begins where it did.
        for record in (b"x" * 1035, b"four"):
            writer.write(record)
    with pytest.warns(tfr.TFRecordWarning, match=r"a\.idx is older .*data\.tf.*write .*again"):
        assert tfr.TFRecordReader(file, index=tmp_path / "a.idx")[3] == b"four"
    with pytest.warns(tfr.TFRecordWarning, match=r"a\.idx is older"):
        tfr.read_tfrecord(file, record_type="ByteArray", index=tmp_path / "a.idx", blocksize=100)
    os.utime(tmp_path / "a.idx", ns=(0, file.stat().st_mtime_ns))
    tfr.TFRecordReader(file, index=tmp_path / "a.idx")


def test_a_data_set_has_an_index_for_each_file(tmp_path: Path) -> None:
    table = pa.table({"x": range(100), "p": ["a", "b"] * 50})
    tfr.write_table(table, tmp_path / "data", partition_by="p", rows_per_task=30)
    result = tfr.write_index(tmp_path / "data", tmp_path / "index")
    assert result == tfr.IndexResult(files=8, records=100)
    data = {str(path.relative_to(tmp_path / "data")) for path in tmp_path.glob("data/p=*/*")}
    found = {str(path.relative_to(tmp_path / "index")) for path in tmp_path.glob("index/p=*/*")}
    assert found == {f"{name}.idx" for name in data}
    counts = [
        len(tfr.TFRecordReader(tmp_path / "data" / name, index=tmp_path / "index" / f"{name}.idx"))
        for name in data
    ]
    assert sum(counts) == 100


def test_a_folder_with_one_file_has_a_folder_of_indexes(file: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    file.rename(tmp_path / "data" / file.name)
    tfr.write_index(tmp_path / "data", tmp_path / "index")
    assert files_of(tmp_path / "index") == {"data.tfrecord.idx": TEXT}


def test_rows_are_counted_by_the_index(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(TEXT)
    options = {"record_type": "ByteArray", "blocksize": 100}
    frame = tfr.read_tfrecord(file, index=tmp_path / "a.idx", **options)
    assert len(frame) == len(RECORDS)


def test_files_of_a_list_have_a_folder_of_indexes(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tfrecord"
    shutil.copy(file, other)
    assert tfr.write_index([file, other], tmp_path / "index").files == 2
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert names == ["data.tfrecord.idx", "other.tfrecord.idx"]
    for paths in ([file, other], [other, file], [other]):
        frame = tfr.read_tfrecord(
            paths, index=tmp_path / "index", record_type="ByteArray", blocksize=100
        )
        assert len(frame) == len(RECORDS) * len(paths)


def test_an_index_that_would_be_read_as_data(tmp_path: Path) -> None:
    tfr.write_table(pa.table({"x": range(4)}), tmp_path / "data", rows_per_task=2)
    for target in ("data", "data/index"):
        with pytest.raises(tfr.OptionError, match="folder of the data"):
            tfr.write_index(tmp_path / "data", tmp_path / target)
    for target in ("data/_index", "data-index"):
        assert tfr.write_index(tmp_path / "data", tmp_path / target).files == 2
    assert tfr.read_table(tmp_path / "data")["x"].to_pylist() == [0, 1, 2, 3]
    # A pattern fits the data alone.
    assert tfr.write_index(f"{tmp_path}/data/*.tfrecord", tmp_path / "data").files == 2


def test_an_index_that_would_be_read_as_data_of_another_source(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with tfr.TFRecordWriter(tmp_path / f"{name}.tfrecord") as writer:
            writer.write(b"x")
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.tfrecord").rename(tmp_path / name / f"{name}.tfrecord")
    both = [tmp_path / "a", tmp_path / "b"]
    for source in (both, [tmp_path / "a" / "a.tfrecord", tmp_path / "b"], f"{tmp_path}/[ab]"):
        with pytest.raises(tfr.OptionError, match="folder of the data"):
            tfr.write_index(source, tmp_path / "b")
    assert tfr.write_index(both, tmp_path / "b" / "_index").files == 2


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert tfr.write_index(tmp_path / "a", tmp_path / "b").records == 0
    assert (tmp_path / "b").read_bytes() == b""
    assert list(tfr.TFRecordReader(tmp_path / "a", index=tmp_path / "b")) == []


def test_bad_sources(file: Path, tmp_path: Path) -> None:
    with tfr.TFRecordWriter(tmp_path / "z.gz", "GZIP") as writer:
        writer.write(b"x")
    with pytest.raises(tfr.OptionError, match="compressed with gzip"):
        tfr.write_index(tmp_path / "z.gz", tmp_path / "z.idx")
    with pytest.raises(tfr.OptionError, match="would have one index"):
        tfr.write_index([file, file], tmp_path / "index")
    with pytest.raises(tfr.LimitExceededError, match=r"max_record_bytes.*byte offset 35"):
        tfr.write_index(file, tmp_path / "a.idx", limits=tfr.Limits(max_record_bytes=999))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(tfr.TruncatedRecordError, match=r"data\.tfrecord, byte offset 1051"):
        tfr.write_index(file, tmp_path / "a.idx")
    assert not (tmp_path / "a.idx").exists()
    with pytest.raises(FileNotFoundError):
        tfr.write_index(tmp_path / "none", tmp_path / "a.idx")


def files_of(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def test_nothing_but_an_index_is_replaced(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "b.tfrecord")
    (tmp_path / "sizes.txt").write_text("640 480\n")
    before = files_of(tmp_path)
    other, text = tmp_path / "b.tfrecord", tmp_path / "sizes.txt"
    for target in (other, text, tmp_path):
        with pytest.raises(tfr.DatasetExistsError, match=rf"no index.*another target.*{target}\]"):
            tfr.write_index(file, target)
    with pytest.raises(tfr.OptionError, match=rf"target is one of the sources.*{file}\]"):
        tfr.write_index(file, file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(tfr.DatasetExistsError, match="link"):
        tfr.write_index(file, tmp_path / "link")
    (tmp_path / "link").unlink()
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("old", [b"", b"0 99\n99 18\n", b"0 99\r\n"])
def test_an_index_is_replaced(file: Path, tmp_path: Path, old: bytes) -> None:
    (tmp_path / "a.idx").write_bytes(old)
    tfr.write_index(file, tmp_path / "a.idx")
    assert (tmp_path / "a.idx").read_bytes() == TEXT


def test_an_index_without_room_leaves_the_one_before(file: Path, tmp_path: Path) -> None:
    before = {**files_of(tmp_path), "a.idx": b"0 99\n"}
    (tmp_path / "a.idx").write_bytes(before["a.idx"])
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(TEXT) // 2, old[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            tfr.write_index(file, tmp_path / "a.idx")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert caught.value.filename == str(tmp_path / "a.idx")
    assert files_of(tmp_path) == before


def test_a_file_is_cut_where_records_start(tmp_path: Path) -> None:
    """At the first one behind each MiB, once, and not at the end of the file."""
    large = bytes(3 * 2**20)
    with tfr.TFRecordWriter(tmp_path / "a") as writer:
        for record in (large, b"x", large):
            writer.write(record)
    tfr.write_index(tmp_path / "a", tmp_path / "i")
    size = (tmp_path / "a").stat().st_size
    file = ScanFile(location=0, path=str(tmp_path / "a"), url="a", size=size, version="")
    found = index_files.described_by(tmp_path / "i", None)(str(tmp_path / "a"), file)
    # 16 bytes are around a payload.
    first = len(large) + 16
    assert (found.rows, found.marks) == (3, ((first, 1),))


def test_one_target_that_is_refused_keeps_all_from_being_written(
    file: Path, tmp_path: Path
) -> None:
    shutil.copy(file, tmp_path / "e.tfrecord")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "e.tfrecord.idx").write_text("notes")
    before = files_of(tmp_path)
    with pytest.raises(tfr.DatasetExistsError, match=r"e\.tfrecord\.idx\]"):
        tfr.write_index(f"{tmp_path}/*.tfrecord", tmp_path / "index", threads=1)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_leaves_nothing(file: Path, tmp_path: Path, threads: int) -> None:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    file.rename(data / "a.tfrecord")
    with tfr.TFRecordWriter(data / "sub" / "z", "GZIP") as writer:
        writer.write(b"x")
    (tmp_path / "old").mkdir()
    before = files_of(tmp_path)
    for folder in ("old", "new"):
        with pytest.raises(tfr.OptionError, match="compressed with gzip"):
            tfr.write_index(data, tmp_path / folder / "index", threads=threads)
    assert files_of(tmp_path) == before
    # What was there before stays: folders, files of others, and older indexes.
    (data / "sub" / "z").write_bytes((data / "a.tfrecord").read_bytes()[:-1])
    (tmp_path / "index" / "sub").mkdir(parents=True)
    (tmp_path / "index" / "notes").write_text("notes")
    (tmp_path / "index" / "sub" / "z.idx").write_bytes(b"0 16\n")
    before = files_of(tmp_path)
    with pytest.raises(tfr.TruncatedRecordError, match="sub/z"):
        tfr.write_index(data, tmp_path / "index", threads=threads)
    assert files_of(tmp_path) == before


def test_stores(store: Server) -> None:
    options = dict(store.storage_options)
    with tfr.TFRecordWriter(f"{store.url}/a", storage_options=options) as writer:
        writer.write(b"one")
    tfr.write_index(f"{store.url}/a", f"{store.url}/index/a.idx", storage_options=options)
    # And no mark of a folder beside it.
    filesystem, place = fsspec.core.url_to_fs(f"{store.url}/index", **options)
    assert [found.rpartition("/")[2] for found in filesystem.find(place)] == ["a.idx"]
    reader = tfr.TFRecordReader(
        f"{store.url}/a", index=f"{store.url}/index/a.idx", storage_options=options
    )
    assert list(reader) == [b"one"]
    assert reader[0] == b"one"
    with pytest.raises(tfr.OptionError, match="one of the sources"):
        tfr.write_index(f"{store.url}/a", f"{store.url}/a", storage_options=options)
    with tfr.TFRecordWriter(f"{store.url}/b", storage_options=options) as writer:
        writer.write(b"two")
    for other in ("b", "index"):
        with pytest.raises(tfr.DatasetExistsError, match=f"no index.*{other}]"):
            tfr.write_index(f"{store.url}/a", f"{store.url}/{other}", storage_options=options)
    both, index = f"{store.url}/[ab]", f"{store.url}/index/a.idx"
    with pytest.raises(tfr.DatasetExistsError, match=r"is a file.*folder"):
        tfr.write_index(both, index, storage_options=options)
    # Twice: what is there is an index.
    tfr.write_index(f"{store.url}/a", f"{store.url}/index/a.idx", storage_options=options)


def test_the_command(file: Path, tmp_path: Path) -> None:
    words = ["index", str(file), str(tmp_path / "a.idx")]
    done = CliRunner().invoke(program, words)
    assert (done.exit_code, json.loads(done.output)) == (0, {"files": 1, "records": 4})
    assert (tmp_path / "a.idx").read_bytes() == TEXT


def test_a_forgotten_target(file: Path, tmp_path: Path) -> None:
    for name in ("b", "c"):
        shutil.copy(file, tmp_path / f"{name}.tfrecord")
    b, c = tmp_path / "b.tfrecord", tmp_path / "c.tfrecord"
    before = files_of(tmp_path)
    for words, code in (([file, b], 4), ([file, b, c], 4), ([file, b, b], 2), ([file, file], 2)):
        done = CliRunner().invoke(program, ["index", *map(str, words)])
        assert done.exit_code == code
        assert files_of(tmp_path) == before
