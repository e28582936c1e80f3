"""The names of tf.io that have to do with records, for programs that use them.

TensorFlow 1 has the iterator and the numbers of compressions there, too.
"""

from __future__ import annotations

from tfrecord_io.record_options import TFRecordCompressionType, TFRecordOptions
from tfrecord_io.record_reader import tf_record_iterator
from tfrecord_io.record_writer import TFRecordWriter

__all__ = [
    "TFRecordCompressionType",
    "TFRecordOptions",
    "TFRecordWriter",
    "tf_record_iterator",
]
