"""Which rows go into training, in which order, cut for batches of which size.

A `RowStream` is small and picklable; every epoch reads the plan anew. Rows are shuffled twice: the
tasks of the plan (files, or pieces of large ones) are put in random order, and the rows that come
out of them go through a buffer that is mixed whenever it is full, of which half is given out. Seed
and epoch decide the order, whatever the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

from tfrecord_io.engines.local import read_plan
from tfrecord_io.errors import OptionError
from tfrecord_io.filters import Filters
from tfrecord_io.options import SPLIT_BYTES, OnCorrupt, RecordType, choice, positive
from tfrecord_io.plan import ScanPlan
from tfrecord_io.read import Paths, plan_scan

#: Rows that are mixed at a time where ``shuffle=True`` gives no number.
SHUFFLED_ROWS = 65_536

#: Blocks have about so many rows, or bytes, whatever is less. What frameworks make of more does not
#: stay in the processor's cache.
_BLOCK_ROWS = 4096
_BLOCK_BYTES = 4 * 1024 * 1024


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
    """

    plan: ScanPlan
    batch_size: int
    drop_remainder: bool
    shuffled_rows: int
    seed: int
    shard: tuple[int, int]
    threads: int | None

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
        """Return the share of one of several workers in this stream."""
        mine, shards = self.shard
        return replace(self, shard=(mine + shards * index, shards * count))

    def blocks(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """Give an epoch's rows; each block but the last has whole batches."""
        random = np.random.default_rng([self.seed, epoch])
        tasks = self._tasks()
        if self.shuffled_rows:
            tasks = tuple(tasks[at] for at in random.permutation(len(tasks)))
        rows = read_plan(replace(self.plan, tasks=tasks), threads=self.threads)
        if self.shuffled_rows:
            rows = _mixed(rows, self.shuffled_rows, random)
        for block in _cut(rows, self.batch_size):
            rest = block.num_rows % self.batch_size
            whole = block.num_rows - rest if self.drop_remainder else block.num_rows
            if whole:
                yield block.slice(0, whole)

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
    choice("on_corrupt", on_corrupt, OnCorrupt)
    if not isinstance(shuffle, Integral) or shuffle < 0:
        raise OptionError(f"shuffle is {shuffle!r}; it must be True, False or a number of rows")
    shuffled_rows = SHUFFLED_ROWS if shuffle is True else int(shuffle)
    index, count = _checked_shard(shard)
    if seed is None:
        seed = int.from_bytes(os.urandom(6), "little")
    elif not isinstance(seed, Integral) or seed < 0:
        raise OptionError(f"seed is {seed!r}; it must be a whole number of 0 or more")
    plan = plan_scan(
        path,
        columns=columns,
        schema=schema,
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


def _checked_shard(shard: tuple[int, int] | None) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    is_pair = isinstance(shard, Sequence) and len(shard) == 2
    if not is_pair or not all(isinstance(number, Integral) for number in shard):
        raise OptionError(f"shard is {shard!r}; it must be (index, count)")
    index, count = map(int, shard)
    positive("the count of shard", count)
    if not 0 <= index < count:
        raise OptionError(f"shard is {shard!r}; the index must be from 0 to {count - 1}")
    return index, count


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _mixed(
    batches: Iterable[pa.RecordBatch], buffer_rows: int, random: np.random.Generator
) -> Iterator[pa.RecordBatch]:
    """Give rows in random order out of a buffer of `buffer_rows`."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= max(buffer_rows, 2):
            buffer = _combined(waiting)
            # In order of the record batches, however they were cut.
            mixed = buffer.slice(0, buffer_rows).take(pa.array(random.permutation(buffer_rows)))
            given = max(buffer_rows // 2, 1)
            yield mixed.slice(0, given)
            waiting = [mixed.slice(given), buffer.slice(buffer_rows)]
            rows -= given
    if rows:
        yield _combined(waiting).take(pa.array(random.permutation(rows)))


def _cut(batches: Iterable[pa.RecordBatch], batch_size: int) -> Iterator[pa.RecordBatch]:
    """Cut record batches to blocks of whole batches; the last block has the rest.

    Rows are copied only into blocks that have rows of several record batches.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
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
            yield _combined(waiting)
        while batch.num_rows - at >= block_rows:
            yield batch.slice(at, block_rows)
            at += block_rows
        waiting = [batch.slice(at)]
        rows = batch.num_rows - at
    if rows:
        yield _combined(waiting)


def _block_rows(batch: pa.RecordBatch, batch_size: int) -> int:
    row_bytes: int = batch.nbytes // max(batch.num_rows, 1)
    rows = min(_BLOCK_ROWS, _BLOCK_BYTES // max(row_bytes, 1))
    return max(rows // batch_size, 1) * batch_size
