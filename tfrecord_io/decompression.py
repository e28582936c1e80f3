"""Decompressing streams: from a source that is read in steps to bytes that are read in steps.

Invariants, whatever the input holds:

- `Decompressor.read` returns no more bytes than it was asked for, and no more than the size asked
  for plus about 1 MiB of input is held. No length in the input is trusted for an allocation.
- Members (gzip, zlib, bzip2), frames (zstd) and blocks (snappy, lz4) one behind the other are read
  as one stream, empty ones in the middle too.
- Behind the last of them nothing may stand, except zero bytes behind gzip's, with which tapes and
  block devices pad and which gzip(1) ignores too. Everything else, and an early end, is a
  `CompressionError`.
- A source of no bytes at all is an empty stream.
- A source that is a plain TFRecord is no damage but an option that does not fit.

gzip and zlib are read by the standard library, or by ISA-L where the extra `gzip` is installed: by
the same interface, up to twice as fast. It is as strict, but for a gzip header's reserved flags,
which it passes over.

zstd frames are walked here block by block, though pyarrow could read on over their ends: its stream
stops for good at an empty frame and would lose what stands behind it.
"""

from __future__ import annotations

import bz2
import importlib
import struct
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from tfrecord_io.compression import (
    FRAME_HEAD_BYTES,
    ZSTD_MAGIC,
    Compression,
    is_skippable_zstd,
    starts_with_frame,
)
from tfrecord_io.errors import CompressionError, OptionError, TFRecordError

inflating: Any
try:
    inflating = importlib.import_module("isal.isal_zlib")
except ImportError:
    inflating = zlib

_STEP_BYTES = 1024 * 1024

# What a library is given at once: where it finds damage it keeps back all that it made of it.
_FEED_BYTES = 16 * 1024

# What is asked of Arrow at once, which gives none of it where damage comes before its end. A block
# makes no more (RFC 8878, 3.1.1.2.4).
_ZSTD_BLOCK_BYTES = 128 * 1024

# An LZ4 frame header (version 1, independent blocks of at most 4 MiB, no checksums, no sizes) for
# wrapping raw blocks.
_LZ4_FRAME_HEAD = bytes.fromhex("04224d18607073")
_LZ4_MAX_CHUNK_BYTES = 4 * 1024 * 1024

# Hadoop makes chunks of at most its buffer's size, 256 KiB unless it was configured.
_MAX_CHUNK_BYTES = 64 * 1024 * 1024


class Source(Protocol):
    """What compressed bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return at least one and at most `size` bytes, or none at the end."""


class Decompressor(Protocol):
    """A stream of decompressed bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at least one and at most `size` bytes, or none at the end.

        Raises
        ------
        CompressionError
            The compressed bytes are damaged, end early, or go on behind the end.
        """


def decompressor(compression: Compression, source: Source) -> Decompressor:
    """Return a stream of what `source` holds compressed.

    Parameters
    ----------
    compression : {"gzip", "deflate", "bzip2", "zstd", "snappy", "lz4"}
        What it is compressed with.
    source : Source
        The compressed bytes, read from where it stands.

    Raises
    ------
    OptionError
        While reading: the bytes are those of a TFRecord that is not compressed.
    """
    taking = _Input(source, compression)
    if compression == "gzip":
        return _Members(taking, lambda: inflating.decompressobj(zlib.MAX_WBITS | 16), padded=True)
    if compression == "deflate":
        return _Members(taking, lambda: inflating.decompressobj(zlib.MAX_WBITS))
    if compression == "bzip2":
        return _Members(taking, _Bzip2Member)
    if compression == "zstd":
        return _ZstdFrames(taking)
    return _HadoopBlocks(taking, {"snappy": _snappy_chunk, "lz4": _lz4_chunk}[compression])


class _Input:
    """The source with a place, exact reads and errors.

    Attributes
    ----------
    offset : int
        The bytes taken so far.
    is_broken : bool
        Whether the source raised an error of its own.
    """

    def __init__(self, source: Source, compression: Compression) -> None:
        self._source = source
        self._compression = compression
        self._pending: memoryview = memoryview(b"")
        self._head = b""
        self.offset = 0
        self.is_broken = False

    def some(self, size: int = _STEP_BYTES) -> memoryview:
        """Return 1 to `size` bytes, or none at the end."""
        if not self._pending:
            self._pending = memoryview(self._read())
            self._look(self._pending)
        taken = self._pending[:size]
        self._pending = self._pending[size:]
        self.offset += len(taken)
        return taken

    def exactly(self, size: int, *, or_end: bool = False) -> bytes:
        """Return `size` bytes; at the end of the source none if `or_end` allows it."""
        taken = self.some(size)
        if len(taken) == size:
            return bytes(taken)
        if not taken and or_end:
            return b""
        gathered = bytearray(taken)
        while len(gathered) < size:
            taken = self.some(size - len(gathered))
            if not taken:
                raise self.truncated()
            gathered += taken
        return bytes(gathered)

    def truncated(self) -> TFRecordError:
        return self._plain() or CompressionError(
            f"the {self._compression} stream ends early, after {self.offset} compressed bytes; "
            "the file is incomplete: write or copy it again"
        )

    def damaged(self, why: object) -> TFRecordError:
        return self._plain() or CompressionError(
            f"the {self._compression} stream is damaged near compressed byte {self.offset}: {why}"
        )

    def _read(self) -> bytes:
        try:
            return self._source.read(_STEP_BYTES)
        except BaseException:
            self.is_broken = True
            raise

    def _look(self, data: memoryview | bytes) -> None:
        self._head += bytes(data[: FRAME_HEAD_BYTES - len(self._head)])

    def _plain(self) -> OptionError | None:
        # Nothing is decompressed any more.
        while len(self._head) < FRAME_HEAD_BYTES and (data := self._source.read(_STEP_BYTES)):
            self._look(data)
        if not starts_with_frame(self._head):
            return None
        return OptionError(
            f"compression is {self._compression!r}, and the file is a plain TFRecord: leave "
            "compression out, and each file is read by its content"
        )


class _Member(Protocol):
    """What zlib, ISA-L and bz2 give: one member."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


class _Bzip2Member:
    """bz2's decompressor, which keeps its input, in the clothes of zlib's, which gives it back."""

    unconsumed_tail = b""

    def __init__(self) -> None:
        self._member = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: Any, max_length: int, /) -> bytes:
        return self._member.decompress(data, max_length)


class _Stepwise:
    """A stream that is read in steps: what is sound comes before the error behind it."""

    _error: CompressionError | None = None

    def read(self, size: int, /) -> bytes:
        if self._error is not None:
            raise self._error
        gathered: list[bytes] = []
        left = size
        try:
            while left and (out := self._step(left)) is not None:
                if out:
                    gathered.append(out)
                    left -= len(out)
        except CompressionError as error:
            self._error = error
            if not gathered:
                raise
        return gathered[0] if len(gathered) == 1 else b"".join(gathered)

    def _step(self, size: int) -> bytes | None:
        """Return `size` bytes at most, none if the next step may give some, None at the end."""
        raise NotImplementedError


class _Members(_Stepwise):
    """Members of gzip, zlib and bzip2, one behind the other."""

    def __init__(
        self, taking: _Input, make: Callable[[], _Member], *, padded: bool = False
    ) -> None:
        self._taking = taking
        self._make = make
        self._padded = padded
        self._member: _Member | None = None
        self._data: memoryview | bytes = b""
        self._count = 0

    def _begin(self) -> _Member | None:
        """Start the next member, if there is one."""
        data = bytes(self._data) or bytes(self._taking.some(_FEED_BYTES))
        while self._padded and self._count and data and not (data := data.lstrip(b"\0")):
            data = bytes(self._taking.some(_FEED_BYTES))
        self._data = data
        if data:
            self._member = self._make()
            self._count += 1
        return self._member

    def _step(self, size: int) -> bytes | None:
        member = self._member or self._begin()
        if member is None:
            return None
        try:
            out = member.decompress(self._data, size)
        except (inflating.error, OSError, ValueError) as error:
            # The libraries raise for damage only; the source is read elsewhere.
            why = f"{error} (in member {self._count}; nothing else may stand behind a member)"
            raise self._taking.damaged(why if self._count > 1 else error) from error
        if member.eof:
            self._data = member.unused_data
            self._member = None
        else:
            self._data = member.unconsumed_tail
            if not out and not self._data:
                self._data = self._taking.some(_FEED_BYTES)
                if not self._data:
                    raise self._taking.truncated()
        return out


class _ZstdFrames(_Stepwise):
    """zstd frames (RFC 8878), one behind the other; skippable frames are skipped."""

    def __init__(self, taking: _Input) -> None:
        self._taking = taking
        self._stream: pa.CompressedInputStream | None = None

    def _step(self, size: int) -> bytes | None:
        stream = self._stream or self._begin()
        if stream is None:
            return None
        try:
            out: bytes = stream.read(min(size, _ZSTD_BLOCK_BYTES))
        except TFRecordError:
            raise
        except (pa.ArrowException, OSError) as error:
            if self._taking.is_broken:
                # Not what Arrow says of damage: many a store's errors have no number either.
                raise
            raise self._taking.damaged(error) from error
        if not out:
            self._stream = None
        return out

    def _begin(self) -> pa.CompressedInputStream | None:
        while magic := self._taking.exactly(4, or_end=True):
            if magic == ZSTD_MAGIC:
                frame = pa.PythonFile(_ZstdFrame(self._taking), mode="r")
                self._stream = pa.CompressedInputStream(frame, "zstd")
                return self._stream
            if not is_skippable_zstd(magic):
                raise self._taking.damaged("no zstd frame begins here")
            left = int.from_bytes(self._taking.exactly(4), "little")
            while left:
                skipped = self._taking.some(left)
                if not skipped:
                    raise self._taking.truncated()
                left -= len(skipped)
        return None


class _ZstdFrame:
    """The bytes of one frame, from its magic number to its end, as a file."""

    closed = False

    def __init__(self, taking: _Input) -> None:
        self._taking = taking
        head = taking.exactly(1)
        descriptor = head[0]
        single_segment = descriptor >> 5 & 1
        window_bytes = 1 - single_segment
        dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        rest = taking.exactly(window_bytes + dictionary_bytes + size_bytes)
        dictionary = int.from_bytes(rest[window_bytes:][:dictionary_bytes], "little")
        if dictionary:
            raise CompressionError(
                f"the zstd stream needs the dictionary {dictionary}, and dictionaries are not "
                "read: compress the file anew, without one"
            )
        self._checksum_bytes = 4 * (descriptor >> 2 & 1)
        self._ready: bytes = ZSTD_MAGIC + head + rest
        self._block_bytes = 0
        self._is_last = False

    def read(self, size: int) -> bytes:
        if not self._ready and not self._block_bytes and not self._is_last:
            self._next_block()
        if self._ready:
            out, self._ready = self._ready[:size], self._ready[size:]
        else:
            out = bytes(self._taking.some(min(size, self._block_bytes)))
            if not out and self._block_bytes:
                raise self._taking.truncated()
            self._block_bytes -= len(out)
        return out

    def _next_block(self) -> None:
        self._ready = self._taking.exactly(3)
        header = int.from_bytes(self._ready, "little")
        self._is_last = bool(header & 1)
        kind = header >> 1 & 3
        # A run-length block holds one byte, whatever its size says.
        self._block_bytes = 1 if kind == 1 else header >> 3
        if self._is_last:
            self._block_bytes += self._checksum_bytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


#: Of a block they would be its size, a possible one.
_OTHER_FRAMINGS = {
    magic: f"; the file looks like {name}, and what Hadoop writes is framed in another way: "
    "compress it anew, as gzip or zstd"
    for magic, name in (
        (b"\x04\x22\x4d\x18", "an LZ4 frame"),
        (b"\xff\x06\x00\x00", "a framed snappy stream"),
    )
}


class _HadoopBlocks:
    """Hadoop's block framing, as its BlockDecompressorStream reads it."""

    def __init__(self, taking: _Input, chunk: Callable[[bytes, int], bytes]) -> None:
        self._taking = taking
        self._chunk = chunk
        self._left = 0
        self._ready: memoryview = memoryview(b"")
        self._first = b""

    def read(self, size: int, /) -> bytes:
        while not self._ready:
            if not self._left:
                header = self._taking.exactly(4, or_end=True)
                if not header:
                    return b""
                self._first = self._first or header
                self._left = int.from_bytes(header, "big")
                continue
            (compressed_bytes,) = struct.unpack(">I", self._taking.exactly(4))
            if compressed_bytes > _MAX_CHUNK_BYTES:
                raise self._taking.damaged(
                    f"a chunk claims {compressed_bytes} compressed bytes, too many for one"
                    f"{_OTHER_FRAMINGS.get(self._first, '')}"
                )
            data = self._taking.exactly(compressed_bytes)
            try:
                out = self._chunk(data, min(self._left, _MAX_CHUNK_BYTES))
            except (pa.ArrowException, OSError, ValueError) as error:
                raise self._taking.damaged(error) from error
            self._left -= len(out)
            self._ready = memoryview(out)
        out, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return out


def _snappy_chunk(data: bytes, limit: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    # An element of 3 bytes gives at most 64.
    if not 0 < size <= min(limit, 22 * len(data)):
        raise ValueError(f"a chunk claims {size} bytes where its block has {limit} left")
    return pa.Codec("snappy").decompress(data, size, asbytes=True)  # type: ignore[no-any-return]


def _lz4_chunk(data: bytes, limit: int) -> bytes:
    # Raw LZ4 does not tell its size and pyarrow's raw codec not how much it wrote, but the frame
    # format's reader does.
    frame = _LZ4_FRAME_HEAD + struct.pack("<I", len(data)) + data + bytes(4)
    out: bytes = pa.CompressedInputStream(pa.py_buffer(frame), "lz4").read(
        min(limit, _LZ4_MAX_CHUNK_BYTES) + 1
    )
    if not 0 < len(out) <= limit:
        raise ValueError(f"a chunk holds {len(out)} bytes where its block has {limit} left")
    return out
