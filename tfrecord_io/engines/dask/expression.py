"""What Dask's optimizer is told of a read: how long partitions are, and how little `head` needs.

`dask.dataframe.from_map` pushes the choice of columns down, and knows nothing else. The rest takes
a subclass of its expression, which Dask keeps to itself: where that is not as expected, `from_map`
serves, and `len` and `head` read more.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd

try:
    from dask.dataframe.dask_expr import new_collection
    from dask.dataframe.dask_expr._expr import Head, Index, Lengths, Literal
    from dask.dataframe.dask_expr._reductions import Len
    from dask.dataframe.dask_expr.io.io import FromMapProjectable
except ImportError:
    FromMapProjectable = None

if TYPE_CHECKING:
    import pandas as pd

    from tfrecord_io.engines.dask.reading import Partitions, Reader

LABEL = "read-tfrecord"


def make_collection(reader: Reader, partitions: Partitions, meta: pd.DataFrame) -> Any:
    """Return a Dask frame that reads partitions when it is computed."""
    if FromMapProjectable is None:
        return dd.from_map(reader, partitions, columns=list(meta.columns), meta=meta, label=LABEL)
    return new_collection(
        ReadTFRecord(
            reader, [partitions], list(meta.columns), [], {}, True, _Meta(meta), False, None, LABEL
        )
    )


class _Meta:
    """An empty frame that a reader's name tells already: Dask need not look at its columns."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __dask_tokenize__(self) -> str:
        return type(self).__name__


if FromMapProjectable is not None:

    class ReadTFRecord(FromMapProjectable):  # type: ignore[misc]
        """`from_map`'s expression of a `Reader`, `Partitions` and a `_Meta`."""

        @functools.cached_property
        def frame_meta(self) -> pd.DataFrame:
            """An empty frame of the columns that are read."""
            return self.operand("user_meta").frame[self.columns]

        def _simplify_up(self, parent: Any, dependents: Any) -> Any:
            if isinstance(parent, Len):
                rows = self._rows_together()
                return self._without_columns(parent) if rows is None else Literal(rows)
            if isinstance(parent, Lengths):
                each = self._rows_each()
                return self._without_columns(parent) if None in each else Literal(each)
            if type(parent) is Index:
                return self._without_columns(parent)
            if type(parent) is Head:
                return self._limited(parent)
            return super()._simplify_up(parent, dependents)

        def _without_columns(self, parent: Any) -> Any:
            """Return a parent that asks for rows alone: where they are known, nothing is read."""
            if not self.columns:
                return None
            return parent.substitute(self, self.substitute_parameters({"columns": []}))

        def _rows_each(self) -> tuple[int | None, ...]:
            reader: Reader = self.func
            partitions: Partitions = self.iterables[0]
            return tuple(reader.rows_of(partitions[index]) for index in self._partitions)

        def _rows_together(self) -> int | None:
            reader: Reader = self.func
            if not self._filtered:
                return reader.rows_of_all(self.iterables[0])
            rows = [count for count in self._rows_each() if count is not None]
            return sum(rows) if len(rows) == self.npartitions else None

        def _limited(self, parent: Any) -> Any:
            reader: Reader = self.func
            if parent.n <= 0 or (reader.limit is not None and reader.limit <= parent.n):
                return None
            limited = self.substitute_parameters({"func": replace(reader, limit=parent.n)})
            return parent.substitute(self, limited)
