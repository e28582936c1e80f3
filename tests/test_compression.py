import bz2
import errno
import gzip
import importlib
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
import zstandard

from tests.support.frames import frame, header
from tfrecord_io.compression import (
    HEAD_BYTES,
    check_level,
    compressor,
    detect,
    from_suffix,
    normalize_compression,
    suffix,
)
from tfrecord_io.decompression import decompressor
from tfrecord_io.errors import CompressionError, OptionError

ALL = ["gzip", "deflate", "bzip2", "zstd", "snappy", "lz4"]
WITH_MAGIC = ["gzip", "deflate", "bzip2", "zstd"]
HADOOP = ["snappy", "lz4"]

RANDOM = random.Random(0).randbytes(50_000)
MIXED = RANDOM + bytes(400_000) + RANDOM[:30_000] + b"text " * 20_000


def squeeze(compression, data, step=None, level=None):
    stream = compressor(compression, level)
    step = step or max(len(data), 1)
    pieces = [stream.compress(data[at : at + step]) for at in range(0, len(data), step)]
    return b"".join([*pieces, stream.flush()])


@pytest.fixture(params=["zlib", "isal.isal_zlib"])
def inflating(request, monkeypatch):
    """What reads gzip and zlib: the standard library, or ISA-L where it is installed."""
    module = importlib.import_module(request.param)
    monkeypatch.setattr("tfrecord_io.decompression.inflating", module)


class Trickle(io.BytesIO):
    """Gives a few bytes at a time, as a pipe may."""

    def __init__(self, data, most):
        super().__init__(data)
        self.most = most

    def read(self, size=-1):
        return super().read(min(size, self.most) if size >= 0 else self.most)


def unpack(compression, data, size=1 << 20, most=1 << 30):
    stream = decompressor(compression, Trickle(data, most))
    out = []
    while piece := stream.read(size):
        assert len(piece) <= size
        out.append(piece)
    assert stream.read(size) == b""
    return b"".join(out)


def raw_member(compression, data):
    """One member, frame or block, made by others."""
    if compression == "gzip":
        return gzip.compress(data)
    if compression == "deflate":
        return zlib.compress(data)
    if compression == "bzip2":
        return bz2.compress(data)
    if compression == "zstd":
        return pa.Codec("zstd").compress(data, asbytes=True)
    return hadoop_block(compression, data)


def hadoop_block(compression, *chunks):
    codec = pa.Codec("snappy" if compression == "snappy" else "lz4_raw")
    out = struct.pack(">I", sum(map(len, chunks)))
    for chunk in chunks:
        if chunk:
            packed = codec.compress(chunk, asbytes=True)
            out += struct.pack(">I", len(packed)) + packed
    return out


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (None, None),
            ("", None),
            ("none", None),
            ("UNCOMPRESSED", None),
            ("GZIP", "gzip"),
            ("gz", "gzip"),
            ("ZLIB", "deflate"),
            ("bz2", "bzip2"),
            ("zst", "zstd"),
            ("org.apache.hadoop.io.compress.GzipCodec", "gzip"),
            ("org.apache.hadoop.io.compress.DefaultCodec", "deflate"),
            ("org.apache.hadoop.io.compress.BZip2Codec", "bzip2"),
            ("org.apache.hadoop.io.compress.ZStandardCodec", "zstd"),
            ("org.apache.hadoop.io.compress.SnappyCodec", "snappy"),
            ("org.apache.hadoop.io.compress.Lz4Codec", "lz4"),
            *[(name, name) for name in ALL],
        ],
    )
    def test_synonyms(self, name, expected):
        assert normalize_compression(name) == expected

    @pytest.mark.parametrize("name", ["rar", 7, "org.apache.hadoop.io.compress.Other"])
    def test_unknown(self, name):
        with pytest.raises(OptionError, match="'gzip', 'deflate', 'bzip2', 'zstd'"):
            normalize_compression(name)

    @pytest.mark.parametrize("compression", [None, *ALL])
    def test_suffix_and_back(self, compression):
        assert from_suffix("dir/part-00000-000.tfrecord" + suffix(compression)) == compression

    @pytest.mark.parametrize(
        ("compression", "level"),
        [
            ("gzip", 10),
            ("deflate", -1),
            ("bzip2", 0),
            ("zstd", 23),
            ("gzip", True),
            ("gzip", "6"),
            ("snappy", 1),
            ("lz4", 1),
            (None, 1),
        ],
    )
    def test_wrong_level(self, compression, level):
        with pytest.raises(OptionError, match="compression_level"):
            check_level(compression, level)


class TestDetect:
    @pytest.mark.parametrize("compression", WITH_MAGIC)
    @pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a.snappy", "part-00000"])
    def test_content_beats_suffix(self, compression, name):
        assert detect(raw_member(compression, MIXED)[:HEAD_BYTES], name) == compression

    @pytest.mark.parametrize("compression", HADOOP)
    def test_suffix_where_there_is_no_magic(self, compression):
        head = raw_member(compression, MIXED)[:HEAD_BYTES]
        assert detect(head, "a" + suffix(compression)) == compression
        assert detect(head, "a.tfrecord") is None

    @pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a.lz4"])
    def test_plain_frames(self, name):
        assert detect(frame(b"payload"), name) is None

    @pytest.mark.parametrize("length", [0x088B1F, 0x9C78, 0x0178, 0xFD2FB528])
    def test_a_fitting_crc_beats_magic_numbers(self, length):
        head = header(length)
        assert head[:2] in (b"\x1f\x8b", b"\x78\x9c", b"\x78\x01", b"\x28\xb5")
        assert detect(head + bytes(500), "a.tfrecord") is None

    def test_zlib_magic_without_zlib_behind_it(self):
        assert detect(b"\x78\x9c" + b"\xff" * 100, "a.tfrecord") is None

    def test_a_short_whole_zlib_stream(self):
        assert detect(zlib.compress(b""), "a") == "deflate"

    @pytest.mark.parametrize("compression", WITH_MAGIC)
    def test_an_empty_member(self, compression):
        assert detect(raw_member(compression, b""), "a") == compression

    def test_skippable_zstd_frame(self):
        assert detect(b"\x5a\x2a\x4d\x18" + bytes(4), "a") == "zstd"

    def test_empty_file(self):
        assert detect(b"", "a.tfrecord.gz") is None

    def test_damaged_head_goes_by_the_suffix(self):
        assert detect(b"\x00" * 100, "a.gz") == "gzip"


@pytest.mark.usefixtures("inflating")
@pytest.mark.parametrize("compression", ALL)
class TestRoundTrip:
    @pytest.mark.parametrize("data", [b"", b"x", MIXED, bytes(5_000_000)], ids=len)
    def test_through(self, compression, data):
        assert unpack(compression, squeeze(compression, data)) == data

    def test_steps_do_not_change_the_bytes(self, compression):
        whole = squeeze(compression, MIXED)
        for step in (997, 65_536, 262_144, 300_000):
            assert squeeze(compression, MIXED, step) == whole

    def test_threads_do_not_change_the_bytes(self, compression):
        data = MIXED * 4
        calls = []
        with ThreadPoolExecutor(4) as pool:

            def map_pieces(call, pieces, *more):
                calls.append(len(pieces))
                return pool.map(call, pieces, *more)

            stream = compressor(compression, None, map_pieces)
            found = stream.compress(data) + stream.flush()
        assert found == squeeze(compression, data)
        assert calls[0] > 1

    def test_buffers_are_taken(self, compression):
        stream = compressor(compression)
        data = stream.compress(pa.py_buffer(b"abc")) + stream.compress(memoryview(b"def"))
        assert unpack(compression, data + stream.flush()) == b"abcdef"

    @pytest.mark.parametrize("size", [1000, 65_537])
    @pytest.mark.parametrize("most", [313, 1 << 20])
    def test_reading_in_steps(self, compression, size, most):
        assert unpack(compression, squeeze(compression, MIXED), size, most) == MIXED

    def test_read_of_others_members_in_a_row(self, compression):
        data = b"".join(raw_member(compression, part) for part in (b"one", b"", b"two", b"", MIXED))
        assert unpack(compression, data) == b"onetwo" + MIXED

    def test_cut_anywhere(self, compression):
        data = squeeze(compression, b"some text, some more text" * 20)
        for end in range(1, len(data)):
            with pytest.raises(CompressionError, match=r"ends early|damaged"):
                unpack(compression, data[:end])

    def test_bytes_behind_the_end(self, compression):
        data = squeeze(compression, b"text" * 100)
        for more in (b"x", b"garbage behind the end"):
            with pytest.raises(CompressionError):
                unpack(compression, data + more)

    def test_errors_of_the_source_pass(self, compression):
        class Broken:
            def read(self, size):
                raise PermissionError(13, "no")

        with pytest.raises(PermissionError):
            decompressor(compression, Broken()).read(10)

    def test_no_bytes_at_all(self, compression):
        assert unpack(compression, b"") == b""


@pytest.mark.usefixtures("inflating")
@pytest.mark.parametrize("compression", ["gzip", "deflate", "bzip2"])
def test_flipped_bits_are_found(compression):
    data = bytearray(squeeze(compression, MIXED))
    data[len(data) // 2] ^= 1
    with pytest.raises(CompressionError, match=r"damaged|ends early"):
        unpack(compression, bytes(data))


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_deflate_in_pieces_is_one_stream_of_the_usual_size(compression, level):
    data = (RANDOM + b"some text, some more " * 20_000) * 5
    squeezed = squeeze(compression, data, level=level)
    stream = zlib.decompressobj(47)
    assert stream.decompress(squeezed) == data
    assert stream.eof
    assert stream.unused_data == b""
    bits = {"gzip": 31, "deflate": 15}[compression]
    usual = zlib.compressobj(level, zlib.DEFLATED, bits)
    expected = usual.compress(data) + usual.flush()
    assert squeezed[:2] == expected[:2]
    # The whole run repeats itself only beyond the 32 KiB that deflate looks back.
    assert len(squeezed) < len(expected) * 1.001 + 100


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_both_libraries_find_the_same_damage(compression, monkeypatch):
    chance = random.Random(11)
    sound = [
        squeeze(compression, data, level=level)
        for data in (b"", RANDOM[:500], b"some text, some more " * 400)
        for level in (0, 1, 9)
    ]

    def outcome(module, data):
        monkeypatch.setattr("tfrecord_io.decompression.inflating", importlib.import_module(module))
        try:
            return unpack(compression, data)
        except CompressionError:
            return "damaged"

    seen = set()
    for _ in range(3000):
        data = bytearray(chance.choice(sound))
        at = chance.randrange(len(data))
        if chance.random() < 0.2:
            del data[at:]
        # The reserved flags of a gzip header are all that only zlib looks at.
        elif compression == "deflate" or at != 3:
            data[at] ^= 1 << chance.randrange(8)
        expected = outcome("zlib", bytes(data))
        assert outcome("isal.isal_zlib", bytes(data)) == expected, bytes(data)
        seen.add(expected == "damaged")
    assert seen == {True, False}


def test_without_isal_the_standard_library_reads():
    code = (
        "import gzip, io, sys, zlib\n"
        "sys.modules['isal'] = None\n"
        "from tfrecord_io import decompression\n"
        "assert decompression.inflating is zlib\n"
        "stream = decompression.decompressor('gzip', io.BytesIO(gzip.compress(b'some text')))\n"
        "print(stream.read(100).decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "some text\n"


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("compression", ["gzip", "deflate", "bzip2", "zstd"])
def test_levels(compression, level):
    assert unpack(compression, squeeze(compression, MIXED, level=level)) == MIXED


def test_others_read_what_is_written():
    assert gzip.decompress(squeeze("gzip", MIXED)) == MIXED
    assert zlib.decompress(squeeze("deflate", MIXED)) == MIXED
    assert bz2.decompress(squeeze("bzip2", MIXED)) == MIXED
    out = pa.CompressedInputStream(pa.py_buffer(squeeze("zstd", MIXED * 20)), "zstd").read()
    assert out == MIXED * 20


def test_gzip_header_tells_nothing():
    assert squeeze("gzip", b"x")[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


@pytest.mark.usefixtures("inflating")
def test_gzip_may_be_padded_with_zeros():
    data = squeeze("gzip", b"abc") + bytes(1000) + squeeze("gzip", b"def") + bytes(3_000_000)
    assert unpack("gzip", data) == b"abcdef"
    with pytest.raises(CompressionError):
        unpack("gzip", data + b"x")


def test_zstd_skippable_frames():
    skipped = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
    one = raw_member("zstd", b"one")
    assert unpack("zstd", skipped + one + skipped + one + skipped) == b"oneone"
    with pytest.raises(CompressionError, match="ends early"):
        unpack("zstd", one + skipped[:-1])


@pytest.mark.parametrize("known", [{}, {"write_content_size": False}])
def test_zstd_frames_that_need_a_dictionary(known):
    samples = [b"one sample, number %d" % number for number in range(1000)]
    trained = zstandard.train_dictionary(4096, samples)
    made = zstandard.ZstdCompressor(dict_data=trained, **known).compress(MIXED)
    what = rf"needs the dictionary {trained.dict_id()}, .*compress the file anew"
    with pytest.raises(CompressionError, match=what):
        unpack("zstd", made)


class Breaking(Trickle):
    """Gives what it has, and then an error, as a store that is gone."""

    def __init__(self, data, most, error):
        super().__init__(data, most)
        self.error = error

    def read(self, size=-1):
        if piece := super().read(size):
            return piece
        raise self.error


@pytest.mark.usefixtures("inflating")
@pytest.mark.parametrize("compression", ALL)
@pytest.mark.parametrize(
    "error",
    [TimeoutError(), ConnectionResetError(), OSError("no answer"), OSError(errno.EIO, "no answer")],
)
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_what_a_store_does_not_give_is_no_damage(compression, error, size):
    # fsspec's time-outs have no number, as Arrow's errors for damaged streams have none.
    data = squeeze(compression, MIXED)
    stream = decompressor(compression, Breaking(data[: len(data) // 2], 20_000, error))
    with pytest.raises(OSError) as caught:
        while stream.read(size):
            pass
    assert caught.value is error


@pytest.mark.parametrize("compression", HADOOP)
@pytest.mark.parametrize(
    ("magic", "name"),
    [(b"\x04\x22\x4d\x18", "LZ4 frame"), (b"\xff\x06\x00\x00", "framed snappy")],
)
def test_framings_that_are_not_hadoops(compression, magic, name):
    with pytest.raises(CompressionError, match=f"{name}.*as gzip or zstd"):
        unpack(compression, magic + b"sNaPpY\x00\x01")
    with pytest.raises(CompressionError) as caught:
        unpack(compression, hadoop_block(compression, b"a") + magic + b"sNaPpY\x00\x01")
    assert name not in str(caught.value)


@pytest.mark.parametrize("compression", HADOOP)
class TestHadoopBlocks:
    def test_several_chunks_in_a_block(self, compression):
        chunks = [RANDOM[:20_000], bytes(200_000), b"x"]
        data = hadoop_block(compression, *chunks) + hadoop_block(compression, *chunks)
        assert unpack(compression, data) == b"".join(chunks) * 2

    def test_chunks_fit_hadoops_buffers(self, compression):
        data = squeeze(compression, os.urandom(600_000))
        at = 0
        while at < len(data):
            size, packed = struct.unpack_from(">II", data, at)
            assert size <= 256 * 1024
            assert packed <= 256 * 1024
            at += 8 + packed

    @pytest.mark.parametrize("claim", [1, 2, 4, 2**31, 2**32 - 1])
    def test_wrong_uncompressed_length(self, compression, claim):
        data = hadoop_block(compression, b"abc")
        with pytest.raises(CompressionError):
            unpack(compression, struct.pack(">I", claim) + data[4:])

    @pytest.mark.parametrize("claim", [0, 1, 2**20, 2**31, 2**32 - 1])
    def test_wrong_compressed_length(self, compression, claim):
        data = hadoop_block(compression, b"abc" * 1000)
        with pytest.raises(CompressionError):
            unpack(compression, data[:4] + struct.pack(">I", claim) + data[8:])


@pytest.mark.usefixtures("inflating")
def test_a_bomb_is_read_in_small_steps():
    data = gzip.compress(bytes(100_000_000))
    stream = decompressor("gzip", io.BytesIO(data))
    assert len(stream.read(10_000)) <= 10_000


def test_the_error_pickles():
    with pytest.raises(CompressionError) as caught:
        unpack("gzip", squeeze("gzip", MIXED)[:-1])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


@pytest.mark.parametrize("compression", ALL)
@pytest.mark.parametrize("most", [1, 1 << 20])
@pytest.mark.parametrize("payload", [b"", b"x" * 300, bytes(100_000)], ids=len)
def test_a_plain_tfrecord_is_said_to_be_one(compression, most, payload):
    stream = decompressor(compression, Trickle(frame(payload), most))
    with pytest.raises(OptionError, match=f"'{compression}'.* plain TFRecord: leave compression"):
        while stream.read(1000):
            pass
