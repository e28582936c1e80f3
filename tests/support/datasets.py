"""The data sets that every engine writes to every store: all types, and hard partition values."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

PARTITION_BY = ["place", "day"]
_ROWS = 24

#: Types that Spark has no name for.
_NOT_IN_SPARK = ["uint64", "half", "floats"]


def hard_table() -> pa.Table:
    """All types, and partition values that folders cannot bear as they are."""
    stamp = datetime.datetime(2026, 1, 2, 3, 4, 5)
    return _table(
        {
            "bool": (True, pa.bool_()),
            "int8": (-7, pa.int8()),
            "int16": (-300, pa.int16()),
            "int32": (70_000, pa.int32()),
            "int64": (-(2**62), pa.int64()),
            "uint64": (2**63 - 1, pa.uint64()),
            "float": (1.5, pa.float32()),
            "double": (0.25, pa.float64()),
            "half": (0.5, pa.float16()),
            "decimal": (decimal.Decimal("2.50"), pa.decimal128(9, 2)),
            "string": ("käse", pa.large_string()),
            "blank": ("", pa.string()),
            "binary": (b"\x00\xff", pa.binary()),
            "date": (datetime.date(2020, 2, 29), pa.date32()),
            "stamp": (stamp, pa.timestamp("us")),
            "moment": (stamp, pa.timestamp("us", "Europe/Berlin")),
            "wait": (datetime.timedelta(seconds=5), pa.duration("us")),
            "list": ([1, 2, 3], pa.list_(pa.int64())),
            "floats": ([0.5, 1.5], pa.list_(pa.float32(), 2)),
            "doubles": ([0.5], pa.list_(pa.float64())),
            "strings": (["a", ""], pa.list_(pa.string())),
            "bytes": ([b"", b"\xff"], pa.large_list(pa.binary())),
            "empty": ([], pa.list_(pa.int64())),
            "nothing": (None, pa.string()),
        }
    )


def sequence_table() -> pa.Table:
    """Steps of every kind beside context: feature lists of no steps, and steps of no values."""
    return _table(
        {
            "name": ("käse", pa.string()),
            "list": ([1, 2], pa.list_(pa.int64())),
            "ints": ([[1, 2], [], None, [-3]], pa.list_(pa.list_(pa.int64()))),
            "floats": ([[0.5], [1.5, 2.5]], pa.list_(pa.large_list(pa.float32()))),
            "texts": ([["a", ""], []], pa.list_(pa.list_(pa.string()))),
            "bytes": ([[b"\xff"]], pa.list_(pa.list_(pa.binary()))),
        }
    )


def as_in_spark(table: pa.Table) -> pa.Table:
    """The columns whose types Spark has as well."""
    return table.select([name for name in table.column_names if name not in _NOT_IN_SPARK])


def _table(values: dict[str, tuple[Any, pa.DataType]]) -> pa.Table:
    places = ["a b", "x/../y", "100%", "ü=ß", "2026-01-02", None, "..", "#?*"]
    days = [datetime.date(2026, 1, 1), None]
    columns: dict[str, pa.Array] = {
        "place": pa.array([places[row % len(places)] for row in range(_ROWS)]),
        "day": pa.array([days[row % 2] for row in range(_ROWS)], pa.date32()),
        "row": pa.array(range(_ROWS), pa.int64()),
    }
    for name, (value, kind) in values.items():
        columns[name] = pa.array([None if row % 5 == 4 else value for row in range(_ROWS)], kind)
    return pa.table(columns)
