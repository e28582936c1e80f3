"""What a Python generator gives, as a tf.data.Dataset.

As `tf.data.Dataset.from_generator`, without the flat_map that it puts around: for each iterator
TensorFlow makes all functions of a dataset anew, and a thin layer of them takes 17 of the 200 ms in
which an epoch of 200,000 rows is gone through. Nor are arrays looked at that are known to be right.

Each generator runs on a thread that none of TensorFlow's has begun: on these, and on those that
they begin, the processor takes subnormal numbers for zeros.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np

from tfrecord_io.tensors.tf_specs import tensorflow

_Array: TypeAlias = np.ndarray[Any, Any]


def generated(arrays: Callable[[], Generator[tuple[_Array, ...]]], signature: Sequence[Any]) -> Any:
    """Return a dataset of what a generator gives; each iterator has a generator of its own.

    Parameters
    ----------
    arrays : callable
        Begins a generator of tuples of arrays.
    signature : sequence of tf.TensorSpec
        What the arrays of each tuple are; nothing checks it.

    Returns
    -------
    tf.data.Dataset
        Of tuples of tensors. What the generator raises is raised while iterating, as by
        `tf.numpy_function`; a generator whose iterator is given up is closed.
    """
    tf = tensorflow()
    running: dict[int, tuple[Generator[tuple[_Array, ...]], ThreadPoolExecutor]] = {}
    numbers = itertools.count()
    # TensorFlow keeps what a dataset calls for ever, so that only iterators may have threads.
    beginner = _beginner()

    def begin() -> Any:
        number = next(numbers)
        running[number] = arrays(), beginner.submit(_thread, "tfrecord-io-dataset").result()
        return np.int64(number)

    def step(number: Any) -> tuple[_Array, ...]:
        # Its StopIteration is the end of the dataset.
        generator, thread = running[int(number)]
        return thread.submit(next, generator).result()

    def end(number: Any) -> Any:
        generator, thread = running.pop(int(number))
        with thread:
            thread.submit(generator.close).result()
        return np.int64(0)

    def begun() -> Any:
        return tf.numpy_function(begin, [], tf.int64)

    def stepped(number: Any) -> tuple[Any, ...]:
        tensors = tf.numpy_function(step, [number], [spec.dtype for spec in signature])
        for tensor, spec in zip(tensors, signature, strict=True):
            tensor.set_shape(spec.shape)
        return tuple(tensors)

    def ended(number: Any) -> Any:
        return tf.numpy_function(end, [number], tf.int64)

    def traced(function: Callable[..., Any], *taken: Any) -> Any:
        made = tf.function(function, input_signature=taken, autograph=False)
        return made.get_concrete_function()

    number = tf.TensorSpec([], tf.int64)
    variant = tf.raw_ops.GeneratorDataset(
        init_func_other_args=[],
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=traced(begun),
        next_func=traced(stepped, number),
        finalize_func=traced(ended, number),
        output_types=[spec.dtype for spec in signature],
        output_shapes=[spec.shape for spec in signature],
    )
    return tf.data.experimental.from_variant(variant, structure=tuple(signature))


@functools.cache
def _beginner() -> ThreadPoolExecutor:
    """Return the one thread that begins those of all iterators, begun by who makes a dataset."""
    return _thread("dataset-threads")


def _thread(name: str) -> ThreadPoolExecutor:
    thread = ThreadPoolExecutor(1, name)
    # It begins with its first work.
    thread.submit(int).result()
    return thread
