"""A data set as a tf.data.Dataset that is fed by the native decoder.

How a batch gets into TensorFlow: as one Example whose features are columns, not values. The decoder
gives blocks of many rows as Arrow columns; from each block the encoder makes one record for every
batch of it, and TensorFlow takes these apart, several at a time.

- Numbers of a column are one bytes value, which tf.io.decode_raw copies as it is.
- Text of a column is one bytes list, which tf.io.parse_single_example makes tensors of at a
  fraction of what it takes when every value comes with its own name.
- Of lists of any length, the lengths are numbers and the values one flat column.

TensorFlow makes text from nothing else as fast: a TensorProto takes four times as long, NumPy's
objects twice, and neither frees the interpreter's lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import Codec
from tfrecord_io.errors import OptionError
from tfrecord_io.filters import Filters
from tfrecord_io.options import OnCorrupt, RecordType
from tfrecord_io.read import Paths
from tfrecord_io.tensor_columns import TensorColumn, taken_apart, tensor_columns
from tfrecord_io.tf_errors import as_tensorflow
from tfrecord_io.tf_specs import conformed, schema_of, tensorflow
from tfrecord_io.training_rows import plan_rows

# --- the way in -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Columns of which the values of a batch stand behind one another in one feature.

    Attributes
    ----------
    name : str
        Name of the feature.
    columns : tuple of int
        Their places among all columns.
    """

    name: str
    columns: tuple[int, ...]


def _groups(columns: Sequence[TensorColumn]) -> list[_Group]:
    """Put columns of single numbers of one type together: each feature costs TensorFlow a step."""
    by_type: dict[str, list[int]] = {}
    for index, column in enumerate(columns):
        if not column.is_bytes and column.ragged_rank == 0 and column.inner is None:
            by_type.setdefault(str(column.leaf), []).append(index)
    grouped = {index for members in by_type.values() for index in members}
    alone = {str(i): [i] for i in range(len(columns)) if i not in grouped}
    return [
        _Group(name=name, columns=tuple(members)) for name, members in (by_type | alone).items()
    ]


def pack(
    block: pa.RecordBatch, columns: Sequence[TensorColumn], batch_size: int, codec: Codec
) -> Iterator[bytes]:
    """Give an Example for each batch of a block, with columns for features."""
    bounds = np.minimum(np.arange(0, block.num_rows + batch_size, batch_size), block.num_rows)
    fields: dict[str, pa.Array] = {}
    for group in _groups(columns):
        if len(group.columns) > 1:
            numbers = [_numbers(block.column(at), columns[at]) for at in group.columns]
            runs = itertools.product(itertools.pairwise(bounds), numbers)
            joined = np.concatenate([array[start:end] for (start, end), array in runs])
            fields[group.name] = _raw(joined, bounds * len(numbers))
            continue
        (index,) = group.columns
        column = columns[index]
        lengths, values = taken_apart(block.column(index), column)
        ends = bounds
        for rank, counts in enumerate(lengths):
            fields[f"{group.name}/{rank}"] = _raw(counts, ends)
            ends = np.concatenate(([0], np.cumsum(counts)))[ends]
        ends = ends * (column.inner or 1)
        if column.is_bytes:
            fields[group.name] = _lists(values.cast(pa.binary()), ends)
        else:
            fields[group.name] = _raw(values.to_numpy(zero_copy_only=False), ends)
    batch = pa.RecordBatch.from_pydict(fields)
    data, offsets = codec.encoder(batch.schema, "Example").encode(batch)
    view = memoryview(data)
    for start, end in itertools.pairwise(offsets.to_pylist()):
        # Without its frame.
        yield bytes(view[start + 12 : end - 4])


def _numbers(array: pa.Array, column: TensorColumn) -> np.ndarray[Any, Any]:
    _, values = taken_apart(array, column)
    numbers: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return numbers


def _raw(values: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> pa.Array:
    """Return the bytes of each run of values."""
    data = np.ascontiguousarray(values)
    offsets = pa.py_buffer(ends.astype(np.int64) * data.itemsize)
    buffers = [None, offsets, pa.py_buffer(data.view(np.uint8))]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def _lists(values: pa.Array, ends: np.ndarray[Any, Any]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


# --- the way out ----------------------------------------------------------------------------------


class _Unpacking:
    """Makes tensors of what `pack` made, in TensorFlow's graph."""

    def __init__(
        self,
        columns: Sequence[TensorColumn],
        rows: int | None,
        *,
        label: str | None,
        features: Mapping[str, Any],
    ) -> None:
        self._tf = tf = tensorflow()
        self._columns = columns
        self._rows = rows
        self._label = label
        self._asked = features
        self._groups = _groups(columns)
        one = tf.io.FixedLenFeature([], tf.string)
        many = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
        self._features: dict[str, Any] = {}
        for group in self._groups:
            column = columns[group.columns[0]]
            self._features[group.name] = many if column.is_bytes else one
            for rank in range(column.ragged_rank):
                self._features[f"{group.name}/{rank}"] = one

    def __call__(self, payload: Any) -> Any:
        tf = self._tf
        parsed = tf.io.parse_single_example(payload, self._features)
        made: dict[int, Any] = {}
        for group in self._groups:
            column = self._columns[group.columns[0]]
            values = parsed[group.name]
            if not column.is_bytes:
                values = self._decoded(values, column)
            if len(group.columns) > 1:
                apart = tf.unstack(tf.reshape(values, [len(group.columns), self._rows or -1]))
                made.update(zip(group.columns, apart, strict=True))
                continue
            if column.inner is not None:
                values = tf.reshape(values, [-1, column.inner])
            for rank in reversed(range(column.ragged_rank)):
                lengths = tf.io.decode_raw(parsed[f"{group.name}/{rank}"], tf.int64)
                values = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
            if not column.ragged_rank:
                values.set_shape([self._rows, *values.shape[1:]])
            made[group.columns[0]] = values
        tensors = {
            column.name: conformed(made[index], self._asked.get(column.name))
            for index, column in enumerate(self._columns)
        }
        if self._label is None:
            return tensors
        label = tensors.pop(self._label)
        return tensors, label

    def _decoded(self, value: Any, column: TensorColumn) -> Any:
        tf = self._tf
        dtype = tf.as_dtype(column.dtype)
        # decode_raw knows no unsigned integers of more than 16 bits: they cross as signed ones.
        crossed = {tf.uint32: tf.int32, tf.uint64: tf.int64}.get(dtype, dtype)
        value = tf.io.decode_raw(value, crossed)
        return value if crossed == dtype else tf.bitcast(value, dtype)


def dataset(
    path: Paths,
    *,
    batch_size: int,
    columns: Sequence[str] | None = None,
    label: str | None = None,
    shuffle: bool | int = False,
    seed: int | None = None,
    drop_remainder: bool = False,
    shard: tuple[int, int] | None = None,
    defaults: Mapping[str, Any] | None = None,
    features: Mapping[str, Any] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorrupt = "raise",
    storage_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Any:
    """Read a data set as a tf.data.Dataset of batches, ready for ``model.fit``.

    Parameters
    ----------
    path : str, path-like or a list of them
        See `tfrecord_io.read_table`.
    batch_size : int
        Rows of one batch.
    columns : list of str, optional
        The features to read; partition columns may be among them. Not the label.
    label : str, optional
        The column that becomes the second of a pair of (features, label).
    shuffle, seed, drop_remainder, shard, defaults
        See `tfrecord_io.batches`. Each time the dataset is gone through, the order is another one.
    features : mapping, optional
        What to read as a specification for tf.io.parse_example, instead of a schema: tensors are
        then as it says, sparse ones among them. A feature of another kind, or length, is an error.
    schema, filters, record_type, compression, on_corrupt, storage_options
        See `tfrecord_io.read_table`.
    threads : int, optional
        How many decode; one for each core without it.

    Returns
    -------
    tf.data.Dataset
        Dicts, or pairs with a label, of tensors with the batch as their first dimension: of one
        value for each row, dense ones for fixed-size lists, and tf.RaggedTensor for lists. Text and
        bytes are tf.string; numbers as in `tfrecord_io.batches`. Batches are read ahead. Its
        cardinality is known where the number of rows is.

    Raises
    ------
    MissingDependencyError
        TensorFlow is not installed.
    OptionError
        A wrong argument.
    FileNotFoundError, TFRecordError
        See `tfrecord_io.read_table`. What is wrong with a record is raised while iterating, as
        tf.errors.InvalidArgumentError with the same text.

    Examples
    --------
    >>> import tfrecord_io as tfr
    >>> data = tfr.tf.dataset("clicks", batch_size=1024, label="click")  # doctest: +SKIP
    >>> model.fit(data)  # doctest: +SKIP
    """
    tf = tensorflow()
    if features is not None:
        if schema is not None or defaults is not None:
            raise OptionError("features says what schema and defaults would: give one of them")
        schema, defaults = schema_of(features)
        if columns is None:
            columns = [name for name in schema.names if name != label]
    if label is not None and columns is not None:
        if label in columns:
            raise OptionError(f"label is {label!r}, which columns must not name as well")
        columns = [*columns, label]
    with as_tensorflow():
        stream = plan_rows(
            path,
            batch_size=batch_size,
            columns=columns,
            shuffle=shuffle,
            seed=seed,
            drop_remainder=drop_remainder,
            shard=shard,
            schema=schema,
            filters=filters,
            record_type=record_type,
            compression=compression,
            on_corrupt=on_corrupt,
            storage_options=storage_options,
            threads=threads,
        )
    found = tensor_columns(stream.plan.schema, defaults)
    if label is not None and label not in stream.plan.schema.names:
        raise OptionError(f"label is {label!r}; the data set has {stream.plan.schema.names}")
    codec = get_codec()
    epochs = itertools.count()

    def packed() -> Iterator[bytes]:
        for block in stream.blocks(next(epochs)):
            yield from pack(block, found, batch_size, codec)

    made = tf.data.Dataset.from_generator(packed, output_signature=tf.TensorSpec([], tf.string))
    count = stream.batch_count
    if count is not None:
        made = made.apply(tf.data.experimental.assert_cardinality(count))
    unpacking = _Unpacking(
        found, batch_size if drop_remainder else None, label=label, features=features or {}
    )
    unpack = tf.autograph.experimental.do_not_convert(unpacking)
    return made.map(unpack, num_parallel_calls=tf.data.AUTOTUNE)
