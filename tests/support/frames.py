"""TFRecord files made by hand: struct, crc32c and protobuf, nothing of the code under test."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _messages() -> dict[str, Any]:
    """tf.train's messages in a package of their own, from the published .proto files."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tests/frames.proto", package="tests_frames", syntax="proto3"
    )
    scalar = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = file.message_type.add(name=name)
        for field, number, label, kind, of in fields:
            added = made.field.add(name=field, number=number, label=label, type=kind)
            if of:
                added.type_name = f".tests_frames.{of}"
        return made

    one, many, sub = scalar.LABEL_OPTIONAL, scalar.LABEL_REPEATED, scalar.TYPE_MESSAGE
    message("BytesList", ("value", 1, many, scalar.TYPE_BYTES, ""))
    message("FloatList", ("value", 1, many, scalar.TYPE_FLOAT, ""))
    message("Int64List", ("value", 1, many, scalar.TYPE_INT64, ""))
    feature = message(
        "Feature",
        ("bytes_list", 1, one, sub, "BytesList"),
        ("float_list", 2, one, sub, "FloatList"),
        ("int64_list", 3, one, sub, "Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    message("FeatureList", ("feature", 1, many, sub, "Feature"))
    for outer, inner, field in (
        ("Features", "Feature", "feature"),
        ("FeatureLists", "FeatureList", "feature_list"),
    ):
        made = file.message_type.add(name=outer)
        entry = made.nested_type.add(name="".join(p.title() for p in field.split("_")) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=one, type=scalar.TYPE_STRING)
        entry.field.add(
            name="value", number=2, label=one, type=sub, type_name=f".tests_frames.{inner}"
        )
        made.field.add(
            name=field,
            number=1,
            label=many,
            type=sub,
            type_name=f".tests_frames.{outer}.{entry.name}",
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests_frames.{name}"))
        for name in ("Features", "FeatureLists")
    }


_MESSAGES = _messages()


def masked_crc(data: bytes) -> int:
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def header(length: int) -> bytes:
    """A frame's first 12 bytes, its CRC right whatever the length."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


def frame(payload: bytes) -> bytes:
    return header(len(payload)) + payload + struct.pack("<I", masked_crc(payload))


def _fill(feature: Any, value: Any) -> None:
    values = value if isinstance(value, list | tuple) else [value]
    for one in values:
        if isinstance(one, bytes):
            feature.bytes_list.value.append(one)
        elif isinstance(one, str):
            feature.bytes_list.value.append(one.encode())
        elif isinstance(one, float):
            feature.float_list.value.append(one)
        else:
            feature.int64_list.value.append(one)


def _delimited(tag: int, data: bytes) -> bytes:
    """A field of bytes: its tag, a varint of its length, and itself."""
    out, left = bytearray([tag]), len(data)
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(out) + bytes([left]) + data


def _features(values: dict[str, Any]) -> bytes:
    """A Features message, keys in the order given: protobuf alone would order a map as it likes."""
    out = b""
    for name, value in values.items():
        if value is not None:
            made = _MESSAGES["Features"]()
            _fill(made.feature[name], value)
            out += made.SerializeToString()
    return out


def example(**features: Any) -> bytes:
    """An Example's bytes; a value is an int, a float, a str, bytes, or a list of one of these."""
    return _delimited(0x0A, _features(features))


def sequence_example(context: dict[str, Any], lists: dict[str, list[Any]]) -> bytes:
    feature_lists = b""
    for name, steps in lists.items():
        made = _MESSAGES["FeatureLists"]()
        made.feature_list[name].SetInParent()
        for step in steps:
            _fill(made.feature_list[name].feature.add(), step)
        feature_lists += made.SerializeToString()
    return _delimited(0x0A, _features(context)) + _delimited(0x12, feature_lists)


def records(*payloads: bytes) -> bytes:
    return b"".join(frame(payload) for payload in payloads)


def examples(*rows: dict[str, Any]) -> bytes:
    return records(*(example(**row) for row in rows))
