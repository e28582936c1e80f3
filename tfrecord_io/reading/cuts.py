"""The tasks of a read: files as a whole, or cut to a size, and small ones put together."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

from tfrecord_io.compression import from_suffix
from tfrecord_io.plan import ScanFile, ScanOptions, ScanTask


def cut_tasks(
    files: Sequence[ScanFile], options: ScanOptions, task_bytes: int | None, cut_unmarked: bool
) -> Iterable[ScanTask]:
    """Return the tasks that read files, of about a size if there is one."""
    if task_bytes is None or options.on_corrupt != "raise":
        return map(whole_task, files)
    cut = (_cut(file, options, task_bytes, cut_unmarked) for file in files)
    return itertools.chain.from_iterable(cut)


def whole_task(file: ScanFile) -> ScanTask:
    """Return the task that reads all of a file."""
    return ScanTask(file, 0, None, 0, file.rows)


def _cut(
    file: ScanFile, options: ScanOptions, task_bytes: int, cut_unmarked: bool
) -> Iterable[ScanTask]:
    if file.marks and (not cut_unmarked or file.size <= task_bytes * (len(file.marks) + 1)):
        yield from _tasks_by_marks(file, task_bytes)
    elif cut_unmarked and file.size > task_bytes and may_be_plain(file, options):
        # Of one size: a short last piece could be without a record.
        count = -(-file.size // task_bytes)
        starts = [file.size * place // count for place in range(count)]
        for start, end in zip(starts, (*starts[1:], None), strict=True):
            before = bisect.bisect_right(file.marks, start, key=lambda mark: mark[0])
            nearest = file.marks[before - 1 : before]
            yield ScanTask(file=file._replace(marks=nearest), start=start, end=end, search=True)
    else:
        yield whole_task(file)


def _tasks_by_marks(file: ScanFile, task_bytes: int) -> Iterable[ScanTask]:
    start, record = 0, 0
    ends = [*(offset for offset, _ in file.marks[1:]), file.size]
    for (offset, next_record), next_end in zip(file.marks, ends, strict=True):
        # At the mark that is nearest to the size asked for.
        if offset + next_end > 2 * (start + task_bytes):
            yield ScanTask(
                file=file, start=start, end=offset, record=record, rows=next_record - record
            )
            start, record = offset, next_record
    rows = None if file.rows is None else file.rows - record
    yield ScanTask(file=file, start=start, record=record, rows=rows)


def may_be_plain(file: ScanFile, options: ScanOptions) -> bool:
    """Return whether a file is uncompressed, as far as that is known without a look at it."""
    if options.compression == "infer":
        return from_suffix(file.path) is None
    return options.compression is None


class Starts:
    """Where records were seen to start while files were looked at."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def note(self, task: ScanTask, offset: int, record: int) -> None:
        """See `tfrecord_io.reading.tasks.Note`."""
        self._seen.setdefault(task.file.key, []).append((offset, record))

    def describe(self, file: ScanFile) -> ScanFile:
        """Return a file with its rows and marks as a manifest would have them."""
        seen = self._seen.get(file.key)
        if not seen:
            return file
        end, rows = seen[-1]
        # The last one is the end of the file, if its bytes are what it stores. Any is told again
        # where a span ends at it.
        starts = dict.fromkeys(place for place in seen if place[0] < end)
        return file._replace(rows=rows, marks=tuple(starts) if end == file.size else ())


def packed(
    tasks: Iterable[ScanTask], task_bytes: int | None, open_cost: int = 0
) -> list[tuple[ScanTask, ...]]:
    """Put tasks that follow each other together, up to a size.

    Parameters
    ----------
    tasks : iterable of ScanTask
        In the order in which they are to be read.
    task_bytes : int or None
        Only a task that is larger by itself goes over it; None leaves every task alone.
    open_cost : int
        How many bytes each task counts for besides its own.

    Returns
    -------
    list of tuple of ScanTask
        Their files without the marks that the tasks need no more.
    """
    groups: list[list[ScanTask]] = []
    room = 0
    for task in tasks:
        if not groups or task_bytes is None or task.bytes > room:
            groups.append([])
            room = task_bytes or 0
        if task.file.marks and not task.search:
            groups[-1].append(task._replace(file=task.file._replace(marks=())))
        else:
            groups[-1].append(task)
        room -= task.bytes + open_cost
    return [tuple(group) for group in groups]
