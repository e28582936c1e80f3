"""Streams: files as they come, and batches that are published once.

Reading. Spark keeps nothing but offsets for a Python source, so an offset says which files were
seen: a hash of eight bytes for each file that is there, in one text. Of files that have gone
nothing is kept; a file that was replaced is a new one. A commit that is being published is waited
for, so a batch holds all files of a commit, unless ``maxFilesPerTrigger`` or ``maxBytesPerTrigger``
cuts it; the oldest come first then, as in Spark's own sources. With ``maxFileAge`` an offset keeps
nothing of old files but that all from before some moment are old, and with ``cleanSource`` it has
the files of its own batch once more: those are cleaned when Spark says that the batch is done.

Writing. Each batch is an append of its own. Spark makes the writer anew for the tasks and for the
commit of each batch, in processes that know nothing of each other; the job travels from one to the
other in the tasks' messages. Tasks are told which query and which batch they work for, and the
commit records that in the manifest together with the files: a batch that Spark replays after a
crash is found there and published no second time. The query is known by the id that Spark keeps in
the checkpoint. An abort may have no message of any task; it knows the jobs of its query by a mark
in their hidden folders. A query that is stopped just when a batch begins aborts nothing, and the
job's process, the JVM, lives on: the query's next batch finds that job by the mark. A query runs
once at a time in a JVM, so what it has of other jobs is over.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tfrecord_io.commit.job import abort_job, commit_job, remove_undecided, staging_of
from tfrecord_io.commit.ownership import owner_of
from tfrecord_io.commit.staging import Staging
from tfrecord_io.engines.spark.cleaning import check_cleaning, clean
from tfrecord_io.engines.spark.conditions import in_worker
from tfrecord_io.engines.spark.options import WriteOptions
from tfrecord_io.engines.spark.reading import Rows, Tasks, pack
from tfrecord_io.engines.spark.types import vector_columns
from tfrecord_io.engines.spark.workers import SentToTasks
from tfrecord_io.engines.spark.writing import driver_pid, stage
from tfrecord_io.engines.spark.writing import plan as plan_append
from tfrecord_io.errors import CommitConflictError, CommitError, DatasetChangedError, OptionError
from tfrecord_io.plan import ScanFile, ScanPlan, StreamBatch, TaskCommit, WriteJob
from tfrecord_io.storage import open_storage, redact

#: Spark's names of the query and the batch that a task works for.
_QUERY_PROPERTY, _BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"

#: What an offset holds: the files that were seen, by their names alone with ``fileNameOnly``; from
#: when on, in seconds since 1970, files count; those of the last batch, if they are to be cleaned.
_SEEN, _SEEN_NAMES, _SINCE, _BATCH = "seen", "seen_names", "since", "batch"
_HASH_BYTES = 8

#: How long a batch waits for a commit that is being published.
_COMMIT_SECONDS = 60.0

#: Holds a query's mark in the hidden folder of a job; longer than any mark.
_MARK_NAME, _MARK_BYTES = "stream", 1024


# --- reading --------------------------------------------------------------------------------------


class StreamTasks(Tasks):
    """What one Spark task reads of a batch, and the plan that says how.

    Unlike that of a table, the reader is pickled before any batch is planned.
    """

    def __init__(self, tasks: tuple[Any, ...], scan: ScanPlan) -> None:
        super().__init__(tasks)
        self.scan = scan


class StreamReader(
    SentToTasks,
    DataSourceStreamReader,  # type: ignore[misc]
    SupportsTriggerAvailableNow,  # type: ignore[misc]
):
    """Reads files as they come.

    Parameters
    ----------
    rows : Rows
        What is read.
    """

    def __init__(self, rows: Rows) -> None:
        check_cleaning(rows.options)
        self._rows = rows
        self._last: frozenset[bytes] | None = None

    def _planned(self) -> tuple[ScanPlan, dict[bytes, ScanFile]]:
        deadline = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                # A folder goes with its last file, on S3 at least, and comes back with the next.
                scan = self._rows.plan(missing="any")
            except CommitConflictError:
                if time.monotonic() > deadline:
                    raise
                continue
            return scan, {self._key(task.file): task.file for task in scan.tasks}

    def _key(self, file: ScanFile) -> bytes:
        """Return what tells a file from those that were seen."""
        if self._rows.options.file_name_only:
            return _hash(file.url.rpartition("/")[2])
        return _identity(file)

    def _there(self) -> dict[bytes, ScanFile]:
        return self._planned()[1]

    def _seen(self, offset: dict[str, Any]) -> set[bytes]:
        key, other = _SEEN, _SEEN_NAMES
        if self._rows.options.file_name_only:
            key, other = other, key
        if key in offset:
            return _hashes(offset[key])
        if offset == self.initialOffset():
            return set()
        if other in offset:
            raise OptionError(
                "the checkpoint is one of a stream with another fileNameOnly: say the same, or "
                "take a new checkpointLocation"
            )
        raise OptionError(
            "the checkpoint is one of another source, such as spark-tfrecord's, and what it has "
            "read stands in files of its own: take a new checkpointLocation, and modifiedAfter to "
            "leave out what was read"
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names from here on
        """Return the offset at which nothing was seen."""
        return {_SEEN: ""}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how many files, or bytes of them, a batch has at most."""
        options = self._rows.options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.max_files is None else ReadMaxFiles(options.max_files)

    @in_worker
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Hold to the files that are there now."""
        self._last = frozenset(self._there())

    @in_worker
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which all files were seen, or as many more as a batch may have."""
        options = self._rows.options
        seen, since = self._seen(start), start.get(_SINCE)
        there = self._there()
        if since is not None:
            there = {one: file for one, file in there.items() if _modified(file) >= since}
        new = [one for one in there if one not in seen]
        if self._last is not None:
            new = [one for one in new if one in self._last]
        batch = self._within(limit, new, there)
        if not batch:
            # Though files went the offset stays: else there were an empty batch.
            return start
        found = {one for one in there if one in seen} | {*batch}
        offset = {_SEEN_NAMES if options.file_name_only else _SEEN: _text(found)}
        if options.max_age is not None:
            since = max(since or 0.0, max(_modified(there[one]) for one in found) - options.max_age)
        if since is not None:
            offset[_SINCE] = since
        if options.clean_source != "off":
            offset[_BATCH] = _text({_identity(there[one]) for one in batch})
        return offset

    def _within(
        self, limit: Any, new: list[bytes], there: dict[bytes, ScanFile]
    ) -> Sequence[bytes]:
        """Return those of new files that a batch may have."""
        new = sorted(
            new,
            key=lambda one: (there[one].modified or 0.0, there[one].url),
            reverse=self._rows.options.latest_first,
        )
        # Spark tells no other limit than that of `getDefaultReadLimit`, or none.
        most_bytes = getattr(limit, "max_bytes", None)
        if most_bytes is None:
            return new[: getattr(limit, "max_files", None)]
        ends = itertools.accumulate(there[one].size for one in new)
        return new[: max(1, sum(end <= most_bytes for end in ends))]

    @in_worker
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """Return what the tasks of a batch read."""
        asked = self._seen(end) - self._seen(start)
        if not asked:
            return []
        scan, there = self._planned()
        if not asked <= there.keys() and not self._rows.options.ignore_missing:
            raise DatasetChangedError(
                f"{len(asked - there.keys())} files of this batch went or were replaced before it "
                "was read; say ignoreMissingFiles to go on without them",
                path=redact(scan.locations[0]),
            )
        scan = replace(
            scan, tasks=tuple(task for task in scan.tasks if self._key(task.file) in asked)
        )
        without = scan.without_tasks()
        return [StreamTasks(packed, without) for packed in pack(scan, self._rows.options)]

    @in_worker
    def commit(self, end: dict[str, Any]) -> None:
        """Clean the files of the batch that is done."""
        done = _hashes(end.get(_BATCH, ""))
        if done and self._rows.options.clean_source != "off":
            scan, there = self._planned()
            files = [file for file in there.values() if _identity(file) in done]
            clean(scan, files, self._rows.options.archive)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one task."""
        yield from self._rows.read(partition.scan, partition.tasks)


def _identity(file: ScanFile) -> bytes:
    return _hash(f"{file.url}\0{file.size}\0{file.version}")


def _hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=_HASH_BYTES).digest()


def _modified(file: ScanFile) -> float:
    if file.modified is None:
        raise OptionError(
            f"maxFileAge is not possible for {file.url}: its store does not tell when files were "
            "written"
        )
    return file.modified


def _text(hashes: set[bytes]) -> str:
    return base64.b64encode(b"".join(sorted(hashes))).decode()


def _hashes(text: str) -> set[bytes]:
    data = base64.b64decode(text)
    return {data[at : at + _HASH_BYTES] for at in range(0, len(data), _HASH_BYTES)}


# --- writing --------------------------------------------------------------------------------------


def check_writable(options: WriteOptions) -> None:
    """Raise `OptionError` unless a stream can be written with these options."""
    if options.is_local:
        raise OptionError("writeLocality is local; a stream can only be written as distributed")


class StagedBatch(WriterCommitMessage):  # type: ignore[misc]
    """What one task staged of a batch, for which job and which query."""

    def __init__(self, job: WriteJob, commit: TaskCommit, query: str) -> None:
        # Where the message arrives the options are known.
        self.job = replace(job, storage_options={})
        self.commit = commit
        self.query = query


class StreamWriter(SentToTasks, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Adds the batches of a query to a data set.

    Parameters
    ----------
    options : WriteOptions
        What was asked for; the mode is append.
    struct : pyspark.sql.types.StructType
        The columns of the frame.
    """

    def __init__(self, options: WriteOptions, struct: StructType) -> None:
        self._options = options
        self._struct = struct
        self._job: WriteJob | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The writer whose job is needed is the one that goes to tasks.
        in_worker(self._begun)()
        return self.__dict__

    def _begun(self) -> WriteJob:
        if self._job is None:
            self._job = self._begin()
        return self._job

    def _begin(self) -> WriteJob:
        job = plan_append(self._options, self._struct, owner_pid=driver_pid())
        if self._options.stream:
            staging = staging_of(job)
            path = f"{staging.job_folder(job.job_id)}/{_MARK_NAME}"
            staging.storage.write_bytes(path, self._options.stream.encode())
            for other in self._undecided(staging):
                # One that came to its tasks was aborted, or its commit may still be under way.
                if other != job.job_id and not staging.has_attempts(other):
                    remove_undecided(staging, other)
        return job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the files of one task."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_PROPERTY)
        if not query or context.getLocalProperty(_BATCH_PROPERTY) is None:
            raise CommitError(
                "Spark does not tell the task its query and batch, without which a batch cannot be "
                "written once; use foreachBatch and df.write"
            )
        job = self._begun()
        commit = stage(job, context.partitionId(), iterator, vector_columns(self._struct))
        return StagedBatch(job, commit, query)

    @in_worker
    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Publish what all tasks staged, unless this batch was published before."""
        staged = [message for message in messages if message is not None]
        # A batch without tasks has nothing to publish.
        for first in staged[:1]:
            batch = StreamBatch(stream=first.query, number=batchId)
            job = replace(first.job, storage_options=self._options.storage, batch=batch)
            commit_job(job, [message.commit for message in staged])

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Remove what was staged; what was decided stays."""
        del batchId
        staged = [message for message in messages if message is not None]
        for first in staged[:1]:
            job = replace(first.job, storage_options=self._options.storage)
            abort_job(job, [message.commit for message in staged])
        staging = Staging(*open_storage(self._options.path, self._options.storage))
        for job_id in self._undecided(staging):
            remove_undecided(staging, job_id)

    def _undecided(self, staging: Staging) -> Iterator[str]:
        """Give the jobs of the query that are not committed."""
        for job_id in staging.job_ids():
            if self._is_mine(staging, job_id) and not staging.is_decided(job_id):
                yield job_id

    def _is_mine(self, staging: Staging, job_id: str) -> bool:
        # Another application may have been started from the same checkpoint.
        if not job_id.startswith(f"{owner_of(driver_pid())}-"):
            return False
        try:
            path = f"{staging.job_folder(job_id)}/{_MARK_NAME}"
            mark = staging.storage.read_bytes(path, _MARK_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return mark == self._options.stream.encode()
