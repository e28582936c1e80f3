"""Reads with threads of this process.

The codec frees the interpreter's lock, so threads share the work of one file as of many. Batches
come in the order of the files, and are the same for any number of threads. Memory is bounded by
what waits to be taken (`tfrecord_io.parallel.BUDGET_BYTES`) and one span for each thread.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tfrecord_io.filters import Filters
from tfrecord_io.options import CodecName, Limits, OnCorruptRows, RecordType
from tfrecord_io.plan import DEFAULT_BATCH_ROWS, ScanPlan
from tfrecord_io.reading.files import Paths
from tfrecord_io.reading.plan import plan_files, plan_scan
from tfrecord_io.reading.tasks import counting, decoding, warned
from tfrecord_io.storage import threads_for


def read_plan(
    plan: ScanPlan, *, threads: int | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Read all tasks of a plan.

    Parameters
    ----------
    plan : ScanPlan
        From `tfrecord_io.reading.plan.plan_scan`.
    threads : int, optional
        How many work at a time; without it one for each core, and at least four for a remote store.

    Returns
    -------
    generator of pyarrow.RecordBatch
        In the order of the tasks. Closing it stops the threads.
    """
    return _batches(plan, threads_for(plan.locations, plan.storage_options, threads))


def _batches(plan: ScanPlan, threads: int) -> Generator[pa.RecordBatch, None, None]:
    with contextlib.closing(decoding(plan).run_all(plan.tasks, threads)) as tasks:
        yield from warned(itertools.chain.from_iterable(tasks))


def scan(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorruptRows = "raise",
    corrupt_column: str | None = None,
    path_column: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    memory_map: bool = True,
    sample_files: int | None = None,
    threads: int | None = None,
) -> pa.RecordBatchReader:
    """Read a data set as a stream of record batches, in bounded memory.

    Parameters
    ----------
    path, columns, schema, filters, record_type, compression, on_corrupt, corrupt_column
        See `read_table`.
    path_column, storage_options, codec, limits, batch_rows, memory_map, sample_files, threads
        See `read_table`.

    Returns
    -------
    pyarrow.RecordBatchReader
        Files are read ahead by threads while the caller works; a caller that pauses stops them, and
        they end with the stream or with the reader object: pyarrow tells nobody that it was closed.
        Its schema is that of the table that `read_table` returns.

    Raises
    ------
    FileNotFoundError, TFRecordError
        See `read_table`. What is wrong with a record is raised when the stream gets there.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://scan-example")
    >>> sum(batch.num_rows for batch in tfr.scan("memory://scan-example"))
    3
    """
    plan = plan_scan(
        path,
        columns=columns,
        schema=schema,
        filters=filters,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        corrupt_column=corrupt_column,
        path_column=path_column,
        storage_options=storage_options,
        codec=codec,
        limits=limits,
        batch_rows=batch_rows,
        memory_map=memory_map,
        sample_files=sample_files,
        threads=threads,
    )
    return pa.RecordBatchReader.from_batches(plan.schema, read_plan(plan, threads=threads))


def read_table(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorruptRows = "raise",
    corrupt_column: str | None = None,
    path_column: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    memory_map: bool = True,
    sample_files: int | None = None,
    threads: int | None = None,
) -> pa.Table:
    """Read a data set as a table.

    Parameters
    ----------
    path : str, path-like or a list of them
        Folders (read with all below them), files, or patterns with ``*``, ``?``, ``[...]``,
        ``{a,b}`` and ``**``; local paths or fsspec URLs. Names that start with ``_`` or ``.`` are
        hidden.
    columns : list of str, optional
        The columns to read, in this order. Only these are decoded.
    schema : pyarrow.Schema, optional
        Columns and types. Without it, the types that tfrecord-io recorded when it wrote the data
        set; for other files, those that all records are seen to have.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        Keep the rows for which it is true: ``(column, operator, value)`` with the operators ``=``,
        ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` and ``not in``, or with None ``is`` and
        ``is not``; all of a list must hold, or one of a list of lists. Files whose partition values
        exclude them are not opened.
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a record's payload is. ByteArray gives one column, ``byteArray``.
    compression : str or None
        "infer" looks at each file's content, then at its name. Or ``gzip``, ``deflate``,
        ``bzip2``, ``zstd``, ``snappy``, ``lz4``, or None for plain files.
    on_corrupt : {"raise", "skip_record", "skip_file", "keep"}
        What becomes of damaged files. "skip_record" leaves out the damaged records, "skip_file"
        the files that hold any; "keep" gives a row of nulls for each range of damaged bytes. A
        warning for each file says where they are. Features that nobody asked for are held to
        protobuf's rules as well then, so that the rows are the same whatever `columns` are read.
    corrupt_column : str, optional
        With "keep", name of a binary column that holds the damaged bytes; it follows those of the
        records.
    path_column : str, optional
        Name of a last column that holds each row's file.
    storage_options : mapping, optional
        For the fsspec file system.
    codec : {"auto", "native", "reference"}
        Which codec decodes, see `tfrecord_io.codec.get_codec`.
    limits : Limits, optional
        What files may demand before they are refused.
    batch_rows : int
        Most rows of one batch.
    memory_map : bool
        Whether plain local files may be mapped into memory, where that is faster than to read them
        and for columns of views. They must not be cut short in place meanwhile: the operating
        system then ends the process.
    sample_files : int, optional
        Look for the schema in so many files at most instead of in all; in as many more where those
        have no records.
    threads : int, optional
        How many work at a time; without it one for each core, and at least four for a remote store.

    Returns
    -------
    pyarrow.Table
        Rows in the order of the files and of the records in them; partition columns last.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    CorruptDataError, LimitExceededError, SchemaMismatchError
        What is wrong with a file or record; names the file, byte offset, record and feature.
    InferenceError, LayoutError, ManifestError, OptionError
        What is wrong with the data set or the arguments.
    CommitConflictError, DatasetChangedError
        The data set is being written.

    Warns
    -----
    CorruptDataWarning
        Of damage that was left out, or kept.
    InferenceWarning
        Of types that were chosen and may surprise, and where no record has a feature.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://read-example")
    >>> tfr.read_table("memory://read-example", filters=[("x", ">", 1)])["x"].to_pylist()
    [2, 3]
    """
    reader = scan(
        path,
        columns=columns,
        schema=schema,
        filters=filters,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        corrupt_column=corrupt_column,
        path_column=path_column,
        storage_options=storage_options,
        codec=codec,
        limits=limits,
        batch_rows=batch_rows,
        memory_map=memory_map,
        sample_files=sample_files,
        threads=threads,
    )
    return reader.read_all()


def infer_schema(
    path: Paths,
    *,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorruptRows = "raise",
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    memory_map: bool = True,
    sample_files: int | None = None,
    threads: int | None = None,
) -> pa.Schema:
    """Return the schema that `read_table` gives a data set: what is recorded, or seen in records.

    Parameters
    ----------
    path, record_type, compression, on_corrupt, storage_options, codec
        See `read_table`.
    limits, memory_map, sample_files, threads
        See `read_table`.

    Returns
    -------
    pyarrow.Schema
        Columns in the order of their first sight, partition columns last.

    Raises
    ------
    InferenceError
        The records disagree so that no one schema describes them.
    FileNotFoundError, TFRecordError
        See `read_table`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://infer-example")
    >>> tfr.infer_schema("memory://infer-example").field("x").type
    DataType(int64)
    """
    return plan_scan(
        path,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        storage_options=storage_options,
        codec=codec,
        limits=limits,
        memory_map=memory_map,
        sample_files=sample_files,
        threads=threads,
        schema_only=True,
    ).schema


def count_rows(
    path: Paths,
    *,
    compression: str | None = "infer",
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    memory_map: bool = True,
    threads: int | None = None,
) -> int:
    """Return how many records a data set holds.

    Parameters
    ----------
    path, compression, storage_options, codec, limits, memory_map, threads
        See `read_table`.

    Returns
    -------
    int
        As recorded by tfrecord-io for files that it wrote and that still have their size; other
        files are hopped through from frame to frame, without a look at payloads.

    Raises
    ------
    ChecksumError, TruncatedRecordError
        A frame's length is damaged, or the file ends inside one.
    FileNotFoundError, TFRecordError
        See `read_table`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://count-example")
    >>> tfr.count_rows("memory://count-example")
    3
    """
    plan = plan_files(
        path,
        compression=compression,
        storage_options=storage_options,
        codec=codec,
        limits=limits,
        memory_map=memory_map,
    )
    return count_plan(plan, threads=threads)


def count_plan(
    plan: ScanPlan,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Count the records of a plan.

    Parameters
    ----------
    plan : ScanPlan
        From `tfrecord_io.reading.plan.plan_files`.
    threads : int, optional
        See `read_plan`.
    progress : callable, optional
        Called with the bytes of the files that were hopped through, and of all that have to be.

    Returns
    -------
    int
        How many there are.
    """
    rows = sum(task.rows for task in plan.tasks if task.rows is not None)
    unknown = [task for task in plan.tasks if task.rows is None]
    done, total = 0, sum(task.file.size for task in unknown)
    count = threads_for(plan.locations, plan.storage_options, threads)
    with contextlib.closing(counting(plan).run_all(unknown, count)) as counts:
        for task, of_file in zip(unknown, counts, strict=True):
            rows += sum(of_file)
            done += task.file.size
            if progress is not None:
                progress(done, total)
    return rows
