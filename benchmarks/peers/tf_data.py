"""TensorFlow: tf.data with parse_example on one thread, and tf.train with TFRecordWriter."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import generate
import numpy as np
import tensorflow as tf
from checks import Checked, expected
from workloads import DATA, Column, Workload

from peers import Case

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)

VERSIONS = {"tensorflow-cpu": tf.__version__}

_BATCH_ROWS = 1024
_DTYPES = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string}


def _spec(column: Column) -> Any:
    dtype = _DTYPES[column.kind]
    if column.shape == "one":
        return tf.io.FixedLenFeature([], dtype)
    if column.shape == "fixed":
        return tf.io.FixedLenFeature([column.width], dtype)
    if column.shape == "steps":  # No slower than ragged tensors, and what most people write.
        return tf.io.FixedLenSequenceFeature([column.width], dtype)
    return tf.io.RaggedFeature(dtype)


def _dataset(workload: Workload, path: Path, compression: str = "") -> tf.data.Dataset:
    single = {c.name: _spec(c) for c in workload.columns if c.shape != "steps"}
    steps = {c.name: _spec(c) for c in workload.columns if c.shape == "steps"}

    def parse(records: tf.Tensor) -> dict[str, Any]:
        if not workload.is_sequence:
            return tf.io.parse_example(records, single)
        context, lists, counts = tf.io.parse_sequence_example(records, single, steps)
        return {**context, **{name: (lists[name], counts[name]) for name in lists}}

    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    records = tf.data.TFRecordDataset(str(path), compression)
    return records.batch(_BATCH_ROWS).map(parse).with_options(options)


def _read(dataset: tf.data.Dataset) -> None:
    for _ in dataset:
        pass


def _check(workload: Workload, dataset: tf.data.Dataset) -> Checked:
    out = Checked()
    for batch in dataset:
        out.rows += int(batch[workload.checked[0]].shape[0])
        for name in workload.checked:
            column, values = workload.column(name), batch[name]
            if column.kind == "bytes":
                out.add_bytes(name, values.numpy().tolist())
            elif column.shape == "steps":
                padded, counts = (tensor.numpy() for tensor in values)
                out.add(name, padded[np.arange(padded.shape[1]) < counts[:, None]], counts)
            elif column.shape == "ragged":
                out.add(name, values.flat_values.numpy(), values.row_lengths().numpy())
            else:
                out.add(name, values.numpy())
    return out


class _Writing:
    """Rows of Python values to a file: an Example for each, made and written in a loop."""

    def __init__(self, workload: Workload, compression: str = "") -> None:
        self._workload = workload.head
        self._compression = compression
        self._target = DATA / f"{workload.name}-written.tfrecord"

    @functools.cached_property
    def _rows(self) -> list[tuple[Any, ...]]:
        return list(generate.rows(self._workload))

    def run(self) -> None:
        generate.write(self._workload, self._target, iter(self._rows), self._compression)

    def check(self) -> Checked:
        self.run()
        out = expected(self._workload)  # What it writes is what all read.
        if not self._compression:
            out.payload_bytes = self._target.stat().st_size - 16 * out.rows
        self._target.unlink()
        return out


def cases(workload: Workload) -> dict[str, Case]:
    """Return what is measured of TensorFlow."""
    size, head_size = (one.path.stat().st_size for one in (workload, workload.head))

    def reading(dataset: tf.data.Dataset) -> Case:
        return Case(lambda: _read(dataset), lambda: _check(workload, dataset), size)

    def writing(compression: str) -> Case:
        found = _Writing(workload, compression)
        return Case(found.run, found.check, head_size)

    return {
        "parse": reading(_dataset(workload, workload.path)),
        "parse_gzip": reading(_dataset(workload, workload.gzip_path, "GZIP")),
        "write": writing(""),
        "write_gzip": writing("GZIP"),
    }
