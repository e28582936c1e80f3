"""What Dask's optimizer is told of a read: its length, what `head` needs, what filters exclude.

`dask.dataframe.from_map` pushes the choice of columns down, and knows nothing else. The rest takes
a subclass of its expression, which Dask keeps to itself: where that is not as expected, `from_map`
serves, and `len`, `head` and filters read more.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfrecord_io.engines.dask.reading import Partitions
from tfrecord_io.plan import ScanTask

try:
    from dask.dataframe.dask_expr import new_collection
    from dask.dataframe.dask_expr._expr import (
        Filter,
        Head,
        Index,
        Literal,
        determine_column_projection,
    )
    from dask.dataframe.dask_expr._reductions import Len
    from dask.dataframe.dask_expr.io.io import FromMapProjectable

    from tfrecord_io.engines.dask.pruning import possible
except ImportError:
    FromMapProjectable = None

if TYPE_CHECKING:
    import pandas as pd

    from tfrecord_io.engines.dask.reading import Reader

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tasks:
    """The tasks of a read, one after the other.

    Attributes
    ----------
    places : numpy.ndarray of int
        Of each, the index of its partition and that in the partition.
    rows : list of int
        How many rows each has; 0 if that is not known.
    is_counted : numpy.ndarray of bool
        Whether it is known of all tasks of the partition.
    values : pandas.DataFrame
        The values of the partition columns, in the frame's dtypes.
    """

    places: npt.NDArray[np.int64]
    rows: list[int]
    is_counted: npt.NDArray[np.bool_]
    values: pd.DataFrame


if FromMapProjectable is not None:

    class ReadTFRecord(FromMapProjectable):  # type: ignore[misc]
        """`from_map`'s expression of a `Reader`, `Partitions` and a `_Meta`."""

        _filter_passthrough = True

        @functools.cached_property
        def frame_meta(self) -> pd.DataFrame:
            """An empty frame of the columns that are read."""
            return self.operand("user_meta").frame[self.columns]

        def _simplify_up(self, parent: Any, dependents: Any) -> Any:
            if isinstance(parent, Len):
                rows = self._rows_together()
                return self._with_columns(parent, []) if rows is None else Literal(rows)
            if type(parent) is Index:
                # Those that others need of it, as a predicate: two reads would read all twice.
                needed = determine_column_projection(self, parent, dependents)
                return self._with_columns(parent, [one for one in self.columns if one in needed])
            if type(parent) is Head:
                return self._limited(parent)
            if type(parent) is Filter and self._filter_passthrough_available(parent, dependents):
                return self._pruned(parent)
            return super()._simplify_up(parent, dependents)

        def _with_columns(self, parent: Any, columns: list[str]) -> Any:
            """Return a parent of some columns: of none, and with rows known, nothing is read."""
            return parent.substitute(self, self.substitute_parameters({"columns": columns}))

        def _rows_together(self) -> int | None:
            reader: Reader = self.func
            partitions: Partitions = self.iterables[0]
            if not self._filtered:
                return reader.rows_of_all(partitions)
            chosen = (partitions[index] for index in self._partitions)
            return reader.rows_of(tuple(itertools.chain.from_iterable(chosen)))

        def _limited(self, parent: Any) -> Any:
            reader: Reader = self.func
            if parent.n < 0:
                return None
            limited = self.substitute_parameters({"func": replace(reader, limit=parent.n)})
            return parent.substitute(self, limited)

        def _filter_passthrough_available(self, parent: Any, dependents: Any) -> bool:
            # What else is made of this frame needs all of it. And a filter that has told what it
            # excludes lets columns pass.
            is_only = super()._filter_passthrough_available(parent, dependents)
            return bool(is_only and len(self._excluded(parent)))

        def _pruned(self, parent: Any) -> Any:
            """Return a filter on what it does not exclude: fewer files, and as many partitions."""
            groups = [list(group) for group in self.iterables[0]]
            for index in self._excluded(parent):
                owner, place = self._tasks.places[index]
                groups[owner][place] = self._tasks.rows[index]
            partitions = Partitions([tuple(group) for group in groups])
            pruned = self.substitute_parameters({"iterables": [partitions]})
            return parent.substitute(self, pruned)

        def _excluded(self, parent: Any) -> npt.NDArray[np.int64]:
            """Return which tasks have no row that a filter keeps, and need not be read."""
            reader: Reader = self.func
            has_folders = bool(reader.plan.partition_schema.names)
            if not has_folders or self._tasks.values.columns.empty:
                return np.arange(0)
            known = self._tasks
            excluded = ~possible(parent.predicate, self, known.values)
            owners = known.places[:, 0]
            kept = np.bincount(owners[~excluded], minlength=len(self.iterables[0]))
            # The index counts the rows of a partition, those of other files as well.
            is_droppable = known.is_counted | (kept[owners] == 0)
            found: npt.NDArray[np.int64] = np.flatnonzero(excluded & is_droppable)
            return found

        @functools.cached_property
        def _tasks(self) -> _Tasks:
            reader: Reader = self.func
            partitions: Partitions = self.iterables[0]
            there = [
                (owner, place, task)
                for owner, group in enumerate(partitions)
                for place, task in enumerate(group)
                if isinstance(task, ScanTask)
            ]
            columns = {
                field.name: pa.array([task.file.partition[index] for *_, task in there], field.type)
                for index, field in enumerate(reader.plan.partition_schema)
            }
            if reader.dtype_backend is None:
                # Beside a null NumPy has no integers, and a partition without one has them.
                columns = {name: one for name, one in columns.items() if not one.null_count}
            counted = [reader.rows_of(group) is not None for group in partitions]
            return _Tasks(
                places=np.array([place for *place, _ in there], int).reshape(-1, 2),
                rows=[task.rows or 0 for *_, task in there],
                is_counted=np.array([counted[owner] for owner, *_ in there], bool),
                values=reader.frame(pa.table(columns)),
            )
