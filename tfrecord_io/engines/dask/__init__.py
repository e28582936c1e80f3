"""Dask: `read_tfrecord` makes a dask.dataframe of TFRecord files, `to_tfrecord` writes one.

Nothing of the format is here: partitions are read by `tfrecord_io.reading.tasks.read_tasks`, and
written by `tfrecord_io.writing.attempt.write_task` and `tfrecord_io.commit.job.commit_job`.
"""

from __future__ import annotations

from tfrecord_io.engines.dask.reading import read_tfrecord
from tfrecord_io.engines.dask.writing import to_tfrecord

__all__ = ["read_tfrecord", "to_tfrecord"]
