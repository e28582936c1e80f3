"""What is done with frames: decoding into a plan's batches, observing, counting.

A `Work` serves one span of one file. It knows the plan and the values that come from the file's
path; where frames come from, and what becomes of damage, is not its business.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from tfrecord_io.cast import from_wire
from tfrecord_io.codec.base import BatchDecoder, Cursor, Observer
from tfrecord_io.errors import LayoutError, SchemaMismatchError
from tfrecord_io.filters import filter_batch
from tfrecord_io.infer import Observation
from tfrecord_io.plan import ScanFile, ScanPlan, ScanTask
from tfrecord_io.reading.frames import Damage, FrameCounter
from tfrecord_io.schema import wire_schema


class Work(Protocol):
    """What is done with frames. One object serves one span.

    Attributes
    ----------
    cursor : Cursor
        Where it stands.
    """

    cursor: Cursor

    def advance(self, data: pa.Buffer, start: int) -> object:
        """Take frames from a buffer."""

    def items(self, *, is_end: bool) -> Iterator[Any]:
        """Give out what is ready; at the end of the span, or before an error, everything."""

    def lose(self, damage: Damage) -> Iterator[Any]:
        """Give out what stands before damage; more of it may follow before the next frames do."""


class Decoding:
    """Frames to the batches of a plan.

    Parameters
    ----------
    decoder : BatchDecoder
        Of the plan's file schema in wire types.
    plan : ScanPlan
        What is wanted.
    file : ScanFile
        Where the frames come from.
    """

    def __init__(self, decoder: BatchDecoder, plan: ScanPlan, file: ScanFile) -> None:
        self._decoder = decoder
        self._finish = Finisher(plan, file)
        self._file_schema = plan.file_schema
        self._written = plan.written
        self._written_schema = plan.file_schema
        if plan.written:
            fields = [f.with_type(plan.written.get(f.name, f.type)) for f in plan.file_schema]
            self._written_schema = pa.schema(fields)
        self._keeps = plan.options.on_corrupt == "keep"
        self._has_lost = False
        self._kept: bytearray | None = None
        self.cursor: Cursor = self._decoder
        self.advance = self._decoder.decode

    def items(self, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        """See `Work.items`."""
        decoder = self._decoder
        if self._has_lost and (is_end or decoder.rows):
            self._has_lost = False
            kept = None if self._kept is None else _binary(self._kept)
            row = self._finish(self._nulls(), kept)
            if row.num_rows:
                yield row
        # Before a row that is no text, a decoder gives the rows, stays full, and then raises.
        while decoder.full or (is_end and decoder.rows):
            yield from self._finished(decoder.flush())

    def lose(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        """See `Work.lose`."""
        if self._keeps:
            if self._decoder.rows:
                yield from self.items(is_end=True)
            self._has_lost = True
            self._kept = damage.kept

    def _finished(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Give a decoded batch as the plan wants it, or the rows before one that does not fit."""
        place = self._decoder.row_place
        try:
            made = batch
            if not made.schema.equals(self._written_schema):
                made = from_wire(made, self._written_schema, place=place)
            if self._written:
                made = _in_units(made, self._file_schema, place)
        except SchemaMismatchError as error:
            record = error.record or 0
            rows = bisect_left(range(batch.num_rows), record, key=lambda row: place(row)[1])
            if rows:
                yield from self._finished(batch.slice(0, rows))
            raise
        made = self._finish(made)
        if made.num_rows:
            yield made

    def _nulls(self) -> pa.RecordBatch:
        """Return one row of nulls, which has room for as much as any other row."""
        if not self._file_schema.names:
            return _rows(1)
        wire = wire_schema(self._file_schema, reading=True)
        nulls = [pa.nulls(1, field.type) for field in wire]
        batch = pa.RecordBatch.from_arrays(nulls, schema=wire)
        place = self.cursor.offset, self.cursor.record
        return from_wire(batch, self._file_schema, place=lambda row: place)


def _rows(count: int) -> pa.RecordBatch:
    """Return rows of no columns. Made of none, a batch has no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(count)], ["none"]).select([])


def _in_units(
    batch: pa.RecordBatch, schema: pa.Schema, place: Callable[[int], tuple[int, int]]
) -> pa.RecordBatch:
    """Bring columns of times from the units in which they were written to those of a schema."""
    # Loaded on demand: hardly any read asks for other units.
    from tfrecord_io.formats.base import casts, row_of
    from tfrecord_io.formats.exact import exact_cast

    def cast(array: pa.Array, field: pa.Field) -> pa.Array:
        if array.type == field.type:
            return array
        try:
            return exact_cast(array, field.type)
        except pa.ArrowException as error:
            row = row_of(lambda part: not casts(part, field.type), array, 0)
            offset, record = place(row or 0)
            raise SchemaMismatchError(
                f"feature {field.name!r} was written as {array.type}, and a value does not fit "
                f"{field.type}: {error}; ask for {array.type}",
                offset=offset,
                record=record,
                feature=field.name,
            ) from error

    arrays = [cast(array, field) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _binary(data: bytearray) -> pa.BinaryArray:
    """Return one value that is these bytes, not a copy of them."""
    ends = pa.array([0, len(data)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A run of records that was looked at.

    Attributes
    ----------
    observer : Observer
        What looked at it.
    path : str
        The file.
    first_record : int
        Which of the file's records it begins with.
    """

    observer: Observer
    path: str
    first_record: int = 0

    def observation(self, known: Set[Hashable]) -> Observation:
        """Return what was seen; see `tfrecord_io.codec.base.Observer.result`."""
        seen = self.observer.result(known)
        return replace(seen, path=self.path, first_record=self.first_record)


class Observing:
    """Frames to what was observed."""

    def __init__(self, observer: Observer, file: ScanFile) -> None:
        self._observer = observer
        self._url = file.url
        self.cursor: Cursor = observer
        self.advance = observer.observe

    def items(self, *, is_end: bool) -> Iterator[Observed]:
        """See `Work.items`."""
        if is_end:
            yield Observed(observer=self._observer, path=self._url)

    def lose(self, damage: Damage) -> Iterator[Observed]:
        """See `Work.lose`."""
        del damage
        return iter(())


def shifted(item: Any, records: int) -> Any:
    """Return an item as if so many records had come before its span."""
    if not records or not isinstance(item, Observed):
        return item
    return replace(item, first_record=item.first_record + records)


class Counting:
    """Frames to their number."""

    def __init__(self, counter: FrameCounter) -> None:
        self._counter = counter
        self.cursor: Cursor = counter
        self.advance = counter.hop

    def items(self, *, is_end: bool) -> Iterator[int]:
        """See `Work.items`."""
        if is_end:
            yield self._counter.record

    def lose(self, damage: Damage) -> Iterator[int]:
        """See `Work.lose`."""
        del damage
        return iter(())


class Finisher:
    """Batches of a plan's file schema, all of one file, to batches of its schema."""

    def __init__(self, plan: ScanPlan, file: ScanFile) -> None:
        self._filter = plan.filter
        self._filter_columns = plan.filter_columns
        constants: list[tuple[pa.Field, pa.Scalar]] = list(
            zip(plan.partition_schema, file.partition, strict=True)
        )
        corrupt_column = plan.options.corrupt_column
        if corrupt_column is not None:
            field = pa.field(corrupt_column, pa.binary())
            constants.insert(0, (field, pa.scalar(None, field.type)))
        if plan.path_column is not None:
            path = pa.field(plan.path_column, pa.string())
            constants.append((path, path_value(file, plan.path_column)))
        self._constants = [scalar for _, scalar in constants]
        self._full_schema = plan.file_schema
        if constants:
            columns = [column for column, _ in constants]
            self._full_schema = pa.schema([*plan.file_schema, *columns])
        self._out_schema = plan.schema
        # Comparing names would make an object of each, for every file.
        self._is_all = plan.schema.equals(self._full_schema)
        self._repeated: list[pa.Array] = []
        self._repeated_rows = -1

    def __call__(self, batch: pa.RecordBatch, kept: pa.Array | None = None) -> pa.RecordBatch:
        """Add what comes from the file's path, filter rows, choose columns.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Of the plan's file schema.
        kept : pyarrow.Array, optional
            The values of the corrupt column, which are null otherwise.
        """
        if self._constants:
            if batch.num_rows > self._repeated_rows:
                self._repeated = [repeated(value, batch.num_rows) for value in self._constants]
                self._repeated_rows = batch.num_rows
            constants = [array.slice(0, batch.num_rows) for array in self._repeated]
            if kept is not None:
                constants[0] = kept
            arrays = [*batch.columns, *constants]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._full_schema)
        if self._filter is not None:
            batch = filter_batch(batch, self._filter, self._filter_columns)
        if not self._is_all:
            batch = batch.select(self._out_schema.names)
        return batch


def path_value(file: ScanFile, path_column: str) -> pa.Scalar:
    """Return what the column of paths holds for a file."""
    try:
        return pa.scalar(file.url, pa.string())
    except UnicodeEncodeError:
        raise LayoutError(
            "the path is no UTF-8 and no value of a string column; rename the file, or read it "
            f"without the column of paths, {path_column!r}",
            path=os.fsencode(file.url).decode("utf-8", "backslashreplace"),
        ) from None


def rows_of_values(plan: ScanPlan, task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Give the rows, whose number is known, of a task of which no column of records is read."""
    finish = Finisher(plan, task.file)
    rows, most = task.rows or 0, plan.options.batch_rows
    for start in range(0, rows, most):
        batch = finish(_rows(min(most, rows - start)))
        if batch.num_rows:
            yield batch


def repeated(value: pa.Scalar, rows: int) -> pa.Array:
    """Return an array of rows that are all of one value."""
    if not pa.types.is_dictionary(value.type):
        return pa.repeat(value, rows)
    # A scalar of a dictionary type repeats as its values do not: by its index.
    t = value.type
    index = pa.scalar(0 if value.is_valid else None, t.index_type)
    # Of times of far years Python has no values.
    values = pa.repeat(value.value, 1) if value.is_valid else pa.nulls(0, t.value_type)
    return pa.DictionaryArray.from_arrays(pa.repeat(index, rows), values, ordered=t.ordered)
