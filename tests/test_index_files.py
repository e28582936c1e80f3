"""Index files: their text, what they are good for, and which are refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tfrecord_io as tfr
from tests.support.servers import Server
from tfrecord_io.cli.main import program

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
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(tfr.TruncatedRecordError, match=r"data\.tfrecord, byte offset 1051"):
        tfr.write_index(file, tmp_path / "a.idx")
    assert not (tmp_path / "a.idx").exists()
    with pytest.raises(FileNotFoundError):
        tfr.write_index(tmp_path / "none", tmp_path / "a.idx")


def test_stores(store: Server) -> None:
    options = dict(store.storage_options)
    with tfr.TFRecordWriter(f"{store.url}/a", storage_options=options) as writer:
        writer.write(b"one")
    tfr.write_index(f"{store.url}/a", f"{store.url}/index/a.idx", storage_options=options)
    reader = tfr.TFRecordReader(
        f"{store.url}/a", index=f"{store.url}/index/a.idx", storage_options=options
    )
    assert list(reader) == [b"one"]
    assert reader[0] == b"one"


def test_the_command(file: Path, tmp_path: Path) -> None:
    words = ["index", str(file), str(tmp_path / "a.idx")]
    done = CliRunner().invoke(program, words)
    assert (done.exit_code, json.loads(done.output)) == (0, {"files": 1, "records": 4})
    assert (tmp_path / "a.idx").read_bytes() == TEXT
