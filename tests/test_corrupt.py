"""Damaged, forged and foreign files: each its error, and what the skip modes keep and report."""

import gzip
import random
import re
import struct
import warnings

import pyarrow as pa
import pytest

from tests.support.frames import example, frame, header, records, sequence_example
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

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
FRAMES = [frame(example(n=n, s=f"value {n}")) for n in range(6)]
OFFSETS = [sum(map(len, FRAMES[:n])) for n in range(7)]
GOOD = b"".join(FRAMES)


def flip(data, position):
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


@pytest.fixture(params=[True, False], ids=["mapped", "streamed"])
def read(request, tmp_path, codec):
    """Write data to a file and read it back; keyword arguments pass on."""

    def reading(data, name="part-00000-000.tfrecord", function=read_table, **options):
        path = tmp_path / name
        path.write_bytes(data)
        if function is read_table:
            options.setdefault("schema", SCHEMA)
        return function(path, codec=codec, memory_map=request.param, **options)

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

    def test_a_forged_length_goes_to_the_end(self, read):
        data = b"".join(FRAMES[:2]) + header(2**29) + bytes(50) + b"".join(FRAMES[2:])
        numbers, ranges = skipping(read, data)
        assert numbers == [*range(6)]
        assert ranges == [(OFFSETS[2], OFFSETS[2] + 62)]

    def test_frames_inside_a_sound_header_are_not_taken(self, read):
        inner = frame(example(n=99, s="inner"))
        outer = flip(frame(b"." * 8 + inner), 12)
        numbers, ranges = skipping(read, FRAMES[0] + outer + FRAMES[1])
        assert numbers == [0, 1]
        assert ranges == [(len(FRAMES[0]), len(FRAMES[0] + outer))]

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

    def test_inference_skips_too(self, read):
        data = flip(GOOD, OFFSETS[2])
        with pytest.warns(CorruptDataWarning):
            assert read(data, function=infer_schema, on_corrupt="skip_record") == SCHEMA
        assert skipping(read, data, schema=None) == (
            [0, 1, 3, 4, 5],
            [(OFFSETS[2], OFFSETS[3])],
        )


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
        monkeypatch.setattr("tfrecord_io.tasks._HELD_BYTES", 10)
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


def test_a_bad_length_is_never_allocated(tmp_path, codec):
    (tmp_path / "a.gz").write_bytes(gzip.compress(header(2**30) + struct.pack("<I", 1)))
    with pytest.raises(TruncatedRecordError):
        read_table(tmp_path, schema=SCHEMA, codec=codec)
    assert pa.total_allocated_bytes() < 100_000_000
