"""Rows of arrays by their indices, against Python's lists."""

import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tfrecord_io.arrow_take import take, take_rows

NUMBERS = list(range(40))
PAIRS = pa.list_(pa.int64(), 2)
FOURS = pa.list_(PAIRS, 2)


def fours(values):
    """Fixed-size lists of fixed-size lists: 0, 1, 2, 3 in the first row, and so on."""
    return pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(values, 2), 2)


ARRAYS = {
    "slice": fours(pa.array(NUMBERS)).slice(3, 5),
    "of a slice": pa.FixedSizeListArray.from_arrays(
        pa.FixedSizeListArray.from_arrays(pa.array(NUMBERS), 2).slice(4, 12), 2
    ),
    "nulls": pa.array([[[1, None], None], None, [[2, 3], [4, 5]], [[6, 7], None]], FOURS)[1:],
    "strings": fours(pa.array(map(str, NUMBERS))).slice(3, 5),
    "string views": pa.array(["a", None, "longer than a view", ""], pa.string_view())[1:],
    "binary views": pa.array([b"a", None, b"longer than a view"], pa.binary_view())[1:],
    "fours of views": fours(pa.array(map(str, NUMBERS), pa.string_view())).slice(3, 5),
    "lists of views": pa.array([["a"], None, [], ["b", "c"]], pa.list_(pa.string_view()))[1:],
    "numbers": pa.array([1, None, 3])[1:],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_rows_are_those_of_lists(name):
    array = ARRAYS[name]
    rows = array.to_pylist()
    for indices in ([], [0], [1, 0, 1], [None, 1], list(range(len(rows)))[::-1]):
        expected = [None if index is None else rows[index] for index in indices]
        taken = take(array, pa.array(indices, pa.int64()))
        taken.validate(full=True)
        assert (taken.type, taken.to_pylist()) == (array.type, expected)
        batch = take_rows(pa.record_batch({"a": array}), pa.array(indices, pa.int64()))
        assert batch["a"].to_pylist() == expected


def test_rows_without_columns():
    empty = pa.table({"a": [1, 2, 3]}).select([]).to_batches()[0]
    assert take_rows(empty, pa.array([2, 0])).num_rows == 2


@pytest.fixture
def matrices():
    """More rows than Arrow filters at a time."""
    rows = 40_000
    return pa.table({"x": range(rows), "matrix": fours(pa.array(range(4 * rows)))})


def test_filters_keep_the_values_of_other_columns(tmp_path, matrices):
    path = tmp_path / "data"
    tfr.write_table(matrices, path, record_type="SequenceExample")
    for least in (0, 39_000):
        kept = tfr.read_table(path, record_type="SequenceExample", filters=[("x", ">=", least)])
        assert kept.equals(matrices.slice(least))


def test_rows_keep_their_values_in_folders(tmp_path, matrices):
    parts = pa.array([row % 2 for row in range(len(matrices))])
    table = matrices.append_column("part", parts).slice(1, 5000)
    path = tmp_path / "data"
    tfr.write_table(
        table, path, partition_by="part", record_type="SequenceExample", rows_per_task=2000
    )
    read = tfr.read_table(path, record_type="SequenceExample").sort_by("x")
    expected = table.set_column(2, "part", parts.cast(pa.int32()).slice(1, 5000))
    assert read.to_pylist() == expected.to_pylist()
