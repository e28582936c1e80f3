"""Schemas as tf.io's feature specifications, and back.

TensorFlow wants to know of each feature whether it can be missing. A column is never missing if its
field says so (Arrow's and Spark's nullable flag; in a Dask frame, NumPy's integers and booleans
hold no null), if the caller says so, or, of a path, if no record lacks it: all of them are looked
at, because a schema that was recorded or inferred says nothing of nulls.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.engines.local import read_plan
from tfrecord_io.errors import MissingDependencyError, OptionError, UnsupportedTypeError
from tfrecord_io.options import RecordType, settings
from tfrecord_io.reading.files import Paths
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.schema import (
    check_writable,
    is_any_list,
    is_int64_storage,
    leaf_type,
    list_depth,
    normal_type,
)

#: What `tf.io.parse_example` takes, or the two that `tf.io.parse_sequence_example` does.
Spec: TypeAlias = Any


def tensorflow() -> Any:
    """Return TensorFlow.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise MissingDependencyError(
            "tfrecord_io.tf needs TensorFlow; install tensorflow, or tensorflow-cpu"
        ) from error


def feature_spec(
    schema: Any,
    *,
    required: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
    ragged: bool = True,
    record_type: RecordType = "Example",
    storage_options: Mapping[str, Any] | None = None,
) -> Spec:
    """Return the specification by which TensorFlow parses the records of a schema.

    Parameters
    ----------
    schema : pyarrow.Schema, frame, pyspark StructType, str, path-like or a list of paths
        The columns of the records: an Arrow schema, a Spark or Dask frame that is going to be
        written, or where records are, as for `tfrecord_io.read_table`. Of paths, all records are
        read to learn which features are missing from some; partition columns are none of the
        features.
    required : collection of str
        Columns that are known never to be missing.
    defaults : mapping, optional
        By column of single values, what stands for a missing one.
    ragged : bool
        Whether features of any length become tf.RaggedTensor; else tf.SparseTensor.
    record_type : {"Example", "SequenceExample"}
        What the records are.
    storage_options : mapping, optional
        For the file system of a path.

    Returns
    -------
    dict, or tuple of dict
        For tf.io.parse_example: tf.io.FixedLenFeature for single values and fixed-size lists that
        are never missing, and for those with a default; tf.io.RaggedFeature (tf.io.VarLenFeature)
        for the others. Of a SequenceExample, those of the context and those of the feature lists,
        in which lists of fixed-size lists are tf.io.FixedLenSequenceFeature.

    Raises
    ------
    MissingDependencyError
        TensorFlow is not installed.
    OptionError
        A column that is not there, or a default for lists.
    UnsupportedTypeError
        A type that the record type cannot hold, or of which no record has a value.
    FileNotFoundError, TFRecordError
        See `tfrecord_io.read_table`.

    Notes
    -----
    What a record holds is int64, float32 or bytes, so these are the types that TensorFlow parses,
    whatever the column's own type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> schema = pa.schema([pa.field("label", pa.int8(), nullable=False), ("text", pa.string())])
    >>> tfr.tf.feature_spec(schema)  # doctest: +SKIP
    {'label': FixedLenFeature(shape=[], dtype=tf.int64, default_value=None),
     'text': RaggedFeature(dtype=tf.string, ...)}
    """
    tf = tensorflow()
    fields = _fields(schema, record_type, storage_options)
    check_writable(fields, record_type)
    defaults = settings(defaults, "defaults")
    if not isinstance(required, Collection):
        raise OptionError(f"required is {required!r}; it must be a collection of names")
    for what, names in (("required", required), ("defaults", defaults)):
        for name in names:
            if name not in fields.names:
                raise OptionError(f"{what} names {name!r}; the columns are {fields.names}")
    context: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for field in fields:
        is_required = not field.nullable or field.name in required
        if list_depth(field.type) == 2:
            steps[field.name] = _steps(tf, field, is_required, ragged=ragged)
        else:
            default = defaults.pop(field.name, None)
            context[field.name] = _feature(tf, field, is_required, default, ragged=ragged)
    if defaults:
        raise OptionError(f"defaults names {next(iter(defaults))!r}, a list of lists")
    return (context, steps) if record_type == "SequenceExample" else context


def _feature(tf: Any, field: pa.Field, is_required: bool, default: Any, *, ragged: bool) -> Any:
    dtype = _dtype(tf, field)
    t = normal_type(field.type)
    if default is not None and is_any_list(t):
        raise OptionError(f"defaults names {field.name!r}, which holds lists")
    if default is not None:
        try:
            tf.constant(default, dtype, [])
        except (TypeError, ValueError) as error:
            raise OptionError(f"defaults gives {field.name!r} {default!r}: {error}") from error
        return tf.io.FixedLenFeature([], dtype, default)
    if is_required and not is_any_list(t):
        return tf.io.FixedLenFeature([], dtype)
    if is_required and pat.is_fixed_size_list(t):
        return tf.io.FixedLenFeature([t.list_size], dtype)
    return tf.io.RaggedFeature(dtype) if ragged else tf.io.VarLenFeature(dtype)


def _steps(tf: Any, field: pa.Field, is_required: bool, *, ragged: bool) -> Any:
    dtype = _dtype(tf, field)
    inner = normal_type(field.type).value_type
    if pat.is_fixed_size_list(inner):
        return tf.io.FixedLenSequenceFeature([inner.list_size], dtype, not is_required)
    return tf.io.RaggedFeature(dtype) if ragged else tf.io.VarLenFeature(dtype)


def _dtype(tf: Any, field: pa.Field) -> Any:
    leaf = leaf_type(normal_type(field.type))
    if pat.is_null(leaf):
        raise UnsupportedTypeError(
            f"no record has a value of column {field.name!r}, so its kind is not known: leave it "
            "out, or cast it to the type that it stands for",
            feature=field.name,
        )
    if is_int64_storage(leaf):
        return tf.int64
    return tf.float32 if pat.is_floating(leaf) or pat.is_decimal(leaf) else tf.string


# --- where columns come from ----------------------------------------------------------------------


def _fields(
    schema: Any, record_type: RecordType, storage_options: Mapping[str, Any] | None
) -> pa.Schema:
    """Return the columns of records, those that are never missing as not nullable."""
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str | os.PathLike | list | tuple):
        return _of_path(schema, record_type, storage_options)
    package = type(schema).__module__.partition(".")[0]
    if package == "pyspark":
        types = importlib.import_module("tfrecord_io.engines.spark.types")
        found: pa.Schema = types.arrow_schema(getattr(schema, "schema", schema))
        return found
    if package == "dask":
        return _of_dask(schema)
    raise OptionError(
        f"schema is a {type(schema).__name__}; it must be a pyarrow.Schema, a path or "
        "a list of them, or a Spark or Dask frame"
    )


def _of_path(
    path: Paths,
    record_type: RecordType,
    storage_options: Mapping[str, Any] | None,
) -> pa.Schema:
    plan = plan_scan(path, record_type=record_type, storage_options=storage_options)
    names = [field.name for field in plan.file_schema]
    lacking: set[str] = set()
    for batch in read_plan(plan):
        lacking.update(name for name in names if batch.column(name).null_count)
    return pa.schema([f.with_nullable(f.name in lacking) for f in plan.file_schema])


def _of_dask(frame: Any) -> pa.Schema:
    from tfrecord_io.pandas_columns import check_names

    check_names(list(frame.columns))
    columns = importlib.import_module("tfrecord_io.engines.dask.columns")
    types = columns.declared_types(frame, "infer")
    if None in types.values():
        seen = columns.look(frame, {})
        types = {name: seen[name] if t is None else t for name, t in types.items()}
    dtypes = frame.dtypes

    def is_nullable(name: str) -> bool:
        return getattr(dtypes[name], "kind", "O") not in "iub" or hasattr(dtypes[name], "na_value")

    return pa.schema([pa.field(name, t, is_nullable(name)) for name, t in types.items()])


# --- and back -------------------------------------------------------------------------------------


def features_of(features: Any, record_type: RecordType) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the features of a specification: of records or their context, and of feature lists.

    Raises
    ------
    OptionError
        Neither a mapping nor, of a SequenceExample, two of them that have no name in common.
    """
    if not isinstance(features, tuple | list):
        return settings(features, "features"), {}
    if record_type != "SequenceExample" or len(features) != 2:
        raise OptionError(
            f"features is a {type(features).__name__} of {len(features)}; it must be a mapping of "
            'names to features, or, with record_type="SequenceExample", two of them: those of the '
            "context, and those of the feature lists"
        )
    context, steps = (settings(part, "features") for part in features)
    if common := context.keys() & steps.keys():
        raise OptionError(
            f"features has {min(common)!r} in the context and among the feature lists; a column is "
            "one of them"
        )
    return context, steps


def schema_of(
    features: Mapping[str, Any], steps: Mapping[str, Any]
) -> tuple[pa.Schema, dict[str, Any]]:
    """Return the columns that a specification asks for, and defaults.

    Parameters
    ----------
    features : mapping
        As tf.io.parse_example takes it.
    steps : mapping
        Of feature lists, as tf.io.parse_sequence_example takes it.

    Raises
    ------
    OptionError
        A kind of feature that is none of those below, something in one that TensorFlow does not
        take either, or two features that want different things of one column.
    """
    tf = tensorflow()
    fields: dict[str, pa.Field] = {}
    defaults = {}
    asked = [(name, field) for name, one in features.items() for field in _fields_of(tf, name, one)]
    asked += [(name, _field_of_steps(tf, name, one)) for name, one in steps.items()]
    for name, field in asked:
        other = fields.setdefault(field.name, field)
        if other != field:
            raise OptionError(
                f"features asks for {field.name!r} as {other.type} and, for {name!r}, as "
                f"{field.type}; a column can be read as one of them"
            )
    for name, feature in features.items():
        if isinstance(feature, tf.io.FixedLenFeature) and feature.default_value is not None:
            shape = tf.TensorShape(feature.shape)
            values = _default_values(tf, name, feature, math.prod(shape))
            defaults[name] = values if shape.rank else values[0]
    return pa.schema(fields.values()), defaults


def columns_of(name: str, feature: Any) -> list[str]:
    """Return the names of the columns that a feature of a specification is made of."""
    tf = tensorflow()
    if isinstance(feature, tf.io.SparseFeature):
        return [*index_keys(feature), feature.value_key]
    if isinstance(feature, tf.io.RaggedFeature):
        keys = [part.key for part in feature.partitions if hasattr(part, "key")]
        return [*keys, feature.value_key or name]
    return [name]


def index_keys(feature: Any) -> list[str]:
    """Return the names of the columns that say where the values of a tf.io.SparseFeature are."""
    keys = feature.index_key
    return [keys] if isinstance(keys, str) else list(keys or ())


def _fields_of(tf: Any, name: str, feature: Any) -> list[pa.Field]:
    kinds = (
        tf.io.FixedLenFeature,
        tf.io.FixedLenSequenceFeature,
        tf.io.VarLenFeature,
        tf.io.SparseFeature,
        tf.io.RaggedFeature,
    )
    leaf = _leaf_of(tf, feature.dtype) if isinstance(feature, kinds) else None
    if leaf is None:
        raise OptionError(
            f"features has {feature!r} for {name!r}; it must be a FixedLenFeature, a "
            "FixedLenSequenceFeature, a VarLenFeature, a SparseFeature or a RaggedFeature, of "
            "int64, float32 or string"
        )
    if not isinstance(feature, tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature):
        _check_parts(tf, name, feature)
        *places, values = columns_of(name, feature)
        whole = pa.list_(pa.int64())
        return [*(pa.field(key, whole) for key in places), pa.field(values, pa.list_(leaf))]
    shape = tf.TensorShape(feature.shape)
    if not shape.is_fully_defined():
        raise OptionError(f"features has {feature!r} for {name!r}; its shape must be known")
    if isinstance(feature, tf.io.FixedLenSequenceFeature):
        _check_sequence(tf, name, feature, math.prod(shape))
        return [pa.field(name, pa.list_(leaf))]
    return [pa.field(name, pa.list_(leaf, math.prod(shape)) if shape.rank else leaf)]


def _field_of_steps(tf: Any, name: str, feature: Any) -> pa.Field:
    kinds = (tf.io.FixedLenSequenceFeature, tf.io.VarLenFeature, tf.io.RaggedFeature)
    leaf = _leaf_of(tf, feature.dtype) if isinstance(feature, kinds) else None
    if leaf is None or getattr(feature, "partitions", None):
        raise OptionError(
            f"features has {feature!r} for {name!r}; of a feature list it must be a "
            "FixedLenSequenceFeature, a VarLenFeature, or a RaggedFeature without partitions, of "
            "int64, float32 or string"
        )
    if not isinstance(feature, tf.io.FixedLenSequenceFeature):
        return pa.field(columns_of(name, feature)[-1], pa.list_(pa.list_(leaf)))
    shape = tf.TensorShape(feature.shape)
    if not shape.is_fully_defined() or not math.prod(shape):
        raise OptionError(
            f"features has {feature!r} for {name!r}; its shape must be known, and hold values"
        )
    if feature.default_value is not None:
        raise OptionError(
            f"features has {feature!r} for {name!r}; a feature list has no default_value: what is "
            "filled up is 0, or an empty text"
        )
    step = pa.list_(leaf, math.prod(shape))
    return pa.field(name, pa.list_(step), nullable=bool(feature.allow_missing))


def _leaf_of(tf: Any, dtype: Any) -> pa.DataType | None:
    leaves = {tf.int64: pa.int64(), tf.float32: pa.float32(), tf.string: pa.binary()}
    try:
        return leaves.get(tf.as_dtype(dtype))
    except TypeError:
        return None


def _check_parts(tf: Any, name: str, feature: Any) -> None:
    if isinstance(feature, tf.io.SparseFeature):
        keys, sizes = index_keys(feature), tf.nest.flatten(feature.size)
        if None in sizes or not feature.value_key or not keys or len(keys) != len(sizes):
            raise OptionError(
                f"features has {feature!r} for {name!r}; it must have a value_key, and a size for "
                "each index_key"
            )
    for part in getattr(feature, "partitions", ()):
        if getattr(part, "length", 1) < 1:
            raise OptionError(f"features has {feature!r} for {name!r}; its rows hold no values")


def _default_values(tf: Any, name: str, feature: Any, count: int) -> list[Any]:
    """Return a default as tf.io.parse_example takes it: so many values, in lists of any depth."""
    try:
        tensor = tf.convert_to_tensor(feature.default_value, feature.dtype)
        values: list[Any] = tf.reshape(tensor, [-1]).numpy().tolist()
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"features has {feature!r} for {name!r}, whose default is of another type: {error}"
        ) from error
    if len(values) != count:
        raise OptionError(
            f"features has {feature!r} for {name!r}; its default must have as many values as its "
            f"shape, {count}"
        )
    return values


def _check_sequence(tf: Any, name: str, feature: Any, step_size: int) -> None:
    if not feature.allow_missing:
        raise OptionError(
            f"features has {feature!r} for {name!r}; lists of a batch are filled up to the longest "
            "of them: say so by allow_missing=True, as tf.io.parse_example wants it; those of "
            'feature lists stand in the second of two mappings, with record_type="SequenceExample"'
        )
    if not step_size:
        raise OptionError(f"features has {feature!r} for {name!r}; such a shape holds no values")
    if feature.default_value is not None:
        _default_values(tf, name, feature, 1)
