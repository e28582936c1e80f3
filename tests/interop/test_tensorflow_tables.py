"""Tables: what we write, tf.data and TensorFlow's parsers read; what TensorFlow writes, we read."""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tfrecord_io as tfr

DAY = datetime.date(1970, 1, 5)
AT = datetime.datetime(1970, 1, 1, 0, 0, 7)

#: Types, values as written, and what TensorFlow is to find of them.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "bool": (pa.bool_(), [True, False, True], [1, 0, 1]),
    "int8": (pa.int8(), [-128, 0, 127], [-128, 0, 127]),
    "int32": (pa.int32(), [-(2**31), 0, 2**31 - 1], [-(2**31), 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 0, 2**63 - 1], [-(2**63), 0, 2**63 - 1]),
    "uint16": (pa.uint16(), [0, 1, 65535], [0, 1, 65535]),
    "uint64": (pa.uint64(), [0, 1, 2**63 - 1], [0, 1, 2**63 - 1]),
    "float16": (pa.float16(), [0.5, -1.0, 65504.0], [0.5, -1.0, 65504.0]),
    "float32": (pa.float32(), [0.1, -1.0, 3e38], np.float32([0.1, -1.0, 3e38]).tolist()),
    "float64": (pa.float64(), [0.1, -1.0, 3e38], np.float32([0.1, -1.0, 3e38]).tolist()),
    "decimal": (pa.decimal128(9, 2), [decimal.Decimal("1.25")] * 3, [1.25] * 3),
    "date": (pa.date32(), [DAY] * 3, [4] * 3),
    "timestamp": (pa.timestamp("us"), [AT] * 3, [7_000_000] * 3),
    "duration": (pa.duration("ms"), [datetime.timedelta(seconds=1)] * 3, [1000] * 3),
    "string": (pa.string(), ["", "日本", "x"], [b"", "日本".encode(), b"x"]),
    "large": (pa.large_string(), ["", "b", "x"], [b"", b"b", b"x"]),
    "binary": (pa.binary(), [b"", b"\xff\x00", b"x"], [b"", b"\xff\x00", b"x"]),
    "fixed": (pa.binary(2), [b"aa", b"bb", b"cc"], [b"aa", b"bb", b"cc"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], [b"a", b"b", b"a"]),
    "pair": (pa.list_(pa.int64(), 2), [[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4], [5, 6]]),
    "ints": (pa.list_(pa.int64()), [[1], [], [2, 3]], [[1], [], [2, 3]]),
    "floats": (pa.large_list(pa.float32()), [[0.5], [], [2, 3]], [[0.5], [], [2.0, 3.0]]),
    "strings": (pa.list_(pa.string()), [["a"], [], ["b", ""]], [[b"a"], [], [b"b", b""]]),
    "null": (pa.int64(), [None, 5, None], [[], [5], []]),
    "null list": (pa.list_(pa.float32()), [None, [0.5], []], [[], [0.5], []]),
}
TABLE = pa.table({name: pa.array(values, t) for name, (t, values, _) in COLUMNS.items()})
EXPECTED = {name: expected for name, (_, _, expected) in COLUMNS.items()}

#: Step by step: a feature list in each row.
STEPS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int steps": (pa.list_(pa.list_(pa.int64())), [[[1], [2, 3]], [], [[], [4]]]),
    "float steps": (pa.list_(pa.list_(pa.float32())), [[[1.0], [2.0]], [], [[3.0]]]),
    "byte steps": (pa.list_(pa.list_(pa.binary())), [[[b"a"]], [[b"b", b""]], []]),
}


def listed(value: Any) -> Any:
    """A tensor of any kind as lists."""
    return value.to_list() if hasattr(value, "to_list") else value.numpy().tolist()


def files_of(folder: Path) -> list[str]:
    """What a user finds that knows of no name to skip but _SUCCESS."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != "_SUCCESS"]
    return sorted(map(str, found))


@pytest.mark.parametrize(
    ("compression", "theirs"), [(None, ""), ("gzip", "GZIP"), ("deflate", "ZLIB")]
)
def test_examples_of_ours(tf: Any, tmp_path: Path, compression: str | None, theirs: str) -> None:
    target = tmp_path / "data"
    tfr.write_table(TABLE, target, compression=compression, float64="cast")
    spec = tfr.tf.feature_spec(str(target))
    records = tf.data.TFRecordDataset(files_of(target), compression_type=theirs)
    (batch,) = records.batch(10).map(lambda batch: tf.io.parse_example(batch, spec))
    assert {name: listed(value) for name, value in batch.items()} == EXPECTED
    fixed = {name for name, one in spec.items() if isinstance(one, tf.io.FixedLenFeature)}
    # What a fixed-size list is, the manifest knows.
    assert fixed == set(COLUMNS) - {"ints", "floats", "strings", "null", "null list"}


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_sequence_examples_of_ours(tf: Any, tmp_path: Path, compression: str | None) -> None:
    table = TABLE.select(["int64", "string", "ints"])
    for name, (t, values) in STEPS.items():
        table = table.append_column(name, pa.array(values, t))
    target = tmp_path / "data"
    tfr.write_table(table, target, record_type="SequenceExample", compression=compression)
    context, steps = tfr.tf.feature_spec(target, record_type="SequenceExample")
    theirs = {None: "", "gzip": "GZIP", "deflate": "ZLIB"}[compression]
    records = tf.data.TFRecordDataset(files_of(target), compression_type=theirs)
    (batch,) = records.batch(10)
    singles, lists, _ = tf.io.parse_sequence_example(batch, context, steps)
    found = {name: listed(value) for name, value in {**singles, **lists}.items()}
    assert found == {
        **{name: EXPECTED[name] for name in ("int64", "string", "ints")},
        **{name: values for name, (_, values) in STEPS.items()},
    }


def test_byte_arrays_of_ours(tf: Any, tmp_path: Path) -> None:
    # More than is compressed at once.
    records = [b"", b"one", b"\xff" * 1000, random.Random(3).randbytes(2_000_000)]
    table = pa.table({"byteArray": records})
    tfr.write_table(table, tmp_path / "data", record_type="ByteArray", compression="gzip")
    dataset = tf.data.TFRecordDataset(files_of(tmp_path / "data"), compression_type="GZIP")
    assert list(dataset.as_numpy_iterator()) == records


def test_partitions_hold_nothing_but_records(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"x": range(10), "p": ["a", "b/c"] * 5})
    tfr.write_table(table, tmp_path / "data", partition_by="p")
    assert (tmp_path / "data" / "_SUCCESS").is_file()
    spec = tfr.tf.feature_spec(tmp_path / "data")
    assert list(spec) == ["x"]
    records = tf.data.TFRecordDataset(files_of(tmp_path / "data")).batch(100)
    (batch,) = records.map(lambda batch: tf.io.parse_example(batch, spec))
    assert sorted(listed(batch["x"])) == list(range(10))


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_examples_of_tensorflow(tf: Any, tmp_path: Path, compression: str) -> None:
    def feature(value: Any) -> Any:
        train = tf.train
        if value is None:
            return train.Feature()
        kind = next((type(one) for one in value), int)
        if kind is int:
            return train.Feature(int64_list=train.Int64List(value=value))
        if kind is float:
            return train.Feature(float_list=train.FloatList(value=value))
        return train.Feature(bytes_list=train.BytesList(value=value))

    rows: list[dict[str, Any]] = [
        {"int": [2**62], "float": [0.5], "text": ["ä".encode()], "raw": [b"\xff"], "list": [1]},
        {"int": [-1], "float": [-0.5], "text": [b"b"], "raw": [b""], "list": [1, 2], "none": None},
        {"float": [1e-40], "text": [b""], "raw": [b"x"], "list": []},
    ]
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path, compression) as writer:
        for row in rows:
            features = tf.train.Features(feature={name: feature(row[name]) for name in row})
            writer.write(tf.train.Example(features=features).SerializeToString())
    with pytest.warns(tfr.InferenceWarning, match="'none'"):
        table = tfr.read_table(path)
    assert {name: table[name].to_pylist() for name in table.column_names} == {
        "int": [2**62, -1, None],
        "float": [0.5, -0.5, float(np.float32(1e-40))],
        "text": ["ä", "b", ""],
        "raw": [b"\xff", b"", b"x"],
        "list": [[1], [1, 2], []],
        "none": [None] * 3,
    }


def test_sequence_examples_of_tensorflow(tf: Any, tmp_path: Path) -> None:
    train = tf.train
    steps = [train.Feature(float_list=train.FloatList(value=[n, n + 0.5])) for n in range(3)]
    example = train.SequenceExample(
        context=train.Features(
            feature={"id": train.Feature(int64_list=train.Int64List(value=[7]))}
        ),
        feature_lists=train.FeatureLists(feature_list={"s": train.FeatureList(feature=steps)}),
    )
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(example.SerializeToString())
    table = tfr.read_table(path, record_type="SequenceExample")
    assert table.to_pylist() == [{"id": 7, "s": [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]}]
