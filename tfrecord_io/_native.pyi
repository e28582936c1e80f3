"""The Rust kernel: what `tfrecord_io.codec.native` and `tfrecord_io.statistics` call.

Data crosses by Arrow's PyCapsule interface: ``data`` is a ``pyarrow.Array`` of uint8 without nulls,
shared and not copied. A column's name ends there at its first NUL, so names cross beside it.
Offsets and lengths are bytes, `record` and `row` count from 0. Every method that works on data
releases the GIL. Errors are those of `tfrecord_io.codec.base`.
"""

from typing import Any, TypedDict, final

import pyarrow as pa

IS_DEBUG_BUILD: bool

class _Feature(TypedDict):
    name: str
    is_feature_list: bool
    first: tuple[int, int]
    is_single: bool
    is_utf8: bool
    with_values: list[tuple[Any, tuple[int, int]]]
    empty: list[tuple[Any, tuple[int, int]]]

@final
class Decoder:
    """Frames to batches; see `tfrecord_io.codec.base.BatchDecoder`."""

    def __new__(
        cls,
        schema: pa.Schema,
        names: list[str],
        record_type: str,
        check_all: bool,
        batch_rows: int,
        batch_bytes: int,
        max_record_bytes: int,
        max_features: int,
    ) -> Decoder: ...
    def fresh(self) -> Decoder: ...
    @property
    def offset(self) -> int: ...
    @property
    def record(self) -> int: ...
    @property
    def needed(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def seek(self, offset: int, record: int) -> None: ...
    def decode(self, data: pa.UInt8Array, start: int) -> int: ...
    def flush(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch; `schema` is the one that the decoder was made for."""
    def row_place(self, row: int) -> tuple[int, int]: ...

@final
class Observer:
    """Frames to what was seen in them; see `tfrecord_io.codec.base.Observer`."""

    def __new__(cls, record_type: str, max_record_bytes: int, max_features: int) -> Observer: ...
    @property
    def offset(self) -> int: ...
    @property
    def record(self) -> int: ...
    @property
    def needed(self) -> int: ...
    @property
    def records(self) -> int: ...
    def seek(self, offset: int, record: int) -> None: ...
    def observe(self, data: pa.UInt8Array, start: int) -> int: ...
    def traits(self) -> list[bytes]:
        """Return what was seen of each name, but for where, as bytes that are equal if that is."""

    def features(self) -> list[_Feature]:
        """Return what was seen of each name; places are (offset, record)."""

@final
class Summary:
    """What the columns of batches hold, in bounded memory; see `tfrecord_io.statistics`."""

    def __new__(cls, columns: int) -> Summary: ...
    def update(self, batch: pa.RecordBatch) -> None: ...
    def columns(self, most_frequent: int) -> list[dict[str, Any]]:
        """Return counts, extremes, means, estimates and sorted samples of each column."""

def encode_batch(
    batch: pa.RecordBatch, names: list[str], record_type: str, position: int
) -> tuple[pa.UInt8Array, pa.UInt64Array]:
    """Return framed records and where each begins; see `tfrecord_io.codec.base.BatchEncoder`."""

def frames(
    data: pa.UInt8Array,
    start: int,
    offset: int,
    record: int,
    check_payload: bool,
    max_record_bytes: int,
) -> tuple[int, pa.UInt64Array]:
    """See `tfrecord_io.codec.base.Codec.frames`."""

def payloads(
    data: pa.UInt8Array, start: int, offset: int, record: int, max_record_bytes: int
) -> tuple[int, list[bytes]]:
    """See `tfrecord_io.codec.base.Codec.payloads`."""

def frame_payloads(payloads: list[bytes]) -> pa.UInt8Array:
    """See `tfrecord_io.codec.base.Codec.frame_payloads`."""

def find_frame(data: pa.UInt8Array, start: int, stop: int | None) -> int | None:
    """See `tfrecord_io.codec.base.Codec.find_frame`."""
