"""The embedded engine: plans carried out on threads of this process."""

from __future__ import annotations

from tfrecord_io.engines.local.reading import (
    count_plan,
    count_rows,
    infer_schema,
    read_plan,
    read_table,
    scan,
)
from tfrecord_io.engines.local.writing import write_table

__all__ = [
    "count_plan",
    "count_rows",
    "infer_schema",
    "read_plan",
    "read_table",
    "scan",
    "write_table",
]
