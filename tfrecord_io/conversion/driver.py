"""Converting between TFRecord and other file formats, in bounded memory, as a Dask task graph.

1. The formats are told by name or content; the source is planned (`tfrecord_io.conversion.source`):
   its columns, and the pieces that it is read in.
2. The write is planned as any other (`tfrecord_io.writing.plan.plan_write`), whatever the format.
3. Each piece is read and written by one task (`tfrecord_io.conversion.graph`), on threads of this
   process or on a Dask cluster.
4. The driver commits. Until then nothing is visible; a failure leaves the target as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tfrecord_io.commit.job import aborted_by_errors, commit_job
from tfrecord_io.conversion.graph import Shared, Written, check_scheduler, run_tasks
from tfrecord_io.conversion.single_file import open_target
from tfrecord_io.conversion.source import SourcePlan, plan_source
from tfrecord_io.errors import CorruptDataWarning, OptionError, warn
from tfrecord_io.filters import Filters
from tfrecord_io.formats import get_format
from tfrecord_io.formats.detection import (
    compression_of_target,
    format_compressed_within,
    format_of_files,
    format_of_name,
)
from tfrecord_io.layout import EmptyPartition, is_data_name, is_read_with
from tfrecord_io.manifest import read_manifest
from tfrecord_io.options import (
    Float64Mode,
    OnCorrupt,
    RecordType,
    SaveMode,
    choice,
    function,
)
from tfrecord_io.plan import TaskCommit, WriteJob, WriteResult
from tfrecord_io.reading.files import Paths, as_list
from tfrecord_io.reading.plan import plan_files
from tfrecord_io.storage import Storage, open_storage, target_options
from tfrecord_io.writing.plan import plan_write, refuse_existing

if TYPE_CHECKING:
    from distributed import Client

_SYNONYMS = {"json": "jsonl", "ndjson": "jsonl", "ipc": "arrow", "feather": "arrow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertProgress:
    """How far a conversion is.

    Attributes
    ----------
    tasks_done, tasks : int
        Tasks that ended, and all.
    bytes_done, bytes : int
        Bytes of the source's files that ended tasks read, and all.
    rows : int
        Rows that ended tasks wrote.
    """

    tasks_done: int
    tasks: int
    bytes_done: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """What a conversion published.

    Attributes
    ----------
    files, rows, bytes : int
        Files, their rows, and their length in bytes; 0 if the mode is "ignore" and there are data.
    from_format, to_format : str
        The formats, given or told.
    """

    files: int
    rows: int
    bytes: int
    from_format: str
    to_format: str


def convert(
    source: Paths,
    target: str | os.PathLike[str],
    *,
    from_format: str | None = None,
    to_format: str | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    partition_by: str | Sequence[str] | None = (),
    mode: SaveMode = "error",
    record_type: RecordType = "Example",
    compression: str | None = None,
    compression_level: int | None = None,
    max_records_per_file: int | None = None,
    float64: Float64Mode = "warn",
    on_corrupt: OnCorrupt = "raise",
    empty_partition: EmptyPartition = "error",
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    scheduler: str | Client = "threads",
    threads: int | None = None,
    progress: Callable[[ConvertProgress], None] | None = None,
) -> ConvertResult:
    """Convert files or a data set between TFRecord and other formats, or within one.

    Parameters
    ----------
    source : str, path-like or a list of them
        Folders (Hive-partitioned or not), files or patterns; local paths or fsspec URLs.
    target : str or path-like
        A folder, or a single file: see Notes.
    from_format, to_format : str, optional
        ``tfrecord``, ``parquet``, ``orc``, ``csv``, ``tsv``, ``jsonl``, ``arrow`` or ``avro``;
        without them they are told by the rules in Notes.
    columns : list of str, optional
        The columns to convert, in this order; at least one, unless the target is TFRecord.
    schema : pyarrow.Schema, optional
        Columns and types to read, instead of those found in the source. Values are cast exactly or
        refused; only texts and decimals become the nearest float, within its range.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        Keep the rows for which it is true, see `tfrecord_io.read_table`.
    partition_by : str or sequence of str, optional
        Columns that become ``key=value`` folders.
    mode : {"error", "overwrite", "append", "ignore", "overwrite_partitions"}
        What becomes of data that are there. A single file takes "error", "overwrite" and "ignore".
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a TFRecord payload is, of the source and of the target.
    compression : str, optional
        Of the target's files: ``gzip``, ``deflate``, ``bzip2``, ``zstd``, ``snappy`` or ``lz4``,
        as far as the format has it, or ``none``. By default a single file's name decides
        (``x.tfrecord.gz``); else TFRecord, text and Arrow files are plain, Parquet is
        snappy, ORC zstd and Avro deflate.
    compression_level : int, optional
        See `tfrecord_io.compression.compressor`. ORC files take none, and Avro files for deflate
        alone.
    max_records_per_file : int, optional
        A task begins another file of a folder after so many rows.
    float64 : {"warn", "cast", "error"}
        What to do about values that TFRecord's float32 cannot hold exactly.
    on_corrupt : {"raise", "skip_record", "skip_file"}
        What becomes of damaged TFRecord files.
    empty_partition : {"error", "null"}
        What to do about empty strings in partition columns.
    storage_options, target_storage_options : mapping, optional
        For the file systems of the source and of the target. Where the target's are not given,
        they are the source's if its URL is of the same kind.
    scheduler : {"threads", "synchronous"}, str or distributed.Client
        Where the tasks run: threads of this process, this thread, or a Dask cluster, by its
        scheduler's address or a client. What is written is the same.
    threads : int, optional
        How many tasks run at a time on "threads"; without it one for each core, and at least four
        for a remote store.
    progress : callable, optional
        Called with a `ConvertProgress`, in this process, each time a task ended.

    Returns
    -------
    ConvertResult
        What was published.

    Raises
    ------
    OptionError
        An argument that is none, or a format that cannot be told: the message says which to give.
    UnsupportedTypeError
        A column that the target's format cannot hold, or a source's two columns of one name;
        nothing was written.
    SchemaMismatchError, InferenceError, CorruptDataError
        What is wrong with the source; names file and row.
    DatasetExistsError
        The mode is "error" and there are data.
    TFRecordError
        See `tfrecord_io.writing.plan.plan_write` and `tfrecord_io.commit.job.commit_job`. The
        target is as it was, unless it is a `CommitStateUnknownError`.

    Warns
    -----
    PrecisionWarning, CorruptDataWarning, InferenceWarning
        See `tfrecord_io.read_table` and `tfrecord_io.write_table`.

    Notes
    -----
    *Source format*: the manifest of a folder that this package wrote; else the suffixes of the
    files' names, which must agree; else the first file's content (a magic number, a TFRecord frame
    whose CRC fits, or an object for JSON lines).

    *Target format*: the suffix of the target's name; else the manifest of a folder that is there;
    else TFRecord, if the source is something else.

    *A single file* is written if the target's name has a known suffix, does not end with ``/``, is
    no folder that is there, and there is no `partition_by`. One task writes it. Everything else is
    a folder.

    *Tasks*: one for each file of the source; Parquet, ORC, Arrow IPC, and TFRecord files whose
    manifest has marks are divided into pieces of about 128 MiB. Nothing but the source decides
    this, so equal calls write equal bytes wherever they run.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://convert-example")
    >>> tfr.convert("memory://convert-example", "memory://converted/x.parquet").rows
    3
    """
    choice("mode", mode, SaveMode)
    function("progress", progress)
    check_scheduler(scheduler)
    options = target_options(target, as_list(source), storage_options, target_storage_options)
    refuse_target(source, target, mode, storage_options, options)
    reads = _source_format(source, from_format, storage_options)
    is_file = _is_file(target, partition_by, options)
    writes = _target_format(target, to_format, reads, options)
    if isinstance(columns, Sequence) and not len(columns) and writes != "tfrecord":
        raise OptionError(
            f"columns is empty, and {writes} files hold no rows without columns; name at least one"
        )
    if is_file:
        _refuse_folder(target, writes, options)
        if max_records_per_file is not None:
            raise OptionError(
                "max_records_per_file cuts a data set into files, and the target is a single "
                'file; end the target with "/" to write a folder'
            )
        named = format_of_name(os.fspath(target))
        compression = compression_of_target(
            os.fspath(target), compression, named[1] if named is not None else None
        )
    if compression is None and writes != "tfrecord":
        compression = get_format(writes).default_compression
    file = open_target(target, mode, options) if is_file else None
    if file is not None and file.is_there():
        return _result(WriteResult(), reads, writes)
    plan = plan_source(
        source,
        file_format=reads,
        columns=columns,
        schema=schema,
        filters=filters,
        record_type=record_type,
        on_corrupt=on_corrupt,
        storage_options=storage_options,
    )
    job = plan_write(
        plan.scan.schema,
        target if file is None else file.url,
        partition_by=partition_by,
        mode=mode if file is None else "error",
        record_type=record_type,
        compression=compression,
        compression_level=compression_level,
        max_records_per_file=max_records_per_file,
        float64=float64,
        storage_options=options,
        empty_partition=empty_partition,
        file_format=writes,
        file=None if file is None else file.path,
    )
    if job.skip:
        return _result(WriteResult(), reads, writes)
    if file is None:
        with aborted_by_errors(job):
            commits = _staged(job, plan, scheduler, threads, progress)
        return _result(commit_job(job, commits), reads, writes)
    try:
        commits = _staged(job, plan, scheduler, threads, progress, is_one_task=True)
        return _result(file.publish(job, commits), reads, writes)
    finally:
        file.clean(job)


def _result(written: WriteResult, reads: str, writes: str) -> ConvertResult:
    return ConvertResult(
        files=written.files,
        rows=written.rows,
        bytes=written.bytes,
        from_format=reads,
        to_format=writes,
    )


def _staged(
    job: WriteJob,
    plan: SourcePlan,
    scheduler: Any,
    threads: int | None,
    progress: Callable[[ConvertProgress], None] | None,
    *,
    is_one_task: bool = False,
) -> list[TaskCommit]:
    pieces = plan.pieces
    tasks = [pieces] if is_one_task and pieces else [(piece,) for piece in pieces]
    total = sum(piece.bytes for piece in pieces)
    ended: list[Written] = []

    def done(written: Written) -> None:
        ended.append(written)
        if progress is not None:
            progress(
                ConvertProgress(
                    tasks_done=len(ended),
                    tasks=len(tasks),
                    bytes_done=sum(one.source_bytes for one in ended),
                    bytes=total,
                    rows=sum(file.rows for one in ended for file in one.commit.files),
                )
            )

    shared = Shared(job=job, source=plan.without_pieces())
    staged = run_tasks(shared, tasks, scheduler=scheduler, threads=threads, done=done)
    for text in (text for one in staged for text in one.warnings):
        warn(text, CorruptDataWarning)
    return [one.commit for one in staged]


# --- formats --------------------------------------------------------------------------------------


def _known(name: str, argument: str) -> str:
    found = _SYNONYMS.get(name, name) if isinstance(name, str) else name
    if found != "tfrecord":
        try:
            get_format(found)
        except OptionError as error:
            raise OptionError(f"{argument}: {error.what}") from None
    return found


def _source_format(
    source: Paths, asked: str | None, storage_options: Mapping[str, Any] | None
) -> str:
    if asked is not None:
        return _known(asked, "from_format")
    files = plan_files(source, storage_options=storage_options)
    opened = [open_storage(url, storage_options) for url in files.locations]
    for storage, root in opened:
        told = _told_by_manifest(storage, root)
        if told is not None:
            return told
    return format_of_files([one[0] for one in opened], [task.file for task in files.tasks])


def _told_by_manifest(storage: Storage, root: str) -> str | None:
    manifest = read_manifest(storage, root) if storage.is_folder(root) else None
    return None if manifest is None else manifest.file_format


def _target_format(
    target: str | os.PathLike[str], asked: str | None, reads: str, options: dict[str, Any]
) -> str:
    if asked is not None:
        return _known(asked, "to_format")
    named = format_of_name(os.fspath(target))
    if named is not None:
        return named[0]
    told = _told_by_manifest(*open_storage(target, options))
    if told is not None:
        return told
    within = format_compressed_within(os.fspath(target))
    if within is not None:
        raise OptionError(
            f"the target's name says {within}, whose files are compressed within, not as a whole: "
            "leave the last suffix out, and give compression if the default does not suit",
            path=os.fspath(target),
        )
    if reads != "tfrecord":
        return "tfrecord"
    raise OptionError("the target's name tells no format; give to_format")


def refuse_target(
    source: Paths,
    target: str | os.PathLike[str],
    mode: SaveMode,
    storage_options: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> None:
    """Raise what `convert` raises of a place to write to, before a look at the source.

    Raises
    ------
    DatasetExistsError
        The mode is "error" and there are data.
    OptionError
        The target is in the source.
    """
    storage, path = open_storage(target, options)
    storage.check_target(path)
    _refuse_part(source, storage_options, storage.url(path))
    if mode != "error":
        return
    if _is_file(target, (), options):
        open_target(target, mode, options).is_there()
    else:
        refuse_existing(storage, path)


def _refuse_part(source: Paths, storage_options: Mapping[str, Any] | None, target: str) -> None:
    """Raise `OptionError` if a target would be read with the source from then on."""
    for storage, root in (open_storage(one, storage_options) for one in as_list(source)):
        if is_read_with(target, storage.url(root)):
            raise OptionError(
                "the target is in the source, whose readers would read it, too; choose a place "
                "beside it, or below it one whose name starts with '_'",
                path=target,
            )


def _refuse_folder(target: str | os.PathLike[str], writes: str, options: dict[str, Any]) -> None:
    """Raise `OptionError` if a target file would be taken for one of a data set."""
    storage, path = open_storage(target, options)
    folder, _, name = path.rpartition("/")
    told = _told_by_manifest(storage, folder or "/") if is_data_name(name) else None
    if told not in (None, writes):
        raise OptionError(
            f"the target would be a {writes} file in a data set of {told} files, whose readers "
            "take it for one of them; choose another folder",
            path=storage.url(path),
        )


def _is_file(
    target: str | os.PathLike[str],
    partition_by: str | Sequence[str] | None,
    options: dict[str, Any],
) -> bool:
    text = os.fspath(target)
    if partition_by or text.endswith("/") or format_of_name(text) is None:
        return False
    storage, path = open_storage(target, options)
    return not storage.is_folder(path)
