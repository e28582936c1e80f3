"""How many rows Spark hands to a Python worker at a time while this format is written.

Spark ends a batch at 10,000 rows or 64 MiB. Batches of 4 MiB stay in a processor's cache on their
way, but to know when a batch has its bytes Spark asks every column for its size after every row: of
40 columns a quarter of all that a write costs. To count rows costs nothing, so rows are counted
where that is safe:

- The types say how long a row is: all are numbers. A text, bytes or an array may hold anything.
- Nothing else in the plan hands rows to Python, which the limits may hold for too.
- The session is a classic one: the plan of another is on its server.

In a classic session the limits are properties of the calling thread, which Spark takes to the tasks
of its jobs; of Connect, settings of the session. What the session sets itself is kept to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import BooleanType, DatetimeType, NumericType, StructType

from tfrecord_io.engines.spark.settings import is_connect

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

#: As many as stay in a processor's cache.
_BATCH_BYTES = 4 * 1024 * 1024

#: A Java int's largest: Spark then asks for no size.
_ANY_BYTES = 2**31 - 1

#: Spark's own limits.
_MOST_ROWS, _MOST_BYTES = 10_000, 64 * 1024 * 1024

#: A batch costs for each of its columns as much as some hundred values.
_ENOUGH_ROWS = 1024

_NUMBERS = (BooleanType, NumericType, DatetimeType)

#: None of these numbers takes more bytes.
_WIDEST_NUMBER = 16


@contextlib.contextmanager
def small_batches(session: Any, frame: Any) -> Iterator[None]:
    """Have rows come in small batches meanwhile, unless the session says how large they are.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        The frame's.
    frame : pyspark.sql.DataFrame
        What is written; of a Connect session it is not looked at.
    """
    if session.conf.get(_BYTES, None) is not None:
        yield
    elif is_connect(session):
        session.conf.set(_BYTES, str(_BATCH_BYTES))
        try:
            yield
        finally:
            # What somebody else set meanwhile stays.
            if session.conf.get(_BYTES, None) == str(_BATCH_BYTES):
                session.conf.unset(_BYTES)
    else:
        limits = _limits(session, frame)
        context = session.sparkContext
        before = {name: context.getLocalProperty(name) for name in limits}
        for name, limit in limits.items():
            context.setLocalProperty(name, str(limit))
        try:
            yield
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)


def _limits(session: Any, frame: Any) -> dict[str, int]:
    """Return how many bytes, and perhaps rows, a batch of a classic frame may have."""
    if session.conf.get(_ROWS, None) is None and not _hands_rows_to_python(session, frame):
        rows = _rows_per_batch(frame.schema)
        if rows is not None:
            return {_BYTES: _ANY_BYTES, _ROWS: rows}
    return {_BYTES: _BATCH_BYTES}


def _rows_per_batch(columns: StructType) -> int | None:
    """Return how many rows make a small batch, if their types say so."""
    if not all(isinstance(field.dataType, _NUMBERS) for field in columns):
        return None
    row_bytes = _WIDEST_NUMBER * len(columns.fields)
    enough = min(_ENOUGH_ROWS, _MOST_BYTES // row_bytes)
    return min(_MOST_ROWS, max(enough, _BATCH_BYTES // row_bytes))


def _hands_rows_to_python(session: Any, frame: Any) -> bool:
    """Return whether the plan has functions, or generators, that may be Python's."""
    patterns = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    # As the user wrote it: what is cached, and may not be there yet, has its plan in this one.
    plan = frame._jdf.queryExecution().analyzed()
    return any(plan.containsPattern(one()) for one in (patterns.PYTHON_UDF, patterns.GENERATOR))
