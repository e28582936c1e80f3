"""Writing: the core's job carried by the data source's own write, commit and abort.

`Writer` is made in a Python worker beside the driver's JVM, and pickled to tasks and to whoever
commits or aborts: all other processes. So the job is planned here, on the driver's machine, for
classic and for Connect sessions alike: a path is the driver's, wherever the client is. The job's
owner is the JVM, which lives as long as the application does. Task k is Spark's partition k.

`LocalWriter` (``writeLocality=local``) has no job of the driver's: each task adds to the data set
on the disk of the machine that it runs on, and commits by itself. So a job that fails leaves what
its other tasks wrote, on each machine a whole data set; and an attempt that committed and could not
tell Spark, whose executor was lost then, is repeated and adds its rows again. Nothing could find
that out: the next attempt may run on another machine. Speculative attempts are refused.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tfrecord_io.commit.job import abort_job, aborted_by_errors, commit_job
from tfrecord_io.engines.spark.conditions import analysis_error, in_words_of_spark
from tfrecord_io.engines.spark.options import WriteOptions
from tfrecord_io.engines.spark.types import arrow_schema, vector_columns, with_lists
from tfrecord_io.engines.spark.workers import SentToTasks, keep_what_is_loaded
from tfrecord_io.errors import UnsupportedTypeError
from tfrecord_io.plan import TaskCommit, WriteJob
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.feed import gathered
from tfrecord_io.writing.plan import plan_write


def plan(options: WriteOptions, struct: StructType, *, owner_pid: int | None = None) -> WriteJob:
    """Begin a job; see `tfrecord_io.writing.plan.plan_write`."""
    if not struct.fields:
        # Spark's own condition; of such a frame it hands over no rows.
        raise analysis_error(
            "EMPTY_SCHEMA_NOT_SUPPORTED_FOR_DATASOURCE",
            "a frame without columns cannot be written: its rows hold nothing",
        )
    _check_names(struct.names, options.case_sensitive)
    schema = arrow_schema(struct)
    return plan_write(
        schema,
        options.path,
        partition_by=tuple(_resolved(name, schema, options) for name in options.partition_by),
        mode=options.mode,
        record_type=options.record_type,
        compression=options.compression,
        compression_level=options.compression_level,
        max_records_per_file=options.max_records_per_file,
        float64=options.float64,
        codec=options.codec,
        storage_options=options.storage,
        empty_partition=options.empty_partition,
        owner_pid=owner_pid,
        time_zone=options.time_zone,
    )


def _check_names(names: Sequence[str], case_sensitive: bool) -> None:
    seen: set[str] = set()
    for name in names:
        if "\0" in name:
            raise UnsupportedTypeError(
                f"column {name!r} has a NUL in its name, where the names in Spark's batches end: "
                "rename it",
                feature=name,
            )
        alike = name if case_sensitive else name.lower()
        if alike in seen:
            # Spark's own condition, in its words.
            raise analysis_error(
                "COLUMN_ALREADY_EXISTS",
                f"The column `{alike}` already exists. Choose another name or rename the "
                "existing column.",
            )
        seen.add(alike)


def is_needed(options: WriteOptions, struct: StructType) -> bool:
    """Return whether a write would write anything, after checking that it is possible."""
    job = plan(options, struct)
    abort_job(job)
    return not job.skip


def _resolved(name: str, schema: pa.Schema, options: WriteOptions) -> str:
    """Return a column's name as the frame spells it: in Spark case hardly ever counts."""
    if options.case_sensitive or name in schema.names:
        return name
    return next((known for known in schema.names if known.lower() == name.lower()), name)


class Committed(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged."""

    def __init__(self, commit: TaskCommit) -> None:
        self.commit = commit


def make_writer(options: WriteOptions, struct: StructType) -> DataSourceArrowWriter:
    """Return what writes a frame of these columns; its job has begun."""
    if options.is_local:
        return LocalWriter(options, struct)
    return Writer(plan(options, struct, owner_pid=driver_pid()), struct)


def stage(
    job: WriteJob, task: int, batches: Iterable[pa.RecordBatch], vectors: tuple[str, ...]
) -> TaskCommit:
    """Stage the files of one task; `vectors` are its columns of ML vectors."""
    with in_words_of_spark():
        # Of what the session sets as their size batches may be small, and each costs by itself.
        lists = (with_lists(batch, vectors) for batch in batches)
        staged = write_task(job, task, gathered(lists))
    # Spark makes an array of what a task returns, and pyarrow loads pandas with the first.
    pa.array([b""])
    keep_what_is_loaded()
    return staged


class Writer(SentToTasks, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a frame as a data set.

    Parameters
    ----------
    job : WriteJob
        From `plan`.
    struct : pyspark.sql.types.StructType
        The columns of the frame.
    """

    def __init__(self, job: WriteJob, struct: StructType) -> None:
        self._job = job
        self._vectors = vector_columns(struct)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the files of one task."""
        task = TaskContext.get().partitionId()
        return Committed(stage(self._job, task, iterator, self._vectors))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks staged."""
        commit_job(self._job, _commits(messages))
        keep_what_is_loaded()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged."""
        abort_job(self._job, _commits(messages))


def _commits(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    return [message.commit for message in messages if message is not None]


class LocalWriter(SentToTasks, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes what each machine has of a frame to a disk of that machine.

    Parameters
    ----------
    options : WriteOptions
        The path is of the machine that a task runs on.
    struct : pyspark.sql.types.StructType
        The columns of the frame.
    """

    def __init__(self, options: WriteOptions, struct: StructType) -> None:
        self._options = replace(options, mode="append")
        self._struct = struct

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Add the rows of one task to this machine's data set."""
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            job = plan(self._options, self._struct)
            with aborted_by_errors(job):
                rows = itertools.chain([first], batches)
                commit = stage(job, 0, rows, vector_columns(self._struct))
            commit_job(job, [commit])
        return WriterCommitMessage()


def driver_pid() -> int:
    """Return the process id of the JVM that this worker was started for.

    Workers are forked from a daemon that leads a process group of its own, and whose parent is the
    JVM; where Spark uses no daemon, the JVM is the parent.
    """
    parent = os.getppid()
    if os.getpgrp() != parent:
        return parent
    try:
        # proc(5): the name in brackets may hold anything; behind it stand the state and the parent.
        status = Path(f"/proc/{parent}/stat").read_text(errors="replace")
        return int(status.rpartition(")")[2].split()[1])
    except OSError:
        done = subprocess.run(
            ["ps", "-o", "ppid=", "-p", str(parent)], capture_output=True, text=True, check=False
        )
        return int(done.stdout) if done.stdout.strip().isdigit() else parent
