"""The plan of a write: all that can be checked before anything is written.

Engines give the job to `tfrecord_io.writing.attempt.write_task` on their workers, and to
`tfrecord_io.commit.job.commit_job` on the driver.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.codec import get_codec
from tfrecord_io.commit.job import recover
from tfrecord_io.commit.plan import (
    check_appended,
    check_removable,
    first_added_task,
    is_data_path,
)
from tfrecord_io.commit.staging import STAGING_NAME, Staging, is_link
from tfrecord_io.compression import check_level, normalize_compression
from tfrecord_io.errors import DatasetExistsError, LayoutError, OptionError
from tfrecord_io.layout import EmptyPartition, format_segments
from tfrecord_io.manifest import read_manifest
from tfrecord_io.options import (
    CodecName,
    Float64Mode,
    RecordType,
    SaveMode,
    choice,
    no_column,
    positive,
    settings,
)
from tfrecord_io.plan import WriteJob
from tfrecord_io.schema import check_writable, normal_schema, storage_type
from tfrecord_io.storage import LocalStorage, Storage, open_storage
from tfrecord_io.storage.local import check_links
from tfrecord_io.writing.part_writer import check_file_format


def plan_write(
    schema: pa.Schema,
    path: str | os.PathLike[str],
    *,
    partition_by: str | Sequence[str] | None = (),
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
    partition_by : str or sequence of str, optional
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
        What the files are, see `tfrecord_io.writing.part_writer.check_file_format`.
    file : str, optional
        Path of the one file that is written, for which `path` is only the folder of the job.
    time_zone : str
        The zone in which the caller reads times in the names of folders that no manifest describes.

    Returns
    -------
    WriteJob
        To be pickled to tasks. It ends with `tfrecord_io.commit.job.commit_job` or `abort_job`.

    Raises
    ------
    OptionError, UnsupportedTypeError, LayoutError, SchemaMismatchError
        What was asked for is not possible; nothing was written.
    DatasetExistsError
        The mode is "error" and there are data, or the target is a file.
    """
    names = _check_partitions(schema, () if partition_by is None else partition_by)
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
        if mode in ("error", "ignore"):
            if _is_in_use(storage, root):
                if mode == "ignore":
                    return job
                raise _exists(storage, root)
        # It may have been made for a job that is removed by now.
        elif storage.is_folder(root):
            job = replace(job, first_task_index=_first_task(job, storage, root, time_zone))
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


def as_names(given: Any) -> tuple[Any, ...]:
    """Return what was given as one name, or several, as a tuple; what is no name is still none."""
    is_one = isinstance(given, str) or not isinstance(given, Iterable)
    return (given,) if is_one else tuple(given)


def _check_partitions(schema: pa.Schema, partition_by: str | Sequence[str]) -> tuple[str, ...]:
    names = as_names(partition_by)
    if not all(isinstance(name, str) for name in names):
        shown = names[0] if len(names) == 1 else names
        raise OptionError(f"partition_by is {shown!r}; give names of columns")
    known = schema.names
    for index, name in enumerate(names):
        # pyarrow would encode the name, which may be no UTF-8.
        if name not in known:
            raise no_column(name, known)
        if known.count(name) > 1:
            raise LayoutError(f"two columns are named {name!r}; rename one of them", feature=name)
        if name in names[:index]:
            raise OptionError(f"the partition column {name!r} is named twice; once is enough")
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
        for place, what in _own_folders():
            if target == place or target in place.parents:
                raise LayoutError(
                    f"overwriting would remove the {what} directory; choose another path", path=root
                )
    return is_folder


def _own_folders() -> Iterator[tuple[Path, str]]:
    """Give the working directory and the home directory; a process may have neither."""
    with contextlib.suppress(FileNotFoundError):
        yield Path.cwd().resolve(), "working"
    with contextlib.suppress(RuntimeError):
        yield Path.home().resolve(), "home"


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
    if _is_in_use(storage, root):
        raise _exists(storage, root)


def _is_in_use(storage: Storage, root: str) -> bool:
    """Return whether what is there keeps the modes "error" and "ignore" from writing."""
    return storage.is_folder(root) and storage.holds_more(root, STAGING_NAME)


def _exists(storage: Storage, root: str) -> DatasetExistsError:
    return DatasetExistsError(
        'the target already exists; choose another path, or mode="overwrite" or "append"',
        path=storage.url(root),
    )


def _first_task(job: WriteJob, storage: Storage, root: str, time_zone: str) -> int:
    """Return the index of a job's first task, after checking the target for what the mode asks."""
    tree = storage.tree(root, skip=STAGING_NAME)
    # Folders may be those of a commit that is not decided yet: `plan_commit` looks at them.
    if job.mode == "overwrite":
        check_removable(storage, root, (*tree.files, *tree.folders))
        return 0
    manifest = read_manifest(storage, root)
    found = check_appended(job, storage, root, tree, manifest)
    if found is None and (paths := [*filter(is_data_path, tree.files)]):
        # Loaded on demand: most writes need no other format.
        from tfrecord_io.writing.foreign_files import check_fit

        check_fit(job, storage, root, paths, time_zone)
    return first_added_task(tree, manifest) if job.mode == "append" else 0
