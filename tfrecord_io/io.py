"""The names of tf.io that have to do with records, for programs that use them.

TensorFlow 1 has the iterator and the numbers of compressions there, too.
"""

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
