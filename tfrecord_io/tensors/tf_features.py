"""Tensors of columns, as the features of a specification for tf.io.parse_example are.

What TensorFlow's own composing of several columns does not look at, it gets wrong in silence: it
puts the values of one row into another where indices or partitions do not fit. Here each row is
checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tfrecord_io.tensors.tf_specs import index_keys, tensorflow


def conformed(name: str, feature: Any, tensors: Mapping[str, Any]) -> Any:
    """Return what a specification wants under a name, of the tensors of columns.

    Parameters
    ----------
    name : str
        Of the feature.
    feature : object
        One of those that `tfrecord_io.tensors.tf_specs.schema_of` takes, or None: the column as it
        is.
    tensors : mapping
        By column, a dense or ragged tensor of a batch.
    """
    tf = tensorflow()
    if isinstance(feature, tf.io.SparseFeature):
        return _composed(tf, name, feature, tensors)
    if isinstance(feature, tf.io.RaggedFeature):
        ragged = tensors[feature.value_key or name]
        for partition in reversed(feature.partitions):
            ragged = _partitioned(tf, name, ragged, partition, tensors)
        return ragged.with_row_splits_dtype(feature.row_splits_dtype)
    tensor = tensors[name]
    if isinstance(feature, tf.io.VarLenFeature):
        return tensor.to_sparse()
    if isinstance(feature, tf.io.FixedLenSequenceFeature):
        return _filled_up(tf, tensor, feature)
    if isinstance(feature, tf.io.FixedLenFeature):
        shape = tf.TensorShape(feature.shape)
        if shape.rank and shape.rank > 1:
            return tf.reshape(tensor, [-1, *shape])
    return tensor


def _filled_up(tf: Any, ragged: Any, feature: Any) -> Any:
    """Return the lists of a batch, each filled up to the longest, as steps of the shape asked for.

    The rule is that of tf.io.FixedLenSequenceFeature. Feature lists are in steps already.
    """
    shape = tf.TensorShape(feature.shape)
    if ragged.shape.rank > 2:
        return _in_steps(tf, ragged.to_tensor(), shape, 1)
    step_size = math.prod(shape)
    lengths = ragged.row_lengths()
    are_whole = tf.debugging.assert_equal(
        lengths % step_size,
        tf.zeros_like(lengths),
        f"a list is no whole number of steps of {step_size} values, as {feature!r} wants it",
    )
    default = feature.default_value
    if default is not None:
        default = tf.reshape(tf.constant(default, feature.dtype), [])
    with tf.control_dependencies([are_whole]):
        filled = ragged.to_tensor(default)
    return _in_steps(tf, filled, shape, step_size)


def _in_steps(tf: Any, filled: Any, shape: Any, per_step: int) -> Any:
    """Return a tensor with a step for every `per_step` of its second dimension."""
    rows, width = tf.unstack(tf.shape(filled)[:2])
    steps = tf.reshape(filled, [rows, width // per_step, *shape])
    steps.set_shape([filled.shape[0], None, *shape])
    return steps


def _composed(tf: Any, name: str, feature: Any, tensors: Mapping[str, Any]) -> Any:
    """Return a sparse tensor of values and of where they are.

    Whether indices are below the size is not looked at, as tf.io.parse_example does not either.
    """
    values = tensors[feature.value_key]
    sizes = [tf.cast(size, tf.int64) for size in tf.nest.flatten(feature.size)]
    places, checks = [values.value_rowids()], []
    for key in index_keys(feature):
        misfit = f"feature {name}: {key} must have as many values as {feature.value_key}"
        lengths = tensors[key].row_lengths()
        checks.append(tf.debugging.assert_equal(lengths, values.row_lengths(), misfit))
        places.append(tensors[key].values)
    with tf.control_dependencies(checks):
        stacked = tf.stack(places, axis=1)
    sparse = tf.SparseTensor(stacked, values.values, tf.stack([values.nrows(), *sizes]))
    return sparse if feature.already_sorted else tf.sparse.reorder(sparse)


def _partitioned(
    tf: Any, name: str, ragged: Any, partition: Any, tensors: Mapping[str, Any]
) -> Any:
    """Return a ragged tensor of which the values of each row are divided into rows of their own."""
    by = ", ".join(map(str, (type(partition).__name__, *partition)))
    misfit = f"feature {name}: its values cannot be divided by {by}"
    if isinstance(partition, tf.io.RaggedFeature.UniformRowLength):
        return _divided_evenly(tf, ragged, partition.length, misfit)
    lengths, counts, checks = _lengths(tf, ragged, partition, tensors[partition.key], misfit)
    divided = tf.RaggedTensor.from_row_lengths(lengths, counts, validate=False)
    checks += [
        tf.debugging.assert_non_negative(lengths, misfit),
        tf.debugging.assert_equal(tf.reduce_sum(divided, axis=1), ragged.row_lengths(), misfit),
    ]
    with tf.control_dependencies(checks):
        lengths = tf.identity(lengths)
    rows = tf.RaggedTensor.from_row_lengths(ragged.values, lengths, validate=False)
    return divided.with_values(rows)


def _divided_evenly(tf: Any, ragged: Any, length: int, misfit: str) -> Any:
    sizes = ragged.row_lengths()
    is_whole = tf.debugging.assert_equal(sizes % length, tf.zeros_like(sizes), misfit)
    with tf.control_dependencies([is_whole]):
        values, counts = tf.identity(ragged.values), sizes // length
    if ragged.ragged_rank > 1:
        rows = tf.RaggedTensor.from_uniform_row_length(values, length, validate=False)
    else:
        rows = tf.reshape(values, [-1, length, *values.shape[1:]])
    return tf.RaggedTensor.from_row_lengths(rows, counts, validate=False)


def _lengths(
    tf: Any, ragged: Any, partition: Any, given: Any, misfit: str
) -> tuple[Any, Any, list[Any]]:
    """Return the lengths of all new rows, how many each row has of them, and what to check."""
    kinds = tf.io.RaggedFeature
    if isinstance(partition, kinds.RowSplits):
        given = given[:, 1:]
    counts = given.row_lengths()
    if isinstance(partition, kinds.RowLengths):
        return given.values, counts, []
    if isinstance(partition, kinds.ValueRowIds):
        owners = tf.maximum(tf.reduce_max(given + 1, axis=1), 0)
        ids = given.values + tf.repeat(tf.cumsum(owners, exclusive=True), counts)
        in_order = tf.debugging.assert_non_negative(ids[1:] - ids[:-1], misfit)
        lengths = tf.math.unsorted_segment_sum(tf.ones_like(ids), ids, tf.reduce_sum(owners))
        return lengths, owners, [in_order]
    borders = given.values + tf.repeat(ragged.row_starts(), counts)
    end = tf.reduce_sum(ragged.row_lengths(), keepdims=True)
    are_starts = isinstance(partition, kinds.RowStarts)
    borders = tf.concat([borders, end] if are_starts else [end * 0, borders], axis=0)
    return borders[1:] - borders[:-1], counts, []
