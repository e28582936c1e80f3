"""Where records start in plain files that nothing describes, so that several tasks can share one.

A record can hold whole frames in its payload, so no look at the middle of a file can tell where its
records start. What can is hopping from header to header, from a place that is known: 12 bytes of
each record are looked at, several GB a second of a file in the page cache. Each process remembers
what it found, so that its tasks together hop over a file once at most, however often they run.
Stores that are no local disk have to send what is hopped over.

A task says from and to which places of the file it reads: the records that start there. So tasks
that lie side by side read every record once, whatever the file turns out to be: of a compressed one
the first task reads all, and the others nothing.
"""

from __future__ import annotations

import bisect
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

from tfrecord_io.codec.base import Codec
from tfrecord_io.plan import ScanOptions, ScanTask
from tfrecord_io.reading.frames import FrameCounter, walk
from tfrecord_io.reading.source import OpenFile
from tfrecord_io.storage import Storage

#: Files that a process remembers; a few numbers each.
_REMEMBERED_FILES = 1024


class _Known:
    """The starts of records that are known of one file, and which comes first behind a place."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Offsets and records.
        self.starts = [(0, 0)]
        self.first: dict[int, tuple[int, int]] = {}
        self.is_compressed = False

    def before(self, place: int) -> tuple[int, int]:
        """Return (offset, record) of the last known start at or before a place."""
        index = bisect.bisect_right(self.starts, place, key=lambda start: start[0])
        return self.starts[index - 1]

    def add(self, offset: int, record: int) -> None:
        if self.before(offset)[0] != offset:
            bisect.insort(self.starts, (offset, record))


class _Files:
    """What this process knows of files."""

    def __init__(self) -> None:
        self.begin()
        if hasattr(os, "register_at_fork"):
            # Who held a lock of the parent does not let it go in the fork.
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self.lock = threading.Lock()
        self.known: OrderedDict[tuple[object, ...], _Known] = OrderedDict()

    def of(self, task: ScanTask, locations: Sequence[str], compression: str | None) -> _Known:
        file = task.file
        # With the marks: those of a wrong index must not spoil a read without it.
        key = (*file.identity(locations), file.version, file.size, compression, file.marks)
        with self.lock:
            found = self.known.setdefault(key, _Known())
            self.known.move_to_end(key)
            while len(self.known) > _REMEMBERED_FILES:
                self.known.popitem(last=False)
        return found


_files = _Files()


def settled(
    storage: Storage,
    task: ScanTask,
    locations: Sequence[str],
    options: ScanOptions,
    codec: Codec,
) -> ScanTask:
    """Return a task with the start of its first record, as an offset and counted in records.

    Parameters
    ----------
    storage : Storage
        Where its file is.
    task : ScanTask
        A task whose `search` is set.
    locations : sequence of str
        See `tfrecord_io.plan.ScanPlan`.
    options : ScanOptions
        How the file is read.
    codec : Codec
        Finds frames.

    Returns
    -------
    ScanTask
        Its `start` is not before its `end` if no record starts between them.

    Raises
    ------
    ChecksumError, TruncatedRecordError, LimitExceededError
        A frame before the task's records is damaged in its length, so that nothing behind it is
        known.
    """
    known = _files.of(task, locations, options.compression)
    # One task of a file hops at a time; the others wait for what it finds.
    with known.lock:
        for mark in task.file.marks:
            known.add(*mark)
        if task.start not in known.first and not known.is_compressed:
            offset, record = known.before(task.start)
            with OpenFile(storage, task.file, options, start=offset, stop=task.start) as opened:
                known.is_compressed = opened.compression is not None
                if not known.is_compressed:
                    counter = FrameCounter(codec, options.limits)
                    counter.seek(offset=offset, record=record)
                    for _ in walk(opened.source, counter, counter.hop, stop=task.start):
                        pass
                    offset, record = counter.offset, counter.record
                    known.add(offset, record)
            known.first[task.start] = offset, record
        if not known.is_compressed:
            offset, record = known.first[task.start]
            return task._replace(start=offset, record=record)
    if task.start:
        return task._replace(start=task.file.size, end=task.file.size)
    return task._replace(end=None)
