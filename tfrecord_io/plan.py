"""What crosses processes: small, frozen, picklable dataclasses and nothing that does work.

A driver makes a job (or a scan), pickles it to workers, and gets commits (or batches) back. Of what
there is one for each file, there may be many thousands: named tuples, which are made in a third of
the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from tfrecord_io.compression import Compression
from tfrecord_io.errors import OptionError
from tfrecord_io.layout import EmptyPartition
from tfrecord_io.options import (
    CodecName,
    DecodeOptions,
    Float64Mode,
    Limits,
    OnCorruptRows,
    RecordType,
    SaveMode,
    choice,
    flag,
)
from tfrecord_io.storage import Storage, open_storage

# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """A batch of a stream: it is published once, however often it is committed.

    Attributes
    ----------
    stream : str
        Names the stream for as long as it exists, over all restarts.
    number : int
        Grows from batch to batch.
    """

    stream: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """One write of a data set; `tfrecord_io.writing.plan.plan_write` makes it.

    Attributes
    ----------
    url : str
        The target as the caller named it; `tfrecord_io.storage.open_storage` opens it.
    storage_options : mapping
        For the file system; never shown in a repr.
    job_id : str
        Names the job's staging folder.
    mode : {"error", "overwrite", "append", "ignore", "overwrite_partitions"}
        What becomes of data that are there.
    skip : bool
        The mode is "ignore" and there are data: nothing is to be written.
    first_task_index : int
        What the part files of task 0 are numbered with, unless another job adds to the data first.
    file : str or None
        Path of the one file that is written; None for a data set.
    schema : pyarrow.Schema
        All columns: types in normal form, nullable flags as declared, which values are held to.
    partition_by : tuple of str
        The partition columns, in the order of the folders.
    file_format, record_type, compression, compression_level, max_records_per_file, float64, codec
        See `tfrecord_io.writing.plan.plan_write`.
    empty_partition : {"error", "null"}
        See `tfrecord_io.layout.format_segments`.
    batch : StreamBatch or None
        What an append is a batch of. Only the commit looks at it.
    state : str or None
        The state that the data set must still be in when its turn comes, see
        `tfrecord_io.commit.job.check_state`. Only the commit looks at it.
    """

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    job_id: str
    mode: SaveMode
    skip: bool
    first_task_index: int
    file: str | None = None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    file_format: str
    record_type: RecordType
    compression: Compression | None
    compression_level: int | None
    max_records_per_file: int | None
    float64: Float64Mode
    codec: CodecName
    empty_partition: EmptyPartition
    batch: StreamBatch | None = None
    state: str | None = None

    @property
    def data_schema(self) -> pa.Schema:
        """The columns that stand in the records."""
        return pa.schema([f for f in self.schema if f.name not in self.partition_by])

    @property
    def partition_schema(self) -> pa.Schema:
        """The columns that stand in the folders, in their order."""
        return pa.schema([self.schema.field(name) for name in self.partition_by])


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A part file that is whole and durable, and not visible yet.

    Attributes
    ----------
    staged : str
        Its path relative to the job's staging folder; in a store of uploads what completes its
        upload.
    folder : str
        The partition folder it belongs in, relative to the data set; empty without partitions.
    file_index : int
        Its number among the task's files of that folder.
    extension : str
        What its name ends in, such as ``.tfrecord.gz``.
    bytes, rows, marks
        See `tfrecord_io.manifest.ManifestFile`.
    """

    staged: str
    folder: str
    file_index: int
    extension: str
    bytes: int
    rows: int
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommit:
    """What one attempt at a task staged; only what the driver's commit is given gets published.

    Attributes
    ----------
    task_index : int
        The task, 0-based.
    files : tuple of StagedFile
        Sorted by folder and file index.
    inexact_columns : tuple of str
        Columns whose values were narrowed to float32, sorted.
    """

    task_index: int
    files: tuple[StagedFile, ...]
    inexact_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What a job published.

    Attributes
    ----------
    files, rows, bytes : int
        Part files, their rows, and their length in bytes.
    """

    files: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """What `tfrecord_io.commit.job.clean` did, or would do.

    Attributes
    ----------
    finished : tuple of str
        Jobs whose commit was decided and not carried out: finished now.
    removed : tuple of str
        Jobs that left staged files behind: removed.
    running : tuple of str
        Jobs that run, or may run on another machine: left alone.
    uploads : int
        Unfinished uploads of removed jobs, or of none: aborted.
    forgotten : tuple of str
        Files that the manifest no longer names, for they are gone or have another length.
    """

    finished: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    uploads: int = 0
    forgotten: tuple[str, ...] = ()


# --- reading --------------------------------------------------------------------------------------

#: Rows of one batch, unless the caller says another number.
DEFAULT_BATCH_ROWS = DecodeOptions().batch_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How files are read.

    Attributes
    ----------
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a payload is.
    compression : str or None
        Of all files; "infer" looks at each.
    on_corrupt : {"raise", "skip_record", "skip_file", "keep"}
        What becomes of damaged files, see `tfrecord_io.reading.tasks`.
    corrupt_column : str or None
        Name of the column that holds the bytes of damage that is kept; None leaves them.
    batch_rows, batch_bytes : int
        Where a batch ends, see `tfrecord_io.options.DecodeOptions`.
    limits : Limits
        See `tfrecord_io.options.Limits`.
    memory_map : bool
        Whether plain local files may be mapped into memory instead of read.
    codec : {"auto", "native", "reference"}
        See `tfrecord_io.codec.get_codec`.
    """

    record_type: RecordType = "Example"
    compression: str | None = "infer"
    on_corrupt: OnCorruptRows = "raise"
    corrupt_column: str | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DecodeOptions().batch_bytes
    limits: Limits = field(default_factory=Limits)
    memory_map: bool = True
    codec: CodecName = "auto"

    def __post_init__(self) -> None:
        choice("on_corrupt", self.on_corrupt, OnCorruptRows)
        if self.corrupt_column is not None and self.on_corrupt != "keep":
            raise OptionError(
                f"corrupt_column is {self.corrupt_column!r} and on_corrupt {self.on_corrupt!r}; "
                "only on_corrupt='keep' gives rows in which it could hold something"
            )
        choice("codec", self.codec, CodecName)
        flag("memory_map", self.memory_map)
        if not isinstance(self.limits, Limits):
            raise OptionError(f"limits is {self.limits!r}; it must be a tfrecord_io Limits")
        self.decode_options()

    def decode_options(self) -> DecodeOptions:
        """Return what the codec has to know of them."""
        return DecodeOptions(
            record_type=self.record_type,
            batch_rows=self.batch_rows,
            batch_bytes=self.batch_bytes,
            limits=self.limits,
            # What is skipped must not depend on which columns are read.
            check_all=self.on_corrupt != "raise",
        )


class ScanFile(NamedTuple):
    """A file to read.

    Attributes
    ----------
    location : int
        Index in `ScanPlan.locations` of the URL through which it was found.
    path : str
        Its path in the storage of that URL.
    url : str
        How messages and the path column name it: without credentials.
    size : int
        Its length in bytes.
    version : str
        A token that changes when the file is replaced or written to.
    partition : tuple of pyarrow.Scalar
        The values of the partition columns, in their order.
    rows : int or None
        Its records, if a manifest that still describes it says so.
    marks : tuple of (int, int)
        (offset, record) of records at which it can be split; see `tfrecord_io.manifest`.
    modified : float or None
        When it was written, as the store tells, in seconds since 1970.
    """

    location: int
    path: str
    url: str
    size: int
    version: str
    partition: tuple[pa.Scalar, ...] = ()
    rows: int | None = None
    marks: tuple[tuple[int, int], ...] = ()
    modified: float | None = None

    @property
    def key(self) -> tuple[int, str]:
        """What tells the file from the others of its plan."""
        return self.location, self.path

    def identity(self, locations: Sequence[str]) -> tuple[str, ...]:
        """Return what tells the file from every other one, given the `ScanPlan.locations`.

        Its URL does not: it shows no query, and of an archive's file not the archive.
        """
        location = locations[self.location]
        return location if "::" in location else "", self.url, self.path

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            for one in self.partition:
                if isinstance(one, pa.TimestampScalar):
                    one.as_py()
        except OverflowError:
            # pyarrow pickles a time as Python's, of the years 1 to 9999 alone; an array as it is.
            held = [pa.repeat(one, 1) for one in self.partition]
            return _with_partition, (self[:5], held, self[6:])
        return ScanFile, tuple(self)


def _with_partition(
    before: tuple[Any, ...], held: list[pa.Array], after: tuple[Any, ...]
) -> ScanFile:
    return ScanFile._make((*before, tuple(one[0] for one in held), *after))


class ScanTask(NamedTuple):
    """The run of records of one file that one task reads.

    Attributes
    ----------
    file : ScanFile
        The file.
    start, end : int
        Where the first record starts, and where the one behind the last starts; None for the end of
        the file.
    record : int
        Index in the file of the first record.
    rows : int or None
        How many records, if that is known.
    search : bool
        Where records start is not known yet: the task reads those that start at `start` or behind
        it, and before `end`. See `tfrecord_io.reading.boundaries`.
    """

    file: ScanFile
    start: int = 0
    end: int | None = None
    record: int = 0
    rows: int | None = None
    search: bool = False

    @property
    def bytes(self) -> int:
        """Its share of the file."""
        return (self.file.size if self.end is None else self.end) - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """One read of a data set; `tfrecord_io.reading.plan.plan_scan` makes it.

    Attributes
    ----------
    locations : tuple of str
        The URLs that were given; `storages` opens them.
    storage_options : mapping
        For the file system; never shown in a repr.
    schema : pyarrow.Schema
        Of the batches that come out.
    file_schema : pyarrow.Schema
        The columns that are read from the records, those that only the filter needs among them.
    rounded : frozenset of str
        Columns of decimals that every manifest says were written as these decimals.
    written : mapping of str to pyarrow.DataType
        The types that manifests say of columns of times for which `file_schema` has another unit.
    partition_schema : pyarrow.Schema
        The partition columns, in the order of `ScanFile.partition`.
    path_column : str or None
        Name of the column that holds the file's URL.
    filter : pyarrow.compute.Expression or None
        Rows for which it is not true are left out.
    filter_columns : tuple of str
        The columns that it needs.
    options : ScanOptions
        How files are read.
    tasks : tuple of ScanTask
        What there is to read, in the order of the files.
    """

    locations: tuple[str, ...]
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    schema: pa.Schema
    file_schema: pa.Schema
    rounded: frozenset[str] = frozenset()
    written: Mapping[str, pa.DataType] = field(default_factory=dict)
    partition_schema: pa.Schema
    path_column: str | None = None
    filter: Any = None
    filter_columns: tuple[str, ...] = ()
    options: ScanOptions
    tasks: tuple[ScanTask, ...] = ()

    def storages(self) -> list[Storage]:
        """Open the store of each location; `ScanFile.location` is an index of them."""
        return [open_storage(url, self.storage_options)[0] for url in self.locations]

    def without_tasks(self) -> ScanPlan:
        """Return the plan as each worker needs it beside its one task."""
        return replace(self, tasks=())
