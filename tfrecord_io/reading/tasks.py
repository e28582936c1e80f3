"""Carrying out a scan: one task, or one span of it, to record batches.

A *span* is a run of frames of one file that is worked on by itself. `run_span` gives, in this
order: a `Begin`, the items (batches, an observation, a count), an `End`. Spans whose beginning is
not known look for the first whole frame from their offset on, which may be a frame inside a
payload. So `joined` takes the spans of a file in order and holds each to where the one before
ended; one that began elsewhere is thrown away and redone from the right place. What comes out is
exact, and cut into the same batches, whatever ran when. Records count from 0 in a span, and
`joined` adds what came before.

What becomes of damage (``on_corrupt``):

- ``raise``: the rows before it are given out, then the error. So are those before a value that does
  not fit the schema; only a text that is no UTF-8 takes the rows of its batch with it.
- ``skip_record``: see `tfrecord_io.reading.frames`; one warning a file tells what was skipped.
- ``keep``: as ``skip_record``, and each range that was skipped is a row of nulls at its place. Its
  bytes stand in the ``corrupt_column``, if there is one. A file is one span.
- ``skip_file``: a file is given out as a whole or not at all. Up to 64 MiB of its rows are held
  until its end was seen; a larger file is read to its end once to verify it, and then again.

Only corrupt data is ever skipped. What does not fit the schema, and what is beyond a limit, is an
error in every mode.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import Codec
from tfrecord_io.errors import (
    CorruptDataError,
    CorruptDataWarning,
    DatasetChangedError,
    TFRecordError,
    warn,
)
from tfrecord_io.parallel import in_order, raise_once
from tfrecord_io.plan import ScanFile, ScanOptions, ScanPlan, ScanTask
from tfrecord_io.reading.boundaries import settled
from tfrecord_io.reading.frames import Damage, FrameCounter, find_start, walk, walk_skipping
from tfrecord_io.reading.ranges import Fetch, FirstRanges
from tfrecord_io.reading.source import MappedFile, OpenFile, range_fetcher
from tfrecord_io.reading.work import Counting, Decoding, Observing, Work, rows_of_values, shifted
from tfrecord_io.schema import schema_without_views, wire_schema
from tfrecord_io.storage import Storage

#: A span is at most this large: far more than beginning one costs, and a fraction of a usual file.
_SPAN_BYTES = 8 * 1024 * 1024

#: So is this, where beginning one means to wait for a store to answer.
_REMOTE_SPAN_BYTES = 64 * 1024 * 1024

#: A local file has a multiple of so many spans of one length: two or four threads end together.
_SPANS = 4

#: Tasks of local files are worked on one after the other, in one go, if they are small: up to so
#: many bytes together. Each by itself would take longer to hand over than to read. Not too many, as
#: a disk or a network file system may make each wait.
_GROUP_BYTES = 128 * 1024
_GROUP_TASKS = 16

#: A column of a batch takes about this beside its values: most of it, in batches of few rows.
_COLUMN_BYTES = 512

#: Rows of one file that "skip_file" holds before it reads the file twice.
_HELD_BYTES = 64 * 1024 * 1024

#: Works on a span.
_Run: TypeAlias = "Callable[[Span], Iterator[Any]]"

#: Takes a task, an offset in its file at which a record starts, and the index of that record.
Note: TypeAlias = Callable[[ScanTask, int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Where a span's first frame starts, None if no whole frame was found; what it skips so far."""

    offset: int | None
    damage: Damage


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A place inside a span of a plain file at which a frame starts, and the records before it."""

    offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where a span's last frame ends, and its records."""

    offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run of frames of one file.

    Attributes
    ----------
    start : int
        Offset of the first frame, or from which on to look for one.
    stop : int or None
        The last frame starts before this offset; None for the end of the file.
    search : bool
        Whether to look for the first frame.
    """

    start: int
    stop: int | None
    search: bool = False


def file_spans(
    storage: Storage, task: ScanTask, options: ScanOptions
) -> tuple[list[Span], MappedFile | None]:
    """Return the spans that a task can be worked on in at the same time, and what they share.

    A plain file is cut into spans of one length, `_SPAN_BYTES` or `_REMOTE_SPAN_BYTES` at most; a
    remote one at the marks of a manifest, if it has any. Everything else is one span.
    """
    whole = [Span(start=task.start, stop=task.end)], None
    size = task.bytes
    is_local = storage.local_path(task.file.path) is not None
    span_bytes = _SPAN_BYTES if is_local else _REMOTE_SPAN_BYTES
    if size < 2 * span_bytes or options.on_corrupt in ("skip_file", "keep"):
        return whole
    marks = [mark for mark, _ in task.file.marks if task.start < mark < task.start + size]
    if marks and not is_local:
        cuts = [task.start]
        for mark in marks:
            if mark - cuts[-1] >= span_bytes:
                cuts.append(mark)
        return _cut(task, cuts[1:], search=False), None
    with _at(task.file), OpenFile(storage, task.file, options, stop=0) as opened:
        if opened.compression is not None:
            return whole
    count = -(-size // span_bytes)
    count += -count % _SPANS if is_local else 0
    cuts = [task.start + size * index // count for index in range(1, count)]
    return _cut(task, cuts, search=True), opened.mapped


def _cut(task: ScanTask, cuts: list[int], *, search: bool) -> list[Span]:
    spans = []
    for start, stop in zip([task.start, *cuts], [*cuts, task.end], strict=True):
        spans.append(Span(start=start, stop=stop, search=search and start != task.start))
    return spans


def run_span(
    opened: OpenFile, options: ScanOptions, codec: Codec, work: Work, span: Span
) -> Iterator[Any]:
    """Give a `Begin`, the items, and an `End`, of a file that is open at the span's start."""
    damage = Damage(keeps_bytes=options.corrupt_column is not None)
    source = opened.source
    start: int | None = span.start
    if span.search:
        start = find_start(opened.glanced, codec, span.start, span.stop)
    yield Begin(offset=start, damage=damage)
    if start is None:
        return
    cursor = work.cursor
    cursor.seek(offset=start, record=0)
    steps: Iterator[Damage | None]
    if options.on_corrupt in ("skip_record", "keep"):
        steps = walk_skipping(source, cursor, work.advance, codec, damage, stop=span.stop)
    else:
        steps = walk(source, cursor, work.advance, stop=span.stop)
    passed = start
    try:
        for more in steps:
            if more is not None:
                yield from work.lose(more)
            yield from work.items(is_end=False)
            if cursor.offset - passed >= _SPAN_BYTES and opened.compression is None:
                passed = cursor.offset
                yield Passed(offset=passed, records=cursor.record)
    except TFRecordError:
        # An error in the rows before the damage wins.
        yield from work.items(is_end=True)
        raise
    yield from work.items(is_end=True)
    yield End(offset=cursor.offset, records=cursor.record)


def joined(
    task: ScanTask,
    spans: Iterable[tuple[Span, Iterator[Any]]],
    redo: Callable[[Span], Iterator[Any]],
    note: Note | None = None,
    *,
    is_kept: bool = False,
) -> Iterator[Any]:
    """Give the items of a task's spans, exact and in order.

    Parameters
    ----------
    task : ScanTask
        What the spans belong to.
    spans : iterable of (Span, iterator)
        In order, with what `run_span` gives.
    redo : callable
        Runs a span again.
    note : callable, optional
        Told of places in a plain file at which a record starts: task, offset, record. The end of
        the task is the last of them, also where the file is compressed.
    is_kept : bool
        Whether damage became rows.

    Yields
    ------
    item
        And at last, if there was damage, a `CorruptDataWarning`; if it was skipped, also before an
        error.
    """
    parts: list[Damage] = []

    def warning() -> Iterator[CorruptDataWarning]:
        damage = Damage()
        for one in itertools.chain.from_iterable(part.ranges for part in parts):
            damage.add(*one)
        if damage.ranges:
            yield damage.warning(task.file.url, is_kept=is_kept)

    try:
        with _at(task.file):
            yield from _in_order(task, spans, redo, note, parts)
    except (TFRecordError, OSError):
        if not is_kept:
            yield from warning()
        raise
    yield from warning()


def _in_order(
    task: ScanTask,
    spans: Iterable[tuple[Span, Iterator[Any]]],
    redo: Callable[[Span], Iterator[Any]],
    note: Note | None,
    parts: list[Damage],
) -> Iterator[Any]:
    """Give the items of `joined`; what each span skips, while it is read, is added to `parts`."""
    offset, records = task.start, task.record
    for span, items in spans:
        begin = next(items)
        if begin.offset != offset:
            if span.stop is not None and offset >= span.stop:
                continue
            items = redo(replace(span, start=offset, search=False))
            begin = next(items)
        parts.append(begin.damage)
        end = None
        base = records
        try:
            for item in items:
                if isinstance(item, End):
                    end = item
                elif isinstance(item, Passed):
                    if note is not None:
                        note(task, item.offset, base + item.records)
                else:
                    yield shifted(item, base)
        except TFRecordError as error:
            if error.record is not None:
                error.record += base
            raise
        if end is not None:
            offset = end.offset
            records += end.records
            if note is not None:
                note(task, offset, records)
    if task.end is not None and offset != task.end and not task.search:
        raise DatasetChangedError(
            f"a record should end at byte {task.end}, and one ends at {offset}; the file "
            "is not the one that the plan or the manifest describes: read it with a new plan",
            offset=offset,
        )


@contextlib.contextmanager
def _at(file: ScanFile) -> Iterator[None]:
    """Give errors the path of the file."""
    try:
        yield
    except TFRecordError as error:
        if error.path is None:
            error.path = file.url
        raise


def whole_or_nothing(file: ScanFile, items: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Give all items of a file, or, if any of it is corrupt, a `CorruptDataWarning` alone."""
    held: list[Any] | None = []
    held_bytes = 0
    try:
        for item in items():
            if held is not None:
                held.append(item)
                held_bytes += item_bytes(item)
                if held_bytes > _HELD_BYTES:
                    held = None
    except CorruptDataError as error:
        yield CorruptDataWarning(
            f"{file.url}: skipped the file, byte range 0 to {file.size}, because of: {error}"
        )
        return
    yield from items() if held is None else held


def item_bytes(item: Any) -> int:
    """Return about what an item takes in memory; what is no batch counts nothing."""
    if not isinstance(item, pa.RecordBatch):
        return 0
    # `nbytes` leaves out what a slice does not show, and takes 50 times as long. Only the last
    # batch before an error is a slice.
    return int(item.get_total_buffer_size() + _COLUMN_BYTES * item.num_columns)


@dataclass(slots=True, kw_only=True)
class _Ended:
    """Behind the items of a task."""

    error: BaseException | None


def _taken_apart(items: Iterator[Any], count: int) -> Iterator[Iterator[Any]]:
    """Give the items of each of some tasks that were worked on one after the other."""
    ended: _Ended | None

    def of_one() -> Iterator[Any]:
        nonlocal ended
        for item in items:
            if isinstance(item, _Ended):
                ended = item
                break
            yield item
        if ended is not None and ended.error is not None:
            raise_once(ended)

    for _ in range(count):
        ended = None
        yield of_one()
        while ended is None:
            # What was not taken.
            item = next(items)
            ended = item if isinstance(item, _Ended) else None


class Runner:
    """Runs tasks: what `read_task` and the threads of the local engine have in common.

    Parameters
    ----------
    plan : ScanPlan
        Where files are, and how they are read.
    make_work : callable
        Takes a file and returns a new `tfrecord_io.reading.work.Work`.
    goes_through : bool
        Whether the work goes through all bytes and keeps none, see
        `tfrecord_io.reading.source.OpenFile`.
    told : callable, optional
        Takes a task and returns its items, if they are known without a look at its file, or None.
    """

    def __init__(
        self,
        plan: ScanPlan,
        make_work: Callable[[ScanFile], Work],
        *,
        goes_through: bool,
        told: Callable[[ScanTask], Iterator[Any] | None] = lambda task: None,
    ) -> None:
        self._locations = plan.locations
        self._storages = plan.storages()
        self._options = options = plan.options
        self._codec = get_codec(options.codec)
        self._make_work = make_work
        self._told = told
        # What is looked for behind damage may be far away.
        self._goes_through = goes_through and options.on_corrupt == "raise"
        self._joined = functools.partial(joined, is_kept=options.on_corrupt == "keep")

    def run(
        self,
        task: ScanTask,
        ahead: FirstRanges[ScanTask] | None = None,
        note: Note | None = None,
    ) -> Iterator[Any]:
        """Give a task's items, worked on in this thread as one span, warnings among them."""
        told = self._told(task)
        if told is not None:
            return told

        def items(note: Note | None = None) -> Iterator[Any]:
            exact = self._settled(task)
            if exact.search and exact.bytes <= 0:
                # No record starts in it.
                return iter(())
            spans = [Span(start=exact.start, stop=exact.end)]
            run = self._span(exact, ahead)
            return self._joined(exact, zip(spans, map(run, spans), strict=True), run, note)

        if self._options.on_corrupt == "skip_file":
            # Nothing is noted of a file that may be left out.
            return whole_or_nothing(task.file, items)
        return items(note)

    def run_in_turn(self, tasks: Iterable[ScanTask]) -> Generator[Iterator[Any], None, None]:
        """Give each task's items, worked on in this thread while the next files are fetched."""
        with FirstRanges(self._first_range) as ahead:
            for task in ahead.over(tasks):
                yield self.run(task, ahead)

    def _settled(self, task: ScanTask) -> ScanTask:
        if not task.search:
            return task
        with _at(task.file):
            storage = self._storages[task.file.location]
            return settled(storage, task, self._locations, self._options, self._codec)

    def run_all(
        self, tasks: Iterable[ScanTask], threads: int, note: Note | None = None
    ) -> Generator[Iterator[Any], None, None]:
        """Give each task's items, in the order of the tasks, worked on by threads.

        For `note` see `joined`; any of the threads may call it.
        """
        begun: deque[tuple[list[ScanTask], list[Span], _Run | None]] = deque()
        tasks = iter(tasks)
        head = list(itertools.islice(tasks, threads))
        has_idle_threads = len(head) < threads
        tasks = itertools.chain(head, tasks)
        ahead = FirstRanges(self._first_range)

        def works() -> Iterator[Callable[[], Iterator[Any]]]:
            for group in self._grouped(ahead.over(tasks), 1 if has_idle_threads else _GROUP_TASKS):
                if (
                    len(group) > 1
                    or self._options.on_corrupt == "skip_file"
                    or self._told(group[0]) is not None
                ):
                    begun.append((group, [], None))
                    yield functools.partial(self._run_each, group, ahead, note)
                    continue
                task = self._settled(group[0])
                storage = self._storages[task.file.location]
                spans, mapped = file_spans(storage, task, self._options)
                run = self._span(task, ahead, mapped, decompress_ahead=has_idle_threads)
                begun.append(([task], spans, run))
                for span in spans:
                    yield functools.partial(run, span)

        streams = in_order(works(), threads=threads, item_bytes=item_bytes)
        with ahead, contextlib.closing(streams):
            for first in streams:
                if not begun:
                    # The error that kept the task from its spans.
                    next(first)
                group, spans, redo = begun.popleft()
                if redo is not None:
                    of_task = zip(spans, itertools.chain([first], streams), strict=False)
                    yield self._joined(group[0], of_task, redo, note)
                else:
                    yield from _taken_apart(first, len(group))

    def _grouped(self, tasks: Iterable[ScanTask], most: int) -> Iterator[list[ScanTask]]:
        """Put small tasks of local files that follow each other together."""
        group: list[ScanTask] = []
        room = 0
        for task in tasks:
            is_local = self._storages[task.file.location].local_path(task.file.path) is not None
            size = task.bytes if is_local else _GROUP_BYTES
            if group and size > room:
                yield group
                group = []
            if not group:
                room = _GROUP_BYTES
            group.append(task)
            room -= size
            if room <= 0 or len(group) == most:
                yield group
                group = []
        if group:
            yield group

    def _run_each(
        self, tasks: list[ScanTask], ahead: FirstRanges[ScanTask], note: Note | None
    ) -> Iterator[Any]:
        """Give the items of one task after the other, and behind each an `_Ended`."""
        for task in tasks:
            try:
                yield from self.run(task, ahead, note)
            except Exception as error:  # noqa: BLE001, PERF203 - raised where it is taken
                yield _Ended(error=error)
            else:
                yield _Ended(error=None)

    def _first_range(self, task: ScanTask) -> tuple[Fetch, int, int] | None:
        file, storage = task.file, self._storages[task.file.location]
        if storage.local_path(file.path) is not None or not task.bytes or task.search:
            return None
        if self._told(task) is not None:
            return None
        return range_fetcher(storage, file), task.start, task.start + task.bytes

    def _span(
        self,
        task: ScanTask,
        ahead: FirstRanges[ScanTask] | None = None,
        mapped: MappedFile | None = None,
        *,
        decompress_ahead: bool = False,
    ) -> _Run:
        # Up to where a span went that began at the right place, and where its last frame ended.
        known: tuple[int, int] | None = None

        def run(span: Span) -> Iterator[Any]:
            nonlocal known
            if span.search and known is not None and known[0] <= span.start <= known[1]:
                # No other frame starts between the two. To look for one takes longer than to read.
                span = replace(span, start=known[1], search=False)
            work = self._make_work(task.file)
            first = None
            if ahead is not None and span.start == task.start:
                first = ahead.take(task)
            opened = OpenFile(
                self._storages[task.file.location],
                task.file,
                self._options,
                start=span.start,
                stop=span.stop,
                first=first,
                mapped=mapped,
                decompress_ahead=decompress_ahead,
                goes_through=self._goes_through,
            )
            with opened:
                for item in run_span(opened, self._options, self._codec, work, span):
                    if isinstance(item, End) and not span.search and span.stop is not None:
                        known = span.stop, item.offset
                    yield item

        return run


def decoding(plan: ScanPlan, others: Mapping[str, ScanPlan] | None = None) -> Runner:
    """Return what reads a plan's tasks.

    `others` has, by their URL, plans of other columns for some of the files.
    """
    others = others or {}
    options = plan.options.decode_options()
    codec = get_codec(plan.options.codec)
    # Many files share a plan.
    plans = {id(one): one for one in (plan, *others.values())}
    wires = {
        key: wire_schema(one.file_schema, reading=True, rounded=one.rounded)
        for key, one in plans.items()
    }
    decoders = {key: codec.decoder(wire, options) for key, wire in wires.items()}
    # Views are of the file's own bytes.
    keeps = any(wire != schema_without_views(wire) for wire in wires.values())

    def work(file: ScanFile) -> Work:
        of_file = others.get(file.url, plan)
        return Decoding(decoders[id(of_file)].fresh(), of_file, file)

    def told(task: ScanTask) -> Iterator[pa.RecordBatch] | None:
        is_known = not plan.file_schema.names and plan.options.on_corrupt == "raise" and not others
        return rows_of_values(plan, task) if is_known and task.rows is not None else None

    return Runner(plan, work, goes_through=not keeps, told=told)


def observing(plan: ScanPlan) -> Runner:
    """Return what looks at all records of a plan's files; its items are `Observed`."""
    codec, of_codec = get_codec(plan.options.codec), plan.options.decode_options()

    def work(file: ScanFile) -> Work:
        return Observing(codec.observer(of_codec), file)

    return Runner(plan, work, goes_through=True)


def counting(plan: ScanPlan) -> Runner:
    """Return what counts the records of a plan's tasks."""
    options = plan.options
    codec = get_codec(options.codec)

    def work(file: ScanFile) -> Work:
        del file
        return Counting(FrameCounter(codec, options.limits))

    return Runner(plan, work, goes_through=False)


def warned(items: Iterable[Any]) -> Iterator[Any]:
    """Give items, and what is a warning among them as a warning."""
    for item in items:
        if isinstance(item, CorruptDataWarning):
            warn(item, CorruptDataWarning)
        else:
            yield item


def read_task(plan: ScanPlan, task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Read one task, in this thread.

    Parameters
    ----------
    plan : ScanPlan
        From `tfrecord_io.reading.plan.plan_scan`; `ScanPlan.without_tasks` is enough.
    task : ScanTask
        One of its tasks.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        Of the plan's schema, none of them empty.

    Raises
    ------
    TFRecordError
        While iterating: with the file's path, and offset and record where there is one.

    Warns
    -----
    CorruptDataWarning
        Of damage that was skipped.
    """
    return warned(decoding(plan).run(task))


def read_tasks(
    plan: ScanPlan, tasks: Iterable[ScanTask]
) -> Generator[Iterator[pa.RecordBatch], None, None]:
    """Read one task after the other, in this thread, while the next files are fetched.

    Parameters
    ----------
    plan, tasks
        See `read_task`.

    Yields
    ------
    iterator of pyarrow.RecordBatch
        What `read_task` returns, for each task. An error in it does not keep the next from coming.
    """
    with contextlib.closing(decoding(plan).run_in_turn(tasks)) as streams:
        yield from map(warned, streams)
