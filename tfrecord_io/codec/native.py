"""The fast codec: a thin door to the Rust kernel in `tfrecord_io._native`.

The kernel takes buffers and gives Arrow, many records a call, with the GIL released. What is here
only turns pyarrow buffers into arrays that the kernel can share, and the kernel's plain answers
into this package's types.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Hashable, Set
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from tfrecord_io.codec.hints import HEAD_BYTES, foreign_format_hint
from tfrecord_io.errors import ChecksumError
from tfrecord_io.infer import FeatureObservation, Observation, Sighting
from tfrecord_io.options import MAX_PAYLOAD_BYTES, DecodeOptions

#: Options of the kernel's allocator, which are read once, when it is loaded, and by nobody else.
#: Freed memory is offered to the system, which takes it when it runs short, instead of given back
#: at once; and only after 100 ms, as the next batch mostly wants it before. To have it cleared, or
#: to reach it, anew for every batch would take as long as a quarter of the decoding.
_ALLOCATOR_OPTIONS = {"MIMALLOC_PURGE_DECOMMITS": "0", "MIMALLOC_PURGE_DELAY": "100"}


def _load_kernel() -> ModuleType:
    unset = _ALLOCATOR_OPTIONS.keys() - os.environ.keys()
    os.environ.update((name, _ALLOCATOR_OPTIONS[name]) for name in unset)
    try:
        return importlib.import_module("tfrecord_io._native")
    finally:
        for name in unset:
            del os.environ[name]


if TYPE_CHECKING:
    from tfrecord_io import _native
else:
    _native = _load_kernel()

if _native.IS_DEBUG_BUILD:
    warnings.warn(
        "tfrecord_io._native is a debug build; do not measure it", RuntimeWarning, stacklevel=2
    )


def _shared(data: pa.Buffer) -> pa.UInt8Array:
    """Return `data` as an array, which is what crosses into the kernel without a copy."""
    return pa.Array.from_buffers(pa.uint8(), data.size, [None, data])


def _hinted(error: ChecksumError, data: pa.Buffer, start: int) -> ChecksumError:
    """Return an error that says what a file looks like whose very first bytes are no frame."""
    if error.offset != 0:
        return error
    hint = foreign_format_hint(data[start : start + HEAD_BYTES].to_pybytes())
    return ChecksumError(error.what + hint, offset=0, record=error.record)


class _Cursor:
    """What decoder and observer share: where they stand in the file."""

    _kernel: _native.Decoder | _native.Observer

    @property
    def offset(self) -> int:
        """See `tfrecord_io.codec.base.Cursor`."""
        return self._kernel.offset

    @property
    def record(self) -> int:
        """See `tfrecord_io.codec.base.Cursor`."""
        return self._kernel.record

    @property
    def needed(self) -> int:
        """See `tfrecord_io.codec.base.Cursor`."""
        return self._kernel.needed

    def seek(self, *, offset: int, record: int) -> None:
        """See `tfrecord_io.codec.base.Cursor.seek`."""
        self._kernel.seek(offset, record)


class NativeDecoder(_Cursor):
    """Frames to record batches; see `tfrecord_io.codec.base.BatchDecoder`."""

    def __init__(self, kernel: _native.Decoder, schema: pa.Schema) -> None:
        self._kernel: _native.Decoder = kernel
        self._schema = schema

    def fresh(self) -> NativeDecoder:
        """See `tfrecord_io.codec.base.BatchDecoder.fresh`."""
        return NativeDecoder(self._kernel.fresh(), self._schema)

    @property
    def rows(self) -> int:
        """See `tfrecord_io.codec.base.BatchDecoder`."""
        return self._kernel.rows

    @property
    def full(self) -> bool:
        """See `tfrecord_io.codec.base.BatchDecoder`."""
        return self._kernel.full

    def decode(self, data: pa.Buffer, start: int = 0) -> int:
        """See `tfrecord_io.codec.base.BatchDecoder.decode`."""
        try:
            return self._kernel.decode(_shared(data), start)
        except ChecksumError as error:
            raise _hinted(error, data, start) from None

    def flush(self) -> pa.RecordBatch:
        """See `tfrecord_io.codec.base.BatchDecoder.flush`."""
        return self._kernel.flush(self._schema)

    def row_place(self, row: int) -> tuple[int, int]:
        """See `tfrecord_io.codec.base.BatchDecoder.row_place`."""
        return self._kernel.row_place(row)


class NativeObserver(_Cursor):
    """Frames to what a schema is inferred from; see `tfrecord_io.codec.base.Observer`."""

    def __init__(self, options: DecodeOptions) -> None:
        limits = options.limits
        self._kernel: _native.Observer = _native.Observer(
            options.record_type, limits.max_record_bytes, limits.max_features
        )

    def observe(self, data: pa.Buffer, start: int = 0) -> int:
        """See `tfrecord_io.codec.base.Observer.observe`."""
        try:
            return self._kernel.observe(_shared(data), start)
        except ChecksumError as error:
            raise _hinted(error, data, start) from None

    def result(self, known: Set[Hashable] = frozenset()) -> Observation:
        """See `tfrecord_io.codec.base.Observer.result`."""
        records, traits = self._kernel.records, frozenset(self._kernel.traits())
        if traits <= known:
            return Observation(records=records, traits=traits)
        features = (
            FeatureObservation(
                name=seen["name"],
                is_feature_list=seen["is_feature_list"],
                first=_sighting(seen["first"]),
                is_single=seen["is_single"],
                is_utf8=seen["is_utf8"],
                with_values={kind: _sighting(place) for kind, place in seen["with_values"]},
                empty={kind: _sighting(place) for kind, place in seen["empty"]},
            )
            for seen in self._kernel.features()
        )
        return Observation(records=records, features=tuple(features), traits=traits)


def _sighting(place: tuple[int, int]) -> Sighting:
    offset, record = place
    return Sighting(offset=offset, record=record)


class NativeEncoder:
    """Record batches to framed records; see `tfrecord_io.codec.base.BatchEncoder`."""

    def __init__(self, record_type: str) -> None:
        self._record_type = record_type

    def encode(self, batch: pa.RecordBatch, position: int = 0) -> tuple[pa.Buffer, pa.UInt64Array]:
        """See `tfrecord_io.codec.base.BatchEncoder.encode`."""
        data, offsets = _native.encode_batch(batch, batch.schema.names, self._record_type, position)
        return data.buffers()[1], offsets


class NativeCodec:
    """The codec in Rust; see `tfrecord_io.codec.base.Codec`."""

    name = "native"

    def decoder(self, schema: pa.Schema, options: DecodeOptions) -> NativeDecoder:
        """See `tfrecord_io.codec.base.Codec.decoder`."""
        kernel = _native.Decoder(
            schema,
            schema.names,
            options.record_type,
            options.check_all,
            options.batch_rows,
            options.batch_bytes,
            options.limits.max_record_bytes,
            options.limits.max_features,
        )
        return NativeDecoder(kernel, schema)

    def observer(self, options: DecodeOptions) -> NativeObserver:
        """See `tfrecord_io.codec.base.Codec.observer`."""
        return NativeObserver(options)

    def encoder(self, schema: pa.Schema, record_type: str) -> NativeEncoder:
        """See `tfrecord_io.codec.base.Codec.encoder`; a batch brings its schema along."""
        return NativeEncoder(record_type)

    def frames(
        self,
        data: pa.Buffer,
        start: int = 0,
        *,
        offset: int = 0,
        record: int = 0,
        check_payload: bool = False,
        max_record_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> tuple[int, pa.UInt64Array]:
        """See `tfrecord_io.codec.base.Codec.frames`."""
        try:
            return _native.frames(
                _shared(data), start, offset, record, check_payload, max_record_bytes
            )
        except ChecksumError as error:
            raise _hinted(error, data, start) from None

    def payloads(
        self,
        data: pa.Buffer,
        start: int = 0,
        *,
        offset: int = 0,
        record: int = 0,
        max_record_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> tuple[int, list[bytes]]:
        """See `tfrecord_io.codec.base.Codec.payloads`."""
        try:
            return _native.payloads(_shared(data), start, offset, record, max_record_bytes)
        except ChecksumError as error:
            raise _hinted(error, data, start) from None

    def frame_payloads(self, payloads: list[bytes]) -> pa.Buffer:
        """See `tfrecord_io.codec.base.Codec.frame_payloads`."""
        return _native.frame_payloads(payloads).buffers()[1]

    def find_frame(self, data: pa.Buffer, start: int = 0, stop: int | None = None) -> int | None:
        """See `tfrecord_io.codec.base.Codec.find_frame`."""
        return _native.find_frame(_shared(data), start, stop)
