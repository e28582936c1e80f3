"""Values of any supported Arrow type to wire types and back, whole columns at a time.

For each pair of types a *step* is made once (`Leaf`, `_List` and a few that wrap another step);
the steps of a schema are cached, so a batch pays for its values only, and a column whose type is
its wire type passes as it is.

A step never raises on a value. It returns an array, and faults for the values that have no
place in it; a list's step maps the faults of its items to its own rows and drops those that stand
under a null, where anything may stand. So the first bad row over all columns is known before one
error is raised for it.

Whatever is cast with ``safe=False`` here has been compared, or is compared right after.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.arrow_take import take
from tfrecord_io.arrow_views import without_views
from tfrecord_io.cast_leaves import (
    Fault,
    Faults,
    Leaf,
    NumPy,
    as_numpy,
    faults_at,
    int_range,
    leaf_from_wire,
    leaf_to_wire,
    null_faults,
)
from tfrecord_io.errors import EncodeError, SchemaMismatchError
from tfrecord_io.options import Float64Mode
from tfrecord_io.schema import (
    is_any_list,
    is_text,
    leaf_type,
    normal_type,
    storage_type,
    wire_schema,
    with_leaf,
)

#: What nulls of types of a fixed size may take in one batch: they have the room of values, and how
#: much that is, a manifest says.
_MAX_NULL_BYTES = 2**30


class ToWire:
    """Brings batches to the wire types that an encoder takes.

    Parameters
    ----------
    schema : pyarrow.Schema
        The declared schema. Its nullable flags are held to.
    float64 : {"warn", "cast", "error"}
        What to do about values that float32 cannot hold exactly: name their columns, don't look,
        or raise.
    """

    def __init__(self, schema: pa.Schema, *, float64: Float64Mode) -> None:
        self._schema = schema
        self._float64 = float64
        #: The types that batches come with, and what to do with such a batch; as one value, since
        #: threads may share this.
        self._planned: tuple[pa.Schema, _Plan] | None = None

    def __call__(
        self, batch: pa.RecordBatch, *, row_offset: int = 0
    ) -> tuple[pa.RecordBatch, frozenset[str]]:
        """Cast a batch.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Its columns have the names of the schema and its types, or others of the same normal
            form (`tfrecord_io.schema.normal_type`), or the null type. Where float32 is declared,
            float64 may come, and is narrowed by the same rules.
        row_offset : int
            Row number of the batch's first row, for errors.

        Returns
        -------
        batch : pyarrow.RecordBatch
            Of ``wire_schema(schema, reading=False)``. Nothing is copied that already has its wire
            type.
        narrowed : frozenset of str
            With "warn", the names of the columns in which a value is not exactly what is written.

        Raises
        ------
        EncodeError
            A null in a column that is not nullable or inside a list (an inner list may be null
            where the schema allows it), an integer above 2**63 - 1, a value beyond float32's range,
            a date or time that is none, or a batch that does not have the declared columns.
            `feature` and `row` are those of the first bad row, and in it of the first bad column.
        """
        planned = self._planned
        if planned is None or not batch.schema.equals(planned[0], check_metadata=True):
            plan = _writing_plan(batch.schema, self._schema, self._float64)
            self._planned = planned = batch.schema, plan
        _, plan = planned
        arrays, found = plan.run(batch)
        errors = [(index, fault) for index, fault in found if not fault.is_warning]
        if errors:
            index, fault = min(errors, key=lambda item: (item[1].rows[0], item[0]))
            name = self._schema.field(index).name
            raise EncodeError(
                f"column {name!r} {fault.first_text()}",
                feature=name,
                row=row_offset + int(fault.rows[0]),
            )
        narrowed = frozenset(self._schema.field(index).name for index, _ in found)
        return plan.batch(batch, arrays), narrowed


def from_wire(
    batch: pa.RecordBatch, schema: pa.Schema, *, place: Callable[[int], tuple[int, int]]
) -> pa.RecordBatch:
    """Bring a decoded batch to the types that the reader asked for.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Of ``wire_schema(schema, reading=True)``.
    schema : pyarrow.Schema
        The types asked for. Its nullable flags are held to.
    place : callable of int to (int, int)
        Byte offset and record number of a row, for errors only.

    Returns
    -------
    pyarrow.RecordBatch
        Of `schema`. Nothing is copied that already has the type asked for.

    Raises
    ------
    SchemaMismatchError
        A value that does not fit its type, or a null in a column that is not nullable: the first
        bad row, and in it the first bad column. Before that, nulls of fixed-size lists and binaries
        that would take more than 1 GiB in this batch, all columns together: values that are in the
        file are not counted.
    """
    try:
        plan = _reading_plan(batch.schema, schema)
    except TypeError:
        # Of extension types that others define, pyarrow makes no hash.
        plan = _reading_plan.__wrapped__(batch.schema, schema)
    if not plan.schema.equals(schema, check_metadata=True):
        # The cache holds the plan of a schema that is equal but for metadata.
        plan = _reading_plan.__wrapped__(batch.schema, schema)
    _check_room_for_nulls(batch, schema, place)
    arrays, found = plan.run(batch)
    if found:
        index, fault = min(found, key=lambda item: (item[1].rows[0], item[0]))
        name = schema.field(index).name
        offset, record = place(int(fault.rows[0]))
        raise SchemaMismatchError(
            f"feature {name!r} {fault.first_text()}", offset=offset, record=record, feature=name
        )
    return plan.batch(batch, arrays)


def _check_room_for_nulls(
    batch: pa.RecordBatch, schema: pa.Schema, place: Callable[[int], tuple[int, int]]
) -> None:
    rooms = [_null_bytes(batch.column(index), field.type) for index, field in enumerate(schema)]
    if sum(rooms) <= _MAX_NULL_BYTES:
        return
    index = rooms.index(max(rooms))
    field = schema.field(index)
    nulls = as_numpy(batch.column(index).is_null())
    offset, record = place(int(np.argmax(nulls)))
    raise SchemaMismatchError(
        f"feature {field.name!r} has nulls, for which {field.type} needs {rooms[index]} bytes of "
        f"room in a batch of {len(batch)} rows, and nulls may take {_MAX_NULL_BYTES}: read it as a "
        "list or as binary, or fewer rows at a time",
        offset=offset,
        record=record,
        feature=field.name,
    )


def _null_bytes(array: pa.Array, t: pa.DataType) -> int:
    """Return the bytes of the nulls of a wire array once they have a fixed size."""
    t = _stored_type(t)
    if is_any_list(t):
        size = array.null_count * _width(t) if pat.is_fixed_size_list(t) else 0
        return size + _null_bytes(array.values, t.value_type)
    return array.null_count * _width(t) if pat.is_fixed_size_binary(t) else 0


def _width(t: pa.DataType) -> int:
    """Return about how many bytes a null takes, of a type without a width those of its place."""
    t = _stored_type(t)
    if pat.is_fixed_size_list(t):
        return int(t.list_size) * _width(t.value_type)
    if pat.is_fixed_size_binary(t):
        return int(t.byte_width)
    return max(1, t.bit_width // 8) if pat.is_primitive(t) or pat.is_decimal(t) else 16


def _stored_type(t: pa.DataType) -> pa.DataType:
    t = storage_type(t)
    return _stored_type(t.value_type) if pat.is_dictionary(t) else t


class _Step(Protocol):
    def __call__(self, array: pa.Array) -> tuple[pa.Array, Faults]:
        """Return the array in the step's target type, and what did not fit."""


# ---- whole batches -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    steps: Sequence[_Step]
    schema: pa.Schema

    def run(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[tuple[int, Fault]]]:
        """Return the arrays, none if the batch is as it is to be, and what did not fit."""
        arrays = []
        found = []
        is_same = True
        for index, (step, column) in enumerate(zip(self.steps, batch.columns, strict=True)):
            array, faults = step(column)
            is_same = is_same and array is column
            arrays.append(array)
            found += [(index, fault) for fault in faults]
        if is_same and batch.schema.equals(self.schema, check_metadata=True):
            arrays = []
        return arrays, found

    def batch(self, batch: pa.RecordBatch, arrays: list[pa.Array]) -> pa.RecordBatch:
        # Without columns the number of rows lives in the batch alone.
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema) if arrays else batch


def _writing_plan(source: pa.Schema, schema: pa.Schema, float64: Float64Mode) -> _Plan:
    if source.names != schema.names:
        raise EncodeError(
            f"the batch has the columns {source.names}, and {schema.names} are declared: give each "
            "batch those that are declared"
        )
    wire = wire_schema(schema, reading=False)
    steps = []
    for found, declared, target in zip(source, schema, wire, strict=True):
        if not _is_writable_as(found.type, declared.type):
            raise EncodeError(
                f"column {declared.name!r} has the type {found.type} in this batch, and "
                f"{declared.type} is declared: cast it, or declare {found.type}",
                feature=declared.name,
            )
        text = "" if declared.nullable else "is declared not nullable and holds a null"
        inner = _has_nullable_inner_lists(declared.type)
        steps.append(_writing_step(found.type, target.type, float64, text, inner))
    return _Plan(steps, wire)


def _is_writable_as(found: pa.DataType, declared: pa.DataType) -> bool:
    found, declared = normal_type(found), normal_type(declared)
    if pat.is_float64(leaf_type(found)) and pat.is_float32(leaf_type(declared)):
        found = with_leaf(found, pa.float32())
    return bool(pat.is_null(found) or found == declared)


def _has_nullable_inner_lists(t: pa.DataType) -> bool:
    t = storage_type(t)
    if pat.is_dictionary(t):
        return _has_nullable_inner_lists(t.value_type)
    return is_any_list(t) and bool(t.value_field.nullable)


_NULL_IN_LIST = (
    "holds a null inside a list, which TFRecord cannot: drop the null or put a value in its place"
)


def _writing_step(
    source: pa.DataType, target: pa.DataType, float64: Float64Mode, null_text: str, inner: bool
) -> _Step:
    """Return the step to a wire type; `null_text` is what is wrong with a null, "" if nothing."""
    if isinstance(source, pa.BaseExtensionType):
        step = _writing_step(source.storage_type, target, float64, null_text, inner)
        return lambda array: step(array.storage)
    if pat.is_dictionary(source):
        return _decoded(source, target, float64, null_text, inner)
    if pat.is_null(source) and not pat.is_null(target):
        return Leaf(lambda array: (pa.nulls(len(array), target), []), null_text)
    if not is_any_list(source):
        return Leaf(leaf_to_wire(source, target, float64), null_text)
    is_null_allowed = inner and is_any_list(storage_type(source.value_type))
    item = _writing_step(
        source.value_type,
        target.value_type,
        float64,
        "" if is_null_allowed else _NULL_IN_LIST,
        inner=False,
    )
    return _List(source, target, item, null_text)


def _decoded(
    source: pa.DataType, target: pa.DataType, float64: Float64Mode, null_text: str, inner: bool
) -> _Step:
    value_type = source.value_type
    if is_text(value_type) or pat.is_binary(value_type) or pat.is_binary_view(value_type):
        # Repeated values may need more than the 2 GiB of a binary array.
        value_type = pa.large_string() if is_text(value_type) else pa.large_binary()
    step = _writing_step(value_type, target, float64, null_text, inner)

    def run(array: pa.Array) -> tuple[pa.Array, Faults]:
        values = array.dictionary
        if values.type != value_type:
            values = values.cast(value_type)
        return step(take(values, array.indices))

    return run


@functools.lru_cache(maxsize=64)
def _reading_plan(wire: pa.Schema, schema: pa.Schema) -> _Plan:
    steps = []
    for source, target in zip(wire, schema, strict=True):
        text = "" if target.nullable else "is missing or has no kind, and the schema allows no null"
        steps.append(_reading_step(source.type, target.type, text))
    return _Plan(steps, schema)


def _reading_step(source: pa.DataType, target: pa.DataType, null_text: str) -> _Step:
    if isinstance(target, pa.BaseExtensionType):
        step = _reading_step(source, target.storage_type, null_text)
        return _then(step, lambda array: pa.ExtensionArray.from_storage(target, array))
    if pat.is_dictionary(target):
        step = _reading_step(source, target.value_type, null_text)
        return _encoded(step, target)
    if not is_any_list(target):
        return Leaf(leaf_from_wire(source, target), null_text)
    item_text = "" if target.value_field.nullable else "has a step without a kind: allow nulls"
    return _List(
        source, target, _reading_step(source.value_type, target.value_type, item_text), null_text
    )


def _then(step: _Step, wrap: Callable[[pa.Array], pa.Array]) -> _Step:
    def run(array: pa.Array) -> tuple[pa.Array, Faults]:
        out, faults = step(array)
        return wrap(out), faults

    return run


def _encoded(step: _Step, target: pa.DataType) -> _Step:
    value_type = target.value_type
    last = int_range(target.index_type)[1]

    def run(array: pa.Array) -> tuple[pa.Array, Faults]:
        values, faults = step(array)
        try:
            encoded = values.dictionary_encode()
        except pa.ArrowNotImplementedError:
            # Arrow cannot compare the values (lists, decimal32): each gets an entry of its own.
            is_null = as_numpy(values.is_null())
            index = pa.array(np.arange(len(values), dtype=np.int32), mask=is_null)
            encoded = pa.DictionaryArray.from_arrays(index, values)
        if len(encoded.dictionary) > last + 1:
            too_many = as_numpy(pc.fill_null(pc.greater(encoded.indices, last), False))
            text = f"has more distinct values than a dictionary with {target.index_type} can index"
            return pa.nulls(len(array), target), faults + faults_at(too_many, lambda _: text)
        indices = encoded.indices.cast(target.index_type)
        dictionary = encoded.dictionary.cast(value_type)
        return pa.DictionaryArray.from_arrays(
            indices, dictionary, ordered=target.ordered, safe=False
        ), faults

    return run


# ---- lists ---------------------------------------------------------------------------------------


class _List:
    """Any list type to any other, with `item` for what is inside."""

    def __init__(
        self, source: pa.DataType, target: pa.DataType, item: _Step, null_text: str
    ) -> None:
        self._source = source
        self._target = target
        self._item = item
        self._null_text = null_text
        #: Whether arrays of the target type stay what they are, and only nulls are looked for.
        self.keeps: bool = isinstance(item, Leaf | _List) and item.keeps

    def __call__(self, array: pa.Array) -> tuple[pa.Array, Faults]:
        faults = null_faults(array, self._null_text)
        is_kept = self.keeps and array.type.equals(self._target, check_metadata=True)
        if is_kept and not _has_nulls_or_nothing_inside(array):
            return array, faults
        if pat.is_list_view(self._source) or pat.is_large_list_view(self._source):
            array = without_views(array)
        if pat.is_fixed_size_list(self._source):
            return self._from_fixed_size(array, faults)
        return self._from_offsets(array, faults)

    def _from_fixed_size(self, array: pa.Array, faults: Faults) -> tuple[pa.Array, Faults]:
        size = self._source.list_size
        child = _items_of(array.values, array.offset * size, len(array) * size)
        items, item_faults = self._item(child)
        faults += _faults_of_rows(array, item_faults, lambda positions: positions // size)
        return _fixed_size_list(self._target, len(array), items, _null_mask(array)), faults

    def _from_offsets(self, array: pa.Array, faults: Faults) -> tuple[pa.Array, Faults]:
        offsets = as_numpy(array.offsets)
        first, last = offsets[0], offsets[-1]
        child = _items_of(array.values, first, last - first)
        items, item_faults = self._item(child)
        faults += _faults_of_rows(
            array,
            item_faults,
            lambda positions: np.repeat(np.arange(len(array)), np.diff(offsets))[positions],
        )
        if len(items) != len(child):
            # See `_to_fixed_size`.
            return pa.nulls(0, self._target), faults
        if first:
            offsets = offsets - first
        target = self._target
        if pat.is_fixed_size_list(target):
            return self._to_fixed_size(array, offsets, items, faults)
        mask = _null_mask(array)
        if pat.is_list_view(target) or pat.is_large_list_view(target):
            make = pa.ListViewArray if pat.is_list_view(target) else pa.LargeListViewArray
            starts, sizes = offsets[:-1], np.diff(offsets)
            return make.from_arrays(starts, sizes, items, target, mask=mask), faults
        make = pa.ListArray if pat.is_list(target) else pa.LargeListArray
        return make.from_arrays(offsets, items, type=target, mask=mask), faults

    def _to_fixed_size(
        self, array: pa.Array, offsets: NumPy, items: pa.Array, faults: Faults
    ) -> tuple[pa.Array, Faults]:
        size = self._target.list_size
        lengths = np.diff(offsets)
        fits = lengths == size
        if fits.all() and not array.null_count:
            return _fixed_size_list(self._target, len(array), items, None), faults
        is_null = as_numpy(array.is_null())
        faults += faults_at(
            ~fits & ~is_null,
            lambda row: f"has {lengths[row]} values in this record, and the schema asks for {size}",
        )
        if faults:
            # Nobody will see the values, and room for those that are not there may be huge.
            return pa.nulls(0, self._target), faults
        if lengths[is_null].any():
            items = take(items, pa.array(np.flatnonzero(np.repeat(~is_null, lengths))))
        # A null row has room for its values too.
        there = _fixed_size_list(self._target, len(array) - array.null_count, items, None)
        return take(there, pa.array(np.cumsum(~is_null) - 1, mask=is_null)), faults


def _fixed_size_list(
    target: pa.DataType, length: int, items: pa.Array, mask: pa.Array | None
) -> pa.Array:
    if target.list_size == 0:
        # from_arrays would divide by the size.
        valid = None if mask is None else pa.array(~as_numpy(mask)).buffers()[1]
        return pa.Array.from_buffers(target, length, [valid], children=[items])
    return pa.FixedSizeListArray.from_arrays(items, type=target, mask=mask)


def _items_of(values: pa.Array, start: int, length: int) -> pa.Array:
    """Return items of a list.

    Where there are none, the offsets of texts and lists may begin anywhere, and the arrays of other
    libraries do: arrow-rs takes no such array of no values (60.1).
    """
    return values.slice(start, length) if length else pa.nulls(0, values.type)


def _has_nulls_or_nothing_inside(array: pa.Array) -> bool:
    """Return whether a list may hold nulls, those outside a slice included, or holds no values."""
    while is_any_list(array.type):
        array = array.values
        if array.null_count or not len(array):
            return True
    return False


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _faults_of_rows(array: pa.Array, faults: Faults, rows_of: Callable[[NumPy], NumPy]) -> Faults:
    """Return the items' faults as faults of their lists, without those under a null."""
    live = []
    for fault in faults:
        rows = rows_of(fault.rows)
        keep = as_numpy(array.is_valid())[rows]
        if keep.any():
            live.append(Fault(rows[keep], fault.values[keep], fault.describe, fault.is_warning))
    return live
