"""The readable codec, on protobuf and crc32c: the definition of what is right.

Frames are cut and checked by `_FrameCursor`, payloads are parsed by protobuf into the twins of
`tfrecord_io.codec.messages`, and the twins' values become Python values and then Arrow arrays. A
record is decoded as a whole before any of its values is kept, so a bad record leaves no trace.
Nothing here is fast and nothing here may become clever: the native codec is compared with it.

Notes
-----
Framing: tensorflow/core/lib/io/record_writer.h. CRC-32C and its mask:
tensorflow/core/lib/hash/crc32c.h.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import crc32c
import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import (  # type: ignore[import-untyped]
    DecodeError as ProtobufDecodeError,
)
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from tfrecord_io.codec import messages
from tfrecord_io.codec.hints import HEAD_BYTES, foreign_format_hint
from tfrecord_io.errors import (
    ChecksumError,
    DecodeError,
    EncodeError,
    LimitExceededError,
    SchemaMismatchError,
)
from tfrecord_io.infer import FeatureObservation, Kind, Observation, Sighting
from tfrecord_io.options import BYTE_ARRAY_COLUMN, MAX_PAYLOAD_BYTES, DecodeOptions
from tfrecord_io.schema import is_any_list, leaf_type, list_depth

_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_CRC_MASK_DELTA = 0xA282EAD8
#: CRC-32C's polynomial, and 1 among polynomials.
_POLYNOMIAL, _ONE = 0x82F63B78, 1 << 31

#: In a search, payloads whose CRC is taken as it is: the first bytes of them, and all short ones.
_SEEN_BYTES = 1024 * 1024
_SHORT_BYTES = 2048
#: How far the CRCs that are kept are from each other.
_BLOCK_BYTES = 1024

#: Every whole number up to this magnitude has a float64 of its own.
_MAX_EXACT_INT = 2**53

#: protobuf's name of a kind, and ours.
_KINDS: dict[str, Kind] = {"int64_list": "int64", "float_list": "float", "bytes_list": "bytes"}
_LIST_NAMES = {"int64_list": "Int64List", "float_list": "FloatList", "bytes_list": "BytesList"}

_Message: TypeAlias = Any
_Value: TypeAlias = Any


def masked_crc(data: bytes | memoryview) -> int:
    """Return the masked CRC-32C that stands in frames."""
    return _mask(crc32c.crc32c(data))


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _CRC_MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """Return the frame of a payload."""
    length = struct.pack("<Q", len(payload))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc(length)),
            payload,
            struct.pack("<I", masked_crc(payload)),
        )
    )


class ReferenceCodec:
    """The codec on protobuf and crc32c; see `tfrecord_io.codec.base.Codec`."""

    name = "reference"

    def decoder(self, schema: pa.Schema, options: DecodeOptions) -> ReferenceDecoder:
        """See `tfrecord_io.codec.base.Codec.decoder`."""
        return ReferenceDecoder(schema, options)

    def observer(self, options: DecodeOptions) -> ReferenceObserver:
        """See `tfrecord_io.codec.base.Codec.observer`."""
        return ReferenceObserver(options)

    def encoder(self, schema: pa.Schema, record_type: str) -> ReferenceEncoder:
        """See `tfrecord_io.codec.base.Codec.encoder`."""
        return ReferenceEncoder(schema, record_type)

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
        view = memoryview(data)
        cursor = _FrameCursor(offset, record, max_record_bytes)
        lengths = []
        position = start
        while (length := cursor.whole_frame(view, position)) is not None:
            if check_payload:
                cursor.checked_payload(view, position, length)
            lengths.append(length)
            position += cursor.advance(length)
        return position - start, pa.array(lengths, pa.uint64())

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
        view = memoryview(data)
        cursor = _FrameCursor(offset, record, max_record_bytes)
        found: list[bytes] = []
        position = start
        try:
            while (length := cursor.whole_frame(view, position)) is not None:
                found.append(cursor.checked_payload(view, position, length))
                position += cursor.advance(length)
        except (ChecksumError, LimitExceededError):
            if not found:
                raise
        return position - start, found

    def frame_payloads(self, payloads: list[bytes]) -> pa.Buffer:
        """See `tfrecord_io.codec.base.Codec.frame_payloads`."""
        return pa.py_buffer(b"".join(map(frame, payloads)))

    def find_frame(self, data: pa.Buffer, start: int = 0, stop: int | None = None) -> int | None:
        """See `tfrecord_io.codec.base.Codec.find_frame`."""
        view = memoryview(data)[start:]
        crcs = _PayloadCrcs(view)
        last = len(view) - _HEADER_BYTES - _FOOTER_BYTES
        behind = last + 1 if stop is None else min(last + 1, stop - start)
        return next((start + at for at in range(behind) if _is_frame(view, at, crcs)), None)


def _is_frame(view: memoryview, position: int, crcs: _PayloadCrcs) -> bool:
    (length,) = struct.unpack_from("<Q", view, position)
    # The cheap question first: at most positions of any data this "length" is far too long.
    if length > len(view) - position - _HEADER_BYTES - _FOOTER_BYTES:
        return False
    body = position + _HEADER_BYTES
    if not _fits(view[position : position + 8], view[position + 8 : body]):
        return False
    end = body + length
    return crcs.masked(body, end) == int.from_bytes(view[end : end + _FOOTER_BYTES], "little")


class _PayloadCrcs:
    """Masked CRCs of what may be payloads.

    As a rule the first is one. In data made of headers each has a long payload behind it; once much
    has been gone through, the CRC of a part follows from those of all that is before its beginning
    and of all that is before its end, as in zlib's crc32_combine. Some of these are kept.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._seen_bytes = 0
        self._of_blocks = [0]

    def masked(self, start: int, end: int) -> int:
        if end - start <= _SHORT_BYTES or self._seen_bytes <= _SEEN_BYTES:
            self._seen_bytes += end - start
            return masked_crc(self._view[start:end])
        before = _product(self._up_to(start), _power_of_x(8 * (end - start)))
        return _mask(self._up_to(end) ^ before)

    def _up_to(self, end: int) -> int:
        block, rest = divmod(end, _BLOCK_BYTES)
        while len(self._of_blocks) <= block:
            at = (len(self._of_blocks) - 1) * _BLOCK_BYTES
            more = self._view[at : at + _BLOCK_BYTES]
            self._of_blocks.append(crc32c.crc32c(more, self._of_blocks[-1]))
        crc: int = crc32c.crc32c(self._view[end - rest : end], self._of_blocks[block])
        return crc


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32C; the top bit of 32 stands for 1."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@functools.lru_cache
def _power_of_x(exponent: int) -> int:
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _fits(data: memoryview, crc: memoryview) -> bool:
    return masked_crc(data) == int.from_bytes(crc, "little")


class _FrameCursor:
    """Where a reader of frames stands, and the checks of a frame in their order."""

    def __init__(self, offset: int, record: int, max_record_bytes: int) -> None:
        self.offset = offset
        self.record = record
        self.needed = _HEADER_BYTES
        self._max_record_bytes = max_record_bytes

    def seek(self, *, offset: int, record: int) -> None:
        self.offset = offset
        self.record = record
        self.needed = _HEADER_BYTES

    @property
    def place(self) -> dict[str, Any]:
        return {"offset": self.offset, "record": self.record}

    def whole_frame(self, view: memoryview, position: int) -> int | None:
        """Return the payload length of the frame at `position`, None if it is not whole yet."""
        self.needed = _HEADER_BYTES
        there = len(view) - position
        if there < _HEADER_BYTES:
            return None
        header = view[position : position + _HEADER_BYTES]
        if not _fits(header[:8], header[8:]):
            head = bytes(view[position : position + HEAD_BYTES])
            hint = foreign_format_hint(head) if self.offset == 0 else ""
            raise ChecksumError(
                "the length of the record does not fit its CRC-32C: the file is damaged here, or "
                f"it is not an uncompressed TFRecord file{hint}",
                **self.place,
            )
        (length,) = struct.unpack_from("<Q", header)
        if length > self._max_record_bytes:
            raise LimitExceededError(
                f"the record has {length} bytes, max_record_bytes is {self._max_record_bytes}; "
                "raise max_record_bytes if the file is to be trusted",
                **self.place,
            )
        whole: int = _HEADER_BYTES + length + _FOOTER_BYTES
        if there < whole:
            self.needed = whole
            return None
        return int(length)

    def checked_payload(self, view: memoryview, position: int, length: int) -> bytes:
        """Return the payload of the whole frame at `position`."""
        body = position + _HEADER_BYTES
        payload = view[body : body + length]
        if not _fits(payload, view[body + length : body + length + _FOOTER_BYTES]):
            raise ChecksumError(
                "the payload of the record does not fit its CRC-32C: the file is damaged here",
                **self.place,
            )
        return bytes(payload)

    def advance(self, length: int) -> int:
        """Go behind the frame and return its size."""
        size = _HEADER_BYTES + length + _FOOTER_BYTES
        self.offset += size
        self.record += 1
        self.needed = _HEADER_BYTES
        return size


@dataclass(frozen=True, slots=True)
class _Record:
    """A parsed payload: the last entry of each name, names in the order of first sight."""

    context: dict[str, _Message]
    feature_lists: dict[str, _Message]


def _parse(payload: bytes, options: DecodeOptions, place: dict[str, Any]) -> _Record:
    """Hold a payload to protobuf's rules and to the limits."""
    is_example = options.record_type == "Example"
    kind = messages.WireExample if is_example else messages.WireSequenceExample
    try:
        message = kind.FromString(payload)
    except ProtobufDecodeError as error:
        raise DecodeError(
            f"the payload is not a valid {options.record_type} message: it is of another, which "
            'record_type="ByteArray" reads as bytes, or was damaged before it was written',
            **place,
        ) from error
    features = message.features.feature if is_example else message.context.feature
    feature_lists = [] if is_example else message.feature_lists.feature_list
    count = len(features) + len(feature_lists)
    if count > options.limits.max_features:
        raise LimitExceededError(
            f"the record has {count} features, max_features is {options.limits.max_features}; "
            "raise max_features if the file is to be trusted",
            **place,
        )
    if is_example and _has_feature_lists(payload):
        raise SchemaMismatchError(
            "the record has feature lists, which an Example has not: read it with "
            'record_type="SequenceExample", or, if it is another message, such as an '
            'ExampleListWithContext, with record_type="ByteArray", as bytes',
            **place,
        )
    return _Record(_last_of_each(features), _last_of_each(feature_lists))


def _has_feature_lists(payload: bytes) -> bool:
    """Return whether an Example is a SequenceExample with at least one feature list as well."""
    try:
        message = messages.WireSequenceExample.FromString(payload)
    except ProtobufDecodeError:
        return False
    return len(message.feature_lists.feature_list) > 0


def _last_of_each(entries: Iterable[_Message]) -> dict[str, _Message]:
    # protobuf (upb) takes a map entry that has unknown fields for an unknown field itself.
    return {entry.key: entry.value for entry in entries if not len(UnknownFieldSet(entry))}


@dataclass(frozen=True, slots=True)
class _Column:
    """One column to decode: its name, how many lists stand around its leaf, and the leaf."""

    name: str
    depth: int
    leaf: pa.DataType

    def value(self, record: _Record) -> _Value:
        """Return the column's value in a record, or raise _MisfitError."""
        is_feature_list = self.depth == 2
        here, there = record.context, record.feature_lists
        if is_feature_list:
            here, there = there, here
        if self.name not in here:
            if self.name in there:
                raise _MisfitError(
                    "is a feature of the context, not a feature list: read it as a list or a bare "
                    "value"
                    if is_feature_list
                    else "is a feature list, not a feature of the context: read it as a list of "
                    "lists"
                )
            return None
        found = here[self.name]
        if is_feature_list:
            return [self._values(step) for step in found.feature]
        values = self._values(found)
        if self.depth or values is None:
            return values
        if len(values) != 1:
            raise _MisfitError(
                f"has {len(values)} values in this record, and the schema asks for one: read it "
                "as a list"
            )
        return values[0]

    def _values(self, feature: _Message) -> list[_Value] | None:
        kind = feature.WhichOneof("kind")
        if kind is None:
            return None
        values = list(getattr(feature, kind).value)
        if values and kind not in self._fitting_kinds():
            # Of the column's own type, such as a date, a codec does not know.
            fitting = " or ".join(_LIST_NAMES[one] for one in self._fitting_kinds()) or "no kind"
            raise _MisfitError(
                f"is a {_LIST_NAMES[kind]} here, and the schema's type is that of {fitting}: give "
                "it a type that fits, or leave it out"
            )
        if pat.is_float64(self.leaf):
            for value in values:
                if abs(value) > _MAX_EXACT_INT and kind == "int64_list":
                    raise _MisfitError(
                        f"holds the integer {value}, which float64 cannot hold exactly: leave it "
                        "out, or read it as int64 if no record has floats in it"
                    )
            values = [float(value) for value in values]
        return values

    def _fitting_kinds(self) -> tuple[str, ...]:
        if pat.is_int64(self.leaf):
            return ("int64_list",)
        if pat.is_float32(self.leaf):
            return ("float_list",)
        if pat.is_float64(self.leaf):
            return ("float_list", "int64_list")
        return () if pat.is_null(self.leaf) else ("bytes_list",)


class _MisfitError(ValueError):
    """What does not fit about a feature; whoever knows the record and the name adds them."""


class ReferenceDecoder(_FrameCursor):
    """Frames to record batches; see `tfrecord_io.codec.base.BatchDecoder`."""

    def __init__(self, schema: pa.Schema, options: DecodeOptions) -> None:
        super().__init__(0, 0, options.limits.max_record_bytes)
        self._schema = schema
        self._options = options
        self._columns = [_Column(f.name, list_depth(f.type), leaf_type(f.type)) for f in schema]
        # Arrow's binary and string arrays end at 2 GiB, whatever the options allow.
        self._batch_bytes = min(options.batch_bytes, MAX_PAYLOAD_BYTES)
        self._flushed_places: list[tuple[int, int]] = []
        self._refused: SchemaMismatchError | None = None
        self._start_batch()

    def fresh(self) -> ReferenceDecoder:
        """See `tfrecord_io.codec.base.BatchDecoder.fresh`."""
        return ReferenceDecoder(self._schema, self._options)

    def _start_batch(self) -> None:
        self._rows: list[list[_Value]] = []
        self._places: list[tuple[int, int]] = []
        self._payload_bytes = 0
        self.full = False

    @property
    def rows(self) -> int:
        """See `tfrecord_io.codec.base.BatchDecoder`."""
        return len(self._rows)

    def decode(self, data: pa.Buffer, start: int = 0) -> int:
        """See `tfrecord_io.codec.base.BatchDecoder.decode`."""
        view = memoryview(data)
        position = start
        self.needed = _HEADER_BYTES
        while not self.full and (length := self.whole_frame(view, position)) is not None:
            if self._rows and self._payload_bytes + length > self._batch_bytes:
                self.full = True
                break
            self._rows.append(self._row(self.checked_payload(view, position, length)))
            self._places.append((self.offset, self.record))
            self._payload_bytes += length
            self.full = len(self._rows) >= self._options.batch_rows
            position += self.advance(length)
        return position - start

    def _row(self, payload: bytes) -> list[_Value]:
        if self._options.record_type == "ByteArray":
            return [payload]
        record = _parse(payload, self._options, self.place)
        return [self._value(column, record) for column in self._columns]

    def _value(self, column: _Column, record: _Record) -> _Value:
        try:
            return column.value(record)
        except _MisfitError as misfit:
            raise SchemaMismatchError(
                f"feature {column.name!r} {misfit}", feature=column.name, **self.place
            ) from None

    def flush(self) -> pa.RecordBatch:
        """See `tfrecord_io.codec.base.BatchDecoder.flush`."""
        if self._refused is not None:
            refused, self._refused, self.full = self._refused, None, False
            raise refused
        rows, self._flushed_places = self._rows, self._places
        self._start_batch()
        if not self._columns:
            return _batch_without_columns(len(rows))
        for number, (row, place) in enumerate(zip(rows, self._flushed_places, strict=True)):
            error = self._as_text(row, *place)
            if error is not None:
                if number == 0:
                    raise error
                self._refused, self.full = error, True
                rows = rows[:number]
                break
        return pa.RecordBatch.from_arrays(
            [
                pa.array([row[index] for row in rows], field.type)
                for index, field in enumerate(self._schema)
            ],
            schema=self._schema,
        )

    def _as_text(self, row: list[_Value], offset: int, record: int) -> SchemaMismatchError | None:
        """Make bytes that are to be text that; return an error if they are none."""
        for index, column in enumerate(self._columns):
            if pat.is_string(column.leaf) or pat.is_string_view(column.leaf):
                try:
                    row[index] = _text(row[index])
                except UnicodeDecodeError:
                    return SchemaMismatchError(
                        f"feature {column.name!r} holds bytes that are not valid UTF-8: read it as "
                        "binary",
                        offset=offset,
                        record=record,
                        feature=column.name,
                    )
        return None

    def row_place(self, row: int) -> tuple[int, int]:
        """See `tfrecord_io.codec.base.BatchDecoder.row_place`."""
        return self._flushed_places[row]


def _batch_without_columns(rows: int) -> pa.RecordBatch:
    # Only by way of a struct array can a batch without columns have rows.
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _text(value: _Value) -> _Value:
    if isinstance(value, list):
        return [_text(item) for item in value]
    return None if value is None else value.decode("utf-8")


@dataclass(slots=True)
class _Seen:
    """What was seen of one name in one place so far; becomes a `FeatureObservation`."""

    first: Sighting
    is_single: bool = True
    is_utf8: bool = True
    with_values: dict[Kind, Sighting] = field(default_factory=dict)
    empty: dict[Kind, Sighting] = field(default_factory=dict)

    def add(self, feature: _Message, sighting: Sighting) -> None:
        kind = feature.WhichOneof("kind")
        if kind is None:
            return
        values = getattr(feature, kind).value
        self.is_single = self.is_single and len(values) == 1
        kinds = self.with_values if values else self.empty
        kinds.setdefault(_KINDS[kind], sighting)
        if kind == "bytes_list":
            self.is_utf8 = self.is_utf8 and all(_is_utf8(value) for value in values)


class ReferenceObserver(_FrameCursor):
    """Frames to what a schema is inferred from; see `tfrecord_io.codec.base.Observer`."""

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(0, 0, options.limits.max_record_bytes)
        self._options = options
        self._records = 0
        self._seen: dict[tuple[bool, str], _Seen] = {}

    def observe(self, data: pa.Buffer, start: int = 0) -> int:
        """See `tfrecord_io.codec.base.Observer.observe`."""
        view = memoryview(data)
        position = start
        while (length := self.whole_frame(view, position)) is not None:
            self._observe(self.checked_payload(view, position, length))
            self._records += 1
            position += self.advance(length)
        return position - start

    def _observe(self, payload: bytes) -> None:
        sighting = Sighting(offset=self.offset, record=self.record)
        if self._options.record_type == "ByteArray":
            # Opaque bytes are binary whatever they hold.
            seen = self._seen.setdefault((False, BYTE_ARRAY_COLUMN), _Seen(sighting, is_utf8=False))
            seen.with_values.setdefault("bytes", sighting)
            return
        record = _parse(payload, self._options, self.place)
        keys = [(False, name) for name in record.context]
        keys += [(True, name) for name in record.feature_lists]
        self._check_name_count(keys)
        for key in keys:
            self._seen.setdefault(key, _Seen(sighting))
        for name, feature in record.context.items():
            self._seen[False, name].add(feature, sighting)
        for name, feature_list in record.feature_lists.items():
            for step in feature_list.feature:
                self._seen[True, name].add(step, sighting)

    def _check_name_count(self, keys: list[tuple[bool, str]]) -> None:
        count = len(self._seen) + sum(key not in self._seen for key in keys)
        if count > self._options.limits.max_features:
            raise LimitExceededError(
                f"the records up to here have {count} distinct feature names, max_features is "
                f"{self._options.limits.max_features}; raise max_features, or give a schema",
                **self.place,
            )

    def result(self, known: Set[Hashable] = frozenset()) -> Observation:
        """See `tfrecord_io.codec.base.Observer.result`."""
        features = tuple(
            FeatureObservation(
                name=name,
                is_feature_list=is_feature_list,
                first=seen.first,
                is_single=is_feature_list or seen.is_single,
                is_utf8=seen.is_utf8,
                with_values=dict(seen.with_values),
                empty=dict(seen.empty),
            )
            for (is_feature_list, name), seen in self._seen.items()
        )
        traits = frozenset(feature.traits for feature in features)
        if traits <= known:
            features = ()
        return Observation(records=self._records, features=features, traits=traits)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class ReferenceEncoder:
    """Record batches to framed records; see `tfrecord_io.codec.base.BatchEncoder`."""

    def __init__(self, schema: pa.Schema, record_type: str) -> None:
        self._schema = schema
        self._payload: Callable[[list[_Value]], bytes] = {
            "Example": self._example,
            "SequenceExample": self._sequence_example,
            "ByteArray": self._byte_array,
        }[record_type]

    def encode(self, batch: pa.RecordBatch, position: int = 0) -> tuple[pa.Buffer, pa.UInt64Array]:
        """See `tfrecord_io.codec.base.BatchEncoder.encode`."""
        del position
        frames = []
        offsets = [0]
        for row, values in enumerate(_rows(batch)):
            try:
                payload = self._payload(values)
            except EncodeError as error:
                raise EncodeError(error.what, feature=error.feature, row=row) from None
            except _TooLargeError as error:
                raise LimitExceededError(str(error), row=row) from None
            frames.append(frame(payload))
            offsets.append(offsets[-1] + len(frames[-1]))
        return pa.py_buffer(b"".join(frames)), pa.array(offsets, pa.uint64())

    def _byte_array(self, values: list[_Value]) -> bytes:
        if values[0] is None:
            raise EncodeError(
                "a ByteArray record is the bytes themselves and cannot be null: fill the nulls or "
                "leave the rows out",
                feature=self._schema.field(0).name,
            )
        return bytes(values[0])

    def _example(self, values: list[_Value]) -> bytes:
        message = messages.WireExample()
        message.features.SetInParent()
        for column, value in zip(self._schema, values, strict=True):
            if value is not None:
                _add_feature(message.features, column, value)
        return _serialized(message)

    def _sequence_example(self, values: list[_Value]) -> bytes:
        message = messages.WireSequenceExample()
        message.context.SetInParent()
        message.feature_lists.SetInParent()
        for column, value in zip(self._schema, values, strict=True):
            if value is None:
                continue
            if list_depth(column.type) == 2:
                _add_feature_list(message.feature_lists, column, value)
            else:
                _add_feature(message.context, column, value)
        return _serialized(message)


class _TooLargeError(ValueError):
    """A payload that no protobuf reader would take."""


def _rows(batch: pa.RecordBatch) -> Iterator[list[_Value]]:
    columns = [column.to_pylist() for column in batch.columns]
    for row in range(batch.num_rows):
        yield [column[row] for column in columns]


def _add_feature(features: _Message, column: pa.Field, value: _Value) -> None:
    entry = features.feature.add()
    entry.key = column.name
    entry.value.SetInParent()
    _set_values(entry.value, column, value if is_any_list(column.type) else [value])


def _add_feature_list(feature_lists: _Message, column: pa.Field, steps: list[_Value]) -> None:
    entry = feature_lists.feature_list.add()
    entry.key = column.name
    entry.value.SetInParent()
    for values in steps:
        feature = entry.value.feature.add()
        if values is not None:
            _set_values(feature, column, values)


def _set_values(feature: _Message, column: pa.Field, values: list[_Value]) -> None:
    leaf = leaf_type(column.type)
    if pat.is_null(leaf):
        raise EncodeError(
            f"column {column.name!r} has the type {column.type}, so the kind of this value is not "
            "known: cast the column to the type that it stands for",
            feature=column.name,
        )
    if pat.is_int64(leaf):
        kind = feature.int64_list
    elif pat.is_float32(leaf):
        kind = feature.float_list
    else:
        kind = feature.bytes_list
    # An empty list keeps its kind, which is what sets it apart from null.
    kind.SetInParent()
    kind.value.extend(values)


def _serialized(message: _Message) -> bytes:
    size = message.ByteSize()
    if size > MAX_PAYLOAD_BYTES:
        raise _TooLargeError(
            f"the row makes a payload of {size} bytes, and protobuf ends at {MAX_PAYLOAD_BYTES}: "
            "split the row"
        )
    return bytes(message.SerializeToString())
