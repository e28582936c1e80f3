"""Damaged, forged and foreign files: each its error, and what the skip modes keep and report."""

import bisect
import bz2
import contextlib
import functools
import gc
import gzip
import itertools
import random
import re
import struct
import sys
import warnings
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tfrecord_io as tfr
from tests.support import wire
from tests.support.frames import example, examples, frame, header, records, sequence_example
from tests.support.peaks import peak_bytes
from tfrecord_io.compression import compressor
from tfrecord_io.engines.local import count_rows, infer_schema, read_table, scan
from tfrecord_io.errors import (
    ChecksumError,
    CompressionError,
    CorruptDataWarning,
    DecodeError,
    InferenceError,
    LimitExceededError,
    OptionError,
    SchemaMismatchError,
    TruncatedRecordError,
)
from tfrecord_io.reading import source

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
FRAMES = [frame(example(n=n, s=f"value {n}")) for n in range(6)]
OFFSETS = [sum(map(len, FRAMES[:n])) for n in range(7)]
GOOD = b"".join(FRAMES)


def flip(data, position):
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


@pytest.fixture(params=["mapped", "mapped and read", "read", "at once"])
def read(request, monkeypatch, tmp_path, codec):
    """Write data to a file and read it back; keyword arguments pass on."""
    if request.param != "at once":
        monkeypatch.setattr(source, "_SMALL_BYTES", 0)
    is_read = request.param == "mapped and read"
    monkeypatch.setattr(source.MappedFile, "is_read_faster", lambda self, start, end: is_read)

    def reading(data, name="part-00000-000.tfrecord", function=read_table, **options):
        path = tmp_path / name
        path.write_bytes(data)
        if function is read_table:
            options.setdefault("schema", SCHEMA)
        return function(path, codec=codec, memory_map=request.param != "read", **options)

    return reading


def check(error, tmp_path, *, offset, record, feature=None, name="part-00000-000.tfrecord"):
    assert error.path == str(tmp_path / name)
    assert (error.offset, error.record, error.feature) == (offset, record, feature)


class TestRaise:
    @pytest.mark.parametrize("function", [read_table, infer_schema, count_rows])
    @pytest.mark.parametrize("there", [1, 11, 12, 13, len(FRAMES[5]) - 1])
    def test_truncated(self, read, tmp_path, function, there):
        with pytest.raises(TruncatedRecordError, match=f"{there} ") as caught:
            read(GOOD[: OFFSETS[5] + there], function=function)
        check(caught.value, tmp_path, offset=OFFSETS[5], record=5)

    def test_a_text_that_is_shorter_than_a_header(self, tmp_path, codec):
        """Such as a count of records, which somebody put beside them."""
        path = tmp_path / "count"
        path.write_text("1234\n")
        with pytest.raises(TruncatedRecordError, match=r"looks like text.* beside it, name"):
            read_table(path, codec=codec)
        # No text, and one that is not the beginning of the file, which tells what a file is.
        for data in (frame(b"")[:5], GOOD + b"1234\n"):
            path.write_bytes(data)
            with pytest.raises(TruncatedRecordError, match=r"appended to it \["):
                read_table(path, schema=SCHEMA, codec=codec)

    def test_truncation_tells_how_much_is_missing(self, read):
        needed = len(FRAMES[5])
        with pytest.raises(TruncatedRecordError, match=f"20 of its {needed} bytes"):
            read(GOOD[: OFFSETS[5] + 20])

    @pytest.mark.parametrize("function", [read_table, infer_schema, count_rows])
    @pytest.mark.parametrize("within", [0, 7, 8, 11])
    def test_flipped_header(self, read, tmp_path, function, within):
        with pytest.raises(ChecksumError, match="length") as caught:
            read(flip(GOOD, OFFSETS[3] + within), function=function)
        check(caught.value, tmp_path, offset=OFFSETS[3], record=3)

    @pytest.mark.parametrize("function", [read_table, infer_schema])
    @pytest.mark.parametrize("within", [12, 20, len(FRAMES[3]) - 1])
    def test_flipped_payload(self, read, tmp_path, function, within):
        data = flip(GOOD, OFFSETS[3] + within)
        with pytest.raises(ChecksumError, match="payload") as caught:
            read(data, function=function)
        check(caught.value, tmp_path, offset=OFFSETS[3], record=3)
        assert read(data, function=count_rows) == 6

    @pytest.mark.parametrize("length", [2**30 + 1, 2**40, 2**63, 2**64 - 1])
    def test_forged_length_with_a_right_crc(self, read, tmp_path, length):
        with pytest.raises(LimitExceededError, match="max_record_bytes") as caught:
            read(GOOD + header(length) + bytes(100))
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6)

    def test_forged_length_within_the_limit(self, read, tmp_path):
        with pytest.raises(TruncatedRecordError, match=str(2**30 + 16)) as caught:
            read(GOOD + header(2**30) + bytes(100))
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6)

    @pytest.mark.parametrize("tail", [b"\n", bytes(4), bytes(11), b"text behind the last record"])
    def test_trailing_bytes(self, read, tmp_path, tail):
        with pytest.raises((TruncatedRecordError, ChecksumError)) as caught:
            read(GOOD + tail)
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6)

    @pytest.mark.parametrize("data", [b"PAR1" + bytes(60), b'{"a": 1}\n' * 9, b"x,y\n1,2\n3,4\n"])
    def test_not_tfrecord(self, read, tmp_path, data):
        with pytest.raises((ChecksumError, TruncatedRecordError)) as caught:
            read(data)
        check(caught.value, tmp_path, offset=0, record=0)

    @pytest.mark.parametrize("function", [read_table, infer_schema])
    def test_not_protobuf(self, read, tmp_path, function):
        with pytest.raises(DecodeError) as caught:
            read(GOOD + frame(b"no Example at all"), function=function)
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6)

    def test_sequence_examples_read_as_examples(self, read, tmp_path):
        data = frame(sequence_example({"n": 1}, {"steps": [[1]]}))
        with pytest.raises(SchemaMismatchError, match="SequenceExample") as caught:
            read(data)
        check(caught.value, tmp_path, offset=0, record=0)

    @pytest.mark.parametrize(
        ("schema", "feature", "match"),
        [
            ({"n": pa.string()}, "n", "Int64List"),
            ({"n": pa.int64(), "s": pa.float32()}, "s", "BytesList"),
            # Nobody named the types that the codec has for these.
            ({"s": pa.bool_()}, "s", "BytesList.* that of .*Int64List: give it a type"),
            ({"s": pa.decimal128(9, 2)}, "s", "that of .*FloatList or Int64List: give it a type"),
            ({"n": pa.binary(2)}, "n", "Int64List.* that of .*BytesList: give it a type"),
            ({"n": pa.null()}, "n", "Int64List.* that of no kind: give it a type"),
        ],
    )
    def test_wrong_schema(self, read, tmp_path, schema, feature, match):
        with pytest.raises(SchemaMismatchError, match=match) as caught:
            read(GOOD, schema=pa.schema(schema))
        check(caught.value, tmp_path, offset=0, record=0, feature=feature)

    def test_a_value_that_does_not_fit(self, read, tmp_path):
        data = GOOD + frame(example(n=300, s="x"))
        with pytest.raises(SchemaMismatchError) as caught:
            read(data, schema=pa.schema([("n", pa.int8())]))
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6, feature="n")

    def test_an_earlier_error_wins(self, read, tmp_path):
        bad_text = frame(example(n=1, s=b"\xff"))
        data = FRAMES[0] + bad_text + flip(FRAMES[2], 15)
        with pytest.raises(SchemaMismatchError, match="UTF-8") as caught:
            read(data)
        check(caught.value, tmp_path, offset=len(FRAMES[0]), record=1, feature="s")

    def test_rows_before_the_error_come_first(self, read):
        reader = read(flip(GOOD, OFFSETS[3]), function=scan, schema=SCHEMA)
        assert reader.read_next_batch()["n"].to_pylist() == [0, 1, 2]
        with pytest.raises(ChecksumError):
            reader.read_next_batch()

    def test_rows_before_a_value_that_does_not_fit_come_first(self, read):
        rows = [{"n": 5, "m": 1}, {"n": 6, "m": 1}, {"n": 7, "m": 300}, {"n": 300, "m": 1}]
        schema = pa.schema([("n", pa.int8()), ("m", pa.int8())])
        reader = read(examples(*rows), function=scan, schema=schema)
        assert reader.read_next_batch()["n"].to_pylist() == [5, 6]
        with pytest.raises(SchemaMismatchError, match="'m'"):
            reader.read_next_batch()

    @pytest.mark.parametrize("mode", ["raise", "skip_record", "keep"])
    def test_rows_before_what_is_no_text_come_first(self, read, mode):
        rows = [*FRAMES[:3], frame(example(n=3, s=b"\xff")), *FRAMES[4:]]
        damaged = flip(FRAMES[0], 15)
        reader = read(damaged + b"".join(rows), function=scan, schema=SCHEMA, on_corrupt=mode)
        seen = []
        error = ChecksumError if mode == "raise" else SchemaMismatchError
        with pytest.raises(error), warnings.catch_warnings():
            warnings.simplefilter("ignore", CorruptDataWarning)
            for batch in reader:
                seen += batch["n"].to_pylist()
        assert seen == {"raise": [], "skip_record": [0, 1, 2], "keep": [None, 0, 1, 2]}[mode]

    def test_truncated_gzip(self, read, tmp_path):
        with pytest.raises(CompressionError, match="ends early") as caught:
            read(gzip.compress(GOOD)[:-9])
        assert caught.value.path == str(tmp_path / "part-00000-000.tfrecord")

    def test_damage_behind_gzip(self, read, tmp_path):
        with pytest.raises(TruncatedRecordError) as caught:
            read(gzip.compress(GOOD + b"xyz"))
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6)

    def test_inference_names_the_places(self, read, tmp_path):
        data = records(example(a=1), example(a="x"))
        with pytest.raises(InferenceError, match=r"record 1.*record 0"):
            read(data, function=infer_schema)

    def test_unknown_mode(self, read):
        with pytest.raises(OptionError, match="on_corrupt"):
            read(GOOD, on_corrupt="ignore")


def skipping(read, data, mode="skip_record", **options):
    """Return the numbers read and the byte ranges of the one warning."""
    with pytest.warns(CorruptDataWarning) as caught:
        table = read(data, on_corrupt=mode, **options)
    assert len(caught) == 1
    ranges = [(int(a), int(b)) for a, b in re.findall(r"(\d+) to (\d+)", str(caught[0].message))]
    return table["n"].to_pylist(), ranges


class TestSkipRecord:
    def test_sound_files_do_not_warn(self, read):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read(GOOD, on_corrupt="skip_record").num_rows == 6

    @pytest.mark.parametrize("index", range(6))
    @pytest.mark.parametrize("within", [0, 8, 12, 20, -1])
    def test_one_flipped_byte(self, read, index, within):
        end = OFFSETS[index + 1]
        position = OFFSETS[index] + within if within >= 0 else end + within
        numbers, ranges = skipping(read, flip(GOOD, position))
        assert numbers == [n for n in range(6) if n != index]
        assert ranges == [(OFFSETS[index], end)]

    @pytest.mark.parametrize("indices", [(0, 1), (1, 3), (4, 5), (0, 5), (0, 1, 2, 3, 4, 5)])
    def test_several(self, read, indices):
        data = GOOD
        for index in indices:
            data = flip(data, OFFSETS[index] + 3)
        numbers, ranges = skipping(read, data)
        assert numbers == [n for n in range(6) if n not in indices]
        assert sum(b - a for a, b in ranges) == sum(len(FRAMES[index]) for index in indices)

    def test_bytes_between_records(self, read):
        data = b"".join(FRAMES[:3]) + b"some noise" + b"".join(FRAMES[3:])
        assert skipping(read, data) == ([*range(6)], [(OFFSETS[3], OFFSETS[3] + 10)])

    def test_lost_bytes(self, read):
        data = GOOD[: OFFSETS[2] + 10] + GOOD[OFFSETS[4] - 10 :]
        numbers, _ = skipping(read, data)
        assert numbers == [0, 1, 4, 5]

    @pytest.mark.parametrize("there", [1, 12, 25])
    def test_truncated(self, read, there):
        data = GOOD[: OFFSETS[5] + there]
        assert skipping(read, data) == ([*range(5)], [(OFFSETS[5], len(data))])

    def test_not_protobuf(self, read):
        bad = frame(b"no Example at all")
        data = FRAMES[0] + bad + FRAMES[1]
        assert skipping(read, data) == ([0, 1], [(len(FRAMES[0]), len(FRAMES[0] + bad))])

    @pytest.mark.parametrize("mode", ["skip_record", "keep"])
    @pytest.mark.parametrize(
        "feature",
        [
            wire.field(1, wire.field(1, b"fine") + b"\n\x05cut"),
            wire.field(2, wire.field(1, b"\0\0\0")),
            wire.field(3, wire.field(1, b"\x80")),
            wire.field(4, b"unknown") + b"\x07",
        ],
    )
    @pytest.mark.parametrize("asked", [{}, {"schema": None}, {"columns": ["n"]}])
    def test_damage_where_nobody_looks(self, read, mode, feature, asked):
        sound = wire.example(wire.entry(b"n", wire.int64_list([0])))
        bad = frame(wire.example(wire.entry(b"n", wire.int64_list([7])), wire.entry(b"z", feature)))
        data = frame(sound) + bad + FRAMES[1]
        numbers, ranges = skipping(read, data, mode, **asked)
        assert numbers == [0, *([None] if mode == "keep" else []), 1]
        assert ranges == [(len(frame(sound)), len(frame(sound) + bad))]

    def test_damage_in_steps_where_nobody_looks(self, read):
        good, bad = (
            frame(
                wire.sequence_example(
                    [wire.entry(b"n", wire.int64_list([number]))],
                    [wire.entry(b"z", wire.feature_list(step))],
                )
            )
            for number, step in ((1, b""), (2, wire.field(2, wire.field(1, b"\0\0\0"))))
        )
        schema = pa.schema([("n", pa.int64())])
        numbers, ranges = skipping(
            read, good + bad + good, schema=schema, record_type="SequenceExample"
        )
        assert numbers == [1, 1]
        assert ranges == [(len(good), len(good + bad))]

    def test_a_forged_length_goes_to_the_end(self, read):
        data = b"".join(FRAMES[:2]) + header(2**29) + bytes(50) + b"".join(FRAMES[2:])
        numbers, ranges = skipping(read, data)
        assert numbers == [*range(6)]
        assert ranges == [(OFFSETS[2], OFFSETS[2] + 62)]

    def test_frames_inside_a_sound_header_are_not_taken(self, read):
        inner = frame(example(n=99, s="inner"))
        outer = flip(frame(b"." * 8 + inner), 12)
        for behind in (FRAMES[1], b""):
            numbers, ranges = skipping(read, FRAMES[0] + outer + behind)
            assert numbers == ([0, 1] if behind else [0])
            assert ranges == [(len(FRAMES[0]), len(FRAMES[0] + outer))]
        # Of the record behind it, nothing but the header is there.
        data = FRAMES[0] + outer + FRAMES[1][:12]
        assert skipping(read, data) == ([0], [(len(FRAMES[0]), len(data))])

    def test_a_length_that_no_record_has_behind_a_damaged_record(self, read):
        data = FRAMES[0] + flip(FRAMES[1], 12) + header(2**40) + FRAMES[2]
        assert skipping(read, data) == ([0, 2], [(OFFSETS[1], OFFSETS[2] + 12)])

    def test_a_damaged_record_counts_where_a_later_one_is_named(self, read, tmp_path):
        data = flip(GOOD, OFFSETS[1] + 12) + frame(example(n="text"))
        with (
            pytest.warns(CorruptDataWarning, match=f"{OFFSETS[1]} to {OFFSETS[2]}$"),
            pytest.raises(SchemaMismatchError) as caught,
        ):
            read(data, on_corrupt="skip_record")
        check(caught.value, tmp_path, offset=OFFSETS[6], record=6, feature="n")

    def test_a_mapped_file_is_searched_as_a_whole(self, tmp_path, monkeypatch, codec):
        """So a frame behind damage that is larger than any window is found there."""
        monkeypatch.setattr(source, "_SMALL_BYTES", 0)
        monkeypatch.setattr(source, "_RELEASE_BYTES", 64)
        monkeypatch.setattr("tfrecord_io.reading.frames._FIRST_LOOK_BYTES", 64)
        monkeypatch.setattr("tfrecord_io.reading.frames._RESYNC_BYTES", 256)
        large = frame(example(n=1, s="x" * 2000))
        (tmp_path / "a").write_bytes(FRAMES[0] + b"some noise" + large + FRAMES[2])
        with pytest.warns(CorruptDataWarning, match="10 bytes"):
            table = read_table(tmp_path, schema=SCHEMA, on_corrupt="skip_record", codec=codec)
        assert table["n"].to_pylist() == [0, 1, 2]

    @pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
    def test_a_frame_in_a_large_one_behind_damage_is_not_taken(self, read, monkeypatch, compress):
        """Of the large one, no window that is looked at first has all."""
        for name in ("_CHUNK_BYTES", "_READ_BYTES", "_RELEASE_BYTES"):
            monkeypatch.setattr(source, name, 64)
        monkeypatch.setattr("tfrecord_io.reading.frames._FIRST_LOOK_BYTES", 128)
        inner = frame(example(n=99, s="inner"))
        for size in (200, 2000):
            large = frame(wire.field(100, inner + bytes(size)) + example(n=1, s="outer"))
            data = FRAMES[0] + b"some noise" + large + FRAMES[2]
            numbers, ranges = skipping(read, compress(data))
            assert numbers == [0, 1, 2]
            assert ranges == [(OFFSETS[1], OFFSETS[1] + 10)]

    def test_nothing_sound(self, read):
        data = random.Random(1).randbytes(5000)
        assert skipping(read, data) == ([], [(0, 5000)])

    def test_errors_that_are_no_damage_are_raised(self, read):
        with pytest.raises(SchemaMismatchError):
            read(GOOD, schema=pa.schema([("n", pa.string())]), on_corrupt="skip_record")
        with pytest.raises(LimitExceededError):
            read(GOOD + header(2**40) + GOOD, on_corrupt="skip_record")

    def test_damage_inside_gzip(self, read):
        data = gzip.compress(flip(GOOD, OFFSETS[2] + 12))
        assert skipping(read, data) == ([0, 1, 3, 4, 5], [(OFFSETS[2], OFFSETS[3])])

    def test_a_truncated_gzip_keeps_what_is_there(self, read):
        numbers, _ = skipping(read, gzip.compress(GOOD)[:-4])
        assert numbers == [*range(6)]

    def test_a_damaged_gzip_keeps_nearly_all_before_the_damage(self, tmp_path):
        rng = random.Random(2)
        rows = [{"n": n, "s": rng.randbytes(40).hex()} for n in range(4000)]
        data = bytearray(gzip.compress(records(*(example(**row) for row in rows))))
        data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
        (tmp_path / "a").write_bytes(data)
        with pytest.warns(CorruptDataWarning, match="to the end"):
            table = read_table(tmp_path, schema=SCHEMA, on_corrupt="skip_record")
        assert table["n"].to_pylist() == [*range(table.num_rows)]
        assert 1500 < table.num_rows < 2000

    @pytest.mark.parametrize(
        ("damage", "end"),
        [(flip(FRAMES[2], 3), OFFSETS[3]), (FRAMES[2][:20] + FRAMES[2][24:], OFFSETS[3] - 4)],
        ids=["length", "lost bytes"],
    )
    def test_sound_records_between_damage_and_where_a_stream_breaks(self, read, damage, end):
        data = b"".join([*FRAMES[:2], damage, *FRAMES[3:]])
        broken = gzip.compress(data)[:-4]
        numbers, ranges = skipping(read, broken)
        assert numbers == [0, 1, 3, 4, 5]
        # And another one, from the last record to the end.
        assert ranges == [(OFFSETS[2], end)]
        sound = [(n, None) for n in numbers]
        kept = [*sound[:2], (None, damage), *sound[2:], (None, b"")]
        assert keeping(read, broken) == (kept, 2)

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("compression", ["gzip", "bzip2", "zstd", "lz4"])
    def test_frames_in_the_last_record_of_a_stream_that_breaks(
        self, tmp_path, compression, threads, codec
    ):
        """With more threads than files, another one decompresses."""
        noise = random.Random(3).randbytes(1_000_000)
        data = GOOD + frame(FRAMES[0] + noise + FRAMES[0] + noise) + GOOD
        stream = compressor(compression)
        (tmp_path / "a").write_bytes((stream.compress(data) + stream.flush())[:-1000])
        with pytest.warns(CorruptDataWarning, match=f"{len(GOOD)} to the end"):
            table = read_table(
                tmp_path,
                schema=SCHEMA,
                compression=compression,
                on_corrupt="skip_record",
                threads=threads,
                codec=codec,
            )
        assert table["n"].to_pylist() == [*range(6)]

    def test_inference_skips_too(self, read):
        data = flip(GOOD, OFFSETS[2])
        with pytest.warns(CorruptDataWarning):
            assert read(data, function=infer_schema, on_corrupt="skip_record") == SCHEMA
        assert skipping(read, data, schema=None) == (
            [0, 1, 3, 4, 5],
            [(OFFSETS[2], OFFSETS[3])],
        )


def expected_rows(data, sound, ranges):
    """Return the records' numbers and the bytes of damage, in the order of the file."""
    found = [(offset, n, None) for offset, n in sound]
    found += [(start, None, data[start:end]) for start, end in ranges]
    return [(n, damaged) for _, n, damaged in sorted(found)]


def keeping(read, data, **options):
    """Return the numbers and the damaged bytes of all rows, and how many ranges were reported."""
    with pytest.warns(CorruptDataWarning, match="made rows of") as caught:
        table = read(data, on_corrupt="keep", corrupt_column="damaged", **options)
    assert len(caught) == 1
    (count,) = re.findall(r"made rows of (\d+) damaged byte range", str(caught[0].message))
    assert table.column_names[-1] == "damaged"
    rows = zip(table["n"].to_pylist(), table["damaged"].to_pylist(), strict=True)
    return [*rows], int(count)


class TestKeep:
    def test_sound_files(self, read):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = read(GOOD, on_corrupt="keep", corrupt_column="damaged")
        assert table["n"].to_pylist() == [*range(6)]
        assert table["damaged"].null_count == 6
        assert table.schema.field("damaged").type == pa.binary()

    @pytest.mark.parametrize("batch_rows", [1, 2, 100])
    @pytest.mark.parametrize("indices", [(0,), (5,), (1, 3), (2, 3), (0, 5), (0, 1, 2, 3, 4, 5)])
    def test_what_is_between_sound_records_is_one_row(self, read, indices, batch_rows):
        data = GOOD
        for index in indices:
            data = flip(data, OFFSETS[index] + 14)
        sound = [(OFFSETS[n], n) for n in range(6) if n not in indices]
        runs = []
        for index in indices:
            if runs and runs[-1][1] == OFFSETS[index]:
                runs[-1] = (runs[-1][0], OFFSETS[index + 1])
            else:
                runs.append((OFFSETS[index], OFFSETS[index + 1]))
        rows, count = keeping(read, data, batch_rows=batch_rows)
        assert rows == expected_rows(data, sound, runs)
        assert count == len(runs)

    @pytest.mark.parametrize(
        "damage",
        [
            b"some noise",
            header(2**29) + bytes(50),
            frame(b"no Example at all"),
            frame(b"." * 8 + frame(example(n=99)))[:-1] + b"?",
            random.Random(3).randbytes(3_000_000),
        ],
        ids=["noise", "forged_length", "not_protobuf", "frame_in_a_frame", "much"],
    )
    @pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
    def test_damage_between_records(self, read, damage, compress):
        data = b"".join(FRAMES[:3]) + damage + b"".join(FRAMES[3:])
        behind = OFFSETS[3] + len(damage)
        sound = [(OFFSETS[n] + (len(damage) if n > 2 else 0), n) for n in range(6)]
        rows, _ = keeping(read, compress(data))
        assert rows == expected_rows(data, sound, [(OFFSETS[3], behind)])

    @pytest.mark.parametrize("there", [1, 12, 25])
    @pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
    def test_truncated(self, read, there, compress):
        data = GOOD[: OFFSETS[5] + there]
        rows, _ = keeping(read, compress(data))
        assert rows == [*((n, None) for n in range(5)), (None, data[OFFSETS[5] :])]

    @pytest.mark.parametrize("compression", ["gzip", "zstd", "snappy", "lz4"])
    def test_a_compressed_stream_that_breaks(self, tmp_path, compression):
        """What it still gave of the record in which it broke is kept."""
        rng = random.Random(2)
        rows = [{"n": n, "s": rng.randbytes(40).hex()} for n in range(10_000)]
        plain = records(*(example(**row) for row in rows))
        stream = compressor(compression)
        data = stream.compress(plain) + stream.flush()
        (tmp_path / "a").write_bytes(data[: len(data) // 2])
        with pytest.warns(CorruptDataWarning, match="to the end"):
            table = read_table(
                tmp_path,
                schema=SCHEMA,
                compression=compression,
                on_corrupt="keep",
                corrupt_column="damaged",
            )
        whole = table.num_rows - 1
        # zstd and lz4 have blocks of 128 and 256 KiB.
        assert 3000 < whole < 6000
        assert table["n"].to_pylist() == [*range(whole), None]
        sound = len(records(*(example(**row) for row in rows[:whole])))
        rest = table["damaged"][-1].as_py()
        assert len(rest) < len(records(example(**rows[whole])))
        assert plain[sound : sound + len(rest)] == rest

    @pytest.mark.parametrize(
        ("compress", "decompressor"),
        [
            (gzip.compress, lambda: zlib.decompressobj(31)),
            (zlib.compress, zlib.decompressobj),
            (functools.partial(bz2.compress, compresslevel=1), bz2.BZ2Decompressor),
        ],
        ids=["gzip", "deflate", "bzip2"],
    )
    @pytest.mark.parametrize("share", [0.02, 0.5, 0.99, 1])
    @pytest.mark.parametrize("noise_bytes", [0, 400_000])
    def test_what_a_library_gives_of_a_stream_that_breaks(
        self, tmp_path, compress, decompressor, noise_bytes, share
    ):
        rng = random.Random(3)
        frames = [frame(example(n=n, s=rng.randbytes(40).hex())) for n in range(4000)]
        if noise_bytes:
            # It breaks where the next record is looked for.
            frames[40:] = [rng.randbytes(noise_bytes)]
        data = compress(b"".join(frames))
        data = data[: int(len(data) * share) - 9]
        (tmp_path / "a").write_bytes(data)
        there = decompressor().decompress(data)
        ends = [*itertools.accumulate(map(len, frames), initial=0)]
        whole = min(bisect.bisect_right(ends, len(there)) - 1, 40 if noise_bytes else 4000)
        with pytest.warns(CorruptDataWarning, match="to the end"):
            table = read_table(tmp_path, schema=SCHEMA, on_corrupt="keep", corrupt_column="damaged")
        assert table["n"].to_pylist() == [*range(whole), None]
        assert table["damaged"][-1].as_py() == there[ends[whole] :]

    @pytest.mark.parametrize("window", [64, 256])
    def test_windows_that_move_on(self, tmp_path, monkeypatch, window):
        """A file that is not mapped is searched in windows that overlap by half."""
        monkeypatch.setattr(source, "_SMALL_BYTES", 0)
        monkeypatch.setattr(source, "_READ_BYTES", 16)
        monkeypatch.setattr("tfrecord_io.reading.frames._FIRST_LOOK_BYTES", window)
        monkeypatch.setattr("tfrecord_io.reading.frames._RESYNC_BYTES", window)
        # So long that the frame behind it stands on the border of two windows.
        noise = random.Random(4).randbytes(19 * 256 + 240 + 1)
        small = frame(example(n=7))
        data = small + noise + small
        (tmp_path / "a").write_bytes(data)
        with pytest.warns(CorruptDataWarning):
            table = read_table(
                tmp_path,
                schema=SCHEMA,
                on_corrupt="keep",
                corrupt_column="damaged",
                memory_map=False,
            )
        assert table["n"].to_pylist() == [7, None, 7]
        assert table["damaged"][1].as_py() == noise

    def test_bytes_need_not_be_kept(self, read):
        with pytest.warns(CorruptDataWarning):
            table = read(flip(GOOD, OFFSETS[2]), on_corrupt="keep")
        assert table.column_names == ["n", "s"]
        assert table["n"].to_pylist() == [0, 1, None, 3, 4, 5]

    def test_byte_arrays(self, read):
        data = frame(b"one") + b"?" + frame(b"two")
        with pytest.warns(CorruptDataWarning):
            table = read(
                data,
                schema=None,
                record_type="ByteArray",
                on_corrupt="keep",
                corrupt_column="damaged",
            )
        assert table.to_pydict() == {
            "byteArray": [b"one", None, b"two"],
            "damaged": [None, b"?", None],
        }

    def test_no_other_columns(self, read):
        data = flip(GOOD, OFFSETS[2])
        with pytest.warns(CorruptDataWarning):
            table = read(data, columns=[], on_corrupt="keep", corrupt_column="damaged")
        assert table["damaged"].to_pylist() == [
            *[None] * 2,
            data[OFFSETS[2] : OFFSETS[3]],
            *[None] * 3,
        ]
        with pytest.warns(CorruptDataWarning):
            assert read(data, columns=[], on_corrupt="keep").num_rows == 6

    def test_columns_of_the_path_keep_their_values(self, tmp_path, codec):
        for p in (1, 2):
            (tmp_path / f"p={p}").mkdir()
            (tmp_path / f"p={p}" / "a").write_bytes(FRAMES[0] + b"noise" * p)
        with pytest.warns(CorruptDataWarning):
            table = read_table(
                tmp_path,
                on_corrupt="keep",
                corrupt_column="damaged",
                path_column="file",
                codec=codec,
            )
        assert table.column_names == ["n", "s", "damaged", "p", "file"]
        assert table.drop(["s", "file"]).to_pylist() == [
            {"n": 0, "damaged": None, "p": 1},
            {"n": None, "damaged": b"noise", "p": 1},
            {"n": 0, "damaged": None, "p": 2},
            {"n": None, "damaged": b"noisenoise", "p": 2},
        ]
        assert table["file"][3].as_py() == str(tmp_path / "p=2" / "a")

    def test_filters(self, read):
        data = flip(GOOD, OFFSETS[2])
        options = {"on_corrupt": "keep", "corrupt_column": "damaged"}
        with pytest.warns(CorruptDataWarning):
            assert read(data, filters=[("n", ">", 1)], **options)["n"].to_pylist() == [3, 4, 5]
        with pytest.warns(CorruptDataWarning):
            only = read(data, filters=pc.field("damaged").is_valid(), **options)
        assert only["damaged"].to_pylist() == [data[OFFSETS[2] : OFFSETS[3]]]

    @pytest.mark.parametrize(
        "column",
        [
            *(pa.bool_(), pa.date32(), pa.decimal128(5, 2), pa.large_string(), pa.null()),
            *(pa.list_(pa.int16(), 2), pa.large_list(pa.float64()), pa.binary_view()),
            *(pa.dictionary(pa.int8(), pa.string()), pa.fixed_shape_tensor(pa.int64(), (2, 2))),
        ],
        ids=str,
    )
    def test_nulls_of_every_type(self, tmp_path, column):
        (tmp_path / "a").write_bytes(b"nothing but noise")
        with pytest.warns(CorruptDataWarning):
            table = read_table(tmp_path, schema=pa.schema([("x", column)]), on_corrupt="keep")
        assert table.schema.field("x").type == column
        assert table["x"].to_pylist() == [None]

    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_large_file_is_read_in_order(self, tmp_path, threads):
        """Also where the damage lies across a cut that is made otherwise, every 4 MiB."""
        rng = random.Random(5)
        frames = [frame(example(n=n, s=rng.randbytes(500).hex())) for n in range(12_000)]
        first = 8 * 1024 * 1024 // len(frames[0]) - 10
        bad = [100, *range(first, first + 20)]
        for index in bad:
            frames[index] = flip(frames[index], 20)
        assert sum(map(len, frames[:first])) < 8 * 1024 * 1024
        assert sum(map(len, frames[: first + 20])) > 8 * 1024 * 1024
        (tmp_path / "a").write_bytes(b"".join(frames))
        with pytest.warns(CorruptDataWarning, match="made rows of 2 "):
            table = read_table(
                tmp_path,
                schema=SCHEMA,
                on_corrupt="keep",
                corrupt_column="damaged",
                threads=threads,
            )
        sound = [*range(12_000)]
        sound[first : first + 20] = [None]
        sound[100] = None
        assert table["n"].to_pylist() == sound
        assert table["damaged"].drop_null().to_pylist() == [
            frames[100],
            b"".join(frames[first : first + 20]),
        ]

    def test_many_rows_of_damage_take_little_memory(self, tmp_path):
        frames = [frame(example(n=n, s="x" * 40)) for n in range(8_000)]
        call = "import pyarrow, warnings; warnings.simplefilter('ignore')\n"
        call += "schema = pyarrow.schema({'n': pyarrow.int64(), 's': pyarrow.string()})\n"
        call += "read_table('a', schema=schema, on_corrupt='keep', codec='native')"
        (tmp_path / "a").write_bytes(b"".join(frames))
        least = peak_bytes(tmp_path, call)
        frames[1::2] = [flip(data, 20) for data in frames[1::2]]
        (tmp_path / "a").write_bytes(b"".join(frames))
        assert peak_bytes(tmp_path, call) - least < 100e6

    def test_more_than_a_column_holds(self, read, monkeypatch):
        monkeypatch.setattr("tfrecord_io.reading.frames._MAX_KEPT_BYTES", 999)
        data = FRAMES[0] + random.Random(6).randbytes(1000)
        reader = read(
            data, function=scan, schema=SCHEMA, on_corrupt="keep", corrupt_column="damaged"
        )
        assert reader.read_next_batch()["n"].to_pylist() == [0]
        with pytest.raises(LimitExceededError, match="999 damaged bytes") as caught:
            reader.read_next_batch()
        assert caught.value.offset == len(FRAMES[0])
        with pytest.warns(CorruptDataWarning):
            assert read(data, on_corrupt="keep")["n"].to_pylist() == [0, None]
        monkeypatch.setattr("tfrecord_io.reading.frames._MAX_KEPT_BYTES", 1000)
        assert keeping(read, data) == ([(0, None), (None, data[len(FRAMES[0]) :])], 1)

    def test_the_row_is_as_large_as_any_other(self, read):
        # A manifest may name any type; the room for one null of it would be 16 GiB.
        schema = pa.schema([("n", pa.list_(pa.int64(), 2**31 - 1))])
        with pytest.raises(SchemaMismatchError, match="room in a batch of 1 rows") as caught:
            read(frame(b"no Example"), schema=schema, on_corrupt="keep")
        assert caught.value.feature == "n"

    @pytest.mark.parametrize("seed", range(40))
    def test_it_keeps_what_skipping_skips(self, read, seed):
        rng = random.Random(seed)
        data = bytearray(GOOD)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.5:
            del data[rng.randrange(1, len(data)) :]
        if bytes(data) == GOOD[: len(data)] and len(data) in OFFSETS:
            return
        numbers, ranges = skipping(read, bytes(data))
        rows, count = keeping(read, bytes(data), batch_rows=rng.randrange(1, 8))
        assert rows == expected_rows(bytes(data), [(OFFSETS[n], n) for n in numbers], ranges)
        assert count == len(ranges)

    def test_inference_looks_past_damage(self, read):
        data = flip(GOOD, OFFSETS[2])
        with pytest.warns(CorruptDataWarning):
            table = read(data, schema=None, on_corrupt="keep", corrupt_column="damaged")
        assert table.schema == SCHEMA.append(pa.field("damaged", pa.binary()))
        with pytest.warns(CorruptDataWarning):
            assert read(data, function=infer_schema, on_corrupt="keep") == SCHEMA

    @pytest.mark.parametrize(
        ("options", "error", "match"),
        [
            ({"on_corrupt": "skip_record"}, OptionError, "on_corrupt='keep'"),
            ({"corrupt_column": "n"}, OptionError, "'n'"),
            ({"corrupt_column": "n", "schema": None}, OptionError, "'n'"),
            ({"corrupt_column": 3}, OptionError, "3"),
            ({"path_column": "damaged"}, OptionError, "'damaged'"),
            (
                {"schema": pa.schema([pa.field("n", pa.int64(), nullable=False)])},
                SchemaMismatchError,
                "'n'.*nullable",
            ),
        ],
    )
    def test_arguments_that_do_not_fit(self, read, options, error, match):
        with pytest.raises(error, match=match):
            read(GOOD, **{"on_corrupt": "keep", "corrupt_column": "damaged", **options})

    @pytest.mark.parametrize(
        "reading",
        [
            lambda path: tfr.compute_statistics(path, on_corrupt="keep"),
            lambda path: tfr.convert(path, path / "_out", to_format="parquet", on_corrupt="keep"),
            lambda path: tfr.batches(path, batch_size=2, on_corrupt="keep"),
        ],
        ids=["statistics", "convert", "batches"],
    )
    def test_where_no_rows_are_asked_for(self, tmp_path, reading):
        (tmp_path / "a").write_bytes(GOOD)
        with pytest.raises(OptionError, match="on_corrupt is 'keep'"):
            reading(tmp_path)

    def test_errors_that_are_no_damage_are_raised(self, read):
        with pytest.raises(SchemaMismatchError):
            read(GOOD, schema=pa.schema([("n", pa.string())]), on_corrupt="keep")
        with pytest.raises(LimitExceededError):
            read(GOOD + header(2**40) + GOOD, on_corrupt="keep")


class TestSkipFile:
    @pytest.mark.parametrize("position", [0, OFFSETS[3] + 12, len(GOOD) - 1])
    @pytest.mark.parametrize("threads", [1, 2])
    def test_all_or_nothing(self, tmp_path, position, threads, codec):
        (tmp_path / "a").write_bytes(GOOD)
        (tmp_path / "b").write_bytes(flip(GOOD, position))
        (tmp_path / "c").write_bytes(GOOD)
        with pytest.warns(CorruptDataWarning, match="skipped the file") as caught:
            table = read_table(
                tmp_path, schema=SCHEMA, on_corrupt="skip_file", threads=threads, codec=codec
            )
        assert table["n"].to_pylist() == [*range(6)] * 2
        assert len(caught) == 1
        assert str(tmp_path / "b") in str(caught[0].message)
        assert f"0 to {len(GOOD)}" in str(caught[0].message)

    def test_a_file_too_large_to_hold(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tfrecord_io.reading.tasks._HELD_BYTES", 10)
        (tmp_path / "a").write_bytes(GOOD)
        (tmp_path / "b").write_bytes(GOOD + b"x")
        with pytest.warns(CorruptDataWarning):
            table = read_table(tmp_path, batch_rows=2, on_corrupt="skip_file")
        assert table["n"].to_pylist() == [*range(6)]

    def test_damaged_compression(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(gzip.compress(GOOD)[:-1])
        with pytest.warns(CorruptDataWarning):
            assert read_table(tmp_path, schema=SCHEMA, on_corrupt="skip_file").num_rows == 0


@pytest.mark.parametrize("seed", range(30))
def test_any_damage_gives_rows_or_a_declared_error(tmp_path, seed, codec):
    rng = random.Random(seed)
    data = bytearray(GOOD)
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]
    (tmp_path / "a").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptDataWarning)
        kept = read_table(tmp_path, schema=SCHEMA, on_corrupt="skip_record", codec=codec)
    sound = [
        n
        for n in range(6)
        if OFFSETS[n + 1] <= len(data) and data[OFFSETS[n] : OFFSETS[n + 1]] == FRAMES[n]
    ]
    assert kept["n"].to_pylist() == sound


@pytest.mark.parametrize("on_corrupt", ["raise", "skip_record", "keep", "skip_file"])
@pytest.mark.filterwarnings("ignore::tfrecord_io.errors.CorruptDataWarning")
def test_a_damaged_file_is_let_go_at_once(tmp_path, monkeypatch, on_corrupt, codec):
    """Not only when the collector comes, which counts objects, and not what they hold."""
    monkeypatch.setattr(source, "_SMALL_BYTES", 0)
    (tmp_path / "a").write_bytes(flip(GOOD, OFFSETS[3]))
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ChecksumError):
            read_table(tmp_path, schema=SCHEMA, on_corrupt=on_corrupt, codec=codec)
        assert not any(isinstance(one, source.MappedFile) for one in gc.get_objects())
    finally:
        gc.enable()


def test_a_bad_length_is_never_allocated(tmp_path, codec):
    (tmp_path / "a.gz").write_bytes(gzip.compress(header(2**30) + struct.pack("<I", 1)))
    # Asked for in a process of its own, since what was freed again counts, and before it is used.
    code = f"""
import pyarrow, tracemalloc
tracemalloc.start()
try:
    read_table("a.gz", schema=pyarrow.schema([("n", pyarrow.int64())]), codec={codec!r})
except TruncatedRecordError:
    most = tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory()
    assert most < 100_000_000, most
else:
    raise AssertionError("the record was read")
"""
    peak_bytes(tmp_path, code)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    "record",
    [
        wire.sequence_example(lists=[wire.entry(b"x", b"\x0a\0" * 10_000_000)]),
        wire.field(1, b"\x0a\0" * 10_000_000),
        wire.field(2, b"\x0a\0" * 10_000_000),
    ],
    ids=["steps", "context", "feature lists"],
)
def test_many_entries_of_two_bytes_take_little_memory(tmp_path, record):
    (tmp_path / "a").write_bytes(frame(record))
    call = "try: infer_schema('a', record_type='SequenceExample', codec='native')\n"
    call += "except LimitExceededError: pass"
    peak = peak_bytes(tmp_path, call)
    (tmp_path / "a").write_bytes(frame(wire.sequence_example()))
    assert peak - peak_bytes(tmp_path, call) < 5 * len(record)


@pytest.mark.parametrize("on_corrupt", ["raise", "skip_record", "skip_file", "keep"])
def test_a_wrong_compression_is_no_damage(read, on_corrupt):
    options = {"corrupt_column": None} if on_corrupt == "keep" else {}
    with pytest.raises(OptionError, match="plain TFRecord: leave compression out"):
        read(GOOD, compression="gzip", on_corrupt=on_corrupt, **options)
