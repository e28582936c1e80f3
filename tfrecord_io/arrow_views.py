"""Arrow arrays without views, of lists and in dictionaries, for which Arrow has no sound casts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.arrow_take import take
from tfrecord_io.schema import is_any_list, plain_list


def without_views(array: pa.Array) -> pa.Array:
    """Return the large_list with the rows of a list view, which may overlap and lie anywhere.

    Arrow's own cast is not used: with nulls it made invalid arrays (pyarrow 26.0.1).
    """
    is_valid, starts, sizes = (
        one.to_numpy(zero_copy_only=False) for one in (array.is_valid(), array.offsets, array.sizes)
    )
    starts = starts.astype(np.int64)
    sizes = np.where(is_valid, sizes, 0).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    index = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets),
        take(array.values, pa.array(index)),
        type=pa.large_list(array.type.value_field),
        mask=array.is_null() if array.null_count else None,
    )


def without_any_views(array: pa.Array) -> pa.Array:
    """Return an array with plain lists for list views at any depth; see `without_views`.

    And for dictionaries of lists, of which Arrow casts none.
    """
    if pat.is_dictionary(array.type) and is_any_list(array.type.value_type):
        array = take(array.dictionary, array.indices)
    if pat.is_list_view(array.type) or pat.is_large_list_view(array.type):
        array = without_views(array)
    t = array.type
    if not is_any_list(t):
        return array
    items = without_any_views(array.values)
    if items.type == t.value_type:
        return array
    own = array.buffers()[: 1 if pat.is_fixed_size_list(t) else 2]
    return pa.Array.from_buffers(
        plain_list(t, items.type), len(array), own, array.null_count, array.offset, [items]
    )


def without_dictionary_views(array: pa.Array) -> pa.Array:
    """Return an array, if need be cast, whose dictionaries hold texts or bytes that are no views.

    Inside lists, too, which must be no views either.
    """
    t = _without_dictionary_views(array.type)
    return array if t == array.type else array.cast(t)


def _without_dictionary_views(t: pa.DataType) -> pa.DataType:
    if pat.is_dictionary(t) and pat.is_string_view(t.value_type):
        return pa.dictionary(t.index_type, pa.large_string(), t.ordered)
    if pat.is_dictionary(t) and pat.is_binary_view(t.value_type):
        return pa.dictionary(t.index_type, pa.large_binary(), t.ordered)
    if pat.is_list(t) or pat.is_large_list(t) or pat.is_fixed_size_list(t):
        return plain_list(t, _without_dictionary_views(t.value_type))
    return t
