"""Native and reference codec give equal batches, bytes and errors on any input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import strategies as some
from tests.support.frames import header, masked_crc
from tfrecord_io.codec import get_codec
from tfrecord_io.codec.reference import frame
from tfrecord_io.errors import TFRecordError
from tfrecord_io.infer import Observation
from tfrecord_io.options import DecodeOptions, Limits

RECORD_TYPES = ["Example", "SequenceExample", "ByteArray"]

fast = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def codec_pair() -> tuple[Any, Any]:
    return get_codec("reference"), get_codec("native")


def outcome(action: Any, *args: Any, **kwargs: Any) -> Any:
    """What an action gives, or what its error says but for the wording."""
    try:
        return action(*args, **kwargs)
    except TFRecordError as error:
        return type(error), error.offset, error.record, error.feature, error.row


def values(batch: Any) -> Any:
    """A batch as something to compare: schema, rows, and every value; NaN equals NaN."""
    if not isinstance(batch, pa.RecordBatch):
        return batch
    batch.validate(full=True)
    return batch.schema.to_string(), batch.num_rows, repr(batch.to_pydict())


def decode_all(
    codec: Any, schema: pa.Schema, options: DecodeOptions, data: bytes, chunk: int
) -> Any:
    """Everything that a decoder lets see while it reads chunks, errors included."""
    decoder = codec.decoder(schema, options)
    seen: list[Any] = []
    pending = b""
    for start in range(0, len(data), chunk):
        pending += data[start : start + chunk]
        while True:
            used = outcome(decoder.decode, pa.py_buffer(pending))
            state = (used, decoder.offset, decoder.record, decoder.needed, decoder.rows)
            seen.append((*state, decoder.full))
            if isinstance(used, tuple):
                seen.append(values(outcome(decoder.flush)))
                return seen
            pending = pending[used:]
            if not decoder.full:
                break
            rows = decoder.rows
            seen.append(values(outcome(decoder.flush)))
            seen.append([decoder.row_place(row) for row in range(rows)])
    rows = decoder.rows
    seen.append(values(outcome(decoder.flush)))
    seen.append([decoder.row_place(row) for row in range(rows)])
    if decoder.full:
        seen.append(values(outcome(decoder.flush)))
    return [*seen, decoder.full]


@pytest.mark.parametrize("record_type", RECORD_TYPES)
@fast
@given(data=st.data())
def test_decoding(codec_pair: Any, record_type: str, data: st.DataObject) -> None:
    schema = data.draw(some.read_schemas(record_type))
    file = data.draw(some.files(record_type, schema))
    options = DecodeOptions(
        record_type=record_type,  # type: ignore[arg-type]
        batch_rows=data.draw(st.sampled_from([1, 2, 1000])),
        batch_bytes=data.draw(st.sampled_from([1, 40, 10**6])),
        limits=Limits(
            # As a rule there is more to see than the first limit.
            max_record_bytes=data.draw(st.sampled_from([50, *[10**6] * 7])),
            max_features=data.draw(st.sampled_from([2, *[1000] * 7])),
        ),
        check_all=data.draw(st.booleans()),
    )
    chunk = data.draw(st.sampled_from([1, 7, 100, 10**6]))
    reference, native = (decode_all(codec, schema, options, file, chunk) for codec in codec_pair)
    if native != reference:
        # The one freedom: damage inside a feature that the schema does not name.
        assert not options.check_all
        assert skips_damage(codec_pair[1], schema, options, file, reference), (reference, native)


def skips_damage(
    native: Any, schema: pa.Schema, options: DecodeOptions, file: bytes, reference: Any
) -> bool:
    """Whether the reference met damage that the native codec was free to skip."""
    errors = [state[0] for state in reference if isinstance(state, tuple)]
    if not any(isinstance(error, tuple) and error[0].__name__ == "DecodeError" for error in errors):
        return False
    # The native observer leaves nothing out, so it has to find the same damage.
    observed = outcome(native.observer(options).observe, pa.py_buffer(file))
    return isinstance(observed, tuple) and observed[0].__name__ == "DecodeError"


def delimited(tag: int, content: bytes) -> bytes:
    length = len(content)
    head = [tag]
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + content


def entry(name: str, values: bytes) -> bytes:
    """A feature: text of any length, or a number of as many bytes."""
    kind = 0x1A if name.startswith("int") else 0x0A
    packed = b"\x80" * (len(values) - 1) + b"\x01" if kind == 0x1A else values
    feature = delimited(kind, delimited(0x0A, packed))
    return delimited(0x0A, delimited(0x0A, name.encode()) + delimited(0x12, feature))


# What native decoding learns of a file: which entry follows which, and how long their values are.
NAMES = ["int", "id", "int2", "a", "b", "a name that is too long for a template", "int3", "text"]
LENGTHS = [(1,), (8,), (1, 1, 1, 2), (1,) * 30 + (3,), (0, 5, 9), (4, 150)]


def payloads_of_phases(seed: int, records: int) -> list[bytes]:
    """Payloads that keep some order and some lengths for a while."""
    rng = random.Random(seed)
    payloads = []
    for _ in range(4):
        order = rng.sample(NAMES, len(NAMES))
        lengths = {name: rng.choice(LENGTHS) for name in NAMES}
        present = {name: rng.choice([1, 1, 1, 0.95, 0.5]) for name in NAMES}
        # As of a writer whose maps have no order.
        shuffles = rng.random() < 0.25
        for _ in range(records):
            names = [name for name in order if rng.random() < present[name]]
            if shuffles:
                rng.shuffle(names)
            if rng.random() < 0.02:
                names = rng.choices(NAMES, k=rng.randrange(len(NAMES)))
            sizes = [rng.choice(lengths[name]) for name in names]
            # An int has a byte at least and nine at most.
            sizes = [
                min(max(size, 1), 9) if name.startswith("int") else size
                for name, size in zip(names, sizes, strict=True)
            ]
            entries = [
                entry(n, bytes(rng.choices(b"xyz", k=size)))
                for n, size in zip(names, sizes, strict=True)
            ]
            payloads.append(delimited(0x0A, b"".join(entries)))
    return payloads


def schemas_of(seed: int) -> list[pa.Schema]:
    rng = random.Random(seed)
    fields = [
        pa.field(name, pa.int64() if name.startswith("int") else pa.binary()) for name in NAMES
    ]
    return [pa.schema(fields), *(pa.schema(rng.sample(fields, count)) for count in (1, 2, 4))]


@pytest.mark.parametrize("seed", range(8))
def test_files_whose_shape_changes(codec_pair: Any, seed: int) -> None:
    file = b"".join(map(frame, payloads_of_phases(seed, 200)))
    options = DecodeOptions()
    for schema in schemas_of(seed):
        reference, native = (
            decode_all(codec, schema, options, file, 10**6) for codec in codec_pair
        )
        assert native == reference
    reference, native = (observe(codec, options, file) for codec in codec_pair)
    assert native == reference


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_many_names_of_which_most_are_missing(codec_pair: Any, is_shuffled: bool) -> None:
    rng = random.Random(is_shuffled)
    names = [f"{kind}{n}" for n in range(300) for kind in ("int", "a longer name ")]
    payloads = []
    for _ in range(300):
        chosen = [name for name in names if rng.random() < 0.1]
        if is_shuffled:
            rng.shuffle(chosen)
        entries = (entry(name, bytes(rng.choices(b"xyz", k=rng.randint(1, 9)))) for name in chosen)
        payloads.append(delimited(0x0A, b"".join(entries)))
    file = b"".join(map(frame, payloads))
    options = DecodeOptions()
    for asked in (names, names[::7]):
        schema = pa.schema(
            [(name, pa.int64() if name.startswith("int") else pa.binary()) for name in asked]
        )
        reference, native = (
            decode_all(codec, schema, options, file, 10**6) for codec in codec_pair
        )
        assert native == reference
    reference, native = (observe(codec, options, file) for codec in codec_pair)
    assert native == reference


@pytest.mark.parametrize("seed", range(4))
def test_damage_behind_records_of_one_shape(codec_pair: Any, seed: int) -> None:
    rng = random.Random(seed)
    whole = payloads_of_phases(seed, 50)
    schemas = schemas_of(seed)
    for _ in range(60):
        schema, options = rng.choice(schemas), DecodeOptions(check_all=rng.random() < 0.5)
        last = bytearray(rng.choice(whole[-50:]))
        for _ in range(rng.choice([1, 1, 2])):
            last[rng.randrange(len(last))] ^= 1 << rng.randrange(8)
        cut = len(last) - rng.choice([0, 0, 0, 1, 5])
        file = b"".join(map(frame, [*whole[-50:], bytes(last[:cut]), whole[-1]]))
        reference, native = (
            decode_all(codec, schema, options, file, 10**6) for codec in codec_pair
        )
        if native != reference:
            assert not options.check_all
            assert skips_damage(codec_pair[1], schema, options, file, reference)
        reference, native = (observe(codec, options, file) for codec in codec_pair)
        assert native == reference


def observe(codec: Any, options: DecodeOptions, data: bytes) -> Any:
    observer = codec.observer(options)
    used = outcome(observer.observe, pa.py_buffer(data))
    result = observer.result()
    assert isinstance(result, Observation)
    # Mappings compare without their order, which counts here.
    orders = [(list(f.with_values), list(f.empty)) for f in result.features]
    return used, observer.offset, observer.record, observer.needed, result, orders


@pytest.mark.parametrize("record_type", RECORD_TYPES)
@fast
@given(data=st.data())
def test_observing(codec_pair: Any, record_type: str, data: st.DataObject) -> None:
    file = data.draw(some.files(record_type))
    options = DecodeOptions(
        record_type=record_type,  # type: ignore[arg-type]
        limits=Limits(max_features=data.draw(st.sampled_from([2, 5, 1000]))),
    )
    reference, native = (observe(codec, options, file) for codec in codec_pair)
    assert native == reference


@pytest.mark.parametrize("record_type", RECORD_TYPES)
@fast
@given(data=st.data())
def test_encoding(codec_pair: Any, record_type: str, data: st.DataObject) -> None:
    batch = data.draw(some.write_batches(record_type))

    def encode(codec: Any) -> Any:
        made = outcome(codec.encoder(batch.schema, record_type).encode, batch)
        if isinstance(made[0], pa.Buffer):
            return made[0].to_pybytes(), made[1].to_pylist()
        return made

    reference, native = (encode(codec) for codec in codec_pair)
    assert native == reference


def columns_of_short_values(rng: random.Random, rows: int) -> list[pa.Array]:
    """Ints of each length, floats, and bytes of up to some length; some of them are missing."""

    def column(value: Callable[[], Any], t: pa.DataType) -> pa.Array:
        absent = rng.choice([0, 0, 0.3, 1])
        return pa.array([None if rng.random() < absent else value() for _ in range(rows)], t)

    bits, longest = rng.choice([1, 7, 28, 56, 57, 64]), rng.choice([0, 8, 15, 16, 17, 90])
    return [
        column(lambda: rng.getrandbits(bits) - (bits == 64) * 2**63, pa.int64()),
        column(lambda: rng.uniform(-1, 1), pa.float32()),
        column(lambda: rng.randbytes(rng.randint(0, longest)), pa.binary()),
        column(lambda: rng.randbytes(rng.randint(0, longest)), pa.large_binary()),
        column(lambda: rng.choices(range(200), k=rng.randint(0, 3)), pa.list_(pa.int64())),
    ]


@pytest.mark.parametrize("record_type", ["Example", "SequenceExample"])
@pytest.mark.parametrize("seed", range(60))
def test_encoding_many_rows(codec_pair: Any, record_type: str, seed: int) -> None:
    """What is stored in pieces of constant size does not reach into anything else."""
    rng = random.Random(seed)
    rows = rng.choice([63, 64, 65, 127, 128, 129, 300])
    arrays = [a for _ in range(rng.choice([1, 2, 9])) for a in columns_of_short_values(rng, rows)]
    rng.shuffle(arrays)
    arrays = arrays[: rng.randint(1, len(arrays))]
    names = [rng.choice(["", "a longer name "]) + str(index) for index in range(len(arrays))]
    batch = pa.RecordBatch.from_arrays(arrays, names=names).slice(rng.randint(0, 1))
    reference, native = (
        codec.encoder(batch.schema, record_type).encode(batch) for codec in codec_pair
    )
    assert native[0].equals(reference[0])
    assert native[1].equals(reference[1])


@pytest.mark.parametrize(
    ("t", "value"),
    [
        *((pa.list_(pa.null()), value) for value in (None, [])),
        *((pa.list_(pa.list_(pa.null())), value) for value in (None, [], [[]], [None], [None, []])),
    ],
)
def test_encoding_null_types(codec_pair: Any, t: pa.DataType, value: Any) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None, value], t)], names=["x"])
    reference, native = (
        outcome(codec.encoder(batch.schema, "SequenceExample").encode, batch)
        for codec in codec_pair
    )
    if isinstance(reference[0], pa.Buffer):
        assert native[0].equals(reference[0])
        assert native[1].equals(reference[1])
    else:
        assert native == reference


@fast
@given(
    junk=st.binary(max_size=20),
    data=some.files("Example"),
    check=st.booleans(),
    limit=st.sampled_from([20, 10**9, 10**9]),
)
def test_frames(codec_pair: Any, junk: bytes, data: bytes, check: bool, limit: int) -> None:
    def frames(codec: Any) -> Any:
        made = outcome(
            codec.frames,
            pa.py_buffer(junk + data),
            len(junk),
            offset=1000,
            record=7,
            check_payload=check,
            max_record_bytes=limit,
        )
        return (made[0], made[1].to_pylist()) if len(made) == 2 else made

    reference, native = (frames(codec) for codec in codec_pair)
    assert native == reference


@fast
@given(
    junk=st.binary(max_size=20),
    data=some.files("Example"),
    limit=st.sampled_from([20, 10**9, 10**9]),
)
def test_payloads(codec_pair: Any, junk: bytes, data: bytes, limit: int) -> None:
    reference, native = (
        outcome(
            codec.payloads,
            pa.py_buffer(junk + data),
            len(junk),
            offset=1000,
            record=7,
            max_record_bytes=limit,
        )
        for codec in codec_pair
    )
    assert native == reference


@fast
@given(payloads=st.lists(st.binary(max_size=100), max_size=5))
def test_frame_payloads(codec_pair: Any, payloads: list[bytes]) -> None:
    reference, native = (codec.frame_payloads(payloads) for codec in codec_pair)
    assert native.equals(reference)


@fast
@given(
    junk=st.binary(max_size=40),
    data=some.files("Example"),
    start=st.integers(0, 60),
    stop=st.none() | st.integers(0, 200),
)
def test_find_frame(
    codec_pair: Any, junk: bytes, data: bytes, start: int, stop: int | None
) -> None:
    buffer = pa.py_buffer(junk + data)
    reference, native = (
        codec.find_frame(buffer, min(start, buffer.size), stop) for codec in codec_pair
    )
    assert native == reference


def forged_headers(seed: int) -> bytes:
    """Bytes with many headers in them that fit, and with payloads behind few of them."""
    rng = random.Random(seed)
    size = rng.choice([1, 1, 30]) * 8000
    data = bytearray(rng.randbytes(size))
    ends = {}
    for _ in range(size // rng.choice([20, 100])):
        at = rng.randrange(size - 16)
        left = size - at - 16
        length = rng.choice([rng.randrange(left + 1), min(rng.randrange(5000), left), left, size])
        data[at : at + 12] = header(length)
        if at > rng.choice([0, size // 2]) and length <= left and rng.random() < 0.1:
            ends[at + 12 + length] = at + 12
    for end in sorted(ends):
        data[end : end + 4] = masked_crc(data[ends[end] : end]).to_bytes(4, "little")
    return bytes(data)


def naive_search(data: bytes) -> list[int]:
    found = []
    for at in range(len(data) - 15):
        length = int.from_bytes(data[at : at + 8], "little")
        if length <= len(data) - at - 16 and data[at : at + 12] == header(length):
            end = at + 12 + length
            if masked_crc(data[at + 12 : end]) == int.from_bytes(data[end : end + 4], "little"):
                found.append(at)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_find_frame_among_forged_headers(codec_pair: Any, seed: int) -> None:
    data = forged_headers(seed)
    frames = naive_search(data)
    assert frames
    starts = [0, *random.Random(seed).sample(frames, min(len(frames), 8))]
    starts += [start + 1 for start in starts]
    for start in [*starts, len(data) - 16, len(data), len(data) + 1]:
        expected = next((at for at in frames if at >= start), None)
        for codec in codec_pair:
            assert codec.find_frame(pa.py_buffer(data), start) == expected


def test_find_frame_in_a_payload_of_headers(codec_pair: Any) -> None:
    # With half of the data behind each header, it would take minutes to go through each payload.
    for codec, size in zip(codec_pair, (1 << 20, 1 << 24), strict=True):
        data = pa.py_buffer(header(size // 2) * (size // 12) + frame(b"behind"))
        assert codec.find_frame(data) == size // 12 * 12


@pytest.mark.parametrize("record_type", RECORD_TYPES)
@fast
@given(data=st.data())
def test_decoding_what_was_encoded(codec_pair: Any, record_type: str, data: st.DataObject) -> None:
    batch = data.draw(some.write_batches(record_type))
    asked = pa.schema([pa.field(f.name, as_read(f.type)) for f in batch.schema])
    for codec in codec_pair:
        encoded, offsets = codec.encoder(batch.schema, record_type).encode(batch)
        assert len(offsets) == batch.num_rows + 1
        decoder = codec.decoder(asked, DecodeOptions(record_type=record_type))  # type: ignore[arg-type]
        assert decoder.decode(encoded) == encoded.size
        assert repr(decoder.flush().to_pylist()) == repr(batch.to_pylist())


def as_read(t: pa.DataType) -> pa.DataType:
    """The wire type that reads what was written from `t`."""
    if t in (pa.int64(), pa.float32(), pa.null()):
        return t
    if t in (pa.binary(), pa.large_binary()):
        return pa.binary()
    return pa.list_(as_read(t.value_type))
