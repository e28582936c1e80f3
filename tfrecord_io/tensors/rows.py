"""Which rows go into training, in which order, cut for batches of which size.

A `RowStream` is small and picklable; every epoch reads the plan anew. Rows are shuffled twice: the
tasks of the plan (files, or pieces of large ones) are put in random order, and the rows that come
out of them go through a buffer that is mixed whenever it is full, of which half is given out. Seed
and epoch decide the order, whatever the number of threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.arrow_take import take_rows
from tfrecord_io.engines.local import read_plan
from tfrecord_io.errors import OptionError
from tfrecord_io.filters import Filters
from tfrecord_io.options import (
    SPLIT_BYTES,
    OnCorrupt,
    RecordType,
    choice,
    flag,
    not_negative,
    positive,
)
from tfrecord_io.plan import ScanPlan
from tfrecord_io.reading.files import Paths
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.schema import check_schema
from tfrecord_io.storage import threads_for
from tfrecord_io.tensors.columns import plain_schema

#: Rows that are mixed at a time where ``shuffle=True`` gives no number.
SHUFFLED_ROWS = 65_536

#: Blocks have about so many rows, or bytes, whatever is less. What frameworks make of more does not
#: stay in the processor's cache.
_BLOCK_ROWS = 4096
_BLOCK_BYTES = 4 * 1024 * 1024


#: Of a buffer of shuffled rows about so many bytes are copied at a time: many batches, and far from
#: the 2 GiB that the offsets of text and bytes reach.
_PIECE_BYTES = 256 * 1024 * 1024

_Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStream:
    """The rows of a data set as training takes them.

    Attributes
    ----------
    plan : ScanPlan
        What is read.
    batch_size : int
        Rows of one batch.
    drop_remainder : bool
        Whether a last batch with fewer rows is left out.
    shuffled_rows : int
        Rows that are mixed at a time; 0 keeps the order of the files.
    seed : int
        What the order hangs on.
    shard : tuple of (int, int)
        (index, count): every count-th task of the plan is read, from the index-th on.
    threads : int or None
        How many decode at a time.
    workers : int
        How many processes share this machine's cores, unless `threads` says how many each has.
    """

    plan: ScanPlan
    batch_size: int
    drop_remainder: bool
    shuffled_rows: int
    seed: int
    shard: tuple[int, int]
    threads: int | None
    workers: int = 1

    @property
    def batch_count(self) -> int | None:
        """How many batches an epoch has, if that is known without reading."""
        rows = [task.rows for task in self._tasks()]
        if self.plan.filter is not None or None in rows or self.plan.options.on_corrupt != "raise":
            return None
        total: int = sum(row for row in rows if row is not None)
        whole, rest = divmod(total, self.batch_size)
        return whole + (1 if rest and not self.drop_remainder else 0)

    def of_worker(self, index: int, count: int) -> RowStream:
        """Return the share of one of several workers in this stream.

        Raises
        ------
        OptionError
            There is no such worker.
        """
        index, count = _checked_shard("worker", (index, count))
        mine, shards = self.shard
        return replace(
            self, shard=(mine + shards * index, shards * count), workers=self.workers * count
        )

    def blocks(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """Give an epoch's rows; each block but the last has whole batches.

        An error comes after the whole batches before it, unless rows are shuffled.
        """
        random = np.random.default_rng([self.seed, epoch])
        tasks = self._tasks()
        if self.shuffled_rows:
            tasks = tuple(tasks[at] for at in random.permutation(len(tasks)))
        found = read_plan(replace(self.plan, tasks=tasks), threads=self._own_threads())
        # Closed also while an error is kept, whose traceback leads to it.
        with contextlib.closing(found):
            rows: Iterator[pa.RecordBatch] = found
            if self.shuffled_rows > 1:
                rows = _mixed(rows, self.shuffled_rows, random)
            for block in _cut(rows, self.batch_size):
                rest = block.num_rows % self.batch_size
                whole = block.num_rows - rest if self.drop_remainder else block.num_rows
                if whole:
                    yield block.slice(0, whole)

    def _own_threads(self) -> int | None:
        if self.threads is not None or self.workers == 1:
            return self.threads
        count = threads_for(self.plan.locations, self.plan.storage_options, None)
        return max(1, count // self.workers)

    def _tasks(self) -> tuple[Any, ...]:
        index, count = self.shard
        return self.plan.tasks[index::count]


def plan_rows(
    path: Paths,
    *,
    batch_size: int,
    columns: Sequence[str] | None,
    shuffle: bool | int,
    seed: int | None,
    drop_remainder: bool,
    shard: tuple[int, int] | None,
    schema: pa.Schema | None,
    filters: Filters,
    record_type: RecordType,
    compression: str | None,
    on_corrupt: OnCorrupt,
    storage_options: Mapping[str, Any] | None,
    threads: int | None,
) -> RowStream:
    """Plan what `tfrecord_io.batches` and its siblings read; see there for the arguments.

    Parameters
    ----------
    path, batch_size, columns, shuffle, seed, drop_remainder, shard
        See `tfrecord_io.batches`.
    schema, filters, record_type, compression, on_corrupt, storage_options, threads
        See `tfrecord_io.batches`.

    Returns
    -------
    RowStream
        Nothing but the schema, where nobody recorded it, has been read.
    """
    positive("batch_size", batch_size)
    flag("drop_remainder", drop_remainder)
    choice("on_corrupt", on_corrupt, OnCorrupt)
    if not isinstance(shuffle, Integral) or shuffle < 0:
        raise OptionError(f"shuffle is {shuffle!r}; it must be True, False or a number of rows")
    shuffled_rows = SHUFFLED_ROWS if shuffle is True else int(shuffle)
    index, count = (0, 1) if shard is None else _checked_shard("shard", shard)
    if seed is None:
        seed = int.from_bytes(os.urandom(6), "little")
    else:
        not_negative("seed", seed)
    check_schema(schema)
    plan = plan_scan(
        path,
        columns=columns,
        schema=None if schema is None else plain_schema(schema),
        filters=filters,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        storage_options=storage_options,
        threads=threads,
        # For shuffling and sharding, and so that rows are counted while files are looked at.
        task_bytes=SPLIT_BYTES,
        cut_unmarked=True,
    )
    return RowStream(
        plan=plan,
        batch_size=int(batch_size),
        drop_remainder=drop_remainder,
        shuffled_rows=shuffled_rows,
        seed=int(seed),
        shard=(index, count),
        threads=threads,
    )


def _checked_shard(name: str, shard: tuple[int, int]) -> tuple[int, int]:
    is_pair = isinstance(shard, Sequence) and len(shard) == 2
    if not is_pair or not all(isinstance(number, Integral) for number in shard):
        raise OptionError(f"{name} is {shard!r}; it must be (index, count)")
    index, count = map(int, shard)
    positive(f"the count of {name}", count)
    if not 0 <= index < count:
        raise OptionError(f"{name} is {shard!r}; the index must be from 0 to {count - 1}")
    return index, count


def _mixed(
    batches: Iterable[pa.RecordBatch], buffer_rows: int, random: np.random.Generator
) -> Iterator[pa.RecordBatch]:
    """Give rows in random order out of a buffer of `buffer_rows`, of which half is given at a time.

    The order does not depend on how the record batches were cut.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        schema = batch.schema
        # So that the buffer may hold more text and bytes than the offsets of a record batch reach.
        batch = _cast(batch, _with_large_offsets(schema))
        waiting.append(batch)
        rows += batch.num_rows
        if rows < buffer_rows:
            continue
        buffer = pa.concat_batches(waiting)
        waiting.clear()
        places, leaving = _drawn(rows, buffer_rows, random)
        rows -= leaving
        for mixed in _pieces(buffer, places):
            given = min(leaving, mixed.num_rows)
            leaving -= given
            if given:
                yield _cast(mixed.slice(0, given), schema)
            waiting.append(mixed.slice(given))
        # The others never got in: they are the last rows of this batch.
        waiting.append(batch.slice(batch.num_rows - (buffer.num_rows - len(places))))
        del buffer
    if rows:
        buffer = pa.concat_batches(waiting)
        waiting.clear()
        for mixed in _pieces(buffer, random.permutation(rows)):
            yield _cast(mixed, schema)


def _drawn(rows: int, buffer_rows: int, random: np.random.Generator) -> tuple[_Places, int]:
    """Return the new order of those of the rows that get into the buffer; so many of them leave."""
    count = buffer_rows // 2
    order = []
    held = np.arange(buffer_rows - count)
    for end in range(buffer_rows, rows + 1, count):
        buffer = np.concatenate((held, np.arange(end - count, end)))
        mixed = buffer[random.permutation(buffer_rows)]
        order.append(mixed[:count])
        held = mixed[count:]
    return np.concatenate((*order, held)), len(order) * count


def _pieces(buffer: pa.RecordBatch, places: _Places) -> Iterator[pa.RecordBatch]:
    """Give rows of a buffer in this order, as few at a time as small offsets reach."""
    count = buffer.nbytes * len(places) // (buffer.num_rows * _PIECE_BYTES) + 1
    for piece in np.array_split(places, count):
        yield take_rows(buffer, pa.array(piece))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    # A cast would lose the rows of a batch without columns.
    return batch if batch.schema == schema else batch.cast(schema)


def _with_large_offsets(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_large_type(field.type)) for field in schema])


def _large_type(t: pa.DataType) -> pa.DataType:
    if pat.is_string(t) or pat.is_string_view(t):
        return pa.large_string()
    if pat.is_binary(t) or pat.is_binary_view(t):
        return pa.large_binary()
    if pat.is_fixed_size_list(t):
        return pa.list_(t.value_field.with_type(_large_type(t.value_type)), t.list_size)
    if pat.is_list(t) or pat.is_large_list(t):
        return pa.large_list(t.value_field.with_type(_large_type(t.value_type)))
    return t


def _cut(batches: Iterable[pa.RecordBatch], batch_size: int) -> Iterator[pa.RecordBatch]:
    """Cut record batches to blocks of whole batches; the last block has the rest.

    Rows are copied only into blocks that have rows of several record batches. Of the rows that wait
    when an error comes, whole batches are given out before it.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    try:
        for batch in batches:
            block_rows = _block_rows(batch, batch_size)
            at = 0
            if rows:
                wanted = max(block_rows, rows + -rows % batch_size)
                at = min(wanted - rows, batch.num_rows)
                waiting.append(batch.slice(0, at))
                rows += at
                if rows < wanted:
                    continue
                yield _combined(waiting, batch_size)
            while batch.num_rows - at >= block_rows:
                yield batch.slice(at, block_rows)
                at += block_rows
            waiting = [batch.slice(at)]
            rows = batch.num_rows - at
    except Exception:
        whole = rows - rows % batch_size
        if whole:
            yield _combined(waiting, batch_size).slice(0, whole)
        raise
    if rows:
        yield _combined(waiting, batch_size)


def _combined(batches: Sequence[pa.RecordBatch], batch_size: int) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        raise OptionError(
            f"batch_size is {batch_size}, and so many rows have more than 2 GiB of text or bytes, "
            "or 2**31 values of lists, in one column; lower it"
        ) from error


def _block_rows(batch: pa.RecordBatch, batch_size: int) -> int:
    row_bytes: int = batch.nbytes // max(batch.num_rows, 1)
    rows = min(_BLOCK_ROWS, _BLOCK_BYTES // max(row_bytes, 1))
    return max(rows // batch_size, 1) * batch_size
