"""The names of tf.io that have to do with records, for programs that use them."""

from __future__ import annotations

from tfrecord_io.record_options import TFRecordOptions
from tfrecord_io.record_writer import TFRecordWriter

__all__ = ["TFRecordOptions", "TFRecordWriter"]
