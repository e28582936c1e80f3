import contextlib
import errno
import functools
import gc
import gzip
import itertools
import mmap
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import warnings
import weakref
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.frames import example, examples, frame, records
from tests.support.peaks import peak_bytes
from tfrecord_io import conversion, parallel
from tfrecord_io.engines.local import count_rows, infer_schema, read_plan, read_table, scan
from tfrecord_io.errors import (
    ChecksumError,
    CompressionError,
    CorruptDataWarning,
    DatasetChangedError,
    OptionError,
    SchemaMismatchError,
    TFRecordError,
)
from tfrecord_io.reading import source, tasks
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.records.reader import TFRecordReader
from tfrecord_io.statistics import compute_statistics
from tfrecord_io.tensors import numpy_batches
from tfrecord_io.tensors import rows as training_rows
from tfrecord_io.verification import verify
from tfrecord_io.writing import feed

SPLIT = 2_000
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


@pytest.fixture
def small_splits(monkeypatch):
    """Split small files, so that tests are quick."""
    monkeypatch.setattr(tasks, "_SPAN_BYTES", SPLIT)
    monkeypatch.setattr(source, "_SMALL_BYTES", 0)


def reads_fast(monkeypatch, answer):
    """Decide which parts of mapped files are taken for such that are read faster."""
    monkeypatch.setattr(source.MappedFile, "is_read_faster", lambda self, start, end: answer(start))


READ_FASTER = {
    "mapped": lambda start: False,
    "mapped and read": lambda start: True,
    "mapped in part": lambda start: start // 1000 % 2 == 0,
}


def rows(count, start=0):
    return [{"n": n, "s": "x" * (n % 97)} for n in range(start, start + count)]


@pytest.fixture
def no_collector():
    """What is in a circle stays, as it does for long where few objects are made."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def mapped_files(folder):
    """Return the files of a folder that are mapped; those of other tests may be, too."""
    found = [one for one in gc.get_objects() if isinstance(one, source.MappedFile)]
    return [one for one in found if Path(one.handle.name).is_relative_to(folder)]


def live():
    # The threads that upload are the process's and stay.
    return [
        t
        for t in threading.enumerate()
        if t.name.startswith("tfrecord-io-") and not t.name.startswith("tfrecord-io-send")
    ]


class TestSplits:
    @pytest.mark.parametrize("threads", [1, 2, 5])
    @pytest.mark.parametrize("how", [*READ_FASTER, "read"])
    def test_same_batches_for_any_number_of_threads(
        self, tmp_path, monkeypatch, small_splits, threads, how, codec
    ):
        reads_fast(monkeypatch, READ_FASTER.get(how))
        monkeypatch.setattr(source, "_READ_BYTES", 700)
        monkeypatch.setattr(source, "_READ_OVER_BYTES", 50)
        path = tmp_path / "a"
        path.write_bytes(examples(*rows(200)))
        memory_map = how != "read"
        plan = plan_scan(path, codec=codec, memory_map=memory_map)
        batches = list(read_plan(plan, threads=threads))
        assert len(batches) > 5
        assert batches == list(read_plan(plan, threads=1))
        assert pa.Table.from_batches(batches).to_pylist() == rows(200)
        assert count_rows(path, threads=threads, memory_map=memory_map, codec=codec) == 200

    def test_one_thread_looks_for_no_start(self, tmp_path, monkeypatch, small_splits, codec):
        looked = []
        monkeypatch.setattr(tasks, "find_start", lambda *arguments: looked.append(arguments))
        path = tmp_path / "a"
        # Records within a span, and one over several.
        expected = [{"s": "x" * size} for size in (5, 900, 1800, 15_000, 7, 9_000, 600)]
        path.write_bytes(examples(*expected))
        assert read_table(path, threads=1, codec=codec).to_pylist() == expected
        assert not looked

    def test_the_first_of_many_batches_waits_for_few_others(self, tmp_path, codec):
        path = tmp_path / "a"
        path.write_bytes(examples(*rows(50_000)))
        made = []
        plan = plan_scan(path, codec=codec, batch_rows=1)
        items = tasks.item_bytes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks, "item_bytes", lambda item: (made.append(item), items(item))[1])
            batches = read_plan(plan, threads=1)
            assert next(batches).num_rows == 1
            batches.close()
        assert len(made) < 1000

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("span_bytes", [SPLIT * 5, 10**6])
    def test_what_left_memory_is_read_again(
        self, tmp_path, monkeypatch, small_splits, threads, span_bytes, codec
    ):
        monkeypatch.setattr(source, "_RELEASE_BYTES", 4096)
        monkeypatch.setattr(tasks, "_SPAN_BYTES", span_bytes)
        left = []
        release = source.MappedFile.release
        monkeypatch.setattr(
            source.MappedFile,
            "release",
            lambda self, start, end: (left.append((start, end)), release(self, start, end)),
        )
        path = tmp_path / "a"
        expected = [{"n": n, "s": "x" * (n % 9000)} for n in range(0, 30_000, 300)]
        path.write_bytes(examples(*expected))
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        views = pa.schema([("n", pa.int64()), ("s", pa.string_view())])
        for _ in range(2):
            table = read_table(path, schema=views, threads=threads, codec=codec)
            assert table.to_pylist() == expected
        path.write_bytes(damaged)
        with pytest.warns(CorruptDataWarning):
            kept = read_table(path, on_corrupt="skip_record", threads=threads, codec=codec)
        assert kept.to_pylist() == [row for row in expected if row in kept.to_pylist()]
        assert kept.num_rows == len(expected) - 1
        assert sum(end - start for start, end in left) >= path.stat().st_size

    def test_spans_that_end_with_a_frame_leave_memory(
        self, tmp_path, monkeypatch, small_splits, codec
    ):
        record = frame(example(s="x" * 200))
        monkeypatch.setattr(tasks, "_SPAN_BYTES", 5 * len(record))
        left = []
        monkeypatch.setattr(
            source.MappedFile, "release", lambda self, start, end: left.append((start, end))
        )
        path = tmp_path / "a"
        path.write_bytes(record * 40)
        assert read_table(path, threads=1, codec=codec).num_rows == 40
        # To look for the schema, and to read.
        assert sum(end - start for start, end in left) == 2 * 40 * len(record)

    @pytest.mark.parametrize("threads", [1, 2, 5])
    @pytest.mark.parametrize("how", READ_FASTER)
    def test_payloads_that_hold_frames(
        self, tmp_path, monkeypatch, small_splits, threads, how, codec
    ):
        reads_fast(monkeypatch, READ_FASTER[how])
        inner = records(*(example(n=k, s="inner") for k in range(200)))
        payloads = [example(n=k, s="outer") for k in range(50)]
        payloads[20] = example(b=inner, n=20)
        payloads[40] = example(b=inner * 2, n=40)
        path = tmp_path / "a"
        path.write_bytes(records(*payloads))
        schema = pa.schema([("n", pa.int64())])
        table = read_table(path, schema=schema, threads=threads, codec=codec)
        assert table["n"].to_pylist() == list(range(50))
        assert count_rows(path, threads=threads, codec=codec) == 50

    def test_a_file_whose_payloads_hold_frames_is_let_go_at_once(
        self, tmp_path, small_splits, no_collector
    ):
        """Of what begins within a payload the error is nobody's."""
        payloads = [records(*[b"inner" * k] * 30) for k in range(60)]
        (tmp_path / "a").write_bytes(records(*payloads))
        table = read_table(tmp_path, record_type="ByteArray", threads=3)
        assert table["byteArray"].to_pylist() == payloads
        assert not mapped_files(tmp_path)

    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("how", READ_FASTER)
    def test_a_record_over_many_splits(
        self, tmp_path, monkeypatch, small_splits, threads, how, codec
    ):
        reads_fast(monkeypatch, READ_FASTER[how])
        path = tmp_path / "a"
        large = {"n": 2, "s": "y" * 20_000}
        path.write_bytes(examples({"n": 1, "s": "x"}, large, {"n": 3, "s": "z"}))
        assert read_table(path, threads=threads, codec=codec)["n"].to_pylist() == [1, 2, 3]

    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("bad", [0, 57, 199])
    def test_errors_name_the_record_of_the_file(self, tmp_path, small_splits, threads, bad, codec):
        frames = [frame(example(**row)) for row in rows(200)]
        offset = sum(map(len, frames[:bad]))
        damaged = bytearray(b"".join(frames))
        damaged[offset + len(frames[bad]) - 1] ^= 1
        path = tmp_path / "a"
        path.write_bytes(damaged)
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        with pytest.raises(ChecksumError) as caught:
            read_table(path, schema=schema, threads=threads, codec=codec)
        assert (caught.value.offset, caught.value.record) == (offset, bad)
        with pytest.warns(CorruptDataWarning, match=f": {offset} to ") as warned:
            table = read_table(
                path, schema=schema, threads=threads, codec=codec, on_corrupt="skip_record"
            )
        assert table["n"].to_pylist() == [n for n in range(200) if n != bad]
        assert len(warned) == 1

    def test_inference_names_the_record_of_the_file(self, tmp_path, small_splits, codec):
        path = tmp_path / "a"
        path.write_bytes(examples(*rows(150), {"n": "text"}))
        with pytest.raises(TFRecordError, match="record 150"):
            infer_schema(path, threads=2, codec=codec)

    def test_many_damaged_places(self, tmp_path, small_splits):
        frames = [frame(example(**row)) for row in rows(300)]
        sound = [n for n in range(300) if n % 7]
        for n in set(range(300)) - set(sound):
            damaged = bytearray(frames[n])
            damaged[n % len(damaged)] ^= 0x10
            frames[n] = bytes(damaged)
        path = tmp_path / "a"
        path.write_bytes(b"".join(frames))
        schema = pa.schema([("n", pa.int64())])
        results = []
        for threads in (1, 3):
            with pytest.warns(CorruptDataWarning) as warned:
                table = read_table(path, schema=schema, threads=threads, on_corrupt="skip_record")
            assert table["n"].to_pylist() == sound
            results.append([str(w.message) for w in warned])
        assert results[0] == results[1]


def test_nothing_but_the_file_leaves_memory(monkeypatch, tmp_path):
    size = 2 * mmap.PAGESIZE + 100
    (tmp_path / "file").write_bytes(bytes(size))
    calls = []
    mapped = source.MappedFile((tmp_path / "file").open("rb"), size)
    monkeypatch.setattr(source, "_madvise", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(source, "_RELEASE_BYTES", 1)
    mapped.release(mmap.PAGESIZE + 10, 10**9)
    mapped.release(10**9, 2 * 10**9)
    start = mapped.buffer.address + mmap.PAGESIZE
    assert calls == [(start, mmap.PAGESIZE + 100, mmap.MADV_DONTNEED)]


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this kernel has no huge pages")
def test_a_mapped_file_may_stand_in_huge_pages(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    mapped = source.MappedFile(path.open("rb"), 7)
    assert mapped.buffer.to_pybytes() == b"content"
    # Linux tells what each mapping was advised to be: `hg` is the flag of huge pages.
    entries = Path("/proc/self/smaps").read_text().split(f"{mapped.buffer.address:x}-")
    assert str(path) in entries[1].splitlines()[0]
    flags = next(line for line in entries[1].splitlines() if line.startswith("VmFlags:"))
    assert "hg" in flags.split()


SHARED_MEMORY = Path("/dev/shm")


@pytest.mark.skipif(
    not SHARED_MEMORY.exists(), reason="no file system of small pages is known here"
)
def test_a_file_in_small_pages_is_read():
    """Linux keeps files of this file system in pages of 4 KiB, unless it is mounted otherwise."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        path, size = Path(folder) / "file", 6 * 2**20
        path.write_bytes(bytes(size))
        assert source.MappedFile(path.open("rb"), size).is_read_faster(0, size)
        # What is mapped already costs nothing more, as a huge page costs next to nothing.
        mapped = source.MappedFile(path.open("rb"), size)
        assert mapped.buffer.to_pybytes() == bytes(size)
        assert not mapped.is_read_faster(0, size)
        # No huge page has room behind this place, or before that.
        assert mapped.is_read_faster(size - 1, size)
        assert mapped.is_read_faster(0, 2**22 - 1)


def test_each_part_of_a_file_is_read_or_mapped(tmp_path, monkeypatch):
    """What Linux reads first stands in small pages, and the rest of the file in huge ones."""
    reads_fast(monkeypatch, lambda start: start < 20_000)
    monkeypatch.setattr(source, "_SMALL_BYTES", 0)
    monkeypatch.setattr(source, "_READ_BYTES", 5000)
    path = tmp_path / "a"
    path.write_bytes(examples(*rows(1000)))
    size, read = path.stat().st_size, []
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda handle, views, at: (read.append(at), preadv(handle, views, at))[1]
    )
    with scan(path, threads=1) as batches:
        assert pa.Table.from_batches(batches).to_pylist() == rows(1000)
    assert size > 60_000
    # Once to look for the schema, and once for the rows.
    assert read.count(0) == 2
    assert max(read) < 20_000


@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_that_cannot_be_mapped_is_read(tmp_path, monkeypatch, small_splits, threads):
    def refused(*arguments, **options):
        raise OSError(errno.ENODEV, "No such device")

    path = tmp_path / "a"
    path.write_bytes(examples(*rows(200)))
    monkeypatch.setattr(mmap, "mmap", refused)
    views = pa.schema([("n", pa.int64()), ("s", pa.string_view())])
    assert read_table(path, threads=threads).to_pylist() == rows(200)
    assert read_table(path, schema=views, threads=threads).to_pylist() == rows(200)
    assert count_rows(path, threads=threads) == 200


def test_a_huge_value_is_in_memory_as_bytes_and_as_a_value(tmp_path):
    megabytes = 64
    (tmp_path / "huge").write_bytes(records(example(s=bytes(megabytes << 20))))
    (tmp_path / "small").write_bytes(records(example(s=b"")))
    code = """
import pyarrow as pa
read_table({!r}, schema=pa.schema([('s', pa.binary())]))
"""
    small, huge = (peak_bytes(tmp_path, code.format(name)) for name in ("small", "huge"))
    assert huge - small < (2 * megabytes + 16) << 20


def test_the_file_is_closed_with_its_memory(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    mapped = source.MappedFile((tmp_path / "file").open("rb"), 7)
    handle, buffer = mapped.handle, mapped.buffer
    del mapped
    assert handle.closed
    assert buffer.to_pybytes() == b"content"


def test_a_file_that_is_cut_short_before_it_is_mapped(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(examples(*rows(20_000)))
    frames = [len(frame(example(**row))) for row in rows(20_000)]
    real = source.MappedFile

    def cut_and_map(handle, size):
        os.truncate(path, sum(frames[:10_000]))
        return real(handle, size)

    monkeypatch.setattr(source, "MappedFile", cut_and_map)
    with pytest.raises(DatasetChangedError, match=r"ended at byte \d+ when it was read"):
        read_table(path, schema=pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize("on_corrupt", ["raise", "skip_record", "keep"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_compressed_file_that_is_cut_short_where_a_member_ends(
    tmp_path, monkeypatch, codec, threads, on_corrupt
):
    """What is left is a sound file."""
    monkeypatch.setattr(source, "_CHUNK_BYTES", 4096)
    path = tmp_path / "a.gz"
    noise = os.urandom(1_000_000)
    members = [gzip.compress(frame(noise), 1) for _ in range(40)]
    path.write_bytes(b"".join(members))
    options = {"record_type": "ByteArray", "batch_rows": 1, "on_corrupt": on_corrupt}
    batches = read_plan(plan_scan(path, **options, codec=codec), threads=threads)
    next(batches)
    end = sum(map(len, members[:-1]))
    os.truncate(path, end)
    with pytest.raises(DatasetChangedError, match=f"ended at byte {end} when it was read"):
        list(batches)


@pytest.mark.parametrize("compress", [bytes, lambda data: gzip.compress(data, 1)])
@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_grows_while_it_is_read(tmp_path, monkeypatch, compress, whole):
    """Compressed or not, it is read as it was listed."""
    monkeypatch.setattr(source, "_CHUNK_BYTES", 4096)
    path = tmp_path / "a"
    noise = os.urandom(1_000_000)
    piece = compress(frame(noise))
    path.write_bytes(piece * 20)
    options = {"record_type": "ByteArray", "batch_rows": 1}
    batches = read_plan(plan_scan(path, **options), threads=1)
    next(batches)
    with path.open("ab") as file:
        file.write(piece if whole else piece[:1000])
    assert [batch["byteArray"].to_pylist() for batch in batches] == [[noise]] * 19


@pytest.mark.parametrize("on_corrupt", ["raise", "skip_record", "keep"])
@pytest.mark.parametrize("more", [0, 5, 20])
def test_a_file_that_is_cut_short_while_it_is_read(tmp_path, monkeypatch, codec, more, on_corrupt):
    monkeypatch.setattr(source, "_READ_BYTES", 4096)
    path = tmp_path / "a"
    path.write_bytes(examples(*rows(10_000)))
    frames = [len(frame(example(**row))) for row in rows(10_000)]
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    options = {"memory_map": False, "batch_rows": 100, "codec": codec, "on_corrupt": on_corrupt}
    plan = plan_scan(path, schema=schema, **options)
    batches = read_plan(plan, threads=1)
    seen = next(batches).num_rows
    whole = 9_000
    os.truncate(path, sum(frames[:whole]) + more)
    with pytest.raises(DatasetChangedError, match=r"ended at byte \d+ when it was read") as caught:
        for batch in batches:
            seen += batch.num_rows
    assert seen == whole
    assert (caught.value.offset, caught.value.record) == (sum(frames[:whole]), whole)


@pytest.mark.filterwarnings("ignore::tfrecord_io.CorruptDataWarning")
@pytest.mark.parametrize("on_corrupt", ["skip_record", "keep"])
def test_a_file_that_is_cut_short_behind_a_damaged_record(tmp_path, monkeypatch, codec, on_corrupt):
    monkeypatch.setattr(source, "_READ_BYTES", 4096)
    path = tmp_path / "a"
    whole = 9_000
    end = len(examples(*rows(whole)))
    data = bytearray(examples(*rows(10_000)))
    # In the CRC of a payload.
    data[end - 1] ^= 1
    path.write_bytes(data)
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    options = {"memory_map": False, "batch_rows": 100, "codec": codec, "on_corrupt": on_corrupt}
    batches = read_plan(plan_scan(path, schema=schema, **options), threads=1)
    next(batches)
    os.truncate(path, end)
    with pytest.raises(DatasetChangedError, match=f"ended at byte {end} when it was read"):
        list(batches)


SMALL = [frame(example(n=n)) for n in range(10)]


@pytest.mark.parametrize("on_corrupt", ["raise", "skip_record", "skip_file", "keep"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_small_file_that_is_cut_short_when_it_is_read(tmp_path, monkeypatch, pack, on_corrupt):
    """What is left is a sound file."""
    path = tmp_path / "a"
    pieces = [pack(one) for one in SMALL]
    path.write_bytes(b"".join(pieces))
    end = sum(map(len, pieces[:6]))
    plan = plan_scan(path, schema=pa.schema([("n", pa.int64())]), on_corrupt=on_corrupt)
    pread = os.pread

    def cut_and_read(*place):
        # By somebody else, once the file was looked at.
        os.truncate(path, end)
        return pread(*place)

    monkeypatch.setattr(os, "pread", cut_and_read)
    with pytest.raises(DatasetChangedError, match=f"ended at byte {end} when it was read"):
        list(read_plan(plan, threads=1))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_small_file_that_comes_a_little_at_a_time(tmp_path, monkeypatch, pack):
    # As some network file systems give files.
    path = tmp_path / "a"
    path.write_bytes(b"".join(pack(one) for one in SMALL))
    pread, most = os.pread, len(pack(SMALL[0]))
    monkeypatch.setattr(os, "pread", lambda file, size, place: pread(file, min(size, most), place))
    assert read_table(path)["n"].to_pylist() == [*range(10)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("size", [10, 20_000_000])
@pytest.mark.parametrize("read", [read_table, infer_schema, lambda path: [*TFRecordReader(path)]])
def test_what_the_disk_does_not_give_is_told_with_its_path(tmp_path, monkeypatch, pack, size, read):
    path = tmp_path / "a"
    path.write_bytes(pack(frame(random.Random(1).randbytes(size))))

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
        read(path)


class TestManyFiles:
    @pytest.mark.parametrize("threads", [1, 2, 8])
    def test_in_order(self, tmp_path, threads):
        for part in range(60):
            (tmp_path / f"part-{part:05d}").write_bytes(examples(*rows(part % 5, part * 10)))
        expected = [n for part in range(60) for n in range(part * 10, part * 10 + part % 5)]
        assert read_table(tmp_path, threads=threads)["n"].to_pylist() == expected

    def test_threads_end(self, tmp_path):
        (tmp_path / "a").write_bytes(examples(*rows(10)))
        read_table(tmp_path, threads=3)
        assert not live()

    @pytest.mark.parametrize(
        "function", [read_table, infer_schema, count_rows, compute_statistics, verify]
    )
    def test_threads_end_while_an_error_is_kept(self, tmp_path, small_splits, function):
        """A notebook keeps the last error, and its traceback all that was under way."""
        path = tmp_path / "a"
        path.write_bytes(b"?" + examples(*rows(2000)))
        gc.disable()
        try:
            with pytest.raises(TFRecordError) as caught:
                if not function(path, threads=3).is_sound:
                    raise TFRecordError("verify tells, and raises nothing")
            assert not live()
        finally:
            gc.enable()
        assert caught.value

    @pytest.mark.parametrize("name", ["batches", "convert"])
    def test_threads_end_while_an_error_in_what_became_of_the_rows_is_kept(
        self, tmp_path, monkeypatch, small_splits, name
    ):
        def fail(*_):
            raise ValueError("no room")

        def go_through():
            if name == "convert":
                conversion.convert(
                    path, tmp_path / "b", to_format="parquet", partition_by="s", threads=3
                )
            else:
                next(iter(numpy_batches.batches(path, batch_size=10, shuffle=True, threads=3)))

        path = tmp_path / "a"
        path.write_bytes(examples(*rows(2000)))
        monkeypatch.setattr(training_rows, "_cast", fail)
        # Few rows come at a time, and threads have more to do for long.
        in_order = functools.partial(parallel.in_order, budget_bytes=1000)
        monkeypatch.setattr(tasks, "in_order", in_order)
        monkeypatch.setattr(feed, "_SMALL_BYTES", 0)
        gc.disable()
        try:
            # The first of the texts is empty, and no name of a folder.
            with pytest.raises(ValueError, match=r"no room|empty") as caught:
                go_through()
            assert not live()
        finally:
            gc.enable()
        assert caught.value

    @pytest.mark.parametrize("threads", [0, -1, 1.5, True])
    def test_wrong_number(self, tmp_path, threads):
        (tmp_path / "a").write_bytes(examples(*rows(1)))
        with pytest.raises(OptionError, match="threads"):
            read_table(tmp_path, threads=threads)

    def test_an_error_ends_the_rest(self, tmp_path):
        for part in range(50):
            (tmp_path / f"part-{part:05d}").write_bytes(examples(*rows(5)))
        (tmp_path / "part-00010").write_bytes(b"nothing")
        schema = pa.schema([("n", pa.int64())])
        batches = []
        with pytest.raises(TFRecordError):
            batches.extend(scan(tmp_path, schema=schema, threads=4))
        assert not live()

    def test_a_reader_that_is_left_stops_its_threads(self, tmp_path):
        for part in range(500):
            (tmp_path / f"part-{part:05d}").write_bytes(examples(*rows(5)))
        reader = scan(tmp_path, threads=4)
        reader.read_next_batch()
        assert live()
        del reader
        assert not live()

    def test_a_reader_that_is_left_before_an_error_lets_files_go(
        self, tmp_path, small_splits, no_collector
    ):
        (tmp_path / "a").write_bytes(examples(*rows(100)))
        # No more than waits to be taken.
        damaged = bytearray(examples(*rows(30)))
        damaged[len(damaged) // 2] ^= 1
        (tmp_path / "b").write_bytes(damaged)
        schema = pa.schema([("n", pa.int64())])
        reader = scan(tmp_path, schema=schema, threads=3, batch_rows=10)
        assert reader.read_next_batch()["n"].to_pylist() == [*range(10)]
        while live():
            time.sleep(0.001)
        assert mapped_files(tmp_path)
        del reader
        assert not mapped_files(tmp_path)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_small_files_are_told_apart(self, tmp_path, threads):
        """Whoever goes through the tasks goes on behind an error, or before a task has ended."""
        for part in range(50):
            (tmp_path / f"part-{part:05d}").write_bytes(examples(*rows(5, part * 10)))
        (tmp_path / "part-00003").write_bytes(b"nothing")
        (tmp_path / "part-00020").write_bytes(examples(*rows(3, 200)) + b"x")
        (tmp_path / "part-00030").write_bytes(b"")
        plan = plan_scan(tmp_path, schema=pa.schema([("n", pa.int64())]), batch_rows=2)
        told = {}
        with contextlib.closing(tasks.decoding(plan).run_all(plan.tasks, threads)) as streams:
            for part, items in enumerate(streams):
                told[part] = seen = []
                try:
                    for batch in items:
                        seen += batch["n"].to_pylist()
                        if part % 7 == 0:
                            break
                except TFRecordError as error:
                    seen.append(error.path)
        expected = {part: [row["n"] for row in rows(5, part * 10)] for part in range(50)}
        expected |= {part: expected[part][:2] for part in range(0, 50, 7)}
        expected[3] = [str(tmp_path / "part-00003")]
        expected[20] = [200, 201, 202, str(tmp_path / "part-00020")]
        expected[30] = []
        assert told == expected
        assert not live()

    def test_small_files_are_handed_over_together(self, tmp_path, monkeypatch):
        for part in range(50):
            (tmp_path / f"part-{part:05d}").write_bytes(examples(*rows(5, part * 10)))
        (tmp_path / "part-00020").write_bytes(examples(*rows(2000)))
        plan = plan_scan(tmp_path, schema=pa.schema([("n", pa.int64())]))
        works = []
        in_order = parallel.in_order

        def counted(given, **options):
            return in_order((works.append(work) or work for work in given), **options)

        monkeypatch.setattr(tasks, "in_order", counted)
        assert sum(batch.num_rows for batch in read_plan(plan, threads=2)) == 49 * 5 + 2000
        # 16 and 4 before the large one, which is alone, and 16 and 13 behind it.
        assert len(works) == 5

    def test_the_first_error_in_order_is_raised(self, tmp_path):
        for part in range(20):
            (tmp_path / f"part-{part:05d}").write_bytes(examples(*rows(5)))
        (tmp_path / "part-00015").write_bytes(b"nothing")
        (tmp_path / "part-00008").write_bytes(examples({"n": "text"}))
        schema = pa.schema([("n", pa.int64())])
        with pytest.raises(SchemaMismatchError) as caught:
            read_table(tmp_path, schema=schema, threads=8)
        assert caught.value.path.endswith("part-00008")

    def test_warnings_that_are_errors_pass(self, tmp_path):
        (tmp_path / "a").write_bytes(examples(*rows(5)) + b"x")
        with warnings.catch_warnings(), pytest.raises(CorruptDataWarning):
            warnings.simplefilter("error")
            read_table(tmp_path, on_corrupt="skip_record", threads=2)
        assert not live()


class TestDecompressingAhead:
    @pytest.fixture
    def found(self, monkeypatch):
        """Whether other threads decompress than those that open files and decode them."""
        found = set()
        make = source.decompressor

        class Watched:
            def __init__(self, *arguments):
                self.stream = make(*arguments)
                self.opened_by = threading.get_ident()

            def read(self, size):
                found.add(threading.get_ident() != self.opened_by)
                return self.stream.read(size)

        monkeypatch.setattr(source, "decompressor", Watched)
        monkeypatch.setattr(source, "_CHUNK_BYTES", 1000)
        return found

    @pytest.mark.parametrize(("threads", "files"), [(1, 1), (2, 1), (2, 2), (4, 3)])
    def test_idle_threads_decompress(self, tmp_path, found, threads, files, codec):
        for part in range(files):
            data = gzip.compress(examples(*rows(300, part * 300)))
            (tmp_path / f"part-{part}.gz").write_bytes(data)
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        table = read_table(tmp_path, schema=schema, threads=threads, codec=codec)
        assert table.to_pylist() == rows(files * 300)
        assert found == {files < threads}
        assert not live()

    @pytest.mark.parametrize("threads", [1, 2])
    def test_damage_is_told_in_its_turn(self, tmp_path, found, threads, codec):
        data = gzip.compress(examples(*rows(300)))
        (tmp_path / "a.gz").write_bytes(data[:-20])
        schema = pa.schema([("n", pa.int64())])
        reader = scan(tmp_path, schema=schema, threads=threads, codec=codec, batch_rows=50)
        seen = []
        with pytest.raises(CompressionError, match=r"a\.gz"):
            for batch in reader:
                seen += batch["n"].to_pylist()
        assert seen == list(range(len(seen)))
        assert len(seen) >= 200
        assert not live()

    def test_a_reader_that_is_left_stops_the_thread(self, tmp_path, found):
        (tmp_path / "a.gz").write_bytes(gzip.compress(examples(*rows(20_000))))
        schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
        reader = scan(tmp_path, schema=schema, threads=3, batch_rows=10)
        assert next(reader).num_rows == 10
        assert live()
        del reader
        assert not live()


class TestInOrder:
    def run(self, works, **options):
        options = {"threads": 3, "item_bytes": lambda item: 10, **options}
        return parallel.in_order(works, **options)

    def test_order(self):
        def work(index):
            time.sleep(0.01 * (index % 3))
            yield from [(index, k) for k in range(index % 4)]

        works = [lambda index=index: work(index) for index in range(20)]
        found = [list(items) for items in self.run(works)]
        assert found == [[(index, k) for k in range(index % 4)] for index in range(20)]

    @pytest.mark.parametrize("threads", [2, 4])
    def test_a_slow_consumer_stops_the_threads(self, threads):
        made = []

        def work():
            for k in range(1000):
                made.append(k)
                yield k

        streams = self.run([work] * 8, threads=threads, budget_bytes=100)
        first = next(streams)
        assert next(first) == 0
        time.sleep(0.2)
        # What fits, one on its way in each thread, and what the next in turn may always add.
        assert len(made) <= 10 + 2 * threads + 2
        assert sum(1 for _ in first) == 999
        streams.close()
        assert not live()

    def test_items_that_are_not_taken_are_dropped(self):
        def work(index):
            yield from [index] * 100

        works = [lambda index=index: work(index) for index in range(10)]
        assert [next(items) for items in self.run(works, budget_bytes=50)] == list(range(10))
        assert not live()

    def test_works_that_are_left_end(self):
        ended = threading.Semaphore(0)

        def work():
            try:
                yield from itertools.repeat(1)
            finally:
                ended.release()

        streams = self.run([work] * 8, budget_bytes=50)
        assert [next(next(streams)) for _ in range(8)] == [1] * 8
        # All but the last one, which may go on.
        assert all(ended.acquire(timeout=10) for _ in range(7))
        streams.close()

    def test_works_are_pulled_by_one_thread_at_a_time(self):
        def works():
            for index in range(20):
                # As files are opened.
                time.sleep(0.01)
                yield lambda index=index: iter([index])

        assert [[*items] for items in self.run(works())] == [[index] for index in range(20)]

    def test_few_works_are_begun_ahead_however_small_they_are(self):
        pulled = []

        def works():
            for index in range(1000):
                pulled.append(index)
                yield lambda: iter([])

        streams = self.run(works(), threads=2)
        next(streams)
        time.sleep(0.2)
        # The one in turn, and four for each thread.
        assert len(pulled) <= 9
        streams.close()

    def ahead(self, *works):
        """Give the streams of works that one thread is ahead with; items are their sizes."""
        pool = parallel._Pool(works, int, 50, most_waiting=4, caller_works=False)
        return contextlib.closing(pool.streams(1))

    @staticmethod
    def filling(is_full):
        """Return an endless work, and tell when it has filled the budget."""

        def work():
            yield from [10] * 4
            is_full.set()
            yield from itertools.repeat(10)

        return work

    def test_what_was_taken_makes_room(self):
        is_full = threading.Event()
        with self.ahead(lambda: iter([10] * 20), self.filling(is_full)) as streams:
            assert list(next(streams)) == [10] * 20
            assert is_full.wait(10)

    def test_what_waited_and_is_dropped_makes_room(self):
        are_full = threading.Event(), threading.Event()
        with self.ahead(*map(self.filling, are_full)) as streams:
            for is_full in are_full:
                next(streams)
                assert is_full.wait(10)

    def test_what_comes_after_it_was_dropped_takes_no_room(self):
        is_begun, goes_on, is_full = threading.Event(), threading.Event(), threading.Event()

        def work():
            is_begun.set()
            goes_on.wait(10)
            yield 50

        with self.ahead(work, self.filling(is_full)) as streams:
            next(streams)
            assert is_begun.wait(10)
            threading.Timer(0.1, goes_on.set).start()
            next(streams)
            assert is_full.wait(10)

    def test_errors_come_in_their_turn(self):
        def good():
            time.sleep(0.05)
            yield 1

        def bad():
            raise ValueError("bad")
            yield

        taken = []
        with pytest.raises(ValueError, match="bad"):
            for items in self.run([good, bad, good]):
                taken += items
        assert taken == [1]
        assert not live()

    @pytest.mark.parametrize("threads", [1, 3])
    def test_errors_in_pulling(self, threads):
        def works():
            yield lambda: iter([1])
            raise ValueError("bad")

        taken = []
        with pytest.raises(ValueError, match="bad"):
            for items in self.run(works(), threads=threads):
                taken += items
        assert taken == [1]

    def test_interrupts_end_the_threads(self):
        def work():
            while True:
                yield 1

        def consume():
            for items in self.run([work, work], budget_bytes=50):
                for count, _ in enumerate(items):
                    if count == 100:
                        raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            consume()
        assert not live()

    def test_an_interrupt_anywhere_ends_the_threads(self, monkeypatch):
        """Whoever was interrupted while it took the lock would have had it for good."""
        left = 0

        def interrupt():
            nonlocal left
            if threading.current_thread() is caller:
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt

        class Interrupted(threading.Condition):
            def __enter__(self):
                entered = super().__enter__()
                interrupt()
                return entered

            def __exit__(self, *error):
                interrupt()
                super().__exit__(*error)

            def notify_all(self):
                super().notify_all()
                interrupt()

            def wait(self, timeout=None):
                found = super().wait(timeout)
                interrupt()
                return found

        def consume():
            with contextlib.suppress(KeyboardInterrupt):
                for items in self.run([lambda: iter(range(20))] * 4, budget_bytes=50):
                    for _ in items:
                        pass

        ours = types.SimpleNamespace(**{**vars(threading), "Condition": Interrupted})
        monkeypatch.setattr(parallel, "threading", ours)
        for at in range(1, 25):
            left = at
            caller = threading.Thread(target=consume, daemon=True)
            caller.start()
            caller.join(20)
            assert not caller.is_alive()
            # None that was interrupted waits for them.
            end = time.monotonic() + 10
            while live() and time.monotonic() < end:
                time.sleep(0.001)
            assert not live()

    def test_an_interrupt_is_not_kept_until_its_turn(self):
        is_busy, is_interrupted = threading.Event(), threading.Event()
        caller = threading.get_ident()

        def work():
            if threading.get_ident() != caller:
                is_busy.set()
                is_interrupted.wait(10)
            yield 1

        def works():
            while True:
                if is_busy.is_set() and threading.get_ident() == caller:
                    is_interrupted.set()
                    raise KeyboardInterrupt
                yield work

        def consume():
            for items in self.run(works(), threads=2):
                for _ in items:
                    assert not is_interrupted.is_set()

        with pytest.raises(KeyboardInterrupt):
            consume()
        assert not live()

    def test_errors_are_kept_by_nobody(self):
        """Else what their tracebacks lead to, and its threads, would stay for good."""

        def bad():
            raise ValueError("bad")
            yield

        def consume():
            streams = self.run([bad] * 100)
            for items in streams:
                yield from items

        with pytest.raises(ValueError, match="bad"):
            next(consume())
        gc.collect()
        assert not live()

    @pytest.mark.parametrize("is_late", [False, True])
    def test_errors_of_what_is_dropped_are_kept_by_nobody(self, no_collector, is_late):
        opened = []
        is_begun, goes_on, has_failed = threading.Event(), threading.Event(), threading.Event()

        def bad():
            held = threading.Event()
            opened.append(weakref.ref(held))
            is_begun.set()
            if is_late:
                goes_on.wait(10)
            raise ValueError("bad")
            yield

        def good():
            has_failed.set()
            yield 1

        with self.ahead(bad, good) as streams:
            next(streams)
            assert is_begun.wait(10)
            if is_late:
                threading.Timer(0.1, goes_on.set).start()
            else:
                assert has_failed.wait(10)
            assert list(next(streams)) == [1]
            assert [one() for one in opened] == [None]

    @pytest.mark.parametrize("is_taken", [False, True])
    @pytest.mark.parametrize("where", ["working", "pulling"])
    def test_errors_at_the_end_are_kept_by_nobody(self, no_collector, where, is_taken):
        opened = []

        def bad():
            held = threading.Event()
            opened.append(weakref.ref(held))
            raise ValueError("bad")
            yield

        def works():
            yield lambda: iter([1])
            yield from bad() if where == "pulling" else [bad]

        streams = self.run(works(), threads=2)
        assert list(next(streams)) == [1]
        while live():
            time.sleep(0.001)
        if is_taken:
            with contextlib.suppress(ValueError):
                for items in streams:
                    list(items)
        streams.close()
        assert [one() for one in opened] == [None]

    def test_the_collector_may_close_it_on_a_thread_that_has_its_lock(self, monkeypatch):
        class Collecting(threading.Condition):
            def notify_all(self):
                super().notify_all()
                if is_left and threading.current_thread().name.startswith("tfrecord-io-"):
                    gc.collect()

        monkeypatch.setattr(threading, "Condition", Collecting)
        is_left = False
        goes_on = threading.Event()

        def work():
            for _ in range(10):
                yield 1
                goes_on.wait(10)

        gc.disable()
        try:
            # Each item is handed on alone, and there is room for all.
            options = {"item_bytes": lambda item: 10**7, "budget_bytes": 10**9}
            streams = self.run([work] * 4, **options)
            next(next(streams))
            cycle = [streams]
            cycle.append(cycle)
            del streams, cycle
            is_left = True
            goes_on.set()
            end = time.monotonic() + 60
            while live() and time.monotonic() < end:
                time.sleep(0.01)
            assert not live()
        finally:
            gc.enable()

    def test_no_works(self):
        assert list(self.run([])) == []

    @pytest.mark.parametrize("threads", [1, 2, 4])
    def test_the_caller_is_one_of_the_threads(self, threads):
        together = threading.Barrier(threads, timeout=10)

        def work():
            together.wait()
            yield threading.get_ident()

        found = {item for items in self.run([work] * threads, threads=threads) for item in items}
        assert threading.get_ident() in found
        assert len(found) == threads

    def test_the_caller_waits_without_work_of_its_own(self):
        def slow():
            time.sleep(0.5)
            yield 1

        begun = time.thread_time()
        # The thread that is started takes one of them, the caller the other.
        assert [list(items) for items in self.run([slow, slow], threads=2)] == [[1], [1]]
        assert list(parallel.read_ahead(slow, item_bytes=lambda item: 1, budget_bytes=1)) == [1]
        assert time.thread_time() - begun < 0.2

    def test_the_caller_does_not_wait_to_begin_a_work(self, monkeypatch):
        """Since it looked, others may have begun all that may wait for it."""
        can_work = parallel._Pool._can_work

        def look_and_sleep(pool):
            found = can_work(pool)
            if found and pool._own is None:
                pool._changed.wait_for(lambda: not can_work(pool), timeout=10)
            return found

        monkeypatch.setattr(parallel._Pool, "_can_work", look_and_sleep)
        found = []
        works = [lambda index=index: iter([index]) for index in range(100)]
        caller = threading.Thread(
            target=lambda: found.extend(
                item for items in self.run(works, threads=2) for item in items
            ),
            daemon=True,
        )
        caller.start()
        caller.join(20)
        assert not caller.is_alive()
        assert found == list(range(100))

    def test_threads_end_before_the_process(self):
        """Where CPython ends them, native code aborts the process."""
        code = """
            import atexit, itertools, threading

            @atexit.register
            def after():
                print([t.name for t in threading.enumerate() if t is not threading.main_thread()])
                try:
                    print(len(list(itertools.chain.from_iterable(streams))))
                except RuntimeError as error:
                    print(error)

            from tfrecord_io import parallel

            works = [lambda: itertools.repeat(1, 1000)] * 40
            streams = parallel.in_order(works, threads=4, item_bytes=int, budget_bytes=8)
            next(next(streams))
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        assert done.stdout == "[]\nreading has been stopped, since the process ends\n"

    def test_a_forked_process_does_not_wait_for_threads_of_its_parent(self):
        code = """
            import os, threading
            from tfrecord_io import parallel

            begun, may_end = threading.Event(), threading.Event()

            def work():
                yield 1
                begun.set()
                may_end.wait(20)
                yield 2

            found = parallel.read_ahead(work, item_bytes=int, budget_bytes=8)
            assert next(found) == 1
            assert begun.wait(20)
            if os.fork() == 0:
                try:
                    next(found)
                except RuntimeError as error:
                    print(error, flush=True)
                os._exit(0)
            os.wait()
            may_end.set()
            print(list(found))
        """
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        assert done.stdout == (
            "reading was begun before this process was forked, by threads that only its parent "
            "has; begin to read in this process\n[2]\n"
        )

    def test_what_the_caller_works_on_is_closed(self):
        closed = []

        def work():
            try:
                yield from range(100)
            finally:
                closed.append(threading.get_ident())

        streams = self.run([work] * 3, threads=1, budget_bytes=100)
        assert next(next(streams)) == 0
        assert next(next(streams)) == 0
        assert len(closed) == 1
        streams.close()
        assert closed == [threading.get_ident()] * 2

    def test_an_interrupt_in_the_callers_work_is_raised_at_once(self):
        caller = threading.get_ident()
        taken = []

        def work():
            if threading.get_ident() == caller:
                raise KeyboardInterrupt
            time.sleep(0.5)
            yield 1

        def consume():
            for items in self.run([work] * 4, threads=2):
                taken.extend(items)

        with pytest.raises(KeyboardInterrupt):
            consume()
        # The thread that is started may have been first, and is not waited for.
        assert taken == []
        assert not live()
