"""The names of the old tf.python_io, for programs that use them."""

from __future__ import annotations

from tfrecord_io.records.options import TFRecordCompressionType, TFRecordOptions
from tfrecord_io.records.reader import tf_record_iterator
from tfrecord_io.records.writer import TFRecordWriter

__all__ = [
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "tf_record_iterator",
]
