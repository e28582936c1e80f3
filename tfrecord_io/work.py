"""What is done with frames: decoding into a plan's batches, observing, counting.

A `Work` serves one span of one file. It knows the plan and the values that come from the file's
path; where frames come from, and what becomes of damage, is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from tfrecord_io.cast import from_wire
from tfrecord_io.codec.base import Codec, Cursor
from tfrecord_io.filters import filter_batch
from tfrecord_io.frames import FrameCounter
from tfrecord_io.infer import FeatureObservation, Observation, Sighting
from tfrecord_io.plan import ScanFile, ScanOptions, ScanPlan


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


class Decoding:
    """Frames to the batches of a plan.

    Parameters
    ----------
    codec : Codec
        What decodes.
    plan : ScanPlan
        What is wanted.
    wire : pyarrow.Schema
        ``wire_schema(plan.file_schema, reading=True)``, made once for all spans.
    file : ScanFile
        Where the frames come from.
    """

    def __init__(self, codec: Codec, plan: ScanPlan, wire: pa.Schema, file: ScanFile) -> None:
        self._decoder = codec.decoder(wire, plan.options.decode_options())
        self._finish = Finisher(plan, file)
        self._file_schema = None if wire.equals(plan.file_schema) else plan.file_schema
        self.cursor: Cursor = self._decoder
        self.advance = self._decoder.decode

    def items(self, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        """See `Work.items`."""
        decoder = self._decoder
        if decoder.full or (is_end and decoder.rows):
            batch = decoder.flush()
            if self._file_schema is not None:
                batch = from_wire(batch, self._file_schema, place=decoder.row_place)
            batch = self._finish(batch)
            if batch.num_rows:
                yield batch


class Observing:
    """Frames to one observation."""

    def __init__(self, codec: Codec, options: ScanOptions, file: ScanFile) -> None:
        self._observer = codec.observer(options.decode_options())
        self._url = file.url
        self.cursor: Cursor = self._observer
        self.advance = self._observer.observe

    def items(self, *, is_end: bool) -> Iterator[Observation]:
        """See `Work.items`."""
        if is_end:
            yield self._observer.result().with_path(self._url)


def shifted(item: Any, records: int) -> Any:
    """Return an item as if so many records had come before its span."""
    if not records or not isinstance(item, Observation):
        return item
    return replace(item, features=tuple(_shifted(f, records) for f in item.features))


def _shifted(feature: FeatureObservation, records: int) -> FeatureObservation:
    def move(sighting: Sighting) -> Sighting:
        return replace(sighting, record=sighting.record + records)

    return replace(
        feature,
        first=move(feature.first),
        with_values={kind: move(seen) for kind, seen in feature.with_values.items()},
        empty={kind: move(seen) for kind, seen in feature.empty.items()},
    )


class Counting:
    """Frames to their number."""

    def __init__(self, codec: Codec, options: ScanOptions) -> None:
        self._counter = FrameCounter(codec, options.limits)
        self.cursor: Cursor = self._counter
        self.advance = self._counter.hop

    def items(self, *, is_end: bool) -> Iterator[int]:
        """See `Work.items`."""
        if is_end:
            yield self._counter.record


class Finisher:
    """Batches of a plan's file schema, all of one file, to batches of its schema."""

    def __init__(self, plan: ScanPlan, file: ScanFile) -> None:
        self._filter = plan.filter
        constants: list[tuple[pa.Field, pa.Scalar]] = list(
            zip(plan.partition_schema, file.partition, strict=True)
        )
        if plan.path_column is not None:
            constants.append(_path_constant(plan, file))
        self._constants = [scalar for _, scalar in constants]
        everything = [*plan.file_schema, *(column for column, _ in constants)]
        self._full_schema = pa.schema(everything)
        self._out_schema = plan.schema
        self._is_all = plan.schema.names == self._full_schema.names
        self._repeated: list[pa.Array] = []
        self._repeated_rows = -1

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add what comes from the file's path, filter rows, choose columns."""
        if self._constants:
            if batch.num_rows > self._repeated_rows:
                self._repeated = [_repeat(value, batch.num_rows) for value in self._constants]
                self._repeated_rows = batch.num_rows
            constants = [array.slice(0, batch.num_rows) for array in self._repeated]
            arrays = [*batch.columns, *constants]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._full_schema)
        if self._filter is not None:
            batch = filter_batch(batch, self._filter)
        if not self._is_all:
            batch = batch.select(self._out_schema.names)
        return batch


def _path_constant(plan: ScanPlan, file: ScanFile) -> tuple[pa.Field, pa.Scalar]:
    return pa.field(plan.path_column, pa.string()), pa.scalar(file.url, pa.string())


def _repeat(value: pa.Scalar, rows: int) -> pa.Array:
    if not pa.types.is_dictionary(value.type):
        return pa.repeat(value, rows)
    # A scalar of a dictionary type repeats as its values do not: by its index.
    index = pa.scalar(0 if value.is_valid else None, value.type.index_type)
    values = pa.array([value.as_py()] if value.is_valid else [], value.type.value_type)
    return pa.DictionaryArray.from_arrays(pa.repeat(index, rows), values)
