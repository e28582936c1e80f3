"""What every codec must do, word for word of `tfrecord_io.codec.base`.

Expected bytes are written by hand or by tests/support/wire.py, expected values stand in the tests.
"""

from __future__ import annotations

import lzma
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tests.support import wire
from tests.support.frames import frame, header
from tfrecord_io.errors import (
    ChecksumError,
    DecodeError,
    EncodeError,
    LimitExceededError,
    SchemaMismatchError,
    TFRecordError,
)
from tfrecord_io.infer import FeatureObservation, Observation, Sighting
from tfrecord_io.options import DecodeOptions, Limits

EXAMPLE = DecodeOptions()
SEQUENCE = DecodeOptions(record_type="SequenceExample")
BYTE_ARRAY = DecodeOptions(record_type="ByteArray")

X = pa.schema([("x", pa.int64())])


def x(*ints: int) -> bytes:
    """An Example whose feature x is an Int64List."""
    return wire.example(wire.entry(b"x", wire.int64_list(ints)))


def of_x(t: pa.DataType) -> pa.Schema:
    return pa.schema([("x", t)])


def with_x(feature: bytes) -> bytes:
    return wire.example(wire.entry(b"x", feature))


def sequence_x(*steps: bytes) -> bytes:
    return wire.sequence_example(lists=[wire.entry(b"x", wire.feature_list(*steps))])


def groups(count: int) -> bytes:
    """Unknown groups, one in the other."""
    return wire.tag(5, wire.GROUP) * count + wire.tag(5, wire.END_GROUP) * count


def place(error: TFRecordError) -> tuple[Any, ...]:
    return error.offset, error.record, error.feature


class CodecContract:
    """Inherit, and give a fixture ``codec``."""

    number_0_is_refused = False

    # ---- framing and the cursor -----------------------------------------------------------------

    def test_a_frame_by_hand(self, codec: Any) -> None:
        # The masked CRCs of the length 0 and of no bytes, as TensorFlow writes them.
        data = bytes(8) + bytes.fromhex("29039807") + bytes.fromhex("d8ea82a2")
        consumed, lengths = codec.frames(pa.py_buffer(data), check_payload=True)
        assert (consumed, lengths.to_pylist()) == (16, [0])

    def test_whole_frames_are_decoded_and_the_rest_is_left(self, codec: Any) -> None:
        data = frame(x(1)) + frame(x(2))
        decoder = codec.decoder(X, EXAMPLE)
        assert (decoder.offset, decoder.record, decoder.needed) == (0, 0, 12)
        assert decoder.decode(pa.py_buffer(data[:-1])) == len(frame(x(1)))
        assert decoder.needed == len(frame(x(2)))
        assert (decoder.offset, decoder.record, decoder.rows) == (len(frame(x(1))), 1, 1)
        assert decoder.decode(pa.py_buffer(data), len(frame(x(1)))) == len(frame(x(2)))
        assert decoder.needed == 12
        assert decoder.flush().to_pydict() == {"x": [1, 2]}
        assert decoder.row_place(1) == (len(frame(x(1))), 1)
        assert decoder.rows == 0
        assert decoder.flush().num_rows == 0

    @pytest.mark.parametrize("size", [0, 1, 11])
    def test_less_than_a_header_is_left(self, codec: Any, size: int) -> None:
        decoder = codec.decoder(X, EXAMPLE)
        assert decoder.decode(pa.py_buffer(b"\xff" * size)) == 0
        assert decoder.needed == 12

    def test_places_begin_where_they_are_told(self, codec: Any) -> None:
        decoder = codec.decoder(X, EXAMPLE)
        decoder.seek(offset=1000, record=50)
        decoder.decode(pa.py_buffer(frame(x(1))))
        decoder.flush()
        assert decoder.row_place(0) == (1000, 50)
        assert (decoder.offset, decoder.record) == (1000 + len(frame(x(1))), 51)

    def test_a_fresh_decoder_has_met_no_record(self, codec: Any) -> None:
        size = len(frame(x(1)))
        options = DecodeOptions(batch_rows=2, limits=Limits(max_record_bytes=size))
        decoder = codec.decoder(X, options)
        decoder.seek(offset=1000, record=50)
        decoder.decode(pa.py_buffer(frame(x(1)) * 2))
        fresh = decoder.fresh()
        assert (fresh.offset, fresh.record, fresh.needed) == (0, 0, 12)
        assert (fresh.rows, fresh.full) == (0, False)
        assert fresh.decode(pa.py_buffer(frame(x(2)) * 3)) == 2 * size
        assert fresh.full
        assert fresh.flush().equals(pa.record_batch([[2, 2]], X))
        assert fresh.row_place(1) == (size, 1)
        with pytest.raises(LimitExceededError, match="max_record_bytes"):
            fresh.decode(pa.py_buffer(frame(x(1) * 9)))
        assert decoder.flush().equals(pa.record_batch([[1, 1]], X))
        assert decoder.row_place(1) == (1000 + size, 51)

    @pytest.mark.parametrize("size", [1, 3, 7, 100])
    def test_any_chunking_gives_one_result(self, codec: Any, size: int) -> None:
        data = b"".join(frame(x(value)) for value in range(10))
        decoder = codec.decoder(X, EXAMPLE)
        pending = b""
        for start in range(0, len(data), size):
            pending += data[start : start + size]
            pending = pending[decoder.decode(pa.py_buffer(pending)) :]
        assert pending == b""
        assert decoder.flush().to_pydict() == {"x": list(range(10))}

    def test_length_crc(self, codec: Any) -> None:
        good, bad = frame(x(1)), bytearray(frame(x(2)))
        bad[9] ^= 1
        decoder = codec.decoder(X, EXAMPLE)
        for _ in range(2):
            with pytest.raises(ChecksumError) as caught:
                decoder.decode(pa.py_buffer(good + bytes(bad)), decoder.offset)
            assert place(caught.value) == (len(good), 1, None)
        assert (decoder.offset, decoder.record, decoder.rows) == (len(good), 1, 1)
        decoder.seek(offset=500, record=9)
        assert decoder.decode(pa.py_buffer(frame(x(3)))) == len(frame(x(3)))
        assert decoder.flush().to_pydict() == {"x": [1, 3]}
        assert decoder.row_place(1) == (500, 9)

    def test_payload_crc(self, codec: Any) -> None:
        bad = bytearray(frame(x(2)))
        bad[-1] ^= 1
        decoder = codec.decoder(X, EXAMPLE)
        with pytest.raises(ChecksumError) as caught:
            decoder.decode(pa.py_buffer(bytes(bad)))
        assert place(caught.value) == (0, 0, None)
        # A payload that is not whole is not looked at.
        assert codec.decoder(X, EXAMPLE).decode(pa.py_buffer(bytes(bad[:-1]))) == 0

    def test_forged_length_needs_no_memory(self, codec: Any) -> None:
        options = DecodeOptions(limits=Limits(max_record_bytes=2**31 - 1))
        decoder = codec.decoder(X, options)
        with pytest.raises(LimitExceededError, match="max_record_bytes") as caught:
            decoder.decode(pa.py_buffer(header(2**40)))
        assert place(caught.value) == (0, 0, None)
        assert decoder.decode(pa.py_buffer(header(2**31 - 1))) == 0
        assert decoder.needed == 2**31 - 1 + 16

    def test_the_length_crc_comes_before_the_limit(self, codec: Any) -> None:
        decoder = codec.decoder(X, EXAMPLE)
        with pytest.raises(ChecksumError):
            decoder.decode(pa.py_buffer(struct.pack("<QI", 2**60, 0)))

    @pytest.mark.parametrize(
        ("head", "name"),
        [
            (b"PAR1\x15\x04\x15\x10\x15\x14\x4c\x15", "Parquet, not like TFRecord: convert"),
            (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc", "gzip"),
            (b"\x78\x9c\xabV*I-.Q\xb2RPJ", "zlib"),
            (b"ORC\x11\x00\x00\x0a\x01\x02\x03\x04\x05", "ORC, not like TFRecord: convert"),
            (b"ARROW1\x00\x00\xff\xff\xff\xff", "Arrow IPC, not like TFRecord: convert"),
            (b"Obj\x01\x04\x16avro.schema", "Avro, not like TFRecord: convert"),
            (lzma.compress(b"a"), "looks like xz"),
            (b"\x04\x22\x4d\x18\x60\x40\x82\x01\x00\x00\x80\x61", "LZ4 frame"),
            (b"\xff\x06\x00\x00sNaPpY\x00\x01", "framed snappy"),
            (b'{"a": 1, "b": 2}', "JSON"),
            (b"id,name,score\n1,a,2.5\n", "CSV"),
            (b"<!DOCTYPE html>\n<html>", "HTML"),
            (b"\x93NUMPY\x01\x00v\x00{'d", "NumPy"),
            (bytes.fromhex("83af70d10d884a3f") + bytes(8) + b"\x40", "ArrayRecord"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "pointer.*git lfs pull"),
        ],
    )
    def test_a_hint_at_another_format(self, codec: Any, head: bytes, name: str) -> None:
        with pytest.raises(ChecksumError, match=name):
            codec.decoder(X, EXAMPLE).decode(pa.py_buffer(head))
        decoder = codec.decoder(X, EXAMPLE)
        decoder.seek(offset=100, record=0)
        with pytest.raises(ChecksumError) as caught:
            decoder.decode(pa.py_buffer(head))
        assert name not in str(caught.value)

    def test_frames_hops(self, codec: Any) -> None:
        data = frame(b"abc") + frame(b"") + frame(b"defgh")
        bad = bytearray(data)
        bad[12] ^= 1
        buffer = pa.py_buffer(bytes(bad))
        consumed, lengths = codec.frames(buffer)
        assert (consumed, lengths.to_pylist(), lengths.type) == (len(bad), [3, 0, 5], pa.uint64())
        assert codec.frames(buffer.slice(0, len(bad) - 1), 19)[0] == 16
        with pytest.raises(ChecksumError) as caught:
            codec.frames(buffer, offset=70, record=3, check_payload=True)
        assert place(caught.value) == (70, 3, None)
        with pytest.raises(LimitExceededError) as caught_limit:
            codec.frames(buffer, offset=70, record=3, max_record_bytes=4)
        assert place(caught_limit.value) == (70 + 19 + 16, 5, None)

    def test_payloads(self, codec: Any) -> None:
        data = frame(b"abc") + frame(b"") + frame(b"defgh")
        buffer = pa.py_buffer(data[:-1])
        assert codec.payloads(buffer) == (19 + 16, [b"abc", b""])
        assert codec.payloads(pa.py_buffer(data), 19) == (16 + 21, [b"", b"defgh"])
        bad = bytearray(data)
        bad[-1] ^= 1
        buffer = pa.py_buffer(bytes(bad))
        assert codec.payloads(buffer) == (19 + 16, [b"abc", b""])
        with pytest.raises(ChecksumError) as caught:
            codec.payloads(buffer, 19 + 16, offset=70, record=3)
        assert place(caught.value) == (70, 3, None)
        with pytest.raises(LimitExceededError):
            codec.payloads(buffer, max_record_bytes=2)

    def test_frame_payloads(self, codec: Any) -> None:
        payloads = [b"abc", b"", bytes(70_000)]
        assert codec.frame_payloads(payloads).to_pybytes() == b"".join(map(frame, payloads))
        assert codec.frame_payloads([]).size == 0

    def test_find_frame(self, codec: Any) -> None:
        junk = b"\x00" * 30
        bad = bytearray(frame(b"bad"))
        bad[-1] ^= 1
        data = pa.py_buffer(junk + bytes(bad) + junk + frame(b"good") + frame(b""))
        first = 30 + len(bad) + 30
        assert codec.find_frame(data) == first
        assert codec.find_frame(data, first) == first
        assert codec.find_frame(data, first + 1) == first + 20
        assert codec.find_frame(data, first, first + 1) == first
        assert codec.find_frame(data, 0, first) is None
        assert codec.find_frame(data, first, 5) is None
        assert codec.find_frame(data, first + 21) is None
        assert codec.find_frame(data, data.size) is None
        assert codec.find_frame(pa.py_buffer(frame(b"good")[:-1])) is None

    @pytest.mark.parametrize("size", [5, 300, 70_000])
    def test_find_frame_behind_any_bytes(self, codec: Any, size: int) -> None:
        framed = frame(bytes(size))
        for before in range(20):
            for junk in (bytes(before), bytes([1] * before), bytes(range(before))):
                data = pa.py_buffer(junk + framed + b"\x01" * before)
                assert codec.find_frame(data) == before

    # ---- batches --------------------------------------------------------------------------------

    def test_batch_rows(self, codec: Any) -> None:
        one = frame(x(1))
        decoder = codec.decoder(X, DecodeOptions(batch_rows=2))
        data = pa.py_buffer(one * 3)
        assert decoder.decode(data) == 2 * len(one)
        assert decoder.full
        assert decoder.decode(data, 2 * len(one)) == 0
        assert decoder.flush().num_rows == 2
        assert not decoder.full
        assert decoder.decode(data, 2 * len(one)) == len(one)
        assert not decoder.full

    def test_batch_bytes(self, codec: Any) -> None:
        payload = x(1)
        one = frame(payload)
        decoder = codec.decoder(X, DecodeOptions(batch_bytes=2 * len(payload)))
        data = pa.py_buffer(one * 3)
        assert decoder.decode(data.slice(0, 2 * len(one))) == 2 * len(one)
        assert not decoder.full
        # Only a whole frame is weighed.
        assert decoder.decode(data.slice(0, 3 * len(one) - 1), 2 * len(one)) == 0
        assert not decoder.full
        assert decoder.decode(data, 2 * len(one)) == 0
        assert decoder.full
        assert decoder.needed == 12

    def test_a_larger_record_makes_a_batch_of_its_own(self, codec: Any) -> None:
        data = pa.py_buffer(frame(x(1)) * 2)
        decoder = codec.decoder(X, DecodeOptions(batch_bytes=1))
        assert decoder.decode(data) == len(frame(x(1)))
        assert (decoder.rows, decoder.full) == (1, True)

    def test_the_next_record_is_not_looked_at_when_it_is_too_much(self, codec: Any) -> None:
        bad = bytearray(frame(x(2)))
        bad[-1] ^= 1
        decoder = codec.decoder(X, DecodeOptions(batch_bytes=1))
        decoder.decode(pa.py_buffer(frame(x(1)) + bytes(bad)))
        assert (decoder.rows, decoder.full) == (1, True)

    def test_no_columns_keep_the_rows(self, codec: Any) -> None:
        decoder = codec.decoder(pa.schema([]), EXAMPLE)
        decoder.decode(pa.py_buffer(frame(x(1)) * 3))
        batch = decoder.flush()
        assert (batch.num_rows, batch.num_columns) == (3, 0)

    def test_the_batch_has_the_very_schema(self, codec: Any) -> None:
        schema = pa.schema(
            [pa.field("x", pa.int64(), nullable=False)], metadata={"written by": "a test"}
        )
        decoder = codec.decoder(schema, EXAMPLE)
        decoder.decode(pa.py_buffer(frame(x(1))))
        assert decoder.flush().schema.equals(schema)

    # ---- features to values ---------------------------------------------------------------------

    def decoded(self, codec: Any, t: pa.DataType, payload: bytes, options: Any = EXAMPLE) -> Any:
        decoder = codec.decoder(of_x(t), options)
        assert decoder.decode(pa.py_buffer(frame(payload))) == len(payload) + 16
        batch = decoder.flush()
        batch.validate(full=True)
        return batch.column(0).to_pylist()[0]

    def refused(self, codec: Any, t: pa.DataType, payload: bytes, options: Any = EXAMPLE) -> None:
        first = b"" if options.record_type == "ByteArray" else wire.example()
        decoder = codec.decoder(of_x(t), options)
        with pytest.raises(SchemaMismatchError) as caught:
            decoder.decode(pa.py_buffer(frame(first) + frame(payload)))
            assert decoder.flush().num_rows == 1
            decoder.flush()
        assert place(caught.value) == (len(frame(first)), 1, "x")

    @pytest.mark.parametrize(
        ("t", "feature", "value"),
        [
            (pa.int64(), wire.int64_list([-(2**63)]), -(2**63)),
            (pa.list_(pa.int64()), wire.int64_list([1, -1]), [1, -1]),
            (pa.float32(), wire.float_list([1.5]), 1.5),
            (pa.list_(pa.float32()), wire.float_list([]), []),
            (pa.float64(), wire.float_list([0.5]), 0.5),
            (pa.float64(), wire.int64_list([2**53]), 2.0**53),
            (pa.list_(pa.float64()), wire.int64_list([-(2**53), 3]), [-(2.0**53), 3.0]),
            (pa.binary(), wire.bytes_list([b"\xff"]), b"\xff"),
            (pa.binary_view(), wire.bytes_list([b"longer than twelve"]), b"longer than twelve"),
            (pa.string(), wire.bytes_list(["é".encode()]), "é"),
            (pa.string_view(), wire.bytes_list([b"longer than twelve"]), "longer than twelve"),
            (pa.list_(pa.string()), wire.bytes_list([b"a", b""]), ["a", ""]),
            (pa.list_(pa.binary_view()), wire.bytes_list([b"a"]), [b"a"]),
            # An empty list of any kind is an empty list of every type.
            (pa.list_(pa.int64()), wire.bytes_list([]), []),
            (pa.list_(pa.string()), wire.int64_list([]), []),
            (pa.list_(pa.null()), wire.float_list([]), []),
            # No kind is null.
            (pa.int64(), b"", None),
            (pa.list_(pa.string()), b"", None),
            (pa.null(), b"", None),
            (pa.list_(pa.null()), b"", None),
        ],
    )
    def test_values(self, codec: Any, t: pa.DataType, feature: bytes, value: Any) -> None:
        assert self.decoded(codec, t, with_x(feature)) == value

    @pytest.mark.parametrize(
        ("t", "feature"),
        [
            (pa.int64(), wire.int64_list([])),
            (pa.int64(), wire.int64_list([1, 2])),
            (pa.int64(), wire.bytes_list([])),
            (pa.int64(), wire.float_list([1.0])),
            (pa.list_(pa.int64()), wire.float_list([1.0])),
            (pa.float32(), wire.int64_list([1])),
            (pa.float64(), wire.int64_list([2**53 + 1])),
            (pa.list_(pa.float64()), wire.int64_list([1, -(2**63)])),
            (pa.float64(), wire.bytes_list([b"1"])),
            (pa.binary(), wire.int64_list([1])),
            (pa.string(), wire.float_list([1.0])),
            (pa.string(), wire.bytes_list([b"\xff"])),
            (pa.string_view(), wire.bytes_list([b"\xed\xa0\x80"])),
            (pa.list_(pa.string()), wire.bytes_list([b"a", b"\xc3"])),
            (pa.null(), wire.int64_list([])),
            (pa.null(), wire.int64_list([1])),
            (pa.list_(pa.null()), wire.int64_list([1])),
            (pa.list_(pa.list_(pa.int64())), wire.int64_list([1])),
        ],
    )
    def test_misfits(self, codec: Any, t: pa.DataType, feature: bytes) -> None:
        self.refused(codec, t, with_x(feature))

    def test_large_ints_among_floats(self, codec: Any) -> None:
        payload = with_x(wire.int64_list([2**53 + 1]))
        with pytest.raises(SchemaMismatchError, match=r"leave .* out, or read it as int64 if no"):
            self.decoded(codec, pa.float64(), payload)

    def test_absent(self, codec: Any) -> None:
        for t in (pa.int64(), pa.list_(pa.string()), pa.list_(pa.list_(pa.float32())), pa.null()):
            for payload in (b"", wire.example(), wire.example(wire.entry(b"y", b""))):
                assert self.decoded(codec, t, payload) is None
            assert self.decoded(codec, t, wire.sequence_example(), SEQUENCE) is None

    @pytest.mark.parametrize(
        ("t", "steps", "value"),
        [
            (pa.int64(), [wire.int64_list([1, 2]), wire.int64_list([])], [[1, 2], []]),
            (pa.float32(), [b"", wire.float_list([0.5])], [None, [0.5]]),
            (pa.float64(), [wire.int64_list([1]), wire.float_list([0.5])], [[1.0], [0.5]]),
            (pa.string(), [wire.bytes_list([b"a"]), wire.int64_list([])], [["a"], []]),
            (pa.null(), [b"", wire.int64_list([])], [None, []]),
            (pa.binary(), [], []),
        ],
    )
    def test_feature_lists(self, codec: Any, t: pa.DataType, steps: Any, value: Any) -> None:
        asked = pa.list_(pa.list_(t))
        assert self.decoded(codec, asked, sequence_x(*steps), SEQUENCE) == value

    def test_feature_list_misfits(self, codec: Any) -> None:
        payload = sequence_x(wire.int64_list([1]))
        self.refused(codec, pa.list_(pa.list_(pa.string())), payload, SEQUENCE)
        self.refused(codec, pa.list_(pa.list_(pa.null())), payload, SEQUENCE)
        # The name stands in the other place only.
        self.refused(codec, pa.list_(pa.int64()), payload, SEQUENCE)
        in_context = wire.sequence_example([wire.entry(b"x", wire.int64_list([1]))])
        self.refused(codec, pa.list_(pa.list_(pa.int64())), in_context, SEQUENCE)

    def test_a_name_in_both_places(self, codec: Any) -> None:
        payload = wire.sequence_example(
            [wire.entry(b"x", wire.int64_list([1]))],
            [wire.entry(b"x", wire.feature_list(wire.int64_list([2])))],
        )
        assert self.decoded(codec, pa.int64(), payload, SEQUENCE) == 1
        assert self.decoded(codec, pa.list_(pa.list_(pa.int64())), payload, SEQUENCE) == [[2]]

    def test_names_with_nul(self, codec: Any) -> None:
        payload = wire.example(
            wire.entry(b"a", wire.int64_list([2])), wire.entry(b"a\0b", wire.int64_list([1]))
        )
        schema = pa.schema([("a\0b", pa.int64()), ("a", pa.int64())])
        decoder = codec.decoder(schema, EXAMPLE)
        decoder.decode(pa.py_buffer(frame(payload)))
        assert decoder.flush().to_pydict() == {"a\0b": [1], "a": [2]}
        with pytest.raises(SchemaMismatchError) as caught:
            codec.decoder(pa.schema([("a\0b", pa.string())]), EXAMPLE).decode(
                pa.py_buffer(frame(payload))
            )
        assert place(caught.value) == (0, 0, "a\0b")

    def test_the_first_column_that_does_not_fit(self, codec: Any) -> None:
        payload = wire.example(
            wire.entry(b"b", wire.int64_list([1])), wire.entry(b"a", wire.int64_list([1]))
        )
        schema = pa.schema([("c", pa.int64()), ("a", pa.string()), ("b", pa.string())])
        with pytest.raises(SchemaMismatchError) as caught:
            codec.decoder(schema, EXAMPLE).decode(pa.py_buffer(frame(payload)))
        assert place(caught.value) == (0, 0, "a")

    def test_a_bad_record_leaves_no_trace(self, codec: Any) -> None:
        schema = pa.schema([("x", pa.list_(pa.int64())), ("y", pa.int64())])
        bad = wire.example(
            wire.entry(b"x", wire.int64_list([7, 8])), wire.entry(b"y", wire.bytes_list([b"z"]))
        )
        good = frame(x(1, 2))
        decoder = codec.decoder(schema, EXAMPLE)
        with pytest.raises(SchemaMismatchError):
            decoder.decode(pa.py_buffer(good + frame(bad)))
        decoder.seek(offset=decoder.offset + len(frame(bad)), record=2)
        decoder.decode(pa.py_buffer(good))
        assert decoder.flush().to_pydict() == {"x": [[1, 2], [1, 2]], "y": [None, None]}

    def test_invalid_text_is_found_by_flush(self, codec: Any) -> None:
        def row(a: bytes, b: bytes) -> bytes:
            return frame(
                wire.example(
                    wire.entry(b"a", wire.bytes_list([a])), wire.entry(b"b", wire.bytes_list([b]))
                )
            )

        schema = pa.schema([("a", pa.string()), ("b", pa.string())])
        rows = [row(b"ok", b"ok"), row(b"ok", b"\xff"), row(b"\xff", b"\xff")]
        decoder = codec.decoder(schema, EXAMPLE)
        decoder.decode(pa.py_buffer(b"".join(rows)))
        # The rows before it are given first.
        assert decoder.flush().to_pydict() == {"a": ["ok"], "b": ["ok"]}
        assert decoder.row_place(0) == (0, 0)
        assert (decoder.rows, decoder.full) == (0, True)
        assert decoder.decode(pa.py_buffer(rows[0])) == 0
        with pytest.raises(SchemaMismatchError) as caught:
            decoder.flush()
        assert place(caught.value) == (len(rows[0]), 1, "b")
        assert (decoder.rows, decoder.full) == (0, False)
        decoder.decode(pa.py_buffer(rows[0]))
        assert decoder.flush().to_pydict() == {"a": ["ok"], "b": ["ok"]}
        decoder.decode(pa.py_buffer(rows[2]))
        with pytest.raises(SchemaMismatchError):
            decoder.flush()
        assert not decoder.full

    @pytest.mark.parametrize("text", [pa.string(), pa.string_view()])
    def test_rows_before_invalid_text(self, codec: Any, text: pa.DataType) -> None:
        def steps(*lists: list[bytes] | None) -> bytes:
            made = [b"" if one is None else wire.bytes_list(one) for one in lists]
            entry = wire.entry(b"s", wire.feature_list(*made))
            return frame(wire.sequence_example(lists=[entry]))

        schema = pa.schema([("s", pa.list_(pa.list_(text))), ("n", pa.int64())])
        long = b"longer than a view holds"
        rows = [
            steps([b"a", long], None, []),
            steps(),
            steps([b"b"], [long, b"c"]),
            steps([b"d"], [], [b"ok", long + b"\xff"]),
            steps([b"e"]),
        ]
        decoder = codec.decoder(schema, SEQUENCE)
        decoder.decode(pa.py_buffer(b"".join(rows)))
        batch = decoder.flush()
        batch.validate(full=True)
        assert batch.to_pydict() == {
            "s": [[["a", long.decode()], None, []], [], [["b"], [long.decode(), "c"]]],
            "n": [None] * 3,
        }
        with pytest.raises(SchemaMismatchError) as caught:
            decoder.flush()
        assert place(caught.value) == (sum(map(len, rows[:3])), 3, "s")

    def test_text_is_not_made_of_two_halves(self, codec: Any) -> None:
        # Each half of an e acute is invalid, although the column's bytes as a whole are not.
        self.refused(codec, pa.list_(pa.string()), with_x(wire.bytes_list([b"\xc3", b"\xa9"])))

    def test_float_bits(self, codec: Any) -> None:
        payload = with_x(wire.field(2, wire.field(1, bytes.fromhex("0100c0ff00000080"))))
        decoder = codec.decoder(of_x(pa.list_(pa.float32())), EXAMPLE)
        decoder.decode(pa.py_buffer(frame(payload)))
        values = decoder.flush().column(0).values
        assert values.view(pa.uint32()).to_pylist() == [0xFFC00001, 0x80000000]

    # ---- protobuf's forms -----------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("payload", "value"),
        [
            # Packed, unpacked, and in several parts.
            (with_x(wire.field(3, wire.unpacked_ints([1, 2]))), [1, 2]),
            *(
                (with_x(wire.field(3, wire.unpacked_ints([i]))), [i])
                for i in (0, 300, 2**63 - 1, -1)
            ),
            (with_x(wire.field(3, b"\x08\x83\x80\x00")), [3]),
            (with_x(wire.field(3, b"\x08" + b"\xff" * 9 + b"\x7f")), [-1]),
            (with_x(wire.field(3, wire.packed_ints([1]) + wire.unpacked_ints([2]))), [1, 2]),
            (with_x(wire.field(3, wire.packed_ints([1]) + wire.packed_ints([]))), [1]),
            # Submessages that come twice are merged at every level.
            (with_x(wire.int64_list([1]) + wire.int64_list([2])), [1, 2]),
            (
                wire.example(wire.entry(b"x", wire.int64_list([1]), wire.int64_list([2]))),
                [1, 2],
            ),
            (x(1) + wire.example(wire.entry(b"y", b"")), [1]),
            # Of several kinds the last counts, and starts afresh.
            (with_x(wire.bytes_list([b"a"]) + wire.int64_list([2])), [2]),
            (with_x(wire.int64_list([1]) + wire.float_list([]) + wire.int64_list([2])), [2]),
            # Of duplicate keys the last counts.
            (x(1) + x(2), [2]),
            (x(1) + with_x(b""), None),
            # Over-long varints.
            (wire.field(1, wire.entry(b"x", wire.int64_list([5])), padding=4), [5]),
            (with_x(wire.field(3, wire.packed_ints([3], padding=9))), [3]),
            (with_x(wire.field(3, wire.field(1, b"\xff" * 9 + b"\x7f"))), [-1]),
            # Unknown fields at every level but the entry's.
            (wire.group(5, wire.field(1, b"")) + x(1) + wire.field(9, b"\xff"), [1]),
            (wire.example(wire.field(4, b"?"), wire.entry(b"x", wire.int64_list([1]))), [1]),
            (with_x(wire.int64_list([1]) + wire.field(4, b"?")), [1]),
            (with_x(wire.field(3, wire.packed_ints([1]) + wire.field(2, b"?"))), [1]),
            # Messages and groups nest 100 deep.
            (groups(100) + x(1), [1]),
            (wire.example(wire.entry(b"x", wire.int64_list([1])), groups(99)), [1]),
            (wire.example(wire.entry(b"x", wire.int64_list([1]), unknown=groups(98))), None),
            (with_x(wire.int64_list([1]) + groups(97)), [1]),
            (with_x(wire.field(3, wire.packed_ints([1]) + groups(96))), [1]),
            # A known field of another wire type is an unknown field.
            (with_x(wire.int64_list([1]) + wire.tag(3, wire.VARINT) + b"\x05"), [1]),
            (with_x(wire.field(3, wire.tag(1, wire.FIXED64) + bytes(8))), []),
            # upb takes an entry with unknown fields for an unknown field.
            (
                wire.example(wire.entry(b"x", wire.int64_list([1]), unknown=wire.field(3, b""))),
                None,
            ),
            (
                x(1) + wire.example(wire.entry(b"x", wire.int64_list([2]), unknown=wire.group(7))),
                [1],
            ),
            (
                wire.example(wire.entry(b"x", unknown=wire.tag(2, wire.VARINT) + b"\x05")),
                None,
            ),
            # The value before the key; no value.
            (
                wire.example(
                    wire.field(1, wire.field(2, wire.int64_list([1])) + wire.field(1, b"x"))
                ),
                [1],
            ),
            (wire.example(wire.entry(b"x")), None),
            # Of two keys in an entry the last counts.
            (
                wire.example(
                    wire.field(
                        1,
                        wire.field(1, b"y")
                        + wire.field(1, b"x")
                        + wire.field(2, wire.int64_list([1])),
                    )
                ),
                [1],
            ),
        ],
    )
    def test_forms(self, codec: Any, payload: bytes, value: Any) -> None:
        assert self.decoded(codec, pa.list_(pa.int64()), payload) == value

    @pytest.mark.parametrize(
        "payload",
        [
            wire.group(4, wire.tag(0, wire.VARINT) + b"\x00") + x(1),
            wire.group(4, wire.group(0, wire.field(0, b"?"))) + x(1),
            wire.group(1, wire.field(0, b"")) + x(1),
            with_x(wire.int64_list([1]) + wire.group(4, wire.field(0, b""))),
        ],
    )
    def test_number_0_in_unknown_groups(self, codec: Any, payload: bytes) -> None:
        # Protobuf 7 does not look at numbers there: 0 is one like any other.
        if self.number_0_is_refused:
            with pytest.raises(DecodeError):
                self.decoded(codec, pa.list_(pa.int64()), payload)
        else:
            assert self.decoded(codec, pa.list_(pa.int64()), payload) == [1]

    def test_a_missing_key_is_empty(self, codec: Any) -> None:
        payload = wire.example(wire.entry(None, wire.int64_list([1])))
        decoder = codec.decoder(pa.schema([("", pa.int64())]), EXAMPLE)
        decoder.decode(pa.py_buffer(frame(payload)))
        assert decoder.flush().column(0).to_pylist() == [1]

    def test_unpacked_floats(self, codec: Any) -> None:
        inside = wire.unpacked_floats([1.0]) + wire.packed_floats([2.0, 3.0])
        value = self.decoded(codec, pa.list_(pa.float32()), with_x(wire.field(2, inside)))
        assert value == [1.0, 2.0, 3.0]

    def test_single_values_that_are_not_packed(self, codec: Any) -> None:
        assert (
            self.decoded(codec, pa.float32(), with_x(wire.field(2, wire.unpacked_floats([1.5]))))
            == 1.5
        )
        for value in (0, 300, 2**63 - 1, -1):
            payload = with_x(wire.field(3, wire.unpacked_ints([value])))
            assert self.decoded(codec, pa.int64(), payload) == value
        # Of another wire type they are unknown fields, and the list is empty.
        for inside in (b"\x0d" + bytes(4), b"\x09" + bytes(8)):
            assert self.decoded(codec, pa.list_(pa.int64()), with_x(wire.field(3, inside))) == []
        assert self.decoded(codec, pa.list_(pa.float32()), with_x(wire.field(2, b"\x08\x01"))) == []

    @pytest.mark.parametrize(
        "payload",
        [
            b"\x0a",
            b"\x0a\x05a",
            b"\x00\x00",
            b"\x0e\x00",
            with_x(wire.field(3, b"\x08")),
            with_x(wire.field(3, b"\x08" + b"\xff" * 10)),
            with_x(wire.field(2, b"\x0d" + bytes(3))),
            wire.tag(5, wire.END_GROUP),
            wire.tag(5, wire.GROUP),
            wire.tag(5, wire.GROUP) + wire.tag(6, wire.END_GROUP),
            wire.tag(0, wire.GROUP) + wire.tag(0, wire.END_GROUP),
            wire.group(5, wire.tag(0, wire.END_GROUP)),
            wire.group(5, b"\x06\x00"),
            groups(101),
            wire.example(groups(100)),
            wire.example(wire.entry(b"x", unknown=groups(99))),
            with_x(groups(98)),
            with_x(wire.field(3, groups(97))),
            wire.tag(5, wire.VARINT) + b"\x80" * 10 + b"\x00",
            wire.tag(5, wire.LEN) + b"\xff" * 9 + b"\x01",
            b"\x8a\x80\x80\x80\x80\x00\x00",
            wire.example(wire.entry(b"\xff", b"")),
            wire.example(wire.entry(b"\xed\xa0\x80", b"")),
            with_x(wire.field(2, wire.field(1, b"abc"))),
            with_x(wire.field(3, wire.field(1, b"\x80"))),
            with_x(wire.field(1, b"\x0a\x05a")),
        ],
    )
    def test_what_protobuf_rejects(self, codec: Any, payload: bytes) -> None:
        for run in (
            codec.decoder(of_x(pa.list_(pa.int64())), EXAMPLE).decode,
            codec.observer(EXAMPLE).observe,
        ):
            with pytest.raises(DecodeError) as caught:
                run(pa.py_buffer(frame(x(1)) + frame(payload)))
            assert place(caught.value) == (len(frame(x(1))), 1, None)

    def test_max_features(self, codec: Any) -> None:
        options = DecodeOptions(limits=Limits(max_features=2))
        decoder = codec.decoder(X, options)
        decoder.decode(pa.py_buffer(frame(x(1) + x(2))))
        with pytest.raises(LimitExceededError, match="max_features") as caught:
            decoder.decode(pa.py_buffer(frame(x(1) + x(2) + x(3))))
        assert place(caught.value) == (len(frame(x(1) + x(2))), 1, None)
        sequence = DecodeOptions(record_type="SequenceExample", limits=Limits(max_features=1))
        both = wire.sequence_example([wire.entry(b"a", b"")], [wire.entry(b"b", b"")])
        with pytest.raises(LimitExceededError):
            codec.decoder(X, sequence).decode(pa.py_buffer(frame(both)))
        # The limit comes before the columns, and after protobuf's rules.
        with pytest.raises(LimitExceededError):
            codec.decoder(of_x(pa.string()), options).decode(pa.py_buffer(frame(x(1) * 3)))
        with pytest.raises(DecodeError):
            codec.decoder(X, options).decode(pa.py_buffer(frame(x(1) * 3 + b"\x00\x00")))

    def test_a_sequence_example_is_no_example(self, codec: Any) -> None:
        payload = x(1) + wire.field(2, wire.entry(b"y", wire.feature_list()))
        for run in (codec.decoder(X, EXAMPLE).decode, codec.observer(EXAMPLE).observe):
            with pytest.raises(SchemaMismatchError, match="SequenceExample") as caught:
                run(pa.py_buffer(frame(payload)))
            assert place(caught.value) == (0, 0, None)

    def test_records_of_other_messages_are_told_how_to_be_read(self, codec: Any) -> None:
        # An ExampleListWithContext { 1: repeated Example, 2: Example } of TF-Ranking; and text.
        for payload in (wire.field(1, x(1)) * 2 + wire.field(2, x(2)), b"text"):
            for run in (codec.decoder(X, EXAMPLE).decode, codec.observer(EXAMPLE).observe):
                with pytest.raises((SchemaMismatchError, DecodeError), match='"ByteArray"'):
                    run(pa.py_buffer(frame(payload)))

    @pytest.mark.parametrize("second", [b"", b"\xff\xff", b"\x08\x01"])
    def test_another_field_2_is_unknown(self, codec: Any, second: bytes) -> None:
        assert self.decoded(codec, pa.int64(), x(1) + wire.field(2, second)) == 1

    def test_byte_array(self, codec: Any) -> None:
        data = frame(b"\x00\xff") + frame(b"")
        for t in (pa.binary(), pa.binary_view()):
            decoder = codec.decoder(of_x(t), BYTE_ARRAY)
            decoder.decode(pa.py_buffer(data))
            assert decoder.flush().to_pydict() == {"x": [b"\x00\xff", b""]}
        assert self.decoded(codec, pa.string(), b"text", BYTE_ARRAY) == "text"
        assert self.decoded(codec, pa.string_view(), b"text", BYTE_ARRAY) == "text"
        self.refused(codec, pa.string(), b"\xff", BYTE_ARRAY)

    # ---- observing ------------------------------------------------------------------------------

    def test_observation(self, codec: Any) -> None:
        records = [
            wire.sequence_example(
                [
                    wire.entry(b"z", wire.int64_list([1])),
                    wire.entry(b"a", wire.bytes_list([b"ok"])),
                    wire.entry(b"k", b""),
                ],
                [wire.entry(b"s", wire.feature_list(wire.float_list([]), wire.float_list([1, 2])))],
            ),
            wire.sequence_example(
                [
                    wire.entry(b"n", wire.int64_list([])),
                    wire.entry(b"a", wire.bytes_list([b"\xff", b""])),
                    wire.entry(b"z", wire.bytes_list([b"lost"])),
                    wire.entry(b"z", wire.float_list([1.0])),
                ],
                [wire.entry(b"a", wire.feature_list(b""))],
            ),
            # What was seen once is not forgotten.
            wire.sequence_example([wire.entry(b"a", wire.bytes_list([b"ok"]))]),
        ]
        data = b"".join(frame(record) for record in records)
        observer = codec.observer(SEQUENCE)
        observer.seek(offset=100, record=10)
        assert observer.observe(pa.py_buffer(data)) == len(data)
        assert (observer.offset, observer.record, observer.needed) == (100 + len(data), 13, 12)
        one = Sighting(offset=100, record=10)
        two = Sighting(offset=100 + len(frame(records[0])), record=11)

        def seen(name: str, is_feature_list: bool, first: Sighting, **rest: Any) -> Any:
            return FeatureObservation(
                name=name, is_feature_list=is_feature_list, first=first, **rest
            )

        assert observer.result() == Observation(
            records=3,
            features=(
                seen("z", False, one, with_values={"int64": one, "float": two}),
                seen("a", False, one, is_single=False, is_utf8=False, with_values={"bytes": one}),
                seen("k", False, one),
                seen("s", True, one, with_values={"float": one}, empty={"float": one}),
                seen("n", False, two, is_single=False, empty={"int64": two}),
                seen("a", True, two),
            ),
        )

    def test_what_earlier_runs_have_shown_is_left_out(self, codec: Any) -> None:
        def observed(*entries: bytes, steps: Sequence[bytes] = (), known: Any = frozenset()) -> Any:
            observer = codec.observer(SEQUENCE)
            payload = wire.sequence_example(list(entries), list(steps))
            observer.observe(pa.py_buffer(frame(payload)))
            return observer.result(known)

        number = wire.entry(b"x", wire.int64_list([1]))
        text = wire.entry(b"s", wire.bytes_list([b"text"]))
        known = observed(number, text).traits
        for alike in [(text, number), (wire.entry(b"x", wire.int64_list([7])),), ()]:
            seen = observed(*alike, known=known)
            assert (seen.records, seen.features) == (1, ())
        new = [
            wire.entry(b"x", wire.int64_list([1, 2])),
            wire.entry(b"x", wire.int64_list([])),
            wire.entry(b"x", wire.float_list([1.0])),
            wire.entry(b"x", b""),
            wire.entry(b"s", wire.bytes_list([b"\xff"])),
            wire.entry(b"y", wire.int64_list([1])),
        ]
        for entry in new:
            seen = observed(entry, known=known)
            assert seen == observed(entry)
            assert len(seen.features) == 1
            assert observed(entry, known=known | seen.traits).features == ()
        in_lists = [wire.entry(b"x", wire.feature_list(wire.int64_list([1])))]
        assert observed(number, steps=in_lists, known=known).features[1].is_feature_list

    def test_observing_a_byte_array(self, codec: Any) -> None:
        assert codec.observer(BYTE_ARRAY).result() == Observation()
        observer = codec.observer(BYTE_ARRAY)
        observer.observe(pa.py_buffer(frame(b"text") + frame(b"")))
        at = Sighting(offset=0, record=0)
        assert observer.result() == Observation(
            records=2,
            features=(
                FeatureObservation(
                    name="byteArray",
                    is_feature_list=False,
                    first=at,
                    is_utf8=False,
                    with_values={"bytes": at},
                ),
            ),
        )

    def test_a_record_with_too_many_names_leaves_no_trace(self, codec: Any) -> None:
        options = DecodeOptions(limits=Limits(max_features=2))
        a, b, c = (wire.entry(name, wire.int64_list([1])) for name in (b"a", b"b", b"c"))
        first = frame(wire.example(a))
        observer = codec.observer(options)
        with pytest.raises(LimitExceededError, match="max_features") as caught:
            observer.observe(pa.py_buffer(first + frame(wire.example(b, c))))
        assert place(caught.value) == (len(first), 1, None)
        result = observer.result()
        assert (result.records, [f.name for f in result.features]) == (1, ["a"])
        observer.seek(offset=999, record=2)
        observer.observe(pa.py_buffer(frame(wire.example(a, b))))
        assert [f.name for f in observer.result().features] == ["a", "b"]

    @pytest.mark.parametrize(
        ("key", "value", "cut"),
        [
            (b"b", wire.bytes_list([b"y" * 60]), 40),
            (b"b", wire.float_list([0.5] * 12), 40),
            (b"b", wire.int64_list([1] * 60), 40),
            (b"a name of 18 bytes", wire.int64_list([-1]), 28),
        ],
        ids=["text", "floats", "ints", "one int"],
    )
    def test_an_entry_that_ends_behind_all_bytes(
        self, codec: Any, key: bytes, value: bytes, cut: int
    ) -> None:
        # It is not the one that is expected where it stands.
        entries = [wire.entry(b"a", wire.int64_list([1])), wire.entry(key, value)]
        sound = frame(wire.example(*entries)) * 3
        data = sound + frame(wire.field(1, entries[1][:cut]))
        observer = codec.observer(EXAMPLE)
        with pytest.raises(DecodeError) as caught:
            observer.observe(pa.py_buffer(data))
        assert place(caught.value) == (len(sound), 3, None)
        assert (observer.offset, observer.record) == (len(sound), 3)

    # ---- encoding -------------------------------------------------------------------------------

    def payloads(self, codec: Any, batch: pa.RecordBatch, record_type: str) -> list[bytes]:
        data, offsets = codec.encoder(batch.schema, record_type).encode(batch)
        assert offsets.type == pa.uint64()
        ends = offsets.to_pylist()
        assert (ends[0], ends[-1], len(ends)) == (0, data.size, batch.num_rows + 1)
        whole = data.to_pybytes()
        records = [whole[a:b] for a, b in pairwise(ends)]
        for record in records:
            assert record == frame(record[12:-4])
        return [record[12:-4] for record in records]

    def encoded(
        self, codec: Any, t: pa.DataType, value: Any, record_type: str = "Example"
    ) -> bytes:
        batch = pa.RecordBatch.from_arrays([pa.array([value], t)], names=["x"])
        (payload,) = self.payloads(codec, batch, record_type)
        return payload

    def test_encoding_names_with_nul(self, codec: Any) -> None:
        batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a\0b", "a"])
        (payload,) = self.payloads(codec, batch, "Example")
        assert payload == wire.example(
            wire.entry(b"a\0b", wire.int64_list([1])), wire.entry(b"a", wire.int64_list([2]))
        )

    @pytest.mark.parametrize("record_type", ["Example", "SequenceExample", "ByteArray"])
    def test_a_place_in_a_file_changes_no_byte(self, codec: Any, record_type: str) -> None:
        values = pa.array([bytes([n % 256]) * 50 for n in range(4000)], pa.binary())
        batch = pa.RecordBatch.from_arrays([values], names=["x"])
        encoder = codec.encoder(batch.schema, record_type)
        data, offsets = encoder.encode(batch)
        for position in (1, 4095, 4096, 2**40 + 7):
            again = encoder.encode(batch, position)
            assert again[0].equals(data)
            assert again[1].equals(offsets)

    def test_an_example_by_hand(self, codec: Any) -> None:
        schema = pa.schema(
            [("b", pa.int64()), ("a", pa.list_(pa.float32())), ("", pa.list_(pa.binary()))]
        )
        batch = pa.RecordBatch.from_pylist(
            [
                {"b": -1, "a": [1.0, -2.0], "": [b"x", b""]},
                {"b": None, "a": [], "": []},
                {"b": None, "a": None, "": None},
            ],
            schema=schema,
        )
        assert self.payloads(codec, batch, "Example") == [
            bytes.fromhex(
                "0a35"
                "0a13 0a0162 120e 1a0c 0a0a ffffffffffffffffff01"
                "0a11 0a0161 120c 120a 0a08 0000803f 000000c0"
                "0a0b 0a00 1207 0a05 0a0178 0a00"
            ),
            bytes.fromhex("0a11 0a07 0a0161 1202 1200 0a06 0a00 1202 0a00"),
            bytes.fromhex("0a00"),
        ]

    def test_a_sequence_example_by_hand(self, codec: Any) -> None:
        schema = pa.schema([("l", pa.list_(pa.list_(pa.int64()))), ("c", pa.int64())])
        batch = pa.RecordBatch.from_pylist(
            [{"l": [[1], [], None], "c": 5}, {"l": [], "c": None}, {"l": None, "c": None}],
            schema=schema,
        )
        assert self.payloads(codec, batch, "SequenceExample") == [
            bytes.fromhex(
                "0a0c 0a0a 0a0163 1205 1a03 0a0105"
                "1214 0a12 0a016c 120d 0a05 1a03 0a0101 0a02 1a00 0a00"
            ),
            bytes.fromhex("0a00 1207 0a05 0a016c 1200"),
            bytes.fromhex("0a00 1200"),
        ]

    @pytest.mark.parametrize(
        ("t", "value", "feature"),
        [
            (pa.int64(), 2**63 - 1, wire.int64_list([2**63 - 1])),
            (pa.float32(), -0.0, wire.float_list([-0.0])),
            (pa.binary(), b"\xff", wire.bytes_list([b"\xff"])),
            (pa.large_binary(), b"x" * 300, wire.bytes_list([b"x" * 300])),
            (pa.list_(pa.int64()), [0, 128], wire.int64_list([0, 128])),
            (pa.large_list(pa.large_binary()), [b"a"], wire.bytes_list([b"a"])),
            (pa.list_(pa.float32(), 2), [1.0, 2.0], wire.float_list([1.0, 2.0])),
            (pa.large_list(pa.int64()), [], wire.int64_list([])),
        ],
    )
    def test_features(self, codec: Any, t: pa.DataType, value: Any, feature: bytes) -> None:
        assert self.encoded(codec, t, value) == with_x(feature)
        assert self.encoded(codec, t, None) == wire.example()
        context = [wire.entry(b"x", feature)]
        assert self.encoded(codec, t, value, "SequenceExample") == wire.sequence_example(context)

    @pytest.mark.parametrize(
        "t",
        [
            pa.large_list(pa.list_(pa.int64())),
            pa.list_(pa.list_(pa.int64(), 2)),
            pa.list_(pa.large_list(pa.int64()), 3),
            pa.list_(pa.list_(pa.int64(), 2), 3),
        ],
    )
    def test_forms_of_lists_of_lists(self, codec: Any, t: pa.DataType) -> None:
        steps = wire.int64_list([1, 2]), b"", wire.int64_list([3, 4])
        value = [[1, 2], None, [3, 4]]
        assert self.encoded(codec, t, value, "SequenceExample") == sequence_x(*steps)

    @pytest.mark.parametrize("record_type", ["Example", "SequenceExample"])
    def test_slices(self, codec: Any, record_type: str) -> None:
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([1, None, 3, 4]),
                pa.array([b"a", b"bb", None, b"dddd"]),
                pa.array([[1.0], None, [], [2.0, 3.0]], pa.list_(pa.float32())),
                pa.array([[b"a", b"b"], None, [b"c", b""], [b"d", b"e"]], pa.list_(pa.binary(), 2)),
            ],
            names=["i", "b", "l", "f"],
        )
        whole = self.payloads(codec, batch, record_type)
        assert len(set(whole)) == 4
        for start in range(5):
            for length in range(5 - start):
                part = self.payloads(codec, batch.slice(start, length), record_type)
                assert part == whole[start : start + length]

    def test_what_stands_under_a_null_is_nothing(self, codec: Any) -> None:
        fixed = pa.FixedSizeListArray.from_arrays(
            pa.array([1, 2, 3, None]), 2, mask=pa.array([False, True])
        )
        ragged = pa.ListArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()), pa.array([1, None]), mask=pa.array([False, True])
        )
        batch = pa.RecordBatch.from_arrays([fixed, ragged], names=["f", "r"])
        assert self.payloads(codec, batch, "Example") == [
            wire.example(
                wire.entry(b"f", wire.int64_list([1, 2])), wire.entry(b"r", wire.int64_list([1]))
            ),
            wire.example(),
        ]

    def test_no_columns_and_no_rows(self, codec: Any) -> None:
        empty = pa.RecordBatch.from_struct_array(pa.array([{}] * 2, pa.struct([])))
        assert self.payloads(codec, empty, "Example") == [wire.example()] * 2
        assert self.payloads(codec, empty, "SequenceExample") == [wire.sequence_example()] * 2
        batch = pa.RecordBatch.from_pylist([], schema=X)
        assert self.payloads(codec, batch, "Example") == []

    def test_encoding_a_byte_array(self, codec: Any) -> None:
        for t in (pa.binary(), pa.large_binary()):
            batch = pa.RecordBatch.from_arrays([pa.array([b"\x00\xff", b""], t)], names=["x"])
            assert self.payloads(codec, batch, "ByteArray") == [b"\x00\xff", b""]
            batch = pa.RecordBatch.from_arrays([pa.array([b"", None], t)], names=["x"])
            with pytest.raises(EncodeError) as caught:
                codec.encoder(batch.schema, "ByteArray").encode(batch)
            assert (caught.value.feature, caught.value.row) == ("x", 1)

    def test_null_types(self, codec: Any) -> None:
        assert self.encoded(codec, pa.null(), None) == wire.example()
        assert self.encoded(codec, pa.list_(pa.null()), None) == wire.example()
        steps = pa.list_(pa.list_(pa.null()))
        assert self.encoded(codec, steps, [], "SequenceExample") == sequence_x()
        assert self.encoded(codec, steps, [None], "SequenceExample") == sequence_x(b"")
        for t, value in ((pa.list_(pa.null()), []), (steps, [None, []])):
            batch = pa.RecordBatch.from_arrays([pa.array([None, value], t)], names=["x"])
            with pytest.raises(EncodeError) as caught:
                codec.encoder(batch.schema, "SequenceExample").encode(batch)
            assert (caught.value.feature, caught.value.row) == ("x", 1)
