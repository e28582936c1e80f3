"""The reference codec keeps the contract."""

from __future__ import annotations

import pytest
from google import protobuf

from tests.codec.contract import CodecContract
from tfrecord_io.codec import messages
from tfrecord_io.codec.reference import ReferenceCodec


class TestReference(CodecContract):
    # See docs/format.md.
    number_0_is_refused = protobuf.__version__.startswith("6.")

    @pytest.fixture
    def codec(self) -> ReferenceCodec:
        return ReferenceCodec()


def test_messages_are_those_of_tf_train() -> None:
    example = messages.Example()
    example.features.feature["a"].int64_list.value.append(7)
    # As protoc and feature.proto have it.
    assert example.SerializeToString() == b"\x0a\x0c\x0a\x0a\x0a\x01a\x12\x05\x1a\x03\x0a\x01\x07"
    assert messages.Example.DESCRIPTOR.full_name == "tensorflow.Example"


def test_twins_read_what_messages_write() -> None:
    example = messages.SequenceExample()
    example.context.feature["c"].bytes_list.value.append(b"\xff")
    example.feature_lists.feature_list["l"].feature.add().float_list.value.append(0.5)
    twin = messages.WireSequenceExample.FromString(example.SerializeToString())
    assert [entry.key for entry in twin.context.feature] == ["c"]
    assert twin.SerializeToString() == example.SerializeToString()
