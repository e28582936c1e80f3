"""Writes a table with threads of this process.

Task k holds the rows from ``k * rows_per_task`` on, so what is written depends neither on the
number of threads nor on the batches that came in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tfrecord_io.commit.job import aborted_by_errors, commit_job
from tfrecord_io.errors import OptionError, UnsupportedTypeError
from tfrecord_io.layout import EmptyPartition
from tfrecord_io.options import (
    DEFAULT_ROWS_PER_TASK,
    CodecName,
    Float64Mode,
    RecordType,
    SaveMode,
    positive,
)
from tfrecord_io.plan import WriteResult
from tfrecord_io.schema import check_schema
from tfrecord_io.storage import threads_for
from tfrecord_io.writing.feed import Feeder
from tfrecord_io.writing.plan import plan_write


def write_table(
    data: Any,
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    partition_by: str | Sequence[str] | None = (),
    mode: SaveMode = "error",
    record_type: RecordType = "Example",
    compression: str | None = None,
    compression_level: int | None = None,
    max_records_per_file: int | None = None,
    rows_per_task: int = DEFAULT_ROWS_PER_TASK,
    float64: Float64Mode = "warn",
    codec: CodecName = "auto",
    storage_options: Mapping[str, Any] | None = None,
    empty_partition: EmptyPartition = "error",
    threads: int | None = None,
) -> WriteResult:
    """Write a table as a data set of TFRecord files.

    Parameters
    ----------
    data : pyarrow.Table, RecordBatch, RecordBatchReader, iterable of batches, or any Arrow stream
        Polars, DuckDB and others with ``__arrow_c_stream__`` are streams, and so are a
        ``pyarrow.dataset.Dataset`` and a ``Scanner`` of one. Of a pandas frame, an index other
        than a plain range becomes a column, as in ``pyarrow.Table.from_pandas``
        (``frame.reset_index(drop=True)`` is written without it), and objects must be of one kind in
        a column. Chunks, as ``pandas.read_csv`` makes them, are written together as
        ``(pyarrow.Table.from_pandas(chunk, schema) for chunk in chunks)``, with this `schema` given
        here as well. Streams are written in bounded memory.
    path : str or path-like
        The target folder; a local path or URL.
    schema : pyarrow.Schema, optional
        The columns, in the order in which they are written; needed for an iterable without batches.
        By default the data's own. Nothing is cast to it, but doubles may come for float32.
    partition_by, mode, record_type, compression, compression_level, max_records_per_file
        See `tfrecord_io.writing.plan.plan_write`.
    rows_per_task : int
        Each run of so many rows makes part files of its own.
    float64, codec, storage_options, empty_partition
        See `plan_write`.
    threads : int, optional
        How many tasks are written at once, and how many threads compress, even a single file; by
        default one for each core that this process may use, and at least four to a remote store.

    Returns
    -------
    WriteResult
        What was written.

    Raises
    ------
    InferenceError
        The values of a column of a pandas frame have no one type.
    TFRecordError
        See `plan_write`, `tfrecord_io.writing.attempt.write_task` and
        `tfrecord_io.commit.job.commit_job`. The target is as it was, unless it is a
        `CommitStateUnknownError`.

    Warns
    -----
    PrecisionWarning
        Once, with all columns whose values were narrowed to float32.
    TFRecordWarning
        The index of a pandas frame has no name, and becomes the column ``__index_level_0__``.
    """
    positive("rows_per_task", rows_per_task)
    if threads is not None:
        positive("threads", threads)
    check_schema(schema)
    found_schema, batches = _open_data(data, schema)
    job = plan_write(
        found_schema if schema is None else schema,
        path,
        partition_by=partition_by,
        mode=mode,
        record_type=record_type,
        compression=compression,
        compression_level=compression_level,
        max_records_per_file=max_records_per_file,
        float64=float64,
        codec=codec,
        storage_options=storage_options,
        empty_partition=empty_partition,
    )
    if job.skip:
        return WriteResult()
    with aborted_by_errors(job):
        feeder = Feeder(
            job,
            rows_per_task=rows_per_task,
            threads=threads_for([job.url], job.storage_options, threads),
            is_in_memory=isinstance(batches, list),
        )
        commits = feeder.run(batches)
    return commit_job(job, commits)


def _open_data(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if _is_pandas(data):
        from tfrecord_io.pandas_columns import to_table

        data = to_table(data)
    data = _scanned(data)
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _open_exported(data)
    if hasattr(data, "__dask_graph__"):
        raise OptionError(
            f"data is a {type(data).__name__} of Dask, which tfrecord_io.to_tfrecord writes as a "
            "frame; compute() makes one in memory"
        )
    if isinstance(data, Mapping):
        raise OptionError(
            f"data is a {type(data).__name__}; pyarrow.table(data) makes a table of columns, where "
            "pyarrow.FixedShapeTensorArray.from_numpy_ndarray(array) is one of an array with "
            "several axes"
        )
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _open_iterable(iter(data), schema)
    raise OptionError(
        f"data is a {type(data).__name__}; give a pyarrow Table, batches of one, a data frame or "
        "anything else with __arrow_c_stream__"
    )


def _open_exported(data: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Open what another library exports by Arrow's PyCapsule interface."""
    _check_no_objects_of_polars(data)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return reader.schema, reader
        batch = pa.record_batch(data)
        return batch.schema, [batch]
    except pa.ArrowInvalid as error:
        if "unsupported format string" in str(error):
            raise UnsupportedTypeError(
                f"data is a {type(data).__name__}, and a column's type is none of pyarrow's: "
                f"{error}; cast the column"
            ) from error
        raise OptionError(
            f"data is a {type(data).__name__}, which holds no columns: {error}; give a pyarrow "
            "Table or batches of one, which have a name for each column"
        ) from error


def _check_no_objects_of_polars(data: Any) -> None:
    """Refuse columns of Python objects, of which Polars exports where they are in memory."""
    if type(data).__module__.partition(".")[0] != "polars":
        return
    for name, dtype in getattr(data, "schema", {}).items():
        if str(dtype) == "Object":
            raise UnsupportedTypeError(
                f"column {name!r} is one of Python objects, which have no values outside of "
                "Polars: cast the column, or write it as JSON text",
                feature=name,
            )


def _open_iterable(
    items: Iterator[Any], schema: pa.Schema | None
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if schema is not None:
        return schema, _all_batches(items)
    first = next(items, None)
    if first is None:
        raise OptionError("data is empty, so that its columns are not known; give a schema")
    return _checked_batch(first).schema, _all_batches((first,), items)


def _all_batches(*groups: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for group in groups:
        for item in group:
            batch = _checked_batch(item)
            yield from batch.to_batches() if isinstance(batch, pa.Table) else (batch,)


def _checked_batch(item: object) -> pa.RecordBatch | pa.Table:
    if isinstance(item, pa.RecordBatch | pa.Table):
        return item
    advice = ""
    if _is_pandas(item):
        advice = ", as pyarrow.Table.from_pandas(frame, schema) makes them, of one schema for all"
    elif isinstance(item, dict):
        advice = (
            ": pyarrow.Table.from_pylist(rows) is one, and a dataset of Hugging Face gives them by "
            'dataset.with_format("arrow").iter(1000)'
        )
    raise OptionError(
        f"data holds a {type(item).__name__}; it must hold pyarrow record batches or tables{advice}"
    )


def _scanned(data: Any) -> Any:
    """Return a reader of the rows of pyarrow's data sets and their scanners; all else as it is."""
    dataset = sys.modules.get("pyarrow.dataset")
    if dataset is None:
        return data
    if isinstance(data, dataset.Dataset):
        data = data.scanner()
    return data.to_reader() if isinstance(data, dataset.Scanner) else data


def _is_pandas(data: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)
