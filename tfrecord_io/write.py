"""Writing a data set: the plan, and the write of a whole table without an engine.

`plan_write` checks everything that can be checked before anything is written; engines give its job
to `tfrecord_io.attempt.write_task` on their workers and to `tfrecord_io.commit.commit_job` on the
driver. `write_table` does all three with threads of this process. Task k holds the rows from ``k *
rows_per_task`` on, so what is written depends neither on the number of threads nor on the batches
that came in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.codec import get_codec
from tfrecord_io.commit import abort_job, commit_job, recover
from tfrecord_io.commit_plan import check_appended, first_added_task, is_data_path
from tfrecord_io.compression import check_level, normalize_compression
from tfrecord_io.errors import (
    DatasetExistsError,
    LayoutError,
    OptionError,
    UnsupportedTypeError,
)
from tfrecord_io.feed import Feeder
from tfrecord_io.layout import (
    EmptyPartition,
    check_partition_name,
    format_segments,
)
from tfrecord_io.manifest import Manifest, read_manifest
from tfrecord_io.options import (
    DEFAULT_ROWS_PER_TASK,
    CodecName,
    Float64Mode,
    RecordType,
    SaveMode,
    choice,
    no_column,
    positive,
    settings,
)
from tfrecord_io.part_writer import check_file_format
from tfrecord_io.plan import WriteJob, WriteResult
from tfrecord_io.schema import check_schema, check_writable, normal_schema, storage_type
from tfrecord_io.staging import STAGING_NAME, Staging, is_link
from tfrecord_io.storage import LocalStorage, Storage, Tree, open_storage, threads_for
from tfrecord_io.storage.local import check_links


def plan_write(
    schema: pa.Schema,
    path: str | os.PathLike[str],
    *,
    partition_by: str | Sequence[str] = (),
    mode: SaveMode = "error",
    record_type: RecordType = "Example",
    compression: str | None = None,
    compression_level: int | None = None,
    max_records_per_file: int | None = None,
    float64: Float64Mode = "warn",
    codec: CodecName = "auto",
    storage_options: Mapping[str, Any] | None = None,
    empty_partition: EmptyPartition = "error",
    owner_pid: int | None = None,
    file_format: str = "tfrecord",
    file: str | None = None,
    time_zone: str = "UTC",
) -> WriteJob:
    """Check a write, finish or remove what killed jobs left in the target, and begin a job.

    Parameters
    ----------
    schema : pyarrow.Schema
        All columns, the partition columns among them. Nullable flags are held to.
    path : str or path-like
        The target folder; a local path or URL.
    partition_by : str or sequence of str
        Columns that become ``key=value`` folders, outermost first, and stand in no record.
    mode : {"error", "overwrite", "append", "ignore", "overwrite_partitions"}
        What becomes of data that are there: refuse, replace all, add, write nothing, or replace
        those partitions that are written.
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a row becomes.
    compression : str, optional
        ``gzip``, ``deflate``, ``bzip2``, ``zstd``, ``snappy``, ``lz4``, or Hadoop's name of the
        codec.
    compression_level : int, optional
        See `tfrecord_io.compression.compressor`.
    max_records_per_file : int, optional
        A task begins another file of a folder after so many rows.
    float64 : {"warn", "cast", "error"}
        What to do about values that float32 cannot hold exactly.
    codec : {"auto", "native", "reference"}
        Which codec encodes.
    storage_options : mapping, optional
        For the file system.
    empty_partition : {"error", "null"}
        What to do about empty strings in partition columns.
    owner_pid : int, optional
        The process on this host whose end means that the job is dead, for engines whose planning
        process ends before the job does. By default this process.
    file_format : str
        What the files are, see `tfrecord_io.part_writer.check_file_format`.
    file : str, optional
        Path of the one file that is written, for which `path` is only the folder of the job.
    time_zone : str
        The zone in which the caller reads times in the names of folders that no manifest describes.

    Returns
    -------
    WriteJob
        To be pickled to tasks. It ends with `tfrecord_io.commit.commit_job` or `abort_job`.

    Raises
    ------
    OptionError, UnsupportedTypeError, LayoutError, SchemaMismatchError
        What was asked for is not possible; nothing was written.
    DatasetExistsError
        The mode is "error" and there are data, or the target is a file.
    """
    names = _check_partitions(schema, partition_by)
    choice("mode", mode, SaveMode)
    choice("record_type", record_type, RecordType)
    choice("float64", float64, Float64Mode)
    choice("empty_partition", empty_partition, EmptyPartition)
    if max_records_per_file is not None:
        positive("max_records_per_file", max_records_per_file)
    if mode == "overwrite_partitions" and not names:
        raise OptionError('mode="overwrite_partitions" needs partition columns; name them')
    known_compression = normalize_compression(compression)
    level = check_level(known_compression, compression_level)
    in_files = pa.schema([f for f in schema if f.name not in names])
    if file_format == "tfrecord":
        check_writable(in_files, record_type)
        get_codec(codec)
    else:
        check_file_format(file_format, in_files, known_compression, compression_level)
    normal = normal_schema(schema)
    storage, root = open_storage(path, storage_options)
    staging = Staging(storage, root)
    job = WriteJob(
        url=os.fspath(path) if not isinstance(storage, LocalStorage) else root,
        storage_options=settings(storage_options),
        job_id="",
        mode=mode,
        skip=True,
        first_task_index=0,
        schema=pa.schema([f.with_nullable(schema.field(f.name).nullable) for f in normal]),
        file=file,
        partition_by=names,
        file_format=file_format,
        record_type=record_type,
        compression=known_compression,
        compression_level=level,
        max_records_per_file=max_records_per_file,
        float64=float64,
        codec=codec,
        empty_partition=empty_partition,
    )
    if _check_target(storage, root, mode):
        recover(staging)
        # It may have been made for a job that is removed by now.
        if storage.is_folder(root):
            tree, manifest = _look(job, storage, root, time_zone)
            if mode == "ignore" and tree.files:
                return job
            if mode == "append":
                job = replace(job, first_task_index=first_added_task(tree, manifest))
    job_id = staging.set_up_job(owner_pid)
    try:
        folder = storage.local_path(staging.job_folder(job_id))
        if folder is not None and file is None:
            check_links(folder)
        return replace(job, job_id=job_id, skip=False)
    except BaseException:
        # Nobody else knows of the job.
        staging.remove_job_quietly(job_id)
        raise


def _check_partitions(schema: pa.Schema, partition_by: str | Sequence[str]) -> tuple[str, ...]:
    is_one = isinstance(partition_by, str) or not isinstance(partition_by, Iterable)
    names: tuple[Any, ...] = (partition_by,) if is_one else tuple(partition_by)
    if not all(isinstance(name, str) for name in names):
        raise OptionError(f"partition_by is {partition_by!r}; give names of columns")
    known = schema.names
    for index, name in enumerate(names):
        # pyarrow would encode the name, which may be no UTF-8.
        if name not in known:
            raise no_column(name, known)
        if known.count(name) > 1:
            raise LayoutError(f"two columns are named {name!r}; rename one of them", feature=name)
        if name in names[:index]:
            raise OptionError(f"the partition column {name!r} is named twice; once is enough")
        check_partition_name(name)
        t = storage_type(schema.field(name).type)
        # Of no values: only the type is looked at.
        format_segments(name, pa.nulls(0, t.value_type if pat.is_dictionary(t) else t))
    if names and len(names) == len(schema):
        raise LayoutError(
            "all columns are partition columns; at least one must stay in the records"
        )
    return names


def _check_target(storage: Storage, root: str, mode: SaveMode) -> bool:
    """Return whether the target is there; raise if it cannot be one, or must not go."""
    storage.check_target(root)
    is_folder = storage.is_folder(root) or _is_folder_by_now(storage, root)
    if mode == "overwrite" and storage.local_path(root) is not None:
        target = Path(root).resolve()
        for place, what in ((Path.cwd(), "working"), (Path.home(), "home")):
            if target == place.resolve() or target in place.resolve().parents:
                raise LayoutError(
                    f"overwriting would remove the {what} directory; choose another path", path=root
                )
    return is_folder


def _is_folder_by_now(storage: Storage, root: str) -> bool:
    """Ask in one call what else may be there: between two, another job may make the folder."""
    try:
        storage.info(root)
    except IsADirectoryError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        # A link that leads nowhere is there.
        if not is_link(storage, root):
            return False
    raise DatasetExistsError(
        "the target is a file, and a data set is a folder; choose another path",
        path=storage.url(root),
    )


def refuse_existing(storage: Storage, root: str) -> None:
    """Raise `DatasetExistsError` if `plan_write` would for the mode "error".

    Nothing is recovered or begun, so this can be asked before a long look at what is to be written.
    """
    if storage.is_folder(root) and storage.tree(root, skip=STAGING_NAME).files:
        raise _exists(storage, root)


def _exists(storage: Storage, root: str) -> DatasetExistsError:
    return DatasetExistsError(
        'the target already exists; choose another path, or mode="overwrite" or "append"',
        path=storage.url(root),
    )


def _look(
    job: WriteJob, storage: Storage, root: str, time_zone: str
) -> tuple[Tree, Manifest | None]:
    """Return what is in the target, after checking what the mode asks of it."""
    tree = storage.tree(root, skip=STAGING_NAME)
    if job.mode == "error" and (tree.files or tree.folders):
        raise _exists(storage, root)
    # Folders may be those of a commit that is not decided yet: `plan_commit` looks at them.
    if job.mode not in ("append", "overwrite_partitions"):
        return tree, None
    manifest = read_manifest(storage, root)
    found = check_appended(job, storage, root, tree, manifest)
    if found is None and (paths := [*filter(is_data_path, tree.files)]):
        # Loaded on demand: most writes need no other format.
        from tfrecord_io.foreign_files import check_fit

        check_fit(job, storage, root, paths, time_zone)
    return tree, manifest


def write_table(
    data: Any,
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    partition_by: str | Sequence[str] = (),
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
        Polars, DuckDB and others with ``__arrow_c_stream__`` are streams. Of a pandas frame, an
        index other than a plain range becomes a column, as in ``pyarrow.Table.from_pandas``
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
        See `plan_write`.
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
        See `plan_write`, `tfrecord_io.attempt.write_task` and `tfrecord_io.commit.commit_job`. The
        target is as it was, unless it is a `CommitStateUnknownError`.

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
    try:
        feeder = Feeder(
            job,
            rows_per_task=rows_per_task,
            threads=threads_for([job.url], job.storage_options, threads),
            is_in_memory=isinstance(batches, list),
        )
        commits = feeder.run(batches)
    except BaseException:
        abort_job(job)
        raise
    return commit_job(job, commits)


def _open_data(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if _is_pandas(data):
        from tfrecord_io.pandas_columns import to_table

        data = to_table(data)
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return reader.schema, reader
        if hasattr(data, "__arrow_c_array__"):
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
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _open_iterable(iter(data), schema)
    if isinstance(data, Mapping):
        raise OptionError(
            f"data is a {type(data).__name__}; pyarrow.table(data) makes a table of columns, where "
            "pyarrow.FixedShapeTensorArray.from_numpy_ndarray(array) is one of an array with "
            "several axes"
        )
    raise OptionError(
        f"data is a {type(data).__name__}; give a pyarrow Table, batches of one, a data frame or "
        "anything else with __arrow_c_stream__"
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


def _is_pandas(data: object) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)
