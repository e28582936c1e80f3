"""From data sets to TensorFlow, which has to be installed for it."""

from __future__ import annotations

from tfrecord_io.tf_dataset import dataset

__all__ = ["dataset"]
