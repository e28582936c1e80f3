"""A conversion as a Dask graph: one write task for each piece of the source.

Every task reads its piece and stages part files through `tfrecord_io.writing.attempt`; what it
returns is small. A task may run twice, or be cut off with its worker: each attempt stages on its
own, and only what the returned commits name is published. The commit itself is the driver's, not a
node: a scheduler may run a node again when its worker is lost, and a commit must run once.

Keys hold the job's id and the number of the task, nothing of the arguments.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tfrecord_io.conversion.source import SourcePiece, SourcePlan, read_piece
from tfrecord_io.errors import (
    CorruptDataWarning,
    EncodeError,
    LayoutError,
    LimitExceededError,
    OptionError,
)
from tfrecord_io.plan import TaskCommit, WriteJob
from tfrecord_io.storage import threads_for
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.feed import gathered

_NAME = "tfrecord-convert"

_LOCAL = ("threads", "synchronous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a task did.

    Attributes
    ----------
    commit : TaskCommit
        What it staged.
    warnings : tuple of str
        What was left out of the source.
    source_bytes : int
        What it read.
    """

    commit: TaskCommit
    warnings: tuple[str, ...]
    source_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all tasks of a conversion need.

    Attributes
    ----------
    job : WriteJob
        The write.
    source : SourcePlan
        The read; without pieces.
    threads : int
        How many decode one TFRecord file, and compress what is written of it.
    """

    job: WriteJob
    source: SourcePlan
    threads: int = 1


def write_pieces(shared: Shared, task_index: int, pieces: Sequence[SourcePiece]) -> Written:
    """Carry out one task: read its pieces one after the other and stage part files."""
    found: list[str] = []
    reading = _Reading()

    def batches_of(piece: SourcePiece) -> Generator[pa.RecordBatch, None, None]:
        for item in read_piece(shared.source, piece, threads=shared.threads):
            if isinstance(item, CorruptDataWarning):
                found.append(str(item))
            else:
                yield item

    def batches() -> Generator[pa.RecordBatch, None, None]:
        for piece in pieces:
            reading.piece = piece
            with contextlib.closing(batches_of(piece)) as there:
                yield from gathered(there)

    scan = shared.source.scan
    leaves_out = scan.filter is not None or scan.options.on_corrupt == "skip_record"
    # As the file counts, where that is known.
    row = pieces[0].row if len(pieces) == 1 and not leaves_out else None
    try:
        with (
            ThreadPoolExecutor(shared.threads, "tfrecord-io-compress") as pool,
            # Closed also while an error is kept, whose traceback leads to them.
            contextlib.closing(batches()) as rows,
        ):
            commit = write_task(
                shared.job, task_index, rows, row_offset=row or 0, map_pieces=pool.map
            )
    except (EncodeError, LayoutError, LimitExceededError) as error:
        if error.path is None and reading.piece is not None:
            error.path = reading.piece.task.file.url
            if row is None:
                # Counted in what is written, not in the file.
                error.row = None
        raise
    return Written(
        commit=commit,
        warnings=tuple(found),
        source_bytes=sum(piece.bytes for piece in pieces),
    )


class _Reading:
    """Which piece is being read."""

    piece: SourcePiece | None = None


def check_scheduler(scheduler: object) -> None:
    """Raise `OptionError` unless tasks can run there."""
    if isinstance(scheduler, str):
        if scheduler in _LOCAL or ":" in scheduler:
            return
        wrong = repr(scheduler)
    else:
        # Whoever has a client has loaded distributed.
        distributed = sys.modules.get("distributed")
        if distributed is not None and isinstance(scheduler, distributed.Client):
            if not scheduler.asynchronous:
                return
            raise OptionError("scheduler is an asynchronous Client; give a synchronous one")
        wrong = f"a {type(scheduler).__name__}"
    raise OptionError(
        f"scheduler is {wrong}; it must be 'threads', 'synchronous', the address of a Dask "
        "scheduler, such as 'tcp://host:8786', or a distributed.Client"
    )


def run_tasks(
    shared: Shared,
    tasks: Sequence[Sequence[SourcePiece]],
    *,
    scheduler: Any,
    threads: int | None,
    done: Callable[[Written], None],
) -> list[Written]:
    """Run all tasks of a conversion.

    Parameters
    ----------
    shared : Shared
        What all tasks need.
    tasks : sequence of sequence of SourcePiece
        What each of them reads.
    scheduler : {"threads", "synchronous"}, str or distributed.Client
        Where they run.
    threads : int, optional
        How many run at a time with "threads".
    done : callable
        Called with what each task did, in this process, as tasks end.

    Returns
    -------
    list of Written
        In the order of the tasks.
    """
    if not tasks:
        return []
    if isinstance(scheduler, str) and scheduler in _LOCAL:
        return _run_here(shared, tasks, scheduler, threads, done)
    with _client(scheduler) as client:
        return _run_on_cluster(client, shared, tasks, done)


class _Pieces(list[SourcePiece]):
    """Pieces that Dask does not search for tasks, which it does in a list, field by field."""


def _write_key(job: WriteJob, number: str) -> str:
    return f"{_NAME}-write-{job.job_id}-{number}"


def _nodes(shared: Shared, tasks: Sequence[Sequence[SourcePiece]]) -> list[Any]:
    from dask.delayed import delayed

    # One node for all, so that a graph of many tasks is small; not traversed, since it is data.
    common = delayed(shared, name=f"{_NAME}-plan-{shared.job.job_id}", traverse=False)
    write = delayed(write_pieces, pure=False, traverse=False)
    return [
        write(common, index, _Pieces(pieces), dask_key_name=_write_key(shared.job, f"{index:05d}"))
        for index, pieces in enumerate(tasks)
    ]


def _run_here(
    shared: Shared,
    tasks: Sequence[Sequence[SourcePiece]],
    scheduler: str,
    threads: int | None,
    done: Callable[[Written], None],
) -> list[Written]:
    import dask.threaded
    from dask.callbacks import Callback

    workers = 1
    if scheduler == "threads":
        scan, job = shared.source.scan, shared.job
        workers = max(
            threads_for(scan.locations, scan.storage_options, threads),
            threads_for([job.url], job.storage_options, threads),
        )
    per_task = max(1, workers // len(tasks))
    shared = replace(shared, threads=per_task)

    prefix = _write_key(shared.job, "")

    def after_task(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        # Dask calls this for whatever else the process computes meanwhile, too.
        if isinstance(key, str) and key.startswith(prefix):
            done(result)

    with Callback(posttask=after_task):
        written = dask.compute(
            *_nodes(shared, tasks),
            # By its name, Dask imports distributed first, in twice the time of all else.
            scheduler=dask.threaded.get if scheduler == "threads" else dask.get,
            optimize_graph=False,
            **({"num_workers": workers} if scheduler == "threads" else {}),
        )
    return list(written)


@contextlib.contextmanager
def _client(scheduler: Any) -> Iterator[Any]:
    if not isinstance(scheduler, str):
        yield scheduler
        return
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        yield client


def _run_on_cluster(
    client: Any,
    shared: Shared,
    tasks: Sequence[Sequence[SourcePiece]],
    done: Callable[[Written], None],
) -> list[Written]:
    from distributed import as_completed

    futures = client.compute(_nodes(shared, tasks), optimize_graph=False)
    try:
        results: dict[str, Written] = {}
        for future, written in as_completed(futures, loop=client.loop, with_results=True):
            results[future.key] = written
            done(written)
    except BaseException:
        client.cancel(futures)
        raise
    return [results[future.key] for future in futures]
