"""`tfr.batches`: which rows, in which order, as which arrays. The values are those of pyarrow."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.support.frames import example, examples, frame
from tfrecord_io import parallel
from tfrecord_io.tensors import rows as training_rows
from tfrecord_io.tensors.numpy_batches import Ragged

ROWS = 1000
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS)),
        "half": pa.array([n / 2 for n in range(ROWS)], pa.float32()),
        "even": pa.array([n % 2 == 0 for n in range(ROWS)]),
        "small": pa.array([n % 100 for n in range(ROWS)], pa.uint8()),
        "text": pa.array([f"ä{n}" for n in range(ROWS)]),
        "raw": pa.array([bytes([n % 256]) for n in range(ROWS)]),
        "pair": pa.array([[n, -n] for n in range(ROWS)], pa.list_(pa.int64(), 2)),
        "list": pa.array([list(range(n % 4)) for n in range(ROWS)]),
        "words": pa.array([["w"] * (n % 3) for n in range(ROWS)]),
        "part": pa.array([n * 4 // ROWS for n in range(ROWS)]),
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("batches") / "data"
    tfr.write_table(TABLE, target, partition_by="part", rows_per_task=70)
    return str(target)


def numbers(batches: Any, name: str = "n") -> list[int]:
    return [int(n) for batch in batches for n in batch[name]]


def rows_of(value: Any) -> list[Any]:
    if not isinstance(value, Ragged):
        return value.tolist()  # type: ignore[no-any-return]
    values = rows_of(value.values)
    return [values[a:b] for a, b in zip(value.row_splits, value.row_splits[1:], strict=False)]


@pytest.mark.parametrize("batch_size", [1, 64, 1000, 5000])
def test_values_are_those_of_the_table(data: str, batch_size: int) -> None:
    table = tfr.read_table(data)
    batches = list(tfr.batches(data, batch_size=batch_size))
    assert [len(batch["n"]) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    for name in table.column_names:
        found = [row for batch in batches for row in rows_of(batch[name])]
        assert found == table[name].to_pylist(), name


def test_types(data: str) -> None:
    (batch,) = tfr.batches(data, batch_size=ROWS)
    dtypes = {name: getattr(value, "dtype", None) for name, value in batch.items()}
    assert dtypes == {
        "n": np.int64,
        "half": np.float32,
        "even": np.bool_,
        "small": np.uint8,
        "text": np.object_,
        "raw": np.object_,
        "pair": np.int64,
        "list": None,
        "words": None,
        "part": np.int64,
    }
    assert batch["pair"].shape == (ROWS, 2)
    assert batch["list"].row_splits.dtype == np.int64
    assert {type(value) for value in batch["text"]} == {str}
    batch["n"][0] = 7


def test_what_is_no_number_becomes_one(tmp_path: Path) -> None:
    day = datetime.date(1970, 1, 3)
    table = pa.table(
        {
            "day": [day],
            "time": pa.array([datetime.time(0, 0, 1)], pa.time32("s")),
            "at": pa.array([5], pa.timestamp("us", "UTC")),
            "price": [decimal.Decimal("1.5")],
            "code": pa.array(["a"]).dictionary_encode(),
            "key": pa.array([b"ab"], pa.binary(2)),
            "days": [[day]],
            "f16": pa.array([1.5], pa.float16()),
        }
    )
    tfr.write_table(table, tmp_path / "data", float64="cast")
    (batch,) = tfr.batches(tmp_path / "data", batch_size=1, schema=table.schema)
    assert [rows_of(value) for value in batch.values()] == [
        [2],
        [1],
        [5],
        [1.5],
        ["a"],
        [b"ab"],
        [[2]],
        [1.5],
    ]
    assert batch["f16"].dtype == np.float16


def test_decimals_become_the_nearest_floats(tmp_path: Path) -> None:
    # Arrow's own cast makes 0.7000000000000001 of the first.
    numbers = [decimal.Decimal(text) for text in ("0.700", "123.456", "-0.007")]
    table = pa.table({"x": pa.array(numbers, pa.decimal128(9, 3)), "list": [numbers, [], None]})
    tfr.write_table(table, tmp_path / "data", float64="cast")
    (batch,) = tfr.batches(tmp_path / "data", batch_size=3)
    assert batch["x"].tolist() == [0.7, 123.456, -0.007]
    assert rows_of(batch["list"]) == [[0.7, 123.456, -0.007], [], []]


@pytest.mark.parametrize("shuffle", [False, 250])
def test_dictionaries_of_several_files(tmp_path: Path, shuffle: bool | int) -> None:
    # A file has 100 values, and 128 are all that an index of eight bits reaches.
    table = pa.table(
        {
            "code": [f"v{n}" for n in range(300)],
            "codes": [[f"v{n}"] * (n % 3) for n in range(300)],
            "pair": [[n, -n] for n in range(300)],
        }
    )
    tfr.write_table(table, tmp_path / "data", rows_per_task=100)
    code = pa.dictionary(pa.int8(), pa.string_view())
    pair = pa.dictionary(pa.int8(), pa.list_(pa.int64(), 2))
    schema = pa.schema([("code", code), ("codes", pa.list_(code)), ("pair", pair)])
    (batch,) = tfr.batches(tmp_path / "data", batch_size=300, schema=schema, shuffle=shuffle)
    for name in table.column_names:
        assert sorted(rows_of(batch[name])) == sorted(table[name].to_pylist()), name


def test_sequences(tmp_path: Path) -> None:
    steps = [[[1, 2], []], [], None, [[3]]]
    table = pa.table({"steps": steps, "id": [0, 1, 2, 3]})
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    batches = tfr.batches(tmp_path / "data", batch_size=3, record_type="SequenceExample")
    assert [rows_of(batch["steps"]) for batch in batches] == [[[[1, 2], []], [], []], [[[3]]]]


@pytest.mark.parametrize(
    ("t", "rows"),
    [
        (pa.list_(pa.list_(pa.int64()), 2), [[[1, 2, 3], [4]], [[5], [6, 7, 8]], [[], [9]]]),
        (pa.list_(pa.list_(pa.string()), 1), [[["a", "b"]], [[]], [["c"]]]),
        (pa.list_(pa.list_(pa.int64()), 0), [[], []]),
        (pa.list_(pa.list_(pa.int64(), 2)), [[[1, 2], [3, 4]], [], [[5, 6]]]),
    ],
)
def test_fixed_size_lists_among_lists(tmp_path: Path, t: pa.DataType, rows: list[Any]) -> None:
    table = pa.table({"steps": pa.array(rows, t)})
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    batches = tfr.batches(tmp_path / "data", batch_size=2, record_type="SequenceExample")
    assert [row for batch in batches for row in rows_of(batch["steps"])] == rows


def test_nulls(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": [1, None],
            "word": [None, "b"],
            "pair": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
            "list": [None, [1]],
        }
    )
    tfr.write_table(table, tmp_path / "data")
    columns = ["x", "word", "pair", "list"]
    defaults = {"x": -1, "word": "?", "pair": [8, 9]}
    (batch,) = tfr.batches(tmp_path / "data", batch_size=2, columns=columns, defaults=defaults)
    assert [rows_of(value) for value in batch.values()] == [
        [1, -1],
        ["?", "b"],
        [[1, 2], [8, 9]],
        [[], [1]],
    ]
    with pytest.raises(tfr.SchemaMismatchError, match=r"no value of column 'x'.*defaults"):
        list(tfr.batches(tmp_path / "data", batch_size=2, columns=["x"]))
    with pytest.raises(tfr.SchemaMismatchError, match=r"column 'pair'.*lists of any length"):
        list(tfr.batches(tmp_path / "data", batch_size=2, columns=["pair"]))


def test_a_step_that_is_null_is_told_without_a_default_that_there_is_none_for(tmp_path):
    steps = pa.list_(pa.list_(pa.int32(), 2))
    table = pa.table({"x": pa.array([[[1, 2], None]], steps)})
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    with pytest.raises(tfr.SchemaMismatchError, match="lists of any length") as caught:
        list(tfr.batches(tmp_path / "data", batch_size=1, record_type="SequenceExample"))
    assert "defaults" not in str(caught.value)


def test_numbers_may_be_of_numpy(data: str) -> None:
    def rows(number: Any) -> list[list[int]]:
        batches = tfr.batches(
            data,
            batch_size=number(10),
            columns=["n"],
            shuffle=number(50),
            seed=number(1),
            shard=(number(0), number(1)),
        )
        return [batch["n"].tolist() for batch in batches]

    assert rows(np.int64) == rows(int)


@pytest.mark.parametrize(
    ("t", "default"),
    [
        (pa.int64(), 1.5),
        (pa.int8(), -0.5),
        (pa.int64(), decimal.Decimal("0.5")),
        (pa.uint16(), np.float32(0.25)),
        (pa.float32(), 1e40),
        (pa.float16(), np.float64(-1e6)),
    ],
)
def test_defaults_that_a_type_does_not_hold(tmp_path: Path, t: pa.DataType, default: Any) -> None:
    tfr.write_table(pa.table({"x": pa.array([None, 5], t)}), tmp_path / "data")
    with pytest.raises(tfr.OptionError, match=f"defaults gives 'x' .*, which is no {t}"):
        tfr.batches(tmp_path / "data", batch_size=2, defaults={"x": default})


@pytest.mark.parametrize(
    ("t", "default"),
    [
        (pa.int64(), 2.0),
        (pa.int8(), np.int64(-128)),
        (pa.int16(), pa.scalar(7)),
        (pa.float32(), 0.1),
        (pa.float16(), 0.1),
        (pa.float32(), 3),
        (pa.float32(), float("inf")),
        (pa.float64(), np.float32("-inf")),
        (pa.float32(), float("nan")),
    ],
)
def test_defaults_are_numbers_of_the_type(tmp_path: Path, t: pa.DataType, default: Any) -> None:
    tfr.write_table(pa.table({"x": pa.array([None, 5], t)}), tmp_path / "data")
    (batch,) = tfr.batches(tmp_path / "data", batch_size=2, defaults={"x": default})
    plain = default.as_py() if isinstance(default, pa.Scalar) else default
    np.testing.assert_array_equal(batch["x"], np.array([plain, 5], batch["x"].dtype))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"shuffle": -1}, "shuffle is -1"),
        ({"drop_remainder": "no"}, "drop_remainder is 'no'"),
        ({"on_corrupt": "keep"}, "on_corrupt is 'keep'; it must be one of"),
        ({"shuffle": "yes"}, "shuffle"),
        ({"seed": -1, "shuffle": True}, "seed is -1"),
        ({"shard": (2, 2)}, r"shard is \(2, 2\); the index must be from 0 to 1"),
        ({"shard": (0, 0)}, "the count of shard is 0; it must be a whole number above 0"),
        ({"shard": 3}, r"must be \(index, count\)"),
        ({"framework": "mxnet"}, "framework"),
        ({"defaults": {"none": 1}}, "'none', and no such column"),
        ({"defaults": {"n": "text"}}, "'text', which is no int64"),
        ({"defaults": {"n": None}}, "None, which is no int64"),
        ({"defaults": {"list": [1]}}, "a null list is an empty one"),
        ({"defaults": {"pair": [1]}}, r"gives 'pair' \[1\]; it must be a list of 2 values"),
        ({"defaults": {"pair": 1}}, "gives 'pair' 1; it must be a list of 2 values"),
        ({"defaults": {"pair": [1, 0.5]}}, "gives 'pair' 0.5, which is no int64"),
        ({"columns": ["none"]}, "there is no column 'none'"),
    ],
)
def test_bad_arguments(data: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(tfr.OptionError, match=what):
        tfr.batches(data, **{"batch_size": 10, **options})


@pytest.mark.parametrize(
    "t",
    [
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
        pa.list_(pa.int64(), 2),
        pa.fixed_shape_tensor(pa.int64(), [2]),
    ],
)
@pytest.mark.parametrize("is_inner", [False, True])
def test_lists_of_any_type(tmp_path: Path, t: pa.DataType, is_inner: bool) -> None:
    values: list[Any] = [[[1, 2], [3, 4]], [[5, 6]]] if is_inner else [[1, 2], [3, 4]]
    arguments: Any = {"record_type": "SequenceExample"}
    tfr.write_table(pa.table({"x": values}), tmp_path / "data", **arguments)
    arguments["schema"] = pa.schema([("x", pa.list_(t) if is_inner else t)])
    (batch,) = tfr.batches(tmp_path / "data", batch_size=2, **arguments)
    found = batch["x"]
    if is_inner:
        assert found.row_splits.tolist() == [0, 2, 3]
        found = found.values
    expected = [[1, 2], [3, 4], [5, 6]] if is_inner else values
    if isinstance(found, tfr.Ragged):
        assert found.row_splits.tolist() == list(range(0, 2 * len(expected) + 1, 2))
        found = found.values.reshape(-1, 2)
    assert found.tolist() == expected


def test_uuids_are_bytes(tmp_path: Path) -> None:
    values = [bytes(16), bytes(range(16))]
    tfr.write_table(pa.table({"x": values}), tmp_path / "data")
    schema = pa.schema([("x", pa.uuid())])
    (batch,) = tfr.batches(tmp_path / "data", batch_size=2, schema=schema)
    assert batch["x"].tolist() == values


def test_defaults_of_lists_of_lists_are_refused(tmp_path: Path) -> None:
    arguments: Any = {"record_type": "SequenceExample"}
    tfr.write_table(pa.table({"x": [[[1]], None]}), tmp_path / "data", **arguments)
    with pytest.raises(tfr.OptionError, match="defaults names 'x', which holds lists of lists"):
        tfr.batches(tmp_path / "data", batch_size=2, defaults={"x": [1]}, **arguments)


def test_a_column_of_nulls_is_refused(tmp_path: Path) -> None:
    tfr.write_table(pa.table({"x": pa.nulls(2)}), tmp_path / "data")
    with pytest.raises(tfr.UnsupportedTypeError, match="no record has a value of column 'x'"):
        tfr.batches(tmp_path / "data", batch_size=2)


@pytest.mark.parametrize("lists", [pa.list_, lambda t, *size: pa.list_(pa.list_(t, *size))])
def test_fixed_size_lists_without_values_are_refused(tmp_path: Path, lists: Any) -> None:
    table = pa.table({"x": pa.array([[], []], lists(pa.int64(), 0))})
    tfr.write_table(table, tmp_path / "data", record_type="SequenceExample")
    how: Any = {"batch_size": 2, "record_type": "SequenceExample"}
    with pytest.raises(tfr.UnsupportedTypeError, match="column 'x' holds lists of no values"):
        tfr.batches(tmp_path / "data", **how)
    schema = pa.schema([("x", lists(pa.int64()))])
    (batch,) = tfr.batches(tmp_path / "data", **how, schema=schema)
    assert rows_of(batch["x"]) == [[], []]


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [2, 16, 300, 10_000, True])
def test_shuffled_rows_are_all_there_once(data: str, shuffle: int) -> None:
    batches = tfr.batches(data, batch_size=37, shuffle=shuffle, seed=1, threads=1)
    first, second = numbers(batches), numbers(batches)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert first != sorted(first)


def test_rows_keep_together(data: str) -> None:
    for batch in tfr.batches(data, batch_size=100, shuffle=True, seed=0):
        assert batch["text"].tolist() == [f"ä{n}" for n in batch["n"]]
        assert rows_of(batch["list"]) == [list(range(n % 4)) for n in batch["n"]]


def test_seed_and_epoch_decide_the_order(data: str) -> None:
    def epochs(seed: int | None, threads: int) -> list[list[int]]:
        batches = tfr.batches(data, batch_size=64, shuffle=200, seed=seed, threads=threads)
        return [numbers(batches), numbers(batches)]

    assert epochs(5, 1) == epochs(5, 2)
    assert epochs(5, 1) != epochs(6, 1)
    assert epochs(None, 1) != epochs(None, 1)
    batches = tfr.batches(data, batch_size=64, shuffle=200, seed=5)
    batches.set_epoch(1)
    assert numbers(batches) == epochs(5, 1)[1]


@pytest.mark.parametrize("epoch", [-1, 1.0, None])
def test_epochs_that_are_none(data: str, epoch: Any) -> None:
    batches = tfr.batches(data, batch_size=64, shuffle=200, seed=5)
    with pytest.raises(tfr.OptionError, match=f"epoch is {epoch}; it must be a whole number"):
        batches.set_epoch(epoch)
    assert batches.epoch == 0


def test_a_large_buffer_mixes_files(data: str) -> None:
    first = numbers(tfr.batches(data, batch_size=100, shuffle=True, seed=3))[:100]
    # Of ten thousand such draws not one would lie within half of the rows.
    assert max(first) - min(first) > ROWS // 2


@pytest.mark.parametrize("shuffle", [1, 2, 3, 10, 69, 70, 500, 999, 1000, 2000])
@pytest.mark.parametrize("rows_per_task", [70, ROWS])
def test_half_of_the_buffer_is_given_whenever_it_is_full(
    tmp_path: Path, shuffle: int, rows_per_task: int
) -> None:
    tfr.write_table(TABLE.select(["n", "text"]), tmp_path / "data", rows_per_task=rows_per_task)
    batches = tfr.batches(tmp_path / "data", batch_size=64, shuffle=shuffle, seed=4)
    for epoch in range(2):
        random = np.random.default_rng([4, epoch])
        files = [list(range(ROWS))[at : at + rows_per_task] for at in range(0, ROWS, rows_per_task)]
        buffer: list[int] = []
        expected: list[int] = []
        for row in itertools.chain(*(files[at] for at in random.permutation(len(files)))):
            buffer.append(row)
            if len(buffer) == shuffle:
                buffer = [buffer[at] for at in random.permutation(shuffle)]
                given = max(shuffle // 2, 1)
                expected += buffer[:given]
                buffer = buffer[given:]
        expected += [buffer[at] for at in random.permutation(len(buffer))]
        found = list(batches)
        assert numbers(found) == expected
        assert [text for batch in found for text in batch["text"]] == [f"ä{n}" for n in expected]


def test_small_buffers_do_not_copy_the_rows_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tfr.write_table(pa.table({"n": range(10_000)}), tmp_path / "data")
    concatenate, copied = pa.concat_batches, []

    def counting(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        copied.append(sum(batch.num_rows for batch in batches))
        return concatenate(batches)

    monkeypatch.setattr(pa, "concat_batches", counting)
    found = numbers(tfr.batches(tmp_path / "data", batch_size=100, shuffle=4, seed=1, threads=1))
    assert sorted(found) == list(range(10_000))
    assert sum(copied) <= 30_000


@pytest.mark.parametrize(
    ("name", "t"),
    [
        ("text", pa.string_view()),
        ("raw", pa.binary_view()),
        ("words", pa.list_(pa.string_view())),
        ("words", pa.large_list(pa.large_string())),
        ("text", pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_all_types_are_shuffled(tmp_path: Path, name: str, t: pa.DataType) -> None:
    tfr.write_table(TABLE.select([name, "n"]), tmp_path / "data", rows_per_task=300)
    schema = pa.schema([(name, t), ("n", pa.int64())])
    for batch in tfr.batches(tmp_path / "data", batch_size=64, shuffle=200, schema=schema):
        assert rows_of(batch[name]) == TABLE[name].take(pa.array(batch["n"])).to_pylist()


@pytest.mark.slow
def test_more_bytes_than_the_offsets_of_arrow_reach(tmp_path: Path) -> None:
    size, count = 20_000_000, 110
    rows = ({"n": pa.array([n]), "raw": pa.array([bytes([n]) * size])} for n in range(count))
    stream = map(pa.record_batch, rows)
    schema = pa.schema([("n", pa.int64()), ("raw", pa.binary())])
    table = pa.RecordBatchReader.from_batches(schema, stream)
    tfr.write_table(table, tmp_path / "data", compression="zstd")
    found = []
    for batch in tfr.batches(tmp_path / "data", batch_size=7, shuffle=True, seed=1):
        found += batch["n"].tolist()
        assert [len(raw) for raw in batch["raw"]] == [size] * len(batch["n"])
        assert [raw[-1] for raw in batch["raw"]] == batch["n"].tolist()
    assert sorted(found) == list(range(count))
    with pytest.raises(tfr.OptionError, match=r"batch_size is 110.*more than 2 GiB.*lower it"):
        list(tfr.batches(tmp_path / "data", batch_size=count))


def test_drop_remainder_and_length(data: str) -> None:
    batches = tfr.batches(data, batch_size=300)
    assert (len(batches), [len(b["n"]) for b in batches]) == (4, [300, 300, 300, 100])
    batches = tfr.batches(data, batch_size=300, drop_remainder=True)
    assert (len(batches), [len(b["n"]) for b in batches]) == (3, [300, 300, 300])
    assert list(tfr.batches(data, batch_size=2000, drop_remainder=True)) == []
    with pytest.raises(TypeError, match="not known"):
        len(tfr.batches(data, batch_size=300, filters=[("n", ">", 5)]))
    with pytest.raises(TypeError, match="not known"):
        len(tfr.batches(data, batch_size=300, on_corrupt="skip_record"))


def test_the_length_of_files_that_nobody_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(examples({"n": 1}, {"n": 2}))
    batches = tfr.batches(tmp_path, batch_size=1, schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(TypeError, match="not known"):
        len(batches)
    assert len(tfr.batches(tmp_path, batch_size=1)) == 2


def test_filters_and_columns(data: str) -> None:
    batches = tfr.batches(data, batch_size=7, columns=["part", "n"], filters=[("part", "=", 2)])
    assert next(list(batch) for batch in batches) == ["part", "n"]
    assert numbers(batches) == list(range(500, 750))


def test_shards_have_every_row_once(data: str) -> None:
    for count in (1, 3, 30):
        shards = [
            numbers(tfr.batches(data, batch_size=10, shuffle=50, seed=1, shard=(index, count)))
            for index in range(count)
        ]
        assert sorted(itertools.chain(*shards)) == list(range(ROWS))


def test_a_large_file_is_shared_by_shards(tmp_path: Path) -> None:
    # 40 MB without a manifest: neither its schema nor its records' places are known.
    table = pa.table({"n": range(40), "raw": [bytes(1_000_000)] * 40})
    tfr.write_table(table, tmp_path / "data")
    (tmp_path / "data" / "_SUCCESS").unlink()
    shards = [
        numbers(tfr.batches(tmp_path / "data", batch_size=4, columns=["n"], shard=(index, 3)))
        for index in range(3)
    ]
    assert sorted(itertools.chain(*shards)) == list(range(40))
    assert min(map(len, shards)) >= 6


def test_workers_share_a_shard(data: str) -> None:
    batches = tfr.batches(data, batch_size=10, shard=(1, 2))
    shared = [numbers(batches.of_worker(index, 3)) for index in range(3)]
    assert sorted(itertools.chain(*shared)) == sorted(numbers(batches))


def test_a_worker_is_at_the_same_epoch(data: str) -> None:
    batches = tfr.batches(data, batch_size=10, shuffle=50, seed=1)
    batches.set_epoch(3)
    worker = batches.of_worker(0, 1)
    assert numbers(worker) == numbers(batches)


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0), (0.5, 2), (None, 1)])
def test_workers_that_are_none(data: str, index: Any, count: Any) -> None:
    batches = tfr.batches(data, batch_size=10)
    with pytest.raises(tfr.OptionError, match="worker"):
        batches.of_worker(index, count)


@pytest.mark.parametrize(
    ("remote", "count", "threads", "used"),
    [
        (False, 1, None, 8),
        (False, 3, None, 2),
        (False, 12, None, 1),
        (False, 12, 5, 5),
        (True, 2, None, 4),
    ],
)
def test_workers_share_the_cores(
    data: str,
    monkeypatch: pytest.MonkeyPatch,
    remote: bool,
    count: int,
    threads: int | None,
    used: int,
) -> None:
    if remote:
        tfr.write_table(TABLE, "memory://workers-share-the-cores", mode="overwrite")
        data = "memory://workers-share-the-cores"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    counts = []

    def in_order(works: Any, *, threads: int, **options: Any) -> Any:
        counts.append(threads)
        return parallel.in_order(works, threads=1, **options)

    monkeypatch.setattr("tfrecord_io.reading.tasks.in_order", in_order)
    batches = tfr.batches(data, batch_size=10, threads=threads)
    counts.clear()
    list(batches.of_worker(0, count))
    assert counts == [used]


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_each_worker_has_a_last_batch(data: str, drop_remainder: bool) -> None:
    batches = tfr.batches(data, batch_size=33, drop_remainder=drop_remainder)
    for count in (1, 2, 4):
        workers = [batches.of_worker(index, count) for index in range(count)]
        lengths = [len(list(worker)) for worker in workers]
        assert [len(worker) for worker in workers] == lengths
        more = sum(lengths) - len(batches)
        assert -count < more <= 0 if drop_remainder else 0 <= more < count


def test_batches_pickle(data: str) -> None:
    batches = tfr.batches(data, batch_size=100, shuffle=100, seed=2)
    assert numbers(pickle.loads(pickle.dumps(batches))) == numbers(batches)


@pytest.mark.parametrize("shuffle", [False, 50, 5000])
@pytest.mark.parametrize("given", [0, 1, 37, 100])
@pytest.mark.parametrize("block_rows", [20, ROWS])
def test_another_iterator_goes_on(
    data: str, monkeypatch: pytest.MonkeyPatch, shuffle: int, given: int, block_rows: int
) -> None:
    monkeypatch.setattr(training_rows, "_BLOCK_ROWS", block_rows)

    def made() -> Any:
        # Another seed each time.
        return tfr.batches(data, batch_size=10, columns=["n"], shuffle=shuffle)

    batches = made()
    batches.set_epoch(3)
    first = iter(batches)
    before = numbers(itertools.islice(first, given))
    state = json.loads(json.dumps(first.state_dict()))
    others = made()
    second = iter(others)
    next(second)
    second.load_state_dict(state)
    rest = numbers(first)
    assert sorted(before + rest) == list(range(ROWS))
    assert second.state_dict() == state
    assert numbers(second) == rest
    assert second.state_dict() == first.state_dict()
    assert others.epoch == 4


def test_a_state_of_a_set_in_another_order(data: str) -> None:
    def made(values: set[int]) -> Any:
        return iter(tfr.batches(data, batch_size=1, filters=[("n", "in", values)]))

    # As sets of texts are from process to process.
    one, other = {8, 0}, {0, 8}
    assert [*one] != [*other]
    first, second = made(one), made(other)
    next(first)
    second.load_state_dict(first.state_dict())
    assert numbers(second) == [8]


def test_a_state_of_other_batches(data: str, tmp_path: Path) -> None:
    state = iter(tfr.batches(data, batch_size=10, shuffle=50)).state_dict()
    for name, value in (("batch_size", 20), ("shuffle", 60), ("shard", (0, 2))):
        others = tfr.batches(data, **{"batch_size": 10, "shuffle": 50, name: value})
        with pytest.raises(tfr.OptionError, match=f"the state is of batches with {name}"):
            iter(others).load_state_dict(state)
    others = tfr.batches(data, batch_size=10, shuffle=50, filters=[("n", "<", 500)])
    with pytest.raises(tfr.OptionError, match="with filters"):
        iter(others).load_state_dict(state)
    many = [*range(1000)]
    state_of_many = iter(tfr.batches(data, batch_size=10, filters=[("n", "in", many)])).state_dict()
    others = tfr.batches(data, batch_size=10, filters=[("n", "in", many[:50] + many[60:])])
    with pytest.raises(tfr.OptionError, match="with filters"):
        iter(others).load_state_dict(state_of_many)
    others = tfr.batches(f"{data}/part=1", batch_size=10, shuffle=50)
    with pytest.raises(tfr.OptionError, match="with pieces"):
        iter(others).load_state_dict(state)
    larger = TABLE.set_column(0, "n", pa.array(range(ROWS, 2 * ROWS)))
    tfr.write_table(larger, tmp_path / "data", partition_by="part", rows_per_task=70)
    others = tfr.batches(tmp_path / "data", batch_size=10, shuffle=50)
    with pytest.raises(tfr.OptionError, match="with bytes"):
        iter(others).load_state_dict(state)
    with pytest.raises(tfr.OptionError, match="batch_size None"):
        iter(others).load_state_dict({})


@pytest.mark.parametrize("state", [None, "{}", [("epoch", 1)]])
def test_what_is_no_state(data: str, state: Any) -> None:
    epoch = iter(tfr.batches(data, batch_size=10))
    with pytest.raises(tfr.OptionError, match=f"a {type(state).__name__}; .* state_dict"):
        epoch.load_state_dict(state)


@pytest.mark.parametrize("name", ["epoch", "seed", "given"])
@pytest.mark.parametrize("value", [None, "1", 1.5, -1])
def test_a_state_without_its_numbers(data: str, name: str, value: Any) -> None:
    epoch = iter(tfr.batches(data, batch_size=10, columns=["n"]))
    state = epoch.state_dict()
    with pytest.raises(tfr.OptionError, match=f"{name} of the state is {value!r}; .* whole number"):
        epoch.load_state_dict({**state, name: value})
    assert epoch.state_dict() == state
    assert sorted(numbers(epoch)) == list(range(ROWS))


def test_a_state_of_a_file_that_is_cut_elsewhere(tmp_path: Path) -> None:
    # 40 MB without a manifest: a schema spares the look that finds where records start.
    table = pa.table({"n": range(40), "raw": [bytes(1_000_000)] * 40})
    tfr.write_table(table, tmp_path / "data")
    (tmp_path / "data" / "_SUCCESS").unlink()

    def made(schema: pa.Schema | None) -> Any:
        return iter(
            tfr.batches(tmp_path / "data", batch_size=2, columns=["n"], shuffle=1, schema=schema)
        )

    first = made(None)
    next(first)
    state = first.state_dict()
    other = made(pa.schema([("n", pa.int64())]))
    assert other.state_dict()["pieces"] == state["pieces"]
    with pytest.raises(tfr.OptionError, match="with cuts"):
        other.load_state_dict(state)
    second = made(None)
    second.load_state_dict(state)
    assert numbers(second) == numbers(first)


#: Three batches of 4, of which the third has a bad record; two more behind it.
BEFORE = [{"n": n} for n in range(10)]
BEHIND = [{"n": n} for n in range(11, 20)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (frame(b"")[:-1] + b"?", tfr.ChecksumError),
        (example(n=[1, 2]), tfr.SchemaMismatchError),
        (example(n=1000), tfr.SchemaMismatchError),
        (example(), tfr.SchemaMismatchError),
    ],
    ids=["damaged", "two values", "out of range", "null"],
)
def test_batches_before_an_error_come_first(
    tmp_path: Path, bad: bytes, error: type[Exception], drop_remainder: bool, threads: int
) -> None:
    bad = bad if error is tfr.ChecksumError else frame(bad)
    (tmp_path / "a").write_bytes(examples(*BEFORE) + bad + examples(*BEHIND))
    batches = tfr.batches(
        tmp_path / "a",
        batch_size=4,
        drop_remainder=drop_remainder,
        schema=pa.schema([("n", pa.int8())]),
        threads=threads,
    )
    seen: list[list[int]] = []
    with pytest.raises(error):
        seen.extend(batch["n"].tolist() for batch in batches)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("on_corrupt", ["skip_record", "skip_file"])
def test_batches_before_an_error_in_another_file(tmp_path: Path, on_corrupt: Any) -> None:
    (tmp_path / "a").write_bytes(examples(*BEFORE))
    (tmp_path / "b").write_bytes(examples({"n": 10}, {"n": 1000}))
    schema = pa.schema([("n", pa.int8())])
    batches = tfr.batches(tmp_path, batch_size=4, schema=schema, on_corrupt=on_corrupt)
    seen: list[list[int]] = []
    with pytest.raises(tfr.SchemaMismatchError, match="1000"):
        seen.extend(batch["n"].tolist() for batch in batches)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("shuffle", [False, True, 10])
def test_no_columns(data: str, shuffle: bool | int) -> None:
    batches = tfr.batches(data, batch_size=300, columns=[], shuffle=shuffle)
    assert list(batches) == [{}] * 4


def test_no_rows(tmp_path: Path) -> None:
    tfr.write_table(TABLE.slice(0, 0), tmp_path / "data")
    batches = tfr.batches(tmp_path / "data", batch_size=10, shuffle=True)
    assert (list(batches), len(batches)) == ([], 0)


# --- frameworks -----------------------------------------------------------------------------------


def test_a_framework_that_is_missing(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(tfr.MissingDependencyError, match="needs torch; install it"):
        tfr.batches(data, batch_size=10, framework="torch")
    with pytest.raises(tfr.MissingDependencyError, match="install torch"):
        _ = tfr.torch.TFRecordDataset


def test_torch(data: str) -> None:
    torch = pytest.importorskip("torch")
    (batch,) = tfr.batches(data, batch_size=ROWS, framework="torch")
    assert batch["n"].dtype == torch.int64
    assert batch["pair"].shape == (ROWS, 2)
    assert batch["text"][:2] == ["ä0", "ä1"]
    assert isinstance(batch["list"].values, torch.Tensor)


def test_torch_workers_share_the_rows(data: str) -> None:
    torch = pytest.importorskip("torch")
    dataset = tfr.torch.TFRecordDataset(data, batch_size=10, columns=["n"], shuffle=50, seed=1)
    orders = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
        orders.append(numbers(loader))
        assert sorted(orders[-1]) == list(range(ROWS))
    assert orders[0] != orders[1]
    assert numbers(pickle.loads(pickle.dumps(dataset))) == numbers(dataset)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_torch_workers_that_live_on_are_told_the_epoch(data: str, start: str) -> None:
    torch = pytest.importorskip("torch")
    dataset = tfr.torch.TFRecordDataset(data, batch_size=10, columns=["n"], shuffle=50, seed=1)
    dataset = pickle.loads(pickle.dumps(dataset))
    orders = []
    for epoch in range(4):
        dataset.set_epoch(epoch)
        orders.append(numbers(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)))
    living = torch.utils.data.DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=start,
        persistent_workers=True,
    )
    dataset.set_epoch(0)
    # They count by themselves.
    assert [numbers(living), numbers(living)] == orders[:2]
    dataset.set_epoch(0)
    assert numbers(living) == orders[0]
    dataset.set_epoch(0)
    assert numbers(living) == orders[0]
    dataset.set_epoch(2)
    assert [numbers(living), numbers(living)] == orders[2:]


@pytest.mark.parametrize("lives_on", [False, True])
@pytest.mark.parametrize("seed", [1, None])
def test_torch_epochs_that_nobody_tells_differ(data: str, seed: int | None, lives_on: bool) -> None:
    torch = pytest.importorskip("torch")
    dataset = tfr.torch.TFRecordDataset(data, batch_size=10, columns=["n"], shuffle=50, seed=seed)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=lives_on
    )
    orders = []
    for epoch in range(3):
        orders.append(numbers(loader))
        assert sorted(orders[-1]) == list(range(ROWS))
        if epoch == 1:
            # The third, of which nobody takes more than a batch.
            next(iter(loader))
    assert len(set(map(tuple, orders))) == 3
    # They are those that can be told.
    for told, order in ((0, orders[0]), (3, orders[2]), (1, orders[1])):
        dataset.set_epoch(told)
        assert numbers(loader) == order


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_a_stateful_loader_goes_on(data: str, workers: int) -> None:
    pytest.importorskip("torch")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def made() -> Any:
        # Another seed each time.
        dataset = tfr.torch.TFRecordDataset(data, batch_size=10, columns=["n"], shuffle=50)
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    loader = made()
    numbers(loader)
    batches = iter(loader)
    before = numbers(itertools.islice(batches, 33))
    state = loader.state_dict()
    rest = numbers(batches)
    assert sorted(before + rest) == list(range(ROWS))
    other = made()
    other.load_state_dict(state)
    assert numbers(other) == rest
    assert sorted(numbers(other)) == list(range(ROWS))


def test_torch_a_forked_process_tells_its_own_workers(data: str) -> None:
    torch = pytest.importorskip("torch")
    dataset = tfr.torch.TFRecordDataset(data, batch_size=10, columns=["n"], shuffle=50, seed=1)
    first, second = numbers(dataset), numbers(dataset)
    dataset.set_epoch(0)
    living = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=1, persistent_workers=True
    )
    assert numbers(living) == first
    other = multiprocessing.get_context("fork").Process(target=dataset.set_epoch, args=(7,))
    other.start()
    other.join()
    assert (other.exitcode, numbers(living)) == (0, second)


def test_torch_an_epoch_told_too_early_is_the_next_one(data: str) -> None:
    torch = pytest.importorskip("torch")
    dataset = tfr.torch.TFRecordDataset(data, batch_size=10, columns=["n"], shuffle=50, seed=1)
    first, second = numbers(dataset), numbers(dataset)
    dataset.set_epoch(0)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=None,
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    begun = iter(loader)
    dataset.set_epoch(1)
    assert numbers(begun) == first
    assert numbers(loader) == second


def test_jax(data: str) -> None:
    jax = pytest.importorskip("jax")
    columns = ["n", "half", "even", "pair", "list"]
    (batch,) = tfr.batches(data, batch_size=ROWS, columns=columns, framework="jax")
    assert isinstance(batch["n"], jax.Array)
    assert batch["n"].tolist() == list(range(ROWS))
    assert rows_of(batch["list"]) == TABLE["list"].to_pylist()
    with pytest.raises(tfr.UnsupportedTypeError, match="'text' holds text or bytes"):
        tfr.batches(data, batch_size=10, framework="jax")


def test_jax_changes_no_value_in_silence(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    tfr.write_table(pa.table({"x": [2**40]}), tmp_path / "data")
    with pytest.raises(tfr.UnsupportedTypeError, match="jax_enable_x64"):
        list(tfr.batches(tmp_path / "data", batch_size=1, framework="jax"))


@pytest.mark.filterwarnings("ignore::tfrecord_io.InferenceWarning")
def test_jax_takes_integers_beside_floats_as_they_are(tmp_path: Path) -> None:
    """A column of both is of float64, and JAX's arrays are of float32."""
    pytest.importorskip("jax")

    def read(integer: int) -> list[float]:
        tfr.write_table(pa.table({"x": [integer]}), tmp_path / "a", mode="overwrite")
        floats = pa.array([0.5, float("nan"), float("inf")], pa.float32())
        tfr.write_table(pa.table({"x": floats}), tmp_path / "b", mode="overwrite")
        for name in "ab":
            (tmp_path / name / "_SUCCESS").unlink()
        both = [tmp_path / "a", tmp_path / "b"]
        (batch,) = tfr.batches(both, batch_size=4, framework="jax")
        return [float(x) for x in batch["x"]]

    found = read(2**40)
    assert found[:2] == [2.0**40, 0.5]
    assert math.isnan(found[2])
    with pytest.raises(tfr.UnsupportedTypeError, match="jax_enable_x64"):
        read(2**40 + 1)
    tenth = pa.table({"x": pa.array([decimal.Decimal("0.10")], pa.decimal128(4, 2))})
    tfr.write_table(tenth, tmp_path / "tenth", float64="cast")
    (batch,) = tfr.batches(tmp_path / "tenth", batch_size=1, framework="jax")
    assert float(batch["x"][0]) == float(np.float32(0.1))
