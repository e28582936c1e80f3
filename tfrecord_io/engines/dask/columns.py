"""Which Arrow schema a Dask frame is written with, known before anything is written.

A column's type is the caller's, else what its dtype means. Where the dtype means nothing (object,
categories that are not known yet), the values of the first partitions tell: of as many as it takes
to meet a value that is not null, one partition, then two at the same time, then four.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pandas.api.types import is_integer_dtype, is_object_dtype

from tfrecord_io.engines.dask.frames import ADVICE, kind_of, known_type, seen_types
from tfrecord_io.errors import InferenceError, OptionError, TFRecordWarning, warn
from tfrecord_io.schema import leaf_type

#: The name that Dask gives an index without one where it becomes a column.
_NO_NAME = "__null_dask_index__"


def with_index(frame: Any, write_index: bool | None) -> Any:
    """Return a frame whose index has become a column, or is of no meaning.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        The frame.
    write_index : bool, optional
        Without it, an index that has a name, or several levels, is written.

    Warns
    -----
    TFRecordWarning
        An index without a name is left out though it does not just count rows.
    """
    names = list(frame._meta.index.names)
    if write_index is None:
        write_index = names != [None]
        dtype = frame._meta.index.dtype
        # Of dtype object is also an index of nothing, as in a meta that was written by hand.
        if not (write_index or is_integer_dtype(dtype) or is_object_dtype(dtype)):
            warn(
                f"the index, which is {dtype}, has no name and is not written; say "
                "write_index=True to write it, or write_index=False to have no warning",
                TFRecordWarning,
            )
    if not write_index:
        return frame
    if names == [None]:
        frame, names = frame.rename_axis(index=_NO_NAME), [_NO_NAME]
    # Levels without names are named as dd.to_parquet names them.
    columns = [f"level_{n}" if name is None else name for n, name in enumerate(names)]
    twice = [column for column in columns if [*columns, *frame.columns].count(column) > 1]
    if twice:
        raise OptionError(
            f"two columns, with those of the index, are named {twice[0]!r}; rename one of them, or "
            "say write_index=False"
        )
    return frame.reset_index()


def declared_types(frame: Any, given: Any) -> dict[str, pa.DataType | None]:
    """Return the types of a frame's columns, in their order; None where values have to tell.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Of columns that `tfrecord_io.pandas_columns.check_names` let pass.
    given : pyarrow.Schema, mapping or "infer"
        All columns, or the types of some.

    Raises
    ------
    OptionError
        What was given does not name the frame's columns.
    UnsupportedTypeError
        Arrow has no such type.
    """
    names = list(frame.columns)
    if isinstance(given, pa.Schema):
        if sorted(given.names) != sorted(names):
            raise OptionError(
                f"the schema has the columns {given.names}, the frame {names}; they must be the "
                "same: give types of some columns as a dict"
            )
        return {field.name: field.type for field in given}
    if given != "infer" and not isinstance(given, Mapping):
        raise OptionError(f"schema is {given!r}; it must be a pyarrow.Schema, a dict or 'infer'")
    types = {} if given == "infer" else dict(given)
    for name, t in types.items():
        if name not in names:
            raise OptionError(f"schema names column {name!r}, and the frame has {names}")
        if not isinstance(t, pa.DataType):
            raise OptionError(f"schema gives column {name!r} the type {t!r}; give one of pyarrow's")
    meta = frame._meta
    return {name: types[name] if name in types else known_type(meta[name]) for name in names}


def look(frame: Any, compute_kwargs: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the types of a frame's values, of as many of the first partitions as that takes.

    Raises
    ------
    SchemaMismatchError
        A partition is no frame of these columns.
    InferenceError, UnsupportedTypeError
        The values of a column have no one type, or one that TFRecord cannot hold; names the column.
    """
    import dask

    parts = frame.to_delayed()
    found: dict[str, pa.DataType] = {name: pa.null() for name in frame.columns}
    seeing = dask.delayed(seen_types, name="look-tfrecord", pure=False)
    start, count = 0, 1
    while start < len(parts) and any(pat.is_null(leaf_type(t)) for t in found.values()):
        tasks = [seeing(part, list(found)) for part in parts[start : start + count]]
        try:
            looks = dask.compute(*tasks, **compute_kwargs)
        except InferenceError as error:
            error.what += ADVICE
            raise
        for seen in looks:
            for name, t in seen.items():
                joined = _joined(found[name], t)
                if joined is None:
                    raise InferenceError(
                        f"the values of column {name!r} have no one type (some are {found[name]}, "
                        f"others {t}); convert the column{ADVICE}",
                        feature=name,
                    )
                found[name] = joined
        start, count = start + count, count * 2
    return found


def _joined(before: pa.DataType, seen: pa.DataType) -> pa.DataType | None:
    """Return a type for values of both; a null is not known yet. None if they have none."""
    is_known = not (pat.is_null(leaf_type(before)) or pat.is_null(leaf_type(seen)))
    if is_known and kind_of(before) != kind_of(seen):
        return None
    schemas = [pa.schema([("column", t)]) for t in (before, seen)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
