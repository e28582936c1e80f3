"""The names of tf.compat.v1 that have to do with records, for programs that use them."""

from __future__ import annotations

from tfrecord_io import data, io, python_io, train

__all__ = ["data", "io", "python_io", "train"]
