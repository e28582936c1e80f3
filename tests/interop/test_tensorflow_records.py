"""Records and messages: what TensorFlow writes we read, and the reverse, in one process."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord_io as tfr
from tfrecord_io.codec.reference import frame

RECORDS = [b"", b"one", bytes(range(256)) * 300, b"four"] * 200


def write(writer: Any, records: list[bytes] = RECORDS) -> None:
    with writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
def test_files_of_records(tf: Any, tmp_path: Path, compression: str | None) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    write(tfr.TFRecordWriter(ours, compression))
    write(tf.io.TFRecordWriter(theirs, compression))
    dataset = tf.data.TFRecordDataset(ours, compression_type=compression or "")
    assert list(dataset.as_numpy_iterator()) == RECORDS
    assert list(tfr.TFRecordReader(theirs)) == RECORDS
    assert tfr.TFRecordReader(theirs, compression)[-2] == RECORDS[-2]
    if not compression:
        assert Path(ours).read_bytes() == Path(theirs).read_bytes()


def test_options_are_the_same(tf: Any, tmp_path: Path) -> None:
    names = tfr.TFRecordOptions.__init__.__code__.co_varnames
    theirs = tf.io.TFRecordOptions.__init__.__code__.co_varnames
    count = tf.io.TFRecordOptions.__init__.__code__.co_argcount
    assert names[:count] == theirs[:count]
    kinds = tf.compat.v1.python_io.TFRecordCompressionType
    for name in ("NONE", "ZLIB", "GZIP"):
        number = getattr(kinds, name)
        assert getattr(tfr.python_io.TFRecordCompressionType, name) == number
        for options in (tfr.TFRecordOptions, tf.io.TFRecordOptions):
            for one in (number, np.int64(number)):
                assert options.get_compression_type_string(one) == name.replace("NONE", "")
    arguments = {"compression_level": 1, "mem_level": 9, "window_bits": 31}
    for module, path in ((tfr, tmp_path / "ours"), (tf.io, tmp_path / "theirs")):
        options = module.TFRecordOptions("GZIP", **arguments)
        write(module.TFRecordWriter(str(path), options))
        assert list(tfr.TFRecordReader(path)) == RECORDS


@pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
def test_tensorflows_options_are_taken(tf: Any, tmp_path: Path, compression: str | None) -> None:
    arguments = {"compression_level": 9, "mem_level": 1, "compression_strategy": 3}
    theirs = tf.io.TFRecordOptions(compression, flush_mode=0, input_buffer_size=9, **arguments)
    write(tfr.TFRecordWriter(tmp_path / "a", theirs))
    write(tfr.TFRecordWriter(tmp_path / "b", tfr.TFRecordOptions(compression, **arguments)))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    reader = tfr.TFRecordReader(tmp_path / "a", theirs)
    assert list(reader) == list(pickle.loads(pickle.dumps(reader))) == RECORDS
    assert list(tfr.python_io.tf_record_iterator(tmp_path / "a", theirs)) == RECORDS
    name = tfr.TFRecordOptions.get_compression_type_string(theirs)
    assert name == tf.io.TFRecordOptions.get_compression_type_string(theirs)


def test_tensorflows_options_are_checked(tf: Any, tmp_path: Path) -> None:
    theirs = tf.io.TFRecordOptions("GZIP", compression_level=99)
    with pytest.raises(tfr.OptionError, match="compression_level is 99"):
        tfr.TFRecordWriter(tmp_path / "a", theirs)


def test_the_names_of_both_versions_are_there(tf: Any) -> None:
    """TensorFlow 1 has a name in tf.io that tf.compat.v1.io has now."""
    for ours, theirs in ((tfr.io, tf.compat.v1.io), (tfr.python_io, tf.compat.v1.python_io)):
        names = {name for name in vars(theirs) if "record" in name.lower()}
        assert "tf_record_iterator" in names
        assert names <= set(ours.__all__)
    old = tfr.compat.v1
    assert (old.io, old.python_io, old.train) == (tfr.io, tfr.python_io, tfr.train)


@pytest.mark.parametrize("seed", range(20))
def test_files_take_turns_as_in_tensorflow(tf: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    paths = [str(tmp_path / str(number)) for number in range(rng.randint(1, 7))]
    for path in paths:
        records = [f"{path} {number}".encode() for number in range(rng.choice([0, 1, 2, 3, 5]))]
        write(tfr.TFRecordWriter(path), records)
    for count in (None, *range(1, 6)):
        ours, theirs = (
            module.data.TFRecordDataset(paths, num_parallel_reads=count) for module in (tfr, tf)
        )
        assert [*ours.as_numpy_iterator()] == [*theirs.as_numpy_iterator()]
        assert [one.numpy() for one in ours] == [one.numpy() for one in theirs]
        for part in (-1, 0, 1, 4, 50):
            assert [*ours.take(part)] == [*theirs.take(part).as_numpy_iterator()]
            assert [*ours.skip(part)] == [*theirs.skip(part).as_numpy_iterator()]


def test_arguments_of_a_dataset_of_records(tf: Any) -> None:
    names = ("filenames", "compression_type", "buffer_size", "num_parallel_reads", "name")
    for dataset in (tfr.data.TFRecordDataset, tf.data.TFRecordDataset):
        assert dataset.__init__.__code__.co_varnames[1:6] == names
    assert tfr.data.AUTOTUNE == tf.data.AUTOTUNE
    assert tfr.compat.v1.data is tfr.data


@pytest.mark.parametrize("name", ["as_bytes", "as_text", "as_str", "as_str_any"])
@pytest.mark.parametrize(
    "value", ["Ä", b"\xc3\x84", bytearray(b"x"), memoryview(b"x"), b"\xff", 5, None]
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_text_becomes_bytes_as_in_tensorflow(tf: Any, name: str, value: Any, encoding: str) -> None:
    def outcome(compat: Any) -> Any:
        try:
            made = getattr(compat, name)(value, encoding)
        except (TypeError, UnicodeError) as error:
            return type(error), str(error)
        # Of a memoryview, its address.
        return type(made), made if "memory at" not in str(made) else None

    assert outcome(tfr.compat) == outcome(tf.compat)


def test_what_is_there_after_a_flush(tf: Any, tmp_path: Path) -> None:
    for module, name in ((tfr, "ours"), (tf.io, "theirs")):
        writer = module.TFRecordWriter(str(tmp_path / name))
        writer.write(b"one")
        writer.flush()
        assert (tmp_path / name).read_bytes() == frame(b"one")
        writer.write(b"two")
        del writer
        assert list(tfr.TFRecordReader(tmp_path / name)) == [b"one", b"two"]


def test_errors_are_tensorflows_too(tf: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = tfr.TFRecordWriter(path)
    writer.close()
    theirs = tf.io.TFRecordWriter(str(tmp_path / "b"))
    theirs.close()
    for one in (writer, theirs):
        for act in (lambda one=one: one.write(b"x"), one.flush):
            with pytest.raises(tf.errors.FailedPreconditionError, match="Writer is closed"):
                act()
    path.write_bytes(b"no records at all, but text")
    with pytest.raises(tf.errors.DataLossError, match="damaged here, or are not TFRecord") as data:
        list(tfr.TFRecordReader(path))
    assert isinstance(data.value, tfr.ChecksumError)
    assert data.value.offset == 0
    assert data.value.error_code == tf.errors.DATA_LOSS
    assert data.value.message == str(data.value)
    again = pickle.loads(pickle.dumps(data.value))
    assert (type(again), str(again)) == (tfr.ChecksumError, str(data.value))
    with pytest.raises(tf.errors.DataLossError, match="byte offset 0"):
        tfr.TFRecordReader(path)[0]
    for act in (
        lambda: tfr.TFRecordReader(tmp_path / "none"),
        lambda: tfr.TFRecordWriter(tmp_path / "none" / "a"),
        lambda: tf.io.TFRecordWriter(str(tmp_path / "none" / "a")),
    ):
        with pytest.raises(tf.errors.NotFoundError, match="No such file or directory"):
            act()
    with pytest.raises(FileNotFoundError) as missing:
        tfr.TFRecordReader(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    assert isinstance(pickle.loads(pickle.dumps(missing.value)), FileNotFoundError)
    with pytest.raises(tf.errors.FailedPreconditionError, match="Is a directory"):
        tfr.TFRecordWriter(tmp_path)
    for module in (tfr, tf.io):
        with pytest.raises(ValueError, match="Not a valid compression_type"):
            module.TFRecordOptions("gzip")
        with pytest.raises(TypeError):
            module.TFRecordWriter(str(path)).write(None)


@pytest.mark.parametrize("text", ["", "Ä", "a\0b", "\ud800"])
def test_text_is_a_record_as_in_tensorflow(tf: Any, tmp_path: Path, text: str) -> None:
    for module, name in ((tfr, "ours"), (tf.io, "theirs")):
        with module.TFRecordWriter(str(tmp_path / name)) as writer:
            if text == "\ud800":
                with pytest.raises(TypeError):
                    writer.write(text)
            else:
                writer.write(text)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_tensors_of_texts_are_no_records(tf: Any, tmp_path: Path) -> None:
    for module in (tfr, tf.io):
        with module.TFRecordWriter(str(tmp_path / "a")) as writer:
            with pytest.raises(TypeError):
                writer.write(tf.constant(b"text"))
            writer.write(tf.constant(b"text").numpy())
        assert list(tfr.TFRecordReader(tmp_path / "a")) == [b"text"]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_a_plain_file_read_as_a_compressed_one(tf: Any, tmp_path: Path, compression: str) -> None:
    path = str(tmp_path / "a")
    write(tfr.TFRecordWriter(path))
    reader = tfr.TFRecordReader(path, compression)
    for act in (
        lambda: list(tf.data.TFRecordDataset(path, compression)),
        lambda: list(tfr.python_io.tf_record_iterator(path, compression)),
        lambda: list(reader),
        lambda: len(reader),
        lambda: reader.read(0),
    ):
        with pytest.raises(tf.errors.DataLossError) as caught:
            act()
    assert isinstance(caught.value, tfr.OptionError)
    assert type(pickle.loads(pickle.dumps(caught.value))) is tfr.OptionError
    # A table takes it for what it is: nothing to skip.
    with pytest.raises(tfr.OptionError, match="plain TFRecord"):
        tfr.read_table(path, compression="gzip", record_type="ByteArray", on_corrupt="skip_file")


def test_the_random_reader_ends_alike(tf: Any, tmp_path: Path) -> None:
    from tensorflow.python.lib.io import tf_record

    write(tfr.TFRecordWriter(tmp_path / "a"))
    theirs = tf_record.tf_record_random_reader(str(tmp_path / "a"))
    ours = tfr.TFRecordReader(tmp_path / "a")
    offset = 0
    for _ in range(5):
        record, end = ours.read(offset)
        assert (record, end) == theirs.read(offset)
        offset = end
    for reader in (ours, theirs):
        with pytest.raises(IndexError):
            reader.read(10**9)


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_an_iterator_goes_on_when_its_file_has_grown(tf: Any, tmp_path: Path, whose: str) -> None:
    """TensorFlow's own test, of what TensorBoard needs."""
    old = tfr.python_io if whose == "ours" else tf.compat.v1.python_io
    with old.TFRecordWriter(str(tmp_path / "a")) as writer:

        def add(record: bytes) -> None:
            writer.write(record)
            writer.flush()

        add(b"one")
        records = old.tf_record_iterator(str(tmp_path / "a"))
        add(b"two")
        assert [next(records), next(records)] == [b"one", b"two"]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(records)
        add(b"three")
        assert next(records) == b"three"
        assert next(records, None) is None
        add(b"four")
        add(b"five")
        assert list(records) == [b"four", b"five"]
        records.close()
        assert next(records, None) is None


@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize("size", [13, 20, 24])
def test_an_iterator_goes_on_when_a_record_is_whole(
    tf: Any, tmp_path: Path, whose: str, size: int
) -> None:
    """TensorFlow's own test, of a record of which a part is there."""
    old = tfr.python_io if whose == "ours" else tf.compat.v1.python_io
    write(tfr.TFRecordWriter(tmp_path / "a"), [b"good"])
    whole = frame(b"truncated")
    with (tmp_path / "a").open("ab", buffering=0) as file:
        file.write(whole[:size])
        records = old.tf_record_iterator(str(tmp_path / "a"))
        assert next(records) == b"good"
        for _ in range(2):
            with pytest.raises(tf.errors.DataLossError):
                next(records)
        file.write(whole[size:])
        assert next(records) == b"truncated"
        assert next(records, None) is None


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_an_iterator_does_not_go_on_in_another_file(tf: Any, tmp_path: Path, whose: str) -> None:
    old = tfr.python_io if whose == "ours" else tf.compat.v1.python_io
    write(tfr.TFRecordWriter(tmp_path / "a"), [b"one", b"two"])
    records = old.tf_record_iterator(str(tmp_path / "a"))
    assert list(records) == [b"one", b"two"]
    write(tfr.TFRecordWriter(tmp_path / "b"), [b"aaa", b"bbb", b"ccc"])
    (tmp_path / "b").replace(tmp_path / "a")
    assert next(records, None) is None
    (tmp_path / "a").unlink()
    assert next(records, None) is None


# --- messages -------------------------------------------------------------------------------------


def an_example(train: Any) -> Any:
    return train.Example(
        features=train.Features(
            feature={
                "a": train.Feature(int64_list=train.Int64List(value=[1, -2])),
                "b": train.Feature(float_list=train.FloatList(value=[0.5])),
                "c": train.Feature(bytes_list=train.BytesList(value=[b"\xff"])),
                "d": train.Feature(),
            }
        )
    )


def a_sequence(train: Any) -> Any:
    steps = [train.Feature(float_list=train.FloatList(value=[n, n])) for n in range(3)]
    return train.SequenceExample(
        context=an_example(train).features,
        feature_lists=train.FeatureLists(feature_list={"s": train.FeatureList(feature=steps)}),
    )


@pytest.mark.parametrize("make", [an_example, a_sequence])
def test_messages_are_the_same_on_the_wire(tf: Any, make: Any) -> None:
    from google.protobuf import json_format, text_format

    ours, theirs = make(tfr.train), make(tf.train)
    assert type(ours) is not type(theirs)
    data = ours.SerializeToString(deterministic=True)
    assert data == theirs.SerializeToString(deterministic=True)
    assert type(theirs).FromString(data) == theirs
    assert type(ours).FromString(theirs.SerializeToString()) == ours
    for module in (json_format, text_format):
        show = module.MessageToJson if module is json_format else module.MessageToString
        assert module.Parse(show(theirs), type(ours)()) == ours
        assert module.Parse(show(ours), type(theirs)()) == theirs
    for name in tfr.train.__all__:
        mine, other = getattr(tfr.train, name).DESCRIPTOR, getattr(tf.train, name).DESCRIPTOR
        assert {(f.name, f.number, f.type) for f in mine.fields} == {
            (f.name, f.number, f.type) for f in other.fields
        }


@pytest.mark.parametrize(
    "imports",
    [
        "import tensorflow as tf; import tfrecord_io as tfr; tfr.train.Example",
        "import tfrecord_io as tfr; tfr.train.Example; import tensorflow as tf",
    ],
)
def test_one_process_takes_both_in_any_order(imports: str) -> None:
    code = (
        f"{imports}\n"
        "example = tfr.train.Example()\n"
        "example.features.feature['x'].int64_list.value.append(7)\n"
        "data = example.SerializeToString()\n"
        "print(tf.train.Example.FromString(data).features.feature['x'].int64_list.value)\n"
        "print(tf.io.parse_single_example(data, {'x': tf.io.FixedLenFeature([], tf.int64)})['x'])"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.splitlines() == ["[7]", "tf.Tensor(7, shape=(), dtype=int64)"]
