"""Single files of records, as bytes, in tf.io's names."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import mmap
import os
import pickle
import random
import resource
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.support.servers import Server
from tfrecord_io.codec import get_codec
from tfrecord_io.codec.reference import frame
from tfrecord_io.reading import ranges, source
from tfrecord_io.reading.source import OpenFile
from tfrecord_io.records import writer as writing
from tfrecord_io.storage import generic, open_storage, remote_sink

RECORDS = [b"", b"one", bytes(range(256)) * 100, b"four"] * 3


def framed(records: list[bytes]) -> bytes:
    return b"".join(map(frame, records))


def write(path: object, records: list[bytes] = RECORDS, options: object = None) -> None:
    with tfr.TFRecordWriter(path, options) as writer:  # type: ignore[arg-type]
        for record in records:
            writer.write(record)


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [None, "", 0, tfr.TFRecordOptions(), tfr.TFRecordOptions("")])
def test_plain_files_hold_the_frames(tmp_path: Path, options: object) -> None:
    write(tmp_path / "a", options=options)
    assert (tmp_path / "a").read_bytes() == framed(RECORDS)


def test_many_records_of_all_sizes_stay_in_order(tmp_path: Path) -> None:
    # Over the bounds of what waits: by number, by bytes, and by one large record.
    records = [bytes([n % 256]) * (n % 7) for n in range(5000)] + [bytes(300_000), b"x"] * 3
    with tfr.TFRecordWriter(tmp_path / "a") as writer:
        for number, record in enumerate(records):
            writer.write(record)
            if number % 977 == 0:
                writer.flush()
    assert (tmp_path / "a").read_bytes() == framed(records)


@pytest.mark.parametrize(
    ("options", "unpack"),
    [
        ("GZIP", gzip.decompress),
        (2, gzip.decompress),
        (tfr.TFRecordOptions("GZIP", compression_level=9, window_bits=31), gzip.decompress),
        (tfr.TFRecordOptions("GZIP", window_bits=9), gzip.decompress),
        ("ZLIB", zlib.decompress),
        (tfr.TFRecordOptions(tfr.TFRecordOptions("ZLIB"), mem_level=1), zlib.decompress),
        (tfr.TFRecordOptions(1, compression_level=0, compression_strategy=2), zlib.decompress),
    ],
)
def test_compressed_files(tmp_path: Path, options: object, unpack: object) -> None:
    write(tmp_path / "a", options=options)
    data = (tmp_path / "a").read_bytes()
    assert unpack(data) == framed(RECORDS)  # type: ignore[operator]
    assert list(tfr.TFRecordReader(tmp_path / "a")) == RECORDS
    assert list(tfr.TFRecordReader(tmp_path / "a", options)) == RECORDS


def test_the_level_counts(tmp_path: Path) -> None:
    for level in (1, 9):
        options = tfr.TFRecordOptions("GZIP", compression_level=level)
        write(tmp_path / str(level), [bytes(range(200)) * 500] * 5, options)
    assert (tmp_path / "9").stat().st_size < (tmp_path / "1").stat().st_size


@pytest.mark.parametrize("options", [None, "GZIP", "ZLIB"])
def test_no_records(tmp_path: Path, options: object) -> None:
    write(tmp_path / "a", [], options)
    assert list(tfr.TFRecordReader(tmp_path / "a", options)) == []
    assert len(tfr.TFRecordReader(tmp_path / "a")) == 0


@pytest.mark.parametrize(
    "record",
    [
        bytearray(b"abc"),
        memoryview(b"abc"),
        pa.py_buffer(b"abc"),
        np.frombuffer(b"abc", [("O", "S3")]),
    ],
)
def test_anything_like_bytes_is_taken_as_it_is_now(tmp_path: Path, record: object) -> None:
    with tfr.TFRecordWriter(tmp_path / "a") as writer:
        writer.write(record)  # type: ignore[arg-type]
        if isinstance(record, bytearray):
            record[0] = 0
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"abc"]


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ("a\ud800", r"character 1 is '\\ud800'; write it encoded"),
        (None, "NoneType"),
        (7, "int"),
        (tfr.train.Example(), "Serialize"),
        (np.array(b"text", object), "holds objects"),
        (np.zeros(1, [("a", object)]), "holds objects"),
        (np.array(["2026-01-01"], "M8[D]"), "ndarray"),
    ],
)
def test_what_is_not_bytes_is_refused(tmp_path: Path, record: object, what: str) -> None:
    with tfr.TFRecordWriter(tmp_path / "a") as writer:
        writer.write(b"before")
        with pytest.raises(TypeError, match=what):
            writer.write(record)  # type: ignore[arg-type]
        writer.write(b"after")
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"before", b"after"]


def test_a_record_that_no_reader_takes_is_refused(tmp_path: Path) -> None:
    with tfr.TFRecordWriter(tmp_path / "a") as writer:
        writer.write(b"one")
        with pytest.raises(tfr.LimitExceededError, match=r"2147483648 bytes.*split it.*/a\]"):
            # Zeros that nobody has written to take no memory.
            writer.write(bytes(2**31))
        writer.write(b"two")
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"one", b"two"]


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    writer = tfr.TFRecordWriter(tmp_path / "a")
    writer.write(b"x")
    writer.close()
    writer.close()
    for act in (lambda: writer.write(b""), writer.flush):
        with pytest.raises(tfr.ClosedError, match=r"Writer is closed.*open another.*a\]"):
            act()
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"x"]


@pytest.mark.parametrize("options", ["gzip", "SNAPPY", 7, object(), 1.5])
def test_unknown_compressions(tmp_path: Path, options: object) -> None:
    for make in (tfr.TFRecordWriter, tfr.TFRecordReader):
        with pytest.raises(ValueError, match=r"Not a valid compression_type.*\"GZIP\", \"ZLIB\""):
            make(tmp_path / "a", options)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "numbers",
    [
        {"compression_level": 99},
        {"window_bits": 40},
        {"mem_level": 0},
        {"compression_strategy": -1},
        {"compression_method": 3},
    ],
)
def test_numbers_that_zlib_does_not_have(numbers: dict[str, int]) -> None:
    with pytest.raises(tfr.OptionError, match=f"{next(iter(numbers))} is .*must be one of"):
        tfr.TFRecordOptions("GZIP", **numbers)


def test_places_that_take_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tfr.TFRecordWriter(tmp_path / "none" / "a")
    with pytest.raises(IsADirectoryError):
        tfr.TFRecordWriter(tmp_path)
    with pytest.raises(FileNotFoundError):
        tfr.TFRecordReader(tmp_path / "none")


@pytest.mark.parametrize("options", ["", "GZIP", "ZLIB"])
def test_a_killed_writer_leaves_what_it_flushed(tmp_path: Path, options: str) -> None:
    code = (
        "import os, sys, tfrecord_io as tfr\n"
        "writer = tfr.TFRecordWriter(*sys.argv[1:])\n"
        "writer.write(b'one')\nwriter.write(b'two')\nwriter.flush()\nwriter.write(b'lost')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a"), options], check=False)
    reader = iter(tfr.TFRecordReader(tmp_path / "a", options))
    assert [next(reader), next(reader)] == [b"one", b"two"]
    if options:
        with pytest.raises(tfr.CompressionError, match="ends early"):
            next(reader)
    else:
        assert list(reader) == []


def test_a_forgotten_writer_closes_its_file(tmp_path: Path) -> None:
    tfr.TFRecordWriter(tmp_path / "a", "GZIP").write(b"x")
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"x"]


HELD = """
import sys, tfrecord_io as tfr
class Log:
    def __init__(self, *options):
        self.writer = tfr.TFRecordWriter(*options)
    def log(self, record):
        self.writer.write(record)
log = Log(*sys.argv[1:])
log.log(b"one")
"""


@pytest.mark.parametrize("options", ["", "GZIP"])
def test_a_writer_that_is_held_to_the_end_closes_its_file(tmp_path: Path, options: str) -> None:
    """TensorFlow's does; modules are cleared when nothing can be imported any more."""
    run = [sys.executable, "-c", HELD, str(tmp_path / "a"), options]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"one"]


def test_what_keeps_a_held_writer_from_its_end_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD, "/dev/full"], check=False, capture_output=True, text=True
    )
    assert "No space left on device: '/dev/full'" in done.stderr


@pytest.mark.parametrize("options", ["", "GZIP"])
def test_a_file_without_room_is_closed(options: str) -> None:
    writer = tfr.TFRecordWriter("/dev/full", options)
    writer.write(b"x")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        writer.close()
    writer.close()
    with pytest.raises(tfr.ClosedError, match="Writer is closed"):
        writer.write(b"y")


def test_a_quota_that_is_told_at_the_end_is_told_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As close(2) has it for NFS."""

    class OverQuota(io.FileIO):
        def close(self) -> None:
            if not self.closed:
                super().close()
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(
        writing, "open", lambda path, *_, **__: OverQuota(path, "wb"), raising=False
    )
    made = tfr.TFRecordWriter(tmp_path / "a")
    made.write(b"x")
    with pytest.raises(OSError, match=f"quota exceeded: '{tmp_path}/a'"):
        made.close()


@pytest.mark.parametrize("options", ["", "GZIP"])
def test_a_file_that_lacks_records_takes_no_more(tmp_path: Path, options: str) -> None:
    """What came behind the part of a record that is there could not be read."""
    writer = tfr.TFRecordWriter(tmp_path / "a", options)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.write(random.Random(0).randbytes(300_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    for end in (writer.flush, lambda: writer.write(bytes(300_000)), writer.close):
        with pytest.raises(OSError, match="too large"):
            end()
    assert (tmp_path / "a").stat().st_size == 1000


def test_a_remote_file_that_cannot_be_ended_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, data: object) -> None:
        raise OSError(errno.EIO, "the store is gone")

    url = f"memory://records-{uuid.uuid4().hex}/a"
    writer = tfr.TFRecordWriter(url)
    writer.write(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(remote_sink.RemoteSink, "write", fail)
        with pytest.raises(OSError, match="the store is gone"):
            writer.close()
    writer.close()
    assert not fsspec.filesystem("memory").find(url.rpartition("/")[0])


def test_a_remote_file_of_which_a_part_cannot_be_sent_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parts before it are there already, and would be taken for a file."""

    def fail(self: object) -> str:
        raise OSError(errno.EIO, "the store is gone")

    url = f"memory://records-{uuid.uuid4().hex}/a"
    writer = tfr.TFRecordWriter(url)
    for _ in range(3):
        writer.write(bytes(8 * 1024 * 1024))
    with monkeypatch.context() as patch:
        patch.setattr(generic._Stream, "finish", fail)
        with pytest.raises(OSError, match="the store is gone"):
            writer.close()
    assert not fsspec.filesystem("memory").find(url.rpartition("/")[0])


def test_a_remote_file_that_lacks_a_part_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves the block closes the file, by the error that tells of it as well."""
    write_part, left = generic._Stream.add, [1]

    def fail_once(self: Any, pieces: Any) -> None:
        if left:
            left.clear()
            raise OSError(errno.EIO, "the store is gone")
        write_part(self, pieces)

    url = f"memory://records-{uuid.uuid4().hex}/a"
    monkeypatch.setattr(generic._Stream, "add", fail_once)
    with (
        pytest.raises(OSError, match="the store is gone"),
        tfr.TFRecordWriter(url) as writer,
    ):
        for _ in range(2):
            with contextlib.suppress(OSError):
                writer.write(bytes(8 * 1024 * 1024))
    assert not left
    assert not fsspec.filesystem("memory").find(url.rpartition("/")[0])


@pytest.mark.parametrize("end", ["", "/"])
def test_a_bucket_is_no_file(s3_server: Server, end: str) -> None:
    options = s3_server.storage_options
    url = f"s3://{s3_server.url.split('/')[2]}"
    for make in (tfr.TFRecordWriter, tfr.TFRecordReader):
        with pytest.raises(IsADirectoryError, match="Is a directory") as caught:
            make(f"{url}{end}", storage_options=options)
        assert caught.value.filename == url
    storage, root = open_storage(url, options)
    assert storage.exists(root)


def test_an_upload_that_cannot_be_ended_is_aborted(
    s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, staged: str, final: str) -> None:
        raise OSError(errno.EIO, "the store is gone")

    url = f"{s3_server.url}/{uuid.uuid4().hex}/a"
    storage, path = open_storage(url, s3_server.storage_options)
    folder = path.rpartition("/")[0]
    writer = tfr.TFRecordWriter(url, storage_options=s3_server.storage_options)
    writer.write(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "publish", fail)
        with pytest.raises(OSError, match="the store is gone"):
            writer.close()
    assert storage.uploads(folder) == []
    assert not storage.exists(path)


def test_a_forked_process_does_not_write_what_waits(tmp_path: Path) -> None:
    code = (
        HELD + "import os\nif os.fork() == 0:\n    sys.exit()\n"
        "os.wait()\nlog.log(b'two')\nlog.writer.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True)
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"one", b"two"]


def test_a_process_that_was_forked_twice_goes_on_with_what_waited(tmp_path: Path) -> None:
    """As a daemon is begun."""
    code = (
        HELD + "import os\nif os.fork() or os.fork():\n    os.wait()\n    os._exit(0)\n"
        "log.log(b'two')\nlog.writer.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True)
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"one", b"two"]


FORKED = """
import os, sys
import tfrecord_io as tfr
def main(path, options, *, goes_on):
    with tfr.TFRecordWriter(path, options) as writer:
        writer.write(b"one")
        if os.fork() == 0:
            if goes_on:
                writer.write(b"two")
            else:
                writer.flush()
            sys.exit()
        os.wait()
        if goes_on:
            os._exit(0)
        writer.write(b"two")
main(*sys.argv[1:3], goes_on=sys.argv[3] == "child")
"""


@pytest.mark.parametrize("goes_on", ["parent", "child"])
@pytest.mark.parametrize("options", ["", "GZIP"])
def test_a_writer_in_a_forked_process_is_of_who_goes_on(
    tmp_path: Path, options: str, goes_on: str
) -> None:
    run = [sys.executable, "-W", "error", "-c", FORKED, str(tmp_path / "a"), options, goes_on]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"one", b"two"]


def test_an_exception_in_the_block_keeps_what_was_written(tmp_path: Path) -> None:
    with pytest.raises(KeyError), tfr.TFRecordWriter(tmp_path / "a") as writer:
        writer.write(b"x")
        raise KeyError
    assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"x"]


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [None, "GZIP", "ZLIB"])
def test_random_access(tmp_path: Path, options: object) -> None:
    write(tmp_path / "a", options=options)
    with tfr.TFRecordReader(tmp_path / "a") as reader:
        assert len(reader) == len(RECORDS)
        for index in (3, 0, -1, 11, 5, 5, 4):
            assert reader[index] == RECORDS[index]
        assert reader[2:9:3] == RECORDS[2:9:3]
        assert list(reversed(reader)) == RECORDS[::-1]
        assert b"four" in reader
        assert list(reader) == RECORDS
        for index in (12, -13):
            with pytest.raises(IndexError, match="the file has 12"):
                reader[index]
        for other in (1.5, "a", None):
            with pytest.raises(TypeError, match="as an integer"):
                reader[other]  # type: ignore[call-overload]


@pytest.mark.parametrize("options", ["", "GZIP", "ZLIB"])
def test_a_forked_process_and_its_parent_go_on_by_themselves(tmp_path: Path, options: str) -> None:
    """As TensorFlow's readers do, which share no place in the file either."""
    records = [random.Random(number).randbytes(500_000) for number in range(12)]
    write(tmp_path / "a", records, options)
    code = (
        "import os, sys\nimport tfrecord_io as tfr\n"
        "found = iter(tfr.TFRecordReader(sys.argv[1]))\nnext(found)\n"
        "child = os.fork()\ncount = len(list(found))\n"
        "if child == 0:\n    os._exit(count)\n"
        "print(count, os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "a")]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stdout == "11 11\n"


def test_random_access_goes_on_in_a_forked_process(tmp_path: Path) -> None:
    """Of a compressed file in a store ranges are on their way, by threads that stay behind."""
    write(tmp_path / "a", [random.Random(number).randbytes(500_000) for number in range(6)], "GZIP")
    code = (
        "import os, sys\nimport fsspec\nimport tfrecord_io as tfr\n"
        "from tfrecord_io.reading import ranges, source\n"
        "ranges._RANGE_BYTES = source._CHUNK_BYTES = 100_000\n"
        "fsspec.filesystem('memory').put_file(sys.argv[1], '/a')\n"
        "reader = tfr.TFRecordReader('memory://a')\n_, end = reader.read(0)\n"
        "child, sizes = os.fork(), []\n"
        "while len(sizes) < 5:\n"
        "    record, end = reader.read(end)\n"
        "    sizes.append(len(record))\n"
        "if child == 0:\n    os._exit(len(sizes))\n"
        "print(sizes, os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "a")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{[500_000] * 5} 5\n", done.stderr


@pytest.mark.parametrize("size", [10, 1000])
def test_a_plain_file_is_opened_once_for_records_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A small one is held, a large one is mapped."""
    records = [bytes([number]) * size for number in range(256)]
    with tfr.TFRecordWriter(tmp_path / "a") as writer:
        for record in records:
            writer.write(record)
    with tfr.TFRecordReader(tmp_path / "a") as reader:
        assert len(reader) == len(records)
        opened = []
        begin = OpenFile.__init__
        monkeypatch.setattr(
            OpenFile, "__init__", lambda self, *a, **k: (opened.append(a), begin(self, *a, **k))[0]
        )
        assert [reader[number] for number in reversed(range(256))] == records[::-1]
    assert len(opened) == 1


@pytest.mark.parametrize("options", [None, "GZIP"])
def test_random_access_to_large_records(tmp_path: Path, options: object) -> None:
    """Larger than what is fetched, decompressed, or taken from a file at a time."""
    records = [random.Random(size).randbytes(size) for size in (100_000, 300_000, 5_000_000, 1)]
    for path in (tmp_path / "a", f"memory://records-{uuid.uuid4().hex}/a"):
        write(path, records, options)
        with tfr.TFRecordReader(path, options) as reader:
            assert [reader[number] for number in (3, 2, 1, 0)] == records[::-1]
            offset, found = 0, []
            for _ in records:
                record, offset = reader.read(offset)
                found.append(record)
            assert found == records
            with pytest.raises(IndexError, match="the file ends at or before"):
                reader.read(offset)


@pytest.mark.parametrize("options", [None, "GZIP"])
def test_what_a_store_gives_when_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, options: object
) -> None:
    """Not what stood in memory before, nor what stands behind the range that it did not give."""
    monkeypatch.setattr(ranges, "_RANGE_BYTES", 256 * 1024)
    monkeypatch.setattr(source, "_CHUNK_BYTES", 256 * 1024)
    records = [random.Random(number).randbytes(100_000) for number in range(20)]
    url = f"memory://records-{uuid.uuid4().hex}/a"
    write(url, records, options)
    filesystem = type(fsspec.filesystem("memory"))
    cat_file, left = filesystem.cat_file, [1]

    def fail_once(self: Any, path: str, start: int, end: int) -> bytes:
        if start > 1_000_000 and left:
            left.clear()
            raise ConnectionError(errno.EIO, "the store did not answer")
        return cat_file(self, path, start, end)

    monkeypatch.setattr(filesystem, "cat_file", fail_once)
    with tfr.TFRecordReader(url, options) as reader:
        assert reader.read(0)[0] == records[0]
        with pytest.raises(ConnectionError, match="the store did not answer"):
            reader.read(15 * 100_016)
        assert reader.read(15 * 100_016)[0] == records[15]


@pytest.mark.parametrize("given", [0, 50])
def test_a_store_that_gives_less_than_the_file_has(
    monkeypatch: pytest.MonkeyPatch, given: int
) -> None:
    """Where it stops is no end of the file, behind which nobody looks for more records."""
    url = f"memory://records-{uuid.uuid4().hex}/a"
    write(url, [b"x" * 84] * 10)
    filesystem = type(fsspec.filesystem("memory"))
    cat_file = filesystem.cat_file
    with tfr.TFRecordReader(url) as reader:
        assert len(reader) == 10
        monkeypatch.setattr(
            filesystem, "cat_file", lambda *place, start, end: cat_file(*place, start, end)[:given]
        )
        for read in (lambda: reader[1], lambda: reader.read(100)):
            with pytest.raises(tfr.DatasetChangedError, match=f"ended at byte {100 + given} "):
                read()


def test_a_local_file_that_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it may not be mapped; a mapped one ends the process."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "no mapping")

    monkeypatch.setattr(mmap, "mmap", refuse)
    monkeypatch.setattr(source, "_READ_BYTES", 1000)
    write(tmp_path / "a", [b"x" * 999_984] * 3)
    with tfr.TFRecordReader(tmp_path / "a") as reader:
        assert reader.read(0)[1] == 1_000_000
        os.truncate(tmp_path / "a", 2_000_000)
        with pytest.raises(tfr.DatasetChangedError, match="ended at byte 2000000"):
            reader.read(2_000_000)
        with pytest.raises(IndexError, match="the file ends at or before"):
            reader.read(3_000_000)


@pytest.mark.parametrize("options", [None, "GZIP"])
def test_reading_from_offset_to_offset(tmp_path: Path, options: object) -> None:
    write(tmp_path / "a", options=options)
    reader = tfr.TFRecordReader(tmp_path / "a")
    offset, seen = 0, []
    for _ in RECORDS:
        record, offset = reader.read(offset)
        seen.append(record)
    assert seen == RECORDS
    for end in (offset, offset + 100, -1):
        with pytest.raises(IndexError):
            reader.read(end)
    assert reader.read(16)[0] == b"one"
    with pytest.raises(tfr.ChecksumError, match="byte offset 17"):
        reader.read(17)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress])
@pytest.mark.parametrize("place", [0, 1, 7])
def test_a_damaged_length_behind_sound_records_is_not_trusted(
    tmp_path: Path, compress: Any, place: int
) -> None:
    """What it says goes beyond the end of the file, which is whole all the same."""
    data = bytearray(framed([b"one", b"two", b"three", b"four"]))
    data[38 + place] ^= 0x7F
    (tmp_path / "a").write_bytes(compress(data))
    for records in (
        iter(tfr.TFRecordReader(tmp_path / "a")),
        tfr.io.tf_record_iterator(tmp_path / "a"),
    ):
        assert [next(records), next(records)] == [b"one", b"two"]
        with pytest.raises(tfr.ChecksumError, match=r"length.* byte offset 38, record 2"):
            next(records)


def test_damage(tmp_path: Path) -> None:
    data = bytearray(framed([b"one", b"two", b"three"]))
    data[19 + 12] ^= 1
    (tmp_path / "a").write_bytes(data)
    reader = tfr.TFRecordReader(tmp_path / "a")
    records = iter(reader)
    assert next(records) == b"one"
    with pytest.raises(tfr.ChecksumError, match=r"a, byte offset 19, record 1\]"):
        next(records)
    assert (len(reader), reader[2]) == (3, b"three")
    with pytest.raises(tfr.ChecksumError, match=r"a, byte offset 19, record 1\]"):
        reader[1]
    (tmp_path / "b").write_bytes(data[:-1])
    with pytest.raises(tfr.TruncatedRecordError, match="byte offset 38"):
        len(tfr.TFRecordReader(tmp_path / "b"))
    with pytest.raises(tfr.TruncatedRecordError, match="byte offset 38"):
        tfr.TFRecordReader(tmp_path / "b").read(38)
    with pytest.raises(tfr.ChecksumError):
        next(iter(tfr.TFRecordReader(tmp_path / "a", "", limits=tfr.Limits())[1:]))


def test_limits(tmp_path: Path) -> None:
    write(tmp_path / "a")
    reader = tfr.TFRecordReader(tmp_path / "a", limits=tfr.Limits(max_record_bytes=100))
    with pytest.raises(tfr.LimitExceededError, match="max_record_bytes"):
        list(reader)


def test_other_compressions_are_found_by_content(tmp_path: Path) -> None:
    table = pa.table({"byteArray": pa.array([b"one", b"two"])})
    for compression in ("zstd", "bzip2", "snappy", "lz4"):
        target = tmp_path / compression
        tfr.write_table(table, target, record_type="ByteArray", compression=compression)
        (part,) = target.glob("part-*")
        assert list(tfr.TFRecordReader(part)) == [b"one", b"two"]


@pytest.mark.parametrize("act", [lambda reader: reader.read(0), list])
def test_a_compression_that_was_said_is_not_looked_for(
    tmp_path: Path, act: Callable[[tfr.TFRecordReader], object]
) -> None:
    for place in (str(tmp_path), f"memory://records-{uuid.uuid4().hex}"):
        write(f"{place}/plain")
        write(f"{place}/gzip", options="GZIP")
        with pytest.raises(tfr.OptionError, match="the file is a plain TFRecord"):
            act(tfr.TFRecordReader(f"{place}/plain", "GZIP"))
        with pytest.raises(tfr.CorruptDataError):
            act(tfr.TFRecordReader(os.fsencode(f"{place}/gzip"), ""))
        assert act(tfr.TFRecordReader(os.fsencode(f"{place}/gzip"))) in (RECORDS, (b"", 16))


def test_a_closed_reader_reads_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a")
    reader = tfr.TFRecordReader(tmp_path / "a")
    assert reader[0] == b""
    reader.close()
    reader.close()
    with tfr.TFRecordReader(tmp_path / "a") as left:
        assert left.read(0)[0] == b""
    for closed in (reader, left):
        for act in (
            lambda closed=closed: closed[0],
            lambda closed=closed: closed.read(0),
            lambda closed=closed: iter(closed),
            lambda closed=closed: len(closed),
        ):
            with pytest.raises(tfr.ClosedError, match="closed"):
                act()


def test_a_reader_pickles_by_its_path(tmp_path: Path) -> None:
    write(tmp_path / "a", options="ZLIB")
    reader = tfr.TFRecordReader(tmp_path / "a", "ZLIB")
    assert reader[3] == b"four"
    assert pickle.loads(pickle.dumps(reader))[2] == RECORDS[2]


def test_every_store(store: Server) -> None:
    # On a local disk a folder must be there, as for TensorFlow.
    url = f"{store.url}{'/new/folders' if '://' in store.url else ''}/a.tfrecord"
    options = dict(store.storage_options)
    for compression in (None, "GZIP"):
        writer = tfr.TFRecordWriter(url, compression, storage_options=options)
        for record in RECORDS:
            writer.write(record)
        writer.flush()
        writer.write(b"last")
        writer.close()
        reader = tfr.TFRecordReader(url, storage_options=options)
        assert list(reader) == [*RECORDS, b"last"]
        assert (len(reader), reader[6], reader[1]) == (13, RECORDS[6], b"one")
        assert reader.read(0) == (b"", 16)
        reader.close()
        dataset = tfr.data.TFRecordDataset([url], compression or "", storage_options=options)
        assert list(dataset) == [*RECORDS, b"last"]
    with pytest.raises(FileNotFoundError):
        tfr.TFRecordReader(f"{store.url}/none", storage_options=options)


def test_missing_folders_of_any_file_system_are_made() -> None:
    url = "memory://test_missing_folders/a/b.tfrecord"
    with tfr.TFRecordWriter(url) as writer:
        writer.write(b"x")
    assert list(tfr.TFRecordReader(url)) == [b"x"]


# --- records of many files ------------------------------------------------------------------------


def test_a_program_of_tensorflow_2_that_reads_records(tmp_path: Path) -> None:
    """As TensorFlow's tutorial reads them, and Waymo's."""
    program = """
import tfrecord_io as tf

def write(path, labels):
    with tf.io.TFRecordWriter(path) as writer:
        for label in labels:
            feature = {"label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))}
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())

def labels(filenames, count):
    raw_dataset = tf.data.TFRecordDataset(filenames)
    for raw_record in raw_dataset.take(count):
        example = tf.train.Example()
        example.ParseFromString(raw_record.numpy())
        yield example.features.feature["label"].int64_list.value[0]

def count(filenames):
    dataset = tf.data.TFRecordDataset(filenames, compression_type="")
    return sum(len(bytearray(data.numpy())) > 0 for data in dataset)
"""
    names: dict[str, Any] = {}
    exec(program, names)
    paths = [str(tmp_path / name) for name in "ab"]
    names["write"](paths[0], [5, 6])
    names["write"](paths[1], [7])
    assert list(names["labels"](paths, 10)) == [5, 6, 7]
    assert list(names["labels"](paths, 1)) == [5]
    assert names["count"](paths) == 3


@pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
def test_a_dataset_of_records(tmp_path: Path, compression: str | None) -> None:
    write(tmp_path / "a", options=compression)
    write(tmp_path / "b", [], compression)
    write(tmp_path / "c", [b"last"], compression)
    paths = [str(tmp_path / "a").encode(), tmp_path / "b", str(tmp_path / "c")]
    dataset = tfr.data.TFRecordDataset(iter(paths), compression)
    for _ in range(2):
        assert list(dataset) == [*RECORDS, b"last"]
        assert {type(record.numpy()) for record in dataset} == {bytes}
    assert [type(record) for record in dataset.as_numpy_iterator()] == [bytes] * 13
    assert list(tfr.data.TFRecordDataset(paths[2]).as_numpy_iterator()) == [b"last"]
    assert list(pickle.loads(pickle.dumps(dataset.skip(11)))) == [b"four", b"last"]
    assert list(tfr.data.TFRecordDataset([])) == []


def test_parts_of_a_dataset_of_records(tmp_path: Path) -> None:
    write(tmp_path / "a", [b"0", b"1", b"2"])
    dataset = tfr.data.TFRecordDataset([tmp_path / "a", tmp_path / "none"])
    assert list(dataset.take(3)) == [b"0", b"1", b"2"]
    assert list(dataset.skip(1).take(2).skip(1)) == [b"2"]
    assert list(dataset.take(2).skip(-1)) == list(dataset.take(0)) == []
    assert list(dataset.take(2).take(-1)) == [b"0", b"1"]
    assert list(dataset.take(2).skip(5)) == []
    with pytest.raises(FileNotFoundError, match="none"):
        list(dataset)


def test_what_a_dataset_of_records_refuses(tmp_path: Path) -> None:
    with pytest.raises(tfr.OptionError, match="gzip"):
        tfr.data.TFRecordDataset(tmp_path, "gzip")
    for count in (0, -2):
        with pytest.raises(tfr.OptionError, match=f"num_parallel_reads is {count}"):
            tfr.data.TFRecordDataset(tmp_path, num_parallel_reads=count)
    dataset = tfr.data.TFRecordDataset(tmp_path / "a")
    for part in (dataset, dataset.take(1)):
        with pytest.raises(AttributeError, match=r"no 'map'.*tfrecord_io\.tf\.dataset"):
            part.map(len)
    write(tmp_path / "a", [b"x" * 100])
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with pytest.raises(tfr.TruncatedRecordError, match=str(tmp_path / "a")):
        list(dataset)
    with pytest.raises(tfr.LimitExceededError, match="max_record_bytes"):
        list(tfr.data.TFRecordDataset(tmp_path / "a", limits=tfr.Limits(max_record_bytes=9)))


# --- the old names --------------------------------------------------------------------------------


def test_python_io(tmp_path: Path) -> None:
    options = tfr.python_io.TFRecordOptions(tfr.python_io.TFRecordCompressionType.GZIP)
    with tfr.python_io.TFRecordWriter(str(tmp_path / "a"), options=options) as writer:
        writer.write(b"x")
    records = tfr.python_io.tf_record_iterator(path=str(tmp_path / "a"), options=options)
    assert list(records) == [b"x"]
    assert next(records, None) is None
    with pytest.raises(FileNotFoundError):
        tfr.python_io.tf_record_iterator(str(tmp_path / "none"))
    assert options.get_compression_type_string(options) == "GZIP"
    assert tfr.io.TFRecordWriter is tfr.TFRecordWriter


def test_the_old_iterator_of_a_file_that_grows_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", [b"one"])
    added = [b"three", b"two"]

    def opened(*args: Any) -> OpenFile:
        if added:
            with (tmp_path / "a").open("ab") as file:
                file.write(frame(added.pop()))
        return OpenFile(*args)

    monkeypatch.setattr("tfrecord_io.records.reader.OpenFile", opened)
    records = tfr.python_io.tf_record_iterator(str(tmp_path / "a"))
    assert list(records) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("options", ["", "GZIP"])
def test_the_old_iterator_goes_on_behind_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    # Large ones, which are not taken together.
    written = [bytes([number]) * 300_000 for number in range(4)]
    write(tmp_path / "a", written, options)
    records = tfr.python_io.tf_record_iterator(str(tmp_path / "a"), options)
    assert next(records) == written[0]

    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(get_codec()), "payloads", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(records)
    assert list(records) == written[1:]


def test_the_old_iterator_ends_with_a_file_in_a_store() -> None:
    write("memory://old-iterator", RECORDS)
    records = tfr.python_io.tf_record_iterator("memory://old-iterator")
    assert list(records) == RECORDS
    write("memory://old-iterator", RECORDS * 2)
    # Files in a store do not grow: this is another one.
    assert list(records) == []


def test_the_old_iterator_ends_with_a_file_that_another_one_replaced(tmp_path: Path) -> None:
    write(tmp_path / "a", [b"one"])
    records = tfr.python_io.tf_record_iterator(str(tmp_path / "a"))
    assert list(records) == [b"one"]
    write(tmp_path / "b", [b"two", b"three"])
    (tmp_path / "b").replace(tmp_path / "a")
    assert list(records) == []


def test_the_old_iterator_of_a_file_in_a_store_that_changes_does_not_just_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranges, "_RANGE_BYTES", 100_000)
    write("memory://old-iterator-changed", [bytes(300_000)] * 10)
    records = tfr.python_io.tf_record_iterator("memory://old-iterator-changed")
    assert next(records) == bytes(300_000)
    write("memory://old-iterator-changed", [b"one"])
    with pytest.raises(tfr.DatasetChangedError):
        list(records)


def test_a_program_of_tensorflow_2_that_uses_the_old_names(tmp_path: Path) -> None:
    program = """
import tfrecord_io as tf

def convert(titles, path):
    with tf.compat.v1.python_io.TFRecordWriter(path) as writer:
        for number, title in enumerate(titles):
            example = tf.compat.v1.train.Example()
            feature = example.features.feature
            feature["title"].bytes_list.value.append(tf.compat.as_bytes(title))
            feature["number"].int64_list.value.append(number)
            writer.write(example.SerializeToString())

def titles(path):
    for record in tf.compat.v1.io.tf_record_iterator(path):
        example = tf.train.Example.FromString(record)
        yield tf.compat.as_str(example.features.feature["title"].bytes_list.value[0])
"""
    names: dict[str, Any] = {}
    exec(program, names)
    path = str(tmp_path / "titles.tfrecord")
    names["convert"](["Ä", b"b"], path)
    assert list(names["titles"](path)) == ["Ä", "b"]
    assert sum(1 for _ in tfr.compat.v1.python_io.tf_record_iterator(path)) == 2


def test_the_click_log_writer_of_a_recommender(tmp_path: Path) -> None:
    program = """
import numpy as np
import tfrecord_io as tf

def convert(lines, path):
    writer = tf.python_io.TFRecordWriter(path)
    for line in lines:
        fields = line.split("\\t")
        label = np.array(fields[:1], dtype=np.int64)
        dense = np.array(fields[1:3], dtype=np.float32)
        category = np.array([int(f, 16) for f in fields[3:]], dtype=np.int64)
        example = tf.train.Example(features=tf.train.Features(feature={
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=label)),
            "dense": tf.train.Feature(bytes_list=tf.train.BytesList(value=[dense.tobytes()])),
            "category": tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[category.tobytes()])),
        }))
        writer.write(example.SerializeToString())
    writer.close()

convert(["1\\t0.5\\t3\\tff\\ta", "0\\t7\\t1.25\\t0\\t10"], PATH)
"""
    path = str(tmp_path / "clicks.tfrecord")
    exec(compile(program, "program", "exec"), {"PATH": path})
    table = tfr.read_table(
        path,
        schema=pa.schema(
            [("label", pa.int64()), ("dense", pa.binary()), ("category", pa.binary())]
        ),
    )
    assert table["label"].to_pylist() == [1, 0]
    assert memoryview(table["dense"][1].as_py()).cast("f").tolist() == [7.0, 1.25]
    assert memoryview(table["category"][0].as_py()).cast("q").tolist() == [255, 10]


def test_importing_it_loads_no_protobuf() -> None:
    code = "import sys, tfrecord_io; print('google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
