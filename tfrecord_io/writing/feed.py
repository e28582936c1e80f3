"""Rows to tasks on threads of this process: one thread reads, others write.

The calling thread cuts what comes in into tasks, in order, and hands each task its rows through a
queue. Rows on the way are bounded in bytes, over all tasks together; a task begins with its first
row and reads its queue to the end, so the oldest task always gets on and nothing can lock up.
"""

from __future__ import annotations

import functools
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import CommitError
from tfrecord_io.plan import TaskCommit, WriteJob
from tfrecord_io.schema import is_any_list, storage_type
from tfrecord_io.writing.attempt import write_task

#: Rows read and not yet written hold about this much; a single larger batch still passes.
_IN_FLIGHT_BYTES = 256 * 1024 * 1024

#: Batches of fewer rows and bytes are put together, up to so many rows or bytes: each costs as much
#: as some hundred rows do, of few columns some thousand.
_SMALL_ROWS = 8192
_SMALL_BYTES = 1024 * 1024
_GATHERED_BYTES = 8 * _SMALL_BYTES


class _Budget:
    """Bytes on the way from the reading thread to the writing ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._is_stopped = False
        # Taken by blocks itself, see `tfrecord_io.parallel`.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def take(self, size: int) -> bool:
        """Wait for room; return False if a task has failed."""
        with self._lock:
            self._changed.wait_for(
                lambda: self._is_stopped or not self._used or self._used + size <= self._limit
            )
            self._used += size
            return not self._is_stopped

    def give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size
            self._changed.notify_all()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()


class _TaskRows:
    """The rows of one task, on the way to it."""

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget
        self._queue: queue.SimpleQueue[tuple[pa.RecordBatch, int] | Exception | None]
        self._queue = queue.SimpleQueue()

    def put(self, batch: pa.RecordBatch) -> bool:
        size = batch.nbytes
        if not self._budget.take(size):
            return False
        self._queue.put((batch, size))
        return True

    def end(self) -> None:
        self._queue.put(None)

    def cancel(self) -> None:
        self._queue.put(CommitError("the write was cancelled"))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            batch, size = item
            yield batch
            self._budget.give_back(size)


class Feeder:
    """Writes all tasks of a job.

    Parameters
    ----------
    job : WriteJob
        Of `tfrecord_io.writing.plan.plan_write`.
    rows_per_task : int
        Rows of each task but the last.
    threads : int
        Tasks written at once, and threads that compress for all of them.
    is_in_memory : bool
        Whether all rows are in memory anyway, so that there is nothing to bound.
    """

    def __init__(
        self, job: WriteJob, *, rows_per_task: int, threads: int, is_in_memory: bool
    ) -> None:
        self._job = job
        self._rows_per_task = rows_per_task
        self._threads = threads
        self._budget = _Budget(sys.maxsize if is_in_memory else _IN_FLIGHT_BYTES)

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[TaskCommit]:
        """Write the rows of `batches`, and return the commits in the order of the tasks.

        The first error of a task (by the order of the tasks), or that of `batches`, is raised when
        no task runs any more.
        """
        with (
            ThreadPoolExecutor(self._threads, "tfrecord-io-compress") as pieces,
            ThreadPoolExecutor(self._threads, "tfrecord-io-write") as pool,
        ):
            write = functools.partial(write_task, self._job, map_pieces=pieces.map)

            def begin(index: int, rows: _TaskRows) -> Future[TaskCommit]:
                future = pool.submit(write, index, rows, row_offset=index * self._rows_per_task)
                future.add_done_callback(self._stop_on_failure)
                return future

            futures = self._feed(batches, begin)
        return [future.result() for future in futures]

    def _feed(
        self,
        batches: Iterable[pa.RecordBatch],
        begin: Callable[[int, _TaskRows], Future[TaskCommit]],
    ) -> list[Future[TaskCommit]]:
        """Begin tasks one after the other, give them the rows, and wait for them."""
        futures: list[Future[TaskCommit]] = []
        rows: _TaskRows | None = None
        room = 0
        try:
            for batch in gathered(batches):
                start = 0
                while start < batch.num_rows:
                    if rows is None:
                        # Known before its task begins, which waits for its end whatever happens.
                        rows, room = _TaskRows(self._budget), self._rows_per_task
                        futures.append(begin(len(futures), rows))
                    part = batch.slice(start, room)
                    if not rows.put(part):
                        rows.cancel()
                        _cancel_waiting(futures)
                        return futures
                    start += part.num_rows
                    room -= part.num_rows
                    if not room:
                        rows.end()
                        rows = None
            if rows is not None:
                rows.end()
            # Waited for here, so that an interrupt stops them.
            for future in futures:
                future.exception()
        except BaseException:
            self._budget.stop()
            _cancel_waiting(futures)
            if rows is not None:
                rows.cancel()
            raise
        return futures

    def _stop_on_failure(self, future: Future[TaskCommit]) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._budget.stop()


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the rows of `batches`, those of small ones that follow each other in one batch."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = batch.nbytes if batch.num_rows < _SMALL_ROWS else _SMALL_BYTES
        is_small = more < _SMALL_BYTES
        fits = rows + batch.num_rows <= _SMALL_ROWS and size + more <= _GATHERED_BYTES
        if held and not (is_small and fits and batch.schema.equals(held[0].schema)):
            yield _joined(held)
            held, rows, size = [], 0, 0
        if not is_small or (not held and _has_dictionaries(batch.schema)):
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        size += more
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _has_dictionaries(schema: pa.Schema) -> bool:
    """Return whether a column has a dictionary: to put those together may take long."""
    return any(map(_has_dictionary, schema.types))


def _has_dictionary(t: pa.DataType) -> bool:
    t = storage_type(t)
    return _has_dictionary(t.value_type) if is_any_list(t) else bool(pat.is_dictionary(t))


def _cancel_waiting(futures: Iterable[Future[TaskCommit]]) -> None:
    for future in futures:
        future.cancel()
