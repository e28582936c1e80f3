"""Days and times that writers of Parquet and ORC count in a calendar of their own.

Spark before its version 3, Spark since if it is told to, and Hive write days before 15 October 1582
as the Julian calendar has them, and pyarrow (26.0.1) reads them as days of the Gregorian one:
1500-01-01 becomes 1500-01-10. Times before 1900 may also be in other offsets of their zone
(https://spark.apache.org/docs/latest/sql-data-sources-parquet.html, datetimeRebaseMode).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.errors import SchemaMismatchError
from tfrecord_io.formats.base import row_of
from tfrecord_io.formats.exact import leaves
from tfrecord_io.schema import leaf_type

#: 15 October 1582 in days, and 1 January 1900 in seconds since 1970.
_FIRST_DAY = -141_427
_FIRST_SECOND = -2_208_988_800


def is_in_parquet(metadata: dict[bytes, bytes] | None) -> bool:
    """Return whether what Spark says of a Parquet file means that old times may be others."""
    known = metadata or {}
    if b"org.apache.spark.legacyDateTime" in known or b"org.apache.spark.legacyINT96" in known:
        return True
    version = known.get(b"org.apache.spark.version", b"2")
    return b"org.apache.spark.sql.parquet.row.metadata" in known and version < b"3"


def is_in_orc(file: Any) -> bool:
    """Return whether the program that wrote a `pyarrow.orc.ORCFile` may count old days otherwise.

    Its footer tells, which pyarrow does not show.
    """
    try:
        return bool(file.writer == "ORC_JAVA")
    except ValueError:
        # One that pyarrow does not know.
        return False


def refused(
    batches: Iterable[pa.RecordBatch], url: str, row: int | None
) -> Iterator[pa.RecordBatch]:
    """Give batches on, and raise `SchemaMismatchError` for the first time that may be another."""
    for batch in batches:
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            first = _first_sure(leaf_type(array.type))
            is_old = functools.partial(_is_older, first=first)
            if first is not None and is_old(array):
                raise SchemaMismatchError(
                    f"column {name!r} has a time before {first}, and the file's writer counts such "
                    "in another calendar than pyarrow reads: write the file with Spark's setting "
                    "datetimeRebaseModeInWrite=CORRECTED in Parquet, or leave the column out with "
                    "columns",
                    path=url,
                    feature=name,
                    row=row_of(is_old, array, row),
                )
        yield batch
        row = None if row is None else row + batch.num_rows


def _first_sure(t: pa.DataType) -> Any:
    if pat.is_date32(t):
        return pa.scalar(_FIRST_DAY, pa.int32()).cast(t)
    if pat.is_timestamp(t):
        return pa.scalar(_FIRST_SECOND).cast(pa.timestamp("s")).cast(pa.timestamp(t.unit)).cast(t)
    return None


def _is_older(array: pa.Array, first: Any) -> bool:
    return bool(pc.any(pc.less(leaves(array), first), min_count=0).as_py())
