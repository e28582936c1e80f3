"""What a codec is: frames in, Arrow record batches out, and the reverse.

Two implementations satisfy these protocols, `tfrecord_io.codec.native` (Rust) and
`tfrecord_io.codec.reference` (protobuf and crc32c). They give equal batches, equal bytes and equal
errors (class, offset, record, feature) on every input; tests/codec/ holds the contract.

A codec knows *wire types* only (`tfrecord_io.schema.wire_field`): a leaf of ``int64``, ``float32``,
``float64``, ``binary``, ``string``, ``binary_view``, ``string_view`` or ``null``, bare or as
``list`` of it or ``list`` of ``list`` of it. `tfrecord_io.cast` brings every other Arrow type to a
wire type and back, once for both codecs. A codec knows nothing of files: input is buffers, places
are offsets, and whoever reads the file adds its path to an error.

What decoding means, for each column of the schema and each record
------------------------------------------------------------------
- The whole payload is first held to protobuf's rules (upb's, as protobuf 7 has them): what protobuf
  rejects is a `DecodeError` without a feature. Then the columns are looked at in the order of the
  schema; the first that does not fit raises `SchemaMismatchError` with its name as the feature. The
  reference codec has the rules of the protobuf that is installed: 6 refuses fields of number 0 in
  unknown groups as well, and takes lengths of six bytes.
- A bare or ``list`` column is looked for in the context (or the Example's features), a ``list`` of
  ``list`` column in the feature lists; when the name stands only in the other place, that is a
  mismatch.
- Absent, or present without a kind: null. An absent FeatureList: null; one without steps: an empty
  list; a step without a kind: a null inner list.
- A bare column asked of a feature with no or several values: mismatch. (Of no values: whatever its
  kind.)
- The kind must be the leaf's: Int64List for int64; FloatList for float32; FloatList or Int64List
  for float64 (an int beyond 2**53 in magnitude: mismatch); BytesList for binary and string (string:
  invalid UTF-8 is a mismatch, raised by `BatchDecoder.flush`). An empty list of any kind fits every
  ``list`` column. A null leaf fits only features without a kind (and, in lists, without values).
- Of entries of one name the last counts. As in upb, an entry of a map that has unknown fields
  itself (a field other than key and value, or one of these with another wire type) is an unknown
  field: it counts towards ``limits.max_features`` and is otherwise not there. Unknown fields inside
  the value change nothing.
- Nullable flags are not looked at (`tfrecord_io.cast.from_wire` does); a batch has the very schema
  that was given.
- The bits of floats are kept in float32 columns.
- More features and feature lists in one record than ``limits.max_features`` (duplicates counted):
  `LimitExceededError`, after protobuf's rules and before the columns.
- An Example that is, by protobuf's rules, also a SequenceExample with at least one entry in its
  feature lists: `SchemaMismatchError` that says so, without a feature, after
  ``limits.max_features`` (which counts the Example's features only) and before the columns. To an
  Example field 2 is unknown: if the payload is no valid SequenceExample, or its feature lists have
  no entry, the field is skipped like any other.
- A feature that the schema does not name is skipped; malformed bytes inside it may pass, unless
  ``check_all`` says otherwise.
- ByteArray: the payload is the value of the schema's one column (binary, string or a view of them);
  a schema without columns gives rows without columns.

What a batch is
---------------
A batch is full with ``batch_rows`` rows, and when the next whole frame has a good header but its
payload would take the batch's payloads over ``batch_bytes`` (or over 2**31 - 1, where Arrow's
binary arrays end): that frame is left, its payload not looked at. A first record is taken whatever
its size. A full batch stays full until `BatchDecoder.flush`.

What observing means
--------------------
- The same checks as decoding, up to the columns. A record that raises leaves no trace in the
  result.
- Names in the context and names in the feature lists are counted apart. A record that would take
  their number over ``limits.max_features``: `LimitExceededError`.
- Of duplicate names in a record the place of the first and the value of the last count.
- ``is_single`` stays True in feature lists. A Feature with a kind and without values is not single.
- ByteArray: one feature, `options.BYTE_ARRAY_COLUMN`, single, bytes with values, not UTF-8; none
  without records.

What encoding means
-------------------
- A row is a record; its features come in the order of the columns. Null: no feature. An empty list:
  a Feature with its kind and no values. A null inner list: a Feature without a kind.
- Example's features, and both fields of a SequenceExample, are always written, and so are key and
  value of a feature.
- `tfrecord_io.cast.ToWire` has seen to it that lists hold no nulls other than inner lists. What
  stands under a null (of a fixed_size_list, say) is nothing and may be anything.

What framing means
------------------
- 12 bytes of header are needed before anything is judged. The length's CRC comes first
  (`ChecksumError`), then ``max_record_bytes`` (`LimitExceededError`), then the payload and its CRC
  (`ChecksumError`), then the payload.
- A frame that is not whole yet is left for the next call; nothing is allocated for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import Protocol

import pyarrow as pa

from tfrecord_io.infer import Observation
from tfrecord_io.options import MAX_PAYLOAD_BYTES, DecodeOptions

#: Bytes of a frame that stand before its payload, and all that are not its payload.
HEADER_BYTES, OVERHEAD_BYTES = 12, 16


class Cursor(Protocol):
    """Where a reader of frames stands."""

    @property
    def offset(self) -> int:
        """Offset in the (decompressed) file of the next frame."""

    @property
    def record(self) -> int:
        """Index in the file of the next record."""

    @property
    def needed(self) -> int:
        """How many bytes from `offset` on must be there to judge or decode the next frame.

        12 for the header, 16 + length once the header has been seen and found short of its payload.
        It is what the last call found: every call and `seek` begin with 12.
        """

    def seek(self, *, offset: int, record: int) -> None:
        """Go on at another frame; rows already buffered stay."""


class BatchDecoder(Cursor, Protocol):
    """Frames to record batches of the wire schema it was made for."""

    def fresh(self) -> BatchDecoder:
        """Return another decoder into the same schema, which has met no record.

        It starts at the beginning of a file. The next file's decoder is better made by this than by
        `Codec.decoder`: the schema does not have to be gone through again.
        """

    @property
    def rows(self) -> int:
        """Rows decoded and not yet flushed."""

    @property
    def full(self) -> bool:
        """Whether the batch is full: flush before decoding on."""

    def decode(self, data: pa.Buffer, start: int = 0) -> int:
        """Decode whole frames of ``data[start:]`` until they end or the batch is full.

        Returns
        -------
        int
            Bytes consumed from `start` on. The rest belongs in front of the next call's data.

        Raises
        ------
        CorruptDataError, LimitExceededError, SchemaMismatchError
            At the first bad record. Rows before it stay buffered, `offset` and `record` stand at
            the bad record, and decoding may go on elsewhere after `seek`.
        """

    def flush(self) -> pa.RecordBatch:
        """Return the buffered rows (perhaps none) and start a new batch.

        Before a row that has a value of a string column that is not valid UTF-8, the rows end: the
        decoder stays full then, and the next call raises. The rows behind it are gone.

        Raises
        ------
        SchemaMismatchError
            The first row has such a value, or the one behind those that the last call gave; told is
            the first column of it that has one.
        """

    def row_place(self, row: int) -> tuple[int, int]:
        """Return (offset, record) of a row of the batch that `flush` last gave (or failed to)."""


class Observer(Cursor, Protocol):
    """Frames to what a schema is inferred from. Every payload is held to protobuf's rules."""

    def observe(self, data: pa.Buffer, start: int = 0) -> int:
        """Look at whole frames of ``data[start:]``; see `BatchDecoder.decode`."""

    def result(self, known: Set[Hashable] = frozenset()) -> Observation:
        """Return what was seen so far, features in the order of their first sight on the wire.

        `known` are traits that earlier observations of the same codec have. Where there are no
        others, nothing new was seen, and the features are left out.
        """


class BatchEncoder(Protocol):
    """Record batches of the wire schema it was made for to framed records."""

    def encode(self, batch: pa.RecordBatch, position: int = 0) -> tuple[pa.Buffer, pa.UInt64Array]:
        """Encode a batch.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Of the wire schema.
        position : int
            Where in a file the records will stand. A codec may begin `data` as far from the border
            of a block of 4096 bytes in memory, so that what is written directly need not be copied.

        Returns
        -------
        data : pyarrow.Buffer
            The framed records, in row order.
        offsets : pyarrow.UInt64Array, length ``batch.num_rows + 1``
            Where each record's frame begins in `data`, and at last the length of `data`.

        Raises
        ------
        LimitExceededError
            A payload of more than 2**31 - 1 bytes, which no protobuf reader would take; `row`
            counts in the batch.
        EncodeError
            A value in a column of null type: a non-null list, which would have no kind (in a list
            of lists: a non-null inner list; an outer one without steps, or with null steps, is
            written). A null in a ByteArray's column. `feature` is the column, `row` counts in the
            batch.
        """


class Codec(Protocol):
    """The maker of decoders, observers and encoders."""

    name: str

    def decoder(self, schema: pa.Schema, options: DecodeOptions) -> BatchDecoder:
        """Return a decoder into `schema` (wire types) that starts at the beginning of a file."""

    def observer(self, options: DecodeOptions) -> Observer:
        """Return an observer that starts at the beginning of a file."""

    def encoder(self, schema: pa.Schema, record_type: str) -> BatchEncoder:
        """Return an encoder of batches of `schema`.

        Wire types; a list may also be a large_list or a fixed_size_list, and bytes may be large.
        """

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
        """Hop over the whole frames of ``data[start:]``.

        `offset` and `record` are the place of the first of them in its file.

        Returns
        -------
        consumed : int
            Bytes of whole frames from `start` on.
        lengths : pyarrow.UInt64Array
            The payload lengths of these frames.

        Raises
        ------
        ChecksumError, LimitExceededError
            At the first bad frame. Payload CRCs are looked at only if `check_payload` says so.
        """

    def payloads(
        self,
        data: pa.Buffer,
        start: int = 0,
        *,
        offset: int = 0,
        record: int = 0,
        max_record_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> tuple[int, list[bytes]]:
        """Take the payloads of the whole frames of ``data[start:]``, both CRCs checked.

        `offset` and `record` are the place of the first of them in its file. A bad frame ends the
        list; the next call, which begins there, raises.

        Returns
        -------
        consumed : int
            Bytes of these frames.
        payloads : list of bytes
            What they hold.

        Raises
        ------
        ChecksumError, LimitExceededError
            The first frame is bad.
        """

    def frame_payloads(self, payloads: list[bytes]) -> pa.Buffer:
        """Return the frames of payloads, one behind the other."""

    def find_frame(self, data: pa.Buffer, start: int = 0, stop: int | None = None) -> int | None:
        """Return the first position from `start` on where a whole frame with two fitting CRCs is.

        Before `stop`, which the frame may go over. Positions count from the start of `data`; None
        if there is none.
        """
