"""Whether files that no manifest describes can be read together with what a job adds to them.

Whoever reads the data set afterwards takes the columns from the job's manifest. So the names of all
files are looked at, the values in the names of their folders, and the first rows of one file: a
glance, for what is told apart at a glance. Later records may still turn out to be different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.commit.plan import schema_beside_others
from tfrecord_io.errors import LayoutError, SchemaMismatchError, TFRecordError
from tfrecord_io.formats import get_format
from tfrecord_io.formats.base import InputFile, conform
from tfrecord_io.formats.detection import format_of_content, format_of_name
from tfrecord_io.layout import parse_partition_path
from tfrecord_io.partition_values import cast_partition_values
from tfrecord_io.plan import ScanFile, ScanOptions, ScanPlan, ScanTask, WriteJob
from tfrecord_io.reading.tasks import read_task
from tfrecord_io.storage import Storage

#: So many rows are read.
_ROWS = 100


def check_fit(
    job: WriteJob, storage: Storage, root: str, paths: Sequence[str], time_zone: str
) -> None:
    """Raise unless files can be read with the columns that a job writes.

    Parameters
    ----------
    job : WriteJob
        Adds to the data set, and partitions it as it is.
    storage : Storage
        Where the data set is.
    root : str
        The data set.
    paths : sequence of str
        Its data files, relative to it.
    time_zone : str
        The zone in which the caller reads the times that name folders.

    Raises
    ------
    LayoutError
        Folders are named by times of another zone than UTC, in which the manifest says that all of
        them are.
    SchemaMismatchError
        They are of another format, or hold other types of the columns or of the partitions.
    """
    file = _first_file(storage, root, paths)
    if file is None:
        return
    _check_formats(job, storage, root, paths, file)
    texts: dict[str, list[str | None]] = {}
    try:
        parsed = [parse_partition_path(path.rpartition("/")[0]) for path in paths]
        for index, name in enumerate(job.partition_by):
            texts[name] = [*{one[index][1] for one in parsed}]
            cast_partition_values(name, texts[name], job.partition_schema.field(name).type)
        next(_rows(job, storage, file), None)
    except TFRecordError as error:
        raise SchemaMismatchError(
            "what is in the data set cannot be read with the columns of the data to be added: "
            f"{error.what}; cast these, write them elsewhere, or overwrite",
            path=error.path or storage.url(root),
            offset=error.offset,
            record=error.record,
            feature=error.feature,
        ) from error
    for name, told in texts.items():
        t = job.partition_schema.field(name).type
        if pat.is_timestamp(t):
            _check_zone(name, told, t, time_zone, storage.url(root))


def _check_formats(
    job: WriteJob, storage: Storage, root: str, paths: Sequence[str], file: ScanFile
) -> None:
    """Hold files to a job's format: by their names, or, if these tell none, by what is in one."""
    formats = {found[0]: path for path in paths if (found := format_of_name(path)) is not None}
    content = format_of_content(InputFile(storage, file)) if not formats else None
    if content is not None:
        formats[content] = file.path.removeprefix(f"{root}/")
    for name, path in formats.items():
        if name != job.file_format:
            raise SchemaMismatchError(
                f"the data set holds {name} files and the data to be added are "
                f"{job.file_format}; write them elsewhere, or overwrite",
                path=storage.url(f"{root}/{path}"),
            )


def _check_zone(
    name: str, texts: Sequence[str | None], t: pa.DataType, time_zone: str, url: str
) -> None:
    """Raise unless texts tell the same times in a zone as in UTC."""
    in_utc = cast_partition_values(name, texts, t)
    if not in_utc.equals(cast_partition_values(name, texts, t, time_zone)):
        raise LayoutError(
            f"the folders of partition column {name!r} tell times in the zone {time_zone}, and the "
            "manifest of what is added would say that they are in UTC: write elsewhere, or "
            "overwrite the data set as a whole",
            path=url,
            feature=name,
        )


def _first_file(storage: Storage, root: str, paths: Sequence[str]) -> ScanFile | None:
    for path in paths:
        info = storage.info(f"{root}/{path}")
        if info.size:
            return ScanFile(0, info.path, storage.url(info.path), info.size, info.version)
    return None


def _rows(job: WriteJob, storage: Storage, file: ScanFile) -> Iterator[pa.RecordBatch]:
    columns = schema_beside_others(job)
    if job.file_format == "tfrecord":
        plan = ScanPlan(
            locations=(job.url,),
            storage_options=job.storage_options,
            schema=columns,
            file_schema=columns,
            partition_schema=pa.schema([]),
            options=ScanOptions(record_type=job.record_type, codec=job.codec, batch_rows=_ROWS),
        )
        yield from read_task(plan, ScanTask(file))
        return
    file_format, opened = get_format(job.file_format), InputFile(storage, file)
    for piece in file_format.look(opened, columns).pieces:
        batches = file_format.read(opened, piece, columns, None)
        for batch in batches:
            yield from conform([batch.slice(0, _ROWS)], columns, file.url, piece.row)
