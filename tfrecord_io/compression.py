"""Compressing streams, and what a file is compressed with; knows nothing of records.

The one exception is the test for a plain file: `detect` takes a head that starts with a length and
its fitting CRC for uncompressed, since the bytes of a length may look like the magic number of gzip
or zlib.

What a `Compressor` gives depends on the bytes, the compression and the level alone, never on how
the bytes were cut into calls, nor on the threads that compress: input is gathered into pieces of a
fixed size, and each is compressed by itself, so that a stream keeps little in memory.

- gzip and deflate (zlib's format) come from the standard library: one member, whose pieces end on a
  byte and have what stands before them as their dictionary, so that they cost no room (as pigz does
  it). gzip headers hold no name, no time and no operating system.
- bzip2 comes from the standard library: a stream for what one of its blocks can hold (as pbzip2
  does it).
- zstd comes from pyarrow, which every installation has: frames that carry their size, and a level
  can be given (pyarrow's streaming compressor takes none).
- snappy and lz4 are pyarrow's raw codecs in Hadoop's block framing, which is what Hadoop and Spark
  write: blocks of big-endian u32 uncompressed length, then chunks of big-endian u32 compressed
  length and data.

`tfrecord_io.decompression` holds the way back.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Literal, Protocol, TypeAlias, cast

import crc32c
import pyarrow as pa

from tfrecord_io.errors import OptionError

Compression = Literal["gzip", "deflate", "bzip2", "zstd", "snappy", "lz4"]

#: Calls with the items of iterables as `map` does, in order; perhaps on several threads.
Map: TypeAlias = Callable[..., Iterable[bytes]]

#: Bytes of a file that `detect` wants to see.
HEAD_BYTES = 512

#: The length of a record and its CRC.
FRAME_HEAD_BYTES = 12

#: What a zstd frame with data begins with.
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_SUFFIXES: dict[Compression, str] = {
    "gzip": ".gz",
    "deflate": ".deflate",
    "bzip2": ".bz2",
    "zstd": ".zst",
    "snappy": ".snappy",
    "lz4": ".lz4",
}

_HADOOP = "org.apache.hadoop.io.compress."
_SYNONYMS: dict[str, Compression | None] = {
    "": None,
    "none": None,
    "uncompressed": None,
    "gz": "gzip",
    "zlib": "deflate",
    "bz2": "bzip2",
    "zst": "zstd",
    "zstandard": "zstd",
    _HADOOP + "gzipcodec": "gzip",
    _HADOOP + "deflatecodec": "deflate",
    _HADOOP + "defaultcodec": "deflate",
    _HADOOP + "bzip2codec": "bzip2",
    _HADOOP + "zstandardcodec": "zstd",
    _HADOOP + "snappycodec": "snappy",
    _HADOOP + "lz4codec": "lz4",
}
_BY_SUFFIX: dict[str, Compression] = {
    **{ending: compression for compression, ending in _SUFFIXES.items()},
    ".gzip": "gzip",
    ".zlib": "deflate",
    ".zz": "deflate",
    ".bzip2": "bzip2",
    ".zstd": "zstd",
}

_LEVELS: dict[str, tuple[int, int, int]] = {
    "gzip": (0, 9, 6),
    "deflate": (0, 9, 6),
    "bzip2": (1, 9, 9),
    "zstd": (1, 22, 3),
}

_PIECE_BYTES = 512 * 1024

# What the library leaves free of a block.
_BZIP2_RESERVED = 19

# RFC 1952: deflate, no flags, no time, no hint, no operating system: the same on every machine,
# unlike zlib's own.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

# pyarrow's names of Hadoop's codecs, and the largest chunks that its BlockCompressorStream makes of
# its default buffer of 256 KiB; its readers have room for no larger ones.
_HADOOP_BUFFER_BYTES = 256 * 1024
_HADOOP_CODECS: dict[str, tuple[str, int]] = {
    "snappy": ("snappy", _HADOOP_BUFFER_BYTES - (_HADOOP_BUFFER_BYTES // 6 + 32)),
    "lz4": ("lz4_raw", _HADOOP_BUFFER_BYTES - (_HADOOP_BUFFER_BYTES // 255 + 16)),
}


def normalize_compression(name: str | None) -> Compression | None:
    """Return the one name of a compression.

    Parameters
    ----------
    name : str or None
        ``gzip``, ``deflate``, ``bzip2``, ``zstd``, ``snappy``, ``lz4``, None, one of their short
        names (``gz``, ``zlib``, ``bz2``, ``zst``, ``none``, ``uncompressed``, an empty string) or
        Hadoop's class name of a codec; upper and lower case alike.

    Raises
    ------
    OptionError
        Any other name.
    """
    if name is None:
        return None
    if isinstance(name, str):
        key = name.strip().lower()
        if key in _SUFFIXES:
            return key
        if key in _SYNONYMS:
            return _SYNONYMS[key]
    known = ", ".join(repr(known) for known in _SUFFIXES)
    raise OptionError(
        f"compression is {name!r}; it must be None, {known}, "
        "or the Hadoop class name of one of them"
    )


def suffix(compression: Compression | None) -> str:
    """Return what names of files with this compression end in, from the dot on, or nothing."""
    return "" if compression is None else _SUFFIXES[compression]


def from_suffix(path: str) -> Compression | None:
    """Return the compression that the name of a file tells, or None."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower())


def detect(head: bytes, path: str) -> Compression | None:
    """Return what a file is compressed with, or None for a plain one.

    A head that starts with a length and its fitting CRC is plain; else a known magic number decides
    (for zlib, whose two bytes are weak, only if the head decompresses); else the suffix does. So a
    file with a wrong suffix is read by its content, and the suffix serves for Hadoop's snappy and
    lz4, which have no magic number, and for damaged files. An empty file is plain and holds
    nothing.

    Parameters
    ----------
    head : bytes
        The first `HEAD_BYTES` of the file, or all of a shorter one.
    path : str
        Its path.
    """
    if not head or starts_with_frame(head):
        return None
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if head.startswith(ZSTD_MAGIC) or is_skippable_zstd(head):
        return "zstd"
    if _starts_with_zlib(head):
        return "deflate"
    return from_suffix(path)


def starts_with_frame(head: bytes) -> bool:
    """Return whether bytes begin with a length and its fitting CRC: those of a plain TFRecord."""
    if len(head) < FRAME_HEAD_BYTES:
        return False
    crc = crc32c.crc32c(head[:8])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return bool(masked == int.from_bytes(head[8:FRAME_HEAD_BYTES], "little"))


def is_skippable_zstd(head: bytes) -> bool:
    """Return whether bytes begin with the magic number of a zstd frame without data (RFC 8878)."""
    return head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50


def _starts_with_zlib(head: bytes) -> bool:
    # RFC 1950: method 8, window of at most 32 KiB, no preset dictionary, a multiple of 31.
    if len(head) < 2 or head[0] & 0x0F != 8 or head[0] >> 4 > 7 or head[1] & 0x20:
        return False
    if int.from_bytes(head[:2], "big") % 31:
        return False
    try:
        zlib.decompressobj().decompress(head, HEAD_BYTES)
    except zlib.error:
        return False
    return True


class Compressor(Protocol):
    """A stream that compresses."""

    def compress(self, data: bytes | memoryview | pa.Buffer) -> bytes:
        """Take more bytes and return what is ready, perhaps nothing."""

    def flush(self) -> bytes:
        """Return the rest; the stream is whole then and takes no more."""


def check_level(compression: Compression | None, level: int | None) -> int | None:
    """Return the level to compress with: `level`, or the compression's default.

    Raises
    ------
    OptionError
        A level that this compression does not have.
    """
    if compression is None or compression not in _LEVELS:
        if level is not None:
            raise OptionError(
                f"compression_level is {level!r}, but compression {compression!r} has no levels"
            )
        return None
    lowest, highest, default = _LEVELS[compression]
    if level is None:
        return default
    if not isinstance(level, int) or isinstance(level, bool) or not lowest <= level <= highest:
        raise OptionError(
            f"compression_level is {level!r}; {compression} has the levels {lowest} to {highest}"
        )
    return level


def compressor(
    compression: Compression, level: int | None = None, map_pieces: Map = map
) -> Compressor:
    """Return a stream that compresses.

    Parameters
    ----------
    compression : {"gzip", "deflate", "bzip2", "zstd", "snappy", "lz4"}
        What to compress with.
    level : int, optional
        gzip and deflate: 0 to 9 (6); bzip2: 1 to 9 (9); zstd: 1 to 22 (3); the others: none.
    map_pieces : callable
        Compresses the pieces of one call; by default one after the other.

    Raises
    ------
    OptionError
        A level that this compression does not have.
    """
    level = check_level(compression, level)
    if compression in ("gzip", "deflate"):
        level = cast("int", level)
        if compression == "gzip":
            stream = _Deflate(level, _GZIP_HEAD, zlib.crc32, _gzip_tail, map_pieces)
        else:
            head = zlib.compress(b"", level)[:2]
            stream = _Deflate(level, head, zlib.adler32, _zlib_tail, map_pieces)
        return _Pieces(_PIECE_BYTES, stream)
    if compression == "bzip2":
        level = cast("int", level)
        streams = _Independent(lambda piece: bz2.compress(piece, level), map_pieces)
        return _Pieces(level * 100_000 - _BZIP2_RESERVED, streams, empty=True)
    # A codec for each piece: that several threads may use one, Arrow does not say.
    if compression == "zstd":

        def frame(piece: memoryview) -> bytes:
            codec = pa.Codec("zstd", compression_level=level)
            return cast("bytes", codec.compress(piece, asbytes=True))

        return _Pieces(_PIECE_BYTES, _Independent(frame, map_pieces), empty=True)
    name, chunk_bytes = _HADOOP_CODECS[compression]

    def block(piece: memoryview) -> bytes:
        data = cast("bytes", pa.Codec(name).compress(piece, asbytes=True))
        return struct.pack(">II", len(piece), len(data)) + data

    return _Pieces(chunk_bytes, _Independent(block, map_pieces))


class _Sink(Protocol):
    def compress(self, pieces: Sequence[memoryview], /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Pieces:
    """Hands bytes on in pieces of one size, the last one shorter, however they come in.

    With `empty` a stream of no bytes is handed on as one empty piece.
    """

    def __init__(self, piece_bytes: int, sink: _Sink, *, empty: bool = False) -> None:
        self._piece_bytes = piece_bytes
        self._sink = sink
        self._waiting = bytearray()
        self._empty = empty

    def compress(self, data: bytes | memoryview | pa.Buffer) -> bytes:
        view = memoryview(data).cast("B")
        size, at, ready = self._piece_bytes, 0, []
        if self._waiting:
            at = min(size - len(self._waiting), len(view))
            self._waiting += view[:at]
            if len(self._waiting) < size:
                return b""
            ready.append(memoryview(self._waiting))
            self._waiting = bytearray()
        while at + size <= len(view):
            ready.append(view[at : at + size])
            at += size
        self._waiting += view[at:]
        if not ready:
            return b""
        self._empty = False
        return self._sink.compress(ready)

    def flush(self) -> bytes:
        last = b""
        if self._waiting or self._empty:
            last = self._sink.compress([memoryview(self._waiting)])
            self._waiting = bytearray()
            self._empty = False
        return last + self._sink.flush()


class _Independent:
    """Pieces that know nothing of each other."""

    def __init__(self, compress: Callable[[memoryview], bytes], map_pieces: Map) -> None:
        self._compress = compress
        self._map = map_pieces

    def compress(self, pieces: Sequence[memoryview]) -> bytes:
        return b"".join(self._map(self._compress, pieces))

    def flush(self) -> bytes:
        return b""


class _Deflate:
    """One stream of deflate (RFC 1951) between a head and a tail.

    Parameters
    ----------
    level : int
        Of zlib.
    head : bytes
        What stands before it.
    checksum : callable
        `zlib.crc32` or `zlib.adler32`.
    tail : callable
        Gives what stands behind it, of the checksum and the number of all bytes.
    map_pieces : callable
        See `compressor`.
    """

    #: What a copy can go back to.
    _WINDOW_BYTES = 32 * 1024

    def __init__(
        self,
        level: int,
        head: bytes,
        checksum: Callable[..., int],
        tail: Callable[[int, int], bytes],
        map_pieces: Map,
    ) -> None:
        self._level = level
        self._head = head
        self._checksum = checksum
        self._tail = tail
        self._map = map_pieces
        self._before = b""
        self._sum = checksum(b"")
        self._size = 0

    def compress(self, pieces: Sequence[memoryview]) -> bytes:
        for piece in pieces:
            self._sum = self._checksum(piece, self._sum)
            self._size += len(piece)
        ends = [bytes(piece[-self._WINDOW_BYTES :]) for piece in pieces]
        befores = [self._before, *ends[:-1]]
        self._before = ends[-1]
        head, self._head = self._head, b""
        return b"".join((head, *self._map(self._piece, pieces, befores)))

    def _piece(self, piece: memoryview, before: bytes) -> bytes:
        stream = zlib.compressobj(self._level, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=before)
        # Ends on a byte, with an empty block.
        return stream.compress(piece) + stream.flush(zlib.Z_SYNC_FLUSH)

    def flush(self) -> bytes:
        last_block = b"\x03\x00"
        return self._head + last_block + self._tail(self._sum, self._size)


def _gzip_tail(crc: int, size: int) -> bytes:
    return struct.pack("<II", crc, size & 0xFFFFFFFF)


def _zlib_tail(adler: int, _: int) -> bytes:
    return struct.pack(">I", adler)
