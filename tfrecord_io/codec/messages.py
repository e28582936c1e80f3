"""The messages of tf.train, and twins of them that keep the order of the wire.

`tfrecord_io.train` gives the messages to users. They are built from descriptors of our own in a
private pool: they need no TensorFlow and do not clash with it in one process, although the full
names (``tensorflow.Example`` ...) are the same.

The twins (``Wire...``) have the same wire format with one difference in the declaration: a map
field is declared as what protobuf defines it to be on the wire, repeated entries of key and value.
A map forgets the order of its keys, and which of them stood there twice; the twins remember, and
they write entries in the order in which they were added. Their keys have presence, so that an empty
key is written too.

Notes
-----
Fields and numbers: tensorflow/core/example/example.proto and feature.proto. Maps on the wire:
https://protobuf.dev/programming-guides/encoding/#maps
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_Field = descriptor_pb2.FieldDescriptorProto
_OPTIONAL, _REPEATED = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED

_TRAIN = "tensorflow"
_WIRE = "tfrecord_io.wire"


def _new_file(name: str, package: str) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def _add(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    kind: object,
    label: object = _OPTIONAL,
) -> descriptor_pb2.FieldDescriptorProto:
    """Add a field; `kind` is a scalar type's number or a message's full name."""
    field = message.field.add(name=name, number=number, label=label)
    if isinstance(kind, str):
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{kind}"
    else:
        field.type = kind
    return field


def _add_map(
    message: descriptor_pb2.DescriptorProto, scope: str, name: str, entry: str, value: str
) -> None:
    nested = message.nested_type.add(name=entry)
    nested.options.map_entry = True
    _add(nested, "key", 1, _Field.TYPE_STRING)
    _add(nested, "value", 2, value)
    _add(message, name, 1, f"{scope}.{message.name}.{entry}", _REPEATED)


def _train_file() -> descriptor_pb2.FileDescriptorProto:
    file = _new_file("tfrecord_io/train.proto", _TRAIN)
    for name, kind in (
        ("BytesList", _Field.TYPE_BYTES),
        ("FloatList", _Field.TYPE_FLOAT),
        ("Int64List", _Field.TYPE_INT64),
    ):
        field = _add(file.message_type.add(name=name), "value", 1, kind, _REPEATED)
        if kind != _Field.TYPE_BYTES:
            field.options.packed = True
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind_name) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), 1
    ):
        _add(feature, name, number, f"{_TRAIN}.{kind_name}").oneof_index = 0
    _add_map(
        file.message_type.add(name="Features"),
        _TRAIN,
        "feature",
        "FeatureEntry",
        f"{_TRAIN}.Feature",
    )
    _add(file.message_type.add(name="FeatureList"), "feature", 1, f"{_TRAIN}.Feature", _REPEATED)
    _add_map(
        file.message_type.add(name="FeatureLists"),
        _TRAIN,
        "feature_list",
        "FeatureListEntry",
        f"{_TRAIN}.FeatureList",
    )
    _add_examples(file, _TRAIN)
    return file


def _wire_file() -> descriptor_pb2.FileDescriptorProto:
    file = _new_file("tfrecord_io/wire.proto", _WIRE)
    file.dependency.append("tfrecord_io/train.proto")
    for name, field_name, value in (
        ("Features", "feature", "Feature"),
        ("FeatureLists", "feature_list", "FeatureList"),
    ):
        entry = file.message_type.add(name=f"{value}Entry")
        key = _add(entry, "key", 1, _Field.TYPE_STRING)
        key.proto3_optional = True
        key.oneof_index = 0
        entry.oneof_decl.add(name="_key")
        _add(entry, "value", 2, f"{_TRAIN}.{value}")
        _add(file.message_type.add(name=name), field_name, 1, f"{_WIRE}.{entry.name}", _REPEATED)
    _add_examples(file, _WIRE)
    return file


def _add_examples(file: descriptor_pb2.FileDescriptorProto, scope: str) -> None:
    _add(file.message_type.add(name="Example"), "features", 1, f"{scope}.Features")
    sequence = file.message_type.add(name="SequenceExample")
    _add(sequence, "context", 1, f"{scope}.Features")
    _add(sequence, "feature_lists", 2, f"{scope}.FeatureLists")


_pool = descriptor_pool.DescriptorPool()
for _file in (_train_file(), _wire_file()):
    _pool.Add(_file)


def _message(name: str) -> Any:
    made = message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))
    # Where another process finds it when it unpickles a message.
    made.__module__ = __name__
    return made


BytesList = _message(f"{_TRAIN}.BytesList")
FloatList = _message(f"{_TRAIN}.FloatList")
Int64List = _message(f"{_TRAIN}.Int64List")
Feature = _message(f"{_TRAIN}.Feature")
Features = _message(f"{_TRAIN}.Features")
FeatureList = _message(f"{_TRAIN}.FeatureList")
FeatureLists = _message(f"{_TRAIN}.FeatureLists")
Example = _message(f"{_TRAIN}.Example")
SequenceExample = _message(f"{_TRAIN}.SequenceExample")

WireExample = _message(f"{_WIRE}.Example")
WireSequenceExample = _message(f"{_WIRE}.SequenceExample")
