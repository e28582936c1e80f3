"""Datasets of what Python generators give."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from tfrecord_io.tensors.tf_generator import generated


def numbers_and_words(count: int) -> Generator[tuple[Any, ...]]:
    for n in range(count):
        yield np.full(n, n, np.int32), np.array([b"a" * n, "ä".encode()], np.object_)


def signature(tf: Any) -> list[Any]:
    return [tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.string)]


def test_each_iterator_has_a_generator_of_its_own(tf: Any) -> None:
    dataset = generated(lambda: numbers_and_words(3), signature(tf))
    gc.collect()
    assert dataset.element_spec == tuple(signature(tf))
    expected = [
        ([], [b"", b"\xc3\xa4"]),
        ([1], [b"a", b"\xc3\xa4"]),
        ([2, 2], [b"aa", b"\xc3\xa4"]),
    ]
    got = [(n.numpy().tolist(), w.numpy().tolist()) for n, w in dataset.repeat(2)]
    assert got == expected * 2
    pairs = list(tf.data.Dataset.zip((dataset, dataset.skip(1))))
    assert [(len(a), len(b)) for (a, _), (b, _) in pairs] == [(0, 1), (1, 2)]


def test_a_generator_ends_with_its_iterator(tf: Any) -> None:
    ended = []

    def endless() -> Generator[tuple[Any, ...]]:
        try:
            while True:
                yield (np.int64(1),)
        finally:
            ended.append(True)

    dataset = generated(endless, [tf.TensorSpec([], tf.int64)])
    assert [int(n) for (n,) in dataset.take(2)] == [1, 1]
    given_up = iter(dataset)
    next(given_up)
    del given_up
    gc.collect()
    assert ended == [True, True]


def test_threads_end_with_iterators(tf: Any) -> None:
    """TensorFlow never forgets a dataset."""

    def running() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name.startswith("tfrecord-io-dataset")]

    datasets = [generated(lambda: numbers_and_words(2), signature(tf)) for _ in range(3)]
    iterators = [iter(dataset) for dataset in datasets]
    assert [len(next(iterator)) for iterator in iterators] == [2, 2, 2]
    assert len(running()) == 3
    del iterators
    gc.collect()
    assert running() == []


def test_errors_of_a_generator(tf: Any) -> None:
    def broken() -> Generator[tuple[Any, ...]]:
        yield (np.int64(1),)
        raise ValueError("the second is broken")

    iterator = iter(generated(broken, [tf.TensorSpec([], tf.int64)]))
    assert int(next(iterator)[0]) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="the second is broken"):
        next(iterator)
