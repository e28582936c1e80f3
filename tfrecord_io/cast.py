"""Values of any supported Arrow type to wire types and back, whole columns at a time.

For each pair of types a *step* is made once (`_Leaf`, `_List` and a few that wrap another step);
the steps of a schema are cached, so a batch pays for its values only, and a column whose type is
its wire type passes as it is.

A step never raises on a value. It returns an array, and `_Fault` s for the values that have no
place in it; a list's step maps the faults of its items to its own rows and drops those that stand
under a null, where anything may stand. So the first bad row over all columns is known before one
error is raised for it.

Whatever is cast with ``safe=False`` here has been compared, or is compared right after.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.arrow_take import take
from tfrecord_io.errors import EncodeError, SchemaMismatchError
from tfrecord_io.options import Float64Mode
from tfrecord_io.schema import (
    is_any_list,
    leaf_type,
    normal_type,
    storage_type,
    wire_schema,
    with_leaf,
)

#: What nulls of types of a fixed size may take in one batch: they have the room of values, and how
#: much that is, a manifest says.
_MAX_NULL_BYTES = 2**30
_INT64_MAX = 2**63 - 1
_MILLISECONDS_OF_A_DAY = 86_400_000
_UNITS_OF_A_DAY = {
    "s": 86_400,
    "ms": _MILLISECONDS_OF_A_DAY,
    "us": 86_400 * 10**6,
    "ns": 86_400 * 10**9,
}


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
    plan = _reading_plan(batch.schema, schema)
    if not plan.schema.equals(schema, check_metadata=True):
        # The cache holds the plan of a schema that is equal but for names of list items.
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
    nulls = _numpy(batch.column(index).is_null())
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


_NumPy: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class _Fault:
    """Values that have no place in the type they are cast to.

    ``rows`` are their rows in the array that the step was given, ascending, at least one;
    ``values`` are, as long as ``rows``, what ``describe`` wants to know of each.
    """

    rows: _NumPy
    values: _NumPy
    describe: Callable[[int], str]
    is_warning: bool = False

    def first_text(self) -> str:
        return self.describe(int(self.values[0]))


_Faults = list[_Fault]


class _Step(Protocol):
    def __call__(self, array: pa.Array) -> tuple[pa.Array, _Faults]:
        """Return the array in the step's target type, and what did not fit."""


def _faults_at(bad: _NumPy, describe: Callable[[int], str], **flags: bool) -> _Faults:
    """Return the fault of the positions at which `bad` is true."""
    rows = np.flatnonzero(bad)
    return [_Fault(rows, rows, describe, **flags)] if len(rows) else []


def _null_faults(array: pa.Array, text: str) -> _Faults:
    if not text or not array.null_count:
        return []
    return _faults_at(_numpy(array.is_null()), lambda _: text)


def _numpy(array: pa.Array) -> _NumPy:
    return array.to_numpy(zero_copy_only=False)


# ---- whole batches -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    steps: Sequence[_Step]
    schema: pa.Schema

    def run(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[tuple[int, _Fault]]]:
        arrays = []
        found = []
        for index, step in enumerate(self.steps):
            array, faults = step(batch.column(index))
            arrays.append(array)
            found += [(index, fault) for fault in faults]
        return arrays, found

    def batch(self, batch: pa.RecordBatch, arrays: list[pa.Array]) -> pa.RecordBatch:
        if not arrays or batch.schema.equals(self.schema, check_metadata=True):
            # Without columns the number of rows lives in the batch alone. With equal types
            # no array has changed.
            return batch
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _writing_plan(source: pa.Schema, schema: pa.Schema, float64: Float64Mode) -> _Plan:
    if source.names != schema.names:
        raise EncodeError(
            f"the batch has the columns {source.names}, and {schema.names} are declared: bring "
            "all batches to one schema"
        )
    wire = wire_schema(schema, reading=False)
    steps = []
    for found, declared, target in zip(source, schema, wire, strict=True):
        if not _is_writable_as(found.type, declared.type):
            raise EncodeError(
                f"column {declared.name!r} has the type {found.type} in this batch, and "
                f"{declared.type} is declared: bring all batches to one schema",
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
        return _Leaf(lambda array: (pa.nulls(len(array), target), []), null_text)
    if not is_any_list(source):
        return _Leaf(_leaf_to_wire(source, target, float64), null_text)
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
    if _is_bytes(value_type):
        # Repeated values may need more than the 2 GiB of a binary array.
        value_type = pa.large_string() if _is_of_text(value_type) else pa.large_binary()
    step = _writing_step(value_type, target, float64, null_text, inner)

    def run(array: pa.Array) -> tuple[pa.Array, _Faults]:
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
        return _Leaf(_leaf_from_wire(source, target), null_text)
    item_text = "" if target.value_field.nullable else "has a step without a kind: allow nulls"
    return _List(
        source, target, _reading_step(source.value_type, target.value_type, item_text), null_text
    )


def _then(step: _Step, wrap: Callable[[pa.Array], pa.Array]) -> _Step:
    def run(array: pa.Array) -> tuple[pa.Array, _Faults]:
        out, faults = step(array)
        return wrap(out), faults

    return run


def _encoded(step: _Step, target: pa.DataType) -> _Step:
    value_type = target.value_type
    last = _int_range(target.index_type)[1]

    def run(array: pa.Array) -> tuple[pa.Array, _Faults]:
        values, faults = step(array)
        try:
            encoded = values.dictionary_encode()
        except pa.ArrowNotImplementedError:
            # Arrow cannot compare the values (lists, decimal32): each gets an entry of its own.
            index = pa.array(np.arange(len(values), dtype=np.int32), mask=_numpy(values.is_null()))
            encoded = pa.DictionaryArray.from_arrays(index, values)
        if len(encoded.dictionary) > last + 1:
            too_many = _numpy(pc.fill_null(pc.greater(encoded.indices, last), False))
            text = f"has more distinct values than a dictionary with {target.index_type} can index"
            return pa.nulls(len(array), target), faults + _faults_at(too_many, lambda _: text)
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
        self.keeps: bool = isinstance(item, _Leaf | _List) and item.keeps

    def __call__(self, array: pa.Array) -> tuple[pa.Array, _Faults]:
        faults = _null_faults(array, self._null_text)
        is_kept = self.keeps and array.type.equals(self._target, check_metadata=True)
        if is_kept and not _has_nulls_inside(array):
            return array, faults
        if pat.is_list_view(self._source) or pat.is_large_list_view(self._source):
            array = without_views(array)
        if pat.is_fixed_size_list(self._source):
            return self._from_fixed_size(array, faults)
        return self._from_offsets(array, faults)

    def _from_fixed_size(self, array: pa.Array, faults: _Faults) -> tuple[pa.Array, _Faults]:
        size = self._source.list_size
        child = array.values.slice(array.offset * size, len(array) * size)
        items, item_faults = self._item(child)
        faults += _faults_of_rows(array, item_faults, lambda positions: positions // size)
        if items is child and array.type.equals(self._target, check_metadata=True):
            return array, faults
        return _fixed_size_list(self._target, len(array), items, _null_mask(array)), faults

    def _from_offsets(self, array: pa.Array, faults: _Faults) -> tuple[pa.Array, _Faults]:
        offsets = _numpy(array.offsets)
        first, last = offsets[0], offsets[-1]
        child = array.values.slice(first, last - first)
        items, item_faults = self._item(child)
        if item_faults:
            faults += _faults_of_rows(
                array,
                item_faults,
                lambda positions: np.repeat(np.arange(len(array)), np.diff(offsets))[positions],
            )
        if len(items) != len(child):
            # See `_to_fixed_size`.
            return pa.nulls(0, self._target), faults
        if items is child and array.type.equals(self._target, check_metadata=True):
            return array, faults
        if first:
            offsets = offsets - first
        target = self._target
        if pat.is_fixed_size_list(target):
            return self._to_fixed_size(array, offsets, items, faults)
        mask = _null_mask(array)
        if pat.is_list_view(target) or pat.is_large_list_view(target):
            make = pa.ListViewArray if pat.is_list_view(target) else pa.LargeListViewArray
            index = np.int32 if pat.is_list_view(target) else np.int64
            starts, sizes = offsets[:-1].astype(index), np.diff(offsets).astype(index)
            made = make.from_arrays(pa.array(starts), pa.array(sizes), items, target, mask=mask)
            return made, faults
        if pat.is_list(target):
            make, index = pa.ListArray, np.int32
        else:
            make, index = pa.LargeListArray, np.int64
        offsets = pa.array(offsets.astype(index, copy=False))
        return make.from_arrays(offsets, items, type=target, mask=mask), faults

    def _to_fixed_size(
        self, array: pa.Array, offsets: _NumPy, items: pa.Array, faults: _Faults
    ) -> tuple[pa.Array, _Faults]:
        size = self._target.list_size
        lengths = np.diff(offsets)
        fits = lengths == size
        if fits.all() and not array.null_count:
            return _fixed_size_list(self._target, len(array), items, None), faults
        is_null = _numpy(array.is_null())
        faults += _faults_at(
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
        is_null = [False] * length if mask is None else mask.to_pylist()
        return pa.array([None if null else [] for null in is_null], target)
    return pa.FixedSizeListArray.from_arrays(items, type=target, mask=mask)


def _has_nulls_inside(array: pa.Array) -> bool:
    """Return whether a list may hold nulls, those outside a slice included."""
    while is_any_list(array.type):
        array = array.values
        if array.null_count:
            return True
    return False


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _faults_of_rows(
    array: pa.Array, faults: _Faults, rows_of: Callable[[_NumPy], _NumPy]
) -> _Faults:
    """Return the items' faults as faults of their lists, without those under a null."""
    live = []
    for fault in faults:
        rows = rows_of(fault.rows)
        keep = _numpy(array.is_valid())[rows]
        if keep.any():
            live.append(_Fault(rows[keep], fault.values[keep], fault.describe, fault.is_warning))
    return live


def without_views(array: pa.Array) -> pa.Array:
    """Return the large_list with the rows of a list view, which may overlap and lie anywhere.

    Arrow's own cast is not used: with nulls it made invalid arrays (pyarrow 26.0.1).
    """
    starts = _numpy(array.offsets).astype(np.int64)
    sizes = np.where(_numpy(array.is_valid()), _numpy(array.sizes), 0).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    index = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets),
        take(array.values, pa.array(index)),
        type=pa.large_list(array.type.value_field),
        mask=_null_mask(array),
    )


def without_any_views(array: pa.Array) -> pa.Array:
    """Return an array with plain lists for list views at any depth; see `without_views`."""
    if pat.is_list_view(array.type) or pat.is_large_list_view(array.type):
        array = without_views(array)
    t = array.type
    if not is_any_list(t):
        return array
    items = without_any_views(array.values)
    if items.type == t.value_type:
        return array
    field = t.value_field.with_type(items.type)
    if pat.is_fixed_size_list(t):
        kept = pa.list_(field, t.list_size)
    else:
        kept = pa.large_list(field) if pat.is_large_list(t) else pa.list_(field)
    own = array.buffers()[: 1 if pat.is_fixed_size_list(t) else 2]
    return pa.Array.from_buffers(kept, len(array), own, array.null_count, array.offset, [items])


# ---- leaves --------------------------------------------------------------------------------------

_LeafCast = Callable[[pa.Array], tuple[pa.Array, _Faults]]


class _Leaf:
    """A leaf's cast, and the check for nulls."""

    def __init__(self, cast: _LeafCast, null_text: str) -> None:
        self._cast = cast
        self._null_text = null_text
        #: See `_List`.
        self.keeps = cast is _same

    def __call__(self, array: pa.Array) -> tuple[pa.Array, _Faults]:
        out, faults = self._cast(array)
        return out, faults + _null_faults(array, self._null_text)


def _same(array: pa.Array) -> tuple[pa.Array, _Faults]:
    return array, []


def _plain(target: pa.DataType) -> _LeafCast:
    """Return a cast that every value survives."""
    return lambda array: (array.cast(target), [])


def _is_of_text(t: pa.DataType) -> bool:
    return bool(pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t))


def _is_bytes(t: pa.DataType) -> bool:
    return _is_of_text(t) or bool(pat.is_binary(t) or pat.is_binary_view(t))


_SAME_LAYOUTS = {(pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())}


def _leaf_to_wire(source: pa.DataType, target: pa.DataType, float64: Float64Mode) -> _LeafCast:
    if source == target:
        return _same
    if pat.is_uint64(source):
        return _uint64_to_int64
    if pat.is_integer(source) or pat.is_boolean(source):
        return _plain(pa.int64())
    if pat.is_float64(source) or pat.is_decimal(source):
        return functools.partial(_to_float32, float64=float64)
    if pat.is_float16(source):
        return _plain(pa.float32())
    if pat.is_temporal(source):
        return functools.partial(_temporal_to_int64, text=_not_that_time(source))
    if _is_of_text(source):
        return functools.partial(_text_to_bytes, target=target)
    return _plain(target)


def _text_to_bytes(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, _Faults]:
    # A cast takes ten times as long, to do the same.
    has_layout = (array.type, target) in _SAME_LAYOUTS
    out = array.view(target) if has_layout else array.cast(target)
    return out, _text_faults(out)


def _text_faults(values: pa.Array) -> _Faults:
    """Return what of binary values is not UTF-8, which Arrow's strings are only said to be."""
    _, ends, data = values.buffers()
    if ends is None or data is None or not data.size:
        return []
    is_large = pat.is_large_binary(values.type)
    # A buffer may be longer, and by less than an offset.
    end = values.offset + len(values)
    offsets = np.frombuffer(ends, np.int64 if is_large else np.int32, end + 1)
    first, last = offsets[values.offset], offsets[end]
    # ASCII, as most are, is seen many times as fast.
    if first == last or np.frombuffer(data, np.uint8)[first:last].max() < 0x80:
        return []
    try:
        values.view(pa.large_string() if is_large else pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        bad = np.array([not _is_text(value) for value in values.to_pylist()])
        return _faults_at(bad, lambda _: _NO_TEXT)
    return []


_NO_TEXT = "holds bytes that are no text in UTF-8: cast the column to binary, or correct them"


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or isinstance(value.decode(), str)
    except UnicodeDecodeError:
        return False


def _uint64_to_int64(array: pa.Array) -> tuple[pa.Array, _Faults]:
    out = array.view(pa.int64())

    def describe(row: int) -> str:
        return f"holds {array[row]}, and an Int64List ends at 2**63 - 1: cast it to binary or float"

    return out, _out_of_range(out, 0, None, describe)


def _not_that_time(t: pa.DataType) -> str:
    return f"which is no {t}: cast it to integers, or correct it"


def _temporal_to_int64(array: pa.Array, *, text: str) -> tuple[pa.Array, _Faults]:
    t = array.type
    out = array.view(pa.int64()) if t.bit_width == 64 else array.view(pa.int32()).cast(pa.int64())
    return out, _not_temporal(out, t, lambda row: f"holds {out[row]}, {text}")


def _not_temporal(values: pa.Array, t: pa.DataType, describe: Callable[[int], str]) -> _Faults:
    """Return the integers that are no time of a day, or no whole day, where the type wants one."""
    if pat.is_time(t):
        return _out_of_range(values, 0, _UNITS_OF_A_DAY[t.unit] - 1, describe)
    if pat.is_date64(t):
        whole = _numpy(values.fill_null(0)) % _MILLISECONDS_OF_A_DAY == 0
        return [] if whole.all() else _faults_at(~whole, describe)
    return []


def _out_of_range(
    values: pa.Array, low: int | None, high: int | None, describe: Callable[[int], str]
) -> _Faults:
    ends = pc.min_max(values)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or ((low is None or least >= low) and (high is None or most <= high)):
        return []
    bad: _NumPy = np.zeros(len(values), dtype=bool)
    numbers = _numpy(values.fill_null(least if low is None else max(low, 0)))
    if low is not None:
        bad |= numbers < low
    if high is not None:
        bad |= numbers > high
    return _faults_at(bad & _numpy(values.is_valid()), describe)


def _to_float32(array: pa.Array, *, float64: Float64Mode) -> tuple[pa.Array, _Faults]:
    doubles = _decimal_to_float64(array) if pat.is_decimal(array.type) else array
    out = doubles.cast(pa.float32(), safe=False)
    wide, narrow = _numpy(doubles), _numpy(out)
    is_beyond = np.isinf(narrow) & (np.isfinite(wide) | pat.is_decimal(array.type))

    def beyond(row: int) -> str:
        return f"holds {array[row]}, which is beyond the range of float32, all that TFRecord has"

    faults = _faults_at(is_beyond, beyond)
    if float64 == "cast":
        return out, faults

    def inexact(row: int) -> str:
        return (
            f"holds {array[row]}, which float32 cannot hold exactly: cast the column to float32, "
            'or write with float64="warn" or "cast"'
        )

    is_exact = narrow.astype(np.float64) == wide
    if pat.is_decimal(array.type):
        is_exact &= _is_decimal_of(array, narrow.astype(np.float64))
    is_exact |= np.isnan(wide)
    return out, faults + _faults_at(~is_exact & ~is_beyond, inexact, is_warning=float64 == "warn")


def _decimal_to_float64(array: pa.Array) -> pa.Array:
    # By way of text: Arrow's direct cast multiplies by a power of ten that is not exact, and so
    # misses the nearest float64 (3 * 0.1); its parser of numbers never does.
    return array.cast(pa.string()).cast(pa.float64())


def _is_decimal_of(array: pa.Array, floats: _NumPy) -> _NumPy:
    """Return where a decimal is exactly the float; nulls don't count.

    A float with no more binary than the decimal has decimal places has no more decimal places
    either, so that its cast to the decimal's scale is exact.
    """
    scale = max(array.type.scale, 0)
    with np.errstate(invalid="ignore"):
        is_short = np.ldexp(floats, scale) % 1 == 0
    wide = pa.decimal256(76, scale)
    cast = pa.array(floats).cast(wide, safe=False)
    is_equal = pc.equal(array.cast(wide, safe=False), cast).fill_null(True)
    return is_short & _numpy(is_equal)


def _leaf_from_wire(source: pa.DataType, target: pa.DataType) -> _LeafCast:
    if source == target:
        return _same
    if pat.is_boolean(target):
        return _int64_to_bool
    if pat.is_integer(target) or pat.is_date32(target):
        return functools.partial(_int64_to_integer, target=target)
    if pat.is_temporal(target):
        return functools.partial(_int64_to_temporal, target=target)
    if pat.is_float16(target):
        return _float32_to_float16
    if pat.is_decimal(target):
        cast = _float32_to_decimal if pat.is_float32(source) else _float64_to_decimal
        return functools.partial(cast, target=target)
    if pat.is_fixed_size_binary(target):
        return functools.partial(_binary_to_fixed_size, target=target)
    return _plain(target)


def _does_not_fit(values: pa.Array, target: pa.DataType) -> Callable[[int], str]:
    return lambda row: (
        f"holds {values[row]}, which does not fit {target}: ask for a wider type, such as "
        f"{values.type}"
    )


def _int_range(t: pa.DataType) -> tuple[int, int]:
    if pat.is_signed_integer(t):
        return -(2 ** (t.bit_width - 1)), 2 ** (t.bit_width - 1) - 1
    return 0, min(2**t.bit_width - 1, _INT64_MAX)


def _int64_to_bool(array: pa.Array) -> tuple[pa.Array, _Faults]:
    faults = _out_of_range(array, 0, 1, _does_not_fit(array, pa.bool_()))
    return array.cast(pa.bool_(), safe=False), faults


def _int64_to_integer(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, _Faults]:
    integer = pa.int32() if pat.is_date32(target) else target
    faults = _out_of_range(array, *_int_range(integer), _does_not_fit(array, target))
    return array.cast(integer, safe=False).view(target), faults


def _int64_to_temporal(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, _Faults]:
    faults = _not_temporal(array, target, _does_not_fit(array, target))
    if target.bit_width == 32:
        array = array.cast(pa.int32(), safe=False)
    return array.view(target), faults


def _float32_to_float16(array: pa.Array) -> tuple[pa.Array, _Faults]:
    out = array.cast(pa.float16(), safe=False)
    wide = _numpy(array)
    is_same = (_numpy(out.cast(pa.float32())) == wide) | np.isnan(wide)
    return out, _faults_at(~is_same, _does_not_fit(array, pa.float16()))


def _float64_to_decimal(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, _Faults]:
    out = array.cast(target, safe=False)
    return out, _faults_at(~_are_decimals_of(out, array), _does_not_fit(array, target))


def _float32_to_decimal(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, _Faults]:
    """Return the decimals that were written: as float32 the last ones of a type are out of it.

    What decimal(10, 2) holds ends at 99999999.99, which becomes 1e8.
    """
    floats = array.cast(pa.float64())
    out = floats.cast(target, safe=False)
    is_beyond = ~_are_decimals_of(out, floats)
    if is_beyond.any():
        ends = _ends_of(target)
        index = np.arange(len(out))
        may_be_last = is_beyond & np.isfinite(_numpy(array))
        for place, end in enumerate(ends.to_pylist(), len(out)):
            # Nothing finite is what is beyond the range of float32.
            as_float32 = pa.scalar(float(end), pa.float32()).as_py()
            index[may_be_last & (_numpy(array) == as_float32)] = place
        # Others than `take` make another type of decimal32, decimal64 and negative scales.
        out = pa.concat_arrays([out, ends]).take(pa.array(index))
        is_beyond = ~_are_decimals_of(out, floats)
    return out, _faults_at(is_beyond, _does_not_fit(array, target))


def _ends_of(t: pa.DataType) -> pa.Array:
    """Return the first and the last value of a decimal type, of which pyarrow makes not all."""
    last = 10**t.precision - 1
    data = b"".join(end.to_bytes(t.byte_width, sys.byteorder, signed=True) for end in (-last, last))
    return pa.Array.from_buffers(t, 2, [None, pa.py_buffer(data)])


def _are_decimals_of(decimals: pa.Array, floats: pa.Array) -> _NumPy:
    """Return where decimals, cast from float64, are what is to be read of it."""
    asked = _numpy(floats)
    # What is out of range became zero in the cast.
    found = _numpy(_decimal_to_float64(decimals))
    with np.errstate(over="ignore"):
        # The writer's float32 of this decimal, or an integer that was read exactly.
        is_same = (found.astype(np.float32) == asked) | (found == asked)
    return is_same | _numpy(floats.is_null())


def _binary_to_fixed_size(array: pa.Array, *, target: pa.DataType) -> tuple[pa.Array, _Faults]:
    lengths = pc.binary_length(array)
    fits = pc.equal(lengths, target.byte_width)
    if pc.all(fits, min_count=0).as_py():
        return array.cast(target), []
    faults = _faults_at(
        ~_numpy(fits.fill_null(True)),
        lambda row: f"has {lengths[row]} bytes in this record, and the schema asks for {target}",
    )
    # Nobody will see the values, and room for those that do not fit may be huge.
    return pa.nulls(0, target), faults
