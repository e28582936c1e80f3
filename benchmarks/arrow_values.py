"""Workloads as Arrow batches, and Arrow batches back to what can be compared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from checks import Checked
from workloads import Column, Lists, Values, Workload


def batches(workload: Workload, *, only_lists: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the workload's batches of `batch_rows` rows.

    With `only_lists`, single values are lists of one, which is all that tfx_bsl knows.
    """
    for rows, values in workload.chunks():
        columns = {c.name: _array(c, values[c.name], only_lists) for c in workload.columns}
        batch = pa.record_batch(columns)
        for start in range(0, rows, workload.batch_rows):
            yield batch.slice(start, workload.batch_rows)


def _array(column: Column, values: Values, only_lists: bool) -> pa.Array:
    if isinstance(values, Lists):
        inner = pa.array(np.ascontiguousarray(values.values).ravel())
        if column.shape == "steps":
            inner = _in_runs(inner, column.width)
        return pa.ListArray.from_arrays(pa.array(values.offsets.astype(np.int32)), inner)
    if column.shape == "fixed":
        return _in_runs(pa.array(np.ascontiguousarray(values).ravel()), column.width)
    text = pa.string() if column.is_text and not only_lists else pa.binary()
    array = pa.array(values, text if column.kind == "bytes" else None)
    return _in_runs(array, 1) if only_lists else array


def _in_runs(values: pa.Array, width: int) -> pa.Array:
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, len(values) + 1, width, dtype=np.int32)), values
    )


def add_batch(checked: Checked, workload: Workload, batch: pa.RecordBatch) -> None:
    """Go on with a batch's rows, of those checked columns that it has."""
    checked.rows += batch.num_rows
    for name in workload.checked:
        if name in batch.schema.names:
            _add_array(checked, workload.column(name), batch.column(name))


def _add_array(checked: Checked, column: Column, array: pa.Array) -> None:
    lengths: pa.Array | tuple[()] = ()
    if column.shape in ("ragged", "steps"):
        lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        array = array.flatten()
    if column.kind != "bytes":
        checked.add(column.name, array.to_numpy(zero_copy_only=False), lengths)
        return
    array = array.cast(pa.large_binary())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: len(array) + 1]
    data = array.buffers()[2]
    values = data[int(offsets[0]) : int(offsets[-1])] if data is not None else b""
    checked.add(column.name, values, np.diff(offsets))
