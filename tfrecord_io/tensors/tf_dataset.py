"""A data set as a tf.data.Dataset that is fed by the native decoder.

Rows get into TensorFlow as the few NumPy arrays that Arrow's columns are made of, whatever the
number of columns. TensorFlow takes these apart in its graph, several batches at a time.

- Columns of single numbers of one type are the rows of one matrix.
- Columns of single texts are one vector with the bytes of each column, and one matrix that says
  where in them each value begins. tf.strings.substr makes all their values at once.
- Columns of fixed-size lists are dense.
- Any other column stands alone, as its values, or texts as above, and the lengths of its lists.

A step of a generator costs as much as the numbers of a batch. So several batches cross in a step,
and their number is the first dimension of all that crosses; what has another length in each batch
crosses as bytes, which tf.io.decode_raw copies as they are. Large values cost more to copy than to
cross: they do so batch by batch, as they are, texts as NumPy's objects.

A short string is what TensorFlow spends the most time on. Cut out of a long one, it costs no more
than one that tf.io.parse_single_example parses, and nothing has to be encoded for it; NumPy's
objects take twice as long, and keep the interpreter's lock meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tfrecord_io.errors import OptionError, SchemaMismatchError
from tfrecord_io.filters import Filters
from tfrecord_io.options import OnCorrupt, RecordType, column_list
from tfrecord_io.reading.files import Paths
from tfrecord_io.tensors.columns import TensorColumn, taken_apart, tensor_columns
from tfrecord_io.tensors.rows import RowStream, plan_rows
from tfrecord_io.tensors.tf_features import conformed
from tfrecord_io.tensors.tf_generator import generated
from tfrecord_io.tensors.tf_specs import columns_of, features_of, schema_of, tensorflow
from tfrecord_io.tf_errors import as_tensorflow

_Array: TypeAlias = np.ndarray[Any, Any]

#: From so many bytes on, a copy of a value costs more than a Python object.
_LARGE_VALUE = 256

#: From so many bytes of such values on, a copy costs more than a step.
_LARGE_COLUMN = 128 * 1024

# --- the way in -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Which columns cross together, by their places among all.

    What crosses is in this order: the texts; a matrix of each group of numbers; the numbers of each
    column of fixed-size lists; for each column alone its values, then its lengths, rank by rank.

    Attributes
    ----------
    columns : tuple of TensorColumn
        All of them.
    numbers : tuple of tuple of int
        Columns of single numbers, those of one type together.
    texts : tuple of int
        Columns of single texts.
    fixed : tuple of int
        Columns of fixed-size lists of numbers.
    alone : tuple of int
        All others.
    is_large : bool
        Whether values are large, so that batches cross one by one.
    """

    columns: tuple[TensorColumn, ...]
    numbers: tuple[tuple[int, ...], ...]
    texts: tuple[int, ...]
    fixed: tuple[int, ...]
    alone: tuple[int, ...]
    is_large: bool


def _layout(columns: Sequence[TensorColumn], *, is_large: bool) -> _Layout:
    numbers: dict[str, list[int]] = {}
    texts: list[int] = []
    fixed: list[int] = []
    alone: list[int] = []
    for index, column in enumerate(columns):
        if column.ragged_rank or (column.is_bytes and column.inner is not None):
            alone.append(index)
        elif column.is_bytes:
            texts.append(index)
        elif column.inner is not None:
            fixed.append(index)
        else:
            numbers.setdefault(str(column.leaf), []).append(index)
    return _Layout(
        columns=tuple(columns),
        numbers=tuple(map(tuple, numbers.values())),
        texts=tuple(texts),
        fixed=tuple(fixed),
        alone=tuple(alone),
        is_large=is_large,
    )


def pack(block: pa.RecordBatch, layout: _Layout, batch_size: int) -> Iterator[tuple[_Array, ...]]:
    """Give the arrays of each step.

    Raises
    ------
    SchemaMismatchError
        A null that nothing stands for; the batches before it are given out.
    """
    if layout.is_large:
        for start in range(0, block.num_rows, batch_size):
            batch = block.slice(start, batch_size)
            yield tuple(array[0] for array in _packed(batch, layout, batch.num_rows))
        return
    whole = block.num_rows - block.num_rows % batch_size
    if whole:
        try:
            packed = _packed(block.slice(0, whole), layout, batch_size)
        except SchemaMismatchError:
            for start in range(0, whole, batch_size):
                yield _packed(block.slice(start, batch_size), layout, batch_size)
            raise
        yield packed
    if whole < block.num_rows:
        yield _packed(block.slice(whole), layout, block.num_rows - whole)


def _packed(block: pa.RecordBatch, layout: _Layout, batch_size: int) -> tuple[_Array, ...]:
    """Return arrays of which the first dimension is that of the batches."""
    columns = layout.columns
    bounds = np.arange(0, block.num_rows + 1, batch_size)
    batches = len(bounds) - 1

    def values_of(index: int) -> pa.Array:
        _, values = taken_apart(block.column(index), columns[index])
        return values

    parts: list[_Array] = []
    if layout.texts:
        texts = [values_of(index) for index in layout.texts]
        parts += [_objects(texts)] if layout.is_large else _texts(texts, bounds)
    for group in layout.numbers:
        numbers = (_numbers(values_of(index)) for index in group)
        parts.append(np.stack([array.reshape(batches, -1) for array in numbers], axis=1))
    for index in layout.fixed:
        shape = (batches, batch_size, columns[index].inner or 0)
        parts.append(_numbers(values_of(index)).reshape(shape))
    for index in layout.alone:
        lengths, values = taken_apart(block.column(index), columns[index])
        if layout.is_large:
            parts += _whole(lengths, values, columns[index])
        else:
            parts += _in_runs(lengths, values, columns[index], bounds)
    return tuple(parts)


def _texts(arrays: Sequence[pa.Array], bounds: _Array) -> list[_Array]:
    """Return the bytes of each column in each batch; where texts begin in them, and the end."""
    batches, batch_size = len(bounds) - 1, int(bounds[1])
    joined: _Array = np.empty((batches, len(arrays)), np.object_)
    first: _Array = np.empty((len(arrays), batches * batch_size), np.int32)
    ends: _Array = np.empty((len(arrays), len(bounds)), np.int32)
    for place, array in enumerate(arrays):
        offsets, data = _offsets_and_bytes(array)
        first[place] = offsets[:-1]
        ends[place] = offsets[bounds]
        joined[:, place] = _runs(data, ends[place])
    bases = ends.T[:-1, :, np.newaxis]
    starts: _Array = np.empty((batches, len(arrays), batch_size + 1), np.int32)
    by_batch = first.reshape(len(arrays), batches, batch_size).swapaxes(0, 1)
    np.subtract(by_batch, bases, out=starts[:, :, :-1])
    np.subtract(ends.T[1:, :, np.newaxis], bases, out=starts[:, :, -1:])
    return [joined, starts]


def _objects(arrays: Sequence[pa.Array]) -> _Array:
    """Return the texts of the only batch, one column after the other."""
    objects = [array.view(pa.binary()).to_numpy(zero_copy_only=False) for array in arrays]
    joined: _Array = np.concatenate(objects)[np.newaxis]
    return joined


def _whole(lengths: list[_Array], values: pa.Array, column: TensorColumn) -> list[_Array]:
    """Return the values or texts of the only batch, and the lengths of its lists."""
    first = _objects([values]) if column.is_bytes else _numbers(values)[np.newaxis]
    return [first, *(counts[np.newaxis] for counts in lengths)]


def _in_runs(
    lengths: list[_Array], values: pa.Array, column: TensorColumn, bounds: _Array
) -> list[_Array]:
    """Return for each batch the bytes of values, or texts; and those of the lengths of lists."""
    crossing: list[_Array] = []
    ends = bounds
    for counts in lengths:
        crossing.append(_bytes_of_runs(counts, ends))
        ends = np.concatenate(([0], np.cumsum(counts)))[ends]
    ends = ends * (column.inner or 1)
    if not column.is_bytes:
        return [_bytes_of_runs(_numbers(values), ends), *crossing]
    offsets, data = _offsets_and_bytes(values)
    joined = np.array(_runs(data, offsets[ends]), np.object_)
    return [joined, _bytes_of_runs(np.diff(offsets), ends), *crossing]


def _offsets_and_bytes(array: pa.Array) -> tuple[_Array, memoryview]:
    if not len(array):
        return np.zeros(1, np.int32), memoryview(b"")
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return places, memoryview(data or b"")


def _numbers(array: pa.Array) -> _Array:
    numbers: _Array = array.to_numpy(zero_copy_only=False)
    return numbers


def _runs(data: memoryview, ends: _Array) -> list[bytes]:
    return [bytes(data[start:end]) for start, end in itertools.pairwise(ends.tolist())]


def _bytes_of_runs(values: _Array, ends: _Array) -> _Array:
    data = memoryview(np.ascontiguousarray(values).view(np.uint8))
    joined: _Array = np.array(_runs(data, ends * values.itemsize), np.object_)
    return joined


# --- the way out ----------------------------------------------------------------------------------


class _Unpacking:
    """Makes tensors of what `pack` gave, in TensorFlow's graph."""

    def __init__(
        self,
        layout: _Layout,
        rows: int | None,
        *,
        label: str | None,
        names: Sequence[str],
        features: Mapping[str, Any],
    ) -> None:
        self._tf = tensorflow()
        self._columns = layout.columns
        self._layout = layout
        self._rows = rows
        self._label = label
        self._names = names
        self._asked = features

    def signature(self) -> tuple[Any, ...]:
        """Return what the arrays of a step are."""
        string, int64 = self._tf.string, self._tf.int64
        columns, layout, rows = self._columns, self._layout, self._rows
        specs: list[tuple[list[int | None], Any]] = []
        if layout.texts and layout.is_large:
            specs.append(([None], string))
        elif layout.texts:
            count = len(layout.texts)
            starts = None if rows is None else rows + 1
            specs += [([count], string), ([count, starts], self._tf.int32)]
        specs += [([len(group), rows], columns[group[0]].dtype) for group in layout.numbers]
        specs += [([rows, columns[at].inner], columns[at].dtype) for at in layout.fixed]
        for column in (columns[index] for index in layout.alone):
            if layout.is_large:
                specs.append(([None], string if column.is_bytes else column.dtype))
                specs += [([None], int64)] * column.ragged_rank
            else:
                specs += [([], string)] * (1 + column.is_bytes + column.ragged_rank)
        steps = [] if layout.is_large else [None]
        return tuple(self._tf.TensorSpec([*steps, *shape], dtype) for shape, dtype in specs)

    def __call__(self, *arrays: Any) -> Any:
        tf = self._tf
        columns, layout = self._columns, self._layout
        parts = iter(arrays)
        made: dict[int, Any] = {}
        if layout.texts:
            texts = self._texts(parts, len(layout.texts))
            made.update(zip(layout.texts, tf.unstack(texts), strict=True))
        for group in layout.numbers:
            made.update(zip(group, tf.unstack(next(parts)), strict=True))
        made.update((index, next(parts)) for index in layout.fixed)
        for index in layout.alone:
            made[index] = self._alone(columns[index], parts)
        read = {columns[index].name: tensor for index, tensor in made.items()}
        tensors = {name: conformed(name, self._asked.get(name), read) for name in self._names}
        if self._label is None:
            return tensors
        label = tensors.pop(self._label)
        return tensors, label

    def _texts(self, parts: Iterator[Any], count: int) -> Any:
        tf = self._tf
        if self._layout.is_large:
            return tf.reshape(next(parts), [count, self._rows or -1])
        joined, starts = next(parts), next(parts)
        first = starts[:, :-1]
        return tf.strings.substr(joined[:, None], first, starts[:, 1:] - first)

    def _alone(self, column: TensorColumn, parts: Iterator[Any]) -> Any:
        tf = self._tf
        values = next(parts)
        if not self._layout.is_large and column.is_bytes:
            sizes = tf.io.decode_raw(next(parts), tf.int32)
            # substr refuses to cut nothing, so that an empty text is cut behind the others.
            sizes = tf.pad(sizes, [[0, 1]])
            values = tf.strings.substr(values, tf.cumsum(sizes, exclusive=True), sizes)[:-1]
        elif not self._layout.is_large:
            values = self._decoded(values, column)
        if column.inner is not None:
            values = tf.reshape(values, [-1, column.inner])
        lengths = [next(parts) for _ in range(column.ragged_rank)]
        if not self._layout.is_large:
            lengths = [tf.io.decode_raw(counts, tf.int64) for counts in lengths]
        for counts in lengths[:1]:
            counts.set_shape([self._rows])
        for counts in reversed(lengths):
            values = tf.RaggedTensor.from_row_lengths(values, counts, validate=False)
        if not column.ragged_rank:
            values.set_shape([self._rows, *values.shape[1:]])
        return values

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
    features: Mapping[str, Any] | tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
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
    features : mapping or tuple of two, optional
        What to read as a specification for tf.io.parse_example, instead of a schema: tensors are
        then as it says, sparse ones among them, and lists of tf.io.FixedLenSequenceFeature filled
        up to the longest of their batch. Values of another kind, or another number of them, are an
        error, and so are indices and partitions of another number than their row's values. An empty
        list is no values, whatever its kind. Of a SequenceExample, the features of the context, or
        these and those of the feature lists, as tf.io.parse_sequence_example takes them; the
        tensors of both stand in one dict.
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
        cardinality is known where the number of rows is. Unless values are large, its options turn
        off autotuning, which takes longer than it gains; ``with_options`` can turn it on.

    Raises
    ------
    MissingDependencyError
        TensorFlow is not installed.
    OptionError
        A wrong argument.
    UnsupportedTypeError
        A column of which no record has a value, or of fixed-size lists of no values.
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
    if columns is not None:
        columns = column_list(columns)
    if features is not None:
        if schema is not None or defaults is not None:
            raise OptionError("features says what schema and defaults would: give one of them")
        context, steps = features_of(features, record_type)
        schema, defaults = schema_of(context, steps)
        features = context | steps
        if columns is None:
            columns = [name for name in features if name != label]
    if label is not None and columns is not None:
        if label in columns:
            raise OptionError(f"label is {label!r}, which columns must not name as well")
        columns = [*columns, label]
    names = columns
    if features is not None and names is not None:
        # Some are made of columns by other names, which several of them may share.
        parts = (columns_of(name, features.get(name)) for name in names)
        columns = list(dict.fromkeys(itertools.chain.from_iterable(parts)))
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
    if not stream.plan.schema.names:
        raise OptionError("columns is empty; a dataset needs at least one")
    found = tensor_columns(stream.plan.schema, defaults, are_specified=features is not None)
    layout = _layout(found, is_large=_has_large_values(stream))
    if names is None:
        names = stream.plan.schema.names
    if label is not None and label not in names:
        raise OptionError(f"label is {label!r}; the data set has {names}")
    unpacking = _Unpacking(
        layout,
        stream.batch_size if drop_remainder else None,
        label=label,
        names=names,
        features=features or {},
    )
    epochs = itertools.count()

    def packed() -> Generator[tuple[_Array, ...]]:
        for block in stream.blocks(next(epochs)):
            yield from pack(block, layout, stream.batch_size)

    made = generated(packed, unpacking.signature())
    if not layout.is_large:
        # To tune the pipeline TensorFlow counts the bytes of each text at each step of it.
        options = tf.data.Options()
        options.autotune.enabled = False
        made = made.unbatch().with_options(options)
    count = stream.batch_count
    if count is not None:
        made = made.apply(tf.data.experimental.assert_cardinality(count))
    unpack = tf.autograph.experimental.do_not_convert(unpacking)
    return made.map(unpack, num_parallel_calls=tf.data.AUTOTUNE)


def _has_large_values(stream: RowStream) -> bool:
    """Return whether values are large; where nobody counted the rows, they are taken for small."""
    counted = [task for task in stream.plan.tasks if task.rows]
    values = sum(task.rows or 0 for task in counted) * len(stream.plan.schema)
    size = sum(task.bytes for task in counted) // max(values, 1)
    return size >= _LARGE_VALUE and size * stream.batch_size >= _LARGE_COLUMN
