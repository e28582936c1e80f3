"""Rows of Arrow arrays by their indices, also where Arrow's own kernels have none or are wrong.

As of pyarrow 26.0.1 `take` and `filter` have no kernels for views, so that casts of dictionaries of
views fail, which polars makes of categories. They give other rows than those asked for, or read
behind the buffer, where the values of a fixed-size list of fixed-size lists do not begin at the
beginning of their buffers. Acero looks at slices of what it is given, so filters of tables meet
that in any table of more than 32,768 rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat


def take(values: pa.Array, indices: pa.Array) -> pa.Array:
    """Return `values.take(indices)`."""
    t = values.type
    if pat.is_string_view(t):
        return values.cast(pa.large_string()).take(indices).cast(t)
    if pat.is_binary_view(t):
        return values.cast(pa.large_binary()).take(indices).cast(t)
    if pat.is_fixed_size_list(t) and pat.is_fixed_size_list(t.value_type):
        # What is put together begins at the beginning.
        values = pa.concat_arrays([values.slice(0, 0), values])
    try:
        return values.take(indices)
    except pa.ArrowNotImplementedError:
        # Lists of views, one by one.
        null = pa.nulls(1, t)
        parts = [null if i is None else values.slice(i, 1) for i in indices.to_pylist()]
        return pa.concat_arrays(parts) if parts else values.slice(0, 0)


def take_rows(batch: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    """Return the rows of a batch."""
    if not batch.num_columns:
        return batch.take(indices)
    arrays = [take(column, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
