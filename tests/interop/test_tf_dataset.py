"""`tfr.tf`: specifications and datasets. The oracle is parse_example on the same files."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.support.frames import example, examples, frame
from tfrecord_io.tensors.tf_features import conformed

ROWS = 500
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS)),
        "m": pa.array([n * 3 for n in range(ROWS)]),
        "half": pa.array([n / 2 for n in range(ROWS)], pa.float32()),
        "text": pa.array([f"ä{n}" for n in range(ROWS)]),
        "long": pa.array(["x" * (n % 70) for n in range(ROWS)]),
        "raw": pa.array([bytes([n % 256]) for n in range(ROWS)]),
        "pair": pa.array([[n, -n] for n in range(ROWS)], pa.list_(pa.int64(), 2)),
        "words2": pa.array([[f"a{n}", "b"] for n in range(ROWS)], pa.list_(pa.string(), 2)),
        "list": pa.array([list(range(n % 4)) for n in range(ROWS)]),
        "floats": pa.array([[0.5] * (n % 3) for n in range(ROWS)], pa.list_(pa.float32())),
        "words": pa.array([["w"] * (n % 3) for n in range(ROWS)]),
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("dataset") / "data"
    tfr.write_table(TABLE, target, rows_per_task=130)
    return target


@pytest.fixture(params=[1, 3000])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of texts. Large ones cross batch by batch, which a few rows of them do not bring about."""
    size: int = request.param
    monkeypatch.setattr("tfrecord_io.tensors.tf_dataset._has_large_values", lambda _: size > 1)
    return size


def listed(value: Any) -> Any:
    return value.to_list() if hasattr(value, "to_list") else value.numpy().tolist()


def encoded(rows: list[Any]) -> list[Any]:
    """Text as the bytes that TensorFlow has of it."""
    return [
        row.encode() if isinstance(row, str) else encoded(row) if isinstance(row, list) else row
        for row in rows
    ]


def parsed(tf: Any, data: Path, batch_size: int) -> list[Any]:
    """What TensorFlow itself makes of the files."""
    files = sorted(map(str, data.glob("part-*")))
    spec = tfr.tf.feature_spec(data)
    records = tf.data.TFRecordDataset(files).batch(batch_size)
    return list(records.map(lambda batch: tf.io.parse_example(batch, spec)))


@pytest.mark.parametrize("batch_size", [1, 7, 130, 1000])
def test_batches_are_those_of_parse_example(tf: Any, data: Path, batch_size: int) -> None:
    ours = list(tfr.tf.dataset(data, batch_size=batch_size))
    theirs = parsed(tf, data, batch_size)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert list(mine) == TABLE.column_names
        assert {name: listed(mine[name]) for name in mine} == {
            name: listed(other[name]) for name in other
        }
        assert {name: mine[name].dtype for name in mine} == {n: other[n].dtype for n in other}


@pytest.mark.parametrize("batch_size", [7, 130, 1000])
def test_large_values_are_those_of_parse_example(tf: Any, tmp_path: Path, batch_size: int) -> None:
    table = pa.table(
        {
            "n": pa.array(range(ROWS)),
            "image": pa.array([bytes([n % 256]) * (n % 7 * 900) for n in range(ROWS)]),
            "text": pa.array([f"ä{n}" for n in range(ROWS)]),
            "vector": pa.array([[n / 2] * 300 for n in range(ROWS)], pa.list_(pa.float32(), 300)),
            "pair": pa.array([[b"x" * n, b""] for n in range(ROWS)], pa.list_(pa.binary(), 2)),
            "list": pa.array([[n] * (n % 400) for n in range(ROWS)]),
            "frames": pa.array([[b"f" * 700] * (n % 3) for n in range(ROWS)]),
        }
    )
    tfr.write_table(table, tmp_path / "data", rows_per_task=260)
    ours = list(tfr.tf.dataset(tmp_path / "data", batch_size=batch_size))
    theirs = parsed(tf, tmp_path / "data", batch_size)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert {name: listed(mine[name]) for name in mine} == {
            name: listed(other[name]) for name in other
        }
        assert {name: mine[name].dtype for name in mine} == {n: other[n].dtype for n in other}


def test_large_lists_of_lists(tf: Any, tmp_path: Path) -> None:
    frames = [[[float(n)] * (n % 5 * 200), []] for n in range(60)]
    names = [[["ü" * n, "b" * 5000], []] for n in range(60)]
    table = pa.table(
        {
            "frames": pa.array(frames, pa.list_(pa.list_(pa.float32()))),
            "names": pa.array(names, pa.list_(pa.list_(pa.string()))),
        }
    )
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    data = tfr.tf.dataset(
        tmp_path / "data", batch_size=50, record_type="SequenceExample", drop_remainder=True
    )
    (batch,) = data
    assert listed(batch["frames"]) == frames[:50]
    assert listed(batch["names"]) == encoded(names[:50])


def test_autotuning_can_be_turned_on(tf: Any, data: Path) -> None:
    dataset = tfr.tf.dataset(data, batch_size=100)
    assert dataset.options().autotune.enabled is False
    options = tf.data.Options()
    options.autotune.enabled = True
    tuned = dataset.with_options(options)
    assert tuned.options().autotune.enabled is True
    assert len(list(tuned)) == ROWS // 100


@pytest.mark.parametrize("batch_size", [1, 32, 4097])
def test_rows_that_take_several_steps(tf: Any, tmp_path: Path, batch_size: int) -> None:
    rows = 12_000
    table = pa.table(
        {
            "n": pa.array(range(rows)),
            "text": pa.array([f"{n}" * (n % 3) for n in range(rows)]),
            "pair": pa.array([[n, 0.5] for n in range(rows)], pa.list_(pa.float32(), 2)),
            "words": pa.array([[f"w{n}"] * (n % 3) for n in range(rows)]),
        }
    )
    tfr.write_table(table, tmp_path / "data")
    taken: dict[str, list[Any]] = {name: [] for name in table.column_names}
    sizes = []
    dataset = tfr.tf.dataset(tmp_path / "data", batch_size=batch_size, schema=table.schema)
    for batch in dataset.take(8000):
        sizes.append(int(batch["n"].shape[0]))
        for name, values in taken.items():
            values += listed(batch[name])
    assert set(sizes[:-1]) == {batch_size}
    expected = table.slice(0, sum(sizes))
    assert expected.num_rows == min(rows, 8000 * batch_size)
    assert taken == {name: encoded(expected[name].to_pylist()) for name in taken}


def test_texts_without_bytes(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"text": [""] * 5, "two": pa.array([["", ""]] * 5), "none": [[""][:0]] * 5})
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("two", pa.list_(pa.string(), 2)),
            ("none", pa.list_(pa.binary())),
        ]
    )
    tfr.write_table(table.cast(schema), tmp_path / "data")
    batches = list(tfr.tf.dataset(tmp_path / "data", batch_size=2, schema=schema))
    assert [{name: listed(batch[name]) for name in batch} for batch in batches] == [
        {"text": [b""] * n, "two": [[b"", b""]] * n, "none": [[]] * n} for n in (2, 2, 1)
    ]


def test_the_element_spec_is_what_comes(tf: Any, data: Path) -> None:
    spec = tfr.tf.dataset(data, batch_size=8).element_spec
    assert spec["n"] == tf.TensorSpec([None], tf.int64)
    assert spec["text"] == tf.TensorSpec([None], tf.string)
    assert spec["pair"] == tf.TensorSpec([None, 2], tf.int64)
    assert spec["words2"] == tf.TensorSpec([None, 2], tf.string)
    assert spec["list"].dtype == tf.int64
    assert spec["list"].ragged_rank == 1
    dataset = tfr.tf.dataset(data, batch_size=8, drop_remainder=True)
    assert dataset.element_spec["n"].shape == [8]
    assert dataset.element_spec["text"].shape == [8]
    assert dataset.element_spec["pair"].shape == [8, 2]
    for batch in dataset:
        assert all(spec.is_compatible_with(batch[n]) for n, spec in dataset.element_spec.items())


def test_cardinality(tf: Any, data: Path) -> None:
    assert int(tfr.tf.dataset(data, batch_size=8).cardinality()) == 63
    assert int(tfr.tf.dataset(data, batch_size=8, drop_remainder=True).cardinality()) == 62
    filtered = tfr.tf.dataset(data, batch_size=8, filters=[("n", "<", 20)])
    assert int(filtered.cardinality()) == tf.data.UNKNOWN_CARDINALITY
    assert len(list(filtered)) == 3


def test_every_type(tf: Any, tmp_path: Path) -> None:
    table = pa.table(
        {
            "bool": [True, False],
            **{f"i{n}": pa.array([-1, 5], f"int{n}") for n in (8, 16, 32, 64)},
            **{f"u{n}": pa.array([1, 2 ** min(n - 1, 62)], f"uint{n}") for n in (8, 16, 32, 64)},
            "f16": pa.array([0.5, -1.0], pa.float16()),
            "f64": pa.array([0.5, -1.0], pa.float64()),
            "day": [datetime.date(1970, 1, 2)] * 2,
            "price": [decimal.Decimal("1.5")] * 2,
            "code": pa.array(["a", "b"]).dictionary_encode(),
            "u32 list": pa.array([[2**31], []], pa.list_(pa.uint32())),
        }
    )
    tfr.write_table(table, tmp_path / "data")
    (batch,) = tfr.tf.dataset(tmp_path / "data", batch_size=2, schema=table.schema)
    assert {name: batch[name].dtype for name in batch} == {
        "bool": tf.bool,
        "i8": tf.int8,
        "i16": tf.int16,
        "i32": tf.int32,
        "i64": tf.int64,
        "u8": tf.uint8,
        "u16": tf.uint16,
        "u32": tf.uint32,
        "u64": tf.uint64,
        "f16": tf.float16,
        "f64": tf.float64,
        "day": tf.int32,
        "price": tf.float64,
        "code": tf.string,
        "u32 list": tf.uint32,
    }
    values = {name: listed(batch[name]) for name in batch}
    assert values.pop("day") == [1, 1]
    assert values.pop("price") == [1.5, 1.5]
    assert values.pop("code") == [b"a", b"b"]
    assert values == {name: table[name].to_pylist() for name in values}


def test_sequences(tf: Any, tmp_path: Path) -> None:
    steps = [[[1.0, 2.0], []], [], None, [[3.0]]]
    words = [[["a"], ["b", "c"]], [[]], [], None]
    table = pa.table(
        {
            "id": range(4),
            "steps": pa.array(steps, pa.list_(pa.list_(pa.float32()))),
            "words": pa.array(words, pa.list_(pa.list_(pa.string()))),
        }
    )
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    batches = list(tfr.tf.dataset(tmp_path / "data", batch_size=3, record_type="SequenceExample"))
    assert [listed(batch["steps"]) for batch in batches] == [[[[1.0, 2.0], []], [], []], [[[3.0]]]]
    assert [listed(batch["words"]) for batch in batches] == [
        [[[b"a"], [b"b", b"c"]], [[]], []],
        [[]],
    ]
    assert batches[0]["steps"].ragged_rank == 2


def test_lists_of_any_length_in_fixed_size_lists(tf: Any, tmp_path: Path, size: int) -> None:
    pairs = [[["a", "bc" * size], []], [["d"], ["e", ""]], [[], ["f"]]]
    numbers = [[[1.0] * size, [2.0]], [[], [3.0, 4.0]], [[5.0], []]]
    table = pa.table(
        {
            "pairs": pa.array(pairs, pa.list_(pa.list_(pa.string()), 2)),
            "numbers": pa.array(numbers, pa.list_(pa.list_(pa.float32()), 2)),
        }
    )
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    batches = list(tfr.tf.dataset(tmp_path / "data", batch_size=2, record_type="SequenceExample"))
    for name in table.column_names:
        assert [row for batch in batches for row in listed(batch[name])] == encoded(
            table[name].to_pylist()
        )


def test_fixed_size_lists_without_values_are_refused(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([[], []], pa.list_(pa.int64(), 0)), "y": [1, 2]})
    tfr.write_table(table, tmp_path / "data")
    with pytest.raises(tfr.UnsupportedTypeError, match="column 'x' holds lists of no values"):
        tfr.tf.dataset(tmp_path / "data", batch_size=2)


def test_labels_columns_and_partitions(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"x": range(6), "y": range(6), "part": ["a", "b"] * 3})
    tfr.write_table(table, tmp_path / "data", partition_by="part")
    ((features, label),) = tfr.tf.dataset(
        tmp_path / "data", batch_size=10, columns=["part"], label="x"
    )
    assert list(features) == ["part"]
    assert listed(features["part"]) == [b"a"] * 3 + [b"b"] * 3
    assert listed(label) == [0, 2, 4, 1, 3, 5]
    ((features, _),) = tfr.tf.dataset(tmp_path / "data", batch_size=10, label="x")
    assert list(features) == ["y", "part"]


def test_shuffling_and_sharding(tf: Any, data: Path) -> None:
    def order(dataset: Any) -> list[int]:
        return [n for batch in dataset for n in listed(batch["n"])]

    def make(**options: Any) -> Any:
        return tfr.tf.dataset(data, batch_size=32, columns=["n"], shuffle=True, **options)

    dataset = make(seed=7)
    first, second = order(dataset), order(dataset)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert order(make(seed=7)) == first
    assert order(make(seed=7).repeat(2)) == first + second
    shards = [order(make(shard=(index, 2), seed=7)) for index in range(2)]
    assert sorted(shards[0] + shards[1]) == list(range(ROWS))


@pytest.mark.parametrize("threads", [1, 3])
def test_subnormal_numbers(tf: Any, tmp_path: Path, threads: int) -> None:
    """On TensorFlow's threads they are zeros."""
    tiny = np.float32([1e-40, -1e-40, 0.0, 1e-45, 1.0])
    tfr.write_table(pa.table({"x": tiny, "n": range(5)}), tmp_path / "data", rows_per_task=1)
    data = tfr.tf.dataset(
        tmp_path / "data",
        batch_size=5,
        schema=pa.schema({"x": pa.float64(), "n": pa.int64()}),
        filters=[("x", ">", 0)],
        threads=threads,
    )
    (batch,) = data
    assert batch["n"].numpy().tolist() == [0, 3, 4]
    assert (
        batch["x"].numpy().view(np.int64).tolist()
        == tiny[[0, 3, 4]].astype(float).view(np.int64).tolist()
    )


def test_nulls(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"x": [1, None], "word": [None, "b"], "list": [None, [1]]})
    tfr.write_table(table, tmp_path / "data")
    defaults = {"x": -1, "word": "?"}
    (batch,) = tfr.tf.dataset(tmp_path / "data", batch_size=2, defaults=defaults)
    assert {name: listed(batch[name]) for name in batch} == {
        "x": [1, -1],
        "word": [b"?", b"b"],
        "list": [[], [1]],
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no value of column 'x'.*defaults"):
        list(tfr.tf.dataset(tmp_path / "data", batch_size=2, defaults={"word": "?"}))


def test_errors_while_reading(tf: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with tfr.TFRecordWriter(path) as writer:
        writer.write(b"no message")
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"not a valid.*record 0"):
        list(tfr.tf.dataset(path, batch_size=2, schema=schema))
    with pytest.raises(tf.errors.NotFoundError):
        tfr.tf.dataset(tmp_path / "none", batch_size=2)
    with pytest.raises(FileNotFoundError):
        tfr.tf.dataset(tmp_path / "none", batch_size=2)


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize(
    "bad",
    [frame(b"")[:-1] + b"?", examples({"n": [1, 2]}), examples({"n": 1000}), examples({})],
    ids=["damaged", "two values", "out of range", "null"],
)
def test_batches_before_an_error_come_first(
    tf: Any, tmp_path: Path, bad: bytes, drop_remainder: bool
) -> None:
    before, behind = ([{"n": n} for n in numbers] for numbers in (range(10), range(11, 20)))
    (tmp_path / "a").write_bytes(examples(*before) + bad + examples(*behind))
    schema = pa.schema([("n", pa.int8())])
    dataset = tfr.tf.dataset(
        tmp_path / "a", batch_size=4, drop_remainder=drop_remainder, schema=schema
    )
    seen: list[Any] = []
    with pytest.raises(tf.errors.InvalidArgumentError):
        seen.extend(listed(batch["n"]) for batch in dataset)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


# --- specifications -------------------------------------------------------------------------------


def test_spec_of_an_arrow_schema(tf: Any) -> None:
    schema = pa.schema(
        [
            pa.field("label", pa.int8(), nullable=False),
            pa.field("price", pa.decimal128(9, 2), nullable=False),
            pa.field("pair", pa.list_(pa.float64(), 2), nullable=False),
            pa.field("text", pa.large_string()),
            pa.field("count", pa.int64()),
            pa.field("day", pa.date32()),
            pa.field("list", pa.list_(pa.binary()), nullable=False),
        ]
    )
    io = tf.io
    expected = {
        "label": io.FixedLenFeature([], tf.int64),
        "price": io.FixedLenFeature([], tf.float32),
        "pair": io.FixedLenFeature([2], tf.float32),
        "text": io.RaggedFeature(tf.string),
        "count": io.FixedLenFeature([], tf.int64, -1),
        "day": io.FixedLenFeature([], tf.int64),
        "list": io.RaggedFeature(tf.string),
    }
    arguments: dict[str, Any] = {"required": ["day"], "defaults": {"count": -1}}
    assert tfr.tf.feature_spec(schema, **arguments) == expected
    spec = tfr.tf.feature_spec(schema, ragged=False, **arguments)
    assert spec == expected | {
        "text": io.VarLenFeature(tf.string),
        "list": io.VarLenFeature(tf.string),
    }


def test_spec_of_a_sequence(tf: Any) -> None:
    io = tf.io
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("steps", pa.list_(pa.list_(pa.float32(), 8)), nullable=False),
            pa.field("maybe", pa.list_(pa.list_(pa.float32(), 8))),
            pa.field("words", pa.list_(pa.list_(pa.string()))),
        ]
    )
    context, steps = tfr.tf.feature_spec(schema, record_type="SequenceExample")
    assert context == {"id": io.FixedLenFeature([], tf.int64)}
    assert steps == {
        "steps": io.FixedLenSequenceFeature([8], tf.float32),
        "maybe": io.FixedLenSequenceFeature([8], tf.float32, allow_missing=True),
        "words": io.RaggedFeature(tf.string),
    }
    with pytest.raises(tfr.UnsupportedTypeError, match="SequenceExample"):
        tfr.tf.feature_spec(schema)


def test_spec_of_a_path_looks_at_every_record(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"full": [1, 2], "holes": [1, None], "p": ["a", "b"]})
    tfr.write_table(table, tmp_path / "data", partition_by="p")
    assert tfr.tf.feature_spec(tmp_path / "data") == {
        "full": tf.io.FixedLenFeature([], tf.int64),
        "holes": tf.io.RaggedFeature(tf.int64),
    }


def test_spec_of_the_files_that_a_pipeline_reads(tf: Any, tmp_path: Path) -> None:
    for name, table in (("a", {"x": [1], "y": [0.5]}), ("b", {"x": [2]}), ("c", {"z": [1]})):
        tfr.write_table(pa.table(table), tmp_path / name, float64="cast")
    files = [str(next((tmp_path / name).glob("part-*"))) for name in "ab"]
    expected = {"x": tf.io.FixedLenFeature([], tf.int64), "y": tf.io.RaggedFeature(tf.float32)}
    assert tfr.tf.feature_spec(files) == tfr.tf.feature_spec(tuple(files)) == expected
    with pytest.raises(tfr.OptionError, match="is not a path or URL"):
        tfr.tf.feature_spec([pa.field("x", pa.int64())])


def test_spec_of_a_dask_frame(tf: Any) -> None:
    import dask.dataframe as dd

    frame = pd.DataFrame(
        {
            "n": [1, 2],
            "ok": [True, False],
            "x": [0.5, 1.0],
            "text": ["a", "b"],
            "maybe": pd.array([1, None], dtype="Int64"),
        }
    )
    assert tfr.tf.feature_spec(dd.from_pandas(frame, npartitions=1)) == {
        "n": tf.io.FixedLenFeature([], tf.int64),
        "ok": tf.io.FixedLenFeature([], tf.int64),
        "x": tf.io.RaggedFeature(tf.float32),
        "text": tf.io.RaggedFeature(tf.string),
        "maybe": tf.io.RaggedFeature(tf.int64),
    }


def test_spec_of_a_dask_frame_of_objects(tf: Any) -> None:
    import dask
    import dask.dataframe as dd

    frame = pd.DataFrame({"list": [[1, 2], [3]], "raw": [b"a", None], "x": [0.5, 1.0]})
    with dask.config.set({"dataframe.convert-string": False}):
        frames = dd.from_pandas(frame, npartitions=1)
    assert tfr.tf.feature_spec(frames) == {
        "list": tf.io.RaggedFeature(tf.int64),
        "raw": tf.io.RaggedFeature(tf.string),
        "x": tf.io.RaggedFeature(tf.float32),
    }


def test_spec_of_spark_types(tf: Any) -> None:
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    struct = StructType(
        [
            StructField("n", LongType(), nullable=False),
            StructField("text", StringType(), nullable=True),
            StructField("list", ArrayType(LongType()), nullable=False),
        ]
    )
    assert tfr.tf.feature_spec(struct) == {
        "n": tf.io.FixedLenFeature([], tf.int64),
        "text": tf.io.RaggedFeature(tf.string),
        "list": tf.io.RaggedFeature(tf.int64),
    }


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"required": ["none"]}, "required names 'none'"),
        ({"required": 1}, "required is 1"),
        ({"defaults": "x"}, "defaults is a str"),
        ({"defaults": {"none": 1}}, "defaults names 'none'"),
        ({"defaults": {"list": 1}}, "'list', which holds lists"),
        ({"defaults": {"x": "text"}}, "defaults gives 'x' 'text': "),
        ({"defaults": {"x": [1, 2]}}, r"defaults gives 'x' \[1, 2\]: .* 2 elements"),
    ],
)
def test_bad_arguments_of_specs(tf: Any, options: dict[str, Any], what: str) -> None:
    schema = pa.schema([("x", pa.int64()), ("list", pa.list_(pa.int64()))])
    with pytest.raises(tfr.OptionError, match=what):
        tfr.tf.feature_spec(schema, **options)
    steps = pa.schema([("steps", pa.list_(pa.list_(pa.int64())))])
    with pytest.raises(tfr.OptionError, match="defaults names 'steps', a list of lists"):
        tfr.tf.feature_spec(steps, record_type="SequenceExample", defaults={"steps": [1]})
    with pytest.raises(tfr.OptionError, match="schema is a int"):
        tfr.tf.feature_spec(3)
    with pytest.raises(tfr.OptionError, match="features is a list"):
        tfr.tf.dataset("none", batch_size=1, features=["x"])
    with pytest.raises(tfr.UnsupportedTypeError, match="no record has a value of column 'x'"):
        tfr.tf.feature_spec(pa.schema([("x", pa.null())]))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"columns": "n"}, "columns is 'n'; it must be a list"),
        ({"columns": "n", "label": "m"}, "columns is 'n'; it must be a list"),
        ({"columns": 5, "label": "m"}, "columns is 5; it must be a list"),
        ({"columns": iter(["n"]), "label": "m"}, "columns is <.*; it must be a list"),
        ({"columns": []}, "columns is empty"),
        ({"columns": ["n"], "label": "n"}, "label is 'n', which columns must not name as well"),
        ({"label": "none"}, "label is 'none'; the data set has .*'n', 'm', 'half'"),
        ({"features": True, "columns": "n"}, "columns is 'n'; it must be a list"),
        ({"features": True, "defaults": {"n": 1}}, "features says what schema and defaults would"),
        ({"features": True, "schema": TABLE.schema}, "features says what schema and defaults"),
    ],
)
def test_bad_arguments_of_datasets(tf: Any, data: Path, options: dict[str, Any], what: str) -> None:
    if "features" in options:
        options = {**options, "features": {"n": tf.io.FixedLenFeature([], tf.int64)}}
    with pytest.raises(tfr.OptionError, match=what):
        tfr.tf.dataset(data, batch_size=10, **options)


def test_a_dataset_by_a_specification(tf: Any, data: Path) -> None:
    features = {
        "n": tf.io.FixedLenFeature([], tf.int64),
        "pair": tf.io.FixedLenFeature([2, 1], tf.int64),
        "list": tf.io.VarLenFeature(tf.int64),
        "words": tf.io.RaggedFeature(tf.string),
        "none": tf.io.FixedLenFeature([], tf.float32, [0.5]),
    }
    files = sorted(map(str, data.glob("part-*")))
    records = tf.data.TFRecordDataset(files).batch(50)
    theirs = records.map(lambda batch: tf.io.parse_example(batch, features))
    ours = tfr.tf.dataset(data, batch_size=50, features=features)
    for mine, other in zip(ours, theirs, strict=True):
        for name in features:
            one, two = mine[name], other[name]
            if isinstance(two, tf.RaggedTensor):
                assert one.row_splits.dtype == two.row_splits.dtype
            if isinstance(two, tf.SparseTensor):
                one, two = tf.sparse.to_dense(one), tf.sparse.to_dense(two)
            assert listed(one) == listed(two), name


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize(
    ("leaf", "shape", "default"),
    [
        (pa.int64(), [], None),
        (pa.int64(), [], -1),
        (pa.int64(), [], [7]),
        (pa.int64(), [2], 5),
        (pa.float32(), [2, 1], None),
        (pa.float32(), [], float("nan")),
        (pa.string(), [], None),
        (pa.string(), [1, 2], "none"),
    ],
)
def test_lists_that_are_filled_up(
    tf: Any,
    tmp_path: Path,
    leaf: pa.DataType,
    shape: list[int],
    default: Any,
    size: int,
    drop_remainder: bool,
) -> None:
    dtype = {pa.float32(): tf.float32, pa.int64(): tf.int64}.get(leaf, tf.string)
    counts = [0, 4, None, 2, None, 0, 6, None, None, None, 2]
    rows = [
        None if n is None else ["v" * size] * n if dtype == tf.string else [*range(1, n + 1)]
        for n in counts
    ]
    tfr.write_table(pa.table({"x": pa.array(rows, pa.list_(leaf))}), tmp_path / "data")
    features = {"x": tf.io.FixedLenSequenceFeature(shape, dtype, True, default)}
    files = sorted(map(str, (tmp_path / "data").glob("part-*")))
    records = tf.data.TFRecordDataset(files).batch(3, drop_remainder)
    theirs = records.map(lambda batch: tf.io.parse_example(batch, features))
    ours = tfr.tf.dataset(
        tmp_path / "data", batch_size=3, features=features, drop_remainder=drop_remainder
    )
    assert ours.element_spec["x"].shape.as_list() == theirs.element_spec["x"].shape.as_list()
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["x"].shape == other["x"].shape
        np.testing.assert_array_equal(mine["x"].numpy(), other["x"].numpy())


@pytest.mark.parametrize(
    ("feature", "what"),
    [
        (([2], "int64"), "say so by allow_missing=True"),
        (([0], "int64", True), "holds no values"),
        (([None], "int64", True), "its shape must be known"),
        (([2], "int64", True, "a"), "whose default is of another type"),
        (([2], "int64", True, [1, 2]), "as many values as its shape, 1"),
    ],
)
def test_sequences_that_tensorflow_does_not_take_either(
    tf: Any, data: Path, feature: Any, what: str
) -> None:
    features = {"list": tf.io.FixedLenSequenceFeature(*feature)}
    record = example(list=[1, 2])
    # It takes this one, so the others' errors are not about the record.
    taken = {"list": tf.io.FixedLenSequenceFeature([2], "int64", allow_missing=True)}
    assert tf.io.parse_example([record], taken)["list"].numpy().tolist() == [[[1, 2]]]
    # By a shape without values it divides, which ends the process.
    if feature[0] != [0]:
        with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
            tf.io.parse_example([record], features)
    with pytest.raises(tfr.OptionError, match=what):
        tfr.tf.dataset(data, batch_size=10, features=features)


def test_lists_that_are_no_whole_number_of_steps(tf: Any, tmp_path: Path) -> None:
    tfr.write_table(pa.table({"x": [[1, 2], [3]]}), tmp_path / "data")
    features = {"x": tf.io.FixedLenSequenceFeature([2], tf.int64, True)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="no whole number of steps of 2"):
        list(tfr.tf.dataset(tmp_path / "data", batch_size=2, features=features))


@pytest.mark.parametrize(
    ("leaf", "shape", "default"),
    [
        (pa.float32(), [3], [4.0, 5, 6]),
        (pa.float32(), [3], (0, 0, 0)),
        (pa.float32(), [3], np.array([[1.5], [2.5], [3.5]])),
        (pa.float32(), [3, 1], [7.0, 8.0, 9.0]),
        (pa.float32(), [1, 3], [[float("inf"), 8.0, 9.0]]),
        (pa.string(), [3], ["x", "é", ""]),
        (pa.string(), [3, 1], np.array([b"x", b"\xff", b"z"])),
        (pa.int64(), [3], [1, -2, 2**63 - 1]),
        (pa.int64(), [3], [True, False, True]),
        (pa.int64(), [1], 5),
        (pa.float32(), [1, 1], [5.5]),
        (pa.string(), [1], "x"),
        (pa.int64(), [], [[5]]),
        (pa.string(), [], np.array(["x"])),
        (pa.float32(), [], 0.1),
    ],
)
def test_defaults_of_a_specification(
    tf: Any, tmp_path: Path, leaf: pa.DataType, shape: list[int], default: Any, size: int
) -> None:
    dtype = {pa.float32(): tf.float32, pa.int64(): tf.int64}.get(leaf, tf.string)
    count = int(np.prod(shape))
    value = ["v" * size] * count if dtype == tf.string else list(range(1, count + 1))
    rows = [None, value, None, None, value, value, None]
    table = pa.table({"x": pa.array(rows, pa.list_(leaf)), "n": range(7)})
    tfr.write_table(table, tmp_path / "data", rows_per_task=4)
    features = {
        "x": tf.io.FixedLenFeature(shape, dtype, default),
        "n": tf.io.FixedLenFeature([], tf.int64),
    }
    files = sorted(map(str, (tmp_path / "data").glob("part-*")))
    records = tf.data.TFRecordDataset(files).batch(3)
    theirs = records.map(lambda batch: tf.io.parse_example(batch, features))
    ours = tfr.tf.dataset(tmp_path / "data", batch_size=3, features=features)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["x"].dtype == other["x"].dtype
        assert mine["x"].shape == other["x"].shape
        assert listed(mine["x"]) == listed(other["x"])


@pytest.mark.parametrize(
    ("shape", "default", "what"),
    [
        ([3], 0, "as many values as its shape, 3"),
        ([3], [0], "as many values as its shape, 3"),
        ([2, 2], [[0, 0]], "as many values as its shape, 4"),
        ([], [1, 2], "as many values as its shape, 1"),
        ([2], ["a", "b"], "whose default is of another type"),
        ([2], [1.5, 2], "whose default is of another type"),
        ([None], 0, "its shape must be known"),
    ],
)
def test_defaults_that_tensorflow_does_not_take_either(
    tf: Any, data: Path, shape: list[Any], default: Any, what: str
) -> None:
    features = {"list": tf.io.FixedLenFeature(shape, tf.int64, default)}
    record = tf.train.Example().SerializeToString()
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        tf.io.parse_example([record], features)
    with pytest.raises(tfr.OptionError, match=what):
        tfr.tf.dataset(data, batch_size=10, features=features)


def test_a_default_does_not_stand_for_another_length(tf: Any, tmp_path: Path) -> None:
    tfr.write_table(pa.table({"x": [[1, 2, 3], [4]]}), tmp_path / "data")
    features = {"x": tf.io.FixedLenFeature([3], tf.int64, [0, 0, 0])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="'x'"):
        list(tfr.tf.dataset(tmp_path / "data", batch_size=10, features=features))


def test_a_specification_of_another_kind(tf: Any, data: Path) -> None:
    for kind, column in ((tf.float32, "n"), (tf.int64, "text"), (tf.string, "half")):
        features = {column: tf.io.FixedLenFeature([], kind)}
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"'{column}'"):
            list(tfr.tf.dataset(data, batch_size=10, features=features))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'list'"):
        features = {"list": tf.io.FixedLenFeature([1], tf.int64)}
        list(tfr.tf.dataset(data, batch_size=10, features=features))
    with pytest.raises(tfr.OptionError, match=r"float64.*must be a FixedLenFeature"):
        double = tf.io.VarLenFeature(tf.float64)
        tfr.tf.dataset(data, batch_size=10, features={"x": double})


def write_frames(target: Path, size: int, *, has_all: bool = False) -> list[bytes]:
    """Write videos as YouTube-8M has them, some of them without frames; return the records."""
    rows = [
        {
            "rgb": [["v" * size + str(n)]] * (n % 4),
            "pose": [[step, 1.0, 2.0, n] for step in range(n % 4)],
            "words": [[f"{step}"] * step for step in range(n % 4)],
        }
        if n % 5 != 4 or has_all
        else {}
        for n in range(11)
    ]
    text, numbers = pa.list_(pa.list_(pa.string())), pa.list_(pa.list_(pa.float32()))
    table = pa.table(
        {
            "id": ["video"] * 11,
            "labels": [list(range(n % 3)) for n in range(11)],
            "rgb": pa.array([row.get("rgb") for row in rows], text),
            "pose": pa.array([row.get("pose") for row in rows], numbers),
            "words": pa.array([row.get("words") for row in rows], text),
        }
    )
    tfr.write_table(table, target, record_type="SequenceExample")
    (part,) = target.glob("part-*")
    return list(tfr.TFRecordReader(part))


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_a_specification_of_a_sequence(
    tf: Any, tmp_path: Path, size: int, drop_remainder: bool
) -> None:
    io = tf.io
    rows = write_frames(tmp_path / "data", size)
    context = {
        "id": io.FixedLenFeature([], tf.string),
        "labels": io.VarLenFeature(tf.int64),
        "none": io.FixedLenFeature([], tf.int64, -1),
    }
    for steps in (
        {
            "rgb": io.FixedLenSequenceFeature([], tf.string, allow_missing=True),
            "pose": io.FixedLenSequenceFeature([4], tf.float32, allow_missing=True),
            "absent": io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True),
            "words": io.VarLenFeature(tf.string),
        },
        {
            "rgb": io.RaggedFeature(tf.string),
            "pose": io.FixedLenSequenceFeature([2, 1, 2], tf.float32, allow_missing=True),
            "text": io.RaggedFeature(tf.string, "words", row_splits_dtype=tf.int64),
        },
    ):
        ours = tfr.tf.dataset(
            tmp_path / "data",
            batch_size=4,
            features=(context, steps),
            record_type="SequenceExample",
            drop_remainder=drop_remainder,
        )
        records = tf.data.Dataset.from_tensor_slices(rows).batch(4, drop_remainder)
        for mine, batch in zip(ours, records, strict=True):
            ones, lists, _ = io.parse_sequence_example(batch, context, steps)
            theirs = {**ones, **lists}
            assert mine.keys() == theirs.keys()
            for name, two in theirs.items():
                one = mine[name]
                assert type(one) is type(two), name
                if isinstance(two, tf.RaggedTensor):
                    assert one.row_splits.dtype == two.row_splits.dtype
                if isinstance(two, tf.SparseTensor):
                    assert one.dense_shape.numpy().tolist() == two.dense_shape.numpy().tolist()
                    one, two = tf.sparse.to_dense(one), tf.sparse.to_dense(two)
                assert listed(one) == listed(two), name
                assert one.dtype == two.dtype


def test_feature_spec_of_a_sequence_says_what_a_dataset_reads(tf: Any, tmp_path: Path) -> None:
    write_frames(tmp_path / "data", 1, has_all=True)
    spec = tfr.tf.feature_spec(tmp_path / "data", record_type="SequenceExample")
    arguments: dict[str, Any] = {"batch_size": 11, "record_type": "SequenceExample"}
    (one,) = tfr.tf.dataset(tmp_path / "data", features=spec, **arguments)
    (two,) = tfr.tf.dataset(tmp_path / "data", **arguments)
    assert {name: listed(one[name]) for name in one} == {name: listed(two[name]) for name in two}
    (pair,) = tfr.tf.dataset(tmp_path / "data", features=spec, label="labels", **arguments)
    assert listed(pair[1]) == listed(two["labels"])
    assert sorted(pair[0]) == ["id", "pose", "rgb", "words"]


def test_feature_lists_that_do_not_fit_a_specification(tf: Any, tmp_path: Path) -> None:
    io = tf.io
    rows = write_frames(tmp_path / "data", 1)
    arguments: dict[str, Any] = {"batch_size": 11, "record_type": "SequenceExample"}
    for steps, what in (
        ({"pose": io.FixedLenSequenceFeature([4], tf.float32)}, "'pose' is missing"),
        ({"pose": io.FixedLenSequenceFeature([3], tf.float32, True)}, "asks for 3"),
        ({"pose": io.VarLenFeature(tf.int64)}, "'pose'"),
        ({"id": io.VarLenFeature(tf.string)}, "'id'"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=what):
            list(tfr.tf.dataset(tmp_path / "data", features=({}, steps), **arguments))
        if "id" not in steps:
            with pytest.raises(tf.errors.InvalidArgumentError):
                io.parse_sequence_example(rows, {}, steps)


def test_specifications_of_sequences_that_are_refused(tf: Any, tmp_path: Path) -> None:
    io = tf.io
    rows = write_frames(tmp_path / "data", 1)
    arguments: dict[str, Any] = {"batch_size": 11, "record_type": "SequenceExample"}
    for feature, what in (
        (io.FixedLenFeature([4], tf.float32), "of a feature list it must be"),
        (io.SparseFeature("at", "pose", tf.float32, 4), "of a feature list it must be"),
        (io.FixedLenSequenceFeature([4], tf.float32, True, 7.0), "has no default_value"),
    ):
        with pytest.raises(ValueError, match=r"Unsupported|must be None"):
            io.parse_sequence_example(rows, {}, {"pose": feature})
        with pytest.raises(tfr.OptionError, match=what):
            tfr.tf.dataset(tmp_path / "data", features=({}, {"pose": feature}), **arguments)
    kind = io.VarLenFeature(tf.float32)
    by_two = io.RaggedFeature(tf.float32, partitions=[io.RaggedFeature.UniformRowLength(2)])
    for features, what in (
        (({}, {"pose": by_two}), "RaggedFeature without partitions"),
        (({}, {"pose": io.FixedLenSequenceFeature([None], tf.float32)}), "shape must be known"),
        (({"x": kind}, {"x": kind}), "'x' in the context and among the feature lists"),
        (({"x": kind}, {"x": kind}, {}), "a tuple of 3"),
        ({"pose": io.FixedLenSequenceFeature([4], tf.float32)}, "second of two mappings"),
    ):
        with pytest.raises(tfr.OptionError, match=what):
            tfr.tf.dataset(tmp_path / "data", features=features, **arguments)
    with pytest.raises(tfr.OptionError, match='record_type="SequenceExample"'):
        tfr.tf.dataset(tmp_path / "data", batch_size=2, features=({}, {"pose": kind}))


def test_a_missing_value_of_a_specification_is_told_what_to_do(tf: Any, tmp_path: Path) -> None:
    """It must not advise defaults, which are refused beside features."""
    tfr.write_table(pa.table({"x": [1, None]}), tmp_path / "data")
    for shape in ([], [1]):
        features = {"x": tf.io.FixedLenFeature(shape, tf.int64)}
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'x'.*default_value") as error:
            list(tfr.tf.dataset(tmp_path / "data", batch_size=2, features=features))
        assert "defaults=" not in str(error.value).partition("Traceback")[0]
        features = {"x": tf.io.FixedLenFeature(shape, tf.int64, -1)}
        (batch,) = tfr.tf.dataset(tmp_path / "data", batch_size=2, features=features)
        assert batch["x"].numpy().ravel().tolist() == [1, -1]


#: Rows of values in lists, [2 values, 1], none, none, and [3 values, none, 1, 2], in all the forms
#: that tf.io.RaggedFeature knows; and places of these values in a matrix of 3 by 13.
PARTS: list[dict[str, list[int]]] = [
    {
        "splits": [0, 2, 3],
        "lengths": [2, 1],
        "starts": [0, 2],
        "limits": [2, 3],
        "ids": [0, 0, 1],
        "at": [5, 10, 2],
        "to": [0, 2, 1],
    },
    {"splits": [0], "lengths": [], "starts": [], "limits": [], "ids": [], "at": [], "to": []},
    {},
    {
        "splits": [0, 3, 3, 4, 6],
        "lengths": [3, 0, 1, 2],
        "starts": [0, 3, 3, 4],
        "limits": [3, 3, 4, 6],
        "ids": [0, 0, 0, 2, 3, 3],
        "at": [12, 0, 7, 9, 1, 2],
        "to": [0, 1, 2, 1, 0, 0],
    },
]


def of_parts(tf: Any, dtype: Any, splits: Any) -> dict[str, Any]:
    """Features made of the columns of `PARTS`, and of values in "v" and "w"."""
    kinds = tf.io.RaggedFeature

    def ragged(*partitions: Any) -> Any:
        return kinds(dtype, "v", partitions, splits)

    return {
        "whole": ragged(),
        "splits": ragged(kinds.RowSplits("splits")),
        "lengths": ragged(kinds.RowLengths("lengths")),
        "by starts": ragged(kinds.RowStarts("starts")),
        "by limits": ragged(kinds.RowLimits("limits")),
        "by ids": ragged(kinds.ValueRowIds("ids")),
        "threes": ragged(kinds.UniformRowLength(3)),
        "ones": ragged(kinds.RowLengths("lengths"), kinds.UniformRowLength(1)),
        "twice": ragged(kinds.UniformRowLength(2), kinds.RowSplits("splits")),
        "thrice": ragged(
            kinds.UniformRowLength(1), kinds.UniformRowLength(2), kinds.RowLengths("lengths")
        ),
        "sparse": tf.io.SparseFeature("at", "w", dtype, 13),
        "unsorted": tf.io.SparseFeature(["at"], "w", dtype, [13], already_sorted=True),
        "matrix": tf.io.SparseFeature(["to", "at"], "w", dtype, [3, 13]),
        # As in TensorFlow's own test: nobody compares indices with the size.
        "too small": tf.io.SparseFeature("at", "w", dtype, 7),
    }


def plain(tensor: Any) -> Any:
    """All that there is to say of a tensor, to compare it."""
    if hasattr(tensor, "dense_shape"):
        return [
            part.numpy().tolist() for part in (tensor.indices, tensor.values, tensor.dense_shape)
        ]
    return tensor.shape.as_list(), listed(tensor)


@pytest.mark.parametrize(
    ("size", "leaf", "splits"),
    [
        (1, pa.int64(), "int32"),
        (3000, pa.float32(), "int64"),
        (1, pa.string(), "int32"),
        (3000, pa.string(), "int64"),
    ],
    indirect=["size"],
)
def test_features_of_several_columns(
    tf: Any, tmp_path: Path, leaf: pa.DataType, splits: str, size: int
) -> None:
    dtype = {pa.float32(): tf.float32, pa.int64(): tf.int64}.get(leaf, tf.string)
    values = ["v" * size, "", "x", "é", "w", "y"] if dtype == tf.string else [1, 2, 3, 4, 5, 6]
    rows = [
        {**row, "v": values[: len(row["at"])], "w": values[: len(row["at"])]} if row else row
        for row in PARTS * 2
    ]
    integers = [pa.field(name, pa.list_(pa.int64())) for name in PARTS[0]]
    schema = pa.schema([*integers, ("v", pa.list_(leaf)), ("w", pa.list_(leaf))])
    tfr.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "data", rows_per_task=5)
    features = of_parts(tf, dtype, splits)
    files = sorted(map(str, (tmp_path / "data").glob("part-*")))
    records = tf.data.TFRecordDataset(files).batch(3)
    theirs = records.map(lambda batch: tf.io.parse_example(batch, features))
    ours = tfr.tf.dataset(tmp_path / "data", batch_size=3, features=features)
    assert list(ours.element_spec) == list(features)
    assert ours.element_spec == theirs.element_spec
    for mine, other in zip(ours, theirs, strict=True):
        for name in features:
            assert plain(mine[name]) == plain(other[name]), name


def test_features_of_several_columns_among_others(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"v": [[1, 2], [3]], "at": [[7, 0], [1]], "n": [1, 2], "at2": [[1], [1]]})
    tfr.write_table(table, tmp_path / "data")
    sparse = tf.io.SparseFeature("at", "v", tf.int64, 9)
    features = {
        # By the name of a column that the others are made of.
        "v": sparse,
        "at": tf.io.VarLenFeature(tf.int64),
        "n": tf.io.FixedLenFeature([], tf.int64),
        "not there": tf.io.SparseFeature("none", "nothing", tf.string, 9),
    }
    ((mine, label),) = tfr.tf.dataset(tmp_path / "data", batch_size=2, features=features, label="v")
    assert list(mine) == ["at", "n", "not there"]
    assert listed(tf.sparse.to_dense(label)) == [[2, 0, 0, 0, 0, 0, 0, 1, 0], [0, 3] + [0] * 7]
    assert listed(tf.sparse.to_dense(mine["at"])) == [[7, 0], [1, 0]]
    assert mine["not there"].dense_shape.numpy().tolist() == [2, 9]
    (batch,) = tfr.tf.dataset(
        tmp_path / "data", batch_size=2, features=features, columns=["n", "v"], drop_remainder=True
    )
    assert list(batch) == ["n", "v"]
    assert batch["v"].values.numpy().tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("RowLengths", [[5], []]),
        ("RowLengths", [[3], [1]]),
        ("RowLengths", [[3, -1], [3]]),
        ("RowLengths", [[], [3]]),
        ("RowSplits", [[0, 2], [0, 4]]),
        ("RowSplits", [[0, 2, 1, 2], [0, 3]]),
        ("RowLimits", [[1], [3]]),
        ("RowLimits", [[2], [2]]),
        ("RowStarts", [[0], [1]]),
        ("RowStarts", [[1], [0]]),
        ("RowStarts", [[0, 3], [0]]),
        ("RowStarts", [[0], []]),
        ("ValueRowIds", [[0], [0, 0, 0, 1]]),
        ("ValueRowIds", [[0, 1, 1], [0, 0]]),
        ("ValueRowIds", [[1, 0], [0, 0, 0]]),
        ("ValueRowIds", [[0, 0], [-1, 0, 0]]),
        ("ValueRowIds", [[-1, 0], [0, 0, 0]]),
        ("UniformRowLength", 2),
        ("SparseFeature", [[1], [1, 2, 3, 4]]),
        ("SparseFeature", [[1, 2], []]),
    ],
)
def test_parts_that_do_not_fit_their_values(tf: Any, kind: str, parts: Any) -> None:
    """The values are two and three. TensorFlow moves some to the other row, or drops them."""
    if kind == "SparseFeature":
        feature = tf.io.SparseFeature("p", "v", tf.int64, 9)
    else:
        partition = getattr(tf.io.RaggedFeature, kind)("p" if isinstance(parts, list) else parts)
        feature = tf.io.RaggedFeature(tf.int64, "v", [partition])
    tensors = {"v": tf.ragged.constant([[1, 2], [3, 4, 5]], tf.int64, row_splits_dtype=tf.int64)}
    if isinstance(parts, list):
        tensors["p"] = tf.ragged.constant(parts, tf.int64, 1, row_splits_dtype=tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature x: "):
        conformed("x", feature, tensors)


def test_parts_that_do_not_fit_are_told_while_reading(tf: Any, tmp_path: Path) -> None:
    tfr.write_table(pa.table({"v": [[1, 2], [3]], "p": [[1], [1, 1]]}), tmp_path / "data")
    sparse = tf.io.SparseFeature("p", "v", tf.int64, 9)
    by_lengths = tf.io.RaggedFeature(tf.int64, "v", [tf.io.RaggedFeature.RowLengths("p")])
    in_twos = tf.io.RaggedFeature(tf.int64, "v", [tf.io.RaggedFeature.UniformRowLength(2)])
    for feature, what in (
        (sparse, "x: p must have as many values as v"),
        (by_lengths, "x: its values cannot be divided by RowLengths, p"),
        (in_twos, "x: its values cannot be divided by UniformRowLength, 2"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"feature {what}"):
            list(tfr.tf.dataset(tmp_path / "data", batch_size=2, features={"x": feature}))


def test_features_of_several_columns_that_are_refused(tf: Any, data: Path) -> None:
    ragged, sparse = tf.io.RaggedFeature, tf.io.SparseFeature
    for features, what in (
        ({"x": sparse(["n", "m"], "half", tf.float32, [9])}, "a size for each index_key"),
        ({"x": sparse([], "half", tf.float32, [])}, "a size for each index_key"),
        ({"x": sparse(None, "half", tf.float32, 9)}, "a size for each index_key"),
        ({"x": sparse("n", "half", tf.float32, None)}, "a size for each index_key"),
        ({"x": sparse("n", None, tf.float32, 9)}, "must have a value_key"),
        ({"x": sparse("n", "half", None, 9)}, "of int64, float32 or string"),
        ({"x": tf.io.VarLenFeature("number")}, "of int64, float32 or string"),
        ({"x": ragged(tf.int64, "n", [ragged.UniformRowLength(0)])}, "hold no values"),
        (
            {"list": tf.io.FixedLenFeature([2], tf.int64), "x": ragged(tf.int64, "list")},
            r"'list' as fixed_size_list<.*and, for 'x', as list<",
        ),
        (
            {"x": ragged(tf.int64, "list"), "y": ragged(tf.float32, "list")},
            r"'list' as list<.*int64> and, for 'y', as list<.*float>",
        ),
    ):
        with pytest.raises(tfr.OptionError, match=what):
            tfr.tf.dataset(data, batch_size=10, features=features)


def test_an_empty_list_of_another_kind_has_no_values(tf: Any, tmp_path: Path) -> None:
    # Feature 'x' of the second record is a FloatList without values.
    empty = frame(bytes.fromhex("0a090a070a017812021200"))
    (tmp_path / "a").write_bytes(examples({"x": 5}) + empty)

    def batches(feature: Any) -> list[Any]:
        return list(tfr.tf.dataset(tmp_path / "a", batch_size=2, features={"x": feature}))

    (batch,) = batches(tf.io.RaggedFeature(tf.int64))
    assert listed(batch["x"]) == [[5], []]
    (batch,) = batches(tf.io.VarLenFeature(tf.int64))
    assert listed(tf.sparse.to_dense(batch["x"])) == [[5], [0]]
    for shape in ([], [1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="has 0 values"):
            batches(tf.io.FixedLenFeature(shape, tf.int64))


def test_a_dataset_needs_a_column(tf: Any, data: Path) -> None:
    for asked in ({"columns": []}, {"features": {}}):
        with pytest.raises(tfr.OptionError, match="columns is empty"):
            tfr.tf.dataset(data, batch_size=10, **asked)
