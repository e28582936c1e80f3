"""One pass over a data set, by the kernel's sketches, on threads.

Batches come in the order of the files, and each thread looks at some of the columns: so what is
found does not depend on how many threads there are. Only the sketches are kept, so memory does not
grow with the data.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.codec import get_codec
from tfrecord_io.filters import Filters
from tfrecord_io.options import Limits, OnCorrupt, RecordType, choice, function
from tfrecord_io.plan import ScanPlan
from tfrecord_io.reading.files import Paths
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.reading.tasks import decoding, warned
from tfrecord_io.schema import (
    is_any_list,
    is_bytes,
    is_text,
    leaf_type,
    storage_type,
    type_text,
    type_without_views,
    wire_schema,
    with_leaf,
)
from tfrecord_io.statistics.result import (
    FeatureStatistics,
    FrequentValue,
    NumberStatistics,
    Statistics,
    typed,
)
from tfrecord_io.storage import threads_for

_QUANTILES = (1, 5, 25, 50, 75, 95, 99)
_BINS = 30
_MOST_FREQUENT = 10
_EXAMPLES = 8

#: What the kernel tells of a column, or of numbers.
_Found: TypeAlias = dict[str, Any]
_Sample: TypeAlias = (
    npt.NDArray[np.int32]
    | npt.NDArray[np.int64]
    | npt.NDArray[np.float32]
    | npt.NDArray[np.float64]
)
#: The first strings of a column.
_Examples: TypeAlias = tuple[bytes, ...]

#: Called with the bytes that are done and the bytes there are.
Progress = Callable[[int, int], None]


def compute_statistics(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorrupt = "raise",
    path_column: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    memory_map: bool = True,
    sample_files: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Return what each feature of a data set holds, in one streaming pass.

    Parameters
    ----------
    path, columns, schema, filters, record_type, compression, on_corrupt, path_column
        See `tfrecord_io.read_table`.
    storage_options, limits, memory_map, sample_files, threads
        See `tfrecord_io.read_table`.
    progress : callable, optional
        Called with the bytes of files that are done, and of all.

    Returns
    -------
    Statistics
        Counts and extremes are exact, means as exact as doubles; distinct values, quantiles and
        frequent strings are estimates. The classes tell their errors.

    Raises
    ------
    MissingDependencyError
        The native kernel is not built.
    FileNotFoundError, TFRecordError
        See `tfrecord_io.read_table`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, None]}), "memory://statistics-example")
    >>> x = tfr.compute_statistics("memory://statistics-example").features[0]
    >>> x.missing, x.values.mean
    (1, 1.5)
    """
    get_codec("native")
    choice("on_corrupt", on_corrupt, OnCorrupt)
    function("progress", progress)
    plan = plan_scan(
        path,
        columns=columns,
        schema=schema,
        filters=filters,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        path_column=path_column,
        storage_options=storage_options,
        codec="native",
        limits=limits,
        memory_map=memory_map,
        sample_files=sample_files,
        threads=threads,
    )
    threads = threads_for(plan.locations, plan.storage_options, threads)
    rows, found, examples = _summed_up(plan, threads, progress or (lambda done, total: None))
    files = {task.file.key: task.file.size for task in plan.tasks}
    return Statistics(
        rows=rows,
        files=len(files),
        bytes=sum(files.values()),
        features=tuple(
            _feature(plan, field, one, rows, examples.get(field.name, ()))
            for field, one in zip(plan.schema, found, strict=True)
        ),
    )


# --- the pass -------------------------------------------------------------------------------------


def _summed_up(
    plan: ScanPlan, threads: int, progress: Progress
) -> tuple[int, list[_Found], dict[str, _Examples]]:
    """Return the rows there are, and what was found of each column; and examples of strings."""
    from tfrecord_io import _native

    count = len(plan.schema)
    groups = [list(range(first, count, threads)) for first in range(min(threads, count))]
    measures = [[_Measure(plan.schema.field(i).type) for i in group] for group in groups]
    summaries = [_native.Summary(len(group)) for group in groups]
    rows, done, total = 0, 0, sum(task.file.size for task in plan.tasks)
    examples = _FirstStrings(plan.schema)
    with (
        contextlib.closing(decoding(plan).run_all(plan.tasks, threads)) as tasks,
        contextlib.closing(_Updating(summaries)) as updating,
    ):
        for task, batches in zip(plan.tasks, tasks, strict=True):
            for batch in warned(batches):
                examples.add(batch)
                rows += batch.num_rows
                parts = map(_measurable, itertools.repeat(batch), groups, measures)
                updating.update(parts)
                # The next batch then takes its memory, which the caches still hold.
                del batch, parts
            done += task.file.size
            progress(done, total)
    found = {
        column: one
        for group, summary in zip(groups, summaries, strict=True)
        for column, one in zip(group, summary.columns(_MOST_FREQUENT), strict=True)
    }
    return rows, [found[column] for column in range(count)], examples.found


class _Updating:
    """Threads that update summaries, one each; of one summary, the caller's.

    No pool of Python's, whose threads and caller share a lock that an interrupt may leave taken,
    see `tfrecord_io.parallel`: for each batch that would be one chance more.
    """

    def __init__(self, summaries: Sequence[Any]) -> None:
        self._summaries = summaries
        self._ways: list[tuple[queue.SimpleQueue[Any], queue.SimpleQueue[Any]]] = []
        self._threads: list[threading.Thread] = []

    def update(self, parts: Iterable[Any]) -> None:
        """Update each summary by its part, at the same time."""
        if len(self._summaries) < 2:
            for summary, part in zip(self._summaries, parts, strict=True):
                summary.update(part)
            return
        if not self._threads:
            self._start()
        for (there, _), part in zip(self._ways, parts, strict=True):
            there.put(part)
        errors = [back.get() for _, back in self._ways]
        for error in errors:
            if error is not None:
                raise error

    def _start(self) -> None:
        for index, summary in enumerate(self._summaries):
            there: queue.SimpleQueue[Any] = queue.SimpleQueue()
            back: queue.SimpleQueue[Any] = queue.SimpleQueue()
            thread = threading.Thread(
                target=_update,
                args=(summary, there, back),
                name=f"tfrecord-io-statistics-{index}",
                daemon=True,
            )
            self._ways.append((there, back))
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End the threads."""
        for there, _ in self._ways:
            there.put(None)
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):
                thread.join()


def _update(summary: Any, there: queue.SimpleQueue[Any], back: queue.SimpleQueue[Any]) -> None:
    while (part := there.get()) is not None:
        try:
            summary.update(part)
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            back.put(error)
        else:
            back.put(None)
        # Its memory is the next batch's.
        del part


def _measurable(
    batch: pa.RecordBatch, columns: Sequence[int], measures: Sequence[_Measure]
) -> pa.RecordBatch:
    """Return some columns as the kernel takes them."""
    arrays = [
        measure(batch.column(column)) for column, measure in zip(columns, measures, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[str(column) for column in columns])


class _Measure:
    """Arrays of a type as the kernel takes them: of int64, floats, binary, or lists of them.

    What each array takes is found out once.
    """

    def __init__(self, t: pa.DataType) -> None:
        self._is_extension = isinstance(t, pa.BaseExtensionType)
        now = t.storage_type if self._is_extension else t
        self._has_gaps = _may_have_gaps(now)
        self._casts = []
        for target in _steps(t):
            if target != now:
                self._casts.append(target)
                now = target
        # Text is checked when it is decoded; as bytes it is not checked again.
        self._view = with_leaf(now, pa.binary()) if is_text(leaf_type(now)) else None

    def __call__(self, array: pa.Array) -> pa.Array:
        if self._is_extension:
            array = array.storage
        if self._has_gaps:
            array = _without_gaps(array)
        for target in self._casts:
            array = array.cast(target)
        return array if self._view is None else array.view(self._view)


def _may_have_gaps(t: pa.DataType) -> bool:
    """Return whether there are lists whose values may hold more than theirs, or in another order.

    Those under a null of a fixed-size list, and any of list views.
    """
    if not is_any_list(t):
        return False
    is_plain = pat.is_list(t) or pat.is_large_list(t)
    return not is_plain or _may_have_gaps(storage_type(t.value_type))


def _without_gaps(array: pa.Array) -> pa.Array:
    """Return lists as large lists whose values are theirs, one after the other.

    Arrow's cast keeps what is under nulls, and makes invalid arrays of views (pyarrow 26.0.1).
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not is_any_list(array.type):
        return array
    ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy())
    return pa.LargeListArray.from_arrays(
        pa.array(np.concatenate(([0], ends)), pa.int64()),
        _without_gaps(array.flatten()),
        mask=array.is_null() if array.null_count else None,
    )


def _steps(t: pa.DataType) -> tuple[pa.DataType, ...]:
    """Return the types to cast to, one after the other."""
    wire = type_without_views(wire_schema(pa.schema([("", t)]), reading=True).field(0).type)
    leaf = leaf_type(t)
    if pat.is_date32(leaf) or pat.is_time32(leaf):
        # Arrow casts them to the int of their own size only.
        return with_leaf(wire, pa.int32()), wire
    return (wire,)


class _FirstStrings:
    """Examples of each column of strings; those that have enough are not looked at any more."""

    def __init__(self, schema: pa.Schema) -> None:
        self._short = {
            field.name: _Measure(field.type) for field in schema if _is_of_strings(field.type)
        }
        self.found: dict[str, _Examples] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the first strings of a batch, where there are too few yet."""
        for name, measure in [*self._short.items()]:
            values = measure(batch.column(name))
            while pat.is_list(values.type):
                values = values.flatten()
            before = self.found.get(name, ())
            more = values.drop_null().slice(0, _EXAMPLES - len(before))
            self.found[name] = (*before, *more.to_pylist())
            if len(self.found[name]) == _EXAMPLES:
                del self._short[name]


def _is_of_strings(t: pa.DataType) -> bool:
    leaf = leaf_type(storage_type(t))
    return is_text(leaf) or is_bytes(leaf)


# --- what it found --------------------------------------------------------------------------------


def _feature(
    plan: ScanPlan,
    field: pa.Field,
    found: _Found,
    rows: int,
    examples: _Examples,
) -> FeatureStatistics:
    # Of a column without values nobody knows these.
    kind, distinct = found.get("kind"), found.get("distinct")
    values: Any = found.get("values")
    is_bytes = kind == "bytes"
    leaf = leaf_type(storage_type(field.type))
    if distinct is not None:
        # All NaNs are one value.
        distinct = min(round(distinct), values["count"] + (values["nans"] > 0))
    return FeatureStatistics(
        name=field.name,
        type=type_text(field.type),
        kind=kind,
        is_partition=field.name in plan.partition_schema.names,
        rows=rows,
        missing=found["nulls"],
        lengths=tuple(_numbers(lengths, pa.int64()) for lengths in found["lengths"]),
        values=None if is_bytes or values is None else _numbers(values, leaf),
        byte_lengths=_numbers(values, pa.int64()) if is_bytes else None,
        distinct=distinct,
        frequent=tuple(
            FrequentValue(
                value=value.decode() if is_text(leaf) else value, count=least, at_most=most
            )
            for value, least, most in found.get("frequent", ())
        ),
        examples=examples,
    )


def _numbers(found: _Found, t: pa.DataType) -> NumberStatistics:
    sample = found["sample"].to_numpy()
    ranks = {f"{q}%": round((len(sample) - 1) * q / 100) for q in _QUANTILES} if len(sample) else {}
    mean = found["mean"]
    if mean is not None and not (pat.is_floating(t) or pat.is_integer(t) or pat.is_boolean(t)):
        mean = typed(mean, t)
    return NumberStatistics(
        count=found["count"],
        nans=found["nans"],
        min=typed(found["min"], t),
        mean=mean,
        max=typed(found["max"], t),
        quantiles={name: typed(sample[rank].item(), t) for name, rank in ranks.items()},
        histogram=_histogram(sample),
    )


def _histogram(sample: _Sample) -> tuple[tuple[float, float, float], ...]:
    """Return the bins of sorted numbers."""
    values = sample.astype(np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return ()
    # Of NumPy's own numbers the difference may be too large, of which it warns.
    low, high = float(values[0]), float(values[-1])
    if low == high or not math.isfinite(high - low):
        return ((low, high, 1.0),)
    edges = np.linspace(low, high, _BINS + 1)
    starts = np.searchsorted(values, edges[:-1])
    shares = np.diff(starts, append=len(values)) / len(values)
    return tuple(
        (low, high, share)
        for (low, high), share in zip(
            itertools.pairwise(edges.tolist()), shares.tolist(), strict=True
        )
    )
