"""A data set as a tf.data.Dataset that is fed by the native decoder.

How a batch gets into TensorFlow: as one Example whose features are columns, not values. The decoder
gives blocks of many rows as Arrow columns; from each block the encoder makes one record for every
batch of it, and TensorFlow takes these apart, several at a time.

- Numbers of a column are one bytes value, which tf.io.decode_raw copies as it is.
- Text of a column is one bytes list, which tf.io.parse_single_example makes tensors of at a
  fraction of what it takes when every value comes with its own name. It has to know the number of
  values: those of a last, shorter batch are filled up and cut again.
- Of lists of any length, the lengths are numbers and the values one flat column.

TensorFlow makes text from nothing else as fast: a TensorProto takes four times as long, NumPy's
objects twice, and neither frees the interpreter's lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import Codec
from tfrecord_io.errors import MissingDependencyError, OptionError
from tfrecord_io.filters import Filters
from tfrecord_io.options import OnCorrupt, RecordType
from tfrecord_io.read import Paths
from tfrecord_io.tensor_columns import TensorColumn, taken_apart, tensor_columns
from tfrecord_io.tf_errors import as_tensorflow
from tfrecord_io.training_rows import plan_rows

#: The feature that holds the number of rows.
_ROWS = "rows"


def tensorflow() -> Any:
    """Return TensorFlow.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    import importlib

    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise MissingDependencyError(
            "tfrecord_io.tf needs TensorFlow; install tensorflow, or tensorflow-cpu"
        ) from error


# --- the way in -----------------------------------------------------------------------------------


def pack(
    block: pa.RecordBatch, columns: Sequence[TensorColumn], batch_size: int, codec: Codec
) -> list[bytes]:
    """Return an Example for each batch of a block, with columns for features."""
    bounds = np.minimum(np.arange(0, block.num_rows + batch_size, batch_size), block.num_rows)
    fields: dict[str, pa.Array] = {_ROWS: pa.array(np.diff(bounds))}
    for index, column in enumerate(columns):
        lengths, values = taken_apart(block.column(index), column)
        ends = bounds
        for rank, counts in enumerate(lengths):
            fields[f"{index}/{rank}"] = _raw(counts, ends)
            ends = np.concatenate(([0], np.cumsum(counts)))[ends]
        ends = ends * (column.inner or 1)
        if not column.is_bytes:
            fields[str(index)] = _raw(values.to_numpy(zero_copy_only=False), ends)
            continue
        if column.ragged_rank == 0 and (missing := -len(values) % _text_count(column, batch_size)):
            values = pa.concat_arrays([values, pa.array([""] * missing, values.type)])
            ends = np.append(ends[:-1], len(values))
        fields[str(index)] = _lists(values.cast(pa.binary()), ends)
    batch = pa.RecordBatch.from_pydict(fields)
    data, offsets = codec.encoder(batch.schema, "Example").encode(batch)
    return codec.payloads(data)[1]


def _raw(values: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> pa.Array:
    """Return the bytes of each run of values."""
    data = np.ascontiguousarray(values)
    offsets = pa.py_buffer(ends.astype(np.int64) * data.itemsize)
    buffers = [None, offsets, pa.py_buffer(data.view(np.uint8))]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)


def _lists(values: pa.Array, ends: np.ndarray[Any, Any]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def _text_count(column: TensorColumn, batch_size: int) -> int:
    """Return how many values of a dense column of text a batch has."""
    return batch_size * (column.inner or 1)


# --- the way out ----------------------------------------------------------------------------------


class _Unpacking:
    """Makes tensors of what `pack` made, in TensorFlow's graph."""

    def __init__(
        self, columns: Sequence[TensorColumn], batch_size: int, *, is_full: bool, label: str | None
    ) -> None:
        self._tf = tf = tensorflow()
        self._columns = columns
        self._batch_size = batch_size
        self._is_full = is_full
        self._label = label
        text = tf.io.FixedLenFeature([], tf.string)
        self._features: dict[str, Any] = {_ROWS: tf.io.FixedLenFeature([], tf.int64)}
        for index, column in enumerate(columns):
            for rank in range(column.ragged_rank):
                self._features[f"{index}/{rank}"] = text
            if not column.is_bytes:
                self._features[str(index)] = text
            elif column.ragged_rank:
                self._features[str(index)] = tf.io.RaggedFeature(tf.string)
            else:
                count = _text_count(column, batch_size)
                self._features[str(index)] = tf.io.FixedLenFeature([count], tf.string)

    def __call__(self, payload: Any) -> Any:
        tf = self._tf
        parsed = tf.io.parse_single_example(payload, self._features)
        if not self._is_full:
            parsed |= self._cut(parsed)
        tensors = {}
        for index, column in enumerate(self._columns):
            values = self._values(parsed[str(index)], column)
            for rank in reversed(range(column.ragged_rank)):
                lengths = tf.io.decode_raw(parsed[f"{index}/{rank}"], tf.int64)
                values = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
            tensors[column.name] = values
        if self._label is None:
            return tensors
        label = tensors.pop(self._label)
        return tensors, label

    def _cut(self, parsed: dict[str, Any]) -> dict[str, Any]:
        """Return the dense columns of text without what fills up a short batch."""
        tf, rows = self._tf, parsed[_ROWS]
        filled = {
            str(index): column.inner or 1
            for index, column in enumerate(self._columns)
            if column.is_bytes and not column.ragged_rank
        }
        if not filled:
            return {}
        cut: dict[str, Any] = tf.cond(
            rows == self._batch_size,
            lambda: {name: parsed[name] for name in filled},
            lambda: {name: parsed[name][: rows * width] for name, width in filled.items()},
        )
        return cut

    def _values(self, value: Any, column: TensorColumn) -> Any:
        tf = self._tf
        if not column.is_bytes:
            # decode_raw knows no unsigned integers of more than 16 bits: they cross as signed ones.
            dtype = tf.as_dtype(column.dtype)
            crossed = {tf.uint32: tf.int32, tf.uint64: tf.int64}.get(dtype, dtype)
            value = tf.io.decode_raw(value, crossed)
            if crossed != dtype:
                value = tf.bitcast(value, dtype)
        if column.inner is not None:
            value = tf.reshape(value, [-1, column.inner])
        if not column.ragged_rank:
            rows = self._batch_size if self._is_full else None
            value = tf.ensure_shape(value, [rows, *([column.inner] if column.inner else [])])
        return value


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

    def blocks() -> Iterator[np.ndarray[Any, Any]]:
        for block in stream.blocks(next(epochs)):
            yield np.array(pack(block, found, batch_size, codec), dtype=object)

    unpacking = _Unpacking(found, batch_size, is_full=drop_remainder, label=label)
    packed = tf.data.Dataset.from_generator(
        blocks, output_signature=tf.TensorSpec([None], tf.string)
    )
    made = packed.prefetch(1).unbatch().map(unpacking, num_parallel_calls=tf.data.AUTOTUNE)
    count = stream.batch_count
    if count is not None:
        made = made.apply(tf.data.experimental.assert_cardinality(count))
    return made.prefetch(tf.data.AUTOTUNE)
