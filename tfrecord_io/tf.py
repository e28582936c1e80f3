"""From data sets to TensorFlow, which has to be installed for it."""

from __future__ import annotations

from tfrecord_io.tensors.tf_dataset import dataset
from tfrecord_io.tensors.tf_specs import feature_spec

__all__ = ["dataset", "feature_spec"]
