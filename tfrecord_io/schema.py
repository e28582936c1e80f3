"""Which Arrow type is which feature, in three forms of a type.

- The *caller's* type: whatever Arrow, Dask or Spark dress a column in (large, view, dictionary,
  tensor ...).
- The *normal form* (`normal_type`): one type for all dresses of the same values. It is what a
  manifest records and what byte identity rests on. Nullable flags and metadata are no part of it.
- The *wire type* (`wire_field`): what a codec handles, see `tfrecord_io.codec.base`.
  `tfrecord_io.cast` moves values between the caller's type and the wire type.

Nothing here looks at values. Every function that meets a type that TFRecord cannot hold raises
`UnsupportedTypeError`, so no other module decides what is supported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container
from typing import Literal

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import ManifestError, OptionError, UnsupportedTypeError
from tfrecord_io.options import RecordType

#: A list of lists is a feature list; nothing in TFRecord is deeper.
_MAX_LIST_DEPTH = 2

_INT32_MAX = 2**31 - 1


def is_any_list(t: pa.DataType) -> bool:
    """Return whether the type is one of Arrow's five list types (a map is none)."""
    return bool(
        pat.is_list(t)
        or pat.is_large_list(t)
        or pat.is_fixed_size_list(t)
        or pat.is_list_view(t)
        or pat.is_large_list_view(t)
    )


def storage_type(t: pa.DataType) -> pa.DataType:
    """Return the type whose arrays hold an extension type's values; any other type as it is."""
    while isinstance(t, pa.BaseExtensionType):
        t = t.storage_type
    return t


def list_depth(t: pa.DataType) -> int:
    """Return how many lists stand around the leaf; a fixed-shape tensor is one."""
    t = storage_type(t)
    if pat.is_dictionary(t):
        return list_depth(t.value_type)
    return 1 + list_depth(t.value_type) if is_any_list(t) else 0


def leaf_type(t: pa.DataType) -> pa.DataType:
    """Return the type inside all lists, extension types and dictionaries."""
    t = storage_type(t)
    if is_any_list(t) or pat.is_dictionary(t):
        return leaf_type(t.value_type)
    return t


def with_leaf(t: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    """Return the normal form of lists, with another leaf inside."""
    if pat.is_fixed_size_list(t):
        return pa.list_(_item(with_leaf(t.value_type, leaf)), t.list_size)
    return pa.list_(_item(with_leaf(t.value_type, leaf))) if is_any_list(t) else leaf


def normal_type(t: pa.DataType) -> pa.DataType:
    """Return the normal form of a column's type.

    Parameters
    ----------
    t : pyarrow.DataType
        Any type that TFRecord can hold.

    Returns
    -------
    pyarrow.DataType
        Large and view forms become ``string``, ``binary`` and ``list``; a dictionary its value
        type; a fixed-shape tensor a ``fixed_size_list`` of all its values; any other extension type
        its storage; ``decimal32`` and ``decimal64`` ``decimal128``; a time zone ``UTC``. Items of
        lists are nullable fields named ``item``.

    Raises
    ------
    UnsupportedTypeError
        TFRecord cannot hold the type; the message says what to do.
    """
    if list_depth(t) > _MAX_LIST_DEPTH:
        raise UnsupportedTypeError(
            f"type {t} nests lists more than two deep, and TFRecord ends at lists of lists (of a "
            "SequenceExample): flatten the inner lists, or write them as bytes"
        )
    return _normal(t)


def _normal(t: pa.DataType) -> pa.DataType:
    if isinstance(t, pa.FixedShapeTensorType):
        return pa.list_(_item(_normal(t.value_type)), math.prod(t.shape))
    if isinstance(t, pa.BaseExtensionType):
        return _normal(t.storage_type)
    if pat.is_dictionary(t):
        return _normal(t.value_type)
    if pat.is_fixed_size_list(t):
        return pa.list_(_item(_normal(t.value_type)), t.list_size)
    if is_any_list(t):
        return pa.list_(_item(_normal(t.value_type)))
    if pat.is_large_string(t) or pat.is_string_view(t):
        return pa.string()
    if pat.is_large_binary(t) or pat.is_binary_view(t):
        return pa.binary()
    if pat.is_decimal32(t) or pat.is_decimal64(t):
        return pa.decimal128(t.precision, t.scale)
    if pat.is_timestamp(t):
        return pa.timestamp(t.unit, "UTC" if t.tz is not None else None)
    _check_leaf(t)
    return t


def _item(t: pa.DataType) -> pa.Field:
    return pa.field("item", t)


#: What cannot be written, and what to do about it.
_UNSUPPORTED: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (
        pat.is_struct,
        "make its fields columns of their own (pyarrow.Table.flatten), or write it as JSON text",
    ),
    (pat.is_map, "make its keys and its values two list columns, or write it as JSON text"),
    (pat.is_union, "give each of its types a column of its own"),
    (pat.is_interval, "cast it to a duration, or to a column of integers"),
    (pat.is_run_end_encoded, "decode it first (pyarrow.compute.run_end_decode)"),
]


def _check_leaf(t: pa.DataType) -> None:
    if _is_leaf(t):
        return
    advice = next(
        (text for is_type, text in _UNSUPPORTED if is_type(t)), "cast it to a supported type"
    )
    raise UnsupportedTypeError(f"TFRecord cannot hold the type {t}: {advice}")


def _is_leaf(t: pa.DataType) -> bool:
    return bool(
        pat.is_null(t)
        or is_int64_storage(t)
        or pat.is_floating(t)
        or pat.is_decimal(t)
        or pat.is_string(t)
        or pat.is_binary(t)
        or pat.is_fixed_size_binary(t)
    )


def is_int64_storage(t: pa.DataType) -> bool:
    """Return whether values of the leaf type are written as integers (an Int64List)."""
    return bool(
        pat.is_integer(t)
        or pat.is_boolean(t)
        or pat.is_date(t)
        or pat.is_time(t)
        or pat.is_timestamp(t)
        or pat.is_duration(t)
    )


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every type in its normal form, all fields nullable, without metadata.

    Raises
    ------
    UnsupportedTypeError
        See `normal_type`; `feature` is the column's name.
    """
    return pa.schema([pa.field(field.name, _normal_field_type(field)) for field in schema])


def _normal_field_type(field: pa.Field) -> pa.DataType:
    try:
        return normal_type(field.type)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            f"column {field.name!r}: {error.what}", feature=field.name
        ) from None


def check_schema(schema: object) -> None:
    """Raise `OptionError` unless what a caller gave as a schema is one, or None."""
    if schema is not None and not isinstance(schema, pa.Schema):
        raise OptionError(f"schema is a {type(schema).__name__}; it must be a pyarrow.Schema")


def check_writable(schema: pa.Schema, record_type: RecordType) -> None:
    """Raise unless rows of this schema can be written as records of this type.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns that go into the records (partition columns are none of them).
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What the rows become.

    Raises
    ------
    UnsupportedTypeError
        A type that TFRecord or this record type cannot hold, two columns of one name, or a
        ByteArray that is not exactly one column of bytes. The message names the column, its type
        and what to do.
    """
    seen = set()
    for field in schema:
        if field.name in seen:
            raise UnsupportedTypeError(
                f"two columns are named {field.name!r}, and a record has one feature of a name: "
                "rename one of them",
                feature=field.name,
            )
        seen.add(field.name)
        _normal_field_type(field)
        if record_type == "Example" and list_depth(field.type) == _MAX_LIST_DEPTH:
            raise UnsupportedTypeError(
                f"column {field.name!r} has the type {field.type}, a list of lists, which an "
                "Example cannot hold: write with "
                'record_type="SequenceExample", or flatten the lists',
                feature=field.name,
            )
    if record_type == "ByteArray":
        check_byte_array(schema, "write")


def check_byte_array(schema: pa.Schema, verb: Literal["read", "write"]) -> None:
    """Raise `UnsupportedTypeError` unless a schema is one column of bytes; the text has `verb`."""
    if len(schema) != 1:
        names = ", ".join(repr(name) for name in schema.names) or "none"
        raise UnsupportedTypeError(
            f"a ByteArray record is one column of bytes, but there are {len(schema)} columns "
            f"({names}): select the one that holds the bytes, or {verb} with "
            'record_type="Example"'
        )
    field = schema.field(0)
    t = normal_type(field.type)
    if not (pat.is_binary(t) or pat.is_string(t) or pat.is_fixed_size_binary(t)):
        raise UnsupportedTypeError(
            f"a ByteArray record is one column of bytes, but column {field.name!r} has the type "
            f"{field.type}: make it binary, or {verb} with "
            'record_type="Example"',
            feature=field.name,
        )


def is_text(t: pa.DataType) -> bool:
    """Return whether a type's values are texts."""
    return bool(pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t))


def is_bytes(t: pa.DataType) -> bool:
    """Return whether a type's values are bytes, of any or of one length."""
    return bool(
        pat.is_binary(t)
        or pat.is_large_binary(t)
        or pat.is_binary_view(t)
        or pat.is_fixed_size_binary(t)
    )


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain types for views, with which Arrow compares nothing (26.0.1)."""
    return pa.schema([field.with_type(type_without_views(field.type)) for field in schema])


def type_without_views(t: pa.DataType) -> pa.DataType:
    """Return a type with plain types for views, see `schema_without_views`."""
    if pat.is_string_view(t):
        return pa.string()
    if pat.is_binary_view(t):
        return pa.binary()
    if pat.is_dictionary(t):
        return pa.dictionary(t.index_type, type_without_views(t.value_type), t.ordered)
    return plain_list(t, type_without_views(t.value_type)) if is_any_list(t) else t


def plain_list(t: pa.DataType, item_type: pa.DataType) -> pa.DataType:
    """Return a list type with other items, and a plain one for a list view."""
    item = t.value_field.with_type(item_type)
    if pat.is_fixed_size_list(t):
        return pa.list_(item, t.list_size)
    is_large = pat.is_large_list(t) or pat.is_large_list_view(t)
    return pa.large_list(item) if is_large else pa.list_(item)


def is_nulls_of(t: pa.DataType, other: pa.DataType) -> bool:
    """Return whether records of a column of nulls, or of lists of them, are those of another type.

    Of lists of nulls, codecs write those that are null and, in feature lists, steps that are null.
    """
    return bool(
        pat.is_null(t) or (pat.is_null(leaf_type(t)) and with_leaf(t, leaf_type(other)) == other)
    )


def _holds_integers_of(t: pa.DataType, other: pa.DataType) -> bool:
    """Return whether all records of one type of integers, or of lists of them, are of another.

    Those of `other` are of `t`: of ``int64`` even those of ``uint64``, since no record has a value
    that does not fit ``int64``.
    """
    leaf, added = leaf_type(t), leaf_type(other)
    if not pat.is_integer(leaf) or not pat.is_integer(added) or with_leaf(other, leaf) != t:
        return False
    signs = pat.is_signed_integer(leaf), pat.is_signed_integer(added)
    bits = leaf.bit_width - signs[0], added.bit_width - signs[1]
    return bool(leaf == pa.int64() or (bits[0] >= bits[1] and signs[0] >= signs[1]))


def holds_records_of(t: pa.DataType, other: pa.DataType) -> bool:
    """Return whether all records of a column of one type, `other`, are records of one of `t`."""
    return bool(t == other or is_nulls_of(other, t) or _holds_integers_of(t, other))


def without_bounds(schema: pa.Schema) -> pa.Schema:
    """Return columns with room for every integer that a record can hold: as ``int64``."""
    return pa.schema(
        [
            field.with_type(with_leaf(field.type, pa.int64()))
            if pat.is_integer(leaf_type(field.type))
            else field
            for field in schema
        ]
    )


def wire_field(field: pa.Field, *, reading: bool, is_rounded: bool = False) -> pa.Field:
    """Return the field that a codec decodes into or encodes from.

    Parameters
    ----------
    field : pyarrow.Field
        A column in the caller's type.
    reading : bool
        Whether the codec decodes into it (True) or encodes from it.
    is_rounded : bool
        Reading decimals, whether they are known to be floats that were written as this type.

    Returns
    -------
    pyarrow.Field
        The same name, nullable. When reading, ``int64``, ``float32``, ``float64`` (for float64 and
        for decimals, unless ``is_rounded``), ``binary``, ``string``, ``binary_view``,
        ``string_view`` or ``null``, bare, in a ``list`` or in a ``list`` of ``list``. When writing,
        ``int64``, ``float32``, ``binary``, ``large_binary`` or ``null``, and the lists are
        ``list``, ``large_list`` or ``fixed_size_list``.

    Raises
    ------
    UnsupportedTypeError
        See `normal_type`.
    """
    _normal_field_type(field)
    wire = _wire_for_reading(field.type) if reading else _wire_for_writing(field.type)
    return pa.field(field.name, with_leaf(wire, pa.float32()) if is_rounded else wire)


def wire_schema(schema: pa.Schema, *, reading: bool, rounded: Container[str] = ()) -> pa.Schema:
    """Return the schema of `wire_field` of each field; `rounded` names those that are."""
    return pa.schema(
        [wire_field(field, reading=reading, is_rounded=field.name in rounded) for field in schema]
    )


def _wire_for_reading(t: pa.DataType) -> pa.DataType:
    t = storage_type(t)
    if is_any_list(t):
        return pa.list_(_item(_wire_for_reading(t.value_type)))
    if pat.is_dictionary(t):
        return _wire_for_reading(t.value_type)
    if is_int64_storage(t):
        return pa.int64()
    if pat.is_float64(t) or pat.is_decimal(t):
        return pa.float64()
    if pat.is_floating(t):
        return pa.float32()
    if pat.is_large_string(t):
        return pa.string()
    if pat.is_large_binary(t) or pat.is_fixed_size_binary(t):
        return pa.binary()
    return t


def _wire_for_writing(t: pa.DataType) -> pa.DataType:
    t = storage_type(t)
    if pat.is_fixed_size_list(t):
        return pa.list_(_item(_wire_for_writing(t.value_type)), t.list_size)
    if pat.is_list(t):
        return pa.list_(_item(_wire_for_writing(t.value_type)))
    # What views and dictionaries repeat may need more room than 32-bit offsets have.
    if is_any_list(t):
        return pa.large_list(_item(_wire_for_writing(t.value_type)))
    if pat.is_dictionary(t):
        wire = _wire_for_writing(t.value_type)
        return pa.large_binary() if pat.is_binary(wire) else wire
    if is_int64_storage(t):
        return pa.int64()
    if pat.is_floating(t) or pat.is_decimal(t):
        return pa.float32()
    if pat.is_null(t):
        return t
    return pa.binary() if pat.is_string(t) or pat.is_binary(t) else pa.large_binary()


_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32[s]": pa.time32("s"),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "time64[ns]": pa.time64("ns"),
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp[{unit}, UTC]": pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")},
    **{f"duration[{unit}]": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
}
_SIMPLE_TEXTS = {t: text for text, t in _SIMPLE_TYPES.items()}

# Ten digits hold every int32, and keep int() away from hostile lengths.
_LIST = re.compile(r"list<(.+)>", re.DOTALL)
_FIXED_SIZE_LIST = re.compile(r"fixed_size_list<(.+), ([0-9]{1,10})>", re.DOTALL)
_FIXED_SIZE_BINARY = re.compile(r"fixed_size_binary\[([0-9]{1,10})\]")
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]{1,3}), (-?[0-9]{1,3})\)")


def schema_to_json(schema: pa.Schema) -> list[dict[str, str]]:
    """Return a schema as JSON values that a person can read.

    Parameters
    ----------
    schema : pyarrow.Schema
        Any schema of supported types; its normal form is what is written.

    Returns
    -------
    list of dict
        ``{"name": ..., "type": ...}`` for each column. The type is a name of Arrow's (``int64``,
        ``date32``, ...) with its parameters: ``time32[ms]``, ``timestamp[us]``, ``timestamp[us,
        UTC]``, ``duration[ns]``, ``fixed_size_binary[16]``, ``decimal128(10, 2)``, ``list<...>``,
        ``fixed_size_list<..., 512>``.

    Raises
    ------
    UnsupportedTypeError
        See `normal_type`.
    """
    return [{"name": f.name, "type": _type_to_text(f.type)} for f in normal_schema(schema)]


def type_text(t: pa.DataType) -> str:
    """Return the text of a type, of its normal form, in `schema_to_json`."""
    return _type_to_text(normal_type(t))


def _type_to_text(t: pa.DataType) -> str:
    if pat.is_fixed_size_list(t):
        return f"fixed_size_list<{_type_to_text(t.value_type)}, {t.list_size}>"
    if pat.is_list(t):
        return f"list<{_type_to_text(t.value_type)}>"
    if pat.is_fixed_size_binary(t):
        return f"fixed_size_binary[{t.byte_width}]"
    if pat.is_decimal(t):
        return f"decimal{t.bit_width}({t.precision}, {t.scale})"
    return _SIMPLE_TEXTS[t]


def schema_from_json(value: object) -> pa.Schema:
    """Return the schema that `schema_to_json` wrote.

    Parameters
    ----------
    value : object
        Parsed JSON of any origin.

    Returns
    -------
    pyarrow.Schema
        Normal-form types, all nullable.

    Raises
    ------
    ManifestError
        It is no such list, a type's text is not understood, or a name stands twice.
    """
    if not isinstance(value, list):
        raise ManifestError(f"the schema is a {type(value).__name__}, not a list of columns")
    fields: dict[str, pa.Field] = {}
    for column in value:
        if not isinstance(column, dict) or set(column) != {"name", "type"}:
            raise ManifestError(
                f'a column of the schema is {shown(column)}, not {{"name": ..., "type": ...}}'
            )
        name, text = column["name"], column["type"]
        if not isinstance(name, str) or not isinstance(text, str) or not is_unicode(name):
            raise ManifestError(f"a column of the schema is {shown(column)}, not two texts")
        if name in fields:
            raise ManifestError(f"column {shown(name)} stands twice in the schema")
        fields[name] = pa.field(name, _type_from_text(text, _MAX_LIST_DEPTH))
    return pa.schema(list(fields.values()))


def _type_from_text(text: str, lists_allowed: int) -> pa.DataType:
    if simple := _SIMPLE_TYPES.get(text):
        return simple
    try:
        if lists_allowed and (found := _LIST.fullmatch(text)):
            return pa.list_(_item(_type_from_text(found[1], lists_allowed - 1)))
        if lists_allowed and (found := _FIXED_SIZE_LIST.fullmatch(text)):
            item = _item(_type_from_text(found[1], lists_allowed - 1))
            if (size := int(found[2])) <= _INT32_MAX:
                return pa.list_(item, size)
        if (found := _FIXED_SIZE_BINARY.fullmatch(text)) and (width := int(found[1])) <= _INT32_MAX:
            return pa.binary(width)
        if found := _DECIMAL.fullmatch(text):
            make = pa.decimal128 if found[1] == "128" else pa.decimal256
            return make(int(found[2]), int(found[3]))
    except (ValueError, OverflowError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"the type {shown(text)} is not possible: {error}") from error
    raise ManifestError(
        f"the type {shown(text)} is not known; a newer version of tfrecord-io may have written it"
    )


def is_unicode(text: str) -> bool:
    """Return whether a text of JSON, which may hold halves of characters, can be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """Return a value of JSON of any origin for an error's text."""
    text = ascii(value)
    return text if len(text) <= 200 else text[:200] + "..."
