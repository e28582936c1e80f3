"""Reading: one plan of the core, packed into Spark's partitions.

The reader is made in a Python worker beside the driver, pickled, and unpickled by each task. The
plan goes with it, without its tasks; each `InputPartition` holds the tasks that are its own.

Files are cut and packed as Spark packs those of its own sources (``FilePartition.scala``): at most
``min(maxPartitionBytes, max(openCostInBytes, all bytes / parallelism))`` a partition, each file
costing ``openCostInBytes`` beside its length (by default less, see
`tfrecord_io.engines.spark.settings`); the session's ``minPartitionNum`` stands for the parallelism,
and if these are more than its ``maxPartitionNum``, about as many are made. Unlike Spark, which
begins with the largest file, they stay in the order of the listing, so that rows come in the order
in which they were written.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tfrecord_io.engines.spark.conditions import analysis_error, in_words_of_spark, in_worker
from tfrecord_io.engines.spark.filters import expression
from tfrecord_io.engines.spark.options import ReadOptions
from tfrecord_io.engines.spark.types import conformed
from tfrecord_io.engines.spark.workers import SentToTasks, keep_what_is_loaded
from tfrecord_io.errors import DatasetChangedError, OptionError, SchemaMismatchError
from tfrecord_io.parallel import read_ahead
from tfrecord_io.plan import ScanPlan, ScanTask
from tfrecord_io.reading.cuts import cut_tasks, packed
from tfrecord_io.reading.files import Selection
from tfrecord_io.reading.listing import Missing, without_braces
from tfrecord_io.reading.plan import plan_files, plan_scan
from tfrecord_io.reading.tasks import read_tasks
from tfrecord_io.storage import FileInfo, Storage, open_storage

#: Batches of about this size move fastest from Python to the JVM.
_BATCH_BYTES = 4 * 1024 * 1024

#: A file is not shared between tasks in smaller parts: to begin one takes longer than to read it.
_LEAST_BYTES = 16 * 1024 * 1024

#: Decoded bytes that wait while Spark takes a batch.
_AHEAD_BYTES = 2 * _BATCH_BYTES


def plan(
    options: ReadOptions,
    *,
    schema: pa.Schema | None = None,
    columns: tuple[str, ...] | None = None,
    filters: Any = None,
    schema_only: bool = False,
    was_seen: bool = False,
    missing: Missing = "error",
) -> ScanPlan:
    """Plan a read; see `tfrecord_io.reading.plan.plan_scan`, and `Selection` for the last two.

    Of the columns of a `schema` those for paths and for damaged bytes are not looked for in the
    records.
    """
    corrupt_column = options.corrupt_column
    if schema is not None:
        schema = _without(schema, options.path_column)
        if corrupt_column not in schema.names:
            corrupt_column = None
        schema = _without(schema, corrupt_column)
    selection = replace(_selection(options), was_seen=was_seen, missing=missing)
    sample = None
    if schema is None and options.sampling_ratio is not None:
        files = plan_files(options.paths, storage_options=options.storage, selection=selection)
        sample = max(1, math.ceil(len(files.tasks) * options.sampling_ratio))
    found = plan_scan(
        options.paths,
        columns=columns,
        schema=schema,
        filters=options.filters if filters is None else filters,
        record_type=options.record_type,
        compression=options.compression,
        on_corrupt=options.on_corrupt,
        corrupt_column=corrupt_column,
        path_column=options.path_column,
        storage_options=options.storage,
        codec=options.codec,
        sample_files=sample,
        task_bytes=options.max_partition_bytes,
        schema_only=schema_only,
        selection=selection,
    )
    if not options.case_sensitive:
        _check_case(found.schema.names)
    # Small batches, so that the JVM need not wait long for the first one.
    return replace(found, options=replace(found.options, batch_bytes=_BATCH_BYTES))


def _without(schema: pa.Schema, name: str | None) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != name])


def _check_case(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            # The condition of Spark's own sources.
            raise analysis_error(
                "COLUMN_ALREADY_EXISTS",
                f"the columns {other!r} and {name!r} differ in case alone, and Spark takes "
                "them for one: give a schema with one of them, or set spark.sql.caseSensitive to "
                "true",
            )


def _selection(options: ReadOptions) -> Selection:
    fitting = None
    if options.name_glob is not None:
        fitting = re.compile("|".join(map(fnmatch.translate, without_braces(options.name_glob))))
    after, before = options.modified_after, options.modified_before

    def keep(storage: Storage, info: FileInfo) -> bool:
        if fitting is not None and not fitting.match(info.path.rpartition("/")[2]):
            return False
        if after is None and before is None:
            return True
        if info.modified is None:
            raise OptionError(
                f"modifiedAfter and modifiedBefore are not possible for {storage.url(info.path)}: "
                "its store does not tell when files were written"
            )
        return (after is None or info.modified > after) and (
            before is None or info.modified < before
        )

    return Selection(
        keep=keep,
        partition_base=options.base_path,
        has_partitions=not options.is_recursive,
        is_flat=not options.is_recursive,
        joins_paths=True,
        needs_files=True,
        ignores_case=not options.case_sensitive,
        time_zone=options.time_zone,
        infers_types=options.infers_partition_types,
        infers_instants=options.infers_instants,
    )


class Tasks(InputPartition):  # type: ignore[misc]
    """What one Spark task reads."""

    def __init__(self, tasks: tuple[ScanTask, ...]) -> None:
        super().__init__(None)
        self.tasks = tasks


class Rows:
    """What is read, as the columns that Spark expects.

    Parameters
    ----------
    options : ReadOptions
        What was asked for.
    target : pyarrow.Schema
        What Spark expects, to the flag.
    stored : pyarrow.Schema or None
        The types of these columns in the records, where they were looked for; else as `target`.
    was_found : bool
        Whether something was there at the names that were given when the columns were told.
    """

    def __init__(
        self,
        options: ReadOptions,
        target: pa.Schema,
        stored: pa.Schema | None,
        *,
        was_found: bool = False,
    ) -> None:
        self.options = options
        self.target = target
        self.was_found = was_found
        self._stored = stored

    def plan(self, filters: Any = None, missing: Missing = "error") -> ScanPlan:
        """Plan to read them."""
        return plan(
            self.options,
            schema=self._stored if self._stored is not None else self.target,
            columns=tuple(self.target.names),
            filters=filters,
            was_seen=self._stored is not None,
            missing=missing,
        )

    def read(self, scan: ScanPlan, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
        """Give the rows of some tasks, decoded while Spark takes what came before."""

        def rows() -> Iterator[pa.RecordBatch]:
            with contextlib.closing(read_tasks(scan, tasks)) as streams:
                for task, batches in zip(tasks, streams, strict=True):
                    yield from self._rows_of(scan, task, batches)

        with in_words_of_spark():
            yield from read_ahead(
                rows, item_bytes=lambda batch: batch.nbytes, budget_bytes=_AHEAD_BYTES
            )
        keep_what_is_loaded()

    def _rows_of(
        self, scan: ScanPlan, task: ScanTask, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield from _pieces(self._conformed(batch, task))
        except DatasetChangedError as error:
            if self.options.ignore_missing and not _is_there(scan, task):
                return
            error.what += ": load it, or create the view, again"
            raise

    def _conformed(self, batch: pa.RecordBatch, task: ScanTask) -> pa.RecordBatch:
        try:
            return conformed(batch, self.target)
        except pa.ArrowInvalid as error:
            raise SchemaMismatchError(
                f"values do not fit the types that Spark has for them: {error}; give a schema in "
                "which the column is another type, such as bigint, or leave it out",
                path=task.file.url,
            ) from error


class Reader(SentToTasks, DataSourceReader):  # type: ignore[misc]
    """Reads a data set as it is when the read is planned.

    Parameters
    ----------
    rows : Rows
        What is read.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._filter: Any = None
        self._plan: ScanPlan | None = None

    def _planned(self) -> ScanPlan:
        # Spark pickles the reader before it asks for partitions; either needs the plan.
        if self._plan is None:
            rows = self._rows
            may_be_missing = rows.options.ignore_missing and rows.was_found
            self._plan = rows.plan(self._filter, "any" if may_be_missing else "error")
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": in_worker(self._planned)().without_tasks()}

    @in_worker
    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        return [Tasks(tasks) for tasks in pack(self._planned(), self._rows.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        # Where there is nothing to read Spark makes a partition of its own.
        yield from self._rows.read(self._planned(), getattr(partition, "tasks", ()))


class FilteringReader(Reader):
    """A reader that takes filters.

    Spark 4.3 keeps one planned read for all that is made of a loaded frame, view or table, that of
    the filters which it pushed last (``PythonDataSourceV2.readInfo``): of a union of two filtered
    parts of a frame both would read the second part's files, and the whole frame, read later, only
    these. So it is for those who ask for it, and filter what they load in one way only.
    """

    @in_worker
    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Leave out early what the filters say, and leave filtering to Spark."""
        self._filter = expression(filters, self._rows.target)
        return filters


def _is_there(scan: ScanPlan, task: ScanTask) -> bool:
    storage, _ = open_storage(scan.locations[task.file.location], scan.storage_options)
    return storage.exists(task.file.path)


def pack(scan: ScanPlan, options: ReadOptions) -> list[tuple[ScanTask, ...]]:
    """Return the tasks of each Spark partition."""
    tasks = scan.tasks
    open_cost = options.open_cost_bytes
    total = sum(task.bytes + open_cost for task in tasks)
    wanted = options.least_partitions or options.parallelism
    share = total // wanted
    if len(tasks) < wanted and scan.file_schema.names:
        least = open_cost if options.least_partitions else _LEAST_BYTES
        tasks = _shared(scan, max(share, least))
    most = min(options.max_partition_bytes, max(open_cost, share))
    found = packed(tasks, most, open_cost)
    if options.most_partitions is not None and len(found) > options.most_partitions:
        found = packed(tasks, -(-total // options.most_partitions), open_cost)
    return found


def _shared(scan: ScanPlan, task_bytes: int) -> tuple[ScanTask, ...]:
    """Return tasks of about a size, so that none of those that run at a time has nothing to read.

    Not more than that: a task that is not read to its end, as with a limit, costs Spark its worker.
    Where records start in files that nothing describes each task finds out, for which it looks at
    what stands before: a store would have to send that.
    """
    storages = scan.storages()
    files = {id(task.file): task.file for task in scan.tasks}.values()
    is_local = all(storages[file.location].local_path(file.path) is not None for file in files)
    return tuple(cut_tasks([*files], scan.options, task_bytes, cut_unmarked=is_local))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(1, -(-batch.nbytes // _BATCH_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
