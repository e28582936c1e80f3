"""Hypothesis strategies: wire schemas, their batches, and payloads in every form there is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.support import wire
from tests.support.frames import frame

NAMES = ["", "a", "b", "c", "label", "ключ", "a rather long name of a feature, with spaces in it"]

names = st.sampled_from(NAMES)
int64s = st.one_of(
    st.integers(-3, 300), st.sampled_from([-(2**63), 2**63 - 1, 2**53, 2**53 + 1, -(2**53) - 1])
)
float32s = st.floats(width=32, allow_nan=False) | st.just(float("nan"))
some_bytes = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=4).map(str.encode),
    st.sampled_from([b"", b"\xff", b"\xed\xa0\x80", b"x" * 200]),
)

_LEAF_VALUES = {
    pa.int64(): int64s,
    pa.float32(): float32s,
    pa.float64(): float32s,
    pa.binary(): some_bytes,
    pa.large_binary(): some_bytes,
    pa.string(): st.text(max_size=5),
    pa.binary_view(): some_bytes,
    pa.string_view(): st.text(max_size=20),
    pa.null(): st.none(),
}
_mostly_one = st.sampled_from([1, 1, 1, 1, 1, 0])
READ_LEAVES = [t for t in _LEAF_VALUES if t != pa.large_binary()]
WRITE_LEAVES = [pa.int64(), pa.float32(), pa.binary(), pa.large_binary()]


def _nested(leaf: pa.DataType, depth: int) -> pa.DataType:
    for _ in range(depth):
        leaf = pa.list_(leaf)
    return leaf


@st.composite
def read_schemas(draw: st.DrawFn, record_type: str) -> pa.Schema:
    """A wire schema to decode into; its names are those that the payloads below use."""
    if record_type == "ByteArray":
        leaf = draw(st.sampled_from([pa.binary(), pa.string(), pa.binary_view(), pa.string_view()]))
        return pa.schema([("byteArray", leaf)])
    depths = st.integers(0, 2 if record_type == "SequenceExample" else 1)
    chosen = draw(st.lists(names, unique=True, min_size=draw(_mostly_one), max_size=4))
    return pa.schema(
        [(name, _nested(draw(st.sampled_from(READ_LEAVES)), draw(depths))) for name in chosen]
    )


@st.composite
def write_batches(draw: st.DrawFn, record_type: str, max_rows: int = 6) -> pa.RecordBatch:
    """A batch of writable wire types, perhaps a slice of a larger one."""
    if record_type == "ByteArray":
        fields = [pa.field("byteArray", draw(st.sampled_from([pa.binary(), pa.large_binary()])))]
    else:
        chosen = draw(st.lists(names, unique=True, max_size=4))
        fields = [pa.field(name, draw(_write_types(record_type))) for name in chosen]
    rows = draw(st.integers(0, max_rows))
    columns = []
    for column in fields:
        values = _values(column.type)
        if record_type != "ByteArray":
            values = st.none() | values
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        columns.append(pa.array(drawn, column.type))
    if not fields:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    start = draw(st.integers(0, rows))
    return batch.slice(start, draw(st.integers(0, rows - start)))


def _write_types(record_type: str) -> st.SearchStrategy[pa.DataType]:
    leaves = st.sampled_from([*WRITE_LEAVES, pa.null()])
    lists = _lists_of(st.sampled_from(WRITE_LEAVES))
    if record_type == "SequenceExample":
        return st.one_of(leaves, lists, _lists_of(lists))
    return st.one_of(leaves, lists)


def _lists_of(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.builds(lambda t, size: pa.list_(t, size), inner, st.integers(1, 3)),
    )


def _values(t: pa.DataType) -> st.SearchStrategy[Any]:
    if not (pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)):
        return _LEAF_VALUES[t]
    item = _values(t.value_type)
    if t.value_type not in _LEAF_VALUES:
        item = st.none() | item
    if pa.types.is_fixed_size_list(t):
        return st.lists(item, min_size=t.list_size, max_size=t.list_size)
    return st.lists(item, max_size=3)


_paddings = st.sampled_from([0, 0, 0, 1, 3])


@st.composite
def _unknown_fields(draw: st.DrawFn) -> bytes:
    number = draw(st.sampled_from([4, 7, 15, 16, 2**29 - 1]))
    return draw(
        st.sampled_from(
            [
                b"",
                b"",
                b"",
                wire.tag(number, wire.VARINT) + wire.varint(2**64 - 1),
                wire.tag(number, wire.FIXED32) + b"abcd",
                wire.tag(number, wire.FIXED64) + b"abcdefgh",
                wire.field(number, b"\xffanything", padding=2),
                wire.group(number, wire.field(1, b"in a group"), wire.group(3)),
            ]
        )
    )


@st.composite
def _chunks(draw: st.DrawFn, kind: int) -> bytes:
    """The inside of a BytesList (1), FloatList (2) or Int64List (3), packed and unpacked."""
    parts = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
        if kind == 1:
            parts.append(wire.bytes_values(draw(st.lists(some_bytes, max_size=2))))
        elif kind == 2:
            write = draw(st.sampled_from([wire.packed_floats, wire.unpacked_floats]))
            parts.append(write(draw(st.lists(float32s, max_size=3))))
        else:
            write = draw(st.sampled_from([wire.packed_ints, wire.unpacked_ints]))
            parts.append(write(draw(st.lists(int64s, max_size=3))))
        parts.append(draw(_unknown_fields()))
    return b"".join(parts)


@st.composite
def features(draw: st.DrawFn) -> bytes:
    """A Feature: mostly one kind, at times none, several, or one in several parts."""
    parts = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3]))):
        kind = draw(st.sampled_from([1, 2, 3]))
        parts.append(wire.field(kind, draw(_chunks(kind)), padding=draw(_paddings)))
        parts.append(draw(_unknown_fields()))
    return b"".join(parts)


# One that is not UTF-8 costs the whole record.
_keys = st.sampled_from([*(name.encode() for name in NAMES * 4), *[None, b"other"] * 4, b"\xff"])


@st.composite
def _entries(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> list[bytes]:
    entries = []
    for _ in range(draw(st.integers(0, 5))):
        key = draw(_keys)
        parts = draw(
            st.lists(values, min_size=0, max_size=2) | st.lists(values, min_size=1, max_size=1)
        )
        unknown = draw(_unknown_fields()) if draw(st.integers(0, 5)) == 0 else b""
        made = wire.entry(key, *parts, unknown=unknown)
        if key is not None and len(parts) == 1 and not unknown and draw(st.integers(0, 9)) == 0:
            # The value before its key.
            made = wire.field(1, wire.field(2, parts[0]) + wire.field(1, key))
        entries.append(made)
    return entries


@st.composite
def _feature_lists(draw: st.DrawFn) -> bytes:
    steps = draw(st.lists(features(), max_size=3))
    return wire.feature_list(*steps) + draw(_unknown_fields())


@st.composite
def payloads(draw: st.DrawFn, record_type: str) -> bytes:
    """A payload in some form that a protobuf parser takes, or at times only nearly takes."""
    if record_type == "ByteArray":
        return draw(some_bytes)
    parts = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
        parts.append(wire.field(1, b"".join(draw(_entries(features()))), padding=draw(_paddings)))
        parts.append(draw(_unknown_fields()))
    if record_type == "SequenceExample" or draw(st.integers(0, 19)) == 0:
        count = draw(st.sampled_from([0, 1, 1, 1, 2]))
        lists = [draw(_entries(_feature_lists())) for _ in range(count)]
        parts += [wire.field(2, b"".join(entries)) for entries in lists]
    payload = b"".join(parts)
    return draw(damaged(payload)) if draw(st.integers(0, 9)) == 0 else payload


@st.composite
def plain_payloads(draw: st.DrawFn, record_type: str, schema: pa.Schema) -> bytes:
    """A payload as writers make it, that mostly fits the schema."""
    context, lists = [], []
    for column in schema:
        if draw(st.integers(0, 4)) == 0:
            continue
        depth, leaf = 0, column.type
        while pa.types.is_list(leaf):
            depth, leaf = depth + 1, leaf.value_type
        if draw(st.integers(0, 11)) == 0:
            leaf = draw(st.sampled_from(READ_LEAVES))
        count = st.just(1) if depth == 0 else st.integers(0, 3)
        if depth == 2:
            steps = [draw(_feature_of(leaf, draw(count))) for _ in range(draw(st.integers(0, 3)))]
            lists.append(wire.entry(column.name.encode(), wire.feature_list(*steps)))
        else:
            context.append(wire.entry(column.name.encode(), draw(_feature_of(leaf, draw(count)))))
    if draw(st.integers(0, 3)) == 0:
        context = draw(st.permutations(context))
    if record_type == "SequenceExample":
        return wire.sequence_example(context, lists)
    return wire.example(*context)


def _feature_of(leaf: pa.DataType, count: int) -> st.SearchStrategy[bytes]:
    def values(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(strategy, min_size=count, max_size=count)

    if leaf == pa.int64():
        return values(int64s).map(wire.int64_list)
    if leaf == pa.float32():
        return values(float32s).map(wire.float_list)
    if leaf == pa.float64():
        return values(float32s).map(wire.float_list) | values(int64s).map(wire.int64_list)
    if leaf == pa.null():
        return st.just(b"")
    if leaf in (pa.binary(), pa.binary_view()):
        return values(some_bytes).map(wire.bytes_list)
    return values(st.text(max_size=5).map(str.encode)).map(wire.bytes_list)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with one of them changed, left out or doubled, or an end cut off."""
    if not data:
        return data
    at = draw(st.integers(0, len(data) - 1))
    how = draw(st.sampled_from(["change", "drop", "double", "cut"]))
    if how == "change":
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if how == "drop":
        return data[:at] + data[at + 1 :]
    return data[:at] if how == "cut" else data[:at] + data[at : at + 1] + data[at:]


@st.composite
def files(draw: st.DrawFn, record_type: str, schema: pa.Schema | None = None) -> bytes:
    """Framed records, at times damaged after framing."""
    some = payloads(record_type)
    if schema is not None and record_type != "ByteArray":
        some = st.one_of(plain_payloads(record_type, schema), some)
    drawn = draw(st.lists(some, min_size=draw(_mostly_one), max_size=5))
    data = b"".join(map(frame, drawn))
    return draw(damaged(data)) if draw(st.integers(0, 7)) == 0 else data
