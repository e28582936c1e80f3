"""tf.train's messages without TensorFlow; their life beside TensorFlow is in interop."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from tests.support.wire import bytes_list, entry, example, float_list, int64_list
from tfrecord_io import train

MESSAGES = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
]


def an_example() -> train.Example:
    return train.Example(
        features=train.Features(
            feature={
                "ints": train.Feature(int64_list=train.Int64List(value=[1, -2])),
                "floats": train.Feature(float_list=train.FloatList(value=[0.5])),
                "bytes": train.Feature(bytes_list=train.BytesList(value=[b"\xff", b""])),
                "nothing": train.Feature(),
            }
        )
    )


def a_sequence() -> train.SequenceExample:
    steps = [train.Feature(int64_list=train.Int64List(value=[n])) for n in range(3)]
    return train.SequenceExample(
        context=train.Features(feature={"id": steps[0]}),
        feature_lists=train.FeatureLists(feature_list={"steps": train.FeatureList(feature=steps)}),
    )


@pytest.mark.parametrize("make", [an_example, a_sequence])
def test_messages_travel(make: object) -> None:
    message = make()  # type: ignore[operator]
    kind = type(message)
    assert kind.FromString(message.SerializeToString()) == message
    assert text_format.Parse(text_format.MessageToString(message), kind()) == message
    assert json_format.Parse(json_format.MessageToJson(message), kind()) == message
    assert copy.copy(message) == copy.deepcopy(message) == message
    merged = kind()
    merged.MergeFrom(message)
    assert merged == message
    merged.Clear()
    assert merged != message


def test_the_bytes_are_those_of_the_wire() -> None:
    # What stands there by the protobuf encoding, written by a writer of the tests.
    for key, feature, values in (
        (b"ints", "int64_list", int64_list([1, -2])),
        (b"floats", "float_list", float_list([0.5])),
        (b"bytes", "bytes_list", bytes_list([b"\xff", b""])),
    ):
        message = train.Example()
        one = an_example().features.feature[key.decode()]
        message.features.feature[key.decode()].CopyFrom(one)
        assert message.SerializeToString() == example(entry(key, values))
        assert one.WhichOneof("kind") == feature


def test_a_pickled_message_opens_in_another_process() -> None:
    code = (
        "import pickle, sys\nmessage = pickle.load(sys.stdin.buffer)\n"
        "print(message.features.feature['ints'].int64_list.value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(an_example()),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"[1, -2]\n"


def test_all_names_are_there_and_say_what_they_are() -> None:
    assert sorted(train.__all__) == MESSAGES
    for name in MESSAGES:
        assert getattr(train, name).DESCRIPTOR.full_name == f"tensorflow.{name}"


def test_bad_values_are_protobufs_errors() -> None:
    with pytest.raises(TypeError):
        train.BytesList(value=["text"])
    with pytest.raises(TypeError):
        train.Int64List(value=[0.5])
    with pytest.raises(ValueError, match="out of range"):
        train.Int64List(value=[2**63])
    with pytest.raises(DecodeError):
        train.Example.FromString(b"\xff")
