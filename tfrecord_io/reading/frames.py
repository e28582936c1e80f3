"""From one frame of a file to the next: how files end, where damage ends, where spans begin.

`walk` drives a cursor (a codec's decoder or observer, or one of those here) over a source. What the
frames hold is none of its business.

Damage, where it is to be skipped:

- A frame with a sound header and a damaged payload is skipped alone if the next frame's header is
  sound too, or the file ends there.
- Otherwise reading goes on at the next whole frame with two fitting CRCs. In files that are not
  mapped it is looked for in windows of 64 MiB that overlap by half, so that there a frame of more
  than 32 MiB directly behind the damage is skipped with it.
- A damaged compressed stream ends the file behind what it still gave.

Whatever is skipped is noted as a range of bytes, so nothing is lost in silence; its bytes can be
kept.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfrecord_io.codec.base import HEADER_BYTES, OVERHEAD_BYTES, Codec, Cursor
from tfrecord_io.codec.hints import foreign_format_hint
from tfrecord_io.errors import (
    CompressionError,
    CorruptDataError,
    CorruptDataWarning,
    DamagedRange,
    LimitExceededError,
    TruncatedRecordError,
)
from tfrecord_io.options import MAX_PAYLOAD_BYTES, Limits
from tfrecord_io.reading.source import Source, check_end

# Payloads become objects one by one, and what may be lengths numbers: no more of them at a time
# than a cache holds.
_TAKEN_BYTES = 256 * 1024
_FIRST_LOOK_BYTES = 1024 * 1024
_RESYNC_BYTES = 64 * 1024 * 1024
# So many places in `_TAKEN_BYTES` may hold a header. Of more, as numbers in a payload make them,
# each would take longer to look at than a larger window.
_MOST_HEADERS = 100
_SHOWN_RANGES = 10
# Where Arrow's binary arrays end.
_MAX_KEPT_BYTES = 2**31 - 1


class Damage:
    """The ranges of bytes of one file that were skipped.

    Attributes
    ----------
    ranges : list of DamagedRange
        In their order, none of them adjacent to the next.
    kept : bytearray or None
        The bytes of the last range, if they are kept; of a damaged compressed stream those that it
        still gave.
    """

    def __init__(self, *, keeps_bytes: bool = False) -> None:
        self.ranges: list[DamagedRange] = []
        self.kept: bytearray | None = bytearray() if keeps_bytes else None
        self._passed: _Passed | None = None

    def add(self, start: int, end: int | None, what: str) -> None:
        """Note a range, see `DamagedRange`."""
        if self._passed is not None:
            self._passed.end(end)
            self._passed = None
        if self.ranges and self.ranges[-1].end == start:
            start, _, what = self.ranges.pop()
        self.ranges.append(DamagedRange(start, end, what))

    def passed(self, source: Source, offset: int) -> Source:
        """Return the source by which the end of damage at `offset` is to be found, then added."""
        if self.kept is None:
            return source
        if not self.ranges or self.ranges[-1].end != offset:
            self.kept = bytearray()
        self._passed = _Passed(source, offset, self.kept)
        return self._passed

    def warning(self, path: str, *, is_kept: bool = False) -> CorruptDataWarning:
        """Return the one warning of a file; `is_kept` says whether damage became rows."""
        shown = ", ".join(
            f"{start} to {'the end' if end is None else end}"
            for start, end, _ in self.ranges[:_SHOWN_RANGES]
        )
        more = len(self.ranges) - _SHOWN_RANGES
        known = sum(end - start for start, end, _ in self.ranges if end is not None)
        count = len(self.ranges)
        warning = CorruptDataWarning(
            f"{path}: {'made rows of' if is_kept else 'skipped'} "
            f"{count} damaged byte range{'s' if count > 1 else ''} "
            f"({known} bytes{' and more' if self.ranges[-1].end is None else ''}): "
            f"{shown}{f' and {more} more' if more > 0 else ''}"
        )
        warning.ranges = tuple(self.ranges)
        return warning


class _Passed:
    """A source that keeps the bytes that are passed over, from an offset on."""

    def __init__(self, source: Source, offset: int, kept: bytearray) -> None:
        self.size = source.size
        self.is_mapped = source.is_mapped
        self._source = source
        self._offset = offset
        self._kept = kept
        # The last window, and the offset at which it begins.
        self._buffer = pa.py_buffer(b"")
        self._base = offset

    def window(self, offset: int, needed: int) -> tuple[pa.Buffer, int]:
        """See `tfrecord_io.reading.source.Source.window`."""
        self._pass(offset)
        try:
            self._buffer, start = self._source.window(offset, needed)
        except CompressionError:
            # What the stream gave before it broke; where that is nothing, it breaks again.
            self._buffer, start = pa.py_buffer(b""), 0
            with contextlib.suppress(CompressionError):
                self._buffer, start = self._source.window(offset, 0)
            self._base = offset - start
            raise
        self._base = offset - start
        return self._buffer, start

    def end(self, end: int | None) -> None:
        """Keep what stands before `end`; None for the end of the file."""
        self._pass(self._base + self._buffer.size if end is None else end)

    def _pass(self, offset: int) -> None:
        count = offset - self._offset
        if len(self._kept) + count > _MAX_KEPT_BYTES:
            raise LimitExceededError(
                f"more than {_MAX_KEPT_BYTES} damaged bytes stand one behind the other, and a row "
                "holds no more; leave damage out, or its bytes, instead of keeping them",
                offset=self._offset - len(self._kept),
            )
        start = self._offset - self._base
        self._kept += memoryview(self._buffer)[start : start + count]
        self._offset = offset


class FrameCounter:
    """A cursor that hops over frames without a look at their payloads.

    Attributes
    ----------
    lengths : pyarrow.UInt64Array
        The payload lengths of those that the last call hopped over.
    """

    def __init__(self, codec: Codec, limits: Limits) -> None:
        self._codec = codec
        self._max_record_bytes = limits.max_record_bytes
        self.offset = 0
        self.record = 0
        self.needed = HEADER_BYTES
        self.lengths = pa.array([], pa.uint64())

    def seek(self, *, offset: int, record: int) -> None:
        """Go on at another frame."""
        self.offset = offset
        self.record = record
        self.needed = HEADER_BYTES

    def hop(self, data: pa.Buffer, start: int) -> None:
        """Hop over the whole frames of ``data[start:]``."""
        consumed, self.lengths = self._codec.frames(
            data,
            start,
            offset=self.offset,
            record=self.record,
            max_record_bytes=self._max_record_bytes,
        )
        self._pass(data, start, consumed, len(self.lengths))

    def _pass(self, data: pa.Buffer, start: int, consumed: int, count: int) -> None:
        """Go behind `count` frames of ``data[start:]``."""
        self.offset += consumed
        self.record += count
        self.needed = HEADER_BYTES
        if data.size - start - consumed >= HEADER_BYTES:
            self.needed = _frame_bytes(data, start + consumed)


class PayloadCursor(FrameCounter):
    """A cursor that takes payloads as they are.

    Attributes
    ----------
    payloads : list of bytes
        Those that the last call took.
    """

    def __init__(self, codec: Codec, limits: Limits) -> None:
        super().__init__(codec, limits)
        self.payloads: list[bytes] = []

    def take(self, data: pa.Buffer, start: int) -> None:
        """Take some of the whole frames of ``data[start:]``."""
        self.payloads = []
        data = data.slice(0, min(data.size, start + max(_TAKEN_BYTES, self.needed)))
        consumed, self.payloads = self._codec.payloads(
            data,
            start,
            offset=self.offset,
            record=self.record,
            max_record_bytes=self._max_record_bytes,
        )
        self._pass(data, start, consumed, len(self.payloads))
        if consumed:
            # The frame behind them may be the bad one that ended the list: its length is no measure
            # before another call has looked at it.
            self.needed = HEADER_BYTES


def walk(
    source: Source,
    cursor: Cursor,
    advance: Callable[[pa.Buffer, int], Any],
    *,
    stop: int | None = None,
) -> Iterator[None]:
    """Advance a cursor over all frames that start before `stop`, one step each time.

    Parameters
    ----------
    source : Source
        The file.
    cursor : Cursor
        Where to start.
    advance : callable
        Takes frames from a buffer and a position in it, and moves the cursor.
    stop : int, optional
        Offset; the last frame may go over it. Without it, the end of the file.

    Raises
    ------
    TruncatedRecordError
        The file ends inside a record.
    DatasetChangedError
        It is shorter than it was when it was opened.
    CorruptDataError, LimitExceededError, SchemaMismatchError
        What `advance` and the source raise.
    """
    while stop is None or cursor.offset < stop:
        offset, needed = cursor.offset, cursor.needed
        buffer, start = source.window(offset, needed)
        there = buffer.size - start
        if there < needed:
            check_end(offset + there, source.size, offset=offset, record=cursor.record)
        if there <= 0:
            return
        if there < needed:
            what = _truncation(there, needed)
            if offset == 0 and needed == HEADER_BYTES:
                what += foreign_format_hint(buffer.slice(start, there).to_pybytes())
            raise TruncatedRecordError(what, offset=offset, record=cursor.record)
        if stop is not None and there > stop - offset:
            # Up to the stop, and over it by nothing but the last frame.
            buffer = buffer.slice(0, start + max(stop - offset, needed))
        advance(buffer, start)
        yield


def _truncation(there: int, needed: int) -> str:
    if needed == HEADER_BYTES:
        return (
            f"the file ends with {there} bytes that are no record, whose header alone has "
            f"{HEADER_BYTES}; the file is incomplete, or something was appended to it"
        )
    return (
        f"the file ends inside a record: {there} of its {needed} bytes are there; the file is "
        "incomplete: write or copy it again"
    )


def walk_skipping(
    source: Source,
    cursor: Cursor,
    advance: Callable[[pa.Buffer, int], Any],
    codec: Codec,
    damage: Damage,
    *,
    stop: int | None = None,
) -> Iterator[Damage | None]:
    """Advance like `walk`, note damage, give it out as a step of its own, and go on behind it."""
    while True:
        try:
            yield from walk(source, cursor, advance, stop=stop)
        except CorruptDataError as error:  # noqa: PERF203 - once for each damaged place
            begin = cursor.offset
            try:
                end = _behind(damage.passed(source, begin), codec, begin)
            except CompressionError:
                end = None
            damage.add(begin, end, error.what)
            if end is not None:
                cursor.seek(offset=end, record=cursor.record + 1)
            yield damage
            if end is None:
                return
        else:
            return


def find_start(source: Source, codec: Codec, offset: int, stop: int | None = None) -> int | None:
    """Return where the first whole frame at or behind `offset`, and before `stop`, starts, or None.

    A frame in a payload counts as well: whoever asks has to check what comes out.
    """
    size = sys.maxsize if source.is_mapped else _FIRST_LOOK_BYTES
    while stop is None or offset < stop:
        try:
            buffer, start = source.window(offset, size)
        except CompressionError:
            # What the stream gave before it broke; where that is nothing, it breaks again.
            buffer, start = source.window(offset, 0)
        found = codec.find_frame(buffer, start, None if stop is None else start + stop - offset)
        there = buffer.size - start
        may_grow = size <= there and size < _RESYNC_BYTES
        if found is not None and not (may_grow and _may_go_over(codec, buffer, start, found)):
            return offset + found - start
        if there < size:
            return None
        if may_grow:
            size *= 8
        else:
            offset += there - _RESYNC_BYTES // 2
    return None


def _may_go_over(codec: Codec, buffer: pa.Buffer, start: int, stop: int) -> bool:
    """Return whether a frame may start before `stop` that ends behind the buffer.

    If it does, what stands in its payload is no frame, however whole.
    """
    for first in range(start, stop, _TAKEN_BYTES):
        count = min(_TAKEN_BYTES, stop - first)
        places: npt.NDArray[np.uint64] = np.arange(first, first + count, dtype=np.uint64)
        # One at each place, whatever it is.
        lengths: npt.NDArray[np.uint64] = np.ndarray(count, "<u8", buffer, first, (1,))
        goes_over = lengths + places > buffer.size - OVERHEAD_BYTES
        headers = places[goes_over & (lengths <= MAX_PAYLOAD_BYTES)].tolist()
        if len(headers) > _MOST_HEADERS or any(_is_header(codec, buffer, at) for at in headers):
            return True
    return False


def _behind(source: Source, codec: Codec, offset: int) -> int | None:
    """Return where reading goes on behind a bad frame; None for the end of a stream."""
    buffer, start = source.window(offset, HEADER_BYTES)
    if _is_header(codec, buffer, start):
        size = _frame_bytes(buffer, start)
        buffer, start = source.window(offset, size + HEADER_BYTES)
        there = buffer.size - start
        if there == size or _is_header(codec, buffer, start + size):
            return offset + size
    found = find_start(source, codec, offset + 1)
    return found if found is not None else source.size


def _is_header(codec: Codec, buffer: pa.Buffer, position: int) -> bool:
    if buffer.size - position < HEADER_BYTES:
        return False
    try:
        codec.frames(buffer.slice(position, HEADER_BYTES))
    except (CorruptDataError, LimitExceededError):
        return False
    return True


def _frame_bytes(buffer: pa.Buffer, position: int) -> int:
    """Return the length of a frame whose header stands in a buffer."""
    length = memoryview(buffer)[position : position + 8]
    return int.from_bytes(length, "little") + OVERHEAD_BYTES
