"""The names of tf.data that have to do with records, for programs that use them."""

from __future__ import annotations

from tfrecord_io.records.dataset import AUTOTUNE, TFRecordDataset

__all__ = ["AUTOTUNE", "TFRecordDataset"]
