"""The native codec keeps the contract, and hands Arrow over without copies."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

from tests.codec.contract import CodecContract
from tfrecord_io.codec.native import NativeCodec
from tfrecord_io.codec.reference import frame
from tfrecord_io.errors import ChecksumError
from tfrecord_io.options import DecodeOptions


class TestNative(CodecContract):
    @pytest.fixture
    def codec(self) -> NativeCodec:
        return NativeCodec()


def test_views_point_into_the_input() -> None:
    payload = bytes(range(256)) * 8
    data = pa.py_buffer(frame(payload) + frame(b"short"))
    schema = pa.schema([("byteArray", pa.binary_view())])
    decoder = NativeCodec().decoder(schema, DecodeOptions(record_type="ByteArray"))
    decoder.decode(data)
    column = decoder.flush().column(0)
    assert column.to_pylist() == [payload, b"short"]
    # Behind validity and views come the blocks: the one there is begins in the input.
    block = column.buffers()[2]
    assert block.address == data.address + 12


def test_views_outlive_the_input() -> None:
    payloads = [bytes([i]) * 100 for i in range(50)]
    schema = pa.schema([("byteArray", pa.binary_view())])
    decoder = NativeCodec().decoder(schema, DecodeOptions(record_type="ByteArray"))
    for payload in payloads:
        decoder.decode(pa.py_buffer(frame(payload)))
    batch = decoder.flush()
    batch.validate(full=True)
    assert batch.column(0).to_pylist() == payloads


def test_columns_out_of_order_and_missing_are_found() -> None:
    # Names in another order in every record: the expected shape never fits.
    def example(names: str) -> bytes:
        def entry(name: str) -> bytes:
            return (
                b"\x0a\x0c\x0a\x01" + name.encode() + b"\x12\x07\x1a\x05\x0a\x03" + b"\x81\x80\x01"
            )

        body = b"".join(entry(name) for name in names)
        return frame(b"\x0a" + bytes([len(body)]) + body)

    orders = ["abc", "cab", "b", "", "ca", "bca"]
    schema = pa.schema([(name, pa.int64()) for name in "abc"])
    decoder = NativeCodec().decoder(schema, DecodeOptions())
    decoder.decode(pa.py_buffer(b"".join(example(order) for order in orders)))
    rows = decoder.flush().to_pylist()
    assert rows == [{n: 16385 if n in order else None for n in "abc"} for order in orders]


@pytest.mark.parametrize("position", [0, 700, 4095, 3 * 4096 + 16])
def test_records_stand_in_memory_as_in_blocks_of_the_file(position: int) -> None:
    batch = pa.record_batch({"x": [b"x" * 1000] * 1000})
    data, _ = NativeCodec().encoder(batch.schema, "Example").encode(batch, position)
    assert data.address % 4096 == position % 4096


def test_errors_pickle_with_their_fields() -> None:
    with pytest.raises(ChecksumError) as caught:
        NativeCodec().frames(pa.py_buffer(b"\x00" * 32), offset=7, record=3)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (type(error), error.offset, error.record) == (ChecksumError, 7, 3)
    assert str(error) == str(caught.value)


def test_the_start_must_be_within_the_data() -> None:
    with pytest.raises(IndexError, match="start 9 is behind the 8 bytes"):
        NativeCodec().frames(pa.py_buffer(b"\x00" * 8), 9)


LOADED_BY_A_THREAD = """
import threading
import pyarrow as pa

def encode():
    from tfrecord_io.codec import get_codec
    batch = pa.record_batch({"v": [1]})
    get_codec("native").encoder(batch.schema, "Example").encode(batch)

for _ in range(20):
    thread = threading.Thread(target=encode)
    thread.start()
    thread.join()
"""


def test_the_thread_that_loads_the_kernel_may_end() -> None:
    subprocess.run([sys.executable, "-c", LOADED_BY_A_THREAD], check=True)
